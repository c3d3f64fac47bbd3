"""Whether what a run reads is there: the model and the data, asked before anything is started.

What the shipped configurations name under cache/ is made here if it is missing.
"""

import re
from pathlib import Path

from rich.console import Console

from common.config import RunConfig
from common.errors import UserError
from services.cli import progress
from services.filter.config import FilterConfig
from services.learner.config import LearnerConfig
from services.rollout.config import RolloutConfig

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def prepare(run: RunConfig, data: FilterConfig, console: Console) -> None:
    """Make the model and the data if the run names those of this repository and they are not there."""
    from services.cli.demo import prepare as demo

    if demo.is_missing(run.model, [name for name in (*data.sets, data.eval_data) if name]):
        with progress.shown(console) as report:
            demo.prepare(run.model, report)


def check_model(run: RunConfig) -> None:
    """Raise `UserError` unless the model is a model folder or can be a name on the Hugging Face hub."""
    path = Path(run.model).expanduser()
    if path.is_dir():
        if not (path / "config.json").exists():
            raise UserError(f"model folder {run.model} has no config.json: give a Hugging Face folder in [run] model")
    elif not looks_like_hub_name(run.model):
        raise UserError(f"model folder {run.model} does not exist: give a Hugging Face folder or name in [run] model")


def looks_like_hub_name(model: str) -> bool:
    """`OWNER/NAME` or `NAME`, and not the path of something beside an existing folder."""
    parent = Path(model).parent
    is_local = parent != Path() and parent.exists()
    return bool(HUB_NAME.fullmatch(model)) and not is_local


def check_compression(rollout: RolloutConfig, learner: LearnerConfig) -> None:
    """Raise `UserError` unless who compresses says how far engine and learner may differ, which they then do."""
    if rollout.compress.is_on and not learner.contract_limit:
        raise UserError(
            "[rollout] compress makes engine and learner differ, which the start-up contract would refuse: set "
            "[learner] contract_limit to the mean |difference| of log-probabilities that you accept, for instance 0.5"
        )


def check_data(config: FilterConfig, run: RunConfig) -> None:
    """Read the data as the filter will; raises `UserError` with file, row and reason."""
    from services.filter.dataset import training_rows

    training_rows(config, run)
