"""This module lists the step, the kind of run, that only BERMo has.

MAKING has the steps that save weights, MEASURING the others. An entry is {step:
(version, names of input runs, names of arguments, module of this folder)};
lib.core.steps explains it."""

MAKING = {
    "fineprune": (
        2,
        "start teacher",
        "data train numerics targets alpha prune mix frozen margin span lower_case",
        "training",
    ),
}
MEASURING = {}
