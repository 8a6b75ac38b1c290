"""These steps train a model on a task: each is a preset of `learn` (lib.train.learn).

One more step turns a trained model into int8.
"""

import numpy as np
import torch
import transformers

from lib.core.options import Gates, Mix, Objective, Prune, Targets
from lib.core.types import Json
from lib.model import backbone, compact, gates, masks
from lib.model.parts import base, size
from lib.model.surgery import operate
from lib.train import heads, loop, pruning
from lib.train.gating import GateSearch, flops
from lib.train.learn import TaskTraining, learn, predictions
from lib.train.objectives import objective_of, predicting


def finetune(training: TaskTraining, targets: Json) -> dict[str, float]:
    """Fine-tune a model on a task: the last stage of every method, and the teacher of
    most.

    Inputs: `start` (any model), and `teacher` where the targets need its logits.

    It saves predictions, labels and row numbers of every labelled evaluation split.
    Metrics are in float64; those of the first development set have no prefix."""
    model = training.start()
    return learn(
        training, model, predicting(training, model, Targets(**targets))
    ) | size(model)


def fineprune(
    training: TaskTraining,
    targets: Json,
    alpha: float | None = None,
    prune: Json | None = None,
    mix: Json | None = None,
    frozen: str | None = None,
    margin: float | None = None,
    lower_case: bool | None = None,
) -> dict[str, float]:
    """Fine-tune under masks that a schedule closes, with or without a mix of the
    layers.

    So BERMo and Sanh et al. 2020 do it. A run that diverges is a result. Inputs:
    `start` (any model), and `teacher` where the targets need its logits.

    prune, mix: the fields of a lib.core.options.Prune and Mix. Without `prune` it is
    dense fine-tuning with the same measurements. alpha: the weight of the teacher's
    part with targets "both", while that of the labels is 1 - alpha; the paper has 0.9.
    frozen: the part that does not learn (lib.train.pruning.freeze); with "encoder" the
    run is a probe. margin: a run has diverged if its first metric is at most this much
    above that of the majority class. Without a margin no run has, and a loss that is
    not finite is an error. lower_case: False keeps the case of the text, as a script
    without --do_lower_case does. To an uncased vocabulary every capitalised word is
    then unknown, and `unknown_share` is the share of such tokens in the training rows.
    None leaves it to `start`.

    It saves predictions of every labelled split but the training rows, and the
    `course`, `shares` and `mix` of lib.train.pruning. Metrics of test rows are
    "test.<metric>"; others are the counts of the masks and the bytes of the model,
    dense and sparse. Where the loss was not finite there are no predictions, and
    `diverged` is true."""
    run, model = training.run, training.start()
    if lower_case is False:
        cls, folder = type(training.tokenizer), run.inputs["start"].model
        training.tokenizer = cls.from_pretrained(
            folder, do_lower_case=False, local_files_only=True
        )
    objective = predicting(training, model, Targets(**targets), alpha)
    methods: list[loop.Method] = (
        [pruning.LayerMix(run, model, Mix(**mix))] if mix else []
    )
    masks = pruning.Masks(run, model, Prune(**prune), training.steps) if prune else None
    methods += ([masks] if masks else []) + [
        pruning.Course(run, model, training.steps, masks)
    ]
    if frozen:
        pruning.freeze(model, frozen)
    judged, may_diverge = ("dev", "unseen", "test"), margin is not None
    result = learn(training, model, objective, methods, judged, may_diverge=may_diverge)
    if margin is not None:
        result["majority"] = heads.majority(training.task, training.splits)
        score = result.get(training.task.metrics[0], -np.inf)
        result["diverged"] = bool(score <= result["majority"] + margin)
    if lower_case is False:
        ids = np.concatenate(training.rows.columns["input_ids"])
        result["unknown_share"] = float(np.mean(ids == training.tokenizer.unk_token_id))
    return result | size(model) | (compact.sizes(model) if prune else {})


def nas_search(training: TaskTraining, gates: Json, objective: Json) -> Json:
    """Search which heads and neurons of a model to keep at a given cost.

    Gates train beside the weights, on the same batches (report on NAS pruning, sections
    5 and 7). Inputs: `start`, the model to search in, fine-tuned or general; `teacher`
    where the objective needs one, which may be the same model; `augmented` for its rows
    instead of the plain ones.

    The last model is saved with its gates, and `train.select` is "last". Predictions
    and scores are those of its soft masks. lib.train.gating.GateSearch says what else
    is saved."""
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
    run. Inputs: `start`, whose weights are taken: the model that was searched in, or
    the search itself, whose gates are then left out (section 7.8); `teacher` where the
    objective needs one; `search`, where `architecture` is its Output; `augmented` for
    its rows instead of the plain ones.

    architecture: {"heads", "neurons", ...} of `nas_search` or `random_architecture`;
    None keeps the model as it is. Predictions and metrics are those of `finetune`;
    `flops` is in the report's convention."""
    model = training.start()
    if gates.present(model):
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

    kept: the share of the weights that stays, those with the largest magnitude in `start`, of all
    linear layers of encoder and pooler together. objective: the fields of a
    lib.core.options.Objective, by default the labels. The encoder goes back to its pre-trained
    values, the classifier does not. Then the model is fine-tuned, and pruned weights stay
    zero. The public code prunes a tenth of all weights in each round. Metrics are those of
    `finetune`.
    """
    model = training.start()
    ticket = Ticket(model, backbone.load(training.run.inputs["origin"].model)[0], kept)
    if objective:
        learned = objective_of(training, model, Objective(**objective))
    else:
        learned = predicting(training, model, Targets("hard"))
    return learn(training, model, learned, [ticket]) | size(model)


class Ticket(loop.Method):
    """A Ticket sets the largest weights of a model back to those of `origin`.

    The other weights are zero, and stay zero in the training.
    """

    def __init__(
        self,
        model: transformers.PreTrainedModel,
        origin: transformers.PreTrainedModel,
        share: float,
    ) -> None:
        self.weights = prunable(model)
        sizes = [weight.detach().abs() for weight in self.weights]
        count = round(share * sum(size.numel() for size in sizes))
        self.masks = masks.top_of_all(sizes, count)  # Of equal ones the first stay.
        theirs = base(origin).state_dict()  # It may have more tensors.
        base(model).load_state_dict(
            {name: theirs[name] for name in base(model).state_dict()}
        )
        with torch.no_grad():
            for weight, mask in zip(self.weights, self.masks, strict=True):
                weight *= mask
        self.masks = [mask.to(loop.device()) for mask in self.masks]

    def gradients(self, step: int, steps: int) -> None:
        """Set the gradients of pruned weights to zero, so that Adam leaves them at
        zero."""
        for weight, mask in zip(self.weights, self.masks, strict=True):
            assert weight.grad is not None
            weight.grad *= mask


def prunable(model: transformers.PreTrainedModel) -> list[torch.Tensor]:
    """List the weights of the encoder's linear layers, and of the pooler where there is
    one."""
    weights = [part.weight for _, _, part in masks.projections(model)]
    pooler = getattr(base(model), "pooler", None)
    return weights + ([pooler.dense.weight] if pooler is not None else [])


def quantise(training: TaskTraining) -> dict[str, float]:
    """Turn a finished model into int8, and judge it again without any training.

    Input: `start`. `train`, the settings of that model, says how rows are cut and
    padded. Metrics and predictions are those of `finetune`, with the bytes of all
    tensors."""
    model = training.start()
    operate(model, {"op": "int8"})
    result = predictions(training.run, training.judges(model))
    backbone.save(model, training.tokenizer, training.run.model)
    return result | size(model) | {"bytes": compact.stored(model)}
