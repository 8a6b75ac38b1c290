"""EfficientBERT's Specs without data and weights, its printed settings, tables and
claims."""

import json
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import transformers
from conftest import every_spec, holding

from lib.claims import notebook
from lib.model import parts, supernet
from lib.papers import grids, published
from lib.papers import settings as paper_settings
from lib.papers.efficientbert import measures
from lib.papers.efficientbert import recipes as efficientbert
from lib.papers.efficientbert.search.net import (
    count_macs_per_token,
    count_net_parameters,
    from_json,
)
from lib.stats import paired
from lib.train.matching import pair_student_with_teacher_layers

PAGES = [
    p
    for p in notebook.find_notebooks(["efficientbert_*"])
    if notebook.make_notebook_id(p).split("_")[1]
    in ("t02", "t03", "t04", "t07", "f01", "f04", "f07", "f08")
]


def test_every_network_of_the_pages_builds_at_true_size(anywhere):
    specs = every_spec(PAGES, "paper")
    nets = {json.dumps(spec.args["net"]) for spec in specs if "net" in spec.args}
    # supernet, that of stage 3, base, EfficientBERT, TINY, ++, TinyBERT_6,
    # EfficientBERT on its base, TinyBERT_4, the thin one
    assert len(nets) == 10
    for text in nets:
        net = from_json(json.loads(text))
        with torch.device("meta"):
            encoder = supernet.build_efficientbert_model(net)
            model = supernet.build_efficientbert_model(
                net, transformers.BertForSequenceClassification, num_labels=3
            )
        count, head = count_net_parameters(net, "with pooler"), 3 * net.hidden + 3
        assert parts.count_parameters(encoder)["parameters"] == count
        assert parts.count_parameters(model)["parameters"] == count + head
    for spec in specs:
        if "train" in spec.args:
            assert (
                spec.args["train"]["pad_to"] == spec.args["train"]["max_length"] == 128
            )
        if spec.step in ("warmup", "predistil", "multitask"):
            assert spec.args["warmup"].get("prediction", 0.0) == (
                spec.step != "predistil"
            )


@pytest.mark.parametrize("name", efficientbert.OWN[1:] + efficientbert.OTHER_BASE)
def test_rows_have_the_printed_size(name):
    other = name in efficientbert.OTHER_BASE
    table = "table07_base_models" if other else "table02_glue_test"
    row = "EfficientBERT" if "(" in name else name
    shown = published.read_table("efficientbert", table).set_index("Model")[
        "#Params (M)"
    ][row]
    told = (
        "14.2" if name == "EfficientBERT++" else f"{shown:.1f}"
    )  # its code has another width
    count = count_net_parameters(efficientbert.find_network(name), "with projection")
    assert f"{count / 1e6:.1f}" == told


def test_the_printed_settings_are_those_of_the_specs():
    (path,) = notebook.find_notebooks(["efficientbert_s43"])
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
    names = {"page": Mock()}
    for cell in cells[3:6]:
        exec(cell, names)
    table = names["table"]
    assert table.columns.tolist() == [("published", "Value"), ("used here", "Value")]
    numbers = table[table["published", "Value"].str.fullmatch(r"-?[\d.]+(e-?\d+)?")]
    there = numbers[numbers["used here", "Value"] != "–"]
    assert (
        len(there) == 66
        and not paper_settings.mark_cells_that_differ_from_paper(there).to_numpy().any()
    )
    assert set(
        numbers.index.get_level_values(1)[numbers["used here", "Value"] == "–"]
    ) == {
        "optimization steps",
        "GPUs",
        "weights of the linear operations",
        "bias of the linear operations",
        "randomly selected worse candidates shown",
    }
    adam = table[table.index.get_level_values(1) == "optimizer"]
    assert adam["used here", "Value"].item() == "AdamW"
    assert (
        paper_settings.mark_settings_differing_from_paper(adam).iloc[0].tolist()[1]
        == "AdamW ≠"
    )
    assert efficientbert.find_parameter_count_bounds("paper") == (
        15_000_000,
        16_000_000,
    )
    assert efficientbert.CLAIMED in efficientbert.TURNS["mini"]


def test_tenths_are_of_the_official_training_sets():
    rows = (392702, 363846, 104743, 67349, 8551, 5749, 3668, 2490)
    assert list(efficientbert.TENTH.values()) == [count // 10 for count in rows]
    assert efficientbert.PART["paper"] == (rows[0] // 10, rows[0] // 100)


def test_what_each_row_inherits(anywhere):
    names = ("Base Model", *efficientbert.OWN[1:], *efficientbert.OTHER_BASE)
    students = {
        name: efficientbert.student_spec("paper", "RTE", name) for name in names
    }
    starts = {name: spec.inputs["start"] for name, spec in students.items()}
    whole = efficientbert.pretrained_supernet_spec("paper")
    several = efficientbert.search_stage_3_supernet_training_spec("paper")
    for name in (
        "EfficientBERT",
        "EfficientBERT_TINY",
        "EfficientBERT++",
        "Base Model",
    ):
        assert (
            starts[name].step == "predistil" and starts[name].inputs["start"] == whole
        ), name
    for name in (efficientbert.COLD, *efficientbert.OTHER_BASE):
        assert "start" not in starts[name].inputs, name
    assert starts[efficientbert.COLD].args["net"] == starts["EfficientBERT"].args["net"]
    assert starts["TinyBERT_6"].args["corpus"]["text"] == "wikipedia"
    assert len(starts["EfficientBERT++"].args["net"]["layers"]) == 12
    assert starts[efficientbert.PLUS] == several
    for task, head in {"RTE": "RTE", "WNLI": "QNLI", "SQuAD1": None}.items():
        plus = efficientbert.student_spec("paper", task, efficientbert.PLUS)
        assert plus.args.get("classifier") == head
    small = efficientbert.BASELINES["paper"]
    tiny, thin = (
        efficientbert.pretrained_network_spec("paper", name) for name in small
    )
    assert (
        tiny.args["name"] == "2nd_General_TinyBERT_4L_312D"
        and "start" not in thin.inputs
    )


def test_the_supernet_of_several_tasks_has_the_formulas_of_stage_2(anywhere):
    several = efficientbert.search_stage_3_supernet_training_spec("paper")
    assert several.inputs["start"].inputs[
        "start"
    ] == efficientbert.pretrained_supernet_spec("paper")
    teachers = {name for name in several.inputs if ":" in name}
    assert teachers == {f"teacher:{task}" for task in efficientbert.TASKS["paper"]}
    layers = efficientbert.find_network("EfficientBERT").layers
    assert several.args["net"]["layers"] == [[layer.formula, 4, 1] for layer in layers]
    assert several.args["data"]["RTE"]["in_order"]
    choices = several.args["shared"]["choices"]
    assert [len(own) for own in choices] == [17] * 6
    assert choices[0].count([4, 2]) == 2 and choices[1].count([2, 1]) == 2


def test_candidates_of_the_paper_see_a_part_of_everything(anywhere):
    net = efficientbert.find_network("Base Model")
    warm, cold = (
        efficientbert.brief_training_spec("paper", net, inherits)
        for inherits in (True, False)
    )
    read = warm.inputs["start"]
    assert (
        read.args["corpus"]["documents"] == 120_000
        and read.args["train"]["epochs"] == 1
    )
    first = efficientbert.pretrained_supernet_spec("paper", "wikipedia")
    assert (
        read.inputs["start"]
        == first
        == efficientbert.search_stages_1_and_2_supernet_training_spec("paper")
    )
    assert first.args["corpus"]["text"] == "wikipedia"
    assert "start" not in cold.inputs["start"].inputs
    told = {"task": "MNLI", "rows": 39270, "held_out": 3927, "in_order": True}
    assert told.items() <= warm.args["data"].items()
    small = efficientbert.brief_training_spec(
        "mini", efficientbert.scale_network_to_profile("Base Model", "mini"), False
    )
    assert (
        "start" not in small.inputs
        and small.args["data"]["rows"] == grids.ROWS["mini"]["SST-2"]
    )


def test_recorded_runs_are_found_without_data(without_data):
    without_data()
    for path in PAGES:
        assert notebook.execute_grid_cell_and_list_rows_by_variable(path, {}).keys() & {
            "recorded",
            "known_scores",
        }


@pytest.mark.parametrize("scale", ["toy", "mini"])
def test_small_windows_lie_as_the_paper_s_and_hold_its_networks(scale):
    low, high = efficientbert.find_parameter_count_bounds(scale)

    def size(name):
        net = efficientbert.scale_network_to_profile(name, scale)
        return count_net_parameters(
            net, "with projection", **efficientbert.list_embedding_sizes(scale)
        )

    for name in ("Base Model", "Search Stage 2", "EfficientBERT"):
        assert low <= size(name) <= high
    assert size("Supernet") > high


def test_small_networks_keep_formulas_and_heads():
    toy = efficientbert.scale_network_to_profile("EfficientBERT", "toy")
    whole = efficientbert.find_network("EfficientBERT")
    assert toy.layers == (whole.layers[0], whole.layers[3])
    assert (toy.hidden, toy.width, toy.heads) == (48, 48, 12)
    other = efficientbert.scale_network_to_profile("EfficientBERT (TinyBERT_6)", "mini")
    assert (other.hidden, other.width, other.mismatch, len(other.layers)) == (
        384,
        1536,
        "pad",
        6,
    )


DEPTHS = {"toy": {4: 1, 6: 2, 12: 4, 24: 8}, "mini": {4: 3, 6: 6, 12: 12, 24: 24}}


@pytest.mark.parametrize("name", efficientbert.NETS)
def test_every_published_network_has_a_form_at_every_scale(name):
    whole = efficientbert.find_network(name)
    assert efficientbert.scale_network_to_profile(name, "paper") == whole
    for scale, depths in DEPTHS.items():
        small = efficientbert.scale_network_to_profile(name, scale)
        depth = depths[len(whole.layers)]
        assert len(small.layers) == depth
        assert pair_student_with_teacher_layers(
            depth, grids.find_encoder_shape(scale).layers
        )
        assert small.heads == whole.heads and small.hidden % small.heads == 0
        assert small.width / small.hidden == pytest.approx(
            whole.width / whole.hidden, rel=0.02
        )


def test_the_thin_baseline_is_as_large_as_mobilebert_tiny_and_costs_what_efficientbert_does():
    thin = efficientbert.find_network(efficientbert.THIN)
    own = efficientbert.find_network("EfficientBERT")
    row = efficientbert.read_printed_table("table02_glue_test")["MobileBERT_TINY"]
    assert count_net_parameters(thin) / 1e6 == pytest.approx(
        row["published", "#Params (M)"], rel=0.01
    )
    assert len(thin.layers) == 24 and count_macs_per_token(thin) == pytest.approx(
        count_macs_per_token(own), rel=0.01
    )


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: efficientbert.tasks("toy", ["SQuAD3"]),
            "unknown task of this page: 'SQuAD3'",
        ),
        (
            lambda: efficientbert.find_network("EfficientBRT"),
            "network: 'EfficientBRT'; did you mean",
        ),
    ],
)
def test_mistakes_are_told(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def curve(loss, stride=1):
    return {"step": stride * np.arange(len(loss)), "loss": np.asarray(loss, float)}


def test_a_profile_without_settings_is_refused(anywhere):
    for make in (efficientbert.teacher_spec, efficientbert.student_spec):
        with pytest.raises(ValueError, match="profile base .* toy, mini, paper"):
            make(
                "base",
                "SST-2",
                *["EfficientBERT"] * (make is not efficientbert.teacher_spec),
            )


def test_deviations_have_the_sizes_of_the_settings():
    encoder = grids.find_encoder_shape("toy")
    toy, mini = (" ".join(efficientbert.DEVIATIONS[at]) for at in ("toy", "mini"))
    wide, thin = (efficientbert.SIZES["toy"][size] for size in ("540", "360"))
    assert f"has {encoder.layers} layers of {encoder.hidden}." in toy
    layers = efficientbert.LAYERS["toy"]
    assert f"have {layers} layers of {wide} (TINY and ++: {thin})" in toy
    wide, thin = (efficientbert.SIZES["mini"][size] for size in ("540", "360"))
    assert f"are {wide} wide in place of 540, and {thin} (TINY and ++)" in mini


def test_smoothing_is_a_trailing_mean():
    ramp = np.arange(40.0)
    assert measures.smooth_loss(ramp, 0.1)[3:] == pytest.approx(ramp[3:] - 1.5)
    assert measures.smooth_loss(ramp, 0.1)[:3] == pytest.approx([0.0, 0.5, 1.0])
    assert np.array_equal(measures.smooth_loss(ramp, 0.0), ramp)


def test_share_of_steps():
    slow, fast = np.full(100, 5.0), np.full(100, 9.0)
    fast[10:] = (
        1.0  # the mean of five falls to 5 with three of the low ones, to 5.8 with two
    )
    share = measures.compute_share_of_steps_to_match_loss
    assert share(curve(fast), curve(slow)) == pytest.approx(0.13)
    assert share(curve(fast[::2], 2), curve(slow[::2], 2)) == pytest.approx(11 / 99)
    assert share(curve(slow + 1), curve(slow)) == 1.0
    assert share(curve(slow), curve(slow)) == pytest.approx(0.01)


def timed(batch, times):
    """A row of timings: BERT-base's time, then those of the networks from slow to
    fast."""
    run = holding({"wall": np.stack([time * np.linspace(1, 3, 50) for time in times])})
    run.spec = efficientbert.latency_spec(batch, 50).to_json()
    return {"batch": batch, "seed": 0, "run": run, "state": "finished"}


def test_ratio_s_interval_covers_and_follows_blocks():
    draw, inside, widths = np.random.default_rng(0), 0, []
    for seed in range(60):
        below = np.exp(0.1 * draw.normal(size=100))
        above = 3.0 * below * np.exp(0.2 * draw.normal(size=100))
        e = paired.estimate_median_time_ratio(
            above, below, bootstrap_draw_count=400, seed=seed
        )
        inside += e.low <= 3.0 <= e.high
        widths.append(e.high - e.low)
    # A median's error is 1.253 times that of a mean: 3 * 2 * 1.96 * 1.253 * 0.2 / 10.
    assert inside >= 50 and np.mean(widths) == pytest.approx(0.295, rel=0.25)
    slow = np.repeat(
        np.exp(0.2 * draw.normal(size=10)), 10
    )  # blocks of ten that share their noise
    wide, thin = (
        paired.estimate_median_time_ratio(
            slow, np.ones(100), turns_per_bootstrap_block=block
        )
        for block in (10, 1)
    )
    assert wide.high - wide.low > 1.5 * (thin.high - thin.low)


def test_ratio_s_interval_has_the_ratio_where_blocks_seldom_have_the_ends():
    slow = np.r_[np.full(5, 10.0), np.ones(9), np.full(6, 10.0)]
    e = paired.estimate_median_time_ratio(
        slow, np.ones(20), bootstrap_draw_count=400, seed=11
    )
    assert e.low <= e.mean == 10 == e.high
    e = paired.estimate_median_time_ratio(
        1 / slow, np.ones(20), bootstrap_draw_count=400, seed=11
    )
    assert e.low == e.mean == 0.1 <= e.high


@pytest.mark.parametrize("turns", [4, 10, 12])
def test_few_turns_have_an_interval_with_a_width(turns):
    """One block of all turns would be the same in every draw."""
    times = 1 + np.arange(turns) % 3
    e = paired.estimate_median_time_ratio(times, np.ones(turns))
    assert e.low < e.high


def test_printed_tables():
    rows = efficientbert.read_printed_table("table02_glue_test")
    assert rows["BERT-PKD_4"]["published", "average"] == 72.6
    assert set(efficientbert.OWN) <= rows.keys()
    assert (
        set(efficientbert.SPANS["paper"])
        <= efficientbert.read_printed_table("table04_squad_dev").keys()
    )


def test_sentences_of_the_pages_are_true(anywhere):
    assert transformers.BertConfig().hidden_act == "gelu"
    selected = [
        efficientbert.FINETUNE[scale].select for scale in ("toy", "mini", "paper")
    ]
    assert selected == ["last", "last", "best"]
    (page,) = notebook.find_notebooks(["efficientbert_t03_*"])
    assert (
        "At `toy` and `mini` the last model counts, at `paper` the best one"
        in page.read_text()
    )
    for scale in ("toy", "mini"):  # of ++ every second layer is distilled
        deep = len(
            efficientbert.scale_network_to_profile("EfficientBERT++", scale).layers
        )
        teacher = grids.find_encoder_shape(scale).layers
        assert (
            deep == 2 * teacher
            and len(pair_student_with_teacher_layers(deep, teacher)) == teacher
        )


def test_speedups_are_of_the_same_turn():
    """A machine that slows down threefold changes no ratio."""
    run = timed(1, (8.0, 2.0, 4.0, 1.0))["run"]
    names = ["BERT_BASE", "EfficientBERT", "EfficientBERT++", "EfficientBERT_TINY"]
    assert list(run.spec["args"]["models"]) == names  # a Spec sorts them
    found = measures.estimate_speed_up_over_reference_by_model(run)
    assert {name: e.mean for name, e in found.items()} == pytest.approx(
        {"EfficientBERT_TINY": 8, "EfficientBERT": 4, "EfficientBERT++": 2}
    )
    assert all(e.low == pytest.approx(e.high) for e in found.values())
