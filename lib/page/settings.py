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
    for each in [spec, *sorted(ancestry([spec]), key=lambda each: each.name)]:
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
    same = by_row.nunique(dropna=False) == 1
    shared = {}
    for step, name in by_row.columns[same]:
        shared.setdefault(step, []).append(f"{name} {by_row[step, name].iloc[0]}")
    metrics = {name for run in frame["run"].dropna() for name in run.metrics}
    labels = [name for name in frame if name not in HIDDEN and name not in metrics]
    table = frame[labels].astype(object).where(frame[labels].notna(), "")
    table.insert(0, "run", [spec.step for spec in frame["spec"]])
    for step, name in by_row.columns[~same]:
        table[f"{step} {name}"] = by_row[step, name].fillna("")
    seeds = frame["spec"].map(lambda spec: "once" if spec.seed is None else str(spec.seed))
    there = frame["run"].notna()
    seen = {"seeds there": seeds.where(there, ""), "missing": seeds.where(~there, "")}
    groups = table.assign(**seen).groupby(list(table), sort=False)[list(seen)]
    lines = groups.agg(lambda part: ", ".join(filter(None, part))).reset_index()
    return [f"{step}: {', '.join(told)}" for step, told in shared.items()], lines
