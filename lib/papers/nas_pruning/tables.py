"""This module makes parts of the tables of the pages on NAS pruning. It is free of
torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from lib.core.rows import Row
from lib.papers import grids, published
from lib.papers.nas_pruning import recipes as nas
from lib.stats import compare
from lib.stats.compare import Column

if TYPE_CHECKING:
    import pandas as pd

    from lib.report.artefact import Page
    from lib.report.tables import Runs

# Models of Tables 6 to 8.
TESTED = (
    "TinyBERT-4L",
    "TinyBERT-6L",
    "BERT-base",
)


def make_rows(
    profile: str,
    models: Sequence[str],
    tasks: Sequence[str],
    seeds: Sequence[int],
    ratios: Sequence[float],
) -> list[Row]:
    """Return the rows of the grid of one of Tables 6 to 9.

    They are the scores of two models, and of the second one at other `ratios` of the
    FLOPs. BERT-Mini is left out at mini, which has no model of that size."""
    base, others = (
        models[1].removeprefix("30 % "),
        ratios and nas.select_reachable_ratios(profile, ratios),
    )
    models = list(
        dict.fromkeys([*models, *(nas.format_label(ratio, base) for ratio in others)])
    )
    models = [m for m in models if (m, str(profile)) != ("BERT-Mini", "mini")]
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
        for task, model, seed in product(tasks, models, seeds)
    ]


def make_table_of_search_ends(
    frame: pd.DataFrame, source_title: str
) -> dict[Any, dict[tuple[str, str], str]]:
    """Return the ends of searches and random draws, in the form of a page's table.

    The columns are the share of the FLOPs before and after the final trim, and the
    number of trimmed gates."""
    shares: Any = 100 * frame.filter(["before_trim", "ratio"])
    frame = frame.assign(**shares)
    columns = {
        "before trim, %": "before_trim",
        "FLOPs, %": "ratio",
        "gates trimmed": "trimmed",
    }
    return {
        model: {
            (source_title, name): compare.spread_text(part[key]) if key in part else "–"
            for name, key in columns.items()
        }
        for model, part in frame.groupby("model", sort=False)
    }


def make_measured_tables(
    runs: Runs, search_runs: Runs, columns: Sequence[Column] = nas.COLUMNS
) -> list[dict[Any, dict[tuple[str, str], str]]]:
    """Return parts of a table: scores of networks, and the ends of their searches."""
    frames = [
        (search_runs.find_frame(scale), source)
        for source, _, scale in runs.frames_by_source
    ]
    return [
        *runs.tabulate_scores_by_task(columns),
        *(make_table_of_search_ends(*pair) for pair in frames if len(pair[0])),
    ]


def show_scores(
    page: Page,
    runs: Runs,
    search_runs: Runs,
    printed_scores: Mapping[str, Mapping[tuple[str, str], Any]] | tuple[()] = (),
    caption: str | None = None,
) -> None:
    """Show a table of the scores of networks (`make_measured_tables`) beside printed
    scores.

    printed_scores: {row: {column: value}}."""
    caption = caption or runs.make_caption(
        ending="; share of the FLOPs before and after the final trim"
    )
    page.table(
        compare.join_tables(
            dict(printed_scores), *make_measured_tables(runs, search_runs)
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
    """Draw the score of the model `baseline_model` minus that of each other model.

    gain_label: the same in words, with the unit."""
    page.forest(
        runs.estimate_gaps_to_rivals(baseline_model, columns),
        label=gain_label,
        name="gains",
    )


def show_table_of_tests(
    page: Page, table_name: str, models: Sequence[str], runs: Runs, search_runs: Runs
) -> None:
    """Show one of Tables 6 to 9, its corrections, and a figure of the network's loss.

    At a small profile several models share one encoder, and so their runs. Then only
    the page of the first of them has the figure.

    models: the names of a whole model and of its network of 30 %."""
    whole_model, network, change = published.make_table_rows(
        "nas_pruning", table_name, "Models"
    ).values()
    printed = {models[0]: whole_model, models[1]: network, "change in %": change}
    more = ", share of the FLOPs before and after the trim"
    show_scores(page, runs, search_runs, printed, runs.make_caption("test", more))
    page.note(published.list_corrections("nas_pruning", table_name.split("_")[0]))
    same = list_models_with_equal_runs(str(page.scope), models[0])
    encoder = grids.name_encoder(str(page.scope))
    place = f"{encoder} in the place of {models[0]}" if same else models[0]
    others = " and ".join(m for m in same if m != models[0])
    text = f"{encoder} takes the place of {others} too, so its runs count once."
    page.note([f"{text[:1].upper()}{text[1:]}"] * bool(same))
    lost = {}
    for task in nas.TEST["paper"]:
        gaps = [whole_model[c] - network[c] for c in network if c[1].startswith(task)]
        lost[f"{models[1]}, {task}"] = np.nanmean(gaps)
    # A network that is cut out of another encoder is called by that one.
    share = models[1].partition(" %")[0]
    cut = f"{encoder} cut to {share} % of its FLOPs" if same else models[1]
    estimates = {
        (source, row.replace(models[1], cut)): gap
        for (source, row), gap in runs.estimate_gaps_to_rivals(
            models[0], nas.COLUMNS
        ).items()
    }
    lost = {row.replace(models[1], cut): loss for row, loss in lost.items()}
    page.note(["A printed loss, a diamond, is of test scores."] * bool(estimates))
    label = f"{place} minus another network"
    if models[0] in same[:1] or not same:
        page.forest(estimates, lost, f"{label} (points)", "gains")
    else:
        page.note_differences(estimates, label)


def list_models_with_equal_runs(profile: str, model: str) -> list[str]:
    """Return the models of Tables 6 to 8 that share a model's runs at a profile.

    They are in order. The list is empty where the model has runs of its own."""
    if model not in TESTED:  # BERT-Mini is left out at mini.
        return []
    task, *_ = nas.tasks(profile, (), by_profile=nas.TEST)
    spec = nas.model_spec(profile, task, model)
    same = [m for m in TESTED if nas.model_spec(profile, task, m) == spec]
    return same if len(same) > 1 else []


def transpose_table(
    table: str, rename_model: Callable[[str], str]
) -> dict[str, dict[tuple[str, str], Any]]:
    """Return a printed table whose columns are models, with a row for each model.

    rename_model: a function from the printed name of a model to its name on the
    page."""
    rows = published.read_rows("nas_pruning", table)
    return {
        rename_model(model): {
            ("published", f"{row['Task']} {row['Metric']}"): row[model] for row in rows
        }
        for model in list(rows[0])[2:]
        if "change" not in model
    }


def make_search_curves(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the course of searches, one line for each step.

    Its columns are the model, the seed, the step as a share of all steps, the target
    and the actual ratio of the FLOPs, and the numbers of gates that were switched off
    and on up to that step."""
    import pandas as pd

    names = ["model", "seed", "step", "target", "actual", "off", "on"]
    parts = [pd.DataFrame(columns=names)]
    made: Any = compare.select_rows_with_runs(frame).itertuples()
    for row in made:
        target, actual, off, on = row.run.read_arrays("search")["curve"].astype(float).T
        step = np.linspace(0, 1, len(target))
        columns = row.model, row.seed, step, target, actual, off.cumsum(), on.cumsum()
        parts.append(pd.DataFrame(dict(zip(names, columns, strict=True))))
    return pd.concat(parts[1:] or parts)
