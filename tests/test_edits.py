"""A kernel lives on while its reader edits rows and models; it sees each edit."""

import time

import pytest
from conftest import put, stand_in

import lib
from lib import data
from lib.core import disk
from lib.data import toy


def table(prefix, flip, count=100):
    """Rows of two classes, whose labels change places with `flip`."""
    rows = (f"{prefix}{i} v{i % 7}\t{'ab'[(i + flip) % 2]}\n" for i in range(count))
    return "text\tlabel\n" + "".join(rows)


@pytest.fixture(params=[False, True])
def clock(request, monkeypatch):
    """Whether the clock of the file system stands still between two edits."""
    if request.param:
        now, stamp = time.time_ns(), disk.read_file_metadata

        def coarse(path):
            return stamp(path)._replace(modified_ns=now, changed_ns=now, inode=7)

        monkeypatch.setattr(disk, "read_file_metadata", coarse)


def test_rows_are_read_again_after_each_edit(tmp_path, clock, monkeypatch):
    monkeypatch.setenv("RUNS_ROOT", str(tmp_path / "runs"))
    path = put(tmp_path, "rows.tsv", table("w", 0))
    seen = []
    for content in (table("w", 0), table("w", 1), table("x", 1), table("w", 0)):
        path.write_text(content)
        task, splits = lib.rows(str(path))
        rows = splits["train"].select_rows(range(6))
        seen.append(
            (
                rows.a,
                rows.y.tolist(),
                data.make_data_descriptor("own", task.name)["digest"],
            )
        )
    assert seen[0] == seen[3]
    assert seen[1][0] == seen[0][0] and seen[1][1] != seen[0][1]
    assert seen[2][0] != seen[1][0] and seen[2][1] == seen[1][1]
    assert len({digest for *_, digest in seen}) == 3


def test_a_model_that_is_trained_again_is_another_one(tmp_path, clock):
    stand_in(
        tmp_path,
        toy.generate_passages(60, 0),
        "bert",
        heads=4,
        layers=1,
        ffn=32,
        hidden=16,
    )
    weights = tmp_path / "model.safetensors"
    before, sound = data.digest_local_checkpoint(str(tmp_path)), weights.read_bytes()
    weights.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    assert data.digest_local_checkpoint(str(tmp_path)) != before
    weights.write_bytes(sound)
    assert data.digest_local_checkpoint(str(tmp_path)) == before
