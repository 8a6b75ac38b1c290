"""A finished run is opened by its notebook's line or its name; what it lacks is said
with the command that makes it."""

import json

import numpy as np
import pytest
import torch
from conftest import finetuned, made, put, stand_in, untrained
from huggingface_hub import ModelCard

import lib
from lib import data
from lib.__main__ import main
from lib.core.names import Refused
from lib.core.options import Train
from lib.core.spec import Spec
from lib.core.store import Store
from lib.data import own, toy
from lib.export import opened
from lib.papers.ghostbert import recipes as ghostbert

DATA = data.make_data_descriptor("toy", "CoLA", 64)
SPEC = finetuned(
    DATA, Train(epochs=1, batch=32, lr=1e-3, max_length=32), {"start": untrained()}
)
CHAIN = {"model": SPEC.with_seed(1)}


@pytest.fixture
def here(monkeypatch, store):
    monkeypatch.setattr(opened, "Store", lambda: store)
    return store


def test_a_run_is_opened_by_its_name(runs, here):
    run = runs["model"]
    found = lib.load(run.name)
    told, rows = found.predictions, found.rows
    assert len(told) == len(rows) and (told.index == rows.index).all()
    batch = found.tokenizer(list(rows["text"][:8]), padding=True, return_tensors="pt")
    with torch.no_grad():
        shares = found.model(**batch).logits.softmax(1)
    assert np.allclose(shares.max(1).values, told["confidence"][:8], atol=1e-5)
    assert told["right"].equals(told["label"] == told["said"])
    for part in (run.name[3:], run.name.rpartition("-")[2]):
        assert lib.load(part).run.name == run.name


def test_a_record_has_no_weights_and_says_what_makes_it_again(
    runs, here, tmp_path, monkeypatch
):
    Store(here.runs, tmp_path / "records").copy_run_to_records(runs["model"])
    alone = Store(tmp_path / "runs", tmp_path / "records")
    monkeypatch.setattr(opened, "Store", lambda: alone)
    found = lib.load(runs["model"].name)
    assert len(found.predictions) == len(found.rows)
    with pytest.raises(FileNotFoundError, match=f"export {runs['model'].name} --keep"):
        found.model  # noqa: B018


def test_of_a_record_and_a_run_of_one_name_the_run_is_opened(
    runs, here, tmp_path, monkeypatch
):
    both = Store(here.runs, tmp_path / "records")
    both.copy_run_to_records(runs["model"])
    monkeypatch.setattr(opened, "Store", lambda: both)
    assert both.find_run(CHAIN["model"]).origin == "record"
    assert opened.find_run_by_name(runs["model"].name).origin == "run"


def test_a_run_that_failed_is_shown_with_its_error(here, tmp_path, monkeypatch):
    """Commands name such a run, so a reader types its name."""
    folder = tmp_path / "runs" / "finetune-0123456789ab" / "3.part"
    folder.mkdir(parents=True)
    status = {"state": "failed", "error": "no rows", "traceback": "line 7\nno rows"}
    (folder / "status.json").write_text(json.dumps(status))
    store = Store(tmp_path / "runs", tmp_path / "records")
    monkeypatch.setattr(opened, "Store", lambda: store)
    with pytest.raises(
        Refused, match=r"0123456789ab/3 has not finished .failed.: line 7"
    ):
        opened.find_run_by_name("finetune-0123456789ab")


def test_a_run_of_a_generated_task_keeps_its_weights(here):
    from lib.core.execute import execute

    run = execute(SPEC.with_seed(2), here)
    assert run.model_folder.exists()


@pytest.mark.parametrize(
    "wanted, message",
    [
        (
            {"m": 3, "seed": 0},
            "2 runs of ghostbert_t03.* choose a line such as .*'task': 'CoLA'",
        ),
        (
            {"model": "Gost", "task": "CoLA"},
            "0 runs of ghostbert_t03.*'model': 'Ghost'",
        ),
        ({"modle": "Ghost"}, "0 runs of ghostbert_t03.*'model': 'Ghost'"),
    ],
)
def test_a_line_that_is_not_one_run_is_told_with_lines_to_choose_from(
    here, wanted, message
):
    with pytest.raises(ValueError, match=message):
        lib.load("ghostbert_t03", **wanted)


def test_a_line_that_is_not_made_names_the_command(here):
    with pytest.raises(
        FileNotFoundError, match="`python -m lib run ghostbert_t03 --profile toy`"
    ):
        lib.load("ghostbert_t03", m=3, model="Ghost", task="CoLA", seed=0)


def test_a_line_is_that_of_its_grid():
    found = opened.find_spec_by_labels(
        "ghostbert_t03", "toy", dict(m=3, model="Ghost", task="CoLA", seed=0)
    )
    assert found == ghostbert.table_model_spec("toy", "CoLA", 3, "Ghost").with_seed(0)


def test_a_card_tells_method_cost_scores_data_and_command(runs, here, tmp_path):
    run = runs["model"]
    labels = opened.find_task_of_run(run).labels
    assert not main(["export", run.name, "--to", str(tmp_path / "out")])
    assert (
        json.loads((tmp_path / "out/config.json").read_text())["id2label"]["0"]
        == labels[0]
    )
    card = ModelCard.load(tmp_path / "out" / "README.md")
    text, facts = card.text, card.data
    assert (facts.library_name, facts.pipeline_tag) == (
        "transformers",
        "text-classification",
    )
    values = {result.metric_type: result.metric_value for result in facts.eval_results}
    assert values["matthews"] == run.metrics["matthews"]
    score = f"{100 * run.metrics['matthews']:.1f}"
    for part in (
        "1. `pretrain`, seed 0",
        "2. `finetune`, seed 1",
        f", matthews {score}",
        f"{run.metrics['parameters']:,} parameters",
        DATA["digest"],
        f"Classes: 0 {labels[0]}, 1 {labels[1]}.",
        "read generated text alone",
        "python -m lib export " + run.name,
    ):
        assert part in text, part


def test_a_card_of_a_reader_s_model_names_no_place_of_the_machine(
    here, tmp_path, monkeypatch
):
    rows = "".join(f"word{i} word{i % 7}\t{'ab'[i % 2]}\n" for i in range(100))
    path = put(tmp_path / "secret", "rows.tsv", "text\tlabel\n" + rows)
    (folder := tmp_path / "secret" / "my-encoder").mkdir()
    stand_in(
        folder,
        toy.generate_passages(60, 0),
        "bert",
        heads=4,
        layers=1,
        ffn=32,
        hidden=16,
    )
    start = {"name": str(folder), "digest": data.digest_local_checkpoint(str(folder))}
    train = Train(epochs=1, batch=32, lr=1e-3, max_length=16)
    told = data.make_data_descriptor("own", own.infer_task(str(path)).name)
    run = made(
        here, finetuned(told, train, {"start": Spec("checkpoint", start, seed=0)})
    )
    assert not main(["export", run.name, "--to", str(tmp_path / "out")])
    card = (tmp_path / "out" / "README.md").read_text()
    assert "What my-encoder read in pre-training" in card
    assert f"\n# rows.tsv, {run.name}\n" in card and "text, label" not in card
    (score, *_) = ModelCard(card).data.eval_results
    assert score.dataset_name == "rows.tsv"
    for file in (tmp_path / "out").iterdir():
        assert str(tmp_path).encode() not in file.read_bytes(), file
    assert ModelCard(card).data.base_model is None
    moved = path.rename(path.with_name("moved.tsv"))
    found = opened.OpenedRun(run, told | {"task": own.infer_task(str(moved)).name})
    assert found.task.labels == ("a", "b") and len(found.rows) == len(found.predictions)
    moved.rename(path)
    # Another class name would give the same outputs, under a wrong name.
    path.write_text(path.read_text().replace("\tb\n", "\twrong\n"))
    for words in (["--to", str(tmp_path / "again")], ["--to", str(path)]):
        assert main(["export", run.name, *words])
    assert not (tmp_path / "again").exists()
    assert not main(["show", run.name])
