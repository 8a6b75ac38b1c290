"""This module opens a finished run: its model, tokenizer, predictions and development
rows (`lib.load`).

torch is imported only when a model is read, because it is slow to import and
predictions do not need it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import softmax

from lib import data
from lib.claims import notebook
from lib.core import disk
from lib.core.names import Absent, Refused
from lib.core.spec import Spec, make_spec_from_json
from lib.core.steps import STEPS
from lib.core.store import Run, Store, read_run_status
from lib.core.types import ProfileName
from lib.data import DataDescriptor, Task

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


def find_task_of_run(
    run: Run, data_descriptor: DataDescriptor | None = None
) -> Task | None:
    """Return the Task (classes and metrics of a data set) that a run was trained on.

    It is None for a run on no task, such as pre-training, and for a run on several.
    Classes of a user's data are read from the files, so Refused is raised where these
    have changed since the run: a model's outputs would get wrong names.

    data_descriptor: the dict that says where the same data lie now; None for where the
    run read them."""
    described = data_descriptor or run.spec["args"].get("data", {})
    if "task" not in described:
        return None
    if described["source"] == "own":
        digest = data.digest_task_rows("own", described["task"])
        data.check_digest(described["task"], digest, described["digest"])
    return data.find_task_of_descriptor(described)


@dataclass(frozen=True)
class OpenedRun:
    """An OpenedRun gives the model, tokenizer and predictions of a finished run.

    It is what `lib.load` returns to a user who looks at a finished training. `rows` has
    the texts of the development rows, and `task` the classes and metrics. An attribute
    is read only when it is used, so predictions can be seen without loading a model.

    run: the stored result of the training, with its metrics.
    data_descriptor: the dict that says where its data lie now, if a user moved them
    since; None for where the run read them."""

    run: Run
    data_descriptor: DataDescriptor | None = None

    @cached_property
    def _model_and_tokenizer(self) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
        from lib.model import backbone

        return backbone.load(find_run_with_weights(self.run).model_folder)

    @property
    def model(self) -> PreTrainedModel:
        """Return the trained model in float32 and eval mode.

        Raises Absent where its weights were not saved."""
        return self._model_and_tokenizer[0]

    @property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        return self._model_and_tokenizer[1]

    @property
    def task(self) -> Task | None:
        """Return the Task (classes and metrics of a data set) of this training.

        It is None for a training on no task, such as pre-training, and for one on
        several."""
        return find_task_of_run(self.run, self.data_descriptor)

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """Return the model's predictions on the development rows, a line for each row.

        For a classifier the columns are `label`, `said` (the predicted class), `right`
        (whether they are equal) and `confidence` (the probability of the predicted
        class). For a regression they are `label` and `said` (the predicted score), on
        the scale of the task's data. The index is the number of the row in its data
        set. For answer spans this number is the column `index`; `labels` and `spans`
        are the true and the predicted answer (start and end in characters), `exact` and
        `span_f1` its match and F1, and `null` is the score of no answer minus that of
        the span. Raises FileNotFoundError where no predictions were saved."""
        arrays = self.run.read_arrays("predictions")
        if "logits" not in arrays:
            return pd.DataFrame({name: list(values) for name, values in arrays.items()})
        labels, logits = arrays["labels"], arrays["logits"].astype(float)
        task, index = self.task, pd.Index(arrays["index"], name="row")
        assert task  # Only runs on a single task save logits, so the task is known.
        if not task.labels:
            low, high = task.scale
            scores = pd.DataFrame({"label": labels, "said": logits[:, 0]}, index)
            return low + scores * (high - low) / 5
        said, names = logits.argmax(1), np.array(task.labels)
        columns = {"label": names[labels], "said": names[said], "right": said == labels}
        columns["confidence"] = softmax(logits, 1).max(1)
        return pd.DataFrame(columns, index)

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Return the texts of the development rows, a line for each row.

        The columns are `text` and, for pairs, `second text`. The index is the number of
        the row in its data set, as in `predictions`. Raises FileNotFoundError where the
        data set is not on this machine."""
        described = self.data_descriptor or self.run.spec["args"]["data"]
        splits = data.load(described, self.run.spec["seed"])
        split = next(rows for name, rows in splits.items() if name.startswith("dev"))
        texts = {"text": split.a} | ({"second text": split.b} if split.b else {})
        return pd.DataFrame(texts, pd.Index(split.index, name="row"))


# Matches the short names of a run: its digest, or its digest, "/" and its seed. Names
# of notebooks do not match.
DIGEST = re.compile(r"[0-9a-f]{6,}(/\d+)?")


def open_finished_run(
    run_or_notebook_name: str,
    profile: ProfileName = "toy",
    remake_if_weights_missing: bool = False,
    **row_labels: Any,
) -> OpenedRun:
    """Open a finished run (training or measurement) with its model and predictions.

        found = lib.load("ghostbert_t03", m=3, model="Ghost", task="CoLA", seed=0)
        found.model, found.tokenizer, found.predictions, found.rows

    The run is named directly, or by a notebook and the labels of one of the runs that
    it compares. Raises Refused where no run or several fit, and Absent for a run that
    was not made.

    run_or_notebook_name: a part of a notebook's name, or a part of a run's name that no
    other run has. A text with "-", and a hexadecimal digest, are taken for the name of
    a run.
    profile: the size of the experiments, such as "toy" or "mini"; only for a notebook.
    remake_if_weights_missing: whether a missing run of a notebook, or a run without
    weights, is made (again) and its weights are kept.
    row_labels: labels of one run of the notebook, such as task and seed."""
    if "-" in run_or_notebook_name or DIGEST.fullmatch(run_or_notebook_name):
        run = find_run_by_name(run_or_notebook_name)
    else:
        spec = find_spec_by_labels(run_or_notebook_name, profile, row_labels)
        run = Store().find_run_with_state(spec)["run"]
        if not run and remake_if_weights_missing:
            run = execute_run_and_keep_weights(spec)
        if not run:
            command = f"python -m lib run {run_or_notebook_name} --profile {profile}"
            fix = f"`{command}`, or lib.load(..., keep=True)"
            raise Absent(f"{spec.name} is not made yet: {fix} makes it")
    return OpenedRun(
        find_run_with_weights(run, remake_if_weights_missing)
        if remake_if_weights_missing
        else run
    )


def find_spec_by_labels(
    notebook_id: str, profile: ProfileName, row_labels: dict[str, Any]
) -> Spec:
    """Return the one Spec in a notebook's list of runs that has the given labels.

    A Spec is the description of a run (training or measurement), by which its result is
    looked up or made. Raises Refused, with lines to choose from, where no Spec or
    several have the labels.

    notebook_id: the name of a notebook, such as "ghostbert_t03", or a part of it; the
    first notebook that fits is taken.
    profile: the size of the experiments, such as "toy" or "mini".
    row_labels: {label: value}, such as {"task": "SST-2", "seed": 0}."""
    path = notebook.find_notebooks([notebook_id])[0]
    rows = notebook.execute_grid_cell_and_list_rows_by_variable(
        path, {"profile": profile}
    ).get("grid", [])
    hits = [row for row in rows if all(row.get(c) == v for c, v in row_labels.items())]
    if len(specs := {row.spec for row in hits}) != 1:
        lines = [row.labels for row in (hits or rows)[:9]]
        reason = (
            f"{len(specs)} runs of {notebook.make_notebook_id(path)} have {row_labels}"
        )
        choice = f"choose a line such as {', '.join(map(str, lines))}"
        raise Refused(f"{reason}: {choice}")
    return specs.pop()


def find_run_by_name(name_part: str) -> Run:
    """Return the finished run (training or measurement) with the given name.

    Runs committed to git and runs of this machine are searched. Where a run is in both
    places, that of this machine is returned, because only it can have weights. A part
    of the name suffices if no other run's name has it. Raises Refused, with names to
    choose from, where no run or several fit, and with state and error of a run that has
    not finished.

    name_part: such as "finetune-0a1b2c3d4e5f/0" (kind of work, digest, seed), or a
    part."""
    runs = {run.name: run for run in Store().iterate_finished_runs()}
    hits = (
        [name_part]
        if name_part in runs
        else [other for other in runs if name_part in other]
    )
    if not hits:
        for folder in Store().list_unfinished_folders():
            name = f"{folder.parent.name}/{folder.stem}"
            if name_part in name:
                status = read_run_status(folder)
                error = status.get("traceback") or status.get("error") or "no error"
                raise Refused(f"{name} has not finished ({status['state']}): {error}")
    if len(hits) != 1:
        first = ", ".join((hits or list(runs))[:9])
        raise Refused(
            f"{name_part!r} is part of {len(hits)} runs: name one of {first}, ..."
        )
    return runs[hits[0]]


def find_run_with_weights(run: Run, execute_if_missing: bool = False) -> Run:
    """Return a finished run in a copy that has its weights, to open its model.

    A run committed to git has no weights. If such a run is given, the same run is
    looked up on this machine, or made again. Raises Refused for a run that makes no
    model, and Absent, with the command that makes the weights, where they are missing.

    execute_if_missing: whether the run is made again where its weights are missing. If
    not, Absent is raised."""
    if run.model_folder.exists() and not disk.describe_folder_damage(run.folder):
        return run
    spec = make_spec_from_json(run.spec)
    if not STEPS[spec.step].saves_weights:
        raise Refused(f"{run.name} makes no model: the step {spec.step} only measures")
    if here := Store().find_run(spec, needs_weights=True):
        return here
    if execute_if_missing:
        return execute_run_and_keep_weights(spec)
    why = "is a record, and records have" if run.origin == "record" else "kept"
    raise Absent(
        f"{run.name} {why} no weights: `python -m lib export {run.name} --keep`, or "
        "lib.load(..., keep=True), makes it again with them"
    )


def execute_run_and_keep_weights(spec: Spec) -> Run:
    """Execute the run that a Spec describes, keep its weights, and return the run.

    A Spec has the step, arguments, inputs and seed of a training. Inputs that are
    missing, such as the teacher, are made first. On a processor without bfloat16 the
    run is made in float32. Raises Refused, with the reason, where it fails."""
    from lib.cluster import sweep

    lost = sweep.execute_specs([spec], keep_weights=True)
    spec, run = Store().find_run_or_float32_run(spec, needs_weights=True)
    if lost:
        raise Refused(f"{spec.name} could not be made: {lost[spec]}")
    assert run
    return run
