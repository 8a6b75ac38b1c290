"""This module has the frontier: a comparison of score and cost of the compression
methods of all papers.

No paper compares itself with the others. Here all methods have one teacher and the same
rows, epochs and seeds. A point of the frontier is a method at a budget, a share m/12 of
the whole model's FLOPs. Each paper lists its methods in its `frontier.py`
(lib.papers.points). This module adds controls that the papers lack, and combinations
that they call orthogonal but never tried. It does not import torch."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lib.core.names import Refused
from lib.core.options import SurgeryOperation, Targets
from lib.core.papers import import_module_of_each_paper
from lib.core.spec import Spec, to_plain_json
from lib.core.store import Run
from lib.core.types import Json
from lib.methods import METHODS, import_method
from lib.papers import grids, students
from lib.papers.grids import find_encoder_shape
from lib.papers.points import TOKENS as TOKENS
from lib.papers.points import (
    Method,
    frontier_student_spec,
    make_single_stage_settings,
    quantised_spec,
    searched_student_spec,
)
from lib.stats import compare, cost, paired
from lib.stats.compare import Column

if TYPE_CHECKING:
    import pandas as pd

PointRow = Json  # A line of `make_points_table`, or columns of it.
HEADS = students.HEADS
S = grids.read_settings("frontier")
# Tables of frontier.toml beside this module, whose comments describe them.
ORDER: tuple[str, ...] = S.ORDER
SLACK: float = S.SLACK
EVEN: float = S.EVEN
BUDGETS: dict[str, tuple[int, ...]] = S.BUDGETS
TASKS: dict[str, tuple[str, ...]] = S.TASKS
SEEDS: dict[str, tuple[int, ...]] = S.SEEDS
LISTED: dict[str, tuple[str, ...]] = S.LISTED
AXES: dict[str, str] = S.AXES

tasks = partial(grids.select_tasks, by_profile=TASKS)
seeds = partial(grids.select_seeds, by_profile=SEEDS)


def uniformly_pruned_spec(profile: str, task: str, width_in_twelfths: int) -> Spec:
    """Return the Spec of a pruned model that keeps the first heads and neurons of each
    layer instead of the most important ones, a control for the ranking.

    It is trained on the teacher's logits alone.

    width_in_twelfths: the share of heads and neurons that is kept, times 12."""
    teacher = grids.teacher_spec(profile, task)
    cut = {"op": "cut", "heads": students.count_kept_heads(profile, width_in_twelfths)}
    start = Spec("operate", {"surgery": [cut]}, {"teacher": teacher})
    targets = Targets("soft", sum_classes=True)
    train = make_single_stage_settings(students.FINETUNE, profile)
    args = grids.make_common_run_arguments(profile, task, train=train, targets=targets)
    return Spec("finetune", args, {"start": start, "teacher": teacher})


def full_width_finetuned_spec(profile: str, task: str, unused_width: int) -> Spec:
    return grids.teacher_spec(profile, task)


def distilled_full_width_spec(profile: str, task: str, unused_width: int) -> Spec:
    """Return the Spec of the whole model, trained in the two stages in which pruned
    students are. It is the control for what this training alone changes.

    unused_width: not used; all methods have it."""
    return students.student_spec(profile, task, HEADS)


def student_by_method_spec(
    profile: str, task: str, flops_in_twelfths: int, method_name: str
) -> Spec:
    """Return the Spec of a student that is pruned by a method of lib.methods.

    A method with a function `compute_importance_scores` ranks heads and neurons, on the
    same rows as the ranking of the papers' width-pruned students."""
    method, inputs = import_method(method_name), {}
    if hasattr(method, "compute_importance_scores"):
        options = replace(
            students.IMPORTANCE[profile], cumulative=False, by=method_name
        )
        ranked = grids.make_common_run_arguments(profile, task, importance=options)
        teacher = grids.teacher_spec(profile, task)
        inputs["importance"] = Spec("importance", ranked, {"teacher": teacher})
    _, arguments = method.plan_pruning(
        find_encoder_shape(profile), flops_in_twelfths / HEADS
    )
    return frontier_student_spec(
        profile, task, {"op": method_name} | arguments, **inputs
    )


# Modules `recipes` of the installed papers. A paper's folder may be removed; combinations
# that need it are then left out.
RECIPES = import_module_of_each_paper("recipes")


def make_ghost_surgery_operation(profile: str) -> SurgeryOperation:
    return {"op": "ghost"} | to_plain_json(
        RECIPES["ghostbert"].make_ghost_options(profile)
    )


def searched_width_ghost_spec(profile: str, task: str, width_in_twelfths: int) -> Spec:
    """Return the Spec of a student that combines two papers: it keeps the heads and
    neurons that a search finds (NAS pruning) and gets ghost modules, cheap convolutions
    (GhostBERT)."""
    find = import_module_of_each_paper("frontier")["nas_pruning"].search_spec_at_budget
    return searched_student_spec(
        profile, task, width_in_twelfths, find, (make_ghost_surgery_operation(profile),)
    )


def width_pruned_layer_mix_spec(
    profile: str, task: str, width_in_twelfths: int
) -> Spec:
    """Return the Spec of a width-pruned student that has BERMo's layer mix, a weighted
    sum of all layers' outputs, in its last stage of training."""
    last = students.student_spec(profile, task, width_in_twelfths)
    args = {name: last.args[name] for name in ("data", "train", "numerics", "targets")}
    mix = RECIPES["bermo"].MIX[profile]
    return Spec("fineprune", args | {"mix": mix}, last.inputs)


def one_loss_distilled_ghost_spec(
    profile: str, task: str, width_in_twelfths: int
) -> Spec:
    """Return the Spec of a pruned student with ghost modules (GhostBERT) that is
    trained by EfficientBERT's distillation.

    That matches attention scores, hidden states and logits in one loss, instead of in
    two stages."""
    ghosts = RECIPES["ghostbert"].make_ghost_options(profile)
    start = students.untrained_student_spec(profile, task, width_in_twelfths, ghosts)
    train = make_single_stage_settings(students.FINETUNE, profile)
    options = RECIPES["efficientbert"].TAUGHT[profile]
    args = grids.make_common_run_arguments(profile, task, train=train, warmup=options)
    inputs = {"teacher": grids.teacher_spec(profile, task), "start": start}
    return Spec("warmup", args, inputs)


def list_methods_of_no_single_paper() -> dict[str, Method]:
    """Return {name: Method} of the methods that belong to no paper, or combine those of
    several installed papers."""
    points = {
        "Whole": Method("whole", full_width_finetuned_spec, "all", once=True),
        "Width": Method("paper", students.student_spec),
        "Whole, distilled": Method(
            "control", distilled_full_width_spec, "all", once=True
        ),
        "Uniform": Method("control", uniformly_pruned_spec),
    }
    in_int8 = partial(quantised_spec, make_trained_spec=full_width_finetuned_spec)
    points["Int8"] = Method("control", in_int8, "all", once=True)
    for title, name in METHODS.items():
        points[title] = Method(
            "control", partial(student_by_method_spec, method_name=name), name
        )
    papers = import_module_of_each_paper("frontier")
    if "bermo" in papers:
        points["Width + layer mix"] = Method("combination", width_pruned_layer_mix_spec)
    if "ghostbert" in papers:
        ghosts = papers["ghostbert"].POINTS["GhostBERT"]
        combined = partial(Method, "combination", added=ghosts.added)
        in_int8 = partial(quantised_spec, make_trained_spec=ghosts.make)
        points["GhostBERT, int8"] = combined(in_int8)
        if "efficientbert" in papers:
            points["GhostBERT, warmed up"] = combined(one_loss_distilled_ghost_spec)
        if "nas_pruning" in papers:
            least = papers["nas_pruning"].POINTS["NAS"].least
            made = combined(searched_width_ghost_spec, keeps="found", least=least)
            points["NAS + ghosts"] = made
    return points


def collect_methods() -> dict[str, Method]:
    """Return {name: Method} of all methods of the frontier, in the order of its tables."""
    points = list_methods_of_no_single_paper()
    for paper in import_module_of_each_paper("frontier").values():
        points |= paper.POINTS
    order = [name for name in ORDER if name in points]
    return {name: points[name] for name in dict.fromkeys([*order, *points])}


TABLE = collect_methods()
# Methods that are compared on a reader's own data if the reader names none.
OWN = tuple(name for name in S.OWN if name in TABLE)


def list_flops_budgets_in_twelfths(
    profile: str, method_name: str, chosen_budgets: Sequence[int] = ()
) -> Sequence[int]:
    """Return the budgets at which a method has a model, in twelfths of the whole FLOPs:
    the chosen ones, or the profile's.

    Left out are budgets at which the encoder would not keep a whole number of heads, or
    which a search cannot reach. A method with one model alone has (0,)."""
    method = TABLE[method_name]
    if method.once:
        return (0,)
    possible_widths = students.select_possible_widths(
        profile, tuple(chosen_budgets) or BUDGETS[profile]
    )
    if method.keeps == "found" and grids.find_reader_passage_cut(profile):
        return []  # Searches do not support questions on passages.
    low = method.least(profile) * HEADS if method.least else 0
    return [m for m in possible_widths if m > low]


def count_method_flops(
    profile: str,
    method_name: str,
    flops_in_twelfths: int,
    searched_architecture: Json | None = None,
) -> int:
    """Return the FLOPs of one forward pass of a method's model on 128 tokens.

    Counted are matrix products and convolutions, and the pooler.

    searched_architecture: the kept heads and neurons that a search found, for methods
    with a search."""
    base, method = find_encoder_shape(profile), TABLE[method_name]
    if method.flops:
        return method.flops(profile)
    if method.keeps == "found":
        assert searched_architecture is not None
        layers = cost.list_widths_of_layers(searched_architecture)
    else:
        pairs = {
            "all": lambda: [(base.heads, base.ffn)] * base.layers,
            "width": lambda: (
                [
                    (
                        flops_in_twelfths * base.heads // HEADS,
                        flops_in_twelfths * base.ffn // HEADS,
                    )
                ]
                * base.layers
            ),
        }.get(
            method.keeps,
            lambda: import_method(method.keeps).plan_pruning(
                base, flops_in_twelfths / HEADS
            )[0],
        )()
        layers = [{"heads": heads, "ffn": ffn} for heads, ffn in pairs]
    total = cost.count_flops_of_layers(base.hidden, base.hidden // base.heads, layers)
    return total + (method.added(profile) if method.added else 0)


def format_defaults_of_method_comparison() -> list[str]:
    """Return lines of help for the command that compares methods on a reader's own
    data: which methods there are, and what budgets and seeds are without a choice."""
    lines = [
        f"methods: {' · '.join(TABLE)}",
        f"without --methods: {', '.join(OWN)}",
    ]
    for profile in ("mini", "base", "paper"):
        parts = {
            "budgets": ",".join(map(str, BUDGETS[profile])),
            "seeds": ",".join(map(str, SEEDS[profile])),
            "length": grids.find_token_limit(profile),
        }
        chosen = ", ".join(f"--{name} {value}" for name, value in parts.items())
        lines.append(f"without a choice, {profile}: {chosen}")
    return lines


def read_baseline_scores(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return {baseline: points} of the baselines without a network, the majority class
    and a bag of words, that a run of the step `bag_of_words` could score.

    metrics: the metrics of that run."""
    names = ("majority", "bag_of_words")
    values = {name.replace("_", " "): metrics.get(name, np.nan) for name in names}
    return {name: 100 * value for name, value in values.items() if value == value}


def format_baseline_scores(metrics: Mapping[str, Any], is_fraction: bool) -> str:
    """Return a line on the scores of the majority class and of a bag of words, with a
    warning where these are so high that no model can be shown to be better.

    metrics: of a run of the step `bag_of_words`.
    is_fraction: whether the score is a share of right rows, whose interval is known
    even where every row is right."""
    scores = read_baseline_scores(metrics)
    parts = ", ".join(f"{name} {score:.1f}" for name, score in scores.items())
    rows, best = metrics["dev_rows"], max(scores.values(), default=0.0)
    line = f"without training: {parts} points on {rows:,} development rows"
    top = (
        100 - paired.estimate_difference_of_shares([False] * rows).high
        if is_fraction
        else 99.95
    )
    if best < top:
        return line
    why = (
        f"even with all {rows:,} rows right a model is known to be above {top:.1f} only"
    )
    return f"{line}. Beware: nothing can be shown above that" + f"; {why}" * is_fraction


def format_label(model: str, budget_in_twelfths: int) -> str:
    return f"{model} {budget_in_twelfths}/{HEADS}" if budget_in_twelfths else model


def label_models(runs_frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of trained models, with the column `model` as method and budget
    ("Width 3/12") and the column `method` as the method alone.

    runs_frame: a DataFrame with a row for each run."""
    runs_frame = runs_frame[runs_frame["kind"] == "model"]
    names = map(format_label, runs_frame["model"], runs_frame["m"].astype(int))
    return runs_frame.assign(method=runs_frame["model"], model=list(names))


def make_points_table(runs_frame: pd.DataFrame, profile: str) -> pd.DataFrame:
    """Return the frontier as a DataFrame: a line for each model and task, with its
    score and costs.

    `score` is in points. Its 95 % interval `low` to `high` covers seeds and examples;
    with one seed examples alone. `gap` is the difference to the model `beside`, with an
    interval from three seeds on. That is the narrowest width-pruned model with at least
    as many FLOPs (`find_width_pruned_baseline`), and `budget` is its width in twelfths. Costs
    are means over seeds.

    runs_frame: a DataFrame with a row for each run."""
    import pandas as pd

    lines, place = [], ["model", "m", "task", "seed"]
    searches = runs_frame[runs_frame["kind"] == "search"].to_dict("records")
    architectures = {
        tuple(row[key] for key in place): row.get("architecture") for row in searches
    }
    for task, task_frame in compare.select_rows_with_runs(
        label_models(runs_frame)
    ).groupby("task", sort=False):
        assert isinstance(task, str)
        column, start = grids.list_columns_by_task(profile)[task][0], len(lines)
        for model, rows in task_frame.groupby("model", sort=False):
            name, m = rows["method"].iloc[0], rows["m"].iloc[0]
            seed_architectures = [
                architectures.get((name, m, task, seed)) for seed in rows["seed"]
            ]
            row_costs = map(
                partial(count_model_costs, profile),
                rows.to_dict("records"),
                seed_architectures,
            )
            pairs = map(
                partial(pair_predictions_with_labels, column), rows["run"], rows["seed"]
            )
            score = paired.difference_with_nonzero_interval([*pairs])
            line = {
                "task": task,
                "model": model,
                "method": name,
                "m": m,
                "seeds": score.n_seeds,
            }
            line |= {"kind": TABLE[name].kind, "score": 100 + score.mean}
            least = 0.0 if column.metric in paired.SHARES else -100.0
            line |= {"low": max(100 + score.low, least)}
            line |= {"high": min(100 + score.high, 100.0)}
            lines.append(line | dict(zip(AXES, np.mean([*row_costs], 0), strict=True)))
        for line in lines[start:]:
            line |= compare_to_width_pruned(
                task_frame,
                line,
                find_width_pruned_baseline(lines[start:], line["flops"]),
                column,
            )
    return pd.DataFrame(lines)


class ModelCosts(NamedTuple):
    megaflops: float
    million_parameters: float
    megabytes: float


def count_model_costs(
    profile: str, run_row: Mapping[str, Any], searched_architecture: Json | None
) -> ModelCosts:
    """Return the costs of a trained model.

    Pruned weights do not count as parameters. Megabytes are those of the smallest
    measured storage format, or of float32.

    run_row: a row of the frame of runs, with the run's metrics.
    searched_architecture: the heads and neurons that a search found, or None."""
    pruned = run_row.get("masked_weights", 0) - run_row.get("kept_weights", 0)
    weights = run_row["parameters"] - np.nan_to_num(pruned)
    stored = [
        n
        for n in (run_row.get("bytes"), run_row.get("bytes_sparse"))
        if n and np.isfinite(n)
    ]
    forward = count_method_flops(
        profile, run_row["method"], run_row["m"], searched_architecture
    )
    stored_bytes = (*stored, 4 * run_row["parameters"])[0]
    return ModelCosts(forward / 1e6, weights / 1e6, stored_bytes / 1e6)


def find_width_pruned_baseline(
    point_rows: Iterable[PointRow], flops: float
) -> PointRow | None:
    """Return the line of the narrowest width-pruned or whole model with at least these
    FLOPs, with which a model is compared; None where there is none.

    point_rows: lines of `make_points_table` of one task."""
    both = [
        line for line in point_rows if line["method"] in ("Width", "Whole, distilled")
    ]
    candidates = [line for line in both if SLACK * line["flops"] >= flops]
    return min(candidates, key=lambda line: line["flops"], default=None)


def compare_to_width_pruned(
    runs_frame: pd.DataFrame,
    point_row: PointRow,
    baseline_row: PointRow | None,
    column: Column,
) -> PointRow:
    """Return the columns of `make_points_table` on a model's gap to the width-pruned
    model of the same cost.

    runs_frame: the runs of one task.
    point_row: the model's line so far.
    baseline_row: the line of the other model, or None."""
    columns = {
        "budget": np.nan,
        "beside": "",
        "gap": np.nan,
        "gap_low": np.nan,
        "gap_high": np.nan,
    }
    if baseline_row is None:
        return columns
    columns |= {"budget": baseline_row["m"] or HEADS, "beside": baseline_row["model"]}
    pairs = compare.pair_runs_of_models(
        runs_frame, point_row["model"], baseline_row["model"], {column.task: (column,)}
    )
    gap = paired.difference_with_nonzero_interval(pairs) if pairs else None
    columns |= {"gap": gap.mean} if gap else {}
    enough = gap and gap.n_seeds >= paired.SEEDS
    return columns | ({"gap_low": gap.low, "gap_high": gap.high} if enough else {})


def pair_predictions_with_labels(column: Column, run: Run, seed: int) -> paired.Pair:
    """Return a Pair, two predictions at one seed whose scores are compared, of a run's
    predictions and the labels themselves.

    Its difference is the run's score minus 100 points. So the function for intervals of
    differences serves scores too."""
    rows = compare.read_labels_and_predictions(run, column)
    labels, said, cluster = rows["labels"], rows["said"], rows["cluster"]
    labels = np.ones(len(said)) if column.metric in paired.MARKS else labels
    return paired.Pair(column.task, seed, labels, said, labels, column.metric, cluster)


def find_pareto_front(points: pd.DataFrame, cost_column: str) -> list[str]:
    """Return the models on the Pareto front, cheapest first: no model of at most the
    same cost scores higher.

    Costs within a factor EVEN count as equal.

    points: a table of `make_points_table`, of one task.
    cost_column: the column of the cost, such as "flops"."""
    ordered = points.sort_values(
        [cost_column, "score"], ascending=[True, False], ignore_index=True
    )
    best = [
        ordered.loc[ordered[cost_column] <= EVEN * c, "score"].idxmax()
        for c in ordered[cost_column]
    ]
    return list(ordered["model"][best == ordered.index])


def find_cost_of_whole_model(points: pd.DataFrame, cost_column: str) -> float | None:
    """Return the cost of the uncompressed model; None where it was not run.

    points: a table of `make_points_table`.
    cost_column: the column of the cost, such as "flops"."""
    full_costs = points.loc[points["method"] == "Whole", cost_column]
    return float(full_costs.iloc[0]) if len(full_costs) else None


def find_best_affordable_model(
    points: pd.DataFrame, cost_column: str, max_cost_share: float
) -> dict[Hashable, Any] | None:
    """Return the line of the model with the best score within a cost limit; the
    cheapest of equals, None where no model is within the limit.

    The limit is SLACK times a share of the whole model's cost. Raises Refused where
    that model was not run.

    points: a table of `make_points_table`.
    cost_column: the column of the cost, such as "flops".
    max_cost_share: the share, from 0 to 1."""
    full_cost = find_cost_of_whole_model(points, cost_column)
    if full_cost is None:
        raise Refused(
            "the budget is a share of the model 'Whole': add it to the methods"
        )
    affordable = points[
        points[cost_column] <= SLACK * max_cost_share * full_cost
    ].sort_values(cost_column)
    return (
        affordable.loc[affordable["score"].idxmax()].to_dict()
        if len(affordable)
        else None
    )
