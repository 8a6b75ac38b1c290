"""EfficientBERT's networks in torch (section 3.1): stacked feed-forward networks of any formula, and the embedding of
neighbouring tokens; a supernet of which parts run; and the inheritance of weights from larger to smaller.

Shapes: B batch, T tokens, H hidden, L layers, V vocabulary; D the width that ratios refer to, e = int(D / q) inner
channels, k stacked networks of a layer (lib.search.net).
"""

import copy
import re
from functools import partial

import torch
import transformers
from torch import nn
from torch.nn import functional

from lib.model import backbone
from lib.search import formula, net
from lib.search.net import FACTOR, Net

FUNCTIONS = {  # what a formula is made of; GELU by tanh, as the code has it everywhere
    "add": torch.add,
    "mul": torch.mul,
    "max": torch.maximum,
    "gelu": partial(functional.gelu, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "leaky_relu": functional.leaky_relu,
    "elu": functional.elu,
    "swish": functional.silu,
    "pad": lambda a, count, value: functional.pad(a, (0, count), value=value),
}


class Network(nn.Module):
    """One feed-forward network: weights of f, dropout, LayerNorm."""

    def __init__(self, hidden, inner, eps, rate):
        super().__init__()
        self.W1, self.W2 = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.dropout, self.LayerNorm = nn.Dropout(rate), nn.LayerNorm(hidden, eps)

    def sliced(self, inner):
        """W1 and W2 as functions of arrays, with their first `inner` channels."""
        if inner == self.W1.out_features:
            return self.W1, self.W2
        return (
            partial(functional.linear, weight=self.W1.weight[:inner], bias=self.W1.bias[:inner]),
            partial(functional.linear, weight=self.W2.weight[:, :inner], bias=self.W2.bias),
        )


class Norm(nn.Module):
    """The LayerNorm that ends the active part of a stack, whichever it is: one place for hooks (lib.model.taps)."""

    def __init__(self, stack):
        super().__init__()
        self.stack = [stack]  # in a list: not a submodule

    def forward(self, x):
        stack = self.stack[0]
        return stack.networks[stack.active - 1].LayerNorm(x)


class Stack(nn.Module):
    """In place of a layer's output block: k times LayerNorm(x + dropout(f(x))), each with weights of its own. The block
    before it lets x [B, T, H] pass."""

    def __init__(self, hidden, inner, count, eps, rate):
        super().__init__()
        self.networks = nn.ModuleList(Network(hidden, inner, eps, rate) for _ in range(count))
        self.LayerNorm = Norm(self)

    def use(self, layer, inner, mismatch):
        """Run the formula and the first networks of a Layer (lib.search.net), with the first `inner` channels."""
        there = self.networks[0].W1.out_features
        if layer.stack > len(self.networks) or inner > there:
            raise ValueError(
                f"{layer.stack} networks of {inner} channels asked of a stack of {len(self.networks)} networks "
                f"of {there}: choose a smaller net, or build a larger one"
            )
        self.tree, self.active, self.inner, self.mismatch = layer.tree, layer.stack, inner, mismatch

    def forward(self, _, x):
        for number, network in enumerate(self.networks[: self.active], 1):
            found = formula.evaluate(
                self.tree, x, *network.sliced(self.inner), FUNCTIONS, self.mismatch
            )
            x = x + network.dropout(found)
            x = self.LayerNorm(x) if number == self.active else network.LayerNorm(x)
        return x


class Trigram(nn.Module):
    """Token embeddings [B, T] to [B, T, H]: rows of a narrow table for the next token, the token and the one before, zero
    past either end, side by side through a dense layer (MobileBERT). The padding's row is zero and stays so, unlike
    the code's: how far a batch is padded then changes nothing."""

    def __init__(self, vocabulary, width, hidden, padding):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocabulary, width, padding_idx=padding)
        self.dense = nn.Linear(3 * width, hidden)

    def forward(self, ids):
        x = self.word_embeddings(ids)
        after, before = (
            functional.pad(x[:, 1:], (0, 0, 0, 1)),
            functional.pad(x[:, :-1], (0, 0, 1, 0)),
        )
        return self.dense(torch.cat((after, x, before), -1))


def trigram(model, width):
    """Operation: put a Trigram of a table `width` wide in place of the token table. Returns {"parameters": change}.
    Raises ValueError for a model whose output layer shares the table."""
    embeddings = backbone.base(model).embeddings
    old = embeddings.word_embeddings
    if model.get_output_embeddings() is not None:
        raise ValueError(
            f"trigram embeddings in a {type(model).__name__}, whose output layer shares the token table: take "
            "an encoder or a classifier"
        )
    new = draw(Trigram(old.num_embeddings, width, model.config.hidden_size, old.padding_idx), model)
    embeddings.word_embeddings = new
    return {"parameters": backbone.size(new)["parameters"] - backbone.size(old)["parameters"]}


def stack(model, net):
    """Operation: put the stacks of a net (JSON, see lib.search.net) in place of the feed-forward networks, weights from
    torch's random state. Returns {"networks", "parameters": change}. Raises ValueError where the net's widths are
    others than the model's, and where ghosts are there."""
    from lib.model import ghost

    wanted, layers, config = read(net), backbone.layers(model), model.config
    told = (wanted.hidden, len(wanted.layers), wanted.heads)
    there = (config.hidden_size, len(layers), config.num_attention_heads)
    if told != there:
        raise ValueError(
            f"a net of hidden, layers, heads {told} on a model of {there}: build the model for the net"
        )
    before = backbone.size(model)["parameters"]
    for layer, new in zip(layers, wanted.layers, strict=True):
        if ghost.present(layer):
            raise ValueError("stack after ghost: ghosts have no place in a stack")
        layer.intermediate = nn.Identity()
        layer.output = draw(
            Stack(
                wanted.hidden,
                wanted.inner(new),
                new.stack,
                config.layer_norm_eps,
                config.hidden_dropout_prob,
            ),
            model,
        )
        layer.output.use(new, wanted.inner(new), wanted.mismatch)
    return {
        "networks": sum(layer.stack for layer in wanted.layers),
        "parameters": backbone.size(model)["parameters"] - before,
    }


def draw(module, model):
    """The module with weights as the model's configuration wants them, N(0, its range), on the model's device."""
    for part in module.modules():
        if isinstance(part, (nn.Linear, nn.Embedding)):
            nn.init.normal_(part.weight, 0.0, model.config.initializer_range)
            if isinstance(part, nn.Linear):
                nn.init.zeros_(part.bias)
            elif part.padding_idx is not None:
                part.weight.data[part.padding_idx].zero_()
    return module.to(next(model.parameters()))


def read(body):
    """A Net out of its JSON; a Net stays."""
    return body if isinstance(body, Net) else net.from_json(body)


def of(model):
    """The Net that a model was built for. Raises ValueError where it has no stacks."""
    for op in getattr(model, "surgery", ()):
        if op["op"] == "stack":
            return read(op["net"])
    raise ValueError(
        f"this {type(model).__name__} has no stacks of feed-forward networks: give a net to build one"
    )


def operations(wanted):
    """The surgery that makes a plain BERT of the right widths a Net."""
    first = [{"op": "trigram", "width": FACTOR}] if wanted.embedding == "trigram" else []
    return [*first, {"op": "stack", "net": wanted.to_json()}]


def sizes(wanted):
    """A Net as the configuration of a BERT has it."""
    return {
        "hidden_size": wanted.hidden,
        "num_hidden_layers": len(wanted.layers),
        "num_attention_heads": wanted.heads,
        "intermediate_size": wanted.width,
        "hidden_act": "gelu_pytorch_tanh",
    }


def build(wanted, cls=transformers.BertModel, like=None, **config):
    """A model of class `cls` for a Net (or its JSON), weights N(0, 0.02) from torch's random state.

    like: a configuration whose tables (vocabulary, positions, segments, padding) are taken, else BERT's own; `config`:
    further values, such as num_labels. LayerNorm's eps is the framework's 1e-5, as in the code, not BERT's 1e-12.
    """
    wanted, tables = (
        read(wanted),
        ("vocab_size", "max_position_embeddings", "type_vocab_size", "pad_token_id"),
    )
    shared = {name: getattr(like, name) for name in tables} if like else {}
    own = {"layer_norm_eps": 1e-5, "initializer_range": 0.02}
    return backbone.build(
        cls, transformers.BertConfig(**shared | own | sizes(wanted) | config), operations(wanted)
    )


def choose(model, wanted=None):
    """Let a supernet run as the Net `wanted`, none of its weights touched: the first networks of each stack, the first
    channels of each network, the net's formulas. None: all of it, as it was built.

    Channels out of use get a gradient of zero, so AdamW's momentum and decay still move them; networks out of use get
    none and stay. Raises ValueError where the net is not inside the supernet.
    """
    whole = of(model)
    wanted = whole if wanted is None else read(wanted)
    widths = [(n.hidden, len(n.layers), n.heads, n.embedding) for n in (wanted, whole)]
    if widths[0] != widths[1]:
        raise ValueError(
            f"a net of hidden, layers, heads, embedding {widths[0]} in a supernet of {widths[1]}: only formulas, "
            "stacks and ratios can be chosen; use materialise for the others"
        )
    for layer, new in zip(backbone.layers(model), wanted.layers, strict=True):
        layer.output.use(new, wanted.inner(new), wanted.mismatch)


def materialise(model, wanted):
    """A new, really small model of the same class for a Net, with the weights that it inherits (see `inherit`): what
    `choose` runs as. It may also be narrower, or have a multiple of the layers."""
    wanted, config = read(wanted), copy.deepcopy(model.config)
    for name, value in sizes(wanted).items():
        setattr(config, name, value)
    new = backbone.build(type(model), config, operations(wanted)).to(next(model.parameters()))
    inherit(new, model)
    return new.train(model.training)


def inherit(student, source):
    """Fill a model with the leading block of each tensor of the same name in a larger one (EfficientBERT section 3.2, and
    its code): first networks of a stack, first channels, first hidden ones. Where it has m times as many layers, layer i
    becomes layers m i to m i + m - 1. The block of a plain BERT is the first network of a stack. A narrower model reads
    heads across their boundaries: the first 360 of 540 rows are eight heads of 45, read as twelve of 30, as in the code.

    Returns the names of the student's tensors that the source does not have, left as they were. Raises ValueError for
    a tensor or a number of layers that does not fit, and another vocabulary.
    """
    vocabularies = student.config.vocab_size, source.config.vocab_size
    times, rest = divmod(len(backbone.layers(student)), len(backbone.layers(source)))
    if vocabularies[0] != vocabularies[1] or rest or not times:
        raise ValueError(
            f"a student of {vocabularies[0]} words and {len(backbone.layers(student))} layers cannot inherit from "
            f"{vocabularies[1]} words and {len(backbone.layers(source))} layers: take the same vocabulary, and "
            "a multiple of the layers"
        )
    there, left = (
        {as_stack(bare(name, source)): value for name, value in source.state_dict().items()},
        [],
    )
    for name, value in student.state_dict().items():
        origin = re.sub(
            r"(?<=encoder\.layer\.)\d+",
            lambda found: str(int(found[0]) // times),
            bare(name, student),
        )
        if origin not in there:
            left.append(name)
            continue
        larger = there[origin]
        outputs = (
            name.startswith(("classifier.", "qa_outputs.")) and value.shape[0] != larger.shape[0]
        )
        if (
            outputs
            or larger.dim() != value.dim()
            or any(a > b for a, b in zip(value.shape, larger.shape, strict=True))
        ):
            raise ValueError(
                f"{name} of shape {list(value.shape)} cannot inherit from {list(larger.shape)}: the source must be "
                "at least as large, and have as many outputs"
            )
        value.copy_(larger[tuple(slice(n) for n in value.shape)])
    return left


def as_stack(name):
    """What a tensor of a plain BERT's feed-forward block is called in a stack; other names stay."""
    for block, part in (
        ("intermediate.dense", "W1"),
        ("output.dense", "W2"),
        ("output.LayerNorm", "LayerNorm"),
    ):
        name = re.sub(rf"(encoder\.layer\.\d+)\.{block}\.", rf"\1.output.networks.0.{part}.", name)
    return name


def bare(name, model):
    """A tensor's name without the prefix that a model with a head puts before its encoder's."""
    return name.removeprefix(f"{model.base_model_prefix}.")
