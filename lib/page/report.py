"""Report: every chosen notebook executed by papermill, turned into a page, and the index of all.

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
import time
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from pathlib import Path

import pandas as pd

from lib import files, paths
from lib.checks import PAPERS
from lib.execute import commit, one_line
from lib.files import write
from lib.measure.verdict import tally
from lib.page import equation, notebook, verdicts
from lib.papers import own
from lib.papers.profiles import PROFILES

SOCKETS = "kernel-"  # then the process of a worker: the folder of its kernel's sockets
FOLDERS = ("page", "papers", "measure", "search", "model", "data")
FILES = ("options.py", "sweep.py", "published.py", "checks.py", "verdicts.py")
CODE = ("data/published", *(f"lib/{name}" for name in FOLDERS + FILES))  # what pages come from


@cache
def code():
    """Digest of the code of pages and of the published numbers."""
    body = hashlib.sha256()
    for place in CODE:
        place = paths.ROOT / place
        for file in sorted(place.rglob("*") if place.is_dir() else [place]):
            if file.suffix in (".py", ".csv", ".toml", ".css", ".j2", ".json"):
                body.update(file.read_bytes())
    return body.hexdigest()


def fingerprint(path, rows, store):
    """Digest of all that a page shows: notebook, code, published numbers, results of its runs."""
    body = hashlib.sha256(Path(path).read_bytes() + code().encode())
    for row in rows:
        run = store.find(row["spec"])
        body.update(f"{row['spec'].name} {json.dumps(run.metrics) if run else None}".encode())
    return body.hexdigest()[:16]


def render(grids, absent, profile, executor, store):
    """Execute the notebooks whose pages are out of date, and print a line for each.

    They are executed in an executor's processes: kernels that are started from threads race for
    ports. grids: {path: {variable: rows}} of the notebooks. absent: {path: error} of those whose
    Specs cannot be made. Returns {notebook id: one line} of those that failed.
    """
    folder = folder_of(profile)
    folder.mkdir(parents=True, exist_ok=True)
    todo, failed = {}, {path.stem: one_line(error) for path, error in absent.items()}
    for name in failed:
        (folder / f"{name}.json").unlink(missing_ok=True)
    for path, found in grids.items():
        digest = fingerprint(path, sum(found.values(), []), store)
        state = made_at(folder, path.stem)
        why = state["made_of"] == digest and files.wrong(folder, f".{path.stem}.state")
        if why != "":
            todo[path] = digest
        if why:
            print(f"  damaged  {paths.shown(folder)}/{why}; {path.stem} is made again", flush=True)
    jobs = [(path, folder, own.values(profile), store) for path in todo]
    for (path, *_), future in executor.each(execute, jobs):
        error = future.exception()
        if error:
            killed = isinstance(error, BrokenProcessPool)
            why = "its worker was killed; run it again" if killed else one_line(error)
            failed[path.stem] = paths.scrubbed(why)
            print(f"  failed   {path.stem}: {failed[path.stem]}", flush=True)
        else:
            written = notebook.provenance(folder, path.stem)["files"]
            names = [f"{path.stem}.ipynb", f"{path.stem}.json", *written]
            files.seal(folder, names, f".{path.stem}.state", made_of=todo[path])
            page = f"{paths.shown(folder)}/{path.stem}.html"
            print(f"  made     {page}  ({future.result():.0f} s)", flush=True)
    sweep_sockets()
    return failed


def folder_of(profile):
    """Where the pages of a profile lie; those of a reader's own data and model lie apart."""
    return paths.FIGURES / ("scratch" if isinstance(profile, own.Own) else profile)


def sweep_sockets():
    """Remove the socket folders that killed workers left."""
    for folder in Path(tempfile.gettempdir()).glob(f"{SOCKETS}[0-9]*-*"):
        try:
            os.kill(int(folder.name.removeprefix(SOCKETS).partition("-")[0]), 0)
        except (ProcessLookupError, OverflowError):
            shutil.rmtree(folder, ignore_errors=True)
        except (PermissionError, ValueError):
            pass


def made_at(folder, name):
    """The manifest of a page: the digests of its files, and `made_of`, its fingerprint when it was
    made; None for that where it was not made to its end.
    """
    try:
        return {"made_of": None} | (files.manifest(folder, f".{name}.state") or {})
    except files.Damaged:
        return {"made_of": None}


def told(folder, name):
    """What the last cell of a page wrote (notebook.provenance); None where its files are damaged,
    which a line says.
    """
    try:
        why = made_at(folder, name)["made_of"] and files.wrong(folder, f".{name}.state")
        body = None if why else notebook.provenance(folder, name)
    except ValueError as error:
        why, body = error, None
    if why:
        print(f"  damaged  {paths.shown(folder)}/{why}; `report {name}` makes it again")
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
            super().__init__(**{"transport": "ipc", "ip": f"{sockets}/s"} | options)

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


def publish(profile, executor, failed=()):
    """Write the HTML of every executed notebook of a profile, where it has changed, and the index.

    Returns the path of the index.
    """
    folder, pages = folder_of(profile), []
    for path in notebook.find():
        body, error = told(folder, path.stem), dict(failed).get(path.stem)
        if body or error:
            title = notebook.title(path)
            pages.append({"id": path.stem, "title": title, "body": body, "failed": error})
    recorded = " Numbers from real data on these pages are marked as recorded."
    about = PROFILES[profile].about + (f".{recorded}" if profile == "toy" else "")
    css = (verdicts.TEMPLATE / "page.css").read_text()
    look = {"css": css, "banner": f"{profile} profile: {about}"}
    for page in pages:
        if page["failed"]:
            write(folder / f"{page['id']}.html", document(**look, **page))
    jobs = [job for page in pages if (job := stale(folder, page, pages, look))]
    for _, future in executor.each(convert, jobs):
        future.result()
    write(folder / "index.html", index(profile, pages, folder, **look))
    return folder / "index.html"


def stale(folder, page, pages, look):
    """What `convert` takes for a page; None where its HTML was made of the same."""
    source, target = folder / f"{page['id']}.ipynb", folder / f"{page['id']}.html"
    if not (page["body"] and source.exists()):
        return None
    near = [each for each in pages if paper(each["id"]) == paper(page["id"])]
    resources = look | {
        "id": page["id"],
        "title": page["title"],
        "pages": [each | {"body": None, "short": short(each["id"])} for each in near],
        "papers": list(dict.fromkeys(paper(each["id"]) for each in pages)),
        "paper": paper(page["id"]),
        "profile": page["body"]["profile"],
        "footer": footer(page["body"]),
    }
    key = hashlib.sha256(source.read_bytes() + json.dumps(resources).encode()).hexdigest()
    body, _, mark = target.read_bytes().rpartition(b"<!-- ") if target.exists() else (b"", b"", b"")
    made = mark == f"{key} {files.sha(body)} -->".encode()
    return None if made else (source, target, resources, key)


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


def paper(name):
    """Heading of the index under which a notebook stands."""
    return PAPERS.get(name.partition("_")[0], "The workbook")


def short(name):
    """A notebook's name among the pages of its paper."""
    family, _, rest = name.partition("_")
    return rest.partition("_")[0] if family in PAPERS else rest.replace("_", " ")


def index(profile, pages, folder, **look):
    """The HTML of the index: one card for each page, under the heading of its paper."""
    sections = {}
    for page in pages:
        sections.setdefault(paper(page["id"]), []).append(card(page, folder))
    code = commit()
    made = f"code {code.get('commit', 'outside a checkout')}, " if code else ""
    title, told = f"BERT compression workbook: {profile}", f"{made}{len(pages)} artefacts"
    return document(title=title, sections=sections, footer=told, **look)


def document(**values):
    """A page that no notebook made (template/index.html.j2)."""
    return verdicts.ENVIRONMENT.get_template("index.html.j2").render(values)


def card(page, folder):
    """What the card of a page shows: a picture or the first rows, badges, counts."""
    if page["failed"]:
        return page
    body = page["body"]
    pictures = [file for file in body["files"] if file.endswith(".png")]
    return {
        "id": page["id"],
        "title": page["title"],
        "picture": pictures[0] if pictures else "",
        "rows": "" if pictures else preview(folder, body),
        "findings": [v for v in body["verdicts"] if v["kind"] == "finding"],
        "counts": tally((v["kind"], v["verdict"]) for v in body["verdicts"]),
        "runs": notebook.counted(body["runs"]),
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
