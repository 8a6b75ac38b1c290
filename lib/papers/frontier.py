"""The frontier: every method on one axis, with one teacher, and the same rows, epochs and seeds.

None of the four papers compares itself with another one. A point is a method at a budget, a share
m/12 of the whole model's FLOPs. Students of the teacher have two stages, as GhostBERT's: they match
its states, then learn the labels. Methods that train in another way have as many epochs. Beside the
papers' methods stand controls that the papers lack, and combinations that they call orthogonal and
never tried. Free of torch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from lib import files, sweep
from lib.measure import claims, compare, cost, gated, stats
from lib.methods import METHODS, module
from lib.options import Targets
from lib.papers import bermo, efficientbert, ghostbert, grids, mini, nas
from lib.papers.profiles import shape
from lib.search.net import macs
from lib.spec import Spec, known, plain

# ---- SETTINGS

HEADS = 12
BUDGETS = {"toy": (3,), "mini": (6, 3, 1), "paper": (6, 3, 1)}  # m of 12
TASKS = {"toy": ("CoLA",), "mini": mini.ONE, "paper": ("SST-2", "MNLI", "QQP")}
SEEDS = {"toy": (0,), "mini": mini.THREE, "paper": (0, 1, 2)}
TOKENS = 128  # of the sentence whose FLOPs count
TOLD = files.toml(Path(__file__).with_suffix(".toml"))  # says what each of its tables is
KINDS, AXES, COMBINED = map(TOLD.get, ("KINDS", "AXES", "COMBINED"))
PRUNING = "Magnitude"  # movement diverges in so few steps, which is claim B2's subject

# ---- SPECS


def student(profile_name, task, *surgery, **inputs):
    """Spec of a student by GhostBERT's two stages, after these operations on the teacher."""
    last = ghostbert.student(profile_name, task, HEADS)
    first = last.inputs["start"]
    told = {"args": first.args | {"surgery": list(surgery)}, "inputs": first.inputs | inputs}
    return replace(last, inputs={"start": replace(first, **told)})


def as_long(settings, profile_name):
    """Train with the epochs of both stages, for a method that has one."""
    both = (ghostbert.DISTIL[profile_name], ghostbert.FINETUNE[profile_name])
    return replace(settings[profile_name], epochs=sum(train.epochs for train in both))


def width(profile_name, task, m):
    return ghostbert.student(profile_name, task, m)


def ghosts(profile_name, task, m):
    return ghostbert.student(profile_name, task, m, ghostbert.ghost(profile_name))


def searched(profile_name, task, m):
    """Spec of a search in the teacher, to m/12 of its FLOPs."""
    own = grids.teacher(profile_name, task)
    return nas.searched(profile_name, task, start=own, guide=own, ratio=m / HEADS)


def drawn(profile_name, task, m):
    """Spec of a random architecture of the same cost."""
    found = nas.drawn(profile_name, task, ratio=m / HEADS)
    return replace(found, inputs={"start": grids.teacher(profile_name, task)})


def network(profile_name, task, m, find=searched, added=False):
    """Spec of a student that keeps what a Spec of `find` finds. added: with ghosts on it."""
    ghost = [{"op": "ghost"} | plain(ghostbert.ghost(profile_name))] * added
    found = find(profile_name, task, m)
    return student(profile_name, task, {"op": "keep"}, *ghost, search=found)


def uniform(profile_name, task, m):
    """Spec of a model of the same shape as `width`, cut in order and not by importance. It learns
    from the teacher's logits alone."""
    own = grids.teacher(profile_name, task)
    cut = {"op": "cut", "heads": ghostbert.kept(profile_name, m)}
    start = Spec("operate", {"surgery": [cut]}, {"teacher": own})
    targets = Targets("soft", sum_classes=True)
    train = as_long(ghostbert.FINETUNE, profile_name)
    told = grids.common(profile_name, task, train=train, targets=targets)
    return Spec("finetune", told, {"start": start, "teacher": own})


def fine_pruned(profile_name, task, m, model):
    """Spec of a model that is pruned to m/12 of the encoder's weights while it is fine-tuned."""
    epochs = as_long(ghostbert.FINETUNE, profile_name).epochs
    made = bermo.pruned(profile_name, task, model, PRUNING, epochs)
    prune = made.args["prune"] | {"final_threshold": m / HEADS}
    return replace(made, args=made.args | {"prune": prune})


def mixed(profile_name, task, m):
    """Spec of a width-pruned model whose last stage has BERMo's mix of the layers."""
    last = width(profile_name, task, m)
    args = {name: last.args[name] for name in ("data", "train", "numerics", "targets")}
    return Spec("fineprune", args | {"mix": bermo.MIX[profile_name]}, last.inputs)


def warmed(profile_name, task, m):
    """Spec of a model with ghosts by EfficientBERT's warm-up distillation: attention, states and
    predictions in one loss, instead of two stages."""
    start = ghostbert.untrained(profile_name, task, m, ghostbert.ghost(profile_name))
    train = as_long(ghostbert.FINETUNE, profile_name)
    told = grids.common(profile_name, task, train=train, warmup=efficientbert.TAUGHT[profile_name])
    return Spec("warmup", told, {"teacher": grids.teacher(profile_name, task), "start": start})


def net(profile_name, task, m, name):
    """Spec of a network of EfficientBERT's tables; m is of no use."""
    made = efficientbert.student(profile_name, task, name)
    return replace(made, args=made.args | {"train": as_long(efficientbert.FINETUNE, profile_name)})


def quantised(profile_name, task, m, make):
    """Spec of a finished model in int8."""
    model = make(profile_name, task, m)
    told = grids.common(profile_name, task, train=model.args["train"])
    return Spec("quantise", told, {"start": model})


def whole(profile_name, task, m):
    return grids.teacher(profile_name, task)


def listed(profile_name, task, m, name):
    """Spec of a student by a module of lib.methods."""
    _, arguments = module(name).kept(shape(profile_name), m / HEADS)
    return student(profile_name, task, {"op": name} | arguments)


# ---- THE TABLE


@dataclass(frozen=True)
class Method:
    """A line of points on the frontier."""

    kind: str  # one of KINDS
    make: Callable  # f(profile name, task, m) -> Spec
    about: str
    # what stays in each layer: "width", all of it ("all"), what a search finds ("found"), a
    # network of EfficientBERT, or a module of lib.methods
    keeps: str = "width"
    ghosts: bool = False
    once: bool = False  # one point instead of one at each budget


MAKERS = {
    "random": partial(network, find=drawn),
    **{m.__name__: m for m in (whole, width, ghosts, network, net, fine_pruned, uniform)},
    **{m.__name__: m for m in (quantised, mixed, warmed)},
}


def _line(make, told=None, **more):
    """A Method of frontier.toml."""
    told = {name: MAKERS[v] if name == "make" else v for name, v in (told or {}).items()}
    return Method(make=partial(MAKERS[make], **told), **more)


TABLE = {title: _line(**told) for title, told in TOLD["TABLE"].items()} | {
    title: Method("control", partial(listed, name=name), module(name).__doc__.split("\n")[0], name)
    for title, name in METHODS.items()
}


def bought(profile_name, budgets=()):
    """The budgets of a page, in twelfths: those that are wanted, or the profile's own, which the
    encoder's heads can have."""
    return ghostbert.possible(profile_name, tuple(budgets) or BUDGETS[profile_name])


def grid(profile_name, task_names=(), seed_numbers=(), budgets=(), methods=()):
    """The grid of the frontier: a row for each method, budget, task and seed.

    A row has the columns task, model (the method), m (0 where it has one point alone) and seed.
    Budgets that the encoder's heads cannot have are left out, and a search's that it cannot reach.
    Raises ValueError, naming the nearest, for an unknown method.
    """
    for name in methods:
        known("method", name, TABLE)
    chosen = {name: TABLE[name] for name in methods or TABLE}
    each, low = bought(profile_name, budgets), nas.least(profile_name) * HEADS

    def own(method):
        return (0,) if method.once else [m for m in each if method.keeps != "found" or m > low]

    return [
        row
        for name, method in chosen.items()
        for row in grids.crossed(
            grids.seeds(profile_name, seed_numbers, own=SEEDS),
            lambda task, model, m: TABLE[model].make(profile_name, task, m),
            task=grids.tasks(profile_name, task_names, own=TASKS),
            model=(name,),
            m=own(method),
        )
    ]


# ---- COST


def flops(profile_name, name, m, architecture=None):
    """FLOPs of one forward pass of 128 tokens: matrix products and convolutions, with the pooler.

    architecture: what the search of a method that keeps what is found has found.
    """
    base, method = shape(profile_name), TABLE[name]
    if method.keeps in efficientbert.NETS:
        own = efficientbert.scaled(method.keeps, profile_name)
        return 2 * TOKENS * macs(own) + 2 * own.hidden**2
    if method.keeps == "found":
        kept = gated.counts(architecture)
    else:
        pairs = {
            "all": lambda: [(base.heads, base.ffn)] * base.layers,
            "width": lambda: [(m * base.heads // HEADS, m * base.ffn // HEADS)] * base.layers,
        }.get(method.keeps, lambda: module(method.keeps).kept(base, m / HEADS)[0])()
        kept = [{"heads": heads, "ffn": ffn} for heads, ffn in pairs]
    total = gated.flops(base.hidden, base.hidden // base.heads, kept)
    return total + method.ghosts * cost.ghost_flops(base, ghostbert.ghost(profile_name))


def label(model, m):
    return f"{model} {m}/{HEADS}" if m else model


def named(frame):
    """A collected grid whose models are named by method and budget, with `m` beside."""
    names = map(label, frame["model"], frame["m"])
    return frame.assign(method=frame["model"], model=list(names))


def points(frame, found, profile_name):
    """One line for each task and model that has a run: `score` in points with its 95 % interval,
    and cost.

    frame: the collected grid. found: that of `nas.architectures(grid)`. The score is the mean over
    seeds, on the judged rows. Its interval is that of the difference to the
    labels; with one seed it covers examples alone. Costs are means over seeds.
    """
    import pandas as pd

    of, lines = grids.metrics(profile_name), []
    cuts = {
        (row["model"], row["m"], row["task"], row["seed"]): row.get("architecture")
        for row in found.to_dict("records")
    }
    there = named(compare.there(frame))
    for (task, model), rows in there.groupby(["task", "model"], sort=False):
        costs = []
        for row in rows.to_dict("records"):
            name, m = row["method"], row["m"]
            kept = cuts.get((name, m, task, row["seed"]))
            pruned = row.get("masked_weights", 0) - row.get("kept_weights", 0)
            weights = row["parameters"] - np.nan_to_num(pruned)
            stored = [row.get(key) for key in ("bytes", "bytes_sparse")]
            stored = [n for n in stored if n and np.isfinite(n)] or [4 * row["parameters"]]
            costs.append((flops(profile_name, name, m, kept) / 1e6, weights / 1e6, stored[0] / 1e6))
        score = stats.paired_difference([beside(run, of[task][0]) for run in rows["run"]])
        line = {"task": task, "model": model, "method": name, "m": m, "kind": TABLE[name].kind}
        line |= dict(zip(AXES, np.mean(costs, 0), strict=True))
        line |= {"score": 100 + score.mean, "low": 100 + score.low, "high": 100 + score.high}
        lines.append(line | {"seeds": score.n_seeds})
    return pd.DataFrame(lines)


def beside(run, column, answers=lambda labels: labels):
    """The Pair of a run and of answers made from the labels; beside the labels themselves its
    difference is its score less 100 points."""
    labels, said, cluster = map(compare.judged(run, column).get, ("labels", "said", "cluster"))
    told = labels, said, answers(labels), column.metric, cluster
    return stats.Pair(column.task, run.spec["seed"], *told)


def one_answer(labels):
    """The commonest class for all rows, or the mean of values."""
    if labels.dtype.kind == "f":
        return np.full(len(labels), labels.mean())
    return np.full(len(labels), np.bincount(labels).argmax())


def unlearned(frame, profile_name):
    """A sentence for each task on which the whole model is not proven above one answer for all
    rows: no smaller model can be judged by it."""
    of, told = grids.metrics(profile_name), []
    whole = frame[frame["run"].notna() & (frame["model"] == "Whole")]
    for task, rows in whole.groupby("task", sort=False):
        pairs = [beside(run, of[task][0], one_answer) for run in rows["run"]]
        lead = stats.paired_difference(pairs)
        if lead.low <= 0:
            told.append(
                f"{task}: the whole model is {lead.mean:+.1f} points [{lead.low:.1f}, "
                f"{lead.high:.1f}] above one answer for all rows, so it has not learned the task. "
                "What is below says little. Give more rows, train longer (profile mini), or take "
                "another encoder."
            )
    return told


def front(table, axis):
    """The models of a table of `points` that none of their cost or less beats, cheapest first."""
    ordered = table.sort_values([axis, "score"], ascending=[True, False])
    best = ordered["score"].cummax().shift(fill_value=-np.inf)
    return list(ordered["model"][ordered["score"] > best])


def whole_cost(table, axis):
    """The cost of the whole model in a table of `points`; None where it is not there."""
    there = table.loc[table["method"] == "Whole", axis]
    return float(there.iloc[0]) if len(there) else None


SLACK = 1.05  # of a budget: searches end near their target, ghosts cost a little


def winners(frame, table, axis, profile_name):
    """At each budget the best model that it buys, and whether the second one is proven behind.

    A budget is the cost of a width-pruned model and 5 % more. frame: the collected grid. table:
    `points` of one task. Returns {budget: a line of the page's table}.
    """
    frame, lines = named(frame), {}
    frame = frame[frame["task"].isin(table["task"])]
    for budget in table[table["method"] == "Width"].to_dict("records"):
        bought = table[table[axis] <= SLACK * budget[axis]].sort_values("score", ascending=False)
        first, second = [*bought["model"], "–"][:2]
        pairs = compare.pairs(frame, first, second, grids.metrics(profile_name))
        gap = stats.paired_difference(pairs) if pairs else None
        proven = gap is not None and gap.n_seeds >= claims.SEEDS and gap.p < claims.ALPHA
        lines[f"{budget['m']}/{HEADS}"] = {
            "best": first,
            "score": f"{bought['score'].iloc[0]:.1f}",
            "second": second,
            "best minus second [95 %]": compare.interval(gap),
            "difference": "proven" if proven else "not proven",
        }
    return lines


def planned(rows, store):
    """{method: what its points would take}: points, runs that are missing, time of one worker.

    A run that several methods share counts for the first of them. rows: those of `grid`.
    """
    clock, seen, lines, every = sweep.Clock(store), set(), {}, {}
    for row in rows:
        every.setdefault(row["model"], []).append(row["spec"])
    for method, specs in every.items():
        missing = [spec for spec in sweep.plan(specs, store).missing if spec not in seen]
        seen |= {*missing}
        time = clock.about(missing) if missing else "none"
        lines[method] = {"points": len(specs), "runs to make": len(missing), "time": time}
    return lines


def recommended(table, axis, share):
    """The line of `points` with the best score whose cost is at most a share of the whole model's;
    of equal scores the cheapest. None where nothing is so cheap.

    Raises ValueError for an axis that is none of AXES, and where the whole model has no run.
    """
    known("axis", axis, AXES)
    whole = whole_cost(table, axis)
    if whole is None:
        raise ValueError("the budget is a share of the model 'Whole': add it to the methods")
    there = table[table[axis] <= share * whole].sort_values([axis])
    return there.loc[there["score"].idxmax()].to_dict() if len(there) else None


# ---- LATENCY AND CLAIM


def as_cut(spec):
    """The Spec of a network of the same shape as a model's, with as little training as may be."""
    start = spec.inputs.get("start")
    if spec.step != "finetune" or "surgery" not in start.args:
        return spec
    inputs = {n: s for n, s in start.inputs.items() if n in ("teacher", "importance", "search")}
    return Spec("operate", {"surgery": start.args["surgery"]}, inputs)


def clocked(profile_name, task_names=(), seed_numbers=(), runs=50, length=TOKENS, batch=8):
    """The grid of the latency of the networks as cut: one row, of the first task and seed.

    Fine-pruned models are left out: their products are those of the whole model.
    """
    task = grids.tasks(profile_name, task_names, own=TASKS)[0]
    seed = grids.seeds(profile_name, seed_numbers, own=SEEDS)[0]
    models = {
        f"model:{label(row['model'], row['m'])}": as_cut(row["spec"])
        for row in grid(profile_name, [task], [seed])
        if "Fine-pruned" not in row["model"]
    }
    told = nas.clock(runs, length, batch) | {"reference": "Whole"}
    return [{"task": task, "seed": seed, "spec": Spec("latency", told, models).at(seed)}]
