"""Token ids on disk: what is read back is what was written, in little memory."""

import sys
import tracemalloc

import numpy as np
import pytest

from lib.data import tokens


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("RUNS_ROOT", str(tmp_path))
    return tmp_path


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    for n in rng.integers(0, 9, count):
        ids = rng.integers(0, 300, n).tolist()
        yield {"a": ids, "b": [0] * len(ids)}


def test_rows_come_back_as_they_were():
    found, wanted = tokens.kept("one", lambda: rows(2500), ("a", "b"), 300), list(rows(2500))
    assert [row.tolist() for row in found["a"]] == [row["a"] for row in wanted]
    assert found["a"].lengths().tolist() == [len(row["a"]) for row in wanted]
    assert found["a"].ids.dtype == np.uint16
    assert found["a"].used().tolist() == sorted({i for row in wanted for i in row["a"]})
    both = tokens.Joined([found["a"], found["b"]])
    assert [row.tolist() for row in both] == [row[name] for name in "ab" for row in wanted]
    assert both.lengths().tolist() == 2 * found["a"].lengths().tolist()
    assert both.used().tolist() == sorted({0, *found["a"].used()})
    with pytest.raises(IndexError, match="row 2500 of 2500"):
        found["a"][2500]


def test_what_is_there_is_not_made_again_and_a_failure_leaves_nothing(runs):
    def broken():
        yield {"a": [1]}
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        tokens.kept("one", broken, ("a",), 9)
    assert list((runs / ".tokens").iterdir()) == []
    tokens.kept("one", lambda: iter([{"a": [1, 2]}]), ("a",), 9)
    assert tokens.kept("one", broken, ("a",), 9)["a"][0].tolist() == [1, 2]


def test_datasets_gives_the_same_rows_as_none(monkeypatch):
    def read():
        found = tokens.through_arrow("key", lambda: rows(50), ("a", "b"))
        return [{name: list(ids) for name, ids in row.items()} for row in found]

    with_it = read()
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert read() == with_it == list(rows(50))


def test_memory_does_not_grow_with_the_rows():
    def peak(count):
        tracemalloc.start()
        made = ({"a": [7] * 100} for _ in range(count))
        found = tokens.kept(f"rows-{count}", lambda: made, ("a",), 60_000)["a"]
        assert sum(len(found[i]) for i in range(0, count, 97)) == 100 * len(range(0, count, 97))
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(10)
    # 20,000 rows of 100 ids are 4 MB on disk, and more than 16 MB as lists
    assert peak(20_000) < peak(1000) + 500_000


def test_a_digest_is_remembered_until_a_file_changes(tmp_path):
    path, calls = tmp_path / "text", []
    path.write_text("one")

    def compute():
        calls.append(path.read_text())
        return calls[-1]

    found = [tokens.remembered("what", [path], compute) for _ in range(3)]
    assert found == ["one"] * 3 and calls == ["one"]
    path.write_text("other")
    assert tokens.remembered("what", [path], compute) == "other" and len(calls) == 2
    for note in (tmp_path / ".tokens" / "digests").iterdir():
        note.write_text("{")
    assert tokens.remembered("what", [path], compute) == "other" and len(calls) == 3
