"""Ratios of probabilities that stay finite.

    exp(clamp(log a - log b, -20, 20))

Infinite log-probabilities give the ends of the clamp; there the gradient is 0. A difference that is no number counts as
no difference: it can only come from -inf - (-inf), a token that both policies exclude.
"""

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0


def log_ratio(log_numerator_N: Tensor, log_denominator_N: Tensor) -> Tensor:
    """The clamped difference."""
    difference_N = torch.nan_to_num(log_numerator_N - log_denominator_N, nan=0.0)
    return difference_N.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def is_extreme(log_numerator_N: Tensor, log_denominator_N: Tensor) -> Tensor:
    """Where the clamp changed the difference."""
    return (log_numerator_N - log_denominator_N).detach().abs() > LOG_RATIO_LIMIT


def sample_mean(value_N: Tensor, sample_N: Tensor, mask_N: Tensor) -> Tensor:
    """For every token the mean of `value_N` over the trained tokens of its sample."""
    num_samples = int(sample_N.max()) + 1 if sample_N.numel() else 0
    zeros_S = torch.zeros(num_samples, dtype=value_N.dtype, device=value_N.device)
    mask_N = mask_N.to(value_N.dtype)
    sums_S = zeros_S.index_add(0, sample_N, value_N * mask_N)
    counts_S = zeros_S.index_add(0, sample_N, mask_N).clamp(min=1)
    return (sums_S / counts_S)[sample_N]
