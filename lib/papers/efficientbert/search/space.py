"""This module has the search space of each stage: which networks a stage may evaluate,
and how they are drawn, mutated and described by numbers.

See EfficientBERT, sections 3.1 and 3.2. What the paper leaves open is as in the public
code. A layer has k stacked feed-forward networks with 1/q of the full inner width; the
pair (k, q) is called its id, and there are 16.

    stage1   searches formulas and ids of all layers, from a base network.
    stage2   searches formulas alone, from the network that stage 1 found.
    stage3   searches ids alone, from the network that stage 2 found.
    single   searches the space of stage 1 with the whole budget (the rival in Table 6).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from lib.core.names import Refused, check_known_name
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
    list_prefix_tokens,
    mutate_formula,
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

Grammar = Json  # Rules by which a stage makes formulas and sizes.
SpaceDescriptor = Json  # What Space.to_json returns.
LayerChange = tuple[int, Layer]  # (index of the layer, changed layer).
LayersJson = list[list[Any]]  # (formula, networks k, divisor q) of each layer.
BOTH = ("formula", "ids")
SEARCHED = {"stage1": BOTH, "stage2": ("formula",), "stage3": ("ids",), "single": BOTH}
# A formula is changed at random until it is valid. After this number of invalid changes
# it stays as it is.
TRIES = {"stage1": 1000, "stage2": 400, "single": 1000}
ENDLESS = 1 << 60  # Stands for "no limit"; no network has so many parameters.
IDS = tuple((k, q) for k in STACKS for q in QS)


def make_grammar(stage: str) -> Grammar:
    """Return the rules by which a stage makes formulas and sizes, as plain JSON.

    They go into the identity of a search, so a search under other rules is not taken
    for the same one."""
    rules = {"operations": TABLE_1, "stacks": STACKS, "ratios": QS, "heights": HEIGHTS}
    rules = {name: list(values) for name, values in rules.items()}
    return rules | {"nodes": NODES, "depth": DEPTH, "tries": TRIES.get(stage, 0)}


def find_size_index(layer: Layer) -> int:
    """Return the number of a layer's id (k, q) among the 16: 4 (k - 1) + q - 1.

    Raises ValueError for another id."""
    return IDS.index((layer.stack, layer.q))


@dataclass(frozen=True)
class Space:
    """A Space is the set of networks that a stage of the search may evaluate.

    As in the authors' code, stage 2 has no limit of size, because it does not change
    the ids. Raises Refused where no network is in the window."""

    stage: str
    # Network that the search starts from. Candidates have its widths and depth. Where the
    # stage does not search the layers' formulas, or their ids (the choices of the number
    # of stacked FFNs and of their inner width), candidates have the start's.
    start: Net
    low: int = 0  # Least parameters of a candidate.
    high: int = 0  # Most parameters of a candidate; 0 for no limit.
    # How parameters are counted, and the sizes of the embedding tables: arguments of
    # search.net.count_net_parameters.
    convention: str = "with projection"
    tables: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_known_name("search stage", self.stage, SEARCHED)
        if not self.count_size_choices():
            window = f"{self.low:,} to {self.high:,} parameters ({self.convention})"
            raise Refused(f"no candidate has {window}: move the window")

    @property
    def searched_dimensions(self) -> tuple[str, ...]:
        """Return what this stage of the search changes in a layer: "formula" (that of
        its feed-forward networks), "ids" (their number and width) or both."""
        return SEARCHED[self.stage]

    def to_json(self) -> SpaceDescriptor:
        """Return this space as plain JSON, which `from_json` reads. Equal spaces have
        equal JSON, so a search is found again by it."""
        return asdict(self) | {
            "start": self.start.to_json(),
            "grammar": make_grammar(self.stage),
        }

    def count_net_parameters(self, net: Net) -> int:
        """Return the number of parameters of a network, counted as for the limits `low`
        and `high`."""
        return count_net_parameters(net, self.convention, **self.tables)

    @cached_property
    def ffn_parameters_by_size(self) -> list[int]:
        """Return the number of parameters of a layer's feed-forward networks for each
        of the 16 ids (k, q)."""
        d, inner = self.start.hidden, self.start.count_inner_channels
        return [k * ffn_parameters(d, inner(Layer(BERT, k, q))) for k, q in IDS]

    @cached_property
    def parameters_without_ffns(self) -> int:
        """Return the number of parameters of a candidate without its feed-forward
        networks. It is the same for all candidates."""
        return self.count_net_parameters(self.start) - sum(
            self.ffn_parameters_by_size[find_size_index(l)] for l in self.start.layers
        )

    @cached_property
    def allowed_size_indices_by_layer(self) -> Sequence[Sequence[int]]:
        """Return for each layer the numbers (0 to 15) of the ids (k, q) that it may
        have.

        All 16 are allowed where formulas are searched too. Else they must fit the
        layer's formula, whose operands depend on the inner width."""
        layers = self.start.layers
        if "formula" in self.searched_dimensions:
            return [range(len(IDS))] * len(layers)
        return [
            [
                i
                for i, (k, q) in enumerate(IDS)
                if self._fits_inner_width(replace(l, stack=k, q=q))
            ]
            for l in layers
        ]

    def _fits_inner_width(self, candidate_layer: Layer) -> bool:
        """Return whether a layer's formula is valid at the inner width of its id."""
        return _is_valid_at_layer_sizes(
            candidate_layer.formula,
            self.start.hidden,
            self.start.count_inner_channels(candidate_layer),
            self.start.mismatch,
        )

    @cached_property
    def size_choices_within_bounds(self) -> LayerChoices:
        """Return the ways to choose the size of each layer (its number of stacked
        networks and their width) such that the whole network has `low` to `high`
        parameters: an object that counts them and draws one."""
        costs = [
            [self.ffn_parameters_by_size[i] for i in layer_choices]
            for layer_choices in self.allowed_size_indices_by_layer
        ]
        return LayerChoices(
            costs,
            self.low - self.parameters_without_ffns,
            (self.high or ENDLESS) - self.parameters_without_ffns,
        )

    def is_within_parameter_bounds(self, net: Net) -> bool:
        """Return whether a network has `low` to `high` parameters.

        In stage 2, which does not change sizes, every network counts as inside."""
        return (
            "ids" not in self.searched_dimensions
            or self.low <= self.count_net_parameters(net) <= (self.high or ENDLESS)
        )

    def count_size_choices(self) -> int:
        """Return in how many ways the layers' ids can be chosen such that the size is
        in the window.

        In stage 3 it is the number of candidates. In stage 2, where ids are fixed, it
        is 1."""
        return (
            self.size_choices_within_bounds.count_combinations()
            if "ids" in self.searched_dimensions
            else 1
        )

    def list_starting_networks(self) -> list[Net]:
        """Return the networks that a search evaluates first, before it draws any.

        It is the network that the search starts from, as in the authors' code. In stage
        2 it is also that network with BERT's formula in every layer."""
        plain = tuple(replace(l, formula=BERT) for l in self.start.layers)
        nets = (self.start, replace(self.start, layers=plain))[
            : 1 + (self.stage == "stage2")
        ]
        return [
            net for net in dict.fromkeys(nets) if self.is_within_parameter_bounds(net)
        ]

    def draw_candidate(self, rng: np.random.Generator) -> Net:
        """Return a random network of this space.

        Ids are uniform over all choices in the size window. Formulas are random changes
        of BERT's formula or, in stage 2, of the layer's formula in half of the draws.
        The authors' code draws ids and formulas again until the size fits, which gives
        the same distribution, since a formula does not change the size."""
        ids = [find_size_index(l) for l in self.start.layers]
        if "ids" in self.searched_dimensions:
            ids = [
                layer_choices[i]
                for layer_choices, i in zip(
                    self.allowed_size_indices_by_layer,
                    self.size_choices_within_bounds.draw_choices(rng),
                    strict=True,
                )
            ]
        chosen = zip(self.start.layers, (IDS[i] for i in ids), strict=True)
        layers = [_make_layer_once(l.formula, *id_) for l, id_ in chosen]
        if "formula" in self.searched_dimensions:
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
        """Return a layer with a random change of `seed_formula`, or with `seed_formula`
        itself where no change is valid.

        draw_uniform: f() -> random number in [0, 1)."""
        linears = 1 if self.stage == "stage2" else len(IDS)
        widths = (
            self.start.hidden,
            self.start.count_inner_channels(layer),
            self.start.mismatch,
        )
        return replace(
            layer,
            formula=mutate_formula(
                seed_formula, TRIES[self.stage], linears, draw_uniform, *widths
            ),
        )

    def mutate_net(self, net: Net, rng: np.random.Generator) -> Net:
        """Return a copy of a network in which one random layer has a new id or a new
        formula.

        Where the id should change but no other id is possible, it is a new random
        network."""
        if (
            self.searched_dimensions[int(rng.integers(len(self.searched_dimensions)))]
            == "formula"
        ):
            i, dice = int(rng.integers(len(net.layers))), _make_uniform_generator(rng)
            return self._replace_layer(
                net, i, self._grow_formula(net.layers[i], net.layers[i].formula, dice)
            )
        near = self._list_size_changes_of_one_layer(net)
        return (
            self._replace_layer(net, *near[int(rng.integers(len(near)))])
            if near
            else self.draw_candidate(rng)
        )

    def _list_size_changes_of_one_layer(self, net: Net) -> list[LayerChange]:
        """Return (index of the layer, changed layer) for each change of a single
        layer's id that keeps the size in the window and fits the layer's formula."""
        return [
            (i, layer)
            for i, old in enumerate(net.layers)
            for id_ in IDS
            if id_ != (old.stack, old.q)
            and self._fits_inner_width(layer := _make_layer_once(old.formula, *id_))
            if self.is_within_parameter_bounds(self._replace_layer(net, i, layer))
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

    def convert_layers_to_json(self, net: Net) -> LayersJson:
        """Return the layers of a candidate as plain JSON, for the history file. What
        candidates share is left out."""
        return net.to_json()["layers"]

    def convert_json_to_net(self, layers_json: LayersJson) -> Net:
        """Return the candidate whose layers `convert_layers_to_json` wrote."""
        return replace(self.start, layers=tuple(Layer(*layer) for layer in layers_json))

    def make_duplicate_key(self, net: Net) -> str:
        """Return a text that is equal for networks that compute the same, so that a
        search evaluates none twice.

        The order of operands of add, mul and max does not matter."""
        return " | ".join(
            f"{_sort_commutative_operands(l.formula)} {l.stack}_{l.q}"
            for l in net.layers
        )

    def make_features(self, nets: list[Net]) -> np.ndarray:
        """Return features of N networks on which a sampler fits its classifiers, float
        [N, F], as in the authors' code.

        Each layer gives its formula's prefix list as numbers, padded with -1 to 20
        entries. A linear map is written as the number (0 to 15) of the layer's size: its
        number of stacked networks and their expansion ratio. In stage 2, where sizes
        are fixed, it is 0. The other symbols (add, mul, max, gelu, ..., x, W1, W2) have
        the numbers that follow. In stage 3 a layer gives the number of its size
        alone."""
        searched = self.searched_dimensions
        rows = [
            [
                _encode_layer_features(l.formula, find_size_index(l), searched)
                for l in net.layers
            ]
            for net in nets
        ]
        return np.array(rows, float).reshape(len(nets), -1)


_make_layer_once = lru_cache(maxsize=4096)(Layer)


def _make_uniform_generator(rng: np.random.Generator) -> Callable[[], float]:
    """Return f() -> random number, uniform in [0, 1), seeded by a numpy Generator.

    One number from Python's generator is ten times as fast as one from numpy's, and a
    search draws millions."""
    return random.Random(int(rng.integers(1 << 62))).random


@lru_cache(maxsize=4096)
def _is_valid_at_layer_sizes(
    formula: str, hidden_size: int, inner_size: int, size_mismatch: str
) -> bool:
    tree = language.parse(formula)
    return is_valid_formula(tree, hidden_size, inner_size, size_mismatch)


@lru_cache(maxsize=4096)
def _sort_commutative_operands(formula: str) -> str:
    return str(sort_commutative_operands(language.parse(formula)))


@lru_cache(maxsize=65536)
def _encode_layer_features(
    formula: str, size_index: int, searched_dimensions: tuple[str, ...]
) -> list[int]:
    """Return the numbers that describe one layer (see `Space.make_features`).

    size_index: the number of the layer's id, 0 to 15.
    searched_dimensions: "formula", "ids" or both."""
    if "formula" not in searched_dimensions:
        return [size_index]
    linear, others = (size_index, len(IDS)) if "ids" in searched_dimensions else (0, 1)
    tokens = list_prefix_tokens(language.parse(formula))
    names = (*BINARY, *UNARY, *TERMINALS)
    indices = [linear if t == "linear" else others + names.index(t) for t in tokens]
    return indices + [-1] * (NODES - len(indices))


def from_json(space_json: SpaceDescriptor) -> Space:
    """Return the Space that `Space.to_json` wrote as JSON."""
    fields = {name: value for name, value in space_json.items() if name != "grammar"}
    return Space(**fields | {"start": read_net(space_json["start"])})
