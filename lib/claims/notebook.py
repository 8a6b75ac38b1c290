"""This module reads the parameters and the grid of runs of a notebook without starting
a kernel.

A notebook's cells have, in this order, the tags "title", "parameters", "bootstrap"
(imports lib and opens the page), "grid" (lists the runs), "runs", "artefact" (makes the
table or figure), "verdicts" and "explore". papermill only warns of an unknown
parameter, and guesses the type of a value. This module raises Refused for an unknown
parameter and for a wrong type, before any run starts. It also finds the folder of a
notebook's page, the HTML made from it."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias, get_args, get_origin

from lib.claims import planned as planned_rows
from lib.claims.seeds import repeat_rows_at_planned_seeds
from lib.core import disk, paths
from lib.core.memo import enable_result_cache
from lib.core.names import Refused, check_known_name, format_error_in_one_line
from lib.core.papers import find_notebook_path as find_notebook_path
from lib.core.papers import make_notebook_id as make_notebook_id
from lib.core.rows import Row
from lib.core.spec import Spec
from lib.core.store import print_once
from lib.core.types import Json, ReasonOrEmpty
from lib.papers import grids

ORDER = "title parameters bootstrap grid runs artefact verdicts explore".split()
# Environment variable that a command sets before it runs a notebook to make its page.
# Its value is JSON: the folder of the page, and how the notebook differs from the
# committed one. Where the variable is set, the notebook leaves missing runs to the
# command and shows no widget.
BATCH = "WORKBOOK_BATCH"

# (largest number, largest seed) that a user may give for a parameter of a notebook
# whose annotation has no range.
MOST = (100_000, 2**31 - 1)


TagOrCellType: TypeAlias = str  # Tag of a notebook's cell, or "code", "markdown".
NotebookId: TypeAlias = str  # Such as "bermo_t03_stability".
ParameterValues: TypeAlias = Json  # {name of a notebook's parameter: its value}
# Content of the JSON file beside the HTML page of a notebook. Its keys are in HOLDS.
# The index of pages is made from these files.
PageSummary: TypeAlias = Json
# {"parameters": default values, "cells": digest of all other cells} of a notebook.
DefaultsAndCellsDigest: TypeAlias = Json


@dataclass(frozen=True)
class NotebookParameter:
    """A NotebookParameter is a value of a notebook that a command may change.

    The notebook declares it by an annotated assignment in a cell tagged "parameters".

    type: the type of the value or, where the default is a list, of the list's items.
    lowest_and_highest: (lowest, highest) allowed value, from an annotation such as
    `Annotated[float, 0, 1]`; empty without one."""

    type: type
    default: Any
    lowest_and_highest: tuple[float, ...] = ()


def list_notebook_paths_by_id() -> dict[NotebookId, Path]:
    """Return {notebook id: path} of all notebooks, sorted by id.

    Commands find notebooks by id. An id is the paper's prefix and the name of the file,
    such as "bermo_t03_stability". Outside of the papers' folders it is the name of the
    file alone."""
    files = [*paths.NOTEBOOKS.glob("*.ipynb"), *paths.NOTEBOOKS.glob("[!.]*/*.ipynb")]
    return dict(sorted((make_notebook_id(path), path) for path in files))


def is_method_explanation_notebook(notebook_path: Path) -> bool:
    """Return whether a notebook explains a method instead of reproducing a table.

    The HTML page of such a notebook shows its code, and the others hide it. Its file
    name begins with "00_"."""
    return notebook_path.name.startswith("00_")


def hides_source(notebook_cell: Mapping[str, Any]) -> bool:
    """Return whether a cell's code is hidden until a reader unfolds it.

    JupyterLab stores this in the metadata of the cell; the HTML page of the notebook
    does the same."""
    return bool(notebook_cell["metadata"].get("jupyter", {}).get("source_hidden"))


def matches_notebook(
    id_or_path_pattern: str, notebook_id: str, notebook_path: Path
) -> bool:
    """Return whether a pattern that a user typed fits a notebook.

    It fits if it is a part of the notebook's id or of its path below `notebooks`, or a
    glob that matches one of them."""
    place = notebook_path.relative_to(paths.NOTEBOOKS).with_suffix("").as_posix()
    is_glob = any(sign in id_or_path_pattern for sign in "*?[")
    return any(
        id_or_path_pattern in label
        or (is_glob and Path(label).match(id_or_path_pattern))
        for label in (notebook_id, place)
    )


def find_notebooks(id_or_path_patterns: Sequence[str] = ()) -> list[Path]:
    """Return the paths of the notebooks that fit one of some patterns.

    Users choose notebooks for a command by such patterns. A pattern is a part of a
    notebook's id or of its path below `notebooks`, or a glob for one of them, such as
    "bermo_t*". Without patterns all notebooks are returned. Raises Refused, with the
    nearest id, for a pattern that fits none."""
    notebooks, chosen = list_notebook_paths_by_id(), {}
    for pattern in id_or_path_patterns or [""]:
        text = pattern.removeprefix("notebooks/").removesuffix(".ipynb")
        hits = [
            path
            for name, path in notebooks.items()
            if matches_notebook(text, name, path)
        ]
        if pattern and not hits:
            check_known_name("notebook", pattern, notebooks)
        chosen |= dict.fromkeys(hits)
    return list(chosen)


# {key: type of the value} that the JSON file beside a page must have. A file without
# them was written by another version of this code, and is ignored.
HOLDS = {"profile": str, "differs": list, "answer": list, "counted": str, "files": list}
FIX = "take it from git, or delete it"


def read_cell_sources_by_tag(notebook_path: Path) -> dict[TagOrCellType, str]:
    """Return {tag: source code} of a notebook's cells, such as the one tagged "grid".

    The type of a cell ("code" or "markdown") is a key too. Of several cells with one
    tag or type, the last one counts. Raises Refused where the file is no notebook."""
    try:
        sources = {}
        for cell in json.loads(disk.read_file_bytes(notebook_path))["cells"]:
            source, tags = "".join(cell["source"]), cell["metadata"].get("tags", [])
            sources |= dict.fromkeys([*tags, cell["cell_type"]], source)
        return sources
    except Exception as error:  # A damaged file may raise any kind of error here.
        shown_path = paths.format_project_path(notebook_path)
        why = f"{shown_path} is not a notebook ({format_error_in_one_line(error)})"
        raise Refused(f"{why}; fix: {FIX}") from None


def read_notebook_title(notebook_path: Path) -> str:
    """Return the first line of a notebook's title cell without its "#".

    The title heads the notebook's page. Raises Refused where no cell is tagged
    "title"."""
    if title := read_cell_sources_by_tag(notebook_path).get("title"):
        return title.splitlines()[0].lstrip("# ")
    raise Refused(
        f"{paths.format_project_path(notebook_path)} has no heading "
        f"in a cell tagged 'title'; fix: {FIX}"
    )


def read_parameter_declarations(notebook_path: Path) -> dict[str, NotebookParameter]:
    """Return {name: NotebookParameter} of the parameters that a notebook declares.

    A NotebookParameter has type, default and allowed range. The declarations are the
    annotated values in the cell tagged "parameters", which is executed. Raises Refused
    where there is no such cell, or where its code fails."""
    source, values = read_cell_sources_by_tag(notebook_path).get("parameters"), {}
    if source is None:
        raise Refused(
            f"{paths.format_project_path(notebook_path)} has no cell tagged "
            f"'parameters'; fix: {FIX}"
        )
    try:
        exec(source, values)
    except Exception as error:
        cell = (
            f"{paths.format_project_path(notebook_path)}, its cell tagged 'parameters'"
        )
        raise Refused(
            f"{cell}: {format_error_in_one_line(error)}; fix: {FIX}"
        ) from None
    declared = {}
    for name, annotation in values.get("__annotations__", {}).items():
        kind = get_args(annotation)[0] if get_origin(annotation) is list else annotation
        value_type = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        declared[name] = NotebookParameter(
            value_type, values[name], getattr(kind, "__metadata__", ())
        )
    return declared


def check_and_complete_parameter_values(
    notebook_path: Path, parameter_values: ParameterValues
) -> ParameterValues:
    """Check the values given for a notebook's parameters and add defaults for the rest.

    Return {name: value} of all parameters. Raises Refused for an unknown name, with the
    nearest one; for a value of a wrong type or out of range; and for a profile (size of
    the experiments, such as "mini") at which the notebook has no runs."""
    declared = read_parameter_declarations(notebook_path)
    suffix = f"of {make_notebook_id(notebook_path)}"
    for name, value in parameter_values.items():
        check_known_name(f"parameter {suffix}", name, declared)
        if why := explain_unusable_value(name, value, declared[name]):
            raise Refused(f"parameter {name} {suffix} is {value!r}: {why}")
    if profile := parameter_values.get("profile"):
        check_known_name(f"profile {suffix}", profile, grids.PROFILES)
        scope = grids.make_profile_from_notebook_parameters(parameter_values)
        if not planned_rows.notebook_lists_runs_at_profile(
            scope, make_notebook_id(notebook_path)
        ):
            pages = ", ".join(planned_rows.list_planned_notebook_ids(profile))
            raise Refused(
                f"{make_notebook_id(notebook_path)} has no rows at {profile}: take one of {pages}"
            )
    return read_parameter_defaults(notebook_path) | parameter_values


def explain_unusable_value(
    parameter_name: str, value: Any, parameter: NotebookParameter
) -> ReasonOrEmpty:
    """Explain in words why a notebook's parameter cannot have a value; "" where it can.

    The reason is a wrong type, a number out of range, or an item that occurs twice in a
    list.

    parameter: the declaration of the parameter, with type, default and allowed
    range."""
    kind, listed = parameter.type, isinstance(parameter.default, list)
    if listed and not isinstance(value, list):
        return (
            f"it must be a list; papermill takes it as -y '{{{parameter_name}: [...]}}'"
        )
    least = int(kind is int and not listed and parameter.default > 0)
    least, most = parameter.lowest_and_highest or (
        least,
        MOST[parameter_name.startswith("seed")],
    )
    for place, item in enumerate(items := value if listed else [value]):
        if type(item) is not kind and not (kind is float and type(item) is int):
            return f"{item!r} is {type(item).__name__}; it must be {kind.__name__}"
        if item in items[:place]:
            return f"{item!r} stands in it twice; name each once"
        if kind in (int, float) and not least <= item <= most:
            return f"{item!r} must be from {least} to {most}"
    return ""


def list_specs_of_grid_variables(
    *rows_by_variable_of_notebooks: Mapping[str, Iterable[Row]],
) -> list[Spec]:
    """Return the Specs (descriptions of runs) that notebooks have to make, each once.

    rows_by_variable_of_notebooks: for each notebook {variable: Rows}, where a Row has
    the labels and the Spec of a run. Only the variable `grid` counts: the runs of the
    other variables are shown where they exist, but not made."""
    return list(
        dict.fromkeys(
            row.spec
            for variables in rows_by_variable_of_notebooks
            for row in variables.get("grid", [])
        )
    )


def is_non_empty_row_list(value: object) -> bool:
    """Return whether the value of a notebook's variable is a non-empty list of Rows.

    A Row has the labels and the description (Spec) of a run, and such a list is called
    a grid. Raises Refused for a list of dicts with the key "spec", an earlier form of a
    grid."""
    rows = value if isinstance(value, list) else []
    if rows and all(isinstance(row, dict) and "spec" in row for row in rows):
        raise Refused(
            "a line of a grid is a dict; write Row(spec, task=..., seed=...) instead"
        )
    return bool(rows) and all(isinstance(row, Row) for row in rows)


def execute_grid_cell_and_list_rows_by_variable(
    notebook_path: Path,
    parameter_values: ParameterValues,
    include_rows_of_recorded_runs: bool = True,
) -> dict[str, list[Row]]:
    """Execute the cell of a notebook that lists its runs, without making any.

    Return {variable: Rows}, where a Row has the labels and the description (Spec) of a
    run. The runs of the variable `grid` are those that the notebook makes. Those of
    other variables, such as `recorded`, are only looked up, and shown if they exist.
    Where neither seeds nor a user's own data or encoder are given, rows have the seeds
    that are planned for the comparisons of claims. Raises Refused for unusable
    parameters and for any error in the cell but FileNotFoundError, which is raised as
    it is.

    parameter_values: {parameter: value}; the others have their defaults.
    include_rows_of_recorded_runs: whether to call a function that lists the runs of
    `recorded`, which may take long."""
    names = check_and_complete_parameter_values(notebook_path, parameter_values)
    names["profile"] = grids.make_profile_from_notebook_parameters(names)
    profile, page = names["profile"], make_notebook_id(notebook_path)
    try:
        source = read_cell_sources_by_tag(notebook_path).get("grid", "")
        with enable_result_cache():
            exec(compile(source, f"{page}:grid", "exec"), names)
            if callable(grid := names.get("grid")):
                names["grid"] = planned_rows.list_rows_to_run(
                    grid, profile, names, page, list_changed_parameters(page, names)
                )
                names["recorded"] = lambda: grid("mini")
            if callable(recorded := names.get("recorded")):
                names["recorded"] = recorded() if include_rows_of_recorded_runs else []
    except FileNotFoundError:
        raise
    except Exception as error:
        why = (
            str(error)
            if type(error) in (ValueError, TypeError)
            else format_error_in_one_line(error)
        )
        raise Refused(f"{page}: {why}") from error
    variables = {
        name: rows for name, rows in names.items() if is_non_empty_row_list(rows)
    }
    if parameter_values.get("seeds") or isinstance(profile, grids.ProfileWithUserData):
        return variables
    for name, rows in variables.items():
        scale = str(profile) if name == "grid" else "mini"
        variables[name] = repeat_rows_at_planned_seeds(page, scale, rows)
    return variables


def list_notebook_runs_to_execute(profile: str, notebook_id: str) -> list[Row]:
    """Return the runs that a notebook lists at a profile, as Rows.

    A Row has the labels of a run (task, model, seed and others) and its Spec (the
    description of the run). The notebook's code that defines the variable `grid` is
    executed for it, but no run is made.

    profile: the size of the experiments: "toy", "mini", "base" or "paper"."""
    (path,) = find_notebooks([notebook_id])
    return execute_grid_cell_and_list_rows_by_variable(
        path, {"profile": profile}, include_rows_of_recorded_runs=False
    ).get("grid", [])


def list_parameters_set_by_papermill(cell_sources: Iterable[str]) -> list[str]:
    """Return the names of the parameters that papermill set in a running notebook.

    papermill adds a cell that begins with "# Parameters" and assigns them. The notebook
    can so tell which values a user gave.

    cell_sources: the source code of the cells that were executed."""
    return [
        name
        for source in cell_sources
        if source.startswith("# Parameters\n")
        for name in re.findall(r"^(\w+) = ", source, re.M)
    ]


@cache
def format_notebook_json_as_committed(notebook_json: str) -> str:
    """Return a notebook's JSON text in a normal form, so that diffs show edits alone.

    The form has no outputs, execution counts, empty cells or tags of papermill. Cells
    are numbered, hidden code stays hidden, and the kernel is python3. All notebooks are
    committed in it."""
    cells = []
    for cell in json.loads(notebook_json)["cells"]:
        source = "".join(cell["source"]).rstrip()
        if not source:
            continue
        tags = [tag for tag in cell["metadata"].get("tags", []) if tag in ORDER]
        metadata: Json = {"tags": tags} if tags else {}
        if hides_source(cell):
            metadata["jupyter"] = {"source_hidden": True}
        about: Json = {
            "id": f"{len(cells):02d}",
            "metadata": metadata,
            "cell_type": cell["cell_type"],
            "source": source.splitlines(keepends=True),
        }
        if cell["cell_type"] == "code":
            about |= {"execution_count": None, "outputs": []}
        if cell.get("attachments"):  # Pictures that were pasted into a text cell.
            about["attachments"] = cell["attachments"]
        cells.append(about)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    book = {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read_defaults_and_digest_cells(notebook_path: Path) -> DefaultsAndCellsDigest:
    """Return a description of a notebook, by which an edited notebook is recognised.

    It is {"parameters": default values, "cells": digest of all cells but the one with
    these values}. The dicts of all notebooks are committed, for comparison."""
    others = []
    for cell in json.loads(
        format_notebook_json_as_committed(notebook_path.read_text())
    )["cells"]:
        tags = cell["metadata"].get("tags", [])
        if "parameters" not in tags:
            others.append([cell["cell_type"], tags, cell["source"]])
    return {
        "parameters": read_parameter_defaults(notebook_path),
        "cells": digest_json(others),
    }


def read_parameter_defaults(notebook_path: Path) -> ParameterValues:
    """Return {parameter: default value} of a notebook.

    They stand in the notebook's cell tagged "parameters", and hold for each parameter
    that a user does not set. Raises Refused where there is no such cell, or where its
    code fails."""
    return {
        name: parameter.default
        for name, parameter in read_parameter_declarations(notebook_path).items()
    }


def digest_json(value: object) -> str:
    return disk.digest_bytes(json.dumps(value).encode())[:16]


def read_committed_notebook_digests() -> dict[NotebookId, DefaultsAndCellsDigest]:
    """Return {notebook id: its committed defaults and digest}, from the committed file.

    The values are {"parameters": default values, "cells": digest of all cells but the
    one with these values}. A notebook that differs from them was edited. Without the
    file, {} is returned. Raises Damaged where the file has another form."""
    if not os.path.lexists(paths.COMMITTED):
        return {}
    fix = "take it from git, or write it with `python -m lib tidy`"
    forms = disk.read_json(paths.COMMITTED, fix)
    with suppress(TypeError, KeyError, AttributeError):
        if all(
            re.fullmatch(r"\w[\w.-]*", n)
            and dict(v["parameters"]) == v["parameters"]
            and isinstance(v["cells"], str)
            for n, v in forms.items()
        ):
            return forms
    place = paths.format_project_path(paths.COMMITTED)
    message = f"{place} does not have parameters and cells of notebooks"
    raise disk.Damaged(f"{message}; fix: {fix}")


def rewrite_notebooks_in_committed_form() -> list[Path]:
    """Rewrite all notebooks in the form in which they are committed to git.

    This form has no outputs or execution counts (`format_notebook_json_as_committed`).
    The file `paths.COMMITTED` with the digests of the notebooks is written anew too.
    Return the paths of those files alone that changed. Raises Refused for a file that
    is no notebook, before any file is written."""
    books = find_notebooks()
    for path in books:
        read_cell_sources_by_tag(path)
    files = [*books, paths.COMMITTED]
    before = {path: path.read_bytes() for path in files if path.exists()}
    for path in books:
        disk.write_text_file(path, format_notebook_json_as_committed(path.read_text()))
    forms = {
        make_notebook_id(path): read_defaults_and_digest_cells(path) for path in books
    }
    disk.write_json(paths.COMMITTED, forms)
    return [path for path in files if path.read_bytes() != before.get(path)]


def list_changed_parameters(
    notebook_id: str, parameter_values: Mapping[str, Any]
) -> list[str]:
    """Return the parameters of a notebook that differ from the committed defaults.

    A notebook with changed parameters gets a separate folder for its HTML page, so that
    this does not replace the page with the defaults.

    parameter_values: {parameter: value}; a parameter that is left out counts as
    unchanged."""
    before = read_committed_notebook_digests().get(notebook_id, {"parameters": {}})[
        "parameters"
    ]
    return [
        key
        for key, value in before.items()
        if parameter_values.get(key, value) != value
    ]


class PageFolderAndDifferences(NamedTuple):
    path: Path
    # Sentences on how the page differs from the committed one.
    differences_from_committed_page: list[str]


def find_notebook_page_folder(
    notebook_path: Path, parameter_values: ParameterValues, is_run_by_hand: bool = False
) -> PageFolderAndDifferences:
    """Find the folder for a notebook's page, and how the page differs from standard.

    A page is the HTML with the notebook's tables and figures. Return (path,
    differences): the folder, and sentences on the differences from the committed page.
    A page that a command makes from an unchanged notebook with its default values, at
    any profile, is a standard page and has no differences. Any other page is an
    experiment with a folder of its own, so that it never replaces a standard page. The
    name of that folder says in short what differs.

    parameter_values: the values of all parameters.
    is_run_by_hand: whether the notebook runs in JupyterLab or under papermill, where
    its cells may differ from those of the file."""
    now = read_defaults_and_digest_cells(notebook_path)
    scope = grids.make_profile_from_notebook_parameters(parameter_values)
    before = read_committed_notebook_digests().get(
        make_notebook_id(notebook_path), {"parameters": {}, "cells": ""}
    )
    lines = grids.describe_user_data_and_model(scope)
    task = grids.get_user_data_attribute(scope, "task_title")
    model = Path(grids.get_user_data_attribute(scope, "model")).name
    words = [word for word in (task, model, scope[:]) if word]
    changeable = {
        name: v
        for name, v in parameter_values.items()
        if name not in grids.get_notebook_parameters(scope)
    }
    for name in list_changed_parameters(make_notebook_id(notebook_path), changeable):
        value, was = changeable[name], before["parameters"][name]
        lines.append(f"{name} is {value!r}, in the committed notebook {was!r}.")
        words.append(f"{name}={str(value).strip('[]')}")
    if (now["cells"], *now["parameters"]) != (before["cells"], *before["parameters"]):
        new = "The notebook is none of the committed ones."
        lines.append("Cells were changed." if before["cells"] else new)
        words.append("cells")
    if is_run_by_hand:
        lines.append(
            "It is run by hand, so its cells may be others than those of the file."
        )
        words.append("by-hand")
    if not lines:
        return PageFolderAndDifferences(paths.FIGURES / scope, [])
    key = digest_json(
        [words, grids.digest_user_data_and_model(scope), changeable, now["cells"]]
    )[:6]
    label = "-".join(re.sub(r"[^\w.=-]+", ".", word.replace("'", "")) for word in words)
    parent = paths.FIGURES / "scratch" / make_notebook_id(notebook_path)
    return PageFolderAndDifferences(parent / f"{label[:80]}-{key}", lines)


def read_notebook_page_json(folder: Path, notebook_id: str) -> PageSummary | None:
    """Return the summary that a notebook wrote as JSON beside its page, or None.

    The list of all pages is made from these summaries, which are dicts. Their keys
    include `profile` (size of the experiments), `answer` (sentences on what was found),
    `differs` (sentences on the parameters or code of the notebook that a user changed)
    and `files` (names of the page's files). The result is None where the file is
    missing, cut off, or written by another version of this code.

    folder: the folder of the page."""
    path = folder / f"{notebook_id}.json"
    with suppress(OSError, ValueError, RecursionError):
        body = disk.read_json(path)
        fields = body if isinstance(body, dict) else {}
        if all(isinstance(fields.get(key), kind) for key, kind in HOLDS.items()):
            texts = [*fields["differs"], *fields["answer"], *fields["files"]]
            if all(isinstance(text, str) for text in texts):
                return body
        how = f"another version of this code wrote {paths.format_project_path(path)}"
        print_once(
            f"not shown  {how}; fix: `python -m lib report {notebook_id}` makes its page again"
        )
    return None


def format_notebook_run_command(notebook_id: str, profile: str) -> str:
    """Return the shell command that makes a notebook's runs and its page.

    Pages show it where runs are missing.

    profile: the size of the experiments, such as "mini". A ProfileWithUserData, a str
    with a user's data and encoder as attributes, adds the options that name them."""
    options = grids.format_profile_as_command_options(profile)
    return " ".join(["python -m lib run", notebook_id, *options])
