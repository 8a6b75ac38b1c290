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

from lib.core.names import Refused, derive_seed
from lib.core.options import Numerics, Targets
from lib.core.store import RunWriter
from lib.core.types import Json
from lib.data import Task
from lib.model import backbone, supernet
from lib.model.parts import get_encoder, get_layers, set_dropout
from lib.papers.efficientbert.options import Shared, Warmup
from lib.papers.efficientbert.search.net import Net, count_net_parameters, from_json
from lib.train import heads, loop, losses
from lib.train.learn import TaskTraining
from lib.train.matching import (
    Match,
    PredictionLoss,
    imitate_teacher,
    make_projection,
    map_layers,
)
from lib.train.steps.distilling import SURGERY

# Name of the file beside a student's weights with the projection, which serves
# distillation alone.
PROJECTION = "projection.safetensors"
MAP = "maps.0."  # First letters of the names in that file.
# Name of the file beside a shared encoder with one classifier for each task.
HEADS = "heads.safetensors"
DRAWS = 10_000  # Draws of parts of a supernet after which the window counts as empty.


def list_matches(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    warmup: Warmup,
    kept_teacher_heads: Sequence[Sequence[int]] = (),
) -> list[Match]:
    """List the matches of equations 1 and 2.

    kept_teacher_heads: for each layer of a cut student, the teacher's heads that it
    still has; () means all."""
    pairs = map_layers(len(get_layers(student)), len(get_layers(teacher)))
    distance = (
        losses.compare_scores_with_zeroed_padding
        if warmup.zero
        else losses.compare_scores_over_tokens
    )
    return [
        Match("hidden", "ffn", pairs, warmup.mask, projected=True),
        Match("embedding", "embedding", mask=warmup.mask, projected=True),
        Match(
            "attention",
            "scores",
            pairs,
            warmup.mask,
            heads=kept_teacher_heads,
            distance=distance,
        ),
    ]


def compute_prediction_loss(
    logits: Tensor, teacher_logits: Tensor, labels: Tensor, warmup: Warmup
) -> Tensor:
    """Return equation 3: soft cross-entropy at temperature 1, averaged over batch and
    classes.

    logits, teacher_logits: [B, C], or [B, 2, T] of spans, where the losses of the two
    ends are summed. labels: [B]. A regression has the squared error instead, to the
    label with
    `options.gold`, else to the teacher's score."""
    ends = 2 if logits.dim() == 3 else 1
    if warmup.hide_first and ends == 2:
        first = torch.arange(logits.shape[2], device=logits.device) == 0
        logits, teacher_logits = (
            x.masked_fill(first, loop.ABSENT) for x in (logits, teacher_logits)
        )
    kind = "hard" if warmup.gold and logits.shape[1] == 1 else "soft"
    return (
        ends
        * losses.compute_prediction_losses(
            logits, labels, Targets(kind), teacher_logits
        )["loss"]
    )


def make_likeness_score(
    training: TaskTraining, model: PreTrainedModel
) -> Callable[[], float]:
    """Return f() -> exp(-L) of a model at the time of the call.

    It is 1 where the student gives the certain answers of its teacher. L is the
    prediction loss (equation 3) on all held-out rows. Unlike an accuracy it is
    continuous, so hardly two models tie. The teacher's logits are computed once."""
    encoded, teacher_logits = training.held_out_rows

    def compute_likeness() -> float:
        assert encoded.labels is not None
        logits = torch.from_numpy(training.predict(model, encoded))
        ends = 2 if logits.dim() == 3 else 1
        loss = losses.compute_prediction_losses(
            logits, encoded.labels, Targets("soft"), teacher_logits
        )["loss"]
        return float(torch.exp(-ends * loss.double()))

    return compute_likeness


def make_prediction_loss(labels: Tensor, warmup: Warmup) -> PredictionLoss | None:
    """Return the argument `prediction_loss` of lib.train.matching.match_states,
    None for a weight of 0.

    labels: the labels of all rows.
    """

    def compute_loss(
        logits: Tensor, teacher_logits: Tensor, rows: np.ndarray
    ) -> Tensor:
        return compute_prediction_loss(
            logits, teacher_logits, labels[rows].to(logits.device), warmup
        )

    return (warmup.prediction, compute_loss) if warmup.prediction else None


def make_distillation_objective(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    warmup: Warmup,
    numerics: Numerics,
    labels: Tensor | None = None,
    kept_teacher_heads: Sequence[Sequence[int]] = (),
) -> AbstractContextManager[loop.Loss]:
    """Return the objective that learns attention and states of a teacher.

    labels: the labels of all rows; with them it learns the teacher's predictions too.
    kept_teacher_heads: as in `list_matches`."""
    prediction_args: tuple[Any, ...] = (
        () if labels is None else (compute_logits, make_prediction_loss(labels, warmup))
    )
    return imitate_teacher(
        student,
        teacher,
        list_matches(student, teacher, warmup, kept_teacher_heads),
        numerics,
        *prediction_args,
    )


def compute_logits(model: PreTrainedModel, batch: loop.Batch, _: np.ndarray) -> Tensor:
    return loop.compute_logits(model, batch)


def make_student_for_task(
    run: RunWriter,
    net_or_json: Net | Json | None,
    task: Task,
    teacher: PreTrainedModel,
    dropout: float,
) -> PreTrainedModel:
    """Return a student with the head of a task (see `make_student`).

    Where `start` was cut or has ghosts, and there is no net, it is the student itself.
    """
    start = run.inputs.get("start")
    if net_or_json is None and start and (start.folder / SURGERY).exists():
        seed = derive_seed(run.seed, "head")
        torch.manual_seed(seed)  # Seeds the projection where no head is drawn.
        model = heads.load_network(start.model, task, dropout, seed)[0]
        model.projection = make_projection(
            model.config.hidden_size, teacher.config.hidden_size
        )
        return model
    cls = getattr(transformers, f"BertFor{heads.HEADS[task.span]}")
    return make_student(
        run, net_or_json, cls, teacher, dropout, num_labels=task.output_width
    )


def list_kept_heads(run: RunWriter) -> Sequence[Sequence[int]]:
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


def make_student(
    run: RunWriter,
    net_or_json: Net | Json | None,
    model_class: type[PreTrainedModel],
    teacher: PreTrainedModel,
    dropout: float,
    **config: Any,
) -> PreTrainedModel:
    """Return a model of class `model_class` for a net, with a `load_projection` to the
    teacher's width.

    net_or_json: None takes that of `start`. The weights of encoder and projection come
    from the run's input `start`, a student or a supernet, where there is one. All other
    weights are drawn from the run's seed, those of a head always. config: further
    values of the configuration."""
    start = run.inputs.get("start")
    larger = backbone.load(start.model)[0] if start else None
    torch.manual_seed(derive_seed(run.seed, "student"))
    if net_or_json is None:
        assert larger is not None
        net_or_json = supernet.read_net_of_model(larger)
    model = supernet.build_model_of_net(
        net_or_json, model_class, teacher.config, **config
    )
    linear = model.projection = make_projection(
        model.config.hidden_size, teacher.config.hidden_size
    )
    if start and larger is not None:
        supernet.inherit_weights(model, get_encoder(larger))
        weight, bias = load_projection(start.model) or (None, ())
        if len(bias) == len(linear.bias):
            assert isinstance(weight, Tensor) and isinstance(bias, Tensor)
            fill_linear(linear, weight, bias)
    set_dropout(model, dropout)
    return model


def load_projection(folder: Path) -> tuple[Tensor, Tensor] | None:
    """Return (weight, bias) of the projection in a student's folder, or None without
    one."""
    path = folder / PROJECTION
    tensors = load_file(path) if path.exists() else {}
    return (tensors[MAP + "weight"], tensors[MAP + "bias"]) if tensors else None


def save_tensors(
    tensors: Mapping[str, Tensor], folder: Path | None, file_name: str
) -> None:
    """Write tensors to a file of a folder; None as the folder writes nothing."""
    if folder is not None:
        folder.mkdir(exist_ok=True)
        made = {
            key: value.detach().cpu().contiguous() for key, value in tensors.items()
        }
        save_file(made, folder / file_name)


def load_classifier(
    folder: Path, task_name: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Return the classifier and tokenizer of one task, from the folder of a run of step
    multitask.

    The classifier is the shared encoder with the head of that task. Raises KeyError for
    a task that the run has not learned."""
    encoder, tokenizer = backbone.load(folder)
    return add_head(encoder, *load_head(folder, task_name)), tokenizer


def load_head(folder: Path, task_name: str) -> tuple[Tensor, Tensor]:
    """Return (weight [C, H], bias [C]) of one task's head, from such a folder."""
    tensors = load_file(folder / HEADS)
    return tensors[f"{task_name}.weight"], tensors[f"{task_name}.bias"]


def add_head(encoder: PreTrainedModel, weight: Tensor, bias: Tensor) -> PreTrainedModel:
    """Return a classifier with copies of the weights of an encoder and of a head, in
    eval mode."""
    cls, labels = transformers.BertForSequenceClassification, len(bias)
    model = supernet.build_model_of_net(
        supernet.read_net_of_model(encoder), cls, encoder.config, num_labels=labels
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


def list_methods(
    run: RunWriter, student: PreTrainedModel, sharing: Json | None = None
) -> list[loop.Method]:
    """List the methods of a warm-up. sharing: fields of a Shared."""
    parts = [Parts(student, Shared(**sharing), run.seed)] if sharing else []
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

    def __init__(self, student: PreTrainedModel, sharing: Shared, seed: int) -> None:
        self.student, self.shared, self.seed = student, sharing, seed
        self.supernet = from_json(supernet.read_net_of_model(student))
        linear = student.get_submodule("projection")
        assert isinstance(linear, nn.Linear)
        self.tables = list_embedding_sizes(student.config, linear.out_features)

    def prepare_step(self, step: int, steps: int) -> None:
        supernet.activate_net(
            self.student,
            draw_part_of_supernet(
                self.supernet, self.shared, self.seed, step, **self.tables
            ),
        )

    def finish(self) -> Json:
        supernet.activate_net(self.student)
        return {}


def list_embedding_sizes(
    config: PreTrainedConfig, teacher_width: int
) -> dict[str, int]:
    """Return the widths that search.net.parameters needs
    beside a Net.

    teacher_width: the width of the teacher.
    """
    return {
        "teacher": teacher_width,
        "vocab": config.vocab_size,
        "positions": config.max_position_embeddings,
        "types": config.type_vocab_size,
    }


def draw_part_of_supernet(
    full_net: Net, sharing: Shared, seed: int, step: int, **embedding_sizes: int
) -> Net:
    """Return the part of a supernet that a step of stage 3 trains, as a Net.

    It depends on seed and step alone. Stack and ratio of each layer are drawn from the
    layer's choices, for all layers again until the size is in the window, as in the
    code. full_net: the supernet's Net. embedding_sizes: see `embedding_sizes`. Raises
    Refused where no draw is in the window."""
    dice = random.Random(derive_seed(seed, f"part:{step}"))
    for _ in range(DRAWS):
        layers = tuple(
            replace(layer, stack=k, q=q)
            for layer, (k, q) in zip(
                full_net.layers, map(dice.choice, sharing.choices), strict=True
            )
        )
        net = replace(full_net, layers=layers)
        size = count_net_parameters(net, "with projection", **embedding_sizes)
        if sharing.window[0] <= size <= sharing.window[1]:
            return net
    raise Refused(
        f"Shared.window is {sharing.window}; none of {DRAWS} draws is in it: move it"
    )
