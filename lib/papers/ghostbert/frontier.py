"""This module has GhostBERT's points on the frontier."""

from lib.core.spec import Spec
from lib.papers import grids
from lib.papers.ghostbert import recipes
from lib.papers.points import Method
from lib.stats import cost


def ghosts(profile: str, task: str, m: int) -> Spec:
    return recipes.student(profile, task, m, recipes.ghost_options(profile))


def ghost_flops(profile: str) -> int:
    """Return the FLOPs that the ghosts add, which do not depend on the width."""
    return cost.ghost_flops(grids.shape(profile), recipes.ghost_options(profile))


POINTS = {"GhostBERT": Method("paper", ghosts, added=ghost_flops)}
