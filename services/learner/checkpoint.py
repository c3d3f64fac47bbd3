"""Checkpoints: complete or ignored.

    checkpoints/step-000100/  shard-0000R-*.safetensors   each rank's part of the weights and of AdamW's moments
                              state.json                  step, optimizer steps, skips, state of the random numbers
                              DONE                        written last: digest of every other file

torch.distributed.checkpoint writes and reads the shards, in safetensors, so another number of ranks can continue. A
checkpoint is written beside its place, fsynced and renamed. On load the newest one whose digests hold is taken and
those that were skipped are named. Nothing in it can be executed.
"""

import hashlib
import logging
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter

from common.disk import is_full
from common.folders import fsync, new_folder
from services.learner.ranks import World

log = logging.getLogger(__name__)

STATE, DONE = "state.json", "DONE"


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """state.json: what a learner continues from besides tensors. `step` batches have been trained."""

    step: int
    updates: int
    skips: int
    rng: bytes
    """State of torch's generator on the CPU."""


def save(
    folder: Path, tensors: dict[str, Tensor], counters: Counters, world: World, *, keep: int, keep_every: int = 0
) -> Path:
    """Write a checkpoint; only then remove older ones. Every rank must call it. Returns its folder.

    The newest `keep` stay, and those of every `keep_every` steps for good. Raises `OSError` if the disk is full, and
    then leaves all that was there.
    """
    final = folder / f"step-{counters.step:06d}"
    if not world.leads:
        _write_shards(Path(world.from_lead(b"").decode()), tensors, world)
        world.meet()
        return final
    with new_folder(final) as partial:
        world.from_lead(str(partial).encode())
        _write_shards(partial, tensors, world)
        (partial / STATE).write_bytes(msgspec.json.encode(counters))
        names = sorted(path.name for path in partial.iterdir())
        for name in names:
            fsync(partial / name)
        (partial / DONE).write_bytes(msgspec.json.encode({name: digest(partial / name) for name in names}))
        fsync(partial / DONE)
    for old in dispensable(_all(folder), keep=keep, keep_every=keep_every):
        shutil.rmtree(old, ignore_errors=True)
    world.meet()
    return final


def dispensable(paths: Sequence[Path], *, keep: int, keep_every: int) -> list[Path]:
    """Those, of checkpoints in order, that are neither among the newest `keep` nor milestones."""
    return [path for path in paths[:-keep] if not keep_every or int(path.name.rpartition("-")[2]) % keep_every]


def newest(folder: Path) -> Path | None:
    """The newest complete checkpoint, or None; logs each that is skipped and why."""
    for path in reversed(_all(folder)):
        fault = damage(path)
        if fault is None:
            return path
        log.warning("checkpoint skipped", extra={"checkpoint": str(path), "cause": fault})
    return None


def read_counters(path: Path) -> Counters:
    """state.json of a complete checkpoint."""
    return msgspec.json.decode((path / STATE).read_bytes(), type=Counters)


def load(path: Path, tensors: dict[str, Tensor], world: World) -> None:
    """Read a complete checkpoint into the given tensors, in place; every rank must call it with its shards."""
    with _quiet_alone():
        dcp.load(dict(tensors), storage_reader=HuggingFaceStorageReader(str(path)), no_dist=world.size == 1)


def damage(path: Path) -> str | None:
    """Why a checkpoint must not be used, or None."""
    try:
        digests = msgspec.json.decode((path / DONE).read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return "it was not completed"
    except msgspec.MsgspecError as error:
        return f"DONE is damaged: {error}"
    for name, expected in digests.items():
        if not (path / name).exists():
            return f"{name} is missing"
        if expected != digest(path / name):
            return f"{name} is damaged"
    return None if STATE in digests else f"DONE does not name {STATE}"


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_shards(path: Path, tensors: dict[str, Tensor], world: World) -> None:
    writer = HuggingFaceStorageWriter(str(path), save_distributed=True)
    try:
        with _quiet_alone():
            dcp.save(tensors, storage_writer=writer, no_dist=world.size == 1)
    except CheckpointException as error:  # what went wrong on a rank is inside
        for inner, _ in error.failures.values():
            if is_full(inner):
                raise inner from error
        raise


@contextmanager
def _quiet_alone() -> Iterator[None]:
    """torch warns that a learner of one process has no process group, which is what was asked for."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is (disabled|unavailable)")
        yield


def _all(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"))
