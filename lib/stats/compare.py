"""This module computes scores of runs, pairs them for statistics, and formats them for
tables.

A collected frame is a table with a line for each Outcome of a grid. All scores are on
the examples of `judged_rows`, so a verdict uses the same difference that two cells of a
table show."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from lib import data
from lib.core.names import Refused
from lib.core.rows import format_width
from lib.core.store import Run
from lib.core.types import Json
from lib.stats.paired import (
    MARKS,
    SEEDS,
    Estimate,
    Pair,
    paired_difference,
    predict_classes,
)
from lib.stats.paired import score as score_answers

if TYPE_CHECKING:
    import pandas as pd

# Steps whose runs score the model that they make. A search is left out, as it scores a
# network with soft masks; the network that is cut out of it is scored by a later step.
SCORED = ("finetune", "warmup", "retrain", "imp", "fineprune")


@dataclass(frozen=True)
class Column:
    """A Column is a metric on a split of a task, as a paper's table prints it."""

    title: str
    task: str
    metric: str
    split: str = "dev"

    @property
    def name_of_score(self) -> str:
        """Return the key of the score in a run's `metrics.json`."""
        return self.metric if self.split == "dev" else f"{self.split}.{self.metric}"

    @property
    def predictions(self) -> str:
        """Return the stem of the run's file with the predictions behind the score."""
        return "predictions" if self.split == "dev" else f"predictions_{self.split}"


def pair_columns(
    frame: pd.DataFrame,
    method: str,
    baseline: str,
    columns: Mapping[str, Sequence[Column]],
) -> list[Pair]:
    """Return the Pairs of two models' runs in a collected frame, one for each Column,
    task and seed.

    A Pair's task is the title of its Column. Runs that are missing or lack the split of
    a Column make no Pair, and neither do runs of different dtypes (`select_one_dtype`).

    frame: a frame with the columns task, seed, model and run.
    method, baseline: names in the column `model`.
    columns: {task: its Columns}."""
    rows = frame[["model", "task", "seed", "run"]].to_dict("records")
    ours, theirs = (
        [row for row in rows if row["model"] == model] for model in (method, baseline)
    )
    # pyrefly: ignore[bad-argument-type]  # pandas types names of columns as Hashable.
    return align_rows(ours, theirs, columns)


def align_rows(
    ours: Sequence[Mapping[str, Any]],
    theirs: Sequence[Mapping[str, Any]],
    columns: Mapping[str, Sequence[Column]],
    spared: Sequence[bool] = (False, False),
) -> list[Pair]:
    """Return the Pairs of two models' rows, matched by task and seed.

    A seed in which one of the two models collapsed (`Level`) makes no Pair. Raises
    Refused where two runs were evaluated on different examples.

    ours, theirs: rows of a collected frame, with task, seed and run.
    columns: {task: its Columns}.
    spared: for each of the two models, whether its collapsed runs count too."""
    both = select_one_dtype([*ours, *theirs])
    runs, others = (
        {(row["task"], row["seed"]): row["run"] for row in rows if row["run"]}
        for rows in (both[: len(ours)], both[len(ours) :])
    )
    replicates = []
    for task, seed in sorted(runs.keys() & others.keys()):
        run, other = members = runs[task, seed], others[task, seed]
        lost = [level_of_run(member, columns[task][0]).collapsed for member in members]
        if any(
            is_lost and not spare for is_lost, spare in zip(lost, spared, strict=True)
        ):
            continue
        for column in columns[task]:
            has_scores = all(
                column.name_of_score in member.metrics for member in members
            )
            if column.split != "dev" and not has_scores:
                continue
            a, b = (judged_rows(member, column) for member in members)
            if a["index"] != b["index"]:
                raise Refused(
                    f"{run.name} and {other.name} were evaluated on different rows of "
                    f"{column.title}"
                )
            said = a["labels"], a["said"], b["said"]
            about = column.metric, a["cluster"], "".join(dtypes(run.spec))
            replicates.append(Pair(column.title, seed, *said, *about))
    return replicates


# State of a row without a comparable run: runs of its task and seed have two dtypes.
MIXED = "with runs of two dtypes"


def dtypes(spec: Json) -> set[str]:
    """Return the dtypes in which the run of a Spec and all its inputs were computed.

    The dtype of a latency is left out, as its models may be of another one.

    spec: the Spec as JSON."""
    numerics = (
        {} if spec.get("step") == "latency" else spec["args"].get("numerics") or {}
    )
    types = {numerics["dtype"]} if numerics else set()
    return types.union(*map(dtypes, spec.get("inputs", {}).values()))


def group_by_place(rows: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return lists of rows, each with the rows of one task and seed that are compared
    with each other.

    Rows without a run are left out, unless their state is MIXED."""
    groups = defaultdict(list)
    for row in rows:
        if row["run"] or row.get("state") == MIXED:
            groups[row.get("task"), row.get("seed")].append(row)
    return list(groups.values())


def shared_dtypes(runs: Iterable[Run]) -> set[str]:
    """Return the set of all dtypes in which some runs and their inputs were
    computed."""
    return set().union(*(dtypes(run.spec) for run in runs))


def select_one_dtype(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return rows in which all runs of one task and seed have one dtype, so that their
    difference is not one of rounding.

    Where runs have two dtypes, their float32 twins (`lib.core.store.Run.twin`) take
    their place. Where twins are missing, the rows get the run None and the state
    MIXED."""
    changed = {}
    for group in group_by_place(rows):
        runs = {id(row): row["run"] for row in group if row["run"]}
        if len(shared_dtypes(runs.values())) < 2:
            continue
        twins = {key: run.twin or run for key, run in runs.items()}
        is_mixed = len(shared_dtypes(twins.values())) > 1
        for row in group:
            metrics = row["run"].metrics if row["run"] else ()
            labels = {name: row[name] for name in row if name not in metrics}
            if is_mixed or id(row) not in twins:
                changed[id(row)] = labels | {"run": None, "state": MIXED}
            else:
                changed[id(row)] = with_metrics(labels | {"run": twins[id(row)]})
    return [changed.get(id(row), row) for row in rows]


def describe_dtypes(*parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a list with a sentence on the dtypes of the compared runs, or [] where all
    have one dtype.

    parts: lists of rows. In each list, the rows of one task and seed are compared."""
    counts = Counter()
    groups = [
        group for part in parts for group in group_by_place(select_one_dtype(part))
    ]
    for group in (group for group in groups if len(group) > 1):
        is_whole = all(row["run"] for row in group)
        known = shared_dtypes(row["run"] for row in group if row["run"])
        counts["".join(known) if is_whole else MIXED] += 1
    mixed = counts.pop(MIXED, 0)
    single = [f"{n} in {name}" for name, n in sorted(counts.items()) if name]
    if len(single) < 2 and not mixed:
        return []
    texts = [", ".join(single)] * bool(single)
    texts += [f"{mixed} {MIXED} do not count"] * bool(mixed)
    return [f"Tasks and seeds compared: {'; '.join(texts)}"]


def unseen_of_run(run: Run) -> Json | None:
    """Return the description of unseen rows in a run's Spec ({"rows", "digest", ...}),
    or None where the run has none."""
    return run.spec["args"].get("data", {}).get("unseen")


@lru_cache(maxsize=512)
def judged_rows(run: Run, column: Column) -> dict[str, Any]:
    """Return labels and predictions of the N examples that a run is scored on.

    The keys are "labels" [N], "said" [N] (predicted classes or scores; for answer spans
    the score of each question), "cluster" [N] (examples that share text have one
    number), and "index", a list that is equal for runs on the same examples.

    The examples are the rows of the Column's split. After development rows follow the
    unseen rows that are judged, where the run has some (lib.data.unseen). Without
    unseen rows each example is a cluster."""
    stored, unseen_spec = run.arrays(column.predictions), unseen_of_run(run)
    if column.metric in MARKS:
        said = stored[column.metric]
    else:
        said = predict_classes(stored["logits"])
    labels, index = stored["labels"], stored["index"].tolist()
    cluster = np.arange(len(labels))
    if column.split == "dev" and unseen_spec:
        more = data.judging_arrays(run.spec["args"]["data"])
        answers = data.unpack_predictions(
            run.arrays("predictions_unseen"), unseen_spec["rows"]
        )
        rows, cluster = more["judged"], more["cluster"]
        labels = np.concatenate([labels, more["labels"][rows]])
        said = np.concatenate([said, answers[rows]])
        index.append(unseen_spec["digest"])
    return {"labels": labels, "said": said, "index": index, "cluster": cluster}


@dataclass(frozen=True)
class Level:
    """A Level compares a run's score with that of a model which has learned nothing.

    A run has collapsed if it does no better, or predicts the same for all examples."""

    score: float  # Score on the judged examples, in points.
    # Score in points that a model without knowledge may reach: for accuracy, two
    # standard errors above the share of the most frequent class.
    chance: float
    constant: bool  # Whether the predictions for all examples are equal.

    @property
    def collapsed(self) -> bool:
        return self.constant or self.score <= self.chance


@lru_cache(maxsize=8192)
def level_of_run(run: Run, column: Column) -> Level:
    """Return the Level of a run in a Column.

    A model without knowledge reaches the accuracy of the most frequent class, the F1 of
    predicting class 1 always, or a correlation of 0. Two standard errors are added to
    accuracies and correlations. A run whose loss was not finite has no predictions, and
    counts as constant."""
    try:
        rows = judged_rows(run, column)
    except FileNotFoundError:
        return Level(0.0, 0.0, True)
    labels, said, n = rows["labels"], rows["said"], len(rows["labels"])
    if column.metric in ("accuracy", *MARKS):
        # For answer spans, a model without knowledge answers no question: it is right
        # where there is no answer, whose label is below 0.
        counts = np.unique(labels, return_counts=True)[1]
        is_span = column.metric in MARKS
        most = float(np.mean(labels < 0) if is_span else counts.max() / n)
        chance = most + 2 * (most * (1 - most) / n) ** 0.5
    elif column.metric == "f1":
        most = float(np.mean(labels == 1))
        chance = 2 * most / (1 + most)
    else:
        chance = 2 / n**0.5
    points = 100 * score_answers(column.metric, said, labels)
    return Level(points, 100 * chance, len(np.unique(said)) == 1)


def find_collapsed(
    frame: pd.DataFrame, columns: Mapping[str, Sequence[Column]]
) -> np.ndarray:
    """Return whether the run of each of N rows of a collected frame collapsed
    (`Level`): bool [N]."""
    both = zip(frame["run"], frame["task"], strict=True)
    lost = [run and level_of_run(run, columns[task][0]).collapsed for run, task in both]
    return np.array(lost, bool)


def development_score(run: Run | None, column: Column) -> float:
    """Return a run's score on the split of a Column, without unseen rows, from 0 to 1;
    nan where it has none."""
    return getattr(run, "metrics", {}).get(column.name_of_score, nan)


def score(run: Run | None, column: Column) -> float:
    """Return a run's score in a Column, on `judged_rows`, from 0 to 1; nan where it has
    none.

    A metric that is no score of examples, such as a share of weights, is returned as it
    is."""
    metrics = getattr(run, "metrics", ())
    if column.split != "dev" or f"unseen.{column.metric}" not in metrics:
        return development_score(run, column)
    rows = judged_rows(run, column)
    return score_answers(column.metric, rows["said"], rows["labels"])


SCORES = ("score", "development")  # Columns that `scores_in_points` adds.
# End of the title of a table's column whose scores leave out unseen rows.
ALONE = "development rows alone"


def scores_in_points(
    frame: pd.DataFrame, columns: Mapping[str, Sequence[Column]]
) -> pd.DataFrame:
    """Return a frame of scores in points, with a line for each row of a collected frame
    and Column.

    It has the columns of the frame, "column" (title of the Column), "score" (on
    `judged_rows`) and "development" (without unseen rows). A Column whose split no run
    has is left out.

    columns: {task: its Columns}."""
    import pandas as pd

    lines = []
    for row in frame.to_dict("records"):
        for column in columns[row["task"]]:
            if column.split == "dev" or column.name_of_score in frame:
                run = row.get("run")
                values = score(run, column), development_score(run, column)
                scores = dict(
                    zip(SCORES, (100 * value for value in values), strict=True)
                )
                lines.append(row | {"column": column.title} | scores)
    names = list(dict.fromkeys([*frame, "column", *SCORES]))
    return pd.DataFrame(lines, columns=names).astype(dict.fromkeys(SCORES, float))


def name_source(frame: pd.DataFrame, profile: str) -> str:
    """Return the head of a table's columns that tells where its numbers come from, such
    as "this run, toy" or "recorded, mini"."""
    origins = {run.origin for run in frame.get("run", ()) if run is not None}
    words = {"run": "this run", "record": "recorded"}
    label = " and ".join(word for origin, word in words.items() if origin in origins)
    return f"{label or 'not run'}, {profile}"


def rows_of(frame: pd.DataFrame) -> list[str]:
    """Return the columns of a frame that tell the rows of a table apart: "model",
    behind "m" (kept heads) if the frame has it."""
    return [name for name in ("m", "model") if name in frame]


def blank_unpaired(scored: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Return a frame of scores without those at seeds that only one model has.

    So the means of a table are over the same seeds. Models of one width and Column are
    compared; if they share no seed, all scores stay.

    scored: a frame of `scores_in_points`.
    names: the columns that tell models apart."""
    model_ids = scored.groupby(names).ngroup().where(scored["score"].notna())
    place = [scored[name] for name in ("column", "m") if name in ("column", *names)]
    shared = model_ids.groupby([*place, scored["seed"]]).transform("nunique") > 1
    shared |= ~shared.groupby(place).transform("any")
    return scored.assign(**{name: scored[name].where(shared) for name in SCORES})


def average_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with the mean score over all Columns for each table row and seed.

    Seeds that lack the score of a Column are left out.

    frame: a frame of `scores_in_points`."""
    frame = blank_unpaired(frame, rows_of(frame)).dropna(subset=["score"])
    groups = frame.groupby([*rows_of(frame), "seed"], sort=False)["score"]
    by = groups.agg(score="mean", count="count").reset_index()
    return by[by["count"] == frame["column"].nunique()].drop(columns="count")


def table(
    *parts: Mapping[Any, Mapping[Any, Any]], names: Sequence[str] = ("m", "model")
) -> pd.DataFrame:
    """Return one DataFrame of several dicts {row: {column: value}}, with values
    unchanged.

    Rows or columns that are tuples make a MultiIndex. Rows and columns stand in the
    order in which they first occur.

    names: names of the levels of the row index, the last for the last level."""
    import pandas as pd

    merged: dict[Any, dict[Any, Any]] = {}
    heads: dict[Any, None] = {}
    for part in parts:
        for key, row in part.items():
            merged.setdefault(key, {}).update(row)
            heads |= dict.fromkeys(row)
    values = [[row.get(head, nan) for head in heads] for row in merged.values()]
    frame = pd.DataFrame(values, pd.Index([*merged]), pd.Index([*heads]), dtype=object)
    levels = frame.index.nlevels
    return frame.rename_axis([*[None] * (levels - len(names)), *names][-levels:])


FAR = 10.0  # Points from the median over seeds beyond which a seed's score is a stray.


def describe_strays(
    frame: pd.DataFrame, columns: Mapping[str, Sequence[Column]]
) -> list[str]:
    """Return a sentence for each model and Column where some seeds score far (FAR) from
    the others.

    It warns a reader that a few seeds move the mean.

    frame: a collected frame; without task, model, seed and run there are no sentences.
    columns: {task: its Columns}."""
    if not {"task", "model", "seed", "run"} <= {*frame}:
        return []
    frame = frame[
        frame["run"].notna() & frame["spec"].map(lambda spec: spec.step in SCORED)
    ]
    frame = frame[frame["task"].isin([*columns])]
    lines = []
    names = [*rows_of(frame), "column"]
    for key, rows in (
        scores_in_points(frame, columns)
        .dropna(subset="score")
        .groupby(names, sort=False)
    ):
        far = (rows["score"] - rows["score"].median()).abs() > FAR
        if len(rows) < SEEDS or not 0 < 2 * far.sum() < len(rows):
            continue
        *_, model, column = key
        place = f" at {format_width(dict(rows.iloc[0]))}" if "m" in rows else ""
        rest = rows["score"][~far]
        several = "seeds {} have" if far.sum() > 1 else "seed {} has"
        seeds = several.format(join_in_words(map(str, rows["seed"][far])))
        scores = join_in_words(f"{score:.1f}" for score in rows["score"][far])
        others = f"the others {rest.min():.1f} to {rest.max():.1f}"
        lines.append(f"{model}{place} on {column}: {seeds} {scores}, {others}")
    return lines


def join_in_words(texts: Iterable[str]) -> str:
    """Return texts as a list in words: "13, 14 and 15"."""
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def with_metrics(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the metrics of its run appended; its own columns win over
    metrics of the same name."""
    metrics = row["run"].metrics if row["run"] else {}
    return row | {name: value for name, value in metrics.items() if name not in row}


def with_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a collected frame whose runs exist."""
    return frame[frame["run"].notna()]


def spread_text(
    values: Iterable[float | None], mean: float | None = None, lost: int = 0
) -> str:
    """Return mean and standard deviation over seeds as text: "81.2 ± 0.4 (3)".

    The number in brackets is that of seeds. Values that are None or not finite are left
    out; without others the text is a dash.

    mean: a value to show in place of the mean.
    lost: the number of collapsed seeds, shown behind the number of seeds."""
    x = np.array([v for v in values if v is not None and isfinite(v)])
    if not len(x):
        return "–"
    deviation = f" ± {x.std(ddof=1):.1f}" if len(x) > 1 else ""
    beside = f"; {lost} collapsed" if lost else ""
    return f"{x.mean() if mean is None else mean:.1f}{deviation} ({len(x)}{beside})"


def format_interval(estimate: Estimate | None, is_sentence: bool = False) -> str:
    """Return an Estimate with its interval and number of seeds as text: "+0.4 [-0.2,
    1.1] (3)".

    With fewer seeds than SEEDS the interval is left out.

    is_sentence: whether the form is "+0.4 [-0.2, 1.1] points, 3 seeds"."""
    if estimate is None or not isfinite(estimate.mean):
        return "–"
    ends = f" [{estimate.low:.1f}, {estimate.high:.1f}]" * (estimate.n_seeds >= SEEDS)
    if is_sentence:
        seeds = "1 seed" if estimate.n_seeds == 1 else f"{estimate.n_seeds} seeds"
        return f"{estimate.mean:+.1f}{ends} points, {seeds}"
    return f"{estimate.mean:+.1f}{ends} ({estimate.n_seeds})"


def table_by_task(
    frame: pd.DataFrame,
    columns: Mapping[str, Sequence[Column]],
    source: str,
    by: Sequence[str] = (),
) -> dict[str | tuple[str, str], dict[tuple[str, str], str]]:
    """Return a part of a page's table from a collected frame: {row: {(source, title):
    mean over seeds as text}}.

    A row is a model, or (kept heads, model). Collapsed runs are left out, unless all
    runs of a row and Column collapsed; so are seeds without a partner
    (`blank_unpaired`). With several Columns, (source, "average") is the mean of their
    means over seeds; its spread is over the seeds that have all Columns. Where unseen
    rows count too, columns without them follow. A cell without runs is a dash.

    columns: {task: its Columns}.
    source: head of the columns (`name_source`).
    by: columns of the frame that name the rows instead, as "value · value"; there is no
    average then, and cells without a score are left out."""
    import pandas as pd

    names, table = list(by) or rows_of(frame), {}
    scored = scores_in_points(frame, columns)
    lost = pd.Series(find_collapsed(scored, columns), scored.index, dtype=bool)
    # Keep the scores of a row all of whose runs collapsed.
    lost &= ~lost.groupby([scored[name] for name in (*names, "column")]).transform(
        "all"
    )
    sound = {name: scored[name].mask(lost) for name in SCORES}
    scored = blank_unpaired(scored.assign(**sound), names)
    means = (
        dict(list(average_columns(scored).groupby(names)["score"])) if not by else {}
    )
    for key, rows in scored.groupby(names, sort=False):
        if by:
            name = " · ".join(key)
        else:
            name = (
                (format_width(dict(rows.iloc[0])), key[1]) if len(key) > 1 else key[0]
            )
        row, alone = {}, {}
        for title, part in rows.groupby("column", sort=False):
            if not by or part["score"].notna().any():
                row[source, title] = spread_text(
                    part["score"], lost=lost[part.index].sum()
                )
            if (part["score"] - part["development"]).any():
                alone[source, f"{title}, {ALONE}"] = spread_text(part["development"])
        if not by and scored.dropna(subset=["score"])["column"].nunique() > 1:
            of_tasks = rows.groupby("column")["score"].mean().mean()
            row[source, "average"] = spread_text(means.get(key, ()), of_tasks)
        table[name] = row | alone
    return table


def difference(
    frame: pd.DataFrame,
    method: str,
    baseline: str,
    metric_of: Mapping[str, Sequence[Column]],
) -> Estimate | None:
    """Return the Estimate of the paired difference of two models in points, or None
    where no two runs make a Pair.

    metric_of: {task: its Columns}."""
    replicates = pair_columns(frame, method, baseline, metric_of)
    return paired_difference(replicates) if replicates else None
