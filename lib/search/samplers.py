"""Which candidate a search evaluates next.

    random      an unguided draw
    cascade     what EfficientBERT's code does under the name of LaNAS
    evolution   regularised evolution (Real et al. 2019)

`propose` is a pure function of the space, the evaluations so far and a random generator, so a
search goes on from its history alone. A space offers draw(rng), mutate(candidate, rng),
key(candidate) and features(candidates) -> [N, F]: N candidates, F columns.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from threadpoolctl import threadpool_limits  # comes with scikit-learn

BATCH = 8  # candidates whose features are compared at once
GROWTH = (400, 800, 1600, 3200)  # evaluations above which the cascade gets another classifier


@dataclass(frozen=True)
class Evaluation:
    """What is known of a candidate: a line of a search's history."""

    candidate: object
    key: str
    score: float  # higher is better; 0 where it failed
    seconds: float = 0.0  # of proposal and evaluation
    failed: str = ""  # why the score is 0


def propose(space, history, options, rng):
    """Return the next candidate, one not evaluated before.

    None where `options.draws` unguided draws are all known.
    """
    seen = {e.key for e in history}
    if options.method == "evolution" and len(history) >= options.population:
        return evolution(space, history, seen, options, rng)
    if options.method != "cascade":
        return follow(space, seen, [], options, rng)
    import sklearn.ensemble  # noqa: F401  only what is loaded can be limited

    with threadpool_limits(1):  # several threads wait for each other, up to 20 times as long
        return follow(space, seen, path(space, history, options), options, rng)


def path(space, history, options):
    """Return the wanted region: functions features [N, F] -> bool [N], all of which have to hold.

    There are none among the first evaluations. A fit is made once
    `options.refit` evaluations are new.
    """
    learned = len(history) - options.initial
    if learned < 0:
        return []
    known = history[: options.initial + learned // options.refit * options.refit]
    features = space.features([e.candidate for e in known])
    fitted = cascade(features.tobytes(), features.shape[1], tuple(e.score for e in known))
    return [each.predict for each in fitted]


def follow(space, seen, wanted, options, rng):
    """Return the first unguided draw that is new and in the wanted region.

    If there is none: of all new draws the first that follows the path farthest. None where all
    draws are known.
    """
    best, reached, size = None, -1, BATCH if wanted else 1
    for start in range(0, options.draws, size):
        drawn = [space.draw(rng) for _ in range(min(size, options.draws - start))]
        new = [candidate for candidate in drawn if space.key(candidate) not in seen]
        if not new:
            continue
        steps = followed(space, new, wanted)
        if steps.max() > reached:
            best, reached = new[steps.argmax()], steps.max()
        if reached == len(wanted):
            break
    return best


def followed(space, candidates, wanted):
    """Return how many functions of a path hold one after the other, from its start [N]."""
    on, steps = np.ones(len(candidates), bool), np.zeros(len(candidates), int)
    features = space.features(candidates) if wanted else None
    for goes in wanted:
        on &= goes(features).astype(bool)
        steps += on
    return steps


# The cascade of the public code


@lru_cache(maxsize=2)
def cascade(features, columns, scores):
    """Classifiers of ever better halves; features: the bytes of float [N, columns].

    Each learns which of its samples score at least their median, and hands these on; so there is no
    exploration. There is one classifier, and one more above 400, 800, 1600 and 3200 samples. We
    take gradient boosting of scikit-learn, 100 rounds; the code has LightGBM with settings from 10
    trials of TPE. Where the median is the lowest score only what is above it is good. Samples that
    all score alike end the cascade (the code fails there).
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    features, scores = np.frombuffer(features).reshape(-1, columns), np.array(scores)
    fitted = []
    for _ in range(1 + sum(len(scores) > size for size in GROWTH)):
        middle = np.median(scores)
        good = scores >= middle if middle > scores.min() else scores > middle
        if not good.any():
            break
        leaf = max(1, min(20, len(scores) // 10))
        classifier = HistGradientBoostingClassifier(
            max_iter=100, early_stopping=False, min_samples_leaf=leaf, random_state=0
        )
        fitted.append(classifier.fit(features, good))
        features, scores = features[good], scores[good]
    return tuple(fitted)


# Evolution


def evolution(space, history, seen, options, rng):
    """Return a changed copy of the best of `options.tournament` candidates, drawn with replacement.

    They are drawn from the youngest `options.population`: who is older has died.
    """
    alive = history[-options.population :]
    drawn = [alive[i] for i in rng.integers(len(alive), size=options.tournament)]
    parent = max(drawn, key=lambda e: e.score).candidate
    for _ in range(options.draws):
        child = space.mutate(parent, rng)
        if space.key(child) not in seen:
            return child
    return follow(space, seen, [], options, rng)
