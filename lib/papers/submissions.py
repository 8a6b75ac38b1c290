"""Archives for the GLUE server: predictions of test rows, whose labels it has. Free of torch."""

import re
import zipfile
from itertools import product

import numpy as np

from lib.data import read, unlabelled
from lib.papers.grids import profile
from lib.runs import paths
from lib.runs.spec import Spec

TEST_ROWS, TASK_OF = {}, {}  # official rows of each file; the task whose codes a file holds
for _task in read.GLUE:
    TEST_ROWS |= read.LAYOUTS[_task]["server"]
    TASK_OF |= dict.fromkeys(read.LAYOUTS[_task]["server"], _task)
NAMED = ("MNLI", "QNLI", "RTE", "AX")  # the server takes names of classes here, digits elsewhere


def file_rows(profile_name, file):
    """Descriptor of the rows of one file of a submission; None where they are not at hand.

    Generated tasks have test rows for AX alone. The development rows stand in for the others.
    """
    own, task = profile(profile_name).source, TASK_OF[file]
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
    learned = {file: unlabelled.LEARNED.get(task, task) for file, task in TASK_OF.items()}
    there = {file: file_rows(profile_name, file) for file in learned if learned[file] in task_names}
    return [
        {"file": file, "task": TASK_OF[file], "model": name, "seed": seed}
        | {"spec": prediction(make(learned[file], name), rows).at(seed)}
        for (file, rows), name, seed in product(there.items(), model, seeds)
        if rows
    ]


def archives(rows, folder, stem, source):
    """Write `<stem>.<model>.seed<n>.zip` for each model and seed of collected rows of `submitted`.

    Yields the path of each and a line about it. source: of the rows.
    """
    logits = {}
    for row in rows:
        if row["run"]:
            of_model = logits.setdefault((row["model"], row["seed"]), {})
            of_model[row["file"]] = row["run"].arrays("test")["logits"]
    for (model, seed), found in logits.items():
        name = "-".join(re.findall("[a-z0-9]+", model.lower()))
        path = folder / f"{stem}.{name}.seed{seed}.zip"
        yield path, f"submission of {model}, seed {seed}: {archive(found, path, source)}"


def archive(logits, path, source):
    """Write a zip with `<file>.tsv` of each file, and return a line about it.

    logits: {file: [N, C]}, in the order of the test files. WNLI, on which none of the papers
    trains, gets class 0, the more frequent one of its training rows. Raises ValueError, before
    anything is written, for logits that are not finite and for another number of rows than the
    server's.
    """
    logits = {"WNLI": np.tile([1.0, 0.0], (TEST_ROWS["WNLI"], 1))} | logits
    for file, said in logits.items():
        wanted = len(said) if source == "toy" else TEST_ROWS[file]
        if len(said) != wanted or not np.isfinite(said).all():
            raise ValueError(f"{file}: {len(said)} predictions; expected {wanted}, all finite")
    with paths.whole(path) as place, zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in (name for name in TEST_ROWS if name in logits):
            lines = (f"{i}\t{cell}\n" for i, cell in enumerate(cells(file, logits[file])))
            packed.writestr(f"{file}.tsv", "index\tprediction\n" + "".join(lines))
    lacking = ", ".join(file for file in TEST_ROWS if file not in logits)
    about = f"the server wants {lacking} as well" if lacking else "complete"
    return about + "; of generated sentences: its format alone is real" * (source == "toy")


def cells(file, logits):
    """The column of one file: names or codes of classes, scores from 0 to 5."""
    task = read.TASKS[TASK_OF[file]]
    if not task.labels:  # + 0.0: no "-0.000"
        return [f"{value:.3f}" for value in np.clip(np.ravel(logits), 0, 5) + 0.0]
    codes = np.argmax(logits, 1)
    return [task.labels[code] for code in codes] if task.name in NAMED else codes
