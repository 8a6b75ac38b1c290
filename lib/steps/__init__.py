"""What a run can do. This table is free of torch: notebooks build Specs from it without a model.

To add a step, write one module `lib/steps/<name>.py` with a function `<name>(run, **args)` that
returns metrics, and one line here. Raise the version when a change alters results: runs of the old
version are then no longer found.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    version: int
    args: tuple  # names of the function's arguments beside `run`; a test compares them
    inputs: tuple  # names of the Specs it may take; "teacher:" is any name that begins so
    weights: bool  # it makes a model, or other large files, that other steps may need


def _step(version, args, inputs="", weights=True):
    return Step(version, tuple(args.split()), tuple(inputs.split()), weights)


STEPS = {
    # models to start from
    "pretrain": _step(2, "corpus model objective numerics train"),
    "checkpoint": _step(1, "name digest random"),
    # training on a task
    "finetune": _step(2, "data train numerics targets span", "start teacher"),
    "fineprune": _step(
        2,
        "data train numerics targets alpha prune mix frozen margin span lower_case",
        "start teacher",
    ),
    "distil": _step(
        2, "data train numerics distil surgery span", "teacher importance augmented states search"
    ),
    "retrain": _step(
        2, "data train numerics objective architecture", "start teacher search augmented"
    ),
    "nas_search": _step(2, "data train numerics gates objective", "start teacher augmented"),
    "imp": _step(2, "data train numerics kept", "start origin"),
    "warmup": _step(2, "data train numerics warmup net classifier span", "teacher start search"),
    "multitask": _step(2, "data warmup train numerics net shared", "teacher: start search"),
    "predistil": _step(2, "corpus warmup train numerics net shared", "teacher start search"),
    # what they need
    "importance": _step(2, "data importance numerics span", "teacher", weights=False),
    "augment": _step(2, "data augment numerics", "language_model"),
    "operate": _step(1, "surgery", "teacher importance search"),
    "quantise": _step(1, "data train numerics", "start"),
    "states": _step(2, "data train numerics distil", "teacher"),
    # searches
    "search": _step(
        2,
        "space net search data train numerics warmup corpus pretrain classifier span",
        "start teacher general before",
        weights=False,
    ),
    "random_architecture": _step(2, "gates", "start", weights=False),
    "digits": _step(2, "images perceptron gates numerics", weights=False),
    # what is measured
    "bag_of_words": _step(1, "data", weights=False),
    "predict": _step(2, "data train numerics span", "model", weights=False),
    "count": _step(1, "config tokens labels", weights=False),
    "inspect_ghosts": _step(2, "data train numerics rows", "model", weights=False),
    "latency": _step(1, "reference batch length numerics models runs", "model:", weights=False),
    "maps": _step(
        2, "data rows examples max_length numerics", "reference model model:", weights=False
    ),
}
