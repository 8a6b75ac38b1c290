"""This module reads the tasks of GLUE, SQuAD and SentEval from their official files;
`tasks.toml` lists files, columns and classes.

    <glue>/<TASK>/train.tsv, dev.tsv          MNLI: dev_matched and dev_mismatched.tsv
    <squad>/train-v1.1.json, dev-v1.1.json    this is SQuAD1; SQuAD2 has v2.0
    <senteval>/past_present.txt, ...          split, label, sentence, with tabs between

In SentEval's files the split is "tr" (training), "va" (development) or "te" (test). Any
split of GLUE and SQuAD may be missing. Test rows of GLUE are not read, as their labels
are not public. MRPC and STS-B are exceptions: their test labels were published by the
data sets' own authors. So these test rows are read as unseen rows, on which no model
is trained or selected. Where an official file is missing, the JSON lines that
`download_task_from_hub` downloads are read, or else a file that was rebuilt from
another source, such as dev_matched.reconstructed.tsv. Columns are found by name, quotes
are text, and blanks around a text are dropped. Labels of GLUE are names or digits."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from lib.core.disk import read_toml, write_text_file
from lib.core.names import Absent, Refused, check_known_name
from lib.core.types import ClassName, Json, SplitName
from lib.data import Split, Task, squad
from lib.data.lines import (
    LocationAndCells,
    convert_cell_to_text,
    download_dataset,
    list_rows_with_class_names,
    make_file_content_error,
    parse_number,
    quote_for_message,
    read_table_file,
)

# {"texts": allowed names of each text column, "label": those of the label column, ...}.
ColumnLayout: TypeAlias = Json
TABLE = read_toml(Path(__file__).with_name("tasks.toml"))
# Words in the names of substitute files, which have some of the rows of an official
# file, or rows rebuilt from another source. "dev.subset.tsv" is read where the official
# "dev.tsv" is missing.
STAND_INS = ("reconstructed", "subset", "prefix", "sample*", "*-half")
# {first cell of a row in SentEval's files: split of the row}. Each of these files has
# the rows of all splits.
PARTS = {"tr": "train", "va": "dev", "te": "test"}


LAYOUTS: dict[str, Json] = {
    name: {"source": source, "labels": tuple(map(str, range(row.get("classes", 0))))}
    | usual
    | row
    for source, usual in TABLE["usual"].items()
    for name, row in TABLE[source].items()
}
TASKS = {
    name: Task(
        name, len(row["texts"]) != 1, row["labels"], row["metrics"], not row["texts"]
    )
    for name, row in LAYOUTS.items()
}
SOURCES = {
    source: {name: TASKS[name] for name in TABLE[source]} for source in TABLE["usual"]
}
GLUE, SQUAD, SENTEVAL = SOURCES.values()
UNSEEN = {name: row["unseen"] for name, row in LAYOUTS.items() if "unseen" in row}


def _find_official_or_partial_files(benchmark_file_path: Path) -> list[Path]:
    """Return the files to read in place of an official file of a benchmark.

    The official file itself is returned if it exists, or else the file of its rows that
    were downloaded from the Hugging Face hub (.jsonl). Otherwise all substitutes are
    returned: files with a part of the rows, such as "dev.subset.tsv" for "dev.tsv", and
    files with rows rebuilt from another source, such as "dev.reconstructed.tsv". The
    list is empty where there are none."""
    for path in (benchmark_file_path, benchmark_file_path.with_suffix(".jsonl")):
        if path.is_file():
            return [path]
    names = [
        f"{benchmark_file_path.stem}.{word}{benchmark_file_path.suffix}"
        for word in STAND_INS
    ]
    return sorted(
        path for name in names for path in benchmark_file_path.parent.glob(name)
    )


def find_files_by_split(
    task_name: str, source_folder: Path | str
) -> dict[SplitName, list[Path]]:
    """Return {split name: paths} of the files from which a task is read.

    A file that has the rows of all splits is under the name "all". Raises Absent, with
    a way to get the files, where there are none.

    task_name: a task of GLUE, SQuAD or SentEval, such as "CoLA".
    source_folder: the folder of the benchmark, such as that of GLUE."""
    layout = LAYOUTS[task_name]
    folder = Path(source_folder) / layout["folder"]
    split_paths = {
        split: _find_official_or_partial_files(folder / name)
        for split, name in layout["files"].items()
    }
    if not any(split_paths.values()):
        names = ", ".join(layout["files"].values())
        fetch = f"python -m lib fetch {layout['source']}/{task_name}, or "
        fix = fetch * ("hub" in layout)
        reason = f"{folder} has no rows of {task_name}; expected {names}"
        raise Absent(f"{reason}; fix: {fix}put them there by hand (data/README.md)")
    return {split: chosen for split, chosen in split_paths.items() if chosen}


def download_task_from_hub(task_name: str, source_folder: Path | str) -> Path:
    """Download a task from the Hugging Face hub, and return the folder of its files.

    A file of JSON lines is written for each split, which is read where the official
    file is missing. Raises Refused for a task without a data set at the hub, or where
    the hub lacks a split, and ConnectionError where the download fails.

    task_name: a task of GLUE or SQuAD, such as "CoLA".
    source_folder: the folder of the benchmark, such as that of GLUE."""
    layouts = {name: row for name, row in LAYOUTS.items() if "hub" in row}
    check_known_name("task of the hub", task_name, layouts)
    layout = layouts[task_name]
    folder = Path(source_folder) / layout["folder"]
    by_split = download_dataset(layout["hub"])
    for split, name in layout["files"].items():
        hub_split = split.replace("dev", "validation").replace("_mm", "_mismatched")
        dataset = by_split.get(hub_split) or by_split.get(f"{hub_split}_matched")
        if not dataset or not (rows := list_rows_with_class_names(dataset)):
            given = ", ".join(map(str, by_split))
            raise Refused(
                f"the hub's {task_name} has no split {hub_split}, but {given}"
            )
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        write_text_file((folder / name).with_suffix(".jsonl"), text)
    return folder


class ParsedRow(NamedTuple):
    """A ParsedRow is a row of a table: an example with its texts and its label.

    location: file and line of the row, for error messages.
    texts: one or two texts.
    label: the label as the file spells it.
    first_cell: the first cell of the row, which in SentEval's files names the split:
    "tr", "va" or "te"."""

    location: str
    texts: list[str]
    label: str
    first_cell: str


def load(task_name: str, source_folder: Path | str) -> dict[SplitName, Split]:
    """Read all rows of an official task, and return {split name: Split}.

    Raises Absent where the task has no file, and Refused with file and line where a row
    is malformed.

    task_name: a task of GLUE, SQuAD or SentEval, such as "CoLA".
    source_folder: the folder of the benchmark, such as that of GLUE."""
    split_paths = find_files_by_split(task_name, source_folder)
    layout = LAYOUTS[task_name]
    if task_name in SQUAD:
        return {
            split: squad.read_split(task_name, paths)
            for split, paths in split_paths.items()
        }
    parted = {
        split: [
            row for path in paths for row in parse_rows(read_table_file(path), layout)
        ]
        for split, paths in split_paths.items()
    }
    if all_rows := parted.get("all"):
        parted = {
            name: [r for r in all_rows if r.first_cell == part]
            for part, name in PARTS.items()
        }
        if sum(map(len, parted.values())) < len(all_rows) or not all(parted.values()):
            counts = ", ".join(f"{len(part)} {name}" for name, part in parted.items())
            fault = f"{counts} of {len(all_rows)} rows"
            raise make_file_content_error(
                split_paths["all"][0], fault, "tr, va or te before each"
            )
    if task_name == "WordContent":
        # In this task the model guesses which one of some words a sentence contains.
        # The classes are the words that are labels of training rows, in sorted order.
        words = {row.label for row in parted["train"]}
        layout = layout | {"labels": tuple(sorted(words))}
    return {
        split: _encode_labels_of_official_rows(split_rows, layout)
        for split, split_rows in parted.items()
    }


def load_official_test_rows(task_name: str, source_folder: Path | str) -> Split:
    """Return the official test rows of a task whose test labels are public.

    Only such tasks (MRPC and STS-B, listed in UNSEEN) can be scored on official test
    rows; KeyError is raised for any other task, and FileNotFoundError where the file is
    missing.

    source_folder: the folder of the benchmark, such as that of GLUE."""
    path = Path(os.path.normpath(Path(source_folder) / UNSEEN[task_name]))
    layout = LAYOUTS[task_name]
    return _encode_labels_of_official_rows(
        parse_rows(read_table_file(path, ".tsv"), layout), layout
    )


def parse_rows(
    header_and_rows: list[LocationAndCells], column_layout: ColumnLayout
) -> list[ParsedRow]:
    """Return the texts and the label of each row of a table, found by column names.

    Official tasks and users' tables are read by it. Raises Refused, with file and line,
    where a column is missing, a row has too many or too few cells, or a text or a label
    is empty.

    header_and_rows: the table, as a list of (file and line, cells). The header may be
    missing if `column_layout` has "bare".
    column_layout: {"texts": the allowed names of each text column, "label": the allowed
    names of the label column}. Optional keys: "bare" (positions of the columns and
    number of cells in a file without a header), "empty" (whether one text of a pair may
    be empty) and "torn" (how many incomplete rows may be skipped)."""
    (place, head), *body = header_and_rows
    positions, lacking = [], []
    for names in (*column_layout["texts"], column_layout["label"]):
        present = [head.index(name) for name in names if name in head]
        positions += present[:1]
        lacking += [] if present else names[:1]
    width, more, torn = len(head), False, column_layout.get("torn", 0)
    if lacking and (bare := column_layout.get("bare")):
        positions, width, body = bare["at"], bare["width"], header_and_rows
        more = bare.get("more", False)
    elif lacking:
        fix = "name them as the training file does, or add a header line"
        fault = f"a first line {quote_for_message(', '.join(head))} without {', '.join(lacking)}"
        raise make_file_content_error(place, fault, "the names of the columns", fix)
    parsed_rows = []
    for place, cells in body:
        if len(cells) < width and torn:
            torn -= 1
            # Skip a row that a line break inside of a text has cut in two. The data set
            # of the Hugging Face hub does not have such rows either.
            continue
        if len(cells) < width or (len(cells) > width and not more):
            given = f"{len(cells)} field(s) in {quote_for_message(' | '.join(map(str, cells)))}"
            fix = "restore missing ones, remove separators inside texts"
            fix += f", or remove what is behind column {width}" * (len(cells) > width)
            raise make_file_content_error(
                place, given, f"{width} as in the first line", fix
            )
        *texts, label = (convert_cell_to_text(cells[i], place) for i in positions)
        has_texts = any(texts) if column_layout.get("empty") else all(texts)
        if not has_texts or not label:
            given = (
                f"nothing in a cell of {quote_for_message(' | '.join(map(str, cells)))}"
            )
            raise make_file_content_error(
                place, given, "texts and a label", "fill it in or drop it"
            )
        parsed_rows.append(ParsedRow(place, texts, label, str(cells[0]).strip()))
    if not parsed_rows:
        raise make_file_content_error(place, "no rows", "one row a line")
    return parsed_rows


def build_split(
    rows: list[ParsedRow],
    class_names: tuple[ClassName, ...],
    encode_label: Callable[[ParsedRow], float],
) -> Split:
    """Return parsed rows as a Split, with label texts turned into numbers.

    The rows are numbered from 0. Labels become int64 for classes and float32 for
    scores.

    class_names: the class names, or () for scores.
    encode_label: function from a ParsedRow to its class code or score."""
    a, *b = map(list, zip(*(row.texts for row in rows), strict=True))
    y = np.array(list(map(encode_label, rows)), np.int64 if class_names else np.float32)
    return Split(a, b[0] if b else None, y, np.arange(len(rows)))


def _encode_labels_of_official_rows(
    rows: list[ParsedRow], column_layout: ColumnLayout
) -> Split:
    """Return the Split of the parsed rows of an official task.

    Labels of GLUE may be class names or class codes, since some files have names and
    others codes. Raises Refused, with file and line, for any other label.

    column_layout: the entry of the task in `tasks.toml`: "labels" has the class names,
    () for scores from 0 to 5, and "source" the benchmark, such as "glue"."""
    classes = column_layout["labels"]
    codes = {name: code for code, name in enumerate(classes)}
    if column_layout["source"] == "glue":
        codes |= {str(code): code for code in codes.values()}

    def encode_label(row: ParsedRow) -> float:
        value = codes.get(row.label) if classes else parse_number(row.label)
        if value is None or not 0 <= value <= (len(classes) or 5):
            allowed = ", ".join(classes[:20]) or "a score from 0 to 5"
            fix = "correct the label or drop the row"
            raise make_file_content_error(
                row.location, f"label {quote_for_message(row.label)}", allowed, fix
            )
        return value

    return build_split(rows, classes, encode_label)
