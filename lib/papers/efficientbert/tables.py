"""This module makes the parts that EfficientBERT's Figures 7 and 8 share: networks
beside their teacher.

It is free of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from lib.core.rows import Row
from lib.core.types import Arrays
from lib.papers.efficientbert import recipes as efficientbert
from lib.stats import compare
from lib.stats.paired import SEEDS

if TYPE_CHECKING:
    import pandas as pd

    from lib.report.artefact import Page
    from lib.report.tables import Runs


# Least number of distances of a network that get a figure; the table has their mean.
MANY = 8


def make_rows(
    profile: str, tasks: Sequence[str], seeds: Sequence[int], networks: Sequence[str]
) -> list[Row]:
    """Return the rows of Figure 7 or 8: one for each task and seed.

    The run of a row has the maps of all networks."""
    return [
        Row(
            efficientbert.maps_spec(profile, task, networks).with_seed(seed),
            task=task,
            seed=seed,
        )
        for task, seed in product(
            efficientbert.tasks(profile, tasks)[:1],
            seeds or efficientbert.SEEDS[profile][:1],
        )
    ]


def load_maps(
    runs: Runs, map_kind: str
) -> dict[str, list[tuple[Mapping[str, Any], Arrays, np.ndarray]]]:
    """Return {source: [(row, arrays, lengths [4])]} of the finished runs.

    map_kind: attention or output. arrays: {"teacher" or the name of a network: [4,
    ...]} for four sentences."""
    maps, start = {}, f"{map_kind}.model:"
    for source, frame, _ in runs.frames_by_source:
        for row in compare.select_rows_with_runs(frame).to_dict("records"):
            run_arrays = row["run"].read_arrays("maps")
            keys = {
                key.removeprefix(start): key
                for key in sorted(run_arrays)
                if key.startswith(start)
            }
            keys = {"teacher": f"{map_kind}.reference"} | keys
            arrays = {name: run_arrays[key] for name, key in keys.items()}
            maps.setdefault(source, []).append(
                (row, arrays, run_arrays["lengths"].astype(int))
            )
    return maps


def average_metric(made: Sequence[tuple[Any, ...]], name: str, metric: str) -> float:
    """Return the mean of a network's metric over the runs of a source of `load_maps`."""
    return float(np.mean([row[f"model:{name}.{metric}"] for row, *_ in made]))


def describe_metric(
    maps: Mapping[str, list[tuple[Mapping[str, Any], Arrays, np.ndarray]]],
    metric: str,
    metric_title: str,
) -> list[str]:
    """Return a sentence for each source: a metric of its networks over many sentences,
    and how many seeds it rests on."""
    lines = []
    for source, made in maps.items():
        texts = [
            f"{name} {average_metric(made, name, metric):.3f}"
            for name in list(made[0][1])[1:]
        ]
        seeds = f"{len(made)} seed{'s' * (len(made) > 1)}"
        seeds += ", which shows no order" * (len(made) < SEEDS)
        numbers = f"{', '.join(texts)} over many sentences"
        lines.append(f"{metric_title} ({source}): {numbers}; {seeds}.")
    return lines


def show_distances(
    page: Page,
    maps: Mapping[str, list[tuple[Mapping[str, Any], Arrays, np.ndarray]]],
    measure_distances: Callable[[Arrays, np.ndarray, str], Iterable[float]],
    distance_name: str,
    metric_titles: Mapping[str, str],
) -> pd.DataFrame:
    """Show how far each network is from its teacher, in a table and a figure.

    Returns the distances, with the columns source, model and distance.

    maps: what `load_maps` returned. measure_distances: a function from (arrays,
    lengths, network) to the distances of the network's parts, such as heads.
    distance_name: the name of the distance on the axis. metric_titles: {metric of a
    run, over many sentences: title of its column in the table}."""
    import pandas as pd  # Grids do not load pandas.
    import seaborn as sns

    from lib.report import plot

    lines, table = [], {}
    for source, made in maps.items():
        for name in list(made[0][1])[1:]:
            parts = [
                one
                for _, arrays, n in made
                for one in measure_distances(arrays, n, name)
            ]
            lines += [
                {"source": source, "model": name, "distance": part} for part in parts
            ]
            for key, title in metric_titles.items():
                mean = average_metric(made, name, key)
                table.setdefault(name, {})[source, title] = f"{mean:.3f}"
    page.table(
        table, "From the teacher, means over many sentences", "similarity", "model"
    )
    data = pd.DataFrame(lines, columns=["source", "model", "distance"])
    if data.groupby(["source", "model"]).size().max() < MANY:
        return data
    figure, axes = plot.make_panels(maps, 7, 2.9)
    parts: Any = data.groupby("source", sort=False)
    for axis, (source, part) in zip(axes, parts, strict=False):
        means = part.groupby("model", sort=False)["distance"].mean()
        sns.stripplot(part, x="distance", y="model", ax=axis, alpha=0.55, jitter=False)
        axis.plot(means, means.index, "|", color=plot.INK, ms=20, mew=2)
        mark: dict[str, Any] = {"color": plot.INK, "mew": 2, "ls": "none"}
        axis.plot([], [], "|", ms=10, label="mean of the heads", **mark)
        axis.plot(
            [],
            [],
            ".",
            ms=10,
            color=axis.collections[0].get_facecolor(),
            label="a head",
        )
        heads = part.groupby("model")["distance"].agg(np.ptp)
        seeds = f"{len(maps[source])} seed{'s' * (len(maps[source]) > 1)}"
        axis.set_title(
            f"Means of the networks lie {np.ptp(means):.2f} apart, heads of one network up "
            f"to {heads.max():.2f}\n({source}, four sentences, {seeds})"
        )
        axis.set(
            xlabel=distance_name,
            xlim=(0, None),
            ylabel="",
            ylim=(len(means) - 0.5, -0.5),
        )
    plot.draw_legend(figure)
    page.figure(figure, data, "similarity")
    return data
