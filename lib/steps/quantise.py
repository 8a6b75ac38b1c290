"""Step: turn a finished model into int8 and judge it again; nothing is trained."""

from lib.model import backbone
from lib.model.compact import stored
from lib.model.parts import size
from lib.model.surgery import operate
from lib.train.learn import Lesson, predictions


def quantise(run, data, train, numerics, span=None):
    """Input: `start`, trained on the task. `train`, that of the model, tells how rows are cut and
    padded. Metrics and predictions are those of `finetune`, with the bytes of all tensors.
    """
    lesson = Lesson(run, data, train, numerics, span)
    model, tokenizer = lesson.start()
    operate(model, {"op": "int8"})
    result = predictions(run, lesson.judges(model, tokenizer))
    backbone.save(model, tokenizer, run.model)
    return result | size(model) | {"bytes": stored(model)}
