"""This module has the small English grammar that generates the toy tasks: a lexicon,
meanings, and sentences that express them. It does not import torch.

A **meaning** (`Entity`, `Event`) says who did what to whom; the labels of tasks follow
from meanings. A **sentence** is a list of `Word`: `clause` and `question` express an
event in the active or the passive voice. All words come from the lexicon
(`grammar.toml`), and `vocabulary` lists all their forms. Random numbers come from
`random.Random.random` alone, whose stream is the same in every version of Python."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

from lib.core import disk

T = TypeVar("T")
LEXICON = disk.read_toml(Path(__file__).with_suffix(".toml"))
SINGULAR, PLURAL = LEXICON["singular"], LEXICON["plural"]
PREPOSITIONS, ADJECTIVES = LEXICON["prepositions"], LEXICON["adjectives"].split()
ANIMATE, ROLES = ("person", "animal"), ("agent", "patient")
NOUNS = {kind: tuple(nouns) for kind, nouns in LEXICON["nouns"].items()}
CLASS = {noun: kind for kind, nouns in NOUNS.items() for noun in nouns}
MANY = {
    noun: many for nouns in LEXICON["nouns"].values() for noun, many in nouns.items()
}
INTRANSITIVE, TRANSITIVE = (tuple(verbs) for verbs in LEXICON["verbs"].values())
# Penn Treebank tags of verb forms.
TAGS = ("VB", "VBP", "VBZ", "VBD", "VBN")
# {verb: {tag: form}}.
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


def is_a(word: str, other: str) -> bool:
    """Return whether two nouns, or two verbs, mean the same."""
    return word == other or other in SYNONYM.get(word, ())


@cache
def vocabulary() -> list[str]:
    """Return the special tokens in BERT's order, then every form of the lexicon,
    sorted."""
    words = {*LEXICON["function"].split(), *ADJECTIVES, *MANY, *MANY.values()}
    words.update(SINGULAR, PLURAL, PREPOSITIONS)
    words.update(form for forms in VERB.values() for form in forms.values())
    return [*LEXICON["special"], *sorted(words)]


@dataclass(frozen=True)
class Entity:
    """An Entity is the meaning of a noun phrase.

    place: (preposition, Entity) of a phrase such as "in the park", or (). clause: the
    Event of a relative clause, in which the role of this entity is None."""

    noun: str
    plural: bool = False
    quantifier: str = "the"
    adjective: str = ""
    place: "tuple[str, Entity] | tuple[()]" = ()
    clause: "Event | None" = None


@dataclass(frozen=True)
class Event:
    """An Event is the meaning of a clause: who did what to whom.

    passive: whether the clause is in the passive voice."""

    verb: str
    agent: Entity | None
    patient: Entity | None = None
    past: bool = True
    positive: bool = True
    passive: bool = False


def deny_event(event: Event) -> Event:
    return replace(event, positive=not event.positive)


class Word(NamedTuple):
    """A Word is a word of a sentence with its tag.

    tag: a Penn Treebank tag, "AUX" or "NEG".
    lemma: the verb of which the word is a form, or ""."""

    text: str
    tag: str
    lemma: str = ""


def text(words: Iterable[Word]) -> str:
    """Return the text of a sentence, with "a" or "an" by the next word."""
    said = [word.text for word in words] + ["."]
    for i, word in enumerate(said):
        if word in ("a", "an"):
            after = said[i + 1]
            said[i] = "an" if after[0] in "aeio" or after.startswith("un") else "a"
    return " ".join(said)


def noun_phrase(e: Entity) -> list[Word]:
    """Return the words of the noun phrase for the entity `e`."""
    words = [Word(e.quantifier, "DT")]
    if e.adjective:
        words.append(Word(e.adjective, "JJ"))
    words.append(Word(MANY[e.noun], "NNS") if e.plural else Word(e.noun, "NN"))
    if e.place:
        words += [Word(e.place[0], "IN"), *noun_phrase(e.place[1])]
    if e.clause:
        pronoun = "who" if CLASS[e.noun] == "person" else "that"
        words += [Word(pronoun, "WP"), *clause(e.clause, gap=e)]
    return words


def _finite(p: Event, many: bool) -> list[Word]:
    """Return the words of the finite verb of the event `p`: "chases", "did not chase",
    "was not chased".

    many: whether the subject is plural."""
    if p.passive:
        be = ("were" if many else "was") if p.past else ("are" if many else "is")
        auxiliary, tag = [Word(be, "AUX")], "VBN"
    elif not p.positive:
        do = "did" if p.past else "do" if many else "does"
        auxiliary, tag = [Word(do, "AUX")], "VB"
    else:
        auxiliary, tag = [], "VBD" if p.past else "VBP" if many else "VBZ"
    negation = [] if p.positive else [Word("not", "NEG")]
    return [*auxiliary, *negation, Word(VERB[p.verb][tag], tag, p.verb)]


def clause(p: Event, gap: Entity | None = None) -> list[Word]:
    """Return the words of the clause for the event `p`.

    gap: for a relative clause without a subject, the entity that it modifies, with
    which the verb agrees."""
    subject, other = (p.patient, p.agent) if p.passive else (p.agent, p.patient)
    head = subject or gap
    assert head is not None
    words = [*(noun_phrase(subject) if subject else []), *_finite(p, head.plural)]
    if other:
        words += [Word("by", "IN")] * p.passive + noun_phrase(other)
    return words


def question(p: Event, role: str) -> list[Word]:
    """Return the words of a question about the event `p`: "who chased the dog", "who
    was chased by the pig".

    role: "agent" or "patient", which is asked for."""
    out: dict[str, Any] = {role: None}
    asked = replace(p, passive=role == "patient", **out)
    return [Word("who", "WP"), *clause(asked, gap=Entity("boy"))]


def join_clauses(clauses: Iterable[Iterable[Word]]) -> list[Word]:
    """Return the words of several clauses, joined by "but"."""
    return [word for clause in clauses for word in (Word("but", "CC"), *clause)][1:]


def pick_option(rng: Random, options: Sequence[T]) -> T:
    return options[int(rng.random() * len(options))]


def sample_entity(
    rng: Random,
    varied: bool = False,
    adjective: float = 0.1,
    place: float = 0.0,
    clause: float = 0.0,
) -> Entity:
    """Draw an Entity that is a person or an animal.

    varied: whether a random quantifier takes the place of "the".
    adjective, place, clause: the probability of each modifier."""
    e = Entity(pick_option(rng, NOUNS[pick_option(rng, ANIMATE)]), rng.random() < 0.5)
    if varied:
        e = replace(e, quantifier=pick_option(rng, PLURAL if e.plural else SINGULAR))
    if rng.random() < adjective:
        e = replace(e, adjective=pick_option(rng, ADJECTIVES))
    roll = rng.random()
    if roll < place:
        where = Entity(
            pick_option(rng, NOUNS["place"]), quantifier=pick_option(rng, ("the", "a"))
        )
        return replace(e, place=(pick_option(rng, PREPOSITIONS), where))
    if roll < place + clause:
        return replace(e, clause=relative_event(rng, sample_event(rng)))
    return e


def sample_event(
    rng: Random,
    verbs: Sequence[str] = TRANSITIVE,
    agent: Entity | None = None,
    varied: bool = False,
    modifiers: Mapping[str, float] | tuple[()] = (),
    **fields: bool,
) -> Event:
    """Draw an Event with one of the verbs.

    A transitive verb gets a patient, whose noun is no synonym of the agent's. Tense and
    polarity are random unless `fields` sets them; the voice is active by default.

    agent: the agent; None draws one.
    varied: whether a random quantifier takes the place of "the".
    modifiers: the probabilities of the agent's modifiers (`sample_entity`).
    fields: fields of the Event to set."""
    verb, patient = pick_option(rng, verbs), None
    agent = agent or sample_entity(rng, varied, **dict(modifiers))
    while verb in TRANSITIVE and (patient is None or is_a(agent.noun, patient.noun)):
        patient = sample_entity(rng, varied, adjective=0.0)
    drawn = {"past": rng.random() < 0.5, "positive": rng.random() < 0.5}
    return Event(verb, agent, patient, **drawn | fields)


def relative_event(rng: Random, event: Event) -> Event:
    """Return an event for a relative clause: its agent or its patient is None, as the
    clause modifies that entity."""
    out: dict[str, Any] = {
        "patient" if event.passive else pick_option(rng, ROLES): None
    }
    return replace(event, **out)
