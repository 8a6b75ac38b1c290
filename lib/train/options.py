"""Every named option of a method, free of torch: one frozen dataclass each.

A default means "off", so that a field added later leaves the identity of earlier runs alone. The
values of a paper, and those of the small profiles, are written out in `lib/papers/`. The comment
above a field says what the paper leaves open.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from lib.model.options import MIX_NORMS, Count, Option, Positive, Share, ShareAbove0, ShareBelow1
from lib.model.options import Ghost as Ghost


# ---- Every run ----
@dataclass(frozen=True)
class Numerics(Option):
    """What decides the bits of a run beside its mathematics."""

    # "float32", or "bfloat16" for matrix products and, on a CPU, hidden states; weights stay
    # float32, and so does everything on a CPU without instructions for bfloat16
    dtype: Literal["float32", "bfloat16"]
    threads: Count  # of the CPU; sums are split by thread, so bits depend on it
    device: Literal["", "cuda"] = ""  # "" is the CPU; "cuda" a GPU, whose runs are others


@dataclass(frozen=True)
class Train(Option):
    """One pass of the training loop (AdamW, linear decay)."""

    epochs: Count
    batch: Count
    lr: Positive
    max_length: Count  # tokens; longer rows are cut
    clip: float = 0.0  # gradient norm; 0 is off
    warmup: Share = 0.0  # of the learning rate, as a fraction of all steps
    weight_decay: float = 0.0
    dropout: Share = 0.0  # hidden and attention
    pad_to: int = 0  # tokens every batch is padded to; 0 pads to its longest row
    # "best": keep the best development score (the papers' habit, optimistic)
    select: Literal["last", "best"] = "last"
    select_by: tuple = ()  # metrics whose mean "best" goes by; none is the task's first one
    eval_every: int = 0  # steps between evaluations when selecting; 0 is once an epoch
    spare_norms: bool = False  # no weight decay on biases and LayerNorms
    # masks from random bytes (rates in 256ths): cheaper on a CPU, see lib.train.lean
    byte_dropout: bool = False


@dataclass(frozen=True)
class Targets(Option):
    """What the prediction learns. GhostBERT's text says labels, its Table 8 says distillation."""

    kind: Literal["hard", "soft", "both"]  # labels, teacher logits, both
    # the soft loss is summed over classes (DynaBERT) instead of averaged (TinyBERT)
    sum_classes: bool = False
    temperature: float = 1.0


@dataclass(frozen=True)
class Span(Option):
    """How passages are cut into windows and answers out of them (SQuAD; BERT: 128, 64, 30)."""

    stride: Count  # tokens between the starts of two windows of a passage
    max_query: Count  # tokens of a question; the rest is cut off
    max_answer: Count  # tokens of an answer


# ---- GhostBERT ----
@dataclass(frozen=True)
class Importance(Option):
    """How heads and neurons are ranked (first-order Taylor; GhostBERT 2.3, Hou et al. 2020)."""

    # "held_out" training rows, or "dev" as the ancestor's code does (optimistic)
    split: Literal["held_out", "dev"]
    batch: Count
    max_length: Count
    # the ancestor never zeroes gradients: |running sum| instead of |batch gradient|
    cumulative: bool = False
    by: str = ""  # the module of lib.methods whose `scores` rank, instead of first-order Taylor


@dataclass(frozen=True)
class Distil(Option):
    """Matching a teacher's states (GhostBERT section 2.3, equation of L_distill), unit weights."""

    mask: bool = False  # leave padding out of the mean; the ancestors average over it


@dataclass(frozen=True)
class Augment(Option):
    """Replacing words of the training rows, as TinyBERT does; GhostBERT prints no setting."""

    # N of each sentence: attempts, not successes; TinyBERT's code has 10 to 30 by task
    tries: Count
    p: ShareAbove0  # chance of each word in a try; TinyBERT has 0.4
    candidates: Count  # K of each word; pieces of words are dropped afterwards; TinyBERT has 15
    # word vectors: the model's own "embeddings"; TinyBERT's code reads a file of GloVe, unnamed
    neighbours: Literal["embeddings"]


# ---- BERMo ----
@dataclass(frozen=True)
class Mix(Option):
    """A weighted sum of all layers in place of the last one (BERMo section 3.1)."""

    # read literally "layers", without affine; lib.model.mix says what cancels there
    norm: Literal[MIX_NORMS]
    # of the weights; "Xavier", uniform or normal is not said; ELMo's code has zeros
    init: Literal["xavier_uniform", "xavier_normal", "zeros"]
    lr: Positive  # of weights and scale; the paper has 1e-2, without weight decay
    dropout: ShareBelow1 = 0.0  # of the normalised states; the paper names no rate

    @property
    def surgery(self):
        """Return the operation that puts the mix into a model."""
        return {"op": "mix", "norm": self.norm, "init": self.init, "dropout": self.dropout}


@dataclass(frozen=True)
class Prune(Option):
    """Fine-pruning of the encoder's projections (Sanh et al. 2020; BERMo 2.3, Tables 6 to 11)."""

    # "movement" is printed as topK, "soft" as sigmoied_threshold
    method: Literal["magnitude", "movement", "soft", "l0"]
    # kept share; of "soft" the sigmoid's threshold; of "l0" only its ratio to the final one counts
    initial_threshold: Share
    final_threshold: Share
    warmup_steps: int  # w; that of the learning rate is Train.warmup
    initial_warmup: int = 0  # i, in units of w
    final_warmup: int = 0  # f, in units of w
    lr: float = 0.0  # of the scores (mask_scores_learning_rate), without weight decay
    init: Annotated[float, math.isfinite, "finite"] = 0.0  # of the scores (mask_scale)
    # weight of the penalty at the final threshold; with `target`, where its search starts
    final_lambda: float = 0.0
    # kept share that the penalty's weight is steered to; 0 is off, as in the paper
    target: Share = 0.0
    # warm-ups longer than the run: see lib.train.schedules.plan
    overlong: Literal["refuse", "jump"] = "refuse"

    @property
    def scored(self):
        return self.method != "magnitude"


# ---- EfficientBERT ----
@dataclass(frozen=True)
class Search(Option):
    """How a search proposes candidates and when it ends (section 3.2, lib.search.samplers)."""

    # the paper names LaNAS, its code has a cascade of classifiers
    method: Literal["random", "cascade", "evolution"]
    budget: Count  # evaluations, failed ones too; the paper's stages have 1,900, 100 and 3,000
    # unguided draws before an unseen candidate of the wanted region is given up; code 20,000
    draws: Count
    initial: int = 0  # of the cascade: unguided evaluations to learn from; code 80
    refit: int = 0  # evaluations from one fit to the next; code 10
    encoding: Literal["", "index"] = ""  # of candidates, as coded (lib.search.space)
    population: int = 0  # of evolution: candidates alive, the youngest
    tournament: int = 0  # of these that compete to be the parent


@dataclass(frozen=True)
class Warmup(Option):
    """Warm-up distillation (EfficientBERT section 3.2, equations 1 to 4); unit weights."""

    # what is matched: "scores" before the softmax, as in the code; the one reading that there is
    attention: Literal["scores"]
    # of the student's states: one "shared" by embedding and layers, as in the code, the one reading
    # that there is; the paper's text has one for each of the two
    projection: Literal["shared"]
    # gamma, weight of the prediction loss: 0 in pre-training, 1 in fine-tuning
    prediction: float = 0.0
    # scores of at most -100, thus all of padded keys, are 0 on both sides first; as the code
    zero: bool = False
    mask: bool = False  # leave padding out of the means; the code averages over it
    # a regression's target is the label, as in the code, not the teacher's score
    gold: bool = False
    # no answer begins or ends at [CLS] in the prediction loss; as the code, not in the paper
    hide_first: bool = False


@dataclass(frozen=True)
class Shared(Option):
    """A supernet of which each step trains one part (EfficientBERT, stage 3, as in the code)."""

    # least and most parameters of a part, projection included; 15 and 16 million in the code
    window: tuple
    # for each layer, the (k, q) to draw from; code: all 16, and that of stage 2 once more
    choices: tuple


# ---- The report on NAS pruning ----
@dataclass(frozen=True)
class Gates(Option):
    """Differentiable search over parts of an encoder (sections 5.1 to 5.6 and 7.2 to 7.9)."""

    # what is searched; the report ends at "heads" and "ffn"; "inputs" are those of a Perceptron
    regions: tuple[Literal["heads", "ffn", "embedding", "qkv", "inputs"], ...]
    ratio: ShareAbove0  # R*, of the whole model's FLOPs; the report has 0.1, 0.3, 0.5, 0.7
    share: ShareAbove0  # of the gates that may move in a step: 0.1 (4 layers); 1.0 is no control
    # that share in each "layer" and kind, or in "all"; the report's "region" is not defined
    quota: Literal["layer", "all"]
    # "jump" by 10; the report's "rescaled" is not defined
    update: Literal["jump"]
    weight: float  # lambda_cost: 1 (section 7.9)
    # t, not given; printed sizes lie within 1 % of their target at best
    tolerance: Annotated[float, lambda n: 0 < n < 1, "above 0 and below 1"]
    # ours: a final trim ends on the target; "end" is that alone, "steps" also stops within each
    # step where its target is reached
    landing: Literal["end", "steps"]
    # of the target: "additive" or "multiplicative", both corrected; "none" as in section 7.4
    schedule: Literal["none", "additive", "multiplicative"] = "none"
    # of an average of the alphas' gradients over steps; which optimiser they have is not said
    memory: ShareBelow1 = 0.0
    # a gradient below this share of its region's mean counts as zero, and its gate leaves first
    idle: ShareBelow1 = 0.0


@dataclass(frozen=True)
class Perceptron(Option):
    """The network of the digits check (section 7.1): dense layers with ReLU between them."""

    widths: tuple  # of the layers behind the inputs, the last being the 10 classes
    epochs: Count  # 15 for three layers, 20 for eleven
    batch: Count  # not given
    lr: Positive  # of Adam; not given
    noise: Positive  # standard deviation of the noise inputs, pixels being in [0, 1]; not given


@dataclass(frozen=True)
class Objective(Option):
    """What a search or a retraining learns from (section 7.3)."""

    # "prediction" (squared error of logits), "cross_entropy" (labels), "soft_cross_entropy" (of a
    # teacher, as TinyBERT's code: a regression learns its labels), "intermediate", or "two_stage"
    kind: Literal["prediction", "cross_entropy", "soft_cross_entropy", "intermediate", "two_stage"]
    # the intermediate loss has attention scores too: kept heads by their index, a guess
    attention: bool = False
    mask: bool = False  # leave padding out of the intermediate means; not said
