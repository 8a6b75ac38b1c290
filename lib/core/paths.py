"""This module has the paths of all folders of the project; no other names them.

Environment variables move those that are large or generated: `DATA_ROOT` (real data
and checkpoints, may be read-only), `RUNS_ROOT` (runs), `RECORDS_ROOT` (records),
`FIGURES_ROOT` (pages), and `NOTEBOOKS_ROOT` for a reader's own notebooks."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOTS = ("RUNS_ROOT", "RECORDS_ROOT", "FIGURES_ROOT", "DATA_ROOT", "NOTEBOOKS_ROOT")


@cache
def make_absolute_path(path: str | Path) -> Path:
    """Return a path as an absolute Path; cached, because grids call this often."""
    return Path(path).expanduser().absolute()


def read_folder_from_environment(variable_name: str, default: str | Path) -> Path:
    """Return the absolute folder that an environment variable names, or `default` where
    it is unset or empty."""
    return make_absolute_path(os.environ.get(variable_name) or default)


# Make the folders absolute: kernels and workers inherit the variables, but have other
# working folders.
for _name in filter(os.environ.get, ROOTS):
    os.environ[_name] = str(make_absolute_path(os.environ[_name]))
NOTEBOOKS = read_folder_from_environment("NOTEBOOKS_ROOT", ROOT / "notebooks")
# File with the digests of the notebooks that the published pages were made of.
COMMITTED = NOTEBOOKS / "committed.json"
FIGURES = read_folder_from_environment("FIGURES_ROOT", ROOT / "figures")
DATA = ROOT / "data"
PUBLISHED = DATA / "published"
# Folder with labels of unseen rows (lib.data.unseen), a file by digest of the rows. It
# has numbers alone, as texts of data sets are not committed.
UNSEEN = DATA / "unseen"
# File with the digests of official data and checkpoints, so that their records are
# found on a machine that lacks them.
DIGESTS = DATA / "digests.json"


def data_root() -> Path:
    """Return the folder that holds `glue/<TASK>/*.tsv` and the other real data."""
    return read_folder_from_environment("DATA_ROOT", DATA)


def models_root() -> Path:
    """Return the folder of the checkpoints: a folder for each, in Hugging Face
    layout."""
    return make_absolute_path(f"{DATA}/models")


def runs_root() -> Path:
    return read_folder_from_environment("RUNS_ROOT", f"{DATA}/runs")


def records_root() -> Path:
    return read_folder_from_environment("RECORDS_ROOT", f"{DATA}/records")


def resolve_path(path: str | Path) -> Path:
    """Return the real, absolute path of what a reader wrote.

    A relative path is looked for in the working folder, then in the project's."""
    places = [root / Path(path).expanduser() for root in (Path(), ROOT)]
    place = next((place for place in places if place.exists()), places[0])
    return Path(os.path.realpath(place))  # Path.resolve fails for a cycle of links.


def is_in_jupyter_lab() -> bool:
    """Return whether this process is a kernel of Jupyter's server, which shows
    widgets."""
    return "JPY_SESSION_NAME" in os.environ and "ipykernel" in sys.modules


def show_path(path: str | Path) -> str:
    """Return a path for a message: relative to the project's folder if it lies in
    it."""
    path = Path(path)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def list_folders_by_variable() -> dict[str, Path]:
    """Return {environment variable: the folder that it names}."""
    return {
        "RUNS_ROOT": runs_root(),
        "RECORDS_ROOT": records_root(),
        "FIGURES_ROOT": FIGURES,
        "DATA_ROOT": data_root(),
        "NOTEBOOKS_ROOT": NOTEBOOKS,
    }


def list_folders_and_temporary() -> dict[str, Path]:
    """Return {environment variable: folder} of `list_folders_by_variable`, and the temporary folder
    as TMPDIR."""
    return {**list_folders_by_variable(), "TMPDIR": Path(tempfile.gettempdir())}


def find_environment_variable(path: str | Path) -> str:
    """Return the environment variable whose folder a path lies in, or "" for none."""
    for name, root in list_folders_and_temporary().items():
        if Path(path).is_relative_to(root):
            return name
    return ""


def suggest_environment_variable(path: str | Path | None) -> str:
    """Return advice for an error about a file that cannot be made or read, or "" where
    no variable moves it."""
    if not path or not (name := find_environment_variable(path)):
        return ""
    folder = show_path(list_folders_and_temporary()[name])
    return f"; fix: let {folder} be written, or set {name} to another folder"


def find_home_folder() -> Path | None:
    """Return the home folder of this process, or None where it has none."""
    with suppress(RuntimeError):
        return Path.home()
    return None


def hide_local_paths(text: str) -> str:
    """Return a text with placeholders such as `$RUNS_ROOT` or `~` in place of this
    machine's folders.

    So pages that are published do not show them. Only absolute paths are replaced, and
    not "/" itself: shorter names could be words of the text."""
    placeholders = {
        ROOT: ".",
        Path(sys.prefix): "$PREFIX",
        find_home_folder(): "~",
        Path(tempfile.gettempdir()): "$TMPDIR",
    }
    placeholders |= {
        p: f"${name}"
        for name, p in list_folders_by_variable().items()
        if not p.is_relative_to(ROOT)
    }
    for path in sorted(filter(None, placeholders), key=lambda path: -len(str(path))):
        if os.path.isabs(path) and Path(path).parts[1:]:
            pattern = rf"(?<![\w./~$-]){re.escape(str(path))}(?![\w-])"
            text = re.sub(pattern, placeholders[path], text)
    return text


def count_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )


def find_socket_folder() -> str:
    """Return a folder for Unix sockets: the temporary folder, or /tmp where that has a
    long path.

    The path of a socket may have at most 107 bytes. Raises OSError that names TMPDIR
    where /tmp cannot be used either."""
    place = tempfile.gettempdir()
    if len(os.fsencode(place)) <= SHORT:
        return place
    if os.access("/tmp", os.W_OK | os.X_OK):
        return "/tmp"
    raise OSError(
        f"{place} is too long a path for a socket; fix: set TMPDIR to a shorter one"
    )


# Longest path of a folder for sockets, in bytes: file names of some 35 bytes follow.
SHORT = 70
