"""SQuAD: official files and their damage, windows over passages, answers out of logits, and the official scores."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import ByteLevelBPETokenizer
from transformers import BertTokenizerFast, RobertaTokenizerFast

from lib.data import Split, spans, squad
from lib.measure import squad as measure
from lib.train.batches import collate

NORMANS = "The Normans (Norman: Nourmands) gave their name to Normandy, a region in France."
CAFE = "Café Zoë opened in 1911 🎉 near 東京 station; naïve visitors paid 5¢."


def qa(name, question, *answers, **more):
    return {
        "id": name,
        "question": question,
        "answers": [{"text": t, "answer_start": s} for t, s in answers],
    } | more


def tree(*paragraphs):
    return {
        "version": "x",
        "data": [{"title": "T", "paragraphs": [{"context": c, "qas": q} for c, q in paragraphs]}],
    }


ONE = tree(
    (
        NORMANS,
        [
            qa("n1", " Where is Normandy? ", ("France", 73), ("in France", 70)),
            qa("n2", "Who?", ("The Normans", 0)),
        ],
    ),
    (CAFE, [qa("c1", "Where?", ("near 東京", 26))]),
)
TWO = tree(
    (
        NORMANS,
        [
            qa("n1", "Where?", ("France", 73), is_impossible=False),
            qa(
                "n3",
                "When?",
                is_impossible=True,
                plausible_answers=[{"text": "no", "answer_start": 1}],
            ),
        ],
    )
)


def put(root, name, content):
    root.mkdir(parents=True, exist_ok=True)
    path = root / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def changed(keys, value=None):
    """ONE with the value at a path of keys replaced, or removed."""
    whole = json.loads(json.dumps(ONE))
    node = whole
    for key in keys[:-1]:
        node = node[key]
    if value is None:
        del node[keys[-1]]
    else:
        node[keys[-1]] = value
    return whole


QAS = ("data", 0, "paragraphs", 0, "qas")
ANSWER = (*QAS, 0, "answers", 0)


# Files


def test_rows(tmp_path):
    put(tmp_path, "train-v1.1.json", ONE)
    put(tmp_path, "dev-v1.1.json", b"\xef\xbb\xbf" + json.dumps(ONE, ensure_ascii=False).encode())
    put(tmp_path, "dev-v2.0.json", TWO)
    one, two = squad.load("SQuAD1", tmp_path), squad.load("SQuAD2", tmp_path)
    assert list(one) == ["train", "dev"] and list(two) == ["dev"]
    train = one["train"]
    assert train.a == one["dev"].a == ["Where is Normandy?", "Who?", "Where?"]
    assert train.b == one["dev"].b == [NORMANS, NORMANS, CAFE]
    assert train.answers == [["France", "in France"], ["The Normans"], ["near 東京"]]
    assert train.y.tolist() == [[73, 79], [0, 11], [26, 33]] and train.y.dtype == np.int64
    assert train.index.tolist() == [0, 1, 2] and train.index.dtype == np.int64
    assert CAFE[slice(*train.y[2])] == "near 東京"
    assert two["dev"].answers == [["France"], []] and two["dev"].y.tolist() == [[73, 79], [-1, -1]]
    assert squad.TASKS["SQuAD1"].span and squad.TASKS["SQuAD2"].outputs == 2
    assert squad.TASKS["SQuAD2"].metrics == ("span_f1", "exact")


def test_stand_ins_are_read_in_order_and_give_way(tmp_path):
    second = tree((CAFE, [qa("z", "Near what?", ("station", 34))]))
    put(tmp_path, "train-v1.1.sample.json", second)
    put(tmp_path, "train-v1.1.prefix.json", ONE)
    put(tmp_path, "reqa-train-10k.json", b"[]")
    put(tmp_path, "dev-v2.0.half.json", TWO)
    train = squad.load("SQuAD1", tmp_path)["train"]
    assert train.a == [
        "Where is Normandy?",
        "Who?",
        "Where?",
        "Near what?",
    ] and train.index.tolist() == [0, 1, 2, 3]
    assert [p.name for p in squad.files("SQuAD1", tmp_path)["train"]] == [
        "train-v1.1.prefix.json",
        "train-v1.1.sample.json",
    ]
    assert len(squad.load("SQuAD2", tmp_path)["dev"]) == 2
    put(tmp_path, "train-v1.1.json", second)
    assert squad.load("SQuAD1", tmp_path)["train"].a == ["Near what?"]


def test_a_question_in_two_stand_ins(tmp_path):
    put(tmp_path, "train-v1.1.a.json", ONE)
    put(tmp_path, "train-v1.1.b.json", ONE)
    with pytest.raises(
        ValueError, match=r"b\.json: question 'n1': not the first of this id; expected .*fix: drop"
    ):
        squad.load("SQuAD1", tmp_path)


def test_missing(tmp_path):
    for root in (tmp_path, tmp_path / "squad"):
        with pytest.raises(
            FileNotFoundError,
            match=r"train-v1\.1\.json or dev-v1\.1\.json .*; fix: .*fetch\('SQuAD1'",
        ):
            squad.load("SQuAD1", root)
    for call in (squad.load, squad.files, squad.fetch):
        with pytest.raises(ValueError, match="did you mean 'SQuAD1'"):
            call("squad1", tmp_path)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", r":1: Expecting value at column 1"),
        (json.dumps(ONE, indent=1).encode()[:150], r":\d+: .* at column \d+; expected JSON"),
        (b'{"data":\n\n [,]}', r":3: Expecting value at column 3"),
        (b'{"data":\n"\xe9"}', r":2: byte 0xe9 is not UTF-8; expected UTF-8"),
        (b'{"data": ' + b"[" * 100_000, r"recursion.*expected JSON"),
        (b'{"data": ' + b"1" * 5_000 + b"}", r"limit.*expected JSON"),
        ([], r"\$: a list; expected an object"),
        ({"questions": []}, r"\$: no 'data'; expected an object with data"),
        ({"data": {}}, r"\$\.data: an object; expected a list"),
        ({"data": []}, r"no questions; expected some in data\[\]"),
        (changed(("data", 0, "paragraphs")), r"\$\.data\[0\]: no 'paragraphs'"),
        (
            changed(("data", 0, "paragraphs", 1, "context")),
            r"\$\.data\[0\]\.paragraphs\[1\]: no 'context'",
        ),
        (
            changed(("data", 0, "paragraphs", 0, "context"), 7),
            r"paragraphs\[0\]\.context: 7; expected text",
        ),
        (
            changed(("data", 0, "paragraphs", 0, "context"), "\ud800"),
            r"context: '\\ud800'; expected text",
        ),
        (
            changed((*QAS, 1, "id")),
            r"qas\[1\]: no 'id'; expected an object with id, question, answers",
        ),
        (changed((*QAS, 1, "question")), r"qas\[1\] \(question 'n2'\): no 'question'"),
        (
            changed((*QAS, 1, "question"), ["?"]),
            r"\(question 'n2'\)\.question: a list; expected text",
        ),
        (
            changed((*QAS, 1, "answers"), {"text": ["The Normans"], "answer_start": [0]}),
            r"\(question 'n2'\)\.answers: an object; expected a list",
        ),
        (changed((*ANSWER, "text")), r"\(question 'n1'\)\.answers\[0\]: no 'text'"),
        (changed((*ANSWER, "answer_start"), True), r"answer_start: True; expected a whole number"),
        (changed((*ANSWER, "answer_start"), 73.0), r"answer_start: 73.0; expected a whole number"),
        (
            changed((*ANSWER, "answer_start"), 72),
            r"question 'n1': answer 'France' at character 72, where the passage reads "
            r"' Franc'; expected .*fix: answer_start 73",
        ),
        (changed((*ANSWER, "answer_start"), -7), r"at character -7, .*fix: answer_start 73"),
        (changed((*ANSWER, "answer_start"), 10**30), r"reads ''; .*fix: answer_start 73"),
        (
            changed((*ANSWER, "text"), "Spain"),
            r"'Spain' at character 73, where .* 'Franc'; .*fix: drop the question",
        ),
        (changed((*ANSWER, "text"), ""), r"answer '' at character 73"),
        (
            changed((*QAS, 1, "answers"), []),
            r"question 'n2': 0 answers; expected none where .*v1\.1 at least one",
        ),
        (changed((*QAS, 1, "id"), "n1"), r"question 'n1': not the first"),
    ],
)
def test_malformed(tmp_path, content, message):
    path = put(tmp_path, "dev-v1.1.json", content)
    with pytest.raises(ValueError, match=message) as caught:
        squad.load("SQuAD1", tmp_path)
    said = str(caught.value)
    assert said.startswith(f"{path}:") and "; expected " in said and "; fix: " in said


@pytest.mark.parametrize(
    "answers, impossible", [([], False), ([("France", 73)], True), ([], 1), ([], "yes")]
)
def test_is_impossible_contradicts(tmp_path, answers, impossible):
    put(
        tmp_path,
        "dev-v2.0.json",
        tree((NORMANS, [qa("q", "?", *answers, is_impossible=impossible)])),
    )
    with pytest.raises(
        ValueError, match=r"question 'q': \d answers; expected none where is_impossible is true"
    ):
        squad.load("SQuAD2", tmp_path)


KEYS = st.text(max_size=3) | st.sampled_from(["data", "id", "qas"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def damaged(draw):
    """ONE with some value replaced by any other, then perhaps some byte."""
    whole = node = json.loads(json.dumps(ONE))
    while True:
        key = (
            draw(st.sampled_from(sorted(node)))
            if isinstance(node, dict)
            else draw(st.integers(0, len(node) - 1))
        )
        if not isinstance(node[key], dict | list) or not node[key] or draw(st.integers(0, 3)) == 0:
            break
        node = node[key]
    node[key] = draw(JSON)
    content = json.dumps(whole).encode()
    if draw(st.booleans()):
        at = draw(st.integers(0, len(content)))
        content = (
            content[:at] + draw(st.binary(max_size=2)) + content[at + draw(st.integers(0, 9)) :]
        )
    return content


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(damaged(), st.sampled_from(["SQuAD1", "SQuAD2"]))
def test_any_file_loads_or_names_the_place(tmp_path, content, task):
    path = put(tmp_path, "dev-v1.1.json" if task == "SQuAD1" else "dev-v2.0.json", content)
    try:
        split = squad.load(task, tmp_path)["dev"]
    except ValueError as error:
        assert (
            str(error).startswith(f"{path}:")
            and "; expected " in str(error)
            and "; fix: " in str(error)
        )
    else:
        for (start, end), passage, answers in zip(split.y, split.b, split.answers, strict=True):
            assert passage[start:end] == answers[0] if answers else (start, end) == (-1, -1)
        "".join(split.a + split.b).encode()


def test_torch_is_not_imported():
    code = (
        "import sys, lib.data.squad, lib.measure.squad\n"
        "sys.exit(', '.join({'torch', 'transformers', 'datasets'} & set(sys.modules)) or 0)"
    )
    subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).resolve().parents[1], check=True
    )


# The hub


def hub(*trees):
    """Rows as the hub has them."""
    import datasets

    def rows(whole):
        return [
            {
                "id": q["id"],
                "title": article["title"],
                "context": p["context"],
                "question": q["question"],
                "answers": {
                    k: [each[k] for each in q["answers"]] for k in ("text", "answer_start")
                },
            }
            for article in whole["data"]
            for p in article["paragraphs"]
            for q in p["qas"]
        ]

    kinds = datasets.Features(
        {name: datasets.Value("string") for name in ("id", "title", "context", "question")}
        | {
            "answers": datasets.Sequence(
                {"text": datasets.Value("string"), "answer_start": datasets.Value("int32")}
            )
        }
    )
    return datasets.DatasetDict(
        {
            split: datasets.Dataset.from_list(rows(whole), kinds)
            for split, whole in zip(("train", "validation"), trees, strict=False)
        }
    )


@pytest.mark.parametrize("task, whole, version", [("SQuAD1", ONE, "1.1"), ("SQuAD2", TWO, "v2.0")])
def test_fetch_then_load_gives_the_same_rows(tmp_path, task, whole, version):
    calls = []

    def loader(*call):
        calls.append(call)
        return hub(whole, whole)

    assert squad.fetch(task, tmp_path / "new", loader) == tmp_path / "new"
    assert calls == [({"SQuAD1": "rajpurkar/squad", "SQuAD2": "rajpurkar/squad_v2"}[task],)]
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == [f"{split}-v{version[-3:]}.json" for split in ("dev", "train")]
    written = json.loads((tmp_path / "new" / names[0]).read_text())
    expected = json.loads(json.dumps(whole)) | {"version": version}
    for q in (q for p in expected["data"][0]["paragraphs"] for q in p["qas"]):
        q.pop("plausible_answers", None)
    assert written == expected
    put(tmp_path / "old", names[0], whole)
    old, new = squad.load(task, tmp_path / "old")["dev"], squad.load(task, tmp_path / "new")["dev"]
    assert (old.a, old.b, old.answers, old.y.tolist()) == (
        new.a,
        new.b,
        new.answers,
        new.y.tolist(),
    )
    with pytest.raises(FileExistsError, match=r"already holds train-.*, dev-"):
        squad.fetch(task, tmp_path / "new", loader)


def test_fetch_without_a_network_or_a_split(tmp_path):
    def broken(_):
        raise OSError("no route\nto host")

    for loader, reason in ((broken, "no route"), (lambda _: hub(ONE), "validation")):
        with pytest.raises(
            ConnectionError, match=f"SQuAD1 cannot .*{reason}.*fix: .*train-v1.1.json and dev-v1.1"
        ):
            squad.fetch("SQuAD1", tmp_path / "squad", loader)
    assert not (tmp_path / "squad").exists()


# Windows

WORDS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] the norman ##s ( : ) gave their name to normandy , a region in france . where "
    "is who ? nou ##rm ##and cafe zoe opened 1911 near station ; naive visitors paid 5 東 京 ¢ "
    "w0 w1 w2 w3 w4 w5 w6 w7 w8 w9"
).split()


@pytest.fixture(scope="module")
def bert():
    return BertTokenizerFast({word: i for i, word in enumerate(WORDS)}, do_lower_case=True)


@pytest.fixture(scope="module")
def roberta():
    base = ByteLevelBPETokenizer()
    base.train_from_iterator(
        [NORMANS, "Where is the name?"] * 9,
        vocab_size=330,
        min_frequency=2,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
    )
    model = json.loads(base.to_str())["model"]
    return RobertaTokenizerFast(
        vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]]
    )


def rows(*given):
    """A Split of (question, passage, answer text or None)."""
    y = [(p.index(t), p.index(t) + len(t)) if t else (-1, -1) for _, p, t in given]
    return Split(
        [q for q, _, _ in given],
        [p for _, p, _ in given],
        np.array(y),
        np.arange(len(given)),
        [[t] if t else [] for _, _, t in given],
    )


LONG = " ".join(f"w{i % 10}" for i in range(50))


def test_a_short_passage_is_one_window(bert):
    split = rows(
        ("Who?", NORMANS, "The Normans"), ("Where is?", NORMANS, "France"), ("Who?", NORMANS, None)
    )
    found = spans.features(bert, split, 64, 16)
    assert len(found) == 3 and found.row.tolist() == [0, 1, 2] and found.first.tolist() == [4, 5, 4]
    whole = bert(split.a, split.b)
    for name in ("input_ids", "token_type_ids"):
        assert [each.tolist() for each in found.encoded.columns[name]] == whole[name]
    labels = found.encoded.labels
    assert (
        labels.dtype == torch.int64
        and labels[2].tolist() == [0, 0]
        and labels[0].tolist() == [4, 6]
    )
    assert (
        bert.decode(found.encoded.columns["input_ids"][1][labels[1, 0] : labels[1, 1] + 1])
        == "france"
    )
    assert [NORMANS[slice(*spot)] for spot in found.offsets[0][:3]] == ["The", "Norman", "s"]
    assert all(each.all() for each in found.fullest)
    batch = collate(found.encoded, [0, 1])
    assert (
        batch["input_ids"].shape == batch["token_type_ids"].shape == batch["attention_mask"].shape
    )


@pytest.mark.parametrize("name", ["bert", "roberta"])
@pytest.mark.parametrize("stride", [1, 7, 16, 1000])
def test_windows_are_those_of_the_tokenizer(request, name, stride):
    tokenizer = request.getfixturevalue(name)
    split = rows(("Who?", LONG, "w3"), ("Who?", CAFE, "1911"), ("Who?", NORMANS, "France"))
    found = spans.features(tokenizer, split, 24, stride)
    room = 24 - found.first[0] - 1
    assert found.first[0] == tokenizer("Who?", LONG).sequence_ids(0).index(1)
    whole = tokenizer(
        split.a,
        split.b,
        truncation="only_second",
        max_length=24,
        stride=max(0, room - stride),
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    assert found.row.tolist() == whole["overflow_to_sample_mapping"]
    assert set(found.encoded.columns) == {"input_ids", "token_type_ids"} & set(
        tokenizer.model_input_names
    )
    for column, values in found.encoded.columns.items():
        assert [each.tolist() for each in values] == whole[column]
    for w, spots in enumerate(found.offsets):
        mine = [i for i, side in enumerate(whole.sequence_ids(w)) if side == 1]
        assert found.first[w] == mine[0]
        assert [tuple(spot) for spot in spots] == [whole["offset_mapping"][w][i] for i in mine]


def test_an_answer_in_the_overlap_is_labelled_in_both_windows(bert):
    at = [3 * i for i in range(50)]  # characters of the words
    split = Split(
        ["Who?"],
        [LONG],
        np.array([[at[9], at[11] + 2]]),
        np.arange(1),
        [[LONG[at[9] : at[11] + 2]]],
    )
    found = spans.features(bert, split, 25, 8)
    assert [len(each) for each in found.offsets] == [
        20,
        20,
        20,
        20,
        18,
    ]  # of 50, from 0, 8, 16, 24, 32
    assert found.encoded.labels.tolist() == [[13, 15], [5, 7], [0, 0], [0, 0], [0, 0]]
    # each word has one window where it stands best: word 13 has 6 to its right in the first, 5 to its left in the next
    best = np.zeros(50, int)
    for w, own in enumerate(found.fullest):
        best[8 * w : 8 * w + len(own)] += own
    assert (best == 1).all() and found.fullest[0].tolist() == [True] * 14 + [False] * 6
    # cut by the end of the first window, whole in the second
    split = Split(["Who?"], [LONG], np.array([[at[19], at[20] + 2]]), np.arange(1), [[""]])
    assert spans.features(bert, split, 25, 8).encoded.labels.tolist() == [
        [0, 0],
        [15, 16],
        [7, 8],
        [0, 0],
        [0, 0],
    ]


def test_questions_are_cut_and_must_leave_room(bert):
    split = rows((LONG, NORMANS, "France"))
    found = spans.features(bert, split, 30, 8, max_query=6)
    assert found.first[0] == 8 and found.encoded.columns["input_ids"][0][
        3
    ] == bert.convert_tokens_to_ids("w2")
    with pytest.raises(
        ValueError, match="question of row 0, of 50 tokens, .*max_length 30; fix: .*lower max_query"
    ):
        spans.features(bert, split, 30, 8)
    with pytest.raises(ValueError, match="stride 0"):
        spans.features(bert, split, 30, 0)


def test_answers_of_parts_of_words_and_of_nothing(bert):
    passage = "Normans\u200b gave \u0301 region"
    split = Split(
        ["?"] * 3, [passage] * 3, np.array([[0, 6], [7, 8], [14, 15]]), np.arange(3), [["x"]] * 3
    )
    found = spans.features(bert, split, 32, 8)
    labels = found.encoded.labels.tolist()
    assert labels[0] == [3, 3]  # "norman" of "norman ##s"
    assert labels[1] == labels[2] == [0, 0]  # characters of no token
    inside = Split(["?"], ["w1 w2"], np.array([[1, 2]]), np.arange(1), [["1"]])
    assert spans.features(bert, inside, 32, 8).encoded.labels.tolist() == [
        [3, 3]
    ]  # the whole token around it


def test_bytes_of_one_character_are_labelled_whole(roberta):
    split = rows(("Who?", CAFE, "🎉"), ("Who?", CAFE, "Zoë"))
    found = spans.features(roberta, split, 128, 32)
    assert (
        found.first[0] == len(roberta("Who?")["input_ids"]) + 1
        and "token_type_ids" not in found.encoded.columns
    )
    tokens = found.encoded.columns["input_ids"]
    for (first, last), ids, text in zip(found.encoded.labels, tokens, ("🎉", "Zoë"), strict=True):
        assert last - first >= 2 and roberta.decode(ids[first : last + 1]).strip() == text


def test_tokenizers_of_another_kind_are_refused(bert):
    from tokenizers import processors

    other = BertTokenizerFast(bert.get_vocab())
    other.backend_tokenizer.post_processor = processors.TemplateProcessing(
        "$A [SEP] [CLS]",
        "$A [SEP] $B:1 [SEP]:1 [CLS]:2",
        [(name, other.convert_tokens_to_ids(name)) for name in ("[SEP]", "[CLS]")],
    )
    with pytest.raises(ValueError, match="cannot make windows; expected a fast tokenizer"):
        spans.features(other, rows(("Who?", NORMANS, None)), 32, 8)


# Answers


def logits(features, places, size=64):
    """[W, size] zeros with 9 and 7 at the (window, start token, end token) given."""
    start, end = np.zeros((2, len(features), size), np.float32)
    for w, i, j in places:
        start[w, i] += 9
        end[w, j] += 7
    return start, end


def test_the_best_span_across_windows_and_no_answer(bert):
    split = rows(("Who?", LONG, "w3"), ("Who?", "The Normans in France", None))
    found = spans.features(bert, split, 25, 8)
    assert found.row.tolist() == [0] * 5 + [1]
    start, end = logits(found, [(1, 10, 12), (5, 0, 0)])
    texts, differences = spans.best_spans(start, end, found, split)
    assert (
        texts[0] == "w4 w5 w6" and differences[0] == -16
    )  # the least null score of its windows is 0
    assert texts[1] == "The" and differences[1] == 16  # the first of equals
    assert spans.answers(start, end, found, split) == ["w4 w5 w6", "The"]
    assert spans.answers(start, end, found, split, null_threshold=0.0) == ["w4 w5 w6", ""]
    assert spans.answers(start, end, found, split, null_threshold=16.0) == [
        "w4 w5 w6",
        "The",
    ]  # not more than that
    assert spans.answers(start, end, found, split, null_threshold=-17.0) == ["", ""]


def test_invalid_spans_are_not_answers(bert):
    split = rows(("Who?", LONG, "w3"))
    found = spans.features(bert, split, 25, 8)

    def best(*places, **options):
        return spans.answers(*logits(found, places), found, split, **options)

    assert best((0, 9, 7)) == ["w5"]  # the end before the start
    assert best((0, 2, 24), (0, 6, 6)) == ["w2"]  # in the question, on [SEP]
    assert best((0, 5, 15), max_answer=11) == [" ".join(LONG.split()[1:12])]
    assert best((0, 5, 15), max_answer=10) != [" ".join(LONG.split()[1:12])]
    assert best((0, 23, 24)) == ["w0"]  # word 19 begins an answer in a later window alone
    empty = rows(("Who?", "\u200b", None))
    nothing = spans.features(bert, empty, 25, 8)
    assert (
        spans.answers(*logits(nothing, []), nothing, empty) == [""] and len(nothing.offsets[0]) == 0
    )
    start, end = logits(found, [(w, 0, 1) for w in range(5)])
    texts, differences = spans.best_spans(start, end, found, split, n_best=1)
    assert texts == [""] and differences.tolist() == [np.inf]  # no valid span at all
    assert spans.answers(start, end, found, split, n_best=1, null_threshold=99.0) == [""]


def slow(start, end, found, split, n_best, max_answer):
    """The definition, in loops: [(best sum, text), null] of each row."""
    result = [[(-np.inf, ""), np.inf] for _ in range(len(split))]
    for w, row in enumerate(found.row):
        size, first = len(found.encoded.columns["input_ids"][w]), found.first[w]
        tops = [
            sorted(range(size), key=lambda t, s=scores[w]: -s[t])[:n_best]
            for scores in (start, end)
        ]
        result[row][1] = min(result[row][1], float(start[w][0]) + float(end[w][0]))
        for i in tops[0]:
            for j in tops[1]:
                inside = all(0 <= t - first < len(found.offsets[w]) for t in (i, j))
                if not inside or j < i or j - i + 1 > max_answer or not found.fullest[w][i - first]:
                    continue
                total = float(start[w][i]) + float(end[w][j])
                if total > result[row][0][0]:
                    spot = found.offsets[w]
                    result[row][0] = total, split.b[row][spot[i - first, 0] : spot[j - first, 1]]
    return result


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    stride=st.integers(1, 20),
    n_best=st.integers(1, 12),
    max_answer=st.integers(1, 9),
)
def test_answers_are_those_of_the_definition(bert, seed, stride, n_best, max_answer):
    split = rows(("Who?", LONG, None), ("Where is?", NORMANS, None), ("Who?", CAFE, None))
    found = spans.features(bert, split, 24, stride)
    random = np.random.default_rng(seed)
    start, end = random.integers(-9, 9, (2, len(found), 24)).astype(np.float32)  # with many ties
    texts, differences = spans.best_spans(start, end, found, split, n_best, max_answer)
    expected = slow(start, end, found, split, n_best, max_answer)
    assert texts == [text for (_, text), _ in expected]
    assert differences.tolist() == [null - best for (best, _), null in expected]


def test_wrong_logits(bert):
    split = rows(("Who?", NORMANS, None))
    found = spans.features(bert, split, 64, 8)
    start, end = logits(found, [])
    spans.answers([start[0][: len(found.encoded.columns["input_ids"][0])]], list(end), found, split)
    for wrong in (start[:, :9], start * np.nan, start[:, :, None]):
        with pytest.raises(ValueError, match=r"window 0 \(row 0\) are not 2\d numbers"):
            spans.answers(wrong, end, found, split)
    with pytest.raises(ValueError, match="logits of 0 starts, 1 ends for 1 windows"):
        spans.answers(start[:0], end, found, split)


# Scores: what the official scripts give, worked out by hand


@pytest.mark.parametrize(
    "text, expected",
    [
        ("The  Cat, an  a-b!", "cat ab"),
        ("theatre another a1", "theatre another a1"),
        ("A", ""),
        (" .?! ", ""),
        ("", ""),
        ("U.S.A.", "usa"),
        ("the-the", "thethe"),
        ("É ÉTÉ", "é été"),
        ("an\u00a0apple\t\n", "apple"),
        ("“the” end—a", "“ ” end—"),
        ("5¢ ٪", "5¢ ٪"),
        ("ＴＨＥ", "ｔｈｅ"),
    ],
)
def test_normalise(text, expected):
    assert measure.normalise(text) == expected


@pytest.mark.parametrize(
    "prediction, golds, exact, f1",
    [
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
        (".", [".", "France"], 0, 0),
    ],
)  # "." is no answer beside another
def test_scores_of_one_answer(prediction, golds, exact, f1):
    assert measure.exact(prediction, golds) == exact
    assert measure.span_f1(prediction, golds) == pytest.approx(f1, abs=1e-15)


def test_the_first_version_takes_empty_golds_as_they_are():
    assert (
        measure.exact(".", [".", "France"], version=1) == measure.exact("", ["the"], version=1) == 1
    )
    assert (
        measure.span_f1(".", [".", "France"], version=1)
        == measure.span_f1("", ["the"], version=1)
        == 0
    )
    assert measure.span_f1("in France", ["France"], version=1) == pytest.approx(2 / 3)
    for metric in (measure.exact, measure.span_f1):
        with pytest.raises(ValueError, match="take version 2"):
            metric("", [], version=1)


def test_score_of_both_versions():
    golds = [["France"], ["The Normans", "Normans"], ["."]]
    predictions = ["in France", "normans", ""]
    one = measure.score(predictions, golds)
    assert one == {"exact": pytest.approx(2 / 3), "span_f1": pytest.approx(5 / 9)}
    two = measure.score(predictions, golds, version=2)
    assert (
        two["span_f1"] == two["has_answer_span_f1"] == pytest.approx(8 / 9)
        and "no_answer_exact" not in two
    )
    assert measure.score([*predictions, "x", ""], [*golds, [], []]) == {
        "exact": pytest.approx(3 / 5),
        "span_f1": pytest.approx((8 / 3 + 1) / 5),
        "has_answer_exact": pytest.approx(2 / 3),
        "has_answer_span_f1": pytest.approx(8 / 9),
        "no_answer_exact": 0.5,
        "no_answer_span_f1": 0.5,
    }
    assert measure.score([""], [[]]) == {
        "exact": 1,
        "span_f1": 1,
        "no_answer_exact": 1,
        "no_answer_span_f1": 1,
    }
    assert all(type(value) is float for value in two.values())
    for wrong in (([], []), (["x"], [["x"], ["y"]])):
        with pytest.raises(ValueError, match="expected one each"):
            measure.score(*wrong)


def test_best_threshold_by_hand():
    answers = [["France"], [], ["x"], []]
    # by difference: right (+1), none (-1), right (+1), none (-1), upon 2 of 4 for answering nothing
    found = measure.best_threshold(["France", "y", "x", "z"], [-3.0, 0.5, 1.0, 7.0], answers)
    assert found == (-3.0, 0.75)
    assert measure.best_threshold(["France", "", "x", "z"], [-3.0, 0.5, 1.0, 7.0], answers) == (
        1.0,
        1.0,
    )
    # probabilities, nothing right: the official start
    assert measure.best_threshold(["w", "y", "v", "z"], [0.1, 0.2, 0.3, 0.4], answers) == (0.0, 0.5)
    assert measure.best_threshold(["in France", "", "", ""], [0.1] * 4, answers, measure.exact) == (
        0.0,
        0.5,
    )
    with pytest.raises(ValueError, match="1 differences, 2 questions"):
        measure.best_threshold(["x", "y"], [0.0], [["x"], []])
    for wrong in (np.nan, -np.inf):
        with pytest.raises(ValueError, match="not numbers"):
            measure.best_threshold(["x"], [wrong], [["x"]])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "x", "x y", "the"]),
            st.sampled_from([-2.0, 0.0, 0.5, 3.0, np.inf]),
            st.sampled_from([[], ["x"], ["x y"], ["x y z", "y"]]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_best_threshold_is_had_and_beaten_by_none(cases):
    texts, differences, answers = map(list, zip(*cases, strict=True))

    def at(threshold):
        taken = [
            "" if more > threshold else text for text, more in zip(texts, differences, strict=True)
        ]
        return measure.score(taken, answers, version=2)["span_f1"]

    threshold, value = measure.best_threshold(texts, differences, answers)
    assert at(threshold) == pytest.approx(value)
    assert all(at(other) <= value + 1e-12 for other in (-np.inf, -3.0, *differences))


# Real data

ROOT = Path(os.environ.get("DATA_ROOT", Path(__file__).resolve().parents[2] / "shared" / "data"))
ROWS = {
    ("SQuAD1", "train-v1.1.json"): 87_599,
    ("SQuAD1", "dev-v1.1.json"): 10_570,
    ("SQuAD2", "train-v2.0.json"): 130_319,
    ("SQuAD2", "dev-v2.0.json"): 11_873,
    ("SQuAD1", "train-v1.1.prefix.json"): 4_373,
    ("SQuAD1", "train-v1.1.sample.json"): 3_395,
    ("SQuAD2", "dev-v2.0.cs224n-half.json"): 6_078,
}


@pytest.fixture(scope="module")
def real():
    """{task: splits} of what is there."""
    found = {}
    for task in squad.TASKS:
        try:
            found[task] = squad.load(task, ROOT / "squad")
        except FileNotFoundError:
            continue
    if not found:
        pytest.skip(f"no SQuAD files in {ROOT / 'squad'}: set DATA_ROOT to the folder above it")
    return found


@pytest.fixture(scope="module")
def uncased():
    path = ROOT / "vocab" / "bert-base-uncased-vocab.txt"
    if not path.is_file():
        pytest.skip(f"no vocabulary at {path}: set DATA_ROOT to the folder above vocab")
    return BertTokenizerFast(str(path), do_lower_case=True)


def test_real_row_counts(real):
    for task, splits in real.items():
        for split, paths in squad.files(task, ROOT / "squad").items():
            assert len(splits[split]) == sum(ROWS[task, path.name] for path in paths)
            assert all(splits[split].answers) == (task == "SQuAD1")
    if "dev" in real.get("SQuAD1", {}):
        dev = real["SQuAD1"]["dev"]
        assert measure.score([golds[0] for golds in dev.answers], dev.answers) == {
            "exact": 1.0,
            "span_f1": 1.0,
        }


@pytest.mark.parametrize(
    "task, length, stride, query",
    [("SQuAD1", 384, 128, 64), ("SQuAD1", 128, 32, 62), ("SQuAD2", 384, 128, 64)],
)
def test_real_answers_come_back_from_their_labels(real, uncased, task, length, stride, query):
    split = real.get(task, {}).get("dev")
    if split is None:
        pytest.skip(f"no development set of {task} in {ROOT / 'squad'}")
    found = spans.features(uncased, split, length, stride, query)
    sizes, labels = found.encoded.lengths(), found.encoded.labels.numpy()
    assert sizes.max() == length and set(found.row) == set(range(len(split)))
    has = np.array([bool(golds) for golds in split.answers])
    labelled = np.zeros(len(split), bool)
    labelled[found.row[labels[:, 0] > 0]] = True
    np.testing.assert_array_equal(labelled, has)
    right = np.zeros(len(split), bool)
    for w in np.flatnonzero(labels[:, 0]):
        row, (first, last) = found.row[w], labels[w] - found.first[w]
        start, end = found.offsets[w][first, 0], found.offsets[w][last, 1]
        assert start <= split.y[row, 0] < split.y[row, 1] <= end
        right[row] |= measure.normalise(split.b[row][start:end]) == measure.normalise(
            split.answers[row][0]
        )
    assert (has & ~right).sum() <= 0.004 * len(
        split
    )  # answers that end inside a word piece, as "gold" in "golden"
    begun = time.perf_counter()
    marks = np.arange(int(sizes.max()))
    start, end = (
        -np.abs(marks - labels[:, k, None]).astype(np.float32)
        - 50 * (labels[:, :1] == 0) * (marks > 0)
        for k in (0, 1)
    )
    texts, differences = spans.best_spans(start, end, found, split, max_answer=64)
    limit = 0 if task == "SQuAD2" else np.inf
    taken = ["" if more > limit else text for text, more in zip(texts, differences, strict=True)]
    result = measure.score(taken, split.answers)
    assert result["exact"] >= 1 - 0.004 and result["span_f1"] >= 0.997
    assert time.perf_counter() - begun < 15
