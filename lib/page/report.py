"""Report: every chosen notebook executed by papermill, turned into a page, and the index of all.

The index is there first. Each page follows as soon as its runs are there.

A page is made anew when its notebook, the code that pages use, or one of its runs has changed. What
happened to a notebook is told by our own ledger (`<id>.json`, written by its last cell), not by
papermill, which marks every cell as completed after a dead kernel. Pages that differ from the
committed ones are experiments, each in a folder of its own below `figures/scratch/`.
"""

import html
import json
import threading
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import replace

import pandas as pd
from tqdm.auto import tqdm

from lib.page import notebook, verdicts
from lib.page.checks import PAPERS
from lib.page.sheet import Sheet, convert, execute, fingerprint, made_of, sweep_sockets
from lib.papers import own
from lib.papers.profiles import PROFILES
from lib.runs import executors, files, paths
from lib.runs.execute import commit, one_line
from lib.runs.files import read_json, write
from lib.runs.store import alive

BADGES = 6  # on a card; more are counts alone


class Book:
    """The pages of a command, standard ones and experiments, and how far each is.

    asked: paths of notebooks. At first their parameters alone are read, so that the index is there
    at once. A page is made of its notebook's text at that time. profile: "scratch", without asked
    notebooks, is a book of the experiments that were made before.
    """

    def __init__(self, profile, asked, store):
        self.profile, self.store, self.working = profile, store, True
        self.sheets, self.groups, self.order, self.there = {}, {}, [], set()
        every, values = groups(notebook.find()), own.values(profile)
        self.titles = {name: title for pages in every.values() for name, title in pages.items()}
        for path in asked:
            if values.keys() <= notebook.parameters(path).keys():
                filled = notebook.check(path, values)
                told = *notebook.place(path, filled), notebook.normalised(path.read_text()), filled
                self.sheets[path] = Sheet(path, self.titles[path.stem], *told)
        standard = {sheet.name: sheet for sheet in self.sheets.values() if not sheet.differs}
        folder = paths.FIGURES / profile
        if standard or not (self.sheets or profile == "scratch" or isinstance(profile, own.Own)):
            for heading, pages in every.items():
                self.groups[heading] = [
                    standard.get(name, Sheet(paths.NOTEBOOKS / f"{name}.ipynb", title, folder))
                    for name, title in pages.items()
                    if name in notebook.committed()
                ]
        alone = len(standard) == len(self.sheets) and self.groups
        scratch = paths.FIGURES / "scratch"
        folders = [folder] * bool(self.groups) + [scratch] * (not alone)
        self.indices = [place / "index.html" for place in folders]
        self.publish()

    def __str__(self):
        return " and ".join(map(paths.shown, self.indices))

    def open(self, grids, absent):
        """Take the grids {path: {variable: rows}} of the notebooks.

        absent: {path: error} of those whose Specs cannot be made.
        """
        self.order = list(grids)
        for path, found in grids.items():
            self.sheets[path].grids = found
        for path, error in absent.items():
            self.sheets[path].failed = one_line(error)
        self.publish()

    def count(self, sheet):
        """(how many of the runs that a page makes are there, how many it makes)."""
        specs = notebook.wanted(sheet.grids)
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
                    for path in self.order
                    for there, total in [self.count(self.sheets[path])]
                    if there == total and not self.sheets[path].tried
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
            self.render(self.order, executor)
            standard = [sheet for sheets in self.groups.values() for sheet in sheets]
            made = {s: made_of(s.page) for s in {*standard, *self.sheets.values()} if s.body}
            jobs = {s: self.job(s, made[s].partition(" ")[0]) for s in made if made[s]}
            stale = [job for s, job in jobs.items() if job[-1] != made[s]]
            for _, future in executor.each(convert, stale):
                future.result()
        if self.profile == "mini":
            self.lighten()
        return any(sheet.failed for sheet in self.sheets.values())

    def lighten(self):
        """Write each standard page in Markdown beside its pictures: what git holds of mini."""
        for heading, sheet in [(h, sheet) for h, sheets in self.groups.items() for sheet in sheets]:
            if body := sheet.body:
                book = read_json(sheet.folder / f"{sheet.name}.ipynb")
                text = light(book, f"{heading}: {sheet.title}", body)
                write(sheet.folder / f"{sheet.name}.page.md", text)

    def close(self):
        """Publish the index for the last time, however the work ended."""
        self.working = False
        self.publish()

    def render(self, chosen, executor):
        """Execute the chosen notebooks whose pages are out of date, and print a line for each.

        They are executed in an executor's processes: kernels that are started from threads race for
        ports.
        """
        todo = []
        for sheet in map(self.sheets.get, chosen):
            digest, before = fingerprint(sheet, self.store), sheet.tried
            sheet.tried = digest
            if before != digest and not (sheet.body and made_of(sheet.page).startswith(digest)):
                todo.append(sheet)
        jobs = [(s.path, s.folder, s.values, self.store, s.text, list(s.differs)) for s in todo]
        for (path, *_), future in executor.each(execute, jobs):
            sheet, error = self.sheets[path], future.exception()
            sheet.failed, page = "", paths.shown(sheet.page)
            if error:
                killed = isinstance(error, BrokenProcessPool)
                why = "its worker was killed; run it again" if killed else one_line(error)
                sheet.failed = paths.scrubbed(why)
                line = f"failed   {sheet.name}: {sheet.failed}"
            else:
                convert(*self.job(sheet, sheet.tried))
                line = f"made     {page}  ({future.result():.0f} s)"
            with tqdm.external_write_mode():
                print(f"  {line}", flush=True)
            self.publish()
        sweep_sockets()

    def card(self, sheet, busy):
        """What the card of a page shows; one that is not made gets a page that tells its state."""
        top = sheet.folder.parents[1] if sheet.differs else sheet.folder
        card = {"id": sheet.name, "title": sheet.title, "differs": sheet.differs}
        if body := sheet.body:
            by_hand = sheet.differs and not sheet.page.exists()
            card["href"] = (sheet.folder if by_hand else sheet.page).relative_to(top)
            card["folder"] = sheet.folder.relative_to(top)
            return card | shown(body, sheet.folder)
        there, total = self.count(sheet)
        made, words = notebook.wanted(sheet.grids), own.words(self.profile)
        state = "running" if there or any(spec.name in busy for spec in made) else "waiting"
        line = f"{there} of {total} runs" if total else ""
        if sheet.failed:
            state, line = "failed", sheet.failed
        elif sheet.path not in self.sheets or not self.working:
            state, line = "not made", " ".join(["python -m lib run", sheet.name, *words])
        card |= {"state": state, "line": line, "href": sheet.page.relative_to(top)}
        if sheet in self.sheets.values() or not sheet.page.exists():
            write(sheet.page, self.document(sheet, **card))
        return card

    def publish(self):
        """Write the index of the profile, and that of all experiments, where the command has some.

        Pages of other commands are on them as they lie on the disk.
        """
        busy = at_work(self.store) if self.working else {}
        for index in self.indices:
            scratch = index.parent.name == "scratch"
            sections = {
                heading: {
                    "cards": [self.card(sheet, busy) for sheet in sheets],
                    "runs": [sum(pair) for pair in zip(*map(self.count, sheets), strict=True)],
                }
                for heading, sheets in (self.tried_out() if scratch else self.groups).items()
                if sheets
            }
            code = commit()
            cards = [card for section in sections.values() for card in section["cards"]]
            told = f"code {code.get('commit', 'outside a checkout')}, " if code else ""
            told += f"{sum(c['state'] == 'made' for c in cards)} of {len(cards)} artefacts made"
            name = "experiments" if scratch else self.profile
            told = {"title": f"BERT compression workbook: {name}", "footer": told, "busy": busy}
            write(index, self.document(None, id="", sections=sections, scratch=scratch, **told))

    def tried_out(self):
        """{title: Sheets} of the experiments of this command and of those that were made before."""
        found = {sheet.folder: sheet for sheet in self.sheets.values() if sheet.differs}
        for folder in sorted((paths.FIGURES / "scratch").glob("*/*/")):
            path = paths.NOTEBOOKS / f"{folder.parent.name}.ipynb"
            sheet = Sheet(path, self.titles.get(path.stem, path.stem), folder)
            if folder not in found and (body := sheet.body):
                found[folder] = replace(sheet, differs=body["differs"])
        by_title = {}
        for folder in sorted(found):
            by_title.setdefault(found[folder].title, []).append(found[folder])
        return by_title

    def document(self, sheet, **values):
        """A page that no notebook made (template/index.html.j2)."""
        template = verdicts.ENVIRONMENT.get_template("index.html.j2")
        return template.render(**self.frame(sheet, values.pop("scratch", False)), **values)

    def frame(self, sheet, scratch=False):
        """What stands around a page, or around an index, of which `scratch` says which one."""
        differs, pages = sheet.differs if sheet else (), {}
        if not differs and not scratch:
            for heading, sheets in self.groups.items():
                pages[heading] = {each.name: each.title for each in sheets}
        said = (
            "Experiments: pages whose data, model, parameters or cells are not the committed ones."
        )
        if differs:
            said = " ".join(["An experiment.", *differs])
        elif not scratch:
            said = banner(self.profile)
        return {
            "css": (verdicts.TEMPLATE / "page.css").read_text(),
            "banner": said,
            "groups": {heading: found for heading, found in pages.items() if found},
            "working": self.working,
            "profile": self.profile,
            "top": "../../" if differs else "",
        }

    def job(self, sheet, digest):
        """What `convert` takes for a page that was made at a fingerprint."""
        parts = verdicts.ENVIRONMENT.get_template("frame.html.j2").module
        frame, name = self.frame(sheet) | {"working": False}, sheet.name
        body = notebook.provenance(sheet.folder, name)
        around = {
            "top": str(parts.top(frame, name, sheet.title, evidence(body))),
            "bottom": str(parts.bottom(frame, name, body["files"], footer(body))),
        }
        mark = f"{digest} {files.sha(json.dumps(around).encode())[:16]}"
        return sheet.folder / f"{name}.ipynb", sheet.page, around, mark


def light(book, title, body):
    """A page in Markdown: the text of an executed notebook, and each output that has Markdown.

    book: as JSON. body: what its last cell wrote. The words on its central claims stand first, and
    what follows the verdicts is left out.
    """
    texts = verdicts.claims()
    answer = [
        f"- **{v['claim']}** {texts[v['claim']]} **{verdicts.label(v['verdict'])}**"
        for v in body["verdicts"]
        if v["kind"] == "finding" and verdicts.leading(v["claim"])
    ]
    runs = f"Runs: {notebook.counted(body['runs'])}. {evidence(body)}".strip(". ")
    made = f"Profile {body['profile']}. {runs}. Made of `notebooks/{body['id']}.ipynb`."
    parts = [f"# {title}", made, "\n".join(answer)]
    for cell in book["cells"]:
        source, tags = "".join(cell["source"]), cell["metadata"].get("tags", [])
        if cell["cell_type"] == "markdown":
            parts.append(source.partition("\n")[2].strip() if "title" in tags else source)
        for output in cell.get("outputs", ()):
            parts.append("".join(output.get("data", {}).get("text/markdown", "")).strip())
        if "verdicts" in tags:
            break
    return "\n\n".join(filter(None, parts)) + "\n"


def banner(profile):
    """What stands on top of every standard page of a profile."""
    marked = ". Numbers from real data on these pages are marked as recorded."
    return f"{profile} profile: {PROFILES[profile].about}" + marked * (profile == "toy")


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
        "counts": verdicts.tally((v["kind"], v["verdict"]) for v in body["verdicts"]),
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
