"""This module has the frontier: every method on one axis.

All methods have one teacher, and the same rows, epochs and seeds. None of the four
papers compares itself with another one. A point is a method at a budget, a share m/12
of the whole model's FLOPs. Students of the teacher have two stages, as GhostBERT's:
they match its states, then learn the labels. Methods that train in another way have as
many epochs. Beside the papers' methods stand controls that the papers lack, and
combinations that they call orthogonal and never tried. The module is free of torch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lib.core.names import Refused
from lib.core.options import Targets, Train
from lib.core.spec import Spec, plain
from lib.core.store import Run
from lib.core.types import Json
from lib.measure import compare, cost, gated, stats
from lib.measure.compare import Column
from lib.methods import METHODS, module
from lib.papers import bermo, efficientbert, ghostbert, grids, nas
from lib.papers.grids import shape
from lib.search.net import macs

if TYPE_CHECKING:
    import pandas as pd

# ---- SETTINGS

HEADS = 12
S = grids.settings("frontier")
# These are the tables of frontier.toml, which says what each is.
PRUNING: str = S.PRUNING
TOKENS: int = S.TOKENS
SLACK: float = S.SLACK
EVEN: float = S.EVEN
BUDGETS: dict[str, tuple[int, ...]] = S.BUDGETS
TASKS: dict[str, tuple[str, ...]] = S.TASKS
SEEDS: dict[str, tuple[int, ...]] = S.SEEDS
LISTED: dict[str, tuple[str, ...]] = S.LISTED
AXES: dict[str, str] = S.AXES

tasks = partial(grids.tasks, by_profile=TASKS)
seeds = partial(grids.seeds, by_profile=SEEDS)

# ---- SPECS


def student(profile: str, task: str, *surgery: Json, **inputs: Spec) -> Spec:
    """Return the Spec of a student by GhostBERT's two stages.

    surgery: operations that make it out of the teacher. inputs: other inputs of the
    first stage."""
    last = ghostbert.student(profile, task, HEADS)
    first = last.inputs["start"]
    changes = {
        "args": first.args | {"surgery": list(surgery)},
        "inputs": first.inputs | inputs,
    }
    return replace(last, inputs={"start": replace(first, **changes)})


def as_long(settings: Mapping[str, Train], profile: str) -> Train:
    """Return the Train with the epochs of both stages, for a method that has one
    stage."""
    both = (ghostbert.DISTIL[profile], ghostbert.FINETUNE[profile])
    epochs = (grids.lengthened(profile, train).epochs for train in both)
    return replace(settings[profile], epochs=sum(epochs))


def ghosts(profile: str, task: str, m: int) -> Spec:
    return ghostbert.student(profile, task, m, ghostbert.ghost(profile))


def searched(profile: str, task: str, m: int) -> Spec:
    """Return the Spec of a search in the teacher, to m/12 of its FLOPs."""
    return nas.searched(profile, task, grids.teacher(profile, task), ratio=m / HEADS)


def drawn(profile: str, task: str, m: int) -> Spec:
    """Return the Spec of a random architecture of the same cost."""
    return nas.drawn(grids.teacher(profile, task), ratio=m / HEADS)


def network(
    profile: str,
    task: str,
    m: int,
    find: Callable[[str, str, int], Spec] = searched,
    added: bool = False,
) -> Spec:
    """Return the Spec of a student that keeps what a search finds.

    find: f(profile, task, m) -> the Spec of the search. added: whether ghosts are added
    to it."""
    ghost = [{"op": "ghost"} | plain(ghostbert.ghost(profile))] * added
    search = find(profile, task, m)
    return student(profile, task, {"op": "keep"}, *ghost, search=search)


def uniform(profile: str, task: str, m: int) -> Spec:
    """Return the Spec of a model of the same shape as `width`, cut in order and not by
    importance.

    It learns from the teacher's logits alone.
    """
    teacher = grids.teacher(profile, task)
    cut = {"op": "cut", "heads": ghostbert.kept_heads(profile, m)}
    start = Spec("operate", {"surgery": [cut]}, {"teacher": teacher})
    targets = Targets("soft", sum_classes=True)
    train = as_long(ghostbert.FINETUNE, profile)
    args = grids.common(profile, task, train=train, targets=targets)
    return Spec("finetune", args, {"start": start, "teacher": teacher})


def fine_pruned(profile: str, task: str, m: int, model: str) -> Spec:
    """Return the Spec of a model that is pruned while it is fine-tuned.

    It keeps m/12 of the encoder's weights.
    """
    epochs = as_long(ghostbert.FINETUNE, profile).epochs
    return bermo.pruned(profile, task, model, PRUNING, epochs, share=m / HEADS)


def mixed(profile: str, task: str, m: int) -> Spec:
    """Return the Spec of a width-pruned model whose last stage has BERMo's mix of the
    layers."""
    last = ghostbert.student(profile, task, m)
    args = {name: last.args[name] for name in ("data", "train", "numerics", "targets")}
    return Spec("fineprune", args | {"mix": bermo.MIX[profile]}, last.inputs)


def warmed(profile: str, task: str, m: int) -> Spec:
    """Return the Spec of a model with ghosts by EfficientBERT's warm-up distillation.

    Attention, states and predictions are in one loss, instead of two stages.
    """
    start = ghostbert.untrained(profile, task, m, ghostbert.ghost(profile))
    train = as_long(ghostbert.FINETUNE, profile)
    args = grids.common(
        profile, task, train=train, warmup=efficientbert.TAUGHT[profile]
    )
    return Spec(
        "warmup", args, {"teacher": grids.teacher(profile, task), "start": start}
    )


def net(profile: str, task: str, m: int, name: str) -> Spec:
    """Return the Spec of a network of EfficientBERT's tables. It has one size, so m is
    not used."""
    made = efficientbert.student(profile, task, name)
    return replace(
        made, args=made.args | {"train": as_long(efficientbert.FINETUNE, profile)}
    )


def quantised(
    profile: str, task: str, m: int, make: Callable[[str, str, int], Spec]
) -> Spec:
    """Return the Spec of a finished model in int8; make: f(profile, task, m) -> its
    Spec."""
    model = make(profile, task, m)
    args = grids.common(profile, task, train=model.args["train"])
    return Spec("quantise", args, {"start": model})


def whole_model(profile: str, task: str, m: int) -> Spec:
    return grids.teacher(profile, task)


def distilled(profile: str, task: str, m: int) -> Spec:
    """Return the Spec of the whole model by the two stages of the cut models.

    It is the method of width with nothing cut.
    """
    return ghostbert.student(profile, task, HEADS)


def listed(profile: str, task: str, m: int, name: str) -> Spec:
    """Return the Spec of a student by a module of lib.methods.

    Where the module has `scores`, they rank on the rows that `width` is ranked on.
    """
    method, inputs = module(name), {}
    if hasattr(method, "scores"):
        options = replace(ghostbert.IMPORTANCE[profile], cumulative=False, by=name)
        ranked = grids.common(profile, task, importance=options)
        teacher = grids.teacher(profile, task)
        inputs["importance"] = Spec("importance", ranked, {"teacher": teacher})
    _, arguments = method.keep(shape(profile), m / HEADS)
    return student(profile, task, {"op": name} | arguments, **inputs)


# ---- THE TABLE


@dataclass(frozen=True)
class Method:
    """A Method is a method of the frontier, with a point at each budget."""

    kind: str  # It is "whole", "paper", "control" or "combination".
    make: Callable[[str, str, int], Spec]  # It is f(profile name, task, m) -> Spec.
    # Each layer keeps a "width", "all" of it, or what a search "found". Another name is
    # that of a network of EfficientBERT, or of a module of lib.methods.
    keeps: str = "width"
    ghosts: bool = False
    once: bool = False  # The method has one point instead of one at each budget.


def _network(name: str, kind: str = "paper") -> Method:
    return Method(kind, partial(net, name=name), name, once=True)


def _pruned(model: str) -> Method:
    return Method("paper", partial(fine_pruned, model=model), "all")


TABLE = {  # The page's tables have this order.
    "Whole": Method("whole", whole_model, "all", once=True),
    "Width": Method("paper", ghostbert.student),
    "GhostBERT": Method("paper", ghosts, ghosts=True),
    "NAS": Method("paper", network, "found"),
    "EfficientBERT": _network("EfficientBERT"),
    "EfficientBERT TINY": _network("EfficientBERT_TINY"),
    "Fine-pruned BERT": _pruned("BERT"),
    "Fine-pruned BERMo": _pruned("BERMo"),
    "Whole, distilled": Method("control", distilled, "all", once=True),
    "Random": Method("control", partial(network, find=drawn), "found"),
    "Uniform": Method("control", uniform),
    "Base Model": _network("Base Model", "control"),
    "Int8": Method("control", partial(quantised, make=whole_model), "all", once=True),
    "NAS + ghosts": Method(
        "combination", partial(network, added=True), "found", ghosts=True
    ),
    "Width + layer mix": Method("combination", mixed),
    "GhostBERT, warmed up": Method("combination", warmed, ghosts=True),
    "GhostBERT, int8": Method(
        "combination", partial(quantised, make=ghosts), ghosts=True
    ),
} | {
    title: Method("control", partial(listed, name=name), name)
    for title, name in METHODS.items()
}


def budgets(profile: str, name: str, chosen: Sequence[int] = ()) -> Sequence[int]:
    """Return the budgets of a method, in twelfths: the chosen ones, or the profile's.

    Only those are returned that the encoder's heads can have and a search can reach. A
    method of one point has 0 alone."""
    method = TABLE[name]
    if method.once:
        return (0,)
    possible_widths = ghostbert.possible(profile, tuple(chosen) or BUDGETS[profile])
    if method.keeps == "found" and grids.asked(profile):
        return []  # No search reads passages.
    low = nas.least(profile) * HEADS if method.keeps == "found" else 0
    return [m for m in possible_widths if m > low]


# ---- COST


def flops(profile: str, name: str, m: int, architecture: Json | None = None) -> int:
    """Return the FLOPs of one forward pass of 128 tokens.

    Counted are matrix products and convolutions, with the pooler. architecture: the
    architecture that a search found, for methods that keep it."""
    base, method = shape(profile), TABLE[name]
    if method.keeps in efficientbert.NETS:
        scaled_net = efficientbert.scaled(method.keeps, profile)
        return 2 * TOKENS * macs(scaled_net) + 2 * scaled_net.hidden**2
    if method.keeps == "found":
        assert architecture is not None
        layers = gated.counts(architecture)
    else:
        pairs = {
            "all": lambda: [(base.heads, base.ffn)] * base.layers,
            "width": lambda: (
                [(m * base.heads // HEADS, m * base.ffn // HEADS)] * base.layers
            ),
        }.get(method.keeps, lambda: module(method.keeps).keep(base, m / HEADS)[0])()
        layers = [{"heads": heads, "ffn": ffn} for heads, ffn in pairs]
    total = gated.flops(base.hidden, base.hidden // base.heads, layers)
    return total + method.ghosts * cost.ghost_flops(base, ghostbert.ghost(profile))


def label(model: str, m: int) -> str:
    return f"{model} {m}/{HEADS}" if m else model


def label_models(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the models of a collected grid, by method and budget.

    The method stands alone in the column `method`.
    """
    frame = frame[frame["kind"] == "model"]
    names = map(label, frame["model"], frame["m"].astype(int))
    return frame.assign(method=frame["model"], model=list(names))


def points(frame: pd.DataFrame, profile: str) -> pd.DataFrame:
    """Return one line for each model and task of a collected grid.

    The score is in points. Its 95 % interval `low` to `high` covers seeds and examples,
    and ends at 100; with one seed it covers examples alone. `gap` is the difference to
    the model `beside`, with its interval where there are three seeds. That model is the
    narrowest plain one of at least the FLOPs of this one (`baseline`), and `budget` is
    its width, of 12. Costs are means over seeds."""
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
            pairs = map(partial(against_labels, column), rows["run"], rows["seed"])
            score = stats.paired_difference([*pairs])
            line = {
                "task": task,
                "model": model,
                "method": name,
                "m": m,
                "seeds": score.n_seeds,
            }
            line |= {"kind": TABLE[name].kind, "score": 100 + score.mean}
            line |= {"low": 100 + score.low, "high": min(100 + score.high, 100.0)}
            lines.append(line | dict(zip(AXES, np.mean([*row_costs], 0), strict=True)))
        for line in lines[start:]:
            line |= difference(
                task_frame, line, baseline(lines[start:], line["flops"]), column
            )
    return pd.DataFrame(lines)


def costs(
    profile: str, row: Mapping[str, Any], architecture: Json | None
) -> tuple[float, float, float]:
    """Return (MFLOPs, million parameters, megabytes) of a row of a collected grid; see
    AXES.

    architecture: as in `flops`.
    """
    pruned = row.get("masked_weights", 0) - row.get("kept_weights", 0)
    weights = row["parameters"] - np.nan_to_num(pruned)
    stored = [
        n for n in (row.get("bytes"), row.get("bytes_sparse")) if n and np.isfinite(n)
    ]
    forward = flops(profile, row["method"], row["m"], architecture)
    return forward / 1e6, weights / 1e6, (*stored, 4 * row["parameters"])[0] / 1e6


def baseline(lines: Iterable[Json], flops: float) -> Json | None:
    """Return the line of the narrowest plain model that has at least so many FLOPs.

    Plain models are cut to a width, or are the whole one, distilled alike. It is None
    where no model has so many."""
    both = [line for line in lines if line["method"] in ("Width", "Whole, distilled")]
    candidates = [line for line in both if SLACK * line["flops"] >= flops]
    return min(candidates, key=lambda line: line["flops"], default=None)


def difference(
    frame: pd.DataFrame, line: Json, other: Json | None, column: Column
) -> Json:
    """Return columns of a line of `points` on the difference to a plain model, of one
    task.

    other: the line of that model, or None.
    """
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
    gap = compare.difference(
        frame, line["model"], other["model"], {column.task: (column,)}
    )
    columns |= {"gap": gap.mean} if gap else {}
    enough = gap and gap.n_seeds >= stats.SEEDS
    return columns | ({"gap_low": gap.low, "gap_high": gap.high} if enough else {})


def against_labels(column: Column, run: Run, seed: int) -> stats.Pair:
    """Return the Pair of a run and the labels.

    Its difference is the score of the run less 100 points.
    """
    rows = compare.judged(run, column)
    labels, said, cluster = rows["labels"], rows["said"], rows["cluster"]
    labels = np.ones(len(said)) if column.metric in stats.MARKS else labels
    return stats.Pair(column.task, seed, labels, said, labels, column.metric, cluster)


def front(table: pd.DataFrame, axis: str) -> list[str]:
    """Return the models of a table of `points` that no model of at most their cost
    beats.

    Costs within EVEN count as equal. The cheapest model stands first.
    """
    ordered = table.sort_values(
        [axis, "score"], ascending=[True, False], ignore_index=True
    )
    best = [
        ordered.loc[ordered[axis] <= EVEN * c, "score"].idxmax() for c in ordered[axis]
    ]
    return list(ordered["model"][best == ordered.index])


def whole_cost(table: pd.DataFrame, axis: str) -> float | None:
    """Return the cost of the whole model in a table of `points`, or None if it is
    absent."""
    full_costs = table.loc[table["method"] == "Whole", axis]
    return float(full_costs.iloc[0]) if len(full_costs) else None


def recommended(
    table: pd.DataFrame, axis: str, share: float
) -> dict[Hashable, Any] | None:
    """Return the line of `points` with the best score under a cost limit.

    The limit is this share of the whole model's cost, and SLACK; of equal scores the
    cheapest counts. It is None where nothing is so cheap. Raises Refused where the
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
