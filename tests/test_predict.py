"""Predicting a file of test rows; what quoted architectures cost."""

import numpy as np
import pytest
from conftest import finetuned, small_backbone

from lib import data
from lib.claims import notebook
from lib.core import disk, paths
from lib.core.execute import execute
from lib.core.options import Train
from lib.core.spec import Spec
from lib.core.store import Store
from lib.papers import published
from lib.stats import cost
from lib.train.steps import count

TRAIN = Train(epochs=1, batch=16, lr=1e-3, max_length=32, dropout=0.1)
QUOTED = paths.PUBLISHED / "ghostbert" / "quoted.toml"
MODEL = finetuned(
    data.make_data_descriptor("toy", "Tense", 64),
    TRAIN,
    {"start": small_backbone(TRAIN, layers=2)},
)


def test_it_predicts_the_test_rows_of_its_model(make):
    split = data.read_splits("toy", "Tense")["test"]
    told = {name: MODEL.args[name] for name in ("data", "train", "numerics")}
    right = told | {"digest": data.digest_splits({"rows": split})}
    run = make(Spec("predict", right, {"model": MODEL}))
    found = run.read_arrays("test")
    assert np.array_equal(found["labels"], split.y) and np.array_equal(
        found["index"], split.index
    )
    score = np.mean(found["logits"].argmax(1) == split.y)
    assert run.metrics == {"test_rows": len(split), "accuracy": pytest.approx(score)}
    with pytest.raises(
        ValueError, match="the test file has digest .*; this run is of 0: put"
    ):
        make(Spec("predict", told | {"digest": "0"}, {"model": MODEL}))


@pytest.fixture(scope="module")
def counted():
    rows = notebook.execute_grid_cell_and_list_rows_by_variable(
        notebook.find_notebook_path("ghostbert_t02_glue_test"), {}
    )["grid"]
    return {row["model"]: count.count(None, **row["spec"].args) for row in rows}


GOLDEN = {  # parameters, FLOPs
    "TinyBERT6": (66_956_546, 11_174_808_576),
    "TinyBERT4": (14_350_874, 1_247_477_088),
    "ConvBERT-medium": (17_624_498, 3_598_419_456),
    "ConvBERT-small": (13_210_074, 2_442_134_528),
    "MobileBERT w/o OPT": (24_582_914, 5_385_488_384),
    "MobileBERT": (24_582_914, 5_385_488_384),
    "MobileBERT-tiny": (15_486_722, 3_070_232_576),
}


@pytest.mark.papers("ghostbert")
def test_the_counts(counted):
    found = {
        name: (each["parameters"], each["flops"]) for name, each in counted.items()
    }
    assert found == GOLDEN


@pytest.mark.papers("ghostbert")
@pytest.mark.parametrize("name", ["TinyBERT6", "TinyBERT4"])
def test_the_counts_of_berts_are_those_of_the_formulas(name, counted):
    shape = cost.SHAPES[name.lower().replace("bert", "bert-")]
    assert counted[name]["parameters"] == cost.parameters(shape)
    assert counted[name]["flops"] == cost.flops(shape, 128)
    assert (
        counted[name]["parameters"] - counted[name]["encoder_parameters"]
        == 2 * shape.hidden + 2
    )


@pytest.mark.papers("ghostbert")
@pytest.mark.parametrize(
    "name, width, networks", [("MobileBERT", 512, 4), ("MobileBERT-tiny", 128, 2)]
)
def test_mobilebert_by_hand(name, width, networks, counted):
    """Each layer goes from 512 to 128 and back; queries and keys of the full one have a
    bottleneck of their own, and its values read all 512."""
    t, h, b = 128, 512, 128
    necks = h * b * (2 if width == h else 1) + b * h
    layer = necks + 3 * b * b + width * b + networks * 2 * b * h
    products = 24 * (layer + 2 * t * b) + 3 * b * h
    assert counted[name]["flops"] == 2 * t * products + 2 * h * 2


@pytest.mark.papers("ghostbert")
def test_which_quoted_figures_are_met(counted):
    table = published.read_table("ghostbert", "table2")
    printed = table.assign(
        Model=table["Model"].str.split(r" \(", regex=True).str[0]
    ).set_index("Model")
    met = {
        name: (
            cost.format_count_in_billions_or_millions(found["flops"], "GFLOPs")
            == str(printed["FLOPs(G)"][name]),
            cost.format_count_in_billions_or_millions(found["parameters"], "M params")
            == str(printed["#params(M)"][name]),
        )
        for name, found in counted.items()
    }
    assert met == {
        "TinyBERT6": (
            False,
            True,
        ),  # 11.3 takes the convention with a head on every token
        "TinyBERT4": (True, False),
        "ConvBERT-medium": (False, False),
        "ConvBERT-small": (False, False),
        "MobileBERT w/o OPT": (False, True),
        "MobileBERT": (False, True),
        "MobileBERT-tiny": (True, True),
    }
    medium, small = counted["ConvBERT-medium"], counted["ConvBERT-small"]
    told = " ".join(disk.read_toml(QUOTED)["notes"].values())
    head = 128 * (2 * 512**2 + 11 * 512)
    for value in (
        medium["flops"],
        small["flops"],
        counted["MobileBERT"]["flops"],
        counted["MobileBERT"]["flops"] + head,
    ):
        assert f"{value / 1e9:.3f} G" in told
    for value in (
        medium["encoder_parameters"],
        small["encoder_parameters"],
        small["parameters"],
    ):
        assert f"{value / 1e6:.3f} M" in told


def test_a_measurement_is_made_once_though_its_weights_are_asked_for(tmp_path):
    store = Store(tmp_path / "runs", tmp_path / "records")
    sizes = dict(hidden_size=8, num_attention_heads=2, num_hidden_layers=1)
    args = {"config": {"model_type": "bert"} | sizes, "tokens": 8, "labels": 2}
    spec = Spec("count", args, seed=0)
    made_at = [
        (execute(spec, store, keep_weights=True).folder / "spec.json")
        .stat()
        .st_mtime_ns
        for _ in range(2)
    ]
    assert made_at[0] == made_at[1]
