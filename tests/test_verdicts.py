"""Every claim is judged in one place, and each of its words can be reached."""

import csv
import re
from collections import Counter
from dataclasses import replace

import pytest
from conftest import made_up

from lib import checks, paths, sweep, verdicts
from lib.measure.verdict import WORDS, Cell, Verdict
from lib.page import artefact, notebook
from lib.papers import protocol
from lib.store import Store


@pytest.fixture(scope="module")
def unmeasured(tmp_path_factory):
    """The verdicts on all claims without a run."""
    empty = tmp_path_factory.mktemp("empty")
    return verdicts.judged(store=Store(empty / "runs", empty / "records"))


def test_every_claim_has_a_verdict_without_a_run(unmeasured):
    assert list(unmeasured) == list(checks.claims()) and set(protocol.CLAIMS) <= set(unmeasured)
    for name, found in unmeasured.items():
        role = checks.claims()[name]["role"]
        assert found.claim == name and found.verdict in WORDS and found.measured, name
        if role in ("central", "finding"):
            word = "UNDECIDABLE" if checks.claims()[name]["cannot"] else "NOT_RUN"
            assert (found.kind, found.verdict, found.runs) == ("finding", word, 0), name
        if name in protocol.CLAIMS and found.scale == "at mini scale":
            assert found.planned == len(protocol.CLAIMS[name].seeds), name
        if found.verdict == "NOT_RUN":
            assert "\n" not in found.note and (found.note or found.cells == ()), name
        if checks.claims()[name]["check"] and role in ("arithmetic", "setting"):
            assert (found.kind, found.verdict == "NOT_RUN") == ("arithmetic", False), name


def test_a_finding_that_no_run_here_decides_says_why(unmeasured):
    for name, found in unmeasured.items():
        if found.verdict == "UNDECIDABLE":
            assert found.note == checks.claims()[name]["cannot"], "the grid lacks it: say so"
    assert unmeasured["G16"].note == "mini has no checkpoint of RoBERTa"


def test_arithmetic_is_judged_by_the_printed_cells(unmeasured):
    words = Counter(found.verdict for found in unmeasured.values() if found.kind == "arithmetic")
    assert words["CONFIRMED"] > 100 and words["PAPER_INCONSISTENT"] > 20
    assert unmeasured["G18"].measured == "0.8 computed, 0.8 printed"
    assert unmeasured["G25"].measured == "25.7778 computed, 25 printed"
    assert unmeasured["G25"].verdict == "PAPER_INCONSISTENT" and unmeasured["G25"].note
    assert unmeasured["E17"].verdict == "CONTRADICTED"  # counted, from no cell


@pytest.fixture
def scored(monkeypatch):
    """f(claim, {model: share of right predictions}): its Verdict on made-up runs of its cells."""

    def judge(name, shares, seeds=5):
        def collect(rows, *_, **__):
            lines = []
            for row in {(r["model"], r["task"], r.get("m")): r for r in rows}.values():
                share = shares.get((row["model"], row.get("m")), shares.get(row["model"]))
                more = {key: row[key] for key in row.keys() & {"m", "method", "family"}}
                own = made_up({row["model"]: share}, seeds=seeds, task=row["task"], **more)
                lines += own.assign(spec=[row["spec"].at(n) for n in range(seeds)]).to_dict(
                    "records"
                )
            return verdicts.pd.DataFrame(lines)

        monkeypatch.setattr(verdicts.sweep, "collect", collect)
        return verdicts.judge(name)

    return judge


TWO, FOUR = ("G34", "Ghost", "Prune"), ("G41", "Ghost", "Prune")
ALIKE, NO_WORSE = ("N99", "Prediction distillation", "Two stages"), ("N13", "Whole", "30 % NAS")


@pytest.mark.parametrize(
    "names, shares, word",
    [
        (TWO, (0.9, 0.8), "CONFIRMED"),
        (TWO, (0.8, 0.9), "CONTRADICTED"),
        (TWO, (0.9, 0.9), "INCONCLUSIVE"),
        (FOUR, (0.9, {6: 0.9, None: 0.8}), "PARTIAL"),
        (FOUR, (0.8, {6: 0.7, None: 0.9}), "CONTRADICTED"),
        (ALIKE, (0.9, 0.9), "CONFIRMED"),
        (ALIKE, (0.9, 0.7), "CONTRADICTED"),
        (NO_WORSE, (0.7, 0.9), "CONFIRMED"),
        (NO_WORSE, (0.9, 0.7), "CONTRADICTED"),
    ],
)
def test_words_of_findings(scored, names, shares, word):
    name, method, baseline = names
    own, other = shares
    other = other if isinstance(other, dict) else {None: other}
    told = {method: own, baseline: other[None]} | {(baseline, m): v for m, v in other.items()}
    found = scored(name, told)
    assert (found.verdict, found.claim, found.scale) == (word, name, "at mini scale"), found
    assert found.runs >= 10 and found.planned and found.cells


def test_few_seeds_prove_nothing_and_a_printed_size_is_told(scored):
    found = scored("G34", {"Ghost": 0.9, "Prune": 0.8}, seeds=2)
    assert (found.verdict, found.provisional) == ("INCONCLUSIVE", "provisional, 2 of 5 seeds")
    assert found.cells[0].published == 2.1 and "points" in found.measured


def test_each_task_is_a_cell_where_the_claim_says_so(scored):
    names = [cell.name for cell in scored("G38", {"Ghost": 0.9, "Prune": 0.8}).cells]
    assert len(names) == 8 and names[0] == "over Prune, m 9, task SST-2"


def test_a_claim_that_is_another_one_has_its_verdict(monkeypatch, unmeasured):
    confirmed = replace(unmeasured["N2"], verdict="CONFIRMED")
    found = verdicts.judge("N10", seen={"N2": confirmed})
    assert (found.claim, found.verdict) == ("N10", "CONFIRMED")


def committed():
    """{claim: word} of `verdicts.csv`."""
    lines = csv.DictReader((paths.DATA / "records" / "verdicts.csv").open())
    return {
        line["claim"]: line["word"]
        for line in lines
        if line["cell"] == "verdict" and not line["task"]
    }


def test_a_page_the_records_and_the_scorecard_have_one_verdict(tmp_path, monkeypatch):
    names = ("E5", "G37", "G18", "N96")
    monkeypatch.setattr(paths, "FIGURES", tmp_path)
    monkeypatch.setattr(artefact, "display", lambda _: None)
    artefact.Page("some_page", {"profile": "toy"}, tmp_path).finish(claims=names)
    shown = notebook.provenance(tmp_path, "some_page")["verdicts"]
    told = {v["claim"]: v["verdict"] for v in shown}
    assert told == {name: committed()[name] for name in names}
    assert told == {name: verdicts.judge(name).verdict for name in names}


@pytest.mark.parametrize("path", notebook.find(), ids=lambda path: path.stem)
def test_no_page_judges_a_claim_by_itself(path):
    alone = r"claims\.(claim_|delta|best|compared|within|trend)|judge_(?!equal)"
    assert not re.search(alone, path.read_text()), "name the page in claims.csv: finish() judges"


def test_a_page_shows_the_claims_that_name_it_central_ones_first():
    found = verdicts.of_page("ghostbert_t04_ablation")
    assert found[:3] == ["G5", "G6", "G7"] and {"G28", "G56", "G62"} < {*found}


@pytest.mark.parametrize("name", protocol.CLAIMS)
def test_a_central_claim_is_judged_at_paper_too(name, tmp_path, monkeypatch):
    """From the rows of its pages. Those of toy stand for them: at paper some grids count rows."""
    grid = verdicts.grid
    monkeypatch.setattr(verdicts, "grid", lambda name, _: grid(name, "toy"))
    found = verdicts.judge(name, Store(tmp_path / "runs", tmp_path / "records"), scale="paper")
    assert (found.claim, found.verdict, found.runs) == (name, "NOT_RUN", 0)


def test_the_readme_shows_scoreboard_and_findings_of_all_verdicts(unmeasured):
    """They stand between marks, and nothing else changes. `verify` holds them to the records."""
    readme = (paths.ROOT / "README.md").read_text()
    found = unmeasured | {name: replace(unmeasured["G1"], claim=name) for name in protocol.OWN}
    posted = verdicts.posted(readme, found)
    for mark in (verdicts.BLOCK, verdicts.FOUND):
        before, inside, behind = readme.split(mark)
        assert inside.strip() and inside not in posted
        assert posted.startswith(before.split(verdicts.FOUND)[0].split(verdicts.BLOCK)[0])
        assert posted.endswith(behind.split(verdicts.FOUND)[-1].split(verdicts.BLOCK)[-1])
    assert verdicts.scoreboard({id: each.verdict for id, each in found.items()}) in posted
    assert verdicts.scoreboard(committed()) in readme, "run `python -m lib verify --write`"
    assert "not measured yet" in posted and posted == verdicts.posted(posted, found)


def test_the_scorecard_counts_every_claim_once(unmeasured):
    found = {name: each.verdict for name, each in unmeasured.items()}
    card = verdicts.scorecard(found | {"G1": "CONFIRMED", "B2": "CONTRADICTED", "N13": "PARTIAL"})
    assert sum(card.pop("together").values()) == len(found)
    assert sum(sum(line.values()) for line in card.values()) == len(found)
    assert card["GhostBERT"]["central claims", "held"] == 1
    assert card["BERMo"]["central claims", "did not hold"] == 1
    assert card["NAS pruning"]["further findings", "held in part"] == 1
    line = verdicts.scoreboard(found | {"G2": "INCONCLUSIVE"}).splitlines()[2]
    assert line.startswith("| GhostBERT | 10 open | 33 open, 6 cannot be decided here | ")
    assert line.endswith(" agree |")


def test_what_we_found_is_told_with_measured_figures(tmp_path, monkeypatch):
    """No figure is typed: without runs the sentences say so. Few seeds have no interval."""
    cell = Cell("at 10%", 38.0, 23.9, 22.3, 25.4, 1, None, 0.2, (0.0, None))
    one = Verdict("N1", "INCONCLUSIVE", "", None, "", 2, "at mini scale", cells=(cell,))
    cells = (replace(cell, mean=47.0, seeds=3), cell)
    whole = replace(one, cells=cells, alone={"SST-2": one}, planned=5)
    text = "**What?** {N1} / {N1[SST-2][at 10]} / {N1[STS-B][at 10]} / {N1[at 30]}\n"
    (tmp_path / "found.md").write_text(text)
    monkeypatch.setattr(paths, "DATA", tmp_path)
    told = verdicts.told({"N1": whole})
    parts = told["What?"].split(" / ")
    assert parts[0] == "**+47.0 points** [22.3, 25.4] (3 of 5 seeds)"
    assert parts[1] == "+23.9 points (1 of 5 seeds)"
    assert parts[2:] == ["not measured yet"] * 2
    assert verdicts.listed(told).startswith("- **What?** **+47.0")


def test_a_printed_value_of_what_we_found_is_of_one_task_and_width():
    """It is computed from the printed cells that the text names."""
    cells = "cell('table05_nas_vs_random', '{} {}', 'STS-B', 'Pearson')"
    key = f"nas: {cells.format('10%', 'NAS')} - {cells.format('10%', 'Random')}"
    assert verdicts.Printed()[key] == "+64.8"


def test_what_we_found_says_of_stsb_what_its_runs_show():
    """Students of EfficientBERT and BERMo's survivors stay under half of the whole model there."""
    store = Store()

    def scores(rows):
        frame = sweep.collect([row for row in rows if row["task"] == "STS-B"], store, "skip")
        return [100 * run.metrics["spearman"] for run in frame["run"].dropna()]

    whole = scores(row for row in protocol.CLAIMS["G2"].grid((10,)) if row["model"] == "Plain")
    rows = [row for id in ("E1", "E2") for row in protocol.CLAIMS[id].grid((10,))]
    rows = [row for row in rows if row.get("kind") == "student"]
    rows += [row for row in protocol.CLAIMS["B2"].grid((10,)) if row["model"] == "BERMo"]
    low = scores(rows)
    assert len(low) >= 4 and max(low) < min(whole) / 2


def test_every_figure_of_what_we_found_is_of_a_recorded_run():
    told = verdicts.told()
    assert len(told) > verdicts.FIRST and "not measured" not in " ".join(told.values())


def test_power_and_the_forest_are_told_of_every_measured_claim(scored, unmeasured):
    one = replace(scored("G34", {"Ghost": 0.9, "Prune": 0.8}, seeds=1), claim="G1")
    assert one.power.startswith("power not known")
    assert verdicts.power(one).endswith(
        "at 5 seeds for the printed +2.1, where seeds differ by 0.6 points"
    )
    two = replace(scored("G34", {"Ghost": 0.9, "Prune": 0.8}, seeds=2), claim="G1")
    assert verdicts.power(two) == two.power
    assert two.power.startswith("power ") and "at 5 seeds for the printed +2.1" in two.power
    told = verdicts.seeds(unmeasured | {"G1": two})
    assert list(told) == list(protocol.CLAIMS)
    assert (told["G1"]["planned"], told["G1"]["done"]) == (5, 2)
    assert told["G2"]["power at the planned seeds"] == "–"
    frame = verdicts.forest(unmeasured | {"G1": two}, "ghostbert")
    assert frame[["claim", "printed", "seeds", "least"]].to_numpy().tolist() == [
        ["G1", 2.1, 2, 0.0]
    ]


def test_what_we_found_places_every_central_claim_once():
    """An open claim is told by its seeds and by no direction, and none is left out."""
    cell = Cell("", None, 1.0, 0.5, 1.5, 1, None, 0.2, (0.0, None))
    words = dict(zip(protocol.CLAIMS, [*WORDS, *["INCONCLUSIVE"] * 30], strict=False))
    found = {
        id: Verdict(
            *(id, word, "", None, "", 0, "at mini scale"),
            cells=(cell,) * (word != "NOT_RUN"),
            planned=5,
        )
        for id, word in words.items()
    }
    told = {paper: verdicts.standings(found, paper) for paper in checks.PAPERS}
    ids = [
        text.split(":")[0]
        for lines in told.values()
        for how in lines.values()
        for text in re.findall(r"[A-Z]\d+:", how["which"])
    ]
    assert sorted(ids) == sorted(protocol.CLAIMS)
    assert list(told["bermo"]) == ["open, 1 of 5 seeds"]
    assert list(told["ghostbert"])[0] == "held" and "open" in told["ghostbert"]
