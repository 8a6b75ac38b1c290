"""This module estimates paired differences between models, with confidence intervals
and tests, all in points (100 times the metric).

A replicate is one seed on one task. It is scored for a method (a) and its baseline (b)
on the same examples. The variance of a mean difference is the sum of two parts. The
part of n seeds is the sample variance of the differences, divided by n. The part of the
examples is a jackknife: each cluster of examples is left out once, for all seeds,
models, widths and metrics of a task at the same time, because these share the examples.
The metric is computed again, exactly, each time.

Student's distribution gives interval and p-value from this variance, with
Satterthwaite's degrees of freedom: these are many where examples dominate, and n - 1
where seeds do. So an interval excludes a value exactly where the p-value for that value
is below 0.05, and nothing is drawn at random. In simulations of 3 to 10 seeds and 1,000
examples the interval covers 93 to 99 %.

With one seed, the interval covers the variance of examples alone, and the p-value
against no difference is 1. Examples that share text are not independent, so they form
one cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, nan
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from lib.core.disk import digest_bytes
from lib.core.names import Refused, check_known_name

if TYPE_CHECKING:
    import pandas as pd

# Metrics of answer spans. Each is the mean over questions of a score from 0 to 1.
MARKS = ("exact", "span_f1")
SHARES = ("accuracy", *MARKS)  # Metrics that are means over rows, from 0 to 1.
SEEDS = 3  # Least number of seeds for which an interval is shown.
TINY = 1e-9  # Distance from 0 of an end of an interval that includes 0.
# Number of clusters of examples that the jackknife of rank correlations handles in one
# batch, so that its arrays fit in the CPU's cache.
BLOCK = 32


@dataclass(frozen=True)
class Pair:
    """A Pair has the predictions of two models on the same examples, at one seed.

    Paired statistics compare the method (a) with the baseline (b). Row i of `a`, `b`
    and `labels` is the same example. Failed runs make no Pair.

    task: the name of the task; Pairs of several tasks are averaged.
    labels: integer classes or float targets [N].
    a, b: predictions of the two models: logits [N, C], where C is 1 for regression, or
    classes or values [N].
    metric: "accuracy", "f1" (of class 1), "matthews", "pearson", "spearman", or a
    metric of answer spans (MARKS), for which `a` and `b` have the score of each
    question.
    cluster: a number from 0 for each example [N], equal for examples that share text
    and so are not independent. The jackknife leaves out whole clusters of examples.
    With None all examples are independent, and each is a cluster."""

    task: str
    seed: int
    labels: np.ndarray
    a: np.ndarray
    b: np.ndarray
    metric: str
    cluster: np.ndarray | None = None

    @property
    def cluster_number_of_each_example(self) -> np.ndarray:
        """Return the number of each example's cluster [N], also without `cluster`."""
        return np.arange(len(self.labels)) if self.cluster is None else self.cluster


@dataclass(frozen=True)
class Estimate:
    """An Estimate is a number with its 95 % interval, such as a difference of models.

    A difference of scores is in points (-100 to 100).

    mean, low, high: the estimate and the ends of its interval.
    n_seeds: the number of seeds; of several tasks, that of the task with the fewest.
    n_tasks: the number of tasks.
    deviation_over_seeds: standard deviation over seeds of the mean over tasks (ddof =
    1); nan for one seed.
    p: two-sided p-value of the hypothesis of no effect, whose value is
    `value_of_no_effect`.
    standard_error_over_examples: standard error of the mean from the choice of examples
    alone.
    degrees_of_freedom: degrees of freedom of Student's interval.
    value_of_no_effect: the value that means no effect: 0 for a difference, 1 for a
    ratio.
    claimed_region: (low, high) between which a paper claims that the value lies; () for
    none.
    smallest_effect_of_interest: the smallest effect of interest, named with the first
    seeds; nan for none."""

    mean: float
    low: float
    high: float
    n_seeds: int
    n_tasks: int
    deviation_over_seeds: float
    p: float
    standard_error_over_examples: float = 0.0
    degrees_of_freedom: float = inf
    value_of_no_effect: float = 0.0
    claimed_region: tuple[float, ...] = ()
    smallest_effect_of_interest: float = nan

    def compute_p_value(self, null_value: float) -> float:
        """Return the two-sided p-value of a null hypothesis on the true value.

        null_value: the value under the hypothesis. For "no effect" the p-value is the
        field `p`. For any other value, such as one that a paper prints, it follows from
        the 95 % interval by Student's distribution: it is 0.05 at an end of the
        interval."""
        if null_value == self.value_of_no_effect:
            return self.p
        half = self.mean - self.low if null_value < self.mean else self.high - self.mean
        if half <= 0:
            return float(null_value == self.mean)
        t = (
            abs(self.mean - null_value)
            / half
            * scipy.stats.t.ppf(0.975, self.degrees_of_freedom)
        )
        return float(2 * scipy.stats.t.sf(t, self.degrees_of_freedom))


def sample_bootstrap_weights(
    rng: np.random.Generator, draw_count: int, example_count: int
) -> np.ndarray:
    """Return how often each bootstrap sample has each of n examples, [draws, n].

    A sample is n examples drawn at random with replacement, so each row sums to n. From
    these weights a statistic can be computed for all samples at once."""
    index = (
        rng.integers(example_count, size=(draw_count, example_count))
        + np.arange(draw_count)[:, None] * example_count
    )
    return (
        np.bincount(index.ravel(), minlength=draw_count * example_count)
        .reshape(draw_count, example_count)
        .astype(float)
    )


def predict_classes(logits: np.ndarray) -> np.ndarray:
    """Return the predicted classes [N] of logits [N, C], those of the largest logits.

    Regression outputs [N, 1] become values [N]. An array [N] is returned unchanged, so
    callers need not know which of these a run stored."""
    if logits.ndim == 1:
        return logits
    return logits[:, 0] if logits.shape[1] == 1 else logits.argmax(1)


def compute_scores_on_weighted_examples(
    metric: str,
    predictions_of_models: Iterable[np.ndarray],
    labels: np.ndarray,
    example_weights: np.ndarray | LeaveOneClusterOut,
) -> np.ndarray:
    """Compute a metric of M models on D weighted samples of the same examples, [D, M].

    The jackknife uses it with one sample for each cluster left out. Values are from 0
    to 1 (-1 to 1 for "matthews", "pearson" and "spearman"), and 0 where the metric is
    undefined. Raises Refused for an unknown metric.

    predictions_of_models: M arrays of classes or values [N], or logits [N, C]. For
    "exact" and "span_f1" (answer spans) they are the scores [N] of the questions.
    labels: [N].
    example_weights: how often each sample has each example, [D, N]."""
    check_known_name(
        "metric", metric, ("accuracy", "f1", "matthews", "pearson", "spearman", *MARKS)
    )
    answers = np.stack([predict_classes(x) for x in predictions_of_models], 1)  # [N, M]
    truth = labels[:, None]
    if metric == "f1":
        hit, positive = answers == 1, truth == 1
        return _divide_or_zero(
            2 * (example_weights @ (hit & positive)),
            example_weights @ hit + example_weights @ positive,
        )
    if metric == "spearman":
        return _compute_spearman(answers, labels, example_weights)
    # Number of examples in each of D samples [D, 1].
    n = example_weights @ np.ones((len(labels), 1))
    if metric == "pearson":
        return _compute_pearson(answers, labels, example_weights, n)
    right = example_weights @ (answers if metric in MARKS else answers == truth)
    if metric != "matthews":
        return right / n
    k = int(max(labels.max(), 1, answers.max())) + 1
    # Number of examples of each of the k classes in each of the D samples [D, k].
    true = example_weights @ np.eye(k)[labels.astype(int)]
    codes = np.eye(k)[answers.astype(int)]  # One-hot predictions [N, M, k].
    guess = (example_weights @ codes.reshape(len(codes), -1)).reshape(len(n), -1, k)
    spread = (n**2 - (guess**2).sum(2)) * (n**2 - (true**2).sum(1, keepdims=True))
    return _divide_or_zero(right * n - (guess * true[:, None]).sum(2), np.sqrt(spread))


def compute_score(metric: str, predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return a metric of one model's predictions, on all examples.

    It is from 0 to 1, or -1 to 1 for a correlation, and the same number that paired
    tests compare. Raises Refused for an unknown metric.

    metric: "accuracy", "f1" (of class 1), "matthews", "pearson", "spearman", or "exact"
    or "span_f1" for answer spans.
    predictions: classes or values [N], or logits [N, C]. For answer spans they are the
    scores [N] of the questions.
    labels: [N]."""
    return float(
        compute_scores_on_weighted_examples(
            metric, [predictions], labels, np.ones((1, len(labels)))
        )[0, 0]
    )


def _divide_or_zero(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    return np.divide(
        numerator, denominator, out=np.zeros_like(numerator), where=denominator > 1e-12
    )


def _standardise(values: np.ndarray) -> np.ndarray:
    """Return values [N] with mean 0 and standard deviation 1, or zeros if constant.

    Correlations do not change by it. On this scale their weighted moments lose few
    digits, and one threshold tells for all values whether a variance is 0."""
    values = values.astype(float)
    return (
        (values - values.mean()) / values.std()
        if np.ptp(values) > 0
        else np.zeros(len(values))
    )


def _compute_pearson(
    predictions: np.ndarray,
    labels: np.ndarray,
    example_weights: np.ndarray | LeaveOneClusterOut,
    weight_sums: np.ndarray,
) -> np.ndarray:
    y = _standardise(labels)[:, None]
    x = np.stack([_standardise(column) for column in predictions.T], 1)
    mx, my = example_weights @ x / weight_sums, example_weights @ y / weight_sums
    vx = example_weights @ x**2 / weight_sums - mx**2
    vy = example_weights @ y**2 / weight_sums - my**2
    varies = (vx > 1e-12) & (vy > 1e-12)
    return _divide_or_zero(
        example_weights @ (x * y) / weight_sums - mx * my,
        np.sqrt(np.where(varies, vx * vy, 0)),
    )


def _compute_spearman(
    predictions: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | LeaveOneClusterOut,
) -> np.ndarray:
    predictions = np.where(np.isfinite(predictions).all(0), predictions, 0)
    # Ranks depend on the order alone, so values become numbers from 0 in this order.
    columns = [
        np.unique(column, return_inverse=True)[1] for column in (labels, *predictions.T)
    ]
    blocks = (
        [weights]
        if isinstance(weights, np.ndarray)
        else weights.iterate_weight_matrix_blocks()
    )
    correlations = []
    for counts in blocks:
        y, *others = (
            _compute_doubled_centred_ranks(places, counts) for places in columns
        )
        y_weighted, scores = counts * y, []
        spread = np.vecdot(y_weighted, y)
        for x in others:
            squares = np.vecdot(counts * x, x) * spread
            scores.append(_divide_or_zero(np.vecdot(y_weighted, x), np.sqrt(squares)))
        correlations.append(np.stack(scores, 1))
    return np.concatenate(correlations)


def _compute_doubled_centred_ranks(
    value_orders: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Return doubled and centred ranks of N examples in D weighted samples, [D, N].

    Spearman's correlation is computed from them. They are twice the mid-ranks less
    their mean: each smaller example of the sample adds 1, and each larger one subtracts
    1. So they are whole numbers, and sums of their products are exact in any order.

    value_orders: the number, from 0, of each example's value among the sorted values,
    [N].
    weights: how often each sample has each example, [D, N]."""
    mass = np.stack([np.bincount(value_orders, row) for row in weights])
    reach = mass.cumsum(1)
    return (2 * reach - mass - reach[:, -1:])[:, value_orders]


@dataclass(frozen=True)
class LeaveOneClusterOut:
    """A LeaveOneClusterOut is the weight matrix [1 + K, N] of a cluster jackknife.

    Row 0 has each of the N examples once; row k + 1 lacks the examples of cluster k.
    The matrix is not stored: `@` multiplies it with [N, M] by sums over clusters, which
    is much faster.

    cluster_number_of_each_example: the number, from 0, of each example's cluster
    [N]."""

    cluster_number_of_each_example: np.ndarray

    def __matmul__(self, matrix: np.ndarray) -> np.ndarray:
        sums = np.stack(
            [
                np.bincount(self.cluster_number_of_each_example, column)
                for column in matrix.T
            ],
            1,
        )
        total = sums.sum(0, keepdims=True)
        return np.concatenate([total, total - sums])

    def iterate_weight_matrix_blocks(self) -> Iterator[np.ndarray]:
        """Yield the rows of the matrix in order, in blocks [B, N] of few rows."""
        yield np.ones((1, len(self.cluster_number_of_each_example)))
        clusters = np.arange(self.cluster_number_of_each_example.max() + 1)
        for first in range(0, len(clusters), BLOCK):
            block = clusters[first : first + BLOCK, None]
            yield (self.cluster_number_of_each_example != block).astype(float)


# Cache of jackknife scores, because several claims compare the same models:
# {(metric, digests of labels, clusters and predictions): scores in points [1 + K]}.
_left_out: dict[tuple[str, ...], np.ndarray] = {}


def compute_jackknife_scores_of_both_models(pairs: Sequence[Pair]) -> list[np.ndarray]:
    """Return the jackknife scores in points of both models of each Pair.

    The list has an array [1 + K] for a of the first Pair, b of the first, a of the
    second, and so on. Score 0 is on all examples; each other one leaves out one of K
    clusters of examples. The variance of a difference over examples is computed from
    them.

    pairs: Pairs (predictions of models a and b on the same examples) of one task, with
    equal labels, clusters and metric."""
    labels, metric = pairs[0].labels, pairs[0].metric
    cluster = pairs[0].cluster_number_of_each_example
    predictions = [prediction for pair in pairs for prediction in (pair.a, pair.b)]
    place = metric, digest_bytes(labels.tobytes()), digest_bytes(cluster.tobytes())
    keys = [(*place, digest_bytes(prediction.tobytes())) for prediction in predictions]
    new = {k: x for k, x in zip(keys, predictions, strict=True) if k not in _left_out}
    if new:
        scores = compute_scores_on_weighted_examples(
            metric, [*new.values()], labels, LeaveOneClusterOut(cluster)
        )
        _left_out.update(zip(new, 100 * scores.T, strict=True))
    return [_left_out[key] for key in keys]


def estimate_weighted_sum_of_differences(
    pair_groups: Sequence[Sequence[Pair]], coefficient_per_group: ArrayLike
) -> Estimate:
    """Estimate a weighted sum of mean differences between models, with its interval.

    Each group of Pairs has the runs of a method a and a baseline b. Its mean difference
    is the mean of a - b over seeds, then over tasks, in points. The variance is the sum
    of that over seeds and that over examples (jackknife). The 95 % interval is
    Student's, with Satterthwaite's degrees of freedom. If some task has only one seed,
    the interval covers the examples alone, and the p-value is 1. Raises Refused if
    there is no Pair, a task and seed occurs twice in a group, or Pairs of a task differ
    in examples, clusters or metric.

    pair_groups: groups that have the same tasks, or none in common.
    coefficient_per_group: a factor for each group, such as [1, -1] for a difference of
    differences."""
    pairs = {
        (g, p.task, p.seed): p for g, group in enumerate(pair_groups) for p in group
    }
    if not pairs or len(pairs) < sum(map(len, pair_groups)):
        raise Refused(
            "a comparison needs at least one pair, and each task and seed once"
        )
    tasks, seeds = (sorted({key[i] for key in pairs}) for i in (1, 2))
    values = np.ma.masked_all((len(pair_groups), len(tasks), len(seeds)))
    left_out: dict[Any, list[tuple[int, int, np.ndarray]]] = {}
    for t, task in enumerate(tasks):
        of_task = {key: pair for key, pair in pairs.items() if key[1] == task}
        first, *others = of_task.values()
        for pair in others:
            same = np.array_equal(pair.labels, first.labels)
            same &= np.array_equal(
                pair.cluster_number_of_each_example,
                first.cluster_number_of_each_example,
            )
            if pair.metric != first.metric or not same:
                raise Refused(
                    f"{task}: all pairs must share examples, clusters and the metric"
                )
        scores = compute_jackknife_scores_of_both_models([*of_task.values()])
        # Two tasks that differ only in their metric have the same examples, so their
        # errors are correlated. `rows` identifies the examples, and groups such tasks.
        rows = first.labels.tobytes(), first.cluster_number_of_each_example.tobytes()
        for (g, _, seed), a, b in zip(of_task, scores[::2], scores[1::2], strict=True):
            gaps = a - b
            values[g, t, seeds.index(seed)] = gaps[0]
            left_out.setdefault(rows, []).append((g, t, gaps[1:]))
    counts = values.count(2)  # Number of seeds of each group and task.
    weight = (counts > 0) / (counts > 0).sum(1, keepdims=True)
    weight *= np.array(coefficient_per_group, float)[:, None]
    centre = values.mean(2).filled(0.0)
    mean = float((weight * centre).sum())
    of_examples = 0.0
    for gaps in left_out.values():
        estimates: Any = sum(weight[g, t] / counts[g, t] * gap for g, t, gap in gaps)
        of_examples += (len(estimates) - 1) * float(np.var(estimates))
    n, spread, of_seeds = int(counts[counts > 0].min()), nan, 0.0
    if n > 1:
        # What a seed adds to the error of the mean: its deviations from the means of
        # groups and tasks. Groups and tasks without this seed have none. The sum of
        # squares is the variance of the mean, for shared seeds and for disjoint ones.
        scale = weight / np.sqrt(np.maximum(counts * (counts - 1), 1))
        deviations = np.where(values.mask, 0.0, values.data - centre[:, :, None])
        of_seeds = float((np.einsum("gt,gts->s", scale, deviations) ** 2).sum())
        spread = (of_seeds * n) ** 0.5
    total = of_seeds + of_examples
    freedom = (n - 1) * (total / of_seeds) ** 2 if of_seeds > 1e-9 * total else inf
    low, high, p = _compute_t_interval(mean, total, freedom)
    p = p if n > 1 else 1.0
    noise = float(of_examples**0.5)
    return Estimate(mean, low, high, n, len(tasks), spread, p, noise, freedom)


def _compute_t_interval(
    mean: float, variance: float, degrees_of_freedom: float
) -> tuple[float, float, float]:
    """Return Student's 95 % interval of a mean and its p-value: (low, high, p).

    p is two-sided, for the hypothesis that the true mean is 0.

    variance: the variance of the mean, which is its squared standard error."""
    half = float(scipy.stats.t.ppf(0.975, degrees_of_freedom) * variance**0.5)
    if variance < 1e-18:  # With zero variance, p is 1 for a mean of 0 and else 0.
        p = float(abs(mean) < 1e-9)
    else:
        p = float(2 * scipy.stats.t.sf(abs(mean) / variance**0.5, degrees_of_freedom))
    return mean - half, mean + half, p


def estimate_paired_difference(pairs: Sequence[Pair]) -> Estimate:
    """Estimate the paired difference of two models, method minus baseline, in points.

    Return an Estimate with its 95 % interval, which covers seeds and examples. The mean
    is over seeds, then over tasks. It is `estimate_weighted_sum_of_differences` of a
    single difference. Raises Refused where Pairs of a task differ in examples or
    metric.

    pairs: predictions of the method (a) and the baseline (b), a Pair for each task and
    seed."""
    return estimate_weighted_sum_of_differences([pairs], np.ones(1))


def estimate_difference_with_nonzero_interval(pairs: Sequence[Pair]) -> Estimate:
    """Estimate method minus baseline in points, with an interval of nonzero width.

    Where both models are right and wrong on the same rows, the 95 % interval of
    `estimate_paired_difference` has zero width, which looks like certainty. The
    interval then reaches as far as Wilson's upper limit for 0 of n rows, where rows of
    one cluster count as one. This holds for metrics that are means over rows; for
    others the width may be zero. Tests of papers' claims use
    `estimate_paired_difference`, as was planned.

    pairs: predictions of the method (a) and the baseline (b), a Pair for each task and
    seed."""
    gap = estimate_paired_difference(pairs)
    if gap.low < gap.high or pairs[0].metric not in SHARES:
        return gap
    rows = min(len({*pair.cluster_number_of_each_example.tolist()}) for pair in pairs)
    limit = estimate_difference_of_proportions([False] * rows).high
    return replace(gap, low=gap.mean - limit, high=gap.mean + limit)


def estimate_mean_over_seeds(
    value_per_seed: ArrayLike, rounding_step: float = 0.0
) -> Estimate:
    """Estimate the mean over seeds of any quantity, with Student's 95 % interval.

    It is for quantities that are no mean over examples, such as a share of steps, so
    that only the variance between seeds counts. With one seed both ends of the interval
    are the value.

    value_per_seed: one for each seed, [n].
    rounding_step: the number of which all values are multiples, such as 1 for epochs; 0
    for none. The variance of rounding, rounding_step ** 2 / 12, is added to the
    variance of the values."""
    x = np.asarray(value_per_seed, float)
    n, mean = len(x), float(x.mean())
    if n == 1:
        return Estimate(mean, mean, mean, 1, 1, nan, 1.0)
    spread = float(np.hypot(x.std(ddof=1), rounding_step / 12**0.5))
    low, high, p = _compute_t_interval(mean, spread**2 / n, n - 1)
    return Estimate(mean, low, high, n, 1, spread, p, degrees_of_freedom=n - 1)


def estimate_median_time_ratio(
    numerator_seconds: ArrayLike,
    denominator_seconds: ArrayLike,
    turns_per_bootstrap_block: int = 10,
    bootstrap_draw_count: int = 20_000,
    seed: int = 0,
) -> Estimate:
    """Estimate how many times as long one model takes as another, timed in turn.

    Return the Estimate of the median over turns of numerator / denominator. Its
    interval is a bootstrap over blocks of successive turns, because other work on the
    machine disturbs more than one turn. The variance between machines is not covered.
    `n_seeds` is N, and `p` is always 1, as no test is made.

    numerator_seconds, denominator_seconds: seconds [N] of the two models in N turns.
    turns_per_bootstrap_block: the number of turns in a block; with fewer than 50 turns
    a block has a fifth of them.
    bootstrap_draw_count: the number of bootstrap samples.
    seed: the seed of the draws, which makes the interval reproducible."""
    x = np.asarray(numerator_seconds, float) / np.asarray(denominator_seconds, float)
    turns_per_bootstrap_block = max(1, min(turns_per_bootstrap_block, len(x) // 5))
    count, rng = -(-len(x) // turns_per_bootstrap_block), np.random.default_rng(seed)
    starts = rng.integers(
        len(x) - turns_per_bootstrap_block + 1, size=(bootstrap_draw_count, count, 1)
    )
    turns = (starts + np.arange(turns_per_bootstrap_block)).reshape(
        bootstrap_draw_count, -1
    )[:, : len(x)]
    low, high = map(float, np.quantile(np.median(x[turns], axis=1), (0.025, 0.975)))
    middle = float(np.median(x))
    # The blocks of the bootstrap contain the first and last turns less often than other
    # turns. With few turns the interval may therefore miss the median of all turns, so
    # it is widened to include it.
    low, high = min(low, middle), max(high, middle)
    return Estimate(
        middle,
        low,
        high,
        len(x),
        1,
        nan,
        1.0,
        degrees_of_freedom=count - 1,
        value_of_no_effect=1.0,
    )


def estimate_difference_of_proportions(
    outcomes: Sequence[bool] | pd.Series,
    subtracted_outcomes: Sequence[bool] | pd.Series | None = None,
) -> Estimate:
    """Estimate the share of True in `outcomes`, less that in `subtracted_outcomes` if
    given.

    It compares, for example, the shares of runs that failed. The Estimate is in points.
    A difference has Fisher's exact p-value. Its 95 % interval combines the exact limits
    of both shares (Clopper and Pearson) by Newcombe's formula (1998, method 10).
    Wilson's limits, which Newcombe combines, exclude 0 for 3 of 3 against 0 of 3,
    although Fisher's p-value is 0.1. A single share has Wilson's interval. Its p-value
    is for the hypothesis that the true share is 0: 1 where the share is 0, and else
    0."""
    counts = [
        (int(np.sum(flags)), len(flags))
        for flags in (outcomes, subtracted_outcomes)
        if flags is not None
    ]
    # Without `subtracted_outcomes` no share is subtracted: the second share and its
    # limits stay 0.
    shares, lows, highs = np.zeros((3, 2))
    method = "wilson" if subtracted_outcomes is None else "exact"
    for i, (k, size) in enumerate(counts):
        ends = scipy.stats.binomtest(k, size).proportion_ci(method=method)
        shares[i], lows[i], highs[i] = k / size, *ends
    below, above = shares - lows, highs - shares
    gap = shares[0] - shares[1]
    low, high = gap - np.hypot(below[0], above[1]), gap + np.hypot(above[0], below[1])
    p = float(gap == 0)
    if subtracted_outcomes is not None:
        table = [[k, size - k] for k, size in counts]
        p = float(scipy.stats.fisher_exact(table).pvalue)
        if p >= 0.05:  # Newcombe's limits may exclude 0 where the exact test does not.
            low, high = include_zero(low, high)
    mean, low, high = (100 * float(x) for x in (gap, low, high))
    spread = 100 * float(np.sqrt((shares * (1 - shares)).sum()))
    return Estimate(mean, low, high, min(size for _, size in counts), 1, spread, p)


def include_zero(low: float, high: float) -> tuple[float, float]:
    """Return an interval, widened where it is needed so that 0 lies strictly inside.

    A claim "above 0" holds at the end of an interval too, so an end at 0 would decide
    it. An exact test that does not reject 0 decides nothing."""
    return min(low, -TINY), max(high, TINY)


def compute_slope_weights(x_values: ArrayLike) -> np.ndarray:
    """Return weights w [n] such that w @ y is the least-squares slope of y over x.

    x and y have shape [n]. So the slope of scores over x is a weighted sum of scores, a
    contrast that can be tested."""
    values = np.asarray(x_values, float)
    centred = values - values.mean()
    return centred / (centred**2).sum()


def compute_contrast_of_two_linear_fits(
    x_values: ArrayLike, alternative_x_values: ArrayLike
) -> np.ndarray:
    """Return weights w [n] that test whether y is more linear in x than in
    `alternative_x_values`.

    For values y [n] that rise with both, w @ y is above 0 where x fits better. So the
    comparison of two lines is a weighted sum of the values y, whose interval can be
    computed. w is u - v, with unit vectors u and v along the centred x and
    `alternative_x_values`. The sums of squared residuals of the two lines differ by (u
    @ y)^2 - (v @ y)^2, whose sign is then that of w @ y.

    x_values, alternative_x_values: two scales of the same n points, such as a number
    and its logarithm."""
    u, v = (
        w / np.sqrt((w**2).sum())
        for w in map(compute_slope_weights, (x_values, alternative_x_values))
    )
    return u - v


def estimate_kendall_tau(
    scores: ArrayLike,
    other_scores: ArrayLike,
    bootstrap_draw_count: int = 20_000,
    seed: int = 0,
) -> Estimate:
    """Estimate Kendall's tau-b between two scores of the same n candidates.

    It says whether a cheap score ranks candidates as an expensive one does. The 95 %
    interval is a bootstrap over candidates, in which a candidate that is drawn twice
    makes no pair with itself. It is widened to include 0 where the p-value of the exact
    test is not below 0.05. In simulations of 8 and 12 candidates it covers 93 to 98
    %.

    scores, other_scores: the two scores [n].
    bootstrap_draw_count: the number of bootstrap samples.
    seed: the seed of the draws, which makes the interval reproducible."""
    scores, other_scores = np.asarray(scores, float), np.asarray(other_scores, float)
    a = np.sign(scores[:, None] - scores)
    b = np.sign(other_scores[:, None] - other_scores)
    weights = sample_bootstrap_weights(
        np.random.default_rng(seed), bootstrap_draw_count, len(scores)
    )

    def sum_pair_signs_per_draw(pair_signs: np.ndarray) -> np.ndarray:
        return ((weights @ pair_signs) * weights).sum(1)

    drawn = _divide_or_zero(
        sum_pair_signs_per_draw(a * b),
        np.sqrt(sum_pair_signs_per_draw(a * a) * sum_pair_signs_per_draw(b * b)),
    )
    low, high = np.quantile(drawn, (0.025, 0.975))
    tau, p = scipy.stats.kendalltau(scores, other_scores)
    tau, p = np.nan_to_num(tau), np.nan_to_num(p, nan=1.0)
    low, high = float(low), float(high)
    if p >= 0.05:  # The bootstrap may exclude 0 where the exact test does not.
        low, high = include_zero(low, high)
    return Estimate(float(tau), low, high, len(scores), 1, nan, float(p))


def adjust_p_values_by_holm(p_values: ArrayLike) -> np.ndarray:
    """Return the p-values [n] after Holm's step-down correction for multiple tests.

    They keep the order of `p_values`. Values below 0.05 stay significant with a
    family-wise error of 5 %."""
    p = np.asarray(p_values, float)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(
        1, np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    )
    return adjusted
