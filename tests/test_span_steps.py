"""Steps on tasks with spans, and distillation on augmented rows, through the real store
at the smallest size."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import finetuned, losses_of, small_backbone

from lib import data
from lib.core.execute import execute
from lib.core.options import Augment, Distil, Importance, Numerics, Span, Train
from lib.core.spec import Spec, to_plain_json
from lib.data import spans
from lib.model import backbone
from lib.model.parts import get_recorded_model_changes
from lib.stats import answers
from lib.train import augment, heads, loop

pytestmark = pytest.mark.usefixtures("few_rows")
NUMERICS = Numerics("float32", 1)
TRAIN = Train(epochs=1, batch=16, lr=1e-3, max_length=40, clip=1.0, dropout=0.1)
SPAN = Span(stride=12, max_query=10, max_answer=8)
DATA = {
    name: data.make_data_descriptor("toy", name, 48, 16)
    for name in ("SQuAD1", "SQuAD2", "RTE")
}
BACKBONE = small_backbone(TRAIN, layers=1)
CUT = [{"op": "cut", "heads": 3}]
AUGMENT = Augment(tries=3, p=0.4, candidates=5, neighbours="embeddings")


def told(task, **more):
    span = {"span": SPAN} if task.startswith("SQuAD") else {}
    return {"data": DATA[task], "numerics": NUMERICS} | span | more


def tuned(inputs, task="SQuAD2", kind="hard", **more):
    spec = finetuned(DATA[task], replace(TRAIN, **more), inputs, kind)
    return replace(spec, args=spec.args | to_plain_json(told(task))).with_seed(1)


def ranked(teacher, task):
    args = told(task, importance=Importance("held_out", 8, 40))
    return Spec("importance", args, {"teacher": teacher}).with_seed(1)


def distilled(teacher, task, **inputs):
    args = told(task, train=TRAIN, surgery=CUT, distil=Distil())
    inputs |= {"teacher": teacher, "importance": ranked(teacher, task)}
    return Spec("distil", args, inputs).with_seed(1)


ONE = tuned({"start": BACKBONE}, "SQuAD1")
TWO = tuned({"start": BACKBONE}, "SQuAD2", select="best")
SMALL = distilled(TWO, "SQuAD2")
PLAIN = tuned({"start": BACKBONE}, "RTE")
MORE = Spec(
    "augment", told("RTE", augment=AUGMENT), {"language_model": BACKBONE}
).with_seed(1)
CHAIN = {
    "backbone": BACKBONE,
    "one": ONE,
    "two": TWO,
    "two ranks": ranked(TWO, "SQuAD2"),
    "small": SMALL,
    "student": tuned({"start": SMALL}, "SQuAD2"),
    "soft": tuned({"start": SMALL, "teacher": TWO}, "SQuAD2", "both"),
    "plain": PLAIN,
    "ranks": ranked(PLAIN, "RTE"),
    "more": MORE,
    "without": distilled(PLAIN, "RTE"),
    "with": distilled(PLAIN, "RTE", augmented=MORE),
}


@pytest.mark.parametrize(
    "name, task",
    [("one", "SQuAD1"), ("two", "SQuAD2"), ("student", "SQuAD2"), ("soft", "SQuAD2")],
)
def test_what_is_kept_of_answers(name, task, runs):
    run, dev = runs[name], data.load(DATA[task])["dev"]
    found = run.read_arrays("predictions")
    assert set(found) == {"spans", "null", "exact", "span_f1", "labels", "index"}
    assert found["spans"].shape == (len(dev), 2) and np.array_equal(
        found["index"], dev.index
    )
    assert np.array_equal(found["labels"], dev.y)
    texts, version = spans.extract_answer_texts(dev, found["spans"]), int(task[-1])
    said = [
        "" if version == 2 and more > 0 else text
        for text, more in zip(texts, found["null"], strict=True)
    ]
    for metric, value in answers.compute_mean_exact_match_and_f1(
        said, dev.answers
    ).items():
        assert run.metrics[metric] == value
    for metric in ("exact", "span_f1"):
        assert found[metric].mean() == pytest.approx(run.metrics[metric], abs=1e-12)
    model, tokenizer = backbone.load(run.model_folder)
    rows, marks = heads.encode_rows_and_make_scorer(
        tokenizer,
        dev,
        data.find_task_of_descriptor(DATA[task]),
        TRAIN.max_length,
        to_plain_json(SPAN),
    )
    assert np.array_equal(
        marks(loop.predict_logits(model, rows, NUMERICS))[1]["spans"], found["spans"]
    )


def test_no_text_lies_beside_the_weights(runs):
    """What `Store.copy_run_to_records` would commit: every file but the model's."""
    passages = {
        text
        for name in ("SQuAD1", "SQuAD2")
        for text in data.load(DATA[name])["dev"].b[:50]
    }
    passages |= set(data.load(DATA["RTE"])["train"].a)
    for run in runs.values():
        for path in run.folder.iterdir():
            body = path.read_bytes().decode("latin1") if path.is_file() else ""
            assert not any(text in body for text in passages), path


def test_a_distilled_reader_starts_the_next_stage(runs):
    teacher, small, student = (
        backbone.load(runs[name].model_folder)[0]
        for name in ("two", "small", "student")
    )
    assert type(student).__name__ == type(small).__name__ == "BertForQuestionAnswering"
    assert [op["op"] for op in get_recorded_model_changes(student)] == ["cut"]
    assert torch.equal(teacher.qa_outputs.weight, small.qa_outputs.weight)
    moved = (student.qa_outputs.weight - small.qa_outputs.weight).norm()
    assert 0 < moved < 0.5 * small.qa_outputs.weight.norm()
    scores = runs["two ranks"].read_arrays("scores")
    assert scores["heads"].shape == (1, 12) and (scores["heads"] > 0).all()
    assert "best_step" in runs["two"].metrics
    assert {"hard", "soft"} <= losses_of(runs["soft"])[0].keys()


def test_long_passages_are_read_in_windows(runs, store):
    spec = replace(
        SMALL, args=SMALL.args | {"train": to_plain_json(replace(TRAIN, max_length=24))}
    )
    found = execute(spec, store)
    _, tokenizer = backbone.load(runs["two"].model_folder)
    train = data.load(DATA["SQuAD2"])["train"]
    windows = len(
        spans.tokenise_questions(
            tokenizer, train, 24, SPAN.stride, SPAN.max_query
        ).question_index
    )
    assert windows > len(train) and found.metrics["steps"] == -(-windows // TRAIN.batch)


def test_distillation_on_augmented_rows(runs):
    lines = (runs["more"].model_folder / "variants.jsonl").read_text().splitlines()
    rows = [
        list(augment.iterate_pairs_of_text_variants(json.loads(line))) for line in lines
    ]
    before, found = data.load(DATA["RTE"])["train"], runs["more"].metrics
    counts = [len(each) for each in rows]
    assert runs["more"].read_arrays("rows")["counts"].tolist() == counts
    assert found["masked_lm"] is True and found["rows_out"] == sum(counts) > len(before)
    assert runs["with"].metrics["steps"] == -(-sum(counts) // TRAIN.batch) > 3
    assert runs["without"].metrics["steps"] == 3
    assert [each[0] for each in rows] == list(zip(before.a, before.b, strict=True))


def test_spans_cannot_be_augmented(runs, store):
    with pytest.raises(ValueError, match="SQuAD1 cannot be augmented"):
        execute(replace(MORE, args=MORE.args | {"data": DATA["SQuAD1"]}), store)
