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
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr("psutil.PROCFS_PATH", str(tmp_path / "proc"))
    return Machine(tmp_path)


def test_nothing_is_made_up_where_nothing_is_told(machine):
    assert machine.read() == []


def test_the_machine_without_limits(machine):
    machine.write("proc/meminfo", MEMINFO)
    (record,) = machine.read()
    assert (record.pid, record.total_bytes, record.available_bytes) == (0, 16_000_000 << 10, 4_000_000 << 10)
    assert record.limit_bytes is record.limit_used_bytes is record.stalled_ratio is record.swap_in_bytes_per_s is None


def test_busy_cores_are_those_of_all_programs_between_two_reads(machine, monkeypatch):
    machine.write("proc/meminfo", MEMINFO)
    machine.write("proc/stat", "cpu  1000 100 200 90000 50 10 20 500 300 0\n")
    (first,) = machine.read()
    machine.now_s += 5.0
    machine.write("proc/stat", "cpu  1600 200 280 90020 70 20 30 900 600 0\n")
    (second,) = machine.read()
    assert first.busy_cores is None
    ticks = 600 + 100 + 80 + 10 + 10  # user, nice, system, irq, softirq: not idle, iowait, stolen
    assert second.busy_cores == pytest.approx(ticks / os.sysconf("SC_CLK_TCK") / 5.0, abs=0.001)


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
