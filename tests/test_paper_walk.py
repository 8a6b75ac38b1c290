"""The profile `paper` walked on stand-ins: its own Specs of every page, made and
rendered.

Data are a few generated rows of tasks in the official layouts. Checkpoints are tiny
random encoders under the real names. What costs time alone (epochs, tokens, seeds,
turns of a clock) is cut where a step begins, so that the Specs stay the paper's. Of
each grid every kind of row is made, on one task, and for every task two rows (`fewer`);
the other rows are missing, as they are on the pages of a reader who stops half-way.
GLUE's tasks are those of THREE. Method notebooks have no Specs, and are left out."""

import contextlib
import io
import json
import os
import struct
import sys
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from functools import partial, partialmethod

import conftest
import datasets
import nbformat
import numpy as np
import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from test_glue import hub
from test_squad import hub as squad_hub

from lib import __main__ as command
from lib.claims import checks, judging, lists, notebook
from lib.cluster import backends, executors
from lib.core import paths
from lib.core.options import Span, Train
from lib.data import grammar, read, toy
from lib.papers import grids
from lib.papers.bermo import recipes as bermo
from lib.papers.efficientbert import maps, warming
from lib.papers.efficientbert import recipes as efficientbert
from lib.papers.efficientbert import searches as efficientbert_search
from lib.papers.ghostbert import recipes as ghostbert
from lib.papers.nas_pruning import digits
from lib.papers.nas_pruning import recipes as nas
from lib.report import builder, site
from lib.stats import compare
from lib.stats.cost import Shape
from lib.train import learn
from lib.train.steps import latency, predict, pretrain

# Tasks of GLUE's tables here: three classes and two development sets; scores; two
# classes.
THREE = ("MNLI", "STS-B", "CoLA")
# Epochs of every run at most. BERMo's ramps need theirs, and a search needs two steps.
EPOCHS = {"bermo": None, "nas_pruning": 2, "ghostbert": 1, "efficientbert": 1}
ROWS = {"train": 24, "dev": 12, "test": 12}
SPECIAL = dict.fromkeys(read.SQUAD, ROWS | {"train": 6})  # each has several windows
HUB = {"train": "train", "dev": "validation", "test": "test"}
# Tasks without generated rows of their own.
TWINS = dict.fromkeys(("MNLI", "MRPC", "QQP", "QNLI", "STS-B", "WNLI"), "RTE")
TWINS |= {"SST-2": "CoLA"}
# Heads, layers and neurons of the stand-ins; BERT-base is a multiple of the others
# deep.
SIZES = {
    "bert-base-uncased": ("bert", 12, 4, 48),
    "roberta-base": ("roberta", 12, 2, 48),
    "electra-small": ("electra", 4, 2, 48),
    "2nd_General_TinyBERT_4L_312D": ("bert", 12, 1, 92),
    "2nd_General_TinyBERT_6L_768D": ("bert", 12, 2, 48),
    "bert-mini": ("bert", 4, 2, 48),
}
HIDDEN = 24
POSITIONS = 514
TOKENS = 48
SPAN = Span(stride=16, max_query=16, max_answer=12)


def tasks(root, patch):
    """Rows of every task in the official layouts; the test rows of GLUE without
    labels."""

    def fetched(name, source, found):
        patch.setattr(datasets, "load_dataset", lambda *_: found)
        read.download_task_from_hub(name, root / source)

    for name in read.GLUE:
        made = toy.load.__wrapped__(TWINS.get(name, name))
        named = {HUB.get(split, split): rows for split, rows in made.items()}
        if name == "MNLI":
            named = {
                "train": made["train"],
                "validation_matched": made["dev"],
                "validation_mismatched": made["dev"],
            }
        labels = read.GLUE[name].labels
        labels = range(len(labels)) if labels else (0.0, 1.25, 2.5, 3.75, 5.0)
        table = {
            split: [
                (a, b, labels[i % len(labels)])
                for i, (a, b) in enumerate(zip(rows.a, rows.b or rows.a, strict=True))
            ]
            for split, rows in named.items()
        }
        fetched(name, "glue", hub(name, table))
    for name in read.SQUAD:
        made = toy.load.__wrapped__(name)
        files = [squad_file(made[split], split) for split in ("train", "dev")]
        fetched(name, "squad", squad_hub(*files))
    (root / "probing").mkdir()
    for name, task in read.SENTEVAL.items():
        # A task without a twin gets the rows of another one, of two classes.
        made, lines = toy.load.__wrapped__(name if name in toy.TASKS else "Tense"), []
        classes = 1 + made["train"].y.max()
        for mark, split in (("tr", "train"), ("va", "dev"), ("te", "test")):
            for text, y in zip(made[split].a, made[split].y % classes, strict=True):
                lines.append(f"{mark}\t{task.labels[y]}\t{text}\n")
        (root / "probing" / read.LAYOUTS[name]["files"]["all"]).write_text(
            "".join(lines)
        )


def squad_file(rows, split):
    """Rows as a file of SQuAD has them, a passage for each question."""
    paragraphs = []
    for i, (question, text, answers) in enumerate(
        zip(rows.a, rows.b, rows.answers, strict=True)
    ):
        found = [
            {"text": answer, "answer_start": text.index(answer)} for answer in answers
        ]
        asked = {"id": f"{split}-{i}", "question": question, "answers": found}
        paragraphs.append({"context": text, "qas": [asked]})
    return {"data": [{"title": "", "paragraphs": paragraphs}]}


def images(folder):
    folder.mkdir()
    random = np.random.default_rng(0)
    for stem, count in (("train", 64), ("t10k", 32)):
        (folder / f"{stem}-images-idx3-ubyte").write_bytes(
            struct.pack(">4I", 2051, count, 28, 28) + random.bytes(count * 784)
        )
        (folder / f"{stem}-labels-idx1-ubyte").write_bytes(
            struct.pack(">2I", 2049, count)
            + random.integers(10, size=count, dtype=np.uint8).tobytes()
        )


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """A DATA_ROOT of stand-ins."""
    root = tmp_path_factory.mktemp("data")
    sentences = toy.generate_passages(120, 0)
    for name, sizes in SIZES.items():
        (root / "models" / name).mkdir(parents=True)
        conftest.stand_in(root / "models" / name, sentences, *sizes, HIDDEN, POSITIONS)
    for name in ("wikipedia", "books"):
        (root / name).mkdir()
        (root / name / "train-00.txt").write_text(
            "".join(
                "title\n" + passage.replace(" . ", " .\n") + "\n\n"
                for passage in sentences[name == "books" :: 2]
            )
        )
    images(root / "mnist")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            toy, "ROWS", {task: SPECIAL.get(task, ROWS) for task in toy.TASKS}
        )
        tasks(root, patch)
    return root


class Here:
    """An executor (as lib.cluster.executors.Local) that does each job at once."""

    def __init__(self, *_):
        self.slots, self.ended = 1, set()

    def submit(self, function, *args, resources=None):
        future = Future()
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)
        self.ended.add(future)
        return future

    def wait_for_any_finished_call(self, max_seconds=None):
        done, self.ended = self.ended, set()
        return done

    def iterate_completed_calls(self, function, jobs):
        return ((job, self.submit(function, *job)) for job in jobs)

    def close(self):
        pass


def perform(page):
    """As lib.report.builder.execute_notebook_with_papermill, in a shell of this
    process."""
    os.environ[notebook.BATCH] = json.dumps(
        [str(page.folder), list(page.changes_to_notebook)]
    )
    body = nbformat.reads(page.notebook_text, 4)
    shell = InteractiveShell.instance()  # the one that `display` shows in
    shell.reset()
    for cell in body.cells:
        if cell.cell_type != "code":
            continue
        source = cell.source
        if "parameters" in cell.metadata.get("tags", []):
            source += "\n" + "\n".join(
                f"{name} = {value!r}" for name, value in page.parameter_values.items()
            )
        with capture_output() as shown:
            result = shell.run_cell(source)
        cell.outputs = [
            nbformat.v4.new_output("display_data", data=each.data)
            for each in shown.outputs
        ]
        if error := result.error_before_exec or result.error_in_exec:
            said = f"{type(error).__name__}: {error} in cell: {cell.source[:200]}"
            raise RuntimeError(f"{said}\n{shown.stdout[-2000:]}")
    nbformat.write(body, page.folder / f"{notebook.make_notebook_id(page.path)}.ipynb")


@pytest.fixture
def cut(monkeypatch, stand_ins, tmp_path, paper):
    """The profile `paper` on the stand-ins, with what costs time cut."""
    monkeypatch.setenv("DATA_ROOT", str(stand_ins))
    monkeypatch.setenv("RUNS_ROOT", str(tmp_path / "runs"))
    monkeypatch.setenv("RECORDS_ROOT", str(tmp_path / "records"))
    monkeypatch.setenv(notebook.BATCH, "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setitem(
        sys.modules, "__main__", sys.modules["__main__"]
    )  # a shell puts its own there
    monkeypatch.setattr(paths, "models_root", lambda: stand_ins / "models")
    monkeypatch.setattr(paths, "FIGURES", tmp_path / "figures")
    forget()
    for module in (executors, backends):
        monkeypatch.setattr(module, "Local", Here)
    monkeypatch.setattr(builder, "execute_notebook_with_papermill", perform)
    # Stand-ins learn nothing in so few steps. What is asked is whether pages compare
    # and draw them.
    monkeypatch.setattr(
        compare,
        "measure_score_and_chance_level",
        lambda run, column: compare.ScoreAndChance(100.0, 0.0, False),
    )
    monkeypatch.setattr(notebook, "list_specs_of_grid_variables", fewer)
    monkeypatch.setattr(
        site.Report,
        "write_page_index",
        partialmethod(last, site.Report.write_page_index),
    )
    for step in (learn, warming, pretrain, predict):
        monkeypatch.setattr(step, "Train", partial(short, EPOCHS[paper]))
    monkeypatch.setattr(latency, "latency", partial(quick, latency.latency))
    monkeypatch.setattr(maps, "maps", partial(few, maps.maps))
    for row in lists.read_csv_in_published_folder(
        f"{paper}/claims"
    ):  # What is printed is held to the uncut profile.
        if row["check"]:
            checks.evaluate_formula_on_printed_tables(paper, row["check"])
    monkeypatch.setitem(
        grids.UNSEEN, "mini", {}
    )  # the small profile's runs are only looked for
    CUTS[paper](
        lambda table, value: monkeypatch.setitem(table, "paper", value), monkeypatch
    )
    yield
    InteractiveShell.clear_instance()
    forget()


def forget():
    conftest.forget()
    efficientbert_search.sample_stage_1_candidates.cache_clear()
    judging.list_grid_rows_of_notebooks.cache_clear()


def fewer(*grids):
    """As lib.claims.notebook.list_specs_of_grid_variables: fewer rows of each
    notebook."""
    return list(dict.fromkeys(spec for found in grids for spec in some(found)))


def some(grids):
    """The Specs of each kind of row (all its labels but task, file and seed) once, and
    of two rows of each task."""
    kept, kinds, tasks = {}, set(), Counter()
    for row in grids.get("grid", []):
        labels = {name: str(value) for name, value in row.items() if name != "spec"}
        place = [row["spec"].step, *(labels.pop(name, "") for name in ("task", "file"))]
        kind = place[0], frozenset(labels.items() - {("seed", labels.get("seed"))})
        if kind not in kinds or tasks[*place] < 2:
            kept[row["spec"]] = kinds.add(kind)
            tasks[*place] += 1
    return list(kept)


def last(book, publish):
    """As lib.report.site.Report.write_page_index, which writes every card every two
    seconds: at the end."""
    if not book.working:
        publish(book)


def short(most, /, **train):
    """The Train of a step, of at most so many epochs, of rows of TOKENS."""
    train = Train(**train)
    return replace(
        train,
        epochs=min(train.epochs, most or train.epochs),
        eval_every=0,
        max_length=TOKENS,
        pad_to=TOKENS,
    )


def quick(step, run, batch=1, length=128, runs=100, **more):
    """As step latency, of as few turns as an interval needs, of one short row."""
    return step(run, batch=1, length=8, runs=20, **more)


def few(step, run, examples, **more):
    """As step maps, of no more rows than there are."""
    return step(run, examples=min(examples, ROWS["dev"]), **more)


# ---- what costs time alone, by paper: seeds, budgets, tasks of tables that change one
# thing
def cut_ghostbert(at_paper, patch):
    patch.setattr(grids, "TRIES", dict.fromkeys(grids.TRIES, 1))
    at_paper(ghostbert.ONE_LENGTH, TOKENS)
    at_paper(ghostbert.TASKS, THREE)
    at_paper(ghostbert.SWEPT, ("CoLA", "STS-B"))
    for seeds in (ghostbert.SEEDS, ghostbert.SWEPT_SEEDS):
        at_paper(seeds, (0,))


def cut_nas(at_paper, patch):
    patch.setattr(grids, "TRIES", dict.fromkeys(grids.TRIES, 1))
    for names in (nas.TASKS, nas.RANDOM, nas.PAIR, nas.TRIO):
        at_paper(names, ("CoLA", "STS-B"))
    at_paper(nas.TEST, THREE)
    for seeds in (nas.SEEDS, nas.HEADLINES, nas.REPEATS):
        at_paper(seeds, (0,))
    at_paper(nas.ROUNDS, (0.5, 0.4, 0.3, 0.1))
    at_paper(
        nas.IMAGES, digits.make_digits_descriptor(paths.data_root() / "mnist", "files")
    )


def cut_bermo(at_paper, patch):
    for seeds in (bermo.SEEDS, bermo.PROBED):
        at_paper(seeds, (63,))
    at_paper(bermo.TEN, (9, 25))
    at_paper(grids.SPAN, SPAN)
    rows = {name: SPECIAL.get(name, ROWS)["train"] for name in bermo.EXAMPLES["paper"]}
    at_paper(bermo.EXAMPLES, rows)
    at_paper(
        bermo.WARMUPS,
        {task: (1, *rest) for task, (_, *rest) in bermo.WARMUPS["paper"].items()},
    )


def cut_efficientbert(at_paper, patch):
    for names in (efficientbert.TASKS, efficientbert.PAIRED, efficientbert.MULTITASK):
        at_paper(names, THREE)
    for seeds in (efficientbert.SEEDS, efficientbert.HEADLINES):
        at_paper(seeds, (0,))
    at_paper(efficientbert.SIZES, {"540": 36, "360": HIDDEN, "768": HIDDEN})
    at_paper(efficientbert.LAYERS, 2)
    at_paper(efficientbert.SPAN, SPAN)
    family, heads, layers, neurons = SIZES["bert-base-uncased"]
    small = Shape(
        family,
        layers,
        HIDDEN,
        heads,
        neurons,
        len(grammar.list_vocabulary()),
        POSITIONS,
        2,
        HIDDEN,
    )
    whole = efficientbert.find_encoder_shape
    patch.setattr(
        efficientbert,
        "find_encoder_shape",
        lambda name, *kind: small if name == "paper" else whole(name, *kind),
    )
    patch.delitem(efficientbert.LIMITS, "paper")
    at_paper(efficientbert.WINDOW, efficientbert.WINDOW["toy"])
    patch.setattr(efficientbert, "TENTH", dict.fromkeys(efficientbert.TENTH, 4))
    at_paper(efficientbert.BRIEF, 20)
    at_paper(efficientbert_search.PART, (12, 4))
    at_paper(efficientbert_search.HELD_OUT, 4)
    at_paper(
        efficientbert_search.BUDGET,
        {"stage1": 4, "stage2": 4, "stage3": 6, "single": 4},
    )
    at_paper(efficientbert_search.LEARN, (2, 1))
    at_paper(efficientbert_search.CANDIDATES, 3)  # the fewest that its figure draws


CUTS = {
    "ghostbert": cut_ghostbert,
    "nas_pruning": cut_nas,
    "bermo": cut_bermo,
    "efficientbert": cut_efficientbert,
}


EMPTY = ("Not measured yet", "no run yet")  # what pages say of artefacts without runs


def empty(value):
    return pd.isna(value) or str(value).strip(" –-") in ("", "nan", "None")


def check(page):
    """What is wrong with a page, as lines."""
    folder, page_name = paths.FIGURES / "paper", notebook.make_notebook_id(page)
    body = notebook.read_notebook_page_json(folder, page_name)
    html = folder / f"{page_name}.html"
    if body is None or not html.exists():
        return [f"{page_name}: not made"]
    text = html.read_text()
    wrong = [
        f"{page_name}: {name} is {how}"
        for name, how in body["runs"].items()
        if how not in ("made here", "recorded", "missing")
    ]
    tables = {
        name: pd.read_csv(folder / name)
        for name in body["files"]
        if name.endswith(".csv")
    }
    wrong += [
        f"{page_name}: {name} shows nothing"
        for name, table in tables.items()
        if table.map(empty).all(axis=None)
    ]
    measured = [
        column
        for table in tables.values()
        for name, column in table.items()
        if "this run, paper" in name
    ]
    if measured and all(column.map(empty).all() for column in measured):
        wrong.append(f"{page_name}: nothing measured in {len(measured)} columns")
    wrong += [f"{page_name}: {mark}" for mark in EMPTY if mark in text]
    made = [name for name in body["files"] if name.endswith((".csv", ".svg"))]
    made = [name for name in made if not name.endswith(".figure.csv")]
    shown = text.count("<figure")
    if not made or shown < len(made):
        wrong.append(
            f"{page_name}: {shown} figures and tables shown of {len(made)} made"
        )
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("paper", CUTS)
def test_the_profile_paper_walks_from_data_to_pages(paper, cut, capsys):
    # Methods train toys, and front pages and what matters in a search show records:
    # here are none.
    without = ("_00_method", "_01_summary", "_s70_what_matters")
    names = map(notebook.make_notebook_id, notebook.find_notebooks([f"{paper}/"]))
    pages = [name for name in names if not name.endswith(without)]
    began, busy = time.monotonic(), time.process_time()
    failed = command.main(["run", *pages, "--profile", "paper"])
    with capsys.disabled():
        seconds = time.monotonic() - began, time.process_time() - busy
        print(
            f"\n{paper}: {len(pages)} pages in {seconds[0]:.0f} s, {seconds[1]:.0f} s of a core"
        )
    said = capsys.readouterr().out
    wrong = [line for page in notebook.find_notebooks(pages) for line in check(page)]
    assert not failed and not wrong, "\n".join([*wrong, said[-8000:]])
