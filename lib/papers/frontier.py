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
from lib.methods import METHODS, module
from lib.papers import grids, students
from lib.papers.grids import shape
from lib.papers.points import TOKENS as TOKENS
from lib.papers.points import Method, add_epochs, network, quantised_spec, student
from lib.stats import compare, cost, paired
from lib.stats.compare import Column

if TYPE_CHECKING:
    import pandas as pd

HEADS = students.HEADS
S = grids.settings("frontier")
# Tables of frontier.toml, which describes each.
ORDER: tuple[str, ...] = S.ORDER
SLACK: float = S.SLACK
EVEN: float = S.EVEN
BUDGETS: dict[str, tuple[int, ...]] = S.BUDGETS
TASKS: dict[str, tuple[str, ...]] = S.TASKS
SEEDS: dict[str, tuple[int, ...]] = S.SEEDS
LISTED: dict[str, tuple[str, ...]] = S.LISTED
AXES: dict[str, str] = S.AXES

tasks = partial(grids.tasks, by_profile=TASKS)
seeds = partial(grids.seeds, by_profile=SEEDS)


def uniform(profile: str, task: str, m: int) -> Spec:
    """Return the Spec of a model as wide as a "Width" one, but cut in order.

    It keeps the first heads and neurons, not the most important ones. It learns from
    the teacher's logits alone."""
    teacher = grids.teacher(profile, task)
    cut = {"op": "cut", "heads": students.kept_heads(profile, m)}
    start = Spec("operate", {"surgery": [cut]}, {"teacher": teacher})
    targets = Targets("soft", sum_classes=True)
    train = add_epochs(students.FINETUNE, profile)
    args = grids.common_arguments(profile, task, train=train, targets=targets)
    return Spec("finetune", args, {"start": start, "teacher": teacher})


def whole_model(profile: str, task: str, m: int) -> Spec:
    return grids.teacher(profile, task)


def distilled(profile: str, task: str, m: int) -> Spec:
    """Return the Spec of the uncut model, trained as the cut ones are.

    It is the control for the two stages of distillation."""
    return students.student(profile, task, HEADS)


def spec_of_method(profile: str, task: str, m: int, name: str) -> Spec:
    """Return the Spec of a student by a method of lib.methods.

    A method with a function `scores` ranks heads and neurons. It uses the same rows as
    the ranking of the "Width" models."""
    method, inputs = module(name), {}
    if hasattr(method, "scores"):
        options = replace(students.IMPORTANCE[profile], cumulative=False, by=name)
        ranked = grids.common_arguments(profile, task, importance=options)
        teacher = grids.teacher(profile, task)
        inputs["importance"] = Spec("importance", ranked, {"teacher": teacher})
    _, arguments = method.keep(shape(profile), m / HEADS)
    return student(profile, task, {"op": name} | arguments, **inputs)


# Recipes of the installed papers. A combination needs those of all its papers.
RECIPES = collect_modules("recipes")


def ghost_operation(profile: str) -> Json:
    return {"op": "ghost"} | to_plain_json(RECIPES["ghostbert"].ghost_options(profile))


def searched_with_ghosts(profile: str, task: str, m: int) -> Spec:
    """Return the Spec of a student with the searched architecture and ghosts."""
    find = collect_modules("frontier")["nas_pruning"].search_point
    return network(profile, task, m, find, (ghost_operation(profile),))


def mixed(profile: str, task: str, m: int) -> Spec:
    """Return the Spec of a width-pruned model with BERMo's layer mix in its last
    stage."""
    last = students.student(profile, task, m)
    args = {name: last.args[name] for name in ("data", "train", "numerics", "targets")}
    mix = RECIPES["bermo"].MIX[profile]
    return Spec("fineprune", args | {"mix": mix}, last.inputs)


def warmed(profile: str, task: str, m: int) -> Spec:
    """Return the Spec of a model with ghosts by EfficientBERT's warm-up distillation.

    Attention, states and predictions are in one loss, instead of two stages.
    """
    ghosts = RECIPES["ghostbert"].ghost_options(profile)
    start = students.untrained_student(profile, task, m, ghosts)
    train = add_epochs(students.FINETUNE, profile)
    options = RECIPES["efficientbert"].TAUGHT[profile]
    args = grids.common_arguments(profile, task, train=train, warmup=options)
    inputs = {"teacher": grids.teacher(profile, task), "start": start}
    return Spec("warmup", args, inputs)


def shared_methods() -> dict[str, Method]:
    """Return the methods that belong to no paper, or to several installed ones."""
    points = {
        "Whole": Method("whole", whole_model, "all", once=True),
        "Width": Method("paper", students.student),
        "Whole, distilled": Method("control", distilled, "all", once=True),
        "Uniform": Method("control", uniform),
    }
    in_int8 = partial(quantised_spec, make=whole_model)
    points["Int8"] = Method("control", in_int8, "all", once=True)
    for title, name in METHODS.items():
        points[title] = Method("control", partial(spec_of_method, name=name), name)
    papers = collect_modules("frontier")
    if "bermo" in papers:
        points["Width + layer mix"] = Method("combination", mixed)
    if "ghostbert" in papers:
        ghosts = papers["ghostbert"].POINTS["GhostBERT"]
        combined = partial(Method, "combination", added=ghosts.added)
        in_int8 = partial(quantised_spec, make=ghosts.make)
        points["GhostBERT, int8"] = combined(in_int8)
        if "efficientbert" in papers:
            points["GhostBERT, warmed up"] = combined(warmed)
        if "nas_pruning" in papers:
            least = papers["nas_pruning"].POINTS["NAS"].least
            made = combined(searched_with_ghosts, keeps="found", least=least)
            points["NAS + ghosts"] = made
    return points


def collect_methods() -> dict[str, Method]:
    """Return {name: Method} of all methods, in the order of the page's tables."""
    points = shared_methods()
    for paper in collect_modules("frontier").values():
        points |= paper.POINTS
    order = [name for name in ORDER if name in points]
    return {name: points[name] for name in dict.fromkeys([*order, *points])}


TABLE = collect_methods()
# Methods that are tried on a reader's rows where none is asked for.
OWN = tuple(name for name in S.OWN if name in TABLE)


def budgets(profile: str, name: str, chosen: Sequence[int] = ()) -> Sequence[int]:
    """Return the budgets of a method in twelfths: the chosen ones, or the profile's.

    Budgets that the encoder's heads do not divide into, or that a search cannot reach,
    are left out. A method with a single point has (0,)."""
    method = TABLE[name]
    if method.once:
        return (0,)
    possible_widths = students.select_widths(profile, tuple(chosen) or BUDGETS[profile])
    if method.keeps == "found" and grids.span_of_reader(profile):
        return []  # No search reads passages.
    low = method.least(profile) * HEADS if method.least else 0
    return [m for m in possible_widths if m > low]


def flops(profile: str, name: str, m: int, architecture: Json | None = None) -> int:
    """Return the FLOPs of one forward pass of 128 tokens by a method's model.

    Counted are matrix products and convolutions, with the pooler. m: its budget in
    twelfths. architecture: the result of a search, for methods that keep it."""
    base, method = shape(profile), TABLE[name]
    if method.flops:
        return method.flops(profile)
    if method.keeps == "found":
        assert architecture is not None
        layers = cost.layer_widths(architecture)
    else:
        pairs = {
            "all": lambda: [(base.heads, base.ffn)] * base.layers,
            "width": lambda: (
                [(m * base.heads // HEADS, m * base.ffn // HEADS)] * base.layers
            ),
        }.get(method.keeps, lambda: module(method.keeps).keep(base, m / HEADS)[0])()
        layers = [{"heads": heads, "ffn": ffn} for heads, ffn in pairs]
    total = cost.layered_flops(base.hidden, base.hidden // base.heads, layers)
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
            "length": grids.length_limit(profile),
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
    top = 100 - paired.share_gap([False] * rows).high if is_share else 99.95
    if best < top:
        return line
    why = (
        f"even with all {rows:,} rows right a model is known to be above {top:.1f} only"
    )
    return f"{line}. Beware: nothing can be shown above that" + f"; {why}" * is_share


def label(model: str, m: int) -> str:
    return f"{model} {m}/{HEADS}" if m else model


def label_models(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the model rows of a collected grid, each named by method and budget.

    The column `method` has the method alone."""
    frame = frame[frame["kind"] == "model"]
    names = map(label, frame["model"], frame["m"].astype(int))
    return frame.assign(method=frame["model"], model=list(names))


def points(frame: pd.DataFrame, profile: str) -> pd.DataFrame:
    """Return a table with a line for each model and task of a collected grid.

    The score is in points. Its 95 % interval `low` to `high` covers seeds and examples,
    and ends where scores do; with one seed it covers examples alone. `gap` is the
    difference to the model `beside`, with an interval from three seeds on. That model
    is the narrowest plain one that has at least the FLOPs of this one (`baseline`), and
    `budget` is its width in twelfths. Costs are means over seeds."""
    import pandas as pd

    lines, place = [], ["model", "m", "task", "seed"]
    searches = frame[frame["kind"] == "search"].to_dict("records")
    architectures = {
        tuple(row[key] for key in place): row.get("architecture") for row in searches
    }
    for task, task_frame in compare.with_runs(label_models(frame)).groupby(
        "task", sort=False
    ):
        assert isinstance(task, str)
        column, start = grids.metrics(profile)[task][0], len(lines)
        for model, rows in task_frame.groupby("model", sort=False):
            name, m = rows["method"].iloc[0], rows["m"].iloc[0]
            seed_architectures = [
                architectures.get((name, m, task, seed)) for seed in rows["seed"]
            ]
            row_costs = map(
                partial(costs, profile), rows.to_dict("records"), seed_architectures
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
            line |= difference(
                task_frame, line, baseline(lines[start:], line["flops"]), column
            )
    return pd.DataFrame(lines)


def costs(
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
    forward = flops(profile, row["method"], row["m"], architecture)
    return forward / 1e6, weights / 1e6, (*stored, 4 * row["parameters"])[0] / 1e6


def baseline(lines: Iterable[Json], flops: float) -> Json | None:
    """Return the line of the narrowest plain model with at least these FLOPs.

    A plain model is cut to a width, or whole, and distilled alike. It is None where no
    plain model is large enough."""
    both = [line for line in lines if line["method"] in ("Width", "Whole, distilled")]
    candidates = [line for line in both if SLACK * line["flops"] >= flops]
    return min(candidates, key=lambda line: line["flops"], default=None)


def difference(
    frame: pd.DataFrame, line: Json, other: Json | None, column: Column
) -> Json:
    """Return the columns of a line of `points` on its gap to a plain model of one task.

    other: the line of the plain model, or None."""
    columns = {
        "budget": np.nan,
        "beside": "",
        "gap": np.nan,
        "gap_low": np.nan,
        "gap_high": np.nan,
    }
    if other is None:
        return columns
    columns |= {"budget": other["m"] or HEADS, "beside": other["model"]}
    pairs = compare.pair_columns(
        frame, line["model"], other["model"], {column.task: (column,)}
    )
    gap = paired.bounded_difference(pairs) if pairs else None
    columns |= {"gap": gap.mean} if gap else {}
    enough = gap and gap.n_seeds >= paired.SEEDS
    return columns | ({"gap_low": gap.low, "gap_high": gap.high} if enough else {})


def pair_with_labels(column: Column, run: Run, seed: int) -> paired.Pair:
    """Return a Pair of a run's predictions with the labels themselves.

    So its difference is the score of the run minus 100 points, and one function gives
    intervals of scores and of differences."""
    rows = compare.judged_rows(run, column)
    labels, said, cluster = rows["labels"], rows["said"], rows["cluster"]
    labels = np.ones(len(said)) if column.metric in paired.MARKS else labels
    return paired.Pair(column.task, seed, labels, said, labels, column.metric, cluster)


def find_front(table: pd.DataFrame, axis: str) -> list[str]:
    """Return the models on the front: none of at most the same cost scores higher.

    table: from `points`. Costs within a factor EVEN count as equal. The cheapest model
    comes first."""
    ordered = table.sort_values(
        [axis, "score"], ascending=[True, False], ignore_index=True
    )
    best = [
        ordered.loc[ordered[axis] <= EVEN * c, "score"].idxmax() for c in ordered[axis]
    ]
    return list(ordered["model"][best == ordered.index])


def whole_cost(table: pd.DataFrame, axis: str) -> float | None:
    """Return the cost of the whole model in a table of `points`; None without it."""
    full_costs = table.loc[table["method"] == "Whole", axis]
    return float(full_costs.iloc[0]) if len(full_costs) else None


def recommend_line(
    table: pd.DataFrame, axis: str, share: float
) -> dict[Hashable, Any] | None:
    """Return the line of `points` with the best score within a share of the cost.

    The limit is SLACK times this share of the whole model's cost. Ties go to the
    cheapest. It is None where no model is within the limit. Raises Refused where the
    whole model has no run."""
    full_cost = whole_cost(table, axis)
    if full_cost is None:
        raise Refused(
            "the budget is a share of the model 'Whole': add it to the methods"
        )
    affordable = table[table[axis] <= SLACK * share * full_cost].sort_values(axis)
    return (
        affordable.loc[affordable["score"].idxmax()].to_dict()
        if len(affordable)
        else None
    )
