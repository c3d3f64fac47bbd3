"""The adaptive prompt sampler: one draw is a visit that is due, or a category by the table and a prompt from its pool.

    draw n   behind the epoch's pace -> the next prompt not visited; else table -> category -> pool -> prompt
    judged   what a group showed -> its prompt's evidence, its category's averages
    trained  a step ended -> a line of the record; table anew every `period` steps and at the start of a stage

Random numbers depend on the seed and n alone, everything else is in the state: a successor draws what this would have.
"""

import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence

import numpy as np

from common.messages import Feedback, Scored
from services.filter.prompts import number_of, numbered
from services.filter.sampling import monitor, scores
from services.filter.sampling.epochs import Epochs
from services.filter.sampling.monitor import Outcome
from services.filter.sampling.pool import Pool
from services.filter.sampling.posterior import expected_keep, is_solved, updated
from services.filter.sampling.prompts import Prompts
from services.filter.sampling.record import line
from services.filter.sampling.stages import Schedule
from services.filter.sampling.state import Monitored, SamplerState, Tally


class AdaptiveSampler:
    """Chooses rows; owns the sampler's state."""

    def __init__(
        self, state: SamplerState, *, categories: Sequence[str], scores: str, weights: Mapping[str, float],
        schedule: Schedule, group_size: int, seed: int, visit_all: bool = True, rest_epochs: int = 0, file: bytes = b"",
    ) -> None:  # fmt: skip
        """`categories` has the category of each row; `file` is the content of the state's file of prompts."""
        self.state = state
        self._kind = scores
        self._schedule = schedule
        self._group_size = group_size
        self._seed = seed
        self._visit_all = visit_all
        self._rest_epochs = rest_epochs
        self._names = sorted(set(categories))
        number = {name: place for place, name in enumerate(self._names)}
        self._weights = [weights.get(name, 0.0) for name in self._names]
        self._prompts = Prompts(state, len(categories), file)
        self._epochs = Epochs(state, self._prompts, seed=seed)
        numbers = np.fromiter((number[name] for name in categories), np.int32, len(categories))
        self._pool = Pool(self._prompts, numbers, group_size=group_size)
        self._pool.begin(state.epoch, list(state.drawn.values()))
        for name in self._names:
            state.monitored.setdefault(name, Monitored())
            state.tallies.setdefault(name, Tally())
        self._update(max(0, state.updated), first=list(state.table) != self._names)

    @property
    def epoch_length(self) -> int:
        """Draws in an epoch."""
        return self._epochs.length

    def id(self, ordinal: int) -> str:
        """The id of the n-th prompt."""
        return numbered(ordinal, self.epoch_length)

    def ordinal(self, group: str) -> int:
        """The ordinal of an id; a reissued prompt has that of its first issue."""
        return number_of(group, self.epoch_length)

    def row(self, ordinal: int) -> int:
        """The row of the n-th prompt, drawn when it is first asked for and remembered until the group ends."""
        if ordinal not in self.state.drawn:
            self.state.drawn[ordinal] = self._draw(ordinal)
        return self.state.drawn[ordinal]

    def judged(self, group: str, scored: Scored, *, kept: bool, version: int) -> None:
        """A group came back for the first time, when `version` was the newest."""
        row = self.state.drawn[self.ordinal(group)]
        name, outcome = self._name(row), Outcome(scored)
        monitor.judged(self.state.monitored[name], outcome, self._schedule.decay)
        self._tally(name, outcome, kept=kept)
        if outcome.attempts:
            self._learn(row, outcome, version=version)

    def batched(self, group: str, age: int) -> None:
        """A group goes into a batch at this age."""
        name = self._name(self.state.drawn[self.ordinal(group)])
        self.state.monitored[name].age.add(age, self._schedule.decay)

    def trained(self, feedback: Feedback) -> None:
        """A step is trained: its gradients, its line of the record, and a new table if it is time."""
        for shown in feedback.groups:
            row = self.state.drawn.get(self.ordinal(shown.id))
            if row is not None:
                average = self.state.monitored[self._name(row)].gradient_variance
                average.add(shown.gradient_variance, self._schedule.decay)
        self.state.finished.append(line(feedback.step, self._schedule, self.state))
        self.state.tallies = {name: Tally() for name in self._names}
        self._update(feedback.version)

    def ended(self, group: str) -> None:
        """A group is trained or dropped: its prompt may be drawn again."""
        row = self.state.drawn.pop(self.ordinal(group), None)
        if row is not None:
            self._pool.put_back(row)

    def file(self) -> tuple[str, bytes] | None:
        """Name and content of the file of prompts, if it is to be written before the next hand-over."""
        return self._prompts.file()

    def _draw(self, ordinal: int) -> int:
        rng = random.Random(f"{self._seed}:{ordinal}")
        epoch, place = divmod(ordinal, self.epoch_length)
        if epoch != self.state.epoch:
            self._epochs.begin(epoch)
            self._pool.begin(epoch, list(self.state.drawn.values()))
        if self._visit_all and self._epochs.is_behind(place):
            row = self._epochs.next_unvisited()
        else:
            row = self._promising(rng)
        self._epochs.visit(row)
        self._pool.take(row)
        self.state.tallies[self._name(row)].draws += 1
        return row

    def _promising(self, rng: random.Random) -> int:
        category = bisect_right(self._cumulative, rng.random())
        row = self._pool.draw(category, rng)
        return row if row is not None else self._pool.any_of(category, rng)

    def _learn(self, row: int, outcome: Outcome, *, version: int) -> None:
        """The prompt's evidence; one that is solved rests for whole epochs if the user says so."""
        evidence = updated(
            self._prompts.evidence(row), attempts=outcome.attempts, successes=outcome.successes, version=version,
            decay=self._schedule.decay,
        )  # fmt: skip
        self._prompts.learn(row, evidence)
        a, b = evidence.beta
        if self._rest_epochs and is_solved(a, b, expected_keep(a, b, self._group_size)):
            self._prompts.postpone(row, self.state.epoch + 1 + self._rest_epochs)
        self._pool.refresh(row)

    def _tally(self, name: str, outcome: Outcome, *, kept: bool) -> None:
        tally = self.state.tallies[name]
        tally.judged += 1
        tally.kept += kept
        tally.attempts += outcome.attempts
        tally.successes += outcome.successes

    def _update(self, version: int, *, first: bool = False) -> None:
        """The table anew, if `period` steps have passed or a stage begins."""
        step = min(version, self._schedule.steps - 1)
        stage = self._schedule.stage(step)
        if first or stage != self.state.stage or version - self.state.updated >= self._schedule.period:
            shares = scores.probabilities(
                self._kind, [self.state.monitored[name] for name in self._names],
                temperature=self._schedule.temperature(step), settle=stage == "settle", weights=self._weights,
            )  # fmt: skip
            self.state.table = dict(zip(self._names, shares.tolist(), strict=True))
            self.state.stage, self.state.updated = stage, version
        self._cumulative = scores.cumulative(self.state.table)

    def _name(self, row: int) -> str:
        return self._names[self._pool.category[row]]
