"""A policy's weights under their Hugging Face names: whole, merged, in the engine's dtype, one tensor at a time.

    parameter (sharded) -> whole -> + adapter -> dtype, CPU -> appended to a safetensors file

No rank ever holds a second full copy of the model: rank 0 writes a tensor before the next is gathered. The safetensors
header comes first, and needs shapes only.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from services.learner import lora
from services.learner.model import Policy
from services.learner.sharding import whole

DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16"}


class Published(NamedTuple):
    """One tensor to be published."""

    name: str
    shape: list[int]
    make: Callable[[], Tensor]
    """The contiguous CPU tensor. With several ranks every rank must call it, in order of the list."""


def published(policy: Policy, dtype: torch.dtype) -> list[Published]:
    """All tensors of the policy; adapters are merged into their layers."""

    def maker(name: str, parameter: Tensor) -> Callable[[], Tensor]:
        def make() -> Tensor:
            full = whole(parameter.detach())
            change = lora.delta(policy.model, name)
            merged = full if change is None else full + change
            return merged.to(device="cpu", dtype=dtype).contiguous()

        return make

    return [
        Published(lora.plain_name(name), list(parameter.shape), maker(name, parameter))
        for name, parameter in policy.named_parameters().items()
        if not lora.is_adapter(name)
    ]


def write(path: Path, tensors: list[Published], dtype: torch.dtype) -> None:
    """Write a safetensors file, tensor by tensor."""
    header, end = {}, 0
    for name, shape, _ in tensors:
        begin, end = end, end + torch.Size(shape).numel() * dtype.itemsize
        header[name] = {"dtype": DTYPES[dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            file.write(memoryview(tensor.make().flatten().view(torch.uint8).numpy()))


def attend(tensors: list[Published]) -> None:
    """Take part in the gathering without writing: what every rank but the first does."""
    for tensor in tensors:
        tensor.make()
