"""The loop of a search: killed and resumed, refused, failing; and the step at the
smallest size."""

import json
from dataclasses import replace

import numpy as np
import pytest
from conftest import landscape, scored, small_backbone, stop_at, store_with

from lib import data
from lib.core.execute import execute
from lib.core.options import Numerics, Targets, Train
from lib.core.spec import Output, Spec
from lib.model import backbone, supernet
from lib.model.formula import FormulaError
from lib.model.parts import count_parameters
from lib.papers.efficientbert import students
from lib.papers.efficientbert.options import Search, SubnetworkOptions, Warmup
from lib.papers.efficientbert.search import engine
from lib.papers.efficientbert.search.net import BERT, Layer, Net
from lib.papers.efficientbert.search.space import (
    Space,
    find_index_of_layer_size,
    make_grammar_json,
)
from lib.train import heads, loop

pytestmark = pytest.mark.usefixtures("few_rows")
TOY = Net(
    96, 96, 12, "trigram", "truncate", (Layer(BERT), Layer("tanh(W2 gelu(W1 x))", 2, 2))
)
SPACE = Space("stage3", TOY)
SCORES = landscape(0, 2)
METHODS = {
    "random": Search("random", 30, 500),
    "cascade": Search("cascade", 30, 500, initial=8, refit=5, encoding="index"),
    "evolution": Search("evolution", 30, 500, population=6, tournament=3),
}


class Killed(Exception):
    pass


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history"


def searched(
    path, space=SPACE, evaluate=SCORES, options=METHODS["random"], seed=0, **more
):
    return engine.search_networks(space, evaluate, options, seed, path, **more)


def plain(history):
    """All but what a clock said."""
    return [replace(e, seconds=0.0) for e in history]


def until(count):
    """An evaluation that is killed when it is called for the time after `count`."""
    scores = iter([SCORES] * count)

    def evaluate(net):
        return next(scores, killed)(net)

    return evaluate


def killed(net):
    raise Killed


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("killed_after", [0, 9, 19])
def test_a_killed_search_goes_on_as_if_it_had_not_been(
    method, killed_after, path, tmp_path
):
    options = METHODS[method]
    whole = searched(tmp_path / "whole", options=options, seed=3)
    with pytest.raises(Killed):
        searched(path, evaluate=until(killed_after), options=options, seed=3)
    resumed = searched(path, options=options, seed=3)
    assert len(whole) == 30 and plain(resumed) == plain(whole)
    assert (
        engine.find_best_evaluation(resumed).candidate
        == engine.find_best_evaluation(whole).candidate
    )
    assert (
        searched(path, evaluate=killed, options=options, seed=3) == resumed
    )  # nothing is left


@pytest.mark.parametrize("cut", [1, 40, 10**9])
def test_a_torn_last_line_is_dropped(cut, path):
    whole = searched(path, options=METHODS["cascade"])
    content = path.read_bytes()
    last = content[:-1].rfind(b"\n") + 1
    path.write_bytes(
        content[:last] + content[last:-1][:cut]
    )  # all but the line's end, at most
    assert len(engine.read_or_restart_history(SPACE, METHODS["cascade"], 0, path)) == 29
    assert path.read_bytes() == content[:last]
    assert plain(searched(path, options=METHODS["cascade"])) == plain(whole)


def test_a_torn_head_begins_anew_and_another_damage_goes_on_from_before_it(path):
    path.write_text('{"space": {"sta')
    assert len(searched(path)) == 30
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) == 31
    for damaged in (lines[4][:20] + "\n", lines[4].replace(": 0.", ": 0.9", 1), "{}\n"):
        path.write_text("".join([*lines[:4], damaged, *lines[5:]]))
        assert len(searched(path)) == 30
        again = [
            line.partition('"digest"')[2] for line in path.read_text().splitlines(True)
        ]
        assert again == [line.partition('"digest"')[2] for line in lines]


@pytest.mark.parametrize(
    "changes",
    [
        {"space": replace(SPACE, stage="stage1")},
        {"space": replace(SPACE, low=1)},
        {"space": Space("stage3", replace(TOY, layers=TOY.layers[:1]))},
        {"seed": 1},
        {"options": replace(METHODS["cascade"], refit=6)},
        {"options": METHODS["random"]},
    ],
)
def test_the_history_of_another_search_begins_anew(changes, path, tmp_path):
    told = {"options": METHODS["cascade"]} | changes
    searched(path, options=METHODS["cascade"])
    assert plain(searched(path, **told)) == plain(searched(tmp_path / "new", **told))


def test_each_candidate_is_evaluated_once_told_and_written_down(path):
    asked, seen = [], []
    history = searched(
        path,
        evaluate=lambda net: asked.append(net) or SCORES(net),
        options=METHODS["evolution"],
        report_share_of_budget=seen.append,
    )
    assert [e.candidate for e in history] == asked and len(
        {e.key for e in history}
    ) == 30
    assert seen == [n / 30 for n in range(1, 31)]
    head, *lines = map(json.loads, path.read_text().splitlines())
    assert head["space"] == SPACE.to_json() and head["seed"] == 0
    assert "budget" not in head["search"]
    told = [(line["score"], line["key"], line["failed"]) for line in lines]
    assert told == [(SCORES(e.candidate), e.key, "") for e in history]
    assert lines[0]["candidate"] == TOY.to_json()["layers"]  # the start comes first


def test_stage_2_begins_with_its_start_and_the_plain_twin(path):
    space = Space("stage2", TOY)
    history = searched(path, space, options=replace(METHODS["random"], budget=3))
    assert [e.candidate.to_json()["layers"] for e in history[:2]] == [
        [[BERT, 1, 1], ["tanh(W2 gelu(W1 x))", 2, 2]],
        [[BERT, 1, 1], [BERT, 2, 2]],
    ]


def test_a_larger_budget_continues(path, tmp_path):
    first = searched(path, options=replace(METHODS["cascade"], budget=12))
    more = searched(path, options=METHODS["cascade"])
    assert len(first) == 12 and more[:12] == first
    assert plain(more) == plain(
        searched(tmp_path / "other", options=METHODS["cascade"])
    )


@pytest.mark.parametrize(
    "failure, said",
    [
        (FloatingPointError("loss nan at step 3"), "loss nan at step 3"),
        (FormulaError("W2 takes 48 channels"), "W2 takes 48"),
        (float("nan"), "the score is nan"),
        (float("inf"), "the score is inf"),
    ],
)
def test_failures_score_0_and_are_kept(failure, said, path):
    def fails(net):
        return find_index_of_layer_size(net.layers[0]) % 2

    def evaluate(net):
        if fails(net) and isinstance(failure, Exception):
            raise failure
        return failure if fails(net) else SCORES(net)

    history = searched(path, evaluate=evaluate, options=METHODS["cascade"])
    failed = [e for e in history if fails(e.candidate)]
    assert failed and all(e.score == 0 and said in e.failed for e in failed)
    assert not any(e.failed for e in history if e not in failed)
    assert engine.read_or_restart_history(SPACE, METHODS["cascade"], 0, path) == history
    assert engine.find_best_evaluation(history).score > 0


def test_other_errors_are_not_hidden(path):
    with pytest.raises(Killed):
        searched(path, evaluate=killed)


def test_without_a_working_candidate_there_is_no_best(path):
    history = searched(path, evaluate=lambda net: float("nan"))
    said = "none of 30 candidates could be evaluated; the first: the score is nan"
    with pytest.raises(ValueError, match=said):
        engine.find_best_evaluation(history)


NUMERICS = Numerics("float32", 1)
TRAIN = Train(
    epochs=2, batch=16, lr=2e-3, max_length=32, clip=1.0, warmup=0.1, dropout=0.1
)
FINE = Warmup("scores", "shared", prediction=1.0, mask=True)
DATA = scored(48, 40)
CORPUS = {"sentences": 60, "seed": 0}
BACKBONE = small_backbone(TRAIN, sentences=60)
TEACHER = Spec(
    "finetune",
    {"data": DATA, "train": TRAIN, "targets": Targets("hard"), "numerics": NUMERICS},
    {"start": BACKBONE},
)
WHOLE = Net(24, 24, 12, "trigram", "truncate", (Layer(BERT, 4, 1),) * 2)
START = replace(WHOLE, layers=(Layer(BERT),) * 2)
HOW = {"train": TRAIN, "numerics": NUMERICS}
TEXT = {
    "corpus": CORPUS,
    "warmup": replace(FINE, prediction=0.0),
    "net": WHOLE.to_json(),
}
SUPER = Spec("predistil", HOW | TEXT, {"teacher": BACKBONE})
PARTS = SubnetworkOptions((0, 10**9), (((1, 1), (2, 2), (4, 1)),) * 2)
MANY = Spec(
    "multitask",
    HOW | {"data": {"scores": DATA}, "warmup": FINE, "shared": PARTS},
    {"teacher:scores": TEACHER, "start": SUPER},
)
COMMON = HOW | {"data": DATA, "warmup": FINE}
TAUGHT = {"start": SUPER, "teacher": TEACHER}
FEW = Search("evolution", 4, 100, population=2, tournament=2)
SPACES = {
    stage: {"stage": stage, "grammar": make_grammar_json(stage)}
    for stage in ("stage1", "stage2", "stage3")
}
ONE = Spec(
    "search",
    COMMON | {"space": SPACES["stage1"], "net": START.to_json(), "search": FEW},
    TAUGHT,
)
TWO = Spec(
    "search",
    COMMON
    | {
        "space": SPACES["stage2"],
        "net": Output("before", "net"),
        "search": FEW,
        "corpus": CORPUS,
    }
    | {"pretrain": replace(TRAIN, epochs=1)},
    TAUGHT | {"general": BACKBONE, "before": ONE},
)
THREE = Spec(
    "search",
    HOW
    | {"space": SPACES["stage3"], "net": Output("before", "net"), "data": DATA}
    | {"search": replace(FEW, budget=12), "classifier": "scores"},
    {"start": MANY, "before": TWO},
)


def lines(run):
    return [
        json.loads(line)
        for line in (run.folder / "history.jsonl").read_text().splitlines()
    ]


def test_stages_hand_their_winner_on(make):
    one, two, three = (make(spec).metrics["net"] for spec in (ONE, TWO, THREE))
    for before, after, kept in ((one, two, slice(1, 3)), (two, three, slice(0, 1))):
        stay = ([layer[kept] for layer in net["layers"]] for net in (before, after))
        assert next(stay) == next(stay)
    for spec, start in ((ONE, START.to_json()), (TWO, one), (THREE, two)):
        head, *entries = lines(make(spec))
        assert (
            head["space"]["start"] == start
            and entries[0]["candidate"] == start["layers"]
        )
        found, scores = make(spec).metrics, [e["score"] for e in entries]
        assert found["score"] == max(scores)
        assert len(set(scores)) > 2  # what follows compares scores that differ
        assert found["evaluations"] == len(entries) == len({e["key"] for e in entries})
        assert not any(e["failed"] for e in entries)


def test_sizes_are_those_of_built_networks(make):
    found = make(ONE).metrics
    model = supernet.build_efficientbert_model(
        found["net"],
        vocabulary_config=backbone.load(make(SUPER).model_folder)[0].config,
    )
    whole = count_parameters(model)["parameters"] - 24 * 24 - 24  # no pooler
    assert (
        found["parameters"] == whole + 24 * 48 + 48
    )  # the projection to the teacher's width


def test_a_score_is_that_of_the_candidate_alone(make):
    """The third candidate, trained by a run of its own from the supernet: nothing leaks
    from those before it."""
    _, _, _, third, *_ = lines(make(ONE))
    net = START.to_json() | {"layers": third["candidate"]}
    alone = make(
        Spec("warmup", COMMON | {"net": net}, {"start": SUPER, "teacher": TEACHER})
    )
    assert third["score"] == alone.metrics["held_out.spearman"]


def likeness(run, teacher):
    """exp(-L) of a run's model by numpy: the mean square distance to the teacher's
    scores."""
    rows, found = data.load(DATA)["held_out"], []
    for folder in (run.model_folder, teacher.model_folder):
        model, tokenizer = backbone.load(folder)
        encoded, _ = heads.encode_rows_and_make_scorer(
            tokenizer, rows, data.find_task_of_descriptor(DATA), 32
        )
        found.append(
            loop.predict_logits(model.eval(), encoded, NUMERICS).astype(np.float64)
        )
    return float(np.exp(-np.mean((found[0] - found[1]) ** 2)))


def test_a_score_by_the_loss_is_that_of_the_prediction_loss_on_all_held_out_rows(make):
    """The candidate alone says the same, and the search goes by it."""
    by_loss = changed(ONE, search=replace(FEW, score="loss"))
    _, *entries = lines(make(by_loss))
    net = START.to_json() | {"layers": entries[1]["candidate"]}
    spec = Spec("warmup", COMMON | {"net": net, "score": "loss"}, TAUGHT)
    alone = make(spec)
    assert entries[1]["score"] == alone.metrics["held_out.score"]
    wanted = likeness(alone, make(TEACHER))
    assert (
        alone.metrics["held_out.score"] == pytest.approx(wanted, rel=1e-5)
        and wanted < 1
    )
    scores = [entry["score"] for entry in entries]
    assert len({*scores}) == len(scores) and make(by_loss).metrics["score"] == max(
        scores
    )
    last = Spec(
        "search",
        THREE.args | {"search": replace(FEW, score="loss")},
        dict(THREE.inputs) | {"teacher": TEACHER},
    )
    assert all(0 < entry["score"] < 1 for entry in lines(make(last))[1:])


def test_a_search_says_whether_it_ended_where_it_began(make):
    for spec in (ONE, TWO, THREE):
        _, first, *_ = lines(make(spec))
        found = make(spec).metrics
        same = [list(layer) for layer in found["net"]["layers"]] == first["candidate"]
        assert found["is_start"] == same


def test_a_population_that_the_budget_never_reaches_is_refused():
    told = r"Search.population is 10; the budget is 12, .* take a population of at most 6, half"
    with pytest.raises(ValueError, match=told):
        Search("evolution", 12, 100, population=10, tournament=3)
    Search("evolution", 12, 100, population=6, tournament=3)
    Search("random", 12, 100)  # Others have none.


def test_a_score_of_stage_3_is_that_of_the_part(make):
    rows = data.load(DATA)["held_out"]
    for entry in lines(make(THREE))[1:4]:
        model, tokenizer = students.load_classifier(make(MANY).model_folder, "scores")
        net = START.to_json() | {"layers": entry["candidate"]}
        part = supernet.build_efficientbert_model(
            net, type(model), model.config, num_labels=1
        ).eval()
        supernet.inherit_weights_and_list_missing_tensors(part, model)
        encoded, marks = heads.encode_rows_and_make_scorer(
            tokenizer, rows, data.find_task_of_descriptor(DATA), 32
        )
        assert (
            marks(loop.predict_logits(part, encoded, NUMERICS))[0]["spearman"]
            == entry["score"]
        )


@pytest.mark.parametrize("calls", [1, 5, 14])
def test_a_killed_step_goes_on_to_the_same_history(calls, make, tmp_path, monkeypatch):
    """Killed in a pass of the loop, checkpoints at every step."""
    other = store_with(tmp_path, *map(make, (BACKBONE, TEACHER, SUPER, ONE)))
    stop_at(monkeypatch, loop, "make_batch", calls)
    with pytest.raises(KeyboardInterrupt):
        execute(TWO.with_seed(1), other, checkpoint_interval_seconds=0.0)
    resumed = execute(TWO.with_seed(1), other, checkpoint_interval_seconds=0.0)
    clock = {"seconds": 0}
    assert [line | clock for line in lines(resumed)] == [
        line | clock for line in lines(make(TWO))
    ]
    assert not (resumed.folder / "resume").exists()


def changed(spec, **args):
    return replace(spec, args=spec.args | args)


def test_a_window_without_candidates_is_named(make):
    with pytest.raises(ValueError, match="no candidate has 1 to 2"):
        make(changed(ONE, space=SPACES["stage1"] | {"low": 1, "high": 2}))


def test_a_space_of_few_candidates_is_exhausted(path):
    few = replace(
        TOY, layers=(Layer("W1 gelu(x) + W2 tanh(x)"),)
    )  # four ids of ratio 1
    assert len(searched(path, Space("stage3", few), landscape(0, 1))) == 4
