"""A search over gates as a method of the training (report on NAS pruning, sections 5 and 7)."""

import numpy as np
import torch

from lib.model import gates
from lib.model.surgery import gated
from lib.search.control import Control
from lib.train import loop

COLUMNS = ("target", "ratio", "switched_off", "switched_on")  # of what is logged at each step


class GateSearch(loop.Method):
    """Gates that move beside the weights, towards a cost (lib.search.control). The average of their
    gradients is a buffer of the model while it trains.

    Saved: `search`, the curve [steps, 4] (see COLUMNS) and every alpha as "<layer>.<kind>".
    Metrics: `architecture`, which the operation "keep" takes; `flops`, `whole_flops` and `ratio` of
    the cut model; `before_trim` and `trimmed` of a final trim. Raises ValueError for a target out
    of reach and for gates that do not fit.
    """

    def __init__(self, run, model, options):
        self.run, self.model, self.options = run, model, options
        self.apart = tuple(gated(model, options.regions).values())
        self.sizes, cost = gates.costs(model, options.regions)
        self.control = Control(options, self.sizes, cost, run.seed)
        number = len(self.control.region)
        model.register_buffer("average", torch.zeros(number, dtype=torch.float64))

    def gradients(self, step, steps):
        found = [a.new_zeros(a.shape) if a.grad is None else a.grad for a in self.apart]
        alphas, average, note = self.control.move(
            flat(self.apart), self.model.average.cpu().numpy(), flat(found), step, steps
        )
        write(self.apart, alphas)
        self.model.average.copy_(torch.from_numpy(average))
        noted(self.run, step, note)

    def finish(self):
        control, alphas, curve = self.control, flat(self.apart), curve_of(self.run)
        before, trimmed = control.ratio(alphas), []
        if self.options.landing:
            alphas, trimmed = control.trim(alphas, self.model.average.cpu().numpy())
            write(self.apart, alphas)
        del self.model.average
        every = {  # small, as they are committed with a record
            f"{layer}.{kind}": alpha.detach().cpu().half().numpy()
            for (layer, kind), alpha in gates.alphas(self.model).items()
        }
        self.run.save_arrays("search", curve=curve.astype(np.float32), **every)
        ratio = control.ratio(alphas)
        return summary(self.options, control, ratio, before, trimmed, curve) | {
            "architecture": gates.architecture(self.sizes, control.on(alphas)),
            "flops": control.full * ratio,
            "whole_flops": control.full,
        }


def noted(run, step, note):
    """Log what Control.move says of a step, [4]."""
    run.log(step, search=dict(zip(COLUMNS, note.tolist(), strict=True)))


def curve_of(run):
    """What was logged of every step, [steps, 4]."""
    told = run.logged("search")
    return np.stack([told[name] for name in COLUMNS], 1)


def summary(options, control, ratio, before, trimmed, curve):
    """Metrics that every search over gates has."""
    return {
        "target": options.ratio,
        "ratio": ratio,
        "miss": ratio / options.ratio - 1,
        "before_trim": before,
        "trimmed": len(trimmed),
        "switched_off": int(curve[:, 2].sum()),
        "switched_on": int(curve[:, 3].sum()),
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
