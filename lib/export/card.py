"""This module writes the model card, the README.md of an exported model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from lib.core.spec import (
    Spec,
    find_transitive_input_specs,
    make_spec_from_json,
    remove_absolute_paths,
)
from lib.core.store import Run
from lib.data import Task, own
from lib.data.models import HUB
from lib.export.opened import find_task_of_run
from lib.report.tables import escape_markdown_line

if TYPE_CHECKING:
    from lib.core.types import MetricName
    from lib.export.writer import ExportReport


def make_model_card(run: Run, export_report: ExportReport) -> ModelCard:
    """Return the model card, the README.md of an exported model.

    It says how the model was made, its size and its scores, and how to open it.

    run: the training that made the model.
    export_report: what `lib.export.writer.export_model` returned. "forms" has, for the
    exported folder and perhaps for its ONNX file, the largest difference between their
    outputs and those of the saved model. "auto" is the Auto class that opens the
    folder, "remote" whether it needs `trust_remote_code`, and "parameters" the number
    of parameters."""
    spec, task = make_spec_from_json(run.spec), find_task_of_run(run)
    behind = find_transitive_input_specs([spec])
    names = sorted({run.args["name"] for run in behind if run.step == "checkpoint"})
    bases = [Path(name).name for name in names]
    return ModelCard.from_template(
        make_model_card_metadata(run, task, names),
        template_path=str(Path(__file__).with_name("card.md.j2")),
        title=escape_markdown_line(
            f"{format_run_task_title(run, task) if task else 'Encoder'}, {run.name}"
        ),
        classes=[escape_markdown_line(name) for name in task.labels] if task else [],
        remote=", trust_remote_code=True" * export_report["remote"],
        scores=select_scores_of_task(run, task),
        described=json.dumps(remove_absolute_paths(spec.args.get("data", {}))),
        method="\n".join(describe_provenance(spec)),
        **{"run": run, "exported": export_report, "task": task, "bases": bases},
    )


def format_run_task_title(run: Run, task: Task) -> str:
    """Return the name of the task of a run (training or measurement), for a model card.

    For a user's data it is the name of their file or folder, without the full path."""
    is_own = run.spec["args"]["data"]["source"] == "own"
    return own.format_user_task_title(task.name) if is_own else task.name


def make_model_card_metadata(
    run: Run, task: Task | None, checkpoint_names: list[str]
) -> ModelCardData:
    """Return the metadata that the Hugging Face hub reads at the top of a model card.

    The hub shows and finds models by it: library, kind of task (pipeline tag), base
    models and scores.

    run: the training that made the model.
    task: the task that it was trained on; None for an encoder without a task.
    checkpoint_names: the pre-trained checkpoints that the model descends from. Those
    that are not on the hub are left out."""
    kind = "feature-extraction"
    if task:
        kind = "question-answering" if task.span else "text-classification"
    scores = [
        EvalResult(
            kind,
            run.spec["args"]["data"]["source"],
            format_run_task_title(run, task),
            *score,
        )
        for score in select_scores_of_task(run, task).items()
        if task
    ]
    return ModelCardData(
        library_name="transformers",
        pipeline_tag=kind,
        tags=["model-compression"],
        base_model=[HUB[name] for name in checkpoint_names if name in HUB] or None,
        model_name=run.name,
        eval_results=scores or None,
    )


def describe_provenance(spec: Spec) -> Iterator[str]:
    """Yield a line of Markdown for each piece of work that led to a model.

    Such work is a training, a ranking of heads, a search and so on. A line has a
    number, the kind of work (such as "finetune"), the seed and the arguments as JSON:
    up to 400 characters, without full paths and the entries "data" and "numerics"
    (dtype, device). Earlier work, such as the teacher's training, comes before the work
    that uses it.

    spec: the description of the training that made the model. Its inputs are the
    descriptions of the earlier work."""
    behind = sorted(
        find_transitive_input_specs([spec]),
        key=lambda ancestor: len(find_transitive_input_specs([ancestor])),
    )
    for number, run_spec in enumerate([*behind, spec], 1):
        args = {
            name: v
            for name, v in run_spec.args.items()
            if name not in ("data", "numerics")
        }
        yield (
            f"{number}. `{run_spec.step}`, seed {run_spec.seed}: "
            f"`{json.dumps(remove_absolute_paths(args))[:400]}`"
        )


def select_scores_of_task(run: Run, task: Task | None) -> dict[MetricName, float]:
    """Return {metric: value} of a run (training or measurement), for model cards.

    Only metrics of its task are taken, such as "accuracy" on the development rows,
    "unseen.accuracy" on labelled rows that were never used to train or select, and
    "test.accuracy" on the test rows. Those that the run lacks are left out.

    task: the task of the run; None for a run on no task gives an empty dict."""
    metrics = task.metrics if task else ()
    names = [
        f"{rows}{metric}" for metric in metrics for rows in ("", "unseen.", "test.")
    ]
    return {name: run.metrics[name] for name in names if name in run.metrics}
