"""This package has pruning methods that are in none of the four papers, one module
each. CONTRIBUTING says how to add one.

A module has two functions. `plan_pruning(encoder_shape, kept_flops_share)` says what
the pruned model keeps, a PruningPlan. It does not import torch. `prune(model,
**arguments)` prunes a model; its operation has the name of the module. It is left out
where the arguments name an operation of `lib.model.surgery` as "op". It is also called
on a model without values (torch's meta device) when a pruned model is loaded, so
tensors that it makes for its choice need device="cpu"; the same arguments must give the
same model. Training runs, costs and points of the frontier, a comparison of score and
cost, follow from these functions.

A method that ranks heads and neurons by data has a third function,
`compute_importance_scores(model)`. The step `importance` calls it with the fine-tuned
model, whose parameters have gradients of the loss. The operation "cut" removes the
parts with the lowest scores."""

from importlib import import_module
from types import ModuleType
from typing import Any, Protocol

# ([(kept heads, kept neurons) of each remaining layer], arguments of the operation that
# prunes the model).
PruningPlan = tuple[list[tuple[int, int]], dict[str, Any]]


class EncoderSizes(Protocol):
    """EncoderSizes has the sizes of the encoder that a method is asked to prune."""

    @property
    def layers(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def ffn(self) -> int: ...


# {name of a method on pages: its module in this folder}.
METHODS = {
    "Layer dropping": "layer_dropping",
    "Torch-Pruning Taylor": "taylor_importance",
}


def import_method(method_name: str) -> ModuleType:
    """Import and return the module of a pruning method, by the name of its file.

    Its function `plan_pruning` says what the pruned model keeps. Its function `prune`
    changes the model. A method that only ranks heads and neurons has the function
    `compute_importance_scores` instead of `prune`. Raises ModuleNotFoundError for an
    unknown name.

    method_name: such as "layer_dropping"."""
    return import_module(f"{__name__}.{method_name}")
