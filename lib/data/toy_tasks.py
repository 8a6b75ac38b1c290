"""The rows of the toy twins: MAKERS has one function a task. `lib.data.toy` calls them and holds
the splits.

A maker gives one row with the label asked for: `f(rng, label) -> texts`, for spans `(question,
passage, (first, end))`. Whatever decides a label is drawn so that each word, and the number of
words that two texts share, is as frequent under one label as under another. Most pairs ask one of
two things. Is something denied in one text alone? An encoder with random weights learns that from
some hundred rows. Does "not" or "who" stand with the same words in both texts? It does not learn
that.
"""

import random
from dataclasses import replace

from lib.data import grammar as g
from lib.data.grammar import Event, Word, about, clause, denial, is_a, joined, phrase, pick, text

ALL = tuple(dict.fromkeys(g.SINGULAR + g.PLURAL))
STRICT = tuple(word for word in ALL if word not in ("the", "some", "no"))  # of one number alone


# ---- CoLA: each kind of violation gives the words of a good sentence and of the broken one ----
def _places(words, *tags):
    return [i for i, word in enumerate(words) if word.tag in tags]


def _put(words, i, *new):
    """The words with others in place of number `i`."""
    return [*words[:i], *(words[i]._replace(text=each) for each in new), *words[i + 1 :]]


def _exchanged(words, i):
    return [*words[:i], words[i + 1], words[i], *words[i + 2 :]]


def _any_event(rng, verbs=None, **options):
    """An event of any kind, and its words in one of its voices."""
    verbs = verbs or pick(rng, (g.INTRANSITIVE, g.TRANSITIVE, g.MUTUAL))
    p = g.sample_event(rng, verbs, **{"varied": ALL, "adjective": 0.2} | options)
    return p, clause(p, passive=p.patient is not None and rng.random() < 0.25)


def _agreement(rng):
    """ "the dogs near the park sleeps": the verb and its subject differ in number."""
    p = g.sample_event(rng, g.INTRANSITIVE + g.MUTUAL, past=False, varied=ALL, place=0.3)
    if rng.random() < 0.2:
        inner = replace(about(rng, g.sample_event(rng, g.MUTUAL, positive=True)), past=True)
        p = replace(p, agent=replace(p.agent, clause=inner, place=()))
    words = clause(p)
    i = _places(words, "VBZ", "VBP", "AUX")[0]
    other = {"does": "do", "do": "does"}.get(words[i].text)
    tag = "VBP" if words[i].tag == "VBZ" else "VBZ"
    return words, _put(words, i, other or g.VERB[words[i].lemma].form(tag))


def _determiner(rng):
    """ "every dogs slept": determiner and noun differ in number."""
    words = clause(g.sample_event(rng, g.INTRANSITIVE + g.TRANSITIVE, past=True, varied=STRICT))
    i = _places(words, "NN", "NNS")[0]
    noun = words[i].lemma
    return words, _put(words, i, g.plural(noun) if words[i].tag == "NN" else noun)


def _order(rng):
    """ "the dog big slept", "the dog not did sleep": two neighbours change places."""
    _, words = _any_event(rng, adjective=0.4)
    return words, _exchanged(words, pick(rng, range(len(words) - 1)))


def _arguments(rng):
    """ "the dog slept the pig", "the dog chased": a verb with an object too many or too few."""
    kinds = (g.INTRANSITIVE, g.TRANSITIVE)[:: pick(rng, (1, -1))]
    p = g.sample_event(rng, kinds[0], varied=ALL)
    words, other = clause(p), g.VERB[pick(rng, kinds[1])]
    i = [i for i, word in enumerate(words) if word.lemma == p.verb][0]
    return words, _put(words, i, other.form(words[i].tag))


def _forms(rng):
    """ "did not slept", "did slept", "was chase": a form too many, too few, or another."""
    kind = pick(rng, ("finite", "added", "dropped", "participle", "participle"))
    if kind == "participle":
        words = clause(g.sample_event(rng, g.TRANSITIVE, past=True, varied=ALL), passive=True)
        i = _places(words, "VBN")[0]
        return words, _put(words, i, g.VERB[words[i].lemma].form(pick(rng, ("VB", "VBZ"))))
    verbs = pick(rng, (g.INTRANSITIVE, g.TRANSITIVE))
    words = clause(g.sample_event(rng, verbs, positive=kind == "added", varied=g.PLAIN))
    i = _places(words, "VBD", "VBZ", "VBP", "AUX")[0]
    if kind == "added":
        do = {"VBD": "did", "VBZ": "does", "VBP": "do"}[words[i].tag]
        return words, _put(words, i, pick(rng, ("not", do)), words[i].text)
    if kind == "dropped":  # the auxiliary, or "not"
        return words, _put(words, i + pick(rng, (0, 1)))
    main = words[i + 2]
    return words, _put(words, i + 2, g.VERB[main.lemma].form(pick(rng, ("VBD", "VBZ"))))


VIOLATIONS = (_agreement,) * 3 + (_order,) * 5 + (_arguments,) * 3 + (_forms,) * 4 + (_determiner,)


def _cola(rng, label):
    return (text(pick(rng, VIOLATIONS)(rng)[0 if label else 1]),)


# ---- events in other words ----
def _events(rng, count=1):
    """Events of two each, all of whom are different."""
    while True:
        found = [g.sample_event(rng, g.MUTUAL) for _ in range(count)]
        nouns = [e.noun for p in found for e in (p.agent, p.patient)]
        if not any(is_a(a, b) for i, a in enumerate(nouns) for b in nouns[:i]):
            return found


def _renamed(rng, p, slot, same=True):
    """The event with a synonym for its agent, patient or verb; or with a word of another
    meaning."""
    if slot == "verb":
        others = [word for word in g.MUTUAL if not is_a(word, p.verb)]
        return replace(p, verb=pick(rng, g.SYNONYM[p.verb] if same else others))
    e, there = getattr(p, slot), (p.agent.noun, p.patient.noun)
    others = [n for kind in g.ANIMATE for n in g.NOUNS[kind] if not any(is_a(n, t) for t in there)]
    return replace(p, **{slot: replace(e, noun=pick(rng, g.SYNONYM[e.noun] if same else others))})


def _restated(rng, p, count):
    """The same meaning with synonyms for `count` of the agent and the verb."""
    slots = ["agent", "verb"]
    for _ in range(count):
        p = _renamed(rng, p, slots.pop(int(rng.random() * len(slots))))
    return p


def _affirmed(rng, p, same):
    """The same meaning in other words, or its denial. A denial in the passive adds one word, "not".
    A quarter of a synonym more on the other side makes up for it, so that the number of shared
    words does not tell."""
    q = _restated(rng, p, 1 + (rng.random() < 0.25) if same else int(rng.random() < 0.75))
    return q if same else denial(q)


def _related(rng, same):
    """Two meanings, alike or not: one event, affirmed or denied; or two, one of them denied, the
    same or the other."""
    if rng.random() < 0.5:
        [p] = _events(rng)
        return [p], [_affirmed(rng, p, same)]
    one, other = _events(rng, 2)
    said = [one, replace(other, positive=not one.positive)]
    again = [_restated(rng, p, 1) for p in said]
    return said, again if same else [denial(p) for p in again]


def _stated(events):
    return text(joined(clause(p, passive=True) for p in events))


def _asked(events):
    return text(joined(g.question(p, "patient", passive=True) for p in events))


def _alike(same, first, second):
    """A maker of pairs that mean the same under the label `same`, said by these functions."""

    def make(rng, label):
        one, other = _related(rng, label == same)
        return first(one), second(other)

    return make


# ---- SST-2: what is said of something, denied or not; after "but" the second clause counts ----
MOODS = (
    ("sad", "unhappy", "rotten", "dirty", "avoid", "lose"),
    ("happy", "glad", "fresh", "clean", "love", "adore", "find", "discover"),
)


def _felt(rng, mood):
    """A clause of bad or good mood, 0 or 1: by its word, or by a denied word of the other. Verbs
    are passive, since only then they have the same form where they are denied."""
    positive, past = rng.random() < 0.5, rng.random() < 0.5
    word = pick(rng, MOODS[mood if positive else 1 - mood])
    if word in g.VERB:
        p = g.sample_event(rng, (word,), past=past, positive=positive, adjective=0.0)
        return clause(p, passive=True)
    kinds = [kind for kind, words in g.ADJECTIVE.items() if word in words]
    return clause(Event("", g.sample_entity(rng, kinds, adjective=0.0), None, word, past, positive))


def _sst(rng, label):
    if rng.random() < 0.6:
        return (text(_felt(rng, label)),)
    return (text(joined([_felt(rng, 1 - label), _felt(rng, label)])),)


# ---- STS-B: how many of agent, verb, patient and polarity agree ----
GRADE = 1.25


def _sts(rng, level):
    """So many of the four agree, 0 to 4. Where both nouns do or neither does, they keep their words
    in half of the rows, in the same roles or in the other's."""
    parts, [p] = ["agent", "patient", "verb", "polarity"], _events(rng)
    agree = {parts.pop(int(rng.random() * len(parts))) for _ in range(level)}
    q = _renamed(rng, p if "polarity" in agree else denial(p), "verb", "verb" in agree)
    if len(agree & {"agent", "patient"}) != 1 and rng.random() < 0.5:
        q = q if "agent" in agree else g.swapped(q)
    else:
        for slot in ("agent", "patient"):
            q = _renamed(rng, q, slot, slot in agree)
    return text(clause(p, rng.random() < 0.3)), text(clause(q, rng.random() < 0.3))


# ---- MNLI, RTE, WNLI and AX: a premise, and what follows (0), may be (1), or cannot be (2) ----
def _labelled(rng, label, follows, other):
    """What follows, something else affirmed or denied, or the denial of what follows."""
    if label == 1:
        return other if rng.random() < 0.5 else denial(other)
    return follows if label == 0 else denial(follows)


def _synonyms(rng, label):
    [p] = _events(rng)
    q = _renamed(rng, p, pick(rng, ("agent", "patient", "verb")), label != 1)
    return clause(p), clause(_labelled(rng, label, q, q))


def _voices(rng, label):
    """ "the dog chased the pig", "the pig was chased by the dog"; who did it to whom."""
    [p], passive = _events(rng), rng.random() < 0.5
    return clause(p, passive), clause(_labelled(rng, label, p, g.swapped(p)), not passive)


def _contrast(rng, label):
    """ "the dog slept but the pig did not laugh", "the pig laughed"."""
    one, other = _events(rng, 2)
    other = replace(other, positive=not one.positive)
    said, rest = (one, other) if rng.random() < 0.5 else (other, one)
    h = _labelled(rng, label, said, replace(rest, agent=said.agent, patient=said.patient))
    return joined([clause(one, True), clause(other, True)]), clause(h, True)


def _hypernyms(rng, label):
    """ "the dog slept", "the animal slept"; not the other way round."""
    [p] = _events(rng)
    p = replace(p, positive=True, agent=replace(p.agent, adjective=""))
    wide = replace(p, agent=replace(p.agent, noun=g.CLASS[p.agent.noun]))
    premise, h = (wide, p) if label == 1 else (p, wide)
    return clause(premise), clause(_labelled(rng, label, h, h))


def _quantifiers(rng, label):
    """ "all dogs slept", "some dogs slept"."""
    p = g.sample_event(rng, g.INTRANSITIVE + g.MUTUAL, positive=True)
    words = (("all", "some"), ("some", "all"), ("no", "some"))[label]
    agents = [replace(p.agent, plural=True, quantifier=word) for word in words]
    return tuple(clause(replace(p, agent=agent)) for agent in agents)


def _relatives(rng, label):
    """ "the dog that the pig chased slept", "the dog was chased by the pig"."""
    [inner], slot = _events(rng), pick(rng, ("agent", "patient"))
    head = replace(getattr(inner, slot), clause=replace(inner, **{slot: None}))
    premise = clause(g.sample_event(rng, g.INTRANSITIVE, replace(head, adjective="")))
    return premise, clause(_labelled(rng, label, inner, g.swapped(inner)), rng.random() < 0.5)


def _attached(rng, label, **more):
    """ "the dog that slept was seen by the pig": the same in other words; or another one slept; or
    a denial. `more`: what else is said of both."""
    [p] = _events(rng)
    while g.CLASS[p.agent.noun] != g.CLASS[p.patient.noun]:  # "who" and "that" must not tell
        [p] = _events(rng)
    inner = g.sample_event(rng, g.INTRANSITIVE, p.agent, positive=True)
    slots = ["agent", "patient"][:: pick(rng, (1, -1))]
    pair = zip((p, _affirmed(rng, p, label != 2)), (slots[0], slots[label == 1]), strict=True)
    said = replace(inner, agent=None)
    return tuple(clause(_on(replace(each, **more), slot, said), True) for each, slot in pair)


def _on(p, slot, inner):
    """The event with a relative clause about its agent or patient."""
    return replace(p, **{slot: replace(getattr(p, slot), clause=inner)})


PHENOMENA = {
    "synonyms": _synonyms,
    "active and passive": _voices,
    "contrast": _contrast,
    "hypernyms": _hypernyms,
    "quantifiers": _quantifiers,
    "relative clauses": _relatives,
    "attachment": _attached,
}


def _mnli(rng, label):
    kind = pick(rng, (_attached,) * 8 + (_voices, _contrast))
    return tuple(map(text, kind(rng, label)))


def mismatched(rng, label):
    """A row of MNLI's second development set: longer sentences, with an adverb or a place."""
    adverb = rng.random() < 0.5
    more = {"adverb": pick(rng, g.ADVERBS)} if adverb else {"place": g.sample_place(rng)}
    return tuple(map(text, _attached(rng, label, **more)))


def _rte(rng, label):
    """Most rows are those of `_related`."""
    if rng.random() < 0.7:
        one, other = _related(rng, label == 0)
        return _stated(one), _stated(other)
    kind = pick(rng, (_voices, _contrast, _relatives))
    return tuple(map(text, kind(rng, pick(rng, (1, 2)) if label else 0)))


def _wnli(rng, label):
    """Whom "who" and "that" stand for."""
    return tuple(map(text, _attached(rng, 1 - label)))


# ---- SQuAD: who did it to the second, or to whom did they? ----
def _squad(rng, label):
    """Question, passage and where the answer stands there. Labels: the agent is asked for, the
    patient is, neither is there. The passage tells of one event and of another: of what the second
    did to a third, or of a fourth."""
    does, beside = _events(rng, 2)
    others = replace(does, agent=does.patient, patient=beside.patient)
    role = ("agent", "patient")[label] if label < 2 else pick(rng, ("agent", "patient"))
    asked, other = (does, others) if role == "agent" else (others, does)
    if rng.random() < 0.6:
        other = g.sample_event(rng, g.INTRANSITIVE, beside.agent, positive=does.positive)
    said = [text(clause(p, p.patient is not None and rng.random() < 0.4)) for p in (asked, other)]
    passage = " ".join(said if rng.random() < 0.5 else said[::-1])
    answer = text(phrase(getattr(asked, role)))[:-2]  # without the full stop
    if label == 2 and rng.random() < 0.8:
        asked = denial(asked)
    elif label == 2:  # nobody did it to the first, nor the third to anybody
        missing = replace(does, patient=does.agent), replace(does, agent=beside.patient)
        asked = missing[role == "patient"]
    if rng.random() < 0.3:
        asked = _renamed(rng, asked, "verb")
    place = -1 if label == 2 else passage.index(said[0]) + said[0].index(f"{answer} ")
    end = -1 if label == 2 else place + len(answer)
    return text(g.question(asked, role, rng.random() < 0.3)), passage, (place, end)


# ---- probing ----
def _bigram_shift(rng, label):
    """Two neighbours change places."""
    _, words = _any_event(rng, adjective=0.3, place=0.2, clause=0.2)
    return (text(words if label else _exchanged(words, pick(rng, range(len(words) - 2)))),)


def _tense(rng, label):
    """The past or the present; a clause in the other tense stands inside."""
    p = g.sample_event(rng, g.MUTUAL, past=label == 0, positive=True, varied=g.PLAIN)
    inner = g.sample_event(rng, g.MUTUAL, past=label == 1, positive=True, varied=g.PLAIN)
    return (text(clause(_on(p, pick(rng, ("agent", "patient")), about(rng, inner)))),)


def _coordination_inversion(rng, label):
    """ "the dog slept but the pigs did not": what leaves words out comes second; inverted,
    first."""
    one, other = _events(rng, 2)
    if rng.random() < 0.5:
        one = g.sample_event(rng, g.INTRANSITIVE, one.agent)
    clauses = [clause(one), g.elliptic(replace(one, agent=other.agent, positive=other.positive))]
    return (text(joined(clauses if label else clauses[::-1], pick(rng, ("and", "but")))),)


MAKERS = {
    "CoLA": _cola,
    "SST-2": _sst,
    "MRPC": _alike(1, _stated, _stated),
    "QQP": _alike(1, _asked, _asked),
    "STS-B": _sts,
    "MNLI": _mnli,
    "QNLI": _alike(0, _asked, _stated),
    "RTE": _rte,
    "WNLI": _wnli,
    "SQuAD1": _squad,
    "SQuAD2": _squad,
    "BigramShift": _bigram_shift,
    "Tense": _tense,
    "CoordinationInversion": _coordination_inversion,
}


# ---- the corpus ----
def passage(rng):
    """One to three sentences: what a word means, a story, a sentence of each shape that CoLA has,
    or one that is said again in other words."""
    roll = rng.random()
    if roll < 0.06:
        noun = pick(rng, tuple(g.CLASS))
        wide = pick(rng, (*g.SYNONYM.get(noun, ()), g.CLASS[noun]))
        parts = [("every", "DT"), (noun, "NN"), ("is", "AUX"), ("a", "DT"), (wide, "NN")]
        return text(Word(*part) for part in parts)
    if roll < 0.2:
        p, words = _any_event(rng, place=0.15, clause=0.15)
        one = "these" if p.agent.plural else "this"
        this = replace(p.agent, quantifier=one, place=(), clause=None)
        verbs = [verb for verb in g.VERB if g.CLASS[this.noun] in g.VERB[verb].agents]
        return f"{text(words)} {text(clause(g.sample_event(rng, verbs, this)))}"
    if roll < 0.5:
        return text(pick(rng, VIOLATIONS)(rng)[0])
    kind = pick(rng, (None,) * 6 + (_voices, _contrast, _relatives, _hypernyms, _attached))
    if kind is None:
        return " ".join(_stated(events) for events in _related(rng, True))
    return " ".join(map(text, kind(rng, 0)))


def diagnostics(rows):
    """Texts and labels of AX: as many of the `rows` for each phenomenon, in the order of PHENOMENA,
    the labels in turn."""
    rng, found = random.Random("AX test"), {}
    for number, make in enumerate(PHENOMENA.values(), 1):
        while len(found) < rows // len(PHENOMENA) * number:
            label = len(found) % 3
            row = tuple(map(text, make(rng, label)))
            if row[0] != row[1]:
                found.setdefault(row, label)
    return list(found), list(found.values())
