"""Rows of a task and a way to train on them in this process, without Spec or store."""

from dataclasses import replace
from tempfile import TemporaryDirectory

from lib.runs.store import Scratch
from lib.train import heads, loop, objectives
from lib.train.options import Targets


class Lab:
    """The encoded rows of a task, to train on (`rows`) and to judge by (`dev`).

    splits: {"train", "dev"} of the Task. train: the Train that `fit` takes where no field is
    changed.
    """

    def __init__(self, tokenizer, task, splits, train, seed=0, threads=1):
        self.train, self.seed = train, seed
        self.numerics = loop.options({"dtype": "float32", "threads": threads})
        both = (heads.rows(tokenizer, splits[n], task, train.max_length) for n in ("train", "dev"))
        (self.rows, _), (self.dev, self.marks) = both

    def scores(self, model):
        """The metrics of a model on the development rows."""
        return self.marks(loop.predict(model, self.dev, self.numerics))[0]

    def accuracy(self, model):
        return 100 * self.scores(model)["accuracy"]

    def labels(self, model):
        """f(batch, rows) -> the cross-entropy of a model's logits against the labels."""
        return objectives.predicting(None, model, self.rows, Targets("hard")).enter_result

    def fit(self, model, loss=None, methods=(), **changes):
        """Train a model in place on a loss (lib.train.loop.fit), the labels where none is given.

        changes: of the Train. Returns the Scratch that was logged to, with `result` {"steps", ...}.
        Raises FloatingPointError where the loss is not finite.
        """
        loss, told = loss or self.labels(model), (replace(self.train, **changes), self.numerics)
        with TemporaryDirectory() as folder:
            run = Scratch(folder, self.seed)
            run.result = loop.fit(run, model, self.rows, loss, *told, methods=methods)
        return run
