"""This module has the paths of the project's folders; other modules ask for them here.

Environment variables move large or generated folders: `DATA_ROOT` (real data and
checkpoints, may be read-only), `RUNS_ROOT` (runs of this machine), `RECORDS_ROOT`
(committed runs without weights), `FIGURES_ROOT` (pages made from notebooks), and
`NOTEBOOKS_ROOT` (a user's notebooks)."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parents[2]
FolderByEnvironmentVariable: TypeAlias = dict[
    str, Path
]  # {environment variable: folder}
ROOTS = ("RUNS_ROOT", "RECORDS_ROOT", "FIGURES_ROOT", "DATA_ROOT", "NOTEBOOKS_ROOT")


@cache
def make_absolute_path(path: str | Path) -> Path:
    """Return a path as an absolute Path, with "~" expanded to the home folder.

    The result is cached, because a command asks for the same few paths thousands of
    times."""
    return Path(path).expanduser().absolute()


def read_folder_from_environment(
    variable_name: str, default_folder: str | Path
) -> Path:
    """Return the absolute path of the folder that an environment variable names, or
    `default_folder` where the variable is unset or empty."""
    return make_absolute_path(os.environ.get(variable_name) or default_folder)


# Make the paths in these variables absolute: notebook kernels and worker processes
# inherit the variables, but have other working folders.
for _name in filter(os.environ.get, ROOTS):
    os.environ[_name] = str(make_absolute_path(os.environ[_name]))
NOTEBOOKS = read_folder_from_environment("NOTEBOOKS_ROOT", ROOT / "notebooks")
# File with the digest of each notebook as committed. It shows which notebooks a user
# has changed; their pages are written to another folder.
COMMITTED = NOTEBOOKS / "committed.json"
FIGURES = read_folder_from_environment("FIGURES_ROOT", ROOT / "figures")
DATA = ROOT / "data"
PUBLISHED = DATA / "published"
# Folder with the labels of unseen rows. These are test rows on which models are scored,
# but never trained or selected. Each set of unseen rows has one file, whose name is a
# digest of the rows. The files hold only numbers, because texts of data sets are not
# committed.
UNSEEN = DATA / "unseen"
# File with the digests of official data sets and checkpoints. A run is identified by a
# hash that includes these digests. With this file, committed runs are found on a
# machine that lacks the data.
DIGESTS = DATA / "digests.json"


def data_root() -> Path:
    """Return the folder of the real data sets, such as GLUE in its folder `glue`.

    The environment variable DATA_ROOT names it; by default it is `data` in the
    repository."""
    return read_folder_from_environment("DATA_ROOT", DATA)


def models_root() -> Path:
    """Return the folder `data/models`, to which pretrained checkpoints are downloaded.

    Each checkpoint is a folder in it, in Hugging Face's layout."""
    return make_absolute_path(f"{DATA}/models")


def runs_root() -> Path:
    return read_folder_from_environment("RUNS_ROOT", f"{DATA}/runs")


def records_root() -> Path:
    return read_folder_from_environment("RECORDS_ROOT", f"{DATA}/records")


def resolve_user_path(user_path: str | Path) -> Path:
    """Return the absolute path, without symbolic links, of a path that a user wrote.

    A relative path is looked for in the working folder, then in the project's folder.
    Where neither has it, the path in the working folder is returned."""
    # Unlike Path.expanduser and Path.exists, these functions raise no error for an
    # unknown user or a name that is too long.
    path = os.path.expanduser(user_path)
    places = [root / path for root in (Path(), ROOT)]
    place = next((place for place in places if os.path.exists(place)), places[0])
    return Path(os.path.realpath(place))  # Path.resolve fails for a cycle of links.


def is_in_jupyter_lab() -> bool:
    """Return whether this process is a notebook kernel of a Jupyter server, where
    interactive widgets can be shown."""
    return "JPY_SESSION_NAME" in os.environ and "ipykernel" in sys.modules


def format_project_path(path: str | Path) -> str:
    """Return a path as short text for a message.

    A path in the project's folder is relative to it; others stay as they are."""
    path = Path(path)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def list_configurable_folders() -> FolderByEnvironmentVariable:
    """Return {environment variable: folder} of the folders that a user can move.

    The variables are RUNS_ROOT (stored trainings and measurements), RECORDS_ROOT (those
    committed to git), FIGURES_ROOT (HTML pages made of notebooks), DATA_ROOT (data
    sets) and NOTEBOOKS_ROOT. A variable that is not set has its default folder."""
    return {
        "RUNS_ROOT": runs_root(),
        "RECORDS_ROOT": records_root(),
        "FIGURES_ROOT": FIGURES,
        "DATA_ROOT": data_root(),
        "NOTEBOOKS_ROOT": NOTEBOOKS,
    }


def list_configurable_and_temporary_folders() -> FolderByEnvironmentVariable:
    """Return {environment variable: folder} of all folders that the project uses.

    They are the folders of `list_configurable_folders`, such as RUNS_ROOT, and
    TMPDIR with the folder of temporary files. Messages about a full disk name the
    variable by which a user moves the folder."""
    return {**list_configurable_folders(), "TMPDIR": Path(tempfile.gettempdir())}


def find_environment_variable_of_path(path: str | Path) -> str:
    """Return the environment variable that moves the folder which a path lies in.

    An error about the path can then name it as a fix. The result is a name such as
    "RUNS_ROOT" or "TMPDIR", or "" where no variable moves the folder.

    path: the path of a file or folder."""
    # Checkpoints, data sets of the hub and exports stay in the project's folder.
    fixed = [DATA / name for name in ("models", "hub", "export")]
    for name, root in list_configurable_and_temporary_folders().items():
        is_fixed = name == "DATA_ROOT" and any(map(Path(path).is_relative_to, fixed))
        if Path(path).is_relative_to(root) and not is_fixed:
            return name
    return ""


def format_unwritable_file_advice(unwritable_path: str | Path | None) -> str:
    """Return advice for the message of an error about a file that cannot be written.

    It begins with "; fix:" and names the environment variable, such as RUNS_ROOT, that
    moves the file's folder elsewhere. It is "" where no variable does.

    unwritable_path: the path of the file; None, for an error without a path, gives ""
    too."""
    if not unwritable_path or not (
        name := find_environment_variable_of_path(unwritable_path)
    ):
        return ""
    folder = format_project_path(list_configurable_and_temporary_folders()[name])
    return f"; fix: let {folder} be written, or set {name} to another folder"


def hide_local_paths(text: str) -> str:
    """Return a text in which the paths of this machine's folders are placeholders.

    So published pages do not show who made them and where. The folder of the project
    becomes ".", the home folder "~", and other folders the name of a variable such as
    `$RUNS_ROOT` or `$TMPDIR`. The root folder "/" and relative paths stay, because they
    could be words of the text."""
    placeholders = {
        ROOT: ".",
        Path(sys.prefix): "$PREFIX",
        Path(os.path.expanduser("~")): "~",
        Path(tempfile.gettempdir()): "$TMPDIR",
    }
    placeholders |= {
        p: f"${name}"
        for name, p in list_configurable_folders().items()
        if not p.is_relative_to(ROOT)
    }
    for path in sorted(placeholders, key=lambda path: -len(str(path))):
        if path.is_absolute() and path.parts[1:]:
            pattern = rf"(?<![\w./~$-]){re.escape(str(path))}(?![\w-])"
            text = re.sub(pattern, placeholders[path], text)
    return text


def count_cores() -> int:
    """Return the number of CPU cores that this process may use.

    Where the system can say so, cores outside of the process's CPU affinity do not
    count, nor those beyond the CPU quota of a container."""
    cores = (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def find_folder_for_unix_sockets() -> str:
    """Return a folder in which Unix sockets of notebooks and workers can be made.

    The path of a socket may have at most 107 bytes. So the result is the usual
    temporary folder if its path is short enough, and else /tmp. Raises OSError, naming
    the variable TMPDIR, where /tmp cannot be used either."""
    place = tempfile.gettempdir()
    if len(os.fsencode(place)) <= SHORT:
        return place
    if os.access("/tmp", os.W_OK | os.X_OK):
        return "/tmp"
    raise OSError(
        f"{place} is too long a path for a socket; fix: set TMPDIR to a shorter one"
    )


# Largest length in bytes of the path of a folder for Unix sockets. The path of a socket
# may have at most 107 bytes; some 35 of them are for its name inside the folder.
SHORT = 70
