"""This module defines what a method of the frontier is, and the students that it makes.

The frontier compares score and cost of the compression methods of all papers, at
several budgets. Each paper lists its methods in its `frontier.py`, and
`lib.papers.frontier` collects them. So that methods can be compared, all students have
one teacher and the same rows, epochs and seeds. They are trained in the two stages of
`lib.papers.students`: they match the teacher's hidden states, then learn the labels. A
method with a training of its own has as many epochs. The module does not import torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lib.core.options import Train
from lib.core.spec import Spec
from lib.core.types import Json
from lib.papers import grids, students

TOKENS = 128  # FLOPs are counted for one sentence of this number of tokens.
# f(profile, task, budget in twelfths) -> Spec, the description of a run that trains a
# student.
SpecMaker = Callable[[str, str, int], Spec]


@dataclass(frozen=True)
class Method:
    """A Method is a compression method of the frontier, with a student at each budget.

    A budget is a share m/12 of the whole model's FLOPs."""

    # "whole" is the uncompressed model, "paper" a method of a paper, "control" a simpler
    # one that the papers lack, "combination" two methods at once.
    kind: str
    make: SpecMaker
    # Which heads and neurons are kept: a share of each layer ("width"), "all", or what a
    # search "found". Any other name is a module of lib.methods, or a network with its
    # own function `flops`.
    keeps: str = "width"
    once: bool = False  # Whether it has one model alone, instead of one at each budget.
    flops: Callable[[str], int] | None = None  # f(profile) -> FLOPs of the model.
    # f(profile) -> FLOPs that the method adds to those of the kept heads and neurons.
    added: Callable[[str], int] | None = None
    # f(profile) -> the smallest share of the whole model's FLOPs that it can reach.
    least: Callable[[str], float] | None = None


def frontier_student_spec(
    profile: str, task: str, *surgery_operations: Json, **further_input_runs: Spec
) -> Spec:
    """Return the Spec of a student that matches its teacher's hidden states, then
    learns the labels.

    surgery_operations: entries {"op": ...} that make the untrained student from the
    teacher.
    further_input_runs: further input runs of the first stage, such as a ranking of
    heads.
    """
    last = students.student_spec(profile, task, students.HEADS)
    first = last.inputs["start"]
    changes = {
        "args": first.args | {"surgery": list(surgery_operations)},
        "inputs": first.inputs | further_input_runs,
    }
    return replace(last, inputs={"start": replace(first, **changes)})


def make_single_stage_settings(
    train_settings_by_profile: Mapping[str, Train], profile: str
) -> Train:
    """Return the training settings of a method with a single stage, with the epochs of
    both stages of the other methods, so that all are trained equally long."""
    both = (students.DISTIL[profile], students.FINETUNE[profile])
    epochs = (
        grids.adapt_options_to_reader_data(profile, train).epochs for train in both
    )
    return grids.adapt_options_to_reader_data(
        profile, replace(train_settings_by_profile[profile], epochs=sum(epochs))
    )


def searched_student_spec(
    profile: str,
    task: str,
    flops_budget_in_twelfths: int,
    make_search_spec: SpecMaker,
    surgery_operations: tuple[Json, ...] = (),
) -> Spec:
    """Return the Spec of a student whose kept heads and neurons are the result of a
    search.

    make_search_spec: f(profile, task, budget in twelfths) -> Spec of the search.
    surgery_operations: entries {"op": ...} that change the student after the cut."""
    search = make_search_spec(profile, task, flops_budget_in_twelfths)
    return frontier_student_spec(
        profile, task, {"op": "keep"}, *surgery_operations, search=search
    )


def quantised_spec(
    profile: str, task: str, flops_budget_in_twelfths: int, make_trained_spec: SpecMaker
) -> Spec:
    """Return the Spec that turns the weights of a trained model into int8.

    make_trained_spec: f(profile, task, budget in twelfths) -> Spec of that model."""
    model = make_trained_spec(profile, task, flops_budget_in_twelfths)
    args = grids.make_common_run_arguments(profile, task, train=model.args["train"])
    return Spec("quantise", args, {"start": model})
