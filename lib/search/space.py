"""The space of a search stage: which networks it holds, how they are drawn, changed and described
(EfficientBERT sections 3.1 and 3.2; what the paper leaves open is as in the public code).

    stage1   formulas, stacks k and ratios 1/q of all layers, from the base network
    stage2   formulas alone, from the network that stage 1 found
    stage3   stacks and ratios alone, from the network that stage 2 found
    single   Table 6's rival: the space of stage 1 for the whole budget, without a hand-over

An id k_q is a stack and a ratio; in the paper's space each layer has 16 to choose from. How
formulas change is in lib.search.grow, which sizes are possible in lib.search.sizes.

**A space of your own** is one line in SPACES: its name, and what differs from the paper's space. A
notebook's parameter `space` takes the name. The grammar is part of a search's identity.
"""

import random
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, lru_cache

import numpy as np

from lib.model import formula as language
from lib.runs.spec import known
from lib.search.formula import canonical, valid
from lib.search.grow import grow, prefix
from lib.search.net import BERT, GEGLU, QS, STACKS, Layer, Net, ffn_parameters, parameters
from lib.search.net import from_json as read_net
from lib.search.sizes import Sizes

BOTH = ("formula", "ids")
SEARCHED = {"stage1": BOTH, "stage2": ("formula",), "stage3": ("ids",), "single": BOTH}
TRIES = {"stage1": 1000, "stage2": 400, "single": 1000}  # changes before a layer keeps its formula
ENDLESS = 1 << 60  # parameters that no network has
TABLE_1 = tuple("gelu sigmoid tanh relu leaky_relu elu swish add mul max".split())


@dataclass(frozen=True)
class Grammar:
    """What a search may write. Raises ValueError for an unknown operation."""

    # In the order in which they are drawn; "W3" lets formulas have a gate.
    operations: tuple = TABLE_1
    stacks: tuple = STACKS  # k
    ratios: tuple = QS  # q
    heights: tuple = (3, 7)  # edges from the root to the deepest x; BERT's network has 3
    nodes: int = 20  # of a prefix list that features can hold
    depth: int = 3  # of a random tree that replaces a part
    tries: int = 1000  # changes before a layer keeps its formula; each stage has its own

    def __post_init__(self):
        for each in fields(self):
            if isinstance(value := getattr(self, each.name), list):
                object.__setattr__(self, each.name, tuple(value))
        for name in self.operations:
            known("operation", name, (*language.OPERATIONS, language.GATE))

    def to_json(self):
        return {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}

    @cached_property
    def unary(self):
        return tuple(name for name in self.operations if name in language.UNARY)

    @cached_property
    def binary(self):
        return tuple(name for name in self.operations if name in language.BINARY)

    @cached_property
    def terminals(self):
        return ("x", *(n for n in language.LINEAR if n != language.GATE or n in self.operations))

    @cached_property
    def ids(self):
        return tuple((k, q) for k in self.stacks for q in self.ratios)


SPACES = {"paper": Grammar(), "gated": Grammar((*TABLE_1, language.GATE))}
IDS = SPACES["paper"].ids


def grammar(stage, name="paper"):
    """A line of SPACES as plain JSON, with the tries of a stage."""
    known("search space", name, SPACES)
    return replace(SPACES[name], tries=TRIES.get(stage, 0)).to_json()


def number(layer, own=SPACES["paper"]):
    """Place of a layer's id in a grammar; of the paper's 16 it is 4 (k - 1) + q - 1.

    Raises ValueError for another id.
    """
    if (layer.stack, layer.q) not in own.ids:
        why = f"id {layer.stack}_{layer.q} is not in the search space: the stack is one of "
        raise ValueError(f"{why}{own.stacks}, q one of {own.ratios}")
    return own.ids.index((layer.stack, layer.q))


@dataclass(frozen=True)
class Space:
    """All networks that a stage may evaluate.

    As coded, stage 2 has no limit of size, because its ids are fixed. Raises ValueError where there
    is no network, and where `start` has an id or an operation that the space lacks.
    """

    stage: str
    start: Net  # width, heads, embedding, number of layers, and what the stage does not search
    low: int = 0  # least parameters of a candidate
    high: int = 0  # most parameters; 0 is no limit
    convention: str = "with projection"  # how they are counted (lib.search.net.parameters)
    tables: dict = field(default_factory=dict)  # and with which tables
    grammar: Grammar = None  # the paper's

    def __post_init__(self):
        known("search stage", self.stage, SEARCHED)
        told = self.grammar or grammar(self.stage)
        if isinstance(told, dict):
            object.__setattr__(self, "grammar", Grammar(**told))
        for layer in self.start.layers:
            self.number(layer)
        own = self.grammar.terminals + self.grammar.operations
        for text in (BERT, *(l.formula for l in self.start.layers)) * ("formula" in self.searched):
            if lacking := {n.op for n in language.walk(language.parse(text))} - {*own}:
                raise ValueError(
                    f"the search space lacks {', '.join(sorted(lacking))}, which {text!r} has, and "
                    "a search starts there: add it to the operations of the space"
                )
        if not self.id_tuples():
            sums = self.sizes.ways[-1][0] + self.rest
            why = f"no candidate has {self.low:,} to {self.high:,} parameters ({self.convention}); "
            raise ValueError(f"{why}reachable are {sums[0]:,} to {sums[-1]:,}: move the window")

    @property
    def searched(self):
        return SEARCHED[self.stage]

    def identity(self):
        """What tells this space from others, as plain JSON."""
        return asdict(self) | {"start": self.start.to_json(), "grammar": self.grammar.to_json()}

    def number(self, layer):
        """Place of a layer's id among those of the grammar."""
        return number(layer, self.grammar)

    # sizes

    def size(self, net):
        """Parameters, as the window counts them."""
        return parameters(net, self.convention, **self.tables)

    @cached_property
    def costs(self):
        """{gates of a formula: [parameters of a layer's networks for each id]}."""
        d, inner = self.start.hidden, self.start.inner
        made = [(k, inner(Layer(BERT, k, q))) for k, q in self.grammar.ids]
        return {gates: [k * ffn_parameters(d, e, gates) for k, e in made] for gates in (0, 1)}

    def cost(self, layer):
        return self.costs[layer.gates][self.number(layer)]

    @cached_property
    def rest(self):
        """Parameters of everything but the feed-forward networks."""
        return self.size(self.start) - sum(map(self.cost, self.start.layers))

    @cached_property
    def choices(self):
        """The ids that each layer may have: all, or those that fit its fixed formula."""
        ids, layers = self.grammar.ids, self.start.layers
        if "formula" in self.searched:
            return [range(len(ids))] * len(layers)
        return [
            [i for i, (k, q) in enumerate(ids) if self._fits(replace(l, stack=k, q=q))]
            for l in layers
        ]

    def _fits(self, layer):
        return _fits(layer.formula, self.start.hidden, self.start.inner(layer), self.start.mismatch)

    @cached_property
    def sizes(self):
        fixed = "formula" not in self.searched  # else a layer's seed has no gate
        costs = [
            [self.costs[l.gates if fixed else 0][i] for i in own]
            for own, l in zip(self.choices, self.start.layers, strict=True)
        ]
        return Sizes(costs, self.low - self.rest, (self.high or ENDLESS) - self.rest)

    def inside(self, net):
        """Whether a network's size is in the window; always where sizes are not searched."""
        return "ids" not in self.searched or self.low <= self.size(net) <= (self.high or ENDLESS)

    def id_tuples(self):
        """How many choices of ids are in the window; in stage 3, how many candidates there are."""
        return self.sizes.count() if "ids" in self.searched else 1

    # candidates

    def first(self):
        """What the code evaluates before it draws: the start; in stage 2 its plain twin too."""
        plain = tuple(replace(l, formula=BERT) for l in self.start.layers)
        nets = (self.start, replace(self.start, layers=plain))[: 1 + (self.stage == "stage2")]
        return [net for net in dict.fromkeys(nets) if self.inside(net)]

    def draw(self, rng):
        """A candidate drawn without guidance.

        Ids are uniform over those in the window; formulas are grown from a seed formula. The code
        draws everything again until the size fits. A formula never changes an id, so ids drawn
        inside the window have the same distribution. A gate that leads out of it is taken back.
        """
        ids = [self.number(l) for l in self.start.layers]
        if "ids" in self.searched:
            ids = [own[i] for own, i in zip(self.choices, self.sizes.draw(rng), strict=True)]
        chosen = zip(self.start.layers, (self.grammar.ids[i] for i in ids), strict=True)
        layers = [_layer(l.formula, *id_) for l, id_ in chosen]
        if "formula" in self.searched:
            dice, plain = _dice(rng), (BERT, GEGLU)[: len(self.grammar.terminals) - 2]
            seeds = [(l.formula, *plain) if self.stage == "stage2" else plain for l in layers]
            seeds = [own[int(dice() * len(own))] if len(own) > 1 else own[0] for own in seeds]
            layers = [replace(l, formula=BERT) for l in layers]
            for i, seed in enumerate(seeds):
                layers = self._grown(layers, i, seed, dice)
        return replace(self.start, layers=tuple(layers))

    def _grown(self, layers, i, seed, dice):
        """The layers with a changed formula at i, or as they were where a gate makes them too large
        or too small.
        """
        old, linears = layers[i], 1 if self.stage == "stage2" else len(self.grammar.ids)
        widths = self.start.hidden, self.start.inner(old), self.start.mismatch
        new = replace(old, formula=grow(seed, self.grammar, linears, dice, *widths))
        changed = [*layers[:i], new, *layers[i + 1 :]]
        same = new.gates == old.gates or self.inside(replace(self.start, layers=changed))
        return changed if same else layers

    def mutate(self, net, rng):
        """A network with one layer changed, in its id or its formula.

        Where no other id is in the window it is a fresh draw.
        """
        if self.searched[int(rng.integers(len(self.searched)))] == "formula":
            i, dice = int(rng.integers(len(net.layers))), _dice(rng)
            return replace(net, layers=self._grown(net.layers, i, net.layers[i].formula, dice))
        near = self._near(net)
        return self._with(net, *near[int(rng.integers(len(near)))]) if near else self.draw(rng)

    def _near(self, net):
        """(place, layer) of each change of one id that stays in the window and fits the formula."""
        size, high = self.rest + sum(map(self.cost, net.layers)), self.high or ENDLESS
        return [
            (i, layer)
            for i, old in enumerate(net.layers)
            for rest in [size - self.cost(old)]
            for id_, cost in zip(self.grammar.ids, self.costs[old.gates], strict=True)
            if id_ != (old.stack, old.q) and self.low <= rest + cost <= high
            if self._fits(layer := _layer(old.formula, *id_))
        ]

    def _with(self, net, i, layer):
        return replace(net, layers=(*net.layers[:i], layer, *net.layers[i + 1 :]))

    # descriptions

    def pack(self, net):
        """A candidate as plain JSON, without what all have in common."""
        return net.to_json()["layers"]

    def unpack(self, layers):
        """The candidate that `pack` wrote."""
        return replace(self.start, layers=tuple(Layer(*layer) for layer in layers))

    def key(self, net):
        """Text that is equal for networks that compute the same up to the order of operands."""
        return " | ".join(f"{_sorted(l.formula)} {l.stack}_{l.q}" for l in net.layers)

    def features(self, nets):
        """What samplers learn from, float [N, F], as coded.

        Each layer's prefix list stands as indices, padded with -1 to 20. Linear maps stand by their
        id or, in stage 2, by 0; then come add, mul, max, gelu, ..., x, W1, W2. In stage 3 the ids
        stand alone.
        """
        own = self.searched, self.grammar
        rows = [[_indices(l.formula, self.number(l), *own) for l in net.layers] for net in nets]
        return np.array(rows, float).reshape(len(nets), -1)


_layer = lru_cache(maxsize=4096)(Layer)


def _dice(rng):
    """f() -> uniform in [0, 1): Python's own, seeded by a numpy Generator; ten times as fast."""
    return random.Random(int(rng.integers(1 << 62))).random


@lru_cache(maxsize=4096)
def _fits(formula, *widths):
    return valid(language.parse(formula), *widths)


@lru_cache(maxsize=4096)
def _sorted(formula):
    return str(canonical(language.parse(formula)))


@lru_cache(maxsize=65536)
def _indices(formula, own, searched, grammar):
    """A layer's part of the features as coded."""
    if "formula" not in searched:
        return [own]
    linear, others = (own, len(grammar.ids)) if "ids" in searched else (0, 1)
    tokens, most = prefix(language.parse(formula)), grammar.nodes
    if len(tokens) > most:
        raise ValueError(f"the formula {formula!r} has {len(tokens)} nodes; features hold {most}")
    names = (*grammar.binary, *grammar.unary, *grammar.terminals)
    found = [linear if t == "linear" else others + names.index(t) for t in tokens]
    return found + [-1] * (most - len(found))


def from_json(body):
    """The Space of what `identity` gave. Raises ValueError for an operation that is gone."""
    return Space(**body | {"start": read_net(body["start"])})
