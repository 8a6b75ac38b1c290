"""Simulated claims with known effects: how often their verdicts are false, and whether `power`
keeps what it promises.

    python -m lib.measure.simulate 1000 data/records/simulated.csv

Each claim has rows, seeds and tasks as the recorded runs have. Examples that are hard are hard for
all runs, and seeds differ by SPREAD points. Claim i is drawn from the seed [7, i], so claims of
several effects share their draws.
"""

import sys
from collections import Counter
from itertools import product

import numpy as np
from scipy.stats import norm
from threadpoolctl import threadpool_limits  # comes with scikit-learn

from lib import pd
from lib.measure.stats import Pair, paired_difference
from lib.measure.verdict import judge_delta

ROWS, LEVEL, SHARED = 872, 0.90, 0.95  # of SST-2: intervals of three seeds are 3 points wide
SPREAD = 0.6  # points between seeds, as in the trials on SST-2
PRINTED = 1.3  # points that a claim without an effect prints
EFFECTS, SEEDS, TASKS = (0.0, 1.3, 2.1), (3, 5), (1, 3)


def claim(rng, effects, seeds, tasks, draws=200):
    """The Verdict on a claim whose cells have these true effects in points, and share baseline and
    examples."""
    labels, pairs = np.ones(ROWS, int), [[] for _ in effects]
    for task in map(str, range(tasks)):
        ease = np.sqrt(SHARED) * rng.standard_normal(ROWS)
        for seed in range(seeds):
            shifts = rng.normal(0, SPREAD / np.sqrt(2), len(effects) + 1) + (0.0, *effects)
            own = ease + np.sqrt(1 - SHARED) * rng.standard_normal((len(shifts), ROWS))
            right = own < norm.ppf(LEVEL + shifts / 100)[:, None]
            baseline, *methods = right.astype(int)
            for cell, said in zip(pairs, methods, strict=True):
                cell.append(Pair(task, seed, labels, said, baseline, "accuracy"))
    found = {str(i): paired_difference(cell, draws) for i, cell in enumerate(pairs)}
    printed = {name: max(e, PRINTED) for name, e in zip(found, effects, strict=True)}
    return judge_delta("G1", found, printed, "mini")


def simulated(effects, seeds, tasks, times):
    """(share of each word, mean power told) over so many simulated claims."""
    found = [claim(np.random.default_rng([7, i]), effects, seeds, tasks) for i in range(times)]
    words = Counter(each.verdict for each in found)
    told = float(np.mean([float(each.power.split()[1]) for each in found]))
    return {word: n / times for word, n in words.items()}, told


def line(effect, seeds, tasks, times):
    """What `simulated` claims of one cell come to, in per cent."""
    shares, told = simulated((effect,), seeds, tasks, times)
    words = ("CONFIRMED", "CONTRADICTED", "CONSISTENT", "INCONCLUSIVE")
    found = {word.lower(): round(100 * shares.get(word, 0.0), 1) for word in words}
    return (
        {"true effect": effect, "seeds": seeds, "tasks": tasks, "claims": times}
        | found
        | {"power told": round(100 * told, 1)}
    )


def table(times):
    """DataFrame of a line for each true effect, number of seeds and of tasks; a fifth of the claims
    where there is an effect."""
    cells = product(EFFECTS, SEEDS, TASKS)
    with threadpool_limits(1):
        return pd.DataFrame([line(*cell, times // 5 if cell[0] else times) for cell in cells])


if __name__ == "__main__":
    found = table(int(sys.argv[1]))
    print(found.to_string(index=False))
    if len(sys.argv) > 2:
        found.to_csv(sys.argv[2], index=False)
