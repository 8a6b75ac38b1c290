"""This module has Row, a line of a grid of experiments, and Outcome, a Row with its
run.

    Row(ghostbert.model_spec(profile, task, m, "Ghost"), task=task, m=m, model="Ghost",
    seed=seed)

Both are read like a dict, so a table is `pandas.DataFrame(map(dict, rows))`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any

from lib.core.spec import Spec
from lib.core.store import Run

# Heads of BERT-base. Widths are given as m of this many, unless a row has a label `of`.
PARTS = 12


def format_width(labels: Mapping[str, Any]) -> str:
    """Return the width of a model as text, such as "3/12": kept heads of all heads.

    labels: a row's labels `m` (kept heads) and `of` (all heads, 12 if absent)."""
    heads = labels.get("of", PARTS)
    return f"{labels['m']:g}/{heads if isfinite(heads) else PARTS:g}"


class Columns(Mapping[str, Any]):
    """A Columns is a read-only mapping from names of columns to the values in
    `cells`."""

    cells: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.cells[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.cells)

    def __len__(self) -> int:
        return len(self.cells)


class Row(Columns):
    """A Row is a line of a grid: labels by which pages and claims select it, and its
    Spec.

    The labels are columns of tables: task, model, m (kept heads), of (heads of the
    unpruned model, if not 12), seed and others. A Spec without a seed takes the label
    `seed`."""

    def __init__(self, spec: Spec, /, **labels: Any) -> None:
        seed = labels.get("seed")
        self.spec = (
            spec.with_seed(seed) if spec.seed is None and seed is not None else spec
        )
        self.labels = labels
        self.cells = labels | {"spec": self.spec}

    @property
    def task(self) -> str | None:
        return self.labels.get("task")

    @property
    def seed(self) -> int | None:
        """Return the label `seed`, or None for a run that serves all seeds."""
        return self.labels.get("seed")

    def with_seed(self, seed: int) -> "Row":
        """Return a copy of this Row, and of its Spec, at another seed."""
        return Row(self.spec.with_seed(seed), **self.labels | {"seed": seed})

    def with_spec(self, spec: Spec, **labels: Any) -> "Row":
        """Return a Row with another Spec, and with `labels` added to its labels."""
        return Row(spec, **self.labels | labels)

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in self.labels.items())})"


@dataclass(frozen=True, eq=False)
class Outcome(Columns):
    """An Outcome is a Row with its run, or with the reason why there is none.

    Read like a dict it has the row's labels and Spec, then run, state and error, then
    the metrics of the run. A label wins over a metric of the same name."""

    row: Row
    run: Run | None
    state: str  # "finished", "running", "failed", "stopped", "died" or "missing".
    error: str = ""  # Error of the last attempt in one line; "" where nobody tried.

    @cached_property
    # pyrefly: ignore[bad-override]  The base class has a field here, not a property.
    def cells(self) -> dict[str, Any]:
        """Return {column: value} in the order of the columns of a table."""
        values = dict(self.row) | {
            "run": self.run,
            "state": self.state,
            "error": self.error,
        }
        metrics = self.run.metrics if self.run else {}
        return values | metrics | values
