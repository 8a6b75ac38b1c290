"""This module has Row, one experiment of a table of experiments (a "grid"), and
Outcome, a Row with its finished run.

    Row(ghostbert.named_model_spec(profile, task, m, "Ghost"), task=task, m=m,
    model="Ghost", seed=seed)

Both are read like a dict, so a table is `pandas.DataFrame(map(dict, rows))`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, TypeAlias

from lib.core.spec import Spec
from lib.core.store import Run

# A row of results: labels, Spec, run, state and metrics, as in dict(Outcome).
ResultRow: TypeAlias = Mapping[str, Any]
# Heads of BERT-base. A pruned model that keeps m heads has the width m/12, unless its
# Row has another number of heads as the label `of`.
PARTS = 12


def format_model_width(row_labels: Mapping[str, Any]) -> str:
    """Return the width of a pruned model as text for tables, such as "3/12": kept heads
    of all heads.

    row_labels: {"m": kept heads, "of": all heads}; 12 where "of" is missing or
    infinite."""
    heads = row_labels.get("of", PARTS)
    return f"{row_labels['m']:g}/{heads if isfinite(heads) else PARTS:g}"


class Columns(Mapping[str, Any]):
    """A Columns is a line of a table as a read-only mapping {column: value}; subclasses
    define `value_by_column`, the dict with the values."""

    value_by_column: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.value_by_column[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.value_by_column)

    def __len__(self) -> int:
        return len(self.value_by_column)


class Row(Columns):
    """A Row is one experiment of a table: a Spec (the description of a run), and labels
    by which tables and comparisons select the Row.

    The labels become columns of tables: task, model, m (kept heads), of (heads of the
    unpruned model, if not 12), seed and others. A Spec without a seed gets that of the
    label `seed`."""

    def __init__(self, spec: Spec, /, **labels: Any) -> None:
        seed = labels.get("seed")
        self.spec = (
            spec.with_seed(seed) if spec.seed is None and seed is not None else spec
        )
        self.labels = labels
        self.value_by_column = labels | {"spec": self.spec}

    @property
    def task(self) -> str | None:
        return self.labels.get("task")

    @property
    def seed(self) -> int | None:
        """Return the label `seed`, or None where one run stands for all seeds, as for a
        count of FLOPs."""
        return self.labels.get("seed")

    def with_seed(self, seed: int) -> "Row":
        """Return this experiment at another seed: a copy of the Row and of its Spec
        (the description of its run)."""
        return Row(self.spec.with_seed(seed), **self.labels | {"seed": seed})

    def with_spec(self, spec: Spec, **extra_labels: Any) -> "Row":
        """Return a Row with another Spec (description of a run), and with
        `extra_labels` added to the labels of this one."""
        return Row(spec, **self.labels | extra_labels)

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in self.labels.items())})"


@dataclass(frozen=True, eq=False)
class Outcome(Columns):
    """An Outcome is a Row (an experiment) with its finished run, or with the reason why
    there is none.

    Read like a dict it has the row's labels and Spec, then run, state and error, then
    the metrics of the run. Where a metric has the name of a label, the label counts."""

    row: Row
    run: Run | None
    state: str  # "finished", "running", "failed", "stopped", "died" or "missing".
    # Error of the last attempt in one line; "" where there was no attempt.
    error: str = ""

    @cached_property
    # pyrefly: ignore[bad-override]  The base class has a field here, not a property.
    def value_by_column(self) -> dict[str, Any]:
        """Return {column: value}: the Row's labels and Spec (description of the
        run), run, state, error, then the metrics of the run."""
        values = dict(self.row) | {
            "run": self.run,
            "state": self.state,
            "error": self.error,
        }
        metrics = self.run.metrics if self.run else {}
        return values | metrics | values
