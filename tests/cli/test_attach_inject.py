"""``tuimon attach --inject``: steps of a training that was started without tuimon, and none of it afterwards."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.command import LEAN, tuimon
from tests.launch.injection.trainings import ended, training
from tuimon.records import Steps
from tuimon.sources.log.reader import read_log

needs_gdb = pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb")
SHORT = ("attach", "--inject", "--headless", "--no-stacks", "--no-gpu", "--duration", "3", "--log", "a.jsonl")


@needs_gdb
@pytest.mark.parametrize("keep", [False, True])
def test_steps_are_measured_and_the_hooks_go_or_stay(
    keep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "rings"))
    with training(tmp_path, sys.executable, also="time.sleep(0.01)") as process:
        done = tuimon(*SHORT, *(["--keep-hooks"] if keep else []), str(process.pid), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert f"tuimon: hooks brought into process {process.pid} " in done.stderr
        assert ("the hooks stay" if keep else "the hooks are withdrawn") in done.stderr
        assert bool(list((tmp_path / "rings").glob("*.ring"))) == keep
        records = read_log(str(tmp_path / "a.jsonl"))
        assert sum(record.count for record in records if isinstance(record, Steps)) > 10
        assert ended(process) == ("over 9\n", "", 0)


def test_a_refusal_ends_tuimon_before_it_begins(tmp_path: Path) -> None:
    import subprocess

    process = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1)
    try:
        assert process.stdout
        process.stdout.readline()
        done = tuimon(*SHORT, str(process.pid), cwd=tmp_path)
        assert done.returncode == 1 and "has not imported torch yet" in done.stderr
        assert not (tmp_path / "a.jsonl").exists()
    finally:
        process.communicate(b"\n")


def test_keeping_what_was_not_brought_in_is_no_wish(tmp_path: Path) -> None:
    done = tuimon("attach", *LEAN, "--keep-hooks", "1", cwd=tmp_path)
    assert done.returncode == 2 and "--keep-hooks keeps what --inject brings in" in done.stderr
