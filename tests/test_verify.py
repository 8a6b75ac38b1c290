"""Verify tells every damage to records and committed files in one line, and exits 1."""

import csv
import json
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import put
from safetensors.numpy import load, save

from lib import data
from lib.__main__ import COMMANDS, main
from lib.claims import committed, notebook, verify
from lib.claims.cells import parse_comparison
from lib.claims.words import Result, Verdict
from lib.core import paths
from lib.core.disk import write_json, write_manifest
from lib.core.names import Refused, format_error_in_one_line
from lib.core.rows import Row
from lib.core.spec import Spec
from lib.core.store import Store
from lib.papers.grids import pretrained_encoder_spec
from lib.stats import metrics
from lib.stats.paired import Estimate

NAME = "finetune-000000000000/10"


@pytest.fixture
def records(tmp_path, monkeypatch):
    """The folder of two sound records, a figure and their ledger, verdicts by a
    stand-in."""
    monkeypatch.setattr(verify.planned, "read_run_plan", lambda profile: [])
    monkeypatch.setattr(verify.lists, "list_papers_whose_folder_is_missing", lambda: [])
    run, described = tmp_path / "run", data.make_data_descriptor("toy", "RTE", 40)
    run.mkdir()
    rng = np.random.default_rng(0)
    told = {"labels": rng.integers(0, 2, 30), "index": np.arange(30)}
    told["logits"] = rng.normal(size=(30, 2)).astype(np.float32)
    (run / "predictions.safetensors").write_bytes(save(told))
    scores = metrics.compute_metrics(
        data.find_task_by_name("toy", "RTE"), told["logits"], told["labels"]
    )
    spec = {"step": "finetune", "args": {"data": described}, "inputs": {}, "seed": 10}
    told = {"spec": spec, "status": {"state": "finished", "seconds": 1.0}, "env": {}}
    for name, value in (told | {"metrics": scores | {"tokens": 7}}).items():
        write_json(run / f"{name}.json", value)
    write_manifest(run)
    for name in (NAME, "latency-000000000000/10"):
        shutil.copytree(run, tmp_path / "records" / name)
    (tmp_path / "README.md").write_text("none")
    put(tmp_path, "data/published/x/table.csv", "model,SST-2\nGhost,83.5\n")
    put(tmp_path, "data/digests.json", {"glue/CoLA": "12"})
    put(tmp_path, "figures/mini/a.page.md", "# A\n\n- G1: Ghosts help. ◐ partial.\n")
    for name in "ab":
        put(tmp_path, f"figures/mini/{name}.png", name * 9)
    monkeypatch.setenv("RECORDS_ROOT", str(tmp_path / "records"))
    monkeypatch.setenv("RUNS_ROOT", str(tmp_path / "runs"))
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    rows = [Row(SPEC, task="RTE", m=3, seed=10, more=[1])]
    page = notebook.Path("some_page.ipynb")
    monkeypatch.setattr(notebook, "find_notebooks", lambda *_: [page])
    monkeypatch.setattr(
        notebook,
        "execute_grid_cell_and_list_rows_by_variable",
        lambda *_, **__: {"grid": rows, "recorded": rows[:1]},
    )
    monkeypatch.setattr(verify.evidence, "select_claims_to_run", lambda: [{"id": "G1"}])
    monkeypatch.setattr(
        verify.judging, "list_grid_rows_of_claim", lambda claim: grid((10,))
    )
    monkeypatch.setattr(verify.judging, "judge_claims", judged)
    monkeypatch.setattr(verify.judging, "judge_planned_claims", judged_at_base)
    monkeypatch.setattr(
        verify.judging,
        "renew_generated_readme_parts",
        lambda text, found, at_base: f"{len(found)} claims",
    )
    assert main(["verify", "--write"]) == 0 and main(["verify"]) == 0
    return tmp_path / "records"


SPEC = Spec("finetune", {"numerics": {"dtype": "float32"}}, seed=10)


def grid(seeds):
    return [Row(SPEC, task="RTE", seed=seed) for seed in seeds]


def judged(store):
    """A Verdict on what is recorded: the mean of a metric over the records."""
    values = [run.metrics["tokens"] for run in store.list_recorded_runs()]
    e = Estimate(
        sum(values) / len(values), 1.23456789, 9.0, 1 + len(values), 1, 0.1, 0.2
    )
    told = {"printed": 2.1, "sentence": "a minus b", "holm_p_value": 0.4}
    one = Result(
        "G1", parse_comparison("a > b"), "RTE", e, len(values), len(values), **told
    )
    few = replace(
        one,
        comparison=parse_comparison("c > d"),
        estimate=None,
        ended_seed_count=0,
        printed=None,
        holm_p_value=None,
    )
    found = Verdict("G1", (one, few), profile="mini", kind="finding")
    return {
        "G1": found,
        "G10": Verdict("G10", verdict_word="equal", measured="12 computed, 12 printed"),
    }


def judged_at_base(profile, store):
    """As `judged`, and no claim is planned at this profile."""
    assert profile == "base" and judged(store)
    return {}


def body(records, part, change, sign=True):
    """Change a part of the record, and sign it again with its manifest."""
    file = records / NAME / f"{part}.json"
    told = json.loads(file.read_text())
    change(told)
    file.write_text(json.dumps(told))
    if sign:
        write_manifest(records / NAME)


def arrays(records, change):
    """Change the arrays of the record, and sign all of it again."""
    file = records / NAME / ARRAYS
    there = load(file.read_bytes())
    change(there)
    file.write_bytes(save(there))
    write_manifest(records / NAME)


def flipped(there):
    there["logits"] = there["logits"][:, ::-1].copy()


def short(there):
    for name in there:
        there[name] = there[name][:-1]


def changed(path, old, new):
    """Replace the first hit of an expression in a file, which has one."""
    text = path.read_text()
    assert re.search(old, text)
    path.write_text(re.sub(old, new, text, count=1))


def cut(path, count=40):
    path.write_bytes(path.read_bytes()[:-count])


def bit(path, place=None, flip=1):
    there = bytearray(path.read_bytes())
    there[len(there) // 2 if place is None else place] ^= flip
    path.write_bytes(there)


DAMAGE = {
    "spec cut": lambda at: cut(at / NAME / "spec.json"),
    "manifest {}": lambda at: (at / NAME / "manifest.json").write_text("{}"),
    "manifest no text": lambda at: (at / NAME / "manifest.json").write_bytes(
        b"\xff\xfe{"
    ),
    "manifest version": lambda at: changed(
        at / NAME / "manifest.json", "version", "versiom"
    ),
    "manifest gone": lambda at: (at / NAME / "manifest.json").unlink(),
    "metric changed": lambda at: body(
        at, "metrics", lambda b: b.update(accuracy=0.9), False
    ),
    "metric signed": lambda at: body(at, "metrics", lambda b: b.update(accuracy=0.9)),
    "metric nan": lambda at: body(
        at, "metrics", lambda b: b.update(accuracy=float("nan"))
    ),
    "no spec": lambda at: (at / NAME / "spec.json").unlink(),
    "unknown task": lambda at: body(
        at, "spec", lambda b: b["args"]["data"].update(task="R")
    ),
    "status gone": lambda at: (at / NAME / "status.json").unlink(),
    "failed": lambda at: body(at, "status", lambda b: b.update(state="failed")),
    "arrays gone": lambda at: (at / NAME / ARRAYS).unlink(),
    "arrays untold": lambda at: (
        (at / NAME / ARRAYS).unlink(),
        write_manifest(at / NAME),
    ),
    "arrays bit": lambda at: bit(at / NAME / ARRAYS),
    "no predictions": lambda at: arrays(
        at, lambda a: (a.clear(), a.update(x=np.ones(1)))
    ),
    "logits flipped": lambda at: arrays(at, flipped),
    "rows missing": lambda at: arrays(at, short),
    "runs gone": lambda at: (at / "runs.csv").unlink(),
    "runs other": lambda at: changed(at / "runs.csv", r"finetune-(\w+)", "finetune-0"),
    "runs less": lambda at: changed(at / "runs.csv", "G1,mini.*\n", ""),
    "runs more": lambda at: changed(
        at / "runs.csv", "G1,mini.*\n", r"\g<0>G1,paper,,0,a-0/0\n"
    ),
    "runs no text": lambda at: bit(at / "runs.csv", -2, 0x80),
    "verdicts gone": lambda at: (at / "verdicts.csv").unlink(),
    "verdicts word": lambda at: changed(at / "verdicts.csv", "not measured", "agrees"),
    "verdicts sentence": lambda at: changed(
        at / "verdicts.csv", "a minus b", "b minus a"
    ),
    "verdicts less": lambda at: changed(at / "verdicts.csv", "G1,c > d.*\n", ""),
    "arithmetic gone": lambda at: (at / "arithmetic.csv").unlink(),
    "arithmetic word": lambda at: changed(at / "arithmetic.csv", "equal", "differs"),
    "verdicts estimate": lambda at: changed(at / "verdicts.csv", r"7\.0", "7.000002"),
    "verdicts interval": lambda at: changed(at / "verdicts.csv", r"1\.2345", "1.25"),
    "verdicts no number": lambda at: changed(at / "verdicts.csv", r"1\.2345", "1.2x"),
    "verdicts seeds": lambda at: changed(
        at / "verdicts.csv", ",3,2,2,agrees", ",4,2,2,agrees"
    ),
    "README changed": lambda at: (at.parent / "README.md").write_text("3 claims"),
    "README no text": lambda at: bit(at.parent / "README.md", -1, 0x80),
    "page number": lambda at: changed(at.parent / "figures/mini/a.page.md", "A", "B"),
    "page more": lambda at: put(at.parent, "figures/mini/b.page.md", "# B"),
    "digests digit": lambda at: changed(at.parent / "data/digests.json", "12", "13"),
    "table cell": lambda at: changed(
        at.parent / "data/published/x/table.csv", "83.5", "11.1"
    ),
    "table gone": lambda at: (at.parent / "data/published/x/table.csv").unlink(),
    "files gone": lambda at: changed(at / "files.csv", "README.*\n", ""),
    "files digit": lambda at: changed(at / "files.csv", r"(README.md,)\w", r"\1-"),
}
ARRAYS = "predictions.safetensors"
PLACES = {"runs": "runs.csv", "verdicts": "verdicts.csv", "README": "README.md"}
PLACES |= {"arithmetic": "arithmetic.csv"}
PLACES |= {
    "page": ".page.md",
    "digests": "digests.json",
    "table": "x/table.csv",
    "files": "README",
}


@pytest.mark.papers("ghostbert")
@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_told_in_one_line(records, kind, capsys):
    DAMAGE[kind](records)
    capsys.readouterr()
    assert main(["verify"]) == 1
    out, err = capsys.readouterr()
    assert out.count("\n") == 1 and err == "", out
    assert PLACES.get(kind.split()[0], "finetune-00000000000") in out


@pytest.mark.papers("ghostbert")
@pytest.mark.parametrize("kind", ("gone", "more", "other metric"))
def test_records_that_change_a_verdict_are_told_by_it(records, kind, capsys):
    """The word, the estimate and the seeds of a claim follow from the records."""
    if kind == "gone":
        shutil.rmtree(records / NAME)
    elif kind == "more":
        shutil.copytree(records / NAME, records / "finetune-000000000001/10")
    else:
        body(records, "metrics", lambda told: told.update(tokens=8))
    capsys.readouterr()
    assert main(["verify"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines and all("verdicts.csv: G1" in line for line in lines)
    assert main(["verify", "--write"]) == 0 and main(["verify"]) == 0


@pytest.mark.papers("ghostbert")
def test_swapped_pictures_are_told(records, capsys):
    mini = records.parent / "figures" / "mini"
    a, b = (mini / "a.png").read_bytes(), (mini / "b.png").read_bytes()
    (mini / "a.png").write_bytes(b)
    (mini / "b.png").write_bytes(a)
    capsys.readouterr()
    assert main(["verify"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told] == [
        "figures/mini/a.png",
        "figures/mini/b.png",
    ]


@pytest.mark.papers("ghostbert")
def test_a_line_names_claim_cell_task_and_both_values(records, capsys):
    changed(records / "verdicts.csv", r",7\.0,1\.23456789", ",9.5,1.5")
    main(["verify"])
    found = capsys.readouterr().out
    assert (
        "G1, a > b, RTE, mini: estimate 7.0, in the file 9.5; low 1.23456789, in the file 1.5"
        in found
    )
    changed(
        records / "runs.csv",
        r"task=RTE,10,finetune-\w+/10",
        "task=RTE,10,finetune-0/10",
    )
    main(["verify"])
    told = f"G1, mini, task=RTE, 10: run {SPEC.name}, in the file finetune-0/10"
    assert told in capsys.readouterr().out


@pytest.mark.papers("ghostbert")
def test_numbers_of_another_machine_are_near_enough(records):
    changed(
        records / "verdicts.csv", r"7\.0,1\.23456789,9\.0", "7.0000005,1.23450,9.00004"
    )
    assert main(["verify"]) == 0


@pytest.mark.papers("ghostbert")
def test_the_files_have_each_run_once_and_each_part_of_a_claim(records):
    """What is no number or text is no label, and both variables of a page are one."""
    head, *runs = (records / "runs.csv").read_text().splitlines()
    assert head == verify.COLUMNS["runs.csv"] and runs == [
        f"G1,mini,task=RTE,10,{SPEC.name}",
        f"some_page,mini,m=3; task=RTE,10,{SPEC.name}",
        f"some_page,paper,m=3; task=RTE,10,{SPEC.name}",
    ]
    head, *found = (records / "verdicts.csv").read_text().splitlines()
    assert head == verify.COLUMNS["verdicts.csv"]
    first, second = (
        dict(zip(head.split(","), each, strict=True)) for each in csv.reader(found)
    )
    wanted = {"claim": "G1", "cell": "a > b", "task": "RTE", "profile": "mini"}
    wanted |= {"family": "ghostbert", "sentence": "a minus b", "unit": "points"}
    wanted |= {
        "no_effect": "0.0",
        "region_low": "0.0",
        "region_high": "",
        "estimate": "7.0",
    }
    wanted |= {
        "low": "1.23456789",
        "high": "9.0",
        "printed": "2.1",
        "interest": "",
        "seeds": "3",
    }
    assert wanted.items() <= first.items()
    assert (
        second["cell"] == "c > d"
        and second["word"] == "not measured"
        and not second["low"]
    )
    assert (second["reason"], second["family"], second["p"]) == ("not run yet", "", "")
    head, *found = (records / "arithmetic.csv").read_text().splitlines()
    assert head == verify.COLUMNS["arithmetic.csv"] and len(found) == 1
    assert found[0].startswith("G10,ghostbert,") and found[0].endswith(
        'equal,"12 computed, 12 printed"'
    )


@pytest.mark.papers("ghostbert")
def test_files_are_written_of_sound_records_alone(records, capsys):
    there = (*verify.COLUMNS, committed.FILES)
    before = [(records / name).read_text() for name in there]
    put(records.parent, "data/digests.json", "{}")
    (records / NAME / ARRAYS).unlink()
    assert main(["verify", "--write"]) == 1
    assert [(records / name).read_text() for name in there] == before


@pytest.mark.papers("ghostbert")
def test_verdicts_rest_on_records_and_on_no_other_runs(records, monkeypatch):
    """What this machine is making now no other one has."""
    stores = []
    monkeypatch.setattr(
        verify.judging,
        "judge_claims",
        lambda *args, store=None, **_: stores.append(store) or {},
    )
    monkeypatch.setattr(
        verify.judging, "renew_generated_readme_parts", lambda readme, *found: readme
    )
    verify.compute_committed_table_texts(Store())
    assert [(store.runs, store.records) for store in stores] == [(records, records)]


@pytest.mark.papers("nas_pruning")
@pytest.mark.parametrize("error", [KeyError("EfficientBERT"), Refused("no number: 1x")])
def test_a_command_that_fails_names_printed_tables_that_were_changed(
    error, monkeypatch, tmp_path, capsys
):
    def fail(args):
        raise error

    monkeypatch.setitem(COMMANDS, "plan", (fail, ()))
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setenv("RECORDS_ROOT", str(tmp_path))
    table = tmp_path / "data" / "published" / "nas_pruning" / "table.csv"
    table.parent.mkdir(parents=True)
    table.write_text("a,1\n")
    (tmp_path / "files.csv").write_text(
        "".join(committed.format_committed_file_digest_lines())
    )
    told = "data/published/nas_pruning/table.csv is not as "
    for text in ("a,1\n", "a,2\n"):
        table.write_text(text)
        if isinstance(error, KeyError) and text == "a,1\n":
            with pytest.raises(KeyError):  # It is a fault of the code.
                main(["plan"])
            continue
        assert main(["plan"]) == 2
        first, *lines = capsys.readouterr().err.splitlines()
        assert first.startswith(f"error: {format_error_in_one_line(error)}")
        assert [line[: len(told)] for line in lines] == [told] * (text == "a,2\n")


def test_a_run_without_a_score_has_nothing_to_compute_again():
    for args in (
        {},
        {"data": {"kind": "files"}},
        {"data": data.make_data_descriptor("toy", "RTE", 40)},
    ):
        run = SimpleNamespace(spec={"args": args}, metrics={"tokens": 3})
        assert verify.recompute_metrics_from_predictions(run) == {}


def test_no_data_are_looked_at(monkeypatch, tmp_path):
    """Whatever lies in the folders of data, the Specs are those of the official
    ones."""
    (tmp_path / "glue" / "RTE").mkdir(parents=True)
    (tmp_path / "glue" / "RTE" / "train.tsv").write_text("damaged")
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    with pytest.raises(ValueError, match="damaged"):
        data.make_data_descriptor("glue", "RTE")
    with data.plan_with_missing_data(use_local_data=False):
        wanted = data.read_committed_data_digests()["glue/RTE"]
        assert data.make_data_descriptor("glue", "RTE")["digest"] == wanted
        assert pretrained_encoder_spec("paper").args["digest"] == "absent"
    assert data.make_data_descriptor("toy", "RTE")["digest"] != "absent"


@pytest.mark.papers()
def test_the_run_of_every_row_is_the_committed_one():
    """Records are found by these names, so a change of one loses evidence."""
    with data.plan_with_missing_data(use_local_data=False):
        found = verify.list_runs_csv_rows(Store())
    head, *committed = csv.reader((paths.DATA / "records" / "runs.csv").open())
    assert ",".join(head) == verify.COLUMNS["runs.csv"]
    assert set(map(tuple, committed)) == set(found) and len(committed) == len(found)


@pytest.mark.slow
def test_the_committed_files_are_those_of_the_committed_records():
    assert (
        verify.verify_committed_results(Store(records_folder=paths.DATA / "records"))
        == []
    )
