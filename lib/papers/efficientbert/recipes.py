"""This module has EfficientBERT's networks, settings and tables, and the Specs,
descriptions of runs, that train the networks.

The paper is Dong et al., Findings of EMNLP 2021. The settings of profile `paper` are
the printed ones (section 4.3), and where the paper is silent those of the public code.
The small profiles `toy` and `mini` have their own, chosen once before the first
recorded run. Searches are in `searches.py`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from lib.core.memo import cache_results_while_enabled
from lib.core.names import check_known_name
from lib.core.options import Span, Train
from lib.core.spec import Spec
from lib.core.types import Json, ProfileDefault, ProfileName, TaskName
from lib.data import texts
from lib.papers import grids, published
from lib.papers.efficientbert.options import (
    AllRemainingRows,
    CorpusDescriptor,
    CorpusName,
    NetworkName,
    RandomWeights,
    SubnetworkOptions,
    Warmup,
)
from lib.papers.efficientbert.search.net import (
    BERT,
    QS,
    STACKS,
    EmbeddingSizes,
    Layer,
    LeastAndMostParameters,
    Net,
    count_net_parameters,
    make_plain_bert_net,
)
from lib.papers.efficientbert.search.space import IDS
from lib.papers.grids import (
    DataDescriptor,
    checkpoint_or_user_encoder_spec,
    find_encoder_shape,
    find_profile_settings,
    pretrained_encoder_spec,
)
from lib.stats import compare
from lib.stats.compare import MetricColumn, ScoreTable

if TYPE_CHECKING:
    import pandas as pd

    Runs = Any  # lib.report.tables.Runs.
    EstimatesByRow = dict[tuple[str, str], Any]  # {(source, row): Estimate}.

S = grids.read_settings("efficientbert")
# Settings from settings.toml in this folder, where comments describe them.
COLUMNS: tuple[MetricColumn, ...] = S.COLUMNS
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

# Rows of Table 2 that are trained by another recipe than its other rows: the teacher is
# only fine-tuned, PLUS inherits weights from a supernet that was trained on several
# tasks, and COLD starts from random weights.
TEACHER_ROW = "BERT_BASE (Teacher)"
PLUS = "EfficientBERT+"
COLD = "EfficientBERT w/o Warm-up KD"
# The public code trains "EfficientBERT++" with one full inner width D of the
# feed-forward networks, but counts its parameters with another. So there is a network
# for each of the two widths.
PLUS_PLUS = ("EfficientBERT++ (D = 360)", "EfficientBERT++ (D = 540)")
# Replacement for the baseline MobileBERT_TINY, whose bottlenecks a Net cannot describe.
# It has as many parameters: 24 thin layers of two feed-forward networks each, without
# bottlenecks, and with the teacher's number of heads.
THIN = "MobileBERT_TINY shape"


def _read_networks() -> dict[NetworkName, Net]:
    """Read the networks of EfficientBERT's tables and the supernet, as {name: Net}.

    Left out are models that a Net cannot describe, such as AdaBERT; "MobileBERT_TINY
    shape" replaces one of them. EfficientBERT++ is there with two widths. A Net
    describes a small BERT whose feed-forward networks have searched formulas, such as
    "W2 gelu(W1 x)", and sizes. The files are architectures.csv and
    parameter_counts.csv; the latter has plain BERTs. The paper prints the formulas only
    as a picture, so they are those of the public code."""
    nets = {}
    searched = published.read_printed_rows("efficientbert", "architectures")
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
    for row in published.read_printed_rows("efficientbert", "parameter_counts"):
        sizes = ("layers", "hidden size d", "reference FFN width D", "heads")
        nets.setdefault(
            row["row"], make_plain_bert_net(*(int(row[name]) for name in sizes))
        )
    return nets


NETS = _read_networks()
HEADS = 12
# Columns of Table 3: metrics on the usual development set of a task. Table 3 lacks
# MNLI's second development set, MNLI-mm, which has the split "dev_mm".
DEV_COLUMNS = tuple(column for column in COLUMNS if column.split == "dev")
DEVIATIONS = published.read_deviation_sentences_by_profile("efficientbert")


def find_search_task(profile: ProfileName) -> TaskName:
    """Return the task on which an architecture search trains and scores its candidates.

    It is one task in place of all tasks, such as "SST-2" at mini, or that of a user's
    own data.

    profile: size of the experiment, "toy", "mini" or "paper"."""
    title = grids.get_user_data_attribute(profile, "task_title")
    return title or PROXY[profile]


together = partial(grids.select_tasks, tasks_by_profile=MULTITASK)


def find_network(network_name_or_formula: str) -> Net:
    """Return the Net of a published network, or a Net with a given formula of its FFNs.

    A Net describes a small BERT whose feed-forward networks (FFNs) have searched
    formulas and sizes. A name with "W2" in it is taken as a formula, such as "W2
    gelu(W1 x)". So a reader can try a formula. For a formula the result is the base
    network, which has 6 layers, with this formula in each layer. Raises Refused for an
    unknown name, and FormulaError for a formula that is not allowed.

    network_name_or_formula: a name in EfficientBERT's tables, or a formula."""
    if "W2" in network_name_or_formula:
        base = NETS["Base Model"]
        return replace(
            base,
            layers=tuple(
                replace(l, formula=network_name_or_formula) for l in base.layers
            ),
        )
    check_known_name("published network", network_name_or_formula, NETS)
    return NETS[network_name_or_formula]


def scale_network_to_profile(network_name_or_formula: str, profile: ProfileName) -> Net:
    """Return a published network as a Net, made smaller for a small experiment.

    A Net describes a small BERT whose feed-forward networks have searched formulas and
    sizes. Hidden size and inner width shrink, and the formulas stay. A network of 12
    heads gets the number of heads of the profile's encoder, others as many in
    proportion. Layers may be left out: the new depth divides the teacher's or is a
    multiple of it, so that layers of the two can be paired. At "paper" the network
    stays as it is. Raises Refused for an unknown network.

    network_name_or_formula: a name in EfficientBERT's tables, or one formula for all
    layers, such as "W2 gelu(W1 x)".
    profile: size of the experiment, "toy", "mini" or "paper"."""
    net = find_network(network_name_or_formula)
    sizes = SIZES.get(profile)
    if sizes is None:
        return net
    encoder = find_encoder_shape(profile)
    teacher = encoder.layers
    most = max(1, LAYERS[profile] * len(net.layers) // 6)
    depth = next(n for n in range(most, 0, -1) if not (n % teacher and teacher % n))
    heads = net.heads * encoder.heads // HEADS
    hidden = sizes.get(str(net.hidden)) or net.hidden * sizes["540"] / 540
    hidden = heads * round(hidden / heads)
    width = hidden * net.width // net.hidden
    # EfficientBERT++ has each layer of EfficientBERT twice, at any depth.
    repeats = max(1, len(net.layers) // 6)
    if depth % repeats:
        repeats = 1
    pattern, count = net.layers[::repeats], depth // repeats
    layers = tuple(pattern[i // repeats * len(pattern) // count] for i in range(depth))
    return replace(net, heads=heads, hidden=hidden, width=width, layers=layers)


def list_embedding_sizes(profile: ProfileName) -> EmbeddingSizes:
    """Return the sizes outside the layers that a count of parameters needs.

    They are {"vocab", "positions", "types": rows of the three embedding tables,
    "teacher": hidden size of the teacher}. `count_net_parameters` takes them as
    arguments.

    profile: size of the experiment, "toy", "mini" or "paper"."""
    encoder = find_encoder_shape(profile)
    return dict(
        teacher=encoder.hidden,
        vocab=encoder.vocab,
        positions=encoder.positions,
        types=max(1, encoder.types),
    )


def find_parameter_count_bounds(profile: ProfileName) -> LeastAndMostParameters:
    """Return (least, most) parameters that a network of the search may have.

    The numbers include the linear map from the network's hidden size to the teacher's.
    At "paper" they are 15 and 16 million. At "toy" and "mini" they lie at fixed shares
    of the range from the smallest network to the largest one.

    profile: size of the experiment, "toy", "mini" or "paper"."""
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


TEXT = "wikipedia+books"
ENCYCLOPEDIA = "wikipedia"
# Suffix of the networks in Table 5 that were pre-trained on Wikipedia alone.
WIKI = ", Wiki"


def make_corpus_descriptor(
    profile: ProfileName,
    corpus_name: CorpusName = TEXT,
    document_count: int | ProfileDefault = None,
) -> CorpusDescriptor:
    """Return the dict that says which text a pre-training reads.

    For text in files it is {"text": name, "digest": ..., "documents": count}, without
    "documents" if all are read. The digest, a hash of the text, makes sure that each
    machine reads the same text. For the profile "toy", whose sentences are generated,
    it is {"sentences": count, "seed": 1}.

    profile: size of the experiment, "toy", "mini" or "paper".
    corpus_name: "wikipedia+books" or "wikipedia".
    document_count: number of documents; None takes the profile's."""
    document_count = document_count or DOCUMENTS.get(profile)
    return (
        {"sentences": document_count, "seed": 1}
        if profile == "toy"
        else texts.make_corpus_data_descriptor(corpus_name, document_count)
    )


def make_candidate_corpus_descriptor(profile: ProfileName) -> CorpusDescriptor:
    """Return the dict that says which short text a candidate of the search reads.

    A candidate is trained briefly on it before it is trained on its task. The dict is
    {"text": "wikipedia", "digest", "documents": count}. Raises Refused for the
    profiles below "paper", whose candidates read no text.

    profile: size of the experiment, "toy", "mini" or "paper"."""
    return make_corpus_descriptor(profile, ENCYCLOPEDIA, BRIEF[profile])


@cache_results_while_enabled
def pretraining_spec(
    profile: ProfileName,
    net: Net,
    initial_model: Spec | RandomWeights = None,
    corpus: CorpusDescriptor | ProfileDefault = None,
    train: Train | ProfileDefault = None,
    subnetwork_options: SubnetworkOptions | None = None,
) -> Spec:
    """Describe the run that distils a network on plain text, before it learns a task.

    The teacher is the pre-trained encoder of the profile. The Spec is the frozen
    description of this run. Its seed is 0, so runs of all seeds share the result.

    profile: size of the experiment, "toy", "mini" or "paper".
    net: description of the network.
    initial_model: Spec of a run whose model gives the first weights; None draws them at
    random.
    corpus: dict of the text, as `make_corpus_descriptor` returns it; None takes the
    profile's.
    train: training settings; None takes the profile's.
    subnetwork_options: which subnetworks of `net` are trained, one in each step; None
    trains the whole network."""
    inputs = {"teacher": pretrained_encoder_spec(profile), "start": initial_model}
    args = {
        "corpus": corpus or make_corpus_descriptor(profile),
        "train": train or PRETRAIN[profile],
        "warmup": WARM[profile],
        "shared": subnetwork_options,
        "net": net.to_json(),
        "numerics": find_profile_settings(profile).numerics,
    }
    return Spec("predistil", args, inputs, seed=0)


def pretrained_supernet_spec(
    profile: ProfileName, corpus_name: CorpusName = TEXT
) -> Spec:
    """Describe the run that pre-trains the supernet, as a whole, on a text.

    The supernet is the largest network of the search space. Smaller networks inherit
    the leading parts of its weights, which saves training. The Spec is the frozen
    description of this run. Its seed is 0, so runs of all seeds share the result.

    profile: size of the experiment, "toy", "mini" or "paper".
    corpus_name: "wikipedia+books" or "wikipedia"."""
    read = make_corpus_descriptor(profile, corpus_name)
    return pretraining_spec(
        profile, scale_network_to_profile("Supernet", profile), corpus=read
    )


def search_stages_1_and_2_supernet_training_spec(profile: ProfileName) -> Spec:
    """Describe the run that pre-trains the supernet for search stages 1 and 2.

    The supernet is the largest network of the search space, from which the candidates
    of these stages inherit their first weights. The text is Wikipedia alone at "paper",
    and the profile's default text at "toy" and "mini". The Spec is the frozen
    description of this run. Its seed is 0, so runs of all seeds share the result.

    profile: size of the experiment, "toy", "mini" or "paper"."""
    return pretrained_supernet_spec(profile, TEXTS[profile][-1])


@cache_results_while_enabled
def pretrained_network_spec(
    profile: ProfileName, network_name: NetworkName, corpus_name: CorpusName = TEXT
) -> Spec:
    """Describe the run that pre-trains a published network on text.

    Trainings on tasks start from the model of this run. Most networks inherit their
    first weights from the supernet, the largest network of the search space. The
    networks "MobileBERT_TINY shape" and "EfficientBERT w/o Warm-up KD" start from
    random weights. So do all networks whose embedding is BERT's, a plain table as wide
    as the hidden states. At "paper" the baseline TinyBERT_4 is not trained: its run
    takes a published checkpoint. The Spec is the frozen description of
    this run. Its seed is 0, so runs of all seeds share the result.

    profile: size of the experiment, "toy", "mini" or "paper".
    network_name: the network's name in EfficientBERT's tables.
    corpus_name: the text, "wikipedia+books" or "wikipedia". It has no effect at "toy",
    whose sentences are generated, nor on networks with BERT's embedding: these read
    "wikipedia" at "paper", and the default text at "mini"."""
    net = scale_network_to_profile(network_name, profile)
    paper = profile == "paper"
    if paper and network_name in GENERAL:
        return checkpoint_or_user_encoder_spec(profile, GENERAL[network_name])
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
            make_corpus_descriptor(profile, corpus_name),
        )
    if not paper:
        return pretraining_spec(profile, net)
    train = replace(PRETRAIN["paper"], epochs=FROM_SCRATCH)
    return pretraining_spec(
        "paper",
        net,
        corpus=make_corpus_descriptor("paper", ENCYCLOPEDIA),
        train=train,
    )


@cache_results_while_enabled
def teacher_spec(profile: ProfileName, task: TaskName) -> Spec:
    """Describe the run that fine-tunes a task's teacher, from which all students learn.

    The teacher is the pre-trained encoder of the profile, BERT-base at "paper". The
    Spec is the frozen description of this run, still without a seed.

    profile: size of the experiment, "toy", "mini" or "paper"."""
    train = make_finetuning_settings(TEACHER, profile, task)
    return grids.teacher_spec(
        profile, task, train=train, passage_window_settings_by_profile=SPAN
    )


def make_finetuning_settings(
    settings_by_profile: Mapping[ProfileName, Train],
    profile: ProfileName,
    task: TaskName,
) -> Train:
    """Return the training settings of a task, such as epochs and learning rate.

    They are the profile's, except that some tasks have other epochs, lengths, learning
    rates or steps between evaluations, or select the best model by the mean of two
    metrics. At "paper" the training of teachers differs by task only in how the best
    model is selected.

    settings_by_profile: {profile: settings}; those of teachers are the dict TEACHER.
    profile: size of the experiment, "toy", "mini" or "paper"."""
    train = settings_by_profile[profile]
    if train.select == "best":
        train = replace(train, select_by=SELECT_BY.get(task, ()))
    if profile == "paper" and settings_by_profile is TEACHER:
        return train
    return replace(train, **OF_TASK[profile].get(task, {}))


@cache_results_while_enabled
def task_distillation_spec(
    profile: ProfileName,
    task: TaskName,
    net: Net,
    initial_model: Spec | RandomWeights,
    inherited_head_task: str | None = None,
    train: Train | ProfileDefault = None,
    data_descriptor: DataDescriptor | ProfileDefault = None,
    prediction_loss_weight: float = 1.0,
    **training_changes: Any,
) -> Spec:
    """Describe the run that distils a network on a task from the task's teacher.

    The Spec is the frozen description of this run, still without a seed.

    profile: size of the experiment, "toy", "mini" or "paper".
    net: description of the network.
    initial_model: Spec of a run whose model gives the first weights; None draws them at
    random.
    inherited_head_task: the task whose classification head is inherited too, where
    `initial_model` was trained on several tasks; None draws a new head.
    train: training settings; None takes the usual ones of profile and task.
    data_descriptor: the dict that says which rows are used; None takes the profile's.
    prediction_loss_weight: weight of the loss on logits (equation 4).
    training_changes: fields of `train` with other values, such as epochs=3; 0 changes
    nothing."""
    training_changes = {
        name: value for name, value in training_changes.items() if value
    }
    train = replace(
        train or make_finetuning_settings(FINETUNE, profile, task), **training_changes
    )
    args = grids.make_run_arguments_of_task(
        profile,
        task,
        data_descriptor,
        passage_window_settings_by_profile=SPAN,
        net=net.to_json(),
        classifier=inherited_head_task,
        train=train,
        warmup=replace(TAUGHT[profile], prediction=prediction_loss_weight),
    )
    inputs = {"teacher": teacher_spec(profile, task), "start": initial_model}
    return Spec("warmup", args, inputs)


@cache_results_while_enabled
def student_spec(
    profile: ProfileName,
    task: TaskName,
    model_name: NetworkName,
    corpus_name: CorpusName = TEXT,
    **training_changes: Any,
) -> Spec:
    """Describe the run that makes a model of EfficientBERT's tables, for a task.

    A published network is pre-trained on text, then distilled on the task. "BERT_BASE
    (Teacher)" is only fine-tuned, always by the usual settings. "EfficientBERT+" alone
    inherits encoder and head from a supernet (a larger network that contains it), which
    was trained on several tasks; for a task beside these the head is new. The Spec is
    the frozen description of this run, still without a seed. Raises Refused for an
    unknown name.

    profile: size of the experiment, "toy", "mini" or "paper".
    model_name: name of a row: "BERT_BASE (Teacher)" or a network, such as
    "EfficientBERT_TINY".
    corpus_name: text of the pre-training, "wikipedia+books" or "wikipedia".
    training_changes: training settings with other values, such as epochs=3, and
    `prediction_loss_weight`, the weight of the loss on logits."""
    if model_name == TEACHER_ROW:
        return teacher_spec(profile, task)
    net = scale_network_to_profile(model_name, profile)
    if model_name != PLUS:
        start = pretrained_network_spec(profile, model_name, corpus_name)
        return task_distillation_spec(profile, task, net, start, **training_changes)
    # EfficientBERT+ inherits its weights and its classification head from the supernet,
    # which was trained on several tasks, but not on WNLI. So on WNLI it inherits the
    # head of QNLI, as in the authors' code.
    head = "QNLI" if task == "WNLI" else task
    start = search_stage_3_supernet_training_spec(profile)
    classifier = head if head in together(profile) else None
    return task_distillation_spec(
        profile, task, net, start, classifier, **training_changes
    )


def make_training_and_held_out_rows_descriptor(
    profile: ProfileName,
    task: TaskName,
    training_row_count: int | AllRemainingRows,
    held_out_row_count: int,
) -> DataDescriptor:
    """Return the dict that says which rows of a task are trained on and held out.

    It has "source", "task" and "digest" of the data, and the counts "rows" (to train
    on) and "held_out" where they are set. A search scores its candidates on the
    held-out rows. At "paper", marked by "in_order": True, the training rows are the
    first of the file and the held-out rows the last. At "toy" and "mini" both are
    random rows, the same in each run.

    profile: size of the experiment, "toy", "mini" or "paper".
    training_row_count: number of training rows; None takes all that are not held out.
    held_out_row_count: number of held-out rows."""
    return grids.make_training_data_descriptor(
        profile,
        task,
        training_row_count,
        held_out_row_count,
        False,
        in_file_order=profile == "paper",
    )


def search_stage_3_supernet_training_spec(profile: ProfileName) -> Spec:
    """Describe the run that trains the supernet of search stage 3 on several tasks.

    The supernet is the largest network, and its leading parts are smaller networks with
    shared weights. Each step trains a random one of them, so that stage 3 can score
    them without training. The formulas of its feed-forward networks are those that
    EfficientBERT's stage 2 found. A random network has a number of parameters within
    the bounds for candidates. Each of its layers draws a pair (k, q), k stacked
    feed-forward networks with 1/q of the full inner width, with k and q from 1 to 4.
    The pair that stage 2 found is twice as likely as another. The supernet starts from
    weights that were trained on text. At "paper" a tenth of each task's rows is held
    out; the search scores on the held-out rows of its one task. The Spec is the frozen
    description of this run. Its seed is 0, so runs of all seeds share the result.

    profile: size of the experiment, "toy", "mini" or "paper"."""
    largest = scale_network_to_profile("Supernet", profile)
    winner = scale_network_to_profile("Search Stage 2", profile)
    layers = zip(largest.layers, winner.layers, strict=True)
    net = replace(
        largest, layers=tuple(replace(l, formula=f.formula) for l, f in layers)
    )
    names = together(profile)
    parts = SubnetworkOptions(
        find_parameter_count_bounds(profile),
        tuple([*IDS, (l.stack, l.q)] for l in winner.layers),
    )
    inputs = {f"teacher:{task}": teacher_spec(profile, task) for task in names}
    inputs["start"] = pretraining_spec(
        profile, net, pretrained_supernet_spec(profile), subnetwork_options=parts
    )
    data = {
        task: make_training_and_held_out_rows_descriptor(
            profile, task, None, TENTH.get(task, 0)
        )
        if profile == "paper"
        else grids.make_profile_data_descriptor(profile, task)
        for task in names
    }
    args = {
        "data": data,
        "train": TOGETHER[profile],
        "warmup": TAUGHT[profile],
        "shared": parts,
        "net": net.to_json(),
        "numerics": find_profile_settings(profile).numerics,
    }
    return Spec("multitask", args, inputs, seed=0)


@cache_results_while_enabled
def brief_training_spec(
    profile: ProfileName,
    net: Net,
    inherits_from_supernet: bool = True,
    train: Train | ProfileDefault = None,
    data_descriptor: DataDescriptor | ProfileDefault = None,
    **training_changes: Any,
) -> Spec:
    """Describe the run that trains a network briefly, as candidates of a search are.

    Stages 1 and 2 of EfficientBERT's search score a network after such a training. It
    is distilled for a few epochs on the one task of the search. At "paper" it is first
    trained on a short text, and sees a tenth of the task's rows. The Spec is the frozen
    description of this run, still without a seed.

    profile: size of the experiment, "toy", "mini" or "paper".
    net: description of the network.
    inherits_from_supernet: whether it inherits weights from the supernet, the largest
    network; False starts from random weights.
    train: training settings; None takes the profile's.
    data_descriptor: the dict that says which rows are used; None takes the profile's.
    training_changes: fields of `train` with other values, such as epochs=3, and
    `prediction_loss_weight`, the weight of the loss on logits."""
    task = find_search_task(profile)
    start = (
        search_stages_1_and_2_supernet_training_spec(profile)
        if inherits_from_supernet
        else None
    )
    if profile in BRIEF:
        start = pretraining_spec(
            profile,
            net,
            start,
            make_candidate_corpus_descriptor(profile),
            READ[profile],
        )
    if profile == "paper":
        data_descriptor = data_descriptor or make_training_and_held_out_rows_descriptor(
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
# {profile: {batch size: number of timed forward passes}}.
TURNS = {
    "toy": {1: 20},
    "mini": {1: 100, CLAIMED: 50},
    "base": {1: 100, CLAIMED: 50},
    "paper": {1: 100, CLAIMED: 100},
}


# f(profile, tasks that a user chose or None) -> tasks of a table. None stands for TASKS;
# Tables 2 and 5, whose models are compared in pairs, pass `tasks_by_profile=PAIRED`.
tasks = partial(grids.select_tasks, tasks_by_profile=TASKS)
# f(profile, seeds that a user chose or None) -> seeds of a table. None stands for SEEDS;
# Tables 2 and 5 and Figure 4, the paper's main results, pass
# `seeds_by_profile=HEADLINES`, which are more of them.
seeds = partial(grids.select_seeds, seeds_by_profile=SEEDS)


def read_printed_table(table_name: str) -> ScoreTable:
    """Return the printed scores of an EfficientBERT table, to be shown beside ours.

    They are {row: {("published", column): printed value}}. A column is the heading in
    the table's file, such as "MNLI-m", but "average" for "Avg". A row is the model's
    name without its citation, such as "AdaBERT".

    table_name: the name of the table's file, such as "table03_nas_dev"."""
    return published.make_printed_score_table(
        "efficientbert",
        table_name,
        "Model",
        rename_row=lambda name: re.sub(r" \([^)]*\d{4}\w?\)", "", name),
    )


def replace_teacher_name_by_encoder_name(row_name: str, profile: ProfileName) -> str:
    """Return the name by which a model is shown on pages of our results.

    It is the name in EfficientBERT's tables, except that "BERT_BASE (Teacher)" becomes
    the name of the encoder that is the teacher in our experiment, such as "MiniLM
    (teacher)".

    row_name: the name in EfficientBERT's tables.
    profile: size of the experiment, "toy", "mini" or "paper"."""
    return row_name.replace(
        TEACHER_ROW, f"{grids.get_encoder_display_name(profile)} (teacher)"
    )


def rename_teacher_row(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of scores with a new name for the row of the teacher.

    The printed scores of this row are BERT-base's, and ours may be those of a smaller
    encoder. So the row is called "teacher (printed: BERT_BASE)".

    table: a DataFrame with the names of models as index."""
    return table.rename(index={TEACHER_ROW: "teacher (printed: BERT_BASE)"})


def rename_teacher_in_estimates(estimates: EstimatesByRow) -> EstimatesByRow:
    """Return the same estimates, with the actual name of the teacher in their keys.

    The estimates are {(source, model): Estimate}, an Estimate being a number with its
    interval. A source is the heading of a set of runs, such as "recorded, mini":
    results kept in git, at the profile (size of the experiment) mini. The model
    "BERT_BASE (Teacher)" gets the name of the encoder that is the teacher there
    (`replace_teacher_name_by_encoder_name`)."""
    return {
        (
            source,
            replace_teacher_name_by_encoder_name(row_name, source.rpartition(", ")[2]),
        ): e
        for (source, row_name), e in estimates.items()
    }


def make_table_of_printed_and_our_scores(
    printed_table: ScoreTable,
    runs: Runs,
    further_network_names: Iterable[NetworkName] = (),
    columns: Collection[MetricColumn] = COLUMNS,
) -> pd.DataFrame:
    """Return a table of EfficientBERT with our scores beside the printed ones.

    It has a row for each model, and the columns (source, metric): first "published",
    then each set of our runs, such as "recorded, mini" (results kept in git, at the
    experiment size mini). A further column of each set has the parameters in millions.
    Our scores are means over seeds with their spread, in points, as text.

    printed_table: {row: {("published", column): value}}, as `read_printed_table`
    returns it.
    runs: our results; its `result_frames_with_source` has for each set of runs (source,
    DataFrame with a row for each run, profile, which is the size of the experiment).
    further_network_names: rows that the printed table lacks.
    columns: the metrics that are shown, each with its task."""
    parts = [printed_table, dict.fromkeys(further_network_names, {})]
    for source, frame, profile in runs.result_frames_with_source:
        parts.append(
            compare.make_score_table_by_task(
                frame, grids.select_metrics_by_task(profile, columns), source
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
    timed_pass_count: int,
    network_names: Iterable[str] = TIMED[1:],
    token_count: int = 128,
) -> Spec:
    """Describe the run that times forward passes of networks and of BERT-base.

    It is for EfficientBERT's Figure 1. The networks have full size and random weights,
    on which the time does not depend. They are timed on one CPU thread, or on a GPU
    where `grids.DEVICE` is "cuda". The Spec is the frozen description of this run, at
    seed 0. Raises Refused for an unknown network.

    batch_size: sequences of a pass.
    timed_pass_count: number of timed passes of each network.
    network_names: names in EfficientBERT's tables, or formulas of a feed-forward
    network (FFN), such as "W2 gelu(W1 x)".
    token_count: tokens of a sequence."""
    models = {"BERT_BASE": {"shape": "bert-base"}}
    models |= {name: {"net": find_network(name).to_json()} for name in network_names}
    args = {"models": models, "reference": "BERT_BASE"} | grids.make_latency_arguments(
        timed_pass_count, token_count, batch_size
    )
    return Spec("latency", args, seed=0)


def attention_maps_spec(
    profile: ProfileName,
    task: TaskName,
    further_network_names: Iterable[NetworkName] = (),
) -> Spec:
    """Describe the run that compares students' last layers with the teacher's.

    It is for EfficientBERT's Figures 7 and 8. The last layer's attention maps and
    outputs on the first four development rows are saved, to be drawn. Their similarity
    to the teacher's is measured on 200 rows, at "toy" on 64. The Spec is the frozen
    description of this run, at seed 0, which the caller may change.

    profile: size of the experiment, "toy", "mini" or "paper".
    further_network_names: names of networks in EfficientBERT's tables, in addition to
    the three that the paper draws."""
    names = ("EfficientBERT", *OTHER_BASE, *further_network_names)
    inputs = {f"model:{name}": student_spec(profile, task, name) for name in names}
    inputs["reference"] = teacher_spec(profile, task)
    args = grids.make_run_arguments_of_task(
        profile,
        task,
        rows=[0, 1, 2, 3],
        examples=64 if profile == "toy" else 200,
        max_length=FINETUNE[profile].max_length,
    )
    return Spec("maps", args, inputs, seed=0)
