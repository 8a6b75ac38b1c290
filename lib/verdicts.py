"""Verdicts: every claim of the papers judged in one place, free of torch and of kernels.

    judge("G1", Store())

A verdict has one source, whoever shows it: a page, the scorecard, `verify`. How a claim is judged
follows from its row in `claims.csv`:
- a central claim by its judge, from the runs of its planned seeds (`lib.papers.protocol`);
- a claim whose rule is "that of G1" as that claim;
- arithmetic and settings by their `check`, a formula over printed cells (`lib.checks`);
- a finding by its `cells`, from the runs at mini of the pages that it names (`lib.findings`);
- a finding that `cannot` be decided here is UNDECIDABLE, with the reason;
- settings without a formula, and background, are NOT_RUN.
"""

import re
from dataclasses import replace

from threadpoolctl import threadpool_limits  # comes with scikit-learn

from lib import checks, findings, paths, pd, sweep
from lib.measure import verdict
from lib.measure.verdict import SCALES, Verdict
from lib.page import notebook
from lib.papers import nas, protocol
from lib.spec import known
from lib.store import Store

SCALE = protocol.SCALE


def judge(name, store=None, seen=None, scale=SCALE):
    """The Verdict on a claim by its id, from the runs of a store and the printed cells.

    seen: a dict that keeps what several claims share, the rows of pages and other verdicts, while
    the runs and the scale stay as they are. scale: mini, whose seeds are planned, or paper, which
    takes the runs of the claim's pages. Raises ValueError, naming the nearest, for an unknown
    claim.
    """
    known("claim", name, protocol.CLAIMS | protocol.OWN | checks.claims())
    seen = {} if seen is None else seen
    if name not in seen:
        seen[name] = _judged(name, store or Store(), seen, scale)
    return seen[name]


def judged(names=None, store=None, scale=SCALE):
    """{id: Verdict} of some claims, or of all."""
    seen, store = {}, store or Store()
    names = checks.claims() if names is None else names
    with threadpool_limits(1):  # the products are small: more threads would but wait
        return {name: judge(name, store, seen, scale) for name in names}


def of_page(page):
    """The ids of the claims that a page shows: all that are judged and name it, central first."""
    return [
        id
        for id, line in checks.claims().items()
        if page in line["artefact"].split("; ")
        and (line["role"] in ("central", "finding") or line["check"])
        and line["role"] != "background"
    ]


def _judged(name, store, seen, scale):
    if claim := (protocol.CLAIMS | protocol.OWN).get(name):
        rows = claim.grid(claim.seeds) if scale == SCALE else grid(name, scale)
        found = claim.judge(sweep.collect(rows, store, on_missing="skip"), scale)
        planned = len(claim.seeds) if found.scale == SCALES[SCALE] else None
        return replace(found, planned=planned)
    line = checks.claims()[name]
    if other := re.search(r": that of ([A-Z]\d+)(,|$)", line["rule"]):
        return replace(judge(other[1], store, seen, scale), claim=name)
    if line["check"] and line["role"] in ("arithmetic", "setting"):
        return computed(line)
    if line["role"] == "finding":
        return measured(line, store, seen, scale)
    why = "background, not to be judged" if line["role"] == "background" else line["rule"]
    why = f"no comparison or formula decides it: {why}"
    return Verdict(name, "NOT_RUN", "not measured", None, why, 0, "any scale", "arithmetic")


def measured(line, store, seen, scale):
    """The Verdict on a finding by its cells (lib.findings), or why none can be had here."""
    if line["cannot"] and (scale == SCALE or not line["cells"]):
        return undecidable(line, line["cannot"], scale)
    if ("rows", line["artefact"]) not in seen:
        seen["rows", line["artefact"]] = grid(line["id"], scale)
    try:
        return findings.measured(line, seen["rows", line["artefact"]], store, scale)
    except LookupError as error:
        why = f"{line['artefact']} at {scale} has no {error.args[0]}"
        return undecidable(line, why, scale)


def undecidable(line, why, scale):
    """The Verdict UNDECIDABLE with one line why."""
    return Verdict(line["id"], "UNDECIDABLE", "not measured", None, why, 0, SCALES[scale])


def grid(name, scale):
    """The rows of all grids of a claim's pages at a scale, with the searches behind networks."""
    rows = []
    for page in checks.claims()[name]["artefact"].split("; "):
        (path,) = (path for path in notebook.find() if path.stem == page)
        found = notebook.grids(path, {"profile": scale})
        for part in found.values() if scale == SCALE else [found.get("grid", [])]:
            rows += part  # what a page looks up beside its own rows is of mini
    return rows + nas.architectures(rows)


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


# ---- ALL TOGETHER

ROLES = {"central claims": "central", "further findings": "finding"}
GROUPS = ("held", "held in part", "did not hold", "open", "cannot be decided here")
BLOCK = "<!-- scoreboard: `python -m lib verify --write` -->\n"  # before and behind README's lines
FOUND = BLOCK.replace("scoreboard", "found")
FIRST = 3  # findings that README shows


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


def standing(found):
    """What is said of a claim: its group and, while too few seeds are done, how many are."""
    group = verdict.WORDS[found.verdict][1]
    if group != "open" or not found.cells:
        return group
    return f"open, {found.seeds} of {found.planned} seeds"


def standings(found, paper):
    """{standing: {what: text}} of the central claims of a paper, as "What we found" shows them."""
    lines = {}
    for id in protocol.CLAIMS:
        line = checks.claims()[id]
        if line["paper"] == paper:
            lines.setdefault(standing(found[id]), []).append(f"{id}: {line['says']}")
    order = [group for _, group, _ in verdict.WORDS.values()]
    ranked = sorted(lines, key=lambda how: (order.index(how.split(",")[0]), how))
    return {how: {"claims": len(lines[how]), "which": " ".join(lines[how])} for how in ranked}


def scoreboard(words):
    """The `scorecard` of the same words as README shows it: a line for each paper."""
    rows = ["| paper | central claims | further findings | printed numbers |", "|---|---|---|---|"]
    for title, counts in scorecard(words).items():
        cells = [
            ", ".join(f"{counts[what, group]} {group}" for group in GROUPS if counts[what, group])
            for what in ROLES
        ]
        agree, differ = (counts["printed numbers", k] for k in ("agree", "contradict each other"))
        rows.append(f"| {title} | {' | '.join(cells)} | {agree} of {agree + differ} agree |")
    return "\n".join(rows) + "\n"


class Printed(dict):
    """{"nas: FORMULA": the points that a formula over printed cells gives}: "{printed[...]}"."""

    def __missing__(self, key):
        return f"{float(checks.value(*key.split(': ', 1))[0]):+.1f}"


def told(found=None, store=None):
    """{title: sentences} of `data/found.md`, what we found, with figures of the Verdicts."""
    text = (paths.DATA / "found.md").read_text()
    found = found or judged(dict.fromkeys(re.findall(r"{([A-Z]\d+)", text)), store)
    told = found | {"printed": Printed()}
    parts = (part.strip().format_map(told) for part in text.split("\n\n"))
    return dict(re.match(r"\*\*(.+?)\*\* (.+)", part).groups() for part in parts)


def listed(told):
    """Titles and sentences as a list in Markdown."""
    return "".join(f"- **{title}** {text}\n" for title, text in told.items())


def posted(readme, found):
    """The text of README with scoreboard and first findings of all Verdicts between their marks."""
    score = scoreboard({id: each.verdict for id, each in found.items()})
    first = dict(list(told(found).items())[:FIRST])
    for mark, text in ((BLOCK, score), (FOUND, listed(first))):
        before, _, behind = readme.split(mark)
        readme = mark.join([before, text, behind])
    return readme


SPREAD = 0.6  # points between seeds where fewer than two are done, as in the trials on SST-2


def power(found):
    """A line on the power of a verdict's planned seeds, where needed with an assumed SPREAD."""
    alone = [cell.seeds < 2 and cell.unit == "points" for cell in found.cells]
    cells = (
        replace(cell, seeds=2, spread=SPREAD) if one else cell
        for cell, one in zip(found.cells, alone, strict=True)
    )
    told = replace(found, cells=tuple(cells)).power
    known = bool(told) and "not known" not in told
    return told + f", where seeds differ by {SPREAD} points" * (any(alone) and known)


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
