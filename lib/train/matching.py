"""This module distils: it trains a student to match the hidden states of a teacher.

A list of `Match` says which states are compared. GhostBERT (section 2.3), EfficientBERT
(section 3.2) and the report on NAS pruning (section 5.5) differ in this list alone.

Shapes: B batch, T tokens, H hidden, A heads, L layers; s and t mark student and
teacher."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from lib.core.names import Refused
from lib.core.options import Numerics
from lib.model.parts import get_encoder, get_layers
from lib.model.scores import record_attention_scores
from lib.model.taps import record_hidden_states
from lib.train import loop
from lib.train.batches import Encoded, make_batch
from lib.train.lean import use_eager_attention_and_few_casts
from lib.train.losses import compute_mean_squared_error

# Hidden states of a forward pass: "embedding" is a tensor [B, T, H]; "attention", "ffn"
# and "scores" are lists with a tensor for each layer.
States = Mapping[str, Any]
# Forward pass: f(model, batch, row numbers) -> logits, or None where only the encoder
# runs.
Forward = Callable[[PreTrainedModel, loop.Batch, np.ndarray], Tensor | None]
# Forward pass of a teacher: f(batch, row numbers) -> (hidden states, logits).
TeacherForward = Callable[[loop.Batch, np.ndarray], tuple[States, Tensor | None]]
# Loss on logits: (its weight, f(student's logits, teacher's logits, row numbers) ->
# scalar).
PredictionLoss = tuple[float, Callable[[Tensor, Tensor, np.ndarray], Tensor]]


class LayerPair(NamedTuple):
    student_layer: int  # Counted from 0.
    teacher_layer: int


@dataclass(frozen=True)
class Match:
    """A Match compares one kind of hidden state of student and teacher in pairs of
    layers. The distances are added to the loss."""

    part: str  # Name of the term of the loss to which the distances are added.
    # Hidden state that is compared: "embedding", "attention" or "ffn" (the outputs of
    # these blocks), or "scores" (attention scores before the softmax).
    feature: str
    layers: tuple[LayerPair, ...] = (LayerPair(0, 0),)
    mask: bool = False  # Whether the mean leaves out padded tokens.
    # Whether the student's states are first projected by `student.projection` to the
    # teacher's width.
    projected: bool = False
    # For each layer of a pruned student, the teacher's heads that it still has; ()
    # means all heads.
    heads: Sequence[Sequence[int]] = ()
    # Distance: f(student's states, teacher's states, attention mask [B, T], `mask`) ->
    # scalar.
    distance: Callable[[Tensor, Tensor, Tensor, bool], Tensor] = (
        compute_mean_squared_error
    )


def map_layers(
    student_layer_count: int, teacher_layer_count: int
) -> tuple[LayerPair, ...]:
    """Return the pairs of layers to match.

    Counted from 1, layer m of a student with L_s layers is matched to layer m L_t / L_s
    of the teacher where that is a whole number. A student deeper than its teacher has
    layers without a partner. Raises Refused where neither number divides the other.

    student_layer_count, teacher_layer_count: the numbers of layers L_s and L_t."""
    if (
        student_layer_count % teacher_layer_count
        and teacher_layer_count % student_layer_count
    ):
        raise Refused(
            f"a student of {student_layer_count} layers and a teacher of {teacher_layer_count}: "
            "one must be a multiple of the other"
        )
    return tuple(
        LayerPair(m - 1, m * teacher_layer_count // student_layer_count - 1)
        for m in range(1, student_layer_count + 1)
        if m * teacher_layer_count % student_layer_count == 0
    )


@contextmanager
def record_states_and_scores(
    model: PreTrainedModel, with_attention_scores: bool = True
) -> Iterator[States]:
    """Yield a dict that each forward pass of the model fills with its hidden states.

    The keys are "embedding" [B, T, H], and "attention", "ffn" and "scores", lists with
    a tensor for each layer.

    with_attention_scores: whether to record the attention scores before the softmax,
    [B, A, T, T] for each layer."""
    with (
        record_hidden_states(model) as seen,
        record_attention_scores(model)
        if with_attention_scores
        else nullcontext() as seen["scores"],
    ):
        yield seen


def run_encoder_without_head(
    model: PreTrainedModel, batch: loop.Batch, unused_row_numbers: np.ndarray
) -> None:
    """Run the encoder of a model without its head, where only hidden states are needed.

    unused_row_numbers: not used; other forward passes look up their labels by them."""
    get_encoder(model)(**batch)


@contextmanager
def open_teacher_forward(
    model: PreTrainedModel,
    numerics: Numerics,
    run_forward: Forward = run_encoder_without_head,
    with_attention_scores: bool = True,
) -> Iterator[TeacherForward]:
    """Yield a function f(batch, row numbers) -> (hidden states, logits) that runs a
    teacher without gradients.

    run_forward: the forward pass; by default the encoder runs alone, and logits are
    None.
    with_attention_scores: whether the states include attention scores before the
    softmax."""
    # pyrefly: ignore[bad-argument-type]  # transformers' `to` is untyped.
    model.to(loop.get_device())
    with (
        use_eager_attention_and_few_casts(model, numerics),
        record_states_and_scores(model, with_attention_scores) as seen,
    ):

        def run_on_batch(
            batch: loop.Batch, rows: np.ndarray
        ) -> tuple[States, Tensor | None]:
            with torch.no_grad():
                return seen, run_forward(model, batch, rows)

        yield run_on_batch


@contextmanager
def build_matching_loss(
    student: PreTrainedModel,
    teacher_forward: TeacherForward,
    layer_matches: Sequence[Match],
    run_forward: Forward = run_encoder_without_head,
    prediction_loss: PredictionLoss | None = None,
) -> Iterator[loop.Loss]:
    """Yield the distillation loss of a student that matches a teacher's hidden states:
    f(batch, row numbers) -> {"loss": scalar, terms...}.

    teacher_forward: f(batch, row numbers) -> (hidden states, logits) of the teacher.
    run_forward: the student's forward pass; by default the encoder runs alone.
    prediction_loss: (weight, function) of a loss on logits, added as "prediction"."""
    with record_states_and_scores(
        student, any(match.feature == "scores" for match in layer_matches)
    ) as seen:

        def compute_loss(batch: loop.Batch, rows: np.ndarray) -> dict[str, Tensor]:
            teacher_states, teacher_logits = teacher_forward(batch, rows)
            logits = run_forward(student, batch, rows)
            parts = compute_distances(
                layer_matches, seen, teacher_states, batch["attention_mask"], student
            )
            total = sum(parts.values())
            if prediction_loss:
                assert logits is not None and teacher_logits is not None
                weight, compare = prediction_loss
                parts["prediction"] = compare(logits, teacher_logits, rows)
                total = total + weight * parts["prediction"]
            assert isinstance(total, Tensor)
            return {"loss": total, **parts}

        yield compute_loss


@contextmanager
def build_matching_loss_of_teacher(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    layer_matches: Sequence[Match],
    numerics: Numerics,
    run_forward: Forward = run_encoder_without_head,
    prediction_loss: PredictionLoss | None = None,
) -> Iterator[loop.Loss]:
    """Yield the distillation loss of `build_matching_loss` with a teacher that runs on
    each batch too.

    The alternative is to read the teacher's states from disk
    (`read_states_from_disk`)."""
    scores = any(match.feature == "scores" for match in layer_matches)
    with (
        open_teacher_forward(teacher, numerics, run_forward, scores) as teach,
        build_matching_loss(
            student, teach, layer_matches, run_forward, prediction_loss
        ) as loss,
    ):
        yield loss


def compute_distances(
    layer_matches: Sequence[Match],
    student_states: States,
    teacher_states: States,
    token_mask: Tensor,
    student: nn.Module | None = None,
) -> dict[str, Tensor]:
    """Return {term of the loss: sum of its distances} between the hidden states of
    student and teacher, all with weight 1.

    Raises Refused where attention scores have different numbers of heads.

    layer_matches: the kinds of states and the pairs of layers that are compared.
    student_states, teacher_states: the states of one batch, as
    `record_states_and_scores` fills them.
    token_mask: attention mask [B, T], 1 for real tokens.
    student: the model with the `projection`, where a Match needs it."""
    parts: dict[str, Tensor] = {}
    for match in layer_matches:
        ours, targets = student_states[match.feature], teacher_states[match.feature]
        if match.feature == "embedding":
            ours, targets = [ours], [targets]
        for i, j in match.layers:
            a, b = ours[i], targets[j]
            if match.heads:
                b = b[:, list(match.heads[i])]
            if match.projected:
                assert student is not None
                a = student.get_submodule("projection")(a)
            if match.feature == "scores" and a.shape[1] != b.shape[1]:
                raise Refused(
                    f"{a.shape[1]} heads in the student, {b.shape[1]} in the teacher: "
                    "their attention cannot be matched; take as many heads"
                )
            parts[match.part] = parts.get(match.part, 0) + match.distance(
                a, b, token_mask, match.mask
            )
    return parts


def make_projection(student_width: int, teacher_width: int) -> nn.Linear:
    """Return a linear layer from the student's width to the teacher's, so that states
    of two widths can be compared.

    Its weights are drawn from a normal distribution with standard deviation 0.02, and
    its biases are 0."""
    made = nn.Linear(student_width, teacher_width)
    nn.init.normal_(made.weight, 0.0, 0.02)
    nn.init.zeros_(made.bias)
    return made


# A teacher's states are written to disk once for all its students. A token has S = 2 L
# + 1 states: the embedding, then attention output and layer output of each layer. The
# states of all N rows are one array [sum of T, S * H], with N + 1 offsets of the rows.
@torch.no_grad()
def write_hidden_states(
    model: PreTrainedModel,
    encoded: Encoded,
    numerics: Numerics,
    file_path: Path,
    batch_size: int = 32,
    report_progress: Callable[[float], None] = lambda fraction: None,
) -> dict[str, int]:
    """Write a teacher's hidden states for all rows to a file, and return {"bytes",
    "tokens"}.

    Students that are distilled from it then need not run the teacher. The states have
    the dtype of `numerics`.

    encoded: the tokenised rows.
    report_progress: function that gets the share of rows done."""
    # pyrefly: ignore[bad-argument-type]  # transformers' `to` is untyped.
    model.to(loop.get_device()).eval()
    lengths = encoded.lengths()
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.argsort(lengths, kind="stable")
    width = model.config.hidden_size * (2 * len(get_layers(model)) + 1)
    dtype = getattr(torch, numerics.dtype)
    table = torch.empty(int(offsets[-1]), width, dtype=dtype)
    with (
        record_hidden_states(model) as seen,
        use_eager_attention_and_few_casts(model, numerics),
        loop.use_dtype(numerics),
    ):
        for start in range(0, len(rows), batch_size):
            chosen = rows[start : start + batch_size]
            get_encoder(model)(**make_batch(encoded, chosen, device=loop.get_device()))
            both = chain.from_iterable(zip(seen["attention"], seen["ffn"], strict=True))
            states = torch.cat([seen["embedding"], *both], -1).to("cpu", dtype)
            for line, row in enumerate(chosen):
                table[offsets[row] : offsets[row + 1]] = states[line, : lengths[row]]
            report_progress((start + batch_size) / len(rows))
    save_file({"states": table, "offsets": torch.from_numpy(offsets)}, file_path)
    return {"bytes": table.nbytes, "tokens": len(table)}


def read_states_from_disk(file_path: Path, layer_count: int) -> TeacherForward:
    """Return a function f(batch, row numbers) -> (hidden states, None) that reads a
    teacher's states from disk, in place of `open_teacher_forward`.

    States are padded with zeros to the length of the batch.

    file_path: a file of `write_hidden_states`.
    layer_count: layers of the teacher."""
    tensors = load_file(file_path)
    offsets, states = tensors["offsets"].tolist(), tensors["states"]

    def read_batch_states(batch: loop.Batch, rows: np.ndarray) -> tuple[States, None]:
        pieces = [states[offsets[i] : offsets[i + 1]] for i in rows]
        table = nn.utils.rnn.pad_sequence(pieces, batch_first=True)
        missing = batch["input_ids"].shape[1] - table.shape[1]
        table = nn.functional.pad(table, (0, 0, 0, missing)).to(loop.get_device())
        parts = table.chunk(2 * layer_count + 1, -1)
        return {
            "embedding": parts[0],
            "attention": parts[1::2],
            "ffn": parts[2::2],
        }, None

    return read_batch_states
