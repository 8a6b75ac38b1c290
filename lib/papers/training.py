"""GPU hours of the runs of profile `paper`, counted from their Specs; seconds of those of a
reader's model, by a measured step. Free of torch.

A training step takes the FLOPs of a forward pass of the model as it starts, twice that for the
gradient, and a forward pass of its teacher. Cuts are not taken off, so this is an upper bound.
Evaluations, single passes and timings are left out.
"""

from dataclasses import replace

from lib.measure.cost import SHAPES
from lib.measure.cost import flops as flops_of
from lib.papers import grids
from lib.search import net as nets
from lib.train.options import Train

# FLOP/s of an A100 of 80 GB: its peak, times a share that training reaches
SPEED, RATE = 0.6 * 19.5e12, "an A100 at 60 % of 19.5 TFLOP/s in float32"
# Training rows of the official files; of a probing task, and documents of Wikipedia and books, of
# which 2 % are 120,000.
ROWS = {"MNLI": 392702, "QQP": 363846, "QNLI": 104743, "SST-2": 67349, "CoLA": 8551, "STS-B": 5749}
ROWS |= {"MRPC": 3668, "RTE": 2490, "WNLI": 635, "SQuAD1": 88524, "SQuAD2": 132034}
PROBING, DOCUMENTS = 100_000, 6_000_000
ENCODERS = SHAPES | {  # those that are not BERT-base, by the names of their checkpoints
    "2nd_General_TinyBERT_4L_312D": SHAPES["tinybert-4"],
    "2nd_General_TinyBERT_6L_768D": SHAPES["tinybert-6"],
}
STARTS = ("start", "teacher", "model", "general", "language_model", "before")  # inputs
FREE = ("predict", "states", "maps")  # steps that train nothing


def gpu_hours(specs):
    """Hours that the trainings of some Specs take on one GPU (RATE), as text."""
    return f"{sum(map(flops, specs)) / SPEED / 3600:,.1f} GPU hours"


def seconds(profile_name, specs, pace):
    """Seconds of the trainings of some Specs on one core; None where nothing is trained, of spans,
    and without data and a model of the reader's.

    pace: f(folder, name of the data, Train) -> rows a second, measured (lib.pace).
    """
    name, folder = grids.of(profile_name, "data"), grids.of(profile_name, "model")
    specs = [spec for spec in specs if flops(spec)]
    if not (name and folder and specs) or grids.asked(profile_name):
        return None
    train = replace(Train(**specs[0].args["train"]), epochs=1, select="last")
    one = 3 * forward(grids.backbone(profile_name), train.pad_to or train.max_length)
    return sum(map(flops, specs)) / one / pace(folder, name, train)


def flops(spec):
    """FLOPs of a training; 0 for steps that train nothing."""
    train = spec.args.get("train")
    if not train or spec.step in FREE:
        return 0.0
    tokens = train.get("pad_to") or train["max_length"]
    teachers = [each for name, each in spec.inputs.items() if name.startswith("teacher")]
    passes = 3 * forward(spec, tokens) + (forward(teachers[-1], tokens) if teachers else 0)
    if spec.step == "search":  # its stages 1 and 2 train each candidate, with a teacher
        passes *= spec.args["search"]["budget"] if teachers else 0
    return rows(spec) * train["epochs"] * passes


def forward(spec, tokens):
    """FLOPs of a forward pass of the model that a Spec trains, for one row of so many tokens: its
    network, or the encoder that it descends from."""
    net = spec.args.get("net")
    if isinstance(net, dict) and "layers" in net:
        return 2 * tokens * nets.macs(nets.from_json(net), tokens)
    origin = next((spec.inputs[name] for name in STARTS if name in spec.inputs), None)
    if origin:
        return forward(origin, tokens)
    name = spec.args.get("name", "")
    return flops_of(
        grids.shape_of(name) if "/" in name else ENCODERS.get(name, SHAPES["bert-base"]), tokens
    )


def rows(spec):
    """Rows of an epoch, with those that augmentation adds; of several tasks together."""
    data, corpus = spec.args.get("data") or {}, spec.args.get("corpus")
    if corpus and spec.step != "search":
        return corpus.get("documents", DOCUMENTS)
    tasks = [data] if "task" in data else data.values()
    count = sum(task.get("rows") or ROWS.get(task["task"], PROBING) for task in tasks)
    extra = spec.inputs["augmented"].args["augment"]["tries"] if "augmented" in spec.inputs else 0
    return count * (1 + extra)
