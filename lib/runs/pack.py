"""Runs on another machine: an archive with all that missing runs read, and its records back.

python -m lib pack evidence.tgz --claims G1,B2       here
tar xzf evidence.tgz; cd evidence; sh run.sh         there: torch, transformers, scikit-learn,
                                                     scipy and pandas suffice
python -m lib unpack records.tgz                     here again
"""

import io
import json
import os
import subprocess
import tarfile
import tempfile
from itertools import chain
from pathlib import Path

from lib import data
from lib.data import models, read, texts
from lib.runs import files, paths, record
from lib.runs.execute import commit
from lib.runs.spec import ancestry

CODE = ("lib", "notebooks", "data/published", "data/digests.json", "data/unseen")
RUN = """#!/bin/sh
# Makes the missing runs on one GPU, writes records.tgz; safe to repeat.
python -m lib evidence --device cuda --claims {claims} "$@"
tar czf records.tgz -C data records
"""


def pack(target, claims, specs, checkpoint):
    """Write the archive of the runs of some Specs. Returns its size in bytes."""
    words = ["git", "-C", str(paths.ROOT), "ls-files", "-z", "--", *CODE]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    there = {name: paths.ROOT / name for name in filter(None, listed.split("\0"))}
    there |= {f"data/{name}": path.resolve() for name, path in inputs(specs).items()}
    there[f"data/models/{checkpoint}"] = models.locate(checkpoint)
    run = RUN.format(claims=",".join(claim["id"] for claim in claims))
    with files.whole(target) as draft, tarfile.open(draft, "w:gz") as archive:
        for name, path in there.items():
            archive.add(path, f"evidence/{name}")
        for name, text in {"run.sh": run, "COMMIT": json.dumps(commit())}.items():
            entry = tarfile.TarInfo(f"evidence/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return Path(target).stat().st_size


def inputs(specs):
    """{name below data/: file or folder at hand} of what Specs and their inputs read."""
    args = [value for spec in set(specs) | ancestry(specs) for value in spec.args.values()]
    args += [each for value in args if isinstance(value, dict) for each in value.values()]
    found = [path for value in args if isinstance(value, dict) for path in paths_of(value)]
    return {os.path.relpath(path, paths.data_root()): path for path in found}


def paths_of(descriptor):
    """Files and folders that the rows of a descriptor are read from."""
    root, source = paths.data_root(), descriptor.get("source")
    if "text" in descriptor:
        return texts.files(descriptor["text"])
    if source == "glue":
        task, folder = descriptor["task"], root / "glue"
        unseen = [read.unseen_file(task, folder)] if task in read.UNSEEN else []
        return [*chain(*read.files(task, folder).values()), *unseen]
    folder = "mnist" if descriptor.get("kind") == "files" else data.FOLDERS.get(source)
    return [root / folder] if folder else []


def unpack(archive, records=None):
    """Copy the records of an archive that are not there yet. Returns their number.

    Each is checked against its digests; raises ValueError naming a file that is damaged.
    """
    records, count = Path(records or paths.records_root()), 0
    records.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=records) as folder:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        for path in sorted(Path(folder).rglob(record.NAME)):
            record.unpacked(path.parent, record.read(path.parent))
            target = records / path.parent.parent.name / path.parent.name
            if not record.there(target):
                target.parent.mkdir(exist_ok=True)
                path.parent.rename(target)
                count += 1
    return count
