"""This module gives the words of the claims' cells to a page, to the scorecard and to
`verify`.

    judge_claims(["G1"])["G1"]

The cells of a row of `claims.csv` are judged from the runs of its pages' grids
(`lib.claims.words`). Arithmetic and settings are computed again by a formula
(`lib.claims.checks`). The module is free of torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits  # A dependency of scikit-learn.

from lib.claims import cells, checks, lists, notebook, words
from lib.claims import planned as plans
from lib.claims.seeds import SCALES as SCALES
from lib.claims.seeds import list_models_that_may_fail
from lib.core import disk, paths
from lib.core.names import check_name
from lib.core.papers import collect_modules, find_paper_of_page, find_papers
from lib.core.rows import Outcome, Row
from lib.core.spec import Spec
from lib.core.store import Store, read_run_index
from lib.papers import frontier, grids
from lib.stats.compare import Column

if TYPE_CHECKING:
    import pandas as pd

SCALE = "mini"
# Roles of claims whose cells are decided by runs.
ROLES = (
    "central",
    "own",
    "finding",
)


def make_rows_of_claim(
    claim: Mapping[str, Any], scale: str = SCALE, seeds: Iterable[int] | None = None
) -> list[Row]:
    """Return the rows of the pages of a claim that the cells of the claim compare.

    seeds: None for the planned ones. A claim without planned seeds has those of its
    pages."""
    seeds = lists.list_planned_seeds(claim["id"], scale) if seeds is None else seeds
    return cells.select_compared_rows(
        cells.parse_cells(claim["cells"]),
        make_rows_of_pages(claim["artefact"], scale, tuple(seeds)),
    )


@cache
def make_rows_of_pages(
    page_names: str, profile: str, seeds: tuple[int, ...] = ()
) -> list[Row]:
    """Return the rows of some pages at these seeds; () for the seeds of the pages.

    The rows of searches behind networks, and of distillations behind students, follow
    them. `page_names` has the names of the pages, with "; " between."""
    pages = [
        page for page in page_names.split("; ") if plans.has_planned_rows(profile, page)
    ]
    # A plan of lines has the seeds of its rows.
    asked = () if plans.read_plan(profile) else seeds
    grid_rows = [
        row for page in pages for row in make_rows_of_page(page, profile, asked)
    ]
    behind = grids.list_searches_behind(grid_rows) + grids.list_distillations_behind(
        grid_rows
    )
    grid_rows += behind
    return [row for row in grid_rows if not seeds or row.get("seed", seeds[0]) in seeds]


@cache
def make_rows_of_page(
    page: str, profile: str, seeds: tuple[int, ...] = ()
) -> list[Row]:
    """Return the rows of a page at a profile, at these seeds if the page takes seeds.

    Outside mini these are the rows of the variable `grid` alone, since all other
    variables are at mini. With given seeds the variable `recorded` is left out, as its
    rows have the seeds of the page."""
    (path,) = notebook.find_notebooks([page])
    values: dict[str, Any] = {"profile": profile}
    if seeds and "seeds" in notebook.read_parameters(path):
        values["seeds"] = list(seeds)
    made = notebook.make_grids(path, values, with_recorded=not seeds)
    return sum(made.values(), []) if profile == SCALE else made.get("grid", [])


def list_judged_columns(paper: str) -> tuple[Column, ...]:
    """Return the metrics by which a paper judges its tasks; () for the first metric of
    each task."""
    return getattr(collect_modules("recipes").get(paper), "CLAIM_COLUMNS", ())


def judge_claims(
    claim_ids: Iterable[str] | None = None,
    store: Store | None = None,
    scale: str = SCALE,
) -> dict[str, words.Verdict]:
    """Return {id: Verdict} of some claims, or of all.

    The p of each cell is corrected over all cells of its paper at the profile. For
    claims that are not judged here, p comes from `verdicts.csv`. Raises Refused for an
    unknown claim, with the nearest one.

    scale: a profile with recorded runs, or paper."""
    store, by_id = store or Store(), {}
    look = cache(store.look_up_state)
    # More threads would only wait, as the products are small.
    with threadpool_limits(1):
        for name in lists.read_claims() if claim_ids is None else claim_ids:
            check_name("claim", name, lists.read_claims())
            by_id[name] = judge_claim(lists.read_claims()[name], scale, look)
    return correct_p_values(by_id, scale)


def judge_claim(
    claim: dict[str, Any], scale: str, look_up_run: Callable[[Spec], dict[str, Any]]
) -> words.Verdict:
    """Return the Verdict on one claim, with uncorrected p.

    claim: the row of claims.csv. look_up_run: function that finds the run of a Spec, as
    `Store.look_up_state` does."""
    if claim["check"] and claim["role"] in ("arithmetic", "setting"):
        return judge_formula(claim)
    results, notes = [], []
    for seeds, group in group_cells_by_seeds(claim, scale).items():
        part = claim | {"cells": "; ".join(cell.text for cell in group)}
        if why := explain_unreachable_cells(claim, scale, seeds):
            results += [
                words.Result(claim["id"], cell, "", None, 0, len(seeds), why)
                for cell in group
            ]
            continue
        collected = [
            dict(Outcome(row, **look_up_run(row.spec)))
            for row in make_rows_of_claim(part, scale, seeds)
        ]
        judged_cells, note = words.judge_cells(
            part, collected, collect_judging_setting(claim, scale, len(seeds))
        )
        results += judged_cells
        notes += [note] * bool(note)
    order = [cell.text for cell in cells.parse_cells(claim["cells"])]
    results = sorted(
        (describe_result(r) for r in results), key=lambda r: order.index(r.cell.text)
    )
    notes += [claim["cannot"]] * bool(claim["cannot"] and not results)
    return words.Verdict(
        claim["id"], tuple(results), "; ".join(notes), scale, "finding"
    )


def explain_unreachable_cells(
    claim: Mapping[str, Any], scale: str, seeds: tuple[int, ...]
) -> str:
    """Return why no run of a profile can decide the cells of a claim, or ""."""
    if claim["cannot"] and scale != "paper":
        return claim["cannot"]
    planned = scale != SCALE or seeds or claim["role"] != "own"
    return "" if planned else "this question is planned at the profile base alone"


def group_cells_by_seeds(
    claim: Mapping[str, Any], scale: str
) -> dict[tuple[int, ...], list[cells.Cell]]:
    """Return {planned seeds: cells} of a claim.

    A cell that repeats a comparison of a central claim has the seeds of that claim."""
    groups = {}
    for cell in cells.parse_cells(claim["cells"]):
        seeds = lists.list_planned_cell_seeds(claim["id"], cell.text, scale)
        groups.setdefault(seeds, []).append(cell)
    return groups


def collect_judging_setting(
    claim: Mapping[str, Any], scale: str, planned_count: int
) -> words.Setting:
    """Return what else the words of a claim's cells depend on, beside their rows.

    It has the tasks' metrics, the printed effects, the effects of interest, the scores
    of whole models, the number of planned seeds, and the models that may fail."""
    return words.Setting(
        grids.list_columns_by_task(scale, list_judged_columns(claim["paper"])),
        scale,
        checks.compute_printed_effects(claim["id"]),
        lists.read_effects_of_interest(claim["id"]),
        grids.LEVEL.get(scale, {}),
        planned_count,
        list_models_that_may_fail(claim),
    )


def describe_result(result: words.Result) -> words.Result:
    """Return a Result with its comparison as a sentence and as an axis label."""
    words = lists.find_cell_line(result.claim, result.cell.text)
    place = f" on {result.task.replace('/', ' and ')}" if result.task else ""
    if result.task.count("/") > 2 or result.task in words["sentence"]:
        place = ""
    sentence = words["sentence"] + place + describe_claimed_region(result)
    short = words["short"] + place.replace(" on ", ", ")
    return replace(result, sentence=sentence, short=short, same_as=words["same_as"])


def describe_claimed_region(result: words.Result) -> str:
    """Return a claimed region as text, such as " (at most 0.5)".

    It is "" for a region that ends at no effect: the sentence says the direction."""
    low, high = result.cell.bounds
    if isfinite(low) and isfinite(high):
        return (
            f" (within {format_with_all_digits(low)} to {format_with_all_digits(high)})"
            if low < high
            else ""
        )
    end = low if isfinite(low) else high
    if end in (0, result.value_of_no_effect):
        return ""
    return (
        f" ({'at least' if isfinite(low) else 'at most'} {format_with_all_digits(end)})"
    )


def format_with_all_digits(value: float) -> str:
    """Return a margin as text with all its digits, since the word depends on them."""
    return f"{value:g}".replace("-", "−")


def judge_formula(claim: Mapping[str, Any]) -> words.Verdict:
    """Return the Verdict on a claim by its formula.

    A formula that fails gets "differs" if it asks this code for a setting or a count,
    or reads no cell. Otherwise printed numbers contradict each other."""
    value, read = checks.evaluate_formula(claim["paper"], claim["check"])
    equal, differs, inconsistent = words.CHECKS
    word = (
        differs if checks.calls_this_code(claim["check"]) or not read else inconsistent
    )
    if checks.agrees_with_printed_text(value, claim["value"]):
        word = equal
    summary = "holds" if value else "does not hold"
    summary += f", by {len(read)} printed cells" * bool(read)
    if isinstance(value, set):
        run = ", ".join(sorted(f"{float(v):g}" for v in value))
        summary = f"{run} run, {claim['value']} printed"
    elif not isinstance(value, (bool, str, list)):
        summary = f"{float(value):.6g} computed, {claim['value']} printed"
    lines = lists.read_published_csv("inconsistencies")
    notes = dict.fromkeys(
        i["note"] for i in lines if claim["id"] in i["claims"].split("; ")
    )
    note = "; ".join(notes) * (word != equal)
    return words.Verdict(claim["id"], note=note, word=word, measured=summary)


def mark_repeated_comparisons(
    verdicts: Mapping[str, words.Verdict], scale: str
) -> dict[str, words.Verdict]:
    """Return the Verdicts; a finding that repeats a comparison names the other claim.

    `cells.csv` names the repeats that are planned. Two means over tasks can also become
    equal because their other tasks have no runs. Their estimates are then equal to 8
    decimals. Claims that are not in `verdicts` are compared by `verdicts.csv`."""
    first, result = {}, dict(verdicts)
    for row in read_verdicts():
        is_other_claim = row["profile"] == scale and row["claim"] not in verdicts
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
        verdicts, key=lambda id: lists.read_claims()[id]["role"] not in ROLES[:2]
    ):
        results = list(verdicts[id].results)
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
        result[id] = replace(verdicts[id], results=tuple(results))
    return result


def correct_p_values(
    verdicts: Mapping[str, words.Verdict], scale: str = SCALE
) -> dict[str, words.Verdict]:
    """Return the Verdicts with p after Holm's correction over all cells of a paper."""
    verdicts = mark_repeated_comparisons(verdicts, scale)
    result = dict(verdicts)
    for paper in (*lists.PAPERS, "own"):
        ids = [id for id in verdicts if lists.read_claims()[id]["paper"] == paper]
        others = [
            float(row["p"])
            for row in read_verdicts()
            if (row["profile"], row["family"]) == (scale, paper)
            and row["claim"] not in verdicts
        ]
        every = [r for id in ids for r in verdicts[id].results]
        held = iter(words.correct_by_holm(every, others))
        for id in ids:
            results = tuple(next(held) for _ in verdicts[id].results)
            result[id] = replace(verdicts[id], results=results)
    return result


def list_central_claims(paper: str | None = None) -> list[str]:
    """Return the ids of the central claims of a paper; without one, of all papers."""
    items = lists.read_claims().items()
    return [
        id for id, c in items if c["role"] == "central" and paper in (None, c["paper"])
    ]


def list_page_claims(page: str) -> list[str]:
    """Return the ids of the claims that a page shows: all judged ones that name it.

    A finding whose comparisons are all counted by central claims is left out."""
    return [
        id
        for id, line in lists.read_claims().items()
        if page in line["artefact"].split("; ")
        and (line["role"] in ROLES or line["check"])
        and line["role"] != "background"
        and not is_counted_elsewhere(id)
    ]


def is_counted_elsewhere(claim_id: str) -> bool:
    """Return whether each comparison of a claim is counted by another claim."""
    parts = cells.parse_cells(lists.read_claims()[claim_id]["cells"])
    return bool(parts) and all(
        lists.find_cell_line(claim_id, cell.text)["same_as"] for cell in parts
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
    """Return the rows of the committed `verdicts.csv`; [] where there is no file.

    Cells with models of a paper that is not installed are left out."""
    path = paths.records_root() / "verdicts.csv"
    if not path.exists():
        return []
    rows = disk.read_csv(path)
    if not rows or "family" not in rows[0]:
        return []
    if lists.list_absent_papers():
        cells = lists.read_cell_lines()
        rows = [row for row in rows if (row["claim"], row["cell"]) in cells]
    return rows


# Pages that show comparisons of other pages, so that any record may change them.
SUMMARIES = (
    "01_what_we_found 90_claims 93_findings nas_s70_what_matters data_t02_mini_protocol "
) + " ".join(f"{paper.prefix}_01_summary" for paper in find_papers().values())


def digest_page_records(page: str) -> str:
    """Return a digest of what the committed records say of a page.

    It covers the names of its recorded runs and its comparisons; a summary has those of
    all pages, or of the pages of its paper. A committed page holds this digest, which
    tells whether the page is older than the records."""
    names = {row["run"] for row in read_run_index() if row["page"] == page}
    recorded_names = sorted(
        name for name in names if (paths.records_root() / name).exists()
    )
    ids = list_page_claims(page)
    if page in SUMMARIES.split():
        paper = find_paper_of_page(page)
        ids = [
            id
            for id, line in lists.read_claims().items()
            if paper in ("", *map(find_paper_of_page, line["artefact"].split("; ")))
        ]
    keys = "claim cell task profile estimate low high word".split()
    rows = [
        [row[key] for key in keys]
        + [bool(row["holm"]) and float(row["holm"]) < words.ALPHA]
        for row in read_verdicts()
        if row["claim"] in ids
    ]
    return disk.digest_values(recorded_names, rows)[:12]


def format_verdict_lines(
    verdicts: Mapping[str, words.Verdict],
) -> list[tuple[Any, ...]]:
    """Return the rows of `verdicts.csv`: one for each cell on each of its tasks.

    The column `family` is the paper over whose cells p is corrected. It is empty where
    p is not corrected."""
    plan = {
        (r["claim"], r["cell"], r["task"]): r
        for r in lists.read_published_csv("plan_words")
    }
    rows = []
    for id, verdict in verdicts.items():
        paper = lists.read_claims()[id]["paper"]
        for r in verdict.results:
            e, none = r.estimate, ("", "", "")
            sizes = (e.mean, e.low, e.high) if e and not r.reason else none
            if e and not r.reason and r.why_unmeasured:
                sizes = (e.mean, "", "")
            counts = r.p_value is not None and not (r.beside or r.same_as)
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
                + (
                    r.value_of_no_effect,
                    low,
                    high,
                    *sizes,
                    r.counts,
                    r.measured_text,
                    r.printed,
                    r.interest,
                )
                + (
                    e.n_seeds if e else 0,
                    r.done,
                    r.planned,
                    r.word,
                    r.size_against_print,
                )
                + (
                    r.why_unmeasured,
                    r.collapsed,
                    r.p_value,
                    r.holm,
                    r.same_as,
                    "yes" * r.beside,
                )
                + (old.get("word", ""), old.get("p", ""))
            )
    return [
        tuple(round(v, 8) if type(v) is float else v for v in line) for line in rows
    ]


def format_arithmetic_lines(
    verdicts: Mapping[str, words.Verdict],
) -> list[tuple[str, ...]]:
    """Return the rows of `arithmetic.csv`: the printed numbers that are computed
    again."""
    about = {
        id: [line[key] for key in CHECKED[1:4]]
        for id, line in lists.read_claims().items()
    }
    return [
        (id, *about[id], v.word, v.measured) for id, v in verdicts.items() if v.word
    ]


# Marks before and behind the parts of README that are written by `verify`.
FOUND = "<!-- found: `python -m lib verify --write` -->\n"
LEGEND = FOUND.replace("found", "words")
CHOICES = FOUND.replace("found", "methods").strip()  # Inside a line.


def select_counted_results(
    verdicts: Mapping[str, words.Verdict], claim_ids: Iterable[str]
) -> list[words.Result]:
    """Return the Results of some claims, without tasks of a mean and repeats."""
    return [
        r
        for id in claim_ids
        for r in verdicts[id].results
        if not (r.beside or r.same_as)
    ]


def count_effects_outside_intervals(
    verdicts: Mapping[str, words.Verdict],
) -> tuple[int, int]:
    """Return (number, total) of printed effects of central claims that lie outside our
    intervals."""
    held = [
        r.excludes_printed_value
        for r in select_counted_results(verdicts, list_central_claims())
    ]
    held = [flag for flag in held if flag is not None]
    return sum(held), len(held)


def summarise_words(verdicts: Mapping[str, words.Verdict]) -> str:
    """Return the counts of words over all central comparisons, in two sentences."""
    every = select_counted_results(verdicts, list_central_claims())
    sure = [r.word for r in every if r.word != words.NOT_MEASURED]
    parts = f" ({words.count_words(sure)})" * bool(sure)
    out, total = count_effects_outside_intervals(verdicts)
    agree = sum(
        bool(r.excludes_printed_value) and r.word == words.AGREES for r in every
    )
    return (
        f"{len(every)} central comparisons: {len(sure)} measured{parts}, "
        f"{len(every) - len(sure)} not measured. "
        f"Of the {total} measured ones that have a printed value, {out} shut it out "
        f"({agree} of these agree with its direction)."
    )


def fill_findings(verdicts: Mapping[str, words.Verdict]) -> dict[str, str]:
    """Return {title: Markdown} of the parts of `data/found.md`, with figures filled in.

    The part titled README stands in README. A line that names a claim of a paper that
    is not installed is left out, and so is a part without any other line."""
    untouched = next(
        row for row in lists.read_published_csv("untouched") if row["split"] == "dev"
    )
    fields = dict(verdicts) | {
        "IN_ONE_LINE": summarise_words(verdicts),
        "UNTOUCHED": untouched["spearman"],
    }
    lines = (paths.DATA / "found.md").read_text().splitlines()
    if lists.list_absent_papers():
        lines = [line for line in lines if names_installed_claims(line)]
    parts = "\n".join(["", *lines]).split("\n## ")[1:]
    filled = (part.strip().format_map(fields).partition("\n\n") for part in parts)
    return {title: text for title, _, text in filled if text}


def names_installed_claims(line: str) -> bool:
    """Return whether all claims that a line of `data/found.md` names are installed."""
    return {*re.findall(r"\{([A-Z]+\d+)", line)} <= {*lists.read_claims()}


def fill_readme(readme: str, verdicts: Mapping[str, words.Verdict]) -> str:
    """Return the text of README with new findings, the legend and the choices of own
    runs between their marks."""
    rows = "".join(
        f"| {mark} {word} | {line} |\n" for word, (mark, line) in words.WORDS.items()
    )
    parts = {
        FOUND: fill_findings(verdicts)["README"].strip() + "\n",
        LEGEND: f"| word | when |\n|---|---|\n{rows}",
        CHOICES: "; ".join(frontier.describe_choices()),
    }
    for mark, text in parts.items():
        before, _, behind = readme.split(mark)
        readme = mark.join([before, text, behind])
    return readme


def make_forest_rows(
    verdicts: Mapping[str, words.Verdict], claim_ids: Iterable[str]
) -> pd.DataFrame:
    """Return the data of a forest plot: a row for each counted cell in points.

    The columns are source, at (claim and axis label), mean, low, high, printed,
    interest (where none is printed), least and most (ends of the claimed region), seeds
    and word."""
    import pandas as pd

    rows = []
    for r in select_counted_results(verdicts, claim_ids):
        if r.unit == "points" and r.estimate and not r.reason:
            least, most = (end if isfinite(end) else None for end in r.cell.bounds)
            line = {
                "source": f"ours, {SCALE}",
                "at": f"{r.claim} {r.short}",
                "mean": r.estimate.mean,
                "printed": r.printed,
                "interest": r.tested_effect if r.printed is None else None,
            }
            if not r.why_unmeasured:
                line |= {"low": r.estimate.low, "high": r.estimate.high}
            more = {
                "seeds": r.estimate.n_seeds,
                "word": r.reading,
                "least": least,
                "most": most,
            }
            rows.append(line | more)
    columns = "source at mean low high printed interest least most seeds word".split()
    return pd.DataFrame(rows, columns=columns)
