"""Step: attention maps and outputs of the last layers of models, beside a reference's
(EfficientBERT, Figures 7 and 8).

Shapes: N rows, T tokens, A heads, H hidden.
"""

import numpy as np
import torch
from safetensors.torch import load_file

from lib import data as sources
from lib.model import backbone
from lib.model.parts import base
from lib.train import loop, students
from lib.train.batches import collate, encode
from lib.train.matching import observed

TINY = 1e-12  # below it a probability counts as this in a logarithm


def maps(run, data, rows, examples, max_length, numerics):
    """Inputs: `reference`, and `model` or any number of `model:<name>` with the same vocabulary.
    rows: the development rows whose maps are kept. examples: similarity is measured on so many of
    the first rows.

    Kept as arrays, no text: `attention.<input>` [N, A, T, T], probabilities; `output.<input>` [N,
    T, H] of the last layer, projected to the teacher's width where the run has its projection;
    `lengths` [N]. Metrics of each model, over real tokens: linear CKA of the outputs; the mean KL
    divergence from the reference's maps of the mean over heads, and of each head where there are as
    many.
    """
    numerics = loop.options(numerics)
    dev = sources.load(data)["dev"]
    last = max([*rows, examples - 1])
    if not rows or last >= len(dev):
        raise ValueError(
            f"rows {rows} and {examples} examples asked of {len(dev)} development rows: name at "
            "least one, and none beyond"
        )
    seen, ids = {}, {}
    for name, made in run.inputs.items():
        model, tokenizer = backbone.load(made.model)
        encoded = encode(tokenizer, dev.take(np.arange(last + 1)), max_length)
        ids[name] = [row.tolist() for row in encoded.columns["input_ids"]]
        projection = made.model / students.PROJECTION
        project = load_file(projection) if projection.exists() else None
        seen[name] = [last_layer(model, encoded, i, project, numerics) for i in range(last + 1)]
    reference, result, arrays = seen["reference"], {}, {}
    if any(each != ids["reference"] for each in ids.values()):
        raise ValueError(
            f"the models {', '.join(ids)} cut the text into different tokens: compare models of "
            "one vocabulary"
        )
    for name, states in seen.items():
        arrays[f"attention.{name}"], arrays[f"output.{name}"] = (
            padded([states[i][part] for i in rows], axes) for part, axes in ((0, (1, 2)), (1, (0,)))
        )
        if name != "reference":
            result |= {
                f"{name}.{key}": value
                for key, value in similarity(reference[:examples], states[:examples]).items()
            }
    run.save_arrays(
        "maps",
        lengths=np.array([len(ids["reference"][i]) for i in rows]),
        rows=np.array(rows),
        **arrays,
    )
    return result


@torch.inference_mode()
def last_layer(model, encoded, row, project, numerics):
    """(attention probabilities [A, T, T], output [T, H]) of the last layer on one row, float32."""
    model.to(loop.device()).eval()
    with observed(model) as seen, loop.autocast(numerics):
        base(model)(**collate(encoded, [row], device=loop.device()))
    output = seen["ffn"][-1].float()
    if project:
        weight, bias = (
            project[students.MAP + name].to(output.device) for name in ("weight", "bias")
        )
        output = torch.nn.functional.linear(output, weight, bias)
    return seen["scores"][-1].float().softmax(-1)[0].cpu().numpy(), output[0].cpu().numpy()


def padded(arrays, axes):
    """Arrays that differ in the length of `axes`, stacked, zeros behind the shorter ones."""
    longest, sizes = max(array.shape[axes[0]] for array in arrays), range(arrays[0].ndim)
    return np.stack(
        [
            np.pad(a, [(0, longest - a.shape[axis] if axis in axes else 0) for axis in sizes])
            for a in arrays
        ]
    )


def similarity(reference, states):
    """Figures of one model against the reference, each a list of (attention [A, T, T], output [T,
    H]).
    """
    heads = reference[0][0].shape[0], states[0][0].shape[0]
    both = [(a, b) for (a, _), (b, _) in zip(reference, states, strict=True)]
    result = {"kl_mean_map": np.mean([divergence(a.mean(0), b.mean(0)) for a, b in both])}
    if heads[0] == heads[1]:
        result["kl"] = np.mean([divergence(a, b) for a, b in both])
    result["cka"] = cka(
        *(np.concatenate([output for _, output in each]) for each in (reference, states))
    )
    return {name: float(value) for name, value in result.items()}


def divergence(p, q):
    """Mean KL(p || q) in nats of distributions along the last axis."""
    p, q = (np.maximum(x.astype(np.float64), TINY) for x in (p, q))
    return float((p * np.log(p / q)).sum(-1).mean())


def cka(x, y):
    """Linear centred kernel alignment of two sets of states [n, H], in [0, 1] (Kornblith et al.
    2019).

    It is 1 for sets that are equal up to rotation, scale and shift. It is biased upwards where n is
    not far above H.
    """
    x, y = (each.astype(np.float64) - each.mean(0, dtype=np.float64) for each in (x, y))
    return float(np.linalg.norm(x.T @ y) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)))
