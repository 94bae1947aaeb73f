"""GPU Performance Monitoring (NVML, Hopper and later): how busy the parts of the chip were between two samples."""

from __future__ import annotations

import contextlib
import math
from typing import Any

from tuimon.sources.gpus.handle import DriverError, Handle

# nvmlGpmMetricId_t
UTILISATION, SM, OCCUPANCY, TENSOR, DRAM = 1, 2, 3, 5, 10  # % of the time, of the warps, of the bandwidth
PCIE_TX, PCIE_RX, NVLINK_RX, NVLINK_TX = 20, 21, 60, 61  # MiB/s
_METRICS = (UTILISATION, SM, OCCUPANCY, TENSOR, DRAM, PCIE_TX, PCIE_RX, NVLINK_RX, NVLINK_TX)
#: Least time between two samples: closer together the driver computes no metrics.
_APART_S = 0.11
_MIB = 1 << 20


class Gpm:
    """The metrics of one GPU, or of one MIG instance of it."""

    def __init__(self, handle: Handle, gpu_instance: int | None = None) -> None:
        """``handle``: of the GPU, also for a MIG instance of it."""
        self._handle = handle
        self._gpu_instance = gpu_instance
        support = handle.query("nvmlGpmQueryDeviceSupport")
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
        query, part = self._handle.query, self._gpu_instance
        taken = query("nvmlGpmSampleGet", older) if part is None else query("nvmlGpmMigSampleGet", part, older)
        if taken is None:  # else it becomes the newer
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
        wanted.numMetrics = len(_METRICS)
        wanted.sample1, wanted.sample2 = self._samples
        for place, metric in enumerate(_METRICS):
            wanted.metrics[place].metricId = metric
        answer = self._handle.call("nvmlGpmMetricsGet", wanted)
        if answer is None:
            return
        for metric in (answer.metrics[place] for place in range(len(_METRICS))):
            if metric.nvmlReturn == 0 and math.isfinite(metric.value) and metric.value >= 0:
                self._values[int(metric.metricId)] = float(metric.value)

    def ratio(self, metric: int) -> float | None:
        """A metric in %, as 0..1; None where it is impossible (above 110 %)."""
        percent = self._values.get(metric)
        return None if percent is None or percent > 110 else round(min(percent / 100, 1.0), 4)

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
