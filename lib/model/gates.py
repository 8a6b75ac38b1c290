"""Gates: a trained mask on parts of an encoder, soft while a search runs (report on NAS pruning, sections 5.1, 5.3, 7.2).

    region       one alpha for each                what its mask multiplies
    "heads"      head                              its context, before the output projection
    "ffn"        feed-forward neuron               its activation
    "embedding"  input of a layer's Q, K and V     that input, of all three; the residual stays whole
    "qkv"        dimension of queries and keys     the query's, so that product and key go with it: h_q = h_k
                 ("qk"), dimension of values       its context, before the output projection
                 ("v")

The mask is sigmoid(alpha), alpha starts at 5. It is applied to the weight that reads or makes what is masked: the same
function, at the price of a product with a weight instead of one with an activation.
`operate(model, {"op": "gates", "regions": [...]})` attaches gates, so that a gated model is saved and loaded as one;
`detach` takes them off.

Shapes: A heads, D head size, H hidden, F neurons, L layers, O x I a weight.
"""

from torch import nn
from torch.nn import functional

from lib.measure import gated
from lib.model.backbone import layers
from lib.options import GATE_REGIONS, one_of
from lib.search.gates import encoder

QKV = tuple(f"attention.self.{name}" for name in ("query", "key", "value"))
OUT, NEURONS = "attention.output.dense", "output.dense"
NAMES = {"ffn": "neurons"}  # what the operation "keep" calls them


class Gated(nn.Linear):
    """A linear layer with masks on its inputs or outputs. sides: {"inputs" or "outputs": (kind, columns of a gate)};
    alphas: the layer's ParameterDict, in a list, as it is registered there."""

    def __init__(self, linear, alphas, **sides):
        super().__init__(
            linear.in_features, linear.out_features, linear.bias is not None, device="meta"
        )
        self.weight, self.bias = linear.weight, linear.bias
        self.alphas, self.sides = [alphas], sides
        self.train(linear.training)

    def forward(self, x):
        weight, bias = self.weight, self.bias
        for side, (kind, columns) in self.sides.items():
            mask = self.alphas[0][kind].sigmoid().repeat_interleave(columns)
            weight = weight * (mask if side == "inputs" else mask[:, None])
            if side == "outputs" and bias is not None:
                bias = bias * mask
        return functional.linear(x, weight, bias)


def plan(layer, regions):
    """{kind: (gates, columns of each, {linear layer: side})} of one layer."""
    attention = layer.attention.self
    heads, size, width = (
        attention.num_attention_heads,
        attention.attention_head_size,
        attention.value.out_features,
    )
    every = {
        "heads": {"heads": (heads, size, {OUT: "inputs"})},
        "ffn": {"ffn": (layer.output.dense.in_features, 1, {NEURONS: "inputs"})},
        "embedding": {"embedding": (attention.query.in_features, 1, dict.fromkeys(QKV, "inputs"))},
        "qkv": {"qk": (width, 1, {QKV[0]: "outputs"}), "v": (width, 1, {OUT: "inputs"})},
    }
    return {
        kind: what
        for region in GATE_REGIONS
        if region in regions
        for kind, what in every[region].items()
    }


def attach(model, regions):
    """Put gates on the regions (see the head of this file) of every layer. Returns {kind: number of gates}.

    Raises ValueError for a region that is not there, and where a layer has ghosts, gates or other changes already.
    """
    from lib.model.surgery import uncut

    for region in regions:
        one_of("gates", "regions", region, GATE_REGIONS)
    for number, layer in enumerate(layers(model)):
        uncut("gates", layer)
        for path in (*QKV, OUT, NEURONS):
            if type(part := layer.get_submodule(path)) is not nn.Linear:
                raise ValueError(
                    f"gates on layer {number}: its {path} is a {type(part).__name__}; put them on a model of plain "
                    "linear layers"
                )
    count = {}
    for layer in layers(model):
        places, weight = {}, layer.output.dense.weight
        layer.gates = nn.ParameterDict()
        for kind, (gates, columns, sides) in plan(layer, regions).items():
            layer.gates[kind] = nn.Parameter(weight.new_full((gates,), gated.START))
            count[kind] = count.get(kind, 0) + gates
            for path, side in sides.items():
                places.setdefault(path, {})[side] = (kind, columns)
        for path, sides in places.items():
            layer.set_submodule(path, Gated(layer.get_submodule(path), layer.gates, **sides))
    return count


def present(model):
    """Whether the model has gates."""
    return hasattr(layers(model)[0], "gates")


def alphas(model):
    """{(layer, kind): Parameter}, in a fixed order."""
    return {
        (number, kind): alpha
        for number, layer in enumerate(layers(model))
        for kind, alpha in layer.gates.items()
    }


def costs(model, regions):
    """({(layer, kind): gates}, f({(layer, kind): sum of masks}) -> FLOPs) of a search over these regions, gated already or
    not; see lib.search.gates."""
    sizes, whole = {}, []
    for number, layer in enumerate(layers(model)):
        sizes |= {(number, kind): gates for kind, (gates, _, _) in plan(layer, regions).items()}
        whole.append(
            {
                "heads": layer.attention.self.num_attention_heads,
                "ffn": layer.output.dense.in_features,
            }
        )
    return sizes, encoder(model.config.hidden_size, layer.attention.self.attention_head_size, whole)


def flops(model):
    """FLOPs of a model as it is, cut or whole, in the report's convention."""
    widths = []
    for layer in layers(model):
        query, _, value = (layer.get_submodule(path) for path in QKV)
        widths.append(
            {
                "heads": layer.attention.self.num_attention_heads,
                "ffn": layer.output.dense.in_features,
                "embedding": query.weight.shape[1],
                "qk": query.weight.shape[0],
                "v": value.weight.shape[0],
            }
        )
    return gated.flops(model.config.hidden_size, layer.attention.self.attention_head_size, widths)


def regions(model):
    """The regions that are gated, in the order of GATE_REGIONS."""
    kinds = set(layers(model)[0].gates)
    return tuple(
        region for region in GATE_REGIONS if (region if region != "qkv" else "qk") in kinds
    )


def ensure(model, wanted):
    """Gates on the wanted regions: those of a searched model go on, others are attached. Raises ValueError where the
    model has gates on other regions."""
    if not present(model):
        from lib.model.surgery import operate

        operate(model, {"op": "gates", "regions": list(wanted)})
    elif set(regions(model)) != set(wanted):
        raise ValueError(
            f"the checkpoint has gates on {', '.join(regions(model))}, the search is over {', '.join(wanted)}: "
            "start from a model without gates, or search the same regions"
        )
    return alphas(model)


def detach(model):
    """Take the gates off: the weights as they are, without masks."""
    for layer in layers(model):
        for path in (*QKV, OUT, NEURONS):
            if isinstance(part := layer.get_submodule(path), Gated):
                plain = nn.Linear(
                    part.in_features, part.out_features, part.bias is not None, device="meta"
                )
                plain.weight, plain.bias = part.weight, part.bias
                layer.set_submodule(path, plain.train(part.training))
        del layer.gates
    model.surgery = [op for op in model.surgery if op["op"] != "gates"]


def architecture(sizes, on):
    """{"heads": L lists of indices, "neurons": L lists, ...}: what the operation "keep" takes. sizes: {(layer, kind): gates},
    on: whether each is."""
    kept, start = {}, 0
    for (_, kind), number in sizes.items():
        kept.setdefault(NAMES.get(kind, kind), []).append(
            [i for i in range(number) if on[start + i]]
        )
        start += number
    return kept


class Thin(nn.Linear):
    """The chosen rows and columns of a linear layer, among inputs and outputs of the whole widths: it reads its columns
    alone, and the outputs of other rows are zero. A cut where heads lose different dimensions, which no smaller matrix
    could hold: the products inside attention keep their size (section 7.2.2)."""

    def __init__(self, linear, rows=None, columns=None):
        from lib.model.surgery import sliced

        small = sliced(linear, rows, columns)
        super().__init__(
            small.in_features, small.out_features, small.bias is not None, device="meta"
        )
        self.weight, self.bias, self.total = small.weight, small.bias, linear.out_features
        self.register_buffer("rows", rows, persistent=False)
        self.register_buffer("columns", columns, persistent=False)

    def forward(self, x):
        made = super().forward(x if self.columns is None else x.index_select(-1, self.columns))
        return (
            made
            if self.rows is None
            else made.new_zeros(*made.shape[:-1], self.total).index_copy(-1, self.rows, made)
        )


def thin(layer, embedding=None, qk=None, v=None):
    """Leave these inputs of Q, K and V, and these dimensions of queries and keys, and of values, in one layer."""
    for path, rows, columns in zip(
        (*QKV, OUT), (qk, qk, v, None), (*[embedding] * 3, v), strict=True
    ):
        if rows is not None or columns is not None:
            layer.set_submodule(path, Thin(layer.get_submodule(path), rows, columns))
