"""This module makes one page: papermill runs a notebook, which is converted to HTML.

A standard page at the profile mini is also written in Markdown, for a code host."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from filelock import FileLock, Timeout

from lib.claims import judging, notebook
from lib.core import disk, paths
from lib.core.names import Refused, error_in_one_line
from lib.core.rows import Row
from lib.core.spec import Spec
from lib.core.store import Store, print_once
from lib.core.types import Json
from lib.report import equation, front, verdicts

if TYPE_CHECKING:
    from nbformat import NotebookNode

# Globs of the files on which every page depends, beside its notebook and runs.
CODE = "lib/**/*.py lib/**/*.toml lib/report/template/**/*.* data/found.md data/published/**/*.*"
# Matches the code of a notebook's cell that shows a table or a figure.
SHOWS = re.compile(r"\bpage\.show_(table|figure|forest_plot|live_figure)\(|\(page\b")
FOLD = "The code of the drawing"
# HTML attributes of table heads, for screen readers.
ROW, COLUMN = 'scope="row"', 'scope="col"'
# Matches the headings of a page, for its table of contents.
HEADING = re.compile(r'<h2 id="([^"]+)">(.*?)<a class="anchor-link"', re.S)
TAG, MAIN = re.compile("<[^>]*>"), '<main id="main">'


PageJson: TypeAlias = Json  # What the last cell of a notebook wrote on its page.
Seconds: TypeAlias = float


class PageLink(NamedTuple):
    notebook_id: str
    title: str


@cache
def digest_code_of_pages() -> str:
    """Return one digest of all files on which every page depends: code, published
    numbers and written findings."""
    files = {file for pattern in CODE.split() for file in paths.ROOT.glob(pattern)}
    return disk.digest_bytes(b"".join(file.read_bytes() for file in sorted(files)))


def digest_page_contents(builder: PageBuilder, store: Store) -> str:
    """Return the digest of all that a page shows, by which a page that is out of date
    is recognised.

    It covers the notebook, the code, the published numbers, the results of the page's
    runs, and what the records say of the page: its recorded runs and tested claims."""
    recorded = judging.digest_notebook_records(notebook.make_notebook_id(builder.path))
    results: list[Any] = [recorded]
    for row in chain(*builder.grids.values()):
        run = store.look_up_state(row.spec)["run"]
        results.append([row.spec.name, run and (run.name, run.origin, run.metrics)])
    return disk.digest_values(builder.text, digest_code_of_pages(), results)


@dataclass(eq=False)
class PageBuilder:
    """A PageBuilder has the notebook, the folder and the state of one page that a
    command makes."""

    path: Path
    folder: Path
    # Sentences on how the notebook differs from the committed one; none for a standard
    # page.
    differs: Sequence[str] = ()
    values: Json = field(default_factory=dict)  # Values of all parameters.
    text: str = ""  # JSON text of the notebook when the command began.
    # {variable of the notebook: rows of its runs}
    grids: dict[str, list[Row]] = field(default_factory=dict)
    # Specs whose runs the page waits for.
    left: set[Spec] = field(default_factory=set)
    failed: str = ""
    tried: str = ""  # Digest of the page's contents at the last attempt to make it.

    @property
    def html_path(self) -> Path:
        return self.folder / f"{notebook.make_notebook_id(self.path)}.html"

    @property
    def page_json(self) -> PageJson | None:
        """Return the JSON that the page's last cell wrote; None for an incomplete page.

        A page that was run by hand in JupyterLab has this JSON and no HTML."""
        is_complete = (
            split_html_and_digest(self.html_path).digest or not self.html_path.exists()
        )
        return (
            notebook.read_notebook_page_json(
                self.folder, notebook.make_notebook_id(self.path)
            )
            if is_complete
            else None
        )

    def note_failure(self, reason: str) -> None:
        """Note why the page could not be made, and delete the outdated page."""
        self.failed = paths.hide_local_paths(reason)
        self.html_path.unlink(missing_ok=True)


class HtmlAndDigest(NamedTuple):
    html: str
    digest: str


def split_html_and_digest(page_file: Path) -> HtmlAndDigest:
    """Return the HTML of a page, and the digest of its files that the comment at its
    end has (`compute_digest_of_page_files`); "" where a file written in part lacks
    it."""
    text = page_file.read_text(errors="replace") if page_file.is_file() else ""
    html, _, end = text.rpartition("<!-- ")
    mark = re.fullmatch(r"(\w+) -->", end)
    return HtmlAndDigest(html, mark[1]) if mark else HtmlAndDigest(text, "")


def compute_digest_of_page_files(
    builder: PageBuilder, contents_digest: str, html_text: str
) -> str:
    """Return the digest that is written at the end of a page, to recognise whether it
    is unchanged.

    It covers the digest of the page's contents, its HTML and its other files on disk.
    So a page with an edited number or a damaged picture is made again."""
    name, folder = notebook.make_notebook_id(builder.path), builder.folder
    names = [f"{name}{end}" for end in (".json", ".ipynb", ".page.md")]
    names += (notebook.read_notebook_page_json(folder, name) or {"files": []})["files"]
    files = {n: disk.digest_file(folder / n) for n in names if (folder / n).is_file()}
    return disk.digest_values(
        contents_digest, disk.digest_bytes(html_text.encode()), files
    )


def is_up_to_date(builder: PageBuilder, contents_digest: str) -> bool:
    """Return whether the page on disk shows the contents with this digest, and its
    files are unchanged."""
    html, mark = split_html_and_digest(builder.html_path)
    return bool(builder.page_json) and mark == compute_digest_of_page_files(
        builder, contents_digest, html
    )


def render_page(builder: PageBuilder, contents_digest: str) -> Seconds:
    """Execute a notebook and write its page. Return how long it took.

    contents_digest: the digest of the page's contents."""
    import nbformat

    began, path, folder = time.monotonic(), builder.path, builder.folder
    name = notebook.make_notebook_id(path)
    with hold_page_lock(folder, name):
        run_with_papermill(builder)
        book: Any = nbformat.read(folder / f"{name}.ipynb", 4)
        body = notebook.read_notebook_page_json(folder, name)
        assert body is not None
        remove_outdated_pictures(folder, name, body["files"])
        if body["profile"] == "mini" and not builder.differs:
            text = convert_to_markdown(book, notebook.read_notebook_title(path), body)
            disk.write_text_file(folder / f"{name}.page.md", text)
        html = convert_to_html(path, book, body)
        disk.write_text_file(
            builder.html_path,
            f"{html}<!-- {compute_digest_of_page_files(builder, contents_digest, html)} -->",
        )
    return time.monotonic() - began


def remove_outdated_pictures(
    folder: Path, notebook_id: str, current_file_names: Collection[str]
) -> None:
    """Remove the pictures of a page, and their data, that an earlier execution of its
    notebook wrote and this one did not.

    current_file_names: the files that it wrote this time."""
    for ending in ("png", "svg", "figure.csv"):
        for path in folder.glob(f"{notebook_id}.*{ending}"):
            if path.name not in current_file_names:
                disk.remove_path(path)


@contextmanager
def hold_page_lock(folder: Path, notebook_id: str) -> Iterator[None]:
    """Lock a page for this process within the `with` block; wait while another process
    makes it.

    Temporary files of a killed process are removed."""
    with disk.translate_full_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f".{notebook_id}.lock", thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            print_once(f"waiting  {notebook_id}: another process is making its page")
            lock.acquire()
    try:
        for path in folder.glob(f".{notebook_id}.*"):
            if path.suffix != ".lock":
                disk.remove_path(path)
        yield
    finally:
        lock.release()


def run_with_papermill(builder: PageBuilder) -> None:
    """Execute a notebook with papermill, and write it with its outputs to
    `<folder>/<id>.ipynb`.

    Raises Refused where a cell fails, or where the kernel dies before the last cell."""
    import papermill
    from traitlets.config import Config

    from lib.report.kernel import ForkingKernelManager

    name, folder = notebook.make_notebook_id(builder.path), builder.folder
    output, ledger = folder / f"{name}.ipynb", folder / f"{name}.json"
    see = f"see {paths.format_path(output)}"
    os.environ[notebook.BATCH] = json.dumps([str(folder), list(builder.differs)])
    how = {
        "prefix": "kernel-",
        "ignore_cleanup_errors": True,
        "dir": paths.find_socket_folder(),
    }
    with tempfile.TemporaryDirectory(**how) as place:
        ledger.unlink(missing_ok=True)
        (writer := Path(place, f"{name}.ipynb")).write_text(builder.text)
        # Kernels that start at the same time would compete for TCP ports, so each has
        # Unix sockets in its own folder.
        kernel = {"transport": "ipc", "ip": f"{place}/s"}
        kernel |= {"connection_file": f"{place}/k.json"}
        how = {"kernel_name": "python3", "cwd": str(paths.ROOT), "progress_bar": False}
        # Without this, idle kernels log that they stop.
        how |= {"extra_arguments": ["--log-level=CRITICAL"], "start_timeout": 180}
        how |= {
            "config": Config(KernelManager=kernel),
            "kernel_manager_class": ForkingKernelManager,
        }
        try:
            with disk.translate_full_disk_errors(place):
                papermill.execute_notebook(
                    str(writer), str(writer), builder.values, **how
                )
        except papermill.PapermillExecutionError as error:
            raise Refused(f"{error.ename}: {error.evalue}; {see}") from None
        # The death of a kernel raises errors of several kinds.
        except Exception as error:
            raise Refused(
                f"the kernel died ({error_in_one_line(error)}); {see}"
            ) from None
        finally:
            disk.write_text_file(output, paths.hide_local_paths(writer.read_text()))
    if not ledger.exists():
        raise Refused(f"the kernel died before its last cell; {see}")


def drop_empty_sections(cells: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the cells of an executed notebook without the sections that show nothing.

    Such a section is a text before a figure or table that was not made, since a run is
    missing. A text before code that never shows anything stays."""
    visible, is_empty, has_figure_code = [], True, False
    for cell in reversed(cells):
        is_text = cell["cell_type"] == "markdown"
        # Cells are read backwards: this one begins the section of the cells before.
        if is_text or "verdicts" in list_cell_tags(cell):
            if not (
                is_text and is_empty and has_figure_code
            ) or "title" in list_cell_tags(cell):
                visible.append(cell)
            is_empty, has_figure_code = True, False
        else:
            visible.append(cell)
            is_empty &= "artefact" in list_cell_tags(cell) and not cell["outputs"]
            has_figure_code |= bool(SHOWS.search("".join(cell["source"])))
    return visible[::-1]


def drop_widget_cells(cells: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the cells of a notebook without those that show widgets and the text
    before each, for Markdown."""
    visible, is_knob = [], False
    for cell in reversed(cells):
        introduces_knob = is_knob and cell["cell_type"] == "markdown"
        is_knob = "explore" in cell["metadata"].get("tags", [])
        if not (is_knob or introduces_knob):
            visible.append(cell)
    return visible[::-1]


def format_code_as_markdown(cell: Mapping[str, Any]) -> str:
    """Return the code of a notebook's cell as Markdown; hidden code becomes a folded
    block."""
    code = f"```python\n{''.join(cell['source'])}\n```"
    if notebook.has_folded_code(cell):
        return f"<details><summary>{FOLD}</summary>\n\n{code}\n\n</details>"
    return code


def move_first_picture_below_title(
    cells: list[Mapping[str, Any]], notebook_id: str
) -> list[Mapping[str, Any]]:
    """Return the cells of a page with its first picture below the title.

    The text before the picture moves with it, without its heading, where the section
    has no other output. A notebook that explains a method (00_...) keeps its order.

    notebook_id: file name of the notebook."""
    pictures = [
        (place, output)
        for place, cell in enumerate(cells)
        for output in cell.get("outputs", ())
        if "".join(output.get("data", {}).get("text/markdown", "")).startswith("![")
    ]
    titles = [n for n, cell in enumerate(cells) if "title" in list_cell_tags(cell)]
    if notebook_id.startswith("00_") or not pictures or not titles:
        return cells
    (place, picture), title = pictures[0], titles[0]
    texts = [n for n, cell in enumerate(cells) if cell["cell_type"] == "markdown"]
    begin = max(n for n in texts if n < place)
    end = min((n for n in texts if n > place), default=len(cells))
    shown = [output for cell in cells[begin:end] for output in cell.get("outputs", ())]
    heading, _, rest = "".join(cells[title]["source"]).partition("\n")
    order = [
        copy_cell(cells[title], id="heading", source=heading),
        copy_cell(cells[place], id="picture", source="", outputs=[picture]),
    ]
    for n, cell in enumerate(cells):
        if n == title:
            order.append(copy_cell(cell, metadata={}, source=rest.strip()))
        elif n == begin and shown == [picture]:
            words = "".join(cell["source"]).partition("\n")[2].strip()
            order.insert(2, copy_cell(cell, id="words", source=words))
        elif n == place:
            others = [output for output in cell["outputs"] if output is not picture]
            order.append(copy_cell(cell, outputs=others))
        else:
            order.append(cell)
    return order


def copy_cell(cell: Any, **fields: Any) -> Any:
    """Return a copy of a notebook's cell, of its class, with some fields replaced."""
    return type(cell)({**cell, **fields})


def list_cell_tags(cell: Mapping[str, Any]) -> list[str]:
    return cell["metadata"].get("tags", [])


def convert_to_html(
    notebook_path: Path, notebook_json: NotebookNode, page_json: PageJson
) -> str:
    """Return the HTML page of an executed notebook.

    notebook_path: the notebook's file in the repository.
    page_json: the JSON that its last cell wrote."""
    from nbconvert import HTMLExporter

    notebook_json.cells = move_first_picture_below_title(
        drop_empty_sections(notebook_json.cells), notebook_path.name
    )
    for cell in notebook_json.cells:
        if cell.cell_type == "markdown":
            cell.source = equation.prepare_markdown_for_html(cell.source, notebook_path)
    parts: Any = verdicts.ENVIRONMENT.get_template("frame.html.j2").module
    top = parts.top(
        page_json["profile"],
        notebook.read_notebook_title(notebook_path),
        page_json["differs"],
    )
    turns = (
        ()
        if page_json["differs"]
        else find_previous_and_next_pages(page_json["id"], page_json["profile"])
    )
    around: Any = {"top": str(top), "bottom": str(parts.bottom(page_json, *turns))}
    around |= {"is_method": notebook.is_method_notebook(notebook_path), "fold": FOLD}
    how: Any = {"extra_template_basedirs": [str(verdicts.TEMPLATE)]}
    how |= {"template_name": "workbook", "exclude_input_prompt": True}
    exporter = HTMLExporter(**how)
    page = exporter.from_notebook_node(notebook_json, around)[0]
    page = re.sub("<th(?=[ >])", f"<th {ROW}", page)
    page = re.sub(
        "(?s)<thead>.*?</thead>", lambda head: head[0].replace(ROW, COLUMN), page
    )
    headings = [(id, TAG.sub("", text)) for id, text in HEADING.findall(page)]
    if len(headings) > 1:
        page = page.replace(MAIN, f"{MAIN}{parts.contents(headings)}", 1)
    home = f"../../../{page_json['profile']}/" if page_json["differs"] else ""
    return page.replace("</h1>", f"</h1>{parts.answer(page_json['answer'], home)}", 1)


def find_previous_and_next_pages(
    notebook_id: str, profile: str
) -> list[PageLink | tuple[()]]:
    """Return the previous and the next page in the order of the index, for a page's
    links.

    There is () at an end of the index, and [] for a page that is not in the index."""
    names = ["", *front.list_ordered_pages(profile), ""]
    if notebook_id not in names:
        return []
    place = names.index(notebook_id)
    pages = [names[place - 1], names[place + 1]]
    return [
        PageLink(n, notebook.read_notebook_title(notebook.find_notebook_path(n)))
        if n
        else ()
        for n in pages
    ]


def convert_to_markdown(
    notebook_json: Mapping[str, Any], title: str, page_json: PageJson
) -> str:
    """Return a page in Markdown: its answer, its texts, and its outputs in Markdown.

    Cells after the tested claims are left out. A notebook that explains a method has
    all its text and code, without widgets.

    notebook_json: the executed notebook.
    page_json: the JSON that its last cell wrote."""
    made = "Profile {profile}, made of [`{place}`](../../{place}), records `{records}`."
    path = notebook.find_notebook_path(page_json["id"])
    place = f"notebooks/{path.relative_to(paths.NOTEBOOKS).as_posix()}"
    made = made.format_map(page_json | {"place": place})
    first, *more = page_json["answer"] or [""]
    parts = [f"# {title}", first and f"**{first}**", "\n".join(f"- {m}" for m in more)]
    is_method = notebook.is_method_notebook(path)
    cells = move_first_picture_below_title(
        drop_empty_sections(notebook_json["cells"]), path.name
    )
    for cell in drop_widget_cells(cells) if is_method else cells:
        source = "".join(cell["source"])
        if is_method and "artefact" in list_cell_tags(cell):
            parts.append(format_code_as_markdown(cell))
        if "title" in list_cell_tags(cell):
            source = source.partition("\n")[2].strip()
        # The Markdown pages lie in one folder, so links between them need no path.
        if cell["cell_type"] == "markdown":
            parts.append(equation.link_notebooks_to_pages(source, "page.md", path))
        for output in cell.get("outputs", ()):
            text = output.get("data", {}).get("text/markdown", "")
            parts.append("".join(text).strip())
        if "verdicts" in list_cell_tags(cell) and not is_method:
            break
    return "\n\n".join([*filter(None, parts), made]) + "\n"
