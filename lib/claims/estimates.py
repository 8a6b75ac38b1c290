"""This module estimates one comparison of a claim from the rows of its runs.

The estimate is a paired contrast of scores over seeds and examples, or a mean of
another measure over seeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from lib.claims.cells import (
    Comparison,
    ModelSelector,
    row_matches_model,
)
from lib.claims.measures import MetricColumnsByTask, compute_measure_of_each_run
from lib.core.rows import ResultRow
from lib.stats import compare, paired

if TYPE_CHECKING:
    import pandas as pd


class SeedCounts(NamedTuple):
    planned: int
    ended: int  # Seeds of which each run was made or has failed.


class WeightedPairs(NamedTuple):
    pairs: list[paired.Pair]  # Pairs of runs at equal seeds.
    # The effect of a comparison is the sum, over its WeightedPairs, of this weight
    # times the mean difference of the pairs.
    weight: float


def group_rows_by_model(
    comparison: Comparison, rows: Sequence[ResultRow]
) -> list[tuple[ModelSelector, list[ResultRow]]]:
    """Return [(model, its rows), ...] for the models of a comparison.

    A model is its label with conditions on its runs, such as ("Ghost", (("m", "3"),)).
    The models have the order of the comparison's text.

    rows: lines of a table of results, each with the labels of a run."""
    return [
        (model, select_rows_of_model(rows, model))
        for _, models in comparison.terms
        for model in models
    ]


def select_rows_of_model(
    rows: Sequence[ResultRow], model: ModelSelector
) -> list[ResultRow]:
    """Return the rows of a table of results that are runs of one compared model.

    model: its label with conditions on its runs, such as ("Ghost", (("m", "3"),))."""
    return [row for row in rows if row_matches_model(row, *model)]


def make_data_frame_per_model(
    comparison: Comparison, rows: Sequence[ResultRow]
) -> list[pd.DataFrame]:
    """Return one DataFrame of result rows for each model of a comparison.

    The models have the order of the comparison's text. Measures that need all runs of a
    model at once, such as a ratio of variances, take these frames.

    rows: lines of a table of results, each with the labels and metrics of a run."""
    import pandas as pd

    return [pd.DataFrame(part) for _, part in group_rows_by_model(comparison, rows)]


def make_value_frame_per_model(
    comparison: Comparison,
    rows: Sequence[ResultRow],
    columns_by_task: MetricColumnsByTask,
) -> list[pd.DataFrame]:
    """Return a DataFrame per model as `make_data_frame_per_model`, with column "value".

    The column has the compared quantity of each run, such as its share of remaining
    weights.

    rows: lines of a table of results, each with the labels and metrics of a run.
    columns_by_task: {task: its Columns}, the metrics by which the task is scored."""
    import pandas as pd

    frame = compute_measure_of_each_run(
        comparison.measure, pd.DataFrame(rows), columns_by_task
    )
    # pyrefly: ignore[bad-argument-type]  # pandas' stub lets columns be any Hashable.
    return make_data_frame_per_model(comparison, frame.to_dict("records"))


def select_result_rows_in_one_dtype(
    comparison: Comparison, rows: Sequence[ResultRow]
) -> list[ResultRow]:
    """Return the rows of the runs that a comparison uses, without mixed dtypes.

    Rounding would add to a difference between bfloat16 and float32 runs. Where the runs
    of one task and seed have both dtypes, they are replaced by the same runs in
    float32. If these are missing, the rows get the run None. Runs of a single model,
    which is compared with a number, may have both. Raises LookupError, with the name of
    the model, if a compared model has no row.

    rows: lines of a table of results, each with the labels and metrics of a run."""
    if not comparison.measure:
        rows = [row for row in rows if compare.is_scored_on_examples(row["spec"])]
    row_ids = set()
    for (label, where), part in group_rows_by_model(comparison, rows):
        if not part:
            place = ", ".join(f"{key} {value}" for key, value in where)
            raise LookupError(" at ".join(filter(None, [label, place])))
        row_ids |= {*map(id, part)}
    rows = [row for row in rows if id(row) in row_ids]
    if comparison.has_several_models:
        return compare.substitute_float32_for_mixed_dtypes(rows)
    return rows


def count_planned_and_ended_seeds(
    comparison: Comparison, rows: Sequence[ResultRow]
) -> SeedCounts:
    """Count the seeds of a comparison: return (planned seeds, ended seeds).

    Each number is the smallest over all pairs of a compared model and a task. A seed
    has ended where each of its runs was made or has failed. From the two numbers a
    reader sees whether runs are still missing.

    rows: lines of a table of results, with seed, run (None where missing) and state."""
    every, lacking = defaultdict(set), defaultdict(set)
    for model, part in group_rows_by_model(comparison, rows):
        for row in part:
            place = model, str(row.get("task"))
            every[place].add(row["seed"])
            if row["run"] is None and row["state"] != "failed":
                lacking[place].add(row["seed"])
    ended = [len(seeds - lacking[place]) for place, seeds in every.items()]
    return SeedCounts(min(map(len, every.values())), min(ended))


def estimate_comparison_effect(
    comparison: Comparison,
    rows: Sequence[ResultRow],
    columns_by_task: MetricColumnsByTask,
    weighted_pairs: Sequence[WeightedPairs],
) -> paired.Estimate | None:
    """Estimate the effect of one comparison of models from its runs.

    Return an Estimate (a number with its 95 % interval), or None where there are too
    few runs for one. Task scores are compared in pairs over seeds and examples. Any
    other measure is averaged over seeds, or has a function of its own.

    rows: lines of a table of results, each with the labels and metrics of a run.
    columns_by_task: {task: its Columns}, the metrics by which the task is scored.
    weighted_pairs: [(pairs of runs, factor of their mean difference in the effect),
    ...] from `pair_runs_of_compared_models`; used for task scores alone."""
    if function := comparison.measured_quantity.estimate_from_model_frames:
        return function(
            make_data_frame_per_model(comparison, rows),
            columns_by_task,
            comparison.measure_argument,
        )
    if comparison.measure:
        return estimate_non_score_effect(comparison, rows, columns_by_task)
    tasks = [{pair.task for pair in group} for group, _ in weighted_pairs]
    pairs, weights = zip(*weighted_pairs, strict=True)
    # While runs are missing, groups are compared on the tasks that all of them have.
    if any(not a.isdisjoint(b) for a, b in combinations(tasks, 2)):
        common = set.intersection(*tasks)
        pairs = [[pair for pair in group if pair.task in common] for group in pairs]
    return (
        paired.estimate_weighted_sum_of_differences(pairs, weights)
        if all(pairs)
        else None
    )


def pair_runs_of_compared_models(
    comparison: Comparison,
    rows: Sequence[ResultRow],
    columns_by_task: MetricColumnsByTask,
    models_expected_to_collapse: Collection[str] = (),
) -> list[WeightedPairs]:
    """Pair the runs of the compared models by task and seed.

    Return a list of (pairs, weight), one for each difference of two models. A Pair has
    the predictions of both models on the same examples, at one seed. The effect of the
    comparison is the sum of weight * mean difference. A seed at which a model collapsed
    (scored no better than chance) makes no Pair, unless the model is one of
    `models_expected_to_collapse`.

    comparison: the comparison.
    rows: lines of a table of results, with labels and run.
    columns_by_task: {task: its Columns}, the metrics by which the task is scored.
    models_expected_to_collapse: labels of models whose failure is what the paper
    claims."""
    both = [term for term in comparison.terms if len(term[1]) > 1]
    alone = [term for term in comparison.terms if len(term[1]) == 1]
    # The weights of these single models sum to 0. So the weighted sum of their scores
    # equals the weighted sum of the differences of each from the last one.
    for weight, models in alone[:-1]:
        both.append((weight, models + alone[-1][1]))
    groups = []
    for weight, models in both:
        method_rows, baseline_rows = (
            select_rows_of_model(rows, model) for model in models
        )
        spared = [label in models_expected_to_collapse for label, _ in models]
        pairs = compare.pair_runs_by_task_and_seed(
            method_rows, baseline_rows, columns_by_task, *spared
        )
        groups.append(WeightedPairs(pairs, weight))
    return groups


def estimate_non_score_effect(
    comparison: Comparison,
    rows: Sequence[ResultRow],
    columns_by_task: MetricColumnsByTask,
) -> paired.Estimate | None:
    """Estimate a comparison of another quantity than the task score.

    Return an Estimate (a number with its 95 % interval), or None where runs are
    missing. A number, such as the share of remaining weights, is averaged over the runs
    of a seed, on those tasks that all models have at all seeds. These means are summed
    over models with the comparison's weights, such as 1 for the method and -1 for its
    rival; the interval is over seeds. For a quantity that is true or false, the
    estimate is the difference between the models' shares of true runs, in points, or
    the share of a single model.

    rows: lines of a table of results, each with the labels and metrics of a run.
    columns_by_task: {task: its Columns}, the metrics by which the task is scored."""
    parts = make_value_frame_per_model(comparison, rows, columns_by_task)
    if not all(map(len, parts)):
        return None
    if parts[0]["value"].dtype == bool:
        fewest = min(part["seed"].nunique() for part in parts)
        e = paired.estimate_difference_of_proportions(
            *(part["value"] for part in parts)
        )
        # With equal bounds the claim is that no run, or every run, has the property.
        # Counting the runs decides it, so the interval has no width.
        if comparison.bounds[0] == comparison.bounds[1]:
            e = replace(e, low=e.mean, high=e.mean)
        return replace(e, n_seeds=fewest)
    if "task" in parts[0]:
        parts = select_rows_of_common_tasks(parts)
    means = [part.groupby("seed")["value"].mean() for part in parts]
    signs = [
        weight * sign
        for weight, models in comparison.terms
        for sign in (1, -1)[: len(models)]
    ]
    total: Any = sum(sign * mean for sign, mean in zip(signs, means, strict=True))
    values = total.dropna()
    return (
        paired.estimate_mean_over_seeds(
            values, comparison.measured_quantity.rounding_step
        )
        if len(values)
        else None
    )


def list_tasks_in_non_score_estimate(
    comparison: Comparison,
    rows: Sequence[ResultRow],
    columns_by_task: MetricColumnsByTask,
) -> set[str]:
    """Return the tasks over which `estimate_non_score_effect` takes its means.

    They are those that all compared models have at all of their seeds, so a reader sees
    which of the planned tasks the estimate is of. It is empty without an estimate.

    rows: lines of a table of results, each with the labels and metrics of a run.
    columns_by_task: {task: its Columns}, the metrics by which the task is scored."""
    parts = make_value_frame_per_model(comparison, rows, columns_by_task)
    if not all(map(len, parts)):
        return set()
    return {*select_rows_of_common_tasks(parts)[0]["task"]}


def select_rows_of_common_tasks(
    model_frames: Sequence[pd.DataFrame],
) -> list[pd.DataFrame]:
    """Keep the rows of those tasks that each model has at each of its seeds.

    So the means of all seeds are over the same tasks, and an effect of the task is no
    effect of the seed or of the model. Where no task is common, no row is left.

    model_frames: for each model a table with a row for each run, with the columns task
    and seed."""
    tasks_of_groups = [
        set(tasks)
        for frame in model_frames
        for _, tasks in frame.groupby("seed")["task"]
    ]
    common_tasks = set.intersection(*tasks_of_groups)
    return [frame[frame["task"].isin(common_tasks)] for frame in model_frames]
