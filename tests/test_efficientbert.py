"""EfficientBERT's Specs: the paper's at their true size without data and weights, the printed settings, its claims."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from conftest import Draft, every_spec, holding

from lib import published
from lib.measure import stats, verdict
from lib.model import backbone, supernet
from lib.page import notebook
from lib.papers import efficientbert, efficientbert_settings, grids, profiles
from lib.search.net import from_json, macs, parameters
from lib.train import loop, students
from lib.train.batches import Encoded
from lib.train.matching import layer_map, matching, projected, teaching

PAGES = [
    p
    for p in notebook.find(["efficientbert_*"])
    if p.stem.split("_")[1] in ("t02", "t03", "t04", "t07", "f01", "f04", "f07", "f08")
]


# ---- the paper's Specs ----
def test_every_network_of_the_pages_builds_at_true_size(anywhere):
    nets = {
        json.dumps(spec.args["net"]): spec
        for spec in every_spec(PAGES, "paper")
        if "net" in spec.args
    }
    heads = {"warmup": transformers.BertForSequenceClassification}
    # supernet, that of stage 3, base, EfficientBERT, TINY, ++, TinyBERT_6, EfficientBERT on its base, TinyBERT_4, the thin one
    assert len(nets) == 10
    for text in nets:
        net = from_json(json.loads(text))
        with torch.device("meta"):
            encoder = supernet.build(net)
            model = supernet.build(net, heads["warmup"], num_labels=3)
        assert backbone.size(encoder)["parameters"] == parameters(net, "with pooler")
        assert (
            backbone.size(model)["parameters"]
            == parameters(net, "with pooler") + 3 * net.hidden + 3
        )


@pytest.mark.parametrize("name", efficientbert.OWN[1:] + efficientbert.OTHER_BASE)
def test_rows_have_the_printed_size(name):
    counted = efficientbert.sizes([name])[name]["M parameters", "counted"]
    tables = {
        "table02_glue_test": name,
        "table07_base_models": "EfficientBERT" if "(" in name else name,
    }
    table = "table07_base_models" if name in efficientbert.OTHER_BASE else "table02_glue_test"
    shown = published.table("efficientbert", table).set_index("Model")["#Params (M)"][tables[table]]
    assert counted == (
        "14.2" if name == "EfficientBERT++" else f"{shown:.1f}"
    )  # the code's own width (corrections.csv)


def test_the_paper_s_settings_are_the_printed_ones(anywhere):
    table = published.table("efficientbert", "hyperparameters")
    told = {(row["Phase"], row["Hyperparameter"]): row["Value"] for row in table.to_dict("records")}
    pre, fine, span = (
        efficientbert.PRETRAIN["paper"],
        *(
            efficientbert.finetuning(efficientbert.FINETUNE, "paper", task)
            for task in ("MNLI", "SQuAD1")
        ),
    )
    cola = efficientbert.finetuning(efficientbert.FINETUNE, "paper", "CoLA")
    together, part = efficientbert.TOGETHER["paper"], efficientbert.CANDIDATE["paper"]
    for (phase, name), value in {
        ("Retraining", "pre-training epochs"): pre.epochs,
        ("Retraining", "pre-training batch size"): pre.batch,
        ("Retraining", "pre-training learning rate"): pre.lr,
        ("Retraining", "fine-tuning batch size"): fine.batch,
        ("Retraining", "fine-tuning epochs (all tasks except CoLA)"): fine.epochs,
        ("Retraining", "fine-tuning epochs (CoLA)"): cola.epochs,
        ("Retraining", "fine-tuning learning rate (GLUE)"): cola.lr,
        ("Retraining", "fine-tuning learning rate (SQuAD)"): span.lr,
        ("Search stage 3, supernet", "fine-tuning epochs"): together.epochs,
        ("Search stages 1 and 2, candidate", "fine-tuning epochs"): part.epochs,
        ("All search stages", "fine-tuning learning rate"): together.lr,
        ("All search stages", "batch size"): part.batch,
        ("All experiments", "maximum sequence length"): pre.max_length,
        ("All experiments", "warm-up proportion"): pre.warmup,
        ("All experiments", "L2 weight decay"): fine.weight_decay,
        (
            "Transfer to TinyBERT_6 (Table 7)",
            "pre-training epochs (from scratch, both models)",
        ): efficientbert.prepared("paper", "TinyBERT_6").args["train"]["epochs"],
    }.items():
        assert float(told[phase, name]) == value, (phase, name)
    for spec in every_spec(PAGES, "paper"):
        if "train" in spec.args:
            assert spec.args["train"]["pad_to"] == spec.args["train"]["max_length"] == 128
        if spec.step in ("warmup", "predistil", "multitask"):
            assert spec.args["warmup"].get("prediction", 0.0) == (spec.step != "predistil")
    assert efficientbert.window("paper") == (15_000_000, 16_000_000)


def test_tenths_are_of_the_official_training_sets():
    rows = {
        "MNLI": 392702,
        "QQP": 363846,
        "QNLI": 104743,
        "SST-2": 67349,
        "CoLA": 8551,
        "STS-B": 5749,
        "MRPC": 3668,
        "RTE": 2490,
    }
    assert efficientbert.TENTH == {task: count // 10 for task, count in rows.items()}
    assert efficientbert.PART == (rows["MNLI"] // 10, rows["MNLI"] // 100)


def test_what_each_row_inherits(anywhere):
    starts = {
        name: efficientbert.student("paper", "RTE", name).inputs.get("start")
        for name in (*efficientbert.OWN, "Base Model", *efficientbert.OTHER_BASE)
    }
    whole = efficientbert.supernet("paper")
    for name in ("EfficientBERT", "EfficientBERT_TINY", "EfficientBERT++", "Base Model"):
        assert starts[name].step == "predistil" and starts[name].inputs["start"] == whole, name
    for name in (efficientbert.COLD, *efficientbert.OTHER_BASE):
        assert "start" not in starts[name].inputs, name
    assert starts[efficientbert.COLD].args["net"] == starts["EfficientBERT"].args["net"]
    assert starts["TinyBERT_6"].args["corpus"]["text"] == "wikipedia"
    assert len(starts["EfficientBERT++"].args["net"]["layers"]) == 12
    plus, several = (
        efficientbert.student("paper", "RTE", efficientbert.PLUS),
        efficientbert.several("paper"),
    )
    assert plus.inputs["start"] == several and plus.args["classifier"] == "RTE"
    assert efficientbert.student("paper", "WNLI", efficientbert.PLUS).args["classifier"] == "QNLI"
    assert "classifier" not in efficientbert.student("paper", "SQuAD1", efficientbert.PLUS).args
    assert several.inputs["start"].inputs["start"] == whole
    assert {name for name in several.inputs if ":" in name} == {
        f"teacher:{task}" for task in efficientbert.TASKS["paper"]
    }
    assert [layer[1:] for layer in several.args["net"]["layers"]] == [[4, 1]] * 6
    formulas = [layer.formula for layer in efficientbert.network("EfficientBERT").layers]
    assert [layer[0] for layer in several.args["net"]["layers"]] == formulas
    tiny, thin = (
        efficientbert.student("paper", "RTE", name).inputs["start"]
        for name in efficientbert.BASELINES["paper"]
    )
    assert (
        tiny.step == "checkpoint"
        and tiny.args["name"] == "2nd_General_TinyBERT_4L_312D"
        and "start" not in thin.inputs
    )
    choices = several.args["shared"]["choices"]
    assert (
        [len(own) for own in choices] == [17] * 6
        and choices[0].count([4, 2]) == 2
        and choices[1].count([2, 1]) == 2
    )


def test_candidates_of_the_paper_see_a_part_of_everything(anywhere):
    net = efficientbert.network("Base Model")
    warm, cold = (efficientbert.candidate("paper", net, inherits) for inherits in (True, False))
    assert (
        warm.inputs["start"].args["corpus"]["documents"] == 120_000
        and warm.inputs["start"].args["train"]["epochs"] == 1
    )
    assert (
        warm.inputs["start"].inputs["start"] == efficientbert.supernet("paper")
        and "start" not in cold.inputs["start"].inputs
    )
    assert (
        warm.args["data"]["task"],
        warm.args["data"]["rows"],
        warm.args["data"]["held_out"],
    ) == ("MNLI", 39270, 3927)
    assert (
        warm.args["data"]["in_order"]
        and efficientbert.several("paper").args["data"]["RTE"]["in_order"]
    )
    small = efficientbert.candidate("mini", efficientbert.scaled("Base Model", "mini"), False)
    assert "start" not in small.inputs and small.args["data"]["rows"] == grids.ROWS["mini"]["SST-2"]


@pytest.mark.parametrize("scale", ["toy", "mini"])
def test_small_windows_lie_as_the_paper_s_and_hold_its_networks(scale):
    low, high = efficientbert.window(scale)
    for name in ("Base Model", "Search Stage 2", "EfficientBERT"):
        assert (
            low
            <= parameters(
                efficientbert.scaled(name, scale), "with projection", **efficientbert.tables(scale)
            )
            <= high
        )
    whole = efficientbert.scaled("Supernet", scale)
    assert parameters(whole, "with projection", **efficientbert.tables(scale)) > high


# ---- two steps at true width ----
@pytest.mark.parametrize(
    "name, layers", [("EfficientBERT", (0, 4)), ("EfficientBERT (TinyBERT_6)", (4,))]
)
def test_two_steps_at_true_width(name, layers, tmp_path):
    """Some of the six layers, the paper's settings but for batch and vocabulary: text, then the task."""
    net = efficientbert.network(name)
    net = replace(net, layers=tuple(net.layers[i] for i in layers))
    config = transformers.BertConfig(num_hidden_layers=2, vocab_size=400, num_labels=2)
    teacher = transformers.BertForSequenceClassification(config).eval()
    student = supernet.build(net, transformers.BertForSequenceClassification, config, num_labels=2)
    student.projection = projected(net.hidden, 768)
    backbone.set_dropout(student, efficientbert.PRETRAIN["paper"].dropout)
    draw = np.random.default_rng(0)
    encoded = Encoded(
        {"input_ids": [draw.integers(5, 400, n) for n in (128, 90, 17, 60)]},
        torch.tensor([0, 1, 1, 0]),
        0,
    )
    before = {key: value.detach().clone() for key, value in student.named_parameters()}
    head = {key for key in before if key.startswith(("classifier", "bert.pooler"))}

    def moved():
        return {
            key for key, value in student.named_parameters() if not torch.equal(value, before[key])
        }

    def fit(settings, options):
        numerics = profiles.profile("paper").numerics
        prediction = students.predicted(lambda rows: encoded.labels[rows], options)

        def forward(batch, _):
            assert batch["input_ids"].shape == (2, 128)
            model = student if prediction else backbone.base(student)
            return model(**batch).get("logits")

        matches = students.matches(student, teacher, options)
        with (
            teaching(teacher, numerics, loop.outputs) as teach,
            matching(student, teach, matches, forward, prediction) as loss,
        ):
            short = replace(settings, batch=2, epochs=1, select="last")
            return loop.fit(Draft(tmp_path), student, encoded, loss, short, numerics)

    options = efficientbert.WARM["paper"]
    first = fit(efficientbert.PRETRAIN["paper"], options)
    used = {key for key in before if "position" not in key and "token_type" not in key} - head
    assert used <= moved() and moved().isdisjoint(head)
    second = fit(efficientbert.FINETUNE["paper"], replace(options, prediction=1.0))
    assert head <= moved()
    assert all(run["steps"] == 2 and np.isfinite(run["train_loss"]) for run in (first, second))
    assert (
        {"hidden", "embedding", "attention"} <= first.keys()
        and "prediction" in second
        or second["train_loss"] > 0
    )


# ---- the small scales ----
def test_identities_of_the_small_scales_do_not_change(without_data):
    """Recorded runs are found by these, also where no data are."""
    without_data()
    for path in PAGES:
        assert notebook.grids(path, {}).keys() & {"recorded", "known_scores"}


def test_small_networks_keep_formulas_and_heads():
    toy = efficientbert.scaled("EfficientBERT", "toy")
    whole = efficientbert.network("EfficientBERT")
    assert toy.layers == (whole.layers[0], whole.layers[3]) and (
        toy.hidden,
        toy.width,
        toy.heads,
    ) == (96, 96, 12)
    assert len(efficientbert.scaled("EfficientBERT++", "toy").layers) == 4
    other = efficientbert.scaled("EfficientBERT (TinyBERT_6)", "mini")
    assert (other.hidden, other.width, other.mismatch, len(other.layers)) == (384, 1536, "pad", 6)


@pytest.mark.parametrize("name", efficientbert.NETS)
def test_every_published_network_has_a_form_at_every_scale(name):
    """DistilBERT_4 had six layers, TinyBERT_4 and BERT_TINY raised KeyError."""
    whole = efficientbert.network(name)
    assert efficientbert.scaled(name, "paper") == whole
    depths = {
        4: {"toy": 1, "mini": 3},
        6: {"toy": 2, "mini": 6},
        12: {"toy": 4, "mini": 12},
        24: {"toy": 8, "mini": 24},
    }
    for scale, depth in depths[len(whole.layers)].items():
        small = efficientbert.scaled(name, scale)
        assert len(small.layers) == depth and layer_map(depth, profiles.shape(scale).layers)
        assert small.heads == whole.heads and small.hidden % small.heads == 0
        assert small.width / small.hidden == pytest.approx(whole.width / whole.hidden, rel=0.02)


def test_the_thin_baseline_is_as_large_as_mobilebert_tiny_and_costs_what_efficientbert_does():
    thin = efficientbert.network(efficientbert.THIN)
    printed = efficientbert.printed("table02_glue_test")["MobileBERT_TINY"][
        "published", "#Params (M)"
    ]
    assert parameters(thin) / 1e6 == pytest.approx(printed, rel=0.01)
    assert len(thin.layers) == 24 and macs(thin) == pytest.approx(
        macs(efficientbert.network("EfficientBERT")), rel=0.01
    )


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: efficientbert.tasks("toy", ["SQuAD3"]),
            "unknown task of source 'toy': 'SQuAD3'; did you mean 'SQuAD",
        ),
        (
            lambda: efficientbert.network("EfficientBRT"),
            "unknown published network: 'EfficientBRT'; did you mean 'EfficientBERT'",
        ),
        (lambda: efficientbert.tasks("tyo"), "unknown profile: 'tyo'; did you mean 'toy'"),
    ],
)
def test_mistakes_are_told(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ---- claims ----
def curve(loss, stride=1):
    return {"step": stride * np.arange(len(loss)), "loss": np.asarray(loss, float)}


def test_smoothing_is_a_trailing_mean():
    ramp = np.arange(40.0)
    assert efficientbert.smoothed(ramp, 0.1)[3:] == pytest.approx(ramp[3:] - 1.5)
    assert efficientbert.smoothed(ramp, 0.1)[:3] == pytest.approx([0.0, 0.5, 1.0])
    assert np.array_equal(efficientbert.smoothed(ramp, 0.0), ramp)


def test_share_of_steps():
    slow, fast = np.full(100, 5.0), np.full(100, 9.0)
    fast[10:] = (
        1.0  # a window of five: the mean falls to 5 with three of the low ones, 5.8 with two
    )
    assert efficientbert.smoothed(fast)[12] == pytest.approx(4.2)
    assert efficientbert.share_of_steps(curve(fast), curve(slow)) == pytest.approx(0.13)
    assert efficientbert.share_of_steps(curve(fast[::2], 2), curve(slow[::2], 2)) == pytest.approx(
        11 / 99
    )
    assert efficientbert.share_of_steps(curve(slow + 1), curve(slow)) == 1.0
    assert efficientbert.share_of_steps(curve(slow), curve(slow)) == pytest.approx(0.01)


def steps_frame(shares):
    rows = []
    for seed, share in enumerate(shares):
        fast = np.full(1000, 9.0)
        fast[int(1000 * share) :] = 0.0
        for model, loss in (("inherits", fast), ("from scratch", np.full(1000, 5.0))):
            rows.append(
                {"model": model, "seed": seed, "run": holding(curve(loss)), "state": "finished"}
            )
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    "shares, scale, word",
    [
        ((0.05, 0.06, 0.05), "mini", "CONFIRMED"),
        ((0.0, 0.08, 0.03), "mini", "CONFIRMED"),
        ((0.6, 0.62, 0.61), "mini", "CONTRADICTED"),
        ((0.05, 0.5, 0.1), "mini", "INCONCLUSIVE"),
        ((0.05,), "mini", "INCONCLUSIVE"),
        ((0.05, 0.06, 0.05), "toy", "NOT_RUN"),
    ],
)
def test_claim_on_steps(shares, scale, word):
    found = efficientbert.claim_steps(steps_frame(shares), scale)
    assert (found.claim, found.verdict) == ("E2", word)


def test_claim_on_steps_without_runs():
    frame = steps_frame((0.1,)).assign(run=None, state="missing")
    assert (
        efficientbert.shares(frame) == {}
        and efficientbert.claim_steps(frame, "mini").verdict == "NOT_RUN"
    )


def test_speedups_are_of_the_same_turn():
    drift = np.linspace(1, 3, 50)  # the machine slows down threefold, the ratios stay
    run = holding({"wall": np.stack([drift * factor for factor in (8.0, 2.0, 4.0, 1.0)])})
    run.spec = efficientbert.latency(1, 50).to_json()
    assert list(run.spec["args"]["models"]) == [
        "BERT_BASE",
        "EfficientBERT",
        "EfficientBERT++",
        "EfficientBERT_TINY",
    ]
    found = efficientbert.speedups(run)
    assert list(found) == list(efficientbert.TIMED[1:])
    assert [e.mean for e in found.values()] == pytest.approx([8, 4, 2])
    assert all(e.low == pytest.approx(e.high) for e in found.values())
    assert list(efficientbert.printed_speedups().items()) == [
        ("EfficientBERT_TINY", "7.0"),
        ("EfficientBERT", "4.4"),
        ("EfficientBERT++", "3.5"),
    ]
    judged = verdict.judge_reached("E5", found, efficientbert.printed_speedups(), "here")
    assert (
        judged.verdict == "PARTIAL"
        and "below the printed value: EfficientBERT, EfficientBERT++" in judged.note
    )


def test_the_speed_is_judged_at_the_batch_of_the_claim():
    """It was the smallest batch that happened to be timed."""

    def timed(batch, factors):
        run = holding(
            {"wall": np.outer((factors[0], *sorted(factors[1:], reverse=True)), np.ones(50))}
        )
        run.spec = efficientbert.latency(batch, 50).to_json()
        return {"batch": batch, "seed": 0, "run": run, "state": "finished"}

    own = pd.DataFrame([timed(1, (8, 8, 8, 8)), timed(128, (8, 1.5, 1.2, 1))])
    found, alone = (
        efficientbert.claim_speed(own),
        efficientbert.claim_speed(own[:1], own.assign(run=None)),
    )
    assert found.verdict == "CONFIRMED" and found.scale == "at full size, batch 128"
    assert alone.verdict == "NOT_RUN" and alone.note == "not timed at the paper's batch of 128"
    batch = (
        published.table("efficientbert", "hyperparameters")
        .set_index("Phase")
        .loc["Latency measurement (Table 2)"]
    )
    assert (
        int(batch.set_index("Hyperparameter")["Value"]["batch size"])
        == efficientbert.CLAIMED
        in efficientbert.TURNS["mini"]
    )


@pytest.mark.parametrize(
    "factors, word",
    [
        ((8, 5, 4), "CONFIRMED"),
        ((6.95, 4.35, 3.45), "CONFIRMED"),
        ((6.9, 4.3, 3.4), "CONTRADICTED"),
        ((8, 4, 2), "PARTIAL"),
        ((), "NOT_RUN"),
    ],
)
def test_what_reaches_the_printed_digits(factors, word):
    cells = {name: stats.replicates([value]) for name, value in zip("abc", factors, strict=False)}
    found = verdict.judge_reached("E5", cells, {"a": "7.0", "b": "4.4", "c": "3.5"}, "here")
    assert (found.verdict, found.scale) == (word, "here")


def test_ratio_s_interval_covers_and_follows_blocks():
    draw = np.random.default_rng(0)
    inside = 0
    for seed in range(60):
        below = np.exp(0.1 * draw.normal(size=100))
        e = stats.ratio(
            3.0 * below * np.exp(0.2 * draw.normal(size=100)), below, draws=400, seed=seed
        )
        inside += e.low <= 3.0 <= e.high
    assert 50 <= inside <= 60
    slow = np.repeat(np.exp(0.2 * draw.normal(size=10)), 10)  # blocks of ten that share their noise
    wide, thin = (stats.ratio(slow, np.ones(100), block=block) for block in (10, 1))
    assert wide.high - wide.low > 1.5 * (thin.high - thin.low)
    with pytest.raises(ValueError, match="at least 20"):
        stats.ratio(np.ones(12), np.ones(12))


def test_replicates():
    e = stats.replicates([0.1, 0.2, 0.3])
    assert (e.mean, e.n_seeds) == (pytest.approx(0.2), 3)
    assert e.high - e.mean == pytest.approx(
        4.302653 * 0.1 / np.sqrt(3), rel=1e-5
    )  # Student's quantile, two degrees
    assert stats.replicates([0.1]).low == 0.1
    with pytest.raises(ValueError, match="at least one"):
        stats.replicates([])


def test_divergences_of_heads():
    even, odd = np.array([[[0.5, 0.5], [0.5, 0.5]]]), np.array([[[0.25, 0.75], [0.5, 0.5]]])
    other = np.array(
        [[[1.0, 0.0], [0.0, 1.0]]]
    )  # second row of text: one real token, what is behind it does not count
    found = {
        "lengths": np.array([2, 1]),
        "attention.reference": np.stack([even, other]),
        "attention.a": np.stack([odd, other]),
        "attention.b": np.stack([even, np.array([[[1.0, 0.0], [1.0, 0.0]]])]),
    }
    one = 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)
    assert efficientbert.divergences(found, "a") == pytest.approx([one / 2 / 2])
    assert efficientbert.divergences(found, "b") == pytest.approx([0.0])


# ---- tables ----
def test_printed_tables():
    rows = efficientbert.printed("table02_glue_test")
    assert (
        rows["BERT-PKD_4"]["published", "average"] == 72.6 and set(efficientbert.OWN) <= rows.keys()
    )
    assert set(efficientbert.SPANS["paper"]) <= efficientbert.printed("table04_squad_dev").keys()
    for table, count in (("table02_glue_test", 15), ("table07_base_models", 2)):
        found = verdict.judge_equal("averages", *efficientbert.averages(table))
        assert found.verdict == "CONFIRMED" and found.measured.startswith(f"{count} of {count}")
    wrong = verdict.judge_equal(
        "averages", *efficientbert.averages("table03_nas_dev")
    )  # 80.3 for 80.35 counted as equal
    assert wrong.verdict == "PARTIAL" and wrong.measured.startswith("3 of 4")
    assert wrong.note == "differs: NAS-BERT_30 (Xu et al., 2021) 80.35 computed, 80.3 printed"


def test_every_correction_stands_on_a_page():
    """Eleven of fifteen stood on none."""
    text = "\n".join(path.read_text() for path in notebook.find(["efficientbert_*"]))
    asked = [
        re.findall(r'\\"([^"\\]+)\\"', call)
        for call in re.findall(r'corrections\(\\"efficientbert\\", (.+?)\)', text)
    ]
    shown = set(
        published.corrections("efficientbert", *{place for places in asked for place in places})
    )
    assert len(shown) == len(published.table("efficientbert", "corrections")) == 15
    for name in ("t02", "t03", "t04", "t05", "t06", "t07"):
        (page,) = notebook.find([f"efficientbert_{name}_*"])
        assert (
            f"table{name.replace('t', '')}" in page.read_text().split("published.corrections", 1)[1]
        )


def test_the_printed_settings_are_those_of_the_specs(anywhere):
    table = efficientbert_settings.compared()
    numbers = table[[efficientbert_settings.is_number(value) for value in table["published"]]]
    there = numbers[numbers["in Specs"] != "–"]
    assert len(there) == 66 and (there["published"] == there["in Specs"]).all()
    assert set(numbers.index.get_level_values(1)[numbers["in Specs"] == "–"]) == {
        "optimization steps",
        "GPUs",
        "weights of the linear operations",
        "bias of the linear operations",
        "randomly selected worse candidates shown",
    }
    assert table.loc[("All experiments", "optimizer"), "in Specs"] == "AdamW"
    spec = efficientbert.student("paper", "RTE", "EfficientBERT")  # the Specs themselves
    assert spec.args["warmup"]["prediction"] == 1.0 and spec.args["train"]["lr"] == 5e-5
    assert spec.inputs["start"].args["train"]["batch"] == 256


def test_sentences_of_the_pages_are_true(anywhere):
    said = {
        name: path.read_text()
        for path in notebook.find(["efficientbert_*"])
        for name in [path.stem.split("_")[1]]
    }
    assert transformers.BertConfig().hidden_act == "gelu"
    assert (
        "also in the teacher" not in said["t01"] and "their teachers keep BERT's own" in said["t01"]
    )
    assert [efficientbert.FINETUNE[scale].select for scale in ("toy", "mini", "paper")] == [
        "last",
        "last",
        "best",
    ]
    assert "at `toy` and `mini` the last model, at `paper` the best one" in said["t03"]
    assert "scikit-learn's boosting in place of LightGBM" in said["t06"]
    for scale in ("toy", "mini"):
        deep, teacher = (
            len(efficientbert.scaled("EfficientBERT++", scale).layers),
            profiles.shape(scale).layers,
        )
        assert deep == 2 * teacher and len(layer_map(deep, teacher)) == teacher
        assert any(
            "every second one is distilled" in line for line in efficientbert.DEVIATIONS[scale]
        )
    assert all(
        any("put together anew in every epoch" in line for line in lines)
        for lines in efficientbert.DEVIATIONS.values()
    )


def test_marks_of_spans():
    frame = pd.DataFrame(
        [
            {
                "task": task,
                "model": "EfficientBERT",
                "seed": seed,
                "run": holding(),
                "state": "finished",
                "exact": 0.5 + seed / 10,
                "span_f1": 0.75,
            }
            for task in ("SQuAD1", "SQuAD2")
            for seed in (0, 1)
        ]
    )
    cells = efficientbert.marks_of_spans(frame, "here")["EfficientBERT"]
    assert list(cells) == [
        ("here", f"SQuAD v{v} {mark}") for v in ("1.1", "2.0") for mark in ("EM", "F1")
    ]
    assert (
        cells["here", "SQuAD v1.1 EM"] == "55.0 ± 7.1 (2)"
        and cells["here", "SQuAD v2.0 F1"] == "75.0 ± 0.0 (2)"
    )


def test_submissions_are_of_the_rows_asked_for():
    rows = grids.submitted(
        "toy",
        ("CoLA", "MNLI"),
        [1],
        lambda task, model: efficientbert.student("toy", task, model),
        model=["EfficientBERT"],
    )
    assert [(row["file"], row["task"], row["model"]) for row in rows] == [
        ("CoLA", "CoLA", "EfficientBERT"),
        ("MNLI-m", "MNLI", "EfficientBERT"),
        ("MNLI-mm", "MNLI", "EfficientBERT"),
        ("AX", "AX", "EfficientBERT"),
    ]
    assert (
        rows[-1]["spec"].inputs["model"] == efficientbert.student("toy", "MNLI", "EfficientBERT")
        and rows[0]["spec"].seed == 1
    )
