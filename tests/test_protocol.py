"""The mini protocol: its Specs are fixed, and pages ask for the very runs that claims
rest on."""

import pytest

from lib.claims import judging as source
from lib.claims import lists
from lib.claims.cells import parse_seeds
from lib.core.spec import find_transitive_input_specs
from lib.papers import frontier, grids, published
from lib.papers.nas_pruning import recipes as nas
from lib.stats import compare

TRIALS = lists.read_csv_in_published_folder("trials")


@pytest.mark.papers("ghostbert")
def test_likely_causes_are_tried_at_the_seeds_of_the_claims_that_they_explain():
    """F2 differs from G1 in the rows alone, F3 from N1 in the steps of the search
    alone."""
    ours, theirs = ({row["spec"] for row in own(name)} for name in ("F2", "G1"))
    distils = [spec.inputs["start"] for spec in ours]
    assert distils and not ours & theirs
    assert all("augmented" in spec.inputs for spec in distils)
    plain = [spec.inputs["start"].args for spec in theirs]
    assert all(spec.args in plain for spec in distils)
    ours, theirs = own("F3"), own("N1")
    shared = [
        row["model"] for row in ours if row["spec"] in [each["spec"] for each in theirs]
    ]
    assert set(shared) == {"10 % Random"} and len(shared) == len(ours) // 2
    long, usual = (
        {
            row["spec"].args["train"]["epochs"]
            for row in grids.list_architecture_searches_of_models(rows)
            if row["model"].startswith("10 % NAS")
        }
        for rows in (ours, theirs)
    )
    assert long == {4 * min(usual)}


def own(name):
    """The rows that a claim rests on at its planned seeds."""
    return source.list_grid_rows_of_claim(lists.read_claims()[name])


@pytest.mark.papers()
def test_central_claims_have_their_tasks_and_their_planned_seeds():
    assert {row["task"] for row in own("G1")} == {"SST-2", "STS-B"}
    assert [row["seed"] for row in own("B2")][:8] == [*range(10, 18)]
    assert set(source.list_central_claim_ids()) == {
        line["id"] for line in lists.read_csv_in_published_folder("central")
    }


def test_each_task_of_mini_counts_once(monkeypatch):
    seen = []
    monkeypatch.setattr(
        compare,
        "pair_runs_of_models",
        lambda rows, method, baseline, of: seen.append(of),
    )
    for scale in ("mini", "paper"):
        compare.estimate_difference(
            None, "a", "b", grids.select_metrics_by_task(scale, nas.COLUMNS)
        )
    assert [len(of["STS-B"]) for of in seen] == [1, 2] and len(seen[0]["SST-2"]) == 1


def test_trials_have_seeds_that_no_claim_has():
    planned = {
        n for line in lists.read_claims().values() for n in parse_seeds(line["seeds"])
    }
    tried = {int(row["seed"]) for row in TRIALS if row["seed"]}
    assert tried and min(tried) >= 90 and not tried & planned
    assert set(range(10, 20)).isdisjoint(tried)


@pytest.mark.papers("ghostbert")
def test_the_second_task_is_the_one_that_the_rule_takes():
    """Its teacher comes 0.6 of the way from chance to what GhostBERT prints for
    BERT-base."""
    printed = published.read_table("ghostbert", "table1").iloc[0]
    rows = [row for row in TRIALS if row["question"] == "second task"]
    assert [row["task"] for row in rows] == ["CoLA", "MRPC", "STS-B"]
    for row in rows:
        least = float(row["chance"])
        share = (float(row["score"]) - least) / (printed[row["task"]] - least)
        assert row["why"].startswith(f"{share:.2f} of the way")
        assert (
            (share >= 0.6)
            == (row["passes"] == "yes")
            == (row["task"] == frontier.TASKS["mini"][1])
        )


def test_trials_on_development_rows_are_those_that_are_told():
    """No claim rests on them: they set STEPS, and try a landing that no recorded search
    has."""
    dev = {"SST-2": "872", "STS-B": "1500"}
    rows = [row for row in TRIALS if row["rows"] == dev.get(row["task"])]
    assert {row["question"] for row in rows} == {"steps of few rows", "N4"}
    taken = {
        row["setting"]
        for row in rows
        if row["passes"] == "yes" and row["question"] != "N4"
    }
    assert taken == {f"640 rows, {grids.S.STEPS} steps"}
    text = (published.PUBLISHED / "protocol.md").read_text()
    assert (
        len(rows) == 12
        and "twelve later trials were scored on development rows" in text
    )
    searches = [
        spec
        for id in ("N1", "N4", "N9")
        for spec in find_transitive_input_specs([row["spec"] for row in own(id)])
    ]
    gates = [spec.args["gates"] for spec in searches if spec.step == "nas_search"]
    assert gates and ("steps", 0.0) not in {
        (g["landing"], g.get("memory", 0.0)) for g in gates
    }


def test_the_level_of_a_whole_model_is_that_of_its_trial():
    """It is the last one that passes: the setting that seeds are made with."""
    passed = [row for row in TRIALS if row["question"] in ("teacher", "second task")]
    base = [
        row
        for row in lists.read_csv_in_published_folder("trials_base")
        if row["model"] == "Plain"
    ]
    for scale, lines in (("mini", passed), ("base", base)):
        levels = {
            row["task"]: float(row["score"]) for row in lines if row["passes"] == "yes"
        }
        assert grids.LEVEL[scale] == levels


def test_other_rules_are_told_of_the_published_comparisons():
    judged = {
        (row["profile"], row["claim"], row["cell"], row["task"]): row
        for row in source.read_verdicts_csv()
    }
    lines = lists.read_csv_in_published_folder("other_rules")
    assert {line["rule"] for line in lines} == {
        "one processor",
        "collapsed seeds count",
        "seeds of the plan",
    }
    # Without the code of a paper its comparisons are absent.
    here = lists.read_comparison_descriptions()
    lines = [line for line in lines if (line["claim"], line["comparison"]) in here]
    assert lines
    for line in lines:
        place = line["profile"], line["claim"], line["comparison"], line["task"]
        told = line["shown"], line["word"]
        found = judged[place]["shown"], judged[place]["word"]
        assert told == found, ("python tests/other_rules.py", place)
