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


def rows(
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
        ratios and nas.reachable(profile, ratios),
    )
    models = list(
        dict.fromkeys([*models, *(nas.label(ratio, base) for ratio in others)])
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


def table_of_ends(
    frame: pd.DataFrame, source: str
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
            (source, name): compare.spread_text(part[key]) if key in part else "–"
            for name, key in columns.items()
        }
        for model, part in frame.groupby("model", sort=False)
    }


def measured(
    runs: Runs, searches: Runs, columns: Sequence[Column] = nas.COLUMNS
) -> list[dict[Any, dict[tuple[str, str], str]]]:
    """Return parts of a table: scores of networks, and the ends of their searches."""
    frames = [(searches.frame_of(scale), source) for source, _, scale in runs.frames]
    return [
        *runs.by_task(columns),
        *(table_of_ends(*pair) for pair in frames if len(pair[0])),
    ]


def show(
    page: Page,
    runs: Runs,
    searches: Runs,
    printed: Mapping[str, Mapping[tuple[str, str], Any]] | tuple[()] = (),
    caption: str | None = None,
) -> None:
    """Show a table of the scores of networks (`measured`) beside printed scores.

    printed: {row: {column: value}}."""
    caption = caption or runs.caption(
        more="; share of the FLOPs before and after the final trim"
    )
    page.table(compare.table(dict(printed), *measured(runs, searches)), caption)


def draw_gains(
    page: Page,
    runs: Runs,
    base: str,
    label: str,
    columns: Sequence[Column] = nas.COLUMNS,
) -> None:
    """Draw the score of the model `base` minus that of each other model.

    label: the same in words, with the unit."""
    page.forest(runs.differences_to_rivals(base, columns), label=label, name="gains")


def show_tested(
    page: Page, table: str, models: Sequence[str], runs: Runs, searches: Runs
) -> None:
    """Show one of Tables 6 to 9, its corrections, and a figure of the network's loss.

    At a small profile several models share one encoder, and so their runs. Then only
    the page of the first of them has the figure.

    models: the names of a whole model and of its network of 30 %."""
    whole_model, network, change = published.rows(
        "nas_pruning", table, "Models"
    ).values()
    printed = {models[0]: whole_model, models[1]: network, "change in %": change}
    more = ", share of the FLOPs before and after the trim"
    show(page, runs, searches, printed, runs.caption("test", more))
    page.note(published.corrections("nas_pruning", table.split("_")[0]))
    same = twins(str(page.scope), models[0])
    encoder = grids.name_encoder(str(page.scope))
    place = f"{encoder} in the place of {models[0]}" if same else models[0]
    others = " and ".join(m for m in same if m != models[0])
    text = f"{encoder} takes the place of {others} too, so its runs count once."
    page.note([f"{text[:1].upper()}{text[1:]}"] * bool(same))
    lost = {}
    for task in nas.TEST["paper"]:
        gaps = [whole_model[c] - network[c] for c in network if c[1].startswith(task)]
        lost[f"{models[1]}, {task}"] = np.nanmean(gaps)
    estimates, label = (
        runs.differences_to_rivals(models[0], nas.COLUMNS),
        f"{place} minus another",
    )
    if models[0] in same[:1] or not same:
        page.forest(estimates, lost, f"{label} (points)", "gains")
    else:
        page.note_differences(estimates, label)


def twins(profile: str, model: str) -> list[str]:
    """Return the models of Tables 6 to 8 that share a model's runs at a profile.

    They are in order. The list is empty where the model has runs of its own."""
    if model not in TESTED:  # BERT-Mini is left out at mini.
        return []
    task, *_ = nas.tasks(profile, (), by_profile=nas.TEST)
    spec = nas.model_spec(profile, task, model)
    same = [m for m in TESTED if nas.model_spec(profile, task, m) == spec]
    return same if len(same) > 1 else []


def transpose_table(
    table: str, rename: Callable[[str], str]
) -> dict[str, dict[tuple[str, str], Any]]:
    """Return a printed table whose columns are models, with a row for each model.

    rename: a function from the printed name of a model to its name on the page."""
    rows = published.read_rows("nas_pruning", table)
    return {
        rename(model): {
            ("published", f"{row['Task']} {row['Metric']}"): row[model] for row in rows
        }
        for model in list(rows[0])[2:]
        if "change" not in model
    }


def curves(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the course of searches, one line for each step.

    Its columns are the model, the seed, the step as a share of all steps, the target
    and the actual ratio of the FLOPs, and the numbers of gates that were switched off
    and on up to that step."""
    import pandas as pd

    names = ["model", "seed", "step", "target", "actual", "off", "on"]
    parts = [pd.DataFrame(columns=names)]
    made: Any = compare.with_runs(frame).itertuples()
    for row in made:
        target, actual, off, on = row.run.arrays("search")["curve"].astype(float).T
        step = np.linspace(0, 1, len(target))
        columns = row.model, row.seed, step, target, actual, off.cumsum(), on.cumsum()
        parts.append(pd.DataFrame(dict(zip(names, columns, strict=True))))
    return pd.concat(parts[1:] or parts)
