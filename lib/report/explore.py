"""This module makes the interactive figures of the live page, which Plotly draws in a
browser.

A figure has all its traces (Plotly's sets of points) from the start. The `meta` of a
trace has its labels, such as its task. Beside the figure are lists of values of these
labels, and the traces that fit the chosen values are drawn. The browser computes no
number, so every number of a figure is also in a table of another page. Plotly's script
is part of the page, which needs no network, from a file or in JupyterLab."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, product
from math import nan
from textwrap import wrap
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from lib.claims import evidence, judging, lists, notebook, planned, words
from lib.core import paths
from lib.core.papers import find_notebook_path
from lib.core.store import Run
from lib.core.types import Json, ProfileName
from lib.papers import frontier
from lib.papers.published import PointsByRowWidthAndColumn
from lib.report import plot, verdicts
from lib.report.tables import Runs, collect_results
from lib.stats import compare
from lib.stats.paired import SEEDS

PARTS: Any = verdicts.ENVIRONMENT.get_template("live.html.j2").module
FRONTIER = "91_frontier"
MILLISECONDS = "milliseconds of 8 sentences of 128 tokens on one thread"
# {outcome of a comparison: its colour in the forest plot}. The name of a row has the
# outcome as text too, so that no reader depends on the colours.
COLOURS = {
    words.AGREES: plot.GREEN,
    words.OPPOSITE: plot.VERMILION,
    words.NO_EFFECT: plot.BLUE,
    words.NOISY: plot.GREY,
    words.NOT_MEASURED: plot.GREY,
}
PALETTE = (plot.BLUE, plot.VERMILION, plot.GREEN, plot.SKY, "#E69F00", "#CC79A7")
SYMBOLS = dict(whole="x", paper="circle", control="square", combination="diamond")
DOTS = {"type": "scatter", "mode": "markers", "hoverinfo": "text"}
ROW = 54  # Height in pixels of a row of the forest plot, whose name has two lines.
GREY = "rgba(128, 128, 128, 0.9)"  # It shows on white and on black.


# Data of a 3-D surface: (the N coordinates on either axis, {scale of z, such as "linear
# z": heights z [N, N]}).
CoordinatesAndHeightsByScale: TypeAlias = tuple[np.ndarray, Mapping[str, np.ndarray]]
# {value in a list beside a figure: whether a reader chose it}.
IsChosenByValue: TypeAlias = dict[str, bool]


@dataclass(frozen=True)
class LiveFigure:
    """A LiveFigure is a Plotly figure with lists beside it, in which a reader chooses.

    The `meta` of a trace (Plotly's set of points) has labels such as its task. Each
    list has the values of one label, and a trace is drawn where all its labels are
    chosen. Other keys of `meta` are `rows` (the number of models or comparisons that
    the trace shows), `page` (the notebook that has their numbers) and sometimes `ends`
    (the range of x).

    single_choice_selectors: names of lists in which exactly one value is chosen, at
    first the first one.
    initial_choices_by_multi_selector: {list in which several values can be chosen:
    {value: whether chosen at first}}.
    layout: options of Plotly's layout, beside those of all figures in `live.js`.
    layout_changes_by_choice: {chosen value: {path in the layout, such as
    "xaxis.title.text": what the choice sets there}}.
    pixels_per_row: pixels that each drawn row adds to the height; 0 for a fixed
    height."""

    title: str
    traces: Sequence[Json]
    single_choice_selectors: Sequence[str]
    initial_choices_by_multi_selector: Mapping[str, IsChosenByValue]
    layout: Json
    layout_changes_by_choice: Mapping[str, Json] = field(default_factory=dict)
    pixels_per_row: int = 0

    @property
    def link_by_notebook_id(self) -> dict[str, str]:
        """Return {notebook id: link} of the notebooks that have the figure's numbers.

        A reader follows these links from a point to a table. On a page that a command
        makes, a link leads to an HTML page; in JupyterLab, to the notebook."""
        pages = dict.fromkeys(trace["meta"]["page"] for trace in self.traces)
        if os.environ.get(notebook.BATCH):
            return {page: f"{page}.html" for page in pages}
        return {
            page: find_notebook_path(page).relative_to(paths.NOTEBOOKS).as_posix()
            for page in pages
        }

    @property
    def figure_html(self) -> str:
        """Return the interactive figure, with its lists of choices, as HTML.

        A script in the browser draws it, so the page must contain
        `make_plotly_script_html` too."""
        import plotly.io

        options = {}
        for name in self.single_choice_selectors:
            metas = (trace["meta"] for trace in self.traces)
            values = list(dict.fromkeys(meta[name] for meta in metas if name in meta))
            options[name] = {value: value == values[0] for value in values}
        options |= self.initial_choices_by_multi_selector
        # Else Plotly's Python package would add a look of its own.
        layout = {"template": "none"} | self.layout
        data = {"data": self.traces, "layout": layout}
        more = {
            "changes": self.layout_changes_by_choice,
            "row": self.pixels_per_row,
            "links": self.link_by_notebook_id,
        }
        return PARTS.figure(
            self,
            options,
            plotly.io.to_json(data),
            plotly.io.json.to_json_plotly(more),
        )


def make_plotly_script_html() -> str:
    """Return Plotly's script, and the script that draws a LiveFigure, as HTML.

    A page with interactive figures shows it once, and then needs no network."""
    from plotly.offline import get_plotlyjs

    return PARTS.library(get_plotlyjs())


def make_error_bars(rows: pd.DataFrame, value_column: str) -> Json:
    """Return Plotly's options for error bars of points, one for each row of a frame.

    The two sides of a bar can differ. A row whose interval is nan has no bar.

    rows: a frame with the ends of the intervals in the columns low and high.
    value_column: name of the column with the value."""
    return {
        "type": "data",
        "symmetric": False,
        "width": 0,
        "thickness": 1.6,
        "array": (rows["high"] - rows[value_column]).fillna(0),
        "arrayminus": (rows[value_column] - rows["low"]).fillna(0),
    }


def format_score_with_interval(
    score_row: Mapping[Any, Any], value_column: str = "score"
) -> str:
    """Return a score with its 95 % interval as text: "81.2 [80.1, 82.3], 3 seeds".

    score_row: {column: value} with seeds (their number), low and high (ends of the
    interval in points, nan for none) and the score.
    value_column: the column of the score, or of a difference of scores."""
    ends = f"[{score_row['low']:.1f}, {score_row['high']:.1f}]"
    if np.isnan(score_row["low"]):
        ends = "(no interval)"
    count = score_row["seeds"]
    return f"{score_row[value_column]:.1f} {ends}, {count:.0f} seed{'s' * (count > 1)}"


def find_finished_notebook_runs(notebook_id: str, profile: ProfileName) -> Runs:
    """Return the finished runs of a notebook's experiments, to plot them elsewhere.

    No run is made. The result, a Runs, has their labels and metrics and can compare
    models. It is empty where the notebook's file is missing, or where the notebook has
    no finished run at this profile.

    profile: size of the experiments, such as "mini"."""
    frame = pd.DataFrame({"run": []})
    if find_notebook_path(
        notebook_id
    ).exists() and planned.notebook_lists_runs_at_profile(profile, notebook_id):
        if rows := evidence.list_notebook_runs_to_execute(profile, notebook_id):
            frame = compare.select_rows_with_runs(collect_results(rows))
    return Runs(frame, frame[:0], profile, notebook_id)


def tabulate_score_and_cost_of_models(profile: ProfileName) -> pd.DataFrame:
    """Return a DataFrame of the score and costs of each model on each task.

    The columns are task, model, method (of compression), kind (of method: "paper",
    "whole" for no compression, "control" for one that the papers lack, "combination"
    for two methods at once), m (planned FLOPs in twelfths of the unpruned model's; 0
    for a method with a single model), seeds (their number), score (in points), low and
    high (its 95 % interval), flops, parameters and bytes (each in millions), ms
    (milliseconds of 8 sentences of 128 tokens, nan if not measured), source (where the
    numbers come from), runs (names of the runs), gap (the score minus that of a
    baseline), gap_low and gap_high (95 % interval of the gap), beside (name of the
    baseline) and budget (its width in twelfths). The baseline is the cheapest model,
    width-pruned or whole and distilled, with at least 95 % of the model's FLOPs. An
    interval is nan for fewer than SEEDS (3) seeds. The frame is empty where no model is
    trained yet.

    profile: size of the experiments, such as "mini"."""
    frame = find_finished_notebook_runs(FRONTIER, profile).current
    models = frontier.select_and_label_model_runs(frame) if len(frame) else frame
    if models.empty:
        return pd.DataFrame()
    run_names = models.groupby(["task", "model"])["run"].agg(join_run_names)
    times = {"task": ""}
    for clock in frame[frame["kind"] == "clock"].to_dict("records"):
        times = clock
    table = frontier.tabulate_models_by_task_with_costs(frame, profile).assign(
        source=compare.format_score_column_heading(frame, profile)
    )
    places = list(zip(table["task"], table["model"], strict=True))
    table["runs"] = [run_names[place] for place in places]
    table["ms"] = [
        times.get(f"{model}.cpu_ms", nan) if task == times["task"] else nan
        for task, model in places
    ]
    few = table["seeds"] < SEEDS
    return table.assign(low=table["low"].mask(few), high=table["high"].mask(few))


def join_run_names(runs: Iterable[Run]) -> str:
    """Return the names of runs as a short text: "finetune-1a2b/0, 1; distil-3c4d/0".

    The name of a run has the kind of work and a digest of its settings, a slash and the
    seed. Runs that differ in the seed alone are listed together."""
    seeds = {}
    for run in runs:
        identity, _, seed = run.name.partition("/")
        seeds.setdefault(identity, []).append(seed)
    return "; ".join(f"{name}/{', '.join(part)}" for name, part in seeds.items())


def plot_score_against_cost(frontier_table: pd.DataFrame) -> LiveFigure:
    """Return an interactive figure of scores against cost, with the Pareto front.

    A reader chooses the task, the kind of cost (such as FLOPs), the source of the runs
    (such as "recorded, mini": results stored in the repository, at the experiment size
    mini), and the methods.

    frontier_table: tables of `tabulate_score_and_cost_of_models` of one or more
    profiles (sizes of the experiments), concatenated."""
    traces = []
    costs = frontier.AXES | {"ms": MILLISECONDS}
    colours = dict(zip(frontier.TABLE, cycle(PALETTE), strict=False))
    parts: Any = frontier_table.groupby(["source", "task"], sort=False)
    for ((source, task), part), cost in product(parts, costs):
        rows = part.dropna(subset=cost)
        meta = {"task": task, "cost": costs[cost], "runs": source, "page": FRONTIER}
        for method, models in rows.groupby("method", sort=False):
            symbol = SYMBOLS[models["kind"].iloc[0]]
            texts = [
                f"<b>{row['model']}</b>, {task}<br>"
                f"score {format_score_with_interval(row)}<br>"
                f"{row[cost]:,.1f} {costs[cost]}<br>run {row['runs']}"
                for row in models.to_dict("records")
            ]
            traces.append(
                DOTS
                | {
                    "name": method,
                    "x": models[cost],
                    "y": models["score"],
                    "error_y": make_error_bars(models, "score"),
                    "hovertext": texts,
                    "marker": dict(color=colours[method], symbol=symbol, size=10),
                    "meta": meta | {"methods": method, "rows": len(models)},
                }
            )
        best = rows.set_index("model").loc[
            frontier.list_models_on_pareto_front(rows, cost)
        ]
        traces.append(
            {
                "name": "front",
                "mode": "lines",
                "line": {"color": GREY, "width": 1, "shape": "hv"},
                "hoverinfo": "skip",
                "x": best[cost],
                "y": best["score"],
                "meta": meta | {"rows": 0},
            }
        )
    layout = {
        "xaxis": {"type": "log", "tick0": 2, "dtick": np.log10(2)},
        "yaxis": {"title": {"text": "score (points)"}},
    }
    titles = {unit: {"xaxis.title.text": f"{unit} (log)"} for unit in costs.values()}
    return LiveFigure(
        "Score against cost",
        traces,
        ["task", "cost", "runs"],
        {"methods": dict.fromkeys(frontier_table["method"], True)},
        layout,
        titles,
    )


def read_claim_comparisons() -> pd.DataFrame:
    """Return a DataFrame of all comparisons that test the papers' claims, a row each.

    It is the file `verdicts.csv` with a further column `paper` (title of the paper). A
    row has the measured difference, its 95 % interval, the printed value, the bounds
    within which the paper's claim holds (0 and nan for "> 0"), and an outcome such as
    "agrees". Where these numbers are missing, they are nan; other columns, such as
    `seeds`, are text. A comparison that several claims share has one row."""
    rows = [row for row in judging.read_verdicts_csv() if not row["same_as"]]
    table = pd.DataFrame(rows, columns=judging.HEAD)
    numbers = "no_effect region_low region_high estimate low high printed".split()
    table[numbers] = table[numbers].apply(pd.to_numeric, errors="coerce")
    titles = lists.PAPERS | {"own": "our own questions"}
    claims = lists.read_claims()
    return table.assign(paper=[titles[claims[id]["paper"]] for id in table["claim"]])


def plot_claim_comparisons(verdicts_frame: pd.DataFrame) -> LiveFigure:
    """Return an interactive forest plot of comparisons that test the papers' claims.

    A row shows our estimate with its 95 % interval, the printed value as a diamond, and
    the values for which the paper's claim holds (such as > 0) as a shade. A reader
    chooses the paper, the unit of the differences (such as points), where the runs are
    from, and the outcomes (such as "agrees").

    verdicts_frame: the frame of `read_claim_comparisons`."""
    traces = []
    keys = ["paper", "unit", "profile", "claim", "word"]
    groups: Any = verdicts_frame.groupby(keys, sort=False)
    for (paper, unit, profile, claim, word), rows in groups:
        records = rows.to_dict("records")
        labels = list(map(format_comparison_label, records))
        meta = {
            "paper": paper,
            "word": word,
            "unit": unit,
            "page": lists.read_claims()[claim]["artefact"].split("; ")[0],
            "runs": f"recorded, {profile}",
            "rows": 0,
        }
        ends = rows[["no_effect", "estimate", "low", "high", "printed"]].stack()
        ours = DOTS | {
            "x": rows["estimate"],
            "y": labels,
            "error_x": make_error_bars(rows, "estimate"),
            "hovertext": list(map(format_comparison_hover_text, records)),
            "marker": {"color": COLOURS[word], "size": 9},
            "meta": meta | {"rows": len(rows), "ends": [ends.min(), ends.max()]},
        }
        printed = DOTS | {
            "x": rows["printed"],
            "y": labels,
            "hovertext": [f"printed {value:g}" for value in rows["printed"]],
            "marker": {"color": GREY, "symbol": "diamond-open", "size": 11},
            "meta": meta,
        }
        low, high = rows["region_low"].fillna(-1e6), rows["region_high"].fillna(1e6)
        region = {
            "mode": "lines",
            "hoverinfo": "skip",
            "x": np.column_stack([low, high, np.full(len(rows), nan)]).ravel(),
            "y": np.repeat(labels, 3).tolist(),
            "line": {"color": plot.GREEN, "width": 14},
            "opacity": 0.15,
            "meta": meta,
        }
        traces += [region, ours, printed]
    layout = {
        "xaxis": {"side": "top", "automargin": False, "tickangle": 0},
        "yaxis": {"showticklabels": False},
        "margin": {"l": 8, "r": 8, "t": 56, "b": 8},
        "showlegend": False,
    }
    return LiveFigure(
        "Comparisons",
        traces,
        ["paper", "unit", "runs"],
        {"word": {word: word != words.NOT_MEASURED for word in words.WORDS}},
        layout,
        {unit: {"xaxis.title.text": unit} for unit in verdicts_frame["unit"].unique()},
        ROW,
    )


def format_comparison_label(verdict_row: Mapping[Any, Any]) -> str:
    """Return the label of a row of a forest plot: what is compared, and the outcome.

    It is in HTML lines of at most 60 letters: "G1 Ghosts minus pruning: ✓ agrees",
    where G1 is the id of the claim.

    verdict_row: a row of `read_claim_comparisons`, which is a comparison that tests a
    claim."""
    word = verdicts.format_verdict_word_with_symbol(verdict_row["word"])
    text = f"{verdict_row['claim']} {verdict_row['sentence']}: {word}"
    return "<br>".join(wrap(text, 60, break_on_hyphens=False))


def format_comparison_hover_text(verdict_row: Mapping[Any, Any]) -> str:
    """Return the hover text of a point in a forest plot of comparisons, as HTML lines.

    It has the claim of the paper, what is compared, our estimate, the printed value,
    the values for which the claim holds (such as > 0), the number of seeds, and the
    outcome with its reason.

    verdict_row: a row of `read_claim_comparisons`, which is a comparison that tests a
    claim."""
    lines = wrap(
        f"{verdict_row['claim']}: {lists.read_claims()[verdict_row['claim']]['says']}",
        70,
    )
    lines += wrap(verdict_row["sentence"], 70)
    printed = (
        ""
        if verdict_row["printed"] != verdict_row["printed"]
        else f", printed {verdict_row['printed']:g}"
    )
    lines.append(f"ours {verdict_row['shown'] or '–'} {verdict_row['unit']}{printed}")
    ends = [verdict_row["region_low"], verdict_row["region_high"]]
    claimed = ["any" if end != end else f"{end:g}" for end in ends]
    lines.append(f"claimed: from {claimed[0]} to {claimed[1]}")
    lines.append(f"{verdict_row['done']} of {verdict_row['planned']} planned seeds")
    lines += wrap(
        " ".join(
            filter(
                None,
                (
                    verdict_row["word"],
                    verdict_row["size"],
                    verdict_row["reason"],
                ),
            )
        ),
        70,
    )
    return "<br>".join(lines)


def compute_score_differences_from_baseline(
    runs: Runs, baseline_model: str
) -> pd.DataFrame:
    """Return each model's score minus that of a baseline, in points, paired by seed.

    The frame has a row for each model, task, width and source of the numbers. The
    columns are source, task, m (the width, such as "3/12": kept attention heads of 12),
    model, gap (the difference), low and high (its 95 % interval), and seeds (their
    number). The interval is nan for fewer than SEEDS (3) seeds, and for the baseline
    minus itself.

    runs: the results of a notebook's experiments, with the labels model, m and task.
    baseline_model: a name in the column `model`."""
    lines = []
    for model in dict.fromkeys(runs.current.get("model", ())):
        for (source, (m, task)), e in runs.estimate_differences(
            model, baseline_model, ["m", "task"]
        ).items():
            is_sure = e.n_seeds >= SEEDS and model != baseline_model
            lines.append(
                {
                    "source": source,
                    "task": task,
                    "m": f"{m:g}/12",
                    "model": model,
                    "gap": e.mean,
                    "low": e.low if is_sure else nan,
                    "high": e.high if is_sure else nan,
                    "seeds": e.n_seeds,
                }
            )
    return pd.DataFrame(lines)


def plot_score_differences_from_baseline(
    score_differences: pd.DataFrame,
    printed_baseline_minus_model: PointsByRowWidthAndColumn,
    title: str,
    baseline_model: str,
    notebook_id: str,
) -> LiveFigure:
    """Return an interactive figure of the differences of models from a baseline.

    A point is a model's score minus the baseline's, with a 95 % interval, in a colour
    for its width (kept attention heads). Differences that the paper prints are
    diamonds. A reader chooses the task and where the runs are from.

    score_differences: tables of `compute_score_differences_from_baseline`,
    concatenated.
    printed_baseline_minus_model: {"model, width, task": the paper's score of
    `baseline_model` minus the model's, in points}. They are drawn with the opposite
    sign.
    notebook_id: id of the notebook that has the numbers in a table; points link to
    it."""
    traces: list[Json] = []
    label = f"score minus that of {baseline_model} (points)"
    layout: Json = {"yaxis": {"title": {"text": label}}}
    if score_differences.empty:
        return LiveFigure(title, (), (), {}, layout)
    layout["xaxis"] = {"categoryarray": list(score_differences["model"].unique())}
    looks = dict(zip(score_differences["m"].unique(), cycle(PALETTE), strict=False))
    for (task, source, m), rows in score_differences.groupby(
        ["task", "source", "m"], sort=False
    ):
        texts = [
            f"<b>{row['model']}</b> minus {baseline_model}, {m} of the width, {task}<br>"
            + format_score_with_interval(row, "gap")
            for row in rows.to_dict("records")
        ]
        traces.append(
            DOTS
            | {
                "name": f"{m} of the width",
                "x": rows["model"],
                "y": rows["gap"],
                "error_y": make_error_bars(rows, "gap"),
                "hovertext": texts,
                "marker": {"color": looks[m], "size": 10},
                "meta": {
                    "task": task,
                    "page": notebook_id,
                    "runs": source,
                    "rows": len(rows),
                },
            }
        )
    for place, gap in printed_baseline_minus_model.items():
        model, m, task = place.split(", ")
        text = f"printed: {model} minus {baseline_model}, {m}, {task}: {-gap:+g}"
        colour = looks.get(m, GREY)
        traces.append(
            DOTS
            | {
                "name": f"{m}, printed",
                "x": [model],
                "y": [-gap],
                "hovertext": [text],
                "legendgroup": m,
                "showlegend": False,
                "marker": {"color": colour, "symbol": "diamond-open", "size": 12},
                "meta": {"task": task, "page": notebook_id, "rows": 0},
            }
        )
    return LiveFigure(title, traces, ["task", "runs"], {}, layout)


def plot_interactive_surfaces(
    surface_by_name: Mapping[str, CoordinatesAndHeightsByScale],
    common_z_scale: str,
    title: str,
    notebook_id: str,
) -> LiveFigure:
    """Return an interactive figure of 3-D surfaces z(x, y), which a reader can turn.

    One surface is shown at a time. The reader chooses it and the scale of z.

    surface_by_name: {name: (the N coordinates on either axis, {scale of z: array z
    [N, N]})}. A scale is named as in "linear z", and its array has the values to draw.
    common_z_scale: the scale on which all surfaces have one range of z,
    so that they can be compared.
    notebook_id: id of the notebook that has the numbers in a table; the figure links to
    it."""
    traces = []
    every = np.stack([z[common_z_scale] for _, z in surface_by_name.values()])
    ends = [float(every.min()), float(every.max())]
    changes: dict[str, Json] = {common_z_scale: {"scene.zaxis.range": ends}}
    for name, (line, by_scale) in surface_by_name.items():
        for scale, z in by_scale.items():
            changes.setdefault(scale, {})["scene.zaxis.title.text"] = scale
            traces.append(
                {
                    "type": "surface",
                    "colorscale": "Cividis",
                    "showscale": False,
                    "x": line,
                    "y": line,
                    "z": z.astype(np.float32),
                    "meta": {
                        "surface": name,
                        "scale of z": scale,
                        "rows": 1,
                        "page": notebook_id,
                    },
                }
            )
    look = {"gridcolor": plot.GREY, "exponentformat": "power"}
    scene = {f"{name}axis": look | {"title": {"text": name}} for name in "xyz"}
    scene |= {"uirevision": "view", "camera": {"eye": dict(x=-1.2, y=-1.8, z=0.9)}}
    return LiveFigure(
        title, traces, ["surface", "scale of z"], {}, {"scene": scene}, changes
    )


def describe_best_model_at_half_flops(frontier_table: pd.DataFrame) -> str:
    """Return a sentence on the best model within half of the unpruned model's FLOPs.

    It gives the scores of this model and of the unpruned one with intervals, to be
    shown below a page's title. Models may exceed the limit by 5 %. Where none keeps it,
    the sentence has the unpruned model alone. If any model in the table has an
    interval, models without one are left out. The task is the first that the table then
    has. Raises Refused where the unpruned model has no row on this task.

    frontier_table: the table of `tabulate_score_and_cost_of_models` with scores and
    costs, not empty."""
    sure = frontier_table.dropna(subset="low")
    rows = frontier_table if sure.empty else sure
    source, task = rows[["source", "task"]].iloc[0]
    rows = rows[(rows["source"] == source) & (rows["task"] == task)]
    best = frontier.find_best_affordable_model(rows, "flops", 0.5)
    models = [best, *rows[rows["method"] == "Whole"].to_dict("records")]
    scores = [
        f"{row['model']}{', at half the FLOPs,' * (row is best)} scores "
        f"{format_score_with_interval(row)}"
        for row in models
        if row
    ]
    return f"{task} ({source}): {'; '.join(scores)}."
