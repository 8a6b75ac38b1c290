"""Differentiable NAS pruning of BERT: settings, Specs, grids.

The paper is the report "Neural Architecture Search on BERT for Network Compression". The settings
of `paper` are the printed ones. Where the report is silent they are those of TinyBERT's code. `toy`
and `mini` have values of their own; each was chosen once, before the first recorded run. Free of
torch.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from lib import files, published
from lib.measure import gated
from lib.measure.compare import Column
from lib.measure.cost import SHAPES
from lib.options import Gates, Objective, Perceptron
from lib.papers import grids, mini, submissions
from lib.papers.profiles import TOY_MODELS, backbone, profile, shape, started
from lib.search import control as search
from lib.spec import Output, Spec, known

# ---- SETTINGS

TOLD = files.toml(Path(__file__).with_suffix(".toml"))  # says what each of its tables is

MAIN = "TinyBERT-4L"  # the model of all searches but those of Tables 7 and 8
CHECKPOINTS = TOLD["CHECKPOINTS"]
RATIOS = (0.1, 0.3, 0.5, 0.7)

_GLUE = ("MNLI", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE")
TASKS = {"toy": ("CoLA",), "mini": mini.ONE, "paper": ("CoLA", "MRPC", "STS-B")}  # Table 4
RANDOM = TASKS | {"mini": mini.BOTH}  # Table 5
PAIR = TASKS | {"paper": ("CoLA", "SST-2")}  # Tables 11 and 12
TRIO = TASKS | {"paper": ("CoLA", "RTE", "SST-2")}  # Tables 2 and 3
TEST = TASKS | {"paper": _GLUE}  # Tables 6 to 10
SEEDS = {"toy": (0,), "mini": mini.THREE, "paper": (0, 1, 2)}
HEADLINES = SEEDS | {"mini": mini.FIVE}  # Tables 4, 5 and 10
REPEATS = {"toy": (0, 1), "mini": mini.FIVE, "paper": (0, 1, 2, 3, 4)}  # Table 11
ROWS = {"toy": 600}  # training rows of searches and retraining; elsewhere those of all papers
LONG = ("MNLI", "QQP", "QNLI", "SST-2")  # "fewer" than 10 epochs at paper (5.5.1): 3
TEN = ("SST-2",)  # tasks of LONG whose teacher has 10 epochs in print (6.1.1)
AUGMENTED = ("CoLA", "STS-B", "MRPC", "RTE")  # Tables 6 to 9 retrain on augmented rows, at paper

COLUMNS = tuple(Column(*told) for told in TOLD["COLUMNS"])
# Table 10 stands beside another paper's accuracies: it is at their level, and names Pearson's
# correlation alone.
AGAINST_IMP = COLUMNS[0], COLUMNS[3]

_DECAY = dict(weight_decay=(0.0, 0.0, 0.01), spare_norms=(False, False, True))
_BEST = dict(select=("last", "last", "best"), eval_every=(0, 0, 100))
SEARCH = grids.training(epochs=(2, 3, 10), lr=(5e-4, 5e-5, 3e-5), warmup=(0.0, 0.0, 0.1), **_DECAY)
INTERMEDIATE = grids.training(epochs=(1, 3, 10), lr=(1e-3, 2e-4, 5e-5), **_DECAY)
PREDICTION = grids.training(
    epochs=(1, 3, 10), lr=(5e-4, 5e-5, 3e-5), warmup=(0.0, 0.0, 0.1), **_BEST, **_DECAY
)
TEACHER = grids.TEACHER | {"paper": replace(PREDICTION["paper"], lr=5e-5, eval_every=0)}
# Dense model and rounds of magnitude pruning; at paper as the public code that the report quotes.
MAGNITUDE = grids.TEACHER | {"paper": replace(grids.TEACHER["paper"], select="last")}
TEACHING, STAGES, ROUNDS, WINNING = map(TOLD.get, ("TEACHING", "STAGES", "ROUNDS", "WINNING"))

LOGITS, TINYBERT = Objective("prediction"), Objective("soft_cross_entropy")
# Toy's BERT-Mini: like BERT-Mini itself it has 70 % of the FLOPs of the model that is searched.
TOY_MINI = TOY_MODELS["bert"] | {"hidden": 160, "heads": 4, "ffn": 640}

# The digits check (7.1): scikit-learn's 8 x 8 digits, and MNIST; digests of lib.data.digits.
_MNIST = {"kind": "files", "digest": "3c4cc0db2a25ab6b"}
IMAGES = {"toy": {"kind": "bundled", "digest": "c9a6b2a46456d0a2"}, "mini": _MNIST, "paper": _MNIST}
_ELEVEN = (119, 95, 76, 61, 48, 39, 31, 25, 20, 16, 10)
NETWORKS = {
    "3 layers": Perceptron((128, 64, 10), epochs=15, batch=64, lr=1e-3, noise=1.0),
    "11 layers": Perceptron(_ELEVEN, epochs=20, batch=64, lr=1e-3, noise=1.0),
}
TARGETS = (0.01, 0.04, 0.05, 0.1, 0.3, 0.5, 0.75, 1.0)

DEVIATIONS = published.deviations("nas")
SMALL_TEACHER = published.deviations("nas", "small_teacher")
DIGITS = published.deviations("nas", "digits")


tasks = partial(grids.tasks, own=TASKS)  # others are RANDOM, PAIR, TRIO and TEST


def gates(ratio=0.3, **changes):
    """The report's search at a target ratio of FLOPs; changes: other fields of Gates."""
    return Gates(ratio=ratio, **TOLD["GATES"] | changes)


# ---- MODELS


def general(profile_name, model=MAIN):
    """Spec of an encoder before any task.

    Raises ValueError, naming the nearest, for an unknown model, and for BERT-Mini at mini.
    """
    known("model", model, CHECKPOINTS)
    if profile_name == "paper":
        return started(profile_name, CHECKPOINTS[model])
    if model != "BERT-Mini":
        return backbone(profile_name)
    if profile_name != "toy":
        raise ValueError(
            f"model 'BERT-Mini' has no stand-in at profile {profile_name!r}: take 'toy' or 'paper'"
        )
    own = {"model": TOY_MINI, "corpus": {"sentences": 8000, "seed": 0}}
    return Spec("pretrain", backbone("toy").args | own, seed=0)


def whole(profile_name, task, model=MAIN, epochs=None):
    """Spec of a model on a task before any search, fine-tuned on the labels.

    At `paper` a TinyBERT is distilled from BERT-base instead.
    """
    if profile_name == "paper" and model.startswith("TinyBERT"):
        return distilled(profile_name, task, model)
    spec = grids.teacher(profile_name, task, train=teaching(profile_name, task, epochs))
    return replace(spec, inputs={"start": general(profile_name, model)})


def distilled(profile_name, task, model=MAIN, epochs=None):
    """Spec of TinyBERT on a task, distilled from BERT-base in two stages (Table 3).

    The second stage has TinyBERT's own loss. At `paper` both see augmented rows (6.1.1).
    """
    return stages(
        profile_name,
        task,
        general(profile_name, model),
        whole(profile_name, task, "BERT-base"),
        augmented=profile_name == "paper",
        epochs=epochs,
        objective=TINYBERT,
    )


def teaching(profile_name, task, epochs=None):
    """Train of a whole model on labels; epochs: other than the profile's."""
    train = paced(TEACHER, profile_name, task, () if task in TEN else LONG)
    return replace(train, epochs=epochs or train.epochs)


def searching(profile_name, task, times=1, enlarged=False):
    """Train of a search; times, enlarged: as in `searched`."""
    train = paced(SEARCH, profile_name, task)
    epochs = 1 if enlarged and profile_name == "paper" else train.epochs
    return replace(train, epochs=times * epochs)


def paced(settings, profile_name, task, long=LONG):
    """Train of a task, out of {profile: Train}; long: tasks of fewer epochs at `paper`.

    TinyBERT's code chooses the best model by both correlations of STS-B.
    """
    train = settings[profile_name]
    if train.select == "best" and task == "STS-B":
        train = replace(train, select_by=("pearson", "spearman"))
    return replace(train, epochs=3) if profile_name == "paper" and task in long else train


def rows(profile_name, task):
    """Descriptor of the rows of searches and retraining."""
    if profile_name in ROWS:
        return grids.described(profile_name, task, ROWS[profile_name])
    return grids.dataset(profile_name, task)


def states(profile_name, kind="intermediate"):
    """The objective that matches attention scores and layer outputs."""
    return Objective(kind, attention=True, mask=profile_name != "paper")


def common(profile_name, task, train):
    return grids.common(profile_name, task, rows(profile_name, task), train=train)


def variants(profile_name, task):
    """Spec of augmented rows beside the rows of searches and retraining."""
    return grids.augmentation(profile_name, task, rows(profile_name, task))


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
    """Spec of a search, by default in a fine-tuned model that is its own teacher (5.5).

    times: multiple of the profile's epochs. enlarged: on augmented rows, at `paper` for one epoch
    (7.6). changes: of `gates`.
    """
    own = whole(profile_name, task, model)
    inputs = {
        "start": start or own,
        "augmented": variants(profile_name, task) if enlarged else None,
    }
    if objective.kind != "cross_entropy":
        inputs["teacher"] = guide or own
    told = common(profile_name, task, searching(profile_name, task, times, enlarged))
    return Spec("nas_search", told | {"gates": gates(**changes), "objective": objective}, inputs)


def drawn(profile_name, task, model=MAIN, **changes):
    """Spec of a random architecture of the same cost (Table 5)."""
    start = {"start": whole(profile_name, task, model)}
    return Spec("random_architecture", {"gates": gates(**changes)}, start)


def stages(
    profile_name, task, start, guide, found=None, augmented=False, epochs=None, objective=LOGITS
):
    """Spec of two stages of distillation from `start`: states first, then `objective`.

    found: the Spec that finds the architecture to train; None trains the whole model. epochs: of
    the two stages, else the profile's.
    """
    trains = [paced(of, profile_name, task) for of in (INTERMEDIATE, PREDICTION)]
    settings = [common(profile_name, task, train) for train in trains]
    if epochs:
        for told, number in zip(settings, epochs, strict=True):
            told["train"] = replace(told["train"], epochs=number)
    more = variants(profile_name, task) if augmented else None
    inputs = {"teacher": guide, "augmented": more}
    one, two = settings
    one |= {
        "objective": states(profile_name),
        "architecture": Output("search", "architecture") if found else None,
    }
    first = Spec("retrain", one, inputs | {"start": start, "search": found})
    return Spec("retrain", two | {"objective": objective}, inputs | {"start": first})


def pruned(
    profile_name, task, model=MAIN, objective=LOGITS, augmented=False, kept=False, **changes
):
    """Spec of procedure B (5.5): search in the fine-tuned model, cut, retrain with it as teacher.

    kept: start from the searched weights (7.8). changes: of `searched`.
    """
    own = whole(profile_name, task, model)
    found = searched(profile_name, task, model, objective, **changes)
    return stages(profile_name, task, found if kept else own, own, found, augmented)


def random(profile_name, task, model=MAIN, **changes):
    """Spec of a random architecture with the very same retraining."""
    own = whole(profile_name, task, model)
    return stages(profile_name, task, own, own, drawn(profile_name, task, model, **changes))


def procedure_a(profile_name, task, model=MAIN, **changes):
    """Spec of procedure A (5.4): a general model, with BERT-base as its teacher.

    Its two searches are one run under one moving target, with the epochs of both. It learns from
    states in its first half and from logits in the second.
    """
    start, guide = general(profile_name, model), whole(profile_name, task, "BERT-base")
    both = states(profile_name, "two_stage")
    found = searched(profile_name, task, model, both, start, guide, times=2, **changes)
    return stages(profile_name, task, start, guide, found)


def magnitude(profile_name, task, share, model="BERT-base"):
    """Spec of iterative magnitude pruning down to a share of the weights (Table 10).

    Each round is rewound to `model` and fine-tuned on the labels, as the dense model is. Raises
    ValueError for a share that is no round's.
    """
    known("kept share", share, ROUNDS[profile_name])
    origin = general(profile_name, model)
    dense = grids.teacher(profile_name, task, train=MAGNITUDE[profile_name])
    told = {name: dense.args[name] for name in ("data", "train", "numerics")}
    spec = replace(dense, inputs={"start": origin})
    for kept in ROUNDS[profile_name]:
        spec = Spec("imp", told | {"kept": kept}, {"start": spec, "origin": origin})
        if kept == share:
            return spec


# ---- GRIDS


def label(ratio, kind="NAS"):
    return f"{100 * ratio:.0f} % {kind}"


def cells(profile_name, task_names, seed_numbers, made):
    """One row for each task, model and seed. made: {model: f(profile name, task) -> Spec}."""

    def make(task, model):
        return made[model](profile_name, task)

    return grids.crossed(seed_numbers, make, task=task_names, model=made)


def changed(options, model=MAIN):
    """{name: f} of networks by procedure B, for `cells`; options: {name: what `pruned` is told}."""
    return {name: partial(pruned, model=model, **told) for name, told in options.items()}


def sizes(ratios=RATIOS, kinds=("NAS",)):
    """{name: f}, for `cells`: the whole model and networks of some ratios, "NAS" or "Random"."""
    make = {"NAS": pruned, "Random": random}
    return {"Whole": whole} | {
        label(ratio, kind): partial(make[kind], ratio=ratio) for ratio in ratios for kind in kinds
    }


def least(profile_name):
    """Share of the encoder's FLOPs that one head and one neuron in each layer leave."""
    of = shape(profile_name)
    one, whole = (
        gated.flops(of.hidden, of.hidden // of.heads, [{"heads": a, "ffn": f}] * of.layers)
        for a, f in ((1, 1), (of.heads, of.ffn))
    )
    return one / whole


def reachable(profile_name, ratios=RATIOS):
    """Those of some ratios that a search in the profile's encoder can reach. A small encoder has
    a high least one. Raises ValueError where it has none of them."""
    low = least(profile_name)
    there = [ratio for ratio in ratios if low <= ratio * (1 + gates().tolerance)]
    if not there:
        raise ValueError(f"ratios is {list(ratios)}; this encoder can have {low:.3f} or more")
    return there


def out_of_reach(profile_name, ratios=RATIOS):
    """A line for a page: the ratios that it skipped."""
    left = [f"{100 * r:.0f} %" for r in ratios if r not in reachable(profile_name, ratios)]
    why = (
        f"one head and one neuron in each layer are {100 * least(profile_name):.1f} % of the FLOPs"
    )
    return [f"Skipped: {', '.join(left)}, as {why}."] * bool(left)


def reporting(options):
    """The options of searches by name; "as reported" is as TOLD says."""
    return {
        name: (REPORTED if "as reported" in name else {}) | own for name, own in options.items()
    }


REPORTED, SCHEDULES, SPACES = map(TOLD.get, ("REPORTED", "SCHEDULES", "SPACES"))
CONTROL, DATA = reporting(TOLD["CONTROL"]), reporting(TOLD["DATA"])  # 7.5, 7.6
WEIGHTS = {  # Table 12
    text: REPORTED | ({} if text == "1" else {"weight": float(text)})
    for text in ("0.01", "0.1", "1", "10", "100")
}
START = {"Original weights": {}, "Searched weights": {"kept": True}}  # 7.8


def objectives(profile_name):
    """{name: f}, for `cells`: what the search learns from, and procedure A (section 7.3)."""
    told = {
        "Prediction distillation": {},
        "Cross-entropy": {"objective": Objective("cross_entropy")},
        "Intermediate distillation": {"objective": states(profile_name)},
        "Two stages": {"objective": states(profile_name, "two_stage")},
    }
    return changed(told) | {"Procedure A": procedure_a}


def compared(profile_name, model, task_names, seed_numbers, rival=None):
    """The grid of Tables 6 to 9: a network of 30 % beside the model that it is cut from.

    It is retrained on augmented rows where the report does so. rival: a model beside it that is not
    searched, instead of its own.
    """

    def network(scale, task):
        return pruned(scale, task, model, augmented=scale == "paper" and task in AUGMENTED)

    made, other = {f"30 % {model}": network}, rival or model
    if (profile_name, other) != ("mini", "BERT-Mini"):
        made = {other: partial(whole, model=other)} | made
    return cells(profile_name, task_names, seed_numbers, made)


def tested(profile_name, model, wanted, seeds, submit, rival=None):
    """Grids of Tables 6 to 9: networks to score, predictions of test rows, records at mini."""
    shown, own = tasks(profile_name, wanted, own=TEST), seeds or SEEDS[profile_name]
    scored = compared(profile_name, model, shown, own, rival)
    predicted = submitted(profile_name, scored) if submit and profile_name != "toy" else []
    return scored, predicted, compared("mini", model, TEST["mini"], SEEDS["mini"], rival)


def submitted(profile_name, scored):
    """The grid of submissions: the models of a grid of `compared`, at their first seed."""
    first = [row for row in scored if row["seed"] == scored[0]["seed"]]
    made = {(row["model"], row["task"]): row["spec"] for row in first}
    return submissions.submitted(
        profile_name,
        {row["task"] for row in first},
        [scored[0]["seed"]],
        lambda task, model: made[model, task],
        model=dict.fromkeys(row["model"] for row in first),
    )


def rivals(profile_name, task_names, seed_numbers):
    """The grid of Table 10: BERT-base, its network of 30 %, each round of magnitude pruning."""
    made = {"Whole": partial(whole, model="BERT-base")} | changed({"30 % NAS": {}}, "BERT-base")
    rounds = ROUNDS[profile_name]
    made |= {label(share, "IMP"): partial(magnitude, share=share) for share in rounds}
    return cells(profile_name, task_names, seed_numbers, made)


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
    told = {"images": IMAGES[profile_name], "numerics": profile("toy").numerics}

    def make(network, target):
        searched = {"gates": gates(target, regions=("inputs",), quota="all")}
        return Spec("digits", told | searched | {"perceptron": NETWORKS[network]})

    return grids.crossed(seed_numbers, make, network=NETWORKS, target=targets)


def clock(runs, length, batch):
    numerics = profile("toy").numerics
    return {"batch": batch, "length": length, "runs": runs, "numerics": numerics}


def latency(ratios=RATIOS, shape="tinybert-4", runs=50, length=128, batch=1):
    """Spec of forward passes at true size, with random weights.

    Networks of random architectures stand beside the whole model.
    """
    full = SHAPES[shape]
    widths = {"heads": full.heads, "ffn": full.ffn}
    number = {(layer, kind): n for layer in range(full.layers) for kind, n in widths.items()}
    cost = search.encoder(full.hidden, full.hidden // full.heads, [widths] * full.layers)
    ends = np.cumsum(list(number.values()))[:-1]
    models = {label(1.0, "Random"): {"shape": shape}}
    for ratio in ratios:
        on = search.random_architecture(gates(ratio), number, cost, 0)
        kept = [np.flatnonzero(part).tolist() for part in np.split(on, ends)]
        surgery = [{"op": "keep", "heads": kept[::2], "neurons": kept[1::2]}]
        models[label(ratio, "Random")] = {"shape": shape, "surgery": surgery}
    told = {"models": models, "reference": label(1.0, "Random")}
    return Spec("latency", told | clock(runs, length, batch), seed=0)


def clocked(profile_name, task_names, seed_numbers, runs=50):
    """The grid of forward passes of the size sweep: one row, of the first task and seed.

    Its networks are cut as they are, and stand beside the whole model. They are taken after the
    first stage of retraining, which keeps its weights for the second; the second stage changes no
    shape.
    """

    def make(task):
        models = {"model:Whole": whole(profile_name, task)}
        for ratio in RATIOS:
            found = pruned(profile_name, task, ratio=ratio).inputs["start"]
            models[f"model:{label(ratio)}"] = found
        return Spec("latency", {"reference": "Whole"} | clock(runs, 128, 8), models)

    return grids.crossed(seed_numbers[:1], make, task=task_names[:1])
