"""This module changes formulas of feed-forward networks at random, as genetic
programming does (EfficientBERT, section 3.2).

It works on prefix lists, in which a linear map has two operands, a tensor and its
weights: `W2 gelu(W1 x)` is `linear gelu linear x W1 W2`. All is as in EfficientBERT's
public code, except that `parse_prefix_notation_in_search_space` also checks length and
widths, and compares the operands of binary operations exactly."""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from lib.model import formula as language
from lib.papers.efficientbert.search.language import Unchecked, is_valid_formula

FormulaSymbol: TypeAlias = str  # Such as "gelu", "x", "W1" or "linear".
UnitUniformNumber: TypeAlias = float
TABLE_1 = tuple("gelu sigmoid tanh relu leaky_relu elu swish add mul max".split())
UNARY, BINARY = (
    tuple(name for name in TABLE_1 if language.ARITY[name] == n) for n in (1, 2)
)
TERMINALS = ("x", *language.LINEAR)
# Least and most edges from the root of a formula's syntax tree to its deepest x. BERT's
# formula `W2 gelu(W1 x)` has 3.
HEIGHTS = (3, 7)
NODES = 20  # Largest number of symbols of a formula in prefix order.
DEPTH = 3  # Largest depth of the random tree by which a mutation replaces a subtree.
ARITY = (
    language.ARITY
    | {"linear": 2, "foreign": 2}
    | dict.fromkeys(("x", *language.LINEAR), 0)
)


def convert_to_prefix_notation(node: language.Node) -> list[FormulaSymbol]:
    """Return the syntax tree of an FFN's formula as a list of symbols in prefix order.

    The formula of a feed-forward network (FFN) is text such as `W2 gelu(W1 x)`. Each
    operation is followed by its operands. A linear map is "linear" with two operands,
    its input and its weights, so this formula becomes `linear gelu linear x W1 W2`.
    Random changes of formulas work on such lists, as in EfficientBERT's public code.

    node: root of the syntax tree."""
    inner = [
        token for child in node.args for token in convert_to_prefix_notation(child)
    ]
    return (
        ["linear", *inner, node.op] if node.op in language.LINEAR else [node.op, *inner]
    )


def parse_prefix_notation(formula_symbols: list[FormulaSymbol]) -> language.Node | None:
    """Return the syntax tree of a list of symbols in prefix order, or None.

    The tree is that of the formula of a feed-forward network, such as W2 gelu(W1 x). It
    is the inverse of `convert_to_prefix_notation`. Random changes may give a list that
    is no formula, and the result is then None. That is so where "linear" lacks its
    weights W1 or W2, where weights stand in the place of an input, and where "foreign"
    occurs, a linear map with the size of another layer."""
    left = iter(formula_symbols)

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


def find_end_of_subtree(
    formula_symbols: list[FormulaSymbol], subtree_start: int
) -> int:
    """Return the index after the last symbol of a subtree in a list of symbols.

    The list has the formula of a feed-forward network, such as W2 gelu(W1 x), in prefix
    order: each operation is followed by its operands. So a subtree is the slice from
    `subtree_start` to the result, which can be replaced as a whole.

    formula_symbols: the symbols of the formula, such as ["gelu", "x"].
    subtree_start: index of the root of the subtree."""
    open_ = 1
    while open_:
        open_ += ARITY[formula_symbols[subtree_start]] - 1
        subtree_start += 1
    return subtree_start


def mutate_prefix_notation(
    formula_symbols: list[FormulaSymbol],
    linear_symbol_count: int,
    draw_uniform: Callable[[], UnitUniformNumber],
) -> list[FormulaSymbol]:
    """Return a copy of the prefix list of an FFN's formula after random changes.

    The formula of a feed-forward network (FFN), such as W2 gelu(W1 x), is searched by
    evolution. Three mutations follow each other, as in EfficientBERT's public code. A
    random subtree is replaced by a random full tree of depth 0 to 3. One symbol, never
    the root, is replaced by a random one with as many operands, maybe the same. An
    operation is inserted above a random subtree. Most results are no valid formula, so
    the caller checks them (`parse_prefix_notation_in_search_space`) and tries again.

    formula_symbols: symbols in prefix order, such as `linear gelu linear x W1 W2`.
    linear_symbol_count: number of linear maps among which a mutation draws. One is
    "linear". All others are "foreign", a map with the size of another layer, which
    makes the result invalid.
    draw_uniform: f() -> random number, uniform in [0, 1)."""

    def pick_at_random(values: Sequence[str]) -> str:
        return values[int(draw_uniform() * len(values))]

    def sample_full_tree_symbols(tree_depth: int) -> list[str]:
        symbols = []
        left = [tree_depth]
        while left:
            tree_depth = left.pop()
            symbols.append(pick_at_random(functions if tree_depth else TERMINALS))
            left += [tree_depth - 1] * (ARITY[symbols[-1]] if tree_depth else 0)
        return symbols

    binary = ("linear", *("foreign",) * (linear_symbol_count - 1), *BINARY)
    functions = binary + UNARY
    position = int(draw_uniform() * len(formula_symbols))
    formula_symbols = (
        formula_symbols[:position]
        + sample_full_tree_symbols(int(draw_uniform() * (DEPTH + 1)))
        + formula_symbols[find_end_of_subtree(formula_symbols, position) :]
    )
    if len(formula_symbols) > 1:
        position = 1 + int(draw_uniform() * (len(formula_symbols) - 1))
        alike = {0: TERMINALS, 1: UNARY, 2: binary}
        formula_symbols[position] = pick_at_random(
            alike[ARITY[formula_symbols[position]]]
        )
    position = int(draw_uniform() * len(formula_symbols))
    op = pick_at_random(functions)
    part = formula_symbols[position : find_end_of_subtree(formula_symbols, position)]
    place = int(draw_uniform() * ARITY[op])
    args = [
        part if i == place else [pick_at_random(TERMINALS)] for i in range(ARITY[op])
    ]
    return [
        *formula_symbols[:position],
        op,
        *(token for arg in args for token in arg),
        *formula_symbols[position + len(part) :],
    ]


def parse_prefix_notation_in_search_space(
    formula_symbols: list[FormulaSymbol],
    hidden_size: int | Unchecked = None,
    inner_size: int | Unchecked = None,
    size_mismatch_rule: Literal["truncate", "pad"] = "truncate",
) -> language.Node | None:
    """Return the syntax tree of an FFN formula's prefix list, or None if not allowed.

    A random change of a feed-forward network's formula, such as W2 gelu(W1 x), is
    accepted only if it is allowed. The list may have at most 20 symbols, with W1 and W2
    once each. The tree has a height of 3 to 7 edges and obeys the rules of
    `parse_and_check_formula`, such as no activation of an activation. Formulas with
    wrong widths are rejected before any training, unlike in EfficientBERT's code.

    formula_symbols: symbols in prefix order, such as `linear gelu linear x W1 W2`.
    hidden_size, inner_size: channels of x, and channels between W1 and W2; None leaves
    widths unchecked.
    size_mismatch_rule: what happens to operands of different widths: "truncate" or
    "pad"."""
    once = {"W1": 1, "W2": 1, "linear": 2}
    if len(formula_symbols) > NODES or any(
        formula_symbols.count(name) != n for name, n in once.items()
    ):
        return None
    node = parse_prefix_notation(formula_symbols)
    low, high = HEIGHTS
    if (
        node
        and low <= language.measure_tree_height(node) <= high
        and is_valid_formula(node, hidden_size, inner_size, size_mismatch_rule)
    ):
        return node
    return None


def mutate_formula(
    formula: str,
    max_tries: int,
    linear_symbol_count: int,
    draw_uniform: Callable[[], UnitUniformNumber],
    hidden_size: int | Unchecked = None,
    inner_size: int | Unchecked = None,
    size_mismatch_rule: Literal["truncate", "pad"] = "truncate",
) -> str:
    """Return a random valid change of the formula of a feed-forward network (FFN).

    A search evolves such formulas. Changes are drawn until one is valid. After
    `max_tries` invalid ones the formula is returned as it was given.

    formula: text such as "W2 gelu(W1 x)".
    linear_symbol_count: number of linear maps among which a change draws. All but
    one have the size of another layer, which makes the change invalid.
    draw_uniform: f() -> random number, uniform in [0, 1).
    hidden_size, inner_size: channels of x, and channels between W1 and W2; None leaves
    widths unchecked.
    size_mismatch_rule: what happens to operands of different widths: "truncate" or
    "pad"."""
    seed = convert_to_prefix_notation(language.parse_feed_forward_formula(formula))
    for _ in range(max_tries):
        node = parse_prefix_notation_in_search_space(
            mutate_prefix_notation(seed, linear_symbol_count, draw_uniform),
            hidden_size,
            inner_size,
            size_mismatch_rule,
        )
        if node:
            return str(node)
    return formula
