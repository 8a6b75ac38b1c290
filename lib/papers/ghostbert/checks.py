"""This module makes ghost modules, which formulas that check the paper's printed costs
use (lib.claims.checks)."""

from typing import Any

from lib.core.options import Ghost
from lib.papers.ghostbert import recipes


def make_ghost_module_of_paper(**options: Any) -> Ghost:
    """Return the options of the paper's ghost module, some of them changed.

    A formula counts its cost by `counted("flops", ghost=ghost(features=1))`."""
    return recipes.make_ghost_options("paper", **options)


FUNCTIONS = {"ghost": make_ghost_module_of_paper}
