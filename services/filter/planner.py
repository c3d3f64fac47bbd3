"""Every decision of the filter, without its queues: events in, one transaction out.

    on_scored, on_feedback, on_dead  ->  plan(room)  ->  Transaction(items, settles, events)

A transaction carries everything that follows from the events: groups dropped, batches closed, prompts issued. The
caller gives it together with the new state, or ends. Groups that wait for their batch stay leased from the queue, so a
new filter gets them again and judges them again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from common.client import Item
from common.codec import encode
from common.config import RunConfig
from common.errors import UserError
from common.messages import BATCHES, PROMPTS, Batch, Feedback, Prompt, Sampling, Scored
from services.filter.admission import Event, Ledger
from services.filter.ages import Versions, chosen_batch, versions_of
from services.filter.config import FilterConfig
from services.filter.dynamic_sampling import cap_message, drop_reason
from services.filter.evaluation import Evaluation
from services.filter.evaluation import sampling as eval_sampling
from services.filter.prompts import Sampler, UniformSampler, reissued, sampling_seed
from services.filter.schema import Row
from services.filter.state import FilterState

Kind = Literal["train", "eval"]


class Waiting(NamedTuple):
    """An accepted group in the pool."""

    lease: int
    scored: Scored
    frames: Sequence[bytes]
    """The three array frames."""
    versions: Versions


@dataclass
class Transaction:
    """What one `give` of the filter does besides writing its state."""

    items: list[Item] = field(default_factory=list)
    settles: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    """For the history, without `tx`."""
    ages: list[int] = field(default_factory=list)
    """In versions, of the groups in the batches that it closes."""
    failure: str = ""
    """Why the run cannot go on, for the user; empty if it can."""

    def __bool__(self) -> bool:
        return bool(self.items or self.settles or self.events or self.failure)


class Planner:
    """Owns the state between two transactions."""

    def __init__(
        self, state: FilterState, *, run: RunConfig, config: FilterConfig, rows: Sequence[Row],
        held_out: Sequence[Row], sampler: Sampler | None = None,
    ) -> None:  # fmt: skip
        """`sampler` chooses the rows; without one they are drawn uniformly."""
        self.state = state
        self.pool: dict[str, Waiting] = {}
        self.evaluation = Evaluation(
            state.evals, rows=held_out, every=config.eval_every, last=run.steps, samples=config.eval_samples
        )
        self._run = run
        self._config = config
        self.sampler: Sampler = sampler or UniformSampler(len(rows), seed=run.seed)
        self._rows = rows
        self._ledger = Ledger(
            state, steps=run.steps, groups_per_batch=run.groups_per_batch, max_staleness=run.max_staleness
        )
        self._transaction = Transaction()
        _check_epoch(state, self.sampler)

    def on_scored(self, lease: int, scored: Scored, frames: Sequence[bytes]) -> None:
        """A group came back with verdicts: into the pool, or dropped."""
        group = scored.group.prompt.id
        if scored.group.prompt.kind == "eval":
            self.evaluation.tally(scored)
        elif group in self.state.outstanding and self._accepts(group, scored):
            self.pool[group] = Waiting(lease, scored, frames, versions_of(scored))
            return
        self._transaction.settles.append(lease)

    def on_malformed(self, lease: int, name: str) -> None:
        """A scored item that does not decode: nobody else could read it, so it ends here."""
        self._give_up(name, "malformed")
        self._transaction.settles.append(lease)

    def on_feedback(self, lease: int, feedback: Feedback) -> None:
        """A batch is trained and its version published; a repeated feedback changes nothing."""
        groups = self.state.batched.get(feedback.step, [])
        if groups:
            self.sampler.trained(feedback)
        self._ledger.trained(feedback.step, version=feedback.version)
        for group in groups:
            self.sampler.ended(group)
        self._transaction.settles.append(lease)

    def on_dead(self, ids: Sequence[str]) -> None:
        """Items that the broker gave up; each frees its place once."""
        for name in ids:
            self._give_up(name, "dead")

    def plan(self, room: int, *, now: float = 0.0) -> Transaction:
        """Close batches, issue evaluations and up to `room` prompts, unless too many groups in a row were dropped."""
        cap = self._config.max_dropped_in_a_row
        if cap and self.state.dropped_in_a_row >= cap:
            message = cap_message(cap, dropped=self.state.dropped, kept=self.state.num_kept)
            self._transaction.failure = message
        else:
            while self._close_batch():
                pass
            self._issue_evals(now)
            self._issue(room, now)
        self.state.check()
        transaction, self._transaction = self._transaction, Transaction()
        transaction.events += self._ledger.events
        self._ledger.events = []
        return transaction

    @property
    def finished(self) -> bool:
        """Whether the last version is published and evaluated."""
        return self.evaluation.is_complete(self.state.version)

    def _accepts(self, group: str, scored: Scored) -> bool:
        """Keep a group that came back, or drop it; returns whether it is kept."""
        versions = versions_of(scored)
        if not self.state.outstanding[group] <= versions.oldest <= versions.newest <= self.state.next_step:
            self._ledger.drop(group, "version_lie")  # older than s, or than anything published: the engine errs
            self.sampler.ended(group)
        elif reason := self.drop_reason(scored):
            self.sampler.judged(group, scored, kept=False, version=self.state.version)
            self._ledger.reject(group, reason)
            self.sampler.ended(group)
        elif group not in self.state.accepted:  # else it came again, after a restart
            self.sampler.judged(group, scored, kept=True, version=self.state.version)
            self._ledger.accept(group)
        return group in self.state.accepted

    def drop_reason(self, scored: Scored) -> str | None:
        """Why a group that came back is not trained; None if it is kept."""
        return drop_reason(
            scored.verdicts,
            min_survivors=self._config.min_survivors,
            dynamic=self._config.dynamic_sampling,
            pass_band=self._config.pass_band,
            metric=self._config.metric,
            cut=all(sample.finish == "length" for sample in scored.group.samples),
        )

    def _give_up(self, name: str, reason: str) -> None:
        """An item will not come back."""
        if name in self.state.outstanding:
            self.pool.pop(name, None)
            self._ledger.drop(name, reason)
            self.sampler.ended(name)
        elif self.evaluation.give_up(name):
            self._transaction.events.append(("eval_dead", {"id": name}))

    def _close_batch(self) -> bool:
        """Close the next batch if it may; returns whether it did."""
        if self.state.next_step >= self._run.steps:
            return False
        self._drop_stale()
        chosen = chosen_batch(
            self.state.outstanding, self.pool, self.sampler.ordinal,
            step=self.state.next_step, groups_per_batch=self._run.groups_per_batch,
            max_staleness=self._run.max_staleness, wait=self._run.on_stale == "wait",
        )  # fmt: skip
        if chosen is None:
            return False
        step, waiting = self.state.next_step, [self.pool.pop(group) for group in chosen]
        oldest = [w.versions.oldest for w in waiting]
        self._ledger.close_batch(chosen, oldest=min(oldest))
        for group, version in zip(chosen, oldest, strict=True):
            self.sampler.batched(group, step - version)
        batch = Batch(step=step, groups=[w.scored for w in waiting], totals=self.state.totals())
        frames = [*encode(batch), *(frame for w in waiting for frame in w.frames)]
        self._transaction.items.append(Item(BATCHES, str(step), frames))
        self._transaction.settles += [w.lease for w in waiting]
        self._transaction.ages += [step - version for version in oldest]
        return True

    def _drop_stale(self) -> None:
        """Drop what would be too old at the next step by the versions of its tokens, whatever its s says.

        With `wait` nothing honest comes to this; with `mask` a group goes only when its youngest token is too old.
        """
        for group, waiting in list(self.pool.items()):
            version = waiting.versions.newest if self._run.on_stale == "mask" else waiting.versions.oldest
            if self.state.next_step - version > self._run.max_staleness:
                del self.pool[group]
                self._ledger.drop(group, "stale")
                self.state.reissue.append(reissued(group))
                self._transaction.settles.append(waiting.lease)

    def _issue(self, room: int, now: float) -> None:
        """Issue prompts while rollouts have room and the ledger allows it; those of stale groups first."""
        for _ in range(min(room, self._ledger.room)):
            if self.state.reissue:
                group = self.state.reissue.pop(0)
            else:
                group = self.sampler.id(self.state.next_ordinal)
                self.state.next_ordinal += 1
            row = self.sampler.row(self.sampler.ordinal(group))
            sampling = Sampling(
                n=self._run.group_size,
                temperature=self._run.temperature,
                max_tokens=self._run.max_response_tokens,
                seed=sampling_seed(self._run.seed, group),
            )
            self._ledger.issue(group)
            self._offer_prompt(group, "train", self._rows[row], number=row, sampling=sampling, now=now)

    def _issue_evals(self, now: float) -> None:
        """Ask the held-out rows if an evaluation is due."""
        if self.evaluation.is_due(self.state.version):
            for place, (name, row) in enumerate(self.evaluation.start(self.state.version)):
                sampling = eval_sampling(self._run, self._config, place)
                self._offer_prompt(name, "eval", row, number=place, sampling=sampling, now=now)

    def _offer_prompt(self, name: str, kind: Kind, row: Row, *, number: int, sampling: Sampling, now: float) -> None:
        prompt = Prompt(
            id=name, kind=kind, row=number, chat=list(row.chat), task=row.task, sampling=sampling,
            min_version=self.state.version, issued_at=now,
        )  # fmt: skip
        self._transaction.items.append(Item(PROMPTS, name, encode(prompt)))


def _check_epoch(state: FilterState, sampler: Sampler) -> None:
    """Refuse to go on with data or a sampler that number the prompts otherwise."""
    if state.next_ordinal and state.epoch_length not in (0, sampler.epoch_length):
        raise UserError(
            f"the run was begun with {state.epoch_length} prompts an epoch, now there are {sampler.epoch_length}: "
            "resume with the same data and the same [filter] sampling, or start a new run"
        )
    state.epoch_length = sampler.epoch_length
