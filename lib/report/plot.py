"""This module has the colours of figures, a look for each kind of model, and functions
that draw.

The colours are those of Okabe and Ito, which colour-blind readers can distinguish. A
look (options of matplotlib for a line) also has a marker and a dash of its own, so that
nothing is told by colour alone."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle, pairwise
from textwrap import wrap
from typing import Any, Literal, NamedTuple, TypeAlias

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import LogLocator
from matplotlib.transforms import Bbox, ScaledTranslation

from lib.claims.words import OPPOSITE, WORDS, format_verdict_word_counts
from lib.stats.paired import SEEDS, Estimate, estimate_mean_over_seeds

BLUE, VERMILION, GREEN, SKY, BLACK = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#56B4E9",
    "#000000",
)
INK, GREY, PALE = "#1c1e21", "#8a929c", "#dfe3e8"

# Styles of lines: NEW for what a paper proposes, OLD for its baseline, PRINT for the
# numbers that it prints, THIRD and REST for further models. LOOKS below is {name of a
# model or stage in a legend: its style}.
NEW: dict[str, Any] = {"color": BLUE, "marker": "o", "linestyle": "-"}
OLD: dict[str, Any] = {"color": VERMILION, "marker": "s", "linestyle": "--"}
THIRD: dict[str, Any] = {"color": GREEN, "marker": "D", "linestyle": "-."}
REST: dict[str, Any] = {"color": GREY, "marker": "^", "linestyle": ":"}
PRINT: dict[str, Any] = {"color": "#444444", "marker": "D", "linestyle": "-"}
LOOKS: dict[str, dict[str, Any]] = {
    "Plain": {"color": BLACK, "marker": "X", "linestyle": "none"},
    "random": REST,
}
LOOKS |= dict.fromkeys(("Ghost", "BERMo", "inherits", "stages 1, 2"), NEW)
LOOKS |= dict.fromkeys(
    ("Prune", "BERT", "from scratch", "single stage", "cascade"), OLD
)
LOOKS |= dict.fromkeys(
    ("Distilled", "stage 3", "evolution", "Mean of all states"), THIRD
)
LOOKS["Embeddings alone"] = REST
MARKERS = "osD^vP"
MINUS = "\u2212"
FIXED = "\u00a0"  # Non-breaking space.
LowAndHigh: TypeAlias = tuple[float, float]  # Ends of a 95 % interval.
WIDEST = 9.6  # Greatest width of a row of panels, in inches.


def set_figure_style() -> None:
    """Set the style of all figures that are drawn afterwards.

    The ids in SVG files get a fixed hash salt, so that equal figures give equal
    bytes."""
    look = {
        "svg.hashsalt": "workbook",
        "figure.dpi": 110,
        "savefig.bbox": "tight",
        "axes.titlesize": "medium",
    }
    sns.set_theme(style="whitegrid", palette="colorblind", rc=look)


def wrap_text(text: str, max_letters_per_line: int) -> str:
    """Return a text wrapped into as few lines as possible, of about equal length.

    A line has at most `max_letters_per_line` letters, unless a single word is longer.
    A last line of one word gets another word from the line before it, if that line
    keeps two words and the last line is not too long then. No line ends with a minus
    sign."""
    lines, text = [], text.replace(f"{MINUS} ", f"{MINUS}{FIXED}")
    for line in text.split("\n"):
        least = len(wrap(line, max_letters_per_line))
        narrow = next(
            w for w in range(1, max_letters_per_line + 1) if len(wrap(line, w)) <= least
        )
        parts = wrap(line, narrow, break_long_words=False) or [""]
        if len(parts) > 1 and " " not in parts[-1] and parts[-2].count(" ") > 1:
            shorter, moved = parts[-2].rsplit(" ", 1)
            if len(f"{moved} {parts[-1]}") <= max_letters_per_line:
                parts[-2:] = [shorter, f"{moved} {parts[-1]}"]
        lines += parts
    return "\n".join(lines)


def wrap_long_texts(figure: Figure) -> None:
    """Wrap the titles and labels of a figure that are longer than their space.

    The space of a title is the width of its panel, or that of the figure where panels
    stand below each other. The space of a label is the length of its axis. A wrapped
    text leaves less space to the axes, so all texts are checked again until none is
    wrapped."""
    is_wrapped, across, originals = True, figure.bbox.width, {}
    while is_wrapped:
        figure.draw_without_rendering()
        rooms: list[tuple[Text, float]] = [(t, 0.98 * across) for t in figure.texts]
        for axis in figure.axes:
            spec, box = axis.get_subplotspec(), axis.get_window_extent()
            middle = (box.x0 + box.x1) / 2
            alone = spec is None or spec.get_gridspec().ncols == 1
            room = 2 * min(middle, across - middle) if alone else 1.06 * box.width
            rooms.append((axis.title, room))
            # Labels of 3-D axes are rotated, so the space for them is not known, and
            # they are not wrapped.
            if not hasattr(axis, "zaxis"):
                rooms.append((axis.xaxis.label, 1.02 * box.width))
                rooms.append((axis.yaxis.label, 1.02 * box.height))
        is_wrapped = False
        for text, room in rooms:
            original = originals.setdefault(text, text.get_text())
            is_wrapped |= wrap_if_too_long(text, original, room)


WasWrapped: TypeAlias = bool
LEAST_LETTERS = 12  # A line is never wrapped to fewer letters than these.


def wrap_if_too_long(
    text_artist: Text, original_text: str, available_pixels: float
) -> WasWrapped:
    """Wrap a text of a figure that is longer than its space; return whether it was.

    A text with mathematics between $ signs, or with lines of at most LEAST_LETTERS (12)
    letters, stays as it is.

    text_artist: the text in the figure, which is changed.
    original_text: the text without any line breaks of earlier calls.
    available_pixels: its space along the direction of reading."""
    words = text_artist.get_text()
    letters = 0 if "$" in words else max(map(len, words.split("\n")))
    box = text_artist.get_window_extent()
    size = box.height if text_artist.get_rotation() == 90 else box.width
    if letters <= LEAST_LETTERS or size <= available_pixels:
        return False
    letters = max(
        LEAST_LETTERS, min(letters - 1, int(letters * available_pixels / size))
    )
    text_artist.set_text(wrap_text(original_text, letters))
    return text_artist.get_text() != words


def make_panels(
    titles: Iterable[str],
    panel_width_inches: float = 4.6,
    panel_height_inches: float = 3.6,
    max_column_count: int = 4,
    **subplot_options: Any,
) -> tuple[Figure, list[Axes]]:
    """Return (figure, axes), with one panel for each title.

    Without titles there is one panel. A new row of panels begins where a row would be
    wider than WIDEST (9.6) inches, which is too wide to be read at 700 pixels.

    panel_width_inches, panel_height_inches: the size of a panel in inches.
    max_column_count: the largest number of panels in a row.
    subplot_options: options of plt.subplots, such as sharey."""
    titles = list(titles) or [""]
    across = min(
        max_column_count, len(titles), max(1, int(WIDEST // panel_width_inches))
    )
    down = -(-len(titles) // across)
    figure, axes = plt.subplots(
        down,
        across,
        squeeze=False,
        figsize=(panel_width_inches * across, panel_height_inches * down),
        layout="constrained",
        **subplot_options,
    )
    for axis, title in zip(axes.flat, titles, strict=False):
        axis.set_title(title)
    for axis in axes.flat[len(titles) :]:
        axis.axis("off")
    return figure, list(axes.flat[: len(titles)])


def compute_t_interval_of_mean(value_per_seed: Any) -> LowAndHigh:
    """Return (low, high) of the 95 % interval of a mean over seeds, by Student's t.

    seaborn takes this function as `errorbar`. Both ends are nan for fewer than SEEDS
    (3) values.

    value_per_seed: a Series with one value for each seed."""
    if len(value_per_seed) < SEEDS:
        return np.nan, np.nan
    e = estimate_mean_over_seeds(value_per_seed)
    return e.low, e.high


def draw_means(
    axis: Axes,
    frame: pd.DataFrame,
    x_column: str,
    y_column: str,
    legend_label: str,
    **line_options: Any,
) -> None:
    """Draw the mean of y at each x over the rows of a frame, with its 95 % interval.

    The rows with the same x are runs at different seeds. Where they are fewer than
    SEEDS (3), each is also drawn as a point, and the mean has no interval. Rows without
    y are left out.

    x_column, y_column: names of columns of the frame.
    legend_label: the name of the line in the legend. A key of LOOKS, such as "BERT",
    also sets the colour, marker and dash.
    line_options: options of seaborn.lineplot, such as colour, in place of the default
    ones."""
    frame = frame.dropna(subset=y_column)
    if not len(frame):
        return
    sns.lineplot(
        frame,
        x=x_column,
        y=y_column,
        ax=axis,
        label=legend_label,
        legend=False,
        err_style="bars",
        err_kws={"capsize": 3},
        errorbar=compute_t_interval_of_mean,
        **LOOKS.get(legend_label, {}) | line_options,
    )
    few = frame[frame.groupby(x_column)[y_column].transform("size") < SEEDS]
    colour = axis.get_lines()[-1].get_color()
    axis.plot(few[x_column], few[y_column], ".", color=colour, ms=4)


def draw_effect_by_hyperparameter_value(
    axis: Axes,
    differences_by_line_and_x: pd.DataFrame,
    printed_differences_by_line_and_x: pd.DataFrame | None = None,
) -> None:
    """Draw the score at a reference value of a setting minus that at other values x.

    For example, the setting is a kernel size, and the score at 3 minus the score at x
    is drawn over x. The points have 95 % intervals. A point of fewer than SEEDS (3)
    seeds is hollow and has no interval.

    differences_by_line_and_x: a row for each point, with the columns line (name of the
    line on which the point lies), x, mean (the difference), low and high (its interval)
    and seeds (their number). Colours repeat from the sixth line on.
    printed_differences_by_line_and_x: the same differences in a paper, as rows with
    line, x and mean. They are drawn as diamonds."""
    colours = cycle((BLUE, VERMILION, GREEN, SKY, BLACK))
    assert isinstance(axis.figure, Figure)
    for place, (name, rows) in enumerate(
        differences_by_line_and_x.groupby("line", sort=False)
    ):
        # Shift each line by 1/18 inch to the right of the one before, so that no error
        # bar hides another.
        aside = ScaledTranslation(place / 18, 0, axis.figure.dpi_scale_trans)
        rows, colour = rows.sort_values("x"), next(colours)
        look: dict[str, Any] = {"color": colour, "transform": axis.transData + aside}
        # Shifted artists do not set the axis limits, so these are set here.
        for end in ("low", "mean", "high"):
            axis.update_datalim(rows[["x", end]].dropna().to_numpy())
        axis.plot(rows["x"], rows["mean"], **look)
        is_few = rows["seeds"] < SEEDS
        few, sure = rows[is_few], rows[~is_few]
        few_label = f"{name}, ours, fewer than {SEEDS} seeds"
        for part, label, face in (
            (few, few_label, "white"),
            (sure, f"{name}, ours", colour),
        ):
            mark = look | {"marker": "o", "mfc": face}
            # Plot no data, only an entry of the legend with line and marker.
            if len(part):
                axis.plot([], [], label=label, **mark)
            axis.plot(part["x"], part["mean"], ls="none", **mark)
        ends = [sure["mean"] - sure["low"], sure["high"] - sure["mean"]]
        axis.errorbar(sure["x"], sure["mean"], ends, capsize=3, ls="none", **look)
        if printed_differences_by_line_and_x is not None:
            theirs = printed_differences_by_line_and_x[
                printed_differences_by_line_and_x["line"] == name
            ].sort_values("x")
            axis.plot(
                theirs["x"],
                theirs["mean"],
                marker="D",
                mfc="none",
                ls=":",
                color=colour,
                label=f"{name}, printed",
            )
    axis.autoscale_view()
    axis.axhline(0, color=INK, lw=0.8)


# Columns of the data of a forest plot. `at` is the name of a row, and `source` says
# where our number comes from. `interest` is the smallest effect of interest where the
# paper prints no effect. `least` and `most` are the ends of the region of effects for
# which the paper's claim holds. `make_forest_plot_data` explains the others.
FOREST = "source at mean low high printed interest least most seeds word".split()
FAR = 20  # Difference in points beyond which a row is drawn in a second panel.
MANY = 20  # Number of rows from which a forest plot has a small font.
HOLM = "stays after Holm's correction"


# {(source of an estimate, such as "this run, toy"; name of a row of the plot):
# Estimate, or None where this source has none}.
EstimateBySourceAndRow: TypeAlias = Mapping[tuple[str, str], Estimate | None]
# {name of a row: difference in points that the paper prints}.
PrintedPointsByRow: TypeAlias = Mapping[str, float] | Iterable[tuple[str, float]]


class ShortNames(NamedTuple):
    short_name_by_name: dict[str, str]
    common_end: str  # End that all names shared, such as " on SST-2"; "" for none.


class PrintedCounts(NamedTuple):
    outside_intervals: int
    total: int


def make_forest_plot_data(
    estimates_by_row: EstimateBySourceAndRow,
    printed_differences: PrintedPointsByRow = (),
) -> pd.DataFrame:
    """Return paired differences in points as the data of a forest plot, a row for each.

    The columns are source, at (name of the row), mean, low and high (95 % interval),
    printed (value in the paper), interest (smallest effect of interest, where nothing
    is printed), least and most (bounds within which the paper's claim holds, 0 and
    infinity for "> 0"), seeds (their number) and word. `word` is "" here; the caller
    may set an outcome such as "agrees". What is missing is nan, and so is an interval
    of fewer than SEEDS (3) seeds. An Estimate of None has no row.

    estimates_by_row: {(source of the number, name of a row): Estimate or None}.
    printed_differences: {name of a row: difference in points that a paper prints}."""
    printed_differences, lines = dict(printed_differences), []
    for (source, comparison), e in estimates_by_row.items():
        if e is None:
            continue
        least, most = e.claimed_region or (np.nan, np.nan)
        ends = (e.low, e.high) if e.n_seeds >= SEEDS else (np.nan, np.nan)
        interest = (
            np.nan
            if comparison in printed_differences
            else e.smallest_effect_of_interest
        )
        aims = printed_differences.get(comparison, np.nan), interest, least, most
        lines.append((source, comparison, e.mean, *ends, *aims, e.n_seeds, ""))
    return pd.DataFrame(lines, columns=FOREST)


def draw_forest_plot(forest_data: pd.DataFrame, axis_label: str = "") -> Figure:
    """Draw differences in points as a forest plot, a row each. Return the figure.

    A bar is a 95 % interval, a diamond the printed value, a tick the smallest effect of
    interest, a shade the values for which the paper's claim holds (such as > 0). A grey
    dot has fewer than SEEDS (3) seeds. A row with an interval stands in a second panel
    with another scale, if its interval or printed value reaches beyond FAR (20) points
    from 0.

    forest_data: a frame with the columns of `make_forest_plot_data`. The text in its
    column `word`, such as "agrees", stands beside the row.
    axis_label: what is subtracted from what, and the unit in brackets."""
    forest_data = forest_data.astype(dict.fromkeys(FOREST[2:9], float))
    names, place = strip_common_task_suffix(forest_data["at"])
    title = format_forest_plot_title(forest_data, axis_label)
    axis_label = (axis_label or "difference (points)").replace(
        " (points)", f"{place} (points)"
    )
    start, is_named, kind = axis_label.rpartition(" another")
    axis_label = f"{start} the row's{kind}" if is_named else axis_label
    size = forest_data[["mean", "low", "high", "printed"]].abs().max(axis=1)
    is_far = (size > FAR) & forest_data["low"].notna()
    is_far |= forest_data["at"].isin(forest_data.loc[is_far, "at"])
    parts = [part for _, part in forest_data.groupby(is_far)]
    counts = [part["at"].nunique() for part in parts]
    is_long = sum(counts) >= MANY
    row = 0.22 if is_long else 0.34
    figure, axes = plt.subplots(
        len(parts),
        squeeze=False,
        figsize=(9, 1.3 + 0.6 * len(parts) + row * sum(counts)),
        layout="constrained",
        height_ratios=[count + 0.8 for count in counts],
    )
    for axis, part in zip(axes.flat, parts, strict=True):
        draw_forest_rows(axis, part)
        order = part["at"].unique()
        for y, (one, after) in enumerate(pairwise(order)):
            # In a long plot a line separates the claims of two papers. The first letter
            # of a claim's id stands for its paper.
            if is_long and one[:1] != after[:1]:
                axis.axhline(y + 0.5, color=INK, lw=0.8)
        words = [wrap_text(names[one], 70 if is_long else 46) for one in order]
        scale = "; another scale" * (axis is not axes[0, 0])
        label_rows_and_x_axis(axis, words, axis_label + scale, 8.5 if is_long else 10)
    figure.suptitle(title, fontsize=11.5)
    if forest_data["word"].str.contains("†").any():
        mark = r"$\dagger$"
        axes[0, 0].plot([], [], marker=mark, ms=8, ls="none", color=INK, label=HOLM)
    draw_legend(figure, 3)
    return figure


def draw_forest_rows(axis: Axes, forest_data: pd.DataFrame) -> None:
    """Draw the rows of a forest plot on one axis, with a vertical line at 0.

    The axis covers the rows with an interval, with their printed values and smallest
    effects of interest, and the dots and printed values near them. A printed value or
    dot of another row that lies far outside is drawn as an arrowhead at the edge, with
    its number beside the row. Where no row has an interval, the axis covers all rows.

    forest_data: a frame with the columns of `make_forest_plot_data`."""
    order = list(forest_data["at"].unique())
    sources = list(forest_data["source"].unique())
    axis.axvline(0, color=INK, lw=0.8)
    sure = forest_data.dropna(subset="low")
    ends = (sure if len(sure) else forest_data)[
        ["mean", "low", "high", "printed", "interest"]
    ]
    low, high = min(np.nanmin(ends), 0), max(np.nanmax(ends), 0)
    dots = pd.concat([forest_data["mean"], forest_data["printed"]])
    half = (high - low) / 2
    near = dots[dots.between(low - half, high + half)]
    low, high = min([low, *near]), max([high, *near])
    margin = 0.06 * max(high - low, 0.5)
    low, high = low - margin, high + margin
    axis.set_xlim(low, high)
    rows: Any = forest_data.itertuples()
    for row in rows:
        y = order.index(row.at)
        if np.isfinite([row.least, row.most]).any():
            # An end that is missing or infinite is drawn far outside of the panel.
            axis.fill_betweenx(
                [y - 0.45, y + 0.45],
                np.fmax(row.least, -1e9),
                np.fmin(row.most, 1e9),
                color=GREEN,
                alpha=0.1,
                lw=0,
                label="claimed region",
            )
        mark: dict[str, Any] = {"mfc": "none", "ls": "none", "color": INK}
        few, word = pd.isna(row.low), row.word
        if few and len(sure):
            word = f"{row.seeds} seed{'s' * (row.seeds > 1)}: too few"
        if pd.notna(row.printed) and not low < row.printed < high:
            word += f"; printed {row.printed:+.1f}".replace("-", MINUS)
            edge, point = (low, "<") if row.printed < low else (high, ">")
            axis.plot(edge, y, point, clip_on=False, **mark)
        elif pd.notna(row.printed):
            axis.plot(row.printed, y, marker="D", ms=6, label="printed", **mark)
        elif pd.notna(row.interest):
            axis.plot(
                row.interest, y, marker="|", ms=11, mew=1.6, label=INTEREST, **mark
            )
        place = sources.index(row.source)
        y += 0.2 * (place - (len(sources) - 1) / 2)
        if few and not low < row.mean < high:
            word += f", {row.mean:+.1f}".replace("-", MINUS)
            edge, point = (low, "<") if row.mean < low else (high, ">")
            axis.plot(edge, y, point, color=GREY, clip_on=False)
        else:
            axis.errorbar(
                row.mean,
                y,
                xerr=[[row.mean - row.low], [row.high - row.mean]],
                fmt="o",
                ms=5,
                lw=1.8,
                color=GREY if few else (BLUE, GREEN, VERMILION, GREY)[place],
                label=f"{row.source}, fewer than {SEEDS} seeds" if few else row.source,
            )
        if word:
            axis.annotate(
                word,
                (1, y),
                va="center",
                fontsize=8.5,
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                xytext=(8, 0),
            )


INTEREST = "smallest effect of interest"


def strip_common_task_suffix(row_names: pd.Series) -> ShortNames:
    """Return (short names, common end) of the rows of a forest plot.

    The short names are a dict {name: short name}. An end such as ", SST-2" is cut off
    if all names have it. The common end is then " on SST-2", and stands in the axis
    label. Otherwise the names stay as they are, and the common end is ""."""
    ends = {name.rpartition(", ")[2] for name in row_names}
    if len(ends) > 1 or not all(", " in name for name in row_names):
        return ShortNames({name: name for name in row_names}, "")
    short = {name: name.rpartition(", ")[0] for name in row_names}
    return ShortNames(short, f" on {ends.pop()}")


def format_forest_plot_title(forest_data: pd.DataFrame, axis_label: str) -> str:
    """Return the title of a forest plot: a sentence with its largest difference.

    The title names the row with the largest difference whose interval excludes 0, and
    says how many other rows lie above or below 0. If several rows have intervals and
    all include 0, it says that no difference is shown. If several rows have outcomes
    such as "agrees", it counts the outcomes instead. Without any interval it gives the
    range of the differences.

    forest_data: a frame with the columns of `make_forest_plot_data`.
    axis_label: what is subtracted from what, and the unit in brackets."""
    names, common_end = strip_common_task_suffix(forest_data["at"])
    axis_label = axis_label.removesuffix(" (points)") or "largest differences"
    axis_label = axis_label[:1].upper() + axis_label[1:]
    sure = forest_data.dropna(subset="low")
    if not len(sure):
        return f"{axis_label}{common_end}: {describe_range_of_means(forest_data)}"
    words = bool(forest_data["word"].any())
    if words and len(sure) > 1:
        return format_outcome_counts_title(sure)
    is_apart = (sure["low"] > 0) | (sure["high"] < 0)
    if len(sure) > 1 and not is_apart.any():
        text = (
            f"{axis_label}{common_end}: no difference shown in {len(sure)} comparisons"
        )
        return text + describe_printed_values_outside_intervals(sure)
    order = sure.assign(is_apart=is_apart, size=sure["mean"].abs())
    order = order.sort_values(["is_apart", "size"], ascending=False, kind="stable")
    row: Any = next(order.itertuples())
    start, is_named, _ = axis_label.rpartition(" another")
    start = f"{start} " if is_named else f"{axis_label}, "
    start *= bool(is_named) or len(order) > 1 or not words
    source = f" ({row.source})" * (forest_data["source"].nunique() > 1)
    ends = f"{row.mean:+.1f} [{row.low:.1f}, {row.high:.1f}]".replace("-", MINUS)
    text = (
        f"{start}{names[row.at]}{source}: {ends.replace(' ', FIXED)} points{common_end}"
    )
    if len(order) > 1:
        return (
            text
            + format_counts_of_intervals_above_and_below_zero(order[1:])
            + describe_printed_values_outside_intervals(sure)
        )
    if pd.notna(row.printed):
        text += f", printed {row.printed:+.1f}".replace("-", MINUS)
    text += f": {row.word}" * words
    return text + ": no difference shown" * (not (words or is_apart.any()))


def describe_range_of_means(forest_data: pd.DataFrame) -> str:
    """Return the range of differences without intervals, as text for a plot's title.

    An example is "+0.3 to +1.2 points, 1 to 2 seeds: too few for an interval".

    forest_data: a frame with the columns mean (difference in points) and seeds
    (number)."""
    ends = dict.fromkeys(
        f"{end:+.1f}" for end in forest_data["mean"].agg(["min", "max"])
    )
    seeds = dict.fromkeys(
        f"{end:.0f}" for end in forest_data["seeds"].agg(["min", "max"])
    )
    text = f"{' to '.join(ends)} points, {' to '.join(seeds)} seed".replace("-", MINUS)
    return f"{text}{'s' * (list(seeds) != ['1'])}: too few for an interval"


def format_counts_of_intervals_above_and_below_zero(forest_data: pd.DataFrame) -> str:
    """Return the end of a forest plot's title, on the rows that it does not name.

    An example is "; of the other 3: 1 above 0, 2 no difference shown". A row is above
    or below 0 if its whole 95 % interval is.

    forest_data: these other rows, with the ends of their intervals, low and high."""
    above, below = (forest_data["low"] > 0).sum(), (forest_data["high"] < 0).sum()
    kinds = {"above 0": above, "below 0": below}
    kinds["no difference shown"] = len(forest_data) - above - below
    texts = [f"{count} {kind}" for kind, count in kinds.items() if count]
    if len(texts) == 1:
        count, _, kind = texts[0].partition(" ")
        return f"; the other{f' {count}' * (len(forest_data) > 1)}: {kind}"
    return f"; of the other {len(forest_data)}: {', '.join(texts)}"


def format_outcome_counts_title(forest_data: pd.DataFrame) -> str:
    """Return a forest plot's title that counts the outcomes of its comparisons.

    An example is "Of 9 measured in points: 3 agree, 6 too noisy to say; 2 of 5 printed
    values lie outside our intervals".

    forest_data: rows with an interval. Their column `word` begins with an outcome such
    as "agrees", which tells how the interval stands to the paper's claim."""
    # A text of none of WORDS is "they differ". It is shown in place of OPPOSITE ("the
    # other way round") where a paper claims that two models are equal.
    words = [
        next((word for word in WORDS if text.startswith(word)), OPPOSITE)
        for text in forest_data["word"]
    ]
    counts = (
        f"Of {len(forest_data)} measured in points: {format_verdict_word_counts(words)}"
    )
    return counts + describe_printed_values_outside_intervals(forest_data)


def describe_printed_values_outside_intervals(forest_data: pd.DataFrame) -> str:
    """Return the end of a plot's title, on printed values outside our intervals.

    An example is "; 2 of 5 printed values lie outside our intervals". It is "" for
    fewer than two printed values.

    forest_data: a row for each difference, with printed (value in the paper), low and
    high (ends of our 95 % interval)."""
    out, total = count_printed_values_outside_intervals(forest_data)
    verb = "lies" if out < 2 else "lie"
    text = f"; {out or 'none'} of {total} printed values {verb} outside our intervals"
    return text * (total > 1)


def count_printed_values_outside_intervals(forest_data: pd.DataFrame) -> PrintedCounts:
    """Return (number outside our 95 % intervals, total number) of the printed values.

    forest_data: a row for each difference, with printed (value in the paper, nan if
    there is none), low and high (ends of our 95 % interval)."""
    both = forest_data.dropna(subset="printed")
    out = (both["printed"] < both["low"]) | (both["printed"] > both["high"])
    return PrintedCounts(int(out.sum()), len(both))


def label_rows_and_x_axis(
    axis: Axes, row_names: Sequence[str], x_label: str, row_font_size: float = 10
) -> None:
    """Label the rows of a horizontal plot, the first at the top, and its x axis.

    Row i of the plot is at y = i.

    row_names: the label of each row."""
    axis.set_xlabel(x_label)
    axis.set_yticks(range(len(row_names)), row_names, fontsize=row_font_size)
    axis.set_ylim(max(len(row_names), 1) - 0.5, -0.5)


def describe_paired_score_difference(
    scores_by_group: Mapping[str, Sequence[float]], minuend_group: str
) -> str:
    """Return the mean difference of two groups' scores with its interval, as text.

    A draw is one repetition of an experiment with a random seed. Draw i of one group
    and draw i of the other are a pair. An example is "movement minus magnitude: +1.2
    [0.3, 2.1] points". If the interval includes 0, "no difference shown" is added. The
    text is "" unless there are two groups with the same number of draws, at least SEEDS
    (3).

    scores_by_group: {group: scores [N] in points}, such as two methods of pruning.
    minuend_group: the group from which the other is subtracted."""
    ours = np.asarray(scores_by_group[minuend_group])
    others = [name for name in scores_by_group if name != minuend_group]
    rival = np.asarray(scores_by_group[others[0]]) if len(others) == 1 else ours[:0]
    if not len(rival) == len(ours) >= SEEDS:
        return ""
    e = estimate_mean_over_seeds(ours - rival)
    ends = f"{e.mean:+.1f} [{e.low:.1f}, {e.high:.1f}]".replace("-", MINUS)
    text = f"{minuend_group} minus {others[0]}: {ends.replace(' ', FIXED)} points"
    return text + ": no difference shown" * (e.low <= 0 <= e.high)


def draw_scores_by_group(
    axis: Axes,
    scores_by_group: Mapping[str, Sequence[float]],
    highlighted_group: str,
    reference_score: float | None = None,
    reference_name: str = "",
) -> None:
    """Draw the accuracies (%) of repeated random draws, a row of points for each group.

    A draw is one repetition of an experiment with a random seed. Each row also has the
    mean with its 95 % interval. With two groups of equally many draws, at least SEEDS
    (3), their mean paired difference is added to the title of the panel.

    scores_by_group: {group: scores [N]}, such as two methods; draw i of all groups is a
    pair.
    highlighted_group: the group that has a colour of its own, and from which the other
    is subtracted.
    reference_score: a score (%) that is drawn as a vertical line; None for no line.
    reference_name: the name of this line in the legend."""
    if text := describe_paired_score_difference(scores_by_group, highlighted_group):
        start = axis.get_title()
        axis.set_title(f"{start}, {text}" if start else text)
    for y, (name, scores) in enumerate(scores_by_group.items()):
        look = NEW if name == highlighted_group else OLD
        e = estimate_mean_over_seeds(scores)
        # Equal scores are stacked, so that none hides another.
        ordered = pd.Series(sorted(scores))
        rank = ordered.groupby(ordered.round(2)).cumcount()
        axis.plot(ordered, y + 0.2 + 0.09 * rank, ".", color=look["color"], alpha=0.6)
        axis.errorbar(
            e.mean, y, xerr=e.high - e.mean, capsize=3, **look | {"linestyle": "none"}
        )
    axis.plot([], [], ".", color=GREY, label="a draw")
    axis.errorbar([], [], xerr=[], fmt="s", color=GREY, label="mean, 95 % interval")
    if reference_score is not None:
        axis.axvline(reference_score, color=GREY, ls=":", label=reference_name)
    label_rows_and_x_axis(axis, list(scores_by_group), "accuracy (%)")


def draw_line_in_model_style(
    axis: Axes,
    x: Sequence[float],
    y: Sequence[float],
    model_kind: str,
    **line_options: Any,
) -> list[Line2D]:
    """Draw a line in the colour and dash of a kind of model, without markers.

    Return the matplotlib line in a list. Figures of all papers give a kind the same
    look.

    model_kind: a key of LOOKS, such as "BERT" or "Ghost"; others raise KeyError.
    line_options: options of axis.plot in place of the colour, dash and others of the
    kind."""
    look = LOOKS[model_kind] | {"lw": 2, "marker": ""}
    return axis.plot(x, y, **look | line_options)


def draw_labelled_points(
    axis: Axes,
    points: pd.DataFrame,
    x_column: str,
    y_column: str,
    style_by_point: Sequence[dict[str, Any]] | None = None,
    **shared_style: Any,
) -> None:
    """Draw points, each with its name beside it, for a scatter plot of models.

    The names are the index of `points`. In the left half of the panel a name stands to
    the left of its point, else to the right. A name that overlaps another name or a
    point moves up, and a thin line connects it with its point.

    x_column, y_column: names of columns of `points`.
    style_by_point: options of axis.plot for each point, in the order of `points`; None
    for points that look alike.
    shared_style: options of axis.plot for all points, used without `style_by_point`."""
    style_by_point = style_by_point or [shared_style] * len(points)
    for at_x, at_y, style in zip(
        points[x_column], points[y_column], style_by_point, strict=True
    ):
        axis.plot(at_x, at_y, **style | {"markersize": 7, "linestyle": "none"})
    axis.margins(0.65, 0.12)
    assert isinstance(axis.figure, Figure)
    # Place the panels, since the positions of the names depend on them.
    axis.figure.draw_without_rendering()
    centres = axis.transData.transform(np.asarray(points[[x_column, y_column]], float))
    placed = [Bbox([centre - 5, centre + 5]) for centre in centres]
    middle = axis.bbox.x0 + axis.bbox.width / 2
    rows: Any = points.sort_values(y_column).iterrows()
    for name, row in rows:
        point = row[x_column], row[y_column]
        is_left = axis.transData.transform(point)[0] < middle
        side, near = (-1, "right") if is_left else (1, "left")
        text = axis.annotate(
            name,
            point,
            textcoords="offset points",
            xytext=(7 * side, 0),
            # A white box keeps names readable on lines.
            bbox={"facecolor": "white", "alpha": 0.7, "lw": 0, "pad": 0},
            ha=near,
            va="center",
            size=8.5,
        )
        for up in range(0, 60, 3):
            text.xyann = (7 * side, up)
            place = text.get_window_extent()
            if not any(place.overlaps(other) for other in placed):
                break
        placed.append(place)
        if up:  # A thin line connects a moved name with its point.
            axis.annotate(
                "",
                point,
                textcoords="offset points",
                xytext=text.xyann,
                arrowprops={"arrowstyle": "-", "color": GREY, "lw": 0.6},
            )


def draw_legend(figure: Figure, column_count: int = 4) -> None:
    """Draw one legend below all panels of a figure, with each label once.

    column_count: number of columns of the legend."""
    entries = {}
    for axis in figure.axes:
        handles, labels = axis.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    if entries:
        figure.legend(
            entries.values(),
            entries,
            loc="outside lower center",
            ncols=column_count,
            fontsize=9,
        )


def draw_matrix(
    axis: Axes,
    matrix: np.ndarray,
    aspect: Literal["auto", "equal"] = "auto",
    **image_options: Any,
) -> AxesImage:
    """Draw a matrix as an image, without grid and ticks, and return the image.

    The caller can make a colour bar of the image."""
    axis.grid(False)
    axis.set(xticks=[], yticks=[])
    return axis.imshow(matrix, interpolation="nearest", aspect=aspect, **image_options)


def label_log_axis(axis: Axis, labelled_multiples: Sequence[float] = (1, 2, 5)) -> None:
    """Label a logarithmic axis, such as axis.xaxis, with plain numbers.

    labelled_multiples: multiples of each power of ten that are labelled."""
    axis.set_major_locator(LogLocator(subs=labelled_multiples))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def make_svg_metadata_with_title(figure: Figure) -> dict[str, str | None]:
    """Return {"Title": text, "Date": None}, the metadata of a figure's SVG file.

    The title names its panels and axes, for readers who cannot see the figure. There is
    no date, so that equal figures give equal bytes."""
    words = [figure.get_suptitle()]
    for axis in figure.axes:
        words.append(axis.get_title() or axis.get_title("left"))
        words += [f"{axis.get_ylabel()} against {axis.get_xlabel()}"] * axis.axison
    words = [word for word in dict.fromkeys(words) if word and word == word.strip(" ")]
    return {"Date": None, "Title": " ".join("; ".join(words).split()) or "figure"}
