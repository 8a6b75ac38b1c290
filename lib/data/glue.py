"""GLUE in its official layout: folders of TSV files, the hub as a way to fill them, the server's submission.

    <root>/<TASK>/train.tsv, dev.tsv, test.tsv
    <root>/MNLI/train.tsv, {dev,test}_{matched,mismatched}.tsv     splits dev, dev_mm, test, test_mm
    <root>/MRPC/msr_paraphrase_{train,test}.txt with dev_ids.tsv   where MRPC's own files are missing
    <root>/diagnostic/diagnostic.tsv                               AX; also AX/diagnostic.tsv or AX/test.tsv
    <root>/../stsbenchmark/sts-test.csv                            STS-B's test rows with their scores, as unseen rows;
                                                                   MRPC's are those of msr_paraphrase_test.txt

Any split may be missing. A stand-in such as dev_matched.reconstructed.tsv is read where the official file is
not there: `files` says which file a split comes from, `stand_in` of what kind it is. Columns go by name,
quotes are text, blanks around a sentence are dropped, labels are names or digits.
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
from lib.data.lines import malformed, read_lines, short
from lib.spec import known

_NLI, _TWO = ("entailment", "neutral", "contradiction"), ("entailment", "not_entailment")
TASKS = {
    task.name: task
    for task in (
        Task("CoLA", False, ("unacceptable", "acceptable"), ("matthews",)),
        Task("SST-2", False, ("negative", "positive"), ("accuracy",)),
        Task("MRPC", True, ("not_equivalent", "equivalent"), ("accuracy", "f1")),
        Task("QQP", True, ("not_duplicate", "duplicate"), ("accuracy", "f1")),
        Task("STS-B", True, (), ("spearman", "pearson")),
        Task("MNLI", True, _NLI, ("accuracy",)),
        Task("QNLI", True, _TWO, ("accuracy",)),
        Task("RTE", True, _TWO, ("accuracy",)),
        Task("WNLI", True, ("not_entailment", "entailment"), ("accuracy",)),
        Task("AX", True, _NLI, ("accuracy", "matthews")),
    )
}

# The files of a submission: official number of test rows, and the task whose codes each holds.
TEST_ROWS = {
    "CoLA": 1063,
    "SST-2": 1821,
    "MRPC": 1725,
    "QQP": 390965,
    "STS-B": 1379,
    "MNLI-m": 9796,
    "MNLI-mm": 9847,
    "QNLI": 5463,
    "RTE": 3000,
    "WNLI": 146,
    "AX": 1104,
}
TASK_OF = {name: name.split("-m")[0] for name in TEST_ROWS}
_NAMED = ("MNLI", "QNLI", "RTE", "AX")  # official files hold class names here, digits elsewhere
_EMPTY = ("QQP", "MNLI")  # crowd text: one side may be empty, as in two official QQP rows
_TORN = 100  # QQP: line breaks inside questions tear some 20 official rows


@dataclass(frozen=True)
class _Layout:
    hub: str  # configuration on the hub
    train: str  # official columns with a label, and
    test: str  # without
    a: str  # column of the first sentence; after "/" what the hub calls it, likewise below
    b: str = ""
    label: str = "label"


_PAIR = ("index,sentence1,sentence2,label", "index,sentence1,sentence2")
_STS = "index,genre,filename,year,old_index,source1,source2,sentence1,sentence2"
_MNLI = (
    "index,promptID,pairID,genre,sentence1_binary_parse,sentence2_binary_parse,sentence1_parse,"
    "sentence2_parse,sentence1,sentence2"
)
_PREMISE = ("sentence1/premise", "sentence2/hypothesis")
_LAYOUT = {
    "CoLA": _Layout("cola", "source,label,original,sentence", "index,sentence", "sentence"),
    "SST-2": _Layout("sst2", "sentence,label", "index,sentence", "sentence"),
    "MRPC": _Layout(
        "mrpc",
        "Quality,#1 ID,#2 ID,#1 String,#2 String",
        "index,#1 ID,#2 ID,#1 String,#2 String",
        "#1 String/sentence1",
        "#2 String/sentence2",
        "Quality/label",
    ),
    "QQP": _Layout(
        "qqp",
        "id,qid1,qid2,question1,question2,is_duplicate",
        "id,question1,question2",
        "question1",
        "question2",
        "is_duplicate/label",
    ),
    "STS-B": _Layout("stsb", _STS + ",score", _STS, "sentence1", "sentence2", "score/label"),
    "MNLI": _Layout("mnli", _MNLI + ",label1,gold_label", _MNLI, *_PREMISE, "gold_label/label"),
    "QNLI": _Layout(
        "qnli", "index,question,sentence,label", "index,question,sentence", "question", "sentence"
    ),
    "RTE": _Layout("rte", *_PAIR, "sentence1", "sentence2"),
    "WNLI": _Layout("wnli", *_PAIR, "sentence1", "sentence2"),
    "AX": _Layout("ax", *_PAIR, *_PREMISE),
}
_FOLDERS = {name: (name,) for name in TASKS} | {"AX": ("diagnostic", "AX")}
_STEMS = {name: {"train": ("train",), "dev": ("dev",), "test": ("test",)} for name in TASKS} | {
    "MNLI": {
        "train": ("train",),
        "dev": ("dev_matched",),
        "dev_mm": ("dev_mismatched",),
        "test": ("test_matched",),
        "test_mm": ("test_mismatched",),
    },
    "AX": {"test": ("diagnostic", "test")},
}
_HUB = {
    "train": ("train",),
    "dev": ("validation", "validation_matched"),
    "test": ("test", "test_matched"),
    "dev_mm": ("validation_mismatched",),
    "test_mm": ("test_mismatched",),
}
UNSEEN = {"MRPC": "MRPC/msr_paraphrase_test.txt", "STS-B": "../stsbenchmark/sts-test.csv"}
_STAND_IN = re.compile(r"\.(reconstructed|subset|sample\d*)\.tsv$")


def stand_in(path):
    """What replaces the official file, e.g. "sample1000"; "" for an official file."""
    found = _STAND_IN.search(Path(path).name)
    return found.group(1) if found else ""


def files(task, root):
    """{split: Path} of what `load` reads. Raises FileNotFoundError where there is no split at all."""
    known("GLUE task", task, TASKS)
    folders, stems = [Path(root) / name for name in _FOLDERS[task]], _STEMS[task]
    found = {}
    for split in stems:
        places = [(folder, stem) for folder in folders for stem in stems[split]]
        paths = [folder / f"{stem}.tsv" for folder, stem in places]
        if task == "MRPC" and (split != "dev" or (folders[0] / "dev_ids.tsv").is_file()):
            paths.append(
                folders[0] / f"msr_paraphrase_{'test' if split == 'test' else 'train'}.txt"
            )
        for folder, stem in places:
            paths += [
                path
                for path in sorted(folder.glob(f"{stem}.*.tsv"))
                if path.name == f"{stem}.{stand_in(path)}.tsv"
            ]
        there = [path for path in paths if path.is_file()]
        if there:
            found[split] = there[0]
    if not found:
        names = ", ".join(f"{each[0]}.tsv" for each in stems.values())
        raise FileNotFoundError(
            f"{folders[0]} {'holds no split' if folders[0].is_dir() else 'is no folder'}; expected {names} "
            f"in GLUE's layout; fix: point the data root at the folder above {folders[0].name}, or fill it "
            f"from the hub with lib.data.glue.fetch({task!r}, root)"
        )
    return found


def load(task, root):
    """{split: Split} of all files that are there. Test rows without a label have y = -1 (NaN for STS-B).
    Raises ValueError with file and line where a row is malformed."""
    return {split: _read(task, split, path) for split, path in files(task, root).items()}


def unseen(task, root):
    """The test rows of a task of UNSEEN, whose labels are public."""
    path = Path(os.path.normpath(Path(root) / UNSEEN[task]))
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing, the test rows of {task} with their labels; fix: put it there, or leave "
            "`unseen` out"
        )
    return _read(task, "unseen", path)


def fetch(task, root, loader=None):
    """Fill `<root>/<TASK>/` with files in the official layout from the hub's GLUE; returns the folder.

    Columns that the hub lacks (ids, parses) stay empty. A new folder appears whole, nothing is overwritten.
    `loader(name, configuration)` stands in for `datasets.load_dataset`.
    """
    known("GLUE task", task, TASKS)
    folder = Path(root) / _FOLDERS[task][0]
    names = {split: f"{stems[0]}.tsv" for split, stems in _STEMS[task].items()}
    there = [name for name in names.values() if (folder / name).exists()]
    if there:
        raise FileExistsError(
            f"{folder} already holds {', '.join(there)}; move it away to fetch {task} anew"
        )
    try:
        if loader is None:
            from datasets import load_dataset as loader
        loaded = loader("nyu-mll/glue", _LAYOUT[task].hub)
    except Exception as error:  # the hub's client raises many kinds, by version and by failure
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConnectionError(
            f"{task} cannot be had from the hub ({reason}); fix: check the network, or put "
            f"{', '.join(names.values())} into {folder} by hand"
        ) from error
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        fresh = Path(scratch) / folder.name
        fresh.mkdir()
        for split, name in names.items():
            theirs = [each for each in _HUB[split] if each in loaded]
            if not theirs:
                raise ValueError(
                    f"the hub's {task} has no split {' or '.join(_HUB[split])}, but "
                    f"{', '.join(loaded)}; fix: put {name} into {folder} by hand"
                )
            (fresh / name).write_text(
                _as_tsv(task, loaded[theirs[0]]), encoding="utf-8", newline="\n"
            )
        if folder.exists():
            for path in sorted(fresh.iterdir()):
                os.replace(path, folder / path.name)
        else:
            os.replace(fresh, folder)
    return folder


def write_submission(predictions, folder, task_of=TASK_OF, partial=False, rows=TEST_ROWS):
    """Write what the GLUE server takes: `<name>.tsv` each, and submission.zip of all; returns the zip's path.

    `predictions` maps the names of TEST_ROWS to class codes [N] or logits [N, C], or scores [N] for STS-B,
    in the order of the test files; `task_of` tells the task of each name, `rows` its number of rows (another one for a
    generated twin). All is checked before writing.
    """
    for name in predictions:
        known("file of a GLUE submission", name, TEST_ROWS)
    missing = [name for name in TEST_ROWS if name not in predictions]
    if not predictions or (missing and not partial):
        raise ValueError(
            f"the submission lacks {', '.join(missing)}; the server wants all of "
            f"{len(TEST_ROWS)}; fix: predict these too, or write the others with partial=True"
        )
    contents = {}
    for name in filter(predictions.__contains__, TEST_ROWS):
        cells = _cells(name, TASKS[task_of[name]], predictions[name], rows[name])
        lines = "".join(f"{i}\t{cell}\n" for i, cell in enumerate(cells))
        contents[f"{name}.tsv"] = f"index\tprediction\n{lines}".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for (
            name,
            data,
        ) in contents.items():  # a fixed date, so that equal predictions give equal bytes
            archive.writestr(
                zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED
            )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (contents | {"submission.zip": packed.getvalue()}).items():
        scratch = folder / f".{name}.{os.getpid()}"
        scratch.write_bytes(data)
        os.replace(scratch, folder / name)
    return folder / "submission.zip"


def _columns(task, split, path, lines):
    """Positions of both sentences and the label (None for what is not there), fields a row, header lines."""
    if path.suffix == ".csv":
        return (
            5,
            6,
            4,
            7,
            0,
        )  # the benchmark's own file has no header; where a sentence is from may follow it
    layout, test = _LAYOUT[task], split.startswith("test")
    official = (layout.train if not test or path.suffix == ".txt" else layout.test).split(",")
    head = [cell.strip() for cell in lines[0].split("\t")] if lines else []
    a, b, label = (
        next((head.index(name) for name in role.split("/") if name in head), None)
        for role in (layout.a, layout.b, layout.label)
    )
    if task == "CoLA" and lines and (a is None or (label is None and not test)):
        return 3, None, 1, 4, 0  # official train and dev files have no header
    needed = ((layout.a, a), (layout.b, b if layout.b else 0), (layout.label, 0 if test else label))
    lacking = [role.split("/")[0] for role, place in needed if place is None]
    if lacking or (path.suffix == ".txt" and head != official):
        found = (
            f"{short(lines[0])} without {', '.join(lacking) or 'all columns'}"
            if lines
            else "no rows"
        )
        raise malformed(
            path,
            1,
            found,
            f"{', '.join(official)} between tabs",
            "add a header line with these names, or download the file again",
        )
    return a, b, label, len(head), 1


def _read(task, split, path):
    lines, pair = read_lines(path), TASKS[task].pair
    a, b, label, width, first = _columns(task, split, path, lines)
    code = _coder(task, split, path)
    # the original MRPC corpus holds train and dev in one file
    held = (
        _dev_ids(path.with_name("dev_ids.tsv"))
        if path.suffix == ".txt" and split in ("train", "dev")
        else None
    )
    left, right, y, torn = [], [], [], 0
    for number, line in enumerate(lines[first:], first + 1):
        cells = line.split("\t")[: width if path.suffix == ".csv" else None]
        if len(cells) != width:
            torn += 1
            if task == "QQP" and len(cells) < width and torn <= _TORN:
                continue  # as the hub does
            raise malformed(
                path,
                number,
                f"{len(cells)} field(s) in {short(line)}",
                f"{width} between tabs" + ("" if first else " (source, label, mark, sentence)"),
                "restore the missing ones"
                if len(cells) < width
                else "remove tabs inside sentences",
            )
        if held is not None and ((cells[1], cells[2]) in held) != (split == "dev"):
            continue
        texts = [cells[column].strip() for column in ((a, b) if pair else (a,))]
        if not (any(texts) if task in _EMPTY else all(texts)):
            raise malformed(
                path,
                number,
                f"an empty sentence in column {(b if texts[0] else a) + 1}",
                "text",
                "fill it in or drop the row",
            )
        left.append(texts[0])
        right.append(texts[-1])
        y.append(code("" if label is None else cells[label].strip(), number))
    if not y:
        raise malformed(path, len(lines), "no rows", "one row a line", "download the file again")
    dtype = np.int64 if TASKS[task].labels else np.float32
    return Split(left, right if pair else None, np.array(y, dtype), np.arange(len(y)))


def _coder(task, split, path):
    """f(cell, line) -> class code or score; a test row may have none."""
    names, none = TASKS[task].labels, -1 if TASKS[task].labels else float("nan")
    codes = {name: code for code, name in enumerate(names)} | {
        str(code): code for code in range(len(names))
    }
    if split.startswith("test"):
        codes |= dict.fromkeys(("", "-1"), none)

    def code(cell, line):
        if cell in codes:
            return codes[cell]
        score = (
            float(cell) if not names and re.fullmatch(r"\d+\.?\d*(e-?\d+)?", cell, re.A) else -1.0
        )
        if 0 <= score <= 5:
            return score
        allowed = (
            ", ".join(f"{code} or {name}" for code, name in enumerate(names))
            or "a score from 0 to 5"
        )
        raise malformed(
            path, line, f"label {short(cell)}", allowed, "correct the label or drop the row"
        )

    return code


def _dev_ids(path):
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing, the list of dev rows within msr_paraphrase_train.txt; "
            "fix: put it there, or train.tsv and dev.tsv"
        )
    lines = [line.split("\t") for line in read_lines(path)]
    for number, cells in enumerate(lines, 1):
        if len(cells) != 2:
            raise malformed(
                path, number, f"{len(cells)} field(s)", "two sentence ids", "download it again"
            )
    return set(map(tuple, lines))


def _as_tsv(task, rows):
    """A split of the hub as the text of an official file."""
    names, layout = TASKS[task].labels, _LAYOUT[task]
    theirs = getattr(rows.features["label"], "names", None)
    if names and theirs and tuple(theirs) != names:
        raise ValueError(
            f"the hub's classes of {task} are {', '.join(theirs)}, but the codes here are "
            f"{', '.join(names)}; fix: fill the folder from the official files"
        )
    y = np.asarray(rows["label"], np.int64 if names else np.float32)
    header = (layout.train if (y >= 0).any() else layout.test).split(",")
    columns = {name: range(len(y)) for name in ("index", "id")}
    columns[layout.label.split("/")[0]] = (
        [names[c] if c >= 0 else c for c in y] if task in _NAMED else y
    )
    for role in filter(None, (layout.a, layout.b)):
        column = next(name for name in reversed(role.split("/")) if name in rows.column_names)
        columns[role.split("/")[0]] = [re.sub("[\t\r\n]", " ", text) for text in rows[column]]
    blank = [""] * len(y)
    rows = zip(*(columns.get(name, blank) for name in header), strict=True)
    lines = ["\t".join(map(str, row)) for row in rows]
    return "\n".join(lines if header[0] == "source" else ["\t".join(header), *lines]) + "\n"


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
        raise ValueError(
            f"{name}: {len(bad)} of {rows} rows are not finite, the first is row {bad[0]}"
        )
    if not task.labels:
        return [
            f"{value:.3f}" for value in np.clip(values.ravel(), 0, 5) + 0.0
        ]  # + 0.0: no "-0.000"
    codes = values.argmax(axis=1) if values.ndim == 2 else values
    bad = np.flatnonzero(~np.isin(codes, range(task.outputs)))
    if len(bad):
        raise ValueError(
            f"{name}: row {bad[0]} predicts {codes[bad[0]]:g}; "
            f"allowed: codes 0 to {task.outputs - 1} ({', '.join(task.labels)})"
        )
    return [task.labels[code] if task.name in _NAMED else code for code in codes.astype(int)]
