"""This module has what EfficientBERT's Figures 7 and 8 share: the grid of runs, and a
table and a figure of how far students are from their teacher."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from lib.core.rows import Row
from lib.core.types import Arrays, ProfileName, TaskName
from lib.papers.efficientbert import recipes as efficientbert
from lib.papers.efficientbert.options import NetworkName
from lib.stats import compare
from lib.stats.paired import SEEDS

if TYPE_CHECKING:
    import pandas as pd

    from lib.report.artefact import Page
    from lib.report.tables import Runs


# A page has a figure of the distances between student and teacher, such as one distance
# for each attention head, only if a network has at least this number of distances. With
# fewer, a table of the means is enough.
MANY = 8
CkaKlOrKlMeanMap: TypeAlias = str  # A metric of the step `maps`.
SourceHeading: TypeAlias = str  # Heading of a set of runs, such as "recorded, mini".


class LastLayerOutputs(NamedTuple):
    run_row: Mapping[Any, Any]  # Metrics and labels of a run, by name.
    # {"teacher" or the name of a network: its outputs for 4 sentences, [4, ...]}.
    arrays_by_network: Arrays
    token_counts: np.ndarray  # Number of tokens of each of the sentences, [4].


def list_rows_of_attention_map_runs(
    profile: ProfileName,
    tasks: Sequence[TaskName],
    seeds: Sequence[int],
    further_network_names: Sequence[NetworkName],
) -> list[Row]:
    """Return the Rows of the runs behind EfficientBERT's Figures 7 and 8, one a seed.

    A Row is the description of a run on one task, with the labels task and seed. Each
    run saves the last layers' attention maps (Figure 7) and outputs (Figure 8) of a
    teacher and its students.

    profile: size of the experiment, "toy", "mini" or "paper".
    tasks: chosen tasks, of which only the first is taken; empty takes the profile's.
    seeds: chosen seeds; empty takes the profile's first one.
    further_network_names: names of networks in EfficientBERT's tables, in addition to
    those of the figures."""
    return [
        Row(
            efficientbert.attention_maps_spec(
                profile, task, further_network_names
            ).with_seed(seed),
            task=task,
            seed=seed,
        )
        for task, seed in product(
            efficientbert.tasks(profile, tasks)[:1],
            seeds or efficientbert.SEEDS[profile][:1],
        )
    ]


def load_last_layer_outputs_by_source(
    runs: Runs, layer_part: Literal["attention", "output"]
) -> dict[SourceHeading, list[LastLayerOutputs]]:
    """Return the saved attention maps or outputs of all finished runs, by source.

    A source is the heading of a set of runs, such as "recorded, mini" (results kept in
    git, at the experiment size mini). A LastLayerOutputs has the metrics and labels
    (task and seed) of one run, the arrays of teacher and students on four sentences,
    {"teacher" or network: [4, A, T, T] or [4, T, H]}, and the number of tokens of each
    sentence [4].

    runs: the results of one notebook, with a DataFrame of runs for each source.
    layer_part: "attention" (probabilities) or "output", both of the last layer."""
    maps = {}
    start = f"{layer_part}.model:"
    for source, frame, _ in runs.result_frames_with_source:
        for row in compare.select_rows_with_runs(frame).to_dict("records"):
            run_arrays = row["run"].read_arrays("maps")
            arrays = {"teacher": run_arrays[f"{layer_part}.reference"]}
            for key in sorted(run_arrays):
                if key.startswith(start):
                    arrays[key.removeprefix(start)] = run_arrays[key]
            maps.setdefault(source, []).append(
                LastLayerOutputs(row, arrays, run_arrays["lengths"].astype(int))
            )
    return maps


def average_metric_over_runs(
    last_layer_outputs: Sequence[LastLayerOutputs],
    network_name: NetworkName,
    metric: CkaKlOrKlMeanMap,
) -> float:
    """Return how close a student's last layer is to its teacher's, as a mean over runs.

    last_layer_outputs: the runs of one column of results, such as those at "mini", as
    `load_last_layer_outputs_by_source` returns them.
    network_name: the student's name, such as "EfficientBERT".
    metric: "cka" (similarity of the outputs, higher is closer), "kl" (divergence of
    each head's attention, lower is closer) or "kl_mean_map" (the same of the attention
    averaged over heads)."""
    return float(
        np.mean(
            [row[f"model:{network_name}.{metric}"] for row, *_ in last_layer_outputs]
        )
    )


def format_student_similarity_sentences(
    outputs_by_source_heading: Mapping[SourceHeading, list[LastLayerOutputs]],
    metric: CkaKlOrKlMeanMap,
    metric_title: str,
) -> list[str]:
    """Return a sentence for each set of runs that compares students with their teacher.

    It has the mean of a metric over runs for each student, and the number of seeds.
    With fewer than three seeds it says that these show no order of the students.

    outputs_by_source_heading: {heading of a set of runs: its runs}, as
    `load_last_layer_outputs_by_source` returns it.
    metric: "cka" (of the outputs), "kl" (divergence of each head's attention) or
    "kl_mean_map" (that of the attention averaged over heads).
    metric_title: the metric's name in the sentence."""
    lines = []
    for source, made in outputs_by_source_heading.items():
        texts = [
            f"{name} {average_metric_over_runs(made, name, metric):.3f}"
            for name in list(made[0][1])[1:]
        ]
        seeds = f"{len(made)} seed{'s' * (len(made) > 1)}"
        seeds += ", which shows no order" * (len(made) < SEEDS)
        numbers = f"{', '.join(texts)} over many sentences"
        lines.append(f"{metric_title} ({source}): {numbers}; {seeds}.")
    return lines


def show_student_teacher_distances(
    page: Page,
    outputs_by_source_heading: Mapping[SourceHeading, list[LastLayerOutputs]],
    measure_distances: Callable[[Arrays, np.ndarray, str], Iterable[float]],
    distance_axis_label: str,
    title_by_metric: Mapping[CkaKlOrKlMeanMap, str],
    mean_distance_title: str = "",
) -> pd.DataFrame:
    """Show how far each student is from its teacher, in a table and a figure of a page.

    Return the distances as a DataFrame with the columns source (heading of a set of
    runs), model and distance, a row for each distance. There is no figure where each
    student has fewer than 8 distances.

    page: the page of results that is being made.
    outputs_by_source_heading: {heading of a set of runs: its runs}, as
    `load_last_layer_outputs_by_source` returns it.
    measure_distances: f({"teacher" or student: its attention maps or outputs}, number
    of tokens of each sentence, student) -> distances, such as one for each head.
    distance_axis_label: the label of the figure's axis.
    title_by_metric: {metric of the runs, such as "cka": title of its column in the
    table}.
    mean_distance_title: title of a further column, the mean of the distances; "" for
    none."""
    # Imported here, so that a list of runs is built without loading pandas.
    import pandas as pd
    import seaborn as sns

    from lib.report import plot

    lines = []
    table = {}
    for source, made in outputs_by_source_heading.items():
        for name in list(made[0][1])[1:]:
            parts = [
                one
                for _, arrays, n in made
                for one in measure_distances(arrays, n, name)
            ]
            lines += [(source, name, part) for part in parts]
            for key, title in title_by_metric.items():
                mean = average_metric_over_runs(made, name, key)
                table.setdefault(name, {})[source, title] = f"{mean:.3f}"
            if mean_distance_title:
                table[name][source, mean_distance_title] = f"{np.mean(parts):.3f}"
    page.show_table(
        table, "From the teacher, means over many sentences", "similarity", "model"
    )
    data = pd.DataFrame(lines, columns=["source", "model", "distance"])
    if data.groupby(["source", "model"]).size().max() < MANY:
        return data
    figure, axes = plot.make_panels(outputs_by_source_heading, 7, 2.9)
    parts: Any = data.groupby("source", sort=False)
    for axis, (source, part) in zip(axes, parts, strict=False):
        means = part.groupby("model", sort=False)["distance"].mean()
        sns.stripplot(part, x="distance", y="model", ax=axis, alpha=0.55, jitter=False)
        axis.plot(means, means.index, "|", color=plot.INK, ms=20, mew=2)
        axis.plot([], [], "|", ms=10, color=plot.INK, mew=2, label="mean of the heads")
        axis.plot(
            [],
            [],
            ".",
            ms=10,
            color=axis.collections[0].get_facecolor(),
            label="a head",
        )
        heads = part.groupby("model")["distance"].agg(np.ptp)
        run_count = len(outputs_by_source_heading[source])
        seeds = f"{run_count} seed{'s' * (run_count > 1)}"
        axis.set_title(
            f"Means of the networks lie {np.ptp(means):.2f} apart, heads of one network up "
            f"to {heads.max():.2f}\n({source}, four sentences, {seeds})"
        )
        axis.set(
            xlabel=distance_axis_label,
            xlim=(0, None),
            ylabel="",
            ylim=(len(means) - 0.5, -0.5),
        )
    plot.draw_legend(figure)
    page.show_figure(figure, data, "similarity")
    return data
