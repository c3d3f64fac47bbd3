"""Section [learner]."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """How the policy is trained. The defaults are the recipe of the DAPO paper (arXiv 2503.14476, section 4.1)."""

    lr: float = 1e-6
    """Learning rate after warm-up; constant."""
    warmup_steps: int = 20
    """Optimizer steps of linear warm-up."""
    weight_decay: float = 0.1
    """Decoupled weight decay of AdamW."""
    beta1: float = 0.9
    """Decay of AdamW's first moment."""
    beta2: float = 0.999
    """Decay of AdamW's second moment."""
    max_grad_norm: float = 1.0
    """Norm to which gradients are clipped."""
    updates_per_batch: int = 1
    """Optimizer steps per batch, over disjoint mini-batches of groups."""
    objective: Literal["dapo", "grpo", "dr_grpo", "gspo", "cispo", "dppo_tv"] = "dapo"
    """What is minimised; see services/learner/objectives."""
    eps_low: float | None = None
    """Lower clip: ratios below 1 - eps_low gain nothing; default: the objective's own (dapo 0.2)."""
    eps_high: float | None = None
    """Upper clip (clip-higher): ratios above 1 + eps_high gain nothing; default: the objective's own (dapo 0.28)."""
    dual_clip: float | None = None
    """c: bound of the loss of a token with negative advantage, at c times the advantage; 0: off; default: dapo 10."""
    kl_coef: float = 0.0
    """Weight of the KL divergence to the starting model (k3, per token); 0: off, and no second model in memory."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus; 0: off."""
    correction: Literal["tis", "icepop", "geometric", "none"] = "tis"
    """Weight that corrects the difference between the engine's policy and the proximal policy."""
    tis_cap: float = 2.0
    """C: cap of the truncated importance weight."""
    proximal: Literal["auto", "current", "recompute", "behaviour", "loglinear"] = "auto"
    """Proximal policy; auto: `current` for one optimizer step per batch, else `recompute`."""
    advantage: Literal["auto", "std", "mean", "leave_one_out"] = "auto"
    """Rewards of a group: centred and divided by their deviation, only centred, or compared with the others."""
    overlong_filter: bool = False
    """Whether the tokens of truncated samples are left out of the loss (they stay in the group's statistics)."""
    micro_batch_tokens: int = 16384
    """Tokens in one forward and backward pass at most; changes memory and speed, not the result."""
    logprob_chunk: int = 0
    """Tokens whose logits are held at a time; 0: as many as fit 64 MiB on a CPU, 1 GiB on a GPU."""
    compute: Literal["auto", "float32", "bfloat16"] = "auto"
    """What the layers compute in; the weights stay float32. auto: bfloat16 on a GPU, float32 on a CPU."""
    activation_checkpointing: bool = False
    """Whether layers are computed twice instead of kept for the backward pass."""
    compile: bool = False
    """Whether torch.compile fuses the layers; needs a C++ compiler on a CPU."""
    liger: bool = False
    """Whether the package liger-kernel's norm, rotary and SwiGLU kernels are used (GPU)."""
    cpu_offload: bool = False
    """Whether FSDP2 keeps parameters, gradients and AdamW's moments in the CPU's memory, and steps there (GPU)."""
    lora_rank: int = 0
    """Rank of peft's low-rank adapters, which are then all that is trained; 0: train the whole model."""
    lora_alpha: int = 32
    """Scale of the adapters: their product counts lora_alpha / lora_rank."""
    ranks: int = 1
    """Processes of the learner on this machine, joined by torchrun; each takes a GPU where there are any."""
    checkpoint_every: int = 10
    """Steps between checkpoints; batches since the last one are trained again after a crash."""
    keep_checkpoints: int = 2
    """Checkpoints kept."""
    publish_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of published versions, which is the engine's: set [rollout] dtype to the same. auto: as [rollout] dtype auto."""
    snapshot_every: int = 20
    """Versions from one full snapshot to the next, deltas between; 1: all full, as always in float32."""
    keep_every: int = 0
    """Checkpoints of these steps' multiples are kept for good: milestones; 0: none."""
    background_checkpoints: bool = True
    """Whether training goes on while a checkpoint is written; takes as much memory again as weights and moments."""
    disk_wait_s: float = 60.0
    """How long to wait for room on a full disk before the learner stops; the last complete checkpoint stays."""
    keep_versions: int = 3
    """Published policy versions kept in the weight store, and those that they are built on."""
    record_batches: bool = False
    """Whether every batch is kept in RUN/batches, for `dapo replay`."""
    max_skips: int = 10
    """Optimizer steps in a row that may be skipped for a loss or gradient that is not finite."""
    contract_limit: float = 0.0
    """Largest mean |difference| of engine and learner log-probabilities at start; 0: 1e-3, 0.05 in bfloat16."""
    threads: int = 1
    """Torch threads on a CPU; a fixed number, so that a replay gives the same bits."""
    metrics_port: int = 9130
    """Port of /metrics; 0: any free port, -1: none."""
    metrics_host: str = "127.0.0.1"
    """Address that /metrics is bound to."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        if self.lr <= 0:
            raise ValueError("`lr` must be above 0")
        for key in (
            "updates_per_batch",
            "micro_batch_tokens",
            "ranks",
            "checkpoint_every",
            "keep_checkpoints",
            "keep_versions",
            "snapshot_every",
            "max_skips",
            "threads",
        ):
            if getattr(self, key) < 1:
                raise ValueError(f"`{key}` must be at least 1")
        for key in ("logprob_chunk", "lora_rank", "kl_coef", "entropy_coef", "keep_every", "disk_wait_s"):
            if getattr(self, key) < 0:
                raise ValueError(f"`{key}` must be 0 or more")
        self._check_combinations()

    def _check_combinations(self) -> None:
        if self.dual_clip and self.dual_clip <= 1 + (0.28 if self.eps_high is None else self.eps_high):
            raise ValueError("`dual_clip` must exceed 1 + eps_high, or be 0")
        if self.proximal == "current" and self.updates_per_batch > 1:
            raise ValueError("`proximal` must not be current when updates_per_batch is above 1: use recompute")
