"""What was tried before the settings of mini were fixed.

A trial is judged on training rows that no trial learned from, at a seed that no claim has. Free of
torch.
"""

from dataclasses import replace
from pathlib import Path

from lib import data, files, published
from lib.measure import compare
from lib.papers import bermo, ghostbert, grids, mini, nas

NOTES, ROWS = map(files.toml(Path(__file__).with_suffix(".toml")).get, ("NOTES", "ROWS"))
# The rule of the second task, written before its trials. A task of CANDIDATES is fit when its
# teacher comes FLOOR of the way from the majority class to what GhostBERT prints for BERT-base. Of
# the fit ones that is taken whose training rows have the fewest tokens.
CANDIDATES, FLOOR = ("CoLA", "MRPC", "STS-B"), 0.6


def told(task):
    """How the rows of a trial are described. Training rows behind those that it uses take the place
    of the unseen rows."""
    rows, held_out, judged = ROWS[task]
    return {"rows": rows, "held_out": held_out, "unseen": judged, "beside": rows + held_out}


def on(spec, described):
    """The Spec and all its inputs on other rows."""
    args = spec.args | ({"data": described} if "data" in spec.args else {})
    inputs = {name: on(each, described) for name, each in spec.inputs.items()}
    return replace(spec, args=args, inputs=inputs)


def tuned(spec, **train):
    """The Spec with other fields of its Train."""
    return replace(spec, args=spec.args | {"train": spec.args["train"] | train})


def settings():
    """{question: {setting: (task, Spec, whether the protocol has it)}}."""
    student = ghostbert.student("mini", mini.FIRST, 3, ghostbert.ghost("mini"))
    distilled = tuned(student.inputs["start"], lr=5e-4)
    plain, mixed = (bermo.dense("mini", "WordContent", model) for model in bermo.MODELS)
    eager = replace(mixed, args=mixed.args | {"mix": mixed.args["mix"] | {"lr": 5e-2}})
    bert, mix = (bermo.pruned("mini", mini.FIRST, model) for model in bermo.MODELS)
    teachers = {task: grids.teacher("mini", task) for task in CANDIDATES}
    probes = {"BERT": plain, "mix at 1e-2": mixed, "mix at 5e-2": eager}
    shorter = {name: tuned(spec, epochs=3, batch=32) for name, spec in probes.items()}

    def first(spec, taken=False):
        return mini.FIRST, spec, taken

    return {
        "second task": {
            f"teacher of {task}": (task, spec, task == mini.SECOND)
            for task, spec in teachers.items()
        },
        "teacher": {"1e-4, 3 epochs": first(grids.teacher("mini", mini.FIRST), True)},
        "GhostBERT at 3/12": {
            "distilled at 2e-4, tuned at 5e-5": first(student, True),
            "distilled at 5e-4, tuned at 5e-5": first(
                replace(student, inputs=student.inputs | {"start": distilled})
            ),
            "distilled at 2e-4, tuned at 1e-4": first(tuned(student, lr=1e-4)),
        },
        "NAS pruning": {"30 % of the FLOPs": first(nas.pruned("mini", mini.FIRST), True)},
        "layer mix": {
            f"{name}, {about}": ("WordContent", spec, spec in (plain, mixed))
            for about, specs in (
                ("5 epochs in batches of 16", probes),
                ("3 epochs in batches of 32", shorter),
            )
            for name, spec in specs.items()
        },
        "movement pruning": {
            "BERT, 1e-4": first(bert, True),
            "BERT, 5e-5": first(tuned(bert, lr=5e-5)),
            "BERMo, 1e-4": first(mix, True),
        },
    }


def grid():
    """One row for each trial: question, setting, task, whether the protocol has this setting."""
    rows = []
    for question, trials in settings().items():
        for setting, (task, spec, taken) in trials.items():
            described = data.describe(grids.source("mini", task), task, **told(task))
            row = {"question": question, "setting": setting, "task": task, "taken": taken}
            spec = on(spec, described).at(mini.PILOT)
            rows.append(row | {"seed": mini.PILOT, "spec": spec})
    return rows


def judged(row):
    """(Column of its task, its score in points or None) of a collected trial."""
    [column] = grids.metrics("mini")[row["task"]]
    return column, row["run"] and 100 * row["run"].metrics[f"unseen.{column.metric}"]


def table(frame):
    """A collected grid for the page. Core seconds are those of the last run of each trial."""
    import pandas as pd

    lines = {}
    for row in frame.to_dict("records"):
        run, (column, score) = row["run"], judged(row)
        lines[row["question"], row["setting"]] = {
            "task": row["task"],
            "training rows": ROWS[row["task"]][0],
            "rows judged on": row["spec"].args["data"]["unseen"]["rows"],
            "metric": column.metric,
            "score": compare.spread([score]),
            "core seconds": f"{run.cost:.0f}" if run else "–",
            "": "taken" * row["taken"],
        }
    return pd.DataFrame(lines).T.rename_axis(["question", "setting"])


def rule(frame):
    """Lines for the page: how far the teacher of each candidate comes, and tokens of its rows."""
    import pandas as pd

    printed, lines = published.table("ghostbert", "table1").iloc[0], []
    for row in frame[frame["question"] == "second task"].to_dict("records"):
        (column, score), task, described = judged(row), row["task"], row["spec"].args["data"]
        if score is None:
            continue
        labels, least = pd.Series(data.judging(described)["labels"]), 0.0
        if column.metric == "accuracy":
            least = 100 * labels.value_counts(normalize=True).max()
        share = (score - least) / (printed[task] - least)
        tokens = described["rows"] * row["run"].metrics["mean_tokens"] / 1000
        lines.append(
            f"{task}: {share:.2f} of the way from {least:.1f} to the printed {printed[task]:.1f} "
            f"({'at least' if share >= FLOOR else 'less than'} {FLOOR}), {tokens:.0f} thousand "
            "tokens in an epoch."
        )
    return lines
