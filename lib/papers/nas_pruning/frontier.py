"""This module lists the NAS report's methods for the frontier, a comparison of score
and cost of all papers' methods: searched and random networks."""

from functools import partial

from lib.core.spec import Spec
from lib.core.types import ProfileName, TaskName
from lib.papers import grids, students
from lib.papers.nas_pruning import recipes
from lib.papers.points import CompressionMethod, student_pruned_by_search_spec


def architecture_search_spec_at_budget(
    profile: ProfileName, task: TaskName, flops_budget_in_twelfths: int
) -> Spec:
    """Return the Spec (description of a run) of a pruning search at a FLOPs budget.

    The search decides which heads and neurons of the fine-tuned teacher to keep. It is
    the NAS method in a comparison of compression methods at equal FLOPs.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    flops_budget_in_twelfths: m, where the pruned network has m/12 of the teacher's
    FLOPs."""
    return recipes.architecture_search_spec(
        profile,
        task,
        grids.teacher_spec(profile, task),
        ratio=flops_budget_in_twelfths / students.HEADS,
    )


def random_architecture_spec_at_budget(
    profile: ProfileName, task: TaskName, flops_budget_in_twelfths: int
) -> Spec:
    """Return the Spec (description of a run) that draws a random pruned architecture.

    It is the control for a pruning search: heads and neurons are kept at random, with
    the same FLOPs.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    flops_budget_in_twelfths: m, where the pruned network has m/12 of the teacher's
    FLOPs."""
    return recipes.random_architecture_spec(
        grids.teacher_spec(profile, task),
        ratio=flops_budget_in_twelfths / students.HEADS,
    )


POINTS = {
    "NAS": CompressionMethod(
        "paper",
        partial(
            student_pruned_by_search_spec,
            make_search_spec=architecture_search_spec_at_budget,
        ),
        "found",
        find_least_flops_share=recipes.compute_least_reachable_flops_ratio,
    ),
    "Random": CompressionMethod(
        "control",
        partial(
            student_pruned_by_search_spec,
            make_search_spec=random_architecture_spec_at_budget,
        ),
        "found",
        find_least_flops_share=recipes.compute_least_reachable_flops_ratio,
    ),
}
