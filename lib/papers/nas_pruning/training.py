"""These steps search which parts of a model to keep, and train the kept parts.

The report on NAS pruning has them in sections 5 to 7. Each is a preset of
`train_and_save` (lib.train.learn)."""

import torch
import transformers

from lib.core.options import Targets
from lib.core.types import Json
from lib.model import backbone, gates, masks
from lib.model.parts import count_parameters, get_encoder
from lib.model.surgery import operate
from lib.papers.nas_pruning.gating import GateSearch, count_flops
from lib.papers.nas_pruning.objectives import make_objective
from lib.papers.nas_pruning.options import Gates, Objective
from lib.train import loop
from lib.train.learn import TaskTraining, train_and_save
from lib.train.objectives import build_target_objective


def nas_search(training: TaskTraining, gates: Json, objective: Json) -> Json:
    """Search which heads and neurons of a model to keep at a given cost.

    Gates train beside the weights, on the same batches (report on NAS pruning, sections
    5 and 7). Inputs: `start`, the model to search in, fine-tuned or general; `teacher`
    where the objective needs one, which may be the same model; `augmented` for its rows
    instead of the plain ones.

    The last model is saved with its gates, so `train.select` is "last". Predictions and
    scores are those of its soft masks. lib.papers.nas_pruning.gating.GateSearch lists
    the other saved arrays."""
    model = training.load_start_model()
    search = GateSearch(training.run, model, Gates(**gates))
    return train_and_save(
        training,
        model,
        make_objective(training, model, Objective(**objective)),
        [search],
    )


def retrain(
    training: TaskTraining, objective: Json, architecture: Json | None = None
) -> dict[str, float]:
    """Cut an architecture out of a model, and train it on a teacher or on labels.

    The report on NAS pruning has two such stages (sections 5.4 and 5.5); each is one
    run. Inputs: `start`, the model that gives the weights: the one that was searched
    in, or the search itself, whose gates are removed (section 7.8); `teacher` where the
    objective needs one; `search`, where `architecture` is its Output; `augmented` for
    its rows instead of the plain ones.

    architecture: {"heads", "neurons", ...} of `nas_search` or `random_architecture`;
    None keeps the model as it is. Predictions and metrics are those of `finetune`;
    `flops` is in the report's convention."""
    model = training.load_start_model()
    if gates.has_gates(model):
        gates.remove_gates(model)
    if architecture:
        operate(model, {"op": "keep"} | architecture)
    result = train_and_save(
        training, model, make_objective(training, model, Objective(**objective))
    )
    return result | count_parameters(model) | {"flops": count_flops(model)}


def imp(
    training: TaskTraining, kept: float, objective: Json | None = None
) -> dict[str, float]:
    """Do one round of iterative magnitude pruning with rewinding (NAS report, Table
    10).

    The procedure is that of the public code of "The Lottery Ticket Hypothesis for
    Pre-trained BERT Networks" (Chen et al. 2020). Inputs: `start`, the round before, or
    for the first round the dense fine-tuned model; `origin`, the pre-trained model;
    `teacher` where the objective needs one.

    kept: the share of the weights that stays: the largest in `start`, over all linear
    layers of encoder and pooler together. The public code prunes a tenth of all weights
    in each round. objective: the fields of an Objective, by default the labels. The
    kept weights of the encoder return to their pre-trained values, the classifier does
    not. Then the model is fine-tuned, and pruned weights stay zero. Metrics are those
    of `finetune`."""
    model = training.load_start_model()
    ticket = Ticket(model, backbone.load(training.run.inputs["origin"].model)[0], kept)
    if objective:
        learned = make_objective(training, model, Objective(**objective))
    else:
        learned = build_target_objective(training, model, Targets("hard"))
    return train_and_save(training, model, learned, [ticket]) | count_parameters(model)


class Ticket(loop.Method):
    """A Ticket sets the largest weights of a model back to those of `pretrained_model`.

    All other weights become zero, and stay zero in the training."""

    def __init__(
        self,
        model: transformers.PreTrainedModel,
        pretrained_model: transformers.PreTrainedModel,
        pruned_share: float,
    ) -> None:
        self.weights = list_prunable_weights(model)
        sizes = [weight.detach().abs() for weight in self.weights]
        count = round(pruned_share * sum(size.numel() for size in sizes))
        # Ties keep the first.
        self.masks = masks.mask_largest_of_all(sizes, count)
        # `pretrained_model` may have more tensors than the model.
        theirs = get_encoder(pretrained_model).state_dict()
        get_encoder(model).load_state_dict(
            {name: theirs[name] for name in get_encoder(model).state_dict()}
        )
        with torch.no_grad():
            for weight, mask in zip(self.weights, self.masks, strict=True):
                weight *= mask
        self.masks = [mask.to(loop.get_device()) for mask in self.masks]

    def adjust_gradients(self, step: int, steps: int) -> None:
        """Zero the gradients of pruned weights, so that Adam leaves these at zero."""
        for weight, mask in zip(self.weights, self.masks, strict=True):
            assert weight.grad is not None
            weight.grad *= mask


def list_prunable_weights(model: transformers.PreTrainedModel) -> list[torch.Tensor]:
    """Return the weights of the encoder's linear layers, and of a pooler if there is
    one."""
    weights = [part.weight for _, _, part in masks.list_linear_layers(model)]
    pooler = getattr(get_encoder(model), "pooler", None)
    return weights + ([pooler.dense.weight] if pooler is not None else [])
