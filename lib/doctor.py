"""Doctor: what is here and what is missing, each miss with its fix."""

import importlib.metadata
import json
import platform
import shutil
import sys

from lib import data, executors, paths
from lib.data import models
from lib.execute import processor
from lib.papers.profiles import PROFILES


def told():
    """Print what is here. Returns whether something that every profile needs is missing."""
    bad = False
    for good, what, fix in needed():
        bad |= not good
        print(f"ok   {what}" if good else f"MISS {what}: {fix}")
    print("\nNeeded by mini and paper alone:")
    print(*tasks(), *checkpoints(), sep="\n")
    print(f"\nprofiles: {', '.join(PROFILES)}")
    return bad


def needed():
    """(whether it is here, what, how to get it) of what every profile needs."""
    version = platform.python_version()
    yield (3, 11) <= sys.version_info[:2] <= (3, 13), f"Python {version}", "use 3.11 to 3.13"
    for pin in (paths.ROOT / "requirements.txt").read_text().splitlines():
        name, _, wanted = pin.partition("==")
        if wanted:
            have = installed(name)
            fix = f"{wanted} is tested: pip install -r requirements.txt"
            yield have.partition("+")[0] == wanted, f"{name} {have}", fix
    have = installed("bert-compression-workbook")
    yield have != "absent", f"lib as a package: {have}", "pip install -e . (notebooks import it)"
    fix = "python -m ipykernel install --sys-prefix"
    try:
        from jupyter_client.kernelspec import KernelSpecManager

        kernel = KernelSpecManager().get_kernel_spec("python3")
        yield True, f"kernel python3 ({kernel.display_name})", fix
    except Exception as error:
        yield False, f"kernel python3 ({error})", fix
    import torch

    card = "none, not needed for toy and mini"
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else card
    yield True, f"{executors.cores()} cores, {processor()}; accelerator: {card}", ""
    paths.runs_root().mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(paths.runs_root()).free / 1e9
    yield free > 2, f"{free:.0f} GB free for runs", "set RUNS_ROOT to a larger disk"


def installed(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def tasks():
    """A line for each task of GLUE: whether its rows are here, and are those of the records."""
    known = json.loads(paths.DIGESTS.read_text())
    for task in data.source("glue").TASKS:
        name = f"glue/{task}"
        try:
            digest = data.digest_of("glue", task)
        except (FileNotFoundError, ValueError) as error:
            why = str(error).split(";")[0]
            yield f"none {name}: set DATA_ROOT, or `python -m lib fetch {name}` ({why})"
            continue
        right = "a subset of the official rows" if name in known.get("subsets", ()) else "official"
        yield f"ok   {name} ({judged(digest, known.get(name), right, 'not the recorded rows')})"


def checkpoints():
    """A line for each checkpoint: where it is, and whether it is the official one."""
    wrong = "not the official weights: runs of it are others than the recorded ones"
    for name in models.HUB:
        try:
            folder = models.locate(name)
        except FileNotFoundError as error:
            yield f"none {error}"
            continue
        official = models.official(name)
        digest = official and models.digest(name)
        word = judged(digest, official, "official", wrong)
        yield f"ok   {name} in {paths.shown(folder)} ({word})"


def judged(digest, official, right, wrong):
    if official is None:
        return "not checked"
    return right if digest == official else wrong
