"""NVML's counters that are read in batches: fields (``nvmlDeviceGetFieldValues``), their rates, limits on clocks, GPM.

Units are those of nvml.h, at the NVML_FI_DEV_* of the same number.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any, ClassVar

from tuimon.records import Throttle
from tuimon.sources.gpus.driver import DriverError, Handle

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
#: A smaller share of the window is not listed.
_LEAST_RATIO = 0.0005


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
            if ns_per_s is not None and ns_per_s / 1e9 >= _LEAST_RATIO:
                found.append(Throttle(cause, round(min(ns_per_s / 1e9, 1.0), 3)))
        counted = {cause for cause, field in _COUNTERS.items() if self._fields.value(field) is not None}
        found += [Throttle(cause) for _, cause in _REASONS if cause in self._seen - counted]
        self._seen.clear()
        return self._now, found


#: Least time between two samples: closer together the driver computes no metrics.
_APART_S = 0.11
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
        if self._sampled_s is not None and now_s - self._sampled_s < _APART_S:
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
        """The metrics in %, as 0..1, by the field of ``Gpu``; without what is impossible (above 110 %)."""
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
