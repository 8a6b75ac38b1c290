"""This module has the options of the report on NAS pruning.

A field's default means "off", and the identity of a run leaves out fields with their
default. So a field that is added later does not change the identity of earlier runs.
The docstring of a class also says what the report leaves open."""

from dataclasses import dataclass
from typing import Annotated, Literal

from lib.core.options import Count, Option, Positive, ShareAbove0, ShareBelow1


@dataclass(frozen=True)
class Gates(Option):
    """A Gates has the settings of a pruning search that trains gates.

    A gate is a trained mask sigmoid(alpha) on a head, a neuron or another part of a
    model (sections 5.1 to 5.6 and 7.2 to 7.9 of the report on pruning by differentiable
    NAS).

    regions: which kinds of parts have gates. The report's method has "heads" and "ffn"
    (neurons). Its section 7.2 adds "embedding" (inputs of queries, keys and values) and
    "qkv" (their channels). The test on handwritten digits has "inputs" (pixels and
    noise).
    ratio: R*, the target share of the whole model's FLOPs, such as 0.3.
    share: largest share of the gates of a group that may switch in one step, rounded
    up; 0.1 in the report.
    quota: whether `share` holds for the gates of each kind in each "layer", or for
    "all" gates of the model together. The report says "region" and does not define it.
    update: how a gate's alpha changes: by a jump of 10, which switches it. The report
    says "rescaled" and does not define it.
    weight: weight lambda_cost of the cost loss; 1 in the report (section 7.9).
    tolerance: relative deviation from the target up to which a cost counts as met. The
    report gives no value; its printed costs are within 1 % of their targets at best.
    landing: when gates are switched until the cost is at its target: "end" does so
    once, after the last step, "steps" in every step too. The report has neither.
    schedule: how the target falls from 1 to `ratio` over the steps: linearly
    ("additive") or geometrically ("multiplicative"). With "none" it is `ratio` from the
    first step (section 7.4).
    memory: decay per step of the moving average of the alphas' gradients, as in
    momentum. With 0 each gradient is taken as it is. The report does not name the
    optimiser.
    idle: a gate whose absolute gradient is below this share of the mean of its layer
    and kind hardly affects the loss. Such gates switch off first. With 0 no gate counts
    as such."""

    regions: tuple[Literal["heads", "ffn", "embedding", "qkv", "inputs"], ...]
    ratio: ShareAbove0
    share: ShareAbove0
    quota: Literal["layer", "all"]
    update: Literal["jump"]
    weight: float
    tolerance: Annotated[float, lambda n: 0 < n < 1, "above 0 and below 1"]
    landing: Literal["end", "steps"]
    schedule: Literal["none", "additive", "multiplicative"] = "none"
    memory: ShareBelow1 = 0.0
    idle: ShareBelow1 = 0.0


@dataclass(frozen=True)
class Perceptron(Option):
    """A Perceptron has the settings of a small ReLU network for handwritten digits.

    The report on pruning by differentiable NAS tests its pruning search on this network
    (section 7.1): the search has to tell the pixels from inputs of pure noise.

    widths: numbers of outputs of the layers after the inputs; the last is 10, for the
    classes.
    epochs: epochs of the training; in the report 15 for the network of 3 layers and 20
    for that of 11.
    batch: batch size; not given in the report.
    lr: learning rate of Adam; not given in the report.
    noise: standard deviation of the noise inputs: random numbers that each image has
    beside its pixels, which are in [0, 1]. The search is to drop them. The report does
    not give it."""

    # pyrefly: ignore[implicit-any-type-argument]: An Option would read a type
    # `tuple[X, ...]` as "one of the values X", so the tuple is bare.
    widths: tuple
    epochs: Count
    batch: Count
    lr: Positive
    noise: Positive


@dataclass(frozen=True)
class Objective(Option):
    """An Objective says which loss trains a model in a pruning search or after it.

    kind: "cross_entropy" is on labels, "prediction" the squared error to a teacher's
    logits. "soft_cross_entropy" is the cross-entropy with a teacher's probabilities,
    and for a regression the loss on labels, as in TinyBERT's code. "intermediate"
    matches a teacher's hidden states; "two_stage" does so in the first half of the
    steps, then matches logits (section 7.3 of the report on pruning by differentiable
    NAS).
    attention: whether attention scores are matched beside hidden states. Each head is
    compared with the teacher's head of the same index before pruning, which the report
    does not say.
    mask: whether padded tokens are left out of the losses on hidden states and
    attention scores; the report does not say."""

    kind: Literal[
        "prediction", "cross_entropy", "soft_cross_entropy", "intermediate", "two_stage"
    ]
    attention: bool = False
    mask: bool = False
