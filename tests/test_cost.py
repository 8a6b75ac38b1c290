"""Every FLOPs and parameter cell of GhostBERT, and the counts against PyTorch and
transformers."""

from decimal import ROUND_HALF_UP, Decimal

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForSequenceClassification

from lib.core.options import Ghost
from lib.model.layout import rename_layer_parts_as_bert
from lib.papers import published
from lib.papers.published import read_table
from lib.stats.cost import (
    SHAPES,
    Shape,
    build_transformers_config,
    count_ghost_flops,
    count_ghost_parameters,
    flops,
    format_count_in_billions_or_millions,
    parameters,
)

pytestmark = pytest.mark.papers("ghostbert")

BERT = SHAPES["bert-base"]
DEFAULT = Ghost("dwconv", ("o", "ffn2"), 3)
F, P = "FLOPs(G)", "#params(M)"


def width(text):
    """ "3/12" to 3."""
    return int(text.split("/")[0])


BASES = {
    "BERT": "bert-base",
    "RoBERTa": "roberta-base",
    "ELECTRA-small": "electra-small",
}
BASES |= {"BERT-base": "bert-base", "RoBERTa-base": "roberta-base"}
BASES |= {"TinyBERT6": "tinybert-6", "TinyBERT4": "tinybert-4"}


def by_model(name):
    """Shape, heads and ghost of a row of Tables 1 and 2; None for the quotations that
    have no shape here."""
    shape = BASES.get(name.split(" ")[0].removeprefix("Ghost"))
    if shape and name.startswith("Ghost"):
        return SHAPES[shape], width(name.split("m = ")[1]), DEFAULT
    return shape and (SHAPES[shape], None, None)


def by_position(name):
    places = name.removeprefix("Ours: ").removeprefix("After ").lower().split("&")
    return BERT, 1, Ghost("conv2d" if places == ["qk"] else "dwconv", tuple(places), 3)


def cells():
    found = []

    def add(name, row, line, model, prefix=""):
        shape, heads, ghost = model
        computed = {
            F: format_count_in_billions_or_millions(
                flops(shape, 128, heads, ghost, "token head"), "GFLOPs"
            ),
            P: format_count_in_billions_or_millions(
                parameters(shape, heads, ghost), "M params"
            ),
        }
        for column, value in computed.items():
            found.append(
                (name, row, prefix + column, str(line[prefix + column]), value)
            )

    for name in ("table1", "table2"):
        for _, line in read_table("ghostbert", name).iterrows():
            if model := by_model(line["Model"]):
                add(name, line["Model"], line, model)
    for _, line in read_table("ghostbert", "table3").iterrows():
        for model, ghost in (("Pruned BERT ", None), ("GhostBERT ", DEFAULT)):
            add("table3", line["m"], line, (BERT, width(line["m"]), ghost), model)
    for _, line in read_table("ghostbert", "table5").iterrows():
        kind = line["Convolution Type"].removeprefix("ours: ")
        ghost = Ghost(kind.lower(), ("o", "ffn2"), 3)
        add("table5", f"{line['m']} {kind}", line, (BERT, width(line["m"]), ghost))
    for name in ("table6", "table11"):
        for _, line in read_table("ghostbert", name).iterrows():
            add(name, line["Position"], line, by_position(line["Position"]))
    for _, line in read_table("ghostbert", "table10").iterrows():
        ghost = DEFAULT if line["Model"] == "Ghost" else None
        add(
            "table10",
            f"{line['m']} {line['Model']}",
            line,
            (BERT, width(line["m"]), ghost),
        )

    twelve = Ghost("dwconv", ("o", "ffn2"), 3, features=12)
    more = (
        count_ghost_parameters(BERT, twelve, 12),
        count_ghost_flops(BERT, twelve, 12),
    )
    once = (count_ghost_parameters(BERT, DEFAULT), count_ghost_flops(BERT, DEFAULT))
    whole = (parameters(BERT), flops(BERT, convention="token head"))
    example = "example L=12 d=768 n=128 k=3 M=12: additional #params"
    single = {
        "b4": {
            example: format_count_in_billions_or_millions(more[0], "M params"),
            "example: share of backbone #params": f"{100 * more[0] / whole[0]:.1f}",
            "example: additional FLOPs": format_count_in_billions_or_millions(
                more[1], "GFLOPs"
            ),
            "example: share of backbone FLOPs": f"{100 * more[1] / whole[1]:.1f}",
        },
        "claims": {
            "extra params of ghost modules (introduction)": f"{100 * once[0] / whole[0]:.1f}",
            "extra FLOPs of ghost modules (introduction)": f"{100 * once[1] / whole[1]:.1f}",
            "extra params of ghost modules (results)": f"{once[0] / 1e3:.1f}",
            "extra FLOPs of ghost modules (results)": f"{once[1] / 1e6:.1f}",
        },
    }
    for name, values in single.items():
        frame = read_table("ghostbert", name)
        printed = frame.set_index(frame.columns[0])["value"]
        found += [
            (name, row, "value", str(printed[row]), value)
            for row, value in values.items()
        ]
    return found


CELLS = cells()
MISSES = {
    (name, m["row"], m["column"]): m
    for m in published.read_inconsistent_printed_values("ghostbert")
    for name in m["table"].split("; ")
}


@pytest.mark.parametrize(
    "name, row, column, printed, computed",
    CELLS,
    ids=[" | ".join(c[:3]) for c in CELLS],
)
def test_a_printed_cell_matches_or_is_a_known_miss(
    name, row, column, printed, computed
):
    miss = MISSES.get((name, row, column))
    if miss is None:
        assert computed == printed
    else:
        assert (miss["printed"], miss["computed"]) == (printed, computed)
        assert printed != computed, "listed as a miss, but it matches"


def test_every_known_miss_is_a_cell_and_listed_once():
    assert set(MISSES) <= {cell[:3] for cell in CELLS}
    # 14 + 16 model rows, 8 in Table 3 and 10, 8 in Table 5, 6 in Tables 6 and 11: two
    # cells each
    assert len(CELLS) == 2 * (14 + 16 + 8 + 8 + 8 + 6 + 6) + 4 + 4


def test_extra_parameters_and_operations_of_the_default_ghosts():
    assert count_ghost_parameters(BERT, DEFAULT) == 55_296
    assert (
        count_ghost_parameters(BERT, DEFAULT, heads=1) == 55_296
    )  # one shared kernel, whatever is kept
    assert count_ghost_flops(BERT, DEFAULT) == 14_155_776
    assert count_ghost_parameters(SHAPES["electra-small"], DEFAULT) == 18_432
    assert parameters(BERT, ghost=DEFAULT) == 109_539_074
    assert parameters(BERT, ghost=None) == 109_483_778


def test_distinct_kernels_follow_the_formula_of_appendix_b4():
    layers, d, n, k = 12, 768, 128, 3
    for kept, features in ((1, 4), (3, 2), (12, 12)):
        ghost = Ghost("dwconv", ("o", "ffn2"), k, features=features)
        assert (
            count_ghost_parameters(BERT, ghost, kept)
            == 2 * layers * kept * features * d * k
        )
        assert (
            count_ghost_flops(BERT, ghost, kept, n)
            == 4 * layers * kept * features * n * d * k
        )


def model_of(shape, labels=2):
    """A random transformers classifier of this shape with eager attention, on the
    current device."""
    return AutoModelForSequenceClassification.from_config(
        build_transformers_config(shape, num_labels=labels), attn_implementation="eager"
    ).eval()


def cut(model, shape, heads):
    """Random dense layers of the widths that M heads leave; transformers infers the
    number of heads."""
    keep = heads * shape.hidden // shape.heads
    neurons = heads * shape.ffn // shape.heads
    for layer in rename_layer_parts_as_bert(model).base_model.encoder.layer:
        if shape.family == "mpnet":
            layer.attention.self.columns = torch.arange(heads)
        for name in ("query", "key", "value"):
            setattr(layer.attention.self, name, nn.Linear(shape.hidden, keep))
        layer.attention.output.dense = nn.Linear(keep, shape.hidden)
        layer.intermediate.dense = nn.Linear(shape.hidden, neurons)
        layer.output.dense = nn.Linear(neurons, shape.hidden)
    return model


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    "name, total",
    [
        ("bert-base", 109_483_778),
        ("roberta-base", 124_647_170),
        ("electra-small", 13_549_314),
        ("all-MiniLM-L6-v2", 22_713_986),
        ("all-mpnet-base-v2", 109_488_002),
        ("tinybert-6", None),
        ("tinybert-4", None),
    ],
)
def test_parameters_equal_those_of_transformers(name, total):
    shape = SHAPES[name]
    with torch.device("meta"):
        model = model_of(shape)
        assert parameters(shape) == count(model)
        assert parameters(shape, heads=1) == count(cut(model, shape, 1))
        assert parameters(shape, label_count=3) == count(model_of(shape, labels=3))
    assert total in (None, parameters(shape))


SMALL = {
    "bert": Shape("bert", 2, 48, 4, 96, 100, 64, 2, 48),
    "roberta": Shape("roberta", 2, 48, 4, 96, 100, 66, 1, 48),
    "electra": Shape("electra", 2, 48, 4, 96, 100, 64, 2, 24),
    "mpnet": Shape("mpnet", 2, 48, 4, 96, 100, 66, 0, 48),
}


@pytest.mark.parametrize("family", SMALL)
@pytest.mark.parametrize("tokens", [7, 32])
@pytest.mark.parametrize("heads", [4, 1])
def test_true_flops_equal_the_counter_of_pytorch(family, tokens, heads):
    shape = SMALL[family]
    model = cut(model_of(shape), shape, heads)
    ids = torch.full((1, tokens), 5)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
    assert flops(shape, tokens, heads) == counter.get_total_flops()


def convolution(kind, position, shape, heads, tokens, k):
    """One ghost module as a PyTorch convolution, and an input for it (B = 1)."""
    kept, rest, size = heads, shape.heads - heads, shape.hidden // shape.heads
    if kind == "conv2d":
        one = (kept, rest) if position in ("qk", "v") else (1, 1)
        channels = size if position == "v" else shape.hidden
        channels = heads * shape.ffn // shape.heads if position == "ffn1" else channels
        wide = tokens if position == "qk" else channels
        return nn.Conv2d(*one, k, padding=k // 2, bias=False), torch.zeros(
            1, one[0], tokens, wide
        )
    if position == "v":  # a channel of "dwconv" sees its like in every kept head
        each, length = (tokens, size) if kind == "conv1d_f" else (size, tokens)
        inputs, outputs, groups = kept * each, rest * each, size
    else:
        channels = (
            heads * shape.ffn // shape.heads if position == "ffn1" else shape.hidden
        )
        inputs, length = (
            (tokens, channels) if kind == "conv1d_f" else (channels, tokens)
        )
        outputs, groups = inputs, channels
    module = nn.Conv1d(
        inputs,
        outputs,
        k,
        padding=k // 2,
        groups=groups if kind == "dwconv" else 1,
        bias=False,
    )
    return module, torch.zeros(1, inputs, length)


PLACES = [
    (kind, position)
    for kind in ("dwconv", "conv1d_s", "conv1d_f", "conv2d")
    for position in ("qk", "v", "o", "ffn1", "ffn2")
    if position != "qk" or kind == "conv2d"
]


@pytest.mark.parametrize("kind, position", PLACES)
@pytest.mark.parametrize("heads, tokens, k", [(1, 6, 3), (3, 9, 5)])
def test_a_ghost_costs_what_its_convolution_costs(kind, position, heads, tokens, k):
    shape = SMALL["bert"]
    ghost = Ghost(kind, (position,), k)
    module, x = convolution(kind, position, shape, heads, tokens, k)
    with FlopCounterMode(display=False) as counter:
        module(x)
    assert count_ghost_parameters(shape, ghost, heads, tokens) == shape.layers * count(
        module
    )
    assert (
        count_ghost_flops(shape, ghost, heads, tokens)
        == shape.layers * counter.get_total_flops()
    )


def test_positions_inside_attention_leave_what_the_paper_leaves_whole():
    d, cut_to, layers = 768, 64, 12
    pruned = parameters(BERT, 1)
    after_v, after_qk = Ghost("dwconv", ("v",), 3), Ghost("conv2d", ("qk",), 3)
    output = layers * d * (d - cut_to)  # columns of the output projection that stay
    value = (
        layers * (d + 1) * (d - cut_to)
    )  # rows of the value projection, with their biases
    assert parameters(BERT, 1, after_v) == pruned + output + layers * 704 * 3
    assert parameters(BERT, 1, after_qk) == pruned + output + value + layers * 99
    n, rest = 128, d - cut_to
    projections = 2 * (2 * n * d * rest)
    maps = 2 * n * n * rest
    convolutions = 2 * n * n * 99
    more = [
        flops(BERT, n, 1, ghost) - flops(BERT, n, 1) for ghost in (after_qk, after_v)
    ]
    assert more[0] == layers * (projections + maps + convolutions)
    assert more[1] == layers * (2 * n * d * rest + 2 * n * 704 * 3)


@pytest.mark.parametrize(
    "ghost, heads, said",
    [
        (Ghost("dwconv", ("qk",), 3), 1, "'qk' takes 'conv2d'"),
        (Ghost("conv2d", ("qk", "v"), 3), 1, "take one"),
        (Ghost("conv2d", ("qk",), 3), 12, "none is pruned"),
        (Ghost("dwconv", ("v",), 3), None, "none is pruned"),
        (Ghost("dwconv", ("ffn1",), 3, features=2), 1, "'o' and 'ffn2' only"),
    ],
)
def test_what_does_not_go_together_is_refused(ghost, heads, said):
    for f in (count_ghost_parameters, count_ghost_flops):
        with pytest.raises(ValueError, match=said):
            f(BERT, ghost, heads)
    with pytest.raises(ValueError, match=said):
        flops(BERT, 128, heads, ghost)


def test_impossible_widths_conventions_and_shapes_are_refused():
    small = (48, 4, 96, 100, 64, 2)
    for message, refused in {
        "1 to 12": lambda: parameters(BERT, 0),
        "heads is 13": lambda: parameters(BERT, 13),
        "heads is 0.5": lambda: parameters(BERT, 0.5),
        "1 to 4": lambda: flops(SHAPES["electra-small"], heads=12),
        "folds": lambda: parameters(Shape("bert", 2, 48, 4, 98, 100, 64, 2, 48), 2),
        "'true', 'token head'": lambda: flops(BERT, convention="nominal"),
        "not a multiple of its 5 heads": lambda: Shape(
            "bert", 2, 48, 5, *small[2:], 48
        ),
    }.items():
        with pytest.raises(ValueError, match=message):
            refused()


TASKS = ["MNLI", "QNLI", "QQP", "RTE", "SST-2", "MRPC", "CoLA", "STS-B"]


def averages(name):
    """(row, printed, recomputed) of a table with one column for each task."""
    for _, line in read_table("ghostbert", name).iterrows():
        scores = [Decimal(str(line[t])) for t in TASKS if t in line.index]
        if any(s.is_nan() for s in scores):
            continue
        mean = (sum(scores) / len(scores)).quantize(Decimal("0.1"), ROUND_HALF_UP)
        row = (
            f"{line['m']} k={line['Kernel Size']}"
            if name == "table9"
            else str(line.iloc[0])
        )
        yield row, str(line["Avg."]), str(mean)


@pytest.mark.parametrize(
    "name", ["table1", "table2", "table4", "table5", "table9", "table10", "table11"]
)
def test_printed_averages_recompute_except_those_listed(name):
    listed = read_table("ghostbert", "corrections")
    listed = listed[(listed["table"] == name) & (listed["column"] == "Avg.")]
    wrong = {row: printed for row, printed, mean in averages(name) if printed != mean}
    assert wrong == dict(zip(listed["row"], listed["printed"], strict=True))


def test_rows_printed_twice_agree():
    one, ten = read_table("ghostbert", "table1"), read_table("ghostbert", "table10")
    for _, line in ten[ten["Model"] == "Ghost"].iterrows():
        same = one[one["Model"] == f"GhostBERT (m = {line['m']})"].iloc[0]
        assert list(same.iloc[1:]) == list(line.iloc[2:])
    six, eleven = read_table("ghostbert", "table6"), read_table("ghostbert", "table11")
    for column in (F, P):
        assert list(six[column]) == list(eleven[column])
    assert list(six["Avg. acc"]) == list(eleven["Avg."])
    three, nine = read_table("ghostbert", "table3"), read_table("ghostbert", "figure3")
    assert list(three["GhostBERT Avg. acc"]) == list(
        ten[ten["Model"] == "Ghost"]["Avg."]
    )
    assert list(three["Pruned BERT Avg. acc"]) == list(
        ten[ten["Model"] == "Prune"]["Avg."]
    )
    assert list(nine["Average Score"]) == list(
        read_table("ghostbert", "table9")["Avg."]
    )
