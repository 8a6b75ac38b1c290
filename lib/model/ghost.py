"""Ghost modules (GhostBERT sections 2.1, 2.2, 4.1, 4.2, B.4): cheap convolutions that make more features out
of the kept ones.

Shapes: B batch, T tokens, H hidden, A heads, M kept heads, D = H / A head size, F ghost features, K taps; C channels of
a feature map, n the one length that "conv1d_f" is tied to.

    position  works on                                  result
    "o"       output of the output projection, H wide   y + ReLU(conv(y)), one kernel set for all heads (equation 2)
    "ffn2"    output of the second dense layer          the same (equation 3)
    "ffn1"    activation of the kept neurons            the same, added
    "v"       context of each kept head [T, D]          A - M more contexts beside them, for the whole output projection
    "qk"      softmaxed map of each kept head [T, T]    A - M more maps beside them, for the values of all heads

One kernel set is shared by all heads and by the single ghost feature of a module (Table 1's 55.3K extra parameters
leave no other reading), so the sum over heads of the convolved head outputs is the convolution of their sum: one
convolution on the dense output. The dense bias is convolved as well: taps sum to 1, so that differs only at the two
ends of a sentence. Above one feature at "o" and "ffn2" every head and feature has a kernel of its own and the heads'
outputs are made one by one, without the bias; the bias is added once to their sum and is not convolved (appendix B.4).

At "v" and "qk" every kept head feeds every ghost head through a kernel of its own, M * (A - M) of them; such a model
was cut with the projections of `Ghost.whole` left whole.
"""

import copy
import math

import torch
from torch import nn
from torch.nn import functional

from lib.measure.cost import compatible
from lib.model import scores
from lib.spec import stream


def depthwise(x, kernels):
    """Over the tokens, each channel by itself: kernels [R, M, C, K]. A channel sees its like in every input map.

    In two dimensions, of which one is 1, with the channels last as they come: four to ten times as fast on a CPU as in one.
    """
    outputs, _, channels, taps = kernels.shape
    maps = (
        x.permute(0, 3, 1, 2)
        .flatten(1, 2)
        .unsqueeze(2)
        .contiguous(memory_format=torch.channels_last)
    )  # [B, C * M, 1, T]
    y = functional.conv2d(
        maps,
        kernels.permute(2, 0, 1, 3).flatten(0, 1).unsqueeze(2),
        padding=(0, taps // 2),
        groups=channels,
    )  # [B, C * R, 1, T]
    return y.squeeze(2).unflatten(1, (channels, outputs)).permute(0, 2, 3, 1)


def over_tokens(x, kernels):
    """Over the tokens, all channels mixed: kernels [R, M, C, C, K]."""
    outputs, _, channels, _, taps = kernels.shape
    y = functional.conv1d(
        x.transpose(2, 3).flatten(1, 2),
        kernels.transpose(1, 2).flatten(2, 3).flatten(0, 1),
        padding=taps // 2,
    )  # [B, R * C, T]
    return y.unflatten(1, (outputs, channels)).transpose(2, 3)


def over_features(x, kernels):
    """Over the feature axis, the n tokens being the channels, all mixed: kernels [R, M, n, n, K].

    Raises ValueError for a batch of another length.
    """
    outputs, _, tokens, _, taps = kernels.shape
    if x.shape[2] != tokens:
        raise ValueError(
            f"a batch of {x.shape[2]} tokens: the ghost convolution 'conv1d_f' has one channel for each "
            f"of {tokens} tokens and takes no other length; set Train.pad_to to {tokens}"
        )
    y = functional.conv1d(
        x.flatten(1, 2), kernels.transpose(1, 2).flatten(2, 3).flatten(0, 1), padding=taps // 2
    )
    return y.unflatten(1, (outputs, tokens))


def over_both(x, kernels):
    """Over tokens and features at once: kernels [R, M, K, K]."""
    return functional.conv2d(x, kernels, padding=kernels.shape[-1] // 2)


CONVOLUTIONS = {
    "dwconv": depthwise,
    "conv1d_s": over_tokens,
    "conv1d_f": over_features,
    "conv2d": over_both,
}


def kernel_shape(options, channels):
    """Shape of the kernel between one map [T, C] and another (GhostBERT section 4.1)."""
    taps, tokens = options.kernel, options.tokens
    return {
        "dwconv": (channels, taps),
        "conv1d_s": (channels, channels, taps),
        "conv1d_f": (tokens, tokens, taps),
        "conv2d": (taps, taps),
    }[options.kind]


class Convolution(nn.Module):
    """M maps to R: [B, M, T, C] to [B, R, T, C], or [B, T, C] to [B, T, C] where M = R = 1.

    Zero padding of (K - 1) / 2 at both ends; no bias. A kernel for each pair of maps, summed over the M inputs:
    `weight` is [R, M, *kernel]; of a single kernel it is [C, K], [C, C, K], [n, n, K] or [1, 1, K, K] by kind.
    """

    def __init__(self, channels, options, generator, inputs=1, outputs=1):
        super().__init__()
        self.kind, self.softmax, self.softmax_over = (
            options.kind,
            options.softmax,
            options.softmax_over,
        )
        kernel = kernel_shape(options, channels)
        self.full = (outputs, inputs, *kernel)
        weight = torch.empty(
            kernel if inputs == outputs == 1 and self.kind != "conv2d" else self.full
        )
        if options.init == "uniform":
            summed = math.prod(kernel) // (
                1 if self.kind == "conv2d" else kernel[0]
            )  # weights of one output value
            weight.fill_(0.0 if options.softmax else 1.0 / summed)
        else:
            for one in weight.view(-1, *kernel):  # each as if it were the only one
                nn.init.xavier_uniform_(
                    one[None, None] if self.kind == "conv2d" else one, generator=generator
                )
        self.weight = nn.Parameter(weight)

    def taps(self):
        """The weight that convolves: under the softmax the taps of a kernel, or all that one output sums, sum to 1."""
        if not self.softmax:
            return self.weight
        if self.kind == "conv2d" or self.softmax_over == "inputs":
            return self.weight.flatten(-2).softmax(-1).view_as(self.weight)
        return self.weight.softmax(-1)

    def forward(self, x):
        if x.dim() == 3:
            return self(x.unsqueeze(1)).squeeze(1)
        return CONVOLUTIONS[self.kind](x, self.taps().to(x.dtype).view(self.full))


class Ghosted(nn.Module):
    """A layer followed by its ghost: y + G(y), y = dense(x); `dense` is a linear layer, or an activation ("ffn1")."""

    def __init__(self, dense, convolution, options, padding):
        super().__init__()
        self.dense, self.convolution, self.options = dense, convolution, options
        self.padding = padding  # a list of one, shared with the encoder: the batch's mask [B, T], 1 at real tokens

    def forward(self, x):
        y = self.dense(x)
        seen = y
        if self.options.mask and self.padding[0] is not None:
            seen = y * self.padding[0].unsqueeze(-1).to(y.dtype)
        ghost = self.convolution(seen)
        return y + (ghost.relu() if self.options.relu else ghost)


class Folded(Ghosted):
    """A linear layer with F ghosts: sum over heads H_h + sum over features ReLU(sum over heads conv_fh(H_h)).

    H_h [B, T, H] is the output of one head or fold: its slice of x times its columns of the weight (appendix B.4). One
    product gives all of them, so making them one by one costs no more operations than the dense layer.
    """

    def forward(self, x):
        heads = self.convolution.full[1]
        slices = x.unflatten(-1, (heads, -1)).transpose(1, 2)  # [B, M, T, columns of a head]
        each = slices @ self.dense.weight.unflatten(1, (heads, -1)).permute(1, 2, 0)  # [B, M, T, H]
        ghosts = self.convolution(real(each, self.options, self.padding))  # [B, F, T, H]
        y = each.sum(1)
        if self.dense.bias is not None:
            y = y + self.dense.bias.to(y.dtype)
        return y + (ghosts.relu() if self.options.relu else ghosts).sum(1)


class Completed(nn.Module):
    """The maps of M kept heads, then those of A - M ghosts: [B, M, T, C] to [B, A, T, C] (section 4.2).

    C is D for contexts ("v") and T for attention maps ("qk"). With `Ghost.mask` a context of padding is zero before the
    convolution; an attention map is zero in padded rows (queries) and columns (keys) before and after it, as a kernel
    reaches over the edge of the sentence and no ghost may attend to padding. Without, both see and reach padding.
    """

    def __init__(self, position, convolution, options, padding):
        super().__init__()
        self.position, self.convolution, self.options, self.padding = (
            position,
            convolution,
            options,
            padding,
        )

    def forward(self, x):
        square = self.position == "qk"
        ghosts = self.convolution(real(x, self.options, self.padding, square))
        if square:
            ghosts = real(ghosts, self.options, self.padding, square)
        return torch.cat((x, ghosts.relu() if self.options.relu else ghosts), 1)


def real(x, options, padding, square=False):
    """[B, M, T, C] with padded tokens set to zero where the option asks for it; `square`: columns are tokens too."""
    if not options.mask or padding[0] is None:
        return x
    rows = padding[0][:, None, :, None].to(x.dtype)
    return x * rows * rows.transpose(2, 3) if square else x * rows


def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **_):
    """Eager attention whose maps are completed by ghosts (position "qk"), as transformers' interface wants it.

    query, key: [B, M, T, D]; value: [B, A, T, D]; attention_mask: added to the scores, or None. Returns context
    [B, T, A, D] and maps [B, A, T, T] after dropout, which acts on kept and ghost maps alike.
    """
    maps = module.ghost(scores.raw(module, query, key, attention_mask, scaling).softmax(-1))
    maps = functional.dropout(maps, dropout, module.training)
    return (maps @ value).transpose(1, 2).contiguous(), maps


ATTENTION = "ghost_maps"
scores.register(ATTENTION, attend)


def _complete(attention, _, output):
    """Forward hook of a self-attention with a ghost at "v": context [B, T, M * D] becomes [B, T, A * D]."""
    heads = output[0].unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2)
    return attention.ghost(heads).transpose(1, 2).flatten(2), *output[1:]


def _remember(encoder, args, kwargs):
    """The padding mask comes from the encoder's own attribute, so that a copied model keeps its own."""
    encoder.padding[0] = kwargs.get("attention_mask", args[1] if len(args) > 1 else None)


PLACES = {
    "qk": lambda layer: (layer.attention.self, "ghost"),
    "v": lambda layer: (layer.attention.self, "ghost"),
    "o": lambda layer: (layer.attention.output, "dense"),
    "ffn1": lambda layer: (layer.intermediate, "intermediate_act_fn"),
    "ffn2": lambda layer: (layer.output, "dense"),
}


def present(layer):
    """Positions of a layer that have a ghost."""
    found = {position: getattr(*PLACES[position](layer), None) for position in PLACES}
    return {
        p
        for p, m in found.items()
        if isinstance(m, Ghosted) or isinstance(m, Completed) and m.position == p
    }


def whole(layer):
    """Which of the values ("v") and the output projection ("o") have more heads than queries and keys."""
    width, output = layer.attention.self.query.out_features, layer.attention.output.dense
    inputs = getattr(output, "dense", output).in_features
    return [
        n for n, w in (("v", layer.attention.self.value.out_features), ("o", inputs)) if w > width
    ]


def check(model, options):
    """Raises ValueError where the options do not go together, with this model, or with the ghosts it has already."""
    from lib.model.backbone import layers, shape

    first = layers(model)[0]
    if hasattr(first.output, "networks"):
        raise ValueError("ghost after stack: ghosts have no place in stacked networks")
    heads, there = first.attention.self.num_attention_heads, present(first)
    compatible(shape(model), options, heads)
    for position in options.positions:
        if position in there or options.positions.count(position) > 1:
            raise ValueError(f"position {position!r} has a ghost already: name each position once")
    wanted = list(options.whole)
    if wanted != whole(first) and (wanted or not there & {"qk", "v"}):
        raise ValueError(
            f'ghosts at {list(options.positions)} need a cut with "whole": {wanted}; this model\'s '
            f"cut left {whole(first)} whole"
        )
    if options.kind == "conv1d_f" and not options.tokens:
        raise ValueError(
            "Ghost.tokens is 0: 'conv1d_f' needs the one number of tokens that it will take"
        )
    neurons = first.intermediate.dense.out_features
    if options.features > 1 and "ffn2" in options.positions and neurons % heads:
        raise ValueError(f"{neurons} neurons do not split into {heads} folds of equal size")


def module(layer, position, options, generator, padding, total):
    """The new part of one layer at one position; see the head of this file."""
    attention, inner = layer.attention.self, getattr(*PLACES[position](layer), None)
    size, heads, inputs, outputs = (
        attention.attention_head_size,
        attention.num_attention_heads,
        1,
        1,
    )
    if position in ("qk", "v"):
        channels, inputs, outputs = size, heads, total - heads
    elif position == "ffn1":
        channels = layer.intermediate.dense.out_features
    else:
        channels = inner.out_features
    if options.features > 1:
        inputs, outputs = (
            heads if position == "ffn2" else inner.in_features // size,
            options.features,
        )
    convolution = Convolution(channels, options, generator, inputs, outputs).to(
        attention.query.weight.device
    )
    if position in ("qk", "v"):
        return Completed(position, convolution, options, padding)
    return (Folded if options.features > 1 else Ghosted)(inner, convolution, options, padding)


def add(model, options, seed):
    """Put a ghost module at every position of `options` in every layer; kernels are drawn from `seed`.

    Returns {"modules": how many, "parameters": extra}. Raises ValueError, before anything changes, for options that do
    not go together or with this model, and for a position that has a ghost already.
    """
    from lib.model.backbone import base, layers

    check(model, options)
    generator = torch.Generator().manual_seed(stream(seed, "ghost"))
    padding = getattr(base(model), "padding", None) or [None]  # one for all ghosts of a model
    added = []
    for layer in layers(model):
        for position in options.positions:
            new = module(
                layer, position, options, generator, padding, model.config.num_attention_heads
            )
            owner, name = PLACES[position](layer)
            setattr(owner, name, new)
            if position == "v":
                owner.register_forward_hook(_complete)
            added.append(new.convolution)
    if "qk" in options.positions:
        attend_with_ghosts(model)
    if options.mask and not hasattr(base(model), "padding"):
        base(model).padding = padding
        base(model).register_forward_pre_hook(_remember, with_kwargs=True)
    return {
        "modules": len(added),
        "parameters": sum(p.numel() for c in added for p in c.parameters()),
    }


def attend_with_ghosts(model):
    """Route every layer through `attend`, on a configuration of this model's own: the caller's may serve others."""
    shared, own = model.config, copy.deepcopy(model.config)
    for part in model.modules():
        if getattr(part, "config", None) is shared:
            part.config = own
    model.set_attn_implementation(ATTENTION)
