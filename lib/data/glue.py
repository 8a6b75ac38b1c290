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
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lib.data import Split, Task
from lib.data.lines import from_hub, malformed, of_hub, read_lines, short
from lib.spec import known

_THREE = ("entailment", "neutral", "contradiction")
_TWO = ("entailment", "not_entailment")
_ALL = (
    Task("CoLA", False, ("unacceptable", "acceptable"), ("matthews",)),
    Task("SST-2", False, ("negative", "positive"), ("accuracy",)),
    Task("MRPC", True, ("not_equivalent", "equivalent"), ("accuracy", "f1")),
    Task("QQP", True, ("not_duplicate", "duplicate"), ("accuracy", "f1")),
    Task("STS-B", True, (), ("spearman", "pearson")),
    Task("MNLI", True, _THREE, ("accuracy",)),
    Task("QNLI", True, _TWO, ("accuracy",)),
    Task("RTE", True, _TWO, ("accuracy",)),
    Task("WNLI", True, ("not_entailment", "entailment"), ("accuracy",)),
    Task("AX", True, _THREE, ("accuracy", "matthews")),
)
TASKS = {task.name: task for task in _ALL}

# The files of a submission with their official number of rows, and the task whose codes each holds.
_SIZES = "CoLA 1063, SST-2 1821, MRPC 1725, QQP 390965, STS-B 1379, MNLI-m 9796, MNLI-mm 9847, "
_SIZES += "QNLI 5463, RTE 3000, WNLI 146, AX 1104"
TEST_ROWS = {name: int(rows) for name, rows in map(str.split, _SIZES.split(","))}
TASK_OF = {name: name.split("-m")[0] for name in TEST_ROWS}
UNSEEN = {"MRPC": "MRPC/msr_paraphrase_test.txt", "STS-B": "../stsbenchmark/sts-test.csv"}

_NAMED = ("MNLI", "QNLI", "RTE", "AX")  # official files hold class names here, digits elsewhere
_EMPTY = ("QQP", "MNLI")  # crowd text: one side may be empty, as in two official QQP rows
_TORN = 100  # QQP: line breaks inside questions tear some 20 official rows
_STAND_IN = re.compile(r"\.(reconstructed|subset|sample\d*)\.tsv$")


@dataclass(frozen=True)
class _Layout:
    train: str  # official columns with a label
    test: str  # and without
    a: str  # column of the first sentence; after "/" what the hub calls it, likewise below
    b: str
    label: str


_PAIR = "sentence1,sentence2"
_MRPC = "#1 ID,#2 ID,#1 String,#2 String"
_STS = f"index,genre,filename,year,old_index,source1,source2,{_PAIR}"
_PARSES = "sentence1_binary_parse,sentence2_binary_parse,sentence1_parse,sentence2_parse"
_NLI = f"index,promptID,pairID,genre,{_PARSES},{_PAIR}"
# Task; columns of train; columns of test; first sentence; second sentence; label.
_LAYOUTS = f"""
CoLA; source,label,original,sentence; index,sentence; sentence; ; label
SST-2; sentence,label; index,sentence; sentence; ; label
MRPC; Quality,{_MRPC}; index,{_MRPC}; #1 String/sentence1; #2 String/sentence2; Quality/label
QQP; id,qid1,qid2,question1,question2,is_duplicate; id,question1,question2; question1; question2; \
is_duplicate/label
STS-B; {_STS},score; {_STS}; sentence1; sentence2; score/label
MNLI; {_NLI},label1,gold_label; {_NLI}; sentence1/premise; sentence2/hypothesis; gold_label/label
QNLI; index,question,sentence,label; index,question,sentence; question; sentence; label
RTE; index,{_PAIR},label; index,{_PAIR}; sentence1; sentence2; label
WNLI; index,{_PAIR},label; index,{_PAIR}; sentence1; sentence2; label
AX; index,{_PAIR},label; index,{_PAIR}; sentence1/premise; sentence2/hypothesis; label
"""
_CELLS = [[cell.strip() for cell in line.split(";")] for line in _LAYOUTS.strip().splitlines()]
_LAYOUT = {task: _Layout(*columns) for task, *columns in _CELLS}
_FOLDERS = {"AX": ("diagnostic", "AX")}
# {split: (file without its ending, the split's name on the hub)}; GLUE has two sets of MNLI's.
_SPLITS = {"train": ("train", "train"), "dev": ("dev", "validation"), "test": ("test", "test")}
_OTHER_SPLITS = {
    "MNLI": {
        "train": ("train", "train"),
        "dev": ("dev_matched", "validation_matched"),
        "dev_mm": ("dev_mismatched", "validation_mismatched"),
        "test": ("test_matched", "test_matched"),
        "test_mm": ("test_mismatched", "test_mismatched"),
    },
    "AX": {"test": ("diagnostic", "test")},
}


def stand_in(path):
    """What replaces the official file, such as "sample1000"; "" for an official file."""
    found = _STAND_IN.search(Path(path).name)
    return found.group(1) if found else ""


def names(task):
    """{split: official file} of a task."""
    return {split: f"{stem}.tsv" for split, (stem, _) in _splits(task).items()}


def _splits(task):
    known("GLUE task", task, TASKS)
    return _OTHER_SPLITS.get(task, _SPLITS)


def _candidates(task, split, stem, folders):
    """Files that a split may be in, the official ones first, stand-ins last."""
    stems = (stem, "test") if task == "AX" else (stem,)
    yield from (folder / f"{each}.tsv" for folder in folders for each in stems)
    if task == "MRPC" and (split != "dev" or (folders[0] / "dev_ids.tsv").is_file()):
        yield folders[0] / f"msr_paraphrase_{'test' if split == 'test' else 'train'}.txt"
    for folder in folders:
        for each in stems:
            beside = sorted(folder.glob(f"{each}.*.tsv"))
            yield from (path for path in beside if path.name == f"{each}.{stand_in(path)}.tsv")


def files(task, root):
    """{split: Path} of what `load` reads. Raises FileNotFoundError where there is no split."""
    expected = names(task)
    folders = [Path(root) / name for name in _FOLDERS.get(task, (task,))]
    found = {}
    for split, (stem, _) in _splits(task).items():
        there = [p for p in _candidates(task, split, stem, folders) if p.is_file()]
        found |= {split: there[0]} if there else {}
    if not found:
        state = "holds no split" if folders[0].is_dir() else "is no folder"
        raise FileNotFoundError(
            f"{folders[0]} {state}; expected {', '.join(expected.values())} in GLUE's layout; fix: "
            f"point the data root at the folder above {folders[0].name}, or fill it from the hub "
            f"with lib.data.glue.fetch({task!r}, root)"
        )
    return found


def load(task, root):
    """{split: Split} of all files that are there. Test rows without a label have y -1 (NaN for
    STS-B). Raises ValueError with file and line where a row is malformed."""
    return {split: _read(task, split, path) for split, path in files(task, root).items()}


def unseen(task, root):
    """The test rows of a task of UNSEEN, whose labels are public."""
    path = Path(os.path.normpath(Path(root) / UNSEEN[task]))
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing, the test rows of {task} with their labels; fix: put it there, or "
            "leave `unseen` out"
        )
    return _read(task, "unseen", path)


def _columns(task, split, path, lines):
    """(place of the first sentence, of the second, of the label, fields a row, header lines). A
    place is None for what is not there."""
    if path.suffix == ".csv":  # the benchmark's own file; where a sentence is from may follow it
        return 5, 6, 4, 7, 0
    layout, test = _LAYOUT[task], split.startswith("test")
    official = (layout.test if test and path.suffix == ".tsv" else layout.train).split(",")
    head = [cell.strip() for cell in lines[0].split("\t")] if lines else []

    def place(role):
        return next((head.index(name) for name in role.split("/") if name in head), None)

    a, b, label = place(layout.a), place(layout.b), place(layout.label)
    if task == "CoLA" and lines and (a is None or (label is None and not test)):
        return 3, None, 1, 4, 0  # official train and dev files have no header
    needed = [layout.a, *filter(None, (layout.b, "" if test else layout.label))]
    lacking = [role.split("/")[0] for role in needed if place(role) is None]
    if lacking or (path.suffix == ".txt" and head != official):
        missing = ", ".join(lacking) or "all columns"
        raise malformed(
            f"{path}:1",
            f"{short(lines[0])} without {missing}" if lines else "no rows",
            f"{', '.join(official)} between tabs",
            "add a header line with these names, or download the file again",
        )
    return a, b, label, len(head), 1


def _read(task, split, path):
    lines, pair = read_lines(path), TASKS[task].pair
    a, b, label, width, first = _columns(task, split, path, lines)
    code, held = _coder(task, split), None
    if path.suffix == ".txt" and split in ("train", "dev"):  # MRPC's own file holds both
        held = _dev_ids(path.with_name("dev_ids.tsv"))
    left, right, y, torn = [], [], [], 0
    for number, line in enumerate(lines[first:], first + 1):
        place, cells = f"{path}:{number}", line.split("\t")
        cells = cells[:width] if path.suffix == ".csv" else cells
        if len(cells) != width:
            torn += 1
            if task == "QQP" and len(cells) < width and torn <= _TORN:
                continue  # as the hub does
            few = len(cells) < width
            raise malformed(
                place,
                f"{len(cells)} field(s) in {short(line)}",
                f"{width} between tabs" + ("" if first else " (source, label, mark, sentence)"),
                "restore the missing ones" if few else "remove tabs inside sentences",
            )
        if held is not None and ((cells[1], cells[2]) in held) != (split == "dev"):
            continue
        texts = [cells[column].strip() for column in ((a, b) if pair else (a,))]
        if not (any(texts) if task in _EMPTY else all(texts)):
            found = f"an empty sentence in column {(b if texts[0] else a) + 1}"
            raise malformed(place, found, "text", "fill it in or drop the row")
        left.append(texts[0])
        right.append(texts[-1])
        y.append(code("" if label is None else cells[label].strip(), place))
    if not y:
        raise malformed(f"{path}:{len(lines)}", "no rows", "one row a line")
    dtype = np.int64 if TASKS[task].labels else np.float32
    return Split(left, right if pair else None, np.array(y, dtype), np.arange(len(y)))


def _coder(task, split):
    """f(cell, place) -> class code or score. A test row may have none."""
    labels = TASKS[task].labels
    codes = {name: code for code, name in enumerate(labels)}
    codes |= {str(code): code for code in range(len(labels))}
    allowed = ", ".join(f"{code} or {name}" for code, name in enumerate(labels))
    if split.startswith("test"):
        codes |= dict.fromkeys(("", "-1"), -1 if labels else float("nan"))

    def code(cell, place):
        if cell in codes:
            return codes[cell]
        score = not labels and re.fullmatch(r"\d+\.?\d*(e-?\d+)?", cell, re.A)
        if score and float(cell) <= 5:
            return float(cell)
        expected = allowed or "a score from 0 to 5"
        raise malformed(
            place, f"label {short(cell)}", expected, "correct the label or drop the row"
        )

    return code


def _dev_ids(path):
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing, the list of dev rows within msr_paraphrase_train.txt; fix: put it "
            "there, or train.tsv and dev.tsv"
        )
    rows = [tuple(line.split("\t")) for line in read_lines(path)]
    for number, cells in enumerate(rows, 1):
        if len(cells) != 2:
            raise malformed(f"{path}:{number}", f"{len(cells)} field(s)", "two sentence ids")
    return set(rows)


# ---- the hub ----
def fetch(task, root, loader=None):
    """Fill `<root>/<TASK>/` with files in the official layout from the hub's GLUE. Returns the
    folder.

    Columns that the hub lacks (ids, parses) stay empty. A new folder appears whole, and nothing is
    overwritten. `loader(name, configuration)` stands in for `datasets.load_dataset`.
    """
    expected, folder = names(task), Path(root) / _FOLDERS.get(task, (task,))[0]
    configuration = task.lower().replace("-", "")
    loaded = from_hub(task, expected.values(), folder, loader, "nyu-mll/glue", configuration)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        fresh = Path(scratch) / folder.name
        fresh.mkdir()
        for split, (_, theirs) in _splits(task).items():
            rows = of_hub(loaded, task, theirs, expected[split], folder)
            text = _as_tsv(task, rows)
            (fresh / expected[split]).write_text(text, encoding="utf-8", newline="\n")
        if folder.exists():
            for path in sorted(fresh.iterdir()):
                os.replace(path, folder / path.name)
        else:
            os.replace(fresh, folder)
    return folder


def _as_tsv(task, rows):
    """A split of the hub as the text of an official file."""
    labels, layout = TASKS[task].labels, _LAYOUT[task]
    theirs = getattr(rows.features["label"], "names", None)
    if labels and theirs and tuple(theirs) != labels:
        raise ValueError(
            f"the hub's classes of {task} are {', '.join(theirs)}, but the codes here are "
            f"{', '.join(labels)}; fix: fill the folder from the official files"
        )
    y = np.asarray(rows["label"], np.int64 if labels else np.float32)
    header = (layout.train if (y >= 0).any() else layout.test).split(",")
    columns = {name: range(len(y)) for name in ("index", "id")}
    named = [labels[c] if c >= 0 else c for c in y] if task in _NAMED else y
    columns[layout.label.split("/")[0]] = named
    for role in filter(None, (layout.a, layout.b)):
        column = next(name for name in reversed(role.split("/")) if name in rows.column_names)
        columns[role.split("/")[0]] = [re.sub("[\t\r\n]", " ", text) for text in rows[column]]
    blank = [""] * len(y)
    rows = zip(*(columns.get(name, blank) for name in header), strict=True)
    lines = ["\t".join(map(str, row)) for row in rows]
    return "\n".join(lines if header[0] == "source" else ["\t".join(header), *lines]) + "\n"


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
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (contents | {"submission.zip": packed.getvalue()}).items():
        scratch = folder / f".{name}.{os.getpid()}"
        scratch.write_bytes(data)
        os.replace(scratch, folder / name)
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
