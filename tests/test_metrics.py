"""Metrics against values worked out by hand, and what degenerate or damaged predictions
give."""

import math
import warnings
from functools import partial

import numpy as np
import pytest

from lib.data import Task
from lib.stats.metrics import METRICS, compute_metric, compute_metrics

accuracy, f1, matthews, pearson, spearman = (
    partial(compute_metric, name) for name in METRICS
)

TRUE = np.array([1, 1, 1, 0, 0, 1])
GUESS = np.array(
    [1, 0, 1, 0, 1, 1]
)  # 3 true positives, 1 true negative, 1 false of each kind


def logits(codes, width=2):
    return np.eye(width, dtype=np.float32)[codes] * 2 - 1


def test_golden():
    assert accuracy(GUESS, TRUE) == pytest.approx(4 / 6)
    assert f1(GUESS, TRUE) == pytest.approx(6 / 8)
    assert matthews(GUESS, TRUE) == pytest.approx(
        (3 * 1 - 1 * 1) / math.sqrt(4 * 4 * 2 * 2)
    )
    # x - mean = -2 -1 0 1 2, y - mean = -2 -1 1 0 2: 9 / 10
    assert pearson([1, 2, 3, 4, 5], [1, 2, 4, 3, 5]) == pytest.approx(0.9)
    assert spearman([1, 2, 3, 4, 500], [1, 2, 4, 3, 5]) == pytest.approx(0.9)
    # ranks 1.5 1.5 3 against 1 2 3: 1.5 / sqrt(1.5 * 2)
    assert spearman([7, 7, 9], [0, 1, 2]) == pytest.approx(1.5 / math.sqrt(3))


def test_three_classes():
    true, guess = np.array([0, 1, 2, 2]), np.array([0, 1, 2, 1])
    # right 3, n 4, guessed 1 2 1, true 1 1 2: (3*4 - 5) / sqrt((16 - 6)(16 - 6))
    assert matthews(logits(guess, 3), true) == pytest.approx(0.7)
    assert accuracy(logits(guess, 3), true) == 0.75


@pytest.mark.parametrize("metric", [accuracy, f1, matthews])
def test_logits_and_codes_agree(metric):
    assert metric(logits(GUESS), TRUE) == metric(GUESS, TRUE)
    assert metric(logits(GUESS).astype(np.float16), TRUE) == metric(GUESS, TRUE)


def test_values_of_shape_n_1():
    x, y = np.array([0.1, 0.4, 0.3]), np.array([1.0, 2.0, 3.0], np.float32)
    for metric in (pearson, spearman):
        assert metric(x[:, None], y) == metric(x, y)
    assert pearson(-x, y) == pytest.approx(-pearson(x, y))


def test_equal_logits_give_the_first_class():
    assert accuracy(np.zeros((3, 2)), [0, 0, 1]) == pytest.approx(2 / 3)


def test_degenerate_predictions_have_a_value():
    ones, zeros, mixed = np.ones(4), np.zeros(4), np.array([0, 1, 1, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for constant in (ones, zeros):
            for metric in (matthews, pearson, spearman):
                assert metric(constant * 2, mixed) == metric(mixed, constant) == 0
                assert metric(constant, constant) == 0
        assert (
            f1(zeros, mixed)
            == f1(zeros, zeros)
            == f1(ones - mixed, mixed)
            == f1(ones, zeros)
            == 0
        )
        assert accuracy(zeros, mixed) == 0.5 and accuracy(ones, ones) == 1
        assert (
            pearson([3.0], [1.0]) == spearman([3.0], [1.0]) == matthews([1], [1]) == 0
        )


def test_by_name():
    assert compute_metric("f1", GUESS, TRUE) == pytest.approx(6 / 8)
    task = Task("x", True, ("no", "yes"), ("accuracy", "f1"))
    found = compute_metrics(task, logits(GUESS), TRUE)
    assert list(found.items()) == [
        ("accuracy", accuracy(GUESS, TRUE)),
        ("f1", f1(GUESS, TRUE)),
    ]
    allowed = r"'mathews'.*'matthews'.*accuracy, f1, matthews, pearson, spearman"
    with pytest.raises(ValueError, match=allowed):
        compute_metric("mathews", GUESS, TRUE)


@pytest.mark.parametrize("name", METRICS)
def test_damaged_predictions(name):
    x = GUESS.astype(float)
    x[[1, 3]] = np.nan, np.inf
    with pytest.raises(ValueError, match="not finite"):
        compute_metric(name, x, TRUE)
    with pytest.raises(ValueError, match=r"\(5,\) do not fit labels \(6,\)"):
        compute_metric(name, GUESS[:5], TRUE)
    with pytest.raises(ValueError, match="no rows"):
        compute_metric(name, [], [])
    with pytest.raises(ValueError, match="not finite"):
        compute_metric(name, GUESS, np.where(np.arange(6) == 2, np.nan, TRUE))


def test_a_label_that_is_no_class_is_refused():
    with pytest.raises(ValueError, match="-1 is no class"):
        accuracy([0, 1, 1], [-1, 1, -1])
