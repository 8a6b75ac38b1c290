"""A reader's own data and model: what is read, how it is named, and that no paper needs
to know."""

import json
import os
import random
import re
import shutil
from argparse import ArgumentTypeError
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import datasets
import numpy as np
import pandas as pd
import pytest
import transformers
from conftest import made, made_up, put

from lib import __main__ as cli
from lib import data
from lib.__main__ import main
from lib.claims import notebook
from lib.cluster import sweep
from lib.core import disk, paths
from lib.core.names import Refused
from lib.core.spec import Spec
from lib.core.store import Store, format_error_of_failed_input
from lib.data import own as rows_of
from lib.export import opened
from lib.papers import frontier, grids, students
from lib.papers.bermo import recipes as bermo
from lib.papers.ghostbert import recipes as ghostbert
from lib.papers.nas_pruning import recipes as nas
from lib.report import artefact, site
from lib.stats import compare
from lib.stats.paired import Pair
from lib.train.steps.bag_of_words import truncate_texts

TITLES = ("ghostbert_t03_pruned_vs_ghost", "nas_t05_random_architectures")
WORDS = {"good": "fine great warm clever".split(), "bad": "dull poor cold slow".split()}
OTHER = "the film book plot actor end was with very rather".split()


def reviews(count=100, repeated=1):
    """[(text, label)] of which each text stands `repeated` times."""
    dice, found = random.Random(0), []
    for number in range(count // repeated):
        label = ("bad", "good")[number % 2]
        words = [*dice.choices(OTHER, k=6), *dice.choices(WORDS[label], k=2)]
        found += [(" ".join(words), label)] * repeated
    return found


def table(rows, head=("text", "label"), between="\t"):
    return "".join(between.join(map(str, row)) + "\n" for row in (head, *rows))


@pytest.fixture
def tsv(tmp_path):
    return str(put(tmp_path, "reviews.tsv", table(reviews())))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """f(heads=4, **sizes): the folder of a random BERT."""

    def make(heads=4, cls="Bert", **sizes):
        folder = tmp_path_factory.mktemp("encoder")
        words = [
            *(["[UNK]", "[PAD]"] if cls == "MPNet" else ["[PAD]", "[UNK]"]),
            "[CLS]",
            "[SEP]",
            "[MASK]",
            *OTHER,
            *sum(WORDS.values(), []),
            *"what number is good bad and".split(),
        ]
        vocabulary = put(folder, "vocab.txt", "\n".join(words) + "\n")
        told = dict(
            hidden_size=8 * heads, num_attention_heads=heads, num_hidden_layers=2
        )
        told |= dict(intermediate_size=16 * heads, max_position_embeddings=130)
        told |= {"vocab_size": len(words)} | sizes
        config = getattr(transformers, f"{cls}Config")(**told)
        getattr(transformers, f"{cls}Model")(config).save_pretrained(folder)
        transformers.BertTokenizerFast(str(vocabulary)).save_pretrained(folder)
        return str(folder)

    return make


def test_the_kinds_of_files_hold_the_same_rows(tmp_path, tsv):
    frame, kinds = pd.DataFrame(reviews(), columns=["text", "label"]), []
    for between in ",;\t|":
        kinds.append(
            put(tmp_path, f"{ord(between)}.csv", table(reviews(), between=between))
        )
    kinds += [
        tmp_path / f"a.{ending}"
        for ending in ("csv", "json", "jsonl", "parquet", "tsv")
    ]
    frame.to_csv(kinds[-5])  # with the index in a column without a name
    frame.to_json(kinds[-4], orient="records")
    frame.to_json(kinds[-3], orient="records", lines=True)
    frame.to_parquet(kinds[-2])
    frame.rename_axis("id").to_csv(kinds[-1], sep="\t")
    train = put(tmp_path, "both/train.tsv", table(reviews()))
    others = [(f"{text} again", label) for text, label in reviews(40)]
    put(tmp_path, "both/validation.csv", table(others, between=","))
    found = {
        str(p): rows_of.load(rows_of.infer_task(str(p)).name)
        for p in (tsv, *kinds, train)
    }
    assert len({data.digest_splits(splits) for splits in found.values()}) == 1
    task = data.find_task_by_name("own", rows_of.infer_task(tsv).name)
    assert (task.labels, task.pair, task.metrics[0]) == (
        ("bad", "good"),
        False,
        "accuracy",
    )
    folder = rows_of.load(rows_of.infer_task(str(tmp_path / "both")).name)
    assert [len(folder[split]) for split in ("train", "dev")] == [100, 40]


def test_a_split_is_drawn_once_and_repeated_texts_stay_together(tmp_path):
    path = put(tmp_path, "a.tsv", table(reviews(120, repeated=3)))
    splits = rows_of.load(rows_of.infer_task(str(path)).name)
    assert len(splits["dev"]) == 24 and not {*splits["dev"].a} & {*splits["train"].a}
    assert (
        rows_of.load(rows_of.infer_task(f"{path}: text, label").name)["dev"].a
        == splits["dev"].a
    )


@pytest.mark.parametrize(
    "labels, classes, first",
    [
        (["0", "1"], ("0", "1"), [0, 1]),
        (["10", "9", "1"], ("1", "9", "10"), [2, 1]),
        ([-1.5, 1, 3.5], (), [0.0, 2.5]),
        (list(range(28)), tuple(map(str, range(28))), [0, 1]),
        (list(range(0, 60, 2)), (), [0.0, pytest.approx(5 / 29)]),
    ],
)
def test_labels_are_classes_or_scores_from_0_to_5(tmp_path, labels, classes, first):
    lines = [(f"text {i}", f"more {i}", labels[i % len(labels)]) for i in range(90)]
    head, more = ("a", "b", "label"), [(f"{a}, too", b, y) for a, b, y in lines]
    put(tmp_path, "pairs/train.csv", table(lines, head, "|"))
    put(tmp_path, "pairs/dev.csv", table(more, head, "|"))
    name = rows_of.infer_task(str(tmp_path / "pairs")).name
    task, train = data.find_task_by_name("own", name), rows_of.load(name)["train"]
    assert task.labels == classes and task.pair and train.y[:2].tolist() == first
    if not classes:  # Users see the scale of their file.
        assert task.scale == (min(labels), max(labels))
    assert (train.a[1], train.b[1]) == ("text 1", "more 1")


def questions(count=60):
    """A file of SQuAD's shape with two questions about each passage."""
    articles = []
    for number in range(count // 2):
        passage = f"number {number} is good and {number} is bad"
        asked = [
            {
                "id": f"{number}{word}",
                "question": f"what is {word}?",
                "answers": answers,
            }
            for word, answers in (
                ("good", [{"text": f"number {number}", "answer_start": 0}]),
                ("odd", []),
            )
        ]
        articles.append(
            {"title": "", "paragraphs": [{"context": passage, "qas": asked}]}
        )
    return {"data": articles}


def test_questions_about_one_passage_cannot_be_divided(tmp_path):
    """Else the development rows would be all rows, and none would be left to train."""
    content, passage = questions(), "good and bad"
    for article in content["data"]:
        (paragraph,) = article["paragraphs"]
        paragraph["context"] = passage
        paragraph["qas"][0]["answers"] = [{"text": "good", "answer_start": 0}]
        for number, asked in enumerate(paragraph["qas"]):
            asked["question"] += f" {asked['id']} {number}"
    refused(
        put(tmp_path, "one.json", content),
        "60 rows that cannot be divided into training and development rows; expected "
        "texts on both sides; fix: add a file dev, or questions about other passages",
    )


def test_a_file_of_squad_s_shape_is_a_task_of_spans(tmp_path):
    name = rows_of.infer_task(str(put(tmp_path, "questions.json", questions()))).name
    task, splits = rows_of.infer_task(name), rows_of.load(name)
    assert task.span and task.metrics[0] == "span_f1" and len(splits["train"]) == 48
    assert not {*splits["train"].b} & {*splits["dev"].b}  # a passage is on one side
    assert splits["dev"].answers[:2] in (
        [["number 3"], []],
        [[splits["dev"].b[0][:8].strip()], []],
    )
    refused(
        put(tmp_path, "few.json", questions(20)),
        "20 different rows; expected at least 40",
    )


def test_test_rows_that_are_development_rows_are_told(tmp_path):
    """The development rows choose the model, so the test would be no test."""
    dev = [(f"{text} again", label) for text, label in reviews(40)]
    other = [(f"{text} anew", label) for text, label in reviews(40)]
    put(tmp_path, "a/train.tsv", table(reviews()))
    put(tmp_path, "a/dev.tsv", table(dev))
    put(tmp_path, "a/test.tsv", table([*dev[:10], *other]))
    reading = rows_of.read_user_data(str(tmp_path / "a"))
    assert "10 of 50 test rows are development rows too" in reading.cautions
    put(tmp_path, "a/test.tsv", table(dev))
    refused(tmp_path / "a", "every test row is a development row; .*; fix: take rows")


def test_half_a_character_is_told_with_its_row(tmp_path):
    """JSON has one where a text was cut inside an emoji; no tokenizer reads it."""
    rows = [{"text": text, "label": label} for text, label in reviews()]
    rows[3]["text"] += " \ud83d"
    path = put(tmp_path, "a.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    refused(path, r"a.jsonl, row 4.*half a character, .*ud83d.*; fix: mend or drop")


def test_named_columns_of_a_wrong_number_are_told(tmp_path):
    """The reader named columns, so the message speaks of these."""
    body = [
        {"a": text, "b": "x y", "c": n, "d": label}
        for n, (text, label) in enumerate(reviews())
    ]
    path = put(tmp_path, "a.jsonl", "".join(f"{json.dumps(row)}\n" for row in body))
    told = ".*; expected one or two texts and a label; fix: name them, the label last"
    refused(f"{path}: a, b, c, d", f"4 named columns{told}")
    refused(f"{path}: a", f"1 named column{told}")


def test_lists_in_a_column_are_refused_with_a_fix_for_the_column(tmp_path):
    body = [{"tokens": text.split(), "label": label} for text, label in reviews()]
    path = put(tmp_path, "a.jsonl", "".join(f"{json.dumps(row)}\n" for row in body))
    refused(f"{path}: tokens, label", r"a cell \[.*; fix: make one text of it, or drop")


def test_answers_at_an_unknown_place_are_refused(tmp_path):
    """-1 is also what a search for a text gives that is not there."""
    content = questions()
    for article in content["data"]:
        for answer in article["paragraphs"][0]["qas"][0]["answers"]:
            answer |= {"text": "elsewhere", "answer_start": -1}
    refused(put(tmp_path, "one.json", content), "30 of 60 train questions stand else")


def test_a_test_file_of_questions_without_answers_is_not_read(tmp_path):
    for name in ("train", "dev", "test"):
        content = questions()
        for number, article in enumerate(content["data"]):
            for asked in article["paragraphs"][0]["qas"]:
                asked["question"] += f" {name} {number}"
                asked["answers"] *= name != "test"
        put(tmp_path, f"{name}.json", content)
    task = rows_of.infer_task(str(tmp_path))
    assert {*rows_of.load(task.name)} == {"train", "dev"}
    line = "the test questions have no answers, so they are not read"
    assert line in rows_of.read_user_data(str(tmp_path)).lines


def test_questions_are_read_as_the_hub_has_them_too(tmp_path):
    official = rows_of.load(str(put(tmp_path, "questions.json", questions())))
    rows = [
        {
            "context": paragraph["context"],
            "question": asked["question"],
            "answers": {
                key: [answer[key] for answer in asked["answers"]]
                for key in ("text", "answer_start")
            },
        }
        for article in questions()["data"]
        for paragraph in article["paragraphs"]
        for asked in paragraph["qas"]
    ]
    dataset = datasets.Dataset.from_list(rows)
    dataset.to_parquet(str(tmp_path / "a.parquet"))
    datasets.DatasetDict(train=dataset).save_to_disk(tmp_path / "saved")
    put(tmp_path, "a.json", rows)
    put(tmp_path, "a.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    for name in ("a.parquet", "saved", "a.json", "a.jsonl"):
        read = rows_of.load(str(tmp_path / name))
        assert read.keys() == official.keys()
        for split, part in read.items():
            assert part.answers == official[split].answers
            assert (part.a, part.b) == (official[split].a, official[split].b)


@pytest.mark.parametrize(
    "name, content, choice, first",
    [
        ("a.TSV", table([(f'"{t}"', f'"{y}"') for t, y in reviews()]), "", "2 classes"),
        (
            "a.tsv",
            table([(t, i % 3) for i, (t, _) in enumerate(reviews())]),
            ": text, label: SCORES",
            "scores from 0 to 2",
        ),
        (
            "a.tsv",
            table([(t, "−1 0 1".split()[i % 3]) for i, (t, _) in enumerate(reviews())]),
            "",
            "3 classes: −1, 0, 1",
        ),
        (
            "a.tsv",
            table(
                [
                    (t, "1,000 2,500 4,000".split()[i % 3])
                    for i, (t, _) in enumerate(reviews())
                ]
            ),
            ": text, label: scores",
            "scores from 1 to 4",
        ),
        (
            "a.json",
            {str(i): {"text": t, "label": y} for i, (t, y) in enumerate(reviews())},
            "",
            "2 classes: bad, good",
        ),
    ],
)
def test_unusual_spellings_are_read(tmp_path, name, content, choice, first):
    read = rows_of.read_user_data(f"{put(tmp_path, name, content)}{choice}")
    assert f"label: label, {first}" in read.lines[0]


def test_a_data_set_of_the_hub_becomes_a_folder(monkeypatch, tmp_path):
    labels = datasets.ClassLabel(names=["zebra", "ant"])
    kinds = datasets.Features({"words": datasets.Value("string"), "kind": labels})
    rows = {
        "words": [f"text {i}" for i in range(60)],
        "kind": [i % 2 for i in range(60)],
    }
    hidden = {"words": ["a text", "another"], "kind": [-1, -1]}
    there = {"train": datasets.Dataset.from_dict(rows, features=kinds)}
    there["test"] = datasets.Dataset.from_dict(hidden, features=kinds)
    asked = []
    monkeypatch.setattr(paths, "DATA", tmp_path)
    monkeypatch.setattr(
        datasets, "load_dataset", lambda *name: asked.append(name) or there
    )
    name = rows_of.infer_task("hub:someone/animals/small: words, kind").name
    folder = tmp_path / "hub/someone/animals/small"
    assert (
        name
        == f"{folder}: words, kind: classes"
        == rows_of.infer_task(f"{folder}: words, kind").name
    )
    assert (
        asked == [("someone/animals", "small")]
        and rows_of.format_user_task_title(name) == "small/"
    )
    assert data.find_task_by_name("own", name).labels == ("ant", "zebra")
    assert {*rows_of.load(name)} == {"train", "dev"}  # the test rows have no labels
    monkeypatch.setattr(
        datasets, "load_dataset", lambda *name: {"test": there["train"]}
    )
    with pytest.raises(ValueError, match="someone/else has no split train, but test"):
        rows_of.infer_task("hub:someone/else")
    monkeypatch.setattr(datasets, "load_dataset", lambda *name: there)
    # The folder of the data set has a part that was fetched before.
    assert rows_of.infer_task("hub:someone/animals: words, kind").name.startswith(
        f"{tmp_path}/hub/someone/animals/default: "
    )

    def save_meanwhile(*name):
        datasets.DatasetDict(there).save_to_disk(tmp_path / "hub" / "/".join(name))
        return there

    monkeypatch.setattr(datasets, "load_dataset", save_meanwhile)
    assert rows_of.infer_task("hub:someone/busy: words, kind").labels == (
        "ant",
        "zebra",
    )
    monkeypatch.setattr(
        datasets, "load_dataset", lambda *name: {"test": there["train"]}
    )
    monkeypatch.chdir(tmp_path)  # It has a folder named hub.
    with pytest.raises(ValueError, match="someone/other has no split train"):
        rows_of.infer_task("hub:someone/other")


@pytest.mark.parametrize("number", [60, 0])
def test_training_rows_without_any_class_are_refused(number):
    labels = datasets.ClassLabel(names=["zebra", "ant"])
    kinds = datasets.Features({"words": datasets.Value("string"), "kind": labels})
    columns = {"words": ["a text"] * number, "kind": [-1] * number}
    rows = datasets.Dataset.from_dict(columns, features=kinds)
    told = f"the data set, train: none of {number} rows has a class; expected .*; fix:"
    with pytest.raises(Refused, match=told):
        rows_of.read_dataset(rows, "words, kind")


SCORES = [[f"text {i}", i / 8] for i in range(60)]
SAME = [[f"text {i}", "0.5" + "0" * (i % 2)] for i in range(60)]
KINDS = [(f"text {i}", f"{i}/1") for i in range(60)]
FOUR, THREE = [("a", "b", "c", "d")] * 50, [("a", "good", "more")] * 50
FINITE = r"scores.tsv:9: label '.*'; expected a finite number, as others are; fix: mend"


def scored(label, at=7):
    """SCORES with another label in a row."""
    return (
        "scores.tsv",
        table([*SCORES[:at], ["other", label], *SCORES[at + 1 :]]),
        FINITE,
    )


def test_rows_are_left_out_for_a_missing_label_and_for_no_other_class():
    names = datasets.ClassLabel(names=["x", "y"])
    text = datasets.Value("string")
    kinds = datasets.Features({"text": text, "label": names, "topic": names})
    rows = {
        "text": [f"text {i}" for i in range(60)],
        "label": [*(i % 2 for i in range(58)), -1, -1],
        "topic": [-1] * 50 + [0] * 10,
    }
    made = datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows, kinds)})
    found = rows_of.read_dataset(made, "text, label")
    assert sum(map(len, found.splits.values())) == 58
    assert "left out 2 of 60 train rows without a class" in found.lines


def test_texts_of_one_row_between_stray_quotes_stay_apart(tmp_path):
    rows = reviews(60)
    rows[11] = ('"' + rows[11][0], rows[11][1])
    rows[21] = (rows[21][0] + '"', rows[21][1])
    path = put(tmp_path, "a.tsv", table(rows))
    splits = rows_of.read_user_data(str(path)).splits
    assert sum(map(len, splits.values())) == 60


def test_a_blank_first_line_does_not_hide_the_separator(tmp_path):
    path = put(tmp_path, "a.csv", "\n" + table(reviews(), between=";"))
    assert rows_of.infer_task(str(path)).labels == ("bad", "good")


def test_one_class_among_development_rows_and_contradicting_labels_are_told(tmp_path):
    rows = [*((f"text {i}", "ham") for i in range(58)), ("a", "spam"), ("b", "spam")]
    read = rows_of.read_user_data(str(put(tmp_path, "a.tsv", table(rows))))
    told = "development rows are of the class ham: add rows of others"
    assert any(told in line for line in read.cautions)
    both = [(f"text {i}", label) for i in range(60) for label in ("good", "bad")]
    read = rows_of.read_user_data(str(put(tmp_path, "b.tsv", table(both))))
    assert any("60 labels contradict" in line for line in read.cautions)


def refused(path, error):
    with pytest.raises((ValueError, FileNotFoundError), match=error) as caught:
        rows_of.load(rows_of.infer_task(str(path)).name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "line, content, error",
    [
        (
            "a.xlsx",
            "x",
            "no data .*a.xlsx.*: name one of a .tsv, .csv, .json.* file, a folder",
        ),
        (
            "a.tsv: txt, label",
            table(reviews()),
            "unknown column .*'txt'; did you mean 'text'",
        ),
        ("a.tsv", table(FOUR, "wxyz"), "'w', 'x', 'y', 'z'; .*; fix: .*w, x, LABEL"),
        (
            "a.csv",
            "text,label,label\n" + "a,b,c\n" * 50,
            "'label', 'label'; .* each once; fix: rename one of the columns 'label'",
        ),
        (
            "a.csv",
            table([(f"w{i}", f"v{i}", i % 2) for i in range(50)], ('"x, y"', "z", "q")),
            r"""fix: .*--data '.*a.csv: ("x, y", z|z, "x, y"), q'$""",
        ),
        (
            "a.csv: a, label",
            table([("w", "x")] * 50, ('"a, b"', "label"), ","),
            r'unknown column .*\(allowed: "a, b", label\)',
        ),
        (
            "a.tsv: text, label: regression",
            table(reviews()),
            "a label of the kind 'regression'; expected classes or scores",
        ),
        ("a.csv", table([(t,) for t, _ in reviews()], ("text",)), "fix: add a column"),
        (
            "a.tsv",
            table(reviews(), between=","),
            "one column, .*; fix: name the file .csv",
        ),
        (
            "a.csv",
            table(
                [(t, "ann" if y == "good" else "bob") for t, y in reviews()],
                ("text", "author"),
                ",",
            ),
            "--data '.*a.csv: text, author'",
        ),
        (
            "a.csv",
            table(
                [(i, *row) for i, row in enumerate(reviews())][1:],
                (0, *reviews()[0]),
                ";",
            ),
            r"that is a row; .*; fix: .*printf 'id1;text1;label\\n'; cat .*a.csv\) > names.csv$",
        ),
        (
            "rows",
            {
                "train.csv": table(
                    [(f"w{i}", 7 * i % 3) for i in range(50)], ("w", 5), ","
                )
            },
            r"printf 'text1,label\\n'; cat .*train.csv\) > names.csv; mv names.csv .*train.csv$",
        ),
        (
            "my rows",
            {"a b.csv": table(reviews(), between=",")},
            "--data '.*my rows/a b.csv'",
        ),
        *(
            (
                "a.tsv",
                table([(t, labels[i % 4]) for i, (t, _) in enumerate(reviews())]),
                error,
            )
            for labels, error in (
                (
                    ("900", "1,000", "1,500", "-3,000"),
                    "label '1,000', .* expected 1000 for",
                ),
                (("900", "1.000", "2.500", "4.000.000"), "label '1.000', .*: scores"),
                (
                    ("950.5", "1,500", "2,300", "12.5"),
                    "label '1,500', .* expected 1500",
                ),
                (("7", "1, 4", "3", "2"), "several labels in one cell, '1, 4'"),
                (("10%", "0.5", "1%", "2%"), "label 0.5 beside 10%; expected one unit"),
            )
        ),
        (
            "a.tsv: text, label: scores",
            table([(t, ("10%", "0.5")[i % 2]) for i, (t, _) in enumerate(reviews())]),
            "label 0.5 beside 10%; expected one unit",
        ),
        (
            "a.tsv",
            table([*reviews(), *[("", "good")] * 6]),
            "a.tsv: 6 of 106 rows with an empty cell .*, such as a.tsv:102",
        ),
        (
            "a.tsv",
            table([(text, "one") for text, _ in reviews()]),
            "1 different labels, .*; fix: add rows with another label, or name",
        ),
        (
            "a.tsv",
            table([("a", "good"), ("b", "bad")] * 50),
            "2 different rows; expected at least",
        ),
        (
            "a.tsv",
            table(KINDS),
            "60 different labels, .*; expected 2 to 30 .*; fix: merge",
        ),
        ("a.tsv", table(SAME), "1 different labels"),
        (
            "a.tsv",
            table(reviews(20)),
            "20 different rows; expected at least 40; fix: add some",
        ),
        (
            "a.tsv",
            table(THREE),
            r"a.tsv:2: 3 field\(s\) .*; expected 2 as in the first line",
        ),
        (
            "a.csv",
            'text,label\n"a,b\n',
            "a.csv:2: unexpected end of data; .*; fix: double each quote",
        ),
        *map(scored, ("nan", "-inf", "1e400", "-1e308", "n/a")),
        (
            "a.tsv",
            table([*reviews(), ("a", "NaN")]),
            "a.tsv:102: label 'NaN'; expected the name",
        ),
        (
            "a.tsv",
            table(reviews(), ("a film", "good")),
            "a first line 'a film, good' that is a row; exp.*; fix: put",
        ),
        (
            "a.csv",
            table([("\xe9", "bad")]).encode("latin1"),
            "byte 0xe9 .*; expected UTF-8 text",
        ),
        (
            "a.json",
            [{"text": ["a", "b"], "label": 1}] * 50,
            r"row 1: a cell \['a', 'b'\]; expected",
        ),
        (
            "a.json",
            {"text": {"0": "a"}, "label": {"0": 1, "1": 2}},
            "expected a list of objects, one for each row",
        ),
        ("a.json", [1, 2], r"\[1, 2\]; expected a list of objects"),
        (
            "a.jsonl",
            '{"text": "a", "label": 1}\n{"te',
            "a.jsonl:2: .* expected JSON on each line",
        ),
        (
            "a.parquet",
            "text",
            "a.parquet: .*; expected a Parquet file; fix: correct the file",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(tmp_path, line, content, error):
    name = line.partition(":")[0]
    is_folder = "." not in name
    for file, part in content.items() if is_folder else ((name, content),):
        put(tmp_path, f"{name}/{file}" if is_folder else file, part)
    refused(f"{tmp_path}/{line}", error)


def test_absent_and_empty_files_and_lists_in_parquet_are_refused(tmp_path, tsv):
    refused(
        tmp_path / "a.tsv",
        "no data .*a.tsv.*: name one of a .tsv, .csv, .json.* file, a fol",
    )
    put(tmp_path, "both/train.tsv", table(reviews()))
    put(tmp_path, "both/dev.tsv", "text\tlabel\n")
    refused(tmp_path / "both", "dev.tsv:1: no rows")
    rows = {"text": [["a", "b"]] * 50, "label": [0, 1] * 25}
    pd.DataFrame(rows).to_parquet(tmp_path / "lists.parquet")
    refused(
        tmp_path / "lists.parquet",
        r"lists.parquet, row 1: a cell \['a', 'b'\]; expected text",
    )


def test_cells_such_as_na_are_text(tmp_path):
    rows = [("NA", "None"), ("null", "NA"), ("nan", "None"), *reviews()]
    name = rows_of.infer_task(
        str(put(tmp_path, "a.csv", table(rows, between=",")))
    ).name
    splits = rows_of.load(name)
    assert data.find_task_by_name("own", name).labels == ("NA", "None", "bad", "good")
    assert {"NA", "null", "nan"} <= {*splits["train"].a, *splits["dev"].a}


def test_runs_are_of_the_content_of_data_and_model_not_of_their_places(
    tmp_path, tsv, encoder
):
    folder = encoder()
    (tmp_path / "elsewhere").mkdir()
    rows = shutil.copy(tsv, tmp_path / "elsewhere" / "renamed.tsv")
    model = shutil.copytree(folder, tmp_path / "elsewhere" / "model")

    def names(data_set, at):
        mine = grids.ProfileWithUserData("toy", str(data_set), str(at))
        path = notebook.find_notebook_path(TITLES[0])
        return {
            spec.name
            for spec in notebook.list_specs_of_grid_variables(
                notebook.execute_grid_cell_and_list_rows_by_variable(
                    path, grids.get_notebook_parameters(mine)
                )
            )
        }

    before = names(tsv, folder)
    assert before
    assert names(rows, folder) == names(tsv, model) == names(rows, model) == before
    other = [
        (text, {"good": "warm", "bad": "cold"}[label]) for text, label in reviews()
    ]
    put(tmp_path, "elsewhere/classes.tsv", table(other))
    assert not names(tmp_path / "elsewhere" / "classes.tsv", folder) & before
    put(model, "vocab.txt", (model / "vocab.txt").read_text() + "more\n")
    assert not names(tsv, model) & before


def test_a_changed_file_is_another_task(tmp_path, tsv, monkeypatch):
    """In the same process, and with the size and the time of before, as rsync and tar
    keep them."""
    monkeypatch.setenv("RUNS_ROOT", str(tmp_path / "runs"))
    line, path, state = rows_of.infer_task(tsv).name, Path(tsv), Path(tsv).stat()
    before = data.make_data_descriptor("own", line)
    drawn = data.make_data_descriptor("own", line, 20, 0, 10, 30)
    swapped = [
        (text, {"good": "bad", "bad": "good"}[label]) for text, label in reviews()
    ]
    put(tmp_path, "reviews.tsv", table(swapped).replace("bad \n", "bad\n"))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert (
        path.stat().st_size == state.st_size
        and path.stat().st_mtime_ns == state.st_mtime_ns
    )
    after = data.make_data_descriptor("own", rows_of.infer_task(tsv).name)
    assert after["digest"] != before["digest"]
    assert (
        data.make_data_descriptor("own", line, 20, 0, 10, 30)["unseen"]
        != drawn["unseen"]
    )
    for value in (1, 2):  # A note that lies under the name of another is none.
        noted = disk.read_disk_cache_or_compute(
            ["rows", value], [path], lambda value=value: value
        )
        assert noted == value
    one, two = (
        paths.runs_root()
        / ".tokens"
        / "digests"
        / f"{disk.digest_values(['rows', v])}.json"
        for v in (1, 2)
    )
    one.write_text(two.read_text())
    assert disk.read_disk_cache_or_compute(["rows", 1], [path], lambda: 3) == 3
    with pytest.raises(ValueError, match="put the same data back"):
        data.load(before)
    put(tmp_path, "reviews.tsv", table(reviews(80)))
    assert data.make_data_descriptor("own", line)["digest"] not in (
        before["digest"],
        after["digest"],
    )


def test_a_model_folder_that_is_replaced_is_another_model(encoder):
    folder = encoder()
    before, path = (
        data.digest_local_checkpoint(str(folder)),
        Path(folder, "config.json"),
    )
    state, body = path.stat(), path.read_text()
    path.write_text(body.replace("1", "2", 1))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert data.digest_local_checkpoint(str(folder)) != before
    path.write_text(body)
    assert data.digest_local_checkpoint(str(folder)) == before


def test_the_shape_is_that_of_the_configuration(encoder):
    mine = grids.ProfileWithUserData("mini", model=encoder(4))
    of = grids.find_encoder_shape(mine)
    assert (of.family, of.layers, of.hidden, of.heads, of.ffn) == ("bert", 2, 32, 4, 64)
    assert grids.list_encoder_families(mine) == ("bert",)
    assert grids.pretrained_encoder_spec(mine).args["name"] == mine.model
    assert grids.pretrained_encoder_spec(mine) == grids.checkpoint_or_user_encoder_spec(
        mine, "bert-base-uncased"
    )
    electra = grids.ProfileWithUserData(
        "toy", model=encoder(4, "Electra", embedding_size=16)
    )
    assert (
        grids.find_encoder_shape(electra).embedding,
        grids.list_encoder_families(electra),
    ) == (
        16,
        ("electra",),
    )
    mpnet = grids.ProfileWithUserData("toy", model=encoder(4, "MPNet"))
    assert (
        grids.find_encoder_shape(mpnet).family,
        grids.find_encoder_shape(mpnet).types,
    ) == ("mpnet", 0)
    assert grids.list_encoder_families(mpnet) == ("bert",)
    with pytest.raises(
        ValueError, match="embeddings 129; expected a whole number from 130"
    ):
        grids.ProfileWithUserData(
            "toy", model=encoder(4, "MPNet", max_position_embeddings=129)
        )


def test_what_is_no_encoder_is_refused(tmp_path, encoder):
    with pytest.raises(
        FileNotFoundError, match="has no config.json; it must be a BERT"
    ):
        grids.check_and_find_encoder_folder(str(tmp_path))
    folder = Path(encoder())
    sound = json.loads((folder / "config.json").read_text())
    told = [
        ("", "Expecting value"),
        (json.dumps(sound)[:90], "config.json: .*; expected JSON"),
        (b"\xff", "expected UTF-8 text"),
        ([], "a model of type None; expected bert or roberta or electra"),
        (sound | {"model_type": "gpt2"}, "a model of type 'gpt2'; expected bert or"),
        (
            sound | {"hidden_size": None},
            "hidden_size None; expected a whole number from 1",
        ),
        (sound | {"num_hidden_layers": "2"}, "num_hidden_layers '2'; expected a whole"),
        (sound | {"num_attention_heads": 0}, "num_attention_heads 0; expected a whole"),
        (sound | {"num_attention_heads": 3}, "not a multiple of its 3 heads"),
        (
            sound | {"max_position_embeddings": 40},
            "embeddings 40; expected a whole number f",
        ),
    ]
    for content, message in told:
        put(folder, "config.json", content)
        with pytest.raises(ValueError, match=message) as caught:
            grids.check_and_find_encoder_folder(str(folder))
        assert "\n" not in str(caught.value)


def test_widths_are_twelfths_that_the_heads_can_have(encoder):
    four, five = (
        grids.ProfileWithUserData("mini", model=encoder(heads)) for heads in (4, 5)
    )
    assert (
        ghostbert.select_pruned_model_widths(four) == (9, 6, 3)
        and students.scale_kept_head_count(four, 9) == 3
    )
    spec = ghostbert.untrained_student_spec(
        four, "SST-2", 3, ghostbert.make_ghost_options(four)
    )
    assert spec.args["surgery"][0] == {"op": "cut", "heads": 1}
    with pytest.raises(ValueError, match="width 9/12 of 5 heads .*: take 12 of 12"):
        ghostbert.select_pruned_model_widths(five)
    whole = ghostbert.table_model_spec(four, "SST-2", ghostbert.HEADS, "Ghost").inputs[
        "start"
    ]
    assert [op["op"] for op in whole.args["surgery"]] == ["ghost"]  # nothing is cut


def test_ratios_are_those_that_one_head_leaves(encoder):
    mine = grids.ProfileWithUserData("toy", model=encoder(2, intermediate_size=8))
    low = nas.compute_least_reachable_flops_ratio(mine)
    assert nas.select_reachable_flops_ratios(mine, [low / 2, low, 1.0]) == [low, 1.0]
    assert nas.select_reachable_flops_ratios("mini") == list(nas.RATIOS)


def test_an_own_profile_is_a_profile_with_other_rows_and_another_encoder(tsv, encoder):
    mine = grids.ProfileWithUserData("toy", tsv, encoder())
    assert mine == "toy" and grids.TEACHER[mine] == grids.TEACHER["toy"]
    assert grids.select_tasks(mine, tasks_by_profile=ghostbert.TASKS) == (
        "reviews.tsv",
    )
    assert [
        column.metric for column in grids.select_metrics_by_task(mine)["reviews.tsv"]
    ] == ["accuracy"]
    assert (
        str(mine) == "toy, own data and model"
        and grids.ProfileWithUserData(**grids.get_notebook_parameters(mine)) == mine
    )
    described = grids.make_profile_data_descriptor(mine, "reviews.tsv")
    assert (described["rows"], described["held_out"]) == (
        64,
        16,
    ) and "unseen" not in described
    assert bermo.make_pruning_settings(mine, "reviews.tsv")[1].warmup_steps > 0
    with pytest.raises(ValueError, match="unknown task of your own data: 'CoLA'"):
        grids.select_tasks(mine, ["CoLA"], tasks_by_profile=ghostbert.TASKS)
    with pytest.raises(ValueError, match="name a model, or take the profile 'mini'"):
        grids.ProfileWithUserData("toy", tsv)


def test_pages_of_a_reader_s_own_say_so(tsv, encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "FIGURES", tmp_path)
    store, asked = Store(tmp_path, tmp_path), notebook.find_notebooks([TITLES[0]])
    other = put(tmp_path, "other/reviews.tsv", table(reviews(80)))
    folders, model = set(), encoder()
    for data_set in (tsv, str(other)):
        mine = grids.ProfileWithUserData("toy", data_set, model)
        book = site.Report(
            mine,
            grids.get_notebook_parameters(mine),
            dict.fromkeys(asked, {}),
            {},
            store,
        )
        (page,) = book.builders
        folders.add(page.folder)
        assert page.folder.name.startswith("reviews.tsv-encoder")
        told = (tmp_path / "toy" / "index.html").read_text().partition("<main")[2]
        assert "Your own data: reviews.tsv, model:" in told
        assert "generated sentences" not in told
    assert len(folders) == 2


def training():
    """The notebooks that take data and model of a reader's own."""
    return [
        path
        for path in notebook.find_notebooks()
        if "data" in notebook.read_parameter_declarations(path)
    ]


@pytest.mark.parametrize(
    "path", training(), ids=lambda path: notebook.make_notebook_id(path)
)
def test_every_notebook_s_grid_is_of_the_reader_s_data_and_model(path, tsv, encoder):
    mine = grids.ProfileWithUserData("toy", tsv, encoder(12))
    specs = notebook.list_specs_of_grid_variables(
        notebook.execute_grid_cell_and_list_rows_by_variable(
            path, grids.get_notebook_parameters(mine)
        )
    )
    every = {*specs, *(p for spec in specs for p in _inputs(spec))}
    sources = {
        spec.args["data"]["source"]
        for spec in every
        if "source" in spec.args.get("data", {})
    }
    assert sources <= {"own"} and not any(spec.step == "pretrain" for spec in every)
    names = {spec.args["name"] for spec in every if spec.step == "checkpoint"}
    assert names == {mine.model} and specs


def _inputs(spec):
    for parent in spec.input_specs_with_seeds.values():
        yield parent
        yield from _inputs(parent)


def test_a_run_on_them_is_judged_on_the_drawn_rows(tmp_path, tsv, encoder, store):
    mine = grids.ProfileWithUserData("toy", tsv, encoder())
    run = made(store, grids.teacher_spec(mine, "reviews.tsv").with_seed(0))
    assert (
        len(run.read_arrays("predictions")["labels"]) == 20
        and 0 <= run.metrics["accuracy"] <= 1
    )


@pytest.mark.parametrize("name", TITLES)
def test_a_page_says_what_is_the_reader_s_and_has_no_verdict(
    monkeypatch, tmp_path, tsv, encoder, name
):
    said = []
    monkeypatch.setattr(paths, "FIGURES", tmp_path / "figures")
    monkeypatch.setattr(
        artefact, "display", lambda told, **_: said.extend(told.values())
    )
    namespace = {"profile": "toy", "data": tsv, "model": encoder()}
    page = artefact.open_page(name, namespace)
    assert (
        namespace["profile"] == "toy"
        and namespace["profile"].task_title == "reviews.tsv"
    )
    page.show_table({"a": {"b": 1.5}}, "Scores.")
    page.show_verdicts_and_write_json([object()], {"toy": ["rows are generated"]})
    html, body = "".join(said), notebook.read_notebook_page_json(page.folder, name)
    assert page.folder.parent == tmp_path / "figures" / "scratch" / name
    assert (
        "Scores. Your own data: reviews.tsv, model: " in html
        and "are generated" not in html
    )
    assert body["verdicts"] == [] and "80 training and 20 development rows" in html


def test_the_test_rows_are_part_of_the_page(tmp_path, encoder):
    put(tmp_path, "d/train.tsv", table(reviews()))
    model, folders = encoder(), []
    for label in ("good", "bad"):
        put(tmp_path, "d/test.tsv", table([("other words", label)] * 3))
        mine = grids.ProfileWithUserData("toy", str(tmp_path / "d"), model)
        path = notebook.find_notebook_path("92_your_task")
        folders.append(
            notebook.find_notebook_page_folder(
                path,
                notebook.check_and_complete_parameter_values(
                    path, grids.get_notebook_parameters(mine)
                ),
            )
        )
    assert folders[0][0] != folders[1][0]


def test_what_the_encoder_is_given_is_told(tmp_path, encoder):
    """The vocabulary of `encoder` has the words of reviews, in lower case."""
    folder, longer = encoder(), [(f"{text} " * 12, y) for text, y in reviews()]
    path = put(tmp_path, "a.tsv", table(longer))
    mine = grids.ProfileWithUserData("toy", str(path), folder)
    line = "Of the first 80 rows: 0.0% of the tokens are unknown, 100% of the rows are "
    line += (
        "cut at 64 tokens (95 % have at most 98; the length of 92_your_task sets it)"
    )
    assert (
        mine.tokenizer_coverage.summary == line
        and f"{line}." in grids.describe_user_data_and_model(mine)
    )
    assert grids.list_user_data_warnings(mine) == [line]
    some = [(f"{text} zzz", y) for text, y in reviews()]
    mine = grids.ProfileWithUserData(
        "toy", str(put(tmp_path, "b.tsv", table(some))), folder
    )
    assert (
        mine.tokenizer_coverage.unknown_token_share == pytest.approx(1 / 9)
        and mine.tokenizer_coverage.truncated_row_share == 0
    )
    assert grids.list_user_data_warnings(mine) == [mine.tokenizer_coverage.summary]
    words = Path(folder, "vocab.txt").read_text()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        Path(folder, name).unlink(missing_ok=True)
    assert (
        grids.ProfileWithUserData(
            "toy", str(path), folder
        ).tokenizer_coverage.unknown_token_share
        == 0
    )
    put(
        Path(folder),
        "vocab.txt",
        words.replace("\n", "\nX").replace("X[", "[").removesuffix("X"),
    )
    with pytest.raises(ValueError, match="100.0% of the tokens are unknown.*; fix: ta"):
        grids.ProfileWithUserData("toy", str(path), folder)


def test_the_bag_of_words_reads_what_the_encoder_reads(encoder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder())
    a, b = ["the film was great", "Plot end"], ["good actor", "a very poor book end"]
    one = data.Split(a, None, np.zeros(2), np.arange(2))
    assert truncate_texts(tokenizer, one, 4).a == ["the film", "Plot end"]
    assert truncate_texts(tokenizer, one, 64).a == a
    cut = truncate_texts(tokenizer, replace(one, b=b), 8)
    assert (cut.a, cut.b) == (
        ["the film was", "Plot end"],
        ["good actor", "a very poor"],
    )


def test_majority_is_judged_where_no_linear_model_can_be(tmp_path, store):
    rows = [(f"text {i}", "rare" if i in (3, 4) else "good") for i in range(100)]
    name = rows_of.infer_task(str(put(tmp_path, "a.tsv", table(rows)))).name
    train = data.read_splits("own", name)["train"]
    assert {*train.y} == {0, 1}
    few = data.make_data_descriptor("own", name, 5)
    assert len({*data.load(few)["train"].y}) == 1
    found = made(store, Spec("bag_of_words", {"data": few}, seed=0)).metrics
    assert found["majority"] > 0.9 and "bag_of_words" not in found


def test_a_run_says_first_what_it_trains_and_last_where_its_page_is(
    tmp_path, tsv, encoder, capsys, monkeypatch
):
    monkeypatch.setattr(paths, "FIGURES", tmp_path / "figures")
    monkeypatch.setenv("RUNS_ROOT", str(tmp_path / "runs"))
    monkeypatch.setattr(sweep, "execute_specs", lambda *_, **__: {})

    def finish(pages):
        for builder in pages.builders:
            put(builder.folder, builder.html_path.name, "page")

    monkeypatch.setattr(site.Report, "render_all_pages", finish)
    words = ["run", "92_your_task", "--data", tsv, "--model", encoder(12)]
    monkeypatch.setattr(grids, "measure_flops_per_second", lambda: 1e6)
    assert main(words) == 0
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert first == "texts: text; label: label, 2 classes: bad, good."
    place, work, before = lines[-3:]
    page = last.partition("  (")[0]
    assert place == f"the answer will stand in {page}"
    assert re.match(
        r"first the whole model learns \(\d+ epochs of 64 rows, about [\d.]+ h", before
    )
    assert re.search(r"scratch/92_your_task/\S+/92_your_task.html$", page)
    assert main(["plan", *words[1:]]) == 0
    *_, plan = capsys.readouterr().out.splitlines()
    assert plan.partition(", ")[2] == work.rpartition(", ")[2] and " h on " in plan
    list_missing = Store.plan_missing_runs
    mine = grids.ProfileWithUserData("toy", tsv, words[-1])
    known = {grids.teacher_spec(mine, mine.task_title).id}

    def without_known(self, specs, *more):
        missing = list_missing(self, specs, *more)
        return {spec: keep for spec, keep in missing.items() if spec.id not in known}

    monkeypatch.setattr(Store, "plan_missing_runs", without_known)
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "runs to make" in text and "the whole model learns" not in text


def test_a_failed_run_is_told_with_its_model_and_task(
    tmp_path, tsv, encoder, capsys, monkeypatch
):
    monkeypatch.setattr(paths, "FIGURES", tmp_path / "figures")
    monkeypatch.setenv("RUNS_ROOT", str(tmp_path / "runs"))
    monkeypatch.setattr(site.Report, "render_all_pages", lambda pages: False)
    words = ["run", "92_your_task", "--data", tsv, "--model", encoder(12)]
    words += ["--methods", "Whole,Width,GhostBERT,Int8", "--budgets", "6"]

    def told(step):
        """Return the lines on failed runs, where those of a step fail."""

        def fail(specs, *_, **__):
            todo, lost = Store().plan_missing_runs(specs), {}
            for spec in todo:
                needed = lost.keys() & {*spec.input_specs_with_seeds.values()}
                if needed or spec.step == step:
                    lost[spec] = "RuntimeError: boom"
                for parent in needed:
                    lost[spec] = format_error_of_failed_input(parent, lost[parent])
            return lost

        monkeypatch.setattr(sweep, "execute_specs", fail)
        assert main(words) == (step != "none")
        lines = capsys.readouterr().out.splitlines()
        return [line.strip() for line in lines if "boom" in line]

    (line,) = told("distil")
    models = r"\(Width on reviews.tsv, GhostBERT on reviews.tsv\)"
    line_form = r"not made distil-\w+/0 and \d other runs {}: RuntimeError: boom"
    assert re.fullmatch(line_form.format(models), line)
    (line,) = told("quantise")
    about = r"not made quantise-\w+/0 \(Int8 on reviews.tsv\): RuntimeError: boom"
    assert re.fullmatch(about, line)
    (line,) = told("finetune")
    assert "(Whole on reviews.tsv, Width on reviews.tsv, GhostBERT on" in line
    assert line.endswith(", ...): RuntimeError: boom") and not told("none")


@pytest.mark.parametrize("command", ["run", "report"])
def test_a_command_without_a_notebook_to_make_promises_no_page(
    command, tmp_path, tsv, encoder, capsys, monkeypatch
):
    monkeypatch.setattr(paths, "FIGURES", tmp_path / "figures")
    words = [command, "92_your_task", "--data", tsv, "--model", encoder(12)]
    assert main([*words, "--methods", "Width"]) == 1
    *_, line = capsys.readouterr().out.splitlines()
    assert line.startswith("  cannot   92_your_task") and "'Whole': add it" in line
    assert not paths.FIGURES.exists()
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "for 92_your_task Whole must be among them" in text


def test_what_needs_no_training_is_told_before_any_training(
    tmp_path, tsv, encoder, capsys, monkeypatch
):
    """Words say the label of each review, so no model can be shown to be better."""
    monkeypatch.setattr(paths, "FIGURES", tmp_path / "figures")
    monkeypatch.setenv("RUNS_ROOT", str(tmp_path / "runs"))
    words = ["92_your_task", "--data", tsv, "--model", encoder(12)]
    assert main(["plan", *words, "--methods", "Whole"]) == 0
    told = capsys.readouterr().out.splitlines()
    line = next(line for line in told if line.startswith("without training: "))
    assert "bag of words 100.0 points on 20 development rows" in line
    assert "nothing can be shown above that" in line and "above 83.9 only" in line
    steps = {
        run.name.partition("-")[0]
        for run in Store().iterate_finished_runs()
        if run.origin == "run"
    }
    assert steps == {"bag_of_words", "checkpoint"}
    monkeypatch.setattr(sweep, "execute_specs", lambda *_, **__: {})
    monkeypatch.setattr(site.Report, "render_all_pages", lambda pages: False)
    assert main(["plan", *words, "--methods", "GhostBERT"]) == 1
    assert "shares of the model 'Whole': add it" in capsys.readouterr().out
    assert main(["run", *words, "--methods", "Whole"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told.index(line) < next(
        place for place, other in enumerate(told) if "runs to make" in other
    )
    assert "no page yet" in shown(capsys, "92_your_task")
    with pytest.raises(Refused, match="part of 0 runs"):
        opened.find_run_by_name("92_your_task")


def shown(capsys, name):
    assert main(["show", name]) == 0
    return capsys.readouterr().out


def test_the_answer_of_a_page_is_shown_by_its_notebook(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(paths, "FIGURES", tmp_path)
    body = {"answer": ["On reviews.tsv: take Int8."], "differs": ["Your own data."]}
    monkeypatch.setattr(site.PageBuilder, "page_summary", body)
    page = put(tmp_path / "scratch/92_your_task/mine", "92_your_task.html", "page")
    lines = shown(capsys, "92_your_task").splitlines()
    assert lines == ["Your own data.", "  On reviews.tsv: take Int8.", f"  {page}"]


def test_plan_tells_what_it_read_and_refuses_in_one_line(
    tmp_path, tsv, encoder, capsys, monkeypatch
):
    monkeypatch.setenv(
        "RUNS_ROOT", str(tmp_path / "runs")
    )  # where no run tells how long it took
    folder = encoder(12)
    words = ["plan", "92_your_task", "--data", tsv, "--model", folder]
    assert (
        main([*words, "--methods", "Whole, Width", "--budgets", "6", "--seeds", "0,1"])
        == 0
    )
    told = capsys.readouterr().out
    assert told.startswith("texts: text; label: label, 2 classes: bad, good.\n")
    assert f"\nin full: --data '{tsv}: text, label: classes'\n" in told
    assert "80 training and 20 development rows" in told
    assert re.search(
        r"\n92_your_task: 5 results, 10 runs missing, about \d+ \w+ of a core\n", told
    )
    assert main([*words, "--profile", "base"]) == 0  # Its plan is of other pages.
    at_base = capsys.readouterr().out
    assert re.search(r"\n92_your_task: \d+ results, \d+ runs missing, about", at_base)
    assert "left out" not in at_base and "core-hours" not in at_base
    assert main(["plan", "ghostbert_b04", *words[2:], "--profile", "base"]) == 0
    assert "left out 1 notebooks without rows at base" in capsys.readouterr().out
    stars = put(
        tmp_path,
        "stars.tsv",
        table([[f"a fine film {i}", i % 5 + 1] for i in range(90)]),
    )
    assert main([*words[:3], str(stars), *words[4:]]) == 0
    assert (
        f"to have scores: --data '{stars}: text, label: scores'"
        in capsys.readouterr().out
    )
    assert main([*words, "--methods", "Wdith"]) == 1
    lines = capsys.readouterr().out.splitlines()
    line = next(x for x in lines if x.startswith("  cannot"))
    assert (
        "cannot   92_your_task: unknown method: 'Wdith'; did you mean 'Width'" in line
    )
    bad = put(tmp_path, "bad.tsv", table([*SCORES[:7], ["other", "n/a"], *SCORES[8:]]))
    for command in ("plan", "run"):
        assert (
            main([command, "92_your_task", "--data", str(bad), "--model", folder]) == 2
        )
        (line,) = capsys.readouterr().err.splitlines()
        assert (
            line.startswith("error: ")
            and "bad.tsv:9: label 'n/a'; expected a finite" in line
        )


def test_few_rows_are_read_until_there_are_steps_enough(tsv, encoder):
    mine = grids.ProfileWithUserData("toy", tsv, encoder(12))
    values = grids.get_notebook_parameters(mine) | {"methods": list(frontier.TABLE)}
    grid = notebook.execute_grid_cell_and_list_rows_by_variable(
        notebook.find_notebook_path("92_your_task"), values
    )["grid"]
    every = {p for row in grid for p in (row["spec"], *_inputs(row["spec"]))}
    lessons = [spec.args for spec in every if {"train", "data"} <= spec.args.keys()]
    steps = [
        a["train"]["epochs"] * a["data"]["rows"] / a["train"]["batch"] for a in lessons
    ]
    assert len(steps) > 20 and min(steps) >= grids.STEPS
    assert (
        grids.adapt_options_to_user_data("toy", grids.TEACHER["toy"])
        is grids.TEACHER["toy"]
    )


@pytest.mark.papers("ghostbert")
def test_figure_1_counts_heads_of_an_encoder_with_other_than_twelve(encoder):
    """Widths are in twelfths: 3/12 of 8 heads are 2."""
    mine = grids.ProfileWithUserData("toy", model=encoder(8))
    path = notebook.find_notebook_path("ghostbert_f01_accuracy_vs_cost")
    cells = ["".join(c["source"]) for c in json.loads(path.read_text())["cells"]]
    names = {"ghostbert": ghostbert, "tokens": 64}
    exec(next(c for c in cells if "def count" in c).partition("measured = ")[0], names)
    shares = [names["share"](mine, "Prune", m) for m in (3, 12)]
    assert shares == pytest.approx([25, 100], abs=2)
    assert names["share"](mine, "Distilled", 12) == pytest.approx(100)


@pytest.mark.papers("bermo", "nas_pruning")
@pytest.mark.parametrize(
    "page",
    ["bermo_f05_convergence", "nas_t02_teachers", "nas_t03_tinybert_reproduction"],
)
def test_epochs_that_a_page_varies_stay_on_few_rows(page, tsv, encoder):
    mine = grids.ProfileWithUserData("mini", tsv, encoder(12))
    grid = notebook.execute_grid_cell_and_list_rows_by_variable(
        notebook.find_notebook_path(page), grids.get_notebook_parameters(mine)
    )["grid"]
    labels = {tuple(v for k, v in row.items() if k != "spec") for row in grid}
    assert len(labels) == len(grid) == len({row["spec"].name for row in grid}) > 1
    for row in grid:
        if "epochs" in row:
            assert row["spec"].args["train"]["epochs"] == row["epochs"]


def test_a_length_is_that_of_everything_that_reads(tsv, encoder, capsys):
    model = encoder(12)
    mine = grids.ProfileWithUserData("mini", tsv, model, 24)
    assert (
        mine.tokenizer_coverage.max_length == 24
        and grids.make_profile_from_notebook_parameters(
            grids.get_notebook_parameters(mine)
        )
        == mine
    )
    assert "--length 24" in grids.format_profile_as_command_options(mine)
    values = grids.get_notebook_parameters(mine) | {"methods": list(frontier.TABLE)}
    grid = notebook.execute_grid_cell_and_list_rows_by_variable(
        notebook.find_notebook_path("92_your_task"), values
    )["grid"]
    every = {p for row in grid for p in (row["spec"], *_inputs(row["spec"]))}
    read = [spec.args for spec in every if "data" in spec.args]
    names = ("train", "importance", "cut")
    options = [args[name] for args in read for name in names if name in args]
    lengths = [o["max_length"] if isinstance(o, dict) else o for o in options]
    assert len(lengths) > 20 and {*lengths} == {24}
    for length in (5, 999):
        fault = f"length is {length}, .* reads 130 .*: take 8 to 130"
        with pytest.raises(ValueError, match=fault):
            grids.ProfileWithUserData("mini", tsv, model, length)
    with pytest.raises(ValueError, match="rows of your own: name them in data"):
        grids.ProfileWithUserData("mini", model=model, length=24)
    words = ["--data", tsv, "--model", model, "--length", "24"]
    assert main(["plan", "92_your_task", "t03_pruned", *words]) == 0
    told = capsys.readouterr().out
    assert "cut at 24 tokens" in told
    assert "left out ghostbert_t03_pruned_vs_ghost: it takes no length" in told


def test_questions_have_the_methods_that_read_passages(tmp_path, encoder):
    path = put(tmp_path, "questions.json", questions())
    mine = grids.ProfileWithUserData("toy", str(path), encoder(12))
    grid = notebook.execute_grid_cell_and_list_rows_by_variable(
        notebook.find_notebook_path("92_your_task"), grids.get_notebook_parameters(mine)
    )["grid"]
    assert {row.get("model") for row in grid} == {
        "Whole",
        "Width",
        "GhostBERT",
        "Int8",
        None,
    }
    every = {p for row in grid for p in (row["spec"], *_inputs(row["spec"]))}
    read = [spec.args.get("span") for spec in every if "train" in spec.args]
    assert all(read) and len(read) >= 4


def advice(whole, low, floors, gap=None, is_own=True, cautions=(), models=()):
    """What 92_your_task says of a whole model of a score, and a cheap one with a lower
    end."""
    cells = json.loads((notebook.find_notebook_path("92_your_task")).read_text())[
        "cells"
    ]
    (cell,) = (
        "".join(c["source"]) for c in cells if "No advice" in "".join(c["source"])
    )
    rows = [
        ("Whole", 0, 100.0, whole, whole - 5),
        ("Width 6/12", 6, 50.0, low + 5, low),
        *models,
    ]
    points = pd.DataFrame(rows, columns=["model", "m", "flops", "score", "low"])
    points = points.assign(
        method=points["model"].str.split(" 6/").str[0],
        high=points["score"] + 5,
        seeds=1,
        task="reviews",
    )
    page = SimpleNamespace(show_remarks=lambda lines, **_: print(lines))
    names = dict(
        points=points, floors=floors, has_runs=True, cost="flops", share=0.5, limit=50.0
    )
    names |= dict(
        best=frontier.find_best_affordable_model(points, "flops", 0.5),
        frontier=frontier,
        page=page,
    )
    found = pd.DataFrame(
        {"run": [SimpleNamespace(name="finetune-0/0")], "model": names["best"]["model"]}
    )
    named = SimpleNamespace(
        AXES=frontier.AXES, select_and_label_model_runs=lambda rows: found
    )
    there = SimpleNamespace(select_rows_with_runs=lambda frame: frame)
    names |= dict(
        frontier=named, runs=SimpleNamespace(current=0), compare=there, half=[]
    )
    parts = {"data": "reviews.tsv" * is_own}
    told = SimpleNamespace(get_user_data_attribute=lambda _, name: parts[name])
    told.list_user_data_warnings = lambda _: cautions
    names |= dict(gap=gap, apart="{0.mean:+.1f} points".format, grids=told)
    names |= dict(profile="toy", ALIKE="Whole, distilled")
    exec(cell, names)
    return names["answer"][0]


def test_advice_needs_a_teacher_and_a_lower_end_above_what_needs_no_training():
    floors = {"majority": 50.0, "bag of words": 62.0}
    told = advice(80, 70, floors)
    assert told.startswith("On reviews: take Width 6/12, 75.0 points [70.0, 80.0]")
    assert (
        "distilled alike, has no run here, so what the cut costs is not known" in told
    )
    told = advice(80, 70, floors, SimpleNamespace(mean=-0.9))
    assert "That is -0.9 points against the whole model distilled alike." in told
    collapsed = [("Whole, distilled", 12, 100.0, 50.0, 45.0)]
    told = advice(80, 70, floors, models=collapsed)
    assert "no seed compares it with the whole model distilled alike" in told
    itself = [("Whole, distilled", 6, 50.0, 90.0, 85.0)]
    told = advice(80, 70, floors, models=itself)
    assert "take Whole, distilled" in told and "so nothing was cut" in told
    assert "has no run here" not in told
    assert "bag of words 62.0" in advice(80, 70, floors)
    assert advice(61, 70, floors).startswith(
        "No advice: the whole model has 61.0 points"
    )
    assert "is not proven to be above" in advice(80, 61.9, floors)
    assert advice(61, 55, {}, is_own=False).startswith("On reviews: take")


def test_two_models_without_a_row_that_differs_have_a_limit_in_the_answer():
    """Wilson's limit of 0 of 61 rows is 3.84 / (61 + 3.84)."""
    (text,) = (
        "".join(cell["source"])
        for cell in json.loads(notebook.find_notebook_path("92_your_task").read_text())[
            "cells"
        ]
        if "def apart" in "".join(cell["source"])
    )
    names = dict(best=None, page=SimpleNamespace(custom_data_and_model_notes=["mine"]))
    exec(text, names)
    right = np.arange(61) % 2
    pairs = [
        Pair("reviews", seed, right, right, right, "accuracy") for seed in range(2)
    ]
    told = "+0.0 points (no row differs of 61: the difference is below 5.9)"
    assert names["apart"](pairs) == told
    other = np.where(np.arange(61) == 3, 0, right)
    pairs = [Pair("reviews", 0, right, other, right, "accuracy")]
    assert names["apart"](pairs) == "−1.6 points (1 seed)"


def test_there_is_no_advice_without_what_it_is_held_to():
    told = advice(61, 55, {})
    assert told.startswith("No advice: what needs no training") and "no run" in told
    told = advice(100, 95, {"majority": 50.0, "bag of words": 100.0})
    assert "Give more rows" not in told and "No rows can beat it" in told
    assert "Give more rows" in advice(61, 70, {"majority": 62.0})
    cautions = ["5 of 20 dev rows are training rows too"]
    for floor in (50.0, 90.0):
        told = advice(80, 70, {"majority": floor}, cautions=cautions)
        assert told.endswith(f"Beware: {cautions[0]}.")


def test_a_method_is_recommended_within_a_share_of_the_whole_cost():
    rows = [
        ("Whole", 0, 100.0, 90.0),
        ("Width", 6, 50.0, 80.0),
        ("Int8", 0, 100.0, 91.0),
    ]
    rows += [("GhostBERT", 6, 50.5, 85.0), ("NAS", 3, 25.0, 80.0)]
    table = pd.DataFrame(rows, columns=["method", "m", "flops", "score"])
    table["model"] = table["method"]
    said = [
        frontier.find_best_affordable_model(table, "flops", share)
        for share in (1.0, 0.5, 0.4, 0.1)
    ]
    assert [each and each["model"] for each in said] == [
        "Int8",
        "GhostBERT",
        "NAS",
        None,
    ]
    with pytest.raises(ValueError, match="add it to the methods"):
        frontier.find_best_affordable_model(table[1:], "flops", 0.5)


def test_budgets_are_those_that_the_heads_can_have(tsv, encoder):
    mine = grids.ProfileWithUserData("toy", tsv, encoder(num_hidden_layers=1))
    values = {"seeds": [0], "budgets": [6, 5], "methods": ["Whole", "Width", "NAS"]}
    path = notebook.find_notebook_path("92_your_task")
    grid = notebook.execute_grid_cell_and_list_rows_by_variable(
        path, grids.get_notebook_parameters(mine) | values
    )["grid"]
    assert {row["m"] for row in grid if "m" in row} == {
        0,
        6,
    }  # 4 heads cannot have 5/12


def test_a_whole_model_that_is_no_better_than_one_answer_is_told():
    """Half of the made-up labels are 1: one answer for all rows is right on half of
    them."""

    def told(share):
        (row,) = made_up({"Whole": share}, seeds=1).to_dict("records")
        return compare.measure_score_and_chance_level(
            row["run"], grids.select_metrics_by_task("mini")[row["task"]][0]
        ).has_collapsed

    assert not told(0.8) and told(0.5)


def test_lists_on_the_command_line_may_be_json_for_names_with_commas():
    assert cli.parse_comma_separated_items("Whole, Width,2") == ["Whole", "Width", 2]
    assert cli.parse_comma_separated_items("-1,0") == [-1, 0]
    assert cli.parse_comma_separated_items('["Whole, distilled", 2]') == [
        "Whole, distilled",
        2,
    ]
    with pytest.raises(ArgumentTypeError, match="is no list of JSON"):
        cli.parse_comma_separated_items('["Whole, distilled')


def test_names_of_columns_may_be_longer_than_those_of_files(tmp_path):
    head = ("What did you like about it? " * 12).strip()
    path = put(tmp_path, "survey.tsv", table(reviews(), (head, "label")))
    named = rows_of.infer_task(f"{path}: {head}, label")
    assert {*named.labels} == {label for _, label in reviews()}


def test_a_first_column_that_is_not_read_may_hold_anything(tmp_path):
    lines = (
        json.dumps({"meta": {"from": ["here"]}, "text": text, "label": label})
        for text, label in reviews()
    )
    path = put(tmp_path, "rows.jsonl", "".join(f"{line}\n" for line in lines))
    assert rows_of.infer_task(f"{path}: text, label").labels
