"""This step draws a random architecture, with which a searched one is compared (NAS
report, Table 5)."""

from lib.core.store import RunWriter
from lib.core.types import Json
from lib.model import backbone
from lib.papers.nas_pruning import control
from lib.papers.nas_pruning.gating import (
    count_gates_by_region,
    list_kept_indices,
    make_cost_function,
)
from lib.papers.nas_pruning.options import Gates


def random_architecture(run: RunWriter, gates: Json) -> Json:
    """Draw which heads and neurons a model keeps, at random, with a given cost.

    With the input `search` each layer keeps as many heads and neurons as that search
    left, and only the choice within a layer is random. The returned metrics have the
    names of those of the step `nas_search`, so both architectures can be retrained
    alike.

    Input runs: `start`, the model whose sizes count; `search`, optional.

    gates: fields of the options Gates. Those that matter are regions, ratio and
    tolerance."""
    options = Gates(**gates)
    sizes, cost = make_cost_function(
        backbone.load(run.inputs["start"].model_folder)[0], options.regions
    )
    if search := run.inputs.get("search"):
        on = control.draw_random_gates_of_sizes(
            sizes,
            count_gates_by_region(search.metrics["architecture"], sizes),
            run.seed,
        )
    else:
        on = control.draw_random_gates(options, sizes, cost, run.seed)
    flops, full_flops = (
        cost(control.Control(options, sizes, cost).sum_masks_by_region(on)),
        cost(sizes),
    )
    return {
        "architecture": list_kept_indices(sizes, on),
        "target": options.ratio,
        "ratio": flops / full_flops,
        "flops": flops,
        "whole_flops": full_flops,
    }
