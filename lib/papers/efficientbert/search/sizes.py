"""This module draws one of several options, such as a width, for each of L layers, so
that the total cost, such as the number of parameters, lies in a window.

All combinations in the window are equally likely. Rejection sampling would give the
same, but slowly; here the combinations are counted exactly."""

from bisect import bisect

import numpy as np


class LayerChoicesWithinCostWindow:
    """This class counts and draws combinations of one option for each layer.

    Each option has a cost. Only combinations count whose total cost lies between
    `min_total_cost` and `max_total_cost`, both included. All of them are equally likely
    to be drawn. There must be fewer than 2**63 combinations.

    Attribute `ways[n]` is (sums [S], counts [S + 1]) for the last n layers: all
    possible total costs in ascending order, and the number of combinations below each
    of them, followed by that of all combinations.

    costs_by_layer: for each layer, the cost of each of its options, such as
    parameters."""

    def __init__(
        self, costs_by_layer: list[list[int]], min_total_cost: int, max_total_cost: int
    ) -> None:
        self.costs = [np.asarray(c, np.int64) for c in costs_by_layer]
        self.low = min_total_cost
        self.high = max_total_cost
        sums = np.zeros(1, np.int64)
        counts = np.ones(1, np.int64)
        self.ways = [(sums, np.array([0, 1]))]
        for layer_costs in reversed(self.costs):
            sums, where = np.unique(
                (sums[:, None] + layer_costs).ravel(), return_inverse=True
            )
            before = counts
            counts = np.zeros(len(sums), np.int64)
            np.add.at(counts, where, before.repeat(len(layer_costs)))
            self.ways.append((sums, np.concatenate([counts[:1] * 0, counts.cumsum()])))
        self._weights: dict[tuple[int, int], list[float]] = {}

    def count_combinations(self) -> int:
        """Count the combinations of options whose total cost is in the window.

        A combination has one option for each layer. The window is from `min_total_cost`
        to `max_total_cost`, both included. A result of 0 shows that no network fits."""
        return int(self.count_combinations_of_last_layers(0, 0))

    def count_combinations_of_last_layers(
        self, first_layer: int, cost_of_earlier_layers: int | np.ndarray
    ) -> np.int64 | np.ndarray:
        """Count the combinations for the last layers that bring the cost into the
        window.

        A combination has one option for each of the last layers, which are
        `first_layer`, counted from 0, and all after it. The window is that of the total
        cost, `min_total_cost` to `max_total_cost`. Random draws use the counts as
        weights.

        cost_of_earlier_layers: the cost of the layers before `first_layer`, one number
        or an array. The result has its shape."""
        sums, below = self.ways[len(self.costs) - first_layer]
        above = below[
            np.searchsorted(sums, self.high - cost_of_earlier_layers, "right")
        ]
        return above - below[np.searchsorted(sums, self.low - cost_of_earlier_layers)]

    def sample_choice_of_each_layer(self, rng: np.random.Generator) -> list[int]:
        """Draw an option for each layer such that the total cost lies in the window.

        Return the indices of the options, one for each of the L layers. All
        combinations in the window are equally likely. At least one must exist
        (`count_combinations`)."""
        drawn = []
        spent = 0
        for layer, dice in enumerate(rng.random(len(self.costs))):
            if (layer, spent) not in self._weights:
                ways = self.count_combinations_of_last_layers(
                    layer + 1, spent + self.costs[layer]
                )
                self._weights[layer, spent] = (
                    (ways / ways.sum()).astype(float).cumsum().tolist()
                )
            weights = self._weights[layer, spent]
            drawn.append(bisect(weights, dice * weights[-1]))
            spent += int(self.costs[layer][drawn[-1]])
        return drawn
