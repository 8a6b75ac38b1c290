"""Claims: the grammar of cells, each word, what cannot be tested, printed values, seeds, Holm."""

import random
from itertools import product

import numpy as np
import pandas as pd
import pytest
from conftest import collected, holding, made_up

from lib import data
from lib.measure import claims, stats
from lib.measure.cells import named, parsed
from lib.measure.compare import Column
from lib.page import checks, notebook
from lib.page import claims as source
from lib.runs import paths
from lib.runs.spec import Spec
from lib.runs.store import Store

METRICS = {task: (Column(task, task, "accuracy"),) for task in ("SST-2", "QQP")}
METRICS["CoLA"] = (Column("CoLA", "CoLA", "matthews"),)
LINE = {"id": "G1", "role": "central", "seeds": "", "least": "", "may_fail": ""}


def judged(cells, frame, teachers=lambda spec: [], printed=None, **line):
    """The Verdict of a claim with these cells on a made-up frame."""
    specs = [
        Spec("fineprune", {"data": {"task": task}}).at(number)
        for number, task in enumerate(frame["task"])
    ]
    told = LINE | {"cells": cells} | line
    rows = frame.assign(spec=specs).to_dict("records")
    return claims.judge(told, rows, METRICS, teachers, "mini", printed)


# ---- CELLS


def test_a_cell_tells_models_places_and_its_region():
    above, alike, floor = parsed("k = 3 > k = 1 @ m=3, task=SST-2; A ~ B +- 0.5; - X >= B - 0.5")
    assert above.models == [(f"k = {k}", (("m", "3"), ("task", "SST-2"))) for k in (3, 1)]
    assert [weight for weight, _ in above.terms] == [1.0, -1.0]
    assert (above.bounds, alike.bounds) == ((0, np.inf), (-0.5, 0.5))
    assert floor.bounds == (-0.5, np.inf) and floor.models[0][0] == "- X"
    below, limit, never = parsed(
        "A <= B + 5; noise :: A [m=6] <= value 0.25; misses :: A = value 0"
    )
    assert (below.bounds, limit.bounds) == ((-np.inf, 5), (-np.inf, 0.25))
    assert (limit.measure, limit.models) == ("noise", [("A", (("m", "6"),))])
    assert never.bounds == (0, 0)
    (slope,) = parsed("k = 3 | k = 5 | k = 9 < value 0")
    assert [w for w, _ in slope.terms] == pytest.approx(stats.slope_weights(np.log2([3, 5, 9])))
    (gap,) = parsed("per step :: A over B [m=9] | A over B [m=1] < value 0")
    assert [w for w, _ in gap.terms] == pytest.approx([1 / 8, -1 / 8])
    assert gap.terms[1][1].models == (("A", (("m", "1"),)), ("B", (("m", "1"),)))


@pytest.mark.parametrize(
    "text, message",
    [
        ("A", "expected 'A > B'"),
        ("A > B - 0.5", "expected 'A > B'"),
        ("A ~ B", "expected 'A > B'"),
        ("A > value 3", "weights sum to 0"),
        ("A | B 2 > value 0", "weights sum to 0"),
        ("kept wieghts :: A > B", "did you mean 'kept weights'"),
    ],
)
def test_what_is_no_cell_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parsed(text)


def test_rows_that_cells_name_are_kept_once():
    spec = Spec("fineprune", {"data": {"task": "SST-2"}})
    rows = [{"model": m, "m": 3.0, "task": "SST-2", "spec": spec} for m in ("A", "A", "B")]
    rows.append({"model": "A", "m": 3, "spec": Spec("predict", {})})
    assert [row["model"] for row in named(parsed("A > C @ m=3"), rows)] == ["A"]


# ---- WORDS


@pytest.mark.parametrize(
    "cells, word",
    [
        ("a > b", "CONFIRMED"),
        ("b > a", "CONTRADICTED"),
        ("a > a2", "INCONCLUSIVE"),
        ("b < a", None),
        ("a >= b - 0.5", "CONFIRMED"),
        ("b >= a - 2", "CONTRADICTED"),
        ("a <= b + 20", "CONFIRMED"),
        ("a ~ b +- 20", "CONFIRMED"),
        ("a ~ b +- 2", "CONTRADICTED"),
        ("a ~ b +- 10", "INCONCLUSIVE"),
    ],
)
def test_a_word_follows_from_the_interval_and_the_region(cells, word):
    frame = made_up({"a": 0.9, "b": 0.8, "a2": 0.9})
    frame = pd.concat([frame, made_up({"a2": 0.9}, seeds=5)])
    frame = frame.drop_duplicates(["model", "seed"])
    if word is None:
        with pytest.raises(ValueError, match="weights sum to 0|expected"):
            judged("b < value 0", frame)
        return
    if cells == "a > a2":
        cells = "a > c"
        frame = made_up({"a": 0.9}, *other(0.9))
    assert judged(cells, frame).verdict == word


def other(share, rows=600):
    """A rival c whose answers are right as often as others' are, in other rows."""
    return [
        ("SST-2", "c", seed, np.random.default_rng(99 - seed).permutation(rows) < share * rows, {})
        for seed in range(5)
    ]


def test_a_margin_that_is_broken_turns_its_claim():
    frame, rng = made_up({"a": 0.9, "b": 0.8}), random.Random(7)
    for _ in range(4):
        margin = rng.uniform(14, 40)
        assert judged(f"a ~ b +- {margin:.2f}", frame).verdict == "CONFIRMED"
        assert judged(f"a ~ b +- {margin / 20:.2f}", frame).verdict == "CONTRADICTED"


@pytest.mark.parametrize(
    "done, planned, word", [(2, 5, "OPEN"), (5, 5, "CONFIRMED"), (0, 5, "NOT_RUN")]
)
def test_nothing_is_read_before_all_planned_seeds_are_there(done, planned, word):
    frame = made_up({"a": 0.9, "b": 0.8}, seeds=5)
    gone = (frame["seed"] >= done) & (frame["model"] == "a")
    if not done:
        gone |= True
    frame.loc[gone, "run"], frame.loc[gone, "state"] = None, "missing"
    found = judged("a > b", frame, seeds="0 to 4")
    assert found.verdict == word
    if word == "OPEN":
        assert {(r.done, r.planned) for r in found.results} == {(2, planned)} and found.p is None
        assert "(2 of 5 seeds)" in found.measured and "[" not in found.measured


def test_tasks_are_no_seeds():
    frame = pd.concat([made_up({"a": 0.9, "b": 0.8}, seeds=2, task=t) for t in ("SST-2", "QQP")])
    found = judged("a > b", frame)
    assert found.verdict == "INCONCLUSIVE" and {r.estimate.n_seeds for r in found.results} == {2}


def test_what_scores_no_model_decides_nothing():
    """A search and a prediction stand in the rows of a page under their network's name."""
    frame = made_up({"A": 0.9, "B": 0.8}, seeds=5)
    rival = frame[frame["model"] == "B"]
    sizes = {step: Spec(step, {"data": {"task": "SST-2"}}) for step in ("nas_search", "predict")}
    network = Spec("retrain", {"data": {"task": "SST-2"}})
    rows = [frame.assign(spec=[network.at(n) for n in range(len(frame))])]
    rows += [
        rival.assign(spec=spec.at(n), run=holding({}, spec.step), accuracy=n / 9)
        for n, spec in enumerate(sizes.values())
    ]
    for cells in ("A > B", "variance ratio :: A over B <= value 1"):
        told = [
            claims.judge(LINE | {"cells": cells}, each, METRICS, lambda _: [], "paper")
            for each in (pd.concat(rows).to_dict("records"), rows[0].to_dict("records"))
        ]
        assert told[0].results[0].estimate == told[1].results[0].estimate, cells
    assert told[0].results[0].estimate.n_seeds == 5


def questions(f1, seeds=3):
    """Made-up runs on SQuAD of models {label: F1 of its questions [N]}; every second question has
    no answer."""
    lines = []
    for (model, marks), seed in product(f1.items(), range(seeds)):
        marks = np.roll(np.array(marks, float), seed)
        labels = np.where(np.arange(len(marks))[:, None] % 2, [[-1, -1]], [[3, 5]])
        told = {"span_f1": marks, "labels": labels, "index": np.arange(len(marks))}
        run = holding(told, f"{model}/{seed}", span_f1=marks.mean())
        lines.append({"task": "SQuAD2", "model": model, "seed": seed, "run": run})
    return pd.DataFrame(lines).assign(
        state="finished", span_f1=[r["run"].metrics["span_f1"] for r in lines]
    )


def test_questions_are_paired_by_their_marks():
    columns = METRICS | {"SQuAD2": (Column("SQuAD2", "SQuAD2", "span_f1"),)}
    own = {"a": [1.0, 0.9] * 300, "b": [0.9, 0.7] * 300, "none": [0, 1] * 300}
    frame = questions(own)
    spec = Spec("warmup", {"data": {"task": "SQuAD2"}})
    frame["spec"] = [spec.at(n) for n in range(len(frame))]

    def judge(cells):
        told = LINE | {"cells": cells, "seeds": "0 to 2"}
        return claims.judge(told, frame.to_dict("records"), columns, lambda _: [], "paper")

    found = judge("a > b @ task=SQuAD2")
    assert found.verdict == "CONFIRMED"
    assert found.results[0].estimate.mean == pytest.approx(15.0)
    assert judge("F1 :: a ~ value 95.4 +- 0.5 @ task=SQuAD2").verdict == "CONFIRMED"
    assert judge("F1 :: a ~ value 85.3 +- 0.5 @ task=SQuAD2").verdict == "CONTRADICTED"
    assert "chance reaches 54" in judge("a > none @ task=SQuAD2").measured


def test_a_recipe_has_one_name_at_every_profile():
    """The row with both, and that of distillation alone, have other labels at mini and at paper."""
    (path,) = (path for path in notebook.find() if path.stem == "ghostbert_t04_ablation")
    names = {"mini": ("+ DA", "GhostBERT"), "paper": ("GhostBERT", "- DA")}
    with data.planning(look=False):
        for scale, labels in names.items():
            rows = notebook.planned(path, {"profile": scale})["grid"]
            for recipe, label in zip(("+ DA", "KD alone"), labels, strict=True):
                own = named(parsed(f"{recipe} > - DA & KD @ m=3"), rows)
                assert {row["model"] for row in own} == {label, "- DA & KD"}, (scale, recipe)
                augmented = [
                    "augmented" in row["spec"].inputs["start"].inputs
                    for row in own
                    if row["model"] == label
                ]
                assert {*augmented} == {recipe == "+ DA"}


def test_a_mean_over_tasks_has_each_task_beside_and_cells_of_each_are_apart():
    frame = pd.concat([made_up({"a": 0.9, "b": 0.8}, task=t) for t in ("SST-2", "QQP")])
    whole = judged("a > b", frame)
    assert [(r.task, r.beside) for r in whole.results] == [
        ("QQP/SST-2", False), ("SST-2", True), ("QQP", True)
    ]  # fmt: skip
    assert str(whole["SST-2"]).startswith("**+10.0 points** [")
    each = judged("a > b @ task=each", frame)
    assert [(r.task, r.beside) for r in each.results] == [("SST-2", False), ("QQP", False)]


def test_cells_of_the_same_runs_count_once():
    frame = made_up({"a": 0.9, "b": 0.8})
    spec = [Spec("fineprune", {"data": {"task": "SST-2"}}).at(n) for n in range(len(frame))]
    twin = frame.assign(spec=spec).assign(model=frame["model"] + " again")
    both = pd.concat([frame.assign(spec=spec), twin]).to_dict("records")
    line = LINE | {"cells": "a > b; a again > b again"}
    found = claims.judge(line, both, METRICS, lambda spec: [], "mini")
    assert (found.verdict, len(found.results)) == ("CONFIRMED", 1)
    assert found.note == "a again > b again has the runs of a > b here"


CELLS = "a > b; a > c; b > c"


@pytest.mark.parametrize(
    "shares, least, word",
    [
        ({"a": 0.9, "b": 0.8, "c": 0.7}, "", "CONFIRMED"),
        ({"a": 0.9, "b": 0.7, "c": 0.8}, "", "PARTIAL"),
        ({"a": 0.9, "b": 0.7, "c": 0.8}, "all", "CONTRADICTED"),
        ({"a": 0.9, "b": 0.7, "c": 0.8}, "2", "CONFIRMED"),
        ({"a": 0.9, "b": 0.7, "c": 0.8}, "half", "CONFIRMED"),
        ({"a": 0.7, "b": 0.8, "c": 0.9}, "", "CONTRADICTED"),
        ({"a": 0.7, "b": 0.8, "c": 0.9}, "2", "CONTRADICTED"),
    ],
)
def test_the_word_on_several_cells(shares, least, word):
    assert judged(CELLS, made_up(shares), least=least).verdict == word


def test_words_of_a_paper_are_read_after_holm_and_open_claims_count():
    told = {"a": ("CONFIRMED", 0.02), "b": ("CONFIRMED", 0.04), "c": ("NOT_TESTABLE", None)}
    found = claims.after_holm(told)
    assert found["a"] == ("CONFIRMED", pytest.approx(0.04)) and found["b"][0] == "CONFIRMED"
    assert found["c"] == ("NOT_TESTABLE", None)
    more = claims.after_holm(told | {"d": ("OPEN", None)})
    assert more["a"] == ("INCONCLUSIVE", pytest.approx(0.06)) and more["d"] == ("OPEN", None)


def test_a_page_takes_the_other_claims_of_a_paper_from_the_committed_table(monkeypatch):
    one = claims.Verdict("G1", "CONFIRMED", "", p=0.02)
    monkeypatch.setattr(source, "recorded", lambda: {"G2": ("OPEN", None), "G3": ("OPEN", None)})
    found = source.corrected({"G1": one})["G1"]
    assert (found.verdict, found.p, found.holm) == ("INCONCLUSIVE", 0.02, pytest.approx(0.06))


# ---- WHAT CANNOT BE TESTED


@pytest.mark.parametrize(
    "frame, why",
    [
        (made_up({"a": 0.9, "b": 0.51}), "b: it scores 5.*chance reaches"),
        (made_up({"a": 0.9, "b": 0.8}, task="SST-2", diverged=True), "a: it diverged"),
        (collected(*[("SST-2", m, s, np.arange(600) % 3 > 0, {}) for m in "ab" for s in range(3)]),
         "two models give the same answers on all 600 rows"),
        (collected(*[("SST-2", m, s, np.arange(600) % 2 == (m == "b"), {})
                     for m in "ab" for s in range(3)]), "a: it gives one answer on all rows"),
    ],
)  # fmt: skip
def test_models_that_learned_nothing_decide_nothing(frame, why):
    import re

    found = judged("a > b", frame)
    assert found.verdict == "NOT_TESTABLE" and re.search(why, found.measured), found.measured


def test_a_student_far_below_its_teacher_decides_nothing():
    frame = made_up({"a": 0.75, "b": 0.65}, task="CoLA").assign(matthews=0.3)
    teacher = made_up({"t": 0.99})["run"].iloc[0]
    assert judged("a > b", frame).verdict == "CONFIRMED"
    found = judged("a > b", frame, lambda spec: [teacher])
    assert found.verdict == "NOT_TESTABLE"
    assert "b: it scores 30.0 on CoLA, less than half of its teacher's 98" in found.measured


def test_a_model_whose_failing_is_the_claim_may_fail():
    frame = made_up({"a": 0.9, "b": 0.51})
    assert judged("a > b", frame).verdict == "NOT_TESTABLE"
    assert judged("a > b", frame, may_fail="b").verdict == "CONFIRMED"


def test_a_task_that_cannot_be_tested_leaves_the_mean():
    frame = pd.concat([made_up({"a": 0.9, "b": 0.8}), made_up({"a": 0.5, "b": 0.5}, task="QQP")])
    found = judged("a > b", frame)
    assert found.verdict == "CONFIRMED" and found.results[0].task == "SST-2"
    assert "QQP: a: it scores" in found.measured
    each = judged("a > b @ task=each", frame)
    assert each.verdict == "CONFIRMED"


def test_divergence_is_no_fault_where_it_is_measured():
    frame = made_up({"a": 0.9, "b": 0.9}).assign(diverged=lambda f: f["model"] == "a")
    found = judged("diverged :: a > b", frame)
    assert found.verdict == "CONFIRMED" and found.results[0].estimate.mean == 100
    assert judged("diverged :: b = value 0", frame).verdict == "CONFIRMED"
    assert judged("diverged :: a = value 0", frame).verdict == "CONTRADICTED"


def test_a_run_that_diverged_is_left_out_and_told():
    frame = made_up({"a": 0.9, "b": 0.8})
    frame["diverged"] = (frame["model"] == "b") & (frame["seed"] == frame["seed"].max())
    found = judged("a > b", frame)
    assert found.results[0].estimate.n_seeds == frame["seed"].nunique() - 1
    assert found.note == "runs that diverged and are left out: 1"
    assert judged("a > b", made_up({"a": 0.9, "b": 0.8})).note == ""


def test_most_scores_that_are_ranked_differ():
    def rows(scores):
        told = [("SST-2", str(n), 0, np.arange(600) < 600 * s, {"kind": "student"})
                for n, s in enumerate(scores)]  # fmt: skip
        frame = collected(*told)
        search = frame.assign(kind="search", **{"held_out.accuracy": list(scores)})
        return pd.concat([frame, search.drop(columns="accuracy")], ignore_index=True)

    cell = "rank correlation :: * [kind=student, task=each] over * [kind=search] > value 0"
    assert judged(cell, rows(np.linspace(0.7, 0.9, 12)), least="half").verdict == "CONFIRMED"
    tied = judged(cell, rows([0.7] * 4 + list(np.linspace(0.8, 0.9, 8))), least="half")
    assert tied.verdict == "NOT_TESTABLE" and "9 scores of 12 differ" in tied.measured


# ---- MEASURES


def test_a_measure_is_a_mean_over_seeds_and_its_region_a_value():
    frame = made_up({"a": 0.9, "b": 0.9}).assign(
        noise=lambda f: np.where(f["model"] == "a", 10.0, 30.0), pixels=70.0
    )
    assert judged("noise :: b > a", frame).results[0].estimate.mean == 20
    found = judged("share of noise :: a <= value 0.25", frame)
    assert found.verdict == "CONFIRMED" and found.results[0].estimate.mean == 0.125
    assert judged("share of noise :: b <= value 0.25", frame).verdict == "CONTRADICTED"


def test_a_variance_is_a_ratio():
    rng = np.random.default_rng(0)
    rows = [
        ("SST-2", model, seed, rng.permutation(900) < 900 * (0.8 + spread * (seed - 4.5)), {})
        for model, spread in (("a", 0.001), ("b", 0.02))
        for seed in range(10)
    ]
    found = judged("variance ratio :: a over b <= value 1 @ task=each", collected(*rows))
    assert found.verdict == "CONFIRMED" and found.results[0].estimate.mean < 0.1


@pytest.mark.parametrize(
    "cell, words",
    [
        ("Ghost > Prune @ m=9", "Ghost > Prune at 9/12"),
        ("F = 12 <= F = 4 + 0.5 @ m=1", "F = 12 <= F = 4 + 0.5 at 1/12"),
        ("A [m=6] >= B [m=12] - 0.5", "A at 6/12 >= B at 12/12 - 0.5"),
        ("k = 3 | k = 5 < value 0 @ m=3", "k = 3, k = 5 < 0 at 3/12"),
        ("F1 :: A ~ value 85.3 +- 0.5 @ task=SQuAD1", "F1: A ~ 85.3 +- 0.5 on SQuAD1"),
        ("diverged :: BERT > BERMo @ task=each", "diverged: BERT > BERMo"),
    ],
)
def test_a_cell_is_told_without_the_words_of_its_grammar(cell, words):
    assert parsed(cell)[0].words == words


def test_no_cell_of_a_claim_is_told_in_its_grammar():
    for line in checks.claims().values():
        for cell in parsed(line["cells"]):
            found = [
                mark for mark in (" | ", "value ", "[", "::", " @ ", "task") if mark in cell.words
            ]
            assert not found, cell.words


# ---- THE DATA


def test_the_cells_of_every_claim_can_be_read_and_name_rows_somewhere():
    for id, line in checks.claims().items():
        cells = parsed(line["cells"])
        assert cells or line["role"] not in ("central", "own"), id
        assert line["least"] in ("", "all", "half") or int(line["least"]) <= 10, id
        assert bool(claims.seeds(line["seeds"])) == bool(line["seeds"]), id


@pytest.mark.parametrize("id", source.central())
def test_a_central_claim_has_its_rows_at_mini_and_the_planned_seeds(id):
    line = checks.claims()[id]
    planned, rows = {*claims.seeds(line["seeds"])}, source.rows(line)
    assert planned and {row["seed"] for row in rows} == planned
    missing = [row | {"run": None, "state": "missing"} for row in rows]
    judged = claims.judge(line, missing, METRICS, None, "mini")
    assert judged.verdict == "NOT_RUN" and judged.results


def test_every_claim_without_a_run_has_a_word(tmp_path):
    store = Store(tmp_path / "runs", tmp_path / "records")
    own = [id for id, c in checks.claims().items() if c["paper"] in ("bermo", "own")]
    for id, found in source.judged(own, store).items():
        line = checks.claims()[id]
        assert found.claim == id and found.verdict in claims.WORDS and found.measured
        if line["role"] in ("central", "own", "finding"):
            final = source.FINAL.get((line["planned"] or {}).get("word"))
            wanted = (final,) if final else ("NOT_RUN", "NOT_DECIDABLE")
            assert found.verdict in wanted and found.p is None, id
            assert found.note or found.verdict != "NOT_DECIDABLE", id


def test_each_printed_effect_is_a_formula_of_a_cell_that_a_claim_has():
    for row in checks.lines("effects"):
        line = checks.claims()[row["claim"]]
        assert row["cell"] in {cell.text for cell in parsed(line["cells"])}, row
    effects = checks.effects("G1")
    assert effects["Ghost > Prune @ m=1", "STS-B"] == pytest.approx(1.4)
    whole = "CoLA/MNLI/MRPC/QNLI/QQP/RTE/SST-2/STS-B"
    assert effects["Ghost > Prune @ m=1", whole] == pytest.approx(2.1)
    assert ("Ghost > Prune @ m=1", "SST-2/STS-B") not in effects
    for id in {row["claim"] for row in checks.lines("effects")}:
        assert all(np.isfinite(value) for value in checks.effects(id).values())


def test_a_printed_cell_that_changes_changes_the_effect(monkeypatch):
    rng, lines = random.Random(3), checks.lines
    task = rng.choice(["SST-2", "STS-B", "CoLA"])
    before = checks.effects("G1")["Ghost > Prune @ m=3", task]

    def broken(name):
        rows = [dict(row) for row in lines(name)]
        if name == "ghostbert/table10":
            for row in rows:
                if (row["m"], row["Model"]) == ("3/12", "Ghost"):
                    row[task] = str(float(row[task]) + 5)
        return rows

    monkeypatch.setattr(checks, "lines", broken)
    assert checks.effects("G1")["Ghost > Prune @ m=3", task] == pytest.approx(before + 5)


def test_what_we_found_says_figures_of_claims(tmp_path):
    empty = Store(tmp_path / "runs", tmp_path / "records")
    told = source.told(source.judged(store=empty))
    assert len(told) > source.FIRST and "not measured yet" in " ".join(told.values())
    assert "printed +64.8" in told["Searched, or random?"]


def test_the_scorecard_counts_each_claim_once():
    words = {id: "NOT_RUN" for id in checks.claims()} | {"G1": "CONFIRMED", "E4": "NOT_TESTABLE"}
    card = source.scorecard(words)
    assert card["GhostBERT"]["central claims"].startswith("1 held, ")
    assert "1 not testable" in card["EfficientBERT"]["central claims"]
    assert (
        sum(int(part.split()[0]) for part in card["together"]["central claims"].split(", ")) == 30
    )
    assert "1 held, 9 open" in source.scoreboard(words).splitlines()[2]
    assert (paths.ROOT / "README.md").read_text().count(source.BLOCK) == 2
