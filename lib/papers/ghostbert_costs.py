"""GhostBERT: cost columns of its tables, printed beside computed. Free of torch."""

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
    """Three cells of a row, under ("GFLOPs" or "M parameters", "printed", "as printed", "true").

    text: the printed cell. as_printed, true: counts, or None. A star marks the count that should be
    the printed one and is not: the true one where no other is at hand.
    """
    scale = unit.replace("parameters", "params")
    shown, rounded = (
        "–" if value is None else cost.shown(value, scale) for value in (as_printed, true)
    )
    known = {text, "–"} if text != "–" else {shown, rounded}
    exact = "–" if true is None else f"{true / 10 ** cost.UNITS[scale][0]:.3f}"
    return {
        (unit, "printed"): text,
        (unit, "as printed"): shown + "*" * (shown not in known),
        (unit, "true"): exact + "*" * (shown == "–" and rounded not in known),
    }


def of_modules(modules, widths):
    """Rows of a table {(width, label): cells} of ghost modules on BERT-base, at 128 tokens."""
    base = cost.SHAPES["bert-base"]
    return {
        (f"{m}/12", label): {
            ("GFLOPs", "as printed"): cost.flops(
                base, heads=m, ghost=module, convention="ghostbert"
            )
            / 1e9,
            ("GFLOPs", "true"): cost.flops(base, heads=m, ghost=module) / 1e9,
            ("M parameters", "all"): cost.parameters(base, heads=m, ghost=module) / 1e6,
            ("M parameters", "ghosts"): f"{cost.ghost_parameters(base, module, m) / 1e6:.4f}",
        }
        for m in widths
        for label, module in modules.items()
    }
