"""The prompts of each category, by how likely a group of them is kept: Thompson sampling in O(log n).

    candidates   4, each drawn in proportion to its expected chance E[keep(q)]
    choice       q ~ posterior for each; the candidate with the greatest keep(q)

Thompson sampling over all prompts would draw n numbers and hammer the few luckiest: keep(q) is flat around 1/2, so
thousands are as good. A prompt that is out has no weight until it comes back, nor has a solved one that rests. The
weight is a function of what is known alone, so a new process builds the same trees.
"""

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from services.filter.sampling.posterior import PRIOR, expected_keep, is_solved, keep
from services.filter.sampling.prompts import Prompts
from services.filter.sampling.tree import SumTree

CANDIDATES = 4
LEAST_WEIGHT = 1e-6


class Pool:
    """One tree a category; categories by number."""

    def __init__(self, prompts: Prompts, categories: NDArray[np.int32], *, group_size: int) -> None:
        """`categories` has the number of each row's category; all numbers occur."""
        self.category = categories
        self._prompts = prompts
        self._group_size = group_size
        self._members = np.split(
            np.argsort(categories, kind="stable"), np.cumsum(np.bincount(categories))[:-1]
        )  # fmt: skip
        self._place = np.empty(len(categories), dtype=np.int64)
        for members in self._members:
            self._place[members] = np.arange(len(members))
        self._out: Counter[int] = Counter()
        self._epoch = -1
        self._trees: list[SumTree] = []

    def begin(self, epoch: int, out: Sequence[int]) -> None:
        """Build the trees for an epoch, with these rows out: O(n)."""
        self._epoch, self._out = epoch, Counter(out)
        weights = self._weights()
        weights[list(self._out)] = 0.0
        self._trees = [SumTree(weights[members]) for members in self._members]

    def draw(self, category: int, rng: random.Random) -> int | None:
        """A row of the category; None if all of it is out or rests."""
        tree, members = self._trees[category], self._members[category]
        if tree.total <= 0.0:
            return None
        candidates = [int(members[tree.find(rng.random())]) for _ in range(CANDIDATES)]
        return max(candidates, key=lambda row: self._sampled_keep(row, rng))

    def any_of(self, category: int, rng: random.Random) -> int:
        """Any row of the category, out or not."""
        members = self._members[category]
        return int(members[rng.randrange(len(members))])

    def take(self, row: int) -> None:
        """A prompt goes out."""
        self._out[row] += 1
        self.refresh(row)

    def put_back(self, row: int) -> None:
        """It came back, or will not."""
        self._out[row] -= 1
        if not self._out[row]:
            del self._out[row]
        self.refresh(row)

    def refresh(self, row: int) -> None:
        """What is known of a prompt has changed: O(log n)."""
        self._trees[self.category[row]][self._place[row]] = 0.0 if row in self._out else self._weight(row)

    def _sampled_keep(self, row: int, rng: random.Random) -> float:
        return keep(rng.betavariate(*self._prompts.evidence(row).beta), self._group_size)

    def _weight(self, row: int) -> float:
        a, b = self._prompts.evidence(row).beta
        expected = expected_keep(a, b, self._group_size)
        rests = is_solved(a, b, expected) and self._prompts.due[row] > self._epoch
        return 0.0 if rests else expected + LEAST_WEIGHT

    def _weights(self) -> NDArray[np.float64]:
        """`_weight` of every row, to the last bit."""
        attempts, successes = (x.astype(np.float64) for x in (self._prompts.attempts, self._prompts.successes))
        a, b = PRIOR + successes, PRIOR + np.maximum(0.0, attempts - successes)
        expected = expected_keep(a, b, self._group_size)
        rests = is_solved(a, b, expected) & (self._prompts.due > self._epoch)
        return np.where(rests, 0.0, expected + LEAST_WEIGHT)
