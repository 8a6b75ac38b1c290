"""This module has Row, a line of a grid, and Outcome, what its run came to.

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

PARTS = 12  # Widths are counted in the heads of BERT-base, unless a row has `of`.


def format_width(labels: Mapping[str, Any]) -> str:
    """Return the width of a row as text: "3/12", its label `m` of the heads `of` the
    whole model."""
    heads = labels.get("of", PARTS)
    return f"{labels['m']:g}/{heads if isfinite(heads) else PARTS:g}"


class Columns(Mapping[str, Any]):
    """A Columns is read like a dict of its `cells`, by the names of columns."""

    cells: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.cells[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.cells)

    def __len__(self) -> int:
        return len(self.cells)


class Row(Columns):
    """A Row is a line of a grid: the labels by which pages and claims know it, and its
    Spec.

    The labels are columns of tables: task, model, m (kept heads), of (heads of the whole, if not
    12), seed and
    others. A Spec without a seed takes the label `seed`."""

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
        """Return the label `seed`; a run that is made once for all seeds has none."""
        return self.labels.get("seed")

    def with_seed(self, seed: int) -> "Row":
        """Return the same line at another seed."""
        return Row(self.spec.with_seed(seed), **self.labels | {"seed": seed})

    def with_spec(self, spec: Spec, **labels: Any) -> "Row":
        """Return a line of another Spec with these labels and further ones."""
        return Row(spec, **self.labels | labels)

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in self.labels.items())})"


@dataclass(frozen=True, eq=False)
class Outcome(Columns):
    """An Outcome is a Row with the run that stands for it, or why there is none.

    Read like a dict it has the row's labels and Spec, then run, state and error, then
    the metrics of the run that no label hides."""

    row: Row
    run: Run | None
    state: str  # It is finished, running, failed, stopped, died or missing.
    error: str = ""  # It says in a line why there is no run, where somebody tried.

    @cached_property
    # pyrefly: ignore[bad-override]  It is computed when it is first asked for.
    def cells(self) -> dict[str, Any]:
        """Return the columns of a table, whose order is that in which they are
        named."""
        values = dict(self.row) | {
            "run": self.run,
            "state": self.state,
            "error": self.error,
        }
        metrics = self.run.metrics if self.run else {}
        return values | metrics | values
