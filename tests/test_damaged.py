"""Damaged files, for all readers: errors name the file, the place, what is allowed and
the fix."""

import gzip
import json
import re

import numpy as np
import pytest
from conftest import put
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_digits import idx
from test_squad import ONE
from test_treebank import LIKES, SLEPT, changed, conllu

from lib import data
from lib.data import read, texts, treebank
from lib.papers.nas_pruning import digits

PAIR = "index\tsentence1\tsentence2\tlabel\n"
PROBE = 'tr\tPAST\tShe shone .\ntr\tPRES\tHe knows .\nva\tPRES\tIt is .\nte\tPAST\tI " went .\n'
TREES = f"# one\n{conllu(*LIKES)}{conllu(*SLEPT)}"


IMAGES, LABELS = idx(np.zeros((3, 28, 28))), idx(np.arange(3))
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
DIGITS = {TEST_IMAGES: IMAGES, TEST_LABELS: LABELS}
DIGITS |= {name.replace("t10k", "train"): body for name, body in DIGITS.items()}
# {file: (good contents, what reads its folder)}
READERS = {
    "RTE/train.tsv": (
        PAIR + "0\ta\tb\t1\n1\tc\td\t0\n",
        lambda root: read.load("RTE", root),
    ),
    "past_present.txt": (PROBE, lambda root: read.load("Tense", root)),
    "dev-v1.1.json": (
        json.dumps(ONE, indent=1),
        lambda root: read.load("SQuAD1", root),
    ),
    "x.conllu": (TREES, lambda root: treebank.read_sentences(root / "x.conllu")),
    "a.txt": (
        "one\ntwo\n\nthree\n",
        lambda root: list(texts.read_documents([root / "a.txt"])),
    ),
    TEST_IMAGES: (IMAGES, lambda root: digits.load_digit_images(root)),
}
TEXTS = [name for name in READERS if name != TEST_IMAGES]


def laid(root, name, content):
    if name.endswith(("-ubyte", ".gz")):
        for other, body in DIGITS.items():
            put(root, other, body)
    digits.load_digit_images.cache_clear()
    return put(root, name, content)


def found_by(root, name):
    """What the reader of a file makes of its folder."""
    if "/" in name:
        return read.load(name.split("/")[0], root)
    for task, row in read.LAYOUTS.items():
        if name in row["files"].values() and row["source"] != "glue":
            return read.load(task, root)
    return READERS[name if name in READERS else TEST_IMAGES][1](root)


def refused(root, name, content, message):
    path = laid(root, name, content)
    with pytest.raises(ValueError, match=message) as caught:
        found_by(root, name)
    said = str(caught.value)
    assert said.startswith(str(path)) and "; expected " in said and "; fix: " in said
    assert "\n" not in said


def rows(split):
    return split.a, split.b, split.y.tolist()


@pytest.mark.parametrize("name", TEXTS)
def test_another_encoding_is_named(tmp_path, name):
    latin = READERS[name][0].encode() + b'"\xe9'
    refused(tmp_path, name, latin, "byte 0xe9 .*; expected UTF-8 text; fix: .*iconv")


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda t: t + "\n \n",
    ],
    ids=["mark", "crlf", "blank end"],
)
def test_the_same_rows_whatever_the_form(tmp_path, name, change):
    laid(tmp_path, name, READERS[name][0])
    plain = found_by(tmp_path, name)
    laid(tmp_path, name, change(READERS[name][0]))
    found = found_by(tmp_path, name)
    if isinstance(plain, list):
        assert found == plain
    else:
        assert {k: rows(v) for k, v in found.items()} == {
            k: rows(v) for k, v in plain.items()
        }


@pytest.mark.parametrize("name", READERS)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    at=st.integers(0, 2400),
    cut=st.integers(0, 9),
    new=st.binary(max_size=6)
    | st.text(alphabet="ab\t\n\r\"{}[],:0129-_'\x0c\u2028é", max_size=6).map(str.encode)
    | st.sampled_from([b"tr\t", b"\t7\t", b'"id"', b"null"]),
)
@example(at=0, cut=0, new=b"\x80")
def test_any_damage_is_read_or_refused(tmp_path, name, at, cut, new):
    good = READERS[name][0]
    good = good if isinstance(good, bytes) else good.encode()
    at %= len(good)
    laid(tmp_path, name, good[:at] + new + good[at + cut :])
    try:
        found_by(tmp_path, name)
    except ValueError as error:
        said = str(error)
        assert str(tmp_path) in said and "; expected " in said and "; fix: " in said
        assert name not in TEXTS or re.match(
            rf"{re.escape(str(tmp_path / name))}: ?\S", said
        )


SCORED = PAIR.replace("label", "score")
PARTS = ("tr", "va", "te")
NO_TREE = "no tree before this line; expected 10 cells"
FILES = [
    (
        "RTE/train.tsv",
        PAIR + "0\ta\tb\t1\n1\ta\tb\n",
        r":3: 3 field\(s\) in '1 .*; expected 4 as",
    ),
    (
        "RTE/train.tsv",
        PAIR + "0\ta\tb\tc\t1\n",
        r":2: 5 field\(s\).*expected 4.*separators",
    ),
    (
        "RTE/train.tsv",
        PAIR + "0\ta\tb\tentails\n",
        ":2: label 'entails'; expected entailment, n",
    ),
    ("RTE/train.tsv", PAIR + "0\ta\tb\t-1\n", ":2: label '-1'"),
    (
        "RTE/train.tsv",
        PAIR + "0\ta\tb\t\n",
        ":2: nothing in a cell of '0 .*expected texts and a la",
    ),
    ("RTE/train.tsv", PAIR + "0\ta\t \t1\n", ":2: nothing in a cell"),
    ("RTE/train.tsv", PAIR, ":1: no rows"),
    ("RTE/train.tsv", "", ": no rows; expected a header line"),
    (
        "RTE/train.tsv",
        "0\ta\tb\t1\n",
        ":1: .*without sentence1, sentence2, label; .*header line",
    ),
    ("RTE/train.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n", ":1: .*without label"),
    ("CoLA/train.tsv", "gj04\t1\t\tA.\ngj04\t1\tB.\n", r":2: 3 field\(s\).*expected 4"),
    ("CoLA/train.tsv", "gj04\t1\t\t\n", ":1: nothing in a cell"),
    (
        "STS-B/train.tsv",
        SCORED + "0\ta\tb\t5.001\n",
        ":2: label '5.001'; expected a score from 0",
    ),
    ("STS-B/train.tsv", SCORED + "0\ta\tb\t-0.2\n", ":2: label '-0.2'"),
    ("STS-B/train.tsv", SCORED + "0\ta\tb\tnan\n", ":2: label 'nan'"),
    (
        "QQP/train.tsv",
        "question1\tquestion2\tis_duplicate\n\t\t1\n",
        ":2: nothing in a cell",
    ),
    (
        "past_present.txt",
        f"{PROBE}xx\tPAST\tShe .\n",
        "2 train, 1 dev, 1 test of 5 rows; expected tr",
    ),
    ("past_present.txt", f"{PROBE}tr\tPAST\n", r":5: 2 field\(s\)"),
    (
        "past_present.txt",
        f"{PROBE}tr\tFUTURE\tShe .\n",
        "label 'FUTURE'; expected PAST, PRES",
    ),
    *(
        ("past_present.txt", re.sub(f"{p}.*\n", "", PROBE), "tr, va or te bef")
        for p in PARTS
    ),
    (
        "word_content.txt",
        "tr\ta\ta .\nva\tb\tb .\nte\ta\ta .\n",
        ":2: label 'b'; expected a;",
    ),
    ("x.conllu", TREES.replace("2\tdogs", "2 dogs"), NO_TREE),
    ("x.conllu", TREES.replace("2\tdogs", "2\tdogs\tdogs"), NO_TREE),
    ("x.conllu", TREES.replace("2\tdogs", "3\tdogs"), NO_TREE),
    *(
        (
            "x.conllu",
            f"# one\n{conllu(*LIKES)}{conllu(*changed(SLEPT, at, head=head))}",
            ":21: no t",
        )
        for at, head in ((2, 7), (6, 0), (1, 2), (0, 1), (1, 10), (1, "_"))
    ),
]


@pytest.mark.parametrize("name, content, message", FILES)
def test_rows(tmp_path, name, content, message):
    refused(tmp_path, name, content, message)


def other(*keys, to=None):
    """ONE with the value at a path of keys replaced, or removed."""
    whole = node = json.loads(json.dumps(ONE))
    *path, last = keys
    for key in path:
        node = node[key]
    if to is None:
        del node[last]
    else:
        node[last] = to
    return json.dumps(whole)


PASSAGE = ("data", 0, "paragraphs", 0)
QUESTION = (*PASSAGE, "qas", 1)
ANSWER = (*PASSAGE, "qas", 0, "answers", 0)
START, TEXT = (*ANSWER, "answer_start"), (*ANSWER, "text")
SQUAD = [
    (b"", "Expecting value: line 1 column 1 .*; expected JSON"),
    (b'{"data":\n\n [,]}', "line 3 column 3"),
    (b'{"data": ' + b"[" * 100_000, "recursion.*expected JSON"),
    ("[1]", "object is not subscriptable.*; expected SQuAD's layout, data"),
    ('{"questions": []}', "KeyError.'data'.*; expected SQuAD's layout"),
    ('{"data": []}', "no questions; expected some"),
    (other(*PASSAGE, "context"), "'context'.*; expected SQuAD's layout"),
    (other(*PASSAGE, "context", to=7), "'int' object .*; expected SQuAD's layout"),
    (
        other(*QUESTION, "answers", to=[]),
        "question 'n2' has the answers .*; expected text",
    ),
    (other(*TEXT), "'text'.*; expected SQuAD's layout"),
    (
        other(*START, to=72),
        "question 'n1' has the answers .*'France', 72.*; expected text that be",
    ),
    (other(*TEXT, to=""), "question 'n1' has the answers"),
]


@pytest.mark.parametrize("content, message", SQUAD)
def test_squad(tmp_path, content, message):
    refused(tmp_path, "dev-v1.1.json", content, message)


@pytest.mark.parametrize(
    "name, content, message",
    [
        (TEST_IMAGES, LABELS, "; expected a whole idx file of 3 dimension"),
        (TEST_LABELS, IMAGES[:-1], "; expected a whole idx file of 1 dimension"),
        (TEST_IMAGES, IMAGES[:-1], "2351 .*; expected a whole idx"),
        (TEST_IMAGES, IMAGES + b"x", "2353 .*; expected a whole idx"),
        (TEST_IMAGES, b"", "; expected a whole idx"),
        (TEST_IMAGES, gzip.compress(IMAGES, mtime=0)[:-20], "; expected a whole idx"),
        (
            TEST_IMAGES,
            gzip.compress(IMAGES, mtime=0)[:40] + b"\0" * 60,
            "; expected a whole idx",
        ),
    ],
)
def test_digits(tmp_path, name, content, message):
    refused(tmp_path, name, content, message)


@pytest.mark.parametrize(
    ("source", "task", "meant"),
    [("glue", "CoLa", "CoLA"), ("treebank", "tense", "Tense")],
)
def test_unknown_tasks(source, task, meant):
    with pytest.raises(ValueError, match=f"did you mean '{meant}'"):
        data.read_splits(source, task)


@pytest.mark.parametrize("load", [read.load, treebank.load])
def test_tasks_without_files(tmp_path, load):
    for task in ("CoLA", "SQuAD1", "Tense") if load is read.load else ("Tense",):
        with pytest.raises(FileNotFoundError, match="fix: "):
            load(task, tmp_path)
