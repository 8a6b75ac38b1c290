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


def read_json(path):
    """The value in a file of JSON. Raises Damaged naming the file."""
    try:
        return json.loads(Path(path).read_bytes())
    except ValueError as error:
        fix = "delete its folder, the run is made again"
        raise Damaged(f"{paths.shown(path)} is damaged ({error}): {fix}") from None


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


def seal(folder):
    """Write the manifest of a folder.

    The files become readable for those to whom the umask of this process gives new files;
    safetensors writes them for their owner alone.
    """
    folder, mask = Path(folder), os.umask(0)
    os.umask(mask)
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / NAME)
    for path in found:
        path.chmod(0o666 & ~mask)
    digests = {path.relative_to(folder).as_posix(): digest(path) for path in found}
    write_json(folder / NAME, {"version": 1, "files": digests})


def check(folder, spared=()):
    """Raise Damaged naming a file of a folder that is not as `seal` found it.

    spared: the beginning of names that are not looked at. A file that may not be read, or that a
    disk failed to give, is not damaged: OSError names it.
    """
    place = folder / NAME
    try:
        for name, written in read_json(place)["files"].items():
            place = folder / name
            if not name.startswith(spared) and digest(place) != written:
                raise Damaged(f"{paths.shown(place)} has another digest than when written")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise Damaged(f"{paths.shown(place)} cannot be read ({error.strerror})") from None
    except (KeyError, AttributeError, TypeError):
        raise Damaged(f"{paths.shown(place)} lists no digests") from None


def wrong(folder, spared=()):
    """What is wrong with a folder (`check`), in words; "" where it is as it was written."""
    try:
        check(folder, spared)
    except Damaged as error:
        return str(error)
    return ""


def key_of(*what):
    """Digest of JSON values."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:24]


def remembered(what, sources, compute):
    """`compute()`, a JSON value that follows from the content of the files `sources`: remembered
    until one of them has another size or time. Planning then reads no text. A damaged note is made
    again."""
    told = [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in sources]
    path = paths.runs_root() / ".tokens" / "digests" / f"{key_of(what)}.json"
    try:
        value, check = json.loads(path.read_text())
        if check == key_of(told, value):
            return value
    except (OSError, ValueError):
        pass
    value = compute()
    try:
        write(path, json.dumps([value, key_of(told, value)]))
    except OSError:
        pass  # a disk that is full or cannot be written: the files are read the next time
    return value
