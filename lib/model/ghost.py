"""This module has ghost modules: cheap convolutions that generate more features from
those of a pruned model (GhostBERT sections 2.1, 2.2, 4.1, 4.2 and B.4).

Letters: B batch, T tokens, H hidden, A heads, M kept heads, D = H / A head size, F
ghost features, K size of a kernel, whose weights are its taps, C channels of a feature
map, n the number of tokens that "conv1d_f" requires. A convolution has M input maps and
R output maps.

    position  works on                                 result
    "o"       output [B, T, H] of the output           y + ReLU(conv(y)), one kernel set for all
              projection                               heads (equation 3)
    "ffn2"    output of the second dense layer         the same (equation 5)
    "ffn1"    activation of the kept neurons           the same
    "v"       context [T, D] of each kept head         A - M more contexts, for the whole output
                                                       projection
    "qk"      attention map [T, T] of each kept head,  A - M more maps, for the values of all heads
              after the softmax

With a single ghost feature all heads share one set of kernels (section 2.3); the 55.3K
extra parameters of section 3.2.1 agree with it. The sum of the convolved outputs of the
heads is then the convolution of their sum, so that the dense output is convolved once.
The bias of the dense layer is convolved too, so the ReLU acts on outputs with it.

With more than one feature at "o" or "ffn2" each head and feature has its own kernel
(appendix B.4). The outputs of the heads are then computed separately, without the bias,
which is added to their sum. So one feature and several differ in this as well; the
paper omits biases (section 2.1).

At "v" and "qk" each kept head feeds each ghost head through its own kernel: M * (A - M)
kernels. When heads are pruned before such a ghost module is added, the output
projection, and for "qk" the value projection, keep all A heads."""

import copy
import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from .int8 import Int8Linear, quantise_to_int8
from .options import Ghost, GhostPosition, Refused, derive_seed
from .parts import (
    AnyModule,
    CountByMetric,
    PaddingMask,
    get_layers,
    get_or_attach_padding_mask,
    set_padded_tokens_to_zero,
)
from .scores import (
    ContextsAndMaps,
    compute_and_record_masked_scores,
    register_attention_function,
)


def convolve_each_channel_over_tokens(
    inputs: torch.Tensor, kernels: torch.Tensor
) -> torch.Tensor:
    """Convolve feature maps over the tokens, each channel by itself (depthwise).

    Returns R output maps [B, R, T, C], where each output map sums over the M input
    maps. It is the kind "dwconv" of GhostBERT's ghost modules, convolutions that
    generate additional features (section 4.1). On a CPU a two-dimensional convolution
    with one row and channels last is four to ten times as fast as a one-dimensional
    one, so it is computed that way.

    inputs: M feature maps of T tokens and C channels, [B, M, T, C].
    kernels: [R, M, C, K], with K weights (taps) for each channel."""
    outputs, _, channels, taps = kernels.shape
    maps = inputs.permute(0, 3, 1, 2).flatten(1, 2).unsqueeze(2)
    y = functional.conv2d(
        maps.contiguous(memory_format=torch.channels_last),
        kernels.permute(2, 0, 1, 3).flatten(0, 1).unsqueeze(2),
        padding=(0, taps // 2),
        groups=channels,
    )
    return y.squeeze(2).unflatten(1, (channels, outputs)).permute(0, 2, 3, 1)


def convolve_over_features_mixing_tokens(
    inputs: torch.Tensor, kernels: torch.Tensor
) -> torch.Tensor:
    """Convolve feature maps along their features, where all n tokens are mixed.

    The tokens are the channels of this convolution, so every batch must be padded to
    exactly n tokens. Returns R output maps [B, R, n, C], where each sums over the M
    input maps. It is the kind "conv1d_f" of GhostBERT's ghost modules, convolutions
    that generate additional features (section 4.1).

    inputs: M feature maps of n tokens and C features, [B, M, n, C].
    kernels: [R, M, n, n, K], with K weights (taps) for each pair of output and input
    token."""
    outputs, _, channels, _, taps = kernels.shape
    y = functional.conv1d(
        inputs.flatten(1, 2),
        kernels.transpose(1, 2).flatten(2, 3).flatten(0, 1),
        padding=taps // 2,
    )
    return y.unflatten(1, (outputs, channels))


def convolve_over_tokens_mixing_channels(
    inputs: torch.Tensor, kernels: torch.Tensor
) -> torch.Tensor:
    """Convolve feature maps over the tokens, where all C channels are mixed.

    Returns R output maps [B, R, T, C], where each sums over the M input maps. It is the
    kind "conv1d_s" of GhostBERT's ghost modules, convolutions that generate additional
    features (section 4.1).

    inputs: M feature maps of T tokens and C channels, [B, M, T, C].
    kernels: [R, M, C, C, K], with K weights (taps) for each pair of output and input
    channel."""
    return convolve_over_features_mixing_tokens(
        inputs.transpose(2, 3), kernels
    ).transpose(2, 3)


def convolve_over_tokens_and_features(
    inputs: torch.Tensor, kernels: torch.Tensor
) -> torch.Tensor:
    """Convolve feature maps over tokens and features at once, like images (2-D).

    Returns R output maps [B, R, T, C], where each sums over the M input maps. It is the
    kind "conv2d" of GhostBERT's ghost modules, convolutions that generate additional
    features (section 4.1), and the only kind for attention maps.

    inputs: M feature maps of T tokens and C channels, [B, M, T, C].
    kernels: [R, M, K, K]."""
    return functional.conv2d(inputs, kernels, padding=kernels.shape[-1] // 2)


# {kind: (convolution function, f(C, n, K) -> shape of the kernel from one input map to
# one output map)}, for C channels, n tokens and kernel size K (GhostBERT section 4.1).
CONVOLUTIONS = {
    "dwconv": (convolve_each_channel_over_tokens, lambda c, n, k: (c, k)),
    "conv1d_s": (convolve_over_tokens_mixing_channels, lambda c, n, k: (c, c, k)),
    "conv1d_f": (convolve_over_features_mixing_tokens, lambda c, n, k: (n, n, k)),
    "conv2d": (convolve_over_tokens_and_features, lambda c, n, k: (k, k)),
}


class Convolution(nn.Module):
    """A Convolution computes the features that a ghost module adds (GhostBERT).

    It maps M input maps [B, M, T, C] to R output maps [B, R, T, C], and where M = R = 1
    also [B, T, C] to [B, T, C]. Each pair of an output and an input map has a kernel,
    and an output sums over the M inputs. Both ends are padded with (K - 1) / 2 zeros,
    and there is no bias.

    `weight` is [R, M, *kernel]; the first two axes are left out where M = R = 1, except
    for "conv2d". A kernel is, by kind, [C, K] ("dwconv", depthwise over tokens),
    [C, C, K] ("conv1d_s", over tokens), [n, n, K] ("conv1d_f", over features, for n
    tokens) or [K, K] ("conv2d").

    channel_count: C.
    ghost_options: the settings, such as the kind and the kernel size K.
    generator: the random generator of the initial weights.
    input_map_count, output_map_count: M and R."""

    def __init__(
        self,
        channel_count: int,
        ghost_options: Ghost,
        generator: torch.Generator,
        input_map_count: int = 1,
        output_map_count: int = 1,
    ) -> None:
        super().__init__()
        self.options, square = ghost_options, ghost_options.kind == "conv2d"
        kernel = CONVOLUTIONS[ghost_options.kind][1](
            channel_count, ghost_options.tokens, ghost_options.kernel
        )
        self.full = (output_map_count, input_map_count, *kernel)
        weight = torch.empty(
            self.full if square or input_map_count * output_map_count > 1 else kernel
        )
        if ghost_options.init == "uniform":
            # All weights are equal. Without a softmax, those by which an output value
            # sums over one input map add up to 1. With a softmax, which is applied
            # later, zeros give equal weights.
            summed = math.prod(kernel) // (1 if square else kernel[0])
            weight.fill_(0.0 if ghost_options.softmax else 1.0 / summed)
        else:
            # Each kernel is initialised by itself, so that Xavier's fan-in and fan-out
            # are those of a single kernel, not of all kernels together.
            for one in weight.view(-1, *kernel):
                nn.init.xavier_uniform_(
                    one[None, None] if square else one, generator=generator
                )
        self.weight = nn.Parameter(weight)

    def compute_effective_kernel_weights(self) -> torch.Tensor:
        """Return the weights (taps) of the kernels as the convolution uses them.

        They have the shape of `weight`. If the options ask for it, a softmax normalises
        them: the K taps of each channel then sum to 1. With `softmax_over` = "inputs",
        which is for "conv1d_*", the sum is 1 over all weights by which one output value
        reads one input map. For "conv2d" the K * K weights of a kernel sum to 1."""
        if not self.options.softmax:
            return self.weight
        if self.options.kind == "conv2d" or self.options.softmax_over == "inputs":
            return self.weight.flatten(-2).softmax(-1).view_as(self.weight)
        return self.weight.softmax(-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dim() == 3:
            return self(x.unsqueeze(1)).squeeze(1)
        return CONVOLUTIONS[self.options.kind][0](
            x, self.compute_effective_kernel_weights().to(x.dtype).view(self.full)
        )


class GhostedLayer(nn.Module):
    """A GhostedLayer adds a ghost module's features to the output of a layer.

    It computes y + G(y) with y = dense(x), where G is a cheap convolution and an
    optional ReLU (GhostBERT equations 3 and 5). So a pruned layer gets back features at
    a low cost.

    dense: the layer: a linear layer, or an activation function at position "ffn1".
    convolution: G without its ReLU.
    ghost_options: the settings, of which only `relu` is read here.
    padding_mask: gives the attention mask by which padded tokens are set to zero before
    the convolution; None leaves padded tokens unchanged.
    position_in_layer: the place of the layer in the transformer layer: "o" (output
    projection), "ffn1" (activation) or "ffn2" (second feed-forward matrix). The
    subclass GhostHeads, which has no such layer, is at "v" (contexts) or "qk"
    (attention maps)."""

    def __init__(
        self,
        dense: AnyModule,
        convolution: Convolution,
        ghost_options: Ghost,
        padding_mask: PaddingMask | None,
        position_in_layer: GhostPosition,
    ) -> None:
        super().__init__()
        self.dense, self.convolution = dense, convolution
        self.relu = ghost_options.relu
        self.padding = padding_mask
        self.position = position_in_layer

    def compute_ghost_features(self, x: torch.Tensor) -> torch.Tensor:
        is_attention_map = self.position == "qk"
        made = self.convolution(
            set_padded_tokens_to_zero(x, self.padding, is_attention_map)
        )
        if is_attention_map:
            made = set_padded_tokens_to_zero(made, self.padding, is_attention_map)
        return made.relu() if self.relu else made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.dense(x)
        return y + self.compute_ghost_features(y)


class PerHeadGhostedLayer(GhostedLayer):
    """A PerHeadGhostedLayer is a linear layer with convolutions for each single head.

    The convolutions generate N additional features (ghost features, GhostBERT appendix
    B.4). The output is dense(x) plus the sum over features f of ReLU(sum over heads h
    of conv_fh(H_h)); the ReLU is optional. H_h [B, T, H] is what head h, or one of M
    equal slices of the neurons, adds to dense(x): its part of x times its columns of
    the weight.

    One matrix product computes H_h for all M heads or slices, [B, M, T, H], with no
    more operations than the dense layer has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads, inputs, weight = self.convolution.full[1], x, self.dense.weight
        scales = None
        if isinstance(self.dense, Int8Linear):
            integers, scale = quantise_to_int8(x.float())
            # In float32, sums of up to 1,000 products of int8 numbers are exact.
            inputs, weight = integers.float(), weight.float()
            scales = scale.unsqueeze(1) * self.dense.scale
        slices = inputs.unflatten(-1, (heads, -1)).transpose(1, 2)
        head_outputs = slices @ weight.unflatten(1, (heads, -1)).permute(1, 2, 0)
        if scales is not None:
            head_outputs = (head_outputs * scales).to(x.dtype)
        y = head_outputs.sum(1)
        if self.dense.bias is not None:
            y = y + self.dense.bias.to(y.dtype)
        return y + self.compute_ghost_features(head_outputs).sum(1)


class GhostHeads(GhostedLayer):
    """A GhostHeads generates the outputs of pruned heads from those of kept heads.

    A convolution makes A - M maps from the M maps of the kept heads, and appends them:
    [B, M, T, C] becomes [B, A, T, C] (GhostBERT section 4.2). At position "v" the maps
    are contexts and C is the head size. At position "qk" they are attention maps and C
    is T.

    With a padding mask, contexts of padded tokens are set to zero before the
    convolution. Attention maps are set to zero in padded rows (queries) and columns
    (keys) before and after it: a kernel reaches beyond the end of the sentence, and no
    generated head may attend to padding."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat((x, self.compute_ghost_features(x)), 1)


def attend_with_ghost_heads(
    module: AnyModule,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: torch.Tensor | None = None,
    **_: Any,
) -> ContextsAndMaps:
    """Compute self-attention in which a convolution generates the maps of pruned heads.

    The convolution is a ghost module at position "qk" (GhostBERT section 4.2). It makes
    A - M attention maps from those of the M kept heads. Returns (contexts [B, T, A, D],
    attention maps [B, A, T, T]). transformers calls this function, so it has the
    signature of transformers' attention functions.

    module: the self-attention, whose attribute `ghost` is the ghost module.
    query, key: of the M kept heads, [B, M, T, D].
    value: of all A heads, [B, A, T, D].
    attention_mask: a tensor that is added to the scores; None masks no token.
    scaling: the factor of the scores; None is 1 / sqrt(D).
    dropout: the rate of dropout on the maps of kept and of generated heads.
    position_bias: a relative position bias that is added to the scores; None adds
    none."""
    scores = compute_and_record_masked_scores(
        module, query, key, attention_mask, scaling, position_bias
    )
    maps = module.ghost(scores.softmax(-1))
    maps = functional.dropout(maps, dropout, module.training)
    return (maps @ value).transpose(1, 2).contiguous(), maps


# Name by which transformers finds the function `attend_with_ghost_heads`. An exported
# model has a copy of this module. Through `__name__` the copy registers its function
# under another name, and does not replace this one.
ATTENTION = f"{__name__}.attend"
register_attention_function(ATTENTION, attend_with_ghost_heads)


def append_ghost_contexts(
    attention: AnyModule, _inputs: Any, attention_output: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Append contexts of pruned heads, which a convolution generates, to the kept ones.

    It is the forward hook of a self-attention with a ghost module (that convolution) at
    position "v" (GhostBERT section 4.2). Contexts [B, T, M * D] of the M kept heads
    become [B, T, A * D] of all A heads; further outputs of the self-attention stay as
    they are.

    attention: the self-attention, whose attribute `ghost` is the ghost module.
    attention_output: the output of the self-attention, a tuple with the contexts first."""
    heads = (
        attention_output[0]
        .unflatten(-1, (attention.num_attention_heads, -1))
        .transpose(1, 2)
    )
    return attention.ghost(heads).transpose(1, 2).flatten(2), *attention_output[1:]


# {position of a ghost module: (submodule of a transformer layer, attribute of it that
# the ghost module becomes or replaces)}.
PLACES = {
    "qk": ("attention.self", "ghost"),
    "v": ("attention.self", "ghost"),
    "o": ("attention.output", "dense"),
    "ffn1": ("intermediate", "intermediate_act_fn"),
    "ffn2": ("output", "dense"),
}


def find_ghost_modules_by_position(
    layer: nn.Module,
) -> dict[GhostPosition, GhostedLayer]:
    """Return {position: ghost module} of all ghost modules in a transformer layer.

    Ghost modules are convolutions that generate additional features. A position is "qk"
    (attention maps), "v" (contexts), "o" (output projection), "ffn1" (activation) or
    "ffn2" (second feed-forward matrix)."""
    return {
        part.position: part
        for part in layer.modules()
        if isinstance(part, GhostedLayer)
    }


def check_ghost_options(model: nn.Module, ghost_options: Ghost) -> None:
    """Raise Refused where ghost modules of these settings cannot be added to a model.

    Ghost modules are convolutions that generate additional features. Causes are options
    that exclude each other, a position that is named twice or has a ghost module
    already, and a position "qk" or "v" (attention maps or contexts of pruned heads)
    without pruned heads. The projections that kept all heads must also be those that
    the position needs: values and output projection for "qk", the output projection for
    "v"."""
    first = get_layers(model)[0]
    heads = first.attention.self.num_attention_heads
    ghosts = find_ghost_modules_by_position(first)
    config: Any = model.config
    ghost_options.check_fits_model(heads < config.num_attention_heads)
    for position in ghost_options.positions:
        if position in ghosts or ghost_options.positions.count(position) > 1:
            raise Refused(
                f"position {position!r} has a ghost already: name each position once"
            )
    positions = list(ghost_options.positions)
    uncut = list(ghost_options.unpruned_projections)
    # Projections that have more heads than the queries and keys were left whole.
    attention, output = first.attention.self, first.attention.output.dense
    widths = {
        "v": attention.value.out_features,
        "o": getattr(output, "dense", output).in_features,
    }
    left = [
        name for name, width in widths.items() if width > attention.query.out_features
    ]
    if uncut != left and (uncut or not ghosts.keys() & {"qk", "v"}):
        raise Refused(
            f'ghosts at {positions} need a cut with "whole": {uncut}; it left {left}'
        )


def build_ghost_module(
    layer: AnyModule,
    position_in_layer: GhostPosition,
    ghost_options: Ghost,
    generator: torch.Generator,
    padding_mask: PaddingMask | None,
    head_count_before_pruning: int,
) -> GhostedLayer:
    """Build a ghost module, a convolution for additional features, for one layer.

    At "o", "ffn1" and "ffn2" it contains the part of the transformer layer that it
    extends, and the caller puts it in the place of that part. At "qk" and "v" the
    caller adds it to the self-attention. The layer is not changed here.

    position_in_layer: "qk" (attention maps), "v" (contexts), "o" (output projection),
    "ffn1" (activation) or "ffn2" (second feed-forward matrix).
    generator: the random generator of the initial kernels.
    padding_mask: gives the mask by which padded tokens are set to zero; None sets no
    token to zero.
    head_count_before_pruning: A, the number of heads of the unpruned model."""
    attention, (part, name) = layer.attention.self, PLACES[position_in_layer]
    inner: Any = getattr(layer.get_submodule(part), name, None)
    size, heads = attention.attention_head_size, attention.num_attention_heads
    cls, inputs, outputs = GhostedLayer, 1, 1
    if position_in_layer in ("qk", "v"):
        cls = GhostHeads
        channels = size
        inputs = heads
        outputs = head_count_before_pruning - heads
    elif position_in_layer == "ffn1":
        channels = layer.intermediate.dense.out_features
    else:
        channels = inner.out_features
    if ghost_options.features > 1:
        cls, outputs = PerHeadGhostedLayer, ghost_options.features
        inputs = heads if position_in_layer == "ffn2" else inner.in_features // size
    convolution = Convolution(channels, ghost_options, generator, inputs, outputs)
    convolution = convolution.to(attention.query.weight.device)
    return cls(inner, convolution, ghost_options, padding_mask, position_in_layer)


def add_ghost_modules(
    model: nn.Module, seed: int = 0, **ghost_options: Any
) -> CountByMetric:
    """Put GhostBERT's ghost modules into each layer of a model, in place.

    Ghost modules are cheap convolutions that generate additional features, so that a
    pruned model gets back some of its score. This change is the operation named "ghost"
    in the list of changes that is saved with a model. Returns {"modules": number of
    ghost modules, "parameters": number of their parameters}.

    Raises Refused, before anything changes, for options that do not fit together or do
    not fit this model, and for a position that has a ghost module already.

    seed: the seed from which kernels are drawn.
    ghost_options: the fields of Ghost, the class of the settings, such as kind="dwconv"
    (depthwise convolution), positions=["o"] (output projection), kernel=3 (size)."""
    try:
        settings = Ghost(**ghost_options)
    except TypeError as error:
        raise Refused(f"operation ghost: {error}") from None
    config: Any = model.config
    total = config.num_attention_heads
    check_ghost_options(model, settings)
    generator = torch.Generator().manual_seed(derive_seed(seed, "ghost"))
    mask = get_or_attach_padding_mask(model) if settings.mask else None
    added = []
    for layer in get_layers(model):
        for position in settings.positions:
            new = build_ghost_module(layer, position, settings, generator, mask, total)
            part, name = PLACES[position]
            setattr(layer.get_submodule(part), name, new)
            if position == "v":
                layer.attention.self.register_forward_hook(append_ghost_contexts)
            added.append(new.convolution)
    if "qk" in settings.positions:
        # transformers reads the name of the attention function from the configuration.
        # The model gets a copy of its own, as other models may share the original.
        config_copy = copy.deepcopy(config)
        for part in model.modules():
            if getattr(part, "config", None) is config:
                part.config = config_copy
        config_copy._attn_implementation = ATTENTION
    return {
        "modules": len(added),
        "parameters": sum(convolution.weight.numel() for convolution in added),
    }
