"""A run as a trace for https://ui.perfetto.dev or chrome://tracing, from its histories.

    a process   rollout-0, reward-0, filter-0, learner-0 ...      a slice   a group sampled or judged, a phase of a step
    an arrow    a trained group, from its sampling over its verdict to its step
    a mark      a batch closed, a version loaded or published, a checkpoint, a process started or dead

Groups of one process overlap; each goes into the first lane that is free. Format: the "Trace Event Format" of Chrome,
times in microseconds since the first event.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.cli.report.groups import TRAINED, Group
from services.cli.report.record import Record
from services.cli.snapshot import Row

Json = dict[str, Any]
MARKS = {
    "batched": "batch {step}", "loaded": "version {version} loaded", "published": "version {version}",
    "checkpointed": "checkpoint {step}", "started": "{name} started", "died": "{name} died ({status})",
    "dead": "dead letter {id}",
}  # fmt: skip
"""Events of the histories that are shown as marks, and how they are called."""
PHASES = (("wait", "wait_seconds"), ("train", "train_seconds"), ("publish", "publish_seconds"))


@dataclass
class Lanes:
    """Places intervals of one process side by side; ask in order of their start."""

    _ends: list[float] = field(default_factory=list)

    def lane(self, start: float, end: float) -> int:
        """The first lane, from 1 on, that is free at `start`; it is taken until `end`."""
        for place, free_from in enumerate(self._ends):
            if free_from <= start:
                self._ends[place] = end
                return place + 1
        self._ends.append(end)
        return len(self._ends)


@dataclass
class Trace:
    """Collects events; processes get numbers in order of appearance."""

    origin: float
    events: list[Json] = field(default_factory=list)
    _processes: dict[str, int] = field(default_factory=dict)
    _lanes: defaultdict[str, Lanes] = field(default_factory=lambda: defaultdict(Lanes))

    def slice(self, process: str, name: str, start: float, end: float, *, kind: str, **facts: Any) -> Json:
        """An interval in a lane of a process."""
        lane = self._lanes[process].lane(start, end)
        return self._add("X", process, name, start, tid=lane, dur=self._micro(end) - self._micro(start), cat=kind,
                         args=facts)  # fmt: skip

    def mark(self, process: str, name: str, time: float) -> None:
        """A moment of a process."""
        self._add("i", process, name, time, tid=0, s="p")

    def count(self, name: str, time: float, value: float) -> None:
        """A number over time."""
        self._add("C", "numbers", name, time, tid=0, args={"value": value})

    def arrow(self, name: str, slices: Sequence[Json]) -> None:
        """From slice to slice."""
        for place, (slice_, phase) in enumerate(zip(slices, ("s", *"t" * (len(slices) - 2), "f"), strict=True)):
            end = {"bp": "e"} if place else {}
            at = slice_["ts"] + (slice_["dur"] if place == 0 else 0)
            self.events.append({"ph": phase, "id": name, "name": "group", "cat": "group", "ts": at,
                                "pid": slice_["pid"], "tid": slice_["tid"], **end})  # fmt: skip

    def _add(self, phase: str, process: str, name: str, time: float, **more: Any) -> Json:
        if process not in self._processes:
            self._processes[process] = len(self._processes) + 1
            self.events.append({"ph": "M", "name": "process_name", "pid": self._processes[process], "tid": 0,
                                "args": {"name": process}})  # fmt: skip
        event = {"ph": phase, "name": name, "pid": self._processes[process], "ts": self._micro(time), **more}
        self.events.append(event)
        return event

    def _micro(self, time: float) -> int:
        return round((time - self.origin) * 1e6)


def trace(record: Record, first: int, last: int) -> Json:
    """Everything of the steps `first` to `last`; held-out groups as far as they fall into that time."""
    span = _span(record, first, last)
    made = Trace(origin=span[0])
    trained = {int(row["step"]): made_step for row, made_step in _steps(made, record, first, last)}
    _groups(made, record.groups, span, trained)
    _marks(made, record, span)
    return {"traceEvents": made.events, "displayTimeUnit": "ms",
            "otherData": {"run": record.name, "steps": f"{first} to {last}"}}  # fmt: skip


def _span(record: Record, first: int, last: int) -> tuple[float, float]:
    """From the issue of the first of their groups to the end of the last step."""
    of_steps = [g for g in record.groups if g.step is not None and first <= g.step <= last]
    times = [row["time"] for row in record.rows if first <= row["step"] <= last]
    start = min((g.issued for g in of_steps if g.issued), default=record.start)
    return start, max(times, default=max((g.trained or start for g in of_steps), default=start))


def _steps(made: Trace, record: Record, first: int, last: int) -> Iterator[tuple[Row, Json]]:
    """The phases of each step, end to end before the time of its line; yields the slice of the training."""
    for row in record.rows:
        if not first <= row["step"] <= last:
            continue
        end = row["time"] - float(row.get("checkpoint_seconds") or 0.0)
        start = end - sum(float(row.get(column) or 0.0) for _, column in PHASES)
        for name, column in PHASES:
            seconds = float(row.get(column) or 0.0)
            title = f"{name} {row['step']:.0f}"
            facts = {k: row[k] for k in ("reward", "accuracy", "entropy", "trained_tokens") if k in row}
            slice_ = made.slice("learner-0", title, start, start + seconds, kind=name, **facts)
            start += seconds
            if name == "train":
                yield row, slice_
        if end < row["time"]:
            made.slice("learner-0", f"checkpoint {row['step']:.0f}", end, row["time"], kind="checkpoint")


def _groups(made: Trace, groups: Iterable[Group], span: tuple[float, float], trained: Mapping[int, Json]) -> None:
    sampled: dict[str, list[Json]] = defaultdict(list)
    inside = [g for g in groups if g.sampled and span[0] <= g.sampled - g.sampling_s and g.sampled <= span[1]]
    for g in sorted(inside, key=lambda g: (g.sampled or 0.0) - g.sampling_s):
        end = g.sampled or 0.0
        facts = {"tokens": sum(g.lengths), "longest": max(g.lengths, default=0), "fate": g.fate, "reason": g.reason}
        sampled[g.id].append(made.slice(g.replica, g.id, end - g.sampling_s, end, kind="sampling", **facts))
    for g in sorted((g for g in inside if g.scored), key=lambda g: (g.scored or 0.0) - g.scoring_s):
        end = g.scored or 0.0
        facts = {"correct": g.correct, "wrong": g.wrong, "errors": g.errors}
        sampled[g.id].append(made.slice(g.reward_replica, g.id, end - g.scoring_s, end, kind="scoring", **facts))
    for g in inside:
        step = trained.get(g.step) if g.step is not None and g.fate == TRAINED else None
        if step is not None and len(sampled[g.id]) == 2:
            made.arrow(g.id, [*sampled[g.id], step])
    _under_way(made, inside)


def _under_way(made: Trace, groups: Iterable[Group]) -> None:
    """How many groups are in the pipeline."""
    changes = sorted([(g.issued, 1) for g in groups if g.issued] + [(_end(g), -1) for g in groups if g.issued])
    number = 0
    for time, change in changes:
        number += change
        made.count("groups under way", time, number)


def _end(group: Group) -> float:
    return group.trained or group.scored or group.sampled or 0.0


def _marks(made: Trace, record: Record, span: tuple[float, float]) -> None:
    for stream in record.streams:
        for event in stream.records:
            if event["event"] in MARKS and span[0] <= event["time"] <= span[1]:
                made.mark(stream.name.rpartition("-")[0], MARKS[event["event"]].format(**event), event["time"])
