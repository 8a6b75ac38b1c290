"""What samplers propose: on made-up scores of networks, and where nothing can be
learned."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import landscape

from lib.papers.efficientbert.options import Search
from lib.papers.efficientbert.search import samplers
from lib.papers.efficientbert.search.net import BERT, Layer, Net
from lib.papers.efficientbert.search.samplers import Evaluation, propose_candidate
from lib.papers.efficientbert.search.space import Space, find_index_of_layer_size

TOY = Net(96, 96, 12, "trigram", "truncate", (Layer(BERT),) * 2)
SPACE = Space("stage3", TOY)
METHODS = {
    "random": Search("random", 60, 500),
    "cascade": Search("cascade", 60, 500, initial=12, refit=10, encoding="index"),
    "evolution": Search("evolution", 60, 500, population=10, tournament=4),
}


def proposed(method, history, seed=0, space=SPACE):
    return propose_candidate(
        space, history, METHODS[method], np.random.default_rng(seed)
    )


def evaluations(count, score, space=SPACE, seed=0):
    rng, found = np.random.default_rng(seed), {}
    while len(found) < count:
        net = space.sample_candidate(rng)
        found[space.make_deduplication_key(net)] = Evaluation(
            net, space.make_deduplication_key(net), score(net)
        )
    return list(found.values())


def first_id(net):
    return find_index_of_layer_size(net.layers[0]) / 16


@pytest.mark.parametrize("method", METHODS)
def test_a_proposal_is_new_and_a_function_of_history_and_generator(method):
    history = evaluations(40, landscape(0, 2))
    first, again = (proposed(method, history, 3) for _ in range(2))
    samplers.fit_classifier_cascade.cache_clear()
    assert first == again == proposed(method, list(history), 3)
    assert SPACE.make_deduplication_key(first) not in {e.key for e in history}
    assert (
        len(
            {
                SPACE.make_deduplication_key(proposed(method, history, seed))
                for seed in range(5)
            }
        )
        > 1
    )


@pytest.mark.parametrize("method", METHODS)
def test_an_exhausted_space_gives_none(method):
    layers = (Layer("W1 gelu(x) + W2 tanh(x)"),)
    space = Space("stage3", replace(TOY, layers=layers))  # four ids of ratio 1
    history = evaluations(4, landscape(0, 1), space)
    assert proposed(method, history * 5, space=space) is None
    assert proposed(method, history[:3], space=space) == history[3].candidate


@pytest.mark.parametrize("count, classifiers", [(80, 1), (400, 1), (401, 2), (900, 3)])
def test_the_cascade_grows_at_its_thresholds(count, classifiers):
    features = np.random.default_rng(0).normal(size=(count, 4))
    scores = features[:, 0]
    fitted = samplers.fit_classifier_cascade(features.tobytes(), 4, tuple(scores))
    assert len(fitted) == classifiers
    good = scores >= np.median(scores)
    assert (fitted[0].predict(features) == good).mean() > 0.95
    if classifiers > 1:  # the second splits the good half at its own median
        half = features[good]
        assert (
            fitted[1].predict(half) == (scores[good] >= np.median(scores[good]))
        ).mean() > 0.95


def test_a_cascade_of_mostly_failures_learns_what_works():
    features = np.eye(2)[np.arange(40) % 4 // 3]  # every fourth works
    scores = tuple(0.8 * features[:, 1])
    fitted = samplers.fit_classifier_cascade(features.tobytes(), 2, scores)
    assert fitted[0].predict(np.eye(2)).tolist() == [False, True]
    assert samplers.fit_classifier_cascade(features.tobytes(), 2, (0.5,) * 40) == ()


def test_fits_are_renewed_after_so_many_evaluations(monkeypatch):
    seen = []
    monkeypatch.setattr(
        samplers,
        "fit_classifier_cascade",
        lambda *known: seen.append(len(known[2])) or (),
    )
    history = evaluations(45, first_id)
    for count in (11, 12, 21, 22, 31, 45):
        samplers.fit_classifiers_of_promising_networks(
            SPACE, history[:count], METHODS["cascade"]
        )
    assert seen == [12, 12, 22, 22, 42]  # none with fewer than the initial ones


def test_an_empty_region_gives_the_candidate_that_comes_nearest():
    path = [
        lambda f: f[:, 0] == 3,
        lambda f: f[:, 0] == 5,
    ]  # two ids of the first layer at once
    net = samplers.sample_unevaluated_candidate(
        SPACE, set(), path, METHODS["cascade"], np.random.default_rng(0)
    )
    assert find_index_of_layer_size(net.layers[0]) == 3


def test_evolution_changes_a_living_parent_of_the_tournament():
    options = replace(
        METHODS["evolution"], population=5, tournament=50
    )  # all living compete
    history = evaluations(30, first_id)
    best = max(history[-5:], key=lambda e: e.score)
    old = max(history[:-5], key=lambda e: e.score)
    assert old.score >= best.score
    for seed in range(5):
        child = propose_candidate(SPACE, history, options, np.random.default_rng(seed))
        assert (
            sum(
                a != b for a, b in zip(child.layers, best.candidate.layers, strict=True)
            )
            == 1
        )


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"method": "greedy"},
            "Search.method is 'greedy'; allowed: 'random', 'cascade', 'evolu",
        ),
        ({"budget": 0}, "Search.budget is 0; it must be at least 1"),
        ({"method": "cascade"}, "Search.initial is 0; cascade needs at least 1"),
        ({"method": "cascade", "initial": 3}, "Search.refit is 0; cascade needs"),
        ({"method": "evolution"}, "Search.population is 0; evolution needs at least 1"),
        ({"method": "evolution", "population": 5}, "Search.tournament is 0; evolution"),
    ],
)
def test_options_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        Search(**{"method": "random", "budget": 10, "draws": 10} | changes)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("count", [0, 1, 3, 11, 12, 25])
def test_few_equal_or_failed_scores_are_no_obstacle(method, count):
    for score in (
        lambda net: 0.0,
        lambda net: 0.7,
        lambda net: float(find_index_of_layer_size(net.layers[0]) == 0),
    ):
        history = evaluations(count, score)
        assert SPACE.make_deduplication_key(proposed(method, history)) not in {
            e.key for e in history
        }


def test_a_failed_candidate_is_never_the_parent():
    """Matthews' correlation may be negative, and a failed candidate has score 0."""
    options = replace(METHODS["evolution"], population=2, tournament=50)
    worked, failed = evaluations(2, lambda net: -0.1)
    history = [worked, replace(failed, score=0.0, failed="diverged")]
    alone = [worked, replace(worked, key="failed as well")]
    for seed in range(5):
        found = [
            propose_candidate(SPACE, each, options, np.random.default_rng(seed))
            for each in (history, alone)
        ]
        assert found[0] == found[1]


def test_a_cascade_learns_that_failures_are_worse_than_negative_scores(monkeypatch):
    seen = []
    monkeypatch.setattr(
        samplers, "fit_classifier_cascade", lambda *known: seen.append(known[2]) or ()
    )
    history = evaluations(12, lambda net: -0.1)
    history[3] = replace(history[3], score=0.0, failed="diverged")
    samplers.fit_classifiers_of_promising_networks(SPACE, history, METHODS["cascade"])
    assert np.argmin(seen[0]) == 3 and seen[0].count(-0.1) == 11


def test_random_search_draws_from_the_space():
    drawn = proposed("random", evaluations(30, first_id), 5)
    assert drawn == SPACE.sample_candidate(np.random.default_rng(5))


def test_the_cascade_is_greedy():
    """Where one id decides, nearly all it proposes are of the upper half."""
    history, rng = evaluations(60, first_id), np.random.default_rng(0)
    found = [
        first_id(propose_candidate(SPACE, history, METHODS["cascade"], rng))
        for _ in range(40)
    ]
    assert np.mean(np.array(found) >= np.median([e.score for e in history])) > 0.95
