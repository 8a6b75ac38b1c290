"""This step searches for a network (EfficientBERT section 3.2).

`engine.py` proposes candidates and writes them down, free of torch. Here a candidate
inherits from a supernet and is scored. In stages 1 and 2 each candidate is trained for
a while, on text and on the task. In stage 3 it is a part of a supernet that was trained
in parts, and is not trained itself."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import transformers

from lib.core.options import Train
from lib.core.store import Scratch
from lib.core.types import Json
from lib.model import backbone, supernet
from lib.papers.efficientbert import students, warming
from lib.papers.efficientbert.options import Search, Warmup
from lib.papers.efficientbert.search import engine
from lib.papers.efficientbert.search.net import Net
from lib.papers.efficientbert.search.space import (
    ENDLESS,
    IDS,
    QS,
    STACKS,
    Space,
    from_json,
)
from lib.train import loop
from lib.train.learn import TaskTraining


def search(
    training: TaskTraining,
    space: Json,
    net: Json,
    search: Json,
    warmup: Json | None = None,
    corpus: Json | None = None,
    pretrain: Json | None = None,
    classifier: str | None = None,
) -> Json:
    """Search for a network in a space, as parts of a supernet or by training each
    candidate.

    Inputs: `start`, a supernet; for stages 1 and 2 also `teacher`, fine-tuned on the
    task, and with a corpus `general`, any BERT. `before` is a search whose winner this
    one starts from; net is then Output("before", "net").

    space: JSON of a search.space.Space without its first
    network. net: that first network. warmup: the options by which candidates are
    trained by `train`, after `pretrain` on `corpus` (as of step predistil) where that
    is given. Without warmup they are parts of the supernet, with its head of the task
    `classifier`. The score is the task's first metric on the held-out rows: after the
    training, or with select "best" its highest. With `score` "loss" it is that of
    `lib.papers.efficientbert.students.make_likeness_score`, and parts of a supernet have the input
    `teacher` too.

    Each evaluation is a line of `history.jsonl`
    (search.engine). Metrics are those of the winner, and what
    later steps take from it (`make_search_outputs`). `is_start` tells a search that
    found nothing better than the network that it began with. Every candidate gets the
    same fresh head; in the authors' code one head goes on from candidate to candidate."""
    run, options = training.run, Search(**search)
    if warmup:
        learned = Warmup(**warmup), corpus, Train(**pretrain) if pretrain else None
        evaluate = make_training_scorer(training, options.score, *learned)
    else:
        assert classifier is not None
        evaluate = make_supernet_scorer(training, options.score, classifier)
    start = run.inputs["start"].model
    projection = students.load_projection(start)
    assert projection is not None
    tables = students.list_embedding_sizes(
        backbone.load(start)[0].config, len(projection[0])
    )
    where = from_json({"start": net, "tables": tables} | space)
    path = run.folder / "history.jsonl"
    history = engine.search_networks(
        where, evaluate, options, run.seed, path, run.report_progress
    )
    best = engine.find_best_evaluation(history)
    return make_search_outputs(where, best.candidate) | {
        "score": best.score,
        "parameters": where.count_net_parameters(best.candidate),
        "evaluations": len(history),
        "is_start": where.make_key(best.candidate) == where.make_key(where.start),
    }


def make_search_outputs(space: Space, net: Net) -> Json:
    """Return {"net", "supernet", "shared"}, which later steps take as Outputs, as JSON.

    "net" is the network that the search found. "supernet" has its formulas with the
    deepest stacks and the widest networks. "shared" are the fields of a
    lib.core.options.Shared that trains it in parts: each layer chooses among all ids
    that fit its formula, and the id in `net` once more."""
    largest = {"stack": max(STACKS), "q": min(QS)}
    full_net = replace(
        net, layers=tuple(replace(layer, **largest) for layer in net.layers)
    )
    fitting = replace(space, stage="stage3", start=net, low=0, high=0).choices_by_layer
    choices = [
        [*(list(IDS[i]) for i in fits), [layer.stack, layer.q]]
        for fits, layer in zip(fitting, net.layers, strict=True)
    ]
    return {
        "net": net.to_json(),
        "supernet": full_net.to_json(),
        "shared": {"window": [space.low, space.high or ENDLESS], "choices": choices},
    }


def make_model_scorer(
    training: TaskTraining, model: transformers.PreTrainedModel, score_kind: str
) -> Callable[[], float]:
    """Return f() -> the score of a model, as it is when called, on the held-out rows.

    score_kind: as in lib.core.options.Search.
    """
    if score_kind == "loss":
        return students.make_likeness_score(training, model)
    return partial(
        training.score_for_selection,
        training.build_split_scorers(model, "held_out")["held_out"],
    )


def make_supernet_scorer(
    training: TaskTraining, score_kind: str, classifier: str
) -> Callable[[Net], float]:
    """Return f(net) -> score of a part of the supernet without training."""
    folder = training.run.inputs["start"].model
    model, training.tokenizer = students.load_classifier(folder, classifier)
    judge = make_model_scorer(training, model, score_kind)

    def score_net(net: Net) -> float:
        supernet.activate_net(model, net)
        return judge()

    return score_net


def make_training_scorer(
    training: TaskTraining,
    score_kind: str,
    options: Warmup,
    corpus: Json | None,
    pretrain: Train | None,
) -> Callable[[Net], float]:
    """Return f(net) -> score of a network that inherits from the supernet and is then
    trained."""
    run, train, numerics = training.run, training.train, training.numerics
    teacher, training.tokenizer = training.teacher
    rows = training.training_rows
    if corpus:
        assert pretrain is not None
        general = backbone.load(run.inputs["general"].model)[0]
        text, batches = warming.encode_corpus(
            corpus, training.tokenizer, pretrain, run.seed
        )

    def score_net(net: Net) -> float:
        student = students.make_student_for_task(
            run, net, training.task, teacher, train.dropout
        )
        judge = make_model_scorer(training, student, score_kind)
        part = Scratch(run.folder, run.seed)  # A candidate needs no checkpoints.
        if corpus:
            assert pretrain is not None
            with students.make_distillation_objective(
                student, general, options, numerics
            ) as loss:
                loop.fit(part, student, text, loss, pretrain, numerics, batches=batches)
        with students.make_distillation_objective(
            student, teacher, options, numerics, rows.labels
        ) as loss:
            loop.fit(part, student, rows, loss, train, numerics, judge)
        return judge()

    return score_net
