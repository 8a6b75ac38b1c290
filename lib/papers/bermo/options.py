"""This module has the options of BERMo, free of torch.

A default means "off", so a field that is added later keeps the identity of earlier
runs. The comment at a field also says what the paper leaves open."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from lib.core.options import MIX_NORMS, Option, Positive, Share, ShareBelow1


@dataclass(frozen=True)
class Mix(Option):
    """A Mix replaces the last layer's output by a weighted sum of all layers (BERMo
    section 3.1)."""

    # Axis of normalisation. The paper's text means "layers", but with equal weights
    # that mix is exactly 0, since its terms cancel (see lib.model.mix).
    norm: Literal[MIX_NORMS]  # pyrefly: ignore[not-a-type]: it is read at run time
    # Initial weights. The paper says "Xavier", not which one; ELMo's code has zeros.
    init: Literal["xavier_uniform", "xavier_normal", "zeros"]
    lr: Positive  # Learning rate of weights and scale; the paper has 1e-2.
    # Dropout rate of the normalised states; the paper names none.
    dropout: ShareBelow1 = 0.0
    # A control in place of the mix, without learned weights (lib.model.mix).
    plain: Literal["", "mean", "embedding"] = ""

    @property
    def mix_operation(self) -> dict[str, Any]:
        """Return the operation that puts the mix into a model."""
        operation = {
            "op": "mix",
            "norm": self.norm,
            "init": self.init,
            "dropout": self.dropout,
        }
        return operation | ({"plain": self.plain} if self.plain else {})


@dataclass(frozen=True)
class Prune(Option):
    """A Prune has the settings of fine-pruning (Sanh et al. 2020; BERMo 2.3, Tables 6
    to 11)."""

    # The tables print "movement" as topK, and "soft" as sigmoied_threshold.
    method: Literal["magnitude", "movement", "soft", "l0"]
    # Thresholds are shares of kept weights. Those of "soft" are compared with sigmoids.
    # For "l0" only the ratio of the two counts.
    initial_threshold: Share
    final_threshold: Share
    # Steps before pruning begins. The learning rate has its own Train.warmup.
    warmup_steps: int
    initial_warmup: int = 0  # i: warm-up before the threshold falls, in units of w.
    final_warmup: int = 0  # f: steps after the threshold fell, in units of w.
    lr: float = 0.0  # Learning rate of the scores (mask_scores_learning_rate).
    # Initial value of the scores (mask_scale).
    init: Annotated[float, math.isfinite, "finite"] = 0.0
    # Weight of the penalty at the final threshold; with `target` its initial value.
    final_lambda: float = 0.0
    # Kept share to which the penalty's weight is steered; 0 as in the paper: no
    # steering.
    target: Share = 0.0
    # Whether warm-ups may exceed the run
    # (lib.papers.bermo.schedules.plan_threshold_ramp).
    overlong: Literal["refuse", "jump"] = "refuse"

    @property
    def has_scores(self) -> bool:
        return self.method != "magnitude"
