"""Batches to policy versions, for ever; a batch is settled only when a checkpoint that contains its effect is complete.

    batches -> decode -> train (thread) -> stage -> [checkpoint -> settle] -> the next batch
                                              +-> write -> give feedback + policy    beside it

Waits for the filter to close a batch, and for the version before to be announced. Training runs in a thread, so
heartbeats go on; the broker delivers batches in order, and again from the first unsettled one after a crash.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from prometheus_client import Counter

from common import codec
from common.client import Delivery, Inbox, Item, QueueClient
from common.codec import encode
from common.errors import DapoError, RefusedError
from common.messages import BATCHES, FEEDBACK, POLICY, TURNS, Policy
from common.protocol import Register, Write
from common.stages import Stage
from services.learner.crew import Lead
from services.learner.learner import Learner
from services.learner.report import MetricsFile

T = TypeVar("T")

PHASE = Counter("dapo_learner_phase_seconds_total", "Seconds of the learner by phase.", ["phase"])
PARTS = ("reference", "proximal", "forward", "backward", "optimizer")
"""Phases inside `train`, which the trainer times itself."""
TOKENS = Counter("dapo_learner_tokens_total", "Response tokens trained.")
PREFETCH = 2
"""Batches held beyond those that wait for a checkpoint: the one in training and the next."""


class LearnerService:
    """Joins a learner to the queues."""

    def __init__(
        self, *, client: QueueClient, learner: Learner | Lead, metrics: MetricsFile, steps: int, checkpoint_every: int
    ) -> None:
        self._client = client
        self._learner = learner
        self._metrics = metrics
        self._steps = steps
        self._checkpoint_every = checkpoint_every
        self._stage = Stage("learner")
        self._seconds: dict[str, float] = {}
        """Of the newest step, by phase."""
        self._unsettled: list[int] = []
        """Leases of batches trained since the last checkpoint."""
        self._announcing: asyncio.Task[None] | None = None
        """The newest version on its way."""

    async def run(self) -> None:
        """Announce the policy, then train for ever."""
        await self._announce()
        inbox = self._client.take(BATCHES, window=PREFETCH)
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._next(inbox, tasks)

    async def _announce(self) -> None:
        """Publish the starting policy unless the register already names this or a later version.

        The first turn to load a version is given here, for rollouts that take turns; given again it changes nothing.
        """
        await self._client.give(Item(TURNS, "0", [b""]))
        register = await self._client.watch(POLICY).changed()
        if _version(register) < self._learner.step:
            policy = await asyncio.to_thread(self._learner.publish)
            assert policy is not None  # this is rank 0
            await self._give(policy, register)

    async def _next(self, inbox: Inbox, tasks: asyncio.TaskGroup) -> None:
        """One batch, from waiting for it to its checkpoint."""
        start = time.monotonic()
        with self._stage.starved():
            item = await inbox.get()
        waited = time.monotonic() - start
        PHASE.labels("wait").inc(waited)
        batch, arrays = codec.decode_batch(item.frames)
        if batch.step < self._learner.step:
            await self._client.settle([item.lease], reason="already trained")
            return
        if batch.step > self._learner.step:
            raise DapoError(f"batch {batch.step} was delivered, batch {self._learner.step} is next: one was lost")
        with self._stage.busy():
            metrics, feedback = await self._timed("train", self._learner.train, batch, arrays)
            await self._announced()
            write = await self._timed("publish", self._learner.stage)
        given = Item(FEEDBACK, str(batch.step), encode(feedback))
        self._announcing = tasks.create_task(self._write_and_give(write, given))
        with self._stage.blocked():
            await self._settle(item, inbox)
        TOKENS.inc(metrics["trained_tokens"])
        for phase in PARTS:
            PHASE.labels(phase).inc(metrics.get(f"seconds_{phase}", 0.0))
        self._metrics.append({"step": batch.step, "version": batch.step + 1, "time": time.time(),
                              **metrics, **self._phases(waited)})  # fmt: skip

    def _phases(self, waited: float) -> dict[str, float]:
        """Seconds of the step by phase, and the share in which the learner had nothing to do."""
        busy = sum(self._seconds.values())
        seconds = {f"{phase}_seconds": value for phase, value in self._seconds.items()}
        self._seconds = {}
        return {"wait_seconds": waited, "idle_share": waited / max(1e-9, waited + busy), **seconds}

    async def _write_and_give(self, write: Callable[[], Policy] | None, feedback: Item) -> None:
        """Write the version beside the next step, then announce it together with the feedback."""
        assert write is not None  # this is rank 0
        start = time.monotonic()
        policy = await asyncio.to_thread(write)
        PHASE.labels("write").inc(time.monotonic() - start)
        register = self._client.watch(POLICY).latest
        assert register is not None
        await self._give(policy, register, feedback)

    async def _announced(self) -> None:
        """Wait until the version before is announced; what staged it is free again then."""
        if self._announcing is not None:
            await self._announcing

    async def _settle(self, item: Delivery, inbox: Inbox) -> None:
        """Checkpoint and settle when it is time, after the version was announced."""
        self._unsettled.append(item.lease)
        if self._learner.step % self._checkpoint_every == 0 or self._learner.step >= self._steps:
            await self._announced()
            await self._timed("checkpoint", self._learner.save)
            await self._client.settle(self._unsettled, reason="trained")
            self._unsettled = []
        inbox.resize(len(self._unsettled) + PREFETCH)

    async def _give(self, policy: Policy, register: Register, *items: Item) -> None:
        """Give, and write the register if that makes it grow. A retrained step gives the same ids: no effect."""
        grows = _version(register) < policy.version
        writes = [Write(register=POLICY, value=encode(policy)[0], expected=register.version)] if grows else []
        try:
            await self._client.give(*items, writes=writes)
        except RefusedError as error:
            raise DapoError(f"another learner announced a policy: {error}") from error

    async def _timed(self, phase: str, call: Callable[..., T], *arguments: Any) -> T:
        """Run a call of the learner in a thread and account for its seconds."""
        start = time.monotonic()
        result = await asyncio.to_thread(call, *arguments)
        self._seconds[phase] = time.monotonic() - start
        PHASE.labels(phase).inc(self._seconds[phase])
        return result


def _version(register: Register) -> int:
    """The policy version that the register names; -1 if none."""
    return codec.decode(Policy, [register.value]).version if register.version else -1
