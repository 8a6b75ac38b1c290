"""Step: a random architecture of a given cost, the baseline of a search (report on NAS pruning,
Table 5).
"""

from lib.model import backbone
from lib.model import gates as masks
from lib.options import Gates
from lib.search import gates as search


def random_architecture(run, gates):
    """Input: `start`; only its sizes count. gates: lib.options.Gates, of which regions, ratio and
    tolerance matter. Metrics are those of `nas_search`.
    """
    options = Gates(**gates)
    sizes, cost = masks.costs(backbone.load(run.inputs["start"].model)[0], options.regions)
    on = search.random_architecture(options, sizes, cost, run.seed)
    control = search.Control(options, sizes, cost)
    flops = cost(control.sums(on))
    return {
        "architecture": masks.architecture(sizes, on),
        "target": options.ratio,
        "ratio": flops / control.full,
        "miss": flops / control.full / options.ratio - 1,
        "flops": flops,
        "whole_flops": control.full,
    }
