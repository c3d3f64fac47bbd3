"""The clock that leases live by: seconds in which the broker listened.

A broker that was stopped, swapped out or slow at its disk has not heard the pings that wait in its socket; that time is
nobody's silence, so a long step of the machine's clock counts as a short one.
"""

import time
from collections.abc import Callable

LONGEST_STEP_S = 1.0


class ListeningClock:
    """Monotonic seconds, advanced once a turn."""

    def __init__(self, source: Callable[[], float] = time.monotonic) -> None:
        self.now = 0.0
        self._source = source
        self._read_at = source()

    def advance(self) -> float:
        """The time now."""
        read_at = self._source()
        self.now += min(read_at - self._read_at, LONGEST_STEP_S)
        self._read_at = read_at
        return self.now
