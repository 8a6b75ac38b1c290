"""The formula of a feed-forward network: a small expression language (EfficientBERT section 3.1,
Table 1).

    sum     = product { "+" product }
    product = factor { "*" factor }
    factor  = "x" | "(" sum ")" | binary "(" sum "," sum ")" | prefix factor
    prefix  = W1 | W2 | W3 | gelu | sigmoid | tanh | relu | leaky_relu | elu | swish
    binary  = max | add | mul

So `W2 gelu(W1 x)` is the network of BERT, and `W1 x * x` is `(W1 x) * x`. W1 goes from d = hidden
channels to e = inner ones, W2 back. W3 is not of the paper: it goes from d to e as W1 does, so that
gated units can be written (Shazeer, 2020): GLU is `W2 (sigmoid(W1 x) * W3 x)`, GEGLU
`W2 (gelu(W1 x) * W3 x)`, SwiGLU `W2 (swish(W1 x) * W3 x)`. A formula has W3 once or not. Where the
operands of a binary operation differ in width, either both are truncated to the first channels of
the wider one, or the narrower one is padded with a value that leaves the other as it is.

**An operation of your own** is one line in OPERATIONS. Formulas, drawings, surfaces and networks
then have it; a search draws it where its space names it (SPACES in lib.search.space). Runs know an
operation by its name: one that changes its values needs another name.
"""

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np


@dataclass(frozen=True)
class Operation:
    """What a formula can do with one operand or two, beside the linear maps."""

    operands: int
    numpy: Callable  # f(*arrays), element by element
    torch: Callable  # f(the module torch, *tensors): this file is free of torch
    padding: float = 0.0  # of two operands: the value that leaves the other one as it is


def _sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))  # exp(-x) overflows


def _gelu(x):
    """By tanh, as the code has it everywhere."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x * x * x)))


OPERATIONS = {
    "gelu": Operation(1, _gelu, lambda t, x: t.nn.functional.gelu(x, approximate="tanh")),
    "sigmoid": Operation(1, _sigmoid, lambda t, x: t.sigmoid(x)),
    "tanh": Operation(1, np.tanh, lambda t, x: t.tanh(x)),
    "relu": Operation(1, lambda x: np.maximum(x, 0.0), lambda t, x: t.relu(x)),
    "leaky_relu": Operation(
        1, lambda x: np.where(x >= 0, x, 0.01 * x), lambda t, x: t.nn.functional.leaky_relu(x)
    ),
    "elu": Operation(
        1,
        lambda x: np.where(x >= 0, x, np.expm1(np.minimum(x, 0.0))),
        lambda t, x: t.nn.functional.elu(x),
    ),
    "swish": Operation(1, lambda x: x * _sigmoid(x), lambda t, x: t.nn.functional.silu(x)),
    "add": Operation(2, np.add, lambda t, a, b: t.add(a, b), 0.0),
    "mul": Operation(2, np.multiply, lambda t, a, b: t.mul(a, b), 1.0),
    "max": Operation(2, np.maximum, lambda t, a, b: t.maximum(a, b), -np.inf),
}
LINEAR = ("W1", "W2", "W3")  # d to e, e to d, and a gate's: d to e
GATE = "W3"
UNARY, BINARY = (tuple(name for name, op in OPERATIONS.items() if op.operands == n) for n in (1, 2))
NUMPY = {name: op.numpy for name, op in OPERATIONS.items()} | {
    "pad": lambda a, count, value: np.concatenate(
        [a, np.full((*a.shape[:-1], count), value, a.dtype)], -1
    )
}
ARITY = {"x": 0} | dict.fromkeys(LINEAR, 1) | {name: op.operands for name, op in OPERATIONS.items()}
MISMATCH = ("truncate", "pad")  # what happens where two operands differ in width
DEEPEST = 100  # what can be read
_TOKEN = re.compile(r"\s*([A-Za-z_]\w*|[(),+*]|\S|$)")


class FormulaError(ValueError):
    """A formula that cannot be read or is not allowed. The message has a mark below the place."""

    def __init__(self, said, text, at):
        line = re.sub(r"\s", " ", text)
        super().__init__(f"{said}\n  {line}\n  {' ' * at}^")


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


@lru_cache(maxsize=4096)
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


def evaluate(node, x, linears, functions, mismatch="truncate"):
    """f(x) for an array with channels last, (..., d) to (..., d), in any framework.

    functions: {name of OPERATIONS: function of arrays, "pad": f(array, count, value) that appends
    `count` channels of a value}. linears: {name of LINEAR: the map, a function of arrays}.
    """
    if node.op == "x":
        return x
    args = [evaluate(child, x, linears, functions, mismatch) for child in node.args]
    if node.op in LINEAR:
        return linears[node.op](*args)
    narrow, wide = min(a.shape[-1] for a in args), max(a.shape[-1] for a in args)
    if narrow < wide and mismatch == "truncate":
        args = [a[..., :narrow] for a in args]
    elif narrow < wide:
        pad, value = functions["pad"], OPERATIONS[node.op].padding
        args = [pad(a, wide - a.shape[-1], value) if a.shape[-1] < wide else a for a in args]
    return functions[node.op](*args)
