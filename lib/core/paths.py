"""This module knows where everything lies.

It is the only one that knows folder names. Environment variables move what is large or
made: `DATA_ROOT` (real data and checkpoints, may be read-only), `RUNS_ROOT` (runs),
`RECORDS_ROOT` (records), `FIGURES_ROOT` (pages), and `NOTEBOOKS_ROOT` for a reader's
own notebooks."""

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
def absolute_path(place: str | Path) -> Path:
    """Return the absolute Path of a place. It is cached, as grids ask for it very
    often."""
    return Path(place).expanduser().absolute()


def folder_of_variable(name: str, default: str | Path) -> Path:
    """Return the absolute folder that an environment variable names; one that is empty
    names none."""
    return absolute_path(os.environ.get(name) or default)


# Kernels and workers inherit the roots, and stand in other folders: so roots are made
# absolute.
for _name in filter(os.environ.get, ROOTS):
    os.environ[_name] = str(absolute_path(os.environ[_name]))
NOTEBOOKS = folder_of_variable("NOTEBOOKS_ROOT", ROOT / "notebooks")
# This file has the digests of the notebooks that standard pages are made of.
COMMITTED = NOTEBOOKS / "committed.json"
FIGURES = folder_of_variable("FIGURES_ROOT", ROOT / "figures")
DATA = ROOT / "data"
PUBLISHED = DATA / "published"
# This folder has the labels and other numbers of unseen rows, by the digest of the
# rows.
UNSEEN = DATA / "unseen"
# This file has the digests of official data and checkpoints, so records are found
# without them.
DIGESTS = DATA / "digests.json"


def data_root() -> Path:
    """Return the folder that holds `glue/<TASK>/*.tsv` and the other real data."""
    return folder_of_variable("DATA_ROOT", DATA)


def models_root() -> Path:
    """Return the folder that holds one folder for each checkpoint in Hugging Face
    layout."""
    return absolute_path(f"{DATA}/models")


def runs_root() -> Path:
    return folder_of_variable("RUNS_ROOT", f"{DATA}/runs")


def records_root() -> Path:
    return folder_of_variable("RECORDS_ROOT", f"{DATA}/records")


def resolve_path(path: str | Path) -> Path:
    """Return the full path that a reader means.

    It may be relative to the working folder or to the project.
    """
    places = [root / Path(path).expanduser() for root in (Path(), ROOT)]
    place = next((place for place in places if place.exists()), places[0])
    return Path(os.path.realpath(place))  # Path.resolve fails where a link is a loop.


def in_lab() -> bool:
    """Return whether this process is a kernel of Jupyter's server, which shows
    widgets."""
    return "JPY_SESSION_NAME" in os.environ and "ipykernel" in sys.modules


def show_path(path: str | Path) -> str:
    """Return a path as a reader should see it: relative to the project where it lies
    inside."""
    path = Path(path)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def list_roots() -> dict[str, Path]:
    """Return {environment variable: the folder that it names}."""
    return {
        "RUNS_ROOT": runs_root(),
        "RECORDS_ROOT": records_root(),
        "FIGURES_ROOT": FIGURES,
        "DATA_ROOT": data_root(),
        "NOTEBOOKS_ROOT": NOTEBOOKS,
    }


def places() -> dict[str, Path]:
    """Return `list_roots`, and the folder of temporary files under its variable."""
    return {**list_roots(), "TMPDIR": Path(tempfile.gettempdir())}


def variable_of_path(path: str | Path) -> str:
    """Return the environment variable that moves a path, or "" where none does."""
    for name, root in places().items():
        if Path(path).is_relative_to(root):
            return name
    return ""


def suggest_variable(path: str | Path | None) -> str:
    """Return a fix for a file that cannot be made or read, or "" where no variable
    moves it."""
    if not path or not (name := variable_of_path(path)):
        return ""
    folder = show_path(places()[name])
    return f"; fix: let {folder} be written, or set {name} to another folder"


def find_home() -> Path | None:
    """Return the home folder of this process, or None where it has none."""
    with suppress(RuntimeError):
        return Path.home()
    return None


def scrub_paths(text: str) -> str:
    """Return a text with the variables that name folders of this machine in place of
    them.

    Only absolute paths below the root of the file system are replaced: a shorter name
    could be a word or a mark of the text itself."""
    placeholders = {
        ROOT: ".",
        Path(sys.prefix): "$PREFIX",
        find_home(): "~",
        Path(tempfile.gettempdir()): "$TMPDIR",
    }
    placeholders |= {
        p: f"${name}" for name, p in list_roots().items() if not p.is_relative_to(ROOT)
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


def socket_folder() -> str:
    """Return the folder for sockets, whose paths have at most 107 bytes.

    It is that of temporary files, or else /tmp. Raises OSError that names TMPDIR where
    neither can be used."""
    place = tempfile.gettempdir()
    if len(os.fsencode(place)) <= SHORT:
        return place
    if os.access("/tmp", os.W_OK | os.X_OK):
        return "/tmp"
    raise OSError(
        f"{place} is too long a path for a socket; fix: set TMPDIR to a shorter one"
    )


SHORT = 70  # Folders for sockets have at most so many bytes: names of some 35 follow.
