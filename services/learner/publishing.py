"""A policy's weights under their Hugging Face names: whole, merged, in the engine's dtype, one tensor at a time.

    parameter (sharded) -> whole -> + adapter -> dtype, CPU -> appended to a safetensors file

No rank ever holds a second full copy of the model: rank 0 writes a tensor before the next is gathered. The safetensors
header comes first, and needs shapes only.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from common import layout
from services.learner import lora
from services.learner.model import Policy
from services.learner.sharding import local, local_rows, whole

DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16"}


class Published(NamedTuple):
    """One tensor to be published."""

    name: str
    shape: list[int]
    make: Callable[[], Tensor]
    """The contiguous CPU tensor. With several ranks every rank must call it, in order of the list."""
    part: Callable[[], Tensor]
    """This rank's part, flat, where it lies and in the dtype it is trained in; every rank must call it as well."""


def published(policy: Policy, dtype: torch.dtype) -> list[Published]:
    """All tensors of the policy; adapters are merged into their layers."""

    def maker(name: str, parameter: Tensor) -> Callable[[], Tensor]:
        def make() -> Tensor:
            full = whole(parameter.detach())
            change = lora.delta(policy.model, name)
            merged = full if change is None else full + change
            return merged.to(device="cpu", dtype=dtype).contiguous()

        return make

    def parter(name: str, parameter: Tensor) -> Callable[[], Tensor]:
        def part() -> Tensor:
            own, change = local(parameter.detach()), lora.delta(policy.model, name)
            return (own if change is None else own + local_rows(change, parameter)).reshape(-1)

        return part

    return [
        Published(lora.plain_name(name), list(parameter.shape), maker(name, parameter), parter(name, parameter))
        for name, parameter in policy.named_parameters().items()
        if not lora.is_adapter(name)
    ]


def write(path: Path, tensors: list[Published], dtype: torch.dtype) -> None:
    """Write a safetensors file, tensor by tensor."""
    places = layout.build([(tensor.name, DTYPES[dtype], tensor.shape) for tensor in tensors])
    with path.open("wb") as file:
        file.write(places.header)
        for tensor in tensors:
            file.write(as_bytes(tensor.make()))


def as_bytes(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor."""
    return memoryview(tensor.flatten().view(torch.uint8).numpy())


def attend(tensors: list[Published]) -> None:
    """Take part in the gathering without writing: what every rank but the first does."""
    for tensor in tensors:
        tensor.make()
