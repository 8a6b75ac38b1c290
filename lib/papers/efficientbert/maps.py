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
from lib.core.types import Json
from lib.model import backbone
from lib.model.parts import get_encoder
from lib.papers.efficientbert import students
from lib.papers.efficientbert.similarity import compute_cka, compute_kl_divergence
from lib.stats.metrics import Metrics
from lib.train import loop
from lib.train.batches import Encoded, encode_split, make_batch
from lib.train.matching import record_states_and_scores


class LastLayer(NamedTuple):
    attention: np.ndarray  # Probabilities [A, T, T].
    output: np.ndarray  # [T, H].


def maps(
    run: RunWriter,
    data: Json,
    rows: list[int],
    examples: int,
    max_length: int,
    numerics: Json,
) -> Metrics:
    """Save attention maps and outputs of the last layers of models, and measure how
    similar they are to a reference model.

    It saves arrays, without any text: `attention.<input>` [N, A, T, T], the
    probabilities; `output.<input>` [N, T, H], projected to the teacher's width where
    the model has a projection; `lengths` [N], the tokens of each row. Metrics of each
    model, over all tokens but padding: "cka", the linear CKA of the outputs; "kl", the
    mean KL divergence of each head's map from the reference's; "kl_mean_map", that of
    the maps averaged over heads.

    Input runs: `reference`, and `model` or any number of `model:<name>`, all with one
    vocabulary.

    data: descriptor of the task's data set.
    rows: the development rows whose maps are saved.
    examples: similarity is measured on this number of first development rows."""
    arithmetic = loop.read_numerics(numerics)
    dev, last = sources.load(data, run.seed)["dev"], max([*rows, examples - 1])
    seen, arrays, result = {}, {}, {}
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
    encoded: Encoded,
    row_index: int,
    projection: students.LinearWeights | None,
    numerics: Numerics,
) -> LastLayer:
    """Return attention and output of a model's last layer on one row, in float32.

    projection: a linear map that is applied to the output, or None.
    """
    # pyrefly: ignore[bad-argument-type]  # transformers wraps `to` untyped.
    model.to(loop.get_device()).eval()
    with record_states_and_scores(model) as seen, loop.use_dtype(numerics):
        get_encoder(model)(**make_batch(encoded, [row_index], device=loop.get_device()))
    output = seen["ffn"][-1].float()
    if projection:
        weight, bias = (value.to(output.device) for value in projection)
        output = torch.nn.functional.linear(output, weight, bias)
    attention = seen["scores"][-1].float().softmax(-1)[0].cpu().numpy()
    return LastLayer(attention, output[0].cpu().numpy())


def measure_last_layer_similarity(
    reference_outputs: list[LastLayer], model_outputs: list[LastLayer]
) -> Metrics:
    """Return {"kl_mean_map", "kl", "cka"} of a model against a reference.

    "kl" is the mean KL divergence of attention maps of each head, "kl_mean_map" that of
    the maps averaged over heads, in nats. "cka" is the linear CKA of the outputs, at
    most 1.

    reference_outputs, model_outputs: of each row."""
    both = [
        (a, b) for (a, _), (b, _) in zip(reference_outputs, model_outputs, strict=True)
    ]
    result = {
        "kl_mean_map": np.mean(
            [compute_kl_divergence(a.mean(0), b.mean(0)).mean() for a, b in both]
        )
    }
    result["kl"] = np.mean([compute_kl_divergence(a, b).mean() for a, b in both])
    outputs = (
        np.concatenate([output for _, output in rows])
        for rows in (reference_outputs, model_outputs)
    )
    result["cka"] = compute_cka(*outputs)
    return {name: float(value) for name, value in result.items()}
