"""Which published values changed since the last version, found where the weights are.

    parameter (float32) -> published dtype -> compare with the shadow -> positions and new values; shadow := new

The shadow is this rank's part of the last published version, 2 bytes a weight beside the parameter. On a GPU only the
changes leave it. On a CPU the work is cut into pieces that stay in its cache, and numpy does what it does faster than
torch: comparing integers, and finding the few that differ.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from common.delta import Positions, Units

CPU_PIECE, GPU_PIECE = 1 << 18, 1 << 27
"""Elements compared at a time."""
WORD = np.arange(8)
"""Flags that are looked at as one number."""


def bits(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The flat values in a 16-bit dtype, as integers: -0.0 differs from 0.0, a NaN from no other of its bits."""
    return values.to(dtype).view(torch.int16)


def changes(values: Tensor, shadow: Tensor, dtype: torch.dtype) -> tuple[Positions, Units]:
    """Positions in the flat `values` whose bits differ from the shadow, and the bits; updates the shadow."""
    found = list((_on_cpu if values.device.type == "cpu" else _on_gpu)(values, shadow, dtype))
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.uint16)
    return np.concatenate([where for where, _ in found]), np.concatenate([what for _, what in found])


def _on_gpu(values: Tensor, shadow: Tensor, dtype: torch.dtype) -> Iterator[tuple[Positions, Units]]:
    for start in range(0, len(values), GPU_PIECE):
        old = shadow[start : start + GPU_PIECE]
        new = bits(values[start : start + GPU_PIECE], dtype)
        where = (new != old).nonzero().flatten()
        if len(where):
            changed = new[where]
            old[where] = changed
            yield (where + start).cpu().numpy(), changed.cpu().numpy().view(np.uint16)


def _on_cpu(values: Tensor, shadow: Tensor, dtype: torch.dtype) -> Iterator[tuple[Positions, Units]]:
    room = torch.empty(min(CPU_PIECE, len(values)), dtype=dtype)
    converted, old = room.view(torch.int16).numpy().view(np.uint16), shadow.numpy().view(np.uint16)
    for start in range(0, len(values), CPU_PIECE):
        piece = values[start : start + CPU_PIECE]
        room[: len(piece)].copy_(piece)
        new = converted[: len(piece)]
        where = set_flags(new != old[start : start + len(piece)])
        if len(where):
            changed = new[where]
            where += start
            old[where] = changed
            yield where, changed


def set_flags(flags: NDArray[np.bool_]) -> Positions:
    """Where few of many flags are set: eight at a time, then each of those."""
    whole = len(flags) // len(WORD) * len(WORD)
    words = np.flatnonzero(flags[:whole].view(np.uint64))
    near = (len(WORD) * words[:, None] + WORD).ravel()
    return np.concatenate([near[flags[near]], whole + np.flatnonzero(flags[whole:])])
