"""GPU hours of the runs of profile `paper`, counted from their Specs. Free of torch.

A training step takes the FLOPs of a forward pass of the model as it starts, twice that for the
gradient, and a forward pass of its teacher. Cuts are not taken off, so this is an upper bound.
Evaluations, single passes and timings are left out.
"""

from lib.measure.cost import SHAPES
from lib.measure.cost import flops as forward_flops
from lib.search import net as nets

# FLOP/s of an A100 of 80 GB: its peak, times a share that training reaches
RATES = {"float32": 0.6 * 19.5e12, "bfloat16": 0.4 * 312e12}
RATE = "an A100 at 60 % of 19.5 TFLOP/s in float32, 40 % of 312 in bfloat16"
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


def gpu_hours(specs):
    """Hours that the trainings of some Specs take on one GPU (RATE), as text."""
    trained = [spec for spec in specs if spec.args.get("train")]
    seconds = sum(flops(spec) / RATES[spec.args["numerics"]["dtype"]] for spec in trained)
    return f"{seconds / 3600:,.1f} GPU hours"


def flops(spec):
    """FLOPs of a training; 0 for steps that train nothing."""
    train = spec.args["train"]
    if spec.step in FREE:
        return 0.0
    tokens = train.get("pad_to") or train["max_length"]
    teachers = [each for name, each in spec.inputs.items() if name.startswith("teacher")]
    passes = 3 * forward(spec, tokens) + (forward(teachers[-1], tokens) if teachers else 0)
    if spec.step == "search":  # its stages 1 and 2 train each candidate, with a teacher
        passes *= spec.args["search"]["budget"] if "teacher" in spec.inputs else 0
    return rows(spec) * train["epochs"] * passes


def forward(spec, tokens):
    """FLOPs of a forward pass of the model that a Spec trains, for one row of so many tokens."""
    if net := network(spec):
        return 2 * tokens * nets.macs(net, tokens)
    name = checkpoint(spec)
    if name in SMALL:
        return 2 * tokens * SMALL[name]
    return forward_flops(SHAPES.get(SHAPE_OF.get(name, name), SHAPES["bert-base"]), tokens)


def checkpoint(spec):
    """The name of the checkpoint that a Spec's model comes from; None for other models."""
    if spec.step == "checkpoint":
        return spec.args["name"]
    for name in ("start", "teacher", "model", "general", "language_model", "before"):
        if name in spec.inputs and (found := checkpoint(spec.inputs[name])):
            return found
    return None


def network(spec):
    """The Net that a Spec trains, of itself or where it starts; None for a plain encoder."""
    net = spec.args.get("net")
    if isinstance(net, dict) and "layers" in net:
        return nets.from_json(net)
    inherits = spec.step in ("warmup", "multitask", "search") and "start" in spec.inputs
    return network(spec.inputs["start"]) if inherits else None


def rows(spec):
    """Rows of an epoch, with those that augmentation adds; of several tasks together."""
    data, corpus = spec.args.get("data") or {}, spec.args.get("corpus")
    if corpus and spec.step != "search":
        return corpus.get("documents", DOCUMENTS)
    tasks = [data] if "task" in data else data.values()
    count = sum(task.get("rows") or ROWS.get(task["task"], PROBING) for task in tasks)
    extra = spec.inputs["augmented"].args["augment"]["tries"] if "augmented" in spec.inputs else 0
    return count * (1 + extra)
