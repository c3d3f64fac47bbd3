"""A policy over several ranks, by FSDP2: every layer, then the root, split; a layer is gathered while it is used.

Gradients are averaged by FSDP2, so step.py multiplies the loss by the number of ranks (algorithm.md, section 3).
"""

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from services.learner.config import LearnerConfig
from services.learner.model import Policy, compute_dtype, layers


def shard(policy: Policy, config: LearnerConfig, size: int) -> None:
    """Split the policy over `size` ranks, in place."""
    mesh = init_device_mesh(policy.device.type, (size,))
    compute = compute_dtype(config, policy.device)
    half = compute != torch.float32
    precision = (
        MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32) if half else MixedPrecisionPolicy()
    )
    offload = CPUOffloadPolicy(pin_memory=torch.cuda.is_available()) if config.cpu_offload else OffloadPolicy()
    for module in (*layers(policy.model), policy.scorer):
        fully_shard(module, mesh=mesh, mp_policy=precision, offload_policy=offload)
    policy.scorer.sharded = True


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor that may be sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def local_rows(whole_tensor: Tensor, like: Tensor) -> Tensor:
    """This rank's part of a tensor that is whole here, split as `like` is: FSDP2 splits the rows as `torch.chunk`."""
    if not isinstance(like, DTensor):
        return whole_tensor
    mesh = like.device_mesh
    parts = whole_tensor.chunk(mesh.size())
    rank = mesh.get_local_rank()
    return parts[rank] if rank < len(parts) else whole_tensor[:0]


def whole(tensor: Tensor) -> Tensor:
    """The full tensor of a sharded one; every rank must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
