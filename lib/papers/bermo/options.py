"""This module has the options of BERMo, free of torch.

A default means "off", so that a field that is added later leaves the identity of
earlier runs alone. The comment at a field also says what the paper leaves open."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from lib.core.options import MIX_NORMS, Option, Positive, Share, ShareBelow1


@dataclass(frozen=True)
class Mix(Option):
    """A Mix puts a weighted sum of all layers in place of the last one (BERMo section
    3.1)."""

    # The paper's text means "layers". With equal weights that mix is exactly 0: its
    # terms cancel (see lib.model.mix).
    norm: Literal[MIX_NORMS]  # pyrefly: ignore[not-a-type]: it is read at run time
    # The weights start so. The paper says "Xavier", not which one; ELMo's code has
    # zeros.
    init: Literal["xavier_uniform", "xavier_normal", "zeros"]
    lr: Positive  # Weights and scale have this learning rate; the paper has 1e-2.
    dropout: ShareBelow1 = (
        0.0  # The normalised states have this rate; the paper names none.
    )
    # A control stands in place of the mix: nothing of it is learned (lib.model.mix).
    plain: Literal["", "mean", "embedding"] = ""

    @property
    def surgery(self) -> dict[str, Any]:
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
    """A Prune is the settings of fine-pruning (Sanh et al. 2020; BERMo 2.3, Tables 6 to
    11)."""

    # The tables print "movement" as topK, and "soft" as sigmoied_threshold.
    method: Literal["magnitude", "movement", "soft", "l0"]
    # The thresholds are kept shares. Those of "soft" are compared with sigmoids. Of
    # those of "l0" only the ratio of both counts.
    initial_threshold: Share
    final_threshold: Share
    warmup_steps: int  # This is w; the warm-up of the learning rate is Train.warmup.
    initial_warmup: int = 0  # This is i, in units of w.
    final_warmup: int = 0  # This is f, in units of w.
    lr: float = 0.0  # The scores have this learning rate (mask_scores_learning_rate).
    init: Annotated[float, math.isfinite, "finite"] = (
        0.0  # The scores start here (mask_scale).
    )
    # The penalty has this weight at the final threshold; with `target`, its search
    # starts here.
    final_lambda: float = 0.0
    # The penalty's weight is steered to this kept share; 0 steers nothing, as in the
    # paper.
    target: Share = 0.0
    # Warm-ups may be longer than the run (lib.papers.bermo.schedules.plan).
    overlong: Literal["refuse", "jump"] = "refuse"

    @property
    def scored(self) -> bool:
        return self.method != "magnitude"
