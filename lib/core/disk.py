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
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from lib.core import paths
from lib.core.names import Refused

if TYPE_CHECKING:
    from lib.core.types import CsvRow, ReasonOrEmpty

MANIFEST = "manifest.json"
# Temporary files that are older than this many seconds are removed, as the process that
# wrote them was probably killed.
OLD = 24 * 3600.0
# The digest of a file that changed less than this many nanoseconds ago is not cached.
# The clocks of file systems are coarse, so a second write could leave its modification
# time unchanged.
TICK = 10**9


class Damaged(Refused):
    """Damaged is the error for a file or folder whose content cannot be trusted.

    The content is malformed, or its SHA-256 digest differs from the one that was noted
    when it was written. The message names the file. Stored results and caches are then
    computed again; for other files the message says how to restore them."""


@contextmanager
def write_atomically(
    path: str | Path, sync_to_disk: bool = True, accepts_existing_folder: bool = False
) -> Iterator[Path]:
    """Yield a temporary path, which replaces `path` at the end of the `with` block.

    The caller writes a file or a folder to the temporary path. Where the block ends
    without an error, it is renamed to `path` in one step. So no process reads a file
    that is half written, and the old content stays after an error or on a full disk.
    Raises OSError where `path` is a folder that is not empty, and on a full disk.

    sync_to_disk: whether the content is flushed to the disk (fsync) before the rename,
    so that it survives a power loss.
    accepts_existing_folder: whether a folder that is not empty at the end stays as it
    is, without an error: another process has written the same content meanwhile."""
    path = Path(path)
    with raise_full_disk_as_oserror(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_stale_temporary_files(path)
        beside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        with raise_full_disk_as_oserror(path.parent):
            yield beside / path.name
            if sync_to_disk:
                fsync_tree(beside / path.name)
            try:
                os.replace(beside / path.name, path)
            except OSError as error:
                is_there = error.errno in (errno.ENOTEMPTY, errno.EEXIST)
                if not (accepts_existing_folder and is_there):
                    raise
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
    """Flush one file or folder to the disk (fsync), so that it survives a power loss.

    Of a file its bytes are flushed; of a folder only the list of names in it."""
    number = os.open(path, os.O_RDONLY)
    try:
        # Some file systems cannot fsync a folder. That error is ignored; an error for a
        # file is raised.
        with suppress(*[OSError] * os.path.isdir(path)):
            os.fsync(number)
    finally:
        os.close(number)


FULL = (errno.ENOSPC, errno.EDQUOT)
# Parts of the messages of errors that torch and safetensors raise when a disk is full;
# these errors have no errno. torch has some of these messages for other failed writes
# too, so the free space is checked as well.
TORN = re.compile(
    r"inline_container|PytorchStreamWriter|iostream error|os error (28|122)|No space"
)
LITTLE = 1 << 20  # Free bytes below which a disk counts as full.


@contextmanager
def raise_full_disk_as_oserror(
    written_folder: str | Path | None = None,
) -> Iterator[None]:
    """Turn errors of a full disk, raised in a `with` block, into one clear OSError.

    Its message names the folder and a fix. torch and safetensors raise errors of other
    types, whose messages do not say that the disk is full. All other errors pass
    unchanged.

    written_folder: the folder that the block writes to. With None the error names the
    first of the project's folders whose disk is full."""
    try:
        yield
    except Exception as error:
        written_folder = written_folder or next(
            filter(
                is_disk_full, paths.list_configurable_and_temporary_folders().values()
            ),
            "",
        )
        number = getattr(error, "errno", None)
        # Errors of torch, safetensors and shutil have no errno: search their message.
        torn = number is None and TORN.search(str(error))
        if torn and "28" not in torn[0] and "No space" not in torn[0]:
            torn = is_disk_full(written_folder)
        if getattr(error, "is_explained", False) or not (torn or number in FULL):
            raise
        name = paths.find_environment_variable_of_path(written_folder)
        fix = f"free some, or set {name} to another folder" if name else "free some"
        full = OSError(
            number or errno.ENOSPC,
            f"No space left on device; fix: {fix}",
            str(written_folder),
        )
        full.is_explained = True  # pyrefly: ignore[missing-attribute]: a new attribute
        raise full from error


def is_disk_full(folder: str | Path) -> bool:
    """Return whether the disk of a folder has less than 1 MiB free.

    It decides whether an unclear error of a failed write came from a full disk. The
    result is False where the free space cannot be read."""
    with suppress(OSError):
        return shutil.disk_usage(folder).free < LITTLE
    return False


def remove_stale_temporary_files(target_path: Path) -> None:
    """Remove temporary files that killed processes left while they wrote to a path.

    `write_atomically` makes these files in the folder of the path, and a killed process
    cannot remove them. Only files older than a day are removed. A younger one may
    belong to a process that still writes, perhaps on another machine.

    target_path: the path that was to be written."""
    with os.scandir(target_path.parent) as siblings:
        for entry in siblings:
            # Editors have files with such names. Temporary ones are in folders with a
            # random ending of tempfile.mkdtemp.
            match = re.fullmatch(
                rf"\.{re.escape(target_path.name)}\.\w{{8}}", entry.name
            )
            if match and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > OLD:
                        remove_path(Path(entry.path))


def remove_path(path: Path) -> None:
    """Remove a file, a link or a folder with its content, if it exists.

    Of a link only the link is removed. Errors while a folder is removed are ignored,
    and what could not be removed stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@cache
def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the tables of a TOML file as nested dicts, with lists as tuples.

    The result is cached while the process lives and shared by all callers, so nobody
    may change it. Raises Damaged, naming the file, where the file cannot be parsed."""

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
            f"{paths.format_project_path(path)} is damaged ({error}); fix: take it from git"
        ) from None


def write_text_file(path: str | Path, text: str, sync_to_disk: bool = True) -> None:
    """Write a text to a file, so that no process sees the file half written.

    A temporary file is written first and then renamed (`write_atomically`).

    sync_to_disk: whether the file is flushed to the disk (fsync), so that it survives a
    power loss."""
    with write_atomically(path, sync_to_disk) as place:
        place.write_text(text)


def write_json(path: str | Path, value: Any) -> None:
    """Write a value as JSON to a file, so that no process sees the file half written.

    It is not flushed to the disk (fsync), because all files of a training are flushed
    together when the training ends."""
    write_text_file(path, json.dumps(value, indent=1) + "\n", sync_to_disk=False)


def read_file_bytes(path: str | Path) -> bytes:
    """Return the bytes of a regular file.

    Raises Refused for a pipe, a device or a folder, because a read of a pipe may never
    end."""
    read_file_metadata(path)
    return Path(path).read_bytes()


def read_csv(path: str | Path) -> list[CsvRow]:
    """Return the rows of a CSV file of this repository, each as {column: cell text}.

    Cells stay text, and callers parse the numbers that they need, such as a printed
    number as an exact fraction. Empty lines are left out. Raises Damaged, naming the
    file, where a row has more or fewer cells than the header, or two columns have the
    same name."""
    try:
        text = io.StringIO(read_file_bytes(path).decode(), newline="")
        head, *rows = csv.reader(text, strict=True)
        if len(set(head)) < len(head):
            raise ValueError("two columns of one name")
        return [dict(zip(head, row, strict=True)) for row in rows if row]
    except (ValueError, csv.Error) as error:
        raise Damaged(
            f"{paths.format_project_path(path)} is damaged ({error}); fix: take it from git"
        ) from None


def read_json(path: str | Path, error_advice: str = "") -> Any:
    """Return the value in a JSON file.

    Raises Damaged, naming the file, where it cannot be parsed.

    error_advice: what the user can do about a damaged file, such as "take it from git";
    it is added to the error message. It is "" for files that the program makes again by
    itself."""
    try:
        return json.loads(read_file_bytes(path))
    except (ValueError, RecursionError) as error:
        advice = error_advice and f"; advice: {error_advice}"
        raise Damaged(
            f"{paths.format_project_path(path)} is damaged ({error}){advice}"
        ) from None


def digest_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class FileMetadata(NamedTuple):
    """A FileMetadata has the properties of a file by which a changed content is
    noticed.

    Two FileMetadata of one path are equal only if the file was not written between
    them, or so soon after the first that the clock of the file system had not moved. So
    a cache with FileMetadata as keys need not read the file. `modified_ns` is the mtime
    and `changed_ns` the ctime, in nanoseconds."""

    path: str
    size_bytes: int
    modified_ns: int
    changed_ns: int  # Last change of the content or of attributes (ctime).
    inode: int


def read_file_metadata(path: str | Path) -> FileMetadata:
    """Return path, size, mtime, ctime and inode of a file, without reading its content.

    Caches compare them to notice a changed file. The times are in nanoseconds. rsync,
    tar and containers can write new content with the old size and mtime, but no program
    can set the ctime. Raises Refused for a path that is no regular file, and
    FileNotFoundError where it is missing."""
    state = os.stat(path)
    if not stat.S_ISREG(state.st_mode):
        raise Refused(f"{paths.format_project_path(path)} is no regular file")
    times = state.st_mtime_ns, state.st_ctime_ns
    return FileMetadata(str(path), state.st_size, *times, state.st_ino)


def digest_file(path: str | Path) -> str:
    """Return the SHA-256 digest of a file as 64 hex digits.

    It is cached in this process until the file's size, times or inode change
    (`read_file_metadata`). The digest of a file that changed less than a second ago is
    not cached, because a second write could leave the modification time as it is."""
    stamp = read_file_metadata(path)
    is_fresh = abs(time.time_ns() - stamp.changed_ns) < TICK
    digest = _digest_file_cached.__wrapped__ if is_fresh else _digest_file_cached
    return digest(stamp)


@lru_cache(100_000)
def _digest_file_cached(file_stamp: FileMetadata) -> str:
    with open(file_stamp.path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def iterate_relative_paths_and_stats(
    folder: str | Path,
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield (relative path, os.stat_result) of all files and folders below a folder.

    These are the entries that a manifest covers. The manifest is the file
    `manifest.json` of the folder, with the SHA-256 digest of each other file; it is
    left out itself. Links are not followed. Names that begin with a dot are left out:
    they are temporary files of killed processes or of editors, and nothing reads them.
    Raises OSError for a folder that cannot be read."""
    # Paths are strings, as thousands of files are checked for one page of results.
    root = str(Path(folder))
    for place, folders, files in os.walk(root, onerror=_raise_error):
        folders[:] = sorted(name for name in folders if name[0] != ".")
        inner = place[len(root) + 1 :]
        for name in (*folders, *sorted(files)):
            path = f"{inner}/{name}" if inner else name
            if name[0] != "." and path != MANIFEST:
                yield path, os.lstat(f"{root}/{path}")


def _raise_error(error: OSError) -> NoReturn:
    raise error


def write_manifest(folder: str | Path) -> None:
    """Write `manifest.json` into a folder, with the SHA-256 digest of each file in it.

    `check_manifest` later notices damaged files by it. Hidden files are removed first,
    as they are temporary. All files get the usual permissions (umask), because
    safetensors makes files that only their owner can read. Raises Damaged where the
    folder has a link, a pipe or a device."""
    folder, mask = Path(folder), os.umask(0)
    os.umask(mask)
    for path in list(folder.rglob(".*")):
        remove_path(path)
    files = {}
    for name, state in iterate_relative_paths_and_stats(folder):
        path = folder / name
        if stat.S_ISDIR(state.st_mode):
            continue
        if not stat.S_ISREG(state.st_mode):
            raise Damaged(
                f"{paths.format_project_path(path)} is no regular file: delete it"
            )
        path.chmod(0o666 & ~mask)
        files[name] = digest_file(path)
    write_json(folder / MANIFEST, {"version": 1, "files": files})


def check_manifest(folder: Path, unchecked_path_prefixes: tuple[str, ...] = ()) -> None:
    """Raise Damaged where the files of a folder differ from those in its manifest.

    The manifest, `manifest.json`, has the SHA-256 digest that each file had when it was
    written. The error names the first file that differs. Files or folders that the
    manifest does not have, missing files, links and pipes are damage too. A file that
    cannot be read, because of its permissions or a failure of the disk, raises OSError
    instead.

    unchecked_path_prefixes: files whose path in the folder begins with one of these,
    such as "model/", are not checked. So large weights need not be read."""
    place = f"{folder}/{MANIFEST}"
    try:
        if not stat.S_ISREG(os.lstat(place).st_mode):
            raise Damaged(f"{paths.format_project_path(place)} is no regular file")
        manifest = read_json(place)
        if manifest["version"] != 1:
            raise KeyError
        written = manifest["files"]
        above = {
            parent.as_posix()
            for name in written
            if "/" in name
            for parent in Path(name).parents
        }
        modes = {
            name: state.st_mode
            for name, state in iterate_relative_paths_and_stats(folder)
        }
        for name in {**modes, **written}:
            place, mode = f"{folder}/{name}", modes.get(name, stat.S_IFREG)
            is_folder = stat.S_ISDIR(mode)
            if f"{name}/".startswith(unchecked_path_prefixes):
                continue
            if name not in (above if is_folder else written):
                raise Damaged(
                    f"{paths.format_project_path(place)} is not in the manifest of its folder"
                )
            if not (is_folder or stat.S_ISREG(mode)):
                raise Damaged(f"{paths.format_project_path(place)} is no regular file")
            if not is_folder and digest_file(place) != written[name]:
                raise Damaged(
                    f"{paths.format_project_path(place)} has another digest than when written"
                )
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise Damaged(
            f"{paths.format_project_path(place)} cannot be read ({error.strerror})"
        ) from None
    except Damaged:
        raise
    except (KeyError, AttributeError, TypeError, ValueError):
        raise Damaged(
            f"{paths.format_project_path(place)} lists no digests of version 1"
        ) from None


def describe_folder_damage(folder: Path) -> ReasonOrEmpty:
    """Return in a sentence the first damage of a folder, or "" where it has none.

    Damage is a file that is missing, or that differs from its SHA-256 digest in the
    folder's `manifest.json` (`check_manifest`). Callers do not read a damaged
    checkpoint or cache: they make it again, take an earlier one, or refuse it."""
    try:
        check_manifest(folder)
    except Damaged as error:
        return str(error)
    return ""


def digest_values(*json_values: Any) -> str:
    """Return a short digest of JSON values, as a key for caches.

    It is the first 24 hex digits of a SHA-256. The order of keys in dicts does not
    matter. Raises TypeError for a value that is not JSON."""
    return digest_bytes(json.dumps(json_values, sort_keys=True).encode())[:24]


def read_disk_cache_or_compute(
    cache_key: Any, source_files: Iterable[Path], compute_json_value: Callable[[], Any]
) -> Any:
    """Return the JSON value of `compute_value()`, from a cache on disk if possible.

    The value must depend only on `cache_key` and on the files `source_files`. It is
    computed again when the size, times or inode of one of these files change, or when
    the cache file is damaged. So slow results, such as digests of data sets, are
    computed once and not by each command. Where the cache cannot be written, the value
    is returned all the same.

    cache_key: JSON that tells this value from all other values in the cache."""
    inputs = [cache_key, *map(read_file_metadata, source_files)]
    path = (
        paths.runs_root() / ".tokens" / "digests" / f"{digest_values(cache_key)}.json"
    )
    with suppress(OSError, ValueError, TypeError):
        value, check = read_json(path)
        if check == digest_values(inputs, value):
            return value
    value = compute_json_value()
    # On a full or read-only disk the value is not cached, and is computed next time.
    with suppress(OSError):
        write_text_file(
            path, json.dumps([value, digest_values(inputs, value)]), sync_to_disk=False
        )
    return value
