"""This module lists the step, the kind of run, that only BERMo has.

A line gives the version, the names of input runs and of arguments, and the module of
the step's function (lib.core.steps)."""

STEPS = {
    "fineprune": {
        "version": 2,
        "inputs": "start teacher",
        "args": "targets alpha prune mix frozen margin span lower_case",
        "on_task": True,
        "module": "training",
        "weights": True,
    },
}
