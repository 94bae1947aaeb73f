"""A GPU's place in NVML, with its MIG instances."""

from __future__ import annotations

from collections.abc import Callable

from tuimon.records import Gpu
from tuimon.sources.gpus.handle import DriverError
from tuimon.sources.gpus.slot import Slot
from tuimon.sources.gpus.visible_devices import VisibleGpu
from tuimon.sources.notices import Problem
from tuimon.sources.nvml import mig, problems
from tuimon.sources.nvml.compute_processes import PidTrust
from tuimon.sources.nvml.device import Device
from tuimon.sources.nvml.library import Library
from tuimon.sources.nvml.mig import MigDevice

#: How often the MIG instances are listed anew.
_MIG_EVERY_S = 30.0


class NvmlSlot(Slot):
    """One GPU by its index in PCI order."""

    def __init__(self, library: Library, index: int, trust: PidTrust, clock: Callable[[], float], root: str) -> None:
        super().__init__(index)
        self._library = library
        self._trust = trust
        self._clock = clock
        self._root = root
        self._whole: Device | None = None  # the latest that was opened

    def _open(self, now_s: float) -> None:
        """Open the device and its MIG instances, unless they are unchanged."""
        handle = self._library.handle(self.index)
        cut = list(mig.instances(handle)) if mig.is_cut(handle) else []
        self._reopen_s = now_s + _MIG_EVERY_S
        uuids = tuple(instance.uuid for instance in cut)
        seen = (self.gpu.uuid, self.gpu.instances) if self.gpu is not None else None
        if self._devices and seen == (handle.uuid, uuids):
            return
        self.close()  # when a GPU is lost, those with higher indices may move up
        self._whole = Device(handle, self.index, None if cut else self._trust, self._clock, self._root)
        self._devices = (self._whole,)  # first: what it holds is freed if the GPU is lost now
        self._devices = (self._whole, *(MigDevice(instance, handle, self.index, self._trust) for instance in cut))
        self.gpu = VisibleGpu(handle.uuid, self._whole.name, uuids)

    def _explain(self, error: DriverError, now_s: float) -> Problem:
        xids = self._whole.pending_xids() if self._whole is not None and self._devices else []
        if xids and self.gpu is not None:
            self._last = [Gpu(t=now_s, pid=0, index=self.index, uuid=self.gpu.uuid, name=self.gpu.name, xids=xids)]
        return problems.explain_device(self.index, self.gpu.name if self.gpu else "", error, xids)
