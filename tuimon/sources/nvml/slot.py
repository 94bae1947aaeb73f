"""A GPU's place: the device while it answers, the problem while it does not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from tuimon.records import Gpu
from tuimon.sources.notices import Problem
from tuimon.sources.nvml import mig, problems
from tuimon.sources.nvml.compute_processes import PidTrust
from tuimon.sources.nvml.device import Device
from tuimon.sources.nvml.library import Library, NvmlError
from tuimon.sources.nvml.mig import MigDevice
from tuimon.sources.nvml.visible_devices import VisibleGpu

_RETRY_S = (5.0, 60.0)
#: How often the MIG instances are listed anew.
_MIG_EVERY_S = 30.0


class Slot:
    """One GPU by its index in PCI order, with its MIG instances."""

    def __init__(
        self, library: Library, index: int, trust: PidTrust, clock: Callable[[], float], root: str = ""
    ) -> None:
        self.index = index
        self.problem: Problem | None = None
        self.failures = 0  # in a row
        self.read_s = float("-inf")  # when it was last read
        self.gpu: VisibleGpu | None = None
        self._library = library
        self._trust = trust
        self._clock = clock
        self._root = root
        self._device: Device | None = None
        self._instances: list[MigDevice] = []
        self._mig_due_s = float("-inf")
        self._retry_s = float("-inf")

    def poll(self, now_s: float) -> None:
        """Between two records: poll what changes fast."""
        if self._device is not None:
            try:
                self._device.poll()
            except NvmlError as error:
                self._fail(error, now_s)

    def read(self, now_s: float) -> list[Gpu]:
        """Its record, and those of its instances; none while it is in problem."""
        self.read_s = now_s
        if self.problem is not None and now_s < self._retry_s:
            return []
        try:
            if self._device is None or now_s >= self._mig_due_s:
                self._open(now_s)
            assert self._device is not None
            records = [self._device.read(now_s), *(instance.read(now_s) for instance in self._instances)]
        except NvmlError as error:
            self._fail(error, now_s)
            return []
        self.problem, self.failures = None, 0
        return records

    def close(self) -> None:
        """Free what the library holds for it; NVML may be gone."""
        for device in (self._device, *self._instances):
            if device is not None:
                with contextlib.suppress(NvmlError):
                    device.close()
        self._device, self._instances = None, []

    def _open(self, now_s: float) -> None:
        """Open the device and its MIG instances, unless they are unchanged."""
        handle = self._library.handle(self.index)
        cut = list(mig.instances(handle)) if mig.is_cut(handle) else []
        self._mig_due_s = now_s + _MIG_EVERY_S
        uuids = tuple(instance.uuid for instance in cut)
        seen = (self.gpu.uuid, self.gpu.instances) if self.gpu is not None else None
        if self._device is not None and seen == (handle.uuid, uuids):
            return
        self.close()  # when a GPU is lost, those with higher indices may move up
        self._device = Device(handle, self.index, None if cut else self._trust, self._clock, self._root)
        self._instances = [MigDevice(instance, handle, self.index, self._trust) for instance in cut]
        self.gpu = VisibleGpu(handle.uuid, self._device.name, uuids)

    def _fail(self, error: NvmlError, now_s: float) -> None:
        xids = self._device.pending_xids() if self._device is not None else []
        self.close()
        first_s, longest_s = _RETRY_S
        self.problem = problems.explain_device(self.index, self.gpu.name if self.gpu else "", error, xids)
        self._retry_s = now_s + min(first_s * 2.0**self.failures, longest_s)
        self.failures += 1
