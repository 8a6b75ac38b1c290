"""This module lists the step, the kind of run, that only BERMo has.

MAKING has the steps that save weights, MEASURING the others, in the form of
lib.core.steps."""

MAKING = {
    "fineprune": (
        2,
        "start teacher",
        "data train numerics targets alpha prune mix frozen margin span lower_case",
        "training",
    ),
}
MEASURING = {}
