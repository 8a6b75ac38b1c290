"""Gates: trained masks on parts of an encoder, soft while a search runs (report on NAS pruning,
sections 5.1, 5.3, 7.2).

    region       one alpha for each               what its mask multiplies
    "heads"      head                             its context, before the output projection
    "ffn"        feed-forward neuron              its activation
    "embedding"  input of a layer's Q, K and V    that input of all three; the residual stays whole
    "qkv"        dimension of queries and keys    the query's; the product with the key goes too:
                 ("qk"), dimension of values      h_q = h_k. Of values the context, before the
                 ("v")                            output projection

The mask is sigmoid(alpha), and alpha starts at 5. The mask multiplies the weight that reads or
makes the masked part: the same function, but a product with a weight is cheaper than one with an
activation. The operation "gates" attaches gates, so a gated model is saved and loaded as one.

Shapes: A heads, D head size, H hidden, F neurons, L layers, O x I a weight.
"""

from torch import nn
from torch.nn import functional

from .options import START
from .parts import FFN2, OUT, QKV, layers, linear, surgery


class Gated(nn.Linear):
    """A linear layer with masks on its inputs or outputs.

    sides: {"inputs" or "outputs": (kind, columns of a gate)}. alphas: the ParameterDict of the
    layer, in a list because it is registered there and not here.
    """

    def __init__(self, linear, alphas, **sides):
        super().__init__(*linear.weight.shape[::-1], linear.bias is not None, device="meta")
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
    """Return {kind: (gates, columns of each, {linear layer: side})} of one layer."""
    attention, query = layer.attention.self, QKV[0]
    heads, size = attention.num_attention_heads, attention.attention_head_size
    width, inputs = attention.value.out_features, attention.query.in_features
    every = {  # in the order of their alphas
        "heads": {"heads": (heads, size, {OUT: "inputs"})},
        "ffn": {"ffn": (layer.output.dense.in_features, 1, {FFN2: "inputs"})},
        "embedding": {"embedding": (inputs, 1, dict.fromkeys(QKV, "inputs"))},
        "qkv": {"qk": (width, 1, {query: "outputs"}), "v": (width, 1, {OUT: "inputs"})},
    }
    order = sorted(regions, key=list(every).index)
    return {kind: what for region in order for kind, what in every[region].items()}


def attach(model, regions):
    """Operation: put gates on the regions of every layer. Returns {kind: number of gates}."""
    count = {}
    for layer in layers(model):
        places, weight = {}, layer.output.dense.weight
        layer.gates = nn.ParameterDict()
        for kind, (gates, columns, sides) in plan(layer, regions).items():
            layer.gates[kind] = nn.Parameter(weight.new_full((gates,), START))
            count[kind] = count.get(kind, 0) + gates
            for path, side in sides.items():
                places.setdefault(path, {})[side] = (kind, columns)
        for path, sides in places.items():
            layer.set_submodule(path, Gated(layer.get_submodule(path), layer.gates, **sides))
    return count


def detach(model):
    """Take the gates off and leave the weights as they are, without masks."""
    for layer in layers(model):
        for path in (*QKV, OUT, FFN2):
            if isinstance(part := layer.get_submodule(path), Gated):
                layer.set_submodule(path, linear(part.weight, part.bias).train(part.training))
        del layer.gates
    surgery(model)[:] = [op for op in surgery(model) if op["op"] != "gates"]


def present(model):
    """Return whether the model has gates."""
    return hasattr(layers(model)[0], "gates")


def alphas(model):
    """Return {(layer, kind): Parameter}, in a fixed order."""
    return {
        (number, kind): alpha
        for number, layer in enumerate(layers(model))
        for kind, alpha in layer.gates.items()
    }
