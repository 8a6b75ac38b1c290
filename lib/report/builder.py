"""This module makes one page: papermill runs a notebook, which is converted to HTML.

A standard page at the profile mini is also written in Markdown, for a code host."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lib.claims import judging, notebook
from lib.core import disk, paths
from lib.core.names import Refused, format_error_in_one_line
from lib.core.rows import Row
from lib.core.spec import Spec
from lib.core.store import Store, hold_lock, is_locked, print_once
from lib.core.types import ContextYield, Digest, ProfileName
from lib.report import equation, front, verdicts

if TYPE_CHECKING:
    from nbformat import NotebookNode

# Globs, between blanks, of the files on which every page depends. A page also depends
# on its notebook and runs.
CODE = "lib/**/*.py lib/**/*.toml lib/report/template/**/*.* data/found.md data/published/**/*.*"
# Matches the code of a notebook's cell that shows a table or a figure.
SHOWS = re.compile(r"\bpage\.show_(table|figure|forest_plot|live_figure)\(|\(page\b")
FOLD = "The code of the drawing"
MAIN = '<main id="main">'


# (id of a notebook, title of its page).
PageIdAndTitle: TypeAlias = tuple[str, str]
Seconds: TypeAlias = float


@cache
def digest_shared_page_inputs() -> Digest:
    """Return one digest of all files on which every notebook's HTML page depends.

    They are the code and settings of lib, the templates of pages, all files below
    data/published (such as printed numbers, claims and plans), and data/found.md, the
    text of the findings. A page that was made with another digest is out of date."""
    files = {file for pattern in CODE.split() for file in paths.ROOT.glob(pattern)}
    return disk.digest_bytes(b"".join(file.read_bytes() for file in sorted(files)))


# The page on which readers choose recorded runs, and the pages whose runs it draws.
LIVE_PAGE, ITS_RUNS = "explore", ("91_frontier", "ghostbert_f03_kernel_size")
RECORDED_TABLES = ("verdicts.csv", "runs.csv", "arithmetic.csv")


def digest_results_beside_own_runs(notebook_id: str) -> list[Digest]:
    """Return digests of the results that a page shows beside runs of its own.

    They are the recorded results of its claims. A summary and the live page rest on the
    tables of all comparisons too, and a page of `bench` on the measurements of speed."""
    shown, tables = [notebook_id], []
    if notebook_id == LIVE_PAGE:
        shown += ITS_RUNS
    if notebook_id in (*judging.SUMMARIES.split(), LIVE_PAGE):
        tables = [paths.records_root() / name for name in RECORDED_TABLES]
    elif notebook_id.startswith("bench_"):
        tables = sorted((paths.ROOT / "figures" / "bench").glob("*.csv"))
    return [
        *map(judging.digest_results_shown_by_notebook, shown),
        *(disk.digest_file(table) for table in tables if table.exists()),
    ]


def digest_page_inputs(builder: PageBuilder, store: Store) -> Digest:
    """Return a digest of all that a notebook's HTML page is made from.

    It covers the text of the notebook, the code, the files below data/published (such
    as printed numbers), the metrics of the notebook's runs, and the results that the
    page shows from files of the repository. A page that was made with another digest is
    out of date.

    builder: the state of the page.
    store: where finished runs are looked up."""
    results: list[Any] = digest_results_beside_own_runs(builder.notebook_id)
    for row in chain(*builder.rows_by_variable.values()):
        status = store.find_run_with_state(row.spec)
        run = status["run"]
        why = "" if run else (status["state"], store.explain_missing_run(row.spec))
        made = run and (run.name, run.origin, run.metrics)
        results.append([row.spec.name, made, why])
    return disk.digest_values(
        builder.notebook_text, digest_shared_page_inputs(), results
    )


@dataclass(eq=False)
class PageBuilder:
    """A PageBuilder is the state of one HTML page that a command makes from a notebook.

    path: the notebook.
    folder: where the page is written.
    changes_to_notebook: sentences on how the notebook differs from its original in the
    repository; none for a standard page.
    parameter_values: {parameter of the notebook: value}, with all parameters.
    notebook_text: JSON text of the notebook when the command began.
    rows_by_variable: {variable of the notebook: its Rows, which are experiments, each
    with labels and the description of a run}. Those of the variable `grid` are run,
    others are only looked up.
    unfinished_specs: Specs (descriptions of runs) whose runs are not finished; the page
    waits for them.
    failure_reason: why the page could not be made; "" if no attempt failed.
    last_tried_digest: digest of all that the page is made from, at the last attempt to
    make it; "" before the first attempt. A page that failed is not tried again with the
    same digest.
    backend: where runs are made that a notebook asks for while its page is made:
    "local", "ray" or "slurm".
    workers: how many of them at once; None for as many as fit."""

    path: Path
    folder: Path
    changes_to_notebook: Sequence[str] = ()
    parameter_values: notebook.ParameterValues = field(default_factory=dict)
    notebook_text: str = ""
    rows_by_variable: dict[str, list[Row]] = field(default_factory=dict)
    unfinished_specs: set[Spec] = field(default_factory=set)
    failure_reason: str = ""
    last_tried_digest: Digest = ""
    backend: str = "local"
    workers: int | None = None

    @property
    def notebook_id(self) -> str:
        return notebook.make_notebook_id(self.path)

    @property
    def html_path(self) -> Path:
        return self.folder / f"{self.notebook_id}.html"

    @property
    def page_summary(self) -> notebook.PageSummary | None:
        """Return the JSON summary that the notebook's "verdicts" cell wrote, or None.

        The summary has the page's answer (sentences with the main result), parameters,
        runs and files. The result is None where the JSON file is missing or unreadable.
        It is None too where the page's HTML file was written only in part, as the page
        is then made again."""
        is_partial = not read_page_html_and_digest(self.html_path).digest
        if is_partial and self.html_path.exists():
            return None
        return notebook.read_notebook_page_json(self.folder, self.notebook_id)

    def record_failure_and_delete_html(self, reason: str) -> None:
        """Note why the page could not be made, and delete its outdated HTML file.

        The index of pages shows the reason. Paths of this machine's folders in the
        reason are replaced by placeholders."""
        self.failure_reason = paths.hide_local_paths(reason)
        self.html_path.unlink(missing_ok=True)


class HtmlAndDigest(NamedTuple):
    html: str
    digest: Digest


def read_page_html_and_digest(page_file: Path) -> HtmlAndDigest:
    """Return (HTML, digest): a page's file, divided at the comment that ends it.

    The comment has the digest, which tells whether the page is unchanged
    (`compute_digest_of_page_files`). The digest is "" where the comment is missing, as
    in a file that was written in part. Both HTML and digest are "" where there is no
    file."""
    text = page_file.read_text(errors="replace") if page_file.is_file() else ""
    html, _, end = text.rpartition("<!-- ")
    mark = re.fullmatch(r"(\w+) -->", end)
    return HtmlAndDigest(html, mark[1]) if mark else HtmlAndDigest(text, "")


def compute_digest_of_page_files(
    builder: PageBuilder, input_digest: Digest, html_text: str
) -> Digest:
    """Return the digest that stands at the end of an HTML page, to recognise changes.

    It covers the digest of what the page is made from, its HTML, and its other files on
    disk: JSON, notebook, Markdown, tables and pictures. So a page with an edited number
    or a damaged picture is recognised and made again.

    input_digest: the digest of what the page is made from
    (`digest_page_inputs`)."""
    name, folder = builder.notebook_id, builder.folder
    names = [f"{name}{end}" for end in (".json", ".ipynb", ".page.md")]
    names += (notebook.read_notebook_page_json(folder, name) or {"files": []})["files"]
    files = {n: disk.digest_file(folder / n) for n in names if (folder / n).is_file()}
    return disk.digest_values(
        input_digest, disk.digest_bytes(html_text.encode()), files
    )


def is_page_up_to_date(builder: PageBuilder, input_digest: Digest) -> bool:
    """Return whether a page on disk is current, so that it need not be made again.

    The page is current if it was made from what `input_digest` stands for, and if none
    of its files on disk has changed since.

    input_digest: the digest of what the page is to be made from
    (`digest_page_inputs`)."""
    html, mark = read_page_html_and_digest(builder.html_path)
    return bool(builder.page_summary) and mark == compute_digest_of_page_files(
        builder, input_digest, html
    )


def render_page(builder: PageBuilder, input_digest: Digest) -> Seconds:
    """Execute a notebook and write its HTML page. Return the seconds that it took.

    At the profiles (sizes of the experiments) mini and base, which have committed
    results, the page of an unchanged notebook is also written in Markdown, for a code
    host such as GitHub. If another process makes the same page, this one waits for it.
    Raises Refused where a cell of the notebook fails.

    builder: the notebook and the folder of the page.
    input_digest: the digest of what the page is made from
    (`digest_page_inputs`)."""
    import nbformat

    began, path, folder = time.monotonic(), builder.path, builder.folder
    name = builder.notebook_id
    with hold_page_lock(folder, name):
        execute_notebook_with_papermill(builder)
        book: Any = nbformat.read(folder / f"{name}.ipynb", 4)
        body = notebook.read_notebook_page_json(folder, name)
        assert body is not None
        remove_outdated_pictures(folder, name, body["files"])
        if body["profile"] in judging.SCALES and not builder.changes_to_notebook:
            text = convert_notebook_to_markdown(
                book, notebook.read_notebook_title(path), body
            )
            disk.write_text_file(folder / f"{name}.page.md", text)
        html = convert_notebook_to_html(path, book, body)
        disk.write_text_file(
            builder.html_path,
            f"{html}<!-- {compute_digest_of_page_files(builder, input_digest, html)} -->",
        )
    return time.monotonic() - began


def remove_outdated_pictures(
    folder: Path, notebook_id: str, current_file_names: Collection[str]
) -> None:
    """Remove a page's pictures, and their data files, that its notebook wrote earlier.

    Those that the latest execution of the notebook wrote again stay. The others are
    removed, so that no old result is shown.

    current_file_names: names of the files that the latest execution wrote."""
    for ending in ("png", "svg", "figure.csv"):
        for path in folder.glob(f"{notebook_id}.*{ending}"):
            if path.name not in current_file_names:
                disk.remove_path(path)


@contextmanager
def hold_page_lock(folder: Path, notebook_id: str) -> ContextYield[None]:
    """Hold the lock of a page in the `with` block, so that only one process makes it.

    If another process has the lock, a line says so and this process waits. Before the
    block runs, temporary files that a killed process left behind are removed.

    folder: the folder of the page, which is created if it is missing."""
    lock_path = folder / f".{notebook_id}.lock"
    if is_locked(lock_path):
        print_once(f"waiting  {notebook_id}: another process is making its page")
    with hold_lock(lock_path):
        for path in folder.glob(f".{notebook_id}.*"):
            if path != lock_path:
                disk.remove_path(path)
        yield


def execute_notebook_with_papermill(builder: PageBuilder) -> None:
    """Execute a notebook with papermill, and write it with its outputs.

    The file is `<folder>/<id>.ipynb`. It is written after an error too, so that the
    user can see the traceback. Raises Refused where a cell fails, or where the kernel
    dies before the cell tagged "verdicts", which writes the page's JSON file.

    builder: the notebook's text, its parameter values and the folder of the page."""
    import papermill
    from traitlets.config import Config

    from lib.report.kernel import ForkingKernelManager

    name, folder = builder.notebook_id, builder.folder
    output, ledger = folder / f"{name}.ipynb", folder / f"{name}.json"
    see = f"see {paths.format_project_path(output)}"
    changes = list(builder.changes_to_notebook)
    os.environ[notebook.BATCH] = json.dumps(
        [str(folder), changes, builder.backend, builder.workers]
    )
    with tempfile.TemporaryDirectory(
        prefix="kernel-",
        ignore_cleanup_errors=True,
        dir=paths.find_folder_for_unix_sockets(),
    ) as place:
        ledger.unlink(missing_ok=True)
        writer = Path(place, f"{name}.ipynb")
        writer.write_text(builder.notebook_text)
        # Kernels that start at the same time would compete for TCP ports, so each has
        # Unix sockets in its own folder.
        kernel = {
            "transport": "ipc",
            "ip": f"{place}/s",
            "connection_file": f"{place}/k.json",
        }
        try:
            with disk.raise_full_disk_as_oserror(place):
                papermill.execute_notebook(
                    writer,
                    writer,
                    builder.parameter_values,
                    kernel_name="python3",
                    cwd=str(paths.ROOT),
                    progress_bar=False,
                    # Hide the message that an idle kernel logs when it stops.
                    extra_arguments=["--log-level=CRITICAL"],
                    start_timeout=180,
                    config=Config(KernelManager=kernel),
                    kernel_manager_class=ForkingKernelManager,
                )
        except papermill.PapermillExecutionError as error:
            raise Refused(f"{error.ename}: {error.evalue}; {see}") from None
        # Errors of several kinds are raised where the kernel's process dies.
        except Exception as error:
            raise Refused(
                f"the kernel died ({format_error_in_one_line(error)}); {see}"
            ) from None
        finally:
            disk.write_text_file(output, paths.hide_local_paths(writer.read_text()))
    if not ledger.exists():
        raise Refused(f"the kernel died before its last cell; {see}")


def drop_empty_sections(cells: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the cells of an executed notebook without texts above missing results.

    A text cell is dropped if the code cells between it and the next text cell should
    show a table or figure and show nothing, since runs are missing. The title stays,
    and so does a text above code that never shows a table or figure. All code cells
    stay."""
    visible, is_empty, has_figure_code = [], True, False
    for cell in reversed(cells):
        is_text = cell["cell_type"] == "markdown"
        # Cells are read from the last to the first. So this cell begins the section of
        # which all other cells were read before it.
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
    """Return the cells of a notebook without widgets, which do not work in Markdown.

    A text cell directly before a cell with widgets is dropped too, since it explains
    them. A cell with widgets has the tag "explore"."""
    visible, is_knob = [], False
    for cell in reversed(cells):
        introduces_knob = is_knob and cell["cell_type"] == "markdown"
        is_knob = "explore" in list_cell_tags(cell)
        if not (is_knob or introduces_knob):
            visible.append(cell)
    return visible[::-1]


def format_code_as_markdown(cell: Mapping[str, Any]) -> str:
    """Return the code of a notebook's cell as a code block in Markdown.

    Code that is hidden in the notebook becomes a block that the reader can unfold."""
    code = f"```python\n{''.join(cell['source'])}\n```"
    if notebook.hides_source(cell):
        return f"<details><summary>{FOLD}</summary>\n\n{code}\n\n</details>"
    return code


def move_first_picture_below_title(
    cells: list[Mapping[str, Any]], notebook_id: str
) -> list[Mapping[str, Any]]:
    """Return the cells of a page with the first picture directly below the title.

    A reader then sees the main result first. The section of a picture is the text cell
    before it and the cells up to the next text cell, or to the cell with the tested
    claims. This text moves too, without its heading, if the section has no other
    output. The order stays for a notebook that explains a method (its file name begins
    with 00_), and where there is no picture or no title.

    cells: the cells of an executed notebook.
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
    verdicts = [n for n, cell in enumerate(cells) if "verdicts" in list_cell_tags(cell)]
    end = min((n for n in [*texts, *verdicts] if n > place), default=len(cells))
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


def copy_cell(cell: Any, **changed_fields: Any) -> Any:
    """Return a copy of a notebook's cell with some fields replaced, such as `source`.

    The copy has the class of the cell: dict, or nbformat's NotebookNode. The cell
    itself stays unchanged, so that pages in other formats can use it."""
    return type(cell)({**cell, **changed_fields})


def list_cell_tags(cell: Mapping[str, Any]) -> list[str]:
    return cell["metadata"].get("tags", [])


def convert_notebook_to_html(
    notebook_path: Path, notebook_json: NotebookNode, page_summary: notebook.PageSummary
) -> str:
    """Return the HTML page of an executed notebook.

    The answer, sentences with the main result, stands below the title. Equations become
    drawings, and links to notebooks become links to their pages. The cells of
    `notebook_json` are changed in place. Raises ValueError where an equation cannot be
    typeset.

    notebook_path: the notebook's file in the repository.
    notebook_json: the executed notebook.
    page_summary: the summary that the notebook's cell tagged "verdicts" wrote, with
    answer, profile (size of the experiments) and files."""
    from nbconvert import HTMLExporter

    parts: Any = verdicts.ENVIRONMENT.get_template("frame.html.j2").module
    profile, differs = page_summary["profile"], page_summary["differs"]
    home = parts.home_folder(profile, differs)
    notebook_json.cells = move_first_picture_below_title(
        drop_empty_sections(notebook_json.cells), notebook_path.name
    )
    for cell in notebook_json.cells:
        if cell.cell_type == "markdown":
            cell.source = equation.render_equations_and_redirect_links(
                cell.source, notebook_path, home
            )
        for output in cell.get("outputs", ()):
            if text := output.get("data", {}).get("text/markdown"):
                output.data["text/markdown"] = (
                    equation.redirect_notebook_links_to_pages(
                        text, "html", notebook_path, home
                    )
                )
    top = parts.top(profile, notebook.read_notebook_title(notebook_path), differs)
    turns = () if differs else find_previous_and_next_pages(page_summary["id"], profile)
    around: Any = {
        "top": str(top),
        "bottom": str(parts.bottom(page_summary, *turns)),
        "is_method": notebook.is_method_explanation_notebook(notebook_path),
        "fold": FOLD,
    }
    exporter = HTMLExporter(
        extra_template_basedirs=[str(verdicts.TEMPLATE)],
        template_name="workbook",
        exclude_input_prompt=True,
    )
    page = exporter.from_notebook_node(notebook_json, around)[0]
    # Screen readers are told which heads are of rows, and which of columns.
    page = re.sub("<th(?=[ >])", '<th scope="row"', page)
    page = re.sub(
        "(?s)<thead>.*?</thead>",
        lambda head: head[0].replace('scope="row"', 'scope="col"'),
        page,
    )
    headings = re.findall('(?s)<h2 id="([^"]+)">(.*?)<a class="anchor-link"', page)
    headings = [(id, re.sub("<[^>]*>", "", text)) for id, text in headings]
    if len(headings) > 1:
        page = page.replace(MAIN, f"{MAIN}{parts.contents(headings)}", 1)
    return page.replace(
        "</h1>", f"</h1>{parts.answer(page_summary['answer'], home)}", 1
    )


def find_previous_and_next_pages(
    notebook_id: str, profile: ProfileName
) -> list[PageIdAndTitle | None]:
    """Return [previous page, next page] of a notebook's page, for the links at its end.

    A page is (notebook id, title), in the order of the index of pages. It is None at
    an end of the index. The list is empty for a page that is not in the index.

    profile: size of the experiments, such as "mini". Each has an index of pages."""
    names = ["", *front.list_notebook_ids_in_index(profile), ""]
    if notebook_id not in names:
        return []
    place = names.index(notebook_id)
    pages = [names[place - 1], names[place + 1]]
    return [
        (n, notebook.read_notebook_title(notebook.find_notebook_path(n))) if n else None
        for n in pages
    ]


def convert_notebook_to_markdown(
    notebook_json: Mapping[str, Any], title: str, page_summary: notebook.PageSummary
) -> str:
    """Return an executed notebook as a Markdown page, for a code host such as GitHub.

    The page has the title, the answer (sentences with the main result), the texts and
    the outputs that have a form in Markdown. Code is left out, and so are cells after
    the one that shows the tested claims of the papers. The page of a notebook that
    explains a method differs: it has the code of tables and figures, and all cells but
    those with widgets.

    notebook_json: the executed notebook.
    title: the heading of the page.
    page_summary: the summary that the notebook's cell tagged "verdicts" wrote, with
    answer and profile."""
    path = notebook.find_notebook_path(page_summary["id"])
    place = f"notebooks/{path.relative_to(paths.NOTEBOOKS).as_posix()}"
    made = f"Profile {page_summary['profile']}, made of [`{place}`](../../{place}), "
    made += f"records `{page_summary['records']}`."
    first, *more = page_summary["answer"] or [""]
    parts = [f"# {title}", first and f"**{first}**", "\n".join(f"- {m}" for m in more)]
    is_method = notebook.is_method_explanation_notebook(path)
    cells = move_first_picture_below_title(
        drop_empty_sections(notebook_json["cells"]), path.name
    )
    for cell in drop_widget_cells(cells) if is_method else cells:
        source = "".join(cell["source"])
        if is_method and "artefact" in list_cell_tags(cell):
            parts.append(format_code_as_markdown(cell))
        if "title" in list_cell_tags(cell):
            source = source.partition("\n")[2].strip()
        if cell["cell_type"] == "markdown":
            parts.append(source)
        for output in cell.get("outputs", ()):
            text = output.get("data", {}).get("text/markdown", "")
            parts.append("".join(text).strip())
        if "verdicts" in list_cell_tags(cell) and not is_method:
            break
    text = "\n\n".join(filter(None, parts))
    # All Markdown pages lie in one folder. So a link is the same whatever the name of the
    # page that has it, and "page.md" stands for any of them.
    text = equation.redirect_notebook_links_to_pages(text, "page.md", path)
    return f"{text}\n\n{made}\n"
