"""Token ids on disk: made once, then read as memory-mapped arrays, so that memory does not grow
with the rows.

    <runs>/.tokens/ids/<key>/    <column>.ids, int32, one row after another; a manifest;
                                 <column>.ends.npy, where each row begins and the last one ends

The key is a digest of everything that decides the ids. A folder that does not match its manifest is
made again. Free of torch.
"""

import hashlib
import json
from array import array
from contextlib import ExitStack, suppress
from itertools import islice

import numpy as np

from lib.runs import files, paths

CHUNK = 1000  # rows that are tokenised together
PART = 10_000_000  # ids that are looked at together


def root():
    return paths.runs_root() / ".tokens"


def key_of(*what):
    """Digest of JSON values."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:24]


def vocabulary(tokenizer):
    """Digest of a tokenizer: its rules and its words."""
    return hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()[:16]


class Rows:
    """N rows of whole numbers. `ends` [N + 1] says where each begins in `ids` and the last ends."""

    def __init__(self, ids, ends):
        self.ids, self.ends = ids, ends

    def __len__(self):
        return len(self.ends) - 1

    def __getitem__(self, row):
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return self.ids[self.ends[row] : self.ends[row + 1]]

    def lengths(self):
        return np.diff(self.ends)

    def used(self):
        """The different numbers in them."""
        parts = (self.ids[i : i + PART] for i in range(0, len(self.ids), PART))
        return np.unique(np.concatenate(list(map(np.unique, parts))))


def kept(key, rows, columns):
    """{column: Rows} of `key`: what `rows()` gives, each {column: list of ids}. Rows are written as
    they come, and appear whole."""
    folder = root() / "ids" / key
    if files.wrong(folder):
        files.remove(folder)
        try:
            with files.whole(folder) as place:
                _write(place, rows(), columns)
        except OSError:
            if files.wrong(folder):  # else another process was faster, with the same rows
                raise
    found = {}
    for name in columns:
        ids = np.memmap(folder / f"{name}.ids", np.int32, "r")
        found[name] = Rows(ids, np.load(folder / f"{name}.ends.npy"))
    return found


def _write(place, rows, columns):
    place.mkdir(parents=True)
    ends = {name: array("q", [0]) for name in columns}
    with ExitStack() as stack:
        written = {name: stack.enter_context(open(place / f"{name}.ids", "wb")) for name in columns}
        for row in rows:
            for name, file in written.items():
                np.asarray(row[name], np.int32).tofile(file)
                ends[name].append(ends[name][-1] + len(row[name]))
    for name in columns:
        np.save(place / f"{name}.ends.npy", ends[name])
    files.seal(place)


def chunks(rows, size=CHUNK):
    """Lists of up to `size` of them."""
    rows = iter(rows)
    while part := list(islice(rows, size)):
        yield part


def remembered(what, sources, compute):
    """`compute()`, a JSON value that follows from the content of the files `sources`: remembered
    until one of them has another size or time. Planning then reads no text. A damaged note is made
    again."""
    stats = [(str(path), path.stat()) for path in sources]
    told = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats]
    path = root() / "digests" / f"{key_of(what, told)}.json"
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        value = compute()
    with suppress(OSError):  # where nothing can be written, the files are read the next time
        files.write(path, json.dumps(value))
    return value
