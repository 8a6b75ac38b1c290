"""The live page: its numbers are those of the records, and it works in a browser by
mouse and by keyboard, on a phone, and without a network."""

import html.parser
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from lib.claims import evidence, judging, notebook
from lib.core import paths
from lib.core.papers import import_module_of_each_paper
from lib.papers import frontier
from lib.papers.efficientbert import drawings
from lib.papers.ghostbert import recipes as ghostbert
from lib.report import artefact, explore, verdicts
from lib.report.builder import read_page_html_and_digest

CHROMIUM = Path(shutil.which("chromium") or "/usr/bin/chromium")
MOST = 6_500_000  # bytes of the page
KERNELS = "ghostbert_f03_kernel_size"
ONCE = [line for line in judging.read_verdicts_csv() if not line["same_as"]]


def number(text):
    return float(text) if text else np.nan


def ends_of(values, bar):
    """The ends of error bars; where there is no interval both are the value."""
    return values - bar["arrayminus"], values + bar["array"]


@pytest.fixture(scope="module")
def few():
    """The points of three models on SST-2: every model takes minutes."""
    rows = evidence.list_notebook_runs_to_execute("mini", explore.FRONTIER)
    names = [("Whole", 0), ("Width", 6), ("Layer dropping", 6)]
    few = [
        row
        for row in rows
        if row["kind"] != "model"
        or (row["task"] == "SST-2" and (row["model"], row["m"]) in names)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explore.evidence, "list_notebook_runs_to_execute", lambda *_: few)
        return explore.tabulate_score_and_cost_of_models("mini")


@pytest.mark.papers("nas_pruning")
def test_no_point_is_there_before_a_model_is(monkeypatch):
    rows = evidence.list_notebook_runs_to_execute("mini", explore.FRONTIER)
    first = next(row for row in rows if row["kind"] == "search")
    monkeypatch.setattr(
        explore.evidence, "list_notebook_runs_to_execute", lambda *_: [first]
    )
    assert (
        len(explore.find_finished_notebook_runs(explore.FRONTIER, "mini").current) == 1
    )
    assert explore.tabulate_score_and_cost_of_models("mini").empty


def test_every_comparison_has_the_numbers_of_verdicts():
    shown = explore.plot_claim_comparisons(explore.read_claim_comparisons())
    drawn, printed = {}, {}
    for trace in shown.traces:
        if trace["meta"]["rows"]:
            lows, highs = ends_of(trace["x"], trace["error_x"])
            place = trace["meta"]["runs"].removeprefix("recorded, ")
            cells = zip(trace["y"], trace["x"], lows, highs, strict=True)
            drawn |= {(place, plain(name)): values for name, *values in cells}
        elif "hovertext" in trace:
            pairs = zip(trace["y"], trace["x"], strict=True)
            printed |= {plain(name): value for name, value in pairs}
    assert len(drawn) == len(ONCE) > 100
    for line in ONCE:
        word = verdicts.format_verdict_word_with_symbol(line["word"])
        name = f"{line['claim']} {line['sentence']}: {word}"
        mean = line["estimate"]
        numbers = [number(line[key] or mean) for key in ("estimate", "low", "high")]
        np.testing.assert_allclose(drawn[line["profile"], name], numbers, rtol=1e-9)
        np.testing.assert_equal(printed[name], number(line["printed"]))


def plain(name):
    return name.replace("<br>", " ")


@pytest.mark.papers()
def test_a_point_has_the_numbers_of_the_frontier_and_names_its_runs(few):
    page = (paths.ROOT / "figures/mini/91_frontier.page.md").read_text()
    shown = explore.plot_score_against_cost(few)
    assert {trace["meta"]["cost"] for trace in shown.traces} == {
        *frontier.AXES.values(),
        explore.MILLISECONDS,
    }
    for model, cost, unit in (
        ("Whole", "flops", frontier.AXES["flops"]),
        ("Width 6/12", "bytes", frontier.AXES["bytes"]),
        ("Layer dropping 6/12", "ms", explore.MILLISECONDS),
    ):
        (trace,) = (
            trace
            for trace in shown.traces
            if trace["meta"].get("methods") == model.removesuffix(" 6/12")
            and trace["meta"]["cost"] == unit
        )
        row = few[few["model"] == model].iloc[0]
        assert list(trace["x"]) == [row[cost]] and list(trace["y"]) == [row["score"]]
        (low,), (high,) = ends_of(trace["y"], trace["error_y"])
        ends = row[["low", "high"]].fillna(row["score"]).astype(float)
        np.testing.assert_allclose([low, high], ends)
        text = trace["hovertext"][0]
        ends = f"[{low:.1f}, {high:.1f}]" if row["seeds"] > 2 else ""
        score = f"{row['score']:.1f}"
        assert re.search(
            rf"\| {re.escape(model)} \| \w+ \| {score} \| {re.escape(ends)} *\|", page
        )
        run, _, seeds = row["runs"].partition("/")
        for seed in seeds.split(", "):
            record = paths.records_root() / run / seed
            assert record.exists() and row["runs"] in text and model in text


def test_the_sweep_has_the_numbers_of_its_claim():
    """G4 has k = 3 minus another size; the page has it the other way round."""
    table = explore.compute_score_differences_from_baseline(
        explore.find_finished_notebook_runs(KERNELS, "mini"), "k = 3"
    )
    lines = [
        line
        for line in judging.read_verdicts_csv()
        if line["claim"] == "G4" and line["estimate"]
    ]
    assert len(lines) == 2 * (len(ghostbert.KERNELS) - 1)
    for line in lines:
        rival, m = re.fullmatch(r"k = 3 > (k = \d+) @ m=(\d)", line["cell"]).groups()
        row = table[(table["model"] == rival) & (table["m"] == f"{m}/12")].iloc[0]
        assert row["gap"] == pytest.approx(-float(line["estimate"]), abs=1e-7)
        assert np.isnan(row["low"]) == (not line["low"])


def test_the_networks_of_the_surfaces_are_those_of_figure_5():
    path = notebook.find_notebook_path("efficientbert_f05_nonlinearity_surface")
    cells = json.loads(path.read_text())["cells"]
    names = {
        name: p.default
        for name, p in notebook.read_parameter_declarations(path).items()
    }
    first = next(c for c in cells if c["metadata"].get("tags") == ["artefact"])
    exec("".join(first["source"]).partition("surfaces = ")[0], names)
    assert drawings.list_networks_of_figure_5(names["seed"]) == names["panels"]


class Loads(html.parser.HTMLParser):
    """What a page would load from elsewhere; links that a reader follows are none."""

    def __init__(self, text):
        super().__init__()
        self.outside, self.tag = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tag = tag
        for name, value in attrs:
            is_followed = tag == "a" and name == "href"
            is_load = name in ("src", "href", "srcset", "data", "poster", "action")
            if is_load and not is_followed and re.match(r"\s*(\w+:)?//", value or ""):
                self.outside.append(f"{tag} {name} {value}")
            if name == "style":
                self.look(value or "")

    def handle_data(self, data):
        if self.tag in ("style", "script"):
            self.look(data)
        self.tag = ""

    def look(self, text):
        """In styles and scripts: what loads a file by its address."""
        loads = r"""@import[^;]*|url\(\s*["']?(?:\w+:)?//[^)]*"""
        loads += r"|\b(?:fetch|importScripts|import|XMLHttpRequest|WebSocket)\s*\("
        self.outside += re.findall(loads, text)


def outside(page):
    """What the HTML of a page loads from elsewhere. Plotly's own script is held to the
    package's instead: the browser shows that it asks for nothing."""
    from plotly.offline import get_plotlyjs

    return Loads(page.replace(get_plotlyjs(), "")).outside


@pytest.mark.parametrize(
    "text",
    [
        "<script src='https://a.b/c.js'></script>",
        "<link rel='stylesheet' href='//a.b/c.css'>",
        "<img alt='' src='http://a.b/c.png'>",
        "<style>@import 'c.css';</style>",
        "<p style='background: url(https://a.b/c.png)'>",
        "<script>fetch('c.json')</script>",
    ],
)
def test_a_load_from_elsewhere_is_seen(text):
    assert outside(f"<p><a href='https://a.b'>a link</a></p>{text}")


@pytest.mark.parametrize("name", ["index", "frame", "live"])
def test_templates_load_nothing(name):
    folder = verdicts.TEMPLATE
    assert not outside((folder / f"{name}.html.j2").read_text())
    assert not outside(f"<script>{(folder / 'live.js').read_text()}</script>")


def test_in_jupyterlab_a_figure_is_html_that_needs_no_extension(monkeypatch):
    """Its script is an output of the notebook, and its links open notebooks."""
    shown = []
    monkeypatch.delenv(notebook.BATCH, raising=False)
    monkeypatch.setattr(artefact, "display", lambda told, **_: shown.append(told))
    page = artefact.Page("explore", {"profile": "mini"}, paths.FIGURES / "mini")
    artefact.display_text("", explore.make_plotly_script_html())
    page.show_live_figure(
        explore.plot_claim_comparisons(explore.read_claim_comparisons())
    )
    script, figure = shown
    assert {*script, *figure} == {"text/html", "text/markdown"}
    assert "plotly.js v" in script["text/html"] and "live(" in figure["text/html"]
    assert not outside(script["text/html"] + figure["text/html"])
    more = re.findall(
        r'<script type="application/json">(.*?)</script>', figure["text/html"]
    )
    links = json.loads(more[1])["links"].values()
    assert links and all((paths.NOTEBOOKS / link).exists() for link in links)


def test_pages_that_are_there_load_nothing_and_one_has_the_script():
    """All HTML that a report made in this checkout, however it was made."""
    found = sorted(paths.FIGURES.rglob("*.html"))
    if not found:
        pytest.skip("no report was made in this checkout")
    for path in found:
        text = path.read_text()
        assert not outside(text), path
        is_live = (
            path.stem == "explore" and read_page_html_and_digest(path)[1] != "promised"
        )
        assert ("plotly.js v" in text) == is_live, path


@pytest.fixture(scope="module")
def page(few, tmp_path_factory):
    """A page of all kinds of figures, as a command makes it."""
    frame = verdicts.ENVIRONMENT.get_template("frame.html.j2").module
    table = explore.compute_score_differences_from_baseline(
        explore.find_finished_notebook_runs(KERNELS, "mini"), "k = 3"
    )
    title = ("Kernels", "k = 3", KERNELS)
    shown = import_module_of_each_paper("drawings")["efficientbert"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(notebook.BATCH, "[]")
        parts = [
            frame.top("mini", "Live"),
            explore.make_plotly_script_html(),
            explore.plot_score_against_cost(few).figure_html,
            explore.plot_claim_comparisons(
                explore.read_claim_comparisons()
            ).figure_html,
            explore.plot_score_differences_from_baseline(
                table, {"k = 5, 3/12, SST-2": 1.9}, *title
            ).figure_html,
            explore.plot_interactive_surfaces(
                shown.compute_network_surfaces_of_figure_5(21),
                shown.DECADES,
                "z",
                "f05",
            ).figure_html,
            "</main></body></html>",
        ]
    path = tmp_path_factory.mktemp("live") / "explore.html"
    path.write_text("".join(map(str, parts)))
    path.with_name("91_frontier.html").write_text("<title>The frontier</title>")
    return path


def test_the_page_is_small_and_whole(page):
    text = page.read_text()
    assert len(text.encode()) < MOST and not outside(text)


@pytest.fixture(scope="module")
def browser():
    """f(page, width, dark): the page in a browser, the addresses that it asked for, and
    the errors of its scripts."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="see requirements-dev.txt"
    )
    if not CHROMIUM.exists():
        pytest.skip("Debian's package chromium is not installed")
    flags = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    with playwright.sync_playwright() as made:
        chromium = made.chromium.launch(executable_path=CHROMIUM, args=flags)

        def see(path, width, scheme="light"):
            context = chromium.new_context(
                viewport={"width": width, "height": 800}, color_scheme=scheme
            )
            context.set_default_timeout(300_000)
            tab, asked, wrong = context.new_page(), [], []
            tab.on("request", lambda request: asked.append(request.url))
            tab.on("pageerror", lambda error: wrong.append(str(error)))
            tab.goto(path.as_uri())
            return tab, asked, wrong

        yield see
        chromium.close()


def rows_of(**labels):
    """How many comparisons of `verdicts.csv` have these labels."""
    table = explore.read_claim_comparisons()
    for name, values in labels.items():
        table = table[table[name].isin(values)]
    return len(table)


@pytest.mark.papers()
def test_a_reader_hovers_chooses_by_keyboard_and_opens_a_page(page, browser):
    tab, asked, wrong = browser(page, 1280)
    figures = tab.locator("figure.live")
    forest, shown = figures.nth(1), figures.nth(1).locator(".shown")
    measured = ["agrees", "the other way round", "no such effect here"]
    measured.append("too noisy to say")
    unit = {"unit": ["points"], "profile": ["mini"], "word": measured}
    assert shown.inner_text() == f"{rows_of(paper=['GhostBERT'], **unit)} shown"
    tab.evaluate(
        "Plotly.Fx.hover(document.querySelectorAll('.plot')[1], [{curveNumber: 1, pointNumber: 0}])"
    )
    told = forest.locator(".hoverlayer").text_content()
    first = next(line for line in ONCE if line["claim"] == "G1")
    assert "G1" in told and "printed" in told and first["unit"] in told
    forest.locator("select[name=paper]").focus()
    tab.keyboard.press("ArrowDown")
    (second,) = [explore.lists.PAPERS[name] for name in [*explore.lists.PAPERS][1:2]]
    assert shown.inner_text() == f"{rows_of(paper=[second], **unit)} shown"
    forest.locator("select[name=word]").select_option("not measured")
    left = rows_of(**unit | {"paper": [second], "word": ["not measured"]})
    assert shown.inner_text() == f"{left} shown"
    forest.locator("select[name=unit]").select_option("decades")
    assert shown.inner_text() == "Nothing has all of these choices."
    figures.nth(0).locator("select[name=cost]").select_option(explore.MILLISECONDS)
    title = figures.nth(0).locator(".xtitle").text_content()
    assert title == f"{explore.MILLISECONDS} (log)"
    with tab.expect_popup() as opened:
        point = figures.nth(0).locator(".scatterlayer .point").first
        point.click(force=True)
    assert opened.value.title() == "The frontier"
    assert "Whole" in figures.nth(0).locator(".shown").inner_text()
    figures.nth(3).locator("select[name=surface]").select_option("EfficientBERT")
    assert asked == [page.as_uri()] and not wrong


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_has_all_of_it_in_its_width(page, browser, scheme):
    tab, _, wrong = browser(page, 390, scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390 and not wrong
    inside = tab.evaluate(
        "getComputedStyle(document.querySelector('.ytick text')).fill"
    )
    assert inside == tab.evaluate("getComputedStyle(document.body).color")
