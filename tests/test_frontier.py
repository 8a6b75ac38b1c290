"""The frontier: its grid, its costs against PyTorch's count, its front, and how a
method is added.
"""

import importlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import count
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from conftest import made_up
from torch.utils.flop_counter import FlopCounterMode

from lib import methods
from lib.claims import notebook
from lib.core import paths
from lib.core.names import Refused
from lib.core.spec import find_transitive_input_specs
from lib.methods import layer_dropping
from lib.model import backbone
from lib.model.parts import count_parameters, get_encoder, get_layers
from lib.model.surgery import apply_surgery
from lib.papers import frontier
from lib.papers.ghostbert import recipes as ghostbert
from lib.papers.grids import find_encoder_shape
from lib.report import plot, tables
from lib.stats import cost
from lib.stats.cost import build_transformers_config

PAGE = notebook.find_notebook_path("91_frontier")


def grid(kind="model", **values):
    """The rows of a kind of the page's grid."""
    return [
        row
        for row in notebook.execute_grid_cell_and_list_rows_by_variable(PAGE, values)[
            "grid"
        ]
        if row["kind"] == kind
    ]


def test_every_method_has_a_point_at_each_budget(anywhere):
    for profile in ("toy", "mini"):
        seeds = frontier.SEEDS[profile][:1]
        rows = grid(
            profile=profile, seeds=list(seeds), tasks=list(frontier.TASKS[profile][:1])
        )
        counts = {
            name: sum(row["model"] == name for row in rows) for name in frontier.TABLE
        }
        budgets = len(frontier.BUDGETS[profile])
        assert counts == {
            n: 1 if m.has_single_model else budgets for n, m in frontier.TABLE.items()
        }
        assert len({row["spec"].name for row in rows}) == len(rows)


@pytest.mark.papers("nas_pruning")
def test_students_differ_in_their_surgery_alone(anywhere):
    """Same teacher, rows and epochs: the runs of Table 3 are points of the frontier."""
    rows = {row["model"]: row["spec"] for row in grid()}
    table = [
        ghostbert.table_model_spec("toy", "CoLA", 3, model).with_seed(0)
        for model in ghostbert.MODELS
    ]
    assert [rows["Width"], rows["GhostBERT"]] == table
    for name in (
        "NAS",
        "Random",
        "NAS + ghosts",
        "Layer dropping",
        "Torch-Pruning Taylor",
    ):
        ours = rows[name].input_specs_with_seeds["start"]
        theirs = rows["Width"].input_specs_with_seeds["start"]
        assert rows[name].args == rows["Width"].args
        assert {k: v for k, v in ours.args.items() if k != "surgery"} == {
            k: v for k, v in theirs.args.items() if k != "surgery"
        }
    whole = rows["Whole"]
    for name, spec in rows.items():
        if "Fine-pruned" not in name:
            assert whole in {spec, *find_transitive_input_specs([spec])}, name


@pytest.mark.papers("nas_pruning")
@pytest.mark.parametrize(
    "name, has_ghosts",
    [
        ("GhostBERT", True),
        ("NAS + ghosts", True),
        ("Width", False),
        ("NAS", False),
        ("Uniform", False),
        ("Layer dropping", False),
    ],
)
def test_the_rate_of_ghost_kernels_is_for_models_with_ghosts(
    name, has_ghosts, anywhere
):
    """Profile base has such a rate, 1e-2, in both stages of training."""
    spec = frontier.TABLE[name].make_spec("base", "SST-2", 3)
    stages = [spec, spec.inputs["start"]] if name != "Uniform" else [spec]
    rates = [stage.args["train"].get("taps", 0.0) for stage in stages]
    assert rates == [0.01 if has_ghosts else 0.0] * len(stages)


@pytest.mark.papers("efficientbert", "bermo")
@pytest.mark.parametrize("task, epochs", [("MNLI", 4), ("QQP", 4), ("SST-2", 6)])
def test_one_stage_is_as_long_as_two(task, epochs, anywhere):
    """The paper distils on MNLI and QQP for one epoch, on others for three."""
    made = {
        name: method.make_spec("paper", task, 6)
        for name, method in frontier.TABLE.items()
    }
    last = made["Width"]
    both = [spec.args["train"]["epochs"] for spec in (last, last.inputs["start"])]
    assert sum(both) == epochs
    for name in (
        "Uniform",
        "GhostBERT, warmed up",
        "Fine-pruned BERT",
        "Fine-pruned BERMo",
        "EfficientBERT",
    ):
        assert made[name].args["train"]["epochs"] == epochs, name


@pytest.mark.papers("bermo")
def test_a_method_without_settings_for_a_task_is_left_out(anywhere):
    """The page's own example of tasks must work at each profile."""
    for profile in ("mini", "paper"):
        named = {"profile": profile, "tasks": ["SST-2", "CoLA"], "seeds": [10]}
        models = {(row["task"], row["model"]) for row in grid(**named)}
        assert ("SST-2", "Fine-pruned BERMo") in models and ("CoLA", "Width") in models
        assert ("CoLA", "Fine-pruned BERMo") not in models
        with pytest.raises(Refused, match="'CoLA'"):
            grid(**named, methods=["Whole", "Fine-pruned BERMo"])


def test_an_unknown_method_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'GhostBERT'"):
        grid(methods=["GhostBRT"])


def counted(model, tokens):
    ids = torch.ones(1, tokens, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=ids)
    return counter.get_total_flops()


@pytest.mark.papers("nas_pruning")
@pytest.mark.parametrize(
    ("name", "m", "ops"),
    [
        ("Whole", 0, ()),
        ("Width", 3, ({"op": "cut", "heads": 3},)),
        ("Layer dropping", 6, ({"op": "layer_dropping", "layers": [1]},)),
        ("Torch-Pruning Taylor", 3, ({"op": "cut", "heads": 3},)),
        ("NAS", 3, ({"op": "keep", "heads": [[0], [3, 4]], "neurons": [[1, 2], [5]]},)),
    ],
)
def test_flops_are_those_that_pytorch_counts(name, m, ops):
    own = find_encoder_shape("toy")
    model = backbone.build_random_model(*encoder(own), ops)
    kept = ops[0] if name == "NAS" else None
    wanted = frontier.count_method_flops(
        "toy", name, m, kept and {k: v for k, v in kept.items() if k != "op"}
    )
    assert counted(model, frontier.TOKENS) == wanted


@pytest.mark.parametrize(
    ("name", "m", "ops"),
    [
        ("Layer dropping", 6, ({"op": "layer_dropping", "layers": [1]},)),
        ("Torch-Pruning Taylor", 3, ({"op": "cut", "heads": 3},)),
    ],
)
def test_a_model_of_another_size_than_its_plan_is_left_out(name, m, ops):
    """Else a method of one's own would stand at FLOPs that its models do not have."""
    own = encoder(find_encoder_shape("toy"))
    whole, pruned = (
        count_parameters(backbone.build_random_model(*own, more))["parameters"]
        for more in ((), ops)
    )
    explain = partial(frontier.explain_parameter_count_mismatch, "toy", name, m)
    assert pruned < whole and explain(pruned, whole) is None
    for wrong in (whole, pruned + 1):
        assert explain(wrong, whole).startswith(f"left out {name} at {m}/12: its model")


@pytest.mark.parametrize("page", ["91_frontier", "92_your_task"])
def test_a_page_states_the_model_of_a_wrong_size_and_compares_the_others(page):
    """One wrong method takes no page from the others."""
    shares = {"Whole": 0.9, "Width": 0.7, "Layer dropping": 0.8}
    frame = made_up(shares, seeds=2).assign(kind="model", parameters=1e6, m=0)
    frame.loc[frame["model"] != "Whole", "m"] = 6
    (code,) = (
        "".join(cell["source"])
        for cell in json.loads(notebook.find_notebook_path(page).read_text())["cells"]
        if "explain_models_left_out" in "".join(cell["source"])
    )
    remarks = []
    names = {"page": SimpleNamespace(show_remarks=remarks.extend), "profile": "mini"}
    names |= {"frontier": frontier, "cost": "flops", "share": 0.5}
    names["runs"] = tables.Runs(frame, frame[:0], "mini", page)
    exec(code, names)
    table = names.get("points", names.get("data"))
    assert [*table["model"]] == ["Whole", "Width 6/12"]
    (line,) = remarks
    assert line.startswith("left out Layer dropping at 6/12: its model has 1,000,000")
    assert "lib/methods/layer_dropping.py names" in line
    sound = frame[frame["model"] != "Whole"]  # Without it no size is expected.
    assert frontier.explain_models_left_out_of_comparison(sound, "mini") == {}


def test_flops_of_ghosts_are_the_convolutions():
    own, ghost = find_encoder_shape("toy"), ghostbert.make_ghost_options("toy")
    gap = frontier.count_method_flops(
        "toy", "GhostBERT", 3
    ) - frontier.count_method_flops("toy", "Width", 3)
    assert gap == cost.count_ghost_flops(own, ghost) > 0


def encoder(own):
    from transformers import BertModel

    config = build_transformers_config(own)
    config._attn_implementation = "eager"
    return BertModel, config


def test_layer_dropping_keeps_the_layers_that_it_names(tiny):
    model = tiny()
    second = get_layers(model)[1]
    assert apply_surgery(model, {"op": "layer_dropping", "layers": [1]}) == {
        "layers": 1
    }
    assert list(get_encoder(model).encoder.layer) == [second]
    for wrong in ([], [1], [0, 0], [-1]):
        with pytest.raises(ValueError, match="layer_dropping keeps the layers"):
            apply_surgery(model, {"op": "layer_dropping", "layers": wrong})


@pytest.mark.parametrize(
    ("share", "kept"),
    [(0.5, [1, 3, 5]), (0.25, [2, 5]), (1 / 12, [5]), (1.0, [*range(6)])],
)
def test_layer_dropping_takes_equal_steps(share, kept):
    six = replace(find_encoder_shape("toy"), layers=6)
    widths, arguments = layer_dropping.plan_pruning(six, share)
    assert arguments == {"layers": kept} and widths == [(six.heads, six.ffn)] * len(
        kept
    )


POINTS = pd.DataFrame(
    [
        {"model": "Whole", "method": "Whole", "m": 0, "flops": 100.0, "score": 90.0},
        {"model": "A 3/12", "method": "A", "m": 3, "flops": 25.5, "score": 80.0},
        {"model": "B 3/12", "method": "B", "m": 3, "flops": 26.0, "score": 79.0},
        {
            "model": "Width 3/12",
            "method": "Width",
            "m": 3,
            "flops": 25.0,
            "score": 78.0,
        },
        {"model": "C 3/12", "method": "C", "m": 3, "flops": 40.0, "score": 89.0},
        {"model": "D 3/12", "method": "D", "m": 3, "flops": 40.0, "score": 85.0},
    ]
)


def test_the_front_has_what_nothing_cheaper_beats():
    assert frontier.list_models_on_pareto_front(POINTS, "flops") == [
        "Width 3/12",
        "A 3/12",
        "C 3/12",
        "Whole",
    ]


def test_each_model_stands_beside_the_narrowest_plain_one_of_its_cost():
    lines = POINTS.to_dict("records")
    assert (
        frontier.find_width_pruned_baseline(lines, 26.0)["model"] == "Width 3/12"
    )  # 5 % more
    assert frontier.find_width_pruned_baseline(lines, 40.0) is None
    lines.append(
        {"model": "Whole, distilled", "method": "Whole, distilled", "flops": 100.0}
    )
    assert (
        frontier.find_width_pruned_baseline(lines, 40.0)["model"] == "Whole, distilled"
    )


def test_a_gap_is_paired_with_the_plain_model():
    shares = {"Width": 0.7, "GhostBERT": 0.75, "Whole": 0.9, "Whole, distilled": 0.8}
    frame = made_up(shares, seeds=3)
    frame["m"] = [3 if name in ("Width", "GhostBERT") else 0 for name in frame["model"]]
    frame = frame.assign(kind="model", parameters=1e6)
    table = frontier.tabulate_models_by_task_with_costs(frame, "mini").set_index(
        "method"
    )
    for name, beside in {
        "GhostBERT": "Width 3/12",
        "Whole": "Whole, distilled",
    }.items():
        line, other = table.loc[name], table.set_index("model").loc[beside]
        assert (
            line["beside"] == beside
            and line["gap_low"] <= line["gap"] <= line["gap_high"]
        )
        assert line["gap"] == pytest.approx(line["score"] - other["score"])
    assert (
        table["gap"]["Width"] == 0
        and table["budget"].to_dict()["Whole"] == frontier.HEADS
    )


def test_a_score_of_0_or_100_has_an_interval_and_so_has_a_gap_without_a_difference():
    """Wilson's interval of all of n rows right ends at n / (n + 3.84)."""
    columns = {"kind": "model", "parameters": 1e6, "m": 0}
    frame = made_up({"Whole": 1.0, "Whole, distilled": 1.0}, seeds=3).assign(**columns)
    table = frontier.tabulate_models_by_task_with_costs(frame, "mini").set_index(
        "method"
    )
    limit = 100 * 3.8415 / (600 + 3.8415)
    ends = table.loc["Whole", ["low", "high"]]
    assert [*ends] == [pytest.approx(100 - limit, abs=1e-3), 100]
    wrong = made_up({"Whole": 0.0}, seeds=1).assign(**columns)
    (line,) = frontier.tabulate_models_by_task_with_costs(wrong, "mini").to_dict(
        "records"
    )
    assert (line["low"], line["high"]) == (0, pytest.approx(limit, abs=1e-3))
    gap = table.loc["Whole", ["gap_low", "gap", "gap_high"]]
    assert [*gap] == [pytest.approx(end, abs=1e-3) for end in (-limit, 0, limit)]


ASK = "from lib.papers import frontier; print(*frontier.TABLE, sep='; ')"


def test_a_method_is_one_file_and_one_line(tmp_path):
    """As CONTRIBUTING says: away it is gone everywhere, back it is everywhere."""

    def asked():
        done = subprocess.run(
            [sys.executable, "-c", ASK],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip().split("; ")

    for folder in ("lib", "data/published", "data/unseen"):
        shutil.copytree(paths.ROOT / folder, tmp_path / folder)
    table, own = (
        tmp_path / "lib/methods" / f"{name}.py"
        for name in ("__init__", "layer_dropping")
    )
    line = '    "Layer dropping": "layer_dropping",\n'
    text = table.read_text()
    code = own.read_text()
    there = asked()
    assert "Layer dropping" in there and line in text
    table.write_text(text.replace(line, ""))
    own.unlink()
    assert asked() == [name for name in there if name != "Layer dropping"]
    table.write_text(text)
    own.write_text(code)
    assert asked() == there
    # Without the code of a paper its methods are absent.
    for title in {"Width", "GhostBERT", "Width + layer mix"}.intersection(there):
        table.write_text(text.replace('"Layer dropping":', f'"{title}":'))
        fault = f"METHODS names 'layer_dropping' '{title}', as another method is called"
        with pytest.raises(subprocess.CalledProcessError) as failed:
            asked()
        assert fault in failed.value.stderr
    for name in ("mix", "scores", "width"):
        table.write_text(text.replace('"layer_dropping"', f'"{name}"'))
        with pytest.raises(subprocess.CalledProcessError) as failed:
            asked()
        assert f"lib/methods/{name}.py has the name of an oper" in failed.value.stderr


NUMBERS = count()
RANKS = """
def plan_pruning(shape, share):
    return [(3, shape.ffn // 4)] * shape.layers, {"op": "cut", "heads": 3, **MORE}
def compute_importance_scores(model):
    raise AssertionError("a plan alone is asked for")
"""
DROPS = """
def plan_pruning(shape, share):
    return [(shape.heads, shape.ffn)], {"layers": [0], **MORE}
def prune(model, layers, version=0):
    raise AssertionError("a plan alone is asked for")
"""
VERSIONS = {}, {"version": 1}, {"version": 2}


@pytest.fixture
def write_method(tmp_path, monkeypatch):
    """f(code): write a method "Edge" of one's own; return the name of its file."""
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])

    def write(code):
        name = f"edge_{next(NUMBERS)}"
        if code is not None:
            (tmp_path / f"{name}.py").write_text(code)
        importlib.invalidate_caches()
        monkeypatch.setitem(methods.METHODS, "Edge", name)
        monkeypatch.setattr(frontier, "TABLE", frontier.collect_compression_methods())
        return name

    return write


PLAN = "def prune(model): pass\ndef plan_pruning(shape, share): return "
FAULTS = [
    (None, "unknown file that METHODS of lib/methods names: .*allowed: .*layer_dropp"),
    ("import absent_package", "cannot be imported .*No module named 'absent_package'"),
    ("def plan_pruning(", r"cannot be imported \(SyntaxError"),
    ("def prune(model): pass", "plan_pruning failed .*has no attribute 'plan_pruning'"),
    (PLAN + "share['x']", r"plan_pruning failed \(TypeError"),
    (PLAN + "[(6, 8)]", r"plan_pruning returned \[\(6, 8\)\] \(ValueError: not enough"),
    (PLAN + "None", r"plan_pruning returned None \(TypeError"),
    (PLAN + "[], {}", r"returned \(\[\], {}\) \(ValueError: 0 layers\)"),
    (PLAN + "[(6, 8)] * 99, {}", "ValueError: 99 layers"),
    (PLAN + "[(13, 8)], {}", "ValueError: 13 heads"),
    (PLAN + "[(0.5, 8)], {}", "ValueError: 0.5 heads"),
    (PLAN + "[(6, 10**9)], {}", "ValueError: 1000000000 neurons"),
    (PLAN + "[(6,)], {}", r"returned \(\[\(6,\)\], {}\) \(ValueError: not enough"),
    (PLAN + "[(6, 8)], [1]", r"returned \(\[\(6, 8\)\], \[1\]\) \(TypeError"),
    (PLAN + "[(6, 8)], {'x': {1, 2}}", r"\(set\) cannot stand in a Spec"),
    (PLAN.partition("\n")[2] + "[(6, 8)], {}", "no function `prune`, and no operation"),
]


@pytest.mark.parametrize("code, text", FAULTS)
def test_a_wrong_method_is_refused_with_its_file_and_a_fix(
    code, text, write_method, anywhere
):
    name = write_method(code)
    with pytest.raises(Refused, match=text) as caught:
        grid(methods=["Whole", "Edge"])
    message = str(caught.value)
    assert name in message and "\n" not in message
    assert code is None or f"lib/methods/{name}.py" in message and "; fix: " in message
    others, values = notebook.find_notebook_path("92_your_task"), {"methods": ["Whole"]}
    assert notebook.execute_grid_cell_and_list_rows_by_variable(others, values)["grid"]


def test_a_version_of_a_ranking_makes_its_scores_again(write_method, anywhere):
    """Else the scores of a mended function would be those of the wrong one."""

    def plan(code, **more):
        write_method(code.replace("MORE", repr(more)))
        (row,) = grid(methods=["Edge"], budgets=[3])
        return row["spec"].inputs["start"]

    plain, first, second = (plan(RANKS, **more) for more in VERSIONS)
    assert "version" not in plain.inputs["importance"].args["importance"]
    for start, version in ((first, 1), (second, 2)):
        ranking = start.inputs["importance"].args["importance"]
        assert ranking["version"] == version
    for start in (plain, first, second):
        assert start.args["surgery"] == [{"op": "cut", "heads": 3}]
    for version, start in enumerate(plan(DROPS, **more) for more in VERSIONS):
        (change,) = start.args["surgery"]
        assert change.get("version", 0) == version
        assert "importance" not in start.inputs


@pytest.mark.papers()
def test_a_page_of_models_without_a_rival_is_made(tmp_path):
    """As the line that CONTRIBUTING's reader types first: whole and width alone."""
    place = notebook.find_notebook_path("91_frontier")
    sources = [
        "".join(cell["source"])
        for cell in json.loads(place.read_text())["cells"]
        if "def conclude" in "".join(cell["source"])
    ]
    names = {"plot": plot}
    exec(sources[0], names)
    figure, (axis,) = plot.make_panels(["SST-2"])
    none = pd.DataFrame(columns=["gap", "gap_low", "gap_high"], dtype=float)
    names["conclude"](axis, none)
    assert "no model has a rival" in axis.get_title().replace("\n", " ")


@pytest.mark.papers("nas_pruning")
def test_networks_are_timed_as_cut_without_training(anywhere):
    (row,) = grid("clock")
    models = row["spec"].inputs
    assert "model:Fine-pruned BERT 3/12" not in models
    for name in (
        "Width",
        "GhostBERT",
        "NAS",
        "Random",
        "NAS + ghosts",
        "Layer dropping",
    ):
        assert models[f"model:{name} 3/12"].step == "operate"
    assert not any(
        "Torch-Pruning" in name for name in models
    )  # the shape of Width is there
    assert (
        models["model:Whole"] == grid()[0]["spec"]
        and "model:Whole, distilled" not in models
    )
    assert grid("clock", methods=["Width"]) == []  # nothing to compare with
    assert {row["model"] for row in grid("search")} == {"NAS", "Random", "NAS + ghosts"}
