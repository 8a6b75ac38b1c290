"""This step searches for a network (EfficientBERT, section 3.2).

`engine.py` proposes candidates and saves their scores. This module computes the score.
A candidate inherits weights from a supernet. In stages 1 and 2 it is then trained for a
few epochs, on text and on the task. In stage 3 it is a subnetwork of a supernet that is
already trained, and is scored as it is."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import transformers

from lib.core.options import Train
from lib.core.store import Scratch
from lib.core.types import Json
from lib.model import backbone, supernet
from lib.papers.efficientbert import students, warming
from lib.papers.efficientbert.options import CorpusDescriptor, Search, Warmup
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

SearchResult = Json  # {"net", "supernet", "shared"}, arguments of later runs.


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
    """Search for the best network of a space, by training each candidate or by scoring
    subnetworks of a trained supernet.

    A candidate's score is the task's first metric on held-out rows: after its training,
    or the highest during it with `select` "best". With the option `score` "loss" it is
    `students.make_teacher_agreement_scorer` instead. Every candidate gets the same new
    classification head; in the authors' code one head goes on from candidate to
    candidate. Each evaluation is a line of the file `history.jsonl`. The returned
    metrics are those of the best candidate, and `make_search_result` of it. `is_start`
    says that no candidate was better than the first network.

    Input runs: `start`, a supernet. `before`, optional, the search whose result `net`
    refers to. To train candidates: `teacher`, fine-tuned on the task, and with a corpus
    `general`, any BERT. Subnetworks need a teacher only for the score "loss".

    space: JSON of a search.space.Space without its first network.
    net: that first network, as JSON.
    search, warmup, pretrain: fields of the options Search, Warmup and Train. Without
    warmup candidates are subnetworks of the supernet, with its head of the task
    `classifier`.
    corpus: a text on which candidates are first trained, with the settings `pretrain`.
    """
    run, options = training.run, Search(**search)
    if warmup:
        learned = Warmup(**warmup), corpus, Train(**pretrain) if pretrain else None
        evaluate = make_short_training_scorer(training, options.score, *learned)
    else:
        assert classifier is not None
        evaluate = make_subnetwork_scorer(training, options.score, classifier)
    start = run.inputs["start"].model_folder
    projection = students.load_hidden_state_projection(start)
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
    return make_search_result(where, best.candidate) | {
        "score": best.score,
        "parameters": where.count_net_parameters(best.candidate),
        "evaluations": len(history),
        "is_start": where.make_duplicate_key(best.candidate)
        == where.make_duplicate_key(where.start),
    }


def make_search_result(space: Space, net: Net) -> SearchResult:
    """Return the results of a search that later runs take as arguments, as plain JSON.

    "net" is the network that the search found. "supernet" has the formulas of "net",
    but the most stacked networks and the full width in each layer. "shared" are fields
    of the options Shared, by which the supernet is trained: each layer draws its size
    (k stacked networks, 1/q of the inner width) from all sizes that its formula allows,
    and the size in "net" with twice the probability of another."""
    largest = {"stack": max(STACKS), "q": min(QS)}
    full_net = replace(
        net, layers=tuple(replace(layer, **largest) for layer in net.layers)
    )
    fitting = replace(
        space, stage="stage3", start=net, low=0, high=0
    ).allowed_size_indices_by_layer
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
    training: TaskTraining, model: transformers.PreTrainedModel, selection_score: str
) -> Callable[[], float]:
    """Return f() -> the score of a model on the held-out rows, with its weights at the
    time of the call.

    selection_score: "" for the task's metric, or "loss", as in the options Search."""
    if selection_score == "loss":
        return students.make_teacher_agreement_scorer(training, model)
    return partial(
        training.score_for_selection,
        training.build_split_scorers(model, "held_out")["held_out"],
    )


def make_subnetwork_scorer(
    training: TaskTraining, selection_score: str, classifier_task: str
) -> Callable[[Net], float]:
    """Return f(net) -> score on held-out rows of a subnetwork of the supernet, without
    training.

    selection_score: "" for the task's metric, or "loss", as in the options Search.
    classifier_task: the task whose head of the supernet is used."""
    folder = training.run.inputs["start"].model_folder
    model, training.tokenizer = students.load_classifier(folder, classifier_task)
    judge = make_model_scorer(training, model, selection_score)

    def score_net(net: Net) -> float:
        supernet.activate_subnetwork(model, net)
        return judge()

    return score_net


def make_short_training_scorer(
    training: TaskTraining,
    selection_score: str,
    distillation: Warmup,
    corpus: CorpusDescriptor | None,
    pretrain: Train | None,
) -> Callable[[Net], float]:
    """Return f(net) -> score on held-out rows of a candidate that inherits weights from
    the supernet and is then trained for a few epochs.

    selection_score: "" for the task's metric, or "loss", as in the options Search.
    distillation: its options.
    corpus, pretrain: a text on which it is first trained, and the settings of that
    training; None leaves it out."""
    run, train, numerics = training.run, training.train, training.numerics
    teacher, training.tokenizer = training.teacher
    rows = training.training_rows
    if corpus:
        assert pretrain is not None
        general = backbone.load(run.inputs["general"].model_folder)[0]
        text, batches = warming.encode_corpus(
            corpus, training.tokenizer, pretrain, run.seed
        )

    def score_net(net: Net) -> float:
        student = students.make_student_for_task(
            run, net, training.task, teacher, train.dropout
        )
        judge = make_model_scorer(training, student, selection_score)
        part = Scratch(run.folder, run.seed)  # A candidate needs no checkpoints.
        if corpus:
            assert pretrain is not None
            with students.make_distillation_objective(
                student, general, distillation, numerics
            ) as loss:
                loop.fit(part, student, text, loss, pretrain, numerics, batches=batches)
        with students.make_distillation_objective(
            student, teacher, distillation, numerics, rows.labels
        ) as loss:
            loop.fit(part, student, rows, loss, train, numerics, judge)
        return judge()

    return score_net
