"""SQuAD: official files and their stand-ins, the hub, and the official scores."""

import datasets
import numpy as np
import pytest
from conftest import put

from lib.data import read
from lib.stats import answers as measure

NORMANS = (
    "The Normans (Norman: Nourmands) gave their name to Normandy, a region in France."
)
CAFE = "Café Zoë opened in 1911 🎉 near 東京 station; naïve visitors paid 5¢."


def qa(name, question, *answers, **more):
    given = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": question, "answers": given} | more


def tree(*paragraphs):
    passages = [{"context": context, "qas": qas} for context, qas in paragraphs]
    return {"version": "x", "data": [{"title": "T", "paragraphs": passages}]}


NAMED = [
    qa("n1", " Where is Normandy? ", ("France", 73), ("in France", 70)),
    qa("n2", "Who?", ("The Normans", 0)),
]
ONE = tree((NORMANS, NAMED), (CAFE, [qa("c1", "Where?", ("near 東京", 26))]))
PLAUSIBLE = {"plausible_answers": [{"text": "no", "answer_start": 1}]}
POSED = [
    qa("n1", "Where?", ("France", 73), is_impossible=False),
    qa("n3", "When?", is_impossible=True, **PLAUSIBLE),
]
TWO = tree((NORMANS, POSED))


def test_rows(tmp_path):
    put(tmp_path, "train-v1.1.json", ONE)
    put(tmp_path, "dev-v2.0.json", TWO)
    one, two = read.load("SQuAD1", tmp_path), read.load("SQuAD2", tmp_path)
    assert list(one) == ["train"] and list(two) == ["dev"]
    train, dev = one["train"], two["dev"]
    assert train.a == ["Where is Normandy?", "Who?", "Where?"]
    assert train.b == [NORMANS, NORMANS, CAFE]
    assert train.answers == [["France", "in France"], ["The Normans"], ["near 東京"]]
    assert (
        train.y.tolist() == [[73, 79], [0, 11], [26, 33]] and train.y.dtype == np.int64
    )
    assert train.index.tolist() == [0, 1, 2] and CAFE[slice(*train.y[2])] == "near 東京"
    assert dev.answers == [["France"], []] and dev.y.tolist() == [[73, 79], [-1, -1]]
    assert read.TASKS["SQuAD2"].span and read.TASKS["SQuAD2"].metrics == (
        "span_f1",
        "exact",
    )


def test_stand_ins_are_read_in_order_and_give_way(tmp_path):
    second = tree((CAFE, [qa("z", "Near what?", ("station", 34))]))
    put(tmp_path, "train-v1.1.sample.json", second)
    put(tmp_path, "train-v1.1.prefix.json", ONE)
    put(tmp_path, "reqa-train-10k.json", [])
    train = read.load("SQuAD1", tmp_path)["train"]
    assert train.a == ["Where is Normandy?", "Who?", "Where?", "Near what?"]
    assert train.index.tolist() == [0, 1, 2, 3]
    names = [
        path.name for path in read.find_files_by_split("SQuAD1", tmp_path)["train"]
    ]
    assert names == ["train-v1.1.prefix.json", "train-v1.1.sample.json"]
    put(tmp_path, "train-v1.1.json", second)
    assert read.load("SQuAD1", tmp_path)["train"].a == ["Near what?"]


def hub(*trees):
    """Rows as the hub has them."""

    def rows(whole):
        for article in whole["data"]:
            for p in article["paragraphs"]:
                for q in p["qas"]:
                    given = {
                        k: [a[k] for a in q["answers"]]
                        for k in ("text", "answer_start")
                    }
                    told = {"id": q["id"], "question": q["question"], "answers": given}
                    yield told | {"title": article["title"], "context": p["context"]}

    text, number = datasets.Value("string"), datasets.Value("int32")
    kinds = dict.fromkeys(("id", "title", "context", "question"), text)
    kinds["answers"] = datasets.Sequence({"text": text, "answer_start": number})
    made = [
        datasets.Dataset.from_list(list(rows(t)), datasets.Features(kinds))
        for t in trees
    ]
    return datasets.DatasetDict(zip(("train", "validation"), made, strict=False))


@pytest.mark.parametrize(
    "task, whole, version", [("SQuAD1", ONE, "v1.1"), ("SQuAD2", TWO, "v2.0")]
)
def test_fetch_then_load_gives_the_same_rows(
    tmp_path, monkeypatch, task, whole, version
):
    calls = []

    def loader(*call):
        calls.append(call)
        return hub(whole, whole)

    monkeypatch.setattr(datasets, "load_dataset", loader)
    assert read.download_task_from_hub(task, tmp_path / "new") == tmp_path / "new"
    assert calls == [
        ({"SQuAD1": "rajpurkar/squad", "SQuAD2": "rajpurkar/squad_v2"}[task],)
    ]
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == [f"{split}-{version}.jsonl" for split in ("dev", "train")]
    put(tmp_path / "old", f"dev-{version}.json", whole)
    old, new = (read.load(task, tmp_path / root)["dev"] for root in ("old", "new"))
    assert (old.a, old.b, old.answers) == (new.a, new.b, new.answers)
    assert np.array_equal(old.y, new.y)


# ---- scores: what the official scripts give, worked out by hand ----
NORMAL = {
    "The  Cat, an  a-b!": "cat ab",
    "theatre another a1": "theatre another a1",
    "A": "",
    " .?! ": "",
    "U.S.A.": "usa",
    "the-the": "thethe",
    "É ÉTÉ": "é été",
    "an\u00a0apple\t\n": "apple",
    "“the” end—a": "“ ” end—",
    "5¢ ٪": "5¢ ٪",
    "ＴＨＥ": "ｔｈｅ",
}


@pytest.mark.parametrize("text, expected", NORMAL.items())
def test_normalise(text, expected):
    assert measure.normalise_answer(text) == expected


SCORES = [
    ("the Denver Broncos!", ["Denver Broncos"], 1, 1),
    ("Denver", ["Denver Broncos"], 0, 2 / 3),
    (
        "Broncos",
        ["x", "Denver Broncos", "The Broncos of Denver"],
        0,
        2 / 3,
    ),  # the best of several
    ("a b c", ["b c d", "a c"], 0, 4 / 5),  # "a" is an article
    ("cat cat dog", ["cat dog dog"], 0, 2 / 3),  # words count as often as they occur
    ("café", ["cafe"], 0, 0),
    ("東京 駅", ["東京"], 0, 2 / 3),
    ("", ["France"], 0, 0),
    ("the", ["France"], 0, 0),
    ("", [], 1, 1),
    ("the", [], 1, 1),
    ("France", [], 0, 0),  # no answer
    ("the", ["a", "an"], 1, 1),
    ("x", ["the"], 0, 0),  # nothing left of any gold
    ("", [".", "France"], 0, 0),
    (".", [".", "France"], 0, 0),  # "." is no answer beside another
]


@pytest.mark.parametrize("prediction, golds, exact, f1", SCORES)
def test_scores_of_one_answer(prediction, golds, exact, f1):
    assert measure.score_exact_match(prediction, golds) == exact
    assert measure.score_word_f1(prediction, golds) == pytest.approx(f1, abs=1e-15)


def test_score_of_all_questions():
    golds = [["France"], ["The Normans", "Normans"], ["."]]
    predictions = ["in France", "normans", ""]
    two = measure.compute_mean_exact_match_and_f1(predictions, golds)
    assert two == {"exact": pytest.approx(2 / 3), "span_f1": pytest.approx(8 / 9)}
    assert measure.compute_mean_exact_match_and_f1(
        [*predictions, "x", ""], [*golds, [], []]
    ) == {
        "exact": pytest.approx(3 / 5),
        "span_f1": pytest.approx((8 / 3 + 1) / 5),
        "has_answer_exact": pytest.approx(2 / 3),
        "has_answer_span_f1": pytest.approx(8 / 9),
        "no_answer_exact": 0.5,
        "no_answer_span_f1": 0.5,
    }
    none = ("exact", "span_f1", "no_answer_exact", "no_answer_span_f1")
    assert measure.compute_mean_exact_match_and_f1([""], [[]]) == dict.fromkeys(none, 1)
    assert all(type(value) is float for value in two.values())
    with pytest.raises(ValueError, match="no questions"):
        measure.compute_mean_exact_match_and_f1([], [])
    with pytest.raises(ValueError):
        measure.compute_mean_exact_match_and_f1(["x"], [["x"], ["y"]])
