"""The filter's planner among simulated rollouts, reward and learner, in virtual time.

Rollouts answer after long-tailed durations under the version that was published when they started; groups are dropped
with a given probability; the learner takes its time; the filter is replaced at random by a new one that knows only the
saved state and gets the pool again in any order.
"""

import random
from dataclasses import dataclass, field

import msgspec

from common import codec
from common.config import RunConfig
from common.messages import (
    PROMPTS,
    Batch,
    ChatMessage,
    Feedback,
    Group,
    Prompt,
    Sample,
    Scored,
    Span,
    Task,
    Verdict,
)
from services.filter.config import FilterConfig
from services.filter.planner import Planner
from services.filter.schema import Row
from services.filter.state import FilterState, dumps, loads


def make_run(**changes: object) -> RunConfig:
    """A run of two samples a group."""
    return RunConfig(name="simulated", model="none", group_size=2, **changes)  # type: ignore[arg-type]


def make_rows(number: int) -> list[Row]:
    """Rows that differ."""
    task = Task(verifier="math", gold="1")
    return [Row(number=n, chat=(ChatMessage(role="user", content=str(n)),), task=task) for n in range(1, number + 1)]


def answer(prompt: Prompt, *, version: int, kept: bool) -> Scored:
    """The group of a prompt, sampled by one version; kept if its accuracies differ."""
    sample = Sample(num_tokens=1, finish="stop", spans=[Span(version=version, start=0, end=1)], text="")
    scores = [1.0, 0.0] if kept else [1.0, 1.0]
    return Scored(
        group=Group(prompt=prompt, samples=[sample, sample]),
        verdicts=[Verdict(verdict="correct" if s else "wrong", score=s) for s in scores],
        terms=[{"task": s} for s in scores],
    )


@dataclass
class World:
    """Everything around the filter."""

    seed: int
    steps: int
    groups_per_batch: int
    max_staleness: int
    workers: int
    drop_rate: float
    rows: int = 20
    restart_rate: float = 0.02
    on_stale: str = "wait"
    batches: list[list[str]] = field(default_factory=list)
    """Ids of the trained groups, by step."""
    ages: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start with an idle pipeline."""
        self.rng = random.Random(self.seed)
        self.run = make_run(
            steps=self.steps, groups_per_batch=self.groups_per_batch, max_staleness=self.max_staleness,
            on_stale=self.on_stale,
        )  # fmt: skip
        self.planner = self._planner(FilterState())
        self._time, self._version, self._lease = 0.0, 0, 0
        self._prompts: list[Prompt] = []
        self._in_flight: list[tuple[float, Prompt, int]] = []
        self._closed: dict[int, Batch] = {}
        self._training: float | None = None

    def simulate(self) -> FilterState:
        """Until the last version is published; raises on a deadlock."""
        while self._version < self.steps:
            if self.rng.random() < self.restart_rate:
                self._restart()
            self._plan()
            self._start_work()
            self._wait()
        self._plan()
        return self.planner.state

    def _planner(self, state: FilterState) -> Planner:
        return Planner(state, run=self.run, config=FilterConfig(data="none"), rows=make_rows(self.rows), held_out=[])

    def _restart(self) -> None:
        """A new filter with the saved state; the broker delivers the pool again."""
        pool = list(self.planner.pool.values())
        self.planner = self._planner(loads(dumps(self.planner.state)))
        self.rng.shuffle(pool)
        for waiting in pool:
            self.planner.on_scored(waiting.lease, waiting.scored, waiting.frames)

    def _plan(self) -> None:
        room = max(0, self.workers - len(self._in_flight) - len(self._prompts) + 2)
        for item in self.planner.plan(room).items:
            if item.queue == PROMPTS:
                self._prompts.append(codec.decode(Prompt, item.frames))
            else:
                batch = msgspec.msgpack.decode(item.frames[0], type=Batch)
                self._closed[batch.step] = batch

    def _start_work(self) -> None:
        while self._prompts and len(self._in_flight) < self.workers:
            prompt = self._prompts.pop(0)
            slow = self.rng.random() < 0.3
            duration = 1 + (self.rng.paretovariate(1.0) if slow else 3 * self.rng.random())
            self._in_flight.append((self._time + duration, prompt, max(self._version, prompt.min_version)))
        if self._training is None and self._version in self._closed:
            self._training = self._time + 4 * self.rng.random()

    def _wait(self) -> None:
        """Go to the next thing that ends."""
        ends = [end for end, _, _ in self._in_flight] + ([self._training] if self._training is not None else [])
        assert ends, f"deadlock at version {self._version}: {self.planner.state}"
        self._time = min(ends)
        if self._training is not None and self._training <= self._time:
            self._trained()
        for done in [work for work in self._in_flight if work[0] <= self._time]:
            self._in_flight.remove(done)
            self._lease += 1
            scored = answer(done[1], version=done[2], kept=self.rng.random() >= self.drop_rate)
            self.planner.on_scored(self._lease, scored, [b"", b"", b""])

    def _trained(self) -> None:
        batch = self._closed.pop(self._version)
        self.batches.append([scored.group.prompt.id for scored in batch.groups])
        self.ages += [batch.step - s.group.samples[0].spans[0].version for s in batch.groups]
        self._version, self._training = self._version + 1, None
        self.planner.on_feedback(0, Feedback(step=batch.step, version=self._version, groups=[]))
