"""This module has EfficientBERT's networks, settings and tables, and the Specs,
descriptions of runs, that train the networks.

The paper is Dong et al., Findings of EMNLP 2021. The settings of profile `paper` are
the printed ones (section 4.3), and where the paper is silent those of the public code.
The small profiles `toy` and `mini` have their own, chosen once before the first
recorded run. Searches are in `searches.py`. The module does not import torch."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from lib.core.memo import reuse_result
from lib.core.names import check_known_name
from lib.core.options import Span, Train
from lib.core.spec import Spec
from lib.core.types import Json
from lib.data import texts
from lib.papers import grids, published
from lib.papers.efficientbert.options import CorpusDescriptor, Shared, Warmup
from lib.papers.efficientbert.search.net import (
    BERT,
    QS,
    STACKS,
    EmbeddingSizes,
    Layer,
    Net,
    ParameterBounds,
    count_net_parameters,
    make_bert,
)
from lib.papers.grids import (
    DataDescriptor,
    backbone_spec,
    find_encoder_shape,
    find_profile,
    initial_checkpoint_spec,
)
from lib.stats import compare
from lib.stats.compare import Column, ScoreTable

if TYPE_CHECKING:
    import pandas as pd

    EstimatesByRow = dict[tuple[str, str], Any]  # {(source, row): Estimate}.

S = grids.read_settings("efficientbert")
# Tables of this folder's settings.toml, whose comments describe them.
COLUMNS: tuple[Column, ...] = S.COLUMNS
CLAIM_COLUMNS = COLUMNS  # Metrics by which the paper's claims are checked.
OWN: tuple[str, ...] = S.OWN
OTHER_BASE: tuple[str, ...] = S.OTHER_BASE
TIMED: tuple[str, ...] = S.TIMED
FROM_SCRATCH: int = S.FROM_SCRATCH
GENERAL: dict[str, str] = S.GENERAL
BASELINES: dict[str, tuple[str, ...]] = S.BASELINES
TASKS: dict[str, tuple[str, ...]] = S.TASKS
PAIRED: dict[str, tuple[str, ...]] = S.PAIRED
SQUAD: dict[str, tuple[str, ...]] = S.SQUAD
SPANS: dict[str, tuple[str, ...]] = S.SPANS
MULTITASK: dict[str, tuple[str, ...]] = S.MULTITASK
PROXY: dict[str, str] = S.PROXY
SEEDS: dict[str, tuple[int, ...]] = S.SEEDS
HEADLINES: dict[str, tuple[int, ...]] = S.HEADLINES
SIZES: dict[str, dict[str, int]] = S.SIZES
LAYERS: dict[str, int] = S.LAYERS
LIMITS: dict[str, tuple[int, int]] = S.LIMITS
WINDOW: dict[str, tuple[float, float]] = S.WINDOW
TEXTS: dict[str, tuple[str, ...]] = S.TEXTS
DOCUMENTS: dict[str, int] = S.DOCUMENTS
BRIEF: dict[str, int] = S.BRIEF
PRETRAIN: dict[str, Train] = S.PRETRAIN
READ: dict[str, Train] = S.READ
FINETUNE: dict[str, Train] = S.FINETUNE
TOGETHER: dict[str, Train] = S.TOGETHER
CANDIDATE: dict[str, Train] = S.CANDIDATE
TEACHER: dict[str, Train] = S.TEACHER
OF_TASK: dict[str, dict[str, Json]] = S.OF_TASK
SELECT_BY: dict[str, tuple[str, ...]] = S.SELECT_BY
SPAN: dict[str, Span] = S.SPAN
WARM: dict[str, Warmup] = S.WARM
TAUGHT: dict[str, Warmup] = S.TAUGHT
PART: dict[str, tuple[int, int]] = S.PART
TENTH: dict[str, int] = S.TENTH

# Rows of Table 2 that are trained by another recipe than its other rows.
TEACHER_ROW, PLUS = (
    "BERT_BASE (Teacher)",
    "EfficientBERT+",
)
COLD = "EfficientBERT w/o Warm-up KD"
# The public code trains "EfficientBERT++" with one full inner width D, but counts its
# parameters with another. Both networks are kept.
PLUS_PLUS = ("EfficientBERT++ (D = 360)", "EfficientBERT++ (D = 540)")
# Replacement for the baseline MobileBERT_TINY with as many parameters: 24 thin layers of
# two feed-forward networks each, without bottlenecks, and with the teacher's number of
# heads.
THIN = "MobileBERT_TINY shape"


def _read_networks() -> dict[str, Net]:
    """Return {name: Net} of all published networks, from architectures.csv and
    parameter_counts.csv.

    The paper prints the formulas only as a picture, so they are those of the public
    code. The second file has plain BERTs."""
    nets = {}
    searched = published.read_rows("efficientbert", "architectures")
    for name, rows in groupby(searched, itemgetter("variant")):
        row, *_ = rows = list(rows)
        layers = tuple(
            Layer(
                layer["formula"],
                int(layer["stack"]),
                Fraction(layer["ratio"]).denominator,
            )
            for layer in rows
        )
        widths = int(row["hidden size d"]), int(row["reference FFN width D"])
        nets[name] = Net(*widths, 12, row["embedding"], row["mismatch"], layers)
    nets[COLD] = nets["EfficientBERT"]
    configured = nets["EfficientBERT++"]
    nets |= zip(PLUS_PLUS, (configured, replace(configured, width=540)), strict=True)
    nets[THIN] = Net(144, 648, 12, "trigram", "truncate", (Layer(BERT, 2),) * 24)
    for row in published.read_rows("efficientbert", "parameter_counts"):
        sizes = ("layers", "hidden size d", "reference FFN width D", "heads")
        nets.setdefault(row["row"], make_bert(*(int(row[name]) for name in sizes)))
    return nets


NETS, HEADS = _read_networks(), 12
# Columns with scores on development rows, as Table 3 has them.
DEV_COLUMNS = tuple(column for column in COLUMNS if column.split == "dev")
DEVIATIONS = published.read_deviations_by_profile("efficientbert")


def find_proxy_task(profile: str) -> str:
    """Return the task on which a search trains and scores candidates."""
    return grids.select_tasks(profile, by_profile={profile: (PROXY[profile],)})[0]


together = partial(grids.select_tasks, by_profile=MULTITASK)


def find_network(network_name: str) -> Net:
    """Return a published network by its name in the tables, or the base network with a
    formula in each layer.

    So a reader can write a formula such as "W2 gelu(W1 x)" instead of a name. Raises
    Refused for an unknown name, and FormulaError for a formula that no network may
    have."""
    if "W2" in network_name:
        base = NETS["Base Model"]
        return replace(
            base, layers=tuple(replace(l, formula=network_name) for l in base.layers)
        )
    check_known_name("published network", network_name, NETS)
    return NETS[network_name]


def scale_network_to_profile(network_name: str, profile: str) -> Net:
    """Return a published network with the smaller widths and depth of a profile; at
    `paper` the network itself.

    The depth is the largest one, up to the profile's, at which each layer can be paired
    with a layer of the teacher."""
    net, sizes = find_network(network_name), SIZES.get(profile)
    if sizes is None:
        return net
    teacher = find_encoder_shape(profile).layers
    most = max(1, LAYERS[profile] * len(net.layers) // 6)
    depth = next(n for n in range(most, 0, -1) if not (n % teacher and teacher % n))
    heads = net.heads * find_encoder_shape(profile).heads // HEADS
    hidden = sizes.get(str(net.hidden)) or net.hidden * sizes["540"] / 540
    hidden = heads * round(hidden / heads)
    width = hidden * net.width // net.hidden
    layers = tuple(net.layers[i * len(net.layers) // depth] for i in range(depth))
    return replace(net, heads=heads, hidden=hidden, width=width, layers=layers)


def list_embedding_sizes(profile: str) -> EmbeddingSizes:
    """Return the sizes that `search.net.count_net_parameters` needs beside a Net: rows
    of the embedding tables, and the teacher's hidden size."""
    encoder = find_encoder_shape(profile)
    return dict(
        teacher=encoder.hidden,
        vocab=encoder.vocab,
        positions=encoder.positions,
        types=max(1, encoder.types),
    )


def find_parameter_count_bounds(profile: str) -> ParameterBounds:
    """Return (least, most) parameters of a candidate in a search, the projection to the
    teacher's width included."""
    if profile in LIMITS:
        return LIMITS[profile]
    largest = scale_network_to_profile("Supernet", profile)
    ends = (
        replace(largest, layers=tuple(replace(l, stack=k, q=q) for l in largest.layers))
        for k, q in ((STACKS[0], QS[-1]), (STACKS[-1], QS[0]))
    )
    low, high = (
        count_net_parameters(net, "with projection", **list_embedding_sizes(profile))
        for net in ends
    )
    return tuple(round(low + share * (high - low)) for share in WINDOW[profile])


TEXT, ENCYCLOPEDIA = "wikipedia+books", "wikipedia"
# Suffix of the networks in Table 5 that were pre-trained on Wikipedia alone.
WIKI = ", Wiki"


def make_corpus_descriptor(
    profile: str, document_count: int | None = None, corpus_name: str = TEXT
) -> CorpusDescriptor:
    """Return the descriptor of the text for pre-training.

    document_count: number of documents, by default the profile's.
    corpus_name: "wikipedia+books" or "wikipedia"; profile `toy` generates its text."""
    document_count = document_count or DOCUMENTS.get(profile)
    return (
        {"sentences": document_count, "seed": 1}
        if profile == "toy"
        else texts.describe_corpus(corpus_name, document_count)
    )


def make_short_corpus_descriptor(profile: str) -> CorpusDescriptor:
    """Return the description of the small corpus on which a candidate of the search is
    pretrained before it is fine-tuned on its task: its name, digest and length.

    Only profiles with this pretraining call it."""
    return make_corpus_descriptor(profile, BRIEF[profile], ENCYCLOPEDIA)


def _seed_independent_spec(
    step_name: str,
    profile: str,
    net: Net,
    inputs_by_name: Mapping[str, Spec | None],
    **step_arguments: Any,
) -> Spec:
    """Return the Spec of a step that trains a network once; runs of all seeds start
    from it.

    inputs_by_name: the Specs of its input runs; None leaves one out.
    step_arguments: further arguments of the step."""
    step_arguments = step_arguments | {
        "net": net.to_json(),
        "numerics": find_profile(profile).numerics,
    }
    return Spec(step_name, step_arguments, inputs_by_name, seed=0)


@reuse_result
def pretraining_spec(
    profile: str,
    net: Net,
    initial_model: Spec | None = None,
    corpus: CorpusDescriptor | None = None,
    train: Train | None = None,
    subnetwork_options: Shared | None = None,
) -> Spec:
    """Return the Spec of a network distilled on plain text, from the pre-trained
    encoder of the profile.

    initial_model: the run that it inherits weights from; None for random weights.
    corpus, train: text and training settings other than the profile's.
    subnetwork_options: which subnetworks of a supernet are trained, one in each step;
    None trains the whole network."""
    inputs = {"teacher": backbone_spec(profile), "start": initial_model}
    args = {
        "corpus": corpus or make_corpus_descriptor(profile),
        "train": train or PRETRAIN[profile],
    }
    return _seed_independent_spec(
        "predistil",
        profile,
        net,
        inputs,
        warmup=WARM[profile],
        shared=subnetwork_options,
        **args,
    )


def pretrained_supernet_spec(profile: str, corpus_name: str = TEXT) -> Spec:
    """Return the Spec of the supernet, the largest network, pre-trained as a whole on a
    text. All other networks inherit weights from it."""
    read = make_corpus_descriptor(profile, corpus_name=corpus_name)
    return pretraining_spec(
        profile, scale_network_to_profile("Supernet", profile), corpus=read
    )


def stages_1_and_2_supernet_spec(profile: str) -> Spec:
    """Return the Spec of the pre-trained supernet from which the candidates of search
    stages 1 and 2 inherit weights."""
    return pretrained_supernet_spec(profile, TEXTS[profile][-1])


@reuse_result
def pretrained_network_spec(
    profile: str, network_name: str, corpus_name: str = TEXT
) -> Spec:
    """Return the Spec of a published network after pre-training, from which the
    trainings on tasks start.

    It inherits weights from the supernet, except for the row "w/o Warm-up KD" and
    networks with TinyBERT_6's embedding, which start from random weights. At `paper`
    some baselines are published checkpoints.

    corpus_name: the text of the pre-training."""
    net, paper = scale_network_to_profile(network_name, profile), profile == "paper"
    if paper and network_name in GENERAL:
        return initial_checkpoint_spec(profile, GENERAL[network_name])
    if net.embedding != "plain":
        start = (
            None
            if network_name in (COLD, THIN)
            else pretrained_supernet_spec(profile, corpus_name)
        )
        return pretraining_spec(
            profile,
            net,
            start,
            make_corpus_descriptor(profile, corpus_name=corpus_name),
        )
    if not paper:
        return pretraining_spec(profile, net)
    train = replace(PRETRAIN["paper"], epochs=FROM_SCRATCH)
    return pretraining_spec(
        "paper",
        net,
        corpus=make_corpus_descriptor("paper", corpus_name=ENCYCLOPEDIA),
        train=train,
    )


@reuse_result
def teacher_spec(profile: str, task: str) -> Spec:
    """Return the Spec of the profile's encoder fine-tuned on a task, the teacher of all
    students there."""
    train = make_finetuning_settings(TEACHER, profile, task)
    return grids.teacher_spec(profile, task, train=train, passage_cuts_by_profile=SPAN)


def make_finetuning_settings(
    settings_by_profile: Mapping[str, Train], profile: str, task: str
) -> Train:
    """Return the training settings of a task at a profile.

    Some tasks choose the best model by the mean of two metrics, or have settings of
    their own, such as more epochs. At `paper` these are not for teachers."""
    train = settings_by_profile[profile]
    if train.select == "best":
        train = replace(train, select_by=SELECT_BY.get(task, ()))
    if profile == "paper" and settings_by_profile is TEACHER:
        return train
    return replace(train, **OF_TASK[profile].get(task, {}))


@reuse_result
def task_distillation_spec(
    profile: str,
    task: str,
    net: Net,
    initial_model: Spec | None,
    classifier_task: str | None = None,
    train: Train | None = None,
    data_descriptor: DataDescriptor | None = None,
    prediction_loss_weight: float = 1.0,
    **training_changes: Any,
) -> Spec:
    """Return the Spec of a network distilled on a task from its fine-tuned teacher.

    initial_model: the run that it inherits weights from, or None.
    classifier_task: the task whose classification head is inherited too, where
    `initial_model` was trained on several tasks.
    train, data_descriptor: training settings, and a descriptor of the data; None takes
    those of the models in the paper's tables.
    prediction_loss_weight: weight of the loss on logits (equation 4).
    training_changes: fields of `train` with other values; a value of 0 changes nothing.
    """
    training_changes = {
        name: value for name, value in training_changes.items() if value
    }
    train = replace(
        train or make_finetuning_settings(FINETUNE, profile, task), **training_changes
    )
    args: Json = {"net": net.to_json(), "classifier": classifier_task, "train": train}
    args["warmup"] = replace(TAUGHT[profile], prediction=prediction_loss_weight)
    inputs = {"teacher": teacher_spec(profile, task), "start": initial_model}
    return Spec(
        "warmup",
        grids.make_common_run_arguments(
            profile, task, data_descriptor, passage_cuts_by_profile=SPAN, **args
        ),
        inputs,
    )


@reuse_result
def student_spec(
    profile: str,
    task: str,
    model_name: str,
    corpus_name: str = TEXT,
    **training_changes: Any,
) -> Spec:
    """Return the Spec of the model in a row of the paper's tables, trained on a task.

    `model_name` is the teacher's row, or a published network, which is pre-trained first.
    Only EfficientBERT+ takes encoder and head from a supernet that was trained on
    several tasks.

    corpus_name: the text of the pre-training.
    training_changes: `prediction_loss_weight` and changes of training settings, as in
    `task_distillation_spec`."""
    if model_name == TEACHER_ROW:
        return teacher_spec(profile, task)
    net = scale_network_to_profile(model_name, profile)
    if model_name != PLUS:
        return task_distillation_spec(
            profile,
            task,
            net,
            pretrained_network_spec(profile, model_name, corpus_name),
            **training_changes,
        )
    # As in the authors' code: WNLI is not among the tasks trained together, and inherits
    # the head of QNLI.
    head = "QNLI" if task == "WNLI" else task
    classifier = head if head in together(profile) else None
    return task_distillation_spec(
        profile,
        task,
        net,
        stage_3_supernet_spec(profile),
        classifier,
        **training_changes,
    )


def make_subnetwork_options(profile: str) -> Shared:
    """Return which subnetworks of the supernet stage 3 trains: one in each step, of a
    size in the parameter window.

    Each layer draws (k, q) from all 16 pairs, and the pair that stage 2 found counts
    twice."""
    every = [(k, q) for k in STACKS for q in QS]
    layers = scale_network_to_profile("Search Stage 2", profile).layers
    return Shared(
        find_parameter_count_bounds(profile),
        tuple([*every, (l.stack, l.q)] for l in layers),
    )


def make_split_descriptor(
    profile: str, task: str, row_count: int | None, held_out_count: int
) -> DataDescriptor:
    """Return the descriptor of a task's training rows, and of held-out rows by which a
    search scores candidates.

    row_count: how many training rows; None means all that are not held out.
    held_out_count: how many rows no run trains on. At `paper` they are the last ones of
    the file, and elsewhere all rows come in a fixed random order."""
    return grids.make_training_data_descriptor(
        profile, task, row_count, held_out_count, False, in_order=profile == "paper"
    )


def stage_3_supernet_spec(profile: str) -> Spec:
    """Return the Spec of stage 3's supernet, with the formulas that the paper's stage 2
    found.

    It inherits weights from the pre-trained supernet. It is trained on text, then on
    several tasks, a random subnetwork in each step. At `paper` a tenth of each task's
    rows is left out, by which the search scores."""

    def describe_task_rows(task: str) -> DataDescriptor:
        if profile != "paper":
            return grids.make_profile_data_descriptor(profile, task)
        return make_split_descriptor(profile, task, None, TENTH.get(task, 0))

    largest, winner = (
        scale_network_to_profile("Supernet", profile),
        scale_network_to_profile("Search Stage 2", profile),
    )
    layers = zip(largest.layers, winner.layers, strict=True)
    net = replace(
        largest, layers=tuple(replace(l, formula=f.formula) for l, f in layers)
    )
    names, parts = together(profile), make_subnetwork_options(profile)
    inputs = {f"teacher:{task}": teacher_spec(profile, task) for task in names}
    inputs["start"] = pretraining_spec(
        profile, net, pretrained_supernet_spec(profile), subnetwork_options=parts
    )
    args = {
        "data": {task: describe_task_rows(task) for task in names},
        "train": TOGETHER[profile],
    }
    return _seed_independent_spec(
        "multitask", profile, net, inputs, warmup=TAUGHT[profile], shared=parts, **args
    )


@reuse_result
def candidate_spec(
    profile: str,
    net: Net,
    inherits_from_supernet: bool = True,
    train: Train | None = None,
    data_descriptor: DataDescriptor | None = None,
    **training_changes: Any,
) -> Spec:
    """Return the Spec of a network trained on the proxy task as search stages 1 and 2
    train a candidate.

    At `paper` it is first trained on some text, and uses a tenth of the task's rows.

    inherits_from_supernet: whether it starts from the supernet's weights, or random
    ones.
    train, data_descriptor: training settings, and a descriptor of the data, other than
    the profile's.
    training_changes: as in `student_spec`."""
    task, start = (
        find_proxy_task(profile),
        stages_1_and_2_supernet_spec(profile) if inherits_from_supernet else None,
    )
    if profile in BRIEF:
        start = pretraining_spec(
            profile, net, start, make_short_corpus_descriptor(profile), READ[profile]
        )
    if profile == "paper":
        data_descriptor = data_descriptor or make_split_descriptor(
            profile, task, *PART[profile]
        )
    train = train or CANDIDATE[profile]
    return task_distillation_spec(
        profile,
        task,
        net,
        start,
        train=train,
        data_descriptor=data_descriptor,
        **training_changes,
    )


CLAIMED = 128  # Batch size at which Table 2's claim on speed is checked.
TURNS = {
    "toy": {1: 20},
    "mini": {1: 100, CLAIMED: 50},
    "base": {1: 100, CLAIMED: 50},
    "paper": {1: 100, CLAIMED: 100},
}


# f(profile, chosen tasks) -> tasks of a table. Tables 2 and 5 pass by_profile=PAIRED.
tasks = partial(grids.select_tasks, by_profile=TASKS)
# f(profile, chosen seeds) -> seeds of a table. Tables 2 and 5 pass by_profile=HEADLINES.
seeds = partial(grids.select_seeds, by_profile=SEEDS)


def read_printed_table(table_name: str) -> ScoreTable:
    """Return a printed table as {row: {("published", column): value}}, with the
    citations removed from the rows' names.

    table_name: the name of its file, such as "table02"."""
    return published.make_printed_score_table(
        "efficientbert",
        table_name,
        "Model",
        rename_row=lambda name: re.sub(r" \([^)]*\d{4}\w?\)", "", name),
    )


def format_model_name(row_name: str, profile: str) -> str:
    """Return the name of a row for a page, where "BERT_BASE (Teacher)" becomes the name
    of the encoder that is the teacher at this profile."""
    return row_name.replace(TEACHER_ROW, f"{grids.get_encoder_name(profile)} (teacher)")


def rename_teacher_row(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose teacher's row says that its printed values are BERT-base's.
    Our values are of the teacher of the column's profile."""
    return table.rename(index={TEACHER_ROW: "teacher (printed: BERT_BASE)"})


def rename_models_in_estimates(estimates: EstimatesByRow) -> EstimatesByRow:
    """Return estimates {(source, row): Estimate} whose rows have `format_model_name`'s
    names for their teacher.

    A source, the heading of a set of runs, ends in ", <profile>"."""
    return {
        (source, format_model_name(row_name, source.rpartition(", ")[2])): e
        for (source, row_name), e in estimates.items()
    }


def make_table_of_scores(
    printed_rows: ScoreTable,
    runs: Any,
    further_networks: Iterable[str] = (),
    columns: Collection[Column] = COLUMNS,
) -> pd.DataFrame:
    """Return a table of the paper with our scores and parameters beside the printed
    ones.

    printed_rows: what `read_printed_table` returned.
    runs: a lib.report.tables.Runs.
    further_networks: rows that the printed table lacks.
    columns: the metrics of each task."""
    parts = [printed_rows, dict.fromkeys(further_networks, {})]
    for source, frame, profile in runs.source_frames:
        parts.append(
            compare.make_score_table_by_task(
                frame, grids.list_columns_by_task(profile, columns), source
            )
        )
        counts = (
            compare.select_rows_with_runs(frame)
            .set_index("model")
            .get("parameters", {})
        )
        parts.append(
            {m: {(source, "M parameters"): f"{n / 1e6:.2f}"} for m, n in counts.items()}
        )
    return rename_teacher_row(compare.join_tables_by_row(*parts))


def latency_spec(
    batch_size: int,
    timed_runs: int,
    network_names: Iterable[str] = TIMED[1:],
    token_count: int = 128,
) -> Spec:
    """Return the Spec of the timings of Figure 1, of networks at full size with random
    weights and of BERT-base.

    batch_size: sequences of a pass.
    timed_runs: number of timed passes.
    token_count: tokens of a sequence."""
    models = {"BERT_BASE": {"shape": "bert-base"}}
    models |= {name: {"net": find_network(name).to_json()} for name in network_names}
    args = {"models": models, "reference": "BERT_BASE"} | grids.make_latency_arguments(
        timed_runs, token_count, batch_size
    )
    return Spec("latency", args, seed=0)


def attention_maps_spec(
    profile: str, task: str, further_networks: Iterable[str] = ()
) -> Spec:
    """Return the Spec that saves attention maps and outputs of networks beside their
    teacher (Figures 7 and 8).

    Those of the first four development rows are saved. Similarity to the teacher is
    measured on more rows.

    further_networks: networks beside the printed three, by their names in the tables.
    """
    names = ("EfficientBERT", *OTHER_BASE, *further_networks)
    inputs = {f"model:{name}": student_spec(profile, task, name) for name in names}
    inputs["reference"] = teacher_spec(profile, task)
    args = {"rows": [0, 1, 2, 3], "examples": 64 if profile == "toy" else 200}
    args["max_length"] = FINETUNE[profile].max_length
    return Spec(
        "maps", grids.make_common_run_arguments(profile, task, **args), inputs, seed=0
    )
