"""This module distils: it trains a student to match the hidden states of a teacher.

A list of `Match` says which states are compared. GhostBERT (section 2.3), EfficientBERT
(section 3.2) and the report on NAS pruning (section 5.5) differ in this list, and in
whether a loss on logits is added.

Shapes: B batch, T tokens, H hidden, A heads, L layers; s and t mark student and
teacher."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from lib.core.names import Refused
from lib.core.options import Numerics
from lib.core.types import ContextYield, LossTerm
from lib.model.parts import get_encoder, get_layers
from lib.model.scores import record_attention_scores
from lib.model.taps import record_hidden_states
from lib.train import loop
from lib.train.batches import EncodedRows, make_batch
from lib.train.lean import speed_up_passes_on_cpu
from lib.train.losses import compute_mean_squared_error

EmbeddingAttentionFfnOrScores: TypeAlias = str  # Kind of hidden states.
# Hidden states of a forward pass: "embedding" is a tensor [B, T, H]; "attention", "ffn"
# and "scores" (attention scores) are lists with a tensor for each layer.
StatesByKind: TypeAlias = Mapping[EmbeddingAttentionFfnOrScores, Any]
HeadIndices: TypeAlias = Sequence[int]
BytesAndTokens: TypeAlias = dict[str, int]  # {"bytes", "tokens": number}.
# Forward pass: f(model, batch, row numbers) -> logits, or None where only the encoder
# runs.
RunForward = Callable[[PreTrainedModel, loop.Batch, np.ndarray], Tensor | None]
# Forward pass of a teacher: f(batch, row numbers) -> (hidden states, logits).
TeacherForward = Callable[[loop.Batch, np.ndarray], tuple[StatesByKind, Tensor | None]]
# Loss on logits: (its weight, f(student's logits, teacher's logits, row numbers) ->
# scalar).
WeightAndPredictionLoss = tuple[float, Callable[[Tensor, Tensor, np.ndarray], Tensor]]


class LayerIndexPair(NamedTuple):
    student_layer: int  # Counted from 0.
    teacher_layer: int


@dataclass(frozen=True)
class Match:
    """A Match says which states of a student are compared with which of its teacher.

    It is for distillation: the distance of each pair of layers is added to the loss.

    loss_term: the name of the loss term to which the distances are added.
    feature: the hidden states that are compared: "embedding", "attention" or "ffn"
    (outputs of these blocks), or "scores" (attention scores before the softmax).
    layers: pairs (student's layer, teacher's layer), counted from 0.
    excludes_padding: whether padded tokens are left out of the distance.
    projects_student: whether the student's linear map `projection` first brings its
    states to the teacher's width.
    teacher_heads_by_student_layer: for each layer of a pruned student, the indices of
    the teacher's heads that this layer still has; () where the student has all heads.
    distance: f(student's states, teacher's states, attention mask [B, T],
    `excludes_padding`) -> scalar."""

    loss_term: LossTerm
    feature: EmbeddingAttentionFfnOrScores
    layers: tuple[LayerIndexPair, ...] = (LayerIndexPair(0, 0),)
    excludes_padding: bool = False
    projects_student: bool = False
    teacher_heads_by_student_layer: Sequence[HeadIndices] = ()
    distance: Callable[[Tensor, Tensor, Tensor, bool], Tensor] = (
        compute_mean_squared_error
    )


def pair_student_with_teacher_layers(
    student_layer_count: int, teacher_layer_count: int
) -> tuple[LayerIndexPair, ...]:
    """Return which layers of student and teacher are compared in distillation.

    They are pairs (student's layer, teacher's layer), counted from 0. The teacher's
    layers lie at equal steps: counted from 1, layer m of a student with L_s layers is
    paired with layer m L_t / L_s of the teacher where that is a whole number. In a
    student that is deeper than its teacher some layers have no partner. Raises Refused
    where neither number of layers divides the other.

    student_layer_count, teacher_layer_count: L_s and L_t."""
    if (
        student_layer_count % teacher_layer_count
        and teacher_layer_count % student_layer_count
    ):
        raise Refused(
            f"a student of {student_layer_count} layers and a teacher of {teacher_layer_count}: "
            "one must be a multiple of the other"
        )
    return tuple(
        LayerIndexPair(m - 1, m * teacher_layer_count // student_layer_count - 1)
        for m in range(1, student_layer_count + 1)
        if m * teacher_layer_count % student_layer_count == 0
    )


@contextmanager
def record_states_and_attention_scores(
    model: PreTrainedModel, includes_attention_scores: bool = True
) -> ContextYield[StatesByKind]:
    """Record a model's hidden states and attention scores during a `with` block.

    Yields a dict that each forward pass fills anew, for a distillation loss:
    "embedding" [B, T, H]; "attention" and "ffn" (outputs of these blocks), lists of L
    tensors [B, T, H]; "scores" (attention scores before the softmax), a list of L
    tensors [B, A, T, T].

    includes_attention_scores: False leaves out the scores; "scores" is then None."""
    with (
        record_hidden_states(model) as seen,
        record_attention_scores(model)
        if includes_attention_scores
        else nullcontext() as seen["scores"],
    ):
        yield seen


def run_encoder_without_head(
    model: PreTrainedModel, batch: loop.Batch, unused_training_row_numbers: np.ndarray
) -> None:
    """Run a model's encoder without its head, where only hidden states are needed.

    Hooks such as those of `record_states_and_attention_scores` read the states, so
    nothing is returned.

    unused_training_row_numbers: not used. Other functions for the forward pass (type
    `RunForward`) need the row numbers, so all take them."""
    get_encoder(model)(**batch)


@contextmanager
def build_teacher_forward(
    model: PreTrainedModel,
    numerics: Numerics,
    run_forward: RunForward = run_encoder_without_head,
    includes_attention_scores: bool = True,
) -> ContextYield[TeacherForward]:
    """Make the function that runs a teacher on a batch without gradients.

    It is used in a `with` block, which yields f(batch, row numbers) -> (hidden states,
    logits). The states are {"embedding": [B, T, H], "attention" and "ffn" (outputs of
    these blocks): L tensors [B, T, H], "scores": L tensors [B, A, T, T], or None where
    they are left out}. Logits are None where only the encoder runs.

    model: the teacher.
    numerics: the dtype of the passes; the caller runs them within
    `loop.autocast_to_dtype`, as `loop.fit` does.
    run_forward: the forward pass, f(model, batch, row numbers) -> logits; by default
    the encoder runs alone.
    includes_attention_scores: whether the states include attention scores before the
    softmax."""
    # pyrefly: ignore[bad-argument-type]  # transformers' `to` is untyped.
    model.to(loop.get_device())
    with (
        speed_up_passes_on_cpu(model, numerics),
        record_states_and_attention_scores(model, includes_attention_scores) as seen,
    ):

        def compute_teacher_states_and_logits(
            batch: loop.Batch, training_row_numbers: np.ndarray
        ) -> tuple[StatesByKind, Tensor | None]:
            with torch.no_grad():
                return seen, run_forward(model, batch, training_row_numbers)

        yield compute_teacher_states_and_logits


@contextmanager
def build_hidden_state_loss_from_teacher_outputs(
    student: PreTrainedModel,
    teacher_forward: TeacherForward,
    layer_matches: Sequence[Match],
    run_forward: RunForward = run_encoder_without_head,
    prediction_loss: WeightAndPredictionLoss | None = None,
) -> ContextYield[loop.LossFunction]:
    """Make the loss by which a student learns to match a teacher's hidden states.

    It is used in a `with` block, which yields f(batch, row numbers) -> {"loss": scalar,
    and each of its terms}.

    teacher_forward: f(batch, row numbers) -> (hidden states, logits) of the teacher.
    The states are {"embedding": tensor, "attention" and "ffn" (outputs of the blocks),
    "scores" (of attention, before the softmax): a tensor for each layer}, as far as
    they are compared.
    layer_matches: which states and layers are compared, and by which distance.
    run_forward: the student's forward pass, f(model, batch, row numbers) -> logits; by
    default the encoder runs alone.
    prediction_loss: (weight, f(student's logits, teacher's logits, row numbers) ->
    scalar), a further term "prediction", returned without its weight; None for none."""
    with record_states_and_attention_scores(
        student, any(match.feature == "scores" for match in layer_matches)
    ) as seen:

        def compute_loss(
            batch: loop.Batch, training_row_numbers: np.ndarray
        ) -> dict[str, Tensor]:
            teacher_states, teacher_logits = teacher_forward(
                batch, training_row_numbers
            )
            logits = run_forward(student, batch, training_row_numbers)
            parts = compute_layerwise_distillation_terms(
                layer_matches, seen, teacher_states, batch["attention_mask"], student
            )
            total = sum(parts.values())
            if prediction_loss:
                assert logits is not None and teacher_logits is not None
                weight, compare = prediction_loss
                parts["prediction"] = compare(
                    logits, teacher_logits, training_row_numbers
                )
                total = total + weight * parts["prediction"]
            assert isinstance(total, Tensor)
            return {"loss": total, **parts}

        yield compute_loss


@contextmanager
def build_hidden_state_distillation_loss(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    layer_matches: Sequence[Match],
    numerics: Numerics,
    run_forward: RunForward = run_encoder_without_head,
    prediction_loss: WeightAndPredictionLoss | None = None,
) -> ContextYield[loop.LossFunction]:
    """Make a distillation loss on hidden states, where the teacher runs on each batch.

    It is used in a `with` block, which yields f(batch, row numbers) -> {"loss": scalar,
    and each of its terms}. `build_teacher_forward_from_stored_states` is the
    alternative: the teacher's states are then written once, and no teacher has to run.

    layer_matches: which states and layers are compared, and by which distance.
    numerics: the dtype of the teacher's passes; the caller runs them within
    `loop.autocast_to_dtype`, as `loop.fit` does.
    run_forward: the forward pass of both models, f(model, batch, row numbers) ->
    logits; by default the encoders run alone.
    prediction_loss: (weight, f(student's logits, teacher's logits, row numbers) ->
    scalar), a further term "prediction", returned without its weight; None for none."""
    scores = any(match.feature == "scores" for match in layer_matches)
    with (
        build_teacher_forward(teacher, numerics, run_forward, scores) as teach,
        build_hidden_state_loss_from_teacher_outputs(
            student, teach, layer_matches, run_forward, prediction_loss
        ) as loss,
    ):
        yield loss


def compute_layerwise_distillation_terms(
    layer_matches: Sequence[Match],
    student_states: StatesByKind,
    teacher_states: StatesByKind,
    token_mask: Tensor,
    student_with_projection: nn.Module | None = None,
) -> dict[LossTerm, Tensor]:
    """Return the distances between hidden states of student and teacher on a batch.

    They are {term of the loss: scalar}, where a Match names the term to which it adds,
    such as "attention". A term is the sum of its distances over pairs of layers, all
    with weight 1. Raises Refused where attention scores have different numbers of
    heads.

    layer_matches: which states and layers are compared, by which distance, for which
    term.
    student_states, teacher_states: {"embedding": tensor, "attention" and "ffn" (outputs
    of these blocks), "scores" (of attention, before the softmax): a tensor for each
    layer}.
    token_mask: attention mask [B, T], 1 for real tokens.
    student_with_projection: the model whose linear map `projection` brings its states
    to the teacher's width; needed only where a Match asks for it."""
    parts: dict[str, Tensor] = {}
    for match in layer_matches:
        ours, targets = student_states[match.feature], teacher_states[match.feature]
        if match.feature == "embedding":
            ours, targets = [ours], [targets]
        for i, j in match.layers:
            a, b = ours[i], targets[j]
            if match.teacher_heads_by_student_layer:
                b = b[:, list(match.teacher_heads_by_student_layer[i])]
            if match.projects_student:
                assert student_with_projection is not None
                a = student_with_projection.get_submodule("projection")(a)
            if match.feature == "scores" and a.shape[1] != b.shape[1]:
                raise Refused(
                    f"{a.shape[1]} heads in the student, {b.shape[1]} in the teacher: "
                    "their attention cannot be matched; take as many heads"
                )
            parts[match.loss_term] = parts.get(match.loss_term, 0) + match.distance(
                a, b, token_mask, match.excludes_padding
            )
    return parts


def make_projection(student_width: int, teacher_width: int) -> nn.Linear:
    """Return a linear layer from the student's hidden size to the teacher's.

    With it, a distillation loss can compare states of two widths. Its weights are drawn
    from a normal distribution with standard deviation 0.02, and its biases are 0."""
    made = nn.Linear(student_width, teacher_width)
    nn.init.normal_(made.weight, 0.0, 0.02)
    nn.init.zeros_(made.bias)
    return made


# The functions below write a teacher's hidden states to disk once, and read them for
# each of its students. A token has S = 2 L + 1 states: the embedding, then attention
# output and layer output of each layer. The states of all N rows are one array [sum of
# T, S * H]. An array of N + 1 offsets says where the tokens of each row begin.
@torch.no_grad()
def write_hidden_states(
    model: PreTrainedModel,
    encoded: EncodedRows,
    numerics: Numerics,
    file_path: Path,
    batch_size: int = 32,
    report_progress: Callable[[float], None] = lambda fraction: None,
) -> BytesAndTokens:
    """Write a teacher's hidden states for all rows to a file.

    Students that are distilled from the file then need not run the teacher
    (`build_teacher_forward_from_stored_states`). The states are the embedding output
    and the outputs of the attention blocks and layers, in the dtype of `numerics`,
    without padding.

    Returns {"bytes": size of the states, "tokens": number of tokens}.

    encoded: the tokenised rows.
    batch_size: rows of a batch.
    report_progress: a function that gets the share of rows done, 0 to 1."""
    # pyrefly: ignore[bad-argument-type]  # transformers' `to` is untyped.
    model.to(loop.get_device()).eval()
    lengths = encoded.compute_row_lengths()
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.argsort(lengths, kind="stable")
    width = model.config.hidden_size * (2 * len(get_layers(model)) + 1)
    dtype = getattr(torch, numerics.dtype)
    table = torch.empty(int(offsets[-1]), width, dtype=dtype)
    with (
        record_hidden_states(model) as seen,
        speed_up_passes_on_cpu(model, numerics),
        loop.autocast_to_dtype(numerics),
    ):
        for start in range(0, len(rows), batch_size):
            chosen = rows[start : start + batch_size]
            get_encoder(model)(**make_batch(encoded, chosen, device=loop.get_device()))
            both = chain.from_iterable(zip(seen["attention"], seen["ffn"], strict=True))
            states = torch.cat([seen["embedding"], *both], -1).to("cpu", dtype)
            for line, row in enumerate(chosen):
                table[offsets[row] : offsets[row + 1]] = states[line, : lengths[row]]
            report_progress((start + len(chosen)) / len(rows))
    save_file({"states": table, "offsets": torch.from_numpy(offsets)}, file_path)
    return {"bytes": table.nbytes, "tokens": len(table)}


def build_teacher_forward_from_stored_states(
    file_path: Path, teacher_layer_count: int
) -> TeacherForward:
    """Make the function that reads a teacher's hidden states from disk.

    Students are then distilled without running the teacher. It is f(batch, row numbers)
    -> (hidden states, None), in place of a function that runs the teacher. The states
    are {"embedding": [B, T, H], "attention" and "ffn": L tensors [B, T, H]}, with zeros
    at padded tokens.

    file_path: a file that `write_hidden_states` wrote.
    teacher_layer_count: its number of layers L."""
    tensors = load_file(file_path)
    offsets, states = tensors["offsets"].tolist(), tensors["states"]

    def read_batch_states_without_logits(
        batch: loop.Batch, training_row_numbers: np.ndarray
    ) -> tuple[StatesByKind, None]:
        pieces = [states[offsets[i] : offsets[i + 1]] for i in training_row_numbers]
        table = nn.utils.rnn.pad_sequence(pieces, batch_first=True)
        missing = batch["input_ids"].shape[1] - table.shape[1]
        table = nn.functional.pad(table, (0, 0, 0, missing)).to(loop.get_device())
        parts = table.chunk(2 * teacher_layer_count + 1, -1)
        return {
            "embedding": parts[0],
            "attention": parts[1::2],
            "ffn": parts[2::2],
        }, None

    return read_batch_states_without_logits
