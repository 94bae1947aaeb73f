"""A training that no hooks or no ring can come into is named, with the reason and what it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuimon.proc.ring_facts import RingFacts
from tuimon.records import Notice, Process
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
    path = tmp_path / "libtorch_python.so"
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


TRAINING = """
import sys
{before}
from tuimon.agent.ring.writer import make_ring
make_ring()
print("ready", flush=True)
sys.stdin.read()
"""


def followed(tmp_path, before=""):
    """The process, the notice and the latest record of it."""
    (tmp_path / "file").touch()
    child = subprocess.Popen(
        [sys.executable, "-c", TRAINING.format(before=before)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"TUIMON_RING_DIR": str(tmp_path / "file" / "rings"), "PYTHONPATH": ":".join(sys.path), "TUIMON_RUN": "r1"},
    )
    assert child.stdout.readline() == "ready\n"
    source = ProcessSource(ProcessTable(child.pid, "r1"), 1.0)
    records = [record for _ in range(10) for record in source.read()]
    child.communicate()
    assert child.returncode == 0
    (notice,) = (record for record in records if isinstance(record, Notice))
    assert notice.source == "markers"
    return child.pid, notice, [record for record in records if isinstance(record, Process)][-1]


def test_a_notice_names_the_folder_and_the_fix(tmp_path):
    pid, notice, latest = followed(tmp_path)
    assert f"process {pid} has no room for its markers ({tmp_path}/file/rings: Not a directory)" in notice.message
    assert "TUIMON_RING_DIR" in notice.hint
    assert latest.markers_reason == f"no room for its markers: {tmp_path}/file/rings: Not a directory"


def test_a_notice_names_the_limit_on_the_size_of_files(tmp_path):
    """At its default SIGXFSZ would end the process at a ring that is larger."""
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))"
    before = f"import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL); {limit}"
    pid, notice, latest = followed(tmp_path, before)
    reason = "a ring has 2273280 bytes, files may have 4096 (ulimit -f)"
    assert f"process {pid} has no room for its markers ({reason})" in notice.message
    assert notice.hint == "Start it with a higher limit on the size of files (ulimit -f unlimited)."
    assert latest.markers_reason == f"no room for its markers: {reason}"
