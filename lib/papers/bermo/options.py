"""This module has the options of BERMo.

A field's default means "off", and the identity of a run leaves out fields with their
default. So a field that is added later does not change the identity of earlier runs.
The docstring of a class also says what the paper leaves open."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from lib.core.options import (
    MIX_NORMS,
    Option,
    Positive,
    Share,
    ShareBelow1,
    SurgeryOperation,
)


@dataclass(frozen=True)
class Mix(Option):
    """This class has the settings of a layer mix (BERMo, section 3.1).

    A layer mix is a learned weighted sum of the outputs of all layers, which replaces
    the last layer's output. Raises Refused for a value that is not allowed.

    norm: the axis over which the outputs of layers are normalised before they are
    summed: "layers", "layers_affine" (with a learned scale and shift), "channels",
    "tokens" or "none". The paper's text says over "layers". But values that are
    normalised over layers add up to 0, so with equal weights the sum is exactly 0.
    init: how the weights of the sum are initialised: "xavier_uniform", "xavier_normal"
    or "zeros". Softmax makes them shares, so zeros are equal shares. The paper says
    "Xavier", without the distribution; ELMo's code, on which it builds, has zeros.
    lr: learning rate of these weights and of gamma, the learned scale of the sum; the
    paper has 1e-2.
    dropout: dropout rate of the normalised outputs of layers; the paper gives none.
    plain: "" for the paper's learned sum. A control learns no weights: "mean" takes the
    mean of a token's embedding and layer outputs, "embedding" the mean embedding of all
    tokens of the row."""

    norm: Literal[MIX_NORMS]  # pyrefly: ignore[not-a-type]: it is read at run time
    init: Literal["xavier_uniform", "xavier_normal", "zeros"]
    lr: Positive
    dropout: ShareBelow1 = 0.0
    plain: Literal["", "mean", "embedding"] = ""

    @property
    def surgery_operation(self) -> SurgeryOperation:
        """Return the dict by which `apply_surgery` puts this layer mix into a model.

        A layer mix is a weighted sum of the outputs of all layers, in place of the last
        one's. The dict is {"op": "mix", "norm", "init", "dropout"} with the values of
        the fields of these names, and "plain" for a control without learned weights. It
        is saved with the model, so that the model can be built again."""
        operation = {
            "op": "mix",
            "norm": self.norm,
            "init": self.init,
            "dropout": self.dropout,
        }
        return operation | ({"plain": self.plain} if self.plain else {})


@dataclass(frozen=True)
class Prune(Option):
    """This class has the settings of pruning during fine-tuning, by masks on weights.

    A threshold moves from an initial to a final value, so that masks remove ever more
    weights (Sanh et al. 2020; BERMo, section 2.3 and Tables 6 to 11). Raises Refused
    for a value that is not allowed, and for a penalty or a target that the method or
    the other values exclude.

    method: what decides whether a weight is kept. "magnitude" keeps the largest
    weights; the others decide by learned scores. "movement" keeps the weights with the
    highest scores, "soft" those with a score above a threshold, and "l0" draws masks at
    random from a distribution that the scores set. The paper's tables call "movement"
    topK and "soft" sigmoied_threshold.
    initial_threshold, final_threshold: the threshold at the start and at the end of
    pruning. For "magnitude" and "movement" it is the share of weights that is kept. For
    "soft" a weight stays where the sigmoid of its score is above it. For "l0" only the
    ratio of the two matters: it scales the penalty on scores.
    warmup_steps: number w of training steps that is the unit of `initial_warmup` and
    `final_warmup`. The warm-up of the learning rate is another setting (Train.warmup).
    initial_warmup: how long the threshold stays at its initial value at the start, as a
    multiple of w.
    final_warmup: how long the threshold stays at its final value at the end, as a
    multiple of w.
    lr: learning rate of the scores; mask_scores_learning_rate in the public code.
    init: initial value of the scores; mask_scale in the public code.
    final_lambda: weight in the loss of the penalty that lowers scores, once the
    threshold has its final value; 0 for no penalty. Above 0 it needs a final threshold
    above 0, and a method with scores, which "magnitude" is not. With `target` it is
    only the weight with which the controller starts.
    target: share of the weights to keep, which a controller reaches by changing the
    weight of the penalty. With 0 there is no controller, as in the paper. It is for
    "soft" and "l0", with a `final_lambda` above 0.
    overlong: what happens where the phases of constant threshold, at the start and at
    the end, leave no step between them: "refuse" raises an error, "jump" changes the
    threshold at once, as the public code does."""

    method: Literal["magnitude", "movement", "soft", "l0"]
    initial_threshold: Share
    final_threshold: Share
    warmup_steps: int
    initial_warmup: int = 0
    final_warmup: int = 0
    lr: float = 0.0
    init: Annotated[float, math.isfinite, "finite"] = 0.0
    final_lambda: float = 0.0
    target: Share = 0.0
    overlong: Literal["refuse", "jump"] = "refuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.final_lambda and not self.trains_mask_scores:
            fix = "take 0, or a method with scores"
            raise self.make_field_error(
                "final_lambda", f"{self.method!r} has no scores to penalise: {fix}"
            )
        if self.final_lambda and not self.final_threshold:
            fix = "take a final threshold above 0"
            raise self.make_field_error(
                "final_threshold", f"a penalty is divided by it: {fix}"
            )
        if self.target and self.method not in ("soft", "l0"):
            fix = "take 0, as its final threshold is the share that is kept"
            raise self.make_field_error(
                "target", f"{self.method!r} has no controller: {fix}"
            )
        if self.target and not self.final_lambda:
            fix = "take a final_lambda above 0, or no target"
            raise self.make_field_error(
                "target", f"a penalty reaches it, and final_lambda is 0: {fix}"
            )

    @property
    def trains_mask_scores(self) -> bool:
        return self.method != "magnitude"
