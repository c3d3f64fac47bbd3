"""Batches kept for replay: what the learner trained, byte for byte.

    RUN/batches/000012.batch   the frames of batch 12, as a MessagePack list

`dapo replay RUN` trains them again in one go and compares the weights, version by version.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from common.errors import DapoError

FOLDER = "batches"


def record(folder: Path, step: int, frames: Sequence[bytes]) -> None:
    """Keep a batch; raises `DapoError` if it was delivered before with other content."""
    folder.mkdir(parents=True, exist_ok=True)
    path, data = _path(folder, step), msgspec.msgpack.encode(list(frames))
    if path.exists():
        if path.read_bytes() != data:
            raise DapoError(f"batch {step} was delivered twice with different content: compare {path}")
        return
    partial = path.with_suffix(".partial")
    partial.write_bytes(data)
    os.replace(partial, path)


def steps(folder: Path) -> list[int]:
    """The batches that are kept."""
    return sorted(int(path.stem) for path in folder.glob("*.batch"))


def read(folder: Path, step: int) -> list[bytes]:
    """The frames of a batch."""
    return msgspec.msgpack.decode(_path(folder, step).read_bytes(), type=list[bytes])


def _path(folder: Path, step: int) -> Path:
    return folder / f"{step:06d}.batch"
