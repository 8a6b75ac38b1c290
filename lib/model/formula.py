"""This module parses and evaluates formulas: texts for the function of a feed-forward
network, such as `W2 gelu(W1 x)` (EfficientBERT section 3.1, Table 1).

Formulas are a small expression language:

    sum     = product { "+" product }
    product = factor { "*" factor }
    factor  = "x" | "(" sum ")" | binary "(" sum "," sum ")" | prefix factor
    prefix  = W1 | W2 | gelu | sigmoid | tanh | relu | leaky_relu | elu | swish
    binary  = max | add | mul

So `W2 gelu(W1 x)` is the network of BERT, and `W1 x * x` is `(W1 x) * x`. W1 maps d
hidden channels to e inner ones, and W2 maps them back. Where the operands of a binary
operation differ in width, either the wider one is truncated to its first channels, or
the narrower one is padded with a value that leaves the other operand unchanged.

**A new operation** is one line in OPERATIONS. Formulas, networks and drawings of them
then have it; an architecture search draws only those of the paper. A run is identified
by the names of its operations, so an operation whose values change needs another
name."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from .options import Refused, check_known_name

SizeMismatchRule = Literal["truncate", "pad"]


@dataclass(frozen=True)
class Operation:
    """An Operation is an elementwise function, such as gelu or max, in a formula.

    A formula is text for the function of a feed-forward network, such as "W2 gelu(W1
    x)", which an architecture search may change. The linear maps W1 and W2 are no
    Operations.

    operands: the number of operands, 1 or 2.
    numpy: the function, of one or two arrays.
    torch: the same function for tensors, f(torch, x) or f(torch, x, y). It is given the
    module torch, so that this file need not import it.
    padding: the value that leaves the other operand unchanged, such as 0 for a sum. A
    narrower operand may be padded with it to the width of the wider one."""

    operands: int
    numpy: Callable[..., np.ndarray]
    torch: Callable[..., Any]
    padding: float = 0.0


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))  # 1 / (1 + exp(-x)) may overflow.


def _gelu(x: np.ndarray) -> np.ndarray:
    """Return the tanh approximation of GELU, elementwise, in numpy.

    EfficientBERT's code uses it everywhere instead of the exact GELU."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x * x * x)))


OPERATIONS = {
    "gelu": Operation(
        1, _gelu, lambda t, x: t.nn.functional.gelu(x, approximate="tanh")
    ),
    "sigmoid": Operation(1, _sigmoid, lambda t, x: t.sigmoid(x)),
    "tanh": Operation(1, np.tanh, lambda t, x: t.tanh(x)),
    "relu": Operation(1, lambda x: np.maximum(x, 0.0), lambda t, x: t.relu(x)),
    "leaky_relu": Operation(
        1,
        lambda x: np.where(x >= 0, x, 0.01 * x),
        lambda t, x: t.nn.functional.leaky_relu(x),
    ),
    "elu": Operation(
        1,
        lambda x: np.where(x >= 0, x, np.expm1(np.minimum(x, 0.0))),
        lambda t, x: t.nn.functional.elu(x),
    ),
    "swish": Operation(
        1, lambda x: x * _sigmoid(x), lambda t, x: t.nn.functional.silu(x)
    ),
    "add": Operation(2, np.add, lambda t, a, b: t.add(a, b)),
    "mul": Operation(2, np.multiply, lambda t, a, b: t.mul(a, b), 1.0),
    "max": Operation(2, np.maximum, lambda t, a, b: t.maximum(a, b), -np.inf),
}
# W1 maps the d hidden channels to e inner ones, W2 maps these back.
LINEAR = ("W1", "W2")
UNARY, BINARY = (
    tuple(name for name, op in OPERATIONS.items() if op.operands == n) for n in (1, 2)
)
NUMPY = {name: op.numpy for name, op in OPERATIONS.items()} | {
    "pad": lambda a, count, value: np.concatenate(
        [a, np.full((*a.shape[:-1], count), value, a.dtype)], -1
    )
}
ARITY = (
    {"x": 0}
    | dict.fromkeys(LINEAR, 1)
    | {name: op.operands for name, op in OPERATIONS.items()}
)
_APPLIED = re.compile(
    rf"\b({'|'.join(name for name in ARITY if ARITY[name] == 1)})\b(?=\s*[\w(])"
)


class FormulaError(ValueError):
    """FormulaError is raised for text that is no formula of a feed-forward network.

    A formula is the function that the network computes, such as "W2 gelu(W1 x)".
    FormulaError is also raised for a formula that an architecture search excludes."""


@dataclass(frozen=True)
class Node:
    """A Node is a node in the syntax tree of a feed-forward network's formula.

    An example of a formula is "W2 gelu(W1 x)". Raises Refused for an unknown
    operation or a wrong number of operands.

    op: "x" (the input), one of LINEAR ("W1" or "W2", linear maps), or a key of
    OPERATIONS, such as "gelu" or "add".
    args: the operands of `op`, one or two Nodes; () for "x"."""

    op: str
    args: tuple["Node", ...] = ()

    def __post_init__(self) -> None:
        if len(self.args) != ARITY.get(self.op):
            raise Refused(
                f"{self.op!r} with {len(self.args)} operands; allowed: {ARITY}"
            )

    def __str__(self) -> str:
        """Return the formula of this syntax tree as text, such as "W2 gelu(W1 x)".

        It is the function of a feed-forward network. `parse_feed_forward_formula` makes
        the same tree of the text."""

        def add_parentheses_if_needed(
            operand: Node, *lower_precedence_operations: str
        ) -> str:
            return (
                f"({operand})"
                if operand.op in lower_precedence_operations
                else str(operand)
            )

        if self.op == "x":
            return "x"
        if self.op in LINEAR:
            return f"{self.op} {add_parentheses_if_needed(self.args[0], 'add', 'mul')}"
        if self.op == "add":
            return f"{self.args[0]} + {add_parentheses_if_needed(self.args[1], 'add')}"
        if self.op == "mul":
            left = add_parentheses_if_needed(self.args[0], "add")
            return f"{left} * {add_parentheses_if_needed(self.args[1], 'add', 'mul')}"
        return f"{self.op}({', '.join(map(str, self.args))})"


X = Node("x")


def iterate_nodes(node: Node) -> Iterator[Node]:
    """Yield all nodes in the syntax tree of a feed-forward network's formula.

    Each node comes before its operands (prefix order), and operands come from left to
    right. An example of a formula is "W2 gelu(W1 x)"."""
    yield node
    for child in node.args:
        yield from iterate_nodes(child)


def measure_tree_height(node: Node) -> int:
    """Return the height of a formula's syntax tree, such as 3 for "W2 gelu(W1 x)".

    It is the number of edges from the node to its deepest leaf. A search for formulas
    of feed-forward networks limits it."""
    return 1 + max(map(measure_tree_height, node.args)) if node.args else 0


@lru_cache(maxsize=4096)
def parse_feed_forward_formula(formula: str) -> Node:
    """Return the syntax tree of the formula of a feed-forward network.

    An example of a formula is "W2 gelu(W1 x)". Raises FormulaError where the text is no
    formula."""
    # Python's parser reads the formula. Before that, each application such as `gelu x`
    # is written as a power, `gelu ** x`: both bind more tightly than a product, and
    # group to the right.
    try:
        body = ast.parse(_APPLIED.sub(r"\1 **", formula.strip()), mode="eval").body
        for part in ast.walk(body):
            if isinstance(part, ast.Name):
                check_known_name("operation", part.id, ARITY)
        return _convert_python_syntax_tree(body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = error.msg if isinstance(error, SyntaxError) else error
        raise FormulaError(f"{formula!r} is no formula: {said}") from None


def _convert_python_syntax_tree(python_expression: ast.expr) -> Node:
    """Convert a node of Python's syntax tree (ast) to a Node of a formula's tree.

    A formula is the function of a feed-forward network, such as "W2 gelu(W1 x)". Before
    Python reads it, each application such as `gelu x` is written as a power
    (`gelu ** x`). Raises Refused for syntax that formulas do not have."""
    match python_expression:
        case ast.Name("x"):
            return X
        case ast.BinOp(ast.Name(name), ast.Pow(), inner) if ARITY[name] == 1:
            operands = [inner]
        case ast.BinOp(left, ast.Add(), right):
            name, operands = "add", [left, right]
        case ast.BinOp(left, ast.Mult(), right):
            name, operands = "mul", [left, right]
        case ast.Call(ast.Name(name), operands, []):
            pass
        case _:
            raise Refused(
                f"{ast.unparse(python_expression)!r} is neither x nor an operation on its operands"
            )
    return Node(name, tuple(map(_convert_python_syntax_tree, operands)))


def evaluate_formula_tree(
    node: Node,
    inputs: Any,
    linear_maps_by_name: Mapping[str, Callable[..., Any]],
    functions_by_name: Mapping[str, Callable[..., Any]],
    size_mismatch_rule: SizeMismatchRule = "truncate",
) -> Any:
    """Return the value f(x) of a feed-forward network whose function f is a formula.

    The value is an array [..., d], as x is. The value of a part of f may have e
    channels.

    node: the syntax tree of f, or a part of it.
    inputs: x, an array of numpy or torch [..., d].
    linear_maps_by_name: {"W1": function from d to e channels, "W2": function from e to
    d channels}.
    functions_by_name: {operation: function of one or two arrays}, for numpy or torch as
    x is. Its entry "pad" is a function f(array, count, value) that appends `count`
    channels with this value.
    size_mismatch_rule: for operands of different widths, "truncate" cuts the wider one
    to its first channels; "pad" fills up the narrower one with a value that leaves the
    other operand unchanged, such as 0 in a sum."""
    if node.op == "x":
        return inputs
    args = [
        evaluate_formula_tree(
            child, inputs, linear_maps_by_name, functions_by_name, size_mismatch_rule
        )
        for child in node.args
    ]
    if node.op in LINEAR:
        return linear_maps_by_name[node.op](*args)
    widths = [a.shape[-1] for a in args]
    narrow, wide = min(widths), max(widths)
    if narrow < wide and size_mismatch_rule == "truncate":
        args = [a[..., :narrow] for a in args]
    elif narrow < wide:
        pad, value = functions_by_name["pad"], OPERATIONS[node.op].padding
        args = [pad(a, wide - a.shape[-1], value) for a in args]
    return functions_by_name[node.op](*args)
