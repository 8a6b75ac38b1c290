"""This module draws choices for L layers whose sizes add up to a number in a window.

The choices are counted exactly and drawn uniformly."""

from bisect import bisect

import numpy as np


class Sizes:
    """A Sizes is the set of ways to choose for each layer, with a sum from low to high.

    costs_by_layer: for each layer, the parameters of each of its choices. `ways[n]` is
    found by convolution of histograms: (sums of the last n layers, ascending; number of
    choices for these layers below each sum, and in all). There are fewer than 2**63
    choices."""

    def __init__(
        self, costs_by_layer: list[list[int]], min_total: int, max_total: int
    ) -> None:
        self.costs, self.low, self.high = (
            [np.asarray(c, np.int64) for c in costs_by_layer],
            min_total,
            max_total,
        )
        sums, counts = np.zeros(1, np.int64), np.ones(1, np.int64)
        self.ways = [(sums, np.array([0, 1]))]
        for layer_costs in reversed(self.costs):
            sums, where = np.unique(
                (sums[:, None] + layer_costs).ravel(), return_inverse=True
            )
            before, counts = counts, np.zeros(len(sums), np.int64)
            np.add.at(counts, where, before.repeat(len(layer_costs)))
            self.ways.append((sums, np.concatenate([counts[:1] * 0, counts.cumsum()])))
        self._weights: dict[tuple[int, int], list[float]] = {}

    def count_all(self) -> int:
        """Return the number of ways to choose for all layers."""
        return int(self.count_choices(0, 0))

    def count_choices(
        self, first_layer: int, cost_before: int | np.ndarray
    ) -> np.int64 | np.ndarray:
        """Return how many choices for `first_layer` and those after it end in the
        window.

        cost_before: the cost of the layers before it.
        """
        sums, below = self.ways[len(self.costs) - first_layer]
        above = below[np.searchsorted(sums, self.high - cost_before, "right")]
        return above - below[np.searchsorted(sums, self.low - cost_before)]

    def draw_choices(self, rng: np.random.Generator) -> list[int]:
        """Return one way, drawn uniformly: the index of each layer's choice [L]."""
        drawn, spent = [], 0
        for layer, dice in enumerate(rng.random(len(self.costs))):
            if (layer, spent) not in self._weights:
                ways = self.count_choices(layer + 1, spent + self.costs[layer])
                self._weights[layer, spent] = (
                    (ways / ways.sum()).astype(float).cumsum().tolist()
                )
            weights = self._weights[layer, spent]
            drawn.append(bisect(weights, dice * weights[-1]))
            spent += int(self.costs[layer][drawn[-1]])
        return drawn
