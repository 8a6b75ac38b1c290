"""What a run can do. This table is free of torch: notebooks build Specs from it without a model.

To add a step, write one module `lib/steps/<name>.py` with a function `<name>(run, **args)` that
returns metrics, and one line here. Raise the version when a change alters results: runs of the old
version are then no longer found.
"""

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Step:
    name: str
    version: int
    inputs: tuple  # names of the Specs it may take; "teacher:" is any name that begins so
    weights: bool  # it makes a model, or other large files, that other steps may need

    @cached_property
    def args(self):
        """Names of the function's arguments beside `run`, read from its source."""
        source = (Path(__file__).parent / f"{self.name}.py").read_text()
        step = next(n for n in ast.parse(source).body if getattr(n, "name", "") == self.name)
        return tuple(argument.arg for argument in step.args.args[1:])


# Each step's version and inputs.
MAKING = {
    # models to start from
    "pretrain": (2, ""),
    "checkpoint": (1, ""),
    # training on a task
    "finetune": (2, "start teacher"),
    "fineprune": (2, "start teacher"),
    "distil": (2, "teacher importance augmented states search"),
    "retrain": (2, "start teacher search augmented"),
    "nas_search": (2, "start teacher augmented"),
    "imp": (2, "start origin"),
    "warmup": (2, "teacher start search"),
    "multitask": (2, "teacher: start search"),
    "predistil": (2, "teacher start search"),
    # what they need
    "augment": (2, "language_model"),
    "operate": (1, "teacher importance search"),
    "quantise": (1, "start"),
    "states": (2, "teacher"),
}
MEASURING = {  # without weights
    "importance": (2, "teacher"),
    # searches
    "search": (2, "start teacher general before"),
    "random_architecture": (2, "start"),
    "digits": (2, ""),
    # what is measured
    "bag_of_words": (1, ""),
    "predict": (2, "model"),
    "count": (1, ""),
    "inspect_ghosts": (2, "model"),
    "latency": (1, "model:"),
    "maps": (2, "reference model model:"),
}
STEPS = {
    name: Step(name, version, tuple(inputs.split()), name in MAKING)
    for name, (version, inputs) in (MAKING | MEASURING).items()
}
