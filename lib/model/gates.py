"""This module puts gates on an encoder: trained masks between 0 and 1, by which an
architecture search decides what to prune (report on NAS pruning, sections 5.1, 5.3 and
7.2).

    region       one logit alpha for each         what its mask multiplies
    "heads"      head                             its context, before the output projection
    "ffn"        feed-forward neuron              its activation
    "embedding"  input of a layer's Q, K and V    that input of all three; the residual stays whole
    "qk"         dimension of queries and keys    that dimension of the query, and so its product
                                                  with the key
    "v"          dimension of values              that dimension of the context

The region "qkv" is "qk" and "v" together.

The mask is sigmoid(alpha), and alpha starts at 5. The mask is multiplied into the
weight matrix that reads or computes what is masked: this is the same function as a
product with the activation, and cheaper. The operation "gates" attaches gates, so that
a model is saved and loaded with its gates."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from .options import START, LayerAndGateKind, Refused
from .parts import (
    AnyModule,
    build_linear_layer,
    get_layers,
    get_recorded_model_changes,
)
from .places import FFN2, OUT, QKV, QUERY

GateRegion = str  # What is gated: "heads", "ffn", "embedding" or "qkv".
GateCountByKind = dict[str, int]


class GatePlan(NamedTuple):
    """A GatePlan tells where a layer gets gates (trained masks) of one kind.

    A kind is what the gates mask, such as "heads" or "ffn" (neurons).

    gate_count: the number of gates.
    channels_per_gate: the number of consecutive channels that each gate masks, such as
    a head size.
    side_by_path: {path of a linear layer inside the transformer layer: "inputs" or
    "outputs"}, which says where that linear layer is masked."""

    gate_count: int
    channels_per_gate: int
    side_by_path: dict[str, str]


class GatedLinear(nn.Linear):
    """A GatedLinear is a linear layer with trained masks (gates) on its inputs or
    outputs.

    A mask is sigmoid(alpha) for a trained logit alpha. It is multiplied into the
    weight. An architecture search then prunes what has a small mask.

    linear: the linear layer, whose weight and bias are used without a copy.
    gate_logits_by_kind: {kind of gate, such as "heads": logits [number of gates]}. The
    transformer layer owns these parameters, because several linear layers share them.
    kind_and_width_by_side: keyword arguments `inputs` and `outputs`, one or both, for
    the sides that are masked. Each value is (kind of gate, number of consecutive inputs
    or outputs that one gate masks)."""

    def __init__(
        self,
        linear: nn.Linear,
        gate_logits_by_kind: nn.ParameterDict,
        **kind_and_width_by_side: tuple[str, int],
    ) -> None:
        outputs, inputs = linear.weight.shape
        super().__init__(inputs, outputs, linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        # The gate logits are parameters of the transformer layer. torch does not look
        # for parameters in lists, so this module does not register them a second time.
        self.alphas, self.sides = [gate_logits_by_kind], kind_and_width_by_side
        self.train(linear.training)

    # pyrefly: ignore[bad-override-param-name]  Modules are called by position.
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.weight, self.bias
        for side, (kind, columns) in self.sides.items():
            mask = self.alphas[0][kind].sigmoid().repeat_interleave(columns)
            weight = weight * (mask if side == "inputs" else mask[:, None])
            if side == "outputs" and bias is not None:
                bias = bias * mask
        return functional.linear(x, weight, bias)


def plan_layer_gates(
    layer: AnyModule, regions: Iterable[GateRegion]
) -> dict[str, GatePlan]:
    """Return {kind: GatePlan}, the gates (trained masks) of one transformer layer.

    A GatePlan has the number of gates and the linear layers that they mask. The kinds
    are "heads", "ffn", "embedding", "qk" and "v", in a fixed order. Raises ValueError
    for something else to gate. Raises Refused for "heads" together with "qkv": both
    mask the inputs of the output projection.

    regions: what is gated: some of "heads", "ffn" (neurons), "embedding" (inputs of
    the query, key and value projections) and "qkv" (the dimensions "qk" of queries and
    keys, and "v" of values)."""
    attention = layer.attention.self
    heads, size = attention.num_attention_heads, attention.attention_head_size
    width, inputs = attention.value.out_features, attention.query.in_features
    # The order of this dict fixes the order in which parameters are added to the model.
    # Random numbers and saved optimizer states depend on that order.
    every = {
        "heads": {"heads": GatePlan(heads, size, {OUT: "inputs"})},
        "ffn": {"ffn": GatePlan(layer.output.dense.in_features, 1, {FFN2: "inputs"})},
        "embedding": {"embedding": GatePlan(inputs, 1, dict.fromkeys(QKV, "inputs"))},
        "qkv": {
            "qk": GatePlan(width, 1, {QUERY: "outputs"}),
            "v": GatePlan(width, 1, {OUT: "inputs"}),
        },
    }
    order = sorted(regions, key=list(every).index)
    if {"heads", "qkv"} <= {*order}:
        why = "both mask the inputs of the output projection"
        raise Refused(
            f"regions are {', '.join(order)}; 'heads' and 'qkv' {why}: take one"
        )
    return {kind: what for region in order for kind, what in every[region].items()}


def attach_gates(model: nn.Module, regions: Iterable[GateRegion]) -> GateCountByKind:
    """Put gates on every layer of a model in place, and return {kind: number of gates}.

    A gate is a trained mask sigmoid(alpha), with alpha = 5 at the start, by which an
    architecture search finds what to prune. The numbers are sums over all layers. This
    change is the operation named "gates" in the list of changes that is saved with a
    model.

    regions: what is gated: some of "heads", "ffn" (neurons), "embedding" (inputs of the
    query, key and value projections) and "qkv" (the dimensions "qk" of queries and
    keys, and "v" of values). "heads" and "qkv" exclude each other."""
    count: dict[str, int] = {}
    for layer in get_layers(model):
        planned = plan_layer_gates(layer, regions)
        places: dict[str, dict[str, tuple[str, int]]] = {}
        weight = layer.output.dense.weight
        layer.gates = nn.ParameterDict()
        for kind, (gates, columns, sides) in planned.items():
            layer.gates[kind] = nn.Parameter(weight.new_full((gates,), START))
            count[kind] = count.get(kind, 0) + gates
            for path, side in sides.items():
                places.setdefault(path, {})[side] = (kind, columns)
        for path, sides in places.items():
            layer.set_submodule(
                path, GatedLinear(layer.get_submodule(path), layer.gates, **sides)
            )
    return count


def remove_gates(model: nn.Module) -> None:
    """Remove all gates (trained masks of an architecture search) from a model in place.

    The weights stay unchanged: masks are not multiplied into them. So the model can be
    pruned and trained further after a search."""
    for layer in get_layers(model):
        for path in (*QKV, OUT, FFN2):
            if isinstance(part := layer.get_submodule(path), GatedLinear):
                # pyrefly: ignore[bad-argument-type]  torch types a Parameter as Tensor.
                plain = build_linear_layer(part.weight, part.bias).train(part.training)
                layer.set_submodule(path, plain)
        del layer.gates
    get_recorded_model_changes(model)[:] = [
        op for op in get_recorded_model_changes(model) if op["op"] != "gates"
    ]


def has_gates(model: nn.Module) -> bool:
    """Return whether a model has gates, the trained masks of an architecture search.

    Only the first layer is looked at, as all layers have gates or none has."""
    return hasattr(get_layers(model)[0], "gates")


def get_gate_logits(model: nn.Module) -> dict[LayerAndGateKind, nn.Parameter]:
    """Return the logits of a model's gates, the masks of an architecture search.

    The dict is {(number of the layer, kind): logits [number of gates]}, in the order of
    layers, then of kinds. Kinds are "heads", "ffn", "embedding", "qk" and "v". A mask
    is the sigmoid of its logit."""
    return {
        (number, kind): alpha
        for number, layer in enumerate(get_layers(model))
        for kind, alpha in layer.gates.items()
    }
