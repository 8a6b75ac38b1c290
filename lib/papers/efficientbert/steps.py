"""This module lists the steps, the kinds of runs, that only EfficientBERT has.

An entry gives the version, the names of input runs and of arguments, and the module of
the step's function (lib.core.steps)."""

STEPS = {
    "warmup": {
        "version": 2,
        "inputs": "teacher start search",
        "args": "warmup net classifier span score",
        "on_task": True,
        "module": "warming",
        "weights": True,
    },
    "multitask": {
        "version": 2,
        "inputs": "teacher: start search",
        "args": "warmup net shared",
        "on_task": True,
        "module": "warming",
        "weights": True,
    },
    "predistil": {
        "version": 2,
        "inputs": "teacher start search",
        "args": "corpus train numerics warmup net shared",
        "module": "warming",
        "weights": True,
    },
    "search": {
        "version": 2,
        "inputs": "start teacher general before",
        "args": "space net search warmup corpus pretrain classifier",
        "on_task": True,
        "module": "search.step",
    },
    "maps": {
        "version": 2,
        "inputs": "reference model model:",
        "args": "data rows examples max_length numerics",
        "module": "maps",
    },
}
