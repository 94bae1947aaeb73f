"""Whole processes: this one, one that has ended, and command lines as programs leave them."""

from __future__ import annotations

import errno
import os
import sys
import time

import pytest

from tuimon.proc import processes, procfs


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
def test_command(words: list[str], command: list[str]) -> None:
    assert processes.as_text(words) == command


def test_a_long_command_is_cut() -> None:
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
def test_command_line_as_the_kernel_has_it(raw: bytes, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "read_whole", lambda _: raw)
    assert processes.command_line(1) == command


def test_environment_as_the_kernel_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "read_whole", lambda _: b"RANK=3\0EMPTY=\0ARGS=a=b\0\0no value\0=x\0")
    assert processes.environment(1) == {"RANK": "3", "EMPTY": "", "ARGS": "a=b"}


def test_a_want_of_file_handles_is_no_end_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("os.open", refuse)
    monkeypatch.setattr("builtins.open", refuse)
    for read in (lambda pid: processes.is_alive(pid, None), processes.command_line, processes.environment):
        with pytest.raises(OSError, match="Too many"):
            read(os.getpid())


def test_this_process() -> None:
    pid = os.getpid()
    assert processes.program_name(pid).startswith("python")
    assert processes.command_line(pid)[1:] == sys.orig_argv[1:]
    assert "PATH" in processes.environment(pid)
    start = procfs.start_ticks(pid)
    assert start is not None
    assert processes.is_alive(pid, start)
    assert processes.is_alive(pid, None)
    assert not processes.is_alive(pid, start - 1)  # an earlier process of this pid
    assert 0 < time.time() - processes.start_unix_s(start) < 86400


@pytest.mark.parametrize("pid", [2**22 + 1, 2**31])  # above the kernel's limit, above that of the type
def test_no_such_process(pid: int) -> None:
    assert not processes.is_alive(pid, None)
    assert processes.command_line(pid) == []
    assert processes.environment(pid) == {}
    assert processes.program_name(pid) == ""


@pytest.mark.parametrize(
    ("wchan", "waits"), [(b"do_wait", True), (b"futex_wait_queue", False), (b"0", False), (None, False)]
)
def test_a_process_that_waits_for_a_child(monkeypatch, wchan, waits):
    monkeypatch.setattr(processes, "read_bytes", {"/proc/7/wchan": wchan}.get)
    assert processes.waits_for_child(7) is waits
