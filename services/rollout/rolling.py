"""One replica after the other: an item that goes from hand to hand is the right to load a version.

    queue `turns` -> the replica that holds the item loads, then gives the next number and settles the one it had

The broker keeps it as it keeps everything: a replica that dies while it loads loses its lease, and the next one has the
turn. The learner puts the first item there.
"""

import contextlib
import logging
from collections.abc import AsyncIterator

from common.client import Item, QueueClient
from common.errors import RefusedError
from common.messages import TURNS

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def turn(client: QueueClient) -> AsyncIterator[None]:
    """Hold the turn for the length of the block. Waits for the replica that holds it."""
    inbox = client.take(TURNS, window=1)
    item = await inbox.get()
    inbox.resize(0)
    try:
        yield
    finally:
        try:
            await client.give(Item(TURNS, str(int(item.id) + 1), [b""]), settles=[item.lease], reason="loaded")
        except RefusedError as error:
            log.warning("the turn was lost", extra={"turn": item.id, "cause": str(error)})


def no_turn(_: QueueClient) -> contextlib.AbstractAsyncContextManager[None]:
    """All replicas load at once."""
    return contextlib.nullcontext()
