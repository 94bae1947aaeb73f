"""The machine's GPUs: NVML counters, one record a GPU and look."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tuimon.records import Gpu, Notice, Record
from tuimon.sources import nvml, nvml_errors
from tuimon.sources.nvml import NvmlError
from tuimon.sources.targets import Targets
from tuimon.sources.trouble import Trouble

_RETRY_S = 30.0
_DEVICE_RETRY_S = (5.0, 60.0)
#: Asking who computes on a GPU takes 4.5 ms of a driver lock that the job's own launches wait for.
_PIDS_EVERY_S = 2.0
#: With more GPUs than these, those that the run does not use are shown less often: the log has to stay small.
_MANY = 2
_UNUSED_EVERY_S = 5.0


@dataclass(slots=True)
class _Slot:
    """A GPU's place: the device while it answers, its trouble while it does not."""

    index: int
    device: nvml.Device | None = None
    name: str = ""
    trouble: Trouble | None = None
    retry_s: float = 0.0
    failures: int = 0
    said_s: float = float("-inf")


class GpuSource:
    """Reads all GPUs through NVML; what fails is said once and tried again, the rest goes on."""

    name = "gpu"

    def __init__(self, targets: Targets, interval_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.period_s = interval_s
        self._targets = targets
        self._clock = clock
        self._library: nvml.Library | None = None
        self._slots: list[_Slot] = []
        self._trouble: Trouble | None = None  # of the whole library
        self._retry_s = float("-inf")
        self._pids_due_s = float("-inf")
        self._said: Trouble | None = None

    def read(self) -> Iterable[Record]:
        """Counters of the GPUs that answer; a notice when a trouble begins or ends."""
        now_s = self._clock()
        records: list[Record] = []
        if self._library is None and now_s >= self._retry_s:
            self._open(now_s)
        if self._library is not None:
            records.extend(self._devices(self._library, now_s))
        return [*self._notices(now_s), *records]

    def close(self) -> None:
        """Let go of the driver."""
        library, self._library, self._slots = self._library, None, []
        if library is not None:
            with contextlib.suppress(NvmlError):  # a driver that is gone cannot be told
                library.close()

    def _open(self, now_s: float) -> None:
        try:
            self._library = nvml.Library()
            self._slots = [_Slot(index) for index in range(self._library.device_count())]
        except NvmlError as error:
            self.close()
            self._fail(nvml_errors.explain(error), now_s)
            return
        self._trouble = None
        if not self._slots:
            self.close()
            self._fail(nvml_errors.no_devices(), now_s)

    def _fail(self, trouble: Trouble, now_s: float) -> None:
        self._trouble = trouble
        self._retry_s = now_s + _RETRY_S

    def _devices(self, library: nvml.Library, now_s: float) -> Iterable[Gpu]:
        with_pids = now_s >= self._pids_due_s
        if with_pids:
            self._pids_due_s = now_s + _PIDS_EVERY_S
        found = [gpu for slot in self._slots if (gpu := self._device(library, slot, now_s, with_pids)) is not None]
        if self._slots and all(slot.failures >= 2 for slot in self._slots):
            # all at once: it is the library (a container loses NVML when systemd reloads), or the driver went away
            trouble = self._slots[0].trouble
            self.close()
            self._fail(trouble or Trouble("no GPU answers"), now_s)
        yield from self._worth_saying(found, now_s)

    def _device(self, library: nvml.Library, slot: _Slot, now_s: float, with_pids: bool) -> Gpu | None:
        if slot.trouble is not None and now_s < slot.retry_s:
            return None
        try:
            if slot.device is None:
                slot.device = library.device(slot.index)
                slot.name = slot.device.name
            gpu = slot.device.read(round(now_s, 3), with_pids=with_pids)
        except NvmlError as error:
            first_s, longest_s = _DEVICE_RETRY_S
            slot.device = None
            slot.trouble = nvml_errors.explain_device(slot.index, slot.name, error)
            slot.retry_s = now_s + min(first_s * 2.0**slot.failures, longest_s)
            slot.failures += 1
            return None
        slot.trouble, slot.failures = None, 0
        return gpu

    def _worth_saying(self, found: list[Gpu], now_s: float) -> Iterable[Gpu]:
        """All, but of many GPUs those that the run does not use only every five seconds."""
        used = self._used(found)
        for gpu in found:
            slot = self._slots[gpu.index] if gpu.index < len(self._slots) else None
            seldom = len(found) > _MANY and used and gpu.uuid not in used
            if seldom and slot is not None and now_s < slot.said_s + _UNUSED_EVERY_S - self.period_s / 2:
                continue
            if slot is not None:
                slot.said_s = now_s
            yield gpu

    def _used(self, found: list[Gpu]) -> set[str]:
        pids = set(self._targets.pids())
        used = {gpu.uuid for gpu in found if pids.intersection(gpu.pids)}
        for facts in list(self._targets.facts.values()):
            uuids = facts.get("gpu_uuids")
            used.update(str(uuid) for uuid in uuids if uuid) if isinstance(uuids, list) else None
        return used

    def _notices(self, now_s: float) -> Iterable[Record]:
        troubles = [self._trouble] if self._trouble else [slot.trouble for slot in self._slots if slot.trouble]
        if self._said in troubles or (self._said is None and not troubles):
            return
        self._said = troubles[0] if troubles else None
        if self._said is None:
            yield Notice(t=now_s, pid=0, source=self.name, level="ok", message="all GPUs answer")
        else:
            yield Notice(
                t=now_s,
                pid=0,
                source=self.name,
                level="info" if self._said.expected else "warning",
                message=self._said.message,
                hint=self._said.hint,
            )
