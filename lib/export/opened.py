"""Open a finished run: its model, tokenizer, predictions and development rows (`lib.load`).

Free of torch until a model is asked for, so that pages show predictions in a moment.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from lib import data
from lib.page import notebook
from lib.runs.spec import from_json, known
from lib.runs.store import Run, Store
from lib.steps import STEPS

# Columns of grids whose values a notebook takes as a list under another name.
PARAMETERS = {"task": "tasks", "seed": "seeds", "m": "widths"}


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
        """The model in float32 and eval mode. Raises FileNotFoundError where none was kept."""
        return self._loaded[0]

    @property
    def tokenizer(self):
        return self._loaded[1]

    @cached_property
    def task(self):
        """The lib.data.Task that it learned. Raises ValueError for a run of none or several."""
        told = self.run.spec["args"].get("data", {})
        if "task" not in told:
            raise ValueError(f"{self.run.name} learned no task, or several: it has no such rows")
        return data.described(told)

    @cached_property
    def predictions(self):
        """One line a development row, by its number in the file: `label`, `said`, `right` and the
        `confidence` in what it said; of a regression `label` and `said` alone, on the scale of its
        file."""
        found = self.run.arrays("predictions")
        if "logits" not in found:
            return pd.DataFrame({name: list(values) for name, values in found.items()})
        logits, index = found["logits"].astype(float), pd.Index(found["index"], name="row")
        if not self.task.labels:
            told = {"label": found["labels"].astype(float), "said": logits[:, 0]}
            return pd.DataFrame({name: self.task.scaled(v) for name, v in told.items()}, index)
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        said, names = shares.argmax(1), np.array(self.task.labels)
        told = {"label": names[found["labels"]], "said": names[said]}
        return pd.DataFrame(
            told | {"right": said == found["labels"], "confidence": shares.max(1)}, index
        )

    @cached_property
    def rows(self):
        """The development rows as text, by number. Raises FileNotFoundError where the data are not
        at hand."""
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
        raise FileNotFoundError(
            f"{spec.name} is not made yet: `python -m lib run {name} --profile {profile}` makes "
            "that page's runs, lib.load(..., keep=True) this one alone"
        )
    return Opened(weights(run, keep) if run and keep else run or made(spec))


def chosen(name, profile, wanted):
    """Return the Spec of the one line of a notebook's grid whose columns have the wanted values."""
    path, *more = notebook.find([name])
    if more:
        raise ValueError(f"{name!r} is part of {path.stem} and {more[0].stem}: name one of them")
    own = {PARAMETERS[c]: [v] for c, v in wanted.items() if c in PARAMETERS}
    own = {name: value for name, value in own.items() if name in notebook.parameters(path)}
    rows = notebook.planned(path, own | {"profile": profile}).get("grid", [])
    columns = list(dict.fromkeys(c for row in rows for c in row if c != "spec"))
    for column in wanted:
        known(f"column of {path.stem}", column, columns)
    lines = [row for row in rows if all(row.get(c) == v for c, v in wanted.items())]
    if len(specs := {row["spec"] for row in lines}) == 1:
        return specs.pop()
    values = {c: sorted({str(row.get(c)) for row in lines or rows}) for c in columns}
    left = "; ".join(f"{c}: {', '.join(v)}" for c, v in values.items() if len(v) > 1 or not lines)
    raise ValueError(f"{len(specs)} runs of {path.stem} fit {wanted}: choose by {left}")


def named(name):
    """Return the one run whose name holds `name`. Raises ValueError with what there is."""
    there = {run.name: run for run in Store().every()}
    hits = [name] if name in there else [each for each in there if name in each]
    if not hits:
        known("run", name, list(there)[:20])
    if len(hits) > 1:
        raise ValueError(f"{name!r} is part of {len(hits)} runs: {', '.join(hits[:5])}...")
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
