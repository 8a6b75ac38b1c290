"""This module has the objective that learns from labels, from a teacher's logits, or
from both.

An objective is a context that yields a loss, f(batch, rows) -> {"loss": scalar,
parts...} (lib.train.loop.fit). lib.train.matching has those for hidden states."""

from contextlib import nullcontext
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from lib.core.options import Targets
from lib.train import loop, losses

# TaskTraining or Trainer of lib.train.learn, which cannot be imported here, as it
# imports this module.
TaskTraining = Any


def predict_targets(
    training: TaskTraining,
    model: PreTrainedModel,
    targets: Targets,
    alpha: float | None = None,
) -> nullcontext[loop.Loss]:
    """Return the objective that learns the labels, the logits of the run's input
    `teacher`, or both.

    alpha: weight of the teacher's part, where that of the labels is 1 - alpha; without
    it both weights are 1."""
    rows, teacher = (
        training.rows,
        training.teacher_logits if targets.kind != "hard" else None,
    )

    def loss(batch: loop.Batch, chosen: np.ndarray) -> dict[str, Tensor]:
        logits = loop.outputs(model, batch)
        labels = rows.labels[chosen].to(logits.device)
        teacher_logits = None if teacher is None else teacher[chosen].to(logits.device)
        parts = losses.prediction(logits, labels, targets, teacher_logits)
        if alpha is not None:
            parts["loss"] = (1 - alpha) * parts["hard"] + alpha * parts["soft"]
        return parts

    return nullcontext(loss)
