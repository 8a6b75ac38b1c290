"""Files that are written whole, and checked by digest when they are read.

A folder's manifest, `manifest.json`, has a digest of each of its files. It is written last. Runs
and checkpoints have one. A file that has other bytes than its manifest says is damaged.
"""

import hashlib
import json
import os
import shutil
import tomllib
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path

from lib.runs import paths

NAME = "manifest.json"
VERSION = 1  # of manifests


class Damaged(ValueError):
    """A file is not what was written; the message names it."""


@contextmanager
def whole(path):
    """Yield a place beside `path`, to write a file or a folder there; at the end it gets the name.

    A reader never sees half of it. An error, or a full disk, leaves what was there. Raises OSError
    where `path` is a folder that holds something already.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    place = path.with_name(f".{path.name}.{os.getpid()}")
    remove(place)  # of a process that was killed
    try:
        yield place
        os.replace(place, path)
    finally:
        remove(place)


def remove(path):
    """Remove a file or a folder; neither need be there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@cache
def toml(path):
    """The tables of a TOML file, its lists as tuples."""

    def read(value):
        if isinstance(value, dict):
            return {name: read(each) for name, each in value.items()}
        return tuple(map(read, value)) if isinstance(value, list) else value

    return read(tomllib.loads(Path(path).read_text()))


def write(path, text):
    """Write a text (`whole`)."""
    with whole(path) as place:
        place.write_text(text)


def write_json(path, value):
    """Write a value as JSON (`write`)."""
    write(path, json.dumps(value, indent=1, allow_nan=True) + "\n")


def write_lines(path, values):
    """Write values as lines of JSON."""
    Path(path).write_text("".join(json.dumps(value) + "\n" for value in values))


def read_json(path, data=None):
    """The object in a file of JSON; data: its bytes, where they were read already.

    Raises Damaged naming the file where it holds no object.
    """
    try:
        found = json.loads(Path(path).read_bytes() if data is None else data)
        if isinstance(found, dict):
            return found
        error = f"a {type(found).__name__}, not an object"
    except (ValueError, RecursionError) as caught:
        error = caught
    fix = "delete its folder, the run is made again"
    raise Damaged(f"{paths.shown(path)} is damaged ({error}): {fix}")


def sha(data):
    return hashlib.sha256(data).hexdigest()


def digest(path):
    """Digest of a file; computed once in a process while its size, time and place stay."""
    state = os.stat(path)
    return _digest(str(path), state.st_size, state.st_mtime_ns, state.st_ino)


@lru_cache(100_000)
def _digest(path, *_):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(folder, names=None, to=NAME):
    """Write the manifest of a folder; names: of these files alone.

    The files become readable for those to whom the umask of this process gives new files.
    """
    folder, mask = Path(folder), os.umask(0)
    os.umask(mask)
    if names is None:
        every = (path for path in folder.rglob("*") if path.is_file())
        names = (path.relative_to(folder).as_posix() for path in every)
    digests = {name: digest(folder / name) for name in sorted(names) if name != to}
    for name in digests:
        (folder / name).chmod(0o666 & ~mask)
    write_json(folder / to, {"version": VERSION, "files": digests})


def manifest(folder, name=NAME):
    """{file: digest} that `seal` wrote. Raises Damaged, also where it is not there."""
    place = Path(folder) / name
    with held(place):
        body = read_json(place)
    if (version := body.get("version", VERSION)) != VERSION:
        why = f"it is of version {version!r}, this code reads {VERSION}"
        raise Damaged(f"{paths.shown(place)} is damaged ({why})")
    if not isinstance(body.get("files"), dict):
        raise Damaged(f"{paths.shown(place)} is damaged (it lists no digests)")
    return body["files"]


@contextmanager
def held(place):
    """Raise Damaged where a file that is read within is absent or no file.

    A file that may not be read, or that a disk failed to give, is not damaged: OSError names it.
    """
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise Damaged(f"{paths.shown(place)} cannot be read ({error.strerror})") from None
    except OSError as error:
        why = f"{paths.shown(place)} cannot be read ({error.strerror})"
        fix = "make it readable for you, or try again; its folder is left as it is"
        raise OSError(f"{why}: {fix}") from None


def wrong(folder, name=NAME, spared=()):
    """What is wrong with a folder, in words that name a file; "" where it is as it was written.

    spared: beginnings of names that are not looked at. Raises OSError for a file that is there and
    cannot be read.
    """
    try:
        for file, written in manifest(folder, name).items():
            place = Path(folder) / file
            with held(place):
                if not file.startswith(tuple(spared)) and digest(place) != written:
                    return f"{paths.shown(place)} has another digest than when written"
    except Damaged as error:
        return str(error)
    return ""
