"""This module trains gates on heads and neurons beside a model's weights, until the
model has a target cost (report on NAS pruning, sections 5 and 7).

A gate is a parameter alpha; its mask sigmoid(alpha) multiplies a head or neuron."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lib.core.store import TrainingOutput
from lib.core.types import IndicesPerLayerByKind
from lib.model import gates
from lib.model.cut import count_prunable_units
from lib.model.parts import get_layers
from lib.model.surgery import apply_surgery
from lib.papers.nas_pruning import gated as measured
from lib.papers.nas_pruning.control import (
    NAMES,
    CostOfMaskSumsByRegion,
    GateAlphas,
    GateController,
    GateCountByRegion,
    GateKind,
    list_kept_indices,
    make_encoder_flops_function,
)
from lib.papers.nas_pruning.options import Gates
from lib.stats.metrics import Metrics
from lib.train import loop

# Columns of the array that logs each step of a search: target and actual cost ratio,
# and numbers of gates switched off and on.
COLUMNS = ("target", "ratio", "switched_off", "switched_on")


class GateCountsAndFlopsFunction(NamedTuple):
    gate_count_by_region: GateCountByRegion
    count_flops_of_mask_sums: CostOfMaskSumsByRegion


class SearchEnd(NamedTuple):
    metrics: Metrics
    alphas: GateAlphas  # [N].
    log_of_all_steps: np.ndarray  # All steps [steps, 4], with the columns COLUMNS.


class GateTraining(loop.Callback):
    """A GateTraining moves gates to a target cost while a model's weights train.

    A gate is a mask sigmoid(alpha) on a part of the model, such as a head. As a
    callback of the training loop it changes the alphas after each backward pass,
    instead of an optimiser. The moving average of their gradients is a buffer of the
    model during the training, so checkpoints save it. The constructor raises Refused
    for a target that no choice of gates reaches."""

    def __init__(
        self,
        run: TrainingOutput,
        model: nn.Module,
        gate_alphas: Iterable[Tensor],
        gate_count_by_region: GateCountByRegion,
        cost_function: CostOfMaskSumsByRegion,
        options: Gates,
    ) -> None:
        """Take N gates, masks sigmoid(alpha) on parts of a model, for a training.

        A region is the gates of one kind in one layer. Raises Refused for a target cost
        that no choice of gates reaches.

        run: takes the log of each step, and has the seed.
        gate_alphas: the gates' parameters, one 1-d tensor for each region.
        gate_count_by_region: {region: number of gates}, in the order of `gate_alphas`.
        cost_function: f({region: sum of masks}) -> FLOPs or another cost.
        options: settings of the search, such as the target cost."""
        self.run = run
        self.model = model
        self.apart = tuple(gate_alphas)
        self.control = GateController(
            options, gate_count_by_region, cost_function, run.seed
        )
        number = len(self.control.region)
        model.register_buffer("average", torch.zeros(number, dtype=torch.float64))

    def after_backward_pass(self, step: int, step_count: int) -> None:
        gradients = [
            a.new_zeros(a.shape) if a.grad is None else a.grad for a in self.apart
        ]
        before = self.model.get_buffer("average")
        alphas, average, note = self.control.compute_gate_logits_after_step(
            flatten_tensors(self.apart),
            before.cpu().numpy(),
            flatten_tensors(gradients),
            step,
            step_count,
        )
        copy_concatenated_values_into_tensors(self.apart, alphas)
        before.copy_(torch.from_numpy(average))
        self.run.log_step(step, search=dict(zip(COLUMNS, note.tolist(), strict=True)))

    def correct_cost_and_finish_search(self) -> SearchEnd:
        """Correct a pruning search's cost to its target after the last training step.

        Gates, masks on parts of the model, switch off, or on again. The alphas in the
        model change in place, and the buffer with their average gradients is removed.
        The SearchEnd that is returned has the metrics of the search, such as the share
        of the cost before and after the correction, the final alphas [N], and the log
        [steps, 4]: target and actual cost as shares, and the numbers of gates switched
        off and on."""
        control = self.control
        before = flatten_tensors(self.apart)
        logged = self.run.read_log("search")
        alphas, trimmed = control.correct_final_gates_to_target_cost(
            before, self.model.get_buffer("average").cpu().numpy()
        )
        copy_concatenated_values_into_tensors(self.apart, alphas)
        del self.model.average
        target = control.options.ratio
        ratio = control.compute_cost_ratio_of_alphas(alphas)
        metrics = {
            "target": target,
            "ratio": ratio,
            "miss": ratio / target - 1,
            "before_trim": control.compute_cost_ratio_of_alphas(before),
            "trimmed": len(trimmed),
            "switched_off": int(logged["switched_off"].sum()),
            "switched_on": int(logged["switched_on"].sum()),
        }
        return SearchEnd(
            metrics,
            alphas,
            np.stack([logged[name] for name in COLUMNS], 1).astype(np.float32),
        )


class GateSearch(GateTraining):
    """A GateSearch finds which heads and neurons of an encoder to keep, as it trains.

    As a callback of the training loop it puts gates, trained masks, on the parts that
    `options.regions` names, and switches them until the encoder has the target share of
    its FLOPs.

    Its metrics are `architecture`, the kept indices as `list_kept_indices` returns
    them, such as {"heads": L lists, "neurons": L lists}; `flops`, `whole_flops` and
    their quotient `ratio`; `target`, the wanted ratio; `miss`, ratio / target - 1;
    `before_trim`, the ratio before the final correction to the target; `trimmed`, the
    number of gates that this correction switched; and `switched_off` and `switched_on`,
    how often gates switched before it. It saves the arrays `search`: `curve` [steps,
    4], with target and actual ratio and the numbers of gates switched off and on, and
    the logits of all gates, as "<layer>.<kind>". Raises Refused for gates that do not
    fit the model, and for a target that no choice of gates reaches."""

    def __init__(
        self, run: TrainingOutput, model: PreTrainedModel, options: Gates
    ) -> None:
        apply_surgery(model, {"op": "gates", "regions": list(options.regions)})
        super().__init__(
            run,
            model,
            gates.get_gate_logits(model).values(),
            *count_gates_and_make_flops_function(model, options.regions),
            options,
        )

    def after_last_step(self) -> Metrics:
        metrics, alphas, curve = self.correct_cost_and_finish_search()
        # Half precision keeps these arrays small, since result files are kept in git.
        every = {
            f"{layer}.{kind}": alpha.detach().cpu().half().numpy()
            for (layer, kind), alpha in gates.get_gate_logits(self.model).items()
        }
        self.run.save_arrays("search", curve=curve, **every)
        return metrics | {
            "architecture": list_kept_indices(
                self.control.sizes, self.control.compute_open_gate_mask(alphas)
            ),
            "flops": self.control.full * metrics["ratio"],
            "whole_flops": self.control.full,
        }


def flatten_tensors(tensors: Iterable[Tensor]) -> np.ndarray:
    """Return several 1-d tensors joined into one float64 array on the CPU.

    So numpy code, which decides on the gates, gets the parameters of all gates at
    once."""
    return torch.cat([t.detach() for t in tensors]).double().cpu().numpy()


def copy_concatenated_values_into_tensors(
    tensors: Sequence[Tensor], concatenated_values: np.ndarray
) -> None:
    """Copy an array into several 1-d tensors in place, one tensor after the other.

    It is the reverse of `flatten_tensors`.

    concatenated_values: as many values as all tensors have together."""
    parts = torch.from_numpy(concatenated_values).split(
        [len(tensor) for tensor in tensors]
    )
    with torch.no_grad():
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part)


def count_gates_and_make_flops_function(
    model: PreTrainedModel, gate_kinds: Iterable[GateKind]
) -> GateCountsAndFlopsFunction:
    """Return how many gates a model can have, and a function for its FLOPs with masks.

    A gate is a trained mask on a head, a neuron or another part. The
    GateCountsAndFlopsFunction that is returned has {(layer, kind): number of gates} and
    f({(layer, kind): sum of masks}) -> FLOPs of one sequence of 128 tokens. A pruning
    search needs both. The result is the same whether or not the model has its gates
    already.

    gate_kinds: what is gated, such as "heads" and "ffn" (feed-forward neurons)."""
    sizes = {}
    layer_widths = []
    for number, layer in enumerate(get_layers(model)):
        planned = gates.plan_layer_gates(layer, gate_kinds)
        sizes |= {(number, kind): count for kind, (count, _, _) in planned.items()}
        units = count_prunable_units(layer)
        layer_widths.append({"heads": units["heads"], "ffn": units["neurons"]})
    attention: Any = layer.attention
    return GateCountsAndFlopsFunction(
        sizes,
        make_encoder_flops_function(
            model.config.hidden_size, attention.self.attention_head_size, layer_widths
        ),
    )


def count_inference_flops(model: PreTrainedModel) -> int:
    """Return the FLOPs of one forward pass of an encoder on one sequence of 128 tokens.

    The encoder may be pruned. Counted are the matrix products of the layers and the
    pooler, with two FLOPs for a multiply-add, as the report on pruning by
    differentiable NAS counts them. So results can be compared with its tables."""
    attention: Any = get_layers(model)[0].attention
    size = attention.self.attention_head_size
    layer_widths = [
        {**units, "ffn": units["neurons"]}
        for units in map(count_prunable_units, get_layers(model))
    ]
    return measured.flops(model.config.hidden_size, size, layer_widths)


def count_kept_units_by_layer_and_kind(
    kept_indices: IndicesPerLayerByKind, gate_count_by_region: GateCountByRegion
) -> list[int]:
    """Return how many heads or neurons a pruned model keeps in each layer.

    The counts have the order of `gate_count_by_region`. From them a random architecture
    with the same layer sizes is drawn.

    kept_indices: {"heads": L lists of kept indices, "neurons": L lists}.
    gate_count_by_region: {(layer, kind): number before pruning}, where `kind` is
    "heads", "ffn" (neurons) or another prunable part."""
    return [
        len(kept_indices[NAMES.get(kind, kind)][layer])
        for layer, kind in gate_count_by_region
    ]
