"""What runs at the paper's size would cost, counted: GPU hours, disk and memory. Free of torch.

What a run takes is counted in `lib.need`.
"""

import json

from lib import data, sweep
from lib.need import cost
from lib.page import notebook

GPU, HOURS = "an A100 of 80 GB", 10.0  # of a night
SHARES = "60 % of 19.5 TFLOP/s in float32, 40 % of 312 in bfloat16"


def told(specs):
    """GPU hours, disk and memory of runs as text.

    Weights are counted where another run needs them.
    """
    costs = [cost(spec) for spec in specs]
    needed = {parent for spec in specs for parent in spec.parents.values()}
    disk = sum(each.disk for spec, each in zip(specs, costs, strict=True) if spec in needed)
    seconds = sum(each.seconds for each in costs)
    memory = max((each.memory for each in costs), default=0)
    weights = f"{disk / 1e9:,.0f} GB of weights, {memory / 1e9:.0f} GB of memory"
    return f"{seconds / 3600:,.1f} GPU hours, {weights}"


def plan(patterns, store):
    """Lines on what the profile `paper` would cost, page by page.

    They can be told where neither data nor checkpoints are at hand, and say then what is absent.
    """
    every, night = {}, []

    def missing(path, more=()):
        grids = notebook.grids(path, {"profile": "paper", **dict(more)})
        return sweep.plan(notebook.wanted(grids), store).missing

    with data.planning() as absent:
        for path in notebook.find(patterns):
            runs = missing(path)
            every |= runs
            if runs:
                yield f"{path.stem}: {len(runs)} runs missing, {told(runs)}"
            if {"tasks", "seeds"} <= notebook.parameters(path).keys():
                night += part_of_a_night(path, missing)
    bound = f"counted, an upper bound, at the rate of {GPU}: {SHARES}"
    yield f"together {len(every)} runs missing, {told(every)}; {bound}"
    yield f"not at hand: {', '.join(sorted(absent)) or 'nothing'}"
    if night:
        needed, stem, more = max(night)
        options = " ".join(f"-y '{name}: {json.dumps(value)}'" for name, value in more)
        command = f"DEVICE=cuda papermill notebooks/{stem}.ipynb out.ipynb -p profile paper"
        yield f"one GPU and one night ({needed:.1f} h): {command} {options}"


def part_of_a_night(path, missing):
    """[(GPU hours, notebook, parameters)] of a page's smallest task at one seed.

    Empty where that takes more than a night.
    """
    for task in ("RTE", "CoLA"):
        try:
            more = (("tasks", [task]), ("seeds", [0]))
            needed = sum(cost(spec).seconds for spec in missing(path, more)) / 3600
        except ValueError:
            continue  # the page has settings for other tasks alone
        if 0 < needed <= HOURS:
            return [(needed, path.stem, more)]
    return []
