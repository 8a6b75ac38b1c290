"""This module makes the pages of a command, and the index of the pages of a profile.

A page is the HTML of an executed notebook (lib.report.builder); a profile is the scale
of its runs. The index is written first. Each page follows as soon as its runs are
finished.

A page is made anew when its notebook, the code, or one of its runs has changed. A
notebook has run to its end if the file `<id>.json` exists, which its cell tagged
"verdicts" writes. papermill's marks in the notebook cannot show this: after the kernel
died, they say of every cell that it was completed. Pages with changed cells, with other
parameters than the defaults, or with a reader's own data or model, are experiments.
Each has a folder of its own below `figures/scratch/`, and the index of their profile
lists them last."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tqdm import tqdm

from lib.claims import lists, notebook
from lib.cluster import executors
from lib.core import disk, paths
from lib.core.names import Refused, format_error_in_one_line
from lib.core.rows import Row
from lib.core.spec import Spec
from lib.core.store import Store
from lib.core.types import ContextYield, Json, ProfileName
from lib.papers import grids
from lib.report import front, verdicts
from lib.report.builder import (
    PageBuilder,
    digest_page_inputs,
    is_page_up_to_date,
    render_page,
)

# Globs of folders with rendered pages, relative to the folder of all figures. The first
# is that of standard pages, the second that of experiments, such as pages on a user's
# data.
PLACES = ("*", "scratch/*/*")


HasFailed: TypeAlias = bool
# {field of the template of the index: value} for one page in the list.
IndexEntry: TypeAlias = Json


class PagesReadyToRender(NamedTuple):
    recorded: list[PageBuilder]  # Pages whose numbers exist already, so they are quick.
    # Pages that explain a method. They take longer, as each trains a small model.
    methods: list[PageBuilder]


class Report:
    """A Report makes HTML pages from notebooks, and the index that lists the pages.

    It makes each page once the runs (trainings or measurements) of the variable `grid`
    of its notebook are finished. A notebook is read when the Report is created, so a
    later edit of its file changes only the title on its page.

    profile: size of the experiments, such as "mini".
    parameter_values: {parameter of the notebooks: value}.
    rows_by_variable_by_notebook: {path of a notebook: {variable: Rows}}. Rows are
    experiments; those of the variable `grid` are run, others are only looked up.
    errors_by_notebook: {path: error} of notebooks whose experiments cannot be listed.
    The index shows these errors.
    store: where finished runs are looked up."""

    def __init__(
        self,
        profile: ProfileName,
        parameter_values: notebook.ParameterValues,
        rows_by_variable_by_notebook: Mapping[Path, dict[str, list[Row]]],
        errors_by_notebook: Mapping[Path, Exception],
        store: Store,
    ) -> None:
        self.profile, self.store, self.working = profile, store, True
        # This function is called with each page whose runs are all finished. In the
        # block of `render_pages_during_runs` it starts to make the page. Outside of the
        # block it does nothing, since `render_all_pages` makes the page later.
        self.begin: Callable[[PageBuilder], object] = lambda builder: None
        self.builders: list[PageBuilder] = []
        for path in [*rows_by_variable_by_notebook, *errors_by_notebook]:
            variables = rows_by_variable_by_notebook.get(path, {})
            why = errors_by_notebook.get(path)
            try:
                filled = notebook.check_and_complete_parameter_values(
                    path, parameter_values
                )
                text = notebook.format_notebook_json_as_committed(path.read_text())
                left = set(
                    store.plan_missing_runs(
                        notebook.list_specs_of_grid_variables(variables)
                    )
                )
                builder = PageBuilder(
                    path,
                    *notebook.find_notebook_page_folder(path, filled),
                    filled,
                    text,
                    variables,
                    left,
                )
            except disk.Damaged:
                raise
            # A damaged notebook must not stop the pages of other notebooks. It could be
            # a changed copy, so the page of the standard notebook is not deleted.
            except ValueError as error:
                reason = paths.hide_local_paths(format_error_in_one_line(why or error))
                builder = PageBuilder(
                    path, paths.FIGURES / profile[:], failure_reason=reason
                )
                why = None
            if why:
                builder.record_failure_and_delete_html(format_error_in_one_line(why))
            self.builders.append(builder)
        self.builders.sort(key=lambda builder: len(builder.unfinished_specs))
        self.write_page_index()

    def __str__(self) -> str:
        return paths.format_project_path(paths.FIGURES / self.profile[:] / "index.html")

    def describe_where_results_appear(self) -> str:
        """Return a line that tells the user which file will show the results.

        A command that makes HTML pages prints it when it begins. The file is the index
        of pages. It is the page instead where the command makes a single page, with
        another notebook, data, model or parameters than the standard ones."""
        pages = [
            builder.html_path
            for builder in self.builders
            if builder.changes_to_notebook
        ]
        if len(self.builders) == len(pages) == 1:
            return f"the answer will stand in {paths.format_project_path(pages[0])}"
        return f"{self} shows how far it is"

    @property
    def path_to_open(self) -> str:
        """Return the path of the file that the user should open when a command ends.

        It is the only page that the command makes, if that exists, or else the index of
        pages."""
        pages = [
            builder.html_path for builder in self.builders if builder.html_path.exists()
        ]
        return (
            paths.format_project_path(pages[0])
            if len(self.builders) == len(pages) == 1
            else str(self)
        )

    def mark_run_finished(self, spec: Spec) -> None:
        """Note a finished run, and start to make each page that now waits for no run.

        This method is called after each run inside `render_pages_during_runs`, which
        makes the pages in the background. Outside of it no page is started.

        spec: the description of the run."""
        for builder in self.builders:
            if spec in builder.unfinished_specs:
                builder.unfinished_specs.discard(spec)
                if not builder.unfinished_specs:
                    self.begin(builder)

    @contextmanager
    def render_pages_during_runs(self) -> ContextYield[None]:
        """Make HTML pages in a second process while the `with` block executes runs.

        Pages that wait for no run are made first, one by one. Each other page is made
        when its runs are finished; the block calls `mark_run_finished`
        after each run. Pages that are not begun when the block ends are left to
        `render_all_pages`. After an error in the block, the page that is being made is
        stopped too."""
        executor, thread = executors.Local(1), ThreadPoolExecutor(1)
        leave_to_the_end = self.begin
        self.begin = lambda builder: thread.submit(
            self.render_pages, [builder], executor
        )
        for builder in chain(*self.list_pages_ready_to_render()):
            self.begin(builder)
        try:
            yield
            thread.shutdown(cancel_futures=True)
        except BaseException:
            # The page that is being made is stopped too. With `working` False it is not
            # recorded as failed.
            self.working = False
            raise
        finally:
            self.begin = leave_to_the_end
            thread.shutdown(wait=False, cancel_futures=True)
            # A stopped command does not wait for the page that is being made.
            executor.close()

    def list_pages_ready_to_render(self) -> PagesReadyToRender:
        """Return (recorded, methods), two lists of the pages that wait for no run.

        Pages in `recorded` show numbers that exist already, so they are quick. Pages
        in `methods` explain a method and train a small model themselves, so they come
        later. Summaries of papers are first in `recorded`, because together these
        summaries test all central claims."""
        now = [b for b in self.builders if not (b.unfinished_specs or b.failure_reason)]
        now.sort(key=lambda b: not b.notebook_id.endswith("_01_summary"))
        methods = [b for b in now if notebook.is_method_explanation_notebook(b.path)]
        return PagesReadyToRender([b for b in now if b not in methods], methods)

    def describe_pages_ready_to_render(self) -> str:
        """Return a line that tells the user which pages are made before any run.

        All runs of these pages exist already. The line has their number and the first
        three names. It is "" where no page is quick, since each waits for a run or
        trains a small model itself."""
        recorded, methods = self.list_pages_ready_to_render()
        if not recorded:
            return ""
        names = ", ".join(b.notebook_id for b in recorded[:3])
        more = f", then {len(methods)} pages of the methods" * bool(methods)
        later = "; the others follow as their runs come"
        return f"first {len(recorded)} pages that wait for no run ({names}, ...){more}{later}"

    def render_all_pages(self) -> HasFailed:
        """Make each HTML page that is out of date; return whether any page failed.

        A page fails where its notebook cannot be read or a cell raises an error. The
        other pages are made nevertheless."""
        with closing(executors.Local(2)) as executor:
            self.render_pages(
                [
                    s
                    for s in self.builders
                    if s.last_tried_digest or not s.failure_reason
                ],
                executor,
            )
        return any(builder.failure_reason for builder in self.builders)

    def iterate_main_result_lines(self) -> Iterator[str]:
        """Yield a line with the first sentence below the title of each page, if any.

        The sentence gives the page's main result, and the line begins with the
        notebook's id. A command prints the lines at its end, so that the user need not
        open the pages."""
        for builder in self.builders:
            for line in (builder.page_summary or {}).get("answer", ())[:1]:
                yield f"  {builder.notebook_id}: {line}"

    def close(self) -> None:
        """Write the index of pages for the last time, at the end of a command.

        It is called after an error or interruption too. Else the index would say for
        ever that the command is still running."""
        self.working = False
        self.write_page_index()

    def render_pages(
        self, builders: Iterable[PageBuilder], executor: executors.Local
    ) -> None:
        """Make the given pages that are out of date, and print a line for each.

        Each is made in a process of the executor, so that a killed process costs one
        page only. Within one command, a failed page is made again only after code, data
        or runs of it have changed. The index of pages is written anew after each
        page."""
        todo = []
        for builder in builders:
            digest = digest_page_inputs(builder, self.store)
            is_tried = digest == builder.last_tried_digest
            if not is_tried and not is_page_up_to_date(builder, digest):
                todo.append((builder, digest))
            builder.last_tried_digest = digest
        for (builder, *_), future in executor.iterate_completed_calls(
            render_page, todo
        ):
            error = future.exception()
            if error and not self.working:
                return
            if error:
                is_killed = isinstance(error, BrokenExecutor)
                killed = "its worker was killed; run it again"
                builder.record_failure_and_delete_html(
                    killed if is_killed else format_error_in_one_line(error)
                )
                line = f"failed   {builder.notebook_id}: {builder.failure_reason}"
            else:
                builder.failure_reason = ""
                page_path = paths.format_project_path(builder.html_path)
                line = f"made     {page_path}  ({future.result():.0f} s)"
            with tqdm.external_write_mode():
                print(f"  {line}", flush=True)
            self.write_page_index()

    def write_page_index(self) -> None:
        """Write the HTML index of pages, with the state of each page.

        The state is made, failed (with the reason) or waiting for runs, so that a user
        sees how far the running command is."""
        write_page_index_of_profile(self.profile[:], self.builders, self.working)


def describe_main_results_of_notebooks(notebook_pattern: str) -> list[str]:
    """Return lines with the main results on a notebook's pages, the newest page first.

    A notebook has a page for each profile (size of the experiments) and each change of
    its parameters or data. The lines of a page are the first of these changes, if any,
    the sentences below the title, and the path. Of several notebooks, one follows the
    other, each with its newest page first. Where there is no page, a line names the
    command that makes it. The list is empty where `notebook_pattern` fits no notebook
    (`notebook.find_notebooks`)."""
    try:
        matches = notebook.find_notebooks([notebook_pattern])
    except Refused:
        return []
    lines = []
    for path in matches:
        page = f"{notebook.make_notebook_id(path)}.html"
        made = chain(*(paths.FIGURES.glob(f"{place}/{page}") for place in PLACES))
        for file in sorted(made, key=lambda file: -file.stat().st_mtime):
            builder = PageBuilder(path, file.parent)
            if body := builder.page_summary:
                lines += [*body["differs"][:1], *(f"  {a}" for a in body["answer"])]
                lines.append(f"  {paths.format_project_path(file)}")
    return lines or [f"no page yet: `python -m lib run {notebook_pattern}` makes it"]


def write_page_index_of_profile(
    profile: ProfileName,
    builders: Sequence[PageBuilder] = (),
    is_command_running: bool = False,
) -> None:
    """Write index.html, the list of all pages at a profile (size of the experiments).

    It lists standard pages by paper, then pages with changed parameters or data. It
    also has the main findings and a card for each paper. A standard page that is not
    made yet gets a placeholder (`write_placeholder_page`).

    profile: such as "mini".
    builders: pages that a command makes or has just made. All other pages are listed as
    they are on disk.
    is_command_running: whether this command is still running. The index then reloads
    itself, and says how many runs each page waits for."""
    folder = paths.FIGURES / profile
    names = front.list_notebook_ids_in_index(profile)
    pages = [PageBuilder(notebook.find_notebook_path(name), folder) for name in names]
    for place in sorted((paths.FIGURES / "scratch").glob("*/*/")):
        builder = PageBuilder(notebook.find_notebook_path(place.parent.name), place)
        body = builder.page_summary if builder.path.exists() else None
        if body and body["profile"] == profile:
            pages.append(replace(builder, changes_to_notebook=body["differs"]))
    sections = {name: [] for name in verdicts.HEADINGS}
    for builder in {page.html_path: page for page in [*pages, *builders]}.values():
        shown = make_index_entry(
            builder, profile, is_command_running and builder in builders
        )
        heading = "Experiments"
        if not builder.changes_to_notebook:
            write_placeholder_page(builder, profile, shown["title"])
            heading = front.find_index_heading_of_page(shown["name"])
        sections[heading].append(shown)
    text = verdicts.ENVIRONMENT.get_template("index.html.j2").render(
        profile=profile,
        sections=sections,
        working=is_command_running,
        cards=list(filter(None, map(front.summarise_paper_for_index, lists.PAPERS))),
        listed={f"{name}.html" for name in names},
        findings=front.read_readme_findings(),
    )
    disk.write_text_file(folder / "index.html", text)


def write_placeholder_page(
    builder: PageBuilder, profile: ProfileName, title: str
) -> None:
    """Write a placeholder for a notebook's HTML page that does not exist yet.

    So the links of other pages to it have a target. An existing page stays, even if
    another process writes it at the same time. Only an empty file, which a killed
    process can leave, is replaced.

    profile: size of the experiments, such as "mini".
    title: the title of the page."""
    page = builder.html_path
    # A killed process or a full disk can leave an empty file, which is made again.
    if page.is_file() and not page.stat().st_size:
        page.unlink(missing_ok=True)
    text = verdicts.ENVIRONMENT.get_template("promise.html.j2").render(
        profile=profile, title=title
    )
    with disk.raise_full_disk_as_oserror(builder.folder), suppress(FileExistsError):
        builder.folder.mkdir(parents=True, exist_ok=True)
        with page.open("x") as file:
            file.write(text)


def make_index_entry(
    builder: PageBuilder, profile: ProfileName, is_command_running: bool
) -> IndexEntry:
    """Return {field: value} of a notebook's entry in the index of pages.

    A template draws the entry. The fields are those of `builder`, and name (notebook
    id), title, short (title without the paper), failed (why the page could not be made,
    or ""), body (the JSON summary that the notebook wrote, or None), how (the command
    that makes it), waits (how many runs it waits for, as text; "" where no command is
    running) and href (the link).

    profile: size of the experiments, such as "mini".
    is_command_running: whether a command that makes the page is running."""
    name = builder.notebook_id
    page = builder.html_path if builder.html_path.exists() else builder.folder
    scope = grids.make_profile_from_notebook_parameters(
        {"profile": profile} | builder.parameter_values
    )
    failed = builder.failure_reason
    try:
        title = notebook.read_notebook_title(builder.path)
    except ValueError as error:
        title, failed = name, failed or paths.hide_local_paths(str(error))
    return vars(builder) | {
        "name": name,
        "title": title,
        "short": front.remove_paper_name_from_title(title, name),
        "failed": failed,
        "body": None if failed else builder.page_summary,
        "how": notebook.format_notebook_run_command(name, scope),
        "waits": f"{len(builder.unfinished_specs)} runs to make" * is_command_running,
        "href": os.path.relpath(page, paths.FIGURES / profile),
    }
