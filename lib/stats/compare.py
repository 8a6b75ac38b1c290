"""This module reads scores of runs, pairs the runs of two models for statistics, and
formats scores for tables.

A collected frame is a table with a row for each run of a notebook's grid: its labels
(model, task, seed), the run, and its metrics. All scores are on the same examples
(`read_labels_and_predictions`), so a tested claim has the same difference as two cells
of a table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, nan
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import numpy as np

from lib import data
from lib.core.names import Refused
from lib.core.rows import ResultRow, format_kept_head_fraction
from lib.core.spec import Spec
from lib.core.store import Run
from lib.core.types import Json
from lib.stats.paired import (
    MARKS,
    SEEDS,
    Estimate,
    Pair,
    estimate_paired_difference,
    predict_classes,
)
from lib.stats.paired import compute_score as score_answers

if TYPE_CHECKING:
    import pandas as pd

# Steps whose runs train a model and score it. The architecture search is left out, as
# it scores a network with soft masks; the network that is cut out of it is scored by a
# later step.
SCORED = ("finetune", "warmup", "retrain", "imp", "fineprune")


# A table of scores: {name of a row: {(source of the numbers, title of a column): text
# or number}}. The name is a tuple where rows have several levels, such as ("3/12",
# "Ghost").
ScoreTable: TypeAlias = dict[Any, dict[tuple[str, str], Any]]
# Accuracy of always predicting the same class; None for a correlation.
AccuracyOrNoneForCorrelation: TypeAlias = float | None


@dataclass(frozen=True)
class MetricColumn:
    """A MetricColumn is a metric on a split of a task, such as accuracy on development
    rows.

    Tables of scores have it as a column.

    title: the column's head, such as "MNLI-m".
    metric: the name of the metric, such as "accuracy".
    split: the part of the data, such as "dev" or "test"."""

    title: str
    task: str
    metric: str
    split: str = "dev"

    @property
    def score_key(self) -> str:
        """Return the key of this metric in the file of a run's scores, `metrics.json`.

        It is the metric's name for development rows. For another split, the name of the
        split stands before it, as in "test.accuracy"."""
        return self.metric if self.split == "dev" else f"{self.split}.{self.metric}"

    @property
    def predictions_file_stem(self) -> str:
        """Return the name, without suffix, of a run's file with the predictions.

        It is "predictions" for development rows, and otherwise "predictions_" with the
        name of the split. A run's score is computed from this file."""
        return "predictions" if self.split == "dev" else f"predictions_{self.split}"


def is_scored_on_examples(spec: Spec) -> bool:
    """Return whether a run trains a model and scores it on examples.

    Two models with such runs can be compared example by example.

    spec: the description of the run, with its step (the kind of work, such as
    "finetune")."""
    return spec.step in SCORED


def pair_runs_of_models(
    frame: pd.DataFrame,
    method_name: str,
    baseline_name: str,
    columns_by_task: Mapping[str, Sequence[MetricColumn]],
) -> list[Pair]:
    """Pair the runs of two models by task and seed, for paired statistics.

    Return a list of Pairs, one for each task, seed and metric (MetricColumn). A Pair
    has the labels and the predictions of both models on the same examples. Its field
    `task` is the title of the MetricColumn, such as "MNLI-m". A run that is missing,
    collapsed (scored no better than chance), or lacks the split of a MetricColumn makes
    no Pair. Where dtypes differ, a bfloat16 run is replaced by its repetition in
    float32. A run without such a repetition makes no Pair. Raises Refused where two
    runs were evaluated on different examples.

    frame: a row for each run, with the columns task, seed, model and run (a Run with
    the stored result, None if missing).
    method_name, baseline_name: names in the column `model`.
    columns_by_task: {task: its Columns}, the metrics on which to compare."""
    rows = frame[["model", "task", "seed", "run"]].to_dict("records")
    ours, theirs = (
        [row for row in rows if row["model"] == model]
        for model in (method_name, baseline_name)
    )
    # pyrefly: ignore[bad-argument-type]  # pandas types column names as Hashable.
    return pair_runs_by_task_and_seed(ours, theirs, columns_by_task)


def pair_runs_by_task_and_seed(
    method_rows: Sequence[ResultRow],
    baseline_rows: Sequence[ResultRow],
    columns_by_task: Mapping[str, Sequence[MetricColumn]],
    includes_collapsed_method: bool = False,
    includes_collapsed_baseline: bool = False,
) -> list[Pair]:
    """Pair the runs of a method and a baseline by task and seed, for paired statistics.

    Return a list of Pairs, one for each task, seed and metric (MetricColumn). A Pair
    has the labels and the predictions of both models on the same examples. A seed at
    which one of the two collapsed (scored no better than chance) makes no Pair. Where
    dtypes differ, a bfloat16 run is replaced by its repetition in float32. A run
    without such a repetition makes no Pair. Raises Refused where two runs were
    evaluated on different examples.

    method_rows, baseline_rows: a dict for each run, with "task", "seed" and "run" (a
    Run with the stored result, None if missing).
    columns_by_task: {task: its Columns}, the metrics on which to compare.
    includes_collapsed_method, includes_collapsed_baseline: whether collapsed runs of
    this model are paired too. A collapsed run without predictions, as after a loss that
    was not finite, is never paired."""
    spared = includes_collapsed_method, includes_collapsed_baseline
    both = substitute_float32_for_mixed_dtypes([*method_rows, *baseline_rows])
    runs, others = (
        {(row["task"], row["seed"]): row["run"] for row in rows if row["run"]}
        for rows in (both[: len(method_rows)], both[len(method_rows) :])
    )
    replicates = []
    for task, seed in sorted(runs.keys() & others.keys()):
        run, other = members = runs[task, seed], others[task, seed]
        lost = [
            measure_score_and_chance_level(
                member, columns_by_task[task][0]
            ).has_collapsed
            for member in members
        ]
        if any(
            is_lost and not spare for is_lost, spare in zip(lost, spared, strict=True)
        ):
            continue
        for column in columns_by_task[task]:
            has_scores = all(column.score_key in member.metrics for member in members)
            if column.split != "dev" and not has_scores:
                continue
            try:
                a, b = (read_labels_and_predictions(run, column) for run in members)
            except FileNotFoundError:
                if any(lost):
                    continue
                raise
            if a["index"] != b["index"]:
                raise Refused(
                    f"{run.name} and {other.name} were evaluated on different rows of "
                    f"{column.title}"
                )
            examples = a["labels"], a["said"], b["said"], column.metric, a["cluster"]
            replicates.append(Pair(column.title, seed, *examples))
    return replicates


# State of a row of results whose run is left out of comparisons, because runs of the
# same task and seed were computed in two dtypes.
MIXED = "with runs of two dtypes"


def collect_dtypes_of_spec_and_inputs(spec_json: Json) -> set[str]:
    """Return the dtypes, such as {"bfloat16"}, of a run and of all runs it builds on.

    Runs of different dtypes are not compared, as rounding would add to their
    difference. The dtype of a latency measurement itself does not count, only those of
    the models that it timed.

    spec_json: the description of the run as JSON, with those of its inputs inside."""
    numerics = (
        {}
        if spec_json.get("step") == "latency"
        else spec_json["args"].get("numerics") or {}
    )
    types = {numerics["dtype"]} if numerics else set()
    return types.union(
        *map(collect_dtypes_of_spec_and_inputs, spec_json.get("inputs", {}).values())
    )


def group_comparable_rows_by_task_and_seed(
    rows: Iterable[ResultRow],
) -> list[list[ResultRow]]:
    """Group rows of runs by task and seed: the runs of one group are compared.

    Return a list of groups, each a list of rows. A row whose "run" is None is left out,
    unless its "state" is the text MIXED: its run was dropped because the group had two
    dtypes, and pages count such rows.

    rows: dicts with "task", "seed" and "run" (a Run, the stored result, or None)."""
    groups = defaultdict(list)
    for row in rows:
        if row["run"] or row.get("state") == MIXED:
            groups[row.get("task"), row.get("seed")].append(row)
    return list(groups.values())


def collect_dtypes_of_runs(runs: Iterable[Run]) -> set[str]:
    """Return the dtypes, such as {"bfloat16"}, of some runs and all runs they build on.

    More than one dtype means that the runs cannot be compared as they are."""
    return set().union(*(collect_dtypes_of_spec_and_inputs(run.spec) for run in runs))


def substitute_float32_for_mixed_dtypes(
    rows: Sequence[ResultRow],
) -> list[ResultRow]:
    """Replace runs so that all runs of one task and seed have the same dtype.

    Rounding would otherwise add to their difference. Where bfloat16 and float32 are
    mixed, each bfloat16 run is replaced by the same run in float32. If one of these is
    missing, all rows of the task and seed that have a run get "run": None and "state":
    MIXED, a text that says why. Return the rows in their order, changed ones as copies.

    rows: a dict for each run, with "task", "seed", "run" (a Run with the stored result,
    or None), its metrics and labels such as "model"."""
    changed = {}
    for group in group_comparable_rows_by_task_and_seed(rows):
        runs = {id(row): row["run"] for row in group if row["run"]}
        if len(collect_dtypes_of_runs(runs.values())) < 2:
            continue
        twins = {key: run.float32_run or run for key, run in runs.items()}
        is_mixed = len(collect_dtypes_of_runs(twins.values())) > 1
        for row in group:
            metrics = row["run"].metrics if row["run"] else {}
            labels = {
                name: value  # A label may have the name of a metric.
                for name, value in row.items()
                if name not in metrics or value != metrics[name]
            }
            if is_mixed or id(row) not in twins:
                changed[id(row)] = labels | {"run": None, "state": MIXED}
            else:
                changed[id(row)] = add_run_metrics_to_row(
                    labels | {"run": twins[id(row)]}
                )
    return [changed.get(id(row), row) for row in rows]


def describe_pair_counts_by_dtype(
    *compared_rows: Sequence[ResultRow],
    mixed_runs_are: str = " do not count",
) -> list[str]:
    """Return a list with a sentence on how many comparisons were made in which dtype.

    Notes of claims and tables show it. The sentence also says how many tasks and seeds
    have runs of different dtypes. The list is empty where all runs have one dtype.

    compared_rows: lists of dicts with "task", "seed" and "run" (a Run with the stored
    result, or None). In each list, the runs of one task and seed are compared.
    mixed_runs_are: what becomes of runs of different dtypes, as the sentence's end."""
    counts = Counter()
    groups = [
        group
        for part in compared_rows
        for group in group_comparable_rows_by_task_and_seed(
            substitute_float32_for_mixed_dtypes(part)
        )
    ]
    for group in (group for group in groups if len(group) > 1):
        is_whole = all(row["run"] for row in group)
        known = collect_dtypes_of_runs(row["run"] for row in group if row["run"])
        counts["".join(known) if is_whole else MIXED] += 1
    mixed = counts.pop(MIXED, 0)
    single = [f"{n} in {name}" for name, n in sorted(counts.items()) if name]
    if len(single) < 2 and not mixed:
        return []
    texts = [", ".join(single)] * bool(single)
    texts += [f"{mixed} {MIXED}{mixed_runs_are}"] * bool(mixed)
    return [f"Tasks and seeds compared: {'; '.join(texts)}"]


class LabelsAndPredictions(TypedDict):
    labels: np.ndarray
    said: np.ndarray  # Predicted classes or values, or scores of answer spans.
    index: list[Any]  # Equal for two runs on the same examples.
    cluster: np.ndarray  # Number of each example's cluster.


@lru_cache(maxsize=512)
def read_labels_and_predictions(run: Run, column: MetricColumn) -> LabelsAndPredictions:
    """Return labels and predictions of the N examples on which a run is scored.

    The keys are "labels" [N]; "said" [N], the predicted classes or values, or for
    answer spans the score of each question; "cluster" [N], the number of each example's
    cluster; and "index", a list that is equal for two runs on the same examples. Scores
    and paired tests read these arrays. Examples that share text are in one cluster, if
    the run has unseen rows (labelled rows that no training used); otherwise each
    example is a cluster. The examples are the rows of the MetricColumn's split; unseen
    rows follow after development rows. Raises FileNotFoundError where the run has no
    predictions.

    column: a metric on a split of a task."""
    stored = run.read_arrays(column.predictions_file_stem)
    if column.metric in MARKS:
        said = stored[column.metric]
    else:
        said = predict_classes(stored["logits"])
    labels, index = stored["labels"], stored["index"].tolist()
    cluster = np.arange(len(labels))
    described = run.spec["args"].get("data", {})
    unseen_spec = described.get("unseen")
    if column.split == "dev" and unseen_spec:
        more = data.read_unseen_row_scoring_arrays(described)
        answers = data.unpack_predictions(
            run.read_arrays("predictions_unseen"), unseen_spec["rows"]
        )
        rows, cluster = more["judged"], more["cluster"]
        labels = np.concatenate([labels, more["labels"][rows]])
        said = np.concatenate([said, answers[rows]])
        index.append(unseen_spec["digest"])
    return {"labels": labels, "said": said, "index": index, "cluster": cluster}


@dataclass(frozen=True)
class ScoreAndChance:
    """A ScoreAndChance has a run's score and the score possible without learning.

    The run has collapsed if its score is not above `chance_score`, or if it predicts
    the same for all examples (`is_constant`). Collapsed runs are left out of
    comparisons. Both scores are in points, 0 to 100."""

    score: float  # Score in points, from 0 to 100.
    # Score in points that is possible without learning: for accuracy, two standard
    # errors above the share of the most frequent class.
    chance_score: float
    is_constant: bool  # Whether the run predicts the same value for all examples.

    @property
    def has_collapsed(self) -> bool:
        return self.is_constant or self.score <= self.chance_score


@lru_cache(maxsize=8192)
def measure_score_and_chance_level(run: Run, column: MetricColumn) -> ScoreAndChance:
    """Return the ScoreAndChance of a run by a metric: its score, and that of chance.

    It tells whether the run collapsed, that is, learned nothing. Chance is the accuracy
    of the most frequent class, the F1 of always predicting class 1, or a correlation of
    0. For answer spans it is the share of questions without an answer. Two standard
    errors are added to this chance, but not for F1. A run without predictions, as after
    a loss that was not finite, counts as collapsed.

    column: a metric on a split of a task."""
    try:
        rows = read_labels_and_predictions(run, column)
    except FileNotFoundError:
        return ScoreAndChance(0.0, 0.0, True)
    labels, said, n = rows["labels"], rows["said"], len(rows["labels"])
    if column.metric == "f1":
        most = float(np.mean(labels == 1))
        chance = 2 * most / (1 + most)
    else:
        # A model of answer spans that learned nothing predicts "no answer" everywhere.
        # That is right for questions without an answer, whose label is below 0.
        counts = np.unique(labels, return_counts=True)[1]
        is_span = column.metric in MARKS
        most = float(np.mean(labels < 0) if is_span else counts.max() / n)
        is_share = is_span or column.metric == "accuracy"
        chance = compute_above_chance_threshold(most if is_share else None, n)
    points = 100 * score_answers(column.metric, said, labels)
    return ScoreAndChance(points, 100 * chance, len(np.unique(said)) == 1)


def compute_above_chance_threshold(
    constant_prediction_accuracy: AccuracyOrNoneForCorrelation, row_count: int
) -> float:
    """Return the score that counts as chance: that of guessing, plus two standard
    errors.

    constant_prediction_accuracy: the accuracy of the most frequent class, from 0 to 1.
    None stands for a correlation, which is 0 by guessing, with a standard error of 1 /
    sqrt(n).
    row_count: the number n of scored examples."""
    if constant_prediction_accuracy is None:
        return 2 / row_count**0.5
    variance = constant_prediction_accuracy * (1 - constant_prediction_accuracy)
    return constant_prediction_accuracy + 2 * (variance / row_count) ** 0.5


def make_mask_of_collapsed_runs(
    frame: pd.DataFrame, columns_by_task: Mapping[str, Sequence[MetricColumn]]
) -> np.ndarray:
    """Return for each of N runs whether it collapsed, bool [N].

    A run has collapsed if it scores no better than chance, or predicts the same for all
    examples. Tables leave it out, and claims that a method trains unstably compare the
    shares of such runs. A missing run counts as not collapsed.

    frame: a row for each run, with the columns task and run (a Run with the stored
    result, None if missing).
    columns_by_task: {task: its Columns (metrics on splits)}; only the first is used."""
    both = zip(frame["run"], frame["task"], strict=True)
    lost = [
        run
        and measure_score_and_chance_level(run, columns_by_task[task][0]).has_collapsed
        for run, task in both
    ]
    return np.array(lost, bool)


def read_recorded_score(run: Run | None, column: MetricColumn) -> float:
    """Return a run's recorded score by a metric, from 0 to 1; nan where it has none.

    Only the rows of the MetricColumn's split count, as in the scores of papers. Extra
    labelled rows that no training used (unseen rows) are added by
    `compute_score_including_unseen_rows`.

    column: a metric on a split of a task."""
    return getattr(run, "metrics", {}).get(column.score_key, nan)


def compute_score_including_unseen_rows(run: Run | None, column: MetricColumn) -> float:
    """Return a run's score by a metric on all its rows, from 0 to 1; nan if missing.

    On the development split, unseen rows count too: labelled rows that neither training
    nor the choice of settings used. More rows give narrower intervals. A metric not
    computed on unseen rows, such as the share of remaining weights, is returned as
    recorded.

    column: a metric on a split of a task."""
    metrics = getattr(run, "metrics", ())
    if column.split != "dev" or f"unseen.{column.metric}" not in metrics:
        return read_recorded_score(run, column)
    rows = read_labels_and_predictions(run, column)
    return score_answers(column.metric, rows["said"], rows["labels"])


# Columns that `tabulate_scores_by_run_and_metric` adds. "score" counts development rows and
# unseen rows (labelled rows that no training used), "development" only the former.
SCORES = ("score", "development")
# How the title of a column ends, if its scores leave out the unseen rows (labelled rows
# that no training used).
ALONE = "development rows alone"


def tabulate_scores_by_run_and_metric(
    frame: pd.DataFrame, columns_by_task: Mapping[str, Sequence[MetricColumn]]
) -> pd.DataFrame:
    """Return a table of scores in points (0 to 100), a line for each run and metric.

    It has the columns of `frame` and three more: "column", the title of the metric;
    "score", on development and unseen rows (labelled rows that no training used); and
    "development", without unseen rows. A score is nan where the run is missing. A
    metric on a split that no run has is left out.

    frame: a row for each run, with the columns task, run (a Run with the stored result,
    None if missing), its metrics and labels such as model.
    columns_by_task: {task: its Columns (metrics on splits)}."""
    import pandas as pd

    lines = []
    for row in frame.to_dict("records"):
        for column in columns_by_task[row["task"]]:
            if column.split == "dev" or column.score_key in frame:
                run = row.get("run")
                score = compute_score_including_unseen_rows(run, column)
                scores = {
                    "column": column.title,
                    "score": 100 * score,
                    "development": 100 * read_recorded_score(run, column),
                }
                lines.append(row | scores)
    names = list(dict.fromkeys([*frame, "column", *SCORES]))
    return pd.DataFrame(lines, columns=names).astype(dict.fromkeys(SCORES, float))


def format_score_column_heading(runs_frame: pd.DataFrame, profile: str) -> str:
    """Return the head over a table's scores that says where they come from.

    It is "this run, toy" for results of this machine, and "recorded, mini" for results
    that are committed with the code. Where there are no results, it begins with "not
    run".

    runs_frame: a row for each run, with the column run (a Run with the result, or
    None).
    profile: the size of the experiments, such as "mini"."""
    origins = {run.origin for run in runs_frame.get("run", ()) if run is not None}
    words = {"run": "this run", "record": "recorded"}
    label = " and ".join(word for origin, word in words.items() if origin in origins)
    return f"{label or 'not run'}, {profile}"


def list_width_and_model_columns(frame: pd.DataFrame) -> list[str]:
    """Return the columns of a table of runs that name the rows of a table of scores.

    They are "m" (number of kept heads in a layer), if the table has it, and "model"."""
    return [name for name in ("m", "model") if name in frame]


def mask_scores_at_seeds_of_one_model(
    scores: pd.DataFrame, model_columns: list[str]
) -> pd.DataFrame:
    """Return a table of scores with nan where no other model has the same seed.

    Models are grouped by metric and, if "m" is in `model_columns`, by their number of
    heads. A score stays if another model of its group has a score at the same seed. So
    in a group of two models both means are over the same seeds; in a larger group seeds
    may still differ. A group in which no two models share a seed stays as it is.

    scores: a table of `tabulate_scores_by_run_and_metric`, a line for each run and
    metric.
    model_columns: the columns that identify a model."""
    model_ids = scores.groupby(model_columns).ngroup().where(scores["score"].notna())
    place = [
        scores[name] for name in ("column", "m") if name in ("column", *model_columns)
    ]
    shared = model_ids.groupby([*place, scores["seed"]]).transform("nunique") > 1
    shared |= ~shared.groupby(place).transform("any")
    return scores.assign(**{name: scores[name].where(shared) for name in SCORES})


def average_scores_over_tasks(run_scores: pd.DataFrame) -> pd.DataFrame:
    """Average the scores over the metrics of all tasks, for each model and seed.

    Return a table with "model", "seed" and "score" in points, and "m" (number of kept
    heads) if `run_scores` has it. A seed at which a model lacks the score of a metric
    is left out. Where models share seeds, a seed that only one model has is left out
    too.

    run_scores: a table of `tabulate_scores_by_run_and_metric`, a line for each run and
    metric."""
    names = list_width_and_model_columns(run_scores)
    shared = mask_scores_at_seeds_of_one_model(run_scores, names).dropna(
        subset=["score"]
    )
    groups = shared.groupby([*names, "seed"], sort=False)["score"]
    by = groups.agg(score="mean", count="count").reset_index()
    return by[by["count"] == shared["column"].nunique()].drop(columns="count")


def join_tables_by_row(
    *values_by_column_by_row: Mapping[Any, Mapping[Any, Any]],
    index_names: Sequence[str] = ("m", "model"),
) -> pd.DataFrame:
    """Join several tables {row: {column: value}} into one DataFrame.

    So numbers of a paper and measured ones stand side by side. Rows with equal keys
    become one row, and values are not changed. Keys that are tuples make a MultiIndex.
    Rows and columns stand in the order in which they first occur, and missing values
    are nan.

    index_names: names of the levels of the row index. With fewer levels than names, the
    last names are used."""
    import pandas as pd

    merged: dict[Any, dict[Any, Any]] = {}
    heads: dict[Any, None] = {}
    for part in values_by_column_by_row:
        for key, row in part.items():
            merged.setdefault(key, {}).update(row)
            heads |= dict.fromkeys(row)
    values = [[row.get(head, nan) for head in heads] for row in merged.values()]
    frame = pd.DataFrame(values, pd.Index([*merged]), pd.Index([*heads]), dtype=object)
    levels = frame.index.nlevels
    return frame.rename_axis(
        [*[None] * (levels - len(index_names)), *index_names][-levels:]
    )


# A seed is reported as outlying if its score is more than this many points (of 100)
# from the median over seeds.
FAR = 10.0


def describe_outlying_seeds(
    runs_frame: pd.DataFrame, columns_by_task: Mapping[str, Sequence[MetricColumn]]
) -> list[str]:
    """Return a warning for each model and metric with a few outlying seeds.

    Pruned models with different numbers of kept heads count as several models. A seed
    is outlying if its score is more than FAR (10) points from the median over seeds.
    There is no warning with fewer than three seeds, or where half or more are outlying.
    A model with several runs of a seed, such as one for each length of
    training, has no warning either: its runs differ in more than the seed. Runs that
    train no model (SCORED has the steps that do) do not count.

    runs_frame: a row for each run, with the column spec (the description of the run).
    Without the columns task, model, seed and run the list is empty.
    columns_by_task: {task: its Columns (metrics on splits)}."""
    if not {"task", "model", "seed", "run"} <= {*runs_frame}:
        return []
    runs_frame = select_runs_of_trained_models(runs_frame)
    runs_frame = runs_frame[runs_frame["task"].isin([*columns_by_task])]
    lines = []
    names = [*list_width_and_model_columns(runs_frame), "column"]
    for key, rows in (
        tabulate_scores_by_run_and_metric(runs_frame, columns_by_task)
        .dropna(subset="score")
        .groupby(names, sort=False)
    ):
        far = (rows["score"] - rows["score"].median()).abs() > FAR
        is_spread_of_seeds = len(rows) >= SEEDS and rows["seed"].is_unique
        if not is_spread_of_seeds or not 0 < 2 * far.sum() < len(rows):
            continue
        *_, model, column = key
        place = (
            f" at {format_kept_head_fraction(dict(rows.iloc[0]))}"
            if "m" in rows
            else ""
        )
        rest = rows["score"][~far]
        several = "seeds {} have" if far.sum() > 1 else "seed {} has"
        seeds = several.format(join_texts_with_and(map(str, rows["seed"][far])))
        scores = join_texts_with_and(f"{score:.1f}" for score in rows["score"][far])
        reach = dict.fromkeys(f"{end:.1f}" for end in (rest.min(), rest.max()))
        others = f"the others {' to '.join(reach)}"
        lines.append(f"{model}{place} on {column}: {seeds} {scores}, {others}")
    return lines


def join_texts_with_and(texts: Iterable[str]) -> str:
    """Join texts to an enumeration for a sentence: "13, 14 and 15".

    Messages name the seeds of outlying runs so. Raises ValueError without texts."""
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def add_run_metrics_to_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the metrics of its run as further keys.

    Tables of results have such rows. If a metric has the name of a label, the label
    stays.

    row: the labels of a run and, under "run", the run or None."""
    metrics = row["run"].metrics if row["run"] else {}
    return row | {name: value for name, value in metrics.items() if name not in row}


def select_rows_with_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a table of runs whose run exists.

    Rows of runs that are missing or failed have None in the column "run"."""
    return frame[frame["run"].notna()]


def select_runs_of_trained_models(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a table of runs whose run exists and trained a model.

    frame: a row for each run, with the columns run (a Run with the stored result, None
    if missing) and spec (the description of the run)."""
    return frame[frame["run"].notna() & frame["spec"].map(is_scored_on_examples)]


def format_mean_and_deviation(
    scores: Iterable[float | None],
    mean_to_show: float | None = None,
    collapsed_count: int = 0,
) -> str:
    """Return mean and standard deviation over seeds as text: "81.2 ± 0.4 (3)".

    The number in brackets is that of seeds. Values that are None or not finite are left
    out. If no value is left, the text is a dash; a single value has no deviation (ddof
    = 1).

    mean_to_show: a value to show in place of the mean.
    collapsed_count: the number of seeds left out because the run scored no better than
    chance; it is shown behind the number of seeds."""
    x = np.array([v for v in scores if v is not None and isfinite(v)])
    if not len(x):
        return "–"
    deviation = f" ± {x.std(ddof=1):.1f}" if len(x) > 1 else ""
    beside = f"; {collapsed_count} collapsed" if collapsed_count else ""
    return f"{x.mean() if mean_to_show is None else mean_to_show:.1f}{deviation} ({len(x)}{beside})"


def format_number_with_its_sign_side(value: float, digits: int) -> str:
    """Return a number with so many decimals, or with one digit where that shows 0.

    A number of at least 0.0001 is never shown as 0.0, so that a reader can see on which
    side of 0 the end of an interval lies."""
    text = f"{value:.{digits}f}"
    if value and not float(text):
        text = f"{value:.1g}" if abs(value) >= 1e-4 else f"{0:.{digits}f}"
    return text


def format_estimate_with_interval(
    estimate: Estimate | None, spells_out_units: bool = False
) -> str:
    """Return an Estimate with its 95 % interval and number of seeds as text.

    The form is "+0.4 [-0.2, 1.1] (3)", in points. With fewer than SEEDS (3) seeds the
    interval is left out. Without an Estimate (a number with its interval) the text is a
    dash.

    spells_out_units: whether the form is that of sentences, "+0.4 [−0.2, 1.1] points, 3
    seeds"."""
    if estimate is None or not isfinite(estimate.mean):
        return "–"
    mean, low, high = (
        format_number_with_its_sign_side(value, 1)
        for value in (estimate.mean, estimate.low, estimate.high)
    )
    mean = mean if mean.startswith("-") else f"+{mean}"
    ends = f" [{low}, {high}]" * (estimate.n_seeds >= SEEDS)
    if spells_out_units:
        seeds = "1 seed" if estimate.n_seeds == 1 else f"{estimate.n_seeds} seeds"
        return f"{mean}{ends} points, {seeds}".replace("-", "−")
    return f"{mean}{ends} ({estimate.n_seeds})"


def make_score_table_by_task(
    runs_frame: pd.DataFrame,
    columns_by_task: Mapping[str, Sequence[MetricColumn]],
    source_name: str,
    row_label_columns: Sequence[str] = (),
) -> ScoreTable:
    """Return a table of scores, mean and standard deviation over seeds in points.

    The form is {row: {(source_name, title of the metric): text}}. A row is a model, or
    ("3/12", model) if `runs_frame` has "m", the number of kept heads, here 3 of 12.
    Left out are runs that collapsed (scored no better than chance), unless all runs of
    a row and metric did, as the text then says. Left out too are runs at a seed of one
    model alone, where models share seeds. With several metrics there is a column
    "average". Its mean is that of the columns' means, and its deviation is over the
    seeds that have all metrics. Where scores count unseen rows too (labelled rows that
    no training used), further columns have the scores without them. Without scores the
    text is a dash.

    runs_frame: a row for each run.
    columns_by_task: {task: its Columns (metrics on splits)}.
    source_name: where the numbers come from, such as "recorded, mini" for stored
    results of experiments at the size mini.
    row_label_columns: columns of `runs_frame` that name the rows instead, joined by " ·
    "; there is no average then, and texts without scores are left out."""
    import pandas as pd

    names = list(row_label_columns) or list_width_and_model_columns(runs_frame)
    scored = tabulate_scores_by_run_and_metric(runs_frame, columns_by_task)
    lost = pd.Series(
        make_mask_of_collapsed_runs(scored, columns_by_task), scored.index, dtype=bool
    )
    # If all runs of a table's row collapsed, their scores are kept, so that the table
    # still shows them.
    of_row = [scored[name] for name in (*names, "column")]
    shows_collapsed = lost.groupby(of_row).transform("all")
    lost &= ~shows_collapsed
    sound = {name: scored[name].mask(lost) for name in SCORES}
    scored = mask_scores_at_seeds_of_one_model(scored.assign(**sound), names)
    metrics = scored.dropna(subset="score")["column"]
    has_average = not row_label_columns and metrics.nunique() > 1
    table, means = {}, {}
    if has_average:
        means = dict(list(average_scores_over_tasks(scored).groupby(names)["score"]))
    for key, rows in scored.groupby(names, sort=False):
        name = " · ".join(map(str, key))
        if "m" in rows and not row_label_columns:
            name = format_kept_head_fraction(dict(rows.iloc[0])), key[1]
        row, alone = {}, {}
        for title, part in rows.groupby("column", sort=False):
            if not row_label_columns or part["score"].notna().any():
                text = format_mean_and_deviation(
                    part["score"], collapsed_count=lost[part.index].sum()
                )
                if shows_collapsed[part.index].all():
                    text = text.replace(")", "; all collapsed)")
                row[source_name, title] = text
            if (part["score"] - part["development"]).any():
                alone[source_name, f"{title}, {ALONE}"] = format_mean_and_deviation(
                    part["development"]
                )
        if has_average:
            of_tasks = rows.groupby("column")["score"].mean().mean()
            row[source_name, "average"] = format_mean_and_deviation(
                means.get(key, ()), of_tasks
            )
        table[name] = row | alone
    return table


def collect_averages_over_tasks(
    score_tables: Iterable[ScoreTable],
) -> dict[tuple[str, Any], str]:
    """Return {(source, name of a row): text} of the averages in tables of scores.

    A page shows them alone where a paper prints only averages. With a single task the
    text is that of its score.

    score_tables: tables of `make_score_table_by_task`, one for each source."""
    averages = {}
    for name, row in (item for table in score_tables for item in table.items()):
        for (source, title), text in row.items():
            if title == "average" or (source, name) not in averages:
                averages[source, name] = text
    return averages


def estimate_difference(
    runs_frame: pd.DataFrame,
    method_name: str,
    baseline_name: str,
    columns_by_task: Mapping[str, Sequence[MetricColumn]],
) -> Estimate | None:
    """Estimate the paired difference between two models, method minus baseline.

    Return an Estimate in points, with its 95 % interval, or None where no two runs can
    be paired. Runs are paired by task and seed; the mean is over seeds, then over
    tasks.

    runs_frame: a row for each run, with the columns task, seed, model and run (a Run
    with the stored result, None if missing).
    method_name, baseline_name: names in the column `model`.
    columns_by_task: {task: its Columns (metrics on splits)}."""
    replicates = pair_runs_of_models(
        runs_frame, method_name, baseline_name, columns_by_task
    )
    return estimate_paired_difference(replicates) if replicates else None
