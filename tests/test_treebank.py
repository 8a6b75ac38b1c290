"""Probing tasks from CoNLL-U: labels of hand-parsed sentences, balance, words kept apart, and every malformed line."""

import os
import re
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lib.data import senteval, treebank

PAST, PRES = "Mood=Ind|Tense=Past|VerbForm=Fin", "Mood=Ind|Tense=Pres|VerbForm=Fin"
ONE, MANY = "Number=Sing", "Number=Plur"


def conllu(*words):
    """Lines of a sentence: (form, lemma, part of speech, features, head, relation) each."""
    return (
        "".join(
            "\t".join([str(i), form, lemma, kind, "_", features, str(head), relation, "_", "_"])
            + "\n"
            for i, (form, lemma, kind, features, head, relation) in enumerate(words, 1)
        )
        + "\n"
    )


def parse(tmp_path, text):
    path = tmp_path / "x.conllu"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return treebank.read(path)


# The dogs slept , but she knows it .
SLEPT = [
    ("The", "the", "DET", "_", 2, "det"),
    ("dogs", "dog", "NOUN", MANY, 3, "nsubj"),
    ("slept", "sleep", "VERB", PAST, 0, "root"),
    (",", ",", "PUNCT", "_", 7, "punct"),
    ("but", "but", "CCONJ", "_", 7, "cc"),
    ("she", "she", "PRON", ONE, 7, "nsubj"),
    ("knows", "know", "VERB", PRES, 3, "conj"),
    ("it", "it", "PRON", ONE, 7, "obj"),
    (".", ".", "PUNCT", "_", 3, "punct"),
]
# He is sure that the cat likes books .
LIKES = [
    ("He", "he", "PRON", ONE, 3, "nsubj"),
    ("is", "be", "AUX", PRES, 3, "cop"),
    ("sure", "sure", "ADJ", "_", 0, "root"),
    ("that", "that", "SCONJ", "_", 7, "mark"),
    ("the", "the", "DET", "_", 6, "det"),
    ("cat", "cat", "NOUN", ONE, 7, "nsubj"),
    ("likes", "like", "VERB", PRES, 3, "ccomp"),
    ("books", "book", "NOUN", MANY, 7, "obj"),
    (".", ".", "PUNCT", "_", 3, "punct"),
]


def changed(words, place, **fields):
    names = ("form", "lemma", "kind", "features", "head", "relation")
    return [
        tuple(fields.get(name, old) for name, old in zip(names, word, strict=True))
        if i == place
        else word
        for i, word in enumerate(words)
    ]


def test_labels_of_hand_parsed_sentences(tmp_path):
    slept, likes = parse(tmp_path, conllu(*SLEPT) + conllu(*LIKES))
    assert treebank.tense(slept) == ("PAST", "sleep")  # the main clause, whatever the other says
    assert treebank.tense(likes) == ("PRES", "like")  # no full verb there: all finite forms agree
    assert (
        treebank.number(slept, "nsubj") == ("NNS", "dog") and treebank.number(slept, "obj") is None
    )
    assert treebank.number(likes, "nsubj") == ("NN", "cat") and treebank.number(likes, "obj") == (
        "NNS",
        "book",
    )
    assert (
        treebank.depths(slept) == [2, 1, 0, 2, 2, 2, 1, 2, 1] and max(treebank.depths(likes)) == 3
    )
    assert (
        treebank.shape(slept) == "nsubj root conj"
        and treebank.shape(likes) == "nsubj cop root ccomp"
    )
    words, longer = treebank.inverted(slept)
    assert " ".join(words) == "She knows it , but the dogs slept ." and longer == 0
    assert treebank.inverted(likes) is None


@pytest.mark.parametrize(
    ("place", "fields", "expected"),
    [
        (1, {"features": PAST}, None),  # was sure that she likes: the clauses disagree
        (
            1,
            {"features": "VerbForm=Fin"},
            None,
        ),  # will be sure that she likes: a modal has no tense
        (1, {"features": "VerbForm=Inf"}, ("PRES", "like")),
        (6, {"features": "VerbForm=Inf"}, None),
    ],
)  # no finite full verb
def test_tense_of_another_clause(tmp_path, place, fields, expected):
    assert treebank.tense(parse(tmp_path, conllu(*changed(LIKES, place, **fields)))[0]) == expected


@pytest.mark.parametrize(
    ("place", "fields", "expected"),
    [
        (0, {"features": MANY}, None),  # they are sure that the cat: they disagree
        (0, {"features": "_"}, ("NN", "cat")),  # a pronoun without number
        (5, {"features": "Number=Ptan"}, None),
        (5, {"kind": "PROPN"}, None),
        (5, {"relation": "nsubj:pass"}, ("NN", "cat")),
    ],
)
def test_number_of_another_clause(tmp_path, place, fields, expected):
    assert (
        treebank.number(parse(tmp_path, conllu(*changed(LIKES, place, **fields)))[0], "nsubj")
        == expected
    )


@pytest.mark.parametrize(
    ("place", "fields", "text"),
    [
        (0, {"form": "I", "kind": "PRON"}, "She knows it , but I dogs slept ."),
        (0, {"kind": "PROPN"}, "She knows it , but The dogs slept ."),
        (0, {"form": "the"}, "she knows it , but the dogs slept ."),
        (3, {"form": "“"}, None),
        (5, {"relation": "dep"}, None),
        (4, {"relation": "dep"}, None),
        (7, {"head": 3}, None),
    ],
)
def test_inversion_keeps_the_capital_in_front_and_takes_whole_clauses(
    tmp_path, place, fields, text
):
    found = treebank.inverted(parse(tmp_path, conllu(*changed(SLEPT, place, **fields)))[0])
    assert (found and " ".join(found[0])) == text


# ---- CoNLL-U ----


def test_ranges_empty_nodes_and_comments(tmp_path):
    text = conllu(*SLEPT).replace(
        "2\tdogs", "1-2\tThedogs" + "\t_" * 8 + "\n1.1\tx" + "\t_" * 8 + "\n2\tdogs", 1
    )
    plain, marked = parse(
        tmp_path, f"# newdoc id = a\n# text = x\n{conllu(*SLEPT)}\n\n# sent_id = 2\n{text.rstrip()}"
    )
    assert (
        plain == marked and plain.words[:2] == ("The", "dogs") and "newdoc id = a" in plain.document
    )
    assert (
        parse(tmp_path, b"\xef\xbb\xbf" + conllu(*SLEPT).replace("\n", "\r\n").encode())[0].words
        == plain.words
    )
    assert parse(tmp_path, "# nothing\n\n") == []


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("2 dogs dog", "1 field"),
        ("2\tdogs" + "\t_" * 7, "9 field"),
        ("2\tdogs" + "\t_" * 9, "11 field"),
        ("2\t\tdog\tNOUN\t_\t_\t3\tnsubj\t_\t_", "1 empty"),
        ("3\tdogs\tdog\tNOUN\t_\t_\t3\tnsubj\t_\t_", "number '3'; expected 2"),
        ("x\tdogs\tdog\tNOUN\t_\t_\t3\tnsubj\t_\t_", "number 'x'"),
        ("²\tdogs\tdog\tNOUN\t_\t_\t3\tnsubj\t_\t_", "number '²'"),
        ("2\tdogs\tdog\tNOUN\t_\t_\t10\tnsubj\t_\t_", "head '10'; expected 0 to 9"),
        ("2\tdogs\tdog\tNOUN\t_\t_\t_\tnsubj\t_\t_", "head '_'"),
        ("2\tdogs\tdog\tNOUN\t_\t_\t-1\tnsubj\t_\t_", "head '-1'"),
    ],
)
def test_a_malformed_line_is_named_by_file_and_line(tmp_path, line, what):
    lines = f"# sent_id = 1\n{conllu(*SLEPT)}".split("\n")
    lines[2] = line
    with pytest.raises(ValueError, match=rf"x\.conllu:3: .*{re.escape(what)}.*fix: "):
        parse(tmp_path, "\n".join(lines))


@pytest.mark.parametrize(
    ("place", "head", "what"),
    [(2, 7, "0 root"), (6, 0, "2 root"), (1, 2, "circle"), (0, 1, "circle")],
)
def test_no_tree_is_named_by_its_first_line(tmp_path, place, head, what):
    with pytest.raises(ValueError, match=rf"x\.conllu:12: .*{what}"):
        parse(tmp_path, f"# one\n{conllu(*LIKES)}{conllu(*changed(SLEPT, place, head=head))}")


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.integers(0, 8),
    st.integers(0, 9),
    st.text(max_size=6) | st.integers(-2, 12).map(str),
    st.binary(max_size=20),
)
@example(1, 6, "9" * 5000, b"")
def test_any_damage_is_read_or_refused(tmp_path, line, field, text, tail):
    lines = [each.split("\t") for each in conllu(*SLEPT).splitlines()[:-1]]
    lines[line][field] = text
    body = (
        "\n".join("\t".join(each) for each in lines).encode("utf-8", "surrogatepass") + b"\n" + tail
    )
    try:
        for sentence in parse(tmp_path, body):
            treebank.tense(sentence), treebank.number(sentence, "obj"), treebank.shape(sentence)
            treebank.inverted(sentence)
    except ValueError as error:
        assert re.match(rf"{re.escape(str(tmp_path / 'x.conllu'))}:\d+: ", str(error))


# ---- A treebank made here ----

NOUNS = [f"{first}{last}" for first, last in product("bdfgklmnprst", ("an", "ell", "ork", "ust"))]
VERBS = [f"{first}{last}" for first, last in product("bdfgklmnprst", ("arn", "eep", "ill", "omp"))]


def made(root, folder="made"):
    """A folder of 960 sentences "the NOUN VERB a NOUN (and it VERB it (now now now))", each a document."""
    root = root / folder
    root.mkdir(exist_ok=True)
    rng, texts = np.random.default_rng(1), []
    for i in range(960):
        a, b, c, d = (*rng.permutation(NOUNS)[:2].tolist(), *rng.permutation(VERBS)[:2].tolist())
        past, many, more = (rng.random(3) < 0.5).tolist()
        words = [
            ("the", "the", "DET", "_", 2, "det"),
            (a + "s" * many, a, "NOUN", MANY if many else ONE, 3, "nsubj"),
            (c + ("ed" if past else ""), c, "VERB", PAST if past else PRES, 0, "root"),
            ("a", "a", "DET", "_", 5, "det"),
            (b + "s" * more, b, "NOUN", MANY if more else ONE, 3, "obj"),
        ]
        if i % 2:
            words += [
                ("and", "and", "CCONJ", "_", 8, "cc"),
                ("it", "it", "PRON", ONE, 8, "nsubj"),
                (d, d, "VERB", PRES, 3, "conj"),
                ("it", "it", "PRON", ONE, 8, "obj"),
            ]
            words += [("now", "now", "ADV", "_", 8, "advmod")] * (3 * (i % 4 == 3))
        texts.append(f"# newdoc id = {i}\n" + conllu(*words))
    texts.append(conllu(("Yes", "yes", "INTJ", "_", 0, "root")))
    for split, part in (
        ("train", texts[:800]),
        ("dev", texts[800:900]),
        ("test", [*texts[900:], texts[0]]),
    ):
        (root / f"xx-ud-{split}.conllu").write_text("".join(part))
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return made(tmp_path_factory.mktemp("treebank"))


HERE = ("BigramShift", "Tense", "SubjNumber", "ObjNumber", "OddManOut", "CoordinationInversion")


@pytest.mark.parametrize("task", HERE)
def test_classes_are_balanced_and_every_sentence_is_asked_once(root, task):
    splits, counts = treebank.load(task, root), treebank._built(task, root)[1]
    for split in splits.values():
        assert len(set(np.bincount(split.y, minlength=2))) == 1 and split.y.dtype == np.int64
    asked = np.concatenate([split.index for split in splits.values()])
    assert (
        len(set(asked)) == len(asked) == counts["rows"]
        and len(splits["train"]) > len(splits["dev"]) > 0
    )
    assert counts["read"] == 962 and counts["length"] == counts["repeated"] == 1
    assert counts["read"] == sum(counts[name] for name in counts if name != "read")
    if task != "OddManOut":
        assert counts["skipped"] == (480 if task == "CoordinationInversion" else 0)


def shown(task, sentence, text):
    """The lemma that a row of the task asks about."""
    if task != "OddManOut":
        found = (
            treebank.tense(sentence)
            if task == "Tense"
            else treebank.number(sentence, "nsubj" if task == "SubjNumber" else "obj")
        )
        return found[1]
    return next(
        (word for word, old in zip(text.split(), sentence.words, strict=True) if word != old), None
    )


@pytest.mark.parametrize("task", ["Tense", "SubjNumber", "ObjNumber", "OddManOut"])
def test_no_asked_word_is_in_two_splits(root, task):
    sentences = treebank._World(root).sentences
    words = [
        {shown(task, sentences[i], text) for i, text in zip(split.index, split.a, strict=True)}
        - {None}
        for split in treebank.load(task, root).values()
    ]
    assert all(words) and sum(map(len, words)) == len(set.union(*words))


def test_what_is_shifted_replaced_and_inverted(root):
    sentences, seen = treebank._World(root).sentences, Counter()
    for task in ("BigramShift", "OddManOut", "CoordinationInversion"):
        for split in treebank.load(task, root).values():
            for text, y, i in zip(split.a, split.y, split.index, strict=True):
                words, old = text.split(), list(sentences[i].words)
                places = [i for i in range(len(old)) if words[i] != old[i]]
                seen[task, int(y)] += 1
                if y == 1:
                    assert words == old
                elif task == "BigramShift":
                    first, second = places
                    assert (
                        second == first + 1
                        and first > 0
                        and words[first : second + 1] == old[first : second + 1][::-1]
                    )
                elif task == "OddManOut":
                    assert len(places) == 1 and words[places[0]] not in ("the", "a", "it")
                    assert words[places[0]].endswith("s") == old[places[0]].endswith(
                        "s"
                    )  # the same form
                else:
                    assert words == old[6:] + ["and"] + old[:5]
    assert len(seen) == 6


def test_documents_are_not_split(root):
    sentences = treebank._World(root).sentences
    found = [
        {sentences[i].document for i in split.index}
        for split in treebank.load("BigramShift", root).values()
    ]
    assert sum(map(len, found)) == len(set.union(*found))


def test_the_same_rows_each_time_and_whatever_else_there_is(root, tmp_path):
    again = made(tmp_path, "again")
    for task in HERE:
        for split, other in zip(
            treebank.load(task, root).values(), treebank.load(task, again).values(), strict=True
        ):
            assert split.a == other.a and (split.y == other.y).all()


def test_too_small_a_treebank_absent_files_and_unknown_tasks(root, tmp_path):
    with pytest.raises(
        ValueError,
        match="no train rows of every class of Length among 960 sentences.*larger treebank",
    ):
        treebank.load("Length", root)
    with pytest.raises(
        FileNotFoundError, match=r"holds 0 files \*-ud-train.conllu, expected one; fix"
    ):
        treebank.load("Tense", tmp_path)
    with pytest.raises(ValueError, match="did you mean 'SubjNumber'"):
        treebank.load("SubjectNumber", root)


def test_tasks_are_those_of_senteval_and_say_what_they_are():
    assert list(treebank.TASKS) == list(senteval.TASKS) == list(treebank.ABOUT)
    for name, task in treebank.TASKS.items():
        assert senteval.FILES[name].removesuffix(".txt") in treebank.about(name)
        assert task.outputs == len(task.labels) > 1
        if len(senteval.TASKS[name].labels) == 2:
            assert task == senteval.TASKS[name]


SIZES = {
    "Length": (6966, 1506, 1416),
    "WordContent": (1400, 300, 350),
    "Depth": (1464, 312, 260),
    "TopConstituents": (2240, 470, 450),
    "BigramShift": (8228, 1742, 1756),
    "Tense": (2672, 636, 668),
    "SubjNumber": (1358, 302, 416),
    "ObjNumber": (1742, 384, 514),
    "OddManOut": (7324, 1554, 1566),
    "CoordinationInversion": (616, 126, 128),
}


@pytest.mark.parametrize("task", treebank.TASKS)
def test_english_ewt(task):
    root = (
        Path(os.environ.get("DATA_ROOT", Path(__file__).resolve().parents[2] / "shared" / "data"))
        / "ud_english_ewt"
    )
    if not root.is_dir():
        pytest.skip("the English Web Treebank is not under DATA_ROOT")
    splits, classes = treebank.load(task, root), treebank.TASKS[task].labels
    assert tuple(map(len, splits.values())) == SIZES[task]
    assert all(
        len(set(np.bincount(split.y, minlength=len(classes)))) == 1 for split in splits.values()
    )
    assert "/".join(f"{rows:,}" for rows in SIZES[task]) in treebank.about(task, root)
    assert len(treebank.labels(task, root)) == len(classes)
    texts = [set(split.a) for split in splits.values()]
    assert sum(map(len, texts)) == len(set.union(*texts)) == sum(SIZES[task])
    if task in ("Tense", "SubjNumber", "ObjNumber"):
        sentences = treebank._World(root).sentences
        words = [{shown(task, sentences[i], "") for i in split.index} for split in splits.values()]
        assert sum(map(len, words)) == len(set.union(*words))
    if task == "Depth":  # length says nothing about the class
        for split in splits.values():
            lengths = np.array([len(text.split(" ")) for text in split.a])
            assert (
                len({tuple(np.sort(lengths[split.y == code])) for code in range(len(classes))}) == 1
            )
