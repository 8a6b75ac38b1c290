"""This module has what a point of the frontier is made of: a method, and its students.

Each paper names its points in its `frontier.py`, and `lib.papers.frontier` collects
them. All students have one teacher, and the same rows, epochs and seeds. They have two
stages, as those of `lib.papers.students`: they match the teacher's states, then learn
the labels. Methods that train in another way have as many epochs. The module is free of
torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lib.core.options import Train
from lib.core.spec import Spec
from lib.core.types import Json
from lib.papers import grids, students

TOKENS = 128  # FLOPs are counted for a sentence of so many tokens.
Make = Callable[[str, str, int], Spec]  # It is f(profile name, task, m) -> Spec.


@dataclass(frozen=True)
class Method:
    """A Method is a method of the frontier, with a point at each budget."""

    kind: str  # It is "whole", "paper", "control" or "combination".
    make: Make
    # Each layer keeps a "width", "all" of it, or what a search "found". Another name is
    # that of a module of lib.methods, or of a network with `flops` of its own.
    keeps: str = "width"
    once: bool = False  # The method has one point instead of one at each budget.
    flops: Callable[[str], int] | None = None  # It is f(profile) -> FLOPs of the model.
    added: Callable[[str], int] | None = None  # So many FLOPs come to what is kept.
    # It is f(profile) -> the least share of the whole model's FLOPs that is reached.
    least: Callable[[str], float] | None = None


def student(profile: str, task: str, *surgery: Json, **inputs: Spec) -> Spec:
    """Return the Spec of a student by the two stages.

    surgery: operations that make it out of the teacher. inputs: other inputs of the
    first stage."""
    last = students.student(profile, task, students.HEADS)
    first = last.inputs["start"]
    changes = {
        "args": first.args | {"surgery": list(surgery)},
        "inputs": first.inputs | inputs,
    }
    return replace(last, inputs={"start": replace(first, **changes)})


def add_epochs(settings: Mapping[str, Train], profile: str) -> Train:
    """Return the Train with the epochs of both stages, for a method that has one
    stage."""
    both = (students.DISTIL[profile], students.FINETUNE[profile])
    epochs = (grids.adapt_options(profile, train).epochs for train in both)
    return grids.adapt_options(profile, replace(settings[profile], epochs=sum(epochs)))


def network(
    profile: str, task: str, m: int, find: Make, surgery: tuple[Json, ...] = ()
) -> Spec:
    """Return the Spec of a student that keeps what a search finds.

    find: the Spec of the search. surgery: operations after the cut."""
    search = find(profile, task, m)
    return student(profile, task, {"op": "keep"}, *surgery, search=search)


def quantised_spec(profile: str, task: str, m: int, make: Make) -> Spec:
    """Return the Spec of a finished model in int8."""
    model = make(profile, task, m)
    args = grids.common_arguments(profile, task, train=model.args["train"])
    return Spec("quantise", args, {"start": model})
