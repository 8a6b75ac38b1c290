"""The plan of the seeds (`data/published/plan.csv`): its numbers follow from its
rows."""

import csv
from math import inf, isinf, prod, sqrt

import numpy as np
import pytest
from scipy import stats

from lib.core.paths import PUBLISHED

ROWS = list(csv.DictReader((PUBLISHED / "plan.csv").open(encoding="utf-8")))
COMMON = (
    0.3  # share of the examples' variance at one seed that more seeds do not take away
)


def numbers(row, name):
    """Numbers of a column, one a cell; None where the paper prints none."""
    return [
        None if x in ("none", "–") else float(x) for x in row[name].split("; ") if x
    ]


def ends(region):
    """(low, high) of "> 0", "< 0.5" or "-0.2 to 0.2"."""
    low, _, high = region.partition(" to ")
    if high:
        return float(low), float(high)
    sign, end = region.split()
    return (float(end), inf) if sign == ">" else (-inf, float(end))


def power(spread, noise, n, effect, low, high):
    """How often the 95 % interval of n paired differences lies within (low, high).

    effect: the true mean. spread: their sd over seeds. noise: the sd of the mean that
    examples alone cause, whatever the seeds."""
    of_seeds = spread**2 / n
    total = of_seeds + noise**2
    freedom = (n - 1) * (total / of_seeds) ** 2
    edge = stats.t.ppf(0.975, freedom)
    found = [
        1.0 if isinf(room) else stats.nct.sf(edge, freedom, room / sqrt(total))
        for room in (effect - low, high - effect)
    ]
    return float(np.clip(np.nan_to_num(sum(found) - 1), 0, 1))


def powers(row, seeds):
    """Power of each cell with so many seeds."""
    printed, interest = numbers(row, "printed"), numbers(row, "interest")
    effects = [
        b if a is None else a for a, b in zip(printed, interest or printed, strict=True)
    ]
    regions = map(ends, row["region"].split("; "))
    of = zip(
        effects, regions, numbers(row, "spread"), numbers(row, "noise"), strict=True
    )
    return [
        power(
            spread, noise * sqrt(COMMON + (1 - COMMON) / seeds), seeds, effect, *region
        )
        for effect, region, spread, noise in of
    ]


def test_power_is_that_of_students_test():
    drawn = np.random.default_rng(4).normal(2.8, 2.0, (4000, 6))
    found = (stats.ttest_1samp(drawn, 0, axis=1).pvalue < 0.05).mean()
    assert power(2.0, 1e-9, 6, 2.8, 0, inf) == pytest.approx(found, abs=0.02)
    assert power(2.0, 1e-9, 6, 0.0, 0, inf) == pytest.approx(0.025)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row["noise"]], ids=lambda row: row["claim"]
)
def test_powers(row):
    """Each power follows from effect, region, spread and noise, and the word from the
    power."""
    seeds, at = int(row["seeds"]), int(row["power_at"])
    assert "; ".join(f"{p:.2f}" for p in powers(row, at)) == row["power_by_cell"]
    assert f"{prod(powers(row, at)):.2f}" == row["power"]
    if row["word"] == "decidable":
        assert at == seeds and prod(powers(row, at)) >= 0.8
    elif row["word"].startswith(
        "decidable"
    ):  # some of its cells, which have words of their own
        assert sum(p >= 0.8 for p in powers(row, seeds)) and max(powers(row, 10)) > 0.8
    elif row["word"].startswith("not"):
        assert prod(powers(row, 10)) < 0.8 and seeds <= 3


def test_claims():
    """Every central claim is planned once; seeds of further findings begin at 20."""
    central = {row["id"] for row in csv.DictReader((PUBLISHED / "central.csv").open())}
    planned = [row["claim"] for row in ROWS]
    assert len({*planned}) == len(planned) and central <= {*planned}
    assert {row["claim"] for row in ROWS if row["first_seed"] == "20"} == {
        *planned
    } - central - {
        "F1",
        "F2",
        "F3",
    }


def test_core_hours():
    assert sum(float(row["core_seconds"]) for row in ROWS) <= 30 * 3600


def test_words():
    """A word that is no verdict tells its reason with a number."""
    for row in ROWS:
        assert row["word"].startswith(
            ("decidable", "not decidable at mini", "not testable")
        )
        assert row["word"] == "decidable" or any(map(str.isdigit, row["why"])), row[
            "claim"
        ]
