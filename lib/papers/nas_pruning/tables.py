"""This module makes tables and figures that several pages on NAS pruning share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from lib.core.rows import Row
from lib.core.types import ModelName, ProfileName, Seed, TaskName
from lib.papers import grids, published
from lib.papers.nas_pruning import recipes as nas
from lib.stats import compare
from lib.stats.compare import MetricColumn, ScoreTable

if TYPE_CHECKING:
    import pandas as pd

    from lib.report.artefact import Page
    from lib.report.tables import Runs

    RunsAndSearchRuns = tuple[Runs, Runs]

# Models that Tables 6, 7 and 8 prune, in this order.
TESTED = (
    "TinyBERT-4L",
    "TinyBERT-6L",
    "BERT-base",
)


def make_pruned_model_rows(
    profile: ProfileName,
    model_labels: Sequence[str],
    tasks: Sequence[TaskName],
    seeds: Sequence[Seed],
    flops_ratios: Sequence[float],
) -> list[Row]:
    """Return the Rows of one table that compares a whole model with pruned ones.

    A Row is a Spec (the description of a run) with labels such as task, model and seed.
    There is one for each task, model and seed (Tables 6 to 9 of the report on pruning
    by differentiable NAS). The report's small encoder BERT-Mini has no counterpart in
    experiments of the size "mini", so it is left out there.

    profile: size of the experiment, one of "toy", "mini" and "paper".
    model_labels: a whole model and a pruned one, such as "BERT-base" and "30 %
    BERT-base", or in Table 9 "BERT-Mini" and "30 % TinyBERT-4L".
    tasks, seeds: empty for those of the profile.
    flops_ratios: further shares of the FLOPs, 0 to 1, to which the model named in the
    second label is pruned; shares that no search can reach are left out."""
    base = model_labels[1].removeprefix("30 % ")
    others = flops_ratios and nas.select_reachable_flops_ratios(profile, flops_ratios)
    others = [nas.format_pruned_model_label(ratio, base) for ratio in others]
    model_labels = [
        label
        for label in dict.fromkeys([*model_labels, *others])
        if (label, str(profile)) != ("BERT-Mini", "mini")
    ]
    tasks = nas.tasks(profile, tasks, tasks_by_profile=nas.TEST)
    seeds = nas.seeds(profile, seeds)
    return [
        Row(
            nas.table_6_to_9_model_spec(profile, task, model),
            kind="score",
            task=task,
            model=model,
            seed=seed,
        )
        for task, model, seed in product(tasks, model_labels, seeds)
    ]


def tabulate_search_results(
    runs_frame: pd.DataFrame, column_group_heading: str
) -> ScoreTable:
    """Return {model: {(source, column): text}}, a table of how pruning searches ended.

    Its columns are the share of the FLOPs in per cent before and after the final
    correction to the target, and the number of gates (masks on heads and neurons) that
    this correction switched, each as mean and standard deviation over the runs of a
    model. A random draw has no such correction, so its cells for it are dashes.

    runs_frame: a line for each search or random draw, with its metrics.
    column_group_heading: the heading above the columns, such as that of a size of
    experiment."""
    shares: Any = 100 * runs_frame.filter(["before_trim", "ratio"])
    runs_frame = runs_frame.assign(**shares)
    columns = {
        "before trim, %": "before_trim",
        "FLOPs, %": "ratio",
        "gates trimmed": "trimmed",
    }
    return {
        model: {
            (column_group_heading, name): compare.format_mean_and_deviation(part[key])
            if key in part
            else "–"
            for name, key in columns.items()
        }
        for model, part in runs_frame.groupby("model", sort=False)
    }


def list_measured_score_tables(
    retrained_runs: Runs,
    search_runs: Runs,
    columns: Sequence[MetricColumn] = nas.COLUMNS,
) -> list[ScoreTable]:
    """Return tables of the scores of pruned networks and of how their searches ended.

    Each is {model: {(source of the numbers, column): text}}. They are joined by model
    to one table of a report page, beside the printed scores.

    retrained_runs: results of the pruned networks.
    search_runs: results of the searches that gave these networks.
    columns: the metrics that are shown."""
    tables = retrained_runs.tabulate_scores_by_task(columns)
    for source, _, scale in retrained_runs.result_frames_with_source:
        frame = search_runs.find_result_frame(scale)
        if len(frame):
            tables.append(tabulate_search_results(frame, source))
    return tables


def show_score_table(
    page: Page,
    runs: Runs,
    search_runs: Runs,
    printed_scores: ScoreTable | None = None,
    caption: str | None = None,
) -> None:
    """Add a table of measured and printed scores of pruned networks to a report page.

    Further columns say how the searches that gave the networks ended, such as their
    share of the FLOPs.

    page: the page that is being made.
    runs, search_runs: results of the pruned networks, and of the searches.
    printed_scores: {model: {("published", column): value}}; None for none.
    caption: caption of the table; None makes one that names the examples that are
    scored."""
    caption = caption or runs.make_score_table_caption(
        closing_text="; share of the FLOPs before and after the final trim"
    )
    page.show_table(
        compare.join_tables_by_row(
            printed_scores or {}, *list_measured_score_tables(runs, search_runs)
        ),
        caption,
    )


def show_gains_forest_plot(
    page: Page,
    runs: Runs,
    model_name: str,
    axis_label: str,
) -> None:
    """Draw on a report page how much higher one model scores than each other model.

    The figure is a forest plot with 95 % intervals.

    page: the page that is being made.
    runs: results of all models that are compared.
    model_name: the model from which the others are subtracted.
    axis_label: label of the axis, with the unit."""
    page.show_forest_plot(
        runs.estimate_differences_at_equal_width(model_name, nas.COLUMNS),
        axis_label=axis_label,
        file_suffix="gains",
    )


def show_test_score_table(
    page: Page,
    published_table_name: str,
    model_labels: Sequence[str],
    runs: Runs,
    search_runs: Runs,
) -> None:
    """Show on a report page a printed table of test scores, beside measured scores.

    It is one of Tables 6 to 9 of the report on pruning by differentiable NAS. The page
    also gets remarks on printed numbers that need a correction, and a figure of the
    points by which the first model is above others, such as the pruned one. In a small
    experiment several tables share their runs. Then only the first of these tables gets
    the figure; beside the others, sentences say what it shows.

    page: the page that is being made.
    published_table_name: name of the file with the printed table, without suffix.
    model_labels: names of a whole model and of a pruned one.
    runs, search_runs: results of the models, and of the searches."""
    whole_model, pruned_model = model_labels
    whole_scores, pruned_scores, change = published.make_printed_score_table(
        "nas_pruning", published_table_name, "Models"
    ).values()
    printed = {
        whole_model: whole_scores,
        pruned_model: pruned_scores,
        "change in %": change,
    }
    more = ", share of the FLOPs before and after the trim"
    show_score_table(
        page, runs, search_runs, printed, runs.make_score_table_caption("test", more)
    )
    page.show_remarks(
        published.list_transcription_corrections(
            "nas_pruning", published_table_name.split("_")[0]
        )
    )
    same = list_models_of_same_encoder(str(page.profile), whole_model)
    encoder = grids.get_encoder_display_name(str(page.profile))
    # Where a small encoder stands for the paper's model, the figure names the encoder
    # that was really cut.
    place, cut = whole_model, pruned_model
    if same:
        place = f"{encoder} in the place of {whole_model}"
        cut = f"{encoder} cut to {pruned_model.partition(' %')[0]} % of its FLOPs"
        others = " and ".join(m for m in same if m != whole_model)
        text = f"{encoder} takes the place of {others} too, so its runs count once."
        page.show_remarks([f"{text[:1].upper()}{text[1:]}"])
    lost = {}
    for task in nas.TEST["paper"]:
        gaps = [
            whole_scores[c] - pruned_scores[c]
            for c in pruned_scores
            if c[1].startswith(task)
        ]
        lost[f"{cut}, {task}"] = np.nanmean(gaps)
    estimates = {
        (source, row.replace(pruned_model, cut)): gap
        for (source, row), gap in runs.estimate_differences_at_equal_width(
            whole_model, nas.COLUMNS
        ).items()
    }
    label = f"{place} minus another network"
    if whole_model in same[:1] or not same:
        if estimates:
            page.show_remarks(["A printed loss, a diamond, is of test scores."])
        page.show_forest_plot(estimates, lost, f"{label} (points)", "gains")
    else:
        page.store_difference_sentences(estimates, label)


def list_models_of_same_encoder(
    profile: ProfileName, model: ModelName
) -> list[ModelName]:
    """Return the models of Tables 6 to 8 that have the same runs as a given model.

    The tables are those of the report on pruning by differentiable NAS. In a small
    experiment one encoder takes the place of several models, and its runs must not
    count twice. The result includes `model` itself; it is empty where no other model
    has the same runs.

    profile: size of the experiment, one of "toy", "mini" and "paper".
    model: name of a whole model, such as "BERT-base"."""
    if model not in TESTED:  # Only BERT-Mini, which shares runs with no other model.
        return []
    task, *_ = nas.tasks(profile, (), tasks_by_profile=nas.TEST)
    spec = nas.table_6_to_9_model_spec(profile, task, model)
    same = [m for m in TESTED if nas.table_6_to_9_model_spec(profile, task, m) == spec]
    return same if len(same) > 1 else []


def read_printed_scores_by_model(
    published_table_name: str, rename_model: Callable[[str], str]
) -> ScoreTable:
    """Return a printed table, transposed so that each model has a row.

    The result is {model: {("published", "task metric"): value}}, ready to be joined
    with measured scores. Columns of changes in per cent are left out.

    published_table_name: name of the file with the printed table, without suffix.
    rename_model: f(printed name of a model) -> its name on the page."""
    rows = published.read_printed_rows("nas_pruning", published_table_name)
    return {
        rename_model(model): {
            ("published", f"{row['Task']} {row['Metric']}"): row[model] for row in rows
        }
        for model in list(rows[0])[2:]
        if "change" not in model
    }


def make_flops_share_curves(runs_frame: pd.DataFrame) -> pd.DataFrame:
    """Return how pruning searches approached their targets, step by step.

    The DataFrame has a line for each training step. Its columns are model, task, seed,
    "step" (0 is the first and 1 the last step of the search), "target" and "actual"
    (shares of the whole model's FLOPs, 0 to 1), and "off" and "on" (numbers of gates,
    masks on heads and neurons, that switched so far). A figure draws them.

    runs_frame: a line for each search; the column `run` has the finished run."""
    import pandas as pd

    names = ["model", "task", "seed", "step", "target", "actual", "off", "on"]
    parts = [pd.DataFrame(columns=names)]
    made: Any = compare.select_rows_with_runs(runs_frame).itertuples()
    for row in made:
        target, actual, off, on = row.run.read_arrays("search")["curve"].astype(float).T
        step = np.linspace(0, 1, len(target))
        places = row.model, row.task, row.seed, step
        columns = *places, target, actual, off.cumsum(), on.cumsum()
        parts.append(pd.DataFrame(dict(zip(names, columns, strict=True))))
    return pd.concat(parts[1:] or parts)


def collect_runs_and_searches(
    page: Page, grid: Callable[..., list[Row]]
) -> RunsAndSearchRuns:
    """Return the results of a page's pruned networks, and of the searches that gave
    them.

    page: the page that is being made.
    grid: f(profile, parameters of the notebook) -> Rows of the networks."""
    searches = grids.list_architecture_searches_of_models
    return page.collect_runs(grid), page.collect_runs(grid, transform_rows=searches)
