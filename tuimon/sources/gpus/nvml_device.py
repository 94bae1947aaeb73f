"""One GPU of NVIDIA's, with its MIG instances and its processes.

It is queried in tiers by cost: what changes fast, a record a window, and the slow queries every two seconds.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import Any

from msgspec import Struct

from tuimon.proc.numa import nodes_near
from tuimon.records import Gpu, GpuProcess
from tuimon.sources.gpus.driver import Device, DriverError, Handle, in_first_pid_namespace, process_fields
from tuimon.sources.gpus.nvml_counters import Fields, Gpm, Throttling

# In a container the driver may report the host's pids, which belong to other processes here, or none. Process lists are
# translated from driver 535.113 on, process utilisation from 575.57 on.
_LISTS_TRANSLATED = (535, 113)
_UTILISATION_TRANSLATED = (575, 57)


class PidTrust(Struct, frozen=True, gc=False):
    """Whether the driver's pids are valid in this pid namespace: those of its process lists, of its utilisation."""

    lists: bool
    utilisation: bool


def pid_trust(driver: tuple[int, ...]) -> PidTrust:
    """The trust for this process's namespace and this driver's version."""
    outermost = in_first_pid_namespace()
    return PidTrust(outermost or driver >= _LISTS_TRANSLATED, outermost or driver >= _UTILISATION_TRANSLATED)


class ComputeProcesses:
    """The processes of one GPU or MIG instance. A poll holds a driver lock that kernel launches need, for 4.5 ms."""

    def __init__(self, handle: Handle, trust: PidTrust) -> None:
        self._handle = handle
        self._trust = trust
        self._seen_us = 0  # the driver's timestamp of the newest utilisation sample read
        self._polled = False

    def poll(self) -> dict[str, Any]:  # Any: fields of one record
        """Query the process list and the utilisation of each process, for a record."""
        # by versioned name: pynvml refuses the plain one if the driver lacks the newest version
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
        return process_fields(found)

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
    """The critical Xid errors of one GPU; none if the driver does not report them."""

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


#: How often what hardly ever changes is queried.
_FACTS_EVERY_S = 60.0


#: The PCIe link in a record, and in the names of its queries.
_LINK = {"pcie_generation": "PcieLinkGeneration", "pcie_width": "PcieLinkWidth"}


class NvmlDevice(Device):
    """A whole GPU."""

    def __init__(self, handle: Handle, index: int, trust: PidTrust | None) -> None:
        """``trust`` is None if the processes are those of the GPU's MIG instances, and queried there."""
        query, library = handle.query, handle.library
        super().__init__(handle, index, query("nvmlDeviceGetName"))
        self._fields = Fields(handle, library.clock)
        self._utilisation = Utilisation(handle)
        self._throttling = Throttling(handle, self._fields)
        self._gpm = Gpm(handle, handle.raw)
        self._new_xids: list[int] = []  # not in any record yet
        self._processes = None if trust is None else ComputeProcesses(handle, trust)
        self._facts_s = float("-inf")
        pci: Any = query("nvmlDeviceGetPciInfo")
        c2c, capability = query("nvmlDeviceGetC2cModeInfoV1"), query("nvmlDeviceGetCudaComputeCapability")
        self.slow |= {
            "power_limit_default_w": _watt(query("nvmlDeviceGetPowerManagementDefaultLimit")),
            "sm_clock_max_mhz": query("nvmlDeviceGetMaxClockInfo", handle.api.NVML_CLOCK_SM),
            "compute_capability": None if capability is None else float(f"{capability[0]}.{capability[1]}"),
            "c2c": None if c2c is None else bool(c2c.isC2cEnabled),
            "near_nodes": None if pci is None else nodes_near(_text(pci.busId), library.root),
            **{f"{name}_max": query(f"nvmlDeviceGetMax{what}") for name, what in _LINK.items()},
        }
        self._xids = Xids(handle)  # last: it holds a descriptor, which nothing frees if a query raises

    def poll(self) -> None:
        """Query the utilisation, and the causes that lower the clocks."""
        self._utilisation.poll()
        self._throttling.poll()

    def poll_slow(self) -> None:
        """Query processes, the power limit, memory errors, and the PCIe link."""
        query, api, slow = self.handle.query, self.handle.api, self.slow
        if self._processes is not None:
            slow |= self._processes.poll()
        slow["power_limit_w"] = _watt(query("nvmlDeviceGetEnforcedPowerLimit"))
        slow["ecc_errors"] = query(
            "nvmlDeviceGetTotalEccErrors", api.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, api.NVML_VOLATILE_ECC
        )
        for name, what in _LINK.items():  # the highest: an idle GPU lowers both
            highest = slow.get(name)
            if highest is None or highest != slow[f"{name}_max"]:
                slow[name] = max(query(f"nvmlDeviceGetCurr{what}") or 0, highest or 0) or None

    def read(self, t: float) -> Gpu:
        """The record of the window that ends now. Raises DriverError when nothing answers."""
        record = super().read(t)
        self._new_xids = []
        return record

    def pending_xids(self) -> list[int]:
        """The Xid errors that are in no record yet, of a GPU that does not answer."""
        with contextlib.suppress(DriverError):
            self._new_xids += self._xids.poll()
        return self._new_xids

    def figures(self, t: float) -> dict[str, Any]:  # Any: fields of one record
        """All fields that are not ``slow``; those that hardly ever change once a minute."""
        query, api = self.handle.query, self.handle.api
        self._new_xids += self._xids.poll()
        self._fields.read()
        self._gpm.read(t)
        if t >= self._facts_s:
            self._facts_s = t + _FACTS_EVERY_S
            self.slow["pcie_replays"] = query("nvmlDeviceGetPcieReplayCounter")
            remapped = query("nvmlDeviceGetRemappedRows")
            if remapped is not None:
                _, _, is_pending, has_failed = remapped
                self.slow["row_remap"] = "failed" if has_failed else "pending" if is_pending else "none"
        samples, util_ratio = self._utilisation.window()
        throttle, throttled = self._throttling.window()
        energy_mj, power_mw = self._fields.value(Fields.ENERGY), self._fields.value(Fields.POWER_AVERAGE)
        celsius = query("nvmlDeviceGetTemperature", api.NVML_TEMPERATURE_GPU)
        if celsius is None:  # future drivers, which may drop the older name
            celsius = query("nvmlDeviceGetTemperatureV", api.NVML_TEMPERATURE_GPU)
        return {
            "util_samples": samples,
            **(self._gpm.ratios() | ({} if util_ratio is None else {"util_ratio": util_ratio})),
            **memory(self.handle),
            "power_w": _watt(query("nvmlDeviceGetPowerUsage") if power_mw is None else power_mw),
            "energy_j": None if energy_mj is None else round(energy_mj / 1000, 1),
            "temperature_c": _degrees(celsius),
            "memory_temperature_c": _degrees(self._fields.value(Fields.MEMORY_TEMPERATURE) or None),  # 0: no sensor
            "sm_clock_mhz": query("nvmlDeviceGetClockInfo", api.NVML_CLOCK_SM),
            "throttle": throttle,
            "throttled": throttled,
            "pcie_rx_bytes_per_s": self._rate(Fields.PCIE_RX, 1, Gpm.PCIE_RX),
            "pcie_tx_bytes_per_s": self._rate(Fields.PCIE_TX, 1, Gpm.PCIE_TX),
            "nvlink_rx_bytes_per_s": self._rate(Fields.NVLINK_RX, 1024, Gpm.NVLINK_RX),
            "nvlink_tx_bytes_per_s": self._rate(Fields.NVLINK_TX, 1024, Gpm.NVLINK_TX),
            "xids": self._new_xids,
        }

    def close(self) -> None:
        """Free what the library holds for this GPU."""
        self._gpm.close()
        self._xids.close()

    def _rate(self, counter: int, unit_bytes: int, metric: int) -> float | None:
        """Bytes a second by the counter, or by GPM if the device has no such counter."""
        if self._fields.has(counter):
            per_s = self._fields.per_second(counter)
            return None if per_s is None else float(round(per_s * unit_bytes))
        per_s = self._gpm.bytes_per_s(metric)
        return None if per_s is None else float(round(per_s))


def memory(handle: Handle) -> dict[str, int]:
    """Bytes used and in total, for a record. Version 2 of the query does not count what the driver reserves as used."""
    info = handle.query("nvmlDeviceGetMemoryInfo", handle.api.nvmlMemory_v2, key="nvmlDeviceGetMemoryInfo_v2")
    info = info or handle.query("nvmlDeviceGetMemoryInfo")
    return {} if info is None else {"memory_used_bytes": int(info.used), "memory_total_bytes": int(info.total)}


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


class MigDevice(Device):
    """One MIG instance: memory, processes, GPM (its utilisation, too). All else the driver reports for whole GPUs."""

    def __init__(self, handle: Handle, gpu: Handle, index: int, trust: PidTrust) -> None:
        """``index`` is that of the GPU. Raises DriverError when the GPU is gone."""
        super().__init__(handle, index, handle.query("nvmlDeviceGetName"))
        self.slow["parent_uuid"] = gpu.uuid
        number = handle.query("nvmlDeviceGetGpuInstanceId")
        self._gpm = None if number is None else Gpm(handle, gpu.raw, int(number))
        self._processes = ComputeProcesses(handle, trust)

    def poll_slow(self) -> None:
        """Query the processes."""
        self.slow |= self._processes.poll()

    def figures(self, t: float) -> dict[str, Any]:  # Any: fields of one record
        """Memory and GPM."""
        figures: dict[str, Any] = dict(memory(self.handle))
        if self._gpm is not None:
            self._gpm.read(t)
            figures |= self._gpm.ratios()
        return figures

    def close(self) -> None:
        """Free what the library holds for this instance."""
        if self._gpm is not None:
            self._gpm.close()
