"""This module computes the results again from the records, and compares them with the
committed files.

`runs.csv` names the run of each row of each grid. `verdicts.csv` has the word of each
cell of each claim on each of its tasks, with all that the word follows from.
`arithmetic.csv` has the printed numbers that are computed again. `files.csv` has the
digest of each other committed file that a reader sees, or that results rest on.

Each difference is one line. `python -m lib verify --write` writes these files and the
findings in README, if all records are sound. Records and files are checked first, as
words rest on them. No data are read, so every machine computes the same."""

import csv
from collections import defaultdict
from itertools import zip_longest
from pathlib import Path

import pandas as pd

from lib import data
from lib.claims import checks, evidence, judging, lists, notebook, planned
from lib.claims.committed import FILES, FIX, list_changed_files, list_digests
from lib.core import disk, paths
from lib.core.names import error_in_one_line
from lib.core.papers import find_notebook_path, find_paper_of_page
from lib.core.rows import Row
from lib.core.spec import Spec
from lib.core.store import Run, Store
from lib.papers.grids import PROFILES
from lib.stats import metrics

# Columns of the committed files. The first KEY columns identify a line.
COLUMNS = {
    "runs.csv": "page,profile,labels,seed,run",
    "verdicts.csv": ",".join(judging.HEAD),
}
COLUMNS |= {"arithmetic.csv": ",".join(judging.CHECKED)}
KEY = 4
# Allowed difference of a number from the committed one, in the unit of the claim.
NEAR = {"estimate": 1e-6, "low": 1e-4, "high": 1e-4, "p": 1e-4, "holm": 1e-3}


def recompute_metrics(run: Run) -> dict[str, float]:
    """Return {metric: value} of a record, computed again from its stored predictions.

    It is empty where no metric of the run is a score. Raises FileNotFoundError for
    scores without predictions."""
    described = run.spec["args"].get("data", {})
    task = "task" in described and data.task(described["source"], described["task"])
    if not task or not set(task.metrics) & run.metrics.keys():
        return {}
    stored = run.read_arrays("predictions")
    if task.span:  # A record has the marks of such a task, but no texts.
        scores = {name: float(stored[name].mean()) for name in task.metrics}
    else:
        scores = metrics.compute_metrics(task, stored["logits"], stored["labels"])
    if unseen_spec := described.get("unseen"):
        said = data.unpack_predictions(
            run.read_arrays("predictions_unseen"), unseen_spec["rows"]
        )
        more = metrics.compute_metrics(
            task, said, data.read_judging_arrays(described)["labels"]
        )
        scores |= {f"unseen.{name}": value for name, value in more.items()}
    return scores


def describe_damage(run: Run) -> str:
    """Return one line on what is wrong with a record, "" where it is sound."""
    place = paths.show_path(run.folder)
    try:
        if run.status["state"] != "finished" or not run.metrics:
            return f"{place} is no finished run with metrics: make it again"
        for name, value in recompute_metrics(run).items():
            if not abs(value - run.metrics[name]) <= 1e-12:  # Also true for nan.
                return f"{place}: {name} {value} computed, {run.metrics[name]} recorded"
    # Damage raises errors of any kind, and must not hide other damage.
    except Exception as error:
        message = (
            str(error)
            if place in str(error)
            else f"{place} is damaged: {error_in_one_line(error)}"
        )
        return " ".join(message.split())
    return ""


def list_run_lines(store: Store) -> list[tuple[str, ...]]:
    """Return the lines of `runs.csv`: the run of each row of all pages and claims.

    A line has the page or the claim, profile, labels, seed and name of the run. Where a
    run is recorded in float32 alone (`Spec.float32_twin`), the line names that run.

    A page at `paper` has its variable `grid` alone, since its other variables are at
    mini. A page at a profile with a plan has the rows of the plan's lines."""
    grids = {
        (claim["id"], judging.SCALE): judging.make_rows_of_claim(claim)
        for claim in evidence.select_claims()
    }
    for page in (notebook.make_notebook_id(path) for path in notebook.find_notebooks()):
        grids[page, judging.SCALE] = judging.make_rows_of_page(page, judging.SCALE)
        grids[page, "paper"] = checks.make_rows_at_paper_profile(page)
    plans = (name for name in PROFILES if planned.read_plan(name))
    grids |= {
        (p, name): evidence.make_grid_rows(name, p)
        for name in plans
        for p in planned.list_planned_pages(name)
    }
    every = ((*place, row) for place, rows in grids.items() for row in rows)
    return sorted(
        {
            (
                *place,
                format_labels(r),
                str(r.spec.seed),
                find_record_name(r.spec, store),
            )
            for *place, r in every
        }
    )


def find_record_name(spec: Spec, store: Store) -> str:
    """Return the name of the run that serves a Spec.

    It is that of the Spec, or of its float32 twin where only the twin is recorded."""
    if (
        not (store.records / spec.name).exists()
        and (store.records / spec.float32_twin.name).exists()
    ):
        return spec.float32_twin.name
    return spec.name


def format_labels(row: Row) -> str:
    """Return the labels of a row that are numbers or text, without its seed, as
    text."""
    columns = {
        k: v
        for k, v in row.labels.items()
        if k != "seed" and isinstance(v, str | int | float)
    }
    return "; ".join(f"{name}={value}" for name, value in sorted(columns.items()))


def make_tables(store: Store) -> dict[Path, str]:
    """Return {file: text} of the tables and of README, from the code and the records.

    Other runs of the store do not count: no other machine has them."""
    store = Store(store.records, store.records)
    with data.allow_absent_data(use_local_data=False):
        by_id = judging.judge_claims(store=store)
        lines = judging.format_verdict_lines(by_id)
        for scale in judging.SCALES[1:]:
            names = [
                id
                for id, line in lists.read_claims().items()
                if lists.list_planned_seeds(id, scale)
            ]
            lines += judging.format_verdict_lines(
                judging.judge_claims(names, store, scale)
            )
        tables = list_run_lines(store), lines, judging.format_arithmetic_lines(by_id)
    readme = paths.ROOT / "README.md"
    texts = {readme: judging.fill_readme(readme.read_text(), by_id)}
    for (name, columns), rows in zip(COLUMNS.items(), tables, strict=True):
        table = pd.DataFrame(rows, columns=columns.split(","), dtype=object)
        texts[paths.records_root() / name] = table.to_csv(index=False)
    return texts


def group_csv_lines(csv_text: str) -> dict[str, list[str]]:
    """Return {identity of a line: its other cells} of a CSV text.

    The identity is the first KEY cells. Lines with the same identity are joined."""
    table = defaultdict(list)
    for line in csv.reader(csv_text.splitlines()):
        table[", ".join(filter(None, line[:KEY]))] += line[KEY:]
    return table


def list_differences(path: Path, expected_text: str) -> list[str]:
    """Return one line for each difference of a committed file from its right text."""
    old, name = (
        disk.read_file_bytes(path).decode(errors="replace"),
        paths.show_path(path),
    )
    if path.name not in COLUMNS:
        if lists.list_absent_papers():  # README has findings of all papers.
            return []
        return [f"{name} has not what these records show: {FIX}"] * (
            old != expected_text
        )
    columns, before, now = (
        COLUMNS[path.name].split(",")[KEY:],
        group_csv_lines(old),
        group_csv_lines(expected_text),
    )
    if lists.list_absent_papers():
        before, now = select_installed_lines(before, now)
    lines = []
    for about in before | now:
        cells = before.get(about, []), now.get(about, [])
        both = enumerate(zip_longest(*cells, fillvalue=""))
        changes = [(columns[i % len(columns)], *pair) for i, pair in both]
        if lists.list_absent_papers():  # Fewer questions of our own are a family then.
            changes = [change for change in changes if change[0] != "holm"]
        changes = [
            f"{c} {b or 'none'}, in the file {a or 'none'}"
            for c, a, b in changes
            if differs_beyond_rounding(c, a, b)
        ]
        if changes:
            lines.append(f"{name}: {about}: {'; '.join(changes)}: {FIX}")
    return lines


def select_installed_lines(
    before: dict[str, list[str]], now: dict[str, list[str]]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the lines of a file, and the right ones, without those of absent papers.

    Pages of several papers are left out, since their rows and networks are fewer. So is
    what only the file has, unless it is of a page of one paper."""
    pages = {about: about.partition(", ")[0] for about in before | now}
    shared = {a for a in pages if is_page_of_several_papers(pages[a])}
    alone = {a for a in before.keys() - now.keys() if not find_paper_of_page(pages[a])}
    return (
        {a: cells for a, cells in before.items() if a not in shared | alone},
        {a: cells for a, cells in now.items() if a not in shared},
    )


def is_page_of_several_papers(name: str) -> bool:
    return find_notebook_path(name).exists() and not find_paper_of_page(name)


def differs_beyond_rounding(column: str, old_text: str, new_text: str) -> bool:
    """Return whether two texts of a column differ; numbers differ by more than NEAR."""
    try:
        return (
            old_text != new_text
            and not abs(float(old_text) - float(new_text)) <= NEAR[column]
        )
    except (KeyError, ValueError):
        return True


def list_faults(store: Store, write_files: bool = False) -> list[str]:
    """Return one line for each fault of the committed files; [] where all is right.

    write_files: write the files and README's findings, if the records are sound."""
    lines = [line for line in map(describe_damage, store.list_records()) if line]
    *tables, place = map(paths.records_root().joinpath, (*COLUMNS, FILES))
    if not write_files:
        lines += [
            f"{paths.show_path(path)} is missing: {FIX}"
            for path in tables
            if not path.exists()
        ]
        lines += list_changed_files(place)
    if lines:
        return lines
    now = make_tables(store)
    if write_files:
        for path, text in now.items():
            disk.write_text_file(path, text)
        return disk.write_text_file(place, "".join(list_digests())) or []
    return [line for path, text in now.items() for line in list_differences(path, text)]
