import asyncio
import contextlib
import dataclasses
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from common import weights
from common.client import Item
from common.codec import Arrays, encode
from common.config import RunConfig
from common.errors import UserError
from common.history import History
from common.messages import (
    BATCHES,
    FEEDBACK,
    POLICY,
    Batch,
    ChatMessage,
    Group,
    Prompt,
    Sample,
    Sampling,
    Scored,
    Span,
    Task,
    Verdict,
)
from services.learner import checkpoint
from services.learner.config import LearnerConfig
from services.learner.learner import Learner
from services.learner.model import Policy
from services.learner.report import MetricsFile
from services.learner.service import DISK_FULL, FAILED_WRITES, LearnerService
from tests.memory_broker import MemoryBroker
from tests.unit.learner.models import current_logps, make_samples, tiny_policy

CONFIG = LearnerConfig(lr=1e-3, warmup_steps=3, checkpoint_every=2, keep_versions=10)


def make_run(folder: Path, **changes: object) -> RunConfig:
    return RunConfig(name="r", model="none", folder=str(folder), **{"steps": 4, **changes})  # type: ignore[arg-type]


def make_learner(run: RunConfig, config: LearnerConfig = CONFIG) -> Learner:
    """A learner that continues from the run's newest checkpoint, if there is one."""
    history = History(run.path / "history", "learner-0")
    # what the engine says is made up here, so the contract would rightly refuse it: it has tests of its own
    lenient = dataclasses.replace(config, contract_limit=config.contract_limit or 100.0)
    return Learner(run=run, config=lenient, policy=tiny_policy(), tokenizer=None, history=history)


def batch(step: int, *, policy: Policy | None = None, shift: float = 0.0) -> tuple[Batch, list[Arrays]]:
    """Two groups of three samples; engine log-probabilities are made up, or the policy's own plus `shift`."""
    groups, arrays = [], []
    for place in range(2):
        samples = make_samples([4, 6, 5], seed=10 * step + place, group_size=3)
        logps = current_logps(policy, samples) if policy else [s.mu_logp_T for s in samples]
        prompt_ids = samples[0].prompt_P
        prompt = Prompt(
            id=f"{step}/{place:06d}", row=0, chat=[ChatMessage(role="user", content="?")],
            task=Task(verifier="math", gold="1"), sampling=Sampling(n=3, temperature=1.0, max_tokens=8, seed=0),
            min_version=step,
        )  # fmt: skip
        if policy:  # the prompt is the group's, so score the responses behind it
            samples = [dataclasses.replace(sample, prompt_P=prompt_ids) for sample in samples]
            logps = current_logps(policy, samples)
        wire = [
            Sample(
                num_tokens=len(s.response_T), finish="stop", text="",
                spans=[Span(version=step, start=0, end=len(s.response_T))],
            )
            for s in samples
        ]  # fmt: skip
        rewards = [1.0, -1.0, -1.0]
        verdicts = [Verdict(verdict="correct" if r > 0 else "wrong", score=float(r > 0)) for r in rewards]
        terms = [{"task": r} for r in rewards]
        groups.append(Scored(group=Group(prompt=prompt, samples=wire), verdicts=verdicts, terms=terms))
        response = np.concatenate([s.response_T for s in samples])
        arrays.append(Arrays(prompt_ids, response, (np.concatenate(logps) + shift).astype(np.float32)))
    return Batch(step=step, groups=groups, totals={"issued": 2.0}), arrays


def train(learner: Learner, steps: range) -> list[str]:
    """Digests of the versions that the steps publish."""
    digests = []
    for step in steps:
        learner.train(*batch(step))
        digests.append(learner.publish().digest)
    return digests


@pytest.mark.parametrize("config", [CONFIG, dataclasses.replace(CONFIG, updates_per_batch=2)])
def test_a_learner_that_died_and_resumed_has_the_weights_of_one_that_did_not_bit_for_bit(
    tmp_path: Path, config: LearnerConfig
) -> None:
    expected = train(make_learner(make_run(tmp_path / "whole"), config), range(4))
    run = make_run(tmp_path / "killed")
    first = make_learner(run, config)
    before = train(first, range(2))
    first.save()
    train(first, range(2, 3))  # trained, published, and lost with the process
    resumed = make_learner(run, config)
    assert resumed.step == 2
    assert before + train(resumed, range(2, 4)) == expected
    # the version that was published twice was kept once, and is the same
    assert weights.read_manifest(weights.version_folder(run.path / "weights", 3)).digest == expected[2]


def test_a_resumed_learner_has_the_random_state_of_its_checkpoint(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    learner = make_learner(run)
    train(learner, range(1))
    learner.save()
    expected = torch.rand(3)
    torch.manual_seed(99)
    make_learner(run)
    assert torch.equal(torch.rand(3), expected)


def test_a_resumed_learner_continues_its_schedule(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    learner = make_learner(run)
    train(learner, range(1))
    learner.save()
    metrics, _ = make_learner(run).train(*batch(1))
    assert metrics["lr"] == pytest.approx(1e-3 * 2 / 3)  # the second of three warm-up steps


def test_equal_log_probabilities_keep_the_contract(tmp_path: Path) -> None:
    learner = make_learner(make_run(tmp_path), dataclasses.replace(CONFIG, contract_limit=1e-3))
    metrics, feedback = learner.train(*batch(0, policy=tiny_policy()))
    assert metrics["engine_difference"] < 1e-5
    assert (feedback.step, feedback.version, [g.id for g in feedback.groups]) == (0, 1, ["0/000000", "0/000001"])


def test_an_engine_that_disagrees_stops_the_run_before_anything_is_trained(tmp_path: Path) -> None:
    learner = make_learner(make_run(tmp_path), dataclasses.replace(CONFIG, contract_limit=1e-3))
    with pytest.raises(
        UserError, match=r"disagree at step 0: .* is 0\.05, the limit is 0\.001; .*weights or the dtype"
    ):
        learner.train(*batch(0, policy=tiny_policy(), shift=0.05))
    assert learner.step == 0


def test_an_engine_that_leaves_the_temperature_out_is_told_so(tmp_path: Path) -> None:
    run = make_run(tmp_path, temperature=0.6)
    config = dataclasses.replace(CONFIG, contract_limit=1e-3)
    policy = tiny_policy(temperature=0.6)
    history = History(run.path / "history", "learner-0")
    learner = Learner(run=run, config=config, policy=policy, tokenizer=None, history=history)
    with pytest.raises(UserError, match="leave the temperature out"):
        learner.train(*batch(0, policy=tiny_policy(temperature=1.0)))


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


async def test_the_service_ends_when_the_last_step_is_trained_and_nothing_is_unsettled(tmp_path: Path) -> None:
    run = make_run(tmp_path, steps=3)
    async with MemoryBroker(tmp_path / "broker") as broker, broker.client("other") as other:
        await other.give(*(as_item(step) for step in range(3)))
        await serve_to_the_end(run, broker)
        assert broker.ids(BATCHES) == []
        assert broker.ids(FEEDBACK) == ["0", "1", "2"]
        # A learner that died after its last checkpoint, before the settlement, left a batch: the next one settles it.
        await other.give(Item(BATCHES, "again", as_item(2).frames))
        await serve_to_the_end(run, broker)
        assert broker.ids(BATCHES) == []
        assert broker.ids(FEEDBACK) == ["0", "1", "2"]
    assert len((run.path / "metrics.jsonl").read_text().splitlines()) == 3


async def serve_to_the_end(run: RunConfig, broker: MemoryBroker) -> None:
    learner = make_learner(run)
    metrics = MetricsFile(run.path / "metrics.jsonl", step=learner.step)
    async with broker.client("learner-0") as client, asyncio.timeout(60):
        await LearnerService(client=client, learner=learner, metrics=metrics, steps=run.steps, checkpoint_every=2).run()
    metrics.close()
