"""What threads run below Python, on real processes: C code and Python whose shares are known."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import without_call
from tests.shortage import no_handles
from tests.sources.programs import running
from tests.waiting import until
from tuimon.proc import procfs
from tuimon.records import Native, ThreadCpu
from tuimon.sources.native import NativeSource, SampledProcess, why_refused
from tuimon.sources.process_table import ProcessTable

DENIED = why_refused()
sampled = pytest.mark.skipif(DENIED is not None, reason=str(DENIED))

LOOPS = {
    "interpreter": "while True: sum(range(1000))",
    "NumPy": "import numpy\nnumbers = numpy.random.rand(200_000)\nwhile True: numpy.sort(numbers)",
    "kernel": "import os\nzeros = os.open('/dev/zero', os.O_RDONLY)\nwhile True: os.read(zeros, 1 << 20)",
    "libc": "large = bytes(1 << 22)\nwhile True: bytearray(large)",
}


@contextlib.contextmanager
def source_of(pid: int) -> Iterator[tuple[NativeSource, ProcessTable]]:
    """A source that is told to sample all threads of a training process."""
    table = ProcessTable(pid, None)
    table.roles = {pid: "trainer"}
    source = NativeSource(table)
    try:
        yield source, table
    finally:
        source.close()


def code_of(
    source: NativeSource, table: ProcessTable, pid: int, enough: int = 30
) -> dict[int, Counter[tuple[str, str]]]:
    """By thread, how many samples lie in each library and phase, once some thread has enough."""
    found: dict[int, Counter[tuple[str, str]]] = {}

    def read() -> bool:
        table.running[pid] = [ThreadCpu(tid, "", 1.0, "running") for tid in procfs.thread_ids(pid)]
        for record in source.read():
            assert isinstance(record, Native) and record.pid == pid
            for each in record.code:
                found.setdefault(each.tid, Counter())[each.library, each.phase] += each.samples
        time.sleep(0.1)
        return any(counts.total() >= enough for counts in found.values())

    until(read, "samples", 60)
    return found


@sampled
@pytest.mark.parametrize("library", LOOPS)
def test_a_thread_is_sampled_in_the_library_that_it_runs(library: str, tmp_path: Path) -> None:
    with (
        running(tmp_path, f"print(1, flush=True)\n{LOOPS[library]}") as program,
        source_of(program.pid) as (source, table),
    ):
        counts = code_of(source, table, program.pid)[program.pid]
    assert counts[library, ""] >= 0.6 * counts.total(), counts


@sampled
def test_samples_are_laid_on_the_phases_that_the_markers_source_tells(tmp_path: Path) -> None:
    """Backward for two thirds of the time, then a stretch whose phases were not measured."""
    with (
        running(tmp_path, f"print(1, flush=True)\n{LOOPS['interpreter']}") as program,
        source_of(program.pid) as (source, table),
    ):
        pid, at_ns = program.pid, time.monotonic_ns()
        table.running[pid] = [ThreadCpu(pid, "", 1.0, "running")]
        assert list(source.read()) == []
        labels = ["backward", "backward", ""]
        counts: Counter[str] = Counter()

        def read() -> bool:
            nonlocal at_ns
            while at_ns < time.monotonic_ns() - 50_000_000:
                begin_ns, at_ns = at_ns, at_ns + 30_000_000
                if labels[0]:
                    table.phases[pid].append((begin_ns, at_ns, labels[0]))
                labels.append(labels.pop(0))
            for record in source.read():
                assert isinstance(record, Native)
                for each in record.code:
                    counts[each.phase] += each.samples
            time.sleep(0.1)
            return counts.total() > 90

        until(read, "samples", 60)
    assert set(counts) == {"backward", ""}
    assert 0.45 < counts["backward"] / counts.total() < 0.87


def cpu_ns(pid: int) -> int:
    used = procfs.read_schedstat(pid, pid)
    return used.cpu_ns if used is not None else 0


@sampled
def test_nothing_is_left_open(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with running(tmp_path, "import sys\nprint(1, flush=True)\nwhile True: sum(range(1000))") as program:
        held = set(os.listdir("/proc/self/fd"))
        with source_of(program.pid) as (source, table):
            code_of(source, table, program.pid, enough=1)
            assert set(os.listdir("/proc/self/fd")) != held
            begin_ns = cpu_ns(program.pid)
            until(lambda: cpu_ns(program.pid) > begin_ns + 200_000_000, "CPU time")
            table.roles = {}
            assert [record.pid for record in source.read()] == [program.pid]  # what it ran last
            assert set(os.listdir("/proc/self/fd")) == held
    assert set(os.listdir("/proc/self/fd")) == before


@sampled
def test_without_handles_it_waits_until_there_are_some(tmp_path: Path) -> None:
    with (
        running(tmp_path, f"print(1, flush=True)\n{LOOPS['interpreter']}") as program,
        source_of(program.pid) as (
            source,
            table,
        ),
    ):
        table.running[program.pid] = [ThreadCpu(program.pid, "", 1.0, "running")]
        with no_handles():
            assert list(source.read()) == []
        assert code_of(source, table, program.pid, enough=1)


REFUSED = """
from tests.sources.test_native import source_of
from tuimon.records import ThreadCpu
from tuimon.sources.base import Done
import os
with source_of(os.getpid()) as (source, table):
    table.running[os.getpid()] = [ThreadCpu(os.getpid(), "", 1.0, "running")]
    records = []
    try:
        for record in source.read():
            records.append(record)
    except Done:
        print([(each.source, each.level, each.message, each.hint) for each in records])
"""


def test_where_it_is_not_allowed_that_is_said_once() -> None:
    without = [sys.executable, without_call.__file__, "perf_event_open", sys.executable]
    done = subprocess.run([*without, "-c", REFUSED], capture_output=True, text=True, check=False)
    if done.returncode == without_call.UNAVAILABLE:
        pytest.skip("this kernel has no such filter")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[('native', 'info', '") and "what runs below Python is not measured" in done.stdout
    told = subprocess.run(
        [*without, "-m", "tuimon", "doctor", "--format", "json"], capture_output=True, text=True, check=False
    )
    (check,) = (each for each in json.loads(told.stdout)["checks"] if each["name"] == "native")
    assert check["status"] == "warn" and ("--cap-add PERFMON" in check["fix"] or "perf_event_paranoid" in check["fix"])


MAPS = b"""\
55d0c0000000-55d0c0001000 r--p 00000000 08:01 11 /usr/bin/python3.11
55d0c0001000-55d0c0200000 r-xp 00001000 08:01 11 /usr/bin/python3.11
7f0000000000-7f0000100000 rw-p 00000000 00:00 0
7f0000100000-7f0000200000 rwxp 00000000 00:00 0
7f0000200000-7f0000300000 r-xp 00000000 08:01 12 /v e n v/torch/lib/libtorch_cpu.so (deleted)
7f0000300000-7f0000310000 r-xp 00000000 00:01 13 /memfd:ffi (deleted)
7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0 [vdso]
"""


def test_an_address_is_in_what_is_mapped_there_and_may_be_executed() -> None:
    process = SampledProcess(0, deque())
    process.map(MAPS)
    at = {
        0x55D0C0000010: "unknown",  # not executable
        0x55D0C0001000: "interpreter",
        0x55D0C0200000: "unknown",
        0x7F0000100010: "generated kernels",
        0x7F0000200010: "torch",
        0x7F0000300010: "generated kernels",
        0x7FFC00000010: "libc",
    }
    assert {address: process.library_at(address) for address in at} == at
    process.map(MAPS + b"7ffc00003000-7ffc00004000 r-xp 00000000 08:01 14 /x/llvmlite/binding/libllvmlite.so\n")
    assert process.library_at(0x7F0000100010) == "numba"
