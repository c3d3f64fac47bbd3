"""What a queue client hands to its user: items, the inbox they come in, the latest value of a register."""

import asyncio
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from common.protocol import Register


@dataclass(frozen=True, slots=True)
class Item:
    """What is given: an id, unique in its queue, and opaque frames."""

    queue: str
    id: str
    frames: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Delivery:
    """An item under a lease of this client."""

    queue: str
    id: str
    lease: int
    delivery: int
    """1 at the first delivery."""
    frames: list[bytes]


class Inbox:
    """Deliveries of one queue, in order."""

    def __init__(self, held: Container[int], resize: Callable[[int], None]) -> None:
        """`held` has the leases that the client still holds."""
        self._held = held
        self._resize = resize
        self._items: asyncio.Queue[Delivery] = asyncio.Queue()

    async def get(self) -> Delivery:
        """The next item; waits until one comes. Items whose lease was lost meanwhile are skipped."""
        while True:
            item = await self._items.get()
            if item.lease in self._held:
                return item

    def resize(self, window: int) -> None:
        """Hold at most `window` unsettled items from now on."""
        self._resize(window)

    def put(self, item: Delivery) -> None:
        """The client received an item; the window bounds how many lie here."""
        self._items.put_nowait(item)


class Watched:
    """The latest value of a register."""

    def __init__(self) -> None:
        self.latest: Register | None = None
        """None until the broker has told the first value."""
        self._news = asyncio.Event()

    async def changed(self) -> Register:
        """The value, as soon as one came that was not returned before. Values in between are skipped."""
        await self._news.wait()
        self._news.clear()
        assert self.latest is not None
        return self.latest

    def put(self, register: Register) -> None:
        """The client received a value, perhaps the same again after a recovery."""
        if self.latest != register:
            self.latest = register
            self._news.set()
