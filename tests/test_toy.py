"""The toy world: same rows everywhere, nothing for a bag of words, trees that say what they mean."""

import hashlib
import random
import warnings
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import matthews_corrcoef

from lib.data import glue, grammar, senteval, squad, toy, toy_tasks
from lib.data.grammar import Entity, Proposition, realise

VOCABULARY = grammar.vocabulary()
NUMBER = {word: i for i, word in enumerate(VOCABULARY)}
# Pinned for GENERATOR_VERSION 2. Rows that differ need a new version.
DIGESTS = {
    "CoLA": "c46f2c5377a3bc5a",
    "SST-2": "eba483ececcb6a85",
    "MRPC": "c186b408e96b10e3",
    "QQP": "44845b68e6a42fdb",
    "STS-B": "58423fd28a3f4b54",
    "MNLI": "82197ff8cc604882",
    "QNLI": "64d38d6e1a358a0a",
    "RTE": "81f83b6e739ccb06",
    "WNLI": "d19357cf8c0f120d",
    "AX": "b48d359b2e75449f",
    "SQuAD1": "86a27b792534459f",
    "SQuAD2": "b87e9f9e43a05517",
    "Length": "e5930d5912174bbd",
    "WordContent": "c769ed536169271f",
    "Depth": "40bb96faff692ca8",
    "TopConstituents": "2b1432eb198b52ca",
    "BigramShift": "2e5ef0248c54dfe5",
    "Tense": "9d5e0b7f7b55e174",
    "SubjNumber": "89df32c8397f9dda",
    "ObjNumber": "c141a70380cded53",
    "OddManOut": "b41ceb9eea064bbf",
    "CoordinationInversion": "742efb843312ef9a",
    "corpus": "5d0bce613c2bdc8d",
}


SPANS = tuple(squad.TASKS)
TELLING = ("Length", "WordContent")  # what is asked for is how many words, or which
LABELLED = tuple(task for task in toy.TASKS if task != "AX" and task not in SPANS + TELLING)


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
    parts = [
        f"{name} {i} {y} {a} | {split.b[i] if split.b else ''}"
        for name, split in splits.items()
        for i, (a, y) in enumerate(zip(split.a, split.y.tolist(), strict=True))
    ]
    assert toy.GENERATOR_VERSION == 2
    assert digest(parts) == DIGESTS[task]


def test_corpus_is_pinned_and_follows_its_seed():
    once = toy.corpus(2000, 0)
    assert once == toy.corpus(2000, 0) != toy.corpus(2000, 1)
    assert digest(once) == DIGESTS["corpus"]
    assert 2000 <= sum(passage.count(" .") for passage in once) <= 2003
    assert {passage.count(" .") for passage in once} == {1, 2, 3}


def test_a_second_load_makes_the_same_rows():
    first = toy.load("RTE")
    second = toy.load.__wrapped__("RTE")
    assert first is not second and first["train"].a == second["train"].a
    assert np.array_equal(first["train"].y, second["train"].y)


def test_vocabulary_covers_everything():
    assert VOCABULARY[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert VOCABULARY[5:] == sorted(set(VOCABULARY[5:]))
    assert 250 <= len(VOCABULARY) <= 300
    said = [t for task in toy.TASKS for split in toy.load(task).values() for t in texts(split)]
    used = {word for text in said + toy.corpus(3000, 3) for word in text.split()}
    assert used <= set(VOCABULARY)


def test_tasks_are_the_benchmarks():
    assert toy.TASKS == glue.TASKS | squad.TASKS | toy.PROBING
    for name, task in senteval.TASKS.items():
        assert toy.TASKS[name].labels == task.labels or name in (
            "Depth",
            "Length",
            "TopConstituents",
            "WordContent",
        )
    assert set(toy.TASKS["TopConstituents"].labels) <= set(senteval.TASKS["TopConstituents"].labels)


@pytest.mark.parametrize("task", toy.TASKS)
def test_splits(task):
    splits, classes = toy.load(task), toy_tasks.targets(task)
    assert {name: len(split) for name, split in splits.items()} == toy.rows(task)
    for split in splits.values():
        assert split.index.tolist() == list(range(len(split)))
        assert split.y.dtype == (np.float32 if task == "STS-B" else np.int64)
        if task not in SPANS:
            assert max(abs((split.y == c).sum() - len(split) / len(classes)) for c in classes) < 1
        rows = list(zip(split.a, split.b, strict=True)) if split.b else split.a
        assert len(set(rows)) == len(rows)
        assert all(t == t.lower() and t.endswith(" .") for t in texts(split))
    if task != "AX":
        taught = set(texts(splits["train"]))
        assert not any(
            taught & set(texts(split)) for name, split in splits.items() if name != "train"
        )
    if task in LABELLED and task != "WNLI":
        assert abs(splits["train"].y[:1000].mean() - splits["dev"].y.mean()) < 0.1 * max(classes)


@pytest.mark.parametrize("task", LABELLED)
def test_a_bag_of_words_does_not_solve_it(task):
    splits = toy.load(task)
    train, dev = splits["train"].take(range(min(1500, len(splits["train"])))), splits["dev"]
    if task == "STS-B":
        assert (
            abs(spearmanr(Ridge(30).fit(features(train), train.y).predict(features(dev)), dev.y)[0])
            < 0.25
        )
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no need to converge to the last digit
        model = LogisticRegression(C=0.3, max_iter=30).fit(features(train), train.y)
    for name, split in splits.items():
        if name != "train":
            assert matthews_corrcoef(split.y, model.predict(features(split))) < 0.25, name


@pytest.mark.parametrize("task", LABELLED)
def test_no_single_word_gives_the_label_away(task):
    splits = toy.load(task).values()
    x = np.vstack([features(split) for split in splits])[:, : 2 * len(VOCABULARY)] > 0
    x = x[:, (0.002 < x.mean(0)) & (x.mean(0) < 1)].astype(np.float32)
    x = (x - x.mean(0)) / x.std(0)
    y = np.concatenate([split.y for split in splits])
    # Matthews of two binary variables: each word and each class; with 600 rows chance alone gives more
    for wanted in [y] if task == "STS-B" else [y == c for c in range(len(toy.TASKS[task].labels))]:
        best = abs((x * (wanted - wanted.mean())[:, None]).mean(0) / wanted.std()).max()
        assert best < (0.15 if task == "WNLI" else 0.1)


def test_diagnostics_hold_each_phenomenon():
    split, each = toy.load("AX")["test"], toy.rows("AX")["test"] // len(toy_tasks.PHENOMENA)
    blocks = dict(zip(toy_tasks.PHENOMENA, range(0, len(split), each), strict=True))
    assert all(
        Counter(split.y[i : i + each].tolist()) == {0: each // 3, 1: each // 3, 2: each // 3}
        for i in blocks.values()
    )
    assert all(" but " in split.a[blocks["contrast"] + i] for i in range(each))
    assert any(split.a[blocks["quantifiers"] + i].startswith("all ") for i in range(each))


@pytest.mark.parametrize("task", SPANS)
def test_spans_are_the_answers(task):
    for split in toy.load(task).values():
        roles = Counter()
        for question, passage, (start, end), answers in zip(
            split.a, split.b, split.y, split.answers, strict=True
        ):
            if start < 0:
                assert (start, end) == (-1, -1) and answers == []
                continue
            assert (
                passage[start:end] == answers[0]
                and answers[0].startswith("the ")
                and passage[end] == " "
            )
            sentence = passage[:start].rpartition(" . ")[2] + passage[start:].partition(" .")[0]
            assert (
                answers[0] in sentence
                and question.startswith("who ")
                and 2 <= passage.count(" .") <= 4
            )
            roles[sentence.startswith(answers[0])] += 1
        assert (split.y[:, 0] < 0).sum() == (len(split) // 3 if task == "SQuAD2" else 0)
        assert (
            0.35 < roles[True] / sum(roles.values()) < 0.65
        )  # the first noun phrase is no better guess


def test_questions_ask_for_roles():
    chase = Proposition("chase", Entity("dog"), Entity("cat", plural=True), positive=False)
    said = [
        grammar.question(chase, role, passive).text()
        for role in ("agent", "patient")
        for passive in (False, True)
    ]
    assert said == [
        "who did not chase the cats .",
        "who were the cats not chased by .",
        "who did the dog not chase .",
        "who was not chased by the dog .",
    ]


# ---- What a tree says, read off its nodes: what the makers of the probing twins mean by their labels ----


def constituents(tree):
    """What stands immediately below the sentence."""
    return tree.children[0].children


def tense(tree):
    """Of the main clause."""
    return {"past": "PAST", "present": "PRES"}[tree.children[0].features["tense"]]


def number(nodes):
    """Of the first noun phrase among nodes."""
    return {"sg": "NN", "pl": "NNS"}[
        next(node for node in nodes if node.label == "NP").features["number"]
    ]


def subject_number(tree):
    return number(constituents(tree))


def object_number(tree):
    return number(next(node for node in constituents(tree) if node.label == "VP").children)


def tops(tree):
    return "_".join([*(node.label for node in constituents(tree)), "."])


def test_probing_labels_follow_from_trees():
    dog, cats, boy = Entity("dog"), Entity("cat", plural=True), Entity("boy")
    chase = Proposition("chase", dog, cats)
    tree = realise(chase)
    asked = tense, subject_number, object_number
    assert [of(tree) for of in asked] == ["PAST", "NN", "NNS"]
    assert toy_tasks.depth(tree) == 4  # root, S, VP, NP, word
    assert tops(tree) == "NP_VP_."
    inner = Entity("dog", clause=Proposition("see", boy, None, past=True))
    tree = realise(
        Proposition("love", cats, inner, past=False)
    )  # "the cats love the dog that the boy saw"
    assert [of(tree) for of in asked] == ["PRES", "NNS", "NN"]
    assert toy_tasks.depth(tree) == 7
    assert subject_number(realise(chase, passive=True)) == "NNS"
    rests = Proposition("sleep", cats, adverb="often", place=("in", Entity("park")))
    said = {top: grammar.arranged(rests, top) for top in grammar.TOPS}
    assert {top: tops(tree) for top, tree in said.items()} == {top: top for top in grammar.TOPS}
    assert said["NP_ADVP_VP_."].text() == "the cats often slept in the park ."
    assert said["PP_NP_VP_."].text() == "in the park the cats slept often ."
    assert subject_number(said["PP_NP_VP_."]) == "NNS"
    assert grammar.both(realise(chase), realise(rests), "but").leaves()[5].word == "but"


@pytest.mark.parametrize(
    "task, make, reader",
    [
        ("Tense", toy_tasks._with_tense, tense),
        ("TopConstituents", toy_tasks._with_top, tops),
        ("SubjNumber", partial(toy_tasks._with_number, slot="agent"), subject_number),
        ("ObjNumber", partial(toy_tasks._with_number, slot="patient"), object_number),
        (
            "Depth",
            toy_tasks._with_depth,
            lambda tree: toy_tasks.bin_of(toy_tasks.depth(tree), toy.DEPTHS),
        ),
        (
            "Length",
            toy_tasks._with_length,
            lambda tree: toy_tasks.bin_of(len(tree.leaves()) - 1, toy.LENGTHS),
        ),
    ],
)
def test_makers_give_the_label_asked_for(task, make, reader):
    rng = random.Random(7)
    for label in toy.TASKS[task].labels * 40:
        assert reader(make(rng, label)) == label


def test_pairs_differ_where_their_label_says():
    rng = random.Random(8)
    for _ in range(100):
        for same in (True, False):
            pair, again = toy_tasks._contrasted(rng, same)
            assert [p.positive for p in pair] in ([True, False], [False, True])
            assert [p.positive for p in again] == [p.positive == same for p in pair]
            for p, q in zip(pair, again, strict=True):
                assert all(
                    grammar.is_a(x, y)
                    for x, y in (
                        (p.agent.noun, q.agent.noun),
                        (p.patient.noun, q.patient.noun),
                        (p.predicate, q.predicate),
                    )
                )
        for label in range(3):
            p, q = toy_tasks._attached(rng, label)
            assert (p.positive == q.positive) == (label != 2)
            assert bool(p.agent.clause) != bool(p.patient.clause)
            assert (bool(p.agent.clause) == bool(q.agent.clause)) == (label != 1)
            assert realise(p).text().count(" who ") == realise(q).text().count(" who ")


@pytest.mark.parametrize(
    "positive, said", [(True, "the cats did ."), (False, "the cats did not .")]
)
def test_what_is_left_out(positive, said):
    chase = Proposition("chase", Entity("cat", plural=True), Entity("dog"), positive=positive)
    assert grammar.elliptic(chase).text() == said
    assert grammar.elliptic(replace(chase, past=False)).text() == said.replace("did", "do")


def test_probing_rows_hold_what_their_label_says():
    for task, name in (
        ("Length", lambda text: toy_tasks.bin_of(len(text.split()) - 1, toy.LENGTHS)),
        ("WordContent", lambda text: next(w for w in text.split() if w in toy.WORDS)),
    ):
        split = toy.load(task)["test"]
        assert [toy.TASKS[task].labels[y] for y in split.y] == [name(text) for text in split.a]
    assert [toy_tasks.bin_of(n, ("3-4", "5-6", "13-")) for n in (2, 3, 6, 7, 13, 40)] == [
        None,
        "3-4",
        "5-6",
        None,
        "13-",
        "13-",
    ]


def test_agreement_holds_in_every_tree():
    rng = random.Random(5)
    for _ in range(2000):
        p = grammar.sample_proposition(rng, place=0.3, clause=0.3)
        tree = realise(
            p, passive=p.patient is not None and p.recipient is None and rng.random() < 0.5
        )
        check_agreement(tree.children[0])
        assert set(tree.text().split()) <= set(VOCABULARY)


def check_agreement(s):
    """Number of subject, S and finite verb agree, here and in every clause below that has its own subject."""
    subject, predicate = s.children if len(s.children) == 2 else (None, s.children[0])
    verb = predicate.children[0]
    assert (
        verb.features["number"] == s.features["number"]
        and verb.features["tense"] == s.features["tense"]
    )
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
    dog, cats = (
        Entity("dog", quantifier="a", adjective="old"),
        Entity("cat", plural=True, quantifier="two"),
    )
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
