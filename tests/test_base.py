"""The profile base: rows that each seed draws, pages with the rows of a plan, the
queue."""

import csv
import json
from itertools import product

import numpy as np
import pytest
from conftest import REAL, forget, put, with_inputs
from hypothesis import given, settings
from hypothesis import strategies as st
from unseen import note_pool

from lib import data
from lib.claims import cells, evidence, notebook, planned
from lib.cluster import executors
from lib.core import paths
from lib.core.names import Refused
from lib.core.store import Store
from lib.data import Split, unseen
from lib.papers import frontier, grids
from lib.papers.bermo import recipes as bermo
from lib.papers.ghostbert import recipes as ghostbert
from lib.papers.nas_pruning import recipes as nas

LINES = planned.read_run_plan("base")
TASKS = {
    "SST-2": (44840, 7371),
    "CoLA": (7844, 629),
    "STS-B": (5749, 1379),
    "MRPC": (3668, 1725),
}


def texts(count, shared=()):
    """Texts of nine words that share nothing, but those at `shared`, which share four
    words."""
    made = [[f"w{i}.{j}" for j in range(9)] for i in range(count)]
    for one, other in shared:
        made[other][3:7] = made[one][2:6]
    return [" ".join(words) for words in made]


@pytest.fixture
def sst2(tmp_path, monkeypatch):
    """f(training texts): SST-2 has them."""
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))

    def fill(rows):
        lines = [
            "sentence\tlabel",
            *(f"{text}\t{i % 2}" for i, text in enumerate(rows)),
        ]
        for part in ("train", "dev"):
            put(tmp_path, f"glue/SST-2/{part}.tsv", "\n".join(lines) + "\n")
        forget()

    yield fill
    monkeypatch.undo()
    forget()


def described(rows=20, held_out=5, **more):
    fixed = {
        "max_unseen_rows": 8,
        "reserved_rows": 30,
        "min_words": 9,
        "draws_rows_by_seed": True,
    } | more
    return data.make_data_descriptor("glue", "SST-2", rows, held_out, **fixed)


def index(there):
    return {
        name: there[name].index.tolist() for name in ("train", "held_out", "unseen")
    }


def test_each_seed_draws_its_rows_and_all_have_the_same_unseen_ones(sst2):
    sst2(texts(60))
    told = described()
    assert told["unseen"]["words"] == 9 and told["drawn"]["rows"] == 52
    one, again, other = (index(data.load(told, seed)) for seed in (1, 1, 2))
    assert one == again and one["unseen"] == other["unseen"]
    assert one["train"] != other["train"] and one["held_out"] != other["held_out"]
    for there in (one, other):
        assert {name: len(rows) for name, rows in there.items()} == {
            "train": 20, "held_out": 5, "unseen": 8,
        }  # fmt: skip
        assert len({row for rows in there.values() for row in rows}) == 33
    # Who holds out none, as BERMo, trains on the same rows.
    assert data.load(described(held_out=0), 1)["train"].index.tolist() == one["train"]


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 59), st.integers(0, 59)), max_size=40),
    st.integers(0, 9),
)
def test_no_drawn_row_shares_four_words_with_an_unseen_one(shared, seed):
    made = texts(60, shared)
    split = Split(made, None, np.zeros(60, int), np.arange(60))
    taken = unseen.select_row_positions_without_shared_text(
        split, range(30), range(30, 60), 8
    )
    pool = unseen.select_row_positions_without_shared_text(
        split, taken, [row for row in range(60) if row not in taken], 60
    )

    def parts(row):
        words = made[row].split()
        return {tuple(words[i : i + 4]) for i in range(len(words) - 3)}

    kept = {part for row in taken for part in parts(row)}
    assert all(kept.isdisjoint(parts(row)) for row in pool)
    left = set(range(60)) - {*taken, *pool}
    assert all(not kept.isdisjoint(parts(row)) for row in left)


def test_rows_that_share_text_with_an_unseen_row_leave_the_pool(sst2):
    sst2(texts(60))
    held = data.load(described(), 0)["unseen"].index.tolist()
    free = int(np.random.default_rng(0).permutation(60)[-1])  # behind reserved rows
    assert free not in held
    sst2(texts(60, [(held[0], free)]))
    told = described()
    there = data.load(told, 0)["unseen"].index.tolist()
    assert held[0] in there and told["drawn"]["rows"] == 51
    drawn = {row for seed in range(40) for row in data.load(told, seed)["train"].index}
    assert free not in drawn


def test_the_descriptor_has_the_digest_of_the_pool_and_not_of_a_draw(sst2):
    sst2(texts(60))
    told = described()
    assert told.keys() == {
        "source",
        "task",
        "digest",
        "rows",
        "held_out",
        "unseen",
        "drawn",
    }
    assert told["drawn"] == described(rows=4, held_out=0)["drawn"]
    with pytest.raises(
        ValueError, match="the rows to draw from, has digest .*; this run is of"
    ):
        data.load(told | {"drawn": told["drawn"] | {"digest": "0" * 16}}, 0)
    assert "drawn" not in data.make_data_descriptor(
        "glue", "SST-2", 20, 5, max_unseen_rows=8, reserved_rows=30
    )


def test_draws_that_cannot_be(sst2):
    sst2(texts(60))
    with pytest.raises(
        ValueError, match="50 training and 5 held-out rows asked .* has 52 rows"
    ):
        described(rows=50)
    with pytest.raises(ValueError, match="drawn or in order, not both"):
        described(in_file_order=True)
    with pytest.raises(
        ValueError, match="are drawn by a seed: give `load` that of the run"
    ):
        data.load(described())
    with pytest.raises(ValueError, match="beside None"):
        described(rows=None, reserved_rows=0)


def test_noted_pools_need_no_data(sst2, monkeypatch, tmp_path):
    sst2(texts(60))
    monkeypatch.setattr(paths, "DIGESTS", tmp_path / "digests.json")
    told = described()
    told_unseen = {"glue/SST-2/30/8/9": told["unseen"], "glue/SST-2": told["digest"]}
    paths.DIGESTS.write_text(json.dumps(told_unseen))
    assert note_pool("glue", "SST-2", 8, 30, 9) == told["drawn"]
    monkeypatch.setenv("DATA_ROOT", str(tmp_path / "none"))
    forget()
    assert described() == told
    with pytest.raises(FileNotFoundError):
        described(max_unseen_rows=7)


@pytest.mark.parametrize("task", TASKS)
def test_committed_pools(task, monkeypatch):
    """What is committed is what the data give, where these are at hand."""
    told = grids.make_profile_data_descriptor("base", task)
    pool, fixed = TASKS[task]
    assert told["drawn"]["rows"] == pool and told["unseen"]["rows"] == fixed
    assert told["rows"] == min(4000, pool - 300) and told["held_out"] == 300
    judging = data.read_unseen_row_scoring_arrays(told)
    count = {"SST-2": 8243, "CoLA": 1672, "MRPC": 1888, "STS-B": 2616}[task]
    assert len(judging["cluster"]) == count  # the numbers of protocol_base.md
    if not (REAL / "glue" / task / "train.tsv").exists():
        pytest.skip(f"no {task} at {REAL}")
    monkeypatch.setenv("DATA_ROOT", str(REAL))
    forget()
    there = [data.load(told, seed) for seed in (10, 11)]
    assert there[0]["unseen"].index.tolist() == there[1]["unseen"].index.tolist()
    if task in ("SST-2", "CoLA"):
        for each in there:
            taught = each["train"].a + each["held_out"].a
            seen = {
                mark
                for words in (tuple(text.lower().split()) for text in taught)
                for mark in unseen.list_ngrams(words, 4) or [words]
            }
            fixed = [tuple(text.lower().split()) for text in each["unseen"].a]
            assert all(
                seen.isdisjoint(unseen.list_ngrams(text, 1, 2, 3, 4)) for text in fixed
            )


def every(profile="base"):
    rows = [
        row
        for page in planned.list_planned_notebook_ids(profile)
        for row in evidence.list_notebook_runs_to_execute(profile, page)
    ]
    return with_inputs(row["spec"] for row in rows)


def test_no_input_of_base_is_pinned_to_a_seed_but_checkpoints_and_clocks():
    inputs = [parent for spec in every() for parent in spec.inputs.values()]
    pinned = {parent.step for parent in inputs if parent.seed is not None}
    assert pinned == {"checkpoint"}
    assert grids.augmented_rows_spec("base", "SST-2").seed is None
    assert grids.augmented_rows_spec("mini", "SST-2").seed == 0


def test_all_specs_of_base_draw_their_rows_and_share_the_teacher():
    specs = [spec for spec in every() if "data" in spec.args]
    assert all("drawn" in spec.args["data"] for spec in specs)
    assert {spec.args["data"]["task"] for spec in specs} == {*TASKS, "RTE"}
    tuned = [spec for spec in specs if spec.step == "finetune"]
    whole = {spec.id for spec in tuned if spec.inputs["start"].step == "checkpoint"}
    assert len(whole) == 5  # one of each task, for all papers


def test_a_task_with_few_rows_has_all_and_bermo_has_no_more():
    told = grids.make_profile_data_descriptor("base", "RTE")
    assert (
        "unseen" not in told
        and told["rows"] + told["held_out"] == told["drawn"]["rows"] == 2490
    )
    assert (
        bermo.make_bermo_data_descriptor("base", "SST-2")["rows"]
        == nas.make_training_rows_descriptor("base", "SST-2")["rows"]
        == 4000
    )
    assert (
        bermo.make_bermo_data_descriptor("base", "SST-2")["drawn"]
        == nas.make_training_rows_descriptor("base", "SST-2")["drawn"]
    )


def test_printed_rates_of_base():
    assert ghostbert.FINETUNE["base"].lr == ghostbert.FINETUNE["paper"].lr
    assert bermo.MASKED["base"].lr == bermo.MASKED["paper"].lr
    assert bermo.MIX["base"] == bermo.MIX["paper"]
    for table in (nas.SEARCH, nas.INTERMEDIATE, nas.PREDICTION):
        assert table["base"].lr == table["paper"].lr
    share = bermo.WARMUPS["paper"]["SST-2"][0] / (25 * 2105)
    steps = 125 * bermo.MASKED["base"].epochs
    assert bermo.WARMUPS["base"][""][0] == round(share * steps)


def test_memory_of_large_encoders():
    small, large = (
        executors.estimate_resources(grids.teacher_spec(name, "SST-2"))
        for name in ("mini", "base")
    )
    assert large.memory_bytes > small.memory_bytes
    assert (
        executors.estimate_resources(
            ghostbert.student_spec("base", "SST-2", 3)
        ).memory_bytes
        == large.memory_bytes
    )


def raw():
    with (paths.PUBLISHED / "plan_base.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.papers()
def test_the_plan_is_within_its_core_hours_and_has_seeds_of_no_trial():
    assert sum(line.core_hours for line in LINES) <= 45
    assert all(
        seed in range(10, 20)
        for line in LINES
        for seed in line.seeds
        if line.step != "f"
    )
    assert [row["order"] for row in raw()] == [str(n) for n in range(1, len(raw()) + 1)]
    words = [row["word"] for row in raw()]
    assert words == sorted(words, key=["planned", "void"].index)
    steps = list(dict.fromkeys(line.step for line in LINES))
    assert steps == ["b", "c", "d", "a", "g", "f", "e"]


@pytest.mark.parametrize(
    "line", LINES, ids=lambda line: f"{line.line_number} {line.claim_id}"
)
def test_each_line_has_its_rows_and_each_cell_its_models(line):
    row = raw()[line.line_number - 1]
    parts = cells.parse_comparisons(line.comparisons_text)
    for name in ("region", "printed"):
        number = len(row[name].split("; "))
        assert number == (len(parts) or len(line.tasks)) or row[name] == "level"
    rows = line.select_rows(
        evidence.list_notebook_runs_to_execute("base", line.notebook_id)
    )
    assert {row.get("seed", 0) for row in rows} == {*line.seeds}
    assert {row["task"] for row in rows if "task" in row} == {*line.tasks}
    for one in parts:
        for label, where in one.models:
            hits = [row for row in rows if cells.row_matches_model(row, label, where)]
            assert {row.get("seed", 0) for row in hits} == {*line.seeds}, (
                one.text,
                label,
            )


def test_a_page_has_the_rows_of_its_lines_unless_a_reader_asks_for_others():
    page = notebook.find_notebooks(["ghostbert_t03"])[0]
    rows = notebook.execute_grid_cell_and_list_rows_by_variable(
        page, {"profile": "base"}
    )["grid"]
    assert {(row["m"], row["seed"]) for row in rows} == {
        *product((3, 1), range(10, 15))
    }
    more = notebook.execute_grid_cell_and_list_rows_by_variable(
        page, {"profile": "base", "seeds": [20], "widths": [6]}
    )["grid"]
    assert {(row["m"], row["seed"]) for row in more} == {(6, 20)}
    rows = notebook.execute_grid_cell_and_list_rows_by_variable(
        page, {"profile": "mini"}
    )["grid"]
    usual = [
        row for row in rows if row["model"] in ghostbert.MODELS and row["seed"] < 20
    ]
    assert len(usual) == 80 and {row["m"] for row in usual} == {9, 6, 3, 1}


def test_a_page_without_a_line_says_so():
    page = notebook.find_notebooks(["ghostbert_b04"])[0]
    with pytest.raises(
        ValueError, match="ghostbert_b04_more_ghosts has no rows at base: take one"
    ):
        notebook.execute_grid_cell_and_list_rows_by_variable(page, {"profile": "base"})
    assert planned.notebook_lists_runs_at_profile(
        "mini", page.stem
    ) and not planned.list_planned_notebook_ids("mini")


def test_a_control_that_learns_labels_twice_has_the_steps_of_the_student():
    for m, module in ((3, ghostbert.make_ghost_options("base")), (1, None)):
        student = ghostbert.student_spec("base", "SST-2", m, module)
        control = ghostbert.student_trained_on_labels_spec("base", "SST-2", m, module)
        assert control.args == student.args
        first, own = student.inputs["start"], control.inputs["start"]
        assert own.args["train"] == first.args["train"] and own.step == "finetune"
        cut = own.inputs["start"]
        assert cut.args["surgery"] == first.args["surgery"]
        assert cut.inputs["importance"] == first.inputs["importance"]


def test_random_parts_of_the_search_s_sizes_are_of_that_search():
    searched = nas.pruned_spec("base", "SST-2", ratio=0.3)
    sized = nas.retrained_random_architecture_spec(
        "base", "SST-2", keeps_searched_sizes=True, ratio=0.3
    )
    plain = nas.retrained_random_architecture_spec("base", "SST-2", ratio=0.3)
    found, drawn = (spec.inputs["start"].inputs["search"] for spec in (searched, sized))
    assert drawn.inputs["search"] == found and drawn.step == "random_architecture"
    assert plain.inputs["start"].inputs["search"].inputs.keys() == {"start"}


def test_steps_are_whole_before_the_next_and_seeds_within_a_step():
    specs = evidence.list_plan_specs_in_run_order(
        evidence.select_plan_lines("base", ["G1", "N1"]), "base", Store()
    )
    students = [spec for spec in specs if spec.step == "finetune"]
    assert [spec.seed for spec in students] == sorted(spec.seed for spec in students)
    first = [spec.step for spec in specs[: len(students)]]
    assert {*first} == {"finetune"}
    assert {spec.step for spec in specs[len(students) :]} == {"retrain"}
    with pytest.raises(ValueError, match="unknown claim of the plan: 'G9'"):
        evidence.select_plan_lines("base", ["G9"])
    with pytest.raises(
        ValueError, match="unknown profile with a plan, beside mini: 'toy'"
    ):
        evidence.select_plan_lines("toy")


@pytest.mark.papers("nas_pruning")
@pytest.mark.parametrize(
    ("has_instructions", "dtype"), [(True, "bfloat16"), (False, "float32")]
)
def test_a_seed_of_the_plan_is_made_in_the_one_dtype_that_the_processor_has(
    monkeypatch, tmp_path, has_instructions, dtype
):
    def list_dtypes(specs):
        return {spec.args["numerics"]["dtype"] for spec in specs}

    monkeypatch.setattr(
        evidence.processor, "has_bfloat16_instructions", lambda: has_instructions
    )
    (line,) = (x for x in LINES if x.grid_arguments == {"ratios": [0.1]})
    empty = Store(tmp_path, tmp_path)
    missing = evidence.list_plan_line_specs_by_seed(line, "base", empty)
    assert [list_dtypes(specs) for specs in missing.values()] == [{dtype}] * 5
    recorded = evidence.list_plan_line_specs_by_seed(line, "base", Store())
    assert list_dtypes(recorded[10]) == {"bfloat16"}
    of_page = evidence.list_notebook_specs(["nas_t02"], "mini", empty)
    assert list_dtypes(of_page) == {dtype}


@pytest.mark.papers("efficientbert", "ghostbert")
def test_a_method_without_settings_at_base_names_the_profiles_that_have_them():
    with pytest.raises(Refused, match="base has no .* take one of toy, mini, paper$"):
        frontier.TABLE["GhostBERT, warmed up"].make_spec("base", "SST-2", 3)
    with pytest.raises(Refused, match="unknown key of the settings .*: 'huge'"):
        grids.SettingsTable("a table", {"toy": 1})["huge"]


@pytest.mark.papers("bermo")
def test_a_page_without_a_planned_line_is_refused_at_base():
    (page,) = notebook.find_notebooks(["bermo_t01"])
    with pytest.raises(
        Refused, match="bermo_t01_probing has no rows at base: take one of"
    ):
        notebook.execute_grid_cell_and_list_rows_by_variable(page, {"profile": "base"})
