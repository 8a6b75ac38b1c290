"""This module trains a model on a task, scores it and saves it, for all training steps.

A step (a function of lib.train.steps that makes a run) calls `train_and_save` with a
TaskTraining, a model, an objective (lib.train.objectives), and callbacks
(lib.train.loop.Callback) such as masks, a layer mix or a search over gates."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from lib import data as sources
from lib.core.names import derive_seed
from lib.core.options import Numerics, Targets, Train
from lib.core.store import RunWriter, Scratch
from lib.core.types import Json
from lib.data import Split, Task
from lib.model import backbone
from lib.stats.metrics import Metrics
from lib.train import augment, heads, loop, objectives
from lib.train.batches import Encoded
from lib.train.loop import SettingsJson

# Function that scores a model on one split, with its weights at the time of the call.
ModelScorer = Callable[[], heads.MetricsAndArrays]


class HeldOutRows(NamedTuple):
    rows: Encoded
    teacher_logits: Tensor  # [N, C].


class TaskTraining:
    """A TaskTraining has the rows of a task for a run, and the settings of a training
    on them.

    It holds what all steps that train on a task need. `data`, `train`, `numerics` and
    `span` are the step's arguments as JSON; `train` is None where nothing is trained.
    `tokenizer` is set by `load_start_model`, or by a step that uses another
    tokenizer."""

    tokenizer: PreTrainedTokenizerFast

    def __init__(
        self,
        run: RunWriter,
        data: Json,
        train: SettingsJson | None,
        numerics: SettingsJson,
        span: SettingsJson | None = None,
    ) -> None:
        self.run, self.span = run, span
        self.numerics = loop.read_numerics(numerics)
        # `train` may be None, but steps that train nothing never read this field. So
        # its type omits None.
        self.train = cast(Train, train and Train(**train))
        self.splits, self.task = (
            sources.load(data, run.seed),
            sources.find_described_task(data),
        )

    def load_start_model(self) -> PreTrainedModel:
        """Return the model of the run's input `start`, with the head that the task
        needs, and set `tokenizer`."""
        folder, seed = (
            self.run.inputs["start"].model_folder,
            derive_seed(self.run.seed, "head"),
        )
        model, self.tokenizer = heads.load_network(
            folder, self.task, self.train.dropout, seed
        )
        return model

    def encode_split(self, split: str) -> tuple[Encoded, heads.LogitScorer]:
        """Return the tokenised rows of a split, and a function from their logits to
        metrics.

        split: its name, such as "dev"."""
        rows, length = self.splits[split], self.train.max_length
        return heads.encode_rows(self.tokenizer, rows, self.task, length, self.span)

    @cached_property
    def training_rows(self) -> Encoded:
        """Return the tokenised training rows: the augmented ones of the run's input
        `augmented` if it has one, and else those of the task."""
        if made := self.run.inputs.get("augmented"):
            return augment.encode_augmented_rows(
                made, self.tokenizer, self.train.max_length
            )
        return self.encode_split("train")[0]

    @cached_property
    def teacher(self) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
        """Return the model and tokenizer of the run's input `teacher`, loaded once."""
        return backbone.load(self.run.inputs["teacher"].model_folder)

    @cached_property
    def teacher_logits(self) -> Tensor:
        """Return the teacher's logits on the training rows: [N, C], or [N, 2, T] for
        answer spans."""
        return torch.from_numpy(self.predict(self.teacher[0], self.training_rows))

    @cached_property
    def held_out_rows(self) -> HeldOutRows:
        """Return the tokenised held-out rows, with the teacher's logits.

        Held-out rows are training rows that are kept for model selection."""
        rows = self.encode_split("held_out")[0]
        return HeldOutRows(rows, torch.from_numpy(self.predict(self.teacher[0], rows)))

    def predict(self, model: PreTrainedModel, encoded: Encoded) -> np.ndarray:
        """Return a model's logits on tokenised rows: [N, C], or [N, 2, T] for answer
        spans."""
        return loop.predict(model, encoded, self.numerics, pad_to=self.train.pad_to)

    @property
    def step_count(self) -> int:
        """Return the number of optimiser steps of the training, over all epochs."""
        return -(-len(self.training_rows) // self.train.batch) * self.train.epochs

    def build_split_scorers(
        self,
        model: PreTrainedModel,
        split_prefixes: str | tuple[str, ...] = ("dev", "unseen"),
    ) -> dict[str, ModelScorer]:
        """Return {split: function that scores the model on it, with its weights at the
        time of the call}.

        Unseen rows are for the final model alone: no model may be selected on them.

        split_prefixes: beginnings of the names of the splits."""

        def make_scorer(split: str) -> ModelScorer:
            encoded, marks = self.encode_split(split)
            if split == "unseen":
                marks = partial(
                    heads.score_logits_of_unseen_split, self.task, self.splits[split]
                )
            return lambda: marks(self.predict(model, encoded))

        return {
            name: make_scorer(name)
            for name in self.splits
            if name.startswith(split_prefixes)
        }

    def score_for_selection(self, score_model: ModelScorer) -> float:
        """Return the score of a model by which the best one of a training is selected
        (`compute_selection_score`)."""
        return compute_selection_score(self.train, self.task, score_model()[0])


def compute_selection_score(
    train: Train, task: Task, metrics: Mapping[str, float]
) -> float:
    """Return the score by which a training selects its best model: the mean of the
    metrics `train.select_by`, or the task's first metric.

    metrics: {metric: value} of the model."""
    names = train.select_by or task.metrics[:1]
    return sum(metrics[name] for name in names) / len(names)


def call_step_on_task(
    step_function: Callable[..., Metrics],
    run: RunWriter,
    data: Json,
    numerics: SettingsJson,
    train: SettingsJson | None = None,
    span: SettingsJson | None = None,
    **step_arguments: Any,
) -> Metrics:
    """Call a training step with a TaskTraining made of the step's JSON arguments, and
    return its metrics.

    Steps that train on a task so share the code that reads these arguments.

    step_function: function of the TaskTraining and of the other arguments
    `step_arguments`.
    data, numerics, train, span: the step's arguments as JSON (`TaskTraining`)."""
    return step_function(
        TaskTraining(run, data, train, numerics, span), **step_arguments
    )


def train_and_save(
    training: TaskTraining,
    model: PreTrainedModel,
    objective: AbstractContextManager[loop.Loss],
    callbacks: Sequence[loop.Callback] = (),
    scored_splits: str | tuple[str, ...] = ("dev", "unseen"),
    allows_divergence: bool = False,
) -> Metrics:
    """Train a model in place, score it on the splits, save it with its predictions, and
    return the metrics.

    Where `train.select` is "best", the best model is selected on the held-out rows if
    `scored_splits` has them, and else on the development set.

    objective: a context manager that yields the loss (lib.train.objectives).
    callbacks: additions to the training, which finish the model after the last step.
    scored_splits: beginnings of the names of splits whose predictions are saved.
    allows_divergence: whether a loss that is not finite gives the metric `diverged`,
    without predictions, instead of an error."""
    run, rows, judges = (
        training.run,
        training.training_rows,
        training.build_split_scorers(model, scored_splits),
    )
    judge = judges.get("held_out", judges.get("dev"))
    if training.train.select == "best" and not judge:
        judge = training.build_split_scorers(model, "dev")["dev"]
    score = partial(training.score_for_selection, judge) if judge else None

    with objective as loss:
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
        result |= save_predictions(run, judges)
    backbone.save(model, training.tokenizer, run.model_folder)
    return result


def save_predictions(
    run: Scratch, scorers: Mapping[str, ModelScorer], prefix: str = ""
) -> Metrics:
    """Save a model's predictions on every split, and return {metric: value}.

    Names of arrays and metrics begin with `prefix` and the split, except for the split
    "dev".

    scorers: {split: function that scores the model on it}."""
    result = {}
    for split, judge in scorers.items():
        values, arrays = judge()
        affix = "_".join(part for part in (prefix, split) if part and part != "dev")
        run.save_arrays(f"predictions_{affix}" if affix else "predictions", **arrays)
        result |= {
            f"{affix}.{metric}" if affix else metric: value
            for metric, value in values.items()
        }
    return result


class Trainer:
    """A Trainer trains and scores models in this process, without a Spec or a store.
    Notebooks that explain a method use it.

    It has the tokenised training rows (`training_rows`) and development rows (`dev`) of
    a task.

    splits: {"train": Split, "dev": Split} of the Task.
    train: default settings of `fit`.
    numerics: result of `loop.read_numerics` or `loop.use_float32_on_model_device`. By
    default it is float32 in one CPU thread, which this process then keeps."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        task: Task,
        splits: Mapping[str, Split],
        train: Train,
        seed: int = 0,
        numerics: Numerics | None = None,
    ) -> None:
        self.train, self.task, self.seed = train, task, seed
        self.numerics = numerics or loop.read_numerics(
            {"dtype": "float32", "threads": 1}
        )
        length = train.max_length
        self.training_rows, _ = heads.encode_rows(
            tokenizer, splits["train"], task, length
        )
        self.dev, self.marks = heads.encode_rows(tokenizer, splits["dev"], task, length)

    def compute_development_metrics(self, model: PreTrainedModel) -> Metrics:
        """Return {metric: value} of a model on the development rows."""
        return self.marks(loop.predict(model, self.dev, self.numerics))[0]

    def measure_development_accuracy(self, model: PreTrainedModel) -> float:
        """Return it in points."""
        return 100 * self.compute_development_metrics(model)["accuracy"]

    def make_label_loss(self, model: PreTrainedModel) -> loop.Loss:
        """Return the loss function of a model that is trained on the labels: the
        cross-entropy, as `fit` takes it."""
        return objectives.build_target_objective(
            self, model, Targets("hard")
        ).enter_result

    def fit(
        self,
        model: PreTrainedModel,
        loss: loop.Loss | None = None,
        callbacks: Sequence[loop.Callback] = (),
        **changed_train_settings: Any,
    ) -> Scratch:
        """Train a model in place, and return the training's log, whose `result` is
        {"steps", ...}.

        Raises FloatingPointError where the loss is not finite.

        loss: the loss function; by default the cross-entropy to the labels.
        callbacks: additions to the training (lib.train.loop.Callback).
        changed_train_settings: fields of the Train that differ from the Trainer's."""
        loss = loss or self.make_label_loss(model)
        train = replace(self.train, **changed_train_settings)

        def score() -> float:
            return compute_selection_score(
                train, self.task, self.compute_development_metrics(model)
            )

        with TemporaryDirectory() as folder:
            run = Scratch(folder, self.seed)
            # pyrefly: ignore[missing-attribute]  # Scratch gets `result` here.
            run.result = loop.fit(
                run,
                model,
                self.training_rows,
                loss,
                train,
                self.numerics,
                score,
                callbacks,
            )
        return run
