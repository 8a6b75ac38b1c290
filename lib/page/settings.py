"""What the runs of a grid share and what varies between them. Free of torch."""

import pandas as pd

from lib.runs.spec import ancestry, plain

HIDDEN = ("spec", "seed", "run", "state", "error")  # columns of a collected frame that are no label


def flat(value, name=""):
    """{dotted name: value} of nested dicts and lists."""
    if not isinstance(value, dict | list):
        return {name: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    parts = (flat(v, f"{name}.{k}" if name else str(k)) for k, v in items)
    return {key: each for part in parts for key, each in part.items()}


def trained(spec):
    """{(step, setting): values} of the trainings that a run rests on, its own among them."""
    found = {}
    for each in [spec, *ancestry([spec])]:
        for name, value in flat(plain(each.args.get("train") or {})).items():
            values = found.setdefault((each.step, name), [])
            values += [str(value)] if str(value) not in values else []
    return {key: " or ".join(values) for key, values in found.items()}


def compared(frame):
    """(lines on what all rows share, DataFrame of what varies) of a collected frame.

    A line for each step has its training settings, where they are the same in all rows. The table
    has the labels of the rows, the settings that differ, and the seeds whose runs are there.
    """
    if not len(frame):
        return [], pd.DataFrame()
    by_row = pd.DataFrame([trained(spec) for spec in frame["spec"]], index=frame.index)
    same = [key for key in by_row if by_row[key].nunique(dropna=False) == 1]
    shared = {}
    for step, name in same:
        shared.setdefault(step, []).append(f"{name} {by_row[step, name].iloc[0]}")
    metrics = {name for run in frame["run"] if run is not None for name in run.metrics}
    labels = [name for name in frame if name not in HIDDEN and name not in metrics]
    table = frame[labels].astype(object).where(frame[labels].notna(), "")
    for step, name in [key for key in by_row if key not in same]:
        table[f"{step} {name}"] = by_row[step, name].fillna("")
    seeds = frame["spec"].map(lambda spec: "once" if spec.seed is None else str(spec.seed))
    there = frame["run"].notna()
    table["seeds there"], table["missing"] = seeds.where(there, ""), seeds.where(~there, "")
    groups = table.groupby(list(table)[:-2], sort=False) if len(list(table)) > 2 else [((), table)]
    lines = [
        dict(zip(list(table)[:-2], key, strict=True))
        | {name: ", ".join(filter(None, part[name])) for name in ("seeds there", "missing")}
        for key, part in groups
    ]
    return [f"{step}: {', '.join(told)}" for step, told in shared.items()], pd.DataFrame(lines)
