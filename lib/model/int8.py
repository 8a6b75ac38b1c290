"""This module quantises the linear layers of an encoder to integers of eight bits (the
operation "int8").

Quantisation needs no training, and is a baseline that the reproduced papers lack. Each
row of a weight has a scale, and so has each token of an input, computed in the forward
pass (dynamic quantisation). Shapes: B batch, T tokens, I inputs, O outputs."""

import torch
from torch import nn

from .parts import CountByMetric, get_layers

LARGEST = 127
IntegersAndRowScales = tuple[torch.Tensor, torch.Tensor]


def quantise_to_int8(float_tensor: torch.Tensor) -> IntegersAndRowScales:
    """Quantise a tensor [..., I] to int8, with a scale for each row of I values.

    Returns (integers int8 [..., I], scales [..., 1]), so that values is about integers
    * scales. Rounding is to the nearest integer. The value of largest magnitude in a
    row becomes 127 or -127; a row of zeros stays zero."""
    scale = (float_tensor.abs().amax(-1, keepdim=True) / LARGEST).clamp_min(
        torch.finfo(float_tensor.dtype).tiny
    )
    return (float_tensor / scale).round().to(torch.int8), scale


def pad_for_cuda(matrix: torch.Tensor, min_rows: int = 1) -> torch.Tensor:
    """Return a matrix [R, I] with rows and columns of zeros added, for an int8 product.

    CUDA's product takes more than 16 rows of inputs, and numbers of inputs and outputs
    that are multiples of 8. A pruned layer and a short batch have others. Zeros change
    no sum.

    min_rows: the smallest number of rows of the result."""
    rows, columns = matrix.shape
    more_rows = max(min_rows, rows + -rows % 8) - rows
    return nn.functional.pad(matrix, (0, -columns % 8, 0, more_rows))


class Int8Linear(nn.Module):
    """An Int8Linear is a linear layer with an int8 weight, made from a trained linear
    layer.

    The weight is int8 [O, I], with a float32 scale for each row [O]; the bias [O] stays
    float32. The layer takes about a quarter of the memory of a float32 layer, and
    cannot be trained."""

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
        weight = self.weight
        if x.is_cuda:
            integers, weight = pad_for_cuda(integers, 17), pad_for_cuda(weight)
        # This function of PyTorch is private, but PyTorch has no other int8 matrix
        # product for CPUs.
        sums = torch._int_mm(integers, weight.t())[: len(scale), : self.out_features]
        made = sums.float() * scale * self.scale + self.bias
        return made.view(*x.shape[:-1], -1).to(x.dtype)


def quantise_linear_layers(model: nn.Module) -> CountByMetric:
    """Quantise the linear layers of a model's transformer layers to int8, in place.

    It needs no training. Layers of subclasses of nn.Linear, such as layers with gates,
    stay in float. Quantisation must be the last change of a model, as an int8 model
    cannot be trained. Returns {"matrices": number of linear layers that were
    quantised}. This change is the operation named "int8" in the list of changes that is
    saved with a model."""
    number = 0
    for layer in get_layers(model):
        for path, module in list(layer.named_modules()):
            if type(module) is nn.Linear:
                layer.set_submodule(path, Int8Linear(module))
                number += 1
    return {"matrices": number}
