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

# In type hints TaskTraining stands for the classes TaskTraining and Trainer of
# lib.train.learn. They cannot be imported here, because that module imports this one.
TaskTraining = Any


def build_label_or_teacher_loss(
    training: TaskTraining,
    model: PreTrainedModel,
    target_settings: Targets,
    teacher_loss_share: float | None = None,
) -> nullcontext[loop.LossFunction]:
    """Make the loss on the labels, on the teacher's logits, or on both.

    Returns a context manager that yields f(batch, row numbers) -> {"loss": scalar,
    "hard": loss on labels, "soft": loss on the teacher's logits}, with the terms that
    `target_settings` asks for.

    training: has the tokenised rows (`training_rows`) and, if they are needed, the
    teacher's logits on them (`teacher_logits`).
    model: the model to train.
    target_settings: which losses are used.
    teacher_loss_share: the weight alpha of "soft", where "hard" has 1 - alpha; None
    gives each of the two losses the weight 1. A number is allowed only where
    `target_settings` asks for both losses."""
    rows = training.training_rows
    teacher = training.teacher_logits if target_settings.kind != "hard" else None

    def compute_loss(
        batch: loop.Batch, training_row_numbers: np.ndarray
    ) -> dict[str, Tensor]:
        logits = loop.compute_logits(model, batch)
        labels = rows.labels[training_row_numbers].to(logits.device)
        teacher_logits = (
            None if teacher is None else teacher[training_row_numbers].to(logits.device)
        )
        parts = losses.compute_prediction_losses(
            logits, labels, target_settings, teacher_logits
        )
        if teacher_loss_share is not None:
            parts["loss"] = (1 - teacher_loss_share) * parts[
                "hard"
            ] + teacher_loss_share * parts["soft"]
        return parts

    return nullcontext(compute_loss)
