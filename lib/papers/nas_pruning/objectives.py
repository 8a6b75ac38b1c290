"""This module has the losses of the NAS report, for searches and for training pruned
models: on a teacher's logits, on its hidden states, or on both.

Each function returns a context manager that gives a loss, f(batch, row numbers) ->
{"loss": scalar, its parts...}, as lib.train.loop.fit takes it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lib.core.names import derive_seed
from lib.core.options import Targets
from lib.model.parts import get_layers, get_surgery_operations
from lib.papers.nas_pruning.options import Objective
from lib.train import loop, losses
from lib.train.matching import Match, build_matching_loss_of_teacher, map_layers
from lib.train.objectives import TaskTraining, build_target_objective


def make_objective(
    training: TaskTraining, model: PreTrainedModel, options: Objective
) -> AbstractContextManager[loop.Loss]:
    """Return a context manager that gives the loss which the options name (report,
    sections 1.4, 5.4, 5.5, 7.3)."""
    if options.kind == "prediction":
        return make_logit_error_objective(training, model)
    if options.kind == "intermediate":
        return make_hidden_state_objective(training, model, options)
    if options.kind == "two_stage":
        return make_two_stage_objective(training, model, options)
    soft = options.kind == "soft_cross_entropy" and training.task.output_width > 1
    return build_target_objective(training, model, Targets("soft" if soft else "hard"))


def make_logit_error_objective(
    training: TaskTraining, model: PreTrainedModel
) -> nullcontext[loop.Loss]:
    """Return a context manager that gives the mean squared error between the logits of
    a model and of the task's teacher."""
    teacher = training.teacher_logits

    def loss(batch: loop.Batch, row_numbers: np.ndarray) -> dict[str, Tensor]:
        made = loop.compute_logits(model, batch).float()
        return {
            "loss": nn.functional.mse_loss(made, teacher[row_numbers].to(made.device))
        }

    return nullcontext(loss)


@contextmanager
def make_hidden_state_objective(
    training: TaskTraining, student: PreTrainedModel, options: Objective
) -> Iterator[loop.Loss]:
    """Yield a loss that compares hidden states of student and teacher, summed over
    paired layers.

    The part "layers" has the mean squared errors of the embedding output and of the
    layers' outputs, the part "attention" those of attention scores before the softmax.
    A student narrower than its teacher gets a linear layer to the teacher's width,
    which is trained with it and removed afterwards, as in TinyBERT's code."""
    teacher, _ = training.teacher
    pairs = map_layers(len(get_layers(student)), len(get_layers(teacher)))
    narrow, wide = student.config.hidden_size, teacher.config.hidden_size
    mask, between = options.mask, narrow != wide
    matches = [
        Match("layers", "embedding", mask=mask, projected=between),
        Match("layers", "ffn", pairs, mask, between),
    ]
    if options.attention:
        heads, over = (
            list_kept_teacher_heads(student),
            losses.compute_attention_error_over_keys,
        )
        matches.append(
            Match("attention", "scores", pairs, mask, heads=heads, distance=over)
        )
    with ExitStack() as held:
        if between:  # An attribute of the student, so that checkpoints save the layer.
            torch.manual_seed(derive_seed(training.run.seed, "projection"))
            student.projection = nn.Linear(narrow, wide)
            held.callback(delattr, student, "projection")
        yield held.enter_context(
            build_matching_loss_of_teacher(student, teacher, matches, training.numerics)
        )


@contextmanager
def make_two_stage_objective(
    training: TaskTraining, student: PreTrainedModel, options: Objective
) -> Iterator[loop.Loss]:
    """Yield a loss that compares hidden states with the teacher's in the first half of
    the steps, and logits in the second."""
    with (
        make_logit_error_objective(training, student) as later,
        make_hidden_state_objective(training, student, options) as first,
    ):
        yield LossSwitchedHalfway(first, later)


class LossSwitchedHalfway(loop.Callback):
    """This class is a loss that is `first_loss` in the first half of the training steps
    and `second_loss` in the second half."""

    def __init__(self, first_loss: loop.Loss, second_loss: loop.Loss) -> None:
        self.first, self.later = first_loss, second_loss

    def before_forward_pass(self, step: int, step_count: int) -> None:
        self.now = self.first if step < step_count // 2 else self.later

    def __call__(self, batch: loop.Batch, row_numbers: np.ndarray) -> dict[str, Tensor]:
        return self.now(batch, row_numbers)


def list_kept_teacher_heads(student: PreTrainedModel) -> list[list[int]]:
    """Return for each of L layers the indices that a pruned student's heads had in the
    whole model, so that each head is compared with the same head of the teacher."""
    heads = [list(range(student.config.num_attention_heads))] * len(get_layers(student))
    for op in get_surgery_operations(student):
        if op["op"] == "keep" and "heads" in op:
            pairs = zip(heads, op["heads"], strict=True)
            heads = [[layer[i] for i in chosen] for layer, chosen in pairs]
    return heads
