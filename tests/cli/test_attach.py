"""``tuimon attach --headless``: it comes and goes, the target stays, with hooks brought in and without."""

import shutil
import signal
import sys

import pytest

from tests.cli.command import LEAN, running, tuimon
from tests.launch.injection.trainings import training
from tests.waiting import child_process, until
from tuimon.records import Exit, Header, Steps
from tuimon.sources.log.source import read_records


@pytest.fixture
def target(tmp_path):
    """A Python that sleeps, and says so."""
    code = "import time; open('ready', 'w').close(); time.sleep(600)"
    with child_process(sys.executable, "-c", code, cwd=tmp_path) as process:
        until((tmp_path / "ready").exists)
        yield process


def header(path):
    found = next(read_records(str(path)))
    assert isinstance(found, Header)
    return found


def test_it_leaves_after_the_duration(target, tmp_path):
    done = tuimon("attach", *LEAN, "--duration", "1", "--log", "a.jsonl", str(target.pid), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert target.poll() is None
    found = header(tmp_path / "a.jsonl")
    assert (found.mode, found.pid) == ("attach", target.pid)
    assert found.command[0] == sys.executable
    assert not any(isinstance(record, Exit) for record in read_records(str(tmp_path / "a.jsonl")))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_makes_it_leave(number, target, tmp_path):
    with running("attach", *LEAN, "--log", "a.jsonl", str(target.pid), cwd=tmp_path) as process:
        until(lambda: (tmp_path / "a.jsonl").exists() and (tmp_path / "a.jsonl").stat().st_size)
        process.send_signal(signal.SIGHUP)  # does not
        process.send_signal(number)
        _, errors = process.communicate()
        assert process.returncode == 0
    assert "Traceback" not in errors
    assert "log: a.jsonl" in errors
    assert target.poll() is None


def test_the_targets_end_is_the_end(target, tmp_path):
    with running("attach", *LEAN, "--log", "a.jsonl", str(target.pid), cwd=tmp_path) as process:
        until(lambda: (tmp_path / "a.jsonl").exists() and (tmp_path / "a.jsonl").stat().st_size)
        target.kill()
        _, errors = process.communicate()
        assert process.returncode == 0
    assert "the process has ended" in errors
    end = next(record for record in read_records(str(tmp_path / "a.jsonl")) if isinstance(record, Exit))
    assert end.exit_code is None


needs_gdb = pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb")
SHORT = ("attach", "--inject", "--headless", "--no-stacks", "--no-gpu", "--duration", "3", "--log", "a.jsonl")


@needs_gdb
@pytest.mark.parametrize("keep", [False, True])
def test_steps_are_measured_and_the_hooks_go_or_stay(keep, tmp_path, monkeypatch):
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "rings"))
    with training(tmp_path, sys.executable, also="time.sleep(0.01)") as process:
        done = tuimon(*SHORT, *(["--keep-hooks"] if keep else []), str(process.pid), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert f"tuimon: hooks brought into process {process.pid} " in done.stderr
        assert ("the hooks stay" if keep else "the hooks are withdrawn") in done.stderr
        assert bool(list((tmp_path / "rings").glob("*.ring"))) == keep
        records = read_records(str(tmp_path / "a.jsonl"))
        assert sum(record.count for record in records if isinstance(record, Steps)) > 10
