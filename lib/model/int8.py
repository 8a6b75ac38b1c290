"""The operation "int8" turns the linear layers of the encoder into integers of eight
bits.

It is quantisation after training, a control that the four papers lack. Each row of a
weight has its own scale, and so has each token of the input when it arrives (dynamic
quantisation). Shapes: B batch, T tokens, I inputs, O outputs."""

import torch
from torch import nn

from .parts import layers

LARGEST = 127


def round_to_int8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (integers of x [..., I], their scale [..., 1]); the largest of a row is
    127."""
    scale = (x.abs().amax(-1, keepdim=True) / LARGEST).clamp_min(
        torch.finfo(x.dtype).tiny
    )
    return (x / scale).round().to(torch.int8), scale


class Int8(nn.Module):
    """An Int8 is a linear layer with an int8 weight [O, I]; scale and bias [O] are
    float32."""

    scale: torch.Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight, scale = round_to_int8(linear.weight.detach().float())
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.register_buffer("scale", scale.squeeze(-1))
        self.bias = nn.Parameter(linear.bias.detach().float(), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output [..., O] in the type of x [..., I]; sums are exact, in
        int32."""
        integers, scale = round_to_int8(x.float().flatten(0, -2))
        # CPUs run this int8 product alone.
        sums = torch._int_mm(integers, self.weight.t())
        made = sums.float() * scale * self.scale + self.bias
        return made.view(*x.shape[:-1], -1).to(x.dtype)


def quantise(model: nn.Module) -> dict[str, int]:
    """Turn every linear layer of the encoder's layers into an `Int8` (an operation).

    It is the last operation, as nothing trains after it. Returns {"matrices": their
    number}."""
    number = 0
    for layer in layers(model):
        for path, module in list(layer.named_modules()):
            if type(module) is nn.Linear:
                layer.set_submodule(path, Int8(module))
                number += 1
    return {"matrices": number}
