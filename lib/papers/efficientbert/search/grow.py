"""This module changes a formula as genetic programming does, on its prefix list.

In a prefix list a linear map has two operands, a tensor and its weights: `W2 gelu(W1
x)` is linear gelu linear x W1 W2. All is as in EfficientBERT's code (section 3.2)."""

from collections.abc import Callable, Sequence
from typing import Any

from lib.model import formula as language
from lib.papers.efficientbert.search.language import is_valid

TABLE_1 = tuple("gelu sigmoid tanh relu leaky_relu elu swish add mul max".split())
UNARY, BINARY = (
    tuple(name for name in TABLE_1 if language.ARITY[name] == n) for n in (1, 2)
)
TERMINALS = ("x", *language.LINEAR)
# Least and most edges from the root of a formula to its deepest x; BERT's network has
# 3.
HEIGHTS = (3, 7)
NODES = 20  # Most entries of a prefix list.
DEPTH = 3  # Greatest depth of a random tree that replaces a part.
ARITY = (
    language.ARITY
    | {"linear": 2, "foreign": 2}
    | dict.fromkeys(("x", *language.LINEAR), 0)
)


def list_prefix_tokens(node: language.Node) -> list[str]:
    """Return the prefix list of a formula's tree; it has 6 entries for `W2 gelu(W1
    x)`."""
    inner = [token for child in node.args for token in list_prefix_tokens(child)]
    return (
        ["linear", *inner, node.op] if node.op in language.LINEAR else [node.op, *inner]
    )


def parse_prefix_tokens(tokens: list[str]) -> language.Node | None:
    """Return the tree of a prefix list, or None where it is no formula.

    It is no formula where a linear map has another id or no weights, or where weights
    stand in the place of a tensor."""
    left = iter(tokens)

    def read_node() -> language.Node:
        op = next(left, "")
        args = [read_node() for _ in range(1 if op == "linear" else ARITY[op])]
        if op == "linear":
            op = next(left, "")
            if op not in language.LINEAR:
                raise LookupError
        elif op in language.LINEAR or op == "foreign":
            raise LookupError
        return language.Node(op, tuple(args))

    try:
        return read_node()
    except LookupError:
        return None


def find_end_of_part(tokens: list[str], start: int) -> int:
    """Return the index behind the part of a prefix list that starts at `start`."""
    open_ = 1
    while open_:
        open_ += ARITY[tokens[start]] - 1
        start += 1
    return start


def change_tokens_at_random(
    tokens: list[str], linear_map_count: int, draw_uniform: Callable[[], float]
) -> list[str]:
    """Return a prefix list after one try at changing it, as coded. Most results are no
    formula.

    First a part is replaced by a full random tree of depth 0 to 3, then one node (never
    the root) by another of as many operands, then a node is put in somewhere.
    linear_map_count: how many linear maps there are to draw from, one for each id; all
    but the layer's own are "foreign". draw_uniform: f() -> uniform in [0, 1)."""

    def pick_value(values: Sequence[str]) -> str:
        return values[int(draw_uniform() * len(values))]

    def draw_full_tree(tree_depth: int) -> list[str]:
        symbols, left = [], [tree_depth]
        while left:
            tree_depth = left.pop()
            symbols.append(pick_value(functions if tree_depth else TERMINALS))
            left += [tree_depth - 1] * (ARITY[symbols[-1]] if tree_depth else 0)
        return symbols

    binary = ("linear", *("foreign",) * (linear_map_count - 1), *BINARY)
    functions = binary + UNARY
    position = int(draw_uniform() * len(tokens))
    tokens = (
        tokens[:position]
        + draw_full_tree(int(draw_uniform() * (DEPTH + 1)))
        + tokens[find_end_of_part(tokens, position) :]
    )
    if len(tokens) > 1:
        position = 1 + int(draw_uniform() * (len(tokens) - 1))
        alike = {0: TERMINALS, 1: UNARY, 2: binary}
        tokens[position] = pick_value(alike[ARITY[tokens[position]]])
    position = int(draw_uniform() * len(tokens))
    op, part = (
        pick_value(functions),
        tokens[position : find_end_of_part(tokens, position)],
    )
    place = int(draw_uniform() * ARITY[op])
    args = [part if i == place else [pick_value(TERMINALS)] for i in range(ARITY[op])]
    return [
        *tokens[:position],
        op,
        *(token for arg in args for token in arg),
        *tokens[position + len(part) :],
    ]


def parse_if_valid(tokens: list[str], *widths: Any) -> language.Node | None:
    """Return the tree of a prefix list that is a formula of the space, else None.

    widths: as `search.language.check_formula` takes them. The code
    sees a width error only in training and scores 0; here it is no formula."""
    once = {"W1": 1, "W2": 1, "linear": 2}
    if len(tokens) > NODES or any(tokens.count(name) != n for name, n in once.items()):
        return None
    node, (low, high) = parse_prefix_tokens(tokens), HEIGHTS
    allowed = (
        node
        and low <= language.measure_height(node) <= high
        and is_valid(node, *widths)
    )
    return node if allowed else None


def change_formula_at_random(
    formula: str,
    max_tries: int,
    linear_map_count: int,
    draw_uniform: Callable[[], float],
    *widths: Any,
) -> str:
    """Return a changed formula as text, or the same one where none of the tries is
    accepted."""
    seed = list_prefix_tokens(language.parse(formula))
    for _ in range(max_tries):
        node = parse_if_valid(
            change_tokens_at_random(seed, linear_map_count, draw_uniform), *widths
        )
        if node:
            return str(node)
    return formula
