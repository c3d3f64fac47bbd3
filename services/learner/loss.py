"""The DAPO objective, per token.

    r = exp(clamp(log pi_theta - log pi_prox, -20, 20))
    l = max(-A r, -A clip(r, 1 - eps_low, 1 + eps_high))
    l = min(l, -A c)   where A < 0                            dual clip, c > 1 + eps_high

The loss of an optimizer step is sum(m w l) / N with one N = sum(m) over all its tokens, all micro-batches and all
ranks, counted before correction masks; step.py divides. Sources: DAPO (arXiv 2503.14476), sections 3.1 (clip-higher)
and 3.3 (token-level mean); dual clip (arXiv 1912.09729). N = tokens.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from services.learner.correction import LOG_RATIO_LIMIT, clamped_ratio


class TokenLoss(NamedTuple):
    """The loss of each token and where clipping changed its gradient."""

    loss_N: Tensor
    ratio_N: Tensor
    clipped_low_N: Tensor
    """A < 0 and r < 1 - eps_low: the gradient is cut off."""
    clipped_high_N: Tensor
    """A > 0 and r > 1 + eps_high: the gradient is cut off."""
    clipped_dual_N: Tensor
    """A < 0 and r > c: the gradient is cut off."""
    extreme_N: Tensor
    """|log r| beyond the clamp."""

    @property
    def coefficient_N(self) -> Tensor:
        """d loss / d log pi without the advantage's sign lost: r where the gradient flows, else 0."""
        cut_N = self.clipped_low_N | self.clipped_high_N | self.clipped_dual_N | self.extreme_N
        return self.ratio_N.detach() * ~cut_N


def dapo_loss(
    logp_N: Tensor, prox_logp_N: Tensor, advantage_N: Tensor, *, eps_low: float, eps_high: float, dual_clip: float
) -> TokenLoss:
    """Loss per token; gradient flows through `logp_N` only."""
    ratio_N = clamped_ratio(logp_N, prox_logp_N.detach())
    clipped_N = ratio_N.clamp(1 - eps_low, 1 + eps_high)
    loss_N = torch.maximum(-advantage_N * ratio_N, -advantage_N * clipped_N)
    negative_N = advantage_N < 0
    dual_N = torch.zeros_like(negative_N)
    if dual_clip:
        dual_N = negative_N & (ratio_N > dual_clip)
        loss_N = torch.where(negative_N, torch.minimum(loss_N, -advantage_N * dual_clip), loss_N)
    return TokenLoss(
        loss_N=loss_N,
        ratio_N=ratio_N,
        clipped_low_N=negative_N & (ratio_N < 1 - eps_low),
        clipped_high_N=(advantage_N > 0) & (ratio_N > 1 + eps_high),
        clipped_dual_N=dual_N,
        extreme_N=(logp_N.detach() - prox_logp_N.detach()).abs() > LOG_RATIO_LIMIT,
    )
