"""A search over gates as a method of the training (report on NAS pruning, sections 5 and 7)."""

import numpy as np
import torch

from lib.model import gates
from lib.model.surgery import gated
from lib.search.control import Control
from lib.train import loop

COLUMNS = ("target", "ratio", "switched_off", "switched_on")  # of what is logged at each step


class Gating(loop.Method):
    """Gates that move beside the weights, towards a cost (lib.search.control). The average of their
    gradients is a buffer of the model while it trains. Raises ValueError for a target out of reach.
    """

    def __init__(self, run, model, alphas, sizes, cost, options):
        """alphas: the gates, N in all. sizes, cost: as lib.search.control.Control takes them."""
        self.run, self.model, self.apart = run, model, tuple(alphas)
        self.control = Control(options, sizes, cost, run.seed)
        number = len(self.control.region)
        model.register_buffer("average", torch.zeros(number, dtype=torch.float64))

    def gradients(self, step, steps):
        found = [a.new_zeros(a.shape) if a.grad is None else a.grad for a in self.apart]
        alphas, average, note = self.control.move(
            flat(self.apart), self.model.average.cpu().numpy(), flat(found), step, steps
        )
        write(self.apart, alphas)
        self.model.average.copy_(torch.from_numpy(average))
        self.run.log(step, search=dict(zip(COLUMNS, note.tolist(), strict=True)))

    def land(self):
        """The final trim. Returns (metrics, alphas [N], the curve [steps, 4] in COLUMNS)."""
        control, before, told = self.control, flat(self.apart), self.run.logged("search")
        alphas, trimmed = control.trim(before, self.model.average.cpu().numpy())
        write(self.apart, alphas)
        del self.model.average
        wanted, ratio = control.options.ratio, control.ratio(alphas)
        metrics = {
            "target": wanted,
            "ratio": ratio,
            "miss": ratio / wanted - 1,
            "before_trim": control.ratio(before),
            "trimmed": len(trimmed),
            "switched_off": int(told["switched_off"].sum()),
            "switched_on": int(told["switched_on"].sum()),
        }
        return metrics, alphas, np.stack([told[name] for name in COLUMNS], 1).astype(np.float32)


class GateSearch(Gating):
    """A search over the gates of an encoder.

    Saved: `search`, the curve [steps, 4] (see COLUMNS) and every alpha as "<layer>.<kind>".
    Metrics: `architecture`, which the operation "keep" takes; `flops`, `whole_flops` and `ratio` of
    the cut model; `before_trim` and `trimmed` of the final trim. Raises ValueError for gates that
    do not fit.
    """

    def __init__(self, run, model, options):
        alphas = gated(model, options.regions).values()
        super().__init__(run, model, alphas, *gates.costs(model, options.regions), options)

    def finish(self):
        metrics, alphas, curve = self.land()
        every = {  # small, as they are committed with a record
            f"{layer}.{kind}": alpha.detach().cpu().half().numpy()
            for (layer, kind), alpha in gates.alphas(self.model).items()
        }
        self.run.save_arrays("search", curve=curve, **every)
        control = self.control
        return metrics | {
            "architecture": gates.architecture(control.sizes, control.on(alphas)),
            "flops": control.full * metrics["ratio"],
            "whole_flops": control.full,
        }


def flat(tensors):
    """One float64 array of several tensors."""
    return torch.cat([t.detach() for t in tensors]).double().cpu().numpy()


def write(tensors, values):
    """The reverse of `flat`, in place."""
    ends = np.cumsum([len(t) for t in tensors])[:-1]
    with torch.no_grad():
        for tensor, part in zip(tensors, np.split(values, ends), strict=True):
            tensor.copy_(torch.from_numpy(part))
