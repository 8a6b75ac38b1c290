"""Unseen rows: which they are, which count, what a run keeps, scores with development
rows."""

import json
from functools import cache
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from conftest import REAL, forget, holding, put, scored
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from unseen import note

from lib import data
from lib.claims import judging as source
from lib.claims import lists
from lib.core import paths
from lib.core.options import Numerics, Targets, Train
from lib.core.spec import Spec
from lib.data import Split, unseen
from lib.papers import frontier, grids
from lib.papers.bermo import recipes as bermo
from lib.papers.efficientbert import recipes as efficientbert
from lib.papers.efficientbert import searches as search
from lib.papers.nas_pruning import recipes as nas
from lib.report.tables import Runs, collect_results
from lib.stats import compare, metrics, paired

APART = tuple(f"w{i} x{i} y{i} z{i}" for i in range(40))  # texts that share nothing
WORDS = st.lists(
    st.sampled_from(["A", "a", "b", "c", "d"]), min_size=1, max_size=7
).map(" ".join)


def split(texts, pair=None):
    count = len(texts)
    return Split(
        list(texts), pair and list(pair), np.zeros(count, np.int64), np.arange(count)
    )


def holds(text, part):
    return f" {part} " in f" {text} "


def share(text, other):
    """As the module says it, by searching text in text."""
    text, other = text.lower(), other.lower()
    words = text.split()
    if len(words) >= 4:
        return any(
            holds(other, " ".join(words[i : i + 4])) for i in range(len(words) - 3)
        )
    return holds(other, text) or (len(other.split()) < 4 and holds(text, other))


@settings(deadline=None, max_examples=200)
@given(st.lists(WORDS, min_size=2, max_size=12), st.integers(1, 6), st.integers(1, 12))
def test_rows_that_share_are_left_out(texts, taken, count):
    rows = split(texts)
    rest = range(taken, len(texts))
    wanted = [
        row
        for row in rest
        if not any(share(texts[row], text) for text in texts[:taken])
    ]
    assert (
        unseen.select_row_positions_without_shared_text(
            rows, range(min(taken, len(texts))), rest, count
        )
        == wanted[:count]
    )


def test_each_side_of_a_pair_counts():
    rows = split(
        ["one two three four five", "x", "far off", "also far"],
        ["y", "zero one two three four", "near by", "y"],
    )
    assert unseen.select_row_positions_without_shared_text(rows, [0], [1, 2, 3], 9) == [
        2
    ]
    assert unseen.cluster_rows_by_shared_text(rows).tolist() == [0, 0, 1, 0]


@settings(deadline=None, max_examples=200)
@given(st.lists(WORDS, min_size=1, max_size=12))
def test_clusters_are_connected_components(texts):
    parent = list(range(len(texts)))
    for i, j in combinations(range(len(texts)), 2):
        if share(texts[i], texts[j]) or share(texts[j], texts[i]):
            parent = [parent[i] if p == parent[j] else p for p in parent]
    found = unseen.cluster_rows_by_shared_text(split(texts))
    assert (
        len(set(zip(found, parent, strict=True))) == len(set(found)) == len(set(parent))
    )
    assert set(found) == set(range(found.max() + 1))


def sentence(words, name):
    return " ".join(f"{name}{i}" for i in range(words))


def test_rows_of_nine_words_and_more_are_judged():
    texts = [
        "one",
        sentence(8, "a"),
        sentence(9, "b"),
        sentence(30, "c"),
        "x " + sentence(8, "b"),
    ]
    found = unseen.compute_unseen_row_scoring_arrays(
        split(texts), split(["b1 b2 b3 b4", "alone"])
    )
    assert found["judged"].tolist() == [2, 3, 4]
    assert (
        found["words"].tolist() == [4, 1, 1, 8, 9, 30, 9] and len(found["labels"]) == 5
    )
    assert found["cluster"].tolist() == [
        0,
        1,
        0,
        2,
        0,
    ]  # development rows are drawn with them
    pairs = split([sentence(4, "a"), sentence(4, "b")], ["c d e f", "c d e f g"])
    assert unseen.compute_unseen_row_scoring_arrays(pairs, split([]))[
        "judged"
    ].tolist() == [1]


def test_no_official_row_that_is_judged_has_a_text_of_a_training_row():
    names = "abcde"
    rows = split([sentence(9, n) for n in names], [sentence(9, f"{n}2") for n in names])
    first, second = sentence(9, "A"), sentence(9, "c2").upper()
    train = split([first, sentence(9, "x"), sentence(8, "d")], ["y", second, "z"])
    dev = split([sentence(9, "e"), "other"], [sentence(9, "D2"), "more"])
    found = unseen.compute_unseen_row_scoring_arrays(rows, dev, train)
    assert found["judged"].tolist() == [1, 3, 4]
    # equal texts make a cluster, and parts of them do not
    assert found["cluster"].tolist() == [0, 1, 2, 0, 0]


def test_a_descriptor_without_unseen_rows_is_what_it_was():
    described = data.make_data_descriptor("toy", "CoLA", 64, 32)
    wanted = {
        "source": "toy",
        "task": "CoLA",
        "digest": data.digest_task_rows_cached("toy", "CoLA")[0],
    }
    assert described == wanted | {"rows": 64, "held_out": 32}
    assert "unseen" not in data.load(described)


STS = [
    "news\tfile\t2012\t1\t2.5\ta cat\ta dog",
    "news\tfile\t2012\t2\t5.000\tone\ttwo\tfrom here\tfrom there",
]
MRPC = [
    "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "1\t1\t2\ta cat\tthe cat",
    "0\t3\t4\ta dog\ta cat",
]


@pytest.fixture
def glue(tmp_path, monkeypatch):
    """f(train texts): SST-2, MRPC and STS-B in official files, with texts that share
    nothing."""
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))

    def fill(texts=APART):
        rows = [f"{text}\t{i % 2}" for i, text in enumerate(texts)]
        files = {
            "stsbenchmark/sts-test.csv": STS,
            "glue/MRPC/msr_paraphrase_test.txt": MRPC,
        }
        for part in ("train", "dev"):
            files[f"glue/SST-2/{part}.tsv"] = ["sentence\tlabel", *rows]
            files[f"glue/STS-B/{part}.tsv"] = [
                "sentence1\tsentence2\tscore",
                "a\tb\t1.5",
            ]
            files[f"glue/MRPC/{part}.tsv"] = [
                "#1 String\t#2 String\tQuality",
                "a\tb\t1",
            ]
        for name, lines in files.items():
            put(tmp_path, name, "\n".join(lines) + "\n")
        forget()

    fill()
    yield fill
    monkeypatch.undo()
    forget()


def test_the_rest_of_the_training_rows(glue):
    described = data.make_data_descriptor("glue", "SST-2", 20, 5, max_unseen_rows=10)
    assert described["unseen"].keys() == {"rows", "beside", "digest"}
    assert described["unseen"]["beside"] == 25
    there = data.load(described)
    used = set(there["train"].index) | set(there["held_out"].index)
    assert len(there["unseen"]) == 10 and used.isdisjoint(there["unseen"].index)
    all_there = data.make_data_descriptor("glue", "SST-2", 20, 5, max_unseen_rows=100)[
        "unseen"
    ]
    assert all_there["rows"] == 15
    assert (
        data.read_unseen_row_scoring_arrays(described)["labels"].tolist()
        == there["unseen"].y.tolist()
    )
    for few in (
        dict(rows=10),
        dict(rows=4, held_out=2),
    ):  # one set for all runs of a task
        other = data.make_data_descriptor(
            "glue", "SST-2", **few, max_unseen_rows=10, reserved_rows=25
        )
        assert other["unseen"] == described["unseen"]


@pytest.mark.parametrize("task, first", [("MRPC", 1), ("STS-B", 2.5)])
def test_official_unseen_rows(glue, task, first):
    described = data.make_data_descriptor("glue", task, max_unseen_rows=2)
    found = data.load(described)["unseen"]
    assert found.a[0] == "a cat" and found.y[0] == first and len(found) == 2
    assert (
        data.read_unseen_row_scoring_arrays(described)["labels"].tolist()
        == found.y.tolist()
    )
    assert (
        data.make_data_descriptor("glue", task, 1, max_unseen_rows=2)["unseen"]
        == described["unseen"]
    )


def test_the_digest_covers_unseen_rows(glue):
    before = data.make_data_descriptor("glue", "SST-2", 20, 5, max_unseen_rows=10)
    plain = data.make_data_descriptor("glue", "SST-2", 20, 5)
    row = data.load(before)["unseen"].index[0]
    glue([*APART[:row], "another text instead of it", *APART[row + 1 :]])
    after = data.make_data_descriptor("glue", "SST-2", 20, 5, max_unseen_rows=10)
    assert after["unseen"] != before["unseen"] and after["digest"] != plain["digest"]
    with pytest.raises(
        ValueError, match="its unseen rows, has digest .*; this run is of"
    ):
        data.load(after | {"unseen": before["unseen"]})


def test_the_digest_covers_official_unseen_rows(glue, tmp_path):
    before = data.make_data_descriptor("glue", "STS-B", max_unseen_rows=2)
    path = tmp_path / "stsbenchmark" / "sts-test.csv"
    path.write_text(path.read_text().replace("5.000", "4.8"))
    forget()
    after = data.make_data_descriptor("glue", "STS-B", max_unseen_rows=2)
    assert after["unseen"] != before["unseen"] and after["digest"] == before["digest"]
    path.unlink()
    forget()
    with pytest.raises(FileNotFoundError, match="sts-test.csv"):
        data.make_data_descriptor("glue", "STS-B", max_unseen_rows=2)


CANNOT = [
    ({}, "beside None, of which None are trained on"),
    ({"rows": 20, "in_file_order": True}, "not in file order"),
    (
        {"rows": 20, "held_out": 5, "reserved_rows": 24},
        "and `reserved_rows` no fewer than `rows` and `held_out`",
    ),
    ({"rows": 40}, "every other row of glue/SST-2 shares text"),
]


@pytest.mark.parametrize("more, message", CANNOT)
def test_unseen_rows_that_cannot_be(glue, more, message):
    with pytest.raises(ValueError, match=message):
        data.make_data_descriptor("glue", "SST-2", max_unseen_rows=5, **more)


def test_published_rows_need_no_data(glue, monkeypatch, tmp_path):
    """Digest, labels and clusters are found where the data are not."""
    monkeypatch.setattr(paths, "DIGESTS", tmp_path / "digests.json")
    monkeypatch.setattr(paths, "UNSEEN", tmp_path / "unseen")
    described = data.make_data_descriptor("glue", "SST-2", 20, 5, max_unseen_rows=10)
    judging = data.read_unseen_row_scoring_arrays(described)
    paths.DIGESTS.write_text(json.dumps({"glue/SST-2": described["digest"]}))
    assert note("glue", "SST-2", 10, 25) == described["unseen"]
    monkeypatch.setenv("DATA_ROOT", str(tmp_path / "none"))
    forget()
    assert (
        data.make_data_descriptor("glue", "SST-2", 20, 5, max_unseen_rows=10)
        == described
    )
    for name, values in data.read_unseen_row_scoring_arrays(described).items():
        assert np.array_equal(values, judging[name])
    assert (
        "glue/SST-2" in data.read_committed_data_digests()
        and "glue/CoLA" not in data.read_committed_data_digests()
    )
    with pytest.raises(FileNotFoundError):
        data.make_data_descriptor("glue", "SST-2", 20, 5, max_unseen_rows=9)


def test_groups_of_other_rows_are_computed_anew(glue, monkeypatch, tmp_path):
    """Which unseen rows count, and what is a group, depends on training and development
    rows too."""
    monkeypatch.setattr(paths, "DIGESTS", tmp_path / "digests.json")
    monkeypatch.setattr(paths, "UNSEEN", tmp_path / "unseen")
    described = data.make_data_descriptor("glue", "SST-2", 20, 5, max_unseen_rows=10)
    judging = data.read_unseen_row_scoring_arrays(described)
    paths.UNSEEN.mkdir()
    file = paths.UNSEEN / f"{described['unseen']['digest']}.safetensors"
    save_file({name: 0 * values for name, values in judging.items()}, file)
    paths.DIGESTS.write_text(json.dumps({"glue/SST-2": "0" * 16}))
    forget()
    for name, values in data.read_unseen_row_scoring_arrays(described).items():
        assert np.array_equal(values, judging[name])


def test_data_that_a_plan_did_not_look_at_are_looked_at_again(
    glue, monkeypatch, tmp_path
):
    monkeypatch.setattr(paths, "DIGESTS", tmp_path / "digests.json")
    paths.DIGESTS.write_text(json.dumps({"glue/SST-2": "0" * 16}))
    with data.plan_with_missing_data(use_local_data=False):
        assert data.make_data_descriptor("glue", "SST-2", 20)["digest"] == "0" * 16
    assert (
        data.make_data_descriptor("glue", "SST-2", 20)["digest"]
        == data.digest_task_rows_cached("glue", "SST-2")[0]
    )


COUNTED = {"SST-2": (872, 2747), "STS-B": (1500, 1116)}


@pytest.mark.parametrize("task", grids.UNSEEN["mini"])
def test_committed_numbers(task, monkeypatch):
    """What is committed is what the data give, where these are at hand."""
    described = grids.make_profile_data_descriptor("mini", task)
    told, found = described["unseen"], data.read_unseen_row_scoring_arrays(described)
    assert len(found["labels"]) == told["rows"]
    dev, judged = len(found["words"]) - told["rows"], found["judged"]
    assert COUNTED.get(task, (dev, len(judged))) == (dev, len(judged))
    assert found["words"][dev:][judged].min() >= 9 and len(
        found["cluster"]
    ) == dev + len(judged)
    monkeypatch.setattr(paths, "UNSEEN", paths.ROOT / "none")
    try:
        wanted = data.read_unseen_row_scoring_arrays(described)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    assert wanted.keys() == found.keys()
    for name, values in found.items():
        assert np.array_equal(values, wanted[name])


def test_no_unseen_row_of_sst2_shares_four_words(monkeypatch):
    if not (REAL / "glue" / "SST-2" / "train.tsv").exists():
        pytest.skip(f"no SST-2 at {REAL}")
    monkeypatch.setenv("DATA_ROOT", str(REAL))
    forget()
    there = data.load(grids.make_profile_data_descriptor("mini", "SST-2"))
    seen = [
        text.lower().split() for part in ("train", "held_out") for text in there[part].a
    ]
    taught = {tuple(words[i : i + 4]) for words in seen for i in range(len(words) - 3)}
    whole = set(map(tuple, seen))
    for words in (text.lower().split() for text in there["unseen"].a):
        assert tuple(words) not in whole
        assert taught.isdisjoint(tuple(words[i : i + 4]) for i in range(len(words) - 3))


@pytest.mark.parametrize("task", grids.UNSEEN["mini"])
def test_one_set_of_unseen_rows_for_all_runs_of_a_task(task):
    """What is compared at mini is judged on the same rows, and no run trains or selects
    on any of them."""
    told = [
        grids.make_profile_data_descriptor("mini", task),
        nas.make_training_rows_descriptor("mini", task),
    ]
    if task in bermo.ROWS["mini"]:
        told.append(bermo.make_bermo_run_arguments("mini", task, "BERT")["data"])
    assert len({json.dumps(each["unseen"]) for each in told}) == 1
    if beside := told[0]["unseen"]["beside"]:
        if task == efficientbert.PROXY["mini"]:
            last = search.search_stage_spec("mini", search.LAST)
            told += [
                search.make_search_rows_descriptor("mini", *search.PART["mini"]),
                last.args["data"],
            ]
        assert max(each["rows"] + each.get("held_out", 0) for each in told) <= beside


@pytest.mark.parametrize("classes", [2, 3, 300])
def test_metrics_of_what_is_kept_are_those_of_the_logits(classes):
    rng = np.random.default_rng(classes)
    logits = rng.normal(size=(101, classes)).astype(np.float32)
    labels = rng.integers(classes, size=101)
    kept = data.pack_predictions(tuple(map(str, range(classes))), logits)
    said = data.unpack_predictions(kept, 101)
    assert np.array_equal(said, logits.argmax(1))
    assert (
        sum(values.nbytes for values in kept.values())
        == {2: 13, 3: 101, 300: 202}[classes]
    )
    weights = paired.sample_bootstrap_weights(rng, 5, 101)
    for name in (
        ("accuracy",) + ("matthews",) * (classes < 9) + ("f1",) * (classes == 2)
    ):
        assert metrics.compute_metric(name, said, labels) == metrics.compute_metric(
            name, logits, labels
        )
        scores = [
            paired.compute_scores_on_weighted_examples(name, [each], labels, weights)
            for each in (said, logits)
        ]
        assert np.array_equal(*scores)


def test_scores_are_kept_as_they_are():
    scores = np.random.default_rng(0).normal(size=(50, 1)).astype(np.float16)
    assert np.array_equal(
        data.unpack_predictions(data.pack_predictions((), scores), 50), scores[:, 0]
    )


NUMERICS = Numerics("float32", 1)
SMALL = {
    "family": "bert",
    "layers": 1,
    "hidden": 24,
    "heads": 12,
    "ffn": 48,
    "init": 0.04,
}
READING = {
    "corpus": {"sentences": 20, "seed": 0},
    "objective": {"share": 0.3, "hidden": 0.6, "replaced": 0.3},
    "model": SMALL,
    "train": Train(epochs=1, batch=8, lr=1e-3, max_length=24),
    "numerics": NUMERICS,
}
START = Spec("pretrain", READING, seed=0)


def tuned(task, max_unseen_rows=0):
    """The Spec of a training on 48 rows of CoLA, or of scores."""
    train = Train(epochs=2, batch=8, lr=1e-3, max_length=24, select="best")
    args = {"targets": Targets("hard"), "numerics": NUMERICS, "train": train}
    args["data"] = (
        scored(48, 0, max_unseen_rows)
        if task == "scores"
        else data.make_data_descriptor("toy", task, 48, max_unseen_rows=max_unseen_rows)
    )
    return Spec("finetune", args, {"start": START})


def test_what_is_kept_of_three_classes_is_the_class():
    kept = data.pack_predictions(("a", "b", "c"), np.eye(3)[[2, 0, 1, 2]])
    assert kept["classes"].dtype == np.uint8
    assert data.unpack_predictions(kept, 4).tolist() == [2, 0, 1, 2]


def untimed(run):
    """The metrics of a run without timings, and without those of its unseen rows."""
    left_out = ("second", "unseen.")
    return {
        k: v for k, v in run.metrics.items() if not any(word in k for word in left_out)
    }


@pytest.mark.parametrize("task", ["CoLA", "scores"])
def test_a_run_predicts_its_unseen_rows_at_the_end(make, task):
    """The rest of the run is what it is without them, and pairs are judged on both."""
    run, plain = make(tuned(task, max_unseen_rows=21)), make(tuned(task))
    told = run.spec["args"]["data"]["unseen"]
    kept = data.read_unseen_row_scoring_arrays(run.spec["args"]["data"])
    rows, count = kept["judged"], len(run.read_arrays("predictions")["labels"])
    found = compare.read_labels_and_predictions(
        run, compare.MetricColumn("x", "x", "accuracy")
    )
    logits = run.read_arrays("predictions")["logits"]
    assert np.array_equal(logits, plain.read_arrays("predictions")["logits"])
    assert untimed(run) == untimed(plain)
    lengths = {len(found[name]) for name in ("labels", "said", "cluster")}
    assert lengths == {count + len(rows)} and 0 < len(rows) <= told["rows"]
    said = data.unpack_predictions(run.read_arrays("predictions_unseen"), told["rows"])
    assert np.array_equal(found["said"][count:], said[rows])
    names = data.find_task_of_descriptor(run.spec["args"]["data"]).metrics
    for name in names:
        column = compare.MetricColumn("x", "x", name)
        assert (
            metrics.compute_metric(name, found["said"][:count], found["labels"][:count])
            == (run.metrics[name])
        )
        assert (
            metrics.compute_metric(name, said, kept["labels"])
            == run.metrics[f"unseen.{name}"]
        )
        joint = metrics.compute_metric(name, found["said"], found["labels"])
        assert compare.compute_score_including_unseen_rows(
            run, column
        ) == pytest.approx(joint, abs=1e-12)
        assert compare.read_recorded_score(run, column) == run.metrics[name]
        assert (
            compare.compute_score_including_unseen_rows(plain, column)
            == run.metrics[name]
        )
    assert (run.folder / "predictions_unseen.safetensors").stat().st_size < 200

    frame = pd.DataFrame(
        [{"task": task, "seed": 1, "model": name, "run": run} for name in "ab"]
    )
    of = {task: (compare.MetricColumn(task, task, names[0]),)}
    a, b = (frame[frame["model"] == name].to_dict("records") for name in "ab")
    [pair] = compare.pair_runs_by_task_and_seed(
        a, b, of, includes_collapsed_method=True, includes_collapsed_baseline=True
    )  # It learned hardly anything.
    assert len(pair.labels) == count + len(rows)
    words = (
        "development rows and, at mini, unseen rows of 9 words and more (this run, toy)"
    )
    assert Runs(frame, frame[:0], "toy").scored_rows_description == f"on {words}"
    frame["run"] = [run, plain]
    with pytest.raises(ValueError, match=f"were evaluated on different rows of {task}"):
        a, b = (frame[frame["model"] == name].to_dict("records") for name in "ab")
        compare.pair_runs_by_task_and_seed(
            a, b, of, includes_collapsed_method=True, includes_collapsed_baseline=True
        )


@cache
def recorded():
    """Rows of two claims at one seed."""
    return [
        row
        for id in ("G1", "N1")
        for row in source.list_grid_rows_of_claim(
            lists.read_claims()[id], seeds_instead_of_planned=(10,)
        )
    ]


@pytest.mark.papers("ghostbert")
@pytest.mark.parametrize(
    "method, baseline", [("Ghost", "Prune"), ("10 % NAS", "10 % Random")]
)
@pytest.mark.parametrize("task", frontier.TASKS["mini"])
def test_a_table_and_a_verdict_say_the_same(task, method, baseline):
    """What a reader takes off two cells is the estimate, and each cell is of the judged
    rows."""
    of = grids.select_metrics_by_task("mini", nas.COLUMNS)
    frame = collect_results([row for row in recorded() if row["task"] == task])
    frame = compare.select_rows_with_runs(
        frame[frame["model"].isin([method, baseline])]
    ).dropna(axis=1, how="all")
    for _, part in frame.groupby("m") if "m" in frame else [(0, frame)]:
        points = compare.tabulate_scores_by_run_and_metric(part, of).set_index("model")
        e = paired.estimate_paired_difference(
            compare.pair_runs_of_models(part, method, baseline, of)
        )
        gap = points["score"][method] - points["score"][baseline]
        assert gap == pytest.approx(e.mean, abs=1e-9)
        alone = points["development"][method] - points["development"][baseline]
        assert alone != pytest.approx(gap, abs=1e-6)
    table = compare.make_score_table_by_task(frame, of, "here")
    titles = [
        ("here", of[task][0].title),
        ("here", f"{of[task][0].title}, {compare.ALONE}"),
    ]
    assert len(table) > 1 and all(list(row) == titles for row in table.values())


def pairs_of(right_a, right_b, cluster=None):
    found = []
    for seed, (a, b) in enumerate(zip(right_a, right_b, strict=True)):
        said = np.zeros(len(a), int), 1 - a.astype(int), 1 - b.astype(int)
        found.append(paired.Pair("x", seed, *said, "accuracy", cluster))
    return found


def test_rows_that_stand_twice_count_once():
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 3, 400)) < 0.6
    cluster = np.repeat(np.arange(400), 4)
    once = paired.estimate_paired_difference(pairs_of(a, b))
    often = a.repeat(4, 1), b.repeat(4, 1)
    rows, drawn = (
        paired.estimate_paired_difference(pairs_of(*often, each))
        for each in (None, cluster)
    )
    assert drawn.mean == once.mean == rows.mean
    assert (drawn.low, drawn.high) == pytest.approx((once.low, once.high), abs=0.5)
    assert rows.high - rows.low < 0.8 * (drawn.high - drawn.low)
    mixed = [*pairs_of(a[:1], b[:1]), *pairs_of(a[:2], b[:2], np.arange(400) // 2)[1:]]
    with pytest.raises(ValueError, match="must share examples, clusters"):
        paired.estimate_paired_difference(mixed)


def test_the_interval_covers_where_rows_of_a_cluster_are_alike():
    """600 rows in 100 clusters of 1 to 11 rows that are right or wrong together, five
    seeds, no true difference."""
    hits = {"clusters": 0, "rows": 0}
    for trial in range(60):
        rng = np.random.default_rng(trial)
        cluster = np.repeat(np.arange(100), rng.integers(1, 12, 100))
        right, drawn = rng.random((2, 100)) < 0.7, []
        for model in (0, 1):
            noise, other = rng.random((2, 5, len(cluster)))
            drawn.append(np.where(noise < 0.1, other < 0.7, right[model, cluster]))
        for name, each in (("clusters", cluster), ("rows", None)):
            e = paired.estimate_paired_difference(pairs_of(*drawn, each))
            hits[name] += e.low <= 0 <= e.high
    assert 0.88 <= hits["clusters"] / 60 <= 1 and hits["rows"] / 60 < 0.8


def test_pooled_runs_without_specs_of_their_own_rows():
    """A made-up run with development rows alone makes a pair of these."""
    labels = np.arange(6) % 2
    arrays = {"labels": labels, "index": np.arange(6), "logits": np.eye(2)[labels]}
    found = compare.read_labels_and_predictions(
        holding(arrays), compare.MetricColumn("x", "x", "accuracy")
    )
    assert found["said"].tolist() == [0, 1] * 3 and found["cluster"].tolist() == list(
        range(6)
    )


def test_rows_in_order_are_the_two_ends_of_the_file():
    """EfficientBERT's parts: the first tenth of the training rows to learn from, the
    last hundredth to score on."""
    whole = data.read_splits("toy", "RTE")["train"]
    there = data.load(
        data.make_data_descriptor("toy", "RTE", 40, 10, in_file_order=True)
    )
    assert there["train"].index.tolist() == whole.index[:40].tolist()
    assert there["held_out"].index.tolist() == whole.index[-10:].tolist()
    rest = data.load(
        data.make_data_descriptor("toy", "RTE", held_out=10, in_file_order=True)
    )
    assert rest["train"].index.tolist() == whole.index[:-10].tolist()
    assert rest["held_out"].a == whole.a[-10:]
    assert "in_order" not in data.make_data_descriptor("toy", "RTE", 40, 10)
