"""What was tried before the settings of mini were fixed, judged on training rows that no trial learned from, at a seed that no
claim has. Free of torch."""

import pandas as pd

from lib import data, published
from lib.measure import compare
from lib.options import Mix
from lib.papers import bermo, ghostbert, grids, mini, nas
from lib.spec import Spec

# Training rows of a trial, rows for importance, and further training rows, at most, that it is judged on.
ROWS = {
    "SST-2": (4000, 300, 1000),
    "CoLA": (5000, 300, 1000),
    "MRPC": (2868, 300, 500),
    "STS-B": (4000, 300, 1000),
    "WordContent": (1100, 0, 300),
}

# The second task's rule, written down before its trials: among CANDIDATES those whose teacher comes FLOOR of the way from the
# majority class to what GhostBERT prints for BERT-base; of these the one whose training rows have the fewest tokens.
CANDIDATES, FLOOR = ("CoLA", "MRPC", "STS-B"), 0.6

NOTES = (
    "The choices were made on these trials with the code of before; here they stand as made again with the code of the records. "
    "No setting was changed after that.",
    "Layer mix: read literally it needs steps, as one unlucky draw of its weights cannot be undone in few. Un-pruned models "
    "have 5 epochs in batches of 16; the rate of the mix stays as printed.",
    "Movement pruning: nothing was tuned to keep BERT from diverging, as claim B2 is about that.",
    "EfficientBERT, the retraining of NAS pruning and the penalties of L0 and soft movement keep the settings that they had: "
    "others were not tried.",
)


def told(task):
    """How the rows of a trial are described: the place of unseen rows is taken by training rows behind those that it uses."""
    rows, held_out, judged = ROWS[task]
    return {"rows": rows, "held_out": held_out, "unseen": judged, "beside": rows + held_out}


def on(spec, described):
    """The Spec and all its inputs on other rows."""
    args = spec.args | ({"data": described} if "data" in spec.args else {})
    return Spec(
        spec.step,
        args,
        {name: on(each, described) for name, each in spec.inputs.items()},
        spec.seed,
    )


def tuned(spec, **train):
    """The Spec with other fields of its Train."""
    return Spec(spec.step, spec.args | {"train": spec.args["train"] | train}, spec.inputs)


def grid():
    """One row for each trial: question, setting, task, whether the protocol has this setting, seed and Spec."""
    student = ghostbert.student("mini", mini.FIRST, 3, ghostbert.ghost("mini"))
    faster = Spec(
        "finetune",
        student.args,
        student.inputs | {"start": tuned(student.inputs["start"], lr=5e-4)},
    )
    plain, mixed = (bermo.dense("mini", "WordContent", model) for model in bermo.MODELS)
    eager = Spec(
        "fineprune",
        mixed.args | {"mix": Mix("layers", "xavier_uniform", 5e-2, dropout=0.1)},
        mixed.inputs,
    )
    moved = {model: bermo.pruned("mini", mini.FIRST, model) for model in bermo.MODELS}
    trials = {
        "second task": {
            f"teacher of {task}": (task, grids.teacher("mini", task)) for task in CANDIDATES
        },
        "teacher": {"1e-4, 3 epochs": (mini.FIRST, grids.teacher("mini", mini.FIRST))},
        "GhostBERT at 3/12": {
            "distilled at 2e-4, tuned at 5e-5": (mini.FIRST, student),
            "distilled at 5e-4, tuned at 5e-5": (mini.FIRST, faster),
            "distilled at 2e-4, tuned at 1e-4": (mini.FIRST, tuned(student, lr=1e-4)),
        },
        "NAS pruning": {"30 % of the FLOPs": (mini.FIRST, nas.pruned("mini", mini.FIRST))},
        "layer mix": {
            f"{name}, {about}": ("WordContent", make(spec))
            for about, make in (
                ("5 epochs in batches of 16", lambda spec: spec),
                ("3 epochs in batches of 32", lambda spec: tuned(spec, epochs=3, batch=32)),
            )
            for name, spec in (("BERT", plain), ("mix at 1e-2", mixed), ("mix at 5e-2", eager))
        },
        "movement pruning": {
            "BERT, 1e-4": (mini.FIRST, moved["BERT"]),
            "BERT, 5e-5": (mini.FIRST, tuned(moved["BERT"], lr=5e-5)),
            "BERMo, 1e-4": (mini.FIRST, moved["BERMo"]),
        },
    }
    own = {
        student,
        plain,
        mixed,
        *moved.values(),
        *(grids.teacher("mini", task) for task in mini.BOTH),
        nas.pruned("mini", mini.FIRST),
    }
    return [
        {
            "question": question,
            "setting": setting,
            "task": task,
            "taken": spec in own,
            "seed": mini.PILOT,
            "spec": on(spec, data.describe(grids.source("mini", task), task, **told(task))).at(
                mini.PILOT
            ),
        }
        for question, rows in trials.items()
        for setting, (task, spec) in rows.items()
    ]


def table(frame):
    """A collected grid for the page: rows judged on, metric, score in points, core seconds of the last run of each trial."""
    lines = {}
    for row in frame.to_dict("records"):
        there, [column] = row["run"], grids.metrics("mini")[row["task"]]
        score = there and there.metrics[f"unseen.{column.metric}"]
        judged = row["spec"].args["data"]["unseen"]["rows"]
        lines[row["question"], row["setting"]] = {
            "task": row["task"],
            "training rows": ROWS[row["task"]][0],
            "rows judged on": judged,
            "metric": column.metric,
            "score": compare.spread([100 * score]) if there else "–",
            "core seconds": f"{there.cost:.0f}" if there else "–",
            "": "taken" * row["taken"],
        }
    return pd.DataFrame(lines).T.rename_axis(["question", "setting"])


def rule(frame):
    """The rule of the second task, line by line: how far each teacher comes, and the tokens of its rows."""
    printed, lines = published.table("ghostbert", "table1").iloc[0], []
    for row in frame[frame["question"] == "second task"].to_dict("records"):
        if row["run"] is None:
            continue
        metrics, described = row["run"].metrics, row["spec"].args["data"]
        [column], labels = grids.metrics("mini")[row["task"]], data.judging(described)["labels"]
        least = (
            100 * pd.Series(labels).value_counts(normalize=True).max()
            if column.metric == "accuracy"
            else 0.0
        )
        share = (100 * metrics[f"unseen.{column.metric}"] - least) / (printed[row["task"]] - least)
        lines.append(
            f"{row['task']}: {share:.2f} of the way from {least:.1f} to the printed {printed[row['task']]:.1f} "
            f"({'at least' if share >= FLOOR else 'less than'} {FLOOR}), "
            f"{described['rows'] * metrics['mean_tokens'] / 1000:.0f} thousand tokens in an epoch."
        )
    return lines
