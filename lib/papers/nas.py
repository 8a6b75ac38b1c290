"""Differentiable NAS pruning of BERT (the report "Neural Architecture Search on BERT for Network Compression"): its settings
by profile, its Specs and grids. Tables and claims: lib.papers.nas_claims. Free of torch.

`paper` is as printed where the report says something, and as TinyBERT's code has it where the report is silent. `toy` and
`mini` have values of their own, fixed once before their first recorded run; what differs is listed in `DEVIATIONS`.
"""

from dataclasses import replace

import numpy as np

from lib import data, published
from lib.measure.compare import Column
from lib.measure.cost import SHAPES
from lib.options import Gates, Objective, Perceptron, Train
from lib.papers import ghostbert, grids, mini
from lib.papers.profiles import TOY_MODEL, backbone, checkpoint, profile
from lib.search import gates as search
from lib.spec import Output, Spec, known

# ---- SETTINGS

MAIN = "TinyBERT-4L"  # what the report searches in, but for its Tables 7 and 8
CHECKPOINTS = {
    "TinyBERT-4L": "2nd_General_TinyBERT_4L_312D",
    "TinyBERT-6L": "2nd_General_TinyBERT_6L_768D",
    "BERT-base": "bert-base-uncased",
    "BERT-Mini": "bert-mini",
}  # at paper; general ones, before any task
RATIOS = (0.1, 0.3, 0.5, 0.7)

TASKS = {"toy": ("CoLA",), "mini": mini.ONE, "paper": ("CoLA", "MRPC", "STS-B")}  # Table 4
RANDOM = TASKS | {"mini": mini.BOTH}  # Table 5
PAIR = {"toy": ("CoLA",), "mini": mini.ONE, "paper": ("CoLA", "SST-2")}  # Tables 11 and 12
TRIO = {"toy": ("CoLA",), "mini": mini.ONE, "paper": ("CoLA", "RTE", "SST-2")}  # Tables 2 and 3
TEST = {
    "toy": ("CoLA",),
    "mini": mini.ONE,
    "paper": ("MNLI", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE"),
}  # Tables 6 to 10
SEEDS = {"toy": (0,), "mini": mini.THREE, "paper": (0, 1, 2)}
HEADLINES = SEEDS | {"mini": mini.FIVE}  # of Tables 4, 5 and 10
REPEATS = {"toy": (0, 1), "mini": mini.FIVE, "paper": (0, 1, 2, 3, 4)}  # of Table 11
ROWS = {"toy": 600}  # training rows of searches and retraining; else those of all papers
LONG = ("MNLI", "QQP", "QNLI", "SST-2")  # at paper "fewer" than 10 epochs: 3
AUGMENTED = (
    "CoLA",
    "STS-B",
    "MRPC",
    "RTE",
)  # retrained on augmented rows in the test tables, at paper

# What the tables print (6.3): F1 for MRPC and QQP, both correlations for STS-B. Table 10, beside another paper's accuracies,
# is at the level of accuracies and names Pearson's correlation alone.
COLUMNS = (
    Column("MNLI-m", "MNLI", "accuracy"),
    Column("MNLI-mm", "MNLI", "accuracy", "dev_mm"),
    Column("QQP F1", "QQP", "f1"),
    Column("STS-B Pearson", "STS-B", "pearson"),
    Column("STS-B Spearman", "STS-B", "spearman"),
    Column("MRPC F1", "MRPC", "f1"),
)
AGAINST_IMP = (Column("MNLI-m", "MNLI", "accuracy"), Column("STS-B Pearson", "STS-B", "pearson"))

_TOY = dict(batch=32, max_length=64, clip=1.0, dropout=0.1, byte_dropout=True)
_MINI = dict(batch=32, max_length=128, clip=1.0, dropout=0.1, byte_dropout=True)
_PAPER = dict(
    epochs=10,
    batch=32,
    max_length=128,
    pad_to=128,
    clip=1.0,
    weight_decay=0.01,
    spare_norms=True,
    dropout=0.1,
)
TEACHER = grids.TEACHER | {"paper": Train(lr=5e-5, warmup=0.1, select="best", **_PAPER)}
SEARCH = {
    "toy": Train(epochs=2, lr=5e-4, **_TOY),
    "mini": Train(epochs=3, lr=5e-5, **_MINI),
    "paper": Train(lr=3e-5, warmup=0.1, **_PAPER),
}
INTERMEDIATE = {
    "toy": Train(epochs=1, lr=1e-3, **_TOY),
    "mini": Train(epochs=3, lr=2e-4, **_MINI),
    "paper": Train(lr=5e-5, **_PAPER),
}
PREDICTION = {
    "toy": Train(epochs=1, lr=5e-4, **_TOY),
    "mini": Train(epochs=3, lr=5e-5, **_MINI),
    "paper": Train(lr=3e-5, warmup=0.1, select="best", eval_every=100, **_PAPER),
}
# Epochs of Tables 2 and 3, (the report's own, the published ones): of the teacher, and of TinyBERT's two stages.
TEACHING = {"toy": (4, 1), "mini": (3, 1), "paper": (10, 3)}
STAGES = {"toy": ((1, 1), (2, 1)), "mini": ((3, 3), (6, 1)), "paper": ((10, 10), (20, 3))}

LOGITS, TINYBERT = Objective("prediction"), Objective("soft_cross_entropy")
# Magnitude pruning, dense model and rounds: as the public code it is quoted from; toy and mini as any whole model.
MAGNITUDE = grids.TEACHER | {
    "paper": Train(epochs=3, batch=32, lr=2e-5, max_length=128, pad_to=128, clip=1.0, dropout=0.1)
}
# Kept shares of the encoder's weights after each round of magnitude pruning, and the share that Table 10 prints by task.
ROUNDS = {
    "toy": (0.5, 0.3),
    "mini": (0.8, 0.6, 0.4, 0.3),
    "paper": (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1),
}
WINNING = {
    "MNLI": 0.3,
    "QQP": 0.1,
    "QNLI": 0.3,
    "SST-2": 0.4,
    "CoLA": 0.5,
    "STS-B": 0.5,
    "MRPC": 0.5,
    "RTE": 0.4,
}
# In place of BERT-Mini, which has 70 % of TinyBERT-4L's FLOPs: as much of the toy encoder's.
TOY_MINI = TOY_MODEL | {"hidden": 160, "heads": 4, "ffn": 640}

# The digits check (7.1): scikit-learn's 8 x 8 digits, and MNIST; digests of lib.data.digits.
IMAGES = {"toy": {"kind": "bundled", "digest": "c9a6b2a46456d0a2"}} | dict.fromkeys(
    ("mini", "paper"), {"kind": "files", "digest": "3c4cc0db2a25ab6b"}
)
NETWORKS = {
    "3 layers": Perceptron((128, 64, 10), epochs=15, batch=64, lr=1e-3, noise=1.0),
    "11 layers": Perceptron(
        (119, 95, 76, 61, 48, 39, 31, 25, 20, 16, 10), epochs=20, batch=64, lr=1e-3, noise=1.0
    ),
}
TARGETS = (0.01, 0.04, 0.05, 0.1, 0.3, 0.5, 0.75, 1.0)
NOISE = 0.25  # "far below one half" of the kept inputs (N8)

DEVIATIONS = published.deviations("nas")
SMALL_TEACHER = published.deviations("nas", "small_teacher")
DIGITS = published.deviations("nas", "digits")


def tasks(profile_name, wanted=(), names=TASKS):
    """Tasks of a page: those of `names`, TASKS, PAIR, TRIO or TEST, where none is wanted. Raises ValueError naming the
    nearest task."""
    known("profile", profile_name, names)
    for name in wanted:
        data.task(profile(profile_name).source, name)
    return tuple(wanted) or names[profile_name]


def gates(ratio=0.3, **changes):
    """The report's search at a target; changes: other fields of lib.options.Gates."""
    return Gates(
        **dict(
            regions=("heads", "ffn"),
            ratio=ratio,
            share=0.1,
            quota="layer",
            update="jump",
            weight=1.0,
            tolerance=0.01,
            schedule="additive",
            landing="steps",
            memory=0.9,
        )
        | changes
    )


# ---- MODELS


def general(profile_name, model=MAIN):
    """Spec of an encoder before any task. Raises ValueError for BERT-Mini at mini, which has none."""
    known("model", model, CHECKPOINTS)
    if profile_name == "paper":
        name = CHECKPOINTS[model]
        return checkpoint(name)
    if model != "BERT-Mini":
        return backbone(profile_name)
    if profile_name != "toy":
        raise ValueError(
            f"model 'BERT-Mini' has no stand-in at profile {profile_name!r}: take 'toy' or 'paper'"
        )
    return Spec(
        "pretrain",
        backbone("toy").args | {"model": TOY_MINI, "corpus": {"sentences": 8000, "seed": 0}},
        seed=0,
    )


def whole(profile_name, task, model=MAIN, epochs=None):
    """Spec of a fine-tuned model before any search: by labels, and TinyBERT at paper by distillation from BERT-base."""
    if profile_name == "paper" and model.startswith("TinyBERT"):
        return distilled(profile_name, task, model)
    train = paced(TEACHER, profile_name, task)
    spec = grids.teacher(
        profile_name, task, train=replace(train, epochs=epochs) if epochs else train
    )
    return replace(spec, inputs={"start": general(profile_name, model)})


def distilled(profile_name, task, model=MAIN, epochs=None):
    """Spec of TinyBERT on a task: a general model distilled from BERT-base in two stages (Table 3), the second by TinyBERT's
    own loss; at paper on augmented rows, as 6.1.1 says."""
    return stages(
        profile_name,
        task,
        general(profile_name, model),
        whole(profile_name, task, "BERT-base"),
        augmented=profile_name == "paper",
        epochs=epochs,
        objective=TINYBERT,
    )


def paced(settings, profile_name, task):
    """Settings of a task; where the best model counts, TinyBERT's code chooses by both correlations of STS-B."""
    train = settings[profile_name]
    if train.select == "best" and task == "STS-B":
        train = replace(train, select_by=("pearson", "spearman"))
    return replace(train, epochs=3) if profile_name == "paper" and task in LONG else train


def rows(profile_name, task):
    """Descriptor of the rows of searches and retraining."""
    if profile_name in ROWS:
        return grids.described(profile_name, task, ROWS[profile_name])
    return grids.dataset(profile_name, task)


def states(profile_name, kind="intermediate"):
    """The objective that matches attention scores and layer outputs."""
    return Objective(kind, attention=True, mask=profile_name != "paper")


def common(profile_name, task, settings):
    return {
        "data": rows(profile_name, task),
        "train": paced(settings, profile_name, task),
        "numerics": profile(profile_name).numerics,
    }


def variants(profile_name, task):
    """The input of searches and retraining that augments their rows: those very rows, as the steps demand."""
    spec = ghostbert.augmentation(profile_name, task)
    return {"augmented": replace(spec, args=spec.args | {"data": rows(profile_name, task)})}


def searched(
    profile_name,
    task,
    model=MAIN,
    objective=LOGITS,
    start=None,
    guide=None,
    times=1,
    enlarged=False,
    **changes,
):
    """Spec of a search, by default in a fine-tuned model that is its own teacher (5.5), of so many times the profile's
    epochs; enlarged: on augmented rows (7.6). changes: of `gates`."""
    inputs = {"start": start or whole(profile_name, task, model)}
    if objective.kind != "cross_entropy":
        inputs["teacher"] = guide or whole(profile_name, task, model)
    if enlarged:
        inputs |= variants(profile_name, task)
    told = common(profile_name, task, SEARCH)
    told["train"] = replace(told["train"], epochs=times * told["train"].epochs)
    return Spec("nas_search", told | {"gates": gates(**changes), "objective": objective}, inputs)


def drawn(profile_name, task, model=MAIN, **changes):
    """Spec of a random architecture of the same cost (Table 5)."""
    return Spec(
        "random_architecture",
        {"gates": gates(**changes)},
        {"start": whole(profile_name, task, model)},
    )


def stages(
    profile_name, task, start, guide, found=None, augmented=False, epochs=None, objective=LOGITS
):
    """Spec of two stages of distillation, states first, then `objective`, from `start`: of the architecture that the Spec
    `found` finds, or of all. Without `epochs` (first, second) those of the profile."""
    one, two = (common(profile_name, task, settings) for settings in (INTERMEDIATE, PREDICTION))
    if epochs:
        one, two = (
            {**told, "train": replace(told["train"], epochs=n)}
            for told, n in zip((one, two), epochs, strict=True)
        )
    more = variants(profile_name, task) if augmented else {}
    inputs = {"start": start, "teacher": guide} | more
    first = Spec(
        "retrain",
        one
        | {
            "objective": states(profile_name),
            "architecture": Output("search", "architecture") if found else None,
        },
        inputs | ({"search": found} if found else {}),
    )
    return Spec(
        "retrain", two | {"objective": objective}, {"start": first, "teacher": guide} | more
    )


def pruned(
    profile_name, task, model=MAIN, objective=LOGITS, augmented=False, kept=False, **changes
):
    """Procedure B (5.5): searched, cut, and retrained, the fine-tuned model being start and teacher of all. kept: start from
    the searched weights (7.8); changes: of `searched`."""
    own, found = (
        whole(profile_name, task, model),
        searched(profile_name, task, model, objective, **changes),
    )
    return stages(profile_name, task, found if kept else own, own, found, augmented)


def random(profile_name, task, model=MAIN, **changes):
    """A random architecture with the very same retraining."""
    own = whole(profile_name, task, model)
    return stages(profile_name, task, own, own, drawn(profile_name, task, model, **changes))


def procedure_a(profile_name, task, model=MAIN, **changes):
    """Procedure A (5.4): a general model, BERT-base as teacher. Its two searches are one run under one moving target, of the
    epochs of both: states in its first half, logits in the second."""
    start, guide = general(profile_name, model), whole(profile_name, task, "BERT-base")
    found = searched(
        profile_name,
        task,
        model,
        states(profile_name, "two_stage"),
        start,
        guide,
        times=2,
        **changes,
    )
    return stages(profile_name, task, start, guide, found)


def magnitude(profile_name, task, share, model="BERT-base"):
    """Spec of iterative magnitude pruning down to a kept share: rounds, each rewound to `model` and fine-tuned on the labels
    as the dense one is, on all of its rows (Table 10)."""
    known("kept share", share, ROUNDS[profile_name])
    origin, dense = (
        general(profile_name, model),
        grids.teacher(profile_name, task, train=MAGNITUDE[profile_name]),
    )
    spec = replace(dense, inputs={"start": origin})
    for kept in ROUNDS[profile_name][: ROUNDS[profile_name].index(share) + 1]:
        told = {name: dense.args[name] for name in ("data", "train", "numerics")}
        spec = Spec("imp", told | {"kept": kept}, {"start": spec, "origin": origin})
    return spec


# ---- GRIDS


def label(ratio, kind="NAS"):
    return f"{100 * ratio:.0f} % {kind}"


def cells(profile_name, task_names, seed_numbers, made):
    """One row for each task, model and seed. made: {label: f(profile name, task) -> Spec}."""
    return grids.crossed(
        seed_numbers,
        lambda task, model: made[model](profile_name, task),
        task=task_names,
        model=made,
    )


def changed(options, model=MAIN):
    """{label: f} of networks by procedure B: options {label: what `pruned` is told}."""
    return {
        name: lambda scale, task, told=told: pruned(scale, task, model, **told)
        for name, told in options.items()
    }


def sizes(ratios=RATIOS, kinds=("NAS",)):
    """The whole model, and networks of some sizes: searched, "NAS", or "Random"."""
    make = {"NAS": pruned, "Random": random}
    return {"Whole": whole} | {
        label(ratio, kind): lambda scale, task, kind=kind, ratio=ratio: make[kind](
            scale, task, ratio=ratio
        )
        for ratio in ratios
        for kind in kinds
    }


# Where a search may end off its target, all movers jump at once and a final trim alone makes FLOPs equal, so that the miss
# is told and networks still compare.
REPORTED = {"landing": "end", "memory": 0.0}
SCHEDULES = {
    "Additive": {},
    "Multiplicative": {"schedule": "multiplicative"},
    "None": {"schedule": "none"},
}  # Table 11
WEIGHTS = {
    text: REPORTED | ({} if text == "1" else {"weight": float(text)})  # Table 12
    for text in ("0.01", "0.1", "1", "10", "100")
}
SPACES = {
    "QKV and FFN": {"regions": ("qkv", "ffn")},
    "QKV, FFN and embedding": {"regions": ("qkv", "ffn", "embedding")},  # 7.2
    "Heads and FFN": {},
}
SHARES = {"Top 10 %": {}, "Top 30 %": {"share": 0.3}, "All": {"share": 1.0}}  # 7.5
CONTROL = {"Top 10 %": {}} | {
    f"{name}{way}": SHARES[name] | told
    for way, told, names in (
        (", no schedule", {"schedule": "none"}, ("Top 10 %", "All")),
        (", as reported", REPORTED, SHARES),
    )
    for name in names
}
START = {"Original weights": {}, "Searched weights": {"kept": True}}  # 7.8
DATA = {
    "Task's rows": {},
    "Retrained on augmented rows": {"augmented": True},
    "Search as reported": REPORTED,  # 7.6
    "Search as reported, augmented rows": REPORTED | {"enlarged": True},
    "Search as reported, 4 times the steps": REPORTED | {"times": 4},
}


def objectives(profile_name):
    """Section 7.3: what the search learns from; and procedure A, by which 7.3.5 compares teachers."""
    told = {
        "Prediction distillation": {},
        "Cross-entropy": {"objective": Objective("cross_entropy")},
        "Intermediate distillation": {"objective": states(profile_name)},
        "Two stages": {"objective": states(profile_name, "two_stage")},
    }
    return changed(told) | {"Procedure A": procedure_a}


def compared(profile_name, model, task_names, seed_numbers, rival=None):
    """The grid of Tables 6 to 9: a model and its 30 % network, retrained on augmented rows as the report has it; or the
    network against a rival that is not searched."""

    def network(scale, task):
        return pruned(scale, task, model, augmented=scale == "paper" and task in AUGMENTED)

    other = rival or model
    there = (
        {}
        if rival == "BERT-Mini" and profile_name == "mini"
        else {other: lambda scale, task: whole(scale, task, other)}
    )
    return cells(profile_name, task_names, seed_numbers, there | {f"30 % {model}": network})


def submitted(profile_name, scored):
    """The grid of submissions: each model of a grid of `compared` on the test rows, at the first seed."""
    made = {
        (row["model"], row["task"]): row["spec"]
        for row in scored
        if row["seed"] == scored[0]["seed"]
    }
    return grids.submitted(
        profile_name,
        {task for _, task in made},
        [scored[0]["seed"]],
        lambda task, model: made[model, task],
        model=dict.fromkeys(model for model, _ in made),
    )


def rivals(profile_name, task_names, seed_numbers):
    """The grid of Table 10: the 30 % network of BERT-base, and each round of magnitude pruning."""
    return cells(
        profile_name,
        task_names,
        seed_numbers,
        {"Whole": lambda scale, task: whole(scale, task, "BERT-base")}
        | changed({"30 % NAS": {}}, "BERT-base")
        | {
            label(share, "IMP"): lambda scale, task, share=share: magnitude(scale, task, share)
            for share in ROUNDS[profile_name]
        },
    )


def architectures(grid):
    """The searches and draws behind the rows of a grid."""
    return [
        row | {"spec": found}
        for row in grid
        for first in [row["spec"].parents.get("start")]
        if first and (found := first.parents.get("search"))
    ]


def digits(profile_name, seed_numbers, targets=TARGETS):
    """The grid of the digits check: one row for each network, target and seed."""
    quota = dict(regions=("inputs",), quota="all")
    return grids.crossed(
        seed_numbers,
        lambda network, target: Spec(
            "digits",
            {
                "images": IMAGES[profile_name],
                "perceptron": NETWORKS[network],
                "gates": gates(target, **quota),
                "numerics": profile("toy").numerics,
            },
        ),
        network=NETWORKS,
        target=targets,
    )


def latency(ratios=RATIOS, shape="tinybert-4", runs=50, length=128, batch=1):
    """Spec of forward passes at true size: networks of random architectures beside the whole one, random weights."""
    full = SHAPES[shape]
    number = {
        (layer, kind): n
        for layer in range(full.layers)
        for kind, n in (("heads", full.heads), ("ffn", full.ffn))
    }
    cost = search.encoder(
        full.hidden,
        full.hidden // full.heads,
        [{"heads": full.heads, "ffn": full.ffn}] * full.layers,
    )
    told = {label(1.0, "Random"): {"shape": shape}}
    for ratio in ratios:
        on = np.split(
            search.random_architecture(gates(ratio), number, cost, 0),
            np.cumsum(list(number.values()))[:-1],
        )
        kept = {
            kind: [
                np.flatnonzero(part).tolist()
                for (_, own), part in zip(number, on, strict=True)
                if own == kind
            ]
            for kind in ("heads", "ffn")
        }
        told[label(ratio, "Random")] = {
            "shape": shape,
            "surgery": [{"op": "keep", "heads": kept["heads"], "neurons": kept["ffn"]}],
        }
    return Spec(
        "latency",
        {
            "models": told,
            "reference": label(1.0, "Random"),
            "batch": batch,
            "length": length,
            "runs": runs,
            "numerics": profile("toy").numerics,
        },
        seed=0,
    )


def swept_latency(profile_name, task, ratios=RATIOS, runs=50, length=128, batch=8):
    """Spec of forward passes of the size sweep's networks, cut as they are, beside the whole model. They are taken after the
    first stage of retraining, which keeps its weights for the second: that one changes no shape."""
    networks = {"Whole": whole(profile_name, task)} | {
        label(ratio): pruned(profile_name, task, ratio=ratio).inputs["start"] for ratio in ratios
    }
    return Spec(
        "latency",
        {
            "reference": "Whole",
            "batch": batch,
            "length": length,
            "runs": runs,
            "numerics": profile("toy").numerics,
        },
        {f"model:{name}": spec for name, spec in networks.items()},
    )


def clocked(profile_name, task_names, seed_numbers, runs=50):
    """The grid of `swept_latency`: one row, of the first task and seed."""
    return grids.crossed(
        seed_numbers[:1],
        lambda task: swept_latency(profile_name, task, runs=runs),
        task=task_names[:1],
    )
