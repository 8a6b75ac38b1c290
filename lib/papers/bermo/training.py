"""This step fine-tunes a model with a layer mix, with pruning, or with both (BERMo)."""

from typing import Literal

import numpy as np

from lib.core.options import Targets
from lib.model import compact
from lib.model.parts import count_parameters
from lib.papers.bermo import pruning
from lib.papers.bermo.options import Mix, Prune
from lib.stats.metrics import Metrics
from lib.train import heads, loop
from lib.train.learn import (
    TaskTraining,
    build_label_or_teacher_loss,
    train_and_save,
)
from lib.train.loop import SettingsJson


def fineprune(
    training: TaskTraining,
    targets: SettingsJson,
    alpha: float | None = None,
    prune: SettingsJson | None = None,
    mix: SettingsJson | None = None,
    frozen: Literal["embeddings", "encoder"] | None = None,
    margin: float | None = None,
    lower_case: bool | None = None,
) -> Metrics:
    """Fine-tune a model on a task, with pruning, with a layer mix, or with both.

    A layer mix is a learned weighted sum of all layers' outputs in place of the last
    one (BERMo; Sanh et al. 2020 for the pruning). This function is a step: it does the
    work of a run and returns its metrics.

    It saves the model, the predictions on all labelled rows that are not trained on,
    and the arrays `course` (gradient norms and kept share), with pruning `shares` (kept
    weights by layer) and with a mix `mix` (weights of layers). Metrics are scores
    ("test.<metric>" on test rows), parameters and, with pruning, counts of kept weights
    and the bytes of the model stored dense and sparse. A training that diverges is a
    result: `diverged` is true, and after a loss that was not finite there are no
    predictions.

    training: the task's rows, the training settings and the run with its inputs:
    `start`, the model to train, and `teacher`, a fine-tuned model whose logits are
    learned.
    targets: fields of the options Targets, which say whether the loss is on labels, on
    the teacher's logits or on both.
    alpha: weight of the loss on the teacher's logits, where `targets` asks for both
    losses; the loss on labels has the weight 1 - alpha.
    prune: fields of the options Prune; None trains without pruning.
    mix: fields of the options Mix; None leaves the mix out.
    frozen: what is not trained, "embeddings" or "encoder" (embeddings and all layers);
    None trains all.
    margin: a run has diverged if its first metric is at most this much above that of
    the majority class, which is added as the metric `majority`. With None no run counts
    as diverged, and a loss that is not finite raises FloatingPointError.
    lower_case: False keeps capitals although the vocabulary is uncased, and adds the
    metric `unknown_share`, the share of unknown tokens in the training rows. None takes
    the tokenizer as it is."""
    run = training.run
    model = training.load_start_model()
    if lower_case is False:
        training.tokenizer = type(training.tokenizer).from_pretrained(
            run.inputs["start"].model_folder,
            do_lower_case=False,
            local_files_only=True,
        )
    objective = build_label_or_teacher_loss(training, model, Targets(**targets), alpha)
    methods: list[loop.Callback] = []
    if mix:
        methods.append(pruning.LayerMixTraining(run, model, Mix(**mix)))
    masks = None
    if prune:
        masks = pruning.PruningMasks(run, model, Prune(**prune), training.step_count)
        methods.append(masks)
    methods.append(pruning.GradientNormRecorder(run, model, training.step_count, masks))
    if frozen:
        pruning.freeze_encoder_or_embeddings(model, frozen)
    judged = ("dev", "unseen", "test")
    result = train_and_save(
        training,
        model,
        objective,
        methods,
        judged,
        allows_divergence=margin is not None,
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
    result |= count_parameters(model)
    if prune:
        result |= compact.count_dense_and_sparse_bytes(model)
    return result
