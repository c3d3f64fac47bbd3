"""The engine's own, cheaper copy of the weights: pruned, or rounded to a grid of few values (algorithm.md, section 7).

    checked tensor -> matrices of the layers: smallest magnitudes to zero, or each row rounded to its grid -> engine

The learner's model is never touched, and mu is what the compressed policy really assigned, so the importance weights
correct the difference; the learner's `mismatch_kl` and `ess` show how much there is to correct. Embeddings, head,
norms and biases stay as they are.

Not covered: kernels. The values are those of a sparse or 8-bit model, the engine computes with them in its own dtype,
so that what compression does to training can be measured anywhere; memory and speed are unchanged.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Grid = Literal["", "int8", "fp8"]
KEPT = ("embed", "lm_head", "norm", "router", "gate.weight")
"""Parts of names that are not compressed: few values, or a choice that must not flip."""


@dataclass(frozen=True, kw_only=True)
class Compression:
    """What is done to a matrix."""

    prune: float = 0.0
    """Share of the values that become zero, the smallest first, in each matrix."""
    quantize: Grid = ""


def compressed(name: str, tensor: Tensor, how: Compression) -> Tensor:
    """The tensor as the engine gets it; itself if there is nothing to do."""
    if tensor.dim() != 2 or any(part in name for part in KEPT):
        return tensor
    if how.prune:
        tensor = pruned(tensor, how.prune)
    return on_grid(tensor, how.quantize) if how.quantize else tensor


def pruned(matrix: Tensor, share: float) -> Tensor:
    """Without the `share` of its values that are smallest in magnitude."""
    count = int(share * matrix.numel())
    if not count:
        return matrix
    size = matrix.abs().float().flatten()
    keep = torch.ones_like(size, dtype=torch.bool)
    keep[size.argsort(stable=True)[:count]] = False
    return matrix * keep.view_as(matrix)


def on_grid(matrix: Tensor, grid: Grid) -> Tensor:
    """Each row rounded to 255 evenly spaced values (int8), or to e4m3 floats (fp8), scaled to its largest."""
    limit = 127.0 if grid == "int8" else torch.finfo(torch.float8_e4m3fn).max
    rows = matrix.float()
    scale = rows.abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / limit
    steps = rows / scale
    rounded = steps.round() if grid == "int8" else steps.to(torch.float8_e4m3fn).float()
    return (rounded * scale).to(matrix.dtype)
