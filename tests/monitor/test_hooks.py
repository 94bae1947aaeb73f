"""Which processes get hooks: ranks with the command line of their launcher too, forked workers not."""

import subprocess
import sys

import pytest

from tests.waiting import until
from tuimon.launch import attached
from tuimon.monitor import hooks
from tuimon.proc.processes import is_fork_of, waits_for_child

LAUNCHER = """
import os, subprocess, sys, time
if os.environ.get("PART"):
    worker = os.fork()
    if worker:
        print("rank", os.getpid(), worker, flush=True)
    sys.stdin.read()
    os._exit(0)
elif os.environ.get("BUSY"):
    ranks = [subprocess.Popen(sys.orig_argv, env={**os.environ, "PART": "1"})]
    while ranks[0].poll() is None:
        time.sleep(0.05)
else:
    subprocess.run(sys.orig_argv, env={**os.environ, "PART": "1"})
"""


@pytest.fixture(params=["", "1"])
def launched(request, monkeypatch):
    """Launcher, rank, the rank's forked worker, and whether the launcher comes back to Python."""
    if not hasattr(sys, "orig_argv"):
        pytest.skip("this Python does not keep its arguments")
    monkeypatch.setattr(hooks, "has_torch", lambda pid: True)
    monkeypatch.setenv("BUSY", request.param)
    process = subprocess.Popen([sys.executable, "-c", LAUNCHER], stdin=-1, stdout=-1, text=True)
    try:
        rank, worker = map(int, process.stdout.readline().split()[1:])
        yield process.pid, rank, worker, bool(request.param)
    finally:
        process.communicate()


def test_ranks_and_launchers_are_told_from_workers(launched):
    launcher, rank, worker, comes_back = launched
    assert is_fork_of(worker, rank) and not is_fork_of(rank, launcher)
    if comes_back:
        assert hooks.trainings_of(launcher) == [rank, launcher]
    else:
        until(lambda: waits_for_child(launcher), "the launcher")
        assert hooks.trainings_of(launcher) == [rank]
    assert hooks.trainings_of(rank) == [rank]


def test_a_rank_with_the_command_line_of_its_launcher_is_listed(launched, monkeypatch):
    launcher, rank, worker, _ = launched
    monkeypatch.setattr(attached, "has_torch", lambda pid: pid in (launcher, rank, worker))
    assert {launcher, rank, worker} & {each.pid for each in attached.find_candidates()} == {launcher, rank}
