"""The queue of the central claims: rounds over seeds, records at once, weights that
nobody needs deleted."""

from itertools import product

import pytest
from conftest import stop_at
from test_sweep import BACKBONE, importance, teacher

from lib.claims import evidence, lists
from lib.claims.cells import parse_seeds as seeds
from lib.core.rows import Row
from lib.core.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs", tmp_path / "records")


ROWS = {}  # of each claim


def claim(name, make, seeds="10 to 11"):
    ROWS[name] = lambda numbers: [Row(make, seed=n) for n in numbers]
    return {"id": name, "seeds": seeds, "role": "central"}


def small(count):
    return teacher(rows=count)


@pytest.fixture
def claims(monkeypatch):
    """Two claims on one teacher, and a dear headline."""
    there = [claim("A1", small(64)), claim("A2", importance(small(64)))]
    there.append(claim("H1", small(96), "10"))
    known = {each["id"]: each for each in there}
    rows = [
        {"claim": name, "profile": "mini", "low": "1", "beside": "", "same_as": ""}
        | {"word": word}
        for name, word in product(known, ["agrees", "too noisy to say"])
    ]
    monkeypatch.setattr(evidence.lists, "read_claims", lambda: known)
    monkeypatch.setattr(
        evidence,
        "list_grid_rows_of_claim",
        lambda line: ROWS[line["id"]](seeds(line["seeds"])),
    )
    monkeypatch.setattr(evidence, "read_verdicts_csv", lambda: rows)
    return there


def test_rounds_are_seeds_by_the_plan(claims, monkeypatch):
    specs = evidence.list_claim_specs_in_run_order(claims, Store())
    assert [spec.seed for spec in specs] == [10, 10, 10, 11, 11]
    assert [spec.step for spec in specs][3:] == ["finetune", "importance"]
    monkeypatch.setattr(
        evidence.lists,
        "read_csv_in_published_folder",
        lambda _: [{"claim": "H1"}, {"claim": "A2"}],
    )
    specs = evidence.list_claim_specs_in_run_order(claims, Store())
    assert [spec.step for spec in specs] == ["finetune", "importance", "finetune"] + [
        "importance", "finetune"
    ]  # fmt: skip
    assert specs[0].args["data"]["rows"] == 96


def test_evidence_is_recorded_at_once_and_weights_go_when_no_claim_needs_them(
    claims, store
):
    assert evidence.execute_and_record_missing_runs(claims[:2], store, workers=1) == {}
    for spec in (
        small(64).with_seed(10),
        small(64).with_seed(11),
        importance(small(64)).with_seed(10),
    ):
        assert (store.records / spec.name).exists() and store.find_run(spec).env[
            "commit"
        ]
        assert not store.find_run(spec).model_folder.exists()
    assert not (store.records / BACKBONE.name).exists()
    assert store.find_run(BACKBONE, needs_weights=True)  # pinned: for all seeds
    elsewhere = Store(store.runs / "none", store.records)
    assert not elsewhere.plan_missing_runs(
        [small(64).with_seed(10), importance(small(64)).with_seed(11)]
    )
    first, _, last, _ = evidence.describe_claim_progress(claims, elsewhere)
    assert "2 of 2 seeds, 0 runs left" in first and first.endswith(
        "1 agrees, 1 too noisy to say"
    )
    assert "0 of 1 seeds, 2 runs left, about" in last  # from the records of its like


def test_weights_that_a_kill_left_go_with_the_next_command(claims, store, monkeypatch):
    with monkeypatch.context() as patch:
        stop_at(patch, evidence.DeletableWeights, "delete_weights_unless_read", 1)
        with pytest.raises(KeyboardInterrupt):
            evidence.execute_and_record_missing_runs(claims[:2], store, workers=1)
    first = small(64).with_seed(10)
    assert store.find_run(first, needs_weights=True)
    assert evidence.execute_and_record_missing_runs(claims[:2], store, workers=1) == {}
    assert store.find_run(first) and not store.find_run(first, needs_weights=True)


def test_weights_stay_where_another_claim_still_needs_them(claims, store, monkeypatch):
    other = claim("A3", importance(small(64), batch=4))
    every = evidence.lists.read_claims() | {"A3": other}
    monkeypatch.setattr(evidence.lists, "read_claims", lambda: every)
    assert evidence.execute_and_record_missing_runs(claims[1:2], store, workers=1) == {}
    assert store.find_run(small(64).with_seed(10), needs_weights=True)
    assert evidence.execute_and_record_missing_runs([other], store, workers=1) == {}
    assert (
        store.find_run(small(64).with_seed(10))
        and store.find_run(small(64).with_seed(10), needs_weights=True) is None
    )


def test_weights_go_when_no_line_of_a_plan_needs_them(store, monkeypatch):
    wanted = [small(64).with_seed(10), importance(small(64)).with_seed(10)]
    later = [small(64).with_seed(11), importance(small(64), batch=4).with_seed(11)]
    queues = {"now": wanted, "all": wanted + later}
    monkeypatch.setattr(evidence, "select_plan_lines", lambda profile: "all")
    monkeypatch.setattr(
        evidence,
        "list_plan_specs_in_run_order",
        lambda lines, profile, store: queues[lines],
    )
    assert (
        evidence.execute_and_record_missing_runs(
            "now", store, workers=1, profile="base"
        )
        == {}
    )
    assert all((store.records / spec.name).exists() for spec in wanted)
    assert not store.find_run(
        small(64).with_seed(10)
    ).model_folder.exists() and not store.find_run(later[0])
    assert (
        evidence.execute_and_record_missing_runs(
            "all", store, workers=1, profile="base"
        )
        == {}
    )
    assert all((store.records / spec.name).exists() for spec in later)
    assert not store.find_run(small(64).with_seed(11)).model_folder.exists()


@pytest.mark.papers("nas_pruning")
def test_rows_of_a_page_are_made_in_place_of_claims(store, monkeypatch):
    rows = evidence.list_notebook_specs(["nas_t02"], "mini", Store())
    assert [spec.seed for spec in rows] == sorted(spec.seed for spec in rows)
    assert {spec.step for spec in rows} == {"finetune"} and len(rows) == 6
    with pytest.raises(ValueError, match="unknown notebook: 'nas_t99'"):
        evidence.list_notebook_specs(["nas_t99"], "mini", Store())
    monkeypatch.setattr(
        evidence, "list_claim_specs_in_run_order", lambda claims, store=None: []
    )
    asked = importance(small(64)).with_seed(10)
    monkeypatch.setattr(evidence, "list_notebook_specs", lambda *_: [asked])
    assert (
        evidence.execute_and_record_missing_runs(
            [], store, workers=1, notebook_patterns_instead_of_claims=["a page"]
        )
        == {}
    )
    assert (store.records / asked.name).exists()
    assert not store.find_run(small(64).with_seed(10)).model_folder.exists()


def test_the_queue_is_of_central_claims_and_our_own_at_new_seeds():
    with pytest.raises(ValueError, match="unknown claim: 'G11'"):
        evidence.select_claims_to_run(["G11"])
    every = evidence.select_claims_to_run()
    assert {c["id"] for c in every} >= {
        line["id"] for line in lists.read_csv_in_published_folder("central")
    }
    at_base = {row["claim"] for row in lists.read_csv_in_published_folder("plan_base")}
    for c in every:
        assert c["seeds"] or c["id"] in at_base, c["id"]
        assert c["id"] == "E5" or not {0, 1, 2, 90} & {*seeds(c["seeds"])}, c["id"]


@pytest.mark.papers("nas_pruning")
def test_searches_are_recorded_beside_the_networks_that_they_found(anywhere):
    cells = evidence.list_claim_specs_by_seed(lists.read_claims()["N1"], Store())[10]
    found = evidence.find_searches_and_random_draws_among_inputs(cells)
    assert {spec.step for spec in found} == {"nas_search", "random_architecture"}
    assert {spec.seed for spec in found} == {10} and len(found) == len(cells)
