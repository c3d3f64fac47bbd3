"""Weights that correct for sampling with another policy than the proximal one.

    rho = exp(clamp(log pi_prox - log mu, -20, 20))
    w   = min(rho, C)                                      "tis"        truncated importance sampling
        | rho * 1[a <= rho <= b]                           "icepop"
        | min(rho, C) * 1[0.99 <= exp(mean_t log rho) <= 1.01]   "geometric", over whole samples
        | 1                                                "none"

No gradient flows through w. Sources: AReaL (arXiv 2505.24298), eq. 5; TIS as in FlashRL; IcePop; the geometric mask for
long samples. N = trained tokens of the micro-batch, S = its samples.
"""

from typing import Literal

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
ICEPOP_RANGE = (0.5, 5.0)
GEOMETRIC_RANGE = (0.99, 1.01)

Correction = Literal["tis", "icepop", "geometric", "none"]


def clamped_ratio(log_numerator_N: Tensor, log_denominator_N: Tensor) -> Tensor:
    """exp of the clamped difference: finite for any finite or infinite log-probabilities."""
    difference_N = log_numerator_N - log_denominator_N
    return torch.nan_to_num(difference_N, nan=0.0).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def weights(rho_N: Tensor, sample_N: Tensor, *, kind: Correction, cap: float) -> Tensor:
    """w for every token; `sample_N` numbers the sample of each token from 0."""
    rho_N = rho_N.detach()
    if kind == "none":
        return torch.ones_like(rho_N)
    if kind == "icepop":
        low, high = ICEPOP_RANGE
        return rho_N * ((rho_N >= low) & (rho_N <= high))
    w_N = rho_N.clamp(max=cap)
    if kind == "geometric":
        mean_N = _geometric_mean(rho_N, sample_N)
        low, high = GEOMETRIC_RANGE
        w_N = w_N * ((mean_N >= low) & (mean_N <= high))
    return w_N


def _geometric_mean(rho_N: Tensor, sample_N: Tensor) -> Tensor:
    """exp(mean_t log rho) of the sample that each token belongs to."""
    num_samples = int(sample_N.max()) + 1 if sample_N.numel() else 0
    sums_S = torch.zeros(num_samples, dtype=rho_N.dtype, device=rho_N.device).index_add_(0, sample_N, rho_N.log())
    counts_S = torch.bincount(sample_N, minlength=num_samples).clamp(min=1)
    return (sums_S / counts_S).exp()[sample_N]
