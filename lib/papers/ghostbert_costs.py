"""GhostBERT: cost columns of its tables, printed beside computed. Free of torch."""

from itertools import product

from lib.measure import cost
from lib.papers import ghostbert
from lib.papers.profiles import shape


def of(family, model, m):
    """(FLOPs as the paper counts, FLOPs as PyTorch counts, parameters) of a network at `paper`.

    model: "Ghost", or another one without ghosts. m: kept heads of 12. One sentence of 128 tokens.
    """
    base, module = shape("paper", family), ghostbert.ghost("paper") if model == "Ghost" else None
    printed = cost.flops(base, heads=m, ghost=module, convention="ghostbert")
    return printed, cost.flops(base, heads=m, ghost=module), cost.parameters(base, m, module)


def cells(unit, text, as_printed, true):
    """Three cells of a row, under ("GFLOPs" or "M parameters", "printed", "by its rule", "true").

    text: the printed cell. as_printed, true: counts, or None. A star marks the count that should be
    the printed one and is not: the true one where no other is at hand.
    """
    scale = unit.replace("parameters", "params")
    shown, rounded = (
        "–" if value is None else cost.shown(value, scale) for value in (as_printed, true)
    )
    known = {text, "–"} if text != "–" else {shown, rounded}
    exact = "–" if true is None else f"{true / (1e9 if unit == 'GFLOPs' else 1e6):.3f}"
    return {
        (unit, "printed"): text,
        (unit, "by its rule"): shown + "*" * (shown not in known),
        (unit, "true"): exact + "*" * (shown == "–" and rounded not in known),
    }


def of_modules(modules, widths, printed):
    """Rows of a table {(width, label): cells} of ghost modules on BERT-base, at 128 tokens.

    printed: a published table with its costs, indexed by ("1/12", label).
    """
    base, table = cost.SHAPES["bert-base"], {}
    for m, label in product(widths, modules):
        at, of = (f"{m}/12", label), {"heads": m, "ghost": modules[label]}
        gflops, weights = (str(printed[name].get(at, "–")) for name in ("FLOPs(G)", "#params(M)"))
        counts = (cost.flops(base, **of, convention="ghostbert"), cost.flops(base, **of))
        number = cost.parameters(base, **of)
        table[at] = cells("GFLOPs", gflops, *counts)
        table[at] |= cells("M parameters", weights, number, number)
        ghosts = cost.ghost_parameters(base, modules[label], m) / 1e6
        table[at]["M parameters", "ghosts"] = f"{ghosts:.4f}"
    return table
