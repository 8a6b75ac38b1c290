"""The English of the toy world: a lexicon, meanings, and the words that say them. Free of torch.

A **meaning** (`Entity`, `Event`) holds who did what to whom. Whether one sentence follows from
another is decided on meanings. A **sentence** is a list of `Word`: `clause` and `question` say an
event in the active or the passive voice. The lexicon (`grammar.toml`) is the only source of words;
`vocabulary` lists all their forms. Random numbers come from `random.Random.random` alone, whose
stream is the same on every version of Python.
"""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from lib import files

TOLD = files.toml(Path(__file__).with_suffix(".toml"))
SPECIAL, SINGULAR, PLURAL, PLAIN = map(TOLD.get, ("special", "singular", "plural", "plain"))
ADVERBS, PREPOSITIONS, FUNCTION = TOLD["adverbs"], TOLD["prepositions"], TOLD["function"].split()
ANIMATE = ("person", "animal")


@dataclass(frozen=True)
class Verb:
    """The forms of a verb, and the classes of nouns that it takes. Without patients it is
    intransitive."""

    lemma: str
    past: str
    participle: str
    agents: tuple
    patients: tuple

    def form(self, tag):
        """The form for a Penn tag: VB, VBP, VBZ, VBD or VBN."""
        regular = {"VBZ": with_s(self.lemma), "VBD": self.past, "VBN": self.participle}
        return regular.get(tag, self.lemma)


def with_s(word):
    """A noun in the regular plural, a verb in the third person: "ladies", "boys", "chases"."""
    if word[-1] == "y" and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")


def plural(noun):
    return TOLD["irregular"].get(noun) or with_s(noun)


def _past(lemma):
    ends_in_y = lemma[-1] == "y" and lemma[-2] not in "aeiou"
    return lemma[:-1] + "ied" if ends_in_y else lemma + ("d" if lemma[-1] == "e" else "ed")


def _lexicon():
    """{verb: Verb}, {noun: class} and {word: its synonyms}."""
    verbs, classes, groups = {}, {}, []
    for kind, text in TOLD["nouns"].items():
        groups += [group.split("=") for group in text.split()]
        classes |= {noun: kind for noun in text.replace("=", " ").split()}
    for line in TOLD["verbs"]["lines"]:
        agents, patients, lemmas = (part.split() for part in line.split(";"))
        for group in lemmas:
            forms = [entry.split(":") for entry in group.split("=")]
            groups.append([lemma for lemma, *_ in forms])
            for lemma, *irregular in forms:
                past = irregular or [_past(lemma)]  # and the participle, where it is another
                verbs[lemma] = Verb(lemma, past[0], past[-1], tuple(agents), tuple(patients))
    return verbs, classes, {w: tuple(v for v in group if v != w) for group in groups for w in group}


VERB, CLASS, SYNONYM = _lexicon()
NOUNS = {kind: tuple(noun for noun in CLASS if CLASS[noun] == kind) for kind in TOLD["nouns"]}
_FITTING = [(word, kinds) for words, kinds in TOLD["adjectives"].items() for word in words.split()]
ADJECTIVE = {kind: tuple(word for word, kinds in _FITTING if kind in kinds) for kind in NOUNS}
INTRANSITIVE = tuple(lemma for lemma, verb in VERB.items() if not verb.patients)
TRANSITIVE = tuple(lemma for lemma, verb in VERB.items() if verb.patients)
# What people and animals do to each other; all have synonyms.
MUTUAL = tuple(lemma for lemma in TRANSITIVE if VERB[lemma].patients == ANIMATE)


def is_a(noun, other):
    """Whether every `noun` is an `other`."""
    return noun == other or other in SYNONYM.get(noun, ()) or CLASS.get(noun) == other


@cache
def vocabulary():
    """The special tokens in BERT's order, then every form of the lexicon, sorted."""
    words = {*FUNCTION, *SINGULAR, *PLURAL, *PREPOSITIONS, *ADVERBS}
    for noun in (*NOUNS, *CLASS):
        words |= {noun, plural(noun)}
    for verb in VERB.values():
        words |= {verb.form(tag) for tag in ("VB", "VBZ", "VBD", "VBN")}
    return [*SPECIAL, *sorted(words.union(*ADJECTIVE.values()))]


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
    """Who did what to whom; with a `quality` in place of a verb, how somebody was."""

    verb: str
    agent: Entity | None
    patient: Entity | None = None
    quality: str = ""
    past: bool = True
    positive: bool = True
    place: tuple = ()
    adverb: str = ""


def denial(event):
    return replace(event, positive=not event.positive)


def swapped(event):
    return replace(event, agent=event.patient, patient=event.agent)


# ---- sentences ----
class Word(NamedTuple):
    text: str
    tag: str  # of the Penn treebank, or AUX, NEG
    lemma: str = ""


def text(words):
    """A sentence, with "a" or "an" as the next word wants it."""
    said = [word.text for word in words] + ["."]
    for i, word in enumerate(said):
        if word in ("a", "an"):
            after = said[i + 1]
            said[i] = "an" if after[0] in "aeio" or after.startswith("un") else "a"
    return " ".join(said)


def phrase(e):
    """The words of an entity."""
    words = [Word(e.quantifier, "DT")]
    if e.adjective:
        words.append(Word(e.adjective, "JJ"))
    words.append(Word(plural(e.noun), "NNS", e.noun) if e.plural else Word(e.noun, "NN", e.noun))
    if e.place:
        words += _prepositional(*e.place)
    if e.clause:
        pronoun = "who" if is_a(e.noun, "person") else "that"
        words += [Word(pronoun, "WP"), *clause(e.clause, gap=e)]
    return words


def _prepositional(preposition, e):
    return [Word(preposition, "IN"), *phrase(e)]


def _finite(p, many, passive=False):
    """The finite verb and what goes with it: "chases", "did not chase", "was not chased"."""
    negation = [] if p.positive else [Word("not", "NEG")]
    if passive or p.quality:
        be = ("were" if many else "was") if p.past else ("are" if many else "is")
        main = Word(p.quality, "JJ") if p.quality else Word(VERB[p.verb].participle, "VBN", p.verb)
        return [Word(be, "AUX", "be"), *negation, main]
    if not p.positive:
        do = "did" if p.past else "do" if many else "does"
        return [Word(do, "AUX", "do"), *negation, Word(p.verb, "VB", p.verb)]
    tag = "VBD" if p.past else "VBP" if many else "VBZ"
    return [Word(VERB[p.verb].form(tag), tag, p.verb)]


def clause(p, passive=False, gap=None):
    """The words of an event. `gap`: the entity that a relative clause is about. A passive one
    begins with the patient."""
    subject, other = (p.patient, None) if passive else (p.agent, p.patient)
    words = phrase(subject) if subject else []
    words += _finite(p, (subject or gap).plural, passive)
    words += phrase(other) if other else []
    words += _prepositional("by", p.agent) if passive and p.agent else []
    words += _prepositional(*p.place) if p.place else []
    return words + ([Word(p.adverb, "RB")] if p.adverb else [])


def question(p, role, passive=False):
    """The words that ask for the agent or the patient of an event.

    "who chased the dog", "who was the dog chased by"; "who did the pig chase", "who was chased by
    the pig".
    """
    who = Word("who", "WP")
    if (role == "agent") != passive:  # "who" is the subject
        return [who, *clause(replace(p, **{role: None}), passive, gap=Entity("person"))]
    subject = p.patient if passive else p.agent
    auxiliary, negation, main = _finite(replace(p, positive=False), subject.plural, passive)
    denied = [] if p.positive else [negation]
    by = [Word("by", "IN")] if passive else []
    return [who, auxiliary, *phrase(subject), *denied, main, *by]


def elliptic(p):
    """The words of "the pig did not", whose verb stands in another clause."""
    finite = _finite(replace(p, positive=False), p.agent.plural)
    return phrase(p.agent) + finite[: 1 if p.positive else 2]


def joined(clauses, link="but"):
    """Clauses with a conjunction between them."""
    words = []
    for each in clauses:
        words += [Word(link, "CC"), *each] if words else each
    return words


# ---- drawing ----
def pick(rng, options):
    return options[int(rng.random() * len(options))]


def sample_entity(rng, kinds=ANIMATE, quantifiers=("the",), adjective=0.1, place=0.0, clause=0.0):
    """An entity of one of the classes. The numbers are the probabilities of each modifier."""
    kind, many = pick(rng, kinds), rng.random() < 0.4
    fitting = [word for word in quantifiers if word in (PLURAL if many else SINGULAR)]
    e = Entity(pick(rng, NOUNS[kind]), many, pick(rng, fitting))
    if rng.random() < adjective and ADJECTIVE[kind]:
        e = replace(e, adjective=pick(rng, ADJECTIVE[kind]))
    roll = rng.random()
    if roll < place:
        return replace(e, place=sample_place(rng))
    if roll < place + clause and kind in ANIMATE:
        return replace(e, clause=about(rng, sample_event(rng, MUTUAL, positive=True)))
    return e


def sample_place(rng):
    return pick(rng, PREPOSITIONS), sample_entity(rng, ("place",), ("the", "a"), adjective=0.0)


def sample_event(rng, verbs, agent=None, past=None, positive=None, varied=(), **modifiers):
    """An event of one of the verbs, whose agent and patient share no word.

    varied: quantifiers of the agent; those of the patient are then PLAIN. By default both have
      "the".
    modifiers: of the agent (`sample_entity`).
    """
    verb, patient = VERB[pick(rng, verbs)], None
    agent = agent or sample_entity(rng, verb.agents, varied or ("the",), **modifiers)
    while verb.patients and (patient is None or is_a(agent.noun, patient.noun)):
        patient = sample_entity(rng, verb.patients, PLAIN if varied else ("the",), adjective=0.0)
    past = rng.random() < 0.5 if past is None else past
    if positive is None:
        positive = agent.quantifier == "no" or rng.random() < 0.5
    return Event(verb.lemma, agent, patient, past=past, positive=positive)


def about(rng, event):
    """The event as a relative clause: its agent or its patient is the one that it is about."""
    return replace(event, **{pick(rng, ("agent", "patient")): None})
