"""Note unseen rows, so that descriptors are found and runs judged without the data.

    python tests/unseen.py glue SST-2 8000 5000      source, task, rows, how many are
    used beside python tests/unseen.py glue SST-2 7371 9000 9    at least so many words;
    also the pool of the rows that share no text with them python tests/unseen.py glue
    RTE                  the pool alone: all training rows

Digests go to `data/digests.json`, and numbers alone, no text, to `data/unseen/`.
"""

import json
import sys

import numpy as np
from safetensors.numpy import save_file

from lib import data
from lib.core import paths


def note_pool(name, task, unseen=0, beside=0, words=0):
    """Note the rows from which each seed draws, and return what a descriptor says of
    them."""
    fixed = {"max_unseen_rows": unseen, "reserved_rows": beside, "min_words": words}
    described = data.make_data_descriptor(name, task, draws_rows_by_seed=True, **fixed)
    write({data.make_digest_key_of_training_pool(described): described["drawn"]})
    return described["drawn"]


def write(more):
    """Add digests to `data/digests.json`."""
    digests = data.read_committed_data_digests() | more
    paths.DIGESTS.write_text(json.dumps(dict(sorted(digests.items())), indent=1) + "\n")


def note(name, task, unseen, beside=0, words=0):
    """Write both files, and return what a descriptor says of these rows
    (lib.data.make_data_descriptor)."""
    fixed = {"max_unseen_rows": unseen, "reserved_rows": beside, "min_words": words}
    described = data.make_data_descriptor(name, task, beside or None, **fixed)
    told = described["unseen"]
    arrays = dict(data.read_unseen_row_scoring_arrays(described))
    for key, values in arrays.items():
        if values.dtype.kind == "i":
            arrays[key] = values.astype(np.min_scalar_type(values.max(initial=0)))
    paths.UNSEEN.mkdir(parents=True, exist_ok=True)
    save_file(arrays, paths.UNSEEN / f"{told['digest']}.safetensors")
    write(
        {"/".join(map(str, [name, task, beside, unseen, *[words] * bool(words)])): told}
    )
    return told


if __name__ == "__main__":
    place, sizes = sys.argv[1:3], [*map(int, sys.argv[3:])]
    if sizes:
        print(note(*place, *sizes))
    if len(sizes) in (0, 3):
        print(note_pool(*place, *sizes))
