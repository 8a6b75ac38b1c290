"""The ten probing tasks of SentEval derived from a treebank: `<root>/*-ud-{train,dev,test}.conllu`. Real English with
real annotation, but a stand-in: `about` says for what and how large, `counts` where the other sentences went.

The three files are pooled, repeated sentences dropped, and each task split anew, 70/15/15: by the lemma asked about
where SentEval keeps such words apart (tense, numbers, odd word), by sentence within a word for word content, else by
document. Within each split the classes are equally frequent. A task asks a sentence at most once, its words joined by
blanks; what is drawn for a sentence depends on its text alone.
"""

import random
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lib.data import Split, Task, senteval
from lib.data.lines import malformed, read_lines, short
from lib.spec import known

LENGTHS = range(5, 41)  # words; SentEval's end at 28, which would cost a small treebank a tenth
BINS = (8, 12, 16, 20, 25)  # last length of each bin: SentEval's, but the sixth goes on to the end
WORDS, RANK = (
    50,
    100,
)  # word content: that many words from this rank on (SentEval: 1,000 from 2,001)
SHAPES = 9  # the most frequent sequences of relations; all others are one more class
_ODD = range(5, 101)  # occurrences of a word that is replaced or replaces
_SUBJECTS = {"nsubj", "csubj", "expl"}
_SHAPE = _SUBJECTS | {"obj", "iobj", "ccomp", "xcomp", "obl", "advcl", "conj", "cop"}
_QUOTES = {'"', "“", "”", "``", "''"}
_NAMES = {"Past": "PAST", "Pres": "PRES", "Sing": "NN", "Plur": "NNS"}

ABOUT = {  # which file of SentEval, and what differs
    "Length": "sentence_length: the same bins of words, but the last ends at 40",
    "WordContent": f"word_content: {WORDS} words instead of 1,000",
    "Depth": "tree_depth: depth of the dependency tree (3 or less, 4, 5, 6 or more), equally frequent at each length",
    "TopConstituents": f"top_constituents: the root among its clause-level dependents, {SHAPES} sequences and others",
    "BigramShift": "bigram_shift: the same",
    "Tense": "past_present: no verb in two splits; other clauses too, where all finite forms agree",
    "SubjNumber": "subj_number: no noun in two splits; other clauses too, where all subjects agree",
    "ObjNumber": "obj_number: no noun in two splits; other clauses too, where all objects agree",
    "OddManOut": "odd_man_out: no asked word in two splits; as frequent as the word replaced, not as its bigrams",
    "CoordinationInversion": "coordination_inversion: there may be other conjunctions inside the clauses",
}
_CLASSES = {
    "Length": 6,
    "WordContent": WORDS,
    "Depth": ("<=3", "4", "5", ">=6"),
    "TopConstituents": SHAPES + 1,
}
TASKS = {
    name: Task(
        name,
        False,
        tuple(map(str, range(given))) if isinstance(given, int) else given,
        ("accuracy",),
    )
    for name in ABOUT
    for given in [_CLASSES.get(name, senteval.TASKS[name].labels)]
}


class Sentence(NamedTuple):
    """Tuples with one item a word, and the document."""

    words: tuple
    lemmas: tuple
    kinds: tuple  # universal parts of speech
    features: tuple  # "Number=Sing|..." or "_"
    heads: tuple  # places of the heads, -1 for the root
    relations: tuple  # without subtypes
    document: str


class Row(NamedTuple):
    label: str
    key: str  # rows with one key go to one split
    words: list
    stratum: int = 0  # classes are equally frequent within it


# ---- CoNLL-U ----


def read(path):
    """Sentences of a CoNLL-U file. Ranges (multiword tokens) and empty nodes are passed over: the words of a range
    have lines of their own. Raises ValueError with file and line where a line or a tree is malformed."""
    path, found, rows, lines, document = Path(path), [], [], [], None
    for number, line in enumerate([*read_lines(path), ""], 1):
        if not line.strip():
            if rows:
                found.append(_sentence(path, rows, lines, f"{path.name}: {document or len(found)}"))
                rows, lines = [], []
        elif line[0] == "#":
            document = f"{line} {number}" if line.startswith("# newdoc") else document
        else:
            cells = line.split("\t")
            if len(cells) != 10 or "" in cells:
                raise malformed(
                    path,
                    number,
                    f"{len(cells)} field(s), {cells.count('')} empty, in {short(line)}",
                    "10 between tabs, _ for none",
                    "restore the line from the treebank's release",
                )
            if cells[0] == str(len(rows) + 1):
                rows.append(cells)
                lines.append(number)
            elif not re.fullmatch(r"\d+-\d+|\d+\.\d+", cells[0], re.A):
                raise malformed(
                    path,
                    number,
                    f"number {short(cells[0])}",
                    f"{len(rows) + 1}, a range or an empty node",
                    "number the words from 1, with a blank line between sentences",
                )
    return found


def _sentence(path, rows, lines, document):
    _, words, lemmas, kinds, _, features, heads, relations, _, _ = zip(*rows, strict=True)
    places = {str(i): i - 1 for i in range(len(rows) + 1)}
    bad = [i for i, head in enumerate(heads) if head not in places]
    if bad:
        raise malformed(
            path,
            lines[bad[0]],
            f"head {short(heads[bad[0]])}",
            f"0 to {len(rows)}",
            "correct the head",
        )
    lemmas = tuple(
        (word if lemma == "_" else lemma).lower() for word, lemma in zip(words, lemmas, strict=True)
    )
    sentence = Sentence(
        words,
        lemmas,
        kinds,
        features,
        tuple(places[head] for head in heads),
        tuple(name.split(":")[0] for name in relations),
        document,
    )
    if sentence.heads.count(-1) != 1 or max(depths(sentence)) >= len(rows):
        raise malformed(
            path,
            lines[0],
            f"{sentence.heads.count(-1)} root(s), or words in a circle",
            "a tree with one root",
            "correct the heads of this sentence",
        )
    return sentence


def depths(sentence):
    """Steps from each word up to the root; more than there are words where it never gets there."""
    found = []
    for i in range(len(sentence.heads)):
        found.append(0)
        while (i := sentence.heads[i]) != -1 and found[-1] <= len(sentence.heads):
            found[-1] += 1
    return found


# ---- What a tree says: None where it lacks the annotation, or its clauses disagree ----


def _feature(sentence, i, name):
    found = re.search(rf"(?:^|\|){name}=([^|]+)", sentence.features[i])
    return found and found.group(1)


def _asked(sentence, kind, values, main):
    """Class and lemma of the main clause's word of a kind, else of the highest clause's where all values agree."""
    words = [i for i, value in values.items() if sentence.kinds[i] == kind and value in _NAMES]
    found = [i for i in words if main(i)]
    if words and not found and len(set(values.values())) == 1:
        level = depths(sentence)
        found = [min(words, key=level.__getitem__)]
    return (_NAMES[values[found[0]]], sentence.lemmas[found[0]]) if found else None


def tense(sentence):
    """("PAST" or "PRES", lemma) of the main clause's finite full verb, or of another clause's."""
    finite = {
        i: _feature(sentence, i, "Tense")
        for i, kind in enumerate(sentence.kinds)
        if kind in ("VERB", "AUX") and "VerbForm=Fin" in sentence.features[i]
    }
    return _asked(sentence, "VERB", finite, lambda i: sentence.heads[i] == -1)


def number(sentence, relation):
    """("NN" or "NNS", lemma) of the main clause's subject ("nsubj") or object ("obj"), a common noun, or of another
    clause's. Pronouns without a number disagree with none."""
    values = {
        i: _feature(sentence, i, "Number")
        for i, name in enumerate(sentence.relations)
        if name == relation
    }
    values = {i: value for i, value in values.items() if value or sentence.kinds[i] == "NOUN"}
    return _asked(
        sentence,
        "NOUN",
        values,
        lambda i: sentence.heads[sentence.heads[i]] == -1 != sentence.heads[i],
    )


def shape(sentence):
    """The root among its clause-level dependents, in order: "nsubj root obj"."""
    root = sentence.heads.index(-1)
    return " ".join(
        "root" if i == root else name
        for i, name in enumerate(sentence.relations)
        if i == root or (sentence.heads[i] == root and name in _SHAPE)
    )


def inverted(sentence):
    """The words with the two coordinated main clauses swapped ("He left , but she stayed ." as "She stayed , but he
    left ."), and whether the first was longer (1), shorter (-1) or as long (0)."""
    words, heads, names = sentence.words, sentence.heads, sentence.relations
    root = heads.index(-1)
    clauses = [i for i, head in enumerate(heads) if head == root and names[i] == "conj"]
    marks = [i for i, head in enumerate(heads) if head in clauses and names[i] == "cc"]
    subjects = {head for head, name in zip(heads, names, strict=True) if name in _SUBJECTS}
    if (
        len(clauses) != 1
        or len(marks) != 1
        or not {root, *clauses} <= subjects
        or _QUOTES & set(words)
    ):
        return None
    mark, under, level = marks[0], set(clauses), depths(sentence)
    for i in sorted(range(len(words)), key=level.__getitem__):
        if heads[i] in under:
            under.add(i)
    spoken = [i for i, kind in enumerate(sentence.kinds) if kind != "PUNCT"]
    before, after = [i for i in spoken if i < mark], [i for i in spoken if i > mark]
    if not before or not after or under & set(before) or set(after) - under:
        return None
    comma, end = before[-1] + 1, after[-1] + 1
    first, last = list(words[:comma]), list(words[mark + 1 : end])
    longer = (len(first) > len(last)) - (len(first) < len(last))
    if first[0][0].isupper():  # the capital stays in front
        last[0] = last[0][0].upper() + last[0][1:]
        if sentence.kinds[0] != "PROPN" and first[0] != "I" and not first[0][1:2].isupper():
            first[0] = first[0].lower()
    return [*last, *words[comma : mark + 1], *first, *words[end:]], longer


# ---- The tasks ----


@cache
class _World:
    """The pooled sentences, and what the tasks know of them all."""

    def __init__(self, root):
        self.sentences, self.read, seen = [], Counter(), set()
        for split in ("train", "dev", "test"):
            paths = sorted(root.glob(f"*-ud-{split}.conllu"))
            if len(paths) != 1:
                raise FileNotFoundError(
                    f"{root} holds {len(paths)} files *-ud-{split}.conllu, expected one; fix: put "
                    "the files of one treebank there, as universaldependencies.org releases them"
                )
            for s in read(paths[0]):
                fate = (
                    "length"
                    if len(s.words) not in LENGTHS
                    else "repeated"
                    if s.words in seen
                    else "kept"
                )
                self.read.update(("read", fate))
                if fate == "kept":
                    seen.add(s.words)
                    self.sentences.append(s)
        common = Counter(
            word
            for s in self.sentences
            for word in dict.fromkeys(map(str.lower, s.words))
            if len(word) > 3 and word.isalpha()
        ).most_common(RANK + WORDS)
        shapes = Counter(map(shape, self.sentences)).most_common(SHAPES)
        self.names = {
            "WordContent": sorted(word for word, _ in common[RANK:]),
            "TopConstituents": [name for name, _ in shapes],
        }
        self.times, self.peers = (
            Counter(form for s in self.sentences for form, _ in _forms(s)),
            defaultdict(list),
        )
        for form, lemma in ((form, s.lemmas[i]) for s in self.sentences for form, i in _forms(s)):
            if self.times[form] in _ODD:
                self.peers[self._like(form)].append((form[0], lemma))

    def _like(self, form):
        return *form[1:], self.times[form].bit_length()  # as frequent within a factor of two

    def row(self, task, s, rng):
        """A Row, or None where the sentence cannot be asked."""
        words, label = list(s.words), rng.choice("IO")
        if task == "Length":
            return Row(str(sum(len(words) > last for last in BINS)), s.document, words)
        if task == "WordContent":
            found = [word for word in map(str.lower, words) if word in self.names[task]]
            return (
                Row(str(self.names[task].index(found[0])), " ".join(words), words)
                if len(found) == 1
                else None
            )
        if task == "Depth":
            return Row(
                TASKS[task].labels[min(max(*depths(s), 3), 6) - 3], s.document, words, len(words)
            )
        if task == "TopConstituents":
            return Row(str([*self.names[task], shape(s)].index(shape(s))), s.document, words)
        if task == "BigramShift":
            free = [kind not in ("PUNCT", "SYM") for kind in s.kinds]
            places = [
                i
                for i in range(1, len(words) - 1)
                if free[i] and free[i + 1] and words[i].lower() != words[i + 1].lower()
            ]
            if not places or _QUOTES & set(words):
                return None
            i = rng.choice(places)
            words[i : i + 2] = words[i : i + 2][:: -1 if label == "I" else 1]
            return Row(label, s.document, words)
        if task == "OddManOut":
            return self._odd(s, rng)
        if (
            task == "CoordinationInversion"
        ):  # at each relation of the lengths, so that these tell nothing
            found, longer = inverted(s) or (None, 0)
            return found and (
                Row(label, s.document, found, -longer)
                if label == "I"
                else Row(label, s.document, words, longer)
            )
        found = (
            tense(s) if task == "Tense" else number(s, "nsubj" if task == "SubjNumber" else "obj")
        )
        return found and Row(*found, words)

    def _odd(self, s, rng):
        forms, words = [each for each in _forms(s) if self.times[each[0]] in _ODD], list(s.words)
        form, i = rng.choice(forms) if forms else (None, 0)
        # drawn among occurrences, so that a word replaces about as often as it stands on its own
        drawn = rng.choices(self.peers[self._like(form)], k=9) if forms else []
        others = [each for each in drawn if each[1] != s.lemmas[i]]
        if not others:
            return None
        label, lemma = rng.choice("CO"), s.lemmas[i]
        if label == "C":
            words[i], lemma = others[0]
        return Row(label, lemma, words)


def _forms(s):  # ((word, part of speech, features), place) of the nouns and verbs in lower case
    return [
        ((word, s.kinds[i], s.features[i]), i)
        for i, word in enumerate(s.words)
        if s.kinds[i] in ("NOUN", "VERB") and word.isalpha() and word.islower()
    ]


def load(task, root):
    """{"train", "dev", "test": Split}; a row's index is its sentence's number among all. Raises FileNotFoundError
    without the three files, ValueError with file and line where one is malformed, or where they are too small."""
    return dict(_built(task, Path(root))[0])


UNSEEN = tuple(TASKS)  # the rows of its test part, which share no sentence with the others


def unseen(task, root):
    """The labelled test rows of a task: nobody trains or selects on them."""
    return load(task, root)["test"]


def labels(task, root):
    """What the codes stand for: the treebank's words or sequences of relations where the classes are numbers."""
    known("treebank task", task, TASKS)
    if task not in ("WordContent", "TopConstituents"):
        return TASKS[task].labels
    return (*_World(Path(root)).names[task], *["other"][task == "WordContent" :])


def counts(root):
    """{task: {"read", of another "length", "repeated", "skipped" for want of the annotation, "unbalanced", "rows"}}
    in sentences."""
    return {task: dict(_built(task, Path(root))[1]) for task in TASKS}


def about(task, root=None):
    """What a task stands in for, and its rows where the treebank is at hand."""
    known("treebank task", task, TASKS)
    sizes = (
        ""
        if root is None
        else " " + "/".join(f"{len(split):,}" for split in load(task, root).values())
    )
    return (
        f"Stand-in for SentEval's {ABOUT[task]}. Here{sizes} sentences of a treebank with an annotator's trees; "
        "SentEval has 100,000/10,000/10,000 of fiction with a parser's."
    )


@cache
def _built(task, root):
    known("treebank task", task, TASKS)
    world, classes, rows = _World(root), TASKS[task].labels, []
    for index, s in enumerate(world.sentences):
        rng = random.Random(f"{task}:{' '.join(s.words)}")
        rows.append((rng.random(), index, world.row(task, s, rng)))
    rows = [each for each in rows if each[2]]
    parts, cells, splits = (
        _parts([row for _, _, row in rows], task == "WordContent"),
        defaultdict(list),
        {},
    )
    for _, index, row in sorted(rows, key=lambda each: each[:2]):
        cells[parts[row.key], row.stratum, row.label].append((index, row))
    for part in ("train", "dev", "test"):
        chosen = []
        for stratum in {stratum for _, stratum, _ in cells}:
            found = [cells.get((part, stratum, label), []) for label in classes]
            few = min(map(len, found))
            chosen += [
                (index, code, row) for code, cell in enumerate(found) for index, row in cell[:few]
            ]
        if not chosen:
            raise ValueError(
                f"{root}: no {part} rows of every class of {task} among {len(rows)} sentences with its "
                "annotation; fix: use a larger treebank"
            )
        indices, codes, chosen = zip(*sorted(chosen, key=lambda each: each[0]), strict=True)
        splits[part] = Split(
            [" ".join(row.words) for row in chosen], None, np.array(codes), np.array(indices)
        )
    used = sum(map(len, splits.values()))
    return splits, {name: world.read[name] for name in ("read", "length", "repeated")} | {
        "skipped": world.read["kept"] - len(rows),
        "unbalanced": len(rows) - used,
        "rows": used,
    }


def _parts(rows, by_label):
    """{key: split}. A frequent key goes to train, lest it be much of a small split."""
    found = {}
    for label in sorted({row.label for row in rows}) if by_label else [None]:
        sizes, filled = Counter(row.key for row in rows if label in (None, row.label)), 0
        for key in sorted(sizes, key=lambda key: random.Random(key).random()):
            share = filled / sizes.total()
            large = 1 < sizes[key] > 0.03 * sizes.total()
            found[key] = "train" if large or share >= 0.3 else "dev" if share >= 0.15 else "test"
            filled += 0 if large else sizes[key]
    return found
