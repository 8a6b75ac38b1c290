"""This module makes options of ghost modules. Formulas that check the paper's printed
costs take them (lib.claims.checks)."""

from functools import partial

from lib.papers.ghostbert import recipes

# f(**changed fields) -> the options of the paper's ghost module, so that its printed
# FLOPs and numbers of parameters can be checked.
FUNCTIONS = {"ghost": partial(recipes.make_ghost_options, "paper")}
