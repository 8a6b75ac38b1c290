"""This module has the losses of the NAS report, for searches and for training pruned
models: on labels, on a teacher's logits, on its hidden states, or first on hidden
states and then on logits.

The functions `build_...` return a context manager that gives a loss, f(batch, row
numbers) -> {"loss": scalar, its parts...}, as lib.train.loop.fit takes it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lib.core.names import derive_seed
from lib.core.options import Targets
from lib.model.parts import get_layers, get_recorded_model_changes
from lib.papers.nas_pruning.options import Objective
from lib.train import loop, losses
from lib.train.learn import TaskTraining, build_label_or_teacher_loss
from lib.train.matching import (
    Match,
    build_hidden_state_distillation_loss,
    pair_student_with_teacher_layers,
)


def build_training_loss(
    training: TaskTraining, model: PreTrainedModel, options: Objective
) -> AbstractContextManager[loop.LossFunction]:
    """Return a context manager that gives the training loss which the options name.

    The loss is f(batch, row numbers) -> {"loss": scalar, further terms to log}, as the
    training loop takes it. Losses are on labels, on a teacher's logits or on its hidden
    states (sections 4.4, 5.4, 5.5 and 7.3 of the report on pruning by differentiable
    NAS). The last ones put hooks on the models, which are removed at the end.

    training: the task's rows and the teacher.
    model: the model that is trained."""
    if options.kind == "prediction":
        return build_logit_error_loss(training, model)
    if options.kind == "intermediate":
        return build_hidden_state_loss(training, model, options)
    if options.kind == "two_stage":
        return build_loss_switched_halfway(training, model, options)
    soft = options.kind == "soft_cross_entropy" and training.task.output_width > 1
    return build_label_or_teacher_loss(
        training, model, Targets("soft" if soft else "hard")
    )


def build_logit_error_loss(
    training: TaskTraining, model: PreTrainedModel
) -> nullcontext[loop.LossFunction]:
    """Return a context manager that gives a distillation loss on logits.

    The loss is f(batch, row numbers) -> {"loss": scalar}, the mean squared error
    between the logits of the model and those of the teacher.

    training: has the teacher's logits for all training rows.
    model: the model that is trained."""
    teacher = training.teacher_logits

    def compute_loss_terms(
        batch: loop.Batch, training_row_numbers: np.ndarray
    ) -> dict[str, Tensor]:
        made = loop.compute_logits(model, batch).float()
        return {
            "loss": nn.functional.mse_loss(
                made, teacher[training_row_numbers].to(made.device)
            )
        }

    return nullcontext(compute_loss_terms)


@contextmanager
def build_hidden_state_loss(
    training: TaskTraining, student: PreTrainedModel, options: Objective
) -> Iterator[loop.LossFunction]:
    """Yield a distillation loss on hidden states, summed over pairs of layers.

    It is a context manager: `with build_hidden_state_loss(...) as loss`. The loss is
    f(batch, row numbers) -> {"loss": scalar, "layers", "attention"}. "layers" has the
    mean squared errors of the embedding output and of the layers' outputs. "attention"
    has those of attention scores before the softmax, if the options ask for it. A
    student of another width than its teacher gets a linear layer to the teacher's
    width. It is trained with the student and removed afterwards. TinyBERT's code has
    such a layer at equal widths too. Raises Refused where neither number of layers
    divides the other.

    training: the task's rows and the teacher."""
    teacher, _ = training.teacher
    pairs = pair_student_with_teacher_layers(
        len(get_layers(student)), len(get_layers(teacher))
    )
    narrow = student.config.hidden_size
    wide = teacher.config.hidden_size
    mask = options.mask
    between = narrow != wide
    matches = [
        Match("layers", "embedding", excludes_padding=mask, projects_student=between),
        Match("layers", "ffn", pairs, mask, between),
    ]
    if options.attention:
        heads = list_teacher_head_indices_by_student_layer(student)
        over = losses.compute_attention_error_ignoring_padded_keys
        matches.append(
            Match(
                "attention",
                "scores",
                pairs,
                mask,
                teacher_heads_by_student_layer=heads,
                distance=over,
            )
        )
    with ExitStack() as held:
        if between:  # Checkpoints save the layer, as it is an attribute of the student.
            torch.manual_seed(derive_seed(training.run.seed, "projection"))
            student.projection = nn.Linear(narrow, wide)
            held.callback(delattr, student, "projection")
        yield held.enter_context(
            build_hidden_state_distillation_loss(
                student, teacher, matches, training.numerics
            )
        )


@contextmanager
def build_loss_switched_halfway(
    training: TaskTraining, student: PreTrainedModel, options: Objective
) -> Iterator[loop.LossFunction]:
    """Yield a distillation loss that changes after half of the training steps.

    It is a context manager: `with build_loss_switched_halfway(...) as loss`. The loss
    compares hidden states with the teacher's in the first half and logits in the
    second, so that both stages of TinyBERT's distillation fit into one run. It is
    f(batch, row numbers) -> {"loss": scalar, further terms to log}.

    training: the task's rows and the teacher.
    options: whether attention scores are matched too, and padded tokens are left
    out."""
    with (
        build_logit_error_loss(training, student) as later,
        build_hidden_state_loss(training, student, options) as first,
    ):
        yield LossSwitchedHalfway(first, later)


class LossSwitchedHalfway(loop.Callback):
    """A LossSwitchedHalfway is a training loss that changes after half of the steps.

    It calls `first_loss` in the first half and `second_loss` in the second, for a
    distillation in two stages within one run. It is a callback of the training loop,
    which tells it the step before each forward pass."""

    def __init__(
        self, first_loss: loop.LossFunction, second_loss: loop.LossFunction
    ) -> None:
        self.first = first_loss
        self.later = second_loss

    def before_forward_pass(self, step: int, step_count: int) -> None:
        self.now = self.first if step < step_count // 2 else self.later

    def __call__(
        self, batch: loop.Batch, training_row_numbers: np.ndarray
    ) -> dict[str, Tensor]:
        return self.now(batch, training_row_numbers)


def list_teacher_head_indices_by_student_layer(
    student: PreTrainedModel,
) -> list[list[int]]:
    """Return for each of L layers the original indices of a pruned student's heads.

    They are the indices that the heads had before pruning. By them the attention scores
    of each student head are compared with those of the same head of the unpruned
    teacher. A student that was not pruned has all indices. Only the operation "keep"
    counts as pruning here."""
    heads = [list(range(student.config.num_attention_heads))] * len(get_layers(student))
    for op in get_recorded_model_changes(student):
        if op["op"] == "keep" and "heads" in op:
            pairs = zip(heads, op["heads"], strict=True)
            heads = [[layer[i] for i in chosen] for layer, chosen in pairs]
    return heads
