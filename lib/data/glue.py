"""GLUE in its official layout: folders of TSV files, the hub as a way to fill them, the server's
submission.

    <root>/<TASK>/train.tsv, dev.tsv, test.tsv <root>/MNLI/train.tsv,
    {dev,test}_{matched,mismatched}.tsv    splits dev, dev_mm, test, test_mm
    <root>/MRPC/msr_paraphrase_{train,test}.txt with dev_ids.tsv  where MRPC's own files are missing
    <root>/diagnostic/diagnostic.tsv                              AX; also AX/{diagnostic,test}.tsv
    <root>/../stsbenchmark/sts-test.csv                           STS-B's test rows with their
    scores

Any split may be missing. A stand-in such as dev_matched.reconstructed.tsv is read where the
official file is not there; `stand_in` says of what kind it is. Columns go by name, quotes are text,
blanks around a sentence are dropped, labels are names or digits.
"""

import io
import os
import re
import zipfile
from functools import partial
from pathlib import Path

import numpy as np

from lib.data import Split, Task, table
from lib.data.lines import from_hub, malformed, needed, read_lines, short, write
from lib.spec import known

TOLD = table("glue")  # the rows of a submission's files; classes, columns and files of each task
TASKS = {
    name: Task(name, *(told[key] for key in ("pair", "labels", "metrics")))
    for name, told in TOLD["TASKS"].items()
}
TEST_ROWS = TOLD["TEST_ROWS"]
# The task whose codes a file of a submission holds.
TASK_OF = {name: name.split("-m")[0] for name in TEST_ROWS}
UNSEEN = {"MRPC": "MRPC/msr_paraphrase_test.txt", "STS-B": "../stsbenchmark/sts-test.csv"}

_NAMED = ("MNLI", "QNLI", "RTE", "AX")  # official files hold class names here, digits elsewhere
_EMPTY = ("QQP", "MNLI")  # crowd text: one side may be empty, as in two official QQP rows
_TORN = 100  # QQP: line breaks inside questions tear some 20 official rows
_STAND_IN = re.compile(r"\.(reconstructed|subset|sample\d*)\.tsv$")

_IDS = ["#1 ID", "#2 ID"]  # the second and third column of MRPC's own files
_FOLDERS = {"AX": ("diagnostic", "AX")}
_FILES = {split: f"{split}.tsv" for split in ("train", "dev", "test")}


def stand_in(path):
    """What replaces the official file, such as "sample1000"; "" for an official file."""
    found = _STAND_IN.search(Path(path).name)
    return found.group(1) if found else ""


def names(task):
    """{split: official file} of a task."""
    known("GLUE task", task, TASKS)
    return TOLD["TASKS"][task].get("files", _FILES)


def _candidates(task, split, name, folders):
    """Files that a split may be in, the official ones first, stand-ins last."""
    official = [folder / name for folder in folders]
    official += [folder / "test.tsv" for folder in folders if task == "AX"]
    yield from official
    if task == "MRPC" and (split != "dev" or (folders[0] / "dev_ids.tsv").is_file()):
        yield folders[0] / f"msr_paraphrase_{'test' if split == 'test' else 'train'}.txt"
    for path in official:
        beside = sorted(path.parent.glob(f"{path.stem}.*.tsv"))
        yield from (each for each in beside if each.name == f"{path.stem}.{stand_in(each)}.tsv")


def files(task, root):
    """{split: Path} of what `load` reads. Raises FileNotFoundError where there is no split."""
    folders, found = [Path(root) / name for name in _FOLDERS.get(task, (task,))], {}
    for split, name in names(task).items():
        there = [p for p in _candidates(task, split, name, folders) if p.is_file()]
        found |= {split: there[0]} if there else {}
    if not found:
        state = "holds no split" if folders[0].is_dir() else "is no folder"
        expected = ", ".join(names(task).values())
        raise FileNotFoundError(
            f"{folders[0]} {state}; expected {expected} in GLUE's layout; fix: point the data root "
            f"at the folder above {folders[0].name}, or fill it from the hub with "
            f"lib.data.glue.fetch({task!r}, root)"
        )
    return found


def load(task, root):
    """{split: Split} of all files that are there. Test rows without a label have y -1 (NaN for
    STS-B). Raises ValueError with file and line where a row is malformed."""
    return {split: _read(task, split, path) for split, path in files(task, root).items()}


def unseen(task, root):
    """The test rows of a task of UNSEEN, whose labels are public."""
    path, what = Path(os.path.normpath(Path(root) / UNSEEN[task])), f"the test rows of {task}"
    needed(path, f"{what} with their labels", "put it there, or leave `unseen` out")
    return _read(task, "unseen", path)


def _columns(task, split, path, lines):
    """(place of the first sentence, of the second, of the label, fields a row, header lines). A
    place is None for what is not there."""
    if path.suffix == ".csv":  # the benchmark's own file; where a sentence is from may follow it
        return 5, 6, 4, 7, 0
    own, hidden = path.suffix == ".txt", path.suffix == ".tsv" and split.startswith("test")
    head = [cell.strip() for cell in lines[0].split("\t")] if lines else []
    places = {
        role: [head.index(n) for n in role.split("/") if n in head]
        for role in TOLD["TASKS"][task]["columns"]
    }
    a, b, label = ([*found, None][0] for found in places.values())
    if task == "CoLA" and lines and (a is None or (label is None and not hidden)):
        return 3, None, 1, 4, 0  # official train and dev files have no header
    needed = [role for role in TOLD["TASKS"][task]["columns"][: 2 if hidden else 3] if role]
    lacking = [role.split("/")[0] for role in needed if not places[role]]
    lacking += _IDS if own and head[1:3] != _IDS else []
    if lacking:
        expected = [role.split("/")[0] for role in needed] + _IDS * own
        raise malformed(
            f"{path}:1",
            f"{short(lines[0])} without {', '.join(lacking)}" if lines else "no rows",
            f"{', '.join(expected)} between tabs",
            "add a header line with these names, or download the file again",
        )
    return a, b, label, len(head), 1


def _read(task, split, path):
    lines, pair = read_lines(path), TASKS[task].pair
    a, b, label, width, first = _columns(task, split, path, lines)
    code, held = _coder(task, split), None
    if path.suffix == ".txt" and split in ("train", "dev"):  # MRPC's own file holds both
        held = _dev_ids(path.with_name("dev_ids.tsv"))
    rows, torn = [], 0
    for number, line in enumerate(lines[first:], first + 1):
        place, cells = f"{path}:{number}", line.split("\t")
        cells = cells[:width] if path.suffix == ".csv" else cells
        if len(cells) != width:
            torn, few = torn + 1, len(cells) < width
            if task == "QQP" and few and torn <= _TORN:
                continue  # as the hub does
            raise malformed(
                place,
                f"{len(cells)} field(s) in {short(line)}",
                f"{width} between tabs" + ("" if first else " (source, label, mark, sentence)"),
                "restore the missing ones" if few else "remove tabs inside sentences",
            )
        if held is not None and (tuple(cells[1:3]) in held) != (split == "dev"):
            continue
        texts = [cells[column].strip() for column in ((a, b) if pair else (a,))]
        if not (any(texts) if task in _EMPTY else all(texts)):
            found = f"an empty sentence in column {(b if texts[0] else a) + 1}"
            raise malformed(place, found, "text", "fill it in or drop the row")
        rows.append((*texts, code("" if label is None else cells[label].strip(), place)))
    if not rows:
        raise malformed(f"{path}:{len(lines)}", "no rows", "one row a line")
    *texts, y = map(list, zip(*rows, strict=True))
    y = np.array(y, np.int64 if TASKS[task].labels else np.float32)
    return Split(texts[0], texts[1] if pair else None, y, np.arange(len(y)))


def _coder(task, split):
    """f(cell, place) -> class code or score. A test row may have none."""
    labels = TASKS[task].labels
    codes = {cell: code for code, name in enumerate(labels) for cell in (name, str(code))}
    allowed = ", ".join(f"{code} or {name}" for code, name in enumerate(labels))
    if split.startswith("test"):
        codes |= dict.fromkeys(("", "-1"), -1 if labels else float("nan"))

    def code(cell, place):
        if cell in codes:
            return codes[cell]
        score = not labels and re.fullmatch(r"\d+\.?\d*(e-?\d+)?", cell, re.A)
        if score and float(cell) <= 5:
            return float(cell)
        expected, fix = allowed or "a score from 0 to 5", "correct the label or drop the row"
        raise malformed(place, f"label {short(cell)}", expected, fix)

    return code


def _dev_ids(path):
    what, fix = "the list of dev rows within msr_paraphrase_train.txt", "train.tsv and dev.tsv"
    needed(path, what, f"put it there, or {fix}")
    rows = [tuple(line.split("\t")) for line in read_lines(path)]
    for number, cells in enumerate(rows, 1):
        if len(cells) != 2:
            raise malformed(f"{path}:{number}", f"{len(cells)} field(s)", "two sentence ids")
    return set(rows)


# ---- the hub ----
def fetch(task, root, loader=None):
    """Fill `<root>/<TASK>/` from the hub's GLUE, in files with the official names, whose columns
    have theirs. Returns the folder. `loader` is as in lib.data.lines.from_hub."""
    hub = {name: Path(name).stem.replace("dev", "validation") for name in names(task).values()}
    hub = {"diagnostic.tsv": "test"} if task == "AX" else hub
    folder = Path(root) / _FOLDERS.get(task, (task,))[0]
    wanted = ("nyu-mll/glue", task.lower().replace("-", ""))
    return from_hub(task, folder, hub, partial(_as_tsv, task), loader, *wanted)


def _as_tsv(task, rows):
    """A split of the hub as the text of a file."""
    labels, (*sentences, label) = TASKS[task].labels, TOLD["TASKS"][task]["columns"]
    theirs = getattr(rows.features["label"], "names", None)
    if labels and theirs and tuple(theirs) != labels:
        raise ValueError(
            f"the hub's classes of {task} are {', '.join(theirs)}, but the codes here are "
            f"{', '.join(labels)}; fix: fill the folder from the official files"
        )
    y = np.asarray(rows["label"], np.int64 if labels else np.float32)
    columns = {"index": range(len(y))}
    for own, *other in (role.split("/") for role in filter(None, sentences)):
        texts = rows[other[0] if other else own]
        columns[own] = [re.sub("[\t\r\n]", " ", text) for text in texts]
    if (y >= 0).any():
        named = [labels[c] if c >= 0 else c for c in y] if task in _NAMED else y
        columns[label.split("/")[0]] = named
    lines = [columns, *zip(*columns.values(), strict=True)]
    return "".join("\t".join(map(str, line)) + "\n" for line in lines)


# ---- the server ----
def write_submission(predictions, folder, partial=False, rows=TEST_ROWS):
    """Write what the GLUE server takes: `<name>.tsv` each, and submission.zip of all, whose path is
    returned. All is checked before anything is written.

    predictions: {name of TEST_ROWS: class codes [N], logits [N, C], or scores [N] for STS-B}, in
      the order of the test files.
    rows: number of rows of each name, another one for a generated twin.
    """
    for name in predictions:
        known("file of a GLUE submission", name, TEST_ROWS)
    missing = [name for name in TEST_ROWS if name not in predictions]
    if not predictions or (missing and not partial):
        raise ValueError(
            f"the submission lacks {', '.join(missing)}; the server wants all of {len(TEST_ROWS)}; "
            "fix: predict these too, or write the others with partial=True"
        )
    contents = {}
    for name in filter(predictions.__contains__, TEST_ROWS):
        cells = _cells(name, TASKS[TASK_OF[name]], predictions[name], rows[name])
        lines = "".join(f"{i}\t{cell}\n" for i, cell in enumerate(cells))
        contents[f"{name}.tsv"] = f"index\tprediction\n{lines}".encode()
    packed, dated = io.BytesIO(), (1980, 1, 1, 0, 0, 0)  # equal predictions give equal bytes
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in contents.items():
            archive.writestr(zipfile.ZipInfo(name, dated), data, zipfile.ZIP_DEFLATED)
    folder = Path(folder)
    write(folder, contents | {"submission.zip": packed.getvalue()})
    return folder / "submission.zip"


def _cells(name, task, predictions, rows):
    """The column of one submission file."""
    values = np.asarray(predictions, np.float64)
    shapes = [(rows,), (rows, task.outputs)]
    if values.shape not in shapes:
        raise ValueError(
            f"{name}: predictions of shape {list(values.shape)}; expected {rows} rows as in the "
            f"test set, {' or '.join(str(list(shape)) for shape in shapes)}"
        )
    bad = np.flatnonzero(~np.isfinite(values).reshape(rows, -1).all(axis=1))
    if len(bad):
        first = f"the first is row {bad[0]}"
        raise ValueError(f"{name}: {len(bad)} of {rows} rows are not finite, {first}")
    if not task.labels:  # + 0.0: no "-0.000"
        return [f"{value:.3f}" for value in np.clip(values.ravel(), 0, 5) + 0.0]
    codes = values.argmax(axis=1) if values.ndim == 2 else values
    bad = np.flatnonzero(~np.isin(codes, range(task.outputs)))
    if len(bad):
        allowed = f"codes 0 to {task.outputs - 1} ({', '.join(task.labels)})"
        raise ValueError(f"{name}: row {bad[0]} predicts {codes[bad[0]]:g}; allowed: {allowed}")
    return [task.labels[code] if task.name in _NAMED else code for code in codes.astype(int)]
