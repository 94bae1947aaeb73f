"""Processes that compute on a GPU, with their memory and their share of the multiprocessors' time.

In a container the driver may report the host's pids, which belong to other processes here, or none. Process lists are
translated from driver 535.113 on, process utilisation from 575.57 on.
"""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct

from tuimon.records import GpuProcess
from tuimon.sources.gpus.handle import Handle
from tuimon.sources.gpus.processes import Processes, in_first_pid_namespace

_LISTS_TRANSLATED = (535, 113)
_UTILISATION_TRANSLATED = (575, 57)


class PidTrust(Struct, frozen=True, gc=False):
    """True if the driver's pids are valid in this pid namespace."""

    lists: bool
    utilisation: bool


def pid_trust(driver: tuple[int, ...]) -> PidTrust:
    """The trust for this process's namespace and this driver's version."""
    outermost = in_first_pid_namespace()
    return PidTrust(outermost or driver >= _LISTS_TRANSLATED, outermost or driver >= _UTILISATION_TRANSLATED)


class ComputeProcesses(Processes):
    """The processes of one GPU or MIG instance. A poll holds for 4.5 ms a driver lock that kernel launches need."""

    def __init__(self, handle: Handle, trust: PidTrust) -> None:
        super().__init__()
        self._handle = handle
        self._trust = trust
        self._seen_us = 0  # the driver's timestamp of the newest utilisation sample read
        self._polled = False

    def poll(self) -> None:
        """Query both."""
        # by versioned name: pynvml refuses the plain one where the driver lacks the newest version
        answer = self._handle.query("nvmlDeviceGetComputeRunningProcesses_v3")
        if answer is None:  # drivers before 510
            answer = self._handle.query("nvmlDeviceGetComputeRunningProcesses_v2")
        sm_ratios = self._sm_ratios() if answer else {}
        joined = self._trust.lists == self._trust.utilisation  # else the pids of the two queries differ
        found = []
        for process in answer or ():
            pid = int(process.pid)
            memory_bytes = None if process.usedGpuMemory is None else int(process.usedGpuMemory)
            sm_ratio = sm_ratios.get(pid) if joined else None
            found.append(GpuProcess(pid if self._trust.lists else 0, memory_bytes, sm_ratio))
        self.keep(found)

    def _sm_ratios(self) -> dict[int, float]:
        """Mean share of time by pid since the last poll; idle processes are missing."""
        first, self._polled = not self._polled, True
        percents: dict[int, list[int]] = defaultdict(list)
        newest_us = self._seen_us
        for sample in self._handle.query("nvmlDeviceGetProcessUtilization", self._seen_us) or ():
            newest_us = max(newest_us, int(sample.timeStamp))
            if (
                sample.timeStamp > self._seen_us and sample.smUtil <= 100
            ):  # some drivers report impossible values now and then
                percents[int(sample.pid)].append(int(sample.smUtil))
        self._seen_us = newest_us
        if first:  # the buffer holds samples from before this run
            return {}
        return {pid: round(sum(values) / len(values) / 100, 3) for pid, values in percents.items()}
