"""This module gives the verdicts on claims to a page, to the scorecard and to `verify`.

    judged(["G1"])["G1"]

A row of `claims.csv` is judged by its cells, from the runs of its pages' grids
(`lib.measure.claims`). Arithmetic and settings are judged by a formula (`lib.page.checks`). The
module is free of torch.
"""

import csv
import re
from dataclasses import replace
from functools import cache, partial
from math import isfinite

from threadpoolctl import threadpool_limits  # It comes with scikit-learn.

from lib.measure import cells, claims, compare, stats
from lib.page import checks, notebook, verdicts
from lib.papers import efficientbert, grids, nas
from lib.papers import planned as plans
from lib.runs import paths
from lib.runs.spec import ancestry, known
from lib.runs.store import Store

SCALE = "mini"
# The plan gives these words to claims whose verdict no seed changes.
FINAL = {"not decidable at mini": "NOT_DECIDABLE", "not testable": "NOT_TESTABLE"}
COLUMNS = {"efficientbert": efficientbert.COLUMNS, "nas": nas.COLUMNS}


# ---- THE RUNS OF A CLAIM


def rows(line, scale=SCALE, seeds=None):
    """Return the rows of the grids of a claim's pages that the cells of the claim name.

    seeds: the planned seeds, unless others are given. Where no seeds are planned, they are the
    seeds of the pages.
    """
    seeds = claims.seeds(line["seeds"]) if seeds is None else seeds
    return cells.named(cells.parsed(line["cells"]), at(line["artefact"], scale, tuple(seeds)))


@cache
def at(artefact, scale, seeds=()):
    """Return the rows of some pages at these seeds, with the rows of searches behind networks."""
    pages = [page for page in artefact.split("; ") if plans.has(scale, page)]
    found = [row for page in pages for row in planned(page, scale, seeds)]
    found += nas.architectures(found)
    return [row for row in found if not seeds or row.get("seed", seeds[0]) in seeds]


@cache
def planned(page, scale, seeds=()):
    """Return the rows of a page at a scale, at these seeds where the page takes seeds.

    Outside mini these are the rows of the variable `grid` alone: all other variables are of mini.
    At given seeds `recorded` is left out, whose rows have the seeds of the page.
    """
    (path,) = notebook.find([page])
    values = {"profile": scale}
    if seeds and "seeds" in notebook.parameters(path):
        values["seeds"] = list(seeds)
    made = notebook.planned(path, values, looked_up=not seeds)
    return sum(made.values(), []) if scale == SCALE else made.get("grid", [])


# ---- VERDICTS


def judged(names=None, store=None, scale=SCALE):
    """Return {id: Verdict} of some claims, or of all.

    The words of central claims at mini are read after Holm's correction over the central claims of
    their paper. `verdicts.csv` has the p of the central claims that are not among the names. Raises
    ValueError for an unknown claim, with the nearest one.

    scale: mini, whose seeds are planned, or paper.
    """
    store, found = store or Store(), {}
    look = cache(store.found)
    taught = cache(partial(teachers, scale, look))
    with threadpool_limits(1):  # The products are small, so more threads would only wait.
        for name in checks.claims() if names is None else names:
            known("claim", name, checks.claims())
            found[name] = judge(checks.claims()[name], scale, look, taught)
    return corrected(found) if scale == SCALE else found


def judge(line, scale, look, taught):
    """Return the Verdict on one claim by itself.

    line: the row of the claim. look: a function from a Spec to what `Store.found` returns. taught:
    a function from a Spec to the runs that its model is to come near.
    """
    if line["check"] and line["role"] in ("arithmetic", "setting"):
        return computed(line)
    if line["cannot"] and (scale == SCALE or not line["cells"]):
        return undecided(line, line["cannot"])
    if not line["cells"]:
        return claims.Verdict(line["id"], "NOT_RUN", "not measured")
    line = line if scale == SCALE else line | {"seeds": ""}
    own = [compare.with_metrics(row | look(row["spec"])) for row in rows(line, scale)]
    of = grids.metrics(scale, COLUMNS.get(line["paper"], ()))
    printed = checks.effects(line["id"])
    try:
        found = claims.judge(line, own, of, taught, scale, printed)
    except LookupError as error:
        return undecided(line, f"{line['artefact']} at {scale} has no {error.args[0]}")
    plan = line["planned"] or {"word": ""}
    if scale == SCALE and plan["word"] in FINAL:
        notes = "; ".join(filter(None, (plan["why"], found.note)))
        found = replace(found, verdict=FINAL[plan["word"]], note=notes, p=None)
    return found


def teachers(scale, look, spec):
    """Return the runs that a model is to come near.

    They are the fine-tuned models of its task that it descends from, else the whole model of the
    task.
    """
    task = spec.args["data"]["task"]
    tuned = [each for each in ancestry([spec]) - {spec} if each.step == "finetune"]
    own = [each for each in tuned if each.args["data"]["task"] == task]
    told = map(look, own or [grids.teacher(scale, task).at(spec.seed)])
    return [each["run"] for each in told if each["run"]]


def undecided(line, why):
    return claims.Verdict(line["id"], "NOT_DECIDABLE", "not measured", why, kind="finding")


def computed(line):
    """Return the Verdict on a claim by its formula.

    A claim that fails is CONTRADICTED where its formula reads no cell, or asks what this code has
    or counts. Otherwise the printed values exclude each other.
    """
    found, read = checks.value(line["paper"], line["check"])
    ours = any(f"{name}(" in line["check"] for name in checks.OURS)
    word = "CONTRADICTED" if ours or not read else "PAPER_INCONSISTENT"
    if checks.agrees(found, line["value"]):
        word = "CONFIRMED"
    told = "holds" if found else "does not hold"
    told += f", by {len(read)} printed cells" * bool(read)
    if isinstance(found, set):
        told = f"{', '.join(sorted(f'{float(v):g}' for v in found))} run, {line['value']} printed"
    elif not isinstance(found, bool | str | list):
        told = f"{float(found):.6g} computed, {line['value']} printed"
    lines = checks.lines("inconsistencies")
    notes = dict.fromkeys(i["note"] for i in lines if line["id"] in i["claims"].split("; "))
    return claims.Verdict(line["id"], word, told, "; ".join(notes) if word != "CONFIRMED" else "")


def corrected(by_id):
    """Return the Verdicts, where words of central claims are read after Holm's correction."""
    result = dict(by_id)
    words = recorded() | {id: (each.verdict, each.p) for id, each in by_id.items()}
    for paper in checks.PAPERS:
        told = {id: words[id] for id in central(paper) if id in words}
        for id, (word, p) in claims.after_holm(told).items():
            if id in by_id:
                result[id] = replace(by_id[id], verdict=word, holm=p)
    return result


def central(paper=None):
    """Return the ids of the central claims of a paper, or of all papers."""
    own = checks.claims().items()
    return [id for id, c in own if c["role"] == "central" and paper in (None, c["paper"])]


def of_page(page):
    """Return the ids of the claims that a page shows: all that are judged and name the page."""
    return [
        id
        for id, line in checks.claims().items()
        if page in line["artefact"].split("; ")
        and (line["role"] in ("central", "finding", "own") or line["check"])
        and line["role"] != "background"
    ]


# ---- THE TABLE OF VERDICTS

HEAD = "claim cell task unit word estimate low high seeds printed p measured".split()


@cache
def recorded():
    """Return {claim: (word, p)} of the committed `verdicts.csv`, empty where there is no file."""
    path = paths.records_root() / "verdicts.csv"
    text = path.read_text() if path.exists() else ""
    rows = [row for row in csv.DictReader(text.splitlines()) if row["cell"] == "verdict"]
    return {row["claim"]: (row["word"], float(row["p"]) if row["p"] else None) for row in rows}


def lines(by_id):
    """Return the rows of `verdicts.csv` for {id: Verdict}: one for each claim and each cell.

    A claim without cells has what was measured in words.
    """
    told = []
    for id, each in by_id.items():
        measured = "" if each.results else each.measured
        told.append((id, "verdict", "", "", each.verdict, "", "", "", "", "", each.p, measured))
        for r in each.results:
            e = r.estimate
            sizes = (e.mean, e.low, e.high) if e else ("", "", "")
            seeds, last = f"{r.done} of {r.planned}", (r.printed, None, r.why)
            told.append((id, r.cell.text, r.task, r.unit, r.word, *sizes, seeds, *last))
    return [tuple(round(v, 8) if type(v) is float else v for v in line) for line in told]


# ---- ALL TOGETHER

ROLES = {"central claims": "central", "further findings": "finding"}
# These marks stand before and behind what README shows.
BLOCK = "<!-- scoreboard: `python -m lib verify --write` -->\n"
FOUND = BLOCK.replace("scoreboard", "found")
FIRST = 3  # README shows so many findings.


def scorecard(words):
    """Return {paper: {kind of claim: how many claims have which word}}.

    Settings without a formula and background are not judged.

    words: {id: word} of all claims.
    """
    found, every = {}, checks.claims().items()
    for paper, title in (checks.PAPERS | {None: "together"}).items():
        of = [paper] if paper else checks.PAPERS
        own = [(line["role"], words[id]) for id, line in every if line["paper"] in of]
        line = found[title] = {}
        for what, wanted in ROLES.items():
            line[what] = verdicts.counted(word for role, word in own if role == wanted)
        printed = [word for role, word in own if role in ("arithmetic", "setting")]
        judged = len(printed) - printed.count("NOT_RUN")
        line["printed numbers"] = f"{printed.count('CONFIRMED')} of {judged} agree"
    return found


def scoreboard(words):
    """Return the scorecard as a table in Markdown, as README shows it."""
    rows = [["paper", *ROLES, "printed numbers"], ["---"] * 4]
    rows += [[title, *line.values()] for title, line in scorecard(words).items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows).replace(" --- ", "---")


def told(found):
    """Return {title: sentences} of `data/found.md`, filled with figures of the Verdicts."""
    text = (paths.DATA / "found.md").read_text()
    parts = (part.strip().format_map(found) for part in text.split("\n\n"))
    return dict(re.match(r"\*\*(.+?)\*\* (.+)", part).groups() for part in parts)


def listed(sentences):
    """Return titles and sentences as a list in Markdown."""
    return "".join(f"- **{title}** {text}\n" for title, text in sentences.items())


def posted(readme, by_id):
    """Return the text of README with a new scoreboard and new findings between their marks."""
    score = scoreboard({id: each.verdict for id, each in by_id.items()})
    first = dict(list(told(by_id).items())[:FIRST])
    for mark, text in ((BLOCK, score), (FOUND, listed(first))):
        before, _, behind = readme.split(mark)
        readme = mark.join([before, text, behind])
    return readme


def forest(by_id, ids):
    """Return what a forest plot of some claims draws: a row for each cell in points.

    A cell whose planned seeds are not all there has no interval.
    """
    import pandas as pd

    told = []
    for id in ids:
        for r in by_id[id].results:
            if r.unit == "points" and r.estimate and not r.beside:
                least, most = (end if isfinite(end) else None for end in r.cell.bounds)
                text = f"{id} {r.cell.words}{f' on {r.task}' * r.cell.each}"
                line = {"claim": text, "mean": r.estimate.mean, "printed": r.printed}
                if r.word != "OPEN" and r.estimate.n_seeds >= stats.SEEDS:
                    line |= {"low": r.estimate.low, "high": r.estimate.high}
                told.append(line | {"seeds": r.done, "least": least, "most": most})
    return pd.DataFrame(told, columns="claim mean low high printed seeds least most".split())
