"""This package opens finished runs, and exports their models as folders that
transformers can open, with a model card."""

from importlib.util import find_spec
from pathlib import Path

from lib.core.names import Refused

PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def check_export_folder_is_empty(export_folder: Path) -> None:
    """Raise Refused where an export would mix with what is already there.

    The folder may be missing or empty."""
    if not export_folder.exists():
        return
    if not export_folder.is_dir() or any(export_folder.iterdir()):
        why = "is not empty" if export_folder.is_dir() else "is a file"
        raise Refused(
            f"{export_folder} {why}: name a new folder with --to, or delete it"
        )


def check_onnx_packages() -> None:
    """Raise Refused where a package that writes or runs ONNX files is not installed.

    The message has the command that installs them. It is checked before an export
    begins."""
    absent = [name for name in PACKAGES if not find_spec(name)]
    if absent:
        fix = "fix: python -m pip install -r requirements-export.txt"
        raise Refused(f"ONNX needs the packages {', '.join(absent)}; {fix}")
