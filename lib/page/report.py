"""Report: the chosen notebooks as pages (lib.page.sheet), and the index of a folder of pages.

The index is there first. Each page follows as soon as its runs are there.

A page is made anew when its notebook, the code, or one of its runs has changed. What happened to a
notebook is told by our own ledger (`<id>.json`, written by its last cell), not by papermill, which
marks every cell as completed after a dead kernel. Pages that differ from the committed ones are
experiments, each in a folder of its own below `figures/scratch/`.
"""

import threading
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager

from tqdm.auto import tqdm

from lib.page import notebook, verdicts
from lib.page.checks import PAPERS
from lib.page.sheet import FIRST, Sheet, evidence, fingerprint, frame, headed, made_of, make
from lib.papers import own
from lib.runs import executors, paths
from lib.runs.execute import commit, one_line
from lib.runs.files import write


class Book:
    """The pages of a command, standard ones and experiments, and how far each is.

    asked: paths of notebooks. At first their parameters alone are read, so that the index is there
    at once. A page is made of its notebook's text at that time.
    """

    def __init__(self, profile, asked, store):
        self.store, self.working, self.sheets, self.order = store, True, {}, []
        values = own.values(profile)
        for path in asked:
            if values.keys() <= notebook.parameters(path).keys():
                filled, text = notebook.check(path, values), notebook.normalised(path.read_text())
                self.sheets[path] = Sheet(path, *notebook.place(path, filled), filled, text)
        self.folders = list(dict.fromkeys(sheet.top for sheet in self.sheets.values()))
        self.publish()

    def __str__(self):
        return " and ".join(paths.shown(folder / "index.html") for folder in self.folders)

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
        """Sheets whose runs are all there and that were not tried, those with runs first."""
        found = set()
        for sheet in self.sheets.values():
            specs = notebook.wanted(sheet.grids)
            found |= {spec for spec in specs if spec not in found and self.store.find(spec)}
            sheet.runs = len(found & set(specs)), len(specs)
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
        """Write the index of each folder that the command makes pages in."""
        for folder in self.folders:
            mine = [sheet for sheet in self.sheets.values() if sheet.top == folder]
            publish(folder, mine, self.working)


def publish(folder, sheets=(), working=False):
    """Write the index of a folder of pages: of a profile, or of all experiments.

    sheets: those of a command, which is `working` on them. The others are shown as they lie on the
    disk.
    """
    scratch = folder.name == "scratch"
    if scratch:
        others = [
            Sheet(paths.NOTEBOOKS / f"{each.parent.name}.ipynb", each, ["An experiment."])
            for each in sorted(folder.glob("*/*/"))
        ]
        others = [sheet for sheet in others if sheet.body]
    else:
        others = [Sheet(paths.NOTEBOOKS / f"{name}.ipynb", folder) for name in notebook.committed()]
    every = {sheet.page: sheet for sheet in [*others, *sheets]}
    sections = {heading: [] for heading in (FIRST, *PAPERS.values())}
    for sheet in every.values():
        sections[headed(sheet.path)[0]].append(card(sheet, working and sheet in sheets))
    cards = sum(sections.values(), [])
    made, code = sum(c["state"] == "made" for c in cards), commit().get("commit")
    told = f"code {code}, " if code else ""
    around = frame(folder.name, scratch=scratch, working=working)
    values = {
        "sections": {heading: there for heading, there in sections.items() if there},
        "title": f"BERT compression workbook: {'experiments' if scratch else folder.name}",
        "footer": f"{told}{made} of {len(cards)} artefacts made",
    }
    template = verdicts.ENVIRONMENT.get_template("index.html.j2")
    write(folder / "index.html", template.render(frame=around, **values))


def card(sheet, working):
    """What the index shows of a page: a picture, badges and counts, or how far it is."""
    told = {"id": sheet.name, "title": headed(sheet.path)[1], "differs": sheet.differs}
    body = sheet.body
    if not body:
        there, total = sheet.runs
        state, line = "not made", " ".join(["python -m lib run", sheet.name, *words(sheet)])
        if working:
            state, line = (
                "in work" if there else "waiting",
                f"{there} of {total} runs" * bool(total),
            )
        if sheet.failed:
            state, line = "failed", sheet.failed
        return told | {"state": state, "line": line}
    by_hand, texts = not sheet.page.exists(), verdicts.claims()
    found = [v for v in body["verdicts"] if v["kind"] == "finding"]
    return told | {
        "state": "made",
        "differs": body["differs"],
        "href": (sheet.folder if by_hand else sheet.page).relative_to(sheet.top),
        "folder": sheet.folder.relative_to(sheet.top),
        "picture": next((file for file in body["files"] if file.endswith(".png")), ""),
        "findings": [v for v in found if verdicts.leading(v["claim"])],
        "counts": verdicts.tally((v["kind"], v["verdict"]) for v in body["verdicts"]),
        "runs": notebook.counted(body["runs"]),
        "evidence": evidence(body),
        "claims": " ".join(f"{v['claim']} {texts.get(v['claim'], '')}" for v in body["verdicts"]),
    }


def words(sheet):
    """The words of a command that name the profile, data and model of a page."""
    profile = sheet.values.get("profile", sheet.top.name)
    return own.words(own.named(profile, *map(sheet.values.get, own.PARAMETERS[1:])))
