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
