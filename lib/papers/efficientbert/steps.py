"""This table lists the steps that only EfficientBERT has (lib.core.steps says what a
line is)."""

TRAINING = "data train numerics"
STEPS = {
    "warmup": {
        "version": 2,
        "inputs": "teacher start search",
        "args": f"{TRAINING} warmup net classifier span score",
        "module": "warming",
        "weights": True,
    },
    "multitask": {
        "version": 2,
        "inputs": "teacher: start search",
        "args": f"{TRAINING} warmup net shared",
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
        "args": f"{TRAINING} space net search warmup corpus pretrain classifier",
        "module": "search.step",
    },
    "maps": {
        "version": 2,
        "inputs": "reference model model:",
        "args": "data rows examples max_length numerics",
        "module": "maps",
    },
}
