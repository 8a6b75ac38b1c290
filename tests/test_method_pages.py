"""Pages of method notebooks: code stands beside its text, and drawings are folded."""

import ast
import json
import pkgutil
import re

import nbformat
import nbformat.v4 as new
import pytest
from conftest import of_page

from lib.claims import notebook
from lib.core import paths
from lib.report import builder, equation, front

BODY = {"id": "ghostbert_00_method", "profile": "toy", "differs": [], "answer": ["A."]}
BODY |= {"counted": "none of its own", "records": "", "parameters": {}, "files": []}
BODY |= {"commit": "", "changed": False, "at": "2026-01-01T00:00:00Z"}


def code(source, tag, is_folded=False):
    about = {"tags": [tag]} | (
        {"jupyter": {"source_hidden": True}} if is_folded else {}
    )
    return new.new_code_cell(source, metadata=about)


def book():
    cells = [new.new_markdown_cell("# Old\n\nWhy?", metadata={"tags": ["title"]})]
    cells += [code("boot = 1", "bootstrap"), new.new_markdown_cell("In code:")]
    cells += [code("mechanism = 2", "artefact"), code("axis = 3", "artefact", True)]
    cells += [
        new.new_markdown_cell("Then $a_1$."),
        code("page.show_verdicts_and_write_json()", "verdicts"),
    ]
    cells += [new.new_markdown_cell("Turn it."), code("knob = 4", "explore")]
    return new.new_notebook(cells=[*cells, new.new_markdown_cell("## Exercises")])


@pytest.mark.papers("ghostbert")
def test_code_of_a_method_stands_behind_its_text_on_both_kinds_of_page():
    path = notebook.find_notebook_path(BODY["id"])
    text = builder.convert_notebook_to_markdown(book(), "New", BODY)
    page = re.sub("<[^>]*>", "", builder.convert_notebook_to_html(path, book(), BODY))
    for shown in (text, page):
        order = [
            "In code:",
            "mechanism",
            builder.FOLD,
            "axis = 3",
            "Then ",
            "Exercises",
        ]
        places = [shown.find(words) for words in order]
        assert -1 < places[0] and places == sorted(places), places
        assert "boot = 1" not in shown and "knob = 4" not in shown
        assert shown.count(builder.FOLD) == shown.count("mechanism") == 1
    assert "```python\nmechanism = 2\n```" in text and "Turn it." not in text
    assert "Turn it." in page and "page.show_verdicts_and_write_json" not in page


@pytest.mark.papers("ghostbert")
def test_code_of_other_pages_is_folded_at_the_end():
    other = BODY | {"id": "ghostbert_t03_pruned_vs_ghost"}
    page = builder.convert_notebook_to_html(
        notebook.find_notebook_path(other["id"]), book(), other
    )
    assert page.index("Exercises") < page.index("The code of this page")
    assert page.count("mechanism") == 1 and builder.FOLD not in page
    assert "mechanism" not in builder.convert_notebook_to_markdown(book(), "New", other)


@pytest.mark.papers("bermo")
def test_a_table_of_pages_links_to_pages_of_its_form():
    """Of the pages of a paper, on its summary page; the notebook links to notebooks."""
    shown = front.format_pages_as_markdown_table(front.tabulate_pages_of_paper("bermo"))
    body = BODY | {"id": "bermo_01_summary"}
    path = notebook.find_notebook_path(body["id"])
    cells = [new.new_markdown_cell("# Old", metadata={"tags": ["title"]})]
    cells.append(code("display(Markdown(shown))", "artefact"))
    cells[-1].outputs = [new.new_output("display_data", {"text/markdown": shown})]
    names = ["bermo_00_method", "bermo_t03_stability"]
    files = re.findall(r"\]\(([^)]*)\)", shown)
    assert all((path.parent / name).is_file() for name in files) and len(files) > 7
    book = new.new_notebook(cells=cells)
    text = builder.convert_notebook_to_markdown(book, "New", body)
    page = builder.convert_notebook_to_html(path, book, body).partition("<main")[2]
    page = page.partition('<p class="downloads">')[0]
    for name in names:
        assert f"]({name}.page.md)" in text and f'href="{name}.html"' in page
    linked = re.findall(r"\]\(([^)]*)\)", text)[: len(files)]
    assert all((paths.FIGURES / "mini" / name).is_file() for name in linked)
    assert not re.search(r'href="[^"]*\.(ipynb|md)"', page)


def test_what_is_folded_stays_so_in_git():
    assert (
        notebook.format_notebook_json_as_committed(nbformat.writes(book())).count(
            '"source_hidden": true'
        )
        == 1
    )


METHODS = [
    path
    for path in notebook.find_notebooks()
    if notebook.is_method_explanation_notebook(path)
]


@pytest.mark.parametrize("path", map(of_page, METHODS))
def test_the_light_page_of_a_method_has_the_text_and_the_code_of_its_notebook(path):
    """Else: make the page again, with --profile mini."""
    text = (
        paths.FIGURES / f"mini/{notebook.make_notebook_id(path)}.page.md"
    ).read_text()
    cells = json.loads(path.read_text())["cells"]
    for cell in builder.drop_widget_cells(cells):
        source, tags = "".join(cell["source"]), cell["metadata"].get("tags", [])
        if cell["cell_type"] == "markdown":
            shown = source.partition("\n")[2].strip() if "title" in tags else source
            assert (
                equation.redirect_notebook_links_to_pages(shown, "page.md", path)
                in text
            )
        elif "artefact" in tags:
            assert builder.format_code_as_markdown(cell) in text


def test_every_exercise_of_a_method_has_a_solution_that_is_folded():
    for path in METHODS:
        texts = [
            "".join(cell["source"])
            for cell in json.loads(path.read_text())["cells"]
            if cell["cell_type"] == "markdown"
        ]
        (last,) = [text for text in texts if "<summary>Solution" in text]
        asked = re.findall(r"^\d\. ", re.split("## Exercises|to try", last)[1], re.M)
        assert last.count("<details><summary>Solution</summary>") == len(asked) > 1


def imported_names(cells):
    """{name: dotted place in lib} of what the code of a notebook imports from lib."""
    places = {"lib": "lib"}
    for cell in cells:
        if cell["cell_type"] == "code":
            for node in ast.walk(ast.parse("".join(cell["source"]))):
                if isinstance(node, ast.ImportFrom) and node.module.startswith("lib"):
                    for name in node.names:
                        place = f"{node.module}.{name.name}"
                        places[name.asname or name.name] = place
    return places


@pytest.mark.parametrize("path", map(of_page, notebook.find_notebooks()))
def test_what_a_text_calls_by_an_imported_name_exists(path):
    """A solution that says `ghostbert.ghost` after a change of names helps nobody."""
    cells = json.loads(path.read_text())["cells"]
    places = imported_names(cells)
    texts = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
    for span in re.findall(r"`([^`\n]+)`", "\n".join(texts)):
        for name in re.findall(r"(?<![\w./])([a-z]\w*(?:\.[A-Za-z_]\w*)+)", span):
            first, *others = name.split(".")
            if first in places:
                pkgutil.resolve_name(".".join([places[first], *others]))
