"""Log-probabilities of given tokens, and the entropy, from hidden states, a chunk of tokens at a time.

    z = h W^T / T      log pi(y) = z_y - logsumexp z      H = logsumexp z - sum_v p_v z_v      q = sum_v p_v^2

in float32 whatever the model computes in; the temperature T enters before the softmax, as in the engine. Neither the
forward nor the backward pass holds more than two arrays of [chunk, vocabulary]. N tokens, C tokens of a chunk, D hidden
size, V vocabulary.

    d log pi(y) / d z_v = 1[v = y] - p_v            d H / d z_v = -p_v (log p_v + H)
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

CHUNK_BYTES = {"cpu": 64 << 20, "cuda": 1 << 30}
"""Bytes of logits that are held at a time."""


class TokenScores(NamedTuple):
    """What the last layer says of N tokens. `logp_N` and `entropy_N` carry gradients."""

    logp_N: Tensor
    entropy_N: Tensor
    square_N: Tensor
    """Sum of squared probabilities."""


def token_scores(
    hidden_ND: Tensor, head_VD: Tensor, target_N: Tensor, *, temperature: float, chunk: int = 0
) -> TokenScores:
    """Score the tokens `target_N` under the distribution of each hidden state; chunk 0: chosen by memory."""
    if not chunk:
        chunk = max(16, CHUNK_BYTES.get(hidden_ND.device.type, 64 << 20) // (4 * head_VD.shape[0]))
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
            logp_CV = _log_softmax(hidden_ND[part], head_VD, temperature, dtype)
            logp_N[part] = logp_CV.gather(-1, target_N[part, None]).squeeze(-1)
            p_CV = logp_CV.exp()
            entropy_N[part] = -_dot(p_CV, logp_CV)
            square_N[part] = _dot(p_CV, p_CV)
        ctx.save_for_backward(hidden_ND, head_VD, target_N, entropy_N)
        ctx.temperature, ctx.chunk, ctx.dtype = temperature, chunk, dtype
        ctx.mark_non_differentiable(square_N)
        ctx.set_materialize_grads(False)
        return logp_N, entropy_N, square_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden_ND, head_VD, target_N, entropy_N = ctx.saved_tensors
        grad_logp_N = torch.zeros_like(entropy_N) if grads[0] is None else grads[0]
        grad_entropy_N = grads[1]
        grad_hidden_ND = torch.empty_like(hidden_ND)
        grad_head_VD = torch.zeros_like(head_VD, dtype=ctx.dtype) if ctx.needs_input_grad[1] else None
        for at in range(0, len(target_N), ctx.chunk):
            part = slice(at, at + ctx.chunk)
            logp_CV = _log_softmax(hidden_ND[part], head_VD, ctx.temperature, ctx.dtype)
            slope_CV = None
            if grad_entropy_N is not None:
                slope_CV = (logp_CV + entropy_N[part, None]).mul_(logp_CV.exp()).mul_(-grad_entropy_N[part, None])
            d_CV = logp_CV.exp_().mul_(-grad_logp_N[part, None])
            d_CV.scatter_add_(-1, target_N[part, None], grad_logp_N[part, None])
            if slope_CV is not None:
                d_CV += slope_CV
            d_CV /= ctx.temperature
            grad_hidden_ND[part] = _matmul(d_CV.to(head_VD.dtype), head_VD, hidden_ND.dtype)
            if grad_head_VD is not None:
                grad_head_VD += _matmul(d_CV.to(hidden_ND.dtype).T, hidden_ND[part], ctx.dtype)
        return grad_hidden_ND, None if grad_head_VD is None else grad_head_VD.to(head_VD.dtype), None, None, None


def _log_softmax(hidden_CD: Tensor, head_VD: Tensor, temperature: float, dtype: torch.dtype) -> Tensor:
    z_CV = _matmul(hidden_CD, head_VD.T, dtype)
    if temperature != 1.0:
        z_CV /= temperature
    return z_CV.sub_(z_CV.logsumexp(-1, keepdim=True))


def _dot(a_CV: Tensor, b_CV: Tensor) -> Tensor:
    """Row by row, without an array for the products."""
    return torch.bmm(a_CV[:, None, :], b_CV[:, :, None]).flatten()


def _matmul(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """a @ b accumulated and returned in `dtype`: on a GPU from half-precision inputs, elsewhere by casting them."""
    if a.is_cuda and a.dtype == b.dtype and a.dtype != dtype and dtype == torch.float32:
        return torch.mm(a, b, out_dtype=dtype)
    wide = torch.promote_types(torch.promote_types(a.dtype, b.dtype), dtype)
    return (a.to(wide) @ b.to(wide)).to(dtype)
