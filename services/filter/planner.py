"""Every decision of the filter, without its queues: events in, one transaction out.

    on_scored, on_feedback, on_dead  ->  plan(room)  ->  Transaction(items, settles, events)

A transaction carries everything that follows from the events: groups dropped, batches closed, prompts issued. The
caller gives it together with the new state, or ends. Groups that wait for their batch stay leased from the queue, so a
new filter gets them again and judges them again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from common.client import Item
from common.codec import encode
from common.config import RunConfig
from common.errors import UserError
from common.messages import BATCHES, PROMPTS, Batch, Feedback, Prompt, Sampling, Scored
from services.filter.ages import admissible, chosen_batch
from services.filter.config import FilterConfig
from services.filter.dynamic_sampling import drop_reason
from services.filter.prompts import UniformSampler, reissued, sampling_seed
from services.filter.schema import Row
from services.filter.state import EvalTally, FilterState

EVAL_PREFIX = "eval/"


class Waiting(NamedTuple):
    """An accepted group in the pool."""

    lease: int
    scored: Scored
    frames: Sequence[bytes]
    """The three array frames."""


@dataclass
class Transaction:
    """What one `give` of the filter does besides writing its state."""

    items: list[Item] = field(default_factory=list)
    settles: list[int] = field(default_factory=list)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """For the history, without `tx`."""

    def __bool__(self) -> bool:
        return bool(self.items or self.settles or self.events)


class Planner:
    """Owns the state between two transactions."""

    def __init__(
        self, state: FilterState, *, run: RunConfig, config: FilterConfig, rows: Sequence[Row], held_out: Sequence[Row]
    ) -> None:
        self.state = state
        self.pool: dict[str, Waiting] = {}
        self._run = run
        self._config = config
        self._rows = rows
        self._held_out = held_out
        self._sampler = UniformSampler(len(rows), seed=run.seed)
        self._transaction = Transaction()

    def on_scored(self, lease: int, scored: Scored, frames: Sequence[bytes]) -> None:
        """A group came back with verdicts."""
        group = scored.group.prompt.id
        if scored.group.prompt.kind == "eval":
            self._tally(scored)
        elif group in self.state.outstanding:
            reason = drop_reason(scored.verdicts, min_survivors=self._config.min_survivors) or self._lie(scored)
            if reason is None:
                self.pool[group] = Waiting(lease, scored, frames)
                self.state.dropped_in_a_row = 0
                return
            self.state.dropped_in_a_row += 1
            self._drop(group, reason)
        self._transaction.settles.append(lease)

    def on_feedback(self, lease: int, feedback: Feedback) -> None:
        """A batch is trained and its version published; a repeated feedback changes nothing."""
        ids = self.state.batched.pop(feedback.step, [])
        self.state.trained += len(ids)
        self.state.version = max(self.state.version, feedback.version)
        self._transaction.settles.append(lease)
        for group in ids:
            self._event("settled", id=group, fate="trained", reason="")

    def on_dead(self, ids: Sequence[str]) -> None:
        """Items that the broker gave up; each frees its place once."""
        for group in ids:
            if group in self.state.outstanding:
                self._drop(group, "dead")
            elif group.startswith(EVAL_PREFIX):
                tally = self.state.evals.get(int(group.split("/")[1]))
                if tally is not None and group not in tally.dead:
                    tally.dead.append(group)
                    self._event("eval_dead", id=group)

    def plan(self, room: int) -> Transaction:
        """Close batches, issue evaluations and up to `room` prompts; raises `UserError` at the cap of drops."""
        self._check_cap()
        while self._close_batch():
            pass
        self._issue_evals()
        self._issue(room)
        self.state.check()
        transaction, self._transaction = self._transaction, Transaction()
        return transaction

    @property
    def finished(self) -> bool:
        """Whether the last version is published and evaluated."""
        evaluated = all(tally.finished for tally in self.state.evals.values())
        final = not self._held_out or self._run.steps in self.state.evals
        return self.state.version >= self._run.steps and evaluated and final

    def _close_batch(self) -> bool:
        """Close the next batch if it may; returns whether it did."""
        if self.state.next_step >= self._run.steps:
            return False
        self._drop_stale()
        order = {group: self._order(group) for group in self.state.outstanding}
        chosen = chosen_batch(
            self.state.outstanding, self.pool, order,
            step=self.state.next_step, groups_per_batch=self._run.groups_per_batch,
            max_staleness=self._run.max_staleness, wait=self._run.on_stale == "wait",
        )  # fmt: skip
        if chosen is None:
            return False
        waiting = [self.pool.pop(group) for group in chosen]
        self.state.batched[self.state.next_step] = chosen
        for group in chosen:
            del self.state.outstanding[group]
        batch = Batch(step=self.state.next_step, groups=[w.scored for w in waiting], totals=self.totals())
        frames = [*encode(batch), *(frame for w in waiting for frame in w.frames)]
        self._transaction.items.append(Item(BATCHES, str(batch.step), frames))
        self._transaction.settles += [w.lease for w in waiting]
        oldest = min(oldest_version(w.scored) for w in waiting)
        self._event("batched", step=batch.step, ids=chosen, oldest=oldest)
        self.state.next_step += 1
        return True

    def _drop_stale(self) -> None:
        """Drop what would be too old at the next step; with `wait` only an engine that lies comes to this."""
        for group, waiting in list(self.pool.items()):
            age_of = newest_version if self._run.on_stale == "mask" else oldest_version
            if self.state.next_step - age_of(waiting.scored) > self._run.max_staleness:
                del self.pool[group]
                self._drop(group, "stale")
                self.state.reissue.append(reissued(group))
                self._transaction.settles.append(waiting.lease)

    def _issue(self, room: int) -> None:
        """Issue prompts while there is room, the bound allows it and the remaining steps need them."""
        needed = (self._run.steps - self.state.next_step) * self._run.groups_per_batch - len(self.state.outstanding)
        allowed = admissible(
            num_outstanding=self.state.num_outstanding,
            groups_per_batch=self._run.groups_per_batch,
            max_staleness=self._run.max_staleness,
        )
        for _ in range(min(room, needed, allowed)):
            self._issue_one()

    def _issue_one(self) -> None:
        state = self.state
        if state.reissue:
            group = state.reissue.pop(0)
        else:
            group = self._sampler.id(state.next_ordinal)
            state.next_ordinal += 1
        row = self._sampler.row(self._sampler.ordinal(group))
        state.outstanding[group] = state.version
        state.issued += 1
        sampling = Sampling(
            n=self._run.group_size,
            temperature=self._run.temperature,
            max_tokens=self._run.max_response_tokens,
            seed=sampling_seed(self._run.seed, group),
        )
        self._offer_prompt(group, "train", row, self._rows[row], sampling)
        self._event("issued", id=group, min_version=state.version)

    def _issue_evals(self) -> None:
        """Issue an evaluation of the newest version if it is due: the first, every `eval_every`, the last."""
        version, every = self.state.version, self._config.eval_every
        due = version in (0, self._run.steps) or (every and version % every == 0)
        if not self._held_out or not due or version in self.state.evals:
            return
        self.state.evals[version] = EvalTally(rows=len(self._held_out))
        greedy = Sampling(n=1, temperature=0.0, max_tokens=self._run.max_response_tokens, seed=0)
        for place, row in enumerate(self._held_out):
            self._offer_prompt(f"{EVAL_PREFIX}{version}/{place:06d}", "eval", place, row, greedy)

    def _offer_prompt(self, group: str, kind: Any, number: int, row: Row, sampling: Sampling) -> None:
        prompt = Prompt(
            id=group, kind=kind, row=number, chat=list(row.chat), task=row.task, sampling=sampling,
            min_version=self.state.version,
        )  # fmt: skip
        self._transaction.items.append(Item(PROMPTS, group, encode(prompt)))

    def _tally(self, scored: Scored) -> None:
        """Add an answer to a held-out row."""
        tally = self.state.evals[int(scored.group.prompt.id.split("/")[1])]
        tally.answered += 1
        tally.correct += sum(v.score for v in scored.verdicts if v.verdict != "error")
        tally.errors += sum(v.verdict == "error" for v in scored.verdicts)
        oldest, newest = oldest_version(scored), newest_version(scored)
        tally.min_version = oldest if tally.min_version is None else min(oldest, tally.min_version)
        tally.max_version = newest if tally.max_version is None else max(newest, tally.max_version)

    def _lie(self, scored: Scored) -> str | None:
        """An engine that sampled with older weights than it was told to."""
        return "version_lie" if oldest_version(scored) < scored.group.prompt.min_version else None

    def _drop(self, group: str, reason: str) -> None:
        del self.state.outstanding[group]
        self.state.dropped[reason] = self.state.dropped.get(reason, 0) + 1
        self._event("settled", id=group, fate="dropped", reason=reason)

    def _check_cap(self) -> None:
        cap = self._config.max_dropped_in_a_row
        if cap and self.state.dropped_in_a_row >= cap:
            raise UserError(
                f"{self.state.dropped_in_a_row} groups in a row were dropped and none kept, the cap [filter] "
                f"max_dropped_in_a_row is {cap} ({self.state.issued} generated, {self.state.dropped} dropped): choose "
                "easier or harder data, a larger group_size, or raise the cap"
            )

    def _order(self, group: str) -> int:
        return self._sampler.ordinal(group)

    def _event(self, event: str, **fields: Any) -> None:
        self._transaction.events.append((event, fields))

    def totals(self) -> dict[str, float]:
        """The account as flat numbers, for the batch's header and the metrics."""
        state = self.state
        return {
            "issued": state.issued,
            "trained": state.trained,
            "outstanding": state.num_outstanding,
            "keep_rate": state.keep_rate,
            **{f"dropped_{reason}": count for reason, count in sorted(state.dropped.items())},
        }


def oldest_version(scored: Scored) -> int:
    """The oldest version that sampled a token of the group: the age of a group is that of its oldest token."""
    return min(span.version for sample in scored.group.samples for span in sample.spans)


def newest_version(scored: Scored) -> int:
    """The newest version that sampled a token of the group."""
    return max(span.version for sample in scored.group.samples for span in sample.spans)
