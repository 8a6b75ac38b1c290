"""Step: start from a teacher, cut it, add ghosts, and match the teacher's hidden states (GhostBERT
section 2.3).

Without surgery it is the control that the paper lacks: distillation of an unpruned model without
ghosts.
"""

import copy
from contextlib import contextmanager

from lib.model import backbone
from lib.model.parts import layers, set_dropout, size
from lib.model.surgery import operate
from lib.runs.files import write_json
from lib.runs.spec import stream
from lib.train import loop
from lib.train.learn import Lesson
from lib.train.matching import Match, layer_map, matching, teaching
from lib.train.options import Distil
from lib.train.states import Cache


def distil(run, data, train, numerics, distil, surgery, span=None):
    """Inputs: `teacher`, fine-tuned; `importance` where the surgery cuts; `augmented` for its rows
    instead of the plain ones; `states` for the teacher's hidden states from disk. `span` for tasks
    such as SQuAD.
    """
    lesson, options = Lesson(run, data, train, numerics, span), Distil(**distil)
    teacher, tokenizer = backbone.load(run.inputs["teacher"].model)
    student = copy.deepcopy(teacher.to(loop.device()))
    set_dropout(student, lesson.train.dropout)
    write_json(run.folder / "surgery.json", perform(run, student, surgery))
    rows = lesson.rows(tokenizer)
    with (
        taught(lesson, teacher) as teach,
        matching(student, teach, matches(student, teacher, options)) as loss,
    ):
        result = loop.fit(run, student, rows, loss, lesson.train, lesson.numerics)
    backbone.save(student, tokenizer, run.model)
    return result | size(student)


def matches(student, teacher, options):
    """The embedding output, and the outputs of the L attention and the L feed-forward blocks
    (L_distill).
    """
    pairs = layer_map(len(layers(student)), len(layers(teacher)))
    return [
        Match("embedding", "embedding", mask=options.mask),
        Match("attention", "attention", pairs, options.mask),
        Match("ffn", "ffn", pairs, options.mask),
    ]


@contextmanager
def taught(lesson, teacher):
    """The teacher, beside the student or, with the input `states`, from disk. These are of the
    plain rows, and without padding.
    """
    if "states" not in lesson.run.inputs:
        with teaching(teacher, lesson.numerics, scores=False) as teach:
            yield teach
        return
    path = lesson.run.inputs["states"].model / "states.safetensors"
    cache = Cache(path, len(layers(teacher)))

    def teach(batch, rows):
        return cache(rows, batch["input_ids"].shape[1], loop.device()), None

    yield teach


def perform(run, model, ops):
    """Operate in order: cuts by the input `importance` or, without it, of the last parts; what the
    input `search` found is kept; ghosts come from the run's seed. Returns each operation with its
    report.
    """
    reports = []
    for op in ops:
        more = {}
        if op["op"] == "keep" and "search" in run.inputs:
            op = op | run.inputs["search"].metrics["architecture"]
        if op["op"] == "cut" and "importance" in run.inputs:
            scores = run.inputs["importance"].arrays("scores")
            more = {"head_scores": scores["heads"], "neuron_scores": scores["neurons"]}
        elif op["op"] == "ghost":
            more = {"seed": stream(run.seed, "ghost")}
        reports.append({"surgery": op, "report": operate(model, op, **more)})
    return reports
