"""This module says which formulas a feed-forward network may have (EfficientBERT,
section 3.1).

A formula such as `W2 gelu(W1 x)` has an input x, two linear maps W1 and W2, activations
and binary operations. `lib.model.formula` parses and evaluates it."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, TypeAlias

from lib.model.formula import (
    BINARY,
    LINEAR,
    UNARY,
    FormulaError,
    Node,
    X,
    iterate_nodes,
    parse_feed_forward_formula,
)

# None in the place of a number of channels: widths are not checked.
Unchecked: TypeAlias = None


def _iterate_broken_rule_messages(
    node: Node,
    hidden_size: int | Unchecked,
    inner_size: int | Unchecked,
    size_mismatch_rule: Literal["truncate", "pad"],
) -> Iterator[str]:
    """Yield an error message for each rule that the formula of an FFN breaks.

    The formula of a feed-forward network (FFN) is text such as "W2 gelu(W1 x)". One
    rule is that W1 and W2 occur once each (`parse_and_check_formula` has all). Callers
    take only the first message, since later checks assume that earlier ones passed, and
    may fail.

    node: root of the formula's syntax tree.
    hidden_size, inner_size: channels of x, and channels between W1 and W2; None for the
    first leaves out the rules on widths.
    size_mismatch_rule: "truncate" cuts operands of different widths to the smaller one,
    "pad" fills up to the larger one."""
    nodes = list(iterate_nodes(node))
    for op in LINEAR:
        times = [n.op for n in nodes].count(op)
        if times != 1:
            yield f"{op} occurs {times} times; W1 and W2 have to occur once each"
    first, second = sorted((n for n in nodes if n.op in LINEAR), key=lambda n: n.op)
    beside = nodes.index(second) < nodes.index(first) and first not in iterate_nodes(
        second.args[0]
    )
    if second in iterate_nodes(first.args[0]) or beside:
        yield "W1 has to be applied before W2"
    for n in nodes:
        for kind, name in ((LINEAR, "linear maps"), (UNARY, "activations")):
            if n.op in kind and n.args[0].op in kind:
                said = f"two {name} in a row are not in the search space"
                yield f"{n.op} directly on {n.args[0].op}: {said}"
        if n.op in BINARY and n.args[0] == n.args[1]:
            yield f"{n.op} of two equal operands, {n.args[0]}"
    if hidden_size is None:
        return
    assert inner_size is not None
    widths = {X: hidden_size}
    ends = dict.fromkeys(LINEAR, (hidden_size, inner_size)) | {
        "W2": (inner_size, hidden_size)
    }
    for n in reversed(nodes):  # In this order a node comes after its operands.
        given = [widths[child] for child in n.args]
        if n.op in LINEAR:
            takes, widths[n] = ends[n.op]
            if given[0] != takes:
                yield f"{n.op} takes {takes} channels, its input has {given[0]}"
        elif given:
            widths[n] = (min if size_mismatch_rule == "truncate" else max)(given)
    if widths[node] != hidden_size:
        yield f"the formula gives {widths[node]} channels, where {hidden_size} go in"


@lru_cache(maxsize=4096)
def parse_and_check_formula(
    formula: str | Node,
    hidden_size: int | Unchecked = None,
    inner_size: int | Unchecked = None,
    size_mismatch_rule: Literal["truncate", "pad"] = "truncate",
) -> Node:
    """Check a feed-forward network's formula and return its syntax tree.

    Raises FormulaError, which names the fault, where the text is no formula or the
    search space does not allow it. W1 and W2 must occur once each, W1 first. A linear
    map must not be applied directly to a linear map, nor an activation to an
    activation. A binary operation must have two different operands. If the sizes d
    (hidden) and e (inner) are given, W1 must get d channels, W2 must get e, and the
    result must have d.

    formula: text such as "W2 gelu(W1 x)", or its syntax tree.
    hidden_size: d, the channels of x; None leaves the channels unchecked.
    inner_size: e, the channels between W1 and W2.
    size_mismatch_rule: "truncate" cuts operands of different widths to the smaller one,
    "pad" fills up to the larger one."""
    node = parse_feed_forward_formula(str(formula))
    for said in _iterate_broken_rule_messages(
        node, hidden_size, inner_size, size_mismatch_rule
    ):
        raise FormulaError(f"{str(formula)!r}: {said}")
    return node


@lru_cache(maxsize=4096)
def is_valid_formula(
    node: Node,
    hidden_size: int | Unchecked = None,
    inner_size: int | Unchecked = None,
    size_mismatch_rule: Literal["truncate", "pad"] = "truncate",
) -> bool:
    """Return whether the search space allows an FFN's formula, given as syntax tree.

    The formula of a feed-forward network (FFN) is text such as "W2 gelu(W1 x)". One
    rule is that W1 and W2 occur once each. `parse_and_check_formula` has all rules,
    takes text too, and raises an error.

    hidden_size, inner_size: channels of x, and channels between W1 and W2; None leaves
    the channels unchecked.
    size_mismatch_rule: what happens to operands of different widths: "truncate" or
    "pad"."""
    return not any(
        _iterate_broken_rule_messages(node, hidden_size, inner_size, size_mismatch_rule)
    )


@lru_cache(maxsize=4096)
def sort_commutative_operands(node: Node) -> Node:
    """Return the syntax tree of an FFN's formula, operands of add, mul and max sorted.

    The formula of a feed-forward network (FFN) is text such as "W2 gelu(W1 x)". The
    order is alphabetical. Formulas that differ only in the order of operands become
    equal, so a search can find duplicates. The result is for comparison alone: it may
    break the rule that W1 comes before W2."""
    args = tuple(map(sort_commutative_operands, node.args))
    return Node(node.op, tuple(sorted(args, key=str)) if node.op in BINARY else args)
