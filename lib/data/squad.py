"""SQuAD 1.1 and 2.0 in the official JSON, the hub as a way to fill the folder.

    <root>/train-v1.1.json, dev-v1.1.json    SQuAD1
    <root>/train-v2.0.json, dev-v2.0.json    SQuAD2, where a question may have no answer

Either split may be missing. Where an official file is not there, stand-ins such as
train-v1.1.sample.json are read, all of them in the order of their names. Blanks around a question
are dropped; a passage stays as it is, since answers are offsets into it.
"""

import json
import re
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from lib.data import Split, Task
from lib.data.lines import decoded, from_hub, malformed
from lib.spec import known

TASKS = {
    name: Task(name, True, (), ("span_f1", "exact"), span=True) for name in ("SQuAD1", "SQuAD2")
}
_VERSION = {"SQuAD1": "v1.1", "SQuAD2": "v2.0"}
_HUB = {"SQuAD1": "rajpurkar/squad", "SQuAD2": "rajpurkar/squad_v2"}
_HUB_SPLIT = {"train": "train", "dev": "validation"}
_ANSWER = {"text": str, "answer_start": int}
_QUESTION = {"id": str, "question": str, "answers": [_ANSWER]}
_LAYOUT = {"data": [{"paragraphs": [{"context": str, "qas": [_QUESTION]}]}]}
_KINDS = {dict: "an object", list: "a list", str: "text", int: "a whole number"}
_HALF = re.compile("[\ud800-\udfff]")  # half a surrogate pair: JSON may hold one, UTF-8 cannot
_FIX = "correct the file, or download it again"


def names(task):
    """{split: official file} of a task."""
    known("SQuAD task", task, TASKS)
    return {split: f"{split}-{_VERSION[task]}.json" for split in _HUB_SPLIT}


def files(task, root):
    """{split: [Path, ...]} of what `load` reads. Raises FileNotFoundError where there is no
    split."""
    root, found = Path(root), {}
    for split, name in names(task).items():
        stand_ins = sorted(root.glob(name.replace(".json", ".*.json")))
        if there := [root / name] if (root / name).is_file() else stand_ins:
            found[split] = there
    if not found:
        raise FileNotFoundError(
            f"{root} holds no split of {task}; expected {' or '.join(names(task).values())} in the "
            f"official layout; fix: point the data root at the folder above {root.name}, or use "
            f"lib.data.squad.fetch({task!r}, root)"
        )
    return found


def load(task, root):
    """{split: Split} of all files that are there. `a` are questions, `b` passages; `answers` is []
    where a passage has none. Raises ValueError with file and question, or path in the JSON."""
    return {split: _split(task, paths) for split, paths in files(task, root).items()}


def fetch(task, root, loader=None):
    """Write both files from the hub, in the official layout. Returns the folder. `loader` is as in
    lib.data.lines.from_hub."""
    files = {name: _HUB_SPLIT[split] for split, name in names(task).items()}
    text = partial(_official, task)
    return from_hub(task, Path(root), files, text, loader, _HUB[task])


def _official(task, rows):
    """Rows of the hub as the text of an official file; rows of one passage stand together in
    both."""

    def qa(row):
        pairs = zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
        given = [{"text": text, "answer_start": int(start)} for text, start in pairs]
        found = {"question": row["question"], "id": row["id"], "answers": given}
        return found | ({"is_impossible": not given} if task == "SQuAD2" else {})

    articles = []
    for title, article in groupby(rows, itemgetter("title")):
        passages = groupby(article, itemgetter("context"))
        paragraphs = [{"context": text, "qas": list(map(qa, same))} for text, same in passages]
        articles.append({"title": title, "paragraphs": paragraphs})
    version = "v2.0" if task == "SQuAD2" else "1.1"
    return json.dumps({"version": version, "data": articles})


def _parse(path):
    text = decoded(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        found = f"{error.msg} at column {error.colno}"
        raise malformed(f"{path}:{error.lineno}", found, "JSON, whole", _FIX) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, endless lists
        raise malformed(path, error, "JSON in SQuAD's layout", _FIX) from None


def _check(node, layout, place):
    """The tree. Raises ValueError where it lacks what `layout` names, or has another type there."""
    kind = layout if isinstance(layout, type) else type(layout)
    # not isinstance: true is an int too
    if type(node) is not kind or (kind is str and _HALF.search(node)):
        found = _KINDS[type(node)] if isinstance(node, dict | list) else f"{node!r:.60}"
        raise malformed(place, found, _KINDS[kind], _FIX)
    if kind is list:
        for i, each in enumerate(node):
            _check(each, layout[0], f"{place}[{i}]")
    if kind is dict:
        place += f" (question {node['id']!r:.40})" if type(node.get("id")) is str else ""
        for key, inner in layout.items():
            if key not in node:
                raise malformed(place, f"no {key!r}", f"an object with {', '.join(layout)}", _FIX)
            _check(node[key], inner, f"{place}.{key}")
    return node


def _verify(task, qa, passage, place):
    """[(text, start), ...] of the answers. Raises ValueError where they do not fit."""
    answers = [(each["text"], each["answer_start"]) for each in qa["answers"]]
    for text, start in answers:
        if not text or start < 0 or not passage.startswith(text, start):
            there = passage.find(text) if text else -1
            here = passage[max(start, 0) :][: len(text) or 20]
            raise malformed(
                place,
                f"answer {text!r:.60} at character {start}, where the passage reads {here!r:.60}",
                "an answer at its offset",
                f"answer_start {there}" if there >= 0 else "drop the question",
            )
    if (task == "SQuAD2" and qa.get("is_impossible", not answers)) is not (not answers):
        expected = "none where is_impossible is true, else and in v1.1 at least one"
        raise malformed(place, f"{len(answers)} answers", expected, _FIX)
    return answers


def _split(task, paths):
    rows, seen = [], set()
    for path in paths:
        articles = _check(_parse(path), _LAYOUT, f"{path}: $")["data"]
        paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
        for passage, qa in ((p["context"], qa) for p in paragraphs for qa in p["qas"]):
            place = f"{path}: question {qa['id']!r:.40}"
            if qa["id"] in seen:
                found, fix = "not the first of this id", "drop one of them"
                raise malformed(place, found, "each id once", fix)
            seen.add(qa["id"])
            rows.append((qa["question"].strip(), passage, _verify(task, qa, passage, place)))
    if not rows:
        raise malformed(paths[0], "no questions", "some in data[].paragraphs[].qas[]", _FIX)
    a, b, answers = map(list, zip(*rows, strict=True))
    y = [(each[0][1], each[0][1] + len(each[0][0])) if each else (-1, -1) for each in answers]
    accepted = [[text for text, _ in each] for each in answers]
    return Split(a, b, np.array(y, np.int64), np.arange(len(a)), accepted)
