"""Method notebooks at toy show the mechanism that they teach: the sign of each effect,
from the seed that a reader sees."""

import json

import pytest

from lib.claims import notebook
from lib.core import paths

pytestmark = pytest.mark.slow


@pytest.fixture
def run(monkeypatch, tmp_path):
    """f(name, **values): the variables of a method notebook after its last cell."""

    def execute(name, **values):
        path = notebook.find_notebook_path(name)
        folder = json.dumps([str(tmp_path), []])
        monkeypatch.setenv(notebook.BATCH, folder)
        monkeypatch.chdir(paths.ROOT)
        variables = {}
        for cell in json.loads(path.read_text())["cells"]:
            tags = cell["metadata"].get("tags", [])
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), name, "exec"), variables)
            if "parameters" in tags:
                variables |= values
        return variables

    return execute


def test_half_of_an_encoder_goes_by_rank_and_mending_brings_much_back(run):
    told = run("00_start_here")
    assert told["at_once"][6] > told["at_random"][6]
    assert told["final"]["Prune", 1] > told["at_once"][1]


def test_ghosts_stand_in_for_attention_and_states_help_where_labels_are_few(run):
    told = run("ghostbert_00_method")
    means = told["means"]["none"]
    assert means[0] < means[3] < means[9] and told["gain"]["none"] > 10
    assert abs(told["gain"]["one head"]) < told["gain"]["none"]
    assert told["after"] > told["alone"]


def test_a_mix_reads_below_the_last_layer_and_movement_finds_what_a_new_task_needs(run):
    told = run("bermo_00_method")
    assert told["read_gain"] > 0 and told["prune_gain"] > 0


def test_inherited_weights_save_loss_and_a_search_finds_a_better_formula(run):
    told = run("efficientbert_00_method")
    assert told["saved"] > 0 and told["search_gain"] > 0


def test_searched_gates_are_better_than_random_ones(run):
    told = run("nas_00_method")
    assert (told["gains"] > 0).all()
