"""This module reads and computes records again, and holds the result to three committed
files.

`runs.csv` names the run of each row of each grid. `verdicts.csv` has the word on each
cell of each claim, on each of its tasks, with all that the word follows from.
`arithmetic.csv` has the printed numbers that are computed again. `files.csv` has the
digest of each other committed file that a reader sees, or that results rest on. `python
-m lib verify --write` writes these files, and the findings in README, where all records
are sound. Each difference is one line. Records and files come first, because words rest
on them. No data are looked at, so every machine computes the same."""

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
from lib.core.rows import Row
from lib.core.spec import Spec
from lib.core.store import Run, Store
from lib.papers.grids import PROFILES
from lib.stats import metrics

# These are the columns of the committed files. The first KEY of them say what a line is
# about.
COLUMNS = {
    "runs.csv": "page,profile,labels,seed,run",
    "verdicts.csv": ",".join(judging.HEAD),
}
COLUMNS |= {"arithmetic.csv": ",".join(judging.CHECKED)}
KEY = 4
# Numbers may be this far from the committed ones, in the unit of the claim.
NEAR = {"estimate": 1e-6, "low": 1e-4, "high": 1e-4, "p": 1e-4, "holm": 1e-3}


def recompute_metrics(run: Run) -> dict[str, float]:
    """Return {metric: value} of a recorded run, computed again from its stored
    predictions.

    It is empty where no metric of the run is a score. Raises FileNotFoundError for
    scores without predictions."""
    described = run.spec["args"].get("data", {})
    task = "task" in described and data.task(described["source"], described["task"])
    if not task or not set(task.metrics) & run.metrics.keys():
        return {}
    stored = run.arrays("predictions")
    if task.span:  # A record keeps the marks of such a task, and no texts.
        scores = {name: float(stored[name].mean()) for name in task.metrics}
    else:
        scores = metrics.scores(task, stored["logits"], stored["labels"])
    if unseen_spec := described.get("unseen"):
        said = data.unpack_predictions(
            run.arrays("predictions_unseen"), unseen_spec["rows"]
        )
        more = metrics.scores(task, said, data.judging_arrays(described)["labels"])
        scores |= {f"unseen.{name}": value for name, value in more.items()}
    return scores


def describe_damage(run: Run) -> str:
    """Return one line on what is wrong with a record by itself; "" where it is
    sound."""
    place = paths.show_path(run.folder)
    try:
        if run.status["state"] != "finished" or not run.metrics:
            return f"{place} is no finished run with metrics: make it again"
        for name, value in recompute_metrics(run).items():
            if not abs(value - run.metrics[name]) <= 1e-12:  # A nan is caught, too.
                return f"{place}: {name} {value} computed, {run.metrics[name]} recorded"
    except (
        Exception
    ) as error:  # Damage raises errors of any kind, and must not hide other damage.
        message = (
            str(error)
            if place in str(error)
            else f"{place} is damaged: {error_in_one_line(error)}"
        )
        return " ".join(message.split())
    return ""


def list_run_lines(store: Store) -> list[tuple[str, ...]]:
    """Return the lines of `runs.csv`: the run of each row of the grids of all pages and
    claims.

    Where only the same run in float32 is recorded (`Spec.twin`), it is named.

    The id of a claim stands for a page. A page at `paper` has its variable `grid`
    alone, since what else it looks up is of mini; at a profile with a plan it has the
    rows of its lines."""
    grids = {
        (claim["id"], judging.SCALE): judging.rows_of_claim(claim)
        for claim in evidence.select_claims()
    }
    for page in (notebook.id_of_notebook(path) for path in notebook.find_notebooks()):
        grids[page, judging.SCALE] = judging.rows_of_page(page, judging.SCALE)
        grids[page, "paper"] = checks.rows_at_paper(page)
    plans = (name for name in PROFILES if planned.read_plan(name))
    grids |= {
        (p, name): evidence.make_rows(name, p)
        for name in plans
        for p in planned.list_planned_pages(name)
    }
    every = ((*place, row) for place, rows in grids.items() for row in rows)
    return sorted(
        {
            (*place, format_labels(r), str(r.spec.seed), record_name(r.spec, store))
            for *place, r in every
        }
    )


def record_name(spec: Spec, store: Store) -> str:
    """Return the name of the record that stands for a Spec, or that of the Spec without
    one."""
    if (
        not (store.records / spec.name).exists()
        and (store.records / spec.twin.name).exists()
    ):
        return spec.twin.name
    return spec.name


def format_labels(row: Row) -> str:
    """Return the columns of a row of a grid that are numbers or text, without its
    seed."""
    columns = {
        k: v
        for k, v in row.labels.items()
        if k != "seed" and isinstance(v, str | int | float)
    }
    return "; ".join(f"{name}={value}" for name, value in sorted(columns.items()))


def make_tables(store: Store) -> dict[Path, str]:
    """Return {file: its text} of the tables and of README, from the code and the
    records.

    Runs that are no records do not count: no other machine has them.
    """
    store = Store(store.records, store.records)
    with data.allow_absent_data(look=False):
        by_id = judging.judge_claims(store=store)
        lines = judging.verdict_lines(by_id)
        for scale in judging.SCALES[1:]:
            names = [
                id
                for id, line in lists.read_claims().items()
                if lists.planned_seeds(id, scale)
            ]
            lines += judging.verdict_lines(judging.judge_claims(names, store, scale))
        tables = list_run_lines(store), lines, judging.arithmetic_lines(by_id)
    readme = paths.ROOT / "README.md"
    texts = {readme: judging.fill_readme(readme.read_text(), by_id)}
    for (name, columns), rows in zip(COLUMNS.items(), tables, strict=True):
        table = pd.DataFrame(rows, columns=columns.split(","), dtype=object)
        texts[paths.records_root() / name] = table.to_csv(index=False)
    return texts


def group_lines(text: str) -> dict[str, list[str]]:
    """Return {what lines of a table are about: the rest of all these lines, in a
    list}."""
    table = defaultdict(list)
    for line in csv.reader(text.splitlines()):
        table[", ".join(filter(None, line[:KEY]))] += line[KEY:]
    return table


def list_differences(path: Path, text: str) -> list[str]:
    """Return one line for each difference of a committed file from the text that it
    should have."""
    old, name = disk.read(path).decode(errors="replace"), paths.show_path(path)
    if path.name not in COLUMNS:
        if lists.list_absent_papers():  # README tells of all papers.
            return []
        return [f"{name} has not what these records show: {FIX}"] * (old != text)
    columns, before, now = (
        COLUMNS[path.name].split(",")[KEY:],
        group_lines(old),
        group_lines(text),
    )
    if lists.list_absent_papers():
        before = {about: rest for about, rest in before.items() if is_here(about)}
    lines = []
    for about in before | now:
        cells = before.get(about, []), now.get(about, [])
        both = enumerate(zip_longest(*cells, fillvalue=""))
        changes = [(columns[i % len(columns)], *pair) for i, pair in both]
        changes = [
            f"{c} {b or 'none'}, in the file {a or 'none'}"
            for c, a, b in changes
            if differs_clearly(c, a, b)
        ]
        if changes:
            lines.append(f"{name}: {about}: {'; '.join(changes)}: {FIX}")
    return lines


def is_here(about: str) -> bool:
    """Return whether a line of a table is about a page or a claim that is here."""
    name = about.partition(", ")[0]
    return name in lists.read_claims() or notebook.path_of_notebook(name).exists()


def differs_clearly(column: str, old: str, new: str) -> bool:
    """Return whether two texts of a column differ; numbers do by more than NEAR."""
    try:
        return old != new and not abs(float(old) - float(new)) <= NEAR[column]
    except (KeyError, ValueError):
        return True


def find_faults(store: Store, renew: bool = False) -> list[str]:
    """Return one line for each thing that is wrong, none where the files say what is
    there.

    renew: write the files and README's parts, where the records are sound.
    """
    lines = [line for line in map(describe_damage, store.list_records()) if line]
    *tables, place = map(paths.records_root().joinpath, (*COLUMNS, FILES))
    if not renew:
        lines += [
            f"{paths.show_path(path)} is missing: {FIX}"
            for path in tables
            if not path.exists()
        ]
        lines += list_changed_files(place)
    if lines:
        return lines
    now = make_tables(store)
    if renew:
        for path, text in now.items():
            disk.write(path, text)
        return disk.write(place, "".join(list_digests())) or []
    return [line for path, text in now.items() for line in list_differences(path, text)]
