"""This module chooses which candidate a search evaluates next.

    random      draws without guidance.
    cascade     is what EfficientBERT's code does under the name of LaNAS.
    evolution   is regularised evolution (Real et al. 2019).

`propose_candidate` is a pure function of the space, the evaluations so far and a random
generator, so a search goes on from its history alone. A space offers
draw_candidate(rng), mutate_net(candidate, rng), make_key(candidate) and
tokenise_questions(candidates) -> [N, F]: N candidates, F columns."""

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

BATCH = 8  # Candidates whose features are compared at once.
# Numbers of evaluations above which the cascade gets one more classifier.
GROWTH = (
    400,
    800,
    1600,
    3200,
)


@dataclass(frozen=True)
class Evaluation:
    """An Evaluation is one scored candidate: a line of a search's history."""

    candidate: Net
    key: str
    score: float  # The higher the better; 0 for a failed evaluation.
    seconds: float = 0.0  # Seconds of proposal and evaluation.
    failed: str = ""  # Reason of a failure, "" without one.


def propose_candidate(
    space: Space, history: list[Evaluation], options: Search, rng: np.random.Generator
) -> Net | None:
    """Return the next candidate, one that was not evaluated before.

    It is None where `options.draws` unguided draws are all known.
    """
    seen = {e.key for e in history}
    if options.method == "evolution" and len(history) >= options.population:
        return mutate_tournament_winner(space, history, seen, options, rng)
    if options.method != "cascade":
        return draw_in_region(space, seen, [], options, rng)
    import sklearn.ensemble  # noqa: F401  The next line limits only libraries that are loaded.

    # More threads would wait for each other, up to 20 times as long.
    with threadpool_limits(1):
        return draw_in_region(
            space, seen, find_promising_region(space, history, options), options, rng
        )


def find_promising_region(
    space: Space, history: list[Evaluation], options: Search
) -> Sequence[Callable[[np.ndarray], np.ndarray]]:
    """Return the wanted region: functions features [N, F] -> bool [N], all of which
    have to hold.

    There are none among the first `options.initial` evaluations. After that the
    functions are fitted anew each time `options.refit` evaluations are new."""
    learned = len(history) - options.initial
    if learned < 0:
        return []
    known = history[: options.initial + learned // options.refit * options.refit]
    features = space.tokenise_questions([e.candidate for e in known])
    fitted = fit_cascade(
        features.tobytes(), features.shape[1], tuple(e.score for e in known)
    )
    # pyrefly: ignore[bad-return]  # scikit-learn's stub takes no array.
    return [classifier.predict for classifier in fitted]


def draw_in_region(
    space: Space,
    known_keys: set[str],
    conditions: Sequence[Callable[[np.ndarray], np.ndarray]],
    options: Search,
    rng: np.random.Generator,
) -> Net | None:
    """Return the first unguided draw that is new and in the wanted region.

    Where no draw is, it is the new draw that follows the path farthest, the first of
    equals. It is None where all draws are known."""
    best, reached, size = None, -1, BATCH if conditions else 1
    for start in range(0, options.draws, size):
        drawn = [
            space.draw_candidate(rng) for _ in range(min(size, options.draws - start))
        ]
        new = [
            candidate
            for candidate in drawn
            if space.make_key(candidate) not in known_keys
        ]
        if not new:
            continue
        steps = count_conditions(space, new, conditions)
        if steps.max() > reached:
            best, reached = new[steps.argmax()], steps.max()
        if reached == len(conditions):
            break
    return best


def count_conditions(
    space: Space,
    candidates: list[Net],
    conditions: Sequence[Callable[[np.ndarray], np.ndarray]],
) -> np.ndarray:
    """Return how many functions of a path hold one after the other, from its start: int
    [N]."""
    on, steps = np.ones(len(candidates), bool), np.zeros(len(candidates), int)
    features = space.tokenise_questions(candidates) if conditions else None
    for goes in conditions:
        assert features is not None
        on &= goes(features).astype(bool)
        steps += on
    return steps


@lru_cache(maxsize=2)
def fit_cascade(
    feature_bytes: bytes, feature_count: int, scores: tuple[float, ...]
) -> tuple[HistGradientBoostingClassifier, ...]:
    """Return the classifiers of ever better halves of some samples.

    feature_bytes: the bytes of float [N, columns]. Each classifier learns which of its
    samples score at least their median, and hands these on; so there is no exploration.
    There is one classifier, and one more above 400, 800, 1600 and 3200 samples. We take
    gradient boosting of scikit-learn, 100 rounds; the code has LightGBM with settings
    from 10 trials of TPE. Where the median is the lowest score, only what is above it
    is good. Samples that all score alike end the cascade (the code fails there)."""
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
    """Return a changed copy of the best of `options.tournament` candidates.

    These are drawn with replacement from the youngest `options.population`; older ones
    have died. Where no changed copy is new, it is an unguided draw."""
    alive = history[-options.population :]
    drawn = [alive[i] for i in rng.integers(len(alive), size=options.tournament)]
    parent = max(drawn, key=lambda e: e.score).candidate
    for _ in range(options.draws):
        child = space.mutate_net(parent, rng)
        if space.make_key(child) not in known_keys:
            return child
    return draw_in_region(space, known_keys, [], options, rng)
