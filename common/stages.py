"""Where the time of a stage goes: busy, starved (waits for input) or blocked (waits for room downstream).

    stage = Stage("reward")
    with stage.starved():
        item = await inbox.get()
    with stage.busy():
        verdict = judge(item)
    with stage.blocked():
        await client.give(...)

The three shares of every stage, side by side, are the picture of back-pressure: the bottleneck is the stage that is
busy while its neighbours are starved (after it) and blocked (before it).
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal

from prometheus_client import Counter

State = Literal["busy", "starved", "blocked"]

STAGE_SECONDS = Counter(
    "dapo_stage_seconds_total", "Seconds a stage spent busy, starved or blocked.", ["stage", "state"]
)


class Stage:
    """Clock of one stage. With several tasks in one stage the seconds add up over the tasks."""

    def __init__(self, name: str) -> None:
        self._counters = {state: STAGE_SECONDS.labels(name, state) for state in ("busy", "starved", "blocked")}

    def busy(self) -> AbstractContextManager[None]:
        """Time spent working."""
        return self._spend("busy")

    def starved(self) -> AbstractContextManager[None]:
        """Time spent waiting for input."""
        return self._spend("starved")

    def blocked(self) -> AbstractContextManager[None]:
        """Time spent waiting for room downstream."""
        return self._spend("blocked")

    @contextmanager
    def _spend(self, state: State) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self._counters[state].inc(time.monotonic() - start)
