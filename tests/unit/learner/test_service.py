"""The learner joined to the queues: what is settled when, what comes again, and a disk without room."""

import asyncio
import contextlib
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from common.client import Item
from common.codec import encode
from common.config import RunConfig
from common.errors import UserError
from common.messages import (
    BATCHES,
    FEEDBACK,
    GROUPS,
    POLICY,
)
from services.learner import checkpoint
from services.learner.learner import Learner
from services.learner.report import MetricsFile
from services.learner.saving import DISK_FULL, FAILED_WRITES
from services.learner.service import LearnerService
from tests.memory_broker import MemoryBroker
from tests.unit.learner.batches import batch, make_learner, make_run


def as_item(step: int) -> Item:
    message, arrays = batch(step)
    return Item(BATCHES, str(step), encode(message, *arrays))


async def until(holds: Callable[[], bool], task: "asyncio.Task[None]") -> None:
    """Wait for something that the service does."""
    async with asyncio.timeout(20):
        while not holds():
            if task.done():
                task.result()
            await asyncio.sleep(0.01)


async def cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def serve_until(run: RunConfig, broker: MemoryBroker, learner: Learner, items: int, left: list[str]) -> None:
    """Run the service until it has given that many feedbacks in all and settled all but some batches; then kill it."""
    metrics = MetricsFile(run.path / "metrics.jsonl", step=learner.step)
    async with broker.client("learner-0", dies=True) as client:
        service = LearnerService(
            client=client, learner=learner, metrics=metrics, steps=run.steps, checkpoint_every=2, folder=run.path
        )
        task = asyncio.create_task(service.run())
        lines = run.path / "metrics.jsonl"
        await until(lambda: lines.read_text().count("\n") >= items and broker.ids(BATCHES) == left, task)
        assert len(broker.ids(FEEDBACK)) == items
        await cancelled(task)
    metrics.close()


async def test_batches_are_settled_only_when_a_checkpoint_holds_them(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    async with MemoryBroker(tmp_path / "broker") as broker, broker.client("other") as other:
        await other.give(*(as_item(step) for step in range(3)))
        await serve_until(run, broker, make_learner(run), 3, left=["2"])
        assert checkpoint.newest(run.path / "checkpoints") == run.path / "checkpoints" / "step-000002"
        # batches 0 and 1 are in the checkpoint; batch 2 is trained and published, and still the broker's
        assert broker.ids(BATCHES) == ["2"]
        assert broker.register(POLICY)[0] == 4  # versions 0 to 3

        await other.give(as_item(3))
        await serve_until(run, broker, make_learner(run), 4, left=[])
        assert broker.ids(BATCHES) == []
        assert broker.ids(FEEDBACK) == ["0", "1", "2", "3"]  # step 2 was trained again, its feedback counts once
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert lines[0]["filter_issued"] == 2.0


async def test_a_batch_that_comes_again_is_not_settled_before_a_checkpoint_holds_it(tmp_path: Path) -> None:
    """A learner that was stopped for longer than a lease gets back what it has trained since its checkpoint."""
    run = make_run(tmp_path)
    async with MemoryBroker(tmp_path / "broker") as broker, broker.client("other") as other:
        await other.give(*(as_item(step) for step in range(3)))
        learner = make_learner(run)
        metrics = MetricsFile(run.path / "metrics.jsonl", step=0)
        async with broker.client("learner-0", dies=True) as client:
            service = LearnerService(
                client=client, learner=learner, metrics=metrics, steps=run.steps, checkpoint_every=2,
                folder=run.path,
            )  # fmt: skip
            task = asyncio.create_task(service.run())
            await until(lambda: broker.ids(BATCHES) == ["2"] and len(broker.ids(FEEDBACK)) == 3, task)
            broker.advance(11.0)  # the lease of batch 2, trained after the checkpoint of step 2, is over
            await asyncio.sleep(0.3)
            assert broker.ids(BATCHES) == ["2"]
            await other.give(as_item(3))
            await until(lambda: not broker.ids(BATCHES), task)
            await cancelled(task)
        metrics.close()
    assert checkpoint.newest(run.path / "checkpoints") == run.path / "checkpoints" / "step-000004"


async def test_batches_that_come_out_of_order_are_trained_in_order(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    async with MemoryBroker(tmp_path / "broker") as broker, broker.client("other") as other:
        await other.give(as_item(1), as_item(0))
        await serve_until(run, broker, make_learner(run), 2, left=[])
        assert broker.ids(FEEDBACK) == ["0", "1"]


class FullDisk:
    """A learner whose disk has no room for the first so many checkpoints."""

    def __init__(self, learner: Learner, failures: int) -> None:
        self._learner = learner
        self._failures = failures

    def __getattr__(self, name: str) -> object:
        return getattr(self._learner, name)

    def begin_save(self) -> Callable[[], Path]:
        write = self._learner.begin_save()

        def fails_at_first() -> Path:
            if self._failures:
                self._failures -= 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write()

        return fails_at_first


async def serve_on_full_disk(run: RunConfig, broker: MemoryBroker, failures: int, wait_s: float) -> None:
    learner = FullDisk(make_learner(run), failures)
    metrics = MetricsFile(run.path / "metrics.jsonl", step=0)
    with contextlib.closing(metrics):
        async with broker.client("learner-0") as client:
            service = LearnerService(
                client=client, learner=learner, metrics=metrics, steps=2,  # type: ignore[arg-type]
                checkpoint_every=2, folder=run.path, disk_wait_s=wait_s,
            )  # fmt: skip
            task = asyncio.create_task(service.run())
            await until(lambda: not broker.ids(BATCHES), task)
            await cancelled(task)


async def test_a_full_disk_is_waited_for_and_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    before = FAILED_WRITES._value.get()
    async with MemoryBroker(tmp_path / "broker") as broker, broker.client("other") as other:
        await other.give(as_item(0), as_item(1))
        await serve_on_full_disk(run, broker, failures=2, wait_s=10.0)
        assert broker.ids(BATCHES) == []
    assert checkpoint.newest(run.path / "checkpoints") == run.path / "checkpoints" / "step-000002"
    assert FAILED_WRITES._value.get() == before + 2
    assert DISK_FULL._value.get() == 0


async def test_a_disk_that_stays_full_stops_the_learner_with_one_sentence_and_settles_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    async with MemoryBroker(tmp_path / "broker") as broker, broker.client("other") as other:
        await other.give(as_item(0), as_item(1))
        with pytest.raises(ExceptionGroup) as caught:
            await serve_on_full_disk(run, broker, failures=1000, wait_s=0.05)
        assert caught.group_contains(UserError, match=r"disk of .* is full \(.* free\): make room, then .* --resume")
        assert broker.ids(BATCHES) == ["0", "1"]
    assert DISK_FULL._value.get() == 1


async def test_a_learner_that_waits_too_long_saves_what_it_has_and_says_what_it_waits_for(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    async with MemoryBroker(tmp_path / "broker") as broker, broker.client("other") as other:
        await other.give(as_item(0), Item(GROUPS, "0/000009", []))
        learner = make_learner(run)
        with contextlib.closing(MetricsFile(run.path / "metrics.jsonl", step=0)) as metrics:
            async with broker.client("learner-0") as client:
                service = LearnerService(
                    client=client, learner=learner, metrics=metrics, steps=4, checkpoint_every=2, folder=run.path,
                    stall_s=1.0,
                )  # fmt: skip
                with pytest.raises(ExceptionGroup) as caught:
                    await asyncio.wait_for(service.run(), 30)
        assert broker.ids(BATCHES) == []  # settled, for a checkpoint holds it
    expected = r"no progress for \d+ s, .* nobody takes the 1 of groups: a reward is missing; see logs/"
    assert caught.group_contains(UserError, match=expected)
    assert checkpoint.newest(run.path / "checkpoints") == run.path / "checkpoints" / "step-000001"


async def test_the_service_ends_when_the_last_step_is_trained_and_nothing_is_unsettled(tmp_path: Path) -> None:
    run = make_run(tmp_path, steps=3)
    async with MemoryBroker(tmp_path / "broker") as broker, broker.client("other") as other:
        await other.give(*(as_item(step) for step in range(3)))
        await serve_to_the_end(run, broker)
        assert broker.ids(BATCHES) == []
        assert broker.ids(FEEDBACK) == ["0", "1", "2"]
        # A learner that died after its last checkpoint, before the settlement, left a batch: the next one settles it.
        await other.give(Item(BATCHES, "02", as_item(2).frames))
        await serve_to_the_end(run, broker)
        assert broker.ids(BATCHES) == []
        assert broker.ids(FEEDBACK) == ["0", "1", "2"]
    assert len((run.path / "metrics.jsonl").read_text().splitlines()) == 3


async def serve_to_the_end(run: RunConfig, broker: MemoryBroker) -> None:
    learner = make_learner(run)
    with contextlib.closing(MetricsFile(run.path / "metrics.jsonl", step=learner.step)) as metrics:
        async with broker.client("learner-0") as client, asyncio.timeout(60):
            service = LearnerService(
                client=client, learner=learner, metrics=metrics, steps=run.steps, checkpoint_every=2, folder=run.path
            )
            await service.run()
