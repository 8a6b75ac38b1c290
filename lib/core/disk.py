"""This module writes files atomically, and checks what it reads by SHA-256 digests.

The manifest of a folder, `manifest.json`, has the digest of each file in the folder,
and is written last. Folders of runs and of checkpoints have one. A file whose digest
differs from the manifest is damaged."""

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
from typing import Any, NamedTuple, NoReturn

from lib.core import paths
from lib.core.names import Refused

MANIFEST = "manifest.json"
# Age in seconds above which a temporary file is taken for that of a killed process, and
# is removed.
OLD = 24 * 3600.0
# Nanoseconds after a write in which a second write could leave the modification time
# unchanged, because the clocks of file systems are coarse.
TICK = 10**9


class Damaged(Refused):
    """Damaged is raised for a file or folder whose content is malformed or is not what
    was written; the message names it."""


@contextmanager
def write_atomically(path: str | Path, sync_to_disk: bool = True) -> Iterator[Path]:
    """Yield a temporary path, to which the caller writes a file or a folder; when the
    `with` block ends without an error, it is renamed to `path`.

    So nobody reads a file that is half written, and after an error or on a full disk
    the old content stays. Raises OSError where `path` is a folder that is not empty.

    sync_to_disk: whether the content is flushed to the disk (fsync) before the rename,
    so that it survives a power loss."""
    path = Path(path)
    with translate_full_disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_temporary_files(path)
        beside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        with translate_full_disk_errors(path.parent):
            yield beside / path.name
            if sync_to_disk:
                fsync_tree(beside / path.name)
            os.replace(beside / path.name, path)
            if sync_to_disk:
                fsync_path(path.parent)
    finally:
        remove_path(beside)


def fsync_tree(path: Path) -> None:
    """Flush a file, or a folder with all files and folders in it, to the disk (fsync),
    so that it survives a power loss."""
    for place, _, files in os.walk(path):
        for name in files:
            fsync_path(Path(place, name))
        fsync_path(place)
    if not path.is_dir():
        fsync_path(path)


def fsync_path(path: str | Path) -> None:
    """Flush the bytes of one file, or the list of names of one folder, to the disk
    (fsync). Nothing is done outside of POSIX systems."""
    if os.name == "posix":
        number = os.open(path, os.O_RDONLY)
        try:
            # Some file systems cannot fsync a folder: ignore that error, but not one of
            # a file.
            with suppress(*[OSError] * os.path.isdir(path)):
                os.fsync(number)
        finally:
            os.close(number)


FULL = (errno.ENOSPC, errno.EDQUOT)
# Parts of the messages of torch's and safetensors' own exceptions when a disk is full;
# those have no errno. torch has the same messages for other failed writes.
TORN = re.compile(
    r"inline_container|PytorchStreamWriter|iostream error|os error (28|122)|No space"
)
LITTLE = 1 << 20  # Free bytes below which a disk counts as full.


@contextmanager
def translate_full_disk_errors(folder: str | Path = "") -> Iterator[None]:
    """Turn errors of a full disk, inside a `with` block, into an OSError that names the
    folder and a fix.

    folder: the folder that is written to. Without it, the first folder of the project
    whose disk is full is named."""
    try:
        yield
    except Exception as error:
        folder = folder or next(
            filter(is_disk_full, paths.list_folders_by_environment_variable().values()),
            "",
        )
        number = getattr(error, "errno", None)
        # Errors of torch, safetensors and shutil have no errno: search their message.
        torn = number is None and TORN.search(str(error))
        if torn and "28" not in torn[0] and "No space" not in torn[0]:
            torn = is_disk_full(folder)
        if getattr(error, "is_explained", False) or not (torn or number in FULL):
            raise
        name = paths.find_folder_environment_variable(folder)
        fix = f"free some, or set {name} to another folder" if name else "free some"
        full = OSError(
            number or errno.ENOSPC, f"No space left on device; fix: {fix}", str(folder)
        )
        full.is_explained = True  # pyrefly: ignore[missing-attribute]: a new attribute
        raise full from error


def is_disk_full(folder: str | Path) -> bool:
    """Return whether the disk of a folder has less than 1 MiB free; False where that
    cannot be found out."""
    with suppress(OSError):
        return shutil.disk_usage(folder).free < LITTLE
    return False


def remove_temporary_files(path: Path) -> None:
    """Remove the temporary files that killed processes left beside a path, when they
    were writing to it by `write_atomically`.

    Only those older than a day are removed: a younger one may belong to a process that
    is still writing, maybe on another machine.

    path: the path that was to be written."""
    with os.scandir(path.parent) as siblings:
        for entry in siblings:
            match = re.fullmatch(rf"\.{re.escape(path.name)}\.\w{{1,10}}", entry.name)
            if match and not entry.name.endswith(".lock"):
                with suppress(OSError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > OLD:
                        remove_path(Path(entry.path))


def remove_path(path: Path) -> None:
    """Remove a file, a link or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@cache
def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the tables of a TOML file as a dict, with lists as tuples; cached.

    Raises Damaged, naming the file, where it cannot be parsed."""

    def convert_lists_to_tuples(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: convert_lists_to_tuples(entry) for name, entry in value.items()
            }
        return (
            tuple(map(convert_lists_to_tuples, value))
            if isinstance(value, list)
            else value
        )

    try:
        return convert_lists_to_tuples(tomllib.loads(read_file_bytes(path).decode()))
    except ValueError as error:
        raise Damaged(
            f"{paths.format_path(path)} is damaged ({error}); fix: take it from git"
        ) from None


def write_text_file(path: str | Path, text: str, sync_to_disk: bool = True) -> None:
    """Write a text to a file, so that the file is never seen half written
    (`write_atomically`).

    sync_to_disk: whether it is flushed to the disk (fsync)."""
    with write_atomically(path, sync_to_disk) as place:
        place.write_text(text)


def write_json(path: str | Path, value: Any, sync_to_disk: bool = False) -> None:
    """Write a value as JSON to a file, so that the file is never seen half written.

    sync_to_disk: whether the file is flushed to the disk (fsync). It is not by default,
    because the files of a run are flushed together before their folder gets its final
    name."""
    write_text_file(path, json.dumps(value, indent=1) + "\n", sync_to_disk)


def read_file_bytes(path: str | Path) -> bytes:
    """Return the bytes of a regular file. Raises Refused for what is no regular file: a
    read of a pipe may never end."""
    read_file_stamp(path)
    return Path(path).read_bytes()


def read_csv(path: str | Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file of this repository, as {column: cell}.

    Raises Damaged, naming the file, where a row has more or fewer cells than the
    header, or two columns have the same name."""
    try:
        text = io.StringIO(read_file_bytes(path).decode(), newline="")
        head, *rows = csv.reader(text, strict=True)
        if len(set(head)) == len(head):
            return [dict(zip(head, row, strict=True)) for row in rows if row]
        error: Exception = ValueError("two columns of one name")
    except (ValueError, csv.Error) as caught:
        error = caught
    raise Damaged(
        f"{paths.format_path(path)} is damaged ({error}); fix: take it from git"
    )


def read_json(path: str | Path, error_advice: str = "") -> Any:
    """Return the value in a JSON file. Raises Damaged, naming the file, where it cannot
    be parsed.

    error_advice: what the reader can do, for the error message. Files of a run need
    none, as a damaged run is executed again."""
    try:
        return json.loads(read_file_bytes(path))
    except (ValueError, RecursionError) as error:
        advice = error_advice and f"; advice: {error_advice}"
        raise Damaged(
            f"{paths.format_path(path)} is damaged ({error}){advice}"
        ) from None


def digest_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class FileStamp(NamedTuple):
    """A FileStamp is equal only while the content of a file is."""

    path: str
    size_bytes: int
    modified_ns: int
    changed_ns: int  # Content or attributes.
    inode: int


def read_file_stamp(path: str | Path) -> FileStamp:
    """Return path, size, mtime, ctime and inode of a file, by which caches notice that
    its content has changed, without reading it.

    Times are in nanoseconds. rsync, tar and containers can write new content with the
    old size and mtime, but no program can set the ctime. Raises Refused for what is no
    regular file."""
    state = os.stat(path)
    if not stat.S_ISREG(state.st_mode):
        raise Refused(f"{paths.format_path(path)} is no regular file")
    times = state.st_mtime_ns, state.st_ctime_ns
    return FileStamp(str(path), state.st_size, *times, state.st_ino)


def digest_file(path: str | Path) -> str:
    """Return the SHA-256 digest of a file; cached until the file's size, times or inode
    change (`read_file_stamp`).

    The digest of a file that changed less than a second ago (TICK) is not cached: a
    second write could get the same modification time."""
    stamp = read_file_stamp(path)
    is_fresh = abs(time.time_ns() - stamp.changed_ns) < TICK
    digest = _digest_file_cached.__wrapped__ if is_fresh else _digest_file_cached
    return digest(stamp)


@lru_cache(100_000)
def _digest_file_cached(file_stamp: FileStamp) -> str:
    with open(file_stamp.path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def list_entries(folder: str | Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield (path relative to the folder, os.stat_result) of all files and folders
    below a folder, without its manifest.

    Links are not followed. Names that begin with a dot are left out: they are temporary
    files of killed processes or of editors, and nothing reads them."""
    for place, folders, files in os.walk(folder, onerror=_raise_error):
        folders[:] = sorted(name for name in folders if name[0] != ".")
        for name in (*folders, *sorted(files)):
            path = Path(place, name)
            if name[0] != "." and path != Path(folder, MANIFEST):
                yield path.relative_to(folder).as_posix(), path.lstat()


def _raise_error(error: OSError) -> NoReturn:
    raise error


def write_manifest(folder: str | Path) -> None:
    """Write the manifest of a folder, `manifest.json`: the SHA-256 digest of each file,
    so that damage is noticed later.

    Hidden temporary files are removed first. The files get the permissions of the
    umask, because safetensors makes files that only their owner can read. Raises
    Damaged for what is no regular file."""
    folder, mask = Path(folder), os.umask(0)
    os.umask(mask)
    for path in list(folder.rglob(".*")):
        remove_path(path)
    names = [
        name for name, state in list_entries(folder) if not stat.S_ISDIR(state.st_mode)
    ]
    for path in map(folder.joinpath, names):
        if path.is_symlink() or not path.is_file():
            raise Damaged(f"{paths.format_path(path)} is no regular file: delete it")
        path.chmod(0o666 & ~mask)
    files = {name: digest_file(folder / name) for name in names}
    write_json(folder / MANIFEST, {"version": 1, "files": files})


def check_manifest(folder: Path, unchecked_prefixes: tuple[str, ...] = ()) -> None:
    """Raise Damaged where the files of a folder differ from the digests in its
    manifest.

    The error names the first such file. Files or folders that are not in the manifest,
    links and pipes are damage too. A file that cannot be read, because of its
    permissions or a failure of the disk, raises OSError instead.

    unchecked_prefixes: files are not checked if their path in the folder begins with
    one of these, such as "model/"."""
    place = folder / MANIFEST
    try:
        if not stat.S_ISREG(place.lstat().st_mode):
            raise Damaged(f"{paths.format_path(place)} is no regular file")
        manifest = read_json(place)
        if manifest["version"] != 1:
            raise KeyError
        written = manifest["files"]
        above = {parent.as_posix() for name in written for parent in Path(name).parents}
        modes = {name: state.st_mode for name, state in list_entries(folder)}
        for name in {**modes, **written}:
            place, mode = folder / name, modes.get(name, stat.S_IFREG)
            is_folder = stat.S_ISDIR(mode)
            if f"{name}/".startswith(unchecked_prefixes):
                continue
            if name not in (above if is_folder else written):
                raise Damaged(
                    f"{paths.format_path(place)} is not in the manifest of its folder"
                )
            if not (is_folder or stat.S_ISREG(mode)):
                raise Damaged(f"{paths.format_path(place)} is no regular file")
            if not is_folder and digest_file(place) != written[name]:
                raise Damaged(
                    f"{paths.format_path(place)} has another digest than when written"
                )
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise Damaged(
            f"{paths.format_path(place)} cannot be read ({error.strerror})"
        ) from None
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged(
            f"{paths.format_path(place)} lists no digests of version 1"
        ) from None


def describe_folder_damage(folder: Path) -> str:
    """Return in words how the files of a folder differ from its manifest, or "" where
    they do not."""
    try:
        check_manifest(folder)
    except Damaged as error:
        return str(error)
    return ""


def digest_values(*values: Any) -> str:
    """Return the first 24 hex digits of the SHA-256 digest of some JSON values, as a
    key for a cache."""
    return digest_bytes(json.dumps(values, sort_keys=True).encode())[:24]


def cache_on_disk(
    key: Any, source_files: Iterable[Path], compute: Callable[[], Any]
) -> Any:
    """Return `compute()`, a JSON value that depends only on the files `source_files`,
    from a cache on disk if possible.

    The cached value holds until the size, times or inode of a file change. So the
    descriptions of many runs, which have digests of data sets, are built without
    reading the data. A damaged cache file is made again.

    key: JSON that says which value it is."""
    inputs = [key, *map(read_file_stamp, source_files)]
    path = paths.runs_root() / ".tokens" / "digests" / f"{digest_values(key)}.json"
    with suppress(OSError, ValueError, TypeError):
        value, check = read_json(path)
        if check == digest_values(inputs, value):
            return value
    value = compute()
    # On a full or read-only disk the value is not cached, and is computed next time.
    with suppress(OSError):
        write_text_file(
            path, json.dumps([value, digest_values(inputs, value)]), sync_to_disk=False
        )
    return value
