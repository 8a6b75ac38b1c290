"""This module chooses which candidate network a search evaluates next.

    random      draws networks at random.
    cascade     draws networks at random, and takes one that a cascade of classifiers
                calls good. EfficientBERT's code does this under the name of LaNAS.
    evolution   mutates good networks: regularised evolution (Real et al. 2019).

`propose_candidate` is a pure function of the space, the settings, the evaluations so
far and a random generator. So a search that was stopped continues from its saved
history."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from lib.papers.efficientbert.options import Search
from lib.papers.efficientbert.search.net import Net
from lib.papers.efficientbert.search.space import Space

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

RankingScore: TypeAlias = float
# f(features [N, F]) -> bool [N], whether each network is promising.
IsPromisingFunction: TypeAlias = Callable[[np.ndarray], np.ndarray]
BATCH = 8  # Number of candidates that a classifier judges in one call, to save time.
# The search method "cascade" filters random candidates by a series of classifiers. The
# first is fitted on evaluated candidates, each further one on the better half of those
# on which the one before was fitted. There is one classifier, and one more for each of
# these numbers that the number of evaluated candidates exceeds.
GROWTH = (
    400,
    800,
    1600,
    3200,
)


@dataclass(frozen=True)
class Evaluation:
    """An Evaluation is a candidate network of a search with its score.

    It is a line of the search's history. Later candidates are proposed from all earlier
    Evaluations.

    candidate: description of the network.
    key: text that is equal for networks that differ only in the order of operands.
    score: the higher the better; 0 for a network that failed.
    seconds: time to propose and score the network.
    failed: why it could not be scored; "" where it could."""

    candidate: Net
    key: str
    score: float
    seconds: float = 0.0
    failed: str = ""

    @property
    def ranking_score(self) -> float:
        """Return the score by which candidates are ranked.

        That of a failed candidate is below all others: a score may be negative, such as
        Matthews' correlation."""
        return -math.inf if self.failed else self.score


def propose_candidate(
    space: Space, history: list[Evaluation], options: Search, rng: np.random.Generator
) -> Net | None:
    """Return the network that a search evaluates next, one that is new.

    The network depends on the arguments alone, so a search that was stopped continues
    as if it was not. The result is None where `options.draws` random draws in a row
    gave only networks that were evaluated before; the search then ends.

    space: the set of networks that the search may evaluate.
    history: the evaluations (networks with scores) so far, oldest first.
    options: settings of the search; `method` is "random", "cascade" or "evolution"."""
    seen = {e.key for e in history}
    if options.method == "evolution" and len(history) >= options.population:
        return mutate_tournament_winner(space, history, seen, options, rng)
    if options.method != "cascade":
        return sample_unevaluated_candidate(space, seen, [], options, rng)
    # Imported before `threadpool_limits`, which limits only libraries that are loaded
    # already.
    import sklearn.ensemble  # noqa: F401

    # One thread is enough. On so few rows several threads mostly wait for each other
    # and take up to 20 times as long.
    with threadpool_limits(1):
        return sample_unevaluated_candidate(
            space,
            seen,
            fit_classifiers_of_promising_networks(space, history, options),
            options,
            rng,
        )


def fit_classifiers_of_promising_networks(
    space: Space, history: list[Evaluation], options: Search
) -> Sequence[IsPromisingFunction]:
    """Return classifiers that tell which networks are promising.

    They are fitted on the scores of earlier networks. Each is a function features [N,
    F] -> bool [N]. A promising network is accepted by all of them
    (`fit_classifier_cascade`). The list is empty during the first `options.initial`
    evaluations. After that the classifiers are fitted again whenever there are
    `options.refit` new evaluations.

    space: the set of networks, which computes the features of a network.
    history: the evaluations (networks with scores) so far, oldest first."""
    learned = len(history) - options.initial
    if learned < 0:
        return []
    known = history[: options.initial + learned // options.refit * options.refit]
    features = space.compute_classifier_features([e.candidate for e in known])
    fitted = fit_classifier_cascade(
        features.tobytes(), features.shape[1], tuple(e.ranking_score for e in known)
    )
    # pyrefly: ignore[bad-return]  # scikit-learn's stub takes no array.
    return [classifier.predict for classifier in fitted]


def sample_unevaluated_candidate(
    space: Space,
    evaluated_network_keys: set[str],
    promising_network_classifiers: Sequence[IsPromisingFunction],
    options: Search,
    rng: np.random.Generator,
) -> Net | None:
    """Return a random new network that all classifiers call promising.

    It is the first of at most `options.draws` draws that all accept. If there is none,
    it is the new draw that passes the most classifiers, which are asked in order. The
    result is None where no draw is new.

    space: the set of networks from which is drawn.
    evaluated_network_keys: texts that identify the networks that were evaluated before,
    as `Space.make_deduplication_key` returns them.
    promising_network_classifiers: functions features [N, F] -> bool [N], as
    `fit_classifiers_of_promising_networks` returns them; [] accepts every network."""
    best = None
    reached = -1
    size = BATCH if promising_network_classifiers else 1
    for start in range(0, options.draws, size):
        drawn = [
            space.sample_candidate(rng) for _ in range(min(size, options.draws - start))
        ]
        new = [
            candidate
            for candidate in drawn
            if space.make_deduplication_key(candidate) not in evaluated_network_keys
        ]
        if not new:
            continue
        # How many classifiers accept each network before one rejects it.
        steps = np.zeros(len(new), int)
        accepted = np.ones(len(new), bool)
        features = space.compute_classifier_features(new)
        for accepts in promising_network_classifiers:
            accepted &= accepts(features).astype(bool)
            steps += accepted
        if steps.max() > reached:
            best = new[steps.argmax()]
            reached = steps.max()
        if reached == len(promising_network_classifiers):
            break
    return best


@lru_cache(maxsize=2)
def fit_classifier_cascade(
    float64_feature_matrix_bytes: bytes,
    feature_count: int,
    scores: tuple[RankingScore, ...],
) -> tuple[HistGradientBoostingClassifier, ...]:
    """Fit a cascade of classifiers that find promising networks in a search.

    The first learns which of N samples score at least the median. The next one is
    fitted on those samples alone, and so on. Up to 400 samples there is one classifier,
    and one more above each of 400, 800, 1600 and 3200. If the median is the lowest
    score, only higher scores are good. The cascade ends early where all scores are
    equal; EfficientBERT's code fails there.

    The classifiers are gradient boosting of scikit-learn with 100 rounds.
    EfficientBERT's code has LightGBM, tuned by 10 trials.

    float64_feature_matrix_bytes: the bytes of a float64 array [N, feature_count]. Bytes
    have a hash, so that the result is cached.
    scores: the scores of the N samples; minus infinity for one that failed."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    left = np.frombuffer(float64_feature_matrix_bytes).reshape(-1, feature_count)
    values = np.array(scores)
    fitted = []
    for _ in range(1 + sum(len(values) > size for size in GROWTH)):
        middle = np.median(values)
        good = values >= middle if middle > values.min() else values > middle
        if not good.any():
            break
        leaf = max(1, min(20, len(values) // 10))
        classifier = HistGradientBoostingClassifier(
            max_iter=100, early_stopping=False, min_samples_leaf=leaf, random_state=0
        )
        # pyrefly: ignore[bad-argument-type]  # scikit-learn's stub takes no array.
        fitted.append(classifier.fit(left, good))
        left = left[good]
        values = values[good]
    return tuple(fitted)


def mutate_tournament_winner(
    space: Space,
    history: list[Evaluation],
    evaluated_network_keys: set[str],
    options: Search,
    rng: np.random.Generator,
) -> Net | None:
    """Return a new network by one step of regularised evolution (Real et al. 2019).

    It is a mutated copy of the best of `options.tournament` networks, which are drawn
    with replacement from the last `options.population` evaluations. If none of
    `options.draws` mutations is new, a random new network is drawn instead. The result
    is None where that fails too.

    space: the set of networks that the search may evaluate.
    history: the evaluations (networks with scores) so far, oldest first.
    evaluated_network_keys: texts that identify the networks that were evaluated before,
    as `Space.make_deduplication_key` returns them."""
    alive = history[-options.population :]
    drawn = [alive[i] for i in rng.integers(len(alive), size=options.tournament)]
    parent = max(drawn, key=lambda e: e.ranking_score).candidate
    for _ in range(options.draws):
        child = space.mutate_net(parent, rng)
        if space.make_deduplication_key(child) not in evaluated_network_keys:
            return child
    return sample_unevaluated_candidate(space, evaluated_network_keys, [], options, rng)
