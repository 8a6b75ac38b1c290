"""This module says which formulas a feed-forward network may have (EfficientBERT,
section 3.1).

A formula such as `W2 gelu(W1 x)` has an input x, two linear maps W1 and W2, activations
and binary operations. `lib.model.formula` parses and evaluates it."""

from collections.abc import Iterator

from lib.model.formula import (
    BINARY,
    LINEAR,
    UNARY,
    FormulaError,
    Node,
    X,
    iterate_nodes,
    parse,
)


def _list_broken_rules(
    node: Node, hidden_size: int | None, inner_size: int | None, size_mismatch: str
) -> Iterator[str]:
    """Yield an error message for each rule that a formula breaks.

    Use the first one only: the code behind it assumes that W1 and W2 occur once each.

    hidden_size, inner_size: d and e as in `check_formula`; None for the first leaves
    out the rules on widths.
    size_mismatch: "truncate" cuts operands of different widths to the smaller one,
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
    widths, ends = (
        {X: hidden_size},
        dict.fromkeys(LINEAR, (hidden_size, inner_size))
        | {"W2": (inner_size, hidden_size)},
    )
    for n in reversed(nodes):  # Reversed, so a node comes after its operands.
        given = [widths[child] for child in n.args]
        if n.op in LINEAR:
            takes, widths[n] = ends[n.op]
            if given[0] != takes:
                yield f"{n.op} takes {takes} channels, its input has {given[0]}"
        elif given:
            widths[n] = (min if size_mismatch == "truncate" else max)(given)
    if widths[node] != hidden_size:
        yield f"the formula gives {widths[node]} channels, where {hidden_size} go in"


def check_formula(
    formula: str | Node,
    hidden_size: int | None = None,
    inner_size: int | None = None,
    size_mismatch: str = "truncate",
) -> Node:
    """Return the tree of a formula; raise FormulaError that names the fault if no
    network may have it.

    W1 and W2 occur once each, W1 first. A linear map is not applied directly to a
    linear map, nor an activation to an activation, and a binary operation has two
    different operands. With sizes W1 has to get d channels and W2 e channels, and the
    result has to have d.

    hidden_size, inner_size: d channels of x, and e channels between W1 and W2; None
    leaves the channels unchecked.
    size_mismatch: "truncate" cuts operands of different widths to the smaller one,
    "pad" fills up to the larger one."""
    node = parse(str(formula))
    for said in _list_broken_rules(node, hidden_size, inner_size, size_mismatch):
        raise FormulaError(f"{str(formula)!r}: {said}")
    return node


def is_valid_formula(
    node: Node,
    hidden_size: int | None = None,
    inner_size: int | None = None,
    size_mismatch: str = "truncate",
) -> bool:
    """Return whether a formula's tree obeys the rules of `check_formula`, without an
    error message. It is fast, because a search asks for thousands of formulas.

    hidden_size, inner_size, size_mismatch: as in `check_formula`."""
    return (
        next(_list_broken_rules(node, hidden_size, inner_size, size_mismatch), None)
        is None
    )


def sort_commutative_operands(node: Node) -> Node:
    """Return a formula's tree with the operands of add, mul and max in alphabetical
    order.

    Two formulas that differ only in the order of operands become equal, so duplicates
    are found. The result may break the rule of `check_formula` that W1 is first."""
    args = tuple(map(sort_commutative_operands, node.args))
    return Node(node.op, tuple(sorted(args, key=str)) if node.op in BINARY else args)
