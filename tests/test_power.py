"""Simulated claims with known effects: false verdicts are rare, and `power` keeps its promise."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from lib.measure.simulate import SEEDS, TASKS, simulated, table
from lib.paths import DATA

RECORDED = DATA / "records" / "simulated.csv"
CELLS = list(product(SEEDS, TASKS))


def false(shares, times):
    """Asserts that false words are as rare as 2.5 %, but for the chance of counting."""
    most = 0.025 + 3 * np.sqrt(0.025 / times)
    assert all(shares.get(word, 0) < most for word in ("CONFIRMED", "CONTRADICTED")), shares


@pytest.mark.parametrize("seeds, tasks", CELLS)
def test_false_verdicts_are_rare(seeds, tasks):
    false(simulated((0.0,), seeds, tasks, 40)[0], 40)


def test_false_verdicts_on_several_cells_are_rare():
    false(simulated((0.0, 4.0), 3, 1, 40)[0], 40)


def test_power_is_what_is_found():
    shares, told = simulated((2.1,), 3, 1, 60)
    assert shares["CONFIRMED"] > 0.5 and told == pytest.approx(shares["CONFIRMED"], abs=0.2)


def test_in_a_thousand_recorded_claims_false_verdicts_are_at_most_nominal():
    found = pd.read_csv(RECORDED)
    none = found[found["true effect"] == 0]
    assert list(zip(none["seeds"], none["tasks"], strict=True)) == CELLS
    assert (none["claims"] == 1000).all()
    assert (none[["confirmed", "contradicted"]] <= 2.5).all(axis=None)
    some = found[found["true effect"] > 0]
    assert (abs(some["power told"] - some["confirmed"]) < 12).all() and not some[
        "contradicted"
    ].any()


@pytest.mark.slow
def test_the_recorded_simulation_is_made_again():
    """Two minutes of a core."""
    found = table(1000)
    print(found.to_string(index=False))
    pd.testing.assert_frame_equal(found, pd.read_csv(RECORDED), atol=0.2)
