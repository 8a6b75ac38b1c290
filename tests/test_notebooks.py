"""Notebooks: stripped, of one skeleton, thin, and with parameters that are checked
before anything runs."""

import ast
import html
import json
import re
import subprocess
import sys
from dataclasses import replace
from itertools import chain

import pytest
from index import index
from lines import count_tokens
from nbconvert.filters import markdown2html

from lib import data
from lib.__main__ import main
from lib.claims import evidence, notebook
from lib.claims import words as verdict
from lib.claims.cells import parse_comparison
from lib.core import paths
from lib.core.names import Refused
from lib.papers import frontier
from lib.report import artefact, equation, site, verdicts
from lib.stats.paired import Estimate

NOTEBOOKS = notebook.find_notebooks()
IDS = [notebook.make_notebook_id(p) for p in NOTEBOOKS]
T03 = notebook.find_notebook_path("ghostbert_t03_pruned_vs_ghost")


@pytest.fixture
def shown(monkeypatch, tmp_path):
    """What pages display, as HTML; their files go to `tmp_path`."""
    found = []
    monkeypatch.setattr(paths, "FIGURES", tmp_path)
    monkeypatch.setattr(
        artefact,
        "display",
        lambda told, **_: found.append(markdown2html(told["text/markdown"])),
    )
    return found


def test_normalised():
    for path in NOTEBOOKS:
        assert path.read_text() == notebook.format_notebook_json_as_committed(
            path.read_text()
        ), f"{notebook.make_notebook_id(path)}: run `python -m lib tidy`"


@pytest.mark.papers()
def test_standard_pages_are_made_of_the_notebooks_as_they_are():
    """Other values have a place of their own, and it names them."""
    told = {
        notebook.make_notebook_id(path): notebook.read_defaults_and_digest_cells(path)
        for path in NOTEBOOKS
    }
    assert notebook.read_committed_notebook_digests() == told, (
        "run `python -m lib tidy`"
    )
    for path in NOTEBOOKS:
        values = {
            n: each.default
            for n, each in notebook.read_parameter_declarations(path).items()
        }
        assert notebook.find_notebook_page_folder(
            path, values | {"profile": "mini"}
        ) == (
            paths.FIGURES / "mini",
            [],
        )
    values = {
        n: each.default for n, each in notebook.read_parameter_declarations(T03).items()
    }
    folder, lines = notebook.find_notebook_page_folder(T03, values | {"widths": [3]})
    assert folder.name[:-7] == "toy-widths=3"
    assert lines == ["widths is [3], in the committed notebook []."]


@pytest.mark.papers("ghostbert")
def test_outputs_and_empty_cells_are_no_edit():
    """JupyterLab saves both."""
    body = json.loads(T03.read_text())
    body["cells"][1] |= {"outputs": [{"output_type": "stream"}], "execution_count": 7}
    empty = {
        "cell_type": "code",
        "id": "new",
        "metadata": {},
        "source": "\n",
        "outputs": [],
    }
    body["cells"].append(empty | {"execution_count": None})
    assert (
        notebook.format_notebook_json_as_committed(json.dumps(body)) == T03.read_text()
    )


def test_skeleton():
    for path in NOTEBOOKS:
        tags = [
            tag
            for cell in json.loads(path.read_text())["cells"]
            for tag in cell["metadata"].get("tags", [])
        ]
        wanted = [tag for tag in notebook.ORDER if tag in tags]
        assert list(dict.fromkeys(tags)) == wanted, notebook.make_notebook_id(path)
        assert {"title", "parameters", "bootstrap", "verdicts"} <= set(tags), (
            notebook.make_notebook_id(path)
        )
        assert notebook.read_cell_sources_by_tag(path)["bootstrap"].split("\n\n") == [
            "from lib.report import artefact",
            f'page = artefact.open_page("{notebook.make_notebook_id(path)}", globals())',
        ]


def test_thin():
    """In tokens, as lines can be packed."""
    for path in NOTEBOOKS:
        for part in json.loads(path.read_text())["cells"]:
            if part["cell_type"] == "code":
                # a grid is the experiment itself, and stands in the notebook alone
                grid = "grid" in part["metadata"].get("tags", [])
                source = "".join(part["source"])
                most = 560 if grid else 430
                size, too_long = count_tokens(source), "part it, or move it to lib"
                assert size <= most, f"{notebook.make_notebook_id(path)}: {too_long}"
                nodes = list(ast.walk(ast.parse(source)))
                assert not any(isinstance(n, ast.ClassDef) for n in nodes), (
                    notebook.make_notebook_id(path)
                )
                for node in nodes:
                    if isinstance(node, ast.FunctionDef):
                        most = 460 if node.name == "grid" else 250
                        size = count_tokens(ast.unparse(node))
                        assert size <= most, (
                            f"{notebook.make_notebook_id(path)}: {too_long}"
                        )


def test_differences_on_a_page_have_the_seeds_and_the_region_of_their_cells():
    """`Runs` knows these; 92 compares models of a reader, which no claim names."""
    for path in NOTEBOOKS:
        text = path.read_text()
        assert (
            notebook.make_notebook_id(path) == "92_your_task"
            or "compare.estimate_difference(" not in text
        ), notebook.make_notebook_id(path)


def test_deviations_are_chosen_by_the_page():
    for path in NOTEBOOKS:
        assert (
            "DEVIATIONS[" not in notebook.read_cell_sources_by_tag(path)["verdicts"]
        ), f"{path}: pass {{profile: lines}} whole: the page knows what is judged"


def test_a_page_tells_the_deviations_of_the_scale_that_it_judges(tmp_path, shown):
    own = {"toy": ("generated",), "mini": ("few rows",), "paper": ("<nothing>",)}
    more = {"mini": ("no larger teacher",)}
    recorded = verdict.Verdict("G1", profile="mini", kind="finding")
    for judged, told in (
        ([recorded], {"mini": ["few rows", "no larger teacher"], "toy": ["generated"]}),
        (
            [verdict.Verdict("sizes", verdict_word="equal", measured="1.0")],
            {"toy": ["generated"]},
        ),
        ([], {"toy": ["generated"]}),
    ):
        artefact.Page(
            "some_page", {"profile": "toy"}, tmp_path / "toy"
        ).show_verdicts_and_write_json(judged, own, more)
        assert (
            notebook.read_notebook_page_json(tmp_path / "toy", "some_page")[
                "deviations"
            ]
            == told
        )
        judged_at = "at the profile mini, where comparisons are made (2)</summary>"
        assert (judged_at in shown[-1]) == ("mini" in told)
        assert ("<li>few rows" in shown[-1]) == ("mini" in told)


def test_parameters_are_typed_and_have_a_remark_each():
    for path in NOTEBOOKS:
        source = notebook.read_cell_sources_by_tag(path)["parameters"]
        for name, parameter in notebook.read_parameter_declarations(path).items():
            assert re.search(rf"(?m)^{name}: .*  # \S", source), (
                notebook.make_notebook_id(path),
                name,
            )
            if parameter.type in (int, float) and not name.startswith("seed"):
                assert len(parameter.lowest_and_highest) == 2, (
                    notebook.make_notebook_id(path),
                    name,
                )
            listed = isinstance(parameter.default, list)
            for each in parameter.default if listed else [parameter.default]:
                assert isinstance(each, parameter.type), (
                    notebook.make_notebook_id(path),
                    name,
                )


def test_pages_and_grids_do_not_import_a_framework():
    """Nor grids what draws: commands that read them alone take a second."""
    code = (
        "import sys; from lib.claims import notebook\n"
        "for p in notebook.find_notebooks():\n"
        "    notebook.execute_grid_cell_and_list_rows_by_variable(p, {'profile': 'toy'})\n"
        "found = {'pandas', 'scipy.stats', 'matplotlib', 'seaborn'} & {*sys.modules}\n"
        "from lib.report import artefact, site\n"
        "frameworks = {'torch', 'transformers', 'datasets', 'papermill'}\n"
        "print([*found, *frameworks & {*sys.modules}])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=paths.ROOT
    )
    assert out.stdout.strip() == "[]", out.stderr


@pytest.mark.papers("ghostbert")
def test_the_grid_of_table_3():
    rows = notebook.execute_grid_cell_and_list_rows_by_variable(
        T03, {"profile": "toy", "seeds": [0]}
    )["grid"]
    assert len(rows) == 2 * 2 and len({row["spec"] for row in rows}) == 4


@pytest.mark.papers("ghostbert")
def test_recorded_specs_need_no_data(without_data):
    """On a fresh clone the digests of the official files stand in for the files."""
    there = notebook.execute_grid_cell_and_list_rows_by_variable(T03, {})["recorded"]
    without_data()
    assert [
        r["spec"]
        for r in notebook.execute_grid_cell_and_list_rows_by_variable(T03, {})[
            "recorded"
        ]
    ] == [r["spec"] for r in there]


@pytest.mark.papers("ghostbert")
@pytest.mark.parametrize(
    "values, error, message",
    [
        (
            {"sedes": [1]},
            ValueError,
            "unknown parameter of ghostbert_t03_pruned_vs_ghost: 'sedes'; did you mean 'seeds'",
        ),
        (
            {"profile": "tyo"},
            ValueError,
            "unknown profile of .*: 'tyo'; did you mean 'toy'",
        ),
        (
            {"seeds": 3},
            ValueError,
            "seeds .* is 3: it must be a list; papermill takes it as",
        ),
        (
            {"tasks": ["colla"]},
            ValueError,
            "unknown task of this page: 'colla'; did you mean 'CoLA'",
        ),
        ({"widths": [0]}, ValueError, "0 must be from 1 to 12"),
        ({"widths": [13]}, ValueError, "13 must be from 1 to 12"),
    ],
)
def test_wrong_parameters_stop_before_anything_runs(values, error, message):
    with pytest.raises(error, match=message):
        notebook.execute_grid_cell_and_list_rows_by_variable(T03, values)


@pytest.mark.papers("ghostbert")
def test_what_papermill_injected_is_checked():
    history = [
        "",
        "profile: str = 'toy'",
        '# Parameters\nsedes = [1]\nprofile = "toy"\n',
    ]
    assert notebook.list_parameters_set_by_papermill(history) == ["sedes", "profile"]
    with pytest.raises(ValueError, match="did you mean 'seeds'"):
        artefact.open_page(
            notebook.make_notebook_id(T03),
            {"In": history, "profile": "toy", "sedes": [1]},
        )


@pytest.mark.papers("ghostbert")
@pytest.mark.parametrize(
    "words, message",
    [
        (
            ["run", "--profile", "mni"],
            "unknown profile: 'mni'; did you mean 'mini'? (allowed: toy, mini, base, paper)",
        ),
        (
            ["run", "gostbert_t03_pruned_vs_ghost"],
            "did you mean 'ghostbert_t03_pruned_vs_ghost'",
        ),
        (["show", "finetune-nothing"], "'finetune-nothing' is part of 0 runs"),
        (["fetch", "all-MiniLM"], "'all-MiniLM-L6-v2'"),
    ],
)
def test_commands_answer_mistakes_in_one_line(
    words, message, capsys, monkeypatch, tmp_path
):
    monkeypatch.setenv("RUNS_ROOT", str(tmp_path))
    assert main(words) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith("error: ") and message in told and "\n" not in told


@pytest.mark.parametrize("words", [["plan"], ["verify"], ["run", "92", "--data", "a"]])
def test_an_environment_without_the_packages_is_one_line(words):
    """Without `site`, Python finds no installed package."""
    command = [sys.executable, "-S", "-m", "lib", *words]
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and line.startswith(f"error: {sys.executable} has no ")
    assert "; fix: " in line and ".venv" in line


def test_help_names_the_methods(capsys):
    with pytest.raises(SystemExit):
        main(["plan", "--help"])
    told = capsys.readouterr().out
    assert all(
        line in told for line in frontier.format_help_lines_for_method_comparison()
    )
    assert all(name in told for name in frontier.TABLE)


def test_missing_real_data_is_told_with_its_fix(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    data.read_splits_cached.cache_clear()
    with pytest.raises(
        FileNotFoundError, match="SST-2 has no rows .*; fix: python -m lib fetch"
    ):
        data.load(data.make_data_descriptor("glue", "SST-2", 100))


@pytest.mark.papers()
def test_words_are_explained_on_90_and_on_the_index_and_in_the_readme(tmp_path, shown):
    """A page has no legend of its own: it names the page that explains the words."""
    e = Estimate(0.5, 0.1, 0.9, 3, 1, 0.1, 0.01, degrees_of_freedom=2.0)
    told = {"sentence": "a minus b on SST-2", "printed": 2.0, "holm_p_value": 0.02}
    result = verdict.Result("G1", parse_comparison("a > b"), "SST-2", e, 3, 3, **told)
    few = replace(result, estimate=replace(e, n_seeds=2), sentence="a minus c on SST-2")
    found = [
        verdict.Verdict("G1", (result, few), profile="mini", kind="finding"),
        verdict.Verdict("a", verdict_word="equal", measured="1"),
        verdict.Verdict("b", verdict_word="differs", measured="2"),
    ]
    name = "ghostbert_t03_pruned_vs_ghost"
    artefact.Page(
        name, {"profile": "toy"}, tmp_path / "toy"
    ).show_verdicts_and_write_json(found, claim_ids=())
    (tmp_path / "toy" / f"{name}.html").write_text("<!-- whole -->")
    site.write_page_index_of_profile("toy")
    index = (tmp_path / "toy" / "index.html").read_text()
    card = index.partition(f'href="{name}.html"')[2].partition("</a>")[0]
    told = "a minus b on SST-2: +0.5 [0.1, 0.9] points (3 seeds), printed +2.0: "
    told += "agrees (weaker than printed) †."
    assert told in html.unescape(card)
    body = notebook.read_notebook_page_json(tmp_path / "toy", name)
    assert body["counts"] == (
        "Comparisons: 1 agrees, 1 not measured; printed numbers: 1 of 2 equal"
    )
    page = html.unescape(re.sub("<[^>]*>", "", shown[-1]))
    assert (
        "agrees (weaker than printed) †" in page
        and "Printed numbers computed again: 1 of 2" in page
    )
    assert "2 seeds; 3 are needed" in page and "explained on the page 90_claims" in page
    assert "the interval lies in the region" not in page
    lines = [line for _, line in verdict.WORDS.values()]
    plain = html.unescape(index)
    assert all(" ".join(text.split()) in plain for text in [*lines, *verdict.READING])
    (of_90,) = (
        path for path in NOTEBOOKS if notebook.make_notebook_id(path) == "90_claims"
    )
    assert (
        "READING, WORDS" in of_90.read_text()
        and "in WORDS.items()" in of_90.read_text()
    )
    rows = re.findall(
        r"^\| ([^\w\s]) ([a-z ]+) \| .+ \|$",
        (paths.ROOT / "README.md").read_text(),
        re.M,
    )
    marks = {word: mark for mark, word in rows}
    assert marks == {word: mark for word, (mark, _) in verdict.WORDS.items()}


def test_badges_differ_by_more_than_colour():
    shown = verdicts.ENVIRONMENT.get_template("verdicts.html.j2").module
    every = verdict.WORDS | verdict.CHECKS
    badges = {word: str(shown.badge(word)) for word in every}
    texts = {
        word: re.sub("<[^>]*>", "", badge).strip() for word, badge in badges.items()
    }
    assert all(text.endswith(f" {word}") for word, text in texts.items())
    assert len({text[0] for text in texts.values()}) == len(every)
    slugs = {re.search('class="badge ([^"]+)"', badge)[1] for badge in badges.values()}
    assert len(slugs) == len(every) and not [slug for slug in slugs if " " in slug]


@pytest.mark.papers()
def test_commands_of_the_readme_name_one_notebook_each():
    readme = (paths.ROOT / "README.md").read_text()
    names = re.findall(r"python -m lib run (\w*_\w+)", readme)
    assert names and all(len(notebook.find_notebooks([name])) == 1 for name in names)
    row = next(line for line in readme.splitlines() if line.startswith("| one table |"))
    assert len(notebook.find_notebooks([re.search(r"lib run (\S+)", row)[1]])) == 1


@pytest.mark.papers()
def test_the_index_lists_every_notebook_and_the_readme_is_short():
    fix = "write it with `python tests/index.py`"
    text = index()
    assert (paths.NOTEBOOKS / "README.md").read_text() == text, fix
    assert "|---|\n\n" not in text  # No table is empty.
    assert len((paths.ROOT / "README.md").read_text().splitlines()) <= 130


def test_environments_agree_with_the_pins_and_the_lock_has_them_all():
    pins = [
        line
        for line in (paths.ROOT / "requirements.txt").read_text().splitlines()
        if line and line[0] != "#"
    ]
    assert all("==" in pin for pin in pins)
    environment = (paths.ROOT / "environment.yml").read_text()
    assert "==" not in environment
    assert all(
        f"- {words}\n" in environment for words in ("-r requirements.txt", "-e .")
    )
    lock = (paths.ROOT / "requirements-lock.txt").read_text().lower().splitlines()
    assert {*pins} <= {*lock} and len(lock) > 3 * len(pins)


@pytest.mark.papers()
def test_links_and_equations_reach_the_page():
    for path in NOTEBOOKS:
        text = "\n".join(
            "".join(cell["source"])
            for cell in json.loads(path.read_text())["cells"]
            if cell["cell_type"] == "markdown"
        )
        for place in re.findall(r"\]\(([\w./]+\.(?:ipynb|page\.md))\)", text):
            assert (path.parent / place).is_file(), (path, place)
        page = equation.render_equations_and_redirect_links(text, path)
        linked = re.findall(r"\]\((\w+)\.html\)", page)
        assert set(linked) <= set(IDS), notebook.make_notebook_id(path)
        assert not re.search(r"\]\([^)]*\.ipynb\)|\$", equation.CODE.sub("", page)), (
            notebook.make_notebook_id(path)
        )


@pytest.mark.papers("bermo")
def test_an_equation_has_the_colour_of_its_text_and_its_words_and_code_stays():
    text = "Let $a_1 < b$ and `$x$`, see [it](../bermo/00_method.ipynb)."
    text += " Also [that](../../figures/mini/nas_00_method.page.md)."
    page = equation.render_equations_and_redirect_links(text, T03)
    assert 'fill="currentColor"' in page and "<img" not in page
    assert "[that](nas_00_method.html)" in page
    assert 'aria-label="a_1 &lt; b"' in page
    assert "`$x$`, see [it](bermo_00_method.html)" in page
    assert page == equation.render_equations_and_redirect_links(text, T03)
    with pytest.raises(ValueError):
        equation.render_equations_and_redirect_links(r"$\frac{a$", T03)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=notebook.make_notebook_id)
def test_every_number_of_a_notebook_has_a_range(path):
    for name, parameter in notebook.read_parameter_declarations(path).items():
        listed = isinstance(parameter.default, list)
        if parameter.type in (int, float):
            for wild in (-(10**12), 10**12):
                value = parameter.type(wild)
                with pytest.raises(Refused, match="must be from"):
                    notebook.check_and_complete_parameter_values(
                        path, {name: [value] if listed else value}
                    )


# Pages whose rows differ along an axis, and why they have no control in JupyterLab.
STILL = {
    "data_t01_tasks": "its picture has all learners of all tasks beside each other",
    "explore": "its figures have lists of choices on the page itself",
    "ghostbert_t02_glue_test": "its rows are counts of costs, without a score",
}


def is_sweep(page):
    """Whether a label of the page's rows has three values; seed and task aside."""
    values = {}
    for row in chain(
        *(
            evidence.list_notebook_runs_to_execute(scale, page)
            for scale in ("toy", "mini")
        )
    ):
        for name, value in row.labels.items():
            values.setdefault(name, set()).add(str(value))
    return any(len(values[name]) > 2 for name in values.keys() - {"seed", "task"})


def test_a_notebook_that_sweeps_an_axis_has_a_control():
    for path, page in zip(NOTEBOOKS, IDS, strict=True):
        has_control = "explore" in notebook.read_cell_sources_by_tag(path)
        if page in STILL:
            assert is_sweep(page) and not has_control, f"{page} is not of the list"
        else:
            assert has_control or not is_sweep(page), f"{page} has no control"
