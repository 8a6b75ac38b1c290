"""Identity of a Spec: what enters it, what does not, and that it stays what it is."""

import inspect
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.core.names import Refused, check_known_name, derive_seed
from lib.core.options import Ghost, Numerics, Train
from lib.core.spec import Output, Spec, canonical, make_spec_from_json, to_plain_json
from lib.core.steps import STEPS, TASK_TRAINING
from lib.core.steps import find_step_function as function_of

PRETRAIN = Spec(
    "pretrain",
    {"corpus": {"sentences": 10, "seed": 0}, "numerics": Numerics("float32", 1)},
    seed=0,
)


def finetune(**train):
    options = Train(**{"epochs": 1, "batch": 8, "lr": 1e-3, "max_length": 16} | train)
    data = {"source": "toy", "task": "CoLA", "digest": "0"}
    return Spec("finetune", {"data": data, "train": options}, {"start": PRETRAIN})


def test_known_identities_do_not_change():
    """Committed records are found by these: a change here loses them."""
    assert PRETRAIN.id == "8b7e015d2060"
    assert finetune().id == "7e13d8a3b69e"


@pytest.mark.parametrize("name", STEPS)
def test_the_table_of_steps_names_the_arguments_of_each_function(name):
    """A function on a task takes a TaskTraining instead of the first ones."""
    function, named = function_of(name), {"run", *STEPS[name].args}
    if isinstance(function, partial):
        function = function.args[0]
        named = named - {"run", *TASK_TRAINING.split(), "span"} | {"training"}
    assert {*inspect.signature(function).parameters} == named


def test_an_option_that_is_off_is_not_part_of_the_identity():
    assert finetune(dropout=0.0, warmup=0.0).id == finetune().id
    assert finetune(dropout=0.1).id != finetune().id
    spec = finetune()
    none = Spec("finetune", spec.args | {"span": None}, spec.inputs | {"teacher": None})
    assert none.id == spec.id and none.inputs == spec.inputs


def test_seeds_are_replicates_and_flow_to_unpinned_inputs():
    chain = Spec("importance", {}, {"teacher": finetune()})
    assert chain.with_seed(1).id == chain.with_seed(2).id and chain.with_seed(
        1
    ) != chain.with_seed(2)
    assert chain.with_seed(3).input_specs_with_seeds["teacher"].seed == 3
    assert (
        chain.with_seed(3)
        .input_specs_with_seeds["teacher"]
        .input_specs_with_seeds["start"]
        .seed
        == 0
    )


def test_a_pinned_seed_is_part_of_the_identity():
    one, two = (
        Spec("importance", {}, {"teacher": finetune().with_seed(seed)})
        for seed in (1, 2)
    )
    assert one.id != two.id


def test_json_round_trip():
    spec = Spec(
        "importance", {"numerics": Numerics("float32", 1)}, {"teacher": finetune()}
    ).with_seed(4)
    again = make_spec_from_json(spec.to_json())
    assert again == spec and hash(again) == hash(spec) and again.name == spec.name


def test_another_version_is_refused():
    with pytest.raises(ValueError, match="version 7: make the run again"):
        make_spec_from_json(PRETRAIN.to_json() | {"version": 7})


def test_outputs_are_hashed_as_references_and_resolved_late():
    spec = Spec(
        "distil", {"surgery": Output("importance", "plan")}, {"importance": finetune()}
    )
    assert spec.resolve_step_arguments({"importance": {"plan": [1]}})["surgery"] == [1]
    with pytest.raises(KeyError, match="plan"):
        spec.resolve_step_arguments({"importance": {"plans": 1}})


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Spec("finetun"), "did you mean 'finetune'"),
        (lambda: Spec("finetune", {"trian": 1}), "did you mean 'train'"),
        (lambda: Spec("finetune", {}, {"strat": PRETRAIN}), "did you mean 'start'"),
        (
            lambda: check_known_name("task", "cola", ["CoLA", "RTE"]),
            "did you mean 'CoLA'",
        ),
        (lambda: PRETRAIN.with_seed(-1), "seed is -1"),
        (lambda: PRETRAIN.with_seed(True), "seed is True"),
        (lambda: finetune().name, "no seed"),
        (lambda: Train(epochs=0, batch=1, lr=1, max_length=1), "Train.epochs is 0"),
        (lambda: Train(epochs=1, batch=1, lr=0, max_length=1), "Train.lr is 0"),
        (lambda: Ghost("dwconv", ["o"], 4), "even kernel"),
        (lambda: Ghost("dwconf", ["o"], 3), "'dwconf'; allowed"),
        (lambda: Numerics("float16", 1), "'float16'; allowed"),
    ],
)
def test_mistakes_name_value_and_fix(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_what_json_would_change_cannot_stand_in_a_spec():
    for value in ({1, 2}, object(), b"x"):
        with pytest.raises(Refused, match="cannot stand in a Spec"):
            Spec("pretrain", {"model": value})


LEAF = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5)
LEAF |= st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.text(max_size=4)
JSON = st.recursive(
    LEAF,
    lambda v: st.lists(v, max_size=3) | st.dictionaries(NAMES, v, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, JSON, max_size=4))
def test_identity_does_not_depend_on_the_order_of_keys(value):
    turned = dict(reversed(value.items()))
    assert canonical(to_plain_json(value)) == canonical(to_plain_json(turned))
    assert (
        Spec("pretrain", {"model": value}).id == Spec("pretrain", {"model": turned}).id
    )


def test_named_streams_differ():
    names = ("order:0", "dropout", "head")
    assert len({derive_seed(seed, name) for seed in range(20) for name in names}) == 60
