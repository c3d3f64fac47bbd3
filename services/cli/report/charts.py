"""Line charts as inline SVG. Colours are classes, so that the page's light and dark style decide them.

    Line("held-out", points, colour=1, style="dots")  ->  line_chart("Accuracy", [...], limit=Limit(1, "max_staleness"))

Long lines are averaged over neighbouring steps (`thinned`); a value that is not finite leaves a gap.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Literal

from services.cli.report.scale import Axis, bounds, short

Point = tuple[float, float]
WIDTH, HEIGHT = 420, 230
LEFT, RIGHT, TOP, BOTTOM = 50, 10, 8, 24
MAX_POINTS = 240


@dataclass(frozen=True)
class Line:
    """One line of a chart."""

    name: str
    points: Sequence[Point]
    colour: int = 0
    style: Literal["solid", "dash", "dot", "dots", "faint", "area", "stack"] = "solid"
    """`dots`: with a mark at every point; `faint`: behind another line, without a name; `area`: steps filled to zero;
    `stack`: filled to zero, hiding what was drawn before."""
    own: Sequence[Point] = ()
    """The values to tell where they are not those drawn: in a stack."""


@dataclass(frozen=True)
class Limit:
    """A horizontal mark."""

    value: float
    name: str


@dataclass(frozen=True)
class Band:
    """A span of steps with a name."""

    first: float
    end: float
    name: str


@dataclass(frozen=True, kw_only=True)
class Look:
    """How a chart is drawn, beyond its lines."""

    low: float | None = None
    high: float | None = None
    log: bool = False
    x_name: str = "step"
    limit: Limit | None = None
    bands: Sequence[Band] = field(default_factory=tuple)


def line_chart(title: str, lines: Sequence[Line], look: Look = Look(), *, note: str = "") -> str:
    """A figure; empty if no line has a point."""
    short_lines = (replace(line, points=thinned(line.points, look.log), own=thinned(line.own)) for line in lines)
    lines = [line for line in short_lines if line.points]
    if not lines:
        return ""
    x, y = _axes(lines, look)
    parts = [*_frame(x, y, look), *(_drawn(line, x, y) for line in lines)]
    body = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
    return figure(title, legend(lines, look.limit) + body, note=note, data=_data(lines, x, y, look))


def figure(title: str, body: str, *, note: str = "", data: str = "", wide: bool = False) -> str:
    """A titled box on the page."""
    attributes = f" data-chart='{data}'" if data else ""
    caption = f"<p class=note>{escape(note)}</p>" if note else ""
    return f"<figure{' class=wide' if wide else ''}{attributes}><h3>{escape(title)}</h3>{body}{caption}</figure>"


def legend(lines: Sequence[Line], limit: Limit | None = None) -> str:
    """Names beside their colours; none for a single line without a limit."""
    named = [line for line in lines if line.style != "faint" and line.name]
    items = [f'<span class="key k{line.colour} {line.style}">{escape(line.name)}</span>' for line in named]
    if limit:
        items.append(f'<span class="key limit">{escape(limit.name)}</span>')
    return f"<div class=legend>{''.join(items)}</div>"


def stacked(named: Sequence[tuple[str, Sequence[Point], int]]) -> list[Line]:
    """(name, points, colour) of one set of x, each on top of those before it; the whole first, to be drawn behind."""
    lines: list[Line] = []
    below = [0.0] * len(named[0][1]) if named else []
    for name, points, colour in named:
        below = [low + y for low, (_, y) in zip(below, points, strict=True)]
        heights = [(x, top) for (x, _), top in zip(points, below, strict=True)]
        lines.append(Line(name, heights, colour, "stack", own=points))
    return lines[::-1]


def thinned(points: Sequence[Point], log: bool = False) -> list[Point]:
    """At most `MAX_POINTS`: neighbours averaged; values that cannot be drawn are left out."""
    good = [(x, y) for x, y in points if math.isfinite(y) and (y > 0 or not log)]
    size = -(-len(good) // MAX_POINTS)
    if size <= 1:
        return good
    chunks = [good[at : at + size] for at in range(0, len(good), size)]
    return [(sum(x for x, _ in c) / len(c), sum(y for _, y in c) / len(c)) for c in chunks]


def _axes(lines: Sequence[Line], look: Look) -> tuple[Axis, Axis]:
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points] + ([look.limit.value] if look.limit else [])
    left, right = min(xs), max(xs)
    if left == right:
        left, right = left - 0.5, right + 0.5
    low, high = (min(ys) / 1.3, max(ys) * 1.3) if look.log else bounds(ys, look.low, look.high)
    if look.log:
        low, high = look.low or low, look.high or high
    return (
        Axis(low=left, high=right, start=LEFT, end=WIDTH - RIGHT),
        Axis(low=low, high=high, start=HEIGHT - BOTTOM, end=TOP, log=look.log),
    )


def _frame(x: Axis, y: Axis, look: Look) -> list[str]:
    """Bands, grid and the numbers of both axes."""
    parts = [_band(band, place, x) for place, band in enumerate(look.bands)]
    for value in y.ticks(4):
        at = y.place(value)
        parts.append(f'<path class=grid d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class=tick x="{LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{short(value)}</text>')
    for value in x.ticks(6):
        at = x.place(value)
        parts.append(f'<text class=tick x="{at:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{short(value)}</text>')
    if look.limit:
        parts.append(f'<path class="line limit" d="M{LEFT} {y.place(look.limit.value):.1f}H{WIDTH - RIGHT}"/>')
    return parts


def _band(band: Band, place: int, x: Axis) -> str:
    left, right = x.place(band.first), x.place(band.end)
    text = (
        f'<text class=tick x="{left + 4:.1f}" y="{TOP + 10}">{escape(band.name)}</text>'
        if right - left > 6.5 * len(band.name)
        else ""
    )
    box = f'<rect class="band b{place % 2}" x="{left:.1f}" y="{TOP}" width="{max(0.0, right - left):.1f}"'
    return f'{box} height="{HEIGHT - TOP - BOTTOM}"/>{text}'


def _drawn(line: Line, x: Axis, y: Axis) -> str:
    places = [(x.place(a), y.place(b)) for a, b in line.points]
    path = _path(places, step=line.style == "area")
    shape = f'<path class="line c{line.colour} {line.style}" d="{path}"/>'
    if line.style in ("area", "stack"):
        foot = y.place(max(y.low, 0.0))
        closed = f"{path}L{places[-1][0]:.1f} {foot:.1f}L{places[0][0]:.1f} {foot:.1f}Z"
        shape = f'<path class="fill f{line.colour} {line.style}" d="{closed}"/>{shape}'
    if line.style == "dots" or len(places) == 1:
        shape += "".join(f'<circle class="mark f{line.colour}" cx="{a:.1f}" cy="{b:.1f}" r="3"/>' for a, b in places)
    return shape


def _path(places: Sequence[Point], *, step: bool) -> str:
    if not step:
        return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
    corners = [f"M{places[0][0]:.1f} {places[0][1]:.1f}"]
    corners += [f"H{a:.1f}V{b:.1f}" for a, b in places[1:]]
    return "".join(corners)


def _data(lines: Sequence[Line], x: Axis, y: Axis, look: Look) -> str:
    """What the page's script needs to say the values under the pointer."""
    named = [line for line in lines if line.style != "faint"]
    series = [
        {"n": line.name, "c": line.colour, "p": [[_brief(a), _brief(b)] for a, b in line.own or line.points]}
        for line in named
    ]
    chart = {"x": [x.low, x.high, x.start, x.end], "y": [y.low, y.high, y.start, y.end], "log": y.log,
             "xn": look.x_name, "s": series}  # fmt: skip
    return escape(json.dumps(chart, separators=(",", ":")), quote=True)


def _brief(value: float) -> float:
    return float(f"{value:.4g}")
