"""This step fine-tunes a model with a layer mix, with pruning, or with both (BERMo)."""

import numpy as np

from lib.core.options import Targets
from lib.core.types import Json
from lib.model import compact
from lib.model.parts import count_parameters
from lib.papers.bermo import pruning
from lib.papers.bermo.options import Mix, Prune
from lib.stats.metrics import Metrics
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
) -> Metrics:
    """Fine-tune a model while a schedule prunes its weights, with or without a layer
    mix, a weighted sum of all layers' outputs (BERMo; Sanh et al. 2020).

    A training that diverges is a result, not an error. It saves predictions of all
    labelled splits but the training rows, and the arrays `course`, `shares` and `mix`
    of lib.papers.bermo.pruning. Metrics count kept weights and the bytes of the stored
    model, dense and sparse; those of test rows are "test.<metric>". Where the loss was
    not finite, `diverged` is true and there are no predictions.

    Input runs: `start`, any model; `teacher`, where the targets need its logits.

    alpha: with targets "both", the weight of the teacher's part of the loss; labels
    have 1 - alpha. The paper has 0.9.
    targets, prune, mix: fields of the options Targets, Prune and Mix. Without `prune`
    it is dense fine-tuning with the same measurements.
    frozen: "embeddings" or "encoder" are not trained; with "encoder" the run is a
    probe.
    margin: a run has diverged if its first metric is at most this much above that of
    the majority class. None: no run has, and a loss that is not finite is an error.
    lower_case: False keeps capitals although the vocabulary is uncased, as a script
    without --do_lower_case does; `unknown_share` is then the share of unknown tokens in
    the training rows. None takes the setting of `start`."""
    run, model = training.run, training.load_start_model()
    if lower_case is False:
        cls, folder = type(training.tokenizer), run.inputs["start"].model_folder
        training.tokenizer = cls.from_pretrained(
            folder, do_lower_case=False, local_files_only=True
        )
    objective = build_target_objective(training, model, Targets(**targets), alpha)
    methods: list[loop.Callback] = (
        [pruning.LayerMix(run, model, Mix(**mix))] if mix else []
    )
    masks = (
        pruning.Masks(run, model, Prune(**prune), training.step_count)
        if prune
        else None
    )
    methods += ([masks] if masks else []) + [
        pruning.GradientRecord(run, model, training.step_count, masks)
    ]
    if frozen:
        pruning.freeze_encoder_or_embeddings(model, frozen)
    judged, may_diverge = ("dev", "unseen", "test"), margin is not None
    result = train_and_save(
        training, model, objective, methods, judged, allows_divergence=may_diverge
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
        | (compact.count_dense_and_sparse_bytes(model) if prune else {})
    )
