"""Heads: classes matched by name, spans in loss and prediction, the rows of a task."""

import numpy as np
import pytest
import torch
import transformers
from torch.nn import functional

from lib.core.names import Refused
from lib.core.options import Numerics, Span, Targets
from lib.core.spec import to_plain_json
from lib.data import Split, Task, spans
from lib.data.read import GLUE
from lib.model import backbone
from lib.model.surgery import apply_surgery
from lib.train import heads, loop, losses
from lib.train.batches import make_batch

NUMERICS = Numerics("float32", 1)
NLI = GLUE["MNLI"]
SQUAD = Task("SQuAD2", True, (), ("span_f1", "exact"), span=True)
SPAN = to_plain_json(Span(stride=4, max_query=3, max_answer=3))
PASSAGE = " ".join(f"word{i}" for i in range(10, 30))


def named(model, names):
    model.config.id2label = dict(enumerate(names))
    model.config.label2id = {n: i for i, n in enumerate(names)}
    return model


def place(text):
    return PASSAGE.index(text), PASSAGE.index(text) + len(text)


QUESTIONS = Split(
    ["word1 word2", "word3", "word1 word2 word3 word4"],
    [PASSAGE] * 3,
    np.array([place("word12 word13"), (-1, -1), place("word29")]),
    np.array([5, 6, 9]),
    [["word12 word13", "word12"], [], ["word29"]],
)


def test_classes_in_the_order_of_the_task_are_kept(tiny, tokenizer, tmp_path):
    model = named(tiny(labels=3), ("ENTAILMENT", "Neutral", "contradiction"))
    backbone.save(model, tokenizer, tmp_path / "model")
    found, _ = heads.load_task_model_and_tokenizer(tmp_path / "model", NLI, 0.0, 0)
    assert torch.equal(found.classifier.weight, model.classifier.weight)


def test_generic_names_stay_as_they_are(tiny, tokenizer, tmp_path):
    model = tiny(labels=3)
    backbone.save(model, tokenizer, tmp_path / "model")
    found, _ = heads.load_task_model_and_tokenizer(tmp_path / "model", NLI, 0.0, 0)
    assert torch.equal(found.classifier.weight, model.classifier.weight)
    with pytest.raises(ValueError, match="has 3 outputs; the task needs 2"):
        heads.load_task_model_and_tokenizer(tmp_path / "model", GLUE["RTE"], 0.0, 0)


@pytest.mark.parametrize(
    "names",
    [("contradict", "entail", "neutral"), ("neutral", "contradiction", "entailment")],
)
def test_other_classes_are_refused_with_the_fix(names, tiny, tokenizer, tmp_path):
    backbone.save(named(tiny(labels=3), names), tokenizer, tmp_path / "model")
    told = (
        f"{', '.join(names)}, the task's entailment, neutral, contradiction; fix: save"
    )
    with pytest.raises(ValueError, match=told):
        heads.load_task_model_and_tokenizer(tmp_path / "model", NLI, 0.0, 0)
    encoder = transformers.AutoModel.from_pretrained(tmp_path / "model")
    backbone.save(encoder, tokenizer, tmp_path / "encoder")
    assert (
        heads.load_task_model_and_tokenizer(tmp_path / "encoder", NLI, 0.0, 0)[
            0
        ].config.num_labels
        == 3
    )


def test_a_new_head_has_no_names_to_match(tiny, tokenizer, tmp_path):
    backbone.save(
        named(tiny(labels=3, masked_lm=True), ("a", "b", "c")),
        tokenizer,
        tmp_path / "model",
    )
    assert (
        heads.load_task_model_and_tokenizer(tmp_path / "model", NLI, 0.0, 0)[
            0
        ].config.num_labels
        == 3
    )


def test_a_span_head_is_drawn_from_the_seed_and_kept(family, tiny, tokenizer, tmp_path):
    backbone.save(tiny(family, masked_lm=True), tokenizer, tmp_path / "model")
    one, same, other = (
        heads.load_task_model_and_tokenizer(tmp_path / "model", SQUAD, 0.1, seed)[0]
        for seed in (0, 0, 1)
    )
    assert torch.equal(one.qa_outputs.weight, same.qa_outputs.weight)
    assert not torch.equal(one.qa_outputs.weight, other.qa_outputs.weight)
    assert {m.p for m in one.modules() if isinstance(m, torch.nn.Dropout)} == {0.1}
    backbone.save(one, tokenizer, tmp_path / "again")
    assert torch.equal(
        heads.load_task_model_and_tokenizer(tmp_path / "again", SQUAD, 0.0, 7)[
            0
        ].qa_outputs.weight,
        one.qa_outputs.weight,
    )


def test_an_operated_model_of_another_kind_marks_no_spans(tiny, tokenizer, tmp_path):
    model = tiny()
    apply_surgery(
        model,
        {"op": "ghost", "kind": "dwconv", "positions": ["o"], "kernel": 3},
        seed=0,
    )
    backbone.save(model, tokenizer, tmp_path / "model")
    with pytest.raises(
        ValueError, match="is a BertForSequenceClassification; the task needs"
    ):
        heads.load_task_model_and_tokenizer(tmp_path / "model", SQUAD, 0.0, 0)


def test_rows_of_spans_without_a_span_are_refused(tokenizer):
    with pytest.raises(Refused, match="SQuAD2 is a task of spans; fix: give it span="):
        heads.encode_rows_and_make_scorer(tokenizer, QUESTIONS, SQUAD, 16)


@pytest.fixture
def reader(tiny):
    torch.manual_seed(0)
    return transformers.BertForQuestionAnswering(tiny().config).eval()


def test_span_logits_are_those_of_plain_calls(reader, tokenizer):
    rows, _ = heads.encode_rows_and_make_scorer(tokenizer, QUESTIONS, SQUAD, 16, SPAN)
    found = loop.predict_logits(reader, rows, NUMERICS, max_batch_tokens=60)
    assert (
        found.shape == (len(rows), 2, rows.compute_row_lengths().max())
        and found.dtype == np.float32
    )
    for w in range(len(rows)):
        batch, size = make_batch(rows, [w]), rows.compute_row_lengths()[w]
        with torch.no_grad():
            out = reader(**batch)
        np.testing.assert_allclose(
            found[w, :, :size], torch.cat([out.start_logits, out.end_logits]), atol=1e-5
        )
        assert (found[w, :, size:] == loop.ABSENT).all()


def test_span_loss_is_the_mean_of_both_cross_entropies(reader, tokenizer):
    rows, _ = heads.encode_rows_and_make_scorer(tokenizer, QUESTIONS, SQUAD, 16, SPAN)
    chosen = list(range(len(rows)))
    batch, labels = make_batch(rows, chosen), rows.labels
    batch |= {name: functional.pad(batch[name], (0, 5)) for name in batch}
    with torch.no_grad():
        logits = loop.compute_logits(reader, batch)
    singles = []
    for w in chosen:  # each row alone, without padding
        size = int(rows.compute_row_lengths()[w])
        for side in (0, 1):
            singles.append(
                functional.cross_entropy(logits[w, side, :size], labels[w, side])
            )
    found = losses.compute_prediction_losses(logits, labels, Targets("hard"))["loss"]
    assert found.item() == pytest.approx(torch.stack(singles).mean().item(), rel=1e-5)
    beyond = labels.clone()
    beyond[0, 0] = logits.shape[2] + 3  # does not count
    assert losses.compute_prediction_losses(logits, beyond, Targets("hard"))[
        "loss"
    ].item() == pytest.approx(torch.stack(singles[1:]).mean().item(), rel=1e-5)


def perfect(rows, windows):
    """Logits that point at the labels."""
    logits = np.zeros((len(rows), 2, rows.compute_row_lengths().max()), np.float32)
    for w, (first, last) in enumerate(rows.labels.tolist()):
        logits[w, 0, first] = logits[w, 1, last] = (
            1.0 if windows.question_index[w] == 1 else 9.0 if first else 1.0
        )
    return logits


def test_marks_of_perfect_logits_and_no_text(tokenizer):
    rows, marks = heads.encode_rows_and_make_scorer(
        tokenizer, QUESTIONS, SQUAD, 16, SPAN
    )
    values, arrays = marks(
        perfect(
            rows,
            spans.tokenise_questions(
                tokenizer, QUESTIONS, 16, SPAN["stride"], SPAN["max_query"]
            ),
        )
    )
    assert (
        values["exact"]
        == values["span_f1"]
        == values["has_answer_exact"]
        == values["no_answer_exact"]
        == 1.0
    )
    assert arrays["spans"][[0, 2]].tolist() == [
        [*place("word12 word13")],
        [*place("word29")],
    ]
    assert arrays["index"].tolist() == [5, 6, 9] and np.array_equal(
        arrays["labels"], QUESTIONS.y
    )
    assert arrays["null"][1] > 0 > arrays["null"][0] and arrays["exact"].tolist() == [
        1,
        1,
        1,
    ]
    assert all(each.dtype.kind in "if" for each in arrays.values())
    found = spans.extract_answer_texts(QUESTIONS, arrays["spans"])
    assert [found[0], found[2]] == ["word12 word13", "word29"]


def test_span_options_name_what_is_wrong():
    with pytest.raises(ValueError, match="Span.stride is 0"):
        Span(0, 64, 30)


def test_soft_span_loss_is_least_at_the_teacher(reader, tokenizer):
    rows, _ = heads.encode_rows_and_make_scorer(tokenizer, QUESTIONS, SQUAD, 16, SPAN)
    teacher = torch.from_numpy(loop.predict_logits(reader, rows, NUMERICS))
    chosen = [0, 1]
    with torch.no_grad():
        logits = loop.compute_logits(reader, make_batch(rows, chosen))
    soft = Targets("soft", sum_classes=True)
    best = losses.compute_prediction_losses(
        logits, rows.labels[chosen], soft, teacher[chosen]
    )["loss"]
    entropy = torch.distributions.Categorical(logits=logits).entropy().mean()
    assert best.item() == pytest.approx(entropy.item(), rel=1e-4)
    moved = losses.compute_prediction_losses(
        logits + torch.randn_like(logits), rows.labels[chosen], soft, teacher[chosen]
    )["loss"]
    assert moved > best


def test_the_first_version_always_answers(tokenizer):
    split = QUESTIONS.select_rows([0, 2])
    rows, marks = heads.encode_rows_and_make_scorer(tokenizer, split, SQUAD, 16, SPAN)
    values, arrays = marks(np.zeros((len(rows), 2, 16), np.float32))
    assert set(values) == {"exact", "span_f1"} and (arrays["spans"] >= 0).all()
