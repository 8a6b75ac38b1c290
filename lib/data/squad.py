"""SQuAD 1.1 and 2.0 in the official JSON, the hub as a way to fill the folder.

    <root>/train-v1.1.json, dev-v1.1.json     SQuAD1
    <root>/train-v2.0.json, dev-v2.0.json     SQuAD2, where a question may have no answer

Either split may be missing. Stand-ins with a middle name, such as train-v1.1.sample.json, are read where the official
file is not there, all of them in the order of their names: `files` says which. Blanks around a question are dropped
(some versions on the hub lack them); passages stay as they are, since answers are found in them by offset.
"""

import json
import os
import tempfile
from itertools import groupby
from pathlib import Path

import numpy as np

from lib.data import Split, Task
from lib.spec import known

TASKS = {name: Task(name, True, (), ("span_f1", "exact"), span=True) for name in ("SQuAD1", "SQuAD2")}
_VERSION = {"SQuAD1": "v1.1", "SQuAD2": "v2.0"}
_HUB = {"SQuAD1": "rajpurkar/squad", "SQuAD2": "rajpurkar/squad_v2"}
_SPLITS = {"train": "train", "dev": "validation"}   # here and on the hub
_KINDS = {dict: "an object", list: "a list", str: "a text", int: "a whole number", bool: "true or false"}


def files(task, root):
    """{split: [Path, ...]} of what `load` reads. Raises FileNotFoundError where there is no split at all."""
    known("SQuAD task", task, TASKS)
    root, found = Path(root), {}
    for split in _SPLITS:
        stem = f"{split}-{_VERSION[task]}"
        official = root / f"{stem}.json"
        paths = [official] if official.is_file() else [p for p in sorted(root.glob(f"{stem}.*.json")) if p.is_file()]
        if paths:
            found[split] = paths
    if not found:
        names = " and ".join(f"{split}-{_VERSION[task]}.json" for split in _SPLITS)
        raise FileNotFoundError(
            f"{root} {'holds no split' if root.is_dir() else 'is no folder'} of {task}; expected {names} in the official "
            f"layout; fix: point the data root at the folder above {root.name}, or fill it from the hub with "
            f"lib.data.squad.fetch({task!r}, root)")
    return found


def load(task, root):
    """{split: Split} of all files that are there: `a` questions, `b` passages, `answers` the accepted texts ([] where
    the passage holds none). Raises ValueError with file and question where something is malformed."""
    return {split: _split(task, paths) for split, paths in files(task, root).items()}


def fetch(task, root, loader=None):
    """Write `train-*.json` and `dev-*.json` in the official layout from the hub; returns the folder.

    Nothing is overwritten. `loader(name)` stands in for `datasets.load_dataset`.
    """
    known("SQuAD task", task, TASKS)
    root, names = Path(root), {split: f"{split}-{_VERSION[task]}.json" for split in _SPLITS}
    there = [name for name in names.values() if (root / name).exists()]
    if there:
        raise FileExistsError(f"{root} already holds {', '.join(there)}; move it away to fetch {task} anew")
    try:
        if loader is None:
            from datasets import load_dataset as loader
        loaded = loader(_HUB[task])
    except Exception as error:   # the hub's client raises many kinds, by version and by failure
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConnectionError(f"{task} cannot be had from the hub ({reason}); fix: check the network, or put "
                              f"{' and '.join(names.values())} into {root} by hand") from error
    lacking = [theirs for theirs in _SPLITS.values() if theirs not in loaded]
    if lacking:
        raise ValueError(f"the hub's {task} has no split {', '.join(lacking)}, but {', '.join(loaded)}; "
                         f"fix: put {' and '.join(names.values())} into {root} by hand")
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".squad.", dir=root) as scratch:
        for split, name in names.items():
            (Path(scratch) / name).write_text(json.dumps(_official(task, loaded[_SPLITS[split]])), encoding="utf-8")
        for name in names.values():
            os.replace(Path(scratch) / name, root / name)
    return root


def _official(task, rows):
    """Rows of the hub as the tree of an official file; questions of one passage stand together in both."""
    def qa(row):
        given = [{"text": text, "answer_start": int(start)}
                 for text, start in zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)]
        more = {"is_impossible": not given} if task == "SQuAD2" else {}
        return {"question": row["question"], "id": row["id"], "answers": given} | more

    def paragraphs(article):
        return [{"context": context, "qas": [qa(row) for row in same]}
                for context, same in groupby(article, lambda row: row["context"])]
    return {"version": _VERSION[task].removeprefix("v") if task == "SQuAD1" else _VERSION[task],
            "data": [{"title": title, "paragraphs": paragraphs(article)}
                     for title, article in groupby(rows, lambda row: row["title"])]}


def _bad(place, found, expected, fix="correct the file, or download it again"):
    return ValueError(f"{place}: {found}; expected {expected}; fix: {fix}")


def _parse(path):
    try:
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise _bad(f"{path}:{line}", f"byte 0x{error.object[error.start]:02x} is not UTF-8", "UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise _bad(f"{path}:{error.lineno}", f"{error.msg} at column {error.colno}", "JSON",
                   "the file may be cut short: download it again") from None
    except (ValueError, RecursionError) as error:   # a number of thousands of digits, lists in lists without end
        raise _bad(path, error, "JSON in SQuAD's layout") from None


def _get(node, key, kind, place):
    """node[key], of the type `kind`."""
    if type(node) is not dict:
        raise _bad(place, f"{type(node).__name__} in place of an object", f"an object with {key!r}")
    if key not in node:
        raise _bad(place, f"no {key!r} among {', '.join(map(repr, node)) or 'no keys'}"[:200], f"{key!r}, {_KINDS[kind]}")
    value = node[key]
    if type(value) is not kind:   # not isinstance: true is an int too
        raise _bad(f"{place}.{key}", f"{value!r:.60}", _KINDS[kind])
    if kind is str and any("\ud800" <= c <= "\udfff" for c in value):
        raise _bad(f"{place}.{key}", "half a surrogate pair", "text that can be written as UTF-8")
    return value


def _items(node, key, place):
    """(element, its place) of the list node[key]."""
    return [(each, f"{place}.{key}[{i}]") for i, each in enumerate(_get(node, key, list, place))]


def _span(answer, passage, place):
    """(first character, one after the last, text) of an answer, checked against its passage."""
    text, start = _get(answer, "text", str, place), _get(answer, "answer_start", int, place)
    if not text or start < 0 or not passage.startswith(text, start):
        there = passage.find(text) if text else -1
        raise _bad(place, f"{text!r:.60} at character {start}, where the passage reads "
                          f"{passage[max(start, 0):][:len(text) or 20]!r:.60}", "an answer that occurs at its offset",
                   f"answer_start {there}" if there >= 0 else "correct the text, or drop the question")
    return start, start + len(text), text


def _split(task, paths):
    rows, seen = [], {}
    for path in paths:
        for article, at in _items(_parse(path), "data", f"{path}: "):
            for paragraph, inside in _items(article, "paragraphs", at):
                passage = _get(paragraph, "context", str, inside)
                for qa, place in _items(paragraph, "qas", inside):
                    name = _get(qa, "id", str, place)
                    place = f"{place} (question {name!r:.40})"
                    if seen.setdefault(name, place) is not place:
                        raise _bad(place, f"the id is that of {seen[name]}", "an id of its own", "drop one of them")
                    question = _get(qa, "question", str, place).strip()
                    spans = [_span(each, passage, where) for each, where in _items(qa, "answers", place)]
                    if not spans and task == "SQuAD1":
                        raise _bad(place, "no answer", "at least one in SQuAD 1.1", "drop it, or make it a v2.0 file")
                    if "is_impossible" in qa and _get(qa, "is_impossible", bool, place) == bool(spans):
                        raise _bad(place, f"{len(spans)} answer(s), but is_impossible {qa['is_impossible']}",
                                   "answers where it is false, none where it is true")
                    rows.append((question, passage, spans))
    if not rows:
        raise _bad(paths[0], "no questions", "data[].paragraphs[].qas[]")
    y = np.array([spans[0][:2] if spans else (-1, -1) for _, _, spans in rows], np.int64)
    return Split([row[0] for row in rows], [row[1] for row in rows], y, np.arange(len(rows)),
                 [[text for _, _, text in spans] for _, _, spans in rows])
