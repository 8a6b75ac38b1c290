"""What a run takes: FLOPs, time on a GPU, disk, and a place with cores and memory. Free of torch.

The FLOPs of a run are those of its matrix products, for each row and epoch: a forward pass of its
encoder as it starts, twice that for the gradient, and a forward pass of its teacher. Cuts are not
taken off, so this is an upper bound. Evaluations, single passes and timings are left out.
"""

from dataclasses import dataclass
from pathlib import Path

from lib.measure.cost import SHAPES, Shape, flops, parameters
from lib.papers import own
from lib.search import net as nets

# FLOP/s: its peak, times a share that training reaches
RATES = {"float32": 0.6 * 19.5e12, "bfloat16": 0.4 * 312e12}
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
REST = 0.7e9  # bytes of a process with torch and rows, and of what it takes of a GPU
SPARE = 1.75  # times the training's own memory, on a CPU (measured: tests/test_scale.py)
FREE = ("predict", "states", "inspect_ghosts", "maps")  # steps that train nothing


@dataclass(frozen=True)
class Cost:
    """FLOPs and GPU seconds of a run, and bytes of its weights and of its training."""

    flops: float
    seconds: float
    disk: float
    memory: float


@dataclass(frozen=True)
class Need:
    """The place that a run asks for: cores, a GPU or not, and bytes of memory there."""

    cores: int = 1
    card: bool = False
    memory: float = 1.0


def need(spec):
    """The Need of a run. Its memory is that of a process at rest, and of the training."""
    numerics = spec.args.get("numerics") or {}
    card = bool(numerics.get("device"))
    return Need(numerics.get("threads", 1), card, REST + cost(spec).memory * (1 if card else SPARE))


def origin(spec):
    """The Spec that makes the encoder which a Spec's model comes from; None for other models."""
    if spec.step in ("checkpoint", "pretrain"):
        return spec
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
    if (start := origin(spec)) and (count := SMALL.get(start.args.get("name"))):
        return (lambda tokens: 2 * tokens * count), count
    return (lambda tokens: flops(shape(spec), tokens)), parameters(shape(spec))


def shape(spec):
    """The Shape of the encoder that a Spec starts from; BERT-base's where nothing is known."""
    start = origin(spec)
    if start and start.step == "pretrain":
        told = start.args["model"]
        wide = told["hidden"]
        sizes = (told[name] for name in ("family", "layers", "hidden", "heads", "ffn"))
        return Shape(*sizes, 1000, 512, 2, told.get("embedding", wide))
    name = start and start.args["name"]
    if name and Path(name, "config.json").exists():
        return own.shape(name)
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
