"""EfficientBERT's searches: Specs at every scale, a tiny chain that is killed in each
stage, tables and claims."""

import json
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import holding, stop_at, store_with, with_inputs
from scipy import stats as scipy_stats
from threadpoolctl import threadpool_info

from lib.claims import notebook
from lib.core.execute import execute
from lib.core.spec import Spec
from lib.model import backbone, supernet
from lib.model.formula import parse_feed_forward_formula
from lib.model.parts import get_encoder
from lib.papers import grids, published
from lib.papers.efficientbert import recipes as efficientbert
from lib.papers.efficientbert import searches as search
from lib.papers.efficientbert.options import SubnetworkOptions
from lib.papers.efficientbert.search import samplers
from lib.papers.efficientbert.search.language import is_valid_formula
from lib.papers.efficientbert.search.net import Layer, count_net_parameters, from_json
from lib.papers.efficientbert.search.space import Space
from lib.papers.efficientbert.search.step import make_search_result_json
from lib.papers.efficientbert.students import sample_subnetwork
from lib.report.tables import Runs, collect_results
from lib.stats import measures, paired
from lib.train import loop

pytestmark = pytest.mark.usefixtures("few_rows")
PAGES = (
    "efficientbert_t05_search_stages",
    "efficientbert_t06_search_cost",
    "efficientbert_f03_rank_correlation",
)


# This test stands first, as the fixture `make` changes the settings of toy.
def test_deviations_count_the_candidates_that_evolution_proposes():
    words = {4: "four", 6: "six", 10: "ten", 30: "thirty"}
    of = {
        stage: words[budget - search.make_search_settings("mini", stage).population]
        for stage, budget in search.BUDGET["mini"].items()
    }
    told = " ".join(search.DEVIATIONS["mini"])
    line = f"{of['stage1']} in stage 1, {of['stage2']} in stage 2, {of['single']} in the single"
    assert f"{line} stage, {of['stage3']} in stage 3" in told
    for profile in ("toy", "mini"):
        one, two, three, single = (
            search.BUDGET[profile][s] for s in (*search.STAGES, "single")
        )
        line = f"Stages 1, 2 and 3 have {one}, {two} and {three} evaluations"
        told = " ".join(search.DEVIATIONS[profile])
        assert f"{line}, the single stage {single}" in told
        train, (rows, _) = search.BRIEFLY[profile], search.PART[profile]
        assert f"trained for {train.epochs} epochs on {rows:,} rows" in told


@pytest.mark.parametrize("profile", ["toy", "mini", "paper"])
@pytest.mark.parametrize("page", PAGES)
def test_grids_build_anywhere(page, profile, anywhere):
    found = notebook.execute_grid_cell_and_list_rows_by_variable(
        notebook.find_notebook_path(page), {"profile": profile}
    )
    specs = [row["spec"] for row in found["grid"]]
    assert specs and found["recorded"] and len({*specs}) == len(specs)
    assert {row["kind"] for row in found["grid"]} <= {"student", "search", "supernet"}
    with_inputs(specs)


def table_5(profile, **values):
    """The grid of Table 5."""
    (path,) = notebook.find_notebooks(["efficientbert_t05_*"])
    return notebook.execute_grid_cell_and_list_rows_by_variable(
        path, {"profile": profile} | values
    )["grid"]


def test_networks_of_table_5_have_read_each_text(anywhere):
    """The printed rows are those of Wikipedia alone and, of two networks, also of
    books."""
    rows = [row for row in table_5("paper", tasks=["RTE"]) if row["kind"] == "student"]
    specs = {row["model"]: row["spec"] for row in rows}
    printed = {
        row["Model"]
        for row in published.read_printed_rows("efficientbert", "table05_search_stages")
    }
    assert printed < specs.keys()
    for name, spec in specs.items():
        start = spec.inputs["start"]
        text = "wikipedia" if "Wiki" in name else "wikipedia+books"
        assert start.args["corpus"]["text"] == text
        assert start.inputs["start"] == efficientbert.pretrained_supernet_spec(
            "paper", text
        ), name
    for scale in ("toy", "mini"):
        assert not [row for row in table_5(scale) if "Wiki" in row["model"]]
    with pytest.raises(ValueError, match="unknown text: 'wikipedi'"):
        table_5("paper", texts=["wikipedi"])
    searches = [
        search.search_stage_spec("paper", stage)
        for stage in ("single", "stage1", "stage2")
    ]
    assert {spec.inputs["start"] for spec in searches} == {
        efficientbert.search_stages_1_and_2_supernet_training_spec("paper")
    }


def test_the_paper_s_searches_are_as_printed(anywhere):
    found = {
        stage: search.search_stage_spec("paper", stage)
        for stage in search.BUDGET["paper"]
    }
    budgets = {"stage1": 1900, "stage2": 100, "stage3": 3000, "single": 2700}
    learns = {
        "method": "cascade",
        "draws": 20_000,
        "initial": 80,
        "refit": 10,
        "encoding": "index",
    }
    window = {"low": 15_000_000, "high": 16_000_000}
    for stage, spec in found.items():
        assert spec.args["search"] == learns | {"budget": budgets[stage]}
        assert (window | {"stage": stage}).items() <= spec.args["space"].items()
    one, two, three = (found[stage] for stage in search.STAGES)
    assert (one.args["data"]["rows"], one.args["data"]["held_out"]) == (39270, 3927)
    assert one.args["pretrain"]["epochs"] == 1 and one.args["train"]["epochs"] == 3
    assert one.args["train"]["select"] == "best"
    assert one.args["net"]["layers"] == [["W2 gelu(W1 x)", 1, 1]] * 6
    assert found["single"].args["net"] == one.args["net"]
    assert two.inputs["before"] == one and three.inputs["before"] == two
    assert two.args["net"] == three.args["net"] == {"$output": ["before", "net"]}
    tasks = three.inputs[
        "start"
    ]  # its supernet never saw the rows that score its parts
    assert three.args["data"]["held_out"] == tasks.args["data"]["MNLI"]["held_out"]
    assert "warmup" not in three.args
    for step in (tasks, tasks.inputs["start"]):
        assert step.inputs["search"] == two
        assert step.args["shared"] == {"$output": ["search", "shared"]}
        assert step.args["net"] == {"$output": ["search", "supernet"]}


def test_each_seed_has_a_search_supernets_and_students_of_its_own(anywhere):
    last = search.search_stage_spec("paper", "stage3")
    for spec in (search.retraining_spec("paper", "RTE", last), last):
        assert spec.seed is None and spec.inputs["start"].seed is None
    assert (
        efficientbert.pretrained_supernet_spec("paper").seed == 0
    )  # but all inherit from one


@pytest.mark.parametrize(
    "method, options", [("random", {}), ("evolution", {"population": 10})]
)
def test_other_ways_of_proposing(method, options, anywhere):
    values = {"profile": "paper", "method": method}
    grid = notebook.execute_grid_cell_and_list_rows_by_variable(
        notebook.find_notebook_path(PAGES[1]), values
    )["grid"]
    told = [
        spec.args.get("search") for spec in with_inputs(row["spec"] for row in grid)
    ]
    found = list(filter(None, told))
    assert found and all(
        (options | {"method": method}).items() <= each.items() for each in found
    )


def test_an_unknown_method_stops_before_anything_runs():
    with pytest.raises(
        ValueError, match="unknown search method: 'evolutoin'; did you mean 'evolution'"
    ):
        values = {"profile": "toy", "method": "evolutoin"}
        notebook.execute_grid_cell_and_list_rows_by_variable(
            notebook.find_notebook_path(PAGES[0]), values
        )


@pytest.mark.parametrize("profile", ["toy", "mini"])
def test_half_of_each_search_is_evolved(profile):
    """Single stage and stages 1 and 2 have as many guided evaluations."""
    guided = {}
    for stage, budget in search.BUDGET[profile].items():
        options = search.make_search_settings(profile, stage)
        assert options.method == "evolution" and 1 <= options.population <= 10
        assert options.budget == budget >= 2 * options.population
        guided[stage] = budget - options.population
    assert min(guided.values()) >= 1
    assert guided["single"] == guided["stage1"] + guided["stage2"]


def test_a_stage_begins_where_the_one_before_it_ended(anywhere):
    for profile in ("toy", "mini", "paper"):
        one, two, three = (
            search.search_stage_spec(profile, stage) for stage in search.STAGES
        )
        assert two.inputs["before"] == one and three.inputs["before"] == two
        assert three.inputs["start"].inputs["search"] == two


def test_candidates_of_mini_are_scored_by_the_loss_on_all_held_out_rows(anywhere):
    """The setting S1 of the protocol."""
    one, last = (
        search.search_stage_spec("mini", stage) for stage in ("stage1", "stage3")
    )
    assert (one.args["data"]["rows"], one.args["data"]["held_out"]) == (2000, 4000)
    assert last.args["data"]["held_out"] == 4000 and "teacher" in last.inputs
    assert {s.args["search"]["score"] for s in (one, last)} == {"loss"}
    brief = search.brief_training_with_search_score_spec(
        "mini", search.find_base_network("mini")
    )
    assert brief.args["score"] == "loss" and brief.args["data"] == one.args["data"]
    assert brief.args["train"] == one.args["train"]
    assert (brief.args["train"]["epochs"], brief.args["train"]["lr"]) == (3, 3e-4)
    for profile in ("toy", "paper"):
        assert "score" not in search.search_stage_spec(profile, "stage1").args["search"]
        assert (
            "score"
            not in search.brief_training_with_search_score_spec(
                profile, search.find_base_network(profile)
            ).args
        )


@pytest.mark.parametrize("profile", ["toy", "mini", "paper"])
def test_candidates_are_different_networks_of_the_window(profile):
    low, high = efficientbert.find_parameter_count_bounds(profile)
    nets = search.sample_stage_1_candidates(profile)
    tables = efficientbert.list_embedding_sizes(profile)
    assert nets[:3] == search.sample_stage_1_candidates(profile, 3)
    assert (
        len({json.dumps(net.to_json()) for net in nets}) == search.CANDIDATES[profile]
    )
    assert all(
        low <= count_net_parameters(net, "with projection", **tables) <= high
        for net in nets
    )
    assert any(layer.formula != "W2 gelu(W1 x)" for net in nets for layer in net.layers)


def test_equal_evaluations_at_the_small_scales():
    for profile in ("toy", "mini"):
        budget = search.BUDGET[profile]
        assert budget["single"] == budget["stage1"] + budget["stage2"]


def test_a_supernet_is_trained_in_parts_that_fit_its_formulas():
    net = efficientbert.scale_network_to_profile("EfficientBERT", "toy")
    formulas = ("W1 gelu(x) + W2 tanh(x)", "W2 gelu(W1 x)")
    net = replace(net, layers=tuple(Layer(text, 2, 1) for text in formulas))
    made = make_search_result_json(Space("stage2", net, 7, 9**9), net)
    assert made["shared"]["window"] == [7, 9**9] and made["net"] == net.to_json()
    assert [layer[1:] for layer in made["supernet"]["layers"]] == [[4, 1]] * 2
    first, second = made["shared"]["choices"]
    # the two sides of the first formula have one width at ratio 1 alone
    assert first == [[k, 1] for k in (1, 2, 3, 4)] + [[2, 1]]
    assert len(second) == 17 and second[-1] == [2, 1] and second.count([2, 1]) == 2
    whole, shared = from_json(made["supernet"]), SubnetworkOptions(**made["shared"])
    for step in range(40):
        drawn = sample_subnetwork(
            whole, shared, 0, step, **efficientbert.list_embedding_sizes("toy")
        )
        for layer in drawn.layers:
            assert is_valid_formula(
                parse_feed_forward_formula(layer.formula),
                net.hidden,
                drawn.count_inner_channels(layer),
                "truncate",
            )


SMALL = {"epochs": 1, "batch": 16, "max_length": 24, "lr": 2e-3}


@contextmanager
def shrunk():
    """The last stage of toy's own chain, shrunk."""
    change = pytest.MonkeyPatch()
    first = grids.untrained_toy_encoder_spec()
    small = first.args["model"] | {"hidden": 48, "ffn": 96}
    first = Spec("pretrain", first.args | {"model": small}, seed=0)
    for module in (efficientbert, grids, search):
        change.setattr(
            module, "pretrained_encoder_spec", lambda profile, family="bert": first
        )
    text = {"sentences": 60, "seed": 1}
    change.setattr(
        efficientbert,
        "make_corpus_descriptor",
        lambda profile, corpus_name="", count=None: text,
    )
    change.setitem(efficientbert.SIZES, "toy", {"540": 24, "360": 12, "768": 48})
    change.setitem(efficientbert.MULTITASK, "toy", ("CoLA",))
    change.setattr(
        efficientbert, "find_parameter_count_bounds", lambda profile: (1, 10**9)
    )
    change.setitem(grids.ROWS["toy"], "CoLA", 64)
    change.setitem(grids.HELD_OUT, "toy", 40)
    own = (
        efficientbert.TEACHER,
        efficientbert.PRETRAIN,
        efficientbert.TOGETHER,
        search.FINAL,
    )
    for stage in (*own, efficientbert.FINETUNE, search.BRIEFLY):
        change.setitem(stage, "toy", replace(stage["toy"], **SMALL))
    change.setitem(search.PART, "toy", (48, 40))
    change.setitem(search.HELD_OUT, "toy", 40)
    change.setitem(
        search.BUDGET, "toy", {"stage1": 4, "stage2": 3, "stage3": 8, "single": 5}
    )
    yield search.search_stage_spec("toy", "stage3")
    change.undo()


@pytest.fixture(scope="module")
def last(make):
    """The same, run with one retrained winner."""
    with shrunk() as last:
        make(search.retraining_spec("toy", "CoLA", last))
        make(search.search_stage_spec("toy", "single"))
        yield last


def lines(run):
    head, *entries = map(
        json.loads, (run.folder / "history.jsonl").read_text().splitlines()
    )
    return head, [entry | {"seconds": 0} for entry in entries]


def test_winners_are_handed_from_stage_to_stage_and_to_their_training(make, last):
    two, one = last.inputs["before"], last.inputs["before"].inputs["before"]
    for spec, start in ((two, make(one)), (last, make(two))):
        assert lines(make(spec))[0]["space"]["start"] == start.metrics["net"]
    tasks, tuned = last.inputs["start"], search.retraining_spec("toy", "CoLA", last)
    for spec, found, name in (
        (tasks, two, "supernet"),
        (tasks.inputs["start"], two, "supernet"),
        (tuned, last, "net"),
        (tuned.inputs["start"], last, "net"),
    ):
        assert spec.inputs["search"] == found
        model = backbone.load(make(spec).model_folder)[0]
        assert supernet.read_architecture_of_model(model) == make(found).metrics[name]
    final = make(search.final_training_spec("toy", "CoLA", search=two))
    assert final.spec["args"]["net"] == {"$output": ["search", "net"]}


def test_training_on_a_task_moves_every_weight(make, last):
    tuned = search.retraining_spec("toy", "CoLA", last)
    before, after = (
        dict(get_encoder(backbone.load(make(spec).model_folder)[0]).named_parameters())
        for spec in (tuned.inputs["start"], tuned)
    )
    still = {name for name, value in before.items() if torch.equal(value, after[name])}
    assert still == set()


def test_the_single_stage_begins_as_stage_1_does(make, last):
    single, one = (
        lines(make(spec))[1]
        for spec in (
            search.search_stage_spec("toy", "single"),
            last.inputs["before"].inputs["before"],
        )
    )
    assert single[:4] == one and len(single) == 5


@pytest.mark.parametrize("stage, calls", [("stage1", 2), ("stage2", 7), ("stage3", 4)])
def test_killed_in_any_stage_a_search_finds_the_same_winner(
    stage, calls, make, last, tmp_path, monkeypatch
):
    spec = search.search_stage_spec("toy", stage).with_seed(1)
    whole = make(spec)
    other = store_with(tmp_path, *map(make, spec.input_specs_with_seeds.values()))
    stop_at(monkeypatch, loop, "make_batch", calls)
    with pytest.raises(KeyboardInterrupt):
        execute(spec, other, checkpoint_interval_seconds=0.0)
    assert not other.find_run(spec)
    resumed = execute(spec, other, checkpoint_interval_seconds=0.0)
    assert lines(resumed) == lines(whole) and resumed.status["attempts"] == 2
    for name in ("net", "supernet", "shared", "score"):
        assert resumed.metrics[name] == whole.metrics[name]


def costed(store, seed):
    """The frame of Table 6's grid at toy and one seed."""
    values = {"profile": "toy", "tasks": ["CoLA"], "seeds": [seed]}
    grid = notebook.execute_grid_cell_and_list_rows_by_variable(
        notebook.find_notebook_path(PAGES[1]), values
    )["grid"]
    return collect_results(grid, store)


def drawn(frame):
    """(parts of the table, curves of the picture) of the page of Table 6 on such a
    frame."""
    (path,) = notebook.find_notebooks(["efficientbert_t06_*"])
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
    part = Runs(frame[frame["kind"] == "search"], frame[:0], "toy")
    names = {"runs": SimpleNamespace(select_runs=lambda kind: part)}
    names["page"] = SimpleNamespace(show_remarks=list)
    for mark in ("def grid", "def chained", "def costs", "ARMS = "):
        exec(next(cell for cell in cells if mark in cell), names)
    return names["costs"](frame, "toy", "here"), names["candidates"]


def test_pages_read_chains_from_their_runs(store, last):
    frame = costed(store, 1)
    table, told = drawn(frame)
    columns = [("here", "evaluations"), ("here", "of them trained")]
    cells = {name: tuple(map(row.get, columns)) for name, row in table.items()}
    assert cells == {
        "Single stage": ("5", "5"),
        "Search stage 1": ("4", "4"),
        "Search stage 1, 2": ("7", "7"),
        "Coarse-to-Fine NAS": ("15", "7"),
        "Supernet": (None, None),
        "Supernet of stage 3, text": (None, None),
        "Supernet of stage 3, tasks": (None, None),
    }
    assert all(float(row["here", "cost (s)"].split()[0]) > 0 for row in table.values())
    ends = told.groupby("arm")["evaluation"].max().to_dict()
    assert ends == {"single stage": 5, "stage 3": 8, "stages 1, 2": 7}
    for _, rows in told.groupby("arm"):
        assert (rows["best"] == np.maximum.accumulate(rows["score"])).all()
    chain = frame[frame["model"].isin(["stage2", "stage3"])]["run"]
    two, three = (
        [formula for formula, *_ in run.metrics["net"]["layers"]] for run in chain
    )
    assert two == three


def test_scores_of_candidates_pair_by_name():
    told = {"task": "SST-2", "seed": 0}
    searched = {"1": 0.8, "2": 0.7, "3": np.nan}
    final = {"1": 0.9, "2": 0.85, "3": 0.95}
    parts = [
        pd.DataFrame(
            told | {"model": name, column: score, "run": holding(**{column: score})}
            for name, score in scores.items()
        )
        for column, scores in (("accuracy", final), ("held_out.accuracy", searched))
    ]
    found = measures.tabulate_search_and_final_scores_by_candidate(
        parts, grids.select_metrics_by_task("mini", efficientbert.COLUMNS)
    ).round(6)
    assert found.to_dict("split")["data"] == [[80.0, 90.0], [70.0, 85.0]]
    assert list(found.index) == ["1", "2"] and list(found) == ["search", "final"]


def test_tau_is_that_of_scipy_and_ties_are_allowed():
    rng = np.random.default_rng(0)
    for n in (5, 12, 30):
        x, y = rng.integers(0, 8, n), rng.integers(0, 8, n)
        found = paired.estimate_kendall_tau(x, y)
        tau, p = scipy_stats.kendalltau(x, y)
        assert (found.mean, found.p, found.n_seeds) == (
            pytest.approx(tau),
            pytest.approx(p),
            n,
        )
        assert -1 <= found.low <= found.mean <= found.high <= 1
    alike = paired.estimate_kendall_tau(range(12), range(12))
    assert (alike.mean, alike.low, alike.high) == pytest.approx((1, 1, 1))
    flat = paired.estimate_kendall_tau([1, 1, 1, 1], [1, 2, 3, 4])
    assert (flat.mean, flat.p) == (0, 1) and flat.low < 0 < flat.high
    assert flat.high - flat.low < 1e-8
    ranks = [4, 0, 5, 7, 3, 1, 8, 2, 11, 6, 10, 9]  # The bootstrap alone excludes 0.
    found = paired.estimate_kendall_tau(range(12), ranks)
    assert found.mean > 0.4 and found.p > 0.05 and found.low < 0


def test_the_interval_of_tau_covers():
    rng, truth, hits = np.random.default_rng(1), 2 / np.pi * np.arcsin(0.6), 0
    for draw in range(200):
        x = rng.normal(size=12)
        found = paired.estimate_kendall_tau(
            x, 0.6 * x + 0.8 * rng.normal(size=12), bootstrap_draw_count=400, seed=draw
        )
        hits += found.low <= truth <= found.high
    assert 0.9 <= hits / 200 <= 0.99


def test_the_cascade_learns_on_one_thread(monkeypatch):
    seen = []
    monkeypatch.setattr(
        samplers, "fit_classifiers_of_promising_networks", lambda *args: []
    )

    def follow(*args):
        seen.extend(each["num_threads"] for each in threadpool_info())

    monkeypatch.setattr(samplers, "sample_unevaluated_candidate", follow)
    options = search.make_search_settings("paper", "stage1")
    assert options.method == "cascade"
    samplers.propose_candidate(None, [], options, None)
    assert set(seen) == {1}


def test_pages_of_nothing_are_empty(store, last):
    frame = costed(store, 7)
    table, told = drawn(frame)
    assert list(table) == ["Supernet"] and told.empty


def test_a_longer_search_and_a_longer_brief_training_are_other_runs(anywhere):
    more = search.search_stage_spec("toy", "stage2", factor_on_candidate_count=2)
    for stage, spec in (("stage2", more), ("stage1", more.inputs["before"])):
        assert spec.args["search"]["budget"] == 2 * search.BUDGET["toy"][stage]
    values = {"profile": "toy", "epochs": [1, 6], "candidates": 3}
    rows = notebook.execute_grid_cell_and_list_rows_by_variable(
        notebook.find_notebook_path(PAGES[2]), values
    )["grid"]
    brief = [row for row in rows if row["kind"] == "search"]
    assert len(rows) == 9 and len({row["spec"].id for row in rows}) == 9
    assert len(brief) == 6
    assert all(row["spec"].args["train"]["epochs"] == row["epochs"] for row in brief)
