"""SQuAD 1.1 and 2.0 in the official JSON, the hub as a way to fill the folder.

    <root>/train-v1.1.json, dev-v1.1.json     SQuAD1
    <root>/train-v2.0.json, dev-v2.0.json     SQuAD2, where a question may have no answer

Either split may be missing. Where an official file is not there, stand-ins such as train-v1.1.sample.json are read, all
of them in the order of their names. Blanks around a question are dropped; a passage stays as its offsets need it.
"""

import json
import os
import re
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from lib.data import Split, Task
from lib.spec import known

TASKS = {
    name: Task(name, True, (), ("span_f1", "exact"), span=True) for name in ("SQuAD1", "SQuAD2")
}
_NAMES = {
    task: {split: f"{split}-{version}.json" for split in ("train", "dev")}
    for task, version in (("SQuAD1", "v1.1"), ("SQuAD2", "v2.0"))
}
_HUB = {
    "SQuAD1": "rajpurkar/squad",
    "SQuAD2": "rajpurkar/squad_v2",
    "train": "train",
    "dev": "validation",
}
_ANSWER = {"text": str, "answer_start": int}
_LAYOUT = {
    "data": [
        {
            "paragraphs": [
                {"context": str, "qas": [{"id": str, "question": str, "answers": [_ANSWER]}]}
            ]
        }
    ]
}
_KINDS = {dict: "an object", list: "a list", str: "text", int: "a whole number"}
_HALF = re.compile("[\ud800-\udfff]")  # half a surrogate pair: JSON may hold one, UTF-8 cannot


def files(task, root):
    """{split: [Path, ...]} of what `load` reads. Raises FileNotFoundError where there is no split at all."""
    known("SQuAD task", task, TASKS)
    root, names = Path(root), _NAMES[task]
    found = {
        split: [root / name]
        if (root / name).is_file()
        else sorted(root.glob(name.replace(".json", ".*.json")))
        for split, name in names.items()
    }
    if not any(found.values()):
        raise FileNotFoundError(
            f"{root} holds no split of {task}; expected {' or '.join(names.values())} in the official layout; fix: "
            f"point the data root at the folder above {root.name}, or use lib.data.squad.fetch({task!r}, root)"
        )
    return {split: paths for split, paths in found.items() if paths}


def load(task, root):
    """{split: Split} of all files that are there: `a` questions, `b` passages, `answers` [] where the passage has none.
    Raises ValueError with file and question, or path in the JSON, where something is malformed."""
    return {split: _split(task, paths) for split, paths in files(task, root).items()}


def fetch(task, root, loader=None):
    """Write both files from the hub, in the official layout; returns the folder. `loader` is as in lib.data.glue."""
    known("SQuAD task", task, TASKS)
    root, names = Path(root), _NAMES[task]
    there = [name for name in names.values() if (root / name).exists()]
    if there:
        raise FileExistsError(
            f"{root} already holds {', '.join(there)}; move it away to fetch {task} anew"
        )
    try:
        if loader is None:
            from datasets import load_dataset as loader
        splits = loader(_HUB[task])
        texts = {
            name: json.dumps(_official(task, splits[_HUB[split]])) for split, name in names.items()
        }
    except Exception as error:  # the hub's client raises many kinds, by version and by failure
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConnectionError(
            f"{task} cannot be had from the hub ({reason}); fix: check the network, or put "
            f"{' and '.join(names.values())} into {root} by hand"
        ) from error
    root.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        scratch = root / f".{name}.{os.getpid()}"
        scratch.write_text(text, encoding="utf-8")
        os.replace(scratch, root / name)
    return root


def _official(task, rows):
    """Rows of the hub as the tree of an official file; rows of one passage stand together in both."""

    def qa(row):
        pairs = zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
        given = [{"text": text, "answer_start": int(start)} for text, start in pairs]
        more = {"is_impossible": not given} if task == "SQuAD2" else {}
        return {"question": row["question"], "id": row["id"], "answers": given} | more

    return {
        "version": "v2.0" if task == "SQuAD2" else "1.1",
        "data": [
            {
                "title": title,
                "paragraphs": [
                    {"context": context, "qas": [qa(row) for row in same]}
                    for context, same in groupby(article, itemgetter("context"))
                ],
            }
            for title, article in groupby(rows, itemgetter("title"))
        ],
    }


def _bad(place, found, expected, fix="correct the file, or download it again"):
    return ValueError(f"{place}: {found}; expected {expected}; fix: {fix}")


def _parse(path):
    try:
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise _bad(
            f"{path}:{line}", f"byte 0x{error.object[error.start]:02x} is not UTF-8", "UTF-8 text"
        ) from None
    except json.JSONDecodeError as error:
        raise _bad(
            f"{path}:{error.lineno}", f"{error.msg} at column {error.colno}", "JSON, whole"
        ) from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # a number of thousands of digits, lists in lists without end
        raise _bad(path, error, "JSON in SQuAD's layout") from None


def _check(node, layout, place):
    """The tree. Raises ValueError where it lacks what `layout` names, or holds something of another type there."""
    kind = layout if isinstance(layout, type) else type(layout)
    if type(node) is not kind or (
        kind is str and _HALF.search(node)
    ):  # not isinstance: true is an int too
        raise _bad(
            place,
            _KINDS[type(node)] if isinstance(node, dict | list) else f"{node!r:.60}",
            _KINDS[kind],
        )
    if kind is list:
        for i, each in enumerate(node):
            _check(each, layout[0], f"{place}[{i}]")
    if kind is dict:
        place += f" (question {node['id']!r:.40})" if type(node.get("id")) is str else ""
        for key, inner in layout.items():
            if key not in node:
                raise _bad(place, f"no {key!r}", f"an object with {', '.join(layout)}")
            _check(node[key], inner, f"{place}.{key}")
    return node


def _verify(task, qa, passage, place):
    """[(text, start), ...] of the answers. Raises ValueError where they do not fit the passage or the task."""
    answers = [(each["text"], each["answer_start"]) for each in qa["answers"]]
    for text, start in answers:
        if not text or start < 0 or not passage.startswith(text, start):
            there, here = (
                passage.find(text) if text else -1,
                passage[max(start, 0) :][: len(text) or 20],
            )
            raise _bad(
                place,
                f"answer {text!r:.60} at character {start}, where the passage reads {here!r:.60}",
                "an answer at its offset",
                f"answer_start {there}" if there >= 0 else "drop the question",
            )
    if (task == "SQuAD2" and qa.get("is_impossible", not answers)) is not (not answers):
        raise _bad(
            place,
            f"{len(answers)} answers",
            "none where is_impossible is true, else and in v1.1 at least one",
        )
    return answers


def _split(task, paths):
    a, b, answers, seen = [], [], [], set()
    for path in paths:
        articles = _check(_parse(path), _LAYOUT, f"{path}: $")["data"]
        for paragraph, qa in (
            (p, qa) for article in articles for p in article["paragraphs"] for qa in p["qas"]
        ):
            place = f"{path}: question {qa['id']!r:.40}"
            if qa["id"] in seen:
                raise _bad(place, "not the first of this id", "each id once", "drop one of them")
            seen.add(qa["id"])
            a.append(qa["question"].strip())
            b.append(paragraph["context"])
            answers.append(_verify(task, qa, b[-1], place))
    if not a:
        raise _bad(paths[0], "no questions", "some in data[].paragraphs[].qas[]")
    y = [(each[0][1], each[0][1] + len(each[0][0])) if each else (-1, -1) for each in answers]
    return Split(
        a,
        b,
        np.array(y, np.int64),
        np.arange(len(a)),
        [[text for text, _ in each] for each in answers],
    )
