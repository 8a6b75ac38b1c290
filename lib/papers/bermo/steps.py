"""This table lists the steps that only BERMo has (lib.core.steps describes a line)."""

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
