"""DPPO-TV: a trust region on the change of probability instead of its ratio, which punishes rare tokens.

    D = |pi_theta(y) - pi_prox(y)|                                the total variation, seen from the sampled token
    l = -A r, and 0 where the change goes A's way and D is above   delta_low 0.2 (A < 0), delta_high 0.28 (A > 0)

Source: Rethinking the Trust Region in LLM Reinforcement Learning (arXiv 2602.04879), the binary TV variant; there the
region is around the behaviour policy, which is `learner.proximal = "behaviour"` here.
"""

from services.learner.objectives.base import Clip, Objective, TokenLoss, Tokens
from services.learner.objectives.ratio import is_extreme, log_ratio


def trust_region_loss(tokens: Tokens, clip: Clip) -> TokenLoss:
    """The unclipped surrogate, masked outside the trust region."""
    A_N = tokens.advantage_N
    r_N = log_ratio(tokens.logp_N, tokens.prox_logp_N.detach()).exp()
    change_N = tokens.logp_N.detach().exp() - tokens.prox_logp_N.detach().exp()
    low_N = (A_N < 0) & (change_N < -clip.low)
    high_N = (A_N > 0) & (change_N > clip.high)
    inside_N = ~(low_N | high_N)
    extreme_N = is_extreme(tokens.logp_N, tokens.prox_logp_N)
    slope_N = -A_N * r_N.detach() * (inside_N & ~extreme_N)
    return TokenLoss(-A_N * r_N * inside_N, r_N, slope_N, low_N, high_N, low_N & high_N, extreme_N)


DPPO_TV = Objective(loss=trust_region_loss, normaliser="tokens", advantage="std", clip=Clip(0.2, 0.28))
