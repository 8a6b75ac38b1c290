"""This table lists the steps that only BERMo has (lib.core.steps says what a line
is)."""

STEPS = {
    "fineprune": {
        "version": 2,
        "inputs": "start teacher",
        "args": "data train numerics targets alpha prune mix frozen margin span lower_case",
        "module": "training",
        "weights": True,
    },
}
