"""Every named option of a method, free of torch: one frozen dataclass each.

A default means "off", so that a field added later leaves the identity of earlier runs alone. The
values of a paper, and those of the small profiles, are written out in `lib/papers/`. The comment
above a field says what the paper leaves open.
"""

from dataclasses import MISSING, dataclass, fields
from functools import cache

GHOST_KINDS = ("dwconv", "conv1d_s", "conv1d_f", "conv2d")
GHOST_POSITIONS = ("qk", "v", "o", "ffn1", "ffn2")
MIX_NORMS = ("layers", "layers_affine", "channels", "tokens", "none")
MIX_INITS = ("xavier_uniform", "xavier_normal", "zeros")
PRUNE_METHODS = ("magnitude", "movement", "soft", "l0")
GATE_REGIONS = ("heads", "ffn", "embedding", "qkv")
OBJECTIVES = ("prediction", "cross_entropy", "soft_cross_entropy", "intermediate", "two_stage")
SEARCH_METHODS = {  # and the options that each of them takes beside budget, draws and seconds
    "random": (),
    "cascade": ("initial", "refit", "encoding"),
    "evolution": ("population", "tournament"),
}


def one_of(owner, name, value, allowed):
    """Raises ValueError naming the option, its value and what is allowed."""
    if value not in allowed:
        raise ValueError(f"{owner}.{name} is {value!r}; allowed: {', '.join(map(repr, allowed))}")


def at_least(owner, name, value, low):
    """Raises ValueError naming the option, its value and the least one."""
    if not value >= low:
        raise ValueError(f"{owner}.{name} is {value!r}; it must be at least {low}")


KINDS = {int: int, float: (int, float), bool: bool, str: str}  # what a field of a type may hold
LARGEST = 10**9


@cache
def _fields(kind):
    return [(f.name, f.type, KINDS.get(f.type, object), f.default) for f in fields(kind)]


def settled(option):
    """The fields of an option that are not "off", as a plain dict: what a Spec hashes.

    Raises ValueError naming a field whose value is of another type, or no number that can be.
    """
    told = {}
    for name, kind, held, default in _fields(type(option)):
        value, number = getattr(option, name), kind in (int, float)
        other = not isinstance(value, held)
        if other or (number and (type(value) is bool or not 0 <= value <= LARGEST)):
            most = f" from 0 to {LARGEST:,}" * number
            raise _wrong(option, name, f"it must be {kind.__name__}{most}")
        if default is MISSING or value != default:
            told[name] = value
    return told


# ---- What the options below check themselves with ----
def _wrong(option, name, why):
    value = getattr(option, name)
    return ValueError(f"{type(option).__name__}.{name} is {value!r}; {why}")


RANGES = {
    "above 0": lambda x: x > 0,
    "above 0 and at most 1": lambda x: 0 < x <= 1,
    "above 0 and below 1": lambda x: 0 < x < 1,
    "at least 0 and below 1": lambda x: 0 <= x < 1,
    "between 0 and 1": lambda x: 0 <= x <= 1,
}


def _check(option, **rules):
    """Each named field keeps its rule: one of RANGES, the least number, or the values allowed, of
    a tuple for each item. JSON has lists where fields are tuples."""
    for f in fields(option):
        if f.type is tuple:
            object.__setattr__(option, f.name, tuple(getattr(option, f.name)))
    for name, rule in rules.items():
        value, owner = getattr(option, name), type(option).__name__
        if isinstance(rule, int):
            at_least(owner, name, value, rule)
        elif isinstance(rule, str) and not RANGES[rule](value):
            raise _wrong(option, name, f"it must be {rule}")
        elif not isinstance(rule, str):
            for each in value if isinstance(value, tuple) else (value,):
                one_of(owner, name, each, rule)


# ---- Every run ----
@dataclass(frozen=True)
class Numerics:
    """What decides the bits of a run beside its mathematics."""

    # "float32", or "bfloat16" for matrix products and, on a CPU, hidden states; weights stay
    # float32
    dtype: str
    threads: int  # of the CPU; sums are split by thread, so bits depend on it
    device: str = ""  # "" is the CPU; "cuda" a GPU, whose runs are others

    def __post_init__(self):
        _check(self, dtype=("float32", "bfloat16"), device=("", "cuda"), threads=1)


@dataclass(frozen=True)
class Train:
    """One pass of the training loop (AdamW, linear decay)."""

    epochs: int
    batch: int
    lr: float
    max_length: int  # tokens; longer rows are cut
    clip: float = 0.0  # gradient norm; 0 is off
    warmup: float = 0.0  # of the learning rate, as a fraction of all steps
    weight_decay: float = 0.0
    dropout: float = 0.0  # hidden and attention
    pad_to: int = 0  # tokens every batch is padded to; 0 pads to its longest row
    # "best": keep the best development score (the papers' habit, optimistic)
    select: str = "last"
    select_by: tuple = ()  # metrics whose mean "best" goes by; none is the task's first one
    eval_every: int = 0  # steps between evaluations when selecting; 0 is once an epoch
    spare_norms: bool = False  # no weight decay on biases and LayerNorms
    # masks from random bytes (rates in 256ths): cheaper on a CPU, see lib.train.dropout
    byte_dropout: bool = False

    def __post_init__(self):
        _check(self, epochs=1, batch=1, max_length=1, lr="above 0", select=("last", "best"))
        _check(self, warmup="between 0 and 1", dropout="between 0 and 1")
        if self.select_by and self.select != "best":
            raise ValueError(
                f"Train.select_by is {self.select_by} and Train.select {self.select!r}; "
                'it takes "best"'
            )
        if self.pad_to and self.pad_to < self.max_length:
            raise _wrong(self, "pad_to", f"it must be 0 or at least max_length ({self.max_length})")


@dataclass(frozen=True)
class Targets:
    """What the prediction learns. GhostBERT's text says labels, its Table 8 says distillation."""

    kind: str  # "hard" labels, "soft" teacher logits, "both"
    # the soft loss is summed over classes (DynaBERT) instead of averaged (TinyBERT)
    sum_classes: bool = False
    temperature: float = 1.0

    def __post_init__(self):
        _check(self, kind=("hard", "soft", "both"))


@dataclass(frozen=True)
class Span:
    """How passages are cut into windows and answers out of them (SQuAD; BERT: 128, 64, 30)."""

    stride: int  # tokens between the starts of two windows of a passage
    max_query: int  # tokens of a question; the rest is cut off
    max_answer: int  # tokens of an answer

    def __post_init__(self):
        _check(self, stride=1, max_query=1, max_answer=1)


@dataclass(frozen=True)
class MaskedLM:
    """Pre-training of an encoder (Devlin et al. 2019, section 3.1; there 0.15, 0.8, 0.1)."""

    share: float  # of the tokens that are predicted
    hidden: float  # of these, shown as [MASK]
    replaced: float  # of these, shown as a random word; the rest is shown as it is
    next_sentence: bool = False

    def __post_init__(self):
        _check(self, **dict.fromkeys(("share", "hidden", "replaced"), "between 0 and 1"))
        if not self.share or self.hidden + self.replaced > 1:
            raise ValueError(
                f"MaskedLM has share {self.share}, hidden {self.hidden}, replaced {self.replaced}: "
                "share must be in (0, 1], and hidden + replaced at most 1"
            )


# ---- GhostBERT ----
@dataclass(frozen=True)
class Importance:
    """How heads and neurons are ranked (first-order Taylor; GhostBERT 2.3, Hou et al. 2020)."""

    split: str  # "held_out" training rows, or "dev" as the ancestor's code does (optimistic)
    batch: int
    max_length: int
    # the ancestor never zeroes gradients: |running sum| instead of |batch gradient|
    cumulative: bool = False

    def __post_init__(self):
        _check(self, split=("held_out", "dev"))


@dataclass(frozen=True)
class Ghost:
    """A ghost module (GhostBERT sections 2.1, 2.2, 4.1, 4.2)."""

    kind: str  # convolution: see GHOST_KINDS
    positions: tuple  # where in each layer: see GHOST_POSITIONS
    kernel: int  # taps, odd
    features: int = 1  # F ghost features; above 1 every head has kernels of its own
    softmax: bool = False  # normalise the taps; the paper says so for dwconv alone
    relu: bool = False  # on each ghost feature, before it is added
    mask: bool = False  # zero the padded positions first; the paper does not say
    init: str = "xavier"  # of the raw kernel; the paper does not say ("uniform": equal taps)
    # or "inputs", all weights that an output of "conv1d_*" sums; the paper leaves both open
    softmax_over: str = "taps"
    # the one length that "conv1d_f" takes, its tokens being channels; 0 for other kinds
    tokens: int = 0

    def __post_init__(self):
        _check(self, kind=GHOST_KINDS, positions=GHOST_POSITIONS, features=1, kernel=1, tokens=0)
        _check(self, init=("xavier", "uniform"), softmax_over=("taps", "inputs"))
        if self.kernel % 2 == 0:
            raise _wrong(self, "kernel", "an even kernel has no centre tap: take an odd one")
        mixes = self.kind in ("conv1d_s", "conv1d_f")
        if self.softmax_over == "inputs" and not (self.softmax and mixes):
            raise ValueError(
                "Ghost.softmax_over is 'inputs'; that takes softmax, and a kind that mixes "
                "channels: 'conv1d_s' or 'conv1d_f'"
            )
        if self.tokens and self.kind != "conv1d_f":
            raise _wrong(self, "tokens", f"{self.kind!r} takes any length: leave it at 0")

    @property
    def whole(self):
        """What the cut before this ghost leaves whole: values "v", output projection "o" (4.2)."""
        return ("v", "o") if "qk" in self.positions else ("o",) if "v" in self.positions else ()


@dataclass(frozen=True)
class Distil:
    """Matching a teacher's states (GhostBERT section 2.3, equation of L_distill), unit weights."""

    mask: bool = False  # leave padding out of the mean; the ancestors average over it


@dataclass(frozen=True)
class Augment:
    """Replacing words of the training rows, as TinyBERT does; GhostBERT prints no setting."""

    tries: int  # N of each sentence: attempts, not successes; TinyBERT's code has 10 to 30 by task
    p: float  # chance of each word in a try; TinyBERT has 0.4
    candidates: int  # K of each word; pieces of words are dropped afterwards; TinyBERT has 15
    # word vectors: the model's own "embeddings"; TinyBERT's code reads a file of GloVe, unnamed
    neighbours: str

    def __post_init__(self):
        _check(self, tries=1, candidates=1, neighbours=("embeddings",), p="above 0 and at most 1")


# ---- BERMo ----
@dataclass(frozen=True)
class Mix:
    """A weighted sum of all layers in place of the last one (BERMo section 3.1)."""

    norm: str  # read literally "layers", without affine; lib.model.mix says what cancels there
    # of the weights; "Xavier", uniform or normal is not said; ELMo's code has zeros
    init: str
    lr: float  # of weights and scale; the paper has 1e-2, without weight decay
    dropout: float = 0.0  # of the normalised states; the paper names no rate

    def __post_init__(self):
        _check(self, norm=MIX_NORMS, init=MIX_INITS, lr="above 0", dropout="at least 0 and below 1")

    @property
    def surgery(self):
        """The operation that puts it into a model."""
        return {"op": "mix", "norm": self.norm, "init": self.init, "dropout": self.dropout}


@dataclass(frozen=True)
class Prune:
    """Fine-pruning of the encoder's projections (Sanh et al. 2020; BERMo 2.3, Tables 6 to 11)."""

    method: str  # "movement" is printed as topK, "soft" as sigmoied_threshold
    # kept share; of "soft" the sigmoid's threshold; of "l0" only its ratio to the final one counts
    initial_threshold: float
    final_threshold: float
    warmup_steps: int  # w; that of the learning rate is Train.warmup
    initial_warmup: int = 0  # i, in units of w
    final_warmup: int = 0  # f, in units of w
    lr: float = 0.0  # of the scores (mask_scores_learning_rate), without weight decay
    init: float = 0.0  # of the scores (mask_scale)
    # weight of the penalty at the final threshold; with `target`, where its search starts
    final_lambda: float = 0.0
    # kept share that the penalty's weight is steered to; 0 is off, as in the paper
    target: float = 0.0
    overlong: str = "refuse"  # warm-ups longer than the run: see lib.train.schedules.plan

    def __post_init__(self):
        _check(self, method=PRUNE_METHODS, overlong=("refuse", "jump"), target="between 0 and 1")
        _check(self, initial_threshold="between 0 and 1", final_threshold="between 0 and 1")
        _check(self, warmup_steps=0, initial_warmup=0, final_warmup=0, lr=0, final_lambda=0)
        if self.scored != (self.lr > 0):
            scores = "scores to learn: give them a rate above 0"
            has = scores if self.scored else "no scores: leave it at 0"
            raise _wrong(self, "lr", f"{self.method!r} has {has}")
        if self.penalised != (self.final_lambda > 0):
            penalty = "prunes by its penalty: give it a weight above 0"
            has = penalty if self.penalised else "has no penalty: leave it at 0"
            raise _wrong(self, "final_lambda", f"{self.method!r} {has}")
        if self.penalised and not self.final_threshold:
            raise ValueError(
                "Prune.final_threshold is 0; the penalty's weight is final_lambda * threshold / "
                "final_threshold: take one above 0"
            )
        if self.target and not self.penalised:
            why = f"{self.method!r} keeps exactly final_threshold: set that one"
            raise _wrong(self, "target", why)

    @property
    def scored(self):
        return self.method != "magnitude"

    @property
    def penalised(self):
        return self.method in ("soft", "l0")


# ---- EfficientBERT ----
@dataclass(frozen=True)
class Search:
    """How a search proposes candidates and when it ends (section 3.2, lib.search.samplers)."""

    method: str  # see SEARCH_METHODS; the paper names LaNAS, its code has a cascade of classifiers
    budget: int  # evaluations, failed ones too; the paper's stages have 1,900, 100 and 3,000
    # unguided draws before an unseen candidate of the wanted region is given up; code 20,000
    draws: int
    initial: int = 0  # unguided evaluations to learn from; code 80
    refit: int = 0  # evaluations from one fit to the next; code 10
    encoding: str = ""  # of candidates: "index" as coded (lib.search.space), the one that there is
    population: int = 0  # candidates alive in evolution, the youngest
    tournament: int = 0  # of these that compete to be the parent

    def __post_init__(self):
        _check(self, method=SEARCH_METHODS, budget=1, draws=1)
        takes = SEARCH_METHODS[self.method]
        lows = {"initial": 1, "refit": 1, "population": 1, "tournament": 1}
        _check(self, **{name: low if name in takes else 0 for name, low in lows.items()})
        if "encoding" in takes:
            _check(self, encoding=("index",))
        for name in (*lows, "encoding"):
            if getattr(self, name) and name not in takes:
                raise ValueError(
                    f"Search.{name} is {getattr(self, name)!r}, which {self.method!r} does not "
                    f"take: leave it out (it takes {', '.join(takes) or 'no option of samplers'})"
                )


@dataclass(frozen=True)
class Warmup:
    """Warm-up distillation (EfficientBERT section 3.2, equations 1 to 4); unit weights."""

    # what is matched: "scores" before the softmax, as in the code; the one reading that there is
    attention: str
    # of the student's states: one "shared" by embedding and layers, as in the code, the one reading
    # that there is; the paper's text has one for each of the two
    projection: str
    # gamma, weight of the prediction loss: 0 in pre-training, 1 in fine-tuning
    prediction: float = 0.0
    # scores of at most -100, thus all of padded keys, are 0 on both sides first; as the code
    zero: bool = False
    mask: bool = False  # leave padding out of the means; the code averages over it
    # a regression's target is the label, as in the code, not the teacher's score
    gold: bool = False
    # no answer begins or ends at [CLS] in the prediction loss; as the code, not in the paper
    hide_first: bool = False

    def __post_init__(self):
        _check(self, attention=("scores",), projection=("shared",), prediction=0)


@dataclass(frozen=True)
class Shared:
    """A supernet of which each step trains one part (EfficientBERT, stage 3, as in the code)."""

    # least and most parameters of a part, projection included; 15 and 16 million in the code
    window: tuple
    # for each layer, the (k, q) to draw from; code: all 16, and that of stage 2 once more
    choices: tuple

    def __post_init__(self):
        _check(self)
        choices = tuple(tuple(tuple(each) for each in layer) for layer in self.choices)
        object.__setattr__(self, "choices", choices)
        if not 0 <= self.window[0] <= self.window[1]:
            why = "give the least and the most parameters, in this order"
            raise _wrong(self, "window", why)
        if not all(self.choices):
            raise ValueError(
                "Shared.choices has a layer without any (k, q): give each layer at least one"
            )


# ---- The report on NAS pruning ----
@dataclass(frozen=True)
class Gates:
    """Differentiable search over parts of an encoder (sections 5.1 to 5.6 and 7.2 to 7.9)."""

    # what is searched; the report ends at "heads" and "ffn"; "inputs" are those of a Perceptron
    regions: tuple
    ratio: float  # R*, of the whole model's FLOPs; the report has 0.1, 0.3, 0.5, 0.7
    share: float  # of the gates that may move in a step: 0.1 (4 layers); 1.0 is no control
    # that share in each "layer" and kind, or in "all"; the report's "region" is not defined
    quota: str
    # "jump" by 10; the report's "rescaled" is not defined
    update: str
    weight: float  # lambda_cost: 1 (section 7.9)
    tolerance: float  # t, not given; printed sizes lie within 1 % of their target at best
    # ours: a final trim ends on the target; "end" is that alone, "steps" also stops within each
    # step where its target is reached
    landing: str
    # of the target: "additive" or "multiplicative", both corrected; "none" as in section 7.4
    schedule: str = "none"
    # of an average of the alphas' gradients over steps; which optimiser they have is not said
    memory: float = 0.0
    # a gradient below this share of its region's mean counts as zero, and its gate leaves first
    idle: float = 0.0

    def __post_init__(self):
        _check(self, regions=(*GATE_REGIONS, "inputs"), quota=("layer", "all"), update=("jump",))
        _check(self, schedule=("none", "additive", "multiplicative"), landing=("end", "steps"))
        names = set(self.regions)
        if not names or len(names) < len(self.regions) or {"heads", "qkv"} <= names:
            why = (
                "name at least one, each once, and not both 'heads' and 'qkv', which gate the same "
                "columns"
            )
            raise _wrong(self, "regions", why)
        _check(self, ratio="above 0 and at most 1", share="above 0 and at most 1", weight=0)
        _check(self, tolerance="above 0 and below 1", memory="at least 0 and below 1")
        _check(self, idle="at least 0 and below 1")


@dataclass(frozen=True)
class Perceptron:
    """The network of the digits check (section 7.1): dense layers with ReLU between them."""

    widths: tuple  # of the layers behind the inputs, the last being the 10 classes
    epochs: int  # 15 for three layers, 20 for eleven
    batch: int  # not given
    lr: float  # of Adam; not given
    noise: float  # standard deviation of the noise inputs, pixels being in [0, 1]; not given

    def __post_init__(self):
        _check(self, epochs=1, batch=1, lr="above 0", noise="above 0")
        if not self.widths or self.widths[-1] != 10:
            raise _wrong(self, "widths", "the last must be the 10 digits")


@dataclass(frozen=True)
class Objective:
    """What a search or a retraining learns from (section 7.3)."""

    # "prediction" (squared error of logits), "cross_entropy" (labels), "soft_cross_entropy" (of a
    # teacher, as TinyBERT's code: a regression learns its labels), "intermediate", or "two_stage"
    kind: str
    # the intermediate loss has attention scores too: kept heads by their index, a guess
    attention: bool = False
    mask: bool = False  # leave padding out of the intermediate means; not said

    def __post_init__(self):
        _check(self, kind=OBJECTIVES)
