"""Which row comes next: the protocol of samplers, and the plain one: uniform over the data, by ordinal alone.

ordinal n  ->  epoch n // rows, place n % rows  ->  row permutation_epoch[place]  ->  id "EPOCH/PLACE"
"""

import hashlib
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from common.messages import Feedback, Scored


class Sampler(Protocol):
    """Chooses a row for every ordinal, and is told what becomes of it."""

    @property
    def epoch_length(self) -> int:
        """Draws in an epoch; another number gives the ordinals other ids."""

    def id(self, ordinal: int) -> str:
        """The id of the n-th prompt."""

    def ordinal(self, group: str) -> int:
        """The ordinal of an id; a reissued prompt has that of its first issue."""

    def row(self, ordinal: int) -> int:
        """The row of the n-th prompt."""

    def judged(self, group: str, scored: Scored, *, kept: bool, version: int) -> None:
        """A group came back for the first time, when `version` was the newest."""

    def batched(self, group: str, age: int) -> None:
        """A group goes into a batch at this age."""

    def trained(self, feedback: Feedback) -> None:
        """A step is trained; its groups have not ended yet."""

    def ended(self, group: str) -> None:
        """A group is trained or dropped, and will not be issued again."""

    def file(self) -> tuple[str, bytes] | None:
        """Name and content of a file that must be in the run folder before the state is written."""


class CountingSampler:
    """What a sampler needs whose whole state is the next ordinal."""

    def __init__(self, epoch_length: int) -> None:
        self.epoch_length = epoch_length

    def id(self, ordinal: int) -> str:
        """The id of the n-th prompt."""
        return numbered(ordinal, self.epoch_length)

    def ordinal(self, group: str) -> int:
        """The ordinal of an id; a reissued prompt has that of its first issue."""
        return number_of(group, self.epoch_length)

    def judged(self, group: str, scored: Scored, *, kept: bool, version: int) -> None:
        """Nothing is learned from it."""

    def batched(self, group: str, age: int) -> None:
        """Nothing is learned from it."""

    def trained(self, feedback: Feedback) -> None:
        """Nothing is learned from it."""

    def ended(self, group: str) -> None:
        """Nothing is remembered of it."""

    def file(self) -> tuple[str, bytes] | None:
        """Nothing to keep."""
        return None


class UniformSampler(CountingSampler):
    """Every row once per epoch, in an order that depends on the seed and the epoch alone."""

    def __init__(self, num_rows: int, *, seed: int) -> None:
        super().__init__(num_rows)
        self._seed = seed
        self._epoch = -1
        self._permutation: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def row(self, ordinal: int) -> int:
        """The row of the n-th prompt."""
        epoch, place = divmod(ordinal, self.epoch_length)
        if epoch != self._epoch:
            self._permutation = np.random.default_rng([self._seed, epoch]).permutation(self.epoch_length)
            self._epoch = epoch
        return int(self._permutation[place])


def numbered(ordinal: int, epoch_length: int) -> str:
    """`EPOCH/PLACE`."""
    epoch, place = divmod(ordinal, epoch_length)
    return f"{epoch}/{place:06d}"


def number_of(group: str, epoch_length: int) -> int:
    """The ordinal of an id, without the attempt (`~1`)."""
    epoch, _, place = group.partition("~")[0].partition("/")
    return int(epoch) * epoch_length + int(place)


def sampling_seed(run_seed: int, group: str) -> int:
    """The engine's seed for a group: 63 bits of a hash, so that groups do not share random numbers."""
    digest = hashlib.blake2b(f"{run_seed}:{group}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def reissued(group: str) -> str:
    """The id under which the prompt of a dropped group is issued again."""
    first, _, attempt = group.partition("~")
    return f"{first}~{int(attempt or 0) + 1}"
