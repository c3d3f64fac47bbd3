"""The filter's planner among simulated queues, rollouts, verifier and learner, in virtual time.

Rollouts answer after long-tailed durations, lag behind the published version by as much as they may, load newer ones in
flight, and die; a prompt that kills three of them is a dead letter. The filter dies before or after a commit; its
successor knows the register and gets every unsettled item again, in any order. `Model` keeps a second account from the
events alone and checks every commit against the rules written out.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

import msgspec

from common import codec
from common.messages import PROMPTS, Batch, Feedback, Prompt, Scored
from services.filter.ages import versions_of
from services.filter.planner import Transaction
from services.filter.state import FilterState, dumps, loads
from tests.unit.filter.makers import is_kept, make_planner, make_run, make_scored

MAX_DELIVERIES = 3


@dataclass
class Model:
    """Brute force: what the events say, and whether they may say it."""

    steps: int
    groups_per_batch: int
    max_staleness: int
    wait: bool
    issued: dict[str, int] = field(default_factory=dict)
    """s by id."""
    out: set[str] = field(default_factory=set)
    """In no batch yet."""
    in_batches: set[str] = field(default_factory=set)
    trained: set[str] = field(default_factory=set)
    dropped: dict[str, str] = field(default_factory=dict)
    batches: list[list[str]] = field(default_factory=list)

    def check(self, transaction: Transaction, state: FilterState) -> None:
        """Follow the events of a commit; then both accounts must agree."""
        for event, fields in transaction.events:
            getattr(self, f"on_{event}")(**fields)
        assert len(self.issued) == len(self.trained) + len(self.dropped) + len(self.out) + len(self.in_batches)
        assert (state.issued, state.trained) == (len(self.issued), len(self.trained))
        assert state.dropped == dict(Counter(self.dropped.values()))
        assert state.outstanding == {name: self.issued[name] for name in self.out}

    def on_issued(self, *, id: str, min_version: int) -> None:  # noqa: A002
        """A place was free, and the steps left need the group."""
        assert id not in self.issued
        assert len(self.out) + len(self.in_batches) < (self.max_staleness + 1) * self.groups_per_batch
        assert len(self.out) < (self.steps - len(self.batches)) * self.groups_per_batch
        self.issued[id] = min_version
        self.out.add(id)

    def on_settled(self, *, id: str, fate: str, reason: str) -> None:  # noqa: A002
        """One end, and only one."""
        if fate == "trained":
            self.in_batches.remove(id)
            self.trained.add(id)
        else:
            self.out.remove(id)
            self.dropped[id] = reason

    def on_batched(self, *, step: int, ids: list[str], oldest: int) -> None:
        """B groups that are out; whatever is left can meet its deadline."""
        assert step == len(self.batches)
        assert oldest <= step
        assert len(self.out & set(ids)) == len(ids) == self.groups_per_batch
        self.out -= set(ids)
        self.in_batches |= set(ids)
        self.batches.append(ids)
        for j in range(step, step + self.max_staleness + 2) if self.wait else ():
            due = sum(self.issued[name] + self.max_staleness <= j for name in self.out)
            assert due <= (j - step) * self.groups_per_batch, f"batch {step} leaves {due} groups due by step {j}"


@dataclass
class World:
    """Everything around the filter."""

    seed: int
    steps: int
    groups_per_batch: int
    max_staleness: int
    workers: int
    drop_rate: float
    restart_rate: float = 0.05
    death_rate: float = 0.02
    on_stale: str = "wait"
    sampling: str = "uniform"
    timing: int = 0
    """Another seed for when things happen; which groups are kept depends on `seed` alone."""
    ages: list[int] = field(default_factory=list)
    """Of trained groups: by their oldest token, or with `mask` by their youngest."""

    def __post_init__(self) -> None:
        """Start with an idle pipeline."""
        self.rng = random.Random(f"{self.seed}:{self.timing}")
        self.run = make_run(
            seed=self.seed, steps=self.steps, groups_per_batch=self.groups_per_batch,
            max_staleness=self.max_staleness, on_stale=self.on_stale,
        )  # fmt: skip
        self.model = Model(self.steps, self.groups_per_batch, self.max_staleness, wait=self.on_stale == "wait")
        self.published = 0
        self._register, self._time = b"", 0.0
        self._files = {"": b""}
        self.record: list[bytes] = []
        self._prompts: list[Prompt] = []
        self._deaths: Counter[str] = Counter()
        self._dead: list[str] = []
        self._in_flight: list[tuple[float, Prompt, int]] = []
        """When it ends, what, and the version that samples its first token."""
        self._unsettled: dict[str, Scored | Feedback] = {}
        """Scored groups by id and feedback by step."""
        self._closed: dict[int, Batch] = {}
        self._training: float | None = None
        self._restart()

    def simulate(self) -> FilterState:
        """Until the filter has seen the last version published; raises on a deadlock."""
        while self.planner.state.version < self.steps:
            if self._turn():
                self._start_work()
                if self._unsettled.keys() <= set(self._leases.values()) and self.planner.state.version < self.steps:
                    self._advance()
        return self.planner.state

    def _restart(self) -> None:
        """A new filter: it knows the register, and everything unsettled is delivered again."""
        state = loads(self._register)
        self.record += [line for line in state.sampler.finished if line not in self.record]
        state.sampler.finished.clear()
        file = self._files[state.sampler.file]
        self.planner = make_planner(state, self.run, sampling=self.sampling, file=file)
        self._leases: dict[int, str] = {}
        self._next_lease = 1

    def _turn(self) -> bool:
        """Deliver, decide, commit; False if the filter died on the way."""
        fresh = sorted(self._unsettled.keys() - set(self._leases.values()))
        self.rng.shuffle(fresh)
        for name in fresh:
            self._deliver(name)
        self.planner.on_dead(self._dead)
        room = max(0, self.workers - len(self._in_flight) - len(self._prompts) + 2)
        transaction = self.planner.plan(room)
        fate = self.rng.random() / self.restart_rate if self.restart_rate else 2.0
        if transaction and fate > 0.5:
            self._commit(transaction)
        if fate <= 1.0:
            self._restart()
        return fate > 1.0

    def _deliver(self, name: str) -> None:
        lease, self._next_lease = self._next_lease, self._next_lease + 1
        self._leases[lease] = name
        message = self._unsettled[name]
        if isinstance(message, Feedback):
            self.planner.on_feedback(lease, message)
        else:
            self.planner.on_scored(lease, message, [b"", b"", b""])

    def _commit(self, transaction: Transaction) -> None:
        self.model.check(transaction, self.planner.state)
        if (file := self.planner.sampler.file()) is not None:
            self._files[file[0]] = file[1]
        self._register = dumps(self.planner.state)
        for lease in transaction.settles:
            del self._unsettled[self._leases.pop(lease)]
        for item in transaction.items:
            if item.queue == PROMPTS:
                self._prompts.append(codec.decode(Prompt, item.frames))
            else:
                self._closed[int(item.id)] = msgspec.msgpack.decode(item.frames[0], type=Batch)

    def _start_work(self) -> None:
        while self._prompts and len(self._in_flight) < self.workers:
            prompt = self._prompts.pop(0)
            slow = self.rng.random() < 0.3
            duration = 1 + (self.rng.paretovariate(1.0) if slow else 3 * self.rng.random())
            first = self.rng.randint(prompt.min_version, self.published)
            self._in_flight.append((self._time + duration, prompt, first))
        if self._training is None and self.published in self._closed:
            self._training = self._time + 4 * self.rng.random()

    def _advance(self) -> None:
        """Go to the next thing that ends."""
        ends = [end for end, _, _ in self._in_flight] + ([self._training] if self._training is not None else [])
        assert ends, f"deadlock at version {self.published}: {self.planner.state}"
        self._time = min(ends)
        if self._training is not None and self._training <= self._time:
            self._trained()
        for work in [work for work in self._in_flight if work[0] <= self._time]:
            self._in_flight.remove(work)
            self._answered(*work[1:])

    def _answered(self, prompt: Prompt, first: int) -> None:
        """A rollout is done with a prompt, or dies over it."""
        if self.rng.random() < self.death_rate:
            self._deaths[prompt.id] += 1
            if self._deaths[prompt.id] >= MAX_DELIVERIES:
                self._dead.append(prompt.id)
            else:
                self._prompts.insert(0, prompt)
            return
        versions = sorted({first, self.rng.randint(first, self.published)})
        kept = is_kept(prompt.id, seed=self.seed, drop_rate=self.drop_rate)
        self._unsettled[prompt.id] = make_scored(prompt, versions=versions, accuracies=(1, 0) if kept else (0, 0))

    def _trained(self) -> None:
        batch = self._closed.pop(self.published)
        for scored in batch.groups:
            versions = versions_of(scored)
            self.ages.append(batch.step - (versions.newest if self.on_stale == "mask" else versions.oldest))
        self.published, self._training = self.published + 1, None
        self._unsettled[str(batch.step)] = Feedback(step=batch.step, version=self.published, groups=[])
