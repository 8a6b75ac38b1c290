"""The toy world's English: a lexicon, meanings (`Entity`, `Proposition`, `Compound`), trees that say them.

Two layers, kept apart. A **meaning** knows who did what to whom, under which quantifier and polarity: whether
one sentence follows from another is decided on it. A **tree** (`realise`) is one way to say it, active or
passive, with number, tense and lemma as features of its nodes: probing labels are read off it. The lexicon
below is the only source of words: `vocabulary` lists its forms. Free of torch; random numbers come from
`random.Random.random` alone, whose stream is the same on every Python.
"""

from dataclasses import dataclass, field, replace
from functools import cache

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# ---- the lexicon: "a=b" are synonyms, a group is a concept, a key is the hypernym of its concepts ----
TAXONOMY = {
    "person": "doctor=physician thief=robber boy=lad woman=lady girl king teacher farmer",
    "animal": "dog=hound rabbit=bunny cat horse",
    "food": "cake=pastry apple pear",
    "vehicle": "car=automobile truck=lorry",
    "tool": "axe=hatchet hammer",
    "garment": "coat=jacket hat",
    "document": "letter=note book",
    "place": "garden=yard park school",
}
PLURALS = {"woman": "women", "person": "people", "thief": "thieves"}
GENDER = {
    "boy": "himself",
    "lad": "himself",
    "king": "himself",
    "girl": "herself",
    "woman": "herself",
    "lady": "herself",
}
ANIMATE = ("person", "animal")
THINGS = ("food", "vehicle", "tool", "garment", "document")

# frame; agents; patients; lemmas. "transitive" needs its object, "optional" can do without it.
VERBS = """
intransitive; person animal;; sleep=doze walk=stroll arrive vanish=disappear
intransitive; person;; laugh cry=weep
optional;     person animal; food; eat
transitive;   person animal; food; taste
optional;     person; document; read write
transitive;   person; vehicle tool; fix=repair use
transitive;   person; food vehicle tool garment document; buy=purchase find=discover lose
transitive;   person animal; person animal; chase=pursue see=notice love=adore avoid
ditransitive; person; food tool garment document; give send
clausal;      person;; know=realize think say
"""
FACTIVE = ("know", "realize")  # "X knows that S" entails S; the other clausal verbs do not
IRREGULAR = {  # past, participle where it differs
    "sleep": "slept",
    "run": "ran run",
    "weep": "wept",
    "eat": "ate eaten",
    "read": "read",
    "write": "wrote written",
    "wear": "wore worn",
    "buy": "bought",
    "sell": "sold",
    "find": "found",
    "lose": "lost",
    "take": "took taken",
    "see": "saw seen",
    "catch": "caught",
    "give": "gave given",
    "send": "sent",
    "lend": "lent",
    "know": "knew known",
    "think": "thought",
    "say": "said",
    "be": "was been",
}

# group; classes it fits; "a=b" synonyms; "/" stands between opposites
ADJECTIVES = """
person animal food vehicle tool garment document; big=large/small=little
person animal; happy=glad/sad=unhappy old/young
vehicle tool garment document; new/old clean/dirty
food; fresh/rotten
"""
ADVERBS = "quickly=rapidly slowly loudly often"
SINGULAR = ("the", "a", "every", "this", "no")
PLURAL = ("the", "some", "these", "all", "two", "no")
PLAIN = ("the", "a", "some")  # upward in both arguments
DOWNWARD = ("every", "all", "no")  # downward in their noun
PREPOSITIONS = ("in", "near", "behind")
FUNCTION = (
    "an do does did is are was were not who that by to and but or himself herself itself themselves"
).split()


@dataclass(frozen=True)
class Verb:
    lemma: str
    frame: str
    agents: tuple  # classes of TAXONOMY
    patients: tuple
    third: str
    past: str
    participle: str


def _groups(text):
    return [tuple(group.split("=")) for group in text.split()]


def _verb(lemma, frame, agents, patients):
    sibilant = lemma.endswith(("s", "h", "x")) and not lemma.endswith("gh")
    stem = lemma[:-1] + "i" if lemma.endswith("y") and lemma[-2] not in "aeiou" else lemma
    third = stem + "es" if sibilant or stem != lemma else lemma + "s"
    past = IRREGULAR.get(lemma, stem + ("d" if lemma.endswith("e") else "ed")).split()
    return Verb(lemma, frame, agents, patients, {"be": "is"}.get(lemma, third), past[0], past[-1])


CLASS = {word: kind for kind, text in TAXONOMY.items() for group in _groups(text) for word in group}
NOUNS = {
    kind: tuple(w for group in _groups(text) for w in group) for kind, text in TAXONOMY.items()
}
VERB = {"be": _verb("be", "copula", (*ANIMATE, *THINGS), ())}
SYNONYM, OPPOSITE, ADJECTIVE = {}, {}, {kind: () for kind in TAXONOMY}


def _build():
    """Fills the tables above from the text blocks."""
    texts = list(TAXONOMY.values()) + [ADVERBS]
    for line in VERBS.strip().splitlines():
        frame, agents, patients, lemmas = (part.strip() for part in line.split(";"))
        texts.append(lemmas)
        for group in _groups(lemmas):
            VERB.update(
                {w: _verb(w, frame, tuple(agents.split()), tuple(patients.split())) for w in group}
            )
    for line in ADJECTIVES.strip().splitlines():
        classes, scales = line.split(";")
        for scale in scales.split():
            poles = [tuple(pole.split("=")) for pole in scale.split("/")]
            texts.append(" ".join("=".join(pole) for pole in poles))
            for pole in poles:
                for kind in classes.split():
                    ADJECTIVE[kind] += pole
                for other in poles:
                    if other is not pole:
                        OPPOSITE.update({word: OPPOSITE.get(word, ()) + other for word in pole})
    for group in (g for text in texts for g in _groups(text)):
        SYNONYM.update(
            {word: tuple(w for w in group if w != word) for word in group if len(group) > 1}
        )


_build()
FRAMES = {
    frame: tuple(v for v in VERB.values() if v.frame == frame)
    for frame in ("intransitive", "optional", "transitive", "ditransitive", "clausal")
}
FRAMES["object"] = FRAMES["optional"] + FRAMES["transitive"]
ANY_FRAME = ("intransitive",) * 4 + ("object",) * 3 + ("mutual",) * 2 + ("ditransitive", "clausal")
FRAMES["mutual"] = tuple(
    v for v in FRAMES["transitive"] if set(v.patients) == set(v.agents) == set(ANIMATE)
)


@cache
def plural(noun):
    if noun in PLURALS:
        return PLURALS[noun]
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def kind_of(noun):
    """The class of a noun; a class is its own."""
    return CLASS.get(noun, noun)


def is_a(noun, other):
    """Whether every `noun` is an `other`."""
    return noun == other or other in SYNONYM.get(noun, ()) or CLASS.get(noun) == other


def vocabulary():
    """Special tokens first, as BERT has them; then every form of the lexicon, sorted."""
    words = {".", *FUNCTION, *SINGULAR, *PLURAL, *PREPOSITIONS, *ADVERBS.replace("=", " ").split()}
    for noun in (*TAXONOMY, *CLASS):
        words |= {noun, plural(noun)}
    for v in VERB.values():
        words |= {v.lemma, v.third, v.past, v.participle}
    return [*SPECIAL, *sorted(words.union(*ADJECTIVE.values()))]


# ---- meanings ----
@dataclass(frozen=True, slots=True)
class Entity:
    """What a noun phrase means. `reflexive` stands for the clause's own subject."""

    noun: str
    plural: bool = False
    quantifier: str = "the"
    adjective: str = ""
    place: tuple = ()  # (preposition, Entity)
    clause: "Proposition | None" = (
        None  # relative clause: the head fills the role left empty (None)
    )
    link: str = ""  # "and" / "or" joins `other`
    other: "Entity | None" = None
    reflexive: bool = False


@dataclass(frozen=True, slots=True)
class Proposition:
    """Who does what. In a relative clause `agent` or `patient` is None: that is the gap."""

    predicate: str
    agent: Entity | None
    patient: Entity | None = None
    recipient: Entity | None = None
    content: "Proposition | None" = None  # of clausal verbs
    quality: str = ""  # adjective after "be"
    past: bool = True
    positive: bool = True
    adverb: str = ""
    place: tuple = ()


@dataclass(frozen=True, slots=True)
class Compound:
    """Two propositions joined by "and" or "but": both hold."""

    link: str
    first: Proposition
    second: Proposition


# ---- trees ----
@dataclass(frozen=True, slots=True)
class Node:
    """A constituent, or, with a `word`, a leaf under its part of speech (Penn tags, AUX, NEG)."""

    label: str
    children: tuple = ()
    word: str = ""
    features: dict = field(
        default_factory=dict, hash=False
    )  # number, tense, lemma, where they apply

    def leaves(self):
        return [self] if self.word else [leaf for child in self.children for leaf in child.leaves()]

    def text(self):
        return " ".join(leaf.word for leaf in self.leaves())


def article(word):
    """ "a" or "an" before this word (no word of the lexicon starts with a sounded u)."""
    return (
        "an" if word[0] in "aeiou" and not word.startswith("u") or word.startswith("unh") else "a"
    )


def _leaf(label, word, **features):
    return Node(label, (), word, features)


def is_plural(entity):
    return entity.link == "and" or (entity.other or entity).plural


def noun_phrase(e, subject=None):
    """The NP of an entity; `subject` is the clause's subject, for reflexives."""
    if e.reflexive:
        gender = GENDER.get(subject.noun) or (
            "himself" if kind_of(subject.noun) == "person" else "itself"
        )
        return Node("NP", (_leaf("PRP", "themselves" if is_plural(subject) else gender),))
    if e.other:
        parts = (
            noun_phrase(replace(e, link="", other=None)),
            _leaf("CC", e.link),
            noun_phrase(e.other),
        )
        return Node("NP", parts, features={"number": "pl" if is_plural(e) else "sg"})
    number = "pl" if e.plural else "sg"
    parts = [_leaf("JJ", e.adjective)] if e.adjective else []
    word = plural(e.noun) if e.plural else e.noun
    parts.append(_leaf("NNS" if e.plural else "NN", word, number=number, lemma=e.noun))
    if e.quantifier:
        first = article(parts[0].word) if e.quantifier == "a" else e.quantifier
        parts.insert(0, _leaf("DT", first, lemma=e.quantifier))
    if e.place:
        parts.append(_prepositional(*e.place))
    if e.clause:
        pronoun = _leaf("WP", "who" if kind_of(e.noun) == "person" else "that")
        parts.append(Node("SBAR", (pronoun, clause(e.clause, gap=e))))
    return Node("NP", tuple(parts), features={"number": number})


def _prepositional(preposition, entity):
    return Node("PP", (_leaf("IN", preposition), noun_phrase(entity)))


def verb_group(verb, number, past, positive, passive=False):
    """The finite verb and what goes with it: "chases", "did not chase", "was not chased"."""
    tense, many = "past" if past else "present", number == "pl"
    marks = {"lemma": verb.lemma, "number": number, "tense": tense}
    negation = () if positive else (_leaf("NEG", "not"),)
    if passive or verb.lemma == "be":
        be = ("were" if many else "was") if past else ("are" if many else "is")
        rest = (_leaf("VBN", verb.participle, lemma=verb.lemma),) if passive else ()
        return (_leaf("AUX", be, **{**marks, "lemma": "be"}), *negation, *rest)
    if not positive:
        do = "did" if past else ("do" if many else "does")
        main = _leaf("VB", verb.lemma, lemma=verb.lemma)
        return (_leaf("AUX", do, **{**marks, "lemma": "do"}), *negation, main)
    if past:
        return (_leaf("VBD", verb.past, **marks),)
    return (_leaf("VBP", verb.lemma, **marks) if many else _leaf("VBZ", verb.third, **marks),)


def clause(p, passive=False, gap=None):
    """The S of a proposition. `gap` is the head noun's entity when this is a relative clause."""
    verb = VERB[p.predicate]
    subject, others = (p.patient, ()) if passive else (p.agent, (p.patient,))
    holder = subject or gap
    number = "pl" if is_plural(holder) else "sg"
    parts = list(verb_group(verb, number, p.past, p.positive, passive))
    parts += [noun_phrase(e, holder) for e in others if e]
    if passive and p.agent:
        parts.append(_prepositional("by", p.agent))
    if p.recipient:
        parts.append(_prepositional("to", p.recipient))
    if p.quality:
        parts.append(_leaf("JJ", p.quality))
    if p.content:
        parts.append(Node("SBAR", (_leaf("IN", "that"), clause(p.content))))
    if p.place:
        parts.append(_prepositional(*p.place))
    if p.adverb:
        parts.append(_leaf("RB", p.adverb))
    marks = {
        "number": number,
        "tense": "past" if p.past else "present",
        "voice": "passive" if passive else "active",
    }
    predicate = Node("VP", tuple(parts))
    return Node("S", (noun_phrase(subject), predicate) if subject else (predicate,), features=marks)


def realise(meaning, passive=False):
    """The tree of a sentence. `passive` puts the patient first: other words, same meaning."""
    if isinstance(meaning, Compound):
        parts = clause(meaning.first), _leaf("CC", meaning.link), clause(meaning.second)
        return Node("ROOT", (Node("S", parts), _leaf(".", ".")))
    return Node("ROOT", (clause(meaning, passive), _leaf(".", ".")))


# ---- sampling: every choice keeps selectional preferences ----
def pick(rng, options):
    return options[int(rng.random() * len(options))]


def common(rng, options):
    """Like `pick`, with more weight on what stands earlier: words of a text are not equally frequent."""
    return options[int(rng.random() ** 2 * len(options))]


def sample_entity(rng, classes, quantifiers=None, adjective=0.15, place=0.0, clause=0.0, many=0.4):
    """An entity of one of the classes. The probabilities are of each modifier."""
    kind = pick(rng, classes)
    many = rng.random() < many
    fits = PLURAL if many else SINGULAR
    fits = tuple(q for q in fits if q in quantifiers) if quantifiers else fits
    # "the" leads, as in English
    word = "the" if "the" in fits and rng.random() < 0.5 else common(rng, fits)
    e = Entity(common(rng, NOUNS[kind]) if rng.random() < 0.9 else kind, many, word)
    if rng.random() < adjective and ADJECTIVE[kind]:
        e = replace(e, adjective=common(rng, ADJECTIVE[kind]))
    roll = rng.random()
    if roll < place:
        e = replace(e, place=sample_place(rng))
    elif roll < place + clause and kind in ANIMATE:
        e = replace(e, clause=sample_relative(rng, kind))
    return e


def sample_place(rng):
    return pick(rng, PREPOSITIONS), sample_entity(
        rng, ("place",), ("the", "a"), adjective=0.0, many=0.4
    )


def sample_relative(rng, kind, past=None):
    """A relative clause about a head of class `kind`, with its subject or its object missing."""
    past = rng.random() < 0.5 if past is None else past
    simple = {"quantifiers": PLAIN, "adjective": 0.0}
    verb = common(rng, FRAMES["mutual"])
    other = sample_entity(rng, ANIMATE, **simple)
    if rng.random() < 0.5:
        return Proposition(verb.lemma, other, None, past=past)
    if rng.random() < 0.5:
        verb = pick(rng, [v for v in FRAMES["object"] if kind in v.agents])
        other = sample_entity(rng, verb.patients, **simple)
    return Proposition(verb.lemma, None, other, past=past)


def sample_proposition(
    rng, frame=None, past=None, positive=None, subject=None, adverbial=0.0, **modifiers
):
    """A proposition of the frame (any, unless given); `modifiers` are the subject's (`sample_entity`)."""
    frame = frame or pick(rng, ANY_FRAME)
    verb = common(rng, FRAMES[frame])
    past = rng.random() < 0.5 if past is None else past
    subject = subject or sample_entity(rng, verb.agents, **modifiers)
    positive = (rng.random() < 0.75 or subject.quantifier == "no") if positive is None else positive
    p = Proposition(verb.lemma, subject, past=past, positive=positive)
    if verb.patients:
        p = replace(p, patient=sample_entity(rng, verb.patients, PLAIN))
    if frame == "ditransitive":
        p = replace(p, recipient=sample_entity(rng, ("person",), PLAIN, adjective=0.0))
    if frame == "clausal":
        frame = pick(rng, ("intransitive", "mutual"))
        return replace(p, content=sample_proposition(rng, frame, quantifiers=PLAIN, adjective=0.0))
    roll = rng.random()
    if roll < adverbial / 2:
        p = replace(p, adverb=pick(rng, ADVERBS.replace("=", " ").split()))
    elif roll < adverbial and frame == "intransitive":
        p = replace(p, place=sample_place(rng))
    return p


# ---- sentences of other shapes: the same meanings and words ----
def question(p, role, passive=False):
    """The tree of "who ...": asks for the agent or the patient of a proposition without modifiers of its verb.

    "who chased the dog", "who was the dog chased by"; "who did the cat chase", "who was chased by the cat".
    """
    who, someone = _leaf("WP", "who"), Entity("person")
    if (role == "agent") != passive:  # who is the subject
        inner = clause(replace(p, **{role: None}), passive, gap=someone)
    else:
        subject, verb = (p.patient if passive else p.agent), VERB[p.predicate]
        first = verb_group(verb, "pl" if is_plural(subject) else "sg", p.past, False, passive)[0]
        negation = () if p.positive else (_leaf("NEG", "not"),)
        main = (
            _leaf("VBN", verb.participle, lemma=verb.lemma)
            if passive
            else _leaf("VB", verb.lemma, lemma=verb.lemma)
        )
        inner = Node(
            "SQ",
            (
                first,
                noun_phrase(subject),
                *negation,
                main,
                *((_leaf("IN", "by"),) if passive else ()),
            ),
        )
    return Node("ROOT", (Node("SBARQ", (who, inner)), _leaf(".", ".")))


TOPS = ("NP_VP_.", "NP_ADVP_VP_.", "ADVP_NP_VP_.", "PP_NP_VP_.")


def arranged(p, top):
    """The tree of a proposition with both an adverb and a place, in one of the orders of TOPS."""
    place, adverb = _prepositional(*p.place), Node("ADVP", (_leaf("RB", p.adverb),))
    s = clause(replace(p, place=(), adverb=""))
    subject, predicate = s.children
    front = {"ADVP_NP_VP_.": (adverb,), "PP_NP_VP_.": (place,)}.get(top, ())
    middle = (adverb,) if top == "NP_ADVP_VP_." else ()
    rest = tuple(x for x in (place, adverb) if x not in front + middle)
    inner = (*front, subject, *middle, replace(predicate, children=predicate.children + rest))
    return Node("ROOT", (replace(s, children=inner), _leaf(".", ".")))


def elliptic(p):
    """The tree of "the cat did not": what was done is left to another sentence."""
    words = verb_group(VERB[p.predicate], "pl" if is_plural(p.agent) else "sg", p.past, False)[
        : 1 if p.positive else 2
    ]
    return Node("ROOT", (Node("S", (noun_phrase(p.agent), Node("VP", words))), _leaf(".", ".")))


def both(first, second, link):
    """The tree of two sentences' clauses, joined."""
    parts = first.children[0], _leaf("CC", link), second.children[0]
    return Node("ROOT", (Node("S", parts), _leaf(".", ".")))
