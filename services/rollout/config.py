"""Section [rollout]."""

from dataclasses import dataclass, field
from typing import Literal

MAX_PRUNE = 0.2
"""More needs `force`: beyond it the difference grows faster than importance weights can correct."""


@dataclass(frozen=True, kw_only=True)
class CompressConfig:
    """`[rollout] compress`: the engine samples from a cheaper copy of the weights; services/rollout/compress.py."""

    prune: float = 0.0
    """Share of each matrix that becomes zero."""
    quantize: Literal["", "int8", "fp8"] = ""
    """Grid that the rows of each matrix are rounded to."""
    force: bool = False
    """Whether to prune more than a fifth."""

    def __post_init__(self) -> None:
        """Refuse what would ruin the samples."""
        if not 0 <= self.prune < 1:
            raise ValueError("`compress.prune` must be at least 0 and below 1")
        if self.prune > MAX_PRUNE and not self.force:
            raise ValueError(f"`compress.prune` above {MAX_PRUNE} spoils most models: add force = true to try it")

    @property
    def is_on(self) -> bool:
        """Whether anything is compressed."""
        return bool(self.prune or self.quantize)


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """How groups are sampled."""

    replicas: int = 1
    """Rollout processes that `dapo run` starts."""
    max_groups: int = 16
    """Groups one replica samples at a time; the engine batches their samples continuously."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the engine's weights; auto: float32 on a CPU, bfloat16 on a GPU."""
    max_num_seqs: int = 128
    """Sequences in one engine step at most."""
    kv_cache_gib: float = 0.25
    """Memory for keys and values on a CPU; a GPU uses `gpu_memory_utilization`."""
    gpu_memory_utilization: float = 0.9
    """Share of the GPU's memory that the engine may use."""
    tensor_parallel_size: int = 1
    """GPUs of one replica."""
    enforce_eager: bool = False
    """Whether to do without CUDA graphs and torch.compile; always so on a CPU."""
    compress: CompressConfig = field(default_factory=CompressConfig)
    """Compression of the engine's copy of the weights, for instance { prune = 0.2 }; default: none."""
    rolling: bool = False
    """Whether replicas load a version one after the other, so that sampling never stops everywhere at once."""
    metrics_port: int = 9160
    """Port of /metrics of replica 0, the next replicas count up; 0: any free port, -1: none."""
    metrics_host: str = "127.0.0.1"
    """Address that /metrics is bound to."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        for key in ("replicas", "max_groups", "max_num_seqs", "tensor_parallel_size"):
            if getattr(self, key) < 1:
                raise ValueError(f"`{key}` must be at least 1")
        if self.kv_cache_gib <= 0:
            raise ValueError("`kv_cache_gib` must be above 0")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ValueError("`gpu_memory_utilization` must be above 0 and at most 1")
