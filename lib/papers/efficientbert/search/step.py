"""This step searches for a network (EfficientBERT, section 3.2).

`engine.py` proposes candidates and saves their scores. This module computes the score.
A candidate inherits weights from a supernet. In stages 1 and 2 it is then trained for a
few epochs, on text and on the task. In stage 3 it is a subnetwork of a supernet that is
already trained, and is scored without further training."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import transformers

from lib.core.options import Train
from lib.core.store import TrainingOutput
from lib.core.types import Json, TaskName
from lib.model import backbone, supernet
from lib.model.stack import ArchitectureJson
from lib.papers.efficientbert import students, warming
from lib.papers.efficientbert.options import (
    CorpusDescriptor,
    Search,
    SelectionScore,
    Warmup,
)
from lib.papers.efficientbert.search import engine
from lib.papers.efficientbert.search.net import Net
from lib.papers.efficientbert.search.space import (
    ENDLESS,
    IDS,
    QS,
    STACKS,
    Space,
    SpaceDescriptor,
    from_json,
)
from lib.train import loop
from lib.train.learn import TaskTraining

SearchResult = (
    Json  # {"net", "supernet", "shared"}; `make_search_result_json` explains it.
)


def search(
    training: TaskTraining,
    space: SpaceDescriptor,
    net: ArchitectureJson,
    search: loop.SettingsJson,
    warmup: loop.SettingsJson | None = None,
    corpus: CorpusDescriptor | None = None,
    pretrain: loop.SettingsJson | None = None,
    classifier: TaskName | None = None,
) -> SearchResult:
    """Search for the best small network on a task (EfficientBERT, section 3.2).

    This function is a step: it does the work of a run and returns its results. Stages 1
    and 2 of the search train each candidate network briefly. Stage 3 scores subnetworks
    of a supernet, a trained network whose leading parts are smaller networks.

    A score is the task's first metric on held-out rows or, with the option `score`
    "loss", exp(-L) of the loss L on the teacher's logits there. Where the training
    setting `select` is "best", the highest score during a training counts. Every
    candidate gets the same new classification head; in EfficientBERT's code one head
    goes on from candidate to candidate. Each evaluation is a line of the file
    `history.jsonl`.

    The result has the best network as "net", its "score" and "parameters", the number
    of "evaluations", and "is_start": whether it is the network with which the search
    started. For later runs it has the "supernet", the largest network with the same
    formulas, and "shared", the options by which random subnetworks of it are trained.

    training: the task's rows, the training settings, and the run with its inputs.
    `start` is a supernet, which gives the first weights. `before`, optional, is the
    earlier search that found `net`. `teacher`, a model fine-tuned on the task, is
    needed to train candidates and for the score "loss". `general`, any BERT, is the
    teacher on a text.
    space: the set of networks that the search may evaluate, as `make_search_space`
    returns it.
    net: the network with which the search starts, as JSON.
    search: fields of the options Search, such as method and budget.
    warmup: fields of the options Warmup, by which candidates are distilled; None scores
    subnetworks without training.
    corpus: dict of a text on which candidates are trained first; None leaves this out.
    pretrain: fields of the options Train for that text.
    classifier: without `warmup`, the task whose classification head of the supernet is
    used."""
    run = training.run
    options = Search(**search)
    if warmup:
        learned = Warmup(**warmup), corpus, Train(**pretrain) if pretrain else None
        evaluate = make_short_training_scorer(training, options.score, *learned)
    else:
        assert classifier is not None
        evaluate = make_subnetwork_scorer(training, options.score, classifier)
    start = run.inputs["start"].model_folder
    projection = students.load_hidden_state_projection(start)
    assert projection is not None
    tables = students.find_embedding_sizes_of_config(
        backbone.load(start)[0].config, len(projection[0])
    )
    where = from_json({"start": net, "tables": tables} | space)
    history = engine.search_networks(
        where,
        evaluate,
        options,
        run.seed,
        run.folder / "history.jsonl",
        run.report_progress,
    )
    best = engine.find_best_evaluation(history)
    return make_search_result_json(where, best.candidate) | {
        "score": best.score,
        "parameters": where.count_net_parameters(best.candidate),
        "evaluations": len(history),
        "is_start": where.make_deduplication_key(best.candidate)
        == where.make_deduplication_key(where.start),
    }


def make_search_result_json(space: Space, best_net: Net) -> SearchResult:
    """Return the results of a search that later runs take as arguments, as plain JSON.

    "net" is the network that the search found. "supernet" has the same formulas of
    feed-forward networks (FFNs), in each layer as many FFNs as possible, and the full
    width. So it contains all candidates of these formulas. "shared" has the fields of
    the options SubnetworkOptions, which say how random subnetworks of this supernet are
    trained. Each layer draws its size (k stacked FFNs, 1/q of the inner width) from all
    sizes that its formula allows. The size in "net" is twice as probable as another.

    space: the set of networks that was searched; its bounds of parameters hold for the
    subnetworks too.
    best_net: the best network."""
    largest = {"stack": max(STACKS), "q": min(QS)}
    full_net = replace(
        best_net, layers=tuple(replace(layer, **largest) for layer in best_net.layers)
    )
    fitting = replace(
        space, stage="stage3", start=best_net, low=0, high=0
    ).allowed_size_indices_by_layer
    choices = [
        [*(list(IDS[i]) for i in fits), [layer.stack, layer.q]]
        for fits, layer in zip(fitting, best_net.layers, strict=True)
    ]
    return {
        "net": best_net.to_json(),
        "supernet": full_net.to_json(),
        "shared": {"window": [space.low, space.high or ENDLESS], "choices": choices},
    }


def make_model_scorer(
    training: TaskTraining,
    model: transformers.PreTrainedModel,
    selection_score_kind: SelectionScore,
) -> Callable[[], float]:
    """Return f() -> the score of a model on the held-out rows, for use in a search.

    The function scores the model with its weights at the time of the call, so it can be
    called during a training.

    training: the task's rows, the training settings and the teacher.
    selection_score_kind: "" for the metric by which the training selects its best
    model, the task's first metric by default; "loss" for exp(-L) of the loss on the
    teacher's logits."""
    if selection_score_kind == "loss":
        return students.make_teacher_agreement_scorer(training, model)
    return partial(
        training.compute_model_selection_score,
        training.build_split_scorers(model, "held_out")["held_out"],
    )


def make_subnetwork_scorer(
    training: TaskTraining,
    selection_score_kind: SelectionScore,
    inherited_head_task: TaskName,
) -> Callable[[Net], float]:
    """Return f(net) -> the score of a subnetwork of a trained supernet.

    A supernet is a network whose leading parts are smaller networks with shared
    weights. By this function stage 3 of the search scores its candidates, on held-out
    rows and without training them. The supernet is loaded once, from the run's input
    `start`.

    training: the task's rows, and the run with its inputs.
    selection_score_kind: "" for the task's metric, or "loss" for exp(-L) of the loss on
    the teacher's logits.
    inherited_head_task: the task whose classification head of the supernet is used."""
    model, training.tokenizer = students.load_classifier(
        training.run.inputs["start"].model_folder, inherited_head_task
    )
    judge = make_model_scorer(training, model, selection_score_kind)

    def score_net(net: Net) -> float:
        supernet.activate_subnetwork(model, net)
        return judge()

    return score_net


def make_short_training_scorer(
    training: TaskTraining,
    selection_score_kind: SelectionScore,
    distillation: Warmup,
    corpus: CorpusDescriptor | None,
    pretraining_settings: Train | None,
) -> Callable[[Net], float]:
    """Return f(net) -> the score of a network after a short training on a task.

    By this function stages 1 and 2 of the search score their candidates, on held-out
    rows. The network inherits its first weights from the supernet, the largest network.
    It is then distilled for a few epochs.

    training: the task's rows, the training settings, and the run with its inputs.
    selection_score_kind: "" for the task's metric, or "loss" for exp(-L) of the loss on
    the teacher's logits.
    distillation: the options of the distillation.
    corpus: dict of a text on which the network is trained first; None leaves this out.
    pretraining_settings: the training settings for that text."""
    run = training.run
    train = training.train
    numerics = training.numerics
    teacher, training.tokenizer = training.teacher
    rows = training.training_rows
    if corpus:
        assert pretraining_settings is not None
        general = backbone.load(run.inputs["general"].model_folder)[0]
        text, batches = warming.encode_corpus(
            corpus, training.tokenizer, pretraining_settings, run.seed
        )

    def score_net(net: Net) -> float:
        student = students.make_student_for_task(
            run, net, training.task, teacher, train.dropout
        )
        judge = make_model_scorer(training, student, selection_score_kind)
        # The training of a candidate is short, so no checkpoints are written.
        part = TrainingOutput(run.folder, run.seed)
        if corpus:
            assert pretraining_settings is not None
            with students.build_distillation_loss(
                student, general, distillation, numerics
            ) as loss:
                loop.fit(
                    part,
                    student,
                    text,
                    loss,
                    pretraining_settings,
                    numerics,
                    list_batches_of_epoch=batches,
                )
        with students.build_distillation_loss(
            student, teacher, distillation, numerics, rows.labels
        ) as loss:
            loop.fit(part, student, rows, loss, train, numerics, judge)
        return judge()

    return score_net
