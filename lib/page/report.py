"""Report: the chosen notebooks as pages (lib.page.sheet), and the index of a profile.

The index is there first. Each page follows as soon as its runs are there.

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
from lib.runs.execute import commit, one_line
from lib.runs.paths import write


class Book:
    """The pages of a command, standard ones and experiments, and how far each is.

    values: of parameters. asked: paths of notebooks; those that lack one are left out. At first
    their parameters alone are read, so that the index is there at once. A page is made of its
    notebook's text at that time.
    """

    def __init__(self, profile, values, asked, store):
        self.profile, self.store, self.working = profile, store, True
        self.sheets, self.order, self.there = {}, [], set()
        for path in asked:
            if values.keys() <= notebook.parameters(path).keys():
                filled, text = notebook.check(path, values), notebook.normalised(path.read_text())
                self.sheets[path] = Sheet(path, *notebook.place(path, filled), filled, text)
        self.publish()

    def __str__(self):
        return paths.shown(paths.FIGURES / self.profile[:] / "index.html")

    def open(self, grids, absent):
        """Take the grids {path: {variable: rows}} of the notebooks.

        absent: {path: error} of those whose Specs cannot be made.
        """
        self.order = list(grids)
        for path, found in grids.items():
            self.sheets[path].grids = found
        for path, error in absent.items():
            self.sheets[path].fail(one_line(error))
        self.publish()

    def ready(self):
        """Return the sheets whose runs are all there and that were not tried, those with runs
        first.
        """
        for sheet in self.sheets.values():
            specs = set(notebook.wanted(sheet.grids))
            self.there |= {spec for spec in specs - self.there if self.store.find(spec)}
            sheet.runs = len(self.there & specs), len(specs)
        sheets = [self.sheets[path] for path in self.order]
        whole = [sheet for sheet in sheets if len(set(sheet.runs)) == 1 and not sheet.tried]
        return sorted(whole, key=lambda sheet: not sheet.runs[1])

    @contextmanager
    def meanwhile(self):
        """Beside the runs that are made, pages are made one by one, each when its runs are there.

        Those with runs come before those of arithmetic.
        """
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
            self.render(list(map(self.sheets.get, self.order)), executor)
        return any(sheet.failed for sheet in self.sheets.values())

    def answers(self):
        """Yield what each page answers, in a line."""
        for sheet in self.sheets.values():
            for line in (sheet.body or {}).get("answer", ())[:1]:
                yield f"  {sheet.name}: {line}"

    def close(self):
        """Publish the index for the last time, however the work ended."""
        self.working = False
        self.publish()

    def render(self, sheets, executor):
        """Make the pages among some that are out of date, and print a line for each.

        They are made in an executor's processes, so that one that is killed costs its own page.
        """
        todo = {}
        for sheet in sheets:
            digest, before = fingerprint(sheet, self.store), sheet.tried
            sheet.tried = digest
            if before != digest and not (sheet.body and made_of(sheet.page) == digest):
                about = sheet.path, sheet.folder, sheet.values, self.store, sheet.text
                todo[sheet.path] = (*about, list(sheet.differs), digest)
        for (path, *_), future in executor.each(make, todo.values()):
            sheet, error = self.sheets[path], future.exception()
            if error:
                killed = isinstance(error, BrokenProcessPool)
                sheet.fail("its worker was killed; run it again" if killed else one_line(error))
                line = f"failed   {sheet.name}: {sheet.failed}"
            else:
                sheet.failed = ""
                line = f"made     {paths.shown(sheet.page)}  ({future.result():.0f} s)"
            with tqdm.external_write_mode():
                print(f"  {line}", flush=True)
            self.publish()

    def publish(self):
        """Write the index of the profile, with what this command has done so far."""
        publish(self.profile[:], list(self.sheets.values()), self.working)


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
        heading, title = headed(sheet.path)
        shown = card(sheet, profile, working and sheet in sheets) | {"title": title}
        sections[HEADINGS[-1] if sheet.differs else heading].append(shown)
    cards, code = sum(sections.values(), []), commit().get("commit")
    made = f"{sum(c['state'] == 'made' for c in cards)} of {len(cards)} artefacts made"
    values = {
        "frame": frame(profile, working=working),
        "sections": {heading: part for heading, part in sections.items() if part},
        "title": f"BERT compression workbook: {profile}",
        "footer": f"code {code}, {made}" if code else made,
    }
    text = verdicts.ENVIRONMENT.get_template("index.html.j2").render(values)
    write(folder / "index.html", text)


def card(sheet, profile, working):
    """Return what the index shows of a page: a picture, badges and counts, or how far it is."""
    told, body = {"id": sheet.name, "differs": sheet.differs}, sheet.body
    if not body:
        there, total = sheet.runs
        scope = grids.meant({"profile": profile} | sheet.values)
        state, line = "not made", notebook.command(sheet.name, scope)
        if working:
            state = "in work" if there else "waiting"
            line = f"{there} of {total} runs" * bool(total)
        if sheet.failed:
            state, line = "failed", sheet.failed
        return told | {"state": state, "line": line}
    top, texts = paths.FIGURES / profile, verdicts.claims()
    by_hand = sheet.differs and not sheet.page.exists()
    found = [v for v in body["verdicts"] if v["kind"] == "finding"]
    return told | {
        "state": "made",
        "href": os.path.relpath(sheet.folder if by_hand else sheet.page, top),
        "folder": os.path.relpath(sheet.folder, top),
        "alt": "; ".join(body.get("answer") or [headed(sheet.path)[1]]),
        "picture": next((file for file in body["files"] if file.endswith(".png")), ""),
        "findings": [v for v in found if verdicts.leading(v["claim"])],
        "counts": body.get("counts", ""),
        "runs": notebook.counted(body["runs"]),
        "claims": " ".join(f"{v['claim']} {texts.get(v['claim'], '')}" for v in body["verdicts"]),
    }
