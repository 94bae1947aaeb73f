"""``tuimon attach --inject``: steps of a training that was started without tuimon, and none of it afterwards."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.command import tuimon
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
