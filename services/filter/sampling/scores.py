"""Averages of the categories to their probabilities.

    score   signal                  reward variance q (1 - q): where groups are likely to be kept
            gradient_variance       1 / (policy-gradient variance + 1e-8)
            high_gradient_variance  the variance itself
    s_c     score / greatest score; a category without an average has 1: what is unknown is tried
    p_c     exp(s_c / tau) / sum, then at least 0.01 / number of categories and renormalised
    weights p_c in proportion to given weights, with the same least share

In the settle stage the s_c are winsorised first: drawn in to their 10 % and 90 % quantiles.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from services.filter.sampling.state import Monitored

Floats = NDArray[np.float64]

LEAST_SHARE = 0.01
EPSILON = 1e-8
OUTER = (0.1, 0.9)


def score(kind: str, monitored: Monitored) -> float | None:
    """The score of one category; None while nothing is known."""
    if kind == "signal":
        return monitored.reward_variance.value
    variance = monitored.gradient_variance.value
    if variance is None or kind == "high_gradient_variance":
        return variance
    return 1.0 / (variance + EPSILON)


def normalised(scores: Sequence[float | None]) -> Floats:
    """In units of the greatest; the unknown at 1."""
    known = [value for value in scores if value is not None]
    greatest = max(known, default=0.0)
    return np.asarray([1.0 if s is None or greatest <= 0.0 else s / greatest for s in scores])


def winsorised(scores: Floats) -> Floats:
    """Outliers drawn in."""
    return np.clip(scores, *np.quantile(scores, OUTER))


def softmax(scores: Floats, temperature: float) -> Floats:
    """exp(s / tau), normalised."""
    powers = np.exp((scores - scores.max()) / temperature)
    return powers / powers.sum()


def with_least_share(shares: Floats) -> Floats:
    """No share under `LEAST_SHARE` / their number: what lacks is raised to it, the others shrink in proportion."""
    least = LEAST_SHARE / len(shares)
    low = np.zeros(len(shares), dtype=bool)
    while True:
        rest = shares[~low].sum()
        scaled = np.where(low, least, shares * ((1.0 - low.sum() * least) / rest if rest else 0.0))
        if not (scaled[~low] < least).any():
            return scaled
        low |= scaled < least


def probabilities(
    kind: str, monitored: Sequence[Monitored], *, temperature: float, settle: bool, weights: Sequence[float]
) -> Floats:
    """Of the categories, in order."""
    if kind == "weights":
        given = np.asarray(weights, dtype=np.float64)
        return with_least_share(given / given.sum())
    scores = normalised([score(kind, one) for one in monitored])
    return with_least_share(softmax(winsorised(scores) if settle else scores, temperature))


def cumulative(table: Mapping[str, float]) -> list[float]:
    """Running sums of a table, the last one exactly 1."""
    sums = np.cumsum(list(table.values()))
    return [*sums[:-1].tolist(), 1.0]
