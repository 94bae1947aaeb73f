"""A process without room for a ring leaves the reason, and ends with it."""

import os
import subprocess
import sys

import pytest

from tests.waiting import until
from tuimon.agent.outside import attempt
from tuimon.agent.ring.files import make_ring, own_reason, reason_left_by
from tuimon.agent.ring.writer import RING_BYTES

pytestmark = pytest.mark.trust

ASKS_FOR_A_RING = """
import sys
from tuimon.agent.ring.files import make_ring
print(make_ring(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def process(tmp_path):
    """A process whose folder for rings lies below a file."""
    (tmp_path / "file").touch()
    child = subprocess.Popen(
        [sys.executable, "-c", ASKS_FOR_A_RING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"TUIMON_RING_DIR": str(tmp_path / "file" / "rings"), "PYTHONPATH": ":".join(sys.path)},
    )
    assert child.stdout.readline() == "None\n"
    yield child
    child.communicate()


def test_a_process_with_a_ring_has_left_none():
    idle = subprocess.Popen(["sleep", "60"])
    try:
        until(lambda: idle.pid)
        assert reason_left_by(idle.pid) is None
    finally:
        idle.kill()
        idle.wait()


def test_without_memfd_nothing_is_left_and_nothing_breaks(monkeypatch):
    monkeypatch.delattr("os.memfd_create")
    monkeypatch.setenv("TUIMON_RING_DIR", os.devnull)
    assert attempt(make_ring) is None
    assert own_reason() is not None


def test_a_long_reason_is_cut():
    child = "from tuimon.agent.ring.files import leave_reason, reason_left_by; import os; leave_reason('x' * 5000)"
    done = subprocess.run(
        [sys.executable, "-c", f"{child}; print(len(reason_left_by(os.getpid())))"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout == "1024\n"


LIMITED = """
import os, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (%d, resource.RLIM_INFINITY))
"""


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (RING_BYTES - 1, f"a ring has {RING_BYTES} bytes, files may have {RING_BYTES - 1} (ulimit -f)"),
        (20, "a ring has 2273280 b"),
        (0, "files may have 0 bytes (ulimit -f)"),
    ],
)
def test_a_limit_on_the_size_of_files_leaves_the_reason_and_kills_nobody(limit, reason, tmp_path):
    """Beyond the limit the kernel sends SIGXFSZ, which ends a process that has it at its default."""
    child = subprocess.Popen(
        [sys.executable, "-c", LIMITED % limit + ASKS_FOR_A_RING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"TUIMON_RING_DIR": str(tmp_path / "rings"), "PYTHONPATH": ":".join(sys.path)},
    )
    assert child.stdout.readline() == "None\n"
    assert reason_left_by(child.pid) == reason
    child.communicate()
    assert child.returncode == 0


def test_a_ring_as_large_as_files_may_be_is_made(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LIMITED % RING_BYTES + ASKS_FOR_A_RING],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={"TUIMON_RING_DIR": str(tmp_path / "rings"), "PYTHONPATH": ":".join(sys.path)},
    )
    assert "RingWriter" in done.stdout
