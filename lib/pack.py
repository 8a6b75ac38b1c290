"""Runs on another machine: an archive with all that missing runs read, and its records back.

    python -m lib pack evidence.tgz --claims G1,B2       here
    tar xzf evidence.tgz; cd evidence; sh run.sh         there: torch, transformers, scikit-learn,
                                                         scipy and pandas suffice
    python -m lib unpack records.tgz                     here again

Weights travel rounded to bfloat16. That is a checkpoint of its own, with its own digest, so that
its runs are others than those of the exact weights.
"""

import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from lib import data, paths, record
from lib.data import glue, models, texts
from lib.execute import commit
from lib.spec import ancestry

LIMIT = 60_000_000
CODE = ("lib", "data/published", "data/digests.json", "data/unseen")
RUN = """#!/bin/sh
# Makes the missing runs on one GPU, writes records.tgz; safe to repeat.
export DEVICE={device} CHECKPOINT={checkpoint}
python -m lib evidence --claims {claims} ${{SLOTS:+--workers $SLOTS}} "$@"
tar czf records.tgz -C data records
"""


def pack(target, claims, specs, checkpoint, device="cuda"):
    """Write the archive of the runs of some Specs. Returns its size in bytes.

    Raises ValueError where it would be larger than LIMIT.
    """
    target = Path(target)
    with tempfile.TemporaryDirectory(dir=target.resolve().parent) as folder:
        name = checkpoint + models.ROUNDED
        rounded = models.rounded(checkpoint, Path(folder) / name)
        draft = Path(folder) / "archive"
        with tarfile.open(draft, "w:gz") as archive:
            words = ["git", "-C", str(paths.ROOT), "ls-files", "-z", "--", *CODE]
            listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            for path in filter(None, listed.split("\0")):
                archive.add(paths.ROOT / path, f"evidence/{path}")
            for place, path in inputs(specs).items():
                archive.add(path.resolve(), f"evidence/data/{place}")
            archive.add(rounded, f"evidence/data/models/{name}")
            names = ",".join(claim.id for claim in claims)
            run = RUN.format(device=device, checkpoint=name, claims=names)
            for path, text in {"run.sh": run, "COMMIT": json.dumps(commit())}.items():
                told = tarfile.TarInfo(f"evidence/{path}")
                told.size = len(text)
                archive.addfile(told, io.BytesIO(text.encode()))
        size = draft.stat().st_size
        if size > LIMIT:
            raise ValueError(
                f"the archive would have {size / 1e6:.0f} MB, more than {LIMIT / 1e6:.0f}: name "
                "fewer --claims; those of EfficientBERT bring text corpora"
            )
        shutil.move(draft, target)
    return size


def inputs(specs):
    """{place below data/: file at hand} of what Specs and their inputs read."""
    found = {}
    for spec in set(specs) | ancestry(specs):
        for told in spec.args.values():
            for each in [told, *told.values()] if isinstance(told, dict) else []:
                if isinstance(each, dict):
                    found |= described(each)
    return found


def described(descriptor):
    """The same of one descriptor; none for a dict that is none."""
    root, source = paths.data_root(), descriptor.get("source")
    found = [root / "mnist"] if descriptor.get("kind") == "files" else []
    if "text" in descriptor:
        found = [path for name in descriptor["text"].split("+") for path in texts.files(name)]
    elif source == "glue":
        task, folder = descriptor["task"], root / "glue"
        splits = glue.files(task, folder).items()
        found = [path for split, path in splits if not split.startswith("test")]
        found += (folder / task).glob("dev_ids.tsv")
        if "unseen" in descriptor and task in glue.UNSEEN:
            found.append(folder / glue.UNSEEN[task])
    elif data.FOLDERS.get(source):
        found = [root / data.FOLDERS[source]]
    return {os.path.relpath(path, root): path for path in found}


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
