"""SentEval's probing files: their quirks, each malformed row, and words as classes."""

import os
from pathlib import Path

import numpy as np
import pytest

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
