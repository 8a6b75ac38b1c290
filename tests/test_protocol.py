"""The mini protocol: its Specs are fixed, and pages ask for the very runs that claims rest on."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from conftest import with_inputs

from lib import checks
from lib.measure import stats, verdict
from lib.page import notebook
from lib.papers import claims, grids, mini, nas, protocol, trials

# Digests of the Specs of each claim: records are found by them, so they change with no release.
DIGESTS = {
    "G": "c9e4e0d2 073e95b1 c9e4e0d2 a0887658 f3dd4b2f "
    "86c42ceb 24c28072 24cd23d1 eb2e16a3 46488a0b",
    "E": "88a9b988 6842882c bf4ff54b 090797ac f3da26ba 11b79d5d",
    "B": "59da6b43 fd4c9768 aab920f1 2fbddb75 eb63ac42",
    "N": "36a0d17d bd0fda0a 8428f55b 660e5c68 9cd8db8f dfa103fa dc99b12c f483d98e cec513e8",
}
FIXED = {
    f"{paper}{n}": digest
    for paper, digests in DIGESTS.items()
    for n, digest in enumerate(digests.split(), start=1)
}


@pytest.fixture(scope="module")
def specs():
    return {
        name: {row["spec"] for row in claim.grid(claim.seeds)}
        for name, claim in protocol.CLAIMS.items()
    }


def test_every_central_claim_stands_in_the_protocol():
    assert set(protocol.CLAIMS) == {line["id"] for line in checks.lines("central")} == set(FIXED)
    for claim in protocol.CLAIMS.values():
        assert len(claim.seeds) >= (5 if claim.headline else 3) or claim.id in ("E4", "E5")
        assert mini.PILOT not in claim.seeds and not {1, 2} & set(claim.seeds)


@pytest.mark.parametrize("name", FIXED)
def test_the_specs_of_a_claim_do_not_change(specs, name):
    told = " ".join(sorted(spec.name for spec in specs[name]))
    assert hashlib.sha256(told.encode()).hexdigest()[:8] == FIXED[name]


def test_pages_ask_for_the_runs_of_every_claim(specs):
    rows = [
        row
        for path in notebook.find()
        for grid in notebook.grids(path, {"profile": "mini"}).values()
        for row in grid
    ]
    asked = {row["spec"] for row in rows} | {row["spec"] for row in nas.architectures(rows)}
    assert {name: len(wanted - asked) for name, wanted in specs.items() if wanted - asked} == {}


def test_likely_causes_are_tried_at_the_seeds_of_the_claims_that_they_explain():
    """F2 differs from G1 in the rows alone, F3 from N1 in the steps of the search alone."""
    cause, of = (protocol.chosen((name,))[0] for name in ("F2", "G1"))
    ours, theirs = ({row["spec"] for row in claim.grid(cause.seeds)} for claim in (cause, of))
    distils = [spec.inputs["start"] for spec in ours]
    assert all("augmented" in spec.inputs for spec in distils) and not ours & theirs
    plain = [spec.inputs["start"].args for spec in theirs]
    assert all(spec.args in plain for spec in distils)

    cause, of = (protocol.chosen((name,))[0] for name in ("F3", "N1"))
    rows, theirs = (claim.grid(cause.seeds) for claim in (cause, of))
    shared = [row["model"] for row in rows if row["spec"] in [each["spec"] for each in theirs]]
    assert set(shared) == {"10 % Random"} and len(shared) == len(cause.seeds)
    long, usual = (
        {
            row["spec"].args["train"]["epochs"]
            for row in nas.architectures(grid)
            if row["model"] == "10 % NAS"
        }
        for grid in (rows, theirs)
    )
    assert long == {protocol.LONGER * min(usual)}


def test_the_planned_table_names_every_claim():
    table = protocol.planned_table()
    assert list(table.index) == list(protocol.CLAIMS) and table.loc["G1", "tasks"] == "SST-2, STS-B"
    assert table.loc["B2", "seeds"] == "10: 10 to 19"


def test_each_task_of_mini_counts_once(monkeypatch):
    seen = []
    monkeypatch.setattr(claims.compare, "pairs", lambda rows, method, baseline, of: seen.append(of))
    for scale in ("mini", "paper"):
        claims.estimate(None, scale, "a", "b", columns=nas.COLUMNS)
    assert [len(of["STS-B"]) for of in seen] == [1, 2] and len(seen[0]["SST-2"]) == 1


def test_verdicts_by_task_stand_beside_the_average():
    def judge(frame, scale):
        return verdict.judge_delta("G1", {}, {"1/12": 2.1}, scale, failed=len(frame))

    frame = pd.DataFrame({"task": ["SST-2", "SST-2", "STS-B"]})
    note = claims.each_task(judge)(frame, "mini").note
    assert "on SST-2 alone inconclusive: not measured;" in note and "on STS-B alone" in note
    assert "alone" not in claims.each_task(judge)(frame, "paper").note
    assert "alone" not in claims.each_task(judge)(frame[:2], "mini").note


def test_trials_are_judged_on_training_rows_that_no_claim_is_judged_on():
    """Also without data: their digests are committed."""
    rows = trials.grid()
    assert {row["seed"] for row in rows} == {mini.PILOT}
    assert len({row["spec"] for row in rows}) == len(rows) == 17
    for row in rows:
        beside = sum(trials.ROWS[row["task"]][:2])
        for spec in with_inputs([row["spec"]]):
            if told := spec.args.get("data"):
                assert (told["task"], told["unseen"]["beside"]) == (row["task"], beside)
    taken = {(row["question"], row["setting"]) for row in rows if row["taken"]}
    assert ("second task", "teacher of STS-B") in taken and len(taken) == 8
    own = trials.tuned(grids.teacher("mini", "SST-2"), lr=1.0)
    assert own.args["train"] == grids.teacher("mini", "SST-2").args["train"] | {"lr": 1.0}


def test_the_rule_of_the_second_task(monkeypatch):
    rows = pd.DataFrame([row for row in trials.grid() if row["question"] == "second task"])
    rows["run"] = [
        SimpleNamespace(metrics={f"unseen.{name}": value, "mean_tokens": 20.0})
        for name, value in (("matthews", 0.29), ("accuracy", 0.7), ("spearman", 0.85))
    ]
    lines = trials.rule(rows)
    assert lines[0].startswith(
        "CoLA: 0.50 of the way from 0.0 to the printed 58.1 (less than 0.6), 100 thousand tokens"
    )
    assert "(at least 0.6), 80 thousand tokens" in lines[2] and lines[1].startswith("MRPC: ")
    rows["run"] = None
    assert trials.rule(rows) == [] and (trials.table(rows)["score"] == "–").all()


def test_a_slope_waits_for_a_task_that_some_points_lack():
    """Evidence comes run by run: half a second task changes no verdict and stops no page."""
    frame = pd.DataFrame({"run": [], "state": []})
    labels = np.array([0, 1] * 20)

    def pair(task, wrong):
        said = labels.copy()
        said[:wrong] = 1 - said[:wrong]
        return stats.Pair(task, 10, labels, labels, said, "accuracy")

    whole = {x: [pair("SST-2", wrong)] for x, wrong in ((1, 9), (3, 6), (6, 3))}
    half = whole | {6: [*whole[6], pair("STS-B", 20)]}
    told = [claims.trend("G3", frame, "mini", pairs, -1.0, "points") for pairs in (whole, half)]
    assert told[0] == told[1] and told[0].cells
    apart = {1: [pair("SST-2", 9)], 3: [pair("STS-B", 6)]}
    assert claims.trend("G3", frame, "mini", apart, -1.0, "points").verdict == "NOT_RUN"
