"""This table lists what a run can do. It is free of torch, so that notebooks can build
Specs.

`lib.steps` has the functions. Raise the version of a step when a change alters results:
runs of the old version are then no longer found."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    name: str
    version: int
    inputs: tuple[
        str, ...
    ]  # It may take Specs of these names; "teacher:" is any name that begins so.
    args: tuple[str, ...]  # Its other arguments have these names.
    weights: bool  # It makes a model, or other large files, that other steps may need.


TASK_TRAINING = "data train numerics"  # Every training on a task has these arguments.
# A step has a version, inputs and arguments.
MAKING = {
    # These make models to start from.
    "pretrain": (2, "", "corpus model objective numerics train"),
    "checkpoint": (1, "", "name digest random"),
    # These train on a task.
    "finetune": (2, "start teacher", f"{TASK_TRAINING} targets span"),
    "fineprune": (
        2,
        "start teacher",
        f"{TASK_TRAINING} targets alpha prune mix frozen margin span lower_case",
    ),
    "distil": (
        2,
        "teacher importance augmented states search",
        f"{TASK_TRAINING} distil surgery span",
    ),
    "retrain": (
        2,
        "start teacher search augmented",
        f"{TASK_TRAINING} objective architecture",
    ),
    "nas_search": (2, "start teacher augmented", f"{TASK_TRAINING} gates objective"),
    "imp": (2, "start origin teacher", f"{TASK_TRAINING} kept objective"),
    "warmup": (
        2,
        "teacher start search",
        f"{TASK_TRAINING} warmup net classifier span score",
    ),
    "multitask": (2, "teacher: start search", f"{TASK_TRAINING} warmup net shared"),
    "predistil": (2, "teacher start search", "corpus train numerics warmup net shared"),
    # These make what the trainings need.
    "augment": (2, "language_model", "data augment numerics"),
    "operate": (1, "teacher importance search", "surgery"),
    "quantise": (1, "start", f"{TASK_TRAINING} span"),
    "states": (2, "teacher", f"{TASK_TRAINING} distil"),
}
MEASURING = {  # These steps keep no weights.
    "importance": (2, "teacher", "data importance numerics span"),
    # These search.
    "search": (
        2,
        "start teacher general before",
        f"{TASK_TRAINING} space net search warmup corpus pretrain classifier",
    ),
    "random_architecture": (2, "start search", "gates"),
    "digits": (2, "", "images perceptron gates numerics"),
    # These measure.
    "bag_of_words": (1, "", "data"),
    "predict": (3, "model", f"{TASK_TRAINING} digest span"),
    "count": (1, "", "config tokens labels"),
    "latency": (1, "model:", "models reference runs batch length numerics"),
    "maps": (2, "reference model model:", "data rows examples max_length numerics"),
}
STEPS = {
    name: Step(
        name, version, tuple(inputs.split()), tuple(args.split()), name in MAKING
    )
    for name, (version, inputs, args) in (MAKING | MEASURING).items()
}
