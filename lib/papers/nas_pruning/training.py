"""These steps search which parts of a model to keep, and train the kept parts.

The report on NAS pruning has them in sections 5 to 7. Each is a preset of `learn`
(lib.train.learn)."""

import torch
import transformers

from lib.core.options import Targets
from lib.core.types import Json
from lib.model import backbone, gates, masks
from lib.model.parts import base, size
from lib.model.surgery import operate
from lib.papers.nas_pruning.gating import GateSearch, flops
from lib.papers.nas_pruning.objectives import objective_of
from lib.papers.nas_pruning.options import Gates, Objective
from lib.train import loop
from lib.train.learn import TaskTraining, learn
from lib.train.objectives import predict_targets


def nas_search(training: TaskTraining, gates: Json, objective: Json) -> Json:
    """Search which heads and neurons of a model to keep at a given cost.

    Gates train beside the weights, on the same batches (report on NAS pruning, sections
    5 and 7). Inputs: `start`, the model to search in, fine-tuned or general; `teacher`
    where the objective needs one, which may be the same model; `augmented` for its rows
    instead of the plain ones.

    The last model is saved with its gates, so `train.select` is "last". Predictions and
    scores are those of its soft masks. lib.papers.nas_pruning.gating.GateSearch lists
    the other saved arrays."""
    model = training.start()
    search = GateSearch(training.run, model, Gates(**gates))
    return learn(
        training, model, objective_of(training, model, Objective(**objective)), [search]
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
    model = training.start()
    if gates.has_gates(model):
        gates.detach(model)
    if architecture:
        operate(model, {"op": "keep"} | architecture)
    result = learn(
        training, model, objective_of(training, model, Objective(**objective))
    )
    return result | size(model) | {"flops": flops(model)}


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
    model = training.start()
    ticket = Ticket(model, backbone.load(training.run.inputs["origin"].model)[0], kept)
    if objective:
        learned = objective_of(training, model, Objective(**objective))
    else:
        learned = predict_targets(training, model, Targets("hard"))
    return learn(training, model, learned, [ticket]) | size(model)


class Ticket(loop.Method):
    """A Ticket sets the largest weights of a model back to those of `origin`.

    All other weights become zero, and stay zero in the training."""

    def __init__(
        self,
        model: transformers.PreTrainedModel,
        origin: transformers.PreTrainedModel,
        share: float,
    ) -> None:
        self.weights = prunable(model)
        sizes = [weight.detach().abs() for weight in self.weights]
        count = round(share * sum(size.numel() for size in sizes))
        # Ties keep the first.
        self.masks = masks.masks_of_largest(sizes, count)
        # `origin` may have more tensors than the model.
        theirs = base(origin).state_dict()
        base(model).load_state_dict(
            {name: theirs[name] for name in base(model).state_dict()}
        )
        with torch.no_grad():
            for weight, mask in zip(self.weights, self.masks, strict=True):
                weight *= mask
        self.masks = [mask.to(loop.device()) for mask in self.masks]

    def gradients(self, step: int, steps: int) -> None:
        """Zero the gradients of pruned weights, so that Adam leaves these at zero."""
        for weight, mask in zip(self.weights, self.masks, strict=True):
            assert weight.grad is not None
            weight.grad *= mask


def prunable(model: transformers.PreTrainedModel) -> list[torch.Tensor]:
    """Return the weights of the encoder's linear layers, and of a pooler if there is
    one."""
    weights = [part.weight for _, _, part in masks.projections(model)]
    pooler = getattr(base(model), "pooler", None)
    return weights + ([pooler.dense.weight] if pooler is not None else [])
