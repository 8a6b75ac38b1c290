"""The corpus reader, and the pair builder with its recycled epochs."""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.data import corpus
from lib.data.corpus import Pairs

CLS, SEP = 1, 2
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
    assert list(corpus.documents([put(tmp_path, text)])) == [["A b .", "C ."], ["D é ."]]


def test_several_files_and_short_documents(tmp_path):
    texts = {"a.txt": "A\nB\nC\nD\nE\n\nF", "b.txt": "G\n", "c.txt": ""}
    paths = [put(tmp_path, text, name) for name, text in texts.items()]
    assert list(corpus.documents(paths)) == [["A", "B", "C", "D", "E"], ["F"], ["G"]]
    assert list(corpus.documents(paths, most=2)) == [["A", "B"], ["C", "D"], ["E"], ["F"], ["G"]]


def test_segments_are_documents_or_paragraphs():
    texts = [["a bb", "c"], ["", "d"], [""]]

    def tokenize(texts):
        return [[len(word) for word in text.split()] for text in texts]

    assert list(corpus.tokenized(texts, tokenize)) == [[[1, 2, 1]], [[1]]]
    assert list(corpus.tokenized(texts, tokenize, PARAGRAPHS)) == [[[1, 2], [1]], [[1]]]


# ---- Pairs: token 1000 d + 100 s + i is the i-th of segment s of document d ----


def world(documents=40, segments=5, length=20):
    starts = [[1000 * (d + 1) + 100 * s for s in range(segments)] for d in range(documents)]
    return [[list(range(start, start + length)) for start in each] for each in starts]


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
        assert {t // 1000 for t in first} == {number + 1}
        assert len({t // 1000 for t in second} - {number + 1}) == 1
        for part in (first, second):
            assert part == list(range(part[0], part[0] + len(part)))  # cut at both ends alone
    # a coin for each token: 13.5 of 27 go off the front
    assert 5 < np.mean([parts(row)[0][0] % 100 for row in rows]) < 22


def test_both_kinds_of_pairs_and_no_token_twice_in_one():
    rows = list(corpus.pairs(world(), (CLS, SEP), 0, 0, PARAGRAPHS))
    nexts = 0
    for row in rows:
        first, second = parts(row)
        assert len(row.ids) <= 128 and first and second
        assert len(set(row.ids[1:])) == len(row.ids) - 2
        documents = {t // 1000 for t in first} | {t // 1000 for t in second}
        assert len(documents) == 2 - row.is_next
        if row.is_next:
            assert second[0] // 100 == first[-1] // 100 + 1  # the segment after
        nexts += row.is_next
    assert 0.25 < nexts / len(rows) < 0.6  # a last segment alone cannot have a next
    told = [part for row in rows for part in parts(row)[: 1 + row.is_next]]
    segments = {10 * (d + 1) + s for d in range(40) for s in range(5)}
    assert {t // 100 for part in told for t in part} == segments


@pytest.mark.parametrize(("share", "expected"), [(0.0, {True}), (1.0, {False})])
def test_share_of_random_second_parts(share, expected):
    documents = world(10, 2, 20)
    options = Pairs(whole=False, random_next=share, short=0.0)
    rows = list(corpus.pairs(documents, (CLS, SEP), 0, 0, options))
    assert {row.is_next for row in rows} == expected
    assert len(rows) == (20 if share else 10)  # segments that a random part displaced come again


def test_other_documents_are_drawn_by_their_segments():
    documents = [[[1000]], [[2000]] * 9, [[3000]]]
    drawn = [next(corpus.pairs(documents, (CLS, SEP), s, 0, PARAGRAPHS)) for s in range(300)]
    seen = Counter(parts(row)[1][0] for row in drawn)
    assert set(seen) == {2000, 3000} and 0.82 < seen[2000] / 300 < 0.97


def test_epochs_are_recycled():
    made = world()

    def rows(epoch, seed=0, **options):
        return list(corpus.pairs(made, (CLS, SEP), seed, epoch, replace(PARAGRAPHS, **options)))

    assert rows(0) == rows(0) == rows(5) == rows(10) and rows(1) == rows(6)
    assert rows(0) != rows(1) and rows(0) != rows(0, seed=1)
    assert rows(0, recycle=0) == rows(0) == rows(3, recycle=1) != rows(5, recycle=0)


@given(
    st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=5), min_size=2, max_size=6),
    st.integers(5, 40),
    st.integers(0, 3),
    st.sampled_from([0.0, 0.5, 1.0]),
)
@settings(max_examples=100, deadline=None)
def test_any_lengths_give_full_pairs(lengths, longest, seed, short):
    whole = world(len(lengths), 5, 30)
    documents = [
        [segment[:n] for segment, n in zip(document, each, strict=False)]
        for document, each in zip(whole, lengths, strict=True)
    ]
    options = Pairs(max_length=longest, whole=False, short=short)
    for row in corpus.pairs(documents, (CLS, SEP), seed, 0, options):
        first, second = parts(row)
        assert first and second and len(row.ids) <= longest


@pytest.mark.parametrize(("documents", "longest"), [([[[1]]], 128), ([], 128), ([[[1]], [[2]]], 4)])
def test_too_little_to_pair(documents, longest):
    with pytest.raises(ValueError, match="expected at least two of both; fix: put blank lines"):
        corpus.pairs(documents, (CLS, SEP), 0, 0, Pairs(max_length=longest))


def test_wikipedia():
    root = Path(
        os.environ.get("DATA_ROOT", Path(__file__).resolve().parents[2] / "shared" / "data")
    )
    path = root / "wikipedia" / "valid.txt"
    if not path.is_file():
        pytest.skip("Wikipedia's text is not under DATA_ROOT")
    documents = list(corpus.documents([path]))
    assert sum(map(len, documents)) + len(documents) - 1 == 6351  # lines, blank ones between

    def tokenize(texts):
        return [[10 + len(word) for word in text.split()] for text in texts]

    made = list(corpus.tokenized(documents, tokenize))
    rows = list(corpus.pairs(made, (CLS, SEP), 0, 0))
    assert len(rows) == len(made) == len(documents) and max(len(row.ids) for row in rows) == 128
