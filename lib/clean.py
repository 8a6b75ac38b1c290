"""What may be deleted: weights that nothing needs, and unfinished runs that nobody is at."""

import json
from functools import partial

from lib.evidence import cells
from lib.page import notebook
from lib.papers import nas, protocol
from lib.papers.profiles import CHECKPOINTS, PROFILES
from lib.spec import ancestry
from lib.store import alive


def deletable(patterns, store):
    """Folders that may go; with patterns, only those of the runs of these notebooks.

    Weights may go where no page and no claim has their run as an input. Where the Specs of a
    profile cannot be made, because its data are not at hand, weights from its checkpoints stay.
    """
    needed, within, unread = needs(notebook.find(patterns))
    names = {name for profile in unread for name in CHECKPOINTS.get(profile, {}).values()}
    names |= set(nas.CHECKPOINTS.values()) if "paper" in unread else set()
    kept = [f'"name": "{name}"' for name in names]
    folders = {}
    for run in store.folders():
        try:
            from_kept = any(name in json.dumps(run.spec) for name in kept)
        except (ValueError, OSError):
            continue  # damaged: it is set aside when it is wanted
        if run.model.exists() and run.name not in needed and not from_kept:
            folders[run.name] = run.model
    for part in store.parts():
        if not alive(part.with_suffix(".lock")):
            folders[f"{part.parent.name}/{part.stem}"] = part
    for aside in sorted(store.runs.glob(".damaged/*/*")):
        folders[f"{aside.parent.name}/{aside.name}"] = aside
    return [folder for name, folder in folders.items() if not patterns or name in within]


def needs(chosen):
    """(names of the inputs of all pages and claims, names of all runs of the chosen notebooks,
    profiles whose Specs cannot be made)."""
    asked = [
        (profile, path, partial(specs_of, path, profile))
        for path in notebook.find()
        for profile in PROFILES
    ]
    asked += [(protocol.SCALE, None, partial(cells, c, c.seeds)) for c in protocol.chosen()]
    needed, within, unread = set(), set(), set()
    for profile, path, make in asked:
        try:
            specs = make()
        except FileNotFoundError:
            unread.add(profile)
            continue
        inputs = {spec.name for spec in ancestry(specs)}
        needed |= inputs
        if path in chosen:
            within |= inputs | {spec.name for spec in specs}
    return needed, within, unread


def specs_of(path, profile):
    return notebook.wanted(notebook.grids(path, {"profile": profile}))
