"""SentEval's probing files: their quirks, each malformed row, and words as classes."""

import numpy as np
import pytest
from conftest import REAL, put

from lib.data import read

ROWS = 'tr\tPAST\tShe shone .\ntr\tPRES\tHe knows .\nva\tPRES\tIt is .\nte\tPAST\tI " went .\n'


def test_tasks_have_the_official_classes():
    sizes = [len(task.labels) for task in read.SENTEVAL.values()]
    assert sizes == [6, 1000, 8, 20, 2, 2, 2, 2, 2, 2]
    assert all(
        task.metrics == ("accuracy",) and not task.pair
        for task in read.SENTEVAL.values()
    )
    top = read.SENTEVAL["TopConstituents"].labels
    assert (
        list(top) == sorted(top)
        and read.LAYOUTS["OddManOut"]["files"]["all"] == "odd_man_out.txt"
    )


def test_rows_keep_their_quotes_and_their_order(tmp_path):
    put(tmp_path, "past_present.txt", ROWS)
    splits = read.load("Tense", tmp_path)
    assert list(splits) == ["train", "dev", "test"]
    assert splits["train"].a == ["She shone .", "He knows ."] and splits["test"].a == [
        'I " went .'
    ]
    assert splits["train"].y.tolist() == [0, 1] and splits["train"].y.dtype == np.int64
    assert splits["dev"].index.tolist() == [0] and splits["dev"].b is None


def test_form_feeds_and_unicode_separators_are_text(tmp_path):
    put(tmp_path, "past_present.txt", ROWS.replace("It is", "It\x0c\u2028 is"))
    assert read.load("Tense", tmp_path)["dev"].a == ["It\x0c\u2028 is ."]


def test_word_content_numbers_the_sorted_words_of_its_training_rows(tmp_path):
    text = "tr\tzebra\tA zebra .\ntr\tapple\tAn apple .\nva\tzebra\tZebra !\nte\tapple\tApple .\n"
    put(tmp_path, "word_content.txt", text)
    splits = read.load("WordContent", tmp_path)
    assert splits["train"].y.tolist() == [1, 0] and splits["dev"].y.tolist() == [1]


@pytest.mark.parametrize("task", read.SENTEVAL)
def test_official_files(task):
    if not (REAL / "probing" / (name := read.LAYOUTS[task]["files"]["all"])).is_file():
        pytest.skip(f"SentEval's {name} is not under DATA_ROOT")
    train, *others = map(len, read.load(task, REAL / "probing").values())
    assert train >= 100_000 and min(others) >= 10_000
