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
    change_formula_at_random,
    list_prefix_tokens,
)
from lib.papers.efficientbert.search.language import (
    is_valid_formula,
    sort_commutative_operands,
)
from lib.papers.efficientbert.search.net import (
    BERT,
    QS,
    STACKS,
    Layer,
    Net,
    count_net_parameters,
    ffn_parameters,
)
from lib.papers.efficientbert.search.net import from_json as read_net
from lib.papers.efficientbert.search.sizes import LayerChoices

BOTH = ("formula", "ids")
SEARCHED = {"stage1": BOTH, "stage2": ("formula",), "stage3": ("ids",), "single": BOTH}
# Rejected changes after which a layer keeps its formula.
TRIES = {"stage1": 1000, "stage2": 400, "single": 1000}
ENDLESS = 1 << 60  # A limit of parameters that no network reaches.
IDS = tuple((k, q) for k in STACKS for q in QS)


def describe_grammar(stage: str) -> Json:
    """Return the rules of formulas and sizes in a stage, as plain JSON.

    They are a part of the identity of a search."""
    rules = {"operations": TABLE_1, "stacks": STACKS, "ratios": QS, "heights": HEIGHTS}
    rules = {name: list(values) for name, values in rules.items()}
    return rules | {"nodes": NODES, "depth": DEPTH, "tries": TRIES.get(stage, 0)}


def find_choice_number(layer: Layer) -> int:
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
        if not self.count_size_choices():
            window = f"{self.low:,} to {self.high:,} parameters ({self.convention})"
            raise Refused(f"no candidate has {window}: move the window")

    @property
    def searched_parts(self) -> tuple[str, ...]:
        return SEARCHED[self.stage]

    def identity(self) -> Json:
        """Return the identity of this space, as plain JSON."""
        return asdict(self) | {
            "start": self.start.to_json(),
            "grammar": describe_grammar(self.stage),
        }

    def count_net_parameters(self, net: Net) -> int:
        """Return the parameters of a network, as the window counts them."""
        return count_net_parameters(net, self.convention, **self.tables)

    @cached_property
    def layer_costs(self) -> list[int]:
        """Return the parameters of a layer's feed-forward networks for each of the
        IDS."""
        d, inner = self.start.hidden, self.start.count_inner_channels
        return [k * ffn_parameters(d, inner(Layer(BERT, k, q))) for k, q in IDS]

    @cached_property
    def cost_without_networks(self) -> int:
        """Return the parameters of everything but the feed-forward networks."""
        return self.count_net_parameters(self.start) - sum(
            self.layer_costs[find_choice_number(l)] for l in self.start.layers
        )

    @cached_property
    def choices_by_layer(self) -> Sequence[Sequence[int]]:
        """Return the ids that each layer may have, as places among the IDS.

        They are all, or those that fit its formula where that is fixed.
        """
        layers = self.start.layers
        if "formula" in self.searched_parts:
            return [range(len(IDS))] * len(layers)
        return [
            [
                i
                for i, (k, q) in enumerate(IDS)
                if self._fits_formula(replace(l, stack=k, q=q))
            ]
            for l in layers
        ]

    def _fits_formula(self, candidate_layer: Layer) -> bool:
        return _is_valid_at_widths(
            candidate_layer.formula,
            self.start.hidden,
            self.start.count_inner_channels(candidate_layer),
            self.start.mismatch,
        )

    @cached_property
    def sizes(self) -> LayerChoices:
        costs = [
            [self.layer_costs[i] for i in layer_choices]
            for layer_choices in self.choices_by_layer
        ]
        return LayerChoices(
            costs,
            self.low - self.cost_without_networks,
            (self.high or ENDLESS) - self.cost_without_networks,
        )

    def is_in_window(self, net: Net) -> bool:
        """Return whether a network's size is in the window.

        Where sizes are not searched, every network counts as inside."""
        return (
            "ids" not in self.searched_parts
            or self.low <= self.count_net_parameters(net) <= (self.high or ENDLESS)
        )

    def count_size_choices(self) -> int:
        """Return how many choices of ids are in the window.

        In stage 3 it is the number of candidates.
        """
        return self.sizes.count_all() if "ids" in self.searched_parts else 1

    def list_starting_networks(self) -> list[Net]:
        """Return the networks that the code evaluates before it draws: the start.

        In stage 2 there is also the start with BERT's formula in every layer.
        """
        plain = tuple(replace(l, formula=BERT) for l in self.start.layers)
        nets = (self.start, replace(self.start, layers=plain))[
            : 1 + (self.stage == "stage2")
        ]
        return [net for net in dict.fromkeys(nets) if self.is_in_window(net)]

    def draw_candidate(self, rng: np.random.Generator) -> Net:
        """Return a candidate drawn without guidance.

        Ids are uniform over those in the window; formulas are grown from a seed
        formula. The code draws everything again until the size fits. A formula never
        changes an id, so ids drawn inside the window have the same distribution."""
        ids = [find_choice_number(l) for l in self.start.layers]
        if "ids" in self.searched_parts:
            ids = [
                layer_choices[i]
                for layer_choices, i in zip(
                    self.choices_by_layer, self.sizes.draw_choices(rng), strict=True
                )
            ]
        chosen = zip(self.start.layers, (IDS[i] for i in ids), strict=True)
        layers = [_layer(l.formula, *id_) for l, id_ in chosen]
        if "formula" in self.searched_parts:
            dice, both = _make_uniform_generator(rng), self.stage == "stage2"
            seeds = [
                (l.formula, BERT)[int(dice() * 2)] if both else BERT for l in layers
            ]
            layers = [
                self._grow_formula(l, seed, dice)
                for l, seed in zip(layers, seeds, strict=True)
            ]
        return replace(self.start, layers=tuple(layers))

    def _grow_formula(
        self, layer: Layer, seed_formula: str, draw_uniform: Callable[[], float]
    ) -> Layer:
        """Return the layer with a formula that is grown from a seed formula."""
        linears = 1 if self.stage == "stage2" else len(IDS)
        widths = (
            self.start.hidden,
            self.start.count_inner_channels(layer),
            self.start.mismatch,
        )
        return replace(
            layer,
            formula=change_formula_at_random(
                seed_formula, TRIES[self.stage], linears, draw_uniform, *widths
            ),
        )

    def mutate_net(self, net: Net, rng: np.random.Generator) -> Net:
        """Return a network with one layer changed, in its id or its formula.

        Where no other id is in the window it is a fresh draw.
        """
        if (
            self.searched_parts[int(rng.integers(len(self.searched_parts)))]
            == "formula"
        ):
            i, dice = int(rng.integers(len(net.layers))), _make_uniform_generator(rng)
            return self._replace_layer(
                net, i, self._grow_formula(net.layers[i], net.layers[i].formula, dice)
            )
        near = self._list_neighbours(net)
        return (
            self._replace_layer(net, *near[int(rng.integers(len(near)))])
            if near
            else self.draw_candidate(rng)
        )

    def _list_neighbours(self, net: Net) -> list[tuple[int, Layer]]:
        """Return the place and the layer of each possible change of one id.

        The change stays in the window and fits the formula.
        """
        return [
            (i, layer)
            for i, old in enumerate(net.layers)
            for id_ in IDS
            if id_ != (old.stack, old.q)
            and self._fits_formula(layer := _layer(old.formula, *id_))
            if self.is_in_window(self._replace_layer(net, i, layer))
        ]

    def _replace_layer(self, net: Net, layer_index: int, new_layer: Layer) -> Net:
        return replace(
            net,
            layers=(
                *net.layers[:layer_index],
                new_layer,
                *net.layers[layer_index + 1 :],
            ),
        )

    def pack_layers(self, net: Net) -> list[list[Any]]:
        """Return the layers of a candidate as plain JSON; all candidates share the
        rest."""
        return net.to_json()["layers"]

    def unpack_layers(self, packed_layers: list[list[Any]]) -> Net:
        """Return the candidate that `pack_layers` wrote."""
        return replace(
            self.start, layers=tuple(Layer(*layer) for layer in packed_layers)
        )

    def make_key(self, net: Net) -> str:
        """Return a text that is equal for networks that compute the same.

        The order of operands does not matter.
        """
        return " | ".join(
            f"{_sort_commutative_operands(l.formula)} {l.stack}_{l.q}"
            for l in net.layers
        )

    def make_features(self, nets: list[Net]) -> np.ndarray:
        """Return the features that samplers learn from, float [N, F], as coded.

        Each layer gives its prefix list as indices, padded with -1 to 20. A linear map
        has the index of its layer's id or, in stage 2, 0. Then come add, mul, max,
        gelu, ..., x, W1, W2. In stage 3 there are only the ids."""
        searched = self.searched_parts
        rows = [
            [
                _make_layer_features(l.formula, find_choice_number(l), searched)
                for l in net.layers
            ]
            for net in nets
        ]
        return np.array(rows, float).reshape(len(nets), -1)


_layer = lru_cache(maxsize=4096)(Layer)


def _make_uniform_generator(rng: np.random.Generator) -> Callable[[], float]:
    """Return f() -> uniform in [0, 1), seeded by a numpy Generator.

    Python's own generator is ten times as fast.
    """
    return random.Random(int(rng.integers(1 << 62))).random


@lru_cache(maxsize=4096)
def _is_valid_at_widths(formula: str, *widths: Any) -> bool:
    return is_valid_formula(language.parse(formula), *widths)


@lru_cache(maxsize=4096)
def _sort_commutative_operands(formula: str) -> str:
    return str(sort_commutative_operands(language.parse(formula)))


@lru_cache(maxsize=65536)
def _make_layer_features(
    formula: str, choice_id: int, searched_parts: tuple[str, ...]
) -> list[int]:
    """Return a layer's part of the features, as coded."""
    if "formula" not in searched_parts:
        return [choice_id]
    linear, others = (choice_id, len(IDS)) if "ids" in searched_parts else (0, 1)
    tokens = list_prefix_tokens(language.parse(formula))
    names = (*BINARY, *UNARY, *TERMINALS)
    indices = [linear if t == "linear" else others + names.index(t) for t in tokens]
    return indices + [-1] * (NODES - len(indices))


def from_json(space_json: Json) -> Space:
    """Return the Space from what `identity` returned."""
    fields = {name: value for name, value in space_json.items() if name != "grammar"}
    return Space(**fields | {"start": read_net(space_json["start"])})
