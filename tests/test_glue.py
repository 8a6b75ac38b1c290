"""GLUE's files with all their quirks, and the hub by a stand-in."""

import os

import datasets
import numpy as np
import pytest
from conftest import put

from lib import data
from lib.data import read as reader

PAIR = "index\tsentence1\tsentence2\tlabel\n"


def rows(split):
    return list(
        zip(split.a, split.b or [None] * len(split), split.y.tolist(), strict=True)
    )


def read(root, task, split="train"):
    return rows(reader.load(task, root)[split])


def test_tasks():
    names = "CoLA SST-2 MRPC QQP STS-B MNLI QNLI RTE WNLI"
    assert list(reader.GLUE) == names.split() and reader.GLUE["STS-B"].labels == ()
    assert reader.GLUE["WNLI"].labels == reader.GLUE["RTE"].labels[::-1]


def test_cola_has_no_header(tmp_path):
    put(
        tmp_path,
        "CoLA/train.tsv",
        'gj04\t1\t\tHe said "go.\nbc01\t0\t*\tWho did you that?\n',
    )
    put(
        tmp_path, "CoLA/dev.tsv", "sentence\tlabel\nBill whistled.\tacceptable\n"
    )  # one's own
    splits = reader.load("CoLA", tmp_path)
    assert list(splits) == ["train", "dev"]
    assert rows(splits["train"]) == [
        ('He said "go.', None, 1),
        ("Who did you that?", None, 0),
    ]
    assert rows(splits["dev"]) == [("Bill whistled.", None, 1)]
    assert splits["train"].y.dtype == np.int64 and splits["train"].index.tolist() == [
        0,
        1,
    ]


def test_blanks_around_a_sentence_are_dropped_and_separators_are_text(tmp_path):
    put(
        tmp_path,
        "SST-2/train.tsv",
        "sentence\tlabel\nfine \t1\n it 's bad \tnegative\n\n",
    )
    put(tmp_path, "SST-2/dev.tsv", "sentence\tlabel\na\x0cb\u2028c\x85d\t0")
    assert read(tmp_path, "SST-2") == [("fine", None, 1), ("it 's bad", None, 0)]
    assert read(tmp_path, "SST-2", "dev") == [("a\x0cb\u2028c\x85d", None, 0)]


MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"


def test_mrpc_goes_by_its_official_columns(tmp_path):
    put(tmp_path, "MRPC/train.tsv", MRPC + "0\t1\t2\tThree\tfour\n")
    assert read(tmp_path, "MRPC") == [("Three", "four", 0)]
    put(tmp_path, "MRPC/msr_paraphrase_test.txt", MRPC + '1\t40\t41\t"Two\ttwo\n')
    assert rows(reader.load_official_test_rows("MRPC", tmp_path)) == [
        ('"Two', "two", 1)
    ]
    (tmp_path / "MRPC/msr_paraphrase_test.txt").unlink()
    with pytest.raises(FileNotFoundError, match="msr_paraphrase_test.txt"):
        reader.load_official_test_rows("MRPC", tmp_path)


def test_stsb_scores(tmp_path):
    scored = PAIR.replace("label", "score") + "0\ta\tb\t3.800\n1\tc\td\t5\n"
    put(tmp_path, "STS-B/train.tsv", scored + "2\te\tf\t0\n3\tg\th\t2.11111111111111\n")
    train = reader.load("STS-B", tmp_path)["train"]
    assert train.y.tolist() == np.float32([3.8, 5, 0, 2.11111111111111]).tolist()
    assert train.y.dtype == np.float32


def test_mnli_has_two_evaluation_sets(tmp_path):
    for name in ("dev_matched", "dev_mismatched"):
        row = f"0\tfiction\t{name}\tn/a\tneutral\t2\n"
        text = f"index\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n{row}"
        put(tmp_path, f"MNLI/{name}.tsv", text)
    assert {
        name: rows(split) for name, split in reader.load("MNLI", tmp_path).items()
    } == {
        "dev": [("dev_matched", "n/a", 2)],
        "dev_mm": [("dev_mismatched", "n/a", 2)],
    }


@pytest.mark.parametrize("task, codes", [("RTE", [0, 1, 0, 1]), ("WNLI", [1, 0, 0, 1])])
def test_labels_are_names_or_digits_and_columns_go_by_name(tmp_path, task, codes):
    lines = [
        f"{cell}\tB\tx\tA\n" for cell in ("entailment", "not_entailment", "0", "1")
    ]
    put(
        tmp_path,
        f"{task}/dev.tsv",
        "label\tsentence2\tmine\tsentence1\n" + "".join(lines),
    )
    assert read(tmp_path, task, "dev") == [("A", "B", code) for code in codes]


def test_qqp_is_torn_by_line_breaks_and_has_empty_questions(tmp_path):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    torn = '1\t2\t3\tWas\n"\tWho was he?\t0\n4\t5\t6\tHow?\t\t0\n7\t8\t9\tWhy?\tWhy so?\t1\n'
    put(tmp_path, "QQP/train.tsv", header + torn)
    split = reader.load("QQP", tmp_path)["train"]
    assert rows(split) == [("How?", "", 0), ("Why?", "Why so?", 1)]
    assert split.index.tolist() == [0, 1]
    put(
        tmp_path, "QQP/train.tsv", header + "1\t2\t3\ta\tb\t1\n" * 3 + "a\tb\t1\n" * 200
    )
    with pytest.raises(ValueError, match=r"train.tsv:105: 3 field"):
        reader.load("QQP", tmp_path)


def test_stand_ins_give_way_to_official_files(tmp_path):
    text = "index\tsentence1\tsentence2\tgold_label\n0\ta\tb\tneutral\n"
    dev = put(tmp_path, "MNLI/dev_matched.reconstructed.tsv", text)
    other = put(tmp_path, "MNLI/dev_mismatched.sample1000.tsv", text)
    assert reader.find_files_by_split("MNLI", tmp_path) == {
        "dev": [dev],
        "dev_mm": [other],
    }
    put(tmp_path, "MNLI/dev_matched.sample2.tsv", text)  # several are one after another
    assert reader.load("MNLI", tmp_path)["dev"].index.tolist() == [0, 1]
    official = put(tmp_path, "MNLI/dev_matched.tsv", text)
    assert reader.find_files_by_split("MNLI", tmp_path)["dev"] == [official]


def test_missing_rows_name_the_command_that_fetches_them(tmp_path):
    line = (
        r"RTE has no rows of RTE; expected train.tsv, dev.tsv; fix: .*fetch glue/RTE,"
    )
    with pytest.raises(FileNotFoundError, match=line):
        reader.load("RTE", tmp_path)
    with pytest.raises(
        FileNotFoundError, match="expected tree_depth.txt; fix: put them there by"
    ):
        reader.load("Depth", tmp_path)


COLUMNS = {
    "CoLA": ("sentence", ""),
    "SST-2": ("sentence", ""),
    "QQP": ("question1", "question2"),
    "MNLI": ("premise", "hypothesis"),
    "QNLI": ("question", "sentence"),
}
BOTH = (
    "validation_matched",
    "validation_mismatched",
    "test_matched",
    "test_mismatched",
)
HUB_SPLITS = {"MNLI": ["train", *BOTH]}


def hub(task, splits):
    """A datasets.DatasetDict as the hub gives it: {hub split: [(a, b, label)]}."""
    names = reader.GLUE[task].labels
    a, b = COLUMNS.get(task, ("sentence1", "sentence2"))
    label = (
        datasets.ClassLabel(names=list(names)) if names else datasets.Value("float32")
    )
    kinds = {name: datasets.Value("string") for name in (a, b) if name}
    kinds |= {"label": label, "idx": datasets.Value("int32")}

    def table(rows):
        columns = {
            name: [row[i] for row in rows]
            for i, name in enumerate((a, b, "label"))
            if name
        }
        columns["idx"] = range(len(rows))
        return datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))

    return datasets.DatasetDict({name: table(rows) for name, rows in splits.items()})


def hub_splits(task, rows):
    """Every hub split of a task, the test ones without labels."""
    hidden = [(a, b, -1) for a, b, _ in rows]
    wanted = HUB_SPLITS.get(task, ["train", "validation", "test"])
    return {name: hidden if "test" in name else rows for name in wanted}


@pytest.mark.parametrize("task", reader.GLUE)
def test_fetch_then_load_gives_the_same_rows(tmp_path, monkeypatch, task):
    values = (
        [0, 1, 1]
        if reader.GLUE[task].labels
        else [3.799999952316284, 0.0, 2.1111111640930176]
    )
    a, b = ["it 's \"fine", "caf\u00e9", "one"], ["so.", "two\u2028three", "1"]
    given, asked = list(zip(a, b, values, strict=True)), []

    def loader(*call):
        asked.append(call)
        return hub(task, hub_splits(task, given))

    monkeypatch.setattr(datasets, "load_dataset", loader)
    folder = reader.download_task_from_hub(task, tmp_path / "glue")
    assert asked == [("nyu-mll/glue", task.lower().replace("-", ""))]
    assert os.listdir(tmp_path / "glue") == [folder.name]  # no scratch is left
    splits = reader.load(task, tmp_path / "glue")
    assert list(splits) == ["train", "dev"] + ["dev_mm"] * (task == "MNLI")
    for split in splits.values():
        assert split.a == a and split.b == (b if reader.GLUE[task].pair else None)
        np.testing.assert_array_equal(split.y, np.array(values, split.y.dtype))


def test_fetched_files_are_rows_of_the_hub_with_names_for_codes(tmp_path, monkeypatch):
    note = put(tmp_path, "CoLA/README", "mine")
    found = hub("CoLA", hub_splits("CoLA", [("a\tb", "", 1)]))
    monkeypatch.setattr(datasets, "load_dataset", lambda *_: found)
    reader.download_task_from_hub("CoLA", tmp_path)
    line = '{"sentence": "a\\tb", "label": "acceptable", "idx": 0}\n'
    assert (
        tmp_path / "CoLA/train.jsonl"
    ).read_text() == line and note.read_text() == "mine"
    assert read(tmp_path, "CoLA") == [("a b", None, 1)]
    put(tmp_path, "CoLA/train.tsv", "gj04\t0\t\td\n")  # an official file goes first
    assert read(tmp_path, "CoLA") == [("d", None, 0)]


def test_fetch_without_a_network_or_a_split(tmp_path, monkeypatch):
    def broken(*_):
        raise OSError("could not reach the hub\nmany more lines")

    line = r"^nyu-mll/glue/rte cannot .* \(OSError\); fix: .*into a file by hand$"
    monkeypatch.setattr(datasets, "load_dataset", broken)
    with pytest.raises(ConnectionError, match=line):
        reader.download_task_from_hub("RTE", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr(
        datasets, "load_dataset", lambda *_: hub("RTE", {"test": [("a", "b", 1)]})
    )
    with pytest.raises(ValueError, match="RTE has no split train, but test"):
        reader.download_task_from_hub("RTE", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_digest_is_of_texts_and_labels_in_order(tmp_path):
    put(tmp_path, "RTE/train.tsv", PAIR + "0\ta\tb\t0\n1\tc\td\t1\n")
    first = data.digest_splits(reader.load("RTE", tmp_path))
    other = (
        "\ufeffsentence2\tsentence1\tlabel\r\nb \ta\tentailment\r\nd\tc\tnot_entailment"
    )
    labels = "0\ta\tb\t0\n1\tc\td\t0\n"
    texts, order = "0\ta\tb\t0\n1\tc\tD\t1\n", "1\tc\td\t1\n0\ta\tb\t0\n"
    for text, same in (
        (other, True),
        *((PAIR + each, False) for each in (labels, texts, order)),
    ):
        put(tmp_path, "RTE/train.tsv", text)
        assert (data.digest_splits(reader.load("RTE", tmp_path)) == first) == same
