"""This module checks that committed files still have the digests that were committed
with them.

It covers the files that a reader sees and those that results rest on.
`data/records/files.csv` has a line for each: its path and its digest."""

import subprocess
from contextlib import suppress

from lib.claims import lists
from lib.core import paths
from lib.core.disk import digest_bytes, read_file_bytes

FIX = "take it from git again, or write it with `python -m lib verify --write`"
FILES = "files.csv"
SEEN = "README.md data/README.md data/found.md data/digests.json data/published/**/*.*"
SEEN += " data/unseen/* figures/bench/*.csv figures/mini/*.png figures/mini/*.page.md"
SEEN += " figures/base/*.png figures/base/*.page.md"


def format_committed_file_digest_lines() -> list[str]:
    """Return a line "path,digest" for each committed file that a reader sees, sorted.

    The globs in SEEN select the files, such as README, published tables and figures.
    The digests are computed from the files on disk. `files.csv` stores these lines, so
    that a file that was edited by hand is found later."""
    matches = {path for pattern in SEEN.split() for path in paths.ROOT.glob(pattern)}
    return sorted(
        f"{path.relative_to(paths.ROOT).as_posix()},{digest_bytes(path.read_bytes())}\n"
        for path in matches
        if path.is_file()
    )


def describe_digest_mismatches() -> list[str]:
    """Return an error message of one line for each file that differs from its digest.

    The committed `files.csv` has the digests of README, published tables, figures and
    others. A message names the file and how to restore it. A file that is missing, or
    that has no digest, is reported too. Published tables of a paper whose code was
    deleted are left out."""
    digests_file = paths.records_root() / FILES
    old = (
        read_file_bytes(digests_file).decode(errors="replace")
        if digests_file.exists()
        else ""
    )
    names = {
        line.partition(",")[0]
        for line in {*old.splitlines(True)} ^ {*format_committed_file_digest_lines()}
    }
    away = tuple(
        f"data/published/{paper}/"
        for paper in lists.list_papers_whose_folder_is_missing()
    )
    names = {name for name in names if not name.startswith(away)}
    return [
        f"{name} is not as {paths.format_project_path(digests_file)} says: {FIX}"
        for name in sorted(names)
    ]


def describe_uncommitted_changes(*path_patterns: str) -> list[str]:
    """Return an error message of one line for each file with uncommitted changes.

    Commands warn by it that results may differ from the published ones, or that an
    edited file may be the cause of an error. It asks `git diff HEAD`. Without git or
    outside a checkout the list is empty.

    path_patterns: git globs of the files to look at, relative to the root of the
    repository."""
    globs = (f":(glob){pattern}" for pattern in path_patterns)
    words = ["git", "--no-optional-locks", "diff", "--name-only", "HEAD", "--", *globs]
    how = {"cwd": paths.ROOT, "text": True, "capture_output": True}
    with suppress(OSError):
        names = subprocess.run(words, **how).stdout.splitlines()
        return [f"{name} is not as git has it; fix: take it from git" for name in names]
    return []
