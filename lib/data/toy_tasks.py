"""Toy twins of the other tasks: the rest of GLUE, SQuAD and the ten probing tasks. See lib.data.toy, which loads them.

A maker gives one row with the label asked for. What decides a label is drawn so that each word, and the number of
words that two texts share, is as frequent under one label as under another: a synonym against another word that has
one, one voice and the other against swapped roles, a polarity that is the other text's or not. The easy kinds are the
most frequent ones. Probing labels are read off the trees; there words may tell (length, word content).
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
    SYNONYM,
    VERB,
    Compound,
    Entity,
    Proposition,
    arranged,
    both,
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


def _scene(rng, frame=None, agent=None):
    frame = frame or pick(rng, ("intransitive", "intransitive", "object", "mutual", "mutual"))
    verb = pick(rng, FRAMES[frame] if agent is None else [v for v in FRAMES[frame] if set(ANIMATE) <= set(v.agents)])
    agent = agent or _entity(rng, verb.agents)
    p = Proposition(verb.lemma, agent, past=rng.random() < 0.5, positive=rng.random() < 0.5)
    while verb.patients and (p.patient is None or is_a(p.agent.noun, p.patient.noun)):
        p = replace(p, patient=_entity(rng, verb.patients, 0.1))
    return p


def _event(rng, agent, patient):
    """Someone does to another what the other could do to them."""
    verb = pick(rng, FRAMES["mutual"])
    return Proposition(verb.lemma, agent, patient, past=rng.random() < 0.5, positive=rng.random() < 0.5)


def _denial(p):
    return replace(p, positive=not p.positive)


def _swapped(p):
    return replace(p, agent=p.patient, patient=p.agent)


# ---- words in the slots of a proposition ----
def _with(p, slot, word):
    if slot == "verb":
        return replace(p, predicate=word)
    if slot == "adjective":
        return replace(p, agent=replace(p.agent, adjective=word))
    return replace(p, **{slot: replace(getattr(p, slot), noun=word)})


def _word(p, slot):
    if slot == "verb":
        return p.predicate
    e = p.agent if slot in ("agent", "adjective") else p.patient
    return e and (e.adjective if slot == "adjective" else e.noun)


def _peers(p, slot):
    """Words with a synonym that fit the slot, all other words being kept."""
    verb = VERB[p.predicate]
    if slot == "verb":
        words = [v.lemma for v in FRAMES[verb.frame] if (v.agents, v.patients) == (verb.agents, verb.patients)]
    elif slot == "adjective":
        words = ADJECTIVE[kind_of(p.agent.noun)] if p.agent.adjective else ()
    else:
        classes = {"agent": verb.agents, "patient": verb.patients}[slot]
        taken = [e.noun for name, e in (("agent", p.agent), ("patient", p.patient)) if e and name != slot]
        if slot == "agent" and p.agent.adjective:
            classes = [kind for kind in classes if p.agent.adjective in ADJECTIVE[kind]]
        words = [n for kind in classes for n in NOUNS[kind] if not any(is_a(n, other) for other in taken)]
    return [w for w in words if w in SYNONYM]


def _reworded(rng, p, same, slots=("agent", "patient", "verb", "verb", "adjective")):
    """The proposition with a word that has synonyms in one of its slots, and with a synonym of it there, or with
    another such word. None where there is no choice of words."""
    slot = pick(rng, slots)
    words = _peers(p, slot) if _word(p, slot) else ()
    if len(words) < 4:
        return None
    word = pick(rng, words)
    return _with(p, slot, word), _with(p, slot, _renamed(rng, word, same, words))


def _renamed(rng, word, same, words):
    return pick(rng, SYNONYM[word] if same else [w for w in words if not is_a(w, word)])


def _until(make, *args, **options):
    """The first result that is not None."""
    while (found := make(*args, **options)) is None:
        pass
    return found


_ADVERBS = ADVERBS.replace("=", " ").split()
_NAMED = tuple((kind, noun) for kind in ANIMATE for noun in NOUNS[kind] if noun in SYNONYM)
_NAMED_VERBS = tuple(v.lemma for v in FRAMES["mutual"] if v.lemma in SYNONYM)


def _named(rng):
    """An event all of whose nouns and verb have synonyms."""
    kind, noun = pick(rng, _NAMED)
    other = pick(rng, [n for _, n in _NAMED if not is_a(n, noun)])
    agent, patient = Entity(noun, rng.random() < 0.4), Entity(other, rng.random() < 0.4)
    if rng.random() < 0.2:
        agent = replace(agent, adjective=pick(rng, ADJECTIVE[kind]))
    return replace(_event(rng, agent, patient), predicate=pick(rng, _NAMED_VERBS))


def _restated(rng, p, n, slots=("agent", "patient", "verb")):
    """The same meaning with synonyms in `n` of the slots."""
    left = list(slots)
    for _ in range(n):
        slot = left.pop(int(rng.random() * len(left)))
        p = _with(p, slot, pick(rng, SYNONYM[_word(p, slot)]))
    return p


def _affirmed(rng, p, same, **slots):
    """The same meaning in other words, or its denial. In the passive a denial adds one word, "not": a quarter of a
    synonym more on the other side makes up for it, so that the number of shared words does not tell."""
    n = 1 + (rng.random() < 0.25) if same else int(rng.random() < 0.75)
    q = _restated(rng, p, n, **slots)
    return q if same else _denial(q)


def _voices(rng):
    """One voice for each of two texts: not the same."""
    passive = rng.random() < 0.5
    return passive, not passive


# ---- SST-2: what is said of something, denied or not; after "but" the second clause counts ----
_MOODS = {1: ("happy", "glad", "fresh", "clean", "love", "adore", "find", "discover"),
          0: ("sad", "unhappy", "rotten", "dirty", "avoid", "lose")}


def _felt(rng, mood):
    """A clause of good or bad mood: by its word, or by the denied word of the other. Verbs are passive, since only then
    they have the same form where they are denied."""
    positive, past = rng.random() < 0.5, rng.random() < 0.5
    word = pick(rng, _MOODS[mood if positive else 1 - mood])
    if word in VERB:
        verb = VERB[word]
        agent, patient = (_entity(rng, classes, 0) for classes in (verb.agents, verb.patients))
        return realise(Proposition(word, agent, patient, past=past, positive=positive), passive=True)
    kind = pick(rng, [kind for kind, words in ADJECTIVE.items() if word in words])
    return realise(Proposition("be", _entity(rng, (kind,), 0), quality=word, past=past, positive=positive))


def _sst(rng, label):
    if rng.random() < 0.6:
        return (_felt(rng, label).text(),)
    return (both(_felt(rng, 1 - label), _felt(rng, label), "but").text(),)


# ---- MRPC, QQP, QNLI: the same, asked in pairs, as questions, and as question and answer ----
def _pair_by_word(rng, same, frame=None):
    return _until(lambda: _reworded(rng, _scene(rng, frame), same))


def _mrpc(rng, label):
    kind = rng.random()
    if kind < 0.4:
        p = _named(rng)
        return realise(p, True).text(), realise(_affirmed(rng, p, label), True).text()
    if kind < 0.8:
        p, q = _pair_by_word(rng, label)
        passive = p.patient is not None and rng.random() < 0.3
        return realise(p, passive).text(), realise(q, passive).text()
    p = _event(rng, *_entities(rng, 2))
    q, (one, other) = p if label else _swapped(p), _voices(rng)
    return realise(p, one).text(), realise(q, other).text()


def _qqp(rng, label):
    """"who chased the dog" and "who was chased by the dog" ask for two roles, "who was the dog chased by" for one."""
    kind, passive, role = rng.random(), rng.random() < 0.3, pick(rng, ("agent", "patient"))
    other = "patient" if role == "agent" else "agent"
    p = _named(rng)
    if kind < 0.4:
        q = _affirmed(rng, p, label, slots=("verb", "agent"))
        return question(p, "patient", True).text(), question(q, "patient", True).text()
    if kind < 0.8:
        p, q = _until(_reworded, rng, p, label, ("verb", other))
        return question(p, role, passive).text(), question(q, role, passive).text()
    one, two = _voices(rng)
    return question(p, role, one).text(), question(p, role if label else other, two).text()


def _qnli(rng, label):
    kind, passive, role = rng.random(), rng.random() < 0.2, pick(rng, ("agent", "patient"))
    # most questions have the shape of their answer
    asks = passive if role == "agent" else not passive
    p, says = _named(rng), role == "patient"
    if kind < 0.4:
        q = _restated(rng, p, int(rng.random() < (0.25 if label else 0.75)), ("verb", "agent"))
        return question(p, "patient", True).text(), realise(_denial(q) if label else q, True).text()
    if kind < 0.8:
        p, q = _until(_reworded, rng, p, label == 0, ("verb", "patient" if role == "agent" else "agent"))
        return question(p, role, asks).text(), realise(q, says).text()
    return question(p, role, asks).text(), realise(_swapped(p) if label else p, not says).text()


# ---- STS-B: how many of agent, verb, patient and polarity agree ----
GRADE = 1.25


def _sts(rng, level):
    """Level 0 to 4: so many of the four agree. Nouns that do, or neither, are either the same words, in the same roles
    or the other's, or have other names."""
    parts = ["agent", "patient", "verb", "polarity"]
    agree = {parts.pop(int(rng.random() * len(parts))) for _ in range(level)}
    p = replace(_event(rng, *_entities(rng, 2, 0.1)), predicate=pick(rng, _NAMED_VERBS))
    q = p if "polarity" in agree else _denial(p)
    q = replace(q, predicate=_renamed(rng, p.predicate, "verb" in agree, _NAMED_VERBS))
    if len(agree & {"agent", "patient"}) != 1 and rng.random() < 0.5:
        q = q if "agent" in agree else _swapped(q)
    else:
        for slot in ("agent", "patient"):
            words = _peers(p, slot)
            p = _with(p, slot, pick(rng, words))
            q = _with(q, slot, _renamed(rng, _word(p, slot), slot in agree, words))
        if is_a(q.agent.noun, q.patient.noun):
            return _sts(rng, level)
    return realise(p, rng.random() < 0.3).text(), realise(q, rng.random() < 0.3).text()


# ---- MNLI and AX: a premise, and what follows, may be, or cannot be ----
def _labelled(rng, label, follows, other):
    """What follows, something else affirmed or denied, or the denial of what follows."""
    if label == 1:
        return other if rng.random() < 0.5 else _denial(other)
    return follows if label == 0 else _denial(follows)


def _synonyms(rng, label, frame=None):
    p, q = _pair_by_word(rng, label != 1, frame)
    passive = p.patient is not None and p.recipient is None and rng.random() < 0.5
    return realise(p, passive), realise(_labelled(rng, label, q, q), passive)


def _negated(rng, label):
    p = _named(rng)
    if label != 1:
        return p, _affirmed(rng, p, label == 0)
    p, q = _until(_reworded, rng, p, False, ("agent", "patient", "verb"))
    return p, _labelled(rng, 1, q, q)


def _negations(rng, label):
    return tuple(realise(each, True) for each in _negated(rng, label))


def _roles(rng, label):
    p = _event(rng, *_entities(rng, 2))
    one, other = _voices(rng)
    return realise(p, one), realise(_labelled(rng, label, p, _swapped(p)), other)


def _contrast(rng, label):
    """"the dog slept but the cat did not eat", "the cat ate"."""
    one, other = (_scene(rng, pick(rng, ("intransitive", "mutual")), e) for e in _entities(rng, 2))
    other = replace(other, positive=not one.positive)
    h, rest = (one, other) if rng.random() < 0.5 else (other, one)
    return Compound("but", one, other), _labelled(rng, label, h, replace(rest, agent=h.agent))


def _hypernyms(rng, label):
    """"the dog slept", "the animal slept"; not the other way round."""
    agent, patient = _entities(rng, 2, 0)
    p = replace(_event(rng, agent, patient), positive=True)
    wide = _with(p, "agent", kind_of(agent.noun))
    return (wide, _labelled(rng, 1, p, p)) if label == 1 else (p, _labelled(rng, label, wide, p))


def _quantifiers(rng, label):
    """"every dog slept", "some dog slept": all, none and some."""
    p = replace(_scene(rng, pick(rng, ("intransitive", "mutual"))), positive=True)

    def of(word):
        return replace(p, agent=replace(p.agent, plural=True, quantifier=word))
    return {0: (of("all"), of("some")), 1: (of("some"), of("all")), 2: (of("no"), of("some"))}[label]


def _relatives(rng, label):
    """"the dog that the cat chased slept", "the dog was chased by the cat"."""
    head, other = _entities(rng, 2)
    inner = replace(_event(rng, head, other), positive=True)
    inner = inner if rng.random() < 0.5 else _swapped(inner)
    gap = replace(inner, **{"agent" if inner.agent is head else "patient": None})
    p = _scene(rng, "intransitive", head)
    h = _labelled(rng, label, inner, _swapped(inner))
    return replace(p, agent=replace(head, clause=gap)), h


def _conjunctions(rng, label):
    """"the dog and the cat slept", "the cat slept"; with "or" it may be."""
    one, other = _entities(rng, 2, 0)
    one, other = (replace(e, plural=True) for e in (one, other))
    p = replace(_scene(rng, "intransitive", pick(rng, (one, other))), positive=True)
    premise = replace(p, agent=replace(one, link="or" if label == 1 else "and", other=other))
    return premise, _labelled(rng, label, p, p)


_PREMISES = (_negations,) * 6 + (_synonyms,) * 2 + (_roles,) + (_contrast,)
PHENOMENA = {"synonyms": _synonyms, "negations": _negations, "active and passive": _roles, "contrast": _contrast,
             "hypernyms": _hypernyms, "quantifiers": _quantifiers, "relative clauses": _relatives,
             "conjunctions": _conjunctions}


def _text(rng, meaning):
    """A tree as it is, a proposition in one of its voices."""
    if isinstance(meaning, Proposition):
        meaning = _said(rng, meaning)
    return (realise(meaning) if isinstance(meaning, Compound) else meaning).text()


def _mnli(rng, label):
    return tuple(_text(rng, each) for each in pick(rng, _PREMISES)(rng, label))


def _mnli_mm(rng, label):
    """Longer sentences of other shapes: with a recipient, an adverb, a place."""
    shape = rng.random()
    if shape < 0.3:
        p, q = _pair_by_word(rng, label != 1, "ditransitive")
        q = _labelled(rng, label, q, q)
        to = _entity(rng, ("person",), 0)
        p, q = replace(p, recipient=to), replace(q, recipient=to)
    else:
        p, q = _negated(rng, label)
        adverb, place = pick(rng, _ADVERBS), sample_place(rng)
        if shape < 0.65:
            p, q = replace(p, adverb=adverb), replace(q, adverb=adverb)
        else:
            p, q = (replace(x, agent=replace(x.agent, place=place)) for x in (p, q))
    return realise(p, True).text(), realise(q, True).text()


# ---- WNLI: whom "who" and "that" stand for ----
def _wnli(rng, label):
    """"the dog chased the cat that slept", "the dog that chased the cat slept": "the cat slept"?"""
    agent, patient = _entities(rng, 2, 0)
    p = replace(_event(rng, agent, patient), positive=True)
    says = replace(_scene(rng, "intransitive", agent), positive=True)
    late = rng.random() < 0.5
    if late:
        said = replace(p, patient=replace(patient, clause=replace(says, agent=None)))
    else:
        said = replace(says, agent=replace(agent, clause=replace(p, agent=None)))
    return realise(said).text(), realise(replace(says, agent=patient if late == bool(label) else agent)).text()


# ---- SQuAD: someone did it to another, who did it to a third: who did it to the second, and to whom did they? ----
def _squad(rng, label):
    """Question, passage, first character of the answer and one after its last. Labels: the agent is asked for, the
    patient is, neither is there."""
    a, b, c, d = _entities(rng, 4, 0.4)
    p = replace(_event(rng, a, b), positive=True)
    facts = [p, replace(p, agent=b, patient=c)]
    rest = [v.lemma for v in FRAMES["mutual"] if not is_a(v.lemma, p.predicate)]
    verb = pick(rng, rest)
    fillers = [replace(p, agent=d, patient=b, predicate=verb), replace(p, agent=b, patient=d, predicate=verb),
               replace(p, agent=d, patient=b, positive=False), _scene(rng, "intransitive", d)]
    facts += [pick(rng, fillers) for _ in range(int(rng.random() * 2.5))]
    said = sorted((rng.random(), _said(rng, fact).text(), i) for i, fact in enumerate(facts))
    passage = " ".join(text for _, text, _ in said)
    role = "agent" if label == 0 or label == 2 and rng.random() < 0.5 else "patient"
    asked = facts[0] if role == "agent" else facts[1]
    if label == 2 and rng.random() < 0.5:
        verbs = [v for v in rest if not is_a(v, verb)]
        asked = replace(asked, predicate=pick(rng, verbs))
    elif label == 2:                        # nobody did it to the first, nor the third to anybody
        asked = replace(asked, patient=a) if role == "agent" else replace(asked, agent=c)
    if rng.random() < 0.4 and asked.predicate in SYNONYM:
        asked = _with(asked, "verb", pick(rng, SYNONYM[asked.predicate]))
    text = question(asked, role, rng.random() < 0.3).text()
    if label == 2:
        return text, passage, -1, -1
    place = [i for _, _, i in said].index(label)
    answer = noun_phrase(a if role == "agent" else c).text()
    start = sum(len(text) + 1 for _, text, _ in said[:place]) + said[place][1].index(f"{answer} ")
    return text, passage, start, start + len(answer)


# ---- probing: what a tree says ----
def tense(tree):
    """Of the main clause."""
    return {"past": "PAST", "present": "PRES"}[tree.children[0].features["tense"]]


def _number(parts):
    """Of the first noun phrase among constituents."""
    found = next(node for node in parts if node.label == "NP")
    return {"sg": "NN", "pl": "NNS"}[found.features["number"]]


def subject_number(tree):
    """Of the main clause's subject."""
    return _number(tree.children[0].children)


def object_number(tree):
    """Of the main clause's direct object."""
    return _number(next(node for node in tree.children[0].children if node.label == "VP").children)


def depth(tree):
    """Most steps from the root down to a word."""
    return 0 if tree.word else 1 + max(map(depth, tree.children))


def top_constituents(tree):
    """"NP_VP_.": what stands immediately below the sentence."""
    return "_".join([*(node.label for node in tree.children[0].children), "."])


def length(tree):
    """Words, without the full stop."""
    return len(tree.leaves()) - 1


def bin_of(n, names):
    """The name, such as "5-6" or "13-", of the bin that holds a number; None where none does."""
    for name in names:
        low, _, high = name.partition("-")
        if int(low) <= n <= int(high or n):
            return name
    return None


def _relative(rng, past, classes=ANIMATE, agent=None):
    """A relative clause with its subject or its object missing."""
    e = agent or sample_entity(rng, classes, PLAIN, adjective=0.0)
    p = replace(_event(rng, e, None), past=past, positive=True)
    return p if rng.random() < 0.5 else _swapped(p)


def _mutual(rng, past=True, **more):
    """Someone and another, as subject and object."""
    one, other = (sample_entity(rng, ANIMATE, PLAIN, adjective=0.1) for _ in range(2))
    return replace(_event(rng, one, other), past=past, positive=True, **more)


def _on(p, slot, clause):
    return replace(p, **{slot: replace(getattr(p, slot), clause=clause)})


def _with_tense(rng, wanted):
    """A clause in the other tense stands inside."""
    past = wanted == "PAST"
    return realise(_on(_mutual(rng, past), pick(rng, ("agent", "patient")), _relative(rng, not past)))


def _with_number(rng, wanted, slot):
    """Subject and object differ in number, and the past tense does not show the subject's; other nouns stand before."""
    many = (wanted == "NNS") == (slot == "agent")
    one, other = (sample_entity(rng, ANIMATE, PLAIN, 0.1, many=float(m)) for m in (many, not many))
    p = replace(_mutual(rng), agent=one, patient=other)
    if rng.random() < 0.7:
        p = _on(p, pick(rng, ("agent", "agent", "patient")), _relative(rng, True))
    if rng.random() < 0.5:
        return arranged(replace(p, place=sample_place(rng), adverb=pick(rng, _ADVERBS)), "PP_NP_VP_.")
    return realise(p)


def _with_depth(rng, wanted):
    """Two relative clauses, side by side or one inside the other: as many words at any depth."""
    while True:
        p, one, other = _mutual(rng), _relative(rng, True), _relative(rng, True)
        if rng.random() < 0.3:
            p = _on(_on(p, "agent", one), "patient", other)
        else:
            p = _on(p, pick(rng, ("agent", "patient")), _on(one, "agent" if one.agent else "patient", other))
        tree = realise(p)
        if bin_of(depth(tree), DEPTHS) == wanted:
            return tree


def _with_length(rng, wanted):
    low = int(wanted.split("-")[0])
    while True:
        p = sample_proposition(rng, pick(rng, ANY_FRAME), adverbial=0.3, place=0.3 * (low > 5), clause=0.5 * (low > 6))
        tree = realise(p)
        if low > 8 and rng.random() < 0.7:
            tree = both(tree, realise(sample_proposition(rng, "intransitive")), pick(rng, ("and", "but")))
        if bin_of(length(tree), LENGTHS) == wanted:
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
    leaves = realise(p, passive=p.patient is not None and p.recipient is None and rng.random() < 0.2).leaves()
    if label == 0:
        i = pick(rng, [i for i in range(len(leaves) - 2) if "RB" not in (leaves[i].label, leaves[i + 1].label)])
        leaves = leaves[:i] + [leaves[i + 1], leaves[i]] + leaves[i + 2:]
    return (" ".join(_words(leaves)),)


def _odd_man_out(rng, label):
    """The object is one that the verb does not take: that of another sentence, itself one that would not fit there."""
    while True:
        frame = pick(rng, ("object", "object", "ditransitive"))
        p, q = (sample_proposition(rng, f, quantifiers=PLAIN) for f in (frame, "object"))
        kinds = [(kind_of(x.patient.noun), VERB[y.predicate].patients) for x, y in ((p, q), (q, p))]
        if not any(kind in fits for kind, fits in kinds):
            break
    p = p if label else replace(p, patient=q.patient)
    return (realise(p, p.recipient is None and rng.random() < 0.4).text(),)


def _coordination_inversion(rng, label):
    """"a dog chased this boy and this animal saw a king": what is spoken of as known comes second; inverted, first.
    Often others are spoken of in both ways, and only who is the same tells."""
    kind, noun = pick(rng, _NAMED)
    first = Entity(noun, rng.random() < 0.4)
    again = replace(first, noun=pick(rng, (*SYNONYM[noun], *SYNONYM[noun], kind)))
    known, hard, clauses = (("this", "these"), ("a", "some")), rng.random() < 0.5, []
    others = [k for k in ANIMATE if k != kind]
    one, two = _entity(rng, others, 0), _entity(rng, others, 0)
    while is_a(one.noun, two.noun):
        two = _entity(rng, others, 0)
    for e, other, new in ((first, one, 1), (again, two, 0)):
        e = replace(e, quantifier=known[new][e.plural])
        other = replace(other, quantifier=known[1 - new if hard else int(rng.random() * 2)][other.plural])
        p = replace(_event(rng, e, other), positive=True)
        clauses.append(_said(rng, p if rng.random() < 0.5 else _swapped(p)))
    clauses = clauses if label else clauses[::-1]
    return (both(*clauses, pick(rng, ("and", "but"))).text(),)


def _word_content(rng, label):
    """Just one of the words."""
    word = WORDS[label]
    while True:
        frame = pick(rng, ("intransitive", "mutual", "object", "ditransitive"))
        p = sample_proposition(rng, frame, adverbial=0.2, place=0.2)
        fits = [slot for slot, kinds in (("agent", VERB[p.predicate].agents), ("patient", VERB[p.predicate].patients))
                if CLASS[word] in kinds]
        if fits:
            slot = pick(rng, fits)
            text = realise(_with(p, slot, word)).text()
            if [w for w in text.split() if w in WORDS] == [word]:
                return (text,)


MAKERS = {
    "SST-2": _sst, "MRPC": _mrpc, "QQP": _qqp, "STS-B": _sts, "MNLI": _mnli, "QNLI": _qnli, "WNLI": _wnli,
    "SQuAD1": _squad, "SQuAD2": _squad, "BigramShift": _bigram_shift, "OddManOut": _odd_man_out,
    "CoordinationInversion": _coordination_inversion, "WordContent": _word_content,
    "Tense": _probe("Tense", _with_tense), "Depth": _probe("Depth", _with_depth),
    "Length": _probe("Length", _with_length),
    "TopConstituents": _probe("TopConstituents", _with_top),
    "SubjNumber": _probe("SubjNumber", lambda rng, wanted: _with_number(rng, wanted, "agent")),
    "ObjNumber": _probe("ObjNumber", lambda rng, wanted: _with_number(rng, wanted, "patient"))}
MISMATCHED = _mnli_mm
_LABELS = {"STS-B": tuple(GRADE * level for level in range(5)), "SQuAD1": (0, 1), "SQuAD2": (0, 1, 2)}


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
