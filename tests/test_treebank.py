"""Probing tasks from CoNLL-U: labels of hand-parsed sentences, balance, words kept
apart."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from conftest import put

from lib.data import treebank
from lib.data.read import SENTEVAL

PAST, PRES = "Mood=Ind|Tense=Past|VerbForm=Fin", "Mood=Ind|Tense=Pres|VerbForm=Fin"
ONE, MANY = "Number=Sing", "Number=Plur"
# Form, lemma, part of speech, features, head, relation.
SLEPT = f"""
The the DET _ 2 det
dogs dog NOUN {MANY} 3 nsubj
slept sleep VERB {PAST} 0 root
, , PUNCT _ 7 punct
but but CCONJ _ 7 cc
she she PRON {ONE} 7 nsubj
knows know VERB {PRES} 3 conj
it it PRON {ONE} 7 obj
. . PUNCT _ 3 punct
"""
LIKES = f"""
He he PRON {ONE} 3 nsubj
is be AUX {PRES} 3 cop
sure sure ADJ _ 0 root
that that SCONJ _ 7 mark
the the DET _ 6 det
cat cat NOUN {ONE} 7 nsubj
likes like VERB {PRES} 3 ccomp
books book NOUN {MANY} 7 obj
. . PUNCT _ 3 punct
"""
SLEPT, LIKES = (
    [line.split() for line in each.strip().splitlines()] for each in (SLEPT, LIKES)
)
FIELDS = ("form", "lemma", "kind", "features", "head", "relation")


def conllu(*words):
    """Lines of a sentence of such words."""
    lines = []
    for i, (form, lemma, kind, features, head, relation) in enumerate(words, 1):
        cells = i, form, lemma, kind, "_", features, head, relation, "_", "_"
        lines.append("\t".join(map(str, cells)) + "\n")
    return "".join(lines) + "\n"


def changed(words, place, **fields):
    """The words with other fields of one of them."""
    word = dict(zip(FIELDS, words[place], strict=True)) | fields
    return [*words[:place], tuple(word.values()), *words[place + 1 :]]


def parse(tmp_path, text):
    return treebank.read_sentences(put(tmp_path, "x.conllu", text))


def test_labels_of_hand_parsed_sentences(tmp_path):
    slept, likes = parse(tmp_path, conllu(*SLEPT) + conllu(*LIKES))
    assert treebank.find_tense_and_verb_lemma(slept) == (
        "PAST",
        "sleep",
    )  # the main clause, whatever the other says
    assert treebank.find_tense_and_verb_lemma(likes) == (
        "PRES",
        "like",
    )  # no full verb there: all finite forms agree
    assert treebank.find_grammatical_number_and_noun_lemma(slept, "nsubj") == (
        "NNS",
        "dog",
    )
    assert treebank.find_grammatical_number_and_noun_lemma(slept, "obj") is None
    assert treebank.find_grammatical_number_and_noun_lemma(likes, "nsubj") == (
        "NN",
        "cat",
    )
    assert treebank.find_grammatical_number_and_noun_lemma(likes, "obj") == (
        "NNS",
        "book",
    )
    assert treebank.compute_word_depths(slept) == [2, 1, 0, 2, 2, 2, 1, 2, 1]
    assert max(treebank.compute_word_depths(likes)) == 3
    assert treebank.format_top_constituents(slept) == "nsubj root conj"
    assert treebank.format_top_constituents(likes) == "nsubj cop root ccomp"
    words, longer = treebank.swap_clauses_and_compare_lengths(slept)
    assert " ".join(words) == "She knows it , but the dogs slept ." and longer == 0
    assert treebank.swap_clauses_and_compare_lengths(likes) is None


def subject(sentence):
    return treebank.find_grammatical_number_and_noun_lemma(sentence, "nsubj")


@pytest.mark.parametrize(
    "ask, place, fields, expected",
    [
        (
            treebank.find_tense_and_verb_lemma,
            1,
            {"features": PAST},
            None,
        ),  # was sure that she likes: they disagree
        (
            treebank.find_tense_and_verb_lemma,
            1,
            {"features": "VerbForm=Fin"},
            None,
        ),  # will be sure: no tense
        (
            treebank.find_tense_and_verb_lemma,
            1,
            {"features": "VerbForm=Inf"},
            ("PRES", "like"),
        ),
        (
            treebank.find_tense_and_verb_lemma,
            6,
            {"features": "VerbForm=Inf"},
            None,
        ),  # no finite full verb
        (
            subject,
            0,
            {"features": MANY},
            None,
        ),  # they are sure that the cat: they disagree
        (subject, 0, {"features": "_"}, ("NN", "cat")),  # a pronoun without number
        (subject, 5, {"features": "Number=Ptan"}, None),
        (subject, 5, {"kind": "PROPN"}, None),
        (subject, 5, {"relation": "nsubj:pass"}, ("NN", "cat")),
    ],
)
def test_another_clause(tmp_path, ask, place, fields, expected):
    assert ask(parse(tmp_path, conllu(*changed(LIKES, place, **fields)))[0]) == expected


@pytest.mark.parametrize(
    "place, fields, text",
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
    found = treebank.swap_clauses_and_compare_lengths(
        parse(tmp_path, conllu(*changed(SLEPT, place, **fields)))[0]
    )
    assert (found and " ".join(found[0])) == text


def test_ranges_empty_nodes_and_comments(tmp_path):
    range_, empty = (
        "\t".join([name, *"_" * 8]) + "\n" for name in ("1-2\tThedogs", "1.1\tx")
    )
    text = conllu(*SLEPT).replace("2\tdogs", f"{range_}{empty}2\tdogs", 1).rstrip()
    comments = f"# newdoc id = a\n# text = x\n{conllu(*SLEPT)}\n\n# sent_id = 2\n{text}"
    plain, marked = parse(tmp_path, comments)
    assert plain == marked and plain.words[:2] == ("The", "dogs")
    assert "newdoc id = a" in plain.document
    assert parse(tmp_path, "# nothing\n\n") == []


NOUNS = [
    f"{first}{last}"
    for first, last in product("bdfgklmnprst", ("an", "ell", "ork", "ust"))
]
VERBS = [
    f"{first}{last}"
    for first, last in product("bdfgklmnprst", ("arn", "eep", "ill", "omp"))
]


def made(root, folder="made"):
    """A folder of 960 sentences "the NOUN VERB a NOUN (and it VERB it (now now now))",
    each a document."""
    rng, texts = np.random.default_rng(1), []
    for i in range(960):
        a, b, c, d = (
            *rng.permutation(NOUNS)[:2].tolist(),
            *rng.permutation(VERBS)[:2].tolist(),
        )
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
    parts = {
        "train": texts[:800],
        "dev": texts[800:900],
        "test": [*texts[900:], texts[0]],
    }
    for split, part in parts.items():
        put(root, f"{folder}/xx-ud-{split}.conllu", "".join(part))
    return root / folder


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return made(tmp_path_factory.mktemp("treebank"))


HERE = (
    "BigramShift",
    "Tense",
    "SubjNumber",
    "ObjNumber",
    "OddManOut",
    "CoordinationInversion",
)


@pytest.mark.parametrize("task", HERE)
def test_classes_are_balanced_and_every_sentence_is_asked_once(root, task):
    splits = treebank.load(task, root)
    for split in splits.values():
        assert (
            len(set(np.bincount(split.y, minlength=2))) == 1
            and split.y.dtype == np.int64
        )
    texts = [text for split in splits.values() for text in split.a]
    asked = np.concatenate([split.index for split in splits.values()])
    assert len(set(texts)) == len(texts) and len(set(asked)) == len(asked)
    assert len(splits["train"]) > len(splits["dev"]) > 0
    assert "Yes" not in texts  # too short


ASKS = {
    "Tense": treebank.find_tense_and_verb_lemma,
    "SubjNumber": lambda s: treebank.find_grammatical_number_and_noun_lemma(s, "nsubj"),
    "ObjNumber": lambda s: treebank.find_grammatical_number_and_noun_lemma(s, "obj"),
}


def shown(task, sentence, text):
    """{the lemma that a row of the task asks about}."""
    if task in ASKS:
        return {ASKS[task](sentence)[1]}
    words = zip(text.split(), sentence.words, strict=True)
    return {word for word, old in words if word != old}


def apart(parts):
    """Whether none of the sets, none of them empty, shares anything with another."""
    return all(parts) and sum(map(len, parts)) == len(set.union(*parts))


@pytest.mark.parametrize("task", [*ASKS, "OddManOut", "BigramShift"])
def test_no_asked_word_and_no_document_is_in_two_splits(root, task):
    sentences, found = treebank._Treebank(root).sentences, []
    for split in treebank.load(task, root).values():
        asked = [
            (sentences[i], text) for i, text in zip(split.index, split.a, strict=True)
        ]
        if task == "BigramShift":
            found.append({sentence.document for sentence, _ in asked})
        else:
            found.append(set().union(*(shown(task, *each) for each in asked)))
    assert apart(found)


def test_what_is_shifted_replaced_and_inverted(root):
    sentences, seen = treebank._Treebank(root).sentences, Counter()
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
                    assert second == first + 1 > 1
                    assert words[first : second + 1] == old[first : second + 1][::-1]
                elif task == "OddManOut":
                    [place] = places
                    assert words[place] not in ("the", "a", "it")
                    assert words[place].endswith("s") == old[place].endswith(
                        "s"
                    )  # the same form
                else:
                    assert words == old[6:] + ["and"] + old[:5]
    assert len(seen) == 6


def test_the_same_rows_each_time_and_whatever_else_there_is(root, tmp_path):
    again = made(tmp_path, "again")
    put(tmp_path, "again/notes.txt", "x")
    put(tmp_path, "again/yy-ud-other.conllu", conllu(*SLEPT))
    for task in HERE:
        both = (treebank.load(task, folder).values() for folder in (root, again))
        for split, other in zip(*both, strict=True):
            assert split.a == other.a and (split.y == other.y).all()


def test_too_small_a_treebank_and_absent_files(root, tmp_path):
    with pytest.raises(
        ValueError, match="no train rows of every class of Length in 960 sent"
    ):
        treebank.load("Length", root)
    with pytest.raises(
        FileNotFoundError, match=r"holds 0 files \*-ud-train.conllu, expected one"
    ):
        treebank.load("Tense", tmp_path)


def test_tasks_are_those_of_senteval():
    assert list(treebank.TASKS) == list(SENTEVAL)
    for name, task in treebank.TASKS.items():
        assert task.output_width == len(task.labels) > 1
        if len(SENTEVAL[name].labels) == 2:
            assert task == SENTEVAL[name]
