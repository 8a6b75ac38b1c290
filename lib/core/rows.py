"""This module has Row, one experiment of a table of experiments (a "grid"), and
ExperimentOutcome, a Row with its finished run.

    Row(ghostbert.table_model_spec(profile, task, m, "Ghost"), task=task, m=m,
    model="Ghost", seed=seed)

Both are read like a dict, so a table is `pandas.DataFrame(map(dict, rows))`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, Literal, TypeAlias

from lib.core.spec import Spec
from lib.core.store import Run

# One experiment as a line of a table of results: {column: value}. The columns are its
# labels (such as model and seed), "spec", "run", "state", "error" and the metrics of
# the run.
ResultRow: TypeAlias = Mapping[str, Any]
# Number of attention heads in each layer of BERT-base. A model that keeps m of them has
# the width m/12. Where a layer of the unpruned model has another number of heads, the
# label `of` of the experiment's Row gives it.
PARTS = 12


def format_kept_head_fraction(row_labels: Mapping[str, Any]) -> str:
    """Return the width of a pruned model as text for tables, such as "3/12".

    The width is the number of heads that each layer keeps, of all its heads.

    row_labels: {"m": kept heads, "of": all heads}. Where "of" is missing,
    or NaN as pandas fills it, all heads are 12, as in BERT-base."""
    heads = row_labels.get("of", PARTS)
    return f"{row_labels['m']:g}/{heads if isfinite(heads) else PARTS:g}"


class Columns(Mapping[str, Any]):
    """Columns is the base class of lines of a table, read like a dict {column: value}.

    So a DataFrame is made of such lines by `pandas.DataFrame(map(dict, lines))`. A
    subclass defines `value_by_column`, the dict with the values. The mapping is
    read-only."""

    value_by_column: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.value_by_column[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.value_by_column)

    def __len__(self) -> int:
        return len(self.value_by_column)


class Row(Columns):
    """A Row is one planned experiment of a table, with labels by which it is selected.

        Row(spec, task="SST-2", model="Ghost", m=3, seed=0)

    Read like a dict, it has the labels and "spec". Tables and comparisons select Rows
    by their labels, and show them as columns. The label m is the number of heads that a
    pruned model keeps, and `of` the number before pruning if it is not 12.

    spec: the description of the run (training or measurement) that gives the result. A
    Spec without a seed gets that of the label `seed`."""

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
        """Return the label `seed` of this experiment.

        It is None where one result serves for all seeds, such as a count of FLOPs."""
        return self.labels.get("seed")

    def with_seed(self, seed: int) -> "Row":
        """Return this experiment at another seed, to plan a replicate.

        The new Row has the seed in its labels and in its Spec, the description of its
        run."""
        return Row(self.spec.with_seed(seed), **self.labels | {"seed": seed})

    def with_spec(self, spec: Spec, **extra_labels: Any) -> "Row":
        """Return a copy of this experiment with another Spec, the description of a run.

        So a table can show the result of another run under the same labels.

        extra_labels: labels that are added to those of this Row, or replace them."""
        return Row(spec, **self.labels | extra_labels)

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in self.labels.items())})"


@dataclass(frozen=True, eq=False)
class ExperimentOutcome(Columns):
    """An ExperimentOutcome is a planned experiment (Row) with its result, or why it has
    none.

    Tables and comparisons are made of these. Read like a dict, an ExperimentOutcome
    has the labels of the Row, "spec", "run", "state" and "error", and then the metrics
    of the run. A metric that has the name of one of these entries is left out.

    run: the stored result of the training or measurement, or None.
    state: "finished", "running", "failed", "stopped", "died" (its process was killed)
    or "missing" (no attempt).
    error: why there is no run, in one line: the error of the last attempt at this run,
    or at a run that it needs as input; "" where none is known."""

    row: Row
    run: Run | None
    state: Literal["finished", "running", "failed", "stopped", "died", "missing"]
    error: str = ""

    @cached_property
    # pyrefly: ignore[bad-override]  The base class has a field here, not a property.
    def value_by_column(self) -> dict[str, Any]:
        """Return {column: value} of this experiment, as a line of a table of results.

        First come the labels of the Row and "spec", then "run", "state" and "error",
        then the metrics of the run, if it is finished. A metric never replaces an entry
        before it."""
        values = dict(self.row) | {
            "run": self.run,
            "state": self.state,
            "error": self.error,
        }
        metrics = self.run.metrics if self.run else {}
        return values | metrics | values
