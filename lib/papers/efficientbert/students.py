"""This module has EfficientBERT's students (section 3.2).

They are networks that inherit weights, and that learn attention, states and predictions
of a teacher, in pre-training and in fine-tuning alike.

Shapes: B batch, T tokens, H hidden, C classes.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from lib.core.names import Refused, stream
from lib.core.options import Numerics, Targets
from lib.core.store import RunWriter
from lib.core.types import Json
from lib.data import Task
from lib.model import backbone, supernet
from lib.model.parts import base, layers, set_dropout
from lib.papers.efficientbert.options import Shared, Warmup
from lib.papers.efficientbert.search.net import Net, from_json, parameters
from lib.train import heads, loop, losses
from lib.train.learn import TaskTraining
from lib.train.matching import (
    Match,
    Prediction,
    imitate_teacher,
    layer_map,
    make_projection,
)
from lib.train.steps.distilling import SURGERY

# Name of the file beside a student's weights with the projection, which serves
# distillation alone.
PROJECTION = "projection.safetensors"
MAP = "maps.0."  # First letters of the names in that file.
# Name of the file beside a shared encoder with one classifier for each task.
HEADS = "heads.safetensors"
DRAWS = 10_000  # Draws of parts of a supernet after which the window counts as empty.


def matches(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    options: Warmup,
    heads: Sequence[Sequence[int]] = (),
) -> list[Match]:
    """List the matches of equations 1 and 2.

    heads: for each layer of a cut student, the teacher's heads that it still has; ()
    means all."""
    pairs = layer_map(len(layers(student)), len(layers(teacher)))
    distance = losses.zeroed_distance if options.zero else losses.over_tokens
    return [
        Match("hidden", "ffn", pairs, options.mask, projected=True),
        Match("embedding", "embedding", mask=options.mask, projected=True),
        Match(
            "attention", "scores", pairs, options.mask, heads=heads, distance=distance
        ),
    ]


def prediction(
    logits: Tensor, teacher: Tensor, labels: Tensor, options: Warmup
) -> Tensor:
    """Return equation 3: soft cross-entropy at temperature 1, averaged over batch and
    classes.

    logits, teacher: [B, C], or [B, 2, T] of spans, where the losses of the two ends are
    summed. labels: [B]. A regression has the squared error instead, to the label with
    `options.gold`, else to the teacher's score."""
    ends = 2 if logits.dim() == 3 else 1
    if options.hide_first and ends == 2:
        first = torch.arange(logits.shape[2], device=logits.device) == 0
        logits, teacher = (x.masked_fill(first, loop.ABSENT) for x in (logits, teacher))
    kind = "hard" if options.gold and logits.shape[1] == 1 else "soft"
    return ends * losses.prediction(logits, labels, Targets(kind), teacher)["loss"]


def make_likeness(
    training: TaskTraining, model: PreTrainedModel
) -> Callable[[], float]:
    """Return f() -> exp(-L) of a model at the time of the call.

    It is 1 where the student gives the certain answers of its teacher. L is the
    prediction loss (equation 3) on all held-out rows. Unlike an accuracy it is
    continuous, so hardly two models tie. The teacher's logits are computed once."""
    encoded, teacher_logits = training.held_out

    def value() -> float:
        assert encoded.labels is not None
        logits = torch.from_numpy(training.predict(model, encoded))
        ends = 2 if logits.dim() == 3 else 1
        loss = losses.prediction(
            logits, encoded.labels, Targets("soft"), teacher_logits
        )["loss"]
        return float(torch.exp(-ends * loss.double()))

    return value


def make_prediction(labels: Tensor, options: Warmup) -> Prediction | None:
    """Return the argument `prediction` of lib.train.matching.match_states, None for a
    weight of 0.

    labels: the labels of all rows.
    """

    def compare(logits: Tensor, teacher: Tensor, rows: np.ndarray) -> Tensor:
        return prediction(logits, teacher, labels[rows].to(logits.device), options)

    return (options.prediction, compare) if options.prediction else None


def distil_objective(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    options: Warmup,
    numerics: Numerics,
    labels: Tensor | None = None,
    heads: Sequence[Sequence[int]] = (),
) -> AbstractContextManager[loop.Loss]:
    """Return the objective that learns attention and states of a teacher.

    labels: the labels of all rows; with them it learns the teacher's predictions too.
    heads: as in `matches`."""
    prediction_args: tuple[Any, ...] = (
        () if labels is None else (logits, make_prediction(labels, options))
    )
    return imitate_teacher(
        student,
        teacher,
        matches(student, teacher, options, heads),
        numerics,
        *prediction_args,
    )


def logits(model: PreTrainedModel, batch: loop.Batch, _: np.ndarray) -> Tensor:
    return loop.outputs(model, batch)


def for_task(
    run: RunWriter,
    net: Net | Json | None,
    task: Task,
    teacher: PreTrainedModel,
    dropout: float,
) -> PreTrainedModel:
    """Return a student with the head of a task (see `student`).

    Where `start` was cut or has ghosts, and there is no net, it is the student itself.
    """
    start = run.inputs.get("start")
    if net is None and start and (start.folder / SURGERY).exists():
        seed = stream(run.seed, "head")
        torch.manual_seed(seed)  # Seeds the projection where no head is drawn.
        model = heads.network(start.model, task, dropout, seed)[0]
        model.projection = make_projection(
            model.config.hidden_size, teacher.config.hidden_size
        )
        return model
    cls = getattr(transformers, f"BertFor{heads.HEADS[task.span]}")
    return student(run, net, cls, teacher, dropout, num_labels=task.outputs)


def heads_of_cut(run: RunWriter) -> Sequence[Sequence[int]]:
    """Return L lists of the teacher's heads that a cut `start` still has, in its order.

    It is () where the input `start` was not cut."""
    path = run.inputs["start"].folder / SURGERY if "start" in run.inputs else None
    reports = json.loads(path.read_text()) if path and path.exists() else []
    return next(
        (
            entry["report"]["heads"]
            for entry in reports
            if entry["surgery"]["op"] == "cut"
        ),
        (),
    )


def student(
    run: RunWriter,
    net: Net | Json | None,
    cls: type[PreTrainedModel],
    teacher: PreTrainedModel,
    dropout: float,
    **config: Any,
) -> PreTrainedModel:
    """Return a model of class `cls` for a net, with a `projection` to the teacher's
    width.

    net: None takes that of `start`. The weights of encoder and projection come from the
    run's input `start`, a student or a supernet, where there is one. All other weights
    are drawn from the run's seed, those of a head always. config: further values of the
    configuration."""
    start = run.inputs.get("start")
    larger = backbone.load(start.model)[0] if start else None
    torch.manual_seed(stream(run.seed, "student"))
    if net is None:
        assert larger is not None
        net = supernet.read_net(larger)
    model = supernet.build(net, cls, teacher.config, **config)
    linear = model.projection = make_projection(
        model.config.hidden_size, teacher.config.hidden_size
    )
    if start and larger is not None:
        supernet.inherit_weights(model, base(larger))
        weight, bias = projection(start.model) or (None, ())
        if len(bias) == len(linear.bias):
            assert isinstance(weight, Tensor) and isinstance(bias, Tensor)
            fill_linear(linear, weight, bias)
    set_dropout(model, dropout)
    return model


def projection(folder: Path) -> tuple[Tensor, Tensor] | None:
    """Return (weight, bias) of the projection in a student's folder, or None without
    one."""
    path = folder / PROJECTION
    tensors = load_file(path) if path.exists() else {}
    return (tensors[MAP + "weight"], tensors[MAP + "bias"]) if tensors else None


def save_tensors(tensors: Mapping[str, Tensor], folder: Path | None, name: str) -> None:
    """Write tensors to a file of a folder; None as the folder writes nothing."""
    if folder is not None:
        folder.mkdir(exist_ok=True)
        made = {
            key: value.detach().cpu().contiguous() for key, value in tensors.items()
        }
        save_file(made, folder / name)


def classifier(
    folder: Path, name: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Return the classifier and tokenizer of one task, from the folder of a run of step
    multitask.

    The classifier is the shared encoder with the head of that task. Raises KeyError for
    a task that the run has not learned."""
    encoder, tokenizer = backbone.load(folder)
    return with_head(encoder, *head(folder, name)), tokenizer


def head(folder: Path, name: str) -> tuple[Tensor, Tensor]:
    """Return (weight [C, H], bias [C]) of one task's head, from such a folder."""
    tensors = load_file(folder / HEADS)
    return tensors[f"{name}.weight"], tensors[f"{name}.bias"]


def with_head(
    encoder: PreTrainedModel, weight: Tensor, bias: Tensor
) -> PreTrainedModel:
    """Return a classifier with copies of the weights of an encoder and of a head, in
    eval mode."""
    cls, labels = transformers.BertForSequenceClassification, len(bias)
    model = supernet.build(
        supernet.read_net(encoder), cls, encoder.config, num_labels=labels
    )
    # pyrefly: ignore[bad-argument-type]  transformers wraps `to` untyped.
    supernet.inherit_weights(model.to(bias.device), encoder)
    assert isinstance(model.classifier, nn.Linear)
    fill_linear(model.classifier, weight, bias)
    return model.eval()


def fill_linear(linear: nn.Linear, weight: Tensor, bias: Tensor) -> None:
    """Fill a linear layer with the first columns of a weight that is at least as
    wide."""
    with torch.no_grad():
        linear.weight.copy_(weight[:, : linear.in_features])
        linear.bias.copy_(bias)


def methods(
    run: RunWriter, student: PreTrainedModel, shared: Json | None = None
) -> list[loop.Method]:
    """List the methods of a warm-up. shared: fields of a Shared."""
    parts = [Parts(student, Shared(**shared), run.seed)] if shared else []
    return [*parts, Kept(run, student)]


class Kept(loop.Method):
    """A Kept saves arrays of a warm-up beside the model.

    They are the loss and its parts at about 500 steps as `curve`, and the student's
    projection, which is removed from the model when the training ends."""

    def __init__(self, run: RunWriter, student: PreTrainedModel) -> None:
        self.run, self.student = run, student

    def finish(self) -> Json:
        self.run.save_arrays("curve", **self.run.read_log("curve"))
        tensors = self.student.get_submodule("projection").state_dict(prefix=MAP)
        del self.student.projection
        save_tensors(tensors, self.run.model, PROJECTION)
        return {}


class Parts(loop.Method):
    """A Parts lets each step train one part of a supernet (lib.core.options.Shared).

    The finished model is the whole one again.
    """

    def __init__(self, student: PreTrainedModel, shared: Shared, seed: int) -> None:
        self.student, self.shared, self.seed = student, shared, seed
        self.supernet = from_json(supernet.read_net(student))
        linear = student.get_submodule("projection")
        assert isinstance(linear, nn.Linear)
        self.tables = tables(student.config, linear.out_features)

    def before(self, step: int, steps: int) -> None:
        supernet.choose(
            self.student,
            draw_part(self.supernet, self.shared, self.seed, step, **self.tables),
        )

    def finish(self) -> Json:
        supernet.choose(self.student)
        return {}


def tables(config: PreTrainedConfig, teacher: int) -> dict[str, int]:
    """Return the widths that search.net.parameters needs
    beside a Net.

    teacher: the width of the teacher.
    """
    return {
        "teacher": teacher,
        "vocab": config.vocab_size,
        "positions": config.max_position_embeddings,
        "types": config.type_vocab_size,
    }


def draw_part(
    full_net: Net, shared: Shared, seed: int, step: int, **tables: int
) -> Net:
    """Return the part of a supernet that a step of stage 3 trains, as a Net.

    It depends on seed and step alone. Stack and ratio of each layer are drawn from the
    layer's choices, for all layers again until the size is in the window, as in the
    code. full_net: the supernet's Net. tables: see `tables`. Raises Refused where no
    draw is in the window."""
    dice = random.Random(stream(seed, f"part:{step}"))
    for _ in range(DRAWS):
        layers = tuple(
            replace(layer, stack=k, q=q)
            for layer, (k, q) in zip(
                full_net.layers, map(dice.choice, shared.choices), strict=True
            )
        )
        net = replace(full_net, layers=layers)
        size = parameters(net, "with projection", **tables)
        if shared.window[0] <= size <= shared.window[1]:
            return net
    raise Refused(
        f"Shared.window is {shared.window}; none of {DRAWS} draws is in it: move it"
    )
