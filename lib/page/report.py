"""Report: the chosen notebooks as pages (lib.page.sheet), and the index of a profile.

The index comes first. Each page follows as soon as its runs are there.

A page is made anew when its notebook, the code, or one of its runs has changed. What happened to a
notebook is told by our own ledger (`<id>.json`, written by its last cell), not by papermill, which
marks every cell as completed after a dead kernel. Pages that differ from the committed ones are
experiments, each in a folder of its own below `figures/scratch/`; the index of their profile lists
them last.
"""

import os
import threading
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import replace

from tqdm import tqdm

from lib.page import notebook, verdicts
from lib.page.sheet import HEADINGS, Sheet, fingerprint, frame, headed, made_of, make
from lib.papers import grids
from lib.runs import executors, paths
from lib.runs.execute import one_line
from lib.runs.paths import write


class Book:
    """The pages of a command, standard ones and experiments, and how far each is.

    values: of parameters. grids: {path: {variable: rows}} of notebooks. absent: {path: error} of
    those whose Specs cannot be made. A page is made of its notebook's text at this time.
    """

    def __init__(self, profile, values, grids, absent, store):
        self.profile, self.store, self.working = profile, store, True
        self.sheets, self.there = [], set()
        for path in [*grids, *absent]:
            filled, text = notebook.check(path, values), notebook.normalised(path.read_text())
            place = notebook.place(path, filled)
            self.sheets.append(Sheet(path, *place, filled, text, grids.get(path, {})))
        self.absent = self.sheets[len(grids) :]
        for sheet in self.absent:
            sheet.fail(one_line(absent[sheet.path]))
        self.publish()

    def __str__(self):
        return paths.shown(paths.FIGURES / self.profile[:] / "index.html")

    def ready(self):
        """Return the sheets whose runs are all there and that were not tried."""
        for sheet in self.sheets:
            specs = set(notebook.wanted(sheet.grids))
            self.there |= {spec for spec in specs - self.there if self.store.find(spec)}
            sheet.runs = len(self.there & specs), len(specs)
        whole = [sheet for sheet in self.sheets if len({*sheet.runs}) == 1]
        return [sheet for sheet in whole if not (sheet.tried or sheet.failed)]

    @contextmanager
    def meanwhile(self):
        """Make pages one by one beside the runs, each when its runs are there."""
        over, executor = threading.Event(), executors.Local(1)

        def tend():
            while not over.wait(2):
                self.render(self.ready()[:1], executor)
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
            self.render([sheet for sheet in self.sheets if sheet not in self.absent], executor)
        return any(sheet.failed for sheet in self.sheets)

    def answers(self):
        """Yield what each page answers, in a line."""
        for sheet in self.sheets:
            for line in (sheet.body or {}).get("answer", ())[:1]:
                yield f"  {sheet.path.stem}: {line}"

    def close(self):
        """Publish the index for the last time, however the work ended."""
        self.working = False
        self.publish()

    def render(self, sheets, executor):
        """Make the pages among some that are out of date, and print a line for each.

        They are made in an executor's processes, so that one that is killed costs its own page.
        """
        todo = []
        for sheet in sheets:
            digest, before = fingerprint(sheet, self.store), sheet.tried
            sheet.tried = digest
            if before != digest and not (sheet.body and made_of(sheet.page) == digest):
                todo.append((sheet, self.store, digest))
        for (sheet, *_), future in executor.each(make, todo):
            if error := future.exception():
                killed = isinstance(error, BrokenProcessPool)
                sheet.fail("its worker was killed; run it again" if killed else one_line(error))
                line = f"failed   {sheet.path.stem}: {sheet.failed}"
            else:
                sheet.failed = ""
                line = f"made     {paths.shown(sheet.page)}  ({future.result():.0f} s)"
            with tqdm.external_write_mode():
                print(f"  {line}", flush=True)
            self.publish()

    def publish(self):
        """Write the index of the profile, with what this command has done so far."""
        publish(self.profile[:], self.sheets, self.working)


def publish(profile, sheets=(), working=False):
    """Write the index of a profile: its standard pages, then its experiments.

    sheets: those of a command, which is `working` on them. The others are shown as they lie on the
    disk.
    """
    folder, books = paths.FIGURES / profile, paths.NOTEBOOKS
    there = [Sheet(books / f"{name}.ipynb", folder) for name in notebook.committed()]
    for place in sorted((paths.FIGURES / "scratch").glob("*/*/")):
        sheet = Sheet(books / f"{place.parent.name}.ipynb", place)
        if (body := sheet.body) and body["profile"] == profile:
            there.append(replace(sheet, differs=body["differs"]))
    sections = {heading: [] for heading in HEADINGS}
    for sheet in {sheet.page: sheet for sheet in [*there, *sheets]}.values():
        shown = card(sheet, profile, working and sheet in sheets)
        sections[HEADINGS[-1] if sheet.differs else headed(sheet.path)[0]].append(shown)
    values = {
        "frame": frame(profile, working=working),
        "sections": {heading: cards for heading, cards in sections.items() if cards},
        "title": f"BERT compression workbook: {profile}",
    }
    text = verdicts.ENVIRONMENT.get_template("index.html.j2").render(values)
    write(folder / "index.html", text)


def card(sheet, profile, working):
    """Return what the index shows of a page: what its last cell wrote, or how far it is."""
    there, total = sheet.runs
    body, state, line = sheet.body, "made", ""
    if sheet.failed:
        body, state, line = None, "failed", sheet.failed
    elif working and not body:
        state, line = "waiting", f"{there} of {total} runs"
    elif not body:
        scope = grids.meant({"profile": profile} | sheet.values)
        state, line = "not made", notebook.command(sheet.path.stem, scope)
    top, page = paths.FIGURES / profile, sheet.page if sheet.page.exists() else sheet.folder
    return {
        "title": headed(sheet.path)[1],
        "differs": sheet.differs,
        "state": state,
        "line": line,
        "body": body,
        "href": os.path.relpath(page, top),
        "folder": os.path.relpath(sheet.folder, top),
        "pictures": [file for file in body["files"] if file.endswith(".png")] if body else [],
    }
