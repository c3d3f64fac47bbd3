"""The proximal policy: where a step starts from, and what the clip holds on to.

    current      theta itself, detached: one optimizer step per batch, no extra pass, r = 1
    recompute    theta before the first optimizer step of the batch, by one pass without gradient
    behaviour    mu: two-policy, r = pi_theta / mu and w = 1
    loglinear    log pi_prox = log mu + a (log pi_theta - log mu),  a = (k - v) / (k + j/n - v)
                 v version of the token, k of the step, j of n optimizer steps done: where on the way from the engine's
                 policy to the policy now the step started, without the extra pass
    auto         current for one optimizer step per batch, else recompute

Sources: decoupled PPO in AReaL (arXiv 2505.24298), section 5.2, and its log-linear approximation. N = tokens.
"""

from typing import Literal

import torch
from torch import Tensor

Proximal = Literal["auto", "current", "recompute", "behaviour", "loglinear"]


def resolve(proximal: Proximal, updates_per_batch: int) -> Proximal:
    """`auto` decided."""
    if proximal != "auto":
        return proximal
    return "current" if updates_per_batch == 1 else "recompute"


def proximal_logps(
    kind: Proximal, logp_N: Tensor, mu_logp_N: Tensor, recomputed_N: Tensor | None, share_N: Tensor
) -> Tensor:
    """log pi_prox, detached; `share_N` is a, for loglinear."""
    logp_N = logp_N.detach()
    if kind == "behaviour":
        return mu_logp_N
    if kind == "recompute":
        assert recomputed_N is not None
        return recomputed_N
    if kind == "loglinear":
        mu_N = mu_logp_N.to(logp_N.dtype)
        return torch.where(share_N == 1, logp_N, mu_N + share_N * (logp_N - mu_N))
    return logp_N


def share_of_the_way(version_N: Tensor, *, step: int, progress: float) -> Tensor:
    """a, from the token's version and `progress` = j/n; 1 at the start of the step, where theta is proximal."""
    if progress == 0:
        return torch.ones_like(version_N, dtype=torch.float32)
    behind_N = (step - version_N).clamp(min=0).to(torch.float32)
    return behind_N / (behind_N + progress)
