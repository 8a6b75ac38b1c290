"""The body that EfficientBERT's Figures 7 and 8 share: networks beside their teacher.

It is free of torch.
"""

from itertools import product

import numpy as np
import pandas as pd

from lib.measure import compare
from lib.papers import efficientbert


def rows(profile, tasks, seeds, networks):
    """Return the rows of either figure: one has what all networks do on a task."""
    return [
        {"task": task, "seed": seed, "spec": efficientbert.mapped(profile, task, networks).at(seed)}
        for task, seed in product(
            efficientbert.tasks(profile, tasks)[:1], seeds or efficientbert.SEEDS[profile][:1]
        )
    ]


def found(runs, kind):
    """Return {source: [(row, arrays, lengths [4])]} of the runs that are there.

    kind: attention or output. arrays: {"teacher" or a network: [4, ...]} of the kept sentences.
    """
    there, start = {}, f"{kind}.model:"
    for source, frame, _ in runs.frames:
        for row in compare.there(frame).to_dict("records"):
            kept = row["run"].arrays("maps")
            keys = {key.removeprefix(start): key for key in sorted(kept) if key.startswith(start)}
            keys = {"teacher": f"{kind}.reference"} | keys
            arrays = {name: kept[key] for name, key in keys.items()}
            there.setdefault(source, []).append((row, arrays, kept["lengths"].astype(int)))
    return there


def compared(page, there, apart, label, titles):
    """Show how far each network is from its teacher: a table and a picture.

    there: as `found`. apart: {source: {network: distances of its parts}}. label: of a distance, on
    the axis. titles: {metric of a run, over many sentences: its column in the table}.
    """
    from lib.page import plot  # grids are read without it

    table = {}
    for source, parts in apart.items():
        for name, (key, title) in product(parts, titles.items()):
            mean = np.mean([row[f"model:{name}.{key}"] for row, *_ in there[source]])
            table.setdefault(name, {})[source, title] = f"{mean:.3f}"
    page.table(table, "From the teacher, means over many sentences", "similarity", "model")
    figure, axes = plot.panels(apart, 6, 2.9)
    for axis, (source, parts) in zip(axes, apart.items(), strict=False):
        means = {name: np.mean(values) for name, values in parts.items()}
        told = ", ".join(f"{mean:.3f}" for mean in means.values())
        nearest = f"nearest (seeds: {len(there[source])}): {min(means, key=means.get)}"
        axis.set_title(f"{source}: means {told}\n{nearest}")
        for y, (name, values) in enumerate(parts.items()):
            axis.plot(values, [y] * len(values), "o", color=plot.BLUE, alpha=0.55)
            axis.plot(means[name], y, "|", color=plot.INK, markersize=20, markeredgewidth=2)
        axis.set(xlabel=label, xlim=(0, None), ylim=(len(means) - 0.5, -0.5))
        axis.set_yticks(range(len(means)), [name.replace(" (", "\n(") for name in means])
    lines = [
        {"source": source, "model": name, "distance": value}
        for source, parts in apart.items()
        for name, values in parts.items()
        for value in values
    ]
    page.figure(figure, pd.DataFrame(lines, columns=["source", "model", "distance"]), "similarity")
