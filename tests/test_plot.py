"""Pictures: what a reader sees of points that lie close together."""

import warnings
from dataclasses import replace
from math import inf

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from lib.report import plot
from lib.stats.paired import Estimate


def test_names_of_close_points_stand_apart_and_no_warning_is_shown():
    points = pd.DataFrame(
        {"cost": [1.0, 1.01, 4.0], "score": [80.0, 80.1, 82.0]}, list("abc")
    )
    figure, (axis,) = plot.make_panels(["Cost"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot.draw_labelled_points(axis, points, "cost", "score")
    boxes = [text.get_window_extent() for text in axis.texts if text.get_text()]
    assert [text.get_text() for text in axis.texts if text.get_text()] == [
        "a",
        "b",
        "c",
    ]
    assert not any(a.overlaps(b) for a in boxes for b in boxes if a is not b)


def estimate(mean, seeds=3, width=1.0, region=()):
    return Estimate(
        mean, mean - width, mean + width, seeds, 1, 0.1, 0.5, claimed_region=region
    )


OURS = "recorded, mini"


def test_a_row_of_a_forest_has_its_interval_its_printed_diamond_and_its_region():
    rows = {
        (OURS, "6/12, SST-2"): estimate(3.0, region=(0.0, inf)),
        (OURS, "3/12, SST-2"): None,
        ("this run, toy", "6/12, SST-2"): estimate(5.0, seeds=1),
    }
    printed = {"6/12, SST-2": 1.5, "3/12, SST-2": 9.0}
    data = plot.make_forest_plot_data(rows, printed)
    assert list(data["at"]) == ["6/12, SST-2"] * 2  # 3/12 is not measured
    assert data["low"].tolist()[0] == 2 and pd.isna(data["low"].tolist()[1])
    figure = plot.draw_forest_plot(data, "ghosts minus pruning (points)")
    (axis,) = figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["6/12"]
    assert axis.get_xlabel() == "ghosts minus pruning on SST-2 (points)"
    points = {bars.get_label(): bars[0] for bars in axis.containers}
    few = "this run, toy, fewer than 3 seeds"
    assert {name: p.get_xdata()[0] for name, p in points.items()} == {OURS: 3, few: 5}
    assert points[few].get_color() == plot.GREY != points[OURS].get_color()
    (diamond,) = [one for one in axis.lines if one.get_label() == "printed"][:1]
    assert diamond.get_marker() == "D" and list(diamond.get_xdata()) == [1.5]
    assert axis.collections[0].get_paths()[0].contains_point((1.0, 0.0))  # claimed
    plt.close(figure)
    assert plot.make_forest_plot_data({(OURS, "QQP"): None}, {"QQP": 9.0}).empty


def test_a_region_with_one_end_is_shaded_to_the_edge():
    """Claims' rows have an empty cell for an end that is not finite."""
    data = plot.make_forest_plot_data({(OURS, "SST-2"): estimate(1.0)})
    data = data.assign(least=0.0, most=None, word="agrees")
    figure = plot.draw_forest_plot(data)
    (region,) = figure.axes[0].collections[0].get_paths()
    assert region.contains_point((9.0, 0.0)) and not region.contains_point((-1.0, 0.0))
    plt.close(figure)


def test_large_differences_have_an_axis_of_their_own():
    rows = {(OURS, "SST-2"): estimate(1.0), (OURS, "STS-B"): estimate(49.0)}
    figure = plot.draw_forest_plot(
        plot.make_forest_plot_data(rows), "searched minus random (points)"
    )
    near, far = figure.axes
    assert near.get_xlim()[1] < 3 and far.get_xlim()[1] > 49
    assert {axis.get_xscale() for axis in figure.axes} == {"linear"}
    plt.close(figure)


@pytest.mark.parametrize(
    "means, printed, title",
    [
        ([1.5], {}, "A minus b, 0: +1.5 [0.5, 2.5] points"),
        ([1.5], {"0": 4}, "A minus b, 0: +1.5 [0.5, 2.5] points, printed +4.0"),
        ([0.5], {}, "A minus b, 0: +0.5 [−0.5, 1.5] points: no difference shown"),
        ([2, 3], {}, "A minus b, 1: +3.0 [2.0, 4.0] points; the other: above 0"),
        (
            [2, 0, -3, 1.5],
            {"1": 5, "2": -3},
            "A minus b, 2: −3.0 [−4.0, −2.0] points; of the other 3: 2 above 0, "
            "1 no difference shown; 1 of 2 printed values lies outside our intervals",
        ),
        (
            [0, 0.5],
            {},
            "A minus b: no difference shown in 2 comparisons",
        ),
    ],
)
def test_the_title_of_a_forest_says_what_is_seen(means, printed, title):
    rows = {(OURS, str(i)): estimate(mean) for i, mean in enumerate(means)}
    data = plot.make_forest_plot_data(rows, printed)
    shown = plot.format_forest_plot_title(data, "a minus b (points)")
    assert shown.replace(plot.FIXED, " ") == title


def test_the_title_of_a_forest_names_the_rival_of_each_row():
    rows = {(OURS, "Random, SST-2"): estimate(2.0)}
    rows |= {(OURS, "Whole, SST-2"): estimate(-3.0)}
    title = plot.format_forest_plot_title(
        plot.make_forest_plot_data(rows), "search minus another network (points)"
    )
    assert title.replace(plot.FIXED, " ") == (
        "Search minus Whole: −3.0 [−4.0, −2.0] points on SST-2; the other: above 0"
    )


def test_the_title_of_a_forest_without_an_interval_has_the_ends_of_its_dots():
    rows = {(OURS, str(i)): estimate(-i, seeds=1) for i in range(3)}
    title = plot.format_forest_plot_title(
        plot.make_forest_plot_data(rows), "a minus b (points)"
    )
    assert title == "A minus b: −2.0 to +0.0 points, 1 seed: too few for an interval"


def test_the_title_of_a_forest_with_words_counts_them():
    """A row of too few seeds has no interval, and is not counted."""
    rows = {(OURS, str(i)): estimate(i, 3 if i < 4 else 1) for i in range(5)}
    read = [
        "agrees (weaker than printed) †",
        "agrees",
        "they differ",
        "too noisy to say",
    ]
    data = plot.make_forest_plot_data(rows).assign(word=[*read, "not measured"])
    assert plot.format_forest_plot_title(data, "") == (
        "Of 4 measured in points: 2 agree, 1 the other way round, 1 too noisy to say"
    )
    figure = plot.draw_forest_plot(data)
    (axis,) = figure.axes
    texts = [text.get_text() for text in axis.texts]
    assert texts == [*read, "1 seed: too few"]
    labels = axis.get_legend_handles_labels()[1]
    assert plot.HOLM in labels and plot.INTEREST not in labels
    plt.close(figure)


def test_a_forest_draws_the_effect_of_interest_where_none_is_printed():
    rows = {
        (OURS, place): replace(estimate(1.0), smallest_effect_of_interest=1.5)
        for place in ("a", "b")
    }
    figure = plot.draw_forest_plot(
        plot.make_forest_plot_data(rows, {"a": 2.0}), "x minus y (points)"
    )
    (axis,) = figure.axes
    ticks = [one for one in axis.lines if one.get_label() == plot.INTEREST]
    assert [(*one.get_xdata(), *one.get_ydata()) for one in ticks] == [(1.5, 1)]
    plt.close(figure)


def test_a_dot_of_few_seeds_does_not_stretch_the_axis_of_intervals():
    rows = {(OURS, "a"): estimate(1.0), (OURS, "b"): estimate(9.0, seeds=1)}
    figure = plot.draw_forest_plot(
        plot.make_forest_plot_data(rows), "x minus y (points)"
    )
    (axis,) = figure.axes
    assert axis.get_xlim()[1] < 3
    assert [text.get_text() for text in axis.texts] == ["1 seed: too few, +9.0"]
    plt.close(figure)


def test_a_long_title_is_wrapped_into_its_figure_without_a_lone_word():
    title = "Twenty words that are seen " * 6 + "alone"
    figure, (axis,) = plot.make_panels([title], 4, 3)
    axis.set_ylabel(
        "a label that is longer than the axis at its side, for sure and more"
    )
    plot.wrap_long_texts(figure)
    figure.draw_without_rendering()
    for text in (axis.title, axis.yaxis.label):
        box = text.get_window_extent()
        assert 0 <= box.x0 and box.x1 <= figure.bbox.width
        assert 0 <= box.y0 and box.y1 <= figure.bbox.height
        assert " ".join(text.get_text().split()) == text.get_text().replace("\n", " ")
    lines = axis.get_title().split("\n")
    assert all(" " in line for line in lines)
    plt.close(figure)


def test_a_last_word_does_not_stand_alone():
    repeated = "Twenty words that are seen " * 6 + "alone"
    for width in range(17, 60):
        parts = plot.wrap_text(repeated, width).split("\n")
        assert max(map(len, parts)) <= width and " ".join(parts) == repeated
        assert len(parts) == 1 or " " in parts[-1]
    assert plot.wrap_text("two words", 6) == "two\nwords"
    text = f"more {plot.MINUS} less"
    assert plot.wrap_text(text, 8) == f"more\n{plot.MINUS}{plot.FIXED}less"


def test_a_printed_value_beside_too_few_seeds_is_not_cut_off():
    rows = {(OURS, name): estimate(1.0) for name in "a"}
    rows |= {(OURS, name): estimate(1.0, seeds=1) for name in "bc"}
    data = plot.make_forest_plot_data(rows, {"b": 2.5, "c": 30.0})
    figure = plot.draw_forest_plot(data, "x minus y (points)")
    (axis,) = figure.axes
    assert 2.5 < axis.get_xlim()[1] < 30
    texts = [text.get_text() for text in axis.texts]
    assert texts == ["1 seed: too few", "1 seed: too few; printed +30.0"]
    plt.close(figure)


@pytest.mark.parametrize("gain, is_shown", [(9.0, True), (0.5, False)])
def test_the_title_of_draws_claims_no_difference_whose_interval_holds_0(gain, is_shown):
    _, (axis,) = plot.make_panels(["As cut"])
    draws = {"a": [80.0, 82.0, 84.0], "b": [81.0 + gain, 83.0 + gain, 83.0 + gain]}
    plot.draw_scores_by_group(axis, draws, "b")
    assert axis.get_title().startswith("As cut, b minus a: +")
    assert axis.get_title().endswith("no difference shown") != is_shown
    plt.close(axis.figure)
    assert plot.wrap_text("a\n\nb", 6) == "a\n\nb"


def test_a_sweep_shows_which_points_have_too_few_seeds():
    columns = ["line", "x", "mean", "low", "high", "seeds"]
    rows = [("3/12", 1, -0.5, -1.0, 0.0, 3), ("3/12", 5, 0.4, -9.0, 9.0, 1)]
    _, (axis,) = plot.make_panels([""])
    plot.draw_effect_by_hyperparameter_value(axis, pd.DataFrame(rows, columns=columns))
    (bars,) = axis.containers
    assert list(bars[0].get_xdata()) == [1]  # only this one has an interval
    low, high = axis.get_ylim()
    assert low < -9 and high > 9  # nothing is cut off


def test_every_line_of_a_sweep_is_drawn_and_five_have_colours_of_their_own():
    columns = ["line", "x", "mean", "low", "high", "seeds"]
    rows = [(f"{m}/12", 1, -0.5, -1.0, 0.0, 3) for m in range(1, 8)]
    figure, (axis,) = plot.make_panels([""])
    plot.draw_effect_by_hyperparameter_value(axis, pd.DataFrame(rows, columns=columns))
    colours = {
        line.get_label(): line.get_color()
        for line in axis.get_lines()
        if line.get_label().endswith(", ours")
    }
    assert len(colours) == 7 and len({*colours.values()}) == 5
    plt.close(figure)


def test_a_figure_without_axes_tells_its_titles():
    """Drawings have no axes, and some titles stand at the left: both are what a
    listener hears."""
    figure, (one, two) = plt.subplots(1, 2)
    one.set_title("a layer")
    one.axis("off")
    two.set_title("its copy", loc="left")
    assert plot.make_svg_metadata_with_title(figure)["Title"] == "a layer; its copy"
    plt.close(figure)
