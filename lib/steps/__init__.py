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
    "checkpoint": Step(1, (), ("name", "digest"), True,
                       "a published checkpoint, copied into the store and checked against its digest"),
    "finetune": Step(1, ("start", "teacher"), ("data", "train", "targets", "numerics"), True,
                     "training on a task's labels, on a teacher's logits, or on both"),
    "importance": Step(1, ("teacher",), ("data", "importance", "numerics"), False,
                       "ranking of heads and neurons by first-order Taylor"),
    "distil": Step(1, ("teacher", "importance"), ("data", "train", "surgery", "distil", "numerics"), True,
                   "cut a teacher, add ghosts, match the teacher's hidden states"),
}
