"""The space of a search stage: which networks it holds, how they are drawn, changed, described and told apart. Free of
torch (EfficientBERT sections 3.1 and 3.2; what the paper leaves open is as in the public code, and said so).

    stage1   formulas, stacks k and ratios 1/q of all layers, from the base network
    stage2   formulas alone, from the network that stage 1 found
    stage3   stacks and ratios alone, from the network that stage 2 found
    single   Table 6's rival: the space of stage 1 for the whole budget, without a hand-over

An id k_q is a stack and a ratio, 16 for each layer. A formula is changed as genetic programming does it, on its prefix
list, in which a linear map has two operands, a tensor and its weights: `W2 gelu(W1 x)` is linear gelu linear x W1 W2.
"""

import random
from bisect import bisect
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from lib.options import ENCODINGS, one_of
from lib.search import formula as language
from lib.search.net import BERT, QS, STACKS, Layer, Net, ffn_parameters, parameters
from lib.search.net import from_json as read_net
from lib.spec import known

SEARCHED = {
    "stage1": ("formula", "ids"),
    "stage2": ("formula",),
    "stage3": ("ids",),
    "single": ("formula", "ids"),
}
TRIES = {
    "stage1": 1000,
    "stage2": 400,
    "single": 1000,
}  # changes tried before a layer keeps its seed formula
IDS = tuple((k, q) for k in STACKS for q in QS)
NODES = 20  # of a prefix list that features can hold
DEPTH = 3  # of a random tree that replaces a part
ENDLESS = 1 << 60  # parameters that no network has
_NUMBER = {id_: number for number, id_ in enumerate(IDS)}
_TERMINALS = ("x", *language.LINEAR)
_ARITY = (
    {"linear": 2, "foreign": 2}
    | dict.fromkeys(language.BINARY, 2)
    | dict.fromkeys(language.UNARY, 1)
)
_NAMES = (
    "add",
    "mul",
    "max",
    "gelu",
    "sigmoid",
    "tanh",
    "relu",
    "leaky_relu",
    "elu",
    "swish",
    *_TERMINALS,
)


def grammar(stage):
    """What decides on the networks of a stage and how they are drawn beside the fields of a Space, as plain JSON: part of a
    search's identity, so that a new operation makes a new search."""
    return {
        "operations": [*language.UNARY, *language.BINARY],
        "stacks": list(STACKS),
        "ratios": list(QS),
        "heights": list(language.HEIGHTS),
        "nodes": NODES,
        "depth": DEPTH,
        "tries": TRIES.get(stage, 0),
    }


def number(layer):
    """Place of a layer's id among the 16: 4 (k - 1) + q - 1. Raises ValueError for another id."""
    if (layer.stack, layer.q) not in _NUMBER:
        raise ValueError(
            f"id {layer.stack}_{layer.q} (stack {layer.stack}, ratio 1/{layer.q}) is not in the search space: "
            f"stack and q are each one of {', '.join(map(str, STACKS))}"
        )
    return _NUMBER[layer.stack, layer.q]


# Formulas


def prefix(node):
    """A formula's tree as prefix list; 6 entries for `W2 gelu(W1 x)`."""
    inner = [token for child in node.args for token in prefix(child)]
    return ["linear", *inner, node.op] if node.op in language.LINEAR else [node.op, *inner]


def tree(tokens):
    """The tree of a prefix list, or None where it is no formula: a linear map of another id, or without weights of its
    own, weights where a tensor should stand."""

    def read(at):
        op, at = tokens[at], at + 1
        args = []
        for _ in range(1 if op == "linear" else _ARITY.get(op, 0)):
            child, at = read(at)
            args.append(child)
        if op == "linear":
            op, at = tokens[at], at + 1
            if op not in language.LINEAR:
                raise LookupError
        elif op in language.LINEAR or op == "foreign":
            raise LookupError
        return language.Node(op, tuple(args)), at

    try:
        return read(0)[0]
    except LookupError:
        return None


def end(tokens, at):
    """Where the part of a prefix list that starts at `at` ends."""
    open_ = 1
    while open_:
        open_ += _ARITY.get(tokens[at], 0) - 1
        at += 1
    return at


def change(tokens, linears, dice):
    """One try at changing a formula, as coded: a part replaced by a full random tree of depth 0 to 3, then one node
    (never the root) by another of as many operands, then a node put in somewhere. Most results are no formula.

    linears: how many linear maps there are to draw from, one for each id; all but the layer's own are "foreign". dice:
    f() -> uniform in [0, 1).
    """

    def pick(values):
        return values[int(dice() * len(values))]

    def full(depth):
        if not depth:
            return [pick(_TERMINALS)]
        op = pick(functions)
        return [op, *(token for _ in range(_ARITY[op]) for token in full(depth - 1))]

    binary, functions = _functions(linears)
    at = int(dice() * len(tokens))
    tokens = tokens[:at] + full(int(dice() * (DEPTH + 1))) + tokens[end(tokens, at) :]
    if len(tokens) > 1:
        at = 1 + int(dice() * (len(tokens) - 1))
        tokens[at] = pick({0: _TERMINALS, 1: language.UNARY, 2: binary}[_ARITY.get(tokens[at], 0)])
    at = int(dice() * len(tokens))
    op, part = pick(functions), tokens[at : end(tokens, at)]
    place = int(dice() * _ARITY[op])
    args = [part if i == place else [pick(_TERMINALS)] for i in range(_ARITY[op])]
    return [*tokens[:at], op, *(token for arg in args for token in arg), *tokens[at + len(part) :]]


@lru_cache
def _functions(linears):
    binary = ("linear", *("foreign",) * (linears - 1), *language.BINARY)
    return binary, binary + language.UNARY


def accepted(tokens, *widths):
    """The tree of a prefix list that is a formula of the space (`lib.search.formula.check`), else None. The code sees a
    width error in training alone and scores 0; here it is no formula."""
    if (
        tokens.count("W1") != 1
        or tokens.count("W2") != 1
        or tokens.count("linear") != 2
        or len(tokens) > NODES
    ):
        return None
    node = tree(tokens)
    return node if node and language.valid(node, *widths) else None


def grow(formula, linears, tries, dice, *widths):
    """A changed formula, as text, or the same one where `tries` changes gave none that is accepted."""
    seed = prefix(language.parse(formula))
    for _ in range(tries):
        node = accepted(change(seed, linears, dice), *widths)
        if node:
            return str(node)
    return formula


# Sizes


class Sizes:
    """Choices for L layers whose sizes add up to low..high, by convolution of histograms: an exact count, exact uniform
    draws.

    costs: for each layer, the parameters that each of its choices costs. `ways[n]` is (sums of the last n layers,
    ascending; how many choices for them lie below each, and in all).
    """

    def __init__(self, costs, low, high):
        self.costs, self.low, self.high = [np.asarray(c, np.int64) for c in costs], low, high
        exact = np.int64 if np.prod([float(len(c)) for c in costs]) < 2**62 else object
        sums, counts = np.zeros(1, np.int64), np.ones(1, exact)
        self.ways = [(sums, np.array([0, 1], exact))]
        for own in reversed(self.costs):
            sums, where = np.unique((sums[:, None] + own).ravel(), return_inverse=True)
            before, counts = counts, np.zeros(len(sums), exact)
            np.add.at(counts, where, before.repeat(len(own)))
            self.ways.append((sums, np.concatenate([counts[:1] * 0, counts.cumsum()])))
        self._weights = {}

    def count(self, left=None, spent=0):
        """How many choices for the last `left` layers end in the window when those before cost `spent` (may be an
        array); all, without arguments."""
        sums, below = self.ways[len(self.costs) if left is None else left]
        return (
            below[np.searchsorted(sums, self.high - spent, "right")]
            - below[np.searchsorted(sums, self.low - spent)]
        )

    def draw(self, rng):
        """One of them, all equally likely: the index of each layer's choice [L]."""
        drawn, spent = [], 0
        for layer, dice in enumerate(rng.random(len(self.costs))):
            if (layer, spent) not in self._weights:
                ways = self.count(len(self.costs) - layer - 1, spent + self.costs[layer])
                self._weights[layer, spent] = (ways / ways.sum()).astype(float).cumsum().tolist()
            weights = self._weights[layer, spent]
            drawn.append(bisect(weights, dice * weights[-1]))
            spent += int(self.costs[layer][drawn[-1]])
        return drawn


# Spaces


@dataclass(frozen=True)
class Space:
    """All networks that a stage may evaluate. Raises ValueError where there is none, or `start` has an id of no space.

    start: the network the stage begins with; width, heads, embedding and number of layers are taken from it, and what
    the stage does not search. low, high: parameters that a candidate may have, under `convention` and with `tables`
    (`lib.search.net.parameters`); high 0 is no limit. As coded, stage 2 has no limit either, its ids being fixed.
    """

    stage: str
    start: Net
    low: int = 0
    high: int = 0
    convention: str = "with projection"
    tables: dict = field(default_factory=dict)

    def __post_init__(self):
        known("search stage", self.stage, SEARCHED)
        for layer in self.start.layers:
            number(layer)
        if not self.id_tuples():
            sums = self.sizes.ways[-1][0] + self.rest
            raise ValueError(
                f"no candidate of {len(self.start.layers)} layers of hidden size {self.start.hidden} has {self.low:,} to "
                f"{self.high:,} parameters ({self.convention}); reachable are {sums[0]:,} to {sums[-1]:,}: move the window"
            )

    @property
    def searched(self):
        return SEARCHED[self.stage]

    def identity(self):
        """What tells this space from others, as plain JSON."""
        return {
            "stage": self.stage,
            "start": self.start.to_json(),
            "low": self.low,
            "high": self.high,
            "convention": self.convention,
            "tables": dict(self.tables),
            "grammar": grammar(self.stage),
        }

    # sizes

    def size(self, net):
        """Parameters, as the window counts them."""
        return parameters(net, self.convention, **self.tables)

    @cached_property
    def costs(self):
        """Parameters of a layer's feed-forward networks for each id [16]."""
        return [
            k * ffn_parameters(self.start.hidden, self.start.inner(Layer(BERT, k, q)))
            for k, q in IDS
        ]

    @cached_property
    def rest(self):
        """Parameters of everything but the feed-forward networks."""
        return self.size(self.start) - sum(self.costs[number(l)] for l in self.start.layers)

    @cached_property
    def choices(self):
        """For each layer, the ids (0..15) that it may have: all, but for a fixed formula that some ratio does not fit."""
        if "formula" in self.searched:
            return [range(len(IDS))] * len(self.start.layers)
        return [
            [i for i, id_ in enumerate(IDS) if self._fits(replace(l, stack=id_[0], q=id_[1]))]
            for l in self.start.layers
        ]

    def _fits(self, layer):
        return _fits(layer.formula, self.start.hidden, self.start.inner(layer), self.start.mismatch)

    @cached_property
    def sizes(self):
        return Sizes(
            [[self.costs[i] for i in own] for own in self.choices],
            self.low - self.rest,
            (self.high or ENDLESS) - self.rest,
        )

    def inside(self, net):
        """Whether a network's size is in the window; always, where the stage does not search sizes."""
        return "ids" not in self.searched or self.low <= self.size(net) <= (self.high or ENDLESS)

    def id_tuples(self):
        """How many choices of ids are in the window; in stage 3, how many candidates there are."""
        return int(self.sizes.count()) if "ids" in self.searched else 1

    # candidates

    def first(self):
        """What the code evaluates before it draws: the start; in stage 2 also its twin with plain formulas."""
        twin = replace(
            self.start, layers=tuple(replace(l, formula=BERT) for l in self.start.layers)
        )
        nets = [self.start, twin] if self.stage == "stage2" else [self.start]
        return [net for net in dict.fromkeys(nets) if self.inside(net)]

    def draw(self, rng):
        """A candidate drawn without guidance: ids uniform over those in the window, formulas grown from a seed formula.

        The code draws everything again until the size fits; a formula never changes an id, so that ids drawn inside the
        window give the same distribution.
        """
        ids = [number(l) for l in self.start.layers]
        if "ids" in self.searched:
            ids = [own[i] for own, i in zip(self.choices, self.sizes.draw(rng), strict=True)]
        layers = [_layer(l.formula, *IDS[i]) for l, i in zip(self.start.layers, ids, strict=True)]
        if "formula" in self.searched:
            dice = _dice(rng)
            seeds = [
                (l.formula, BERT)[int(dice() * 2)] if self.stage == "stage2" else BERT
                for l in layers
            ]
            layers = [
                self._grown(replace(l, formula=seed), dice)
                for l, seed in zip(layers, seeds, strict=True)
            ]
        return replace(self.start, layers=tuple(layers))

    def _grown(self, layer, dice):
        linears = 1 if self.stage == "stage2" else len(IDS)
        text = grow(
            layer.formula,
            linears,
            TRIES[self.stage],
            dice,
            self.start.hidden,
            self.start.inner(layer),
            self.start.mismatch,
        )
        return replace(layer, formula=text)

    def neighbours(self, net):
        """All networks of the window that differ in one layer's id and whose formula fits it."""
        return [self._with(net, i, layer) for i, layer in self._near(net)]

    def _near(self, net):
        """The one layer, with its place, that each of them differs in."""
        ids = [number(layer) for layer in net.layers]
        size, high = self.rest + sum(self.costs[own] for own in ids), self.high or ENDLESS
        changed = [
            (i, _layer(net.layers[i].formula, *IDS[other]))
            for i, own in enumerate(ids)
            for other in range(len(IDS))
            if other != own and self.low <= size - self.costs[own] + self.costs[other] <= high
        ]
        return [(i, layer) for i, layer in changed if self._fits(layer)]

    def mutate(self, net, rng):
        """A network with one layer changed, id or formula: a neighbour, or the formula changed once more. A fresh draw
        where no neighbour is in the window."""
        if self.searched[int(rng.integers(len(self.searched)))] == "formula":
            i, dice = int(rng.integers(len(net.layers))), _dice(rng)
            return self._with(net, i, self._grown(net.layers[i], dice))
        near = self._near(net)
        return self._with(net, *near[int(rng.integers(len(near)))]) if near else self.draw(rng)

    def _with(self, net, i, layer):
        return replace(net, layers=(*net.layers[:i], layer, *net.layers[i + 1 :]))

    # descriptions

    def pack(self, net):
        """A candidate as plain JSON, what all have in common left out."""
        return net.to_json()["layers"]

    def unpack(self, layers):
        """The candidate that `pack` wrote."""
        return replace(self.start, layers=tuple(Layer(*layer) for layer in layers))

    def key(self, net):
        """Text that is equal for networks that compute the same up to the order of operands."""
        return " | ".join(f"{_sorted(l.formula)} {l.stack}_{l.q}" for l in net.layers)

    def features(self, nets, encoding):
        """What samplers learn from, float [N, F].

        "index", as coded: each layer's prefix list as indices, padded with -1 to 20 (linear maps by id 0..15 or, in stage
        2, 0; then add, mul, max, gelu, ... , x, W1, W2); in stage 3 the ids, 0..15. "onehot": for each layer one column
        an id and one an operation, which counts how often it occurs; what the stage does not search is left out.
        """
        one_of("features", "encoding", encoding, ENCODINGS)
        describe = _indices if encoding == "index" else _counts
        return np.array(
            [
                [
                    value
                    for l in net.layers
                    for value in describe(l.formula, number(l), self.searched)
                ]
                for net in nets
            ],
            float,
        )


_layer = lru_cache(maxsize=4096)(Layer)


def _dice(rng):
    """f() -> uniform in [0, 1): Python's own, seeded from a numpy Generator; its calls cost a tenth."""
    return random.Random(int(rng.integers(1 << 62))).random


@lru_cache(maxsize=4096)
def _fits(formula, *widths):
    return language.valid(language.parse(formula), *widths)


@lru_cache(maxsize=4096)
def _sorted(formula):
    return str(language.canonical(language.parse(formula)))


@lru_cache(maxsize=65536)
def _indices(formula, own, searched):
    """A layer's part of the features as coded."""
    if "formula" not in searched:
        return [own]
    linear, others = (own, len(IDS)) if "ids" in searched else (0, 1)
    tokens = prefix(language.parse(formula))
    if len(tokens) > NODES:
        raise ValueError(f"the formula {formula!r} has {len(tokens)} nodes; features hold {NODES}")
    return [linear if t == "linear" else others + _NAMES.index(t) for t in tokens] + [-1] * (
        NODES - len(tokens)
    )


@lru_cache(maxsize=65536)
def _counts(formula, own, searched):
    tokens = prefix(language.parse(formula))
    ids = [int(i == own) for i in range(len(IDS))] if "ids" in searched else []
    return ids + (
        [tokens.count(n) for n in _NAMES if n not in language.LINEAR]
        if "formula" in searched
        else []
    )


def from_json(body):
    """The Space of what `identity` gave. Raises ValueError where the grammar is not the one that is here."""
    told, here = body["grammar"], grammar(body["stage"])
    if told != here:
        changed = [name for name in here if told.get(name) != here[name]]
        raise ValueError(
            f"the space was described with other {', '.join(changed)} than lib.search has now: ask for a new search"
        )
    return Space(
        **{name: value for name, value in body.items() if name != "grammar"}
        | {"start": read_net(body["start"])}
    )
