"""Claims with a known effect, drawn and judged: false verdicts are rare, true effects are found.

Examples that are hard are hard for all runs, and seeds differ by SPREAD points. Claim i is drawn
from the seed [7, i], so claims of several effects share their draws.
"""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from lib.measure import claims
from lib.measure.cells import cell
from lib.measure.stats import Pair, paired_difference

ROWS, LEVEL, SHARED = 872, 0.90, 0.95  # of SST-2: intervals of three seeds are 3 points wide
SPREAD = 0.6  # points between seeds, as in the trials on SST-2


def claim(rng, effects, seeds, tasks):
    """The word on a claim whose cells have these true effects in points.

    They share baseline and examples.
    """
    labels, pairs = np.ones(ROWS, int), [[] for _ in effects]
    for task in map(str, range(tasks)):
        ease = np.sqrt(SHARED) * rng.standard_normal(ROWS)
        for seed in range(seeds):
            shifts = rng.normal(0, SPREAD / np.sqrt(2), len(effects) + 1) + (0.0, *effects)
            scores = ease + np.sqrt(1 - SHARED) * rng.standard_normal((len(shifts), ROWS))
            right = scores < norm.ppf(LEVEL + shifts / 100)[:, None]
            baseline, *methods = right.astype(int)
            for group, said in zip(pairs, methods, strict=True):
                group.append(Pair(task, seed, labels, said, baseline, "accuracy"))
    told = [paired_difference(each) for each in pairs]
    results = [claims.Result(cell("a > b"), "", e, seeds, seeds) for e in told]
    return claims.verdict(results)[0]


def judged(effects, seeds, tasks, times):
    """The share of each word over so many claims."""
    found = [claim(np.random.default_rng([7, i]), effects, seeds, tasks) for i in range(times)]
    return {word: n / times for word, n in Counter(found).items()}


def false(shares, times):
    """Asserts that false words are as rare as 2.5 %, but for the chance of counting."""
    most = 0.025 + 3 * np.sqrt(0.025 / times)
    assert all(shares.get(word, 0) < most for word in ("CONFIRMED", "CONTRADICTED")), shares


@pytest.mark.parametrize(
    "times",
    [40, pytest.param(1000, marks=pytest.mark.slow)],  # 1,000 take two minutes of a core
)
@pytest.mark.parametrize("seeds, tasks", product((3, 5), (1, 3)))
def test_false_verdicts_are_rare(seeds, tasks, times):
    false(judged((0.0,), seeds, tasks, times), times)


def test_false_verdicts_on_several_cells_are_rare():
    false(judged((0.0, 4.0), 3, 1, 40), 40)


def test_a_large_effect_is_found():
    assert judged((2.1,), 3, 1, 60)["CONFIRMED"] > 0.5
