"""Token ids on disk: made once, then read as memory-mapped arrays, so that memory does not grow
with the rows.

    <runs>/.tokens/<key>/    a folder of the package `datasets` (save_to_disk) with a manifest

The key is a digest of everything that decides the ids. A folder that does not match its manifest is
made again. Free of torch.
"""

import hashlib
import json
from bisect import bisect_right
from itertools import islice
from tempfile import TemporaryDirectory

import numpy as np

from lib.runs import paths

CHUNK = 1000  # rows that are tokenised and written together


def root():
    return paths.runs_root() / ".tokens"


def vocabulary(tokenizer):
    """Return the digest of a tokenizer: its rules and its words."""
    return hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()[:16]


class Rows:
    """N rows of whole numbers, in parts (ids, ends): `ends` [n + 1] says where each of the n rows
    of a part begins in its ids, and where the last one ends."""

    def __init__(self, parts):
        self.parts = parts
        self.first = np.cumsum([0, *(len(ends) - 1 for _, ends in parts)]).tolist()

    def __len__(self):
        return self.first[-1]

    def __getitem__(self, row):
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        part = bisect_right(self.first, row) - 1
        (ids, ends), at = self.parts[part], row - self.first[part]
        return ids[ends[at] : ends[at + 1]]

    def lengths(self):
        return np.concatenate([np.diff(ends) for _, ends in self.parts])

    def used(self):
        """Return the different numbers in the rows."""
        seen = (np.unique(ids[ends[0] : ends[-1]]) for ids, ends in self.parts)
        return np.unique(np.concatenate(list(seen)))


def kept(key, rows, columns):
    """Return {column: Rows} of `key`: what `rows()` gives, each {column: list of ids}. Rows are
    written as they come, and appear whole."""
    import datasets

    folder = root() / key
    if _damaged(folder):
        paths.remove(folder)
        try:
            _write(datasets, folder, rows, columns)
        except OSError:
            if _damaged(folder):  # else another process was faster, with the same rows
                raise
    found, made = datasets.load_from_disk(str(folder)).data, {}
    for name in columns:
        parts = found.column(name).chunks
        made[name] = Rows([(part.values.to_numpy(), part.offsets.to_numpy()) for part in parts])
    return made


def _damaged(folder):
    """Return whether a folder is missing, or not what was written under its key."""
    state = folder / "state.json"
    return paths.wrong(folder) or json.loads(state.read_text())["_fingerprint"] != folder.name


def _write(datasets, folder, rows, columns):
    datasets.disable_progress_bars()
    kinds = datasets.Features(dict.fromkeys(columns, datasets.Sequence(datasets.Value("int32"))))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as cache, paths.whole(folder) as place:
        told = {"cache_dir": cache, "fingerprint": folder.name, "writer_batch_size": CHUNK}
        try:
            made = datasets.Dataset.from_generator(rows, features=kinds, **told)
        except datasets.exceptions.DatasetGenerationError as error:
            raise error.__cause__ from None
        made.save_to_disk(str(place))
        paths.seal(place)


def chunks(rows, size=CHUNK):
    """Yield lists of up to `size` rows."""
    rows = iter(rows)
    while part := list(islice(rows, size)):
        yield part
