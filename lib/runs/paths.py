"""Where everything lies: the only module that knows folder names.

Environment variables move what is large or made: `DATA_ROOT` (real data and checkpoints, may be
read-only), `RUNS_ROOT` (runs), `RECORDS_ROOT` (records), `FIGURES_ROOT` (pages), and
`NOTEBOOKS_ROOT` for a reader's own notebooks.
"""

import os
import re
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = Path(os.environ.get("NOTEBOOKS_ROOT", ROOT / "notebooks")).expanduser()
COMMITTED = NOTEBOOKS / "committed.json"  # digests of the notebooks that standard pages are made of
FIGURES = Path(os.environ.get("FIGURES_ROOT", ROOT / "figures")).expanduser()
DATA = ROOT / "data"
PUBLISHED = DATA / "published"
UNSEEN = DATA / "unseen"  # what unseen rows are judged by, by their digest: numbers only
# of the official data and checkpoints, so that records are found without them
DIGESTS = DATA / "digests.json"


@cache
def full(place):
    """The Path of a place, which grids ask for a hundred thousand times."""
    return Path(place).expanduser()


def data_root():
    """Holds `glue/<TASK>/*.tsv` and the other real data."""
    return full(os.environ.get("DATA_ROOT", DATA))


def models_root():
    """Holds one folder for each checkpoint in Hugging Face layout."""
    return full(f"{DATA}/models")


def runs_root():
    return full(os.environ.get("RUNS_ROOT", f"{DATA}/runs"))


def records_root():
    return full(os.environ.get("RECORDS_ROOT", f"{DATA}/records"))


def meant(path):
    """The full path that a reader means, relative to the working folder or to the project."""
    places = [root / Path(path).expanduser() for root in (Path(), ROOT)]
    return next((place for place in places if place.exists()), places[0]).resolve()


def in_lab():
    """Whether this process is a kernel of Jupyter's server, which shows widgets."""
    return "JPY_SESSION_NAME" in os.environ and "ipykernel" in sys.modules


def shown(path):
    """A path as a reader should see it: relative to the project where it lies inside."""
    path = Path(path)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def roots():
    """{environment variable: the folder that it names}."""
    made = {"RUNS_ROOT": runs_root(), "RECORDS_ROOT": records_root(), "FIGURES_ROOT": FIGURES}
    return made | {"DATA_ROOT": data_root(), "NOTEBOOKS_ROOT": NOTEBOOKS}


def movable(path):
    """What to do about a file that cannot be made or read; "" where no variable moves it."""
    for name, root in roots().items() if path else ():
        if Path(path).is_relative_to(root):
            return f"; fix: let {shown(root)} be written, or set {name} to another folder"
    return ""


def scrubbed(text):
    """A text without folders of this machine: each by the variable that names it."""
    named = {ROOT: ".", sys.prefix: "$PREFIX", Path.home(): "~", tempfile.gettempdir(): "$TMPDIR"}
    named |= {p: f"${name}" for name, p in roots().items() if not p.is_relative_to(ROOT)}
    for path, name in sorted(named.items(), key=lambda each: -len(str(each[0]))):
        text = re.sub(rf"(?<![\w./~$-]){re.escape(str(path))}(?![\w-])", name, text)
    return text


def cores():
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
