"""CISPO: the ratio is a capped weight, not a surrogate; no token loses its gradient.

    l = -sg(min(r, 1 + eps_high)) A log pi_theta

Sources: MiniMax-M1 (arXiv 2506.13585), eq. 4 and 5; the cap 1 + eps_high = 5 of ScaleRL (arXiv 2510.13786).
"""

import torch

from services.learner.objectives.base import Clip, Objective, TokenLoss, Tokens
from services.learner.objectives.ratio import is_extreme, log_ratio


def capped_weight_loss(tokens: Tokens, clip: Clip) -> TokenLoss:
    """Policy gradient weighed by the capped ratio. `clip.low` is not used."""
    A_N = tokens.advantage_N
    r_N = log_ratio(tokens.logp_N.detach(), tokens.prox_logp_N.detach()).exp()
    slope_N = -A_N * r_N.clamp(max=1 + clip.high)
    none_N = torch.zeros_like(A_N, dtype=torch.bool)
    capped_N = (A_N != 0) & (r_N > 1 + clip.high)
    extreme_N = is_extreme(tokens.logp_N, tokens.prox_logp_N)
    return TokenLoss(slope_N * tokens.logp_N, r_N, slope_N, none_N, capped_N, none_N, extreme_N)


CISPO = Objective(loss=capped_weight_loss, normaliser="tokens", advantage="std", clip=Clip(0.0, 4.0))
