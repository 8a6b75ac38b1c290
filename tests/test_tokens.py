"""Token ids on disk: what is read back is what was written, in little memory."""

import tracemalloc

import numpy as np
import pytest

from lib.core import disk
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


def test_rows_come_back_as_they_were(runs):
    found = tokens.load_or_compute_token_rows("one", lambda: rows(2500), ("a", "b"))
    wanted = list(rows(2500))
    assert [row.tolist() for row in found["a"]] == [row["a"] for row in wanted]
    assert found["a"].compute_row_lengths().tolist() == [
        len(row["a"]) for row in wanted
    ]
    assert found["a"].list_distinct_token_ids().tolist() == sorted(
        {i for row in wanted for i in row["a"]}
    )
    with pytest.raises(IndexError):
        found["a"][2500]
    assert (runs / ".tokens" / "ids").exists()


def test_what_is_there_is_not_made_again_and_a_failure_leaves_nothing(runs):
    def broken():
        yield {"a": [1]}
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        tokens.load_or_compute_token_rows("one", broken, ("a",))
    assert list((runs / ".tokens" / "ids").iterdir()) == []
    tokens.load_or_compute_token_rows("one", lambda: iter([{"a": [1, 2]}]), ("a",))
    assert tokens.load_or_compute_token_rows("one", broken, ("a",))["a"][
        0
    ].tolist() == [1, 2]


def flipped(path, other):
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 4
    path.write_bytes(body)


DAMAGE = {
    "a flipped bit": flipped,
    "cut": lambda path, other: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path, other: path.write_bytes(b""),
    "deleted": lambda path, other: path.unlink(),
    "swapped": lambda path, other: path.write_bytes(other.read_bytes()),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("name", ["one.ids", "ends.npy", "manifest.json"])
def test_a_damaged_folder_is_made_again(runs, kind, name):
    """Also a file whose size and time stay."""
    wanted = [row["a"] for row in rows(300)]
    for key, seed in (("one", 0), ("two", 1)):
        tokens.load_or_compute_token_rows(
            key, lambda seed=seed: rows(300, seed), ("a", "b")
        )
    names = (name.replace("one", key) for key in ("one", "two"))
    folders = (runs / ".tokens" / "ids" / key for key in ("one", "two"))
    there, other = (folder / each for folder, each in zip(folders, names, strict=True))
    DAMAGE[kind](there, other)
    calls = []
    found = tokens.load_or_compute_token_rows(
        "one", lambda: calls.append(0) or rows(300), ("a", "b")
    )
    assert [row.tolist() for row in found["a"]] == wanted and calls == [0]
    assert not disk.describe_folder_damage(there.parent)


def test_a_folder_under_the_name_of_another_is_made_again(runs):
    wanted = [row["a"] for row in rows(300)]
    tokens.load_or_compute_token_rows("two", lambda: rows(300, 1), ("a", "b"))
    place = runs / ".tokens" / "ids"
    (place / "two").rename(place / "one")
    found = tokens.load_or_compute_token_rows("one", lambda: rows(300), ("a", "b"))
    assert [row.tolist() for row in found["a"]] == wanted


def test_memory_does_not_grow_with_the_rows():
    def peak(count):
        tracemalloc.start()
        made = ({"a": [7] * 100} for _ in range(count))
        found = tokens.load_or_compute_token_rows(
            f"rows-{count}", lambda: made, ("a",)
        )["a"]
        assert sum(len(found[i]) for i in range(0, count, 97)) == 100 * len(
            range(0, count, 97)
        )
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

    found = [disk.read_disk_cache_or_compute("what", [path], compute) for _ in range(3)]
    assert found == ["one"] * 3 and calls == ["one"]
    path.write_text("other")
    assert (
        disk.read_disk_cache_or_compute("what", [path], compute) == "other"
        and len(calls) == 2
    )
    (note,) = (tmp_path / ".tokens" / "digests").iterdir()
    for number, damaged in enumerate(
        ("{", note.read_text().replace("other", "otter")), 3
    ):
        note.write_text(damaged)
        assert (
            disk.read_disk_cache_or_compute("what", [path], compute) == "other"
            and len(calls) == number
        )
