"""This module defines a method of the frontier, and the students that it makes.

Each paper names its methods in its `frontier.py`, and `lib.papers.frontier` collects
them. All students have one teacher, and the same rows, epochs and seeds. They have the
two stages of `lib.papers.students`: they match the teacher's states, then learn the
labels. A method with a training of its own has as many epochs. The module is free of
torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lib.core.options import Train
from lib.core.spec import Spec
from lib.core.types import Json
from lib.papers import grids, students

TOKENS = 128  # Tokens of the sentence for which FLOPs are counted.
# f(profile name, task, m of 12) -> Spec of a student.
Make = Callable[[str, str, int], Spec]


@dataclass(frozen=True)
class Method:
    """A Method is a method of the frontier, with a point at each budget.

    A budget is a share m/12 of the whole model's FLOPs."""

    kind: str  # "whole", "paper", "control" or "combination".
    make: Make
    # Parts that each layer keeps: a "width", "all", or the "found" result of a search.
    # Any other name is a module of lib.methods, or a network with its own `flops`.
    keeps: str = "width"
    once: bool = False  # Whether it has a single point instead of one at each budget.
    flops: Callable[[str], int] | None = None  # f(profile) -> FLOPs of the model.
    # f(profile) -> FLOPs added to the kept parts.
    added: Callable[[str], int] | None = None
    # f(profile) -> least share of the whole model's FLOPs that it can reach.
    least: Callable[[str], float] | None = None


def student_spec(
    profile: str, task: str, *operations: Json, **further_inputs: Spec
) -> Spec:
    """Return the Spec of a student that is trained in two stages.

    operations: operations that make it from the teacher. further_inputs: further inputs
    of the first stage."""
    last = students.student_spec(profile, task, students.HEADS)
    first = last.inputs["start"]
    changes = {
        "args": first.args | {"surgery": list(operations)},
        "inputs": first.inputs | further_inputs,
    }
    return replace(last, inputs={"start": replace(first, **changes)})


def join_stages_into_one_training(settings: Mapping[str, Train], profile: str) -> Train:
    """Return a Train with the epochs of both stages, for a method with a single
    stage."""
    both = (students.DISTIL[profile], students.FINETUNE[profile])
    epochs = (grids.adapt_options(profile, train).epochs for train in both)
    return grids.adapt_options(profile, replace(settings[profile], epochs=sum(epochs)))


def searched_student_spec(
    profile: str,
    task: str,
    budget_in_twelfths: int,
    find_search: Make,
    operations: tuple[Json, ...] = (),
) -> Spec:
    """Return the Spec of a student with the architecture that a search finds.

    find_search: function that gives the Spec of the search. operations: operations
    after the cut."""
    search = find_search(profile, task, budget_in_twelfths)
    return student_spec(profile, task, {"op": "keep"}, *operations, search=search)


def quantised_spec(
    profile: str, task: str, budget_in_twelfths: int, make_trained_spec: Make
) -> Spec:
    """Return the Spec of a trained model whose weights become int8."""
    model = make_trained_spec(profile, task, budget_in_twelfths)
    args = grids.make_common_arguments(profile, task, train=model.args["train"])
    return Spec("quantise", args, {"start": model})
