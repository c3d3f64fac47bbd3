"""With max_staleness 0 the asynchronous pipeline is a synchronous loop: same batches, same weights, bit for bit."""

import asyncio
import contextlib
import socket
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest

from common import weights
from common.client import QueueClient, Watched, connect
from common.codec import decode
from common.config import RunConfig
from common.history import History
from common.messages import RUN, Batch, ChatMessage, Group, Prompt, RunState, Sample, Sampling, Scored, Task
from services.filter.config import FilterConfig
from services.filter.dynamic_sampling import drop_reason
from services.filter.planner import Planner
from services.filter.prompts import UniformSampler, sampling_seed
from services.filter.schema import Row
from services.filter.service import FilterService
from services.filter.state import FilterState
from services.learner.config import LearnerConfig
from services.learner.learner import Learner
from services.learner.report import MetricsFile
from services.learner.service import LearnerService
from services.reward.service import RewardService
from services.reward.shaping import Shaping
from services.rollout.engine import Request
from services.rollout.hostcopy import HostCopy
from services.rollout.service import Rollout, as_arrays
from tests.fakes import DigitTemplate, HashJudge, PlainEngine
from tests.unit.learner.models import tiny_policy

STEPS, B, G, LENGTH = 4, 3, 3, 6
SHAPING = Shaping(correct=1.0, wrong=-1.0, max_length=LENGTH, buffer=2, factor=0.5)
LEARNER = LearnerConfig(lr=3e-3, warmup_steps=0, checkpoint_every=2, keep_versions=STEPS + 1)
ROWS = [
    Row(number=n, chat=(ChatMessage(role="user", content=str(100 + n)),), task=Task(verifier="math", gold="1"))
    for n in range(12)
]


def make_run(folder: Path, name: str) -> RunConfig:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return RunConfig(
        name=name, model="none", folder=str(folder), steps=STEPS, groups_per_batch=B, group_size=G, max_staleness=0,
        max_prompt_tokens=8, max_response_tokens=LENGTH, broker=f"tcp://127.0.0.1:{port}", heartbeat_s=0.2,
    )  # fmt: skip


def make_learner(run: RunConfig) -> Learner:
    history = History(run.path / "history", "learner-0")
    return Learner(run=run, config=LEARNER, policy=tiny_policy(), tokenizer=None, history=history)


def digests(run: RunConfig) -> list[str]:
    store = run.path / "weights"
    return [weights.read_manifest(weights.version_folder(store, version)).digest for version in range(STEPS + 1)]


async def synchronous(run: RunConfig) -> list[list[str]]:
    """Sample, judge, filter, train, one after the other; returns the ids of each batch."""
    learner, engine, judge, template = make_learner(run), PlainEngine(tiny_policy(seed=1)), HashJudge(), DigitTemplate()
    sampler, ordinal, batches = UniformSampler(len(ROWS), seed=run.seed), 0, []
    learner.publish()
    for step in range(STEPS):
        await engine.load(step, weights.version_folder(run.path / "weights", step) / weights.TENSORS)
        groups, arrays = [], []
        while len(groups) < B:
            group, row = sampler.id(ordinal), sampler.row(ordinal)
            ordinal += 1
            seed = sampling_seed(run.seed, group)
            prompt_ids = template.prompt_ids(ROWS[row].chat)
            completions = await engine.generate(
                Request(id=group, prompt_ids=prompt_ids, n=G, temperature=1.0, max_tokens=LENGTH, seed=seed)
            )
            samples = [
                Sample(num_tokens=LENGTH, finish="length", spans=list(c.spans), text=template.text(c.token_ids))
                for c in completions
            ]
            verdicts = [judge.verdict(sample.text) for sample in samples]
            if drop_reason(verdicts, min_survivors=2) is not None:
                continue
            sampling = Sampling(n=G, temperature=1.0, max_tokens=LENGTH, seed=seed)
            prompt = Prompt(
                id=group, row=row, chat=list(ROWS[row].chat), task=ROWS[row].task, sampling=sampling, min_version=step
            )
            terms = [SHAPING.terms(v, s) for v, s in zip(verdicts, samples, strict=True)]
            groups.append(Scored(group=Group(prompt=prompt, samples=samples), verdicts=verdicts, terms=terms))
            arrays.append(as_arrays(prompt_ids, completions))
        learner.train(Batch(step=step, groups=groups, totals={}), arrays)
        learner.publish()
        batches.append([scored.group.prompt.id for scored in groups])
    return batches


async def asynchronous(run: RunConfig, folder: Path) -> list[list[str]]:
    """The services as they are, over a real broker process; returns the ids of each batch."""
    config = folder / "broker.toml"
    config.write_text(
        f'[run]\nname = "{run.name}"\nmodel = "none"\nfolder = "{run.folder}"\nbroker = "{run.broker}"\n'
        "[broker]\nmetrics_port = -1\n"
    )
    command = [sys.executable, "-m", "services.broker", str(config)]
    broker = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: ASYNC220 - returns at once
    try:
        async with contextlib.AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(connect(run.broker, name, heartbeat_s=run.heartbeat_s))
                for name in ("rollout-0", "reward-0", "filter-0", "learner-0", "watch-0")
            ]
            await asyncio.wait_for(_serve(run, clients), timeout=120)
    finally:
        broker.terminate()
        broker.wait(timeout=20)
    (path,) = (run.path / "history").glob("learner*")
    with path.open("rb") as file:
        return [r["ids"] for r in msgpack.Unpacker(file, strict_map_key=False) if r["event"] == "trained"]


async def _serve(run: RunConfig, clients: list[QueueClient]) -> None:
    """All services as tasks until the register `run` says done."""
    history = History(run.path / "history", "others")
    rollout = Rollout(
        client=clients[0], engine=PlainEngine(tiny_policy(seed=1), delay_s=0.01), weights=HostCopy(),
        template=DigitTemplate(), history=history, replica="0", max_groups=4, max_prompt_tokens=8,
    )  # fmt: skip
    reward = RewardService(
        client=clients[1], judge=HashJudge(), shaping=SHAPING, history=history, max_groups=8, retries=0
    )
    planner = Planner(FilterState(), run=run, config=FilterConfig(data="none"), rows=ROWS, held_out=[])
    chooser = FilterService(
        client=clients[2], planner=planner, version=0, history=history, folder=run.path, steps=STEPS, reserve=2,
        low_keep_rate=0.0,
    )  # fmt: skip
    metrics = MetricsFile(run.path / "metrics.jsonl", step=0)
    learner = LearnerService(
        client=clients[3], learner=make_learner(run), metrics=metrics, steps=STEPS, checkpoint_every=2, folder=run.path
    )
    tasks = [asyncio.create_task(work) for work in (rollout.run(), reward.run(), chooser.run(window=8), learner.run())]
    watch = clients[4].watch(RUN)
    done = asyncio.create_task(_until_done(watch))
    await asyncio.wait([done, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    metrics.close()
    assert done.done()


async def _until_done(watch: Watched) -> None:
    while True:
        register = await watch.changed()
        if register.version and decode(RunState, [register.value]).phase == "done":
            return


@pytest.mark.timeout(180)
async def test_without_staleness_the_pipeline_trains_as_a_plain_loop_bit_for_bit(tmp_path: Path) -> None:
    twin, run = make_run(tmp_path, "twin"), make_run(tmp_path, "run")
    expected = await synchronous(twin)
    assert await asynchronous(run, tmp_path) == expected
    assert digests(run) == digests(twin)
    assert len(set(digests(run))) == STEPS + 1  # the weights did move
