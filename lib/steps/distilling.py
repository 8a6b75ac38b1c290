"""Steps of GhostBERT: a teacher is cut and gets ghosts, with or without matching the teacher's
hidden states (section 2.3).
"""

import copy

from lib.model import backbone
from lib.model.parts import layers, set_dropout, size
from lib.model.surgery import operate as change
from lib.runs.paths import write_json
from lib.runs.spec import stream
from lib.train import loop
from lib.train.learn import learn
from lib.train.matching import Match, imitating, layer_map, matching, states_on_disk, write_states
from lib.train.options import Distil
from lib.train.students import SURGERY


def distil(lesson, distil, surgery):
    """Step: start from a teacher, cut it, add ghosts, and match the teacher's hidden states.

    Without surgery it is the control that the paper lacks: distillation of an unpruned model
    without ghosts.

    Inputs: `teacher`, fine-tuned; `importance` where the surgery cuts; `augmented` for its rows
    instead of the plain ones; `states` for the teacher's hidden states from disk. `span` for tasks
    such as SQuAD.
    """
    teacher, lesson.tokenizer = lesson.teacher
    student = copy.deepcopy(teacher.to(loop.device()))
    set_dropout(student, lesson.train.dropout)
    perform(lesson.run, student, surgery)
    objective = objective_of(lesson, student, teacher, Distil(**distil))
    return learn(lesson, student, objective, judged=()) | size(student)


def matches(student, teacher, options):
    """List what L_distill compares: the embedding output, and the outputs of the L attention and
    the L feed-forward blocks.
    """
    pairs = layer_map(len(layers(student)), len(layers(teacher)))
    return [
        Match("embedding", "embedding", mask=options.mask),
        Match("attention", "attention", pairs, options.mask),
        Match("ffn", "ffn", pairs, options.mask),
    ]


def objective_of(lesson, student, teacher, options):
    """Return the objective that learns by L_distill.

    The teacher runs beside the student or, with the input `states`, its states come from disk.
    These are of the plain rows, and without padding.
    """
    wanted = matches(student, teacher, options)
    if "states" not in lesson.run.inputs:
        return imitating(student, teacher, wanted, lesson.numerics)
    path = lesson.run.inputs["states"].model / "states.safetensors"
    return matching(student, states_on_disk(path, len(layers(teacher))), wanted)


def perform(run, model, ops):
    """Operate in order: cuts by the input `importance` or, without it, of the last parts; what the
    input `search` found is kept; ghosts come from the run's seed. Each operation is written beside
    the run's model with its report.
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
        reports.append({"surgery": op, "report": change(model, op, **more)})
    write_json(run.folder / SURGERY, reports)


def operate(run, surgery):
    """Step: cut a teacher and add ghosts without any training; the ablation without distillation
    starts from it.

    Inputs: `teacher`, fine-tuned; `importance` where the surgery cuts by it; `search` where it
    keeps what was found.
    """
    model, tokenizer = backbone.load(run.inputs["teacher"].model)
    perform(run, model, surgery)
    backbone.save(model, tokenizer, run.model)
    return size(model)


def states(lesson, distil):
    """Step: a teacher's hidden states over the training rows, so that its students need not run it
    again.

    Input: `teacher`. `train` gives the length at which rows are cut; distil: that of the students.
    """
    model, lesson.tokenizer = lesson.teacher
    path = lesson.run.folder / "model" / "states.safetensors"  # kept while another Spec needs it
    path.parent.mkdir(exist_ok=True)
    return write_states(model, lesson.rows, lesson.numerics, path, progress=lesson.run.progress)
