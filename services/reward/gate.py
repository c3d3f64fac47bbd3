"""As many requests inside as there are workers; those of a lower level are let in first.

    async with gate.inside(level): ...       gate.lowest: the lowest level of those that wait, `LEVELS` if none

`asyncio.Semaphore` knows no levels.
"""

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import AsyncIterator

from services.reward.turns import LEVELS


class Gate:
    """For the tasks of one event loop; `lowest` may be read from any thread."""

    def __init__(self, places: int) -> None:
        """So many may be inside at a time."""
        self.lowest = LEVELS
        self._free = places
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._orders = itertools.count()

    @contextlib.asynccontextmanager
    async def inside(self, level: int) -> AsyncIterator[None]:
        """Wait for a place, and keep it for the length of the block."""
        called = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (level, next(self._orders), called))
        self._settle()
        try:
            await called
        except asyncio.CancelledError:
            self._free += called.done() and not called.cancelled()
            self._settle()
            raise
        try:
            yield
        finally:
            self._free += 1
            self._settle()

    def _settle(self) -> None:
        """Let in as many as there is room for; those that were cancelled are forgotten."""
        while self._waiting and (self._free or self._waiting[0][2].done()):
            called = heapq.heappop(self._waiting)[2]
            if not called.done():
                self._free -= 1
                called.set_result(None)
        self.lowest = self._waiting[0][0] if self._waiting else LEVELS
