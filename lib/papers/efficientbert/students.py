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
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from lib.core.names import Refused, derive_seed
from lib.core.options import Numerics, Targets
from lib.core.store import RunWriter
from lib.core.types import Json, TaskName
from lib.data import Task
from lib.model import backbone, supernet
from lib.model.parts import get_encoder, get_layers, set_dropout
from lib.model.stack import ArchitectureJson
from lib.papers.efficientbert.options import SubnetworkOptions, Warmup
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
    WeightAndPredictionLoss,
    build_hidden_state_distillation_loss,
    make_projection,
    pair_student_with_teacher_layers,
)
from lib.train.steps.distilling import SURGERY

# File beside a student's weights with its projection, the linear map to the teacher's
# width, which is used in distillation alone.
PROJECTION = "projection.safetensors"
MAP = "maps.0."  # Prefix of the tensors' names in that file.
# File beside an encoder that was trained on several tasks, with a classification head
# for each task.
HEADS = "heads.safetensors"
# Largest number of random subnetworks that are drawn for one training step. If none of
# them has an allowed number of parameters, training stops with an error.
DRAWS = 10_000


# None in the place of an architecture: that of the run's input `start`.
ThatOfStartModel: TypeAlias = None


class LinearWeightAndBias(NamedTuple):
    weight: Tensor
    bias: Tensor


def pair_student_with_teacher_states(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    distillation: Warmup,
    kept_teacher_heads_by_layer: Sequence[Sequence[int]] = (),
) -> list[Match]:
    """Return which hidden states of student and teacher the distillation loss compares.

    There are three Matches: outputs of paired layers ("hidden"), embeddings
    ("embedding"), and attention scores before the softmax of paired layers
    ("attention") (EfficientBERT, equations 1 and 2). A Match names the states, the
    pairs of layers and the distance. Raises Refused where neither number of layers
    divides the other.

    distillation: options; `mask` and `zero` say whether padded tokens count.
    kept_teacher_heads_by_layer: for each layer of a student with pruned heads, the
    indices of the teacher's heads that it still has; () means all."""
    pairs = pair_student_with_teacher_layers(
        len(get_layers(student)), len(get_layers(teacher))
    )
    distance = (
        losses.compute_attention_error_with_padded_scores_zeroed
        if distillation.zero
        else losses.compute_attention_mean_squared_error
    )
    return [
        Match("hidden", "ffn", pairs, distillation.mask, projects_student=True),
        Match(
            "embedding",
            "embedding",
            excludes_padding=distillation.mask,
            projects_student=True,
        ),
        Match(
            "attention",
            "scores",
            pairs,
            distillation.mask,
            teacher_heads_by_student_layer=kept_teacher_heads_by_layer,
            distance=distance,
        ),
    ]


def compute_prediction_loss(
    student_logits: Tensor, teacher_logits: Tensor, labels: Tensor, distillation: Warmup
) -> Tensor:
    """Return the distillation loss on logits, a scalar (EfficientBERT, equation 3).

    It is the cross-entropy with the teacher's probabilities at temperature 1, averaged
    over batch and classes. A regression has the squared error to the teacher's output
    or, with `distillation.gold`, to the label. For answer spans the losses of start and
    end are summed.

    student_logits, teacher_logits: [B, C], where C is 1 for a regression, or [B, 2, T]
    for answer spans.
    labels: [B], which only a regression with `gold` reads.
    distillation: options; with `hide_first` spans leave out the position of [CLS]."""
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
    """Return f() -> exp(-L), how well a model agrees with its teacher on held-out rows.

    L is the distillation loss on logits (EfficientBERT, equation 3). A search ranks
    candidates by this score. It is 1 where the model agrees with a teacher that is
    certain. Unlike an accuracy it is continuous, so ties are rare. The function takes
    the model's weights at the time of the call; the teacher's logits are computed once.

    training: the task's rows, and the run with its input `teacher`."""
    encoded, teacher_logits = training.held_out_rows

    def compute_student_teacher_agreement() -> float:
        assert encoded.labels is not None
        logits = torch.from_numpy(training.predict_logits(model, encoded))
        loss = compute_prediction_loss(
            logits, teacher_logits, encoded.labels, Warmup("scores", "shared")
        )
        return float(torch.exp(-loss.double()))

    return compute_student_teacher_agreement


def make_weighted_prediction_loss(
    labels: Tensor, distillation: Warmup
) -> WeightAndPredictionLoss | None:
    """Return the distillation loss on logits as a pair (weight, function), or None.

    The function is f(student's logits, teacher's logits, row numbers of the batch) ->
    scalar, as `lib.train.matching.build_hidden_state_loss_from_teacher_outputs` takes
    it. The weight is `distillation.prediction`. Where that is 0, the result is None.

    labels: the labels of all N training rows, from which a batch takes those of its
    rows; only a regression with `distillation.gold` compares with them."""

    def compute_loss(
        logits: Tensor, teacher_logits: Tensor, training_row_numbers: np.ndarray
    ) -> Tensor:
        return compute_prediction_loss(
            logits,
            teacher_logits,
            labels[training_row_numbers].to(logits.device),
            distillation,
        )

    return (distillation.prediction, compute_loss) if distillation.prediction else None


def build_distillation_loss(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    distillation: Warmup,
    numerics: Numerics,
    labels: Tensor | None = None,
    kept_teacher_heads_by_layer: Sequence[Sequence[int]] = (),
) -> AbstractContextManager[loop.LossFunction]:
    """Return a context manager that yields the loss of EfficientBERT's distillation.

    The loss is f(batch, row numbers) -> {"loss": the total; "hidden", "embedding",
    "attention", "prediction": its parts}, all scalars. The parts compare hidden states,
    embeddings, attention scores and logits with the teacher's. "prediction" is missing
    without labels, and where its weight `distillation.prediction` is 0. Leaving the
    context removes the hooks that record these states.

    distillation: options of the loss.
    numerics: dtype of the teacher's passes.
    labels: labels of all training rows; None leaves out the loss on logits, as on plain
    text.
    kept_teacher_heads_by_layer: for each layer of a student with pruned heads, the
    indices of the teacher's heads that it still has; () means all."""
    prediction_args: tuple[Any, ...] = (
        ()
        if labels is None
        else (compute_logits, make_weighted_prediction_loss(labels, distillation))
    )
    return build_hidden_state_distillation_loss(
        student,
        teacher,
        pair_student_with_teacher_states(
            student, teacher, distillation, kept_teacher_heads_by_layer
        ),
        numerics,
        *prediction_args,
    )


def compute_logits(
    model: PreTrainedModel, batch: loop.Batch, unused_row_indices: np.ndarray
) -> Tensor:
    return loop.compute_logits(model, batch)


def make_student_for_task(
    run: RunWriter,
    student_architecture: Net | ArchitectureJson | ThatOfStartModel,
    task: Task,
    teacher: PreTrainedModel,
    dropout: float,
) -> PreTrainedModel:
    """Return a student model with the head that a task needs, ready to be distilled.

    Without an architecture, a start model that an earlier run changed, such as by
    pruning, is the student itself. Else a new model is made, which inherits weights of
    the start model (`make_student`). In both cases the student has a linear map
    `projection` from its hidden size to the teacher's.

    run: the run that is made; its input `start`, optional, is the start model.
    student_architecture: description of the student's network; None takes that of the
    start model.
    dropout: rate for hidden states and attention weights."""
    start = run.inputs.get("start")
    if student_architecture is None and start and (start.folder / SURGERY).exists():
        seed = derive_seed(run.seed, "head")
        # `load_task_model_and_tokenizer` sets the seed only where it draws a new head.
        # The projection below is always drawn at random, so the seed is set here too.
        torch.manual_seed(seed)
        model = heads.load_task_model_and_tokenizer(
            start.model_folder, task, dropout, seed
        )[0]
        model.projection = make_projection(
            model.config.hidden_size, teacher.config.hidden_size
        )
        return model
    cls = getattr(transformers, f"BertFor{heads.HEADS[task.span]}")
    return make_student(
        run, student_architecture, cls, teacher, dropout, num_labels=task.output_width
    )


def read_teacher_head_indices_by_student_layer(
    run: RunWriter,
) -> Sequence[Sequence[int]]:
    """Return which of the teacher's attention heads a pruned student still has.

    For each of L layers it is a list of the indices of these heads, in the student's
    order. So each head of the student is compared with the same head of the teacher.
    They are read from the report that the pruning operation "cut" left in the run's
    input `start`. Where there is no such report, so also after the operation "keep",
    the result is (), which stands for all heads.

    run: the run that is made, with its input runs."""
    start = run.inputs.get("start")
    if start and (start.folder / SURGERY).exists():
        for entry in json.loads((start.folder / SURGERY).read_text()):
            if entry["surgery"]["op"] == "cut":
                return entry["report"]["heads"]
    return ()


def make_student(
    run: RunWriter,
    student_architecture: Net | ArchitectureJson | ThatOfStartModel,
    model_class: type[PreTrainedModel],
    teacher: PreTrainedModel,
    dropout: float,
    **config_values: Any,
) -> PreTrainedModel:
    """Return a new student model that inherits its weights from a larger model.

    It has a linear map `projection` from its hidden size to the teacher's. Encoder and
    projection take the leading parts of the weights of the larger model, the run's
    input `start`, if there is one; the projection does so only if `start` has one to
    the same width. All other weights are random, drawn from the run's seed; a task's
    head always is.

    run: the run that is made.
    student_architecture: description of the student's network; None takes that of
    `start`.
    model_class: class of transformers, with or without a head.
    teacher: its configuration gives the vocabulary and its hidden size the projection.
    dropout: rate for hidden states and attention weights.
    config_values: further values of the model's configuration, such as num_labels."""
    start = run.inputs.get("start")
    larger = backbone.load(start.model_folder)[0] if start else None
    torch.manual_seed(derive_seed(run.seed, "student"))
    if student_architecture is None:
        assert larger is not None
        student_architecture = supernet.read_architecture_of_model(larger)
    model = supernet.build_efficientbert_model(
        student_architecture, model_class, teacher.config, **config_values
    )
    linear = model.projection = make_projection(
        model.config.hidden_size, teacher.config.hidden_size
    )
    if start and larger is not None:
        supernet.inherit_weights_and_list_missing_tensors(model, get_encoder(larger))
        inherited = load_hidden_state_projection(start.model_folder)
        if inherited and len(inherited.bias) == len(linear.bias):
            inherit_linear_weights_of_first_inputs(linear, *inherited)
    set_dropout(model, dropout)
    return model


def load_hidden_state_projection(
    student_model_folder: Path,
) -> LinearWeightAndBias | None:
    """Return the linear map from a student's hidden size H to its teacher's, if saved.

    It has weight [teacher's H, H] and bias [teacher's H]. Only distillation uses it, so
    it is a file beside the model. The result is None where there is no such file.

    student_model_folder: the student's model folder."""
    path = student_model_folder / PROJECTION
    if not path.exists():
        return None
    tensors = load_file(path)
    return LinearWeightAndBias(tensors[MAP + "weight"], tensors[MAP + "bias"])


def save_tensors_if_folder_given(
    tensors: Mapping[str, Tensor], folder: Path | None, file_name: str
) -> None:
    """Write tensors to a safetensors file in a folder, which is made if needed.

    It saves weights that are no part of a model itself, such as the heads of several
    tasks.

    tensors: {name: tensor}.
    folder: None writes nothing; it stands for a run that keeps no model."""
    if folder is not None:
        folder.mkdir(exist_ok=True)
        made = {
            key: value.detach().cpu().contiguous() for key, value in tensors.items()
        }
        save_file(made, folder / file_name)


def load_classifier(
    multitask_model_folder: Path, task_name: TaskName
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Return (classifier, tokenizer) for one of several tasks of a multi-task model.

    A run of the step `multitask` saves one encoder, and a classification head for each
    task. The two are joined here. Raises KeyError for a task on which it was not
    trained.

    multitask_model_folder: the model folder of that run."""
    encoder, tokenizer = backbone.load(multitask_model_folder)
    return join_encoder_and_head(
        encoder, *load_classification_head(multitask_model_folder, task_name)
    ), tokenizer


def load_classification_head(
    multitask_model_folder: Path, task_name: TaskName
) -> LinearWeightAndBias:
    """Return weight [C, H] and bias [C] of one task's classification head.

    A run of the step `multitask` trains one encoder on several tasks, and saves a head
    for each. Raises KeyError for a task on which it was not trained.

    multitask_model_folder: the model folder of that run."""
    tensors = load_file(multitask_model_folder / HEADS)
    return LinearWeightAndBias(
        tensors[f"{task_name}.weight"], tensors[f"{task_name}.bias"]
    )


def join_encoder_and_head(
    encoder: PreTrainedModel, head_weight: Tensor, head_bias: Tensor
) -> PreTrainedModel:
    """Return a sequence classifier made of an encoder and a classification head.

    It is a new model in eval mode with copies of their weights. So an encoder that
    learned several tasks can be scored on one.

    encoder: a BERT with EfficientBERT's architecture.
    head_weight, head_bias: the head, [C, H] and [C] for C classes."""
    model = supernet.build_efficientbert_model(
        supernet.read_architecture_of_model(encoder),
        transformers.BertForSequenceClassification,
        encoder.config,
        num_labels=len(head_bias),
    )
    # pyrefly: ignore[bad-argument-type]  transformers wraps `to` untyped.
    model.to(head_bias.device)
    supernet.inherit_weights_and_list_missing_tensors(model, encoder)
    assert isinstance(model.classifier, nn.Linear)
    inherit_linear_weights_of_first_inputs(model.classifier, head_weight, head_bias)
    return model.eval()


def inherit_linear_weights_of_first_inputs(
    target_linear: nn.Linear, source_weight: Tensor, source_bias: Tensor
) -> None:
    """Copy the weights of a linear layer into one with the same or fewer inputs.

    So a narrower student inherits from a wider model. The weights of the first
    `in_features` inputs, as many as `target_linear` has, are taken. The layer is
    changed in place.

    target_linear: the layer that gets the weights.
    source_weight, source_bias: [out, at least in_features] and [out]."""
    with torch.no_grad():
        target_linear.weight.copy_(source_weight[:, : target_linear.in_features])
        target_linear.bias.copy_(source_bias)


def make_training_callbacks(
    run: RunWriter, student: PreTrainedModel, subnetwork_options: Json | None = None
) -> list[loop.Callback]:
    """Return the callbacks that the training loop calls during a distillation.

    The last one saves the loss curve, and the linear map from the student's hidden size
    to the teacher's. With `subnetwork_options` a first one activates a random
    subnetwork of the student in each step.

    run: the run that is made, to which is saved.
    subnetwork_options: fields of the options SubnetworkOptions, which say how large a
    random subnetwork is; None trains the whole student."""
    subnetworks = (
        [SubnetworkTraining(student, SubnetworkOptions(**subnetwork_options), run.seed)]
        if subnetwork_options
        else []
    )
    return [*subnetworks, CurveAndProjectionSaving(run, student)]


class CurveAndProjectionSaving(loop.Callback):
    """This class saves loss curve and projection of a student when its training ends.

    The training loop calls its method once. The file `curve` gets arrays [N]: the loss,
    its parts, and "step", the numbers of the N (at most 500) logged steps. The
    projection, a linear map to the teacher's hidden size, is saved beside the model and
    removed from it, since only distillation uses it."""

    def __init__(self, run: RunWriter, student: PreTrainedModel) -> None:
        self.run = run
        self.student = student

    def after_last_step(self) -> Metrics:
        self.run.save_arrays("curve", **self.run.read_log("curve"))
        tensors = self.student.get_submodule("projection").state_dict(prefix=MAP)
        del self.student.projection
        save_tensors_if_folder_given(tensors, self.run.model_folder, PROJECTION)
        return {}


class SubnetworkTraining(loop.Callback):
    """This class makes each training step train one random subnetwork of a supernet.

    A supernet is a network whose leading parts are smaller networks with shared
    weights. After such a training each of them can be scored as it is (stage 3 of
    EfficientBERT's search). The training loop calls the methods. When the training
    ends, the whole supernet is active again."""

    def __init__(
        self, student: PreTrainedModel, subnetwork_options: SubnetworkOptions, seed: int
    ) -> None:
        self.student = student
        self.shared = subnetwork_options
        self.seed = seed
        self.supernet = from_json(supernet.read_architecture_of_model(student))
        linear = student.get_submodule("projection")
        assert isinstance(linear, nn.Linear)
        self.tables = find_embedding_sizes_of_config(
            student.config, linear.out_features
        )

    def before_forward_pass(self, step: int, step_count: int) -> None:
        supernet.activate_subnetwork(
            self.student,
            sample_subnetwork(
                self.supernet, self.shared, self.seed, step, **self.tables
            ),
        )

    def after_last_step(self) -> Metrics:
        supernet.activate_subnetwork(self.student)
        return {}


def find_embedding_sizes_of_config(
    config: PreTrainedConfig, teacher_hidden_size: int
) -> EmbeddingSizes:
    """Return the sizes outside the layers that a count of parameters needs.

    They are {"vocab", "positions", "types": rows of the three embedding tables,
    "teacher": hidden size of the teacher}. `count_net_parameters` takes them as
    arguments.

    config: configuration of the model.
    teacher_hidden_size: hidden size of the teacher."""
    return {
        "teacher": teacher_hidden_size,
        "vocab": config.vocab_size,
        "positions": config.max_position_embeddings,
        "types": config.type_vocab_size,
    }


def sample_subnetwork(
    full_net: Net,
    subnetwork_options: SubnetworkOptions,
    seed: int,
    step: int,
    **embedding_sizes: int,
) -> Net:
    """Return the random subnetwork of a supernet that one training step trains.

    A supernet is a network whose leading parts are smaller networks with shared
    weights. The result depends on seed and step alone, so a resumed training draws the
    same. Each layer draws (k, q): k stacked feed-forward networks with 1/q of the full
    inner width. All layers are drawn again until the number of parameters is within the
    bounds, as in EfficientBERT's code. Raises Refused after 10,000 failed draws.

    full_net: description of the supernet.
    subnetwork_options: `choices` has the pairs (k, q) of each layer, and `window` the
    least and most parameters.
    embedding_sizes: rows of the embedding tables and the teacher's hidden size, as
    `find_embedding_sizes_of_config` returns them."""
    dice = random.Random(derive_seed(seed, f"part:{step}"))
    for _ in range(DRAWS):
        layers = tuple(
            replace(layer, stack=k, q=q)
            for layer, (k, q) in zip(
                full_net.layers,
                map(dice.choice, subnetwork_options.choices),
                strict=True,
            )
        )
        net = replace(full_net, layers=layers)
        size = count_net_parameters(net, "with projection", **embedding_sizes)
        if subnetwork_options.window[0] <= size <= subnetwork_options.window[1]:
            return net
    raise Refused(
        f"SubnetworkOptions.window is {subnetwork_options.window}; none of {DRAWS} draws "
        "is in it: move it"
    )
