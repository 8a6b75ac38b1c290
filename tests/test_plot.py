"""Pictures: what a reader sees of points that lie close together."""

import warnings

import matplotlib.pyplot as plt
import pandas as pd

from lib.report import plot


def test_names_of_close_points_stand_apart_and_no_warning_is_shown():
    points = pd.DataFrame(
        {"cost": [1.0, 1.01, 4.0], "score": [80.0, 80.1, 82.0]}, list("abc")
    )
    figure, (axis,) = plot.panels(["Cost"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot.label_points(axis, points, "cost", "score")
    boxes = [text.get_window_extent() for text in axis.texts if text.get_text()]
    assert [text.get_text() for text in axis.texts if text.get_text()] == [
        "a",
        "b",
        "c",
    ]
    assert not any(a.overlaps(b) for a in boxes for b in boxes if a is not b)


def test_a_title_has_the_ends_of_labelled_curves():
    _, (axis,) = plot.panels(["recorded, mini"])
    axis.plot([3, 1, 2], [81.0, 84.25, 90.0], label="Ghost")
    axis.plot([1, 2], [5, 6])
    axis.plot([1], [83.44], label="Plain")
    axis.axhline(7, label="chance")
    plot.message(axis)
    title = axis.get_title().replace("\u00a0", " ")
    assert title == "recorded, mini\nGhost: 84.2 to 81; Plain: 83.4"


def test_a_figure_without_axes_tells_its_titles():
    """Drawings have no axes, and some titles stand at the left: both are what a
    listener hears."""
    figure, (one, two) = plt.subplots(1, 2)
    one.set_title("a layer")
    one.axis("off")
    two.set_title("its copy", loc="left")
    assert plot.described(figure)["Title"] == "a layer; its copy"
    plt.close(figure)
