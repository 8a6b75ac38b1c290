"""This module lists GhostBERT for the frontier, a comparison of score and cost of all
papers' methods."""

from lib.core.spec import Spec
from lib.papers import grids
from lib.papers.ghostbert import recipes
from lib.papers.points import Method
from lib.stats import cost


def ghost_student_spec(profile: str, task: str, width_in_twelfths: int) -> Spec:
    return recipes.student_spec(
        profile, task, width_in_twelfths, recipes.make_ghost_options(profile)
    )


def count_ghost_module_flops(profile: str) -> int:
    """Return the FLOPs that ghost modules add to a pruned encoder, at any width.

    Ghost modules are GhostBERT's cheap convolutions. The FLOPs are those of one
    sequence of 128 tokens, and are added to those of the pruned encoder to compare
    methods.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper"."""
    return cost.ghost_flops(
        grids.find_encoder_shape(profile), recipes.make_ghost_options(profile)
    )


POINTS = {
    "GhostBERT": Method("paper", ghost_student_spec, added=count_ghost_module_flops)
}
