"""Every named option of a method, free of torch: one frozen dataclass each.

A default only ever means "off", so that a field added later leaves the identity of earlier runs alone; the
values of a paper, and those chosen for the small profiles, are written out in `lib/papers/`. The comment beside
a field says what the paper leaves open.
"""

from dataclasses import MISSING, dataclass, fields

GHOST_KINDS = ("dwconv", "conv1d_s", "conv1d_f", "conv2d")
GHOST_POSITIONS = ("qk", "v", "o", "ffn1", "ffn2")


def one_of(owner, name, value, allowed):
    """Raises ValueError naming the option, its value and what is allowed."""
    if value not in allowed:
        raise ValueError(f"{owner}.{name} is {value!r}; allowed: {', '.join(map(repr, allowed))}")


def at_least(owner, name, value, low):
    if not value >= low:
        raise ValueError(f"{owner}.{name} is {value!r}; it must be at least {low}")


def settled(option):
    """The fields of an option that are not "off", as a plain dict: what a Spec hashes."""
    return {f.name: getattr(option, f.name) for f in fields(option)
            if f.default is MISSING or getattr(option, f.name) != f.default}


@dataclass(frozen=True)
class Numerics:
    """What decides the bits of a run beside its mathematics."""
    dtype: str    # "float32", or "bfloat16" for autocast matrix products with float32 weights
    threads: int  # of the CPU; sums are split by thread, so bits depend on it

    def __post_init__(self):
        one_of("Numerics", "dtype", self.dtype, ("float32", "bfloat16"))
        at_least("Numerics", "threads", self.threads, 1)


@dataclass(frozen=True)
class Train:
    """One pass of the training loop (AdamW, linear decay)."""
    epochs: int
    batch: int
    lr: float
    max_length: int            # tokens; longer rows are cut
    clip: float = 0.0          # gradient norm; 0 is off
    warmup: float = 0.0        # fraction of all steps
    weight_decay: float = 0.0
    dropout: float = 0.0       # hidden and attention
    pad_to: int = 0            # tokens every batch is padded to; 0 pads to its longest row
    select: str = "last"       # "best": keep the best development score (the papers' habit, optimistic)
    eval_every: int = 0        # steps between evaluations when selecting; 0 is once an epoch
    spare_norms: bool = False  # no weight decay on biases and LayerNorms
    byte_dropout: bool = False  # masks from random bytes (rates in 256ths): cheaper on a CPU, see lib.train.dropout

    def __post_init__(self):
        for name in ("epochs", "batch", "max_length"):
            at_least("Train", name, getattr(self, name), 1)
        if not self.lr > 0:
            raise ValueError(f"Train.lr is {self.lr!r}; it must be above 0")
        one_of("Train", "select", self.select, ("last", "best"))
        if self.pad_to and self.pad_to < self.max_length:
            raise ValueError(f"Train.pad_to is {self.pad_to}; it must be 0 or at least max_length ({self.max_length})")


@dataclass(frozen=True)
class MaskedLM:
    """Pre-training of an encoder (Devlin et al. 2019, section 3.1; there 0.15, 0.8, 0.1)."""
    share: float               # of the tokens that are predicted
    hidden: float              # of these, shown as [MASK]
    replaced: float            # of these, shown as a random word; the rest is shown as it is
    next_sentence: bool = False

    def __post_init__(self):
        if not (0 < self.share <= 1 and 0 <= self.hidden and 0 <= self.replaced and self.hidden + self.replaced <= 1):
            raise ValueError(f"MaskedLM has share {self.share}, hidden {self.hidden}, replaced {self.replaced}: share must "
                             "be in (0, 1], and hidden + replaced at most 1")


@dataclass(frozen=True)
class Importance:
    """How heads and neurons are ranked (first-order Taylor; GhostBERT section 2.3 after Hou et al. 2020)."""
    split: str                 # "held_out" training rows, or "dev" as the ancestor's code does (optimistic)
    batch: int
    max_length: int
    cumulative: bool = False   # the ancestor never zeroes gradients: |running sum| instead of |batch gradient|

    def __post_init__(self):
        one_of("Importance", "split", self.split, ("held_out", "dev"))


@dataclass(frozen=True)
class Ghost:
    """A ghost module (GhostBERT sections 2.1, 2.2, 4.1, 4.2)."""
    kind: str                  # convolution: see GHOST_KINDS
    positions: tuple           # where in each layer: see GHOST_POSITIONS
    kernel: int                # taps, odd
    features: int = 1          # F ghost features; above 1 every head has kernels of its own
    softmax: bool = False      # normalise the taps; the paper says so for dwconv alone
    relu: bool = False         # on each ghost feature, before it is added
    mask: bool = False         # zero the padded positions first; the paper does not say
    init: str = "xavier"       # of the raw kernel; the paper does not say ("uniform": equal taps)
    softmax_over: str = "taps"  # or "inputs", all weights that an output of "conv1d_*" sums; the paper leaves both open
    tokens: int = 0            # the one length that "conv1d_f" takes, its tokens being channels; 0 for other kinds

    def __post_init__(self):
        object.__setattr__(self, "positions", tuple(self.positions))
        one_of("Ghost", "kind", self.kind, GHOST_KINDS)
        for position in self.positions:
            one_of("Ghost", "positions", position, GHOST_POSITIONS)
        at_least("Ghost", "features", self.features, 1)
        at_least("Ghost", "kernel", self.kernel, 1)
        if self.kernel % 2 == 0:
            raise ValueError(f"Ghost.kernel is {self.kernel}; an even kernel has no centre tap: take an odd one")
        one_of("Ghost", "init", self.init, ("xavier", "uniform"))
        one_of("Ghost", "softmax_over", self.softmax_over, ("taps", "inputs"))
        if self.softmax_over == "inputs" and not (self.softmax and self.kind in ("conv1d_s", "conv1d_f")):
            raise ValueError("Ghost.softmax_over is 'inputs'; that takes softmax, and a kind that mixes channels: "
                             "'conv1d_s' or 'conv1d_f'")
        at_least("Ghost", "tokens", self.tokens, 0)
        if self.tokens and self.kind != "conv1d_f":
            raise ValueError(f"Ghost.tokens is {self.tokens}; {self.kind!r} takes any length: leave it at 0")

    @property
    def whole(self):
        """What the cut before this ghost leaves whole, values ("v") and output projection ("o"): section 4.2."""
        return ("v", "o") if "qk" in self.positions else ("o",) if "v" in self.positions else ()


@dataclass(frozen=True)
class Distil:
    """Matching a teacher's states (GhostBERT section 2.3, equation of L_distill), unit weights."""
    mask: bool = False         # leave padding out of the mean; the ancestors average over it
    norm: str = "post"         # states after ("post") or before ("pre") their LayerNorm; the paper does not say

    def __post_init__(self):
        one_of("Distil", "norm", self.norm, ("post", "pre"))


@dataclass(frozen=True)
class Targets:
    """What the prediction is trained on. The text of GhostBERT says labels, its Table 8 says distillation."""
    kind: str                  # "hard" labels, "soft" teacher logits, "both"
    sum_classes: bool = False  # soft loss summed over classes (DynaBERT) instead of averaged (TinyBERT)
    temperature: float = 1.0

    def __post_init__(self):
        one_of("Targets", "kind", self.kind, ("hard", "soft", "both"))


@dataclass(frozen=True)
class Augment:
    """Replacing words of the training rows, after TinyBERT's code; GhostBERT names it and prints no setting."""
    tries: int                 # N of each sentence: attempts, not successes; TinyBERT's code has 10 to 30 by task
    p: float                   # chance of each word in a try; TinyBERT has 0.4
    candidates: int            # K of each word, pieces of words among them dropped afterwards; TinyBERT has 15
    neighbours: str            # word vectors: "glove", of which no file is named, or the model's own "embeddings"
    in_place_slip: bool = False  # TinyBERT's code edits a pair in place: B's variants stand beside the last of A

    def __post_init__(self):
        at_least("Augment", "tries", self.tries, 1)
        at_least("Augment", "candidates", self.candidates, 1)
        if not 0 < self.p <= 1:
            raise ValueError(f"Augment.p is {self.p!r}; it must be above 0 and at most 1")
        one_of("Augment", "neighbours", self.neighbours, ("glove", "embeddings"))


@dataclass(frozen=True)
class Span:
    """How passages are cut into windows and answers out of them (SQuAD; BERT's script has 128, 64 and 30)."""
    stride: int                # tokens between the starts of two windows of a passage
    max_query: int             # tokens of a question; the rest is cut off
    max_answer: int            # tokens of an answer

    def __post_init__(self):
        for name in ("stride", "max_query", "max_answer"):
            at_least("Span", name, getattr(self, name), 1)
