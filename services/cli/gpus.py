"""Which GPUs each process of a run on this machine sees: the learner the first, one a rank, the rollouts the others.

    visible (nvidia-smi, CUDA_VISIBLE_DEVICES), sections -> name of a process -> its CUDA_VISIBLE_DEVICES

On a machine with too few, learner and rollouts share them if the engine leaves room: [rollout] gpu_memory_utilization
of at most `SHARED`. In containers the compose file decides instead (docs/compose.md).
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from common.errors import UserError
from common.gpus import visible_gpus

SHARED = 0.6
"""Greatest share of a GPU's memory for an engine that shares it with the learner."""
VARIABLE = "CUDA_VISIBLE_DEVICES"
BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""CUDA counts as the driver lists; numbers that the user gave are counted as the user's environment says."""


def visible(environment: Mapping[str, str]) -> list[str]:
    """The GPUs that this run may use, as CUDA_VISIBLE_DEVICES names them; empty without a driver."""
    if VARIABLE in environment:
        return [name.strip() for name in environment[VARIABLE].split(",") if name.strip()]
    return [str(gpu.index) for gpu in visible_gpus()]


def assigned(gpus: Sequence[str], sections: Mapping[str, Any]) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES by process; empty without GPUs. Raises `UserError` if they do not suffice."""
    if not gpus:
        return {}
    ranks, rollout = sections["learner"].ranks, sections["rollout"]
    each, replicas = rollout.tensor_parallel_size, rollout.replicas
    needed = ranks + each * replicas
    if needed <= len(gpus):
        rest = gpus[ranks:]
    elif rollout.gpu_memory_utilization <= SHARED and max(ranks, each) <= len(gpus):
        rest = list(itertools.islice(itertools.cycle(gpus), each * replicas))
    else:
        raise UserError(
            f"the run needs {needed} GPUs ({ranks} of the learner, {replicas} x {each} of the rollouts), {len(gpus)} "
            "are visible: lower [learner] ranks or [rollout] replicas, or let them share with [rollout] "
            f"gpu_memory_utilization = {SHARED} or less"
        )
    shares = {f"rollout-{place}": rest[each * place : each * (place + 1)] for place in range(replicas)}
    return {name: ",".join(share) for name, share in ({"learner-0": gpus[:ranks]} | shares).items()}
