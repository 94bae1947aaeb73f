"""ProcessSource on real processes; the rows of threads from literal ones; windows that are long."""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest

from tests.sources.programs import running
from tests.waiting import until
from tuimon.proc.procfs import Stat
from tuimon.records import Process, Record, ThreadCpu, Threads
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.processes.followed import FollowedProcess, WriteMeter, list_rows
from tuimon.sources.processes.roles import ProcessFacts
from tuimon.sources.processes.source import CostMeter, ProcessSource

FAMILY = """
import os, subprocess, sys, threading
worker = os.fork()
if not worker:
    threading.Event().wait()
sleep = subprocess.Popen(["sleep", "1000"])
print(worker, sleep.pid, flush=True)
sys.stdin.readline()
sleep.kill(); sleep.wait()
os.kill(worker, 9); os.waitpid(worker, 0)
threading.Event().wait()
"""


class SourceReader:
    """Reads a source again and again and keeps its records."""

    def __init__(self, source: ProcessSource) -> None:
        self.source = source
        self.records: list[Record] = []
        self.pause_s = 0.0

    def when(self, pid, condition, kind=Process):
        """The latest record of a process that fulfils a condition, once there is one."""

        def found():
            time.sleep(self.pause_s)
            self.records += self.source.read()
            records = [r for r in self.records if isinstance(r, kind) and r.pid == pid and condition(r)]
            return records[-1] if records else None

        return until(found, f"{kind.__name__} of {pid}")


def test_a_family_appears_and_ends(tmp_path: Path) -> None:
    with running(tmp_path, FAMILY) as root:
        children = f"/proc/{root.pid}/task/{root.pid}/children"
        child, sleep = map(int, Path(children).read_text().split())
        table = ProcessTable(root.pid, "run")
        reader = SourceReader(ProcessSource(table, 0.05))
        main = reader.when(root.pid, lambda p: p.role == "trainer")
        assert main.command == [sys.executable, str(tmp_path / "program.py")]
        assert (main.ppid, main.markers, main.ended) == (os.getpid(), False, False)
        assert abs(main.start_unix_s - os.stat(f"/proc/{root.pid}").st_ctime) < 5
        assert reader.when(child, lambda p: p.role == "child").ppid == root.pid
        table.note_seen(child, "loading")
        reader.when(child, lambda p: p.role == "worker")
        assert reader.when(child, lambda row: bool(row.private_bytes), Threads).own_bytes
        opened = reader.when(root.pid, lambda row: row.open_files is not None, Threads).open_files
        assert opened is not None and 3 <= opened[0] < opened[1]
        assert reader.when(sleep, lambda p: p.role == "other").command == ["sleep", "1000"]
        assert set(table.pids()) == {root.pid, child, sleep}
        assert table.roles == {root.pid: "trainer", child: "worker", sleep: "other"}
        assert root.stdin
        root.stdin.write("\n")
        root.stdin.flush()
        reader.when(child, lambda p: p.ended)
        reader.when(sleep, lambda p: p.ended)
        assert table.pids() == (root.pid,)
        root.kill()
        reader.when(root.pid, lambda p: p.ended)  # a zombie has ended
        assert table.pids() == ()


ENDED_WORKER = """
import ctypes, os, sys
worker = os.fork()
if not worker:
    ctypes.CDLL(None).prctl(15, b"pt_data_worker")  # PR_SET_NAME, as torch has it
    os._exit(0)
os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
print(worker, flush=True)
sys.stdin.readline()
"""


def test_a_worker_that_had_ended_before_it_was_found(tmp_path: Path) -> None:
    with running(tmp_path, ENDED_WORKER) as root:
        worker = int(Path(f"/proc/{root.pid}/task/{root.pid}/children").read_text())
        reader = SourceReader(ProcessSource(ProcessTable(root.pid, None), 0.05))
        found = reader.when(worker, lambda p: p.ended)
        assert (found.role, found.ppid) == ("worker", root.pid)


def test_a_shell_that_becomes_python(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(1000)\n")
    shell = subprocess.Popen(
        ["sh", "-c", f"read line; exec {sys.executable} {tmp_path}/train.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"RANK": "2", "WORLD_SIZE": "4"},
    )
    try:
        reader = SourceReader(ProcessSource(ProcessTable(shell.pid, "run"), 0.05))
        reader.when(shell.pid, lambda p: p.role == "other" and p.command[:1] == ["sh"])
        shell.stdin.write("\n")  # type: ignore[union-attr]  # is a pipe
        shell.stdin.flush()  # type: ignore[union-attr]
        # in the midst of the exec a process has no environment
        python = reader.when(shell.pid, lambda p: p.role == "trainer" and p.rank is not None)
        assert python.command[-1].endswith("train.py")
        assert (python.rank, python.world_size) == (2, 4)
        assert python.markers_reason == "started with an environment of its own, without tuimon's PYTHONPATH"
    finally:
        shell.kill()
        shell.communicate()


THREADS = r"""
import ctypes, sys, threading, time
libc = ctypes.CDLL(None)
def named(name, work):
    def run():
        libc.prctl(15, name)
        work()
    threading.Thread(target=run, daemon=True).start()
def busy():
    while True:
        sum(range(10000))
event = threading.Event()
named(b") R 1 (\n", busy)
for i in range(5):
    named(b"pt_autograd_%d" % i, event.wait)
named(b"\xff[bold]", event.wait)
print("up", flush=True)
event.wait()
"""


def test_threads_of_a_process(tmp_path: Path) -> None:
    with running(tmp_path, THREADS) as root:
        reader = SourceReader(ProcessSource(ProcessTable(root.pid, "run"), 0.2))
        named = {") R 1 (\n", "pt_autograd_*", "\ufffd[bold]"}
        record = reader.when(root.pid, lambda r: named <= {t.name for t in r.threads} and r.window_s > 0.01, Threads)
        rows = {row.name: row for row in record.threads}
        assert record.threads[0].tid == root.pid
        assert rows["pt_autograd_*"].count == 5
        assert rows["pt_autograd_*"].state == "waiting"
        reader.pause_s = 0.3  # the kernel counts in ticks of a few milliseconds
        busy = reader.when(root.pid, lambda r: r.window_s > 0.25 and (r.cpu_ratio or 0) > 0.1, Threads)
        name, ratio = max(((row.name, row.cpu_ratio or 0.0) for row in busy.threads), key=lambda pair: pair[1])
        assert name == ") R 1 (\n"
        assert 0.1 < ratio < 1.3
        assert busy.rss_bytes and busy.rss_bytes > 1 << 20


def row(tid: int, name: str, cpu_ratio: float | None, state: str = "waiting", delay: float | None = 0.0) -> ThreadCpu:
    return ThreadCpu(tid, name, cpu_ratio, state, delay)


def test_rows_are_folded_by_name() -> None:
    rows = [
        row(1, "python", 0.0),
        row(5, "omp-3", 0.001, delay=0.2),
        row(4, "omp-2", 0.002, delay=0.1),
        row(6, "python", 0.0),
        row(7, "python", 0.0),
        row(8, "omp-4", 0.5),
        row(9, "io", 0.0, state="disk"),
        row(10, "new", None),
    ]
    listed, folded = list_rows(rows, main=1)
    assert folded == 0
    assert listed == [
        row(1, "python", 0.0),
        row(8, "omp-4", 0.5),
        ThreadCpu(4, "omp-*", 0.003, "waiting", 0.2, 2),
        ThreadCpu(6, "python", 0.0, "waiting", 0.0, 2),
        row(9, "io", 0.0, state="disk"),
        row(10, "new", None),
    ]


def test_own_cost() -> None:
    cpu_s = [1.0]
    meter = CostMeter(1.0, own_cpu_s=lambda: cpu_s[0])
    assert list(meter.read(100.0, 0.0)) == []
    cpu_s[0] = 1.02
    (cost,) = meter.read(101.0, 0.03)
    assert (cost.cpu_ratio, cost.sampler_cpu_ratio) == (0.05, 0.03)
    assert cost.rss_bytes > 1 << 20
    assert list(meter.read(102.0, 0.03)) == []
    records = [cost for t in range(103, 121) for cost in meter.read(float(t), 0.03)]
    assert len(records) == 9
    assert records[-1].cpu_ratio == 0.0


class Meter:
    """Stands for the threads of one process."""

    def __init__(self):
        self.process = Stat("python", "S", 1, 0, 0, 2, 5, 1 << 20)
        self.reads, self.faults = 0, []

    def read_process(self):
        pass

    def read(self):
        self.reads += 1

    def end_window(self, window_s):
        return [], 0, 0.1, []


class Rank(FollowedProcess):
    """One whose facts do not change."""

    def refresh(self, name, *, orphaned):
        self.reads += 1


class Run:
    """Ranks that are known already, read second by second."""

    def __init__(self, ranks):
        self.now_s = 100.0
        table = self.table = ProcessTable(1, "r1")
        self.source = ProcessSource(table, 1.0, lambda: self.now_s)
        self.source.discover = lambda: None
        self.source.changed = lambda roles, now_s: ()
        for pid in range(2, ranks + 2):
            self.source.known[pid] = Rank(5, ProcessFacts(pid, 1, "python", ("python",), True), Meter())
            self.source.known[pid].reported = object()
        table.publish(dict.fromkeys(self.source.known, 5), {})
        with mock.patch("tuimon.proc.procfs.start_ticks", lambda pid: 5):
            for pid in self.source.known:
                table.note_seen(pid, "marked")

    def records(self, seconds):
        found = Counter()
        for _ in range(seconds):
            self.now_s += 1.0
            found.update(record.pid for record in self.source.read() if isinstance(record, Threads))
        return found


@pytest.mark.parametrize(("ranks", "records", "in_focus"), [(8, 40, 40), (64, 5, 40)])
def test_the_threads_of_ranks_out_of_focus_are_read_less_often_where_there_are_many(ranks, records, in_focus):
    run = Run(ranks)
    run.table.focus = frozenset({3})
    run.records(20)  # new ones are read every second
    before = {pid: followed.meter.reads for pid, followed in run.source.known.items()}
    found = run.records(40)
    assert found[3] == in_focus
    assert {found[pid] for pid in found if pid != 3} == {records}
    assert {run.source.known[pid].meter.reads - before[pid] for pid in found if pid != 3} == {records}


def test_a_checkpoint_that_is_being_written(tmp_path: Path) -> None:
    writing = WriteMeter(os.getpid())
    assert writing.read() == (None, "")
    with (tmp_path / "last.pt").open("wb") as file, (tmp_path / "data").open("wb+") as other:
        other.write(b"x")
        file.write(bytes(8 << 20))
        written, file_system = writing.read()
    assert written is not None and 8 << 20 <= written < 9 << 20
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    inside = [words for words in mounts if f"{tmp_path}/".startswith(words[1].rstrip("/") + "/")]
    assert file_system == max(reversed(inside), key=lambda words: len(words[1]))[2]  # the latest of the longest


def test_a_process_that_is_gone() -> None:
    assert WriteMeter(2**22 + 1).read() == (None, "")
