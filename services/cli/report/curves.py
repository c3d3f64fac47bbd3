"""Numbers of metrics.jsonl as lines: one colour a number, or, of two runs, one colour a run and one stroke a number."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.cli.report.charts import Line, Point
from services.cli.report.record import Record

STROKES = ("solid", "dash", "dot")
WINDOW = 5
"""Steps over which noisy lines are averaged."""


@dataclass(frozen=True)
class Curve:
    """A number over the steps."""

    name: str
    column: str
    """Its name in metrics.jsonl."""
    noisy: bool = True
    """Whether the mean of `WINDOW` steps is drawn before the values themselves."""


def curves(records: Sequence[Record], wanted: Sequence[Curve], *, first: int = 0) -> list[Line]:
    """The lines of a chart, from colour or stroke `first` on."""
    return [
        line
        for place, curve in enumerate(wanted, first)
        for run, record in enumerate(records)
        for line in _lines(record.column(curve.column), curve, records, run, place)
    ]


def of_each(records: Sequence[Record], points: Callable[[Record], Sequence[Point]], name: str = "") -> list[Line]:
    """One line a run."""
    return [
        Line(label(records, run, name), points(record), colour_of(records, run, 0))
        for run, record in enumerate(records)
    ]


def label(records: Sequence[Record], run: int, name: str) -> str:
    """The name of a line; with that of its run where there are two."""
    return name if len(records) == 1 else ", ".join(part for part in (names(records)[run], name) if part)


def names(records: Sequence[Record]) -> list[str]:
    """The runs' names; told apart by their folders if they are the same."""
    plain = [record.name for record in records]
    return plain if len(set(plain)) == len(plain) else [str(record.folder) for record in records]


def colour_of(records: Sequence[Record], run: int, place: int) -> int:
    """Of number `place` of a run."""
    return run if len(records) > 1 else place


def smooth(points: Sequence[Point]) -> list[Point]:
    """The mean of each value and those before it, `WINDOW` at most."""
    windows = [points[max(0, i + 1 - WINDOW) : i + 1] for i in range(len(points))]
    return [(window[-1][0], sum(y for _, y in window) / len(window)) for window in windows]


def _lines(points: Sequence[Point], curve: Curve, records: Sequence[Record], run: int, place: int) -> list[Line]:
    colour, name = colour_of(records, run, place), label(records, run, curve.name)
    style = STROKES[place % len(STROKES)] if len(records) > 1 else "solid"
    line = Line(name, smooth(points) if curve.noisy else points, colour, style)  # type: ignore[arg-type]
    return [Line("", points, colour, "faint"), line] if curve.noisy else [line]
