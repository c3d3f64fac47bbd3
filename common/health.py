"""Whether the loops of a process turn: what /healthz answers, and a metric.

    health.beat("events")     in every turn of a loop, from any thread
    health.complaint()        empty while every loop has turned within `SILENCE_S`

A loop that hangs is seen although its process lives and its port is open. Not seen: work that a loop waits for and
that never ends; an alert watches the steps of the run for that.
"""

import time
from collections.abc import Callable

from prometheus_client import Gauge

SILENCE_S = 30.0
"""A loop that has not turned for so long is stuck."""

BEAT = Gauge("dapo_loop_beat_timestamp_seconds", "Unix time at which a loop of the process last turned.", ["loop"])


class Health:
    """The last turn of every loop of a process."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._beats: dict[str, float] = {}

    def beat(self, loop: str) -> None:
        """Say that a loop turns."""
        self._beats[loop] = self._now()
        BEAT.labels(loop).set(time.time())

    def complaint(self) -> str:
        """Which loops do not turn; empty if all do."""
        if not self._beats:
            return "starting"
        now = self._now()
        silent = {loop: now - beat for loop, beat in self._beats.items() if now - beat > SILENCE_S}
        return ", ".join(f"loop {loop} has not turned for {age:.0f} s" for loop, age in sorted(silent.items()))
