"""What we found (`data/found.md`): a sentence is a figure, a fact, or follows from the records."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from lib import data
from lib.page import claims
from lib.runs import paths
from lib.runs.store import Store

TEXT = (paths.DATA / "found.md").read_text()
EQUAL = ("G1", "N1", "N9", "F1", "F2")  # comparisons at equal FLOPs
PROVEN = ("CONFIRMED", "CONTRADICTED")
IDS = dict.fromkeys([*re.findall(r"{([A-Z]\d+)", TEXT), *EQUAL])
SIDES = re.compile(
    r"\b(above|below|better|best|worse|higher|lower|beats?|helps?|loses?|lost|far)\b"
)


def under_half(*ids):
    """Whether STS-B cannot be tested, since a student is under half of its teacher's score."""

    def holds(found):
        on = [r for id in ids for r in found[id].results if r.task == "STS-B"]
        return len(on) == len(ids) and all("less than half of its teacher's" in r.why for r in on)

    return holds


def proven_alone(*cells):
    """Whether these cells alone are proven at equal FLOPs; cells: (claim, its text, its word)."""

    def holds(found):
        every = [(each, r) for each in EQUAL for r in found[each].results]
        return {(id, r.cell.text, r.word) for id, r in every if r.word in PROVEN} == set(cells)

    return holds


def not_after_holm(id):
    """Whether each cell of a claim is proven, and the claim is not."""

    def holds(found):
        proven = all(r.word == "CONFIRMED" for r in found[id].results)
        return proven and found[id].verdict == "INCONCLUSIVE"

    return holds


CONCLUSIONS = {
    "On STS-B neither can be tested: students stay under half of their teacher's score.": (
        under_half("E1", "E2")
    ),
    "At equal FLOPs two differences between methods have intervals on one side so far: at 9/12 and "
    "3/12 of the width a pruned model scores higher without ghosts than with them, and at 10 % and "
    "30 % of the FLOPs a searched network scores higher than a random one.": (
        proven_alone(
            ("G1", "Ghost > Prune @ m=9", "CONTRADICTED"),
            ("G1", "Ghost > Prune @ m=3", "CONTRADICTED"),
            ("N1", "10 % NAS > 10 % Random @ task=each", "CONFIRMED"),
            ("N1", "30 % NAS > 30 % Random @ task=each", "CONFIRMED"),
        )
    ),
    "After Holm's correction among the central claims of its paper the second is not proven.": (
        not_after_holm("N1")
    ),
}
FACTS = {  # on the papers, and on what the methods are
    "GhostBERT's Table 1 compares a distilled BERT with ghosts and a plainly fine-tuned one.",
    "Ghosts less width pruning, at equal cost.",
    "The paper trains on augmented rows, and these runs do not.",
    "A network found by a search of gates less one drawn at random, both retrained alike with a "
    "teacher.",
    "The plainest one is to cut a model to a width by importance and to distil it from the model "
    "as it was.",
    "Masks over single weights leave matrices their size, so they save bytes and no time.",
}
SENTENCES = [
    sentence
    for part in TEXT.strip().split("\n\n")
    for sentence in re.split(r"(?<=[.?]) (?=[A-Z])", part.partition("** ")[2])
]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("none") / "runs", paths.ROOT / "data" / "records")
    with data.planning(look=False):
        return claims.judged(IDS, store)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_has_a_figure_without_a_side_or_is_held_to_the_records(sentence):
    figure = "{" in sentence and not SIDES.search(sentence)
    assert figure or sentence in FACTS or sentence in CONCLUSIONS
    assert sentence not in FACTS or not SIDES.search(sentence)


@pytest.mark.parametrize("sentence", CONCLUSIONS)
def test_a_conclusion_follows_from_the_records(sentence, found):
    assert sentence in SENTENCES and CONCLUSIONS[sentence](found)


@pytest.mark.parametrize("sentence", CONCLUSIONS)
def test_a_conclusion_falls_where_its_verdicts_turn(sentence, found):
    """Every cell could be tested, and one was proven."""
    turned = {
        id: SimpleNamespace(
            verdict="CONFIRMED", results=[replace(r, why="", estimate=None) for r in each.results]
        )
        for id, each in found.items()
    }
    more = {"word": "CONFIRMED", "task": "SST-2", "why": "", "cell": SimpleNamespace(text="A > B")}
    turned["F1"].results.append(SimpleNamespace(**more))
    assert not CONCLUSIONS[sentence](turned)


def test_a_printed_value_stands_only_where_the_paper_has_one(found):
    told = claims.told(found)
    assert "nothing" not in " ".join(told.values())
