"""A process without room for a ring leaves the reason, and ends with it."""

import subprocess
import sys

import pytest

from tests.waiting import until
from tuimon.agent.ring.no_ring import leave_reason, reason_left_by

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


def test_the_reason_is_found_while_the_process_lives(process, tmp_path):
    assert reason_left_by(process.pid) == f"{tmp_path}/file/rings: Not a directory"
    process.communicate()
    assert reason_left_by(process.pid) is None


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
    leave_reason("no room")


def test_a_long_reason_is_cut():
    child = "from tuimon.agent.ring.no_ring import leave_reason, reason_left_by; import os; leave_reason('x' * 5000)"
    done = subprocess.run(
        [sys.executable, "-c", f"{child}; print(len(reason_left_by(os.getpid())))"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout == "1024\n"
