"""Masks prune every linear layer of the encoder while it is fine-tuned: W' = M * W
(BERMo section 2.3, after Sanh et al. 2020 and Louizos et al. 2018).

    method      M in training                      gradient of the scores S      M in eval mode
    magnitude   1 on the `count` largest |W|             no scores                     the same
    movement    1 on the `count` largest S               dL/dM, straight through       the same
    soft        1 where sigmoid(S) > threshold     dL/dM, straight through       the same
    l0          clamp(s (r - l) + l, 0, 1), s =    autograd; the paper's (5)     clamp(sigmoid(S)
                sigmoid((ln u - ln(1 - u) + S)     must read 1{0 <= Z <= 1}      (r - l) + l, 0, 1)
                / b), u uniform

Here k = int(threshold * n) of n weights, and at least 1; l = -0.1, r = 1.1, b = 2/3;
dL/dM = W * dL/dW' and dL/dW = M * dL/dW'. Biases, LayerNorms, embeddings, pooler and
head have no mask. Eval mode always takes the final threshold.

**Ties.** Exactly k weights stay: all whose scores are above the k-th largest, and of those equal to
it the first in row order. (Where all scores are tied, `> k-th` would keep none, and `>=` all.)

A weight is [O, I], and each of its values has a score.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from .parts import get_layers

FLOOR = 0.005  # Least share of a matrix that the method "soft" keeps.
# Constants l, r and b of "l0" above; the paper calls them gamma, epsilon and beta.
LOW, HIGH, HEAT = -0.1, 1.1, 2 / 3
EDGE = 1e-4  # Least distance of the random numbers u from 0 and 1.
# Prune of lib.papers.bermo.options, which an exported model cannot import.
Prune = Any


def list_linear_layers(model: nn.Module) -> list[tuple[int, str, nn.Linear]]:
    """Return [(number of the layer, name such as "3.output.dense", module)] of all
    linear layers of the encoder."""
    return [
        (number, f"{number}.{name}", part)
        for number, layer in enumerate(get_layers(model))
        for name, part in layer.named_modules()
        if isinstance(part, nn.Linear)
    ]


def find_kth_largest(values: torch.Tensor, count: int) -> torch.Tensor:
    """Return the k-th largest of all values of a tensor, without a full sort."""
    flat = values.detach().flatten()
    if flat.device.type == "cpu":  # On a CPU numpy is ten times as fast as torch.
        return torch.as_tensor(
            np.partition(flat.numpy(), len(flat) - count)[len(flat) - count]
        )
    return flat.kthvalue(len(flat) - count + 1).values


def mask_largest(values: torch.Tensor, count: int) -> torch.Tensor:
    """Return a mask that is True for exactly the `count` largest values; ties keep the
    first."""
    kth = find_kth_largest(values, count)
    mask = values >= kth
    if (more := int(torch.count_nonzero(mask)) - count) > 0:
        tied = (values == kth).flatten().nonzero().flatten()
        mask.view(-1)[tied[len(tied) - more :]] = False
    return mask


def mask_largest_of_all(
    tensors: Sequence[torch.Tensor], count: int
) -> list[torch.Tensor]:
    """Return a mask for each tensor; together they are True for the `count` largest
    values of all tensors."""
    mask = mask_largest(torch.cat([values.flatten() for values in tensors]), count)
    parts = mask.split([values.numel() for values in tensors])
    return [
        part.view(values.shape) for part, values in zip(parts, tensors, strict=True)
    ]


def find_final_score_threshold(pruning: Prune) -> float | None:
    """Return the score above which a weight stays in the final model.

    It is the logit of the final threshold for "soft", and ln(-l / r) for "l0". The
    other methods rank scores, and have None."""
    if pruning.method == "l0":
        return math.log(-LOW / HIGH)
    if pruning.method != "soft":
        return None
    threshold = pruning.final_threshold
    return math.log(threshold / (1 - threshold)) if threshold < 1 else math.inf


class Masked(torch.autograd.Function):
    """Masked computes M * W with straight-through gradients for the scores S.

    For the gradient g of the result, dL/dW = M * g and dL/dS = W * g. A mask of None
    stands for all ones."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: torch.Tensor,
        scores: torch.Tensor | None,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        # Cast the mask: a product with bool is slower.
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
    """A Mask is the torch parametrization of one weight [O, I] that prunes it; the top
    of this file has the formulas."""

    def __init__(self, weight: torch.Tensor, pruning: Prune) -> None:
        super().__init__()
        self.method = pruning.method
        self.threshold, self.final = pruning.initial_threshold, pruning.final_threshold
        if pruning.has_scores:
            self.scores = nn.Parameter(weight.new_full(weight.shape, pruning.init))

    @torch.no_grad()
    def make_hard_mask(self, weight: torch.Tensor) -> torch.Tensor | None:
        """Return the mask of "magnitude", "movement" or "soft", bool [O, I], or None
        where all weights stay."""
        threshold = self.threshold if self.training else self.final
        if self.method == "soft":
            mask = self.scores.sigmoid() > threshold
            least = int(FLOOR * mask.numel()) + 1
            enough = torch.count_nonzero(mask) >= least
            return mask if enough else mask_largest(self.scores, least)
        values = weight.abs() if self.method == "magnitude" else self.scores
        k = max(1, int(threshold * values.numel()))
        return None if k >= values.numel() else mask_largest(values, k)

    def make_l0_mask(self, is_random: bool) -> torch.Tensor:
        """Return the mask of "l0", values from 0 to 1 [O, I].

        is_random: whether it is random, as in training, or fixed, as in eval mode."""
        logits = self.scores
        if is_random:
            drawn = torch.rand_like(logits).clamp_(EDGE, 1 - EDGE).logit_()
            logits = drawn.add_(logits).div_(HEAT)
        return (logits.sigmoid() * (HIGH - LOW) + LOW).clamp(0, 1)

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        if self.method == "l0":
            return weight * self.make_l0_mask(self.training)
        return Masked.apply(
            weight, getattr(self, "scores", None), self.make_hard_mask(weight)
        )

    @torch.no_grad()
    def count_kept_weights(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the number of weights with a mask above 0, for "l0" as in eval
        mode."""
        if self.method == "l0":
            return torch.count_nonzero(self.make_l0_mask(is_random=False) > 0)
        mask = self.make_hard_mask(weight)
        return torch.tensor(weight.numel()) if mask is None else mask.count_nonzero()

    def compute_penalty(self) -> torch.Tensor:
        """Return the penalty that makes masks sparse: the mean of sigmoid(S) ("soft"),
        or of the probability that a mask is not 0 ("l0").

        That probability is sigmoid(S - b ln(-l / r))."""
        shift = HEAT * math.log(-LOW / HIGH) if self.method == "l0" else 0.0
        return (self.scores - shift).sigmoid().mean()
