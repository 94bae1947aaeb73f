"""One NVIDIA GPU, with its counters, its MIG instances and its processes.

It is queried in tiers by cost: what changes fast, a record a window, and the slow queries every two seconds. Units of
fields (``nvmlDeviceGetFieldValues``) are those of nvml.h, at the NVML_FI_DEV_* of the same number.
"""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any, ClassVar

from msgspec import Struct

from tuimon.proc.numa import nodes_near
from tuimon.records import Gpu, GpuProcess, Throttle
from tuimon.sources.gpus.driver import Device, DriverError, Handle, in_first_pid_namespace, process_fields

#: Fields, as NVML_FI_DEV_* numbers them. Time for which a cause held the clocks down, in ns.
THROTTLE_NS = {
    74: "power cap",
    76: "sync boost",
    269: "thermal (software)",
    270: "thermal (hardware)",
    271: "power brake",
}
_ALL_LINKS = 0xFFFFFFFF  # scope of the NVLink counters: the sum over the links
_INVALID_ARGUMENT = 2  # nvmlReturn_t
#: By nvmlValueType_t: how to read the value, and by how much it jumps back when it overflows.
_VALUES: dict[int, tuple[Callable[[Any], float], int]] = {
    0: (lambda value: float(value.dVal), 0),
    1: (lambda value: int(value.uiVal), 1 << 32),
    2: (lambda value: int(value.ulVal), 0),
    3: (lambda value: int(value.ullVal), 0),
    4: (lambda value: int(value.sllVal), 0),
    5: (lambda value: int(value.siVal), 0),
    6: (lambda value: int(value.usVal), 1 << 16),
}


class Fields:
    """The fields of one device. Each may be missing; an unsupported one is not queried again."""

    MEMORY_TEMPERATURE = 82  # degrees C
    ENERGY = 83  # mJ
    POWER_AVERAGE = 185  # mW
    PCIE_TX, PCIE_RX = 197, 198  # bytes
    NVLINK_TX, NVLINK_RX = 138, 139  # KiB
    ALL = (POWER_AVERAGE, ENERGY, MEMORY_TEMPERATURE, PCIE_TX, PCIE_RX, NVLINK_TX, NVLINK_RX, *THROTTLE_NS)

    def __init__(self, handle: Handle, clock: Callable[[], float]) -> None:
        self._handle = handle
        self._clock = clock
        self._read_s = 0.0  # time of the latest read
        self._never: set[int] = set()
        self._values: dict[int, float] = {}  # of the latest read
        self._overflow: dict[int, int] = {}
        self._before: dict[int, tuple[float, float]] = {}  # counter: time and value when its rate was last computed

    def read(self) -> None:
        """Query all fields in one call; costs milliseconds, of which POWER_AVERAGE takes 3."""
        self._values = {}
        wanted = [field for field in self.ALL if field not in self._never]
        if not wanted:
            return
        self._read_s = self._clock()
        queries = [(field, _ALL_LINKS if field in (self.NVLINK_TX, self.NVLINK_RX) else 0) for field in wanted]
        for answer in self._handle.query("nvmlDeviceGetFieldValues", queries) or ():
            field, reading = int(answer.fieldId), _VALUES.get(int(answer.valueType))
            if answer.nvmlReturn in (_INVALID_ARGUMENT, *self._handle.library.NEVER):
                self._never.add(field)
            if answer.nvmlReturn == 0 and reading is not None:
                value, overflow = reading
                self._values[field] = value(answer.value)
                self._overflow[field] = overflow

    def value(self, field: int) -> float | None:
        """The value at the latest read."""
        return self._values.get(field)

    def has(self, field: int) -> bool:
        """True if the device may have this field."""
        return field not in self._never and self._handle.supports("nvmlDeviceGetFieldValues")

    def per_second(self, field: int) -> float | None:
        """Growth of a counter a second since the last call for it; None at first and after a reset."""
        value = self._values.get(field)
        if value is None:
            return None
        before = self._before.get(field)
        self._before[field] = (self._read_s, value)
        if before is None or self._read_s <= before[0]:
            return None
        gained = value - before[1]
        if gained < 0:
            gained += self._overflow[field]
        return None if gained < 0 else gained / (self._read_s - before[0])


#: Bits of nvmlClocksEventReasons that hold the clocks down; idling (1) does not.
_REASONS = (
    (0x002, "application clocks"),
    (0x004, "power cap"),
    (0x008, "hardware slowdown"),
    (0x010, "sync boost"),
    (0x020, "thermal (software)"),
    (0x040, "thermal (hardware)"),
    (0x080, "power brake"),
    (0x100, "display clocks"),
)
_HARDWARE_CAUSES = 0x0C0  # with one of these the bit "hardware slowdown" is set as well
_COUNTERS = {cause: field for field, cause in THROTTLE_NS.items()}


class Throttling:
    """Limits on one device's clocks: the causes at the latest poll, and their shares of a window."""

    def __init__(self, handle: Handle, fields: Fields) -> None:
        self._handle = handle
        self._fields = fields
        self._now: list[str] = []
        self._seen: set[str] = set()  # causes at any poll of the window

    def poll(self) -> None:
        """Query the causes at this moment."""
        bits = self._handle.query("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # the query's name before driver 535
            bits = self._handle.query("nvmlDeviceGetCurrentClocksThrottleReasons")
        bits = int(bits or 0)
        if bits & _HARDWARE_CAUSES:
            bits &= ~0x008
        self._now = [word for bit, word in _REASONS if bits & bit]
        self._seen.update(self._now)

    def window(self) -> tuple[list[str], list[Throttle]]:
        """The causes at the latest poll, and those of the window that ends now."""
        found = []
        for cause, field in _COUNTERS.items():
            ns_per_s = self._fields.per_second(field)
            if ns_per_s is not None and ns_per_s / 1e9 >= 0.0005:  # less is written as 0
                found.append(Throttle(cause, round(min(ns_per_s / 1e9, 1.0), 3)))
        counted = {cause for cause, field in _COUNTERS.items() if self._fields.value(field) is not None}
        found += [Throttle(cause) for _, cause in _REASONS if cause in self._seen - counted]
        self._seen.clear()
        return self._now, found


_MIB = 1 << 20


class Gpm:
    """GPU Performance Monitoring (Hopper and later): how busy the parts of a GPU or MIG instance were between samples.

    Metrics are numbered as in nvmlGpmMetricId_t.
    """

    #: By the field of ``Gpu``: % of the time, of the warps, of the bandwidth.
    RATIOS: ClassVar = {"util_ratio": 1, "sm_ratio": 2, "occupancy_ratio": 3, "tensor_ratio": 5, "dram_ratio": 10}
    PCIE_TX, PCIE_RX, NVLINK_RX, NVLINK_TX = 20, 21, 60, 61  # MiB/s
    ALL = (*RATIOS.values(), PCIE_TX, PCIE_RX, NVLINK_RX, NVLINK_TX)

    def __init__(self, handle: Handle, gpu: object, gpu_instance: int | None = None) -> None:
        """``gpu``: the binding's handle of the GPU, also for a MIG instance of it."""
        self._handle = handle
        self._get_sample: tuple[Any, ...] = ("nvmlGpmSampleGet", gpu)  # a function of the binding, and its arguments
        if gpu_instance is not None:
            self._get_sample = ("nvmlGpmMigSampleGet", gpu, gpu_instance)
        support = handle.call("nvmlGpmQueryDeviceSupport", gpu)
        self._supported = bool(support is not None and support.isSupportedDevice)
        self._samples: list[Any] = []  # older, newer; structures of pynvml
        self._sampled_s: float | None = None  # time of the newer sample
        self._values: dict[int, float] = {}

    def read(self, now_s: float) -> None:
        """Take a sample; the metrics cover the time since the previous one."""
        self._values = {}
        while self._supported and len(self._samples) < 2:
            sample = self._handle.call("nvmlGpmSampleAlloc")
            if sample is None:
                self._supported = self._handle.supports("nvmlGpmSampleAlloc")
                return
            self._samples.append(sample)
        if not self._supported:
            return
        # closer together the driver computes no metrics
        if self._sampled_s is not None and now_s - self._sampled_s < 0.11:
            return
        older, newer = self._samples
        if self._handle.call(*self._get_sample, older) is None:  # else it becomes the newer
            self._sampled_s = None
            return
        self._samples = [newer, older]
        if self._sampled_s is not None:
            self._compute()
        self._sampled_s = now_s

    def _compute(self) -> None:
        api = self._handle.api
        wanted = api.c_nvmlGpmMetricsGet_t()
        wanted.version = api.NVML_GPM_METRICS_GET_VERSION
        wanted.numMetrics = len(self.ALL)
        wanted.sample1, wanted.sample2 = self._samples
        for place, metric in enumerate(self.ALL):
            wanted.metrics[place].metricId = metric
        answer = self._handle.call("nvmlGpmMetricsGet", wanted)
        if answer is None:
            return
        for metric in (answer.metrics[place] for place in range(len(self.ALL))):
            if metric.nvmlReturn == 0 and math.isfinite(metric.value) and metric.value >= 0:
                self._values[int(metric.metricId)] = float(metric.value)

    def ratios(self) -> dict[str, Any]:  # Any: fields of one record, as others of it
        """The metrics in %, as 0..1, by the field of ``Gpu``; impossible values (above 110 %) are left out."""
        percents = {name: self._values.get(metric, math.inf) for name, metric in self.RATIOS.items()}
        return {name: round(min(percent / 100, 1.0), 4) for name, percent in percents.items() if percent <= 110}

    def bytes_per_s(self, metric: int) -> float | None:
        """A metric in MiB/s, as bytes a second."""
        mib = self._values.get(metric)
        return None if mib is None else mib * _MIB

    def close(self) -> None:
        """Free the samples."""
        samples, self._samples = self._samples, []
        for sample in samples:
            with contextlib.suppress(DriverError):  # a driver that is gone has no samples
                self._handle.library.call(self._handle.api.nvmlGpmSampleFree, sample)


# In a container the driver may report the host's pids, which belong to other processes here, or none. Process lists are
# translated from driver 535.113 on, process utilisation from 575.57 on.
_LISTS_TRANSLATED = (535, 113)
_UTILISATION_TRANSLATED = (575, 57)


class PidTrust(Struct, frozen=True, gc=False):
    """Validity of the driver's pids in this pid namespace: in its lists of processes, and in its utilisation."""

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
            # some drivers report impossible values now and then
            if sample.timeStamp > self._seen_us and sample.smUtil <= 100:
                percents[int(sample.pid)].append(int(sample.smUtil))
        self._seen_us = newest_us
        if first:  # the buffer holds samples from before this run
            return {}
        return {pid: round(sum(values) / len(values) / 100, 3) for pid, values in percents.items()}


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
        while self._events is not None and len(found) < 16:
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
        many = len(samples)
        if many > _SAMPLES:  # neighbours are averaged
            parts = (samples[place * many // _SAMPLES : (place + 1) * many // _SAMPLES] for place in range(_SAMPLES))
            samples = [sum(part) / len(part) for part in parts]
        return [round(ratio, 2) for ratio in samples], mean


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
            self._facts_s = t + 60.0
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
