"""This module has the training objective that learns from labels, from a teacher's
logits, or from both.

An objective is a context manager that yields a loss function, f(batch, row numbers) ->
{"loss": scalar, terms...}. lib.train.matching has the objectives on hidden states."""

from contextlib import nullcontext
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from lib.core.options import Targets
from lib.train import loop, losses

# TaskTraining or Trainer of lib.train.learn. They cannot be imported here, as that
# module imports this one.
TaskTraining = Any


def build_target_objective(
    training: TaskTraining,
    model: PreTrainedModel,
    targets: Targets,
    teacher_weight: float | None = None,
) -> nullcontext[loop.Loss]:
    """Return the objective that learns the labels, the logits of the run's input
    `teacher`, or both, as `targets` says.

    training: the rows of the task and the teacher's logits on them.
    teacher_weight: weight alpha of the teacher's term, where that of the labels is 1 -
    alpha; without it both weights are 1."""
    rows, teacher = (
        training.training_rows,
        training.teacher_logits if targets.kind != "hard" else None,
    )

    def compute_loss(batch: loop.Batch, row_numbers: np.ndarray) -> dict[str, Tensor]:
        logits = loop.compute_logits(model, batch)
        labels = rows.labels[row_numbers].to(logits.device)
        teacher_logits = (
            None if teacher is None else teacher[row_numbers].to(logits.device)
        )
        parts = losses.compute_prediction_losses(
            logits, labels, targets, teacher_logits
        )
        if teacher_weight is not None:
            parts["loss"] = (1 - teacher_weight) * parts[
                "hard"
            ] + teacher_weight * parts["soft"]
        return parts

    return nullcontext(compute_loss)
