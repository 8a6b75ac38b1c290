"""This step trains with a mix of the layers, under masks, or with both (BERMo)."""

import numpy as np

from lib.core.options import Targets
from lib.core.types import Json
from lib.model import compact
from lib.model.parts import count_parameters
from lib.papers.bermo import pruning
from lib.papers.bermo.options import Mix, Prune
from lib.train import heads, loop
from lib.train.learn import TaskTraining, train_and_save
from lib.train.objectives import build_target_objective


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

    The procedure is that of BERMo and of Sanh et al. 2020. A run that diverges is a
    result. Inputs: `start` (any model), and `teacher` where the targets need its
    logits.

    prune, mix: the fields of a Prune and a Mix (lib.papers.bermo.options). Without
    `prune` it is dense fine-tuning with the same measurements. alpha: the weight of the
    teacher's part with targets "both"; that of the labels is 1 - alpha, and the paper
    has 0.9. frozen: the part that does not learn
    (lib.papers.bermo.pruning.freeze_part); with "encoder" the run is a probe. margin: a
    run has diverged if its first metric is at most this much above that of the majority
    class. Without a margin no run has, and a loss that is not finite is an error.
    lower_case: False keeps the case of the text, as a script without --do_lower_case
    does. An uncased vocabulary then knows no capitalised word, and `unknown_share` is
    the share of unknown tokens in the training rows. None takes the setting of `start`.

    It saves predictions of every labelled split but the training rows, and the
    `course`, `shares` and `mix` of lib.papers.bermo.pruning. Metrics of test rows are
    "test.<metric>"; others are the counts of the masks and the bytes of the model,
    dense and sparse. Where the loss was not finite there are no predictions, and
    `diverged` is true."""
    run, model = training.run, training.load_start_model()
    if lower_case is False:
        cls, folder = type(training.tokenizer), run.inputs["start"].model
        training.tokenizer = cls.from_pretrained(
            folder, do_lower_case=False, local_files_only=True
        )
    objective = build_target_objective(training, model, Targets(**targets), alpha)
    methods: list[loop.Method] = (
        [pruning.LayerMix(run, model, Mix(**mix))] if mix else []
    )
    masks = (
        pruning.Masks(run, model, Prune(**prune), training.step_count)
        if prune
        else None
    )
    methods += ([masks] if masks else []) + [
        pruning.Course(run, model, training.step_count, masks)
    ]
    if frozen:
        pruning.freeze_part(model, frozen)
    judged, may_diverge = ("dev", "unseen", "test"), margin is not None
    result = train_and_save(
        training, model, objective, methods, judged, may_diverge=may_diverge
    )
    if margin is not None:
        result["majority"] = heads.score_majority_baseline(
            training.task, training.splits
        )
        score = result.get(training.task.metrics[0], -np.inf)
        result["diverged"] = bool(score <= result["majority"] + margin)
    if lower_case is False:
        ids = np.concatenate(training.training_rows.columns["input_ids"])
        result["unknown_share"] = float(np.mean(ids == training.tokenizer.unk_token_id))
    return (
        result
        | count_parameters(model)
        | (compact.count_stored_bytes(model) if prune else {})
    )
