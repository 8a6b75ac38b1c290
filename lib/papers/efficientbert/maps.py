"""This step compares the last layers of students with that of their teacher: attention
maps and outputs (EfficientBERT, Figures 7 and 8).

Shapes: N rows, T tokens, A heads, H hidden."""

from typing import NamedTuple

import numpy as np
import torch
import transformers

from lib import data as sources
from lib.core.options import Numerics
from lib.core.store import RunWriter
from lib.model import backbone
from lib.model.parts import get_encoder
from lib.papers.efficientbert import students
from lib.papers.efficientbert.similarity import compute_cka, compute_kl_divergence
from lib.stats.metrics import Metrics
from lib.train import loop
from lib.train.batches import EncodedRows, encode_split, make_batch
from lib.train.matching import record_states_and_attention_scores


class LastLayerArrays(NamedTuple):
    attention: np.ndarray  # Probabilities [A, T, T].
    output: np.ndarray  # [T, H].


def maps(
    run: RunWriter,
    data: sources.DataDescriptor,
    rows: list[int],
    examples: int,
    max_length: int,
    numerics: loop.SettingsJson,
) -> Metrics:
    """Compare the last layers of some models with that of a reference model.

    It is for Figures 7 and 8 of EfficientBERT, where students are compared with their
    teacher. This function is a step: it does the work of a run and returns its metrics.
    Each other model gets three metrics. "<input>.cka" is the linear CKA of the outputs
    of all tokens of the first `examples` rows. "<input>.kl" is KL(reference || model)
    in nats for the attention of a head, as a mean over queries, heads and rows, where
    each row counts equally. "<input>.kl_mean_map" is that of the attention averaged
    over heads.

    <input> is the name of an input run, such as "model:EfficientBERT". For N rows it
    saves the file `maps`: `attention.<input>` [N, A, T, T], probabilities;
    `output.<input>` [N, T, H], mapped to the reference's width where a student has a
    linear map for that; `lengths` [N], tokens of each row; and `rows` [N]. Shorter rows
    are padded with 0.

    run: the run that is made, whose inputs are finished runs: `reference`, and `model`
    or any number of `model:<name>`, all with one vocabulary.
    data: the dict that says which rows of a task are loaded.
    rows: indices of the development rows whose arrays are saved.
    examples: number of first development rows on which the metrics are measured.
    max_length: tokens to which rows are cut.
    numerics: dtype, threads and device, as JSON."""
    arithmetic = loop.set_dtype_threads_and_device(numerics)
    dev = sources.load(data, run.seed)["dev"]
    last = max([*rows, examples - 1])
    seen = {}
    arrays = {}
    result = {}
    for name, made in run.inputs.items():
        model, tokenizer = backbone.load(made.model_folder)
        encoded = encode_split(
            tokenizer, dev.select_rows(np.arange(last + 1)), max_length
        )
        project = students.load_hidden_state_projection(made.model_folder)
        seen[name] = [
            compute_last_layer_outputs(model, encoded, i, project, arithmetic)
            for i in range(last + 1)
        ]
    reference = seen["reference"]
    lengths = np.array([len(reference[i][1]) for i in rows])
    for name, states in seen.items():
        for place, what in enumerate(("attention", "output")):
            shown = [states[i][place] for i in rows]
            shape = np.max([array.shape for array in shown], 0)
            arrays[f"{what}.{name}"] = padded = np.zeros(
                (len(rows), *shape), np.float32
            )
            for line, array in zip(padded, shown, strict=True):
                line[tuple(map(slice, array.shape))] = array
        if name != "reference":
            metrics = measure_last_layer_similarity(
                reference[:examples], states[:examples]
            )
            result |= {f"{name}.{key}": value for key, value in metrics.items()}
    run.save_arrays("maps", lengths=lengths, rows=np.array(rows), **arrays)
    return result


@torch.inference_mode()
def compute_last_layer_outputs(
    model: transformers.PreTrainedModel,
    encoded: EncodedRows,
    row_index: int,
    projection: students.LinearWeightAndBias | None,
    numerics: Numerics,
) -> LastLayerArrays:
    """Return attention [A, T, T] and output [T, H] of a model's last layer on one row.

    Attention is the softmax of the scores. Both are float32 arrays on the CPU, so that
    models can be compared.

    encoded: tokenised rows.
    row_index: number of the row in `encoded`.
    projection: weight and bias of a linear map that is applied to the output, as from a
    student's width to its teacher's; None applies none.
    numerics: dtype of the computation."""
    # pyrefly: ignore[bad-argument-type]  # transformers wraps `to` untyped.
    model.to(loop.get_device()).eval()
    with (
        record_states_and_attention_scores(model) as seen,
        loop.autocast_to_dtype(numerics),
    ):
        get_encoder(model)(**make_batch(encoded, [row_index], device=loop.get_device()))
    output = seen["ffn"][-1].float()
    if projection:
        weight, bias = (value.to(output.device) for value in projection)
        output = torch.nn.functional.linear(output, weight, bias)
    attention = seen["scores"][-1].float().softmax(-1)[0].cpu().numpy()
    return LastLayerArrays(attention, output[0].cpu().numpy())


def measure_last_layer_similarity(
    reference_outputs: list[LastLayerArrays], model_outputs: list[LastLayerArrays]
) -> Metrics:
    """Return how similar a model's last layer is to a reference's, as three numbers.

    "kl" is KL(reference || model), in nats, for the attention of a head, as a mean over
    queries, heads and rows, where each row counts equally. "kl_mean_map" is that of the
    attention averaged over heads. "cka" is the linear CKA of the outputs of all tokens,
    from 0 to 1, where 1 is the most similar.

    reference_outputs, model_outputs: attention [A, T, T] and output [T, H] for each
    row, with the same rows in the same order."""
    of_heads = []
    of_means = []
    for (a, _), (b, _) in zip(reference_outputs, model_outputs, strict=True):
        of_heads.append(compute_kl_divergence(a, b).mean())
        of_means.append(compute_kl_divergence(a.mean(0), b.mean(0)).mean())
    outputs = (
        np.concatenate([output for _, output in rows])
        for rows in (reference_outputs, model_outputs)
    )
    return {
        "kl_mean_map": float(np.mean(of_means)),
        "kl": float(np.mean(of_heads)),
        "cka": compute_cka(*outputs),
    }
