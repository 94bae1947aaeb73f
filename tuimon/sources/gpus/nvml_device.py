"""One GPU of NVIDIA's, with its MIG instances and its processes.

It is queried in tiers by cost: what changes fast, a record a window, and the slow queries every two seconds.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from tuimon.proc.numa import nodes_near
from tuimon.records import Gpu, GpuProcess
from tuimon.sources.base import Problem
from tuimon.sources.gpus.driver import (
    DriverError,
    Handle,
    Processes,
    Slot,
    SlowSchedule,
    VendorLibrary,
    VisibleGpu,
    in_first_pid_namespace,
)
from tuimon.sources.gpus.nvml_counters import Fields, Gpm, Throttling
from tuimon.text import plain

# In a container the driver may report the host's pids, which belong to other processes here, or none. Process lists are
# translated from driver 535.113 on, process utilisation from 575.57 on.
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
    """The processes of one GPU or MIG instance. A poll holds a driver lock that kernel launches need, for 4.5 ms."""

    def __init__(self, handle: Handle, trust: PidTrust) -> None:
        super().__init__()
        self._handle = handle
        self._trust = trust
        self._seen_us = 0  # the driver's timestamp of the newest utilisation sample read
        self._polled = False

    def poll(self) -> None:
        """Query the process list and the utilisation of each process."""
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


#: Most Xid errors read in one poll.
_MOST_XIDS = 16


class Xids:
    """The critical Xid errors of one GPU; none where the driver does not report them."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._events: object | None = None
        kind = handle.api.nvmlEventTypeXidCriticalError
        supported = handle.query("nvmlDeviceGetSupportedEventTypes")
        if not supported or not supported & kind:
            return
        self._events = handle.call("nvmlEventSetCreate")
        if self._events is None:
            return
        try:
            handle.library.call(handle.api.nvmlDeviceRegisterEvents, handle.raw, kind, self._events)
        except DriverError:
            self.close()

    def poll(self) -> list[int]:
        """The errors since the last poll; never waits."""
        found: list[int] = []
        while self._events is not None and len(found) < _MOST_XIDS:
            event = self._handle.call("nvmlEventSetWait_v2", self._events, 0)
            if event is None:  # a timeout: there are no more
                break
            found.append(int(event.eventData))
        return found

    def close(self) -> None:
        """Free the event set."""
        events, self._events = self._events, None
        if events is not None:
            with contextlib.suppress(DriverError):  # a driver that is gone reports nothing
                self._handle.library.call(self._handle.api.nvmlEventSetFree, events)


#: Most samples in one record.
_SAMPLES = 10


class Utilisation:
    """Collects over a window the share of time in which a kernel was running."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._seen_us = 0  # the driver's timestamp of the newest sample read
        self._polled = False
        self._samples: list[float] = []
        self._averages: list[float] = []

    def poll(self) -> None:
        """Read the new samples; the driver's buffer holds a few seconds."""
        api = self._handle.api
        answer = self._handle.query("nvmlDeviceGetSamples", api.NVML_GPU_UTILIZATION_SAMPLES, self._seen_us)
        samples = ((s.timeStamp, s.sampleValue.uiVal) for s in answer[1]) if answer else ()
        fresh = sorted(sample for sample in samples if sample[0] > self._seen_us)
        first, self._polled = not self._polled, True
        if fresh:
            self._seen_us = fresh[-1][0]
        if fresh and not first:  # at first the buffer holds samples from before this run
            self._samples += [min(value / 100, 1.0) for _, value in fresh]
            return
        rates = self._handle.query("nvmlDeviceGetUtilizationRates")
        if rates is not None:
            self._averages.append(min(rates.gpu / 100, 1.0))

    def window(self) -> tuple[list[float], float | None]:
        """The samples of the window that ends now, oldest first, and the mean of all."""
        samples, averages = self._samples, self._averages
        self._samples, self._averages = [], []
        known = samples or averages
        mean = round(sum(known) / len(known), 3) if known else None
        return [round(ratio, 2) for ratio in _thinned(samples)], mean


def _thinned(samples: list[float]) -> list[float]:
    """The samples, as many as a record may hold: neighbours are averaged."""
    many = len(samples)
    if many <= _SAMPLES:
        return samples
    parts = (samples[place * many // _SAMPLES : (place + 1) * many // _SAMPLES] for place in range(_SAMPLES))
    return [sum(part) / len(part) for part in parts]


#: How often a record holds the compute capability, and what hardly ever changes is queried.
_FACTS_EVERY_S = 60.0


#: The PCIe link in a record, and in the names of its queries.
_LINK = {"pcie_generation": "PcieLinkGeneration", "pcie_width": "PcieLinkWidth"}


class NvmlDevice:
    """A whole GPU. Each figure is None where it is not supported."""

    def __init__(
        self, handle: Handle, index: int, trust: PidTrust | None, clock: Callable[[], float], root: str = ""
    ) -> None:
        """``trust`` is None where the processes are those of the GPU's MIG instances, and queried there.

        ``root``: where /sys is.
        """
        self.index = index
        self.uuid = handle.uuid
        self.handle = handle
        self._fields = Fields(handle, clock)
        self._utilisation = Utilisation(handle)
        self._throttling = Throttling(handle, self._fields)
        self._gpm = Gpm(handle)
        self._new_xids: list[int] = []  # not in any record yet
        self._processes = None if trust is None else ComputeProcesses(handle, trust)
        self._slow = SlowSchedule()
        self._facts_s = float("-inf")
        query, self.name = handle.query, name_of(handle)
        pci: Any = query("nvmlDeviceGetPciInfo")
        c2c, capability = query("nvmlDeviceGetC2cModeInfoV1"), query("nvmlDeviceGetCudaComputeCapability")
        self._compute_capability = None if capability is None else float(f"{capability[0]}.{capability[1]}")
        self._seldom: dict[str, Any] = {  # values that are not queried for each record, by its fields
            "power_limit_default_w": _watt(query("nvmlDeviceGetPowerManagementDefaultLimit")),
            "sm_clock_max_mhz": query("nvmlDeviceGetMaxClockInfo", handle.api.NVML_CLOCK_SM),
            "c2c": None if c2c is None else bool(c2c.isC2cEnabled),
            "near_nodes": None if pci is None else nodes_near(_text(pci.busId), root),
            **{f"{name}_max": query(f"nvmlDeviceGetMax{what}") for name, what in _LINK.items()},
        }
        self._xids = Xids(handle)  # last: it holds a descriptor, which nothing frees if a query raises
        handle.reset_counts()

    def poll(self) -> None:
        """Query what changes within a window; costs microseconds. Raises DriverError when the GPU is gone."""
        self._utilisation.poll()
        self._throttling.poll()

    def read(self, t: float) -> Gpu:
        """The record of the window that ends now. Raises DriverError when nothing answers."""
        self._new_xids += self._xids.poll()  # first: they explain why the other queries fail
        self._utilisation.poll()
        self._throttling.poll()
        self._fields.read()
        self._gpm.read(t)
        if self._slow.is_due(t):
            self._poll_slow_figures(t)
        if t >= self._facts_s:
            self._seldom["pcie_replays"] = self.handle.query("nvmlDeviceGetPcieReplayCounter")
            remapped = self.handle.query("nvmlDeviceGetRemappedRows")
            if remapped is not None:
                _, _, is_pending, has_failed = remapped
                self._seldom["row_remap"] = "failed" if has_failed else "pending" if is_pending else "none"
        record = self._record(t)
        self.handle.end_window()
        if t >= self._facts_s:
            self._facts_s = t + _FACTS_EVERY_S
        self._new_xids = []
        return record

    def pending_xids(self) -> list[int]:
        """The Xid errors that are in no record yet, of a GPU that does not answer."""
        with contextlib.suppress(DriverError):
            self._new_xids += self._xids.poll()
        return self._new_xids

    def _record(self, t: float) -> Gpu:
        query, api = self.handle.query, self.handle.api
        samples, util_ratio = self._utilisation.window()
        throttle, throttled = self._throttling.window()
        used, total = memory(self.handle)
        energy_mj, power_mw = self._fields.value(Fields.ENERGY), self._fields.value(Fields.POWER_AVERAGE)
        celsius = query("nvmlDeviceGetTemperature", api.NVML_TEMPERATURE_GPU)
        if celsius is None:  # future drivers, which may drop the older name
            celsius = query("nvmlDeviceGetTemperatureV", api.NVML_TEMPERATURE_GPU)
        processes = self._processes
        return Gpu(
            t=t,
            pid=0,
            index=self.index,
            uuid=self.uuid,
            name=self.name,
            util_samples=samples,
            **(self._gpm.ratios() | ({} if util_ratio is None else {"util_ratio": util_ratio})),
            memory_used_bytes=used,
            memory_total_bytes=total,
            power_w=_watt(query("nvmlDeviceGetPowerUsage") if power_mw is None else power_mw),
            energy_j=None if energy_mj is None else round(energy_mj / 1000, 1),
            temperature_c=_degrees(celsius),
            memory_temperature_c=_degrees(self._fields.value(Fields.MEMORY_TEMPERATURE) or None),  # 0: no sensor
            sm_clock_mhz=query("nvmlDeviceGetClockInfo", api.NVML_CLOCK_SM),
            throttle=throttle,
            throttled=throttled,
            pcie_rx_bytes_per_s=self._rate(Fields.PCIE_RX, 1, Gpm.PCIE_RX),
            pcie_tx_bytes_per_s=self._rate(Fields.PCIE_TX, 1, Gpm.PCIE_TX),
            nvlink_rx_bytes_per_s=self._rate(Fields.NVLINK_RX, 1024, Gpm.NVLINK_RX),
            nvlink_tx_bytes_per_s=self._rate(Fields.NVLINK_TX, 1024, Gpm.NVLINK_TX),
            xids=self._new_xids,
            pids=processes.pids if processes else [],
            processes=processes.found if processes else [],
            compute_capability=self._compute_capability if t >= self._facts_s else None,
            cost_ms=round(self.handle.cost_s * 1000, 2),
            **self._seldom,
        )

    def close(self) -> None:
        """Free what the library holds for this GPU."""
        self._gpm.close()
        self._xids.close()

    def _poll_slow_figures(self, t: float) -> None:
        before_s, query, api, seldom = self.handle.cost_s, self.handle.query, self.handle.api, self._seldom
        if self._processes is not None:
            self._processes.poll()
        seldom["power_limit_w"] = _watt(query("nvmlDeviceGetEnforcedPowerLimit"))
        seldom["ecc_errors"] = query(
            "nvmlDeviceGetTotalEccErrors", api.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, api.NVML_VOLATILE_ECC
        )
        for name, what in _LINK.items():  # the highest: an idle GPU lowers both
            highest = seldom.get(name)
            if highest is None or highest != seldom[f"{name}_max"]:
                seldom[name] = max(query(f"nvmlDeviceGetCurr{what}") or 0, highest or 0) or None
        self._slow.made(t, self.handle.cost_s - before_s)

    def _rate(self, counter: int, unit_bytes: int, metric: int) -> float | None:
        """Bytes a second by the counter, or by GPM where the device has no such counter."""
        if self._fields.has(counter):
            per_s = self._fields.per_second(counter)
            return None if per_s is None else float(round(per_s * unit_bytes))
        per_s = self._gpm.bytes_per_s(metric)
        return None if per_s is None else float(round(per_s))


def name_of(handle: Handle) -> str:
    """The product name."""
    return plain(str(handle.query("nvmlDeviceGetName") or "GPU"))[:80]


def memory(handle: Handle) -> tuple[int | None, int | None]:
    """Bytes used and in total. Version 2 of the query does not count what the driver reserves as used."""
    info = handle.query("nvmlDeviceGetMemoryInfo", handle.api.nvmlMemory_v2, key="nvmlDeviceGetMemoryInfo_v2")
    info = info or handle.query("nvmlDeviceGetMemoryInfo")
    return (None, None) if info is None else (int(info.used), int(info.total))


def _text(value: bytes | str) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


def _degrees(celsius: float | None) -> float | None:
    return None if celsius is None else float(celsius)


def _watt(mw: float | None) -> float | None:
    return None if mw is None else round(mw / 1000, 1)


def instances(gpu: Handle) -> list[Handle]:
    """The MIG instances visible from here, if it is divided; in a container those it was given.

    Raises DriverError when the GPU is gone.
    """
    mode = gpu.query("nvmlDeviceGetMigMode")
    if not mode or mode[0] != gpu.api.NVML_DEVICE_MIG_ENABLE:
        return []
    found: list[Handle] = []
    for place in range(gpu.query("nvmlDeviceGetMaxMigDeviceCount") or 0):
        raw = gpu.query("nvmlDeviceGetMigDeviceHandleByIndex", place)
        with contextlib.suppress(DriverError):  # not for us to see
            found += [] if raw is None else [Handle(gpu.library, raw)]  # None: a free place
    return found


class MigDevice:
    """One MIG instance: memory, processes, GPM (its utilisation, too). All else the driver reports for whole GPUs."""

    def __init__(self, handle: Handle, gpu: Handle, index: int, trust: PidTrust) -> None:
        """``index`` is that of the GPU. Raises DriverError when the GPU is gone."""
        self.uuid = handle.uuid
        self._index = index
        self._handle = handle
        self._parent_uuid = gpu.uuid
        self._name = name_of(handle)
        number = handle.query("nvmlDeviceGetGpuInstanceId")
        self._of_gpu = Handle(gpu.library, gpu.raw)  # GPM queries are made of the GPU, with the instance's number
        self._gpm = None if number is None else Gpm(self._of_gpu, int(number))
        self._processes = ComputeProcesses(handle, trust)
        self._slow = SlowSchedule()
        self._handle.reset_counts()
        self._of_gpu.reset_counts()

    def poll(self) -> None:
        """Do nothing: no figure of an instance changes within a window."""

    def read(self, t: float) -> Gpu:
        """The record of the window that ends now. Raises DriverError when nothing answers."""
        used, total = memory(self._handle)
        if self._gpm is not None:
            self._gpm.read(t)
        if self._slow.is_due(t):
            before_s = self._handle.cost_s
            self._processes.poll()
            self._slow.made(t, self._handle.cost_s - before_s)
        record = Gpu(
            t=t,
            pid=0,
            index=self._index,
            uuid=self.uuid,
            name=self._name,
            parent_uuid=self._parent_uuid,
            **(self._gpm.ratios() if self._gpm is not None else {}),
            memory_used_bytes=used,
            memory_total_bytes=total,
            pids=self._processes.pids,
            processes=self._processes.found,
            cost_ms=round((self._handle.cost_s + self._of_gpu.cost_s) * 1000, 2),
        )
        self._handle.end_window()
        self._of_gpu.reset_counts()
        return record

    def close(self) -> None:
        """Free what the library holds for this instance."""
        if self._gpm is not None:
            self._gpm.close()


#: How often the MIG instances are listed anew.
_MIG_EVERY_S = 30.0


class NvmlSlot(Slot):
    """One GPU by its index in PCI order."""

    def __init__(
        self, library: VendorLibrary, index: int, trust: PidTrust, clock: Callable[[], float], root: str
    ) -> None:
        super().__init__(library, index)
        self._trust = trust
        self._clock = clock
        self._root = root
        self._whole: NvmlDevice | None = None  # the latest that was opened

    def _open(self, now_s: float) -> None:
        """Open the device and its MIG instances, unless they are unchanged."""
        handle = self.library.handle(self.index)
        cut = instances(handle)
        self._reopen_s = now_s + _MIG_EVERY_S
        uuids = tuple(instance.uuid for instance in cut)
        seen = (self.gpu.uuid, self.gpu.instances) if self.gpu is not None else None
        if self._devices and seen == (handle.uuid, uuids):
            return
        self.close()  # when a GPU is lost, those with higher indices may move up
        self._whole = NvmlDevice(handle, self.index, None if cut else self._trust, self._clock, self._root)
        self._devices = (self._whole,)  # first: what it holds is freed if the GPU is lost now
        self._devices = (self._whole, *(MigDevice(instance, handle, self.index, self._trust) for instance in cut))
        self.gpu = VisibleGpu(handle.uuid, self._whole.name, uuids)

    def _explain(self, error: DriverError, now_s: float) -> Problem:
        xids = self._whole.pending_xids() if self._whole is not None and self._devices else []
        if xids and self.gpu is not None:
            self._last = [Gpu(t=now_s, pid=0, index=self.index, uuid=self.gpu.uuid, name=self.gpu.name, xids=xids)]
        return self.library.explain_device(self.words, error, xids)
