"""BERMo: settings against printed tables, grids, claims on made-up runs, a Spec at true
size."""

import json
import math
import re
from itertools import product
from math import ceil

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from conftest import collected

from lib.claims import notebook
from lib.model import backbone, masks
from lib.model.parts import count_parameters, get_layers
from lib.model.surgery import apply_surgery
from lib.papers import grids, published, settings
from lib.papers.bermo import measures, pruning, schedules
from lib.papers.bermo import recipes as bermo
from lib.papers.bermo import tables as bermo_tables
from lib.papers.bermo.options import Mix, Prune
from lib.report.tables import Runs
from lib.stats import paired

NOTEBOOKS = notebook.find_notebooks(["bermo_[tf]*"])
RUN = [path for path in NOTEBOOKS if "t06" not in notebook.make_notebook_id(path)]


def page_of_settings():
    """What the page of Tables 6 to 11 defines, and its tables."""
    (page,) = notebook.find_notebooks(["bermo_t06"])
    cells = ["".join(cell["source"]) for cell in json.loads(page.read_text())["cells"]]
    names = {}
    for source in cells[3:6]:
        exec(source, names)
    return names


def test_every_printed_hyperparameter_is_the_setting():
    tables = page_of_settings()["tables"]
    assert tables.keys() == bermo.TABLES.keys()
    for name, table in tables.items():
        numbers = table[
            table["published"].apply(lambda c: c.str.fullmatch(r"[\d.e-]+")).any(axis=1)
        ]
        assert (
            len(numbers)
            and not settings.mark_cells_that_differ_from_paper(numbers).to_numpy().any()
        ), name


def test_hyperparameters_are_those_of_the_specs(anywhere):
    hyperparameters = page_of_settings()["hyperparameters"]
    for name, (method, distilled) in bermo.TABLES.items():
        for column, model in product(
            published.read_table("bermo", name).columns[1:], bermo.MODELS
        ):
            task = {"SQuAD": "SQuAD1"}.get(column, column)
            spec = bermo.pruned_spec(
                "paper",
                task,
                model,
                method,
                distillation_weight=bermo.ALPHA * distilled,
            )
            told, train = hyperparameters(task, method, distilled), spec.args["train"]
            prune = Prune(**spec.args["prune"])
            steps = (
                ceil(bermo.EXAMPLES["paper"][task] / train["batch"]) * train["epochs"]
            )
            assert (
                int(train["warmup"] * steps)
                == prune.warmup_steps
                == told["warmup_steps"]
            )
            names = {"lr": "learning_rate", "epochs": "num_train_epochs"}
            for field, printed in (names | {"max_length": "max_seq_length"}).items():
                assert train[field] == told[printed]
            assert prune.final_lambda == told.get(f"final_lambda ({model}_BASE)", 0.0)
            assert spec.args.get("alpha") == told.get("alpha_distill")
            assert ("teacher" in spec.inputs) == distilled and spec.args[
                "frozen"
            ] == "embeddings"
            assert ("mix" in spec.args) == (model == "BERMo")


@pytest.mark.parametrize(
    "task, steps, first, last",
    [
        ("MNLI", 73632, 12000, 61632),
        ("QQP", 113710, 22000, 80710),
        ("SQuAD1", 55410, 5400, 44610),
        ("SST-2", 52625, 2100, 50525),
    ],
)
def test_the_paper_s_steps_and_ramps(task, steps, first, last):
    train, prune = bermo.make_pruning_settings("paper", task)
    assert ceil(bermo.EXAMPLES["paper"][task] / train.batch) * train.epochs == steps
    ramp = schedules.plan_threshold_ramp(prune, steps)
    assert (ramp.last_step_at_start, ramp.first_step_at_end, prune.overlong) == (
        first,
        last,
        "refuse",
    )
    assert ramp(first) == 1.0 and ramp(last + 1) == 0.1


@pytest.mark.parametrize("profile", ("toy", "mini", "paper"))
def test_only_budgets_that_the_warm_ups_do_not_fit_are_pruned_by_a_jump(profile):
    jumps = set()
    for task in bermo.PRUNED[profile]:
        for epochs in bermo.find_setting(bermo.BUDGETS, profile, task, "budgets"):
            train, prune = bermo.make_pruning_settings(profile, task, epochs=epochs)
            rows = bermo.EXAMPLES[profile] or {
                task: bermo.make_bermo_data_descriptor(profile, task)["rows"]
            }
            steps = ceil(rows[task] / train.batch) * epochs
            schedules.plan_threshold_ramp(prune, steps)
            jumps |= {(task, epochs)} if prune.overlong == "jump" else set()
    assert (
        jumps
        == {"toy": set(), "mini": set(), "paper": {("MNLI", 1), ("SQuAD1", 2)}}[profile]
    )


def test_unpruned_settings_are_the_appendix_s(anywhere):
    args, plainly = (
        bermo.unpruned_model_spec("paper", "MNLI", model).args
        for model in bermo.MODELS[::-1]
    )
    train = {"epochs": 3, "batch": 32, "lr": 5e-5, "max_length": 128, "pad_to": 128}
    train |= {"clip": 1.0, "dropout": 0.1}
    mix = {"norm": "layers", "init": "xavier_uniform", "lr": 1e-2, "dropout": 0.1}
    assert args["train"] == train and args["mix"] == mix
    long = train | {"batch": 16, "max_length": 384, "pad_to": 384}
    assert bermo.unpruned_model_spec("paper", "SQuAD1").args["train"] == long
    assert {"prune", "frozen"}.isdisjoint(args) and "mix" not in plainly


def grids_of(profile):
    """{page: rows of its grid}."""
    return {
        notebook.make_notebook_id(path)[
            6:9
        ]: notebook.execute_grid_cell_and_list_rows_by_variable(
            path, {"profile": profile}
        )["grid"]
        for path in RUN
    }


def names(rows, **wanted):
    """The Specs of rows without their seeds, which are those of a page's
    comparisons."""
    return {
        row["spec"].id for row in rows if all(row[k] == v for k, v in wanted.items())
    }


@pytest.mark.parametrize("profile", ("toy", "mini", "paper"))
def test_grids_build_and_share_their_specs(profile, anywhere):
    found = grids_of(profile)
    specs = {name: names(rows) for name, rows in found.items()}
    assert all(specs.values())
    probed = set().union(*(names(found["t01"], model=model) for model in bermo.MODELS))
    assert probed | specs["t02"] <= specs["f03"]
    movement = names(found["t04"], method="Movement")
    assert movement == names(found["t05"], teacher="none") and movement <= specs["f05"]
    taught = [row["spec"] for row in found["t05"] if row["teacher"] != "none"]
    assert {spec.input_specs_with_seeds["teacher"].id for spec in taught} <= specs[
        "t02"
    ]
    if profile == "toy":
        assert movement <= specs["t03"] and len(set().union(*specs.values())) <= 50


@pytest.mark.parametrize(
    "page, axes, option",
    [
        ("t01", {"lr": 1e-3}, ("train", "lr", 1e-3)),
        ("t03", {"shares": [0.2], "epochs": 3}, ("prune", "final_threshold", 0.2)),
        ("t04", {"methods": ["L0"], "weights": [7.0]}, ("prune", "final_lambda", 7.0)),
        ("t04", {"methods": ["L0"], "shares": [0.3]}, ("prune", "target", 0.3)),
        ("t05", {"alphas": [0.5, 0.9]}, ("alpha", "", 0.5)),
        ("f03", {"rate": 0.02, "norms": ["tokens"]}, ("mix", "lr", 0.02)),
        ("f05", {"epochs": [1, 7]}, ("train", "epochs", 7)),
    ],
)
def test_an_axis_adds_its_point_and_keeps_what_was_there(page, axes, option):
    (path,) = notebook.find_notebooks([f"bermo_{page}"])
    rows = notebook.execute_grid_cell_and_list_rows_by_variable(
        path, {"profile": "toy", **axes}
    )["grid"]
    group, name, value = option
    found = [row["spec"].args.get(group, {}) for row in rows]
    found = [each.get(name) if isinstance(each, dict) else each for each in found]
    assert value in found
    labels = [tuple(v for k, v in row.items() if k != "spec") for row in rows]
    assert len(set(labels)) == len(rows) == len({row["spec"].name for row in rows})


def test_recorded_specs_need_no_data(without_data):
    without_data()
    assert all(
        notebook.execute_grid_cell_and_list_rows_by_variable(path, {})["recorded"]
        for path in RUN
    )


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: grids.select_tasks("toy", ["SST2"], tasks_by_profile=bermo.PRUNED),
            "'SST2'; did you mean 'SST-2'",
        ),
        (
            lambda: bermo.make_pruning_settings("paper", "CoLA"),
            "unknown task with printed settings: 'CoLA'",
        ),
        (
            lambda: bermo.make_pruning_settings("mini", "CoLA"),
            "a known number of rows at mini: 'CoLA'",
        ),
        (
            lambda: bermo.make_pruning_settings("paper", "SST-2", method="L0"),
            "settings of L0 at paper: 'SST-2'",
        ),
        (
            lambda: bermo.make_pruning_settings("toy", "SST-2", method="movment"),
            "did you mean 'Movement'",
        ),
        (
            lambda: bermo.make_pruning_settings("toy", "Tense", kept_share=0.0),
            "the kept share is 0.0: take one above 0",
        ),
        (
            lambda: bermo.make_pruning_settings("toy", "Tense", kept_share=1.5),
            "the kept share is 1.5: take one above 0",
        ),
        (
            lambda: bermo.make_pruning_settings("base", "SST-2", method="L0"),
            "profile with settings of L0: 'base' (allowed: toy, mini, paper)",
        ),
        (
            lambda: bermo.pruned_spec("toy", "Tense", "Embeddings alone", "L0"),
            "model with settings of L0: 'Embeddings alone' (allowed: BERT, BERMo)",
        ),
        (
            lambda: bermo.make_pruning_settings(
                "toy", "Tense", method="Magnitude", penalty_weight=7.0
            ),
            "Prune.final_lambda is 7.0; 'magnitude' has no scores",
        ),
        (
            lambda: bermo.make_pruning_settings(
                "toy", "Tense", method="L0", kept_share=0.3, penalty_weight=0.0
            ),
            "Prune.target is 0.3; a penalty reaches it, and final_lambda is 0",
        ),
        (
            lambda: Prune("soft", 0, 0.1, 10, target=0.1),
            "Prune.target is 0.1; a penalty reaches it, and final_lambda is 0",
        ),
        (
            lambda: Prune("movement", 1.0, 0.1, 10, target=0.1, final_lambda=1.0),
            "Prune.target is 0.1; 'movement' has no controller",
        ),
        (
            lambda: Prune("soft", 0.0, 0.0, 10, final_lambda=1.0),
            "Prune.final_threshold is 0.0; a penalty is divided by it",
        ),
        (
            lambda: bermo.make_bermo_run_arguments("toy", "SST-2", "BERTo"),
            "unknown model: 'BERTo'",
        ),
    ],
)
def test_bad_input_is_told(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_one_spec_of_the_paper_at_true_size(anywhere):
    spec = bermo.pruned_spec("paper", "MNLI", "BERMo")
    bert = transformers.BertConfig(num_labels=3)
    with torch.device("meta"):
        model = backbone.build_random_model(
            transformers.BertForSequenceClassification, bert
        )
        plainly = count_parameters(model)["parameters"]
        mixed = apply_surgery(model, Mix(**spec.args["mix"]).surgery_operation, seed=0)
        masked = pruning.PruningMasks(None, model, Prune(**spec.args["prune"]), 73632)
    assert mixed == {"states": 13, "parameters": 14}
    number = sum(mask.scores.numel() for *_, mask in masked.places)
    assert number == sum(scores.numel() for scores in masked.scores) == 84_934_656
    assert len(masked.places) == 72 and masked.ramp.last_step_at_start == 12000
    assert sum(p.numel() for p in model.parameters()) == plainly + 14 + number
    everything = sum(p.numel() for p in get_layers(model).parameters()) - number
    kept = sum(
        int(0.1 * linear.in_features * linear.out_features)
        for _, _, linear in masks.list_linear_layers(model)
    )
    assert everything == 85_054_464 and len(get_layers(model)) == 12
    share = pruning.compute_pruning_metrics(number, kept, everything)["remaining"]
    assert share == pytest.approx(0.1012674, abs=1e-7)


def test_printed_rows_have_our_names():
    found = bermo_tables.read_printed_bermo_scores(
        "table04_pruning_methods", ("Pruning Approach", "Model")
    )
    assert set(found) == {
        f"{method} · {model}" for method in bermo.METHODS for model in bermo.MODELS
    }
    assert found["L0 · BERMo"]["published", "QQP Remaining %"] == 5.5


def frame(*rows):
    """rows: (task, model, seed, right of 200, more columns)."""
    return collected(
        *(
            (task, model, seed, np.arange(200) < right, {"diverged": False} | more)
            for task, model, seed, right, more in rows
        )
    )


def both(score, seeds=range(6), tasks=("SST-2",), **more):
    """A frame in which BERMo is better than BERT by `score` examples, more with higher
    seeds."""
    return frame(
        *(
            (task, model, seed, 150 + seed % 3 + score * (model == "BERMo"), more)
            for task in tasks
            for model in bermo.MODELS
            for seed in seeds
        )
    )


@pytest.mark.parametrize("runs", [3, 8, 10])
def test_the_gap_of_all_and_none_has_exact_limits(runs):
    """Clopper and Pearson's lower limit of n of n is 0.025 ** (1 / n), and their upper
    limit of 0 of n is the rest."""
    gap = paired.estimate_difference_of_proportions([True] * runs, [False] * runs)
    low = 1 - 2**0.5 * (1 - 0.025 ** (1 / runs))
    assert (gap.mean, gap.low, gap.high) == pytest.approx((100, 100 * low, 100))
    assert gap.p == pytest.approx(2 / math.comb(2 * runs, runs))
    assert (gap.low > 0) == (gap.p < 0.05)  # three runs each are too few


@pytest.mark.parametrize("counts", [(6, 6, 2, 6), (9, 10, 4, 10), (2, 6, 6, 6)])
def test_what_the_exact_test_does_not_reject_lies_inside(counts):
    """Newcombe's limits exclude 0 there, and an end at 0 would agree with "above 0"."""
    a, n, b, m = counts
    flags = [True] * a + [False] * (n - a), [True] * b + [False] * (m - b)
    gap = paired.estimate_difference_of_proportions(*flags)
    assert gap.p >= 0.05 and gap.low < 0 < gap.high


METRICS = grids.select_metrics_by_task("mini")


def budgets_of(bert, bermo_scores, seeds=(0, 1, 2, 3)):
    return frame(
        *(
            ("SST-2", model, seed, right, {"epochs": epochs})
            for seed in seeds
            for model, scores in (("BERT", bert), ("BERMo", bermo_scores))
            for epochs, right in zip((1, 2, 3, 4), scores, strict=True)
        )
    )


def test_b3_asks_when_the_longest_run_of_bert_is_matched():
    bert = (100, 120, 140, 160)
    made = budgets_of(bert, (120, 160, 161, 160))
    line = measures.tabulate_fewest_epochs_to_match_bert_by_seed(made, METRICS).iloc[0]
    assert (line["BERT"], line["BERMo"]) == (4, 2)
    never = measures.tabulate_fewest_epochs_to_match_bert_by_seed(
        budgets_of(bert, (100, 110, 120, 130)), METRICS
    )
    assert set(never["BERMo"]) == {5}
    nearly = measures.tabulate_fewest_epochs_to_match_bert_by_seed(
        budgets_of(bert, (100, 110, 120, 159)), METRICS, 0.5
    )
    assert set(nearly["BERMo"]) == {4}
    assert measures.tabulate_fewest_epochs_to_match_bert_by_seed(
        made[made["epochs"] < 2], METRICS
    ).empty


def test_measured_cells_are_those_of_the_columns():
    rows = both(10, seeds=(0,), method="L0", remaining=0.101)
    kept = {("here", "SST-2 Remaining %"): "10.1 (1)"}
    assert bermo_tables.make_table_of_run_scores(
        rows, "here", "mini", ("method", "model")
    ) == {
        "L0 · BERT": {("here", "SST-2 Acc"): "75.0 (1)"} | kept,
        "L0 · BERMo": {("here", "SST-2 Acc"): "80.0 (1)"} | kept,
    }


def test_gaps_are_of_pairs_that_did_not_collapse():
    rows = both(10, tasks=("SST-2", "CoLA"))
    wrong = frame(*(("CoLA", "BERT", seed, 100, {}) for seed in range(6)))
    rows = pd.concat(
        [rows[(rows["task"] == "SST-2") | (rows["model"] == "BERMo")], wrong]
    )
    gaps = Runs(rows, rows[:0], "mini").estimate_differences("BERMo", "BERT")
    assert {at: (round(e.mean, 9), e.n_seeds) for (_, at), e in gaps.items()} == {
        "SST-2": (5.0, 6)
    }
    above = Runs(rows, rows[:0], "mini").estimate_differences_at_equal_width("BERMo")
    assert [at for _, at in above] == ["BERT, SST-2"] and list(above.values()) == [
        *gaps.values()
    ]


def test_lower_gradients_are_geometric_means_of_the_lower_half_of_the_layers():
    norms = np.array([[1e-2, 1e-4, 1.0, 1.0], [1.0, 1e-2, 9.0, 9.0]])
    rows = frame(("SST-2", "BERT", 0, 150, {}), ("SST-2", "BERMo", 0, 100, {}))
    for run in rows["run"]:
        run.read_arrays("course")["gradient_norm"] = norms
    learned, collapsed = measures.list_mean_log10_gradient_norms_of_lower_layers(
        rows, METRICS
    )
    assert learned == -2.0
    assert math.isnan(collapsed)  # A model at chance has no gradients to compare.


def test_cased_text_is_an_option_beside_table_1(anywhere):
    """Off, it is no part of a Spec."""
    rows = [
        row for row in grids_of("mini")["t01"] if row["model"] == "BERT, cased text"
    ]
    cells = {(row["task"], row["seed"]) for row in rows}
    assert cells == {(t, s) for t in bermo.CASED["mini"] for s in bermo.PROBED["mini"]}
    for row in rows:
        plainly = bermo.unpruned_model_spec("mini", row["task"]).args
        assert (
            row["spec"].args == plainly | {"lower_case": False}
            and "lower_case" not in plainly
        )
    assert "BERT, cased text" not in {row["model"] for row in grids_of("toy")["t01"]}
