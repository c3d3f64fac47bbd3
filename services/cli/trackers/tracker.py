"""What a tracker is, and the two that there are.

open_tracker("tensorboard", run folder, configuration)  ->  Tracker
"""

import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from common.errors import UserError

KINDS = {"tensorboard": "tensorboard", "wandb": "wandb"}
"""Name in [run] trackers -> the package that it needs."""
Tables = Mapping[str, Mapping[str, Any]]


class Tracker(Protocol):
    """Takes numbers, and keeps or sends them somewhere."""

    def log(self, step: int, values: Mapping[str, float], time: float) -> None:
        """The numbers of a step, or of a version that was evaluated; `time` in Unix seconds."""

    def rewind(self, step: int) -> None:
        """The learner has gone back: what was logged from this step on will be logged again."""

    def close(self) -> None:
        """Nothing more will come."""


def check(kinds: Iterable[str]) -> None:
    """Raise `UserError` for a tracker that is unknown or not installed."""
    for kind in kinds:
        if kind not in KINDS:
            raise UserError(f"tracker `{kind}` is unknown: known are {', '.join(KINDS)}")
        if importlib.util.find_spec(KINDS[kind]) is None:
            raise UserError(f"tracker `{kind}` needs the package {KINDS[kind]}: pip install 'dapo[track]'")


def open_tracker(kind: str, folder: Path, tables: Tables) -> Tracker:
    """One of the two; its package is imported now."""
    check([kind])
    if kind == "tensorboard":
        from services.cli.trackers.tensorboard import TensorBoard

        return TensorBoard(folder, tables)
    from services.cli.trackers.wandb import Wandb

    return Wandb(folder, tables)
