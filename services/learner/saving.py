"""When a checkpoint is written, and when the batches that it holds are settled.

    copy (the step waits) -> write (beside the next steps) -> complete on disk -> settle its batches

One checkpoint is written at a time. A batch is settled only when a complete checkpoint holds its effect; one whose
lease was lost meanwhile comes again, and is settled then.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from prometheus_client import Counter, Gauge

from common.client import QueueClient
from common.disk import until_room
from common.errors import RefusedError
from services.learner.crew import Lead
from services.learner.learner import Learner

T = TypeVar("T")

log = logging.getLogger(__name__)

DISK_FULL = Gauge("dapo_learner_disk_full", "1 while a checkpoint or a version waits for room on the disk.")
FAILED_WRITES = Counter("dapo_learner_failed_writes_total", "Attempts to write a checkpoint or version on a full disk.")


class Saver:
    """Checkpoints and leases of one learner."""

    def __init__(self, *, client: QueueClient, learner: Learner | Lead, folder: Path, disk_wait_s: float) -> None:
        self._client = client
        self._learner = learner
        self._folder = folder
        self._disk_wait_s = disk_wait_s
        self._saved = learner.step
        """Batches before this one are in a complete checkpoint."""
        self._leases: dict[int, int] = {}
        """By step: the newest lease of a batch that is trained and not settled."""
        self._writing: asyncio.Task[None] | None = None

    @property
    def num_unsettled(self) -> int:
        """Batches that are trained and wait for their checkpoint."""
        return len(self._leases)

    def trained(self, step: int, lease: int) -> None:
        """A batch waits for its checkpoint from now on."""
        self._leases[step] = lease

    async def came_again(self, step: int, lease: int) -> None:
        """A batch that was trained before: after a resume, or after this process was stopped for long."""
        self._leases[step] = lease
        await self._settle()

    async def begin(self, copy: Callable[[], Awaitable[Callable[[], Path]]], tasks: asyncio.TaskGroup) -> None:
        """Copy, then write beside what comes next. Waits until the checkpoint before is written."""
        await self.finished()
        write = await self.until_room(copy)
        self._writing = tasks.create_task(self._write(write, self._learner.step))

    async def finished(self) -> None:
        """Wait for the checkpoint that is being written, if any."""
        if self._writing is not None:
            await self._writing

    async def save_now(self) -> None:
        """A checkpoint of this step, from beginning to end."""
        await self._write(self._learner.save, self._learner.step)

    async def until_room(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write to the run folder; a full disk is waited for, shown, and in the end a reason to stop."""
        return await until_room(write, folder=self._folder, wait_s=self._disk_wait_s, on_wait=_show_full)

    async def _write(self, write: Callable[[], Path], step: int) -> None:
        """The checkpoint of a step to disk; only then are its batches settled."""
        await self.until_room(lambda: asyncio.to_thread(write))
        self._saved = step
        await self._settle()

    async def _settle(self) -> None:
        """Settle the batches that a complete checkpoint holds."""
        done = {step: lease for step, lease in self._leases.items() if step < self._saved}
        self._leases = {step: lease for step, lease in self._leases.items() if step >= self._saved}
        while leases := [lease for lease in done.values() if lease in self._client.held]:
            try:
                await self._client.settle(leases, reason="trained")
            except RefusedError as error:  # all or none: once more without those that were lost
                log.warning("leases of trained batches lost", extra={"cause": str(error)})
            else:
                return


def _show_full(is_full: bool) -> None:
    DISK_FULL.set(is_full)
    FAILED_WRITES.inc(is_full)
