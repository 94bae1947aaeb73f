"""A training that no hooks can come into is named, with the reason and what it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuimon.proc.ring_facts import RingFacts
from tuimon.records import Notice
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.processes.source import ProcessSource

#: Maps a file of that name, as a process does that has torch loaded.
PROGRAM = """
import mmap, sys
if len(sys.argv) > 1:
    file = open(sys.argv[1], "rb")
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("ready", flush=True)
sys.stdin.read()
"""


def notices_of(options: list[str], env: dict[str, str], library: Path | None) -> list[Notice]:
    words = [sys.executable, *options, "-c", PROGRAM, *([str(library)] if library else [])]
    child = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    source = ProcessSource(ProcessTable(child.pid, "r1"), 1.0)
    found = [record for _ in range(3) for record in source.read() if isinstance(record, Notice)]
    source.close()
    child.communicate()
    return found


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "libtorch_cpu.so"
    path.write_bytes(b"x" * 4096)
    return path


@pytest.mark.parametrize(
    ("options", "launched", "reason"),
    [
        (["-I"], True, "started with -I or -E"),
        (["-uE"], True, "started with -I or -E"),
        (["-S"], True, "started with -S"),
        ([], False, "an environment of its own"),
    ],
)
def test_it_is_said_once_why_there_are_no_hooks_and_what_that_costs(options, launched, reason, library) -> None:
    env = {**os.environ, "TUIMON_RUN": "r1", "TUIMON_MARKERS": "1"} if launched else {}
    (notice,) = notices_of(options, env, library)
    assert (notice.source, notice.level) == ("markers", "warning")
    assert reason in notice.message and "estimated from stack samples" in notice.message
    assert notice.hint is not None and "--inject" in notice.hint


def test_nothing_is_said_of_what_has_no_torch_or_may_yet_have_hooks(library) -> None:
    env = {**os.environ, "TUIMON_RUN": "r1"}
    assert notices_of(["-I"], env, None) == []
    assert notices_of([], env, library) == []


def test_hooks_that_come_in_after_all_take_it_back(library) -> None:
    with subprocess.Popen(
        [sys.executable, "-I", "-c", PROGRAM, str(library)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        table = ProcessTable(child.pid, "r1")
        source = ProcessSource(table, 1.0)
        before = [record.level for record in source.read() if isinstance(record, Notice)]
        table.facts = {child.pid: RingFacts()}
        after = [record.level for _ in range(3) for record in source.read() if isinstance(record, Notice)]
        source.close()
        child.communicate()
    assert (before, after) == (["warning"], ["ok"])
