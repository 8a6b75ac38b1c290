"""GLUE's files with all their quirks, each malformed row, the hub by a stand-in, and the server's format."""

import csv
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lib import data
from lib.data import glue

NAMES = ("train", "dev", "test")


def put(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rows(split):
    return list(zip(split.a, split.b or [None] * len(split), split.y.tolist(), strict=True))


def test_tasks():
    assert list(glue.TASKS) == [
        "CoLA",
        "SST-2",
        "MRPC",
        "QQP",
        "STS-B",
        "MNLI",
        "QNLI",
        "RTE",
        "WNLI",
        "AX",
    ]
    assert glue.TASKS["STS-B"].labels == () and glue.TASKS["STS-B"].metrics == (
        "spearman",
        "pearson",
    )
    assert glue.TASKS["MRPC"].metrics[0] == glue.TASKS["QQP"].metrics[0] == "accuracy"
    assert glue.TASKS["WNLI"].labels == glue.TASKS["RTE"].labels[::-1]
    assert set(glue.TASK_OF.values()) == set(glue.TASKS) and glue.TASK_OF["MNLI-mm"] == "MNLI"


def test_neither_torch_nor_the_hub_is_imported():
    code = (
        "import sys, lib.data.glue, lib.measure.metrics\n"
        "sys.exit(', '.join({'torch', 'transformers', 'datasets'} & set(sys.modules)) or 0)"
    )
    root = Path(__file__).resolve().parents[1]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


# What official files look like


def test_cola_has_a_header_in_test_alone(tmp_path):
    put(tmp_path, "CoLA/train.tsv", 'gj04\t1\t\tHe said "go.\nbc01\t0\t*\tWho did you that?\n')
    put(tmp_path, "CoLA/test.tsv", "index\tsentence\n0\tBill whistled.\n1\tsentence\n")
    splits = glue.load("CoLA", tmp_path)
    assert list(splits) == ["train", "test"]
    assert rows(splits["train"]) == [('He said "go.', None, 1), ("Who did you that?", None, 0)]
    assert rows(splits["test"]) == [("Bill whistled.", None, -1), ("sentence", None, -1)]
    assert splits["train"].y.dtype == np.int64 and splits["test"].index.tolist() == [0, 1]


def test_cola_of_ones_own_may_have_a_header(tmp_path):
    put(tmp_path, "CoLA/dev.tsv", "sentence\tlabel\nBill whistled.\tacceptable\n")
    assert rows(glue.load("CoLA", tmp_path)["dev"]) == [("Bill whistled.", None, 1)]


def test_sst2_ends_in_blanks_and_line_ends_vary(tmp_path):
    put(tmp_path, "SST-2/train.tsv", "sentence\tlabel\r\nfine \t1\r\n it 's bad \tnegative\r\n\r\n")
    put(tmp_path, "SST-2/dev.tsv", "\ufeffsentence\tlabel\na\x0cb\u2028c\x85d\t0")
    splits = glue.load("SST-2", tmp_path)
    assert rows(splits["train"]) == [("fine", None, 1), ("it 's bad", None, 0)]
    assert rows(splits["dev"]) == [("a\x0cb\u2028c\x85d", None, 0)]


MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"


def test_mrpc_of_the_original_corpus(tmp_path):
    corpus = MRPC + '1\t10\t11\t"Yes\tyes.\n0\t20\t21\tNo.\tMaybe "so".\n1\t30\t31\tOne\tone\n'
    put(tmp_path, "MRPC/msr_paraphrase_train.txt", corpus)
    put(tmp_path, "MRPC/msr_paraphrase_test.txt", MRPC + "1\t40\t41\tTwo\ttwo\n")
    with pytest.raises(FileNotFoundError, match="dev_ids.tsv is missing.*fix"):
        glue.load("MRPC", tmp_path)
    put(tmp_path, "MRPC/dev_ids.tsv", "20\t21\n")
    splits = glue.load("MRPC", tmp_path)
    assert rows(splits["train"]) == [('"Yes', "yes.", 1), ("One", "one", 1)]
    assert rows(splits["dev"]) == [("No.", 'Maybe "so".', 0)]
    assert rows(splits["test"]) == [("Two", "two", 1)]
    put(tmp_path, "MRPC/train.tsv", MRPC + "0\t1\t2\tThree\tfour\n")
    put(
        tmp_path, "MRPC/test.tsv", "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\tFive\tsix\n"
    )
    splits = glue.load("MRPC", tmp_path)
    assert rows(splits["train"]) == [("Three", "four", 0)] and len(splits["dev"]) == 1
    assert rows(splits["test"]) == [("Five", "six", -1)]


def test_damaged_mrpc_corpus(tmp_path):
    put(tmp_path, "MRPC/msr_paraphrase_train.txt", "Quality\t#1 String\t#2 String\n1\ta\tb\n")
    ids = put(tmp_path, "MRPC/dev_ids.tsv", "20\t21\n")
    with pytest.raises(ValueError, match="train.txt:1: .*#1 ID"):
        glue.load("MRPC", tmp_path)
    put(tmp_path, "MRPC/msr_paraphrase_train.txt", MRPC + "1\t20\t21\ta\tb\n1\t22\t23\ta\tb\n")
    ids.write_text("20\t21\n22\n")
    with pytest.raises(ValueError, match="dev_ids.tsv:2: 1 field"):
        glue.load("MRPC", tmp_path)


def test_stsb_scores(tmp_path):
    scored = "index\tsentence1\tsentence2\tscore\n0\ta\tb\t3.800\n1\tc\td\t5\n"
    put(tmp_path, "STS-B/train.tsv", scored + "2\te\tf\t0\n3\tg\th\t2.11111111111111\n")
    put(tmp_path, "STS-B/test.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n")
    splits = glue.load("STS-B", tmp_path)
    assert splits["train"].y.dtype == np.float32
    np.testing.assert_array_equal(
        splits["train"].y, np.array([3.8, 5, 0, 2.11111111111111], np.float32)
    )
    assert np.isnan(splits["test"].y).all() and splits["test"].y.dtype == np.float32


def test_mnli_has_four_evaluation_sets(tmp_path):
    for name in ("dev_matched", "dev_mismatched", "test_matched", "test_mismatched"):
        label = "\tneutral\tgold_label" if name.startswith("dev") else ""
        header = "index\tgenre\tsentence1\tsentence2" + label.replace("neutral", "label1")
        row = f"0\tfiction\t{name}\tn/a" + label.replace("gold_label", "2")
        put(tmp_path, f"MNLI/{name}.tsv", f"{header}\n{row}\n")
    splits = glue.load("MNLI", tmp_path)
    assert {name: rows(split) for name, split in splits.items()} == {
        "dev": [("dev_matched", "n/a", 2)],
        "dev_mm": [("dev_mismatched", "n/a", 2)],
        "test": [("test_matched", "n/a", -1)],
        "test_mm": [("test_mismatched", "n/a", -1)],
    }


@pytest.mark.parametrize(
    ("task", "name", "code"),
    [
        ("RTE", "entailment", 0),
        ("RTE", "not_entailment", 1),
        ("WNLI", "0", 0),
        ("WNLI", "entailment", 1),
        ("RTE", "1", 1),
    ],
)
def test_labels_are_names_or_digits_and_columns_go_by_name(tmp_path, task, name, code):
    put(tmp_path, f"{task}/dev.tsv", f"label\tsentence2\tmine\tsentence1\n{name}\tB\tx\tA\n")
    assert rows(glue.load(task, tmp_path)["dev"]) == [("A", "B", code)]


def test_qqp_is_torn_by_line_breaks_and_has_empty_questions(tmp_path):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    text = (
        header + '1\t2\t3\tWas\n"\tWho was he?\t0\n4\t5\t6\tHow?\t\t0\n7\t8\t9\tWhy?\tWhy so?\t1\n'
    )
    put(tmp_path, "QQP/train.tsv", text)
    split = glue.load("QQP", tmp_path)["train"]
    assert rows(split) == [("How?", "", 0), ("Why?", "Why so?", 1)] and split.index.tolist() == [
        0,
        1,
    ]
    put(tmp_path, "QQP/train.tsv", header + "1\t2\t3\ta\tb\t1\n" * 3 + "a\tb\t1\n" * 200)
    with pytest.raises(ValueError, match=r"train.tsv:105: 3 field"):
        glue.load("QQP", tmp_path)


@pytest.mark.parametrize("place", ["diagnostic/diagnostic.tsv", "AX/diagnostic.tsv", "AX/test.tsv"])
def test_diagnostics(tmp_path, place):
    path = put(tmp_path, place, "index\tsentence1\tsentence2\n0\tA cat.\tNo cat.")
    assert glue.files("AX", tmp_path) == {"test": path}
    assert rows(glue.load("AX", tmp_path)["test"]) == [("A cat.", "No cat.", -1)]


def test_stand_ins_are_told_and_give_way_to_official_files(tmp_path):
    text = "index\tsentence1\tsentence2\tgold_label\n0\ta\tb\tneutral\n"
    put(tmp_path, "MNLI/dev_matched.reconstructed.tsv", text)
    put(tmp_path, "MNLI/dev_mismatched.sample1000.tsv", text)
    put(tmp_path, "MNLI/train.backup.tsv", text)
    found = glue.files("MNLI", tmp_path)
    assert {split: glue.stand_in(path) for split, path in found.items()} == {
        "dev": "reconstructed",
        "dev_mm": "sample1000",
    }
    official = put(tmp_path, "MNLI/dev_matched.tsv", text)
    assert glue.files("MNLI", tmp_path)["dev"] == official and glue.stand_in(official) == ""


# What is not there or malformed


def test_missing_folder_file_and_task(tmp_path):
    with pytest.raises(
        FileNotFoundError, match="RTE is no folder; expected train.tsv, dev.tsv, test.tsv"
    ):
        glue.load("RTE", tmp_path)
    (tmp_path / "RTE").mkdir()
    with pytest.raises(
        FileNotFoundError, match=r"RTE holds no split; .*; fix: .*fetch\('RTE', root\)"
    ):
        glue.files("RTE", tmp_path)
    for call in (glue.files, glue.load, glue.fetch):
        with pytest.raises(ValueError, match="'CoLa'.*did you mean 'CoLA'.*SST-2"):
            call("CoLa", tmp_path)


PAIR = "index\tsentence1\tsentence2\tlabel\n"
SCORED = PAIR.replace("label", "score")


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        (
            "RTE",
            PAIR + "0\ta\tb\tentailment\n1\ta\tb\n",
            r":3: 3 field\(s\) in '1\\ta\\tb'; expected 4 .*; fix: ",
        ),
        ("RTE", PAIR + "0\ta\tb\tc\tentailment\n", r":2: 5 field\(s\).*expected 4.*tabs inside"),
        (
            "RTE",
            PAIR + "0\ta\tb\tentails\n",
            ":2: label 'entails'; expected 0 or entailment, 1 or not_entailment; fix: ",
        ),
        ("RTE", PAIR + "0\ta\tb\t2\n", ":2: label '2'; expected 0 or"),
        ("RTE", PAIR + "0\ta\tb\t-1\n", ":2: label '-1'"),
        ("RTE", PAIR + "0\ta\tb\t\n", ":2: label ''"),
        ("RTE", PAIR + "0\ta\t \t1\n", ":2: an empty sentence in column 3; expected text; fix: "),
        ("RTE", PAIR + "0\t\tb\t1\n", ":2: an empty sentence in column 2"),
        ("RTE", PAIR + "0\ta\tb\t1\n\n2\ta\tb\t1\n", r":3: 1 field\(s\)"),
        ("RTE", PAIR, ":1: no rows"),
        ("RTE", "", ":1: no rows; expected index, sentence1, sentence2, label"),
        (
            "RTE",
            "0\ta\tb\t1\n",
            ":1: .*without sentence1, sentence2, label; expected index, .*; fix: add a header",
        ),
        ("RTE", "index\tsentence1\tsentence2\n0\ta\tb\n", ":1: .*without label"),
        ("SST-2", "fine \t1\n", ":1: .*without sentence, label"),
        (
            "CoLA",
            "gj04\t1\t\tA.\ngj04\t1\tB.\n",
            r":2: 3 field\(s\).*expected 4 .*\(source, label, mark, sentence\)",
        ),
        ("CoLA", "gj04\t2\t\tA.\n", ":1: label '2'; expected 0 or unacceptable, 1 or acceptable"),
        ("CoLA", "gj04\t1\t\t\n", ":1: an empty sentence in column 4"),
        ("STS-B", SCORED + "0\ta\tb\t5.001\n", ":2: label '5.001'; expected a score from 0 to 5"),
        ("STS-B", SCORED + "0\ta\tb\t-0.2\n", ":2: label '-0.2'"),
        ("STS-B", SCORED + "0\ta\tb\tnan\n", ":2: label 'nan'"),
        ("QQP", "question1\tquestion2\tis_duplicate\n\t\t1\n", ":2: an empty sentence"),
        (
            "WNLI",
            PAIR.encode() + b"0\ta\tb\t1\n1\tcaf\xe9\tb\t1\n",
            ":3: byte 0xe9 is not UTF-8; .*fix: .*iconv",
        ),
        ("WNLI", b"\xff\xfei\0n\0", ":1: byte 0xff is not UTF-8"),
        ("WNLI", b"\xef\xbb\xbf" + PAIR.encode() + b"\xff", ":2: byte 0xff is not UTF-8"),
    ],
)
def test_malformed_rows(tmp_path, task, text, message):
    path = put(tmp_path, f"{task}/train.tsv", text)
    with pytest.raises(ValueError, match=re.escape(str(path)) + message) as error:
        glue.load(task, tmp_path)
    assert "\n" not in str(error.value)


def test_a_test_row_may_lack_its_label_but_not_have_a_wrong_one(tmp_path):
    put(tmp_path, "RTE/test.tsv", PAIR + "0\ta\tb\t-1\n1\ta\tb\t\n2\ta\tb\t1\n")
    assert glue.load("RTE", tmp_path)["test"].y.tolist() == [-1, -1, 1]
    put(tmp_path, "RTE/test.tsv", PAIR + "0\ta\tb\t7\n")
    with pytest.raises(ValueError, match="test.tsv:2: label '7'"):
        glue.load("RTE", tmp_path)


WORDS = [
    "0",
    "1",
    "2",
    "-1",
    "5.0",
    "nan",
    "entailment",
    "sentence",
    "sentence1",
    "question1",
    "label",
    "",
]
cells = st.one_of(st.text(alphabet="ab \"'\x0c\u2028\u00e9", max_size=6), st.sampled_from(WORDS))
lines = st.lists(st.lists(cells, max_size=6).map("\t".join), max_size=6)


@pytest.mark.parametrize("task", [name for name in glue.TASKS if name != "AX"])
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    lines=lines,
    header=st.booleans(),
    split=st.sampled_from(NAMES),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    noise=st.one_of(st.just(b""), st.binary(max_size=4)),
    at=st.integers(0, 200),
)
@example(lines=[], header=False, split="train", end="\n", noise=b"\x80", at=0)
def test_any_file_parses_or_names_file_and_line(
    tmp_path, task, lines, header, split, end, noise, at
):
    stems = glue._STEMS[task]
    layout = glue._LAYOUT[task]
    if header:
        lines = [(layout.test if split == "test" else layout.train).replace(",", "\t"), *lines]
    data = end.join(lines).encode()
    path = put(tmp_path, f"{task}/{stems[split][0]}.tsv", data[:at] + noise + data[at:])
    try:
        found = glue.load(task, tmp_path)[split]
    except ValueError as error:
        line = re.match(re.escape(str(path)) + r":(\d+): .*; expected .*; fix: .", str(error))
        assert line and 1 <= int(line[1]) <= len(lines) + 4  # noise may hold line ends too
    else:
        assert len(found) == len(found.y) == len(found.index) > 0
        assert (found.b is not None) == glue.TASKS[task].pair
    path.unlink()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(st.text(alphabet="ab \"'\\\u00e9").map("x".__add__), st.integers(0, 1)),
        min_size=1,
        max_size=8,
    )
)
def test_rows_are_those_of_the_csv_module(tmp_path, pairs):
    path = put(
        tmp_path, "SST-2/dev.tsv", "sentence\tlabel\n" + "".join(f"{a}\t{y}\n" for a, y in pairs)
    )
    with path.open(encoding="utf-8") as file:
        reference = [
            (row["sentence"].strip(), None, int(row["label"]))
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        ]
    assert rows(glue.load("SST-2", tmp_path)["dev"]) == reference


# The hub, by a stand-in of the same types


def hub(task, splits):
    """A datasets.DatasetDict as the hub gives it: {hub split: [(a, b, label)]}."""
    datasets = pytest.importorskip("datasets")
    layout, names = glue._LAYOUT[task], glue.TASKS[task].labels
    a, b = (role.split("/")[-1] for role in (layout.a, layout.b))
    label = datasets.ClassLabel(names=list(names)) if names else datasets.Value("float32")
    text = {name: datasets.Value("string") for name in (a, b) if name}
    features = datasets.Features(text | {"label": label, "idx": datasets.Value("int32")})

    def table(rows):
        columns = {
            name: [row[i] for row in rows] for i, name in ((0, a), (1, b), (2, "label")) if name
        }
        return datasets.Dataset.from_dict(columns | {"idx": range(len(rows))}, features=features)

    return datasets.DatasetDict({name: table(rows) for name, rows in splits.items()})


def hub_splits(task, rows):
    """Every hub split of a task, the test ones without labels."""
    wanted = {
        "MNLI": [
            "train",
            *(
                f"{which}_{kind}"
                for which in ("validation", "test")
                for kind in ("matched", "mismatched")
            ),
        ],
        "AX": ["test"],
    }.get(task, ["train", "validation", "test"])
    return {name: [(a, b, -1) for a, b, _ in rows] if "test" in name else rows for name in wanted}


@pytest.mark.parametrize("task", glue.TASKS)
def test_fetch_then_load_gives_the_same_rows(tmp_path, task):
    values = [0, 1, 1] if glue.TASKS[task].labels else [3.799999952316284, 0.0, 2.1111111640930176]
    a, b = ["it 's \"fine", "caf\u00e9", "one"], ["so.", "two\u2028three", "1"]
    given = list(zip(a, b, values, strict=True))
    asked = []

    def loader(*call):
        asked.append(call)
        return hub(task, hub_splits(task, given))

    folder = glue.fetch(task, tmp_path / "glue", loader)
    assert asked == [("nyu-mll/glue", glue._LAYOUT[task].hub)]
    assert sorted(os.listdir(tmp_path / "glue")) == [folder.name]  # no scratch is left
    splits = glue.load(task, tmp_path / "glue")
    assert set(splits) == set(glue._STEMS[task])
    for name, split in splits.items():
        assert split.a == a and split.b == (b if glue.TASKS[task].pair else None)
        if name.startswith("test"):
            assert (split.y == -1).all() if glue.TASKS[task].labels else np.isnan(split.y).all()
        else:
            np.testing.assert_array_equal(split.y, np.array(values, split.y.dtype))
    with pytest.raises(FileExistsError, match="already holds .*move it away"):
        glue.fetch(task, tmp_path / "glue", loader)


def test_fetched_files_have_the_official_columns(tmp_path):
    for task in ("CoLA", "MRPC", "RTE"):
        glue.fetch(
            task, tmp_path, lambda _, __, task=task: hub(task, hub_splits(task, [("a\tb", "c", 1)]))
        )
    assert (tmp_path / "CoLA/train.tsv").read_bytes() == b"\t1\t\ta b\n"
    assert (tmp_path / "CoLA/test.tsv").read_bytes() == b"index\tsentence\n0\ta b\n"
    assert (tmp_path / "MRPC/dev.tsv").read_text() == MRPC[1:] + "1\t\t\ta b\tc\n"
    assert (tmp_path / "RTE/dev.tsv").read_text() == PAIR + "0\ta b\tc\tnot_entailment\n"


def test_fetch_keeps_labels_of_a_labelled_test_set_and_files_beside(tmp_path):
    note = put(tmp_path, "MRPC/README", "mine")
    splits = hub_splits("MRPC", [("a", "b", 1)]) | {"test": [("c", "d", 0)]}
    glue.fetch("MRPC", tmp_path, lambda *_: hub("MRPC", splits))
    assert (
        rows(glue.load("MRPC", tmp_path)["test"]) == [("c", "d", 0)] and note.read_text() == "mine"
    )


def test_fetch_without_a_network_or_with_other_classes(tmp_path):
    def broken(*_):
        raise OSError("could not reach the hub\nmany more lines")

    line = (
        r"^RTE cannot be had from the hub \(could not reach the hub\); fix: .*"
        r"train.tsv, dev.tsv, test.tsv into .*RTE by hand$"
    )
    with pytest.raises(ConnectionError, match=line):
        glue.fetch("RTE", tmp_path / "new", broken)
    assert not (tmp_path / "new").exists()
    swapped = hub("WNLI", hub_splits("WNLI", [("a", "b", 1)]))
    with pytest.raises(ValueError, match="hub's classes of RTE are not_entailment, entailment"):
        glue.fetch("RTE", tmp_path, lambda *_: swapped)
    with pytest.raises(ValueError, match="has no split test"):
        glue.fetch("AX", tmp_path, lambda *_: hub("AX", {"train": [("a", "b", 1)]}))
    assert list(tmp_path.iterdir()) == []


def test_digest_is_of_texts_and_labels_in_order(tmp_path):
    put(tmp_path, "RTE/train.tsv", PAIR + "0\ta\tb\t0\n1\tc\td\t1\n")
    put(tmp_path, "RTE/test.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n")
    first = data.digest(glue.load("RTE", tmp_path))
    assert re.fullmatch("[0-9a-f]{16}", first)
    other = "\ufeffsentence2\tsentence1\tlabel\r\nb \ta\tentailment\r\nd\tc\tnot_entailment"
    put(tmp_path, "RTE/train.tsv", other)
    (tmp_path / "RTE/test.tsv").unlink()
    assert data.digest(glue.load("RTE", tmp_path)) == first
    for changed in (
        "0\ta\tb\t0\n1\tc\td\t0\n",
        "0\ta\tb\t0\n1\tc\tD\t1\n",
        "1\tc\td\t1\n0\ta\tb\t0\n",
    ):
        put(tmp_path, "RTE/train.tsv", PAIR + changed)
        assert data.digest(glue.load("RTE", tmp_path)) != first


# The server's format


def predictions():
    return {
        name: np.arange(n) % max(glue.TASKS[glue.TASK_OF[name]].outputs, 2)
        for name, n in glue.TEST_ROWS.items()
    }


def test_submission(tmp_path):
    guesses = predictions()
    guesses["STS-B"] = np.linspace(-1, 6, 1379)
    guesses["RTE"] = np.tile([[0.2, 0.1], [-3, 4]], (1500, 1))  # logits
    packed = glue.write_submission(guesses, tmp_path / "out")
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == sorted([f"{name}.tsv" for name in glue.TEST_ROWS] + ["submission.zip"])
    with zipfile.ZipFile(packed) as archive:
        assert sorted(archive.namelist()) == sorted(files[:-1])
        assert archive.read("RTE.tsv") == (tmp_path / "out/RTE.tsv").read_bytes()
    first = {
        name: (tmp_path / f"out/{name}.tsv").read_text().split("\n")[:3] for name in glue.TEST_ROWS
    }
    assert {tuple(lines[:1]) for lines in first.values()} == {("index\tprediction",)}
    assert first["RTE"][1:] == first["QNLI"][1:] == ["0\tentailment", "1\tnot_entailment"]
    assert (
        first["MNLI-m"][1:]
        == first["MNLI-mm"][1:]
        == first["AX"][1:]
        == ["0\tentailment", "1\tneutral"]
    )
    for name in ("CoLA", "SST-2", "MRPC", "QQP", "WNLI"):
        assert first[name][1:] == ["0\t0", "1\t1"]
    scores = (tmp_path / "out/STS-B.tsv").read_text().splitlines()
    assert scores[1] == "0\t0.000" and scores[-1] == "1378\t5.000" and scores[690] == "689\t2.500"
    assert len((tmp_path / "out/QQP.tsv").read_text().splitlines()) == 390966
    before = packed.read_bytes()
    assert glue.write_submission(guesses, tmp_path / "out").read_bytes() == before


def test_partial_submission(tmp_path):
    some = {"CoLA": np.zeros(1063), "AX": np.full(1104, 2)}
    with pytest.raises(
        ValueError, match="lacks SST-2, MRPC, QQP, STS-B, MNLI-m, MNLI-mm, QNLI, RTE, WNLI;"
    ):
        glue.write_submission(some, tmp_path)
    packed = glue.write_submission(some, tmp_path, partial=True)
    assert zipfile.ZipFile(packed).namelist() == ["CoLA.tsv", "AX.tsv"]
    assert (tmp_path / "AX.tsv").read_text().startswith("index\tprediction\n0\tcontradiction\n")


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("MNLI", np.zeros(9796), "'MNLI'.*did you mean 'MNLI-m"),
        ("WNLI", np.zeros(145), r"WNLI: predictions of shape \[145\]; expected 146 rows"),
        ("WNLI", np.zeros((146, 3)), r"WNLI: predictions of shape \[146, 3\]"),
        ("WNLI", np.full(146, 2), "WNLI: row 0 predicts 2; allowed: codes 0 to 1"),
        ("WNLI", np.full(146, 0.5), "WNLI: row 0 predicts 0.5"),
        (
            "WNLI",
            np.where(np.arange(146) > 143, np.nan, 0),
            "WNLI: 2 of 146 rows .*, the first is row 144",
        ),
        (None, None, "lacks CoLA"),
    ],
)
def test_refused_submissions(tmp_path, name, values, message):
    with pytest.raises(ValueError, match=message):
        glue.write_submission({name: values} if name else {}, tmp_path / "out", partial=True)
    assert not (tmp_path / "out").exists()


# The real files, where they are at hand

ROOT = (
    Path(os.environ.get("DATA_ROOT", Path(__file__).resolve().parents[2] / "shared" / "data"))
    / "glue"
)
COUNTS = {
    "CoLA": (8551, 1043, 1063),
    "SST-2": (67349, 872, 1821),
    "MRPC": (3668, 408, 1725),
    "STS-B": (5749, 1500, 1379),
    "RTE": (2490, 277, 3000),
    "WNLI": (635, 71, 146),
    "QNLI": (104743, 5463, 5463),
    "QQP": (363846, 40430, 390965),
    "AX": (0, 0, 1104),
}


@pytest.fixture
def real():
    if not ROOT.is_dir():
        pytest.skip(f"no GLUE folder at {ROOT}: set DATA_ROOT to the folder above one")
    return ROOT


@pytest.mark.parametrize("task", glue.TASKS)
def test_real_row_counts(real, task):
    try:
        found = glue.files(task, real)
    except FileNotFoundError:
        pytest.skip(f"{task} is not at hand")
    splits = glue.load(task, real)
    assert list(splits) == list(found)
    for name, split in splits.items():
        labelled = split.y >= 0
        assert all(split.a) and len(split) == len(split.y)
        assert (
            labelled.all() if not name.startswith("test") else labelled.all() or not labelled.any()
        )
        if not glue.stand_in(found[name]) and task in COUNTS:
            assert len(split) == COUNTS[task][NAMES.index(name)]


def test_real_class_counts(real):
    """Known from the literature: a swapped or shifted label column would show here."""

    def counts(task, split):
        return np.bincount(glue.load(task, real)[split].y).tolist()

    try:
        assert counts("CoLA", "dev") == [322, 721] and counts("SST-2", "dev") == [428, 444]
        assert counts("MRPC", "train") == [1194, 2474] and counts("RTE", "dev") == [146, 131]
        assert counts("MNLI", "dev") == [3479, 3123, 3213]
    except FileNotFoundError as missing:
        pytest.skip(str(missing))


def test_real_mrpc_is_the_original_corpus(real, tmp_path):
    names = ("msr_paraphrase_train.txt", "dev_ids.tsv", "train.tsv", "dev.tsv")
    if not all((real / "MRPC" / name).is_file() for name in names):
        pytest.skip("MRPC is not at hand in both forms")
    for name in names[:2]:
        put(tmp_path, f"MRPC/{name}", (real / "MRPC" / name).read_bytes())
    assert data.digest(glue.load("MRPC", tmp_path)) == data.digest(glue.load("MRPC", real))


@pytest.mark.parametrize("task", ["CoLA", "STS-B", "RTE"])
def test_real_rows_survive_the_hub(real, tmp_path, task):
    try:
        splits = glue.load(task, real)
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    names = {"train": "train", "dev": "validation", "test": "test"}
    given = {
        names[name]: [(a, b, -1 if y != y else y) for a, b, y in rows(split)]
        for name, split in splits.items()
    }
    if len(given) < 3:
        pytest.skip(f"{task} is not complete")
    glue.fetch(task, tmp_path, lambda *_: hub(task, given))
    again = glue.load(task, tmp_path)
    assert data.digest(again) == data.digest(splits) and again["test"].a == splits["test"].a
