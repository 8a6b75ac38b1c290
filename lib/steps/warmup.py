"""Step: fine-tuning by warm-up distillation (EfficientBERT section 3.2): attention, states and
predictions of a fine-tuned teacher in one loss. There are no labels but those of a regression,
where the options ask for them.
"""

from lib.model.parts import size
from lib.train import students
from lib.train.learn import Lesson, learn
from lib.train.options import Warmup


def warmup(run, data, train, numerics, warmup, net=None, classifier=None, span=None):
    """Inputs: `teacher`, fine-tuned on the task; `start`, a student or supernet to inherit from, or
    a model that `operate` cut, which is the student; `search`, whose Output net may be. net: what
    to train, or to cut out of `start` (lib.search.net as JSON), by default that of `start`.
    classifier: the task whose head a `start` of step multitask hands down as well.

    Metrics and predictions are kept as by step finetune, also of the held-out rows where the data
    have some. These select, where the training asks for the best. The loss over the steps is kept
    as `curve`.
    """
    lesson, options = Lesson(run, data, train, numerics, span), Warmup(**warmup)
    teacher, tokenizer = students.taught(run.inputs["teacher"].model, lesson.task)
    student = students.for_task(run, net, lesson.task, teacher, lesson.train.dropout)
    if classifier:
        students.put(student.classifier, *students.head(run.inputs["start"].model, classifier))
    rows = lesson.rows(tokenizer)
    select = "held_out" if "held_out" in lesson.splits else "dev"
    judged = ("dev", "unseen", "held_out")
    heads = students.kept_heads(run)
    objective = students.distilling(student, teacher, options, lesson.numerics, rows.labels, heads)
    result = learn(lesson, student, tokenizer, rows, objective, (), judged, select)
    students.curve(run)
    students.save(student, tokenizer, run.model)
    return result | size(student)
