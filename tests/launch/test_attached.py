"""Looking at processes that run already."""

import contextlib
import os
import shutil
import subprocess
import threading
from pathlib import Path

import psutil
import pytest

from tests.shortage import no_handles
from tests.waiting import child_process, until
from tuimon.agent.ring import files
from tuimon.agent.ring.writer import RingWriter
from tuimon.errors import TargetError
from tuimon.launch.attached import Candidate, attach, is_worker, processes_of_run
from tuimon.launch.child import ExitStatus, output_path
from tuimon.proc.processes import command_line


@contextlib.contextmanager
def started(name, **env):
    """A process that sleeps under this name."""
    sleep = shutil.which("sleep")
    with child_process(name, "600", executable=sleep, env={**os.environ, **env}) as child:
        until(lambda: command_line(child.pid) == [name, "600"])
        yield child


@pytest.fixture
def sleeper():
    """Not Python; in a run."""
    with started("sleep", TUIMON_RUN="a-run", TUIMON_OUTPUT="/out") as child:
        yield child


def test_no_such_process():
    child = subprocess.Popen(["true"])
    until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
    with pytest.raises(TargetError):  # a zombie is none
        attach(child.pid)
    child.wait()
    for pid in (child.pid, 2**31 - 1, -5, 0):
        with pytest.raises(TargetError, match=str(pid)):
            attach(pid)


def test_a_thread_is_named_with_its_process():
    goes_on = threading.Event()
    thread = threading.Thread(target=goes_on.wait)
    thread.start()
    try:
        with pytest.raises(TargetError) as refused:
            attach(thread.native_id)
    finally:
        goes_on.set()
        thread.join()
    assert refused.value.message == f"{thread.native_id} is a thread of process {os.getpid()}"
    assert refused.value.hint == f"Watch the process: tuimon attach {os.getpid()}"


def test_not_python():
    with started("sleep") as child, pytest.raises(TargetError, match="sleep"):
        attach(child.pid)


def test_a_process_that_hides_its_program(monkeypatch):
    """To a user without capabilities, one that is not dumpable; to root, one of an outer user namespace."""

    def refuse(path):
        raise PermissionError(path)

    monkeypatch.setattr(os, "readlink", refuse)
    with started("sleep") as child, pytest.raises(TargetError, match=r"\(sleep\) hides"):
        attach(child.pid)
    with started("python3") as child:
        assert attach(child.pid).command == ["python3", "600"]


def test_a_process_of_another_user(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(TargetError, match="belongs to"):
        attach(1)


def test_a_shell_that_tuimon_launched_may_be_attached_to(sleeper):
    found = attach(sleeper.pid)
    assert (found.run_id, found.output, found.command) == ("a-run", None, ["sleep", "600"])  # no output of ours
    assert processes_of_run("a-run") == [sleeper.pid]
    assert processes_of_run("a-ru") == []


def test_a_shortage_of_file_handles_is_no_end(sleeper):
    attached = attach(sleeper.pid)
    with no_handles():
        assert attached.poll() is None


def test_its_end_is_seen(sleeper):
    found = attach(sleeper.pid)
    assert found.poll() is None
    sleeper.kill()
    assert until(found.poll) == ExitStatus(None, None)  # a zombie by now: it has ended
    sleeper.wait()
    assert found.poll() == ExitStatus(None, None)


def test_the_ring_tells_run_and_output(tmp_path, monkeypatch):
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / f"{os.getpid()}-{files.start_ticks(os.getpid())}.ring"
    output = output_path("r1")
    Path(output).touch(0o600)
    ring = RingWriter(str(path))
    ring.set_meta({"run": "r1", "output": output, "rank": 2})
    found = attach(os.getpid())
    assert (found.run_id, found.output) == ("r1", output)
    ring.set_meta({"run": "r1", "output": "/etc/passwd", "rank": 2})
    assert attach(os.getpid()).output is None
    ring.unlink()


def test_candidates_are_no_workers():
    command = ["python", "train.py"]
    commands = {10: command, 20: ["torchrun", "train.py"]}
    spawned = Candidate(12, 10, 0, ["python", "-c", "from multiprocessing.spawn import spawn_main"], None)
    alone = Candidate(13, 1, 0, command, None)
    rank = Candidate(21, 20, 0, command, None)
    found = [is_worker(candidate, commands) for candidate in (spawned, alone, rank)]
    assert found == [True, False, False]
