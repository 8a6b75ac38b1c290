"""Steps that train a model on a task, each a preset of `learn` (lib.train.learn), and one that
turns a trained model into int8.
"""

import numpy as np
import torch

from lib.model import backbone, compact, gates, masks
from lib.model.parts import base, size
from lib.model.surgery import operate
from lib.train import heads, loop, pruning
from lib.train.gating import GateSearch, flops
from lib.train.learn import learn, predictions
from lib.train.objectives import objective_of, predicting
from lib.train.options import Gates, Mix, Objective, Prune, Targets


def finetune(lesson, targets):
    """Step: fine-tune a model on a task; the last stage of every method and the teacher of most.

    Inputs: `start` (any model), and `teacher` where the targets need its logits. `span` for tasks
    such as SQuAD.

    Predictions, labels and row numbers of every labelled evaluation split are saved. Metrics are in
    float64; those of the first development set have their own names.
    """
    model = lesson.start()
    return learn(lesson, model, predicting(lesson, model, Targets(**targets))) | size(model)


def fineprune(
    lesson, targets, alpha=None, prune=None, mix=None, frozen=None, margin=None, lower_case=None
):
    """Step: fine-tune under masks that a schedule closes, with or without a mix of the layers
    (BERMo; Sanh et al. 2020). A run that diverges is a result.

    Inputs: `start` (any model), and `teacher` where the targets need its logits.

    prune, mix: lib.train.options.Prune and Mix. Without `prune` it is dense fine-tuning with the
    same measurements.
    alpha: with targets "both", the weight of the teacher's part; that of the labels is 1 - alpha
    (0.9 in the paper).
    frozen: what stays as it is (lib.train.pruning.freeze); with "encoder" the run is a probe.
    margin: a run is called diverged up to this much above the first metric of the majority class.
    Without it no run is, and a loss that is not finite is an error.
    lower_case: False keeps the case of the text, as a script without --do_lower_case does. To an
    uncased vocabulary every capitalised word is then unknown; `unknown_share` is of all tokens of
    the training rows. None leaves it to `start`.

    Predictions are kept of every labelled split but the training rows; metrics of test rows are
    "test.<metric>". `course`, `shares` and `mix` are those of the methods in lib.train.pruning.
    Metrics have the counts of the masks and the bytes of the model, dense and sparse. Where the
    loss was not finite there are no predictions, and `diverged` is true.
    """
    run, model = lesson.run, lesson.start()
    if lower_case is False:
        cls, folder = type(lesson.tokenizer), run.inputs["start"].model
        lesson.tokenizer = cls.from_pretrained(folder, do_lower_case=False, local_files_only=True)
    objective = predicting(lesson, model, Targets(**targets), alpha)
    methods = [pruning.LayerMix(run, model, Mix(**mix))] if mix else []
    methods += [pruning.Masks(run, model, Prune(**prune), lesson.steps)] if prune else []
    methods.append(pruning.Course(run, model, lesson.steps))
    if frozen:
        pruning.freeze(model, frozen)
    judged, may_diverge = ("dev", "unseen", "test"), margin is not None
    result = learn(lesson, model, objective, methods, judged, may_diverge=may_diverge)
    if may_diverge:
        result["majority"] = heads.majority(lesson.task, lesson.splits)
        score = result.get(lesson.task.metrics[0], -np.inf)
        result["diverged"] = bool(score <= result["majority"] + margin)
    if lower_case is False:
        ids = np.concatenate(lesson.rows.columns["input_ids"])
        result["unknown_share"] = float(np.mean(ids == lesson.tokenizer.unk_token_id))
    return result | size(model) | (compact.sizes(model) if prune else {})


def nas_search(lesson, gates, objective):
    """Step: search which heads and neurons of a model to keep at a given cost, by gates that train
    beside its weights (report on NAS pruning, sections 5 and 7).

    Inputs: `start`, the model to search in, fine-tuned or general. `teacher` where the objective
    needs one; it may be the same model. `augmented` for its rows instead of the plain ones.

    Weights and gates learn from the same batches. The model is saved as it then is, with its gates;
    predictions and scores are those of its soft masks. lib.train.gating.GateSearch says what else
    is kept. The last model is the result: `train.select` is "last".
    """
    model = lesson.start()
    search = GateSearch(lesson.run, model, Gates(**gates))
    return learn(lesson, model, objective_of(lesson, model, Objective(**objective)), [search])


def retrain(lesson, objective, architecture=None):
    """Step: cut an architecture out of a model and train it on a teacher's states, on its logits,
    or on labels (report on NAS pruning, sections 5.4 and 5.5). Each of the two stages is one run.

    Inputs: `start`, whose weights are taken: the model that was searched in, or the search
    itself, whose gates are then left out (section 7.8). `teacher` where the objective needs one.
    `search`, so that `architecture` can be its Output. `augmented` for its rows instead of the
    plain ones.

    architecture: {"heads", "neurons", ...} of `nas_search` or `random_architecture`; none keeps the
    model as it is. Predictions and metrics are those of `finetune`; `flops` is in the report's
    convention.
    """
    model = lesson.start()
    if gates.present(model):
        gates.detach(model)
    if architecture:
        operate(model, {"op": "keep"} | architecture)
    result = learn(lesson, model, objective_of(lesson, model, Objective(**objective)))
    return result | size(model) | {"flops": flops(model)}


def imp(lesson, kept):
    """Step: one round of iterative magnitude pruning with rewinding, the rival of the report on NAS
    pruning (Table 10). The procedure is that of the public code of "The Lottery Ticket Hypothesis
    for Pre-trained BERT Networks" (Chen et al. 2020).

    Inputs: `start`, the round before, or for the first round the dense fine-tuned model; `origin`,
    the pre-trained model.

    Of the weights of all linear layers of encoder and pooler together, the share `kept` with the
    largest magnitude in `start` stays. The encoder goes back to its pre-trained values, the
    classifier does not. Then the rest is fine-tuned on the labels, and pruned weights stay zero.
    The public code prunes a tenth of all weights in each round. Metrics are those of `finetune`.
    """
    model = lesson.start()
    ticket = Ticket(model, backbone.load(lesson.run.inputs["origin"].model)[0], kept)
    return learn(lesson, model, predicting(lesson, model, Targets("hard")), [ticket]) | size(model)


class Ticket(loop.Method):
    """The largest weights of a model, set back to those of `origin`; the others are zero and stay
    so.
    """

    def __init__(self, model, origin, kept):
        self.weights = prunable(model)
        sizes = [weight.detach().abs() for weight in self.weights]
        count = round(kept * sum(size.numel() for size in sizes))
        self.masks = masks.top_of_all(sizes, count)  # of equal ones the first
        theirs = base(origin).state_dict()  # it may have more
        base(model).load_state_dict({name: theirs[name] for name in base(model).state_dict()})
        with torch.no_grad():
            for weight, mask in zip(self.weights, self.masks, strict=True):
                weight *= mask
        self.masks = [mask.to(loop.device()) for mask in self.masks]

    def gradients(self, step, steps):
        """Zero the gradients of pruned weights: Adam then leaves them where they are."""
        for weight, mask in zip(self.weights, self.masks, strict=True):
            weight.grad *= mask


def prunable(model):
    """List the weights of the encoder's linear layers, and of the pooler where there is one."""
    found = [part.weight for _, _, part in masks.projections(model)]
    pooler = getattr(base(model), "pooler", None)
    return found + ([pooler.dense.weight] if pooler is not None else [])


def quantise(lesson):
    """Step: turn a finished model into int8 and judge it again; nothing is trained.

    Input: `start`. `train`, that of the model, tells how rows are cut and padded. Metrics and
    predictions are those of `finetune`, with the bytes of all tensors.
    """
    model = lesson.start()
    operate(model, {"op": "int8"})
    result = predictions(lesson.run, lesson.judges(model))
    backbone.save(model, lesson.tokenizer, lesson.run.model)
    return result | size(model) | {"bytes": compact.stored(model)}
