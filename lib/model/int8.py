"""The operation "int8" quantises the linear layers of an encoder to integers of eight
bits.

It needs no training, and is a control that the four papers lack. Each row of a weight
has a scale, and so has each token of an input, computed in the forward pass (dynamic
quantisation). Shapes: B batch, T tokens, I inputs, O outputs."""

import torch
from torch import nn

from .parts import get_layers

LARGEST = 127


def round_to_int8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (integers [..., I] of x, their scales [..., 1]).

    The integer of the largest absolute value of a row is 127 or -127."""
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
        """Return the output [..., O] in the dtype of x [..., I]; integer sums are
        exact, in int32."""
        integers, scale = round_to_int8(x.float().flatten(0, -2))
        # The only int8 product of PyTorch that runs on CPUs.
        sums = torch._int_mm(integers, self.weight.t())
        made = sums.float() * scale * self.scale + self.bias
        return made.view(*x.shape[:-1], -1).to(x.dtype)


def quantise_layers(model: nn.Module) -> dict[str, int]:
    """Replace every linear layer in the encoder's layers by an `Int8` (operation
    "int8"), and return {"matrices": their number}.

    It must be the last operation, as an int8 model cannot be trained."""
    number = 0
    for layer in get_layers(model):
        for path, module in list(layer.named_modules()):
            if type(module) is nn.Linear:
                layer.set_submodule(path, Int8(module))
                number += 1
    return {"matrices": number}
