"""The English of the toy world: a lexicon, meanings, and the words that say them. Free of torch.

A **meaning** (`Entity`, `Event`) holds who did what to whom. Labels are decided on meanings. A
**sentence** is a list of `Word`: `clause` and `question` say an event in the active or the passive
voice. The lexicon (`grammar.toml`) is the only source of words; `vocabulary` lists all their forms.
Random numbers come from `random.Random.random` alone, whose stream is the same on every version of
Python.
"""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from lib.runs import paths

TOLD = paths.toml(Path(__file__).with_suffix(".toml"))
SPECIAL, SINGULAR, PLURAL = map(TOLD.get, ("special", "singular", "plural"))
PREPOSITIONS, FUNCTION = TOLD["prepositions"], TOLD["function"].split()
ADJECTIVES = TOLD["adjectives"].split()
ANIMATE, ROLES = ("person", "animal"), ("agent", "patient")
NOUNS = {kind: tuple(nouns) for kind, nouns in TOLD["nouns"].items()}
CLASS = {noun: kind for kind, nouns in NOUNS.items() for noun in nouns}
MANY = {noun: many for nouns in TOLD["nouns"].values() for noun, many in nouns.items()}
INTRANSITIVE, TRANSITIVE = (tuple(verbs) for verbs in TOLD["verbs"].values())
TAGS = ("VB", "VBP", "VBZ", "VBD", "VBN")  # of the Penn treebank
VERB = {  # {verb: {tag: form}}
    verb: dict(zip(TAGS, [verb, verb, *forms.split()], strict=True))
    for verbs in TOLD["verbs"].values()
    for verb, forms in verbs.items()
}
SYNONYM = {
    word: tuple(other for other in group.split("=") if other != word)
    for group in TOLD["synonyms"].split()
    for word in group.split("=")
}


def is_a(word, other):
    """Whether two nouns, or two verbs, mean the same."""
    return word == other or other in SYNONYM.get(word, ())


@cache
def vocabulary():
    """Return the special tokens in BERT's order, then every form of the lexicon, sorted."""
    words = {*FUNCTION, *SINGULAR, *PLURAL, *PREPOSITIONS, *ADJECTIVES, *MANY, *MANY.values()}
    words.update(form for forms in VERB.values() for form in forms.values())
    return [*SPECIAL, *sorted(words)]


# ---- meanings ----
@dataclass(frozen=True)
class Entity:
    """What a noun phrase means."""

    noun: str
    plural: bool = False
    quantifier: str = "the"
    adjective: str = ""
    place: tuple = ()  # (preposition, Entity)
    clause: "Event | None" = None  # a relative one: the role that this entity fills is None there


@dataclass(frozen=True)
class Event:
    """Who did what to whom."""

    verb: str
    agent: Entity | None
    patient: Entity | None = None
    past: bool = True
    positive: bool = True
    passive: bool = False  # the voice in which it is said


def denial(event):
    return replace(event, positive=not event.positive)


# ---- sentences ----
class Word(NamedTuple):
    text: str
    tag: str  # one of TAGS, or another of the Penn treebank, or AUX, NEG
    lemma: str = ""


def text(words):
    """Return a sentence, with "a" or "an" as the next word wants it."""
    said = [word.text for word in words] + ["."]
    for i, word in enumerate(said):
        if word in ("a", "an"):
            after = said[i + 1]
            said[i] = "an" if after[0] in "aeio" or after.startswith("un") else "a"
    return " ".join(said)


def phrase(e):
    """Return the words of an entity."""
    words = [Word(e.quantifier, "DT")]
    if e.adjective:
        words.append(Word(e.adjective, "JJ"))
    words.append(Word(MANY[e.noun], "NNS", e.noun) if e.plural else Word(e.noun, "NN", e.noun))
    if e.place:
        words += [Word(e.place[0], "IN"), *phrase(e.place[1])]
    if e.clause:
        pronoun = "who" if CLASS[e.noun] == "person" else "that"
        words += [Word(pronoun, "WP"), *clause(e.clause, gap=e)]
    return words


def _finite(p, many):
    """Return the finite verb and what goes with it: "chases", "did not chase", "was not chased"."""
    negation = [] if p.positive else [Word("not", "NEG")]
    if p.passive:
        be = ("were" if many else "was") if p.past else ("are" if many else "is")
        return [Word(be, "AUX", "be"), *negation, Word(VERB[p.verb]["VBN"], "VBN", p.verb)]
    if not p.positive:
        do = "did" if p.past else "do" if many else "does"
        return [Word(do, "AUX", "do"), *negation, Word(p.verb, "VB", p.verb)]
    tag = "VBD" if p.past else "VBP" if many else "VBZ"
    return [Word(VERB[p.verb][tag], tag, p.verb)]


def clause(p, gap=None):
    """Return the words of an event. A passive one begins with the patient.

    gap: the entity that a relative clause is about. It is no agent of a passive one.
    """
    subject, other = (p.patient, p.agent) if p.passive else (p.agent, p.patient)
    words = phrase(subject) if subject else []
    words += _finite(p, (subject or gap).plural)
    words += [Word("by", "IN")] if p.passive and other else []
    return words + (phrase(other) if other else [])


def question(p, role):
    """Return the words that ask for the agent or the patient of an event: "who chased the dog",
    "who was chased by the pig"."""
    asked = replace(p, passive=role == "patient", **{role: None})
    return [Word("who", "WP"), *clause(asked, gap=Entity("boy"))]


def joined(clauses):
    """Return the words of clauses, with "but" before all but the first."""
    return [word for clause in clauses for word in (Word("but", "CC"), *clause)][1:]


# ---- drawing ----
def pick(rng, options):
    return options[int(rng.random() * len(options))]


def sample_entity(rng, varied=False, adjective=0.1, place=0.0, clause=0.0):
    """Return a person or an animal. varied: with any quantifier, not with "the" alone. The numbers
    are the probabilities of each modifier.
    """
    e = Entity(pick(rng, NOUNS[pick(rng, ANIMATE)]), rng.random() < 0.5)
    if varied:
        e = replace(e, quantifier=pick(rng, PLURAL if e.plural else SINGULAR))
    if rng.random() < adjective:
        e = replace(e, adjective=pick(rng, ADJECTIVES))
    roll = rng.random()
    if roll < place:
        where = Entity(pick(rng, NOUNS["place"]), quantifier=pick(rng, ("the", "a")))
        return replace(e, place=(pick(rng, PREPOSITIONS), where))
    return replace(e, clause=about(rng, sample_event(rng))) if roll < place + clause else e


def sample_event(rng, verbs=TRANSITIVE, agent=None, varied=False, modifiers=(), **fields):
    """Return an event of one of the verbs, whose agent and patient have no word in common.

    modifiers: those of the agent (`sample_entity`). fields: of the Event; tense and polarity are
    drawn, and events are said in the active voice, where nothing else is asked for.
    """
    verb, patient = pick(rng, verbs), None
    agent = agent or sample_entity(rng, varied, **dict(modifiers))
    while verb in TRANSITIVE and (patient is None or is_a(agent.noun, patient.noun)):
        patient = sample_entity(rng, varied, adjective=0.0)
    drawn = {"past": rng.random() < 0.5, "positive": rng.random() < 0.5}
    return Event(verb, agent, patient, **drawn | fields)


def about(rng, event):
    """Return the event as a relative clause: its agent or its patient is the one that it is
    about.
    """
    return replace(event, **{"patient" if event.passive else pick(rng, ROLES): None})
