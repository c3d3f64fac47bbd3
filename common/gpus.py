"""The GPUs of this machine, as NVIDIA's driver lists them."""

import re
import subprocess
from dataclasses import dataclass

_LINE = re.compile(r"GPU (?P<index>\d+): .*\(UUID: (?P<uuid>[\w-]+)\)")


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One that this process can see."""

    index: int
    """As CUDA counts here in the order of the PCI bus."""
    uuid: str
    """The same in every container."""


def visible_gpus() -> list[Gpu]:
    """What the driver lists; empty without one."""
    try:
        answer = subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return parse(answer.stdout)


def parse(listing: str) -> list[Gpu]:
    """The GPUs in the output of `nvidia-smi -L`; partitions of a GPU (MIG) are left out."""
    return [Gpu(index=int(m["index"]), uuid=m["uuid"]) for m in map(_LINE.match, listing.splitlines()) if m]
