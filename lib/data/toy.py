"""The toy world: twins of the benchmarks' tasks and a corpus, generated from a seed. Free of torch.

`lib.data.grammar` has the language, `lib.data.toy_tasks` makes the rows, this module the splits.
The same
GENERATOR_VERSION gives the same rows everywhere: any change in output needs a new one. Twins exist
of GLUE's and SQuAD's tasks, and of the three probing tasks that toy pages show.
"""

import random
from functools import cache

import numpy as np

from lib.data import Split, toy_tasks
from lib.data.read import GLUE, SENTEVAL, SQUAD

GENERATOR_VERSION = 3
SEED = 20
PROBING = {name: SENTEVAL[name] for name in SENTEVAL if name in toy_tasks.MAKERS}
TASKS = GLUE | SQUAD | PROBING
_ROWS = {
    "MNLI": {"train": 4000, "dev": 500, "dev_mm": 500},
    "WNLI": {"train": 400, "dev": 200},
    "AX": {"test": 420},
}


def rows(task):
    """{split: number of rows} of a twin."""
    usual = {"train": 4000, "dev": 500}
    return _ROWS.get(task) or (usual | {"test": 500} if task in PROBING else usual)


def targets(task):
    """What each label of a maker becomes: a code, or a score of STS-B. SQuAD2 has a third kind of
    question."""
    if task == "STS-B":
        return [toy_tasks.GRADE * level for level in range(5)]
    return list(range(len(TASKS[task].labels) or {"SQuAD1": 2, "SQuAD2": 3}[task]))


@cache
def load(task):
    """{split name: Split} of a twin.

    Labels take turns before the rows are shuffled, so that each is as frequent as the others. No
    text of an evaluation split occurs in train.
    """
    if task == "AX":
        return {"test": _split(task, *toy_tasks.diagnostics(rows(task)["test"]))}
    seen, found = set(), {}
    for name in sorted(rows(task), key=("dev", "dev_mm", "test", "train").index):
        found[name] = _drawn(task, name, seen)
    return {name: found[name] for name in rows(task)}


def _drawn(task, name, seen):
    """A Split whose texts are not in `seen`, to which they are added."""
    rng, labels = random.Random(f"{SEED} {task} {name}"), targets(task)
    make = toy_tasks.mismatched if name == "dev_mm" else toy_tasks.MAKERS[task]
    found = {}
    while len(found) < rows(task)[name]:
        label = len(found) % len(labels)
        *texts, target = make(rng, label) + (() if TASKS[task].span else (labels[label],))
        if len(set(texts)) == len(texts) and seen.isdisjoint(texts):
            found.setdefault(tuple(texts), (rng.random(), target))
    seen.update(text for texts in found for text in texts)
    order = sorted(found, key=found.get)
    return _split(task, order, [found[texts][1] for texts in order])


def _split(task, texts, targets):
    columns = [list(column) for column in zip(*texts, strict=True)]
    b, answers = columns[1] if TASKS[task].pair else None, None
    if TASKS[task].span:
        places = zip(b, targets, strict=True)
        answers = [[text[start:end]] if end > 0 else [] for text, (start, end) in places]
    y = np.array(targets, np.int64 if TASKS[task].span or TASKS[task].labels else np.float32)
    return Split(columns[0], b, y, np.arange(len(y)), answers)


def corpus(sentences, seed):
    """About `sentences` sentences in passages of one to three, for pre-training."""
    rng, passages, count = random.Random(f"{seed} corpus"), [], 0
    while count < sentences:
        passages.append(toy_tasks.passage(rng))
        count += passages[-1].count(" .")
    return passages
