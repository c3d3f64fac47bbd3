"""Section [rollout]."""

from dataclasses import dataclass, field
from typing import Literal

Lie = Literal["version", "old_version", "nan", "empty", "short", "aborted"]


@dataclass(frozen=True, kw_only=True)
class ScriptedConfig:
    """[rollout.scripted]: how the engine for tests and simulation plays its part."""

    seconds: float = 0.05
    """Mean time of a group, with a long tail; 0: none."""
    right: float = 0.5
    """Share of the samples that are right."""
    max_words: int = 8
    """Longest answer, in words before the box."""
    lies: list[Lie] = field(default_factory=list)
    """Ways in which it errs: versions it never had, log-probabilities that are none, answers that are not whole."""
    lie_share: float = 0.05
    """Share of the groups with a lie, if there are any."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        if self.seconds < 0 or self.max_words < 0:
            raise ValueError("`scripted.seconds` and `scripted.max_words` must be 0 or more")
        if not (0 <= self.right <= 1 and 0 <= self.lie_share < 1):
            raise ValueError("`scripted.right` must be from 0 to 1, `scripted.lie_share` from 0 to below 1")


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
    group_timeout_s: float = 3600.0
    """Seconds after which the engine counts as stuck on a group: it is sampled again, here or elsewhere."""
    engine: Literal["vllm", "scripted"] = "vllm"
    """`scripted` plays a part without a model, for tests and simulation: nothing is learned."""
    scripted: ScriptedConfig = field(default_factory=ScriptedConfig)
    """What the scripted engine does."""
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
    claims: str = ""
    """Folder by whose locks replicas on this machine share the GPUs that all of them see, each taking
    `tensor_parallel_size`; empty: a replica uses what CUDA_VISIBLE_DEVICES says. Without a GPU it means nothing."""
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
        if self.group_timeout_s <= 0:
            raise ValueError("`group_timeout_s` must be above 0")
        if self.kv_cache_gib <= 0:
            raise ValueError("`kv_cache_gib` must be above 0")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ValueError("`gpu_memory_utilization` must be above 0 and at most 1")
