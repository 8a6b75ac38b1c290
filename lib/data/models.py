"""This module downloads, checks and copies published checkpoints.

A checkpoint is a folder in Hugging Face layout with safetensors, `data/models/<name>/`
or `DATA_ROOT/models/<name>/`. Where the hub or DATA_ROOT has only a pickle
(`pytorch_model.bin`), `fetch` converts it once. Runs never load a pickle, and no code
of a checkpoint is executed."""

import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from lib.core import disk, paths
from lib.core.names import Refused, check_name
from lib.data import (
    PATTERNS,
    WEIGHTS,
    check,
    checkpoint_files,
    find_checkpoint,
    locate_checkpoint,
    official_digests,
    weights,
)

HUB = disk.read_toml(Path(__file__).with_name("models.toml"))["HUB"]
PICKLE = "pytorch_model.bin"


def local_name(name: str) -> str:
    """Return the short name (a key of HUB) of a checkpoint with a name at the Hugging
    Face hub, or the name itself."""
    return next((local for local, hub in HUB.items() if hub == name), name)


def fetch(name: str) -> Path:
    """Copy a checkpoint to `data/models/<name>`, from DATA_ROOT/models or else from the
    hub, and return its folder.

    Raises OSError in one line where the hub cannot be reached. Raises Refused for an
    unknown name, where the weights are not the official ones, or where a pickle has
    anything but tensors.

    name: a key of HUB or a name at the hub; or the folder of a pickle, whose weights
    are then written beside it as safetensors."""
    if (pickle := Path(name).expanduser() / PICKLE).is_file():
        with disk.atomic_path(pickle.with_name(WEIGHTS)) as weights_path:
            convert(pickle, weights_path)
        return pickle.parent
    name = local_name(name)
    target = paths.models_root() / name
    if (target / WEIGHTS).exists():
        return target
    here = find_checkpoint(name, WEIGHTS) or find_checkpoint(name, PICKLE)
    is_name = re.fullmatch(r"([\w-][\w.-]*/)?[\w-][\w.-]*", name)
    if not (is_name and (here or "/" in name)):
        check_name("checkpoint", name, HUB)
    try:
        with (
            tempfile.TemporaryDirectory() as temporary,
            disk.atomic_path(target) as made,
        ):
            source = here or _download(name, Path(temporary))
            _copy(source, made)
            if not (made / WEIGHTS).exists():
                convert(source / PICKLE, made / WEIGHTS)
            actual = disk.digest(made / WEIGHTS)
            expected = official_digests().get(f"models/{name}", actual)
            if actual != expected:
                digests = f"sha256 {actual[:16]}..., expected {expected[:16]}..."
                fix = "fetch them again; nothing was stored"
                raise Refused(f"the weights of {name} have {digests}: {fix}")
            disk.seal_folder(made)
    finally:
        if target.parent != paths.models_root():
            # Remove the owner's folder if nothing was downloaded to it.
            with suppress(OSError):
                target.parent.rmdir()
    return target


def _copy(source: Path, target: Path) -> None:
    """Copy the files of a checkpoint into a folder, which is created if missing."""
    target.mkdir(parents=True, exist_ok=True)
    for path in checkpoint_files(source):
        shutil.copy(path, target / path.name)


def convert(source: Path, target: Path) -> None:
    """Write the tensors of a pickle as safetensors. The same pickle gives the same
    bytes.

    PyTorch's restricted unpickler reads it, which executes no code. Raises Refused
    where the pickle is no dict of tensors."""
    import torch
    from safetensors.torch import save_file

    try:
        tensors = torch.load(source, map_location="cpu", weights_only=True)
        # Clone the tensors: safetensors refuses tensors that share memory.
        tensors = {name: tensors[name].clone().contiguous() for name in sorted(tensors)}
        save_file(tensors, target, {"format": "pt"})
    # Damaged files and forbidden contents raise errors of many classes.
    except Exception as error:
        reason = f"{source.name} is no plain table of tensors ({type(error).__name__})"
        raise Refused(
            f"{reason}: it may be damaged; get the checkpoint as safetensors"
        ) from None


def _download(name: str, folder: Path) -> Path:
    """Download a checkpoint from the hub, as safetensors or as a pickle, and return its
    folder. Raises OSError in one line."""
    from huggingface_hub import snapshot_download

    options = {"local_dir": folder, "allow_patterns": [*PATTERNS, PICKLE]}
    try:
        snapshot_download(HUB.get(name, name), **options)
    except Exception as error:
        fix = (
            f"copy its folder to {paths.show_path(paths.models_root() / name)} by hand"
        )
        raise OSError(
            f"the hub did not give {name} ({type(error).__name__}): {fix}"
        ) from None
    return folder


def copy(name: str, expected: str, target: Path) -> None:
    """Copy the files of a local checkpoint to the folder `target`.

    Raises Refused where the checkpoint has another digest than expected, or a file has
    changed since it was downloaded.

    expected: the digest of the checkpoint in the Spec."""
    folder = locate_checkpoint(name)
    if (folder / disk.MANIFEST).exists() and (why := disk.damage_of_folder(folder)):
        raise Refused(
            f"{why}: move {paths.show_path(folder)} away, and fetch {name} again"
        )
    check(f"the checkpoint in {paths.show_path(folder)}", weights(name), expected)
    _copy(folder, target)
