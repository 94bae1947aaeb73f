"""Whom the sampler takes when, within its CPU budget, and on which core."""

import contextlib
import ctypes
import os
import struct
import threading
from collections import Counter

import pytest

from tests.sources.programs import running
from tests.sources.stacks.sampling import trainer
from tests.waiting import until
from tuimon.proc import procfs
from tuimon.proc.ring_facts import RingFacts
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks import pyspy
from tuimon.sources.stacks.schedule import (
    CostModel,
    PlannedWindow,
    SampledProcesses,
    WindowSchedule,
    plan_window,
    split_budget,
)
from tuimon.sources.stacks.source import StackSource


def test_the_cost_of_a_window_is_learnt() -> None:
    cost = CostModel()
    for instants in (12, *[40] * 20):
        cost.add_window(instants, 0.05 + instants * 0.001)
    assert cost.window_cpu_s(20, 2.0) == pytest.approx(0.09, rel=0.05)
    assert cost.affordable_hz(0.09, 2.0) == pytest.approx(20, rel=0.05)


def test_a_window_whose_cost_cannot_be_measured_is_not_free() -> None:
    cost = CostModel()
    cost.add_window(12, 0.0)
    assert cost.window_cpu_s(20, 2.0) > 0.001
    assert plan_window(cost, 0.03) == (100, 2.0, True)


def test_a_plan_follows_what_is_asked_and_what_it_costs() -> None:
    cheap, dear, too_dear = CostModel(1), CostModel(1), CostModel(1)
    for _ in range(60):
        dear.add_window(50, 1.0)
        too_dear.add_window(10, 2.0)
    assert plan_window(cheap, 1.0) == (100, 2.0, True)
    assert plan_window(cheap, 1.0, limit_hz=30) == (30, 2.0, True)
    assert plan_window(cheap, 1.0, limit_hz=0.3) == (1, 2.0, True)
    assert plan_window(cheap, 0.03).rate_hz >= 20
    assert plan_window(CostModel(20), 0.03).window_s > plan_window(cheap, 0.03).window_s
    assert plan_window(dear, 0.03).rate_hz <= 2
    paused = plan_window(too_dear, 0.03)
    assert (paused.rate_hz, paused.continuous) == (1, False)


@pytest.mark.parametrize(
    ("trainers", "workers", "shares"),
    [
        (1, 0, (0.0276, 0.0, 0.0)),
        (1, 8, (0.01932, 0.0, 0.00828)),
        (64, 0, (0.01104, 0.01656, 0.0)),
        (0, 3, (0.0, 0.0, 0.0276)),
        (0, 0, (0.0, 0.0, 0.0)),
    ],
)
def test_the_first_rank_gets_its_share(trainers: int, workers: int, shares: tuple[float, float, float]) -> None:
    got = split_budget(0.03, trainers, workers)
    assert got[:3] == pytest.approx(shares)
    assert sum(got) <= 0.03 + 1e-12


class Simulated:
    """WindowSchedule against a clock of our own: each window costs what the process really costs."""

    def __init__(self, budget: float, instants_s: dict[int, float]) -> None:
        self.schedule = WindowSchedule(budget, 100.0, 0.0)
        self.instants_s = instants_s
        self.running: dict[int, tuple[float, PlannedWindow]] = {}
        self.cpu_s = 0.0
        self.sampled_s: Counter[int] = Counter()
        self.most = 0

    def run(self, seconds: float, begin_s: float = 0.0) -> None:
        trainers = list(self.instants_s)
        for tenth in range(int(begin_s * 10), int((begin_s + seconds) * 10)):
            now_s = tenth / 10
            for pid, (due_s, window) in list(self.running.items()):
                if now_s >= due_s:
                    del self.running[pid]
                    instants = max(round(window.plan.rate_hz * window.plan.window_s), 1)
                    cpu_s = 0.01 + instants * self.instants_s[pid]
                    window.settle(instants, cpu_s)
                    self.cpu_s += cpu_s
                    self.sampled_s[pid] += window.plan.window_s
            found = self.schedule.due_windows(
                trainers, [], lambda pid: (pid, 1), self.running.keys(), now_s, lambda _: False
            )
            for window in found:
                self.running[window.key[0]] = (now_s + window.plan.window_s, window)
            self.most = max(self.most, len(self.running))


NO_PID = 1 << 23  # pids beyond what the kernel gives out


@pytest.mark.parametrize(("processes", "instant_s"), [(1, 0.0005), (10, 0.0005), (64, 0.0005), (1, 0.05), (3, 0.05)])
def test_the_budget_is_kept_whatever_the_number_of_processes(processes: int, instant_s: float) -> None:
    trainers = list(range(NO_PID, NO_PID + processes))
    simulated = Simulated(0.03, dict.fromkeys(trainers, instant_s))
    simulated.run(600)
    assert 0.012 < simulated.cpu_s / 600 < 0.032
    assert all(simulated.sampled_s[pid] > 0 for pid in trainers)  # nobody is forgotten
    if instant_s < 0.01:
        assert simulated.sampled_s[trainers[0]] > 0.93 * 600  # in steps of a tenth of a second
    if processes == 10:  # windows of 20 s, staggered at the start; the last ones have not ended
        assert all(seconds > 0.88 * 600 for seconds in simulated.sampled_s.values())


def test_a_training_that_has_no_core_to_spare_is_spared_once_it_is_known() -> None:
    trainer = NO_PID
    full, spared = Simulated(0.02, {trainer: 0.00025}), Simulated(0.02, {trainer: 0.00025})
    spared.schedule.are_cores_crowded = True
    for simulated in (full, spared):
        simulated.run(30)
    assert spared.cpu_s == full.cpu_s
    for simulated in (full, spared):
        simulated.cpu_s, simulated.sampled_s[trainer] = 0.0, 0.0
        simulated.run(300, begin_s=30)
    assert spared.cpu_s < 0.3 * full.cpu_s
    assert spared.sampled_s[trainer] > 0.9 * 300  # all the time as well, but more rarely


def test_training_processes_by_rank_and_their_workers_before_other_children(monkeypatch):
    table = ProcessTable(1, "r1")
    roles = {10: "trainer", 11: "trainer", 19: "child", 20: "worker", 30: "other"}
    table.publish(dict.fromkeys(roles, 5), roles)
    monkeypatch.setattr("tuimon.proc.procfs.start_ticks", lambda pid: 5)
    for pid in (10, 11):
        table.note_seen(pid, "marked")
    table.facts = {10: RingFacts({"rank": 1}), 11: RingFacts({"rank": 0})}
    sampled = SampledProcesses(table)
    sampled.find(0.0)
    assert (sampled.trainers, sampled.workers) == ([11, 10], [20, 19])
    assert sampled.keys == {pid: (pid, 5) for pid in (11, 10, 20, 19)}
    assert not sampled.are_due(0.0)
    table.sampled_first = 10
    assert sampled.are_due(0.0)
    sampled.find(0.0)
    assert sampled.trainers == [10, 11]


SPINS = "print('up', flush=True)\nwhile True: pass"
SLEEPS = "import time; print('up', flush=True); time.sleep(600)"


def looks(monkeypatch: pytest.MonkeyPatch, *runnable: int) -> pyspy.Cores:
    """Four cores after all these numbers of runnable threads, the one that looks included."""
    found = pyspy.Cores(4)
    for number in runnable:
        monkeypatch.setattr(procfs, "read_bytes", lambda *_, n=number: f"0.20 0.18 0.12 {n}/80 11206\n".encode())
        found.sample()
    return found


def test_cores_are_crowded_where_at_a_good_part_of_the_looks_none_was_free(monkeypatch):
    assert not looks(monkeypatch).are_crowded
    assert not looks(monkeypatch, *[1, 2, 3, 4] * 10).are_crowded  # with the one that looks: three others at most
    assert not looks(monkeypatch, 5, *[2] * 9).are_crowded
    assert looks(monkeypatch, *[5, 9, 2, 2, 2] * 4, 5).are_crowded  # a pool at work, and one thread alone
    assert not looks(monkeypatch, *[9] * 100, *[2] * 32).are_crowded  # the latest ones count


def test_a_sampler_is_moved_to_the_core_of_the_thread_and_follows_it(tmp_path):
    here = sorted(os.sched_getaffinity(0))
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    with running(folders[0], SPINS) as target, running(folders[1], SLEEPS) as sampler:
        for core in (here[0], here[-1], here[0]):
            os.sched_setaffinity(target.pid, {core})
            until(lambda core=core: _core(target.pid) == core, f"on core {core}")
            pyspy.move(sampler.pid, target.pid)
            assert os.sched_getaffinity(sampler.pid) == {core}


@pytest.mark.skipif(pyspy.find() is None, reason="py-spy is not installed")
@pytest.mark.parametrize("crowded", [True, False])
def test_windows_are_kept_there_while_no_core_is_free(monkeypatch, tmp_path, crowded):
    """Those of who holds the GIL as well."""
    here = os.sched_getaffinity(0)
    monkeypatch.setattr(pyspy.Cores, "are_crowded", crowded)
    with running(tmp_path, SPINS) as target:
        core = min(here)
        os.sched_setaffinity(target.pid, {core})
        source = StackSource(trainer(target.pid), max_cpu_ratio=1.0)
        try:
            until(lambda: list(source.read()), "a window has ended")
            seen: set[frozenset[int]] = set()
            until(lambda: _gil_runs(source, seen), "who holds the GIL is sampled")
        finally:
            source.close()
    assert seen == {frozenset({core} if crowded else here)}


def _gil_runs(source: StackSource, seen: set[frozenset[int]]) -> bool:
    """Reads the source; notes where its children may run."""
    list(source.read())
    recordings = [running.recording for running in source.running.values()]
    gil = source.gil.running
    for recording in (*recordings, *([gil] if gil else [])):
        for tid in procfs.thread_ids(recording.child):
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                seen.add(frozenset(os.sched_getaffinity(tid)))
    return gil is not None


def _core(pid: int) -> int | None:
    thread = procfs.read_thread_stat(pid, pid)
    return thread.core if thread else None


# -- short turns on a core, as the kernel notes them

#: sched_getattr(2), by machine.
CALLS = {"x86_64": 315, "aarch64": 275}
BEGINS_THREAD = """
import sys, threading, time
print("up", flush=True)
sys.stdin.readline()
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("begun", flush=True)
time.sleep(600)
"""


def turn_ns(tid):
    found = ctypes.create_string_buffer(56)
    assert ctypes.CDLL(None).syscall(CALLS[os.uname().machine], tid, found, 56, 0) == 0
    return struct.unpack("=IIQiIQQQII", found.raw)[5]


KERNEL = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])


@pytest.mark.skipif(KERNEL < (6, 12) or os.uname().machine not in CALLS, reason="this kernel has no turns to ask for")
def test_a_process_and_the_threads_that_it_begins_get_short_turns(tmp_path):
    with running(tmp_path, BEGINS_THREAD) as process:
        usual_ns = turn_ns(process.pid)
        assert pyspy.take_short_turns(process.pid)
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline()
        (thread,) = {int(tid) for tid in os.listdir(f"/proc/{process.pid}/task")} - {process.pid}
        assert turn_ns(process.pid) == turn_ns(thread) == 100_000 < usual_ns
    assert turn_ns(threading.get_native_id()) == usual_ns  # ours stay as they were


def test_its_niceness_stays(tmp_path):
    with running(tmp_path, SLEEPS) as process:
        os.setpriority(os.PRIO_PROCESS, process.pid, 7)
        pyspy.take_short_turns(process.pid)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 7


def test_what_has_ended_and_what_the_kernel_runs_otherwise_is_left_alone(tmp_path):
    with running(tmp_path, SLEEPS) as process:
        os.sched_setscheduler(process.pid, os.SCHED_BATCH, os.sched_param(0))
        assert not pyspy.take_short_turns(process.pid)
        assert os.sched_getscheduler(process.pid) == os.SCHED_BATCH
    assert not pyspy.take_short_turns(process.pid)


def test_another_machine_is_not_asked(monkeypatch):
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "here", "6.18", "", "riscv64")))
    assert not pyspy.take_short_turns(os.getpid())
