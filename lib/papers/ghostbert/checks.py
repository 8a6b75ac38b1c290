"""This module makes ghost modules, which formulas that check the paper's printed costs
use (lib.claims.checks)."""

from typing import Any

from lib.core.options import Ghost
from lib.papers.ghostbert import recipes


def make_paper_ghost_options(**options: Any) -> Ghost:
    """Return the options of the paper's ghost module, some of them changed.

    Formulas in `claims.csv`, which compute printed costs again, call it `ghost`:
    `counted("flops", ghost=ghost(features=1))` has the FLOPs of a model with it.

    options: fields of Ghost with other values, such as features=1."""
    return recipes.make_ghost_options("paper", **options)


FUNCTIONS = {"ghost": make_paper_ghost_options}
