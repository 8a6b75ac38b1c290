"""Paired comparisons: intervals, tests and power, all in points (100 times the metric).

A replicate is one seed on one task, scored for a method (a) and its baseline (b) on the same examples. The
interval is a hierarchical bootstrap. The examples of each task are drawn with replacement, the same draw for
every seed, both models, all widths and all metrics, because they share them; the metric is computed anew
exactly, from how often each example was drawn. Seeds are drawn jointly for all tasks and widths: each may mark all of them.

Two choices keep the interval honest with few seeds: simulated for 3 to 10 seeds and 1,000 examples it covers
92 to 99 %, where the textbook form covers 86 to 99 %, too wide where examples dominate and too narrow where
seeds do. Seed deviations are those observed on all examples (redrawn, they would count the examples' noise
again), times sqrt(n / (n - 1)). And the draws are expanded about the mean by Student's over the normal's
quantile (Hesterberg 2015) with Satterthwaite's degrees of freedom: many where examples dominate, n - 1 where
seeds do. With one seed the interval speaks of examples only.

Examples that share text are no independent witnesses: they are drawn together, as a cluster (a cluster bootstrap).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from scipy import optimize, stats

CELLS = 4_000_000  # draws times examples held at once: 32 MB of weights
BLOCK = 32  # draws and examples at once where ranks are summed


@dataclass(frozen=True)
class Pair:
    """One replicate; a and b are aligned by row. Failed runs make no Pair, count them apart."""

    task: str
    seed: int
    labels: np.ndarray  # [N], integer classes or float targets
    a: np.ndarray  # [N, C] logits of the method, C = 1 for regression; or [N] its classes or scores
    b: np.ndarray  # the same of the baseline
    metric: str  # accuracy, f1 (of class 1), matthews, pearson or spearman
    cluster: np.ndarray | None = (
        None  # [N], which examples are drawn together, numbered from 0; None: each by itself
    )
    unseen: int = 0  # how many of the examples are of no development set

    def __post_init__(self):
        n = len(self.labels)
        for said in (self.a, self.b):
            if n == 0 or said.ndim not in (1, 2) or len(said) != n or not np.isfinite(said).all():
                raise ValueError(
                    f"{self.task}, seed {self.seed}: predictions must be finite and [{n}] or [{n}, C], at "
                    f"least one row; their shape is {said.shape}"
                )


@dataclass(frozen=True)
class Estimate:
    """A difference in points, or a slope in points per unit of x, with its 95 % interval."""

    mean: float
    low: float
    high: float
    per_seed: tuple[float, ...]  # mean over tasks, by ascending seed
    n_seeds: int  # of the thinnest task
    n_tasks: int
    spread: float  # sd of per_seed (ddof = 1); nan for one seed
    p: float  # two-sided, against 0, from seed and example variance; 1 for one seed
    n_pairs: int
    noise: float = 0.0  # sd of the mean that examples alone cause
    unseen: int = 0  # examples of no development set, of the task that has most


@dataclass(frozen=True)
class Permutation:
    """p-values of a sign-flip test; `smallest` is the least two-sided p of so many differences."""

    two_sided: float
    greater: float
    less: float
    smallest: float
    n: int
    exact: bool


@dataclass(frozen=True)
class Summary:
    mean: float
    sd: float  # ddof = 1
    n: int
    min: float
    max: float


def summary(values: Sequence[float]) -> Summary:
    """Mean, sd, count and range of replicates; nan where undefined (sd of one value, anything of none)."""
    x = np.asarray(values, float)
    if x.size == 0:
        return Summary(np.nan, np.nan, 0, np.nan, np.nan)
    return Summary(
        float(x.mean()),
        float(x.std(ddof=1)) if x.size > 1 else np.nan,
        x.size,
        float(x.min()),
        float(x.max()),
    )


def draw_weights(rng: np.random.Generator, draws: int, n: int) -> np.ndarray:
    """How often each of n examples occurs in each bootstrap draw: [draws, n], rows sum to n."""
    index = rng.integers(n, size=(draws, n)) + np.arange(draws)[:, None] * n
    return np.bincount(index.ravel(), minlength=draws * n).reshape(draws, n).astype(float)


def predicted(logits: np.ndarray) -> np.ndarray:
    """The classes [N] of logits [N, C], the scores of [N, 1]; what is [N] already stays."""
    return (
        logits if logits.ndim == 1 else logits[:, 0] if logits.shape[1] == 1 else logits.argmax(1)
    )


def weighted_score(
    metric: str, said: Sequence[np.ndarray], labels: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """The metric of each model under each draw: M times [N] or [N, C], [N], [D, N] to [D, M]; undefined counts 0."""
    said = [predicted(x) for x in said]
    if metric == "accuracy":
        return weights @ np.stack([x == labels for x in said], 1) / weights.sum(1, keepdims=True)
    if metric in ("matthews", "f1"):
        return _from_confusion(metric, [x.astype(int) for x in said], labels.astype(int), weights)
    if metric not in ("pearson", "spearman"):
        raise ValueError(
            f"unknown metric {metric!r}; allowed: accuracy, f1, matthews, pearson, spearman"
        )
    return (_pearson if metric == "pearson" else _spearman)(
        [x.astype(float) for x in said], labels.astype(float), weights
    )


def _ratio(top, bottom):
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 1e-12)


def _from_confusion(metric, said, labels, weights):
    k = int(max(labels.max(), 1, *(x.max() for x in said))) + 1
    true = weights @ np.eye(k)[labels]  # [D, k]
    guess = (weights @ np.concatenate([np.eye(k)[x] for x in said], 1)).reshape(
        len(weights), len(said), k
    )
    right = np.stack([x == labels for x in said], 1)
    if metric == "f1":
        return _ratio(2 * weights @ (right & (labels == 1)[:, None]), true[:, 1:2] + guess[..., 1])
    n = weights.sum(1, keepdims=True)
    spread = (n**2 - (guess**2).sum(2)) * (n**2 - (true**2).sum(1, keepdims=True))
    return _ratio(weights @ right * n - (guess * true[:, None]).sum(2), np.sqrt(spread))


def _standard(x):
    """Zero mean and unit sd, so that weighted moments lose no digits and "constant" is a fixed threshold."""
    return (x - x.mean()) / x.std() if np.ptp(x) > 0 else np.zeros(len(x))


def _pearson(said, labels, weights):
    n, y = weights.sum(1, keepdims=True), _standard(labels)[:, None]
    x = np.stack([_standard(each) for each in said], 1)
    mx, my = weights @ x / n, weights @ y / n
    vx, vy = weights @ x**2 / n - mx**2, weights @ y**2 / n - my**2
    return _ratio(
        weights @ (x * y) / n - mx * my, np.sqrt(np.where((vx > 1e-12) & (vy > 1e-12), vx * vy, 0))
    )


def _spearman(said, labels, weights):
    """Correlation of mid-ranks. The sum of squared ranks about their mean is (n^3 - sum of t^3) / 12 over groups of ties of t
    examples. Draws come last here, and few at once: sums over examples then run along rows that the cache holds."""
    found, groups, own = (
        np.empty((len(weights), len(said))),
        [_groups(x) for x in said],
        _groups(labels),
    )
    for start in range(0, len(weights), BLOCK):
        w = np.ascontiguousarray(weights[start : start + BLOCK].T)  # [N, D]
        ranks, spread = _ranks(w, own)
        y = np.empty_like(w)
        y[own[0]] = ranks - (w.sum(0) + 1) / 2
        y *= w
        for i, group in enumerate(groups):
            x, mine = _ranks(w, group)
            found[start : start + BLOCK, i] = _ratio(
                12 * np.einsum("nd,nd->d", x, y[group[0]]), np.sqrt(mine * spread)
            )
    return found


def _groups(x):
    """(Order of x [N], where each group of ties begins and ends in it [G], the group of each place in it [N])."""
    order = np.argsort(x, kind="stable")
    new = np.append(True, np.diff(x[order]) != 0)
    starts = np.flatnonzero(new)
    return order, starts, np.append(starts[1:], len(x)), np.cumsum(new) - 1


def _ranks(weights, group):
    """(Mid-ranks in the order of the group [N, D], 12 times the sum of their squares about their mean [D])."""
    order, starts, ends, place = group
    upto = _running(weights[order])
    before, after = upto[starts], upto[ends]
    size = after - before
    middle = (before + after + 1) / 2
    return middle if len(starts) == len(order) else middle[place], upto[-1] ** 3 - np.einsum(
        "gd,gd,gd->d", size, size, size
    )


def _running(x):
    """Sums of the rows [N, D] before each and of all: [N + 1, D]. By triangles of BLOCK rows: numpy's cumsum down columns takes
    six times as long."""
    blocks = np.zeros((len(x) // BLOCK + 1, BLOCK, x.shape[1]))
    blocks.reshape(-1, x.shape[1])[1 : len(x) + 1] = x
    sums = np.tri(BLOCK) @ blocks
    sums[1:] += np.cumsum(sums[:-1, -1], 0)[:, None]
    return sums.reshape(-1, x.shape[1])[: len(x) + 1]


def _contrast(groups: Sequence[Sequence[Pair]], coefficients, draws, seed, score) -> Estimate:
    """Estimates sum_g coefficients[g] * (mean over tasks of the mean difference over seeds in group g)."""
    if score is None:
        from lib.measure.metrics import score
    pairs = {(g, p.task, p.seed): p for g, group in enumerate(groups) for p in group}
    if not pairs or len(pairs) < sum(map(len, groups)):
        raise ValueError("a comparison needs at least one pair, and each task and seed once")
    tasks, seeds = (
        sorted({p.task for p in pairs.values()}),
        sorted({p.seed for p in pairs.values()}),
    )
    rng = np.random.default_rng(seed)
    picked = draw_weights(rng, draws, len(seeds)) / len(seeds)
    shape = (len(groups), len(tasks), len(seeds))
    seen, values, drawn = np.zeros(shape, bool), np.zeros(shape), np.zeros(draws)
    for t, task in enumerate(tasks):
        keys = [k for k in pairs if k[1] == task]
        labels, metric, cluster = (
            getattr(pairs[keys[0]], name) for name in ("labels", "metric", "cluster")
        )
        if any(
            pairs[k].metric != metric
            or not np.array_equal(pairs[k].labels, labels)
            or not np.array_equal(pairs[k].cluster, cluster)
            for k in keys
        ):
            raise ValueError(
                f"{task}: all pairs must share examples, their order, their clusters and the metric"
            )
        models = [x for k in keys for x in (pairs[k].a, pairs[k].b)]
        exact = np.array([score(metric, x, labels) for x in models], float)
        once = np.ones((1, len(labels)))
        if not np.allclose(weighted_score(metric, models, labels, once)[0], exact):
            raise ValueError(f"{metric}: the weighted form disagrees with score() on {task}")
        where = tuple(np.array([(k[0], t, seeds.index(k[2])) for k in keys]).T)
        seen[where], values[where] = True, 100 * (exact[::2] - exact[1::2])
        if not seen[:, t].any(1).all():
            raise ValueError(f"{task}: no seed at one of the points of the comparison")
        share = np.array([coefficients[k[0]] / seen[k[0], t].sum() / len(tasks) for k in keys])
        own = np.random.default_rng(
            [seed, crc32(labels.tobytes())]
        )  # two metrics of the same rows share the draws
        rows = max(1, CELLS // len(labels))
        for start in range(0, draws, rows):
            weights = draw_weights(
                own, min(rows, draws - start), len(labels) if cluster is None else cluster.max() + 1
            )
            weights = weights if cluster is None else weights[:, cluster]
            scores = weighted_score(metric, models, labels, weights)
            drawn[start : start + rows] += 100 * (scores[:, ::2] - scores[:, 1::2]) @ share
    centre = np.where(seen, values, 0).sum(2) / seen.sum(2)
    mean = float(coefficients @ centre.mean(1))
    # a seed that misses a task takes the task's mean there, lest tasks of unequal level pose as seeds
    filled = np.where(seen, values, centre[:, :, None])
    per_seed = np.einsum("g,gts->s", coefficients, filled) / len(tasks)
    n, spread, of_seeds, of_examples = int(seen.sum(2).min()), np.nan, 0.0, drawn.var()
    if n > 1:
        spread = float(per_seed.std(ddof=1))
        of_seeds = spread**2 / n
        drawn += np.sqrt(n / (n - 1)) * (picked @ per_seed - per_seed.mean())
    total = of_seeds + of_examples
    freedom = (n - 1) * (total / of_seeds) ** 2 if of_seeds > 1e-9 * total else 1e9
    expand = stats.t.ppf(0.975, freedom) / stats.norm.ppf(0.975)
    low, high = mean + expand * (np.quantile(drawn, (0.025, 0.975)) - mean)
    if n < 2:
        p = 1.0
    elif total < 1e-18:  # nothing varies
        p = float(abs(mean) < 1e-9)
    else:
        p = float(2 * stats.t.sf(abs(mean) / np.sqrt(total), freedom))
    return Estimate(
        mean,
        float(low),
        float(high),
        tuple(map(float, per_seed)),
        n,
        len(tasks),
        spread,
        p,
        len(pairs),
        float(np.sqrt(of_examples)),
        max(pair.unseen for pair in pairs.values()),
    )


def paired_difference(
    pairs: Sequence[Pair], draws: int = 2000, seed: int = 0, score: Callable | None = None
) -> Estimate:
    """Method minus baseline in points, averaged over seeds, then tasks.

    `score(name, predictions, labels) -> float`, by default that of `lib.measure.metrics`, gives the point values.
    """
    return _contrast([pairs], np.ones(1), draws, seed, score)


def replicates(values: Sequence[float]) -> Estimate:
    """Mean over seeds of what is no score of examples, such as a share of steps, with Student's interval; one seed has
    none but the value itself."""
    s = summary(values)
    if not s.n or not np.isfinite(s.mean):
        raise ValueError(f"replicates {list(values)}: at least one, all finite")
    half = s.sd / np.sqrt(s.n) * stats.t.ppf(0.975, s.n - 1) if s.n > 1 else 0.0
    p = (
        float(2 * stats.t.sf(abs(s.mean) / (s.sd / np.sqrt(s.n)), s.n - 1))
        if s.n > 1 and s.sd > 0
        else 1.0
    )
    return Estimate(
        s.mean, s.mean - half, s.mean + half, tuple(map(float, values)), s.n, 1, s.sd, p, s.n
    )


def ratio(
    above: Sequence[float],
    below: Sequence[float],
    block: int = 10,
    draws: int = 2000,
    seed: int = 0,
) -> Estimate:
    """Median of above / below over turns in which both were timed, [N] seconds each. Interval: bootstrap over blocks of
    successive turns, for what slows a machine lasts longer than one. It speaks of these turns, not of other machines."""
    x = np.asarray(above, float) / np.asarray(below, float)
    if x.ndim != 1 or len(x) < 2 * block or not np.isfinite(x).all():
        raise ValueError(
            f"ratios of shape {x.shape}: two series of as many finite times, at least {2 * block}"
        )
    count = -(-len(x) // block)
    starts = np.random.default_rng(seed).integers(len(x) - block + 1, size=(draws, count, 1))
    drawn = np.median(x[(starts + np.arange(block)).reshape(draws, -1)[:, : len(x)]], axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Estimate(float(np.median(x)), float(low), float(high), (), 1, 1, np.nan, 1.0, len(x))


def slope_weights(x: Sequence[float]) -> np.ndarray:
    """Weights w with w @ y = least-squares slope of y over x."""
    centred = np.asarray(x, float) - np.mean(x)
    if not (centred**2).sum() > 0:
        raise ValueError("a slope needs at least two different x")
    return centred / (centred**2).sum()


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Least-squares slope of y over x."""
    return float(slope_weights(x) @ np.asarray(y, float))


def straighter_weights(x: Sequence[float], other: Sequence[float]) -> np.ndarray:
    """Weights w with w @ y = root of the sum of squares that a line over x explains in y, less that of a line over `other`.
    Where y rises with both it is above 0 exactly where the line over x leaves the smaller residuals: with unit vectors u
    and v along the centred x and `other`, the two residual sums differ by (u @ y)^2 - (v @ y)^2."""
    u, v = (w / np.sqrt((w**2).sum()) for w in map(slope_weights, (x, other)))
    return u - v


def trend(
    pairs_by_x: Mapping[float, Sequence[Pair]],
    draws: int = 2000,
    seed: int = 0,
    score: Callable | None = None,
    weights: Callable = slope_weights,
) -> Estimate:
    """Slope of the mean gain over x, in points per unit of x, or what other `weights` of x give; seeds and examples are
    drawn once for all x."""
    x = sorted(pairs_by_x)
    return _contrast([pairs_by_x[v] for v in x], weights(x), draws, seed, score)


def permutation_test(
    differences: Sequence[float], draws: int = 100_000, seed: int = 0
) -> Permutation:
    """Sign-flip test that paired differences are symmetric about 0: every flip up to n = 16, else `draws`."""
    x = np.asarray(differences, float)
    if x.size == 0 or not np.isfinite(x).all():
        raise ValueError("a permutation test needs finite differences, at least one")
    exact = x.size <= 16
    if x.size == 1:  # scipy asks for two; one difference has two flips
        p = [1.0 if x[0] == 0 else 0.5 if s * x[0] > 0 else 1.0 for s in (1, -1)]
    else:
        p = [
            float(
                stats.permutation_test(
                    (x,),
                    lambda v, axis: v.mean(axis),
                    permutation_type="samples",
                    vectorized=True,
                    batch=4096,
                    n_resamples=np.inf if exact else draws,
                    alternative=side,
                    rng=np.random.default_rng(seed),
                ).pvalue
            )
            for side in ("greater", "less")
        ]
    least = (
        0.5 ** int(np.count_nonzero(x)) if exact else 1 / (draws + 1)
    )  # flipping a zero changes nothing
    return Permutation(min(1.0, 2 * min(p)), p[0], p[1], min(1.0, 2 * least), x.size, exact)


@dataclass(frozen=True)
class Rank:
    """Kendall's tau-b with its 95 % interval and two-sided p."""

    tau: float
    low: float
    high: float
    p: float
    n: int


def rank_correlation(
    x: Sequence[float], y: Sequence[float], draws: int = 2000, seed: int = 0
) -> Rank:
    """How alike two scores of the same n things rank them. The interval is that of a bootstrap over the things, a thing
    drawn twice being no pair; simulated for 8 and 12 things it covers 93 to 98 %."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    if len(x) != len(y) or len(x) < 3 or not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError(
            f"a rank correlation needs two finite scores of at least 3 things; given are {len(x)} and {len(y)}"
        )
    a, b = np.sign(x[:, None] - x), np.sign(y[:, None] - y)
    weights = draw_weights(np.random.default_rng(seed), draws, len(x))

    def pairs(signs):
        return ((weights @ signs) * weights).sum(1)

    drawn = _ratio(pairs(a * b), np.sqrt(pairs(a * a) * pairs(b * b)))
    low, high = np.quantile(drawn, (0.025, 0.975))
    tau, p = stats.kendalltau(x, y)
    return Rank(
        float(np.nan_to_num(tau)), float(low), float(high), float(np.nan_to_num(p, nan=1.0)), len(x)
    )


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Holm's step-down adjusted p-values, in the order given."""
    p = np.asarray(p_values, float)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)))
    return adjusted


def power(
    spread: float, noise: float, n: int, effect: float, low: float = 0.0, high: float = np.inf
) -> float:
    """How often the 95 % interval of n paired differences, at least two, lies within (low, high) if their true mean is
    `effect`. spread: their sd over seeds; noise: sd of the mean that examples alone cause, whatever the seeds."""
    of_seeds = spread**2 / n
    total = of_seeds + noise**2
    if total <= 0:
        return float(low < effect < high)
    freedom = (n - 1) * (total / of_seeds) ** 2 if of_seeds > 1e-3 * total else 1e6
    edge = stats.t.ppf(0.975, freedom)
    found = [
        1.0 if np.isinf(room) else stats.nct.sf(edge, freedom, room / np.sqrt(total))
        for room in (effect - low, high - effect)
    ]
    return float(np.clip(np.nan_to_num(sum(found) - 1), 0, 1))


def detectable(spread: float, noise: float, n: int, wanted: float = 0.8) -> float:
    """Smallest true effect that n paired differences prove to be above 0 with this power."""
    scale = np.sqrt(spread**2 / n + noise**2) if n > 1 else np.inf
    if not 0 < scale < np.inf:
        return float(scale)
    return float(
        scale * optimize.brentq(lambda x: power(spread, noise, n, x * scale) - wanted, 0, 60)
    )
