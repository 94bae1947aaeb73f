"""Logs that cannot be read, and names that are no UTF-8: each command names them and ends without a traceback."""

import json
import os
from pathlib import Path

import pytest

from tests.cli.test_diff import log, write
from tests.sources.log.failing_disk import UNREADABLE, fail_in
from tests.views.export.test_export import LOG
from tuimon import read_log
from tuimon.errors import UnreadableLog

COMMANDS = (
    ("report",),
    ("report", "--format", "html"),
    ("diff", "{same}", "--anyway"),
    ("export", "--to", "perfetto"),
    ("export", "--to", "collapsed"),
    ("trace",),
)


def given(words, path):
    """The command line with the log in its place."""
    name, *options = words
    return name, path, *(path if option == "{same}" else option for option in options)


@pytest.mark.parametrize("words", [*COMMANDS, ("view", "--headless")])
def test_a_log_that_cannot_be_read(words, call):
    first, second = call(*given(words, UNREADABLE), code=1).err.splitlines()
    assert first == "tuimon: the log /proc/self/mem cannot be read: Input/output error"
    assert second.startswith("  Its disk")


@pytest.mark.parametrize("words", COMMANDS)
def test_a_log_that_can_be_read_no_further(words, tmp_path, monkeypatch, call):
    path = log(tmp_path / "a.jsonl", 1)
    fail_in(monkeypatch, Path(path), 10_000)
    said = call(*given(words, path), code=1).err
    assert f"tuimon: the log {path} cannot be read: Input/output error" in said
    with pytest.raises(UnreadableLog):
        read_log(path).report()


def test_no_half_of_an_export_is_left(tmp_path, monkeypatch, call):
    path = log(tmp_path / "a.jsonl", 1)
    fail_in(monkeypatch, Path(path), 10_000)
    said = call("export", path, "--to", "perfetto", "-o", str(tmp_path / "out.json"), code=1).err
    assert f"the log {path} cannot be read" in said
    assert os.listdir(tmp_path) == ["a.jsonl"]


@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] != "trace"])
def test_in_a_folder_it_is_named_and_the_others_are_read(words, tmp_path, call):
    if words[0] == "diff":
        log(tmp_path / "a.jsonl", 1)
    else:
        write(tmp_path / "a.jsonl", LOG)
    bad = tmp_path / "bad.jsonl"
    bad.symlink_to(UNREADABLE)
    out, err = call(*given(words, str(tmp_path)))
    said = f"the log {bad} cannot be read: Input/output error"
    assert "".join(said.split()) in "".join((out + err).split())  # a long path is cut between two lines


def test_of_several_runs_one_that_can_be_read_no_further_is_left_out(tmp_path, monkeypatch, call):
    for seed in range(4):
        log(tmp_path / "before" / f"{seed}.jsonl", seed)
        log(tmp_path / "after" / f"{seed}.jsonl", 10 + seed, 25.0)
    bad = tmp_path / "before" / "2.jsonl"
    fail_in(monkeypatch, bad, 10_000)
    found = json.loads(call("diff", str(bad.parent), str(tmp_path / "after"), "--format", "json").out)
    assert [len(found[side]["runs"]) for side in ("before", "after")] == [3, 4]
    assert f"left out: the log {bad} cannot be read: Input/output error" in found["notes"]
    assert found["outcome"] == "faster" and not any("a single run cannot show" in note for note in found["notes"])


@pytest.mark.parametrize(
    "words", [words for words in COMMANDS if words[0] != "trace"] + [("diff", "{same}", "--anyway", "--format", "json")]
)
def test_a_name_that_is_no_utf8(words, tmp_path, call):
    name = os.fsdecode(b"caf\xe9.jsonl")
    path = log(tmp_path / name, 1) if words[0] == "diff" else write(tmp_path / name, LOG)
    out, err = call(*given(words, path))
    assert err == "" and out.encode()
    if "json" in words:
        assert "caf\ufffd.jsonl" in out
        json.loads(out)
