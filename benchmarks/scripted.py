"""Stages whose times are scripted: the real services around an engine, a judge and a learner that only wait.

    broker, filter                      real processes
    Rollout, RewardService, LearnerService    the real classes, in this process, over real sockets
      ScriptedEngine  ScriptedJudge  ScriptedLearner    wait for the time that the script says, and compute nothing

No stand-in for training: nothing is learned. What is measured is queues, admission, batches and ages.
"""

import asyncio
import contextlib
import math
import random
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import tomli_w

from common import config
from common.client import QueueClient, Watched, connect
from common.codec import Arrays, decode
from common.config import RunConfig
from common.history import History
from common.messages import RUN, Batch, ChatMessage, Feedback, GroupFeedback, Policy, RunState, Span, Task, Verdict
from services.learner.learner import Learner
from services.learner.report import MetricsFile
from services.learner.service import LearnerService
from services.reward.service import RewardService
from services.reward.shaping import Shaping
from services.rollout.engine import Completion, Request
from services.rollout.service import Rollout

ROWS = 5000
SHAPING = Shaping(correct=1.0, wrong=-1.0, max_length=1 << 20, buffer=1, factor=1.0, ngram=0)


@dataclass(frozen=True, kw_only=True)
class Script:
    """How long every stage takes, and what comes of every prompt."""

    replicas: int = 8
    """Rollout replicas."""
    slots: int = 4
    """Groups that a replica samples at the same time."""
    token_s: float = 0.02
    """Seconds to sample one token."""
    tokens: int = 10
    """Most tokens of a usual answer; the least is half of it."""
    slow_share: float = 0.1
    """Share of the prompts whose answers are `slow_factor` times as long."""
    slow_factor: int = 20
    verify_s: float = 0.01
    """Seconds to verify one answer."""
    verifiers: int = 8
    """Answers that are verified at the same time."""
    step_s: float = 0.6
    """Seconds of a learner step, publication included."""
    keep: float = 0.5
    """Share of the groups whose answers differ."""
    group_size: int = 4
    groups_per_batch: int = 16

    def lengths(self, prompt: str) -> list[int]:
        """Tokens of the answers to a prompt."""
        rng = random.Random(f"length {prompt}")
        factor = self.slow_factor if rng.random() < self.slow_share else 1
        return [factor * rng.randint(math.ceil(self.tokens / 2), self.tokens) for _ in range(self.group_size)]

    def generate_s(self, prompt: str) -> float:
        """Seconds until the longest answer is there."""
        return max(self.lengths(prompt)) * self.token_s

    def is_kept(self, prompt: str) -> bool:
        """Whether the answers differ."""
        return random.Random(f"keep {prompt}").random() < self.keep

    def is_correct(self, prompt: str, place: int) -> bool:
        """One right answer in a group that is kept, none in another."""
        return place == 0 and self.is_kept(prompt)

    @property
    def mean_generate_s(self) -> float:
        """Mean of `generate_s` over many prompts."""
        return sum(self.generate_s(str(n)) for n in range(10_000)) / 10_000

    @property
    def longest_generate_s(self) -> float:
        """The greatest `generate_s` there is."""
        return self.slow_factor * self.tokens * self.token_s

    @property
    def rates(self) -> dict[str, float]:
        """Learner steps a second that each stage alone could feed or take."""
        return {
            "rollout": self.keep * self.replicas * self.slots / self.mean_generate_s / self.groups_per_batch,
            "reward": self.keep * self.verifiers / (self.verify_s * self.group_size) / self.groups_per_batch,
            "learner": 1 / self.step_s,
        }

    @property
    def ideal(self) -> float:
        """Steps a second of a pipeline in which the slowest stage never waits."""
        return min(self.rates.values())


class ScriptedEngine:
    """Samples tokens one after the other, every answer of a group at the same time; loads in no time."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._switches: list[tuple[float, int]] = []

    async def load(self, version: int, folder: Path) -> None:
        """Tokens sampled from now on are this version's."""
        self._switches.append((time.monotonic(), version))

    async def generate(self, request: Request) -> list[Completion]:
        """The answers of the script, as long as it takes."""
        prompt, start = request.id.partition("#")[0], time.monotonic()
        await asyncio.sleep(self._script.generate_s(prompt))
        return [
            Completion(token_ids=[int(self._script.is_correct(prompt, place))] * tokens, logprobs=[-1.0] * tokens,
                       finish="stop", spans=self._spans(start, tokens))
            for place, tokens in enumerate(self._script.lengths(prompt))
        ]  # fmt: skip

    def _spans(self, start: float, tokens: int) -> list[Span]:
        """Which version wrote which tokens."""
        spans: list[Span] = []
        for switched, version in self._switches:
            at = min(max(0, math.ceil((switched - start) / self._script.token_s)), tokens)
            if spans:
                spans[-1] = Span(version=spans[-1].version, start=spans[-1].start, end=at)
            spans.append(Span(version=version, start=at, end=tokens))
        return [span for span in spans if span.end > span.start]


class NoWeights:
    """Versions without tensors."""

    def prepare(self, policy: Policy) -> Path:
        """Nothing is read."""
        return Path(policy.path)


class ScriptedTemplate:
    """No tokenizer: every prompt is one token, and the text of an answer is its first."""

    def prompt_ids(self, chat: Sequence[ChatMessage]) -> list[int]:
        """One token."""
        return [1]

    def text(self, token_ids: Sequence[int]) -> str:
        """1 for an answer that the script calls right, else 0."""
        return str(token_ids[0])


class ScriptedJudge:
    """Takes its time and says what the engine wrote down."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._room = asyncio.Semaphore(script.verifiers)

    async def judge(self, output: str, task: Task, question: str = "") -> Verdict:
        """The verdict of the script."""
        async with self._room:
            await asyncio.sleep(self._script.verify_s)
        return Verdict(verdict="correct", score=1.0) if output == "1" else Verdict(verdict="wrong")


class ScriptedLearner:
    """A step takes `step_s`; versions have no weights."""

    def __init__(self, script: Script, history: History, published_at: list[float]) -> None:
        self._script = script
        self._history = history
        self.step = 0
        self.published_at = published_at
        """By version, when it was published."""
        self.trained: list[str] = []
        self.ages: list[int] = []
        """Of every trained token."""

    def train(self, batch: Batch, arrays: Sequence[Arrays]) -> tuple[dict[str, float], Feedback]:
        """Wait for the time of a step."""
        time.sleep(self._script.step_s)
        ids = [scored.group.prompt.id for scored in batch.groups]
        spans = [span for one in batch.groups for sample in one.group.samples for span in sample.spans]
        self.ages += [batch.step - span.version for span in spans for _ in range(span.end - span.start)]
        self.trained += ids
        self.step = batch.step + 1
        oldest = min(span.version for span in spans)
        tokens = sum(span.end - span.start for span in spans)
        self._history.append("trained", step=batch.step, ids=ids, oldest=oldest, tokens=tokens)
        feedback = [GroupFeedback(id=name, gradient_variance=0.0, clip_share=0.0, mean_rho=1.0) for name in ids]
        return {"trained_tokens": float(tokens)}, Feedback(step=batch.step, version=self.step, groups=feedback)

    def publish(self) -> Policy:
        """Announce the version."""
        self.published_at.append(time.monotonic())
        self._history.append("published", version=self.step, digest=str(self.step))
        return Policy(version=self.step, digest=str(self.step), path="none")

    def stage(self) -> Callable[[], Policy]:
        """Nothing has to be written."""
        policy = self.publish()
        return lambda: policy

    def begin_save(self) -> Callable[[], Path]:
        """A checkpoint of nothing."""
        self._history.append("checkpointed", step=self.step)
        return lambda: Path("none")


@dataclass
class Outcome:
    """What a run did."""

    folder: Path
    published_at: list[float] = field(default_factory=list)
    trained: list[str] = field(default_factory=list)
    ages: list[int] = field(default_factory=list)

    def steps_per_second(self, *, skip: int) -> float:
        """Rate of the steps after the first `skip`, in which the pipeline fills."""
        times = self.published_at[skip:]
        return (len(times) - 1) / (times[-1] - times[0])


async def run(script: Script, folder: Path, *, steps: int, limit_s: float, **keys: Any) -> Outcome:
    """A run of the scripted pipeline with these keys of [run]."""
    settings = write_config(folder, script, steps=steps, **keys)
    outcome = Outcome(settings.path)
    with _processes(settings.path / "config.toml"):
        async with asyncio.timeout(limit_s), contextlib.AsyncExitStack() as stack:
            await _drive(script, settings, outcome, stack)
    return outcome


@contextlib.contextmanager
def _processes(path: Path) -> Iterator[None]:
    """Broker and filter, for the length of the block."""
    roles = ("broker", "filter")
    processes = [subprocess.Popen([sys.executable, "-m", f"services.{role}", str(path)]) for role in roles]
    try:
        yield
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(20)


def write_config(folder: Path, script: Script, *, steps: int, **keys: Any) -> RunConfig:
    """Rows, and a configuration that the processes read."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    name = "-".join(str(part) for item in sorted(keys.items()) for part in item) or "run"
    run_keys = {
        "name": f"{name}-{time.time_ns()}", "model": "none", "folder": str(folder), "broker": address, "steps": steps,
        "group_size": script.group_size, "groups_per_batch": script.groups_per_batch, **keys,
    }  # fmt: skip
    path = folder / str(run_keys["name"])
    path.mkdir(parents=True)
    rows = path / "rows.jsonl"
    rows.write_text("".join(f'{{"prompt": "{n}", "answer": "{n}"}}\n' for n in range(ROWS)))
    tables = {
        "run": run_keys, "broker": {"metrics_port": -1},
        "filter": {"metrics_port": -1, "data": str(rows), "low_keep_rate": 0.0},
    }  # fmt: skip
    (path / "config.toml").write_text(tomli_w.dumps(tables))
    return config.section(config.Tree(path=path, tables=tables), "run", RunConfig)


async def _drive(script: Script, settings: RunConfig, outcome: Outcome, stack: contextlib.AsyncExitStack) -> None:
    """All other services, until the run is done."""

    async def client(name: str) -> QueueClient:
        return await stack.enter_async_context(connect(settings.broker, name))

    def history(name: str) -> History:
        return stack.enter_context(contextlib.closing(History(settings.path / "history", name)))

    rollouts = [
        Rollout(
            client=await client(f"rollout-{place}"), engine=ScriptedEngine(script),
            weights=NoWeights(), template=ScriptedTemplate(), history=history(f"rollout-{place}"), replica=str(place),
            max_groups=script.slots, max_prompt_tokens=8,
        )
        for place in range(script.replicas)
    ]  # fmt: skip
    reward = RewardService(
        client=await client("reward-0"), judge=ScriptedJudge(script), shaping=SHAPING, history=history("reward-0"),
        max_groups=2 * script.verifiers, retries=0,
    )  # fmt: skip
    trainer = ScriptedLearner(script, history("learner-0"), outcome.published_at)
    outcome.trained, outcome.ages = trainer.trained, trainer.ages
    metrics = stack.enter_context(contextlib.closing(MetricsFile(settings.path / "metrics.jsonl", step=0)))
    learner = LearnerService(
        client=await client("learner-0"), learner=cast(Learner, trainer), metrics=metrics, steps=settings.steps,
        checkpoint_every=1, folder=settings.path,
    )  # fmt: skip
    done = asyncio.create_task(_until_done((await client("watcher-0")).watch(RUN)))
    async with all_running([service.run() for service in (*rollouts, reward, learner)]) as services:
        await asyncio.wait([done, *services], return_when=asyncio.FIRST_COMPLETED)
        for service in services:
            if service.done():
                service.result()


@contextlib.asynccontextmanager
async def all_running(coroutines: Sequence[Any]) -> AsyncIterator[list["asyncio.Task[None]"]]:
    """Tasks for the length of the block."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until_done(register: Watched) -> None:
    while True:
        news = await register.changed()
        if news.version and decode(RunState, [news.value]).phase == "done":
            return
