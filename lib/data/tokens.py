"""Token ids on disk: made once, then read as memory-mapped arrays, so that memory does not grow
with the rows.

    <runs>/.tokens/<key>/<key>.ids    int32 [T, columns] of all rows, one row after another
    <runs>/.tokens/<key>/<key>.ends   int64 [N + 1]: where each row begins, and where the last ends

The key is a digest of everything that decides the ids. A folder that does not match its manifest is
made again. Free of torch.
"""

import hashlib
from array import array
from itertools import islice

import numpy as np

from lib.runs import paths

CHUNK = 1000  # rows that are tokenised together
PART = 10_000_000  # ids that are looked through at once


def vocabulary(tokenizer):
    """Return the digest of a tokenizer: its rules and its words."""
    return hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()[:16]


class Rows:
    """N rows of whole numbers: `ends` [N + 1] says where each begins in `ids`, and where the last
    one ends."""

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
        """Return the different numbers in the rows."""
        parts = (self.ids[start : start + PART] for start in range(0, len(self.ids), PART))
        return np.unique(np.concatenate([np.unique(part) for part in parts]))


def kept(key, rows, columns):
    """Return {column: Rows} of `key`: what `rows()` gives, each {column: list of ids}, all of one
    length. Rows are written as they come, and appear whole."""
    folder = paths.runs_root() / ".tokens" / key
    if _damaged(folder):
        paths.remove(folder)
        try:
            _write(folder, rows(), columns)
        except OSError:
            if _damaged(folder):  # else another process was faster, with the same rows
                raise
    ids = np.asarray(np.memmap(folder / f"{key}.ids", np.int32, "r")).reshape(-1, len(columns))
    ends = np.asarray(np.memmap(folder / f"{key}.ends", np.int64, "r"))
    return {name: Rows(ids[:, place], ends) for place, name in enumerate(columns)}


def _damaged(folder):
    """Return whether a folder is missing, or not what was written under its key."""
    return paths.wrong(folder) or not (folder / f"{folder.name}.ids").exists()


def _write(folder, rows, columns):
    ends = array("q", [0])
    with paths.whole(folder) as place:
        place.mkdir()
        with open(place / f"{folder.name}.ids", "wb") as file:
            for row in rows:
                np.array([row[name] for name in columns], np.int32).T.tofile(file)
                ends.append(ends[-1] + len(row[columns[0]]))
        np.array(ends, np.int64).tofile(place / f"{folder.name}.ends")
        paths.seal(place)


def chunks(rows, size=CHUNK):
    """Yield lists of up to `size` rows."""
    rows = iter(rows)
    while part := list(islice(rows, size)):
        yield part
