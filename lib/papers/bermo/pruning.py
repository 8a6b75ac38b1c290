"""This module prunes weights during fine-tuning, adds the layer mix, freezes parts of a
model and records gradients (BERMo, section 2.3; Sanh et al. 2020).

Each class is a callback of the training loop (lib.train.loop)."""

from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import PreTrainedModel

from lib.core.names import derive_seed
from lib.core.store import TrainingOutput
from lib.model import compact
from lib.model import mix as mixes
from lib.model.masks import (
    Mask,
    compute_final_mask_score_threshold,
    find_kth_largest,
    list_linear_layers,
)
from lib.model.parts import get_encoder, get_layers
from lib.model.surgery import apply_surgery
from lib.papers.bermo import schedules
from lib.papers.bermo.options import Mix, Prune
from lib.stats.metrics import Metrics
from lib.train import loop

BINS = 50  # Largest number of bins of steps in which logged values are averaged.
# {part of BERT that is not trained: prefixes of the names of the parameters that are
# frozen}. With the encoder, the embeddings are frozen too.
EMBEDDINGS = ("embeddings.", "embeddings_project.")  # The second is of ELECTRA.
FROZEN = {"embeddings": EMBEDDINGS, "encoder": (*EMBEDDINGS, "encoder.")}


class WeightCounts(NamedTuple):
    kept_by_matrix: list[int]
    total_by_matrix: list[int]


class PruningMasks(loop.Callback):
    """This class prunes a model while it is trained, by a mask on each linear layer.

    The constructor puts masks on the linear layers of the encoder. The training loop
    calls the methods in each step. By a threshold that follows a schedule, the masks
    remove ever more weights. After the last step, they are multiplied into the weights.

    Raises Refused where the warm-ups of the schedule do not fit the number of steps,
    unless the option `overlong` is "jump"."""

    def __init__(
        self,
        run: TrainingOutput,
        model: PreTrainedModel,
        prune_options: Prune,
        step_count: int,
    ) -> None:
        self.run = run
        self.model = model
        self.options = prune_options
        self.steps = step_count
        self.ramp = schedules.plan_threshold_ramp(prune_options, step_count)
        self.cut = compute_final_mask_score_threshold(prune_options)
        self.weight = 0.0
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
        """Set the threshold of the pruning masks and the weight of their penalty.

        The training loop calls it before each forward pass. The threshold follows a
        schedule (`plan_threshold_ramp`). The penalty is a term of the loss that lowers
        mask scores; its weight follows the threshold. Where a share of weights to keep
        is set, a controller scales the penalty's weight too.

        step: number of the step, from 0.
        step_count: number of all steps; it is not used."""
        for *_, mask in self.places:
            mask.threshold = self.ramp(step)
        if self.options.final_lambda:
            self.weight = schedules.compute_penalty_weight_at_threshold(
                self.ramp(step), self.options
            )
        if self.options.target:
            if step % schedules.EVERY == 0 and step > self.ramp.last_step_at_start:
                self.update_penalty_weight(step)
            steered = float(self.model.get_buffer("pruning.steered"))
            self.weight *= steered / self.options.final_lambda

    def update_penalty_weight(self, step: int) -> None:
        """Change the penalty's weight so that the wanted share of weights is kept.

        Each weight of the masked layers has a learned score. It is pruned where its
        score is below a final threshold, and the penalty in the loss lowers all scores.
        Of n scores the k-th largest decides, where k is n times the wanted share: if it
        ends at the threshold, about k weights stay. This score is compared with a
        planned course (`compute_planned_mask_score`), and the penalty becomes
        stronger where the score is too high. The kept share itself is a bad signal: it
        stays at 1 for long, then falls within a few steps.

        step: number of the step, from 0."""
        state = self.model.get_submodule("pruning")
        first = self.options.final_lambda
        steered = state.get_buffer("steered")
        lag = state.get_buffer("error")
        assert self.cut is not None
        every = torch.cat([scores.detach().flatten() for scores in self.scores])
        score = float(
            find_kth_largest(every, max(1, int(self.options.target * every.numel())))
        )
        way = (score - self.cut) / (self.options.init - self.cut)
        error = way - schedules.compute_planned_mask_score(
            step, self.ramp.last_step_at_start, self.steps
        )
        weight = schedules.compute_next_penalty_weight_by_pi_controller(
            float(steered), error, float(lag), first
        )
        steered.fill_(weight)
        lag.fill_(error)

    def compute_penalty_terms(self) -> dict[str, Tensor]:
        """Return {"penalty": scalar}, the term of the loss that makes the masks sparse.

        It is the current weight of the penalty times the mean over all masked matrices
        of a matrix's penalty (`Mask.compute_sparsity_penalty`). The training loop adds
        it to the loss. The result is {} where the option `final_lambda` is 0, as for
        pruning by magnitude."""
        if not self.options.final_lambda:
            return {}
        penalties = torch.stack(
            [mask.compute_sparsity_penalty() for *_, mask in self.places]
        )
        return {"penalty": self.weight * penalties.mean()}

    @torch.no_grad()
    def count_kept_weights(self) -> WeightCounts:
        """Count the kept weights and all weights of each masked matrix.

        Return two lists of integers, `kept_by_matrix` and `total_by_matrix`, in the
        order of the encoder's linear layers. For the method "l0", whose masks are
        random in training, those of eval mode are counted. The share of kept weights
        during the training follows from the counts."""
        name = "parametrizations.weight.original"
        weights = [linear.get_parameter(name) for _, linear, _ in self.places]
        surviving = [
            int(mask.count_kept_weights(w))
            for (*_, mask), w in zip(self.places, weights, strict=True)
        ]
        return WeightCounts(surviving, [w.numel() for w in weights])

    @torch.no_grad()
    def after_last_step(self) -> Metrics:
        """Make the pruning final: multiply masks into weights, and remove dead units.

        The training loop calls it once, before the model is saved. Attention heads and
        neurons whose incoming weights (for heads, those of the values) or outgoing
        weights are all zero are cut out, which makes the model smaller and faster. The
        share of weights that is kept in each layer [L] is saved as the array `layers`
        of the file `shares`.

        Return a dict with the counts "masked_weights" (weights with masks),
        "kept_weights" (those that stay), "encoder_parameters", "kept_heads" and
        "kept_neurons", summed over layers; the shares "kept_share" (of the weights with
        masks) and "remaining" (of all parameters of the layers) that stay; and
        "penalty_weight" at the last step."""
        of_layer = [number for number, *_ in self.places]
        everything = sum(p.numel() for p in get_layers(self.model).parameters())
        everything -= sum(scores.numel() for scores in self.scores)
        self.model.eval()  # In eval mode the masks of "l0" are not drawn at random.
        surviving, total = (
            np.bincount(of_layer, counts) for counts in self.count_kept_weights()
        )
        for _, linear, _ in self.places:
            parametrize.remove_parametrizations(
                linear, "weight", leave_parametrized=True
            )
        del self.model.pruning
        self.run.save_arrays("shares", layers=surviving / total)
        left = compact.remove_constant_heads_and_neurons(self.model)
        metrics = compute_pruning_metrics(
            int(total.sum()), int(surviving.sum()), everything
        )
        metrics |= {f"kept_{what}": sum(numbers) for what, numbers in left.items()}
        return metrics | {"penalty_weight": self.weight}


def compute_pruning_metrics(
    weight_count_with_masks: int, kept_weight_count: int, encoder_parameter_count: int
) -> Metrics:
    """Return the counts and shares of weights that describe how far a model is pruned.

    The keys are "masked_weights", "kept_weights" and "encoder_parameters", which are
    the three arguments, and two shares from 0 to 1. "kept_share" is kept weights by
    weights with a mask. "remaining" is the same share of all parameters of the layers,
    where biases and LayerNorms count as kept; papers on pruning call it remaining
    weights.

    weight_count_with_masks: number of weights with masks.
    kept_weight_count: number of those that are not pruned.
    encoder_parameter_count: number of all parameters of the encoder's layers."""
    return {
        "masked_weights": weight_count_with_masks,
        "kept_weights": kept_weight_count,
        "encoder_parameters": encoder_parameter_count,
        "kept_share": kept_weight_count / weight_count_with_masks,
        "remaining": (
            kept_weight_count + encoder_parameter_count - weight_count_with_masks
        )
        / encoder_parameter_count,
    }


class LayerMixTraining(loop.Callback):
    """This class puts a layer mix into a model, and trains the mix with the model.

    A layer mix is a learned weighted sum of the outputs of all layers, in place of the
    last layer's output (BERMo, section 3.1). The training loop calls the method
    `after_last_step`. It saves the file `mix` with the arrays `before` and `after` [L +
    1], the weights of embedding output and L layers before and after the training, and
    `gamma` [1], the scale of the sum. Its metric "mix_bytes_per_token" is the memory
    for the outputs in float32."""

    def __init__(
        self, run: TrainingOutput, model: PreTrainedModel, mix_options: Mix
    ) -> None:
        self.run = run
        self.model = model
        apply_surgery(
            model, mix_options.surgery_operation, seed=derive_seed(run.seed, "mix")
        )
        mix = mixes.find_layer_mix(model)
        assert mix is not None
        self.mix = mix
        self.first = mix.compute_hidden_state_weights().detach().numpy().copy()
        learned = list(self.mix.parameters())
        self.groups = ({"params": learned, "lr": mix_options.lr},) if learned else ()

    def after_last_step(self) -> Metrics:
        self.run.save_arrays(
            "mix",
            before=self.first,
            after=self.mix.compute_hidden_state_weights().detach().cpu().numpy(),
            gamma=self.mix.gamma.detach().cpu().numpy()[None],
        )
        # The layer mix sums the outputs of the embedding and of all L layers. It keeps
        # them in memory in float32, a cost that the paper names (section 5).
        number = (len(get_layers(self.model)) + 1) * self.model.config.hidden_size
        return {"mix_bytes_per_token": 4 * number}


def freeze_encoder_or_embeddings(
    model: PreTrainedModel, frozen_part: Literal["embeddings", "encoder"]
) -> None:
    """Exclude the embeddings, or the embeddings and all layers, from training.

    A frozen encoder makes the training a probe: it shows what the encoder's outputs
    already contain. Parameters are changed in place: `requires_grad` is set to False.
    Embeddings are those of tokens, positions and segments, and their LayerNorm. Pooler,
    task head, the weighted sum of layers and the learned scores of pruning masks stay
    trainable.

    frozen_part: "embeddings", or "encoder" for the embeddings and all layers. Raises
    KeyError for another name."""
    for name, parameter in get_encoder(model).named_parameters():
        if name.startswith(FROZEN[frozen_part]) and not name.endswith("scores"):
            parameter.requires_grad_(False)


class GradientNormRecorder(loop.Callback):
    """This class records the gradient norm of each layer while a model is trained.

    It shows whether gradients reach the lower layers. The training loop calls its
    methods in each step. A norm is that of all gradients of a layer before clipping,
    without those of the scores of pruning masks.

    The file `course` gets two arrays. The steps are divided into at most 50 bins.
    `gradient_norm` [bins, L] has the mean norm in each bin. `kept_share` [bins] has the
    share of weights that are not pruned at the first step of each bin, 1 without
    pruning. Where the loss becomes infinite or NaN, the values of later steps are
    NaN."""

    def __init__(
        self,
        run: TrainingOutput,
        model: PreTrainedModel,
        step_count: int,
        masks: PruningMasks | None,
    ) -> None:
        self.run = run
        self.steps = step_count
        self.masks = masks
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
