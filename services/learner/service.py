"""Batches to policy versions, until the last step; a batch is settled when a checkpoint that contains it is complete.

    batches -> decode -> train (thread) -> publish -> give feedback + policy -> [copy -> write (beside) -> settle]

Waits for the filter to close a batch. Training runs in a thread, so heartbeats go on; the broker delivers batches in
order, and again from the first unsettled one after a crash.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from prometheus_client import Counter

from common import codec
from common.client import Delivery, Inbox, Item, QueueClient
from common.codec import encode
from common.errors import DapoError, RefusedError, UserError, WireError
from common.messages import BATCHES, FEEDBACK, POLICY, TURNS, Policy
from common.protocol import QueueStats, Register, Write
from common.stages import Stage
from common.watchdog import WORKERS, Watchdog
from services.learner import recording
from services.learner.crew import Lead
from services.learner.learner import Learner
from services.learner.report import MetricsFile
from services.learner.saving import Saver

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
        self, *, client: QueueClient, learner: Learner | Lead, metrics: MetricsFile, steps: int,
        checkpoint_every: int, folder: Path, record: bool = False, disk_wait_s: float = 60.0, stall_s: float = 0.0,
    ) -> None:  # fmt: skip
        """`folder` is the run's; with `record` every batch is kept there."""
        self._client = client
        self._learner = learner
        self._metrics = metrics
        self._steps = steps
        self._checkpoint_every = checkpoint_every
        self._folder = folder
        self._record = record
        self._stage = Stage("learner")
        queues = {queue: client.watch(f"queue/{queue}") for queue in WORKERS}
        self._watchdog = Watchdog("learner", stall_s=stall_s, queues=queues)
        self._step = asyncio.Lock()
        """Held while a batch is trained and handed over."""
        self._seconds: dict[str, float] = {}
        """Of the newest step, by phase."""
        self._saver = Saver(client=client, learner=learner, folder=folder, disk_wait_s=disk_wait_s)
        self._announcing: asyncio.Task[None] | None = None
        """The newest version on its way."""
        self._early: dict[int, Delivery] = {}
        """By step: batches that came and are not trained; the window bounds how many."""

    async def run(self) -> None:
        """Announce the policy, then train until every step is trained and its checkpoint complete.

        An error of the writing in the background ends it at once.
        """
        await self._announce()
        inbox = self._client.take(BATCHES, window=PREFETCH)
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch())
            while self._learner.step < self._steps:
                await self._next(inbox, tasks)
            watching.cancel()
        await self._settle_rest(inbox)

    async def _settle_rest(self, inbox: Inbox) -> None:
        """Batches that a learner left unsettled which died after its last checkpoint. Waits until there are none."""
        batches = self._client.watch(f"queue/{BATCHES}")
        async with asyncio.TaskGroup() as tasks:
            rest = tasks.create_task(self._next_for_ever(inbox, tasks))
            while not _is_empty(await batches.changed()):
                pass
            rest.cancel()

    async def _next_for_ever(self, inbox: Inbox, tasks: asyncio.TaskGroup) -> None:
        while True:
            await self._next(inbox, tasks)

    async def _watch(self) -> None:
        """When no batch comes for too long: save what no checkpoint holds, then end. Waits for that."""
        try:
            await self._watchdog.watch(lambda: not self._step.locked() and self._learner.step < self._steps)
        except UserError:
            async with self._step:  # no batch is begun any more
                await self._announced()
                await self._saver.save_now()
                raise

    async def _announce(self) -> None:
        """Publish the starting policy unless the register already names this or a later version.

        The first turn to load a version is given here, for rollouts that take turns; given again it changes nothing.
        """
        await self._client.give(Item(TURNS, "0", [b""]))
        register = await self._client.watch(POLICY).changed()
        if _version(register) < self._learner.step:
            policy = await self._saver.until_room(lambda: asyncio.to_thread(self._learner.publish))
            assert policy is not None  # this is rank 0
            await self._give(policy, register)

    async def _next(self, inbox: Inbox, tasks: asyncio.TaskGroup) -> None:
        """One batch. Waits for it."""
        start = time.monotonic()
        with self._stage.starved():
            item = await self._receive(inbox)
        self._watchdog.beat()
        waited = time.monotonic() - start
        PHASE.labels("wait").inc(waited)
        async with self._step:
            await self._train(item, waited, tasks)
        inbox.resize(self._saver.num_unsettled + PREFETCH)

    async def _train(self, item: Delivery, waited: float, tasks: asyncio.TaskGroup) -> None:
        """The batch of this step, to the beginning of its checkpoint."""
        batch, arrays = codec.decode_batch(item.frames)
        if batch.step != self._learner.step:
            raise WireError(f"batch {batch.step} came under the name {item.id}")
        if self._record:
            recording.record(self._folder / recording.FOLDER, batch.step, item.frames)
        with self._stage.busy():
            metrics, feedback = await self._timed("train", self._learner.train, batch, arrays)
            await self._announced()
            write = await self._saver.until_room(lambda: self._timed("publish", self._learner.stage))
        given = Item(FEEDBACK, str(batch.step), encode(feedback))
        self._announcing = tasks.create_task(self._write_and_give(write, given))
        self._saver.trained(batch.step, item.lease)
        TOKENS.inc(metrics["trained_tokens"])
        for phase in PARTS:
            PHASE.labels(phase).inc(metrics.get(f"seconds_{phase}", 0.0))
        self._metrics.append({"step": batch.step, "version": batch.step + 1, "time": time.time(),
                              **metrics, **self._phases(waited)})  # fmt: skip
        with self._stage.blocked():  # after the line of the step: what a checkpoint holds is not trained again
            await self._checkpoint_when_due(tasks)

    async def _receive(self, inbox: Inbox) -> Delivery:
        """The batch of this step. Waits for it, and deals with others that come meanwhile."""
        while True:
            item = self._early.pop(self._learner.step, None) or await inbox.get()
            step = int(item.id)
            if step == self._learner.step and item.lease in self._client.held:
                return item
            if step > self._learner.step:  # it overtook its predecessor, or that comes again
                self._early[step] = item
            elif step < self._learner.step:
                await self._saver.came_again(step, item.lease)

    def _phases(self, waited: float) -> dict[str, float]:
        """Seconds of the step by phase, and the share in which the learner had nothing to do.

        `checkpoint` is the copy that was made after the step before.
        """
        busy = sum(self._seconds.values())
        seconds = {f"{phase}_seconds": value for phase, value in self._seconds.items()}
        self._seconds = {}
        return {"wait_seconds": waited, "idle_share": waited / max(1e-9, waited + busy), **seconds}

    async def _write_and_give(self, write: Callable[[], Policy] | None, feedback: Item) -> None:
        """Write the version beside the next step, then announce it together with the feedback."""
        assert write is not None  # this is rank 0
        start = time.monotonic()
        policy = await self._saver.until_room(lambda: asyncio.to_thread(write))
        PHASE.labels("write").inc(time.monotonic() - start)
        register = self._client.watch(POLICY).latest
        assert register is not None
        await self._give(policy, register, feedback)

    async def _announced(self) -> None:
        """Wait until the version before is announced; what staged it is free again then."""
        if self._announcing is not None:
            await self._announcing

    async def _checkpoint_when_due(self, tasks: asyncio.TaskGroup) -> None:
        """Begin a checkpoint every so many steps; that of the last step is waited for."""
        is_last = self._learner.step >= self._steps
        if is_last or self._learner.step % self._checkpoint_every == 0:
            await self._announced()
            await self._saver.begin(lambda: self._timed("checkpoint", self._learner.begin_save), tasks)
        if is_last:
            await self._saver.finished()

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


def _is_empty(queue: Register) -> bool:
    """Whether nothing in a queue is unsettled."""
    stats = msgspec.msgpack.decode(queue.value, type=QueueStats) if queue.version else QueueStats()
    return stats.ready + stats.leased == 0


def _version(register: Register) -> int:
    """The policy version that the register names; -1 if none."""
    return codec.decode(Policy, [register.value]).version if register.version else -1
