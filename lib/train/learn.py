"""This module trains a model on a task, scores it and saves it, for all training steps.

A step (a function of lib.train.steps or of a paper that makes a run) calls
`train_and_save` with a TaskTraining, a model, an objective, and callbacks
(lib.train.loop.Callback) such as pruning masks or a search over gates (trained masks,
lib.model.gates). An objective is a context manager that yields a loss function,
f(batch, row numbers) -> {"loss": scalar, terms...}. `build_label_or_teacher_loss` has
that on labels and a teacher's logits, lib.train.matching those on hidden states."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from lib import data as sources
from lib.core.names import derive_seed
from lib.core.options import Numerics, Targets, Train
from lib.core.store import RunWriter, TrainingOutput
from lib.core.types import MetricName, SplitName
from lib.model import backbone
from lib.stats.metrics import Metrics
from lib.train import augment, heads, loop, losses
from lib.train.batches import EncodedRows

# f() -> (metrics, arrays to save): scores a model on one split of the rows, with the
# weights that the model has at the time of the call.
Percent: TypeAlias = float
ComputeMetricsAndArrays = Callable[[], heads.MetricsAndArraysToSave]


class HeldOutRows(NamedTuple):
    rows: EncodedRows
    # Logits [N, C] of C classes, or [N, 2, T] of T tokens as start and end of an
    # answer.
    teacher_logits: Tensor


class TaskTraining:
    """A TaskTraining has the rows of a task and the settings of a training on them.

    All steps (kinds of work, such as fine-tuning) that train on a task get one.

    run: the folder in which this training writes its results (a run). `run.inputs` is
    {name: an earlier result that it needs}, such as `start` (the model to train) and
    `teacher`.
    data_descriptor: JSON that says which rows of which task are used.
    train: JSON of the training's settings, such as epochs and learning rate; None where
    nothing is trained.
    numerics: JSON of dtype, number of threads and device.
    span_settings: JSON that says how passages are cut, for a task of answer spans; None
    for other tasks.
    tokenizer: set by `load_start_model`, or by a step that uses another tokenizer."""

    tokenizer: PreTrainedTokenizerFast

    def __init__(
        self,
        run: RunWriter,
        data_descriptor: sources.DataDescriptor,
        train: loop.SettingsJson | None,
        numerics: loop.SettingsJson,
        span_settings: loop.SettingsJson | None = None,
    ) -> None:
        self.run, self.span = run, span_settings
        self.numerics = loop.set_dtype_threads_and_device(numerics)
        # Steps that only measure pass None, and never read this attribute. `cast` lets
        # the type checker treat it as a Train everywhere.
        self.train = cast(Train, train and Train(**train))
        self.splits = sources.load(data_descriptor, run.seed)
        self.task = sources.find_task_of_descriptor(data_descriptor)

    def load_start_model(self) -> PreTrainedModel:
        """Return the model to train, with the head that the task needs.

        It is an earlier result, which this training has as input `start`. The attribute
        `tokenizer` is set too. A head that is not in the saved model is drawn from the
        training's seed."""
        folder = self.run.inputs["start"].model_folder
        seed = derive_seed(self.run.seed, "head")
        model, self.tokenizer = heads.load_task_model_and_tokenizer(
            folder, self.task, self.train.dropout, seed
        )
        return model

    def encode_split(self, split_name: str) -> tuple[EncodedRows, heads.LogitScorer]:
        """Tokenise the rows of a split, and make a function that scores logits on them.

        Returns (tokenised rows, f(logits) -> ({metric: value}, {name: array})). The
        arrays are to be saved, such as "logits" and "labels".

        split_name: its name, such as "dev" for the development rows."""
        rows, length = self.splits[split_name], self.train.max_length
        return heads.encode_rows_and_make_scorer(
            self.tokenizer, rows, self.task, length, self.span
        )

    @cached_property
    def training_rows(self) -> EncodedRows:
        """Return the tokenised training rows, computed once.

        They are the training rows of the task, or the augmented rows that an earlier
        run wrote, where this training has that run as input `augmented`."""
        if made := self.run.inputs.get("augmented"):
            return augment.encode_augmented_rows(
                made, self.tokenizer, self.train.max_length
            )
        return self.encode_split("train")[0]

    @cached_property
    def teacher(self) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
        """Return (model, tokenizer) of the teacher for distillation, loaded once.

        It is an earlier result, which this training has as input `teacher`."""
        return backbone.load(self.run.inputs["teacher"].model_folder)

    @cached_property
    def teacher_logits(self) -> Tensor:
        """Return the teacher's logits on the training rows, for distillation.

        They are computed once, and are [N, C], or [N, 2, T] for answer spans (logits of
        first and last token)."""
        return torch.from_numpy(
            self.predict_logits(self.teacher[0], self.training_rows)
        )

    @cached_property
    def held_out_rows(self) -> HeldOutRows:
        """Return (tokenised held-out rows, the teacher's logits on them).

        Held-out rows are training rows that are not trained on, but used to select
        models. Logits are [N, C], or [N, 2, T] for answer spans."""
        rows = self.encode_split("held_out")[0]
        return HeldOutRows(
            rows, torch.from_numpy(self.predict_logits(self.teacher[0], rows))
        )

    def predict_logits(
        self, model: PreTrainedModel, encoded: EncodedRows
    ) -> np.ndarray:
        """Return a model's logits on tokenised rows, by the settings of this training.

        The settings say the dtype, and a length to which shorter rows are padded. The
        logits are [N, C], or [N, 2, T] for answer spans (first and last token)."""
        return loop.predict_logits(
            model, encoded, self.numerics, min_token_count=self.train.pad_to
        )

    @property
    def step_count(self) -> int:
        """Return the number of optimiser steps of the training, over all epochs."""
        return -(-len(self.training_rows) // self.train.batch) * self.train.epochs

    def build_split_scorers(
        self,
        model: PreTrainedModel,
        split_prefixes: str | tuple[str, ...] = ("dev", "unseen"),
    ) -> dict[SplitName, ComputeMetricsAndArrays]:
        """Make for each split of the rows a function that scores a model on it.

        Returns {split name: f() -> ({metric: value}, {name: array})}. The arrays are to
        be saved, such as "logits" and "labels". Each function scores the model with the
        weights that it has at the time of the call. The split "unseen" has test rows
        for the final model alone: no model may be selected on them.

        split_prefixes: beginnings of the names of the splits that are wanted."""

        def make_scorer(split_name: str) -> ComputeMetricsAndArrays:
            encoded, marks = self.encode_split(split_name)
            if split_name == "unseen":
                marks = partial(
                    heads.score_and_pack_test_predictions,
                    self.task,
                    self.splits[split_name],
                )
            return lambda: marks(self.predict_logits(model, encoded))

        return {
            name: make_scorer(name)
            for name in self.splits
            if name.startswith(split_prefixes)
        }

    def compute_model_selection_score(
        self, score_model: ComputeMetricsAndArrays
    ) -> float:
        """Return the score by which this training selects its best model.

        Higher is better. It is the mean of the metrics that the training's settings
        name, or the first metric of the task.

        score_model: f() -> ({metric: value}, arrays) for the model as it is now."""
        return compute_selection_score(self.train, self.task, score_model()[0])


def compute_selection_score(
    train_settings: Train, task: sources.Task, metrics: Mapping[MetricName, float]
) -> float:
    """Return the score by which a training selects its best model; higher is better.

    train_settings: the settings; the score is the mean of the metrics in
    `train_settings.select_by`, or where that is empty the first metric of the task.
    metrics: {metric: value} of a model."""
    names = train_settings.select_by or task.metrics[:1]
    return sum(metrics[name] for name in names) / len(names)


def run_stage_on_task(
    step_function: Callable[..., Metrics],
    run: RunWriter,
    data: sources.DataDescriptor,
    numerics: loop.SettingsJson,
    train: loop.SettingsJson | None = None,
    span: loop.SettingsJson | None = None,
    **step_arguments: Any,
) -> Metrics:
    """Call a function that works on a task, such as a training; return its metrics.

    The function gets a TaskTraining, which loads the rows and reads the settings that
    `data`, `numerics`, `train` and `span` describe as JSON.

    step_function: f(TaskTraining, **step_arguments) -> metrics.
    run: the folder of the run (this execution of the function), for writing.
    data: which rows of which task are used.
    numerics: dtype, number of threads and device.
    train: settings of the training; None where nothing is trained.
    span: how passages are cut, for a task of answer spans; None for other tasks."""
    return step_function(
        TaskTraining(run, data, train, numerics, span), **step_arguments
    )


def build_label_or_teacher_loss(
    training: "TaskTraining | Trainer",
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
    all_labels = training.training_rows.labels
    assert all_labels is not None
    # pyrefly: ignore[missing-attribute]  # A Trainer has no teacher, and needs none.
    teacher = training.teacher_logits if target_settings.kind != "hard" else None

    def compute_loss(
        batch: loop.Batch, training_row_numbers: np.ndarray
    ) -> dict[str, Tensor]:
        logits = loop.compute_logits(model, batch)
        labels = all_labels[training_row_numbers].to(logits.device)
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


def train_and_save(
    training: TaskTraining,
    model: PreTrainedModel,
    loss_context: AbstractContextManager[loop.LossFunction],
    callbacks: Sequence[loop.Callback] = (),
    scored_split_prefixes: str | tuple[str, ...] = ("dev", "unseen"),
    allows_divergence: bool = False,
) -> Metrics:
    """Train a model on a task, score it, save it, and return its metrics.

    The model is changed in place, and saved if the run keeps weights. Its predictions
    on the scored splits are saved too. Where the setting `select` is "best", the
    weights with the best score during the training are taken. The score is that on
    "held_out" (training rows that are not trained on) if the rows and
    `scored_split_prefixes` have this split, and else that on the development rows
    "dev".

    training: the rows of the task, the settings, and the run whose folder is written.
    loss_context: a context manager that yields the loss function, f(batch, row numbers)
    -> {"loss": scalar, ...}.
    callbacks: additions to the training, such as pruning masks, which also finish the
    model after the last step.
    scored_split_prefixes: the splits on which the model is scored, by name or beginning
    of the name; "dev" includes MNLI's "dev_mm", and "unseen" has labelled test rows.
    allows_divergence: what happens at a loss that is not finite: True returns the
    metric `diverged` and saves no predictions; False raises FloatingPointError."""
    run = training.run
    rows = training.training_rows
    judges = training.build_split_scorers(model, scored_split_prefixes)
    judge = judges.get("held_out", judges.get("dev"))
    if training.train.select == "best" and not judge:
        judge = training.build_split_scorers(model, "dev")["dev"]
    score = partial(training.compute_model_selection_score, judge) if judge else None

    with loss_context as loss:
        try:
            result = loop.fit(
                run,
                model,
                rows,
                loss,
                training.train,
                training.numerics,
                score,
                callbacks,
            )
        except FloatingPointError:
            if not allows_divergence:
                raise
            result = {"diverged": True} | loop.finish_callbacks(callbacks)
    if "diverged" not in result:
        result |= score_and_save_predictions(run, judges)
    backbone.save(model, training.tokenizer, run.model_folder)
    return result


def score_and_save_predictions(
    run: TrainingOutput,
    scorers: Mapping[SplitName, ComputeMetricsAndArrays],
    name_prefix: str = "",
) -> Metrics:
    """Score a model on every split, save its predictions, and return {metric: value}.

    The names of metrics and files contain the split, such as "unseen.accuracy" and
    "predictions_unseen", except for the split "dev" (development rows).

    run: the folder to write to.
    scorers: {split name: f() -> ({metric: value}, arrays to save)} of the model.
    name_prefix: a word that is put in front of all names, such as a task's name; ""
    puts nothing there."""
    result = {}
    for split, judge in scorers.items():
        values, arrays = judge()
        parts = (part for part in (name_prefix, split) if part not in ("", "dev"))
        affix = "".join(f"_{part}" for part in parts)
        run.save_arrays(f"predictions{affix}", **arrays)
        start = f"{affix[1:]}." if affix else ""
        result |= {f"{start}{metric}": value for metric, value in values.items()}
    return result


class Trainer:
    """A Trainer trains and scores models on a task, without saving them.

    Notebooks that explain a method and `lib.fit` use it. It has the tokenised rows for
    training (`training_rows`) and development (`dev`). Raises Refused for a task of
    answer spans.

    task: what is predicted, and the metrics.
    splits: {"train": training rows, "dev": development rows}.
    train: default settings of `fit`, such as epochs and learning rate.
    seed: decides the order of rows and dropout.
    numerics: dtype, threads and device, from `loop.set_dtype_threads_and_device` or
    `loop.use_float32_on_model_device`. By default it is float32 in one CPU thread, and
    this process then keeps one thread."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        task: sources.Task,
        splits: Mapping[SplitName, sources.Split],
        train: Train,
        seed: int = 0,
        numerics: Numerics | None = None,
    ) -> None:
        self.train, self.task, self.seed = train, task, seed
        self.numerics = numerics or loop.set_dtype_threads_and_device(
            {"dtype": "float32", "threads": 1}
        )
        length = train.max_length
        self.training_rows, _ = heads.encode_rows_and_make_scorer(
            tokenizer, splits["train"], task, length
        )
        self.dev, self.marks = heads.encode_rows_and_make_scorer(
            tokenizer, splits["dev"], task, length
        )

    def compute_development_metrics(self, model: PreTrainedModel) -> Metrics:
        """Return {metric: value} of a model on the development rows.

        It has all metrics of the task."""
        return self.marks(loop.predict_logits(model, self.dev, self.numerics))[0]

    def measure_development_accuracy(self, model: PreTrainedModel) -> Percent:
        """Return a model's accuracy on the development rows in percent, 0 to 100.

        Raises KeyError for a task without the metric "accuracy"."""
        return 100 * self.compute_development_metrics(model)["accuracy"]

    def make_label_loss(self, model: PreTrainedModel) -> loop.LossFunction:
        """Return the loss function to train a model on the labels alone, for `fit`.

        It is f(batch, row numbers) -> {"loss": scalar, "hard": the same}: the
        cross-entropy to the labels, or the squared error for a regression."""
        return build_label_or_teacher_loss(self, model, Targets("hard")).enter_result

    def fit(
        self,
        model: PreTrainedModel,
        loss: loop.LossFunction | None = None,
        callbacks: Sequence[loop.Callback] = (),
        **changed_train_settings: Any,
    ) -> TrainingOutput:
        """Train a model in place, and return the log of the training.

        The log's `result` is a dict with the number of "steps", "examples_per_second"
        and metrics of the callbacks; its `read_log("curve")` returns {"step", "loss",
        ...: array [n]} of n logged steps. Raises FloatingPointError where the loss is
        not finite.

        loss: f(batch, row numbers) -> {"loss": scalar, ...}; by default the loss on the
        labels (`make_label_loss`).
        callbacks: additions to the training, such as pruning masks.
        changed_train_settings: settings of the training, such as epochs, that replace
        the Trainer's for this call."""
        loss = loss or self.make_label_loss(model)
        train = replace(self.train, **changed_train_settings)
        with TemporaryDirectory() as folder:
            run = TrainingOutput(folder, self.seed)
            # pyrefly: ignore[missing-attribute]  # TrainingOutput gets `result` here.
            run.result = loop.fit(
                run,
                model,
                self.training_rows,
                loss,
                train,
                self.numerics,
                lambda: compute_selection_score(
                    train, self.task, self.compute_development_metrics(model)
                ),
                callbacks,
            )
        return run
