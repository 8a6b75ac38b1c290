"""Changing a formula as genetic programming does it, on its prefix list.

In a prefix list a linear map has two operands, a tensor and its weights: `W2 gelu(W1 x)` is
linear gelu linear x W1 W2. All is as in EfficientBERT's code (section 3.2).
"""

from lib.model import formula as language
from lib.search.formula import valid

TABLE_1 = tuple("gelu sigmoid tanh relu leaky_relu elu swish add mul max".split())
UNARY, BINARY = (tuple(name for name in TABLE_1 if language.ARITY[name] == n) for n in (1, 2))
TERMINALS = ("x", *language.LINEAR)
HEIGHTS = (3, 7)  # edges from the root to the deepest x; BERT's network has 3
NODES = 20  # of a prefix list, at most
DEPTH = 3  # of a random tree that replaces a part
ARITY = language.ARITY | {"linear": 2, "foreign": 2} | dict.fromkeys(("x", *language.LINEAR), 0)


def prefix(node):
    """Return a formula's tree as prefix list; 6 entries for `W2 gelu(W1 x)`."""
    inner = [token for child in node.args for token in prefix(child)]
    return ["linear", *inner, node.op] if node.op in language.LINEAR else [node.op, *inner]


def tree(tokens):
    """Return the tree of a prefix list, or None where it is no formula.

    It is none with a linear map of another id or without weights of its own, and with weights where
    a tensor should stand.
    """

    left = iter(tokens)

    def read():
        op = next(left, None)
        args = [read() for _ in range(1 if op == "linear" else ARITY[op])]
        if op == "linear":
            op = next(left, None)
            if op not in language.LINEAR:
                raise LookupError
        elif op in language.LINEAR or op == "foreign":
            raise LookupError
        return language.Node(op, tuple(args))

    try:
        return read()
    except LookupError:
        return None


def end(tokens, at):
    """Return where the part of a prefix list that starts at `at` ends."""
    open_ = 1
    while open_:
        open_ += ARITY[tokens[at]] - 1
        at += 1
    return at


def change(tokens, linears, dice):
    """Return one try at changing a formula, as coded. Most results are no formula.

    First a part is replaced by a full random tree of depth 0 to 3, then one node (never the root)
    by another of as many operands, then a node is put in somewhere. linears: how many linear maps
    there are to draw from, one for each id; all but the layer's own are "foreign". dice: f() ->
    uniform in [0, 1).
    """

    def pick(values):
        return values[int(dice() * len(values))]

    def full(depth):
        found, left = [], [depth]
        while left:
            depth = left.pop()
            found.append(pick(functions if depth else TERMINALS))
            left += [depth - 1] * (ARITY[found[-1]] if depth else 0)
        return found

    binary = ("linear", *("foreign",) * (linears - 1), *BINARY)
    functions = binary + UNARY
    at = int(dice() * len(tokens))
    tokens = tokens[:at] + full(int(dice() * (DEPTH + 1))) + tokens[end(tokens, at) :]
    if len(tokens) > 1:
        at = 1 + int(dice() * (len(tokens) - 1))
        alike = {0: TERMINALS, 1: UNARY, 2: binary}
        tokens[at] = pick(alike[ARITY[tokens[at]]])
    at = int(dice() * len(tokens))
    op, part = pick(functions), tokens[at : end(tokens, at)]
    place = int(dice() * ARITY[op])
    args = [part if i == place else [pick(TERMINALS)] for i in range(ARITY[op])]
    return [*tokens[:at], op, *(token for arg in args for token in arg), *tokens[at + len(part) :]]


def accepted(tokens, *widths):
    """Return the tree of a prefix list that is a formula of the space, else None.

    widths: as `lib.search.formula.check` takes them. The code sees a width error in training alone
    and scores 0; here it is no formula.
    """
    once = {"W1": 1, "W2": 1, "linear": 2}
    if len(tokens) > NODES or any(tokens.count(name) != n for name, n in once.items()):
        return None
    node, (low, high) = tree(tokens), HEIGHTS
    allowed = node and low <= language.height(node) <= high and valid(node, *widths)
    return node if allowed else None


def grow(formula, tries, linears, dice, *widths):
    """Return a changed formula, as text, or the same one where none of the tries is accepted."""
    seed = prefix(language.parse(formula))
    for _ in range(tries):
        node = accepted(change(seed, linears, dice), *widths)
        if node:
            return str(node)
    return formula
