"""EfficientBERT's students: networks that inherit weights, and learn attention, states and
predictions of a teacher (section 3.2), in pre-training and in fine-tuning alike.

Shapes: B batch, T tokens, H hidden, C classes.
"""

import json
import random
from dataclasses import replace

import torch
import transformers
from safetensors.torch import load_file, save_file

from lib.model import backbone, supernet
from lib.model.parts import base, layers, set_dropout
from lib.runs.spec import stream
from lib.search.net import from_json, parameters
from lib.train import heads, loop, losses
from lib.train.matching import Match, imitating, layer_map, projected
from lib.train.options import Shared, Targets

SURGERY = "surgery.json"  # beside a run's model: what steps operate and distil did, with reports
PROJECTION = "projection.safetensors"  # beside a student's weights: it serves distillation alone
MAP = "maps.0."  # before the names in that file
HEADS = "heads.safetensors"  # beside a shared encoder's weights: one classifier for each task
DRAWS = 10_000  # of parts of a supernet, before the window is taken for empty


# ---- What is compared ----
def matches(student, teacher, options, heads=()):
    """List what equations 1 and 2 compare, of a lib.train.options.Warmup. heads: those of the
    teacher that each layer of a cut student still has.
    """
    pairs = layer_map(len(layers(student)), len(layers(teacher)))
    distance = losses.zeroed if options.zero else losses.over_tokens
    return [
        Match("hidden", "ffn", pairs, options.mask, projected=True),
        Match("embedding", "embedding", mask=options.mask, projected=True),
        Match("attention", "scores", pairs, options.mask, heads=heads, distance=distance),
    ]


def prediction(logits, teacher, labels, options):
    """Return equation 3: soft cross-entropy at temperature 1, averaged over batch and classes.

    logits, teacher [B, C], or of spans [B, 2, T], where the losses of the two ends are summed;
    labels [B]. A regression is squared error, to the label with `options.gold`, else to the
    teacher's score.
    """
    ends = 2 if logits.dim() == 3 else 1
    if options.hide_first and ends == 2:
        first = torch.arange(logits.shape[2], device=logits.device) == 0
        logits, teacher = (x.masked_fill(first, loop.ABSENT) for x in (logits, teacher))
    kind = "hard" if options.gold and logits.shape[1] == 1 else "soft"
    return ends * losses.prediction(logits, labels, Targets(kind), teacher)["loss"]


def predicted(labels, options):
    """Return the prediction part of lib.train.matching.matching; None without one. labels: of all
    rows.
    """

    def compare(logits, teacher, rows):
        return prediction(logits, teacher, labels[rows].to(logits.device), options)

    return (options.prediction, compare) if options.prediction else None


def distilling(student, teacher, options, numerics, labels=None, heads=()):
    """Return the objective that learns attention and states of a teacher, and with the labels of
    all rows its predictions. heads: as in `matches`.
    """
    told = () if labels is None else (logits, predicted(labels, options))
    return imitating(student, teacher, matches(student, teacher, options, heads), numerics, *told)


def logits(model, batch, _):
    return loop.outputs(model, batch)


# ---- Students ----
def for_task(run, net, task, teacher, dropout):
    """Return a student under the head of a task: see `student`. A `start` that was cut, or has
    ghosts, is the student as it is.
    """
    start = run.inputs.get("start")
    if net is None and start and (start.folder / SURGERY).exists():
        seed = stream(run.seed, "head")
        torch.manual_seed(seed)  # where the head is there, this decides the projection
        model = heads.network(start.model, task, dropout, seed)[0]
        model.projection = projected(model.config.hidden_size, teacher.config.hidden_size)
        return model
    cls = getattr(transformers, f"BertFor{heads.HEADS[task.span]}")
    return student(run, net, cls, teacher, dropout, num_labels=task.outputs)


def heads_of_cut(run):
    """Return L lists: the teacher's heads that a cut `start` still has, in its order; () for
    others.
    """
    path = run.inputs["start"].folder / SURGERY if "start" in run.inputs else None
    reports = json.loads(path.read_text()) if path and path.exists() else []
    return next((each["report"]["heads"] for each in reports if each["surgery"]["op"] == "cut"), ())


def student(run, net, cls, teacher, dropout, **config):
    """Return a model of class `cls` for a net (JSON), with a linear map to the teacher's width as
    `student.projection`.

    The weights of encoder and projection come from the run's input `start`, a student or a
    supernet, where there is one. What is not there is drawn from the run's seed, and so is a head
    in any case. Without a net, it is that of `start`.
    """
    start = run.inputs.get("start")
    larger = start and backbone.load(start.model)[0]
    torch.manual_seed(stream(run.seed, "student"))
    net = supernet.of(larger) if net is None else net
    model = supernet.build(net, cls, teacher.config, **config)
    model.projection = projected(model.config.hidden_size, teacher.config.hidden_size)
    if start:
        supernet.inherit(model, base(larger))
        weight, bias = projection(start.model) or (None, ())
        if len(bias) == len(model.projection.bias):
            put(model.projection, weight, bias)
    set_dropout(model, dropout)
    return model


def projection(folder):
    """Return (weight, bias) of the linear map beside a student's weights; None where there is
    none.
    """
    path = folder / PROJECTION
    there = load_file(path) if path.exists() else {}
    return tuple(there[MAP + name] for name in ("weight", "bias")) if there else None


def save_tensors(tensors, folder, name):
    """Write tensors to a file of a folder. `folder` None: nobody needs them."""
    if folder is not None:
        folder.mkdir(exist_ok=True)
        made = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
        save_file(made, folder / name)


# ---- Heads of several tasks ----
def classifier(folder, name):
    """Return (classifier, tokenizer) of one task of a run of step multitask: the shared encoder
    under that task's own head. Raises KeyError for a task that it has not learned.
    """
    encoder, tokenizer = backbone.load(folder)
    return with_head(encoder, *head(folder, name)), tokenizer


def head(folder, name):
    """Return (weight [C, H], bias [C]) of one task's head in the folder of a run of step
    multitask.
    """
    there = load_file(folder / HEADS)
    return there[f"{name}.weight"], there[f"{name}.bias"]


def with_head(encoder, weight, bias):
    """Return a classifier with a copy of an encoder's weights and of a head's, on its device, in
    eval mode.
    """
    cls, labels = transformers.BertForSequenceClassification, len(bias)
    model = supernet.build(supernet.of(encoder), cls, encoder.config, num_labels=labels)
    supernet.inherit(model.to(bias.device), encoder)
    put(model.classifier, weight, bias)
    return model.eval()


def put(linear, weight, bias):
    """Fill a dense layer with the first columns of a weight that is at least as wide."""
    with torch.no_grad():
        linear.weight.copy_(weight[:, : linear.in_features])
        linear.bias.copy_(bias)


# ---- Methods of the training ----
def methods(run, student, shared=None):
    """List the methods of a warm-up: with `shared` (options as a dict) each step trains a part."""
    parts = [Parts(student, Shared(**shared), run.seed)] if shared else []
    return [*parts, Kept(run, student)]


class Kept(loop.Method):
    """What a run keeps of a warm-up beside the model: the loss and its parts over some 500 steps as
    `curve`, and the student's projection, which leaves the model when the training ends.
    """

    def __init__(self, run, student):
        self.run, self.student = run, student

    def finish(self):
        self.run.save_arrays("curve", **self.run.logged("curve"))
        tensors = self.student.projection.state_dict(prefix=MAP)
        del self.student.projection
        save_tensors(tensors, self.run.model, PROJECTION)
        return {}


class Parts(loop.Method):
    """Each step trains one part of a supernet (lib.train.options.Shared); the finished model is the
    whole one again.
    """

    def __init__(self, student, shared, seed):
        self.student, self.shared, self.seed = student, shared, seed
        self.whole = from_json(supernet.of(student))
        self.tables = tables(student.config, student.projection.out_features)

    def before(self, step, steps):
        supernet.choose(self.student, part(self.whole, self.shared, self.seed, step, **self.tables))

    def finish(self):
        supernet.choose(self.student)
        return {}


def tables(config, teacher):
    """Return what the size of a network depends on beside its Net. teacher: the width of the
    teacher.
    """
    return {
        "teacher": teacher,
        "vocab": config.vocab_size,
        "positions": config.max_position_embeddings,
        "types": config.type_vocab_size,
    }


def part(whole, shared, seed, step, **tables):
    """Return the part of a supernet that a step trains, a function of seed and step alone (stage
    3). The stack and the ratio of each layer are drawn from its choices, all of them again until
    the size is in the window, as in the code.

    whole: the supernet's Net. tables: as `lib.search.net.parameters` takes them. Raises ValueError
    where no draw is in the window.
    """
    dice = random.Random(stream(seed, f"part:{step}"))
    for _ in range(DRAWS):
        layers = tuple(
            replace(layer, stack=k, q=q)
            for layer, (k, q) in zip(whole.layers, map(dice.choice, shared.choices), strict=True)
        )
        net = replace(whole, layers=layers)
        size = parameters(net, "with projection", **tables)
        if shared.window[0] <= size <= shared.window[1]:
            return net
    raise ValueError(f"Shared.window is {shared.window}; none of {DRAWS} draws is in it: move it")
