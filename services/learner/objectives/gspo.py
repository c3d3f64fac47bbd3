"""GSPO: one ratio per sample, the geometric mean of its token ratios.

    s   = exp(mean_t (log pi_theta - log pi_prox))                over the sample's trained tokens
    s_t = sg(s) pi_theta / sg(pi_theta)                           equals s; its gradient is s grad log pi_t
    l   = max(-A s_t, -A clip(s_t, 1 - eps_low, 1 + eps_high))    3e-4, 4e-4

The mean of l over the tokens of a sample has the gradient of the sample's -A s, so correction weights per token keep
their meaning. Source: arXiv 2507.18071, eq. 5 to 7 and 4.3 (GSPO-token); clips of its section 5.1.
"""

import torch

from services.learner.objectives.base import Clip, Objective, TokenLoss, Tokens
from services.learner.objectives.ratio import is_extreme, log_ratio, sample_mean


def sequence_loss(tokens: Tokens, clip: Clip) -> TokenLoss:
    """The clipped surrogate of the sample's ratio, spread over its tokens."""
    A_N = tokens.advantage_N
    log_N = log_ratio(tokens.logp_N.detach(), tokens.prox_logp_N.detach())
    s_N = sample_mean(log_N, tokens.sample_N, tokens.mask_N).exp()
    r_N = s_N * (tokens.logp_N - tokens.logp_N.detach()).exp()
    loss_N = torch.maximum(-A_N * r_N, -A_N * r_N.clamp(1 - clip.low, 1 + clip.high))
    low_N, high_N = (A_N < 0) & (s_N < 1 - clip.low), (A_N > 0) & (s_N > 1 + clip.high)
    none_N = torch.zeros_like(low_N)
    slope_N = -A_N * s_N * ~(low_N | high_N)
    return TokenLoss(loss_N, r_N, slope_N, low_N, high_N, none_N, is_extreme(tokens.logp_N, tokens.prox_logp_N))


GSPO = Objective(loss=sequence_loss, normaliser="samples", advantage="std", clip=Clip(3e-4, 4e-4))
