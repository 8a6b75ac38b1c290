"""This module prunes the weights of every linear layer of an encoder by masks while it
is fine-tuned: W' = M * W (BERMo section 2.3, after Sanh et al. 2020 and Louizos et al.
2018).

    method      M in training                      gradient of the scores S      M in eval mode
    magnitude   1 on the k largest |W|             no scores                     the same
    movement    1 on the k largest S               dL/dM, straight through       the same
    soft        1 where sigmoid(S) > threshold     dL/dM, straight through       the same
    l0          clamp(s (r - l) + l, 0, 1), s =    autograd; the paper's (5)     clamp(sigmoid(S)
                sigmoid((ln u - ln(1 - u) + S)     must read 1{0 <= Z <= 1}      (r - l) + l, 0, 1)
                / b), u uniform

Here k = int(threshold * n) of n weights, and at least 1; l = -0.1, r = 1.1, b = 2/3;
dL/dM = W * dL/dW' and dL/dW = M * dL/dW'. Biases, LayerNorms, embeddings, pooler and
head have no mask. The threshold changes during training; eval mode always takes the
final one. "soft" keeps at least 0.5 % of the weights, those with the largest S. Where
"l0" adds S, the paper's (3) adds log(S), but its (6) reads S as here.

**Ties.** Exactly k weights stay: all whose scores are above the k-th largest, and of
those equal to it the first in row order. (Where all scores are tied, `> k-th` would
keep none, and `>=` all.)

A weight matrix is [O, I] (outputs, inputs), and each of its values has a score.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from .options import AllKept
from .parts import get_layers

FLOOR = 0.005  # Least share of a matrix's weights that the method "soft" keeps.
# Constants of the hard concrete distribution, from which the method "l0" draws masks:
# the two limits to which the distribution is stretched, and its temperature. The BERMo
# paper calls them gamma, epsilon and beta.
LOW, HIGH, HEAT = -0.1, 1.1, 2 / 3
# Least distance of the uniform random numbers u of "l0" masks from 0 and 1, where ln u or
# ln(1 - u) would be infinite.
EDGE = 1e-4
# Prune stands for the class lib.papers.bermo.options.Prune in type hints. Exported
# models contain a copy of this module, but not that class, so it cannot be imported
# here.
Prune = Any
LayerIndexPathAndLinear = tuple[int, str, nn.Linear]
NoTrainedThreshold: TypeAlias = None


def list_linear_layers(model: nn.Module) -> list[LayerIndexPathAndLinear]:
    """Return all linear layers inside the transformer layers of a model, to prune them.

    Each is a tuple (number of the transformer layer, counted from 0; name, such as
    "3.output.dense"; linear layer)."""
    return [
        (number, f"{number}.{name}", part)
        for number, layer in enumerate(get_layers(model))
        for name, part in layer.named_modules()
        if isinstance(part, nn.Linear)
    ]


def find_kth_largest(values: torch.Tensor, k: int) -> torch.Tensor:
    """Return the k-th largest of all values of a tensor, without a full sort.

    The result is a tensor of one value, the threshold of a top-k mask.

    k: the rank: 1 is the largest value."""
    flat = values.detach().flatten()
    if flat.device.type == "cpu":  # On a CPU numpy is ten times as fast as torch.
        return torch.as_tensor(np.partition(flat.numpy(), len(flat) - k)[len(flat) - k])
    return flat.kthvalue(len(flat) - k + 1).values


def make_top_k_mask(values: torch.Tensor, k: int) -> torch.Tensor:
    """Return a bool mask that is True for exactly the `k` largest values of a tensor.

    It has the shape of the tensor. Of values equal to the k-th largest, the first in
    row order are taken. So exactly `k` weights survive pruning, also with ties."""
    kth = find_kth_largest(values, k)
    mask = values >= kth
    if (more := int(torch.count_nonzero(mask)) - k) > 0:
        tied = (values == kth).flatten().nonzero().flatten()
        mask.view(-1)[tied[len(tied) - more :]] = False
    return mask


def make_global_top_k_masks(
    tensors: Sequence[torch.Tensor], k: int
) -> list[torch.Tensor]:
    """Return bool masks for several tensors, True for the `k` largest values of all.

    It serves global pruning, where large weights of all matrices compete. Each mask has
    the shape of its tensor. Exactly `k` values are True over all tensors together, also
    with ties."""
    mask = make_top_k_mask(torch.cat([values.flatten() for values in tensors]), k)
    parts = mask.split([values.numel() for values in tensors])
    return [
        part.view(values.shape) for part, values in zip(parts, tensors, strict=True)
    ]


def compute_final_mask_score_threshold(
    prune_options: Prune,
) -> float | NoTrainedThreshold:
    """Return the score above which a weight is kept at the end of score-based pruning.

    Scores are trained parameters, one for each weight. For the method "soft", where a
    weight stays if the sigmoid of its score exceeds a threshold, it is the logit of the
    final threshold. For "l0" (hard concrete masks, Louizos et al. 2018) it is ln(-l /
    r), where the masks are stretched to the interval from l = -0.1 to r = 1.1. The
    result is None for the other methods, which keep a fixed share of the weights.

    prune_options: the settings, of which `method` and `final_threshold` are read."""
    if prune_options.method == "l0":
        return math.log(-LOW / HIGH)
    if prune_options.method != "soft":
        return None
    threshold = prune_options.final_threshold
    return math.log(threshold / (1 - threshold)) if threshold < 1 else math.inf


class MaskedWeight(torch.autograd.Function):
    """MaskedWeight computes the pruned weight M * W, with straight-through gradients.

    The gradients go to the weight W and to the scores S that decided the mask M: for
    the gradient g of the result, dL/dW = M * g and dL/dS = W * g. A mask of None stands
    for all ones. With None for scores, only W gets a gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: torch.Tensor,
        scores: torch.Tensor | None,
        mask: torch.Tensor | AllKept,
    ) -> torch.Tensor:
        # The mask is cast, because a product with a bool tensor is slower.
        mask = None if mask is None else mask.to(weight.dtype)
        ctx.save_for_backward(weight if scores is not None else None, mask)
        return weight.clone() if mask is None else weight * mask

    @staticmethod
    # pyrefly: ignore[bad-override]  The base class takes any number of gradients.
    def backward(
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        weight, mask = ctx.saved_tensors
        scores = None if weight is None else weight * gradient
        return gradient if mask is None else gradient * mask, scores, None


class Mask(nn.Module):
    """A Mask prunes one weight matrix [O, I] while a model is trained.

    It is a torch parametrization that multiplies the weight by a mask [O, I]. In
    training the mask follows the current threshold, which a schedule changes, and in
    eval mode the final one.

    prune_options: the settings: thresholds, initial scores and method. "magnitude"
    keeps a share of the weights, the largest ones, and "movement" those with the
    largest trained scores. "soft" keeps weights whose sigmoid of a trained score
    exceeds the threshold. "l0" draws hard concrete masks from trained scores (Louizos
    et al. 2018)."""

    def __init__(self, weight: torch.Tensor, prune_options: Prune) -> None:
        super().__init__()
        self.method = prune_options.method
        self.threshold = prune_options.initial_threshold
        self.final = prune_options.final_threshold
        if prune_options.trains_mask_scores:
            self.scores = nn.Parameter(
                weight.new_full(weight.shape, prune_options.init)
            )

    @torch.no_grad()
    def make_binary_mask(self, weight: torch.Tensor) -> torch.Tensor | AllKept:
        """Return the bool mask [O, I] of a weight matrix; True where a weight stays.

        For "magnitude" and "movement" it is None where all weights stay. "soft" keeps
        weights whose sigmoid of the score exceeds the threshold, but at least 0.5 % of
        them. For "magnitude" and "movement" the threshold is the share of weights that
        stay, those with the largest absolute values or scores. "l0" uses `make_l0_mask`
        instead."""
        threshold = self.threshold if self.training else self.final
        if self.method == "soft":
            mask = self.scores.sigmoid() > threshold
            least = int(FLOOR * mask.numel()) + 1
            enough = torch.count_nonzero(mask) >= least
            return mask if enough else make_top_k_mask(self.scores, least)
        values = weight.abs() if self.method == "magnitude" else self.scores
        k = max(1, int(threshold * values.numel()))
        return None if k >= values.numel() else make_top_k_mask(values, k)

    def make_l0_mask(self, is_random: bool) -> torch.Tensor:
        """Return the mask [O, I] of the method "l0", with values from 0 to 1.

        It is computed from the trained scores by the hard concrete distribution
        (Louizos et al. 2018).

        is_random: whether the mask is drawn at random, as in training; False gives the
        fixed mask of eval mode."""
        logits = self.scores
        if is_random:
            drawn = torch.rand_like(logits).clamp_(EDGE, 1 - EDGE).logit_()
            logits = drawn.add_(logits).div_(HEAT)
        return (logits.sigmoid() * (HIGH - LOW) + LOW).clamp(0, 1)

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        if self.method == "l0":
            return weight * self.make_l0_mask(self.training)
        return MaskedWeight.apply(
            weight, getattr(self, "scores", None), self.make_binary_mask(weight)
        )

    @torch.no_grad()
    def count_kept_weights(self, weight: torch.Tensor) -> torch.Tensor:
        """Return how many weights of the matrix are kept, as a tensor of one integer.

        For the method "l0" a weight is kept where the fixed mask of eval mode is above
        0.

        weight: the matrix [O, I] before masking."""
        if self.method == "l0":
            return torch.count_nonzero(self.make_l0_mask(is_random=False) > 0)
        mask = self.make_binary_mask(weight)
        return torch.tensor(weight.numel()) if mask is None else mask.count_nonzero()

    def compute_sparsity_penalty(self) -> torch.Tensor:
        """Return a penalty on the trained scores S, a loss term that favours pruning.

        It is the mean over the matrix of sigmoid(S) for the method "soft". For "l0" it
        is the mean probability that a mask is not 0, sigmoid(S - b ln(-l / r)), with
        the temperature b = 2/3 and the stretched interval from l = -0.1 to r = 1.1
        (Louizos et al. 2018)."""
        shift = HEAT * math.log(-LOW / HIGH) if self.method == "l0" else 0.0
        return (self.scores - shift).sigmoid().mean()
