"""This module lists the steps: the kinds of work that a run can do, such as "finetune".

The steps that several papers need are listed here, and their functions are in
`lib/train/steps`. Those of one paper are listed in the `steps.py` of its folder. Raise
the version of a step when a change of code alters its results: runs of the old version
are then no longer found."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Any, TypeAlias

from lib.core.papers import import_module_of_each_paper

SHARED = "lib.train.steps"


@dataclass(frozen=True)
class Step:
    """A Step is a kind of work, such as "finetune", that a run can do.

    A run is one training or measurement. The function that does the work has the name
    of the step.

    version: raised when a change of code alters results, so that old results are not
    used.
    inputs: names of the inputs (earlier runs) that a Spec of this step may have.
    "teacher:" allows all names that begin with it.
    args: names of the arguments that a Spec of this step may have.
    module: the Python module that has the function.
    saves_weights: whether runs of this step save a model, or other large files, that
    later runs load."""

    version: int
    inputs: tuple[str, ...]
    args: tuple[str, ...]
    module: str
    saves_weights: bool


# {name of a step: (version, inputs, arguments, module)}. Names of inputs and of
# arguments are separated by blanks.
StepTable: TypeAlias = dict[str, tuple[int, str, str, str]]
TASK_TRAINING = "data train numerics"  # Arguments of every training on a task.
MAKING: StepTable = {  # Steps that save weights.
    # Models to start from.
    "pretrain": (2, "", "corpus model objective numerics train", "pretrain"),
    "checkpoint": (1, "", "name digest random", "checkpoint"),
    # Trainings on a task.
    "finetune": (2, "start teacher", f"{TASK_TRAINING} targets span", "training"),
    "distil": (
        2,
        "teacher importance augmented states search",
        f"{TASK_TRAINING} distil surgery span",
        "distilling",
    ),
    # Augmented data, changed models and a teacher's hidden states, which trainings take
    # as inputs.
    "augment": (2, "language_model", "data augment numerics", "augment"),
    "operate": (1, "teacher importance search", "surgery", "distilling"),
    "quantise": (1, "start", f"{TASK_TRAINING} span", "training"),
    "states": (2, "teacher", f"{TASK_TRAINING} distil", "distilling"),
}
MEASURING: StepTable = {  # Steps that save no weights.
    "importance": (2, "teacher", "data importance numerics span", "importance"),
    "bag_of_words": (1, "start", "data cut", "bag_of_words"),
    "predict": (3, "model", f"{TASK_TRAINING} digest span", "predict"),
    "count": (1, "", "config tokens labels", "count"),
    "latency": (1, "model:", "models reference runs batch length numerics", "latency"),
}


def make_steps(package: str, table: StepTable, saves_weights: bool) -> dict[str, Step]:
    """Return {name: Step} of the lines of a table of steps, the kinds of work.

    package: the Python package below which the modules of the steps lie.
    saves_weights: whether these steps save a model, or other large files."""
    return {
        name: Step(
            version,
            tuple(inputs.split()),
            tuple(args.split()),
            f"{package}.{module}",
            saves_weights,
        )
        for name, (version, inputs, args, module) in table.items()
    }


def collect_steps() -> dict[str, Step]:
    """Return {name: Step} of all kinds of work, such as "finetune".

    They are the shared ones and those that each reproduced paper adds. A paper's
    `steps.py` has two tables like those here: MAKING for the steps that save a model,
    and MEASURING for the others."""
    steps = make_steps(SHARED, MAKING, True) | make_steps(SHARED, MEASURING, False)
    for paper, tables in import_module_of_each_paper("steps").items():
        package = f"lib.papers.{paper}"
        steps |= make_steps(package, tables.MAKING, True)
        steps |= make_steps(package, tables.MEASURING, False)
    return steps


STEPS = collect_steps()


def find_step_function(step_name: str) -> Callable[..., Any]:
    """Return the function that does a kind of work, such as "finetune".

    It is called as f(run, **arguments) and returns {metric: value}. `run` is the
    RunWriter by which it logs and saves files. The function's module is imported only
    now, as it may import torch."""
    step = getattr(import_module(STEPS[step_name].module), step_name)
    if "training" not in signature(step).parameters:
        return step
    return partial(import_module("lib.train.learn").run_stage_on_task, step)
