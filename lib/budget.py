"""What runs at the paper's size would cost, counted: GPU hours, disk and memory. Free of torch.

FLOPs of a run are those of its matrix products: a forward pass of its encoder as it starts (cuts are not taken off, so this
is an upper bound), twice that for the gradient, and a forward pass of its teacher, for each row and epoch. Evaluations,
single passes and timings are left out.
"""

import json
from dataclasses import dataclass

from lib import data, sweep
from lib.measure.cost import SHAPES, flops, parameters
from lib.page import notebook
from lib.search import net as nets

GPU, HOURS = "an A100 of 80 GB", 10.0  # of a night
RATES = {
    "float32": 0.6 * 19.5e12,
    "bfloat16": 0.4 * 312e12,
}  # FLOP/s: its peak, times a share that training reaches
SHARES = "60 % of 19.5 TFLOP/s in float32, 40 % of 312 in bfloat16"
# Training rows of the official files; of a probing task, and documents of Wikipedia and books (2 % of it are 120,000).
ROWS = {
    "MNLI": 392702,
    "QQP": 363846,
    "QNLI": 104743,
    "SST-2": 67349,
    "CoLA": 8551,
    "STS-B": 5749,
    "MRPC": 3668,
    "RTE": 2490,
    "WNLI": 635,
    "SQuAD1": 88524,
    "SQuAD2": 132034,
}
PROBING, DOCUMENTS = 100_000, 6_000_000
SMALL = {"bert-mini": 11_000_000}  # parameters of an encoder without a shape
SHAPE_OF = {
    "bert-base-uncased": "bert-base",
    "2nd_General_TinyBERT_4L_312D": "tinybert-4",
    "2nd_General_TinyBERT_6L_768D": "tinybert-6",
}  # of checkpoints with another name


@dataclass(frozen=True)
class Cost:
    """FLOPs and GPU seconds of a run, parameters of its model, and bytes of its weights and of training it."""

    flops: float
    seconds: float
    disk: float
    memory: float


def origin(spec):
    """Name of the checkpoint that a Spec's model comes from; None for other sources."""
    if spec.step == "checkpoint":
        return spec.args["name"]
    for name in ("start", "teacher", "model", "general", "language_model", "before"):
        if name in spec.inputs and (found := origin(spec.inputs[name])):
            return found
    return None


def network(spec):
    """The Net that a Spec trains, of itself or where it starts; None for a plain encoder."""
    if isinstance(told := spec.args.get("net"), dict) and "layers" in told:
        return nets.from_json(told)
    return (
        network(spec.inputs["start"])
        if spec.step in ("warmup", "multitask", "search") and "start" in spec.inputs
        else None
    )


def size(spec):
    """(forward FLOPs of a row of T tokens: f(T), parameters) of the model that a Spec trains."""
    if net := network(spec):
        return (lambda tokens: 2 * tokens * nets.macs(net, tokens)), nets.parameters(net)
    if count := SMALL.get(origin(spec)):
        return (lambda tokens: 2 * tokens * count), count
    return (lambda tokens: flops(shape(spec), tokens)), parameters(shape(spec))


def shape(spec):
    """The Shape of the encoder that a Spec starts from; where nothing is known of it, BERT-base's."""
    name = origin(spec)
    return SHAPES.get(SHAPE_OF.get(name, name), SHAPES["bert-base"])


def rows(spec):
    """Rows of an epoch, with those that augmentation adds; of several tasks together."""
    data, text = spec.args.get("data") or {}, spec.args.get("corpus") or spec.args.get("pretrain")
    if "corpus" in spec.args and spec.step != "search":
        return text.get("documents") or text.get("sentences") or DOCUMENTS
    told = [data] if "task" in data else list(data.values())
    count = sum(each.get("rows") or ROWS.get(each["task"], PROBING) for each in told)
    extra = spec.inputs["augmented"].args["augment"]["tries"] if "augmented" in spec.inputs else 0
    return count * (1 + extra)


def cost(spec):
    """The Cost of a run; nothing where it trains nothing."""
    train, numerics = spec.args.get("train"), spec.args.get("numerics") or {}
    trains = train and spec.step not in ("predict", "states", "inspect_ghosts", "maps")
    forward, weights = size(spec)
    disk = 4.0 * weights
    if not trains:
        return Cost(0.0, 0.0, disk, 0.0)
    tokens, guide = train.get("pad_to") or train["max_length"], 0.0
    for name, teacher in spec.inputs.items():
        if name.startswith("teacher"):
            guide = size(teacher)[0](tokens)
    work = rows(spec) * train["epochs"] * (3 * forward(tokens) + guide)
    if spec.step == "search":  # stages that train each of their candidates
        work *= spec.args["search"]["budget"] if "teacher" in spec.inputs else 0
    return Cost(
        work,
        work / RATES[numerics.get("dtype", "float32")],
        disk,
        memory(spec, train, tokens, weights),
    )


def memory(spec, train, tokens, weights):
    """Bytes of training: weights, gradient and two moments, and what a layer keeps for the gradient, 34 B T H + 5 A B T T
    numbers of two bytes (Korthikanti et al. 2022, section 4), twice that in float32."""
    net, own = network(spec), shape(spec)
    layers, hidden, heads = (
        (len(net.layers), net.hidden, 12) if net else (own.layers, own.hidden, own.heads)
    )
    kept = layers * train["batch"] * tokens * (34 * hidden + 5 * heads * tokens)
    return 16.0 * weights + kept * (
        2 if (spec.args.get("numerics") or {}).get("dtype") == "float32" else 1
    )


def told(specs):
    """GPU hours, disk and memory of runs as text; weights are counted where another run needs them."""
    costs = [cost(spec) for spec in specs]
    needed = {parent for spec in specs for parent in spec.parents.values()}
    disk = sum(each.disk for spec, each in zip(specs, costs, strict=True) if spec in needed)
    return (
        f"{sum(each.seconds for each in costs) / 3600:,.1f} GPU hours, {disk / 1e9:,.0f} GB of weights, "
        f"{max((each.memory for each in costs), default=0) / 1e9:.0f} GB of memory"
    )


def hours(specs):
    return sum(cost(spec).seconds for spec in specs) / 3600


def plan(patterns, store):
    """Lines on what the profile `paper` would cost, page by page, also where neither data nor checkpoints are at hand: then
    they say what is absent."""
    every, night = {}, []
    with data.planning() as absent:
        for path in notebook.find(patterns):

            def missing(more=(), path=path):
                return sweep.plan(
                    notebook.wanted(notebook.grids(path, {"profile": "paper", **dict(more)})), store
                ).missing

            runs = missing()
            every |= runs
            if runs:
                yield f"{path.stem}: {len(runs)} runs missing, {told(runs)}"
            if {"tasks", "seeds"} <= notebook.parameters(path).keys():
                night += part_of_a_night(path, missing)
    yield f"together {len(every)} runs missing, {told(every)}; counted, an upper bound, at the rate of {GPU}: {SHARES}"
    yield f"not at hand: {', '.join(sorted(absent)) or 'nothing'}"
    if night:
        needed, stem, more = max(night)
        options = " ".join(f"-y '{name}: {json.dumps(value)}'" for name, value in more)
        yield (
            f"one GPU and one night ({needed:.1f} h): DEVICE=cuda papermill notebooks/{stem}.ipynb out.ipynb -p profile paper "
            f"{options}"
        )


def part_of_a_night(path, missing):
    """[(GPU hours, notebook, parameters)] of a page's smallest task at one seed, where that takes a night at most."""
    for task in ("RTE", "CoLA"):
        try:
            more = (("tasks", [task]), ("seeds", [0]))
            needed = hours(missing(more))
        except ValueError:
            continue  # the page has settings for other tasks alone
        if 0 < needed <= HOURS:
            return [(needed, path.stem, more)]
    return []
