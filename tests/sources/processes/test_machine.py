"""The machine's memory from files as the kernel writes them, and from the real ones."""

import os

import pytest

from tuimon.proc import procfs
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
        self.source = MachineSource(ProcessTable(os.getpid(), None), lambda: self.now_s, str(folder))

    def write(self, path, text):
        file = self.folder / path.format(pid=os.getpid())
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def read(self):
        return list(self.source.read())


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_nothing_is_made_up_where_nothing_is_told(machine):
    assert machine.read() == []


def test_the_machine_without_limits(machine):
    machine.write("proc/meminfo", MEMINFO)
    (record,) = machine.read()
    assert (record.pid, record.total_bytes, record.available_bytes) == (0, 16_000_000 << 10, 4_000_000 << 10)
    assert record.limit_bytes is record.limit_used_bytes is record.stalled_ratio is record.swap_in_bytes_per_s is None


def test_no_more_is_available_than_there_is(machine):
    machine.write("proc/meminfo", MEMINFO.replace("MemAvailable: 4000000", "MemAvailable: 64000000"))
    (record,) = machine.read()
    assert record.available_bytes == 100 << 10  # as a container with the host's figure


def test_busy_cores_are_those_of_all_programs_between_two_reads(machine, monkeypatch):
    machine.write("proc/meminfo", MEMINFO)
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
    machine.write("proc/meminfo", MEMINFO)
    machine.write("proc/stat", "cpu  0 0\n" + _core(0, 1, 1, 1, 1, 1, 1))
    machine.write("proc/{pid}/cgroup", groups)
    for path, text in limits.items():
        machine.write(path, text)
    for seconds in (3, 10):
        machine.write(f"sys/fs/cgroup/{stat}/cpu.stat", f"nr_throttled 9\n{throttled.format(seconds)}\n")
        (record,) = machine.read()
        machine.now_s += 5.0
    assert (record.cpu_limit_cores, record.held_cores) == (1.5, 7 / 5.0)


def test_a_group_without_a_cpu_limit_holds_nothing_back(machine):
    machine.write("proc/meminfo", MEMINFO)
    machine.write("proc/{pid}/cgroup", "0::/jobs\n")
    machine.write("sys/fs/cgroup/jobs/cpu.max", "max 100000\n")
    assert machine.read()[0].cpu_limit_cores is None


def test_swapping_is_a_rate_between_two_looks(machine):
    machine.write("proc/meminfo", MEMINFO)
    machine.write("proc/vmstat", "nr_free_pages 5\npswpin 100\npswpout 1000\n")
    (first,) = machine.read()
    machine.now_s += 4.0
    machine.write("proc/vmstat", "nr_free_pages 5\npswpin 100\npswpout 1400\n")
    (second,) = machine.read()
    assert first.swap_out_bytes_per_s is None
    assert (second.swap_in_bytes_per_s, second.swap_out_bytes_per_s) == (0, 100 * procfs.PAGE_BYTES)
    assert second.window_s == 4.0


def test_pressure(machine):
    machine.write("proc/meminfo", MEMINFO)
    machine.write("proc/pressure/memory", "some avg10=12.50 avg60=1.00 avg300=0.10 total=9\nfull avg10=3.00 total=1\n")
    assert machine.read()[0].stalled_ratio == 0.125


def test_the_group_with_the_least_room_counts(machine):
    machine.write("proc/{pid}/cgroup", "0::/jobs/mine\n")
    machine.write("sys/fs/cgroup/jobs/mine/memory.max", "max\n")
    machine.write("sys/fs/cgroup/jobs/mine/memory.current", "5000\n")
    machine.write("sys/fs/cgroup/jobs/memory.max", "8000\n")
    machine.write("sys/fs/cgroup/jobs/memory.current", "7000\n")
    machine.write("sys/fs/cgroup/jobs/memory.stat", "anon 6000\ninactive_file 500\n")
    (record,) = machine.read()
    assert (record.limit_bytes, record.limit_used_bytes, record.total_bytes) == (8000, 6500, None)


def test_version_one_and_its_way_of_no_limit(machine):
    machine.write("proc/{pid}/cgroup", "4:cpu,memory:/box\n3:cpuset:/\n")
    machine.write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712\n")
    machine.write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "100\n")
    assert machine.read() == []
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n")
    machine.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "900\n")
    machine.write("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 100\n")
    (record,) = machine.read()
    assert (record.limit_bytes, record.limit_used_bytes) == (1000, 800)


def test_this_machine():
    (record,) = MachineSource(ProcessTable(os.getpid(), None)).read()
    assert 0 < record.available_bytes <= record.total_bytes
