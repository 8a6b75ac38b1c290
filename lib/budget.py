"""What runs at the paper's size would cost, counted: GPU hours, disk and memory. Free of torch.

The FLOPs of a run are those of its matrix products, for each row and epoch: a forward pass of its
encoder as it starts, twice that for the gradient, and a forward pass of its teacher. Cuts are not
taken off, so this is an upper bound. Evaluations, single passes and timings are left out.
"""

import json
from dataclasses import dataclass

from lib import data, sweep
from lib.measure.cost import SHAPES, flops, parameters
from lib.page import notebook
from lib.search import net as nets

GPU, HOURS = "an A100 of 80 GB", 10.0  # of a night
# FLOP/s: its peak, times a share that training reaches
RATES = {"float32": 0.6 * 19.5e12, "bfloat16": 0.4 * 312e12}
SHARES = "60 % of 19.5 TFLOP/s in float32, 40 % of 312 in bfloat16"
# Training rows of the official files; of a probing task, and documents of Wikipedia and books, of
# which 2 % are 120,000.
ROWS = {"MNLI": 392702, "QQP": 363846, "QNLI": 104743, "SST-2": 67349, "CoLA": 8551, "STS-B": 5749}
ROWS |= {"MRPC": 3668, "RTE": 2490, "WNLI": 635, "SQuAD1": 88524, "SQuAD2": 132034}
PROBING, DOCUMENTS = 100_000, 6_000_000
SMALL = {"bert-mini": 11_000_000}  # parameters of an encoder without a shape
SHAPE_OF = {  # of checkpoints with another name
    "bert-base-uncased": "bert-base",
    "2nd_General_TinyBERT_4L_312D": "tinybert-4",
    "2nd_General_TinyBERT_6L_768D": "tinybert-6",
}
FREE = ("predict", "states", "inspect_ghosts", "maps")  # steps that train nothing


@dataclass(frozen=True)
class Cost:
    """FLOPs and GPU seconds of a run, and bytes of its weights and of its training."""

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
    inherits = spec.step in ("warmup", "multitask", "search") and "start" in spec.inputs
    return network(spec.inputs["start"]) if inherits else None


def size(spec):
    """(forward FLOPs of a row of T tokens: f(T), parameters) of the model that a Spec trains."""
    if net := network(spec):
        return (lambda tokens: 2 * tokens * nets.macs(net, tokens)), nets.parameters(net)
    if count := SMALL.get(origin(spec)):
        return (lambda tokens: 2 * tokens * count), count
    return (lambda tokens: flops(shape(spec), tokens)), parameters(shape(spec))


def shape(spec):
    """The Shape of the encoder that a Spec starts from; BERT-base's where nothing is known."""
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
    """The Cost of a run; only its disk where it trains nothing."""
    train, dtype = spec.args.get("train"), (spec.args.get("numerics") or {}).get("dtype", "float32")
    forward, weights = size(spec)
    if not train or spec.step in FREE:
        return Cost(0.0, 0.0, 4.0 * weights, 0.0)
    tokens, guide = train.get("pad_to") or train["max_length"], 0.0
    for name, teacher in spec.inputs.items():
        if name.startswith("teacher"):
            guide = size(teacher)[0](tokens)
    work = rows(spec) * train["epochs"] * (3 * forward(tokens) + guide)
    if spec.step == "search":  # stages that train each of their candidates
        work *= spec.args["search"]["budget"] if "teacher" in spec.inputs else 0
    memory = 16.0 * weights + kept(spec, train["batch"], tokens) * (2 if dtype == "float32" else 1)
    return Cost(work, work / RATES[dtype], 4.0 * weights, memory)


def kept(spec, batch, tokens):
    """Bytes that the layers keep for the gradient, 34 B T H + 5 A B T T numbers of two bytes.

    Source: Korthikanti et al. 2022, section 4. In float32 it is twice that. Weights, their gradient
    and two moments come on top.
    """
    net, own = network(spec), shape(spec)
    layers, hidden, heads = own.layers, own.hidden, own.heads
    if net:
        layers, hidden, heads = len(net.layers), net.hidden, 12
    return layers * batch * tokens * (34 * hidden + 5 * heads * tokens)


def told(specs):
    """GPU hours, disk and memory of runs as text.

    Weights are counted where another run needs them.
    """
    costs = [cost(spec) for spec in specs]
    needed = {parent for spec in specs for parent in spec.parents.values()}
    disk = sum(each.disk for spec, each in zip(specs, costs, strict=True) if spec in needed)
    seconds = sum(each.seconds for each in costs)
    memory = max((each.memory for each in costs), default=0)
    weights = f"{disk / 1e9:,.0f} GB of weights, {memory / 1e9:.0f} GB of memory"
    return f"{seconds / 3600:,.1f} GPU hours, {weights}"


def hours(specs):
    return sum(cost(spec).seconds for spec in specs) / 3600


def plan(patterns, store):
    """Lines on what the profile `paper` would cost, page by page.

    They can be told where neither data nor checkpoints are at hand, and say then what is absent.
    """
    every, night = {}, []

    def missing(path, more=()):
        grids = notebook.grids(path, {"profile": "paper", **dict(more)})
        return sweep.plan(notebook.wanted(grids), store).missing

    with data.planning() as absent:
        for path in notebook.find(patterns):
            runs = missing(path)
            every |= runs
            if runs:
                yield f"{path.stem}: {len(runs)} runs missing, {told(runs)}"
            if {"tasks", "seeds"} <= notebook.parameters(path).keys():
                night += part_of_a_night(path, missing)
    bound = f"counted, an upper bound, at the rate of {GPU}: {SHARES}"
    yield f"together {len(every)} runs missing, {told(every)}; {bound}"
    yield f"not at hand: {', '.join(sorted(absent)) or 'nothing'}"
    if night:
        needed, stem, more = max(night)
        options = " ".join(f"-y '{name}: {json.dumps(value)}'" for name, value in more)
        command = f"DEVICE=cuda papermill notebooks/{stem}.ipynb out.ipynb -p profile paper"
        yield f"one GPU and one night ({needed:.1f} h): {command} {options}"


def part_of_a_night(path, missing):
    """[(GPU hours, notebook, parameters)] of a page's smallest task at one seed.

    Empty where that takes more than a night.
    """
    for task in ("RTE", "CoLA"):
        try:
            more = (("tasks", [task]), ("seeds", [0]))
            needed = hours(missing(path, more))
        except ValueError:
            continue  # the page has settings for other tasks alone
        if 0 < needed <= HOURS:
            return [(needed, path.stem, more)]
    return []
