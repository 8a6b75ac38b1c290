"""This module lists EfficientBERT's methods for the frontier, a comparison of score and
cost of all papers' methods.

Each method is one published network, which has a single size."""

from dataclasses import replace
from functools import partial
from typing import Literal

from lib.core.spec import Spec
from lib.core.types import ProfileName, TaskName
from lib.papers.efficientbert import recipes
from lib.papers.efficientbert.options import NetworkName
from lib.papers.efficientbert.search.net import count_macs_per_token
from lib.papers.points import (
    TOKENS,
    CompressionMethod,
    make_single_stage_train_settings,
)


def published_network_spec(
    profile: ProfileName,
    task: TaskName,
    unused_width: int,
    network_name: NetworkName,
) -> Spec:
    """Describe the run that trains a published EfficientBERT on a task.

    The model is one point in a comparison of score and cost of many compression
    methods, which are all trained on the task for the same number of epochs. This
    network has been trained on text before. The Spec is the frozen description of this
    run, still without a seed.

    profile: size of the experiment, "toy", "mini" or "paper".
    unused_width: not used. The other methods take a width here, and a published network
    has one size.
    network_name: the network's name in EfficientBERT's tables, such as
    "EfficientBERT"."""
    made = recipes.student_spec(profile, task, network_name)
    return replace(
        made,
        args=made.args
        | {"train": make_single_stage_train_settings(recipes.FINETUNE, profile, task)},
    )


def count_network_flops(profile: ProfileName, network_name: NetworkName) -> int:
    net = recipes.scale_network_to_profile(network_name, profile)
    return 2 * TOKENS * count_macs_per_token(net) + 2 * net.hidden**2


def make_method_of_published_network(
    network_name: NetworkName, method_kind: Literal["paper", "control"] = "paper"
) -> CompressionMethod:
    return CompressionMethod(
        method_kind,
        partial(published_network_spec, network_name=network_name),
        network_name,
        has_single_model=True,
        count_flops=partial(count_network_flops, network_name=network_name),
    )


POINTS = {
    "EfficientBERT": make_method_of_published_network("EfficientBERT"),
    "EfficientBERT TINY": make_method_of_published_network("EfficientBERT_TINY"),
    "Base Model": make_method_of_published_network("Base Model", "control"),
}
