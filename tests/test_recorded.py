"""``tuimon.read_log``: what Python programs read of a log."""

import gzip
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tuimon
from tests.test_import_hygiene import loaded_by
from tuimon.errors import NotALog
from tuimon.records import Exit, Header, Steps

ROOT = Path(__file__).resolve().parents[1]
GUIDE = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(gzip.decompress((ROOT / "tests/data/logs/graph_collate.jsonl.gz").read_bytes()))
    return str(path)


def test_a_log_is_its_records_as_often_as_they_are_read(log):
    opened = tuimon.read_log(log)
    first, *rest = opened
    assert isinstance(first, Header) and isinstance(rest[-1], Exit)
    assert sum(record.count for record in opened if isinstance(record, Steps)) == 681


def test_what_follows_from_the_records(log):
    opened = tuimon.read_log(log)
    assert opened.path == log
    assert (opened.findings[0].rule, opened.findings[0].cause) == ("input_bound", "slow_collate")
    assert opened.session is opened.session
    report = opened.report()
    assert report["steps"]["count"] == 681
    assert report["findings"][0]["headline"] == opened.findings[0].headline


def test_what_is_no_log_is_an_error(tmp_path):
    (tmp_path / "notes.txt").write_text("hello\n")
    for name in ("notes.txt", "nothing.jsonl"):
        with pytest.raises(NotALog, match=name):
            tuimon.read_log(str(tmp_path / name))
    with pytest.raises(AttributeError):
        tuimon.no_such_name  # noqa: B018


def test_a_training_that_imports_tuimon_does_not_load_it():
    assert not loaded_by("from tuimon import *\nimport tuimon") & {"msgspec", "textual"}
    assert not loaded_by("from tuimon import read_log") & {"textual", "rich", "torch"}


def test_the_methods_of_a_view_that_the_guide_names_are_kept(log):
    session = tuimon.read_log(log).session
    run, pid = session.over("whole"), session.trainer()
    own = run.of(pid)
    assert run.phases(pid) == own.phases and run.samples(pid).total == own.samples.total > 0
    assert run.samples(pid, pid).total == own.samples.total
    assert run.loaders(pid) == own.loaders and run.threads()


def test_the_guide_runs(log, tmp_path):
    blocks = [block for block in GUIDE if "pd." not in block]
    assert len(blocks) >= 4 and len(blocks) < len(GUIDE)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(blocks)],
        cwd=Path(log).parent,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "input_bound critical 84 % of each step waits for data" in done.stdout
    assert "ms a step" in done.stdout


def test_the_guide_runs_with_pandas(log, monkeypatch):
    monkeypatch.chdir(Path(log).parent)
    blocks = [block.replace("windows.plot", "# windows.plot") for block in GUIDE]
    names = {}
    exec("\n".join(blocks), names)
    assert len(names["windows"]) > 5
    assert len(names["beside"]) == len(names["windows"])
