"""This module lists the steps, the kinds of runs, that only the report on NAS pruning
has.

A line gives the version, the names of input runs and of arguments, and the module of
the step's function (lib.core.steps)."""

STEPS = {
    "nas_search": {
        "version": 2,
        "inputs": "start teacher augmented",
        "args": "gates objective",
        "on_task": True,
        "module": "training",
        "weights": True,
    },
    "retrain": {
        "version": 2,
        "inputs": "start teacher search augmented",
        "args": "objective architecture",
        "on_task": True,
        "module": "training",
        "weights": True,
    },
    "imp": {
        "version": 2,
        "inputs": "start origin teacher",
        "args": "kept objective",
        "on_task": True,
        "module": "training",
        "weights": True,
    },
    "random_architecture": {
        "version": 2,
        "inputs": "start search",
        "args": "gates",
        "module": "random_architecture",
    },
    "digits": {
        "version": 2,
        "inputs": "",
        "args": "images perceptron gates numerics",
        "module": "digits_check",
    },
}
