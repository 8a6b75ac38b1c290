"""This module prunes weights during fine-tuning, adds the layer mix, freezes parts of a
model and records gradients (BERMo, section 2.3; Sanh et al. 2020).

Each class is called by the training loop in every step."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import PreTrainedModel

from lib.core.names import derive_seed
from lib.core.store import Scratch
from lib.model import compact
from lib.model import mix as mixes
from lib.model.masks import (
    Mask,
    find_final_score_threshold,
    find_kth_largest,
    list_linear_layers,
)
from lib.model.parts import get_encoder, get_layers
from lib.model.surgery import apply_surgery
from lib.papers.bermo import schedules
from lib.papers.bermo.options import Mix, Prune
from lib.stats.metrics import Metrics
from lib.train import loop

BINS = 50  # Logged values of all steps are averaged in at most this number of bins.
# {frozen part: prefixes of the names of its parameters}.
FROZEN = {"embeddings": "embeddings.", "encoder": ("embeddings.", "encoder.")}


class WeightCounts(NamedTuple):
    kept_by_matrix: list[int]
    total_by_matrix: list[int]


class Masks(loop.Callback):
    """This class puts a mask on every linear layer of the encoder, and closes masks by
    a schedule during the training.

    What a resumed run needs is in buffers of `model.pruning`, which the finished model
    does not have. Raises Refused where the schedule's warm-ups do not fit the number of
    steps."""

    def __init__(
        self,
        run: Scratch,
        model: PreTrainedModel,
        prune_options: Prune,
        step_count: int,
    ) -> None:
        self.run, self.model, self.options, self.steps = (
            run,
            model,
            prune_options,
            step_count,
        )
        self.ramp, self.cut, self.weight = (
            schedules.plan_threshold_ramp(prune_options, step_count),
            find_final_score_threshold(prune_options),
            0.0,
        )
        self.places = [
            (n, part, Mask(part.weight, prune_options))
            for n, _, part in list_linear_layers(model)
        ]
        for _, linear, mask in self.places:
            mask.train(linear.training)
            parametrize.register_parametrization(linear, "weight", mask, unsafe=True)
        self.scores = [
            mask.scores for *_, mask in self.places if hasattr(mask, "scores")
        ]
        self.groups = (
            ({"params": self.scores, "lr": prune_options.lr},) if self.scores else ()
        )
        pruning = model.pruning = nn.Module()
        device = next(model.parameters()).device
        for name, value in (("steered", prune_options.final_lambda), ("error", 0.0)):
            made = torch.tensor(value, dtype=torch.float64, device=device)
            pruning.register_buffer(name, made)

    def before_forward_pass(self, step: int, step_count: int) -> None:
        """Set the threshold of the masks and the weight of the penalty for a step.

        With a target share of kept weights, a controller changes that weight."""
        for *_, mask in self.places:
            mask.threshold = self.ramp(step)
        if self.options.final_lambda:
            self.weight = schedules.compute_penalty_weight(
                self.ramp(step), self.options
            )
        if self.options.target:
            if step % schedules.EVERY == 0 and step > self.ramp.first:
                self.update_penalty_weight(step)
            steered = float(self.model.get_buffer("pruning.steered"))
            self.weight *= steered / self.options.final_lambda

    def update_penalty_weight(self, step: int) -> None:
        """Change the penalty's weight so that the target share of the weights is kept
        at the end.

        The penalty lowers all scores. The decisive score is the largest one of those
        weights that are not to be kept. It has to fall to the final threshold just at
        the end of the run, so its lag behind a planned course changes the weight. The
        share of kept weights itself is a bad signal: it stays at 1 for long and then
        falls within a few steps."""
        state, first = self.model.get_submodule("pruning"), self.options.final_lambda
        steered, lag = state.get_buffer("steered"), state.get_buffer("error")
        assert self.cut is not None
        every = torch.cat([scores.detach().flatten() for scores in self.scores])
        score = float(
            find_kth_largest(every, max(1, int(self.options.target * every.numel())))
        )
        way = (score - self.cut) / (self.options.init - self.cut)
        error = way - schedules.compute_planned_score_level(
            step, self.ramp.first, self.steps
        )
        weight = schedules.compute_next_penalty_weight(
            float(steered), error, float(lag), first
        )
        steered.fill_(weight)
        lag.fill_(error)

    def compute_penalty(self) -> dict[str, Tensor]:
        """Return {"penalty": weight times the mean penalty of all masked matrices}, a
        part of the loss; {} where the method has none."""
        if not self.options.final_lambda:
            return {}
        penalties = torch.stack([mask.compute_penalty() for *_, mask in self.places])
        return {"penalty": self.weight * penalties.mean()}

    @torch.no_grad()
    def count_kept_weights(self) -> WeightCounts:
        """Return the numbers of kept and of all weights, with an entry for each masked
        matrix."""
        name = "parametrizations.weight.original"
        weights = [linear.get_parameter(name) for _, linear, _ in self.places]
        surviving = [
            int(mask.count_kept_weights(w))
            for (*_, mask), w in zip(self.places, weights, strict=True)
        ]
        return WeightCounts(surviving, [w.numel() for w in weights])

    @torch.no_grad()
    def after_last_step(self) -> Metrics:
        """Multiply the weights by their final masks, remove the masks, and cut out
        heads and neurons that are all zero.

        It saves the array `shares`, the kept share of each layer's masked weights [L],
        and returns counts of weights in the encoder's layers."""
        of_layer = [number for number, *_ in self.places]
        everything = sum(p.numel() for p in get_layers(self.model).parameters())
        everything -= sum(scores.numel() for scores in self.scores)
        self.model.eval()  # In eval mode masks are not random any more.
        surviving, total = (
            np.bincount(of_layer, counts) for counts in self.count_kept_weights()
        )
        for _, linear, _ in self.places:
            parametrize.remove_parametrizations(
                linear, "weight", leave_parametrized=True
            )
        del self.model.pruning
        self.run.save_arrays("shares", layers=surviving / total)
        left = compact.remove_zero_heads_and_neurons(self.model)
        metrics = compute_pruning_metrics(
            int(total.sum()), int(surviving.sum()), everything
        )
        metrics |= {f"kept_{what}": sum(numbers) for what, numbers in left.items()}
        return metrics | {"penalty_weight": self.weight}


def compute_pruning_metrics(
    maskable_weight_count: int, kept_weight_count: int, parameter_count: int
) -> Metrics:
    """Return shares and counts of weights as metrics of a pruned model.

    "kept_share" is of the masked weights. "remaining" is of all parameters of the
    layers, with biases and LayerNorms; the papers call it remaining weights.

    maskable_weight_count: number of weights with masks.
    kept_weight_count: number of those that are not pruned.
    parameter_count: number of all parameters of the layers."""
    return {
        "masked_weights": maskable_weight_count,
        "kept_weights": kept_weight_count,
        "encoder_parameters": parameter_count,
        "kept_share": kept_weight_count / maskable_weight_count,
        "remaining": (kept_weight_count + parameter_count - maskable_weight_count)
        / parameter_count,
    }


class LayerMix(loop.Callback):
    """This class puts a layer mix, a weighted sum of all layers' outputs, into a model
    and trains it.

    It saves the arrays `mix`: the weights [L + 1] before and after the training, and
    the scale gamma [1]."""

    def __init__(self, run: Scratch, model: PreTrainedModel, mix_options: Mix) -> None:
        self.run, self.model = run, model
        apply_surgery(
            model, mix_options.surgery_operation, seed=derive_seed(run.seed, "mix")
        )
        mix = mixes.find_mix(model)
        assert mix is not None
        self.mix, self.first = mix, mix.weights().detach().numpy().copy()
        learned = list(self.mix.parameters())
        self.groups = ({"params": learned, "lr": mix_options.lr},) if learned else ()

    def after_last_step(self) -> Metrics:
        self.run.save_arrays(
            "mix",
            before=self.first,
            after=self.mix.weights().detach().cpu().numpy(),
            gamma=self.mix.gamma.detach().cpu().numpy()[None],
        )
        # The mix keeps the embedding's and all L layers' outputs in memory, in float32. The
        # paper names this cost (section 5).
        number = (len(get_layers(self.model)) + 1) * self.model.config.hidden_size
        return {"mix_bytes_per_token": 4 * number}


def freeze_encoder_or_embeddings(model: PreTrainedModel, frozen_part: str) -> None:
    """Exclude a part of the model from training: "embeddings" or, with them, "encoder".

    The embeddings are those of words, positions and types with their LayerNorm. Pooler,
    head, layer mix and the scores of masks stay trainable."""
    for name, parameter in get_encoder(model).named_parameters():
        if name.startswith(FROZEN[frozen_part]) and not name.endswith("scores"):
            parameter.requires_grad_(False)


class GradientRecord(loop.Callback):
    """This class records the gradient norm of each layer during a training, before
    clipping.

    Scores of masks do not count. It saves the arrays `course`, in at most 50 bins of
    steps: mean norms [bins, L], and the share of weights that the masks keep at the
    first step of each bin [bins]. Both are NaN after the loss was not finite."""

    def __init__(
        self, run: Scratch, model: PreTrainedModel, step_count: int, masks: Masks | None
    ) -> None:
        self.run, self.steps, self.masks = run, step_count, masks
        self.edges = np.linspace(0, step_count, min(BINS, step_count) + 1).astype(int)
        self.layers = [
            [p for name, p in layer.named_parameters() if not name.endswith("scores")]
            for layer in get_layers(model)
        ]

    def after_backward_pass(self, step: int, step_count: int) -> None:
        grads = [[p.grad for p in layer if p.grad is not None] for layer in self.layers]
        norms = torch.stack([torch.nn.utils.get_total_norm(layer) for layer in grads])
        share = None
        if step in self.edges:
            surviving, sizes = (
                self.masks.count_kept_weights() if self.masks else ([1], [1])
            )
            share = sum(surviving) / sum(sizes)
        self.run.log_step(
            step, course={"gradient_norm": norms.tolist(), "kept_share": share}
        )

    def after_last_step(self) -> Metrics:
        logged = self.run.read_log("course")
        norms = np.full((self.steps, len(self.layers)), np.nan)
        shares = np.full(self.steps, np.nan)
        norms[logged["step"]] = logged["gradient_norm"].astype(np.float32)
        shares[logged["step"]] = logged["kept_share"].astype(np.float32)
        means = np.stack([norms[a:b].mean(0) for a, b in pairwise(self.edges)])
        self.run.save_arrays(
            "course", gradient_norm=means, kept_share=shares[self.edges[:-1]]
        )
        return {}
