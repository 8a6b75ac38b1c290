"""This module has EfficientBERT's points on the frontier: networks of one size each."""

from dataclasses import replace
from functools import partial

from lib.core.spec import Spec
from lib.papers.efficientbert import recipes
from lib.papers.efficientbert.search.net import macs
from lib.papers.points import TOKENS, Method, add_epochs


def network(profile: str, task: str, m: int, name: str) -> Spec:
    """Return the Spec of a network of the paper's tables; its one size leaves m
    unused."""
    made = recipes.student(profile, task, name)
    return replace(
        made, args=made.args | {"train": add_epochs(recipes.FINETUNE, profile)}
    )


def flops(profile: str, name: str) -> int:
    net = recipes.scale_network(name, profile)
    return 2 * TOKENS * macs(net) + 2 * net.hidden**2


def point(name: str, kind: str = "paper") -> Method:
    make, count = partial(network, name=name), partial(flops, name=name)
    return Method(kind, make, name, once=True, flops=count)


POINTS = {
    "EfficientBERT": point("EfficientBERT"),
    "EfficientBERT TINY": point("EfficientBERT_TINY"),
    "Base Model": point("Base Model", "control"),
}
