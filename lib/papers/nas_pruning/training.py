"""These steps search which heads and neurons of a model to keep, and train pruned
models (report on NAS pruning, sections 5 to 7).

Each calls `train_and_save` (lib.train.learn) with a loss and a method of its own."""

import torch
import transformers

from lib.core.options import Targets
from lib.model import backbone, gates, masks
from lib.model.parts import count_parameters, get_encoder
from lib.model.surgery import apply_surgery
from lib.papers.nas_pruning.gating import GateSearch, count_inference_flops
from lib.papers.nas_pruning.objectives import make_objective
from lib.papers.nas_pruning.options import Gates, Objective
from lib.stats.cost import KeptIndices
from lib.stats.metrics import Metrics
from lib.train import loop
from lib.train.learn import TaskTraining, train_and_save
from lib.train.loop import SettingsJson
from lib.train.objectives import build_target_objective


def nas_search(
    training: TaskTraining, gates: SettingsJson, objective: SettingsJson
) -> Metrics:
    """Search which heads and neurons of a model to keep at a target cost.

    Gates on them train beside the weights, on the same batches (report on NAS pruning,
    sections 5 and 7). The model after the last step is saved with its gates;
    predictions and scores are those with soft masks. See `GateSearch` in
    lib.papers.nas_pruning.gating for the architecture and arrays that are saved.

    Input runs: `start`, the model to prune, fine-tuned or pre-trained; `teacher`, where
    the loss needs one, which may be the same model; `augmented`, optional, for
    augmented training rows.

    gates, objective: fields of the options Gates and Objective."""
    model = training.load_start_model()
    search = GateSearch(training.run, model, Gates(**gates))
    return train_and_save(
        training,
        model,
        make_objective(training, model, Objective(**objective)),
        [search],
    )


def retrain(
    training: TaskTraining,
    objective: SettingsJson,
    architecture: KeptIndices | None = None,
) -> Metrics:
    """Cut the kept heads and neurons out of a model and train the smaller model.

    The report does so twice, with different losses (sections 5.4 and 5.5); each is one
    run. Metrics and predictions are those of the step `finetune`, and `flops` counts by
    the report's convention.

    Input runs: `start`, the model that gives the weights: the one that was searched, or
    the search itself, whose gates are removed (section 7.8); `teacher`, where the loss
    needs one; `search`, where `architecture` refers to its result; `augmented`,
    optional, for augmented training rows.

    objective: fields of the options Objective.
    architecture: {"heads": L lists of indices, "neurons": ...} of `nas_search` or
    `random_architecture`; None keeps the model as it is."""
    model = training.load_start_model()
    if gates.has_gates(model):
        gates.remove_gates(model)
    if architecture:
        apply_surgery(model, {"op": "keep", **architecture})
    result = train_and_save(
        training, model, make_objective(training, model, Objective(**objective))
    )
    return result | count_parameters(model) | {"flops": count_inference_flops(model)}


def imp(
    training: TaskTraining, kept: float, objective: SettingsJson | None = None
) -> Metrics:
    """Do one round of iterative magnitude pruning with rewinding (NAS report, Table
    10).

    The largest weights stay: those of the encoder return to their
    pre-trained values, the classifier does not. All others become zero. Then the model
    is fine-tuned, and pruned weights stay zero. The procedure is that of the public
    code of Chen et al. 2020, "The Lottery Ticket Hypothesis for Pre-trained BERT
    Networks", which prunes another tenth of all weights in each round. Metrics are
    those of the step `finetune`.

    Input runs: `start`, the round before, or the dense fine-tuned model for the first
    round; `origin`, the pre-trained model; `teacher`, where the loss needs one.

    kept: share of the weights that stay, over all linear layers of encoder and pooler
    together.
    objective: fields of the options Objective; None trains on labels."""
    model = training.load_start_model()
    ticket = WeightRewindingPruning(
        model, backbone.load(training.run.inputs["origin"].model_folder)[0], kept
    )
    if objective:
        learned = make_objective(training, model, Objective(**objective))
    else:
        learned = build_target_objective(training, model, Targets("hard"))
    return train_and_save(training, model, learned, [ticket]) | count_parameters(model)


class WeightRewindingPruning(loop.Callback):
    """This class keeps the largest weights of a model, set back to their pre-trained
    values, and holds all others at zero during the training (a "winning ticket" of the
    lottery ticket hypothesis).

    kept_share: the share of the weights that is kept."""

    def __init__(
        self,
        model: transformers.PreTrainedModel,
        pretrained_model: transformers.PreTrainedModel,
        kept_share: float,
    ) -> None:
        self.weights = list_prunable_weights(model)
        sizes = [weight.detach().abs() for weight in self.weights]
        count = round(kept_share * sum(size.numel() for size in sizes))
        self.masks = masks.make_global_top_k_masks(sizes, count)
        # `pretrained_model` may have tensors that the model lacks, such as a pooler.
        theirs = get_encoder(pretrained_model).state_dict()
        get_encoder(model).load_state_dict(
            {name: theirs[name] for name in get_encoder(model).state_dict()}
        )
        with torch.no_grad():
            for weight, mask in zip(self.weights, self.masks, strict=True):
                weight *= mask
        self.masks = [mask.to(loop.get_device()) for mask in self.masks]

    def after_backward_pass(self, step: int, step_count: int) -> None:
        """Set the gradients of pruned weights to zero, so that Adam leaves these
        weights at zero."""
        for weight, mask in zip(self.weights, self.masks, strict=True):
            assert weight.grad is not None
            weight.grad *= mask


def list_prunable_weights(model: transformers.PreTrainedModel) -> list[torch.Tensor]:
    """Return the weights that magnitude pruning may remove: those of the encoder's
    linear layers, and of the pooler if there is one."""
    weights = [part.weight for _, _, part in masks.list_linear_layers(model)]
    pooler = getattr(get_encoder(model), "pooler", None)
    return weights + ([pooler.dense.weight] if pooler is not None else [])
