"""This module has the search space of each stage: which networks a stage may evaluate,
and how they are drawn, mutated and described by numbers.

See EfficientBERT, sections 3.1 and 3.2. What the paper leaves open is as in the public
code. A layer has k stacked feed-forward networks with 1/q of the full inner width; the
pair (k, q) is called its id, and there are 16.

    stage1   searches formulas and ids of all layers, from a base network.
    stage2   searches formulas alone, from the network that stage 1 found.
    stage3   searches ids alone, from the network that stage 2 found.
    single   searches the space of stage 1, in one search (the rival in Table 6).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeAlias

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
    UnitUniformNumber,
    convert_to_prefix_notation,
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
    CountingConvention,
    Layer,
    Net,
    count_ffn_parameters,
    count_net_parameters,
)
from lib.papers.efficientbert.search.net import from_json as read_net
from lib.papers.efficientbert.search.sizes import LayerChoicesWithinCostWindow

SearchStage: TypeAlias = Literal["stage1", "stage2", "stage3", "single"]
FormulaFfnCountAndWidthDivisor: TypeAlias = list[Any]  # [formula, k, q] of a layer.
FormulaOrSize: TypeAlias = str  # What a stage searches; ids are sizes (k, q).
LayerIndex: TypeAlias = int
SizeIndex: TypeAlias = int  # 0 to 15.
SpaceDescriptor = Json  # What Space.to_json returns.
BOTH = ("formula", "ids")
SEARCHED = {"stage1": BOTH, "stage2": ("formula",), "stage3": ("ids",), "single": BOTH}
# {stage of the search: number of tries}. A mutation changes a formula at random until
# the result is valid. After this number of invalid results the formula stays as it is.
TRIES = {"stage1": 1000, "stage2": 400, "single": 1000}
ENDLESS = 1 << 60  # Stands for "no limit"; no network has so many parameters.
IDS = tuple((k, q) for k in STACKS for q in QS)


def make_grammar_json(stage: SearchStage) -> Json:
    """Return the rules for formulas and sizes of FFNs in a stage of the search.

    The formula of a feed-forward network (FFN) is text such as "W2 gelu(W1 x)". The
    rules are plain JSON: {"operations", "stacks" (numbers k of stacked FFNs), "ratios"
    (divisors q of their inner width): lists of what is allowed, "heights": least and
    most height of a formula's tree, "nodes": most symbols of a formula, "depth": most
    depth of a random subtree, "tries": random changes before a formula stays as it is}.
    They are part of the identity of a search, so that a search under other rules counts
    as another one.

    stage: "stage1" (formulas and sizes), "stage2" (formulas), "stage3" (sizes) or
    "single" (as stage 1, in one search)."""
    return {
        "operations": list(TABLE_1),
        "stacks": list(STACKS),
        "ratios": list(QS),
        "heights": list(HEIGHTS),
        "nodes": NODES,
        "depth": DEPTH,
        "tries": TRIES.get(stage, 0),
    }


def find_index_of_layer_size(layer: Layer) -> SizeIndex:
    """Return the index, 0 to 15, of a layer's size among the 16 sizes of the search.

    A size is (k, q): k stacked feed-forward networks with 1/q of the full inner width,
    with k and q from 1 to 4. The index is 4 (k - 1) + q - 1. Raises ValueError for
    another size."""
    return IDS.index((layer.stack, layer.q))


@dataclass(frozen=True)
class Space:
    """A Space is the set of networks that an architecture search may evaluate.

    It draws, mutates and compares networks of the set. Each layer has a size (k, q), k
    stacked feed-forward networks (FFNs) with 1/q of the full inner width, and a formula
    of these, such as "W2 gelu(W1 x)". Raises Refused for an unknown stage, and where no
    network has an allowed number of parameters. As in EfficientBERT's code, stage 2 has
    no limit, because it does not change sizes.

    stage: "stage1" and "single" search formulas and sizes, "stage2" formulas, "stage3"
    sizes.
    start: the network from which the search starts. Candidates have its hidden size,
    full inner width and depth. Where the stage does not search the formulas of layers,
    or their sizes, candidates have those of `start`.
    low, high: least and most parameters of a candidate; 0 for no limit.
    convention: how parameters are counted, such as "with projection" (with the linear
    map from the hidden size to the teacher's).
    tables: sizes of the embedding tables and hidden size of the teacher, for the count.
    Like `convention` they are arguments of search.net.count_net_parameters."""

    stage: SearchStage
    start: Net
    low: int = 0
    high: int = 0
    convention: CountingConvention = "with projection"
    tables: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_known_name("search stage", self.stage, SEARCHED)
        if not self.count_layer_size_combinations():
            window = f"{self.low:,} to {self.high:,} parameters ({self.convention})"
            raise Refused(f"no candidate has {window}: move the window")

    @property
    def searched_layer_properties(self) -> tuple[FormulaOrSize, ...]:
        """Return what this stage of the search changes in a layer.

        "formula" is the formula of the feed-forward networks, "ids" is their number and
        width. "stage1" and "single" change both, "stage2" the formula, "stage3" the
        ids."""
        return SEARCHED[self.stage]

    def to_json(self) -> SpaceDescriptor:
        """Return this set of networks as plain JSON, which `from_json` reads.

        Equal sets have equal JSON. A search writes this JSON into the first line of its
        history file, so that the file of another search is recognised. The entry
        "grammar" has the rules for formulas of feed-forward networks
        (`make_grammar_json`)."""
        return asdict(self) | {
            "start": self.start.to_json(),
            "grammar": make_grammar_json(self.stage),
        }

    def count_net_parameters(self, net: Net) -> int:
        """Return the number of parameters of a network.

        It is to be compared with the bounds `low` and `high`, so it is counted by the
        convention and the embedding sizes of this space."""
        return count_net_parameters(net, self.convention, **self.tables)

    @cached_property
    def allowed_size_indices_by_layer(self) -> Sequence[Sequence[SizeIndex]]:
        """Return for each layer the indices (0 to 15) of the sizes that it may have.

        A size is (k, q): k stacked feed-forward networks with 1/q of the full inner
        width; its index is 4 (k - 1) + q - 1. Where formulas are searched too, all 16
        are allowed. Else a size is allowed only if at its inner width the formula of
        the networks, such as W2 gelu(W1 x), is valid. In stage 2, which does not change
        sizes, nothing uses the result (all 16)."""
        layers = self.start.layers
        if "formula" in self.searched_layer_properties:
            return [range(len(IDS))] * len(layers)
        return [
            [
                i
                for i, (k, q) in enumerate(IDS)
                if self._is_formula_computable_at_layer_width(replace(l, stack=k, q=q))
            ]
            for l in layers
        ]

    def _is_formula_computable_at_layer_width(self, candidate_layer: Layer) -> bool:
        """Return whether a layer's formula is valid at the layer's inner width.

        The formula is that of the feed-forward networks, such as "W2 gelu(W1 x)". In
        some formulas W2 gets the right number of channels only at some inner widths.

        candidate_layer: a layer with a formula and a size."""
        return is_valid_formula(
            candidate_layer.formula_tree,
            self.start.hidden,
            self.start.count_inner_channels(candidate_layer),
            self.start.mismatch,
        )

    @cached_property
    def layer_size_combinations_within_parameter_bounds(
        self,
    ) -> LayerChoicesWithinCostWindow:
        """Return an object that counts and draws the sizes of all layers.

        A layer's size is its number of feed-forward networks and their width. Only
        networks with `low` to `high` parameters count. A draw has an index for each
        layer, into the list of its sizes in `allowed_size_indices_by_layer`."""
        d = self.start.hidden
        inner = self.start.count_inner_channels
        counts = [k * count_ffn_parameters(d, inner(Layer(BERT, k, q))) for k, q in IDS]
        costs = [
            [counts[i] for i in indices]
            for indices in self.allowed_size_indices_by_layer
        ]
        # Outside of the feed-forward networks all networks have as many parameters.
        others = self.count_net_parameters(self.start) - sum(
            counts[find_index_of_layer_size(l)] for l in self.start.layers
        )
        return LayerChoicesWithinCostWindow(
            costs, self.low - others, (self.high or ENDLESS) - others
        )

    def is_within_parameter_bounds(self, net: Net) -> bool:
        """Return whether a network has `low` to `high` parameters.

        In stage 2, which does not change sizes, the result is always True."""
        return (
            "ids" not in self.searched_layer_properties
            or self.low <= self.count_net_parameters(net) <= (self.high or ENDLESS)
        )

    def count_layer_size_combinations(self) -> int:
        """Count the ways to choose the sizes of all layers within the bounds.

        The network has to have `low` to `high` parameters. In stage 3 the result is the
        number of all candidates, as only sizes are searched. In stage 2 sizes are
        fixed, and it is 1. If it is 0, the space is empty."""
        return (
            self.layer_size_combinations_within_parameter_bounds.count_combinations()
            if "ids" in self.searched_layer_properties
            else 1
        )

    def list_starting_networks(self) -> list[Net]:
        """Return the networks that a search evaluates first, before it draws any.

        This is the network from which the search starts, as in EfficientBERT's code. In
        stage 2 of the search a second network follows. It differs in the feed-forward
        networks (FFNs), which all have BERT's formula W2 gelu(W1 x). Networks outside
        of the bounds of parameters are left out."""
        nets = [self.start]
        if self.stage == "stage2":
            plain = tuple(replace(l, formula=BERT) for l in self.start.layers)
            nets.append(replace(self.start, layers=plain))
        return [
            net for net in dict.fromkeys(nets) if self.is_within_parameter_bounds(net)
        ]

    def sample_candidate(self, rng: np.random.Generator) -> Net:
        """Draw a random network of this space, to be evaluated by a search.

        Sizes of layers are uniform over all choices within the bounds of parameters.
        Where formulas of feed-forward networks (FFNs) are searched, each is a random
        change of BERT's formula W2 gelu(W1 x). In stage 2 of the search a coin decides
        for each layer whether the change starts from BERT's formula or from the layer's
        formula in the network `start`. EfficientBERT's code draws sizes and formulas
        again until the number of parameters fits. In stage 1 that gives the same
        distribution, because the number does not depend on formulas. In stage 3 its
        code draws a layer's size in `start` twice as often as another; here all are
        equally likely, as the paper says."""
        layers = list(self.start.layers)
        if "ids" in self.searched_layer_properties:
            allowed = self.allowed_size_indices_by_layer
            combinations = self.layer_size_combinations_within_parameter_bounds
            drawn = combinations.sample_choice_of_each_layer(rng)
            layers = [
                _make_layer_once(l.formula, *IDS[indices[i]])
                for l, indices, i in zip(layers, allowed, drawn, strict=True)
            ]
        if "formula" in self.searched_layer_properties:
            dice = _make_uniform_generator(rng)
            both = self.stage == "stage2"
            seeds = [
                (l.formula, BERT)[int(dice() * 2)] if both else BERT for l in layers
            ]
            layers = [
                self._make_layer_with_mutated_formula(l, seed, dice)
                for l, seed in zip(layers, seeds, strict=True)
            ]
        return replace(self.start, layers=tuple(layers))

    def _make_layer_with_mutated_formula(
        self,
        layer: Layer,
        parent_formula: str,
        draw_uniform: Callable[[], UnitUniformNumber],
    ) -> Layer:
        """Return a copy of a layer whose formula is a random change of
        `parent_formula`.

        The formula is that of the layer's feed-forward networks. The layer gets
        `parent_formula` itself where no valid change is found.

        layer: the layer, whose width decides which changes are valid.
        parent_formula: text such as "W2 gelu(W1 x)".
        draw_uniform: f() -> random number, uniform in [0, 1)."""
        linears = 1 if self.stage == "stage2" else len(IDS)
        widths = (
            self.start.hidden,
            self.start.count_inner_channels(layer),
            self.start.mismatch,
        )
        return replace(
            layer,
            formula=mutate_formula(
                parent_formula, TRIES[self.stage], linears, draw_uniform, *widths
            ),
        )

    def mutate_net(self, net: Net, rng: np.random.Generator) -> Net:
        """Return a mutated copy of a network, for a search by evolution.

        One random layer gets another size (number and width of its feed-forward
        networks, FFNs) or another formula of its FFNs, such as W2 gelu(W1 x). Both have
        equal probability in a stage of the search that changes both. Where the size
        should change and no other size is possible, the result is a new random network.

        net: a network of this space."""
        searched = self.searched_layer_properties
        if searched[int(rng.integers(len(searched)))] == "formula":
            i = int(rng.integers(len(net.layers)))
            layer = net.layers[i]
            dice = _make_uniform_generator(rng)
            changed = self._make_layer_with_mutated_formula(layer, layer.formula, dice)
            return self._replace_layer(net, i, changed)
        near = self._list_networks_with_one_layer_resized(net)
        return (
            self._replace_layer(net, *near[int(rng.integers(len(near)))])
            if near
            else self.sample_candidate(rng)
        )

    def _list_networks_with_one_layer_resized(
        self, net: Net
    ) -> list[tuple[LayerIndex, Layer]]:
        """Return all possible changes of the size of a single layer of a network.

        The size is the number and width of the layer's feed-forward networks (FFNs). A
        change is (index of the layer, changed layer). The formula of the FFNs, such as
        W2 gelu(W1 x), must be valid at the new size, and the whole network must have
        `low` to `high` parameters. A mutation takes one of them."""
        return [
            (i, layer)
            for i, old in enumerate(net.layers)
            for id_ in IDS
            if id_ != (old.stack, old.q)
            and self._is_formula_computable_at_layer_width(
                layer := _make_layer_once(old.formula, *id_)
            )
            if self.is_within_parameter_bounds(self._replace_layer(net, i, layer))
        ]

    def _replace_layer(self, net: Net, layer_index: int, new_layer: Layer) -> Net:
        layers = list(net.layers)
        layers[layer_index] = new_layer
        return replace(net, layers=tuple(layers))

    def convert_json_layers_to_net(
        self, layers_json: list[FormulaFfnCountAndWidthDivisor]
    ) -> Net:
        """Return the network whose layers are given as [[formula, k, q], ...].

        A layer has k stacked feed-forward networks (FFNs) of 1/q of the full inner
        width, with a formula such as "W2 gelu(W1 x)". The history file of a search has
        layers in this form, that of `Net.to_json`. Widths and heads are those of the
        network from which the search starts."""
        return replace(self.start, layers=tuple(Layer(*layer) for layer in layers_json))

    def make_deduplication_key(self, net: Net) -> str:
        """Return a text that is equal for networks that differ only in operand order.

        A search compares these texts, so that it evaluates no network twice. A text has
        the formula, number and width of the feed-forward networks of each layer. The
        order of operands of add, mul and max does not matter. Formulas that are equal
        by other laws, such as (a + b) + c and a + (b + c), have different texts."""
        return " | ".join(
            f"{sort_commutative_operands(l.formula_tree)} {l.stack}_{l.q}"
            for l in net.layers
        )

    def compute_classifier_features(self, nets: list[Net]) -> np.ndarray:
        """Return features of N networks, float [N, F], on which classifiers are fitted.

        A classifier predicts from them which networks score well. The features are
        those of EfficientBERT's code: each layer gives 20 numbers, one for each symbol
        in the formula of its feed-forward networks (FFNs), such as W2 gelu(W1 x), in
        prefix order (operation before operands), then -1. A linear map gives the index,
        0 to 15, of the layer's size (number of stacked FFNs and their width). In search
        stage 2, where sizes are fixed, it gives 0. The other symbols (add, mul, max,
        gelu, ..., x, W1, W2) have numbers from 16 on, in stage 2 from 1 on. In stage 3,
        which searches sizes alone, a layer gives only the index of its size."""
        searched = self.searched_layer_properties
        rows = [
            [
                _encode_layer_features(l.formula, find_index_of_layer_size(l), searched)
                for l in net.layers
            ]
            for net in nets
        ]
        return np.array(rows, float).reshape(len(nets), -1)


_make_layer_once = lru_cache(maxsize=4096)(Layer)


def _make_uniform_generator(
    rng: np.random.Generator,
) -> Callable[[], UnitUniformNumber]:
    """Return f() -> random number, uniform in [0, 1), seeded by a numpy Generator.

    One number from Python's generator is ten times as fast as one from numpy's, and a
    search draws millions."""
    return random.Random(int(rng.integers(1 << 62))).random


@lru_cache(maxsize=65536)
def _encode_layer_features(
    formula: str,
    size_index: SizeIndex,
    searched_layer_properties: tuple[FormulaOrSize, ...],
) -> list[int]:
    """Return the integers that describe one layer to classifiers.

    They are a part of `Space.compute_classifier_features`. Where only sizes are
    searched, the list is [size_index]. Else it has 20 entries, a number for each symbol
    of `formula` in prefix order (operation before operands), then -1. A linear map has
    the number `size_index`, or 0 where sizes are not searched.

    formula: that of the feed-forward networks (FFNs), such as "W2 gelu(W1 x)".
    size_index: index, 0 to 15, of the layer's size (`find_index_of_layer_size`).
    searched_layer_properties: what a stage of the search changes, "formula", "ids"
    (sizes) or both."""
    if "formula" not in searched_layer_properties:
        return [size_index]
    linear, others = (
        (size_index, len(IDS)) if "ids" in searched_layer_properties else (0, 1)
    )
    tokens = convert_to_prefix_notation(language.parse_feed_forward_formula(formula))
    names = (*BINARY, *UNARY, *TERMINALS)
    indices = [linear if t == "linear" else others + names.index(t) for t in tokens]
    return indices + [-1] * (NODES - len(indices))


def from_json(space_json: SpaceDescriptor) -> Space:
    """Return the Space that `Space.to_json` wrote as JSON.

    A Space is the set of networks that an architecture search may evaluate. The entry
    "grammar", the rules for formulas of feed-forward networks, is not read."""
    fields = space_json | {"start": read_net(space_json["start"])}
    del fields["grammar"]
    return Space(**fields)
