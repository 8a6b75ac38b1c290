"""Fine-pruning through a run: the masks of `lib.model.masks` on a schedule, and the model that is left of them."""

from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrize

from lib.model.backbone import layers
from lib.model.masks import Mask, final_cut, kth_largest, projections, top_of_all, unpack
from lib.train import schedules


class Pruning(nn.Module):
    """All masks of a model through a run. What a resumed run needs of it lies in buffers, so that the loop's checkpoints
    hold it; it stays out of the saved model (`bake`).

    Raises ValueError where the warm-ups do not fit `steps` (lib.train.schedules.plan) or a block does not fit a weight.
    """

    def __init__(self, model, options, steps):
        super().__init__()
        self.options, self.steps = options, steps
        self.warmup, self.ramp = schedules.plan(options, steps)
        self.cut = final_cut(options)
        if options.target and not options.init > self.cut:
            raise ValueError(
                f"Prune.init is {options.init}; with a target the scores must start above the final cut, which is "
                f"{self.cut:.3f} for {options.method!r} at {options.final_threshold}"
            )
        self.places = [
            (number, name, linear, Mask(linear.weight, options))
            for number, name, linear in projections(model)
        ]
        for _, _, linear, mask in self.places:
            parametrize.register_parametrization(
                linear, "weight", mask.train(linear.training), unsafe=True
            )
        self.number = sum(
            linear.parametrizations.weight.original.numel() for _, _, linear, _ in self.places
        )
        self.register_buffer("steered", torch.tensor(options.final_lambda, dtype=torch.float64))
        self.register_buffer("error", torch.zeros((), dtype=torch.float64))
        self.register_buffer("kth", torch.zeros(()))
        self.register_buffer("surplus", torch.zeros(len(self.places), dtype=torch.int64))
        self.weight = 0.0  # of the penalty, at this step

    def scores(self):
        """The parameters that learn what stays."""
        return [mask.scores for *_, mask in self.places if hasattr(mask, "scores")]

    def before(self, step, steps):
        """Threshold, penalty weight and selection of a step; for lib.train.loop.Hooks."""
        if steps != self.steps:
            raise ValueError(
                f"this pruning was planned for {self.steps} steps; the run has {steps}"
            )
        threshold = self.ramp(step)
        for *_, mask in self.places:
            mask.threshold = threshold
        if self.options.scope == "global":
            if step % self.options.refresh == 0:
                kth, surplus = self.selection(threshold)
                self.kth, self.surplus = (
                    kth.to(self.kth.device),
                    torch.tensor(surplus, device=self.surplus.device),
                )
            self.select(self.kth, self.surplus.tolist())
        if self.options.penalised:
            self.weight = schedules.penalty(threshold, self.options)
        if self.options.target:
            if step % schedules.EVERY == 0 and step > self.ramp.first:
                self.steer(step)
            self.weight *= float(self.steered) / self.options.final_lambda

    def steer(self, step):
        """Move the penalty so that the score which the wanted share leaves out meets the final cut when the run ends. A
        share would not do as a measure: it stays at 1 for long, then falls within a few steps, too late to brake."""
        count = max(1, int(self.options.target * sum(scores.numel() for scores in self.scores())))
        score = float(
            kth_largest(torch.cat([scores.detach().flatten() for scores in self.scores()]), count)
        )
        error = (score - self.cut) / (self.options.init - self.cut) - schedules.course(
            step, self.ramp.first, self.steps
        )
        self.steered.fill_(
            schedules.steered(
                float(self.steered), error, float(self.error), self.options.final_lambda
            )
        )
        self.error.fill_(error)

    def selection(self, threshold):
        values = [
            mask.importance(linear.parametrizations.weight.original)
            for _, _, linear, mask in self.places
        ]
        return top_of_all(values, max(1, int(threshold * sum(v.numel() for v in values))))

    def select(self, kth, surplus):
        for (*_, mask), more in zip(self.places, surplus, strict=True):
            mask.selected = (kth, more)

    def penalty(self):
        """Weight times the mean over all matrices, a scalar tensor."""
        if not self.weight:
            return self.kth.new_zeros(())
        return self.weight * torch.stack([mask.penalty() for *_, mask in self.places]).mean()

    def share(self):
        """Kept share of the masked weights, as the masks are now."""
        return int(sum(self.kept())) / self.number

    def kept(self):
        return [
            mask.kept(linear.parametrizations.weight.original) for _, _, linear, mask in self.places
        ]

    @contextmanager
    def final(self, model):
        """Within, the model is in eval mode under the final masks, each computed once."""
        model.eval()
        if self.options.scope == "global":
            self.select(*self.selection(self.options.final_threshold))
        with parametrize.cached():
            yield


def attach(model, options, steps):
    """Put masks on every projection of a model, as its part `pruning`; a packed one is unpacked. Returns the Pruning."""
    unpack(model)
    model.pruning = Pruning(model, options, steps).to(next(model.parameters()).device)
    return model.pruning


@torch.no_grad()
def bake(model):
    """Replace each weight by weight times final mask, in eval mode, and take the masks away. Returns
    {"masked_weights": N of all masked matrices, "kept_weights": K of them with a mask above 0, "encoder_parameters": E of
    the L layers, biases and LayerNorms too, "kept_share": K / N, "remaining": (K + E - N) / E, the papers' "remaining
    weights"} and [L] kept shares by layer. Embeddings, pooler, head and layer mix are in none of them."""
    pruning, everything = model.pruning, sum(p.numel() for p in layers(model).parameters())
    everything -= sum(scores.numel() for scores in pruning.scores())
    kept, total = (
        np.zeros(len(layers(model)), dtype=np.int64),
        np.zeros(len(layers(model)), dtype=np.int64),
    )
    with pruning.final(model):
        for (number, *_), count in zip(pruning.places, pruning.kept(), strict=True):
            kept[number] += int(count)
    for number, _, linear, _ in pruning.places:
        total[number] += linear.parametrizations.weight.original.numel()
        parametrize.remove_parametrizations(linear, "weight", leave_parametrized=True)
    del model.pruning
    return counted(int(total.sum()), int(kept.sum()), everything), kept / total


def counted(masked, kept, everything):
    """The counts of `bake`, with the denominator of each share beside it."""
    return {
        "masked_weights": masked,
        "kept_weights": kept,
        "encoder_parameters": everything,
        "kept_share": kept / masked,
        "remaining": (kept + everything - masked) / everything,
    }
