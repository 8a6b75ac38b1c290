"""Verdicts: every claim of the papers judged in one place, free of torch and of kernels.

    judge("G1", Store())

A verdict has one source, whoever shows it: a page, the scorecard, `verify`. How a claim is judged
follows from its row in `claims.csv`:
- a central claim by its judge, from the runs of its planned seeds (`lib.papers.protocol`);
- a claim whose rule is "that of G1" as that claim;
- arithmetic and settings by their `check`, a formula over printed cells (`lib.checks`);
- a finding with `cells` from the runs at mini of the page that it names;
- the rest is NOT_RUN, with one line why.
"""

import re
from dataclasses import dataclass, replace
from math import inf

import pandas as pd

from lib import checks, sweep
from lib.data import squad
from lib.measure import compare, verdict
from lib.measure.verdict import SCALES, Verdict
from lib.page import notebook
from lib.papers import claims, efficientbert, nas, protocol
from lib.spec import known
from lib.store import Store

SCALE = protocol.SCALE
COLUMNS = {"efficientbert": efficientbert.COLUMNS, "nas": nas.COLUMNS}
# How far a margin of the rule `within` reaches, by the words of its sentence.
SIDES = {"not below": lambda m: (-m, inf), "not above": lambda m: (-inf, m)}
JUDGES = {"ordering": verdict.judge_ordering}  # by the word of the rule; else judge_delta
# Steps of models that are scored on examples.
TRAINED = ("finetune", "distil", "warmup", "retrain", "imp", "fineprune")
SIZED = ("points", "F1 points")  # units in which a printed value is the size of a difference


def judge(name, store=None, seen=None):
    """The Verdict on a claim by its id, from the runs of a store and the printed cells.

    seen: a dict that keeps what several claims share, the frames of pages and other verdicts, while
    the runs stay as they are. Raises ValueError, naming the nearest, for an unknown claim.
    """
    known("claim", name, checks.claims())
    seen = {} if seen is None else seen
    if name not in seen:
        seen[name] = _judged(checks.claims()[name], store or Store(), seen)
    return seen[name]


def judged(names=(), store=None):
    """{id: Verdict} of some claims, or of all."""
    seen, store = {}, store or Store()
    return {name: judge(name, store, seen) for name in names or checks.claims()}


def _judged(line, store, seen):
    name, other = line["id"], re.search(r": that of ([A-Z]\d+)(,|$)", line["rule"])
    if name in protocol.CLAIMS:
        claim = protocol.CLAIMS[name]
        frame = sweep.collect(claim.grid(claim.seeds), store, on_missing="skip")
        return protocol.with_plan(claim.judge(frame, SCALE))
    if other:
        return replace(judge(other[1], store, seen), claim=name)
    if line["check"] and line["role"] in ("arithmetic", "setting"):
        return computed(line)
    if line["cells"]:
        return measured(line, store, seen)
    kind = "finding" if line["role"] == "finding" else "arithmetic"
    why = "background, not to be judged" if line["role"] == "background" else line["rule"]
    return not_run(name, f"no comparison or formula decides it: {why}", kind)


def not_run(name, why, kind="finding"):
    """The Verdict NOT_RUN with one line why."""
    scale = SCALES[SCALE] if kind == "finding" else "any scale"
    return Verdict(name, "NOT_RUN", "not measured", None, why, 0, scale, kind)


# ---- ARITHMETIC


def computed(line):
    """The Verdict on a claim by its check.

    A formula that reads no cell counts something: where it differs from the print, that is
    CONTRADICTED. Where it reads cells, printed values exclude each other.
    """
    found, cells = checks.value(line["paper"], line["check"])
    word = "PAPER_INCONSISTENT" if cells else "CONTRADICTED"
    if checks.agrees(found, line["value"]):
        word = "CONFIRMED"
    told = f"{found} by {len(cells)} printed cells"
    if not isinstance(found, bool | str | list | set):
        told = f"{float(found):.6g} computed, {line['value']} printed"
    notes = [i["note"] for i in checks.lines("inconsistencies") if line["id"] in named(i)]
    note = "; ".join(notes) if word != "CONFIRMED" else ""
    return Verdict(line["id"], word, told, None, note, 0, "any scale", "arithmetic")


def named(inconsistency):
    """The ids of the claims that a row of `inconsistencies.csv` names."""
    return inconsistency["claims"].split("; ")


# ---- FINDINGS


@dataclass(frozen=True)
class Comparison:
    """One cell of a claim: a method above (>) a baseline, or alike (~), in the rows of a grid."""

    method: str
    sign: str
    baseline: str
    where: tuple  # of (column, value as text)

    @property
    def name(self):
        """The rival and the place, as a cell of a verdict is named."""
        return ", ".join([self.baseline, *(f"{key} {value}" for key, value in self.where)])


def comparisons(text):
    """The Comparisons of a claim's `cells`: "A > B @ m=3, task=CoLA; A ~ C".

    Raises ValueError, naming the cell, where one is none.
    """
    found = []
    for part in filter(None, text.split("; ")):
        hit = re.fullmatch(r"(.+?) ([>~]) (.+?)(?: @ (\w+=.+))?", part)
        if not hit:
            raise ValueError(f"cell {part!r}: expected 'A > B' or 'A ~ B', then '@ column=value'")
        where = [tuple(each.split("=", 1)) for each in (hit[4] or "").split(", ") if each]
        found.append(Comparison(*hit.groups()[:3], tuple(where)))
    return found


def grid(artefact):
    """Rows of a page at mini that are scores of models, its own and those that it looks up."""
    (path,) = (path for path in notebook.find() if path.stem == artefact)
    grids = notebook.grids(path, {"profile": SCALE})
    rows = grids.get("grid", []) + grids.get("recorded", [])
    scored = [row for row in rows if {"model", "task"} <= row.keys() and scores(row["spec"])]
    return list({(row["model"], row["spec"]): row for row in scored}.values())


def scores(spec):
    """Whether a run of a Spec is scored on examples that another model can be paired on."""
    return spec.step in TRAINED and spec.args["data"]["task"] not in squad.TASKS


def chosen(rows, comparison):
    """The rows of both models of a Comparison. Raises LookupError for a model without any."""
    found = [
        row for row in rows if all(str(row.get(key)) == value for key, value in comparison.where)
    ]
    both = (comparison.method, comparison.baseline)
    for label in both:
        if label not in {row["model"] for row in found}:
            place = ", ".join(f"{key} {value}" for key, value in comparison.where)
            raise LookupError(" at ".join(filter(None, [f"{label!r}", place])))
    return [row for row in found if row["model"] in both]


def each_task(comparison, rows):
    """The Comparison, or one for each task of its rows where it says `task=each`."""
    if ("task", "each") not in comparison.where:
        return [comparison]
    where = tuple(pair for pair in comparison.where if pair[0] != "task")
    there = chosen(rows, replace(comparison, where=where))
    tasks = dict.fromkeys(row["task"] for row in there)
    return [replace(comparison, where=(*where, ("task", task))) for task in tasks]


def measured(line, store, seen):
    """The Verdict on a finding by its cells, from the runs of the first of its pages."""
    artefact, name = line["artefact"].split("; ")[0], line["id"]
    rows = seen[artefact] = seen.get(artefact) or grid(artefact)
    try:
        cells = [c for told in comparisons(line["cells"]) for c in each_task(told, rows)]
        parts = {cell: chosen(rows, cell) for cell in cells}
    except LookupError as error:
        return not_run(name, f"the grid of {artefact} at mini has no {error}")
    frames = {cell: sweep.collect(own, store, on_missing="skip") for cell, own in parts.items()}
    frames = {cell: frame[~diverged(frame)] for cell, frame in frames.items()}
    above = {cell: frame for cell, frame in frames.items() if cell.sign == ">"}
    found = [higher(line, above)] if above else []
    found += [alike(line, cell, frame) for cell, frame in frames.items() if cell.sign == "~"]
    verdict = claims.together(found) if len(found) > 1 else found[0]
    return replace(verdict, planned=len({row["seed"] for own in parts.values() for row in own}))


def diverged(frame):
    """Which rows are of runs that diverged: their scores are no replicate."""
    return frame["diverged"].eq(True) if "diverged" in frame else frame["seed"].isna()


def higher(line, frames):
    """Verdict on the cells A > B, {Comparison: frame of both models}, all in one."""
    alone, sized = len(frames) == 1, line["unit"] in SIZED
    size = abs(float(line["value"])) if alone and sized else 0.0
    cells = {
        "" if alone else cell.name: (frame, cell.method, cell.baseline, size)
        for cell, frame in frames.items()
    }
    every = pd.concat(frames.values()).drop_duplicates("spec")
    judge = JUDGES.get(line["rule"].split(":")[0], verdict.judge_delta)
    options = {"judge": judge, "word": "over"}
    return claims.compared(line["id"], every, SCALE, cells, columns(line), **options)


def alike(line, cell, frame):
    """Verdict on one cell A ~ B: within the margin of the claim, on the sides that its rule has."""
    margin = abs(float(line["margin"].split()[0]))
    sides = [ends(margin) for words, ends in SIDES.items() if words in line["rule"]]
    low, high = sides[0] if sides else (-margin, margin)
    found = claims.estimate(frame, SCALE, cell.method, cell.baseline, columns(line))
    failed = compare.lost(frame)
    judged = verdict.judge_within(line["id"], found, low, high, SCALE, failed)
    return claims.about(f"{cell.method} over {cell.name}", judged)


def columns(line):
    """The columns that the tables of a claim's paper average."""
    return COLUMNS.get(line["paper"], ())


# ---- ALL TOGETHER

ROLES = {"central claims": "central", "further findings": "finding"}
GROUPS = ("held", "held in part", "did not hold", "open")
BLOCK = "<!-- scoreboard: `python -m lib verify --write` -->\n"  # before and behind README's lines


def scorecard(words):
    """{paper: {(what, how): how many}} of the verdicts' words {id: word} on all claims.

    Settings without a formula and background are not judged.
    """
    found = {}
    for paper, title in checks.PAPERS.items():
        own = [(c["role"], words[id]) for id, c in checks.claims().items() if c["paper"] == paper]
        line = found[title] = {}
        for what, wanted in ROLES.items():
            counts = [verdict.WORDS[word][1] for role, word in own if role == wanted]
            line |= {(what, group): counts.count(group) for group in GROUPS}
        printed = [word for role, word in own if role in ("arithmetic", "setting")]
        agree, silent = printed.count("CONFIRMED"), printed.count("NOT_RUN")
        line["printed numbers", "agree"] = agree
        line["printed numbers", "contradict each other"] = len(printed) - agree - silent
        line["", "not judged"] = silent + sum(role == "background" for role, _ in own)
    found["together"] = {key: sum(line[key] for line in found.values()) for key in line}
    return found


def scoreboard(words):
    """The scorecard as README shows it: a line for each paper."""
    rows = ["| paper | central claims | further findings | printed numbers |", "|---|---|---|---|"]
    for title, line in scorecard(words).items():
        cells = [
            ", ".join(f"{line[what, group]} {group}" for group in GROUPS if line[what, group])
            for what in ROLES
        ]
        agree, not_alike = (line["printed numbers", k] for k in ("agree", "contradict each other"))
        rows.append(f"| {title} | {' | '.join(cells)} | {agree} of {agree + not_alike} agree |")
    return "\n".join(rows) + "\n"


def posted(readme, words):
    """The text of README with the scoreboard between its two marks."""
    before, _, behind = readme.split(BLOCK)
    return BLOCK.join([before, scoreboard(words), behind])


SPREAD = 0.6  # points between seeds where fewer than two are done, as in the trials on SST-2


def power(found):
    """A line on the power of a verdict's planned seeds, where needed with an assumed SPREAD."""
    alone = [cell.seeds < 2 and cell.unit == "points" for cell in found.cells]
    cells = (
        replace(cell, seeds=2, spread=SPREAD) if one else cell
        for cell, one in zip(found.cells, alone, strict=True)
    )
    told = replace(found, cells=tuple(cells)).power
    return told + f", if seeds differ by {SPREAD} points" * (any(alone) and bool(told))


def seeds(found):
    """{id: {what: text}}: planned and done seeds of the central claims, p after Holm, power."""
    adjusted = {}
    for paper in checks.PAPERS:
        own = [found[id] for id in protocol.CLAIMS if checks.claims()[id]["paper"] == paper]
        adjusted |= verdict.holm_paper(own)
    return {
        id: {
            "headline": "yes" * claim.headline,
            "planned": len(claim.seeds),
            "done": found[id].seeds or 0,
            "p after Holm": f"{adjusted[id]:.2g}" if id in adjusted else "–",
            "power at the planned seeds": power(found[id]) or "–",
        }
        for id, claim in protocol.CLAIMS.items()
    }


def forest(found, paper):
    """One row for each cell in points of a paper's central claims: what the forest plot draws."""
    return pd.DataFrame(
        [
            {"claim": f"{id} {cell.name}".strip(), "mean": cell.mean, "low": cell.low}
            | {"high": cell.high, "printed": cell.published, "seeds": cell.seeds}
            | {"least": cell.bounds[0], "most": cell.bounds[1]}
            for id in protocol.CLAIMS
            if checks.claims()[id]["paper"] == paper
            for cell in found[id].cells
            if cell.unit == "points"
        ],
        columns=["claim", "mean", "low", "high", "printed", "seeds", "least", "most"],
    )
