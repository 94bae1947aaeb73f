"""The history of runs on this machine: private, bounded, written by several monitors at once, and off on request."""

import os
import stat
import subprocess
import sys

import msgspec
import pytest

from tests.diagnosis.rules.test_slower_run import USUAL, records
from tests.session.records import header, session_of
from tuimon.monitor import history as module
from tuimon.monitor.history import VARIABLE, add_line, history_of
from tuimon.monitor.options import Options


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path / "state" / "tuimon" / "history.jsonl"


def runs(**more):
    """The runs that a run of this command hears of."""
    here = history_of(msgspec.structs.replace(header(), **more), Options())
    return [run for record in here.earlier() for run in record.runs]


def test_the_next_run_of_the_command_hears_of_this_one_and_no_other_does(path, tmp_path, monkeypatch):
    assert runs() == []
    for _ in range(7):
        history_of(header(), Options()).close(session_of(*records(USUAL)), [])
    assert [run.step_ms for run in runs()] == [100.0] * 5
    assert runs(command=["python", "train.py", "--lr", "1"]) == runs(host="there") == []
    monkeypatch.chdir(tmp_path)
    assert runs() == []


def test_it_is_private_and_holds_no_more_of_the_command_than_its_script(path):
    secret = msgspec.structs.replace(header(), command=["python", "/home/me/train.py", "--token", "hidden"])
    history_of(secret, Options()).close(session_of(*records(USUAL)), [])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    text = path.read_text()
    assert "train.py" in text and not any(word in text for word in ("hidden", "token", "/home/me"))


def test_a_run_of_few_steps_leaves_nothing(path):
    history_of(header(), Options()).close(session_of(*records(USUAL, windows=5)), [])
    assert not path.exists()


def test_it_is_off_by_the_option_the_variable_and_for_ranks_but_the_first(path, monkeypatch):
    assert history_of(header(), Options(history=False)) is None
    assert history_of(msgspec.structs.replace(header(), node=1), Options()) is None
    monkeypatch.setenv(VARIABLE, "0")
    assert history_of(header(), Options()) is None


def test_a_run_that_starts_in_a_folder_that_is_gone_has_none(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert history_of(header(), Options()) is None


def test_damaged_lines_are_left_out(path):
    history_of(header(), Options()).close(session_of(*records(USUAL)), [])
    with path.open("ab") as file:
        file.write(b'{"command": 3}\n\xff\xfe\n{"torn')
    history_of(header(), Options()).close(session_of(*records(USUAL)), [])
    assert len(runs()) == 2


def test_a_folder_that_others_may_write_to_is_not_used(path):
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o777)
    assert history_of(header(), Options()) is None


def test_the_file_stays_bounded_and_keeps_the_latest(path, monkeypatch):
    monkeypatch.setattr(module, "_MOST_LINES", 10)
    monkeypatch.setattr(module, "_KEPT_LINES", 4)
    path.parent.mkdir(parents=True)
    for number in range(25):
        add_line(str(path), b"%d" % number)
    lines = path.read_text().split()
    assert len(lines) <= 10 and lines[-1] == "24" and lines == [str(n) for n in range(25 - len(lines), 25)]
    assert os.listdir(path.parent) == ["history.jsonl"]


def test_lines_of_several_monitors_are_whole(path):
    path.parent.mkdir(parents=True)
    code = (
        "import sys\nfrom tuimon.monitor import history\nhistory._MOST_LINES, history._KEPT_LINES = 40, 30\n"
        "for n in range(30):\n    history.add_line(sys.argv[1], (sys.argv[2] * 200 + str(n)).encode())\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    lines = path.read_text().splitlines()
    assert len(lines) <= 42 and {line[:200] for line in lines} <= {name * 200 for name in "abc"}
    for name in "abc":
        own = [int(line[200:]) for line in lines if line[0] == name]
        assert own == sorted(set(own))
