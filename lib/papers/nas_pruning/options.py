"""This module has the options of the report on NAS pruning, free of torch.

A default means "off", so a field that is added later keeps the identity of earlier
runs. The comment at a field also says what the report leaves open."""

from dataclasses import dataclass
from typing import Annotated, Literal

from lib.core.options import Count, Option, Positive, ShareAbove0, ShareBelow1


@dataclass(frozen=True)
class Gates(Option):
    """A Gates has the settings of a search over gates (sections 5.1 to 5.6, 7.2 to
    7.9)."""

    # Parts that are searched. The report has "heads" and "ffn" only; a Perceptron has
    # "inputs".
    regions: tuple[Literal["heads", "ffn", "embedding", "qkv", "inputs"], ...]
    ratio: ShareAbove0  # R*: target share of the whole model's FLOPs, such as 0.3.
    # Largest share of the gates that may move in a step: 0.1 as reported.
    share: ShareAbove0
    # Gates that the share is of: each "layer" and kind, or "all". The report's "region"
    # is not defined.
    quota: Literal["layer", "all"]
    # Change of a moving gate's alpha: a jump of 10. The report's "rescaled" is not
    # defined.
    update: Literal["jump"]
    weight: float  # Weight lambda_cost of the cost loss: 1 in the report (section 7.9).
    # Relative tolerance of the target, which the report does not give. Printed sizes
    # lie within 1 % of their target at best.
    tolerance: Annotated[float, lambda n: 0 < n < 1, "above 0 and below 1"]
    # When a search meets its target: by a final trim at the "end", which the report
    # does not have, or with "steps" also in each step.
    landing: Literal["end", "steps"]
    # Fall of the target from 1 to the ratio: along a line ("additive") or geometric.
    # With "none" it is the ratio throughout, as in section 7.4.
    schedule: Literal["none", "additive", "multiplicative"] = "none"
    # Decay of the running average of the alphas' gradients in each step. The report
    # does not name their optimiser.
    memory: ShareBelow1 = 0.0
    # Share of a region's mean gradient below which a gradient counts as zero; such
    # gates leave first.
    idle: ShareBelow1 = 0.0


@dataclass(frozen=True)
class Perceptron(Option):
    """A Perceptron is the network of the digits check (section 7.1), with ReLU
    layers."""

    # Widths of the layers behind the inputs; the last is 10, for the classes.
    # pyrefly: ignore[implicit-any-type-argument]: as at Train.select_by
    widths: tuple
    epochs: Count  # 15 for three layers and 20 for eleven, in the report.
    batch: Count  # Not given in the report.
    lr: Positive  # Adam's learning rate; not given in the report.
    noise: Positive  # Standard deviation of the noise, for pixels in [0, 1]; not given.


@dataclass(frozen=True)
class Objective(Option):
    """An Objective names what a search or a retraining learns from (section 7.3)."""

    # "prediction" is the squared error to a teacher's logits, and "cross_entropy" the
    # loss on labels. With "soft_cross_entropy", as in TinyBERT's code, classes learn
    # from a teacher, and a regression learns its labels. "intermediate" matches states,
    # and "two_stage" matches states, then logits.
    kind: Literal[
        "prediction", "cross_entropy", "soft_cross_entropy", "intermediate", "two_stage"
    ]
    # Whether the intermediate loss has attention scores too. That heads match by index
    # is a guess.
    attention: bool = False
    mask: bool = False  # Whether means leave out padding; the report does not say.
