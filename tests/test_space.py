"""The search space of EfficientBERT: sizes and counts exactly, sampling against the
shares of the public code, features."""

import random
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from lib.model import formula as language
from lib.papers.efficientbert.recipes import NETS
from lib.papers.efficientbert.search import grow as grown
from lib.papers.efficientbert.search import space as spaces
from lib.papers.efficientbert.search.grow import (
    convert_to_prefix_notation,
    find_end_of_subtree,
    mutate_formula,
    mutate_prefix_notation,
    parse_prefix_notation,
    parse_prefix_notation_in_search_space,
)
from lib.papers.efficientbert.search.language import parse_and_check_formula
from lib.papers.efficientbert.search.net import BERT, Layer, Net, count_net_parameters
from lib.papers.efficientbert.search.sizes import LayerChoicesWithinCostWindow
from lib.papers.efficientbert.search.space import IDS, Space, find_index_of_layer_size

BASE = NETS["Base Model"]
TOY_TABLES = {"vocab": 500, "positions": 128, "teacher": 192}
TOY = Net(
    96, 96, 12, "trigram", "truncate", (Layer(BERT), Layer("tanh(W2 gelu(W1 x))", 2, 2))
)


def toy(stage, low=0, high=0):
    return Space(stage, TOY, low, high, tables=TOY_TABLES)


def window(share=0.25):
    """A window of the toy space with about so many of its id pairs."""
    sizes = sorted(size(ids) for ids in product(IDS, repeat=2))
    return sizes[int(len(sizes) * (0.5 - share / 2))], sizes[
        int(len(sizes) * (0.5 + share / 2))
    ]


def size(ids):
    net = replace(TOY, layers=tuple(Layer(BERT, *id_) for id_ in ids))
    return count_net_parameters(net, "with projection", **TOY_TABLES)


def ids_of(net):
    return tuple((l.stack, l.q) for l in net.layers)


def dice(seed):
    return random.Random(seed).random


def test_there_are_sixteen_ids_in_order():
    assert len(IDS) == 16 and [
        find_index_of_layer_size(Layer(BERT, k, q)) for k, q in IDS
    ] == list(range(16))
    assert find_index_of_layer_size(Layer(BERT, 4, 2)) == 13


@pytest.mark.parametrize("k, q", [(5, 1), (1, 5), (6, 3)])
def test_another_id_is_refused(k, q):
    with pytest.raises(ValueError, match="not in tuple"):
        Space("stage3", replace(BASE, layers=(Layer(BERT, k, q), *BASE.layers[1:])))


def test_stage_3_has_as_many_candidates_as_counted_elsewhere():
    space = Space("stage3", BASE, 15_000_000, 16_000_000)
    assert space.count_layer_size_combinations() == 4_480_424
    assert Space("stage3", BASE).count_layer_size_combinations() == 16**6
    combinations = space.layer_size_combinations_within_parameter_bounds
    parameters_elsewhere = space.low - combinations.low
    sums = combinations.ways[-1][0] + parameters_elsewhere
    assert (sums[0], sums[-1]) == (12_712_014, 25_875_324)


def test_counts_of_many_layers_are_exact():
    space = Space("stage3", replace(BASE, layers=BASE.layers * 2))
    assert space.count_layer_size_combinations() == 16**12
    assert space.is_within_parameter_bounds(
        space.sample_candidate(np.random.default_rng(0))
    )


def test_sizes_are_those_of_all_choices():
    costs, low, high = [[3, 5, 8], [1, 4], [2, 2, 7, 9]], 9, 14
    every = product(*map(enumerate, costs))
    inside = [
        tuple(i for i, _ in c) for c in every if low <= sum(n for _, n in c) <= high
    ]
    sizes = LayerChoicesWithinCostWindow(costs, low, high)
    assert sizes.count_combinations() == len(inside)
    rng = np.random.default_rng(0)
    drawn = Counter(
        tuple(sizes.sample_choice_of_each_layer(rng)) for _ in range(200 * len(inside))
    )
    assert set(drawn) == set(inside)
    assert np.ptp(list(drawn.values())) < 6 * np.sqrt(200)  # equally likely


def test_the_toy_space_is_counted_and_drawn_within_its_window():
    low, high = window()
    inside = {ids for ids in product(IDS, repeat=2) if low <= size(ids) <= high}
    space = toy("stage3", low, high)
    assert space.count_layer_size_combinations() == len(inside) < 100
    rng = np.random.default_rng(1)
    assert {ids_of(space.sample_candidate(rng)) for _ in range(3000)} == inside
    assert all(
        low <= space.count_net_parameters(space.sample_candidate(rng)) <= high
        for _ in range(20)
    )


def test_a_window_without_candidates_is_said_at_once():
    said = r"no candidate has 30,000,000 to 31,000,000 parameters \("
    with pytest.raises(ValueError, match=said + "with .*: move the window"):
        Space("stage3", BASE, 30_000_000, 31_000_000)
    with pytest.raises(ValueError, match="no candidate"):
        Space("stage1", BASE, 12_712_015, 12_712_016)


def test_stage_2_keeps_ids_and_looks_at_no_window():
    start = NETS["Search Stage 1"]
    net = Space("stage2", start, 30_000_000, 31_000_000).sample_candidate(
        np.random.default_rng(0)
    )
    assert ids_of(net) == ids_of(start)


@pytest.mark.parametrize("name", ["Search Stage 2", "EfficientBERT"])
def test_prefix_lists_read_back(name):
    for layer in NETS[name].layers:
        assert (
            parse_prefix_notation(convert_to_prefix_notation(layer.formula_tree))
            == layer.formula_tree
        )
    assert convert_to_prefix_notation(language.parse_feed_forward_formula(BERT)) == [
        "linear",
        "gelu",
        "linear",
        "x",
        "W1",
        "W2",
    ]


@pytest.mark.parametrize("linears, share", [(16, 0.0028), (1, 0.0082)])
def test_valid_share_of_changes_is_that_of_the_public_code(linears, share):
    """2,770 of a million and 4,897 of 600,000 tries, by a simulation of the public
    code."""
    roll = dice(3)
    seed = convert_to_prefix_notation(language.parse_feed_forward_formula(BERT))
    tries = 40_000
    changed = (mutate_prefix_notation(seed, linears, roll) for _ in range(tries))
    found = [
        tokens for tokens in changed if parse_prefix_notation_in_search_space(tokens)
    ]
    assert len(found) / tries == pytest.approx(share, rel=4 / np.sqrt(share * tries))
    assert {len(tokens) for tokens in found} <= set(range(6, 14))
    for tokens in found:
        parse_and_check_formula(parse_prefix_notation(tokens))


def test_changes_are_whole_trees_and_keep_the_root_at_replacement():
    """Every result reads to its end, whatever it is; the seed list is left alone."""
    roll = dice(0)
    seed = convert_to_prefix_notation(
        language.parse_feed_forward_formula("tanh(W2 max(W1 x, x))")
    )
    before = list(seed)
    for _ in range(2000):
        tokens = mutate_prefix_notation(seed, 4, roll)
        assert find_end_of_subtree(tokens, 0) == len(tokens)
    assert seed == before


def test_without_a_valid_change_the_seed_stays():
    assert mutate_formula(BERT, 0, 16, dice(0)) == BERT
    assert mutate_formula(BERT, 400, 1, dice(0)) != BERT


def test_trees_are_three_to_seven_high(monkeypatch):
    highest = "tanh(W2 (tanh(W1 (x + tanh(x))) * x))"
    for text, there in (
        (highest, True),
        (f"x + {highest}", False),
        ("W1 x + W2 x", False),
    ):
        assert (
            bool(
                parse_prefix_notation_in_search_space(
                    convert_to_prefix_notation(
                        language.parse_feed_forward_formula(text)
                    )
                )
            )
            == there
        )
        with monkeypatch.context() as patch:
            patch.setattr(grown, "HEIGHTS", (1, 9))
            assert parse_prefix_notation_in_search_space(
                convert_to_prefix_notation(language.parse_feed_forward_formula(text))
            )


def test_a_fixed_formula_that_does_not_fit_a_ratio_leaves_it_out():
    net = replace(TOY, layers=(Layer(BERT), Layer("W1 gelu(x) + W2 tanh(x)", 1, 1)))
    space = Space("stage3", net, tables=TOY_TABLES)
    assert space.count_layer_size_combinations() == 16 * 4
    rng = np.random.default_rng(0)
    assert {space.sample_candidate(rng).layers[1].q for _ in range(50)} == {1}
    assert {space.mutate_net(net, rng).layers[1].q for _ in range(50)} == {1}


@pytest.mark.parametrize("stage", ["stage1", "stage2", "stage3", "single"])
def test_candidates_are_of_their_space(stage):
    low, high = window()
    space, rng = toy(stage, low, high), np.random.default_rng(0)
    for _ in range(12):
        net = space.sample_candidate(rng)
        assert (
            "ids" not in space.searched_layer_properties
            or low <= space.count_net_parameters(net) <= high
        )
        assert replace(net, layers=TOY.layers) == TOY
        for layer, start in zip(net.layers, TOY.layers, strict=True):
            parse_and_check_formula(layer.formula, 96, net.count_inner_channels(layer))
            assert (
                "formula" in space.searched_layer_properties
                or layer.formula == start.formula
            )
        assert "ids" in space.searched_layer_properties or ids_of(net) == ids_of(TOY)
        assert space.convert_json_layers_to_net(net.to_json()["layers"]) == net


def test_draws_are_a_function_of_the_generator():
    space = toy("stage1")
    rngs = map(np.random.default_rng, (5, 5))
    first, again = ([space.sample_candidate(rng) for _ in range(3)] for rng in rngs)
    assert first == again and len(set(first)) > 1


def test_mutations_change_one_layer_in_what_is_searched():
    low, high = window(0.5)
    for stage in ("stage1", "stage2", "stage3"):
        space, rng = toy(stage, low, high), np.random.default_rng(2)
        net, kinds = space.sample_candidate(rng), Counter()
        for _ in range(40):
            other = space.mutate_net(net, rng)
            assert space.is_within_parameter_bounds(other)
            changed = [
                (a, b) for a, b in zip(net.layers, other.layers, strict=True) if a != b
            ]
            assert len(changed) <= 1  # a formula may stay, where no change was valid
            for a, b in changed:
                kinds["ids" if a.formula == b.formula else "formula"] += 1
                assert a.formula == b.formula or (a.stack, a.q) == (b.stack, b.q)
        assert set(kinds) == set(space.searched_layer_properties)


def test_mutations_reach_all_networks_of_the_window_with_one_other_id():
    low, high = window(0.5)
    space, rng = toy("stage3", low, high), np.random.default_rng(0)
    net = space.sample_candidate(rng)
    first, second = ids_of(net)
    near = {(i, second) for i in IDS} ^ {(first, i) for i in IDS}
    wanted = {ids for ids in near if low <= size(ids) <= high}
    assert {
        ids_of(space.mutate_net(net, rng)) for _ in range(60 * len(wanted))
    } == wanted


def test_what_is_evaluated_first():
    start = NETS["Search Stage 1"]
    plain = tuple(Layer(BERT, *id_) for id_ in ids_of(start))
    assert Space("stage1", BASE, 15_000_000, 16_000_000).list_starting_networks() == [
        BASE
    ]
    assert Space("stage2", start).list_starting_networks() == [
        start,
        replace(start, layers=plain),
    ]
    assert Space("stage2", BASE).list_starting_networks() == [BASE]  # its own twin
    assert (
        Space("stage1", BASE, 15_400_000, 16_000_000).list_starting_networks() == []
    )  # 15.339 M is below


def test_keys_are_equal_for_networks_that_differ_by_order_alone():
    space = Space("stage1", BASE)
    one, other, third, narrow = (
        replace(BASE, layers=(Layer(text, 2, q), *BASE.layers[1:]))
        for text, q in (
            ("W2 gelu(W1 x + x)", 3),
            ("W2 gelu(x + W1 x)", 3),
            ("W2 gelu(x * W1 x)", 3),
            ("W2 gelu(W1 x + x)", 2),
        )
    )
    assert space.make_deduplication_key(one) == space.make_deduplication_key(other)
    assert len({space.make_deduplication_key(net) for net in (one, third, narrow)}) == 3


def test_identities_tell_spaces_apart_and_read_back():
    different = [toy("stage1"), toy("single"), toy("stage1", 0, 10**9)]
    different.append(replace(different[0], convention="deployable"))
    assert len({str(s.to_json()) for s in different}) == 4
    for space in different:
        assert spaces.from_json(space.to_json()) == space


@pytest.mark.parametrize(
    "stage, index",
    [
        # tanh, 4_2, max, 4_2, x, W1, x, W2: linear maps by id, then add, mul, max, gelu
        # ... W2
        ("stage1", [21, 13, 18, 13, 26, 27, 26, 28]),
        ("stage2", [6, 0, 3, 0, 11, 12, 11, 13]),  # one map
        ("stage3", [13]),
    ],
)
def test_features_hold_what_is_searched(stage, index):
    """As coded, lists of indices."""
    net = replace(BASE, layers=(Layer("tanh(W2 max(W1 x, x))", 4, 2), *BASE.layers[1:]))
    space = Space(stage, net)
    row = space.compute_classifier_features([net])[0].reshape(6, -1)
    assert row.shape[1] == (1 if stage == "stage3" else 20)
    assert row[0, : len(index)].tolist() == index and (row[0, len(index) :] == -1).all()
    if stage == "stage1":
        assert row[1, :6].tolist() == [0, 19, 0, 26, 27, 28]


def test_an_unknown_stage_is_refused():
    with pytest.raises(
        ValueError, match="unknown search stage: 'stage4'; did you mean 'stage3'"
    ):
        toy("stage4")


@pytest.mark.parametrize(
    "tokens",
    [
        ["linear", "gelu", "foreign", "x", "W1", "W2"],
        ["linear", "gelu", "linear", "x", "x", "W2"],
        ["gelu", "W1"],
        ["linear", "gelu", "linear", "W1", "x", "W2"],
    ],
)
def test_other_lists_are_no_formula(tokens):
    assert (
        parse_prefix_notation(tokens) is None
        and parse_prefix_notation_in_search_space(tokens) is None
    )


def test_ends_of_parts():
    tokens = ["linear", "gelu", "linear", "x", "W1", "W2"]
    assert [find_end_of_subtree(tokens, i) for i in range(6)] == [6, 5, 5, 4, 5, 6]


def test_width_errors_are_no_formula():
    tokens = convert_to_prefix_notation(
        language.parse_feed_forward_formula("W1 x + W2 gelu(x)")
    )
    assert parse_prefix_notation_in_search_space(
        tokens
    ) and parse_prefix_notation_in_search_space(tokens, 96, 96, "truncate")
    assert not parse_prefix_notation_in_search_space(tokens, 96, 48, "truncate")
