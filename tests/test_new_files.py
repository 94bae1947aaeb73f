"""Files that tuimon writes are their owner's alone, and overwrite nothing that was not named."""

import os
import stat

import pytest

from tuimon.new_files import folder_hint, write_new

CONTENTS = {".json": "{}", ".txt": "text"}


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_new_files_take_a_name_that_is_free(tmp_path):
    (tmp_path / "secret").write_text("not to be written to")
    (tmp_path / "x-2.txt").symlink_to(tmp_path / "secret")
    (tmp_path / "x-3.json").symlink_to(tmp_path / "nothing")
    stem = str(tmp_path / "x")
    assert write_new(stem, CONTENTS) == [f"{stem}.json", f"{stem}.txt"]
    assert write_new(stem, CONTENTS) == [f"{stem}-4.json", f"{stem}-4.txt"]
    assert [mode(f"{stem}.json"), mode(f"{stem}-4.txt")] == [0o600, 0o600]
    assert (tmp_path / "secret").read_text() == "not to be written to"
    names = {"secret", "x-2.txt", "x-3.json", "x.json", "x.txt", "x-4.json", "x-4.txt"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_failure_leaves_nothing_behind(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        write_new(str(tmp_path / "x"), {".txt": "text", "/y.txt": "in no folder"})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_to_be_made_only_where_one_can_be(tmp_path):
    missing = tmp_path / "runs" / "today"
    (tmp_path / "file").write_text("")
    assert folder_hint(str(missing / "run.jsonl")) == f"Make the folder first: mkdir -p {missing}"
    assert folder_hint("runs/run.jsonl") == "Make the folder first: mkdir -p runs"
    assert folder_hint(str(tmp_path / "run.jsonl")) is None
    assert folder_hint(str(tmp_path / "file" / "run.jsonl")) is None
    assert folder_hint("/proc/x") is None and folder_hint("/proc/none/x") is None
