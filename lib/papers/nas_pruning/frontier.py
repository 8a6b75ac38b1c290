"""This module lists the NAS report's methods for the frontier, a comparison of score
and cost of all papers' methods: searched and random networks."""

from functools import partial

from lib.core.spec import Spec
from lib.papers import grids, students
from lib.papers.nas_pruning import recipes
from lib.papers.points import Method, searched_student_spec


def search_spec_at_budget(
    profile: str, task: str, flops_budget_in_twelfths: int
) -> Spec:
    """Return the Spec of a search in the fine-tuned teacher, for a network with a share
    of its FLOPs.

    flops_budget_in_twelfths: the share, times 12."""
    teacher = grids.teacher_spec(profile, task)
    return recipes.search_spec(
        profile, task, teacher, ratio=flops_budget_in_twelfths / students.HEADS
    )


def random_architecture_spec_at_budget(
    profile: str, task: str, flops_budget_in_twelfths: int
) -> Spec:
    """Return the Spec that draws a random architecture with a share of the teacher's
    FLOPs.

    flops_budget_in_twelfths: the share, times 12."""
    return recipes.random_architecture_spec(
        grids.teacher_spec(profile, task),
        ratio=flops_budget_in_twelfths / students.HEADS,
    )


POINTS = {
    "NAS": Method(
        "paper",
        partial(searched_student_spec, make_search_spec=search_spec_at_budget),
        "found",
        least=recipes.compute_least_reachable_share,
    ),
    "Random": Method(
        "control",
        partial(
            searched_student_spec, make_search_spec=random_architecture_spec_at_budget
        ),
        "found",
        least=recipes.compute_least_reachable_share,
    ),
}
