"""This module lists the steps, the kinds of runs, that only EfficientBERT has.

MAKING has the steps that save weights, MEASURING the others. An entry is {step:
(version, names of input runs, names of arguments, module of this folder)};
lib.core.steps explains it."""

MAKING = {
    "warmup": (
        2,
        "teacher start search",
        "data train numerics warmup net classifier span score",
        "warming",
    ),
    "multitask": (
        2,
        "teacher: start search",
        "data train numerics warmup net shared",
        "warming",
    ),
    "predistil": (
        2,
        "teacher start search",
        "corpus train numerics warmup net shared",
        "warming",
    ),
}
MEASURING = {
    "search": (
        2,
        "start teacher general before",
        "data train numerics space net search warmup corpus pretrain classifier",
        "search.step",
    ),
    "maps": (
        2,
        "reference model model:",
        "data rows examples max_length numerics",
        "maps",
    ),
}
