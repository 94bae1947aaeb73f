"""A training that no hooks or no ring can come into is named, with the reason and what it costs."""

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


def followed(
    options: list[str], env: dict[str, str], *arguments: Path, program: str = PROGRAM, later: RingFacts | None = None
) -> tuple[int, list[Notice], Process]:
    """The process, the notices and the latest record of it; ``later``: what it reports after the first read."""
    words = [sys.executable, *options, "-c", program, *arguments]
    with subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        table = ProcessTable(child.pid, "r1")
        source = ProcessSource(table, 1.0)
        records = list(source.read())
        table.facts = {} if later is None else {child.pid: later}
        records += [record for _ in range(9) for record in source.read()]
        source.close()
        child.communicate()
    assert child.returncode == 0
    notices = [record for record in records if isinstance(record, Notice)]
    return child.pid, notices, [record for record in records if isinstance(record, Process)][-1]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "libtorch_python.so"
    path.write_bytes(b"x" * 4096)
    return path


LAUNCHED = {**os.environ, "TUIMON_RUN": "r1", "TUIMON_MARKERS": "1", "PYTHONPATH": "/v/tuimon/agent/inject:src"}


@pytest.mark.parametrize(
    ("options", "env", "reason"),
    [
        (["-I"], LAUNCHED, "started with -I or -E"),
        (["-S"], LAUNCHED, "started with -S"),
        ([], {}, "an environment of its own"),
        ([], {**LAUNCHED, "PYTHONPATH": "src"}, "without tuimon's PYTHONPATH"),
    ],
)
def test_it_is_said_once_why_there_are_no_hooks_and_what_that_costs(options, env, reason, library) -> None:
    _, (notice,), _ = followed(options, env, library)
    assert (notice.source, notice.level) == ("markers", "warning")
    assert reason in notice.message and "estimated from stack samples" in notice.message
    assert notice.hint is not None and "--inject" in notice.hint


def test_nothing_is_said_of_what_has_no_torch_or_may_yet_have_hooks(library) -> None:
    assert followed(["-I"], LAUNCHED)[1] == followed([], LAUNCHED, library)[1] == []


def test_hooks_that_come_in_after_all_take_it_back(library) -> None:
    _, notices, _ = followed(["-I"], LAUNCHED, library, later=RingFacts())
    assert [notice.level for notice in notices] == ["warning", "ok"]


TRAINING = """
import sys
{}
from tuimon.agent.ring.writer import make_ring
make_ring()
print("ready", flush=True)
sys.stdin.read()
"""
#: At its default SIGXFSZ would end the process at a ring that is larger.
LIMITED = """import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))"""


@pytest.mark.parametrize(
    ("before", "reason", "fix"),
    [
        ("", "{}/file/rings: Not a directory", "TUIMON_RING_DIR"),
        (LIMITED, "a ring has 2273280 bytes, files may have 4096 (ulimit -f)", "(ulimit -f unlimited)"),
    ],
)
def test_a_notice_names_why_there_is_no_ring_and_the_fix(before, reason, fix, tmp_path) -> None:
    (tmp_path / "file").touch()
    env = {"TUIMON_RING_DIR": f"{tmp_path}/file/rings", "PYTHONPATH": ":".join(sys.path), "TUIMON_RUN": "r1"}
    pid, (notice,), latest = followed([], env, program=TRAINING.format(before))
    reason = reason.format(tmp_path)
    assert notice.source == "markers" and fix in notice.hint
    assert f"process {pid} has no room for its markers ({reason})" in notice.message
    assert latest.markers_reason == f"no room for its markers: {reason}"
