"""One picture of a run: accuracy by step, rewards and keep rate, ages, and where each stage's time went."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from services.cli.shares import STATES, Seconds, shares
from services.cli.snapshot import Row
from services.cli.summary import Summary
from services.cli.view import STAGES

BLUE, ORANGE, GREEN, GREY, LIGHT = "#1f5fa8", "#d9731a", "#2c8a4b", "#6b7280", "#c9d6e8"
STATE_COLOURS = {"busy": GREEN, "starved": "#d5dae1", "blocked": "#d98c8c"}
WINDOW = 5
"""Steps over which noisy lines are averaged."""


def draw(summary: Summary, path: Path, *, title: str, target: float | None = None) -> None:
    """Write the picture as PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    settings = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left"}
    with mpl.rc_context(settings):
        figure, axes = pyplot.subplot_mosaic(
            [["accuracy", "accuracy"], ["reward", "age"], ["stages", "stages"]],
            figsize=(10, 9.5), height_ratios=[1.5, 1, 0.8], layout="constrained",
        )  # fmt: skip
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        _accuracy(axes["accuracy"], summary, target)
        _reward(axes["reward"], summary)
        _ages(axes["age"], summary.rows, summary.run.max_staleness)
        _stages(axes["stages"], summary.stages)
        figure.savefig(path, dpi=130)
        pyplot.close(figure)


def _accuracy(axis: Any, summary: Summary, target: float | None) -> None:
    steps, accuracy = _column(summary.rows, "accuracy")
    axis.plot(steps, accuracy, color=LIGHT, linewidth=1)
    axis.plot(
        steps, smooth(accuracy), color=BLUE, linewidth=1.5, label=f"training, groups kept (mean of {WINDOW} steps)"
    )
    versions, held_out = [e["version"] for e in summary.evals], [e["accuracy"] for e in summary.evals]
    axis.plot(versions, held_out, "o-", color=ORANGE, linewidth=2, markersize=6, label="held-out, greedy")
    for row in summary.ends:
        axis.annotate(
            f"{row['accuracy']:.3f}", (row["version"], row["accuracy"]), textcoords="offset points", xytext=(0, 8),
            ha="center", color=ORANGE, fontweight="bold",
        )  # fmt: skip
    if target is not None:
        axis.axhline(target, color=GREY, linewidth=1, linestyle="--", label=f"target {target:g}")
    axis.set(title="Accuracy", xlabel="step (policy version)", ylim=(0, 1.08))
    _finish(axis)


def _reward(axis: Any, summary: Summary) -> None:
    steps, reward = _column(summary.rows, "reward")
    axis.plot(steps, reward, color=LIGHT, linewidth=1)
    axis.plot(steps, smooth(reward), color=BLUE, linewidth=1.5, label="shaped reward")
    kept = keep_rates(summary.rows, summary.run.groups_per_batch)
    axis.plot(steps, kept, color=GREEN, linewidth=1.5, label="keep rate")
    axis.axhline(0, color=GREY, linewidth=0.5)
    axis.set(title="Training", xlabel="step")
    _finish(axis)


def _ages(axis: Any, rows: Sequence[Row], limit: int) -> None:
    steps, greatest = _column(rows, "age_max")
    axis.fill_between(steps, greatest, step="mid", color=LIGHT, linewidth=0, label="greatest")
    axis.plot(steps, _column(rows, "age_mean")[1], color=BLUE, linewidth=1.5, label="mean")
    axis.axhline(limit, color=ORANGE, linewidth=1, linestyle="--", label="max_staleness")
    axis.set(title="Token age", xlabel="step", ylabel="versions", ylim=(0, limit + 0.3))
    _finish(axis)


def _stages(axis: Any, stages: Seconds) -> None:
    names = [name for name in STAGES if name in stages]
    left = [0.0] * len(names)
    for state in STATES:
        parts = [shares(stages[name])[state] for name in names]
        axis.barh(names, parts, left=left, color=STATE_COLOURS[state], label=state, height=0.7)
        left = [a + b for a, b in zip(left, parts, strict=True)]
    axis.invert_yaxis()
    axis.set(title="Where each stage's time went", xlim=(0, 1), xlabel="share of its time")
    axis.tick_params(left=False)
    _finish(axis)
    axis.grid(visible=False)


def _finish(axis: Any) -> None:
    """The legend above the axes on the right, where it hides nothing."""
    axis.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False, borderaxespad=0.1, fontsize=9,
        columnspacing=1.2, handlelength=1.5,
    )  # fmt: skip
    axis.grid(axis="y", alpha=0.25)


def smooth(values: Sequence[float]) -> list[float]:
    """Mean of each value and those before it, `WINDOW` at most."""
    windows = [values[max(0, i + 1 - WINDOW) : i + 1] for i in range(len(values))]
    return [sum(window) / len(window) for window in windows]


def keep_rates(rows: Sequence[Row], groups_per_batch: int) -> list[float]:
    """Per step: groups that filled the last `WINDOW` batches over those and the groups dropped meanwhile."""
    dropped = [0.0, *(_dropped(row) for row in rows)]
    rates = []
    for last in range(1, len(dropped)):
        first = max(0, last - WINDOW)
        kept = (last - first) * groups_per_batch
        rates.append(kept / (kept + dropped[last] - dropped[first]))
    return rates


def _dropped(row: Row) -> float:
    return float(sum(value for name, value in row.items() if name.startswith("filter_dropped_")))


def _column(rows: Sequence[Row], name: str) -> tuple[list[int], list[float]]:
    return [int(row["step"]) for row in rows], [float(row[name]) for row in rows]
