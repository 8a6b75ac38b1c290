"""This module has the frontier, which compares the methods of all papers.

No paper compares itself with the others. Here all methods have one teacher, and the
same rows, epochs and seeds. A point is a method at a budget: a share m/12 of the whole
model's FLOPs. Each paper names its methods in its `frontier.py` (lib.papers.points).
This module adds controls that the papers lack, and combinations that they call
orthogonal but never tried. It is free of torch."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lib.core.names import Refused
from lib.core.options import Targets
from lib.core.papers import collect_modules
from lib.core.spec import Spec, to_plain_json
from lib.core.store import Run
from lib.core.types import Json
from lib.methods import METHODS, import_method
from lib.papers import grids, students
from lib.papers.grids import find_encoder_shape
from lib.papers.points import TOKENS as TOKENS
from lib.papers.points import (
    Method,
    join_stages_into_one_training,
    quantised_spec,
    searched_student_spec,
    student_spec,
)
from lib.stats import compare, cost, paired
from lib.stats.compare import Column

if TYPE_CHECKING:
    import pandas as pd

HEADS = students.HEADS
S = grids.read_settings("frontier")
# Tables of frontier.toml, which describes each.
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


def uniformly_cut_spec(profile: str, task: str, width_in_twelfths: int) -> Spec:
    """Return the Spec of a model as wide as a "Width" one, but cut in order.

    It keeps the first heads and neurons, not the most important ones. It learns from
    the teacher's logits alone."""
    teacher = grids.teacher_spec(profile, task)
    cut = {"op": "cut", "heads": students.count_kept_heads(profile, width_in_twelfths)}
    start = Spec("operate", {"surgery": [cut]}, {"teacher": teacher})
    targets = Targets("soft", sum_classes=True)
    train = join_stages_into_one_training(students.FINETUNE, profile)
    args = grids.make_common_arguments(profile, task, train=train, targets=targets)
    return Spec("finetune", args, {"start": start, "teacher": teacher})


def uncut_spec(profile: str, task: str, width_in_twelfths: int) -> Spec:
    return grids.teacher_spec(profile, task)


def distilled_uncut_spec(profile: str, task: str, width_in_twelfths: int) -> Spec:
    """Return the Spec of the uncut model, trained as the cut ones are.

    It is the control for the two stages of distillation."""
    return students.student_spec(profile, task, HEADS)


def student_by_method_spec(
    profile: str, task: str, budget_in_twelfths: int, method_name: str
) -> Spec:
    """Return the Spec of a student by a method of lib.methods.

    A method with a function `scores` ranks heads and neurons. It uses the same rows as
    the ranking of the "Width" models."""
    method, inputs = import_method(method_name), {}
    if hasattr(method, "scores"):
        options = replace(
            students.IMPORTANCE[profile], cumulative=False, by=method_name
        )
        ranked = grids.make_common_arguments(profile, task, importance=options)
        teacher = grids.teacher_spec(profile, task)
        inputs["importance"] = Spec("importance", ranked, {"teacher": teacher})
    _, arguments = method.keep(find_encoder_shape(profile), budget_in_twelfths / HEADS)
    return student_spec(profile, task, {"op": method_name} | arguments, **inputs)


# Recipes of the installed papers. A combination needs those of all its papers.
RECIPES = collect_modules("recipes")


def make_ghost_operation(profile: str) -> Json:
    return {"op": "ghost"} | to_plain_json(
        RECIPES["ghostbert"].make_ghost_options(profile)
    )


def searched_ghost_spec(profile: str, task: str, width_in_twelfths: int) -> Spec:
    """Return the Spec of a student with the searched architecture and ghosts."""
    find = collect_modules("frontier")["nas_pruning"].search_spec_at_budget
    return searched_student_spec(
        profile, task, width_in_twelfths, find, (make_ghost_operation(profile),)
    )


def layer_mix_spec(profile: str, task: str, width_in_twelfths: int) -> Spec:
    """Return the Spec of a width-pruned model with BERMo's layer mix in its last
    stage."""
    last = students.student_spec(profile, task, width_in_twelfths)
    args = {name: last.args[name] for name in ("data", "train", "numerics", "targets")}
    mix = RECIPES["bermo"].MIX[profile]
    return Spec("fineprune", args | {"mix": mix}, last.inputs)


def warmup_distilled_spec(profile: str, task: str, width_in_twelfths: int) -> Spec:
    """Return the Spec of a model with ghosts by EfficientBERT's warm-up distillation.

    Attention, states and predictions are in one loss, instead of two stages.
    """
    ghosts = RECIPES["ghostbert"].make_ghost_options(profile)
    start = students.untrained_student_spec(profile, task, width_in_twelfths, ghosts)
    train = join_stages_into_one_training(students.FINETUNE, profile)
    options = RECIPES["efficientbert"].TAUGHT[profile]
    args = grids.make_common_arguments(profile, task, train=train, warmup=options)
    inputs = {"teacher": grids.teacher_spec(profile, task), "start": start}
    return Spec("warmup", args, inputs)


def list_shared_methods() -> dict[str, Method]:
    """Return the methods that belong to no paper, or to several installed ones."""
    points = {
        "Whole": Method("whole", uncut_spec, "all", once=True),
        "Width": Method("paper", students.student_spec),
        "Whole, distilled": Method("control", distilled_uncut_spec, "all", once=True),
        "Uniform": Method("control", uniformly_cut_spec),
    }
    in_int8 = partial(quantised_spec, make_trained_spec=uncut_spec)
    points["Int8"] = Method("control", in_int8, "all", once=True)
    for title, name in METHODS.items():
        points[title] = Method(
            "control", partial(student_by_method_spec, method_name=name), name
        )
    papers = collect_modules("frontier")
    if "bermo" in papers:
        points["Width + layer mix"] = Method("combination", layer_mix_spec)
    if "ghostbert" in papers:
        ghosts = papers["ghostbert"].POINTS["GhostBERT"]
        combined = partial(Method, "combination", added=ghosts.added)
        in_int8 = partial(quantised_spec, make_trained_spec=ghosts.make)
        points["GhostBERT, int8"] = combined(in_int8)
        if "efficientbert" in papers:
            points["GhostBERT, warmed up"] = combined(warmup_distilled_spec)
        if "nas_pruning" in papers:
            least = papers["nas_pruning"].POINTS["NAS"].least
            made = combined(searched_ghost_spec, keeps="found", least=least)
            points["NAS + ghosts"] = made
    return points


def collect_methods() -> dict[str, Method]:
    """Return {name: Method} of all methods, in the order of the page's tables."""
    points = list_shared_methods()
    for paper in collect_modules("frontier").values():
        points |= paper.POINTS
    order = [name for name in ORDER if name in points]
    return {name: points[name] for name in dict.fromkeys([*order, *points])}


TABLE = collect_methods()
# Methods that are tried on a reader's rows where none is asked for.
OWN = tuple(name for name in S.OWN if name in TABLE)


def list_budgets(
    profile: str, method_name: str, chosen_budgets: Sequence[int] = ()
) -> Sequence[int]:
    """Return the budgets of a method in twelfths: the chosen ones, or the profile's.

    Budgets that the encoder's heads do not divide into, or that a search cannot reach,
    are left out. A method with a single point has (0,)."""
    method = TABLE[method_name]
    if method.once:
        return (0,)
    possible_widths = students.select_divisible_widths(
        profile, tuple(chosen_budgets) or BUDGETS[profile]
    )
    if method.keeps == "found" and grids.find_reader_span(profile):
        return []  # No search reads passages.
    low = method.least(profile) * HEADS if method.least else 0
    return [m for m in possible_widths if m > low]


def count_method_flops(
    profile: str,
    method_name: str,
    budget_in_twelfths: int,
    architecture: Json | None = None,
) -> int:
    """Return the FLOPs of one forward pass of 128 tokens by a method's model.

    Counted are matrix products and convolutions, with the pooler. budget_in_twelfths:
    its budget in twelfths. architecture: the result of a search, for methods that keep
    it."""
    base, method = find_encoder_shape(profile), TABLE[method_name]
    if method.flops:
        return method.flops(profile)
    if method.keeps == "found":
        assert architecture is not None
        layers = cost.count_widths_by_layer(architecture)
    else:
        pairs = {
            "all": lambda: [(base.heads, base.ffn)] * base.layers,
            "width": lambda: (
                [
                    (
                        budget_in_twelfths * base.heads // HEADS,
                        budget_in_twelfths * base.ffn // HEADS,
                    )
                ]
                * base.layers
            ),
        }.get(
            method.keeps,
            lambda: import_method(method.keeps).keep(base, budget_in_twelfths / HEADS)[
                0
            ],
        )()
        layers = [{"heads": heads, "ffn": ffn} for heads, ffn in pairs]
    total = cost.count_flops_of_layers(base.hidden, base.hidden // base.heads, layers)
    return total + (method.added(profile) if method.added else 0)


def describe_choices() -> list[str]:
    """Return lines on what `--methods` takes, and on the defaults of a reader's own
    rows."""
    lines = [
        f"methods: {' · '.join(TABLE)}",
        f"without --methods: {', '.join(OWN)}",
    ]
    for profile in ("mini", "base", "paper"):
        parts = {
            "budgets": ",".join(map(str, BUDGETS[profile])),
            "seeds": ",".join(map(str, SEEDS[profile])),
            "length": grids.find_length_limit(profile),
        }
        chosen = ", ".join(f"--{name} {value}" for name, value in parts.items())
        lines.append(f"without a choice, {profile}: {chosen}")
    return lines


def read_floors(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return {name: points} of the baselines that a step `bag_of_words` could score."""
    names = ("majority", "bag_of_words")
    values = {name.replace("_", " "): metrics.get(name, np.nan) for name in names}
    return {name: 100 * value for name, value in values.items() if value == value}


def describe_floor(metrics: Mapping[str, Any], is_share: bool) -> str:
    """Return a line on the scores of a finished step `bag_of_words`, and on whether any
    model can be shown to be above them.

    is_share: whether a score is a mean over rows, so that its interval is known where
    every row is right."""
    scores = read_floors(metrics)
    parts = ", ".join(f"{name} {score:.1f}" for name, score in scores.items())
    rows, best = metrics["dev_rows"], max(scores.values(), default=0.0)
    line = f"without training: {parts} points on {rows:,} development rows"
    top = 100 - paired.estimate_share_gap([False] * rows).high if is_share else 99.95
    if best < top:
        return line
    why = (
        f"even with all {rows:,} rows right a model is known to be above {top:.1f} only"
    )
    return f"{line}. Beware: nothing can be shown above that" + f"; {why}" * is_share


def format_label(model: str, budget_in_twelfths: int) -> str:
    return f"{model} {budget_in_twelfths}/{HEADS}" if budget_in_twelfths else model


def label_models(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the model rows of a collected grid, each named by method and budget.

    The column `method` has the method alone."""
    frame = frame[frame["kind"] == "model"]
    names = map(format_label, frame["model"], frame["m"].astype(int))
    return frame.assign(method=frame["model"], model=list(names))


def make_points_table(frame: pd.DataFrame, profile: str) -> pd.DataFrame:
    """Return a table with a line for each model and task of a collected grid.

    The score is in points. Its 95 % interval `low` to `high` covers seeds and examples,
    and ends where scores do; with one seed it covers examples alone. `gap` is the
    difference to the model `beside`, with an interval from three seeds on. That model
    is the narrowest plain one that has at least the FLOPs of this one
    (`find_plain_baseline`), and
    `budget` is its width in twelfths. Costs are means over seeds."""
    import pandas as pd

    lines, place = [], ["model", "m", "task", "seed"]
    searches = frame[frame["kind"] == "search"].to_dict("records")
    architectures = {
        tuple(row[key] for key in place): row.get("architecture") for row in searches
    }
    for task, task_frame in compare.select_rows_with_runs(label_models(frame)).groupby(
        "task", sort=False
    ):
        assert isinstance(task, str)
        column, start = grids.list_columns_by_task(profile)[task][0], len(lines)
        for model, rows in task_frame.groupby("model", sort=False):
            name, m = rows["method"].iloc[0], rows["m"].iloc[0]
            seed_architectures = [
                architectures.get((name, m, task, seed)) for seed in rows["seed"]
            ]
            row_costs = map(
                partial(count_costs, profile),
                rows.to_dict("records"),
                seed_architectures,
            )
            pairs = map(partial(pair_with_labels, column), rows["run"], rows["seed"])
            score = paired.bounded_difference([*pairs])
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
            line |= compute_gap_to_plain(
                task_frame,
                line,
                find_plain_baseline(lines[start:], line["flops"]),
                column,
            )
    return pd.DataFrame(lines)


def count_costs(
    profile: str, row: Mapping[str, Any], architecture: Json | None
) -> tuple[float, float, float]:
    """Return (MFLOPs, million parameters, megabytes) of a row of a collected grid.

    Masked weights do not count as parameters. The megabytes are those of the smallest
    measured storage, or of float32. architecture: as in `flops`."""
    pruned = row.get("masked_weights", 0) - row.get("kept_weights", 0)
    weights = row["parameters"] - np.nan_to_num(pruned)
    stored = [
        n for n in (row.get("bytes"), row.get("bytes_sparse")) if n and np.isfinite(n)
    ]
    forward = count_method_flops(profile, row["method"], row["m"], architecture)
    return forward / 1e6, weights / 1e6, (*stored, 4 * row["parameters"])[0] / 1e6


def find_plain_baseline(point_rows: Iterable[Json], flops: float) -> Json | None:
    """Return the line of the narrowest plain model with at least these FLOPs.

    A plain model is cut to a width, or whole, and distilled alike. It is None where no
    plain model is large enough."""
    both = [
        line for line in point_rows if line["method"] in ("Width", "Whole, distilled")
    ]
    candidates = [line for line in both if SLACK * line["flops"] >= flops]
    return min(candidates, key=lambda line: line["flops"], default=None)


def compute_gap_to_plain(
    frame: pd.DataFrame, point_row: Json, plain_row: Json | None, column: Column
) -> Json:
    """Return the columns of a line of `points` on its gap to a plain model of one task.

    plain_row: the line of the plain model, or None."""
    columns = {
        "budget": np.nan,
        "beside": "",
        "gap": np.nan,
        "gap_low": np.nan,
        "gap_high": np.nan,
    }
    if plain_row is None:
        return columns
    columns |= {"budget": plain_row["m"] or HEADS, "beside": plain_row["model"]}
    pairs = compare.pair_columns(
        frame, point_row["model"], plain_row["model"], {column.task: (column,)}
    )
    gap = paired.bounded_difference(pairs) if pairs else None
    columns |= {"gap": gap.mean} if gap else {}
    enough = gap and gap.n_seeds >= paired.SEEDS
    return columns | ({"gap_low": gap.low, "gap_high": gap.high} if enough else {})


def pair_with_labels(column: Column, run: Run, seed: int) -> paired.Pair:
    """Return a Pair of a run's predictions with the labels themselves.

    So its difference is the score of the run minus 100 points, and one function gives
    intervals of scores and of differences."""
    rows = compare.read_labels_and_predictions(run, column)
    labels, said, cluster = rows["labels"], rows["said"], rows["cluster"]
    labels = np.ones(len(said)) if column.metric in paired.MARKS else labels
    return paired.Pair(column.task, seed, labels, said, labels, column.metric, cluster)


def find_pareto_front(points: pd.DataFrame, cost_column: str) -> list[str]:
    """Return the models on the front: none of at most the same cost scores higher.

    points: from `points`. Costs within a factor EVEN count as equal. The cheapest model
    comes first."""
    ordered = points.sort_values(
        [cost_column, "score"], ascending=[True, False], ignore_index=True
    )
    best = [
        ordered.loc[ordered[cost_column] <= EVEN * c, "score"].idxmax()
        for c in ordered[cost_column]
    ]
    return list(ordered["model"][best == ordered.index])


def find_cost_of_whole_model(points: pd.DataFrame, cost_column: str) -> float | None:
    """Return the cost of the whole model in a table of `points`; None without it."""
    full_costs = points.loc[points["method"] == "Whole", cost_column]
    return float(full_costs.iloc[0]) if len(full_costs) else None


def recommend_line(
    points: pd.DataFrame, cost_column: str, cost_share: float
) -> dict[Hashable, Any] | None:
    """Return the line of `points` with the best score within a share of the cost.

    The limit is SLACK times this share of the whole model's cost. Ties go to the
    cheapest. It is None where no model is within the limit. Raises Refused where the
    whole model has no run."""
    full_cost = find_cost_of_whole_model(points, cost_column)
    if full_cost is None:
        raise Refused(
            "the budget is a share of the model 'Whole': add it to the methods"
        )
    affordable = points[
        points[cost_column] <= SLACK * cost_share * full_cost
    ].sort_values(cost_column)
    return (
        affordable.loc[affordable["score"].idxmax()].to_dict()
        if len(affordable)
        else None
    )
