"""What became of every group, and when: the event streams of all services joined by the group's id.

    filter issued -> rollout sampled -> reward scored -> filter batched | settled -> learner trained

A group that was delivered twice has the times of its last delivery. Held-out groups have no fate.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.cli.audit.ledger import effective, is_eval
from services.cli.audit.reading import Stream

OPEN, TRAINED, DROPPED = "open", "trained", "dropped"


@dataclass(kw_only=True)
class Group:
    """Times are Unix seconds; None is "not yet, or not known"."""

    id: str
    issued: float | None = None
    sampled: float | None = None
    sampling_s: float = 0.0
    """Of the generation alone, without the wait for a rollout."""
    replica: str = ""
    scored: float | None = None
    scoring_s: float = 0.0
    reward_replica: str = ""
    batched: float | None = None
    step: int | None = None
    """The batch it is in."""
    trained: float | None = None
    fate: str = OPEN
    reason: str = ""
    """Why it was dropped."""
    lengths: Sequence[int] = ()
    """Response tokens of every sample."""
    oldest: int | None = None
    """The oldest version that sampled a token."""
    correct: int = 0
    wrong: int = 0
    errors: int = 0

    @property
    def is_held_out(self) -> bool:
        """Whether it belongs to an evaluation."""
        return is_eval(self.id)

    @property
    def pass_rate(self) -> float | None:
        """Share of correct answers among those judged."""
        judged = self.correct + self.wrong
        return self.correct / judged if judged else None


@dataclass
class _Join:
    groups: dict[str, Group] = field(default_factory=dict)

    def of(self, name: str) -> Group:
        return self.groups.setdefault(name, Group(id=name))


def read_groups(streams: Sequence[Stream], committed: int | None) -> list[Group]:
    """In order of issue; of the filter's events only those that a transaction up to `committed` carries."""
    join = _Join()
    of_filter = [stream for stream in streams if stream.role == "filter"]
    for record in effective(of_filter, committed if committed is not None else 2**62):
        _filter_event(join, record)
    for stream in streams:
        process = stream.name.rpartition("-")[0]
        for record in stream.records:
            _worker_event(join, stream.role, process, record)
    return sorted(join.groups.values(), key=lambda group: group.issued or group.sampled or 0.0)


def _filter_event(join: _Join, record: Mapping[str, Any]) -> None:
    if record["event"] == "issued":
        join.of(record["id"]).issued = record["time"]
    elif record["event"] == "settled":
        group = join.of(record["id"])
        group.fate, group.reason = record["fate"], record["reason"]
    elif record["event"] == "batched":
        for name in record["ids"]:
            group = join.of(name)
            group.batched, group.step = record["time"], record["step"]


def _worker_event(join: _Join, role: str, process: str, record: Mapping[str, Any]) -> None:
    event = record["event"]
    if role == "rollout" and event == "sampled":
        _sampled(join.of(record["id"]), process, record)
    elif role == "reward" and event == "scored":
        group = join.of(record["id"])
        group.scored, group.scoring_s, group.reward_replica = record["time"], record.get("seconds", 0.0), process
        group.correct, group.wrong, group.errors = record["correct"], record["wrong"], record["error"]
    elif role == "learner" and event == "trained":
        for name in record["ids"]:
            join.of(name).trained = record["time"]
            join.of(name).fate = TRAINED


def _sampled(group: Group, process: str, record: Mapping[str, Any]) -> None:
    group.sampled, group.sampling_s, group.replica = record["time"], record.get("seconds", 0.0), process
    group.lengths = [spans[-1][2] if spans else 0 for spans in record["spans"]]
    wrote = [version for spans in record["spans"] for version, start, end in spans if end > start]
    group.oldest = min(wrote, default=None)


def lengths(groups: Iterable[Group], fate: str | None = None) -> list[int]:
    """Of all samples of training groups, or of those with this fate."""
    return [n for g in groups if not g.is_held_out and fate in (None, g.fate) for n in g.lengths]
