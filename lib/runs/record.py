"""Record: a finished run without weights, in two small files that can be committed.

    record.json            one line each: digest of the rest, Spec, status, metrics, environment,
                           digest and types of the arrays
    arrays.safetensors.gz  all arrays, named `predictions.logits`, and other files of the run as
                           bytes, `file.<name>`

Integers are stored in the smallest type that holds them. Logits of classes are stored in float16
where no row's class changes by that, so that no metric moves. What is read has the run's own types
again. Both digests are checked where a record is read.
"""

import gzip
import json

import numpy as np
from safetensors.numpy import load, save

from lib.runs import files, paths
from lib.runs.files import Damaged, sha
from lib.runs.spec import canonical

NAME, ARRAYS = "record.json", "arrays.safetensors.gz"
PARTS = ("spec", "status", "metrics", "env")
LEFT = ("events.jsonl", "manifest.json")  # files of a run that its record has not


def write(run, folder):
    """Write the record of a run to a new folder."""
    arrays, types = {}, {}
    for path in sorted(run.folder.iterdir()):
        if path.suffix == ".safetensors":
            for key, value in run.arrays(path.stem).items():
                stored = arrays[f"{path.stem}.{key}"] = small(key, value)
                if stored.dtype != value.dtype:
                    types[f"{path.stem}.{key}"] = value.dtype.name
        elif path.is_file() and path.name not in LEFT and path.stem not in PARTS:
            arrays[f"file.{path.name}"] = np.frombuffer(path.read_bytes(), np.uint8)
    folder.mkdir(parents=True)
    body = {part: getattr(run, part) for part in PARTS}
    if arrays:
        packed = gzip.compress(save(arrays), 9, mtime=0)
        (folder / ARRAYS).write_bytes(packed)
        body |= {"arrays": sha(packed), "types": types}
    told = {"digest": digest(body)} | body
    lines = [f"{json.dumps(name)}: {canonical(value, nan=True)}" for name, value in told.items()]
    (folder / NAME).write_text("{" + ",\n".join(lines) + "}\n")


def read(folder):
    """{"spec", "status", "metrics", "env"} of a record, "arrays" and "types" where it has some.

    Raises Damaged naming a file.
    """
    place, why = folder / NAME, "its content has another digest"
    try:
        body = json.loads(place.read_text())
        sound = body.pop("digest") == digest(body)
        if sound and "arrays" in body:
            place = folder / ARRAYS
            sound = files.digest(place) == body["arrays"]
    except (ValueError, KeyError, FileNotFoundError) as error:
        sound, why = False, error
    if not sound:
        fix = "take it from git again, or delete its folder and make the run again"
        raise Damaged(f"{paths.shown(place)} is damaged ({why}): {fix}")
    return body


def arrays(folder, body):
    """{"<name>.<key>": array in the type that the run had}; body: what `read` gave."""
    if "arrays" not in body:
        return {}
    found = load(gzip.decompress((folder / ARRAYS).read_bytes()))
    return {
        name: value.astype(body["types"].get(name, value.dtype)) for name, value in found.items()
    }


def small(key, value):
    """The array as it is stored."""
    if value.dtype.kind in "iu" and value.size:
        ends = (np.min_scalar_type(end) for end in (value.min(), value.max()))
        return value.astype(np.result_type(*ends))
    if key == "logits" and value.dtype == np.float32 and value.ndim == 2 and value.shape[1] > 1:
        with np.errstate(over="ignore"):
            half = value.astype(np.float16)
        if np.isfinite(half).all() and np.array_equal(half.argmax(1), value.argmax(1)):
            return half
    return value


def digest(body):
    return sha(canonical(body, nan=True).encode())
