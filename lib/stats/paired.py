"""This module has paired comparisons: intervals and tests, all in points (100 times the
metric).

A replicate is one seed on one task. It is scored for a method (a) and its baseline (b)
on the same examples. Two variances make the interval of a mean difference. That of the
seeds is the sample variance of the differences over n, because seeds are few. That of
the examples is a jackknife: each cluster of examples is left out once, for all seeds,
models, widths and metrics of a task at the same time, because these share the examples.
The metric is computed anew and exactly each time. The sum of both gives the standard
error, and Student's distribution gives interval and p together, with Satterthwaite's
degrees of freedom: these are many where examples dominate, and n - 1 where seeds do. So
an interval shuts out a value exactly where the p of that value is below 0.05, and
nothing is drawn at random. In simulations of 3 to 10 seeds and 1,000 examples the
interval covers 93 to 99 %.

With one seed, the interval speaks of examples only. Examples that share text are not
independent. They are one cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.typing import ArrayLike

from lib.core.disk import sha
from lib.core.names import Refused, known

if TYPE_CHECKING:
    import pandas as pd

MARKS = (
    "exact",
    "span_f1",
)  # Each question has a mark of these metrics, and their mean counts.
SEEDS = 3  # Fewer seeds prove nothing and have no interval.
FEW = 250_000  # So many weights at once, 2 MB, fit into the cache of a processor.


@dataclass(frozen=True)
class Pair:
    """A Pair is one replicate. Row i of a, b and labels is the same example. Failed
    runs make no Pair."""

    task: str
    seed: int
    labels: np.ndarray  # [N] has integer classes or float targets.
    # The method (a) and the baseline (b) give logits [N, C], where C is 1 for
    # regression, or classes or scores [N].
    a: np.ndarray
    b: np.ndarray
    metric: str  # It is accuracy, f1 (of class 1), matthews, pearson, spearman, or one of MARKS.
    # Examples of the same number in [N], counted from 0, are drawn together. None draws
    # each alone.
    cluster: np.ndarray | None = None
    dtype: str = (
        ""  # Both were computed in this type of numbers; "" where nothing tells it.
    )


@dataclass(frozen=True)
class Estimate:
    """An Estimate is a difference in points, a slope, or another number, with its 95 %
    interval."""

    mean: float
    low: float
    high: float
    n_seeds: int  # It is the number of seeds of the task that has fewest.
    n_tasks: int
    spread: float  # It is the sd over seeds of the mean over tasks (ddof = 1), nan for one seed.
    p: float  # It is two-sided against `null`; 1 for one seed.
    noise: float = 0.0  # It is the sd of the mean that the examples alone cause.
    freedom: float = inf  # Student's degrees of freedom of the interval.
    null: float = 0.0  # This value is no effect, such as 1 of a ratio.
    region: tuple[
        float, ...
    ] = ()  # The ends of the region that a paper claims, where it claims one.

    def p_of(self, value: float) -> float:
        """Return the two-sided p of the hypothesis that the true number is `value`.

        It is 0.05 exactly where an end of the interval is `value`.
        """
        if value == self.null:
            return self.p
        half = self.mean - self.low if value < self.mean else self.high - self.mean
        if half <= 0:
            return float(value == self.mean)
        t = abs(self.mean - value) / half * scipy.stats.t.ppf(0.975, self.freedom)
        return float(2 * scipy.stats.t.sf(t, self.freedom))


def draw_weights(rng: np.random.Generator, draws: int, n: int) -> np.ndarray:
    """Return how often each of n examples occurs in each bootstrap draw: [draws, n].

    Each row sums to n.
    """
    index = rng.integers(n, size=(draws, n)) + np.arange(draws)[:, None] * n
    return (
        np.bincount(index.ravel(), minlength=draws * n).reshape(draws, n).astype(float)
    )


def predicted(logits: np.ndarray) -> np.ndarray:
    """Return classes [N] of logits [N, C], or scores [N] of logits [N, 1].

    What is [N] already is returned as it is.
    """
    if logits.ndim == 1:
        return logits
    return logits[:, 0] if logits.shape[1] == 1 else logits.argmax(1)


def weighted_score(
    metric: str,
    said: Iterable[np.ndarray],
    labels: np.ndarray,
    weights: np.ndarray | LeaveOneOut,
) -> np.ndarray:
    """Return the metric of each of M models under each of D draws, [D, M]; 0 if it is
    undefined.

    said: M predictions [N] or [N, C], or the MARKS of M models [N]. labels: [N].
    weights: how often each draw has each example [D, N]. Raises Refused for an unknown
    metric."""
    said = [predicted(x) for x in said]
    if metric in MARKS:
        return weights @ np.stack(said, 1) / weights.sum(1, keepdims=True)
    if metric == "accuracy":
        return (
            weights
            @ np.stack([x == labels for x in said], 1)
            / weights.sum(1, keepdims=True)
        )
    if metric in ("matthews", "f1"):
        return _from_confusion(
            metric, [x.astype(int) for x in said], labels.astype(int), weights
        )
    known(
        "metric", metric, ("accuracy", "f1", "matthews", "pearson", "spearman", *MARKS)
    )
    correlation = _pearson if metric == "pearson" else _spearman
    return correlation([x.astype(float) for x in said], labels.astype(float), weights)


def _ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 1e-12)


def _from_confusion(
    metric: str,
    said: list[np.ndarray],
    labels: np.ndarray,
    weights: np.ndarray | LeaveOneOut,
) -> np.ndarray:
    k = int(max(labels.max(), 1, *(x.max() for x in said))) + 1
    true = weights @ np.eye(k)[labels]  # The shape is [D, k].
    guess = weights @ np.concatenate([np.eye(k)[x] for x in said], 1)
    guess = guess.reshape(len(weights), len(said), k)
    right = np.stack([x == labels for x in said], 1)
    if metric == "f1":
        both = weights @ (right & (labels == 1)[:, None])
        return _ratio(2 * both, true[:, 1:2] + guess[..., 1])
    n = weights.sum(1, keepdims=True)
    spread = (n**2 - (guess**2).sum(2)) * (n**2 - (true**2).sum(1, keepdims=True))
    return _ratio(weights @ right * n - (guess * true[:, None]).sum(2), np.sqrt(spread))


def _standard(x: np.ndarray) -> np.ndarray:
    """Return x with zero mean and unit standard deviation, or zeros where it is
    constant.

    So weighted moments lose no digits, and one threshold tells what is constant.
    """
    return (x - x.mean()) / x.std() if np.ptp(x) > 0 else np.zeros(len(x))


def _pearson(
    said: list[np.ndarray], labels: np.ndarray, weights: np.ndarray | LeaveOneOut
) -> np.ndarray:
    n, y = weights.sum(1, keepdims=True), _standard(labels)[:, None]
    x = np.stack([_standard(prediction) for prediction in said], 1)
    mx, my = weights @ x / n, weights @ y / n
    vx, vy = weights @ x**2 / n - mx**2, weights @ y**2 / n - my**2
    varies = (vx > 1e-12) & (vy > 1e-12)
    return _ratio(
        weights @ (x * y) / n - mx * my, np.sqrt(np.where(varies, vx * vy, 0))
    )


def _spearman(
    said: list[np.ndarray], labels: np.ndarray, weights: np.ndarray | LeaveOneOut
) -> np.ndarray:
    assert isinstance(weights, np.ndarray)
    y, correlations = _ranks(labels, weights), []
    for x in (_ranks(prediction, weights) for prediction in said):
        x_spread, spread, both = (
            (weights * pair).sum(1) for pair in (x * x, y * y, x * y)
        )
        correlations.append(_ratio(both, np.sqrt(x_spread * spread)))
    return np.stack(correlations, 1)


def _ranks(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mid-ranks of x [N] about their mean under each of D draws, [D, N]."""
    values, group, counts = np.unique(x, return_inverse=True, return_counts=True)
    starts = counts.cumsum() - counts
    size = np.add.reduceat(weights[:, np.argsort(x, kind="stable")], starts, axis=1)
    ranks = size.cumsum(1) - (size + weights.sum(1, keepdims=True)) / 2
    return ranks[:, group]


class LeaveOneOut:
    """A LeaveOneOut stands for weights [1 + K, N] of N examples in K clusters.

    The first row has every example once, each other one lacks one cluster. Their
    product with a matrix comes from sums over clusters, so they need not be written
    out."""

    def __init__(self, cluster: np.ndarray) -> None:
        self.cluster = cluster
        self.sizes = np.bincount(cluster).astype(float)

    def __len__(self) -> int:
        return 1 + len(self.sizes)

    def __matmul__(self, x: np.ndarray) -> np.ndarray:
        sums = np.stack([np.bincount(self.cluster, column) for column in x.T], 1)
        total = sums.sum(0, keepdims=True)
        return np.concatenate([total, total - sums])

    def sum(self, axis: int, keepdims: bool = False) -> np.ndarray:
        n = self.sizes.sum()
        counts = np.concatenate([[n], n - self.sizes])
        return counts[:, None] if keepdims else counts

    def dense(self) -> Iterator[np.ndarray]:
        """Yield the weights, some rows at a time."""
        yield np.ones((1, len(self.cluster)))
        clusters, at_once = np.arange(len(self.sizes)), max(1, FEW // len(self.cluster))
        for start in range(0, len(clusters), at_once):
            yield (clusters[start : start + at_once, None] != self.cluster).astype(
                float
            )


# It keeps scores of the jackknife, which claims on the same models share.
_left_out: dict[tuple[str, ...], np.ndarray] = {}


def left_out_scores(pairs: Sequence[Pair]) -> list[np.ndarray]:
    """Return the scores [1 + K] in points of a and of b of each Pair of a task, in
    turn.

    The first score is on all examples. Each other one leaves out one of their K
    clusters."""
    labels, metric, cluster = pairs[0].labels, pairs[0].metric, pairs[0].cluster
    predictions = [prediction for pair in pairs for prediction in (pair.a, pair.b)]
    cluster = np.arange(len(labels)) if cluster is None else cluster
    place = metric, sha(labels.tobytes()), sha(cluster.tobytes())
    keys = [(*place, sha(prediction.tobytes())) for prediction in predictions]
    new = {k: x for k, x in zip(keys, predictions, strict=True) if k not in _left_out}
    if new:
        weights = LeaveOneOut(cluster)
        # A rank depends on all other examples, so these weights are written out, a part
        # at a time.
        parts = weights.dense() if metric == "spearman" else [weights]
        scores = [
            weighted_score(metric, [*new.values()], labels, part) for part in parts
        ]
        _left_out.update(zip(new, 100 * np.concatenate(scores).T, strict=True))
    return [_left_out[key] for key in keys]


def common(groups: Sequence[Sequence[Pair]]) -> list[list[Pair]]:
    """Return the groups of Pairs with only the tasks that all of them have.

    So a task counts once its last run was made.
    """
    tasks = set.intersection(*({pair.task for pair in group} for group in groups))
    return [[pair for pair in group if pair.task in tasks] for group in groups]


def contrast(groups: Sequence[Sequence[Pair]], coefficients: ArrayLike) -> Estimate:
    """Return the Estimate of the sum over groups g of coefficients[g] times the mean of
    group g.

    The mean of a group is one over tasks, and within a task over seeds, of the
    difference of a Pair. All Pairs of a task share examples, their order, clusters and
    metric. Groups have the same tasks, or none in common. Raises Refused where they do
    not fit together."""
    pairs = {(g, p.task, p.seed): p for g, group in enumerate(groups) for p in group}
    if not pairs or len(pairs) < sum(map(len, groups)):
        raise Refused(
            "a comparison needs at least one pair, and each task and seed once"
        )
    tasks, seeds = (sorted({key[i] for key in pairs}) for i in (1, 2))
    shape = (len(groups), len(tasks), len(seeds))
    seen, values, left_out = np.zeros(shape, bool), np.zeros(shape), {}
    has_task = np.array(
        [[any(p.task == t for p in group) for t in tasks] for group in groups]
    )
    weight = (
        np.array(coefficients, float)[:, None]
        * has_task
        / has_task.sum(1, keepdims=True)
    )
    for t, task in enumerate(tasks):
        of_task = {key: pair for key, pair in pairs.items() if key[1] == task}
        first, *others = of_task.values()
        for pair in others:
            same = np.array_equal(pair.labels, first.labels)
            # pyrefly: ignore[bad-argument-type]  # None equals None alone.
            same &= np.array_equal(pair.cluster, first.cluster)
            if pair.metric != first.metric or not same:
                raise Refused(
                    f"{task}: all pairs must share examples, clusters and the metric"
                )
        scores = left_out_scores([*of_task.values()])
        rows = (
            first.labels.tobytes(),
            None if first.cluster is None else first.cluster.tobytes(),
        )  # Two metrics may have the same rows.
        for (g, _, s), a, b in zip(of_task, scores[::2], scores[1::2], strict=True):
            index, gaps = (g, t, seeds.index(s)), a - b
            seen[index], values[index] = True, gaps[0]
            share = weight[g, t] / sum(p.task == task for p in groups[g])
            left_out[rows] = left_out.get(rows, 0.0) + share * gaps[1:]
    of_examples = sum(
        (len(estimates) - 1) * float(np.var(estimates))
        for estimates in left_out.values()
    )
    counts = seen.sum(2)
    centre = np.where(seen, values, 0).sum(2) / np.maximum(counts, 1)
    mean = float((weight * centre).sum())
    # A seed that lacks a task takes the mean of the task, whose level says nothing of
    # the seed.
    filled = np.where(seen, values, centre[:, :, None])
    per_seed = np.einsum("gt,gts->s", weight, filled)
    n, spread, of_seeds = int(counts[has_task].min()), np.nan, 0.0
    if n > 1:
        spread = float(per_seed.std(ddof=1))
        of_seeds = spread**2 / n
    total = of_seeds + of_examples
    freedom = (n - 1) * (total / of_seeds) ** 2 if of_seeds > 1e-9 * total else inf
    half = float(scipy.stats.t.ppf(0.975, freedom) * total**0.5)
    p = _students_p(mean, total, freedom) if n > 1 else 1.0
    ends = mean - half, mean + half
    return Estimate(
        mean, *ends, n, len(tasks), spread, p, float(of_examples**0.5), freedom
    )


def _students_p(mean: float, variance: float, freedom: float) -> float:
    """Return the two-sided p of a mean with this variance against 0."""
    if variance < 1e-18:  # Nothing varies.
        return float(abs(mean) < 1e-9)
    return float(2 * scipy.stats.t.sf(abs(mean) / np.sqrt(variance), freedom))


def paired_difference(pairs: Sequence[Pair]) -> Estimate:
    """Return the Estimate of method minus baseline in points, a mean over seeds, then
    tasks."""
    return contrast([pairs], np.ones(1))


def replicates(values: ArrayLike, resolution: float = 0.0) -> Estimate:
    """Return the Estimate of the mean over seeds of values that are no scores of
    examples.

    An example is a share of steps. It has Student's interval; with one seed both ends
    are the value. resolution: the values are multiples of it, which adds a twelfth of
    its square to their variance."""
    x = np.asarray(values, float)
    n, mean = len(x), float(x.mean())
    if n == 1:
        return Estimate(mean, mean, mean, 1, 1, np.nan, 1.0)
    spread = float(np.hypot(x.std(ddof=1), resolution / 12**0.5))
    half = float(scipy.stats.t.ppf(0.975, n - 1) * spread / n**0.5)
    p = _students_p(mean, spread**2 / n, n - 1)
    return Estimate(mean, mean - half, mean + half, n, 1, spread, p, freedom=n - 1)


def ratio(
    above: ArrayLike,
    below: ArrayLike,
    block: int = 10,
    draws: int = 20_000,
    seed: int = 0,
) -> Estimate:
    """Return the Estimate of the median of above / below.

    above, below: [N] seconds of N turns that time both. The interval is a bootstrap
    over blocks of successive turns, because what slows a machine lasts longer than one
    turn. It speaks of these turns, not of other machines."""
    x = np.asarray(above, float) / np.asarray(below, float)
    count = -(-len(x) // block)
    starts = np.random.default_rng(seed).integers(
        len(x) - block + 1, size=(draws, count, 1)
    )
    drawn = np.median(
        x[(starts + np.arange(block)).reshape(draws, -1)[:, : len(x)]], axis=1
    )
    low, high = np.quantile(drawn, (0.025, 0.975))
    ends = float(low), float(high)
    return Estimate(
        float(np.median(x)), *ends, len(x), 1, np.nan, 1.0, freedom=count - 1, null=1.0
    )


def share_gap(
    yes: Sequence[bool] | pd.Series, others: Sequence[bool] | pd.Series | None = None
) -> Estimate:
    """Return the Estimate in points of the share of True in `yes`, less that in
    `others` if given.

    Two shares have Newcombe's interval (1998, method 10) and Fisher's exact p. One
    share has Wilson's interval and its p is 1 where it is 0, else 0."""
    counts = [
        (int(np.sum(flags)), len(flags)) for flags in (yes, others) if flags is not None
    ]
    ends = [
        scipy.stats.binomtest(k, size).proportion_ci(method="wilson")
        for k, size in counts
    ]
    (a, m), shares = counts[0], [k / size for k, size in counts]
    spread = float(np.sqrt(sum(share * (1 - share) for share in shares)))
    if others is None:
        estimate, p, fewest = (shares[0], ends[0].low, ends[0].high), float(a == 0), m
    else:
        (b, n), gap = counts[1], shares[0] - shares[1]
        low = gap - np.hypot(shares[0] - ends[0].low, ends[1].high - shares[1])
        high = gap + np.hypot(ends[0].high - shares[0], shares[1] - ends[1].low)
        p = float(scipy.stats.fisher_exact([[a, m - a], [b, n - b]]).pvalue)
        estimate, fewest = (gap, low, high), min(m, n)
    mean, low, high = (100 * float(x) for x in estimate)
    return Estimate(mean, low, high, fewest, 1, 100 * spread, p)


def slope_weights(x: ArrayLike) -> np.ndarray:
    """Return weights w such that w @ y is the least-squares slope of y over x."""
    values = np.asarray(x, float)
    centred = values - values.mean()
    return centred / (centred**2).sum()


def straighter_weights(x: ArrayLike, other: ArrayLike) -> np.ndarray:
    """Return weights w such that w @ y tells whether y is straighter over x than over
    `other`.

    w @ y is the root of the sum of squares that a line over x explains in y, less the
    root for a line over `other`. Where y rises with both, it is above 0 exactly where
    the line over x leaves the smaller residuals. With unit vectors u and v along the
    centred x and `other`, the two sums of squared residuals differ by (u @ y)^2 - (v @
    y)^2."""
    u, v = (w / np.sqrt((w**2).sum()) for w in map(slope_weights, (x, other)))
    return u - v


def rank_correlation(
    x: ArrayLike, y: ArrayLike, draws: int = 20_000, seed: int = 0
) -> Estimate:
    """Return the Estimate of Kendall's tau-b of two scores of the same n things.

    The interval is a bootstrap over the things. A thing that is drawn twice is no pair
    with itself. In simulations of 8 and 12 things, it covers 93 to 98 %."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    a, b = np.sign(x[:, None] - x), np.sign(y[:, None] - y)
    weights = draw_weights(np.random.default_rng(seed), draws, len(x))

    def pairs(signs: np.ndarray) -> np.ndarray:
        return ((weights @ signs) * weights).sum(1)

    drawn = _ratio(pairs(a * b), np.sqrt(pairs(a * a) * pairs(b * b)))
    low, high = np.quantile(drawn, (0.025, 0.975))
    tau, p = scipy.stats.kendalltau(x, y)
    tau, p = np.nan_to_num(tau), np.nan_to_num(p, nan=1.0)
    return Estimate(float(tau), float(low), float(high), len(x), 1, np.nan, float(p))


def holm(p_values: ArrayLike) -> np.ndarray:
    """Return Holm's step-down adjusted p-values, in the order given."""
    p = np.asarray(p_values, float)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(
        1, np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    )
    return adjusted
