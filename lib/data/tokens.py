"""Token ids on disk: made once, then read as memory-mapped arrays, so that memory does not grow
with the rows.

    <runs>/.tokens/ids/<key>/    "ids" [all tokens, columns] and "ends.npy" [N + 1], with a manifest

The key is a digest of everything that decides the ids. A folder that does not match its manifest is
made again. Free of torch.
"""

import hashlib
from array import array
from itertools import islice

import numpy as np

from lib.runs import paths

CHUNK = 1000  # rows that are tokenised together
PART = 1 << 24  # ids that are looked at together


def vocabulary(tokenizer):
    """Return the digest of a tokenizer: its rules and its words."""
    return hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()[:16]


class Rows:
    """N rows of whole numbers: `ids` of all rows, one after another, and `ends` [N + 1], which says
    where each row begins and where the last one ends."""

    def __init__(self, ids, ends):
        self.ids, self.ends = ids, ends

    def __len__(self):
        return len(self.ends) - 1

    def __getitem__(self, row):
        return self.ids[self.ends[row] : self.ends[row + 1]]

    def lengths(self):
        return np.diff(self.ends)

    def used(self):
        """Return the different numbers in the rows."""
        seen = (np.unique(self.ids[at : at + PART]) for at in range(0, len(self.ids), PART))
        return np.unique(np.concatenate(list(seen)))


def kept(key, rows, columns):
    """Return {column: Rows} of `key`: what `rows()` gives, each {column: list of ids}, of one
    length in all columns. Rows are written as they come, and appear whole."""
    folder = paths.runs_root() / ".tokens" / "ids" / key
    if paths.wrong(folder):
        paths.remove(folder)
        try:
            _write(folder, rows, columns)
        except OSError:
            if paths.wrong(folder):  # else another process was faster, with the same rows
                raise
    ids = np.asarray(np.memmap(folder / "ids", np.int32, "r")).reshape(-1, len(columns))
    ends = np.asarray(np.load(folder / "ends.npy", "r"))
    return {name: Rows(ids[:, i], ends) for i, name in enumerate(columns)}


def _write(folder, rows, columns):
    ends = array("q", [0])
    with paths.whole(folder) as place:
        place.mkdir()
        with open(place / "ids", "wb") as file:
            for row in rows():
                ids = np.array([row[name] for name in columns], np.int32)  # [columns, n]
                file.write(ids.T.tobytes())
                ends.append(ends[-1] + ids.shape[1])
        np.save(place / "ends.npy", ends)
        paths.seal(place)


def chunks(rows, size=CHUNK):
    """Yield lists of up to `size` rows."""
    rows = iter(rows)
    while part := list(islice(rows, size)):
        yield part
