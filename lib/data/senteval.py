"""The ten SentEval probing tasks in their own files: `<root>/<file>.txt`, one sentence a line.

    tr <tab> label <tab> [more fields <tab>] sentence    tr, va, te: splits "train", "dev", "test"

There is no quoting. Classes are the official ones, whatever a file holds: tree_depth's documented
depth 12 is a class although the rows seen end at 11. WordContent's 1,000 words stand in its file
alone. Its classes are the numbers of the sorted words of the training rows; `labels` gives the
words.
"""

from pathlib import Path

import numpy as np

from lib.data import Split, Task, table
from lib.data.lines import malformed, needed, read_lines, short
from lib.spec import known

WORDS = 1000
TOLD = table("senteval")
FILES = {name: f"{told['file']}.txt" for name, told in TOLD.items()}
TASKS = {
    name: Task(name, False, told.get("classes", tuple(map(str, range(WORDS)))), ("accuracy",))
    for name, told in TOLD.items()
}
_SPLITS = {"tr": "train", "va": "dev", "te": "test"}


def load(task, root):
    """{"train", "dev", "test": Split}; a row's index is its number in the file, from 0.

    Raises FileNotFoundError without the file, ValueError with file and line where a row is
    malformed or a split has no rows.
    """
    path = _path(task, root)
    rows, found = list(_rows(path)), {part: [] for part in _SPLITS}
    if lacking := [part for part in _SPLITS if all(part != row[0] for row in rows)]:
        missing = f"no row begins with {lacking[0]!r}: there is no {_SPLITS[lacking[0]]} split"
        raise malformed(path, missing, "rows of tr, va and te")
    classes = labels(task, root)
    codes = {name: code for code, name in enumerate(classes)}
    few = ", ".join(classes) if len(classes) <= 20 else f"one of the {len(classes)} training words"
    for number, (part, label, text) in enumerate(rows):
        if label not in codes:
            place, fix = f"{path}:{number + 1}", "correct the label or drop the row"
            raise malformed(place, f"label {short(label)}", few, fix)
        found[part].append((text, codes[label], number))
    splits = {}
    for part, rows in found.items():
        texts, y, numbers = zip(*rows, strict=True)
        splits[_SPLITS[part]] = Split(list(texts), None, np.array(y, np.int64), np.array(numbers))
    return splits


def labels(task, root):
    """What the codes of a task stand for: its words for WordContent, else its classes."""
    if task != "WordContent":
        return TASKS[task].labels
    path = _path(task, root)
    words = sorted({label for part, label, _ in _rows(path) if part == "tr"})
    if len(words) > WORDS:
        raise malformed(path, f"{len(words)} words in the training rows", f"at most {WORDS}")
    return tuple(words)


def _path(task, root):
    known("SentEval task", task, TASKS)
    path = Path(root) / FILES[task]
    fix = f"put data/probing/{path.name} there, or use the same task of source 'treebank'"
    return needed(path, "a file of SentEval", fix)


def _rows(path):
    for number, line in enumerate(read_lines(path), 1):
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) < 3 or cells[0] not in _SPLITS or not (cells[1] and cells[-1]):
            expected = "tr, va or te, a label and a sentence between tabs"
            raise malformed(
                f"{path}:{number}", short(line), expected, "restore the line or drop it"
            )
        yield cells[0], cells[1], cells[-1]
