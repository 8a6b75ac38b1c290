"""This module has the small English grammar that generates the toy data sets: a
lexicon, meanings, and sentences that express them.

A **meaning** (`Entity`, `Event`) says who did what to whom; the labels of tasks follow
from meanings. A **sentence** is a list of `Word`: `make_clause` and `make_question`
express an event in the active or the passive voice. All words come from the lexicon
(`grammar.toml`), and `list_vocabulary` lists all their forms. Random numbers come only
from `random.Random.random`, whose stream is the same in every version of Python, so
that the data are the same on every machine."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from lib.core import disk

T = TypeVar("T")
Preposition: TypeAlias = str
PennTreebankTag: TypeAlias = str  # Or "AUX", "NEG" or "".
ArgumentOfSampleEntity: TypeAlias = str
# Whose noun phrase in an event: of who does it, or of whom it is done to.
Role: TypeAlias = Literal["agent", "patient"]
LEXICON = disk.read_toml(Path(__file__).with_suffix(".toml"))
SINGULAR, PLURAL = LEXICON["singular"], LEXICON["plural"]
PREPOSITIONS, ADJECTIVES = LEXICON["prepositions"], LEXICON["adjectives"].split()
ANIMATE = ("person", "animal")
ROLES: tuple[Role, Role] = ("agent", "patient")
NOUNS = {kind: tuple(nouns) for kind, nouns in LEXICON["nouns"].items()}
CLASS = {noun: kind for kind, nouns in NOUNS.items() for noun in nouns}
MANY = {
    noun: many for nouns in LEXICON["nouns"].values() for noun, many in nouns.items()
}
INTRANSITIVE, TRANSITIVE = (tuple(verbs) for verbs in LEXICON["verbs"].values())
# Penn Treebank tags of verb forms.
TAGS = ("VB", "VBP", "VBZ", "VBD", "VBN")
# {verb: {tag: form}}, such as {"chase": {"VBZ": "chases", ...}}.
VERB = {
    verb: dict(zip(TAGS, [verb, verb, *forms.split()], strict=True))
    for verbs in LEXICON["verbs"].values()
    for verb, forms in verbs.items()
}
SYNONYM = {
    word: tuple(other for other in group.split("=") if other != word)
    for group in LEXICON["synonyms"].split()
    for word in group.split("=")
}


def are_synonyms(first_word: str, second_word: str) -> bool:
    """Return whether two nouns, or two verbs, of the lexicon are equal or synonyms.

    The lexicon has the words of the generated toy sentences. Two participants of an
    event must not be named by synonyms, so that the meaning of a sentence is clear."""
    return first_word == second_word or second_word in SYNONYM.get(first_word, ())


@cache
def list_vocabulary() -> list[str]:
    """Return the tokens of the tokenizer for the generated tasks, one for each word.

    These are the tasks of "toy", the smallest size of the experiments. Special tokens
    stand first, in BERT's order. Then follow all forms of all words of which the
    sentences are generated, sorted."""
    words = {*LEXICON["function"].split(), *ADJECTIVES, *MANY, *MANY.values()}
    words.update(SINGULAR, PLURAL, PREPOSITIONS)
    words.update(form for forms in VERB.values() for form in forms.values())
    return [*LEXICON["special"], *sorted(words)]


@dataclass(frozen=True)
class Entity:
    """An Entity is the meaning of a noun phrase, such as "the old dogs in the park".

    Toy sentences are generated from meanings, so that their labels are known.

    noun: the singular form, such as "dog".
    quantifier: the determiner, such as "the", "every" or "two".
    adjective: an adjective such as "old", or "".
    place: (preposition, Entity) of a phrase such as "in the park", or ().
    clause: the Event (meaning) of a relative clause such as "that slept", or None. The
    agent or the patient of that Event is None where it is this Entity itself."""

    noun: str
    plural: bool = False
    quantifier: str = "the"
    adjective: str = ""
    place: "tuple[Preposition, Entity] | tuple[()]" = ()
    clause: "Event | None" = None


@dataclass(frozen=True)
class Event:
    """An Event is the meaning of a clause: who did what to whom.

    The agent does what the verb says to the patient. Toy sentences are generated from
    meanings, so that their labels are known.

    verb: the base form, such as "chase".
    agent, patient: the Entities. An intransitive verb has no patient (None). In a
    relative clause, the one that stands for the modified noun is None: in "(the dog)
    that slept" it is the agent.
    past: whether the clause is in the past tense, or else in the present.
    positive: whether it is affirmed, or else negated.
    passive: whether it is in the passive voice."""

    verb: str
    agent: Entity | None
    patient: Entity | None = None
    past: bool = True
    positive: bool = True
    passive: bool = False


def negate_event(event: Event) -> Event:
    return replace(event, positive=not event.positive)


class Word(NamedTuple):
    """A Word is a word of a generated sentence with its part of speech.

    Functions that make a sentence ungrammatical choose words by their tags.

    tag: a Penn Treebank tag, "AUX" for an auxiliary verb, or "NEG" for "not".
    lemma: for a form of a verb of the lexicon, the base form of that verb, else ""."""

    text: str
    tag: PennTreebankTag
    lemma: str = ""


def format_sentence(words: Iterable[Word]) -> str:
    """Return the text of a sentence: its words and a final ".", joined by blanks.

    An article "a" or "an" is spelled as the word after it requires. No word gets a
    capital letter."""
    said = [word.text for word in words] + ["."]
    for i, word in enumerate(said):
        if word in ("a", "an"):
            after = said[i + 1]
            said[i] = "an" if after[0] in "aeio" or after.startswith("un") else "a"
    return " ".join(said)


def make_noun_phrase(entity: Entity) -> list[Word]:
    """Return the words of the noun phrase that expresses an Entity (its meaning).

    An example is "the old dogs in the park". A relative clause, such as "that slept",
    is included."""
    words = [Word(entity.quantifier, "DT")]
    if entity.adjective:
        words.append(Word(entity.adjective, "JJ"))
    words.append(
        Word(MANY[entity.noun], "NNS") if entity.plural else Word(entity.noun, "NN")
    )
    if entity.place:
        words += [Word(entity.place[0], "IN"), *make_noun_phrase(entity.place[1])]
    if entity.clause:
        pronoun = "who" if CLASS[entity.noun] == "person" else "that"
        words += [
            Word(pronoun, "WP"),
            *make_clause(entity.clause, relative_clause_antecedent=entity),
        ]
    return words


def _conjugate_verb(event: Event, is_subject_plural: bool) -> list[Word]:
    """Return the words of the verb of an Event, with auxiliary and negation.

    Examples are "chases", "did not chase" and "was not chased". Tense, negation and
    voice are those of the Event.

    is_subject_plural: whether the subject, with which the verb agrees, is plural."""
    if event.past:
        be, do, finite_tag = ("was", "were"), ("did", "did"), ("VBD", "VBD")
    else:
        be, do, finite_tag = ("is", "are"), ("does", "do"), ("VBZ", "VBP")
    if event.passive:
        auxiliary, tag = [Word(be[is_subject_plural], "AUX")], "VBN"
    elif not event.positive:
        auxiliary, tag = [Word(do[is_subject_plural], "AUX")], "VB"
    else:
        auxiliary, tag = [], finite_tag[is_subject_plural]
    negation = [] if event.positive else [Word("not", "NEG")]
    return [*auxiliary, *negation, Word(VERB[event.verb][tag], tag, event.verb)]


def make_clause(
    event: Event, relative_clause_antecedent: Entity | None = None
) -> list[Word]:
    """Return the words of the clause that expresses an Event, such as "the dog slept".

    In the passive voice the patient is the subject, and the agent follows "by".

    relative_clause_antecedent: the Entity with which the verb agrees where the clause
    has no subject of its own, as in "(the boys) who sleep"; None for other clauses.
    Raises AssertionError where a clause has no subject and no antecedent."""
    subject, other = (
        (event.patient, event.agent) if event.passive else (event.agent, event.patient)
    )
    head = subject or relative_clause_antecedent
    assert head is not None
    words = [
        *(make_noun_phrase(subject) if subject else []),
        *_conjugate_verb(event, head.plural),
    ]
    if other:
        words += [Word("by", "IN")] * event.passive + make_noun_phrase(other)
    return words


def make_question(event: Event, asked_role: Role) -> list[Word]:
    """Return the words of a question about an Event, such as "who chased the dog".

    A question for the patient is in the passive voice, such as "who was chased by the
    pig". Toy tasks of question answering are made with it.

    asked_role: "agent" or "patient", the participant that the question asks for."""
    out: dict[str, Any] = {asked_role: None}
    asked = replace(event, passive=asked_role == "patient", **out)
    return [
        Word("who", "WP"),
        *make_clause(asked, relative_clause_antecedent=Entity("boy")),
    ]


def join_clauses_with_but(clauses: Iterable[Iterable[Word]]) -> list[Word]:
    """Return the words of one sentence of several clauses, with "but" between them.

    clauses: the words of each clause."""
    return [word for clause in clauses for word in (Word("but", "CC"), *clause)][1:]


def pick_option(rng: Random, options: Sequence[T]) -> T:
    return options[int(rng.random() * len(options))]


def sample_entity(
    rng: Random,
    random_quantifiers: bool = False,
    adjective_probability: float = 0.1,
    place_probability: float = 0.0,
    clause_probability: float = 0.0,
) -> Entity:
    """Draw a random Entity (meaning of a noun phrase) that is a person or an animal.

    Toy sentences get their nouns from it. A noun is plural with probability 0.5.

    random_quantifiers: whether the determiner is drawn at random; otherwise it is
    "the".
    adjective_probability: the probability that the noun gets an adjective.
    place_probability: the probability that it gets a phrase such as "in the park".
    clause_probability: the probability that it gets a relative clause. A noun never
    gets both a place and a relative clause."""
    e = Entity(pick_option(rng, NOUNS[pick_option(rng, ANIMATE)]), rng.random() < 0.5)
    if random_quantifiers:
        e = replace(e, quantifier=pick_option(rng, PLURAL if e.plural else SINGULAR))
    if rng.random() < adjective_probability:
        e = replace(e, adjective=pick_option(rng, ADJECTIVES))
    roll = rng.random()
    if roll < place_probability:
        where = Entity(
            pick_option(rng, NOUNS["place"]), quantifier=pick_option(rng, ("the", "a"))
        )
        return replace(e, place=(pick_option(rng, PREPOSITIONS), where))
    if roll < place_probability + clause_probability:
        return replace(
            e, clause=remove_participant_for_relative_clause(rng, sample_event(rng))
        )
    return e


def sample_event(
    rng: Random,
    verbs: Sequence[str] = TRANSITIVE,
    agent: Entity | None = None,
    random_quantifiers: bool = False,
    agent_sampling_probabilities: Mapping[ArgumentOfSampleEntity, float] | None = None,
    **fixed_event_fields: bool,
) -> Event:
    """Draw a random Event (meaning of a clause) with one of the given verbs.

    Toy sentences are generated from such Events. A transitive verb gets a patient whose
    noun is no synonym of the agent's noun. Tense and negation are random unless
    `fixed_event_fields` sets them; the voice is active by default.

    agent: the agent; None draws one.
    random_quantifiers: whether determiners are drawn at random; otherwise they are
    "the".
    agent_sampling_probabilities: further arguments of `sample_entity` for the agent
    that is drawn, such as {"adjective_probability": 0.2}.
    fixed_event_fields: fields of the Event to set, such as past=True."""
    verb, patient = pick_option(rng, verbs), None
    agent = agent or sample_entity(
        rng, random_quantifiers, **(agent_sampling_probabilities or {})
    )
    while verb in TRANSITIVE and (
        patient is None or are_synonyms(agent.noun, patient.noun)
    ):
        patient = sample_entity(rng, random_quantifiers, adjective_probability=0.0)
    drawn = {"past": rng.random() < 0.5, "positive": rng.random() < 0.5}
    return Event(verb, agent, patient, **drawn | fixed_event_fields)


def remove_participant_for_relative_clause(rng: Random, event: Event) -> Event:
    """Return an Event as the meaning of a relative clause: one participant is removed.

    The agent or the patient becomes None, because the noun that the clause modifies
    takes its place: "the dog chased the pig" gives "(the dog) that chased the pig". In
    the passive voice the patient is removed, in the active voice one of the two at
    random."""
    out: dict[str, Any] = {
        "patient" if event.passive else pick_option(rng, ROLES): None
    }
    return replace(event, **out)
