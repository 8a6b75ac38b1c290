"""Note unseen rows, so that descriptors are found and runs judged without the data.

    python tests/unseen.py glue SST-2 8000 5000      source, task, rows, how many are used beside

The digest goes to `data/digests.json`, and numbers alone, no text, to `data/unseen/`.
"""

import json
import sys

import numpy as np
from safetensors.numpy import save_file

from lib import data
from lib.runs import paths


def note(name, task, unseen, beside=0):
    """Write both files, and return what a descriptor says of these rows (lib.data.describe)."""
    described = data.describe(name, task, beside or None, unseen=unseen, beside=beside)
    told, arrays = described["unseen"], dict(data.judging(described))
    for key, values in arrays.items():
        if values.dtype.kind == "i":
            arrays[key] = values.astype(np.min_scalar_type(values.max(initial=0)))
    paths.UNSEEN.mkdir(parents=True, exist_ok=True)
    save_file(arrays, paths.UNSEEN / f"{told['digest']}.safetensors")
    digests = data.official_digests() | {f"{name}/{task}/{beside}/{unseen}": told}
    paths.DIGESTS.write_text(json.dumps(dict(sorted(digests.items())), indent=1) + "\n")
    return told


if __name__ == "__main__":
    print(note(*sys.argv[1:3], *map(int, sys.argv[3:])))
