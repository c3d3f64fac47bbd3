"""The policy as a Hugging Face model: load it, run it to its last hidden states, name its tensors.

float32 on a CPU; on a GPU the weights stay float32 (the optimizer's master copy) and the forward pass computes in
bfloat16 by autocast. S samples, L positions, D hidden size, V vocabulary.
"""

import contextlib
from typing import Any

import torch
from torch import Tensor, nn

from common.errors import UserError
from services.learner.logprobs import TokenScores, token_scores
from services.learner.packing import MicroBatch

LOGIT_CHANGES = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Configuration fields by which a model bends its logits after the head: not covered here, so refused."""


class Policy:
    """A causal language model that scores response tokens."""

    def __init__(self, model: nn.Module, *, temperature: float, chunk: int) -> None:
        self.model = model
        self._temperature = temperature
        self._chunk = chunk
        self.device = next(model.parameters()).device

    @classmethod
    def load(cls, name: str, *, temperature: float, chunk: int) -> "Policy":
        """Load a Hugging Face folder or hub name; raises `UserError` if it is not a causal model this code covers."""
        from transformers import AutoModelForCausalLM

        try:
            model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
        except (OSError, ValueError) as error:
            raise UserError(f"[run] model `{name}` cannot be loaded as a causal language model: {error}") from error
        _refuse_uncovered(name, model)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return cls(model.to(device).eval(), temperature=temperature, chunk=chunk)

    def scores(self, batch: MicroBatch, *, temperature: float | None = None) -> TokenScores:
        """Log-probability, entropy and squared probabilities of every response token of a micro-batch."""
        with self._autocast():
            hidden_SLD = self.model.base_model(input_ids=batch.input_ids_SL, use_cache=False).last_hidden_state
        hidden_ND = hidden_SLD[batch.row_N, batch.column_N]
        head_VD = self.model.get_output_embeddings().weight
        return token_scores(
            hidden_ND, head_VD, batch.target_N, temperature=temperature or self._temperature, chunk=self._chunk
        )

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """Parameters under their Hugging Face names; a tied head appears once, as the embedding."""
        return dict(self.model.named_parameters())

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.device.type == "cuda":
            return torch.autocast("cuda", dtype=torch.bfloat16)
        return contextlib.nullcontext()


def publish_dtype(device: torch.device) -> torch.dtype:
    """The dtype that versions are published in: the engine's."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def tensors(policy: Policy, dtype: torch.dtype) -> dict[str, Tensor]:
    """The policy's parameters as contiguous CPU tensors of a dtype."""
    return {
        name: parameter.detach().to(device="cpu", dtype=dtype).contiguous()
        for name, parameter in policy.named_parameters().items()
    }


def _refuse_uncovered(name: str, model: Any) -> None:
    head = model.get_output_embeddings()
    if head is None or getattr(head, "bias", None) is not None:
        raise UserError(f"[run] model `{name}`: an output head with a bias is not covered; choose another model")
    for field in LOGIT_CHANGES:
        if getattr(model.config, field, None) not in (None, 1, 1.0):
            raise UserError(
                f"[run] model `{name}` sets `{field}`, which the learner does not cover; choose another model"
            )
