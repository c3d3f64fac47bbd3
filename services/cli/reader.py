"""Reads snapshots of a run from its files and the /metrics of its services, and keeps the totals of its stages."""

import json
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from services.cli.ports import Endpoint
from services.cli.scrape import Number, scrape
from services.cli.shares import SECONDS, Growth, Seconds, add
from services.cli.snapshot import Snapshot, read_evals, read_rows

STAGES_FILE = "stages.json"
"""The seconds every stage has spent busy, starved and blocked since the run was started or resumed."""
TOKENS = {"sampled": "dapo_rollout_tokens_total", "trained": "dapo_learner_tokens_total"}
WINDOW = 10


@dataclass(frozen=True, kw_only=True)
class Interval:
    """What happened between two reads."""

    seconds: float
    tokens: dict[str, float]
    stages: list[Number]


def read_stages(folder: Path) -> Seconds:
    """The totals that `dapo run` has written; empty if it has not."""
    path = folder / STAGES_FILE
    seconds: Seconds = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return seconds


class Reader:
    """Of one run."""

    def __init__(self, run_folder: Path, steps: int, endpoints: Sequence[Endpoint], *, joins: bool = False) -> None:
        """`joins`: the run is another's and goes on already, so the rates begin now and nothing is written."""
        self._folder = run_folder
        self._joins = joins
        self._steps = steps
        self._endpoints = endpoints
        self._growth = Growth()
        self._window: deque[Interval] = deque(maxlen=WINDOW)
        self._total: Seconds = {}
        self._read_at = time.monotonic()

    def read(self) -> Snapshot:
        """The run now; rates and shares are of the last `WINDOW` reads."""
        numbers = scrape(self._endpoints)
        before, self._read_at = self._read_at, time.monotonic()
        tokens = {
            name: sum(number.value for number in self._growth.since_last(numbers, metric))
            for name, metric in TOKENS.items()
        }
        stages = self._growth.since_last(numbers, SECONDS)
        if self._joins and not self._window:
            before, tokens = self._read_at, dict.fromkeys(TOKENS, 0.0)
        self._window.append(Interval(seconds=self._read_at - before, tokens=tokens, stages=stages))
        if not self._joins:
            self._keep_total(stages)
        return Snapshot(
            steps=self._steps,
            rows=read_rows(self._folder / "metrics.jsonl", tail=True),
            evals=read_evals(self._folder),
            numbers=numbers,
            seconds=self._stage_seconds(),
            tokens_per_s=self._rates(),
            silent=tuple(sorted({e.name for e in self._endpoints} - {number.process for number in numbers.all})),
        )

    def _keep_total(self, stages: list[Number]) -> None:
        add(self._total, stages)
        (self._folder / STAGES_FILE).write_text(json.dumps(self._total), encoding="utf-8")

    def _stage_seconds(self) -> Seconds:
        """Of the window; of the whole run if it is over."""
        seconds: Seconds = {}
        for interval in self._window:
            add(seconds, interval.stages)
        return seconds or (read_stages(self._folder) if self._joins else {})

    def _rates(self) -> dict[str, float]:
        whole = sum(interval.seconds for interval in self._window)
        return {name: sum(i.tokens[name] for i in self._window) / whole if whole else 0.0 for name in TOKENS}
