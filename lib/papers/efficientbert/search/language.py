"""This module tells which formulas a network can have (EfficientBERT section 3.1).

The language is read and evaluated by `lib.model.formula`.
"""

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
    """Yield a sentence for each broken rule. Only the first one is reliable.

    Where W1 and W2 do not occur once each, the code after the first fault would
    fail."""
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
    for n in reversed(nodes):  # Operands come first.
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
    """Return the tree of a formula that a network can have.

    W1 and W2 occur once each, W1 first. No linear map stands on a linear map, no
    activation on an activation, no binary operation on equal operands. With
    `hidden_size` (d) and `inner_size` (e) W1 also has to get d channels, W2 e, and the
    formula has to give d. Raises FormulaError that names the fault."""
    node = parse(str(formula))
    for said in _list_broken_rules(node, hidden_size, inner_size, size_mismatch):
        raise FormulaError(f"{str(formula)!r}: {said}")
    return node


def is_valid(
    node: Node,
    hidden_size: int | None = None,
    inner_size: int | None = None,
    size_mismatch: str = "truncate",
) -> bool:
    """Return whether `check_formula` would accept the tree. It does not build a
    message."""
    return (
        next(_list_broken_rules(node, hidden_size, inner_size, size_mismatch), None)
        is None
    )


def sort_operands(node: Node) -> Node:
    """Return the formula with sorted operands of add, mul and max, a key that finds
    duplicates.

    The order of W1 and W2 that `check_formula` wants may be lost.
    """
    args = tuple(map(sort_operands, node.args))
    return Node(node.op, tuple(sorted(args, key=str)) if node.op in BINARY else args)
