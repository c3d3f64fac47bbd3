"""Who computes: as many requests at a time as there are processors, those of a lower level first.

    take(turn) --> computes --> give(turn)
                      |  ^
                pause(turn): another of a lower level computes meanwhile
                      |
                      v
                   Evicted: it loses its worker as well, and is asked again later

A request begins at level 0 and rises as it uses up its allowances, as in the multilevel feedback queue of an operating
system (Corbato et al., 1962): what computes for long waits, stopped, while others have work. When all workers are with
requests that are stopped and others of a lower level wait outside for a worker, the one that is furthest is evicted.
"""

import bisect
import itertools
import threading
from collections.abc import Callable

LEVELS = 4
SETTLE_S = 0.5
"""Who waits outside may go away without a word, so those that were stopped for it look again."""


class Evicted(Exception):
    """The worker of this request is needed for others."""


class Turn:
    """The place of one request; its level may rise while it computes."""

    def __init__(self, level: int) -> None:
        """It waits for its first turn."""
        self.level = level
        self.holds = False
        """Whether it is one of those that compute."""
        self.paused = False
        """Whether it has begun: only then is there something to evict."""
        self.evicted = False
        self.order = 0
        self.called = threading.Event()


class Turns:
    """The line of the requests that have a worker. For any thread."""

    def __init__(self, places: int, outside: Callable[[], int] = lambda: LEVELS) -> None:
        """`places` compute at a time; `outside` is the lowest level of those that wait for a worker, or `LEVELS`."""
        self._outside = outside
        self._places = self._free = places
        self._lock = threading.Lock()
        self._line: list[Turn] = []
        """By level, then by the time of coming."""
        self._leaving: set[Turn] = set()
        self._orders = itertools.count()

    def take(self, turn: Turn) -> None:
        """Wait until it is the request's turn; raises `Evicted` if it shall give up."""
        with self._lock:
            turn.called.clear()
            turn.order = next(self._orders)
            bisect.insort(self._line, turn, key=_place)
            self._settle()
        while not turn.called.wait(SETTLE_S):
            with self._lock:
                self._settle()
        if turn.evicted:
            raise Evicted

    def give(self, turn: Turn) -> None:
        """It computes no more, or waits for something; nothing if it did not compute."""
        with self._lock:
            self._free += turn.holds
            turn.holds = False
            self._settle()

    def pause(self, turn: Turn) -> None:
        """Let the others go first; the process is stopped. Raises `Evicted` if it shall give up."""
        turn.paused = True
        self.give(turn)
        self.take(turn)

    def end(self, turn: Turn) -> None:
        """The request is over and its worker ready for the next one."""
        self.give(turn)
        with self._lock:
            self._leaving.discard(turn)

    def is_wanted(self, level: int) -> bool:
        """Whether a request of a lower level waits."""
        with self._lock:
            return self._lowest() < level

    def _lowest(self) -> int:
        return min(self._line[0].level if self._line else LEVELS, self._outside())

    def _settle(self) -> None:
        """Call those whose turn it is, and make room for those outside that go before all that are stopped."""
        outside = self._outside()
        while self._free and self._line and (self._line[0].level <= outside or not self._line[0].paused):
            first = self._line.pop(0)
            first.holds = True
            self._free -= 1
            first.called.set()
        coming = sum(turn.level <= outside for turn in self._line) + len(self._leaving)
        while coming < self._places and (last := self._last(outside)):
            self._line.remove(last)
            self._leaving.add(last)
            last.evicted = True
            last.called.set()
            coming += 1

    def _last(self, outside: int) -> Turn | None:
        """The one to evict: of those of the highest level the one that waits longest."""
        found = [turn for turn in self._line if turn.paused and turn.level > outside]
        return next((turn for turn in found if turn.level == found[-1].level), None)


def _place(turn: Turn) -> tuple[int, int]:
    return turn.level, turn.order
