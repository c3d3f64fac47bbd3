"""What a run looks like now, from its files and its services' metrics. Every source may be missing."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.cli.scrape import Numbers
from services.cli.shares import Seconds

Row = dict[str, Any]
TAIL_BYTES = 256 << 10
QUEUES = ("prompts", "groups", "scored", "batches")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One moment of a run."""

    steps: int
    rows: Sequence[Row]
    """The newest lines of metrics.jsonl, oldest first."""
    evals: Sequence[Row]
    """Of evals.jsonl, those that measured something."""
    numbers: Numbers
    seconds: Seconds
    """Of every stage, lately."""
    tokens_per_s: dict[str, float]
    """Response tokens sampled and trained per second, lately."""
    silent: Sequence[str] = ()
    """Processes that should show metrics, and did not."""

    @property
    def step(self) -> int:
        """Batches trained."""
        return int(self.rows[-1]["step"]) + 1 if self.rows else 0

    def newest(self, name: str) -> float | None:
        """A number of the newest step."""
        return self.rows[-1].get(name) if self.rows else None

    @property
    def keep_rate(self) -> float | None:
        """As the filter says now, else as of the newest step."""
        now = self.numbers.first("dapo_filter_keep_rate_ratio")
        return self.newest("filter_keep_rate") if now is None else now

    def column(self, name: str) -> list[float]:
        """A number of the newest steps, oldest first."""
        return [float(row[name]) for row in self.rows if row.get(name) is not None]

    def queued(self, queue: str) -> int:
        """Unsettled items, dead letters not counted."""
        return int(sum(self.numbers.total("dapo_queue_items", queue=queue, state=s) for s in ("ready", "leased")))


def read_rows(path: Path, *, tail: bool = False) -> list[Row]:
    """The lines of a JSON-lines file, or those in its last part; a torn line is left out."""
    try:
        with path.open("rb") as file:
            if tail:
                file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return []
    rows = [_parsed(line) for line in lines]
    return [row for row in rows if row is not None]


def read_evals(folder: Path) -> list[Row]:
    """The evaluations of a run, without those in which no answer could be judged: they say nothing."""
    return [row for row in read_rows(folder / "evals.jsonl") if row["accuracy"] is not None]


def _parsed(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None
