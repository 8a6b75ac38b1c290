"""Comparisons with a known effect, drawn and judged: false words are rare, true effects
are found.

Examples that are hard are hard for all runs, and seeds differ by SPREAD points.
Comparison i is drawn from the seed [7, i], so comparisons of several effects share
their draws."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from lib.claims.cells import parse_comparison
from lib.claims.words import AGREES, DECIDED, NO_EFFECT, NOISY, OPPOSITE, Result
from lib.stats.paired import Pair, estimate_paired_difference

ROWS, LEVEL, SHARED = (
    872,
    0.90,
    0.95,
)  # of SST-2: intervals of three seeds are 3 points wide
SPREAD = 0.6  # points between seeds, as in the trials on SST-2


def estimates(rng, effects, seeds, tasks):
    """The Estimates of differences with these true effects in points.

    They share baseline and examples.
    """
    labels, pairs = np.ones(ROWS, int), [[] for _ in effects]
    for task in map(str, range(tasks)):
        ease = np.sqrt(SHARED) * rng.standard_normal(ROWS)
        for seed in range(seeds):
            shifts = rng.normal(0, SPREAD / np.sqrt(2), len(effects) + 1) + (
                0.0,
                *effects,
            )
            scores = ease + np.sqrt(1 - SHARED) * rng.standard_normal(
                (len(shifts), ROWS)
            )
            right = scores < norm.ppf(LEVEL + shifts / 100)[:, None]
            baseline, *methods = right.astype(int)
            for group, said in zip(pairs, methods, strict=True):
                group.append(Pair(task, seed, labels, said, baseline, "accuracy"))
    return [estimate_paired_difference(each) for each in pairs]


def words(effect, seeds, tasks, times, text="a > b", printed=None):
    """The share of each word over so many comparisons of one effect."""
    found = Counter()
    for i in range(times):
        (e,) = estimates(np.random.default_rng([7, i]), (effect,), seeds, tasks)
        found[
            Result(
                "", parse_comparison(text), "", e, seeds, seeds, printed=printed
            ).verdict_word
        ] += 1
    return {word: n / times for word, n in found.items()}


def most(times):
    """A share that is as rare as 2.5 %, but for the chance of counting."""
    return 0.025 + 3 * np.sqrt(0.025 / times)


MANY = [
    40,
    pytest.param(1000, marks=pytest.mark.slow),
]  # 1,000 take two minutes of a core


@pytest.mark.parametrize("times", MANY)
@pytest.mark.parametrize("seeds, tasks", product((3, 5), (1, 3)))
def test_false_words_are_rare(seeds, tasks, times):
    shares = words(0.0, seeds, tasks, times)
    assert all(shares.get(word, 0) < most(times) for word in (AGREES, OPPOSITE)), shares
    assert shares[NOISY] > 0.8


@pytest.mark.parametrize("times", MANY)
@pytest.mark.parametrize("effect", [1.0, 2.5])
def test_no_such_effect_is_rare_where_the_printed_effect_is_true(effect, times):
    shares = words(effect, 3, 1, times, printed=effect)
    assert shares.get(NO_EFFECT, 0) < most(times) and shares.get(OPPOSITE, 0) < most(
        times
    ), shares


def test_a_printed_effect_that_is_not_there_is_shut_out():
    shares = words(0.0, 5, 1, 60, printed=4.0)
    assert shares[NO_EFFECT] > 0.8 and shares.get(AGREES, 0) < most(60), shares


@pytest.mark.parametrize("text, word", [("a > b", AGREES), ("a < b", OPPOSITE)])
def test_a_large_effect_is_found(text, word):
    assert words(3.0, 3, 1, 60, text)[word] > 0.5


def test_an_effect_within_a_margin_is_no_difference():
    shares = words(0.0, 5, 3, 40, "a ~ b +- 3")
    assert shares[AGREES] > 0.8
    assert words(6.0, 5, 1, 40, "a ~ b +- 3")[OPPOSITE] > 0.5


def test_comparisons_that_share_a_baseline_decide_for_themselves():
    """A large effect beside it makes no word of an effect of 0."""
    false, found = 0, 0
    for i in range(40):
        pair = estimates(np.random.default_rng([7, i]), (0.0, 4.0), 3, 1)
        none, large = (
            Result("", parse_comparison("a > b"), "", e, 3, 3).verdict_word
            for e in pair
        )
        false, found = false + (none in DECIDED), found + (large == AGREES)
    assert false / 40 < 2 * most(40) and found > 20
