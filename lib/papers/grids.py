"""What the grids of several papers share: the data of a profile, its fine-tuned teachers, and how rows are crossed. Free
of torch."""

import re
from itertools import product

import numpy as np

from lib import data
from lib.data import glue, squad, unlabelled
from lib.measure.compare import Column
from lib.options import Augment, Targets, Train
from lib.papers.profiles import backbone, profile
from lib.spec import Spec, known

ROWS = {
    "toy": {"CoLA": 1500, "RTE": 1000, "SQuAD1": 600, "SQuAD2": 600},
    "mini": {"SST-2": 4000, "STS-B": 4000},
    "paper": {},
}  # training rows; all where a task is not named
HELD_OUT = {
    "toy": 300,
    "mini": 300,
    "paper": 0,
}  # further training rows, for importance and selection
# Labelled rows that verdicts count beside the development set: the test rows of STS-B and of the treebank's tasks, and of
# SST-2 training rows that share no text with the first 9,000, of which every run takes its rows.
UNSEEN = {
    "toy": {},
    "paper": {},
    "mini": {"SST-2": {"unseen": 8000, "beside": 9000}, "STS-B": {"unseen": 1379}}
    | {
        task: {"unseen": 2000}
        for task in ("Tense", "SubjNumber", "ObjNumber", "OddManOut", "CoordinationInversion")
    },
}

# What the trainings of a scale have in common, as fields of Train.
TRAINING = {
    "toy": dict(batch=32, max_length=64, clip=1.0, dropout=0.1, byte_dropout=True),
    "mini": dict(batch=32, max_length=128, clip=1.0, dropout=0.1, byte_dropout=True),
    "paper": dict(batch=32, max_length=128, pad_to=128, clip=1.0, dropout=0.1),
}


def training(**fields):
    """{profile: Train} with what the trainings of each scale have in common, and these fields.

    A field that differs between the scales is a tuple: its values at toy, mini and paper.

    >>> training(epochs=(2, 3, 3), lr=(1e-3, 2e-4, 2e-5))["paper"].epochs
    3
    """
    return {
        name: Train(**own | {f: v[n] if isinstance(v, tuple) else v for f, v in fields.items()})
        for n, (name, own) in enumerate(TRAINING.items())
    }


TEACHER = training(
    epochs=(4, 3, 3), lr=(5e-4, 1e-4, 2e-5), warmup=(0.1, 0.1, 0.0), select=("last", "last", "best")
)
LABELS = Targets("hard")


def tasks(profile_name, wanted=(), own=None):
    """The tasks of a page: those that are wanted, or a profile's own of {profile: tasks}.

    Raises ValueError, naming the nearest, for a profile that `own` lacks and for an unknown task.
    """
    known("profile", profile_name, own)
    for name in wanted:
        data.task(source(profile_name, name), name)
    return tuple(wanted) or tuple(own[profile_name])


def seeds(profile_name, wanted=(), own=None):
    """The seeds of a page: those that are wanted, or a profile's own of {profile: seeds}.

    Raises ValueError, naming the nearest, for a profile that `own` lacks.
    """
    known("profile", profile_name, own)
    return tuple(wanted) or tuple(own[profile_name])


def source(profile_name, task):
    """Where a task's rows come from: generated, GLUE, SQuAD, or for probing SentEval; the treebank stands in at mini."""
    own = profile(profile_name).source
    if own == "toy" or task in glue.TASKS:
        return own
    return "squad" if task in squad.TASKS else "treebank" if profile_name == "mini" else "senteval"


def dataset(profile_name, task):
    """Descriptor of a task's rows at a profile."""
    return described(profile_name, task, ROWS[profile_name].get(task), HELD_OUT[profile_name])


def described(profile_name, task, rows, held_out=0):
    """Descriptor of so many rows of a task, with its unseen rows at a profile: the same ones however many the others are."""
    return data.describe(
        source(profile_name, task), task, rows, held_out, **UNSEEN[profile_name].get(task, {})
    )


def teacher(profile_name, task, family="bert", train=None, span=None):
    """The fine-tuned full model: teacher, initialisation of many students, and the plain row of most tables. train: a
    paper's own settings; span: how a task such as SQuAD is cut."""
    return Spec(
        "finetune",
        {
            "data": dataset(profile_name, task),
            "train": train or TEACHER[profile_name],
            "span": span,
            "targets": LABELS,
            "numerics": profile(profile_name).numerics,
        },
        {"start": backbone(profile_name, family)},
    )


def crossed(seeds, make, **axes):
    """One row for each combination of the axes' values and each seed: {axis: value, ..., "seed", "spec"}. make: f(**cell)
    -> Spec."""
    cells = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    return [
        cell | {"seed": seed, "spec": spec.at(seed)}
        for cell in cells
        for spec in [make(**cell)]
        for seed in seeds
    ]


# Variants that TinyBERT's code makes of each sentence at most.
TRIES = {task: 30 for task in ("CoLA", "MRPC", "STS-B", "RTE")}
TRIES |= {"SST-2": 20, "QNLI": 20, "MNLI": 10, "QQP": 10}


def augmentation(profile_name, task, rows=None):
    """Spec of training rows with variants beside them, made once for all seeds.

    A BERT replaces words of each sentence as TinyBERT does it. The small scales have one variant.
    rows: descriptor of rows other than the profile's own.
    """
    tries = TRIES.get(task, 30) if profile_name == "paper" else 1
    options = Augment(tries=tries, p=0.4, candidates=15, neighbours="embeddings")
    args = {
        "data": rows or dataset(profile_name, task),
        "augment": options,
        "numerics": profile(profile_name).numerics,
    }
    return Spec("augment", args, {"language_model": backbone(profile_name)}, seed=0)


# Submissions: the test sets, whose labels the GLUE server has.
def file_rows(profile_name, file):
    """Descriptor of the rows that a file of a submission is of; None where they are not at hand. The generated twins
    have test rows for AX alone: their development rows stand in."""
    own, task, split = (
        profile(profile_name).source,
        glue.TASK_OF[file],
        "test_mm" if file == "MNLI-mm" else "test",
    )
    try:
        if own == "toy" and task != "AX":
            split = split.replace("test", "dev")
        return unlabelled.describe(own, task, split)
    except FileNotFoundError:
        return None


def prediction(model, rows):
    """Spec of a fine-tuned model's logits on these rows, cut and padded as those that it learned from."""
    told = {name: model.args[name] for name in ("train", "numerics", "span") if name in model.args}
    return Spec("predict", {"data": rows} | told, {"model": model})


def submitted(profile_name, task_names, seeds, make, **axes):
    """One row for each file of a submission whose rows are at hand, combination of the axes' values and seed: {"file",
    "task", axis: value, ..., "seed", "spec"}; AX by the model of MNLI. make: f(task, **cell) -> Spec of the model."""
    learned = {file: unlabelled.LEARNED.get(task, task) for file, task in glue.TASK_OF.items()}
    there = {
        file: rows
        for file, task in learned.items()
        if task in task_names and (rows := file_rows(profile_name, file))
    }
    cells = crossed(
        seeds,
        lambda file, **cell: prediction(make(learned[file], **cell), there[file]),
        file=there,
        **axes,
    )
    return [{"file": cell["file"], "task": glue.TASK_OF[cell["file"]]} | cell for cell in cells]


def most_frequent(own, task):
    """Codes for the rows of a file that no model predicts: the most frequent class of the task's training rows, [N].
    None where those are not at hand."""
    try:
        split = data.splits(own, task)
    except FileNotFoundError:
        return None
    rows = glue.TEST_ROWS[task] if own != "toy" else len(split["dev"])
    return np.full(rows, np.bincount(split["train"].y).argmax()) if "train" in split else None


def archive(rows, folder, own):
    """Write the archive of one model's predictions, collected rows of `submitted` that have runs, of a source `own`; with
    the most frequent class for WNLI, on which none of the papers trains. Returns (its path, a line about it)."""
    logits = {row["file"]: row["run"].arrays("test")["logits"] for row in rows}
    if (constant := most_frequent(own, "WNLI") if "WNLI" not in logits else None) is not None:
        logits["WNLI"] = constant
    lengths = (
        {file: len(found) for file, found in logits.items()} if own == "toy" else glue.TEST_ROWS
    )
    path = glue.write_submission(logits, folder, partial=True, rows=lengths)
    lacking = [file for file in glue.TEST_ROWS if file not in logits]
    return path, ", ".join(logits) + (
        f"; the server wants {', '.join(lacking)} as well" if lacking else "; complete"
    ) + (
        "; WNLI is the most frequent class of its training rows, as most submissions send"
        if constant is not None
        else ""
    ) + ("; of generated sentences: its format alone is real" if own == "toy" else "")


def archives(rows, folder, stem, own):
    """Write an archive for each model and seed among collected rows of `submitted`, each in a folder of its own. Yields its
    path and a line about it."""
    there = [row for row in rows if row["run"]]
    for model, seed in dict.fromkeys((row["model"], row["seed"]) for row in there):
        name = "-".join(re.findall("[a-z0-9]+", model.lower()))
        path, about = archive(
            [row for row in there if (row["model"], row["seed"]) == (model, seed)],
            folder / f"{stem}.{name}.seed{seed}",
            own,
        )
        yield path, f"submission of {model}, seed {seed}: {about}"


def metrics(profile_name, printed=()):
    """{task: columns}: those that a table prints (lib.measure.compare.Column), of other tasks the first metric."""
    own = profile(profile_name).source
    tasks = (
        data.source(own).TASKS
        if own == "toy"
        else glue.TASKS | squad.TASKS | data.source("treebank").TASKS
    )
    found = {name: (Column(name, name, task.metrics[0]),) for name, task in tasks.items()}
    return found | {
        task: tuple(column for column in printed if column.task == task)
        for task in {c.task for c in printed}
    }
