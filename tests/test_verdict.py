"""Every verdict is reachable, and the rules are total."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.measure.stats import Estimate
from lib.measure.verdict import (
    SCALES,
    WORDS,
    holm_over,
    judge_delta,
    judge_equal,
    judge_ordering,
    judge_trend,
    judge_within,
)

STOCHASTIC = set(WORDS) - {"NOT_RUN"}


def estimate(mean, half=0.5, n=5, spread=0.2, p=0.001):
    """An estimate of this mean and half width, well separated unless told."""
    return Estimate(mean, mean - half, mean + half, (mean,) * n, n, 2, spread, p, 2 * n)


ABOVE, BELOW = estimate(1.5), estimate(-1.5)
OPEN = estimate(0.1, half=2.0, spread=1.0, p=0.9)
NEAR = estimate(2.0, half=0.9, spread=1.6, p=0.02)  # holds 2.1, excludes 0, but five seeds detect 2.7
FEW = estimate(1.5, n=2)
PUBLISHED = {"1/12": 2.1, "3/12": 1.3}


@pytest.mark.parametrize("first, second, delta, ordering", [
    (ABOVE, ABOVE, "CONFIRMED", "CONFIRMED"),
    (ABOVE, OPEN, "PARTIAL", "PARTIAL"),
    (ABOVE, FEW, "PARTIAL", "PARTIAL"),
    (ABOVE, None, "PARTIAL", "PARTIAL"),
    (NEAR, ABOVE, "PARTIAL", "PARTIAL"),
    (ABOVE, BELOW, "PARTIAL", "CONTRADICTED"),
    (BELOW, OPEN, "CONTRADICTED", "CONTRADICTED"),
    (BELOW, None, "CONTRADICTED", "CONTRADICTED"),
    (OPEN, OPEN, "INCONCLUSIVE", "INCONCLUSIVE"),
    (NEAR, OPEN, "INCONCLUSIVE", "INCONCLUSIVE"),
    (NEAR, None, "INCONCLUSIVE", "INCONCLUSIVE"),
    (FEW, FEW, "INCONCLUSIVE", "INCONCLUSIVE"),
    (NEAR, estimate(1.3, half=0.6, spread=1.2, p=0.03), "CONSISTENT", "CONSISTENT"),
    (None, None, "NOT_RUN", "NOT_RUN"),
])
def test_decision_table(first, second, delta, ordering):
    cells = {name: e for name, e in zip(PUBLISHED, (first, second), strict=True) if e}
    assert judge_delta("G1", cells, PUBLISHED, "mini").verdict == delta
    assert judge_ordering("G4", cells, PUBLISHED, "mini").verdict == ordering
    assert judge_delta("G1", cells, PUBLISHED, "toy").verdict == "NOT_RUN"


def test_text_note_and_counts():
    v = judge_delta("G1", {"1/12": ABOVE, "3/12": estimate(0.4, 0.6, n=3, p=0.2)}, {**PUBLISHED, "9/12": 0.8},
                    "mini", failed=2)
    assert v.measured == ("+1.5 points at 1/12 [1.0, 2.0], n = 5 seeds; "
                          "+0.4 points at 3/12 [-0.2, 1.0], n = 3 seeds; not measured at 9/12")
    assert v.note == ("missing: 9/12; not proven to differ from 0: 3/12; "
                      "published size outside the interval: 1/12, 3/12; 2 failed or diverged runs left out")
    assert (v.claim, v.runs, v.scale) == ("G1", 32, "at mini scale")
    assert v.interval == pytest.approx((-0.2, 2.0))
    assert json.loads(json.dumps(dataclasses.asdict(v)))["verdict"] == "PARTIAL"
    assert judge_ordering("G4", {"k = 1": FEW}, {"k = 1": 0.9}, "mini", runs=7).measured.startswith(
        "+1.5 points over k = 1 [")
    assert judge_delta("G1", {}, {}, "mini", failed=3).verdict == "INCONCLUSIVE"  # run, and all of it failed
    assert judge_delta("G1", {}, {}, "mini").measured == "not measured"


def test_holm_decides_over_the_cells_and_over_a_family():
    weak = estimate(1.5, p=0.03)
    assert judge_delta("G5", {"a": weak}, {}, "mini").verdict == "CONFIRMED"
    assert judge_delta("G5", {"a": weak, "b": weak}, {}, "mini").verdict == "INCONCLUSIVE"  # 0.06
    family = holm_over({"G1": {"a": weak, "b": None}, "G2": {"c": ABOVE}, "G3": {"": OPEN}})
    assert family == {"G1": {"a": 0.06}, "G2": {"c": 0.003}, "G3": {"": 0.9}}
    assert judge_delta("G1", {"a": weak}, {}, "mini", p_values=family["G1"]).verdict == "INCONCLUSIVE"


def test_an_effect_below_the_smallest_detectable_is_inconclusive():  # 1.63 here
    assert judge_delta("G5", {"a": estimate(1.5, spread=0.5, n=3)}, {}, "mini").verdict == "INCONCLUSIVE"
    assert judge_delta("G5", {"a": estimate(1.7, spread=0.5, n=3)}, {}, "mini").verdict == "CONFIRMED"


def test_negative_published_effects_turn_the_claim():
    assert judge_delta("N1", {"70 %": BELOW}, {"70 %": -1.0}, "mini").verdict == "CONFIRMED"
    assert judge_delta("N1", {"70 %": ABOVE}, {"70 %": -1.0}, "mini").verdict == "CONTRADICTED"


def test_trend():
    down = estimate(-0.15, 0.05, spread=0.01)
    v = judge_trend("G3", down, -1, "mini", published=-0.143, unit="points per head")
    assert (v.verdict, v.measured) == ("CONFIRMED", "-0.150 points per head [-0.200, -0.100], n = 5 seeds")
    assert judge_trend("G3", down, -1, "mini").verdict == "CONFIRMED"
    assert judge_trend("G3", down, 1, "mini").verdict == "CONTRADICTED"
    assert judge_trend("G3", estimate(-0.15, 0.05, spread=0.5), -1, "mini", -0.143).verdict == "CONSISTENT"
    assert judge_trend("G3", estimate(-0.15, 0.05, spread=0.5), -1, "mini").verdict == "INCONCLUSIVE"
    assert judge_trend("G3", down, -1, "mini", p_value=0.2).verdict == "INCONCLUSIVE"
    assert judge_trend("G3", OPEN, -1, "mini").verdict == "INCONCLUSIVE"
    assert judge_trend("G3", None, -1, "mini").verdict == "NOT_RUN"
    assert judge_trend("G3", down, -1, "toy").verdict == "NOT_RUN"
    for sign, published in ((0, None), (-1, 0.2)):
        with pytest.raises(ValueError, match="sign"):
            judge_trend("G3", down, sign, "mini", published=published)


@pytest.mark.parametrize("e, low, high, word", [
    (estimate(0.1, 0.3), -0.5, 0.5, "CONFIRMED"),
    (estimate(0.3, 0.3), -0.5, 0.5, "INCONCLUSIVE"),
    (estimate(1.0, 0.3), -0.5, 0.5, "CONTRADICTED"),
    (estimate(1.0, 0.3), -0.5, math.inf, "CONFIRMED"),
    (estimate(0.1, 0.3, n=2), -0.5, 0.5, "INCONCLUSIVE"),
    (None, -0.5, 0.5, "NOT_RUN"),
])
def test_within(e, low, high, word):
    assert judge_within("B5", e, low, high, "mini").verdict == word
    assert judge_within("B5", e, low, high, "toy").verdict == "NOT_RUN"


@pytest.mark.parametrize("computed, printed, word", [
    (14.46, "14.5", "CONFIRMED"),
    (14.46, "14.50", "CONTRADICTED"),
    (np.float64(14.44), 14.5, "CONTRADICTED"),
    (109482240, "109,482,240", "CONFIRMED"),
    (109482241, 109482240, "CONTRADICTED"),
    (None, "14.5", "NOT_RUN"),
    (math.nan, "14.5", "NOT_RUN"),
    ({"a": 1.0, "b": 2.0}, {"a": "1.0", "b": "2.1"}, "PARTIAL"),
    ({"a": 1.0}, {"a": "1.0", "b": "2.1"}, "PARTIAL"),
    ({"a": 1.0}, {"a": "1.3", "b": "2.1"}, "CONTRADICTED"),
    ({"a": 1.04}, {"a": ["1.0", "1.04"], "b": "2"}, "PARTIAL"),
    ({"a": 1.0}, {"a": ["1.0", "1.3"]}, "PAPER_INCONSISTENT"),
    ({}, {}, "NOT_RUN"),
])
def test_equal(computed, printed, word):
    assert judge_equal("cost", computed, printed).verdict == word


def test_equal_text():
    v = judge_equal("cost", 14.46, "14.5")
    assert (v.measured, v.note, v.scale) == ("14.46 computed, 14.5 printed", "", "any scale")
    v = judge_equal("cost", {"a": 1.0, "b": 2.0}, {"a": "1.0", "b": "2.1", "c": "3"})
    assert (v.measured, v.note) == ("1 of 3 equal to the printed digits",
                                    "differs: b 2.0 computed, 2.1 printed; missing: c")
    assert "1.0 and 1.3 printed" in judge_equal("cost", 1.0, {"": ["1.0", "1.3"]}).note


# --- totality: any numbers, broken ones too

numbers = st.floats(-5, 5) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0])
estimates = st.none() | st.builds(
    Estimate, mean=numbers, low=numbers, high=numbers, per_seed=st.just(()), n_seeds=st.integers(0, 12),
    n_tasks=st.integers(1, 3), spread=st.floats(0, 3) | st.just(math.nan),
    p=st.floats(0, 1) | st.just(math.nan), n_pairs=st.integers(0, 36))
names = st.sampled_from(["1/12", "3/12", "6/12", "9/12"])
cells = st.dictionaries(names, estimates)
sizes = st.dictionaries(names, numbers)
profiles = st.sampled_from(sorted(SCALES))
texts = st.integers(-99, 99).map(lambda v: str(v / 10))


def one_word(verdict, profile):
    assert verdict.verdict in WORDS
    assert profile != "toy" or verdict.verdict not in STOCHASTIC
    assert verdict.measured and verdict.scale
    json.dumps(dataclasses.asdict(verdict), allow_nan=False)


@given(cells, sizes, profiles, st.integers(1, 5), st.integers(0, 3))
@settings(deadline=None, max_examples=300)
def test_rules_of_deltas_and_orderings_are_total(measured, published, profile, seeds, failed):
    for judge in (judge_delta, judge_ordering):
        v = judge("G1", measured, published, profile, minimum_seeds=seeds, failed=failed)
        one_word(v, profile)
        assert v.verdict != "PAPER_INCONSISTENT"
        assert not failed or f"{failed} failed or diverged run" in v.note


@given(estimates, st.sampled_from([-1, 1]), st.none() | numbers.map(abs), profiles, numbers, numbers)
@settings(deadline=None, max_examples=200)
def test_rules_of_trends_and_margins_are_total(measured, sign, size, profile, low, high):
    one_word(judge_trend("G3", measured, sign, profile, None if size is None else sign * size), profile)
    one_word(judge_within("B5", measured, low, high, profile), profile)


@given(st.dictionaries(names, st.none() | numbers | st.integers()),
       st.dictionaries(names, texts | st.lists(texts, min_size=1, max_size=3)))
def test_rule_of_equality_is_total(computed, printed):
    assert judge_equal("cost", computed, printed).verdict in set(WORDS) - {"CONSISTENT", "INCONCLUSIVE"}


def flip(e):
    return e and dataclasses.replace(e, mean=-e.mean, low=-e.high, high=-e.low)


@given(cells, st.dictionaries(names, st.floats(0.1, 5)))
@settings(deadline=None)
def test_mirrored_measurements_mirror_the_verdict(measured, published):
    measured = {n: measured.get(n) for n in published}
    mirrored = {n: flip(e) for n, e in measured.items()}
    judge = {k: judge_delta("G1", m, {n: s * v for n, v in published.items()}, "mini").verdict
             for k, m, s in (("plain", measured, 1), ("both", mirrored, -1), ("against", mirrored, 1))}
    assert judge["plain"] == judge["both"]
    if all(e is not None and math.isfinite(e.low) and math.isfinite(e.high) and e.low <= e.high
           for e in measured.values()):
        assert judge["plain"] != "CONFIRMED" or judge["against"] == "CONTRADICTED"
        assert judge["against"] != "CONFIRMED" or judge["plain"] == "CONTRADICTED"


def test_an_unknown_profile_is_refused():
    with pytest.raises(KeyError):
        judge_delta("G1", {"a": ABOVE}, {}, "huge")
