"""This module has the options of the report on NAS pruning.

A field's default means "off", and the identity of a run leaves out fields with their
default. So a field that is added later does not change the identity of earlier runs.
The comment at a field also says what the report leaves open."""

from dataclasses import dataclass
from typing import Annotated, Literal

from lib.core.options import Count, Option, Positive, ShareAbove0, ShareBelow1


@dataclass(frozen=True)
class Gates(Option):
    """A Gates has the settings of a pruning search that trains gates.

    A gate is a trained mask sigmoid(alpha) on a head, a neuron or another part of a
    model (sections 5.1 to 5.6 and 7.2 to 7.9 of the report on pruning by differentiable
    NAS).

    regions: which kinds of parts have gates; "embedding" are the inputs of queries,
    keys and values, "qkv" their channels, and "inputs" those of a perceptron.
    ratio: target share of the whole model's FLOPs.
    share, quota: the largest share of gates that may switch in one step, either of each
    "layer" and kind or of "all" gates.
    update: how an alpha changes: by a jump that switches the gate.
    weight: weight of the cost in the loss.
    tolerance: relative deviation from the target cost up to which the target counts as
    met.
    landing: whether gates are switched to the target only after the last step ("end")
    or in every step ("steps").
    schedule: how the target falls from 1 to `ratio` over the steps; "none" starts at
    `ratio`.
    memory: decay per step of a moving average of the gradients.
    idle: gates whose absolute gradient is below this share of the mean of their layer
    and kind switch off first; with 0 none do."""

    # Which parts have gates. The report's method has "heads" and "ffn" (neurons). Its
    # section 7.2 adds "embedding" (inputs of queries, keys and values) and "qkv" (their
    # channels). The test on handwritten digits has "inputs" (pixels and noise).
    regions: tuple[Literal["heads", "ffn", "embedding", "qkv", "inputs"], ...]
    ratio: ShareAbove0  # R*: target share of the whole model's FLOPs, such as 0.3.
    # Largest share of the gates that may switch in one step; 0.1 in the report.
    share: ShareAbove0
    # Whether `share` holds for the gates of each kind in each "layer", or for "all"
    # gates of the model together. The report says "region" and does not define it.
    quota: Literal["layer", "all"]
    # How a gate's alpha changes: by a jump of 10, which switches it. The report says
    # "rescaled" and does not define it.
    update: Literal["jump"]
    weight: float  # Weight lambda_cost of the cost loss: 1 in the report (section 7.9).
    # A cost this close to the target, relative to it, counts as met. The report gives
    # no value; its printed costs are within 1 % of their targets at best.
    tolerance: Annotated[float, lambda n: 0 < n < 1, "above 0 and below 1"]
    # When gates are switched until the cost is at its target: "end" does so once, after
    # the last step, "steps" in every step too. The report has neither.
    landing: Literal["end", "steps"]
    # How the target falls from 1 to `ratio` over the steps: linearly ("additive") or
    # geometrically ("multiplicative"). With "none" it is `ratio` from the first step
    # (section 7.4).
    schedule: Literal["none", "additive", "multiplicative"] = "none"
    # Decay per step of the moving average of the alphas' gradients, as in momentum.
    # With 0 each gradient is taken as it is. The report does not name the optimiser.
    memory: ShareBelow1 = 0.0
    # A gate whose absolute gradient is below this share of the mean of its layer and
    # kind hardly affects the loss. Such gates switch off first. With 0 no gate counts
    # as such.
    idle: ShareBelow1 = 0.0


@dataclass(frozen=True)
class Perceptron(Option):
    """A Perceptron has the settings of a small ReLU network for handwritten digits.

    The report on pruning by differentiable NAS tests its pruning search on this network
    (section 7.1): the search has to tell the pixels from inputs of pure noise.

    widths: numbers of outputs of the layers, the last for the 10 classes.
    epochs, batch, lr: epochs, batch size and learning rate of the training by Adam.
    noise: standard deviation of the noise inputs, where pixels are in [0, 1]."""

    # Widths of the layers after the inputs; the last is 10, for the classes.
    # pyrefly: ignore[implicit-any-type-argument]: An Option would read a type
    # `tuple[X, ...]` as "one of the values X", so the tuple is bare.
    widths: tuple
    epochs: Count  # In the report 15 for the network of 3 layers and 20 for that of 11.
    batch: Count  # Not given in the report.
    lr: Positive  # Learning rate of Adam; not given in the report.
    # Standard deviation of the noise inputs: random numbers that each image has beside
    # its pixels, which are in [0, 1]. The search is to drop them. The report does not
    # give it.
    noise: Positive


@dataclass(frozen=True)
class Objective(Option):
    """An Objective says which loss trains a model in a pruning search or after it.

    kind: "cross_entropy" is on labels, "prediction" the squared error to a teacher's
    logits. "soft_cross_entropy" is the cross-entropy with a teacher's probabilities,
    and for a regression the loss on labels. "intermediate" matches a teacher's hidden
    states; "two_stage" does so in the first half of the steps, then matches logits
    (section 7.3 of the report on pruning by differentiable NAS).
    attention: whether attention scores are matched beside hidden states.
    mask: whether padded tokens are left out of the losses on hidden states."""

    # "prediction" is the squared error to a teacher's logits, "cross_entropy" the loss
    # on labels. "soft_cross_entropy" is the cross-entropy with a teacher's
    # probabilities, and for a regression the loss on labels, as in TinyBERT's code.
    # "intermediate" matches a teacher's hidden states. "two_stage" does so in the first
    # half of the steps, and matches logits in the second.
    kind: Literal[
        "prediction", "cross_entropy", "soft_cross_entropy", "intermediate", "two_stage"
    ]
    # Whether attention scores are matched beside hidden states. Each head is compared
    # with the teacher's head of the same index, which the report does not say.
    attention: bool = False
    # Whether padded tokens are left out of the losses on states; the report does not
    # say.
    mask: bool = False
