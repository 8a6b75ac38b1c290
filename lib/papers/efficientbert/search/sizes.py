"""This module draws a choice for each of L layers, such that the total cost lies in a
window.

All choices in the window are equally likely, which rejection sampling would also give,
but slowly. They are counted exactly."""

from bisect import bisect

import numpy as np


class LayerChoices:
    """This class is the set of all choices, one option for each layer, whose costs add
    up to a total in a window.

    Its attribute `ways[n]` has, for the last n layers: (all sums of their costs,
    ascending; number of choices below each sum, then the number of all choices). It is
    computed by convolution. There must be fewer than 2**63 choices.

    costs_by_layer: for each layer, the cost of each of its options, here parameters.
    min_total, max_total: the window, both ends included."""

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

    def count_combinations(self) -> int:
        """Return the number of choices for all layers whose total cost lies in the
        window."""
        return int(self.count_combinations_from_layer(0, 0))

    def count_combinations_from_layer(
        self, first_layer: int, cost_before: int | np.ndarray
    ) -> np.int64 | np.ndarray:
        """Return how many choices for `first_layer` and the layers after it make the
        total cost fall in the window.

        cost_before: the cost of the layers before `first_layer`, one number or an
        array."""
        sums, below = self.ways[len(self.costs) - first_layer]
        above = below[np.searchsorted(sums, self.high - cost_before, "right")]
        return above - below[np.searchsorted(sums, self.low - cost_before)]

    def draw_choices(self, rng: np.random.Generator) -> list[int]:
        """Return the index of the option of each layer [L], drawn uniformly from all
        choices in the window."""
        drawn, spent = [], 0
        for layer, dice in enumerate(rng.random(len(self.costs))):
            if (layer, spent) not in self._weights:
                ways = self.count_combinations_from_layer(
                    layer + 1, spent + self.costs[layer]
                )
                self._weights[layer, spent] = (
                    (ways / ways.sum()).astype(float).cumsum().tolist()
                )
            weights = self._weights[layer, spent]
            drawn.append(bisect(weights, dice * weights[-1]))
            spent += int(self.costs[layer][drawn[-1]])
        return drawn
