"""What threads run below Python, on real processes: C code and Python whose shares are known."""

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


class Sampled:
    """A source that is told to sample all threads of a process, and what it has found."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.table = ProcessTable(pid, None)
        self.table.roles = {pid: "trainer"}
        self.source = NativeSource(self.table)
        self.counts: Counter[tuple[str, str]] = Counter()  # samples in each library and phase

    def read(self) -> int:
        """How many samples there are, with those of another 0.1 s."""
        self.table.running[self.pid] = [ThreadCpu(tid, "", 1.0, "running") for tid in procfs.thread_ids(self.pid)]
        for record in self.source.read():
            assert isinstance(record, Native) and record.pid == self.pid
            for each in record.code:
                self.counts[each.library, each.phase] += each.samples
        time.sleep(0.1)
        return self.counts.total()


@contextlib.contextmanager
def sampling(pid: int) -> Iterator[Sampled]:
    found = Sampled(pid)
    try:
        yield found
    finally:
        found.source.close()


@pytest.fixture
def program(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[int]:
    """The pid of a program that runs one of the loops."""
    with running(tmp_path, f"print(1, flush=True)\n{LOOPS[getattr(request, 'param', 'interpreter')]}") as process:
        yield process.pid


@sampled
@pytest.mark.parametrize(("program", "library"), [(name, name) for name in LOOPS], indirect=["program"])
def test_a_thread_is_sampled_in_the_library_that_it_runs(program: int, library: str) -> None:
    with sampling(program) as found:
        until(lambda: found.read() >= 30, "samples", 60)
    assert found.counts[library, ""] >= 0.6 * found.counts.total(), found.counts


@sampled
def test_samples_are_laid_on_the_phases_that_the_markers_source_tells(program: int) -> None:
    """Backward for two thirds of the time, then a stretch whose phases were not measured."""
    at_ns, labels = time.monotonic_ns(), ["backward", "backward", ""]
    with sampling(program) as found:

        def read() -> bool:
            nonlocal at_ns
            while at_ns < time.monotonic_ns() - 50_000_000:
                begin_ns, at_ns = at_ns, at_ns + 30_000_000
                if labels[0]:
                    found.table.phases[program].append((begin_ns, at_ns, labels[0]))
                labels.append(labels.pop(0))
            return found.read() > 90

        assert found.read() == 0
        until(read, "samples", 60)
    assert {phase for _, phase in found.counts} == {"backward", ""}
    backward = sum(samples for (_, phase), samples in found.counts.items() if phase)
    assert 0.45 < backward / found.counts.total() < 0.87


def cpu_ns(pid: int) -> int:
    used = procfs.read_schedstat(pid, pid)
    return used.cpu_ns if used is not None else 0


@sampled
def test_nothing_is_left_open(program: int) -> None:
    held = set(os.listdir("/proc/self/fd"))
    with sampling(program) as found:
        until(found.read, "samples", 60)
        assert set(os.listdir("/proc/self/fd")) != held
        begin_ns = cpu_ns(program)
        until(lambda: cpu_ns(program) > begin_ns + 200_000_000, "CPU time")
        found.table.roles = {}
        assert [record.pid for record in found.source.read()] == [program]  # what it ran last
        assert set(os.listdir("/proc/self/fd")) == held


@sampled
def test_without_handles_it_waits_until_there_are_some(program: int) -> None:
    with sampling(program) as found:
        found.table.running[program] = [ThreadCpu(program, "", 1.0, "running")]
        with no_handles():
            assert list(found.source.read()) == []
        until(found.read, "samples", 60)


REFUSED = """
from tests.sources.test_native import sampling
from tuimon.records import ThreadCpu
from tuimon.sources.base import Done
import os
with sampling(os.getpid()) as found:
    found.table.running[os.getpid()] = [ThreadCpu(os.getpid(), "", 1.0, "running")]
    records = []
    try:
        for record in found.source.read():
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
