"""Token ids on disk: made once, then read as memory-mapped arrays, so that memory does not grow
with the rows.

    <runs>/.tokens/<key>/<column>.ids     the ids of all rows, one after another
                         <column>.ends    where each row ends

The key is a digest of everything that decides the ids. Free of torch; reading needs numpy alone.
"""

import hashlib
import json
from contextlib import ExitStack
from itertools import islice

import numpy as np

from lib import files, paths

CHUNK = 1000  # rows that are tokenised and written together


def root():
    return paths.runs_root() / ".tokens"


def key_of(*what):
    """Digest of JSON values."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:24]


def vocabulary(tokenizer):
    """Digest of a tokenizer: its rules and its words."""
    return hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()[:16]


class Rows:
    """N rows of whole numbers, in one memory-mapped array: `ends` [N + 1] says where each begins,
    and where the last one ends."""

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
        """The different numbers in them, found piece by piece."""
        end, step = self.ends[-1], 1 << 22
        pieces = range(self.ends[0], end, step)
        seen = [np.unique(self.ids[at : min(end, at + step)]) for at in pieces]
        return np.unique(np.concatenate(seen)) if seen else np.array([], self.ids.dtype)


class Joined:
    """Parts of equally many rows, one after another."""

    def __init__(self, parts):
        self.parts, self.each = parts, len(parts[0])

    def __len__(self):
        return self.each * len(self.parts)

    def __getitem__(self, row):
        return self.parts[row // self.each][row % self.each]

    def lengths(self):
        return np.concatenate([part.lengths() for part in self.parts])

    def used(self):
        return np.unique(np.concatenate([part.used() for part in self.parts]))


def kept(key, make, columns, largest):
    """{column: Rows} of `key`.

    Where they are not there yet, `make()` gives them: rows, each {column: list of ids}. They are
    written as they come, and appear whole. largest: of any id, which decides on the bytes of each.
    """
    folder, kind = root() / key, np.min_scalar_type(largest)
    if not folder.exists():
        try:
            with files.whole(folder) as place:
                place.mkdir()
                _write(place, make(), columns, kind)
        except OSError:
            if not folder.exists():  # else another process was faster, with the same rows
                raise
    found = {}
    for name in columns:
        ends = _mapped(folder / f"{name}.ends", np.int64)
        found[name] = Rows(_mapped(folder / f"{name}.ids", kind), ends)
    return found


def _write(folder, rows, columns, kind):
    with ExitStack() as stack:

        def opened(name):
            return stack.enter_context(open(folder / name, "wb"))

        both = {name: (opened(f"{name}.ids"), opened(f"{name}.ends")) for name in columns}
        for _, ends in both.values():
            ends.write(np.int64(0).tobytes())
        for row in rows:
            for name, (ids, ends) in both.items():
                ids.write(np.asarray(row[name], kind).tobytes())
                ends.write(np.int64(ids.tell() // kind.itemsize).tobytes())


def _mapped(path, kind):
    return np.memmap(path, kind, "r") if path.stat().st_size else np.array([], kind)


def chunks(rows, size=CHUNK):
    """Lists of up to `size` of them."""
    rows = iter(rows)
    while part := list(islice(rows, size)):
        yield part


def through_arrow(key, rows, columns):
    """The same rows, out of a cache of the package `datasets` (Arrow, by fingerprint) that it
    builds at the first pass; where that package is not installed, the rows as they come."""
    try:
        import datasets
    except ImportError:
        yield from rows()
        return
    datasets.disable_progress_bars()
    kinds = datasets.Features(dict.fromkeys(columns, datasets.Sequence(datasets.Value("int32"))))
    cache = {"cache_dir": str(root() / "arrow"), "fingerprint": key, "writer_batch_size": CHUNK}
    found = datasets.Dataset.from_generator(rows, features=kinds, **cache)
    for batch in found.with_format("numpy").iter(CHUNK):
        for values in zip(*(batch[name] for name in columns), strict=True):
            yield dict(zip(columns, values, strict=True))


def remembered(what, sources, compute):
    """`compute()`, a JSON value that follows from the content of the files `sources`: remembered
    until one of them has another size or time. Planning then reads no text."""
    told = [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in sources]
    path = root() / "digests" / f"{key_of(what)}.json"
    if path.exists():
        try:
            before = json.loads(path.read_text())
            if before["files"] == told:
                return before["value"]
        except (ValueError, KeyError):
            pass  # a damaged note is made again
    value = compute()
    try:
        files.write(path, json.dumps({"files": told, "value": value}))
    except OSError:
        pass  # a disk that is full or cannot be written: the files are read the next time
    return value
