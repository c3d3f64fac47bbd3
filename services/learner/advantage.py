"""Advantages of one group.

    A_i = (R_i - mean R) / (std R + 1e-6)        population standard deviation, float64

exactly 0 where max R - min R <= 1e-6: the residue of float sums must not be blown up by a vanishing deviation. Rewards
are those of the survivors, before any token or sample is masked.

Sources: GRPO (arXiv 2402.03300), eq. 3; without the deviation Dr.GRPO (arXiv 2503.20783); leave-one-out RLOO
(arXiv 2402.14740).
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

SPREAD_TOLERANCE = 1e-6


def advantages(
    rewards_G: Sequence[float], kind: Literal["std", "mean", "leave_one_out"] = "std"
) -> NDArray[np.float64]:
    """One advantage per sample, from the shaped rewards of one group."""
    R_G = np.asarray(rewards_G, dtype=np.float64)
    if R_G.size < 2 or R_G.max() - R_G.min() <= SPREAD_TOLERANCE:
        return np.zeros_like(R_G)
    centred_G = R_G - R_G.mean()
    if kind == "mean":
        return centred_G
    if kind == "leave_one_out":
        return centred_G * (R_G.size / (R_G.size - 1))
    return centred_G / (R_G.std() + 1e-6)
