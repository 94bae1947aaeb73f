"""Which of the driver's pids are pids here, in containers and out of them."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from tuimon.records import GpuProcess
from tuimon.sources.nvml.compute_processes import ComputeProcesses, PidTrust, pid_trust

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
    processes.poll()
    assert processes.found == found
    assert processes.pids == ([7, 8] if trust.lists else [])
