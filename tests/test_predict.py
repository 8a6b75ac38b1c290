"""Predicting hidden rows and the GLUE submission; what quoted architectures cost."""

import zipfile
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import finetuned, put, small_backbone

from lib import data
from lib.data import read, unlabelled
from lib.measure import cost, metrics
from lib.page import artefact, notebook
from lib.papers import ghostbert, published, submissions
from lib.runs import paths
from lib.runs.spec import Spec, plain
from lib.steps import count
from lib.train.options import Ghost, Numerics, Train

NUMERICS = Numerics("float32", 1)
TRAIN = Train(epochs=1, batch=16, lr=1e-3, max_length=32, dropout=0.1)
QUOTED = paths.PUBLISHED / "ghostbert" / "quoted.toml"
GHOST = Ghost("dwconv", ("o", "ffn2"), 3, softmax=True, relu=True, mask=True)


def described(task):
    return data.describe("toy", task, 64)


START = small_backbone(TRAIN, layers=2)
PLAIN, NLI = (finetuned(described(task), TRAIN, {"start": START}) for task in ("CoLA", "MNLI"))
GHOSTS = Spec("operate", {"surgery": [{"op": "ghost"} | plain(GHOST)]}, {"teacher": PLAIN})
TUNED = finetuned(described("CoLA"), TRAIN, {"start": GHOSTS})


def rows(task, split="dev"):
    return unlabelled.describe("toy", task, split)


@pytest.fixture
def real(tmp_path, monkeypatch):
    """f(text of CoLA's test.tsv): a data root with that file alone."""
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))

    def write(text):
        put(tmp_path, "glue/CoLA/test.tsv", text)
        data.splits.cache_clear()

    yield write
    data.splits.cache_clear()


# ---- predictions ----
@pytest.mark.parametrize("model", [PLAIN, TUNED], ids=["whole", "ghosts"])
def test_it_predicts_as_the_run_itself_did(model, make):
    run, first = make(submissions.prediction(model, rows("CoLA"))), make(model)
    found, before = run.arrays("test"), first.arrays("predictions")
    assert found.keys() == before.keys()
    assert all(np.array_equal(found[name], before[name]) for name in found)
    told = {"test_rows": 4000, "scored": True}
    assert run.metrics == told | {"matthews": first.metrics["matthews"]}


def test_the_model_of_mnli_predicts_ax_and_the_mismatched_rows(make):
    labels = data.splits("toy", "AX")["test"].y
    run = make(submissions.prediction(NLI, rows("AX", "test")))
    found = run.arrays("test")
    assert found["logits"].shape == (500, 3) and np.array_equal(found["labels"], labels)
    assert run.metrics["matthews"] == metrics.matthews(found["logits"], labels)
    second = make(submissions.prediction(NLI, rows("MNLI", "dev_mm"))).arrays("test")["logits"]
    assert np.array_equal(second, make(NLI).arrays("predictions_dev_mm")["logits"])


def test_rows_without_labels_have_logits_alone(make, real):
    texts = data.splits("toy", "CoLA")["dev"].a[:5]
    real("index\tsentence\n" + "".join(f"{i}\t{text}\n" for i, text in enumerate(texts)))
    run = make(submissions.prediction(PLAIN, unlabelled.describe("glue", "CoLA", "test")))
    found = run.arrays("test")
    assert run.metrics == {"test_rows": 5, "scored": False} and found.keys() == {"logits", "index"}
    assert np.allclose(found["logits"], make(PLAIN).arrays("predictions")["logits"][:5], atol=1e-5)
    assert found["index"].tolist() == [0, 1, 2, 3, 4]


def test_hidden_rows_are_known_by_their_texts(real):
    real("index\tsentence\n0\tthe dog slept\n1\tthe cat slept\n")
    first = unlabelled.describe("glue", "CoLA", "test")
    assert unlabelled.load(first).a == ["the dog slept", "the cat slept"]
    assert not unlabelled.labelled(unlabelled.load(first))
    real("index\tsentence\n0\tthe dog slept\n1\tthe cow slept\n")
    told = f"glue/CoLA/test has digest .*; this run is of {first['digest']}: put the same data"
    with pytest.raises(ValueError, match=told):
        unlabelled.load(first)
    told = "glue/CoLA has no split 'test_mm', only test: add its file"
    with pytest.raises(FileNotFoundError, match=told):
        unlabelled.describe("glue", "CoLA", "test_mm")
    with pytest.raises(FileNotFoundError, match="has no split 'train', only test"):
        data.unseen_rows("glue", "CoLA", 1, 1)


def test_a_regression_without_a_score_is_not_labelled():
    split = data.splits("toy", "STS-B")["dev"]
    hidden = replace(split, y=np.full_like(split.y, np.nan))
    assert unlabelled.labelled(split) and not unlabelled.labelled(hidden)
    assert unlabelled.digest(split) == unlabelled.digest(hidden)


# ---- the submission ----
def archived(path):
    """{file: its lines, less the first one} of an archive."""
    with zipfile.ZipFile(path) as archive:
        found = {name: archive.read(name).decode().splitlines() for name in archive.namelist()}
    assert {lines[0] for lines in found.values()} == {"index\tprediction"}
    return {name.removesuffix(".tsv"): lines[1:] for name, lines in found.items()}


def test_the_archive_of_a_twin_has_the_server_s_format(make, tmp_path):
    logits = {
        "CoLA": make(submissions.prediction(PLAIN, rows("CoLA"))).arrays("test")["logits"],
        "AX": make(submissions.prediction(NLI, rows("AX", "test"))).arrays("test")["logits"],
    }
    submissions.archive(logits, path := tmp_path / "page.zip", "toy")
    lines = archived(path)
    said = {file: found.argmax(1) for file, found in logits.items()}
    names = read.TASKS["AX"].labels
    assert list(lines) == ["CoLA", "WNLI", "AX"]
    assert lines["CoLA"] == [f"{i}\t{c}" for i, c in enumerate(said["CoLA"])]
    assert lines["AX"] == [f"{i}\t{names[c]}" for i, c in enumerate(said["AX"])]


def test_a_whole_archive(tmp_path):
    """Of official files it has as many rows as the server's."""
    logits = {}
    for name, total in submissions.TEST_ROWS.items():
        classes = read.TASKS[submissions.TASK_OF[name]].outputs
        logits[name] = np.eye(classes)[np.arange(total) % classes]
    logits["STS-B"] = np.linspace(-1, 6, 1379)[:, None]
    about = submissions.archive(logits, path := tmp_path / "page.zip", "glue")
    lines = archived(path)
    assert list(lines) == list(submissions.TEST_ROWS) and about == "complete"
    for names, first in (
        ("RTE QNLI", ["0\tentailment", "1\tnot_entailment"]),
        ("MNLI-m MNLI-mm AX", ["0\tentailment", "1\tneutral"]),
        ("CoLA SST-2 MRPC QQP WNLI", ["0\t0", "1\t1"]),
        ("STS-B", ["0\t0.000", "1\t0.000"]),
    ):
        assert all(lines[name][:2] == first for name in names.split())
    assert lines["STS-B"][-1] == "1378\t5.000" and lines["STS-B"][689] == "689\t2.500"


@pytest.mark.parametrize("broken", [np.zeros((145, 2)), np.full((146, 2), np.nan)])
def test_refused_submissions(broken, tmp_path):
    with pytest.raises(ValueError, match="WNLI: 14. predictions; expected 146, all finite"):
        submissions.archive({"WNLI": broken}, tmp_path / "out/page.zip", "glue")
    assert not (tmp_path / "out").exists()


def predicted(kind="prediction", **values):
    found = notebook.planned(paths.NOTEBOOKS / "ghostbert_t02_glue_test.ipynb", values)["grid"]
    return [row for row in found if row["kind"] == kind]


def test_the_grid_of_table_2():
    lines = ["BERT-base", "GhostBERT (m = 3/12)", "GhostBERT (m = 1/12)"]
    found = predicted(tasks=["CoLA", "MNLI"], models=lines, seeds=[0, 1])
    assert len(found) == 4 * 3 * 2 and list(dict.fromkeys(row["file"] for row in found)) == [
        "CoLA",
        "MNLI-m",
        "MNLI-mm",
        "AX",
    ]
    told = {row["file"]: row["spec"].args["data"] for row in found}
    assert {file: (t["task"], t["split"]) for file, t in told.items()} == {
        "CoLA": ("CoLA", "dev"),
        "MNLI-m": ("MNLI", "dev"),
        "MNLI-mm": ("MNLI", "dev_mm"),
        "AX": ("AX", "test"),
    }
    module = ghostbert.ghost("toy")
    models = {
        "BERT-base": ghostbert.teacher("toy", "MNLI"),
        "GhostBERT (m = 3/12)": ghostbert.student("toy", "MNLI", 3, module),
        "GhostBERT (m = 1/12)": ghostbert.student("toy", "MNLI", 1, module),
    }
    specs = {(row["file"], row["model"], row["seed"]): row["spec"] for row in found}
    for name, model in models.items():
        spec = specs["AX", name, 1]
        assert spec.inputs["model"] == model and spec.seed == 1
        assert "numerics" in spec.args and spec.args["train"] == model.args["train"]


def test_table_2_has_every_row_that_a_profile_has():
    printed = published.table("ghostbert", "table2")["Model"].str.replace(
        r" \(.*\d{4}\)", "", regex=True
    )
    own = [name for name in printed if name not in paths.toml(QUOTED)["models"]]
    assert len(own) == 3 + 11 and set(ghostbert.lines_of_table_2("paper")) == set(own)
    kind = {name for name in own if name.removeprefix("Ghost").startswith("BERT")}
    assert set(ghostbert.lines_of_table_2("mini")) == kind
    assert kind > set(ghostbert.lines_of_table_2("toy"))
    lines = ghostbert.lines_of_table_2("paper").values()
    assert {heads for family, _, heads in lines if family == "electra"} == {4}
    with pytest.raises(
        ValueError,
        match="unknown row of Table 2 in profile 'mini': 'GhostBERT .m = 3/14.'; did you mean",
    ):
        ghostbert.lines_of_table_2("mini", ["GhostBERT (m = 3/14)"])


def test_an_archive_has_wnli_without_a_model_and_says_what_lacks(tmp_path):
    """The more frequent class of its official training rows."""
    about = submissions.archive({"CoLA": np.zeros((1063, 2))}, path := tmp_path / "a.zip", "glue")
    lines = archived(path)
    assert list(lines) == ["CoLA", "WNLI"] and "AX as well" in about and "WNLI" not in about
    assert {line.split("\t")[1] for line in lines["WNLI"]} == {"0"} and len(lines["WNLI"]) == 146
    try:
        counts = np.bincount(data.splits("glue", "WNLI")["train"].y)
    except FileNotFoundError:
        pytest.skip("no rows of WNLI under DATA_ROOT")
    assert counts.argmax() == 0


def test_test_rows_that_are_not_at_hand_are_left_out(real):
    assert predicted(profile="paper", tasks=["QNLI"], models=["GhostBERT (m = 3/12)"]) == []
    real("index\tsentence\n0\tthe dog slept\n")
    assert submissions.file_rows("paper", "CoLA")["split"] == "test"


def test_official_test_files_have_the_server_s_rows():
    there = [file for file in submissions.TEST_ROWS if submissions.file_rows("mini", file)]
    if not there:
        pytest.skip("no test.tsv of GLUE under DATA_ROOT")
    for file in there:
        split = unlabelled.load(submissions.file_rows("mini", file))
        assert len(split) == submissions.TEST_ROWS[file]


def test_a_page_lists_files_that_others_wrote(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(paths, "FIGURES", tmp_path)
    page = artefact.Page("some_page", {"profile": "toy"}, tmp_path)
    submissions.archive({"AX": np.eye(3)}, path := page.folder / "some_page.m3.zip", "toy")
    monkeypatch.setattr(submissions, "archives", lambda *_: [(path, "two rows")])
    page.archives(SimpleNamespace(to_dict=lambda _: []))
    page.finish()
    assert notebook.provenance(page.folder, "some_page")["files"] == ["some_page.m3.zip"]


# ---- what quoted architectures cost ----
@pytest.fixture(scope="module")
def counted():
    rows = predicted("cost", models=["BERT-base"])
    return {row["model"]: count.count(None, **row["spec"].args) for row in rows}


GOLDEN = {  # parameters, FLOPs
    "TinyBERT6": (66_956_546, 11_174_808_576),
    "TinyBERT4": (14_350_874, 1_247_477_088),
    "ConvBERT-medium": (17_624_498, 3_598_419_456),
    "ConvBERT-small": (13_210_074, 2_442_134_528),
    "MobileBERT w/o OPT": (24_582_914, 5_385_488_384),
    "MobileBERT": (24_582_914, 5_385_488_384),
    "MobileBERT-tiny": (15_486_722, 3_070_232_576),
}


def test_the_counts(counted):
    found = {name: (each["parameters"], each["flops"]) for name, each in counted.items()}
    assert found == GOLDEN


@pytest.mark.parametrize("name", ["TinyBERT6", "TinyBERT4"])
def test_the_counts_of_berts_are_those_of_the_formulas(name, counted):
    shape = cost.SHAPES[name.lower().replace("bert", "bert-")]
    assert counted[name]["parameters"] == cost.parameters(shape)
    assert counted[name]["flops"] == cost.flops(shape, 128)
    assert counted[name]["parameters"] - counted[name]["encoder_parameters"] == 2 * shape.hidden + 2


@pytest.mark.parametrize(
    "name, width, networks", [("MobileBERT", 512, 4), ("MobileBERT-tiny", 128, 2)]
)
def test_mobilebert_by_hand(name, width, networks, counted):
    """Each layer goes from 512 to 128 and back; queries and keys of the full one have a bottleneck
    of their own, and its values read all 512.
    """
    t, h, b = 128, 512, 128
    necks = h * b * (2 if width == h else 1) + b * h
    layer = necks + 3 * b * b + width * b + networks * 2 * b * h
    products = 24 * (layer + 2 * t * b) + 3 * b * h
    assert counted[name]["flops"] == 2 * t * products + 2 * h * 2


def test_which_quoted_figures_are_met(counted):
    table = published.table("ghostbert", "table2")
    printed = table.assign(Model=table["Model"].str.split(r" \(", regex=True).str[0]).set_index(
        "Model"
    )
    met = {
        name: (
            cost.shown(found["flops"], "GFLOPs") == str(printed["FLOPs(G)"][name]),
            cost.shown(found["parameters"], "M params") == str(printed["#params(M)"][name]),
        )
        for name, found in counted.items()
    }
    assert met == {
        "TinyBERT6": (False, True),  # 11.3 takes the convention with a head on every token
        "TinyBERT4": (True, False),
        "ConvBERT-medium": (False, False),
        "ConvBERT-small": (False, False),
        "MobileBERT w/o OPT": (False, True),
        "MobileBERT": (False, True),
        "MobileBERT-tiny": (True, True),
    }
    medium, small = counted["ConvBERT-medium"], counted["ConvBERT-small"]
    told = " ".join(paths.toml(QUOTED)["notes"].values())
    head = 128 * (2 * 512**2 + 11 * 512)
    for value in (
        medium["flops"],
        small["flops"],
        counted["MobileBERT"]["flops"],
        counted["MobileBERT"]["flops"] + head,
    ):
        assert f"{value / 1e9:.3f} G" in told
    for value in (medium["encoder_parameters"], small["encoder_parameters"], small["parameters"]):
        assert f"{value / 1e6:.3f} M" in told


def test_a_misspelt_size_is_refused():
    told = "unknown size of convbert: 'num_group'; did you mean 'num_groups'"
    with pytest.raises(ValueError, match=told):
        count.count(None, {"model_type": "convbert", "num_group": 2}, 128, 2)
