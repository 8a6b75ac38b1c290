"""This module makes EfficientBERT's students and their distillation loss (section 3.2).

A student inherits weights from a larger network. It learns a teacher's attention
scores, hidden states and predictions, on plain text and on tasks.

Shapes: B batch, T tokens, H hidden, C classes, L layers."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

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
from lib.model.stack import NetJson
from lib.papers.efficientbert.options import Shared, Warmup
from lib.papers.efficientbert.search.net import (
    EmbeddingSizes,
    Net,
    count_net_parameters,
    from_json,
)
from lib.stats.metrics import Metrics
from lib.train import heads, loop, losses
from lib.train.learn import TaskTraining
from lib.train.matching import (
    Match,
    PredictionLoss,
    build_matching_loss_of_teacher,
    make_projection,
    map_layers,
)
from lib.train.steps.distilling import SURGERY

# File beside a student's weights with its projection, the linear map to the teacher's
# width, which is used in distillation alone.
PROJECTION = "projection.safetensors"
MAP = "maps.0."  # Prefix of the tensors' names in that file.
# File beside an encoder that was trained on several tasks, with a classification head
# for each task.
HEADS = "heads.safetensors"
# After this number of random subnetworks outside the size window, the window counts as
# empty.
DRAWS = 10_000


class LinearWeights(NamedTuple):
    weight: Tensor
    bias: Tensor


def list_state_matches(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    distillation: Warmup,
    kept_teacher_heads: Sequence[Sequence[int]] = (),
) -> list[Match]:
    """Return which hidden states of student and teacher the loss compares (equations 1
    and 2): embeddings, outputs of paired layers, and their attention scores.

    kept_teacher_heads: for each layer of a student with pruned heads, the numbers of
    the teacher's heads that it still has; () means all."""
    pairs = map_layers(len(get_layers(student)), len(get_layers(teacher)))
    distance = (
        losses.compute_attention_error_zero_padded
        if distillation.zero
        else losses.compute_attention_error_over_tokens
    )
    return [
        Match("hidden", "ffn", pairs, distillation.mask, projected=True),
        Match("embedding", "embedding", mask=distillation.mask, projected=True),
        Match(
            "attention",
            "scores",
            pairs,
            distillation.mask,
            heads=kept_teacher_heads,
            distance=distance,
        ),
    ]


def compute_prediction_loss(
    student_logits: Tensor, teacher_logits: Tensor, labels: Tensor, distillation: Warmup
) -> Tensor:
    """Return the loss on logits (equation 3): the cross-entropy with the teacher's
    probabilities at temperature 1, averaged over batch and classes.

    A regression has the squared error instead, to the label with `warmup.gold`, else to
    the teacher's output. For answer spans the losses of start and end are summed.

    student_logits, teacher_logits: [B, C], or [B, 2, T] for answer spans.
    labels: [B]."""
    ends = 2 if student_logits.dim() == 3 else 1
    if distillation.hide_first and ends == 2:
        first = torch.arange(student_logits.shape[2], device=student_logits.device) == 0
        student_logits, teacher_logits = (
            x.masked_fill(first, loop.ABSENT) for x in (student_logits, teacher_logits)
        )
    kind = "hard" if distillation.gold and student_logits.shape[1] == 1 else "soft"
    return (
        ends
        * losses.compute_prediction_losses(
            student_logits, labels, Targets(kind), teacher_logits
        )["loss"]
    )


def make_teacher_agreement_scorer(
    training: TaskTraining, model: PreTrainedModel
) -> Callable[[], float]:
    """Return f() -> exp(-L), a score of a search's candidate with its weights at the
    time of the call.

    L is the loss on logits (equation 3) on all held-out rows. The score is 1 where the
    student agrees with a teacher that is certain. Unlike an accuracy it is continuous,
    so ties are rare. The teacher's logits are computed once."""
    encoded, teacher_logits = training.held_out_rows

    def compute_teacher_agreement() -> float:
        assert encoded.labels is not None
        logits = torch.from_numpy(training.predict(model, encoded))
        ends = 2 if logits.dim() == 3 else 1
        loss = losses.compute_prediction_losses(
            logits, encoded.labels, Targets("soft"), teacher_logits
        )["loss"]
        return float(torch.exp(-ends * loss.double()))

    return compute_teacher_agreement


def make_prediction_loss(labels: Tensor, distillation: Warmup) -> PredictionLoss | None:
    """Return (weight, f(logits, teacher's logits, row numbers) -> loss), the loss on
    logits for `lib.train.matching.build_matching_loss`; None for a weight of 0.

    labels: the labels of all training rows."""

    def compute_loss(
        logits: Tensor, teacher_logits: Tensor, row_numbers: np.ndarray
    ) -> Tensor:
        return compute_prediction_loss(
            logits, teacher_logits, labels[row_numbers].to(logits.device), distillation
        )

    return (distillation.prediction, compute_loss) if distillation.prediction else None


def make_distillation_objective(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    distillation: Warmup,
    numerics: Numerics,
    labels: Tensor | None = None,
    kept_teacher_heads: Sequence[Sequence[int]] = (),
) -> AbstractContextManager[loop.Loss]:
    """Return a context manager that gives the loss of warm-up distillation: attention
    scores and hidden states of a teacher, and with labels its logits.

    labels: the labels of all training rows; None leaves out the loss on logits, as on
    plain text.
    kept_teacher_heads: as in `list_state_matches`."""
    prediction_args: tuple[Any, ...] = (
        ()
        if labels is None
        else (compute_logits, make_prediction_loss(labels, distillation))
    )
    return build_matching_loss_of_teacher(
        student,
        teacher,
        list_state_matches(student, teacher, distillation, kept_teacher_heads),
        numerics,
        *prediction_args,
    )


def compute_logits(
    model: PreTrainedModel, batch: loop.Batch, row_indices: np.ndarray
) -> Tensor:
    return loop.compute_logits(model, batch)


def make_student_for_task(
    run: RunWriter,
    student_architecture: Net | NetJson | None,
    task: Task,
    teacher: PreTrainedModel,
    dropout: float,
) -> PreTrainedModel:
    """Return a student with the head of a task.

    Without a net, a `start` that was already pruned, or has ghost modules, is itself
    the student. Else see `make_student`.

    student_architecture: the student's network; None takes that of the input run `start`."""
    start = run.inputs.get("start")
    if student_architecture is None and start and (start.folder / SURGERY).exists():
        seed = derive_seed(run.seed, "head")
        # `load_network` seeds only where it draws a head; the projection needs a seed
        # in any case.
        torch.manual_seed(seed)
        model = heads.load_network(start.model_folder, task, dropout, seed)[0]
        model.projection = make_projection(
            model.config.hidden_size, teacher.config.hidden_size
        )
        return model
    cls = getattr(transformers, f"BertFor{heads.HEADS[task.span]}")
    return make_student(
        run, student_architecture, cls, teacher, dropout, num_labels=task.output_width
    )


def read_kept_teacher_heads(run: RunWriter) -> Sequence[Sequence[int]]:
    """Return for each of L layers the numbers of the teacher's heads that a pruned
    student still has, in its order; () for a student that was not pruned.

    They are read from the report that pruning left beside the input run `start`. So
    each head of the student is compared with the same head of the teacher."""
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
    student_architecture: Net | NetJson | None,
    model_class: type[PreTrainedModel],
    teacher: PreTrainedModel,
    dropout: float,
    **config_values: Any,
) -> PreTrainedModel:
    """Return a student of class `model_class`, with a linear map `projection` from its
    hidden size to the teacher's.

    Weights of encoder and projection are inherited from the input run `start`, a
    student or supernet, if there is one. All others are random, drawn from the run's
    seed, as a head always is.

    student_architecture: the student's network; None takes that of `start`.
    dropout: rate for hidden states and attention weights.
    config_values: further values of the model's configuration."""
    start = run.inputs.get("start")
    larger = backbone.load(start.model_folder)[0] if start else None
    torch.manual_seed(derive_seed(run.seed, "student"))
    if student_architecture is None:
        assert larger is not None
        student_architecture = supernet.read_net_of_model(larger)
    model = supernet.build_model_of_net(
        student_architecture, model_class, teacher.config, **config_values
    )
    linear = model.projection = make_projection(
        model.config.hidden_size, teacher.config.hidden_size
    )
    if start and larger is not None:
        supernet.inherit_weights(model, get_encoder(larger))
        weight, bias = load_hidden_state_projection(start.model_folder) or (None, ())
        if len(bias) == len(linear.bias):
            assert isinstance(weight, Tensor) and isinstance(bias, Tensor)
            copy_into_linear(linear, weight, bias)
    set_dropout(model, dropout)
    return model


def load_hidden_state_projection(folder: Path) -> LinearWeights | None:
    """Return weight [teacher's H, H] and bias [teacher's H] of the linear map saved in
    a student's folder; None if there is none."""
    path = folder / PROJECTION
    tensors = load_file(path) if path.exists() else {}
    if not tensors:
        return None
    return LinearWeights(tensors[MAP + "weight"], tensors[MAP + "bias"])


def save_tensors(
    tensors: Mapping[str, Tensor], folder: Path | None, file_name: str
) -> None:
    """Write tensors to a safetensors file in a folder, which is made if needed. Nothing
    is written for the folder None, which stands for a run that keeps no model."""
    if folder is not None:
        folder.mkdir(exist_ok=True)
        made = {
            key: value.detach().cpu().contiguous() for key, value in tensors.items()
        }
        save_file(made, folder / file_name)


def load_classifier(
    folder: Path, task_name: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Return (classifier, tokenizer) of one task, from an encoder that the step
    `multitask` trained on several.

    Raises KeyError for a task that it was not trained on.

    folder: the model folder of that run."""
    encoder, tokenizer = backbone.load(folder)
    return join_encoder_and_head(
        encoder, *load_classification_head(folder, task_name)
    ), tokenizer


def load_classification_head(folder: Path, task_name: str) -> LinearWeights:
    """Return weight [C, H] and bias [C] of one task's classification head, from the
    model folder of a run of the step `multitask`."""
    tensors = load_file(folder / HEADS)
    return LinearWeights(tensors[f"{task_name}.weight"], tensors[f"{task_name}.bias"])


def join_encoder_and_head(
    encoder: PreTrainedModel, weight: Tensor, bias: Tensor
) -> PreTrainedModel:
    """Return a classifier, in eval mode, that has copies of an encoder's weights and of
    a head's.

    weight, bias: [C, H] and [C]."""
    cls, labels = transformers.BertForSequenceClassification, len(bias)
    model = supernet.build_model_of_net(
        supernet.read_net_of_model(encoder), cls, encoder.config, num_labels=labels
    )
    # pyrefly: ignore[bad-argument-type]  transformers wraps `to` untyped.
    supernet.inherit_weights(model.to(bias.device), encoder)
    assert isinstance(model.classifier, nn.Linear)
    copy_into_linear(model.classifier, weight, bias)
    return model.eval()


def copy_into_linear(linear: nn.Linear, weight: Tensor, bias: Tensor) -> None:
    """Copy a weight [out, >= in] and a bias [out] into a linear layer, which takes the
    first columns. So a narrower student inherits a wide layer."""
    with torch.no_grad():
        linear.weight.copy_(weight[:, : linear.in_features])
        linear.bias.copy_(bias)


def make_training_callbacks(
    run: RunWriter, student: PreTrainedModel, subnetwork_options: Json | None = None
) -> list[loop.Callback]:
    """Return what acts on the training besides the loss: saving of the loss curve and,
    with `subnetwork_options`, a random subnetwork in each step.

    subnetwork_options: the fields of a `Shared`, which says how large a random
    subnetwork is; None trains the whole student."""
    subnetworks = (
        [SubnetworkTraining(student, Shared(**subnetwork_options), run.seed)]
        if subnetwork_options
        else []
    )
    return [*subnetworks, CurveAndProjectionSaving(run, student)]


class CurveAndProjectionSaving(loop.Callback):
    """This class saves arrays beside a distilled model when its training ends.

    They are `curve`, the loss and its parts at about 500 steps, and the student's
    projection. The projection is removed from the model, since it serves distillation
    alone."""

    def __init__(self, run: RunWriter, student: PreTrainedModel) -> None:
        self.run, self.student = run, student

    def after_last_step(self) -> Metrics:
        self.run.save_arrays("curve", **self.run.read_log("curve"))
        tensors = self.student.get_submodule("projection").state_dict(prefix=MAP)
        del self.student.projection
        save_tensors(tensors, self.run.model_folder, PROJECTION)
        return {}


class SubnetworkTraining(loop.Callback):
    """This class makes each training step train one random subnetwork of a supernet
    (stage 3 of EfficientBERT's search).

    When the training ends, the whole supernet is active again."""

    def __init__(self, student: PreTrainedModel, sharing: Shared, seed: int) -> None:
        self.student, self.shared, self.seed = student, sharing, seed
        self.supernet = from_json(supernet.read_net_of_model(student))
        linear = student.get_submodule("projection")
        assert isinstance(linear, nn.Linear)
        self.tables = list_embedding_sizes(student.config, linear.out_features)

    def before_forward_pass(self, step: int, step_count: int) -> None:
        supernet.activate_subnetwork(
            self.student,
            draw_subnetwork(self.supernet, self.shared, self.seed, step, **self.tables),
        )

    def after_last_step(self) -> Metrics:
        supernet.activate_subnetwork(self.student)
        return {}


def list_embedding_sizes(
    config: PreTrainedConfig, teacher_width: int
) -> EmbeddingSizes:
    """Return the sizes that `search.net.count_net_parameters` needs beside a Net: rows
    of the embedding tables, and the teacher's hidden size."""
    return {
        "teacher": teacher_width,
        "vocab": config.vocab_size,
        "positions": config.max_position_embeddings,
        "types": config.type_vocab_size,
    }


def draw_subnetwork(
    full_net: Net, sharing: Shared, seed: int, step: int, **embedding_sizes: int
) -> Net:
    """Return the subnetwork of a supernet that a training step of stage 3 trains.

    It depends on seed and step alone. Each layer draws (k, q), stacked networks and
    inverse ratio of the inner width, from its choices. All layers are drawn again until
    the number of parameters is between the bounds, as in the authors' code. Raises
    Refused where none of DRAWS draws is.

    sharing: has each layer's choices and, as `window`, the bounds.
    embedding_sizes: as `list_embedding_sizes` returns them."""
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
