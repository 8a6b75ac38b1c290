"""This module has the options of the report on NAS pruning, free of torch.

A default means "off", so that a field that is added later leaves the identity of
earlier runs alone. The comment at a field also says what the paper leaves open."""

from dataclasses import dataclass
from typing import Annotated, Literal

from lib.core.options import Count, Option, Positive, ShareAbove0, ShareBelow1


@dataclass(frozen=True)
class Gates(Option):
    """A Gates is the settings of a search over gates (sections 5.1 to 5.6 and 7.2 to
    7.9)."""

    # These parts are searched. The report ends at "heads" and "ffn"; a Perceptron has
    # "inputs".
    regions: tuple[Literal["heads", "ffn", "embedding", "qkv", "inputs"], ...]
    ratio: ShareAbove0  # This is R*, a share of the whole model's FLOPs: 0.1, 0.3, 0.5 or 0.7.
    share: ShareAbove0  # This share of the gates may move in a step: 0.1. At 1.0 nothing is held.
    # The share is of each "layer" and kind, or of "all"; the report's "region" is not
    # defined.
    quota: Literal["layer", "all"]
    # A gate that moves jumps by 10; the report's "rescaled" is not defined.
    update: Literal["jump"]
    weight: float  # This is lambda_cost: 1 (section 7.9).
    # This is t, which is not given. PrintedNumber sizes lie within 1 % of their target
    # at best.
    tolerance: Annotated[float, lambda n: 0 < n < 1, "above 0 and below 1"]
    # A final trim, which the report does not have, ends on the target. With "steps"
    # each step also stops where its target is reached.
    landing: Literal["end", "steps"]
    # The target falls from 1 to the ratio along a line ("additive") or a geometric one;
    # with "none" it is the ratio throughout, as in section 7.4.
    schedule: Literal["none", "additive", "multiplicative"] = "none"
    # The running average of the alphas' gradients keeps this share of itself in each
    # step; the report does not name their optimiser.
    memory: ShareBelow1 = 0.0
    # A gradient below this share of its region's mean counts as zero, and its gate
    # leaves first.
    idle: ShareBelow1 = 0.0


@dataclass(frozen=True)
class Perceptron(Option):
    """A Perceptron is the network of the digits check (section 7.1): dense layers and
    ReLU."""

    # pyrefly: ignore[implicit-any-type-argument]: as at Train.select_by
    widths: tuple  # The layers behind the inputs have these widths; the last has the 10 classes.
    epochs: Count  # The report has 15 for three layers, and 20 for eleven.
    batch: Count  # The report gives none.
    lr: Positive  # This is Adam's rate; the report gives none.
    noise: Positive  # This is the noise's standard deviation, for pixels in [0, 1]; not given.


@dataclass(frozen=True)
class Objective(Option):
    """An Objective says what a search or a retraining learns from (section 7.3)."""

    # "prediction" has the squared error to a teacher's logits, and "cross_entropy" the
    # labels. By "soft_cross_entropy", as in TinyBERT's code, classes learn from a
    # teacher, and a regression learns its labels. "intermediate" matches states, and
    # "two_stage" states, then logits.
    kind: Literal[
        "prediction", "cross_entropy", "soft_cross_entropy", "intermediate", "two_stage"
    ]
    # The intermediate loss has attention scores too. That heads match by index is a
    # guess.
    attention: bool = False
    mask: bool = (
        False  # The intermediate means leave padding out; the report does not say.
    )
