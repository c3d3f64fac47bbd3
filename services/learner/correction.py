"""Weights that correct for sampling with another policy than the proximal one.

    rho = exp(clamp(log pi_prox - log mu, -20, 20))
    w   = min(rho, C)                                      "tis"        truncated importance sampling
        | rho * 1[a <= rho <= b]                           "icepop"
        | min(rho, C) * 1[0.99 <= exp(mean_t log rho) <= 1.01]   "geometric", over whole samples
        | 1                                                "none"

No gradient flows through w. Sources: AReaL (arXiv 2505.24298), eq. 5; TIS as in FlashRL; IcePop; the geometric mask for
long samples. N = tokens of the micro-batch.
"""

from typing import Literal

import torch
from torch import Tensor

from services.learner.objectives.ratio import sample_mean

ICEPOP_RANGE = (0.5, 5.0)
GEOMETRIC_RANGE = (0.99, 1.01)

Correction = Literal["tis", "icepop", "geometric", "none"]


def weights(rho_N: Tensor, sample_N: Tensor, mask_N: Tensor, *, kind: Correction, cap: float) -> Tensor:
    """w for every token; `sample_N` numbers the sample of each token from 0."""
    rho_N = rho_N.detach()
    if kind == "none":
        return torch.ones_like(rho_N)
    if kind == "icepop":
        low, high = ICEPOP_RANGE
        return rho_N * ((rho_N >= low) & (rho_N <= high))
    w_N = rho_N.clamp(max=cap)
    if kind == "geometric":
        mean_N = sample_mean(rho_N.log(), sample_N, mask_N).exp()
        low, high = GEOMETRIC_RANGE
        w_N = w_N * ((mean_N >= low) & (mean_N <= high))
    return w_N
