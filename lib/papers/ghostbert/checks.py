"""This module makes ghosts for formulas over printed cells (lib.claims.checks)."""

from typing import Any

from lib.core.options import Ghost
from lib.papers.ghostbert import recipes


def make_ghost(**options: Any) -> Ghost:
    """Return the ghosts of the profile `paper`, with other options.

    A formula counts them by `counted("flops", ghost=ghost(features=1))`."""
    return recipes.make_ghost_options("paper", **options)


FUNCTIONS = {"ghost": make_ghost}
