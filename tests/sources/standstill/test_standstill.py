"""Where a standstill lies: stacks taken, what is waited for, and what is left of it."""

import os
import subprocess
import sys
from collections import Counter, defaultdict

import psutil
import pytest

from tests.waiting import Clock, until
from tuimon.proc import connections, procfs
from tuimon.proc.ring_facts import RawFrame
from tuimon.records import RankCollective, StandingProcess, Standstill
from tuimon.sources import flight_recorders, standstill
from tuimon.sources.base import Suspicion
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.source_facts import ProcessCode
from tuimon.sources.stacks import pyspy
from tuimon.sources.stacks.pyspy import DumpError
from tuimon.sources.stacks.speedscope import SampledThread
from tuimon.sources.standstill import (
    GROUPS,
    LISTED_DEPTH,
    THREADS,
    BlockedThread,
    StandstillReading,
    StandstillSource,
    Usage,
    bytes_per_s,
    group_stacks,
    has_left,
    idle_peers,
    moving,
    take_reading,
    take_stacks,
)

ME = os.getpid()
MAIN, GATHER = RawFrame("/home/me/train.py", 50, "main"), RawFrame("/site-packages/torch/c10d.py", 9, "all_reduce")
HOOK = RawFrame("/site-packages/tuimon/agent/hooks.py", 7, "tuimon_backward")


def thread(tid, *stack):
    return SampledThread(tid, "", Counter([stack]))


class Run:
    """A source over a run of this one process; ``step(seconds)`` reads it, ``io`` is what it has read and written."""

    def __init__(self):
        self.clock, self.table = Clock(), ProcessTable(ME, None)
        self.source = StandstillSource(self.table, self.clock)
        self.stacks, self.taken, self.io = [thread(ME, MAIN, HOOK, GATHER)], [], 0
        self.suspects = (StandingProcess(ME, "trainer", 3),)

    def take_stacks(self, pids, since_s):
        self.taken.append(list(pids))
        return dict.fromkeys(pids, self.stacks)

    def step(self, seconds: float, since_s: float | None = 80.0) -> list[Standstill]:
        self.clock.now_s += seconds
        self.table.suspicion = None if since_s is None else Suspicion(since_s, self.suspects)
        return list(self.source.read())


@pytest.fixture
def run(monkeypatch):
    run = Run()
    monkeypatch.setattr(standstill, "take_stacks", run.take_stacks)
    monkeypatch.setattr(procfs, "read_io", lambda pid: procfs.ProcessIo(run.io, 0, 0))
    return run


def test_the_stacks_are_taken_once_a_standstill(run):
    assert run.step(0) == [] and run.step(1) == []
    (record,) = run.step(2)
    assert [(p.pid, p.rank, p.state, p.io_bytes_per_s) for p in record.processes] == [(ME, 3, "running", 0.0)]
    (group,) = record.groups
    assert [frame.function for frame in group.frames] == ["main", "all_reduce"]  # without our hook
    assert (group.threads, record.quiet_s) == ([(ME, ME)], 23.0)
    assert [run.step(10) for _ in range(5)] == [[]] * 5
    assert [run.step(10, since_s) for since_s in (None, 80.0, 80.0)] == [[]] * 3  # somebody computed for a moment
    run.step(1, None)  # steps went on
    assert run.step(1, 160.0) == [] and len(run.step(3, 160.0)) == 1
    assert len(run.taken) == 2


def test_what_torch_has_recorded_comes_after_the_stacks(run, monkeypatch):
    row = RankCollective(3, "0:default_pg", 7, "all_reduce", 7)

    class Dumps:
        asked, waiting = False, [[], [row], []]

        def request(self):
            self.asked = True

        def read_new(self):
            return self.waiting.pop(0)

    dumps = Dumps()
    monkeypatch.setattr(flight_recorders, "Recorders", lambda suspects, quiet_s: dumps)
    run.suspects = (StandingProcess(ME, "trainer", 3), StandingProcess(1, "worker", 3))
    found = [run.step(seconds) for seconds in (0.0, 2.5, 0.5, 0.5, 0.5)]
    assert [[type(record).__name__ for record in records] for records in found] == [
        [], ["Standstill"], [], ["Collectives"], [],
    ]  # fmt: skip
    assert dumps.asked
    assert found[3][0].ranks == [row]


def test_while_files_are_read_or_written_no_stacks_are_taken(run):
    run.step(0)
    for _ in range(3):
        run.io += 10_000_000
        (record,) = run.step(5)
        assert (record.moving, record.processes) == ([ME], [])
    (record,) = run.step(5)
    assert record.groups and len(run.taken) == 1


def test_what_this_process_writes_is_measured():
    before = Usage(1.0, 0.0, procfs.read_io(ME))
    if before.io is None:
        pytest.skip("the kernel does not count what a process reads and writes")
    with open(os.devnull, "wb", 0) as file:
        file.write(bytes(1 << 22))
    assert bytes_per_s(before, Usage(2.0, 0.0, procfs.read_io(ME))) >= 1 << 20
    assert bytes_per_s(None, before) is None and procfs.read_io(1 << 30) is None


def test_groups_are_bounded(tmp_path):
    file, code = tmp_path / "net.py", defaultdict(ProcessCode)
    file.write_text("x = 1\n" * 99)
    deep = tuple(RawFrame(str(file), n, "forward") for n in range(LISTED_DEPTH + 10))
    many = [(pid, thread(pid, *deep)) for pid in range(1, THREADS + 3)]
    others = [(9000 + n, thread(9000 + n, MAIN._replace(line=n))) for n in range(GROUPS + 4)]
    idle = (ME, thread(ME + 1, RawFrame("/usr/lib/python3.11/threading.py", 1, "wait")))
    found = group_stacks([*others, *many, idle], code)
    first = found.groups[0]
    assert (len(found.groups), found.folded, found.idle) == (GROUPS, 5, 1)
    assert (len(first.frames), first.outer, len(first.threads), first.more) == (LISTED_DEPTH, 10, THREADS, 2)
    assert first.frames[-1].line == LISTED_DEPTH + 9 and first.frames[0].source == "x = 1"


def test_a_package_that_is_the_program_is_the_users_code(tmp_path):
    file = tmp_path / "site-packages/nice/train.py"
    file.parent.mkdir(parents=True)
    file.write_text("x = 1\n" * 5)
    own = RawFrame(str(file), 5, "main")
    threads = [(ME, thread(ME + 1, own)), (ME, thread(ME + 2, own._replace(file="/site-packages/other/train.py")))]
    found = group_stacks(threads, {ME: ProcessCode(programs={"nice"})})
    assert (len(found.groups), found.idle) == (1, 1)
    assert (found.groups[0].frames[0].user, found.groups[0].frames[0].source) == (True, "x = 1")


def test_a_process_that_cannot_be_read_says_why_and_the_others_are_there(monkeypatch):
    def dump(binary, pid, timeout_s):
        if pid == 2:
            raise DumpError("Permission Denied: Try running again with elevated permissions")
        return [thread(1, MAIN)]

    monkeypatch.setattr(pyspy, "dump", dump)
    found = take_stacks([1, 2], 0.0)
    assert found[1] == [thread(1, MAIN)]
    assert isinstance(found[2], str)


@pytest.mark.parametrize("is_alive", [True, False])
def test_a_training_in_another_thread_is_listed_first_or_said_to_have_ended(run, is_alive):
    stands = RawFrame("/usr/lib/python3.11/concurrent/futures/thread.py", 81, "_worker")
    run.stacks = [thread(ME, MAIN), *([thread(7, stands)] if is_alive else [])]
    run.suspects = (StandingProcess(ME, "trainer", tid=7),)
    run.step(0)
    (record,) = run.step(3)
    (process,) = record.processes
    assert (process.tid, process.unknown) == (7, None if is_alive else "its training thread has ended")
    assert [(ME, 7) in group.threads for group in record.groups] == [False, True][: 1 + is_alive]


SCRIPT = """\
def fit(loader):
    for batch in loader:
        step(batch)
        report(batch)
    save()

def step(batch):
    backward()

def main():
    for epoch in range(3):
        fit([1])
        evaluate()
    serve()

main(); main()
"""


def at(*places):
    return lambda file: [RawFrame(file, line, function) for line, function in places]


TRAINED = at((16, "<module>"), (12, "main"), (3, "fit"), (8, "step"))


@pytest.mark.parametrize(
    ("now", "left"),
    [
        (at((16, "<module>"), (14, "main")), True),
        (at((16, "<module>"), (14, "main"), (99, "serve")), True),
        (at((16, "<module>"), (13, "main"), (99, "evaluate")), False),  # between epochs
        (at((16, "<module>"), (12, "main"), (5, "fit"), (99, "save")), False),
        (at((16, "<module>"), (12, "main"), (3, "fit"), (7, "step")), False),
        (at((16, "<module>"), (12, "main"), (2, "fit")), False),  # its next batch
        (TRAINED, False),
        (at((16, "<module>"), (99, "other")), False),  # one line calls both
        (at((1500, "_shutdown")), True),  # Python's own end
        (at(), False),
    ],
)
def test_it_has_left_them_below_all_of_them(tmp_path, now, left):
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    assert has_left(now(str(file)), TRAINED(str(file)), ProcessCode()) == left


READS = """
import os, sys
def read(path):
    print("reading", flush=True)
    with open(path) as file:
        return file.read()
read(sys.argv[1])
"""


@pytest.mark.skipif(pyspy.find() is None, reason="py-spy is not installed")
def test_a_process_that_waits_for_a_file(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    path = tmp_path / "train.py"
    path.write_text(READS)
    now_s = 100.0
    with subprocess.Popen([sys.executable, path, tmp_path / "fifo"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            while (stat := procfs.read_thread_stat(process.pid, process.pid)) is not None and stat.state != "S":
                pass  # it has yet to come to open()
            table = ProcessTable(process.pid, None)
            source = StandstillSource(table, lambda: now_s)
            table.suspicion = Suspicion(80.0, (StandingProcess(process.pid, "trainer", None),))
            assert list(source.read()) == []
            now_s += 3.0
            (record,) = source.read()
        finally:
            process.kill()
    (group,) = record.groups
    assert [frame.function for frame in group.frames] == ["<module>", "read"]
    assert (group.frames[-1].source, group.threads) == ("with open(path) as file:", [(process.pid, process.pid)])
    assert record.processes[0].unknown is None


def waiting(wake_ups=5, link="socket:[1]", t=0.0, cpu_s=0.0, io=0):
    return StandstillReading({7: BlockedThread(link, wake_ups)}, {}, {8: Usage(t, cpu_s, procfs.ProcessIo(io, 0, 0))})


def test_who_is_woken_in_one_transfer_receives_and_who_computes_works():
    still = waiting(t=2.0)
    assert moving(waiting(), still) == []
    assert moving(waiting(), waiting(6, t=2.0)) == [7]
    assert moving(waiting(), waiting(6, "socket:[2]", t=2.0)) == []  # it has come to another
    assert moving(waiting(), waiting(t=2.0, cpu_s=1.0)) == [8]
    assert moving(waiting(), waiting(t=2.0, io=1 << 20)) == [8]
    assert moving(waiting(), waiting(t=2.0, cpu_s=0.1, io=1000)) == []
    assert moving(StandstillReading({}, {}, {}), waiting(t=2.0, cpu_s=9.0)) == []


READ_STACKS = "import os, subprocess, sys\nr, w = os.pipe()\n"
CHILD = "subprocess.Popen([sys.executable, '-c', {!r}], pass_fds=[w])\nos.close(w)\nos.read(r, 1)"


def read_twice(code, child_state):
    """Two readings of a process that reads from a pipe, and ``idle_peers`` of them, as places in the run's pids."""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        pids = [process.pid]
        try:
            until(lambda: connections.blocked_on(process.pid, process.pid), "a read")
            if child_state:
                pids += until(lambda: [child.pid for child in psutil.Process(process.pid).children()], "a child")
                until(lambda: child_state(pids[1]), "the child to wait")
            suspect = StandingProcess(process.pid, "trainer", None)
            before, after = take_reading([suspect], pids, 0.0), take_reading([suspect], pids, 2.0)
            assert set(after.children) == set(pids[1:])
            found = idle_peers(process.pid, before, after, pids)
            return None if found is None else [pids.index(pid) for pid in found]
        finally:
            for pid in pids[1:]:
                os.kill(pid, 9)
            process.kill()


def test_peers_that_wait_themselves_are_named_and_none_that_may_go_on():
    assert read_twice(READ_STACKS + "os.read(r, 1)", None) == [0]
    waits = "import os; os.read(0, 1)"
    assert read_twice(READ_STACKS + CHILD.format(waits), lambda pid: connections.blocked_on(pid, pid)) == [0, 1]
    assert read_twice(READ_STACKS + CHILD.format("import time; time.sleep(99)"), connections.is_sleeping) is None
