"""Warm-up distillation (EfficientBERT section 3.2): raw attention scores, projected hidden states and predictions of a
teacher, in pre-training and in fine-tuning alike.

Shapes: B batch, T tokens, H hidden, A heads, L layers, C classes; s and t for student and teacher.
"""

import copy
import random
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn

from lib.model import backbone, stack
from lib.model.scores import watch
from lib.model.taps import taps
from lib.options import Targets
from lib.search.net import parameters
from lib.spec import known, stream
from lib.store import Run
from lib.train import heads, loop, losses
from lib.train.lean import frozen, lean

PROJECTION = "projection.safetensors"  # beside a student's weights: it serves distillation alone
HEADS = "heads.safetensors"  # beside a shared encoder's weights: one classifier for each task
DRAWS = 10_000  # of parts of a supernet, before the window is taken for empty


# ---- What is compared ----


class Projection(nn.Module):
    """The student's states as wide as the teacher's: linear maps with bias, N(0, 0.02) at first."""

    def __init__(self, kind, width, wanted, layers):
        super().__init__()
        count = {"shared": 1, "separate": 2, "layers": 1 + layers}[kind]
        self.maps = nn.ModuleList(nn.Linear(width, wanted) for _ in range(count))
        for each in self.maps:
            nn.init.normal_(each.weight, 0.0, 0.02)
            nn.init.zeros_(each.bias)

    def forward(self, number, x):
        """State `number` of the student [B, T, H_s] to [B, T, H_t]: 0 is the embedding, then the layers' outputs."""
        return self.maps[min(number, len(self.maps) - 1)](x)

    def inherit(self, tensors):
        """Take what fits of an earlier projection's tensors: the leading columns of maps of the same number."""
        for name, value in self.state_dict().items():
            if (
                name in tensors
                and tensors[name].shape[0] == value.shape[0]
                and tensors[name].shape[-1] >= value.shape[-1]
            ):
                value.copy_(tensors[name][..., : value.shape[-1]])


def layer_map(student, teacher):
    """[(student layer, teacher layer)], from 0: m of 1..L_s goes with m L_t / L_s, where that is a whole number; so a
    deeper student has layers that match none. Raises ValueError where neither depth divides the other."""
    if student % teacher and teacher % student:
        raise ValueError(
            f"a student of {student} layers and a teacher of {teacher}: one must be a multiple of the other"
        )
    return [
        (m - 1, m * teacher // student - 1)
        for m in range(1, student + 1)
        if m * teacher % student == 0
    ]


def zeroed(scores, mask):
    """Scores [B, A, T, T] with 0 at padded keys and wherever they are at most -100, as the code has them."""
    return scores.masked_fill((mask[:, None, None, :] == 0) | (scores <= -100), 0.0)


def attention_distance(mine, theirs, mask, options):
    """Mean squared error of two layers' attention (equation 1), over batch, heads, queries and keys.

    mine, theirs: scores [B, A, T, T] before the mask; mask [B, T]. With `options.mask` over pairs of real tokens alone.
    """
    mine, theirs = mine.float(), theirs.float()
    if options.attention == "probabilities":
        mine, theirs = (
            x.masked_fill(mask[:, None, None, :] == 0, loop.ABSENT).softmax(-1)
            for x in (mine, theirs)
        )
    elif options.zero:
        mine, theirs = zeroed(mine, mask), zeroed(theirs, mask)
    square = (mine - theirs).square()
    if not options.mask:
        return square.mean()
    real = (mask[:, :, None] * mask[:, None, :]).to(square.dtype)
    return (square.mean(1) * real).sum() / real.sum()


def states(student, teacher, projection, mask, options):
    """Parts of the loss on states (equations 1 and 2), each summed over the matched layers with unit weights.

    student, teacher: what `observed` gives, {"embedding" [B, T, H], "ffn" and "scores" L each}. mask [B, T].
    """
    pairs, real = (
        layer_map(len(student["ffn"]), len(teacher["ffn"])),
        mask if options.mask else None,
    )
    parts = {
        "hidden": sum(
            losses.mean_square(projection(m + 1, student["ffn"][m]), teacher["ffn"][n], real)
            for m, n in pairs
        ),
        "embedding": losses.mean_square(
            projection(0, student["embedding"]), teacher["embedding"], real
        ),
    }
    if options.attention != "none":
        heads = [each["scores"][0].shape[1] for each in (student, teacher)]
        if heads[0] != heads[1]:
            raise ValueError(
                f"{heads[0]} heads in the student, {heads[1]} in the teacher: their attention cannot be "
                'matched; take as many, or Warmup.attention "none"'
            )
        parts["attention"] = sum(
            attention_distance(student["scores"][m], teacher["scores"][n], mask, options)
            for m, n in pairs
        )
    return parts


def prediction(logits, teacher, labels, options):
    """The prediction loss (equation 3): soft cross-entropy at temperature 1, averaged over batch and classes.

    logits, teacher [B, C], or of spans [B, 2, T], where the two ends' losses are summed; labels [B]. A regression is
    squared error, to the label with `options.gold`, else to the teacher's score.
    """
    ends = 2 if logits.dim() == 3 else 1
    if options.hide_first and ends == 2:
        first = torch.arange(logits.shape[2], device=logits.device) == 0
        logits, teacher = (x.masked_fill(first, loop.ABSENT) for x in (logits, teacher))
    hard = options.gold and logits.shape[1] == 1
    return (
        ends
        * losses.prediction(
            logits, labels, Targets("hard" if hard else "soft", options.sum_classes), teacher
        )["loss"]
    )


@contextmanager
def observed(model):
    """Within, each forward fills the yielded dict: the states of lib.model.taps, and L raw attention scores as "scores"
    (lib.model.scores). It stays right when a supernet's active part changes."""
    with taps(model) as seen, watch(model) as seen["scores"]:
        yield seen


@contextmanager
def matching(student, teachers, options, numerics):
    """Within, f(name, batch, mine, theirs, labels) -> the loss and its parts (equation 4) on a batch, against one of
    `teachers`, {name: model}. mine, theirs: f() -> logits, or None, of student and teacher; they run the models. The student has
    its Projection as `student.projection`."""
    with ExitStack() as held:
        for teacher in teachers.values():
            held.enter_context(lean(frozen(teacher, numerics), numerics))
        seen = held.enter_context(observed(student))
        told = {name: held.enter_context(observed(teacher)) for name, teacher in teachers.items()}

        def loss(name, batch, mine, theirs, labels=None):
            with torch.no_grad():
                wanted = theirs()
            logits = mine()
            parts = states(seen, told[name], student.projection, batch["attention_mask"], options)
            total = sum(parts.values())
            if options.prediction:
                parts["prediction"] = prediction(logits, wanted, labels, options)
                total = total + options.prediction * parts["prediction"]
            return {"loss": total, **parts}

        yield loss


# ---- Parts of a supernet ----


def sampler(student, shared, seed):
    """f(step): let the student run as the part that this step trains; nothing without `shared` (lib.options.Shared)."""
    if shared is None:
        return lambda step: None
    whole, config = stack.of(student), student.config
    tables = {
        "teacher": student.projection.maps[0].out_features,
        "vocab": config.vocab_size,
        "positions": config.max_position_embeddings,
        "types": config.type_vocab_size,
    }
    return lambda step: stack.choose(student, part(whole, shared, seed, step, **tables))


def part(whole, shared, seed, step, **tables):
    """The part of a supernet that a step trains, a function of (seed, step) alone: each layer's stack and ratio from its
    choices, all drawn again until the size is in the window, as the code does (stage 3).

    whole: the supernet's Net; tables: as `lib.search.net.parameters` takes them. Raises ValueError where no draw is in
    the window.
    """
    if len(shared.choices) != len(whole.layers):
        raise ValueError(
            f"Shared.choices has {len(shared.choices)} layers, the supernet {len(whole.layers)}: give one list each"
        )
    dice, found = random.Random(stream(seed, f"part:{step}")), []
    for _ in range(DRAWS):
        layers = tuple(
            replace(layer, stack=k, q=q)
            for layer, (k, q) in zip(whole.layers, map(dice.choice, shared.choices), strict=True)
        )
        net = replace(whole, layers=layers)
        size = parameters(net, "with projection", **tables)
        if shared.window[0] <= size <= shared.window[1]:
            return net
        found.append(size)
    raise ValueError(
        f"none of {DRAWS} draws has {shared.window[0]:,} to {shared.window[1]:,} parameters; found {min(found):,} "
        f"to {max(found):,}: move Shared.window"
    )


# ---- The run around it ----


def taught(folder, task):
    """(teacher, tokenizer) for a task, on the device, in eval mode. Raises ValueError for a model without the task's
    head: one drawn at random would teach nothing."""
    model, tokenizer = backbone.load(folder)
    wanted = "QuestionAnswering" if task.span else "SequenceClassification"
    if wanted not in type(model).__name__ or model.config.num_labels != task.outputs:
        raise ValueError(
            f"the teacher is a {type(model).__name__} of {model.config.num_labels} outputs; {task.name} needs one "
            f"for {wanted} of {task.outputs}: fine-tune it on the task first"
        )
    return heads.by_name(model, task.labels).to(loop.device()), tokenizer


class Curve:
    """The loss at some 500 steps of a run, exact after a resume: kept line by line in the event log, which outlives a
    kill, and saved as arrays at the end."""

    def __init__(self, draft, points=500):
        self.draft, self.points, self.due = draft, points, False

    def before(self, step, steps):
        self.step, self.due = step, step % -(-steps // self.points) == 0

    def note(self, parts):
        """The parts, written down where it is time."""
        if self.due:
            self.draft.log(
                step=self.step, curve={name: float(value.detach()) for name, value in parts.items()}
            )
        return parts

    def save(self):
        lines = {
            line["step"]: line["curve"]
            for line in Run(self.draft.folder, "run").events()
            if "curve" in line
        }
        steps = sorted(lines)
        self.draft.save_arrays(
            "curve",
            step=np.array(steps),
            **{name: np.array([lines[step][name] for step in steps]) for name in lines[steps[0]]},
        )


def student(run, net, cls, teacher, options, dropout, **config):
    """A model of class `cls` for a net (JSON), with its projection to the teacher's width as `student.projection`.

    Weights come from the run's input `start`, where it has one, a student or supernet whose encoder and projection are
    inherited; what is not there, and a head in any case, is drawn from the run's seed. Without a net, that of `start`.
    Raises ValueError where neither is there.
    """
    start = run.inputs.get("start")
    if start is None and net is None:
        raise ValueError(
            "neither a net nor the input start is given: name the net to train, or what to start from"
        )
    larger = start and backbone.load(start.model)[0]
    torch.manual_seed(stream(run.seed, "student"))
    model = stack.build(stack.of(larger) if net is None else net, cls, teacher.config, **config)
    model.projection = Projection(
        options.projection,
        model.config.hidden_size,
        teacher.config.hidden_size,
        len(backbone.layers(model)),
    )
    if start:
        stack.inherit(model, backbone.base(larger))
        if (start.model / PROJECTION).exists():
            model.projection.inherit(load_file(start.model / PROJECTION))
    backbone.set_dropout(model, dropout)
    return model


def save(student, tokenizer, folder):
    """Save a student without its projection, and that beside it. `folder` None: nobody needs it."""
    tensors = student.projection.state_dict()
    del student.projection
    backbone.save(student, tokenizer, folder)
    if folder is not None:
        keep(tensors, folder / PROJECTION)


def keep(tensors, path):
    save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, path)


def classifier(folder, name):
    """(classifier, tokenizer) of one task of a run of step multitask: the shared encoder under that task's own head.
    Raises ValueError for a task that it has not learned."""
    encoder, tokenizer = backbone.load(folder)
    return headed(encoder, *head(folder, name)), tokenizer


def head(folder, name):
    """(weight [C, H], bias [C]) of one task's head in the folder of a run of step multitask."""
    there = load_file(folder / HEADS) if (folder / HEADS).exists() else {}
    known("task with a head in this model", name, sorted({key.rpartition(".")[0] for key in there}))
    return there[f"{name}.weight"], there[f"{name}.bias"]


def headed(encoder, weight, bias):
    """A classifier with a copy of an encoder's weights and of a head's, on its device, in eval mode."""
    config = copy.deepcopy(encoder.config)
    config.num_labels = len(bias)
    model = backbone.build(transformers.BertForSequenceClassification, config, encoder.surgery).to(
        bias.device
    )
    stack.inherit(model, encoder)
    put(model.classifier, weight, bias)
    return model.eval()


def put(linear, weight, bias):
    """Fill a dense layer with the first columns of a weight at least as wide."""
    with torch.no_grad():
        linear.weight.copy_(weight[:, : linear.in_features])
        linear.bias.copy_(bias)
