"""This module has EfficientBERT's networks, settings, Specs and tables.

The paper is Dong et al., Findings of EMNLP 2021. The settings of `paper` are the
printed ones (section 4.3). Where the paper is silent they are those of the public code.
`toy` and `mini` have values of their own; each was chosen once, before the first
recorded run. Searches and claims have modules of their own. The module is free of
torch."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from lib.core.names import check_name
from lib.core.options import Span, Train
from lib.core.spec import Spec
from lib.core.types import Json
from lib.data import texts
from lib.papers import grids, published
from lib.papers.efficientbert.options import Shared, Warmup
from lib.papers.efficientbert.search.net import (
    BERT,
    QS,
    STACKS,
    Layer,
    Net,
    count_net_parameters,
    make_bert,
)
from lib.papers.grids import (
    backbone_spec,
    find_encoder_shape,
    find_profile,
    start_checkpoint_spec,
)
from lib.stats import compare
from lib.stats.compare import Column

if TYPE_CHECKING:
    import pandas as pd

S = grids.read_settings("efficientbert")
# Tables of settings.toml, which describes each.
COLUMNS: tuple[Column, ...] = S.COLUMNS
CLAIM_COLUMNS = COLUMNS  # Metrics by which claims are judged.
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

# Names of rows of Table 2.
TEACHER_ROW, PLUS = (
    "BERT_BASE (Teacher)",
    "EfficientBERT+",
)
COLD = "EfficientBERT w/o Warm-up KD"
# The public code configures "EfficientBERT++" in one way and counts it in another.
PLUS_PLUS = ("EfficientBERT++ (D = 360)", "EfficientBERT++ (D = 540)")
# Stand-in for MobileBERT_TINY: 24 thin layers of two networks each, as many parameters,
# no bottlenecks, and the teacher's number of heads.
THIN = "MobileBERT_TINY shape"


def _read_networks() -> dict[str, Net]:
    """Return {name: Net} of architectures.csv and parameter_counts.csv.

    Formulas are those of the public code, since the paper prints them only as a
    picture. The second file has plain BERTs."""
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
# Columns of Table 3.
DEV_COLUMNS = tuple(column for column in COLUMNS if column.split == "dev")
DEVIATIONS = published.read_deviations("efficientbert")


def find_proxy_task(profile: str) -> str:
    """Return the task on which a search scores candidates."""
    return grids.select_tasks(profile, by_profile={profile: (PROXY[profile],)})[0]


together = partial(grids.select_tasks, by_profile=MULTITASK)


def find_network(network_name: str) -> Net:
    """Return the published network of a table's row, or the base network with a
    formula.

    So a formula that a reader writes can take the place of a row. Raises Refused with
    the nearest row, and FormulaError that names the fault."""
    if "W2" in network_name:
        base = NETS["Base Model"]
        return replace(
            base, layers=tuple(replace(l, formula=network_name) for l in base.layers)
        )
    check_name("published network", network_name, NETS)
    return NETS[network_name]


def scale_network_to_profile(network_name: str, profile: str) -> Net:
    """Return a published network at the widths and depth of a profile.

    At `paper` it is the network itself. Elsewhere its depth is the largest one, up to
    the scaled depth, whose layers can be paired with those of the teacher."""
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


def list_embedding_sizes(profile: str) -> dict[str, int]:
    """Return the sizes of a profile's embedding tables, and the teacher's width.

    They are arguments of `search.net.parameters`."""
    encoder = find_encoder_shape(profile)
    return dict(
        teacher=encoder.hidden,
        vocab=encoder.vocab,
        positions=encoder.positions,
        types=max(1, encoder.types),
    )


def find_parameter_window(profile: str) -> tuple[int, ...]:
    """Return the least and most parameters of a candidate, counted with the
    projection."""
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
WIKI = ", Wiki"  # Suffix of networks in Table 5 that have read ENCYCLOPEDIA alone.


def describe_corpus(
    profile: str, document_count: int | None = None, corpus_name: str = TEXT
) -> Json:
    """Return the descriptor of the text for pre-training.

    document_count: the number of documents, by default the profile's.
    """
    document_count = document_count or DOCUMENTS.get(profile)
    return (
        {"sentences": document_count, "seed": 1}
        if profile == "toy"
        else texts.describe_corpus(corpus_name, document_count)
    )


def describe_brief_text(profile: str) -> Json:
    """Return the descriptor of the text that a candidate reads before its task.

    Only the profiles in BRIEF have one.
    """
    return describe_corpus(profile, BRIEF[profile], ENCYCLOPEDIA)


def _seedless_spec(
    step: str, profile: str, net: Net, inputs: Mapping[str, Spec | None], **args: Any
) -> Spec:
    """Return the Spec of a step that trains a network once for all seeds."""
    args = args | {"net": net.to_json(), "numerics": find_profile(profile).numerics}
    return Spec(step, args, inputs, seed=0)


def pretraining_spec(
    profile: str,
    net: Net,
    initial_model: Spec | None = None,
    text_descriptor: Json | None = None,
    train: Train | None = None,
    supernet_sharing: Shared | None = None,
) -> Spec:
    """Return the Spec of a network that is distilled on text from the whole backbone.

    initial_model: the run that it inherits weights from. supernet_sharing: how a
    supernet is trained, one part in each step. text_descriptor, train: text and
    settings other than the profile's."""
    inputs = {"teacher": backbone_spec(profile), "start": initial_model}
    args = {
        "corpus": text_descriptor or describe_corpus(profile),
        "train": train or PRETRAIN[profile],
    }
    return _seedless_spec(
        "predistil",
        profile,
        net,
        inputs,
        warmup=WARM[profile],
        shared=supernet_sharing,
        **args,
    )


def pretrained_supernet_spec(profile: str, corpus_name: str = TEXT) -> Spec:
    """Return the Spec of the largest network, pre-trained whole: all others inherit
    from it."""
    read = describe_corpus(profile, corpus_name=corpus_name)
    return pretraining_spec(
        profile, scale_network_to_profile("Supernet", profile), text_descriptor=read
    )


def supernet_spec(profile: str) -> Spec:
    """Return the Spec of the supernet that candidates of stages 1 and 2 inherit
    from."""
    return pretrained_supernet_spec(profile, TEXTS[profile][-1])


def preparation_spec(profile: str, network_name: str, corpus_name: str = TEXT) -> Spec:
    """Return the Spec of a published network, pre-trained and ready to be trained on a
    task.

    It inherits from the supernet of its text. It begins from scratch if its row says
    so, or if it has the embedding of TinyBERT_6 (at `paper` with three epochs of
    Wikipedia). At `paper` a baseline of GENERAL is a published checkpoint."""
    net, paper = scale_network_to_profile(network_name, profile), profile == "paper"
    if paper and network_name in GENERAL:
        return start_checkpoint_spec(profile, GENERAL[network_name])
    if net.embedding != "plain":
        start = (
            None
            if network_name in (COLD, THIN)
            else pretrained_supernet_spec(profile, corpus_name)
        )
        return pretraining_spec(
            profile, net, start, describe_corpus(profile, corpus_name=corpus_name)
        )
    if not paper:
        return pretraining_spec(profile, net)
    train = replace(PRETRAIN["paper"], epochs=FROM_SCRATCH)
    return pretraining_spec(
        "paper",
        net,
        text_descriptor=describe_corpus("paper", corpus_name=ENCYCLOPEDIA),
        train=train,
    )


def teacher_spec(profile: str, task: str) -> Spec:
    """Return the Spec of the fine-tuned backbone that teaches a task."""
    train = make_finetuning_settings(TEACHER, profile, task)
    return grids.teacher_spec(profile, task, train=train, spans_by_profile=SPAN)


def make_finetuning_settings(
    settings: Mapping[str, Train], profile: str, task: str
) -> Train:
    """Return the Train of a task, out of {profile: Train}.

    Some tasks choose the best model by two metrics, and some have other settings; at
    `paper` their teachers have not."""
    train = settings[profile]
    if train.select == "best":
        train = replace(train, select_by=SELECT_BY.get(task, ()))
    if profile == "paper" and settings is TEACHER:
        return train
    return replace(train, **OF_TASK[profile].get(task, {}))


def task_distillation_spec(
    profile: str,
    task: str,
    net: Net,
    initial_model: Spec | None,
    classifier: str | None = None,
    train: Train | None = None,
    rows: Json | None = None,
    gamma: float = 1.0,
    **changes: Any,
) -> Spec:
    """Return the Spec of a network that is distilled on a task from its fine-tuned
    teacher.

    initial_model: the run that it inherits weights from, or None. classifier: the task
    whose head a `initial_model` of several tasks hands on. train, rows: settings and
    data other than those of the tables. gamma: weight of the prediction loss (equation
    4). changes: fields of `train` with other values; 0 changes nothing."""
    changes = {name: value for name, value in changes.items() if value}
    train = replace(
        train or make_finetuning_settings(FINETUNE, profile, task), **changes
    )
    args: Json = {"net": net.to_json(), "classifier": classifier, "train": train}
    args["warmup"] = replace(TAUGHT[profile], prediction=gamma)
    inputs = {"teacher": teacher_spec(profile, task), "start": initial_model}
    return Spec(
        "warmup",
        grids.make_common_arguments(profile, task, rows, spans_by_profile=SPAN, **args),
        inputs,
    )


def student_spec(
    profile: str,
    task: str,
    model: str,
    corpus_name: str = TEXT,
    **training_changes: Any,
) -> Spec:
    """Return the Spec of a row of the paper's tables on a task.

    The row is the teacher, or a published network that has read a text. "+" takes
    encoder, pooler and classifier from the supernet of several tasks, and is fine-tuned
    at once. The others are pre-trained first. training_changes: gamma and changes as in
    `task_distillation_spec`.
    """
    if model == TEACHER_ROW:
        return teacher_spec(profile, task)
    net = scale_network_to_profile(model, profile)
    if model != PLUS:
        return task_distillation_spec(
            profile,
            task,
            net,
            preparation_spec(profile, model, corpus_name),
            **training_changes,
        )
    # As coded, WNLI is not among the shared tasks, and takes the head of QNLI.
    head = "QNLI" if task == "WNLI" else task
    classifier = head if head in together(profile) else None
    return task_distillation_spec(
        profile,
        task,
        net,
        shared_supernet_spec(profile),
        classifier,
        **training_changes,
    )


def make_sharing_settings(profile: str) -> Shared:
    """Return how stage 3 trains its supernet: in each step one part, of a size in the
    window.

    Each layer draws (k, q) from all 16 pairs and, once more, from the pair that stage 2
    found."""
    every = [(k, q) for k in STACKS for q in QS]
    layers = scale_network_to_profile("Search Stage 2", profile).layers
    return Shared(
        find_parameter_window(profile), tuple([*every, (l.stack, l.q)] for l in layers)
    )


def describe_held_out(
    profile: str, task: str, row_count: int | None, held_out: int
) -> Json:
    """Return the descriptor of rows of a task, and of held-out rows that score
    candidates.

    row_count, held_out: how many rows there are of each. At `paper` they are in the
    order of the file."""
    return grids.describe_training_rows(
        profile, task, row_count, held_out, False, in_order=profile == "paper"
    )


def shared_supernet_spec(profile: str) -> Spec:
    """Return the Spec of stage 3's supernet, with the formulas of stage 2.

    It inherits from the supernet, is pre-trained in parts, then fine-tuned in parts on
    several tasks. At `paper` a tenth of each task's rows is left out for the search.
    """

    def describe_task_rows(task: str) -> Json:
        if profile != "paper":
            return grids.describe_dataset(profile, task)
        return describe_held_out(profile, task, None, TENTH.get(task, 0))

    largest, winner = (
        scale_network_to_profile("Supernet", profile),
        scale_network_to_profile("Search Stage 2", profile),
    )
    layers = zip(largest.layers, winner.layers, strict=True)
    net = replace(
        largest, layers=tuple(replace(l, formula=f.formula) for l, f in layers)
    )
    names, parts = together(profile), make_sharing_settings(profile)
    inputs = {f"teacher:{task}": teacher_spec(profile, task) for task in names}
    inputs["start"] = pretraining_spec(
        profile, net, pretrained_supernet_spec(profile), supernet_sharing=parts
    )
    args = {
        "data": {task: describe_task_rows(task) for task in names},
        "train": TOGETHER[profile],
    }
    return _seedless_spec(
        "multitask", profile, net, inputs, warmup=TAUGHT[profile], shared=parts, **args
    )


def candidate_spec(
    profile: str,
    net: Net,
    inherits_from_supernet: bool = True,
    train: Train | None = None,
    rows: Json | None = None,
    **training_changes: Any,
) -> Spec:
    """Return the Spec of a network as stages 1 and 2 train a candidate, on the proxy
    task.

    inherits_from_supernet: whether it inherits from the supernet. At `paper` it first
    reads some text, and its rows are PART. train, rows: other settings and data.
    training_changes: as in
    `student_spec`."""
    task, start = (
        find_proxy_task(profile),
        supernet_spec(profile) if inherits_from_supernet else None,
    )
    if profile in BRIEF:
        start = pretraining_spec(
            profile, net, start, describe_brief_text(profile), READ[profile]
        )
    if profile == "paper":
        rows = rows or describe_held_out(profile, task, *PART[profile])
    train = train or CANDIDATE[profile]
    return task_distillation_spec(
        profile, task, net, start, train=train, rows=rows, **training_changes
    )


CLAIMED = 128  # Batch of claim E5 (Table 2).
TURNS = {
    "toy": {1: 20},
    "mini": {1: 100, CLAIMED: 50},
    "base": {1: 100, CLAIMED: 50},
    "paper": {1: 100, CLAIMED: 100},
}


# Tables 2 and 5 pass PAIRED in place of TASKS.
tasks = partial(grids.select_tasks, by_profile=TASKS)
# Tables 2 and 5 pass HEADLINES in place of SEEDS.
seeds = partial(grids.select_seeds, by_profile=SEEDS)


def read_printed_table(table: str) -> dict[Any, dict[tuple[str, str], Any]]:
    """Return a published table as `lib.papers.published.make_table_rows` does.

    The names have no citations.
    """
    return published.make_table_rows(
        "efficientbert",
        table,
        "Model",
        rename_row=lambda name: re.sub(r" \([^)]*\d{4}\w?\)", "", name),
    )


def name_model(model: str, profile: str) -> str:
    """Return the name of a model or row, where the teacher has its encoder's own
    name."""
    return model.replace(TEACHER_ROW, f"{grids.name_encoder(profile)} (teacher)")


def name_teacher_row(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table in which the teacher's row says whose printed values it has. Ours
    are of the teacher of the column's profile."""
    return table.rename(index={TEACHER_ROW: "teacher (printed: BERT_BASE)"})


def name_models(estimates: dict[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    """Return {(source, name of a row): Estimate} with the teacher's own name."""
    return {
        (source, name_model(place, source.rpartition(", ")[2])): e
        for (source, place), e in estimates.items()
    }


def make_table(
    printed: dict[Any, dict[tuple[str, str], Any]],
    runs: Any,
    networks: Iterable[str] = (),
    columns: Collection[Column] = COLUMNS,
) -> pd.DataFrame:
    """Return a table of the paper with our scores and parameters beside it.

    printed: what `printed` returned. runs: a lib.report.tables.Runs. networks: rows
    that the printed table lacks."""
    parts = [printed, dict.fromkeys(networks, {})]
    for source, frame, profile in runs.frames_by_source:
        parts.append(
            compare.make_table_by_task(
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
    return name_teacher_row(compare.join_tables(*parts))


def latency_spec(
    batch: int,
    timed_runs: int,
    network_names: Iterable[str] = TIMED[1:],
    token_count: int = 128,
) -> Spec:
    """Return the Spec of the timings of Figure 1.

    Networks at full size with random weights are timed beside BERT-base. token_count:
    tokens of a sequence."""
    models = {"BERT_BASE": {"shape": "bert-base"}}
    models |= {name: {"net": find_network(name).to_json()} for name in network_names}
    args = {"models": models, "reference": "BERT_BASE"} | grids.make_latency_arguments(
        timed_runs, token_count, batch
    )
    return Spec("latency", args, seed=0)


def maps_spec(profile: str, task: str, further_networks: Iterable[str] = ()) -> Spec:
    """Return the Spec of the maps in Figures 7 and 8: networks beside their teacher.

    Arrays of the first four development rows are saved; similarity is measured on more
    rows. further_networks: networks beside the printed three, as `student_spec` takes
    them."""
    names = ("EfficientBERT", *OTHER_BASE, *further_networks)
    inputs = {f"model:{name}": student_spec(profile, task, name) for name in names}
    inputs["reference"] = teacher_spec(profile, task)
    args = {"rows": [0, 1, 2, 3], "examples": 64 if profile == "toy" else 200}
    args["max_length"] = FINETUNE[profile].max_length
    return Spec(
        "maps", grids.make_common_arguments(profile, task, **args), inputs, seed=0
    )
