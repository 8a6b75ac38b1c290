"""Open a finished run: its model, tokenizer, predictions and development rows (`lib.load`).

Free of torch until a model is asked for, so that pages show predictions in a moment.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.special import softmax

from lib import data
from lib.page import notebook
from lib.runs.spec import from_json
from lib.runs.store import Run, Store
from lib.steps import STEPS


def task_of(run):
    """Return the lib.data.Task that a run learned, None for a run of no task or of several."""
    described = run.spec["args"].get("data", {})
    return data.described(described) if "task" in described else None


@dataclass(frozen=True)
class Opened:
    """A finished run, opened. Each part is read when it is asked for."""

    run: Run

    @cached_property
    def _loaded(self):
        from lib.model import backbone

        return backbone.load(weights(self.run).model)

    @property
    def model(self):
        """Return the model in float32 and eval mode. Raises FileNotFoundError where it was not
        kept."""
        return self._loaded[0]

    @property
    def tokenizer(self):
        return self._loaded[1]

    @property
    def task(self):
        """Return the lib.data.Task that it learned, None for a run of no task or of several."""
        return task_of(self.run)

    @cached_property
    def predictions(self):
        """Return one line a development row, by its number in the file: `label`, `said`, `right`
        and the `confidence` in what was said; of a regression `label` and `said` alone, from 0 to
        5."""
        found = self.run.arrays("predictions")
        if "logits" not in found:
            return pd.DataFrame({name: list(values) for name, values in found.items()})
        labels, logits = found["labels"], found["logits"].astype(float)
        told = {"label": labels.astype(float), "said": logits[:, 0]}
        if self.task.labels:
            said, names = logits.argmax(1), np.array(self.task.labels)
            told = {"label": names[labels], "said": names[said], "right": said == labels}
            told["confidence"] = softmax(logits, 1).max(1)
        return pd.DataFrame(told, pd.Index(found["index"], name="row"))

    @cached_property
    def rows(self):
        """Return the development rows as text, by number. Raises FileNotFoundError where the data
        are not at hand."""
        there = data.load(self.run.spec["args"]["data"])
        split = next(rows for name, rows in there.items() if name.startswith("dev"))
        texts = {"text": split.a} | ({"second text": split.b} if split.b else {})
        return pd.DataFrame(texts, pd.Index(split.index, name="row"))


def load(name, profile="toy", keep=False, **wanted):
    """Return a line of a notebook's grid, or a run by its name, as an `Opened`.

        found = load("ghostbert_t03", m=3, model="Ghost", task="SST-2", seed=0)
        found.model, found.tokenizer, found.predictions, found.rows

    name: part of a notebook's name, whose line the columns `wanted` choose; or a run's name, or
    enough of it to be the only one. keep: make the run with its weights, where they are not there.
    Raises ValueError where none or several fit, FileNotFoundError for a run that is not made.
    """
    spec = None if "-" in name else chosen(name, profile, wanted)
    run = Store().find(spec) if spec else named(name)
    if run is None and not keep:
        fix = f"`python -m lib run {name} --profile {profile}`, or lib.load(..., keep=True)"
        raise FileNotFoundError(f"{spec.name} is not made yet: {fix} makes it")
    return Opened(weights(run, keep) if run and keep else run or made(spec))


def chosen(name, profile, wanted):
    """Return the Spec of the one line of a notebook's grid whose columns have the wanted values.
    Raises ValueError with lines to choose from where none or several have them."""
    path = notebook.find([name])[0]
    rows = notebook.planned(path, {"profile": profile}).get("grid", [])
    hits = [row for row in rows if all(row.get(c) == v for c, v in wanted.items())]
    if len(specs := {row["spec"] for row in hits}) != 1:
        lines = [{c: v for c, v in row.items() if c != "spec"} for row in (hits or rows)[:9]]
        told = f"{len(specs)} runs of {path.stem} have {wanted}: choose a line such as"
        raise ValueError(f"{told} {', '.join(map(str, lines))}")
    return specs.pop()


def named(name):
    """Return the one run whose name holds `name`. Raises ValueError where none or several do."""
    there = {run.name: run for run in Store().every()}
    hits = [name] if name in there else [each for each in there if name in each]
    if len(hits) != 1:
        first = ", ".join((hits or list(there))[:9])
        raise ValueError(f"{name!r} is part of {len(hits)} runs: name one of {first}, ...")
    return there[hits[0]]


def weights(run, keep=False):
    """Return the run with its weights. keep: made again where they are not there. Raises
    FileNotFoundError that names the command.
    """
    if run.model.exists():
        return run
    spec = from_json(run.spec)
    if not STEPS[spec.step].weights:
        raise ValueError(f"{run.name} makes no model: the step {spec.step} only measures")
    if here := Store().find(spec, weights=True):
        return here
    if keep:
        return made(spec)
    why = "is a record, and records have" if run.origin == "record" else "kept"
    raise FileNotFoundError(
        f"{run.name} {why} no weights: `python -m lib export {run.name} --keep`, or "
        "lib.load(..., keep=True), makes it again with them"
    )


def made(spec):
    """Make a run with its weights. Raises RuntimeError with the reason where that failed."""
    from lib.runs import sweep

    if lost := sweep.make([spec], keep=True):
        raise RuntimeError(f"{spec.name} could not be made: {lost[spec]}")
    return Store().find(spec, weights=True)
