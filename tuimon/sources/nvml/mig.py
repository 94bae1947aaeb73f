"""MIG: the instances that a GPU is divided into, each a device of its own."""

from __future__ import annotations

from collections.abc import Iterable

from tuimon.records import Gpu
from tuimon.sources.gpus.handle import Handle
from tuimon.sources.gpus.slot import SlowSchedule
from tuimon.sources.nvml import gpm
from tuimon.sources.nvml.compute_processes import ComputeProcesses, PidTrust
from tuimon.sources.nvml.device import memory, name_of
from tuimon.sources.nvml.gpm import Gpm
from tuimon.sources.nvml.library import NOT_SUPPORTED, NvmlError


def is_cut(handle: Handle) -> bool:
    """True if MIG is switched on. Raises NvmlError when the GPU is gone."""
    mode = handle.query("nvmlDeviceGetMigMode")
    return bool(mode and mode[0] == handle.api.NVML_DEVICE_MIG_ENABLE)


def instances(gpu: Handle) -> Iterable[Handle]:
    """The instances visible from here; in a container those it was given. Raises NvmlError when the GPU is gone."""
    for place in range(gpu.query("nvmlDeviceGetMaxMigDeviceCount") or 0):
        raw = gpu.query("nvmlDeviceGetMigDeviceHandleByIndex", place)
        if raw is None:  # a free place
            continue
        try:
            yield gpu.library.handle_of(raw)
        except NvmlError:  # not for us to see
            continue


class MigDevice:
    """One instance: memory, processes, GPM, also for its utilisation. The rest the driver reports only of the GPU."""

    def __init__(self, handle: Handle, gpu: Handle, index: int, trust: PidTrust) -> None:
        """``index`` is that of the GPU. Raises NvmlError when the GPU is gone."""
        self.uuid = handle.uuid
        self._index = index
        self._handle = handle
        self._parent_uuid = gpu.uuid
        self._name = name_of(handle)
        number = handle.query("nvmlDeviceGetGpuInstanceId")
        self._of_gpu = Handle(
            gpu.library, gpu.raw, gpu.uuid
        )  # GPM queries are made of the GPU, with the instance's number
        self._gpm = None if number is None else Gpm(self._of_gpu, int(number))
        self._processes = ComputeProcesses(handle, trust)
        self._slow = SlowSchedule()
        self._begin()

    def poll(self) -> None:
        """Nothing of it changes within a window."""

    def read(self, t: float) -> Gpu:
        """The record of the window that ends now. Raises NvmlError when nothing answers."""
        used, total = memory(self._handle)
        if self._gpm is not None:
            self._gpm.read(t)
        if self._slow.is_due(t):
            before_s = self._handle.cost_s
            self._processes.poll()
            self._slow.made(t, self._handle.cost_s - before_s)
        if not self._handle.answers:
            raise self._handle.error or NvmlError(NOT_SUPPORTED, "Not Supported")
        record = Gpu(
            t=t,
            pid=0,
            index=self._index,
            uuid=self.uuid,
            name=self._name,
            parent_uuid=self._parent_uuid,
            util_ratio=self._ratio(gpm.UTILISATION),
            sm_ratio=self._ratio(gpm.SM),
            occupancy_ratio=self._ratio(gpm.OCCUPANCY),
            tensor_ratio=self._ratio(gpm.TENSOR),
            dram_ratio=self._ratio(gpm.DRAM),
            memory_used_bytes=used,
            memory_total_bytes=total,
            pids=self._processes.pids,
            processes=self._processes.found,
            cost_ms=round((self._handle.cost_s + self._of_gpu.cost_s) * 1000, 2),
        )
        self._begin()
        return record

    def close(self) -> None:
        """Free what the library holds for this instance."""
        if self._gpm is not None:
            self._gpm.close()

    def _begin(self) -> None:
        self._handle.reset_counts()
        self._of_gpu.reset_counts()

    def _ratio(self, metric: int) -> float | None:
        return None if self._gpm is None else self._gpm.ratio(metric)
