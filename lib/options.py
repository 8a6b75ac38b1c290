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
    return {
        f.name: getattr(option, f.name)
        for f in fields(option)
        if f.default is MISSING or getattr(option, f.name) != f.default
    }


@dataclass(frozen=True)
class Numerics:
    """What decides the bits of a run beside its mathematics."""

    dtype: str  # "float32", or "bfloat16" for matrix products and, on a CPU, hidden states, with float32 weights
    threads: int  # of the CPU; sums are split by thread, so bits depend on it
    device: str = ""  # "" is the CPU; "cuda" a GPU, whose runs are others

    def __post_init__(self):
        one_of("Numerics", "dtype", self.dtype, ("float32", "bfloat16"))
        one_of("Numerics", "device", self.device, ("", "cuda"))
        at_least("Numerics", "threads", self.threads, 1)


@dataclass(frozen=True)
class Train:
    """One pass of the training loop (AdamW, linear decay)."""

    epochs: int
    batch: int
    lr: float
    max_length: int  # tokens; longer rows are cut
    clip: float = 0.0  # gradient norm; 0 is off
    warmup: float = 0.0  # fraction of all steps
    weight_decay: float = 0.0
    dropout: float = 0.0  # hidden and attention
    pad_to: int = 0  # tokens every batch is padded to; 0 pads to its longest row
    select: str = "last"  # "best": keep the best development score (the papers' habit, optimistic)
    select_by: tuple = ()  # metrics whose mean "best" goes by; none is the task's first one
    eval_every: int = 0  # steps between evaluations when selecting; 0 is once an epoch
    spare_norms: bool = False  # no weight decay on biases and LayerNorms
    byte_dropout: bool = (
        False  # masks from random bytes (rates in 256ths): cheaper on a CPU, see lib.train.dropout
    )

    def __post_init__(self):
        for name in ("epochs", "batch", "max_length"):
            at_least("Train", name, getattr(self, name), 1)
        if not self.lr > 0:
            raise ValueError(f"Train.lr is {self.lr!r}; it must be above 0")
        one_of("Train", "select", self.select, ("last", "best"))
        object.__setattr__(self, "select_by", tuple(self.select_by))
        if self.select_by and self.select != "best":
            raise ValueError(
                f'Train.select_by is {self.select_by} and Train.select {self.select!r}; it takes "best"'
            )
        if self.pad_to and self.pad_to < self.max_length:
            raise ValueError(
                f"Train.pad_to is {self.pad_to}; it must be 0 or at least max_length ({self.max_length})"
            )


@dataclass(frozen=True)
class MaskedLM:
    """Pre-training of an encoder (Devlin et al. 2019, section 3.1; there 0.15, 0.8, 0.1)."""

    share: float  # of the tokens that are predicted
    hidden: float  # of these, shown as [MASK]
    replaced: float  # of these, shown as a random word; the rest is shown as it is
    next_sentence: bool = False

    def __post_init__(self):
        if not (
            0 < self.share <= 1
            and 0 <= self.hidden
            and 0 <= self.replaced
            and self.hidden + self.replaced <= 1
        ):
            raise ValueError(
                f"MaskedLM has share {self.share}, hidden {self.hidden}, replaced {self.replaced}: share must "
                "be in (0, 1], and hidden + replaced at most 1"
            )


@dataclass(frozen=True)
class Importance:
    """How heads and neurons are ranked (first-order Taylor; GhostBERT section 2.3 after Hou et al. 2020)."""

    split: str  # "held_out" training rows, or "dev" as the ancestor's code does (optimistic)
    batch: int
    max_length: int
    cumulative: bool = (
        False  # the ancestor never zeroes gradients: |running sum| instead of |batch gradient|
    )

    def __post_init__(self):
        one_of("Importance", "split", self.split, ("held_out", "dev"))


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
    softmax_over: str = "taps"  # or "inputs", all weights that an output of "conv1d_*" sums; the paper leaves both open
    tokens: int = (
        0  # the one length that "conv1d_f" takes, its tokens being channels; 0 for other kinds
    )

    def __post_init__(self):
        object.__setattr__(self, "positions", tuple(self.positions))
        one_of("Ghost", "kind", self.kind, GHOST_KINDS)
        for position in self.positions:
            one_of("Ghost", "positions", position, GHOST_POSITIONS)
        at_least("Ghost", "features", self.features, 1)
        at_least("Ghost", "kernel", self.kernel, 1)
        if self.kernel % 2 == 0:
            raise ValueError(
                f"Ghost.kernel is {self.kernel}; an even kernel has no centre tap: take an odd one"
            )
        one_of("Ghost", "init", self.init, ("xavier", "uniform"))
        one_of("Ghost", "softmax_over", self.softmax_over, ("taps", "inputs"))
        if self.softmax_over == "inputs" and not (
            self.softmax and self.kind in ("conv1d_s", "conv1d_f")
        ):
            raise ValueError(
                "Ghost.softmax_over is 'inputs'; that takes softmax, and a kind that mixes channels: "
                "'conv1d_s' or 'conv1d_f'"
            )
        at_least("Ghost", "tokens", self.tokens, 0)
        if self.tokens and self.kind != "conv1d_f":
            raise ValueError(
                f"Ghost.tokens is {self.tokens}; {self.kind!r} takes any length: leave it at 0"
            )

    @property
    def whole(self):
        """What the cut before this ghost leaves whole, values ("v") and output projection ("o"): section 4.2."""
        return ("v", "o") if "qk" in self.positions else ("o",) if "v" in self.positions else ()


@dataclass(frozen=True)
class Distil:
    """Matching a teacher's states (GhostBERT section 2.3, equation of L_distill), unit weights."""

    mask: bool = False  # leave padding out of the mean; the ancestors average over it
    norm: str = (
        "post"  # states after ("post") or before ("pre") their LayerNorm; the paper does not say
    )

    def __post_init__(self):
        one_of("Distil", "norm", self.norm, ("post", "pre"))


@dataclass(frozen=True)
class Targets:
    """What the prediction is trained on. The text of GhostBERT says labels, its Table 8 says distillation."""

    kind: str  # "hard" labels, "soft" teacher logits, "both"
    sum_classes: bool = (
        False  # soft loss summed over classes (DynaBERT) instead of averaged (TinyBERT)
    )
    temperature: float = 1.0

    def __post_init__(self):
        one_of("Targets", "kind", self.kind, ("hard", "soft", "both"))


@dataclass(frozen=True)
class Augment:
    """Replacing words of the training rows, after TinyBERT's code; GhostBERT names it and prints no setting."""

    tries: int  # N of each sentence: attempts, not successes; TinyBERT's code has 10 to 30 by task
    p: float  # chance of each word in a try; TinyBERT has 0.4
    candidates: (
        int  # K of each word, pieces of words among them dropped afterwards; TinyBERT has 15
    )
    neighbours: (
        str  # word vectors: "glove", of which no file is named, or the model's own "embeddings"
    )
    in_place_slip: bool = (
        False  # TinyBERT's code edits a pair in place: B's variants stand beside the last of A
    )

    def __post_init__(self):
        at_least("Augment", "tries", self.tries, 1)
        at_least("Augment", "candidates", self.candidates, 1)
        if not 0 < self.p <= 1:
            raise ValueError(f"Augment.p is {self.p!r}; it must be above 0 and at most 1")
        one_of("Augment", "neighbours", self.neighbours, ("glove", "embeddings"))


@dataclass(frozen=True)
class Span:
    """How passages are cut into windows and answers out of them (SQuAD; BERT's script has 128, 64 and 30)."""

    stride: int  # tokens between the starts of two windows of a passage
    max_query: int  # tokens of a question; the rest is cut off
    max_answer: int  # tokens of an answer

    def __post_init__(self):
        for name in ("stride", "max_query", "max_answer"):
            at_least("Span", name, getattr(self, name), 1)


MIX_NORMS = ("layers", "layers_affine", "channels", "tokens", "none")
MIX_INITS = ("xavier_uniform", "xavier_normal", "zeros")


@dataclass(frozen=True)
class Mix:
    """A weighted sum of all layers in place of the last one (BERMo section 3.1)."""

    norm: str  # read literally "layers", without affine; see lib.model.mix for what cancels there
    init: str  # of the weights; "Xavier", uniform or normal is not said; ELMo's code has zeros
    lr: float  # of weights and scale; the paper has 1e-2, without weight decay
    dropout: float = 0.0  # of the normalised states; the paper names no rate

    def __post_init__(self):
        one_of("Mix", "norm", self.norm, MIX_NORMS)
        one_of("Mix", "init", self.init, MIX_INITS)
        if not self.lr > 0:
            raise ValueError(f"Mix.lr is {self.lr!r}; it must be above 0")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"Mix.dropout is {self.dropout!r}; it must be at least 0 and below 1")

    @property
    def surgery(self):
        """The operation that puts it into a model."""
        return {"op": "mix", "norm": self.norm, "init": self.init, "dropout": self.dropout}


PRUNE_METHODS = ("magnitude", "movement", "soft", "l0")


@dataclass(frozen=True)
class Prune:
    """Fine-pruning of the encoder's projections (Sanh et al. 2020; BERMo section 2.3, names as in its Tables 6 to 11)."""

    method: str  # "movement" is printed as topK, "soft" as sigmoied_threshold
    initial_threshold: float  # kept share; of "soft" the sigmoid's threshold; of "l0" only its ratio to the final one
    final_threshold: float
    warmup_steps: int  # w; the warm-up of the learning rate is Train.warmup
    initial_warmup: int = 0  # i, in units of w
    final_warmup: int = 0  # f, in units of w
    lr: float = 0.0  # of the scores (mask_scores_learning_rate), without weight decay
    init: float = 0.0  # of the scores (mask_scale)
    final_lambda: float = (
        0.0  # weight of the penalty at the final threshold; with `target`, where the search starts
    )
    target: float = (
        0.0  # kept share that the penalty's weight is steered to; 0 is off, as in the paper
    )
    scope: str = "local"  # top-k in each matrix, or "global" over all of them
    refresh: int = 0  # steps between two selections of "global"; the public code has 25
    block: tuple = (1, 1)  # rows and columns that share a score
    overlong: str = "refuse"  # warm-ups longer than the run: see lib.train.schedules.plan

    def __post_init__(self):
        object.__setattr__(self, "block", tuple(self.block))
        one_of("Prune", "method", self.method, PRUNE_METHODS)
        one_of("Prune", "scope", self.scope, ("local", "global"))
        one_of("Prune", "overlong", self.overlong, ("refuse", "rescale", "jump"))
        for name in ("initial_threshold", "final_threshold", "target"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(
                    f"Prune.{name} is {getattr(self, name)!r}; it must be between 0 and 1"
                )
        for name in (
            "warmup_steps",
            "initial_warmup",
            "final_warmup",
            "lr",
            "final_lambda",
            "refresh",
        ):
            at_least("Prune", name, getattr(self, name), 0)
        if len(self.block) != 2 or not all(isinstance(n, int) and n >= 1 for n in self.block):
            raise ValueError(
                f"Prune.block is {self.block!r}; it must be two whole numbers from 1: rows and columns"
            )
        if self.scored != (self.lr > 0):
            raise ValueError(
                f"Prune.lr is {self.lr!r}; {self.method!r} has "
                + (
                    "scores to learn: give them a rate above 0"
                    if self.scored
                    else "no scores: leave it at 0"
                )
            )
        if self.penalised != (self.final_lambda > 0):
            raise ValueError(
                f"Prune.final_lambda is {self.final_lambda!r}; {self.method!r} "
                + (
                    "prunes by its penalty: give it a weight above 0"
                    if self.penalised
                    else "has no penalty: leave it at 0"
                )
            )
        if self.penalised and not self.final_threshold:
            raise ValueError(
                "Prune.final_threshold is 0; the penalty's weight is final_lambda * threshold / final_threshold: "
                "take one above 0"
            )
        if self.target and not self.penalised:
            raise ValueError(
                f"Prune.target is {self.target!r}; {self.method!r} keeps exactly final_threshold: set that one"
            )
        if (self.scope == "global") != (self.refresh > 0):
            raise ValueError(
                f"Prune.refresh is {self.refresh!r} and Prune.scope {self.scope!r}; a global selection is renewed "
                "every `refresh` steps, from 1, a local one at every step: leave it at 0"
            )
        if self.penalised and self.scope == "global":
            raise ValueError(
                f"Prune.scope is 'global'; {self.method!r} compares each score with a constant: leave it 'local'"
            )

    @property
    def scored(self):
        return self.method != "magnitude"

    @property
    def penalised(self):
        return self.method in ("soft", "l0")


SEARCH_METHODS = {  # and the options each of them takes beside budget, draws and seconds
    "random": (),
    "cascade": ("initial", "refit", "encoding"),
    "lanas": ("initial", "refit", "encoding", "height", "cp"),
    "evolution": ("population", "tournament"),
}
ENCODINGS = ("index", "onehot")


@dataclass(frozen=True)
class Search:
    """How a search proposes candidates and when it ends (EfficientBERT section 3.2, lib.search.samplers)."""

    method: str  # see SEARCH_METHODS; the paper names LaNAS, its code has a cascade of classifiers
    budget: int  # evaluations, failed ones too; the paper's stages have 1,900, 100 and 3,000
    draws: int  # unguided draws before an unseen candidate of the wanted region is given up; code 20,000
    initial: int = 0  # unguided evaluations to learn from; code 80, LaNAS's own 10
    refit: int = 0  # evaluations from one fit to the next; code 10, LaNAS's own 20
    encoding: str = ""  # of candidates: "index" as coded, or "onehot" (lib.search.space)
    height: int = 0  # levels of LaNAS's tree, leaves too; its own 5
    cp: float = 0.0  # weight of LaNAS's exploration; its own 0.1, for scores from 0 to 1
    population: int = 0  # candidates alive in evolution, the youngest
    tournament: int = 0  # of these that compete to be the parent
    seconds: float = 0.0  # of evaluation after which no other is begun; 0 is no limit

    def __post_init__(self):
        one_of("Search", "method", self.method, SEARCH_METHODS)
        takes = SEARCH_METHODS[self.method]
        for name, low in (("budget", 1), ("draws", 1), ("seconds", 0), ("cp", 0)):
            at_least("Search", name, getattr(self, name), low)
        for name, low in (
            ("initial", 1),
            ("refit", 1),
            ("height", 2),
            ("population", 1),
            ("tournament", 1),
        ):
            at_least("Search", name, getattr(self, name), low if name in takes else 0)
        if "encoding" in takes:
            one_of("Search", "encoding", self.encoding, ENCODINGS)
        foreign = [
            name
            for name in ("initial", "refit", "encoding", "height", "cp", "population", "tournament")
            if getattr(self, name) and name not in takes
        ]
        if foreign:
            raise ValueError(
                f"Search.{foreign[0]} is {getattr(self, foreign[0])!r}, which {self.method!r} does not take: "
                f"leave it out (it takes {', '.join(takes) or 'none of the sampler options'})"
            )


WARMUP_ATTENTION = ("scores", "probabilities", "none")
WARMUP_PROJECTION = ("shared", "separate", "layers")


@dataclass(frozen=True)
class Warmup:
    """Warm-up distillation (EfficientBERT section 3.2, equations 1 to 4); unit weights."""

    attention: str  # matched "scores" before the softmax, as the code has it, "probabilities" after it, or "none"
    projection: str  # of the student's states: one "shared" by embedding and layers, as the code has it; "separate"
    #                            for embedding and layers, as the paper says; or one each for embedding and "layers"
    prediction: float = (
        0.0  # gamma, weight of the prediction loss: 0 in pre-training, 1 in fine-tuning
    )
    zero: bool = False  # scores of at most -100, thus all of padded keys, are 0 on both sides first; as the code
    mask: bool = False  # leave padding out of the means; the code averages over it
    gold: bool = (
        False  # a regression's target is the label, as in the code, not the teacher's score
    )
    sum_classes: bool = (
        False  # prediction loss summed over classes, or over an answer's places; the code averages
    )
    hide_first: bool = False  # no answer begins or ends at [CLS] in the prediction loss; as the code, not in the paper

    def __post_init__(self):
        one_of("Warmup", "attention", self.attention, WARMUP_ATTENTION)
        one_of("Warmup", "projection", self.projection, WARMUP_PROJECTION)
        at_least("Warmup", "prediction", self.prediction, 0)
        if self.zero and self.attention != "scores":
            raise ValueError(
                f"Warmup.zero is on and attention is {self.attention!r}: it is about scores, switch it off"
            )


@dataclass(frozen=True)
class Shared:
    """A supernet of which each step trains one part (EfficientBERT section 3.2, stage 3; what the code does)."""

    window: tuple  # least and most parameters of a part, projection included; 15 and 16 million in the code
    choices: tuple  # for each layer, the (k, q) to draw from; code: all 16, and that of stage 2 once more

    def __post_init__(self):
        object.__setattr__(self, "window", tuple(self.window))
        object.__setattr__(
            self, "choices", tuple(tuple(tuple(each) for each in layer) for layer in self.choices)
        )
        low, high = self.window
        if not 0 <= low <= high:
            raise ValueError(
                f"Shared.window is {self.window}; give the least and the most parameters, in this order"
            )
        if not all(self.choices):
            raise ValueError(
                "Shared.choices has a layer without any (k, q): give each layer at least one"
            )


GATE_REGIONS = ("heads", "ffn", "embedding", "qkv")


@dataclass(frozen=True)
class Gates:
    """Differentiable search over parts of an encoder (report on NAS pruning, sections 5.1 to 5.6 and 7.2 to 7.9)."""

    regions: tuple  # what is searched; the report ends at "heads" and "ffn"; "inputs" are those of a Perceptron
    ratio: float  # R*, of the whole model's FLOPs; the report has 0.1, 0.3, 0.5, 0.7
    share: float  # of the gates that may move in a step: 0.1 (4 layers); 1.0 is no control
    quota: (
        str  # that share in each "layer" and kind, each "kind", or "all"; "region" is not defined
    )
    update: str  # "jump" by 10; or by 10 |g| / mean or max of the movers: "rescaled" is all that is said
    weight: float  # lambda_cost: 1 (section 7.9)
    tolerance: float  # t, not given; printed sizes lie within 1 % of their target at best
    schedule: str = "none"  # of the target: "additive" or "multiplicative", both corrected; "none" as in section 7.4
    landing: str = ""  # ours: a final trim ends on the target; "end" is that alone, "steps" also stops within each
    #                            step where its target is reached
    memory: float = 0.0  # of an average of the alphas' gradients over steps: which optimiser they have is not said

    def __post_init__(self):
        object.__setattr__(self, "regions", tuple(self.regions))
        for region in self.regions:
            one_of("Gates", "regions", region, (*GATE_REGIONS, "inputs"))
        if (
            not self.regions
            or len(set(self.regions)) < len(self.regions)
            or {"heads", "qkv"} <= set(self.regions)
        ):
            raise ValueError(
                f"Gates.regions is {self.regions!r}; name at least one, each once, and not both 'heads' and 'qkv', "
                "which gate the same columns"
            )
        for name in ("ratio", "share"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(
                    f"Gates.{name} is {getattr(self, name)!r}; it must be above 0 and at most 1"
                )
        if not 0 < self.tolerance < 1:
            raise ValueError(
                f"Gates.tolerance is {self.tolerance!r}; it must be above 0 and below 1"
            )
        at_least("Gates", "weight", self.weight, 0)
        one_of("Gates", "quota", self.quota, ("layer", "kind", "all"))
        one_of("Gates", "update", self.update, ("jump", "mean", "max"))
        one_of("Gates", "schedule", self.schedule, ("none", "additive", "multiplicative"))
        if not 0 <= self.memory < 1:
            raise ValueError(f"Gates.memory is {self.memory!r}; it must be at least 0 and below 1")
        one_of("Gates", "landing", self.landing, ("", "end", "steps"))
        if self.landing == "steps" and self.update != "jump":
            raise ValueError(
                f"Gates.update is {self.update!r}; with landing in steps a gate is on or off: take 'jump'"
            )


@dataclass(frozen=True)
class Perceptron:
    """The network of the digits check (report on NAS pruning, section 7.1): dense layers with ReLU between them."""

    widths: tuple  # of the layers behind the inputs, the last being the 10 classes
    epochs: int  # 15 for three layers, 20 for eleven
    batch: int  # not given
    lr: float  # of Adam; not given
    noise: float  # standard deviation of the noise inputs, pixels being in [0, 1]; not given
    fixed_noise: bool = False  # one draw for each image instead of one for each step; not said

    def __post_init__(self):
        object.__setattr__(self, "widths", tuple(self.widths))
        for name in ("epochs", "batch"):
            at_least("Perceptron", name, getattr(self, name), 1)
        if not self.widths or self.widths[-1] != 10:
            raise ValueError(
                f"Perceptron.widths is {self.widths!r}; the last must be the 10 digits"
            )
        for name in ("lr", "noise"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"Perceptron.{name} is {getattr(self, name)!r}; it must be above 0"
                )


OBJECTIVES = ("prediction", "cross_entropy", "soft_cross_entropy", "intermediate", "two_stage")


@dataclass(frozen=True)
class Objective:
    """What a search or a retraining learns from (report on NAS pruning, section 7.3)."""

    kind: str  # "prediction" (squared error of logits), "cross_entropy" (labels), "soft_cross_entropy" (of a
    #                            teacher, as TinyBERT's code: a regression learns its labels), "intermediate", or "two_stage"
    attention: bool = (
        False  # the intermediate loss has attention scores too: kept heads by their index, a guess
    )
    mask: bool = False  # leave padding out of the intermediate means; not said

    def __post_init__(self):
        one_of("Objective", "kind", self.kind, OBJECTIVES)
