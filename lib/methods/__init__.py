"""This package has pruning methods that the four papers do not have, one module each.
CONTRIBUTING says how to add one.

A module has two functions. `keep(shape, share)` does not import torch. It returns what
a model of that shape keeps at a share of its FLOPs: a list with (heads, neurons) of
each layer that stays, and the arguments of the operation. `change(model, **arguments)`
is the operation, which has the name of the module. It is left out where the arguments
name an operation of `lib.model.surgery` as "op". Runs, costs and points on the frontier
follow from these functions.

A method that ranks heads and neurons by data has a third function, `scores(model)`. The
step `importance` calls it with the fine-tuned model, whose parameters have gradients of
the loss. The operation "cut" takes the scores that it returns."""

from importlib import import_module
from types import ModuleType

# {name of a method on the frontier: its module in this folder}.
METHODS = {
    "Layer dropping": "layer_dropping",
    "Torch-Pruning Taylor": "taylor_importance",
}


def import_method(method_name: str) -> ModuleType:
    """Import and return the module of a method by the name of its file."""
    return import_module(f"{__name__}.{method_name}")
