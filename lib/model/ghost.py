"""Ghost modules generate more features from those of a pruned model, by cheap
convolutions (GhostBERT sections 2.1, 2.2, 4.1, 4.2 and B.4).

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

All heads share one kernel set with a single ghost feature: Table 1's 55.3K extra
parameters leave no other reading. The sum of the convolved outputs of the heads is then
the convolution of their sum, so that the dense output is convolved once. The dense bias
is convolved too; because the taps sum to 1, that makes a difference at the two ends of
a sentence alone.

With more than one feature at "o" or "ffn2" each head and feature has its own kernel
(appendix B.4). The outputs of the heads are then made one by one, without the bias,
which is added to their sum.

At "v" and "qk" each kept head feeds each ghost head through its own kernel: M * (A - M)
kernels. The cut before such a ghost leaves the projections of `Ghost.uncut_parts`
whole."""

import copy
import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from .int8 import Int8, round_to_int8
from .options import Ghost, Refused, derive_seed
from .parts import Padding, Part, get_layers, get_padding, zero_padded_tokens
from .scores import compute_masked_scores, register_attention


def convolve_depthwise(inputs: torch.Tensor, kernels: torch.Tensor) -> torch.Tensor:
    """Convolve the inputs [B, M, T, C] over the tokens, each channel by itself.

    An output channel reads the same channel of every input map. The convolution is
    two-dimensional with one row and channels last, which is four to ten times as fast
    on a CPU as a one-dimensional one. Inside, inputs are [B, C * M, 1, T] and outputs
    [B, C * R, 1, T].

    kernels: [R, M, C, K]."""
    outputs, _, channels, taps = kernels.shape
    maps = inputs.permute(0, 3, 1, 2).flatten(1, 2).unsqueeze(2)
    y = functional.conv2d(
        maps.contiguous(memory_format=torch.channels_last),
        kernels.permute(2, 0, 1, 3).flatten(0, 1).unsqueeze(2),
        padding=(0, taps // 2),
        groups=channels,
    )
    return y.squeeze(2).unflatten(1, (channels, outputs)).permute(0, 2, 3, 1)


def convolve_features(inputs: torch.Tensor, kernels: torch.Tensor) -> torch.Tensor:
    """Convolve the inputs [B, M, n, C] along the C features of a head, with the n
    tokens as channels that are all mixed.

    So a batch must have exactly n tokens (Train.pad_to). kernels: [R, M, n, n, K] for R
    ghosts of each of M heads, with K taps."""
    outputs, _, channels, _, taps = kernels.shape
    y = functional.conv1d(
        inputs.flatten(1, 2),
        kernels.transpose(1, 2).flatten(2, 3).flatten(0, 1),
        padding=taps // 2,
    )
    return y.unflatten(1, (outputs, channels))


def convolve_tokens(inputs: torch.Tensor, kernels: torch.Tensor) -> torch.Tensor:
    """Convolve the inputs [B, M, T, C] over the tokens, and mix all channels.

    kernels: [R, M, C, C, K]."""
    return convolve_features(inputs.transpose(2, 3), kernels).transpose(2, 3)


def convolve_both(inputs: torch.Tensor, kernels: torch.Tensor) -> torch.Tensor:
    """Convolve the inputs [B, M, T, C] over tokens and features at once.

    kernels: [R, M, K, K]."""
    return functional.conv2d(inputs, kernels, padding=kernels.shape[-1] // 2)


# {kind: (convolution, f(C, n, K) -> shape of a kernel between two maps)} (section 4.1).
CONVOLUTIONS = {
    "dwconv": (convolve_depthwise, lambda c, n, k: (c, k)),
    "conv1d_s": (convolve_tokens, lambda c, n, k: (c, c, k)),
    "conv1d_f": (convolve_features, lambda c, n, k: (n, n, k)),
    "conv2d": (convolve_both, lambda c, n, k: (k, k)),
}


class Convolution(nn.Module):
    """A Convolution turns M input maps into R output maps: [B, M, T, C] to [B, R, T,
    C].

    Where M = R = 1 it takes [B, T, C] too. Both ends are padded with (K - 1) / 2 zeros,
    and there is no bias. Each pair of maps has a kernel, and an output sums over the M
    inputs. `weight` is [R, M, *kernel]; a single kernel is [C, K], [C, C, K],
    [n, n, K] or [1, 1, K, K] by kind."""

    def __init__(
        self,
        channels: int,
        ghost_options: Ghost,
        generator: torch.Generator,
        input_maps: int = 1,
        output_maps: int = 1,
    ) -> None:
        super().__init__()
        self.options, square = ghost_options, ghost_options.kind == "conv2d"
        kernel = CONVOLUTIONS[ghost_options.kind][1](
            channels, ghost_options.tokens, ghost_options.kernel
        )
        self.full = (output_maps, input_maps, *kernel)
        weight = torch.empty(
            self.full if square or input_maps * output_maps > 1 else kernel
        )
        if (
            ghost_options.init == "uniform"
        ):  # Equal weights sum to 1 in each output value.
            summed = math.prod(kernel) // (1 if square else kernel[0])
            weight.fill_(0.0 if ghost_options.softmax else 1.0 / summed)
        else:
            for one in weight.view(-1, *kernel):  # Fans are those of a single kernel.
                nn.init.xavier_uniform_(
                    one[None, None] if square else one, generator=generator
                )
        self.weight = nn.Parameter(weight)

    def normalise_taps(self) -> torch.Tensor:
        """Return the taps, which are the weights of the convolution, after a softmax if
        the options ask for it.

        After it the K taps of each channel sum to 1, or with `softmax_over` "inputs"
        all weights that an output sums over."""
        if not self.options.softmax:
            return self.weight
        if self.options.kind == "conv2d" or self.options.softmax_over == "inputs":
            return self.weight.flatten(-2).softmax(-1).view_as(self.weight)
        return self.weight.softmax(-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dim() == 3:
            return self(x.unsqueeze(1)).squeeze(1)
        return CONVOLUTIONS[self.options.kind][0](
            x, self.normalise_taps().to(x.dtype).view(self.full)
        )


class Ghosted(nn.Module):
    """A Ghosted is a layer with its ghost module G: y + G(y), where y = dense(x).

    dense: a linear layer, or an activation ("ffn1").
    padding: the Padding by which padded tokens are set to zero before the convolution,
    or None to leave them as they are.
    position: a key of PLACES."""

    def __init__(
        self,
        dense: Part,
        convolution: Convolution,
        ghost_options: Ghost,
        padding: Padding | None,
        position: str,
    ) -> None:
        super().__init__()
        self.dense, self.convolution = dense, convolution
        self.relu, self.padding, self.position = ghost_options.relu, padding, position

    def ghost(self, x: torch.Tensor, is_square: bool = False) -> torch.Tensor:
        made = self.convolution(zero_padded_tokens(x, self.padding, is_square))
        if is_square:
            made = zero_padded_tokens(made, self.padding, is_square)
        return made.relu() if self.relu else made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.dense(x)
        return y + self.ghost(y)


class Folded(Ghosted):
    """A Folded is a linear layer with F ghost features (appendix B.4).

    Its output is the sum over heads h of H_h, plus the sum over features f of ReLU(sum
    over heads of conv_fh(H_h)). H_h [B, T, H] is the output of one head or fold of
    neurons: its slice of x times its columns of the weight. One product computes all M
    of them, [B, M, T, H], with no more operations than the dense layer has. The
    integers of an `Int8` are multiplied as floats, which are exact for up to 1,000
    columns of a head."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads, inputs, weight = self.convolution.full[1], x, self.dense.weight
        scales = None
        if isinstance(self.dense, Int8):
            integers, scale = round_to_int8(x.float())
            inputs, weight = integers.float(), weight.float()
            scales = scale.unsqueeze(1) * self.dense.scale
        slices = inputs.unflatten(-1, (heads, -1)).transpose(1, 2)
        head_outputs = slices @ weight.unflatten(1, (heads, -1)).permute(1, 2, 0)
        if scales is not None:
            head_outputs = (head_outputs * scales).to(x.dtype)
        y = head_outputs.sum(1)
        if self.dense.bias is not None:
            y = y + self.dense.bias.to(y.dtype)
        return y + self.ghost(head_outputs).sum(1)


class Completed(Ghosted):
    """A Completed appends the maps of A - M ghost heads to those of M kept heads
    (section 4.2).

    It turns [B, M, T, C] into [B, A, T, C], where C is D for contexts ("v") and T for
    attention maps ("qk"). With a padding, contexts of padded tokens are set to zero
    before the convolution. Attention maps are set to zero in padded rows (queries) and
    columns (keys) before and after it, because a kernel reaches beyond the end of the
    sentence, and no ghost head may attend to padding."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat((x, self.ghost(x, is_square=self.position == "qk")), 1)


def attend(
    module: Part,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (context [B, T, A, D], attention maps [B, A, T, T]) of a self-attention
    with ghosts at "qk".

    Dropout acts on the maps of kept heads and of ghosts. The signature is that of
    transformers' attention interface.

    query, key: [B, M, T, D].
    value: [B, A, T, D].
    attention_mask: added to the scores."""
    scores = compute_masked_scores(
        module, query, key, attention_mask, scaling, position_bias
    )
    maps = module.ghost(scores.softmax(-1))
    maps = functional.dropout(maps, dropout, module.training)
    return (maps @ value).transpose(1, 2).contiguous(), maps


# Name for transformers. It has the module's name, so that an exported model, whose
# module has another, does not replace it.
ATTENTION = f"{__name__}.attend"
register_attention(ATTENTION, attend)


def complete_contexts(
    attention: Part, _: Any, output: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Extend the contexts [B, T, M * D] by those of ghost heads to [B, T, A * D].

    It is the forward hook of a self-attention with a ghost at "v"."""
    heads = output[0].unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2)
    return attention.ghost(heads).transpose(1, 2).flatten(2), *output[1:]


# {position: (part of a layer, its attribute that is replaced by the ghost module)}.
PLACES = {
    "qk": ("attention.self", "ghost"),
    "v": ("attention.self", "ghost"),
    "o": ("attention.output", "dense"),
    "ffn1": ("intermediate", "intermediate_act_fn"),
    "ffn2": ("output", "dense"),
}


def find_ghosts_of_layer(layer: nn.Module) -> dict[str, Ghosted]:
    """Return {position, such as "o": ghost module} of a layer."""
    return {
        part.position: part for part in layer.modules() if isinstance(part, Ghosted)
    }


def list_uncut_parts(layer: Part) -> list[str]:
    """Return which of "v" (values) and "o" (output projection) of a layer have more
    heads than its queries and keys."""
    width, output = (
        layer.attention.self.query.out_features,
        layer.attention.output.dense,
    )
    inputs = {
        "v": layer.attention.self.value.out_features,
        "o": getattr(output, "dense", output).in_features,
    }
    return [name for name, wide in inputs.items() if wide > width]


def check_ghost_options(model: nn.Module, ghost_options: Ghost) -> None:
    """Raise Refused where the options do not fit together, the model's cut, or its
    other ghosts."""
    first = get_layers(model)[0]
    heads, ghosts = (
        first.attention.self.num_attention_heads,
        find_ghosts_of_layer(first),
    )
    config: Any = model.config
    ghost_options.check_fit(heads < config.num_attention_heads)
    for position in ghost_options.positions:
        if position in ghosts or ghost_options.positions.count(position) > 1:
            raise Refused(
                f"position {position!r} has a ghost already: name each position once"
            )
    positions, uncut, left = (
        list(ghost_options.positions),
        list(ghost_options.uncut_parts),
        list_uncut_parts(first),
    )
    if uncut != left and (uncut or not ghosts.keys() & {"qk", "v"}):
        raise Refused(
            f'ghosts at {positions} need a cut with "whole": {uncut}; it left {left}'
        )


def make_ghost_module(
    layer: Part,
    position: str,
    ghost_options: Ghost,
    generator: torch.Generator,
    padding: Padding | None,
    total_heads: int,
) -> Ghosted:
    """Return a new ghost module for a position of a layer.

    total_heads: A, the number of heads of the unpruned model."""
    attention, (part, name) = layer.attention.self, PLACES[position]
    inner: Any = getattr(layer.get_submodule(part), name, None)
    size, heads = attention.attention_head_size, attention.num_attention_heads
    cls, inputs, outputs = Ghosted, 1, 1
    if position in ("qk", "v"):
        cls, channels, inputs, outputs = Completed, size, heads, total_heads - heads
    elif position == "ffn1":
        channels = layer.intermediate.dense.out_features
    else:
        channels = inner.out_features
    if ghost_options.features > 1:
        cls, outputs = Folded, ghost_options.features
        inputs = heads if position == "ffn2" else inner.in_features // size
    convolution = Convolution(channels, ghost_options, generator, inputs, outputs)
    convolution = convolution.to(attention.query.weight.device)
    return cls(inner, convolution, ghost_options, padding, position)


def add_ghosts(model: nn.Module, seed: int = 0, **options: Any) -> dict[str, int]:
    """Put ghost modules into each layer (operation "ghost"), and return {"modules":
    their number, "parameters": theirs}.

    Raises Refused, before anything changes, for options that do not fit together or
    this model, and for a position that has a ghost already.

    seed: the seed of random kernels.
    options: the fields of a Ghost (options.py)."""
    settings = Ghost(**options)
    config: Any = model.config
    total = config.num_attention_heads
    check_ghost_options(model, settings)
    generator = torch.Generator().manual_seed(derive_seed(seed, "ghost"))
    mask = get_padding(model) if settings.mask else None
    added = []
    for layer in get_layers(model):
        for position in settings.positions:
            new = make_ghost_module(layer, position, settings, generator, mask, total)
            part, name = PLACES[position]
            setattr(layer.get_submodule(part), name, new)
            if position == "v":
                layer.attention.self.register_forward_hook(complete_contexts)
            added.append(new.convolution)
    if "qk" in settings.positions:
        attend_with_ghosts(model)
    return {
        "modules": len(added),
        "parameters": sum(convolution.weight.numel() for convolution in added),
    }


def attend_with_ghosts(model: nn.Module) -> None:
    """Let each layer of a model use `attend`.

    The model gets a copy of its configuration, as other models may share the
    original."""
    shared: Any = model.config
    config_copy = copy.deepcopy(shared)
    for part in model.modules():
        if getattr(part, "config", None) is shared:
            part.config = config_copy
    config_copy._attn_implementation = ATTENTION
