"""JupyterLab in a real browser, as a reader has it: every cell of the start notebook,
a knob of a method notebook and of a table, the live figures.

Seconds are those of the kernel's processor, so that a busy machine fails no test.
"""

import json
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from lib.core import paths

browser = pytest.importorskip("playwright.sync_api", reason="see requirements-dev.txt")
CHROMIUM = Path(shutil.which("chromium") or "/usr/bin/chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not CHROMIUM.exists(), reason="Debian's package chromium is not installed"
    ),
]
CELL, ANSWER = 20.0, 1.0  # seconds that a cell, and a knob, may take
PATIENCE = 600.0  # seconds of the clock until a notebook is done
PLACES = ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTERLAB_WORKSPACES_DIR")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """(folder of copied notebooks, JupyterLab's process, its address)."""
    root = tmp_path_factory.mktemp("lab")
    ignored = shutil.ignore_patterns(".*")
    folder = shutil.copytree(paths.NOTEBOOKS, root / "notebooks", ignore=ignored)
    places = {name: str(root / name) for name in (*PLACES, "RUNS_ROOT", "FIGURES_ROOT")}
    env = os.environ | places | {"PYTHONPATH": str(paths.ROOT)}
    words = [
        sys.executable,
        "-m",
        "jupyter",
        "lab",
        str(folder),
        "--no-browser",
        "--allow-root",
    ]
    with open(root / "log", "w") as log:
        server = psutil.Popen(words, env=env, stdout=log, stderr=log)
    try:
        yield folder, server, address(root / PLACES[0], server)
    finally:
        server.terminate()
        server.wait(60)


def address(folder, server):
    """A notebook's address, its name left open, as a server tells its own in a file."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        assert server.poll() is None, "JupyterLab ended"
        for file in folder.glob("jpserver-*.json"):
            with suppress(json.JSONDecodeError):  # it is being written
                told = json.loads(file.read_text())
                return f"{told['url']}doc/tree/{{}}.ipynb?token={told['token']}"
        time.sleep(0.1)
    raise TimeoutError("JupyterLab did not start")


@pytest.fixture
def reader(lab):
    """f(name, old, new): a notebook, opened in a browser, with a parameter that was
    edited before. No script of it may fail, and none may ask another host."""
    folder, server, url = lab
    wrong, here = [], ("data:", "blob:", url.partition("doc/")[0])
    with browser.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        page = chromium.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(1000 * PATIENCE)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda asked: asked.url.startswith(here) or wrong.append(asked.url),
        )

        def read(name, old="", new=""):
            path = folder / f"{name}.ipynb"
            assert old in (text := path.read_text())
            path.write_text(text.replace(old, new) if old else text)
            return Reader(page, server, url.format(name))

        yield read
        chromium.close()
    assert not wrong


class Reader:
    """A notebook in JupyterLab: its menus, its cells, its knobs."""

    def __init__(self, page, server, url):
        self.page, self.server = page, server
        self.waiting = page.locator(".jp-CodeCell .jp-InputPrompt", has_text="[*]")
        page.goto(url)
        page.get_by_text("| Idle").wait_for()

    def menu(self, name, item):
        self.page.locator(".lm-MenuBar").get_by_text(name, exact=True).click()
        self.page.locator(".lm-Menu").get_by_text(item, exact=True).click()

    def busy(self):
        """Seconds of the processor that kernels have taken."""
        found = 0.0
        for kernel in self.server.children():
            with suppress(psutil.NoSuchProcess):
                found += sum(kernel.cpu_times()[:2])
        return found

    def run_all(self):
        """Run all cells. Returns the seconds of each."""
        while not self.waiting.count():  # a click is lost while the kernel connects
            self.menu("Run", "Run All Cells")
            with suppress(browser.TimeoutError):
                self.waiting.first.wait_for(timeout=20_000)
        return self.follow()

    def follow(self):
        """Wait until all cells have run. Returns the seconds of each."""
        seconds, left, began = [], self.waiting.count(), self.busy()
        while left:
            time.sleep(0.2)
            now = self.waiting.count()
            seconds += [self.busy() - began - sum(seconds)] * (now < left)
            left = now
        return seconds

    def errors(self):
        """What cells said went wrong."""
        found = self.page.locator("[data-mime-type='application/vnd.jupyter.error']")
        return found.all_inner_texts()

    def choose(self, knob, value):
        """Choose a value of a knob of the first picture, and wait until the picture is
        another. Returns the seconds."""
        knobs = self.page.locator(".widget-interact").first
        picture = knobs.locator(".widget-output svg")
        before = picture.inner_html()
        began = self.busy()
        until = time.monotonic() + PATIENCE
        knobs.locator(".widget-dropdown", has_text=knob).locator(
            "select"
        ).select_option(value)
        while picture.inner_html() == before:
            assert time.monotonic() < until, f"{knob} = {value} gives no other picture"
            time.sleep(0.02)
        return self.busy() - began


def test_every_cell_of_the_start_notebook_is_quick(reader):
    book = reader("00_start_here")
    seconds = book.run_all()
    assert (
        not book.errors() and sum(seconds) > max(seconds) > 0 and max(seconds) < CELL
    ), seconds


def test_a_knob_answers_at_once(reader):
    book = reader("ghostbert/00_method", "count: int = 2000", "count: int = 200")
    assert book.run_all() and not book.errors()
    taken = [book.choose("taps", taps) for taps in ("9", "1")]
    assert max(taken) < ANSWER, taken


def test_the_figures_of_the_live_page_work_without_a_network(reader):
    book = reader("explore", 'str = \\"toy\\"', 'str = \\"mini\\"')
    assert book.run_all() and not book.errors()
    shown = book.page.locator("figure.live .shown")
    before = shown.all_text_contents()
    assert len(before) == 4 and all(text.endswith("shown") for text in before)
    book.page.locator("figure.live select[name=paper]").select_option(index=1)
    assert shown.nth(1).text_content() != before[1]
    with book.page.expect_popup() as opened:
        book.page.locator("figure.live .scatterlayer .point").first.click(force=True)
    assert opened.value.url.endswith("91_frontier.ipynb")


def test_a_reader_chooses_what_the_models_of_a_page_are_compared_with(reader):
    """All runs of the page are recorded, so none is made."""
    book = reader(
        "efficientbert/t03_nas_methods", 'str = \\"toy\\"', 'str = \\"mini\\"'
    )
    assert book.run_all() and not book.errors()
    assert book.choose("baseline", "EfficientBERT_TINY") < ANSWER
