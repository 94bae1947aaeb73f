"""Trainings that hooks cannot be brought into: threads, namespaces, ptrace denied, an end meanwhile."""

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile

import psutil
import pytest

from tests import without_call
from tests.launch.injection.trainings import needs_gdb, refusal, state, training
from tests.sources.stacks import denied
from tests.waiting import until
from tuimon.agent.ring import files
from tuimon.launch import gdb, target
from tuimon.launch.inject import inject

# -- threads

MANY = """
    import threading
    if threading.active_count() == 1:
        for _ in range(30):
            threading.Thread(target=threading.Event().wait, args=(1000,), daemon=True).start()
        print("all", flush=True)
"""


@needs_gdb
def test_more_threads_than_gdb_stops_in_a_moment(tmp_path, monkeypatch):
    monkeypatch.setattr(target, "THREADS_LIMIT", 20)
    monkeypatch.setattr(gdb, "started", lambda *_: pytest.fail("gdb was started"))
    with training(tmp_path, sys.executable, also=MANY) as process:
        assert process.stdout and process.stdout.readline() == "all\n"
        message = refusal(process.pid).message
    assert message.startswith(f"process {process.pid} has 31 threads: gdb would stop it for at least ")
    assert message.endswith("(the limit is 20 threads)")


#: clone(2) with CLONE_VFORK and SIGCHLD.
_CLONE = {"x86_64": 56, "aarch64": 220}
#: A thread whose child never becomes another program: until it ends, the thread is in uninterruptible sleep.
SLEEPS = f"""
    import ctypes, threading
    if "sleep" not in globals():
        def sleep():
            if ctypes.CDLL(None).syscall({_CLONE.get(platform.machine())}, 0x4000 | 17, 0, 0, 0, 0) == 0:
                time.sleep(1000)
        threading.Thread(target=sleep, daemon=True).start()
"""


@contextlib.contextmanager
def sleeping(folder):
    """A training with such a thread, and the child that it waits for."""
    if platform.machine() not in _CLONE:
        pytest.skip("the number of clone is not known here")
    with training(folder, sys.executable, also=SLEEPS) as process:
        until(lambda: target.uninterruptible_threads(process.pid))
        (child,) = psutil.Process(process.pid).children()
        try:
            yield process, child
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


@needs_gdb
def test_a_thread_that_cannot_be_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(gdb, "started", lambda *_: pytest.fail("gdb was started"))
    with sleeping(tmp_path) as (process, child):
        (thread,) = target.uninterruptible_threads(process.pid)
        message = refusal(process.pid).message
        child.kill()
    assert message.startswith(f"thread {thread} of process {process.pid} is in uninterruptible sleep (D)")


def test_a_thread_that_waits_for_a_moment_is_waited_for(monkeypatch):
    found = iter([{1, 2}, {2, 3}, {3}])
    monkeypatch.setattr(target, "uninterruptible_threads", lambda pid: next(found))
    target.check_threads(os.getpid())
    assert next(found, None) is None


@needs_gdb
def test_a_gdb_that_was_killed_for_it_leaves_no_stop_behind(tmp_path, monkeypatch):
    """A thread that has gone to sleep after it was looked at: its SIGSTOP is pending, and would stop the training."""
    monkeypatch.setattr(gdb, "check_threads", lambda pid: None)
    monkeypatch.setattr(gdb, "GDB_TIMEOUT_S", 1.0)
    with sleeping(tmp_path) as (process, child):
        refusal(process.pid)
        child.kill()
        until(lambda: not target.uninterruptible_threads(process.pid))


# -- namespaces


@contextlib.contextmanager
def unshared(folder, line):
    """The pid of a training that a line of shell starts in other namespaces, as "$@"."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\nexec {line.replace('PYTHON', sys.executable)}\n")
    python.chmod(0o755)
    if subprocess.run([python, "-c", ""], stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode:
        pytest.skip("no such namespace may be made here")
    with training(folder, str(python)) as process:
        children = psutil.Process(process.pid).children()
        yield children[0].pid if children else process.pid


@pytest.mark.parametrize(
    ("kind", "line", "inner"),
    [("pid", 'unshare -pf --kill-child PYTHON "$@"', "1"), ("time", 'unshare -T PYTHON "$@"', None)],
)
def test_another_namespace_in_which_its_ring_has_another_name(kind, line, inner, tmp_path):
    with unshared(tmp_path, line) as pid:
        error = refusal(pid)
    assert error.message.startswith(f"process {pid} is in another {kind} namespace")
    assert (error.hint or "").endswith(f"tuimon attach --inject {inner or pid}")


def mounted_over(folder):
    return f'unshare -m sh -c \'mount -t tmpfs none {folder} && exec PYTHON "$@"\' sh "$@"'


def test_a_private_folder_for_rings(tmp_path, monkeypatch):
    """As a private /dev/shm: of a folder that is still to be made, the one that it will be in is compared."""
    (tmp_path / "shm").mkdir()
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "shm" / "tuimon-0"))
    with unshared(tmp_path, mounted_over(tmp_path / "shm")) as pid:
        error = refusal(pid)
    assert error.message.startswith(f"process {pid} has its own {tmp_path}/shm: ")


@needs_gdb
def test_a_private_temporary_folder_is_not_used(tmp_path, monkeypatch):
    """As under systemd's PrivateTmp: the request goes where both see it."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    with unshared(tmp_path, mounted_over(tmp_path / "tmp")) as pid:
        assert not inject(pid)
        until(lambda: os.path.exists(files.ring_path(pid)))


@needs_gdb
def test_addresses_come_from_the_files_that_the_process_sees(tmp_path, monkeypatch):
    """A container may share our folders and have another C library under the same path."""
    real, read = gdb.find_functions, []
    monkeypatch.setattr(gdb, "find_functions", lambda file, *more: read.append(file) or real(file, *more))
    with training(tmp_path, sys.executable) as process:
        inject(process.pid)
    assert len(read) >= 2 and all(file.startswith(f"/proc/{process.pid}/") for file in read)


# -- ended meanwhile


@needs_gdb
def test_a_training_that_ends_while_its_answer_is_awaited(tmp_path):
    """Its parent has not waited for it: it is still there as a zombie."""
    with training(tmp_path, sys.executable, also="time.sleep(1000)") as process:

        def kill():
            os.kill(process.pid, signal.SIGKILL)
            return False

        message = refusal(process.pid, timeout_s=20.0, stop=kill).message
        assert state(process) == "Z"
    assert message == f"process {process.pid} has ended meanwhile"


@needs_gdb
def test_a_training_that_ends_while_gdb_holds_it(tmp_path, monkeypatch):
    kill = "shell kill -KILL {pid}"
    monkeypatch.setattr(gdb, "SCRIPT", gdb.SCRIPT.replace("thread apply all tuimon_place", kill))
    with training(tmp_path, sys.executable) as process:
        assert refusal(process.pid).message == f"process {process.pid} has ended meanwhile"


INJECT = """
import sys
from tuimon.errors import CannotInject
from tuimon.launch.inject import inject
try:
    inject(int(sys.argv[1]), timeout_s=20.0)
except CannotInject as error:
    print(error.message, "|", error.hint)
else:
    print("injected")
"""


@pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb")
@pytest.mark.parametrize(("wrapper", "reason"), [(without_call, "ptrace is denied"), (denied, "may not be")])
def test_the_refusal_names_the_cause(wrapper, reason, tmp_path):
    script = [str(wrapper.__file__), *(["ptrace"] if wrapper is without_call else [])]
    with training(tmp_path, sys.executable, also="time.sleep(0.01)") as process:
        command = [sys.executable, *script, sys.executable, "-c", INJECT, str(process.pid)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode == wrapper.UNAVAILABLE:
            pytest.skip("this kernel has no such filter")
        assert done.returncode == 0, done.stderr
        assert reason in done.stdout and str(process.pid) in done.stdout
        assert "--cap-add SYS_PTRACE" in done.stdout and "tuimon run" not in done.stdout.partition("|")[0]
