"""This module searches over gates during a training (report on NAS pruning, sections 5
and 7)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lib.core.store import Scratch
from lib.core.types import Json
from lib.model import gates
from lib.model.cut import count_parts
from lib.model.parts import layers
from lib.model.surgery import operate
from lib.papers.nas_pruning import gated as measured
from lib.papers.nas_pruning.control import Control, encoder_cost
from lib.papers.nas_pruning.options import Gates
from lib.train import loop

# Columns of the search's curve, logged at each step.
COLUMNS = ("target", "ratio", "switched_off", "switched_on")
# Names of kinds of gates in the operation "keep", where they differ.
NAMES = {"ffn": "neurons"}

Region = tuple[int, str]  # (layer, kind)
Cost = Callable[[Mapping[Any, Any]], Any]  # f({region: sum of masks}) -> FLOPs.


class Gating(loop.Method):
    """A Gating moves gates to a target cost while the weights train
    (lib.papers.nas_pruning.control).

    The running average of the gates' gradients is a buffer of the model during the
    training. Raises ValueError for a target out of reach."""

    def __init__(
        self,
        run: Scratch,
        model: nn.Module,
        alphas: Iterable[Tensor],
        sizes: dict[Any, int],
        cost: Cost,
        options: Gates,
    ) -> None:
        """Take N gates `alphas`; `sizes` and `cost` are as in a Control."""
        self.run, self.model, self.apart = run, model, tuple(alphas)
        self.control = Control(options, sizes, cost, run.seed)
        number = len(self.control.region)
        model.register_buffer("average", torch.zeros(number, dtype=torch.float64))

    def gradients(self, step: int, steps: int) -> None:
        gradients = [
            a.new_zeros(a.shape) if a.grad is None else a.grad for a in self.apart
        ]
        before = self.model.get_buffer("average")
        alphas, average, note = self.control.move(
            flatten(self.apart), before.cpu().numpy(), flatten(gradients), step, steps
        )
        write(self.apart, alphas)
        before.copy_(torch.from_numpy(average))
        self.run.log(step, search=dict(zip(COLUMNS, note.tolist(), strict=True)))

    def trim_to_target(self) -> tuple[Json, np.ndarray, np.ndarray]:
        """Do the final trim. Return (metrics, alphas [N], the curve [steps, 4] of
        COLUMNS)."""
        control, before, logged = (
            self.control,
            flatten(self.apart),
            self.run.read_log("search"),
        )
        alphas, trimmed = control.trim(
            before, self.model.get_buffer("average").cpu().numpy()
        )
        write(self.apart, alphas)
        del self.model.average
        target, ratio = control.options.ratio, control.ratio(alphas)
        metrics = {
            "target": target,
            "ratio": ratio,
            "miss": ratio / target - 1,
            "before_trim": control.ratio(before),
            "trimmed": len(trimmed),
            "switched_off": int(logged["switched_off"].sum()),
            "switched_on": int(logged["switched_on"].sum()),
        }
        return (
            metrics,
            alphas,
            np.stack([logged[name] for name in COLUMNS], 1).astype(np.float32),
        )


class GateSearch(Gating):
    """A GateSearch searches over the gates of an encoder.

    It saves the arrays `search`: the curve [steps, 4] of COLUMNS, and every alpha under
    the name "<layer>.<kind>". Its metrics are `architecture`, which the operation
    "keep" takes, the `flops`, `whole_flops` and `ratio` of the cut model, and
    `before_trim` and `trimmed` of the final trim. Raises Refused for gates that do not
    fit the model."""

    def __init__(self, run: Scratch, model: PreTrainedModel, options: Gates) -> None:
        operate(model, {"op": "gates", "regions": list(options.regions)})
        alphas = gates.read_alphas(model).values()
        super().__init__(run, model, alphas, *costs(model, options.regions), options)

    def finish(self) -> Json:
        metrics, alphas, curve = self.trim_to_target()
        every = {  # Half precision keeps the committed record small.
            f"{layer}.{kind}": alpha.detach().cpu().half().numpy()
            for (layer, kind), alpha in gates.read_alphas(self.model).items()
        }
        self.run.save_arrays("search", curve=curve, **every)
        return metrics | {
            "architecture": architecture(self.control.sizes, self.control.on(alphas)),
            "flops": self.control.full * metrics["ratio"],
            "whole_flops": self.control.full,
        }


def flatten(tensors: Iterable[Tensor]) -> np.ndarray:
    """Return one float64 array of several tensors."""
    return torch.cat([t.detach() for t in tensors]).double().cpu().numpy()


def write(tensors: Sequence[Tensor], values: np.ndarray) -> None:
    """Fill several tensors from one array, as the reverse of `flatten`."""
    ends = np.cumsum([len(t) for t in tensors])[:-1]
    with torch.no_grad():
        for tensor, part in zip(tensors, np.split(values, ends), strict=True):
            tensor.copy_(torch.from_numpy(part))


def costs(
    model: PreTrainedModel, regions: Iterable[str]
) -> tuple[dict[Region, int], Cost]:
    """Return what a Control needs for some regions of a model, with or without gates.

    These are {(layer, kind): number of gates}, and a function {(layer, kind): sum of
    masks} -> FLOPs."""
    sizes, layer_widths = {}, []
    for number, layer in enumerate(layers(model)):
        planned = gates.plan(layer, regions)
        sizes |= {(number, kind): count for kind, (count, _, _) in planned.items()}
        layer_widths.append({kind: widths(layer)[kind] for kind in ("heads", "ffn")})
    attention: Any = layer.attention
    return sizes, encoder_cost(
        model.config.hidden_size, attention.self.attention_head_size, layer_widths
    )


def widths(layer: nn.Module) -> dict[str, int]:
    """Return the number of parts of each kind in a layer: {"heads", "ffn", "embedding",
    "qk", "v"}."""
    return {
        "ffn" if what == NAMES["ffn"] else what: size
        for what, size in count_parts(layer).items()
    }


def flops(model: PreTrainedModel) -> int:
    """Return the FLOPs of a model as it is, cut or whole, by the report's convention.

    See lib.papers.nas_pruning.gated."""
    attention: Any = layers(model)[0].attention
    size, layer_widths = attention.self.attention_head_size, map(widths, layers(model))
    return measured.flops(model.config.hidden_size, size, layer_widths)


def numbers(
    architecture: Mapping[str, list[list[int]]], sizes: Mapping[Region, int]
) -> list[int]:
    """Return the number of gates that an architecture keeps in each region.

    The order is that of `sizes`, {region: number of gates}. architecture: what the
    function `architecture` returns."""
    return [len(architecture[NAMES.get(kind, kind)][layer]) for layer, kind in sizes]


def architecture(
    sizes: Mapping[Region, int], on: np.ndarray
) -> dict[str, list[list[int]]]:
    """Return the argument of the operation "keep": {"heads": L lists of indices,
    "neurons": ...}.

    sizes: the number of gates of each region. on: whether each gate is on, in the order
    of `sizes`."""
    indices: dict[str, list[list[int]]] = {}
    start = 0
    for (_, kind), number in sizes.items():
        chosen = [i for i in range(number) if on[start + i]]
        indices.setdefault(NAMES.get(kind, kind), []).append(chosen)
        start += number
    return indices
