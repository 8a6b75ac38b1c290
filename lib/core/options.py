"""This module has the options of every method, each a frozen dataclass, free of torch.

A default means "off", so that a field that is added later leaves the identity of
earlier runs alone. The values of a paper, and those of the small profiles, are written
out in `lib/papers/`. The comment at a field also says what the paper leaves open."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from lib.model.options import FACTOR as FACTOR
from lib.model.options import (
    MIX_NORMS,
    Count,
    Option,
    Positive,
    Share,
    ShareAbove0,
    ShareBelow1,
)
from lib.model.options import START as START
from lib.model.options import Ghost as Ghost


# ---- Every run ----
@dataclass(frozen=True)
class Numerics(Option):
    """A Numerics decides the bits of a run beside its mathematics."""

    # "bfloat16" is the type of matrix products and, on a CPU, of hidden states. Weights
    # stay in float32. A CPU without instructions for bfloat16 refuses it
    # (lib.core.processor).
    dtype: Literal["float32", "bfloat16"]
    threads: Count  # Bits depend on the number of CPU threads, because sums are split by thread.
    device: Literal["", "cuda"] = (
        ""  # "" is the CPU, and "cuda" a GPU, which makes other runs.
    )


@dataclass(frozen=True)
class Train(Option):
    """A Train is the settings of one training (AdamW, linear decay)."""

    epochs: Count
    batch: Count
    lr: Positive
    max_length: Count  # Longer rows are cut to so many tokens.
    clip: float = 0.0  # The norm of the gradient is clipped to this; 0 does not clip.
    warmup: Share = 0.0  # In this fraction of all steps the learning rate rises.
    weight_decay: float = 0.0
    dropout: Share = 0.0  # This is the rate for hidden states and for attention.
    pad_to: int = (
        0  # Every batch is padded to so many tokens; 0 pads to its longest row.
    )
    # "best" keeps the model with the best development score, as the papers do, which is
    # optimistic.
    select: Literal["last", "best"] = "last"
    # pyrefly: ignore[implicit-any-type-argument]: an Option reads `tuple[X, ...]` as
    # choices X
    select_by: tuple = ()  # "best" goes by the mean of these metrics, or by the task's first one.
    eval_every: int = 0  # "best" evaluates once in so many steps; 0 is once an epoch.
    spare_norms: bool = False  # Biases and LayerNorms have no weight decay.
    taps: float = 0.0  # Taps of ghosts have a learning rate of their own; 0 is `lr`.
    # Dropout masks come from random bytes, with rates in 256ths (lib.train.lean).
    byte_dropout: bool = False


@dataclass(frozen=True)
class Targets(Option):
    """A Targets says what is learned: GhostBERT's text has labels, its Table 8 has a
    teacher."""

    kind: Literal[
        "hard", "soft", "both"
    ]  # "hard" is the labels, "soft" the teacher's logits.
    # The soft loss is summed over classes (DynaBERT) instead of averaged (TinyBERT).
    sum_classes: bool = False
    temperature: float = 1.0


@dataclass(frozen=True)
class Span(Option):
    """A Span says how passages are cut into windows (SQuAD; BERT's script has 128, 64,
    30)."""

    stride: Count  # A window of a passage begins so many tokens behind the one before.
    max_query: Count  # Questions are cut to so many tokens.
    max_answer: Count  # Answers have at most so many tokens.


# ---- GhostBERT ----
@dataclass(frozen=True)
class Importance(Option):
    """An Importance says how heads and neurons are ranked (GhostBERT 2.3, Hou et al.
    2020)."""

    # The ranks are taken on these rows; "dev" is as in the ancestor's code, and
    # optimistic.
    split: Literal["held_out", "dev"]
    batch: Count
    max_length: Count
    # The ancestor's code never zeroes gradients: it adds |running sum|, not |batch
    # gradient|.
    cumulative: bool = False
    by: str = ""  # Instead of first-order Taylor, `scores` of this module of lib.methods rank.


@dataclass(frozen=True)
class Distil(Option):
    """A Distil says how a teacher's states are matched (GhostBERT section 2.3,
    L_distill)."""

    mask: bool = (
        False  # The means leave padding out; those of the ancestors include it.
    )


@dataclass(frozen=True)
class Augment(Option):
    """An Augment says how words are replaced, as in TinyBERT; GhostBERT prints no
    setting."""

    # This is N: each sentence has so many attempts. TinyBERT's code has 10 to 30 by
    # task.
    tries: Count
    p: ShareAbove0  # In a try each word is replaced with this probability; TinyBERT has 0.4.
    candidates: (
        Count  # This is K for each word, pieces of words included; TinyBERT has 15.
    )
    # Neighbours are found by the model's own "embeddings"; TinyBERT's code reads a file
    # of GloVe.
    neighbours: Literal["embeddings"]


# ---- BERMo ----
@dataclass(frozen=True)
class Mix(Option):
    """A Mix puts a weighted sum of all layers in place of the last one (BERMo section
    3.1)."""

    # Read literally, the paper has "layers"; lib.model.mix says what cancels there.
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
    # lib.train.schedules.plan says what this does with warm-ups that are longer than the run.
    overlong: Literal["refuse", "jump"] = "refuse"

    @property
    def scored(self) -> bool:
        return self.method != "magnitude"


# ---- EfficientBERT ----
@dataclass(frozen=True)
class Search(Option):
    """A Search says how candidates are proposed (section 3.2, lib.search.samplers)."""

    # The paper names LaNAS, and its code has a cascade of classifiers.
    method: Literal["random", "cascade", "evolution"]
    # Failed evaluations count too. The paper's stages have 1,900, 100 and 3,000
    # evaluations.
    budget: Count
    # After so many unguided draws an unseen candidate in the wanted region is given up.
    # The code has 20,000.
    draws: Count
    initial: int = 0  # The cascade first learns from so many unguided evaluations; the code has 80.
    refit: int = (
        0  # The cascade is fitted again after so many evaluations; the code has 10.
    )
    encoding: Literal["", "index"] = (
        ""  # The cascade reads candidates so (lib.search.space).
    )
    population: int = 0  # In evolution so many candidates are alive, the youngest ones.
    tournament: int = 0  # So many of them compete to be the parent.
    # A candidate is scored by the task's first metric or, with "loss", by exp(-L): L is
    # the prediction loss (equation 3) on all held-out rows, so hardly two candidates
    # tie.
    score: Literal["", "loss"] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method == "evolution" and 2 * self.population > self.budget:
            most = f"evolution proposes candidates after the first {self.population} of them alone"
            fix = f"take a population of at most {self.budget // 2}, half of the budget"
            raise self.refused(
                "population", f"the budget is {self.budget}, and {most}: {fix}"
            )


@dataclass(frozen=True)
class Warmup(Option):
    """A Warmup is the settings of warm-up distillation (EfficientBERT, equations 1 to
    4)."""

    # Attention is matched by its "scores" before the softmax, as in the code.
    attention: Literal["scores"]
    # One projection of the student's states is "shared" by embedding and layers, as in
    # the code; the paper's text has one for each of the two.
    projection: Literal["shared"]
    # This is gamma, the weight of the prediction loss: 0 in pre-training, 1 in
    # fine-tuning.
    prediction: float = 0.0
    # Scores of at most -100, thus all of padded keys, are first set to 0, as in the
    # code.
    zero: bool = False
    mask: bool = False  # The means leave padding out; those of the code include it.
    # A regression learns the label, as in the code, not the teacher's score.
    gold: bool = False
    # In the prediction loss no answer begins or ends at [CLS], as in the code; the
    # paper is silent.
    hide_first: bool = False


@dataclass(frozen=True)
class Shared(Option):
    """A Shared says which parts of a supernet are trained (EfficientBERT, stage 3)."""

    # A part has at least and at most so many parameters, projection included. The code
    # has 15 and 16 million.
    # pyrefly: ignore[implicit-any-type-argument]  As at Train.select_by.
    window: tuple
    # Each layer draws from its list of (k, q). The code has all 16, and that of stage 2
    # once more.
    # pyrefly: ignore[implicit-any-type-argument]  As at Train.select_by.
    choices: tuple


# ---- The report on NAS pruning ----
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
    # This is t, which is not given. PrintedNumber sizes lie within 1 % of their target at
    # best.
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
