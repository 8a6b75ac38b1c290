"""SentEval's probing files: their quirks, each malformed row, and words as classes."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lib.data import senteval

ROWS = 'tr\tPAST\tShe shone .\ntr\tPRES\tHe knows .\nva\tPRES\tIt is .\nte\tPAST\tI " went .\n'


def put(root, text, task="Tense"):
    path = root / senteval.FILES[task]
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_tasks_have_the_official_classes():
    sizes = {name: len(task.labels) for name, task in senteval.TASKS.items()}
    assert sizes == {
        "Length": 6,
        "WordContent": 1000,
        "Depth": 8,
        "TopConstituents": 20,
        "BigramShift": 2,
        "Tense": 2,
        "SubjNumber": 2,
        "ObjNumber": 2,
        "OddManOut": 2,
        "CoordinationInversion": 2,
    }
    assert all(task.metrics == ("accuracy",) and not task.pair for task in senteval.TASKS.values())
    assert list(senteval.TASKS["TopConstituents"].labels) == sorted(
        senteval.TASKS["TopConstituents"].labels
    )
    assert (
        senteval.FILES["OddManOut"] == "odd_man_out.txt"
        and senteval.FILES["Tense"] == "past_present.txt"
    )


def test_rows_keep_their_quotes_their_order_and_their_numbers(tmp_path):
    put(tmp_path, ROWS)
    splits = senteval.load("Tense", tmp_path)
    assert list(splits) == ["train", "dev", "test"]
    assert splits["train"].a == ["She shone .", "He knows ."] and splits["test"].a == ['I " went .']
    assert splits["train"].y.tolist() == [0, 1] and splits["train"].y.dtype == np.int64
    assert splits["dev"].index.tolist() == [2] and splits["dev"].b is None


@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text + "\n \n",
        lambda text: text.rstrip("\n"),
        lambda text: re.sub("\t(P[A-Z]+)\t", r"\t\1\tverb\t17\t", text),
    ],
    ids=["mark", "crlf", "blank end", "no end", "fields between"],
)
def test_same_rows_whatever_the_form(tmp_path, change):
    put(tmp_path, change(ROWS))
    splits = senteval.load("Tense", tmp_path)
    assert [split.a for split in splits.values()] == [
        ["She shone .", "He knows ."],
        ["It is ."],
        ['I " went .'],
    ]


def test_form_feeds_and_unicode_separators_are_text(tmp_path):
    put(tmp_path, ROWS.replace("It is", "It\x0c\u2028 is"))
    assert senteval.load("Tense", tmp_path)["dev"].a == ["It\x0c\u2028 is ."]


def test_word_content_numbers_the_sorted_words_of_its_training_rows(tmp_path):
    text = "tr\tzebra\tA zebra .\ntr\tapple\tAn apple .\nva\tzebra\tZebra !\nte\tapple\tApple .\n"
    put(tmp_path, text, "WordContent")
    splits = senteval.load("WordContent", tmp_path)
    assert splits["train"].y.tolist() == [1, 0] and splits["dev"].y.tolist() == [1]
    assert senteval.labels("WordContent", tmp_path) == ("apple", "zebra")
    assert senteval.labels("Tense", tmp_path) == ("PAST", "PRES")


def test_a_word_outside_the_training_rows_is_refused(tmp_path):
    put(tmp_path, "tr\tapple\tAn apple .\nva\tzebra\tZebra !\nte\tapple\tApple .\n", "WordContent")
    with pytest.raises(ValueError, match=r"word_content.txt:2: label 'zebra'; expected .*apple"):
        senteval.load("WordContent", tmp_path)


def test_more_than_a_thousand_words_are_refused(tmp_path):
    put(
        tmp_path,
        "".join(f"{part}\tw{i}\tw{i} .\n" for part in ("tr", "va", "te") for i in range(1001)),
        "WordContent",
    )
    with pytest.raises(ValueError, match="1001 words .* at most 1000"):
        senteval.load("WordContent", tmp_path)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("xx\tPAST\tShe went .", "expected tr, va or te"),
        ("tr\tPAST", "a label and a sentence"),
        ("tr PAST She went .", "between tabs"),
        ("tr\t\tShe went .", "a label"),
        ("tr\tPAST\t ", "a sentence"),
        ("", "a sentence"),
        ("tr\tFUTURE\tShe will .", "label 'FUTURE'; expected PAST, PRES"),
        ("tr\tpast\tShe went .", "PAST, PRES"),
    ],
)
def test_a_malformed_row_is_named_by_file_and_line(tmp_path, line, what):
    put(tmp_path, f"tr\tPAST\tShe shone .\n{line}\n{ROWS}")
    with pytest.raises(ValueError, match=rf"past_present\.txt:2: .*{what}.*fix: "):
        senteval.load("Tense", tmp_path)


def test_another_encoding_is_named_by_file_and_line(tmp_path):
    put(tmp_path, ROWS.encode() + "te\tPAST\tRené went .\n".encode("latin1"))
    with pytest.raises(ValueError, match=r"past_present\.txt:5: byte 0xe9 is not UTF-8"):
        senteval.load("Tense", tmp_path)


@pytest.mark.parametrize("part", ["tr", "va", "te"])
def test_a_split_without_rows_is_refused(tmp_path, part):
    put(tmp_path, "".join(line + "\n" for line in ROWS.splitlines() if not line.startswith(part)))
    with pytest.raises(ValueError, match=f"no row begins with '{part}'"):
        senteval.load("Tense", tmp_path)


def test_absent_files_and_unknown_tasks(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"past_present\.txt is missing; fix"):
        senteval.load("Tense", tmp_path)
    with pytest.raises(ValueError, match="did you mean 'SubjNumber'"):
        senteval.load("SubjectNumber", tmp_path)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.binary(max_size=60)
    | st.lists(st.sampled_from(["tr", "va", "PAST", "\t", "\n", " ", "\r", "x"])).map(
        lambda parts: "".join(parts).encode()
    )
)
@example(b"\t\t\t")
def test_any_line_is_read_or_refused(tmp_path, line):
    path = put(tmp_path, ROWS.encode() + line)
    try:
        splits = senteval.load("Tense", tmp_path)
    except ValueError as error:
        assert re.match(rf"{re.escape(str(path))}:\d+: ", str(error))
    else:
        assert sum(map(len, splits.values())) >= 4


@pytest.mark.parametrize("task", senteval.TASKS)
def test_official_files(task):
    root = (
        Path(os.environ.get("DATA_ROOT", Path(__file__).resolve().parents[2] / "shared" / "data"))
        / "probing"
    )
    if not (root / senteval.FILES[task]).is_file():
        pytest.skip(f"SentEval's {senteval.FILES[task]} is not under DATA_ROOT")
    splits = senteval.load(task, root)
    assert (
        len(splits["train"]) >= 100_000 and min(len(splits["dev"]), len(splits["test"])) >= 10_000
    )
