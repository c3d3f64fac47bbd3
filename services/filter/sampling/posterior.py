"""The pass rate q of one prompt: a Beta posterior that forgets, and the chance that a group of G answers is kept.

    q ~ Beta(1/2 + s, 1/2 + n - s)      n answers judged, the sum of their scores s
    n, s  <-  n d^v + new, s d^v + new  at every group; d the decay, v the versions since the last one
    keep(q)    = 1 - q^G - (1 - q)^G    not all right and not all wrong
    E[keep(q)] = 1 - a^(G) / (a + b)^(G) - b^(G) / (a + b)^(G)     rising factorials x^(G) = x (x + 1) .. (x + G - 1)

The prior is Jeffreys': pass rates of a language model crowd at 0 and 1. That only groups with 0 < #correct < G teach
is DAPO (arXiv 2503.14476), section 3.2.
"""

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

PRIOR = 0.5

Number = TypeVar("Number", float, NDArray[np.float64])


class Evidence(NamedTuple):
    """What is known of one prompt."""

    attempts: float = 0.0
    successes: float = 0.0
    seen: int = 0
    """Policy version at the last update."""

    @property
    def beta(self) -> tuple[float, float]:
        """Both parameters of the posterior."""
        return PRIOR + self.successes, PRIOR + max(0.0, self.attempts - self.successes)


def updated(evidence: Evidence, *, attempts: int, successes: float, version: int, decay: float) -> Evidence:
    """The evidence after one more group, judged when `version` was the newest."""
    kept = decay ** max(0, version - evidence.seen)
    return Evidence(kept * evidence.attempts + attempts, kept * evidence.successes + successes, version)


def keep(q: float, group_size: int) -> float:
    """The chance that a group is kept whose answers are right with chance q."""
    return 1.0 - q**group_size - (1.0 - q) ** group_size


def expected_keep(a: Number, b: Number, group_size: int) -> Number:
    """The same under the posterior; for arrays and for numbers alike, to the last bit."""
    right, wrong, both = a / (a + b), b / (a + b), a + b
    for i in range(1, group_size):
        right = right * ((a + i) / (both + i))
        wrong = wrong * ((b + i) / (both + i))
    return 1.0 - right - wrong


def is_solved(a: Number, b: Number, expected: Number) -> bool | NDArray[np.bool_]:
    """Whether a group is more likely to be all right than to be kept."""
    return (a > b) & (expected < 0.5)
