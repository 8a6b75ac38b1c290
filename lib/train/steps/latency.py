"""This step times the forward passes of several models, with random weights or from
other runs.

The models take turns in one process, so that other work on the machine slows all of
them. So compare ratios: the time of a reference model divided by a model's time in the
same turn. Other processes disturb wall time more than CPU time."""

import time
from typing import TypeAlias

import numpy as np
import torch
import transformers

from lib.core.store import RunWriter
from lib.core.types import Json, TokenCount
from lib.model import backbone, parts, scores, supernet
from lib.model.surgery import apply_surgery
from lib.stats.cost import SHAPES, build_transformers_config
from lib.stats.metrics import Metrics
from lib.train import loop

EncoderName: TypeAlias = str
RowCount: TypeAlias = int
TimedPassCount: TypeAlias = int
# {"net" or "shape": architecture, perhaps "surgery": operations on it}.
NetOrShapeAndSurgery: TypeAlias = Json
WARM = 5  # Untimed turns at the start. In each turn every model makes one forward pass.


def latency(
    run: RunWriter,
    reference: EncoderName,
    batch: RowCount,
    length: TokenCount,
    numerics: loop.SettingsJson,
    models: dict[EncoderName, NetOrShapeAndSurgery] | None = None,
    runs: TimedPassCount = 100,
) -> Metrics:
    """Time the forward passes of several encoders, to compare their speed.

    The encoders take turns, so that other work on the machine slows all of them.
    Returns for each encoder, in names such as "<name>.wall_ms": the milliseconds of a
    pass by the wall clock ("wall_ms") and of CPU time ("cpu_ms"), each as median over
    turns, and with the endings "_p5" and "_p95" as 5th and 95th percentile;
    "wall_speedup" and "cpu_speedup", the median over turns of the reference's time
    divided by the encoder's; and "parameters", their number. It saves all times in
    seconds, "wall" and "cpu" [models, runs], in a file `times`.

    run: the folder of this run. Its inputs `model:<name>`, models of earlier runs, are
    timed too, without heads.
    reference: the name of the encoder with which the others are compared.
    batch, length: sequences of a batch, and tokens of each, without padding.
    numerics: dtype, number of threads and device.
    models: {name: {"net": JSON of an EfficientBERT architecture} or {"shape": name of a
    published architecture in lib.stats.cost.SHAPES}}, encoders with random weights.
    "surgery" may list operations on them, such as {"op": "cut", "heads": 3}.
    runs: the number of timed turns."""
    arithmetic = loop.set_dtype_threads_and_device(numerics)
    torch.manual_seed(run.seed)
    made = {
        name: build_random_encoder(description)
        for name, description in (models or {}).items()
    }
    made |= {
        name.removeprefix("model:"): parts.get_encoder(
            backbone.load(source.model_folder)[0]
        )
        for name, source in sorted(run.inputs.items())
    }
    for model in made.values():
        # pyrefly: ignore[bad-argument-type]  # transformers' `to` is untyped.
        model.to(loop.get_device()).eval()
        if model.config._attn_implementation not in scores.OURS:
            model.set_attn_implementation("sdpa")  # Ghosts of attention have their own.
    words = min(model.config.vocab_size for model in made.values())
    ids = torch.randint(
        min(10, words - 1), words, (batch, length), device=loop.get_device()
    )
    times = np.zeros((2, len(made), runs))
    with torch.inference_mode(), loop.autocast_to_dtype(arithmetic):
        for turn in range(-WARM, runs):
            for line, model in enumerate(made.values()):
                began = read_wall_and_cpu_seconds()
                model(input_ids=ids)
                if turn >= 0:
                    times[:, line, turn] = read_wall_and_cpu_seconds() - began
            run.report_progress((turn + 1 + WARM) / (runs + WARM))
    times_by_clock = {"wall": times[0], "cpu": times[1]}
    run.save_arrays("times", **times_by_clock)
    base, result = list(made).index(reference), {}
    for line, (name, model) in enumerate(made.items()):
        for kind, seconds in times_by_clock.items():
            for end, share in (("", 50), ("_p5", 5), ("_p95", 95)):
                result[f"{name}.{kind}_ms{end}"] = np.percentile(
                    1e3 * seconds[line], share
                )
            result[f"{name}.{kind}_speedup"] = np.median(seconds[base] / seconds[line])
        result[f"{name}.parameters"] = parts.count_parameters(model)["parameters"]
    return {name: float(value) for name, value in result.items()}


def read_wall_and_cpu_seconds() -> np.ndarray:
    """Return the seconds [wall clock, CPU time of this process] as an array [2].

    Differences of two calls time a forward pass. The function first waits until the
    GPU, if one is used, has done its work."""
    if loop.get_device().type == "cuda":
        torch.cuda.synchronize()
    return np.array([time.perf_counter(), time.process_time()])


def build_random_encoder(
    architecture_description: NetOrShapeAndSurgery,
) -> transformers.PreTrainedModel:
    """Build an encoder with random weights, to time it.

    Its latency does not depend on the weights.

    architecture_description: {"net": JSON of an EfficientBERT architecture} or
    {"shape": name of a published architecture in lib.stats.cost.SHAPES}; "surgery" may
    list operations on it, such as {"op": "cut", "heads": 3}, which prunes it."""
    if "net" in architecture_description:
        model = supernet.build_efficientbert_model(architecture_description["net"])
    else:
        model = transformers.AutoModel.from_config(
            build_transformers_config(SHAPES[architecture_description["shape"]])
        )
    for op in architecture_description.get("surgery", ()):
        apply_surgery(model, op)
    return model
