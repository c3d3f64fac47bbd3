"""A fixed mixture of categories, each shuffled: plain DAPO over several data sets, told by ordinal alone.

epoch     as many draws as there are rows; category c gets share w_c of them, to one draw, in shuffled order
inside c  every row once before any comes again, in an order of its own
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from services.filter.prompts import CountingSampler, UniformSampler


class MixtureSampler(CountingSampler):
    """Rows of categories by weight."""

    def __init__(self, categories: Sequence[str], *, weights: Mapping[str, float], seed: int) -> None:
        super().__init__(len(categories))
        self._seed = seed
        names = [name for name in sorted(set(categories)) if weights.get(name, 0.0) > 0.0]
        rows_of: dict[str, list[int]] = {name: [] for name in names}
        for row, name in enumerate(categories):
            if name in rows_of:
                rows_of[name].append(row)
        self._members = list(rows_of.values())
        self._inside = [UniformSampler(len(m), seed=seed + 1 + n) for n, m in enumerate(self._members)]
        self._quotas = quotas([weights[name] for name in names], self.epoch_length)
        self._epoch = -1
        self._which: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._before: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def row(self, ordinal: int) -> int:
        """The row of the n-th prompt."""
        epoch, place = divmod(ordinal, self.epoch_length)
        if epoch != self._epoch:
            self._plan(epoch)
        category = int(self._which[place])
        count = epoch * self._quotas[category] + int(self._before[place])
        return self._members[category][self._inside[category].row(count)]

    def _plan(self, epoch: int) -> None:
        """The category of every draw of an epoch, and how many draws of the same one come before it."""
        self._epoch = epoch
        order = np.repeat(np.arange(len(self._quotas)), self._quotas)
        self._which = np.random.default_rng([self._seed, epoch]).permutation(order)
        self._before = np.empty(len(order), dtype=np.int64)
        for category, quota in enumerate(self._quotas):
            self._before[self._which == category] = np.arange(quota)


def quotas(weights: Sequence[float], total: int) -> list[int]:
    """Whole numbers in proportion to the weights that add up to the total: largest remainders."""
    exact = np.asarray(weights) / sum(weights) * total
    shares = np.floor(exact).astype(int)
    shares[np.argsort(shares - exact, kind="stable")[: total - shares.sum()]] += 1
    return [int(share) for share in shares]
