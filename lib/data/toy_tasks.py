"""Toy twins of the other tasks: the rest of GLUE, SQuAD and the ten probing tasks. See lib.data.toy, which loads them.

A maker gives one row with the label asked for. What decides a label is drawn so that each word, and the number of
words that two texts share, is as frequent under one label as under another. Two ways of asking make up most pairs: is
something denied in one text alone, which an encoder with random weights learns from some hundred rows, and does "not"
or "who" stand with the same words in both, which it does not. Probing labels are what the trees say; there words may
tell (length, word content).
"""

import random
from dataclasses import replace

from lib.data.grammar import (
    ADJECTIVE,
    ADVERBS,
    ANIMATE,
    ANY_FRAME,
    CLASS,
    FRAMES,
    NOUNS,
    PLAIN,
    PREPOSITIONS,
    SYNONYM,
    VERB,
    Compound,
    Entity,
    Proposition,
    arranged,
    both,
    elliptic,
    is_a,
    kind_of,
    noun_phrase,
    pick,
    question,
    realise,
    sample_entity,
    sample_place,
    sample_proposition,
)
from lib.data.toy import DEPTHS, LENGTHS, SEED, TASKS, WORDS, _said, _words, rows, split

_ADVERBS = ADVERBS.replace("=", " ").split()
_NAMED = tuple((kind, noun) for kind in ANIMATE for noun in NOUNS[kind] if noun in SYNONYM)
_NAMED_VERBS = tuple(v.lemma for v in FRAMES["mutual"] if v.lemma in SYNONYM)


# ---- meanings about definite persons, animals and things, so that a denial contradicts ----
def _entity(rng, classes=ANIMATE, adjective=0.25):
    kind = pick(rng, classes)
    e = Entity(pick(rng, NOUNS[kind]), rng.random() < 0.4)
    return replace(e, adjective=pick(rng, ADJECTIVE[kind])) if rng.random() < adjective else e


def _entities(rng, n, adjective=0.25):
    """Entities that no word confuses."""
    found = []
    while len(found) < n:
        e = _entity(rng, adjective=adjective)
        if not any(is_a(e.noun, other.noun) for other in found):
            found.append(e)
    return found


def _scene(rng, frame, agent=None):
    verb = pick(
        rng,
        FRAMES[frame]
        if agent is None
        else [v for v in FRAMES[frame] if set(ANIMATE) <= set(v.agents)],
    )
    agent = agent or _entity(rng, verb.agents)
    p = Proposition(verb.lemma, agent, past=rng.random() < 0.5, positive=rng.random() < 0.5)
    while verb.patients and (p.patient is None or is_a(p.agent.noun, p.patient.noun)):
        p = replace(p, patient=_entity(rng, verb.patients, 0.1))
    return p


def _event(rng, agent, patient):
    """Someone does to another what the other could do to them."""
    verb = pick(rng, FRAMES["mutual"])
    return Proposition(
        verb.lemma, agent, patient, past=rng.random() < 0.5, positive=rng.random() < 0.5
    )


def _denial(p):
    return replace(p, positive=not p.positive)


def _swapped(p):
    return replace(p, agent=p.patient, patient=p.agent)


def _on(p, slot, clause):
    """The proposition with a relative clause about its agent or patient."""
    return replace(p, **{slot: replace(getattr(p, slot), clause=clause)})


# ---- events all of whose nouns and verbs have synonyms ----
def _named(rng, but=None):
    """Such an event, about others than those of the proposition `but`."""
    taken = [but.agent.noun, but.patient.noun] if but else []
    kind, noun = pick(rng, [(k, n) for k, n in _NAMED if not any(is_a(n, t) for t in taken)])
    _, other = pick(rng, [(k, n) for k, n in _NAMED if not any(is_a(n, t) for t in (noun, *taken))])
    agent, patient = Entity(noun, rng.random() < 0.4), Entity(other, rng.random() < 0.4)
    if rng.random() < 0.2:
        agent = replace(agent, adjective=pick(rng, ADJECTIVE[kind]))
    return replace(_event(rng, agent, patient), predicate=pick(rng, _NAMED_VERBS))


def _renamed(rng, p, slot, same=True):
    """The event with a synonym in one of its slots, or with another word that has one."""
    word = p.predicate if slot == "verb" else getattr(p, slot).noun
    if same:
        words = SYNONYM[word]
    elif slot == "verb":
        words = [w for w in _NAMED_VERBS if not is_a(w, word)]
    else:
        words = [n for _, n in _NAMED if not is_a(n, p.agent.noun) and not is_a(n, p.patient.noun)]
    new = pick(rng, words)
    return (
        replace(p, predicate=new)
        if slot == "verb"
        else replace(p, **{slot: replace(getattr(p, slot), noun=new)})
    )


def _restated(rng, p, n, slots=("agent", "patient", "verb")):
    """The same meaning with synonyms in `n` of the slots."""
    for slot in sorted(slots, key=lambda _: rng.random())[:n]:
        p = _renamed(rng, p, slot)
    return p


def _affirmed(rng, p, same, **slots):
    """The same meaning in other words, or its denial. In the passive a denial adds one word, "not": a quarter of a
    synonym more on the other side makes up for it, so that the number of shared words does not tell."""
    n = 1 + (rng.random() < 0.25) if same else int(rng.random() < 0.75)
    q = _restated(rng, p, n, **slots)
    return q if same else _denial(q)


def _contrasted(rng, same, **slots):
    """Two events, one of them denied, and the two in other words, the same one denied or the other."""
    one = _named(rng)
    other = replace(_named(rng, but=one), positive=not one.positive)
    again = [_restated(rng, p, 1, **slots) for p in (one, other)]
    return (one, other), again if same else [_denial(p) for p in again]


def _attached(rng, label):
    """ "the dog that slept was seen by the cat": the same in other words; or another one slept; or a denial."""
    p = _named(rng)
    while kind_of(p.agent.noun) != kind_of(p.patient.noun):  # "who" and "that" must not tell
        p = _named(rng)
    q, slots = _affirmed(rng, p, label != 2), ["agent", "patient"]
    inner = replace(_scene(rng, "intransitive", p.agent), agent=None, positive=True)
    if rng.random() < 0.5:
        slots.reverse()
    return _on(p, slots[0], inner), _on(q, slots[label == 1], inner)


def _voices(rng):
    """One voice for each of two texts: not the same."""
    passive = rng.random() < 0.5
    return passive, not passive


def _but(one, other):
    return both(one, other, "but")


# ---- SST-2: what is said of something, denied or not; after "but" the second clause counts ----
_MOODS = {
    1: ("happy", "glad", "fresh", "clean", "love", "adore", "find", "discover"),
    0: ("sad", "unhappy", "rotten", "dirty", "avoid", "lose"),
}


def _felt(rng, mood):
    """A clause of good or bad mood: by its word, or by the denied word of the other. Verbs are passive, since only then
    they have the same form where they are denied."""
    positive, past = rng.random() < 0.5, rng.random() < 0.5
    word = pick(rng, _MOODS[mood if positive else 1 - mood])
    if word in VERB:
        verb = VERB[word]
        agent, patient = (_entity(rng, classes, 0) for classes in (verb.agents, verb.patients))
        return realise(
            Proposition(word, agent, patient, past=past, positive=positive), passive=True
        )
    kind = pick(rng, [kind for kind, words in ADJECTIVE.items() if word in words])
    return realise(
        Proposition("be", _entity(rng, (kind,), 0), quality=word, past=past, positive=positive)
    )


def _sst(rng, label):
    if rng.random() < 0.6:
        return (_felt(rng, label).text(),)
    return (_but(_felt(rng, 1 - label), _felt(rng, label)).text(),)


# ---- MRPC, QQP, QNLI: the same, asked in pairs, as questions, and as question and answer ----
def _mrpc(rng, label):
    kind = rng.random()
    if kind < 0.4:
        p = _named(rng)
        return realise(p, True).text(), realise(_affirmed(rng, p, label), True).text()
    if kind < 0.8:
        return tuple(
            _but(*(realise(p, True) for p in pair)).text() for pair in _contrasted(rng, label)
        )
    p = _event(rng, *_entities(rng, 2))
    q, (one, other) = p if label else _swapped(p), _voices(rng)
    return realise(p, one).text(), realise(q, other).text()


def _whom(p):
    """ "who was chased by the dog"."""
    return question(p, "patient", True)


def _qqp(rng, label):
    """ "who chased the dog" and "who was the dog chased by" ask for one role, "who was chased by the dog" for the other."""
    kind, role, slots = rng.random(), pick(rng, ("agent", "patient")), ("verb", "agent")
    if kind < 0.4:
        p = _named(rng)
        return _whom(p).text(), _whom(_affirmed(rng, p, label, slots=slots)).text()
    if kind < 0.8:
        return tuple(
            _but(*map(_whom, pair)).text() for pair in _contrasted(rng, label, slots=slots)
        )
    (one, two), p = _voices(rng), _named(rng)
    other = "patient" if role == "agent" else "agent"
    q = question(p, role, two) if label else question(_swapped(p), other, two)
    return question(p, role, one).text(), q.text()


def _qnli(rng, label):
    kind, passive, role = rng.random(), rng.random() < 0.2, pick(rng, ("agent", "patient"))
    if kind < 0.4:
        p = _named(rng)
        q = _restated(rng, p, int(rng.random() < (0.25 if label else 0.75)), ("verb", "agent"))
        return _whom(p).text(), realise(_denial(q) if label else q, True).text()
    if kind < 0.8:
        asked, said = _contrasted(rng, label == 0, slots=("verb", "agent"))
        return _but(*map(_whom, asked)).text(), _but(*(realise(p, True) for p in said)).text()
    p, says = _named(rng), role == "patient"
    return question(p, role, passive == says).text(), realise(
        _swapped(p) if label else p, not says
    ).text()


# ---- STS-B: how many of agent, verb, patient and polarity agree ----
GRADE = 1.25


def _sts(rng, level):
    """Level 0 to 4: so many of the four agree. Nouns that do, or neither, are either the same words, in the same roles
    or the other's, or have other names."""
    parts = ["agent", "patient", "verb", "polarity"]
    agree = {parts.pop(int(rng.random() * len(parts))) for _ in range(level)}
    p = _named(rng)
    q = _renamed(rng, p if "polarity" in agree else _denial(p), "verb", "verb" in agree)
    if len(agree & {"agent", "patient"}) != 1 and rng.random() < 0.5:
        q = q if "agent" in agree else _swapped(q)
    else:
        for slot in ("agent", "patient"):
            q = _renamed(rng, q, slot, slot in agree)
    return realise(p, rng.random() < 0.3).text(), realise(q, rng.random() < 0.3).text()


# ---- MNLI, WNLI and AX: a premise, and what follows, may be, or cannot be ----
def _labelled(rng, label, follows, other):
    """What follows, something else affirmed or denied, or the denial of what follows."""
    if label == 1:
        return other if rng.random() < 0.5 else _denial(other)
    return follows if label == 0 else _denial(follows)


def _roles(rng, label):
    p = _event(rng, *_entities(rng, 2))
    one, other = _voices(rng)
    return realise(p, one), realise(_labelled(rng, label, p, _swapped(p)), other)


def _contrast(rng, label):
    """ "the dog slept but the cat did not eat", "the cat ate"."""
    one, other = (_scene(rng, pick(rng, ("intransitive", "mutual")), e) for e in _entities(rng, 2))
    other = replace(other, positive=not one.positive)
    h, rest = (one, other) if rng.random() < 0.5 else (other, one)
    return Compound("but", one, other), _labelled(rng, label, h, replace(rest, agent=h.agent))


def _synonyms(rng, label):
    p = _named(rng)
    q = _renamed(rng, p, pick(rng, ("agent", "patient", "verb")), label != 1)
    return p, _labelled(rng, label, q, q)


def _negations(rng, label):
    p = replace(_named(rng), positive=False)
    return p, _labelled(rng, label, p, _renamed(rng, p, "agent", False))


def _hypernyms(rng, label):
    """ "the dog slept", "the animal slept"; not the other way round."""
    agent, patient = _entities(rng, 2, 0)
    p = replace(_event(rng, agent, patient), positive=True)
    wide = replace(p, agent=replace(agent, noun=kind_of(agent.noun)))
    return (wide, _labelled(rng, 1, p, p)) if label == 1 else (p, _labelled(rng, label, wide, p))


def _quantifiers(rng, label):
    """ "every dog slept", "some dog slept": all, none and some."""
    p = replace(_scene(rng, pick(rng, ("intransitive", "mutual"))), positive=True)

    def of(word):
        return replace(p, agent=replace(p.agent, plural=True, quantifier=word))

    return {0: (of("all"), of("some")), 1: (of("some"), of("all")), 2: (of("no"), of("some"))}[
        label
    ]


def _relatives(rng, label):
    """ "the dog that the cat chased slept", "the dog was chased by the cat"."""
    head, other = _entities(rng, 2)
    inner = replace(_event(rng, head, other), positive=True)
    inner = inner if rng.random() < 0.5 else _swapped(inner)
    gap = replace(inner, **{"agent" if inner.agent is head else "patient": None})
    p = _scene(rng, "intransitive", head)
    return _on(p, "agent", gap), _labelled(rng, label, inner, _swapped(inner))


def _conjunctions(rng, label):
    """ "the dog and the cat slept", "the cat slept"; with "or" it may be."""
    one, other = _entities(rng, 2, 0)
    one, other = (replace(e, plural=True) for e in (one, other))
    p = replace(_scene(rng, "intransitive", pick(rng, (one, other))), positive=True)
    premise = replace(p, agent=replace(one, link="or" if label == 1 else "and", other=other))
    return premise, _labelled(rng, label, p, p)


PHENOMENA = {
    "synonyms": _synonyms,
    "negations": _negations,
    "active and passive": _roles,
    "contrast": _contrast,
    "hypernyms": _hypernyms,
    "quantifiers": _quantifiers,
    "relative clauses": _relatives,
    "conjunctions": _conjunctions,
}


def _text(rng, meaning):
    """A tree as it is, a proposition in one of its voices."""
    if isinstance(meaning, Proposition):
        meaning = _said(rng, meaning)
    return (realise(meaning) if isinstance(meaning, Compound) else meaning).text()


def _mnli(rng, label):
    kind = rng.random()
    if kind < 0.8:
        return tuple(realise(p, True).text() for p in _attached(rng, label))
    return tuple(_text(rng, each) for each in (_roles if kind < 0.9 else _contrast)(rng, label))


def _mnli_mm(rng, label):
    """Longer sentences: with an adverb, or a place."""
    adverb, place = pick(rng, _ADVERBS), sample_place(rng)
    if rng.random() < 0.5:
        pair = (replace(p, adverb=adverb) for p in _attached(rng, label))
    else:
        pair = (replace(p, agent=replace(p.agent, place=place)) for p in _attached(rng, label))
    return tuple(realise(p, True).text() for p in pair)


def _wnli(rng, label):
    """Whom "who" and "that" stand for: "the dog that slept chased the cat", "the dog pursued the cat that slept"."""
    passive = rng.random() < 0.5
    return tuple(realise(p, passive).text() for p in _attached(rng, 1 - label))


# ---- SQuAD: someone did it to another, who perhaps did it to a third: who did it to the second, or to whom did they? ----
def _squad(rng, label, chain=0.5):
    """Question, passage, first character of the answer and one after its last. Labels: the agent is asked for, the
    patient is, neither is there."""
    a, b, c, d = _entities(rng, 4)
    does = _event(rng, a, b)
    role = pick(rng, ("agent", "patient")) if label == 2 else ("agent", "patient")[label]
    asked, other = does, replace(does, agent=b, patient=c)
    if role == "patient":
        asked, other = other, asked
    if rng.random() >= chain:
        other = replace(_scene(rng, "intransitive", d), positive=does.positive)
    said = [_said(rng, asked).text(), _said(rng, other).text()]
    answer, first = noun_phrase(getattr(asked, role)).text(), rng.random() < 0.5
    if label == 2 and rng.random() < 0.8:
        asked = _denial(asked)
    elif label == 2:  # nobody did it to the first, nor the third to anybody
        asked = replace(asked, patient=a) if role == "agent" else replace(asked, agent=c)
    if asked.predicate in SYNONYM and rng.random() < 0.3:
        asked = _renamed(rng, asked, "verb")
    text, passage = (
        question(asked, role, rng.random() < 0.3).text(),
        " ".join(said if first else said[::-1]),
    )
    if label == 2:
        return text, passage, -1, -1
    start = (0 if first else len(said[1]) + 1) + said[0].index(f"{answer} ")
    return text, passage, start, start + len(answer)


def _squad2(rng, label):
    return _squad(rng, label, 0.2)


# ---- probing: what a tree says ----
def depth(tree):
    """Most steps from the root down to a word."""
    return 0 if tree.word else 1 + max(map(depth, tree.children))


def bin_of(n, names):
    """The name, such as "5-6" or "13-", of the bin that holds a number; None where none does."""
    for name in names:
        low, _, high = name.partition("-")
        if int(low) <= n <= int(high or n):
            return name
    return None


def _relative(rng, past):
    """A relative clause with its subject or its object missing."""
    p = replace(
        _event(rng, sample_entity(rng, ANIMATE, PLAIN, adjective=0.0), None),
        past=past,
        positive=True,
    )
    return p if rng.random() < 0.5 else _swapped(p)


def _mutual(rng, past=True):
    """Someone and another, as subject and object."""
    one, other = (sample_entity(rng, ANIMATE, PLAIN, adjective=0.1) for _ in range(2))
    return replace(_event(rng, one, other), past=past, positive=True)


def _with_tense(rng, wanted):
    """A clause in the other tense stands inside."""
    past = wanted == "PAST"
    return realise(
        _on(_mutual(rng, past), pick(rng, ("agent", "patient")), _relative(rng, not past))
    )


def _with_number(rng, wanted, slot):
    """Subject and object differ in number, and a clause inside has the object's: its verb tells as much as the main
    one, and there are as many nouns of either number."""
    many = (wanted == "NNS") == (slot == "agent")

    def someone(many):
        return sample_entity(rng, ANIMATE, PLAIN, 0.1, many=float(many))

    p = replace(_event(rng, someone(many), someone(not many)), past=False, positive=True)
    inner = replace(_event(rng, None, None), past=False, positive=True)
    if rng.random() < 0.5:
        return realise(_on(p, "patient", replace(inner, patient=someone(rng.random() < 0.5))))
    p = _on(p, "agent", replace(inner, agent=someone(not many)))
    return arranged(
        replace(p, place=(pick(rng, PREPOSITIONS), someone(many)), adverb=pick(rng, _ADVERBS)),
        "PP_NP_VP_.",
    )


def _with_depth(rng, wanted):
    """Two relative clauses, side by side or one inside the other: as many words at any depth."""
    while True:
        p, one, other = _mutual(rng), _relative(rng, True), _relative(rng, True)
        if rng.random() < 0.3:
            p = _on(_on(p, "agent", one), "patient", other)
        else:
            p = _on(
                p,
                pick(rng, ("agent", "patient")),
                _on(one, "agent" if one.agent else "patient", other),
            )
        tree = realise(p)
        if bin_of(depth(tree), DEPTHS) == wanted:
            return tree


def _with_length(rng, wanted):
    low = int(wanted.split("-")[0])
    while True:
        p = sample_proposition(
            rng, pick(rng, ANY_FRAME), adverbial=0.3, place=0.3 * (low > 5), clause=0.5 * (low > 6)
        )
        tree = realise(p)
        if low > 8 and rng.random() < 0.7:
            tree = both(
                tree, realise(sample_proposition(rng, "intransitive")), pick(rng, ("and", "but"))
            )
        if bin_of(len(tree.leaves()) - 1, LENGTHS) == wanted:  # without the full stop
            return tree


def _with_top(rng, wanted):
    """The same words in another order."""
    p = sample_proposition(rng, "intransitive", adjective=0.2)
    return arranged(replace(p, place=sample_place(rng), adverb=pick(rng, _ADVERBS)), wanted)


def _probe(task, make):
    """A maker of the trees' words: `make` takes the name of the label."""
    return lambda rng, label: (" ".join(_words(make(rng, TASKS[task].labels[label]).leaves())),)


def _bigram_shift(rng, label):
    """Two neighbours change places; adverbs, which may, do not."""
    p = sample_proposition(rng, adjective=0.3, adverbial=0.2, place=0.2, clause=0.2)
    leaves = realise(
        p, passive=p.patient is not None and p.recipient is None and rng.random() < 0.2
    ).leaves()
    if label == 0:
        i = pick(
            rng,
            [
                i
                for i in range(len(leaves) - 2)
                if "RB" not in (leaves[i].label, leaves[i + 1].label)
            ],
        )
        leaves = leaves[:i] + [leaves[i + 1], leaves[i]] + leaves[i + 2 :]
    return (" ".join(_words(leaves)),)


def _odd_man_out(rng, label):
    """ "the boy ate the garden near a cake": the object's noun and the place's stand for each other."""
    p = sample_proposition(
        rng,
        pick(rng, ("object", "object", "mutual", "ditransitive")),
        quantifiers=PLAIN,
        adjective=0.1,
    )
    patient, (preposition, place) = replace(p.patient, adjective=""), sample_place(rng)
    if label == 0:
        patient, place = replace(patient, noun=place.noun), replace(place, noun=patient.noun)
    return (realise(replace(p, patient=patient, place=(preposition, place))).text(),)


def _coordination_inversion(rng, label):
    """ "the dog slept but the cats did not": what leaves words out comes second; inverted, first."""
    one, other = _entities(rng, 2)
    p = _scene(rng, pick(rng, ("intransitive", "mutual")), one)
    clauses = realise(p), elliptic(replace(p, agent=other, positive=rng.random() < 0.5))
    return (both(*clauses if label else clauses[::-1], pick(rng, ("and", "but"))).text(),)


def _word_content(rng, label):
    """Just one of the words."""
    word = WORDS[label]
    while True:
        frame = pick(rng, ("intransitive", "mutual", "object", "ditransitive"))
        p = sample_proposition(rng, frame, adverbial=0.2, place=0.2)
        fits = [
            slot
            for slot, kinds in (
                ("agent", VERB[p.predicate].agents),
                ("patient", VERB[p.predicate].patients),
            )
            if CLASS[word] in kinds
        ]
        if fits:
            slot = pick(rng, fits)
            text = realise(replace(p, **{slot: replace(getattr(p, slot), noun=word)})).text()
            if [w for w in text.split() if w in WORDS] == [word]:
                return (text,)


MAKERS = {
    "SST-2": _sst,
    "MRPC": _mrpc,
    "QQP": _qqp,
    "STS-B": _sts,
    "MNLI": _mnli,
    "QNLI": _qnli,
    "WNLI": _wnli,
    "SQuAD1": _squad,
    "SQuAD2": _squad2,
    "BigramShift": _bigram_shift,
    "OddManOut": _odd_man_out,
    "CoordinationInversion": _coordination_inversion,
    "WordContent": _word_content,
    "Tense": _probe("Tense", _with_tense),
    "Depth": _probe("Depth", _with_depth),
    "Length": _probe("Length", _with_length),
    "TopConstituents": _probe("TopConstituents", _with_top),
    "SubjNumber": _probe("SubjNumber", lambda rng, wanted: _with_number(rng, wanted, "agent")),
    "ObjNumber": _probe("ObjNumber", lambda rng, wanted: _with_number(rng, wanted, "patient")),
}
MISMATCHED = _mnli_mm
_LABELS = {
    "STS-B": tuple(GRADE * level for level in range(5)),
    "SQuAD1": (0, 1),
    "SQuAD2": (0, 1, 2),
}


def targets(task):
    """The target that each label of a maker stands for."""
    return _LABELS.get(task) or tuple(range(len(TASKS[task].labels)))


def diagnostics():
    """AX: as many rows of each phenomenon, in the order of PHENOMENA, each label in turn."""
    rng, texts, labels = random.Random(f"{SEED} AX test"), [], []
    each = rows("AX")["test"] // len(PHENOMENA)
    for make in PHENOMENA.values():
        found = []
        while len(found) < each:
            row = tuple(_text(rng, meaning) for meaning in make(rng, len(found) % 3))
            if row not in found and row[0] != row[1]:
                labels.append(len(found) % 3)
                found.append(row)
        texts += found
    return split("AX", texts, labels)
