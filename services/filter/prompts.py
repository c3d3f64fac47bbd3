"""Which row comes next: uniform over the data, by ordinal, so that one number is the whole state.

ordinal n  ->  epoch n // rows, place n % rows  ->  row permutation_epoch[place]  ->  id "EPOCH/PLACE"
"""

import hashlib

import numpy as np
from numpy.typing import NDArray


class UniformSampler:
    """Every row once per epoch, in an order that depends on the seed and the epoch alone."""

    def __init__(self, num_rows: int, *, seed: int) -> None:
        self._num_rows = num_rows
        self._seed = seed
        self._epoch = -1
        self._permutation: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def row(self, ordinal: int) -> int:
        """The row of the n-th prompt."""
        epoch, place = divmod(ordinal, self._num_rows)
        if epoch != self._epoch:
            self._permutation = np.random.default_rng([self._seed, epoch]).permutation(self._num_rows)
            self._epoch = epoch
        return int(self._permutation[place])

    def id(self, ordinal: int) -> str:
        """The id of the n-th prompt."""
        epoch, place = divmod(ordinal, self._num_rows)
        return f"{epoch}/{place:06d}"

    def ordinal(self, group: str) -> int:
        """The ordinal of an id; a reissued prompt (`~1`) has that of its first issue."""
        epoch, _, place = group.partition("~")[0].partition("/")
        return int(epoch) * self._num_rows + int(place)


def sampling_seed(run_seed: int, group: str) -> int:
    """The engine's seed for a group: 63 bits of a hash, so that groups do not share random numbers."""
    digest = hashlib.blake2b(f"{run_seed}:{group}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def reissued(group: str) -> str:
    """The id under which the prompt of a dropped group is issued again."""
    first, _, attempt = group.partition("~")
    return f"{first}~{int(attempt or 0) + 1}"
