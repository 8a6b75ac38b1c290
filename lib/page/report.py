"""Report: every chosen notebook executed by papermill, turned into a page, and the index of all.

The index is there first. Each page follows as soon as its runs are there.

A page is made anew when its notebook, the code that pages use, or one of its runs has changed. What
happened to a notebook is told by our own ledger (`<id>.json`, written by its last cell), not by
papermill, which marks every cell as completed after a dead kernel.
"""

import hashlib
import html
import json
import os
import shutil
import tempfile
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

import pandas as pd
from tqdm.auto import tqdm

from lib import executors, files, paths
from lib.checks import PAPERS
from lib.execute import commit, one_line
from lib.files import read_json, write
from lib.measure.verdict import tally
from lib.page import equation, notebook, verdicts
from lib.papers import own
from lib.papers.profiles import PROFILES
from lib.store import alive

SOCKETS = "kernel-"  # then the process of a worker: the folder of its kernel's sockets
FOLDERS = ("page", "papers", "measure", "search", "model", "data", "train", "steps", "methods")
BADGES = 6  # on a card; more are counts alone
FILES = tuple(
    f"{name}.py" for name in "options sweep published checks findings verdicts store spec".split()
)
TEXTS = ("data/published", "data/found.md")
CODE = (*TEXTS, *(f"lib/{name}" for name in FOLDERS + FILES))  # what pages come from


@cache
def code():
    """Digest of the code of pages, of the published numbers, and of what was found."""
    body = hashlib.sha256()
    for place in CODE:
        place = paths.ROOT / place
        for file in sorted(place.rglob("*") if place.is_dir() else [place]):
            if file.suffix in (".py", ".csv", ".toml", ".css", ".j2", ".json", ".md"):
                body.update(file.read_bytes())
    return body.hexdigest()


def fingerprint(path, rows, store):
    """Digest of all that a page shows: notebook, code, published numbers, results of its runs."""
    body = hashlib.sha256(path.read_bytes() + code().encode())
    for row in rows:
        run = store.find(row["spec"])
        body.update(f"{row['spec'].name} {json.dumps(run.metrics) if run else None}".encode())
    return body.hexdigest()[:16]


class Book:
    """The pages of a profile: those asked for, and how far each is.

    asked: paths of notebooks. At first their titles alone are read, so that the index is there at
    once.
    """

    def __init__(self, profile, asked, store):
        self.profile, self.asked, self.store = profile, asked, store
        self.folder = paths.FIGURES / ("scratch" if isinstance(profile, own.Own) else profile)
        self.working, self.banner = True, banner(profile)
        self.index = self.folder / "index.html"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.grids, self.failed, self.tried, self.there = {}, {}, {}, set()
        self.groups = groups(notebook.find())
        self.titles = {}
        for pages in self.groups.values():
            self.titles |= pages
        self.bodies = {name: told(self.folder, name, loud=False) for name in self.titles}
        self.publish()

    def open(self, grids, absent):
        """Take the grids {path: {variable: rows}} of the notebooks.

        absent: {path: error} of those whose Specs cannot be made.
        """
        self.grids = grids
        self.failed = {path.stem: one_line(error) for path, error in absent.items()}
        for name in self.failed:
            (self.folder / f"{name}.json").unlink(missing_ok=True)
            self.bodies.pop(name, None)
        self.publish()

    def count(self, path):
        """(how many of the runs that a page makes are there, how many it makes)."""
        specs = notebook.wanted(self.grids.get(path, {}))
        self.there |= {spec for spec in specs if spec not in self.there and self.store.find(spec)}
        return len(self.there & set(specs)), len(specs)

    @contextmanager
    def meanwhile(self):
        """Beside the runs that are made, pages are made one by one, each when its runs are there.

        Those with runs come before those of arithmetic.
        """
        over, executor = threading.Event(), executors.Local(1)

        def tend():
            while not over.wait(2):
                ready = [
                    (not total, path)
                    for path in self.grids
                    for there, total in [self.count(path)]
                    if there == total and path not in self.tried
                ]
                self.render([path for _, path in sorted(ready)[:1]], executor)
                self.publish()

        thread = threading.Thread(target=tend, daemon=True)
        thread.start()
        try:
            yield
        except BaseException:
            executor.close()  # a page at work is not waited for
            raise
        finally:
            over.set()
            thread.join()
            executor.close()

    def finish(self):
        """Make every page that is out of date. Returns whether one failed."""
        with closing(executors.Local(2)) as executor:
            self.render(list(self.grids), executor)
            self.bodies = {name: told(self.folder, name) for name in self.titles}
            jobs = [job for name in self.made() if (job := self.stale(name))]
            for _, page, *_ in jobs:
                if page.exists() and not made_from(page):
                    print(f"  damaged  {paths.shown(page)} has another digest; it is made again")
            for _, future in executor.each(convert, jobs):
                future.result()
        if self.folder.name == "mini":
            self.lighten()
        return bool(self.failed)

    def lighten(self):
        """Write each page in Markdown beside its pictures: what git holds of a profile."""
        template = verdicts.ENVIRONMENT.get_template("page.md.j2")
        headings = {name: heading for heading, pages in self.groups.items() for name in pages}
        for name, body in self.made().items():
            title = f"{headings[name]}: {self.titles[name]}"
            tables = [(self.folder / f).read_text() for f in body["files"] if f.endswith(".md")]
            drawn = {
                f: (self.folder / f).with_suffix(".svg").read_text()
                for f in body["files"]
                if f.endswith(".png")
            }
            alt = {f: svg.partition("<title>")[2].partition("<")[0] for f, svg in drawn.items()}
            told = {"title": title, "lacks": evidence(body), "tables": tables, "pictures": alt}
            told["texts"] = verdicts.claims()
            text = template.render(told, body=body, runs=notebook.counted(body["runs"]))
            write(self.folder / f"{name}.page.md", html.unescape(text))

    def close(self):
        """Publish the index for the last time, however the work ended."""
        self.working = False
        self.publish()

    def render(self, chosen, executor):
        """Execute the chosen notebooks whose pages are out of date, and print a line for each.

        They are executed in an executor's processes: kernels that are started from threads race for
        ports.
        """
        todo = {}
        for path in chosen:
            digest = fingerprint(path, sum(self.grids[path].values(), []), self.store)
            made_of, why = made_at(self.folder, path.stem)
            if (why or made_of != digest) and self.tried.get(path) != digest:
                todo[path] = digest
                self.bodies.pop(path.stem, None)
            if why:
                print(f"  damaged  {why}; {path.stem} is made again", flush=True)
            self.tried[path] = digest
        jobs = [(path, self.folder, own.values(self.profile), self.store) for path in todo]
        for (path, *_), future in executor.each(execute, jobs):
            self.failed.pop(path.stem, None)
            page, error = f"{paths.shown(self.folder)}/{path.stem}.html", future.exception()
            line = f"made     {page}  ({0 if error else future.result():.0f} s)"
            if error:
                killed = isinstance(error, BrokenProcessPool)
                why = "its worker was killed; run it again" if killed else one_line(error)
                self.failed[path.stem] = paths.scrubbed(why)
                line = f"failed   {path.stem}: {self.failed[path.stem]}"
            else:
                body = self.bodies[path.stem] = notebook.provenance(self.folder, path.stem)
                names = [f"{path.stem}.ipynb", f"{path.stem}.json", *body["files"]]
                files.seal(self.folder, names, f".{path.stem}.state", made_of=todo[path])
                convert(*self.stale(path.stem))
            with tqdm.external_write_mode():
                print(f"  {line}", flush=True)
            self.publish()
        sweep_sockets()

    def made(self):
        """{name: what its last cell wrote} of the pages that are there."""
        bodies = {name: body for name, body in self.bodies.items() if body}
        return {name: body for name, body in bodies.items() if name not in self.failed}

    def card(self, path, body, busy):
        """What the card of a page shows; one that is not made gets a page that tells its state."""
        card = {"id": path.stem, "title": self.titles[path.stem]}
        if body:
            return card | shown(body, self.folder)
        there, total = self.count(path)
        made, words = notebook.wanted(self.grids.get(path, {})), own.words(self.profile)
        state = "running" if there or any(spec.name in busy for spec in made) else "waiting"
        line = f"{there} of {total} runs" if total else ""
        if path.stem in self.failed:
            state, line = "failed", self.failed[path.stem]
        elif path not in self.asked or not self.working:
            state, line = "not made", " ".join(["python -m lib run", path.stem, *words])
        card |= {"state": state, "line": line}
        write(self.folder / f"{path.stem}.html", self.document(**card))
        return card

    def publish(self):
        """Write the index, with a card for each page."""
        made, busy, sections = self.made(), at_work(self.store) if self.working else {}, {}
        for name, pages in self.groups.items():
            found = [paths.NOTEBOOKS / f"{page}.ipynb" for page in pages]
            cards = [self.card(path, made.get(path.stem), busy) for path in found]
            counts = [sum(pair) for pair in zip(*map(self.count, found), strict=True)]
            done = sum(page in made for page in pages)
            sections[name] = {"cards": cards, "made": done, "runs": counts}
        code = commit()
        told = f"code {code.get('commit', 'outside a checkout')}, " if code else ""
        told += f"{len(made)} of {len(self.titles)} artefacts made"
        title = f"BERT compression workbook: {self.profile}"
        write(
            self.index, self.document(id="", title=title, sections=sections, footer=told, busy=busy)
        )

    def document(self, **values):
        """A page that no notebook made (template/index.html.j2)."""
        return verdicts.ENVIRONMENT.get_template("index.html.j2").render(**self.frame(), **values)

    def frame(self):
        """What stands around every page."""
        return {
            "css": (verdicts.TEMPLATE / "page.css").read_text(),
            "banner": self.banner,
            "groups": self.groups,
            "working": self.working,
            "profile": self.profile,
        }

    def stale(self, name):
        """What `convert` takes for a page; None where its HTML was made of the same."""
        source, target = self.folder / f"{name}.ipynb", self.folder / f"{name}.html"
        body = self.bodies.get(name)
        if not (body and source.exists()):
            return None
        parts = verdicts.ENVIRONMENT.get_template("frame.html.j2").module
        frame, title = self.frame() | {"working": False}, self.titles[name]
        resources = {
            "top": str(parts.top(frame, name, title, evidence(body))),
            "bottom": str(parts.bottom(frame, name, body["files"], footer(body))),
        }
        key = hashlib.sha256(source.read_bytes() + json.dumps(resources).encode()).hexdigest()
        return None if made_from(target) == key else (source, target, resources, key)


def banner(profile):
    """What stands on top of every page of a profile, or of a reader's own data and model."""
    if isinstance(profile, own.Own):
        return " ".join(profile.about())
    marked = ". Numbers from real data on these pages are marked as recorded."
    return f"{profile} profile: {PROFILES[profile].about}" + marked * (profile == "toy")


def sweep_sockets():
    """Remove the socket folders that killed workers left."""
    for folder in Path(tempfile.gettempdir()).glob(f"{SOCKETS}[0-9]*-*"):
        try:
            os.kill(int(folder.name.removeprefix(SOCKETS).partition("-")[0]), 0)
        except (ProcessLookupError, OverflowError):
            shutil.rmtree(folder, ignore_errors=True)
        except (PermissionError, ValueError):
            pass


def made_from(page):
    """Digest of what an HTML was made from, as its last line tells; "" where it was changed."""
    body, _, mark = page.read_bytes().rpartition(b"<!-- ") if page.exists() else [b""] * 3
    key, _, digest = mark.decode(errors="replace").partition(" ")
    return key if digest == f"{files.sha(body)} -->" else ""


def made_at(folder, name):
    """(the fingerprint of a page when it was made, what is wrong with its files since).

    (None, "") where it was not made to its end.
    """
    state = f".{name}.state"
    try:
        found = files.manifest(folder, state)
    except files.Damaged as error:
        return None, str(error)
    return (found.get("made_of"), files.wrong(folder, state)) if found else (None, "")


def told(folder, name, loud=True):
    """What the last cell of a page wrote (notebook.provenance); None where its files are damaged,
    which a line says, where it is loud.
    """
    _, why = made_at(folder, name)
    try:
        body = None if why else notebook.provenance(folder, name)
    except ValueError as error:
        why, body = error, None
    if why and loud:
        print(f"  damaged  {why}; `report {name}` makes it again")
    return body


def execute(path, folder, values, store):
    """Execute one notebook with papermill into `<folder>/<id>.ipynb`. Returns seconds.

    Raises RuntimeError where its last cell did not say that it finished.
    """
    import papermill
    from jupyter_client.manager import AsyncKernelManager

    class LocalKernel(AsyncKernelManager):
        """Talks over sockets in a folder of its own: no ports to race for, nothing sent over
        TCP.
        """

        def __init__(self, **options):
            mine = {"connection_file": f"{sockets}/kernel.json", "ip": f"{sockets}/s"}
            super().__init__(**{"transport": "ipc"} | mine | options)

    began, ledger, output = time.monotonic(), folder / f"{path.stem}.json", folder / path.name
    ledger.unlink(missing_ok=True)
    (folder / f".{path.stem}.state").unlink(missing_ok=True)
    os.environ |= {
        notebook.BATCH: "1",
        "RUNS_ROOT": str(store.runs),
        "RECORDS_ROOT": str(store.records),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    see = f"see {paths.shown(output)}"
    mine = f"{SOCKETS}{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=mine, ignore_cleanup_errors=True) as sockets:
        try:
            papermill.execute_notebook(
                str(path),
                str(output),
                parameters=values,
                kernel_name="python3",
                cwd=str(paths.ROOT),
                progress_bar=False,
                log_output=False,
                start_timeout=180,
                extra_arguments=["--log-level=CRITICAL"],  # an idle kernel tells of its own stop
                kernel_manager_class=LocalKernel,
            )
            died = "" if ledger.exists() else "before its last cell"
        except papermill.PapermillExecutionError as error:
            told = f"{error.ename}: {error.evalue} (cell {error.cell_index + 1}; {see})"
            raise RuntimeError(told) from None
        except Exception as error:  # a dead kernel comes in several shapes
            died = f"({one_line(error)})"
        finally:
            if output.exists():
                write(output, paths.scrubbed(output.read_text()))
    if died:
        raise RuntimeError(f"the kernel died {died}; {see}; run it again")
    return time.monotonic() - began


def convert(source, target, resources, key):
    """Write the HTML of an executed notebook, and under it what it was made of and its digest."""
    import nbformat
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(
        template_name="workbook",
        extra_template_basedirs=[str(verdicts.TEMPLATE)],
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    book = nbformat.read(source, 4)
    for cell in book.cells:
        if cell.cell_type == "markdown":
            cell.source = equation.readable(cell.source)
    body, _ = exporter.from_notebook_node(book, resources=resources)
    write(target, body + f"<!-- {key} {files.sha(body.encode())} -->")


def footer(body):
    changed = " with local changes" if body.get("changed") else ""
    code = f"code {body['commit']}{changed}, " if body.get("commit") else ""
    at = body["at"].replace("T", " ").rstrip("Z")
    return f"{code}made {at} UTC, parameters {html.escape(json.dumps(body['parameters']))}"


def evidence(body):
    """Why a page has no evidence; nothing where it has some, or needs none."""
    origins = {run["origin"] for run in body["runs"]}
    if any(body["parameters"].get(name) for name in own.PARAMETERS[1:]):
        return ""
    if not origins or "record" in origins or ("run" in origins and body["profile"] != "toy"):
        return ""
    return "No evidence yet: " + ("toy runs alone" if "run" in origins else "no run is recorded")


def groups(found):
    """{heading: {name: title}} of notebooks; what a paper's title repeats of its heading is cut."""
    sections = {name: {} for name in ("The workbook", *PAPERS.values())}
    for path in found:
        name, title = PAPERS.get(path.stem.partition("_")[0], "The workbook"), notebook.title(path)
        short = title.removeprefix(name).lstrip(" :,")
        sections[name][path.stem] = short[:1].upper() + short[1:]
    return {name: pages for name, pages in sections.items() if pages}


def at_work(store):
    """{name of a run that a process makes now: how far it is}."""
    found = {}
    for part in store.parts():
        try:
            if alive(part.with_suffix(".lock")):
                far = read_json(part / "status.json").get("progress", 0.0)
                found[f"{part.parent.name}/{part.stem}"] = f"{far:.0%}"
        except FileNotFoundError:
            continue  # it ended meanwhile
    return found


def shown(body, folder):
    """What the card of a page that is made shows: a picture or the first rows, badges, counts."""
    pictures = [file for file in body["files"] if file.endswith(".png")]
    texts = verdicts.claims()
    found = [v for v in body["verdicts"] if v["kind"] == "finding"]
    badges = [v for v in found if verdicts.leading(v["claim"])]
    return {
        "state": "made",
        "picture": pictures[0] if pictures else "",
        "rows": "" if pictures else preview(folder, body),
        "findings": badges if len(badges) <= BADGES else [],
        "counts": tally((v["kind"], v["verdict"]) for v in body["verdicts"]),
        "runs": notebook.counted(body["runs"]),
        "evidence": evidence(body),
        "claims": " ".join(f"{v['claim']} {texts.get(v['claim'], '')}" for v in body["verdicts"]),
    }


def preview(folder, body):
    """The first rows of a page's table, for its card."""
    tables = [file for file in body["files"] if file.endswith(".csv")]
    if not tables:
        return ""
    main = f"{body['id']}.csv"
    frame = pd.read_csv(folder / (main if main in tables else tables[0])).iloc[:7, :6].fillna("")
    frame.columns = ["" if name.startswith("Unnamed") else name for name in frame.columns]
    return f'<div class="rows">{frame.to_html(index=False, border=0)}</div>'
