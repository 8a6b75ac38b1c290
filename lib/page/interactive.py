"""A scatter of models that a reader can filter, in a page that needs no server and no network.

Bokeh draws it. Its scripts stand in the page itself, 1.7 MB, so one page alone has them.
"""

from bokeh import models
from bokeh.embed import components
from bokeh.layouts import column, row
from bokeh.plotting import figure
from bokeh.resources import Resources

from lib.page import plot

COLOURS = (plot.BLACK, plot.BLUE, plot.VERMILION, plot.GREEN, plot.SKY)
MARKERS = ("x", "circle", "square", "diamond", "triangle")


def explorer(table, axes, whole):
    """HTML of a scatter of `score`, with its interval `low` to `high`, against a cost.

    table: one row a point, with the columns model, method, kind, task, seeds, score, low, high and
    those of axes {column: how it is called}. whole: {column: cost of the whole model}. Knobs choose
    the axis, the task, methods, and a budget: the largest share of the whole model's cost.
    """
    first, kinds = next(iter(axes)), list(dict.fromkeys(table["kind"]))
    looks = {kind: n % len(COLOURS) for n, kind in enumerate(kinds)}
    shares = {f"{name} share": table[name] / whole[name] for name in axes}
    source = models.ColumnDataSource(
        table.assign(
            x=table[first],
            share=shares[f"{first} share"],
            colour=[COLOURS[looks[kind]] for kind in table["kind"]],
            marker=[MARKERS[looks[kind]] for kind in table["kind"]],
            **shares,
        )
    )
    knobs = {
        "axis": models.Select(title="Cost", value=first, options=list(axes.items())),
        "task": models.Select(
            title="Task", value=table["task"].iloc[0], options=sorted({*table["task"]})
        ),
        "methods": models.MultiChoice(
            title="Methods, all where none is chosen", options=list(dict.fromkeys(table["method"]))
        ),
        "budget": models.Slider(
            title="Budget, % of the whole model's cost", start=5, end=105, value=105, step=5
        ),
    }
    chosen = models.CustomJSFilter(args=knobs, code=CHOSEN)
    shown = figure(
        height=460,
        sizing_mode="stretch_width",
        x_axis_type="log",
        x_axis_label=axes[first],
        y_axis_label="score in points, 95 % interval",
        tools="pan,box_zoom,wheel_zoom,reset,save",
    )
    look = {"source": source, "view": models.CDSView(filter=chosen), "color": "colour"}
    dots = {"marker": "marker", "size": 10, "legend_group": "kind"}
    points = shown.scatter("x", "score", **dots, **look)
    shown.segment("x", "low", "x", "high", alpha=0.5, **look)
    told = [("", "@model"), ("score", "@score{0.0} [@low{0.0}, @high{0.0}]"), ("seeds", "@seeds")]
    told += [(name, f"@{{{name}}}{{0.0}}") for name in axes]
    shown.add_tools(models.HoverTool(renderers=[points], tooltips=told))
    shown.legend.location = "bottom_right"
    change = models.CustomJS(
        args=knobs | {"source": source, "label": shown.xaxis[0], "names": axes}, code=CHANGE
    )
    for knob in knobs.values():
        knob.js_on_change("value", change)
    turned = row(*knobs.values(), sizing_mode="stretch_width", styles={"flex-wrap": "wrap"})
    parts = components(column(turned, shown, sizing_mode="stretch_width"))
    scripts = Resources(mode="inline", components=["bokeh", "bokeh-widgets"]).render()
    return scripts + "".join(parts)


CHOSEN = """
const d = source.data
return Array.from(d.model, (_, i) =>
  d.task[i] == task.value && d.share[i] <= budget.value / 100 &&
  (methods.value.length == 0 || methods.value.includes(d.method[i])))
"""
CHANGE = """
source.data.x = source.data[axis.value]
source.data.share = source.data[axis.value + " share"]
label.axis_label = names[axis.value]
source.change.emit()
"""
