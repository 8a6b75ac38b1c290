"""This module has the options that several papers share, each group a frozen dataclass.

A field's default means "off". A run is identified by a hash of the fields that differ
from their defaults, so a field that is added later does not change the identity of
earlier runs. The values themselves are in `lib/papers/`. Docstrings of classes also
say what a paper leaves open."""

from dataclasses import dataclass
from typing import Literal

from lib.model.options import FACTOR as FACTOR
from lib.model.options import MIX_NORMS as MIX_NORMS
from lib.model.options import START as START
from lib.model.options import Count, Option, Positive, Share, ShareAbove0
from lib.model.options import Ghost as Ghost
from lib.model.options import LayerAndGateKind as LayerAndGateKind
from lib.model.options import ShareBelow1 as ShareBelow1
from lib.model.options import SurgeryOperation as SurgeryOperation


@dataclass(frozen=True)
class Numerics(Option):
    """A Numerics says with which dtype, CPU threads and device a model is computed.

    These settings of a training or measurement change rounding errors and speed, but
    not the mathematics. `device` is "" for the CPU. With "bfloat16" the matrix products
    have this type, while weights stay in float32."""

    # With "bfloat16" matrix products and, on a CPU, hidden states have this type;
    # weights stay in float32. "bfloat16" is refused on a CPU that has no instructions
    # for it.
    dtype: Literal["float32", "bfloat16"]
    # CPU threads of PyTorch. Each thread adds up a part of a sum, so their number
    # changes rounding errors.
    threads: Count
    # "" is the CPU, "cuda" a GPU. The device is part of a run's identity, so results of
    # a CPU and of a GPU are never mixed.
    device: Literal["", "cuda"] = ""


@dataclass(frozen=True)
class Train(Option):
    """A Train has the settings of one training by AdamW.

    The learning rate rises linearly in the warmup and then falls linearly, so that it
    would reach 0 one step after the last.

    batch: rows of a batch.
    max_length: tokens to which longer rows are cut.
    clip: the largest norm of the gradient; 0 does not clip.
    warmup: the share of all steps in which the learning rate rises.
    dropout: the dropout rate of hidden states and of attention weights.
    pad_to: tokens to which every batch is padded; 0 pads to the longest row of the
    batch.
    select: which model is saved and scored: that of the "last" step, or the one with
    the "best" score among the evaluations during training. The score is taken on
    held-out training rows where the step scores such rows, else on development rows.
    The reproduced papers select and report on the same development rows, which is
    optimistic.
    select_by: the metrics whose mean is the score for "best"; () takes the first metric
    of the task.
    eval_every: training steps between evaluations for "best"; 0 evaluates once an
    epoch.
    spare_norms: whether biases and LayerNorm weights are exempt from weight decay.
    taps: the learning rate of the weights ("taps") of the convolution kernels in
    GhostBERT's ghost modules; 0 takes `lr`.
    byte_dropout: whether dropout masks are drawn as random bytes, which is faster than
    PyTorch's masks and rounds rates to 256ths."""

    epochs: Count
    batch: Count
    lr: Positive
    max_length: Count
    clip: float = 0.0
    warmup: Share = 0.0
    weight_decay: float = 0.0
    dropout: Share = 0.0
    pad_to: int = 0
    select: Literal["last", "best"] = "last"
    # The type is a bare tuple, since the check of an Option takes the X of
    # `tuple[X, ...]` for a Literal of all allowed values.
    # pyrefly: ignore[implicit-any-type-argument]
    select_by: tuple = ()
    eval_every: int = 0
    spare_norms: bool = False
    taps: float = 0.0
    byte_dropout: bool = False


@dataclass(frozen=True)
class Targets(Option):
    """A Targets says what a fine-tuned model learns from: labels, a teacher, or both.

    kind: what the model learns from: the labels ("hard"), the teacher's logits
    ("soft"), or labels and logits ("both").
    sum_classes: whether the cross entropy with the teacher is summed over classes, as
    in DynaBERT's code, instead of averaged over them, as in TinyBERT's.
    temperature: the divisor of both models' logits before the softmax."""

    kind: Literal["hard", "soft", "both"]
    sum_classes: bool = False
    temperature: float = 1.0


@dataclass(frozen=True)
class Span(Option):
    """A Span says how SQuAD's passages are cut into overlapping windows of tokens.

    Passages may be longer than the model's input. BERT's script has stride 128,
    max_query 64 and max_answer 30.

    stride: tokens from the start of a window to the start of the next one.
    max_query: tokens to which longer questions are cut.
    max_answer: the largest number of tokens of a predicted answer."""

    stride: Count
    max_query: Count
    max_answer: Count


@dataclass(frozen=True)
class Importance(Option):
    """An Importance says how attention heads and FFN neurons are ranked before pruning.

    The least important ones are pruned (GhostBERT section 2.3, Hou et al. 2020).

    split: the rows on which importance is measured: training rows that are "held_out",
    or the development rows ("dev"), as in the code of Hou et al. The latter is
    optimistic, as models are scored on the same rows.
    batch: rows of a batch.
    max_length: tokens to which longer rows are cut.
    cumulative: whether gradients are never set to zero between batches, as in Hou et
    al.'s code. Each batch then adds the absolute value of the sum of all gradients so
    far, instead of the absolute value of its own gradient.
    by: "" for the first-order Taylor importance that the step itself has, or the name
    of a module in lib/methods, such as "taylor_importance" (that of Torch-Pruning). The
    function `compute_importance_scores` of the module then ranks heads and neurons.
    version: the number `version` that `plan_pruning` of that module returns. The step
    does not read it. Who changes the module raises it: the ranking then has another
    identity, and is run again."""

    split: Literal["held_out", "dev"]
    batch: Count
    max_length: Count
    cumulative: bool = False
    by: str = ""
    version: int = 0


@dataclass(frozen=True)
class Distil(Option):
    """A Distil has the setting of a training that matches a teacher's hidden states.

    The loss is GhostBERT's L_distill (section 2.3), the mean squared errors between the
    hidden states of student and teacher.

    mask: whether losses are averaged over real tokens only. Without it padded tokens
    count too, as in the public code of TinyBERT and DynaBERT."""

    mask: bool = False


@dataclass(frozen=True)
class Augment(Option):
    """An Augment has the settings by which training sentences are augmented.

    TinyBERT's data augmentation makes new sentences by replacing words with similar
    ones. GhostBERT uses it too, but prints no settings.

    tries: new sentences that are drawn for each training sentence; duplicates are
    dropped. TinyBERT's code draws 10 to 30, depending on the task.
    p: the probability that a word is replaced in a new sentence; TinyBERT has 0.4.
    candidates: the number of tokens of the vocabulary from which the replacement of a
    word is drawn: the likeliest ones, or for a word of several word pieces the nearest
    whole words. Of the likeliest, tokens that only continue a word, such as "##ing",
    are then dropped. TinyBERT has 15.
    neighbours: the vectors whose cosines say which words are nearest. The only choice
    is the token "embeddings" of a pretrained model. TinyBERT's code reads GloVe vectors
    instead."""

    tries: Count
    p: ShareAbove0
    candidates: Count
    neighbours: Literal["embeddings"]
