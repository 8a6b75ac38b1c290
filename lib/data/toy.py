"""The toy world: a corpus and twins of GLUE tasks, generated from `grammar` and a seed. Free of torch.

Labels follow from the grammar, not from words: every kind of violation (CoLA) or inference (RTE) comes in
pairs of opposite edits, so that words are as frequent under one label as under the other. The same
GENERATOR_VERSION gives the same rows everywhere: any change in output needs a new one.
"""

import random
from dataclasses import replace
from functools import cache

import numpy as np

from lib.data import Split, Task, glue, senteval, squad
from lib.data.grammar import (
    ADJECTIVE,
    ANIMATE,
    CLASS,
    FRAMES,
    GENDER,
    NOUNS,
    PLAIN,
    PLURAL,
    SINGULAR,
    SYNONYM,
    TOPS,
    VERB,
    Compound,
    Entity,
    Proposition,
    article,
    common,
    is_a,
    kind_of,
    pick,
    plural,
    realise,
    sample_entity,
    sample_place,
    sample_proposition,
    sample_relative,
)

GENERATOR_VERSION = 2
SEED = 20
ROWS = {"train": 4000, "dev": 500}  # of the others see `rows`

# Classes of the probing tasks that are not SentEval's: steps from the root to a word, words, and words to be found.
DEPTHS = ("7-8", "9-10", "11-12")
LENGTHS = ("3-4", "5-6", "7-8", "9-10", "11-12", "13-")
WORDS = (
    "doctor",
    "thief",
    "boy",
    "woman",
    "teacher",
    "dog",
    "rabbit",
    "cat",
    "cake",
    "apple",
    "car",
    "axe",
    "coat",
    "letter",
    "book",
    "hat",
)
_CLASSES = {"Depth": DEPTHS, "Length": LENGTHS, "TopConstituents": TOPS, "WordContent": WORDS}
PROBING = {
    name: Task(name, False, _CLASSES.get(name, task.labels), task.metrics)
    for name, task in senteval.TASKS.items()
}
TASKS = glue.TASKS | squad.TASKS | PROBING


def rows(task):
    """{split: number of rows} of a twin."""
    if task in PROBING:
        return {"train": 3000, "dev": 500, "test": 500}
    special = {
        "MNLI": {**ROWS, "dev_mm": 500},
        "WNLI": {"train": 400, "dev": 200},
        "AX": {"test": 480},
    }
    return special.get(task, ROWS)


# ---- CoLA: a base sentence of the right shape, and the edit that breaks it ----
# Each kind gives (words of a good sentence, words of the broken one).
def _words(leaves):
    """Words with "a" or "an" as the next word wants it, so that an edit leaves no trace there."""
    words = [leaf.word for leaf in leaves]
    return [article(words[i + 1]) if w in ("a", "an") else w for i, w in enumerate(words)]


def _swap(leaves, i, word):
    return leaves[:i] + [replace(leaves[i], word=word)] + leaves[i + 1 :]


def _places(leaves, *labels):
    return [i for i, leaf in enumerate(leaves) if leaf.label in labels]


def _number_swapped(leaf):
    """The finite verb or auxiliary in the other number."""
    be = {"is": "are", "are": "is", "was": "were", "were": "was", "does": "do", "do": "does"}
    verb = VERB.get(leaf.features["lemma"])
    return be.get(leaf.word) or (verb.lemma if leaf.word == verb.third else verb.third)


def _agreement(rng):
    """ "the dogs near the park sleeps": verb and subject disagree, with another noun in between."""
    near = {"place": 0.25, "clause": 0.15}
    p = sample_proposition(
        rng, pick(rng, ("intransitive", "object", "mutual")), past=False, many=0.5, **near
    )
    if p.agent.clause:
        p = replace(p, agent=replace(p.agent, clause=sample_relative(rng, "animal", past=True)))
    tree = realise(p, passive=bool(p.patient) and rng.random() < 0.25)
    leaves = tree.leaves()
    i = [
        i for i in _places(leaves, "VBZ", "VBP", "AUX") if leaves[i].features["tense"] == "present"
    ][0]
    return leaves, _swap(leaves, i, _number_swapped(leaves[i]))


def _determiner(rng):
    """ "every dogs slept": determiner and noun disagree."""
    strict = tuple(q for q in (*SINGULAR, *PLURAL) if q not in ("the", "some", "no"))
    frame = pick(rng, ("intransitive", "object", "ditransitive"))
    p = sample_proposition(rng, frame, past=True, many=0.5, quantifiers=strict)
    leaves = realise(p).leaves()
    i = _places(leaves, "NN", "NNS")[0]
    noun = leaves[i].features["lemma"]
    return leaves, _swap(leaves, i, plural(noun) if leaves[i].label == "NN" else noun)


def _order(rng):
    """ "the dog big slept", "the boy the apple ate", "the dog not did sleep": two neighbours change places."""
    p = sample_proposition(rng, adjective=0.4, adverbial=0.2)
    tree = realise(p, passive=p.patient is not None and p.recipient is None and rng.random() < 0.2)
    leaves = tree.leaves()
    pairs = {
        ("DT", "JJ"),
        ("JJ", "NN"),
        ("JJ", "NNS"),
        ("DT", "NN"),
        ("DT", "NNS"),
        ("AUX", "NEG"),
        ("NEG", "VB"),
        ("VBD", "DT"),
        ("VBZ", "DT"),
        ("VBP", "DT"),
        ("IN", "DT"),
        ("AUX", "VBN"),
    }
    i = pick(
        rng, [i for i in range(len(leaves) - 1) if (leaves[i].label, leaves[i + 1].label) in pairs]
    )
    return leaves, leaves[:i] + [leaves[i + 1], leaves[i]] + leaves[i + 2 :]


def _arguments(rng):
    """ "the dog slept the cat", "the dog chased": a verb of the wrong frame."""
    has_object = rng.random() < 0.5
    p = sample_proposition(rng, "transitive" if has_object else "intransitive")
    verb, leaves = VERB[p.predicate], realise(p).leaves()
    other = pick(rng, FRAMES["intransitive" if has_object else "transitive"])
    verbs = _places(leaves, "VBD", "VBZ", "VBP", "VB")
    i = [i for i in verbs if leaves[i].features["lemma"] == verb.lemma][-1]
    form = {"VBD": other.past, "VBZ": other.third}.get(leaves[i].label, other.lemma)
    return leaves, _swap(leaves, i, form)


def _tense(rng):
    """ "did not slept", "did slept", "not sleep", "was chase": a form too many or too few."""
    kind = pick(rng, ("double", "added", "dropped", "base", "finite"))
    if kind in ("base", "finite"):
        p = sample_proposition(rng, pick(rng, ("object", "mutual")), past=True)
        leaves = realise(p, passive=True).leaves()
        i = _places(leaves, "VBN")[0]
        verb = VERB[leaves[i].features["lemma"]]
        return leaves, _swap(leaves, i, verb.lemma if kind == "base" else verb.third)
    p = sample_proposition(rng, positive=kind == "added", quantifiers=PLAIN)
    leaves = realise(p).leaves()
    if kind == "added":
        i = _places(leaves, "VBD", "VBZ", "VBP")[0]
        do = {"VBD": "did", "VBZ": "does", "VBP": "do"}[leaves[i].label]
        return leaves, leaves[:i] + [
            replace(leaves[i], word="not" if rng.random() < 0.5 else do)
        ] + leaves[i:]
    i = _places(leaves, "AUX")[0]
    if kind == "dropped":
        return leaves, leaves[: i + 1 - int(rng.random() < 0.5)] + leaves[i + 2 :]
    verb = VERB[leaves[i + 2].features["lemma"]]
    return leaves, _swap(leaves, i + 2, pick(rng, (verb.past, verb.third)))


def _reflexive(rng):
    """ "the boy saw herself": a reflexive that is not the subject's."""
    subject = sample_entity(rng, ANIMATE, place=0.2, many=0.4)
    if rng.random() < 0.7 and not subject.adjective:
        subject = replace(subject, noun=pick(rng, sorted(GENDER)))
    p = sample_proposition(rng, "mutual", subject=subject)
    leaves = realise(replace(p, patient=Entity("", reflexive=True))).leaves()
    i = _places(leaves, "PRP")[0]
    wrong = {"himself", "herself", "itself", "themselves"} - {leaves[i].word}
    if kind_of(subject.noun) == "person" and subject.noun not in GENDER and not subject.plural:
        wrong -= {"herself"}  # a doctor may see herself
    return leaves, _swap(leaves, i, pick(rng, sorted(wrong)))


def _gap(rng):
    """ "the dog that the cat chased the boy slept", "the dog that chased slept": gap filled, or extra."""
    head = sample_entity(rng, ANIMATE, adjective=0.0)
    relative = sample_relative(rng, kind_of(head.noun))
    while VERB[relative.predicate].frame == "optional":
        relative = sample_relative(rng, kind_of(head.noun))
    missing = relative.patient
    if missing:
        broken = replace(relative, patient=None)
    else:
        broken = replace(relative, patient=sample_entity(rng, ANIMATE, PLAIN, adjective=0.0))
    p = sample_proposition(rng, pick(rng, ("intransitive", "mutual")), subject=head, positive=True)
    trees = [realise(replace(p, agent=replace(head, clause=c))) for c in (relative, broken)]
    return trees[0].leaves(), trees[1].leaves()


VIOLATIONS = (
    (_agreement,) * 3
    + (_order,) * 5
    + (_arguments,) * 3
    + (_tense,) * 4
    + (_determiner, _reflexive, _gap)
)


def _cola(rng, label):
    leaves = pick(rng, VIOLATIONS)(rng)[0 if label else 1]
    return (" ".join(_words(leaves)),)


# ---- RTE: a premise, and a hypothesis that follows or does not ----
# Each kind gives (premise, hypothesis) as trees; `ok` asks for one that follows.
def _said(rng, p):
    """The proposition in active or, where it has a patient, passive voice."""
    return realise(p, passive=p.patient is not None and p.recipient is None and rng.random() < 0.4)


def _renamings(word):
    """Words that may stand for this one, noun, verb or adjective: synonyms, and a noun's hypernym."""
    return SYNONYM.get(word, ()) + ((CLASS[word],) if word in CLASS else ())


def _simple(rng, classes, **options):
    """An entity about which everything said of it also holds of its hypernym."""
    return sample_entity(rng, classes, PLAIN, **{"adjective": 0.15, **options})


def _two(rng, classes=ANIMATE):
    """Two entities that no word confuses."""
    one = _simple(rng, classes)
    while True:
        other = _simple(rng, classes)
        if not is_a(one.noun, other.noun) and not is_a(other.noun, one.noun):
            return one, other


def _renamed(rng, e, share=0.4):
    return (
        replace(e, noun=pick(rng, _renamings(e.noun)))
        if e.noun in CLASS and rng.random() < share
        else e
    )


def _roles(rng, ok):
    """ "the dog chased the cat", "the cat was chased by the dog"."""
    agent, patient = _two(rng)
    p = sample_proposition(rng, "mutual", subject=agent, positive=rng.random() < 0.85)
    p = replace(p, patient=patient)
    h = replace(p, agent=_renamed(rng, agent, 0.3), patient=_renamed(rng, patient, 0.2))
    if not ok:
        h = replace(h, agent=h.patient, patient=h.agent)
    return _said(rng, p), _said(rng, h)


def _lexical(rng, ok):
    """ "the dog slept", "the animal slept": one word is renamed, or becomes the new name of another one."""
    frame = pick(rng, ("intransitive", "intransitive", "object", "mutual"))
    p = sample_proposition(rng, frame, quantifiers=PLAIN, adjective=0.15, positive=True)
    slot = pick(rng, ("agent", "agent", "patient", "verb", "adjective"))
    if slot == "patient" and p.patient is None:
        slot = "agent"
    if slot == "verb":
        peers = [
            v.lemma
            for v in FRAMES[VERB[p.predicate].frame]
            if v.patients == VERB[p.predicate].patients and v.agents == VERB[p.predicate].agents
        ]
    elif slot == "adjective":
        kind = kind_of(p.agent.noun)
        peers = ADJECTIVE[kind]
    else:
        verb = VERB[p.predicate]
        classes = verb.agents if slot == "agent" else verb.patients
        peers = [noun for kind in classes for noun in NOUNS[kind]]
        wide = len(classes) > 1  # with one class only, its hypernym would always follow
    peers = [w for w in peers if w in SYNONYM or slot in ("agent", "patient") and wide]
    if len(peers) < 3:
        return _lexical(rng, ok)
    while True:
        word, source = common(rng, peers), common(rng, peers)
        source = word if ok else source
        new = pick(
            rng,
            [n for n in _renamings(source) if n in SYNONYM or wide]
            if slot in ("agent", "patient")
            else SYNONYM[source],
        )
        if ok or new not in (word, *_renamings(word)):
            break
    texts = []
    for w in (word, new):
        if slot == "verb":
            texts.append(replace(p, predicate=w))
        elif slot == "adjective":
            texts.append(replace(p, agent=replace(p.agent, adjective=w)))
        else:
            texts.append(replace(p, **{slot: replace(getattr(p, slot), noun=w)}))
    return realise(texts[0]), realise(texts[1])


def _monotone(rng, ok):
    """ "every animal slept", "every dog slept", and back; "some" and "a" go the other way."""
    many = rng.random() < 0.5
    down = rng.random() < 0.5
    words = {
        (True, True): ("all", "no"),
        (True, False): ("some", "two"),
        (False, True): ("every", "no"),
        (False, False): ("a", "this"),
    }[many, down]
    kind = pick(rng, ANIMATE)
    frame = pick(rng, ("intransitive", "mutual", "object")[: 2 if kind == "animal" else 3])
    narrow = Entity(pick(rng, NOUNS[kind]), many, pick(rng, words))
    wide = narrow
    how = rng.random()
    if how < 0.5:
        wide = replace(narrow, noun=kind)
    elif how < 0.75:
        narrow = replace(narrow, adjective=pick(rng, ADJECTIVE[kind]))
    else:
        narrow = replace(narrow, place=sample_place(rng))
    p = sample_proposition(rng, frame, subject=wide, positive=True)
    wide, narrow = realise(p), realise(replace(p, agent=narrow))
    return (narrow, wide) if ok != down else (wide, narrow)


def _polarity(rng, ok):
    """ "the dog slept but the cat did not eat", "the cat ate": one of two clauses, affirmed or denied."""
    one, other = _two(rng)
    frames = ("intransitive", "mutual")
    parts = [
        sample_proposition(rng, pick(rng, frames), subject=e, positive=True) for e in (one, other)
    ]
    denied = int(rng.random() < 0.5)
    parts[denied] = replace(parts[denied], positive=False)
    h = pick(rng, parts)
    h = h if ok else replace(h, positive=not h.positive)
    return realise(Compound("but", *parts)), realise(replace(h, agent=_renamed(rng, h.agent, 0.2)))


def _joined(rng, ok):
    """ "the dog and the cat slept", "the cat slept"; with "or" it is the other way round."""
    link = pick(rng, ("and", "or"))
    many = float(rng.random() < 0.5)
    one, other, third = (_simple(rng, ANIMATE, adjective=0.0, many=many) for _ in range(3))
    if any(
        is_a(a.noun, b.noun) for a in (one, other, third) for b in (one, other, third) if a is not b
    ):
        return _joined(rng, ok)
    single = sample_proposition(
        rng, "mutual", past=True, subject=pick(rng, (one, other)), positive=True
    )
    single = replace(single, patient=third)
    both = replace(single, agent=replace(one, link=link, other=other))
    # What "and" or "or" would give away, swapped roles and plain restatement take back
    if ok:
        premise = both if link == "and" else pick(rng, (single, both, both))
        h = both if link == "or" else pick(rng, (single, both))
        return realise(premise), realise(h, passive=premise is h or rng.random() < 0.2)
    if link == "or" and rng.random() < 0.4:
        return realise(both), realise(single)
    h = pick(rng, (single, both) if link == "and" else (both,))
    premise = both if link == "and" else pick(rng, (single, both))
    return realise(premise), realise(
        replace(h, agent=third, patient=h.agent), passive=rng.random() < 0.5
    )


def _relative(rng, ok):
    """ "the dog that chased the cat slept", "the dog slept", "the cat was chased by the dog"."""
    head, other = _two(rng)
    p = sample_proposition(rng, pick(rng, ("intransitive", "intransitive", "mutual")), subject=head)
    inner = Proposition(pick(rng, FRAMES["mutual"]).lemma, head, other, past=p.past)
    if rng.random() < 0.5:
        inner = replace(inner, agent=other, patient=head)
    gap = replace(inner, **{"agent" if inner.agent is head else "patient": None})
    premise = realise(replace(p, agent=replace(head, clause=gap)))
    if rng.random() < 0.5:
        return premise, realise(replace(p, agent=_renamed(rng, head if ok else other, 0.2)))
    inner = inner if ok else replace(inner, agent=inner.patient, patient=inner.agent)
    return premise, _said(rng, inner)


def _denied(rng, ok):
    """ "the dog did not sleep", "the hound did not sleep"; not "the hound slept"."""
    p = sample_proposition(
        rng,
        pick(rng, ("intransitive", "mutual", "object")),
        quantifiers=PLAIN,
        adjective=0.15,
        positive=rng.random() < 0.5,
    )
    h = replace(p, agent=_renamed(rng, p.agent, 0.2))
    return _said(rng, p), _said(rng, h if ok else replace(h, positive=not p.positive))


INFERENCES = (_denied,) * 6 + (_lexical,) * 6 + (_roles, _monotone, _polarity, _relative, _joined)


def _rte(rng, label):
    premise, hypothesis = pick(rng, INFERENCES)(rng, label == 0)
    return premise.text(), hypothesis.text()


# ---- splits ----
@cache
def load(task):
    """All splits of a twin. Labels take turns before the rows are shuffled, so that each is as frequent as the others;
    no text of an evaluation split occurs in train."""
    from lib.data import toy_tasks  # which is built on this module

    makers = {"CoLA": _cola, "RTE": _rte} | toy_tasks.MAKERS
    if task == "AX":
        return {"test": toy_tasks.diagnostics()}
    seen, splits, labels = set(), {}, toy_tasks.targets(task)
    for name in sorted(rows(task), key=("dev", "dev_mm", "test", "train").index):
        make = toy_tasks.MISMATCHED if name == "dev_mm" else makers[task]
        splits[name] = _split(task, name, make, labels, seen)
    return {name: splits[name] for name in rows(task)}


def _split(task, name, make, labels, seen):
    """Rows of a maker, none of whose texts is in `seen`, to which theirs are added. `labels`: the target of each label
    that a maker is asked for; one that gives more than the task's texts gives the target as well."""
    rng = random.Random(f"{SEED} {task} {name}")
    found, fresh, pair = [], set(), TASKS[task].pair
    while len(found) < rows(task)[name]:
        label = len(found) % len(labels)
        row = make(rng, label)
        texts = row[: 1 + pair]
        if texts not in fresh and len(set(texts)) == len(texts) and seen.isdisjoint(texts):
            fresh.add(texts)
            found.append((rng.random(), row[1 + pair :] or labels[label], texts))
    found.sort()
    seen.update(text for _, _, texts in found for text in texts)
    return split(task, [texts for _, _, texts in found], [target for _, target, _ in found])


def split(task, texts, targets):
    """A Split of tuples of texts and targets: codes, scores, or first character and one after the last."""
    columns = [list(column) for column in zip(*texts, strict=True)]
    b, answers = columns[1] if TASKS[task].pair else None, None
    if TASKS[task].span:
        answers = [
            [text[start:end]] if end > 0 else []
            for text, (start, end) in zip(b, targets, strict=True)
        ]
    y = np.array(targets, np.int64 if TASKS[task].span or TASKS[task].labels else np.float32)
    return Split(columns[0], b, y, np.arange(len(y)), answers)


# ---- corpus ----
def _definition(rng):
    """ "every dog is an animal"."""
    noun = pick(rng, sorted(CLASS))
    one = Entity(noun, False, pick(rng, ("every", "a", "this")))
    p = Proposition("be", one, Entity(pick(rng, _renamings(noun)), False, "a"), past=False)
    return [realise(p).text()]


def _story(rng):
    """Plain sentences about one entity."""
    p = sample_proposition(rng, adverbial=0.3, place=0.15, clause=0.15)
    tree = _said(rng, p)
    texts = [tree.text()]
    if rng.random() < 0.4:
        kind = kind_of(p.agent.noun)
        frame = pick(rng, ("intransitive", "mutual", "object")[: 2 if kind == "animal" else 3])
        subject = replace(
            p.agent, quantifier="these" if p.agent.plural else "this", place=(), clause=None
        )
        texts.append(realise(sample_proposition(rng, frame, subject=subject)).text())
    return texts


def _kept(rng):
    """A well-formed sentence of each shape that CoLA's twin needs."""
    return [" ".join(_words(pick(rng, VIOLATIONS)(rng)[0]))]


def _reworded(rng, leaves):
    """The same sentence with synonyms for some of its nouns."""
    leaves = list(leaves)
    for i in _places(leaves, "NN", "NNS"):
        others = SYNONYM.get(leaves[i].features["lemma"])
        if others and rng.random() < 0.6:
            noun = pick(rng, others)
            leaves[i] = replace(leaves[i], word=plural(noun) if leaves[i].label == "NNS" else noun)
    return " ".join(_words(leaves))


def _restated(rng):
    """A sentence, what follows from it, and often itself reworded: synonyms and voices meet."""
    premise, hypothesis = pick(rng, INFERENCES)(rng, True)
    texts = [premise.text(), hypothesis.text()]
    return texts + ([_reworded(rng, premise.leaves())] if rng.random() < 0.5 else [])


def corpus(sentences, seed):
    """About `sentences` sentences in passages of one to three, for masked language modelling."""
    rng = random.Random(f"{seed} corpus")
    passages, count = [], 0
    kinds = (_definition,) + (_story,) * 2 + (_kept,) * 5 + (_restated,) * 9
    while count < sentences:
        texts = pick(rng, kinds)(rng)
        count += len(texts)
        passages.append(" ".join(texts))
    return passages
