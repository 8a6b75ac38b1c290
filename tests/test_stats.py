"""Paired statistics against closed forms, scikit-learn and simulation."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as sp
from sklearn import metrics as sk

from lib.measure.stats import (
    Pair,
    detectable,
    draw_weights,
    holm,
    paired_difference,
    permutation_test,
    power,
    slope,
    straighter_weights,
    summary,
    trend,
    weighted_score,
)


def score(name, logits, labels):
    """An implementation of its own, so that the tests do not lean on the one under test elsewhere."""
    if name in ("pearson", "spearman"):
        x = logits[:, 0]
        if np.ptp(x) == 0 or np.ptp(labels) == 0:
            return 0.0
        return (sp.pearsonr if name == "pearson" else sp.spearmanr)(x, labels).statistic
    f = {"accuracy": sk.accuracy_score, "matthews": sk.matthews_corrcoef, "f1": sk.f1_score}[name]
    return f(labels, logits.argmax(1))


def right(mask, labels):
    """Logits of two classes that are right where the mask is."""
    return np.eye(2)[np.where(mask, labels, 1 - labels)]


def noisy(rng, metric, n=200, seeds=(0, 1, 2), tasks=("x", "y"), noise=(1.0, 1.4)):
    """Pairs of a better and a worse model."""
    out = []
    for task in tasks:
        labels = (
            rng.normal(size=n).round(1)
            if metric in ("pearson", "spearman")
            else rng.integers(0, 2, n)
        )
        clean = labels[:, None] if labels.dtype.kind == "f" else np.eye(2)[labels]
        out += [
            Pair(
                task, s, labels, *(clean + k * rng.normal(size=clean.shape) for k in noise), metric
            )
            for s in seeds
        ]
    return out


@pytest.mark.parametrize("metric", ["accuracy", "f1", "matthews", "pearson", "spearman"])
def test_weighted_metrics_equal_the_materialised_resample(metric):
    rng = np.random.default_rng(0)
    n, classes = 60, 3 if metric in ("accuracy", "matthews") else 2
    if metric in ("pearson", "spearman"):  # rounded: ties in both
        labels, logits = (
            rng.normal(size=n).round(1),
            [rng.normal(size=(n, 1)).round(1) for _ in range(2)],
        )
    else:
        labels, logits = (
            rng.integers(0, classes, n),
            [rng.normal(size=(n, classes)) for _ in range(2)],
        )
    weights = draw_weights(rng, 30, n)
    assert (weights.sum(1) == n).all()
    got = weighted_score(metric, logits, labels, weights)
    rows = [np.repeat(np.arange(n), w.astype(int)) for w in weights]
    want = np.array([[score(metric, x[r], labels[r]) for x in logits] for r in rows])
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("metric", ["matthews", "f1", "pearson", "spearman"])
def test_undefined_metrics_count_zero(metric):
    labels = np.array([0, 1, 0, 1])
    constant = np.ones((4, 1)) if metric in ("pearson", "spearman") else np.eye(2)[[0, 0, 0, 0]]
    assert (weighted_score(metric, [constant], labels, np.ones((3, 4))) == 0).all()


@pytest.mark.parametrize("metric", ["accuracy", "f1", "matthews", "pearson", "spearman"])
def test_default_score_agrees_with_the_weighted_forms(metric):
    pairs = noisy(np.random.default_rng(1), metric)
    estimate = paired_difference(pairs, draws=50)
    assert estimate == paired_difference(pairs, draws=50, score=score)
    gains = [score(metric, p.a, p.labels) - score(metric, p.b, p.labels) for p in pairs]
    assert estimate.mean == pytest.approx(100 * np.mean(gains))


def test_a_score_of_another_definition_is_refused():
    with pytest.raises(ValueError, match="disagrees"):
        paired_difference(noisy(np.random.default_rng(1), "accuracy"), score=lambda *_: 0.5)


def test_interval_of_a_constant_difference_is_that_constant():
    labels = np.arange(40) % 2
    pairs = [
        Pair(t, s, labels, right(True, labels), right(False, labels), "accuracy")
        for t in "xy"
        for s in range(3)
    ]
    e = paired_difference(pairs, draws=200, score=score)
    assert (e.mean, e.low, e.high, e.spread, e.p) == pytest.approx((100, 100, 100, 0, 0))
    assert (e.per_seed, e.n_seeds, e.n_tasks, e.n_pairs) == ((100, 100, 100), 3, 2, 6)
    twins = [Pair("x", s, labels, p.a, p.a, "accuracy") for s, p in enumerate(pairs)]
    same = paired_difference(twins, score=score)
    assert (same.mean, same.low, same.high, same.p) == (0, 0, 0, 1)


def test_one_seed_gives_the_binomial_interval_of_its_examples():
    labels = np.zeros(1000, int)
    e = paired_difference(
        [
            Pair(
                "x",
                0,
                labels,
                right(np.arange(1000) < 640, labels),
                right(False, labels),
                "accuracy",
            )
        ],
        draws=8000,
        score=score,
    )
    half = 1.96 * 100 * np.sqrt(0.64 * 0.36 / 1000)
    assert (e.low, e.high) == pytest.approx((64 - half, 64 + half), abs=0.3)
    assert np.isnan(e.spread) and e.p == 1


def seed_effects(values, task="x", n=100_000):
    """Pairs whose differences are these numbers of points, with next to no noise from examples."""
    labels = np.zeros(n, int)
    return [
        Pair(
            task,
            s,
            labels,
            right(np.arange(n) < v * n / 100, labels),
            right(False, labels),
            "accuracy",
        )
        for s, v in enumerate(values)
    ]


def test_p_value_is_students_where_seeds_dominate():
    values = [10, 20, 60, 45, 5]
    e = paired_difference(seed_effects(values), draws=100, score=score)
    assert e.p == pytest.approx(sp.ttest_1samp(values, 0).pvalue, rel=0.02)
    assert e.spread == pytest.approx(np.std(values, ddof=1))


def test_swapped_models_mirror_the_estimate():
    pairs = noisy(np.random.default_rng(2), "matthews")
    e = paired_difference(pairs, draws=300, score=score)
    swapped = [Pair(p.task, p.seed, p.labels, p.b, p.a, p.metric) for p in pairs]
    m = paired_difference(swapped, draws=300, score=score)
    assert (m.mean, m.low, m.high, m.p) == pytest.approx((-e.mean, -e.high, -e.low, e.p))


def test_coverage_with_few_seeds():
    rng, hits, n, trials = np.random.default_rng(3), 0, 150, 120
    labels = np.zeros(n, int)
    for _ in range(trials):  # a gains 10 points, give or take 4 by seed
        gains = rng.normal(0.10, 0.04, 3)
        pairs = [
            Pair(
                "x",
                s,
                labels,
                right(rng.random(n) < 0.6 + g, labels),
                right(rng.random(n) < 0.6, labels),
                "accuracy",
            )
            for s, g in enumerate(gains)
        ]
        e = paired_difference(pairs, draws=300, score=score)
        hits += e.low <= 10 <= e.high
    assert hits / trials >= 0.9


def test_a_missing_replicate_moves_no_other_seed():
    flat = seed_effects([10, 10, 10], "x", 1000) + seed_effects([50, 50, 50], "y", 1000)
    e = paired_difference(flat[:-1], draws=50, score=score)  # y lost seed 2
    assert e.mean == pytest.approx(30) and e.spread == pytest.approx(0) and e.n_seeds == 2
    assert e.per_seed == pytest.approx((30, 30, 30))


def test_malformed_pairs_are_refused():
    labels, x = np.zeros(4, int), np.zeros((4, 2))
    for a in (x[:3], x[:, :, None], np.full((4, 2), np.nan)):
        with pytest.raises(ValueError, match="predictions"):
            Pair("x", 0, labels, a, x, "accuracy")
    good = Pair("x", 0, labels, x, x, "accuracy")
    for pairs in ([], [good, good]):
        with pytest.raises(ValueError, match="once"):
            paired_difference(pairs, score=score)
    with pytest.raises(ValueError, match="share"):
        paired_difference([good, Pair("x", 1, labels + 1, x, x, "accuracy")], score=score)


def test_trend_of_known_gains():
    by_x = {x: seed_effects([30 - 2 * x + s for s in (-1, 0, 1)], n=5000) for x in (1, 3, 6, 9)}
    e = trend(by_x, draws=300, score=score)
    assert e.mean == pytest.approx(-2) and e.low < -2 < e.high < 0
    assert e.spread == pytest.approx(
        0, abs=1e-9
    )  # a seed's level, shared by all x, is no noise of the slope
    assert (e.n_seeds, e.n_tasks, e.n_pairs) == (3, 1, 12)
    with pytest.raises(ValueError, match="two different"):
        trend({1: by_x[1]}, score=score)


def test_the_straighter_line_is_told_by_one_contrast():
    """Where y rises with both, its sign is that of the difference of the two residual sums of squares."""
    x, generator = np.log10([0.1, 0.3, 0.5, 0.7]), np.random.default_rng(0)
    for y in generator.normal(size=(200, 4)) + np.arange(4):
        log, plain = (np.polyfit(z, y, 1, full=True)[1].item() for z in (x, 10**x))
        if slope(x, y) > 0 and slope(10**x, y) > 0:
            assert np.sign(straighter_weights(x, 10**x) @ y) == np.sign(plain - log)
    explained = [np.sqrt(((y - y.mean()) ** 2).sum() - left) for left in (log, plain)]
    assert straighter_weights(x, 10**x) @ y == pytest.approx(explained[0] - explained[1])


def test_slope_is_least_squares():
    x, y = [1, 3, 6, 9], [2.1, 1.3, 1.3, 0.8]
    assert slope(x, y) == pytest.approx(sp.linregress(x, y).slope)


def test_permutation_by_hand():
    t = permutation_test([1.0, 2.0, 3.0])  # only the observed signs reach the mean of 2
    assert (t.greater, t.two_sided, t.less, t.smallest, t.exact) == (1 / 8, 1 / 4, 1, 1 / 4, True)
    t = permutation_test([3.0, -1.0, 2.0])  # sums of all flips: 6 4 2 0 0 -2 -4 -6; observed 4
    assert (t.greater, t.two_sided, t.less) == (2 / 8, 4 / 8, 7 / 8)
    assert permutation_test([2.0]).greater == 0.5 and permutation_test([2.0]).smallest == 1
    assert permutation_test([0.0, 1.0, 1.0]).smallest == 0.5
    large = permutation_test(np.ones(20), draws=999)
    assert not large.exact and large.greater >= 1 / 1000
    with pytest.raises(ValueError, match="finite"):
        permutation_test([])


@given(st.lists(st.floats(-10, 10).map(lambda v: round(v, 2)), min_size=1, max_size=7))
@settings(deadline=None, max_examples=40)
def test_permutation_mirrors_and_respects_its_smallest_p(values):
    t, m = permutation_test(values), permutation_test([-v for v in values])
    assert (t.greater, t.less, t.two_sided) == pytest.approx((m.less, m.greater, m.two_sided))
    assert t.two_sided >= t.smallest - 1e-12


def test_holm_by_hand():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.6, 0.7]), [1, 1])
    assert holm([]).size == 0


def test_power_and_the_effect_that_has_it():
    rng, n, sd = np.random.default_rng(4), 6, 2.0
    effect = detectable(sd, 0.0, n)
    drawn = rng.normal(effect, sd, (4000, n))
    assert np.mean(sp.ttest_1samp(drawn, 0, axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.03)
    assert power(sd, 0.0, n, effect) == pytest.approx(0.8) and power(
        sd, 0.0, n, 0.0
    ) == pytest.approx(0.025)
    half = sp.t.ppf(0.975, n - 1) * drawn.std(1, ddof=1) / np.sqrt(n)
    inside = (drawn.mean(1) - half > -4 + effect) & (drawn.mean(1) + half < 3 + effect)
    assert power(sd, 0.0, n, effect, effect - 4, effect + 3) == pytest.approx(
        inside.mean(), abs=0.05
    )  # rather less
    assert detectable(sd, 0, 1) == np.inf and detectable(0, 0, 5) == 0 and power(0, 0, 5, 1.0) == 1
    assert detectable(sd, 0, 400) == pytest.approx(
        (1.96 + 0.8416) * sd / 20, rel=0.01
    )  # the normal limit
    assert detectable(0.0, 1.0, 3) == pytest.approx(
        1.96 + 0.8416, rel=0.01
    )  # examples alone: as of many


def test_summary():
    s = summary([1.0, 2.0, 4.0])
    assert (s.mean, s.sd, s.n, s.min, s.max) == pytest.approx((7 / 3, np.sqrt(7 / 3), 3, 1, 4))
    assert np.isnan(summary([1.0]).sd) and summary([]).n == 0


def test_two_thousand_draws_are_fast():
    pairs = noisy(np.random.default_rng(5), "matthews", n=1000)
    start = time.process_time()
    paired_difference(pairs, draws=2000, score=score)
    assert time.process_time() - start < 2
