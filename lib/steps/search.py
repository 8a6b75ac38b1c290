"""Step: search for a network (EfficientBERT section 3.2). What is proposed and written down is torch-free, in lib.search;
here a candidate inherits from a supernet and is scored.

In stages 1 and 2 each candidate is trained for a while, on text and on the task; in stage 3 it runs as a part of a
supernet that was trained in parts, without training of its own.
"""

import hashlib
import shutil
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace

import transformers
from safetensors import safe_open

from lib import data as sources
from lib.model import backbone, stack
from lib.options import Search, Train, Warmup
from lib.search import engine
from lib.search.net import QS, STACKS, Net
from lib.search.space import ENDLESS, IDS, from_json
from lib.spec import canonical
from lib.steps import predistil
from lib.store import Draft
from lib.train import heads, loop
from lib.train import warmup as matching


def search(
    run,
    space,
    net,
    search,
    data,
    train,
    numerics,
    warmup=None,
    corpus=None,
    pretrain=None,
    classifier=None,
    span=None,
):
    """Inputs: `start`, a supernet; for stages 1 and 2 also `teacher`, fine-tuned on the task, and where there is a corpus
    `general`, any BERT; `before`, a search whose winner is where this one starts (net is then Output("before", "net")).

    space: what lib.search.space.from_json takes, but the network it starts with: that is net. warmup: candidates are
    trained by `train`, after `pretrain` on `corpus` (as of step predistil) if that is given. Without it they are parts of
    the supernet, under its own head or that for the task `classifier`. The score is the task's first metric on the
    held-out rows: after training or, with select "best", its highest.

    Each evaluation is a line of `history.jsonl` (lib.search.engine); the metrics are those of the winner, with its `net`,
    and what stage 3 trains of it (`handed`).
    Every candidate gets the same fresh head; in the code a head goes on from one candidate to the next.
    """
    numerics, train = loop.options(numerics, train)
    options, splits = Search(**search), sources.load(data)
    if "held_out" not in splits:
        raise ValueError(
            f"a search scores on held-out rows, and {data} has none: describe the data with held_out"
        )
    job = SimpleNamespace(
        run=run,
        task=sources.described(data),
        splits=splits,
        train=train,
        numerics=numerics,
        span=span,
    )
    if warmup:
        evaluate = trained(job, Warmup(**warmup), corpus, pretrain and Train(**pretrain))
    else:
        evaluate = shared(job, classifier)
    where = from_json({"start": net, "tables": tables(run.inputs["start"].model)} | space)

    def after(history):
        shutil.rmtree(run.resume, ignore_errors=True)
        run.progress(len(history) / options.budget)

    history = engine.search(where, evaluate, options, run.seed, run.folder / "history.jsonl", after)
    best = engine.best(history)
    return handed(where, best.candidate) | {
        "score": best.score,
        "parameters": where.size(best.candidate),
        "first_score": history[0].score,
        "evaluations": len(history),
        "failed": sum(bool(e.failed) for e in history),
        "evaluation_seconds": round(sum(e.seconds for e in history), 2),
    }


def handed(where, net):
    """What later steps take from a search as Outputs, all as JSON: the network found, as `net`; its formulas with every
    stack and width, as `supernet`; and what lib.options.Shared takes to train that in parts: the window, and of each layer
    the ids that its formula fits and, once more, the one found."""
    whole = replace(
        net, layers=tuple(replace(layer, stack=max(STACKS), q=min(QS)) for layer in net.layers)
    )
    fitting = replace(where, stage="stage3", start=net, low=0, high=0).choices
    choices = [
        [*(list(IDS[i]) for i in own), [layer.stack, layer.q]]
        for own, layer in zip(fitting, net.layers, strict=True)
    ]
    return {
        "net": net.to_json(),
        "supernet": whole.to_json(),
        "shared": {"window": [where.low, where.high or ENDLESS], "choices": choices},
    }


def tables(folder):
    """What the size of a part of a supernet depends on beside its Net (lib.search.net.parameters)."""
    config = backbone.load(folder)[0].config
    with safe_open(folder / matching.PROJECTION, "np") as file:
        wide = file.get_slice("maps.0.weight").get_shape()[0]
    return {
        "teacher": wide,
        "vocab": config.vocab_size,
        "positions": config.max_position_embeddings,
        "types": config.type_vocab_size,
    }


def judge(job, tokenizer):
    """f(model) -> the task's first metric on the held-out rows."""
    encoded, marks = heads.rows(
        tokenizer, job.splits["held_out"], job.task, job.train.max_length, job.span
    )
    return lambda model: marks(loop.predict(model, encoded, job.numerics, pad_to=job.train.pad_to))[
        0
    ][job.task.metrics[0]]


def shared(job, classifier):
    """f(net) -> score of a part of the supernet, as it is."""
    folder = job.run.inputs["start"].model
    model, tokenizer = (
        matching.classifier(folder, classifier) if classifier else matching.taught(folder, job.task)
    )
    score = judge(job, tokenizer)

    def evaluate(net):
        stack.choose(model, net)
        return score(model)

    return evaluate


def trained(job, options, corpus, pretrain):
    """f(net) -> score of a network that inherits from the supernet and is then trained."""
    run, train = job.run, job.train
    if (corpus is None, pretrain is None) != ("general" not in run.inputs,) * 2:
        raise ValueError(
            "to train candidates on text give all three, corpus, pretrain and the input general, else none of them"
        )
    teacher, tokenizer = matching.taught(run.inputs["teacher"].model, job.task)
    rows, _ = heads.rows(tokenizer, job.splits["train"], job.task, train.max_length, job.span)
    cls = (
        transformers.BertForQuestionAnswering
        if job.task.span
        else transformers.BertForSequenceClassification
    )
    score = judge(job, tokenizer)
    if corpus:
        general = backbone.load(run.inputs["general"].model)[0].to(loop.device())
        text, batches = predistil.rows(corpus, tokenizer, pretrain, run.seed)

    def read(student, leg):
        with matching.matching(
            student, {"": general}, replace(options, prediction=0.0), job.numerics
        ) as match:

            def loss(batch, _):
                mine, theirs = (
                    partial(backbone.base(model), **batch) for model in (student, general)
                )
                return match("", batch, mine, theirs)

            loop.fit(
                leg, student, text, loss, pretrain, job.numerics, hooks=loop.Hooks(batches=batches)
            )

    def learn(student, leg):
        with matching.matching(student, {"": teacher}, options, job.numerics) as match:

            def loss(batch, chosen):
                mine, theirs = (partial(loop.outputs, model, batch) for model in (student, teacher))
                return match("", batch, mine, theirs, rows.labels[chosen].to(loop.device()))

            loop.fit(leg, student, rows, loss, train, job.numerics, lambda: score(student))

    def evaluate(net):
        student = matching.student(
            run, net, cls, teacher, options, train.dropout, num_labels=job.task.outputs
        )
        run.resume.mkdir(exist_ok=True)
        if corpus:
            read(student, Leg(run, net, "text"))
        learn(student, Leg(run, net, "task"))
        return score(student)

    return evaluate


@dataclass(frozen=True)
class Leg:
    """A part of a run as the training loop sees it, with checkpoints in a folder of the candidate's own: those of another
    one, left by a kill, are never taken up."""

    run: Draft
    net: Net
    name: str

    @property
    def resume(self):
        return (
            self.run.resume
            / f"{hashlib.sha256(canonical(self.net.to_json()).encode()).hexdigest()[:12]}-{self.name}"
        )

    @property
    def seed(self):
        return self.run.seed

    @property
    def checkpoint_seconds(self):
        return self.run.checkpoint_seconds

    def log(self, **values):
        self.run.log(leg=self.name, **values)

    def progress(self, fraction):
        """The search tells its own, by candidates."""
