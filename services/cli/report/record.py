"""Everything that a report reads of one run, from its folder. What is not there is empty, and the page says so.

config.toml, *.jsonl, stages.json, history/, logs/, broker.db  ->  Record
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import config
from common.config import RunConfig
from common.errors import UserError
from services.cli.audit.__main__ import audit
from services.cli.audit.reading import NothingToAudit, Stream, read_queues, read_streams
from services.cli.events import logged
from services.cli.folder import CONFIG, is_running
from services.cli.reader import read_stages
from services.cli.report.groups import Group, read_groups
from services.cli.shares import Seconds
from services.cli.snapshot import Row, read_evals, read_rows


@dataclass(frozen=True, kw_only=True)
class Record:
    """One run."""

    folder: Path
    run: RunConfig
    tables: Mapping[str, Mapping[str, Any]]
    """The whole configuration, by section."""
    rows: Sequence[Row]
    """Of metrics.jsonl."""
    evals: Sequence[Row] = ()
    sampling: Sequence[Row] = ()
    """Of sampling.jsonl."""
    excerpts: Sequence[Row] = ()
    """Of samples.jsonl."""
    stages: Seconds = field(default_factory=dict)
    groups: Sequence[Group] = ()
    streams: Sequence[Stream] = ()
    logs: Sequence[Row] = ()
    """Warnings and errors of all services, in order of time."""
    account: Mapping[str, Any] | None = None
    """What the audit found; None while the run goes on."""
    running: bool = False

    @property
    def name(self) -> str:
        """As the user calls it."""
        return self.folder.resolve().name

    @property
    def start(self) -> float:
        """Unix seconds of the first event of any process; 0 without one."""
        times = [stream.records[0]["time"] for stream in self.streams if stream.records]
        return min(times, default=self.rows[0]["time"] if self.rows else 0.0)

    @property
    def training_s(self) -> float:
        """From the moment the learner first waited for a batch to its last step."""
        if not self.rows:
            return 0.0
        first = self.rows[0]
        return float(self.rows[-1]["time"] - first["time"] + first["wait_seconds"] + first["train_seconds"])

    def column(self, name: str) -> list[tuple[float, float]]:
        """(step, value) of every step that has the number."""
        return [(float(row["step"]), float(row[name])) for row in self.rows if row.get(name) is not None]


def read_record(folder: Path) -> Record:
    """Read a run folder; raises `UserError` if it is none."""
    if not (folder / CONFIG).exists():
        raise UserError(f"{folder} is not a run folder ({CONFIG} is missing): give one, for instance runs/demo")
    rows = read_rows(folder / "metrics.jsonl")
    streams = _streams(folder)
    running = is_running(folder)
    return Record(
        folder=folder,
        run=config.section(config.read(folder / CONFIG), "run", RunConfig),
        tables=tomllib.loads((folder / CONFIG).read_text(encoding="utf-8")),
        rows=rows,
        evals=read_evals(folder),
        sampling=read_rows(folder / "sampling.jsonl"),
        excerpts=read_rows(folder / "samples.jsonl"),
        stages=read_stages(folder),
        groups=read_groups(streams, _committed(folder)),
        streams=streams,
        logs=[row for _, row in logged(folder)],
        account=None if running else _account(folder),
        running=running,
    )


def _streams(folder: Path) -> list[Stream]:
    try:
        return read_streams(folder)
    except NothingToAudit:
        return []


def _committed(folder: Path) -> int | None:
    """The version of the filter's register; None if the broker's file is gone."""
    try:
        return read_queues(folder).registers.get("filter", 0)
    except NothingToAudit:
        return None


def _account(folder: Path) -> dict[str, Any] | None:
    try:
        return audit(folder)
    except NothingToAudit:
        return None
