"""This module applies operations to a model that change it in place, such as pruning;
all operations on a model together are called its surgery.

    apply_surgery(model, {"op": "cut", "heads": 3}, head_scores=..., neuron_scores=...)
    apply_surgery(model, {"op": "keep", "heads": [[0, 5], ...], "neurons": [[3, 4, 9],
        ...]})
    apply_surgery(model, {"op": "ghost", "kind": "dwconv", "positions": ["o"],
        "kernel": 3}, seed=1)

An operation is JSON. The list of a model's operations is saved with the weights, and
the operations are applied again before weights are loaded. Apply operations before the
first forward pass: in that pass transformers finds the modules whose outputs it
records, and would miss modules that are put in later."""

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from .cut import keep_heads_neurons_or_dimensions, prune_to_head_count
from .gates import attach_gates
from .ghost import add_ghost_modules
from .int8 import quantise_linear_layers
from .layout import rename_layer_parts_as_bert
from .mix import add_layer_mix
from .options import Refused, SurgeryOperation, SurgeryReport, check_known_name
from .parts import AnyModule, get_recorded_model_changes
from .stack import add_feed_forward_stacks, add_trigram_embedding

OPERATIONS: dict[str, Callable[..., SurgeryReport]] = {
    "cut": prune_to_head_count,
    "keep": keep_heads_neurons_or_dimensions,
    "gates": attach_gates,
    "ghost": add_ghost_modules,
    "int8": quantise_linear_layers,
    "mix": add_layer_mix,
    "stack": add_feed_forward_stacks,
    "trigram": add_trigram_embedding,
}
# Arguments of the operations "cut" and "keep". After an operation with one of them, the
# linear layers of a transformer layer may have different numbers of heads or
# dimensions, so its heads and neurons cannot be pruned again.
INSIDE = {"whole", "embedding", "qk", "v"}


def apply_surgery(
    model: AnyModule, operation: SurgeryOperation, **unsaved_arguments: Any
) -> SurgeryReport:
    """Change a model in place by one operation, such as pruning, and record it.

    The operation is appended to the list that is saved with the model, so that it can
    be applied again when the model is opened. Returns a dict whose keys depend on the
    operation, such as {"matrices": number of linear layers that were quantised}.

    Raises Refused, before anything changes, for an unknown operation, for one that
    cannot come after an earlier one, and for unknown or missing arguments.

    operation: {"op": name, arguments...}, such as {"op": "cut", "heads": 3}, which
    prunes each layer to 3 heads.
    unsaved_arguments: arguments that are needed only now and are not saved, such as the
    importance scores of a pruning or the seed of new weights. A saved model is rebuilt
    without them."""
    if not isinstance(operation, dict):
        raise Refused(f"the operation is {operation!r}; write {{'op': name, ...}}")
    name: Any = operation.get("op")
    change = find_surgery_function(name)
    for done in get_recorded_model_changes(model):
        shaped = done["op"] in ("stack", "gates", "ghost") or done.keys() & INSIDE
        apart = done["op"] == "int8" or {name, done["op"]} == {"ghost", "stack"}
        if apart or shaped and name in ("cut", "keep", "gates"):
            raise Refused(f"{name} after {done['op']}: leave one out")
    arguments = {k: v for k, v in operation.items() if k != "op"}
    signature = inspect.signature(change)
    takes_others = any(p.kind == p.VAR_KEYWORD for p in signature.parameters.values())
    allowed = ", ".join([*signature.parameters][1:])
    for argument in (*arguments, *unsaved_arguments):
        if argument not in signature.parameters and not takes_others:
            raise Refused(f"operation {name} has no {argument!r}; it takes {allowed}")
    try:
        signature.bind(model, **arguments)  # A saved model has only these.
        signature.bind(model, **arguments, **unsaved_arguments)
    except TypeError as error:
        raise Refused(f"operation {name}: {error}; it takes {allowed}") from None
    report = change(rename_layer_parts_as_bert(model), **arguments, **unsaved_arguments)
    get_recorded_model_changes(model).append(operation)
    return report


def find_surgery_function(operation_name: str) -> Callable[..., SurgeryReport]:
    """Return the function that changes a model in a named way, such as "cut" (pruning).

    Built-in functions are in the table OPERATIONS. Any other name is that of a Python
    module, whose function `prune` is returned. The module is looked for beside this one
    (an exported model has it there), then in `lib.methods`. Raises Refused for an
    unknown name."""
    if operation_name not in OPERATIONS:
        is_module = str(operation_name).isidentifier()
        for package in (__package__, "lib.methods") * is_module:
            try:
                module = import_module(f"{package}.{operation_name}")
            except ModuleNotFoundError as error:
                if error.name not in (package, f"{package}.{operation_name}", "lib"):
                    raise  # The module exists, but one of its own imports is missing.
                continue
            if prune := getattr(module, "prune", None):
                return prune
        try:
            methods = import_module("lib.methods").METHODS.values()
        except ImportError:  # An exported model has no other methods.
            methods = ()
        check_known_name("surgery", operation_name, [*OPERATIONS, *methods])
    return OPERATIONS[operation_name]
