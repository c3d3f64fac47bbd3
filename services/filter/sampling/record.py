"""sampling.jsonl: category x step, one JSON object a line, each step once.

    {"step", "stage", "temperature", "categories": {name: {"probability", "draws", "judged", "kept", "pass_rate", ..}}}

A line is part of the state until the transaction that brought it is committed and the line is written; so neither a
filter that dies nor one that has been superseded can leave a wrong or a missing line. The averages (`mean_*`) are those
of the monitor, `pass_rate` is of the answers judged in this step alone; null is "nothing known".
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from services.filter.sampling.scores import LEAST_SHARE
from services.filter.sampling.stages import Schedule
from services.filter.sampling.state import SamplerState

FILE = "sampling.jsonl"


def line(step: int, schedule: Schedule, state: SamplerState) -> bytes:
    """The line of a step that is trained."""
    row = {
        "step": step, "stage": schedule.stage(step), "temperature": schedule.temperature(step),
        "least_share": LEAST_SHARE / len(state.table),
        "categories": {name: _category(name, state) for name in state.table},
    }  # fmt: skip
    return json.dumps(row).encode()


def _category(name: str, state: SamplerState) -> dict[str, Any]:
    tally, monitored = state.tallies[name], state.monitored[name]
    return {
        "probability": state.table[name],
        "draws": tally.draws, "judged": tally.judged, "kept": tally.kept,
        "answers": tally.attempts, "correct": tally.successes,
        "pass_rate": tally.successes / tally.attempts if tally.attempts else None,
        "mean_pass_rate": monitored.pass_rate.value, "mean_reward_variance": monitored.reward_variance.value,
        "mean_gradient_variance": monitored.gradient_variance.value, "mean_age": monitored.age.value,
        "mean_length": monitored.length.value,
    }  # fmt: skip


class Record:
    """The file; one writer at a time, since only a committed transaction writes."""

    def __init__(self, path: Path) -> None:
        """Find out what is there; a torn last line is cut off."""
        self._path = path
        self._last = -1
        if path.exists():
            whole, _, torn = path.read_bytes().rpartition(b"\n")
            if torn:
                os.truncate(path, len(whole) + 1 if whole else 0)
            if whole:
                self._last = _step(whole.splitlines()[-1])

    def append(self, lines: Sequence[bytes]) -> None:
        """Add the lines that are not there yet."""
        fresh = [one for one in lines if _step(one) > self._last]
        if fresh:
            with self._path.open("ab") as file:
                file.write(b"".join(one + b"\n" for one in fresh))
            self._last = _step(fresh[-1])


def _step(text: bytes) -> int:
    return int(json.loads(text)["step"])
