"""Verify: the recorded evidence is read, computed again, and held to a committed ledger.

`ledger.json` beside the records has the digest of every record, the verdict on every claim, what we
found in sentences, and the digests of the data of committed figures. `python -m lib verify --write`
writes it, where all records are sound. What differs is told in one line each, records first:
verdicts rest on them.
"""

import hashlib
import json
from contextlib import closing

from lib import checks, data, executors, paths, record, verdicts
from lib.data.unseen import unpacked
from lib.execute import one_line
from lib.files import write
from lib.measure import metrics

SHOWN = 10  # lines at most
FIX = "take it from git again, or write it with `python -m lib verify --write`"


def path():
    """Where the ledger lies."""
    return paths.records_root() / "ledger.json"


# ---- RECORDS


def recomputed(run):
    """{metric: value} of a recorded run, computed again from its stored predictions.

    {} where none of its metrics is a score. Raises FileNotFoundError for scores without
    predictions.
    """
    described = run.spec["args"].get("data", {})
    task = "task" in described and data.task(described["source"], described["task"])
    if not task or not set(task.metrics) & run.metrics.keys():
        return {}
    stored = run.arrays("predictions")
    if task.span:  # no texts are kept
        found = {name: float(stored[name].mean()) for name in task.metrics}
    else:
        found = metrics.scores(task, stored["logits"], stored["labels"])
    if told := described.get("unseen"):
        said = unpacked(run.arrays("predictions_unseen"), told["rows"])
        more = metrics.scores(task, said, data.judging(described)["labels"])
        found |= {f"unseen.{name}": value for name, value in more.items()}
    return found


def damage(run):
    """One line on what is wrong with a record by itself; empty where it is sound."""
    place = paths.shown(run.folder)
    try:
        body = record.read(run.folder)
        record.unpacked(run.folder, body)
        if body["status"]["state"] != "finished" or not body["metrics"]:
            return f"{place} is no finished run with metrics: make it again"
        for name, value in recomputed(run).items():
            if not abs(value - run.metrics[name]) <= 1e-12:  # also where it is no number
                return f"{place}: {name} {value} computed, {run.metrics[name]} recorded"
    except Exception as error:  # damage comes in many shapes, and none may hide the others
        told = str(error) if place in str(error) else f"{place} is damaged: {one_line(error)}"
        return " ".join(told.split())
    return ""


# ---- THE LEDGER


def judged(store):
    """{id: what the ledger keeps of the verdict} on every claim, papers side by side."""
    jobs = [
        ([id for id, claim in checks.claims().items() if claim["paper"] == paper], store)
        for paper in checks.PAPERS
    ]
    with closing(executors.Local(min(executors.cores(), len(jobs)))) as executor:
        parts = [future.result() for _, future in executor.each(verdicts.judged, jobs)]
    found = {id: verdict for part in parts for id, verdict in part.items()}
    return {id: verdicts.line(found[id]) for id in checks.claims()}


def digests(store):
    """{name: digest of the record}."""
    return {run.name: record.digest(record.read(run.folder)) for run in store.recorded()}


def drawn(_):
    """{file: digest} of the data of committed figures."""
    files = sorted((paths.ROOT / "figures").glob("bench/*.csv"))
    return {paths.shown(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def told(store):
    """{title: sentences} of what we found."""
    return verdicts.told(store=store)


PARTS = {"records": digests, "figures": drawn, "verdicts": judged, "found": told}  # f(store)


def differences(told, store):
    """Lines on what is not as a ledger tells, of the first part that differs."""
    for part, state in PARTS.items():
        before, now = told[part], state(store)
        names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        if names:
            return [f"{part}: {name} {why(before.get(name), now.get(name))}" for name in names]
    return []


def why(before, now):
    """How one entry of the ledger differs from what is there, in words."""
    if now is None:
        return f"is in the ledger and not here: {FIX}"
    if before is None:
        return f"is here and not in the ledger: {FIX}"
    return f"is {now}, and {before} in the ledger: {FIX}"


def post(ledger):
    """Write scoreboard and findings of a ledger of all claims to README."""
    readme = paths.ROOT / "README.md"
    if readme.exists() and ledger["verdicts"].keys() >= checks.claims().keys():
        write(readme, verdicts.posted(readme.read_text(), ledger))


def wrong(store, renew=False):
    """One line for each thing that is wrong; none where the evidence is what the ledger says.

    renew: write the ledger and README's part of it, where the records are sound.
    """
    found = [line for line in map(damage, store.recorded()) if line]
    if found:
        return found
    if renew:
        ledger = {part: state(store) for part, state in PARTS.items()}
        write(path(), json.dumps(ledger, indent=0, ensure_ascii=False) + "\n")
        post(ledger)
        return []
    if not path().exists():
        return [f"{paths.shown(path())} is missing: {FIX}"]
    try:
        told = json.loads(path().read_bytes())
        before = {part: dict(told[part]) for part in PARTS}
    except (ValueError, TypeError, KeyError) as error:
        return [f"{paths.shown(path())} is damaged ({one_line(error)}): {FIX}"]
    return differences(before, store)
