"""This module generates the toy data from a seed: imitations ("twins") of some
benchmark tasks, and a corpus. It does not import torch.

The sentences come from `lib.data.grammar`. A maker is a function that generates one row
with a given label: `f(rng, label) -> texts`, for answer spans `(question, passage,
(start, end))`. `MAKERS` has the maker of each twin. Each word, and each number of words
that two texts share, is about as frequent under one label as under another, so that a
model has to read the sentence. The rows are the same on every machine;
tests/test_toy.py checks their digest."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from random import Random
from typing import Any

import numpy as np

from lib.data import Split
from lib.data import grammar as g
from lib.data.grammar import (
    Event,
    Word,
    clause,
    deny_event,
    join_clauses,
    noun_phrase,
    pick_option,
    sample_event,
    text,
)
from lib.data.read import TASKS as OFFICIAL

SEED = 20
Words = list[Word]
Texts = tuple[str, ...]


def _swap_words(rng: Random, words: Words) -> Words | None:
    """Return the words with two neighbours swapped: "the dog big slept", "the dog not
    did sleep". Returns None where both are verbs."""
    i = pick_option(rng, range(len(words) - 1))
    if words[i].tag[:2] != "VB" or words[i + 1].tag[:2] != "VB":
        return [*words[:i], words[i + 1], words[i], *words[i + 2 :]]


AUXILIARIES = {
    "does": "do",
    "do": "does",
    "is": "are",
    "are": "is",
    "was": "were",
    "were": "was",
}
TAGS = {"VBZ": "VBP", "VBP": "VBZ", "VB": "VBD", "VBN": "VB"}


def _misfit(rng: Random, word: Word) -> str | None:
    """Return another form of a word that is ungrammatical in its place, or None where
    there is none."""
    # Leave out the first quantifier, "the", which fits every noun.
    for one, other in ((g.SINGULAR, g.PLURAL), (g.PLURAL, g.SINGULAR)):
        if word.text in one[1:]:
            return pick_option(rng, other[1:])
    if word.tag in TAGS:
        return g.VERB[word.lemma][TAGS[word.tag]]
    return AUXILIARIES.get(word.text)


def _form(rng: Random, words: Words) -> Words | None:
    """Return the words with one in an ungrammatical form: "the dogs near the park
    sleeps", "every dogs slept", "the dog did not slept". Returns None where no word has
    one."""
    wrong = [
        (i, other) for i, word in enumerate(words) if (other := _misfit(rng, word))
    ]
    if wrong:
        i, other = pick_option(rng, wrong)
        return [*words[:i], Word(other, ""), *words[i + 1 :]]


def _valency(rng: Random, words: Words) -> Words:
    """Return the words with a transitive verb without an object, or an intransitive
    verb with one: "the dog chased", "the dog slept the pig"."""
    i = max(i for i, word in enumerate(words) if word.lemma in g.VERB)
    others = g.INTRANSITIVE if words[i].lemma in g.TRANSITIVE else g.TRANSITIVE
    other = g.VERB[pick_option(rng, others)][words[i].tag]
    return [*words[:i], Word(other, ""), *words[i + 1 :]]


FAULTS = (_swap_words,) * 5 + (_form,) * 3 + (_valency,) * 2


def _well_formed(
    rng: Random,
    label: int,
    faults: Sequence[Callable[[Random, Words], Words | None]] = FAULTS,
) -> Texts:
    """Return a row of CoLA's twin: a grammatical sentence (label 1), or one with a
    fault (label 0)."""
    while True:
        verbs = pick_option(rng, (g.INTRANSITIVE, g.TRANSITIVE))
        modifiers = {"adjective": 0.2, "place": 0.15, "clause": 0.1}
        p = sample_event(rng, verbs, varied=True, modifiers=modifiers)
        words = clause(replace(p, passive=p.patient is not None and rng.random() < 0.3))
        if broken := pick_option(rng, faults)(rng, words):
            return (text(words if label else broken),)


def _events(rng: Random, count: int = 1) -> list[Event]:
    """Return `count` random events with an agent and a patient, whose nouns are all
    different and no synonyms."""
    while True:
        events = [sample_event(rng, passive=True) for _ in range(count)]
        nouns = [e.noun for p in events for e in (p.agent, p.patient) if e]
        if not any(g.is_a(a, b) for i, a in enumerate(nouns) for b in nouns[:i]):
            return events


def _use_synonym(rng: Random, p: Event, slot: str) -> Event:
    """Return the event `p` with a synonym for one of its words.

    slot: "agent" or "verb"."""
    if slot == "verb":
        return replace(p, verb=pick_option(rng, g.SYNONYM[p.verb]))
    assert p.agent is not None
    return replace(
        p, agent=replace(p.agent, noun=pick_option(rng, g.SYNONYM[p.agent.noun]))
    )


def _restate_event(rng: Random, p: Event, count: int) -> Event:
    """Return the event `p` with synonyms for `count` of its agent and its verb, 0 to
    2."""
    slots = ["agent", "verb"]
    for _ in range(count):
        slot = pick_option(rng, slots)
        slots.remove(slot)
        p = _use_synonym(rng, p, slot)
    return p


def _affirm_or_deny(rng: Random, p: Event, same: bool) -> Event:
    """Return the event `p` in other words where `same` is true, or else its denial.

    A denial has one more word, "not". For balance, an affirmation has half a synonym
    more on average, so that the number of shared words does not reveal the label."""
    if same:
        return _restate_event(rng, p, 1 + (rng.random() < 0.25))
    return deny_event(_restate_event(rng, p, int(rng.random() < 0.75)))


def _plain_pair(rng: Random, same: bool) -> tuple[list[Event], list[Event]]:
    """Return (events of one text, events of the other).

    The other text has the same meaning if `same`, and else denies each event. A text
    has one event, or two of which one is affirmed and one denied."""
    if rng.random() < 0.5:
        [p] = _events(rng)
        return [p], [_affirm_or_deny(rng, p, same)]
    one, other = _events(rng, 2)
    said = [one, replace(other, positive=not one.positive)]
    again = [_restate_event(rng, p, 1) for p in said]
    return said, again if same else [deny_event(p) for p in again]


def _pair_with_clauses(rng: Random, same: bool) -> tuple[list[Event], list[Event]]:
    """Return (events of one text, events of the other), each with a relative clause:
    "the dog that slept was seen by the pig".

    The other text has the same meaning if `same`. Else it denies the event, or its
    clause modifies the patient instead of the agent, or the agent instead of the
    patient."""
    meaning = "same" if same else pick_option(rng, ("other", "denied"))
    [p] = _events(rng)
    while len({g.CLASS[e.noun] for e in (p.agent, p.patient) if e}) > 1:
        # Draw again: "who" (persons) or "that" (animals) would reveal the label.
        [p] = _events(rng)
    said = replace(
        sample_event(rng, g.INTRANSITIVE, p.agent, positive=True), agent=None
    )
    slots = g.ROLES[:: pick_option(rng, (1, -1))]
    again = _affirm_or_deny(rng, p, meaning != "denied")
    return [_attach_clause(p, slots[0], said)], [
        _attach_clause(again, slots[meaning == "other"], said)
    ]


def _attach_clause(p: Event, slot: str, inner: Event) -> Event:
    """Return the event `p` with the event `inner` as a relative clause of its agent or
    patient.

    slot: "agent" or "patient"."""
    return replace(p, **{slot: replace(getattr(p, slot), clause=inner)})


def _pair(rng: Random, label: int) -> Texts:
    """Return a row of RTE's twin: two texts with the same meaning (label 0), or not
    (label 1)."""
    both = pick_option(rng, (_plain_pair, _plain_pair, _pair_with_clauses))(
        rng, label == 0
    )
    return tuple(text(join_clauses(map(clause, events))) for events in both)


def _make_question(rng: Random, label: int) -> tuple[str, str, tuple[int, int]]:
    """Return a row of SQuAD's twins: (question, passage, (start, end) of the answer in
    characters, or (-1, -1) for none).

    The passage has two events: A does something to B, and B does the same to C. In
    place of the event that is not asked about, D may do something else.

    label: 0 asks for the agent of an event, 1 for its patient, and 2 for one of them in
    the denied event, which has no answer."""
    first, beside = _events(rng, 2)
    second = replace(first, agent=first.patient, patient=beside.patient)
    asked, other = (first, second)[:: pick_option(rng, (1, -1))]
    if rng.random() < 0.6:
        other = sample_event(rng, g.INTRANSITIVE, beside.agent, positive=first.positive)
    role = g.ROLES[label] if label < 2 else pick_option(rng, g.ROLES)
    voiced = [
        replace(p, passive=bool(p.patient) and rng.random() < 0.4)
        for p in (asked, other)
    ]
    said = [text(clause(p)) for p in voiced]
    passage = " ".join(said if rng.random() < 0.5 else said[::-1])
    answer = text(noun_phrase(getattr(asked, role)))[:-2]  # Without " .".
    asked = asked if label < 2 else deny_event(asked)
    if rng.random() < 0.3:
        asked = _use_synonym(rng, asked, "verb")
    place = passage.index(said[0]) + said[0].index(f"{answer} ")
    span = (place, place + len(answer)) if label < 2 else (-1, -1)
    return text(g.question(asked, role)), passage, span


def _tense(rng: Random, label: int) -> Texts:
    """Return a row of Tense's twin: the main clause is in the past (label 0) or in the
    present (label 1), and a relative clause is in the other tense."""
    p, inner = (
        sample_event(rng, varied=True, past=past, positive=True)
        for past in (label == 0, label == 1)
    )
    return (
        text(
            clause(
                _attach_clause(
                    p, pick_option(rng, g.ROLES), g.relative_event(rng, inner)
                )
            )
        ),
    )


MAKERS: dict[str, Callable[[Random, int], tuple[Any, ...]]] = {
    "CoLA": _well_formed,
    "RTE": _pair,
    "SQuAD1": _make_question,
    "SQuAD2": _make_question,
    "BigramShift": partial(_well_formed, faults=(_swap_words,)),
    "Tense": _tense,
}
TASKS = {name: OFFICIAL[name] for name in MAKERS}
# Rows of each split that are generated. Of the development rows the first JUDGED are
# used.
ROWS = dict.fromkeys(TASKS, {"train": 4000, "dev": 4000})
for probing in ("BigramShift", "Tense"):
    ROWS[probing] = ROWS[probing] | {"test": 500}
JUDGED = 2000


@cache
def load(task: str) -> dict[str, Split]:
    """Return {split name: Split} of a toy task.

    All labels are equally frequent. No text of an evaluation split is in the training
    set."""
    seen, names = set(), list(ROWS[task])
    splits = {
        name: _draw_split(task, name, seen)
        for name in sorted(names, key="train".__eq__)
    }
    return {name: splits[name] for name in names}


def _draw_split(task: str, name: str, seen: set[str]) -> Split:
    """Generate a split of a task. Labels take turns, then the rows are shuffled.

    name: the name of the split.
    seen: texts of other splits, which are avoided; the new texts are added."""
    rng, span = random.Random(f"{SEED} {task} {name}"), TASKS[task].span
    rows: dict[Texts, tuple[float, Any]] = {}
    while len(rows) < ROWS[task][name]:
        label = len(rows) % (3 if task == "SQuAD2" else 2)
        *texts, target = MAKERS[task](rng, label) + (() if span else (label,))
        if len(set(texts)) == len(texts) and seen.isdisjoint(texts):
            rows.setdefault(tuple(texts), (rng.random(), target))
    seen.update(text for texts in rows for text in texts)
    order = sorted(
        list(rows)[: JUDGED if name == "dev" else None], key=rows.__getitem__
    )
    a, *b = map(list, zip(*order, strict=True))
    y = np.array([rows[texts][1] for texts in order], np.int64)
    split = Split(a, b[0] if b else None, y, np.arange(len(y)))
    if not span:
        return split
    places = zip(b[0], y.tolist(), strict=True)
    answers = [[text[start:end]] if end > 0 else [] for text, (start, end) in places]
    return replace(split, answers=answers)


def corpus(sentences: int, seed: int) -> list[str]:
    """Return passages of two sentences each for pre-training, about `sentences`
    sentences in all.

    A passage has two unrelated grammatical sentences, or two with the same meaning."""
    rng, passages = random.Random(f"{seed} corpus"), []
    while 2 * len(passages) < sentences:
        said_twice = _pair(rng, 0)
        good = *_well_formed(rng, 1), *_well_formed(rng, 1)
        passages.append(" ".join(said_twice if rng.random() < 0.6 else good))
    return passages
