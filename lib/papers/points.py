"""This module defines what a method of the frontier is, and the students that it makes.

The frontier compares score and cost of the compression methods of all papers, at
several budgets. Each paper lists its methods in its `frontier.py`, and
`lib.papers.frontier` collects them. So that methods can be compared, all students have
one teacher and the same rows, epochs and seeds. They are trained in the two stages of
`lib.papers.students`: they match the teacher's hidden states, then learn the labels. A
method with a training of its own has as many epochs as these two stages together.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from lib.core.options import Ghost, SurgeryOperation, Train
from lib.core.spec import Spec, to_plain_json
from lib.core.types import ProfileName, TaskName
from lib.papers import grids, students

TOKENS = 128  # FLOPs are counted for one sentence of this number of tokens.
# f(profile, task, budget) -> Spec, the description of a run that trains a student. The
# budget is in twelfths of the whole model's FLOPs, as BERT-base has twelve heads.
FlopsInTwelfths: TypeAlias = int
SpecMaker = Callable[[ProfileName, TaskName, FlopsInTwelfths], Spec]
MethodKind: TypeAlias = Literal["whole", "paper", "control", "combination"]


@dataclass(frozen=True)
class CompressionMethod:
    """A CompressionMethod is a way to compress a model, compared with others by score
    and cost.

    At each budget it makes one student. A budget is m, where the student has about m/12
    of the whole model's FLOPs.

    kind: "whole" for the uncompressed model, "paper" for a method of a paper, "control"
    (a simpler method that the papers lack) or "combination" (two methods at once).
    make_spec: f(profile, task, m) -> Spec, the description of the run that trains the
    student. A profile is a size of the experiments, such as "mini".
    kept_parts: which heads and neurons the students keep, from which FLOPs are counted:
    the share m/12 of each layer ("width"), "all", or those that a search "found". Any
    other text names a module of lib.methods, whose `plan_pruning` says what is kept.
    With the field `count_flops`, FLOPs are not counted from it.
    has_single_model: whether the method has a single model, not one at each budget.
    count_flops: f(profile) -> FLOPs of the model; None counts those of the
    `kept_parts`.
    count_added_flops: f(profile) -> FLOPs of added parts, such as ghost modules, on top
    of those of the kept heads and neurons; 0 where nothing is added.
    find_least_flops_share: f(profile) -> the smallest share, from 0 to 1, of the whole
    model's FLOPs to which this method can reduce a model. Only budgets above it have a
    student. It is 0 where the method reaches every budget."""

    kind: MethodKind
    make_spec: SpecMaker
    kept_parts: str = "width"
    has_single_model: bool = False
    count_flops: Callable[[ProfileName], int] | None = None
    count_added_flops: Callable[[ProfileName], int] = lambda profile: 0
    find_least_flops_share: Callable[[ProfileName], float] = lambda profile: 0


def compressed_student_spec(
    profile: ProfileName,
    task: TaskName,
    pruning_operation: SurgeryOperation,
    ghost_options: Ghost | None = None,
    **further_input_runs: Spec | None,
) -> Spec:
    """Return the Spec (description of a run) of a compressed and trained student.

    The student first matches its teacher's hidden states, then learns the labels. All
    compression methods that are compared train their students like this.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    pruning_operation: change that makes the untrained student from the teacher, such as
    {"op": "cut", "heads": 3}.
    ghost_options: settings of ghost modules (GhostBERT's convolutions), which the
    pruned student gets; None for none.
    further_input_runs: Specs of further runs that the first stage needs, such as
    `importance` with a ranking of heads; None leaves one out."""
    surgery = [pruning_operation]
    if ghost_options:
        surgery.append({"op": "ghost"} | to_plain_json(ghost_options))
    first = students.student_spec(profile, task, students.HEADS).inputs["start"]
    train = students.adapt_train_settings_to_ghost_modules(
        students.make_distillation_settings(profile, task), ghost_options
    )
    train = grids.adapt_options_to_user_data(profile, train)
    args = first.args | {"surgery": surgery, "train": train}
    start = Spec(first.step, args, first.inputs | further_input_runs)
    return students.finetuned_student_spec(profile, task, start, ghost_options)


def make_single_stage_train_settings(
    train_settings_by_profile: Mapping[ProfileName, Train],
    profile: ProfileName,
    task: TaskName,
    ghost_options: Ghost | None = None,
) -> Train:
    """Return the training settings of a compression method with a single stage.

    The method gets the epochs that other methods have on the task in two stages
    together, so that all are trained equally long.

    train_settings_by_profile: {profile: settings}, of which all but the epochs are
    taken.
    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    ghost_options: settings of the model's ghost modules (GhostBERT's convolutions),
    whose kernels may have a learning rate of their own; None for none."""
    both = (
        students.make_distillation_settings(profile, task),
        students.FINETUNE[profile],
    )
    epochs = (grids.adapt_options_to_user_data(profile, train).epochs for train in both)
    settings = replace(train_settings_by_profile[profile], epochs=sum(epochs))
    return grids.adapt_options_to_user_data(
        profile, students.adapt_train_settings_to_ghost_modules(settings, ghost_options)
    )


def student_pruned_by_search_spec(
    profile: ProfileName,
    task: TaskName,
    flops_budget_in_twelfths: int,
    make_search_spec: SpecMaker,
    ghost_options: Ghost | None = None,
) -> Spec:
    """Return the Spec (description of a run) of a student that a search prunes.

    The search decides which heads and neurons are kept. The training after it is that
    of all compression methods that are compared.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    flops_budget_in_twelfths: m, where the student has m/12 of the whole model's FLOPs.
    make_search_spec: f(profile, task, m) -> Spec of the search.
    ghost_options: settings of ghost modules (GhostBERT's convolutions), which the
    pruned student gets; None for none."""
    search = make_search_spec(profile, task, flops_budget_in_twelfths)
    return compressed_student_spec(
        profile, task, {"op": "keep"}, ghost_options, search=search
    )


def int8_quantisation_spec(
    profile: ProfileName,
    task: TaskName,
    flops_budget_in_twelfths: int,
    make_trained_spec: SpecMaker,
) -> Spec:
    """Return the Spec (description of a run) that quantises a trained model to int8.

    It needs no further training, so it shows what is saved for little effort.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    flops_budget_in_twelfths: m, where the trained model has m/12 of the whole model's
    FLOPs.
    make_trained_spec: f(profile, task, m) -> Spec of the run that trains this model."""
    model = make_trained_spec(profile, task, flops_budget_in_twelfths)
    args = grids.make_run_arguments_of_task(profile, task, train=model.args["train"])
    return Spec("quantise", args, {"start": model})
