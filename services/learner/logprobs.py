"""Log-probabilities of given tokens, and the entropy, from hidden states, a chunk of tokens at a time.

    z = h W^T / T      log pi(y) = z_y - logsumexp z      H = logsumexp z - sum_v p_v z_v      q = sum_v p_v^2

in float32 whatever the model computes in; the temperature T enters before the softmax, as in the engine. Neither the
forward nor the backward pass holds more than [chunk, vocabulary]. N = tokens, D = hidden size, V = vocabulary.

    d log pi(y) / d z_v = 1[v = y] - p_v
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor


class TokenScores(NamedTuple):
    """What the last layer says of N tokens. Only `logp_N` carries a gradient."""

    logp_N: Tensor
    entropy_N: Tensor
    square_N: Tensor
    """Sum of squared probabilities."""


def token_scores(
    hidden_ND: Tensor, head_VD: Tensor, target_N: Tensor, *, temperature: float, chunk: int
) -> TokenScores:
    """Score the tokens `target_N` under the distribution of each hidden state."""
    return TokenScores(*_Scores.apply(hidden_ND, head_VD, target_N, temperature, chunk))


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 - torch passes arguments by position
        ctx: Any, hidden_ND: Tensor, head_VD: Tensor, target_N: Tensor, temperature: float, chunk: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype = torch.promote_types(hidden_ND.dtype, torch.float32)
        logp_N, entropy_N, square_N = (torch.empty(len(target_N), dtype=dtype, device=hidden_ND.device) for _ in "abc")
        for at in range(0, len(target_N), chunk):
            part = slice(at, at + chunk)
            z_CV = _logits(hidden_ND[part], head_VD, temperature, dtype)
            logsumexp_C = z_CV.logsumexp(-1)
            logp_N[part] = z_CV.gather(-1, target_N[part, None]).squeeze(-1) - logsumexp_C
            p_CV = (z_CV - logsumexp_C[:, None]).exp_()
            entropy_N[part] = logsumexp_C - (p_CV * z_CV).sum(-1)
            square_N[part] = p_CV.square_().sum(-1)
        ctx.save_for_backward(hidden_ND, head_VD, target_N)
        ctx.temperature, ctx.chunk, ctx.dtype = temperature, chunk, dtype
        ctx.mark_non_differentiable(entropy_N, square_N)
        return logp_N, entropy_N, square_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, head_VD, target_N = ctx.saved_tensors
        grad_N = grads[0]
        grad_hidden_ND = torch.empty_like(hidden_ND)
        grad_head_VD = torch.zeros_like(head_VD, dtype=ctx.dtype)
        for at in range(0, len(target_N), ctx.chunk):
            part = slice(at, at + ctx.chunk)
            d_CV = _logits(hidden_ND[part], head_VD, ctx.temperature, ctx.dtype).softmax(-1).neg_()
            d_CV.scatter_add_(-1, target_N[part, None], torch.ones_like(d_CV[:, :1]))
            d_CV *= grad_N[part, None] / ctx.temperature
            grad_hidden_ND[part] = (d_CV @ head_VD.to(ctx.dtype)).to(hidden_ND.dtype)
            grad_head_VD += d_CV.T @ hidden_ND[part].to(ctx.dtype)
        return grad_hidden_ND, grad_head_VD.to(head_VD.dtype), None, None, None


def _logits(hidden_CD: Tensor, head_VD: Tensor, temperature: float, dtype: torch.dtype) -> Tensor:
    return (hidden_CD.to(dtype) @ head_VD.to(dtype).T) / temperature
