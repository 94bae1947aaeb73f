"""Readers of /proc, on literal contents."""

from __future__ import annotations

import os

import pytest

from tuimon.proc import procfs
from tuimon.proc.procfs import SchedStat

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
def test_stat_with_any_name(raw_name: bytes, name: str) -> None:
    stat = procfs.parse_stat(b"42 (" + raw_name + b")" + _TAIL)
    assert stat is not None
    assert stat.comm == name
    assert (stat.state, stat.ppid, stat.cpu_ticks, stat.start_ticks) == ("S", 17, 100, 123456)
    assert stat.rss_bytes == 300 * procfs.PAGE_BYTES


@pytest.mark.parametrize("raw", [b"", b"42", b"42 (x) S 17", b"42 (x) S a b" + b" 0" * 40])
def test_stat_that_is_torn(raw: bytes) -> None:
    assert procfs.parse_stat(raw) is None


def test_schedstat() -> None:
    assert procfs.parse_schedstat(b"123 456 7\n") == SchedStat(123, 456, 7)
    assert procfs.parse_schedstat(b"0 0\n") is None
    assert procfs.parse_schedstat(b"") is None


@pytest.mark.parametrize(
    ("raw", "command"),
    [
        (b"python\0train.py\0--lr\x000.1\0", ["python", "train.py", "--lr", "0.1"]),
        (b"", []),
        (b"\0\0\0", []),
        (b"renamed by setproctitle\0\0\0\0\0", ["renamed by setproctitle"]),
        (b"python\0\0x\0", ["python", "", "x"]),  # an empty argument is one
        (b"caf\xe9\0", ["caf\ufffd"]),
    ],
)
def test_command(raw: bytes, command: list[str]) -> None:
    assert procfs.parse_command(raw) == command


def test_a_long_command_is_cut() -> None:
    command = procfs.parse_command(b"python\0" + b"x" * 5000 + b"\0y\0")
    assert sum(map(len, command)) == 2000
    assert command[0] == "python"


def test_environ() -> None:
    raw = b"RANK=3\0EMPTY=\0A=b=c\0no pair\0\xff=\xfe\0"
    assert procfs.parse_environ(raw) == {"RANK": "3", "EMPTY": "", "A": "b=c", "\ufffd": "\ufffd"}


def test_this_process() -> None:
    pid = os.getpid()
    stat = procfs.read_stat(pid)
    assert stat is not None
    assert stat.ppid == os.getppid()
    assert stat.rss_bytes > 1 << 20
    assert pid in procfs.thread_ids(pid)
    assert procfs.executable(pid).startswith("python")
    assert "pytest" in " ".join(procfs.read_command(pid))
    assert procfs.boot_unix_s() > 1e9


def test_no_such_process() -> None:
    gone = 2**22 + 1  # above the kernel's limit for pids
    assert procfs.read_stat(gone) is None
    assert procfs.start_ticks(gone) is None
    assert procfs.read_schedstat(gone, gone) is None
    assert procfs.thread_ids(gone) == []
    assert procfs.children(gone, gone) == []
    assert procfs.read_command(gone) == []
    assert procfs.read_environ(gone) == {}
    assert procfs.executable(gone) == ""
