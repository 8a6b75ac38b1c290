"""A run says with what arithmetic it was made: a processor without bfloat16 refuses it,
its twin in float32 is another run, and models are compared in one dtype."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import holding
from test_sweep import TRAIN, done, importance, teacher

from lib.claims import cells, estimates, evidence, lists
from lib.cluster import sweep
from lib.core import paths, processor
from lib.core.execute import describe_run_environment, execute
from lib.core.options import Numerics
from lib.core.rows import Row
from lib.core.spec import Spec, find_transitive_input_specs
from lib.core.store import Store
from lib.papers import grids
from lib.report.tables import collect_results
from lib.stats import compare
from lib.train import loop

HALF = Numerics("bfloat16", 1)


def half(spec):
    """A Spec and its inputs in bfloat16."""
    inputs = {name: half(each) for name, each in spec.inputs.items()}
    return Spec(spec.step, spec.args | {"numerics": HALF}, inputs, spec.seed)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs", tmp_path / "records")


@pytest.fixture
def plain(monkeypatch):
    """A processor without instructions for bfloat16."""
    monkeypatch.setattr(
        processor, "list_processor_features", lambda: ["avx2", "avx512f"]
    )


@pytest.fixture
def able(monkeypatch):
    monkeypatch.setattr(
        processor, "list_processor_features", lambda: ["avx2", "avx512_bf16"]
    )


@pytest.mark.parametrize(
    "text, features, has",
    [
        ("model name\t: Ryzen 5\nflags\t\t: fpu avx2 sha_ni\n", ["avx2"], False),
        ("flags\t\t: amx_bf16 avx512_bf16x avx512f\n", ["avx512f", "amx_bf16"], True),
        ("flags\t\t: avx512f avx512_bf16\n", ["avx512f", "avx512_bf16"], True),
        ("Features\t: fp asimd i8mm bf16\n", ["asimd", "bf16"], True),
        ("Features\t: half neon vfpv4\n", ["neon"], False),
        ("", [], False),
        (None, [], False),
    ],
)
def test_what_the_processor_can_is_read_from_the_system(
    text, features, has, tmp_path, monkeypatch
):
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(processor, "Path", lambda place: tmp_path / "cpuinfo")
    monkeypatch.setattr(
        processor,
        "list_processor_features",
        processor.list_processor_features.__wrapped__,
    )
    assert (
        processor.list_processor_features() == features
        and processor.has_bfloat16_instructions() == has
    )
    assert processor.read_processor_name() == "Ryzen 5" or "model name" not in (
        text or ""
    )


def test_pytorch_has_fast_products_where_the_processor_is_said_to():
    assert (
        torch.ops.mkldnn._is_mkldnn_bf16_supported()
        or not processor.has_bfloat16_instructions()
    )


def test_bfloat16_is_refused_in_one_line_where_the_processor_lacks_it(plain, store):
    asked = {"dtype": "bfloat16", "threads": 1}
    told = r"'bfloat16', and this processor has none of avx512_bf16, amx_bf16, bf16: take 'float32'"
    with pytest.raises(ValueError, match=told):
        loop.set_dtype_threads_and_device(asked)
    assert (
        loop.set_dtype_threads_and_device(asked | {"dtype": "float32"}).dtype
        == "float32"
    )
    spec = half(teacher()).inputs["start"]
    with pytest.raises(ValueError, match=told):
        execute(spec, store)
    assert store.find_run(spec) is None


def test_a_gpu_has_bfloat16_whatever_the_processor_has(plain):
    assert (
        loop.set_dtype_threads_and_device(
            {"dtype": "bfloat16", "threads": 1, "device": "cuda"}
        ).dtype
        == "bfloat16"
    )
    loop.set_dtype_threads_and_device({"dtype": "float32", "threads": 1})
    spec = Spec("finetune", {"numerics": replace(HALF, device="cuda")})
    assert spec.float32_spec is spec


def test_toy_asks_for_float32_everywhere(anywhere):
    from lib.claims import notebook

    in_args = 0
    for path in notebook.find_notebooks():
        if "profile" in notebook.read_parameter_declarations(path):
            rows = notebook.execute_grid_cell_and_list_rows_by_variable(
                path, {"profile": "toy"}, include_rows_of_recorded_runs=False
            ).get("grid", [])
            specs = {row["spec"] for row in rows}
            for spec in specs | find_transitive_input_specs(specs):
                in_args += "numerics" in spec.args
                numerics = spec.args.get("numerics") or {"dtype": "float32"}
                assert numerics["dtype"] == "float32", (
                    notebook.make_notebook_id(path),
                    spec.name,
                )
    assert in_args > 50


def test_a_twin_is_float32_in_all_its_graph_and_another_run():
    whole = importance(teacher()).with_seed(3)
    spec = half(whole)
    assert (
        spec.float32_spec == whole
        and spec.float32_spec.name == whole.name
        and spec.id != whole.id
    )
    assert spec.with_seed(4).float32_spec.seed == 4 and whole.float32_spec is whole
    told = Spec(
        "latency",
        {"numerics": teacher().args["numerics"]},
        {"model:a": half(teacher())},
    )
    assert (
        told.float32_spec.inputs["model:a"] == teacher()
        and told.float32_spec.args == told.args
    )
    assert (
        spec.float32_spec.input_specs_with_seeds["teacher"]
        == whole.input_specs_with_seeds["teacher"]
    )


def test_the_twin_of_what_is_missing_is_planned_and_made(plain, store):
    spec = half(teacher()).with_seed(0)
    todo = store.plan_missing_runs([spec])
    assert list(todo) == [teacher().inputs["start"], teacher().with_seed(0)]
    assert sweep.execute_specs([spec], store, workers=1) == {}
    found = store.find_run_with_state(spec)
    assert (
        found["state"] == "finished"
        and found["run"].name == teacher().with_seed(0).name
    )
    assert not store.plan_missing_runs([spec]) and store.find_run(spec) is None
    assert found["run"].env["dtype"] == "float32"
    frame = collect_results([Row(spec, model="a")], store)
    assert frame["matthews"].notna().all()


def test_records_in_bfloat16_are_looked_up_without_it(plain, store):
    spec = half(importance(teacher())).with_seed(0)
    done(store, spec)
    assert (
        not store.plan_missing_runs([spec])
        and store.find_run_with_state(spec)["run"].name == spec.name
    )
    done(store, spec.float32_spec)
    assert (
        store.find_run_with_state(spec)["run"].name == spec.name
    )  # its own comes first


def test_with_bfloat16_a_twin_counts_and_what_is_missing_is_no_twin(able, store):
    spec = half(teacher()).with_seed(0)
    assert list(store.plan_missing_runs([spec]))[-1] == spec
    done(store, spec.float32_spec)
    assert (
        not store.plan_missing_runs([spec])
        and store.find_run_with_state(spec)["run"].name == spec.float32_spec.name
    )
    assert (
        list(store.plan_missing_runs([spec], forbid_float32_replacement=True))[-1]
        == spec
    )


def test_a_lost_twin_is_told_at_the_row_that_asked_for_it(plain, store):
    spec = half(teacher(lr=1e30, clip=0.0)).with_seed(0)
    lost = sweep.execute_specs([spec], store, workers=1)
    (error,) = collect_results([Row(spec, model="a")], store, lost)["error"]
    assert list(lost) == [spec.float32_spec] and "lower Train.lr" in error
    assert collect_results([Row(spec, model="a")], store)["error"].item() == error
    assert store.find_run_with_state(spec)["state"] == "failed"


def test_the_environment_of_a_run_tells_dtype_and_features(able):
    spec = half(teacher())
    told = describe_run_environment(spec)
    assert told["dtype"] == "bfloat16" and told["features"] == ["avx2", "avx512_bf16"]
    assert describe_run_environment(spec.float32_spec)["dtype"] == "float32"
    assert describe_run_environment(Spec("count", {}))["dtype"] is None


@pytest.fixture
def claim(monkeypatch):
    """A claim on two Specs in bfloat16 at seeds 10 and 11."""
    specs = [half(teacher()), half(importance(teacher()))]
    rows = [Row(spec, seed=n) for n in (10, 11) for spec in specs]
    line = {"id": "A1", "seeds": "10 to 11", "role": "central"}
    monkeypatch.setattr(evidence, "list_grid_rows_of_claim", lambda _: rows)
    monkeypatch.setattr(lists, "read_claims", lambda: {"A1": line})
    return line


def test_a_seed_that_is_not_whole_is_float32_throughout(claim, plain, store):
    first, second, third, fourth = (
        row["spec"] for row in evidence.list_grid_rows_of_claim(claim)
    )
    for spec in (first, second, third):
        store.copy_run_to_records(done(store, spec))
    assert evidence.list_claim_specs_by_seed(claim, store) == {
        10: [first, second],
        11: [third.float32_spec, fourth.float32_spec],
    }
    assert evidence.execute_and_record_missing_runs([claim], store, workers=1) == {}
    for spec in (third, fourth):
        assert (store.records / spec.float32_spec.name).exists()
    (line, _) = evidence.describe_claim_progress([claim], store)
    assert "2 of 2 seeds, 0 runs left" in line
    assert (
        store.find_run_with_state(third)["run"].float32_run.name
        == third.float32_spec.name
    )


def test_with_bfloat16_the_same_seed_is_made_in_it(claim, able, store):
    third, fourth = (row["spec"] for row in evidence.list_grid_rows_of_claim(claim)[2:])
    done(store, third.float32_spec)
    assert evidence.list_claim_specs_by_seed(claim, store)[11] == [third, fourth]
    assert third in store.plan_missing_runs(
        evidence.list_claim_specs_in_run_order([claim], store),
        forbid_float32_replacement=True,
    )
    done(store, fourth.float32_spec)
    assert evidence.list_claim_specs_by_seed(claim, store)[11] == [
        third.float32_spec,
        fourth.float32_spec,
    ]


COLUMNS = {"CoLA": (compare.MetricColumn("CoLA", "CoLA", "accuracy"),)}


def row(model, seed, dtype, deep="", twin=None):
    """A collected row; deep: the dtype of the teacher, where it is another one."""
    teacher = {"args": {"numerics": {"dtype": deep or dtype}}, "inputs": {}}
    labels = np.arange(40) % 2
    right = np.random.default_rng(seed).random(40) < 0.9
    arrays = {"labels": labels, "index": np.arange(40)}
    arrays["logits"] = np.eye(2)[np.where(right, labels, 1 - labels)]
    run = holding(arrays, f"{model}/{seed}/{dtype}", accuracy=float(right.mean()))
    run.spec = {"args": {"numerics": {"dtype": dtype}}, "inputs": {"teacher": teacher}}
    run.float32_run = twin
    told = {
        "task": "CoLA",
        "model": model,
        "seed": seed,
        "run": run,
        "state": "finished",
    }
    spec = Spec("finetune", {"train": TRAIN}).with_seed(seed)
    return compare.add_run_metrics_to_row(told | {"spec": spec})


def test_pairs_have_one_dtype_and_are_counted_by_it():
    ours = [row("a", n, "bfloat16" if n < 3 else "float32") for n in range(6)]
    theirs = [row("b", n, "bfloat16" if n < 4 else "float32") for n in range(5)]
    theirs.append(row("b", 5, "float32", deep="bfloat16"))  # another teacher
    found = compare.pair_runs_by_task_and_seed(ours, theirs, COLUMNS)
    assert [pair.seed for pair in found] == [0, 1, 2, 4]
    counted = "3 in bfloat16, 1 in float32; 2 with runs of two dtypes do not count"
    assert compare.describe_pair_counts_by_dtype([*ours, *theirs]) == [
        f"Tasks and seeds compared: {counted}"
    ]
    assert (
        compare.describe_pair_counts_by_dtype(ours[:3] + theirs[:3])
        == []
        == compare.describe_pair_counts_by_dtype(ours)
    )
    apart = "Tasks and seeds compared: 1 with runs of two dtypes do not count"
    assert compare.describe_pair_counts_by_dtype([ours[3], theirs[3]]) == [apart]
    assert compare.describe_pair_counts_by_dtype(
        ours[:1] + theirs[:1], [ours[4], theirs[4]]
    ) == ["Tasks and seeds compared: 1 in bfloat16, 1 in float32"]


def test_a_twin_in_float32_counts_beside_another_run_in_float32():
    plain = row("b", 0, "float32")
    ours, theirs = row("a", 0, "float32"), row("b", 0, "bfloat16", twin=plain["run"])
    (pair,) = compare.pair_runs_by_task_and_seed([ours], [theirs], COLUMNS)
    assert pair.seed == 0
    rows = compare.substitute_float32_for_mixed_dtypes([ours, theirs])
    assert [each["run"] for each in rows] == [ours["run"], plain["run"]]
    assert compare.describe_pair_counts_by_dtype(rows) == []


def test_a_label_with_the_name_of_a_metric_stays_where_dtypes_differ():
    ours, theirs = row("a", 0, "float32"), row("b", 0, "bfloat16")
    name = next(iter(theirs["run"].metrics))
    theirs[name] = "a label"
    rows = compare.substitute_float32_for_mixed_dtypes([ours, theirs])
    assert [each["run"] for each in rows] == [None, None]
    assert rows[1][name] == "a label" and name not in rows[0]


def test_a_seed_of_two_dtypes_is_not_done_in_a_cell():
    (one,) = cells.parse_comparisons("a > b @ task=CoLA")
    rows = [row(model, n, "bfloat16") for model in "ab" for n in range(3)]
    assert estimates.count_planned_and_ended_seeds(
        one, estimates.select_result_rows_in_one_dtype(one, rows)
    ) == (3, 3)
    rows[0] = row("a", 0, "float32")
    own = estimates.select_result_rows_in_one_dtype(one, rows)
    assert estimates.count_planned_and_ended_seeds(one, own) == (3, 2)
    (group,) = estimates.pair_runs_of_compared_models(one, own, COLUMNS)
    assert [pair.seed for pair in group[0]] == [1, 2]
    assert compare.describe_pair_counts_by_dtype(own) == [
        "Tasks and seeds compared: 2 in bfloat16; 1 with runs of two dtypes do not count"
    ]


def test_runs_of_one_model_are_counted_in_either_dtype():
    (one,) = cells.parse_comparisons("diverged :: a = value 0 @ task=CoLA")
    rows = [row("a", 0, dtype) for dtype in ("bfloat16", "float32")]
    assert estimates.select_result_rows_in_one_dtype(one, rows) == rows


def test_the_committed_records_are_of_one_dtype_in_each_graph():
    found = [
        compare.collect_dtypes_of_spec_and_inputs(run.spec)
        for run in Store(records_folder=paths.DATA / "records").list_recorded_runs()
    ]
    assert found and all(len(each) < 2 for each in found)
    assert grids.PROFILES["mini"].numerics == HALF
