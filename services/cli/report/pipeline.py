"""Where is the bottleneck? Stages busy, starved or blocked; the life of a group; the learner's step; throughput.

A group's life: issued, sampled, scored, batched, trained. Where groups wait longest, the next stage is the slow one.
"""

from collections.abc import Callable, Sequence
from html import escape

from services.cli.report.bars import share_bars, table
from services.cli.report.charts import Line, Look, Point, figure, line_chart, stacked
from services.cli.report.curves import Curve, curves, label, names
from services.cli.report.groups import Group
from services.cli.report.record import Record
from services.cli.report.scale import quantile
from services.cli.shares import shares
from services.cli.view import STAGES

STATES = {"busy": "busy", "starved": "starved", "blocked": "blocked"}
PLACES = 160
"""Moments at which the groups in each place are counted."""
IDLE = 0.25
"""Share of its time that the learner may wait before it counts as starved."""

Interval = Callable[[Group], tuple[float | None, float | None]]
HOPS: tuple[tuple[str, Interval], ...] = (
    ("waits for a rollout, and is sampled", lambda g: (g.issued, g.sampled)),
    ("waits for a verifier, and is judged", lambda g: (g.sampled, g.scored)),
    ("waits for its batch to close", lambda g: (g.scored, g.batched)),
    ("waits for the learner, and is trained", lambda g: (g.batched, g.trained)),
)


def section(records: Sequence[Record]) -> str:
    """The sentences and the charts."""
    words = "".join(f"<p class=lead>{escape(sentence(record, records, run))}</p>" for run, record in enumerate(records))
    return words + "".join((_stages(records), _hops(records), *_places(records), *_step(records), _speed(records)))


def sentence(record: Record, records: Sequence[Record], run: int) -> str:
    """Which stage holds up the others."""
    idle = idle_share(record)
    start = "" if len(records) == 1 else f"{names(records)[run]}: "
    if idle is None:
        return f"{start}No step has been trained yet."
    if idle < IDLE:
        return f"{start}The learner waited {idle:.0%} of its time: it is the bottleneck, more rollouts would not help."
    waits = {name: quantile(_seconds(record.groups, hop), 0.5) for name, hop in HOPS[:3]}
    slowest = max(waits, key=lambda name: waits[name])
    return (
        f"{start}The learner waited {idle:.0%} of its time. Before it, the longest part of a group's life is that it "
        f"{slowest} (median {waits[slowest]:.2g} s)."
    )


def idle_share(record: Record) -> float | None:
    """Share of the learner's time in which it had nothing to do, without the first step, which waits for the start."""
    rows = record.rows[1:] or record.rows
    waited = sum(row["wait_seconds"] for row in rows)
    busy = sum(row[name] for row in rows for name in row if name in ("train_seconds", "publish_seconds"))
    return waited / (waited + busy) if waited + busy else None


def _stages(records: Sequence[Record]) -> str:
    parts = [
        (name if len(records) == 1 else f"{name}, {names(records)[run]}", shares(record.stages[name]))
        for name in STAGES
        for run, record in enumerate(records)
        if name in record.stages
    ]
    note = (
        "Busy works, starved waits for input, blocked waits for room. The bottleneck is busy while the stage after it "
        "is starved and the one before it blocked."
    )
    if not parts:
        note = "Not recorded: `dapo run` sums the stages' metrics, which this run did not serve or which nobody read."
    return figure("Where each stage's time went", share_bars(parts, STATES) if parts else "", note=note)


def _seconds(groups: Sequence[Group], hop: Interval) -> list[float]:
    spans = (hop(group) for group in groups if not group.is_held_out)
    return [end - start for start, end in spans if start is not None and end is not None and end >= start]


def _hops(records: Sequence[Record]) -> str:
    rows = []
    for name, hop in HOPS:
        for run, record in enumerate(records):
            values = _seconds(record.groups, hop)
            cells = [f"{quantile(values, share):.3g} s" if values else "-" for share in (0.5, 0.9, 1.0)]
            rows.append([label(records, run, name) if len(records) > 1 else name, *cells])
    return figure("The life of a group", table(["a group ...", "median", "90 %", "longest"], rows, css="numbers"),
                  note="Seconds in each place, from the histories of all processes.")  # fmt: skip


def _places(records: Sequence[Record]) -> list[str]:
    """Groups in each place over time, stacked."""
    charts = []
    for run, record in enumerate(records):
        named = [
            (title, counted([hop(g) for g in record.groups if not g.is_held_out], record), place)
            for place, (title, (_, hop)) in enumerate(
                zip(("sampling", "judging", "waiting for a batch", "in a batch"), HOPS, strict=True)
            )
        ]
        title = "Groups under way" if len(records) == 1 else f"Groups under way, {names(records)[run]}"
        if any(points for _, points, _ in named):
            charts.append(line_chart(title, stacked(named), Look(low=0.0, x_name="minutes since the start"),
                                     note="By where they are. The bound on age limits their sum."))  # fmt: skip
    return charts


def counted(spans: Sequence[tuple[float | None, float | None]], record: Record) -> list[Point]:
    """(minute, spans that contain it) at evenly spaced moments of the run; a span without an end is left out."""
    known = [(start, end) for start, end in spans if start is not None and end is not None]
    moments = _moments(record)
    changes = sorted([(start, 1) for start, _ in known] + [(end, -1) for _, end in known])
    points, inside, at = [], 0, 0
    for moment in moments:
        while at < len(changes) and changes[at][0] <= moment:
            inside += changes[at][1]
            at += 1
        points.append(((moment - record.start) / 60, float(inside)))
    return points


def _moments(record: Record) -> list[float]:
    """From the first group that was issued to the last step."""
    first = min((g.issued for g in record.groups if g.issued), default=record.start)
    last = max((g.trained for g in record.groups if g.trained), default=first)
    return [first + (last - first) * k / PLACES for k in range(PLACES + 1)] if last > first else []


def _step(records: Sequence[Record]) -> list[str]:
    """The seconds of each step by what the learner did."""
    charts = []
    for run, record in enumerate(records):
        phases = (("training", "train_seconds"), ("publishing", "publish_seconds"),
                  ("checkpoint", "checkpoint_seconds"), ("waiting", "wait_seconds"))  # fmt: skip
        named = [
            (name, [(float(row["step"]), float(row.get(column) or 0.0)) for row in record.rows[1:]], place)
            for place, (name, column) in enumerate(phases)
        ]
        title = "Seconds of a step" if len(records) == 1 else f"Seconds of a step, {names(records)[run]}"
        charts.append(line_chart(title, stacked(named), Look(low=0.0),
                                 note="The first step, which waits for the engine to start, is left out."))  # fmt: skip
    return charts


def _speed(records: Sequence[Record]) -> str:
    trained = line_chart("Tokens the learner works on", curves(records, [Curve("tokens", "tokens_per_second")]),
                         Look(low=0.0), note="Per second of training, prompts included.")  # fmt: skip
    return line_chart("Samples per second", _rates(records), Look(low=0.0, x_name="minutes since the start"),
                      note="Finished by the rollouts, of training groups.") + trained  # fmt: skip


def _rates(records: Sequence[Record]) -> list[Line]:
    return [Line(label(records, run, ""), sampled_rate(record), run) for run, record in enumerate(records)]


def sampled_rate(record: Record, parts: int = 60) -> list[Point]:
    """(minute, samples per second) in `parts` equal parts of the run."""
    done = [(g.sampled, len(g.lengths)) for g in record.groups if g.sampled and not g.is_held_out]
    if len(done) < 2:
        return []
    first, last = min(time for time, _ in done), max(time for time, _ in done)
    width = (last - first) / parts or 1.0
    counts = [0] * parts
    for time, number in done:
        counts[min(parts - 1, int((time - first) / width))] += number
    return [((first + (k + 0.5) * width - record.start) / 60, count / width) for k, count in enumerate(counts)]
