"""Step: fine-tune a model on a task; the last stage of every method and the teacher of most."""

from lib.model import backbone
from lib.model.parts import size
from lib.train.learn import Lesson, learn
from lib.train.objectives import predicting
from lib.train.options import Targets


def finetune(run, data, train, numerics, targets, span=None):
    """Inputs: `start` (any model), and `teacher` where the targets need its logits. `span` for
    tasks such as SQuAD.

    Predictions, labels and row numbers of every labelled evaluation split are saved. Metrics are in
    float64; those of the first development set have their own names.
    """
    lesson = Lesson(run, data, train, numerics, span)
    model, tokenizer = lesson.start()
    rows = lesson.rows(tokenizer)
    objective = predicting(lesson, model, rows, Targets(**targets))
    result = learn(lesson, model, tokenizer, rows, objective)
    backbone.save(model, tokenizer, run.model)
    return result | size(model)
