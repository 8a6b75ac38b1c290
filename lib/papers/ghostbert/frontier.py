"""This module names GhostBERT's models on the frontier, with the functions that
describe their runs. The frontier is the page that compares score and cost of all
papers' methods."""

from functools import partial

from lib.core.types import ProfileName
from lib.papers import grids
from lib.papers.ghostbert import recipes
from lib.papers.points import CompressionMethod
from lib.stats import cost


def count_ghost_module_flops(profile: ProfileName) -> int:
    """Return the FLOPs that ghost modules add to a pruned encoder, at any width.

    Ghost modules are GhostBERT's cheap convolutions. The FLOPs are those of one
    sequence of 128 tokens, and are added to those of the pruned encoder to compare
    methods.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper"."""
    return cost.count_ghost_flops(
        grids.find_encoder_shape(profile), recipes.make_ghost_options(profile)
    )


POINTS = {
    "GhostBERT": CompressionMethod(
        "paper",
        partial(recipes.table_model_spec, variant_name="Ghost"),
        count_added_flops=count_ghost_module_flops,
    )
}
