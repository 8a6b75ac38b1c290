"""This module computes all published results again from the records, and compares them
with the committed files.

A record is a run whose metrics and predictions are committed, without its weights. The
files are, below `data/records`:

`runs.csv`: the run of each row of each notebook's grid.
`verdicts.csv`: the word ("agrees", ...) of each comparison of each claim on each task,
with its estimate and p-value.
`arithmetic.csv`: the papers' printed numbers that are computed again.
`files.csv`: the digest of each other committed file that a reader sees, or that results
rest on.

Each difference becomes one line of text. `python -m lib verify --write` writes these
files and the findings in README, if all records are sound. Records and, without
`--write`, files are checked first, since the words rest on them. No data set is read,
so every machine computes the same."""

import csv
from collections import defaultdict
from itertools import zip_longest
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from lib import data
from lib.claims import checks, evidence, judging, lists, notebook, planned
from lib.claims.committed import (
    FILES,
    FIX,
    describe_digest_mismatches,
    format_committed_file_digest_lines,
)
from lib.core import disk, paths
from lib.core.names import format_error_in_one_line
from lib.core.papers import find_notebook_path, find_paper_name_of_notebook
from lib.core.rows import Row
from lib.core.spec import Spec
from lib.core.store import Run, Store
from lib.core.types import MetricName, ReasonOrEmpty
from lib.papers.grids import PROFILES
from lib.stats import metrics

# {CSV file of committed results: its columns, with commas between}. The first KEY
# columns together identify a line.
COLUMNS = {
    "runs.csv": "page,profile,labels,seed,run",
    "verdicts.csv": ",".join(judging.HEAD),
    "arithmetic.csv": ",".join(judging.CHECKED),
}
KEY = 4
PageProfileLabelsSeedAndRun: TypeAlias = tuple[str, ...]  # Row of `runs.csv`.
# {first KEY cells of a line of a CSV file: its other cells}.
CellsByLineKey: TypeAlias = dict[str, list[str]]
# {column: allowed absolute difference of a computed number from the committed one}.
NEAR = {"estimate": 1e-6, "low": 1e-4, "high": 1e-4, "p": 1e-4, "holm": 1e-3}


def recompute_metrics_from_predictions(run: Run) -> dict[MetricName, float]:
    """Compute the metrics of a recorded run again from its stored predictions.

    Return {metric: value}, by which a wrong or edited `metrics.json` is found. A
    recorded run is in git, without its weights. Metrics on unseen rows (extra labelled
    test rows) have names that begin with "unseen.". The dict is empty where no metric
    of the run is a score on examples. Raises FileNotFoundError where the predictions
    are missing."""
    described = run.spec["args"].get("data", {})
    task = "task" in described and data.find_task_by_name(
        described["source"], described["task"]
    )
    if not task or not set(task.metrics) & run.metrics.keys():
        return {}
    stored = run.read_arrays("predictions")
    # A question-answering run records the scores of each row. To score an answer span
    # again, its text would be needed, and texts of data sets are not committed.
    if task.span:
        scores = {name: float(stored[name].mean()) for name in task.metrics}
    else:
        scores = metrics.compute_metrics(task, stored["logits"], stored["labels"])
    if unseen_spec := described.get("unseen"):
        unseen_predictions = data.unpack_predictions(
            run.read_arrays("predictions_unseen"), unseen_spec["rows"]
        )
        more = metrics.compute_metrics(
            task,
            unseen_predictions,
            data.read_unseen_row_scoring_arrays(described)["labels"],
        )
        scores |= {f"unseen.{name}": value for name, value in more.items()}
    return scores


def describe_record_damage(run: Run) -> ReasonOrEmpty:
    """Return one line on what is wrong with a recorded run; "" where it is sound.

    A recorded run is in git, without its weights. It is not sound if a file is damaged,
    the run did not finish, or its metrics do not follow from its predictions."""
    place = paths.format_project_path(run.folder)
    try:
        if run.status["state"] != "finished" or not run.metrics:
            return f"{place} is no finished run with metrics: make it again"
        for name, value in recompute_metrics_from_predictions(run).items():
            # Written with `not`, so that a nan counts as a difference.
            if not abs(value - run.metrics[name]) <= 1e-12:
                return f"{place}: {name} {value} computed, {run.metrics[name]} recorded"
    # A damaged file can raise any error. It is reported as a line, so that the other
    # records are checked as well.
    except Exception as error:
        message = (
            str(error)
            if place in str(error)
            else f"{place} is damaged: {format_error_in_one_line(error)}"
        )
        return " ".join(message.split())
    return ""


def list_runs_csv_rows(store: Store) -> list[PageProfileLabelsSeedAndRun]:
    """Return the rows of `runs.csv`, which lists the run behind each published number.

    There is a tuple for each run that a notebook lists or a claim uses: (notebook or
    claim id, profile, labels, seed, name of the run), sorted. The profile is the size
    of the experiments, such as "mini", and the labels are a text such as "m=3;
    task=CoLA".

    store: where records (copies of runs in git, without weights) are looked up."""
    grids = {
        (claim["id"], judging.SCALE): judging.list_grid_rows_of_claim(claim)
        for claim in evidence.select_claims_to_run()
    }
    for page in (notebook.make_notebook_id(path) for path in notebook.find_notebooks()):
        grids[page, judging.SCALE] = judging.list_grid_rows_of_notebook(
            page, judging.SCALE
        )
        grids[page, "paper"] = checks.list_full_size_runs_of_notebook(page)
    plans = (name for name in PROFILES if planned.read_run_plan(name))
    grids |= {
        (p, name): notebook.list_notebook_runs_to_execute(name, p)
        for name in plans
        for p in planned.list_planned_notebook_ids(name)
    }
    every = ((*place, row) for place, rows in grids.items() for row in rows)
    return sorted(
        {
            (
                *place,
                format_row_labels(r),
                str(r.spec.seed),
                find_record_name(r.spec, store),
            )
            for *place, r in every
        }
    )


def find_record_name(spec: Spec, store: Store) -> str:
    """Return the name under which the run of a Spec (its description) is kept in git.

    It is the Spec's own name, unless git has only the same run in float32, instead of
    bfloat16; then it is the name of that run."""
    if (
        not (store.records / spec.name).exists()
        and (store.records / spec.float32_spec.name).exists()
    ):
        return spec.float32_spec.name
    return spec.name


def format_row_labels(row: Row) -> str:
    """Return the labels of a row of an experiment table as text: "m=3; task=CoLA".

    The seed is left out, and so are labels that are neither numbers nor text. The table
    `runs.csv` identifies a run by this text."""
    columns = {
        k: v
        for k, v in row.labels.items()
        if k != "seed" and isinstance(v, str | int | float)
    }
    return "; ".join(f"{name}={value}" for name, value in sorted(columns.items()))


def compute_committed_table_texts(store: Store) -> dict[Path, str]:
    """Compute the texts that the committed tables and README should have.

    Return {path: text}. They are computed from the code and the records (copies of runs
    in git), and then compared with the files or written to them. Other runs of the
    store do not count, as no other machine has them."""
    store = Store(store.records, store.records)
    with data.plan_with_missing_data(use_local_data=False):
        by_id = judging.judge_claims(store=store)
        lines = judging.format_verdicts_csv_rows(by_id)
        base = judging.judge_planned_claims("base", store)
        lines += judging.format_verdicts_csv_rows(base)
        tables = (
            list_runs_csv_rows(store),
            lines,
            judging.format_arithmetic_claims_csv_rows(by_id),
        )
    readme = paths.ROOT / "README.md"
    text = judging.renew_generated_readme_parts(readme.read_text(), by_id, base)
    texts = {readme: text}
    for (name, columns), rows in zip(COLUMNS.items(), tables, strict=True):
        table = pd.DataFrame(rows, columns=columns.split(","), dtype=object)
        texts[paths.records_root() / name] = table.to_csv(index=False)
    return texts


def index_csv_lines_by_key_columns(csv_text: str) -> CellsByLineKey:
    """Return {key: other cells} of a CSV text, to compare two versions of it.

    The key is the first KEY (4) cells of a line, without empty ones, joined by ", ".
    The other cells are a list of texts; lines with the same key share one list."""
    table = defaultdict(list)
    for line in csv.reader(csv_text.splitlines()):
        table[", ".join(filter(None, line[:KEY]))] += line[KEY:]
    return table


def list_file_differences(committed_path: Path, expected_text: str) -> list[str]:
    """Return one line of text for each fault of a committed file.

    A fault is a difference from the text that is computed from the records (copies of
    runs in git). The line names the file and how to repair it, and for a table the
    values. Tables are compared cell by cell, and numbers may differ by a small
    tolerance; README is compared as a whole, unless the code of a paper was deleted.

    expected_text: the computed text."""
    old = disk.read_file_bytes(committed_path).decode(errors="replace")
    name = paths.format_project_path(committed_path)
    lacks_papers = lists.list_papers_whose_folder_is_missing()
    if committed_path.name not in COLUMNS:
        # README states findings of all papers, so it cannot be checked where the user
        # deleted the code of a paper.
        if lacks_papers:
            return []
        return [f"{name} has not what these records show: {FIX}"] * (
            old != expected_text
        )
    columns = COLUMNS[committed_path.name].split(",")[KEY:]
    before = index_csv_lines_by_key_columns(old)
    now = index_csv_lines_by_key_columns(expected_text)
    if lacks_papers:
        before, now = drop_rows_of_papers_with_deleted_code(before, now)
    lines = []
    for about in before | now:
        cells = before.get(about, []), now.get(about, [])
        both = enumerate(zip_longest(*cells, fillvalue=""))
        changes = [(columns[i % len(columns)], *pair) for i, pair in both]
        # Holm's correction depends on the number of comparisons, which is smaller where
        # the user deleted the code of a paper.
        if lacks_papers:
            changes = [change for change in changes if change[0] != "holm"]
        changes = [
            f"{c} {b or 'none'}, in the file {a or 'none'}"
            for c, a, b in changes
            if differs_beyond_tolerance(c, a, b)
        ]
        if changes:
            lines.append(f"{name}: {about}: {'; '.join(changes)}: {FIX}")
    return lines


def drop_rows_of_papers_with_deleted_code(
    committed_cells: CellsByLineKey, computed_cells: CellsByLineKey
) -> tuple[CellsByLineKey, CellsByLineKey]:
    """Drop the lines of two tables that need a paper whose code was deleted.

    Return (committed lines, computed lines), which can then be compared. A notebook on
    several papers lists fewer runs without that paper, so the notebook's lines are
    dropped from both. A committed line that was not computed stays only if it belongs
    to a notebook on one paper whose code is there, as a fault to report.

    committed_cells, computed_cells: {key of a line: its other cells}."""
    of_no_paper, shared = set(), set()
    for about in committed_cells | computed_cells:
        page = about.partition(", ")[0]
        if not find_paper_name_of_notebook(page):
            of_no_paper.add(about)
            if find_notebook_path(page).exists():
                shared.add(about)
    computed = {a: cells for a, cells in computed_cells.items() if a not in shared}
    dropped = shared | (of_no_paper - computed_cells.keys())
    committed = {a: cells for a, cells in committed_cells.items() if a not in dropped}
    return committed, computed


def differs_beyond_tolerance(
    column_name: str, committed_text: str, computed_text: str
) -> bool:
    """Return whether a committed and a computed cell of a CSV table differ.

    Numbers in the columns of NEAR (such as "p") may differ by the tolerance there, as
    machines round differently. Any other cells must be equal as text.

    column_name: the name of the column."""
    try:
        return (
            committed_text != computed_text
            and not abs(float(committed_text) - float(computed_text))
            <= NEAR[column_name]
        )
    except (KeyError, ValueError):
        return True


def verify_committed_results(
    store: Store, rewrite_committed_files: bool = False
) -> list[str]:
    """Check the runs and result files in git; return one line of text for each fault.

    The list is empty where all is right. Records (runs in git, without weights) and the
    digests of committed files are checked first. If they are sound, all committed
    tables and README are computed again from the records and compared.

    store: where the records are.
    rewrite_committed_files: if the records are sound, write the computed files instead
    of comparing them, and their digests anew."""
    lines = [
        line for line in map(describe_record_damage, store.list_recorded_runs()) if line
    ]
    *tables, digests_file = map(paths.records_root().joinpath, (*COLUMNS, FILES))
    if not rewrite_committed_files:
        lines += [
            f"{paths.format_project_path(path)} is missing: {FIX}"
            for path in tables
            if not path.exists()
        ]
        lines += describe_digest_mismatches()
    if lines:
        return lines
    now = compute_committed_table_texts(store)
    if rewrite_committed_files:
        for path, text in now.items():
            disk.write_text_file(path, text)
        digests = "".join(format_committed_file_digest_lines())
        disk.write_text_file(digests_file, digests)
        return []
    return [
        line for path, text in now.items() for line in list_file_differences(path, text)
    ]
