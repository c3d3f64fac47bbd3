"""Terms beside the objective, both off by default, weighed over tokens like the objective itself.

    KL to the reference       kl_coef * (exp(d) - d - 1),  d = log pi_ref - log pi_theta      k3, gradient through theta
    entropy bonus             -entropy_coef * H

Source of k3: Schulman, Approximating KL Divergence (2020), used as a loss by GRPO (arXiv 2402.03300), eq. 4.
N = tokens.
"""

import torch
from torch import Tensor

from services.learner.logprobs import TokenScores
from services.learner.objectives.ratio import log_ratio


def k3(logp_N: Tensor, reference_logp_N: Tensor) -> Tensor:
    """Estimate per token of KL(theta || reference); never negative."""
    d_N = log_ratio(reference_logp_N, logp_N)
    return d_N.exp() - d_N - 1


def penalty(
    scores: TokenScores, reference_logp_N: Tensor | None, *, kl_coef: float, entropy_coef: float
) -> Tensor | None:
    """The sum of the terms per token, or None if all are off."""
    terms = []
    if kl_coef:
        assert reference_logp_N is not None
        terms.append(kl_coef * k3(scores.logp_N, reference_logp_N))
    if entropy_coef:
        terms.append(-entropy_coef * scores.entropy_N)
    return torch.stack(terms).sum(0) if terms else None
