"""What samplers propose: on made-up scores of networks, with the exact optimum, and where nothing
can be learned.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats

from lib.options import Search
from lib.papers.efficientbert import NETS
from lib.search import engine, samplers
from lib.search.landscape import landscape
from lib.search.net import BERT, STACKS, Layer, Net
from lib.search.samplers import Evaluation, propose
from lib.search.space import IDS, Space, number

TOY = Net(96, 96, 12, "trigram", "truncate", (Layer(BERT),) * 2)
SPACE = Space("stage3", TOY)
METHODS = {
    "random": Search("random", 60, 500),
    "cascade": Search("cascade", 60, 500, initial=12, refit=10, encoding="onehot"),
    "lanas": Search("lanas", 60, 500, initial=10, refit=10, encoding="onehot", height=4, cp=0.01),
    "evolution": Search("evolution", 60, 500, population=10, tournament=4),
}


def proposed(method, history, seed=0, space=SPACE):
    return propose(space, history, METHODS[method], np.random.default_rng(seed))


def evaluations(count, score, space=SPACE, seed=0):
    rng, found = np.random.default_rng(seed), {}
    while len(found) < count:
        net = space.draw(rng)
        found[space.key(net)] = Evaluation(net, space.key(net), score(net))
    return list(found.values())


def first_id(net):
    return number(net.layers[0]) / 16


# ---- the made-up landscape ----
@pytest.mark.parametrize("low, high", [(0, 0), (90_000, 140_000)])
def test_the_optimum_is_that_of_all_networks(low, high):
    only_ratio_1 = Layer("W1 gelu(x) + W2 tanh(x)")
    net = replace(TOY, layers=(*TOY.layers, only_ratio_1))
    tables = {"vocab": 100, "positions": 16, "teacher": 32}
    rest = high and Space("stage3", net, tables=tables).rest
    space = Space("stage3", net, rest + low, rest + high, tables=tables)
    scores = landscape(7, 3)
    every = [
        replace(net, layers=[Layer(BERT, *a), Layer(BERT, *b), replace(only_ratio_1, stack=k)])
        for a, b, k in product(IDS, IDS, STACKS)
    ]
    inside = [n for n in every if space.inside(n)]
    assert len(inside) == space.id_tuples() and (low == 0 or len(inside) < len(every))
    best = max(inside, key=scores)
    ids, score = scores.best(space)
    assert score == pytest.approx(scores(best), abs=1e-12)
    assert ids == [number(l) for l in best.layers]


def test_landscapes_have_the_spread_they_are_asked_for():
    base, rng = NETS["Base Model"], np.random.default_rng(0)
    space, made = Space("stage3", base), [landscape(s, 6, 0.5, spread=0.03) for s in range(300)]
    values = [each(space.draw(rng)) for each in made for _ in range(5)]
    assert np.mean(values) == pytest.approx(0.5, abs=0.005)
    assert np.std(values) == pytest.approx(0.03, rel=0.1)
    assert landscape(3, 6)(base) == landscape(3, 6)(base) != landscape(4, 6)(base)


# ---- every method ----
@pytest.mark.parametrize("method", METHODS)
def test_a_proposal_is_new_and_a_function_of_history_and_generator(method):
    history = evaluations(40, landscape(0, 2))
    first, again = (proposed(method, history, 3) for _ in range(2))
    samplers.tree.cache_clear(), samplers.cascade.cache_clear()
    assert first == again == proposed(method, list(history), 3)
    assert SPACE.key(first) not in {e.key for e in history}
    assert len({SPACE.key(proposed(method, history, seed)) for seed in range(5)}) > 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("count", [0, 1, 3, 11, 12, 25])
def test_few_equal_or_failed_scores_are_no_obstacle(method, count):
    for score in (lambda net: 0.0, lambda net: 0.7, lambda net: float(number(net.layers[0]) == 0)):
        history = evaluations(count, score)
        assert SPACE.key(proposed(method, history)) not in {e.key for e in history}


@pytest.mark.parametrize("method", METHODS)
def test_an_exhausted_space_gives_none(method):
    layers = (Layer("W1 gelu(x) + W2 tanh(x)"),)
    space = Space("stage3", replace(TOY, layers=layers))  # four ids of ratio 1
    history = evaluations(4, landscape(0, 1), space)
    assert proposed(method, history * 5, space=space) is None
    assert proposed(method, history[:3], space=space) == history[3].candidate


# ---- each of them ----
def test_random_search_draws_from_the_space():
    drawn = proposed("random", evaluations(30, first_id), 5)
    assert drawn == SPACE.draw(np.random.default_rng(5))


@pytest.mark.parametrize("count, classifiers", [(80, 1), (400, 1), (401, 2), (900, 3)])
def test_the_cascade_grows_at_its_thresholds(count, classifiers):
    features = np.random.default_rng(0).normal(size=(count, 4))
    scores = features[:, 0]
    fitted = samplers.cascade(features.tobytes(), 4, tuple(scores))
    assert len(fitted) == classifiers
    good = scores >= np.median(scores)
    assert (fitted[0].predict(features) == good).mean() > 0.95
    if classifiers > 1:  # the second splits the good half at its own median
        half = features[good]
        assert (fitted[1].predict(half) == (scores[good] >= np.median(scores[good]))).mean() > 0.95


def test_the_cascade_is_greedy():
    """Where one id decides, nearly all it proposes are of the upper half."""
    history, options = evaluations(60, first_id), replace(METHODS["cascade"], encoding="index")
    rng = np.random.default_rng(0)
    found = [first_id(propose(SPACE, history, options, rng)) for _ in range(40)]
    assert np.mean(np.array(found) >= np.median([e.score for e in history])) > 0.95


def test_a_cascade_of_mostly_failures_learns_what_works():
    features = np.eye(2)[np.arange(40) % 4 // 3]  # every fourth works
    scores = tuple(0.8 * features[:, 1])
    fitted = samplers.cascade(features.tobytes(), 2, scores)
    assert fitted[0].predict(np.eye(2)).tolist() == [False, True]
    assert samplers.cascade(features.tobytes(), 2, (0.5,) * 40) == ()


def test_fits_are_renewed_after_so_many_evaluations(monkeypatch):
    seen = []
    monkeypatch.setattr(samplers, "tree", lambda *known: seen.append(len(known[2])))
    history = evaluations(45, first_id)
    for count in (9, 10, 19, 20, 29, 45):
        samplers.path(SPACE, history[:count], METHODS["lanas"])
    assert seen == [10, 10, 20, 20, 40]  # none with fewer than the initial ones


def test_a_split_is_the_ridge_regression_at_its_mean():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(50, 3)) * [1, 5, 0] + [0, 2, 7]  # the last column is constant
    scores = rng.normal(size=50)
    node = samplers.grown(features, scores, 1)
    z = (features - features.mean(0))[:, :2] / features.std(0)[:2]
    rows = np.vstack([z, np.sqrt(samplers.RIDGE) * np.eye(2)])  # the penalty as rows
    weights = np.linalg.lstsq(rows, np.concatenate([scores - scores.mean(), np.zeros(2)]))[0]
    np.testing.assert_allclose(node.weights, [*weights / features.std(0)[:2], 0], atol=1e-12)
    assert (node.goes(features) == (z @ weights >= 0)).all()
    assert node.good is None and node.bad is None


def depth(node):
    return 0 if node is None else 1 + max(depth(node.good), depth(node.bad))


def test_trees_end_at_their_height_or_where_samples_are_alike():
    rng = np.random.default_rng(0)
    features, scores = rng.normal(size=(200, 5)), rng.normal(size=200)
    assert [depth(samplers.grown(features, scores, splits)) for splits in (1, 2, 4)] == [1, 2, 4]
    assert samplers.grown(features, np.ones(200), 4) is None
    assert samplers.grown(features[:1], scores[:1], 4) is None
    assert samplers.grown(np.zeros((200, 5)), scores, 4) is None  # nothing to tell them by
    assert depth(samplers.grown(features[:3], scores[:3], 4)) < 3


@pytest.mark.parametrize(
    "good, bad, cp, chosen",
    [(10, 90, 0.0, True), (10, 90, 0.1, True), (90, 10, 0.0, True), (90, 10, 0.1, False)]
    + [(90, 10, 0.05, True)],
)
def test_the_upper_confidence_bound_decides(good, bad, cp, chosen):
    """mean + 2 cp sqrt(2 ln 100 / n): with n 90 and 10 the bonus is 0.064 and 0.192 at cp 0.1,
    0.032 and 0.096 at 0.05; the means are 0.1 apart.
    """
    node = samplers.Split(np.ones(1), 0.0, None, None)
    features = np.r_[np.ones(good), -np.ones(bad)][:, None]
    scores = np.r_[np.full(good, 0.6), np.full(bad, 0.5)]
    path = samplers.select(node, features, scores, cp)
    assert [goes(np.array([[2.0], [-2.0]])).tolist() for goes in path] == [[chosen, not chosen]]


def test_lanas_proposes_from_the_leaf_it_selected():
    history = evaluations(60, landscape(1, 2))
    path = samplers.path(SPACE, history, METHODS["lanas"])
    assert 1 <= len(path) <= 3
    for seed in range(5):
        net = propose(SPACE, history, METHODS["lanas"], np.random.default_rng(seed))
        assert samplers.followed(SPACE, [net], path, "onehot").tolist() == [len(path)]


def test_an_empty_region_gives_the_candidate_that_comes_nearest():
    path = [lambda f: f[:, 3] == 1, lambda f: f[:, 5] == 1]  # two ids of the first layer at once
    net = samplers.follow(SPACE, set(), path, METHODS["lanas"], np.random.default_rng(0))
    assert number(net.layers[0]) == 3


def test_evolution_changes_a_living_parent_of_the_tournament():
    options = replace(METHODS["evolution"], population=5, tournament=50)  # all living compete
    history = evaluations(30, first_id)
    best, old = max(history[-5:], key=lambda e: e.score), max(history[:-5], key=lambda e: e.score)
    assert old.score >= best.score
    for seed in range(5):
        child = propose(SPACE, history, options, np.random.default_rng(seed))
        assert sum(a != b for a, b in zip(child.layers, best.candidate.layers, strict=True)) == 1


# ---- options ----
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"method": "greedy"}, "Search.method is 'greedy'; allowed: 'random', 'cascade', 'lanas'"),
        ({"method": "lanas"}, "Search.initial is 0; it must be at least 1"),
        (vars(METHODS["lanas"]) | {"height": 1}, "height is 1; it must be at least 2"),
        ({"method": "cascade", "initial": 10, "refit": 10}, "Search.encoding is ''; allowed"),
        ({"cp": 0.1}, "Search.cp is 0.1, which 'random' does not take"),
        (vars(METHODS["evolution"]) | {"height": 3}, "height is 3, which 'evolution' does not"),
        ({"budget": 0}, "Search.budget is 0; it must be at least 1"),
    ],
)
def test_options_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        Search(**{"method": "random", "budget": 10, "draws": 10} | changes)


# ---- which of them finds more ----
def shares(method, space, budget, seeds, layers, tmp_path):
    """How far each search came from a random network's mean to the optimum, [seeds]."""
    found = []
    for seed in seeds:
        scores, options = landscape(seed, layers), replace(METHODS[method], budget=budget)
        history = engine.search(space, scores, options, seed, tmp_path / f"{method}-{seed}")
        best = engine.best(history).score
        found.append((best - scores.level) / (scores.best(space)[1] - scores.level))
    return np.array(found)


def test_guided_searches_beat_a_random_one_at_equal_budget(tmp_path):
    """Three layers, no window, 60 of 4,096 candidates, 10 landscapes: a small sibling of the next
    test.
    """
    space = Space("stage3", replace(TOY, layers=TOY.layers + TOY.layers[:1]))
    blind, lanas, evolution = (
        shares(m, space, 60, range(100, 110), 3, tmp_path) for m in ("random", "lanas", "evolution")
    )
    assert lanas.mean() > blind.mean() and evolution.mean() > blind.mean()
    assert lanas.max() <= 1 + 1e-9 and blind.max() <= 1 + 1e-9


@pytest.mark.slow
def test_lanas_beats_random_search_in_the_space_of_stage_3(tmp_path):
    """Paired over 20 landscapes, 120 evaluations of 4,480,424 candidates."""
    space = Space("stage3", NETS["Base Model"], 15_000_000, 16_000_000)
    blind, lanas, evolution = (
        shares(m, space, 120, range(100, 120), 6, tmp_path)
        for m in ("random", "lanas", "evolution")
    )
    assert stats.ttest_rel(lanas, blind, alternative="greater").pvalue < 0.01
    assert stats.ttest_rel(evolution, blind, alternative="greater").pvalue < 0.001
