"""Surgery: operations that change a model in place and say what they did.

    operate(model, {"op": "cut", "heads": 3}, head_scores=..., neuron_scores=...)
    operate(model, {"op": "keep", "heads": [[0, 5], ...], "neurons": [[3, 4, 9], ...]})
    operate(model, {"op": "ghost", "kind": "dwconv", "positions": ["o"], "kernel": 3}, seed=1)

An operation is JSON. The list of them stays with the model (`lib.model.parts.surgery`): it is saved
with the weights, and done again before they are loaded. Operate before the first forward pass,
because transformers records its output hooks by class at first use.
"""

from lib.methods import METHODS, module
from lib.model import cut, gates, ghost, int8, masks, mix, stack
from lib.model.parts import surgery
from lib.spec import known

OPERATIONS = {
    "cut": cut.cut,
    "keep": cut.keep,
    "gates": gates.attach,
    "ghost": ghost.add,
    "int8": int8.quantise,
    "mix": mix.add,
    "sparse": masks.pack,
    "stack": stack.stack,
    "trigram": stack.trigram,
}
CUT_BEFORE = {  # what a cut, a keep or gates cannot come after, and why
    "stack": "the width of stacked networks belongs to their net",
    "gates": "detach them first (lib.model.gates.detach)",
    "ghost": "ghosts are made for the widths that they find",
    "keep of inputs or dimensions": "such a layer has no smaller matrices left to cut",
    "cut with whole parts": "those parts wait for a ghost",
}
REFUSED = {  # operation: {an earlier operation that it cannot come after: why}
    "cut": CUT_BEFORE,
    "keep": CUT_BEFORE,
    "gates": CUT_BEFORE,
    "ghost": {"stack": "ghosts have no place in stacked networks"},
    "stack": {"ghost": "ghosts have no place in stacked networks"},
}

LAST = "whole numbers cannot be trained, so int8 goes last"


def operate(model, op, **more):
    """Do one operation, note it in the model's list, and return its report.

    more: what is not noted, such as the scores of a cut or the seed of a ghost. Raises ValueError,
    before anything changes, for an unknown operation and one that cannot come after an earlier one.
    """
    name = op.get("op")
    known("surgery", name, [*OPERATIONS, *METHODS.values()])
    for earlier in map(kind, surgery(model)):
        why = LAST if earlier == "int8" else REFUSED.get(name, {}).get(earlier)
        if why:
            raise ValueError(f"{name} after {earlier}: {why}; leave one out")
    change = module(name).change if name in METHODS.values() else OPERATIONS[name]
    report = change(model, **{k: v for k, v in op.items() if k != "op"}, **more)
    surgery(model).append(op)
    return report


def kind(op):
    """The name of an operation, as REFUSED tells them apart."""
    if op["op"] == "cut" and op.get("whole"):
        return "cut with whole parts"
    if op["op"] == "keep" and op.keys() & {"embedding", "qk", "v"}:
        return "keep of inputs or dimensions"
    return op["op"]


def gated(model, regions):
    """Gates on these regions: those of a searched model go on, others are attached.

    Raises ValueError where the model has gates on other regions.
    """
    if not gates.present(model):
        operate(model, {"op": "gates", "regions": list(regions)})
    elif set(gates.regions(model)) != set(regions):
        raise ValueError(
            f"the checkpoint has gates on {', '.join(gates.regions(model))}, the search is over "
            f"{', '.join(regions)}: start from a model without gates, or search the same regions"
        )
    return gates.alphas(model)
