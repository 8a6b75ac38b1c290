"""Verdicts on simulated data with known effects: false ones are rare, and what `power` promises is
found.

`python tests/test_power.py 1000` prints the whole table; the quick tests draw fewer.
The seed of simulated claim i is [7, i].
"""

import sys
from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from lib.measure.stats import Pair, paired_difference
from lib.measure.verdict import judge_delta

ROWS, LEVEL, SHARED, SEEDS_SD = (
    872,
    0.90,
    0.95,
    0.6,
)  # of SST-2: intervals of three seeds are about 3 points wide


def runs(rng, ease, shifts):
    """Logits [N, 2] of one run for each shift of its accuracy, in points; hard examples are hard
    for all runs.
    """
    for shift in shifts:
        own = np.sqrt(SHARED) * ease + np.sqrt(1 - SHARED) * rng.standard_normal(len(ease))
        yield np.eye(2)[(own < norm.ppf(LEVEL + shift / 100)).astype(int)]


def judged(rng, effects, seeds, tasks, draws):
    """A verdict on a claim whose cells have these true effects, and which share baseline and
    examples.
    """
    labels, pairs = np.ones(ROWS, int), [[] for _ in effects]
    for task in range(tasks):
        ease = rng.standard_normal(ROWS)
        for seed in range(seeds):
            noise = rng.normal(0, SEEDS_SD / np.sqrt(2), len(effects) + 1)
            baseline, *methods = runs(rng, ease, noise + np.array([0.0, *effects]))
            for cell, logits in zip(pairs, methods, strict=True):
                cell.append(Pair(str(task), seed, labels, logits, baseline, "accuracy"))
    cells = {str(i): paired_difference(cell, draws=draws) for i, cell in enumerate(pairs)}
    return judge_delta(
        "G1",
        cells,
        {name: max(effect, 1.3) for name, effect in zip(cells, effects, strict=True)},
        "mini",
    )


def simulated(effects, seeds, tasks, times, draws=400):
    """(share of each word, mean power told) over so many simulated claims."""
    found = [
        judged(np.random.default_rng([7, i]), effects, seeds, tasks, draws) for i in range(times)
    ]
    return (
        {word: n / times for word, n in Counter(v.verdict for v in found).items()},
        float(np.mean([float(v.power.split()[1]) for v in found])),
    )


def false(shares, times):
    """Asserts that false words are as rare as 2.5 %, but for the chance of counting."""
    most = 0.025 + 3 * np.sqrt(0.025 / times)
    assert all(shares.get(word, 0) < most for word in ("CONFIRMED", "CONTRADICTED")), shares


@pytest.mark.parametrize("seeds, tasks", product((3, 5), (1, 3)))
def test_false_verdicts_are_rare(seeds, tasks):
    false(simulated((0.0,), seeds, tasks, 60, draws=100)[0], 60)


def test_false_verdicts_on_several_cells_are_rare():
    false(simulated((0.0, 4.0), 3, 1, 60, draws=100)[0], 60)


@pytest.mark.slow
@pytest.mark.parametrize("seeds, tasks", product((3, 5), (1, 3)))
def test_false_verdicts_are_rare_in_a_thousand(seeds, tasks):
    false(simulated((0.0,), seeds, tasks, 1000, draws=200)[0], 1000)


def test_power_is_what_is_found():
    """1,000 simulated claims: 0.70 found, 0.76 told; with a gate on the smallest detectable effect
    0.39.
    """
    shares, told = simulated((2.1,), 3, 1, 60, draws=200)
    assert shares["CONFIRMED"] > 0.5 and told == pytest.approx(shares["CONFIRMED"], abs=0.2)


if __name__ == "__main__":
    for effect, seeds, tasks in product((0.0, 1.3, 2.1), (3, 5), (1, 3)):
        shares, told = simulated((effect,), seeds, tasks, int(sys.argv[1]), draws=200)
        found = ", ".join(f"{word} {share:.3f}" for word, share in sorted(shares.items()))
        print(f"effect {effect}, {seeds} seeds, {tasks} tasks: {found}; power told {told:.2f}")
