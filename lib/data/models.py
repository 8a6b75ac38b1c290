"""This module downloads, checks and copies published pretrained models ("checkpoints").

A checkpoint is a folder in Hugging Face layout with safetensors, `data/models/<name>/`
or `DATA_ROOT/models/<name>/`. Where the hub or DATA_ROOT has only a pickle
(`pytorch_model.bin`), `fetch_checkpoint` converts it once. Trainings never load a
pickle, and no code of a checkpoint is executed."""

import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from lib.core import disk, paths
from lib.core.names import Refused, check_known_name
from lib.data import (
    PATTERNS,
    WEIGHTS,
    check_digest,
    digest_local_checkpoint,
    find_checkpoint_folder_with_file,
    list_checkpoint_files,
    read_committed_data_digests,
    require_checkpoint_folder,
)

HUB = disk.read_toml(Path(__file__).with_name("models.toml"))["HUB"]
PICKLE = "pytorch_model.bin"


def map_hub_name_to_local_name(checkpoint_name: str) -> str:
    """Return the short name that this project uses for a checkpoint of the Hugging Face
    hub, such as "bert-base-uncased" for "google-bert/bert-base-uncased"; an unknown
    name is returned unchanged."""
    return next(
        (local for local, hub in HUB.items() if hub == checkpoint_name), checkpoint_name
    )


def fetch_checkpoint(checkpoint_name: str) -> Path:
    """Copy a pretrained checkpoint to `data/models/<name>`, and return its folder.

    It comes from the folder `models` in the folder that the environment variable
    DATA_ROOT names, or else from the Hugging Face hub. Raises OSError where the hub
    cannot be reached. Raises Refused for an unknown name, where the weights are not the
    official ones, where a pickle has anything but tensors, or where
    `data/models/<name>` has files but no weights.

    checkpoint_name: a name such as "bert-base-uncased" or "owner/name"; or a folder
    with a pickle (`pytorch_model.bin`). A pickle in that folder, or in
    `data/models/<name>`, is not copied, but converted to safetensors in the same
    folder, unless weights in this format are there already."""
    target = Path(checkpoint_name).expanduser()
    if not (target / PICKLE).is_file():
        checkpoint_name = map_hub_name_to_local_name(checkpoint_name)
        target = paths.models_root() / checkpoint_name
    if (target / WEIGHTS).exists():
        return target
    if (target / PICKLE).exists():
        with disk.write_atomically(target / WEIGHTS) as weights_path:
            convert_pickle_to_safetensors(target / PICKLE, weights_path)
            _check_weights_are_official(checkpoint_name, weights_path)
        return target
    here = find_checkpoint_folder_with_file(
        checkpoint_name, WEIGHTS
    ) or find_checkpoint_folder_with_file(checkpoint_name, PICKLE)
    is_name = re.fullmatch(r"([\w-][\w.-]*/)?[\w-][\w.-]*", checkpoint_name)
    if not (is_name and (here or "/" in checkpoint_name)):
        check_known_name("checkpoint", checkpoint_name, HUB)
    if any(target.glob("*")):
        raise Refused(
            f"{paths.format_project_path(target)} has files but no weights: move it away, and "
            f"fetch {checkpoint_name} again"
        )
    try:
        with (
            tempfile.TemporaryDirectory() as temporary,
            disk.write_atomically(target, accepts_existing_folder=True) as made,
        ):
            source = here or _download_checkpoint(checkpoint_name, Path(temporary))
            _copy_checkpoint_files(source, made)
            if not (made / WEIGHTS).exists():
                convert_pickle_to_safetensors(source / PICKLE, made / WEIGHTS)
            _check_weights_are_official(checkpoint_name, made / WEIGHTS)
            disk.write_manifest(made)
    finally:
        if target.parent != paths.models_root():
            # The name is "owner/name". Remove the folder of the owner if nothing was
            # downloaded to it.
            with suppress(OSError):
                target.parent.rmdir()
    return target


def _check_weights_are_official(checkpoint_name: str, weights_path: Path) -> None:
    """Raise Refused where weights that are being fetched are not the official ones.

    Their digest is compared with that in this project's file `data/digests.json`.
    Weights of which the file has no digest are not checked.

    weights_path: the file of weights, before it gets its final place."""
    actual = disk.digest_file(weights_path)
    expected = read_committed_data_digests().get(f"models/{checkpoint_name}", actual)
    if actual != expected:
        digests = f"sha256 {actual[:16]}..., expected {expected[:16]}..."
        fix = "get them from their source again; nothing was stored"
        raise Refused(f"the weights of {checkpoint_name} have {digests}: {fix}")


def _copy_checkpoint_files(source_folder: Path, target_folder: Path) -> None:
    """Copy weights, configuration and tokenizer of a checkpoint into a folder, which is
    created if missing."""
    target_folder.mkdir(parents=True, exist_ok=True)
    for path in list_checkpoint_files(source_folder):
        shutil.copy(path, target_folder / path.name)


def convert_pickle_to_safetensors(pickle_path: Path, safetensors_path: Path) -> None:
    """Write the tensors of a pickled checkpoint (`pytorch_model.bin`) as a file of
    safetensors. The same pickle gives the same bytes.

    PyTorch's restricted unpickler reads it, which executes no code. Raises Refused
    where the pickle is no dict of tensors."""
    import torch
    from safetensors.torch import save_file

    try:
        tensors = torch.load(pickle_path, map_location="cpu", weights_only=True)
        # Clone tied weights: safetensors refuses tensors that share memory.
        tensors = {name: tensors[name].clone().contiguous() for name in sorted(tensors)}
        save_file(tensors, safetensors_path, {"format": "pt"})
    # Catch every error: damaged files and forbidden contents raise many classes.
    except Exception as error:
        reason = (
            f"{pickle_path.name} is no plain table of tensors ({type(error).__name__})"
        )
        raise Refused(
            f"{reason}: it may be damaged; get the checkpoint as safetensors"
        ) from None


def _download_checkpoint(checkpoint_name: str, folder: Path) -> Path:
    """Download a checkpoint from the Hugging Face hub into a folder, as safetensors or
    as a pickle, and return the folder. Raises OSError where that fails."""
    from huggingface_hub import snapshot_download

    options = {"local_dir": folder, "allow_patterns": [*PATTERNS, PICKLE]}
    try:
        with disk.raise_full_disk_as_oserror(folder):
            snapshot_download(HUB.get(checkpoint_name, checkpoint_name), **options)
    except Exception as error:
        if getattr(error, "is_explained", False):  # The disk is full.
            raise
        place = paths.format_project_path(paths.models_root() / checkpoint_name)
        fix = f"copy its folder to {place} by hand"
        raise OSError(
            f"the hub did not give {checkpoint_name} ({type(error).__name__}): {fix}"
        ) from None
    return folder


def copy_checkpoint(
    checkpoint_name: str, expected_digest: str, target_folder: Path
) -> None:
    """Copy the files of a local pretrained checkpoint into another folder.

    A training run keeps a copy of the checkpoint from which it starts. Refused is
    raised where the checkpoint has another digest than expected, or where a file has
    changed since it was downloaded. Absent is raised where the checkpoint is missing.

    expected_digest: the digest of the checkpoint in the Spec (the description of the
    run).
    target_folder: the folder to copy to; it is created if missing."""
    folder = require_checkpoint_folder(checkpoint_name)
    if (folder / disk.MANIFEST).exists() and (
        why := disk.describe_folder_damage(folder)
    ):
        raise Refused(
            f"{why}: move {paths.format_project_path(folder)} away, and fetch "
            f"{checkpoint_name} again"
        )
    check_digest(
        f"the checkpoint in {paths.format_project_path(folder)}",
        digest_local_checkpoint(checkpoint_name),
        expected_digest,
    )
    _copy_checkpoint_files(folder, target_folder)
