"""These steps prune a teacher, add ghost modules, and distil the result to match the
teacher's hidden states.

Ghost modules are cheap convolutions that generate additional features from the kept
ones. GhostBERT's models are made this way (section 2.3), and the models of most methods
that are compared by score against cost."""

import copy
from contextlib import AbstractContextManager
from typing import TypeAlias

import numpy as np
import transformers

from lib.core.disk import write_json
from lib.core.names import Refused, derive_seed
from lib.core.options import Distil, SurgeryOperation
from lib.core.store import RunWriter, TrainingOutput
from lib.model import backbone
from lib.model.ghost import Convolution
from lib.model.parts import count_parameters, get_layers, set_dropout
from lib.model.surgery import apply_surgery
from lib.stats.metrics import Metrics
from lib.train import loop
from lib.train.learn import TaskTraining, train_and_save
from lib.train.matching import (
    BytesAndTokens,
    Match,
    build_hidden_state_distillation_loss,
    build_hidden_state_loss_from_teacher_outputs,
    build_teacher_forward_from_stored_states,
    pair_student_with_teacher_layers,
    write_hidden_states,
)

# File in which a run lists the operations that changed its model, such as pruning, each
# with what it reported (such as a number of parameters).
SURGERY = "surgery.json"


def distil(
    training: TaskTraining, distil: loop.SettingsJson, surgery: list[SurgeryOperation]
) -> Metrics:
    """Prune a copy of a teacher, add ghost modules, and distil it from the teacher.

    Ghost modules are cheap convolutions that generate additional features. The student
    is trained to match the teacher's hidden states (GhostBERT section 2.3). With an
    empty `surgery` it is a control that the paper lacks: the distillation of an
    unpruned model.

    Returns the metrics of the training, such as "steps"; "distance", the mean loss at
    the end; "taps_moved", the mean change of ghost kernels, if there are any;
    "parameters", a count; and "start_score" and "teacher_score" (student and teacher on
    the development rows before the distillation). It saves the student, and the loss
    with its terms over the steps as `curve`.

    training: the rows, the settings, and the run, whose inputs (earlier results) are
    `teacher`, a fine-tuned model; `importance`, by which heads and neurons are pruned;
    `search`, an architecture search whose result the student gets; `augmented` for
    augmented training rows; `states` to read the teacher's hidden states from disk. All
    but `teacher` are optional.
    distil: settings: {"mask": whether padded tokens are left out of the loss}.
    surgery: operations on the student, such as {"op": "cut", "heads": 3}, which prunes
    it."""
    teacher, training.tokenizer = training.teacher
    # pyrefly: ignore[bad-argument-type]  # transformers' `to` is untyped.
    student = copy.deepcopy(teacher.to(loop.get_device()))
    set_dropout(student, training.train.dropout)
    apply_surgery_with_scores_of_input_runs(training.run, student, surgery)
    first = {
        f"{name}_score": training.build_split_scorers(model, ("dev",))["dev"]()[0][
            training.task.metrics[0]
        ]
        for name, model in (("start", student), ("teacher", teacher))
    }
    objective = build_distillation_loss(training, student, teacher, Distil(**distil))
    mended = [DistillationMetrics(training.run, student)]
    return (
        train_and_save(training, student, objective, mended, scored_split_prefixes=())
        | count_parameters(student)
        | first
    )


class DistillationMetrics(loop.Callback):
    """A DistillationMetrics measures the result of a distillation after its last step.

    It is a callback of the training loop. `distance` is the loss to the teacher, as a
    mean over the last tenth of the logged steps. For a student with ghost modules
    (convolutions for additional features), `taps_moved` is the mean absolute change of
    their kernel weights, after the softmax where they have one. The loss over the steps
    is saved as `curve`."""

    def __init__(
        self, run: TrainingOutput, student: transformers.PreTrainedModel
    ) -> None:
        self.run = run
        self.kernels = [
            part for part in student.modules() if isinstance(part, Convolution)
        ]
        self.first = self.flatten_ghost_kernels()

    def flatten_ghost_kernels(self) -> np.ndarray:
        """Return the kernel weights of all ghost modules as one flat array.

        Ghost modules are convolutions that were added to a pruned model. Two such
        arrays, before and after a training, tell how far the weights moved. The array
        is empty without ghost modules."""
        taps = [
            kernel.compute_effective_kernel_weights().detach().cpu().flatten().numpy()
            for kernel in self.kernels
        ]
        return np.concatenate([np.zeros(0, np.float32), *taps])

    def after_last_step(self) -> Metrics:
        curve = self.run.read_log("curve")
        self.run.save_arrays("curve", **curve)
        metrics = {
            "distance": float(curve["loss"][-max(1, len(curve["loss"]) // 10) :].mean())
        }
        if self.kernels:
            moved = abs(self.flatten_ghost_kernels() - self.first)
            metrics["taps_moved"] = float(moved.mean())
        return metrics


def list_hidden_state_matches(
    student: transformers.PreTrainedModel,
    teacher: transformers.PreTrainedModel,
    distil_settings: Distil,
) -> list[Match]:
    """Return which hidden states GhostBERT's distillation loss L_distill compares.

    They are the embedding output and, for each pair of a student's and a teacher's
    layer, the outputs of attention and feed-forward block (section 2.3). A Match has a
    kind of state, the pairs of layers in which it is compared, and a distance.

    distil_settings: settings: whether padded tokens are left out."""
    pairs = pair_student_with_teacher_layers(
        len(get_layers(student)), len(get_layers(teacher))
    )
    return [
        Match("embedding", "embedding", excludes_padding=distil_settings.mask),
        Match("attention", "attention", pairs, distil_settings.mask),
        Match("ffn", "ffn", pairs, distil_settings.mask),
    ]


def build_distillation_loss(
    training: TaskTraining,
    student: transformers.PreTrainedModel,
    teacher: transformers.PreTrainedModel,
    distil_settings: Distil,
) -> AbstractContextManager[loop.LossFunction]:
    """Make GhostBERT's distillation loss L_distill, a distance between hidden states.

    Returns a context manager that yields f(batch, row numbers) -> {"loss": scalar, and
    its terms}. The teacher runs on each batch. But where the run has an input `states`,
    the teacher's states are read from disk. They are those of the original training
    rows, so the rows must not be augmented. They have no padded tokens, so Refused is
    raised where the settings count these.

    training: the rows, the run with its inputs (earlier results), and the dtype.
    distil_settings: settings: whether padded tokens are left out."""
    comparisons = list_hidden_state_matches(student, teacher, distil_settings)
    if "states" not in training.run.inputs:
        return build_hidden_state_distillation_loss(
            student, teacher, comparisons, training.numerics
        )
    if not distil_settings.mask:
        fix = "take Distil(mask=True), or no input `states`"
        raise Refused(
            f"stored states have no padded tokens, which mask=False counts: {fix}"
        )
    path = training.run.inputs["states"].model_folder / "states.safetensors"
    return build_hidden_state_loss_from_teacher_outputs(
        student,
        build_teacher_forward_from_stored_states(path, len(get_layers(teacher))),
        comparisons,
    )


def apply_surgery_with_scores_of_input_runs(
    run: RunWriter,
    model: transformers.PreTrainedModel,
    surgery_operations: list[SurgeryOperation],
) -> None:
    """Apply operations such as pruning to a model in order, in place.

    The operations and what they report are written to the run's folder. Operations take
    data from the run's inputs, which are earlier results. A "cut" removes the least
    important heads and neurons by the input `importance`, or, without that input, the
    last heads and neurons. A "keep" takes the architecture that the input `search`
    found. Kernels of ghost modules (added convolutions) are drawn from the run's seed.

    surgery_operations: dicts such as {"op": "cut", "heads": 3}."""
    reports = []
    for op in surgery_operations:
        more = {}
        if op["op"] == "keep" and "search" in run.inputs:
            op = op | run.inputs["search"].metrics["architecture"]
        if op["op"] == "cut" and "importance" in run.inputs:
            scores = run.inputs["importance"].read_arrays("scores")
            more = {"head_scores": scores["heads"], "neuron_scores": scores["neurons"]}
        elif op["op"] == "ghost":
            more = {"seed": derive_seed(run.seed, "ghost")}
        reports.append({"surgery": op, "report": apply_surgery(model, op, **more)})
    write_json(run.folder / SURGERY, reports)


def operate(run: RunWriter, surgery: list[SurgeryOperation]) -> Metrics:
    """Prune a fine-tuned teacher and add ghost modules, without any training.

    Ghost modules are convolutions for additional features. The result serves
    GhostBERT's ablation without distillation, and is saved. Returns {"parameters":
    their number}.

    run: the folder of this run. Its inputs (earlier results) are `teacher`;
    `importance`, by which heads and neurons are pruned; `search`, an architecture
    search whose result the model gets. All but `teacher` are optional.
    surgery: operations on the model, such as {"op": "cut", "heads": 3}, which prunes
    it."""
    model, tokenizer = backbone.load(run.inputs["teacher"].model_folder)
    apply_surgery_with_scores_of_input_runs(run, model, surgery)
    backbone.save(model, tokenizer, run.model_folder)
    return count_parameters(model)


UnusedSettings: TypeAlias = loop.SettingsJson


def states(training: TaskTraining, distil: UnusedSettings) -> BytesAndTokens:
    """Write a teacher's hidden states for all training rows to the run's folder.

    A distillation then reads the states and need not run the teacher again. Returns
    {"bytes": size of the states, "tokens": number of tokens}.

    training: the rows, the tokens to which rows are cut, and the run, whose input
    `teacher` is an earlier result.
    distil: not used; the states are the same for all settings."""
    model, training.tokenizer = training.teacher
    # The file is put into the folder of the run's weights. That folder is kept for as
    # long as another run needs it.
    path = training.run.folder / "model" / "states.safetensors"
    path.parent.mkdir(exist_ok=True)
    return write_hidden_states(
        model,
        training.training_rows,
        training.numerics,
        path,
        report_progress=training.run.report_progress,
    )
