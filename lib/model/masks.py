"""Masked projections for fine-pruning, and what becomes of them: W' = M * W in every linear layer of the encoder
(BERMo section 2.3 after Sanh et al. 2020 and Louizos et al. 2018).

    method      M in training                              gradient of the scores S        M in eval mode
    magnitude   1 on the k largest |W|                     no scores                       the same
    movement    1 on the k largest S                       dL/dM, straight through         the same
    soft        1 where sigmoid(S) > threshold             dL/dM, straight through         the same
    l0          clamp(s (r - l) + l, 0, 1), s = sigmoid(   autograd; the paper's (5) must  clamp(sigmoid(S) (r - l)
                (ln u - ln(1 - u) + S) / b), u uniform     read 1{0 <= Z <= 1}             + l, 0, 1)

k = int(threshold * n) and at least 1; l = -0.1, r = 1.1, b = 2/3; dL/dM = W * dL/dW', dL/dW = M * dL/dW'. Biases,
LayerNorms, embeddings, pooler and head are not masked. Eval mode always takes the final threshold.

**Ties.** Exactly k stay: all scores above the k-th largest, and of those equal to it the first in row order. (A strict
comparison with the k-th would leave nothing where all are tied, `>=` all of them.)

Shapes: O x I a weight, R x C = O / rows x I / columns its blocks, one score each; L layers.
"""

import math

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrize

from lib.model import ghost, surgery
from lib.model.backbone import layers

FLOOR = 0.005  # share of a matrix that "soft" keeps at least
LOW, HIGH, HEAT = -0.1, 1.1, 2 / 3  # l, r and b; the paper calls them gamma, epsilon and beta
EDGE = 1e-4  # u is clamped this far from 0 and 1


def projections(model):
    """Every linear layer of the encoder, in order: (layer, name such as "3.output.dense", module)."""
    return [
        (number, f"{number}.{name}", part)
        for number, layer in enumerate(layers(model))
        for name, part in layer.named_modules()
        if isinstance(part, nn.Linear)
    ]


# ---- selection ----
def kth_largest(values, k):
    """The k-th largest of all values, by partial selection."""
    flat = values.detach().flatten()
    if flat.device.type == "cpu":  # numpy's is ten times faster than torch's
        return torch.as_tensor(np.partition(flat.numpy(), len(flat) - k)[len(flat) - k])
    return flat.kthvalue(len(flat) - k + 1).values


def reach(values, kth):
    """(values >= kth, how many are)."""
    if values.device.type == "cpu":  # numpy's are eight times faster than torch's
        mask = values.detach().numpy() >= kth.item()
        return torch.from_numpy(mask), np.count_nonzero(mask)
    mask = values >= kth
    return mask, int(torch.count_nonzero(mask))


def at_least(values, kth, surplus):
    """True where values >= kth, less the last `surplus` of those that equal it."""
    return without(reach(values, kth)[0], values, kth, surplus)


def without(mask, values, kth, surplus):
    if surplus > 0:
        tied = (values == kth).flatten().nonzero().flatten()
        mask.view(-1)[tied[max(0, len(tied) - surplus) :]] = False
    return mask


def top(values, k):
    """True on exactly k of the values: the largest, of equal ones the first."""
    kth = kth_largest(values, k)
    mask, number = reach(values, kth)
    return without(mask, values, kth, number - k)


def top_of_all(lists, k):
    """(k-th largest of all lists together, [surplus of each list]) for `at_least`: of equal ones the first lists' stay."""
    kth = kth_largest(torch.cat([values.flatten() for values in lists]), k)
    over = sum(int(torch.count_nonzero(values >= kth)) for values in lists) - k
    surplus = []
    for values in reversed(lists):
        surplus.append(min(over, int(torch.count_nonzero(values == kth))))
        over -= surplus[-1]
    return kth, surplus[::-1]


def final_cut(options):
    """The score above which a mask is not 0 in the end: logit of the threshold ("soft"), ln(-l / r) ("l0"); else None."""
    if options.method == "l0":
        return math.log(-LOW / HIGH)
    threshold = options.final_threshold
    return (
        None
        if options.method != "soft"
        else math.log(threshold / (1 - threshold))
        if threshold < 1
        else math.inf
    )


# ---- masks ----
class Masked(torch.autograd.Function):
    """W * M (M None: all ones), with dL/dW = M * g and, straight through, dL/dS = W * g."""

    @staticmethod
    def forward(ctx, weight, scores, mask):
        mask = None if mask is None else mask.to(weight.dtype)  # a product with bool is slower
        ctx.save_for_backward(weight if scores is not None else None, mask)
        return weight.clone() if mask is None else weight * mask

    @staticmethod
    def backward(ctx, gradient):
        weight, mask = ctx.saved_tensors
        scores = None if weight is None else weight * gradient
        return gradient if mask is None else gradient * mask, scores, None


class Mask(nn.Module):
    """Parametrization of one weight [O, I]; see the head of this file."""

    def __init__(self, weight, options):
        super().__init__()
        self.method = options.method
        self.threshold, self.final = options.initial_threshold, options.final_threshold
        if options.scored:
            self.scores = nn.Parameter(weight.new_full(weight.shape, options.init))

    @torch.no_grad()
    def chosen(self, weight):
        """The mask of "magnitude", "movement" or "soft", bool [O, I]; None where all stay."""
        threshold = self.threshold if self.training else self.final
        if self.method == "soft":
            mask, least = self.scores.sigmoid() > threshold, int(FLOOR * self.scores.numel()) + 1
            return mask if torch.count_nonzero(mask) >= least else top(self.scores, least)
        values = weight.detach().abs() if self.method == "magnitude" else self.scores.detach()
        k = max(1, int(threshold * values.numel()))
        return None if k >= values.numel() else top(values, k)

    def concrete(self, draw):
        """The mask of "l0" [O, I]: drawn, or as it is in eval mode."""
        logits = self.scores
        if draw:
            logits = torch.rand_like(logits).clamp_(EDGE, 1 - EDGE).logit_().add_(logits).div_(HEAT)
        return (logits.sigmoid() * (HIGH - LOW) + LOW).clamp(0, 1)

    def forward(self, weight):
        if self.method == "l0":
            return weight * self.concrete(self.training)
        return Masked.apply(weight, getattr(self, "scores", None), self.chosen(weight))

    @torch.no_grad()
    def kept(self, weight):
        """How many weights have a mask above 0, a tensor. For "l0" always as in eval mode."""
        mask = self.concrete(draw=False) > 0 if self.method == "l0" else self.chosen(weight)
        return torch.tensor(weight.numel()) if mask is None else torch.count_nonzero(mask)

    def penalty(self):
        """Mean of sigmoid(S) ("soft"), or of the chance that a mask is not 0 ("l0").

        That chance is sigmoid(S - b ln(-l / r)).
        """
        shift = HEAT * math.log(-LOW / HIGH) if self.method == "l0" else 0.0
        return (self.scores - shift).sigmoid().mean()


# ---- saved small ----
@torch.no_grad()
def shrink(model):
    """Cut out the heads and neurons of a baked model that are empty: without outgoing weights, or without incoming ones,
    so that what they give is a constant, which goes into the next bias. A layer keeps its first head and neuron even so.

    The function stays the same up to rounding. Returns {"heads": [L], "neurons": [L]}, counts of what stays. A model with
    ghosts is left as it is.
    """
    heads, neurons = [], []
    for layer in layers(model):
        attention, first, second = layer.attention.self, layer.intermediate, layer.output.dense
        number, size = attention.num_attention_heads, attention.attention_head_size
        if ghost.present(layer):
            heads, neurons = (
                heads + [list(range(number))],
                neurons + [list(range(first.dense.out_features))],
            )
            continue
        heads.append(
            emptied(
                attention.value.weight, layer.attention.output.dense, attention.value.bias, size
            )
        )
        neurons.append(
            emptied(first.dense.weight, second, first.intermediate_act_fn(first.dense.bias), 1)
        )
    if any(
        len(a) < layer.attention.self.num_attention_heads
        or len(b) < layer.intermediate.dense.out_features
        for layer, a, b in zip(layers(model), heads, neurons, strict=True)
    ):
        surgery.operate(model, {"op": "keep", "heads": heads, "neurons": neurons})
    return {"heads": [len(kept) for kept in heads], "neurons": [len(kept) for kept in neurons]}


def emptied(incoming, outgoing, constant, size):
    """Indices of the units that stay. incoming [N * size, I] weights, outgoing a linear layer of N * size inputs, constant
    [N * size]: what a unit without incoming weights gives. What such units add goes into the bias of `outgoing`."""
    dead = (incoming.unflatten(0, (-1, size)) == 0).all(2).all(1)
    unused = (outgoing.weight.unflatten(1, (-1, size)) == 0).all(2).all(0)
    stay = ~(dead | unused)
    stay[0] |= not stay.any()
    gone = (~stay).repeat_interleave(size)
    if gone.any():
        outgoing.bias += outgoing.weight[:, gone] @ constant[gone]
    return stay.nonzero().flatten().tolist()


class Packed(nn.Module):
    """Parametrization that stores the kept values of a weight alone, and which they are in one bit for each weight.
    The stored values are what trains: a pruned weight stays pruned."""

    def __init__(self, mask):
        super().__init__()
        self.shape = tuple(mask.shape)
        padded = torch.cat([mask.flatten(), mask.new_zeros(-mask.numel() % 8)]).view(-1, 8)
        self.register_buffer("bits", (padded * self.powers(mask.device)).sum(1, dtype=torch.uint8))

    @staticmethod
    def powers(device):
        return torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=device)

    def mask(self):
        """bool [O * I]."""
        return ((self.bits[:, None] & self.powers(self.bits.device)) != 0).flatten()[
            : math.prod(self.shape)
        ]

    def forward(self, values):
        return (
            values.new_zeros(math.prod(self.shape))
            .masked_scatter(self.mask(), values)
            .view(self.shape)
        )

    def right_inverse(self, weight):
        return weight.flatten()[self.mask()]


def pack(model, kept, masks=None):
    """The operation "sparse". kept: {name of `projections`: number of its values that stay}; masks: {name: bool [O, I]},
    without them the first stay (when a saved model is rebuilt only shapes matter). Returns {"matrices", "values"}.

    Raises ValueError, before anything changes, for names and numbers that do not fit the model or the masks.
    """
    there = {name: linear for _, name, linear in projections(model)}
    for name, number in kept.items():
        total = there[name].weight.numel() if name in there else 0
        found = (
            number
            if masks is None
            else int(torch.count_nonzero(masks[name]))
            if name in masks
            else 0
        )
        if not 0 <= number <= total or found != number:
            raise ValueError(
                f"sparse keeps {number} values of {name!r}, which has {total} and a mask of {found}: name the "
                "encoder's projections, and as many values as their masks keep"
            )
        if parametrize.is_parametrized(there[name]):
            raise ValueError(
                f"{name!r} is masked or packed already: bake a model first, and pack it once"
            )
    for name, number in kept.items():
        weight = there[name].weight
        if masks is None:
            chosen = (torch.arange(weight.numel(), device=weight.device) < number).view(
                weight.shape
            )
        else:
            chosen = masks[name]
        parametrize.register_parametrization(there[name], "weight", Packed(chosen), unsafe=True)
    return {"matrices": len(kept), "values": sum(kept.values())}


def packed(model):
    """Pack the projections of a baked model by their zeros, where that saves bytes. Returns {"bytes_dense", "bytes_sparse"}
    of all its tensors."""
    masks = {name: linear.weight.detach() != 0 for _, name, linear in projections(model)}
    kept, before = (
        {name: int(torch.count_nonzero(mask)) for name, mask in masks.items()},
        stored(model),
    )
    kept = {
        name: number
        for name, number in kept.items()
        if 32 * number + masks[name].numel() < 32 * masks[name].numel()
    }
    if kept:
        surgery.operate(model, {"op": "sparse", "kept": kept}, masks=masks)
    return {"bytes_dense": before, "bytes_sparse": stored(model)}


def unpack(model):
    """A packed model as an ordinary dense one again: unpacking at every forward pass costs time."""
    for _, _, linear in projections(model):
        if parametrize.is_parametrized(linear):
            parametrize.remove_parametrizations(linear, "weight", leave_parametrized=True)
    model.surgery[:] = [op for op in model.surgery if op["op"] != "sparse"]
    return model


def stored(model):
    """Bytes of a model's tensors, as saved."""
    return sum(value.numel() * value.element_size() for value in model.state_dict().values())
