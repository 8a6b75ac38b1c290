"""This module has what figures share: a palette, a look for each kind of model, and
drawings.

The colours are those of Okabe and Ito, which colour-blind readers can tell apart. A
look has a marker and a dash of its own as well, so that nothing is told by colour
alone."""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill
from typing import Any, Literal

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator
from matplotlib.transforms import Bbox

from lib.stats.paired import SEEDS, Estimate, replicates

BLUE, VERMILION, GREEN, SKY, BLACK = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#56B4E9",
    "#000000",
)
INK, GREY, PALE = "#1c1e21", "#8a929c", "#dfe3e8"

CENTRE: dict[str, Any] = {"color": "grey", "ha": "center", "va": "center"}

# NEW is what a paper proposes, OLD what it is compared with, and PRINT what it prints.
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
LOOKS |= dict.fromkeys(("Distilled", "stage 3", "evolution"), THIRD)
MARKERS = "osD^vP"
WIDEST = 11  # A row of panels is at most this wide, in inches.


def style() -> None:
    """Set one look for all figures. The bytes of a figure do not depend on the day."""
    look = {"svg.hashsalt": "workbook", "figure.dpi": 110}
    look |= {"savefig.bbox": "tight", "axes.titlesize": "medium"}
    sns.set_theme(style="whitegrid", palette="colorblind", rc=look)


def panels(
    titles: Iterable[str],
    width: float = 4.6,
    height: float = 3.6,
    columns: int = 4,
    **shared: Any,
) -> tuple[Figure, list[Axes]]:
    """Return (figure, axes) with one panel for each title, or one empty panel without
    titles.

    width, height: the size of a panel in inches. A new row of panels begins where a row
    would be too wide to be read at 700 pixels. columns: the most panels in a row.
    shared: options of plt.subplots, such as sharey."""
    titles = list(titles) or [""]
    across = min(columns, len(titles), max(1, int(WIDEST // width)))
    down = -(-len(titles) // across)
    size = width * across, height * down
    figure, axes = plt.subplots(
        down, across, squeeze=False, figsize=size, layout="constrained", **shared
    )
    for axis, title in zip(axes.flat, titles, strict=False):
        axis.set_title(title)
    for axis in axes.flat[len(titles) :]:
        axis.axis("off")
    return figure, list(axes.flat[: len(titles)])


def means(
    axis: Axes, frame: pd.DataFrame, x: str, y: str, label: str, **look: Any
) -> None:
    """Draw the mean of y at each x over the rows of a frame, with its 95 % interval
    over seeds.

    Where there are fewer seeds than prove anything, each seed is a point and no
    interval is drawn."""
    groups: Any = frame.dropna(subset=y).groupby(x)[y]
    if not len(groups):
        return
    mean = groups.mean()
    (line,) = axis.plot(mean.index, mean, label=label, **LOOKS.get(label, {}) | look)
    colour = line.get_color()
    for x_value, values in groups:
        if len(values) < SEEDS:
            axis.plot([x_value] * len(values), values, ".", color=colour, ms=4)
        else:
            e = replicates(values)
            axis.errorbar(x_value, e.mean, e.high - e.mean, capsize=3, color=colour)


def message(axis: Axes, width: int = 46) -> None:
    """Add the values at both ends of each labelled curve to the title of a panel.

    width: the most letters in a line of the title.
    """
    ranges = []
    for curve in axis.get_lines():
        (x, y), name = map(np.asarray, curve.get_data()), str(curve.get_label())
        if name[0] != "_" and len(y) and curve.get_transform() == axis.transData:
            ends = dict.fromkeys(
                f"{y[index]:.3g}" for index in (x.argmin(), x.argmax())
            )
            ranges.append(f"{name}: {' to '.join(ends)}".replace(" ", "\u00a0"))
    lines = fill("; ".join(ranges), width, break_on_hyphens=False)
    axis.set_title(f"{axis.get_title()}\n{lines}".strip())


def dots(
    estimates: Mapping[tuple[str, str], Estimate | None],
    printed: Mapping[str, float] | Iterable[tuple[str, float]] = (),
    label: str = "difference (points)",
) -> tuple[Figure, pd.DataFrame]:
    """Draw paired differences with their 95 % intervals. Return (figure, the data that
    it draws).

    A difference of fewer seeds than prove anything is grey and has no interval.

    estimates: {(source, what is compared): Estimate or None}. Each thing compared has a
    row.

    printed: {what is compared: points}. They are diamonds in the rows that are
    measured, or in all rows where nothing is measured.
    """
    measured = {key: e for key, e in estimates.items() if e}
    printed = dict(printed)
    order = list(dict.fromkeys(comparison for _, comparison in measured) or printed)
    lines = [
        {"source": "published", "at": comparison, "gain": gain}
        for comparison, gain in printed.items()
        if comparison in order
    ]
    for (source, comparison), e in measured.items():
        ends = {"low": e.low, "high": e.high, "seeds": e.n_seeds}
        lines.append({"source": source, "at": comparison, "gain": e.mean} | ends)
    data = pd.DataFrame(lines, columns=["source", "at", "gain", "low", "high", "seeds"])
    figure, axis = plt.subplots(
        figsize=(7.2, 1.2 + 0.42 * len(order)), layout="constrained"
    )
    for (_, comparison), e in measured.items():
        if e.region:
            shade(axis, order.index(comparison), *e.region)
    sources = list(dict.fromkeys(source for source, _ in measured))
    looks = dict(zip(sources, (NEW, THIRD, OLD, REST), strict=False))
    rows: Any = data.dropna(subset="gain").itertuples()
    for row in rows:
        look = looks.get(row.source, PRINT) | {"linestyle": "none", "label": row.source}
        ends, y = None, order.index(row.at)
        if row.seeds < SEEDS:
            look |= {"color": GREY, "label": f"{row.source}, fewer than {SEEDS} seeds"}
        elif pd.notna(row.low):
            ends = [[row.gain - row.low], [row.high - row.gain]]
        if row.source in sources:  # Sources stand beside each other in a row.
            y += 0.2 * (sources.index(row.source) - (len(sources) - 1) / 2)
        axis.errorbar(row.gain, y, xerr=ends, capsize=3, **look)
    names = [fill(comparison, 46) for comparison in order]
    difference_axis(axis, names, data[["gain", "low", "high"]], label)
    axis.set_title(summary(data))
    legend(figure)
    return figure, data


def summary(data: pd.DataFrame) -> str:
    """Return the title of a picture of differences: where the printed values and 0 lie.

    data: as `dots` returns it.
    """
    printed = data[data["source"] == "published"].set_index("at")["gain"]
    ours = data[data["source"] != "published"]
    if not len(ours):
        return "printed, not measured yet"
    sure = ours[ours["seeds"] >= SEEDS]
    if not len(sure):
        return f"fewer than {SEEDS} seeds: no interval"
    if out := outside(sure.assign(printed=sure["at"].map(printed))):
        return f"the printed value lies outside our interval in {out}"
    above, below = (sure["low"] > 0).sum(), (sure["high"] < 0).sum()
    if not above + below:
        return f"no interval of {len(sure)} shuts out 0"
    return f"our interval lies above 0 in {above}, below 0 in {below} of {len(sure)}"


def outside(data: pd.DataFrame) -> str:
    """Return how many intervals shut out their printed value, as "1 of 3"; "" where no
    interval has one."""
    both = data.dropna(subset=["low", "printed"])
    out = ((both["printed"] < both["low"]) | (both["printed"] > both["high"])).sum()
    return f"{out} of {len(both)}" if len(both) else ""


def forest(data: pd.DataFrame) -> Figure:
    """Draw comparisons, a row each, with the region that a paper claims. Return the
    figure.

    The region is shaded, the printed value is a diamond, and the word stands at the
    right. A comparison without an interval is grey.

    data: a frame as `lib.claims.judging.forest` returns it.
    """
    values = ["mean", "low", "high", "printed"]
    data = data.astype(dict.fromkeys([*values, "least", "most"], float))
    data = data.fillna({"least": -np.inf, "most": np.inf})
    high = 1.2 + 0.3 * max(len(data), 2)
    figure, axis = plt.subplots(figsize=(9, high), layout="constrained")
    rows: Any = data.itertuples()
    for y, row in enumerate(rows):
        shade(axis, y, row.least, row.most)
        colour = GREY if pd.isna(row.low) else BLUE
        axis.hlines(y, row.low, row.high, color=colour, lw=1.8)
        axis.plot(row.mean, y, "o", color=colour, markersize=5)
        axis.plot(row.printed, y, "D", color=INK, markerfacecolor="none", markersize=6)
        where = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8.5}
        axis.annotate(row.word, (1.01, y), **where)
    difference_axis(axis, list(data["claim"]), data[values], "difference (points)")
    if out := outside(data):
        axis.set_title(f"In {out} the printed value lies outside our 95 % interval")
    return figure


def shade(axis: Axes, y: float, low: float, high: float) -> None:
    """Shade the region that a paper claims for the comparison in row y."""
    low, high = np.clip([low, high], -1e9, 1e9)
    axis.fill_betweenx([y - 0.45, y + 0.45], low, high, color=GREEN, alpha=0.1, lw=0)


def difference_axis(
    axis: Axes, names: Sequence[str], values: pd.DataFrame, label: str
) -> None:
    """Lay out an axis of differences with a row for each comparison; 0 has a line.

    It is logarithmic outside -1 to 1, where the values reach beyond 20.
    """
    axis.axvline(0, color=INK, lw=0.8)
    name_rows(axis, names, label)
    ends: Any = values.stack()
    if not len(ends):
        return
    wide = 0.4 if ends.abs().max() > 20 else 0.05
    margin = wide * max(ends.max() - ends.min(), 1)
    limits = min(ends.min(), 0) - margin, max(ends.max(), 0) + margin
    if max(map(abs, limits)) > 20:
        axis.set_xscale("symlog", linthresh=1)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.set_xlabel(f"{label}, logarithmic beyond ±1")
    axis.set_xlim(*limits)


def name_rows(axis: Axes, names: Sequence[str], label: str) -> None:
    """Name the rows of an axis, the first one at the top, and what its x axis shows."""
    axis.set(xlabel=label, yticks=range(len(names)), yticklabels=names)
    axis.set_ylim(max(len(names), 1) - 0.5, -0.5)


def draws(
    axis: Axes,
    groups: Mapping[str, Sequence[float]],
    new: str,
    reference: float,
    label: str,
) -> None:
    """Draw scores of random draws {name: [N]} in %, a row each, with their mean's 95 %
    interval.

    The means are added to the title of the panel. new: the name whose row has the look
    of what is new. reference, label: a score to compare with, and its name."""
    averages = ", ".join(
        f"{name} {sum(scores) / len(scores):.1f}" for name, scores in groups.items()
    )
    axis.set_title(f"{axis.get_title()}\n{averages} %".strip())
    for y, (name, scores) in enumerate(groups.items()):
        look, e = NEW if name == new else OLD, replicates(scores)
        axis.plot(scores, [y + 0.2] * len(scores), ".", color=look["color"], alpha=0.6)
        axis.errorbar(
            e.mean, y, xerr=e.high - e.mean, capsize=3, **look | {"linestyle": "none"}
        )
    axis.axvline(reference, color=GREY, ls=":", label=label)
    name_rows(axis, list(groups), "accuracy (%)")


def line(
    axis: Axes, x: Sequence[float], y: Sequence[float], kind: str, **more: Any
) -> list[Line2D]:
    """Draw a line in the look of its kind, without markers."""
    look: dict[str, Any] = {"lw": 2}
    look |= {name: LOOKS[kind][name] for name in ("color", "linestyle")}
    return axis.plot(x, y, **look | more)


def label_points(
    axis: Axes,
    points: pd.DataFrame,
    x: str,
    y: str,
    looks: Sequence[dict[str, Any]] | None = None,
    **look: Any,
) -> None:
    """Draw points with their names, the index of `points`, beside them.

    Names stand on the outer side of the points. A name that meets another name or a
    point moves up.

    looks: one look for each point, where they differ.
    """
    looks = looks or [look] * len(points)
    size: dict[str, Any] = {"markersize": 7}
    for at_x, at_y, point_look in zip(points[x], points[y], looks, strict=True):
        axis.plot(at_x, at_y, **size | point_look | {"linestyle": "none"})
    axis.margins(0.65, 0.12)
    assert isinstance(axis.figure, Figure)
    axis.figure.draw_without_rendering()  # The panels get their places.
    centres = axis.transData.transform(np.asarray(points[[x, y]], float))
    placed = [Bbox([centre - 5, centre + 5]) for centre in centres]
    middle = axis.bbox.x0 + axis.bbox.width / 2
    # Names can be read on lines.
    box = {"facecolor": "white", "alpha": 0.7, "lw": 0, "pad": 0}
    rows: Any = points.sort_values(y).iterrows()
    for name, row in rows:
        point = row[x], row[y]
        is_left = axis.transData.transform(point)[0] < middle
        side, near = (-1, "right") if is_left else (1, "left")
        where: dict[str, Any] = {"xy": point, "textcoords": "offset points"}
        text = axis.annotate(
            name,
            **where,
            xytext=(7 * side, 0),
            bbox=box,
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
        if up:  # A line leads from the name to its point.
            line = {"arrowstyle": "-", "color": GREY, "lw": 0.6}
            axis.annotate("", **where, xytext=text.xyann, arrowprops=line)


def legend(figure: Figure, columns: int = 4, **more: Any) -> None:
    """Draw one legend below all panels; it has each label once."""
    entries = {}
    for axis in figure.axes:
        handles, labels = axis.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    options: dict[str, Any] = {"ncols": columns, "fontsize": 9} | more
    if entries:
        place = "outside lower center"
        figure.legend(entries.values(), entries, loc=place, **options)


def picture(
    axis: Axes,
    values: np.ndarray,
    aspect: Literal["auto", "equal"] = "auto",
    **look: Any,
) -> AxesImage:
    """Draw a matrix as an image, without grid and ticks. Return the image, for a colour
    bar."""
    axis.grid(False)
    axis.set(xticks=[], yticks=[])
    return axis.imshow(values, interpolation="nearest", aspect=aspect, **look)


def plain_log(axis: Axis, subs: Sequence[float] = (1, 2, 5)) -> None:
    """Label a logarithmic axis, such as axis.xaxis, with plain numbers."""
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def described(figure: Figure) -> dict[str, str | None]:
    """Return the metadata of a figure. The title tells of its axes, for readers who
    cannot see it.
    """
    words = [figure.get_suptitle()]
    for axis in figure.axes:
        words.append(axis.get_title() or axis.get_title("left"))
        words += [f"{axis.get_ylabel()} against {axis.get_xlabel()}"] * axis.axison
    words = [word for word in dict.fromkeys(words) if word and word == word.strip(" ")]
    return {"Date": None, "Title": " ".join("; ".join(words).split()) or "figure"}
