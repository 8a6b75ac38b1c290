"""One page: a notebook, where its page goes, executed by papermill and turned into HTML."""

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from filelock import FileLock

from lib.page import equation, notebook, verdicts
from lib.runs import paths
from lib.runs.execute import one_line
from lib.runs.files import write

SOCKETS = "kernel-"  # then the process of a worker: the folder of its kernel's sockets
FOLDERS = ("page", "papers", "measure", "search", "model", "data", "train", "steps", "methods")
FOLDERS += ("runs", "export")
TEXTS = ("data/published", "data/found.md")
CODE = (*TEXTS, *(f"lib/{name}" for name in FOLDERS))  # what pages come from


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


def fingerprint(sheet, store):
    """Digest of all that a page shows: notebook, code, published numbers, results of its runs."""
    body = hashlib.sha256((sheet.text + code()).encode())
    for row in sum(sheet.grids.values(), []):
        run = store.find(row["spec"])
        told = (run.origin, run.metrics) if run else None
        body.update(f"{row['spec'].name} {json.dumps(told)}".encode())
    return body.hexdigest()[:16]


@dataclass(eq=False)
class Sheet:
    """A page: its notebook, where it goes, how far it is."""

    path: Path
    title: str
    folder: Path
    differs: list = ()  # sentences on what makes it an experiment
    text: str = ""  # of the notebook as the command began
    values: dict = field(default_factory=dict)  # all parameters
    grids: dict = field(default_factory=dict)  # {variable: rows}, once they are read
    failed: str = ""
    tried: str = ""  # fingerprint that it was made of last, or was to be

    @property
    def name(self):
        return self.path.stem

    @property
    def page(self):
        return self.folder / f"{self.name}.html"

    @property
    def body(self):
        """What the last cell wrote; None where the page is not made. One by hand has no HTML."""
        try:
            made = made_of(self.page) or not self.page.exists()
            return notebook.provenance(self.folder, self.name) if made and not self.failed else None
        except ValueError:
            return None


def sweep_sockets():
    """Remove the socket folders that killed workers left."""
    for folder in Path(tempfile.gettempdir()).glob(f"{SOCKETS}[0-9]*-*"):
        try:
            os.kill(int(folder.name.removeprefix(SOCKETS).partition("-")[0]), 0)
        except (ProcessLookupError, OverflowError):
            shutil.rmtree(folder, ignore_errors=True)
        except (PermissionError, ValueError):
            pass


def made_of(page):
    """What an HTML was made of, as its end tells: fingerprint and digest of what stands around it;
    "" where it is not whole."""
    if not page.exists():
        return ""
    with open(page, "rb") as file:
        file.seek(max(0, page.stat().st_size - 100))
        found = re.search(r"<!-- (\w+ \w+) -->$", file.read().decode(errors="replace"))
    return found[1] if found else ""


def execute(path, folder, values, store, text, differs):
    """Execute a notebook's text with papermill into `<folder>/<id>.ipynb`. Returns seconds.

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
    draft = folder / f".{path.name}"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ |= {
        notebook.BATCH: json.dumps([str(folder), differs]),
        "RUNS_ROOT": str(store.runs),
        "RECORDS_ROOT": str(store.records),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    see = f"see {paths.shown(output)}"
    mine = f"{SOCKETS}{os.getpid()}-"
    lock = FileLock(folder / f".{path.stem}.lock")  # another command may make the same page
    with lock, tempfile.TemporaryDirectory(prefix=mine, ignore_cleanup_errors=True) as sockets:
        before = ledger.stat().st_mtime_ns if ledger.exists() else 0
        draft.write_text(text)
        try:
            papermill.execute_notebook(
                str(draft),
                str(draft),
                parameters=values,
                kernel_name="python3",
                cwd=str(paths.ROOT),
                progress_bar=False,
                log_output=False,
                start_timeout=180,
                extra_arguments=["--log-level=CRITICAL"],  # an idle kernel tells of its own stop
                kernel_manager_class=LocalKernel,
            )
            told = ledger.exists() and ledger.stat().st_mtime_ns > before
            died = "" if told else "before its last cell"
        except papermill.PapermillExecutionError as error:
            told = f"{error.ename}: {error.evalue} (cell {error.cell_index + 1}; {see})"
            raise RuntimeError(told) from None
        except Exception as error:  # a dead kernel comes in several shapes
            died = f"({one_line(error)})"
        finally:
            write(output, paths.scrubbed(draft.read_text()))
            draft.unlink()
    if died:
        raise RuntimeError(f"the kernel died {died}; {see}; run it again")
    return time.monotonic() - began


def convert(source, target, resources, mark):
    """Write the HTML of an executed notebook, and under it what it was made of."""
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
    write(target, f"{body}<!-- {mark} -->")
