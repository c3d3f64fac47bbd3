"""What is evaluated: a published version of a run, or the starting model of a configuration, as a folder of weights.

RUN [--step N]   RUN/weights/vN, linked into the evaluation's own store so that the run may retire it meanwhile
CONFIG           the model it names, written as version 0
"""

import os
import shutil
from pathlib import Path

from common import config, weights
from common.config import RunConfig, Tree
from common.errors import UserError
from common.messages import Policy
from services.cli.folder import CONFIG


def read_tree(target: Path, overrides: list[str]) -> Tree:
    """The configuration of a run folder, or a configuration file."""
    if target.is_dir() and not (target / CONFIG).exists():
        raise UserError(f"{target} is not a run folder: it has no {CONFIG}; give a run folder or a configuration file")
    return config.read(target / CONFIG if target.is_dir() else target, overrides)


def published(run_folder: Path, step: int | None) -> int:
    """The version to take: the newest, or the one asked for. Raises `UserError` if it is not there."""
    store = run_folder / "weights"
    versions = sorted(int(path.name[1:]) for path in store.glob("v[0-9]*"))
    if not versions:
        raise UserError(f"run {run_folder} has published no weights yet: run it first with `dapo run`")
    if step is not None and step not in versions:
        there = ", ".join(map(str, versions))
        raise UserError(
            f"run {run_folder} has no weights of step {step}, only of {there}: choose one of them, or keep more with "
            "[learner] keep_versions"
        )
    return versions[-1] if step is None else step


def link(run_folder: Path, version: int, store: Path) -> Policy:
    """The version in the evaluation's own store: hard links where the file system has them, else copies."""
    source, final = weights.version_folder(run_folder / "weights", version), weights.version_folder(store, version)
    shutil.copytree(source, final, copy_function=_link)
    return as_policy(final)


def write_start(run: RunConfig, store: Path) -> Policy:
    """The starting model as version 0."""
    from services.learner import publishing
    from services.learner.config import LearnerConfig
    from services.learner.model import Policy as Model
    from services.learner.model import publish_dtype

    model = Model.load(run.model, temperature=run.temperature, config=LearnerConfig())
    dtype = publish_dtype(model.device)
    tensors = publishing.published(model, dtype)
    weights.publish(store, 0, lambda path: publishing.write(path, tensors, dtype))
    return as_policy(weights.version_folder(store, 0))


def as_policy(folder: Path) -> Policy:
    """What the register `policy` says of a version."""
    manifest = weights.read_manifest(folder)
    return Policy(version=manifest.version, digest=manifest.digest, path=str(folder.resolve()))


def _link(source: str, destination: str) -> None:
    try:
        os.link(source, destination)
    except OSError:
        shutil.copy2(source, destination)
