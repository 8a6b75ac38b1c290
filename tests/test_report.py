"""From notebooks to an index, as a user runs it; also when a kernel is killed."""

import json
import os
import re
import shutil
import subprocess
import sys

import papermill
import pytest
from command import Commands

from lib.claims import notebook
from lib.core import paths
from lib.core.store import Store, hold_lock
from lib.report import builder

BOOTSTRAP = """import sys
sys.path.insert(0, ROOT)
from lib.report import artefact
page = artefact.open_page("NAME", globals())"""
GRID = """from lib import data
from lib.core.options import Numerics, Targets, Train
from lib.core.rows import Row
from lib.core.spec import Spec

train, numerics = Train(epochs=1, batch=16, lr=1e-3, max_length=32), Numerics("float32", 1)
shape = {"family": "bert", "layers": 1, "hidden": 24, "heads": 12, "ffn": 48, "init": 0.02}
backbone = Spec("pretrain", {"corpus": {"sentences": 40, "seed": 0}, "train": train,
                             "numerics": numerics, "model": shape,
                             "objective": {"share": 0.15, "hidden": 0.8, "replaced": 0.1}}, seed=0)
grid = [Row(Spec("finetune", {
    "data": data.make_data_descriptor("toy", "CoLA", rows), "train": train,
    "targets": Targets("hard"),
    "numerics": numerics}, {"start": backbone}), task="CoLA", seed=seed) for seed in (0, 1)]"""
RAN = "a planted script ran"  # no page may have it as its title
EVIL = f"""<img src=x onerror='document.title="{RAN}"'><script>document.title="{RAN}"</script>"""
ARTEFACT = """import matplotlib.pyplot as plt
from lib.core.store import Store
assert Store().runs.name == "runs" and Store().records == Store().runs.parent / "records"
evil = EVIL
figure, axis = plt.subplots()
axis.plot(runs["seed"], runs["matthews"])
axis.set(title=evil, xlabel=evil)
page.show_figure(figure, runs[["seed", "matthews"]])
page.show_table({evil: {evil: evil, "Scores": 1.5}}, evil, "evil", index_names=["row " + evil])
page.show_remarks([evil], evil, evil)
print(evil)""".replace("EVIL", repr(EVIL))
KILL = """import multiprocessing, os, pathlib, signal
mark = pathlib.Path(os.environ["MARK"] + "PROCESS")
if not mark.exists():
    mark.touch()
    os.kill(multiprocessing.PROCESS().pid, signal.SIGKILL)"""
PLACES = {
    "NOTEBOOKS_ROOT": "notebooks",
    "FIGURES_ROOT": "figures",
    "RUNS_ROOT": "runs",
    "RECORDS_ROOT": "records",
}
PARAMETERS = (
    'profile: str = "toy"  # toy, mini or paper\nrows: int = 32  # training rows'
)


def write(folder, name, *artefact, grid=GRID):
    cells = [
        ("title", f"# Test {name}", "markdown"),
        ("parameters", PARAMETERS, "code"),
        (
            "bootstrap",
            BOOTSTRAP.replace("ROOT", repr(str(paths.ROOT))).replace("NAME", name),
            "code",
        ),
        ("grid", grid, "code"),
        ("runs", "runs = page.collect_result_frame(grid)", "code"),
        *(("artefact", text, "code") for text in artefact),
        ("verdicts", "page.show_verdicts_and_write_json()", "code"),
    ]
    body = {
        "cells": [
            {
                "cell_type": kind,
                "id": str(i),
                "metadata": {"tags": [tag]},
                "source": text,
            }
            for i, (tag, text, kind) in enumerate(cells)
        ],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (folder / f"{name}.ipynb").write_text(
        notebook.format_notebook_json_as_committed(json.dumps(body))
    )


@pytest.fixture(scope="module")
def workbook(tmp_path_factory):
    """A workbook of three notebooks, of which one kills its worker and one its kernel,
    once; and the command line in it."""
    root = tmp_path_factory.mktemp("workbook")
    (root / "notebooks").mkdir()
    table = "page.show_table(runs[['seed', 'matthews']], 'Scores')"
    write(
        root / "notebooks",
        "ghostbert_t97_worker",
        KILL.replace("PROCESS", "parent_process"),
        table,
    )
    write(root / "notebooks", "ghostbert_t98_fine", ARTEFACT)
    write(
        root / "notebooks",
        "ghostbert_t99_killed",
        KILL.replace("PROCESS", "current_process"),
        table,
    )
    places = PLACES | {"MARK": "mark", "TMPDIR": "tmp"}
    env = os.environ | {
        variable: str(root / folder) for variable, folder in places.items()
    }
    (root / "tmp").mkdir()

    lib = Commands(env)
    assert lib("tidy").returncode == 0  # these are the committed notebooks
    words = [
        sys.executable,
        "-m",
        "lib",
        "run",
        "--profile",
        "toy",
    ]  # the first one as users do
    first = subprocess.run(
        words, capture_output=True, text=True, cwd=paths.ROOT, env=env
    )
    yield root, lib, (first, lib("run", "--profile", "toy"))
    lib.close()


def test_a_killed_kernel_or_worker_is_told_and_costs_only_its_own_page(workbook):
    root, _, (first, _) = workbook
    assert first.returncode == 1 and "3 runs to make" in first.stdout, first.stderr
    assert re.search(r"failed   ghostbert_t99_killed: the kernel died", first.stdout)
    assert (
        "failed   ghostbert_t97_worker: its worker was killed; run it again"
        in first.stdout
    )
    assert "made     " in first.stdout and "ghostbert_t98_fine.html" in first.stdout


def test_the_next_command_makes_only_what_is_missing(workbook):
    _, _, (_, second) = workbook
    assert second.returncode == 0 and "0 runs to make" in second.stdout, (
        second.stdout + second.stderr
    )
    assert (
        "t97_worker.html" in second.stdout
        and "t99_killed.html" in second.stdout
        and "t98_fine.html" not in second.stdout
    )


@pytest.mark.skipif(not shutil.which("chromium"), reason="chromium is not installed")
def test_a_browser_shows_what_was_planted_and_runs_none_of_it(workbook):
    """In a table's cells, names, caption and notes, in a figure, in output; in an error
    below."""
    page = seen(workbook[0] / "figures" / "toy" / "ghostbert_t98_fine.html")
    assert (
        page.count("&lt;script&gt;") >= 6 and "Test ghostbert_t98_fine</title>" in page
    )


def seen(page):
    """The document that a browser makes of a page, after its scripts have run."""
    words = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--dump-dom",
        page.as_uri(),
    ]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=120).stdout
    assert "</html>" in shown and f"<title>{RAN}" not in shown
    return shown


def test_a_page_that_is_not_whole_is_made_again(workbook):
    root, lib, _ = workbook
    folder = root / "figures" / "toy"
    for name in ("ghostbert_t98_fine.html", "ghostbert_t99_killed.json"):
        (folder / name).write_bytes((folder / name).read_bytes()[:-9])
    (folder / "ghostbert_t97_worker.html").unlink()
    done = lib("report")
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    assert done.stdout.count("  made  ") == 3
    assert "made  " not in lib("report").stdout
    assert all(
        builder.read_page_html_and_digest(path)[1]
        for path in folder.glob("ghostbert*.html")
    )


def test_no_page_names_a_folder_of_this_machine(workbook):
    """Neither its files nor the outputs of its notebook."""
    root, places = workbook[0], [str(workbook[0]), str(paths.ROOT), sys.prefix]
    for path in (root / "figures" / "toy").iterdir():
        if path.suffix not in (".png", ""):
            body = path.read_text()
            if path.suffix == ".ipynb":  # its cells are as the notebook has them
                body = json.dumps(
                    [cell.get("outputs") for cell in json.loads(body)["cells"]]
                )
            assert not [place for place in places if place in body], path


def test_artefacts_are_whole_and_pages_need_no_network_and_link_to_each_other(workbook):
    folder = workbook[0] / "figures" / "toy"
    body = json.loads((folder / "ghostbert_t98_fine.json").read_text())
    kinds = ("evil.csv", "figure.csv", "png", "svg")
    assert sorted(body["files"]) == [f"ghostbert_t98_fine.{kind}" for kind in kinds]
    assert all((folder / name).stat().st_size for name in body["files"])
    assert list(body["runs"].values()) == ["made here"] * 2
    assert body["parameters"] == {"profile": "toy", "rows": 32}
    for page in folder.glob("*.html"):
        text = page.read_text()
        assert not re.search(r"""(src|href)=["'](https?:)?//""", text), page.name
        # The index has a search of its own, which asks for nothing.
        assert text.count("<script") == (page.name == "index.html")
        assert not re.search(r"<th(?=[ >])(?! scope=)", text), page.name
        assert (
            "http-equiv" not in text and 'href="index.html"' in text
        )  # nothing is at work
        assert (
            'href="#main"' in text
            and "<main id=" in text
            and "prefers-color-scheme" in text
        )
        levels = [int(level) for level in re.findall(r"<h(\d)", text)]
        assert levels[0] == 1 and all(
            b - a < 2 for a, b in zip(levels, levels[1:], strict=False)
        )
    index = (folder / "index.html").read_text()
    first, last = ("ghostbert_t97_worker", "ghostbert_t99_killed")
    middle = (folder / "ghostbert_t98_fine.html").read_text()
    assert f'href="{first}.html" rel="prev"' in middle
    assert f'href="{last}.html" rel="next"' in middle
    wanted = ("ghostbert_t98_fine.html", "ghostbert_t99_killed.html", "toy profile")
    assert all(words in index for words in wanted)


def files_of(folder):
    """{name: bytes} of the files of a folder of pages, but for the indices of all
    pages."""
    every = {
        path
        for path in folder.rglob("*")
        if path.is_file() and path.name != "index.html"
    }
    return {str(path.relative_to(folder)): path.read_bytes() for path in every}


def test_a_saved_edit_is_an_experiment_and_leaves_standard_pages_alone(workbook):
    """Of a parameter, and of another cell; put back, the standard page is up to
    date."""
    root, lib, _ = workbook
    path = root / "notebooks" / "ghostbert_t98_fine.ipynb"
    whole, before = path.read_text(), files_of(root / "figures" / "toy")
    edits = [("rows: int = 32", "rows: int = 48"), ("axis.plot(", "axis.scatter(")]
    said = ["rows is 48, in the committed notebook 32.", "Cells were changed."]
    for old, new in edits:
        assert old in whole
        path.write_text(whole.replace(old, new))
        done = lib("run", "t98", "--profile", "toy")
        path.write_text(whole)
        assert done.returncode == 0, done.stdout + done.stderr
    pages = sorted(
        (root / "figures/scratch/ghostbert_t98_fine").glob("*/ghostbert_t98_fine.html")
    )
    assert [page.parent.name[:-7] for page in pages] == ["toy-cells", "toy-rows=48"]
    assert str(pages[1]) in done.stdout or str(pages[0]) in done.stdout
    for page, words in zip(pages, reversed(said), strict=True):
        top, _, _ = page.read_text().partition("<main ")
        assert (
            "</nav>" in top and words in top and 'href="../../../toy/index.html"' in top
        )
        assert (page.parent / "ghostbert_t98_fine.png").exists()
    index = (root / "figures/toy/index.html").read_text()
    for page, words in zip(pages, reversed(said), strict=True):
        assert words in index and f"{page.parent.name}/ghostbert_t98_fine.html" in index
    assert files_of(root / "figures" / "toy") == before
    assert "made  " not in lib("report", "t98").stdout
    assert files_of(root / "figures" / "toy") == before


def test_a_notebook_that_is_run_by_hand_writes_no_standard_page(workbook, monkeypatch):
    """Neither with its defaults nor with parameters of a reader's own."""
    root, _, _ = workbook
    before = files_of(root / "figures" / "toy")
    for variable, folder in PLACES.items():
        monkeypatch.setenv(variable, str(root / folder))
    monkeypatch.chdir(root)
    source = str(root / "notebooks/ghostbert_t98_fine.ipynb")
    plain, other = root / "plain.ipynb", root / "other.ipynb"
    for path, told in ((plain, {}), (other, {"rows": 48})):
        papermill.execute_notebook(
            source, str(path), parameters=told, progress_bar=False
        )
    assert all("It is run by hand" in path.read_text() for path in (plain, other))
    assert "rows is 48, in the committed notebook 32." in other.read_text()
    pages = sorted(
        (root / "figures/scratch").glob("*/toy*-by-hand-*/ghostbert_t98_fine.svg")
    )
    assert [page.parent.name[:-7] for page in pages] == [
        "toy-by-hand",
        "toy-rows=48-by-hand",
    ]
    assert files_of(root / "figures" / "toy") == before
    index = (root / "figures/toy/index.html").read_text()
    assert all(
        f'scratch/ghostbert_t98_fine/{page.parent.name}"' in index for page in pages
    )


def test_plan_and_show(workbook):
    root, lib, _ = workbook
    assert "2 results, 0 runs missing" in lib("plan").stdout
    store = Store(root / "runs", root / "records")
    made = [
        run for run in store.iterate_finished_runs("finetune-*") if run.origin == "run"
    ]
    both = sorted(run.name for run in made if store.copy_run_to_records(run))
    left, at_work = (made[0].folder.with_name(f"{name}.part") for name in "67")
    left.mkdir()
    at_work.mkdir()
    with hold_lock(at_work.with_suffix(".lock")):
        told = lib("plan", "t98").stdout  # What runs is told, whatever is asked for.
    assert re.search(r"running +finetune-\w+/7 ", told) and "died " not in told
    shutil.rmtree(left)
    shutil.rmtree(at_work)
    shown = lib("show", both[0]).stdout.splitlines()
    assert shown[0].startswith(f"{both[0]}: matthews ") and len(shown) < 12
    checked = lib("verify")
    assert checked.returncode == 1 and "runs.csv is missing" in checked.stdout
    assert (
        lib("report", "t98").returncode == 0
    )  # they are recorded now, wherever they were made
    body = notebook.read_notebook_page_json(
        root / "figures" / "toy", "ghostbert_t98_fine"
    )
    assert body["counted"] == "2 recorded"


def test_data_that_are_not_at_hand_are_one_line_on_the_page_and_stop_no_other(
    workbook, tmp_path
):
    """Found when a grid is made; a run that finds it is told by its ledger
    (test_sweep)."""
    root, lib, _ = workbook
    path = root / "notebooks" / "ghostbert_t96_absent.ipynb"
    write(path.parent, path.stem, "page.show_table(runs, 'Scores')")
    text = path.read_text()
    path.write_text(
        text.replace(
            'data.make_data_descriptor(\\"toy\\", \\"CoLA\\"',
            'data.make_data_descriptor(\\"senteval\\", \\"Tense\\"',
        )
    )
    assert path.read_text() != text
    (evil := tmp_path / EVIL.partition("<script")[0]).mkdir()
    done = lib("run", "--profile", "toy", DATA_ROOT=str(evil))
    path.unlink()
    assert (
        done.returncode == 1
        and "cannot   ghostbert_t96_absent: " in done.stdout
        and "Traceback" not in done.stderr
    )
    told = (index := root / "figures/toy/index.html").read_text()
    assert re.search("failed</span> <small>[^<]*put them there by hand", told)
    assert "The notebook is none of the committed ones." in told
    assert "ghostbert_t98_fine.html" in told
    if shutil.which("chromium"):
        assert "$DATA_ROOT/probing" in seen(
            index
        )  # no folder of this machine, and no script ran
