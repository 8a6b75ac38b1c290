"""Ghost modules (GhostBERT sections 2.1 and 2.2): cheap convolutions that make more features out of the kept ones.

Shapes: B batch, T tokens, H hidden, A heads, L layers, K taps.

After the output projection of attention (position "o") and of the feed-forward network ("ffn2"), y [B, T, H] becomes

    y + ReLU(dwconv(y)),        one kernel of K taps for each channel, softmax over the taps (equations 2 to 5)

One kernel set is shared by all heads and by the single ghost feature of a module (Table 1's 55.3K extra parameters
leave no other reading), so the sum over heads of the convolved head outputs is the convolution of their sum: one
convolution on the dense output. The dense bias is convolved as well: taps sum to 1, so that differs only at the two
ends of a sentence.
"""

import torch
from torch import nn
from torch.nn import functional

from lib.spec import stream


class DepthwiseConv(nn.Module):
    """Depthwise convolution over the tokens: [B, T, H] to [B, T, H], zero padding of (K - 1) / 2 at both ends."""

    def __init__(self, hidden, options, generator):
        super().__init__()
        self.softmax = options.softmax
        weight = torch.empty(hidden, options.kernel)
        if options.init == "uniform":
            weight.fill_(0.0 if options.softmax else 1.0 / options.kernel)
        else:
            nn.init.xavier_uniform_(weight, generator=generator)
        self.weight = nn.Parameter(weight)

    def taps(self):
        """[H, K], summing to 1 over K under the softmax."""
        return self.weight.softmax(-1) if self.softmax else self.weight

    def forward(self, y):
        taps = self.taps().to(y.dtype).unsqueeze(1)  # [H, 1, K]
        return functional.conv1d(y.transpose(1, 2), taps, padding=taps.shape[2] // 2, groups=len(taps)).transpose(1, 2)


class Ghosted(nn.Module):
    """A linear layer followed by its ghost: y + G(y), y = dense(x)."""

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


PLACES = {"o": lambda layer: layer.attention.output, "ffn2": lambda layer: layer.output}
CONVOLUTIONS = {"dwconv": DepthwiseConv}


def _remember(encoder, args, kwargs):
    """The padding mask comes from the encoder's own attribute, so that a copied model keeps its own."""
    encoder.padding[0] = kwargs.get("attention_mask", args[1] if len(args) > 1 else None)


def add(model, options, seed):
    """Put a ghost module at every position of `options` in every layer; kernels are drawn from `seed`.

    Returns {"modules": how many, "parameters": extra}. Raises ValueError for a kind or position that is not built, or
    that has a ghost already.
    """
    from lib.model.backbone import base, layers
    from lib.spec import known

    known("ghost convolution", options.kind, CONVOLUTIONS)
    for position in options.positions:
        known("ghost position", position, PLACES)
        there = any(isinstance(PLACES[position](layer).dense, Ghosted) for layer in layers(model))
        if there or options.positions.count(position) > 1:
            raise ValueError(f"position {position!r} has a ghost already: name each position once")
    if options.features != 1:
        raise ValueError(f"Ghost.features is {options.features}; shared kernels give one ghost feature: take 1")
    generator = torch.Generator().manual_seed(stream(seed, "ghost"))
    padding = getattr(base(model), "padding", None) or [None]  # one for all ghosts of a model
    added = []
    for layer in layers(model):
        for position in options.positions:
            place = PLACES[position](layer)
            convolution = CONVOLUTIONS[options.kind](place.dense.out_features, options, generator)
            place.dense = Ghosted(place.dense, convolution.to(place.dense.weight.device), options, padding)
            added.append(convolution)
    if options.mask and not hasattr(base(model), "padding"):
        base(model).padding = padding
        base(model).register_forward_pre_hook(_remember, with_kwargs=True)
    return {"modules": len(added), "parameters": sum(p.numel() for c in added for p in c.parameters())}
