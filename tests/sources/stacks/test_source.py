"""StackSource: real py-spy on real Python processes."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.sources.programs import running
from tests.sources.stacks.sampling import SourceReader, pyspies
from tests.waiting import until
from tuimon.installation import install_command
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks.pyspy import recorder
from tuimon.sources.stacks.source import StackSource

if recorder.find() is None:
    pytest.skip("py-spy is not installed", allow_module_level=True)

BUSY = """
import threading, time
def sixty(until=0.0):
    until = time.thread_time() + 0.006
    while time.thread_time() < until:
        sum(range(50))
def forty():
    until = time.thread_time() + 0.004
    while time.thread_time() < until:
        sum(range(50))
def waits_for_ever():
    threading.Event().wait()
threading.Thread(target=waits_for_ever, name="a [bold] name", daemon=True).start()
print("up", flush=True)
while True:
    sixty()
    forty()
"""
SLEEP = "import time; print('up', flush=True); time.sleep(1000)"


@pytest.fixture
def start() -> Iterator[Callable[..., SourceReader]]:
    """Makes sources of which none outlives the test."""
    made: list[StackSource] = []

    def make(table: ProcessTable, **options: object) -> SourceReader:
        made.append(StackSource(table, **options))  # type: ignore[arg-type]  # passed through
        return SourceReader(made[-1])

    yield make
    for source in made:
        source.close()
    assert pyspies() == []


def test_a_known_split_of_time(tmp_path: Path, start: Callable[..., SourceReader]) -> None:
    with running(tmp_path, BUSY) as process:
        table = ProcessTable(process.pid, None)
        reader = start(table, max_cpu_ratio=1.0)
        reader.until(lambda it: sum(s.samples for s in it.stacks) >= 250, "250 samples")
        counts: Counter[str] = Counter()
        for record in reader.stacks:
            assert record.pid == process.pid
            assert record.folded == 0
            for stack in record.stacks:
                frames = [reader.frames[number] for number in stack.frames]
                if stack.tid == process.pid:
                    assert stack.thread == "MainThread"
                    assert frames[0].function == "<module>"
                    counts[frames[-1].function] += stack.count
        share = counts["sixty"] / (counts["sixty"] + counts["forty"])
        assert 0.45 < share < 0.75, counts
        assert counts["sixty"] + counts["forty"] > 0.9 * counts.total()
        (loop, *_) = {f.source for f in reader.frames if f.function == "<module>"} & {"sixty()", "forty()"}
        assert loop
        assert all(frame.user for frame in reader.frames if frame.file == str(tmp_path / "program.py"))
        assert table.sampler_cpu_s > 0


def test_a_window_that_waits_for_its_turn_when_the_source_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its py-spy is reaped and its files are closed: their numbers may be somebody else's by now."""
    table = ProcessTable(os.getpid(), None)
    source = StackSource(table, binary=lambda: None)
    binary = recorder.find()
    assert binary is not None
    with running(tmp_path, SLEEP) as process:
        first, second = (recorder.Recording.start(binary, process.pid, 10, 60.0) for _ in range(2))
        os.kill(second.child, signal.SIGKILL)
        later = SimpleNamespace(recording=second, ended=None)
        monkeypatch.setattr(source, "ending", {process.pid: SimpleNamespace(recording=first, ended=None)})
        monkeypatch.setattr(source, "running", {process.pid: later})

        def has_ended() -> bool:
            assert source.ended_windows(time.monotonic()) == []
            return later.ended is not None

        until(has_ended, "the end of the second window")
        source.close()
        assert pyspies() == []


def test_by_agent(tmp_path: Path, start: Callable[..., SourceReader]) -> None:
    binary: list[str | None] = [None]
    now_s = [1000.0]
    with running(tmp_path, SLEEP) as process:
        reader = start(ProcessTable(process.pid, None), clock=lambda: now_s[0], binary=lambda: binary[0])
        reader.until(lambda _: True, "a read")
        (notice,) = reader.notices
        assert (notice.source, notice.level) == ("stacks", "warning")
        assert "py-spy was not found" in notice.message
        assert notice.hint and install_command("py-spy") in notice.hint
        binary[0] = recorder.find()
        reader.until(lambda _: True, "a read")
        assert len(reader.notices) == 1  # said once, and not tried at every read
        now_s[0] += 31
        reader.until(lambda _: True, "a read")
        assert [notice.level for notice in reader.notices] == ["warning", "ok"]
        assert pyspies()


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("echo 'Error: Permission Denied: Try running again with sudo' >&2; exit 1", "ptrace"),
        ("echo 'Error: Unsupported version of Python: 3.99.0' >&2; exit 1", "Python 3.99.0"),
        ("exit 1", "py-spy gave no reason"),
        ("echo '{' >/proc/self/fd/3", "wrote not a speedscope file"),
    ],
)
def test_a_pyspy_that_fails(tmp_path: Path, start: Callable[..., SourceReader], script: str, word: str) -> None:
    failing = tmp_path / "py-spy"
    failing.write_text(f"#!/bin/sh\necho >> {tmp_path}/starts\n{script}\n")
    failing.chmod(0o755)
    now_s = [0.0]

    def later(it: SourceReader) -> bool:
        now_s[0] += 0.5
        return bool(it.notices)

    with running(tmp_path, SLEEP) as process:
        reader = start(ProcessTable(process.pid, None), clock=lambda: now_s[0], binary=lambda: str(failing))
        reader.until(later, "a notice")
        (notice,) = reader.notices
        assert word in notice.message
        assert notice.hint
        for _ in range(20):
            reader.until(lambda it: later(it) or True, "a read")
        assert len(reader.notices) == 1
        assert len((tmp_path / "starts").read_text().splitlines()) < 10  # with growing pauses
        assert reader.lost
        assert reader.stacks == []


def test_a_pyspy_that_cannot_be_started(tmp_path: Path, start: Callable[..., SourceReader]) -> None:
    broken = tmp_path / "py-spy"
    broken.write_text("no program")
    broken.chmod(stat.S_IRUSR)
    with running(tmp_path, SLEEP) as process:
        reader = start(ProcessTable(process.pid, None), binary=lambda: str(broken))
        reader.until(lambda it: it.notices, "a notice")
        assert "does not start" in reader.notices[0].message
