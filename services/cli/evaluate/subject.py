"""What is evaluated: a published version of a run, or the starting model of a configuration, as a folder of weights.

RUN [--step N]   RUN/weights/vN, linked into the evaluation's own store so that the run may retire it meanwhile
CONFIG           the model it names, written as version 0

Weights come from the store alone, by `published` and `verified`; checkpoints are the learner's own.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common import config, weights
from common.config import RunConfig, Tree
from common.errors import UserError, WireError
from common.messages import Policy
from common.sources import write_whole
from common.weights import Manifest
from services.cli.folder import CONFIG


def own_folder(target: Path) -> Path:
    """A new folder for an evaluation: in the run's, where its weights can be linked rather than copied, if possible."""
    inside = (target / CONFIG).exists() and os.access(target, os.W_OK)
    return Path(tempfile.mkdtemp(prefix=".eval-" if inside else "dapo-eval-", dir=target if inside else None)).resolve()


def read_tree(target: Path, overrides: list[str]) -> Tree:
    """The configuration of a run folder, or a configuration file."""
    if not target.exists():
        raise UserError(f"{target} does not exist: give a run folder, for instance runs/demo, or a configuration file")
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


def verified(folder: Path, version: int) -> Manifest:
    """The manifest of a version whose bytes are what it says; raises `UserError` for one that is damaged or gone."""
    try:
        manifest = weights.read_manifest(folder)
        found = weights.describe(folder / weights.TENSORS, version)
    except (OSError, ValueError, WireError) as error:
        raise UserError(f"the weights of step {version} cannot be read ({error}): {_OTHER}") from error
    if manifest.version != version or found.digest != manifest.digest:
        raise UserError(f"the weights of step {version} are damaged, their digests do not hold: {_OTHER}")
    return manifest


@contextmanager
def whole(run_folder: Path, version: int) -> Iterator[Path]:
    """A safetensors file of the version, for the length of the block; raises `UserError` for one that is damaged."""
    store = run_folder / "weights"
    if _is_full(store, version):
        folder = weights.version_folder(store, version)
        verified(folder, version)
        yield folder / weights.TENSORS
        return
    with tempfile.TemporaryDirectory(prefix="dapo-weights-") as folder_name:
        path = Path(folder_name) / weights.TENSORS
        _bring_forward(store, version, path)
        yield path


def link(run_folder: Path, version: int, store: Path) -> Policy:
    """The version in the evaluation's own store: hard links of a snapshot where possible, else written anew."""
    if not _is_full(run_folder / "weights", version):
        manifest = weights.publish(store, version, lambda path: _bring_forward(run_folder / "weights", version, path))
        return as_policy(weights.version_folder(store, version), manifest)
    source, final = weights.version_folder(run_folder / "weights", version), weights.version_folder(store, version)
    try:
        shutil.copytree(source, final, copy_function=_link)
    except OSError as error:
        raise UserError(f"the weights of step {version} cannot be copied ({error}): {_OTHER}") from error
    return as_policy(final, verified(final, version))


def write_start(run: RunConfig, store: Path) -> Policy:
    """The starting model as version 0, in the engine's dtype. On the CPU: the GPU's memory is the engine's."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    without_bars()
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    try:
        model = AutoModelForCausalLM.from_pretrained(run.model, dtype=dtype)
    except (OSError, ValueError) as error:
        raise UserError(f"[run] model `{run.model}` cannot be loaded as a causal language model: {error}") from error
    tensors = {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}
    manifest = weights.publish(store, 0, lambda path: save_file(tensors, path))
    return as_policy(weights.version_folder(store, 0), manifest)


def without_bars() -> None:
    """Progress bars of transformers, which say nothing here: a model is loaded once or twice in a row."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def as_policy(folder: Path, manifest: Manifest) -> Policy:
    """What the register `policy` says of a version."""
    return Policy(version=manifest.version, digest=manifest.digest, path=str(folder.resolve()))


def _is_full(store: Path, version: int) -> bool:
    try:
        return weights.read_manifest(weights.version_folder(store, version)).base is None
    except (OSError, WireError) as error:
        raise UserError(f"the weights of step {version} cannot be read ({error}): {_OTHER}") from error


def _bring_forward(store: Path, version: int, path: Path) -> None:
    try:
        write_whole(store, version, path)
    except (OSError, WireError) as error:
        raise UserError(f"the weights of step {version} cannot be brought forward ({error}): {_OTHER}") from error


_OTHER = "choose another with --step"


def _link(source: str, destination: str) -> None:
    try:
        os.link(source, destination)
    except OSError:
        shutil.copy2(source, destination)
