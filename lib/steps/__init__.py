"""What a run can do. This table is free of torch: notebooks build Specs from it without importing a model.

To add a step: one module `lib/steps/<name>.py` with a function `<name>(run, **args) -> metrics`, and one line here.
Raise the version when a change alters results: runs of the old version are then no longer found.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    version: int
    inputs: tuple    # names of the Specs it may take
    args: tuple      # names of its arguments
    weights: bool    # it makes a model that other steps may need
    about: str


STEPS = {
    "pretrain": Step(1, (), ("corpus", "model", "objective", "train", "numerics"), True,
                     "pre-training of a small encoder on the generated corpus: masked words, next sentence"),
    "checkpoint": Step(1, (), ("name", "digest", "random"), True,
                       "a published checkpoint, copied into the store and checked against its digest"),
    "finetune": Step(1, ("start", "teacher"), ("data", "train", "targets", "numerics", "span"), True,
                     "training on a task's labels, on a teacher's logits, or on both"),
    "importance": Step(1, ("teacher",), ("data", "importance", "numerics", "span"), False,
                       "ranking of heads and neurons by first-order Taylor"),
    "augment": Step(1, ("language_model",), ("data", "augment", "numerics", "glove"), True,
                    "training rows with words replaced beside them, as TinyBERT augments"),
    "operate": Step(1, ("teacher", "importance"), ("surgery",), True, "cut a teacher and add ghosts, without training"),
    "states": Step(1, ("teacher",), ("data", "train", "distil", "numerics"), True,
                   "a teacher's hidden states over the training rows, for all its students"),
    "bag_of_words": Step(1, (), ("data",), False,
                         "majority class and a linear model over word counts: what a task gives away without reading"),
    "distil": Step(1, ("teacher", "importance", "augmented", "states"),
                   ("data", "train", "surgery", "distil", "numerics", "span"), True,
                   "cut a teacher, add ghosts, match the teacher's hidden states"),
}
