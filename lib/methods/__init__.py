"""This package has pruning methods that are in none of the four papers, one module
each. CONTRIBUTING says how to add one.

A module has two functions. `plan_pruning(encoder_shape, kept_flops_share)` says what
the pruned model keeps, a plan of the type LayerSizesAndPruneArguments; it must not
import torch. `prune(model, **arguments)` prunes a model with the arguments of the plan;
the pruned model is saved with the name of the module and these arguments. A module
needs no `prune` if the plan names an operation of `lib.model.surgery` as "op". `prune`
is also called on a model without values (torch's meta device) when a pruned model is
loaded. So tensors that it makes for its choice need device="cpu", and the same
arguments must give the same model. Training runs, costs and points of the frontier, a
comparison of score and cost, follow from these functions.

A method that ranks heads and neurons by data has one more function,
`compute_importance_scores(model)`. The step `importance` calls it with the fine-tuned
model, whose parameters have gradients of the loss. The operation "cut" removes the
heads and neurons with the lowest scores. A number `version` among the arguments of the
plan says that the function has changed, so that scores are computed anew."""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, Protocol

from lib.core.names import Refused, check_known_name, format_error_in_one_line
from lib.core.spec import to_plain_json

# ([(kept heads, kept neurons) of each remaining layer], arguments of the operation that
# prunes the model).
LayerSizesAndPruneArguments = tuple[list[tuple[int, int]], dict[str, Any]]


class EncoderSizes(Protocol):
    """EncoderSizes has the sizes of the encoder that a method is asked to prune.

    They are the number of layers, of heads in a layer, and of neurons in a layer's
    feed-forward block (`ffn`)."""

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
    `compute_importance_scores` instead of `prune`. Raises Refused for an unknown name,
    and for a file that cannot be imported.

    method_name: such as "layer_dropping"."""
    try:
        return import_module(f"{__name__}.{method_name}")
    except Exception as error:
        files = [module.name for module in iter_modules(__path__)]
        check_known_name("file that METHODS of lib/methods names", method_name, files)
        raise Refused(
            f"lib/methods/{method_name}.py cannot be imported "
            f"({format_error_in_one_line(error)}); fix: mend the file, install what it "
            "imports, or take its line out of METHODS"
        ) from error


def plan_pruning_by_method(
    method_name: str, encoder_shape: EncoderSizes, kept_flops_share: float
) -> LayerSizesAndPruneArguments:
    """Return what a pruning method keeps, after a check of what its function returned.

    The function `plan_pruning` is a user's own. Where it fails, or returns something
    else than LayerSizesAndPruneArguments, Refused is raised, so that the user sees
    which file to mend and how. The arguments in the plan are a copy in plain JSON.

    method_name: such as "layer_dropping".
    kept_flops_share: the share of the encoder's FLOPs to keep, from 0 to 1."""
    method, outcome = import_method(method_name), "failed"
    total, heads, neurons = encoder_shape.layers, encoder_shape.heads, encoder_shape.ffn
    try:
        plan = method.plan_pruning(encoder_shape, kept_flops_share)
        outcome = f"returned {' '.join(repr(plan).split())[:200]}"
        widths, arguments = plan
        if len(widths) not in range(1, total + 1):
            raise ValueError(f"{len(widths)} layers")
        for kept_heads, kept_neurons in widths:
            if kept_heads not in range(heads + 1):
                raise ValueError(f"{kept_heads} heads")
            if kept_neurons not in range(neurons + 1):
                raise ValueError(f"{kept_neurons} neurons")
        if "op" not in arguments and not hasattr(method, "prune"):
            raise ValueError("there is no function `prune`, and no operation as 'op'")
        return widths, to_plain_json({**arguments})
    except Exception as error:
        form = "([(heads, neurons) of each remaining layer], {argument: value})"
        example = [(heads, neurons)], {"layers": [total - 1]}
        raise Refused(
            f"lib/methods/{method_name}.py: plan_pruning {outcome} "
            f"({format_error_in_one_line(error)}); fix: let it return {form} of at most "
            f"{total} layers, {heads} heads and {neurons} neurons, such as {example}"
        ) from error
