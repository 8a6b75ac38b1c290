"""Damaged files, for all readers: errors name the file, the place, what is allowed and the fix."""

import gzip
import json
import re

import numpy as np
import pytest
from conftest import put
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_digits import idx
from test_squad import NORMANS, ONE, qa, tree
from test_treebank import LIKES, SLEPT, changed, conllu

from lib.data import digits, read, texts, treebank

PAIR = "index\tsentence1\tsentence2\tlabel\n"
PROBE = 'tr\tPAST\tShe shone .\ntr\tPRES\tHe knows .\nva\tPRES\tIt is .\nte\tPAST\tI " went .\n'
TREES = f"# one\n{conllu(*LIKES)}{conllu(*SLEPT)}"


IMAGES, LABELS = idx(np.zeros((3, 28, 28))), idx(np.arange(3))
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
DIGITS = {TEST_IMAGES: IMAGES, TEST_LABELS: LABELS}
DIGITS |= {name.replace("t10k", "train"): body for name, body in DIGITS.items()}
# {file: (good contents, what reads its folder)}
READERS = {
    "RTE/train.tsv": (PAIR + "0\ta\tb\t1\n1\tc\td\t0\n", lambda root: read.load("RTE", root)),
    "past_present.txt": (PROBE, lambda root: read.load("Tense", root)),
    "dev-v1.1.json": (json.dumps(ONE, indent=1), lambda root: read.load("SQuAD1", root)),
    "x.conllu": (TREES, lambda root: treebank.read(root / "x.conllu")),
    "a.txt": ("one\ntwo\n\nthree\n", lambda root: list(texts.read([root / "a.txt"]))),
    TEST_IMAGES: (IMAGES, lambda root: digits.load(root)),
}
TEXTS = [name for name in READERS if name != TEST_IMAGES]


def laid(root, name, content):
    if name.endswith(("-ubyte", ".gz")):
        for other, body in DIGITS.items():
            put(root, other, body)
    digits.load.cache_clear()
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
def test_another_encoding_is_named_by_file_and_line(tmp_path, name):
    lines = READERS[name][0].encode().splitlines(keepends=True)
    latin = b"".join([*lines[:2], b'"\xe9', *lines[2:]])
    refused(tmp_path, name, latin, r":3: byte 0xe9 is not UTF-8; expected UTF-8 text; fix: .*iconv")


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize(
    "change",
    [lambda text: "\ufeff" + text, lambda text: text.replace("\n", "\r\n"), lambda t: t + "\n \n"],
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
        assert {k: rows(v) for k, v in found.items()} == {k: rows(v) for k, v in plain.items()}


@pytest.mark.parametrize("name", READERS)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    at=st.integers(0, 2400),
    cut=st.integers(0, 9),
    new=st.binary(max_size=6)
    | st.text(alphabet="ab\t\n\r\"{}[],:0129-_'\x0c\u2028é", max_size=6).map(str.encode)
    | st.sampled_from([b"tr\t", b"\t7\t", b'"id"', b"null", b"9" * 5000]),
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
        assert name not in TEXTS or re.match(rf"{re.escape(str(tmp_path / name))}: ?\S", said)


SCORED = PAIR.replace("label", "score")
GLUE = [
    (
        "RTE",
        PAIR + "0\ta\tb\t1\n1\ta\tb\n",
        r":3: 3 field\(s\) in '1 | a | b'; expected 4 as .*; fix".replace("|", r"\|"),
    ),
    ("RTE", PAIR + "0\ta\tb\tc\tentailment\n", r":2: 5 field\(s\).*expected 4.*remove separators"),
    (
        "RTE",
        PAIR + "0\ta\tb\tentails\n",
        ":2: label 'entails'; expected entailment, not_entailment; fix: ",
    ),
    ("RTE", PAIR + "0\ta\tb\t2\n", ":2: label '2'; expected entailment"),
    ("RTE", PAIR + "0\ta\tb\t-1\n", ":2: label '-1'"),
    ("RTE", PAIR + "0\ta\tb\t\n", ":2: nothing in column label; expected text; fix: "),
    ("RTE", PAIR + "0\ta\t \t1\n", ":2: nothing in column sentence2; expected text; fix: "),
    ("RTE", PAIR + "0\t\tb\t1\n", ":2: nothing in column sentence1"),
    ("RTE", PAIR + "0\ta\tb\t1\n\n2\ta\tb\t1\n", r":3: 1 field\(s\)"),
    ("RTE", PAIR, ":1: no rows"),
    ("RTE", "", ": no rows; expected a header line"),
    (
        "RTE",
        "0\ta\tb\t1\n",
        ":1: .*without sentence1, sentence2, label; .*; fix: add a header line",
    ),
    ("RTE", "index\tsentence1\tsentence2\n0\ta\tb\n", ":1: .*without label"),
    ("SST-2", "fine \t1\n", ":1: .*without sentence, label"),
    ("CoLA", "gj04\t1\t\tA.\ngj04\t1\tB.\n", r":2: 3 field\(s\).*expected 4"),
    ("CoLA", "gj04\t2\t\tA.\n", ":1: label '2'; expected unacceptable, acceptable"),
    ("CoLA", "gj04\t1\t\t\n", ":1: nothing in column sentence"),
    ("STS-B", SCORED + "0\ta\tb\t5.001\n", ":2: label '5.001'; expected a score from 0 to 5"),
    ("STS-B", SCORED + "0\ta\tb\t-0.2\n", ":2: label '-0.2'"),
    ("STS-B", SCORED + "0\ta\tb\tnan\n", ":2: label 'nan'"),
    ("QQP", "question1\tquestion2\tis_duplicate\n\t\t1\n", ":2: nothing in column question1"),
]


@pytest.mark.parametrize("task, content, message", GLUE)
def test_glue(tmp_path, task, content, message):
    refused(tmp_path, f"{task}/train.tsv", content, message)


@pytest.mark.parametrize(
    "line, message",
    [
        ("xx\tPAST\tShe went .", "expected tr, va or te"),
        ("tr\tPAST", r"2 field\(s\)"),
        ("tr PAST She went .", r"1 field\(s\)"),
        ("tr\t\tShe went .", "nothing in column label"),
        ("tr\tPAST\t ", "nothing in column sentence"),
        ("", r"1 field\(s\)"),
        ("tr\tFUTURE\tShe will .", "label 'FUTURE'; expected PAST, PRES"),
    ],
)
def test_senteval(tmp_path, line, message):
    first, rest = PROBE.split("\n", 1)
    refused(tmp_path, "past_present.txt", f"{first}\n{line}\n{rest}", rf":2: .*{message}")


@pytest.mark.parametrize("part", ["tr", "va", "te"])
def test_senteval_without_a_split(tmp_path, part):
    content = "".join(line for line in PROBE.splitlines(True) if not line.startswith(part))
    name = read.PARTS[part]
    refused(
        tmp_path, "past_present.txt", content, f": no {name} rows; expected rows of tr, va and te"
    )


WORD = "tr\tapple\tAn apple .\nva\tzebra\tZebra !\nte\tapple\tApple .\n"
MANY = "".join(f"{part}\tw{i}\tw{i} .\n" for part in ("tr", "va", "te") for i in range(1001))


@pytest.mark.parametrize(
    "content, message",
    [
        (WORD, ":2: label 'zebra'; expected apple"),
        (WORD[WORD.index("va") :], "no train rows"),
        (MANY, "1001 words .*; expected at most 1000"),
    ],
)
def test_words_that_are_no_classes(tmp_path, content, message):
    refused(tmp_path, "word_content.txt", content, message)


REST = "\tdogs\tdog\tNOUN\t_\t_\t{}\tnsubj\t_\t_"


@pytest.mark.parametrize(
    "line, message",
    [
        ("2 dogs dog", r"1 field\(s\)"),
        ("2\tdogs" + "\t_" * 7, r"9 field\(s\)"),
        ("2\tdogs" + "\t_" * 9, r"11 field\(s\)"),
        ("2\t\tdog\tNOUN\t_\t_\t3\tnsubj\t_\t_", "1 empty"),
        ("3" + REST.format(3), "number '3'; expected 2"),
        ("²" + REST.format(3), "number '²'"),
        ("2" + REST.format(10), "head '10'; expected 0 to 9"),
        ("2" + REST.format("_"), "head '_'"),
        ("2" + REST.format(-1), "head '-1'"),
    ],
)
def test_treebank(tmp_path, line, message):
    lines = TREES.replace(conllu(*LIKES), "").split("\n")
    refused(tmp_path, "x.conllu", "\n".join([*lines[:2], line, *lines[3:]]), f":3: .*{message}")


@pytest.mark.parametrize(
    "place, head, message", [(2, 7, "0 root"), (6, 0, "2 root"), (1, 2, "circle"), (0, 1, "circle")]
)
def test_no_tree_is_named_by_its_first_line(tmp_path, place, head, message):
    content = f"# one\n{conllu(*LIKES)}{conllu(*changed(SLEPT, place, head=head))}"
    refused(tmp_path, "x.conllu", content, rf":12: .*{message}")


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
COLUMNS = {"text": ["The Normans"], "answer_start": [0]}
SQUAD = [
    (b"", r":1: Expecting value at column 1"),
    (json.dumps(ONE, indent=1)[:150], r":\d+: .* at column \d+; expected JSON"),
    (b'{"data":\n\n [,]}', r":3: Expecting value at column 3"),
    (b'{"data": ' + b"[" * 100_000, r"recursion.*expected JSON"),
    (b'{"data": ' + b"1" * 5_000 + b"}", r"limit.*expected JSON"),
    ("[]", "list indices must be integers .*; expected SQuAD's layout, data"),
    ('{"questions": []}', "no 'data'; expected SQuAD's layout"),
    ('{"data": {}}', "no questions"),
    ('{"data": []}', r"no questions; expected some in SQuAD's layout, data\[\]"),
    ('{"data": [7]}', "'int' object is not subscriptable; expected SQuAD's layout"),
    (other("data", 0, "paragraphs"), "no 'paragraphs'"),
    (other(*PASSAGE, "context"), "no 'context'"),
    (other(*PASSAGE, "context", to=7), "question 'n1': .* 7; expected id, question, context, each"),
    (other(*PASSAGE, "context", to="\ud800"), r"'\\ud800'; expected id, question, context, each"),
    (other(*QUESTION, "id"), "question None: None, .*; expected id, question, context, each"),
    (other(*QUESTION, "question"), "question 'n2': 'n2', None, "),
    (other(*QUESTION, "question", to=["?"]), r"question 'n2': 'n2', \['\?'\], "),
    (
        other(*QUESTION, "answers", to=COLUMNS),
        "'n2': answers .*; expected a list of text and answer_",
    ),
    (other(*QUESTION, "answers", to=[]), r"'n2': 0 answers; expected none where .*v1\.1 at least"),
    (other(*TEXT), r"question 'n1': answers .*; expected a list of text and answer_start"),
    (other(*START, to=True), "True.*; expected .* a whole number"),
    (other(*START, to=73.0), "73.0.*; expected .* a whole number"),
    (other(*START, to=72), "'n1': answer 'France' is not at character 72 of the passage; expected"),
    (other(*START, to=-7), "'France' is not at character -7"),
    (other(*START, to=10**30), "'France' is not at character 1000000"),
    (other(*TEXT, to="Spain"), "'Spain' is not at character 73 .*; fix: mend or drop the question"),
    (other(*TEXT, to=""), "answer '' is not at character 73"),
]


@pytest.mark.parametrize("content, message", SQUAD)
def test_squad(tmp_path, content, message):
    refused(tmp_path, "dev-v1.1.json", content, message)


@pytest.mark.parametrize(
    "answers, impossible", [([], False), ([("France", 73)], True), ([], 1), ([], "yes")]
)
def test_is_impossible_contradicts(tmp_path, answers, impossible):
    content = json.dumps(tree((NORMANS, [qa("q", "?", *answers, is_impossible=impossible)])))
    message = r"question 'q': \d answers; expected none where is_impossible is true"
    refused(tmp_path, "dev-v2.0.json", content, message)


@pytest.mark.parametrize(
    "name, content, message",
    [
        (TEST_IMAGES, LABELS, "magic number 2049; expected 2051"),
        (TEST_LABELS, IMAGES, "magic number 2051; expected 2049"),
        (TEST_IMAGES, IMAGES[:-1], "2,367 bytes for a shape of 3 x 28 x 28; expected 2,368"),
        (TEST_IMAGES, IMAGES + b"x", "2,369 bytes .*; expected 2,368"),
        (TEST_IMAGES, IMAGES[:6], "6 bytes .*; expected"),
        (TEST_IMAGES, b"", "magic number 0"),
        (TEST_IMAGES, idx(np.zeros((0, 28, 28))), "16 bytes"),
        (TEST_LABELS, idx(np.arange(4)), "4 labels; expected 3, one for each image"),
        (TEST_LABELS, idx(np.array([1, 12, 3])), "label 12 in row 1; expected 0 to 9"),
        (TEST_IMAGES, gzip.compress(IMAGES, mtime=0)[:-20], "cannot be unpacked"),
        (TEST_IMAGES, gzip.compress(IMAGES, mtime=0)[:40] + b"\0" * 60, "cannot be unpacked"),
    ],
)
def test_digits(tmp_path, name, content, message):
    refused(tmp_path, name, content, message)


@pytest.mark.parametrize("content, found", [(b"", "0"), (b"<html>", "1013478509")])
def test_gzipped_digits_that_are_not(tmp_path, content, found):
    path = laid(tmp_path, f"{TEST_IMAGES}.gz", content)
    (tmp_path / TEST_IMAGES).unlink()
    with pytest.raises(ValueError, match=f"magic number {found}; expected 2051") as caught:
        digits.load(tmp_path)
    assert str(caught.value).startswith(str(path))


def test_digits_that_are_not_all_there(tmp_path):
    laid(tmp_path, TEST_IMAGES, IMAGES)
    (tmp_path / TEST_LABELS).unlink()
    with pytest.raises(FileNotFoundError, match="t10k-labels-idx1-ubyte is missing in .*; fix: p"):
        digits.load(tmp_path)


@pytest.mark.parametrize("load", [read.load, treebank.load])
def test_unknown_tasks(tmp_path, load):
    with pytest.raises(ValueError, match="did you mean 'CoLA'|allowed"):
        load("CoLa", tmp_path)
    for task in ("CoLA", "SQuAD1", "Tense") if load is read.load else ("Tense",):
        with pytest.raises(FileNotFoundError, match="; fix: |fix: "):
            load(task, tmp_path)
