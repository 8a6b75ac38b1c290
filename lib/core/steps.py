"""This table lists what a run can do. It is free of torch, so that notebooks can build
Specs.

The steps that papers share stand here, with their functions in `lib/train/steps`. Those
of one paper stand in its `steps.py`. Raise the version of a step when a change alters
results: runs of the old version are then no longer found."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Any

from lib.core.papers import collect_modules

SHARED = "lib.train.steps"


@dataclass(frozen=True)
class Step:
    """A Step says what a run of it may take, and where its function is."""

    name: str
    version: int
    # It may take Specs of these names; "teacher:" is any name that begins so.
    inputs: tuple[str, ...]
    args: tuple[str, ...]  # Its other arguments have these names.
    module: str  # The function has the name of the step.
    weights: bool  # It makes a model, or other large files, that other steps may need.


TASK_TRAINING = "data train numerics"  # Every training on a task has these arguments.
# A step has a version, inputs, arguments and a module.
MAKING = {
    # These make models to start from.
    "pretrain": (2, "", "corpus model objective numerics train", "pretrain"),
    "checkpoint": (1, "", "name digest random", "checkpoint"),
    # These train on a task.
    "finetune": (2, "start teacher", f"{TASK_TRAINING} targets span", "training"),
    "distil": (
        2,
        "teacher importance augmented states search",
        f"{TASK_TRAINING} distil surgery span",
        "distilling",
    ),
    # These make what the trainings need.
    "augment": (2, "language_model", "data augment numerics", "augment"),
    "operate": (1, "teacher importance search", "surgery", "distilling"),
    "quantise": (1, "start", f"{TASK_TRAINING} span", "training"),
    "states": (2, "teacher", f"{TASK_TRAINING} distil", "distilling"),
}
MEASURING = {  # These steps keep no weights.
    "importance": (2, "teacher", "data importance numerics span", "importance"),
    "bag_of_words": (1, "start", "data cut", "bag_of_words"),
    "predict": (3, "model", f"{TASK_TRAINING} digest span", "predict"),
    "count": (1, "", "config tokens labels", "count"),
    "latency": (1, "model:", "models reference runs batch length numerics", "latency"),
}


def collect_steps() -> dict[str, Step]:
    """Return {name: Step} of the shared steps, and of those of all papers.

    A line of a paper's table has a version, inputs, arguments and a module of its
    folder. "on_task" adds the arguments of every training on a task, and "weights" says
    that it makes a model."""
    steps = {}
    for name, (version, inputs, args, module) in (MAKING | MEASURING).items():
        place = f"{SHARED}.{module}"
        sides = tuple(inputs.split()), tuple(args.split())
        steps[name] = Step(name, version, *sides, place, name in MAKING)
    for paper, table in collect_modules("steps").items():
        for name, line in table.STEPS.items():
            place = f"lib.papers.{paper}.{line['module']}"
            on_task = f"{TASK_TRAINING} " if line.get("on_task") else ""
            args = f"{on_task}{line['args']}"
            sides = tuple(line["inputs"].split()), tuple(args.split())
            makes = line.get("weights", False)
            steps[name] = Step(name, line["version"], *sides, place, makes)
    return steps


STEPS = collect_steps()


def function_of_step(name: str) -> Callable[..., Any]:
    """Return f(run, **args) -> metrics, which makes a run of a step.

    Its module is imported now. A step whose function takes a `training` gets it as a
    TaskTraining (lib.train.learn)."""
    step = getattr(import_module(STEPS[name].module), name)
    if "training" not in signature(step).parameters:
        return step
    return partial(import_module("lib.train.learn").call_on_task, step)
