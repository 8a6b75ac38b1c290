"""This module makes options of ghost modules, which formulas that check the paper's
printed costs use (lib.claims.checks)."""

from typing import Any

from lib.core.options import Ghost
from lib.papers.ghostbert import recipes


def make_paper_ghost_options(**options: Any) -> Ghost:
    """Return the options of GhostBERT's ghost module, some of them changed.

    A ghost module is a cheap convolution that adds features to a pruned layer. The
    options are those of the paper, so that its printed FLOPs and numbers of parameters
    can be checked.

    options: fields of Ghost with other values, such as features=12."""
    return recipes.make_ghost_options("paper", **options)


FUNCTIONS = {"ghost": make_paper_ghost_options}
