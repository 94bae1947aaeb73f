"""Taking all stacks once: when, of whom, grouped, within bounds."""

from __future__ import annotations

import os

import pytest

from tuimon.records import RankCollective, Standstill
from tuimon.sources.base import Suspect, Suspicion
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks.frames.frame_ids import RawFrame
from tuimon.sources.stacks.pyspy.dump import DumpError, DumpFrame, DumpThread
from tuimon.sources.standstill import source as source_file
from tuimon.sources.standstill.source import DEPTH, GROUPS, THREADS, StandstillSource, grouped
from tuimon.sources.standstill.stacks import ProcessStacks, ThreadStack, take_stacks
from tuimon.sources.standstill.waiting import Reading, bytes_per_s, read_io

ME = os.getpid()
MAIN, GATHER = RawFrame("/home/me/train.py", 50, "main"), RawFrame("/site-packages/torch/c10d.py", 9, "all_reduce")
HOOK = RawFrame("/site-packages/tuimon/agent/hooks.py", 7, "tuimon_backward")


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def run(monkeypatch):
    """A source over a run of this one process; ``step(seconds)`` reads it, ``io`` is what it has read and written."""
    clock, taken = Clock(), []

    def take(binary, pids, since_s):
        taken.append(list(pids))
        return {pid: ProcessStacks((ThreadStack(pid, (MAIN, HOOK, GATHER)),)) for pid in pids}

    source = StandstillSource(ProcessTable(ME, None), clock, lambda: None, take)

    class Run:
        io = 0
        stacks_taken = taken

        def step(self, seconds: float, since_s: float | None = 80.0) -> list[Standstill]:
            clock.now_s += seconds
            source.inspect(lambda: None if since_s is None else Suspicion(since_s, (Suspect(ME, "trainer", 3),)))
            return list(source.read())

    made = Run()
    monkeypatch.setattr(source_file, "read_io", lambda pid, now_s: Reading(now_s, made.io, 0))
    return made


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
    assert len(run.stacks_taken) == 2


def test_what_torch_has_recorded_comes_after_the_stacks(monkeypatch):
    clock = Clock()
    row = RankCollective(3, "0:default_pg", 7, "all_reduce", 7)

    class Dumps:
        asked, waiting = False, [[], [row], []]

        def request(self):
            self.asked = True

        def read_new(self):
            return self.waiting.pop(0)

    dumps = Dumps()
    source = StandstillSource(
        ProcessTable(ME, None), clock, lambda: None, lambda binary, pids, since_s: {ME: ProcessStacks()},
        lambda suspects, quiet_s: dumps,
    )  # fmt: skip
    source.inspect(lambda: Suspicion(80.0, (Suspect(ME, "trainer", 3), Suspect(1, "worker", 3))))
    found = []
    for seconds in (0.0, 2.5, 0.5, 0.5, 0.5):
        clock.now_s += seconds
        found.append(list(source.read()))
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
    assert record.groups and len(run.stacks_taken) == 1


def test_what_this_process_writes_is_measured():
    before = read_io(ME, 1.0)
    if before is None:
        pytest.skip("the kernel does not count what a process reads and writes")
    with open(os.devnull, "wb", 0) as file:
        file.write(bytes(1 << 22))
    assert bytes_per_s(before, read_io(ME, 2.0)) >= 1 << 20
    assert bytes_per_s(None, before) is None and read_io(1 << 30, 1.0) is None


def test_groups_are_bounded():
    deep = tuple(RawFrame("/home/me/net.py", n, "forward") for n in range(DEPTH + 10))
    many = [(pid, ThreadStack(pid, deep)) for pid in range(1, THREADS + 3)]
    others = [(9000 + n, ThreadStack(9000 + n, (MAIN._replace(line=n),))) for n in range(GROUPS + 4)]
    idle = (ME, ThreadStack(ME + 1, (RawFrame("/usr/lib/python3.11/threading.py", 1, "wait"),)))
    found = grouped([*others, *many, idle], lambda pid, frame: "x = 1")
    first = found.groups[0]
    assert (len(found.groups), found.folded, found.idle) == (GROUPS, 5, 1)
    assert (len(first.frames), first.outer, len(first.threads), first.more) == (DEPTH, 10, THREADS, 2)
    assert first.frames[-1].line == DEPTH + 9 and first.frames[0].source == "x = 1"


def test_a_process_that_cannot_be_read_says_why_and_the_others_are_there():
    def dump(binary, pid, timeout_s):
        if pid == 2:
            raise DumpError("Permission Denied: Try running again with elevated permissions")
        return [
            DumpThread(
                1, False, False, [DumpFrame("Loader.read", "data.py", 40), DumpFrame("main", "train.py", 5)], pid
            )
        ]

    found = take_stacks("py-spy", [1, 2], 0.0, dump)
    assert found[1].threads == (ThreadStack(1, (RawFrame("train.py", 5, "main"), RawFrame("data.py", 40, "read"))),)
    assert found[2].threads == () and found[2].unknown


@pytest.mark.parametrize("is_alive", [True, False])
def test_a_training_in_another_thread_is_listed_first_or_said_to_have_ended(is_alive):
    clock, stands = Clock(), RawFrame("/usr/lib/python3.11/concurrent/futures/thread.py", 81, "_worker")
    threads = (ThreadStack(ME, (MAIN,)), *((ThreadStack(7, (stands,)),) if is_alive else ()))
    source = StandstillSource(
        ProcessTable(ME, None), clock, lambda: None, lambda binary, pids, since_s: {ME: ProcessStacks(threads)}
    )
    source.inspect(lambda: Suspicion(80.0, (Suspect(ME, "trainer", None, 7),)))
    list(source.read())
    clock.now_s += 3
    (record,) = source.read()
    (process,) = record.processes
    assert (process.tid, process.unknown) == (7, None if is_alive else "its training thread has ended")
    assert [(ME, 7) in group.threads for group in record.groups] == [False, True][: 1 + is_alive]
