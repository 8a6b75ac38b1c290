"""These steps train a model on a task: each is a preset of `learn` (lib.train.learn).

One more step turns a trained model into int8.
"""

from lib.core.options import Targets
from lib.core.types import Json
from lib.model import backbone, compact
from lib.model.parts import size
from lib.model.surgery import operate
from lib.train.learn import TaskTraining, learn, save_predictions
from lib.train.objectives import predict_targets


def finetune(training: TaskTraining, targets: Json) -> dict[str, float]:
    """Fine-tune a model on a task: the last stage of every method, and the teacher of
    most.

    Inputs: `start` (any model), and `teacher` where the targets need its logits.

    It saves predictions, labels and row numbers of every labelled evaluation split.
    Metrics are in float64; those of the first development set have no prefix."""
    model = training.start()
    return learn(
        training, model, predict_targets(training, model, Targets(**targets))
    ) | size(model)


def quantise(training: TaskTraining) -> dict[str, float]:
    """Turn a finished model into int8, and judge it again without any training.

    Input: `start`. `train`, the settings of that model, says how rows are cut and
    padded. Metrics and predictions are those of `finetune`, with the bytes of all
    tensors."""
    model = training.start()
    operate(model, {"op": "int8"})
    result = save_predictions(training.run, training.judges(model))
    backbone.save(model, training.tokenizer, training.run.model)
    return result | size(model) | {"bytes": compact.count_bytes(model)}
