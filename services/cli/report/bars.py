"""Shares as bars, made of HTML boxes so that they wrap on a narrow screen; and tables."""

from collections.abc import Mapping, Sequence
from html import escape

from services.cli.report.charts import Line, Point


def share_bars(parts: Sequence[tuple[str, Mapping[str, float]]], colours: Mapping[str, str]) -> str:
    """One bar a name, cut into its parts; `colours` gives each part's class, and the order."""
    keys = "".join(f'<span class="key box {css}">{escape(part)}</span>' for part, css in colours.items())
    rows = "".join(_bar(name, values, colours) for name, values in parts)
    return f"<div class=legend>{keys}</div><div class=bars>{rows}</div>"


def _bar(name: str, values: Mapping[str, float], colours: Mapping[str, str]) -> str:
    whole = sum(values.get(part, 0.0) for part in colours) or 1.0
    pieces = [(part, css, values.get(part, 0.0) / whole) for part, css in colours.items()]
    boxes = "".join(
        f'<i class="{css}" style="width:{share:.2%}" title="{escape(part)} {share:.1%}">{_label(share)}</i>'
        for part, css, share in pieces
        if share > 0
    )
    return f"<span>{escape(name)}</span><div class=bar>{boxes}</div>"


def _label(share: float) -> str:
    return f"{share:.0%}" if share >= 0.09 else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, css: str = "") -> str:
    """Cells are text; the first column names the row."""
    titles = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class=scroll><table class="{css}"><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'


def histogram(values: Sequence[float], *, low: float, high: float, bins: int) -> list[Point]:
    """The share of the values in each of `bins` equal bins, as the corners of a step line; empty without values."""
    if not values or high <= low:
        return []
    width = (high - low) / bins
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, max(0, int((value - low) / width)))] += 1
    shares = [count / len(values) for count in counts]
    return [(low, 0.0), *((low + k * width, share) for k, share in enumerate(shares)), (high, shares[-1])]


def histogram_lines(
    named: Sequence[tuple[str, Sequence[float], int]], *, low: float, high: float, bins: int
) -> list[Line]:
    """(name, values, colour) each as a filled step line."""
    lines = [
        Line(f"{name} ({len(values)})", histogram(values, low=low, high=high, bins=bins), colour, "area")
        for name, values, colour in named
    ]
    return [line for line in lines if line.points]
