"""The loop of a search: killed and resumed, refused, failing; and the step at the smallest size."""

import json
from dataclasses import replace

import pytest
from conftest import small_backbone, stop_at, store_with

from lib import data
from lib.execute import execute
from lib.model import backbone, supernet
from lib.model.parts import size
from lib.options import Numerics, Search, Shared, Targets, Train, Warmup
from lib.search import engine, samplers
from lib.search.formula import FormulaError
from lib.search.landscape import landscape
from lib.search.net import BERT, Layer, Net
from lib.search.space import Space, grammar, number
from lib.spec import Output, Spec
from lib.train import heads, loop, students

TOY = Net(96, 96, 12, "trigram", "truncate", (Layer(BERT), Layer("tanh(W2 gelu(W1 x))", 2, 2)))
SPACE = Space("stage3", TOY)
SCORES = landscape(0, 2)
METHODS = {
    "random": Search("random", 30, 500),
    "cascade": Search("cascade", 30, 500, initial=8, refit=5, encoding="index"),
    "lanas": Search("lanas", 30, 500, initial=8, refit=5, encoding="onehot", height=3, cp=0.1),
    "evolution": Search("evolution", 30, 500, population=6, tournament=3),
}


class Killed(Exception):
    pass


def until(count):
    """An evaluation that is killed when it is called for the time after `count`."""
    left = [count]

    def evaluate(net):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return SCORES(net)

    return evaluate


def plain(history):
    """All but what a clock said."""
    return [replace(e, seconds=0.0) for e in history]


# ---- the history ----
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("killed_after", [0, 9, 19])
def test_a_killed_search_goes_on_as_if_it_had_not_been(method, killed_after, tmp_path):
    whole = engine.search(SPACE, SCORES, METHODS[method], 3, tmp_path / "whole")
    with pytest.raises(Killed):
        engine.search(SPACE, until(killed_after), METHODS[method], 3, tmp_path / "cut")
    resumed = engine.search(SPACE, SCORES, METHODS[method], 3, tmp_path / "cut")
    assert len(whole) == 30 and plain(resumed) == plain(whole)
    assert engine.best(resumed).candidate == engine.best(whole).candidate
    assert (
        engine.search(SPACE, until(0), METHODS[method], 3, tmp_path / "cut") == resumed
    )  # nothing is left to do


@pytest.mark.parametrize("cut", [1, 40, 10**9])
def test_a_torn_last_line_is_dropped(cut, tmp_path):
    path = tmp_path / "history"
    whole = engine.search(SPACE, SCORES, METHODS["lanas"], 0, path)
    content = path.read_bytes()
    last = content[:-1].rfind(b"\n") + 1
    path.write_bytes(content[:last] + content[last:-1][:cut])  # all but the line's end, at most
    assert len(engine.resume(SPACE, METHODS["lanas"], 0, path)) == 29
    assert path.read_bytes() == content[:last]
    assert plain(engine.search(SPACE, SCORES, METHODS["lanas"], 0, path)) == plain(whole)


def test_a_torn_head_begins_anew(tmp_path):
    path = tmp_path / "history"
    path.write_text('{"space": {"sta')
    assert len(engine.search(SPACE, SCORES, METHODS["random"], 0, path)) == 30
    assert len(path.read_text().splitlines()) == 31


def test_a_damaged_history_is_refused(tmp_path):
    path = tmp_path / "history"
    engine.search(SPACE, SCORES, METHODS["random"], 0, path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:4], lines[4][:20] + "\n", *lines[5:]]))
    with pytest.raises(ValueError, match="history is damaged .* delete it"):
        engine.search(SPACE, SCORES, METHODS["random"], 0, path)


@pytest.mark.parametrize(
    "changes, name",
    [
        ({"space": replace(SPACE, stage="stage1")}, "space"),
        ({"space": replace(SPACE, low=1)}, "space"),
        ({"space": Space("stage3", replace(TOY, layers=TOY.layers[:1]))}, "space"),
        ({"seed": 1}, "seed"),
        ({"options": replace(METHODS["lanas"], cp=0.2)}, "search"),
        ({"options": METHODS["random"]}, "search"),
    ],
)
def test_the_history_of_another_search_is_refused(changes, name, tmp_path):
    told = {
        "space": SPACE,
        "evaluate": SCORES,
        "options": METHODS["lanas"],
        "seed": 0,
        "path": tmp_path / "history",
    }
    engine.search(**told)
    before = told["path"].read_bytes()
    with pytest.raises(
        ValueError,
        match=f"history of another search: its {name} is .*; give this search a folder of its own",
    ):
        engine.search(**told | changes)
    assert told["path"].read_bytes() == before


def test_each_candidate_is_evaluated_once_and_written_down(tmp_path):
    asked = []
    history = engine.search(
        SPACE,
        lambda net: asked.append(net) or SCORES(net),
        METHODS["evolution"],
        0,
        tmp_path / "history",
    )
    assert [e.candidate for e in history] == asked and len({e.key for e in history}) == 30
    head, *lines = map(json.loads, (tmp_path / "history").read_text().splitlines())
    assert (
        head["space"] == SPACE.identity() and head["seed"] == 0 and "budget" not in head["search"]
    )
    assert [(line["score"], line["key"], line["failed"]) for line in lines] == [
        (e.score, e.key, "") for e in history
    ]
    assert lines[0]["candidate"] == [
        [BERT, 1, 1],
        ["tanh(W2 gelu(W1 x))", 2, 2],
    ]  # the start comes first
    assert all(line["score"] == SCORES(e.candidate) for line, e in zip(lines, history, strict=True))


def test_stage_2_begins_with_its_start_and_the_plain_twin(tmp_path):
    space = Space("stage2", TOY)
    history = engine.search(
        space, lambda net: 0.5, replace(METHODS["random"], budget=3), 0, tmp_path / "history"
    )
    assert [space.pack(e.candidate) for e in history[:2]] == [
        [[BERT, 1, 1], ["tanh(W2 gelu(W1 x))", 2, 2]],
        [[BERT, 1, 1], [BERT, 2, 2]],
    ]


# ---- limits ----
def test_a_larger_budget_continues(tmp_path):
    path = tmp_path / "history"
    first = engine.search(SPACE, SCORES, replace(METHODS["lanas"], budget=12), 0, path)
    more = engine.search(SPACE, SCORES, METHODS["lanas"], 0, path)
    assert len(first) == 12 and more[:12] == first
    assert plain(more) == plain(
        engine.search(SPACE, SCORES, METHODS["lanas"], 0, tmp_path / "other")
    )


def test_a_space_of_few_candidates_is_exhausted(tmp_path):
    space = Space(
        "stage3", replace(TOY, layers=(Layer("W1 gelu(x) + W2 tanh(x)"),))
    )  # four ids of ratio 1
    history = engine.search(space, landscape(0, 1), METHODS["random"], 0, tmp_path / "history")
    assert len(history) == 4


def test_progress_is_told(tmp_path):
    seen = []
    engine.search(
        SPACE,
        SCORES,
        METHODS["random"],
        0,
        tmp_path / "history",
        after=lambda history: seen.append(len(history)),
    )
    assert seen == list(range(1, 31))


# ---- failures ----
@pytest.mark.parametrize(
    "failure, said",
    [
        (FloatingPointError("loss nan at step 3"), "loss nan at step 3"),
        (FormulaError("W2 takes 48 channels", "W2 x", 0), "W2 takes 48"),
        (float("nan"), "the score is nan"),
        (float("inf"), "the score is inf"),
    ],
)
def test_failures_score_0_and_are_kept(failure, said, tmp_path):
    def evaluate(net):
        if number(net.layers[0]) % 2:
            if isinstance(failure, Exception):
                raise failure
            return failure
        return SCORES(net)

    history = engine.search(SPACE, evaluate, METHODS["lanas"], 0, tmp_path / "history")
    failed = [e for e in history if number(e.candidate.layers[0]) % 2]
    assert failed and all(e.score == 0 and said in e.failed for e in failed)
    assert not any(e.failed for e in history if e not in failed)
    assert engine.resume(SPACE, METHODS["lanas"], 0, tmp_path / "history") == history
    assert engine.best(history).score > 0


def test_other_errors_are_not_hidden(tmp_path):
    def evaluate(net):
        raise KeyError("a mistake in the evaluation")

    with pytest.raises(KeyError, match="a mistake"):
        engine.search(SPACE, evaluate, METHODS["random"], 0, tmp_path / "history")


def test_without_a_working_candidate_there_is_no_best(tmp_path):
    history = engine.search(
        SPACE, lambda net: float("nan"), METHODS["random"], 0, tmp_path / "history"
    )
    with pytest.raises(
        ValueError, match="none of 30 candidates could be evaluated; the first: the score is nan"
    ):
        engine.best(history)


def test_the_best_is_the_first_of_equals():
    history = [
        samplers.Evaluation(TOY, str(i), score, 0.0) for i, score in enumerate((0.1, 0.7, 0.7, 0.2))
    ]
    assert engine.best(history).key == "1"


# ---- the step ----
NUMERICS = Numerics("float32", 1)
TRAIN = Train(epochs=2, batch=16, lr=2e-3, max_length=32, clip=1.0, warmup=0.1, dropout=0.1)
FINE = Warmup("scores", "shared", prediction=1.0, mask=True)
DATA = data.describe("toy", "STS-B", 48, 40)
CORPUS = {"sentences": 60, "seed": 0}
BACKBONE = small_backbone(TRAIN, sentences=60)
TEACHER = Spec(
    "finetune",
    {"data": DATA, "train": TRAIN, "targets": Targets("hard"), "numerics": NUMERICS},
    {"start": BACKBONE},
)
WHOLE = Net(24, 24, 12, "trigram", "truncate", (Layer(BERT, 4, 1),) * 2)
START = replace(WHOLE, layers=(Layer(BERT),) * 2)
TEXT = {
    "corpus": CORPUS,
    "warmup": replace(FINE, prediction=0.0),
    "train": TRAIN,
    "numerics": NUMERICS,
}
SUPER = Spec("predistil", TEXT | {"net": WHOLE.to_json()}, {"teacher": BACKBONE})
MANY = Spec(
    "multitask",
    {
        "data": {"STS-B": DATA},
        "warmup": FINE,
        "train": TRAIN,
        "numerics": NUMERICS,
        "shared": Shared((0, 10**9), (((1, 1), (2, 2), (4, 1)),) * 2),
    },
    {"teacher:STS-B": TEACHER, "start": SUPER},
)
COMMON = {"data": DATA, "train": TRAIN, "numerics": NUMERICS, "warmup": FINE}
FEW = Search("evolution", 4, 100, population=2, tournament=2)
SPACES = {
    stage: {"stage": stage, "grammar": grammar(stage)} for stage in ("stage1", "stage2", "stage3")
}
ONE = Spec(
    "search",
    COMMON | {"space": SPACES["stage1"], "net": START.to_json(), "search": FEW},
    {"start": SUPER, "teacher": TEACHER},
)
TWO = Spec(
    "search",
    COMMON
    | {
        "space": SPACES["stage2"],
        "net": Output("before", "net"),
        "search": FEW,
        "corpus": CORPUS,
        "pretrain": replace(TRAIN, epochs=1),
    },
    {"start": SUPER, "teacher": TEACHER, "general": BACKBONE, "before": ONE},
)
THREE = Spec(
    "search",
    {
        "space": SPACES["stage3"],
        "net": Output("before", "net"),
        "search": replace(FEW, budget=12),
        "data": DATA,
        "train": TRAIN,
        "numerics": NUMERICS,
        "classifier": "STS-B",
    },
    {"start": MANY, "before": TWO},
)


def lines(run):
    return [json.loads(line) for line in (run.folder / "history.jsonl").read_text().splitlines()]


def test_stages_hand_their_winner_on(make):
    one, two, three = (make(spec).metrics["net"] for spec in (ONE, TWO, THREE))
    for before, after, kept in ((one, two, slice(1, 3)), (two, three, slice(0, 1))):
        assert [layer[kept] for layer in before["layers"]] == [
            layer[kept] for layer in after["layers"]
        ]
    for spec, start in ((ONE, START.to_json()), (TWO, one), (THREE, two)):
        head, *entries = lines(make(spec))
        assert head["space"]["start"] == start and entries[0]["candidate"] == start["layers"]
        found = make(spec).metrics
        assert (
            found["score"] == max(e["score"] for e in entries)
            and found["first_score"] == entries[0]["score"]
        )
        assert len({e["score"] for e in entries}) > 2  # what follows compares scores that differ
        assert (
            found["evaluations"] == len(entries) == len({e["key"] for e in entries})
            and not found["failed"]
        )


def test_sizes_are_those_of_built_networks(make):
    found = make(ONE).metrics
    model = supernet.build(found["net"], like=backbone.load(make(SUPER).model)[0].config)
    whole = size(model)["parameters"] - 24 * 24 - 24  # no pooler
    assert (
        found["parameters"] == whole + 24 * 48 + 48
    )  # the projection to the teacher's 48 channels


def test_a_score_is_that_of_the_candidate_alone(make):
    """The third candidate, trained by a run of its own from the supernet: nothing leaks from those
    before it.
    """
    _, _, _, third, *_ = lines(make(ONE))
    net = START.to_json() | {"layers": third["candidate"]}
    alone = make(Spec("warmup", COMMON | {"net": net}, {"start": SUPER, "teacher": TEACHER}))
    assert third["score"] == alone.metrics["held_out.spearman"]


def test_a_score_of_stage_3_is_that_of_the_part(make):
    rows = data.load(DATA)["held_out"]
    for entry in lines(make(THREE))[1:4]:
        model, tokenizer = students.classifier(make(MANY).model, "STS-B")
        net = START.to_json() | {"layers": entry["candidate"]}
        part = supernet.build(net, type(model), model.config, num_labels=1).eval()
        supernet.inherit(part, model)
        encoded, marks = heads.rows(tokenizer, rows, data.described(DATA), 32)
        assert marks(loop.predict(part, encoded, NUMERICS))[0]["spearman"] == entry["score"]


@pytest.mark.parametrize("calls", [1, 5, 14])
def test_a_killed_step_goes_on_to_the_same_history(calls, make, tmp_path, monkeypatch):
    """Killed in a pass of the loop, checkpoints at every step."""
    other = store_with(tmp_path, *map(make, (BACKBONE, TEACHER, SUPER, ONE)))
    stop_at(monkeypatch, loop, "collate", calls)
    with pytest.raises(KeyboardInterrupt):
        execute(TWO.at(1), other, checkpoint_seconds=0.0)
    resumed = execute(TWO.at(1), other, checkpoint_seconds=0.0)
    clock = {"seconds": 0}
    assert [line | clock for line in lines(resumed)] == [line | clock for line in lines(make(TWO))]
    assert not (resumed.folder / "resume").exists()


@pytest.mark.parametrize(
    "spec, message",
    [
        (
            replace(ONE, args=ONE.args | {"data": data.describe("toy", "STS-B", 48)}),
            "describe the data with held_out",
        ),
        (
            replace(ONE, args=ONE.args | {"corpus": CORPUS}),
            "give all three, corpus, pretrain and the input general",
        ),
        (
            replace(ONE, args=ONE.args | {"space": SPACES["stage1"] | {"low": 1, "high": 2}}),
            "no candidate of 2 layers .* has 1 to 2",
        ),
        (
            replace(THREE, args=THREE.args | {"classifier": "CoLA"}),
            "unknown task with a head in this model: 'CoLA'",
        ),
        (
            replace(
                THREE,
                inputs=THREE.inputs | {"start": SUPER},
                args={k: v for k, v in THREE.args.items() if k != "classifier"},
            ),
            "STS-B needs one for SequenceClassification",
        ),
    ],
)
def test_mistakes_are_named(spec, message, make):
    with pytest.raises(ValueError, match=message):
        make(spec)
