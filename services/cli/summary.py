"""What a finished run amounts to: the numbers of its last table, from its files and its audit.

metrics.jsonl, evals.jsonl, stages.json, history, audit -> Summary -> table
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from common import config
from common.config import RunConfig
from services.cli.audit.reading import Stream, read_streams
from services.cli.folder import CONFIG
from services.cli.reader import read_stages
from services.cli.shares import STATES, Seconds, shares
from services.cli.snapshot import Row, read_evals, read_rows
from services.cli.view import STAGES

Report = Mapping[str, Any]
"""What `dapo audit` found."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A finished run."""

    rows: Sequence[Row]
    evals: Sequence[Row]
    stages: Seconds
    report: Report
    run: RunConfig
    overlap: float
    """Share of the groups that rollouts finished while the learner was training."""
    wall_s: float
    """From the command to its end."""

    @property
    def training_s(self) -> float:
        """From the moment the learner first waited for a batch to its last step."""
        if not self.rows:
            return 0.0
        first = self.rows[0]
        return float(self.rows[-1]["time"] - first["time"] + first["wait_seconds"] + first["train_seconds"])

    @property
    def ends(self) -> list[Row]:
        """The first and the last evaluation."""
        return [*self.evals[:1], *self.evals[1:][-1:]]


def summarise(folder: Path, report: Report, *, wall_s: float) -> Summary:
    """Read a run folder."""
    rows = read_rows(folder / "metrics.jsonl")
    return Summary(
        rows=rows,
        evals=read_evals(folder),
        stages=read_stages(folder),
        report=report,
        run=config.section(config.read(folder / CONFIG), "run", RunConfig),
        overlap=overlap(read_streams(folder), rows),
        wall_s=wall_s,
    )


def overlap(streams: Sequence[Stream], rows: Sequence[Row]) -> float:
    """Share of sampled groups that were finished inside an interval in which the learner trained."""
    lengths = {int(row["step"]): float(row["train_seconds"]) for row in rows}
    trained = [(r["time"], r["step"]) for r in _events(streams, "learner", "trained") if r["step"] in lengths]
    finished = [r["time"] for r in _events(streams, "rollout", "sampled")]
    inside = sum(any(end - lengths[step] <= time <= end for end, step in trained) for time in finished)
    return inside / len(finished) if finished else 0.0


def table(summary: Summary) -> Table:
    """The table at the end of `dapo demo`."""
    grid = Table.grid(padding=(0, 3))
    for name, value in lines(summary):
        grid.add_row(f"[dim]{name}[/dim]", value)
    return grid


def lines(summary: Summary) -> list[tuple[str, str]]:
    """Name and value of each line."""
    report, rows = summary.report, summary.rows
    dropped = sum(report["filtered"].values())
    judged = report["trained"] + dropped
    samples = judged * summary.run.group_size
    tokens = sum(row["trained_tokens"] for row in rows)
    age = sum(row["age_mean"] * row["trained_tokens"] for row in rows) / tokens if tokens else 0.0
    return [
        ("held-out accuracy", " -> ".join(f"{row['accuracy']:.3f}" for row in summary.ends)),
        ("steps", f"{report['steps']}"),
        ("keep rate", f"{report['trained'] / judged if judged else 0.0:.2f} ({_reasons(report['filtered'])})"),
        ("age of tokens", f"mean {age:.2f}, greatest {report['greatest_age']} (limit {report['max_staleness']})"),
        ("samples", f"{samples}, {samples / max(summary.training_s, 1e-9):.1f} per second"),
        ("groups", _account(report)),
        *((f"stage {name}", _stage(summary.stages[name])) for name in STAGES if name in summary.stages),
        ("overlap", f"{summary.overlap:.0%} of all groups were finished while the learner trained"),
        ("wall time", f"{summary.wall_s:.0f} s, of which {summary.training_s:.0f} s training"),
        ("audit", "passed" if report["ok"] else f"FAILED: {'; '.join(report['violations'][:3])}"),
    ]  # fmt: skip


def _account(report: Report) -> str:
    """Issued = trained + filtered + dead + left, as numbers."""
    parts = {"trained": report["trained"], "filtered": sum(report["filtered"].values()), "dead": report["dead"],
             "left": report["left"], "lost": report["lost"]}  # fmt: skip
    shown = [f"{count} {name}" for name, count in parts.items() if count or name in ("trained", "filtered", "left")]
    return f"{report['issued']} issued = {' + '.join(shown)}"


def _reasons(filtered: Mapping[str, int]) -> str:
    return ", ".join(f"{count} dropped as {reason}" for reason, count in filtered.items()) or "none dropped"


def _stage(states: Mapping[str, float]) -> str:
    part = shares(states)
    return "  ".join(f"{state} {part[state]:4.0%}" for state in STATES)


def _events(streams: Sequence[Stream], role: str, event: str) -> list[dict[str, Any]]:
    return [r for stream in streams if stream.role == role for r in stream.records if r["event"] == event]
