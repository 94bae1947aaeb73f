"""Running the suite again and again: what it counts, prints and leaves behind."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests import soak
from tests.soak import Outcome
from tests.waiting import until

SUITE = """
import pathlib, pytest
def test_fine(): pass
@pytest.mark.skip
def test_elsewhere(): pass
def test_once():
    seen = pathlib.Path({seen!r})
    seen.write_text(seen.read_text() + "x" if seen.exists() else "x")
    assert seen.read_text() != "xx"
"""


def test_every_second_run_has_company_and_a_failure_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(SUITE.format(seen=str(tmp_path / "seen")))
    options = ["-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(tmp_path), str(test)]
    assert soak.main(["3", "--", *options]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("run 1 (0 busy): 2 passed, 0 failed, 1 skipped in ")
    assert lines[1].startswith("run 2 (2 busy): 1 passed, 1 failed, 1 skipped in ")
    assert lines[2].endswith("::test_once")
    log = Path(lines[3].partition(": ")[2])
    assert "test_once" in log.read_text()
    log.unlink()
    log.parent.joinpath("report.xml").unlink()
    log.parent.rmdir()
    assert lines[4].startswith("run 3 (0 busy): 2 passed") and lines[5:] == ["2 of 3 runs green"]


def test_busy_processes_are_ended_by_whoever_started_them() -> None:
    with soak.busy(2):
        ours = [child for child in psutil.Process().children() if soak._SPIN in child.cmdline()]
        assert until(lambda: all(sum(child.cpu_times()[:2]) > 0 for child in ours) and len(ours)) == 2
    assert not any(child.is_running() for child in ours)


def test_a_run_that_breaks_off_is_not_green(tmp_path: Path) -> None:
    assert not soak.outcome(tmp_path / "none.xml", 2, 1.0).is_green
    assert not Outcome(0, 3, (), 1.0).is_green and Outcome(1, 3, (), 1.0).is_green
    report = tmp_path / "report.xml"
    report.write_text('<testsuites><testsuite><testcase classname="a" name="b"/></testsuite></testsuites>')
    assert soak.outcome(report, 0, 1.0).is_green
    assert soak.outcome(report, 3, 1.0).problem == "pytest ended with 3"
