"""The corpus reader, the pair builder with its recycled epochs, and masking."""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lib.data import corpus
from lib.data.corpus import Masking, Pairs

CLS, SEP, MASK = 1, 2, 3
PARAGRAPHS = Pairs(whole=False)


def put(root, text, name="a.txt"):
    path = root / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# ---- The reader ----


@pytest.mark.parametrize(
    "text",
    [
        "A b .\nC .\n\nD é .\n",
        "\n\nA b .\nC .\n \t\n\n\nD é .",
        b"\xef\xbb\xbf" + "A b .\n  C . \n\nD é .".encode(),
        "A b .\r\nC .\r\n\r\nD é .\r\n",
    ],
)
def test_paragraphs_and_documents(tmp_path, text):
    assert list(corpus.documents(put(tmp_path, text))) == [["A b .", "C ."], ["D é ."]]


def test_several_files_and_short_documents(tmp_path):
    paths = [
        put(tmp_path, "A\nB\nC\nD\nE\n\nF", "a.txt"),
        put(tmp_path, "G\n", "b.txt"),
        put(tmp_path, "", "c.txt"),
    ]
    assert list(corpus.documents(paths)) == [["A", "B", "C", "D", "E"], ["F"], ["G"]]
    assert list(corpus.documents(paths, most=2)) == [["A", "B"], ["C", "D"], ["E"], ["F"], ["G"]]


@pytest.mark.parametrize(
    ("body", "line"),
    [("one\ntwo\nRené\n".encode("latin1"), 3), ("one\n".encode("utf-16"), 1), (b"a\r\nb\r\xff", 3)],
)
def test_another_encoding_is_named_by_file_and_line(tmp_path, body, line):
    with pytest.raises(
        ValueError,
        match=rf"a\.txt:{line}: byte 0x.. is not UTF-8; expected UTF-8 text; fix: .*iconv",
    ):
        list(corpus.documents(put(tmp_path, body)))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(tmp_path, body):
    try:
        for document in corpus.documents(put(tmp_path, body)):
            assert document and all(text.strip() == text != "" for text in document)
    except ValueError as error:
        assert "a.txt:" in str(error) and "fix: " in str(error)


def test_segments_are_documents_or_paragraphs():
    texts = [["a bb", "c"], ["", "d"], [""]]

    def tokenize(texts):
        return [[len(word) for word in text.split()] for text in texts]

    assert list(corpus.tokenized(texts, tokenize)) == [[[1, 2, 1]], [[1]]]
    assert list(corpus.tokenized(texts, tokenize, PARAGRAPHS)) == [[[1, 2], [1]], [[1]]]


# ---- Pairs: token 1000 d + 100 s + i is the i-th of segment s of document d ----


def world(documents=40, segments=5, length=20):
    return [
        [[1000 * (d + 1) + 100 * s + i for i in range(length)] for s in range(segments)]
        for d in range(documents)
    ]


def parts(row):
    first, second = row.ids.index(SEP), len(row.ids) - 1
    assert row.ids[0] == CLS and row.ids[-1] == SEP and row.ids.count(SEP) == 2
    assert row.segments == [0] * (first + 1) + [1] * (second - first)
    return row.ids[1:first], row.ids[first + 1 : second]


def test_a_whole_document_gives_one_pair_with_part_of_another():
    made = world(30, 1, 90)
    rows = list(corpus.pairs(made, (CLS, SEP), seed=0, epoch=0))
    assert len(rows) == 30 and not any(row.is_next for row in rows)
    for number, row in enumerate(rows):
        first, second = parts(row)
        assert (len(first), len(second)) == (63, 62)  # 125 tokens, the longer cut first
        assert {t // 1000 for t in first} == {number + 1} and len(
            {t // 1000 for t in second} - {number + 1}
        ) == 1
        for part in (first, second):
            assert part == list(range(part[0], part[0] + len(part)))  # cut at both ends alone
    assert (
        5 < np.mean([parts(row)[0][0] % 100 for row in rows]) < 22
    )  # a coin for each: 13.5 of 27 off the front


def test_both_kinds_of_pairs_and_no_token_twice_in_one():
    rows = list(corpus.pairs(world(), (CLS, SEP), 0, 0, PARAGRAPHS))
    nexts = 0
    for row in rows:
        first, second = parts(row)
        assert (
            len(row.ids) <= 128 and first and second and len(set(row.ids[1:])) == len(row.ids) - 2
        )
        documents = {t // 1000 for t in first} | {t // 1000 for t in second}
        assert len(documents) == 2 - row.is_next
        if row.is_next:
            assert second[0] // 100 == first[-1] // 100 + 1  # the segment after
        nexts += row.is_next
    assert (
        0.25 < nexts / len(rows) < 0.6
    )  # less than a half: a last segment alone cannot have a next
    told = [part for row in rows for part in parts(row)[: 1 + row.is_next]]
    assert {t // 100 for part in told for t in part} == {
        10 * (d + 1) + s for d in range(40) for s in range(5)
    }


@pytest.mark.parametrize(("share", "expected"), [(0.0, {True}), (1.0, {False})])
def test_share_of_random_second_parts(share, expected):
    documents = world(10, 2, 20)
    rows = list(
        corpus.pairs(documents, (CLS, SEP), 0, 0, Pairs(whole=False, random_next=share, short=0.0))
    )
    assert {row.is_next for row in rows} == expected
    assert len(rows) == (
        10 if share == 0 else 20
    )  # segments that a random part displaced come again


def test_other_documents_are_drawn_by_their_segments():
    documents = [[[1000]], [[2000]] * 9, [[3000]]]
    seen = Counter(
        parts(next(corpus.pairs(documents, (CLS, SEP), seed, 0, PARAGRAPHS)))[1][0]
        for seed in range(300)
    )
    assert set(seen) == {2000, 3000} and 0.82 < seen[2000] / 300 < 0.97


def test_epochs_are_recycled():
    made = world()

    def rows(epoch, seed=0, **options):
        return list(corpus.pairs(made, (CLS, SEP), seed, epoch, replace(PARAGRAPHS, **options)))

    assert rows(0) == rows(0) == rows(5) == rows(10) and rows(1) == rows(6)
    assert rows(0) != rows(1) and rows(0) != rows(0, seed=1)
    assert (
        rows(0, recycle=0) == rows(0)
        and rows(5, recycle=0) != rows(0)
        and rows(3, recycle=1) == rows(0)
    )


@given(
    st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=5), min_size=2, max_size=6),
    st.integers(5, 40),
    st.integers(0, 3),
    st.sampled_from([0.0, 0.5, 1.0]),
)
@settings(max_examples=100, deadline=None)
def test_any_lengths_give_full_pairs(lengths, longest, seed, short):
    documents = [
        [[1000 * (d + 1) + 100 * s + i for i in range(n)] for s, n in enumerate(each)]
        for d, each in enumerate(lengths)
    ]
    for row in corpus.pairs(
        documents, (CLS, SEP), seed, 0, Pairs(max_length=longest, whole=False, short=short)
    ):
        first, second = parts(row)
        assert first and second and len(row.ids) <= longest


@pytest.mark.parametrize(("documents", "longest"), [([[[1]]], 128), ([], 128), ([[[1]], [[2]]], 4)])
def test_too_little_to_pair(documents, longest):
    with pytest.raises(
        ValueError, match="expected at least two of both; fix: put blank lines between documents"
    ):
        corpus.pairs(documents, (CLS, SEP), 0, 0, Pairs(max_length=longest))


# ---- Masking ----


def test_shares_of_masked_tokens():
    ids, rng, kinds, count = [CLS, *range(10, 108), SEP], np.random.default_rng(0), Counter(), 0
    for _ in range(600):
        masked, places, labels = corpus.mask(ids, (CLS, SEP), MASK, 100_000, rng)
        assert len(places) == 15 and sorted(places.tolist()) == places.tolist()
        assert labels.tolist() == [ids[i] for i in places]
        assert not {0, 99} & set(places.tolist()) and masked[0] == CLS and masked[-1] == SEP
        untouched = np.delete(np.arange(100), places)
        assert (masked[untouched] == np.array(ids)[untouched]).all()
        kinds["mask"] += int((masked[places] == MASK).sum())
        kinds["same"] += int((masked[places] == labels).sum())
        count += len(places)
    assert abs(kinds["mask"] / count - 0.8) < 0.015 and abs(kinds["same"] / count - 0.1) < 0.012


@pytest.mark.parametrize(
    ("length", "options", "expected"),
    [
        (200, Masking(), 20),
        (200, Masking(most=0), 0),
        (4, Masking(), 1),
        (200, Masking(most=500), 30),
        (10, Masking(share=1.0), 8),
        (2, Masking(), 0),
    ],
)
def test_number_of_predictions(length, options, expected):
    ids = [CLS, *range(10, 8 + length), SEP]
    masked, places, labels = corpus.mask(
        ids, (CLS, SEP), MASK, 1000, np.random.default_rng(0), options
    )
    assert len(places) == len(labels) == expected and len(masked) == length
    if not expected:
        assert masked.tolist() == ids


def test_masking_is_drawn_from_the_generator_alone():
    ids = list(range(10, 110))
    first, second, third = (
        corpus.mask(ids, (), MASK, 1000, np.random.default_rng(seed))[0].tolist()
        for seed in (0, 0, 1)
    )
    assert first == second != third and ids == list(range(10, 110))


def test_wikipedia():
    root = Path(
        os.environ.get("DATA_ROOT", Path(__file__).resolve().parents[2] / "shared" / "data")
    )
    path = root / "wikipedia" / "valid.txt"
    if not path.is_file():
        pytest.skip("Wikipedia's text is not under DATA_ROOT")
    documents = list(corpus.documents(path))
    assert (
        sum(map(len, documents)) + len(documents) - 1 == 6351
    )  # lines, with one blank line between documents
    made = list(
        corpus.tokenized(
            documents, lambda texts: [[10 + len(word) for word in text.split()] for text in texts]
        )
    )
    rows = list(corpus.pairs(made, (CLS, SEP), 0, 0))
    assert len(rows) == len(made) == len(documents) and max(len(row.ids) for row in rows) == 128
