"""What a run can do. This table is free of torch: notebooks build Specs from it without importing a model.

To add a step: one module `lib/steps/<name>.py` with a function `<name>(run, **args) -> metrics`, and one line here.
Raise the version when a change alters results: runs of the old version are then no longer found.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    version: int
    inputs: tuple  # names of the Specs it may take; "teacher:" is any name that begins so
    args: tuple  # names of its arguments
    weights: bool  # it makes a model that other steps may need
    about: str


STEPS = {
    "pretrain": Step(
        2,
        (),
        ("corpus", "model", "objective", "train", "numerics"),
        True,
        "pre-training of a small encoder on the generated corpus: masked words, next sentence",
    ),
    "checkpoint": Step(
        1,
        (),
        ("name", "digest", "random"),
        True,
        "a published checkpoint, copied into the store and checked against its digest",
    ),
    "finetune": Step(
        2,
        ("start", "teacher"),
        ("data", "train", "targets", "numerics", "span"),
        True,
        "training on a task's labels, on a teacher's logits, or on both",
    ),
    "importance": Step(
        2,
        ("teacher",),
        ("data", "importance", "numerics", "span"),
        False,
        "ranking of heads and neurons by first-order Taylor",
    ),
    "augment": Step(
        2,
        ("language_model",),
        ("data", "augment", "numerics", "glove"),
        True,
        "training rows with words replaced beside them, as TinyBERT augments",
    ),
    "operate": Step(
        1,
        ("teacher", "importance"),
        ("surgery",),
        True,
        "cut a teacher and add ghosts, without training",
    ),
    "states": Step(
        2,
        ("teacher",),
        ("data", "train", "distil", "numerics"),
        True,
        "a teacher's hidden states over the training rows, for all its students",
    ),
    "bag_of_words": Step(
        1,
        (),
        ("data",),
        False,
        "majority class and a linear model over word counts: what a task gives away without reading",
    ),
    "distil": Step(
        2,
        ("teacher", "importance", "augmented", "states"),
        ("data", "train", "surgery", "distil", "numerics", "span"),
        True,
        "cut a teacher, add ghosts, match the teacher's hidden states",
    ),
    "fineprune": Step(
        2,
        ("start", "teacher"),
        (
            "data",
            "train",
            "numerics",
            "targets",
            "alpha",
            "prune",
            "mix",
            "frozen",
            "margin",
            "span",
            "lower_case",
        ),
        True,
        "fine-tuning with masks on the encoder's projections, a mix of its layers, or both",
    ),
    "predict": Step(
        2,
        ("model",),
        ("data", "train", "numerics", "span"),
        False,
        "a model's logits on rows whose labels are not public, such as GLUE's test rows",
    ),
    "count": Step(
        1,
        (),
        ("config", "tokens", "labels"),
        False,
        "parameters and FLOPs of a published configuration",
    ),
    "inspect_ghosts": Step(
        2,
        ("model",),
        ("data", "train", "numerics", "rows"),
        False,
        "kernels of a model's ghosts, and their features beside the original ones",
    ),
    "predistil": Step(
        2,
        ("teacher", "start", "search"),
        ("corpus", "net", "warmup", "train", "numerics", "shared"),
        True,
        "warm-up distillation on text, of a network or of parts of a supernet",
    ),
    "warmup": Step(
        2,
        ("teacher", "start", "search"),
        ("data", "net", "warmup", "train", "numerics", "classifier", "span"),
        True,
        "fine-tuning by warm-up distillation: attention, states and predictions of a teacher",
    ),
    "multitask": Step(
        2,
        ("teacher:", "start", "search"),
        ("data", "net", "warmup", "train", "numerics", "shared"),
        True,
        "fine-tuning by warm-up distillation on several tasks at once, a head and a teacher each",
    ),
    "latency": Step(
        1,
        ("model:",),
        ("models", "reference", "batch", "length", "runs", "numerics", "attention"),
        False,
        "seconds of a forward pass, side by side, of models with random weights at true size and of other runs",
    ),
    "maps": Step(
        2,
        ("reference", "model", "model:"),
        ("data", "rows", "examples", "max_length", "numerics"),
        False,
        "attention maps and outputs of models' last layers, and how like a reference's they are",
    ),
    "search": Step(
        2,
        ("start", "teacher", "general", "before"),
        (
            "space",
            "net",
            "search",
            "data",
            "train",
            "numerics",
            "warmup",
            "corpus",
            "pretrain",
            "classifier",
            "span",
        ),
        False,
        "search for feed-forward networks: formulas, stacks and ratios, by inheritance from a supernet",
    ),
    "nas_search": Step(
        2,
        ("start", "teacher", "augmented"),
        ("data", "train", "numerics", "gates", "objective"),
        True,
        "search by gates over heads and neurons for the best architecture of a given cost",
    ),
    "random_architecture": Step(
        2, ("start",), ("gates", "spread"), False, "a random architecture of a given cost"
    ),
    "retrain": Step(
        2,
        ("start", "teacher", "search", "augmented"),
        ("data", "train", "numerics", "objective", "architecture"),
        True,
        "cut an architecture out of a model and train it on a teacher or on labels",
    ),
    "digits": Step(
        2,
        (),
        ("images", "perceptron", "gates", "numerics"),
        False,
        "search over inputs of a small network on digits: pixels, and noise beside them",
    ),
    "imp": Step(
        2,
        ("start", "origin"),
        ("data", "train", "numerics", "kept"),
        True,
        "one round of iterative magnitude pruning: prune, rewind to the pre-trained weights, fine-tune",
    ),
}
