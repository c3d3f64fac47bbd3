"""When a dead service is started again, and when the run gives up.

The wait doubles from 0.5 s to 15 s with every death since the run last made a step. A service that dies `LIMIT` times
within `WINDOW_S` without the run making a step is in a crash loop: starting it once more would not help.
"""

from collections import deque

LIMIT = 5
WINDOW_S = 600.0
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 15.0


class Deaths:
    """The deaths of one service since the last step of the run."""

    def __init__(self, first_wait_s: float = FIRST_WAIT_S) -> None:
        self._first_wait_s = first_wait_s
        self._at: deque[float] = deque(maxlen=LIMIT)
        self._step = -1

    def record(self, now: float, step: int) -> None:
        """It died at `now` (monotonic seconds), when the run had made `step` steps."""
        if step != self._step:
            self._at.clear()
            self._step = step
        self._at.append(now)

    @property
    def is_loop(self) -> bool:
        """Whether it dies again and again."""
        return len(self._at) == LIMIT and self._at[-1] - self._at[0] <= WINDOW_S

    @property
    def wait_s(self) -> float:
        """Seconds until the next start."""
        return min(self._first_wait_s * 2.0 ** (len(self._at) - 1), LONGEST_WAIT_S) if self._at else 0.0
