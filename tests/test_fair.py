"""The fair comparisons of mini: their plan and rule, their rows, and what they differ
in."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import trials_fair
from conftest import made, scored, untrained

from lib import data
from lib.claims import evidence, judging, lists, notebook
from lib.claims.cells import parse_comparisons, parse_seeds, select_compared_rows
from lib.core import paths
from lib.core.options import Distil, Ghost, Numerics, Targets, Train
from lib.core.rows import Row
from lib.core.spec import Spec, to_plain_json
from lib.core.store import Store
from lib.model import backbone
from lib.papers import grids
from lib.papers.bermo import recipes as bermo
from lib.papers.bermo.options import Mix
from lib.papers.ghostbert import recipes as ghostbert
from lib.papers.ghostbert import tables as ghost_tables
from lib.papers.nas_pruning import measures
from lib.papers.nas_pruning import recipes as nas
from lib.papers.nas_pruning.options import Objective

PLAN = lists.read_csv_in_published_folder("plan_fair")
PLANNED = [row for row in PLAN if row["word"] == "planned"]
TEXT = (paths.PUBLISHED / "protocol_fair.md").read_text()


@pytest.fixture(autouse=True)
def official():
    with data.plan_with_missing_data(use_local_data=False):
        yield


def rows(page, **values):
    (path,) = notebook.find_notebooks([page])
    return notebook.execute_grid_cell_and_list_rows_by_variable(
        path, {"profile": "mini"} | values, include_rows_of_recorded_runs=False
    )["grid"]


def specs(page, **labels):
    """{model: its Spec without a seed} of the rows of a page with these labels."""
    found = rows(page)
    return {row["model"]: row["spec"] for row in found if labels.items() <= row.items()}


@pytest.mark.papers()
def test_the_plan_is_within_its_core_hours_and_in_the_order_of_its_points():
    assert (
        sum(float(row["core_hours"]) for row in PLANNED) + 1.3 <= 30 and "(1.3)" in TEXT
    )
    assert [row["order"] for row in PLAN] == [str(n) for n in range(1, len(PLAN) + 1)]
    points = [int(row["point"]) for row in PLANNED]
    assert points == sorted(points) and {*points} == {1, 2, 3, 4, 5, 6}
    words = [row["word"] for row in PLAN]
    assert words == sorted(words, key=["planned", "beyond 30 core-hours"].index)


@pytest.mark.parametrize("row", PLANNED, ids=lambda row: row["claim"])
def test_a_line_has_the_seeds_and_the_pages_of_its_claim(row):
    claim = lists.read_claims()[row["claim"]]
    first, number = int(row["first_seed"]), int(row["seeds"])
    assert parse_seeds(claim["seeds"]) == tuple(range(first, first + number))
    assert claim["artefact"] == row["page"] and (
        first >= 20 or row["claim"] in ("E3", "E4")
    )
    assert row["claim"] in TEXT


def test_every_question_asked_after_results_has_a_line_and_seeds_from_20():
    lines = {row["claim"] for row in PLANNED}
    own = {id for id, line in lists.read_claims().items() if line["role"] == "own"}
    assert {f"F{n}" for n in range(12, 24)} <= own & lines
    for id in lines - {"E3", "E4"}:
        assert set(parse_seeds(lists.read_claims()[id]["seeds"])) <= set(
            range(20, 30)
        ), id


@pytest.mark.parametrize("claim", [row["claim"] for row in PLANNED])
def test_each_model_of_a_cell_has_its_rows_at_the_planned_seeds(claim, monkeypatch):
    monkeypatch.setitem(ghostbert.TAPS, "mini", 1e-2)  # As if the trials had chosen it.
    judging.list_grid_rows_of_notebooks.cache_clear()
    judging.list_grid_rows_of_notebook.cache_clear()
    line = lists.read_claims()[claim]
    there = judging.list_grid_rows_of_claim(line)
    seeds = lists.list_planned_seeds(claim)
    for cell in parse_comparisons(line["cells"]):
        for label, where in cell.models:
            own = [
                row
                for row in there
                if judging.cells.row_matches_model(row, label, where)
            ]
            assert {row["seed"] for row in own} >= {*seeds}, (cell.text, label)
    judging.list_grid_rows_of_notebooks.cache_clear()
    judging.list_grid_rows_of_notebook.cache_clear()


def test_the_queue_makes_the_plan_in_its_order():
    order = [row["claim"] for row in PLANNED if row["claim"] in ("F13", "F12", "F20")]
    picked = evidence.select_claims_to_run(["F20", "F12", "F13"])
    found = evidence.list_claim_specs_in_run_order(picked, Store())
    firsts = [
        found.index(
            evidence.list_claim_specs_by_seed(lists.read_claims()[claim], Store())[20][
                -1
            ]
        )
        for claim in order
    ]
    assert order == ["F13", "F12", "F20"] and firsts == sorted(firsts)


def test_trials_are_those_of_the_protocol():
    for name, rate in (trials_fair.TAPS | trials_fair.RATES).items():
        shown = f"{rate:.0e}".replace("e-0", "e-")
        assert f"`{name}` {shown}" in TEXT
        for pair in trials_fair.pairs(name):
            assert pair.ghost.seed == pair.prune.seed == 90
            ghost, prune = (
                each.input_specs_with_seeds["start"].args["train"]
                for each in (pair.ghost, pair.prune)
            )
            if name in trials_fair.TAPS:
                assert ghost == prune | {"taps": rate} and "taps" not in prune
                assert pair.ghost.args["train"]["taps"] == rate
            else:
                assert ghost == prune and ghost["lr"] == rate


@pytest.mark.parametrize(
    "setting, change, why",
    [
        ("T1", {}, []),
        ("T1", {"ratio": 1.11}, ["its ghosts are not mended"]),
        ("T1", {"taps_moved": 0.0025}, ["its taps hardly move"]),
        ("R1", {"taps_moved": 0.0025}, []),
        ("R1", {"prune_score": 50.0}, ["prune is at chance"]),
    ],
)
def test_the_rule(setting, change, why):
    line = {
        "ratio": 1.10,
        "taps_moved": 0.08,
        "ghost_score": 80,
        "prune_score": 81,
        "chance": 55,
    }
    assert trials_fair.verdict(setting, line | change) == why


def test_rows_with_a_rate_of_taps_are_there_once_the_trials_chose_one():
    chosen = ghostbert.TAPS["mini"]
    passed = [
        row["setting"]
        for row in lists.read_csv_in_published_folder("trials_fair")
        if row["passes"] == "yes"
    ]
    assert not chosen or chosen in [
        trials_fair.TAPS[name] for name in passed if name[0] == "T"
    ]
    for page in ("ghostbert_t03_pruned_vs_ghost", "ghostbert_f03_kernel_size"):
        there = [row for row in rows(page) if row["model"].endswith(ghostbert.APART)]
        assert bool(there) == bool(chosen)
    for claim in ("F14", "F15"):
        assert bool(lists.read_claims()[claim]["cannot"]) == (not chosen)


def test_longer_distillation_changes_the_epochs_of_both_models_alone():
    for task in ("SST-2", "STS-B"):
        found = specs("ghostbert_t03_pruned_vs_ghost", task=task, m=3)
        for name in ghostbert.MODELS:
            usual, longer = found[name], found[name + ghostbert.MORE]
            one, four = (spec.inputs["start"] for spec in (usual, longer))
            assert usual.args == longer.args and one.inputs == four.inputs
            epochs = {"epochs": 4 * one.args["train"]["epochs"]}
            assert four.args == one.args | {"train": one.args["train"] | epochs}


def test_a_rate_of_taps_is_of_both_stages_and_of_ghosts_alone(monkeypatch):
    monkeypatch.setitem(ghostbert.TAPS, "mini", 1e-2)
    found = specs("ghostbert_f03_kernel_size", m=3)
    for k in ghostbert.KERNELS:
        usual, apart = found[f"k = {k}"], found[f"k = {k}{ghostbert.APART}"]
        for one, other in (
            (usual, apart),
            (usual.inputs["start"], apart.inputs["start"]),
        ):
            assert other.args["train"] == one.args["train"] | {"taps": 1e-2}
            assert other.args | {"train": 0} == one.args | {"train": 0}


def test_controls_of_a_half_and_a_whole_model_have_the_steps_of_the_distilled_ones():
    for m, taught, control in ((6, "Prune", "Prune"), (12, "Distilled", "Plain")):
        found = specs("ghostbert_f01_accuracy_vs_cost", task="STS-B", m=m)
        student, twice = found[taught], found[control + ghostbert.AGAIN]
        assert student.args == twice.args
        first, own = student.inputs["start"], twice.inputs["start"]
        assert own.step == "finetune" and own.args["train"] == first.args["train"]
        assert own.inputs["start"].args["surgery"] == first.args["surgery"]


NUMERICS = Numerics("float32", 1)
TRAIN = Train(epochs=2, batch=8, lr=1e-3, max_length=24)


@pytest.fixture(scope="module")
def distilled(tmp_path_factory):
    """f(ghosts, **fields of Train) -> (the run of a small distillation, its teacher's
    run)."""
    from lib.core.store import Store

    folder = tmp_path_factory.mktemp("fair")
    store = Store(folder / "runs", folder / "records")
    rows = scored(32, 8)
    told = {"data": rows, "numerics": NUMERICS}
    tuned = Spec(
        "finetune",
        told | {"train": TRAIN, "targets": Targets("hard")},
        {"start": untrained()},
    )

    def make(ghosts=None, **changes):
        ops = [{"op": "ghost"} | to_plain_json(ghosts)] if ghosts else []
        train = replace(TRAIN, **changes)
        spec = Spec(
            "distil",
            told | {"train": train, "distil": Distil(), "surgery": ops},
            {"teacher": tuned},
        )
        return made(store, spec.with_seed(1)), made(store, tuned.with_seed(1))

    return make


GHOST = Ghost("dwconv", ("o", "ffn2"), 3, softmax=True, relu=True)


def test_a_distillation_tells_its_damage_its_distance_and_how_far_the_taps_moved(
    distilled,
):
    run, tuned = distilled(GHOST)
    told, curve = run.metrics, run.read_arrays("curve")
    last = max(1, len(curve["loss"]) // 10)
    assert told["distance"] == pytest.approx(curve["loss"][-last:].mean())
    assert {"embedding", "attention", "ffn"} < curve.keys()
    assert (
        told["teacher_score"] == tuned.metrics["spearman"]
    )  # The teacher is judged as it is.
    assert (
        told["start_score"] != told["teacher_score"]
    )  # Untrained ghosts change the answers.
    assert 0 < told["taps_moved"] < 0.05
    moved, _ = distilled(GHOST, taps=0.1)
    assert moved.metrics["taps_moved"] > 2 * told["taps_moved"]
    assert moved.metrics["start_score"] == told["start_score"]


def test_without_ghosts_nothing_is_damaged_and_no_tap_moves(distilled):
    run, _ = distilled()
    assert run.metrics["start_score"] == run.metrics["teacher_score"]
    assert (
        "taps_moved" not in run.metrics and run.metrics["distance"] == 0
    )  # No dropout.


def test_distillations_are_the_runs_behind_students():
    found = rows(
        "ghostbert_t03_pruned_vs_ghost", seeds=[20], widths=[3], tasks=["SST-2"]
    )
    behind = grids.list_distillations_of_students(found)
    assert {row["spec"].step for row in behind} == {"distil"} and len(behind) == len(
        found
    )
    assert [row["model"] for row in behind] == [row["model"] for row in found]
    assert (
        grids.list_distillations_of_students(
            [Row(grids.teacher_spec("mini", "SST-2").with_seed(1))]
        )
        == []
    )


def test_the_table_of_what_is_mended_counts_runs_that_lack_its_numbers():
    spec = ghostbert.table_model_spec("mini", "SST-2", 3, "Ghost")
    many = [Row(spec, task="SST-2", m=3, model="Ghost", seed=s) for s in (1, 2, 3)]
    shown = {}

    class Page:
        def collect_result_frame(self, found, if_missing):
            assert if_missing == "skip" and all(
                row["spec"].step == "distil" for row in found
            )
            kept = {"distance": 1.25, "teacher_score": 0.8, "start_score": 0.75}
            told = [kept | {"run": "newer"}, {"run": "older"}, {"run": None}]
            return pd.DataFrame(
                [dict(row) | more for row, more in zip(found, told, strict=True)]
            )

        def show_remarks(self, lines):
            shown["note"] = lines

        def show_table(self, table, caption, **more):
            shown["table"] = table

    ghost_tables.show_distance_to_teacher(
        Page(), type("Runs", (), {"current": pd.DataFrame(map(dict, many))})
    )
    (note,) = shown["note"]
    assert note.startswith("1 of 3 distillations have a record with these numbers.")
    assert note.endswith("1 records are older and lack them.")
    assert shown["table"] == {
        "Ghost, 3/12, SST-2": {
            "damage at the start": "5.0 (1)",
            "distance after distillation": "1.250 (1)",
            "movement of a tap": "–",
        }
    }


def test_random_networks_are_of_the_search_s_sizes_or_retrained_longer():
    for task in ("SST-2", "STS-B"):
        found = specs("nas_t05_random_architectures", task=task)
        usual, longer = found["30 % Random"], found["30 % Random, retrained longer"]
        draws = [spec.inputs["start"].inputs["search"] for spec in (usual, longer)]
        assert draws[0] == draws[1]
        for one, four in (
            (usual, longer),
            (usual.inputs["start"], longer.inputs["start"]),
        ):
            epochs = {"epochs": 4 * one.args["train"]["epochs"]}
            assert four.args["train"] == one.args["train"] | epochs
        sized = found["30 % Random, searched sizes"].inputs["start"].inputs["search"]
        searched = found["30 % NAS"].inputs["start"].inputs["search"]
        assert sized.inputs["search"] == searched


def test_magnitude_pruning_has_the_teacher_of_the_searched_network_in_each_round():
    found = specs("nas_t10_magnitude_pruning")
    spec, plainly = found["30 % IMP, with a teacher"], found["30 % IMP"]
    rounds = 0
    while spec.step == "imp":
        assert Objective(**spec.args["objective"]) == nas.LOGITS
        assert (
            spec.inputs["teacher"].step == "finetune"
            and "objective" not in plainly.args
        )
        assert (
            "teacher" not in plainly.inputs
            and spec.args["kept"] == plainly.args["kept"]
        )
        spec = spec.inputs["start"]
        plainly = plainly.inputs["start"]
        rounds = rounds + 1
    assert spec == plainly and rounds == len(nas.ROUNDS["mini"])


def test_the_digits_as_reported_have_all_eight_targets():
    found = [
        row
        for row in rows("nas_s71_digits")
        if row["network"].endswith(", as reported")
    ]
    assert {row["target"] for row in found} == {*nas.TARGETS} and len(nas.TARGETS) == 8
    for row in found:
        gates = row["spec"].args["gates"]
        assert (
            gates["landing"] == "end" and "memory" not in gates and "idle" not in gates
        )


def test_the_swing_is_the_deviation_over_the_last_fifth_of_the_steps():
    class Run:
        metrics = {"target": 0.3}
        spec = {"step": "nas_search", "args": {"train": {"epochs": 5}}}

        def read_arrays(self, name):
            ratio = np.r_[np.linspace(1, 0.3, 80), np.tile([0.2, 0.4], 10)]
            return {"search": {"curve": np.stack([ratio, ratio], 1)}}[name]

    def other(step):
        """A run with a target, and without the arrays of a search."""
        told = {"metrics": {"target": 0.3}, "spec": {"step": step, "args": {}}}
        return type("Other", (), told)()

    steps = ("retrain", "random_architecture", "digits")
    frame = pd.DataFrame({"run": [Run(), *map(other, steps)]})
    swings = measures.list_final_flops_standard_deviations(frame, None)
    assert swings[0] == pytest.approx(10 * np.sqrt(20 / 19))
    epochs = measures.list_epochs_to_target_flops(frame, None)
    assert epochs[0] == pytest.approx(5 * 0.8)
    assert np.isnan(swings[1:]).all() and np.isnan(epochs[1:]).all()


def test_the_rate_of_the_mix_changes_alone():
    for task in bermo.FASTER["mini"]:
        found = specs("bermo_t01_probing", task=task)
        usual, faster = found["BERMo"], found["BERMo, mix at 5e-2"]
        assert faster.args == usual.args | {"mix": usual.args["mix"] | {"lr": 5e-2}}


def test_each_row_of_the_sweep_changes_one_setting():
    found = specs("bermo_t03_stability", task="SST-2")
    wanted = {
        "later ramp": {"prune": {"initial_warmup": 3}},
        "half kept": {"prune": {"final_threshold": 0.5}},
        "lower rate": {"train": {"lr": 3e-5}},
    }
    for model in bermo.MODELS:
        usual = found[model].args
        for end, parts in wanted.items():
            changed = {name: usual[name] | more for name, more in parts.items()}
            assert found[f"{model}, {end}"].args == usual | changed
        train = found[f"{model}, longer ramp"].args["train"]
        assert train["epochs"] == 25
        # The learning rate warms up for as many steps.
        steps = [
            each["train"]["warmup"] * 125 * each["train"]["epochs"] for each in (usual,)
        ]
        assert int(steps[0]) == int(train["warmup"] * 125 * 25) == 100
    assert {
        row["task"] for row in rows("bermo_t03_stability") if ", " in row["model"]
    } == {"SST-2"}


def test_plain_mixes_learn_nothing():
    found = specs("bermo_t03_stability", task="SST-2")
    for label, kind in bermo.PLAIN.items():
        told = found[label].args["mix"]
        assert (
            told["plain"] == kind
            and found[label].args["prune"] == found["BERMo"].args["prune"]
        )
    with pytest.raises(ValueError, match="Mix.plain is 'median'"):
        Mix("none", "zeros", 1e-2, plain="median")


@pytest.mark.parametrize("kind", ["mean", "embedding"])
def test_a_plain_mix_is_a_mean(kind, tiny, sentences):
    from lib.model.parts import get_encoder
    from lib.model.surgery import apply_surgery

    model, batch = tiny().double(), sentences()
    with torch.no_grad():
        states = get_encoder(model)(**batch, output_hidden_states=True).hidden_states
        before = sum(p.numel() for p in model.parameters())
        apply_surgery(model, Mix("none", "zeros", 1e-2, plain=kind).surgery_operation)
        model.double()
        mixed = get_encoder(model)(**batch).last_hidden_state
    assert sum(p.numel() for p in model.parameters()) == before
    if kind == "mean":
        wanted = torch.stack(states).mean(0)
    else:
        real = batch["attention_mask"].unsqueeze(-1).double()
        words = (states[0] * real).sum(1, keepdim=True) / real.sum(1, keepdim=True)
        wanted = words.expand_as(states[0])
    torch.testing.assert_close(mixed, wanted, rtol=1e-9, atol=1e-9)


def test_a_plain_mix_is_loaded_as_it_was(tiny, sentences, tokenizer, tmp_path):
    from lib.model.surgery import apply_surgery

    model, batch = tiny(), sentences()
    apply_surgery(
        model, Mix("none", "zeros", 1e-2, plain="embedding").surgery_operation
    )
    backbone.save(model, tokenizer, tmp_path / "model")
    again = backbone.load(tmp_path / "model")[0]
    with torch.no_grad():
        one, other = (each.eval()(**batch)[0] for each in (model, again))
    assert torch.equal(one, other)


@pytest.mark.papers("ghostbert")
@pytest.mark.parametrize("claim_id", ["F16", "F17"])
def test_students_whose_losses_are_compared_have_one_teacher(claim_id):
    claim, store, compared = lists.read_claims()[claim_id], Store(), 0
    for comparison in parse_comparisons(claim["cells"]):
        scores = defaultdict(set)
        for row in select_compared_rows(
            [comparison], judging.list_grid_rows_of_claim(claim)
        ):
            run = store.find_run_with_state(row.spec)["run"]
            if run and "teacher_score" in run.metrics:
                scores[row["task"], row["seed"]].add(run.metrics["teacher_score"])
        assert all(len(of_seed) == 1 for of_seed in scores.values()), comparison.text
        compared += len(scores)
    assert compared
