"""metrics.jsonl and evals.jsonl -> trackers, as the lines come; every step once, and again after the learner went back.

A learner that resumes rewrites metrics.jsonl without the steps that it will train again. So whatever was read is
compared with what is there now: at the first line that differs, the trackers are rewound.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from services.cli.snapshot import Row, read_evals, read_rows
from services.cli.trackers.tracker import Tracker

LEFT_OUT = ("step", "version", "time")


class Follower:
    """Of one run folder."""

    def __init__(self, folder: Path, trackers: Sequence[Tracker]) -> None:
        self._folder = folder
        self._trackers = trackers
        self._told: dict[int, float] = {}
        """Step -> the time of the line that was told."""
        self._evaluated: set[int] = set()
        self._size = -1

    def tell_news(self) -> None:
        """Tell the trackers every line that they do not know."""
        path = self._folder / "metrics.jsonl"
        size = path.stat().st_size if path.exists() else 0
        if size != self._size:
            self._size = size
            self._tell_steps(read_rows(path))
        for row in read_evals(self._folder):
            if row["version"] not in self._evaluated:
                self._evaluated.add(row["version"])
                self._log(row["version"], numbers("eval", row), row)

    def _tell_steps(self, rows: Sequence[Row]) -> None:
        there = {int(row["step"]): row["time"] for row in rows}
        stale = [step for step, time in self._told.items() if there.get(step) != time]
        if stale:
            for tracker in self._trackers:
                tracker.rewind(min(stale))
            self._told = {step: time for step, time in self._told.items() if step < min(stale)}
        for row in rows:
            if row["step"] not in self._told:
                self._told[int(row["step"])] = row["time"]
                self._log(int(row["step"]), numbers("train", row), row)

    def _log(self, step: int, values: Mapping[str, float], row: Row) -> None:
        for tracker in self._trackers:
            tracker.log(step, values, float(row.get("time", 0.0)))


def numbers(group: str, row: Row) -> dict[str, float]:
    """`group/name` of every finite number of a line."""
    return {
        f"{group}/{name}": float(value)
        for name, value in row.items()
        if name not in LEFT_OUT and isinstance(value, int | float) and math.isfinite(value)
    }
