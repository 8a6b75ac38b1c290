"""This module has the frontier's points of NAS pruning: searched and random
networks."""

from functools import partial

from lib.core.spec import Spec
from lib.papers import grids, students
from lib.papers.nas_pruning import recipes
from lib.papers.points import Method, searched_student_spec


def search_spec_at_budget(profile: str, task: str, budget_in_twelfths: int) -> Spec:
    """Return the Spec of a search in the teacher, for a network of budget_in_twelfths /
    12 of its FLOPs."""
    teacher = grids.teacher_spec(profile, task)
    return recipes.search_spec(
        profile, task, teacher, ratio=budget_in_twelfths / students.HEADS
    )


def random_spec_at_budget(profile: str, task: str, budget_in_twelfths: int) -> Spec:
    """Return the Spec of a random architecture with budget_in_twelfths / 12 of the
    teacher's FLOPs."""
    return recipes.random_spec(
        grids.teacher_spec(profile, task), ratio=budget_in_twelfths / students.HEADS
    )


POINTS = {
    "NAS": Method(
        "paper",
        partial(searched_student_spec, find_search=search_spec_at_budget),
        "found",
        least=recipes.find_least_flops_share,
    ),
    "Random": Method(
        "control",
        partial(searched_student_spec, find_search=random_spec_at_budget),
        "found",
        least=recipes.find_least_flops_share,
    ),
}
