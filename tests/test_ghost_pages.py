"""What GhostBERT's pages run and tell: tasks, seeds, switches, sizes at the start,
checks."""

import json
import re
from itertools import product
from types import SimpleNamespace

import pandas as pd
import pytest

from lib.claims import notebook
from lib.papers import published
from lib.papers.ghostbert import drawings
from lib.papers.ghostbert import recipes as ghostbert
from lib.papers.grids import find_encoder_shape
from lib.report import plot
from lib.stats import compare, cost
from lib.train.augment import STOP


def rows(name, **values):
    return notebook.execute_grid_cell_and_list_rows_by_variable(
        notebook.find_notebook_path(f"ghostbert_{name}"), values
    )


@pytest.mark.parametrize("last", ["soft", "both"])
def test_the_last_stage_learns_from_the_teacher_where_asked(last):
    kept, switched = (
        rows("t03_pruned_vs_ghost", profile="toy", **more)["grid"]
        for more in ({}, {"last": last})
    )
    for before, after in zip(kept, switched, strict=True):
        one, two = before["spec"], after["spec"]
        assert one.args["targets"] == {"kind": "hard"} and "teacher" not in one.inputs
        assert two.args["targets"] == {"kind": last, "sum_classes": True}
        assert two.inputs == one.inputs | {
            "teacher": two.inputs["start"].inputs["teacher"]
        }
    with pytest.raises(ValueError, match="Targets.kind is 'sofd'; allowed"):
        rows("t03_pruned_vs_ghost", profile="toy", last="sofd")


LAST = {"Soft labels last": "soft", "Labels and soft labels last": "both"}
EQUAL = "- Softmax, taps 1/k at first"


def test_table_4_has_the_last_stage_and_equal_taps_as_rows():
    few, more = (
        {
            (row["m"], row["model"]): row["spec"]
            for row in rows("t04_ablation", profile="toy", seeds=[0], more=more)["grid"]
        }
        for more in (False, True)
    )
    new = {model for _, model in more.keys() - few.keys()}
    assert new == {*LAST, EQUAL} and few.items() <= more.items()
    ours = more[3, "GhostBERT"]
    for label, kind in LAST.items():
        assert more[3, label].args["targets"]["kind"] == kind
        assert more[3, label].inputs["start"] == ours.inputs["start"]
    ghosts = more[3, EQUAL].inputs["start"].args["surgery"][-1]
    assert ghosts["init"] == "uniform" and "softmax" not in ghosts


@pytest.mark.parametrize(
    "name, values, models",
    [
        ("f03_kernel_size", {"kernels": [1, 7]}, {"k = 1", "k = 7"}),
        ("b04_more_ghosts", {"features": [3]}, {"F = 3"}),
        ("t06_position", {"positions": ["After O"]}, {"After O"}),
        ("t05_convolution", {"convolutions": ["Conv2D"]}, {"Conv2D"}),
        ("t04_ablation", {"models": ["- ReLU", "Plain"]}, {"- ReLU", "Plain"}),
    ],
)
def test_an_axis_is_a_parameter(name, values, models):
    plainly, fast = (
        rows(name, **values | more)["grid"] for more in ({}, {"lr": 0.003})
    )
    first, second = (
        [r for r in g if r["spec"].step == "finetune"] for g in (plainly, fast)
    )
    assert {row["model"] for row in first} == models
    distilled = 0
    for one, two in zip(first, second, strict=True):
        if "distil" in (start := two["spec"].inputs["start"]).step:
            distilled += 1
            assert start.args["train"]["lr"] == 0.003
            assert start.inputs == one["spec"].inputs["start"].inputs
    assert distilled


@pytest.mark.parametrize(
    "name, values, message",
    [
        (
            "f03_kernel_size",
            {"kernels": [2]},
            "Ghost.kernel is 2; an even kernel has no centre",
        ),
        ("f03_kernel_size", {"kernels": ["3"]}, "'3' is str; it must be int"),
        ("b04_more_ghosts", {"features": [0]}, "0 must be from 1 to 64"),
        (
            "t06_position",
            {"positions": ["after O"]},
            "unknown position: .* did you mean 'After O'",
        ),
        (
            "t05_convolution",
            {"convolutions": ["DW"]},
            "unknown convolution: 'DW'; did you mean 'DWConv'",
        ),
        (
            "t04_ablation",
            {"models": ["ReLU"]},
            "unknown row of Table 4: .* did you mean '- ReLU'",
        ),
        ("t03_pruned_vs_ghost", {"lr": 2.0}, "2.0 must be from 0 to 1"),
    ],
)
def test_a_wrong_value_is_one_clear_line(name, values, message):
    with pytest.raises(ValueError, match=message) as error:
        rows(name, **values)
    assert "\n" not in str(error.value)


TAPS = {f"{kind}, softmax over taps" for kind in ("Conv1D_S", "Conv1D_F")}
BARE = {f"{kind}, no softmax" for kind in ("Conv1D_S", "Conv1D_F", "Conv2D", "DWConv")}


@pytest.mark.parametrize(
    "name, others", [("t04_ablation", {EQUAL, *LAST}), ("t05_convolution", TAPS | BARE)]
)
def test_other_readings_are_trained_where_asked(name, others):
    few, more = (
        {row["model"] for row in rows(name, seeds=[0], more=more)["grid"]}
        for more in (False, True)
    )
    assert more - few == others


def test_sizes_at_the_start_are_those_of_the_normalisations():
    """A mean over 768 weights of mixed signs is small, one over three taps is not;
    without a softmax Xavier's rule draws [C, k] small and [C, C, k] at the size of what
    is read."""
    path = notebook.find_notebook_path("ghostbert_t05_convolution")
    book, names = json.loads(path.read_text()), {"ghostbert": ghostbert}
    sources = ["".join(cell["source"]) for cell in book["cells"]]
    exec(next(s for s in sources if "def ways" in s).rpartition("cut = ")[0], names)
    exec(
        next(s for s in sources if "def size" in s).partition("page.show_table")[0],
        names,
    )
    found = {
        name: float(names["size"](module)) for name, module in names["modules"].items()
    }
    assert found["Conv1D_S"] < 0.25 * found["DWConv"] and 0.2 < found["DWConv"] < 1
    assert found["DWConv, no softmax"] < 0.4 * found["DWConv"]
    assert 0.4 < found["Conv1D_S, no softmax"] < 1.2
    over = found["Conv1D_S, softmax over taps"]
    assert over == pytest.approx(768 * found["Conv1D_S"], rel=0.4)


@pytest.mark.parametrize(
    "page, places",
    [
        ("t02_glue_test", ["table2"]),
        ("t06_position", ["table6", "table11"]),
        ("f01_accuracy_vs_cost", ["figure1"]),
        ("f03_kernel_size", ["table9", "figure3", "text B.1"]),
        ("t04_ablation", ["text 2.3"]),
        ("b04_more_ghosts", ["text 2.1"]),
        ("t07_setup", ["table7"]),
        ("t07_setup", ["table8"]),
        ("t07_setup", ["text 2.1", "text 2.3"]),
        ("s21_mechanism", ["text 2.1"]),
    ],
)
def test_corrections_stand_where_a_reader_of_the_table_looks(page, places):
    book = json.loads(notebook.find_notebook_path(f"ghostbert_{page}").read_text())
    body = "".join(line for c in book["cells"] for line in c["source"])
    body = "".join(body.split()).replace(",)", ")")
    called = ",".join(json.dumps(place.replace(" ", "")) for place in places)
    assert f'list_transcription_corrections("ghostbert",{called})' in body


def test_what_is_said_of_kernels_and_stop_words_is_so():
    (line,) = published.list_transcription_corrections("ghostbert", "text B.1")
    frame = (
        published.read_table("ghostbert", "table9")
        .query("m == '3/12'")
        .set_index("Kernel Size")
    )
    best = frame[["SST-2", "MRPC", "CoLA", "STS-B", "RTE"]].idxmax()
    assert set(best[best != 3].index) == {"CoLA"}
    assert f"{frame['CoLA'][1]} there at k = 1 and {frame['CoLA'][3]} at k = 3" in line
    assert (
        frame["MRPC"][5] == frame["MRPC"][3]
        and f"level with {frame['MRPC'][5]}" in line
    )
    assert (
        f"a list of our own, {len(STOP)};"
        in published.list_transcription_corrections("ghostbert", "text 2.3")[0]
    )


@pytest.mark.papers("bermo")
def test_conventions_that_the_paper_leaves_open_are_told():
    last = ghostbert.FINETUNE["paper"]
    assert last.select == "best" and not last.eval_every  # once an epoch
    assert ghostbert.IMPORTANCE["paper"].split == "dev"  # on MNLI the matched one
    told = " ".join(ghostbert.DEVIATIONS["paper"])
    assert "best model after an epoch; the ancestor's code looks every 50 steps" in told
    assert "importance is measured on the matched development set" in told
    setup, taught = (
        (notebook.find_notebook_path(name)).read_text()
        for name in ("ghostbert_t07_setup", "bermo_t05_distillation")
    )
    assert 'ghostbert.DEVIATIONS[\\"paper\\"]' in setup
    assert "Hidden states are matched after their LayerNorm" in setup
    assert "multiplied by T², T = {bermo.TAUGHT.temperature:g}" in taught


def test_electra_s_operations_are_told_with_and_without_the_head():
    misses = published.read_inconsistent_printed_values("ghostbert")
    (told,) = {miss["reason"] for miss in misses if "ELECTRA" in miss["row"]}
    whole = cost.flops(find_encoder_shape("paper", "electra"), convention="token head")
    head = 128 * (2 * 256**2 + 11 * 256)
    counted = [f"{(whole - head) / 1e9:.3f} G", f"{whole / 1e9:.3f} G"]
    assert re.findall(r"\d\.\d{3} G", told) == counted == ["2.617 G", "2.634 G"]


def test_figure_1_names_outlying_seeds_of_the_models_that_it_draws():
    columns = ["model", "m", "share", "seed", "lost"]
    lines = [
        (model, m, 100 * m / 12, seed, lost)
        for model, m, losses in (
            ("Prune", 3, (-4.0, -5.0, -30.0)),
            ("Prune, labels twice", 6, (-50.0, -4.0, -3.0)),
        )
        for seed, lost in enumerate(losses, 10)
    ]
    frame = pd.DataFrame(lines, columns=columns)
    figure, (axis,) = plot.make_panels([""])
    drawings.draw_score_changes_by_pruning(axis, frame, {})
    told = [text.get_text() for text in axis.texts]
    assert told == [f"▼ seed 12: {plot.MINUS}30"]
    text = drawings.format_ghost_gain_summary(frame, {}, [])
    assert text.endswith("(mean without seed 12)")
    plot.plt.close(figure)


@pytest.mark.parametrize(
    "paired, mean",
    [(["CoLA"], []), (["CoLA", "RTE"], ["Plain, mean of CoLA and RTE"])],
)
def test_a_mean_over_tasks_has_those_on_which_both_models_ran(paired, mean):
    """The whole model has further tasks, which are no part of the difference."""
    cells = json.loads(
        notebook.find_notebook_path("ghostbert_t01_glue_dev").read_text()
    )["cells"]
    sources = ("".join(cell["source"]) for cell in cells)
    code = next(s for s in sources if "means = {}" in s).partition("page.")[0]
    frame = pd.DataFrame({"task": ["SST-2", "CoLA", "RTE"], "run": ["made"] * 3})
    uncut = SimpleNamespace(
        estimate_differences=lambda *models: {("recorded", "12/12"): "gap"}
    )
    names = {
        "runs": SimpleNamespace(
            result_frames_with_source=[("recorded", frame, "base")]
        ),
        "families": {"bert": uncut},
        "NAMES": {"Plain": "as it is"},
        "called": lambda family, place: place.replace(", ,", ","),
        "differences": {("recorded", f"Plain, {task}"): "gap" for task in paired},
        "gains": {f"Plain, {task}": 1.0 for task in ("SST-2", "CoLA", "RTE")},
        "compare": compare,
        "product": product,
    }
    exec(code, names)
    assert names["means"] == {("recorded", row): "gap" for row in mean}
    assert [row for row in names["gains"] if "mean" in row] == mean
