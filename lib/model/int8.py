"""This module quantises the linear layers of an encoder to integers of eight bits (the
operation "int8").

It needs no training, and is a baseline that the reproduced papers lack. Each row of a
weight has a scale, and so has each token of an input, computed in the forward pass
(dynamic quantisation). Shapes: B batch, T tokens, I inputs, O outputs."""

import torch
from torch import nn

from .parts import PartCounts, get_layers

LARGEST = 127
IntegersAndScales = tuple[torch.Tensor, torch.Tensor]


def quantise_to_int8(values: torch.Tensor) -> IntegersAndScales:
    """Quantise the rows of a tensor values [..., I] to int8. Return (integers [..., I],
    scales [..., 1]), so that values is about integers * scales.

    The largest absolute value of each row becomes 127 or -127."""
    scale = (values.abs().amax(-1, keepdim=True) / LARGEST).clamp_min(
        torch.finfo(values.dtype).tiny
    )
    return (values / scale).round().to(torch.int8), scale


class Int8(nn.Module):
    """An Int8 is a linear layer whose weight is quantised: int8 integers [O, I], with a
    float32 scale for each row [O]. The bias [O] stays float32."""

    scale: torch.Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight, scale = quantise_to_int8(linear.weight.detach().float())
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.register_buffer("scale", scale.squeeze(-1))
        self.bias = nn.Parameter(linear.bias.detach().float(), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's output [..., O] for x [..., I], in the dtype of x.

        x is quantised to int8 row by row; products are summed exactly, in int32."""
        integers, scale = quantise_to_int8(x.float().flatten(0, -2))
        # A private function of PyTorch, but its only int8 matrix product on CPUs.
        sums = torch._int_mm(integers, self.weight.t())
        made = sums.float() * scale * self.scale + self.bias
        return made.view(*x.shape[:-1], -1).to(x.dtype)


def quantise_linear_layers(model: nn.Module) -> PartCounts:
    """Quantise every linear layer in the transformer layers of a model in place
    (operation "int8"), and return {"matrices": their number}.

    It must be the last operation on a model, as an int8 model cannot be trained."""
    number = 0
    for layer in get_layers(model):
        for path, module in list(layer.named_modules()):
            if type(module) is nn.Linear:
                layer.set_submodule(path, Int8(module))
                number += 1
    return {"matrices": number}
