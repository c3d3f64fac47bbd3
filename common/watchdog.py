"""Notices that a run gets nowhere, says what it waits for, and ends it rather than let it idle for hours.

    watchdog = Watchdog("filter", stall_s=run.stall_s, queues=...)
    watchdog.beat()                          something came
    await watchdog.watch(has_work, ...)      for ever; a third of `stall_s` of silence: reported; all of it: `UserError`

It counts only while there is work. It cannot tell slow from stuck: `stall_s` must exceed the longest sample.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

import msgspec
from prometheus_client import Gauge

from common.client import Watched
from common.errors import UserError
from common.messages import BATCHES, GROUPS, PROMPTS, SCORED
from common.protocol import QueueStats

log = logging.getLogger(__name__)

STALLED = Gauge(
    "dapo_stalled_seconds", "Seconds without progress although there is work; 0 below the limit.", ["stage"]
)
WORKERS = {PROMPTS: "a rollout", GROUPS: "a reward", SCORED: "the filter", BATCHES: "the learner"}
"""Who takes from each queue, in flow order."""
CHECKS = 60
"""Looks per `stall_s`."""


class Watchdog:
    """Of one stage."""

    def __init__(
        self, stage: str, *, stall_s: float, queues: Mapping[str, Watched], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`queues` follow the statistics of the run's queues; `stall_s` 0: never ends anything."""
        self._stage = stage
        self._stall_s = stall_s
        self._queues = queues
        self._clock = clock
        self._last = clock()
        self._reported = False

    def beat(self) -> None:
        """There was progress, or there is nothing to do."""
        self._last = self._clock()
        if self._reported:
            self._reported = False
            STALLED.labels(self._stage).set(0)
            log.info("progress again", extra={"stage": self._stage})

    async def watch(self, has_work: Callable[[], bool]) -> None:
        """Until the stall is too long; then raises `UserError`. Returns never otherwise."""
        while True:
            await asyncio.sleep((self._stall_s or 3600.0) / CHECKS)
            if not has_work():
                self.beat()
            elif message := self.check():
                raise UserError(message)

    def check(self) -> str:
        """Report a silence; the sentence to end with if it was too long, else nothing."""
        silent_s = self._clock() - self._last
        if not self._stall_s or silent_s < self._stall_s / 3:
            return ""
        STALLED.labels(self._stage).set(silent_s)
        if not self._reported:
            self._reported = True
            log.error(
                "no progress", extra={"stage": self._stage, "seconds": round(silent_s), "waits_for": self.waits_for()}
            )
        if silent_s < self._stall_s:
            return ""
        return (
            f"no progress for {silent_s:.0f} s, the limit is [run] stall_s = {self._stall_s:g}: {self.waits_for()}; "
            "see logs/, mend it, then go on with --resume"
        )

    def waits_for(self) -> str:
        """Where the work lies, from its end backwards."""
        found = [_state(queue, self._queues[queue]) for queue in reversed(WORKERS) if queue in self._queues]
        lying = [text for text in found if text]
        return "; ".join(lying) if lying else "nothing lies in any queue"


def _state(queue: str, watched: Watched) -> str:
    register = watched.latest
    stats = msgspec.msgpack.decode(register.value, type=QueueStats) if register and register.version else QueueStats()
    who = WORKERS[queue]
    if stats.leased and not stats.ready:
        return f"{who} holds {stats.leased} of {queue} and gives nothing"
    if stats.ready and not stats.credit and not stats.leased:
        return f"nobody takes the {stats.ready} of {queue}: {who} is missing"
    if stats.ready:
        return f"{who} holds {stats.leased} of {queue}, {stats.ready} wait"
    return ""
