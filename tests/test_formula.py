"""Formulas: text and tree round-trip, mistakes are named, widths, and values against
closed forms."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.model import formula
from lib.model.formula import (
    NUMPY,
    FormulaError,
    Node,
    X,
    evaluate_formula_tree,
    measure_tree_height,
    parse_feed_forward_formula,
)
from lib.model.stack import FUNCTIONS as TORCH
from lib.papers.efficientbert.search.language import (
    is_valid_formula,
    parse_and_check_formula,
    sort_commutative_operands,
)

PUBLISHED = (
    "W2 gelu(W1 x)",
    "tanh(W2 gelu(W1 x))",
    "elu(W2 gelu(W1 x))",
    "sigmoid(W2 relu(W1 x))",
    "W2 gelu(W1 max(x, tanh(x)))",
    "W2 relu(W1 x * x)",
    "leaky_relu(W2 gelu(W1 x))",
)


def trees(unary, leaves):
    def larger(inner):
        operands = {1: st.tuples(inner), 2: st.tuples(inner, inner)}
        names = {1: unary, 2: formula.BINARY}
        each = [st.builds(Node, st.sampled_from(names[n]), operands[n]) for n in (1, 2)]
        return st.one_of(*each)

    return st.recursive(st.just(X), larger, max_leaves=leaves)


TREES = trees(formula.LINEAR + formula.UNARY, 12)


@settings(deadline=None, derandomize=True)
@given(TREES)
def test_what_is_printed_is_read_back_as_the_same_tree(tree):
    assert parse_feed_forward_formula(str(tree)) == tree
    assert (
        parse_feed_forward_formula(str(tree).replace(" ", "  ").replace("(", "( "))
        == tree
    )


@pytest.mark.parametrize(
    "text, printed",
    [
        ("W2(gelu(W1(x)))", "W2 gelu(W1 x)"),
        ("add(x,mul(x,tanh x))", "x + x * tanh(x)"),
        ("(x + x) * x", "(x + x) * x"),
        ("x + (x + x)", "x + (x + x)"),
        ("x + x + x", "x + x + x"),
        ("W1 x * x", "W1 x * x"),
        ("W1 (x * x)", "W1 (x * x)"),
        ("gelu W1 max(x,x)", "gelu(W1 max(x, x))"),
        (" ( ( x ) ) ", "x"),
    ],
)
def test_spellings(text, printed):
    assert str(parse_feed_forward_formula(text)) == printed


@pytest.mark.parametrize(
    "text, said",
    [
        ("W2 gleu(W1 x)", "unknown operation: 'gleu'; did you mean 'gelu'?"),
        ("W2 foo(W1 x)", "unknown operation: 'foo' (allowed: x, W1, W2, "),
        ("W2 gelu(W1 x", "'(' was never closed"),
        ("W2 gelu(W1 x))", "unmatched ')'"),
        ("W2 gelu(W1 x) x", "invalid syntax"),
        ("W2 gelu(W1 x[:3])", "'x[:3]' is neither x nor an operation on its operands"),
        ("max(x)", "'max' with 1 operands"),
        ("x - x", "'x - x' is neither x nor an operation"),
        ("x ** x", "'x ** x' is neither x nor an operation"),
        ("gelu", "'gelu' is neither x nor an operation"),
        ("", "invalid syntax"),
        ("(" * 5000, "too many nested parentheses"),
    ],
)
def test_what_cannot_be_read_is_named(text, said):
    with pytest.raises(
        FormulaError, match=re.escape(f"{text!r} is no formula: ")
    ) as error:
        parse_feed_forward_formula(text)
    assert said in str(error.value)


@pytest.mark.parametrize(
    "text, said",
    [
        (
            "W2 gelu(W1 (x + W1 x))",
            "W1 occurs 2 times; W1 and W2 have to occur once each",
        ),
        ("W2 gelu(tanh(x))", "W1 occurs 0 times"),
        ("W1 gelu(W2 x)", "W1 has to be applied before W2"),
        ("W2 x + W1 gelu(x)", "W1 has to be applied before W2"),
        ("W2 W1 gelu(x)", "W2 directly on W1: two linear maps in a row"),
        ("W2 tanh(gelu(W1 x))", "tanh directly on gelu: two activations in a row"),
        ("W2 gelu(W1 (x * x))", "mul of two equal operands, x"),
        ("W2 gelu(W1 x) * x + gelu(W2 x)", "W2 occurs 2 times"),
    ],
)
def test_what_is_not_in_the_space_is_named(text, said):
    assert is_valid_formula(parse_feed_forward_formula(text)) == (not said)
    if said:
        with pytest.raises(FormulaError, match=re.escape(f"{text!r}: {said}")):
            parse_and_check_formula(text)


@pytest.mark.parametrize("text", PUBLISHED)
def test_the_published_formulas_are_in_the_space(text):
    for hidden, inner, rule in (
        (540, 540, "truncate"),
        (540, 135, "truncate"),
        (768, 1536, "pad"),
    ):
        assert str(parse_and_check_formula(text, hidden, inner, rule)) == text
    assert 3 <= measure_tree_height(parse_feed_forward_formula(text)) <= 5


@pytest.mark.parametrize(
    "text, said",
    [
        ("gelu(W1 x) + W2 tanh(x)", "W2 takes 270 channels, its input has 540"),
        ("W2 gelu(W1 x) * gelu(x) + x", None),
        ("x * W2 (W1 tanh(x) + x)", None),
        (
            "gelu(W1 x) * tanh(W2 (x + swish(x)))",
            "W2 takes 270 channels, its input has 540",
        ),
    ],
)
def test_widths(text, said):
    if said is None:
        assert is_valid_formula(parse_and_check_formula(text, 540, 270), 540, 270)
        return
    assert (
        is_valid_formula(parse_feed_forward_formula(text))
        and not is_valid_formula(parse_feed_forward_formula(text), 540, 270)
        and is_valid_formula(parse_feed_forward_formula(text), 540, 540)
    )
    with pytest.raises(FormulaError, match=said):
        parse_and_check_formula(text, 540, 270)


@settings(deadline=None, derandomize=True)
@given(
    trees(formula.UNARY, 3),
    trees(formula.UNARY, 3),
    st.sampled_from([8, 4, 12]),
    st.sampled_from(["truncate", "pad"]),
)
def test_what_passes_gives_as_many_channels_as_it_takes(one, two, inner, rule):
    tree = parse_feed_forward_formula(f"({one}) + W2 (gelu(W1 ({one})) * ({two}))")
    if is_valid_formula(tree, 8, inner, rule):
        *_, maps = linear(np.random.default_rng(0), 8, inner)
        out = evaluate_formula_tree(tree, np.full((3, 8), 0.1), maps, NUMPY, rule)
        assert (
            out.shape == (3, 8)
            and parse_and_check_formula(tree, 8, inner, rule) == tree
        )


def test_two_ways_of_writing_one_function_have_one_canonical_form():
    texts = ("W2 (max(x, tanh(x)) * W1 x + x)", "W2 (x + W1 x * max(tanh(x), x))")
    one, other = (
        sort_commutative_operands(parse_feed_forward_formula(text)) for text in texts
    )
    assert one == other == sort_commutative_operands(one)
    assert sort_commutative_operands(
        parse_feed_forward_formula("x + tanh(x) * x")
    ) != sort_commutative_operands(parse_feed_forward_formula("(x + tanh(x)) * x"))


@settings(deadline=None, derandomize=True)
@given(TREES)
def test_the_canonical_form_computes_the_same(tree):
    x = np.linspace(-1, 1, 8).reshape(2, 4)
    maps = {"W1": np.sin, "W2": np.cos}
    out = [
        evaluate_formula_tree(t, x, maps, NUMPY)
        for t in (tree, sort_commutative_operands(tree))
    ]
    np.testing.assert_allclose(*out, rtol=1e-9, equal_nan=True)


# Values

SCALAR = {
    "gelu": lambda x: (
        0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "tanh": math.tanh,
    "relu": lambda x: max(x, 0),
    "leaky_relu": lambda x: x if x >= 0 else 0.01 * x,
    "elu": lambda x: x if x >= 0 else math.exp(x) - 1,
    "swish": lambda x: x / (1 + math.exp(-x)),
}


def test_an_operation_of_ones_own_is_one_entry():
    """All that is done with operations follows from the table."""
    for names in (NUMPY, TORCH):
        assert (
            {*names}
            == {*formula.OPERATIONS, "pad"}
            == {*formula.UNARY, *formula.BINARY, "pad"}
        )
    assert {*formula.ARITY} == {*formula.OPERATIONS, "x", "W1", "W2"}
    assert {*SCALAR} <= {*formula.UNARY}


@pytest.mark.parametrize("op", SCALAR)
def test_activations(op):
    grid = np.linspace(-6, 6, 121)
    found = NUMPY[op](grid)
    np.testing.assert_allclose(
        found, [SCALAR[op](x) for x in grid], rtol=1e-13, atol=1e-15
    )
    np.testing.assert_allclose(
        found, TORCH[op](torch.tensor(grid)), rtol=1e-12, atol=1e-15
    )
    with np.errstate(over="raise", invalid="raise"):
        assert np.isfinite(NUMPY[op](np.array([-1e90, -1e3, 1e3, 1e90]))).all()


def linear(rng, hidden, inner):
    w1, w2 = rng.normal(size=(hidden, inner)), rng.normal(size=(inner, hidden))
    return w1, w2, {"W1": lambda a: a @ w1, "W2": lambda a: a @ w2}


def test_operands_of_different_width_by_hand():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 6))
    w1, w2, maps = linear(rng, 6, 4)
    out = evaluate_formula_tree(
        parse_feed_forward_formula("W2 relu(W1 x * x)"), x, maps, NUMPY
    )
    np.testing.assert_allclose(out, np.maximum(x @ w1 * x[:, :4], 0) @ w2)
    w1, w2, maps = linear(rng, 6, 9)
    y, more = np.split(x @ w1, [6], axis=1)
    for text, first in (
        ("W2 (W1 x * x)", y * x),
        ("W2 (x * W1 x)", y * x),
        ("W2 (W1 x + x)", y + x),
        ("W2 max(W1 x, x)", np.maximum(y, x)),
    ):
        found = evaluate_formula_tree(
            parse_feed_forward_formula(text), x, maps, NUMPY, "pad"
        )
        np.testing.assert_allclose(found, np.hstack([first, more]) @ w2)


def test_a_node_wants_its_operands():
    for op, args in (("gelu", ()), ("add", (X,)), ("foo", (X,)), ("x", (X,))):
        with pytest.raises(
            ValueError, match=f"'{op}' with {len(args)} operands; allowed"
        ):
            Node(op, args)


def test_application_binds_tighter_than_products_and_these_tighter_than_sums():
    assert parse_feed_forward_formula("x + W1 x * x") == Node(
        "add", (X, Node("mul", (Node("W1", (X,)), X)))
    )


def test_both_rules_for_operands_of_different_width():
    text = "W2 (tanh(W1 x) * x)"
    with pytest.raises(FormulaError, match="W2 takes 12 channels, its input has 8"):
        parse_and_check_formula(text, 8, 12)
    with pytest.raises(FormulaError, match="W2 takes 4 channels, its input has 8"):
        parse_and_check_formula(text, 8, 4, "pad")
    assert is_valid_formula(
        parse_and_check_formula(text, 8, 12, "pad"), 8, 12, "pad"
    ) and is_valid_formula(parse_feed_forward_formula(text), 8, 4)


@pytest.mark.parametrize("rule, inner", [("truncate", 4), ("pad", 9)])
@pytest.mark.parametrize("text", PUBLISHED)
def test_one_evaluator_serves_two_frameworks(text, rule, inner):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 5, 6))
    w1, w2, maps = linear(rng, 6, inner)
    t1, t2 = torch.tensor(w1), torch.tensor(w2)
    ours = evaluate_formula_tree(parse_feed_forward_formula(text), x, maps, NUMPY, rule)
    theirs = {"W1": lambda a: a @ t1, "W2": lambda a: a @ t2}
    theirs = evaluate_formula_tree(
        parse_feed_forward_formula(text), torch.tensor(x), theirs, TORCH, rule
    )
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-12, atol=1e-13)
