"""GhostBERT's Specs at their true size, without data and weights; what is refused; its
claims."""

import copy
import json
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import FAMILIES, RunWriter, classes, every_spec, made, untrained

from lib import data
from lib.__main__ import main
from lib.claims import notebook
from lib.core.names import Refused
from lib.core.options import Distil, Ghost, Importance
from lib.core.spec import to_plain_json
from lib.core.store import Store
from lib.model import backbone, parts
from lib.model.parts import count_parameters, get_recorded_model_changes, set_dropout
from lib.model.surgery import apply_surgery
from lib.papers import grids, published, students
from lib.papers.ghostbert import recipes as ghostbert
from lib.papers.grids import find_encoder_shape
from lib.stats import cost
from lib.stats.cost import build_transformers_config
from lib.train import loop, losses
from lib.train.batches import EncodedRows, encode_split
from lib.train.steps import distilling

PAGES = notebook.find_notebooks(["ghostbert_*"])
T01 = notebook.find_notebook_path("ghostbert_t01_glue_dev")


def family_of(spec):
    """The kind of the checkpoint that a Spec's model came from."""
    while spec.step != "checkpoint":
        spec = spec.inputs.get("teacher") or spec.inputs["start"]
    return next(
        f for f, name in grids.CHECKPOINTS["paper"].items() if name == spec.args["name"]
    )


def classifier(sizes, labels=2, layers=None, surgery=()):
    """A classifier of a Shape with random weights, operated on."""
    pad = {"pad_token_id": 1} if sizes.family == "roberta" else {}
    sizes = replace(sizes, layers=layers or sizes.layers)
    config = build_transformers_config(sizes, num_labels=labels, **pad)
    return backbone.build_random_model(classes(sizes.family)[1], config, surgery)


def test_every_surgery_of_the_paper_builds_at_true_size(anywhere):
    surgeries = {
        (family_of(spec), json.dumps(spec.args["surgery"]))
        for spec in every_spec(PAGES, "paper")
        if "surgery" in spec.args
    }
    widths = {family: set() for family in grids.list_encoder_families("paper")}
    for family, text in sorted(surgeries):
        surgery, sizes = json.loads(text), find_encoder_shape("paper", family)
        options = {
            op["op"]: {k: v for k, v in op.items() if k != "op"} for op in surgery
        }
        heads = options.get("cut", {}).get("heads")
        ghosts = Ghost(**options["ghost"]) if "ghost" in options else None
        widths[family].add(heads or sizes.heads)
        with torch.device("meta"):
            model = classifier(sizes, surgery=surgery)
        assert count_parameters(model)["parameters"] == cost.parameters(
            sizes, heads, ghosts
        ), (
            family,
            surgery,
        )
        assert len(parts.get_layers(model)) == sizes.layers == 12
    assert widths == {
        "bert": {12, 9, 6, 3, 1},
        "roberta": {12, 9, 6, 3, 1},
        "electra": {4},
    }


def test_what_the_paper_s_specs_hold_together(anywhere):
    specs = every_spec(PAGES, "paper")
    trained = [s for s in specs if "data" in s.args and s.step != "predict"]
    tasks = {spec.args["data"]["task"] for spec in trained}
    assert tasks == set(ghostbert.TASKS["paper"])
    for spec in specs:
        args, inputs = spec.args, spec.inputs
        if spec.step == "distil":
            cut = any(op["op"] == "cut" for op in args["surgery"])
            assert cut == ("importance" in inputs)
            short = args["data"]["task"] in ("MNLI", "QQP")
            assert args["train"]["epochs"] == (1 if short else 3)
            assert all(each.args["data"] == args["data"] for each in inputs.values())
        if spec.step == "importance":
            assert args["importance"] == to_plain_json(
                Importance("dev", 8, 128, cumulative=True)
            )
        if "train" in args:
            assert args["train"]["pad_to"] == args["train"]["max_length"] == 128
    bare = {s.name for s in specs if s.step == "distil" and "augmented" not in s.inputs}
    page = notebook.find_notebook_path("ghostbert_t04_ablation")
    rows = notebook.execute_grid_cell_and_list_rows_by_variable(
        page, {"profile": "paper"}
    )["grid"]
    without = [row["spec"] for row in rows if row["model"].endswith("- DA")]
    assert bare and bare == {
        spec.input_specs_with_seeds["start"].name for spec in without
    }


def test_the_paper_s_students_learn_from_augmented_rows(anywhere):
    for task, tries in (
        ("CoLA", 30),
        ("RTE", 30),
        ("SST-2", 20),
        ("MNLI", 10),
        ("QQP", 10),
    ):
        one, two = (
            ghostbert.student_spec("paper", task, *told)
            .inputs["start"]
            .inputs["augmented"]
            for told in ((3, ghostbert.make_ghost_options("paper"), "roberta"), (1,))
        )
        told = {"tries": tries, "p": 0.4, "candidates": 15, "neighbours": "embeddings"}
        assert one == two and one.args["augment"] == told and one.seed == 0
        assert one.inputs["language_model"].args["name"] == "bert-base-uncased"


@pytest.mark.parametrize("kind, outputs", [("MNLI", 3), ("STS-B", 1)])
def test_heads_of_other_tasks(kind, outputs):
    assert data.find_task_by_name("glue", kind).output_width == outputs
    with torch.device("meta"):
        model = classifier(find_encoder_shape("paper", "roberta"), outputs)
    assert count_parameters(model)["parameters"] == cost.parameters(
        find_encoder_shape("paper", "roberta"), label_count=outputs
    )


def test_two_steps_at_true_width(tmp_path, monkeypatch):
    """Two of the 12 layers, the paper's settings but for the batch: both stages move
    kernels, embeddings and head."""
    sizes, made, rates = find_encoder_shape("paper"), [], []

    class Watched(torch.optim.AdamW):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            made.append(self)

        def step(self, *args):
            rates.append(self.param_groups[0]["lr"])
            return super().step(*args)

    monkeypatch.setattr(torch.optim, "AdamW", Watched)
    teacher = classifier(sizes, layers=2).eval()
    student = copy.deepcopy(teacher)
    set_dropout(student, students.DISTIL["paper"].dropout)
    for op in (
        {"op": "cut", "heads": 3},
        {"op": "ghost"} | to_plain_json(ghostbert.make_ghost_options("paper")),
    ):
        apply_surgery(student, op)
    draw = np.random.default_rng(0)
    encoded = EncodedRows(
        {"input_ids": [draw.integers(5, sizes.vocab, n) for n in (128, 90, 17, 60)]},
        torch.tensor([0, 1, 1, 0]),
        0,
    )
    before = {
        name: value.detach().clone() for name, value in student.named_parameters()
    }
    head = [name for name in before if name.startswith("classifier")]

    def moved():
        now = student.named_parameters()
        return {name for name, value in now if not torch.equal(value, before[name])}

    small = {"batch": 2, "epochs": 1, "select": "last"}
    numerics = grids.find_profile_settings("paper").numerics
    training = SimpleNamespace(run=SimpleNamespace(inputs={}), numerics=numerics)
    with distilling.build_distillation_loss(
        training, student, teacher, Distil()
    ) as loss:

        def distilled(batch, rows):
            assert batch["input_ids"].shape == (2, 128)
            return loss(batch, rows)

        train = replace(students.DISTIL["paper"], **small)
        first = loop.fit(
            RunWriter(tmp_path), student, encoded, distilled, train, numerics
        )
    kernels = {name for name in before if "convolution" in name}
    assert len(kernels) == 4 and kernels <= moved() and moved().isdisjoint(head)
    assert any("word_embeddings" in name for name in moved())

    def tuned(batch, rows):
        return losses.compute_prediction_losses(
            student(**batch).logits, encoded.labels[rows], grids.LABELS
        )

    train = replace(ghostbert.FINETUNE["paper"], **small)
    second = loop.fit(RunWriter(tmp_path), student, encoded, tuned, train, numerics)
    assert set(head) <= moved()
    assert all(r["steps"] == 2 for r in (first, second))
    betas = (grids.LOOP["Adam beta1"], grids.LOOP["Adam beta2"])
    assert all(
        group["betas"] == betas
        for optimiser in made
        for group in optimiser.param_groups
    )
    assert rates == pytest.approx([2e-5, 1e-5] * 2)  # linear, no warm-up


@pytest.mark.parametrize("scale", ["toy", "mini"])
def test_augmentation_is_one_switch_at_the_small_scales(scale):
    task, module = ghostbert.TASKS[scale][0], ghostbert.make_ghost_options(scale)
    page = notebook.find_notebook_path("ghostbert_t04_ablation")
    values = {"profile": scale, "tasks": [task], "widths": [3], "seeds": [0]}
    rows = {
        (row["m"], row["model"]): row["spec"]
        for row in notebook.execute_grid_cell_and_list_rows_by_variable(page, values)[
            "grid"
        ]
    }
    cut = ("GhostBERT", "- Softmax", "- ReLU", "- DA & KD", "+ DA")
    if scale == "mini":
        cut += ("Prune", "Prune, labels twice", "GhostBERT, labels twice")
    whole = ("Plain", "Ghost", "Distilled", "Ghost + DA", "Distilled + DA")
    assert set(rows) == {*product([3], cut), *product([12], whole)}
    pairs = {3: {"GhostBERT": "+ DA"}}
    pairs[12] = {"Ghost": "Ghost + DA", "Distilled": "Distilled + DA"}
    for m, without, augmented in [
        (m, *pair) for m, own in pairs.items() for pair in own.items()
    ]:
        one, two = (rows[m, label].inputs["start"] for label in (without, augmented))
        same, more = dict(one.inputs), dict(two.inputs)
        same.pop("states", None)
        assert more.pop("augmented").args["augment"]["tries"] == 1
        assert one.args == two.args and same == more
        assert "augmented" not in same and "states" not in more
    assert rows[12, "Distilled + DA"].inputs["start"].args["surgery"] == []
    assert rows[3, "GhostBERT"] == ghostbert.student_spec(
        scale, task, 3, module
    ).with_seed(0)


def test_the_grid_of_table_1_is_a_sample_at_toy(anywhere):
    rows = notebook.execute_grid_cell_and_list_rows_by_variable(T01, {"profile": "toy"})
    students = [row for row in rows["grid"] if row["model"] != "Plain"]
    assert len(students) == 4 and {row["task"] for row in students} == {"CoLA"}
    assert {(r["family"], r["m"]) for r in students} == {
        *product(("bert",), (12, 3, 1))
    }
    every = ["RTE", "CoLA"]
    more = {"tasks": every, "widths": [9, 6, 3, 1], "seeds": [0, 1]}
    whole = notebook.execute_grid_cell_and_list_rows_by_variable(
        T01, {"profile": "toy"} | more
    )["grid"]
    assert len(whole) == 2 * 2 * (3 + 4)
    assert {row["task"] for row in whole} == {*every}
    assert {row["family"] for row in rows["recorded"]} == {"bert"}
    page = notebook.find_notebook_path("ghostbert_f01_accuracy_vs_cost")
    # Nothing of its own to record, but for seeds, which are those of a page's
    # comparisons.
    shared = {
        row["spec"].id
        for row in notebook.execute_grid_cell_and_list_rows_by_variable(page, {})[
            "recorded"
        ]
    }
    assert {row["spec"].id for row in rows["recorded"]} <= shared


def test_lines_of_table_1_are_the_printed_ones_and_the_control():
    printed = [
        name.partition(" (")[0] if "et al." in name else name
        for name in published.read_table("ghostbert", "table1")["Model"]
    ]
    lines = list(
        ghostbert.map_rows_of_table_1_to_encoders_and_variants(ghostbert.WIDTHS)
    )
    assert [name for name in lines if not name.endswith(", distilled")] == printed
    assert len(lines) == len(printed) + 3


SIZES = {"layers": 2, "hidden": 48, "ffn": 96}


@pytest.mark.parametrize("family", FAMILIES)
def test_each_kind_is_cut_gets_ghosts_and_is_loaded_again(
    family, tmp_path, monkeypatch
):
    """The small scale's own Specs, shrunk, through the store: with the kind's own head,
    and the same logits again."""
    short = {"epochs": 1, "batch": 16, "max_length": 32}
    total, heads = (4, 2) if family == "electra" else (12, 3)
    first = untrained(family, heads=total, **SIZES)
    encoder, _ = backbone.load(
        made(Store(tmp_path, tmp_path / "none"), first).model_folder
    )
    sizes = cost.read_shape_of_config(encoder.config.to_dict())
    for module in (ghostbert, students):
        monkeypatch.setattr(
            module,
            "find_encoder_shape",
            lambda scale, kind="bert": (
                sizes if scale == "toy" else find_encoder_shape(scale, kind)
            ),
        )
    monkeypatch.setattr(
        grids, "pretrained_encoder_spec", lambda profile, family="bert": first
    )
    monkeypatch.setitem(grids.ROWS["toy"], "CoLA", 48)
    monkeypatch.setitem(grids.HELD_OUT, "toy", 24)
    for stage in (grids.TEACHER, students.DISTIL, ghostbert.FINETUNE):
        monkeypatch.setitem(stage, "toy", replace(stage["toy"], **short))
    # No table of the paper has an MPNet or a DistilBERT.
    kind = family if family in grids.CHECKPOINTS["paper"] else "bert"
    last = ghostbert.student_spec(
        "toy", "CoLA", heads, ghostbert.make_ghost_options("toy"), kind
    ).with_seed(1)
    run = made(Store(tmp_path, tmp_path / "none"), last)
    model, tokenizer = backbone.load(run.model_folder)
    assert isinstance(model, classes(family)[1])
    assert [op["op"] for op in get_recorded_model_changes(model)] == ["cut", "ghost"]
    assert {
        layer.attention.self.num_attention_heads for layer in parts.get_layers(model)
    } == {heads}
    assert run.metrics["parameters"] == cost.parameters(
        sizes, heads, ghostbert.make_ghost_options("toy")
    )
    rows = encode_split(tokenizer, data.load(last.args["data"])["dev"], 32)
    again = loop.predict_logits(
        model, rows, grids.find_profile_settings("toy").numerics
    )
    assert heads < total and np.array_equal(
        again, run.read_arrays("predictions")["logits"]
    )


@pytest.mark.parametrize(
    "scale, family, heads, message",
    [
        (
            "toy",
            "bert",
            0,
            "width 0/12 of 12 heads is no whole number of them: take 1, 2, 3, ",
        ),
        ("toy", "bert", 13, "width 13/12 of 12"),
        ("mini", "bert", 0.5, "width 0.5/12 of 12"),
        ("toy", "bert", True, "width True/12 of 12"),
        ("paper", "electra", 9, "width 9/4 of 4 heads .*: take 1, 2, 3, 4 of 4"),
        (
            "mini",
            "roberta",
            3,
            "kind of encoder in profile 'mini': 'roberta'; did you mean",
        ),
        ("paper", "elektra", 3, "'elektra'; did you mean 'electra'"),
    ],
)
def test_a_width_that_an_encoder_has_not_stops_before_anything_runs(
    scale, family, heads, message
):
    task = ghostbert.TASKS[scale][0]
    with pytest.raises(ValueError, match=message):
        ghostbert.student_spec(
            scale, task, heads, ghostbert.make_ghost_options(scale), family
        )


@pytest.mark.parametrize(
    "make, stages",
    [
        (ghostbert.student_spec, 2),
        (ghostbert.student_trained_on_labels_spec, 2),
        (ghostbert.pruned_undistilled_model_spec, 1),
    ],
)
def test_every_stage_of_ghosts_tied_to_tokens_is_padded_to_these(make, stages):
    ghosts = ghostbert.make_ghost_options("toy", kind="conv1d_f", tokens=48)
    spec = make("toy", "CoLA", 3, ghost_options=ghosts)
    for _ in range(stages):
        train = spec.args["train"]
        assert train["pad_to"] == train["max_length"] == 48
        spec = spec.inputs.get("start")


def test_widths_are_of_twelve():
    assert ghostbert.select_possible_widths("toy", (12, 1)) == (12, 1)
    for width in (0, 13, 24, -3):
        with pytest.raises(
            Refused, match=f"unknown width in twelfths: {width}.* 11, 12"
        ):
            ghostbert.select_possible_widths("toy", (3, width))


@pytest.mark.parametrize(
    "heads, changes, message",
    [
        (
            3,
            {"positions": ("qk",)},
            "'dwconv' has no meaning on attention maps: position 'qk' takes",
        ),
        (
            3,
            {"kind": "conv2d", "positions": ("qk", "v")},
            "'qk' and 'v' both stand in for",
        ),
        (
            12,
            {"positions": ("v",)},
            "position 'v' generates the pruned heads, and none is pruned",
        ),
        (
            12,
            {"kind": "conv2d", "positions": ("qk",)},
            "'qk' generates the pruned heads, and none",
        ),
        (
            3,
            {"features": 4, "positions": ("ffn1",)},
            "features is 4; more than one is defined at",
        ),
        (
            3,
            {"features": 2, "positions": ("v",)},
            "features is 2; more than one is defined",
        ),
        (3, {"features": 0}, "Ghost.features is 0"),
        (3, {"kernel": 2}, "even kernel"),
        (3, {"positions": ("ffn3",)}, "'ffn3'; allowed"),
    ],
)
def test_ghosts_that_do_not_go_together_stop_before_anything_runs(
    heads, changes, message
):
    with pytest.raises(ValueError, match=message) as error:
        ghostbert.student_spec(
            "toy", "CoLA", heads, ghostbert.make_ghost_options("toy", **changes)
        )
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"widths": [0]}, "0 must be from 1 to 12"),
        (
            {"families": ["bart"]},
            "unknown kind of encoder .* 'bart'; did you mean 'bert'",
        ),
        (
            {"profile": "mini", "families": ["electra"]},
            "unknown kind of encoder in profile 'mini'",
        ),
        ({"tasks": ["colla"]}, "did you mean 'CoLA'"),
    ],
)
def test_wrong_parameters_of_table_1(values, message):
    with pytest.raises(ValueError, match=message):
        notebook.execute_grid_cell_and_list_rows_by_variable(T01, values)


def test_a_model_refuses_a_cut_of_another_kind():
    told = "cut to 9 heads: keep 1 to 4"
    with torch.device("meta"), pytest.raises(ValueError, match=told):
        apply_surgery(
            classifier(find_encoder_shape("paper", "electra"), layers=1),
            {"op": "cut", "heads": 9},
        )


@pytest.mark.papers("nas_pruning")
def test_the_plan_of_the_paper_needs_no_data(without_data, capsys):
    without_data()
    assert main(["plan", "nas_t0", "ghostbert_t03", "--profile", "paper"]) == 0
    told = capsys.readouterr().out
    for words in (
        *("ghostbert_t03_pruned_vs_ghost: ", "729 runs missing", "time unknown"),
        *("models/bert-base-uncased", "glue/CoLA", "glue/MNLI"),
    ):
        assert words in told
    with pytest.raises(FileNotFoundError):
        grids.teacher_spec("paper", "MNLI")  # a plan alone does without
