"""Paired statistics against closed forms, scikit-learn and simulation."""

import time

import numpy as np
import pytest
from scipy import stats as sp
from sklearn import metrics as sk

from lib.stats import paired
from lib.stats.paired import (
    LeaveOneClusterOut,
    Pair,
    adjust_p_values_by_holm,
    compute_contrast_of_two_linear_fits,
    compute_scores_on_weighted_examples,
    compute_slope_weights,
    estimate_mean_over_seeds,
    estimate_paired_difference,
    estimate_weighted_sum_of_differences,
    sample_bootstrap_weights,
)

METRICS = ("accuracy", "f1", "matthews", "pearson", "spearman")
CORRELATIONS = METRICS[3:]


def score(name, logits, labels):
    """The same metrics by scikit-learn and scipy."""
    if name in CORRELATIONS:
        x = logits[:, 0]
        if np.ptp(x) == 0 or np.ptp(labels) == 0:
            return 0.0
        return (sp.pearsonr if name == "pearson" else sp.spearmanr)(x, labels).statistic
    f = {
        "accuracy": sk.accuracy_score,
        "matthews": sk.matthews_corrcoef,
        "f1": sk.f1_score,
    }[name]
    return f(labels, logits.argmax(1))


def replicate(a, b=0.0, task="x", seed=0, n=1000):
    """A Pair of models with these shares of right predictions, or with these masks of
    them."""
    labels = np.arange(n) % 2
    masks = (np.arange(n) < np.round(x * n) if np.isscalar(x) else x for x in (a, b))
    logits = (np.eye(2)[np.where(mask, labels, 1 - labels)] for mask in masks)
    return Pair(task, seed, labels, *logits, "accuracy")


def seed_effects(values, task="x", n=100_000):
    """Pairs whose differences are these numbers of points, with next to no noise from
    examples."""
    return [replicate(v / 100, 0.0, task, seed, n) for seed, v in enumerate(values)]


def noisy(metric, n=200):
    """Pairs of a better and a worse model."""
    rng, found = np.random.default_rng(1), []
    for task in "xy":
        rank = metric in CORRELATIONS
        labels = rng.normal(size=n).round(1) if rank else rng.integers(0, 2, n)
        clean = labels[:, None] if rank else np.eye(2)[labels]
        for seed in range(3):
            said = (
                clean + noise * rng.normal(size=clean.shape) for noise in (1.0, 1.4)
            )
            found.append(Pair(task, seed, labels, *said, metric))
    return found


@pytest.mark.parametrize("metric", METRICS)
def test_weighted_metrics_equal_the_materialised_resample(metric):
    rng = np.random.default_rng(0)
    n, classes = 60, 3 if metric in ("accuracy", "matthews") else 2
    if metric in CORRELATIONS:  # rounded: ties in both
        labels, *logits = (rng.normal(size=n).round(1) for _ in range(3))
        logits = [each[:, None] for each in logits]
    else:
        labels = rng.integers(0, classes, n)
        logits = [rng.normal(size=(n, classes)) for _ in range(2)]
    weights = sample_bootstrap_weights(rng, 30, n)
    assert (weights.sum(1) == n).all()
    rows = [np.repeat(np.arange(n), w.astype(int)) for w in weights]
    want = np.array([[score(metric, x[r], labels[r]) for x in logits] for r in rows])
    found = compute_scores_on_weighted_examples(metric, logits, labels, weights)
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("metric", METRICS[1:])
def test_undefined_metrics_count_zero(metric):
    constant = np.ones((4, 1)) if metric in CORRELATIONS else np.eye(2)[[0, 0, 0, 0]]
    labels = np.array([0, 1, 0, 1])
    assert (
        compute_scores_on_weighted_examples(metric, [constant], labels, np.ones((3, 4)))
        == 0
    ).all()


@pytest.mark.parametrize("metric", METRICS)
def test_the_mean_is_that_of_the_scores_and_swapped_models_mirror_the_estimate(metric):
    pairs = noisy(metric)
    e = estimate_paired_difference(pairs)
    gains = [score(metric, p.a, p.labels) - score(metric, p.b, p.labels) for p in pairs]
    assert e.mean == pytest.approx(100 * np.mean(gains))
    swapped = [Pair(p.task, p.seed, p.labels, p.b, p.a, p.metric) for p in pairs]
    m = estimate_paired_difference(swapped)
    assert (m.mean, m.low, m.high, m.p) == pytest.approx(
        (-e.mean, -e.high, -e.low, e.p)
    )


def test_interval_of_a_constant_difference_is_that_constant():
    e = estimate_paired_difference(
        [replicate(1.0, 0.0, t, s) for t in "xy" for s in range(3)]
    )
    assert (e.mean, e.low, e.high, e.deviation_over_seeds, e.p) == pytest.approx(
        (100, 100, 100, 0, 0)
    )
    assert (e.n_seeds, e.n_tasks) == (3, 2)
    same = estimate_paired_difference([replicate(0.5, 0.5, "x", s) for s in range(3)])
    assert (same.mean, same.low, same.high, same.p) == (0, 0, 0, 1)


def test_one_seed_gives_the_binomial_interval_of_its_examples():
    e = estimate_paired_difference([replicate(0.64)])
    half = (
        sp.norm.ppf(0.975) * 100 * np.sqrt(0.64 * 0.36 / 999)
    )  # 999: the jackknife's n - 1
    assert (e.low, e.high) == pytest.approx((64 - half, 64 + half))
    assert np.isnan(e.deviation_over_seeds) and e.p == 1


def test_p_value_is_students_where_seeds_dominate():
    values = [10, 20, 60, 45, 5]
    e = estimate_paired_difference(seed_effects(values))
    assert e.p == pytest.approx(sp.ttest_1samp(values, 0).pvalue, rel=0.02)
    assert e.deviation_over_seeds == pytest.approx(np.std(values, ddof=1))


def test_coverage_with_few_seeds():
    rng, hits, n, trials = np.random.default_rng(3), 0, 150, 120
    for _ in range(trials):  # a gains 10 points, give or take 4 by seed
        masks = [
            (rng.random(n) < 0.6 + g, rng.random(n) < 0.6)
            for g in rng.normal(0.1, 0.04, 3)
        ]
        pairs = [replicate(a, b, "x", s, n) for s, (a, b) in enumerate(masks)]
        e = estimate_paired_difference(pairs)
        hits += e.low <= 10 <= e.high
    assert hits / trials >= 0.9


def test_a_missing_replicate_moves_no_other_seed():
    flat = seed_effects([10, 10, 10], "x", 1000) + seed_effects([50, 50, 50], "y", 1000)
    e = estimate_paired_difference(flat[:-1])  # y lost seed 2
    assert (
        e.mean == pytest.approx(30)
        and e.deviation_over_seeds == pytest.approx(0)
        and e.n_seeds == 2
    )


def test_malformed_pairs_are_refused():
    labels, x = np.zeros(4, int), np.zeros((4, 2))
    good = Pair("x", 0, labels, x, x, "accuracy")
    for pairs in ([], [good, good]):
        with pytest.raises(ValueError, match="once"):
            estimate_paired_difference(pairs)
    with pytest.raises(ValueError, match="share"):
        estimate_paired_difference([good, Pair("x", 1, labels + 1, x, x, "accuracy")])
    with pytest.raises(ValueError, match="allowed: accuracy"):
        estimate_paired_difference([Pair("x", 0, labels, x, x, "acuracy")])


def test_slope_of_known_gains():
    x = [1, 3, 6, 9]
    groups = [seed_effects([30 - 2 * v + s for s in (-1, 0, 1)], n=5000) for v in x]
    e = estimate_weighted_sum_of_differences(groups, compute_slope_weights(x))
    assert e.mean == pytest.approx(-2) and e.low < -2 < e.high < 0
    # the level of a seed, which all x share, is no noise of the slope
    assert e.deviation_over_seeds == pytest.approx(0, abs=1e-9)
    assert (e.n_seeds, e.n_tasks) == (3, 1)


def test_the_straighter_line_is_told_by_one_contrast():
    """Where y rises with both, its sign is that of the difference of the two residual
    sums."""
    x, generator = np.log10([0.1, 0.3, 0.5, 0.7]), np.random.default_rng(0)
    for y in generator.normal(size=(200, 4)) + np.arange(4):
        log, plain = (np.polyfit(z, y, 1, full=True)[1].item() for z in (x, 10**x))
        if compute_slope_weights(x) @ y > 0 and compute_slope_weights(10**x) @ y > 0:
            assert np.sign(
                compute_contrast_of_two_linear_fits(x, 10**x) @ y
            ) == np.sign(plain - log)
    explained = [np.sqrt(((y - y.mean()) ** 2).sum() - left) for left in (log, plain)]
    assert compute_contrast_of_two_linear_fits(x, 10**x) @ y == pytest.approx(
        explained[0] - explained[1]
    )


def test_slope_is_least_squares():
    x, y = [1, 3, 6, 9], [2.1, 1.3, 1.3, 0.8]
    assert compute_slope_weights(x) @ y == pytest.approx(sp.linregress(x, y).slope)


def test_the_mean_of_replicates_has_students_interval():
    x = [0.2, 0.5, 0.3, 0.4]
    e, test = estimate_mean_over_seeds(x), sp.ttest_1samp(x, 0)
    assert (e.low, e.high) == pytest.approx(tuple(test.confidence_interval(0.95)))
    assert e.p == pytest.approx(test.pvalue) and (e.mean, e.n_seeds) == (
        pytest.approx(0.35),
        4,
    )
    coarse = estimate_mean_over_seeds(
        [2.0, 2.0, 2.0], rounding_step=1.0
    )  # a grid of 1 hides a spread
    assert (
        coarse.deviation_over_seeds == pytest.approx(12**-0.5)
        and coarse.low < 2 < coarse.high
    )
    assert (
        estimate_mean_over_seeds([2.0, 2.0]).p == 0
        and estimate_mean_over_seeds([0.0, 0.0]).p == 1
    )
    one = estimate_mean_over_seeds([0.7])
    assert (one.low, one.high, one.p, one.n_seeds) == (0.7, 0.7, 1.0, 1)


def test_holm_by_hand():
    np.testing.assert_allclose(
        adjust_p_values_by_holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02]
    )
    np.testing.assert_allclose(adjust_p_values_by_holm([0.6, 0.7]), [1, 1])
    assert adjust_p_values_by_holm([]).size == 0


@pytest.mark.parametrize("metric", METRICS)
def test_the_noise_of_examples_is_the_jackknife_of_the_metric_itself(metric):
    """Each cluster is taken away for real, and the metric is scikit-learn's or
    scipy's."""
    rng, n = np.random.default_rng(5), 80
    cluster = np.unique(rng.integers(0, 50, n), return_inverse=True)[1]
    pairs = [p for p in noisy(metric, n) if p.task == "x"]
    pairs = [Pair("x", p.seed, p.labels, p.a, p.b, metric, cluster) for p in pairs]

    def gap(rows):
        scores = [
            [score(metric, x[rows], p.labels[rows]) for x in (p.a, p.b)] for p in pairs
        ]
        return 100 * np.mean([a - b for a, b in scores])

    left = np.array(
        [gap(np.flatnonzero(cluster != k)) for k in range(cluster.max() + 1)]
    )
    k = len(left)
    wanted = ((k - 1) / k * ((left - left.mean()) ** 2).sum()) ** 0.5
    assert estimate_paired_difference(
        pairs
    ).standard_error_over_examples == pytest.approx(wanted, rel=1e-9)


def test_the_interval_shuts_out_what_its_p_rejects():
    e = estimate_paired_difference(
        [replicate(0.62, 0.6, "x", s) for s in range(2)]
        + [replicate(0.66, 0.6, "x", 2)]
    )
    for value in (e.low, e.high):
        assert e.compute_p_value(value) == pytest.approx(0.05)
    assert e.compute_p_value(e.low - 1) < 0.05 < e.compute_p_value(e.low + 0.1)
    again = estimate_mean_over_seeds([1.0, 2.0, 4.0])
    test = sp.ttest_1samp([1.0, 2.0, 4.0], 3.5)
    assert (
        again.compute_p_value(3.5) == pytest.approx(test.pvalue)
        and again.compute_p_value(0.0) == again.p
    )
    assert (
        estimate_mean_over_seeds([2.0, 2.0]).compute_p_value(2.0) == 1
        and estimate_mean_over_seeds([2.0, 2.0]).compute_p_value(3.0) == 0
    )


def test_many_clusters_are_fast():
    pairs = noisy("spearman", n=1000)
    start = time.process_time()
    estimate_paired_difference(pairs)
    assert time.process_time() - start < 4


@pytest.mark.parametrize("metric", METRICS)
def test_leaving_out_by_sums_equals_weights_that_are_written_out(metric):
    rng, n = np.random.default_rng(2), 90
    cluster = np.unique(rng.integers(0, 40, n), return_inverse=True)[1]
    lean = LeaveOneClusterOut(cluster)
    weights = lean @ np.eye(n)
    assert len(weights) == 2 + cluster.max() and (weights[0] == 1).all()
    assert np.array_equal(weights[1:], cluster != np.arange(cluster.max() + 1)[:, None])
    x = rng.normal(size=(n, 3))
    np.testing.assert_allclose(lean @ x, weights @ x, atol=1e-12)
    pair = noisy(metric, n)[0]
    told = metric, [pair.a, pair.b], pair.labels
    by_one = LeaveOneClusterOut(np.arange(n))
    for few, written in ((lean, weights), (by_one, by_one @ np.eye(n))):
        np.testing.assert_allclose(
            compute_scores_on_weighted_examples(*told, few),
            compute_scores_on_weighted_examples(*told, written),
            atol=1e-12,
        )
    if metric == "spearman":  # Ranks are whole numbers or halves, so bits are equal.
        assert np.array_equal(
            compute_scores_on_weighted_examples(*told, lean),
            compute_scores_on_weighted_examples(*told, weights),
        )


def test_predictions_that_are_no_numbers_have_no_correlation():
    labels, weights = np.arange(4.0), LeaveOneClusterOut(np.arange(4))
    said = [np.array([0.0, 1.0, 2.0, odd]) for odd in (3.0, np.nan, np.inf)]
    scores = compute_scores_on_weighted_examples("spearman", said, labels, weights)
    assert (scores == [1.0, 0.0, 0.0]).all() and len(scores) == 5


def test_interval_is_student_s_with_the_sum_of_both_variances():
    e = estimate_paired_difference(noisy("accuracy"))
    over_seeds = e.deviation_over_seeds**2 / e.n_seeds
    total = over_seeds + e.standard_error_over_examples**2
    freedom = (e.n_seeds - 1) * (total / over_seeds) ** 2
    assert e.high - e.mean == pytest.approx(sp.t.ppf(0.975, freedom) * total**0.5)


def test_nothing_is_drawn_at_random(monkeypatch):
    """Two calls, and another order of the pairs, give the same bits or nearly so."""
    one = estimate_paired_difference(noisy("f1"))
    monkeypatch.setattr(paired, "_left_out", {})
    two = estimate_paired_difference(noisy("f1")[::-1])
    assert (one.low, one.high, one.p) == pytest.approx(
        (two.low, two.high, two.p), rel=1e-12
    )
    monkeypatch.setattr(paired, "_left_out", {})
    assert one == estimate_paired_difference(noisy("f1"))


@pytest.mark.parametrize("seeds_of_second_task", [(0, 1, 2, 3), (10, 11, 12)])
def test_the_variance_over_seeds_counts_shared_seeds_together_and_others_apart(
    seeds_of_second_task,
):
    """Var(mean) of a mean over two tasks, in closed form for shared and disjoint
    seeds."""
    rights = {"a": (0, 1, 2, 3), "b": seeds_of_second_task}
    gaps = {"a": [60, 70, 90, 60], "b": [20, 50, 10, 30][: len(seeds_of_second_task)]}
    labels, pairs = np.zeros(100, int), []
    for task, seeds in rights.items():
        for seed, gap in zip(seeds, gaps[task], strict=True):
            method = (np.arange(100) >= gap).astype(int)  # `gap` of 100 rows are right
            pairs.append(
                Pair(task, seed, labels, method, np.ones(100, int), "accuracy")
            )
    found = estimate_paired_difference(pairs)
    a, b = (np.array(values, float) for values in gaps.values())
    if len(a) == len(b):
        expected = np.var((a + b) / 2, ddof=1) / len(a)
    else:
        expected = sum(np.var(x, ddof=1) / len(x) / 4 for x in (a, b))
    assert found.deviation_over_seeds**2 / found.n_seeds == pytest.approx(expected)
