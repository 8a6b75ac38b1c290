"""This module chooses which candidate network a search evaluates next.

    random      draws at random.
    cascade     draws at random what a cascade of classifiers calls good. EfficientBERT's
                code does this under the name of LaNAS.
    evolution   is regularised evolution (Real et al. 2019).

`propose_candidate` is a pure function of the space, the evaluations so far and a random
generator. So a search that was stopped continues from its saved history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from lib.papers.efficientbert.options import Search
from lib.papers.efficientbert.search.net import Net
from lib.papers.efficientbert.search.space import Space

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

BATCH = 8  # Candidates that the classifiers judge in one call, which saves time.
# The cascade has one classifier, and one more for each of these numbers of evaluations
# that is exceeded.
GROWTH = (
    400,
    800,
    1600,
    3200,
)


@dataclass(frozen=True)
class Evaluation:
    """An Evaluation is a candidate network with its score: a line of a search's
    history."""

    candidate: Net
    key: str  # Text that is equal for networks that compute the same.
    score: float  # The higher the better; 0 for a failed evaluation.
    seconds: float = 0.0  # Time to propose and score the candidate.
    failed: str = ""  # Why it could not be scored; "" where it could.


def propose_candidate(
    space: Space, history: list[Evaluation], options: Search, rng: np.random.Generator
) -> Net | None:
    """Return the next candidate, one that was not evaluated before.

    It is None where `options.draws` random draws were all evaluated before.

    history: the evaluations so far, oldest first."""
    seen = {e.key for e in history}
    if options.method == "evolution" and len(history) >= options.population:
        return mutate_tournament_winner(space, history, seen, options, rng)
    if options.method != "cascade":
        return draw_candidate_in_region(space, seen, [], options, rng)
    # Imported before `threadpool_limits`, which limits only libraries that are loaded.
    import sklearn.ensemble  # noqa: F401

    # On so few rows several threads mostly wait for each other, up to 20 times as long.
    with threadpool_limits(1):
        return draw_candidate_in_region(
            space, seen, fit_region_classifiers(space, history, options), options, rng
        )


def fit_region_classifiers(
    space: Space, history: list[Evaluation], options: Search
) -> Sequence[Callable[[np.ndarray], np.ndarray]]:
    """Return the conditions f(features [N, F]) -> bool [N] that a promising candidate
    fulfils all: one for each classifier of the cascade.

    There are none during the first `options.initial` evaluations. After that they are
    fitted again whenever there are `options.refit` new evaluations."""
    learned = len(history) - options.initial
    if learned < 0:
        return []
    known = history[: options.initial + learned // options.refit * options.refit]
    features = space.make_features([e.candidate for e in known])
    fitted = fit_classifier_cascade(
        features.tobytes(), features.shape[1], tuple(e.score for e in known)
    )
    # pyrefly: ignore[bad-return]  # scikit-learn's stub takes no array.
    return [classifier.predict for classifier in fitted]


def draw_candidate_in_region(
    space: Space,
    known_keys: set[str],
    region_classifiers: Sequence[Callable[[np.ndarray], np.ndarray]],
    options: Search,
    rng: np.random.Generator,
) -> Net | None:
    """Return the first random draw that is new and fulfils all conditions.

    If none of `options.draws` draws does, it is the new draw that fulfils the most
    conditions in a row. It is None where no draw is new.

    known_keys: keys of the candidates that were evaluated before.
    region_classifiers: functions features [N, F] -> bool [N], as
    `fit_region_classifiers` returns them."""
    best, reached, size = None, -1, BATCH if region_classifiers else 1
    for start in range(0, options.draws, size):
        drawn = [
            space.draw_candidate(rng) for _ in range(min(size, options.draws - start))
        ]
        new = [
            candidate
            for candidate in drawn
            if space.make_duplicate_key(candidate) not in known_keys
        ]
        if not new:
            continue
        steps = count_consecutive_acceptances(space, new, region_classifiers)
        if steps.max() > reached:
            best, reached = new[steps.argmax()], steps.max()
        if reached == len(region_classifiers):
            break
    return best


def count_consecutive_acceptances(
    space: Space,
    candidates: list[Net],
    region_classifiers: Sequence[Callable[[np.ndarray], np.ndarray]],
) -> np.ndarray:
    """Return for each of N candidates how many conditions it fulfils one after the
    other from the first, int [N].

    region_classifiers: functions features [N, F] -> bool [N]."""
    on, steps = np.ones(len(candidates), bool), np.zeros(len(candidates), int)
    features = space.make_features(candidates) if region_classifiers else None
    for goes in region_classifiers:
        assert features is not None
        on &= goes(features).astype(bool)
        steps += on
    return steps


@lru_cache(maxsize=2)
def fit_classifier_cascade(
    feature_bytes: bytes, feature_count: int, scores: tuple[float, ...]
) -> tuple[HistGradientBoostingClassifier, ...]:
    """Return classifiers, each of which finds the better half of what the one before it
    accepts.

    The first learns which samples score at least the median, and the next is fitted on
    those alone. There is one classifier, and one more above each of 400, 800, 1600 and
    3200 samples. If the median is the lowest score, only higher scores are good. The
    cascade ends early where all scores are equal; the authors' code fails there.
    Classifiers are gradient boosting of scikit-learn with 100 rounds; the authors' code
    has LightGBM, tuned by 10 trials.

    feature_bytes: the bytes of a float64 array [N, feature_count]; bytes can be a key
    of the cache.
    scores: the scores of the N samples."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    left, values = (
        np.frombuffer(feature_bytes).reshape(-1, feature_count),
        np.array(scores),
    )
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
        left, values = left[good], values[good]
    return tuple(fitted)


def mutate_tournament_winner(
    space: Space,
    history: list[Evaluation],
    known_keys: set[str],
    options: Search,
    rng: np.random.Generator,
) -> Net | None:
    """Return a mutated copy of the best of `options.tournament` candidates (regularised
    evolution, Real et al. 2019).

    These are drawn with replacement from the last `options.population` evaluations. If
    `options.draws` mutations give nothing new, it is a new random draw, or None where
    there is none.

    known_keys: keys of the candidates that were evaluated before."""
    alive = history[-options.population :]
    drawn = [alive[i] for i in rng.integers(len(alive), size=options.tournament)]
    parent = max(drawn, key=lambda e: e.score).candidate
    for _ in range(options.draws):
        child = space.mutate_net(parent, rng)
        if space.make_duplicate_key(child) not in known_keys:
            return child
    return draw_candidate_in_region(space, known_keys, [], options, rng)
