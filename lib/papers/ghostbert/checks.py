"""This module counts GhostBERT's costs for formulas over printed cells
(lib.claims.checks)."""

from fractions import Fraction
from typing import Any

from lib.papers.ghostbert import recipes
from lib.stats import cost


def count_cost(what: str, shape: str = "bert-base", **options: Any) -> Fraction:
    """Return a cost of an encoder by a function of `lib.stats.cost`.

    what: "flops", "parameters", "ghost_flops" or "ghost_parameters". options: the kept
    heads, the convention, and options of ghosts; without the latter there are no
    ghosts."""
    ours = {
        name: options.pop(name) for name in ("heads", "convention") if name in options
    }
    ghost = recipes.make_ghost_options("paper", **options) if options else None
    return Fraction(getattr(cost, what)(cost.SHAPES[shape], ghost=ghost, **ours))


FUNCTIONS = {"counted": count_cost}
