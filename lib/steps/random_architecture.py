"""This step draws a random architecture, the baseline of a search (NAS report, Table 5)."""

from lib.model import backbone
from lib.search import control
from lib.train.gating import architecture, costs
from lib.train.options import Gates


def random_architecture(run, gates):
    """Draw an architecture of a given cost.

    Input: `start`, of which only the sizes count. gates: the fields of a lib.train.options.Gates,
    of which regions, ratio and tolerance matter. Metrics have the names of those of `nas_search`.
    """
    options = Gates(**gates)
    sizes, cost = costs(backbone.load(run.inputs["start"].model)[0], options.regions)
    on = control.random_architecture(options, sizes, cost, run.seed)
    flops, whole = cost(control.Control(options, sizes, cost).sums(on)), cost(sizes)
    return {
        "architecture": architecture(sizes, on),
        "target": options.ratio,
        "ratio": flops / whole,
        "flops": flops,
        "whole_flops": whole,
    }
