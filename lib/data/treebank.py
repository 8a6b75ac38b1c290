"""This module derives SentEval's ten probing tasks from a treebank,
`<root>/*-ud-{train,dev,test}.conllu`.

The treebank (Universal Dependencies) is real English with manual annotation. It takes
the place of SentEval's 120,000 sentences of fiction with a parser's trees. Apart from
the size, the tasks differ from SentEval's in these points:

    Length                 The longest sentences have 40 words.
    WordContent            There are 50 words to tell apart instead of 1,000.
    Depth                  The depth is that of the dependency tree (3 or less, 4, 5, 6
                           or more). The classes are equally frequent at each length of
                           a sentence.
    TopConstituents        The classes are sequences of the root and its clause-level
                           dependents: 9 sequences, and all others.
    Tense                  Where the main clause has no finite full verb, another clause
                           is asked about, if all finite verbs agree in tense.
    SubjNumber, ObjNumber  Where the main clause has no such noun, another clause is
                           asked about, if all subjects or all objects agree in number.
    OddManOut              The odd word is as frequent as the one that it replaces; in
                           SentEval the bigrams around the two are equally frequent.
    CoordinationInversion  The clauses may contain other conjunctions.

The three files are pooled, repeated sentences are dropped, and each task is split anew,
70/15/15. Tense, SubjNumber, ObjNumber and OddManOut are split by the lemma of the word
that is asked about, as in SentEval: no lemma is in two splits. WordContent is split by
sentence within each word, all other tasks by document. Within each split the classes
are equally frequent. A task asks about a sentence at most once; its words are joined by
blanks. The random numbers for a sentence depend on the task and its text alone."""

from __future__ import annotations

import random
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from lib.core.names import Absent, Refused
from lib.core.types import ClassName, SplitName, TaskName
from lib.data import Split
from lib.data.lines import make_file_content_error, read_lines
from lib.data.read import SENTEVAL

if TYPE_CHECKING:
    import pandas as pd

PartOfSpeech: TypeAlias = str  # Universal Dependencies' name, such as "NOUN".
MorphologicalFeatures: TypeAlias = str  # Such as "Number=Sing|...", or "_".
Relation: TypeAlias = str  # Dependency relation, such as "nsubj".
Lemma: TypeAlias = str
Position: TypeAlias = int  # Of a word in its sentence, from 0.
WordPartOfSpeechFeatures: TypeAlias = tuple[str, PartOfSpeech, MorphologicalFeatures]
# Two words with the same number are taken as equally frequent.
BitLengthOfFrequency: TypeAlias = int
# 1 if the first clause is the longer one, -1 if the second is, 0 for equal lengths.
SignOfFirstMinusSecondLength: TypeAlias = int
TenConlluFields: TypeAlias = list[str]
GroupKey: TypeAlias = str  # Such as a lemma or a document.

# Numbers of words that a sentence may have. SentEval has at most 28, which would lose a
# tenth of the sentences of a small treebank.
LENGTHS = range(5, 41)
# Largest number of words in each of the first five classes of the task Length, as in
# SentEval; the sixth class has longer sentences.
BINS = (8, 12, 16, 20, 25)
# The classes of the task WordContent are WORDS words, those that follow the RANK most
# frequent ones. SentEval takes 1,000 words after rank 2,000.
WORDS, RANK = 50, 100
# The SHAPES most frequent sequences of constituents are classes of the task
# TopConstituents; all other sequences are one more class.
SHAPES = 9
# The task OddManOut replaces and inserts only words that occur in the treebank as often
# as this range says.
_ODD = range(5, 101)
_SUBJECTS = {"nsubj", "csubj", "expl"}
_SHAPE = _SUBJECTS | {"obj", "iobj", "ccomp", "xcomp", "obl", "advcl", "conj", "cop"}
_QUOTES = {'"', "“", "”", "``", "''"}
_RELATION = {"SubjNumber": "nsubj", "ObjNumber": "obj"}
_NAMES = {"Past": "PAST", "Pres": "PRES", "Sing": "NN", "Plur": "NNS"}

# Class names of the tasks whose classes differ from those of SentEval.
_CLASSES = {
    "WordContent": tuple(map(str, range(WORDS))),
    "Depth": ("<=3", "4", "5", ">=6"),
    "TopConstituents": tuple(map(str, range(SHAPES + 1))),
}
TASKS = {
    name: replace(t, labels=_CLASSES.get(name, t.labels))
    for name, t in SENTEVAL.items()
}


class ParsedSentence(NamedTuple):
    """A ParsedSentence is a sentence of a dependency treebank with its annotation.

    Each tuple has one item for each word. Probing tasks take their labels from it.

    parts_of_speech: universal parts of speech, such as "NOUN".
    features: morphological features, such as "Number=Sing|...", or "_".
    heads: the position of the head of each word in the dependency tree, -1 for the
    root.
    relations: names of dependency relations without subtypes, such as "nsubj".
    document: the name of the document that has the sentence."""

    words: tuple[str, ...]
    lemmas: tuple[Lemma, ...]
    parts_of_speech: tuple[PartOfSpeech, ...]
    features: tuple[MorphologicalFeatures, ...]
    heads: tuple[Position, ...]
    relations: tuple[Relation, ...]
    document: str


class ProbingExample(NamedTuple):
    """A ProbingExample is an example of a probing task: a sentence with its label.

    label: the class name.
    group_key: all rows of one key, such as a lemma or a document, go to the same split,
    so that a model cannot score by remembering it.
    words: the words of the sentence, which the task may have changed.
    stratum: the number of a group of rows, such as those of one length. Within each
    group the classes are made equally frequent, so the group does not tell the
    label."""

    label: ClassName
    group_key: GroupKey
    words: list[str]
    stratum: int = 0


def read_sentences(path: Path | str) -> list[ParsedSentence]:
    """Return the annotated Sentences of a CoNLL-U file, the format of treebanks.

    Lines of multiword tokens ("1-2") and of empty nodes ("1.1") are skipped; the words
    of a multiword token have lines of their own. Raises Refused, with the file and a
    line number, where the lines of a sentence are no tree."""
    path, sentences, rows, document = Path(path), [], [], None
    for number, line in enumerate([*read_lines(path), ""], 1):
        if line.startswith("#"):
            document = f"{line} {number}" if line.startswith("# newdoc") else document
        elif line.strip():
            cells = line.split("\t")
            rows += [] if re.fullmatch(r"\d+[-.]\d+", cells[0]) else [cells]
        elif rows:
            try:
                sentences.append(
                    _parse_conllu_sentence(
                        rows, f"{path.name}: {document or len(sentences)}"
                    )
                )
            except (ValueError, IndexError):
                tree = "10 cells a line between tabs, and heads that lead to one root"
                place, fault = f"{path}:{number}", "no tree before this line"
                raise make_file_content_error(place, fault, tree) from None
            rows = []
    return sentences


def _parse_conllu_sentence(
    rows: list[TenConlluFields], document_name: str
) -> ParsedSentence:
    """Return the annotated ParsedSentence that the lines of a CoNLL-U file describe.

    Words without a lemma get the word as their lemma, and subtypes of relations are
    dropped. Raises ValueError or IndexError where the heads are no tree with one root.

    rows: the ten fields of each word's line.
    document_name: the name of the sentence's document."""
    columns = list(zip(*rows, strict=True))
    ids, words, lemmas, kinds, _, features, heads, relations, _, _ = columns
    heads = tuple(int(head) - 1 for head in heads)
    pairs = zip(words, lemmas, strict=True)
    lemmas = tuple((w if lemma == "_" else lemma).lower() for w, lemma in pairs)
    relations = tuple(name.split(":")[0] for name in relations)
    s = ParsedSentence(words, lemmas, kinds, features, heads, relations, document_name)
    is_counted = [int(i) for i in ids] == [*range(1, len(ids) + 1)]
    if (
        not is_counted
        or heads.count(-1) != 1
        or max(compute_word_depths(s)) >= len(rows)
    ):
        raise ValueError
    return s


def list_word_and_ancestor_positions(
    sentence: ParsedSentence, word_position: Position
) -> list[Position]:
    """Return the positions of a word and of its ancestors in the dependency tree.

    They go from the word up to the root. Where heads form a cycle, the list is cut when
    it is longer than the sentence; so a malformed tree is noticed by its length."""
    positions = [word_position]
    while (word_position := sentence.heads[word_position]) != -1 and len(
        positions
    ) <= len(sentence.heads):
        positions.append(word_position)
    return positions


def compute_word_depths(sentence: ParsedSentence) -> list[int]:
    """Return the depth of each word in the dependency tree, 0 for the root."""
    return [
        len(list_word_and_ancestor_positions(sentence, i)) - 1
        for i in range(len(sentence.heads))
    ]


def _read_feature(
    sentence: ParsedSentence, position: Position, feature_name: str
) -> str:
    match = re.search(rf"(?:^|\|){feature_name}=([^|]+)", sentence.features[position])
    return match[1] if match else ""


def _find_target_word(
    sentence: ParsedSentence,
    part_of_speech: PartOfSpeech,
    tense_or_number_by_position: Mapping[Position, str],
    main_clause_depth: int,
) -> tuple[ClassName, Lemma] | None:
    """Find the word whose tense or number a probing task asks about: (label, lemma).

    The label is "PAST" or "PRES" for a verb, "NN" or "NNS" for a noun. Candidates are
    the words in `tense_or_number_by_position`. The word is the first candidate at
    `main_clause_depth`. Where none has that depth, it is the one nearest to the root,
    provided that all candidates agree in tense or number, so that the answer is clear.
    Returns None otherwise.

    part_of_speech: "VERB" or "NOUN"; other candidates are never chosen.
    tense_or_number_by_position: {position of a candidate: its tense or number, such as
    "Past"}.
    main_clause_depth: the depth in the dependency tree of the main clause's verb, the
    root (0), or of its subject and object (1)."""
    level = compute_word_depths(sentence)
    words = [
        i
        for i, v in tense_or_number_by_position.items()
        if sentence.parts_of_speech[i] == part_of_speech and v in _NAMES
    ]
    candidates = [i for i in words if level[i] == main_clause_depth]
    if not candidates and len(set(tense_or_number_by_position.values())) == 1:
        candidates = sorted(words, key=level.__getitem__)
    if not candidates:
        return None
    i = candidates[0]
    return _NAMES[tense_or_number_by_position[i]], sentence.lemmas[i]


def find_tense_and_verb_lemma(
    sentence: ParsedSentence,
) -> tuple[ClassName, Lemma] | None:
    """Return (label, lemma) of the verb whose tense the probing task Tense asks about.

    The label is "PAST" or "PRES". The verb is the finite full verb of the main clause,
    or of another clause if all finite verbs agree in tense. Returns None where there is
    no such verb; the sentence is then not used."""
    tenses = {
        i: _read_feature(sentence, i, "Tense")
        for i, kind in enumerate(sentence.parts_of_speech)
        if kind in ("VERB", "AUX") and "VerbForm=Fin" in sentence.features[i]
    }
    return _find_target_word(sentence, "VERB", tenses, 0)


def find_grammatical_number_and_noun_lemma(
    sentence: ParsedSentence, dependency_relation: Relation
) -> tuple[ClassName, Lemma] | None:
    """Return (label, lemma) of the noun that SubjNumber or ObjNumber asks about.

    These two probing tasks ask for the number of a subject or an object: "NN" is
    singular, "NNS" plural. The noun is a common noun that is subject or object of the
    main clause, or of another clause if all subjects or objects agree in number.
    Pronouns without a number are ignored. Returns None where there is no such noun; the
    sentence is then not used.

    dependency_relation: "nsubj" for subjects or "obj" for objects."""
    values = {}
    for i, name in enumerate(sentence.relations):
        value = _read_feature(sentence, i, "Number")
        if name == dependency_relation and (
            value or sentence.parts_of_speech[i] == "NOUN"
        ):
            values[i] = value
    return _find_target_word(sentence, "NOUN", values, 1)


def format_top_constituents(sentence: ParsedSentence) -> str:
    """Return the names of the main parts of a sentence, in order, joined by blanks.

    An example is "nsubj root obj": the root of the dependency tree and its clause-level
    dependents. The most frequent sequences of a treebank are the classes of the probing
    task TopConstituents."""
    root = sentence.heads.index(-1)
    names = [
        "root" if i == root else name
        for i, name in enumerate(sentence.relations)
        if i == root or (sentence.heads[i] == root and name in _SHAPE)
    ]
    return " ".join(names)


def swap_clauses_and_compare_lengths(
    sentence: ParsedSentence,
) -> tuple[list[str], SignOfFirstMinusSecondLength] | None:
    """Swap the two coordinated main clauses of a sentence.

    "He left , but she stayed ." becomes "She stayed , but he left .". The probing task
    CoordinationInversion asks whether a sentence was changed so. Returns (words of the
    new sentence, comparison); the comparison is 1 if the clause that was first is the
    longer one, -1 if it is the shorter one, and 0 for equal lengths. Returns None where
    the sentence does not have exactly two such clauses, or has quotation marks."""
    words, root = sentence.words, sentence.heads.index(-1)
    links = list(zip(sentence.heads, sentence.relations, strict=True))
    clauses = [i for i, link in enumerate(links) if link == (root, "conj")]
    marks = [
        i for i, (head, name) in enumerate(links) if head in clauses and name == "cc"
    ]
    subjects = {head for head, name in links if name in _SUBJECTS}
    is_coordinated = len(clauses) == len(marks) == 1 and {root, *clauses} <= subjects
    if not is_coordinated or _QUOTES.intersection(words):
        return None
    [clause], [mark] = clauses, marks
    spoken = [
        i
        for i, kind in enumerate(sentence.parts_of_speech)
        if kind != "PUNCT" and i != mark
    ]
    before, after = [i for i in spoken if i < mark], [i for i in spoken if i > mark]
    is_split = all(
        (i > mark) == (clause in list_word_and_ancestor_positions(sentence, i))
        for i in spoken
    )
    if not (before and after and is_split):
        return None
    comma, end = before[-1] + 1, after[-1] + 1
    first, last = list(words[:comma]), list(words[mark + 1 : end])
    longer = int(np.sign(len(first) - len(last)))
    if first[0][0].isupper():  # Give the capital letter to the new first word.
        last[0] = last[0][0].upper() + last[0][1:]
        if (
            sentence.parts_of_speech[0] != "PROPN"
            and first[0] != "I"
            and not first[0][1:2].isupper()
        ):
            first[0] = first[0].lower()
    return [*last, *words[comma : mark + 1], *first, *words[end:]], longer


@cache
class _Treebank:
    """A _Treebank has the sentences of a treebank, the source of probing tasks.

    It has all different sentences of 5 to 40 words, and what is counted in them: the
    frequent words and constituent sequences that are the classes of SentEval's tasks
    WordContent and TopConstituents, and word frequencies for its task OddManOut. Raises
    Absent where not exactly one file of each split is there.

    folder: the folder with the CoNLL-U files of training, development and test."""

    def __init__(self, folder: Path) -> None:
        pooled = {}
        for split in ("train", "dev", "test"):
            paths = list(folder.glob(f"*-ud-{split}.conllu"))
            if len(paths) != 1:
                reason = f"{folder} holds {len(paths)} files *-ud-{split}.conllu, expected one"
                raise Absent(f"{reason}; fix: put the files of one treebank there")
            for s in read_sentences(paths[0]):
                if len(s.words) in LENGTHS:
                    pooled.setdefault(s.words, s)
        self.sentences = list(pooled.values())
        words = Counter()
        for s in self.sentences:
            said = dict.fromkeys(map(str.lower, s.words))
            words.update(word for word in said if len(word) > 3 and word.isalpha())
        shapes = Counter(map(format_top_constituents, self.sentences))
        self.names = {
            "WordContent": sorted([*dict(words.most_common(RANK + WORDS))][RANK:]),
            "TopConstituents": [*dict(shapes.most_common(SHAPES))],
        }
        forms = [
            (form, s.lemmas[i])
            for s in self.sentences
            for form, i in _iterate_nouns_and_verbs(s)
        ]
        self.times, self.peers = Counter(form for form, _ in forms), defaultdict(list)
        for form, lemma in forms:
            if self.times[form] in _ODD:
                self.peers[self._make_key_of_interchangeable_words(form)].append(
                    (form[0], lemma)
                )

    def _make_key_of_interchangeable_words(
        self, word_form: WordPartOfSpeechFeatures
    ) -> tuple[PartOfSpeech, MorphologicalFeatures, BitLengthOfFrequency]:
        # The class is (part of speech, features, number of bits of the word's count).
        # Two words are taken as equally frequent if their counts have the same number
        # of bits; such counts differ by less than a factor of two.
        _, kind, features = word_form
        return kind, features, self.times[word_form].bit_length()

    def make_example(
        self, task_name: TaskName, sentence: ParsedSentence, rng: Random
    ) -> ProbingExample | None:
        """Return the example that a probing task makes of a sentence.

        Returns None where the sentence does not suit the task, such as one without a
        tense.

        task_name: one of SentEval's ten probing tasks, such as "Tense".
        rng: draws which change is made to the sentence, if any."""
        words, change = list(sentence.words), rng.choice("IO")
        key, stratum = sentence.document, 0
        if task_name == "Length":
            label = str(bisect_left(BINS, len(words)))
        elif task_name == "WordContent":
            names = self.names[task_name]
            asked = [word for word in map(str.lower, words) if word in names]
            if len(asked) != 1:
                return None
            label, key = str(names.index(asked[0])), " ".join(words)
        elif task_name == "Depth":
            bin = min(max(*compute_word_depths(sentence), 3), 6) - 3
            label, stratum = TASKS[task_name].labels[bin], len(words)
        elif task_name == "TopConstituents":
            shape = format_top_constituents(sentence)
            label = str([*self.names[task_name], shape].index(shape))
        elif task_name == "BigramShift":
            swapped = _swap_neighbouring_words(sentence, rng)
            if not swapped:
                return None
            label, words = change, swapped if change == "I" else words
        elif task_name == "CoordinationInversion":
            inverted = swap_clauses_and_compare_lengths(sentence)
            if not inverted:
                return None
            # The stratum is whether the first clause is the longer one. Rows are drawn
            # so that both classes are equally frequent in each stratum; then the
            # lengths do not reveal the label.
            label, (swapped, stratum) = change, inverted
            if change == "I":
                words, stratum = swapped, -stratum
        elif task_name == "OddManOut":
            return self._make_odd_man_out_example(sentence, rng)
        else:
            target = (
                find_tense_and_verb_lemma(sentence)
                if task_name == "Tense"
                else find_grammatical_number_and_noun_lemma(
                    sentence, _RELATION[task_name]
                )
            )
            if not target:
                return None
            label, key = target
        return ProbingExample(label, key, words, stratum)

    def _make_odd_man_out_example(
        self, sentence: ParsedSentence, rng: Random
    ) -> ProbingExample | None:
        words = list(sentence.words)
        forms = [
            pair
            for pair in _iterate_nouns_and_verbs(sentence)
            if self.times[pair[0]] in _ODD
        ]
        if not forms:
            return None
        form, i = rng.choice(forms)
        # self.peers lists a word once for each of its occurrences, so that frequent
        # words are drawn more often.
        drawn = rng.choices(
            self.peers[self._make_key_of_interchangeable_words(form)], k=9
        )
        others = [pair for pair in drawn if pair[1] != sentence.lemmas[i]]
        if not others:
            return None
        label, lemma = rng.choice("CO"), sentence.lemmas[i]
        if label == "C":
            words[i], lemma = others[0]
        return ProbingExample(label, lemma, words)


def _swap_neighbouring_words(sentence: ParsedSentence, rng: Random) -> list[str] | None:
    """Swap two neighbouring words, drawn at random, for the probing task BigramShift.

    Punctuation, the first word and two equal words are not swapped. Returns None where
    no words are left, or the sentence has quotation marks."""
    words = list(sentence.words)
    free = [kind not in ("PUNCT", "SYM") for kind in sentence.parts_of_speech]
    same = [a.lower() == b.lower() for a, b in pairwise(words)]
    places = [
        i for i in range(1, len(words) - 1) if free[i] and free[i + 1] and not same[i]
    ]
    if not places or _QUOTES.intersection(words):
        return None
    i = rng.choice(places)
    words[i : i + 2] = words[i + 1], words[i]
    return words


def _iterate_nouns_and_verbs(
    sentence: ParsedSentence,
) -> Iterator[tuple[WordPartOfSpeechFeatures, Position]]:
    """Yield the nouns and verbs of a sentence, with their positions.

    An item is ((word, part of speech, morphological features), position). Words that
    are not in lower case, such as names, or not of letters alone, are left out. The
    probing task OddManOut replaces one of these words by another with the same part of
    speech and features."""
    for i, (word, kind) in enumerate(
        zip(sentence.words, sentence.parts_of_speech, strict=True)
    ):
        if kind in ("NOUN", "VERB") and word.isalpha() and word.islower():
            yield (word, kind, sentence.features[i]), i


# Tasks whose test split serves as unseen rows (test rows on which no model is trained
# or selected). All ten tasks are listed, as test rows of each share no sentence with
# its other splits.
UNSEEN = tuple(TASKS)


def load_official_test_rows(task_name: str, folder: Path | str) -> Split:
    """Return the test rows of a probing task, as a Split.

    They serve to score models, not to train or select them. They share no sentence with
    the other splits. Raises Absent where the treebank is missing.

    task_name: one of SentEval's ten probing tasks, such as "Tense".
    folder: the folder of the treebank."""
    return load(task_name, folder)["test"]


@cache
def load(task_name: str, folder: Path | str) -> dict[SplitName, Split]:
    """Derive a probing task of SentEval from a treebank, and return its splits.

    The result is {"train", "dev", "test": Split}. The annotated sentences of the
    treebank are used instead of SentEval's own. The sentences of all files are pooled
    and split anew, 70/15/15. The index of a row is the number of its sentence in the
    pool. The result is cached.

    Raises Absent where one of the three files is missing. Raises Refused with file and
    line where one is malformed, and where they have too few sentences.

    task_name: one of SentEval's ten probing tasks, such as "Tense".
    folder: the folder with the CoNLL-U files of training, development and test."""
    treebank, records = _Treebank(Path(folder)), []
    import pandas as pd  # Imported late, as it is slow and commands rarely need it.

    for index, s in enumerate(treebank.sentences):
        rng = random.Random(f"{task_name}:{' '.join(s.words)}")
        order = rng.random()
        if row := treebank.make_example(task_name, s, rng):
            records.append((order, index, *row))
    columns = ("order", "index", *ProbingExample._fields)
    rows = pd.DataFrame(records, columns=columns).sort_values(["order", "index"])
    rows["part"] = rows["group_key"].map(
        _assign_group_keys_to_splits(rows, task_name == "WordContent")
    )
    codes = {label: code for code, label in enumerate(TASKS[task_name].labels)}
    place = rows.groupby(["part", "stratum", "label"]).cumcount()
    few = rows.groupby(["part", "stratum"])["label"].transform(
        lambda labels: labels.value_counts().reindex(codes, fill_value=0).min()
    )
    rows, splits = rows[place < few].sort_values("index"), {}
    for part in ("train", "dev", "test"):
        chosen = rows[rows["part"] == part]
        if chosen.empty:
            few = f"no {part} rows of every class of {task_name} in {len(records)} sentences"
            raise Refused(f"{folder}: {few}; fix: use a larger treebank")
        texts = [" ".join(words) for words in chosen["words"]]
        y, index = chosen["label"].map(codes), chosen["index"]
        # pyrefly: ignore[bad-argument-type]  The stubs of pandas are of another numpy
        # version.
        splits[part] = Split(texts, None, y.to_numpy(np.int64), index.to_numpy())
    return splits


def _assign_group_keys_to_splits(
    rows: pd.DataFrame, stratify_by_label: bool
) -> dict[GroupKey, SplitName]:
    """Assign the keys of rows to splits, and return {key: "train", "dev" or "test"}.

    All rows of a key, such as a lemma, go to the same split, so that a model cannot
    score by remembering the key. About 70 % of the rows go to training, 15 % to each
    other split. A key with more than 3 % of the rows, such as a frequent lemma, goes to
    the training set, as it would be too large a part of a small split.

    rows: the rows of a probing task, with the columns "group_key" and "label".
    stratify_by_label: whether the rows of each label are divided separately."""
    split_by_key = {}
    for _, part in rows.groupby("label") if stratify_by_label else [("", rows)]:
        sizes, filled = part["group_key"].value_counts().to_dict(), 0
        for key in sorted(sizes, key=lambda key: random.Random(key).random()):
            share, split_by_key[key] = filled / len(part), "train"
            if 1 < sizes[key] > 0.03 * len(part):
                continue
            if share < 0.3:
                split_by_key[key] = "test" if share < 0.15 else "dev"
            filled += sizes[key]
    return split_by_key
