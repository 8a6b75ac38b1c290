"""This step draws a random architecture, with which a searched one is compared (NAS
report, Table 5)."""

from lib.core.store import RunWriter
from lib.model import backbone
from lib.papers.nas_pruning import control
from lib.papers.nas_pruning.gating import (
    count_gates_and_make_flops_function,
    count_kept_units_by_layer_and_kind,
)
from lib.papers.nas_pruning.options import Gates
from lib.stats.metrics import Metrics
from lib.train.loop import SettingsJson


def random_architecture(run: RunWriter, gates: SettingsJson) -> Metrics:
    """Draw at random which heads and neurons a model keeps, at a given cost in FLOPs.

    The result is the control for a pruning search: it is retrained like a searched one.
    The metrics are `architecture`, {"heads": L lists of kept indices, "neurons": L
    lists}; `target` and `ratio`, the wanted and the reached share of the whole model's
    FLOPs; `flops` and `whole_flops`. Raises Refused for a cost that cannot be reached.

    run: the run that is being made. Its input `start` is the whole model. Its
    optional input `search` is a finished search: each layer then keeps as many heads
    and neurons as there, and only the choice within a layer is random.
    gates: fields of the options Gates. Only `regions` (kinds of parts), `ratio` (the
    target share of the FLOPs) and `tolerance` are used."""
    options = Gates(**gates)
    sizes, cost = count_gates_and_make_flops_function(
        backbone.load(run.inputs["start"].model_folder)[0], options.regions
    )
    if search := run.inputs.get("search"):
        on = control.sample_random_architecture_with_layer_sizes(
            sizes,
            count_kept_units_by_layer_and_kind(search.metrics["architecture"], sizes),
            run.seed,
        )
    else:
        on = control.sample_random_architecture_at_target_flops(
            options, sizes, cost, run.seed
        )
    flops = cost(control.GateController(options, sizes, cost).sum_masks_by_region(on))
    full_flops = cost(sizes)
    return {
        "architecture": control.list_kept_indices(sizes, on),
        "target": options.ratio,
        "ratio": flops / full_flops,
        "flops": flops,
        "whole_flops": full_flops,
    }
