"""This module makes tables and figures that several pages on NAS pruning share. It does
not import torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from lib.core.rows import Row
from lib.papers import grids, published
from lib.papers.nas_pruning import recipes as nas
from lib.stats import compare
from lib.stats.compare import Column, ScoreTable

if TYPE_CHECKING:
    import pandas as pd

    from lib.report.artefact import Page
    from lib.report.tables import Runs

# Models that Tables 6 to 8 prune, one each.
TESTED = (
    "TinyBERT-4L",
    "TinyBERT-6L",
    "BERT-base",
)


def make_pruned_model_rows(
    profile: str,
    model_labels: Sequence[str],
    tasks: Sequence[str],
    seeds: Sequence[int],
    flops_ratios: Sequence[float],
) -> list[Row]:
    """Return the Rows, runs to make with their labels, of one of Tables 6 to 9.

    They are the scores of two models, one whole and one pruned such as "30 %
    BERT-base", and of the same model pruned to other shares of the FLOPs. BERT-Mini is
    left out at profile mini, which has no model of that size.

    model_labels: the names of the two.
    flops_ratios: the other shares."""
    base, others = (
        model_labels[1].removeprefix("30 % "),
        flops_ratios and nas.select_reachable_flops_ratios(profile, flops_ratios),
    )
    model_labels = list(
        dict.fromkeys(
            [
                *model_labels,
                *(nas.format_pruned_model_label(ratio, base) for ratio in others),
            ]
        )
    )
    model_labels = [
        m for m in model_labels if (m, str(profile)) != ("BERT-Mini", "mini")
    ]
    tasks, seeds = (
        nas.tasks(profile, tasks, by_profile=nas.TEST),
        nas.seeds(profile, seeds),
    )
    return [
        Row(
            nas.model_spec(profile, task, model),
            kind="score",
            task=task,
            model=model,
            seed=seed,
        )
        for task, model, seed in product(tasks, model_labels, seeds)
    ]


def tabulate_search_results(runs_frame: pd.DataFrame, source_name: str) -> ScoreTable:
    """Return {model: {(source, column): text}} on how searches ended: the share of the
    FLOPs before and after the final correction to the target, and the number of gates
    that it switched.

    runs_frame: a DataFrame with a row for each search or random draw.
    source_name: the heading of the columns, which names the profile."""
    shares: Any = 100 * runs_frame.filter(["before_trim", "ratio"])
    runs_frame = runs_frame.assign(**shares)
    columns = {
        "before trim, %": "before_trim",
        "FLOPs, %": "ratio",
        "gates trimmed": "trimmed",
    }
    return {
        model: {
            (source_name, name): compare.format_mean_and_deviation(part[key])
            if key in part
            else "–"
            for name, key in columns.items()
        }
        for model, part in runs_frame.groupby("model", sort=False)
    }


def list_measured_score_tables(
    retrained_runs: Runs, search_runs: Runs, columns: Sequence[Column] = nas.COLUMNS
) -> list[ScoreTable]:
    """Return tables {row: {(source, column): value}} of the scores of pruned networks
    and of how their searches ended. They become one table of a page.

    search_runs: the runs of the searches.
    columns: the metrics that are shown."""
    frames = [
        (search_runs.find_frame(scale), source)
        for source, _, scale in retrained_runs.source_frames
    ]
    return [
        *retrained_runs.tabulate_scores_by_task(columns),
        *(tabulate_search_results(*pair) for pair in frames if len(pair[0])),
    ]


def show_scores(
    page: Page,
    runs: Runs,
    search_runs: Runs,
    printed_scores: ScoreTable | tuple[()] = (),
    caption: str | None = None,
) -> None:
    """Show a table of a page: scores of pruned networks, how their searches ended, and
    printed scores beside them.

    search_runs: the runs of the searches.
    printed_scores: {row: {("published", column): value}}."""
    caption = caption or runs.make_caption(
        closing_text="; share of the FLOPs before and after the final trim"
    )
    page.show_table(
        compare.join_tables_by_row(
            dict(printed_scores), *list_measured_score_tables(runs, search_runs)
        ),
        caption,
    )


def draw_gains(
    page: Page,
    runs: Runs,
    baseline_model: str,
    gain_label: str,
    columns: Sequence[Column] = nas.COLUMNS,
) -> None:
    """Draw on a page how much higher one model scores than each other model, with
    intervals.

    gain_label: the label of the axis, with the unit."""
    page.show_forest_plot(
        runs.estimate_differences_to_other_models(baseline_model, columns),
        axis_label=gain_label,
        name="gains",
    )


def show_test_score_table(
    page: Page,
    published_table_name: str,
    model_labels: Sequence[str],
    runs: Runs,
    search_runs: Runs,
) -> None:
    """Show one of Tables 6 to 9 on a page: scores of a whole and a pruned model,
    printed and ours, the corrections of the print, and a figure of the loss by pruning.

    At a small profile several of the tables prune the same encoder and so share their
    runs. Then only the page of the first one has the figure.

    published_table_name: the name of the file with the printed table.
    model_labels: the names of the whole model and of the pruned one."""
    whole_model, network, change = published.make_printed_score_table(
        "nas_pruning", published_table_name, "Models"
    ).values()
    printed = {
        model_labels[0]: whole_model,
        model_labels[1]: network,
        "change in %": change,
    }
    more = ", share of the FLOPs before and after the trim"
    show_scores(page, runs, search_runs, printed, runs.make_caption("test", more))
    page.show_remarks(
        published.list_transcription_corrections(
            "nas_pruning", published_table_name.split("_")[0]
        )
    )
    same = list_models_sharing_runs(str(page.reader_profile), model_labels[0])
    encoder = grids.get_encoder_name(str(page.reader_profile))
    place = f"{encoder} in the place of {model_labels[0]}" if same else model_labels[0]
    others = " and ".join(m for m in same if m != model_labels[0])
    text = f"{encoder} takes the place of {others} too, so its runs count once."
    page.show_remarks([f"{text[:1].upper()}{text[1:]}"] * bool(same))
    lost = {}
    for task in nas.TEST["paper"]:
        gaps = [whole_model[c] - network[c] for c in network if c[1].startswith(task)]
        lost[f"{model_labels[1]}, {task}"] = np.nanmean(gaps)
    # Where a small encoder stands for the paper's model, the figure names the encoder that
    # was really cut.
    share = model_labels[1].partition(" %")[0]
    cut = f"{encoder} cut to {share} % of its FLOPs" if same else model_labels[1]
    estimates = {
        (source, row.replace(model_labels[1], cut)): gap
        for (source, row), gap in runs.estimate_differences_to_other_models(
            model_labels[0], nas.COLUMNS
        ).items()
    }
    lost = {row.replace(model_labels[1], cut): loss for row, loss in lost.items()}
    page.show_remarks(
        ["A printed loss, a diamond, is of test scores."] * bool(estimates)
    )
    label = f"{place} minus another network"
    if model_labels[0] in same[:1] or not same:
        page.show_forest_plot(estimates, lost, f"{label} (points)", "gains")
    else:
        page.add_difference_sentences(estimates, label)


def list_models_sharing_runs(profile: str, model: str) -> list[str]:
    """Return those of the models in Tables 6 to 8 that have the same runs as a model at
    a profile, itself included; [] where no other has.

    A small profile has one encoder in the place of several models."""
    if model not in TESTED:  # BERT-Mini, which shares runs with no other model.
        return []
    task, *_ = nas.tasks(profile, (), by_profile=nas.TEST)
    spec = nas.model_spec(profile, task, model)
    same = [m for m in TESTED if nas.model_spec(profile, task, m) == spec]
    return same if len(same) > 1 else []


def read_transposed_table(
    published_table_name: str, rename_model: Callable[[str], str]
) -> ScoreTable:
    """Return a printed table, whose columns are models, with a row for each model:
    {model: {("published", column): value}}.

    published_table_name: the name of its file.
    rename_model: f(printed name of a model) -> its name on the page."""
    rows = published.read_rows("nas_pruning", published_table_name)
    return {
        rename_model(model): {
            ("published", f"{row['Task']} {row['Metric']}"): row[model] for row in rows
        }
        for model in list(rows[0])[2:]
        if "change" not in model
    }


def make_flops_share_curves(runs_frame: pd.DataFrame) -> pd.DataFrame:
    """Return how searches went, as a DataFrame with a line for each step.

    Its columns are model, seed, "step" (as a share of all steps), "target" and "actual"
    (shares of the whole FLOPs), and "off" and "on" (numbers of gates switched so far).

    runs_frame: a DataFrame with a row for each search."""
    import pandas as pd

    names = ["model", "seed", "step", "target", "actual", "off", "on"]
    parts = [pd.DataFrame(columns=names)]
    made: Any = compare.select_rows_with_runs(runs_frame).itertuples()
    for row in made:
        target, actual, off, on = row.run.read_arrays("search")["curve"].astype(float).T
        step = np.linspace(0, 1, len(target))
        columns = row.model, row.seed, step, target, actual, off.cumsum(), on.cumsum()
        parts.append(pd.DataFrame(dict(zip(names, columns, strict=True))))
    return pd.concat(parts[1:] or parts)
