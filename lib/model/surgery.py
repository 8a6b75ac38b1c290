"""Surgery is a list of operations that change a model in place, such as pruning.

    operate(model, {"op": "cut", "heads": 3}, head_scores=..., neuron_scores=...)
    operate(model, {"op": "keep", "heads": [[0, 5], ...], "neurons": [[3, 4, 9], ...]})
    operate(model, {"op": "ghost", "kind": "dwconv", "positions": ["o"], "kernel": 3},
    seed=1)

An operation is JSON. The list of a model's operations (`surgery` of parts.py) is saved
with the weights, and the operations are applied again before weights are loaded. Apply
operations before the first forward pass, because transformers sets its output hooks by
class at first use."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from .cut import cut, keep
from .gates import attach_gates
from .ghost import add_ghosts as ghost
from .int8 import quantise_layers
from .layout import rename_layer_parts_as_bert
from .mix import add_layer_mix as mix
from .options import Refused, check_name
from .parts import AnyModule, list_applied_operations
from .stack import add_stacks, add_trigram_embedding

OPERATIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "cut": cut,
    "keep": keep,
    "gates": attach_gates,
    "ghost": ghost,
    "int8": quantise_layers,
    "mix": mix,
    "stack": add_stacks,
    "trigram": add_trigram_embedding,
}
# Arguments of "cut" and "keep" that give parts of a layer different widths, after which
# heads and neurons cannot be cut again.
INSIDE = {"whole", "embedding", "qk", "v"}


def operate(
    model: AnyModule, operation: dict[str, Any], **unsaved_arguments: Any
) -> dict[str, Any]:
    """Apply an operation to a model, add it to the model's list, and return its report.

    Raises Refused, before anything changes, for an unknown operation, and for one that
    cannot come after an earlier one.

    operation: {"op": name, arguments...}.
    unsaved_arguments: arguments that are not saved, such as the scores of a cut or the seed of a
    ghost."""
    name: Any = operation.get("op")
    change = find_operation(name)
    for done in list_applied_operations(model):
        shaped = done["op"] in ("stack", "gates", "ghost") or done.keys() & INSIDE
        apart = done["op"] == "int8" or {name, done["op"]} == {"ghost", "stack"}
        if apart or shaped and name in ("cut", "keep", "gates"):
            raise Refused(f"{name} after {done['op']}: leave one out")
    report = change(
        rename_layer_parts_as_bert(model),
        **{k: v for k, v in operation.items() if k != "op"},
        **unsaved_arguments,
    )
    list_applied_operations(model).append(operation)
    return report


def find_operation(operation_name: str) -> Callable[..., dict[str, Any]]:
    """Return the function of an operation by name.

    It is one of OPERATIONS, or `change` of a module of that name in `lib.methods` or in
    an exported folder. Raises Refused for an unknown name."""
    if operation_name not in OPERATIONS:
        for package in (__package__, "lib.methods"):
            try:
                module = import_module(f"{package}.{operation_name}")
            except ModuleNotFoundError as error:
                if error.name not in (package, f"{package}.{operation_name}", "lib"):
                    raise  # The module exists, but one of its own imports is missing.
                continue
            if change := getattr(module, "change", None):
                return change
        check_name("surgery", operation_name, OPERATIONS)
    return OPERATIONS[operation_name]
