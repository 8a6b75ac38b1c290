"""Surgery is operations that change a model in place and report what they did.

    operate(model, {"op": "cut", "heads": 3}, head_scores=..., neuron_scores=...)
    operate(model, {"op": "keep", "heads": [[0, 5], ...], "neurons": [[3, 4, 9], ...]})
    operate(model, {"op": "ghost", "kind": "dwconv", "positions": ["o"], "kernel": 3},
    seed=1)

An operation is JSON. The model keeps the list of its operations (`surgery` of
parts.py): it is saved with the weights, and the operations are done again before
weights are loaded. Operate before the first forward pass, because transformers records
its output hooks by class at first use."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from .cut import cut, keep
from .gates import attach
from .ghost import add as ghost
from .int8 import quantise
from .layout import arrange_layers
from .mix import add as mix
from .options import Refused, check_name
from .parts import Part, surgery
from .stack import stack, trigram

OPERATIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "cut": cut,
    "keep": keep,
    "gates": attach,
    "ghost": ghost,
    "int8": quantise,
    "mix": mix,
    "stack": stack,
    "trigram": trigram,
}
# After a cut or keep with one of these arguments the widths of a layer must not change
# again.
INSIDE = {"whole", "embedding", "qk", "v"}


def operate(model: Part, op: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Do one operation, add it to the model's list, and return its report.

    more: arguments that the list does not have, such as the scores of a cut or the seed
    of a ghost. Raises Refused, before anything changes, for an unknown operation, and
    for one that cannot come after an earlier one."""
    name: Any = op.get("op")
    change = function(name)
    for done in surgery(model):
        shaped = done["op"] in ("stack", "gates", "ghost") or done.keys() & INSIDE
        apart = done["op"] == "int8" or {name, done["op"]} == {"ghost", "stack"}
        if apart or shaped and name in ("cut", "keep", "gates"):
            raise Refused(f"{name} after {done['op']}: leave one out")
    report = change(
        arrange_layers(model), **{k: v for k, v in op.items() if k != "op"}, **more
    )
    surgery(model).append(op)
    return report


def function(name: str) -> Callable[..., dict[str, Any]]:
    """Return the function of an operation.

    It is one of OPERATIONS, or `change` of the module of that name in `lib.methods` or
    in an exported folder. Raises Refused for an unknown name."""
    if name not in OPERATIONS:
        for package in (__package__, "lib.methods"):
            try:
                module = import_module(f"{package}.{name}")
            except ModuleNotFoundError as error:
                if error.name not in (package, f"{package}.{name}", "lib"):
                    raise  # The module is there, and lacks something itself.
                continue
            if change := getattr(module, "change", None):
                return change
        check_name("surgery", name, OPERATIONS)
    return OPERATIONS[name]
