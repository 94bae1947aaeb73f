"""A Python that py-spy cannot read is sampled by our own reader: here one with a GIL stands for one without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pythons import at_hand
from tests.sources.programs import running
from tests.sources.stacks.sampling import SourceReader, reading, trainer
from tuimon.records import Stacks
from tuimon.sources.stacks.closeup import CloseUp
from tuimon.sources.stacks.pyspy import dump, errors

BUSY = """
import threading

def crunch():
    while True:
        sum(i * i for i in range(1000))

threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
crunch()
"""


@pytest.fixture
def pyspy_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What py-spy does with a Python without a GIL."""
    path = tmp_path / "py-spy"
    path.write_text("#!/bin/sh\necho 'Error: Failed to find a python interpreter in the .data section' >&2\nexit 1\n")
    path.chmod(0o755)
    for module in (errors, dump):
        monkeypatch.setattr(module, "is_free_threaded", lambda pid: True)
    return str(path)


@pytest.fixture
def reader(tmp_path: Path, pyspy_that_fails: str) -> Iterator[SourceReader]:
    with (
        running(tmp_path, BUSY, python=at_hand.python("3.13")) as process,
        reading(trainer(process.pid), max_cpu_ratio=1.0, binary=lambda: pyspy_that_fails) as found,
    ):
        yield found


def test_windows_come_in_as_from_pyspy(reader: SourceReader) -> None:
    reader.until(lambda it: "crunch" in it.functions() and len(it.stacks) > 1, "windows")
    assert any(frame.source.startswith("sum(i * i") for frame in reader.frames)
    assert reader.notices == [] and reader.lost == [] and reader.gil == []
    assert all(not window.in_process and window.cost_cpu_s for window in reader.stacks)


def test_a_python_of_a_version_that_is_not_known(reader: SourceReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuimon.sources.stacks.pyspy.memory_reader.command", lambda: ("/bin/false",))
    reader.until(lambda it: it.notices, "a notice")
    (notice,) = reader.notices
    assert notice.message.startswith("no stack samples: free-threaded Python (python")
    assert notice.hint == "Its stacks are known for CPython 3.13 and 3.14; markers, threads and GPUs are still shown"
    assert [record for record in reader.records if isinstance(record, Stacks) and record.lost]


def test_a_dump(tmp_path: Path, pyspy_that_fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuimon.sources.stacks.pyspy.recorder.find", lambda: pyspy_that_fails)
    with running(tmp_path, BUSY, python=at_hand.python("3.13")) as process:
        dump = CloseUp().dump(process.pid)
    assert dump.trouble is None
    main = next(thread for thread in dump.threads if thread.tid == process.pid)
    assert [frame.function for frame in main.frames][-2:] == ["crunch", "<module>"]
