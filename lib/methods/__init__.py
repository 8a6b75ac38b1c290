"""Methods that the four papers do not have, one module each; CONTRIBUTING says how to add one.

The first line of a module tells what it does. It has two functions. `kept(shape, share)` says, free
of torch, what a model of that shape keeps at a share of its FLOPs: a list of (heads, neurons), one
for each layer that stays, and the arguments of the operation. `change(model, **arguments)` is the
operation, which has the module's name. A module whose arguments name an operation of
`lib.model.surgery` as "op" needs no `change`. Everything else follows: runs, plan, cost, points on
the frontier.

A method that ranks parts on rows has a third function, `scores(model)`. The step `importance` calls
it with the fine-tuned model and its gradients of the loss; the operation "cut" takes what it
returns.
"""

from importlib import import_module

# {name on the frontier: module}
METHODS = {"Layer dropping": "layer_dropping", "Torch-Pruning Taylor": "taylor_importance"}


def module(name):
    """Return a module of this folder by its own name."""
    return import_module(f"{__name__}.{name}")
