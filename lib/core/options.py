"""This module has the options of every method, each a frozen dataclass, free of torch.

A default means "off", so that a field that is added later leaves the identity of
earlier runs alone. The values of a paper, and those of the small profiles, are written
out in `lib/papers/`. The comment at a field also says what the paper leaves open."""

from dataclasses import dataclass
from typing import Literal

from lib.model.options import FACTOR as FACTOR
from lib.model.options import MIX_NORMS as MIX_NORMS
from lib.model.options import START as START
from lib.model.options import Count as Count
from lib.model.options import Ghost as Ghost
from lib.model.options import Option as Option
from lib.model.options import Positive as Positive
from lib.model.options import Share as Share
from lib.model.options import ShareAbove0 as ShareAbove0
from lib.model.options import ShareBelow1 as ShareBelow1


@dataclass(frozen=True)
class Numerics(Option):
    """A Numerics has the settings that change the rounding errors of a run, but not its
    mathematics."""

    # "bfloat16" is the type of matrix products and, on a CPU, of hidden states. Weights
    # stay in float32. A CPU without instructions for bfloat16 refuses it
    # (lib.core.processor).
    dtype: Literal["float32", "bfloat16"]
    # CPU threads of PyTorch. Each thread adds up a part of a sum, so their number
    # changes rounding errors.
    threads: Count
    # "" is the CPU, "cuda" a GPU. Runs on the two have different identities.
    device: Literal["", "cuda"] = ""


@dataclass(frozen=True)
class Train(Option):
    """A Train has the settings of one training by AdamW, with a linear decay of the
    learning rate."""

    epochs: Count
    batch: Count
    lr: Positive
    max_length: Count  # Tokens to which longer rows are cut.
    clip: float = 0.0  # Largest norm of the gradient; 0 does not clip.
    warmup: Share = 0.0  # Share of all steps in which the learning rate rises.
    weight_decay: float = 0.0
    dropout: Share = 0.0  # Dropout rate of hidden states and of attention weights.
    pad_to: int = 0  # Tokens to which every batch is padded; 0 pads to its longest row.
    # Which model is kept: after the "last" step, or with the "best" development score.
    # The papers do the latter, which is optimistic.
    select: Literal["last", "best"] = "last"
    # Metrics whose mean decides which model is "best"; empty is the task's first
    # metric.
    # pyrefly: ignore[implicit-any-type-argument]: an Option reads `tuple[X, ...]` as
    # choices X
    select_by: tuple = ()
    eval_every: int = 0  # Steps between evaluations for "best"; 0 is once an epoch.
    spare_norms: bool = False  # Whether biases and LayerNorms have no weight decay.
    # Learning rate of the weights of ghost kernels (lib.model.ghost); 0 is `lr`.
    taps: float = 0.0
    # Whether dropout masks come from random bytes, with rates in 256ths
    # (lib.train.lean): faster than PyTorch's masks.
    byte_dropout: bool = False


@dataclass(frozen=True)
class Targets(Option):
    """A Targets says what a finetuned model learns: the labels, a teacher's logits, or
    both.

    GhostBERT's text has labels, and its Table 8 a teacher."""

    # "hard" is the labels, "soft" the teacher's logits.
    kind: Literal["hard", "soft", "both"]
    # Whether the soft loss is summed over classes (DynaBERT) instead of averaged
    # (TinyBERT).
    sum_classes: bool = False
    temperature: float = 1.0


@dataclass(frozen=True)
class Span(Option):
    """A Span says how SQuAD's passages are cut into windows.

    BERT's script has stride 128, max_query 64 and max_answer 30."""

    stride: Count  # Tokens from the start of a window to the start of the next one.
    max_query: Count  # Tokens to which longer questions are cut.
    max_answer: Count  # Largest number of tokens of an answer.


@dataclass(frozen=True)
class Importance(Option):
    """An Importance says how heads and neurons are ranked (GhostBERT 2.3, Hou et al.
    2020)."""

    # Rows on which importance is measured. "dev" is what Hou et al.'s code does; it is
    # optimistic, as models are judged on the same rows.
    split: Literal["held_out", "dev"]
    batch: Count
    max_length: Count
    # Whether gradients are never zeroed, as in Hou et al.'s code: each batch then adds
    # |sum of all gradients so far| instead of |its own gradient|.
    cumulative: bool = False
    # Name of a module of lib.methods whose function `scores` ranks; "" is first-order
    # Taylor importance.
    by: str = ""


@dataclass(frozen=True)
class Distil(Option):
    """A Distil says how a teacher's states are matched (GhostBERT section 2.3,
    L_distill)."""

    # Whether the means of the losses leave out padded tokens; earlier papers' code
    # includes them.
    mask: bool = False


@dataclass(frozen=True)
class Augment(Option):
    """An Augment says how TinyBERT's augmentation replaces words; GhostBERT prints no
    setting."""

    # New sentences that are tried for each sentence. TinyBERT's code has 10 to 30 by
    # task.
    tries: Count
    # Probability that a word is replaced in a new sentence; TinyBERT has 0.4.
    p: ShareAbove0
    # Candidates for each word, pieces of words included; TinyBERT has 15.
    candidates: Count
    # Where similar words come from: the model's own "embeddings". TinyBERT's code reads
    # GloVe vectors instead.
    neighbours: Literal["embeddings"]
