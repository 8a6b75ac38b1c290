"""Findings: each rule of `cells`, and each word that it can reach, on made-up runs."""

import pandas as pd
import pytest
from conftest import collected, made_up

from lib import findings
from lib.measure.stats import share_gap
from lib.spec import Spec
from lib.store import Store

LINE = {"id": "G1", "paper": "ghostbert", "unit": "", "value": "", "rule": "delta", "margin": "2"}


def rows(frame):
    """The grid that a made-up frame is collected from."""
    spec = Spec("fineprune", {"data": {"task": "SST-2"}})
    return [
        {name: value for name, value in row.items() if name in ("model", "task", "m", "target")}
        | {"spec": spec.at(number), "seed": row["seed"]}
        for number, row in enumerate(frame.to_dict("records"))
    ]


@pytest.fixture
def judged(monkeypatch):
    """f(cells, frame, ...): the Verdict of a claim with these cells on a made-up frame."""

    def judge(cells, frame, missing=0, **line):
        grid = rows(frame)
        lines = dict(zip((row["spec"] for row in grid), frame.to_dict("records"), strict=True))

        def collect(own, *_, **__):
            return pd.DataFrame([lines[r["spec"]] | {"spec": r["spec"]} for r in own])

        monkeypatch.setattr(findings.sweep, "collect", collect)
        return findings.measured(LINE | {"cells": cells} | line, grid, Store(), "mini")

    return judge


def test_comparisons_are_read():
    first, second = findings.comparisons("k = 3 > k = 1 @ m=3, task=SST-2; 1 ~ 0.1")
    place = (("m", "3"), ("task", "SST-2"))
    assert [(w, form.models) for w, form in first.terms] == [
        (1.0, (("k = 3", place),)),
        (-1.0, (("k = 1", place),)),
    ]
    assert (first.sign, first.name, second.sign) == (">", "k = 1, m 3, task SST-2", "~")
    (own,) = findings.comparisons("noise :: A [m=6] over B [m=1] ~ value 0.5")
    models = own.terms[0][1].models
    assert own.less == 0.5 and models == (("A", (("m", "6"),)), ("B", (("m", "1"),)))


@pytest.mark.parametrize(
    "text, said",
    [
        ("A beats B", "expected 'A > B'"),
        ("A > value 3", "weights sum to 0"),
        ("A 1 | B 2 > C", "weights sum to 0"),
        ("A | B 2 > value 0", "one has none"),
        ("nois :: A > B", "unknown measure: 'nois'"),
    ],
)
def test_a_cell_that_is_none_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        findings.comparisons(text)


def shares(*told, seeds=5):
    """Made-up runs of models a, b, c ... with these shares of right predictions; None: missing."""
    names = [name for name, share in zip("abcd", told, strict=False) if share is not None]
    found = made_up(
        {n: s for n, s in zip("abcd", told, strict=False) if s is not None}, seeds=seeds
    )
    more = [("SST-2", name, 0, None, {}) for name in "abcd"[: len(told)] if name not in names]
    return pd.concat([found, collected(*more)]) if more else found


def measured(column, *told):
    """The same of a metric: values by seed of each model."""
    names = "abcd"[: len(told)]
    found = made_up(dict.fromkeys(names, 0.9), seeds=len(told[0]))
    return found.assign(**{column: [value for values in told for value in values]})


SCORES = [  # cells, shares, word, what differs in the claim's line
    ("a > b", (0.9, 0.8), "CONFIRMED", {}),
    ("a > b", (0.8, 0.9), "CONTRADICTED", {}),
    ("a > b", (0.9, 0.9), "INCONCLUSIVE", {}),
    ("a > b; a > c", (0.9, 0.8, 0.9), "PARTIAL", {}),
    ("a > b", (None, 0.9), "NOT_RUN", {}),
    ("a ~ b", (0.9, 0.9), "CONFIRMED", {}),
    ("a ~ b", (0.9, 0.8), "CONTRADICTED", {}),
    ("a ~ b", (0.9, 0.8), "INCONCLUSIVE", {"margin": "10"}),
    ("a ~ b", (None, 0.9), "NOT_RUN", {}),
    ("a ~ b", (0.9, 0.8), "CONFIRMED", {"rule": "within: a minus b is not below the margin"}),
    ("a ~ b", (0.9, 0.8), "CONTRADICTED", {"rule": "within: a minus b is not above the margin"}),
    ("a over b > c over d", (0.9, 0.7, 0.8, 0.7), "CONFIRMED", {}),
    ("a over b > c over d", (0.8, 0.7, 0.9, 0.7), "CONTRADICTED", {}),
    ("a over b > c over d", (0.8, 0.7, 0.8, 0.7), "INCONCLUSIVE", {}),
    ("a over b > c over d", (0.8, 0.7, None, 0.7), "NOT_RUN", {}),
    ("a [m=1] | b [m=2] | c [m=4] > value 0", (0.7, 0.8, 0.9), "CONFIRMED", {}),
    ("a [m=1] | b [m=2] | c [m=4] > value 0", (0.9, 0.8, 0.7), "CONTRADICTED", {}),
    ("a [m=1] | b [m=2] | c [m=4] > value 0", (0.9, 0.9, 0.9), "INCONCLUSIVE", {}),
    ("a [m=1] | b [m=2] | c [m=4] > value 0", (0.9, 0.9, None), "NOT_RUN", {}),
    ("a > d; b > d; c > d", (0.9, 0.9, 0.8, 0.8), "CONFIRMED", {"margin": "2 of 3"}),
    ("a > d; b > d; c > d", (0.7, 0.7, 0.8, 0.8), "CONTRADICTED", {"margin": "2 of 3"}),
    ("a > d; b > d; c > d", (0.9, 0.8, 0.8, 0.8), "PARTIAL", {"margin": "2 of 3"}),
    ("a > d; b > d; c > d", (0.8, 0.8, 0.8, 0.8), "INCONCLUSIVE", {"margin": "2 of 3"}),
    ("a > d; b > d; c > d", (None, None, None, 0.8), "NOT_RUN", {"margin": "2 of 3"}),
]


@pytest.mark.parametrize("cells, told, word, line", SCORES)
def test_words_of_scores(judged, cells, told, word, line):
    frame = shares(*told)
    frame["m"] = frame["model"].map(dict(zip("abcd", (1, 2, 4, 8), strict=True)))
    found = judged(cells, frame, **line)
    assert (found.verdict, found.claim, found.scale) == (word, "G1", "at mini scale"), found
    assert found.planned == 5 and bool(found.cells) == (word != "NOT_RUN")


OVER, NEVER = "kept weights :: a > b", "diverged :: a = value 0"
YES, NO = [True] * 12, [False] * 12
MEASURED = [  # cells, column, values of each model by seed, word
    (OVER, "remaining", ([0.4, 0.41, 0.42], [0.1, 0.1, 0.1]), "CONFIRMED"),
    (OVER, "remaining", ([0.1, 0.1, 0.1], [0.4, 0.41, 0.42]), "CONTRADICTED"),
    (OVER, "remaining", ([0.1, 0.3, 0.5], [0.3, 0.3, 0.3]), "INCONCLUSIVE"),
    (OVER, "remaining", ([None] * 3, [0.1] * 3), "NOT_RUN"),
    (OVER, "something", ([0.4] * 3, [0.1] * 3), "NOT_RUN"),
    ("kept weights :: a ~ value 40", "remaining", ([0.4, 0.41, 0.4],), "CONFIRMED"),
    ("kept weights :: a ~ value 40", "remaining", ([0.5, 0.51, 0.5],), "CONTRADICTED"),
    ("kept weights :: a > value 30", "remaining", ([0.4, 0.41, 0.4],), "CONFIRMED"),
    ("diverged :: a > b", "diverged", (YES, NO), "CONFIRMED"),
    ("diverged :: a > b", "diverged", (NO, YES), "CONTRADICTED"),
    ("diverged :: a > b", "diverged", (NO, NO), "INCONCLUSIVE"),
    ("diverged :: a > value 50", "diverged", (YES,), "CONFIRMED"),
    ("diverged :: a > value 50", "diverged", (NO,), "CONTRADICTED"),
    ("diverged :: a > value 50", "diverged", (YES[:6] + NO[:6],), "INCONCLUSIVE"),
    (NEVER, "diverged", (NO,), "CONFIRMED"),
    (NEVER, "diverged", (NO[:-1] + [True],), "CONTRADICTED"),
    (NEVER, "diverged", (NO[:-1] + [None],), "INCONCLUSIVE"),
    (NEVER, "diverged", ([None] * 12,), "NOT_RUN"),
]


@pytest.mark.parametrize("cells, column, told, word", MEASURED)
def test_words_of_measures(judged, cells, column, told, word):
    found = judged(cells, measured(column, *told))
    assert found.verdict == word, found


@pytest.mark.parametrize(
    "steps, word", [((1, 40), "CONFIRMED"), ((40, 1), "CONTRADICTED"), ((9, 10), "INCONCLUSIVE")]
)
def test_words_of_variances(judged, steps, word):
    others = [
        ("SST-2", name, seed, [i >= 20 + step * (seed % 7) for i in range(600)], {})
        for name, step in zip("ab", steps, strict=True)
        for seed in range(12)
    ]
    rule = {"rule": "within: variance of a over that of b below 1", "margin": "1"}
    assert judged("variance :: a ~ b", collected(*others), **rule).verdict == word


def test_each_task_is_a_cell_and_tasks_are_set_against_each_other(judged):
    parts = [
        made_up({"a": high, "b": 0.8}, task=task) for task, high in (("CoLA", 0.9), ("RTE", 0.8))
    ]
    frame = pd.concat(parts)
    found = judged("a > b @ task=each", frame)
    assert [cell.name for cell in found.cells] == ["over b, task CoLA", "over b, task RTE"]
    assert found.verdict == "PARTIAL"
    # 10 points of accuracy are 20 of Matthews, and RTE has none
    apart = judged("a over b [task=CoLA] > a over b [task=RTE]", frame)
    assert apart.verdict == "CONFIRMED"
    assert apart.cells[0].mean == pytest.approx(20, abs=1)


def test_a_diverged_run_is_no_replicate(judged):
    frame = made_up({"a": 0.9, "b": 0.8}).assign(diverged=False)
    frame.loc[frame["seed"] < 3, "diverged"] = True
    found = judged("a > b", frame)
    assert found.verdict == "INCONCLUSIVE" and found.cells[0].seeds == 2


def test_a_model_that_no_grid_has_is_named(judged):
    with pytest.raises(LookupError, match="'c' at task CoLA"):
        judged("a > c @ task=CoLA", made_up({"a": 0.9}, task="CoLA"))


def test_a_share_against_a_number_has_wilson_s_interval():
    """8 of 10: 49.0 to 94.3 (Brown, Cai and DasGupta 2001, equation 4); binomial p of 8 or more."""
    found = share_gap([True] * 8 + [False] * 2, less=50)
    assert (found.low + 50, found.high + 50) == pytest.approx((49.0, 94.3), abs=0.1)
    assert found.p == pytest.approx(2 * 56 / 1024)
