"""Readers of /proc, on literal contents."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.shortage import no_handles
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
    assert stat.name == name
    assert (stat.state, stat.cpu_ticks, stat.start_ticks) == ("S", 100, 123456)


def test_schedstat() -> None:
    assert procfs.parse_schedstat(b"123 456 7\n") == SchedStat(123, 456, 7)
    assert procfs.parse_schedstat(b"0 0\n") is None
    assert procfs.parse_schedstat(b"") is None


def test_no_such_process() -> None:
    gone = 2**22 + 1  # above the kernel's limit for pids
    assert procfs.read_thread_stat(gone, gone) is None
    assert procfs.start_ticks(gone) is None
    assert procfs.read_schedstat(gone, gone) is None
    assert procfs.thread_ids(gone) == []
    assert procfs.read_maps(gone) == b""


def test_no_handle_left_is_no_end_of_a_process() -> None:
    with no_handles(), pytest.raises(OSError, match="Too many open files"):
        procfs.start_ticks(os.getpid())


def test_a_held_file_is_read_anew_each_time_and_ends_with_its_process():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    held = procfs.HeldFile(f"/proc/{process.pid}/stat")
    first = procfs.parse_process_stat(held.read())
    assert first is not None and first.ppid == os.getpid()
    process.communicate(b"\n")
    assert procfs.parse_process_stat(held.read()) is None
    held.close()


def test_beyond_the_most_files_are_opened_at_each_read(monkeypatch):
    monkeypatch.setattr(procfs.HeldFile, "MOST", 0)
    before = set(os.listdir("/proc/self/fd"))
    held = procfs.HeldFile("/proc/self/stat")
    assert procfs.parse_process_stat(held.read()).ppid == os.getppid()
    assert set(os.listdir("/proc/self/fd")) == before
    held.close()


def test_private_memory_is_what_a_forked_process_has_written_itself() -> None:
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
