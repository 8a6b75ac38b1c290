"""Windows over passages, and answers out of logits over them."""

import json

import numpy as np
import pytest
from conftest import REAL
from hypothesis import given, settings
from hypothesis import strategies as st
from test_squad import CAFE, NORMANS
from tokenizers import ByteLevelBPETokenizer
from transformers import BertTokenizerFast, RobertaTokenizerFast

from lib.data import Split, read, spans
from lib.stats import answers as measure

WORDS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] the norman ##s ( : ) gave their name to normandy , a region in "
    "france . where is who ? nou ##rm ##and cafe zoe opened 1911 near station ; naive visitors "
    "paid 5 東 京 ¢ w0 w1 w2 w3 w4 w5 w6 w7 w8 w9"
).split()
LONG = " ".join(f"w{i % 10}" for i in range(50))
AT = [3 * i for i in range(50)]  # the first character of each word of LONG


@pytest.fixture(scope="module")
def bert():
    return BertTokenizerFast(
        {word: i for i, word in enumerate(WORDS)}, do_lower_case=True
    )


@pytest.fixture(scope="module")
def roberta():
    base, special = ByteLevelBPETokenizer(), ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    texts = [NORMANS, "Where is the name?"] * 9
    base.train_from_iterator(
        texts, vocab_size=330, min_frequency=2, special_tokens=special
    )
    model = json.loads(base.to_str())["model"]
    return RobertaTokenizerFast(
        vocab=model["vocab"], merges=list(map(tuple, model["merges"]))
    )


def placed(passage, *places):
    """A Split of one question a place in the passage: first character, one after the
    last."""
    questions, y = ["Who?"] * len(places), np.array(places)
    answers = [[passage[a:b]] if a >= 0 else [] for a, b in places]
    return Split(questions, [passage] * len(places), y, np.arange(len(places)), answers)


def rows(*given):
    """A Split of (question, passage, answer text or None)."""
    questions, passages, texts = map(list, zip(*given, strict=True))
    y = [(p.index(t), p.index(t) + len(t)) if t else (-1, -1) for _, p, t in given]
    answers = [[t] if t else [] for t in texts]
    return Split(questions, passages, np.array(y), np.arange(len(given)), answers)


def test_a_short_passage_is_one_window(bert):
    asked = (("Who?", "The Normans"), ("Where is?", "France"), ("Who?", None))
    split = rows(*((question, NORMANS, answer) for question, answer in asked))
    found = spans.tokenise_questions(bert, split, 64, 16)
    assert found.question_index.tolist() == [
        0,
        1,
        2,
    ] and found.first_passage_token.tolist() == [4, 5, 4]
    whole, labels = bert(split.a, split.b), found.labels
    for name in ("input_ids", "token_type_ids"):
        assert [each.tolist() for each in found.columns[name]] == whole[name]
    assert labels.dtype == np.int64 and labels[[0, 2]].tolist() == [[4, 6], [0, 0]]
    assert (
        bert.decode(found.columns["input_ids"][1][labels[1, 0] : labels[1, 1] + 1])
        == "france"
    )
    assert [NORMANS[slice(*spot)] for spot in found.character_spans[0][:3]] == [
        "The",
        "Norman",
        "s",
    ]
    assert all(each.all() for each in found.has_most_context)


@pytest.mark.parametrize("name", ["bert", "roberta"])
@pytest.mark.parametrize("stride", [1, 7, 16, 1000])
def test_windows_are_those_of_the_tokenizer(request, name, stride):
    tokenizer = request.getfixturevalue(name)
    split = rows(
        ("Who?", LONG, "w3"), ("Who?", CAFE, "1911"), ("Who?", NORMANS, "France")
    )
    found = spans.tokenise_questions(tokenizer, split, 24, stride)
    assert found.first_passage_token[0] == tokenizer("Who?", LONG).sequence_ids(
        0
    ).index(1)
    overlap = max(0, 24 - found.first_passage_token[0] - 1 - stride)
    cut = {"truncation": "only_second", "max_length": 24, "stride": overlap}
    more = {"return_overflowing_tokens": True, "return_offsets_mapping": True}
    whole = tokenizer(split.a, split.b, **cut, **more)
    assert found.question_index.tolist() == whole["overflow_to_sample_mapping"]
    assert set(found.columns) == {"input_ids", "token_type_ids"} & {
        *tokenizer.model_input_names
    }
    for column, values in found.columns.items():
        assert [each.tolist() for each in values] == whole[column]
    for w, spots in enumerate(found.character_spans):
        mine = [i for i, side in enumerate(whole.sequence_ids(w)) if side == 1]
        assert found.first_passage_token[w] == mine[0]
        assert [tuple(spot) for spot in spots] == [
            whole["offset_mapping"][w][i] for i in mine
        ]


def test_an_answer_in_the_overlap_is_labelled_in_both_windows(bert):
    # the second answer is cut by the end of the first window, and whole in the second
    split = placed(LONG, (AT[9], AT[11] + 2), (AT[19], AT[20] + 2))
    found = spans.tokenise_questions(bert, split, 25, 8)
    assert [len(each) for each in found.character_spans[:5]] == [
        20,
        20,
        20,
        20,
        18,
    ]  # from 0, 8, 16, ...
    assert found.labels[:5].tolist() == [[13, 15], [5, 7], [0, 0], [0, 0], [0, 0]]
    assert found.labels[5:].tolist() == [[0, 0], [15, 16], [7, 8], [0, 0], [0, 0]]
    # each word has one window where it stands best: word 13 has 6 to its right in the
    # first, 5 to its left in the next
    best = np.zeros(50, int)
    for w, own in enumerate(found.has_most_context[:5]):
        best[8 * w : 8 * w + len(own)] += own
    assert (best == 1).all() and found.has_most_context[0].tolist() == [True] * 14 + [
        False
    ] * 6


def test_questions_are_cut_and_must_leave_room(bert):
    split = rows((LONG, NORMANS, "France"))
    found = spans.tokenise_questions(bert, split, 30, 8, max_question_tokens=6)
    third = bert.convert_tokens_to_ids("w2")
    assert (
        found.first_passage_token[0] == 8 and found.columns["input_ids"][0][3] == third
    )
    with pytest.raises(
        ValueError, match="has 50 tokens, .*max_length 30; fix: .*lower max_query"
    ):
        spans.tokenise_questions(bert, split, 30, 8)


MARKED = "Normans\u200b gave \u0301 region"
PARTS = [
    (MARKED, (0, 6), [4, 4]),  # "norman" of "norman ##s"
    (MARKED, (7, 8), [0, 0]),  # characters of no token
    (MARKED, (14, 15), [0, 0]),
    ("w1 w2", (1, 2), [4, 4]),  # the whole token around it
]


@pytest.mark.parametrize("passage, place, expected", PARTS)
def test_answers_of_parts_of_words_and_of_nothing(bert, passage, place, expected):
    assert spans.tokenise_questions(
        bert, placed(passage, place), 32, 8
    ).labels.tolist() == [expected]


def test_bytes_of_one_character_are_labelled_whole(roberta):
    found = spans.tokenise_questions(
        roberta, rows(("Who?", CAFE, "🎉"), ("Who?", CAFE, "Zoë")), 128, 32
    )
    assert found.first_passage_token[0] == len(roberta("Who?")["input_ids"]) + 1
    tokens = found.columns["input_ids"]
    assert "token_type_ids" not in found.columns
    for (first, last), ids, text in zip(
        found.labels, tokens, ("🎉", "Zoë"), strict=True
    ):
        assert (
            last - first >= 2 and roberta.decode(ids[first : last + 1]).strip() == text
        )


def logits(features, places, size=64):
    """[W, size] zeros with 9 and 7 at the (window, start token, end token) given."""
    start, end = np.zeros((2, len(features.question_index), size), np.float32)
    for w, i, j in places:
        start[w, i] += 9
        end[w, j] += 7
    return start, end


def best(start, end, found, split, *options, **more):
    """(texts of the best places, how much better no answer scores)."""
    places, differences = spans.find_best_spans(
        start, end, found, split, *options, **more
    )
    return spans.extract_answer_texts(split, places), differences.tolist()


def test_the_best_span_across_windows_and_no_answer(bert):
    split = rows(("Who?", LONG, "w3"), ("Who?", "The Normans in France", None))
    found = spans.tokenise_questions(bert, split, 25, 8)
    assert found.question_index.tolist() == [0] * 5 + [1]
    texts, differences = best(*logits(found, [(1, 10, 12), (5, 0, 0)]), found, split)
    assert texts == ["w4 w5 w6", "The"]  # the first of equals
    assert differences == [
        -16,
        16,
    ]  # the least score of no answer in the windows of a row is 0


def test_there_may_be_no_valid_span(bert):
    split, empty = rows(("Who?", LONG, "w3")), rows(("Who?", "\u200b", None))
    found, none = (
        spans.tokenise_questions(bert, each, 25, 8) for each in (split, empty)
    )
    nothing = logits(found, [(w, 0, 1) for w in range(5)])
    assert best(*nothing, found, split, n_best=1) == ([""], [np.inf])
    assert best(*logits(none, []), none, empty)[0] == [""] and not len(
        none.character_spans[0]
    )
    with pytest.raises(
        ValueError, match="window 0 are not numbers: the model diverged"
    ):
        best(nothing[0] * np.nan, nothing[1], found, split)


def slow(start, end, found, split, n_best, max_answer):
    """The definition, in loops: [(best sum, text), null] of each row."""
    result = [[(-np.inf, ""), np.inf] for _ in range(len(split))]
    for w, row in enumerate(found.question_index):
        size = len(found.columns["input_ids"][w])
        first = found.first_passage_token[w]
        spot = found.character_spans[w]
        result[row][1] = min(result[row][1], float(start[w][0]) + float(end[w][0]))
        tops = [
            sorted(range(size), key=lambda t, s=s[w]: -s[t])[:n_best]
            for s in (start, end)
        ]
        for i, j in ((i, j) for i in tops[0] for j in tops[1]):
            inside = all(0 <= t - first < len(spot) for t in (i, j))
            if (
                not inside
                or j < i
                or j - i + 1 > max_answer
                or not found.has_most_context[w][i - first]
            ):
                continue
            total = float(start[w][i]) + float(end[w][j])
            if total > result[row][0][0]:
                text = split.b[row][spot[i - first, 0] : spot[j - first, 1]]
                result[row][0] = total, text
    return result


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(1, 12), st.integers(1, 9))
def test_answers_are_those_of_the_definition(bert, seed, stride, n_best, max_answer):
    split = rows(
        ("Who?", LONG, None), ("Where is?", NORMANS, None), ("Who?", CAFE, None)
    )
    found = spans.tokenise_questions(bert, split, 24, stride)
    random = np.random.default_rng(seed)
    start, end = random.integers(-9, 9, (2, len(found.question_index), 24)).astype(
        np.float32
    )  # with many ties
    texts, differences = best(start, end, found, split, n_best, max_answer)
    expected = slow(start, end, found, split, n_best, max_answer)
    assert texts == [text for (_, text), _ in expected]
    assert differences == [null - score for (score, _), null in expected]


@pytest.mark.parametrize(
    "task, length, stride", [("SQuAD1", 128, 32), ("SQuAD2", 384, 128)]
)
def test_real_answers_come_back_from_their_labels(task, length, stride):
    words = REAL / "vocab" / "bert-base-uncased-vocab.txt"
    try:
        split = read.load(task, REAL / "squad")["dev"]
    except (FileNotFoundError, KeyError):
        pytest.skip(f"no development set of {task} in {REAL / 'squad'}: set DATA_ROOT")
    if not words.is_file():
        pytest.skip(
            f"no vocabulary at {words}: set DATA_ROOT to the folder above vocab"
        )
    split = split.select_rows(np.arange(0, len(split), 8))
    found = spans.tokenise_questions(
        BertTokenizerFast(str(words)), split, length, stride
    )
    sizes = np.array([len(ids) for ids in found.columns["input_ids"]])
    labels = found.labels
    assert sizes.max() == length and set(found.question_index) == set(range(len(split)))
    labelled = np.isin(np.arange(len(split)), found.question_index[labels[:, 0] > 0])
    assert labelled.tolist() == [bool(golds) for golds in split.answers]
    marks, inside = np.arange(length), labels[:, :1] > 0
    start, end = (
        -np.abs(marks - labels[:, k, None]).astype(np.float32)
        - 50 * ~inside * (marks > 0)
        for k in (0, 1)
    )
    texts, differences = best(start, end, found, split, max_answer_tokens=64)
    limit = 0 if task == "SQuAD2" else np.inf
    taken = [
        "" if more > limit else text
        for text, more in zip(texts, differences, strict=True)
    ]
    result = measure.compute_mean_exact_match_and_f1(taken, split.answers)
    # some answers end inside a word piece, as "gold" in "golden"
    assert result["exact"] >= 0.995 and result["span_f1"] >= 0.997
