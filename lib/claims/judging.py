"""This module gives the words of claims ("agrees", ...) to notebooks' pages, to the
overview of all claims and to `verify`.

    judge_claims(["G1"])["G1"]

The comparisons of a row of `claims.csv` are tested on the runs of its notebooks' grids
(`lib.claims.words`). A claim on arithmetic or settings is computed again by a formula
(`lib.claims.checks`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

# Installed as a dependency of scikit-learn.
from threadpoolctl import threadpool_limits

from lib.claims import cells, checks, lists, notebook, words
from lib.claims import planned as plans
from lib.claims.seeds import SCALES as SCALES
from lib.claims.seeds import list_models_expected_to_collapse
from lib.core import disk, paths
from lib.core.memo import enable_result_cache
from lib.core.names import check_known_name
from lib.core.papers import (
    find_paper_name_of_notebook,
    import_module_of_each_paper,
    list_papers_by_name,
)
from lib.core.rows import ExperimentOutcome, Row
from lib.core.spec import Spec
from lib.core.store import RunAndState, Store, read_runs_csv
from lib.core.types import CsvRow, ReasonOrEmpty
from lib.papers import frontier, grids
from lib.stats.compare import MetricColumn

if TYPE_CHECKING:
    import pandas as pd

SCALE = "mini"
# Values of the column `role` in claims.csv for claims that are tested by runs: main
# conclusions of a paper, this project's own questions, and further findings of a paper.
ROLES = (
    "central",
    "own",
    "finding",
)

# What two claims share that make the same comparison: (task, unit, bounds of the
# claimed region, estimate, lower end of its interval).
DuplicateResultKey: TypeAlias = tuple[str, str, tuple[float, float], float, float]
SectionTitle: TypeAlias = str  # Title of a part of `data/found.md`.
Markdown: TypeAlias = str


def list_grid_rows_of_claim(
    claim: lists.ClaimsCsvRow,
    profile: str = SCALE,
    seeds_instead_of_planned: Iterable[int] | None = None,
) -> list[Row]:
    """Return the runs that the comparisons of a claim use, as Rows.

    A Row has the labels of a run (task, model, seed and others) and its Spec (the
    description of the run). The notebooks that the claim names list these runs.

    claim: a statement of a paper that runs test, as a row of `claims.csv`.
    profile: the size of the experiments, such as "mini".
    seeds_instead_of_planned: the seeds of the runs; None for those planned for the
    claim. A claim without planned seeds has those of its notebooks."""
    seeds = seeds_instead_of_planned
    if seeds is None:
        seeds = lists.list_planned_seeds(claim["id"], profile)
    return cells.select_compared_rows(
        cells.parse_comparisons(claim["cells"]),
        list_grid_rows_of_notebooks(
            tuple(claim["artefact"].split("; ")), profile, tuple(seeds) or None
        ),
    )


@cache
def list_grid_rows_of_notebooks(
    notebook_ids: tuple[str, ...], profile: str, seeds: tuple[int, ...] | None = None
) -> list[Row]:
    """Return the runs that some notebooks list at a profile, as Rows.

    A Row has the labels of a run and its Spec (the description of the run). Behind them
    follow the architecture searches that found a network of a row, and the
    distillations that made a student, since claims compare these as well. Notebooks
    without runs at the profile are left out.

    profile: the size of the experiments, such as "mini".
    seeds: only rows with these seeds, or without a seed, are returned; None for the
    notebooks' own seeds."""
    # A profile may have a plan, a committed table of the runs to make. It sets the
    # seeds of each row, so notebooks are not asked for particular seeds.
    asked = None if plans.read_run_plan(profile) else seeds
    grid_rows = []
    for page in notebook_ids:
        if plans.notebook_lists_runs_at_profile(profile, page):
            grid_rows += list_grid_rows_of_notebook(page, profile, asked)
    searches = grids.list_architecture_searches_of_models(grid_rows)
    grid_rows += searches + grids.list_distillations_of_students(grid_rows)
    return [row for row in grid_rows if not seeds or row.get("seed", seeds[0]) in seeds]


@cache
def list_grid_rows_of_notebook(
    notebook_id: str, profile: str, seeds: tuple[int, ...] | None = None
) -> list[Row]:
    """Return the runs that one notebook lists at a profile, as Rows.

    Claims pick from them the runs that they compare. A Row has the labels of a run and
    its Spec (the description of the run). At another profile than mini they are the
    runs that the notebook makes (its cell `grid`). At mini also those that it only
    looks up and shows, which are always at mini.

    profile: the size of the experiments, such as "mini".
    seeds: seeds for a notebook that has a parameter `seeds`; None for the notebook's
    own. With seeds, runs that the notebook's function `recorded` lists, only to show
    them, are left out."""
    (path,) = notebook.find_notebooks([notebook_id])
    values: dict[str, Any] = {"profile": profile}
    if seeds and "seeds" in notebook.read_parameter_declarations(path):
        values["seeds"] = list(seeds)
    made = notebook.execute_grid_cell_and_list_rows_by_variable(
        path, values, include_rows_of_recorded_runs=not seeds
    )
    return sum(made.values(), []) if profile == SCALE else made.get("grid", [])


def list_metric_columns_of_claims(paper: str) -> tuple[MetricColumn, ...]:
    """Return the Columns by which the claims of a paper are tested.

    A MetricColumn is a metric on a split of a task. () stands for the first metric of
    each task.

    paper: the name of its folder, such as "bermo"."""
    return getattr(
        import_module_of_each_paper("recipes").get(paper), "CLAIM_COLUMNS", ()
    )


def judge_claims(
    claim_ids: Iterable[str] | None = None,
    store: Store | None = None,
    profile: str = SCALE,
) -> dict[lists.ClaimId, words.Verdict]:
    """Test claims on their runs and return {claim id: Verdict}.

    A Verdict has each comparison of the claim with its estimate and an outcome such as
    "agrees". P-values have Holm's correction over all comparisons of a paper at the
    profile. Claims that are not tested here enter the correction with the p-values of
    the committed `verdicts.csv`. Raises Refused, with the nearest id, for an unknown
    claim.

    claim_ids: such as ["G1"]; None for all claims.
    store: where the runs are looked up.
    profile: the size of the experiments: "mini", "base" or "paper"."""
    store, by_id = store or Store(), {}
    look = cache(store.find_run_with_state)
    # Estimates need only small matrix products, for which more threads would be slower.
    with threadpool_limits(1), enable_result_cache():
        claims = lists.read_claims()
        for name in claims if claim_ids is None else claim_ids:
            check_known_name("claim", name, claims)
            by_id[name] = judge_claim(claims[name], profile, look)
    return correct_p_values_by_holm(by_id, profile)


def judge_planned_claims(
    profile: str, store: Store | None = None
) -> dict[lists.ClaimId, words.Verdict]:
    """Test all claims for which runs are planned, and return {claim id: Verdict}.

    A Verdict is a claim with its tested comparisons. The profile base has planned runs
    for some claims only.

    profile: the size of the experiments: "mini" or "base".
    store: where the runs are looked up."""
    planned = [
        id for id in lists.read_claims() if lists.list_planned_seeds(id, profile)
    ]
    return judge_claims(planned, store, profile)


def judge_claim(
    claim: lists.ClaimsCsvRow,
    profile: str,
    find_run_with_state: Callable[[Spec], RunAndState],
) -> words.Verdict:
    """Test one claim on its runs and return its Verdict.

    A Verdict has each comparison of the claim with its estimate, an outcome such as
    "agrees", and p-values without a correction for multiple tests. A claim on printed
    numbers is computed again instead (`judge_claim_by_formula`).

    claim: a statement of a paper that runs test, as a row of `claims.csv`.
    profile: the size of the experiments, such as "mini".
    find_run_with_state: a function from a Spec (the description of a run) to its run
    and state, such as `Store.find_run_with_state`."""
    if claim["check"] and claim["role"] in ("arithmetic", "setting"):
        return judge_claim_by_formula(claim)
    results, notes = [], []
    for seeds, group in group_comparisons_by_seeds(claim, profile).items():
        part = claim | {"cells": "; ".join(comparison.text for comparison in group)}
        if why := explain_undecidable_claim(claim, profile, seeds):
            results += [
                words.Result(claim["id"], comparison, "", None, 0, len(seeds), why)
                for comparison in group
            ]
            continue
        tasks = plans.list_planned_tasks(
            profile, claim["id"], [comparison.text for comparison in group]
        )
        collected = [
            dict(ExperimentOutcome(row, **find_run_with_state(row.spec)))
            for row in list_grid_rows_of_claim(part, profile, seeds)
            if not tasks or row.get("task", tasks[0]) in tasks
        ]
        judged_comparisons, note = words.judge_comparisons(
            part, collected, collect_judging_inputs(claim, profile, len(seeds))
        )
        results += judged_comparisons
        notes += [note] * bool(note)
    order = [comparison.text for comparison in cells.parse_comparisons(claim["cells"])]
    results = sorted(
        (add_comparison_sentence_and_axis_label(r) for r in results),
        key=lambda r: order.index(r.comparison.text),
    )
    notes += [claim["cannot"]] * bool(claim["cannot"] and not results)
    return words.Verdict(
        claim["id"],
        tuple(results),
        "; ".join(dict.fromkeys(notes)),
        profile,
        "finding",
    )


def explain_undecidable_claim(
    claim: lists.ClaimsCsvRow, profile: str, planned_seeds: tuple[int, ...]
) -> ReasonOrEmpty:
    """Explain in a sentence why no run at a profile can decide a claim; "" if one can.

    An example is a checkpoint that the profile lacks. Comparisons of the claim are then
    shown as not measured, with this reason.

    claim: a statement of a paper that runs test, as a row of `claims.csv`.
    profile: the size of the experiments, such as "mini".
    planned_seeds: the seeds planned for the claim at the profile."""
    if claim["cannot"] and profile != "paper":
        return claim["cannot"]
    planned = profile != SCALE or planned_seeds or claim["role"] != "own"
    return "" if planned else "this question is planned at the profile base alone"


def group_comparisons_by_seeds(
    claim: lists.ClaimsCsvRow, profile: str
) -> dict[tuple[int, ...], list[cells.Comparison]]:
    """Group the comparisons of a claim by their planned seeds: {seeds: Comparisons}.

    Each group is then tested on the runs at its seeds. Where a comparison is counted
    under another claim, which makes the same one, the seeds are those of that claim.

    claim: a statement of a paper that runs test, as a row of `claims.csv`.
    profile: the size of the experiments, such as "mini"."""
    groups = {}
    for comparison in cells.parse_comparisons(claim["cells"]):
        seeds = lists.list_planned_comparison_seeds(
            claim["id"], comparison.text, profile
        )
        groups.setdefault(seeds, []).append(comparison)
    return groups


def collect_judging_inputs(
    claim: lists.ClaimsCsvRow, profile: str, planned_seed_count: int
) -> words.JudgingInputs:
    """Collect what is needed, besides the runs, to test the comparisons of a claim.

    The JudgingInputs have the metrics of each task, the printed effects, the smallest
    effects of interest, the scores of unpruned models, the number of planned seeds, and
    the models that the claim expects to fail.

    claim: a statement of a paper that runs test, as a row of `claims.csv`.
    profile: the size of the experiments, such as "mini".
    planned_seed_count: the number of planned seeds; 0 to count those of the runs."""
    return words.JudgingInputs(
        grids.select_metrics_by_task(
            profile, list_metric_columns_of_claims(claim["paper"])
        ),
        profile,
        checks.compute_printed_effects(claim["id"]),
        lists.read_smallest_effects_of_interest(claim["id"]),
        grids.LEVEL.get(profile, {}),
        planned_seed_count,
        list_models_expected_to_collapse(claim),
    )


def add_comparison_sentence_and_axis_label(result: words.Result) -> words.Result:
    """Return a copy of a measured comparison with its texts for pages and figures.

    The fields `sentence` and `axis_label` get the comparison in words, with
    its task. In the sentence, the effects for which the claim holds may follow, such as
    "(at most 0.5)". `claim_that_counts_it` gets the claim that makes the same
    comparison and counts it, or "". The words are from the table `cells.csv`."""
    words = lists.find_comparison_description(result.claim, result.comparison.text)
    place = f" on {result.task.replace('/', ' and ')}" if result.task else ""
    parts = result.task.split("/")
    if len(parts) > 3 or all(part in words["sentence"] for part in parts):
        place = ""
    sentence = words["sentence"] + place + format_claimed_effect_range(result)
    short = words["short"] + place.replace(" on ", ", ")
    return replace(
        result,
        sentence=sentence,
        axis_label=short,
        claim_that_counts_it=words["same_as"],
    )


def format_claimed_effect_range(result: words.Result) -> str:
    """Return the values of the effect for which a claim holds, as text.

    It stands behind the comparison in words, such as " (at most 0.5)" or " (within −0.5
    to 0.5)". The result is "" where these words suffice: where the claim holds for one
    value alone, or says only in which direction the effect goes.

    result: a measured comparison."""
    low, high = result.comparison.bounds
    if isfinite(low) and isfinite(high):
        return (
            f" (within {format_claimed_bound(low)} to {format_claimed_bound(high)})"
            if low < high
            else ""
        )
    end = low if isfinite(low) else high
    if end in (0, result.value_of_no_effect):
        return ""
    return (
        f" ({'at least' if isfinite(low) else 'at most'} {format_claimed_bound(end)})"
    )


def format_claimed_bound(claimed_bound: float) -> str:
    """Return an end of the range of effects for which a claim holds, as text.

    It has up to six digits, such as "0.5". It is not rounded to the digits of a table,
    since the test compares with this number."""
    return f"{claimed_bound:g}".replace("-", "−")


def judge_claim_by_formula(claim: lists.ClaimsCsvRow) -> words.Verdict:
    """Check a claim on printed numbers by its formula and return its Verdict.

    The Verdict's word is "equal" where the formula's value agrees with the printed one.
    If it does not, the word is "contradicts other printed cells" for a formula that
    computes with printed cells alone, since the paper then disagrees with itself, and
    "differs" for any other formula. The Verdict also has the computed value as text.

    claim: a statement of a paper, as a row of `claims.csv`; the column `check` has the
    formula, a Python expression."""
    value, read = checks.evaluate_formula_on_printed_tables(
        claim["paper"], claim["check"]
    )
    equal, differs, inconsistent = words.CHECKS
    word = (
        differs
        if checks.formula_uses_project_code(claim["check"]) or not read
        else inconsistent
    )
    if checks.agrees_with_printed_text(value, claim["value"]):
        word = equal
    summary = "holds" if value else "does not hold"
    cells_read = f"{len(read)} printed cell{'s' * (len(read) > 1)}"
    summary += f" ({cells_read} read)" * bool(read)
    if isinstance(value, set):
        run = ", ".join(sorted(f"{float(v):g}" for v in value))
        summary = f"{run} run, {claim['value']} printed"
    elif not isinstance(value, (bool, str, list)):
        summary = f"{float(value):.6g} computed, {claim['value']} printed"
    lines = lists.read_csv_in_published_folder("inconsistencies")
    notes = dict.fromkeys(
        i["note"] for i in lines if claim["id"] in i["claims"].split("; ")
    )
    note = "; ".join(notes) * (word != equal)
    return words.Verdict(claim["id"], note=note, verdict_word=word, measured=summary)


def unify_repeated_comparisons(
    verdicts: Mapping[lists.ClaimId, words.Verdict], profile: str
) -> dict[lists.ClaimId, words.Verdict]:
    """Mark comparisons that another claim makes too, so that each is counted once.

    Return {claim id: Verdict (a claim with its measured comparisons)}, where
    `claim_that_counts_it` of a repeated comparison names the other claim. Repeats that
    were known before the runs are marked already. This function finds others:
    differences in points on the same tasks, with the same estimate to 8 decimals, on
    which both claims put equal bounds. Only comparisons of claims with the role
    "finding" are marked.

    A repeat may have no printed effect of its own. It then gets that of the other
    claim, or its smallest effect of interest, since one comparison would otherwise have
    two outcomes.

    verdicts: {claim id: Verdict}. Other claims are read from the committed
    `verdicts.csv`.
    profile: the size of the experiments, such as "mini"."""
    claims, effects, marked = {}, {}, dict(verdicts)
    for verdict in verdicts.values():
        for r in verdict.results:
            if r.estimate and r.reference_effect is not None:
                effects.setdefault(
                    make_result_identity_key(r),
                    (r.printed, r.smallest_effect_of_interest),
                )
    for row in read_verdicts_csv():
        if row["profile"] != profile or row["claim"] in verdicts or not row["low"]:
            continue
        region = float(row["region_low"] or -inf), float(row["region_high"] or inf)
        numbers = float(row["estimate"]), float(row["low"])
        key = row["task"], row["unit"], region, *numbers
        if not (row["same_as"] or row["beside"] or is_secondary_claim(row["claim"])):
            claims.setdefault(key, row["claim"])
        printed, interest = (
            float(row[name]) if row[name] else None for name in ("printed", "interest")
        )
        if (printed, interest) != (None, None):
            effects.setdefault(key, (printed, interest))
    for id in sorted(verdicts, key=is_secondary_claim):
        results = []
        for r in verdicts[id].results:
            key = make_result_identity_key(r) if r.estimate else None
            if key and r.unit.startswith("points") and r.is_counted_in_totals:
                other = claims.setdefault(key, id)
                if other != id and is_secondary_claim(id):
                    r = replace(r, claim_that_counts_it=other)
            lacks_effect = r.reference_effect is None
            lacks_effect &= r.smallest_effect_of_interest != r.value_of_no_effect
            if r.claim_that_counts_it and lacks_effect and key in effects:
                printed, interest = effects[key]
                r = replace(r, printed=printed, smallest_effect_of_interest=interest)
            results.append(r)
        marked[id] = replace(verdicts[id], results=tuple(results))
    return marked


def is_secondary_claim(claim_id: str) -> bool:
    """Return whether a claim is a further finding, and neither central nor our own."""
    return lists.read_claims()[claim_id]["role"] == "finding"


def make_result_identity_key(
    result: words.Result,
) -> DuplicateResultKey:
    """Return what two claims share if they make the same comparison.

    It is (task, unit, bounds of the claimed region, estimate, lower end of its
    interval). The result must have an estimate."""
    e = result.estimate
    assert e is not None
    numbers = round(e.mean, 8), round(e.low, 8)
    return result.task, result.unit, result.comparison.bounds, *numbers


def correct_p_values_by_holm(
    verdicts: Mapping[lists.ClaimId, words.Verdict], profile: str = SCALE
) -> dict[lists.ClaimId, words.Verdict]:
    """Add p-values with Holm's correction over all comparisons of each paper.

    Return {claim id: Verdict (a claim with its measured comparisons)}, where
    `holm_p_value` of a comparison is the corrected p-value. A comparison that several
    claims make enters once.

    verdicts: {claim id: Verdict}. Comparisons of claims that are not in it enter with
    the p-values of the committed `verdicts.csv`.
    profile: the size of the experiments, such as "mini"."""
    verdicts = unify_repeated_comparisons(verdicts, profile)
    result = dict(verdicts)
    for paper in (*lists.PAPERS, "own"):
        ids = [id for id in verdicts if lists.read_claims()[id]["paper"] == paper]
        others = [
            float(row["p"])
            for row in read_verdicts_csv()
            if (row["profile"], row["family"]) == (profile, paper)
            and row["claim"] not in verdicts
        ]
        every = [r for id in ids for r in verdicts[id].results]
        held = iter(words.add_holm_corrected_p_values(every, others))
        for id in ids:
            results = tuple(next(held) for _ in verdicts[id].results)
            result[id] = replace(verdicts[id], results=results)
    return result


def list_central_claim_ids(paper: str | None = None) -> list[str]:
    """Return the ids of the central claims, on which a paper's main conclusions rest.

    Summaries count these claims alone.

    paper: the name of its folder, such as "bermo"; None for all papers."""
    items = lists.read_claims().items()
    return [
        id for id, c in items if c["role"] == "central" and paper in (None, c["paper"])
    ]


def list_notebook_claim_ids(notebook_id: str, profile: str = SCALE) -> list[str]:
    """Return the ids of the claims that a notebook's page shows.

    These are the claims that name the notebook and are tested by runs or by an
    expression on printed numbers. A claim whose comparisons are all counted under other
    claims is left out, as it would show nothing new. At the profile base, so is a claim
    that runs test and for which no runs are planned there.

    profile: the size of the experiments, such as "mini"."""
    return [
        id
        for id, line in lists.read_claims().items()
        if notebook_id in line["artefact"].split("; ")
        and (line["role"] in ROLES or line["check"])
        and line["role"] != "background"
        and not has_only_repeated_comparisons(id)
        and not (
            profile in SCALES[1:]
            and line["role"] in ROLES
            and not lists.list_planned_seeds(id, profile)
        )
    ]


def has_only_repeated_comparisons(claim_id: str) -> bool:
    """Return whether every comparison of a claim is counted under another claim.

    The other claim makes the same comparison. Pages leave out such a claim, so that
    nothing is shown or counted twice.

    claim_id: such as "G1"."""
    parts = cells.parse_comparisons(lists.read_claims()[claim_id]["cells"])
    return bool(parts) and all(
        lists.find_comparison_description(claim_id, comparison.text)["same_as"]
        for comparison in parts
    )


HEAD = (
    "claim,cell,task,profile,family,sentence,unit,no_effect,region_low,region_high,estimate,low,"
    "high,counts,shown,printed,interest,seeds,done,planned,word,size,reason,collapsed,p,holm,"
    "same_as,beside,"
    "plan_word,plan_p"
).split(",")
CHECKED = "claim,paper,role,says,word,computed".split(",")


@cache
def read_verdicts_csv() -> list[CsvRow]:
    """Return the rows of `verdicts.csv`, the committed results of all comparisons.

    A comparison is one test of a paper's claim. There is one row for each comparison on
    a task, as {column: text} with the columns of HEAD, such as `estimate`, `low` and
    `high` (95 % interval), `p` (p-value) and `word` (the outcome, such as "agrees").
    Without the file, or for one of an earlier form, the result is []. Comparisons with
    models of a paper whose code was deleted are left out."""
    path = paths.records_root() / "verdicts.csv"
    if not path.exists():
        return []
    rows = disk.read_csv(path)
    if not rows or "family" not in rows[0]:
        return []
    if lists.list_papers_whose_folder_is_missing():
        cells = lists.read_comparison_descriptions()
        rows = [row for row in rows if (row["claim"], row["cell"]) in cells]
    return rows


# Notebooks that summarise comparisons of other notebooks. Any new record may change
# their pages.
SUMMARIES = (
    "01_what_we_found 90_claims 93_findings nas_s70_what_matters data_t02_mini_protocol "
) + " ".join(f"{paper.prefix}_01_summary" for paper in list_papers_by_name().values())


def digest_results_shown_by_notebook(notebook_id: str) -> str:
    """Return a digest of the committed results that a notebook's page rests on.

    It has 12 characters. A committed page (the executed notebook as text) stores it, so
    a page older than its results is recognised. The digest covers the names of the
    notebook's recorded runs, and the estimates and outcomes of its claims. For a
    notebook that summarises a paper or all papers, it covers all claims of that paper
    or of all papers."""
    names = {row["run"] for row in read_runs_csv() if row["page"] == notebook_id}
    recorded_names = sorted(
        name for name in names if (paths.records_root() / name).exists()
    )
    ids = list_notebook_claim_ids(notebook_id)
    if notebook_id in SUMMARIES.split():
        paper = find_paper_name_of_notebook(notebook_id)
        ids = [
            id
            for id, line in lists.read_claims().items()
            if paper
            in ("", *map(find_paper_name_of_notebook, line["artefact"].split("; ")))
        ]
    keys = "claim cell task profile estimate low high word".split()
    rows = [
        [row[key] for key in keys]
        + [bool(row["holm"]) and float(row["holm"]) < words.ALPHA]
        for row in read_verdicts_csv()
        if row["claim"] in ids
    ]
    return disk.digest_values(recorded_names, rows)[:12]


def format_verdicts_csv_rows(
    verdicts: Mapping[lists.ClaimId, words.Verdict],
) -> list[tuple[Any, ...]]:
    """Return the rows of `verdicts.csv`, the committed table of all tested comparisons.

    There is one tuple for each comparison of a claim on each of its tasks, with the
    columns of HEAD, such as `estimate`, `p` (p-value) and `word` (the outcome, such as
    "agrees"). `family` is the paper over whose comparisons the p-value is corrected, or
    "" where it is not.

    verdicts: {claim id: Verdict (a claim with its measured comparisons)}."""
    plan = {
        (r["claim"], r["cell"], r["task"]): r
        for r in lists.read_csv_in_published_folder("plan_words")
    }
    rows = []
    for id, verdict in verdicts.items():
        paper = lists.read_claims()[id]["paper"]
        for r in verdict.results:
            e = None if r.reason else r.estimate
            mean, lower, upper = (e.mean, e.low, e.high) if e else ("", "", "")
            if r.unmeasured_reason:
                lower, upper = "", ""
            counts = r.p_value is not None and r.is_counted_in_totals
            old = {}
            if verdict.profile == SCALE:
                old = plan.get((id, r.comparison.text, r.task), {})
            low, high = (end if isfinite(end) else "" for end in r.comparison.bounds)
            line = (
                id,
                r.comparison.text,
                r.task,
                verdict.profile,
                paper * counts,
                r.sentence,
                r.unit,
                r.value_of_no_effect,
                low,
                high,
                mean,
                lower,
                upper,
                r.counts,
                r.measured_effect_text,
                r.printed,
                r.smallest_effect_of_interest,
                r.estimate.n_seeds if r.estimate else 0,
                r.ended_seed_count,
                r.planned_seed_count,
                r.verdict_word,
                r.effect_strength_remark,
                r.unmeasured_reason,
                r.collapsed,
                r.p_value,
                r.holm_p_value,
                r.claim_that_counts_it,
                "yes" * r.is_single_task_of_mean,
                old.get("word", ""),
                old.get("p", ""),
            )
            rows.append(line)
    return [
        tuple(round(v, 8) if type(v) is float else v for v in line) for line in rows
    ]


def format_arithmetic_claims_csv_rows(
    verdicts: Mapping[lists.ClaimId, words.Verdict],
) -> list[tuple[str, ...]]:
    """Return the rows of `arithmetic.csv`, a committed file on printed numbers that
    were computed again.

    There is one tuple for each claim on such numbers: claim id, paper, role
    ("arithmetic", "setting" or another role of `claims.csv`), statement, outcome such
    as "equal", and the computed value as text.

    verdicts: {claim id: Verdict}; claims that are decided by runs are left out."""
    about = {
        id: [line[key] for key in CHECKED[1:4]]
        for id, line in lists.read_claims().items()
    }
    return [
        (id, *about[id], v.verdict_word, v.measured)
        for id, v in verdicts.items()
        if v.verdict_word
    ]


# HTML comments that stand before and after the parts of README that `verify --write`
# fills in: the findings, the table of outcome words, and the methods to choose from.
FOUND = "<!-- found: `python -m lib verify --write` -->\n"
LEGEND = FOUND.replace("found", "words")
# The methods are listed inside a line of README, so this comment has no line break.
CHOICES = FOUND.replace("found", "methods").strip()


def select_results_without_repeats_and_single_tasks(
    verdicts: Mapping[lists.ClaimId, words.Verdict], claim_ids: Iterable[str]
) -> list[words.Result]:
    """Return the measured comparisons (Results) of some claims that totals count.

    Two kinds are left out, since they would count twice: a single task of a mean over
    tasks, and a comparison that is counted under another claim.

    verdicts: {claim id: Verdict (a claim with its Results)}."""
    return [
        r for id in claim_ids for r in verdicts[id].results if r.is_counted_in_totals
    ]


class PrintedEffectCounts(NamedTuple):
    outside_interval: int
    total: int


def count_printed_effects_outside_intervals(
    verdicts: Mapping[lists.ClaimId, words.Verdict],
) -> PrintedEffectCounts:
    """Count the printed effects that lie outside our 95 % intervals.

    Return (outside_interval, total).

    `total` counts the measured comparisons of central claims (the main conclusions of
    the papers) for which a paper prints an effect.

    verdicts: {claim id: Verdict (a claim with its measured comparisons)}."""
    held = [
        r.interval_excludes_printed_value
        for r in select_results_without_repeats_and_single_tasks(
            verdicts, list_central_claim_ids()
        )
    ]
    held = [flag for flag in held if flag is not None]
    return PrintedEffectCounts(sum(held), len(held))


def summarise_central_verdicts(verdicts: Mapping[lists.ClaimId, words.Verdict]) -> str:
    """Return three sentences on how many central comparisons agree with the papers.

    Central comparisons belong to the main conclusions of the papers. The first sentence
    counts the outcomes ("agrees", ...), the second those that stay significant after
    Holm's correction, the third the printed effects outside our 95 % intervals. README
    and the overview of claims show them.

    verdicts: {claim id: Verdict (a claim with its measured comparisons)}."""
    every = select_results_without_repeats_and_single_tasks(
        verdicts, list_central_claim_ids()
    )
    sure = [r.verdict_word for r in every if r.verdict_word != words.NOT_MEASURED]
    parts = f" ({words.format_verdict_word_counts(sure)})" * bool(sure)
    stay = [r.verdict_word for r in every if r.is_significant_after_holm_correction]
    kinds = f": {words.format_verdict_word_counts(stay)}" * bool(stay)
    out, total = count_printed_effects_outside_intervals(verdicts)
    agree = sum(
        bool(r.interval_excludes_printed_value) and r.verdict_word == words.AGREES
        for r in every
    )
    return (
        f"{len(every)} central comparisons at mini: {len(sure)} measured{parts}, "
        f"{len(every) - len(sure)} not measured. "
        f"After Holm's correction {len(stay)} stay (†){kinds}. "
        f"Of {total} with a printed value {out} have it outside our interval ({agree} of "
        "these in the claimed region)."
    )


def fill_findings_template(
    verdicts: Mapping[lists.ClaimId, words.Verdict],
    base_profile_verdicts: Mapping[lists.ClaimId, words.Verdict],
) -> dict[SectionTitle, Markdown]:
    """Return {title: Markdown} of the parts of `data/found.md`, filled with results.

    The file is a template for README and pages. Its fields, such as "{G1}", are
    replaced by numbers measured at the profile mini, and fields such as "{BASE[N1]}" by
    those of the profile base (an encoder of BERT-base's size). A line that names a
    claim of a paper whose code was deleted is left out, and so is a part without any
    other line.

    verdicts: {claim id: Verdict (a claim with its measured comparisons)}, at mini.
    base_profile_verdicts: the same at base, for claims with planned runs there."""
    untouched_scores = {
        row["profile"]: row["spearman"]
        for row in lists.read_csv_in_published_folder("untouched")
        if row["split"] == "dev"
    }
    fields = dict(verdicts) | {
        "BASE": base_profile_verdicts,
        "PAPER": lists.PAPERS,
        "IN_ONE_LINE": summarise_central_verdicts(verdicts),
        "UNTOUCHED": untouched_scores,
    }
    lines = (paths.DATA / "found.md").read_text().splitlines()
    if lists.list_papers_whose_folder_is_missing():
        lines = [line for line in lines if needs_installed_papers_only(line)]
    parts = "\n".join(["", *lines]).split("\n## ")[1:]
    filled = (part.strip().format_map(fields).partition("\n\n") for part in parts)
    return {title: text for title, _, text in filled if text}


def needs_installed_papers_only(template_line: str) -> bool:
    """Return whether the code for all claims in a line of a template is there.

    The template `data/found.md` has fields such as "{G1}". A line that names a claim of
    a paper whose code was deleted cannot be filled, and is left out. So is a line with
    the title of such a paper, "{PAPER[bermo]}"."""
    ids = re.findall(r"\{(?:BASE\[)?([A-Z]+\d+)", template_line)
    papers = re.findall(r"\{PAPER\[(\w+)\]", template_line)
    return {*ids} <= {*lists.read_claims()} and {*papers} <= {*lists.PAPERS}


def renew_generated_readme_parts(
    readme_text: str,
    verdicts: Mapping[lists.ClaimId, words.Verdict],
    base_profile_verdicts: Mapping[lists.ClaimId, words.Verdict],
) -> str:
    """Return the text of README with its generated parts written anew.

    These are the findings, the table that explains outcomes such as "agrees", and the
    methods that can be compared on a user's own data. So README cannot differ from the
    committed results.

    readme_text: the present text, with a mark before and after each of these parts.
    verdicts: {claim id: Verdict (a claim with its measured comparisons)}, at mini.
    base_profile_verdicts: the same at the profile base."""
    rows = "".join(
        f"| {mark} {word} | {line} |\n" for word, (mark, line) in words.WORDS.items()
    )
    parts = {
        FOUND: fill_findings_template(verdicts, base_profile_verdicts)["README"].strip()
        + "\n",
        LEGEND: f"| word | when |\n|---|---|\n{rows}",
        CHOICES: "; ".join(frontier.format_help_lines_for_method_comparison()),
    }
    for mark, text in parts.items():
        before, _, behind = readme_text.split(mark)
        readme_text = mark.join([before, text, behind])
    return readme_text


def make_forest_plot_rows(
    verdicts: Mapping[lists.ClaimId, words.Verdict], claim_ids: Iterable[str]
) -> pd.DataFrame:
    """Return the data of a forest plot: a row for each comparison measured in points.

    A comparison that is counted under another claim, or is a single task of a mean, is
    left out. The columns are `source` (always "ours, mini": our runs at profile mini),
    `at` (claim and axis label), `mean`, `low` and `high` (95 % interval), `printed`
    (effect of the paper), `interest` (smallest effect of interest where none is
    printed), `least` and `most` (the effects between which the claim holds), `seeds`
    (their number) and `word` (the outcome, such as "agrees").

    verdicts: {claim id: Verdict (a claim with its measured comparisons)}."""
    import pandas as pd

    rows = []
    for r in select_results_without_repeats_and_single_tasks(verdicts, claim_ids):
        if r.unit == "points" and r.estimate and not r.reason:
            least, most = (
                end if isfinite(end) else None for end in r.comparison.bounds
            )
            e, ends = r.estimate, (None, None)
            if not r.unmeasured_reason:
                ends = e.low, e.high
            reference = r.reference_effect if r.printed is None else None
            place = f"ours, {SCALE}", f"{r.claim} {r.axis_label}"
            effects = e.mean, *ends, r.printed, reference
            rows.append((*place, *effects, least, most, e.n_seeds, r.verdict_text))
    columns = "source at mean low high printed interest least most seeds word".split()
    return pd.DataFrame(rows, columns=columns)
