"""This module writes files whole, and checks by their digests what it reads.

A folder's manifest, `manifest.json`, has a digest of each of its files. It is written
last. Runs and checkpoints have one. A file that has other bytes than its manifest says
is damaged."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import re
import shutil
import stat
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NoReturn

from lib.core import paths
from lib.core.names import Refused

MANIFEST = "manifest.json"
# What a killed process left beside a file is removed after so many seconds.
OLD = 24 * 3600.0
TICK = 10**9  # A file that changed within so many nanoseconds may change unseen.


class Damaged(Refused):
    """Damaged is raised where a file is not what was written; the message names it."""


@contextmanager
def atomic_path(path: str | Path, durable: bool = True) -> Iterator[Path]:
    """Yield a place beside `path` to write a file or a folder to; at the end it is
    renamed to `path`.

    A reader never sees half of it. An error, or a full disk, leaves what was there
    before. Raises OSError where `path` is a folder that holds something already.

    durable: whether it is on the disk at the end, so that a power loss does not take it
    back."""
    path = Path(path)
    with explain_full_disk(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        beside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        with explain_full_disk(path.parent):
            yield beside / path.name
            if durable:
                flush_to_disk(beside / path.name)
            os.replace(beside / path.name, path)
            if durable:
                sync_path(path.parent)
    finally:
        remove(beside)


def flush_to_disk(path: Path) -> None:
    """Let a file, or a folder with all that is in it, be on the disk before this
    returns."""
    for place, _, files in os.walk(path):
        for name in files:
            sync_path(Path(place, name))
        sync_path(place)
    if not path.is_dir():
        sync_path(path)


def sync_path(path: str | Path) -> None:
    """Let the bytes of a file, or the names in a folder, be on the disk (fsync)."""
    if os.name == "posix":
        number = os.open(path, os.O_RDONLY)
        try:
            # Some cannot sync a folder.
            with suppress(*[OSError] * os.path.isdir(path)):
                os.fsync(number)
        finally:
            os.close(number)


FULL = (errno.ENOSPC, errno.EDQUOT)
# torch and safetensors say so when a disk is full; torch also when a file was cut
# otherwise.
TORN = re.compile(
    r"inline_container|PytorchStreamWriter|iostream error|os error (28|122)|No space"
)
LITTLE = 1 << 20  # A disk with fewer free bytes is full.


@contextmanager
def explain_full_disk(folder: str | Path = "") -> Iterator[None]:
    """Tell errors of a full disk as OSError with the folder and what to do about it.

    Without a folder it is the one of `paths.places` whose disk is full."""
    try:
        yield
    except Exception as error:
        folder = folder or next(filter(is_full, paths.places().values()), "")
        number = getattr(error, "errno", None)
        # An error of several files (shutil.Error) has no number either.
        torn = number is None and TORN.search(str(error))
        if torn and "28" not in torn[0] and "No space" not in torn[0]:
            torn = is_full(folder)
        if getattr(error, "is_explained", False) or not (torn or number in FULL):
            raise
        name = paths.variable_of_path(folder)
        fix = f"free some, or set {name} to another folder" if name else "free some"
        full = OSError(
            number or errno.ENOSPC, f"No space left on device; fix: {fix}", str(folder)
        )
        full.is_explained = True  # pyrefly: ignore[missing-attribute]: any error takes a note
        raise full from error


def is_full(folder: str | Path) -> bool:
    """Return whether the disk of a folder has no room left."""
    with suppress(OSError):
        return shutil.disk_usage(folder).free < LITTLE
    return False


def remove_leftovers(path: Path) -> None:
    """Remove what processes that were killed left beside a path (`atomic_path`).

    It is more than a day old, as another process, maybe of another machine, may be
    writing now."""
    with os.scandir(path.parent) as siblings:
        for entry in siblings:
            match = re.fullmatch(rf"\.{re.escape(path.name)}\.\w{{1,10}}", entry.name)
            if match and not entry.name.endswith(".lock"):
                with suppress(OSError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > OLD:
                        remove(Path(entry.path))


def remove(path: Path) -> None:
    """Remove a file, a link or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@cache
def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the tables of a TOML file, with its lists as tuples. Raises Damaged that
    names it."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(entry) for name, entry in value.items()}
        return tuple(map(plain, value)) if isinstance(value, list) else value

    try:
        return plain(tomllib.loads(read(path).decode()))
    except ValueError as error:
        raise Damaged(
            f"{paths.show_path(path)} is damaged ({error}); fix: take it from git"
        ) from None


def write(path: str | Path, text: str, durable: bool = True) -> None:
    """Write a text to a file, as `atomic_path` does."""
    with atomic_path(path, durable) as place:
        place.write_text(text)


def write_json(path: str | Path, value: Any, durable: bool = False) -> None:
    """Write a value as JSON to a file, as `write` does.

    The files of a run, a record or a checkpoint are settled together, before it gets
    its name."""
    write(path, json.dumps(value, indent=1) + "\n", durable)


def read(path: str | Path) -> bytes:
    """Return the bytes of a regular file. Raises Refused for a pipe, of which nothing
    may ever come."""
    stamp_of_file(path)
    return Path(path).read_bytes()


def read_csv(path: str | Path) -> list[dict[str, str]]:
    """Return the rows of a committed table, by the names of its columns.

    Raises Damaged that names the file, where a row has not the cells of the first line.
    """
    try:
        text = io.StringIO(read(path).decode(), newline="")
        head, *rows = csv.reader(text, strict=True)
        if len(set(head)) == len(head):
            return [dict(zip(head, row, strict=True)) for row in rows if row]
        error: Exception = ValueError("two columns of one name")
    except (ValueError, csv.Error) as caught:
        error = caught
    raise Damaged(
        f"{paths.show_path(path)} is damaged ({error}); fix: take it from git"
    )


def read_json(path: str | Path, fix: str = "") -> Any:
    """Return the value in a file of JSON. Raises Damaged that names the file.

    fix: what a reader can do then; of a run there is nothing to do, as it is made
    again."""
    try:
        return json.loads(read(path))
    except (ValueError, RecursionError) as error:
        raise Damaged(
            f"{paths.show_path(path)} is damaged ({error}){fix and f'; fix: {fix}'}"
        ) from None


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def stamp_of_file(path: str | Path) -> tuple[str, int, int, int, int]:
    """Return what changes with the content of a file: name, size, times in nanoseconds,
    inode.

    rsync, tar and containers keep the size and the time of another content, but nobody
    can set the time at which the inode changed."""
    state = os.stat(path)
    if not stat.S_ISREG(state.st_mode):
        raise Refused(f"{paths.show_path(path)} is no regular file")
    return str(path), state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino


def digest(path: str | Path) -> str:
    """Return the digest of a file. It is computed once in a process while its `stamp_of_file`
    stays, and each time while the file is fresh: a second write may have the time of
    the first, as clocks of file systems tick slowly."""
    place, *state = stamp_of_file(path)
    is_fresh = abs(time.time_ns() - state[2]) < TICK
    return _digest.__wrapped__(place) if is_fresh else _digest(place, *state)


@lru_cache(100_000)
def _digest(path: str, *_: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def list_entries(folder: str | Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the names of all that lies in a folder and below, but its manifest, and
    their states.

    A name is relative to the folder. Links are not followed. Names that begin with a
    dot are left out: they are what a killed process left, or an editor's, and nothing
    reads them."""
    for place, folders, files in os.walk(folder, onerror=_raise_error):
        folders[:] = sorted(name for name in folders if name[0] != ".")
        for name in (*folders, *sorted(files)):
            path = Path(place, name)
            if name[0] != "." and path != Path(folder, MANIFEST):
                yield path.relative_to(folder).as_posix(), path.lstat()


def _raise_error(error: OSError) -> NoReturn:
    raise error


def seal_folder(folder: str | Path) -> None:
    """Write the manifest of a folder, and remove what a killed process left in it.

    Its files become readable for those to whom the umask of this process gives new
    files; safetensors writes them for their owner alone. Raises Damaged for what is no
    regular file."""
    folder, mask = Path(folder), os.umask(0)
    os.umask(mask)
    for path in list(folder.rglob(".*")):
        remove(path)
    names = [
        name for name, state in list_entries(folder) if not stat.S_ISDIR(state.st_mode)
    ]
    for path in map(folder.joinpath, names):
        if path.is_symlink() or not path.is_file():
            raise Damaged(f"{paths.show_path(path)} is no regular file: delete it")
        path.chmod(0o666 & ~mask)
    files = {name: digest(folder / name) for name in names}
    write_json(folder / MANIFEST, {"version": 1, "files": files})


def check_folder(folder: Path, spared: tuple[str, ...] = ()) -> None:
    """Raise Damaged that names a file of a folder which differs from what `seal_folder` found.

    The manifest names all that is there: a file or a folder more, a link or a pipe is
    damage too.

    spared: the beginning of names that are not checked. A file that may not be read, or
    that a disk failed to give, is not damaged: OSError names it."""
    place = folder / MANIFEST
    try:
        if not stat.S_ISREG(place.lstat().st_mode):
            raise Damaged(f"{paths.show_path(place)} is no regular file")
        manifest = read_json(place)
        if manifest["version"] != 1:
            raise KeyError
        written = manifest["files"]
        above = {parent.as_posix() for name in written for parent in Path(name).parents}
        modes = {name: state.st_mode for name, state in list_entries(folder)}
        for name in {**modes, **written}:
            place, mode = folder / name, modes.get(name, stat.S_IFREG)
            is_folder = stat.S_ISDIR(mode)
            if f"{name}/".startswith(spared):
                continue
            if name not in (above if is_folder else written):
                raise Damaged(
                    f"{paths.show_path(place)} is not in the manifest of its folder"
                )
            if not (is_folder or stat.S_ISREG(mode)):
                raise Damaged(f"{paths.show_path(place)} is no regular file")
            if not is_folder and digest(place) != written[name]:
                raise Damaged(
                    f"{paths.show_path(place)} has another digest than when written"
                )
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise Damaged(
            f"{paths.show_path(place)} cannot be read ({error.strerror})"
        ) from None
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged(
            f"{paths.show_path(place)} lists no digests of version 1"
        ) from None


def damage_of_folder(folder: Path) -> str:
    """Return in words how a folder is damaged, as `check_folder` finds it, or "" where it is
    sound."""
    try:
        check_folder(folder)
    except Damaged as error:
        return str(error)
    return ""


def digest_values(*what: Any) -> str:
    """Return the digest of JSON values."""
    return sha(json.dumps(what, sort_keys=True).encode())[:24]


def remember_value(
    what: Any, sources: Iterable[Path], compute: Callable[[], Any]
) -> Any:
    """Return `compute()`, a JSON value that follows from the content of the files
    `sources`.

    It is kept on disk until one of the files has another `stamp_of_file`, so that planning
    reads no text. what: JSON that names the value; the note has it too. A damaged note
    is made again, and so is one of another name."""
    inputs = [what, *map(stamp_of_file, sources)]
    path = paths.runs_root() / ".tokens" / "digests" / f"{digest_values(what)}.json"
    with suppress(OSError, ValueError, TypeError):
        value, check = read_json(path)
        if check == digest_values(inputs, value):
            return value
    value = compute()
    # The disk may be full or read-only: then files are read next time.
    with suppress(OSError):
        write(path, json.dumps([value, digest_values(inputs, value)]), durable=False)
    return value
