"""This step compares the last layers of models with a reference (EfficientBERT, Figures
7 and 8).

Shapes: N rows, T tokens, A heads, H hidden.
"""

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
from lib.train import loop
from lib.train.batches import Encoded, encode_split, make_batch
from lib.train.matching import observe_states


def maps(
    run: RunWriter,
    data: Json,
    rows: list[int],
    examples: int,
    max_length: int,
    numerics: Json,
) -> dict[str, float]:
    """Save attention maps and outputs of last layers, and measure how alike they are.

    Inputs: `reference`, and `model` or any number of `model:<name>` with the same
    vocabulary. rows: the development rows whose maps are saved. examples: the number of
    first rows on which similarity is measured.

    It saves arrays without any text: `attention.<input>` [N, A, T, T], the
    probabilities; `output.<input>` [N, T, H] of the last layer, projected to the
    teacher's width where the run has a projection; `lengths` [N]. Metrics of each model
    are over real tokens: the linear CKA of the outputs, and the mean KL divergence from
    the reference's maps, of the mean over heads ("kl_mean_map") and of each head
    ("kl")."""
    arithmetic = loop.read_numerics(numerics)
    dev, last = sources.load(data, run.seed)["dev"], max([*rows, examples - 1])
    seen, arrays, result = {}, {}, {}
    for name, made in run.inputs.items():
        model, tokenizer = backbone.load(made.model)
        encoded = encode_split(
            tokenizer, dev.select_rows(np.arange(last + 1)), max_length
        )
        project = students.load_projection(made.model)
        seen[name] = [
            run_last_layer(model, encoded, i, project, arithmetic)
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
            metrics = measure_similarity(reference[:examples], states[:examples])
            result |= {f"{name}.{key}": value for key, value in metrics.items()}
    run.save_arrays("maps", lengths=lengths, rows=np.array(rows), **arrays)
    return result


@torch.inference_mode()
def run_last_layer(
    model: transformers.PreTrainedModel,
    encoded: Encoded,
    row_number: int,
    projection: tuple[torch.Tensor, torch.Tensor] | None,
    numerics: Numerics,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (attention probabilities [A, T, T], output [T, H]) of the last layer on
    one row.

    Both are in float32. projection: (weight, bias) for the output, or None.
    """
    # pyrefly: ignore[bad-argument-type]  # transformers wraps `to` untyped.
    model.to(loop.get_device()).eval()
    with observe_states(model) as seen, loop.use_dtype(numerics):
        get_encoder(model)(
            **make_batch(encoded, [row_number], device=loop.get_device())
        )
    output = seen["ffn"][-1].float()
    if projection:
        weight, bias = (value.to(output.device) for value in projection)
        output = torch.nn.functional.linear(output, weight, bias)
    return seen["scores"][-1].float().softmax(-1)[0].cpu().numpy(), output[
        0
    ].cpu().numpy()


def measure_similarity(
    reference_states: list[tuple[np.ndarray, np.ndarray]],
    model_states: list[tuple[np.ndarray, np.ndarray]],
) -> dict[str, float]:
    """Return {"kl_mean_map", "kl", "cka"} of a model against the reference.

    reference_states, model_states: (attention [A, T, T], output [T, H]) of each row.
    """
    both = [
        (a, b) for (a, _), (b, _) in zip(reference_states, model_states, strict=True)
    ]
    result = {
        "kl_mean_map": np.mean(
            [compute_kl_divergence(a.mean(0), b.mean(0)).mean() for a, b in both]
        )
    }
    result["kl"] = np.mean([compute_kl_divergence(a, b).mean() for a, b in both])
    outputs = (
        np.concatenate([output for _, output in rows])
        for rows in (reference_states, model_states)
    )
    result["cka"] = compute_cka(*outputs)
    return {name: float(value) for name, value in result.items()}
