"""The policy as a Hugging Face model that scores response tokens.

    micro-batch -> layers, packed attention -> hidden states of the response tokens -> TokenScores

float32 on a CPU; on a GPU the weights stay float32 (the optimizer's master copy) and the layers compute in bfloat16, by
autocast, or by FSDP2's mixed precision where the model is sharded (sharding.py). L tokens, N response tokens, D hidden
size, V vocabulary.
"""

import contextlib
from typing import Any

import torch
from torch import Tensor, nn

from common.errors import UserError
from services.learner import attention
from services.learner.config import LearnerConfig
from services.learner.logprobs import TokenScores, token_scores
from services.learner.packing import MicroBatch

LOGIT_CHANGES = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Configuration fields by which a model bends its logits after the head: not covered here, so refused."""


class Scorer(nn.Module):
    """The model as one module from tokens to scores, so that FSDP2 can gather the head for its forward pass."""

    def __init__(self, model: Any, *, temperature: float, compute: torch.dtype, chunk: int = 0) -> None:
        super().__init__()
        self.model = model
        self._temperature = temperature
        self.compute = compute
        """What the layers compute in."""
        self._chunk = chunk
        self.sharded = False
        """Whether FSDP2 casts the parameters; autocast does otherwise."""

    def forward(self, batch: MicroBatch, temperature: float | None = None) -> TokenScores:
        """Scores of every response token of a micro-batch."""
        with self._autocast(batch.input_ids_L.device):
            hidden_1LD = self.model.base_model(
                input_ids=batch.input_ids_L[None], position_ids=batch.position_L[None], use_cache=False,
                segments=batch.segments,
            ).last_hidden_state  # fmt: skip
        hidden_ND = hidden_1LD[0, batch.source_N].to(self._dtype(hidden_1LD))
        head_VD = self.model.get_output_embeddings().weight
        return token_scores(
            hidden_ND, head_VD.to(hidden_ND.dtype), batch.target_N,
            temperature=temperature or self._temperature, chunk=self._chunk,
        )  # fmt: skip

    def _dtype(self, hidden: Tensor) -> torch.dtype:
        return self.compute if self.compute == torch.bfloat16 else hidden.dtype

    def _autocast(self, device: torch.device) -> contextlib.AbstractContextManager[Any]:
        if self.compute == torch.bfloat16 and not self.sharded:
            return torch.autocast(device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()


class Policy:
    """A causal language model, its device, and its parameters by name."""

    def __init__(self, model: Any, *, temperature: float, compute: torch.dtype = torch.float32, chunk: int = 0) -> None:
        attention.register()
        model.set_attn_implementation(attention.NAME)
        self.model = model
        self.scorer = Scorer(model, temperature=temperature, compute=compute, chunk=chunk)
        self.device = next(model.parameters()).device

    @classmethod
    def load(cls, name: str, *, temperature: float, config: LearnerConfig) -> "Policy":
        """Load a Hugging Face folder or hub name; raises `UserError` if it is not a causal model this code covers."""
        from transformers import AutoModelForCausalLM

        try:
            model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
        except (OSError, ValueError) as error:
            raise UserError(f"[run] model `{name}` cannot be loaded as a causal language model: {error}") from error
        _refuse_uncovered(name, model)
        device = local_device()
        model.to(device).eval()
        _prepare(model, config)
        return cls(model, temperature=temperature, compute=compute_dtype(config, device), chunk=config.logprob_chunk)

    def scores(self, batch: MicroBatch, *, temperature: float | None = None) -> TokenScores:
        """Log-probability, entropy and squared probabilities of every response token of a micro-batch."""
        scores = self.scorer(batch, temperature)
        assert isinstance(scores, TokenScores)
        return scores

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """Parameters under their Hugging Face names; a tied head appears once, as the embedding."""
        return dict(self.model.named_parameters())

    def trained_parameters(self) -> dict[str, nn.Parameter]:
        """Those that the optimizer changes: all, or the adapters' (lora.py)."""
        return {name: p for name, p in self.named_parameters().items() if p.requires_grad}

    def freeze(self) -> "Policy":
        """Make it a reference: nothing is trained."""
        self.model.requires_grad_(False)
        return self


def layers(model: Any) -> list[nn.Module]:
    """The decoder layers, which transformers names as what must not be split."""
    names = set(model._no_split_modules or ())
    return [module for module in model.modules() if type(module).__name__ in names]


def compute_dtype(config: LearnerConfig, device: torch.device) -> torch.dtype:
    """What the layers compute in."""
    if config.compute == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.bfloat16 if config.compute == "bfloat16" else torch.float32


def publish_dtype(config: LearnerConfig, device: torch.device) -> torch.dtype:
    """The dtype that versions are published in: the engine's."""
    if config.publish_dtype != "auto":
        return torch.bfloat16 if config.publish_dtype == "bfloat16" else torch.float32
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def local_device() -> torch.device:
    """The GPU that this rank was given, or the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def _prepare(model: Any, config: LearnerConfig) -> None:
    """The options that change memory and speed, not the result."""
    if config.liger:
        _use_liger(model)
    if config.activation_checkpointing:
        _without_dropout(model).train()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if config.compile:
        for layer in layers(model):
            layer.compile(dynamic=True)


def _without_dropout(model: Any) -> Any:
    """Checkpointing needs the training mode, in which dropout would draw: a policy is scored without it."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def _use_liger(model: Any) -> None:
    """Liger's norm, rotary and SwiGLU kernels; the head is logprobs.py's. Has not run here: it needs a GPU."""
    try:
        from liger_kernel.transformers import _apply_liger_kernel_to_instance
    except ImportError as error:
        raise UserError("[learner] liger needs the package liger-kernel: pip install liger-kernel") from error
    _apply_liger_kernel_to_instance(model=model, fused_linear_cross_entropy=False, cross_entropy=False)


def _refuse_uncovered(name: str, model: Any) -> None:
    head = model.get_output_embeddings()
    if head is None or getattr(head, "bias", None) is not None:
        raise UserError(f"[run] model `{name}`: an output head with a bias is not covered; choose another model")
    if not getattr(model, "_supports_attention_backend", False):
        raise UserError(f"[run] model `{name}`: its attention is not pluggable in transformers; choose another")
    for field in LOGIT_CHANGES:
        if getattr(model.config, field, None) not in (None, 1, 1.0):
            raise UserError(
                f"[run] model `{name}` sets `{field}`, which the learner does not cover; choose another model"
            )
