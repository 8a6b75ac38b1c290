"""Changing a formula as genetic programming does it, on its prefix list.

In a prefix list a linear map has two operands, a tensor and its weights: `W2 gelu(W1 x)` is
linear gelu linear x W1 W2. All is as in EfficientBERT's code (section 3.2).
"""

from functools import lru_cache

from lib.model import formula as language
from lib.search.formula import valid

ARITY = language.ARITY | {"linear": 2, "foreign": 2} | dict.fromkeys(("x", *language.LINEAR), 0)


def prefix(node):
    """A formula's tree as prefix list; 6 entries for `W2 gelu(W1 x)`."""
    inner = [token for child in node.args for token in prefix(child)]
    return ["linear", *inner, node.op] if node.op in language.LINEAR else [node.op, *inner]


def tree(tokens):
    """The tree of a prefix list, or None where it is no formula.

    It is none with a linear map of another id or without weights of its own, and with weights where
    a tensor should stand.
    """

    def read(at):
        op, at, args = tokens[at], at + 1, []
        for _ in range(1 if op == "linear" else ARITY[op]):
            child, at = read(at)
            args.append(child)
        if op == "linear":
            op, at = tokens[at], at + 1
            if op not in language.LINEAR:
                raise LookupError
        elif op in language.LINEAR or op == "foreign":
            raise LookupError
        return language.Node(op, tuple(args)), at

    try:
        return read(0)[0]
    except LookupError:
        return None


def end(tokens, at):
    """Where the part of a prefix list that starts at `at` ends."""
    open_ = 1
    while open_:
        open_ += ARITY[tokens[at]] - 1
        at += 1
    return at


def change(tokens, grammar, linears, dice):
    """One try at changing a formula, as coded. Most results are no formula.

    First a part is replaced by a full random tree of depth 0 to 3, then one node (never the root)
    by another of as many operands, then a node is put in somewhere. grammar: lib.search.space.
    Grammar. linears: how many linear maps there are to draw from, one for each id; all but the
    layer's own are "foreign". dice: f() -> uniform in [0, 1).
    """

    def pick(values):
        return values[int(dice() * len(values))]

    def full(depth):
        found, left = [], [depth]
        while left:
            depth = left.pop()
            found.append(pick(functions if depth else grammar.terminals))
            left += [depth - 1] * (ARITY[found[-1]] if depth else 0)
        return found

    binary, functions = _functions(grammar, linears)
    at = int(dice() * len(tokens))
    tokens = tokens[:at] + full(int(dice() * (grammar.depth + 1))) + tokens[end(tokens, at) :]
    if len(tokens) > 1:
        at = 1 + int(dice() * (len(tokens) - 1))
        alike = {0: grammar.terminals, 1: grammar.unary, 2: binary}
        tokens[at] = pick(alike[ARITY[tokens[at]]])
    at = int(dice() * len(tokens))
    op, part = pick(functions), tokens[at : end(tokens, at)]
    place = int(dice() * ARITY[op])
    args = [part if i == place else [pick(grammar.terminals)] for i in range(ARITY[op])]
    return [*tokens[:at], op, *(token for arg in args for token in arg), *tokens[at + len(part) :]]


@lru_cache
def _functions(grammar, linears):
    binary = ("linear", *("foreign",) * (linears - 1), *grammar.binary)
    return binary, binary + grammar.unary


def accepted(tokens, grammar, *widths):
    """The tree of a prefix list that is a formula of the space, else None.

    widths: as `lib.search.formula.check` takes them. The code sees a width error in training alone
    and scores 0; here it is no formula.
    """
    once = {"W1": 1, "W2": 1, "linear": 2 + tokens.count(language.GATE)}
    if len(tokens) > grammar.nodes or any(tokens.count(name) != n for name, n in once.items()):
        return None
    node, (low, high) = tree(tokens), grammar.heights
    allowed = node and low <= language.height(node) <= high and valid(node, *widths)
    return node if allowed else None


def grow(formula, grammar, linears, dice, *widths):
    """A changed formula, as text, or the same one where none of the grammar's tries is accepted."""
    seed = prefix(language.parse(formula))
    for _ in range(grammar.tries):
        node = accepted(change(seed, grammar, linears, dice), grammar, *widths)
        if node:
            return str(node)
    return formula
