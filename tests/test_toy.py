"""The toy world: same rows everywhere, nothing for a bag of words, trees that say what they mean."""

import hashlib
import random
import warnings
from collections import Counter

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import matthews_corrcoef

from lib.data import grammar, toy
from lib.data.grammar import Entity, Proposition, realise

VOCABULARY = grammar.vocabulary()
NUMBER = {word: i for i, word in enumerate(VOCABULARY)}
# Pinned for GENERATOR_VERSION 1. Rows that differ need a new version.
DIGESTS = {"CoLA": "c46f2c5377a3bc5a", "RTE": "81f83b6e739ccb06", "corpus": "5d0bce613c2bdc8d"}


def texts(split):
    return [*split.a, *(split.b or [])]


def counts(sentences):
    table = np.zeros((len(sentences), len(VOCABULARY)), np.float32)
    for row, sentence in zip(table, sentences, strict=True):
        for word, n in Counter(sentence.split()).items():
            row[NUMBER[word]] = n
    return table


def features(split):
    """Unigram counts; for pairs of both sides, with the numbers of shared and new words."""
    a = counts(split.a)
    if split.b is None:
        return a
    b = counts(split.b)
    shared = np.minimum(a, b).sum(1)
    return np.hstack([a, b, np.stack([shared, a.sum(1), b.sum(1), b.sum(1) - shared], 1)])


def digest(parts):
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@pytest.mark.parametrize("task", toy.TASKS)
def test_rows_are_pinned(task):
    splits = toy.load(task)
    parts = [f"{name} {i} {y} {a} | {split.b[i] if split.b else ''}" for name, split in splits.items()
             for i, (a, y) in enumerate(zip(split.a, split.y, strict=True))]
    assert toy.GENERATOR_VERSION == 1
    assert digest(parts) == DIGESTS[task]


def test_corpus_is_pinned_and_follows_its_seed():
    once = toy.corpus(2000, 0)
    assert once == toy.corpus(2000, 0) != toy.corpus(2000, 1)
    assert digest(once) == DIGESTS["corpus"]
    assert 2000 <= sum(passage.count(" .") for passage in once) <= 2003
    assert {passage.count(" .") for passage in once} == {1, 2, 3}


def test_a_second_load_makes_the_same_rows():
    first = toy.load("RTE")
    toy.load.cache_clear()
    second = toy.load("RTE")
    assert first is not second and first["train"].a == second["train"].a
    assert np.array_equal(first["train"].y, second["train"].y)


def test_vocabulary_covers_everything():
    assert VOCABULARY[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert VOCABULARY[5:] == sorted(set(VOCABULARY[5:]))
    assert 250 <= len(VOCABULARY) <= 300
    said = [t for task in toy.TASKS for split in toy.load(task).values() for t in texts(split)]
    used = {word for text in said + toy.corpus(3000, 3) for word in text.split()}
    assert used <= set(VOCABULARY)


@pytest.mark.parametrize("task", toy.TASKS)
def test_splits(task):
    splits = toy.load(task)
    for name, split in splits.items():
        assert len(split) == toy.ROWS[name] == len(split.index)
        assert split.y.dtype == np.int64 and 0.45 <= split.y.mean() <= 0.55
        rows = list(zip(split.a, split.b, strict=True)) if split.b else split.a
        assert len(set(rows)) == len(rows)
        assert all(t == t.lower() and t.endswith(" .") for t in texts(split))
    assert 0.4 <= splits["train"].y[:1000].mean() <= 0.6
    assert not set(texts(splits["train"])) & set(texts(splits["dev"]))


@pytest.mark.parametrize("task", toy.TASKS)
def test_a_bag_of_words_does_not_solve_it(task):
    train, dev = (toy.load(task)[name] for name in ("train", "dev"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")          # no need to converge to the last digit
        model = LogisticRegression(C=0.3, max_iter=60).fit(features(train), train.y)
    said = model.predict(features(dev))
    assert matthews_corrcoef(dev.y, said) < 0.2
    assert (said == dev.y).mean() < 0.6


@pytest.mark.parametrize("task", toy.TASKS)
def test_no_single_word_gives_the_label_away(task):
    splits = toy.load(task).values()
    x = np.vstack([features(split) for split in splits])[:, :2 * len(VOCABULARY)] > 0
    y = np.concatenate([split.y for split in splits])
    x = x[:, (0 < x.mean(0)) & (x.mean(0) < 1)]
    best = max(abs(np.corrcoef(column, y)[0, 1]) for column in x.T)     # Matthews of two binary variables
    assert best < 0.1


def test_agreement_holds_in_every_tree():
    rng = random.Random(5)
    for _ in range(2000):
        p = grammar.sample_proposition(rng, place=0.3, clause=0.3)
        tree = realise(p, passive=p.patient is not None and p.recipient is None and rng.random() < 0.5)
        check_agreement(tree.children[0])
        assert set(tree.text().split()) <= set(VOCABULARY)


def check_agreement(s):
    """Number of subject, S and finite verb agree, here and in every clause below that has its own subject."""
    subject, predicate = s.children if len(s.children) == 2 else (None, s.children[0])
    verb = predicate.children[0]
    assert verb.features["number"] == s.features["number"] and verb.features["tense"] == s.features["tense"]
    if subject:
        assert subject.features["number"] == s.features["number"]
    if verb.label in ("VBZ", "VBP"):
        assert (verb.label == "VBZ") == (s.features["number"] == "sg")
        assert (verb.word == grammar.VERB[verb.features["lemma"]].third) == (verb.label == "VBZ")
    stack = [*s.children]
    while stack:
        node = stack.pop()
        if node.label == "S":
            check_agreement(node)
        else:
            stack.extend(node.children)


def test_meanings_are_said_as_meant():
    dog, cats = Entity("dog", quantifier="a", adjective="old"), Entity("cat", plural=True, quantifier="two")
    chase = Proposition("chase", dog, cats)
    assert realise(chase).text() == "an old dog chased two cats ."
    assert realise(chase, passive=True).text() == "two cats were chased by an old dog ."
    denied = Proposition("chase", dog, cats, past=False, positive=False)
    assert realise(denied).text() == "an old dog does not chase two cats ."
    gap = Entity("woman", clause=Proposition("see", cats, None, past=False))
    assert realise(Proposition("sleep", gap)).text() == "the woman who two cats see slept ."
    itself = Proposition("love", Entity("girl"), Entity("", reflexive=True))
    assert realise(itself).text() == "the girl loved herself ."
    pair = Entity("dog", link="and", other=Entity("cat"))
    assert realise(Proposition("walk", pair, past=False)).text() == "the dog and the cat walk ."


def test_lexicon():
    assert grammar.is_a("hound", "dog") and grammar.is_a("dog", "animal")
    assert not grammar.is_a("animal", "dog")
    assert [grammar.plural(w) for w in ("lady", "axe", "thief")] == ["ladies", "axes", "thieves"]
    verb = grammar.VERB["write"]
    assert (verb.third, verb.past, verb.participle) == ("writes", "wrote", "written")
    assert grammar.VERB["cry"].third == "cries" and grammar.VERB["vanish"].third == "vanishes"


def test_what_eats_is_alive():
    rng = random.Random(6)
    for _ in range(500):
        p = grammar.sample_proposition(rng)
        verb = grammar.VERB[p.predicate]
        assert grammar.kind_of(p.agent.noun) in verb.agents
        assert p.patient is None or grammar.kind_of(p.patient.noun) in verb.patients
