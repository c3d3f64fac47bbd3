"""Which published values changed since the last version, found where the weights are.

    parameter (float32) -> published dtype -> compare with the shadow -> positions and new values; shadow := new

The shadow is this rank's part of the last published version, 2 bytes a weight beside the parameter. On a CPU the work
is cut into pieces that stay in its cache; on a GPU only the changes leave it.
"""

import numpy as np
import torch
from torch import Tensor

from common.delta import Positions, Units

CPU_PIECE, GPU_PIECE = 1 << 18, 1 << 27
"""Elements compared at a time."""


def bits(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The flat values in a 16-bit dtype, as integers: -0.0 differs from 0.0, a NaN from no other of its bits."""
    return values.to(dtype).view(torch.int16)


def changes(values: Tensor, shadow: Tensor, dtype: torch.dtype) -> tuple[Positions, Units]:
    """Positions in the flat `values` whose bits differ from the shadow, and the bits; updates the shadow."""
    piece = CPU_PIECE if values.device.type == "cpu" else GPU_PIECE
    positions, found = [], []
    for start in range(0, len(values), piece):
        old = shadow[start : start + piece]
        new = bits(values[start : start + piece], dtype)
        where = (new != old).nonzero().flatten()
        if len(where):
            changed = new[where]
            old[where] = changed
            positions.append(where + start)
            found.append(changed)
    if not positions:
        return np.zeros(0, np.int64), np.zeros(0, np.uint16)
    return torch.cat(positions).cpu().numpy(), torch.cat(found).cpu().numpy().view(np.uint16)
