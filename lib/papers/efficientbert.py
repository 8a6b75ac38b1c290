"""EfficientBERT (Dong et al., Findings of EMNLP 2021): its networks, its settings by profile, its Specs, its claims. Free of
torch."""

import re
from dataclasses import replace
from fractions import Fraction

import numpy as np

from lib import data, published
from lib.data import squad, texts
from lib.measure import compare, stats, verdict
from lib.measure.compare import Column
from lib.options import Shared, Span, Train, Warmup
from lib.papers import grids, mini
from lib.papers.profiles import backbone, checkpoint, profile, shape
from lib.search.net import BERT, QS, STACKS, Layer, Net, bert, parameters
from lib.spec import Spec, known

# ---- PUBLISHED NETS: keys are the rows of data/published/efficientbert/parameter_counts.csv

HEADS = 12
PLUS_PLUS = (
    "EfficientBERT++ (D = 360)",
    "EfficientBERT++ (D = 540)",
)  # as configured, as counted: the code has both
TEACHER_ROW, COLD, PLUS = (
    "BERT_BASE (Teacher)",
    "EfficientBERT w/o Warm-up KD",
    "EfficientBERT+",
)  # rows of Table 2
NAMED = {"EfficientBERT++": PLUS_PLUS[0]}  # rows of tables whose network has another name


def _architectures():
    """{variant: Net} of architectures.csv; formulas as in public code, the paper prints them as a picture alone."""
    nets = {}
    for name, rows in published.table("efficientbert", "architectures").groupby(
        "variant", sort=False
    ):
        row = rows.iloc[0]
        layers = tuple(
            Layer(r["formula"], r["stack"], Fraction(r["ratio"]).denominator)
            for _, r in rows.iterrows()
        )
        nets[name] = Net(
            int(row["hidden size d"]),
            int(row["reference FFN width D"]),
            HEADS,
            row["embedding"],
            row["mismatch"],
            layers,
        )
    configured = nets.pop("EfficientBERT++")
    return (
        nets
        | {COLD: nets["EfficientBERT"]}
        | dict(zip(PLUS_PLUS, (configured, replace(configured, width=540)), strict=True))
    )


THIN = "MobileBERT_TINY shape"  # 24 thin layers of two networks, as many parameters; no bottlenecks, heads as the teacher's
NETS = _architectures() | {
    THIN: Net(144, 648, HEADS, "trigram", "truncate", (Layer(BERT, 2),) * 24),
    "BERT_BASE": bert(12, 768, 3072),
    "BERT_TINY": bert(4, 312, 1200),
    "BERT_SMALL": bert(4, 512, 2048, heads=8),
    "TinyBERT_4": bert(4, 312, 1200),
    "TinyBERT_6": bert(6, 768, 3072),
    "BERT-PKD_4": bert(4, 768, 3072),
    "BERT-PKD_6": bert(6, 768, 3072),
    "DistilBERT_4": bert(4, 768, 3072),
    "DistilBERT_6": bert(6, 768, 3072),
    "MiniLM_4": bert(4, 384, 1536),
    "MiniLM_6": bert(6, 384, 1536),
}

# Weights that a baseline of Table 2 is fine-tuned from, as the paper did: the second general TinyBERT (section 4.4).
GENERAL = {"TinyBERT_4": "2nd_General_TinyBERT_4L_312D"}

# ---- SETTINGS: `paper` as printed (section 4.3) and, where the paper is silent, as coded; `toy` and `mini` have values of
# their own, chosen once before their first recorded run

TASKS = {
    "toy": ("CoLA",),
    "mini": mini.ONE,
    "paper": ("MNLI", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE"),
}
SQUAD = {"toy": ("SQuAD1", "SQuAD2"), "mini": ("SQuAD1",), "paper": ("SQuAD1", "SQuAD2")}
SEEDS = {"toy": (0,), "mini": mini.THREE, "paper": (0, 1, 2)}
PAIRED, HEADLINES = (
    TASKS | {"mini": mini.BOTH},
    SEEDS | {"mini": mini.FIVE},
)  # of Tables 2 and 5 and Figure 4
PROXY = {"toy": "CoLA", "mini": "SST-2", "paper": "MNLI"}  # what a search scores its candidates on
MULTITASK = {
    "toy": ("CoLA", "RTE"),
    "mini": mini.BOTH,
    "paper": TASKS["paper"],
}  # fine-tuned on together

# Hidden sizes that stand for the paper's: its own 540, the 360 of TINY and ++, the 768 of TinyBERT's base; all have 12 heads.
SIZES = {"toy": {540: 96, 360: 60, 768: 192}, "mini": {540: 288, 360: 192, 768: 384}}
LAYERS = {"toy": 2, "mini": 6}  # for the paper's six; toy has the formulas of layers 1 and 4
WINDOW = {
    "toy": (0.15, 0.4),
    "mini": (0.174, 0.25),
}  # of the way from the smallest candidate to the largest, for
LIMITS = {"paper": (15_000_000, 16_000_000)}  # the paper's 15 to 16 of 12.7 to 25.9 million

# What Tables 2, 3, 5 and 7 print: F1 for QQP and MRPC, Spearman's correlation for STS-B; Table 3 leaves out MNLI-mm.
COLUMNS = (
    Column("MNLI-m", "MNLI", "accuracy"),
    Column("MNLI-mm", "MNLI", "accuracy", "dev_mm"),
    Column("QQP", "QQP", "f1"),
    Column("STS-B", "STS-B", "spearman"),
    Column("MRPC", "MRPC", "f1"),
)
DEV_COLUMNS = tuple(column for column in COLUMNS if column.split == "dev")
# Where the best model counts, the code chooses by the mean of two metrics on these tasks.
SELECT_BY = (
    dict.fromkeys(("QQP", "MRPC"), ("accuracy", "f1"))
    | {"STS-B": ("pearson", "spearman")}
    | dict.fromkeys(squad.TASKS, ("exact", "span_f1"))
)

_TOY = dict(
    batch=32,
    max_length=64,
    clip=1.0,
    warmup=0.1,
    weight_decay=0.01,
    spare_norms=True,
    dropout=0.1,
    byte_dropout=True,
)
_MINI = dict(
    batch=32,
    max_length=128,
    clip=1.0,
    warmup=0.1,
    weight_decay=0.01,
    spare_norms=True,
    dropout=0.1,
    byte_dropout=True,
)
_PAPER = dict(
    max_length=128,
    pad_to=128,
    clip=1.0,
    warmup=0.1,
    weight_decay=0.01,
    spare_norms=True,
    dropout=0.1,
)
PRETRAIN = {
    "toy": Train(epochs=2, lr=2e-3, **_TOY),
    "mini": Train(epochs=2, lr=1e-3, **_MINI | {"max_length": 64}),
    "paper": Train(epochs=10, batch=256, lr=1e-4, **_PAPER),
}
FINETUNE = {
    "toy": Train(epochs=3, lr=1e-3, **_TOY),
    "mini": Train(epochs=3, lr=3e-4, **_MINI),
    "paper": Train(epochs=10, batch=32, lr=5e-5, select="best", eval_every=50, **_PAPER),
}
TOGETHER = FINETUNE | {
    "mini": replace(FINETUNE["mini"], epochs=1),  # several tasks, stage 3
    "paper": Train(epochs=10, batch=256, lr=4e-4, **_PAPER),
}
CANDIDATE = FINETUNE | {"paper": Train(epochs=3, batch=256, lr=4e-4, **_PAPER)}  # stages 1 and 2
TEACHER = {
    "paper": Train(
        epochs=3,
        batch=32,
        lr=3e-5,
        max_length=128,
        pad_to=128,
        clip=1.0,
        warmup=0.1,
        weight_decay=0.01,
        spare_norms=True,
        dropout=0.1,
        select="best",
    )
}  # toy and mini: those of all papers (grids)
SPAN = {
    "toy": Span(stride=64, max_query=32, max_answer=12),
    "mini": Span(stride=128, max_query=64, max_answer=30),
    "paper": Span(stride=32, max_query=64, max_answer=30),
}
SPANNED = {
    "toy": {"max_length": 96},
    "mini": {"max_length": 192, "epochs": 2},
}  # of training on spans
WARM = {
    "toy": Warmup("scores", "shared", mask=True),
    "mini": Warmup("scores", "shared", mask=True),
    "paper": Warmup("scores", "shared", zero=True, gold=True, hide_first=True),
}
READ = {"paper": replace(PRETRAIN["paper"], epochs=1)}  # a candidate's training on text
TAUGHT = {name: replace(own, prediction=1.0) for name, own in WARM.items()}  # on a task
FROM_SCRATCH = 3  # epochs on Wikipedia alone of what has TinyBERT_6's embedding, at `paper`
# Documents for candidates, 2 % of the paper's Wikipedia; none at the small scales, where they go straight to the task.
BRIEF = {"paper": 120_000}
# The last tenth of each training set, which stage 3 leaves out, and the proxy's parts of stages 1 and 2, its first tenth and
# its last hundredth: (rows, held out).
TENTH = {
    "MNLI": 39270,
    "QQP": 36384,
    "QNLI": 10474,
    "SST-2": 6734,
    "CoLA": 855,
    "STS-B": 574,
    "MRPC": 366,
    "RTE": 249,
}
PART = (39270, 3927)

DEVIATIONS = published.deviations("efficientbert")


def network(name):
    """The published network of a row of the paper's tables; of "EfficientBERT++" the one that the code configures."""
    name = NAMED.get(name, name)
    known("published network", name, NETS)
    return NETS[name]


def scaled(name, profile_name):
    """A published network at the widths and depth of a profile; at `paper` itself. A depth that matches no layers of a small
    teacher is cut down to one that does."""
    net, sizes = network(name), SIZES.get(profile_name)
    if sizes is None:
        return net
    teacher = shape(profile_name).layers
    depth = next(
        n
        for n in range(max(1, LAYERS[profile_name] * len(net.layers) // 6), 0, -1)
        if not (n % teacher and teacher % n)
    )
    hidden = sizes.get(net.hidden) or net.heads * round(net.hidden * sizes[540] / 540 / net.heads)
    return replace(
        net,
        hidden=hidden,
        width=hidden * net.width // net.hidden,
        layers=tuple(net.layers[i * len(net.layers) // depth] for i in range(depth)),
    )


def tables(profile_name):
    """What the size of a network depends on beside its Net (lib.search.net.parameters), of a profile's backbone."""
    sizes = shape(profile_name)
    return {
        "teacher": sizes.hidden,
        "vocab": sizes.vocab,
        "positions": sizes.positions,
        "types": sizes.types,
    }


def window(profile_name):
    """Least and most parameters of a candidate, with projection: as printed, or as far between the smallest and the largest
    network as the paper's are."""
    if profile_name in LIMITS:
        return LIMITS[profile_name]
    whole = scaled("Supernet", profile_name)
    ends = [
        parameters(
            replace(whole, layers=tuple(replace(l, stack=k, q=q) for l in whole.layers)),
            "with projection",
            **tables(profile_name),
        )
        for k, q in ((STACKS[0], QS[-1]), (STACKS[-1], QS[0]))
    ]
    return tuple(round(ends[0] + share * (ends[1] - ends[0])) for share in WINDOW[profile_name])


# ---- TEXT

TEXT, ENCYCLOPEDIA = "wikipedia+books", "wikipedia"


def corpus(profile_name, count=None, name=TEXT):
    """Text that networks are pre-trained on; count: fewer documents."""
    if profile_name == "toy":
        return {"sentences": count or 4000, "seed": 1}
    return texts.describe(name, count or (4000 if profile_name == "mini" else None))


def pretrained(profile_name, net, start=None, text=None, train=None, shared=None):
    """Spec of a network after distillation on text from the whole backbone; start: what it inherits from; shared: of a
    supernet, one part in each step."""
    inputs = {"teacher": backbone(profile_name)} | ({"start": start} if start else {})
    return Spec(
        "predistil",
        {
            "corpus": text or corpus(profile_name),
            "net": net.to_json(),
            "warmup": WARM[profile_name],
            "train": train or PRETRAIN[profile_name],
            "numerics": profile(profile_name).numerics,
            "shared": shared,
        },
        inputs,
        seed=0,
    )


def supernet(profile_name):
    """Spec of the largest network, pre-trained whole: what all others inherit from."""
    return pretrained(profile_name, scaled("Supernet", profile_name))


def prepared(profile_name, name):
    """Spec of a published network, pre-trained for retraining: after it has inherited from the supernet, or from scratch
    where it is to do without or has another embedding (TinyBERT_6's, at `paper` with three epochs of Wikipedia alone). A baseline
    of GENERAL is a published checkpoint at `paper`."""
    net, paper = scaled(name, profile_name), profile_name == "paper"
    if paper and name in GENERAL:
        return checkpoint(GENERAL[name])
    if net.embedding == "plain":
        return pretrained(
            profile_name,
            net,
            text=corpus(profile_name, name=ENCYCLOPEDIA if paper else TEXT),
            train=replace(PRETRAIN[profile_name], epochs=FROM_SCRATCH) if paper else None,
        )
    return pretrained(profile_name, net, None if name in (COLD, THIN) else supernet(profile_name))


# ---- TASKS


def tasks(profile_name, wanted=(), own=TASKS):
    """Tasks of a page; those of `own`, TASKS or PAIRED, where none is wanted. Raises ValueError naming the nearest task."""
    known("profile", profile_name, own)
    for name in wanted:
        data.task(grids.source(profile_name, name), name)
    return tuple(wanted) or own[profile_name]


def teacher(profile_name, task):
    return grids.teacher(
        profile_name,
        task,
        train=finetuning(TEACHER, profile_name, task),
        span=span(profile_name, task),
    )


def span(profile_name, task):
    return SPAN[profile_name] if task in squad.TASKS else None


def finetuning(settings, profile_name, task):
    """Settings of a task: rows of their own length for spans, what the best is chosen by, and at `paper` what is printed for
    CoLA and SQuAD."""
    train = settings.get(profile_name, grids.TEACHER[profile_name])
    if task in squad.TASKS and profile_name in SPANNED:
        train = replace(train, **SPANNED[profile_name])
    if train.select == "best":
        train = replace(train, select_by=SELECT_BY.get(task, ()))
    if profile_name != "paper" or settings is TEACHER:
        return train
    more = {"CoLA": {"epochs": 50}, "QQP": {"eval_every": 250}}.get(task, {})
    return replace(train, **more | ({"lr": 1e-4, "eval_every": 500} if task in squad.TASKS else {}))


def tuned(profile_name, task, net, start, classifier=None, train=None, rows=None):
    """Spec of a network after distillation on a task from its fine-tuned teacher. start: what it inherits from, or None;
    train, rows: settings and data other than those of retraining."""
    inputs = {"teacher": teacher(profile_name, task)} | ({"start": start} if start else {})
    return Spec(
        "warmup",
        {
            "data": rows or grids.dataset(profile_name, task),
            "net": net.to_json(),
            "classifier": classifier,
            "train": train or finetuning(FINETUNE, profile_name, task),
            "span": span(profile_name, task),
            "warmup": TAUGHT[profile_name],
            "numerics": profile(profile_name).numerics,
        },
        inputs,
    )


def student(profile_name, task, name):
    """Spec of a row of the paper's tables on a task: the teacher itself, or a published network, pre-trained and fine-tuned;
    "+" comes from the supernet of several tasks, with pooler and classifier, and is fine-tuned at once."""
    if name == TEACHER_ROW:
        return teacher(profile_name, task)
    if name != PLUS:
        return tuned(profile_name, task, scaled(name, profile_name), prepared(profile_name, name))
    head = {"WNLI": "QNLI"}.get(
        task, task
    )  # as coded: WNLI is not among the tasks learned together
    return tuned(
        profile_name,
        task,
        scaled(name, profile_name),
        several(profile_name),
        head if head in MULTITASK[profile_name] else None,
    )


# ---- SEARCH


def shared(profile_name):
    """What stage 3 trains a supernet by: in each step a part of a size in the window, each layer's (k, q) one of all 16 or,
    once more, that of stage 2."""
    every = [(k, q) for k in STACKS for q in QS]
    return Shared(
        window(profile_name),
        [[*every, (l.stack, l.q)] for l in scaled("Search Stage 2", profile_name).layers],
    )


def several(profile_name):
    """Spec of stage 3's supernet: the formulas of stage 2, weights of the supernet, pre-trained in parts, then in parts
    fine-tuned on several tasks, of whose training rows a tenth is left out for the search."""

    def rows(task):
        if profile_name != "paper":
            return grids.dataset(profile_name, task)
        return data.describe(
            grids.source(profile_name, task), task, None, TENTH[task], in_order=True
        )

    whole, found, parts = (
        scaled("Supernet", profile_name),
        scaled("Search Stage 2", profile_name),
        shared(profile_name),
    )
    net = replace(
        whole,
        layers=tuple(
            replace(l, formula=f.formula) for l, f in zip(whole.layers, found.layers, strict=True)
        ),
    )
    start = pretrained(profile_name, net, supernet(profile_name), shared=parts)
    names = MULTITASK[profile_name]
    return Spec(
        "multitask",
        {
            "data": {task: rows(task) for task in names},
            "net": net.to_json(),
            "warmup": TAUGHT[profile_name],
            "train": TOGETHER[profile_name],
            "numerics": profile(profile_name).numerics,
            "shared": parts,
        },
        {f"teacher:{task}": teacher(profile_name, task) for task in names} | {"start": start},
        seed=0,
    )


def candidate(profile_name, net, warm=True):
    """Spec of a network trained as stages 1 and 2 train a candidate, with weights inherited from the supernet or without:
    at `paper` for an epoch on a fiftieth of Wikipedia, then on a tenth of MNLI; at the small scales on the task alone."""
    task, start = PROXY[profile_name], supernet(profile_name) if warm else None
    if profile_name in BRIEF:
        start = pretrained(
            profile_name,
            net,
            start,
            corpus(profile_name, BRIEF[profile_name], ENCYCLOPEDIA),
            READ[profile_name],
        )
    rows = (
        data.describe(grids.source(profile_name, task), task, *PART, in_order=True)
        if profile_name == "paper"
        else None
    )
    return tuned(profile_name, task, net, start, train=CANDIDATE[profile_name], rows=rows)


# ---- TABLES: rows that have runs, and what stands beside them

OWN = (
    TEACHER_ROW,
    "EfficientBERT_TINY",
    COLD,
    "EfficientBERT",
    PLUS,
    "EfficientBERT++",
)  # of Table 2
BASELINES = {"paper": ("TinyBERT_4", THIN)}  # of it, trained here too
SPANS = {
    "toy": (TEACHER_ROW, "EfficientBERT_TINY", "EfficientBERT"),  # of Table 4
    "mini": (TEACHER_ROW, "Base Model", "EfficientBERT_TINY", "EfficientBERT", "EfficientBERT++"),
    "paper": (TEACHER_ROW, "TinyBERT_4", "EfficientBERT_TINY", "EfficientBERT", "EfficientBERT++"),
}
OTHER_BASE = ("TinyBERT_6", "EfficientBERT (TinyBERT_6)")  # of Table 7
TIMED = ("BERT_BASE", "EfficientBERT_TINY", "EfficientBERT", "EfficientBERT++")  # of Figure 1
CLAIMED = 128  # batch of E5 (Table 2)
TURNS = {
    "toy": {1: 50},
    "mini": {1: 100, CLAIMED: 50},
    "paper": {1: 100, CLAIMED: 100},
}  # of it: {batch: runs}
FIFTH = 0.2  # of the steps, in claim E2


def compared(profile_name, task_names, seed_numbers, names):
    """One row for each task, published row and seed."""
    return grids.crossed(
        seed_numbers,
        lambda task, model: student(profile_name, task, model),
        task=task_names,
        model=names,
    )


def printed(table):
    """A published table as {row: {("published", column): value}}, citations left out."""
    found = {}
    for row in published.lines("efficientbert", table):
        name = re.sub(r" \([^)]*\d{4}\w?\)", "", row.pop("Model"))
        found[name] = {
            ("published", "average" if column == "Avg" else column): value
            for column, value in row.items()
        }
    return found


def conventions():
    """{row of the paper's tables: how its #Params are counted}, one of lib.search.net.CONVENTIONS: what reproduces it."""
    table = (
        published.table("efficientbert", "parameter_counts")
        .dropna(subset="printed equals")
        .set_index("row")
    )
    return {name: text.split("; ")[-1] for name, text in table["printed equals"].items()}


def sizes(names):
    """{row: {("M parameters", "counted"): text}}: networks at the paper's size, counted as its #Params are."""
    by, cells = conventions(), {}
    for name in names:
        key = "BERT_BASE" if name.startswith("BERT_BASE") else NAMED.get(name, name)
        if key in NETS:
            cells[name] = {
                (
                    "M parameters",
                    "counted",
                ): f"{parameters(NETS[key], by.get(key, 'with projection')) / 1e6:.1f}"
            }
    return cells


def made(frame, source):
    """{model: {("M parameters", source): text}} of a collected frame: what its runs have, head and all."""
    return {
        row["model"]: {("M parameters", source): f"{row['parameters'] / 1e6:.2f}"}
        for row in frame.to_dict("records")
        if row["run"] is not None
    }


def averages(table):
    """({row: mean of the columns between}, {row: text of the printed average}) of a published table."""
    shown = published.table("efficientbert", table).dropna(subset="Avg").set_index("Model")
    first = list(shown.columns).index("MNLI-m")
    means = shown.iloc[:, first : list(shown.columns).index("Avg")].mean(axis=1).round(6)
    return means.to_dict(), {name: f"{value:.1f}" for name, value in shown["Avg"].items()}


def marks_of_spans(frame, source):
    """{model: {(source, "SQuAD v1.1 EM"): text, ...}} of a collected frame, in points."""
    table = {}
    for metric, mark in (("exact", "EM"), ("span_f1", "F1")):
        for model, row in compare.by_task(
            frame, dict.fromkeys(squad.TASKS, metric), source
        ).items():
            table[model] = table.get(model, {}) | {
                (source, f"SQuAD v{'1.1' if task == 'SQuAD1' else '2.0'} {mark}"): text
                for (_, task), text in row.items()
                if task in squad.TASKS
            }
    return {model: dict(sorted(row.items())) for model, row in table.items()}


def steepness(profile_name, seed_numbers):
    """The grid of Figure 4: the base network as a candidate, with and without weights from the supernet."""
    net, task = scaled("Base Model", profile_name), PROXY[profile_name]
    return [
        {
            "task": task,
            "model": model,
            "seed": seed,
            "spec": candidate(profile_name, net, warm).at(seed),
        }
        for model, warm in (("inherits", True), ("from scratch", False))
        for seed in seed_numbers
    ]


def latency(batch, runs, length=128, seed=0):
    """Spec of the passes of Figure 1: the published networks at full size, random weights, beside BERT-base."""
    models = {
        name: {"shape": "bert-base"} if name == "BERT_BASE" else {"net": network(name).to_json()}
        for name in TIMED
    }
    return Spec(
        "latency",
        {
            "models": models,
            "reference": TIMED[0],
            "batch": batch,
            "length": length,
            "runs": runs,
            "numerics": profile("toy").numerics,
        },
        seed=seed,
    )


def mapped(profile_name, task, rows, examples, seed=0):
    """Spec of what Figures 7 and 8 show: fine-tuned networks beside their teacher."""
    names = ("EfficientBERT", *OTHER_BASE)
    return Spec(
        "maps",
        {
            "data": grids.dataset(profile_name, task),
            "rows": list(rows),
            "examples": examples,
            "max_length": FINETUNE[profile_name].max_length,
            "numerics": profile(profile_name).numerics,
        },
        {"reference": teacher(profile_name, task)}
        | {f"model:{name}": student(profile_name, task, name) for name in names},
        seed=seed,
    )


# ---- CLAIMS


def smoothed(loss, share=0.05):
    """Trailing mean of a loss [N] over that share of its points; over those that are there at the start."""
    wide, sums = (
        max(1, round(share * len(loss))),
        np.concatenate([[0.0], np.cumsum(np.asarray(loss, float))]),
    )
    ends = np.arange(1, len(loss) + 1)
    starts = np.maximum(0, ends - wide)
    return (sums[ends] - sums[starts]) / (ends - starts)


def share_of_steps(inherits, scratch, part="loss"):
    """Steps after which the smoothed loss of one run is no higher than that of the other at its end, as a share of that
    one's steps; 1 where it never is. Each is what step warmup keeps as `curve`."""
    there = np.flatnonzero(smoothed(inherits[part]) <= smoothed(scratch[part])[-1])
    return (
        min(1.0, float((inherits["step"][there[0]] + 1) / (scratch["step"][-1] + 1)))
        if len(there)
        else 1.0
    )


def shares(frame, part="loss"):
    """{seed: share of steps} of a collected frame of `steepness`, where both runs are there."""
    runs = {(row.model, row.seed): row.run for row in frame.itertuples() if row.run is not None}
    return {
        seed: share_of_steps(run.arrays("curve"), runs["from scratch", seed].arrays("curve"), part)
        for (model, seed), run in runs.items()
        if model == "inherits" and ("from scratch", seed) in runs
    }


def claim_steps(frame, profile_name):
    """Verdict on the second half of E2: at most a fifth of the steps."""
    found = shares(frame)  # the interval of a share near 0 may reach below it
    return verdict.judge_within(
        "E2",
        stats.replicates(list(found.values())) if found else None,
        float("-inf"),
        FIFTH,
        profile_name,
        failed=compare.lost(frame),
        unit="of the steps to the loss that training from scratch ends on",
    )


def speedups(run, kind="wall"):
    """{model: Estimate} of BERT-base's time over a model's, turn by turn, of a run of `latency`."""
    times = dict(
        zip(run.spec["args"]["models"], run.arrays("times")[kind], strict=True)
    )  # a Spec sorts names
    return {name: stats.ratio(times[TIMED[0]], times[name]) for name in TIMED[1:]}


def claim_speed(*frames):
    """Verdict on E5 out of collected frames of timings: by the first run at the batch of the claim, at any profile."""
    runs = [
        row.run
        for frame in frames
        for row in frame.itertuples()
        if row.batch == CLAIMED and row.run is not None
    ]
    found = verdict.judge_reached(
        "E5",
        speedups(runs[0]) if runs else {},
        printed_speedups(),
        f"at full size, batch {CLAIMED}",
        "times BERT-base",
        len(runs[:1]),
    )
    return found if runs else replace(found, note=f"not timed at the paper's batch of {CLAIMED}")


def printed_speedups():
    """{model: printed latency of BERT-base over the model's, one digit as the paper tells its own}."""
    told = published.table("efficientbert", "table02_glue_test").set_index("Model")["Latency (ms)"]
    return {name: f"{told[TEACHER_ROW] / told[name]:.1f}" for name in TIMED[1:]}


def divergences(arrays, name):
    """Mean KL divergence in nats [A] of each head's maps from the reference's, over the rows and real tokens that a run of
    `mapped` keeps."""
    total = 0.0
    for theirs, mine, length in zip(
        arrays["attention.reference"], arrays[f"attention.{name}"], arrays["lengths"], strict=True
    ):
        p, q = (np.maximum(x[:, :length, :length].astype(float), 1e-12) for x in (theirs, mine))
        total = total + (p * np.log(p / q)).sum(-1).mean(-1)
    return total / len(arrays["lengths"])
