"""Step: search for a network (EfficientBERT section 3.2). What is proposed and written down is
torch-free, in lib.search; here a candidate inherits from a supernet and is scored.

In stages 1 and 2 each candidate is trained for a while, on text and on the task. In stage 3 it runs
as a part of a supernet that was trained in parts, without training of its own.
"""

from dataclasses import replace
from functools import partial

from lib.model import backbone, supernet
from lib.runs.store import Scratch
from lib.search import engine
from lib.search.space import ENDLESS, IDS, QS, STACKS, from_json
from lib.steps import warming
from lib.train import loop, students
from lib.train.options import Search, Train, Warmup


def search(lesson, space, net, search, warmup=None, corpus=None, pretrain=None, classifier=None):
    """Step: search for a network in a space, as parts of a supernet or by training each candidate.

    Inputs: `start`, a supernet. For stages 1 and 2 also `teacher`, fine-tuned on the task, and
    with a corpus `general`, any BERT. `before`: a search whose winner this one starts from; net is
    then Output("before", "net").

    space: as lib.search.space.from_json takes it, without its first network, which is net. warmup:
    candidates are trained by `train`, after `pretrain` on `corpus` (as of step predistil) where
    that is given. Without warmup they are parts of the supernet, under its head of the task
    `classifier`. The score is the task's first metric on the held-out rows: after training, or
    with select "best" its highest.

    Each evaluation is a line of `history.jsonl` (lib.search.engine). Metrics are those of the
    winner, its `net`, and what stage 3 trains of it (`handed`). Every candidate gets the same fresh
    head; in the code a head goes on from one candidate to the next.
    """
    run, options = lesson.run, Search(**search)
    if warmup:
        evaluate = trained(lesson, Warmup(**warmup), corpus, pretrain and Train(**pretrain))
    else:
        evaluate = shared(lesson, classifier)
    start = run.inputs["start"].model
    told = students.tables(backbone.load(start)[0].config, len(students.projection(start)[0]))
    where = from_json({"start": net, "tables": told} | space)
    path = run.folder / "history.jsonl"
    history = engine.search(where, evaluate, options, run.seed, path, run.progress)
    best = engine.best(history)
    return handed(where, best.candidate) | {
        "score": best.score,
        "parameters": where.size(best.candidate),
        "evaluations": len(history),
    }


def handed(where, net):
    """Return what later steps take from a search as Outputs, all as JSON.

    net: the network found. supernet: its formulas with the deepest stacks and the widest networks.
    shared: what lib.train.options.Shared takes to train that in parts. Its choices are, for each
    layer, all ids that fit the formula, and the one found once more.
    """
    largest = {"stack": max(STACKS), "q": min(QS)}
    whole = replace(net, layers=tuple(replace(layer, **largest) for layer in net.layers))
    fitting = replace(where, stage="stage3", start=net, low=0, high=0).choices
    choices = [
        [*(list(IDS[i]) for i in fits), [layer.stack, layer.q]]
        for fits, layer in zip(fitting, net.layers, strict=True)
    ]
    return {
        "net": net.to_json(),
        "supernet": whole.to_json(),
        "shared": {"window": [where.low, where.high or ENDLESS], "choices": choices},
    }


def judged(lesson, model):
    """Return f() -> the task's metric on the held-out rows, of the model as it then is."""
    return partial(lesson.score, lesson.judges(model, "held_out")["held_out"])


def shared(lesson, classifier):
    """Return f(net) -> score of a part of the supernet, as it is."""
    folder = lesson.run.inputs["start"].model
    model, lesson.tokenizer = students.classifier(folder, classifier)
    score = judged(lesson, model)

    def evaluate(net):
        supernet.choose(model, net)
        return score()

    return evaluate


def trained(lesson, options, corpus, pretrain):
    """Return f(net) -> score of a network that inherits from the supernet and is then trained."""
    run, train, numerics = lesson.run, lesson.train, lesson.numerics
    teacher, lesson.tokenizer = lesson.teacher
    rows = lesson.rows
    if corpus:
        general = backbone.load(run.inputs["general"].model)[0]
        text, batches = warming.rows(corpus, lesson.tokenizer, pretrain, run.seed)

    def evaluate(net):
        student = students.for_task(run, net, lesson.task, teacher, train.dropout)
        score = judged(lesson, student)
        part = Scratch(run.folder, run.seed)  # without checkpoints: a candidate is soon made anew
        if corpus:
            with students.distilling(student, general, options, numerics) as loss:
                loop.fit(part, student, text, loss, pretrain, numerics, batches=batches)
        with students.distilling(student, teacher, options, numerics, rows.labels) as loss:
            loop.fit(part, student, rows, loss, train, numerics, score)
        return score()

    return evaluate
