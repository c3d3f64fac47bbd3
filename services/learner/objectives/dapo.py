"""DAPO: clip-higher and a mean over all tokens.

    r = exp(clamp(log pi_theta - log pi_prox, -20, 20))
    l = max(-A r, -A clip(r, 1 - eps_low, 1 + eps_high))          0.2, 0.28
    l = min(l, -A c)   where A < 0                                dual clip, c = 10 > 1 + eps_high

Sources: DAPO (arXiv 2503.14476), sections 3.1 and 3.3; dual clip (arXiv 1912.09729).
"""

import torch

from services.learner.objectives.base import Clip, Objective, TokenLoss, Tokens
from services.learner.objectives.ratio import is_extreme, log_ratio


def clipped_loss(tokens: Tokens, clip: Clip) -> TokenLoss:
    """PPO's clipped surrogate per token, with separate clips and a dual clip."""
    A_N = tokens.advantage_N
    r_N = log_ratio(tokens.logp_N, tokens.prox_logp_N.detach()).exp()
    loss_N = torch.maximum(-A_N * r_N, -A_N * r_N.clamp(1 - clip.low, 1 + clip.high))
    negative_N = A_N < 0
    dual_N = negative_N & (r_N > clip.dual) if clip.dual else torch.zeros_like(negative_N)
    if clip.dual:
        loss_N = torch.where(negative_N, torch.minimum(loss_N, -A_N * clip.dual), loss_N)
    low_N = negative_N & (r_N < 1 - clip.low)
    high_N = (A_N > 0) & (r_N > 1 + clip.high)
    extreme_N = is_extreme(tokens.logp_N, tokens.prox_logp_N)
    slope_N = -A_N * r_N.detach() * ~(low_N | high_N | dual_N | extreme_N)
    return TokenLoss(loss_N, r_N, slope_N, low_N, high_N, dual_N, extreme_N)


DAPO = Objective(loss=clipped_loss, normaliser="tokens", advantage="std", clip=Clip(0.2, 0.28, 10.0))
