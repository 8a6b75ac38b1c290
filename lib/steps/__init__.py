"""This room has the functions that make runs: `lib.core.steps` lists them without
torch.

To add a step, write a function `<name>(run, **args)` that returns metrics, in a module
of this folder, and one entry in that list. A training on a task is a function
`<name>(training, **args)`: the run and the arguments of TASK_TRAINING reach it as one
TaskTraining (lib.train.learn)."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Any

from lib.core.store import RunWriter
from lib.core.types import Json

PRESETS = {  # These modules have several steps; any other module is named after its step.
    "training": ("finetune", "fineprune", "nas_search", "retrain", "imp", "quantise"),
    "distilling": ("distil", "operate", "states"),
    "warming": ("warmup", "predistil", "multitask"),
}
MODULES = {name: module for module, names in PRESETS.items() for name in names}


def function(name: str) -> Callable[..., Json]:
    """Return f(run, **args) -> metrics, which makes a run of a step; its module is
    imported now."""
    made = getattr(import_module(f"{__name__}.{MODULES.get(name, name)}"), name)
    return partial(on_task, made) if "training" in signature(made).parameters else made


def on_task(
    step: Callable[..., Json],
    run: RunWriter,
    data: Json,
    numerics: Json,
    train: Json | None = None,
    span: Json | None = None,
    **args: Any,
) -> Json:
    """Call a step that takes a TaskTraining, made of the other arguments. Returns its
    metrics."""
    from lib.train.learn import TaskTraining

    return step(TaskTraining(run, data, train, numerics, span), **args)
