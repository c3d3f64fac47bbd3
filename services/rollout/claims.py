"""GPUs that replicas on one machine share by themselves: each takes as many as it needs, by locks that die with it.

    take(folder, gpus, number) -> the GPUs that are this process's until it ends, or None: all are taken

Every replica sees the same GPUs and the same folder, for instance a volume of all its containers. A GPU is taken by
holding the lock of its file; the kernel frees it with the last process that has the file open, however that ended. One
replica takes at a time, and takes all it needs or nothing, so two that need several cannot wait for each other.

Not covered: replicas whose folders are on different machines, and network file systems without flock.
"""

import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError
from common.gpus import Gpu

TURN = "turn"
"""File whose lock is held while GPUs are taken."""


@dataclass(frozen=True)
class Claim:
    """GPUs that are this process's; `release` is for tests, since a process keeps them to its end."""

    gpus: Sequence[Gpu]
    locks: Sequence[int]

    @property
    def visible_devices(self) -> str:
        """What CUDA_VISIBLE_DEVICES must be."""
        return ",".join(str(gpu.index) for gpu in self.gpus)

    def release(self) -> None:
        """Give them back."""
        for lock in self.locks:
            os.close(lock)


def take(folder: Path, gpus: Sequence[Gpu], number: int) -> Claim | None:
    """Take `number` of the GPUs, all or none; None if too few are free. Raises `UserError` if there can never be."""
    if number > len(gpus):
        raise UserError(
            f"a rollout needs {number} GPUs and sees {len(gpus)}: lower [rollout] tensor_parallel_size, "
            "or give the rollouts more GPUs"
        )
    folder.mkdir(parents=True, exist_ok=True)
    turn = os.open(folder / TURN, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        return _take(folder, gpus, number)
    finally:
        os.close(turn)


def _take(folder: Path, gpus: Sequence[Gpu], number: int) -> Claim | None:
    taken = Claim([], [])
    for gpu in gpus:
        lock = _lock(folder / gpu.uuid)
        if lock is not None:
            taken = Claim([*taken.gpus, gpu], [*taken.locks, lock])
        if len(taken.gpus) == number:
            return taken
    taken.release()
    return None


def _lock(path: Path) -> int | None:
    """The lock of a file; None if another process has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle
