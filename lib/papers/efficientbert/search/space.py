"""This module has the space of a search stage: how its networks are drawn, changed and
described.

See EfficientBERT sections 3.1 and 3.2; what the paper leaves open is as in the public
code.

    stage1   searches formulas, stacks k and ratios 1/q of all layers, from the base network.
    stage2   searches formulas alone, from the network that stage 1 found.
    stage3   searches stacks and ratios alone, from the network that stage 2 found.
    single   is Table 6's rival: the space of stage 1 for the whole budget.

An id k_q is a stack and a ratio; each layer has 16 to choose from. How formulas change
is in search.grow, which sizes are possible in search.sizes."""

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from lib.core.names import Refused, check_name
from lib.core.types import Json
from lib.model import formula as language
from lib.papers.efficientbert.search.grow import (
    BINARY,
    DEPTH,
    HEIGHTS,
    NODES,
    TABLE_1,
    TERMINALS,
    UNARY,
    grow,
    prefix,
)
from lib.papers.efficientbert.search.language import canonical, valid
from lib.papers.efficientbert.search.net import (
    BERT,
    QS,
    STACKS,
    Layer,
    Net,
    ffn_parameters,
    parameters,
)
from lib.papers.efficientbert.search.net import from_json as read_net
from lib.papers.efficientbert.search.sizes import Sizes

BOTH = ("formula", "ids")
SEARCHED = {"stage1": BOTH, "stage2": ("formula",), "stage3": ("ids",), "single": BOTH}
# Rejected changes after which a layer keeps its formula.
TRIES = {"stage1": 1000, "stage2": 400, "single": 1000}
ENDLESS = 1 << 60  # A limit of parameters that no network reaches.
IDS = tuple((k, q) for k in STACKS for q in QS)


def grammar(stage: str) -> Json:
    """Return the rules of formulas and sizes in a stage, as plain JSON.

    They are a part of the identity of a search."""
    rules = {"operations": TABLE_1, "stacks": STACKS, "ratios": QS, "heights": HEIGHTS}
    rules = {name: list(values) for name, values in rules.items()}
    return rules | {"nodes": NODES, "depth": DEPTH, "tries": TRIES.get(stage, 0)}


def number(layer: Layer) -> int:
    """Return the place of a layer's id among the 16: 4 (k - 1) + q - 1.

    Raises Refused for another id.
    """
    return IDS.index((layer.stack, layer.q))


@dataclass(frozen=True)
class Space:
    """A Space is the set of networks that a stage may evaluate.

    As coded, stage 2 has no limit of size, because its ids are fixed. Raises Refused
    where there is no network, and where `start` has an id that the space lacks."""

    stage: str
    # Network that gives all candidates their widths and depth, and the parts that the
    # stage does not search.
    start: Net
    low: int = 0  # Least parameters of a candidate.
    high: int = 0  # Most parameters of a candidate; 0 for no limit.
    # How parameters are counted: arguments of search.net.parameters.
    convention: str = "with projection"
    tables: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name("search stage", self.stage, SEARCHED)
        if not self.id_tuples():
            window = f"{self.low:,} to {self.high:,} parameters ({self.convention})"
            raise Refused(f"no candidate has {window}: move the window")

    @property
    def searched(self) -> tuple[str, ...]:
        return SEARCHED[self.stage]

    def identity(self) -> Json:
        """Return the identity of this space, as plain JSON."""
        return asdict(self) | {
            "start": self.start.to_json(),
            "grammar": grammar(self.stage),
        }

    def size(self, net: Net) -> int:
        """Return the parameters of a network, as the window counts them."""
        return parameters(net, self.convention, **self.tables)

    @cached_property
    def costs(self) -> list[int]:
        """Return the parameters of a layer's feed-forward networks for each of the
        IDS."""
        d, inner = self.start.hidden, self.start.inner
        return [k * ffn_parameters(d, inner(Layer(BERT, k, q))) for k, q in IDS]

    @cached_property
    def rest(self) -> int:
        """Return the parameters of everything but the feed-forward networks."""
        return self.size(self.start) - sum(
            self.costs[number(l)] for l in self.start.layers
        )

    @cached_property
    def choices(self) -> Sequence[Sequence[int]]:
        """Return the ids that each layer may have, as places among the IDS.

        They are all, or those that fit its formula where that is fixed.
        """
        layers = self.start.layers
        if "formula" in self.searched:
            return [range(len(IDS))] * len(layers)
        return [
            [i for i, (k, q) in enumerate(IDS) if self._fits(replace(l, stack=k, q=q))]
            for l in layers
        ]

    def _fits(self, layer: Layer) -> bool:
        return _fits(
            layer.formula,
            self.start.hidden,
            self.start.inner(layer),
            self.start.mismatch,
        )

    @cached_property
    def sizes(self) -> Sizes:
        costs = [
            [self.costs[i] for i in layer_choices] for layer_choices in self.choices
        ]
        return Sizes(costs, self.low - self.rest, (self.high or ENDLESS) - self.rest)

    def is_in_window(self, net: Net) -> bool:
        """Return whether a network's size is in the window.

        Where sizes are not searched, every network counts as inside."""
        return "ids" not in self.searched or self.low <= self.size(net) <= (
            self.high or ENDLESS
        )

    def id_tuples(self) -> int:
        """Return how many choices of ids are in the window.

        In stage 3 it is the number of candidates.
        """
        return self.sizes.count() if "ids" in self.searched else 1

    def starting_networks(self) -> list[Net]:
        """Return the networks that the code evaluates before it draws: the start.

        In stage 2 there is also the start with BERT's formula in every layer.
        """
        plain = tuple(replace(l, formula=BERT) for l in self.start.layers)
        nets = (self.start, replace(self.start, layers=plain))[
            : 1 + (self.stage == "stage2")
        ]
        return [net for net in dict.fromkeys(nets) if self.is_in_window(net)]

    def draw(self, rng: np.random.Generator) -> Net:
        """Return a candidate drawn without guidance.

        Ids are uniform over those in the window; formulas are grown from a seed
        formula. The code draws everything again until the size fits. A formula never
        changes an id, so ids drawn inside the window have the same distribution."""
        ids = [number(l) for l in self.start.layers]
        if "ids" in self.searched:
            ids = [
                layer_choices[i]
                for layer_choices, i in zip(
                    self.choices, self.sizes.draw(rng), strict=True
                )
            ]
        chosen = zip(self.start.layers, (IDS[i] for i in ids), strict=True)
        layers = [_layer(l.formula, *id_) for l, id_ in chosen]
        if "formula" in self.searched:
            dice, both = _dice(rng), self.stage == "stage2"
            seeds = [
                (l.formula, BERT)[int(dice() * 2)] if both else BERT for l in layers
            ]
            layers = [
                self._grown(l, seed, dice)
                for l, seed in zip(layers, seeds, strict=True)
            ]
        return replace(self.start, layers=tuple(layers))

    def _grown(self, layer: Layer, seed: str, dice: Callable[[], float]) -> Layer:
        """Return the layer with a formula that is grown from a seed formula."""
        linears = 1 if self.stage == "stage2" else len(IDS)
        widths = self.start.hidden, self.start.inner(layer), self.start.mismatch
        return replace(
            layer, formula=grow(seed, TRIES[self.stage], linears, dice, *widths)
        )

    def mutate(self, net: Net, rng: np.random.Generator) -> Net:
        """Return a network with one layer changed, in its id or its formula.

        Where no other id is in the window it is a fresh draw.
        """
        if self.searched[int(rng.integers(len(self.searched)))] == "formula":
            i, dice = int(rng.integers(len(net.layers))), _dice(rng)
            return self._with(
                net, i, self._grown(net.layers[i], net.layers[i].formula, dice)
            )
        near = self._near(net)
        return (
            self._with(net, *near[int(rng.integers(len(near)))])
            if near
            else self.draw(rng)
        )

    def _near(self, net: Net) -> list[tuple[int, Layer]]:
        """Return the place and the layer of each possible change of one id.

        The change stays in the window and fits the formula.
        """
        return [
            (i, layer)
            for i, old in enumerate(net.layers)
            for id_ in IDS
            if id_ != (old.stack, old.q)
            and self._fits(layer := _layer(old.formula, *id_))
            if self.is_in_window(self._with(net, i, layer))
        ]

    def _with(self, net: Net, i: int, layer: Layer) -> Net:
        return replace(net, layers=(*net.layers[:i], layer, *net.layers[i + 1 :]))

    def pack(self, net: Net) -> list[list[Any]]:
        """Return the layers of a candidate as plain JSON; all candidates share the
        rest."""
        return net.to_json()["layers"]

    def unpack(self, layers: list[list[Any]]) -> Net:
        """Return the candidate that `pack` wrote."""
        return replace(self.start, layers=tuple(Layer(*layer) for layer in layers))

    def key(self, net: Net) -> str:
        """Return a text that is equal for networks that compute the same.

        The order of operands does not matter.
        """
        return " | ".join(f"{_sorted(l.formula)} {l.stack}_{l.q}" for l in net.layers)

    def features(self, nets: list[Net]) -> np.ndarray:
        """Return the features that samplers learn from, float [N, F], as coded.

        Each layer gives its prefix list as indices, padded with -1 to 20. A linear map
        has the index of its layer's id or, in stage 2, 0. Then come add, mul, max,
        gelu, ..., x, W1, W2. In stage 3 there are only the ids."""
        searched = self.searched
        rows = [
            [_indices(l.formula, number(l), searched) for l in net.layers]
            for net in nets
        ]
        return np.array(rows, float).reshape(len(nets), -1)


_layer = lru_cache(maxsize=4096)(Layer)


def _dice(rng: np.random.Generator) -> Callable[[], float]:
    """Return f() -> uniform in [0, 1), seeded by a numpy Generator.

    Python's own generator is ten times as fast.
    """
    return random.Random(int(rng.integers(1 << 62))).random


@lru_cache(maxsize=4096)
def _fits(formula: str, *widths: Any) -> bool:
    return valid(language.parse(formula), *widths)


@lru_cache(maxsize=4096)
def _sorted(formula: str) -> str:
    return str(canonical(language.parse(formula)))


@lru_cache(maxsize=65536)
def _indices(formula: str, id: int, searched: tuple[str, ...]) -> list[int]:
    """Return a layer's part of the features, as coded."""
    if "formula" not in searched:
        return [id]
    linear, others = (id, len(IDS)) if "ids" in searched else (0, 1)
    tokens = prefix(language.parse(formula))
    names = (*BINARY, *UNARY, *TERMINALS)
    indices = [linear if t == "linear" else others + names.index(t) for t in tokens]
    return indices + [-1] * (NODES - len(indices))


def from_json(body: Json) -> Space:
    """Return the Space from what `identity` returned."""
    fields = {name: value for name, value in body.items() if name != "grammar"}
    return Space(**fields | {"start": read_net(body["start"])})
