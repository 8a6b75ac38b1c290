"""Step: start from a teacher, cut it, add ghosts, and match the teacher's hidden states (GhostBERT section 2.3).

Without surgery it is the control that the paper lacks: distillation of an unpruned model without ghosts.
"""

import copy

import torch

from lib import data as sources
from lib.model import backbone
from lib.model.surgery import operate
from lib.model.taps import taps
from lib.options import Distil
from lib.spec import stream
from lib.store import write_json
from lib.train import loop, losses
from lib.train.batches import encode


def distil(run, data, train, numerics, distil, surgery):
    """Inputs: `teacher`, fine-tuned; `importance` where the surgery cuts."""
    numerics, train = loop.options(numerics, train)
    options = Distil(**distil)
    splits = sources.load(data)
    teacher, tokenizer = backbone.load(run.inputs["teacher"].model)
    teacher.to(loop.device())
    student = copy.deepcopy(teacher)
    backbone.set_dropout(student, train.dropout)
    write_json(run.folder / "surgery.json", perform(run, student, surgery))
    rows = encode(tokenizer, splits["train"], train.max_length)

    with taps(student, options.norm) as mine, taps(teacher, options.norm) as theirs:
        def loss(batch, chosen):
            with torch.no_grad():
                backbone.base(teacher)(**batch)
            backbone.base(student)(**batch)
            return losses.states(mine, theirs, batch["attention_mask"] if options.mask else None)

        result = loop.fit(run, student, rows, loss, train, numerics)
    backbone.save(student, tokenizer, run.model)
    return result | backbone.size(student)


def perform(run, model, ops):
    """Operate in order: cuts by the input `importance`, ghosts from the run's seed. Returns each operation with its
    report."""
    reports = []
    for op in ops:
        more = {}
        if op["op"] == "cut":
            scores = run.inputs["importance"].arrays("scores")
            more = {"head_scores": torch.from_numpy(scores["heads"]), "neuron_scores": torch.from_numpy(scores["neurons"])}
        elif op["op"] == "ghost":
            more = {"seed": stream(run.seed, "ghost")}
        reports.append({"surgery": op, "report": operate(model, op, **more)})
    return reports
