"""Which GPUs the run uses: by UUID, by process, by CUDA_VISIBLE_DEVICES. The real pynvml over a fake NVML library."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fake_nvml import FakeNvml, gpus, usual
from tuimon.records import GpuProcess
from tuimon.sources.gpus.driver import VisibleGpu
from tuimon.sources.gpus.nvml_device import ComputeProcesses, PidTrust, pid_trust
from tuimon.sources.gpus.source import named

SCENARIO = {"devices": 4, "driver": "580.65.06", **usual(0), **usual(1), **usual(2), **usual(3)}


def uuid(index: int) -> str:
    return f"GPU-0000000{index}-fake"


@pytest.mark.parametrize(
    ("nvml", "reads"),
    [
        # what the variable of a process names stays known beside what it uses, and when it reports no more
        ({}, [({"cuda_visible_devices": "3,1"}, [1, 3]),
              ({"cuda_visible_devices": "3,1", "gpu_uuids": [uuid(3)]}, [1, 3])]),
        ({}, [({"cuda_visible_devices": "0"}, [0]), ({}, [0])]),
        # of ranks with a GPU each the launcher's names the rest
        ({"visible_devices": "0,1,2"}, [({"cuda_visible_devices": "0", "gpu_uuids": [uuid(0)]}, [0, 1, 2])]),
        # until a process with torch is known the environment of the run counts
        ({"visible_devices": "2"}, [({}, [2]), ({"cuda_visible_devices": "0"}, [0])]),
    ],
    indirect=["nvml"],
)  # fmt: skip
def test_visible_devices_choose(nvml: FakeNvml, reads: list[tuple[dict[str, Any], list[int]]]) -> None:
    for at, (facts, chosen) in enumerate(reads):
        assert [gpu.index for gpu in gpus(nvml.read(1.0 + 9 * at, **facts)) if gpu.chosen] == chosen


ALL = [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("facts", "read"),
    [
        ({"gpu_uuids": [uuid(2)]}, [ALL, [2], [2], [2], ALL, [2], [2]]),  # of many those not used less often
        ({"gpu_uuids": [uuid(2)], "cuda_visible_devices": "1,2"}, [ALL, [2], [2]]),  # and one that is only named
        ({"gpu_uuids": [uuid(index) for index in ALL]}, [ALL, [], ALL, [], ALL]),  # of a process with many all
        ({}, [ALL, [], ALL, []]),  # where none is in use too
        ({"cuda_visible_devices": None}, [ALL, []]),
    ],
)
def test_which_gpus_are_read_second_by_second(nvml: FakeNvml, facts: dict[str, Any], read: list[list[int]]) -> None:
    records = [gpus(nvml.read(float(t), **facts)) for t in range(len(read))]
    assert [[gpu.index for gpu in each] for each in records] == read
    assert any(gpu.chosen for each in records for gpu in each) == bool(facts.get("cuda_visible_devices"))


def test_a_gpu_whose_process_is_of_the_run_is_used(nvml: FakeNvml) -> None:
    nvml.set(gpu1_pids=nvml.pid)
    seen = [[gpu.index for gpu in gpus(nvml.read(half / 2))] for half in range(9)]
    assert seen == [[0, 1, 2, 3], [], [1], [], [1], [], [1], [], [0, 1, 2, 3]]


def test_a_gpu_of_which_an_instance_is_used_is_used(nvml: FakeNvml) -> None:
    nvml.set({"3.mig": 1, "3.mig.0.uuid": "MIG-77", "3.mig.0.memory_total_mib": 9, "3.mig.0.memory_used_mib": 1})
    reported = "GPU-77"  # torch does not report that it is an instance
    seen = [[gpu.uuid for gpu in gpus(nvml.read(float(t), gpu_uuids=[reported]))] for t in range(2)]
    assert seen == [[*(uuid(index) for index in range(4)), "MIG-77"], [uuid(3), "MIG-77"]]


OUTERMOST, INNER = "pid:[4026531836]", "pid:[4026532201]"


@pytest.mark.parametrize(
    ("namespace", "driver", "trust"),
    [
        (OUTERMOST, (470, 256, 2), PidTrust(True, True)),
        (INNER, (470, 256, 2), PidTrust(False, False)),
        (INNER, (535, 104, 5), PidTrust(False, False)),
        (INNER, (535, 113, 1), PidTrust(True, False)),
        (INNER, (575, 57, 8), PidTrust(True, True)),
        (INNER, (580, 65, 6), PidTrust(True, True)),
        (INNER, (), PidTrust(False, False)),
    ],
)
def test_pids_are_translated_by_later_drivers(
    monkeypatch: pytest.MonkeyPatch, namespace: str, driver: tuple[int, ...], trust: PidTrust
) -> None:
    monkeypatch.setattr(os, "readlink", lambda _: namespace)
    assert pid_trust(driver) == trust


class Driver:
    """Answers as a Handle does: the list with pids 7 and 8, utilisation of ``busy``."""

    def __init__(self, busy: int) -> None:
        self.busy = busy
        self.time_us = 0

    def query(self, function: str, *arguments: object) -> Any:
        if function == "nvmlDeviceGetProcessUtilization":
            self.time_us += 1000
            return [SimpleNamespace(pid=self.busy, timeStamp=self.time_us, smUtil=60)]
        return [SimpleNamespace(pid=pid, usedGpuMemory=pid * 100) for pid in (7, 8)]


@pytest.mark.parametrize(
    ("trust", "busy", "found"),
    [
        (PidTrust(True, True), 8, [GpuProcess(8, 800, 0.6), GpuProcess(7, 700)]),
        # the list was translated, the utilisation is of another 8
        (PidTrust(True, False), 8, [GpuProcess(8, 800), GpuProcess(7, 700)]),
        # both are the host's: what belongs together is known, but not whose it is
        (PidTrust(False, False), 8, [GpuProcess(0, 800, 0.6), GpuProcess(0, 700)]),
    ],
)
def test_pids_of_another_namespace_are_not_told(trust: PidTrust, busy: int, found: list[GpuProcess]) -> None:
    processes = ComputeProcesses(Driver(busy), trust)  # type: ignore[arg-type]  # stands for a Handle
    processes.poll()
    assert processes.poll() == {"pids": [7, 8] if trust.lists else [], "processes": found}


A, B, C = "GPU-8a1e7c00-0001", "GPU-8a1e7c00-0002", "GPU-5bd00000-0003"
ALIKE = [VisibleGpu(A, "X"), VisibleGpu(B, "X"), VisibleGpu(C, "X", ("MIG-11", "MIG-12"))]
MIXED = [VisibleGpu(A, "X"), VisibleGpu(B, "Y"), VisibleGpu(C, "X")]


@pytest.mark.parametrize(
    ("variable", "found"),
    [
        (None, []),
        ("", []),
        ("0", [A]),
        ("2, 0", [C, A]),
        ("1,-1,0", [B]),  # CUDA stops at the first bad entry
        ("0,9,1", [A]),
        ("none", []),
        (B, [B]),
        ("GPU-5bd", [C]),
        ("GPU-8a1e", []),  # two begin so
        ("gpu-5bd", []),
        ("MIG-12,MIG-11", ["MIG-12", "MIG-11"]),
        ("MIG-1", []),
        (f"MIG-{C}/1/0", [C]),
        ("8a1e7c00-0001", []),
    ],
)
def test_of_like_gpus(variable: str | None, found: list[str]) -> None:
    assert named(variable, None, ALIKE) == found


@pytest.mark.parametrize(
    ("variable", "order", "found"),
    [("1,2", None, []), ("1,2", "FASTEST_FIRST", []), ("1,2", "PCI_BUS_ID", [B, C]), (C, None, [C])],
)
def test_numbers_of_unlike_gpus_tell_something_only_in_pci_order(variable, order, found) -> None:
    assert named(variable, order, MIXED) == found
