"""Evaluation on held-out rows, outside the training: when one is due, its tally, and evals.jsonl.

    version 0, every `every` versions, the last version -> n answers a row -> avg@n, pass@k -> RUN/evals.jsonl

A held-out prompt is outside admission and its group is never trained. Its answers may come from versions newer than
the one it was issued for; the tally says which.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.config import RunConfig
from common.messages import Sampling, Scored, Verdict
from services.filter.ages import versions_of
from services.filter.config import FilterConfig
from services.filter.passes import ks, pass_at
from services.filter.prompts import sampling_seed
from services.filter.schema import Row
from services.filter.state import EvalTally

PREFIX = "eval/"


class Evaluation:
    """Owns the tallies of the state."""

    def __init__(
        self, tallies: dict[int, EvalTally], *, rows: Sequence[Row], every: int, last: int, samples: int = 1
    ) -> None:
        self._tallies = tallies
        self._rows = rows
        self._samples = samples
        self._every = every
        self._last = last

    def is_due(self, version: int) -> bool:
        """Whether the newest version is to be evaluated now."""
        if not self._rows or version in self._tallies:
            return False
        if not self._tallies or version == self._last:
            return True
        return self._every > 0 and version // self._every > max(self._tallies) // self._every

    def start(self, version: int) -> list[tuple[str, Row]]:
        """Open the tally of a version; returns the rows to ask, by id."""
        self._tallies[version] = EvalTally(rows=len(self._rows), samples=self._samples)
        return [(f"{PREFIX}{version}/{place:06d}", row) for place, row in enumerate(self._rows)]

    def tally(self, scored: Scored) -> None:
        """Count an answer to a held-out row."""
        tally = self._tally_of(scored.group.prompt.id)
        if tally is None:
            return
        add(tally, scored.verdicts)
        versions = versions_of(scored)
        tally.min_version = min(
            versions.oldest, tally.min_version if tally.min_version is not None else versions.oldest
        )
        tally.max_version = max(versions.newest, tally.max_version or 0)

    def give_up(self, name: str) -> bool:
        """A held-out prompt will not come back; returns whether that is news."""
        tally = self._tally_of(name)
        if tally is None or name in tally.dead:
            return False
        tally.dead.append(name)
        return True

    def is_complete(self, version: int) -> bool:
        """Whether the last version is published and everything asked has been answered."""
        final = not self._rows or self._last in self._tallies
        return version >= self._last and final and all(tally.finished for tally in self._tallies.values())

    def _tally_of(self, name: str) -> EvalTally | None:
        version = name.removeprefix(PREFIX).partition("/")[0]
        return self._tallies.get(int(version)) if name.startswith(PREFIX) and version.isdigit() else None


def sampling(run: RunConfig, config: FilterConfig, place: int) -> Sampling:
    """How a held-out row is answered: under every version with the same random numbers, which no other row has."""
    return Sampling(
        n=config.eval_samples,
        temperature=config.greedy_or(run.temperature),
        max_tokens=run.max_response_tokens,
        seed=sampling_seed(run.seed, f"{PREFIX}{place:06d}"),
    )


def measures(tally: EvalTally) -> dict[str, float | None]:
    """avg@n and pass@k by name."""
    return {f"avg@{tally.samples}": tally.accuracy, **{f"pass@{k}": rate for k, rate in tally.pass_rates.items()}}


def add(tally: EvalTally, verdicts: Sequence[Verdict]) -> None:
    """Count the answers to one row."""
    judged = [verdict for verdict in verdicts if verdict.verdict != "error"]
    right = sum(verdict.verdict == "correct" for verdict in judged)
    tally.answered += 1
    tally.judged += len(judged)
    tally.correct += sum(verdict.score for verdict in judged)
    tally.errors += len(verdicts) - len(judged)
    for k in ks(tally.samples):
        if k <= len(judged):
            tally.passes[k] = tally.passes.get(k, 0.0) + pass_at(k, answers=len(judged), right=right)
            tally.ranked[k] = tally.ranked.get(k, 0) + 1


def write_evals(path: Path, tallies: Mapping[int, EvalTally]) -> None:
    """Add the finished evaluations that evals.jsonl lacks, in order of version; written whole or not at all."""
    lines = _written(path)
    fresh = {version: tally for version, tally in tallies.items() if tally.finished and version not in lines}
    if not fresh:
        return
    lines |= {version: _line(version, tally) for version, tally in fresh.items()}
    draft = path.with_suffix(".tmp")
    draft.write_text("".join(f"{json.dumps(lines[version])}\n" for version in sorted(lines)), encoding="utf-8")
    os.replace(draft, path)


def _written(path: Path) -> dict[int, dict[str, Any]]:
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["version"]: row for row in rows}


def _line(version: int, tally: EvalTally) -> dict[str, Any]:
    return {
        "version": version, "accuracy": tally.accuracy, "correct": tally.correct, "rows": tally.rows,
        "samples": tally.samples, "judged": tally.judged, "errors": tally.errors, **measures(tally),
        "dead": len(tally.dead), "min_version": tally.min_version, "max_version": tally.max_version,
        "time": time.time(),
    }  # fmt: skip
