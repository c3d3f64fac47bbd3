"""The processes of one learner: which rank this is, and what the ranks say to each other besides gradients.

    torchrun -> R processes -> World(rank, size): sums, maxima, and bytes from rank 0 to all

Everything here goes over gloo on the CPU, in a group of its own without a time limit: ranks wait for rank 0, which may
wait hours for a batch. Gradients and parameters travel by FSDP2 in the default group (NCCL on GPUs). Bytes are length
and content, never pickled.
"""

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

NO_LIMIT = timedelta(days=365)
PR_SET_PDEATHSIG = 1


class World:
    """One process of `size`; a world of one says nothing to anybody."""

    def __init__(self, rank: int = 0, size: int = 1, group: Any = None) -> None:
        self.rank = rank
        self.size = size
        self._group = group

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which talks to the broker and writes the run's files."""
        return self.rank == 0

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all ranks, in place, of a tensor on the CPU."""
        if self.size > 1:
            torch.distributed.all_reduce(value, group=self._group)
        return value

    def max(self, value: Tensor) -> Tensor:
        """The maximum over all ranks, in place, of a tensor on the CPU."""
        if self.size > 1:
            torch.distributed.all_reduce(value, op=torch.distributed.ReduceOp.MAX, group=self._group)
        return value

    def from_lead(self, data: bytes) -> bytes:
        """What rank 0 gave; waits for it without limit."""
        if self.size == 1:
            return data
        length = torch.tensor([len(data)])
        torch.distributed.broadcast(length, src=0, group=self._group)
        buffer = torch.zeros(int(length), dtype=torch.uint8)
        if self.leads and data:
            buffer.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        torch.distributed.broadcast(buffer, src=0, group=self._group)
        return buffer.numpy().tobytes()

    def to_lead(self, data: bytes) -> list[bytes]:
        """On rank 0 what every rank gave, in order; on the others nothing."""
        if self.size == 1:
            return [data]
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        torch.distributed.all_gather(lengths, torch.tensor([len(data)]), group=self._group)
        longest = max(1, *map(int, lengths))
        padded = torch.frombuffer(bytearray(data.ljust(longest, b"\0")), dtype=torch.uint8)
        gathered = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.size)] if self.leads else None
        torch.distributed.gather(padded, gathered, dst=0, group=self._group)
        return [part[: int(n)].numpy().tobytes() for part, n in zip(gathered or [], lengths, strict=False)]

    def meet(self) -> None:
        """Return when every rank is here."""
        self.sum(torch.zeros(1))


@contextmanager
def world_of_torchrun() -> Iterator[World]:
    """The world that torchrun's environment describes; of one process where there is none."""
    if "WORLD_SIZE" not in os.environ:
        yield World()
        return
    _die_with_parent()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    group = torch.distributed.new_group(backend="gloo", timeout=NO_LIMIT)
    try:
        yield World(torch.distributed.get_rank(), torch.distributed.get_world_size(), group)
    finally:
        torch.distributed.destroy_process_group()


def _die_with_parent() -> None:
    """A rank does not outlive torchrun's agent, however that ends (Linux)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
