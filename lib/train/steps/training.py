"""This module has the step that fine-tunes a model on a task, and the step that
quantises a trained model to int8."""

from lib.core.options import Targets
from lib.model import backbone, compact
from lib.model.parts import count_parameters
from lib.model.surgery import apply_surgery
from lib.stats.metrics import Metrics
from lib.train.learn import TaskTraining, save_predictions, train_and_save
from lib.train.loop import SettingsJson
from lib.train.objectives import build_target_objective


def finetune(training: TaskTraining, targets: SettingsJson) -> Metrics:
    """Fine-tune a model on a task, and return its metrics.

    It is the last stage of every method, and makes most teachers. The run's inputs are
    `start` (any model), and `teacher` where the targets need its logits.

    It saves predictions, labels and row numbers of the development and unseen rows.
    Names of metrics on other splits than "dev" begin with the split.

    targets: the fields of a Targets: labels, a teacher's logits, or both."""
    model = training.load_start_model()
    return train_and_save(
        training, model, build_target_objective(training, model, Targets(**targets))
    ) | count_parameters(model)


def quantise(training: TaskTraining) -> Metrics:
    """Quantise a finished model to int8, and score it again without any training.

    The run's input is `start`. `training.train` says how rows are cut and padded.
    Metrics and predictions are as in `finetune`; "bytes" is the size of all tensors."""
    model = training.load_start_model()
    apply_surgery(model, {"op": "int8"})
    result = save_predictions(training.run, training.build_split_scorers(model))
    backbone.save(model, training.tokenizer, training.run.model_folder)
    return (
        result
        | count_parameters(model)
        | {"bytes": compact.count_state_dict_bytes(model)}
    )
