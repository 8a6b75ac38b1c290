"""EfficientBERT's searches: their settings by profile, their Specs, and what Tables 5 and 6 and Figure 3 compare, claims E1,
E3 and E4. Free of torch.

A chain of three searches hands each winner on by itself: `Output("before", "net")` is the network that the search before
found, `Output("search", "supernet")` that network with every stack and width, which the last stage is trained as.
"""

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from lib import data, published
from lib.measure import compare, stats, verdict
from lib.options import Search
from lib.papers import claims, efficientbert, grids
from lib.papers.profiles import backbone, profile
from lib.search import engine
from lib.search import space as spaces
from lib.search.landscape import landscape
from lib.search.net import from_json
from lib.spec import Output, Spec, known, stream

STAGES = {
    "stage1": "Search Stage 1",
    "stage2": "Search Stage 2",
    "stage3": "EfficientBERT",
}  # rows of Table 5
SINGLE, LAST = "single", "stage3"
ENDS = {
    SINGLE: "Single stage",
    "stage1": "Search stage 1",
    "stage2": "Search stage 1, 2",
    LAST: "Coarse-to-Fine NAS",
}  # Table 6

# ---- SETTINGS: evaluations as printed at `paper`; few at the small scales, where stages 1 and 2 train for each of them
BUDGET = {
    "toy": {"stage1": 6, "stage2": 4, LAST: 16, SINGLE: 10},
    "mini": {"stage1": 12, "stage2": 8, LAST: 40, SINGLE: 20},
    "paper": {"stage1": 1900, "stage2": 100, LAST: 3000, SINGLE: 2700},
}
LEARN = {
    "toy": (3, 2),
    "mini": (6, 3),
    "paper": (80, 10),
}  # evaluations before the first fit, and from one to the next
DRAWS = {"toy": 200, "mini": 2000, "paper": 20_000}
METHODS = {
    "random": {},
    "cascade": {"encoding": "index"},
    "lanas": {"encoding": "onehot", "height": 5, "cp": 0.1},
    "evolution": {"population": 10, "tournament": 20},
}  # "cascade" is what the code has for the paper's LaNAS
# How candidates are proposed: at `paper` as coded, else the best of 40 made-up landscapes (numbers 100 to 139 of `made_up`)
# after 16, 20 and 40 evaluations, settings of evolution included; chosen on these alone.
METHOD = {"toy": "evolution", "mini": "evolution", "paper": "cascade"}
LEARNING = ("cascade", "lanas")
# What a candidate of stages 1 and 2 is trained on, (rows, held out), and how; rows held out for stage 3, which trains none.
PART = {"toy": (300, 300), "mini": (1000, 1000), "paper": efficientbert.PART}
HELD_OUT = {
    "toy": grids.HELD_OUT["toy"],
    "mini": 1000,
    "paper": efficientbert.TENTH[efficientbert.PROXY["paper"]],
}
BRIEFLY = {
    "toy": replace(efficientbert.FINETUNE["toy"], epochs=2, batch=8, lr=3e-3),
    "mini": replace(efficientbert.FINETUNE["mini"], epochs=2, lr=1e-3),
    "paper": replace(efficientbert.CANDIDATE["paper"], select="best"),
}
# Where it is not the training of the paper's tables: a candidate's to the end, and that of stage 3's supernet on text and tasks.
FINAL = {"toy": replace(efficientbert.FINETUNE["toy"], epochs=1, batch=16, lr=2e-3)}
PARTS = {
    "toy": (
        replace(efficientbert.PRETRAIN["toy"], epochs=1),
        replace(efficientbert.TOGETHER["toy"], epochs=2),
    )
}
ALONE = ("mini",)  # profiles whose stage 3 starts from the published second one
ENOUGH = 12  # candidates that E4 asks for
CANDIDATES = {"toy": 8, "mini": ENOUGH, "paper": ENOUGH}  # of Figure 3; the paper has 8
SHOWN = {
    "toy": ("Base Model", "EfficientBERT")
}  # published networks of Table 5; elsewhere all four

DEVIATIONS = published.deviations("efficientbert", "search")


def space(profile_name, stage):
    """What step search takes as its space: the stage, the window of sizes, and the grammar that networks are drawn by."""
    low, high = efficientbert.window(profile_name)
    return {"stage": stage, "low": low, "high": high, "grammar": spaces.grammar(stage)}


def sampler(profile_name, stage, method=""):
    """How a stage proposes candidates, the profile's own way where no method is asked for. Raises ValueError naming the nearest
    method."""
    method = method or METHOD[profile_name]
    known("search method", method, METHODS)
    learn = (
        dict(zip(("initial", "refit"), LEARN[profile_name], strict=True))
        if method in LEARNING
        else {}
    )
    return Search(
        method, BUDGET[profile_name][stage], DRAWS[profile_name], **learn, **METHODS[method]
    )


def part(profile_name):
    """Descriptor of the rows that candidates of stages 1 and 2 are trained and scored on."""
    task = efficientbert.PROXY[profile_name]
    return data.describe(
        grids.source(profile_name, task),
        task,
        *PART[profile_name],
        in_order=profile_name == "paper",
    )


def base(profile_name):
    return efficientbert.scaled("Base Model", profile_name)


# ---- SEARCHES


def searched(profile_name, stage, method=""):
    """Spec of a stage, after those before it; "single" is the rival that searches stage 1's space alone."""
    known("search stage", stage, BUDGET[profile_name])
    task = efficientbert.PROXY[profile_name]
    args = {
        "space": space(profile_name, stage),
        "search": sampler(profile_name, stage, method),
        "numerics": profile(profile_name).numerics,
    }
    if stage == LAST:
        rows = data.describe(
            grids.source(profile_name, task),
            task,
            grids.ROWS[profile_name].get(task),
            HELD_OUT[profile_name],
            in_order=profile_name == "paper",
        )
        args |= {"data": rows, "train": efficientbert.TOGETHER[profile_name], "classifier": task}
        if profile_name in ALONE:
            net = efficientbert.scaled(STAGES["stage2"], profile_name)
            return Spec(
                "search",
                args | {"net": net.to_json()},
                {"start": efficientbert.several(profile_name)},
            )
        before = searched(profile_name, "stage2", method)
        return Spec(
            "search",
            args | {"net": Output("before", "net")},
            {"start": several(profile_name, before), "before": before},
        )
    inputs = {
        "start": efficientbert.supernet(profile_name),
        "teacher": efficientbert.teacher(profile_name, task),
    }
    args |= {
        "data": part(profile_name),
        "train": BRIEFLY[profile_name],
        "net": base(profile_name).to_json(),
        "warmup": efficientbert.TAUGHT[profile_name],
    }
    if profile_name in efficientbert.BRIEF:
        args |= {"corpus": text(profile_name), "pretrain": efficientbert.READ[profile_name]}
        inputs["general"] = backbone(profile_name)
    if stage == "stage2":
        args["net"], inputs["before"] = (
            Output("before", "net"),
            searched(profile_name, "stage1", method),
        )
    return Spec("search", args, inputs)


def text(profile_name):
    """What candidates of stages 1 and 2 are trained on first."""
    return efficientbert.corpus(
        profile_name, efficientbert.BRIEF[profile_name], efficientbert.ENCYCLOPEDIA
    )


def several(profile_name, found):
    """Spec of stage 3's supernet as `lib.papers.efficientbert.several`, but with the formulas that the search `found` ended
    on: made anew for each of its seeds."""
    told = {"output": "supernet", "shared": Output("search", "shared")}
    on_text, on_tasks = PARTS.get(
        profile_name, (efficientbert.PRETRAIN[profile_name], efficientbert.TOGETHER[profile_name])
    )
    published_one = efficientbert.several(profile_name)
    start = after(published_one.inputs["start"], found, train=on_text, **told)
    return after(published_one, found, {"start": start}, train=on_tasks, **told)


def after(spec, found, inputs=(), output="net", **args):
    """The same Spec with the network that a search found, and its seed; with other inputs and arguments."""
    return Spec(
        spec.step,
        spec.args | {"net": Output("search", output)} | args,
        spec.inputs | dict(inputs) | {"search": found},
    )


# ---- WHAT BECOMES OF A NETWORK


def retrained(profile_name, task, found):
    """Spec of a search's winner, pre-trained and fine-tuned as the rows of the paper's tables are."""
    start = after(efficientbert.prepared(profile_name, "EfficientBERT"), found)
    return after(efficientbert.tuned(profile_name, task, base(profile_name), start), found)


def final(profile_name, task, net=None, found=None):
    """Spec of a network, or of a search's winner, trained to the end: as rows of tables are or, at the small scales, on the
    task alone, from the supernet."""
    start = efficientbert.supernet(profile_name)
    if profile_name in efficientbert.BRIEF:
        if found:
            return retrained(profile_name, task, found)
        start = efficientbert.pretrained(profile_name, net, start)
    spec = efficientbert.tuned(
        profile_name, task, net or base(profile_name), start, train=FINAL.get(profile_name)
    )
    return after(spec, found) if found else spec


def brief(profile_name, net):
    """Spec of a candidate as stages 1 and 2 train it; its score is that of the held-out rows."""
    start = efficientbert.supernet(profile_name)
    if profile_name in efficientbert.BRIEF:
        start = efficientbert.pretrained(
            profile_name, net, start, text(profile_name), efficientbert.READ[profile_name]
        )
    return efficientbert.tuned(
        profile_name,
        efficientbert.PROXY[profile_name],
        net,
        start,
        train=BRIEFLY[profile_name],
        rows=part(profile_name),
    )


# ---- GRIDS: the column `kind` tells students from searches and supernets, which have no task


def seeds(profile_name, wanted=(), own=efficientbert.SEEDS):
    return tuple(wanted) or own[profile_name]


def stages(profile_name, method=""):
    """{stage: Spec} of the chain that Table 5 shows."""
    return {
        stage: searched(profile_name, stage, method)
        for stage in STAGES
        if stage == LAST or profile_name not in ALONE
    }


def ours(stage):
    """Name of a stage's own winner in Table 5."""
    return f"found in {stage[:-1]} {stage[-1]}"


def chained(profile_name, task_names, seed_numbers, method=""):
    """The grid of Table 5: published networks for all seeds; for the first one the chain of searches and its winners."""
    names, found = (
        SHOWN.get(profile_name, ("Base Model", *STAGES.values())),
        stages(profile_name, method),
    )
    students = grids.crossed(
        seed_numbers,
        lambda task, model: efficientbert.student(profile_name, task, model),
        task=task_names,
        model=names,
    )
    students += grids.crossed(
        seed_numbers[:1],
        lambda task, model: retrained(profile_name, task, found[model]),
        task=task_names,
        model=list(found),
    )
    return [
        {"kind": "student"}
        | row
        | {"model": ours(row["model"]) if row["model"] in found else row["model"]}
        for row in students
    ] + [
        {"kind": "search", "model": stage, "seed": seed, "spec": spec.at(seed)}
        for stage, spec in found.items()
        for seed in seed_numbers[:1]
    ]


def costed(profile_name, task_names, seed_numbers, method=""):
    """The grid of Table 6: all searches, their winners trained to the end, and the supernets, whose cost the paper leaves
    out. A stage 3 that stands alone has the first seed alone."""
    whole, some = (
        efficientbert.supernet(profile_name),
        {LAST: seed_numbers[:1]} if profile_name in ALONE else {},
    )
    rows = [{"kind": "supernet", "model": "Supernet", "seed": whole.seed, "spec": whole}]
    for stage in ENDS:
        found = searched(profile_name, stage, method)
        for seed in some.get(stage, seed_numbers):
            rows.append({"kind": "search", "model": stage, "seed": seed, "spec": found.at(seed)})
            rows += [
                {
                    "kind": "student",
                    "task": task,
                    "model": ENDS[stage],
                    "seed": seed,
                    "spec": final(profile_name, task, found=found).at(seed),
                }
                for task in task_names
            ]
            if stage == LAST:
                made = {
                    "Supernet of stage 3, text": found.inputs["start"].inputs["start"],
                    "Supernet of stage 3, tasks": found.inputs["start"],
                }
                rows += [
                    {
                        "kind": "supernet",
                        "model": name,
                        "seed": seed,
                        "spec": spec if spec.seed == 0 else spec.at(seed),
                    }
                    for name, spec in made.items()
                ]
    return rows


def ranked(profile_name, task_names, count=0):
    """The grid of Figure 3: each candidate as the search scores it, then trained to the end on each task; one seed, the
    profile's first."""
    seed = efficientbert.SEEDS[profile_name][0]
    nets = {f"{number + 1}": net for number, net in enumerate(candidates(profile_name, count))}
    return [
        {
            "kind": "search",
            "task": efficientbert.PROXY[profile_name],
            "model": name,
            "seed": seed,
            "spec": brief(profile_name, net).at(seed),
        }
        for name, net in nets.items()
    ] + [
        {"kind": "student"} | row
        for row in grids.crossed(
            [seed],
            lambda task, model: final(profile_name, task, nets[model]),
            task=task_names,
            model=list(nets),
        )
    ]


@cache
def candidates(profile_name, count=0):
    """Networks of stage 1, all different, drawn without guidance; always the same ones."""
    where = spaces.from_json(
        space(profile_name, "stage1")
        | {"start": base(profile_name).to_json(), "tables": efficientbert.tables(profile_name)}
    )
    found, rng = {}, np.random.default_rng(stream(0, "candidates"))
    while len(found) < (count or CANDIDATES[profile_name]):
        net = where.draw(rng)
        found.setdefault(where.key(net), net)
    return tuple(found.values())


# ---- TABLES AND CLAIMS, out of collected frames


def printed_stages():
    """Table 5 as {row: {("published", column): value}}, its two rows of stage 2 told apart."""
    found = {}
    for row in published.lines("efficientbert", "table05_search_stages"):
        name = row.pop("Model")
        cells = {
            ("published", {"Pre-train Dataset": "text", "Avg": "average"}.get(key, key)): cell
            for key, cell in row.items()
        }
        found[f"{name}, {row['Pre-train Dataset']}" if name in found else name] = cells
    return found


def networks(frame):
    """{title: Net}: what the searches of a frame found, after the network that the first one started with."""
    found = {}
    for row in frame[frame["kind"] == "search"].itertuples():
        if row.run is not None:
            head, *_ = row.run.lines("history.jsonl")
            found.setdefault("start", from_json(head["space"]["start"]))
            found[ours(row.model)] = from_json(row.run.metrics["net"])
    return found


def histories(frames):
    """One line for each evaluation of the searches of {source: frame}: source, arm, stage, seed, evaluation from 1 over the
    whole arm, score in points, the best so far. Arms: the single stage, stages 1 and 2 together, stage 3."""
    arms, lines = (
        {SINGLE: "single stage", "stage1": "stages 1, 2", "stage2": "stages 1, 2", LAST: "stage 3"},
        [],
    )
    for source, frame in frames.items():
        for row in frame[frame["kind"] == "search"].sort_values(["seed", "model"]).itertuples():
            entries = row.run.lines("history.jsonl")[1:] if row.run is not None else []
            told = {"source": source, "arm": arms[row.model], "stage": row.model, "seed": row.seed}
            lines += [told | {"score": 100 * entry["score"]} for entry in entries]
    found = pd.DataFrame(lines, columns=["source", "arm", "stage", "seed", "score"]).astype(
        {"score": float}
    )
    by = found.groupby(["source", "arm", "seed"], sort=False)["score"]
    return found.assign(evaluation=by.cumcount() + 1, best=by.cummax())


def printed_gaps(name, label, column, baseline):
    """{row: points above the row `baseline`} of a published table."""
    values = published.table("efficientbert", name).set_index(label)[column]
    return {
        row: round(float(value) - float(values[baseline]), 1)
        for row, value in values.items()
        if row != baseline
    }


def costs(frame, profile_name, source):
    """{row of Table 6: {(source, column): text}} of a frame of `costed`, mean ± standard deviation over seeds. A row adds up
    the stages to its own; rows of supernets, which the paper leaves out, come last. Seconds are of the wall."""
    found = {
        (row.kind, row.model, row.seed): row for row in frame.itertuples() if row.run is not None
    }
    students, table = (
        compare.points(
            frame[frame["kind"] == "student"], grids.metrics(profile_name, efficientbert.COLUMNS)
        ),
        {},
    )
    for stage, name in ENDS.items():
        alone = stage == LAST and profile_name in ALONE
        upto = [stage] if alone or stage == SINGLE else [s for s in STAGES if s <= stage]
        every = [[found.get(("search", s, seed)) for s in upto] for seed in frame["seed"].unique()]
        chains = [rows for rows in every if all(row is not None for row in rows)]
        if chains:
            count = {row.model: int(row.evaluations) for row in chains[0]}
            table["Search stage 3 alone" if alone else name] = {
                (source, column): text
                for column, text in {
                    "evaluations": f"{sum(count.values()):,}",
                    "of them trained": f"{sum(n for s, n in count.items() if s != LAST):,}",
                    "seconds": compare.spread(
                        [sum(row.run.status["seconds"] for row in rows) for rows in chains]
                    ),
                    "search score": compare.spread([100 * rows[-1].score for rows in chains]),
                    "final score": compare.spread(students[students["model"] == name]["score"]),
                }.items()
            }
    for model in dict.fromkeys(model for kind, model, _ in found if kind == "supernet"):
        seconds = [
            row.run.status["seconds"]
            for key, row in found.items()
            if key[:2] == ("supernet", model)
        ]
        table[model] = {(source, "seconds"): compare.spread(seconds)}
    return table


def claim_searched(frame, profile_name):
    """Verdict on E1: the published network above the base shape, both pre-trained and fine-tuned alike."""
    gap = printed_gaps("table05_search_stages", "Model", "Avg", "Base Model")["EfficientBERT"]
    return claims.delta(
        "E1",
        frame[frame["kind"] == "student"],
        profile_name,
        "EfficientBERT",
        "Base Model",
        gap,
        efficientbert.COLUMNS,
    )


def claim_coarse_to_fine(frame, profile_name):
    """Verdict on E3: winners of the first two stages, and of all three, above the single stage's."""
    gaps = printed_gaps("table06_search_cost", "Method", "Best Score", ENDS[SINGLE])
    gaps = {name: gaps[name] for name in (ENDS["stage2"], ENDS[LAST])}
    students = frame[frame["kind"] == "student"]
    if profile_name in ALONE:  # its stage 3 belongs to no chain
        students = students[students["model"] != ENDS[LAST]]
    cells = {
        name: claims.estimate(
            students, profile_name, name, ENDS[SINGLE], columns=efficientbert.COLUMNS
        )
        for name in gaps
    }
    return verdict.judge_delta(
        "E3", cells, gaps, profile_name, failed=compare.lost(frame), word="for"
    )


def scores(frame, profile_name):
    """Figure 3's points: {title: DataFrame of candidates with the columns search and final}, in points; candidates of which
    one score is missing are left out."""
    scored = grids.metrics(profile_name, efficientbert.COLUMNS)
    proxy = compare.columns(scored, efficientbert.PROXY[profile_name])[0]
    found = frame.loc[frame["kind"] == "search"].set_index("model")
    found = 100 * found.get(f"held_out.{proxy.metric}", pd.Series(dtype=float))
    students = compare.points(frame[frame["kind"] == "student"], scored)
    return {
        title: pd.DataFrame({"search": found, "final": rows.set_index("model")["score"]}).dropna()
        for title, rows in students.groupby("column", sort=False)
    }


def claim_ranking(points, profile_name, least=ENOUGH):
    """Verdict on E4 out of `scores`: Kendall's tau proven positive on most tasks, each over `least` candidates at least."""
    ranks = {
        task: stats.rank_correlation(*frame.to_numpy().T)
        for task, frame in points.items()
        if len(frame) > 2
    }
    enough = [rank for rank in ranks.values() if rank.n >= least]
    above, below = sum(rank.low > 0 for rank in enough), sum(rank.high < 0 for rank in enough)
    word = (
        "NOT_RUN"
        if not ranks or profile_name == "toy"
        else "INCONCLUSIVE"
        if not enough
        else "CONFIRMED"
        if above > len(points) / 2 and not below
        else "PARTIAL"
        if above
        else "CONTRADICTED"
        if below > len(points) / 2
        else "INCONCLUSIVE"
    )
    notes = (
        ["toy scale judges deterministic claims only"]
        if profile_name == "toy"
        else [f"fewer than {least} candidates"] * (len(enough) < len(ranks))
    )
    measured = "; ".join(
        f"tau {r.tau:+.2f} on {task} [{r.low:.2f}, {r.high:.2f}], p = {r.p:.2f}, n = {r.n} candidates"
        for task, r in ranks.items()
    )
    interval = (
        (min(r.low for r in ranks.values()), max(r.high for r in ranks.values())) if ranks else None
    )
    p = sorted(
        [rank.p if rank.tau > 0 else 1.0 for rank in enough] + [1.0] * (len(points) - len(enough))
    )
    return verdict.Verdict(
        "E4",
        word,
        measured or "not measured",
        interval,
        "; ".join(notes),
        sum(2 * r.n for r in ranks.values()),
        verdict.SCALES[profile_name],
        p=p[len(points) // 2] if enough and profile_name != "toy" else None,
    )  # on most tasks


# ---- A SEARCH WITH A KNOWN ANSWER

SPREAD = 0.02  # of a random network's score
MADE_UP = {
    "random": {},
    "cascade": {"initial": 40, "refit": 20},
    "lanas": {"initial": 40, "refit": 10, "cp": 0.01},
    "evolution": {},
}


def made_up(numbers, budget=120, layers=6, methods=tuple(MADE_UP)):
    """Samplers on made-up landscapes over the paper's stage-3 space (lib.search.landscape), one for each of `numbers`: one
    line for each evaluation, the best so far in standard deviations of a random network above the mean, and the optimum's."""
    where, lines = (
        spaces.from_json(
            space("paper", LAST) | {"start": efficientbert.NETS[STAGES["stage2"]].to_json()}
        ),
        [],
    )
    for number in numbers:
        score = landscape(number, layers, spread=SPREAD)
        top = (score.best(where)[1] - score.level) / SPREAD
        for method in methods:
            options = Search(method, budget, 20_000, **METHODS[method] | MADE_UP[method])
            with tempfile.TemporaryDirectory() as folder:
                history = engine.search(
                    where, score, options, number, Path(folder) / "history.jsonl"
                )
            best = np.maximum.accumulate([(e.score - score.level) / SPREAD for e in history])
            lines += [
                {
                    "landscape": number,
                    "method": method,
                    "evaluation": i + 1,
                    "best": b,
                    "optimum": top,
                }
                for i, b in enumerate(best)
            ]
    return pd.DataFrame(lines)


def against_random(found):
    """One line for each sampler of `made_up`: mean of its best over landscapes, by how much it is above that of random search
    with the p of a paired t-test over landscapes, and the optimum's mean."""
    ends = found[found["evaluation"] == found["evaluation"].max()].pivot(
        index="landscape", columns="method", values="best"
    )
    optimum, lines = float(found.groupby("landscape")["optimum"].first().mean()), {}
    for method in found["method"].unique():
        gain = stats.replicates(ends[method] - ends["random"])
        lines[method] = {
            "best": float(ends[method].mean()),
            "above random": gain.mean,
            "p": gain.p,
            "optimum": optimum,
        }
    return pd.DataFrame(lines).T


def remarks(found):
    """What `against_random` says, as lines for a page."""
    table, (count, budget) = (
        against_random(found),
        (found["landscape"].nunique(), found["evaluation"].max()),
    )
    told = "; ".join(
        f"{name} {row['best']:.2f}"
        + ("" if name == "random" else f" (p = {row['p']:.2g} against random)")
        for name, row in table.iterrows()
    )
    alike = [
        name
        for name in METHODS
        if name in table.index and name != "random" and table.loc[name, "p"] >= verdict.ALPHA
    ]
    return [
        f"Mean of the best after {budget} evaluations on {count} landscapes, in standard deviations of a random network: "
        f"{told}; the optimum is at {table['optimum'].iloc[0]:.2f}. The p are of paired t-tests over landscapes.",
        f"Not proven better than random search here: {', '.join(alike) or 'none'}. Searches at toy and mini propose by "
        f"{METHOD['mini']}, those at paper by the {METHOD['paper']} of the public code.",
    ]
