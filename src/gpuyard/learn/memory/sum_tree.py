"""Draws by weight from many entries whose weights keep changing."""

import numpy as np
from numpy.typing import NDArray


class SumTree:
    """A binary tree whose leaves hold weights and whose other nodes hold the sum of their two children.

    Drawing and changing weights take time in the logarithm of the number of entries. The sums depend on the
    weights alone, not on the order in which they were set: a tree of the same weights draws the same.

    Args:
        size: Number of entries; all weights begin at 0.
    """

    def __init__(self, size: int) -> None:
        self._first = 1 << max(0, size - 1).bit_length()  # node of the first leaf; node 1 is the root
        self._sums = np.zeros(2 * self._first)

    @property
    def total(self) -> float:
        """Of all weights."""
        return float(self._sums[1])

    def values(self, entries: NDArray[np.int64]) -> NDArray[np.float64]:
        """Their weights."""
        return self._sums[self._first + entries]

    def set(self, entries: NDArray[np.int64], weights: NDArray[np.float64]) -> None:
        """Change weights; of an entry that is named twice, to the last."""
        self._sums[self._first + entries] = weights
        nodes = (self._first + entries) >> 1
        while len(nodes) and nodes[0] > 0:  # all on the same level
            self._sums[nodes] = self._sums[2 * nodes] + self._sums[2 * nodes + 1]
            nodes = nodes >> 1

    def sample(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Entries in proportion to their weights, one from each of ``count`` equal shares of the total."""
        left_over = (np.arange(count) + rng.random(count)) / count * self.total
        nodes = np.ones(count, np.int64)
        while nodes[0] < self._first:
            left, right = self._sums[2 * nodes], self._sums[2 * nodes + 1]
            to_right = (left_over >= left) & (right > 0)  # rounding must not lead to a weight of 0
            left_over = np.where(to_right, left_over - left, left_over)
            nodes = 2 * nodes + to_right
        return nodes - self._first
