"""EfficientBERT's networks in torch (section 3.1): stacked feed-forward networks of any formula,
and the embedding of neighbouring tokens.

Shapes: B batch, T tokens, H hidden, L layers, V vocabulary; D the width that ratios refer to,
e = int(D / q) inner channels, k stacked networks of a layer (lib.search.net).
"""

from functools import partial

import torch
from torch import nn
from torch.nn import functional

from .formula import OPERATIONS, evaluate, parse
from .parts import base, layers, size

FUNCTIONS = {name: partial(op.torch, torch) for name, op in OPERATIONS.items()} | {
    "pad": lambda a, count, value: functional.pad(a, (0, count), value=value)
}


class Network(nn.Module):
    """One feed-forward network: the weights of f, dropout, LayerNorm."""

    def __init__(self, hidden, inner, eps, rate):
        super().__init__()
        self.W1, self.W2 = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.dropout, self.LayerNorm = nn.Dropout(rate), nn.LayerNorm(hidden, eps)

    def sliced(self, inner):
        """Return {name: linear map as a function of arrays}, with their first `inner` channels."""
        first, second = self.W1, self.W2
        if inner < first.out_features:
            first = partial(functional.linear, weight=first.weight[:inner], bias=first.bias[:inner])
            second = partial(functional.linear, weight=second.weight[:, :inner], bias=second.bias)
        return {"W1": first, "W2": second}


class Norm(nn.Module):
    """The LayerNorm that ends the active part of a stack: one place for hooks (lib.model.taps)."""

    def __init__(self, stack):
        super().__init__()
        self.stack = [stack]  # in a list: not a submodule

    def forward(self, x):
        stack = self.stack[0]
        return stack.networks[stack.active - 1].LayerNorm(x)


class Stack(nn.Module):
    """In place of a layer's output block: k times LayerNorm(x + dropout(f(x))).

    Each network has its own weights. The block before the stack lets x [B, T, H] pass.
    """

    def __init__(self, hidden, inner, count, eps, rate):
        super().__init__()
        own = hidden, inner, eps, rate
        self.networks = nn.ModuleList(Network(*own) for _ in range(count))
        self.LayerNorm = Norm(self)

    def use(self, formula, count, inner, mismatch):
        """Run a formula, given as text, in the first `count` networks and their first `inner`
        channels. Raises ValueError where the stack is smaller.
        """
        there = self.networks[0].W1.out_features
        if count > len(self.networks) or inner > there:
            found = f"a stack of {len(self.networks)} networks of {there} channels"
            raise ValueError(f"{found} cannot run {count} of {inner}: choose a smaller net")
        self.tree, self.active = parse(formula), count
        self.inner, self.mismatch = inner, mismatch

    def forward(self, _, x):
        for number, network in enumerate(self.networks[: self.active], 1):
            linears = network.sliced(self.inner)
            found = evaluate(self.tree, x, linears, FUNCTIONS, self.mismatch)
            x = x + network.dropout(found)
            x = self.LayerNorm(x) if number == self.active else network.LayerNorm(x)
        return x


class Trigram(nn.Module):
    """Token embeddings of three neighbours: [B, T] to [B, T, H] (MobileBERT).

    Rows of a narrow table for the next token, the token and the one before, zero past either end,
    go side by side through a dense layer. The padding's row is zero and stays so, unlike in the
    code: how far a batch is padded then changes nothing.
    """

    def __init__(self, vocabulary, width, hidden, padding):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocabulary, width, padding_idx=padding)
        self.dense = nn.Linear(3 * width, hidden)

    def forward(self, ids):
        x = self.word_embeddings(ids)
        after = functional.pad(x[:, 1:], (0, 0, 0, 1))
        before = functional.pad(x[:, :-1], (0, 0, 1, 0))
        return self.dense(torch.cat((after, x, before), -1))


def trigram(model, width):
    """Operation: put a Trigram, its table `width` wide, in place of the token table.

    Returns {"parameters": change}.
    """
    embeddings = base(model).embeddings
    old = embeddings.word_embeddings
    new = draw(Trigram(old.num_embeddings, width, model.config.hidden_size, old.padding_idx), model)
    embeddings.word_embeddings = new
    return {"parameters": size(new)["parameters"] - size(old)["parameters"]}


def stack(model, net):
    """Operation: put the stacks of a net in place of the feed-forward networks.

    net: {"hidden", "width", "heads", "mismatch", "layers"}, where a layer is a formula, the number
    of its networks and the divisor of the width (JSON of a Net of lib.search.net). Weights come
    from torch's random state. Returns {"networks", "parameters": change}. The model is built for
    the net (lib.model.supernet).
    """
    config, before = model.config, size(model)["parameters"]
    rates = config.layer_norm_eps, config.hidden_dropout_prob
    for layer, (formula, count, q) in zip(layers(model), net["layers"], strict=True):
        inner = net["width"] // q
        layer.intermediate = nn.Identity()
        layer.output = draw(Stack(net["hidden"], inner, count, *rates), model)
        layer.output.use(formula, count, inner, net["mismatch"])
    return {
        "networks": sum(count for _, count, _ in net["layers"]),
        "parameters": size(model)["parameters"] - before,
    }


def draw(module, model):
    """Return the module with weights N(0, range of the model's configuration), on the model's
    device.
    """
    for part in module.modules():
        if isinstance(part, (nn.Linear, nn.Embedding)):
            nn.init.normal_(part.weight, 0.0, model.config.initializer_range)
            if isinstance(part, nn.Linear):
                nn.init.zeros_(part.bias)
            elif part.padding_idx is not None:
                part.weight.data[part.padding_idx].zero_()
    return module.to(next(model.parameters()))
