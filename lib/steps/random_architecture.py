"""Step: a random architecture of a given cost, the baseline of a search (report on NAS pruning,
Table 5).
"""

from lib.model import backbone
from lib.search import control
from lib.train.gating import architecture, costs
from lib.train.options import Gates


def random_architecture(run, gates):
    """Step: draw an architecture of a given cost.

    Input: `start`; only its sizes count. gates: lib.train.options.Gates, of which regions, ratio
    and tolerance matter. Metrics are those of `nas_search`.
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
