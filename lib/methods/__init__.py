"""This room has methods that the four papers do not have, one module each. CONTRIBUTING
says how to add one.

The first line of a module tells what it does. A module has two functions. `keep(shape, share)` is
free of torch. It tells what a model of that shape keeps at a share of its FLOPs: a list with
(heads, neurons) of each layer that stays, and the arguments of the operation. `change(model,
**arguments)` is the operation, which has the name of the module. Where the arguments name an
operation of `lib.model.surgery` as "op", there is no `change`. Runs, plans, costs and points on the
frontier follow from these functions.

A method that ranks parts on rows has a third function, `scores(model)`. The step
`importance` calls it with the fine-tuned model and its gradients of the loss, and the
operation "cut" takes the scores that it returns."""

from importlib import import_module
from types import ModuleType

# The name of each method on the frontier is mapped to its module.
METHODS = {
    "Layer dropping": "layer_dropping",
    "Torch-Pruning Taylor": "taylor_importance",
}


def module(name: str) -> ModuleType:
    """Return a module of this folder by its own name."""
    return import_module(f"{__name__}.{name}")
