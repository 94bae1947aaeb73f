"""Processes and their threads, by /proc: this one, one that has ended, and command lines as programs leave them."""

import os
import subprocess
import sys
import time
from functools import partial

import pytest

from tests.shortage import no_handles
from tuimon.proc import processes, procfs
from tuimon.proc.procfs import SchedStat


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["python", "train.py", "--lr", "0.1"], ["python", "train.py", "--lr", "0.1"]),
        ([], []),
        (["", "", ""], []),
        (["renamed by setproctitle", "", ""], ["renamed by setproctitle"]),
        (["python", "", "x"], ["python", "", "x"]),  # an empty argument is one
        (["caf\udce9"], ["caf\ufffd"]),
    ],
)
def test_command(words, command):
    assert processes.encodable(words) == command


def test_a_long_command_is_cut():
    command = processes.shortened(["python", "x" * 5000, "y"])
    assert sum(map(len, command)) == 2000
    assert command[0] == "python"


@pytest.mark.parametrize(
    ("raw", "command"),
    [
        (b"", []),
        (b"python\0train.py\0--name\0\0a b\0", ["python", "train.py", "--name", "", "a b"]),
        (b"nginx: worker process", ["nginx:", "worker", "process"]),  # what a program writes over its own
        (b"sshd: root@pts/0\0", ["sshd:", "root@pts/0"]),
    ],
)
def test_command_line_as_the_kernel_has_it(raw, command, monkeypatch):
    monkeypatch.setattr(procfs, "read_whole", lambda _: raw)
    assert processes.command_line(1) == command


def test_environment_as_the_kernel_has_it(monkeypatch):
    monkeypatch.setattr(procfs, "read_whole", lambda _: b"RANK=3\0EMPTY=\0ARGS=a=b\0\0no value\0=x\0")
    assert processes.environment_of(1) == {"RANK": "3", "EMPTY": "", "ARGS": "a=b"}


def test_a_want_of_file_handles_is_no_end_of_a_process():
    readers = (procfs.start_ticks, partial(processes.is_alive, start_ticks=None))
    for read in (*readers, processes.command_line, processes.environment_of):
        with no_handles(), pytest.raises(OSError, match="Too many"):
            read(os.getpid())


def test_this_process():
    pid = os.getpid()
    assert processes.program_name(pid).startswith("python")
    assert processes.command_line(pid)[1:] == sys.orig_argv[1:]
    assert "PATH" in processes.environment_of(pid)
    start = procfs.start_ticks(pid)
    assert processes.is_alive(pid, start)
    assert processes.is_alive(pid, None)
    assert not processes.is_alive(pid, start - 1)  # an earlier process of this pid
    assert 0 < time.time() - processes.start_unix_s(start) < 86400


@pytest.mark.parametrize("pid", [2**22 + 1, 2**31])  # above the kernel's limit, above that of the type
def test_no_such_process(pid):
    assert not processes.is_alive(pid, None)
    assert processes.command_line(pid) == []
    assert processes.environment_of(pid) == {}
    assert processes.program_name(pid) == ""
    assert procfs.read_thread_stat(pid, pid) is procfs.start_ticks(pid) is procfs.read_schedstat(pid, pid) is None
    assert procfs.thread_ids(pid) == [] and procfs.read_maps(pid) == b""


@pytest.mark.parametrize(
    ("wchan", "waits"), [(b"do_wait", True), (b"futex_wait_queue", False), (b"0", False), (None, False)]
)
def test_a_process_that_waits_for_a_child(monkeypatch, wchan, waits):
    monkeypatch.setattr(processes, "read_bytes", {"/proc/7/wchan": wchan}.get)
    assert processes.waits_for_child(7) is waits


_TAIL = b" S 17 1 1 0 -1 4194560 100 0 0 0 25 75 0 0 20 0 1 0 123456 1000000 300 18446744073709551615 1 1 0\n"


@pytest.mark.parametrize(
    ("raw_name", "name"),
    [
        (b"python", "python"),
        (b"a b", "a b"),
        (b"Web (Content)", "Web (Content)"),
        (b") S 1 1 1 (", ") S 1 1 1 ("),
        (b"two\nlines", "two\nlines"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"[bold]", "[bold]"),
        (b"", ""),
    ],
)
def test_stat_with_any_name(raw_name, name):
    stat = procfs.parse_stat(b"42 (" + raw_name + b")" + _TAIL)
    assert stat.name == name
    assert (stat.state, stat.cpu_ticks, stat.start_ticks) == ("S", 100, 123456)


def test_schedstat(monkeypatch):
    for raw, counts in ((b"123 456 7\n", SchedStat(123, 456)), (b"0 0\n", None), (b"", None)):
        monkeypatch.setattr(procfs, "read_bytes", lambda path, limit, raw=raw: raw)
        assert procfs.read_schedstat(1, 1) == counts
        assert procfs.waited_s(1) == (counts.delay_ns / 1e9 if counts else 0.0)


def test_a_held_file_is_read_anew_each_time_and_ends_with_its_process():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    held = procfs.HeldFile(f"/proc/{process.pid}/stat")
    first = procfs.parse_stat(held.read())
    assert first is not None and first.ppid == os.getpid()
    process.communicate(b"\n")
    assert procfs.parse_stat(held.read()) is None
    held.close()


def test_beyond_the_most_files_are_opened_at_each_read(monkeypatch):
    monkeypatch.setattr(procfs.HeldFile, "MOST", 0)
    before = set(os.listdir("/proc/self/fd"))
    held = procfs.HeldFile("/proc/self/stat")
    assert procfs.parse_stat(held.read()).ppid == os.getppid()
    assert set(os.listdir("/proc/self/fd")) == before
    held.close()


def test_private_memory_is_what_a_forked_process_has_written_itself():
    shared = bytearray(os.urandom(1)) * (32 << 20)
    asked, answer = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.read(asked[0], 1)
        shared[::4096] = bytes(len(shared) // 4096)
        os.write(answer[1], b"x")
        os.read(asked[0], 1)
        os._exit(0)
    before = procfs.private_bytes(child)
    os.write(asked[1], b"x")
    os.read(answer[0], 1)
    after = procfs.private_bytes(child)
    os.write(asked[1], b"x")
    os.waitpid(child, 0)
    for end in (*asked, *answer):
        os.close(end)
    assert before is not None and after is not None
    assert after - before >= 32 << 20
    assert procfs.private_bytes(child) is None
