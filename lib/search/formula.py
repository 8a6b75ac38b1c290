"""The formula of a feed-forward network: a small expression language (EfficientBERT section 3.1,
Table 1).

    sum     = product { "+" product }
    product = factor { "*" factor }
    factor  = "x" | "(" sum ")" | binary "(" sum "," sum ")" | prefix factor
    prefix  = W1 | W2 | gelu | sigmoid | tanh | relu | leaky_relu | elu | swish
    binary  = max | add | mul

So `W2 gelu(W1 x)` is the network of BERT, and `W1 x * x` is `(W1 x) * x`. W1 goes from d = hidden
channels to e = inner ones, W2 back. Where the operands of a binary operation differ in width,
either both are truncated to the first channels of the wider one, or the narrower one is padded with
a value that leaves the other as it is.
"""

import difflib
import re
from dataclasses import dataclass, field

import numpy as np

LINEAR = ("W1", "W2")
UNARY = ("gelu", "sigmoid", "tanh", "relu", "leaky_relu", "elu", "swish")
BINARY = ("add", "mul", "max")
ARITY = {"x": 0} | dict.fromkeys(LINEAR + UNARY, 1) | dict.fromkeys(BINARY, 2)
MISMATCH = ("truncate", "pad")  # what happens where two operands differ in width
PADDING = {"add": 0.0, "mul": 1.0, "max": -np.inf}  # leaves the other operand as it is
HEIGHTS = (3, 7)  # edges from the root to the deepest x; BERT's network has 3
DEEPEST = 100  # what can be read
_TOKEN = re.compile(r"\s*([A-Za-z_]\w*|[(),+*]|\S|$)")


class FormulaError(ValueError):
    """A formula that cannot be read or is not allowed. The message has a mark below the place."""

    def __init__(self, said, text, at):
        line = re.sub(r"\s", " ", text)
        super().__init__(f"{said}\n  {line}\n  {' ' * at}^")


class _Fault(Exception):
    """What is wrong, and the node it is wrong with."""


@dataclass(frozen=True)
class Node:
    """An operation with its operands. Two nodes are equal if they print alike.

    Raises ValueError for a wrong number of operands.
    """

    op: str  # a key of ARITY
    args: tuple["Node", ...] = ()
    at: int = field(default=0, compare=False, repr=False)  # where in the text it was read

    def __post_init__(self):
        if len(self.args) != ARITY.get(self.op):
            raise ValueError(f"{self.op!r} with {len(self.args)} operands; allowed: {ARITY}")

    def __str__(self):
        """The formula as text: what `parse` reads back as the same tree."""

        def inside(child, *loose):
            return f"({child})" if child.op in loose else str(child)

        if self.op == "x":
            return "x"
        if self.op in LINEAR:
            return f"{self.op} {inside(self.args[0], 'add', 'mul')}"
        if self.op == "add":
            return f"{self.args[0]} + {inside(self.args[1], 'add')}"
        if self.op == "mul":
            return f"{inside(self.args[0], 'add')} * {inside(self.args[1], 'add', 'mul')}"
        return f"{self.op}({', '.join(map(str, self.args))})"


X = Node("x")


def walk(node):
    """All nodes from left to right, each before its operands (prefix order)."""
    yield node
    for child in node.args:
        yield from walk(child)


def height(node):
    """Edges from the node to its deepest leaf; 3 for `W2 gelu(W1 x)`."""
    return 1 + max(map(height, node.args)) if node.args else 0


def size(node):
    """Nodes as genetic programming counts them; the weights of a linear map are a leaf too.

    `W2 gelu(W1 x)` has 6.
    """
    return sum(1 + (n.op in LINEAR) for n in walk(node))


class _Reader:
    """Recursive descent over (token, position) pairs; the last token is ""."""

    def __init__(self, text):
        self.text = text
        self.tokens = [(found[1], found.start(1)) for found in _TOKEN.finditer(text.rstrip())]

    def fail(self, said, at):
        raise FormulaError(said, self.text, at)

    def take(self, wanted=None, said="{found}, where {wanted!r} should stand"):
        token, at = self.tokens[0]
        if token and token not in "(),+*" and not token.isidentifier():
            self.fail(f"{token!r} has no meaning in a formula", at)
        if wanted and token != wanted:
            found = repr(token) if token else "the formula ends"
            self.fail(said.format(found=found, wanted=wanted), at)
        if token:
            del self.tokens[0]
        return token, at

    def chain(self, symbol, op, part):
        left = part()
        while self.tokens[0][0] == symbol:
            at = self.take()[1]
            left = Node(op, (left, part()), at)
        return left

    def sum(self):
        return self.chain("+", "add", lambda: self.chain("*", "mul", self.factor))

    def closed(self, at):
        self.take(")", f"{{found}}: the parenthesis opened at character {at + 1} is not closed")

    def factor(self):
        op, at = self.take()
        if op == "(":
            inner = self.sum()
            self.closed(at)
            return inner
        if op not in ARITY:
            if not op[:1].isidentifier():
                found = repr(op) if op else "the formula ends"
                self.fail(f"{found}, where an operand should stand", at)
            near = difflib.get_close_matches(op, ARITY, 1, 0.5)
            known = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(ARITY)}"
            self.fail(f"unknown operation {op!r}; {known}", at)
        if ARITY[op] < 2:
            return Node(op, (self.factor(),) if ARITY[op] else (), at)
        opened = self.take("(")[1]
        left = self.sum()
        self.take(",", f"{{found}}, where ',' should stand: {op!r} takes two operands")
        right = self.sum()
        self.closed(opened)
        return Node(op, (left, right), at)


def parse(text):
    """The tree of a formula. Raises FormulaError that points at the character."""
    reader = _Reader(text)
    try:
        node = reader.sum()
        deep = height(node) > DEEPEST
    except RecursionError:
        deep = True
    if deep:
        reader.fail(f"nested more than {DEEPEST} deep", 0)
    token, at = reader.take()
    if token == ")":
        reader.fail("a parenthesis is closed that was not opened", at)
    if token:
        reader.fail(
            f"{token!r} after the end of the formula; operands are joined by '+' or '*'", at
        )
    return node


def _width(node, hidden, inner, mismatch):
    """Channels that a node gives. Raises _Fault where a linear map gets a wrong width."""
    if node.op == "x":
        return hidden
    widths = [_width(child, hidden, inner, mismatch) for child in node.args]
    if node.op in LINEAR:
        takes, gives = (hidden, inner) if node.op == "W1" else (inner, hidden)
        if widths[0] != takes:
            raise _Fault(f"{node.op} takes {takes} channels, its input has {widths[0]}", node)
        return gives
    return (min if mismatch == "truncate" else max)(widths)


def _inspect(node, hidden=None, inner=None, mismatch="truncate"):
    """Raises _Fault for the first broken rule."""
    nodes = list(walk(node))
    for op in LINEAR:
        found = [n for n in nodes if n.op == op]
        if len(found) != 1:
            said = f"{op} occurs {len(found)} times; W1 and W2 have to occur once each"
            raise _Fault(said, found[1] if found else None)
    first, second = sorted((n for n in nodes if n.op in LINEAR), key=lambda n: n.op)
    beside = nodes.index(second) < nodes.index(first) and first not in walk(second.args[0])
    if second in walk(first.args[0]) or beside:
        raise _Fault("W1 has to be applied before W2", second)
    for n in nodes:
        for kind, name in ((LINEAR, "linear maps"), (UNARY, "activations")):
            if n.op in kind and n.args[0].op in kind:
                said = f"two {name} in a row are not in the search space"
                raise _Fault(f"{n.op} directly on {n.args[0].op}: {said}", n.args[0])
        if n.op in BINARY and n.args[0] == n.args[1]:
            raise _Fault(f"{n.op} of two equal operands, {n.args[0]}", n)
    low, high = HEIGHTS
    if not low <= height(node) <= high:
        raise _Fault(f"the tree is {height(node)} high; allowed: {low} to {high}", None)
    if hidden is not None:
        _width(node, hidden, inner, mismatch)


def check(formula, hidden=None, inner=None, mismatch="truncate"):
    """The tree of a formula, given as text or tree, that is in the search space.

    Its height is 3 to 7. W1 and W2 occur once each, W1 first. No linear map stands on a linear map,
    no activation on an activation, no binary operation on equal operands. With `hidden` (d) and
    `inner` (e) W1 also has to get d channels and W2 e; the formula then gives d, because e other
    than d reach W2 from W1 alone. Raises FormulaError that points at the fault.
    """
    text = str(formula)
    node = parse(text)
    try:
        _inspect(node, hidden, inner, mismatch)
    except _Fault as fault:
        said, where = fault.args
        raise FormulaError(said, text, where.at if where else 0) from None
    return node


def valid(node, hidden=None, inner=None, mismatch="truncate"):
    """Whether `check` would let the tree pass, without the cost of a message."""
    try:
        _inspect(node, hidden, inner, mismatch)
    except _Fault:
        return False
    return True


def canonical(node):
    """The same function with sorted operands of add, mul and max: a key that finds duplicates.

    The order of W1 and W2 that `check` wants may be lost.
    """
    args = tuple(map(canonical, node.args))
    return Node(node.op, tuple(sorted(args, key=str)) if node.op in BINARY else args)


def evaluate(node, x, w1, w2, functions, mismatch="truncate"):
    """f(x) for an array with channels last, (..., d) to (..., d), in any framework.

    functions: {name of UNARY or BINARY: function of arrays, "pad": f(array, count, value) that
    appends `count` channels of a value}. w1 and w2 are the linear maps.
    """
    if node.op == "x":
        return x
    args = [evaluate(child, x, w1, w2, functions, mismatch) for child in node.args]
    if node.op in LINEAR:
        return (w1 if node.op == "W1" else w2)(*args)
    if node.op in BINARY:
        narrow, wide = sorted(a.shape[-1] for a in args)
        if mismatch == "truncate":
            args = [a[..., :narrow] for a in args]
        elif narrow < wide:
            value = PADDING[node.op]
            args = [
                a if a.shape[-1] == wide else functions["pad"](a, wide - narrow, value)
                for a in args
            ]
    return functions[node.op](*args)


def _sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))  # exp(-x) overflows


NUMPY = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x * x * x))),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "leaky_relu": lambda x: np.where(x >= 0, x, 0.01 * x),
    "elu": lambda x: np.where(x >= 0, x, np.expm1(np.minimum(x, 0.0))),
    "swish": lambda x: x * _sigmoid(x),
    "pad": lambda a, count, value: np.concatenate(
        [a, np.full((*a.shape[:-1], count), value, a.dtype)], -1
    ),
}
