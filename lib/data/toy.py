"""This module generates the toy data from a seed: imitations of some benchmark tasks,
and a corpus for pre-training. With them every experiment can be run in minutes without
a download.

The sentences come from `lib.data.grammar`. `MAKERS` has for each task a function that
generates one row with a given label: `f(rng, label) -> texts`, or for answer spans
`(question, passage, (start, end))`. Each word, and each number of words that two texts
share, is about as frequent under one label as under another, so that a model has to
read the sentence. The rows are the same on every machine; tests/test_toy.py checks
their digest."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from random import Random
from typing import Any, Literal, NamedTuple

import numpy as np

from lib.core.types import SplitName
from lib.data import Split
from lib.data import grammar as g
from lib.data.grammar import (
    Event,
    Role,
    Word,
    format_sentence,
    join_clauses_with_but,
    make_clause,
    make_noun_phrase,
    negate_event,
    pick_option,
    sample_event,
)
from lib.data.read import TASKS as OFFICIAL

SEED = 20
Words = list[Word]
Texts = tuple[str, ...]


def _swap_two_neighbouring_words(rng: Random, words: Words) -> Words | None:
    """Make a sentence ungrammatical by swapping two neighbouring words at random.

    Examples are "the dog big slept" and "the dog not did sleep". It makes negative
    examples for toy imitations of CoLA and BigramShift. Returns None where both words
    are verbs, as the sentence may then still be grammatical."""
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


def _find_ungrammatical_word_form(rng: Random, word: Word) -> str | None:
    """Return another form of a word that is ungrammatical in its place.

    Examples are "sleep" for "sleeps" and "every" for "two". Negative examples of a toy
    imitation of CoLA are made with it. Returns None where the word has no such form."""
    # Leave out the first determiner, "the": it fits singular and plural nouns.
    for one, other in ((g.SINGULAR, g.PLURAL), (g.PLURAL, g.SINGULAR)):
        if word.text in one[1:]:
            return pick_option(rng, other[1:])
    if word.tag in TAGS:
        return g.VERB[word.lemma][TAGS[word.tag]]
    return AUXILIARIES.get(word.text)


def _misinflect_word(rng: Random, words: Words) -> Words | None:
    """Make a sentence ungrammatical by a wrong form of one word, drawn at random.

    Examples are "the dogs near the park sleeps", "every dogs slept" and "the dog did
    not slept". It makes negative examples for a toy imitation of CoLA. Returns None
    where no word has a wrong form."""
    wrong = [
        (i, other)
        for i, word in enumerate(words)
        if (other := _find_ungrammatical_word_form(rng, word))
    ]
    if wrong:
        i, other = pick_option(rng, wrong)
        return [*words[:i], Word(other, ""), *words[i + 1 :]]


def _break_transitivity(rng: Random, words: Words) -> Words:
    """Make a sentence ungrammatical by exchanging its last verb.

    A transitive verb then has no object ("the dog chased"), or an intransitive verb has
    one ("the dog slept the pig"). It makes negative examples for a toy imitation of
    CoLA."""
    i = max(i for i, word in enumerate(words) if word.lemma in g.VERB)
    others = g.INTRANSITIVE if words[i].lemma in g.TRANSITIVE else g.TRANSITIVE
    other = g.VERB[pick_option(rng, others)][words[i].tag]
    return [*words[:i], Word(other, ""), *words[i + 1 :]]


FAULTS = (
    (_swap_two_neighbouring_words,) * 5
    + (_misinflect_word,) * 3
    + (_break_transitivity,) * 2
)


def _make_cola_row(
    rng: Random,
    label: int,
    fault_functions: Sequence[Callable[[Random, Words], Words | None]] = FAULTS,
) -> Texts:
    """Generate the text of a row of the toy imitation of CoLA.

    CoLA asks whether a sentence is grammatical. Returns a tuple of one sentence.

    label: 1 gives a grammatical sentence, 0 an ungrammatical one.
    fault_functions: functions f(rng, words) that make a sentence ungrammatical, or
    return None where they cannot; one is drawn at random. Grammatical sentences are
    drawn from the sentences that the fault can change, so that the label does not
    depend on their form."""
    while True:
        verbs = pick_option(rng, (g.INTRANSITIVE, g.TRANSITIVE))
        modifiers = {
            "adjective_probability": 0.2,
            "place_probability": 0.15,
            "clause_probability": 0.1,
        }
        p = sample_event(
            rng, verbs, random_quantifiers=True, agent_sampling_probabilities=modifiers
        )
        words = make_clause(
            replace(p, passive=p.patient is not None and rng.random() < 0.3)
        )
        if broken := pick_option(rng, fault_functions)(rng, words):
            return (format_sentence(words if label else broken),)


def _sample_events(rng: Random, event_count: int = 1) -> list[Event]:
    """Draw random Events (meanings of clauses) for the texts of one row of a toy task.

    Each has an agent and a patient, as in "the pig was chased by the dog". All nouns
    are different, and none are synonyms, so that each noun means one participant."""
    while True:
        events = [sample_event(rng, passive=True) for _ in range(event_count)]
        nouns = [e.noun for p in events for e in (p.agent, p.patient) if e]
        if not any(
            g.are_synonyms(a, b) for i, a in enumerate(nouns) for b in nouns[:i]
        ):
            return events


def _replace_by_synonym(
    rng: Random, event: Event, agent_or_verb: Literal["agent", "verb"]
) -> Event:
    """Return an Event (meaning of a clause) with a random synonym for one of its words.

    The new Event means the same, so it serves to make paraphrases.

    agent_or_verb: the word that is replaced: "agent" for the agent's noun, or
    "verb"."""
    if agent_or_verb == "verb":
        return replace(event, verb=pick_option(rng, g.SYNONYM[event.verb]))
    assert event.agent is not None
    return replace(
        event,
        agent=replace(event.agent, noun=pick_option(rng, g.SYNONYM[event.agent.noun])),
    )


def _paraphrase_event(rng: Random, event: Event, synonym_count: int) -> Event:
    """Return an Event (meaning of a clause) with the same meaning in other words.

    It makes a paraphrase for toy tasks of text pairs.

    synonym_count: how many of the two words, agent and verb, are replaced by a synonym:
    0, 1 or 2."""
    slots: list[Literal["agent", "verb"]] = ["agent", "verb"]
    for _ in range(synonym_count):
        slot = pick_option(rng, slots)
        slots.remove(slot)
        event = _replace_by_synonym(rng, event, slot)
    return event


def _paraphrase_or_contradict_event(
    rng: Random, event: Event, same_meaning: bool
) -> Event:
    """Return a paraphrase of an Event (meaning of a clause), or the paraphrase negated.

    It is the meaning of the second text of a toy pair. Negation adds or removes the
    word "not". For balance, a paraphrase that is not negated has more synonyms on
    average, so that the number of words that both texts share does not reveal the
    label.

    same_meaning: whether the meaning stays; otherwise the event is negated."""
    if same_meaning:
        return _paraphrase_event(rng, event, 1 + (rng.random() < 0.25))
    return negate_event(_paraphrase_event(rng, event, int(rng.random() < 0.75)))


def _sample_events_for_text_pair(
    rng: Random, same_meaning: bool
) -> tuple[list[Event], list[Event]]:
    """Draw the meanings of two texts for a row of the toy imitation of RTE.

    Returns (events of the first text, events of the second text). RTE asks whether the
    first text implies the second. A text has one event, or two events of which one is
    negated.

    same_meaning: whether the second text has the same meaning. Otherwise each of its
    events is the negation of that in the first text."""
    if rng.random() < 0.5:
        [p] = _sample_events(rng)
        return [p], [_paraphrase_or_contradict_event(rng, p, same_meaning)]
    one, other = _sample_events(rng, 2)
    said = [one, replace(other, positive=not one.positive)]
    again = [_paraphrase_event(rng, p, 1) for p in said]
    return said, again if same_meaning else [negate_event(p) for p in again]


def _sample_events_with_relative_clauses(
    rng: Random, same_meaning: bool
) -> tuple[list[Event], list[Event]]:
    """Draw the meanings of two texts with relative clauses for a toy task like RTE.

    Returns ([event of the first text], [event of the second text]). An example of a
    text is "the dog that slept was seen by the pig". A model must find out to which
    noun the clause belongs.

    same_meaning: whether the second text has the same meaning. Otherwise it negates the
    event, or its relative clause is at the other noun."""
    meaning = "same" if same_meaning else pick_option(rng, ("other", "denied"))
    [p] = _sample_events(rng)
    while len({g.CLASS[e.noun] for e in (p.agent, p.patient) if e}) > 1:
        # Draw again until agent and patient are both persons or both animals. Otherwise
        # the relative pronoun, "who" for persons or "that" for animals, would reveal
        # the label.
        [p] = _sample_events(rng)
    said = replace(
        sample_event(rng, g.INTRANSITIVE, p.agent, positive=True), agent=None
    )
    slots = g.ROLES[:: pick_option(rng, (1, -1))]
    again = _paraphrase_or_contradict_event(rng, p, meaning != "denied")
    return [_attach_relative_clause(p, slots[0], said)], [
        _attach_relative_clause(again, slots[meaning == "other"], said)
    ]


def _attach_relative_clause(event: Event, role: Role, inner_event: Event) -> Event:
    """Return an Event (meaning of a clause) with a relative clause at one of its nouns.

    An example is "the dog that slept chased the pig".

    role: "agent" or "patient", the noun that gets the relative clause.
    inner_event: the meaning of the relative clause."""
    return replace(event, **{role: replace(getattr(event, role), clause=inner_event)})


def _make_rte_row(rng: Random, label: int) -> Texts:
    """Generate the two texts of a row of the toy imitation of RTE.

    RTE asks whether the first text implies the second.

    label: 0 gives texts with the same meaning, 1 gives texts with different
    meanings."""
    both = pick_option(
        rng,
        (
            _sample_events_for_text_pair,
            _sample_events_for_text_pair,
            _sample_events_with_relative_clauses,
        ),
    )(rng, label == 0)
    return tuple(
        format_sentence(join_clauses_with_but(map(make_clause, events)))
        for events in both
    )


class SquadTexts(NamedTuple):
    question: str
    passage: str
    answer_character_span: tuple[int, int]  # In characters; (-1, -1) without an answer.


def _make_squad_row(rng: Random, agent_patient_or_unanswerable: int) -> SquadTexts:
    """Generate (question, passage, answer span) for the toy imitations of SQuAD.

    The span is (start, end) in characters of the passage, end exclusive, or (-1, -1)
    for no answer. The passage has two sentences: A does something to B, and B does the
    same to C. In 60 % of the rows, the sentence that is not asked about is replaced by
    one about another participant, such as "the pig slept".

    agent_patient_or_unanswerable: 0 asks for the agent of a sentence, 1 for its
    patient. 2 asks for one of the two, drawn at random, but with the event negated, so
    that there is no answer."""
    is_answerable = agent_patient_or_unanswerable < 2
    first, beside = _sample_events(rng, 2)
    second = replace(first, agent=first.patient, patient=beside.patient)
    asked, other = (first, second)[:: pick_option(rng, (1, -1))]
    if rng.random() < 0.6:
        other = sample_event(rng, g.INTRANSITIVE, beside.agent, positive=first.positive)
    role = (
        g.ROLES[agent_patient_or_unanswerable]
        if is_answerable
        else pick_option(rng, g.ROLES)
    )
    voiced = [
        replace(p, passive=bool(p.patient) and rng.random() < 0.4)
        for p in (asked, other)
    ]
    said = [format_sentence(make_clause(p)) for p in voiced]
    passage = " ".join(said if rng.random() < 0.5 else said[::-1])
    # format_sentence puts " ." after the last word; [:-2] cuts it off.
    answer = format_sentence(make_noun_phrase(getattr(asked, role)))[:-2]
    asked = asked if is_answerable else negate_event(asked)
    if rng.random() < 0.3:
        asked = _replace_by_synonym(rng, asked, "verb")
    place = passage.index(said[0]) + said[0].index(f"{answer} ")
    span = (place, place + len(answer)) if is_answerable else (-1, -1)
    return SquadTexts(format_sentence(g.make_question(asked, role)), passage, span)


def _make_tense_row(rng: Random, past_or_present: int) -> Texts:
    """Generate the text of a row of the toy imitation of SentEval's task Tense.

    The task asks for the tense of the main clause. A relative clause is in the other
    tense, so that single words do not give the answer. Returns a tuple of one sentence.

    past_or_present: 0 puts the main clause into the past, 1 into the present."""
    p, inner = (
        sample_event(rng, random_quantifiers=True, past=past, positive=True)
        for past in (past_or_present == 0, past_or_present == 1)
    )
    return (
        format_sentence(
            make_clause(
                _attach_relative_clause(
                    p,
                    pick_option(rng, g.ROLES),
                    g.remove_participant_for_relative_clause(rng, inner),
                )
            )
        ),
    )


MAKERS: dict[str, Callable[[Random, int], tuple[Any, ...]]] = {
    "CoLA": _make_cola_row,
    "RTE": _make_rte_row,
    "SQuAD1": _make_squad_row,
    "SQuAD2": _make_squad_row,
    "BigramShift": partial(
        _make_cola_row, fault_functions=(_swap_two_neighbouring_words,)
    ),
    "Tense": _make_tense_row,
}
TASKS = {name: OFFICIAL[name] for name in MAKERS}
# {task: {split: number of rows that are generated}}. Of the generated development rows
# only the first JUDGED ones are used. Other splits repeat no text of any generated
# development row, used or not, so their rows do not depend on JUDGED.
ROWS = dict.fromkeys(TASKS, {"train": 4000, "dev": 4000})
for probing in ("BigramShift", "Tense"):
    ROWS[probing] = ROWS[probing] | {"test": 500}
JUDGED = 2000


@cache
def load(task_name: str) -> dict[SplitName, Split]:
    """Generate the rows of a toy task, and return {split name, such as "train": Split}.

    Toy tasks need no download. The numbers of rows of two labels differ by at most one,
    and no text of an evaluation split is in the training set. The result is the same on
    every machine, and is cached.

    task_name: "CoLA", "RTE", "SQuAD1", "SQuAD2", "BigramShift" or "Tense". Raises
    KeyError for another name."""
    seen, names = set(), list(ROWS[task_name])
    splits = {
        name: _generate_split(task_name, name, seen)
        for name in sorted(names, key="train".__eq__)
    }
    return {name: splits[name] for name in names}


def _generate_split(
    task_name: str, split_name: str, used_texts_to_extend: set[str]
) -> Split:
    """Generate one split of a toy task, the same in every call with the same arguments.

    The labels take turns, so that they are equally frequent, then the rows are
    shuffled.

    split_name: "train", "dev" or "test".
    used_texts_to_extend: the texts of the splits that were generated before, which this
    split must not repeat. The texts of this split are added to the set."""
    rng, span = random.Random(f"{SEED} {task_name} {split_name}"), TASKS[task_name].span
    rows: dict[Texts, tuple[float, Any]] = {}
    while len(rows) < ROWS[task_name][split_name]:
        label = len(rows) % (3 if task_name == "SQuAD2" else 2)
        *texts, target = MAKERS[task_name](rng, label) + (() if span else (label,))
        if len(set(texts)) == len(texts) and used_texts_to_extend.isdisjoint(texts):
            rows.setdefault(tuple(texts), (rng.random(), target))
    used_texts_to_extend.update(text for texts in rows for text in texts)
    order = sorted(
        list(rows)[: JUDGED if split_name == "dev" else None], key=rows.__getitem__
    )
    a, *b = map(list, zip(*order, strict=True))
    y = np.array([rows[texts][1] for texts in order], np.int64)
    split = Split(a, b[0] if b else None, y, np.arange(len(y)))
    if not span:
        return split
    places = zip(b[0], y.tolist(), strict=True)
    answers = [[text[start:end]] if end > 0 else [] for text, (start, end) in places]
    return replace(split, answers=answers)


def generate_passages(total_sentence_count: int, seed: int) -> list[str]:
    """Generate a toy corpus for pre-training: a list of passages of two sentences each.

    It needs no download, and has the vocabulary of the toy tasks. The two sentences of
    a passage have the same meaning (60 %), or are unrelated; all are grammatical.

    total_sentence_count: the number of sentences in all; an odd number is rounded up.
    seed: another seed gives other passages."""
    rng, passages = random.Random(f"{seed} corpus"), []
    while 2 * len(passages) < total_sentence_count:
        said_twice = _make_rte_row(rng, 0)
        good = *_make_cola_row(rng, 1), *_make_cola_row(rng, 1)
        passages.append(" ".join(said_twice if rng.random() < 0.6 else good))
    return passages
