"""Checkpoints: complete or ignored.

    checkpoints/step-000100/  model.safetensors    float32 weights
                              optimizer.safetensors  moments of AdamW, state of the random number generator
                              state.json           step, optimizer steps, skips
                              DONE                 written last: digest of every other file

A checkpoint is written beside its place, fsynced and renamed. On load the newest one whose digests hold is taken and
those that were skipped are named. Nothing in it can be executed.
"""

import hashlib
import logging
import shutil
from pathlib import Path
from typing import NamedTuple

import msgspec
from safetensors.torch import load_file, save_file
from torch import Tensor

from common.folders import fsync, new_folder

log = logging.getLogger(__name__)

MODEL, OPTIMIZER, STATE, DONE = "model.safetensors", "optimizer.safetensors", "state.json", "DONE"
RNG = "rng"


class LearnerState(NamedTuple):
    """What a learner continues from. `step` batches have been trained."""

    step: int
    updates: int
    skips: int
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    rng: Tensor


class Counters(msgspec.Struct, frozen=True):
    """state.json."""

    step: int
    updates: int
    skips: int


def save(folder: Path, state: LearnerState, *, keep: int) -> Path:
    """Write a checkpoint; only then remove all but the newest `keep`. Returns its folder."""
    final = folder / f"step-{state.step:06d}"
    with new_folder(final) as partial:
        save_file(state.model, partial / MODEL)
        save_file(state.optimizer | {RNG: state.rng}, partial / OPTIMIZER)
        (partial / STATE).write_bytes(msgspec.json.encode(Counters(state.step, state.updates, state.skips)))
        for name in (MODEL, OPTIMIZER, STATE):
            fsync(partial / name)
        (partial / DONE).write_bytes(
            msgspec.json.encode({name: digest(partial / name) for name in (MODEL, OPTIMIZER, STATE)})
        )
        fsync(partial / DONE)
    for old in _all(folder)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def load_newest(folder: Path) -> LearnerState | None:
    """The newest complete checkpoint, or None; logs each that is skipped and why."""
    for path in reversed(_all(folder)):
        fault = damage(path)
        if fault is None:
            return _load(path)
        log.warning("checkpoint skipped", extra={"checkpoint": str(path), "cause": fault})
    return None


def damage(path: Path) -> str | None:
    """Why a checkpoint must not be used, or None."""
    try:
        digests = msgspec.json.decode((path / DONE).read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return "it was not completed"
    except msgspec.MsgspecError as error:
        return f"DONE is damaged: {error}"
    for name in (MODEL, OPTIMIZER, STATE):
        if not (path / name).exists():
            return f"{name} is missing"
        if digests.get(name) != digest(path / name):
            return f"{name} is damaged"
    return None


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _load(path: Path) -> LearnerState:
    counters = msgspec.json.decode((path / STATE).read_bytes(), type=Counters)
    optimizer = load_file(path / OPTIMIZER)
    rng = optimizer.pop(RNG)
    return LearnerState(counters.step, counters.updates, counters.skips, load_file(path / MODEL), optimizer, rng)


def _all(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"))
