"""The corpus reader, and the pair builder with its recycled epochs."""

import numpy as np
import pytest
from conftest import REAL, put
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.data import texts
from lib.papers.efficientbert.corpus import iterate_encoded_segment_pairs

SPECIAL = CLS, SEP = 1, 2


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
    assert list(texts.read_documents([put(tmp_path, "a.txt", text)])) == [
        ["A b .", "C ."],
        ["D é ."],
    ]


def test_several_files_and_short_documents(tmp_path):
    given = {"a.txt": "A\nB\nC\nD\nE\n\nF", "b.txt": "G\n", "c.txt": ""}
    paths = [put(tmp_path, *file) for file in given.items()]
    assert list(texts.read_documents(paths)) == [
        ["A", "B", "C", "D", "E"],
        ["F"],
        ["G"],
    ]
    assert list(texts.read_documents(paths, max_paragraphs_per_document=2)) == [
        ["A", "B"],
        ["C", "D"],
        ["E"],
        ["F"],
        ["G"],
    ]


# ---- Pairs: token 1000 d + i is the i-th of document d, from 1 ----
def world(*lengths):
    return [list(range(1000 * d, 1000 * d + n)) for d, n in enumerate(lengths, 1)]


def parts(row):
    ids = row["input_ids"]
    first, second = ids.index(SEP), len(ids) - 1
    assert ids[0] == CLS and ids[-1] == SEP and ids.count(SEP) == 2
    assert row["token_type_ids"] == [0] * (first + 1) + [1] * (second - first)
    return ids[1:first], ids[first + 1 : second]


def test_a_document_gives_one_pair_with_part_of_another():
    rows = list(
        map(
            parts,
            iterate_encoded_segment_pairs(
                world(*[90] * 30), SPECIAL, 128, seed=0, epoch=0
            ),
        )
    )
    assert len(rows) == 30
    for first, second in rows:
        assert (len(first), len(second)) == (63, 62)  # 125 tokens, the longer cut first
        for part in (first, second):
            assert part == list(
                range(part[0], part[0] + len(part))
            )  # cut at both ends alone
    # a coin for each token: 13.5 of 27 go off the front
    assert 5 < np.mean([first[0] % 1000 for first, _ in rows]) < 22


def test_the_other_document_is_any_of_the_others():
    drawn = [
        next(iterate_encoded_segment_pairs(world(5, 6, 7), SPECIAL, 64, seed, 0))
        for seed in range(200)
    ]
    others = [parts(row)[1][0] // 1000 for row in drawn]
    assert set(others) == {2, 3} and 70 < others.count(2) < 130


def test_epochs_are_recycled():
    def rows(epoch, seed=0):
        return list(
            iterate_encoded_segment_pairs(
                world(*range(20, 60)), SPECIAL, 32, seed, epoch
            )
        )

    assert rows(0) == rows(0) == rows(5) == rows(10) and rows(1) == rows(6)
    assert rows(0) != rows(1) and rows(0) != rows(0, seed=1)


@given(
    st.lists(st.integers(1, 60), min_size=2, max_size=6),
    st.integers(5, 40),
    st.integers(0, 3),
)
@settings(max_examples=100, deadline=None)
def test_any_lengths_give_full_pairs(lengths, longest, seed):
    rows = list(
        map(
            parts,
            iterate_encoded_segment_pairs(world(*lengths), SPECIAL, longest, seed, 0),
        )
    )
    assert [first[0] // 1000 for first, _ in rows] == list(range(1, len(lengths) + 1))
    for first, second in rows:
        other = second[0] // 1000
        assert other != first[0] // 1000
        whole = lengths[first[0] // 1000 - 1] + lengths[other - 1]
        assert len(first) + len(second) == min(whole, longest - 3)


@pytest.mark.parametrize(
    ("documents", "longest"), [([[1]], 128), ([], 128), ([[1], [2]], 4)]
)
def test_too_little_to_pair(documents, longest):
    with pytest.raises(
        ValueError, match="expected at least two of both; fix: put blank lines"
    ):
        list(iterate_encoded_segment_pairs(documents, SPECIAL, longest, 0, 0))


def test_wikipedia():
    path = REAL / "wikipedia" / "valid.txt"
    if not path.is_file():
        pytest.skip("Wikipedia's text is not under DATA_ROOT")
    documents = list(texts.read_documents([path]))
    assert (
        sum(map(len, documents)) + len(documents) - 1 == 6351
    )  # lines, blank ones between
