"""These steps search which heads and neurons of a model to keep, and train pruned
models (report on NAS pruning, sections 5 to 7).

Each step calls `train_and_save` (lib.train.learn) with its own loss and callbacks."""

import torch
import transformers

from lib.core.types import IndicesPerLayerByKind
from lib.model import backbone, gates, masks
from lib.model.parts import count_parameters, get_encoder
from lib.model.surgery import apply_surgery
from lib.papers.nas_pruning.gating import GateSearch, count_inference_flops
from lib.papers.nas_pruning.objectives import build_training_loss
from lib.papers.nas_pruning.options import Gates, Objective
from lib.stats.metrics import Metrics
from lib.train import loop
from lib.train.learn import TaskTraining, train_and_save
from lib.train.loop import SettingsJson


def nas_search(
    training: TaskTraining, gates: SettingsJson, objective: SettingsJson
) -> Metrics:
    """Search which heads and neurons of a model to keep at a target share of FLOPs.

    Gates, masks on heads and neurons, train beside the weights on the same batches
    (sections 5 and 7 of the report on pruning by differentiable NAS). The model after
    the last step is saved with its gates; predictions and scores are those with soft
    masks. `GateSearch` in lib.papers.nas_pruning.gating lists the further metrics, such
    as the kept indices, and the arrays that are saved.

    training: the run that is being made, with rows and inputs: `start` is the model to
    prune, fine-tuned or only pre-trained; `teacher` is needed where the loss has one
    and may be the same model; `augmented` (optional) has augmented training rows.
    gates, objective: fields of the options Gates and Objective (the loss)."""
    model = training.load_start_model()
    search = GateSearch(training.run, model, Gates(**gates))
    return train_and_save(
        training,
        model,
        build_training_loss(training, model, Objective(**objective)),
        [search],
    )


def retrain(
    training: TaskTraining,
    objective: SettingsJson,
    architecture: IndicesPerLayerByKind | None = None,
) -> Metrics:
    """Cut all but the kept heads and neurons out of a model, and train what is left.

    It is one stage of the training that follows a pruning search; the report on pruning
    by differentiable NAS has two, with different losses (sections 5.4 and 5.5). It
    returns metrics such as scores, the number of parameters, and `flops` of one
    sequence of 128 tokens.

    training: the run that is being made, with rows and inputs. Its input `start` gives
    the weights: the model that was searched, the search itself, whose gates are removed
    (section 7.8), or the stage before. `teacher` is needed where the loss has one.
    `search` is the run that gave `architecture`. `augmented` (optional) has augmented
    training rows.
    objective: fields of the options Objective (the loss).
    architecture: {"heads": L lists of kept indices, "neurons": L lists}; None keeps the
    model as it is."""
    model = training.load_start_model()
    if gates.has_gates(model):
        gates.remove_gates(model)
    if architecture:
        apply_surgery(model, {"op": "keep", **architecture})
    result = train_and_save(
        training, model, build_training_loss(training, model, Objective(**objective))
    )
    return result | count_parameters(model) | {"flops": count_inference_flops(model)}


def imp(
    training: TaskTraining, kept: float, objective: SettingsJson | None = None
) -> Metrics:
    """Do one round of iterative magnitude pruning with rewinding of the weights.

    The encoder's largest weights are kept and return to their pre-trained values; all
    others become zero. The classifier is not rewound. Then the model is fine-tuned,
    while pruned weights stay zero. This is the procedure of the public code of Chen et
    al. 2020, "The Lottery Ticket Hypothesis for Pre-trained BERT Networks", which
    prunes another tenth of all weights in each round. The report on pruning by
    differentiable NAS compares its networks with it (Table 10). It returns metrics
    such as scores and the number of parameters.

    training: the run that is being made, with rows and inputs. Its input `start` is the
    round before, or for the first round the dense fine-tuned model. `origin` is the
    pre-trained model. `teacher` is needed where the loss has one.
    kept: share of the weights that stay, 0 to 1, over all linear layers of encoder and
    pooler together.
    objective: fields of the options Objective (the loss); None trains on labels."""
    model = training.load_start_model()
    ticket = WeightRewindingPruning(
        model, backbone.load(training.run.inputs["origin"].model_folder)[0], kept
    )
    kind = Objective(**objective) if objective else Objective("cross_entropy")
    loss = build_training_loss(training, model, kind)
    return train_and_save(training, model, loss, [ticket]) | count_parameters(model)


class WeightRewindingPruning(loop.Callback):
    """A WeightRewindingPruning holds all but a model's largest weights at zero.

    When it is made, it sets the whole encoder back to its pre-trained weights, and
    prunes. The kept weights are a "winning ticket" of the lottery ticket hypothesis. As
    a callback of the training loop it keeps pruned weights at zero.

    model: the fine-tuned model, whose weights are ranked by magnitude.
    pretrained_model: the model that gives the values of the kept weights.
    kept_share: share of the weights that is kept, 0 to 1, over all layers together."""

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
        """Set the gradients of pruned weights to zero.

        So Adam leaves these weights at zero, and the sparsity stays as it is.

        step, step_count: not used; every callback of the training loop takes them."""
        for weight, mask in zip(self.weights, self.masks, strict=True):
            assert weight.grad is not None
            weight.grad *= mask


def list_prunable_weights(model: transformers.PreTrainedModel) -> list[torch.Tensor]:
    """Return the weight matrices that magnitude pruning may set to zero in part.

    They are those of the encoder's linear layers, and of the pooler if there is one;
    embeddings, biases and the classifier stay dense."""
    weights = [part.weight for _, _, part in masks.list_linear_layers(model)]
    pooler = getattr(get_encoder(model), "pooler", None)
    return weights + ([pooler.dense.weight] if pooler is not None else [])
