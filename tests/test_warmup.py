"""Warm-up distillation: losses against closed forms, parts of a supernet, and every
step of it at the smallest size."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from conftest import (
    finetuned,
    losses_of,
    put,
    same_run,
    scored,
    small_backbone,
    stop_at,
    store_with,
)
from safetensors.numpy import load_file

from lib import data
from lib.core import paths
from lib.core.execute import execute
from lib.core.options import Numerics, Span, Train
from lib.core.spec import Spec, to_plain_json
from lib.core.store import Store
from lib.data import texts
from lib.model import backbone, supernet
from lib.model.ghost import Convolution
from lib.model.parts import get_layers
from lib.model.surgery import apply_surgery
from lib.papers.efficientbert import students
from lib.papers.efficientbert import warming as text
from lib.papers.efficientbert.options import SubnetworkOptions, Warmup
from lib.papers.efficientbert.search.net import (
    BERT,
    Layer,
    Net,
    count_net_parameters,
    make_plain_bert_net,
)
from lib.papers.efficientbert.similarity import compute_cka, compute_kl_divergence
from lib.stats import metrics
from lib.train import heads, loop
from lib.train.batches import encode_split, make_batch
from lib.train.matching import make_projection
from lib.train.steps import latency as timing

PAPER = Warmup(attention="scores", projection="shared", zero=True)
TOY = Warmup(attention="scores", projection="shared", mask=True)
B, T = 3, 5


def rand(*shape, seed=0):
    return torch.randn(
        *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


def net(*told, hidden=24, **changes):
    told = told or (("tanh(W2 gelu(W1 x))", 2, 2), ("W2 relu(W1 x * x)", 1, 3))
    return Net(
        **{
            "hidden": hidden,
            "width": hidden,
            "heads": 12,
            "embedding": "trigram",
            "mismatch": "truncate",
            "layers": tuple(Layer(*layer) for layer in told),
        }
        | changes
    )


@pytest.mark.parametrize("gold", [True, False])
def test_a_regression_has_the_label_or_the_teachers_score(gold):
    mine, theirs, labels = rand(B, 1), rand(B, 1, seed=1), rand(B, seed=2).float()
    target = labels.double() if gold else theirs[:, 0]
    found = students.compute_prediction_loss(
        mine, theirs, labels, replace(PAPER, gold=gold)
    )
    assert found.item() == pytest.approx(
        (mine[:, 0] - target).square().mean().item(), rel=1e-6
    )


@pytest.mark.parametrize("hide", [True, False])
def test_spans_sum_both_ends_and_may_hide_the_first_token(hide):
    mine, theirs = rand(B, 2, T), rand(B, 2, T, seed=1)
    x, y = (mine[..., 1:], theirs[..., 1:]) if hide else (mine, theirs)
    ends = [
        -(y[:, e].softmax(1) * x[:, e].log_softmax(1)).sum() / B / T for e in (0, 1)
    ]
    labels = torch.zeros(B, 2, dtype=torch.long)
    found = students.compute_prediction_loss(
        mine, theirs, labels, replace(PAPER, hide_first=hide)
    )
    assert found.item() == pytest.approx(sum(ends).item(), rel=1e-6)


def matched(student, teacher, options, batch):
    """The parts of the loss of one batch, its rows being all labelled 0."""
    labels = torch.zeros(len(batch["input_ids"])) if options.prediction else None
    with students.build_distillation_loss(
        student, teacher, options, NUMERICS, labels
    ) as loss:
        return loss(batch, range(len(batch["input_ids"])))


def test_the_whole_loss_on_models(tiny, sentences):
    """Parts sum up with unit weights, the prediction with gamma; the teacher gets no
    gradient."""
    torch.manual_seed(0)
    student = supernet.build_efficientbert_model(
        net(), transformers.BertForSequenceClassification, tiny().config
    )
    student.projection = make_projection(24, 48)
    teacher = tiny()
    parts = matched(student, teacher, replace(TOY, prediction=0.5), sentences())
    parts["loss"].backward()
    assert parts.keys() == {"loss", "hidden", "embedding", "attention", "prediction"}
    assert parts["loss"].item() == pytest.approx(
        sum(
            v.item() * (0.5 if k == "prediction" else 1)
            for k, v in parts.items()
            if k != "loss"
        )
    )
    assert all(p.grad is None for p in teacher.parameters())
    for name in (
        "projection.weight",
        "bert.encoder.layer.1.output.networks.0.W2.weight",
        "bert.embeddings.word_embeddings.word_embeddings.weight",
        "bert.encoder.layer.0.attention.self.key.weight",
    ):
        assert (student.get_parameter(name).grad != 0).any(), name


CHOICES = (((1, 1), (1, 2), (2, 1), (4, 4)),) * 2


def test_a_part_is_a_function_of_seed_and_step_inside_its_window():
    whole = net(*[(BERT, 4, 1)] * 2)
    tables = {"teacher": 48, "vocab": 60, "positions": 40}
    low = count_net_parameters(
        net((BERT, 1, 1), (BERT, 1, 2)), "with projection", **tables
    )
    high = count_net_parameters(
        net((BERT, 2, 1), (BERT, 2, 1)), "with projection", **tables
    )
    shared = SubnetworkOptions((low, high), CHOICES)
    drawn = [
        students.sample_subnetwork(whole, shared, 0, step, **tables)
        for step in range(300)
    ]
    assert drawn == [
        students.sample_subnetwork(whole, shared, 0, step, **tables)
        for step in range(300)
    ]
    assert drawn != [
        students.sample_subnetwork(whole, shared, 1, step, **tables)
        for step in range(300)
    ]
    assert all(
        low <= count_net_parameters(part, "with projection", **tables) <= high
        for part in drawn
    )
    seen = {tuple((l.stack, l.q) for l in part.layers) for part in drawn}
    assert len(seen) > 5 and ((1, 2), (1, 2)) not in seen and ((4, 4), (4, 4)) in seen
    with pytest.raises(ValueError, match="none of 10000 draws is in it"):
        students.sample_subnetwork(
            whole, SubnetworkOptions((1, 2), CHOICES), 0, 0, **tables
        )


@pytest.fixture
def library(tmp_path, monkeypatch):
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    monkeypatch.setenv("RUNS_ROOT", str(tmp_path / "runs"))
    texts.read_document_count_and_digest.cache_clear()
    (tmp_path / "wikipedia").mkdir()
    (tmp_path / "books").mkdir()
    pages = "\n\n".join(
        f"Title {d}\nword{d} word1 word2 .\nword3 word{d} ." for d in range(6)
    )
    (tmp_path / "wikipedia" / "train-00.txt").write_text(pages)
    (tmp_path / "wikipedia" / "valid.txt").write_text("never read")
    (tmp_path / "books" / "train-00.txt").write_text(
        "\n".join(f"word{i} ." for i in range(30))
    )
    yield tmp_path
    texts.read_document_count_and_digest.cache_clear()


def test_documents_and_digests_of_text(library):
    told = texts.make_corpus_data_descriptor("wikipedia", 2)
    assert list(texts.iterate_verified_documents(told)) == [
        ["word0 word1 word2 .", "word3 word0 ."],
        ["word1 word1 word2 .", "word3 word1 ."],
    ]
    assert [
        len(document)
        for document in texts.iterate_verified_documents(
            texts.make_corpus_data_descriptor("books")
        )
    ] == [
        20,
        10,
    ]
    mixed = list(
        texts.iterate_verified_documents(
            texts.make_corpus_data_descriptor("wikipedia+books")
        )
    )
    assert len(mixed) == 8 and [len(document) for document in mixed[:5]] == [
        2,
        20,
        2,
        10,
        2,
    ]
    texts.read_document_count_and_digest.cache_clear()
    (library / "wikipedia" / "train-01.txt").write_text("Title\nmore words .")
    assert (
        texts.make_corpus_data_descriptor("wikipedia", 2) == told
    )  # more text behind does not matter
    (library / "wikipedia" / "train-00.txt").write_text("Title\nother words .")
    texts.read_document_count_and_digest.cache_clear()
    with pytest.raises(
        ValueError, match="the text of wikipedia has digest .*put the same data back"
    ):
        texts.iterate_verified_documents(told)
    with pytest.raises(
        ValueError, match="books has 2 documents; this run is of 9: ask for fewer"
    ):
        texts.iterate_verified_documents(texts.make_corpus_data_descriptor("books", 9))
    with pytest.raises(ValueError, match="did you mean 'wikipedia'"):
        texts.make_corpus_data_descriptor("wikpedia")


def test_absent_text_is_told_and_known_by_its_digest(library, monkeypatch):
    (library / "books" / "train-00.txt").unlink()
    monkeypatch.setattr(paths, "DIGESTS", library / "digests.json")
    with pytest.raises(FileNotFoundError, match="no text under .*put UTF-8 files"):
        texts.make_corpus_data_descriptor("books", 7)
    (library / "digests.json").write_text(json.dumps({"texts/books/7": "0123"}))
    assert texts.make_corpus_data_descriptor("books", 7) == {
        "text": "books",
        "digest": "0123",
        "documents": 7,
    }


def test_rows_of_text_are_pairs_in_recycled_epochs(library, tokenizer):
    train = Train(epochs=7, batch=2, lr=1e-3, max_length=12)
    encoded, batches = text.encode_corpus(
        texts.make_corpus_data_descriptor("wikipedia"), tokenizer, train, seed=0
    )
    assert (
        len(encoded) == 5 * 6
        and encoded.labels is None
        and max(encoded.compute_row_lengths()) <= 12
    )
    rows = list(zip(*encoded.columns.values(), strict=True))
    for ids, segments in rows:
        assert (
            ids[0] == tokenizer.cls_token_id
            and (ids == tokenizer.sep_token_id).sum() == 2
        )
        assert segments.tolist() == sorted(segments)
    for epoch in range(7):
        first = 6 * (epoch % 5)
        assert sorted(np.concatenate(batches(epoch))) == list(range(first, first + 6))
        assert len(batches(epoch)) == 3
    assert len({tuple(map(int, ids)) for ids, _ in rows}) > 12  # epochs differ


pytestmark = pytest.mark.usefixtures("few_rows")
NUMERICS = Numerics("float32", 1)
TRAIN = Train(
    epochs=2, batch=16, lr=1e-3, max_length=32, clip=1.0, warmup=0.1, dropout=0.1
)
CORPUS = {"sentences": 90, "seed": 0}
DATA = {
    "CoLA": data.make_data_descriptor("toy", "CoLA", 48, 8, max_unseen_rows=8),
    "scores": scored(48, 8, 8),
}
SPAN = Span(stride=12, max_query=10, max_answer=8)
BACKBONE = small_backbone(TRAIN, sentences=90)
SUPER = net(*[(BERT, 3, 1)] * 2)
WINDOW = SubnetworkOptions((0, 10**9), (((1, 1), (2, 2), (3, 1)),) * 2)
FINE = replace(TOY, prediction=1.0)


STILL = replace(TRAIN, lr=1e-9, dropout=0.0)  # next to nothing


def predistilled(inputs=None, **more):
    told = {"corpus": CORPUS, "warmup": TOY, "train": replace(TRAIN, lr=3e-3)}
    inputs = {"teacher": BACKBONE} | (inputs or {})
    return Spec("predistil", told | {"numerics": NUMERICS} | more, inputs).with_seed(1)


def warmed(teacher, start=None, described=DATA["CoLA"], **more):
    told = {"data": described, "warmup": FINE, "train": TRAIN, "numerics": NUMERICS}
    inputs = {"teacher": teacher} | ({"start": start} if start else {})
    return Spec("warmup", told | more, inputs).with_seed(1)


QUESTIONS = data.make_data_descriptor("toy", "SQuAD2", 48, 8)
TEACHER, SCORER = (
    finetuned(DATA[name], TRAIN, {"start": BACKBONE}).with_seed(1) for name in DATA
)
READER = finetuned(QUESTIONS, TRAIN, {"start": BACKBONE}, span=SPAN).with_seed(1)
WHOLE = predistilled(net=SUPER.to_json())
SHARED = predistilled({"start": WHOLE}, shared=WINDOW)
STUDENT = predistilled({"start": WHOLE}, net=net().to_json())
TOLD = {
    "data": DATA,
    "warmup": replace(FINE, gold=True),
    "train": TRAIN,
    "shared": WINDOW,
}
TAUGHT = {"teacher:CoLA": TEACHER, "teacher:scores": SCORER, "start": SHARED}
MANY = Spec("multitask", TOLD | {"numerics": NUMERICS}, TAUGHT).with_seed(1)
FINAL = warmed(TEACHER, STUDENT)
CHAIN = {
    "backbone": BACKBONE,
    "teacher": TEACHER,
    "scorer": SCORER,
    "reader": READER,
    "whole": WHOLE,
    "shared": SHARED,
    "student": STUDENT,
    "many": MANY,
    "final": FINAL,
    "cold": warmed(TEACHER, net=net().to_json()),
    "plus": warmed(TEACHER, MANY, net=net().to_json(), classifier="CoLA", train=STILL),
    "deep": warmed(TEACHER, WHOLE, net=net(*[(BERT, 1, 1)] * 4, hidden=12).to_json()),
    "published": warmed(
        TEACHER, BACKBONE, net=make_plain_bert_net(2, 48, 96).to_json(), train=STILL
    ),
    "answers": warmed(
        READER, STUDENT, QUESTIONS, span=SPAN, warmup=replace(FINE, hide_first=True)
    ),
    "best": warmed(TEACHER, STUDENT, train=replace(TRAIN, select="best", eval_every=2)),
    "maps": Spec(
        "maps",
        {
            "data": DATA["CoLA"],
            "rows": [0, 3],
            "examples": 6,
            "max_length": 32,
            "numerics": NUMERICS,
        },
        {"reference": TEACHER, "model:final": FINAL, "model": TEACHER},
    ).with_seed(1),
}


def test_metrics_are_finite_and_losses_fall(runs):
    for name in (
        "whole",
        "shared",
        "student",
        "many",
        "final",
        "cold",
        "deep",
        "answers",
    ):
        run = runs[name]
        assert all(
            np.isfinite(v) for v in run.metrics.values() if isinstance(v, float)
        ), name
        curve, steps = run.read_arrays("curve"), run.metrics["steps"]
        assert (
            curve["step"].tolist() == list(range(steps)) and len(curve["loss"]) == steps
        )
        first, second = (part.mean() for part in np.array_split(curve["loss"], 2))
        assert name == "shared" or second < first
        total = (
            curve["hidden"]
            + curve["embedding"]
            + curve["attention"]
            + curve.get("prediction", 0)
        )
        np.testing.assert_allclose(curve["loss"], total, rtol=1e-5)


def test_students_are_their_nets_and_really_small(runs):
    vocab = runs["backbone"].metrics["vocabulary"]
    large, small = (
        count_net_parameters(each, "with pooler", vocab=vocab, positions=128)
        for each in (SUPER, net())
    )
    for names, wanted, number in (
        (("whole", "shared", "many"), SUPER, large),
        (("student",), net(), small),
        (("final", "plus"), net(), small + 2 * 24 + 2),
    ):
        for name in names:
            model, _ = backbone.load(runs[name].model_folder)
            assert supernet.read_architecture_of_model(
                model
            ) == wanted.to_json() and not hasattr(model, "projection")
            assert runs[name].metrics["parameters"] == number, name
    for name, width in (("student", 24), ("deep", 12)):
        kept = load_file(runs[name].model_folder / students.PROJECTION)
        assert kept[f"{students.MAP}weight"].shape == (48, width)


def test_a_student_starts_with_what_it_inherits(runs):
    """At a rate of next to nothing, "plus" stays what was cut out of its start, head
    included; and a student of a trained supernet begins lower than that began."""
    start, _ = students.load_classifier(runs["many"].model_folder, "CoLA")
    found, tokenizer = backbone.load(runs["plus"].model_folder)
    rows = encode_split(tokenizer, data.load(DATA["CoLA"])["dev"], 32)
    supernet.activate_subnetwork(start, net())
    both = (loop.predict_logits(model, rows, NUMERICS) for model in (found, start))
    np.testing.assert_allclose(*both, atol=1e-4)
    first, whole = (
        runs[name].read_arrays("curve")["loss"][0] for name in ("student", "whole")
    )
    assert first < 0.9 * whole


def test_a_published_checkpoint_is_a_start(runs):
    """TinyBERT_4 at `paper`: a plain BERT, whose blocks are stacks of one; at a rate of
    next to nothing they stay."""
    there, _ = backbone.load(runs["backbone"].model_folder)
    found, _ = backbone.load(runs["published"].model_folder)
    for theirs, mine in zip(get_layers(there), get_layers(found), strict=True):
        network = mine.output.networks[0]
        for old, new in (
            (theirs.intermediate.dense, network.W1),
            (theirs.output.dense, network.W2),
        ):
            assert (old.weight - new.weight).abs().max() < 1e-6
            assert (old.bias - new.bias).abs().max() < 1e-6


def test_predictions_are_those_of_the_saved_model(runs):
    dev = data.load(DATA["CoLA"])["dev"]
    found = runs["final"].read_arrays("predictions")
    model, tokenizer = backbone.load(runs["final"].model_folder)
    again = loop.predict_logits(model, encode_split(tokenizer, dev, 32), NUMERICS)
    assert np.array_equal(again, found["logits"])
    held = runs["final"].read_arrays("predictions_held_out")
    told = runs["final"].metrics
    assert np.array_equal(held["labels"], data.load(DATA["CoLA"])["held_out"].y)
    assert told["matthews"] == metrics.compute_metric(
        "matthews", found["logits"], dev.y
    )
    assert told["held_out.matthews"] == metrics.compute_metric(
        "matthews", held["logits"], held["labels"]
    )
    assert "unseen.matthews" in told
    assert runs["final"].read_arrays("predictions_unseen").keys() == {"bits"}
    again, _ = heads.load_task_model_and_tokenizer(
        runs["final"].model_folder, data.find_task_of_descriptor(DATA["CoLA"]), 0.1, 0
    )
    assert type(again) is type(model) and "exact" in runs["answers"].metrics


def test_held_out_rows_select(runs):
    scored = {
        line["step"]: line["score"]
        for line in runs["best"].read_json_lines("events.jsonl")
        if "score" in line
    }
    assert sorted(scored) == [2, 4, 6]
    assert max(scored.values()) == runs["best"].metrics["held_out.matthews"]
    assert len(runs["best"].read_arrays("curve")["loss"]) == 6


@pytest.mark.parametrize("name, metric", [("CoLA", "matthews"), ("scores", "pearson")])
def test_each_task_of_many_has_its_head(name, metric, runs):
    model, tokenizer = students.load_classifier(runs["many"].model_folder, name)
    dev = data.load(DATA[name])["dev"]
    found = runs["many"].read_arrays(f"predictions_{name}")
    again = loop.predict_logits(model, encode_split(tokenizer, dev, 32), NUMERICS)
    assert np.array_equal(again, found["logits"])
    assert runs["many"].metrics[f"{name}.{metric}"] == metrics.compute_metric(
        metric, found["logits"], dev.y
    )
    assert len(runs["many"].read_arrays(f"predictions_{name}_unseen")) == 1
    assert f"{name}_unseen.{metric}" in runs["many"].metrics
    with pytest.raises(KeyError, match="MNLI"):
        students.load_classification_head(runs["many"].model_folder, "MNLI")


def test_a_shared_step_trains_the_part_that_it_draws(runs, store):
    """One step, computed again by hand; networks out of its part stay where they
    were."""
    once = to_plain_json(replace(TRAIN, epochs=1, batch=500, dropout=0.0))
    run = execute(
        replace(SHARED, args=SHARED.args | {"train": once}), store, keep_weights=True
    )
    assert run.metrics["steps"] == 1
    start, tokenizer = backbone.load(runs["whole"].model_folder)
    teacher, _ = backbone.load(runs["backbone"].model_folder)
    kept = load_file(runs["whole"].model_folder / students.PROJECTION)
    start.projection = make_projection(24, 48)
    start.projection.load_state_dict(
        {k.removeprefix(students.MAP): torch.from_numpy(v) for k, v in kept.items()}
    )
    students.SubnetworkTraining(start, WINDOW, 1).before_forward_pass(0, 1)
    encoded, _ = text.encode_corpus(CORPUS, tokenizer, replace(TRAIN, max_length=32), 1)
    batch = make_batch(encoded, range(len(encoded)))
    with torch.no_grad():
        found = matched(start, teacher, TOY, batch)
    assert losses_of(run)[0]["loss"] == pytest.approx(found["loss"].item(), rel=1e-5)
    before, after = start.state_dict(), backbone.load(run.model_folder)[0].state_dict()
    moved = {name for name in after if not torch.equal(before[name], after[name])}
    for number, layer in enumerate(get_layers(start)):
        for k in range(3):
            key = f"encoder.layer.{number}.output.networks.{k}.W1.weight"
            assert (key in moved) == (k < layer.output.active)
    assert min(layer.output.active for layer in get_layers(start)) < 3


def test_a_killed_run_goes_on_to_the_same_bits(runs, tmp_path, monkeypatch):
    """Shared training and its curve, stopped behind the checkpoint after its second
    step and resumed."""
    store = store_with(tmp_path, runs["backbone"], runs["whole"])
    stop_at(monkeypatch, loop, "write_checkpoint", 3)  # after the third step is logged
    with pytest.raises(KeyboardInterrupt):
        execute(SHARED, store, keep_weights=True, checkpoint_interval_seconds=0.0)
    found = execute(SHARED, store, keep_weights=True, checkpoint_interval_seconds=0.0)
    assert found.status["attempts"] == 2
    same_run(found, runs["shared"])


def test_maps_of_the_reference_are_its_own(runs):
    run = runs["maps"]
    found = run.read_arrays("maps")
    lengths = found["lengths"]
    longest, ours = lengths.max(), found["attention.reference"]
    assert found["attention.model:final"].shape == (2, 12, longest, longest)
    for name in ("model:final", "reference"):
        assert found[f"output.{name}"].shape == (2, longest, 48)
    for line, length in enumerate(lengths):
        np.testing.assert_allclose(
            ours[line, :, :length, :length].sum(-1), 1, rtol=1e-5
        )
        assert (ours[line, :, length:] == 0).all()
    assert run.metrics["model.kl"] == 0 == run.metrics["model.kl_mean_map"]
    assert run.metrics["model.cka"] == pytest.approx(1)
    assert run.metrics["model:final.kl"] > 0 and 0 < run.metrics["model:final.cka"] < 1
    model, tokenizer = backbone.load(runs["teacher"].model_folder)
    model.set_attn_implementation("eager")
    batch = make_batch(
        encode_split(tokenizer, data.load(DATA["CoLA"])["dev"].select_rows([3]), 32),
        [0],
    )
    with torch.no_grad():
        wanted = model(**batch, output_attentions=True).attentions[-1][0].numpy()
    np.testing.assert_allclose(
        ours[1, :, : lengths[1], : lengths[1]], wanted, atol=1e-6
    )


def test_similarity_figures():
    x, y = (rand(40, 6, seed=i).numpy() for i in (0, 1))
    rotation = np.linalg.qr(rand(6, 6, seed=2).numpy())[0]
    assert (
        compute_cka(x, 3 * x @ rotation + 5) == pytest.approx(1)
        and compute_cka(x, y) < 0.6
    )
    centred = [each - each.mean(0) for each in (x, y)]
    kernels = [each @ each.T for each in centred]
    wanted = (kernels[0] * kernels[1]).sum() / (
        np.linalg.norm(kernels[0]) * np.linalg.norm(kernels[1])
    )
    assert compute_cka(x, y) == pytest.approx(wanted)
    p, q = np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[0.25, 0.75], [1.0, 0.0]])
    assert compute_kl_divergence(p, q).mean() == pytest.approx(
        0.5 * (0.5 * np.log(2) + 0.5 * np.log(2 / 3))
    )


def timed(reference, **others):
    told = {
        "models": {"A": reference} | others,
        "reference": "A",
        "batch": 2,
        "length": 16,
    }
    return Spec("latency", told | {"runs": 50, "numerics": NUMERICS}, seed=0)


def test_latency_measures_every_model_in_turns(tmp_path, monkeypatch):
    small = net((BERT, 1, 1), hidden=24)
    tiny = replace(
        timing.SHAPES["bert-base"], layers=1, hidden=48, ffn=96, embedding=48, vocab=500
    )
    monkeypatch.setitem(timing.SHAPES, "small", tiny)
    cut = {"shape": "small", "surgery": [{"op": "cut", "heads": 3}]}
    spec = timed({"shape": "small"}, B={"net": small.to_json()}, C=cut)
    run = execute(spec, Store(tmp_path / "runs", tmp_path / "none"))
    times, found = run.read_arrays("times"), run.metrics
    assert (
        times["wall"].shape == times["cpu"].shape == (3, 50)
        and (times["wall"] > 0).all()
    )
    assert found["A.wall_speedup"] == found["A.cpu_speedup"] == 1.0
    assert found["C.parameters"] < found["A.parameters"]
    assert found["B.parameters"] == count_net_parameters(small, "with pooler")
    assert found["B.wall_ms"] == pytest.approx(1e3 * np.median(times["wall"][1]))
    assert found["B.wall_ms_p5"] <= found["B.wall_ms"] <= found["B.wall_ms_p95"]


def test_latency_times_ghosts_of_attention_with_their_attention(tmp_path, monkeypatch):
    small = replace(
        timing.SHAPES["bert-base"], layers=1, hidden=48, ffn=96, embedding=48, vocab=500
    )
    monkeypatch.setitem(timing.SHAPES, "small", small)
    ghost = {"op": "ghost", "kind": "conv2d", "positions": ["qk"], "kernel": 3}
    surgery = [{"op": "cut", "heads": 3, "whole": ["v", "o"]}, ghost]
    spec = timed({"shape": "small"}, B={"shape": "small", "surgery": surgery})
    calls, compute = [], Convolution.forward
    monkeypatch.setattr(
        Convolution, "forward", lambda self, x: calls.append(1) or compute(self, x)
    )
    execute(spec, Store(tmp_path / "runs", tmp_path / "none"))
    assert len(calls) >= 50


def test_a_start_without_stacks_is_refused(runs, store):
    with pytest.raises(ValueError, match="has no stacks of feed-forward networks"):
        execute(warmed(TEACHER, TEACHER), store)


def test_the_projection_of_a_cut_student_comes_from_the_run_s_seed(
    tiny, tokenizer, tmp_path
):
    model, task = tiny("bert"), SimpleNamespace(span=False, output_width=2, labels=())
    apply_surgery(model, {"op": "cut", "heads": 3})
    backbone.save(model, tokenizer, tmp_path / "model")
    put(tmp_path, "surgery.json", "[]")

    def projection(seed):
        torch.seed()  # as a new process begins
        start = SimpleNamespace(folder=tmp_path, model_folder=tmp_path / "model")
        run = SimpleNamespace(inputs={"start": start}, seed=seed)
        return students.make_student_for_task(
            run, None, task, tiny("bert"), 0.1
        ).projection.weight

    assert torch.equal(projection(1), projection(1))
    assert not torch.equal(projection(1), projection(2))
