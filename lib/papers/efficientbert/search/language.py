"""This module tells which formulas a network can have (EfficientBERT section 3.1).

The language is read and evaluated by `lib.model.formula`.
"""

from collections.abc import Iterator

from lib.model.formula import BINARY, LINEAR, UNARY, FormulaError, Node, X, parse, walk


def _faults(
    node: Node, hidden: int | None, inner: int | None, mismatch: str
) -> Iterator[str]:
    """Yield a sentence for each broken rule. Only the first one is reliable.

    Where W1 and W2 do not occur once each, the code after the first fault would
    fail."""
    nodes = list(walk(node))
    for op in LINEAR:
        times = [n.op for n in nodes].count(op)
        if times != 1:
            yield f"{op} occurs {times} times; W1 and W2 have to occur once each"
    first, second = sorted((n for n in nodes if n.op in LINEAR), key=lambda n: n.op)
    beside = nodes.index(second) < nodes.index(first) and first not in walk(
        second.args[0]
    )
    if second in walk(first.args[0]) or beside:
        yield "W1 has to be applied before W2"
    for n in nodes:
        for kind, name in ((LINEAR, "linear maps"), (UNARY, "activations")):
            if n.op in kind and n.args[0].op in kind:
                said = f"two {name} in a row are not in the search space"
                yield f"{n.op} directly on {n.args[0].op}: {said}"
        if n.op in BINARY and n.args[0] == n.args[1]:
            yield f"{n.op} of two equal operands, {n.args[0]}"
    if hidden is None:
        return
    assert inner is not None
    widths, ends = (
        {X: hidden},
        dict.fromkeys(LINEAR, (hidden, inner)) | {"W2": (inner, hidden)},
    )
    for n in reversed(nodes):  # Operands come first.
        given = [widths[child] for child in n.args]
        if n.op in LINEAR:
            takes, widths[n] = ends[n.op]
            if given[0] != takes:
                yield f"{n.op} takes {takes} channels, its input has {given[0]}"
        elif given:
            widths[n] = (min if mismatch == "truncate" else max)(given)
    if widths[node] != hidden:
        yield f"the formula gives {widths[node]} channels, where {hidden} go in"


def check(
    formula: str | Node,
    hidden: int | None = None,
    inner: int | None = None,
    mismatch: str = "truncate",
) -> Node:
    """Return the tree of a formula that a network can have.

    W1 and W2 occur once each, W1 first. No linear map stands on a linear map, no
    activation on an activation, no binary operation on equal operands. With `hidden`
    (d) and `inner` (e) W1 also has to get d channels, W2 e, and the formula has to give
    d. Raises FormulaError that names the fault."""
    node = parse(str(formula))
    for said in _faults(node, hidden, inner, mismatch):
        raise FormulaError(f"{str(formula)!r}: {said}")
    return node


def valid(
    node: Node,
    hidden: int | None = None,
    inner: int | None = None,
    mismatch: str = "truncate",
) -> bool:
    """Return whether `check` would accept the tree. It does not build a message."""
    return next(_faults(node, hidden, inner, mismatch), None) is None


def canonical(node: Node) -> Node:
    """Return the formula with sorted operands of add, mul and max, a key that finds
    duplicates.

    The order of W1 and W2 that `check` wants may be lost.
    """
    args = tuple(map(canonical, node.args))
    return Node(node.op, tuple(sorted(args, key=str)) if node.op in BINARY else args)
