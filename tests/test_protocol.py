"""The mini protocol: its Specs are fixed, and pages ask for the very runs that claims rest on."""

from types import SimpleNamespace

import pandas as pd
from conftest import with_inputs

from lib import checks
from lib.page import claims as source
from lib.page import runs
from lib.papers import grids, mini, nas, trials


def test_likely_causes_are_tried_at_the_seeds_of_the_claims_that_they_explain():
    """F2 differs from G1 in the rows alone, F3 from N1 in the steps of the search alone."""
    ours, theirs = ({row["spec"] for row in own(name)} for name in ("F2", "G1"))
    distils = [spec.inputs["start"] for spec in ours]
    assert all("augmented" in spec.inputs for spec in distils) and not ours & theirs
    plain = [spec.inputs["start"].args for spec in theirs]
    assert all(spec.args in plain for spec in distils)
    ours, theirs = own("F3"), own("N1")
    shared = [row["model"] for row in ours if row["spec"] in [each["spec"] for each in theirs]]
    assert set(shared) == {"10 % Random"} and len(shared) == len(ours) // 2
    long, usual = (
        {
            row["spec"].args["train"]["epochs"]
            for row in nas.architectures(rows)
            if row["model"].startswith("10 % NAS")
        }
        for rows in (ours, theirs)
    )
    assert long == {4 * min(usual)}


def own(name):
    """The rows that a claim rests on at its planned seeds."""
    return source.rows(checks.claims()[name])


def test_the_planned_table_names_every_claim():
    table = source.planned()
    assert list(table.index) == source.central() and table.loc["G1", "tasks"] == "SST-2, STS-B"
    assert table.loc["B2", "seeds"] == "10 to 17"
    assert set(table.index) == {line["id"] for line in checks.lines("central")}


def test_each_task_of_mini_counts_once(monkeypatch):
    seen = []
    monkeypatch.setattr(runs.compare, "pairs", lambda rows, method, baseline, of: seen.append(of))
    for scale in ("mini", "paper"):
        runs.difference(None, scale, "a", "b", columns=nas.COLUMNS)
    assert [len(of["STS-B"]) for of in seen] == [1, 2] and len(seen[0]["SST-2"]) == 1


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
