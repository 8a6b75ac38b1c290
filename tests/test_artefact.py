"""What a page shows and writes: printed digits, files of their own, each run once, and
a sentence where nothing is."""

import html
import json
import re
from math import nan
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from conftest import of_papers
from nbconvert.filters import markdown2html

from lib.claims import notebook
from lib.claims.cells import parse_comparison
from lib.claims.words import Result, Verdict
from lib.cluster import sweep
from lib.core import paths
from lib.core.options import Numerics
from lib.core.rows import Row
from lib.core.spec import Spec
from lib.papers import published
from lib.papers.published import PrintedNumber
from lib.report import artefact, builder, plot, tables, verdicts
from lib.report.tables import Runs
from lib.stats import compare
from lib.stats.paired import Estimate

NAME = "ghostbert_t03_pruned_vs_ghost"
SPEC = Spec("checkpoint", {"name": "all-MiniLM-L6-v2", "digest": "0" * 64})
ROWS = [Row(SPEC, seed=seed) for seed in range(4)]


def as_html(told):
    """What a page shows of an output."""
    return told.get("text/html") or markdown2html(told["text/markdown"])


@pytest.fixture
def page(monkeypatch, tmp_path):
    """An open page; `page.html()` is what it has displayed, `page.light()` in
    Markdown."""
    said = []
    monkeypatch.setattr(paths, "FIGURES", tmp_path)
    monkeypatch.setattr(artefact, "display", lambda told, **_: said.append(told))
    page = artefact.Page(NAME, {"profile": "toy"}, tmp_path / "toy")
    page.html = lambda: "".join(map(as_html, said))
    page.light = lambda: "\n\n".join(told.get("text/markdown", "") for told in said)
    return page


def collected(monkeypatch, *origins, error=""):
    """Let every later `collect` find runs of these origins, "" for one that is
    missing."""

    def run(row, origin):
        told = {"name": row["spec"].name, "spec": row["spec"].to_json(), "metrics": {}}
        return (
            SimpleNamespace(origin=origin, float32_run=None, **told) if origin else None
        )

    def collect(rows, *_, **more):
        return pd.DataFrame(
            [
                dict(row)
                | {
                    "run": run(row, origin),
                    "error": "" if origin else error,
                    "state": "finished" if origin else "missing",
                }
                for row, origin in zip(rows, origins, strict=False)
            ]
        )

    monkeypatch.setattr(artefact, "collect_results", collect)
    monkeypatch.setattr(sweep, "execute_specs", lambda specs, **how: {})


def test_published_cells_keep_their_digits(page):
    parts = {
        "a": {
            ("published", name): PrintedNumber(text)
            for name, text in {"x": "1.239", "y": "0.040", "z": "12"}.items()
        },
        "b": {("published", "x"): PrintedNumber("0.375")}
        | {("ours", name): "1.2" for name in "xyz"},
    }
    page.show_table(compare.join_tables_by_row(parts), "Digits")
    for text in (page.html(), (page.folder / f"{NAME}.csv").read_text()):
        assert all(digits in text for digits in ("1.239", "0.375", "0.040", "12"))
        assert "12.0" not in text


def test_measured_columns_stand_beside_the_printed_ones_of_their_task(page):
    heads = [("published", task) for task in ("MNLI", "QQP", "SST-2", "RTE")]
    heads += [("recorded, mini", "SST-2 Acc"), ("recorded, mini", "gates")]
    page.show_table({"a": {head: "7" for head in heads}}, "Scores")
    head = (page.folder / f"{NAME}.csv").read_text().splitlines()[0].split('"')[1::2]
    assert head == [", ".join(each) for each in heads]
    titles = ["published, SST-2", "recorded, mini, SST-2 Acc", "recorded, mini, gates"]
    assert f"|  | {' | '.join(titles)} |" in page.light()
    assert "gates" in page.html() and "MNLI" not in page.html()
    assert f"{NAME}.csv, written with the page, has 3 more columns" in page.html()


def test_a_figure_tells_what_it_shows_to_those_who_do_not_see_it(page):
    figure, axis = plt.subplots()
    axis.set(title="recorded, mini", xlabel="GFLOPs", ylabel="points")
    page.show_figure(figure, pd.DataFrame({"x": [1, 2]}))
    assert "<title>recorded, mini; points against GFLOPs</title>" in page.html()


@pytest.mark.parametrize(
    "paper, name",
    [
        of_papers("nas_pruning", "table06_test_tinybert4l"),
        of_papers("nas_pruning", "table08b_mnist_3layer"),
        of_papers("efficientbert", "table02_glue_test"),
        of_papers("bermo", "table04_pruning_methods"),
    ],
)
def test_the_loader_for_the_eye_gives_the_file(paper, name):
    shown = published.read_table_with_printed_digits(paper, name)
    numbers = published.read_table(paper, name)
    file = pd.read_csv(
        paths.PUBLISHED / paper / f"{name}.csv", dtype=str, na_values="-"
    )
    assert shown.map(str, na_action="ignore").fillna("").to_dict(
        "records"
    ) == file.fillna("").to_dict("records")
    for column in numbers.select_dtypes("number"):
        assert np.array_equal(
            shown[column].astype(float), numbers[column].astype(float), equal_nan=True
        )


@pytest.mark.parametrize(
    "value, text",
    [
        (82.3071, "82.31"),
        (3.0, "3"),
        (84.0 - 83.2, "0.8"),
        (1e-5, "1e-05"),
        ("81.2 ± 0.4 (3)",) * 2,
    ]
    + [(7, "7"), (PrintedNumber("0.040"), "0.040")],
)
def test_floats_have_four_digits_and_printed_numbers_their_own(value, text):
    assert tables.format_table_cell(value) == text


def test_a_figure_overwrites_no_table(page):
    page.show_table(pd.DataFrame({"score": ["81.2"]}), "Table")
    page.show_figure(plt.subplots()[0], pd.DataFrame({"x": [1, 2]}))
    assert len(page.written_files) == len(set(page.written_files))
    assert "81.2" in (page.folder / f"{NAME}.csv").read_text()
    assert "81.2" not in (page.folder / f"{NAME}.figure.csv").read_text()


@pytest.mark.parametrize("user_notes", [["Data: a$b$.csv."], []])
def test_a_dollar_in_a_users_name_is_no_formula(page, monkeypatch, user_notes):
    notes = property(lambda self: user_notes)
    monkeypatch.setattr(artefact.Page, "custom_data_and_model_notes", notes)
    figure, axis = plt.subplots()
    axis.set(title=r"price in a$b_\$c$.csv" if user_notes else "$b_1$", xticks=[0])
    axis.set_xticklabels([r"$\nosuchword$" if user_notes else "$b_1$"])
    page.show_figure(figure, pd.DataFrame({"x": [1, 2]}))
    assert axis.title.get_parse_math() == (not user_notes)
    assert (page.folder / f"{NAME}.png").stat().st_size


def test_what_has_no_run_says_what_it_would_show(page):
    page.show_figure(plt.subplots()[0], pd.DataFrame(columns=["candidate", "final"]))
    page.show_table(compare.join_tables_by_row(), "Scores of nothing")
    page.show_table(
        pd.DataFrame({"score": ["–", None]}, index=["Ghost", "Prune"]),
        "Scores in points",
    )
    assert not page.written_files and "<table" not in page.html()
    for words in (
        "It draws candidate, final",
        "Scores of nothing",
        "Scores in points. Rows: Ghost, Prune",
    ):
        assert words in page.html()


def test_each_run_is_counted_once_and_why_it_is_missing_is_told_once(page, monkeypatch):
    collected(
        monkeypatch, "run", "record", "", "", error="no checkpoint: make offline-models"
    )
    page.collect_result_frame(ROWS)
    page.collect_result_frame(ROWS[:3], if_missing="skip")
    page.show_verdicts_and_write_json()
    assert (
        page.html().count("2 of 4 runs are missing: no checkpoint: make offline-models")
        == 1
    )
    assert page.html().count("make offline-models") == 1
    assert "Runs: 1 made here, 1 recorded;" in page.html()
    assert len(json.loads((page.folder / f"{NAME}.json").read_text())["runs"]) == 4


def test_a_page_tells_how_many_comparisons_have_which_dtype(page, monkeypatch):
    def rows(*dtypes):
        return [
            Row(
                Spec("finetune", {"numerics": Numerics(dtype, 1)}),
                model=model,
                task="CoLA",
                seed=seed,
            )
            for seed, pair in enumerate(dtypes)
            for model, dtype in zip("ab", pair, strict=True)
        ]

    one, other = "bfloat16", "float32"
    collected(monkeypatch, *["record"] * 6)
    page.collect_result_frame(rows((one, one), (one, one)))
    assert "compared" not in page.html()
    page.collect_result_frame(rows((one, one), (other, other), (one, other)))
    told = "1 in bfloat16, 1 in float32; 1 with runs of two dtypes: within"
    assert page.html().count(told) == 1


@pytest.mark.papers("ghostbert")
def test_runs_that_a_page_asks_for_go_where_the_command_sends_its_runs(
    tmp_path, monkeypatch
):
    """Else a student is trained on the machine from which jobs are submitted."""
    told = json.dumps([str(tmp_path), [], "slurm:slurm_partition=night", 7])
    monkeypatch.setenv(notebook.BATCH, told)
    page = artefact.open_page(NAME, {"profile": "toy"})
    assert page.folder == tmp_path
    sent = {}
    monkeypatch.setattr(sweep, "execute_specs", lambda _, **how: sent.update(how) or {})
    monkeypatch.setattr(artefact.Store, "plan_missing_runs", lambda *_: {1: False})
    monkeypatch.setattr(sweep, "describe_missing_runs", lambda *told: str(told[2]))
    page.collect_result_frame([], "run_always")
    assert (sent["backend"], sent["workers"]) == ("slurm:slurm_partition=night", 7)


def test_records_are_not_called_this_run():
    def frame(*origins):
        return pd.DataFrame(
            {
                "run": [
                    SimpleNamespace(origin=origin) if origin else None
                    for origin in origins
                ]
            }
        )

    assert (
        compare.format_score_column_heading(frame("record", ""), "mini")
        == "recorded, mini"
    )
    assert (
        compare.format_score_column_heading(frame("run", ""), "toy") == "this run, toy"
    )
    assert compare.format_score_column_heading(frame(""), "toy") == "not run, toy"
    assert (
        compare.format_score_column_heading(frame("run", "record"), "mini")
        == "this run and recorded, mini"
    )

    def sources(own, recorded, profile):
        return [
            source
            for source, *_ in Runs(
                frame(own), frame(recorded), profile
            ).result_frames_with_source
        ]

    assert sources("run", "record", "toy") == ["recorded, mini", "this run, toy"]
    assert sources("run", "", "toy") == ["this run, toy"]
    assert sources("record", "record", "mini") == ["recorded, mini"]


EVIL = """<script>alert("x")</script> & 'y' | z"""


def test_what_data_and_errors_hold_is_shown_and_never_run(page, monkeypatch):
    """In cells, names of rows and columns, captions, notes, deviations, errors and
    sentences."""
    collected(monkeypatch, "", "run", error=EVIL)
    frame = page.collect_result_frame(ROWS[:2])
    page.show_table({EVIL: {EVIL: EVIL, "a": 1.5}}, EVIL, index_names=[f"all {EVIL}"])
    page.show_table(frame[["error"]].iloc[:0], EVIL, "none")
    page.show_remarks([EVIL], EVIL, EVIL)
    page.show_figure(plt.figure(), pd.DataFrame(columns=[EVIL]), "empty")
    page.show_verdicts_and_write_json([], {"toy": [EVIL]})
    assert "<script" not in page.html() and page.html().count("&lt;script&gt;") >= 8
    cell = html.escape(EVIL, quote=False).replace("|", "\\|")
    assert f"| {cell} |" in page.light() and "<script" not in page.light()


@pytest.mark.papers("bermo", "ghostbert")
def test_a_light_page_has_the_answer_first_and_all_that_the_notebook_shows(page):
    """Text, tables, notes, pictures, verdicts behind them; not what follows the
    verdicts."""
    page.show_remarks(["a | b *"], remark_prefix="* ", collapsible_title="Read")
    page.show_table({("1/12", "A"): {("ours", "x"): "1.2"}}, "Scores")
    figure, axis = plt.subplots()
    axis.set_title("T")
    axis.plot([1, 2])
    page.show_figure(figure, pd.DataFrame({"x": [1]}))
    sizes = Verdict(
        "Sizes:", verdict_word="equal", measured="2 | 3; 4", note="so be it"
    )
    page.show_verdicts_and_write_json([sizes], {"toy": ["Smaller."]})
    cells = [
        {
            "cell_type": "markdown",
            "metadata": {"tags": ["title"]},
            "source": ["# Old\n", "Why?"],
        },
        {
            "cell_type": "code",
            "metadata": {"tags": ["verdicts"]},
            "source": [],
            "outputs": [{"data": {"text/markdown": [page.light()]}}],
        },
        {"cell_type": "markdown", "metadata": {}, "source": ["## Turn the knobs"]},
    ]
    link = {
        "cell_type": "markdown",
        "metadata": {},
        "source": ["See [b](../bermo/b.ipynb), not `](c.ipynb)`"],
    }
    cells.insert(1, link)
    result = Result(
        "G1",
        parse_comparison("a > b"),
        "SST-2",
        None,
        0,
        3,
        sentence="Ghosts minus pruning",
    )
    found = verdicts.list_main_result_sentences(
        [Verdict("G1", (result,), kind="finding")], claim_test_profile="toy"
    )
    body = {"id": NAME, "profile": "toy", "runs": [], "answer": found, "counted": ""}
    body |= {"records": "0123"}
    text = builder.convert_notebook_to_markdown(
        {"cells": cells}, "GhostBERT: New", body
    )
    parts = [
        "# GhostBERT: New",
        "**No comparison of this page is measured at toy: not run yet.**",
        "Why?",
        ">Read</",
        "- \\* a \\| b \\*",
    ]
    parts += [
        "*Scores*",
        "|  |  | ours, x |",
        "| 1/12 | A | 1.2 |",
        f"![T]({NAME}.png)",
    ]
    parts += [
        "## Comparisons",
        "**Sizes:**",
        "2 \\| 3; 4",
        "= equal</span> so be it",
        "Smaller.",
    ]
    assert "See [b](bermo_b.page.md), not `](c.ipynb)`" in text
    place = "notebooks/" + NAME.replace("_", "/", 1) + ".ipynb"
    assert f"[`{place}`](../../{place})" in text
    places = [text.index(part) for part in parts]
    assert places == sorted(places) and "Old" not in text and "knobs" not in text


def text_cell(source, *tags):
    return {"cell_type": "markdown", "metadata": {"tags": [*tags]}, "source": source}


def code_cell(tag, *outputs, source="page.show_table({}, 'A table')"):
    about = {"cell_type": "code", "metadata": {"tags": [tag]}, "outputs": [*outputs]}
    return about | {"source": [source]}


def test_a_section_whose_code_shows_nothing_is_left_out():
    cells = [
        text_cell("Title", "title"),
        code_cell("artefact"),
        text_cell("Nothing"),
        code_cell("artefact"),
        code_cell("artefact"),
        text_cell("A table behind a cell without output"),
        code_cell("artefact"),
        code_cell("artefact", "table"),
        text_cell("A text alone"),
        text_cell("Before code alone"),
        code_cell("artefact", source="def half(x):\n    return x / 2"),
        text_cell("Nothing at the end"),
        code_cell("artefact"),
        code_cell("verdicts", "words"),
        text_cell("Knobs"),
        code_cell("explore"),
    ]
    texts = [
        c["source"]
        for c in builder.drop_empty_sections(cells)
        if c["cell_type"] == "markdown"
    ]
    stay = ["A table behind a cell without output", "A text alone", "Before code alone"]
    assert texts == ["Title", *stay, "Knobs"]


def test_no_artefact_names_a_folder_of_this_machine(page, monkeypatch):
    where = [paths.ROOT / "lib" / "x.py", paths.runs_root() / "a", page.folder / "b"]
    collected(monkeypatch, "", "run", error=" ".join(map(str, where)))
    page.collect_result_frame(ROWS[:2])
    page.show_table({"a": {"b": str(where[0])}}, "Places")
    page.show_verdicts_and_write_json()
    for path in page.folder.iterdir():
        assert not any(str(place) in path.read_text() for place in where), path
    assert "./lib/x.py" in (page.folder / f"{NAME}.csv").read_text()


@pytest.mark.papers("ghostbert")
def test_a_page_shows_no_picture_of_printed_numbers_alone(page):
    page.show_forest_plot(
        {("recorded, toy", "SST-2"): None}, {"SST-2": 2.0}, "a minus b (points)"
    )
    assert not page.html() and not page.written_files
    few = Estimate(1.0, nan, nan, 1, 1, nan, 1.0)
    for place, label in (("SST-2", "a minus b"), ("b, SST-2", "a minus another")):
        estimates = {("this run, toy", place): few}
        page.show_forest_plot(estimates, {place: 2.0}, f"{label} (points)", label[-1])
    page.show_verdicts_and_write_json()
    body = json.loads((page.folder / f"{NAME}.json").read_text())
    line = "A minus b, SST-2: +1.0 points (toy, one seed: shows how, proves nothing)."
    first, *others = body["answer"]  # both differences say the same
    assert first == line and others[0].startswith("Recorded at mini: Ghosts minus")
    assert "<svg" in page.html()


def test_lone_dots_are_a_sentence_and_no_picture(page):
    """But for a first look at toy, whose dots show how."""
    page.parameter_values["profile"] = "mini"
    few = Estimate(-1.0, nan, nan, 1, 1, nan, 1.0)
    page.show_forest_plot(
        {("recorded, mini", "SST-2"): few}, {"SST-2": 2.0}, "a minus b (points)"
    )
    assert "<svg" not in page.html() and not page.written_files
    assert "No picture. A minus b: −1.0 points, 1 seed: too few" in page.light()


def test_the_first_picture_of_a_page_stands_below_its_title():
    """With the words on it, where its section has nothing else; a course keeps its
    order."""
    picture = {"data": {"text/markdown": "![Seen](a.png)"}}
    cells = [
        text_cell("# Title\n\nWhy?", "title"),
        code_cell("artefact", {"data": {"text/markdown": "*A table*"}}),
        text_cell("## Drawn\n\nA dot is a seed."),
        code_cell("artefact", picture),
        code_cell("verdicts"),
    ]
    shown = [
        c["source"] if c["cell_type"] == "markdown" else c["outputs"]
        for c in builder.move_first_picture_below_title(cells, "t01_table.ipynb")
    ]
    assert shown[:2] == ["# Title", [picture]]
    assert [text.strip() for text in shown[2:4]] == ["A dot is a seed.", "Why?"]
    assert builder.move_first_picture_below_title(cells, "00_method.ipynb") == cells


def test_a_mean_has_students_interval_from_three_seeds_on():
    rows = pd.DataFrame({"x": [1, 1, 1, 2, 2], "y": [1.0, 2.0, 3.0, 5.0, 7.0]})
    _, (axis,) = plot.make_panels([""])
    plot.draw_means(axis, rows, "x", "y", "Ghost")
    (bars,) = axis.containers  # of x = 1 alone
    low, high = bars[2][0].get_segments()[0][:, 1]
    assert (low, high) == pytest.approx(
        (2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5), abs=1e-5
    )
    line, *points = axis.lines
    assert list(line.get_ydata()) == [2, 6] and [5, 7] in [
        list(p.get_ydata()) for p in points
    ]


def test_pictures_of_a_knob_that_are_drawn_ahead_need_no_kernel_and_no_script(page):
    def curve(power=2, height=1.0):
        figure, (axis,) = plot.make_panels([f"power {power}"], 2, 2)
        axis.plot([0, height], [0, height**power])
        return figure

    artefact.explore_with_widgets(curve, "power", power=[1, 2, 3], height=(0.0, 1.0))
    shown = page.html()
    assert shown.count("<figure") == shown.count('type="radio" name="curve"') == 3
    assert re.findall(r"checked> (\d)", shown) == ["2"] and "<script" not in shown
    assert re.search(r"<title>power 1.*<title>power 2.*<title>power 3", shown, re.S)
    names = re.findall(r'\bid="([^"]+)', shown)
    assert len(names) == len({*names}) > 3  # A clip of a hidden picture clips nothing.
    assert {*re.findall(r"url\(#([^)]+)", shown)} <= {*names}


@pytest.mark.parametrize(
    "name, value, text",
    [
        ("m", 3.0, "3/12 of the width"),
        ("m", 0.0, ""),
        ("model", "Width", "Width"),
        ("epochs", 4, "epochs 4"),
    ],
)
def test_the_answer_of_a_toy_page_names_rows_in_words(name, value, text):
    assert artefact.format_row_label({name: value}, name) == text
