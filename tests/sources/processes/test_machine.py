"""The machine's memory from files as the kernel writes them, and from the real ones."""

import os
from functools import cached_property
from pathlib import Path

import pytest

from tuimon.proc import procfs
from tuimon.records import PlacedProcess, ResourceUse
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.processes.machine import MachineSource

MEMINFO = "MemTotal: 16000000 kB\nMemFree: 100 kB\nMemAvailable: 4000000 kB\nHugePages_Total: 0\n" + "".join(
    f"{name}: 0 kB\n" for name in ("Buffers", "Cached", "Active", "Inactive", "Shmem", "Slab", "SReclaimable")
)


class Machine:
    """A root folder with a /proc and a /sys, and a clock."""

    def __init__(self, folder):
        self.folder = folder
        self.now_s = 10.0
        self.table = ProcessTable(os.getpid(), None)

    @cached_property
    def source(self):
        return MachineSource(self.table, lambda: self.now_s, str(self.folder))

    def write(self, path, text):
        file = self.folder / path.format(pid=os.getpid())
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def read(self):
        return list(self.source.read())


@pytest.fixture
def machine(tmp_path):
    """One that tells of its memory."""
    machine = Machine(tmp_path)
    machine.write("proc/meminfo", MEMINFO)
    return machine


def test_nothing_is_made_up_where_nothing_is_told(tmp_path):
    assert Machine(tmp_path).read() == []


def test_busy_cores_are_those_of_all_programs_between_two_reads(machine, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 2})
    of_all = "cpu  9000 900 900 90000 50 10 20 500 300 0\n"
    before = _core(0, 600, 100, 150, 5, 10, 400), _core(1, 7000, 0, 0, 0, 0, 0), _core(2, 400, 0, 50, 5, 10, 100)
    machine.write("proc/stat", "".join((of_all, *before)))
    (first,) = machine.read()
    machine.now_s += 5.0
    after = _core(0, 1000, 200, 200, 15, 10, 500), _core(1, 9000, 0, 0, 0, 0, 0), _core(2, 600, 0, 80, 5, 20, 400)
    machine.write("proc/stat", "".join((of_all, *after)))
    (second,) = machine.read()
    assert first.busy_cores is first.stolen_cores is first.held_cores is first.cpu_limit_cores is None
    ticks = 600 + 100 + 80 + 10 + 10  # user, nice, system, irq, softirq: not idle, iowait, stolen
    per_s = os.sysconf("SC_CLK_TCK")
    assert second.busy_cores == pytest.approx(ticks / per_s / 5.0, abs=0.001)
    assert second.stolen_cores == pytest.approx(400 / per_s / 5.0, abs=0.001)
    assert second.held_cores is None


def _core(number, user, nice, system, irq, softirq, steal):
    return f"cpu{number} {user} {nice} {system} 90000 50 {irq} {softirq} {steal} 300 0\n"


_VERSION_1 = {
    "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
}


@pytest.mark.parametrize(
    ("groups", "limits", "stat", "throttled"),
    [
        ("0::/jobs/mine\n", {"sys/fs/cgroup/jobs/cpu.max": "150000 100000\n"}, "jobs", "throttled_usec {}000000"),
        ("4:cpu,cpuacct:/box\n3:cpuset:/\n", _VERSION_1, "cpu,cpuacct", "throttled_time {}000000000"),
    ],
)
def test_a_cpu_limit_and_what_it_held_back(machine, groups, limits, stat, throttled):
    machine.write("proc/stat", "cpu  0 0\n" + _core(0, 1, 1, 1, 1, 1, 1))
    machine.write("proc/{pid}/cgroup", groups)
    for path, text in limits.items():
        machine.write(path, text)
    for seconds in (3, 10):
        machine.write(f"sys/fs/cgroup/{stat}/cpu.stat", f"nr_throttled 9\n{throttled.format(seconds)}\n")
        (record,) = machine.read()
        machine.now_s += 5.0
    assert (record.cpu_limit_cores, record.held_cores) == (1.5, 7 / 5.0)


@pytest.mark.parametrize(
    ("masks", "own", "cores"),
    [
        ({70: "0", 71: "0", 72: "0-3"}, 4, "0"),  # the shell that started it may use all
        ({70: "0", 71: "2-3"}, 4, "0,2-3"),
        ({70: "0-3"}, 4, None),
        ({70: "0-127"}, 4, None),  # the machine could have more, and has not
        ({70: "0-127"}, 1, "0-3"),  # tuimon is kept to one core, the training is not
        ({}, 4, None),
    ],
)
def test_the_cores_that_the_run_is_kept_to(machine, monkeypatch, masks, own, cores):
    """A training, pid 70, and its worker, pid 71, on a machine of four cores."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: frozenset(range(own)))
    machine.write("proc/stat", "cpu  0 0\n" + "".join(_core(number, number, 0, 0, 0, 0, 0) for number in range(4)))
    machine.table.publish({70: 1, 71: 2, 72: 3}, {70: "trainer", 71: "worker", 72: "other"})
    for pid, mask in masks.items():
        status = f"Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t{mask}\n"
        machine.write(f"proc/{pid}/status", status)
    (record,) = machine.read()
    assert record.run_cores == cores


def test_swapping_is_a_rate_between_two_looks(machine):
    machine.write("proc/vmstat", "nr_free_pages 5\npswpin 100\npswpout 1000\n")
    (first,) = machine.read()
    machine.now_s += 4.0
    machine.write("proc/vmstat", "nr_free_pages 5\npswpin 100\npswpout 1400\n")
    (second,) = machine.read()
    assert first.swap_out_bytes_per_s is None
    assert (second.swap_in_bytes_per_s, second.swap_out_bytes_per_s) == (0, 100 * procfs.PAGE_BYTES)
    assert second.window_s == 4.0


def test_pressure(machine):
    machine.write("proc/pressure/memory", "some avg10=12.50 avg60=1.00 avg300=0.10 total=9\nfull avg10=3.00 total=1\n")
    assert machine.read()[0].stalled_ratio == 0.125


def test_the_group_with_the_least_room_counts(tmp_path):
    machine = Machine(tmp_path)
    machine.write("proc/{pid}/cgroup", "0::/jobs/mine\n")
    machine.write("sys/fs/cgroup/jobs/mine/memory.max", "max\n")
    machine.write("sys/fs/cgroup/jobs/mine/memory.current", "5000\n")
    machine.write("sys/fs/cgroup/jobs/memory.max", "8000\n")
    machine.write("sys/fs/cgroup/jobs/memory.current", "7000\n")
    machine.write("sys/fs/cgroup/jobs/memory.stat", "anon 6000\ninactive_file 500\n")
    (record,) = machine.read()
    assert (record.limit_bytes, record.limit_used_bytes, record.total_bytes) == (8000, 6500, None)


@pytest.mark.parametrize(
    ("listed", "counter", "text"),
    [
        ("0::/jobs/mine\n", "sys/fs/cgroup/jobs/mine/memory.events", "oom {n}\noom_kill {n}\n"),
        ("0::/\n4:cpu,memory:/hosts/box\n", "sys/fs/cgroup/memory/memory.oom_control", "under_oom 0\noom_kill {n}\n"),
    ],
)
def test_kills_for_memory_are_counted_from_now_on_and_beyond_the_end(machine, listed, counter, text):
    machine.write("proc/{pid}/cgroup", listed)
    assert machine.read()[0].oom_kills is None
    machine.write(counter, text.format(n=7))
    assert machine.read()[0].oom_kills == 0
    (machine.folder / f"proc/{os.getpid()}/cgroup").unlink()
    machine.write(counter, text.format(n=9))
    assert machine.read()[0].oom_kills == 2
    (machine.folder / counter).unlink()
    assert machine.read()[0].oom_kills == 2


@pytest.mark.parametrize(
    ("listed", "limits", "used_and_limit"),
    [
        ("0::/jobs/mine\n", {"jobs/mine/pids.max": "max", "jobs/pids.max": "500"}, (70, 500)),
        ("8:pids:/box\n", {"pids/box/pids.max": "400", "pids/pids.max": "max"}, (70, 400)),
        ("0::/\n", {}, (1234, 32768)),  # of the whole machine
    ],
)
def test_threads_and_processes_under_the_limit_that_is_nearest(machine, monkeypatch, listed, limits, used_and_limit):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    machine.write("proc/loadavg", "0.1 0.2 0.3 3/1234 4711\n")
    machine.write("proc/sys/kernel/threads-max", "200000\n")
    machine.write("proc/sys/kernel/pid_max", "32768\n")
    machine.write("proc/{pid}/cgroup", listed)
    for path, text in limits.items():
        machine.write(f"sys/fs/cgroup/{path}", f"{text}\n")
        machine.write(f"sys/fs/cgroup/{path}".replace("max", "current"), "70\n")
    assert machine.read()[0].resources == [ResourceUse("pids", *used_and_limit)]


def test_the_users_own_limit_of_threads_counts_what_the_run_has(machine, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(procfs, "limit_of", lambda pid, what: 50)
    machine.table.publish({os.getpid(): 1}, {os.getpid(): "trainer"})
    (use,) = machine.read()[0].resources
    assert (use.name, use.limit) == ("pids", 50) and use.used >= 1


def test_the_file_systems_of_a_real_process_are_each_read_once():
    source = MachineSource(ProcessTable(os.getpid(), None))
    uses = {use.name: use for use in next(iter(source.read())).resources}
    shared = os.statvfs("/dev/shm")
    assert uses["/dev/shm"].limit == shared.f_blocks * shared.f_frsize
    mount = next(folder for folder in (Path.cwd(), *Path.cwd().parents) if folder.is_mount())
    working = uses[str(mount)]
    assert 0 < working.used <= working.limit


def _runs_on(machine, core, allowed):
    fields = ["S", *["0"] * 35, str(core)]
    machine.write("proc/{pid}/stat", f"{os.getpid()} (python) {' '.join(fields)}\n")
    machine.write("proc/{pid}/status", f"Name: python\nCpus_allowed_list:\t{allowed}\n")


def test_where_training_processes_run_on_a_machine_of_two_nodes(machine):
    machine.write("sys/devices/system/node/node0/cpulist", "0-1")
    machine.write("sys/devices/system/node/node1/cpulist", "2-3")
    _runs_on(machine, 3, "0-3")
    assert machine.read()[0].placed == []  # it does not train yet
    machine.table.note_seen(os.getpid(), "marked")
    assert machine.read()[0].placed == [PlacedProcess(os.getpid(), 1, [0, 1])]
    _runs_on(machine, 1, "0-1")
    assert machine.read()[0].placed == [PlacedProcess(os.getpid(), 0, [0])]
