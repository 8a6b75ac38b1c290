"""Networks: sizes to the digit, their JSON, and the printed tables of EfficientBERT
that they stand beside."""

from decimal import ROUND_HALF_UP, Decimal

import pandas as pd
import pytest

from lib.model.formula import FormulaError, iterate_nodes, parse_feed_forward_formula
from lib.papers import published
from lib.papers.efficientbert.recipes import NETS, PLUS_PLUS, THIN
from lib.papers.efficientbert.search import net
from lib.papers.efficientbert.search.net import (
    CONVENTIONS,
    Layer,
    Net,
    count_macs_per_token,
    count_net_parameters,
    from_json,
    make_plain_bert_net,
)
from lib.stats import cost


def table(name):
    return published.read_table("efficientbert", name)


COUNTS = table("parameter_counts").set_index("row")


@pytest.mark.parametrize("row", COUNTS.index)
def test_counts_to_the_digit(row):
    line = COUNTS.loc[row]
    told = line[list(CONVENTIONS)].dropna()
    computed = {
        convention: count_net_parameters(NETS[row], convention)
        for convention in told.index
    }
    assert computed == told.astype(int).to_dict()
    printed = f"{line['printed #Params (M)']:.1f}"
    equal = [
        convention for convention, n in computed.items() if f"{n / 1e6:.1f}" == printed
    ]
    assert "; ".join(equal) == (
        "" if pd.isna(line["printed equals"]) else line["printed equals"]
    )


def test_every_count_has_a_network_and_the_printed_sizes_are_the_tables():
    assert set(COUNTS.index) == set(NETS) - {
        THIN,
        "EfficientBERT++",
    }  # no row of its own
    for name in ("table02_glue_test", "table04_squad_dev", "table05_search_stages"):
        for _, row in table(name).iterrows():
            model = row["Model"].split(" (")[0]
            if model != "MobileBERT_TINY":  # no shape is given
                counted = PLUS_PLUS[0] if model == "EfficientBERT++" else model
                assert (
                    COUNTS.loc[counted, "printed #Params (M)"] == row["#Params (M)"]
                ), model


MILLIONS = {
    "Base Model": "11.53",
    "Search Stage 1": "11.58",
    "Search Stage 2": "11.58",
    "EfficientBERT": "11.92",
    "EfficientBERT_TINY": "5.53",
    PLUS_PLUS[0]: "10.92",
    PLUS_PLUS[1]: "12.65",
    "EfficientBERT (TinyBERT_6)": "46.79",
    "TinyBERT_4": "4.87",
    "TinyBERT_6": "43.65",
    "BERT_BASE": "87.29",
}


def test_macs():
    assert {
        row: f"{count_macs_per_token(NETS[row]) / 1e6:.2f}" for row in MILLIONS
    } == MILLIONS


def test_parts():
    inner = (540, 270, 180, 135)
    assert [net.count_ffn_parameters(540, e) for e in inner] == [
        585360,
        293490,
        196200,
        147555,
    ]
    assert [net.count_attention_parameters(d) for d in (540, 360, 768)] == [
        1169640,
        520560,
        2363904,
    ]
    of = [NETS[name] for name in ("Base Model", "EfficientBERT_TINY", "BERT_BASE")]
    assert [net.count_embedding_parameters(each) for each in of] == [
        4393356,
        4231176,
        23837184,
    ]
    fit = [
        count_net_parameters(each, "with projection") - count_net_parameters(each)
        for each in of
    ]
    assert fit == [415488, 277248, 590592]


@pytest.mark.parametrize(
    "row, name",
    [
        ("BERT_BASE", "bert-base"),
        ("TinyBERT_4", "tinybert-4"),
        ("TinyBERT_6", "tinybert-6"),
    ],
)
def test_plain_networks_agree_with_the_cost_module(row, name):
    shape, tokens, labels = cost.SHAPES[name], 77, 3
    head = shape.hidden * labels + labels
    assert (
        count_net_parameters(NETS[row], "with pooler")
        == cost.parameters(shape, label_count=labels) - head
    )
    matrices = 2 * shape.hidden**2 + 2 * shape.hidden * labels
    flops = cost.flops(shape, tokens, label_count=labels)
    assert 2 * tokens * count_macs_per_token(NETS[row], tokens) == flops - matrices


def test_other_tables_of_words():
    base = NETS["Base Model"]
    fewer = count_net_parameters(base) - count_net_parameters(
        base, vocab=1000, positions=64, token_embedding_width=32
    )
    assert fewer == (30522 * 128 - 1000 * 32) + 540 * (512 - 64) + 540 * 3 * (128 - 32)


def test_the_published_networks():
    assert NETS["EfficientBERT"] == NETS["EfficientBERT+"]
    big, plus, larger = (
        NETS[n] for n in ("EfficientBERT", PLUS_PLUS[0], "EfficientBERT (TinyBERT_6)")
    )
    assert plus.layers == tuple(layer for layer in big.layers for _ in range(2))
    assert (plus.hidden, plus.width) == (360, 360)
    assert NETS["EfficientBERT_TINY"].layers == larger.layers == big.layers
    assert [each.count_inner_channels(big.layers[-1]) for each in (big, larger)] == [
        180,
        1024,
    ]
    one, two = NETS["Search Stage 1"].layers, NETS["Search Stage 2"].layers
    assert [l.formula for l in two] == [l.formula for l in big.layers]
    ids = [[(l.stack, l.q) for l in layers] for layers in (one, two)]
    assert ids == [[(4, 2), (2, 1), (1, 4), (4, 4), (1, 3), (2, 4)]] * 2


@pytest.mark.parametrize("name", NETS)
def test_json_round_trip(name):
    body = NETS[name].to_json()
    assert (
        from_json(body) == NETS[name]
        and body["layers"][0][0] == NETS[name].layers[0].formula
    )
    assert set(body) == {"hidden", "width", "heads", "embedding", "mismatch", "layers"}


def test_spellings_of_a_formula_make_one_network():
    assert Layer("W2(relu(mul(W1 x, x)))", 1, 2) == Layer(
        parse_feed_forward_formula("W2 relu(W1 x * x)"), 1, 2
    )
    assert (
        Layer("W2 gelu(W1 x)", 1, 3).inner_width_share_text == "1/3"
        and Layer("W2 gelu(W1 x)").inner_width_share_text == "1"
    )


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"width": 3, "layers": (Layer(net.BERT, 1, 4),)},
            "Net.inner width for q = 4 is 0; allowed",
        ),
        (
            {"layers": (Layer("gelu(W1 x) + W2 tanh(x)", 1, 2),)},
            "W2 takes 270 channels, its",
        ),
    ],
)
def test_impossible_networks(change, message):
    with pytest.raises(ValueError) as error:
        Net(**NETS["Base Model"].__dict__ | change)
    assert message in str(error.value)


def test_impossible_layers():
    with pytest.raises(FormulaError, match="did you mean 'gelu'"):
        Layer("W2 gleu(W1 x)")
    with pytest.raises(
        ValueError, match="'deployable', 'with pooler', 'with projection'"
    ):
        count_net_parameters(make_plain_bert_net(2, 24, 24), "all")


# The printed tables

TASKS = ("MNLI-m", "MNLI-mm", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE")


def wrong_averages(name):
    found = {}
    for _, line in table(name).iterrows():
        scores = [Decimal(str(line[t])) for t in TASKS if t in line.index]
        if not any(s.is_nan() for s in scores):
            mean = (sum(scores) / len(scores)).quantize(Decimal("0.1"), ROUND_HALF_UP)
            if str(mean) != str(line["Avg"]):
                found[line["Model"].split(" (")[0]] = str(line["Avg"])
    return found


@pytest.mark.parametrize(
    "name",
    [
        "table02_glue_test",
        "table03_nas_dev",
        "table05_search_stages",
        "table07_base_models",
    ],
)
def test_printed_averages_recompute_except_those_listed(name):
    listed = table("corrections").query("table == @name[:7] and column == 'Avg'")
    assert wrong_averages(name) == dict(
        zip(listed["row"], listed["printed"], strict=True)
    )


def test_rows_printed_twice_agree():
    two = table("table02_glue_test").set_index("Model")
    five = table("table05_search_stages")
    last = five[five["Model"] == "EfficientBERT"].iloc[0]
    assert list(two.loc["EfficientBERT", list(TASKS)]) == list(last[list(TASKS)])
    six = table("table06_search_cost").set_index("Method")["Best Score"]
    wiki = five[five["Pre-train Dataset"] == "Wiki"].set_index("Model")["Avg"]
    assert six["Search stage 1"] == wiki["Search Stage 1"]
    assert six["Search stage 1, 2"] == wiki["Search Stage 2"]
    assert six["Coarse-to-Fine NAS"] == last["Avg"] == two.loc["EfficientBERT", "Avg"]


def test_margins_of_the_text_are_those_of_the_tables():
    claim = table("claims").set_index("claim")["value"]
    two = table("table02_glue_test").set_index("Model")
    base, own = two.loc["BERT_BASE (Teacher)"], two.loc["EfficientBERT"]
    for column, text in (
        ("#Params (M)", "size reduction"),
        ("Latency (ms)", "inference speed"),
    ):
        times = f"{base[column] / own[column]:.1f}"
        assert times == claim[f"EfficientBERT {text} against BERT_BASE"]
    for here, there in (
        ("EfficientBERT", "MobileBERT_TINY (Sun et al., 2020)"),
        ("EfficientBERT_TINY", "TinyBERT_4 (Jiao et al., 2020)"),
        ("EfficientBERT+", "EfficientBERT"),
    ):
        margin = f"{two.loc[here, 'Avg'] - two.loc[there, 'Avg']:.1f}"
        assert margin == claim[f"{here} GLUE test average over {there.split(' (')[0]}"]
    days = table("table06_search_cost").set_index("Method")["Search Cost (GPU days)"]
    saved = str(days["Single stage"] - days["Coarse-to-Fine NAS"])
    assert (
        saved
        == claim["coarse-to-fine NAS against single-stage search, GPU days saved"]
        == "26"
    )


def test_the_first_layers_hold_most_and_only_layers_4_and_5_join_two_operands():
    """Appendix A; its "most stack numbers less than 2" is in corrections.csv."""
    own = NETS["EfficientBERT"]
    sizes = [
        l.stack * net.count_ffn_parameters(own.hidden, own.count_inner_channels(l))
        for l in own.layers
    ]
    assert min(sizes[:2]) > max(sizes[2:])
    inputs = [
        sum(node.op == "x" for node in iterate_nodes(layer.formula_tree))
        for layer in own.layers
    ]
    assert [number for number, count in enumerate(inputs, 1) if count > 1] == [4, 5]
    assert (
        sum(l.q == 2 for l in own.layers) == 4
        and sum(l.stack < 2 for l in own.layers) == 2
    )
