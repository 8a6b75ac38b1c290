"""This module has the step that fine-tunes a model on a task, and the step that
quantises a trained model to int8."""

from lib.core.options import Targets
from lib.model import backbone, compact
from lib.model.parts import count_parameters
from lib.model.surgery import apply_surgery
from lib.stats.metrics import Metrics
from lib.train.learn import (
    TaskTraining,
    build_label_or_teacher_loss,
    score_and_save_predictions,
    train_and_save,
)
from lib.train.loop import SettingsJson


def finetune(training: TaskTraining, targets: SettingsJson) -> Metrics:
    """Fine-tune a model on a task, score it and save it, and return its metrics.

    It is the last stage of most compression methods here, and makes most teachers.
    Metrics are those of the development rows, and with names that begin with "unseen."
    those of the unseen rows, which are test rows. Predictions on development and unseen
    rows are saved, those on development rows with labels and row numbers.

    training: the rows, the settings, and the run, whose inputs (earlier results) are
    `start`, the model to train, and `teacher` where its logits are learned.
    targets: settings that say what is learned: labels, the teacher's logits, or
    both."""
    model = training.load_start_model()
    return train_and_save(
        training,
        model,
        build_label_or_teacher_loss(training, model, Targets(**targets)),
    ) | count_parameters(model)


def quantise(training: TaskTraining) -> Metrics:
    """Quantise a finished model to int8, and score and save it without any training.

    Metrics and predictions are those of the development rows and, with names that begin
    with "unseen.", of the unseen (test) rows; "parameters" is the number of parameters,
    and "bytes" the size of all tensors.

    training: the rows, how rows are cut and padded, and the run, whose input `start`
    (an earlier result) is the model."""
    model = training.load_start_model()
    apply_surgery(model, {"op": "int8"})
    result = score_and_save_predictions(
        training.run, training.build_split_scorers(model)
    )
    backbone.save(model, training.tokenizer, training.run.model_folder)
    return (
        result
        | count_parameters(model)
        | {"bytes": compact.count_state_dict_bytes(model)}
    )
