"""The queue of the central claims: rounds over seeds, records at once, weights that nobody needs
deleted.
"""

import pytest
from test_sweep import BACKBONE, importance, teacher

from lib import checks, evidence, record, sweep
from lib.measure.verdict import Cell, Verdict
from lib.papers import protocol
from lib.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs", tmp_path / "records")


def claim(name, make, seeds=(10, 11), headline=False):
    same = {"model": name, "task": "CoLA"}
    return protocol.Claim(
        name,
        lambda numbers: [same | {"seed": n, "spec": make.at(n)} for n in numbers],
        lambda frame, scale: judged(name, frame["run"].notna().sum()),
        seeds,
        headline,
    )


def judged(name, runs):
    if not runs:
        return Verdict(name, "NOT_RUN", "0 runs", None, "", 0, "at mini scale")
    cell = Cell("", None, 1.0, 0.5, 1.5, runs, 0.1, 0.1, (0.0, None))
    told = "CONFIRMED", f"{runs} runs", None, "", runs, "at mini scale"
    return Verdict(name, *told, p=0.03, cells=(cell,))


def small(count):
    return teacher(rows=count)


@pytest.fixture
def claims(monkeypatch):
    """Two claims on one teacher, and a dear headline."""
    there = [claim("A1", small(64)), claim("A2", importance(small(64)))]
    there.append(claim("H1", small(96), (10,), True))
    monkeypatch.setattr(protocol, "CLAIMS", {each.id: each for each in there})
    return there


def test_rounds_are_seeds_headlines_first_then_the_cheapest(claims, store):
    specs = evidence.rounds(claims, store)
    assert [spec.seed for spec in specs] == [10, 10, 10, 11, 11]
    one, two = "finetune", "importance"
    assert [spec.step for spec in specs] == [one, one, two, one, two]
    assert specs[0].args["data"]["rows"] == 96


def test_evidence_is_recorded_at_once_and_weights_go_when_no_claim_needs_them(claims, store):
    assert evidence.gather(claims[:2], store, workers=1, progress=False) == {}
    for spec in (small(64).at(10), small(64).at(11), importance(small(64)).at(10)):
        assert record.there(store.records / spec.name) and store.find(spec).env["commit"]
        assert not store.find(spec).model.exists()
    assert not record.there(store.records / BACKBONE.name)
    assert store.find(BACKBONE, weights=True)  # pinned: for all seeds
    elsewhere = Store(store.runs / "none", store.records)
    assert not sweep.plan([small(64).at(10), importance(small(64)).at(11)], elsewhere).missing
    board = {row["claim"]: row for row in evidence.board(claims, elsewhere)}
    first, headline = board["A1"], board["H1*"]
    assert (first["seeds"], first["runs"], first["verdict"].measured) == ("2 of 2", 0, "2 runs")
    assert (board["A1"]["p"], board["A2"]["p"], board["H1*"]["p"]) == (0.06, 0.06, None)
    assert first["verdict"].planned == 2 and first["verdict"].provisional == ""
    assert (headline["seeds"], headline["runs"], headline["unknown"]) == ("0 of 1", 2, 1)
    assert headline["seconds"] > 0  # from the records of its like


def test_weights_stay_where_another_claim_still_needs_them(claims, store, monkeypatch):
    other = claim("A3", importance(small(64), batch=4))
    monkeypatch.setattr(protocol, "CLAIMS", protocol.CLAIMS | {"A3": other})
    assert evidence.gather(claims[1:2], store, workers=1, progress=False) == {}
    assert store.find(small(64).at(10), weights=True)
    assert evidence.gather([other], store, workers=1, progress=False) == {}
    assert store.find(small(64).at(10)) and store.find(small(64).at(10), weights=True) is None


def test_the_protocol_names_every_central_claim_and_new_seeds(anywhere):
    assert set(protocol.CLAIMS) == {line["id"] for line in checks.lines("central")}
    with pytest.raises(ValueError, match="unknown claim: 'G11'"):
        protocol.chosen(["G11"])
    for each in protocol.chosen():
        rows = each.grid(each.seeds[:2])
        assert rows and all({"seed", "spec"} <= row.keys() for row in rows), each.id
        own = {row["seed"] for row in rows if row["spec"].seed == row["seed"]}
        assert own == set(each.seeds[:2]), each.id
        assert len(each.seeds) >= (5 if each.headline else 1)


def test_every_claim_judges_a_board_without_runs(anywhere, store):
    for row in evidence.board(protocol.chosen(), store):
        assert row["verdict"].verdict == "NOT_RUN" and row["runs"] > 0 and row["cells"] > 0, row


def test_searches_are_recorded_beside_the_networks_that_they_found(anywhere):
    cells = evidence.cells(protocol.CLAIMS["N1"], (10,))
    found = evidence.found_by(cells)
    assert {spec.step for spec in found} == {"nas_search", "random_architecture"}
    assert {spec.seed for spec in found} == {10} and len(found) == len(cells)


def test_a_name_that_a_grid_has_not_is_an_error():
    rows = [{"model": "Ghost"}, {"model": "Prune"}]
    assert protocol.only(rows, model=("Ghost",)) == rows[:1]
    with pytest.raises(ValueError, match="unknown model: 'Gost'; did you mean 'Ghost'"):
        protocol.only(rows, model=("Gost",))
