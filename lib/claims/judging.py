"""This module gives the words on the cells of claims to a page, to the scorecard and to
`verify`.

    judged(["G1"])["G1"]

The cells of a row of `claims.csv` are judged from the runs of its pages' grids
(`lib.claims.words`). Arithmetic and settings are computed again by a formula
(`lib.claims.checks`). The module is free of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits  # It comes with scikit-learn.

from lib.claims import cells, checks, lists, notebook, words
from lib.claims import planned as plans
from lib.claims.seeds import SCALES as SCALES
from lib.claims.seeds import models_that_may_fail
from lib.core import disk, paths
from lib.core.names import check_name
from lib.core.papers import collect_modules, find_papers
from lib.core.rows import Outcome, Row
from lib.core.spec import Spec
from lib.core.store import Store, run_lines
from lib.papers import grids
from lib.stats.compare import Column

if TYPE_CHECKING:
    import pandas as pd

SCALE = "mini"
ROLES = (
    "central",
    "own",
    "finding",
)  # Claims of these roles have cells, which runs decide.


def rows_of_claim(
    line: Mapping[str, Any], scale: str = SCALE, seeds: Iterable[int] | None = None
) -> list[Row]:
    """Return the rows of the grids of a claim's pages that the cells of the claim name.

    seeds: the planned seeds, unless others are given. Where no seeds are planned, they
    are the seeds of the pages."""
    seeds = lists.planned_seeds(line["id"], scale) if seeds is None else seeds
    return cells.select_rows(
        cells.parse_cells(line["cells"]),
        rows_of_pages(line["artefact"], scale, tuple(seeds)),
    )


@cache
def rows_of_pages(artefact: str, scale: str, seeds: tuple[int, ...] = ()) -> list[Row]:
    """Return the rows of some pages at these seeds.

    Beside them are those of searches behind networks, and of distillations behind
    students."""
    pages = [page for page in artefact.split("; ") if plans.has_page(scale, page)]
    asked = (
        () if plans.read_plan(scale) else seeds
    )  # A plan of lines says which seeds a row has.
    grid_rows = [row for page in pages for row in rows_of_page(page, scale, asked)]
    behind = grids.searches_behind(grid_rows) + grids.distillations_behind(grid_rows)
    grid_rows += behind
    return [row for row in grid_rows if not seeds or row.get("seed", seeds[0]) in seeds]


@cache
def rows_of_page(page: str, scale: str, seeds: tuple[int, ...] = ()) -> list[Row]:
    """Return the rows of a page at a scale, at these seeds where the page takes seeds.

    Outside mini these are the rows of the variable `grid` alone: all other variables
    are of mini. At given seeds `read_verdicts` is left out, whose rows have the seeds of the
    page."""
    (path,) = notebook.find_notebooks([page])
    values: dict[str, Any] = {"profile": scale}
    if seeds and "seeds" in notebook.read_parameters(path):
        values["seeds"] = list(seeds)
    made = notebook.make_grids(path, values, looked_up=not seeds)
    return sum(made.values(), []) if scale == SCALE else made.get("grid", [])


def claim_columns(paper: str) -> tuple[Column, ...]:
    """Return the columns by which a paper's tasks are judged; () means their first
    metrics."""
    return getattr(collect_modules("recipes").get(paper), "CLAIM_COLUMNS", ())


def judge_claims(
    names: Iterable[str] | None = None, store: Store | None = None, scale: str = SCALE
) -> dict[str, words.Verdict]:
    """Return {id: Verdict} of some claims, or of all.

    The p of each cell is corrected over all cells of its paper at the profile.
    `verdicts.csv` has the p of the cells of other claims. Raises Refused for an unknown
    claim, with the nearest one.

    scale: a profile with recorded runs, or paper.
    """
    store, by_id = store or Store(), {}
    look = cache(store.lookup)
    with threadpool_limits(
        1
    ):  # The products are small, so more threads would only wait.
        for name in lists.read_claims() if names is None else names:
            check_name("claim", name, lists.read_claims())
            by_id[name] = judge_claim(lists.read_claims()[name], scale, look)
    return correct_p_values(by_id, scale)


def judge_claim(
    line: dict[str, Any], scale: str, look: Callable[[Spec], dict[str, Any]]
) -> words.Verdict:
    """Return the Verdict on one claim, before any correction.

    line: the row of the claim. look: it returns what `Store.lookup` does.
    """
    if line["check"] and line["role"] in ("arithmetic", "setting"):
        return judge_formula(line)
    results, notes = [], []
    for seeds, group in group_cells_by_seeds(line, scale).items():
        part = line | {"cells": "; ".join(cell.text for cell in group)}
        if why := why_out_of_reach(line, scale, seeds):
            results += [
                words.Result(line["id"], cell, "", None, 0, len(seeds), why)
                for cell in group
            ]
            continue
        collected = [
            dict(Outcome(row, **look(row.spec)))
            for row in rows_of_claim(part, scale, seeds)
        ]
        judged_cells, note = words.judge_cells(
            part, collected, read_setting(line, scale, len(seeds))
        )
        results += judged_cells
        notes += [note] * bool(note)
    order = [cell.text for cell in cells.parse_cells(line["cells"])]
    results = sorted(
        (describe_result(r) for r in results), key=lambda r: order.index(r.cell.text)
    )
    notes += [line["cannot"]] * bool(line["cannot"] and not results)
    return words.Verdict(line["id"], tuple(results), "; ".join(notes), scale, "finding")


def why_out_of_reach(
    line: Mapping[str, Any], scale: str, seeds: tuple[int, ...]
) -> str:
    """Return why no run of a profile can decide the cells of a claim, or ""."""
    if line["cannot"] and scale != "paper":
        return line["cannot"]
    planned = scale != SCALE or seeds or line["role"] != "own"
    return "" if planned else "this question is planned at the profile base alone"


def group_cells_by_seeds(
    line: Mapping[str, Any], scale: str
) -> dict[tuple[int, ...], list[cells.Cell]]:
    """Return {planned seeds: cells} of a claim.

    A comparison that a central claim has too is judged at the seeds of that claim.
    """
    groups = {}
    for cell in cells.parse_cells(line["cells"]):
        seeds = lists.planned_cell_seeds(line["id"], cell.text, scale)
        groups.setdefault(seeds, []).append(cell)
    return groups


def read_setting(line: Mapping[str, Any], scale: str, planned: int) -> words.Setting:
    """Return what the cells of a claim are judged with, beside their rows."""
    return words.Setting(
        grids.metrics(scale, claim_columns(line["paper"])),
        scale,
        checks.printed_effects(line["id"]),
        lists.effects_of_interest(line["id"]),
        grids.LEVEL.get(scale, {}),
        planned,
        models_that_may_fail(line),
    )


def describe_result(result: words.Result) -> words.Result:
    """Return a Result with its cell in words."""
    words = lists.cell_line(result.claim, result.cell.text)
    place = f" on {result.task.replace('/', ' and ')}" if result.task else ""
    if result.task.count("/") > 2 or result.task in words["sentence"]:
        place = ""
    sentence = words["sentence"] + place + describe_margin(result)
    short = words["short"] + place.replace(" on ", ", ")
    return replace(result, sentence=sentence, short=short, same_as=words["same_as"])


def describe_margin(result: words.Result) -> str:
    """Return in words a claimed region that does not end at no effect, "" where it
    does."""
    low, high = result.cell.bounds
    if isfinite(low) and isfinite(high):
        return (
            f" (within {format_exactly(low)} to {format_exactly(high)})"
            if low < high
            else ""
        )
    end = low if isfinite(low) else high
    if end in (0, result.null):
        return ""
    return f" ({'at least' if isfinite(low) else 'at most'} {format_exactly(end)})"


def format_exactly(value: float) -> str:
    """Return a margin as text, with all its digits: a word is held to it."""
    return f"{value:g}".replace("-", "−")


def judge_formula(line: Mapping[str, Any]) -> words.Verdict:
    """Return the Verdict on a claim by its formula.

    A claim that fails differs where its formula reads no cell, or asks what this code
    has or counts. Otherwise the printed values exclude each other."""
    value, read = checks.evaluate_formula(line["paper"], line["check"])
    equal, differs, inconsistent = words.CHECKS
    word = differs if checks.asks_code(line["check"]) or not read else inconsistent
    if checks.agrees_with_print(value, line["value"]):
        word = equal
    summary = "holds" if value else "does not hold"
    summary += f", by {len(read)} printed cells" * bool(read)
    if isinstance(value, set):
        run = ", ".join(sorted(f"{float(v):g}" for v in value))
        summary = f"{run} run, {line['value']} printed"
    elif not isinstance(value, (bool, str, list)):
        summary = f"{float(value):.6g} computed, {line['value']} printed"
    lines = lists.read_list("inconsistencies")
    notes = dict.fromkeys(
        i["note"] for i in lines if line["id"] in i["claims"].split("; ")
    )
    note = "; ".join(notes) * (word != equal)
    return words.Verdict(line["id"], note=note, word=word, measured=summary)


def drop_repeats(
    by_id: Mapping[str, words.Verdict], scale: str
) -> dict[str, words.Verdict]:
    """Return the Verdicts, where a finding that repeats a comparison names the claim
    that has it.

    `cells.csv` names those that are planned alike. A mean over tasks can also repeat
    another one because the other tasks of both have no runs. Numbers are then equal to
    the last digit. `verdicts.csv` has the comparisons of other claims."""
    first, result = {}, dict(by_id)
    for row in read_verdicts():
        is_other_claim = row["profile"] == scale and row["claim"] not in by_id
        if is_other_claim and row["low"] and not (row["same_as"] or row["beside"]):
            if lists.read_claims()[row["claim"]]["role"] in ROLES[:2]:
                region = (
                    float(row["region_low"] or -inf),
                    float(row["region_high"] or inf),
                )
                numbers = map(float, (row["estimate"], row["low"]))
                first.setdefault(
                    (row["task"], row["unit"], region, *numbers), row["claim"]
                )
    for id in sorted(
        by_id, key=lambda id: lists.read_claims()[id]["role"] not in ROLES[:2]
    ):
        results = list(by_id[id].results)
        for i, r in enumerate(results):
            if (
                r.estimate
                and r.unit.startswith("points")
                and not (r.beside or r.same_as)
            ):
                numbers = round(r.estimate.mean, 8), round(r.estimate.low, 8)
                key = r.task, r.unit, r.cell.bounds, *numbers
                other = first.setdefault(key, id)
                if other != id and lists.read_claims()[id]["role"] == "finding":
                    results[i] = replace(r, same_as=other)
        result[id] = replace(by_id[id], results=tuple(results))
    return result


def correct_p_values(
    by_id: Mapping[str, words.Verdict], scale: str = SCALE
) -> dict[str, words.Verdict]:
    """Return the Verdicts with Holm's corrected p over all cells of a paper at a
    profile."""
    by_id = drop_repeats(by_id, scale)
    result = dict(by_id)
    for paper in (*lists.PAPERS, "own"):
        ids = [id for id in by_id if lists.read_claims()[id]["paper"] == paper]
        others = [
            float(row["p"])
            for row in read_verdicts()
            if (row["profile"], row["family"]) == (scale, paper)
            and row["claim"] not in by_id
        ]
        every = [r for id in ids for r in by_id[id].results]
        held = iter(words.correct_by_holm(every, others))
        for id in ids:
            results = tuple(next(held) for _ in by_id[id].results)
            result[id] = replace(by_id[id], results=results)
    return result


def list_central_claims(paper: str | None = None) -> list[str]:
    """Return the ids of the central claims of a paper, or of all papers."""
    items = lists.read_claims().items()
    return [
        id for id, c in items if c["role"] == "central" and paper in (None, c["paper"])
    ]


def list_page_claims(page: str) -> list[str]:
    """Return the ids of the claims that a page shows: all that are judged and name the
    page.

    A finding whose every comparison is one of a central claim is told there.
    """
    return [
        id
        for id, line in lists.read_claims().items()
        if page in line["artefact"].split("; ")
        and (line["role"] in ROLES or line["check"])
        and line["role"] != "background"
        and not is_counted_elsewhere(id)
    ]


def is_counted_elsewhere(id: str) -> bool:
    """Return whether each comparison of a claim is counted by another claim."""
    parts = cells.parse_cells(lists.read_claims()[id]["cells"])
    return bool(parts) and all(
        lists.cell_line(id, cell.text)["same_as"] for cell in parts
    )


HEAD = (
    "claim,cell,task,profile,family,sentence,unit,no_effect,region_low,region_high,estimate,low,"
    "high,counts,shown,printed,interest,seeds,done,planned,word,size,reason,collapsed,p,holm,"
    "same_as,beside,"
    "plan_word,plan_p"
).split(",")
CHECKED = "claim,paper,role,says,word,computed".split(",")


@cache
def read_verdicts() -> list[dict[str, str]]:
    """Return the rows of the committed `verdicts.csv`, none where there is no file.

    Claims of a paper that is not here are left out."""
    path = paths.records_root() / "verdicts.csv"
    if not path.exists():
        return []
    rows = disk.read_csv(path)
    if not rows or "family" not in rows[0]:
        return []
    if lists.list_absent_papers():
        rows = [row for row in rows if row["claim"] in lists.read_claims()]
    return rows


# These pages show comparisons of other pages, so they follow all of them.
SUMMARIES = (
    "01_what_we_found 90_claims 93_findings nas_s70_what_matters data_t02_mini_protocol "
) + " ".join(f"{paper.prefix}_01_summary" for paper in find_papers().values())


def digest_of_page(page: str) -> str:
    """Return the digest of what the committed records say of a page.

    It covers the names of its recorded runs and its comparisons. A committed page has
    it, so one that is older than the records is known."""
    names = {row["run"] for row in run_lines() if row["page"] == page}
    recorded_names = sorted(
        name for name in names if (paths.records_root() / name).exists()
    )
    ids = lists.read_claims() if page in SUMMARIES.split() else list_page_claims(page)
    keys = "claim cell task profile estimate low high word".split()
    rows = [
        [row[key] for key in keys]
        + [bool(row["holm"]) and float(row["holm"]) < words.ALPHA]
        for row in read_verdicts()
        if row["claim"] in ids
    ]
    return disk.digest_values(recorded_names, rows)[:12]


def verdict_lines(by_id: Mapping[str, words.Verdict]) -> list[tuple[Any, ...]]:
    """Return the rows of `verdicts.csv` for {id: Verdict}: one for each cell on each of
    its tasks.

    `family` is the paper where the p of the cell is corrected, and empty where it is
    not."""
    plan = {
        (r["claim"], r["cell"], r["task"]): r for r in lists.read_list("plan_words")
    }
    rows = []
    for id, verdict in by_id.items():
        paper = lists.read_claims()[id]["paper"]
        for r in verdict.results:
            e, none = r.estimate, ("", "", "")
            sizes = (e.mean, e.low, e.high) if e and not r.reason else none
            if e and not r.reason and r.unmeasured:
                sizes = (e.mean, "", "")
            counts = r.p is not None and not (r.beside or r.same_as)
            old = (
                plan.get((id, r.cell.text, r.task), {})
                if verdict.profile == SCALE
                else {}
            )
            low, high = (end if isfinite(end) else "" for end in r.cell.bounds)
            rows.append(
                (
                    id,
                    r.cell.text,
                    r.task,
                    verdict.profile,
                    paper * counts,
                    r.sentence,
                    r.unit,
                )
                + (r.null, low, high, *sizes, r.counts, r.ours, r.printed, r.interest)
                + (e.n_seeds if e else 0, r.done, r.planned, r.word, r.size)
                + (r.unmeasured, r.collapsed, r.p, r.holm, r.same_as, "yes" * r.beside)
                + (old.get("word", ""), old.get("p", ""))
            )
    return [
        tuple(round(v, 8) if type(v) is float else v for v in line) for line in rows
    ]


def arithmetic_lines(by_id: Mapping[str, words.Verdict]) -> list[tuple[str, ...]]:
    """Return the rows of `arithmetic.csv`: each printed number that is computed
    again."""
    about = {
        id: [line[key] for key in CHECKED[1:4]]
        for id, line in lists.read_claims().items()
    }
    return [(id, *about[id], v.word, v.measured) for id, v in by_id.items() if v.word]


# These marks stand before and behind what README shows.
FOUND = "<!-- found: `python -m lib verify --write` -->\n"
LEGEND = FOUND.replace("found", "words")


def results_that_count(
    by_id: Mapping[str, words.Verdict], ids: Iterable[str]
) -> list[words.Result]:
    """Return the Results of some claims that count: no task of a mean, no comparison
    twice."""
    return [r for id in ids for r in by_id[id].results if not (r.beside or r.same_as)]


def count_shut_out(by_id: Mapping[str, words.Verdict]) -> tuple[int, int]:
    """Return (how many, of how many) printed effects of central claims our intervals
    shut out."""
    held = [r.shuts_out for r in results_that_count(by_id, list_central_claims())]
    held = [flag for flag in held if flag is not None]
    return sum(held), len(held)


def summarise_words(by_id: Mapping[str, words.Verdict]) -> str:
    """Return what the words say of all central comparisons, in two sentences."""
    every = results_that_count(by_id, list_central_claims())
    counts = Counter(r.word for r in every)
    out, total = count_shut_out(by_id)
    agree = sum(bool(r.shuts_out) and r.word == words.AGREES for r in every)
    return (
        f"Of {len(every)} central comparisons {len(every) - counts[words.NOT_MEASURED]} could be "
        f"measured: {counts[words.AGREES]} agree, {counts[words.NO_EFFECT]} show no such effect, "
        f"{counts[words.OPPOSITE]} go the other way, {counts[words.NOISY]} are too noisy. "
        f"Of the {total} that have a printed value, {out} shut it out "
        f"({agree} of these agree with its direction)."
    )


def fill_texts(by_id: Mapping[str, words.Verdict]) -> dict[str, str]:
    """Return {title: Markdown} of the parts of `data/found.md`, filled with figures of
    Verdicts.

    The part README is what README shows.
    """
    untouched = next(
        row for row in lists.read_list("untouched") if row["split"] == "dev"
    )
    fields = dict(by_id) | {
        "IN_ONE_LINE": summarise_words(by_id),
        "UNTOUCHED": untouched["spearman"],
    }
    parts = f"\n{(paths.DATA / 'found.md').read_text()}".split("\n## ")[1:]
    filled = (part.strip().format_map(fields).partition("\n\n") for part in parts)
    return {title: text for title, _, text in filled}


def fill_readme(readme: str, by_id: Mapping[str, words.Verdict]) -> str:
    """Return the text of README with new findings, and the legend, between their
    marks."""
    rows = "".join(
        f"| {mark} {word} | {line} |\n" for word, (mark, line) in words.WORDS.items()
    )
    parts = {
        FOUND: fill_texts(by_id)["README"].strip() + "\n",
        LEGEND: f"| word | when |\n|---|---|\n{rows}",
    }
    for mark, text in parts.items():
        before, _, behind = readme.split(mark)
        readme = mark.join([before, text, behind])
    return readme


def forest_rows(by_id: Mapping[str, words.Verdict], ids: Iterable[str]) -> pd.DataFrame:
    """Return what a forest plot of some claims draws: a row for each cell in points
    that counts."""
    import pandas as pd

    rows = []
    for r in results_that_count(by_id, ids):
        if r.unit == "points" and r.estimate and not r.reason:
            least, most = (end if isfinite(end) else None for end in r.cell.bounds)
            line = {
                "source": f"ours, {SCALE}",
                "at": f"{r.claim} {r.short}",
                "mean": r.estimate.mean,
                "printed": r.printed,
            }
            if not r.unmeasured:
                line |= {"low": r.estimate.low, "high": r.estimate.high}
            more = {
                "seeds": r.estimate.n_seeds,
                "word": r.reading,
                "least": least,
                "most": most,
            }
            rows.append(line | more)
    columns = "source at mean low high printed least most seeds word".split()
    return pd.DataFrame(rows, columns=columns)
