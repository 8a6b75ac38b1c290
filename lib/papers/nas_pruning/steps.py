"""This module lists the steps, the kinds of runs, that only the report on NAS pruning
has.

MAKING has the steps that save weights, MEASURING the others. An entry is {step:
(version, names of input runs, names of arguments, module of this folder)};
lib.core.steps explains it."""

MAKING = {
    "nas_search": (
        2,
        "start teacher augmented",
        "data train numerics gates objective",
        "training",
    ),
    "retrain": (
        2,
        "start teacher search augmented",
        "data train numerics objective architecture",
        "training",
    ),
    "imp": (
        2,
        "start origin teacher",
        "data train numerics kept objective",
        "training",
    ),
}
MEASURING = {
    "random_architecture": (2, "start search", "gates", "random_architecture"),
    "digits": (2, "", "images perceptron gates numerics", "digits_check"),
}
