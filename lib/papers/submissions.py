"""Submissions: predictions of GLUE's test rows, whose labels the server has. Free of torch."""

import re
from itertools import product

import numpy as np

from lib import data
from lib.data import submission, unlabelled
from lib.papers.profiles import profile
from lib.runs.spec import Spec


def file_rows(profile_name, file):
    """Descriptor of the rows of one file of a submission; None where they are not at hand.

    Generated tasks have test rows for AX alone. The development rows stand in for the others.
    """
    own, task = profile(profile_name).source, submission.TASK_OF[file]
    split = "test_mm" if file == "MNLI-mm" else "test"
    if own == "toy" and task != "AX":
        split = split.replace("test", "dev")
    try:
        return unlabelled.describe(own, task, split)
    except FileNotFoundError:
        return None


def prediction(model, rows):
    """Spec of a fine-tuned model's logits on these rows, cut and padded as its training rows."""
    told = {name: model.args[name] for name in ("train", "numerics", "span") if name in model.args}
    return Spec("predict", {"data": rows} | told, {"model": model})


def submitted(profile_name, task_names, seeds, make, model):
    """The grid of a submission: one row for each file whose test rows are at hand, model and seed.

    The model of MNLI predicts AX. make: f(task, model) -> Spec of a model of `model`, by its name.
    """
    learned = {
        file: unlabelled.LEARNED.get(task, task) for file, task in submission.TASK_OF.items()
    }
    there = {file: file_rows(profile_name, file) for file in learned if learned[file] in task_names}
    return [
        {"file": file, "task": submission.TASK_OF[file], "model": name, "seed": seed}
        | {"spec": prediction(make(learned[file], name), rows).at(seed)}
        for (file, rows), name, seed in product(there.items(), model, seeds)
        if rows
    ]


def most_frequent(own, task):
    """Codes [N] for the rows of a file that no model predicts: the most frequent class of the
    task's training rows. None where these are not at hand."""
    try:
        split = data.splits(own, task)
    except FileNotFoundError:
        return None
    rows = submission.TEST_ROWS[task] if own != "toy" else len(split["dev"])
    return np.full(rows, np.bincount(split["train"].y).argmax()) if "train" in split else None


def archive(rows, folder, own):
    """Write the archive of one model's predictions. Returns (its path, a line about it).

    rows: collected rows of `submitted` that have runs. own: their source. WNLI, on which none of
    the papers trains, gets its most frequent class.
    """
    logits = {row["file"]: row["run"].arrays("test")["logits"] for row in rows}
    constant = most_frequent(own, "WNLI") if "WNLI" not in logits else None
    if constant is not None:
        logits["WNLI"] = constant
    lengths = {file: len(found) for file, found in logits.items()}
    path = submission.write(
        logits, folder, partial=True, rows=lengths if own == "toy" else submission.TEST_ROWS
    )
    lacking = ", ".join(file for file in submission.TEST_ROWS if file not in logits)
    about = [", ".join(logits), f"the server wants {lacking} as well" if lacking else "complete"]
    if constant is not None:
        about.append(
            "WNLI is the most frequent class of its training rows, as most submissions send"
        )
    if own == "toy":
        about.append("of generated sentences: its format alone is real")
    return path, "; ".join(about)


def archives(rows, folder, stem, own):
    """Write an archive for each model and seed of collected rows of `submitted`, each in a folder
    of its own below `folder`. Yields the path of each and a line about it."""
    there = [row for row in rows if row["run"]]
    for model, seed in dict.fromkeys((row["model"], row["seed"]) for row in there):
        name = "-".join(re.findall("[a-z0-9]+", model.lower()))
        chosen = [row for row in there if (row["model"], row["seed"]) == (model, seed)]
        path, about = archive(chosen, folder / f"{stem}.{name}.seed{seed}", own)
        yield path, f"submission of {model}, seed {seed}: {about}"
