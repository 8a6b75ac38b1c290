"""A made-up search problem with a known answer, to compare samplers in seconds.

A network's score is a sum of one term for each layer's id and one for the ids of each two
neighbouring layers, all drawn from a seed. It is what EfficientBERT's stage 3 would see without
noise if layers mattered alone and in pairs. L layers, S possible sizes.
"""

from dataclasses import dataclass

import numpy as np

from lib.search.space import IDS, number


@dataclass(frozen=True)
class Landscape:
    single: np.ndarray  # [L, 16]
    pair: np.ndarray  # [L - 1, 16, 16]: id of a layer, id of the next
    level: float  # score of a network whose terms are 0

    def __call__(self, net):
        """The score of a network of L layers."""
        ids = [number(layer) for layer in net.layers]
        singles = self.single[range(len(ids)), ids].sum()
        pairs = self.pair[range(len(ids) - 1), ids[:-1], ids[1:]].sum()
        return float(self.level + singles + pairs)

    def best(self, space):
        """(ids, score) of the best network of a stage-3 space, exactly.

        Dynamic programming over the size so far and the last id.
        """
        sizes, sums, ways, costs = space.sizes, np.zeros(1, np.int64), [], np.array(space.costs[0])
        value, count = np.zeros((1, 1)), len(IDS)  # value: [S, 16]; no layer has no id
        pairs = [np.zeros((1, count)), *self.pair]
        for own, pair, choices in zip(self.single, pairs, space.choices, strict=True):
            own = np.where(np.isin(np.arange(count), choices), own, -np.inf)
            totals = value[:, :, None] + pair  # [S, id, next id]
            sums, where = np.unique((sums[:, None] + costs).ravel(), return_inverse=True)
            where = where.reshape(len(value), -1)  # [S, 16]: place of the new sum
            came = np.arange(len(value))[:, None].repeat(count, 1)
            value = np.full((len(sums), count), -np.inf)
            origin = np.zeros((len(sums), count, 2), int)
            value[where, range(count)] = totals.max(1) + own
            origin[where, range(count)] = np.stack([came, totals.argmax(1)], -1)
            ways.append(origin)
        allowed = np.where(((sums >= sizes.low) & (sums <= sizes.high))[:, None], value, -np.inf)
        at, last = np.unravel_index(allowed.argmax(), allowed.shape)
        score, ids = float(self.level + allowed[at, last]), []
        for origin in reversed(ways):
            ids.append(int(last))
            at, last = origin[at, last]
        return ids[::-1], score


def landscape(seed, layers, level=0.75, spread=0.02, pairs=0.5):
    """Normal terms: a random network's score has mean `level` and standard deviation `spread`.

    pairs: the share of its variance that comes from pairs.
    """
    rng, neighbours = np.random.default_rng(seed), max(1, layers - 1)
    own, both = spread * np.sqrt((1 - pairs) / layers), spread * np.sqrt(pairs / neighbours)
    return Landscape(
        rng.normal(0, own, (layers, len(IDS))),
        rng.normal(0, both, (layers - 1, len(IDS), len(IDS))),
        level,
    )
