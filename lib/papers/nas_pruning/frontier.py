"""This module has the frontier's points of NAS pruning: searched and random
networks."""

from functools import partial

from lib.core.spec import Spec
from lib.papers import grids, students
from lib.papers.nas_pruning import recipes
from lib.papers.points import Method, network


def search_point(profile: str, task: str, m: int) -> Spec:
    """Return the Spec of a search in the teacher, for a network of m/12 of its
    FLOPs."""
    teacher = grids.teacher(profile, task)
    return recipes.search_spec(profile, task, teacher, ratio=m / students.HEADS)


def random_point(profile: str, task: str, m: int) -> Spec:
    """Return the Spec of a random architecture with m/12 of the teacher's FLOPs."""
    return recipes.random_spec(grids.teacher(profile, task), ratio=m / students.HEADS)


POINTS = {
    "NAS": Method(
        "paper", partial(network, find=search_point), "found", least=recipes.least_share
    ),
    "Random": Method(
        "control",
        partial(network, find=random_point),
        "found",
        least=recipes.least_share,
    ),
}
