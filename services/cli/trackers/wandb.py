"""Weights & Biases: online if the user is logged in, else offline in RUN/wandb (`wandb sync` sends it later).

Its own environment variables decide where: WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE. Only numbers and the configuration
are sent, no texts, no code.
"""

from collections.abc import Mapping
from pathlib import Path

import wandb

from services.cli.trackers.tracker import Tables

PROJECT = "dapo"
STEP = "step"
"""The axis of every number: unlike W&B's own step it may go back."""


class Wandb:
    """One W&B run, named as the run."""

    def __init__(self, folder: Path, tables: Tables) -> None:
        """Begin it."""
        settings = wandb.Settings(
            x_disable_stats=True, x_disable_machine_info=True, console="off", silent=True, save_code=False,
            disable_git=True,
        )  # fmt: skip
        environment = wandb.setup().settings
        away = environment.mode == "online" and not wandb.api.api_key
        self._run = wandb.init(
            project=environment.project or PROJECT, name=folder.resolve().name, dir=str(folder), config=dict(tables),
            mode="offline" if away else environment.mode, settings=settings,
        )  # fmt: skip
        self._run.define_metric(STEP)
        self._run.define_metric("*", step_metric=STEP)

    def log(self, step: int, values: Mapping[str, float], time: float) -> None:
        """As one row."""
        self._run.log({**values, STEP: step, "time": time})

    def rewind(self, step: int) -> None:
        """Nothing to do: a step that is logged again has its own later row."""

    def close(self) -> None:
        """Wait until all is on disk, or sent."""
        self._run.finish()
