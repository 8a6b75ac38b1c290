"""Step: fine-tune under masks that a schedule closes, with or without a mix of the layers (BERMo;
Sanh et al. 2020).

Without `prune` it is dense fine-tuning with the same measurements. A run that diverges is a result.
"""

import numpy as np

from lib.model import backbone, compact
from lib.model import mix as mixes
from lib.model.parts import size
from lib.train import heads, pruning
from lib.train.learn import Lesson, learn
from lib.train.objectives import predicting
from lib.train.options import Mix, Prune, Targets


def fineprune(
    run,
    data,
    train,
    numerics,
    targets,
    alpha=None,
    prune=None,
    mix=None,
    frozen=None,
    margin=None,
    span=None,
    lower_case=None,
):
    """Inputs: `start` (any model), and `teacher` where the targets need its logits.

    prune, mix: lib.train.options.Prune and Mix. Without them nothing is pruned, and the mix is that
    of `start`.
    alpha: with targets "both", the weight of the teacher's part; that of the labels is 1 - alpha
    (0.9 in the paper).
    frozen: what stays as it is (lib.train.pruning.Frozen); with "encoder" the run is a probe.
    margin: a run is called diverged up to this much above the first metric of the majority class.
    Without it no run is, and a loss that is not finite is an error.
    lower_case: False keeps the case of the text, as a script without --do_lower_case does. To an
    uncased vocabulary every capitalised word is then unknown; `unknown_share` is of all tokens of
    the training rows. None leaves it to `start`.

    Predictions are kept of every labelled split but the training rows; metrics of test rows are
    "test.<metric>". `course`, `shares` and `mix` are those of the methods in lib.train.pruning.
    Metrics have the counts of the masks and the bytes of the model, dense and sparse. Where the
    loss was not finite there are no predictions, `diverged` is true and `diverged_at` says the
    step.
    """
    lesson, targets = Lesson(run, data, train, numerics, span), Targets(**targets)
    model, tokenizer = lesson.start()
    if lower_case is False:
        tokenizer = cased(run.inputs["start"].model, tokenizer)
    rows = lesson.rows(tokenizer)
    objective, steps = predicting(lesson, model, rows, targets, alpha), lesson.steps(rows)
    methods = []
    if mix or mixes.present(model):
        methods.append(pruning.LayerMix(run, model, mix and Mix(**mix)))
    pruned = pruning.Masks(run, model, Prune(**prune), steps) if prune else None
    methods += [pruned] * bool(pruned) + [pruning.Course(run, model, steps, pruned)]
    if frozen:
        methods.append(pruning.Frozen(model, frozen))
    judged = ("dev", "unseen", "test")
    result = learn(
        lesson, model, tokenizer, rows, objective, methods, judged, may_diverge=margin is not None
    )
    if margin is not None:
        result["majority"] = heads.majority(lesson.task, lesson.splits)
        score = result.get(lesson.task.metrics[0], -np.inf)
        result["diverged"] = bool(score <= result["majority"] + margin)
    if lower_case is False:
        ids = np.concatenate(rows.columns["input_ids"])
        result["unknown_share"] = float(np.mean(ids == tokenizer.unk_token_id))
    result |= size(model)
    if pruned:
        result |= compact.sizes(model)
    backbone.save(model, tokenizer, run.model)
    return result


def cased(folder, tokenizer):
    """The tokenizer of a model's folder with do_lower_case off; it is saved so. Raises ValueError
    where that changes nothing.
    """
    found = type(tokenizer).from_pretrained(folder, do_lower_case=False, local_files_only=True)
    if tokenizer.tokenize("A") == found.tokenize("A"):
        raise ValueError(
            f"fineprune.lower_case is False, and changes nothing for a {type(tokenizer).__name__}: "
            "leave it out, or start from an uncased BERT"
        )
    return found
