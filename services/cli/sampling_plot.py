"""`dapo sampling RUN`: which categories a run drew its prompts from, and why, as RUN/sampling.png.

sampling.jsonl  ->  probability with stages and least share | share of the draws | pass rate | keep rate
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.errors import USER_ERROR_EXIT_STATUS
from services.cli.snapshot import Row, read_rows

COLOURS = ("#1f5fa8", "#d9731a", "#2c8a4b", "#8a4fa3", "#b8860b", "#3aa6a6", "#c2456b")
GREY = "#6b7280"
SHADES = {"explore": "#eef2f7", "exploit": "#ffffff", "settle": "#f4efe8"}
SHOWN = len(COLOURS)
"""Categories with a line of their own: those drawn most often."""
WINDOW = 9
"""Steps over which counts are averaged."""
FILE = "sampling.jsonl"


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the picture; returns the exit status."""
    parser = argparse.ArgumentParser(prog="dapo sampling", description="Draw what the prompt sampler did.")
    parser.add_argument("run", type=Path, help="run folder")
    folder = parser.parse_args(argv).run
    rows = read_rows(folder / FILE)
    if not rows:
        hint = 'only runs with [filter] sampling other than "uniform" keep that record'
        print(f"dapo sampling: {folder / FILE} is missing or empty: {hint}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
    draw(rows, folder / "sampling.png", title=folder.resolve().name)
    print(folder / "sampling.png")
    return 0


def draw(rows: Sequence[Row], path: Path, *, title: str) -> None:
    """Write the picture as PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    settings = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left"}
    with mpl.rc_context(settings):
        figure, axes = pyplot.subplot_mosaic(
            [["probability", "probability"], ["draws", "draws"], ["pass", "keep"]],
            figsize=(10, 10), height_ratios=[1.4, 1, 1], layout="constrained",
        )  # fmt: skip
        figure.suptitle(f"{title}: prompt sampling", x=0.01, ha="left", fontsize=13, fontweight="bold")
        names = most_drawn(rows)
        _probability(axes["probability"], rows, names)
        _draws(axes["draws"], rows, names)
        _rate(axes["pass"], rows, names, ("correct", "answers"), "Pass rate of the answers judged")
        _rate(axes["keep"], rows, names, ("kept", "judged"), "Groups kept")
        figure.savefig(path, dpi=130)
        pyplot.close(figure)


def most_drawn(rows: Sequence[Row]) -> list[str]:
    """The categories that get a line, in order of name."""
    draws = {name: sum(row["categories"][name]["draws"] for row in rows) for name in rows[0]["categories"]}
    return sorted(sorted(draws, key=lambda name: -draws[name])[:SHOWN])


def stages(rows: Sequence[Row]) -> list[tuple[str, float, int, int]]:
    """(name, temperature, first step, step after the last) of each stage."""
    spans: list[tuple[str, float, int, int]] = []
    for row in rows:
        if spans and spans[-1][0] == row["stage"]:
            spans[-1] = (*spans[-1][:3], row["step"] + 1)
        else:
            spans.append((row["stage"], row["temperature"], row["step"], row["step"] + 1))
    return spans


def share_of_draws(rows: Sequence[Row], names: Sequence[str]) -> list[list[float]]:
    """Per category and step, of all draws in the last `WINDOW` steps; what has no line comes last."""
    drawn = [[row["categories"][name]["draws"] for row in rows] for name in names]
    every = [sum(c["draws"] for c in row["categories"].values()) for row in rows]
    drawn.append([total - sum(column) for total, column in zip(every, zip(*drawn, strict=True), strict=True)])
    totals = _windows(every)
    return [[part / max(1, total) for part, total in zip(_windows(d), totals, strict=True)] for d in drawn]


def rates(rows: Sequence[Row], name: str, *, of: tuple[str, str]) -> tuple[list[int], list[float]]:
    """Steps, and one count over another in the last `WINDOW` steps; steps without any are left out."""
    over, under = (_windows([row["categories"][name][key] for row in rows]) for key in of)
    found = [(row["step"], a / b) for row, a, b in zip(rows, over, under, strict=True) if b]
    return [step for step, _ in found], [rate for _, rate in found]


def _windows(values: Sequence[float]) -> list[float]:
    return [sum(values[max(0, end - WINDOW) : end]) for end in range(1, len(values) + 1)]


def _probability(axis: Any, rows: Sequence[Row], names: Sequence[str]) -> None:
    edges = [*(row["step"] for row in rows), rows[-1]["step"] + 1]
    for name, colour in zip(names, COLOURS, strict=False):
        values = [row["categories"][name]["probability"] for row in rows]
        axis.stairs(values, edges, baseline=None, color=colour, linewidth=1.8, label=name)
    least = rows[0]["least_share"]
    axis.axhline(least, color=GREY, linewidth=1, linestyle="--", label=f"least share {least:.2g}")
    axis.set_yscale("log")
    axis.set_ylim(least / 1.8, 1.6)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    _shade(axis, rows, labels=True)
    axis.set(title="Probability of each category")
    _finish(axis)


def _draws(axis: Any, rows: Sequence[Row], names: Sequence[str]) -> None:
    parts = share_of_draws(rows, names)
    labels, colours = [*names, "others"], [*COLOURS[: len(names)], "#c8ccd2"]
    if len(names) == len(rows[0]["categories"]):
        parts, labels, colours = parts[:-1], labels[:-1], colours[:-1]
    axis.stackplot([row["step"] for row in rows], parts, colors=colours, alpha=0.85, linewidth=0)
    axis.set(title=f"Share of the prompts drawn (mean of {WINDOW} steps)", xlabel="step", ylim=(0, 1))
    axis.set_xlim(rows[0]["step"], rows[-1]["step"])


def _rate(axis: Any, rows: Sequence[Row], names: Sequence[str], of: tuple[str, str], title: str) -> None:
    for name, colour in zip(names, COLOURS, strict=False):
        axis.plot(*rates(rows, name, of=of), color=colour, linewidth=1.5)
    _shade(axis, rows, labels=False)
    axis.set(title=title, xlabel="step", ylim=(-0.03, 1.03))
    axis.grid(axis="y", alpha=0.25)


def _shade(axis: Any, rows: Sequence[Row], *, labels: bool) -> None:
    """The stages as bands, each with its name and temperature."""
    for name, temperature, first, end in stages(rows):
        axis.axvspan(first, end, color=SHADES[name], zorder=-1, linewidth=0)
        if labels:
            axis.text(
                (first + end) / 2, 0.985, f"{name}  τ = {temperature:g}", transform=axis.get_xaxis_transform(),
                ha="center", va="top", color=GREY, fontsize=9,
            )  # fmt: skip
    axis.set_xlim(rows[0]["step"], rows[-1]["step"] + 1)


def _finish(axis: Any) -> None:
    """The legend above the axes on the right, where it hides nothing."""
    axis.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=5, frameon=False, borderaxespad=0.1, fontsize=9,
        columnspacing=1.2, handlelength=1.5,
    )  # fmt: skip
    axis.grid(axis="y", alpha=0.25)


if __name__ == "__main__":
    sys.exit(main())
