"""Weights of which one is drawn in proportion, and changed, in O(log n).

A binary tree of sums in one array: node k is the sum of nodes 2k and 2k + 1, the leaves come last. A sum is always
computed from its two parts, never corrected by a difference, so it does not drift, and a tree that is built anew from
its leaves is the same to the last bit.
"""

from array import array

import numpy as np
from numpy.typing import NDArray


class SumTree:
    """n weights, none negative."""

    def __init__(self, weights: NDArray[np.float64]) -> None:
        """Build from the leaves: O(n)."""
        self._first = 1 << max(0, len(weights) - 1).bit_length()
        nodes = np.zeros(2 * self._first)
        nodes[self._first : self._first + len(weights)] = weights
        level = self._first
        while level > 1:
            level //= 2
            nodes[level : 2 * level] = nodes[2 * level : 4 * level : 2] + nodes[2 * level + 1 : 4 * level : 2]
        self._nodes = array("d", nodes.tobytes())

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return self._nodes[1]

    def __getitem__(self, leaf: int) -> float:
        return self._nodes[self._first + leaf]

    def __setitem__(self, leaf: int, weight: float) -> None:
        nodes, node = self._nodes, self._first + leaf
        nodes[node] = weight
        while node > 1:
            node >>= 1
            nodes[node] = nodes[2 * node] + nodes[2 * node + 1]

    def find(self, share: float) -> int:
        """The leaf at which the running sum of the weights passes `share` (in [0, 1)) of the total."""
        nodes, node, rest = self._nodes, 1, share * self._nodes[1]
        while node < self._first:
            node *= 2
            if rest >= nodes[node] and nodes[node + 1] > 0.0:
                rest -= nodes[node]
                node += 1
        return node - self._first
