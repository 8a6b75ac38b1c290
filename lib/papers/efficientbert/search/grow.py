"""This module changes formulas of feed-forward networks at random, as genetic
programming does (EfficientBERT, section 3.2).

It works on prefix lists, in which a linear map has two operands, a tensor and its
weights: `W2 gelu(W1 x)` is `linear gelu linear x W1 W2`. All is as in EfficientBERT's
public code."""

from collections.abc import Callable, Sequence

from lib.model import formula as language
from lib.papers.efficientbert.search.language import is_valid_formula

TABLE_1 = tuple("gelu sigmoid tanh relu leaky_relu elu swish add mul max".split())
UNARY, BINARY = (
    tuple(name for name in TABLE_1 if language.ARITY[name] == n) for n in (1, 2)
)
TERMINALS = ("x", *language.LINEAR)
# Least and most edges from the root of a formula's tree to its deepest x. BERT's
# `W2 gelu(W1 x)` has 3.
HEIGHTS = (3, 7)
NODES = 20  # Largest number of entries of a prefix list.
DEPTH = 3  # Largest depth of a random tree that replaces a subtree.
ARITY = (
    language.ARITY
    | {"linear": 2, "foreign": 2}
    | dict.fromkeys(("x", *language.LINEAR), 0)
)


def list_prefix_tokens(node: language.Node) -> list[str]:
    """Return the prefix list of a formula's tree: each operation is followed by its
    operands.

    `W2 gelu(W1 x)` becomes `linear gelu linear x W1 W2`."""
    inner = [token for child in node.args for token in list_prefix_tokens(child)]
    return (
        ["linear", *inner, node.op] if node.op in language.LINEAR else [node.op, *inner]
    )


def parse_prefix_tokens(tokens: list[str]) -> language.Node | None:
    """Return the tree of a prefix list, or None where the list is no formula of a
    layer.

    It is none where a linear map has no weights or those of another layer ("foreign"),
    or where weights stand in the place of a tensor."""
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


def find_end_of_subtree(tokens: list[str], start: int) -> int:
    """Return the index behind the subtree of a prefix list that begins at index
    `start`."""
    open_ = 1
    while open_:
        open_ += ARITY[tokens[start]] - 1
        start += 1
    return start


def mutate_prefix_tokens(
    tokens: list[str], linear_map_count: int, draw_uniform: Callable[[], float]
) -> list[str]:
    """Return a prefix list after one random change. Most results are no formula and
    have to be rejected.

    Three mutations follow each other, as in the authors' code. A random subtree is
    replaced by a random full tree of depth 0 to 3. One node, never the root, is
    replaced by another with as many operands. An operation is inserted above a random
    subtree.

    linear_map_count: how many linear maps the draw has, one for each width of a layer.
    The first is the layer's own; the others are "foreign" and never accepted.
    draw_uniform: f() -> random number, uniform in [0, 1)."""

    def pick_at_random(values: Sequence[str]) -> str:
        return values[int(draw_uniform() * len(values))]

    def draw_full_tree(tree_depth: int) -> list[str]:
        symbols, left = [], [tree_depth]
        while left:
            tree_depth = left.pop()
            symbols.append(pick_at_random(functions if tree_depth else TERMINALS))
            left += [tree_depth - 1] * (ARITY[symbols[-1]] if tree_depth else 0)
        return symbols

    binary = ("linear", *("foreign",) * (linear_map_count - 1), *BINARY)
    functions = binary + UNARY
    position = int(draw_uniform() * len(tokens))
    tokens = (
        tokens[:position]
        + draw_full_tree(int(draw_uniform() * (DEPTH + 1)))
        + tokens[find_end_of_subtree(tokens, position) :]
    )
    if len(tokens) > 1:
        position = 1 + int(draw_uniform() * (len(tokens) - 1))
        alike = {0: TERMINALS, 1: UNARY, 2: binary}
        tokens[position] = pick_at_random(alike[ARITY[tokens[position]]])
    position = int(draw_uniform() * len(tokens))
    op, part = (
        pick_at_random(functions),
        tokens[position : find_end_of_subtree(tokens, position)],
    )
    place = int(draw_uniform() * ARITY[op])
    args = [
        part if i == place else [pick_at_random(TERMINALS)] for i in range(ARITY[op])
    ]
    return [
        *tokens[:position],
        op,
        *(token for arg in args for token in arg),
        *tokens[position + len(part) :],
    ]


def parse_valid_prefix_tokens(
    tokens: list[str],
    hidden_size: int | None = None,
    inner_size: int | None = None,
    size_mismatch: str = "truncate",
) -> language.Node | None:
    """Return the tree of a prefix list, or None where it is no formula of the search
    space.

    The authors' code sees widths that do not fit only in training, where the candidate
    scores 0. Here such a formula is rejected at once.

    hidden_size, inner_size, size_mismatch: as in `check_formula`."""
    once = {"W1": 1, "W2": 1, "linear": 2}
    if len(tokens) > NODES or any(tokens.count(name) != n for name, n in once.items()):
        return None
    node, (low, high) = parse_prefix_tokens(tokens), HEIGHTS
    allowed = (
        node
        and low <= language.measure_height(node) <= high
        and is_valid_formula(node, hidden_size, inner_size, size_mismatch)
    )
    return node if allowed else None


def mutate_formula(
    formula: str,
    max_tries: int,
    linear_map_count: int,
    draw_uniform: Callable[[], float],
    hidden_size: int | None = None,
    inner_size: int | None = None,
    size_mismatch: str = "truncate",
) -> str:
    """Return a randomly changed formula that is valid, or the same formula where
    `max_tries` changes are invalid.

    linear_map_count, draw_uniform: as in `mutate_prefix_tokens`.
    hidden_size, inner_size, size_mismatch: as in `check_formula`."""
    seed = list_prefix_tokens(language.parse(formula))
    for _ in range(max_tries):
        node = parse_valid_prefix_tokens(
            mutate_prefix_tokens(seed, linear_map_count, draw_uniform),
            hidden_size,
            inner_size,
            size_mismatch,
        )
        if node:
            return str(node)
    return formula
