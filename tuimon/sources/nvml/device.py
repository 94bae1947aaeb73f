"""One GPU, asked in tiers by cost: a look now and then, a record a window, the dear things every two seconds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from tuimon.records import Gpu
from tuimon.sources.nvml import fields, gpm
from tuimon.sources.nvml.fields import Fields
from tuimon.sources.nvml.gpm import Gpm
from tuimon.sources.nvml.library import NOT_SUPPORTED, Handle, NvmlError
from tuimon.sources.nvml.processes import PidTrust, Processes
from tuimon.sources.nvml.throttle import Throttling
from tuimon.sources.nvml.utilisation import Utilisation
from tuimon.sources.nvml.xids import Xids
from tuimon.text import plain

#: The process lists, ECC and what hardly changes.
SLOW_S = 2.0
#: Who asks slowly gets asked seldom: slow calls take at most this share of the time.
SLOW_RATIO = 0.02
_FACTS_S = 60.0


class Device:
    """A whole GPU. Each figure is None where it is not supported."""

    def __init__(self, handle: Handle, index: int, trust: PidTrust | None, clock: Callable[[], float]) -> None:
        """``trust`` is None when who computes is not to be asked here, but of the GPU's MIG instances."""
        self.index = index
        self.uuid = handle.uuid
        self.handle = handle
        self._fields = Fields(handle, clock)
        self._utilisation = Utilisation(handle)
        self._throttling = Throttling(handle, self._fields)
        self._gpm = Gpm(handle)
        self._xids = Xids(handle)
        self._new_xids: list[int] = []  # that no record has told yet
        self._processes = None if trust is None else Processes(handle, trust)
        self._slow_s = float("-inf")  # when the slow calls are due
        self._facts_s = float("-inf")
        self._power_limit_mw: int | None = None
        self._ecc_errors: int | None = None
        self._compute_capability = _capability(handle)
        self.name = name_of(handle)
        self._clock_max_mhz: int | None = handle.ask("nvmlDeviceGetMaxClockInfo", handle.api.NVML_CLOCK_SM)
        self._peak_mw: float | None = None
        handle.begin()

    def look(self) -> None:
        """What changes within a window; costs microseconds. Raises NvmlError when the GPU is gone."""
        self._utilisation.look()
        self._throttling.look()
        self._fields.read(fields.QUICK)
        self._see_power()

    def read(self, t: float) -> Gpu:
        """The record of the window that ends now. Raises NvmlError when nothing answers."""
        self._new_xids += self._xids.take()  # first: they say why the rest does not answer
        self._utilisation.look()
        self._throttling.look()
        self._fields.read(fields.ALL)
        self._see_power()
        self._gpm.read(t)
        if t >= self._slow_s:
            self._look_slowly(t)
        record = self._record(t)
        if not self.handle.answers:
            raise self.handle.error or NvmlError(NOT_SUPPORTED, "Not Supported")
        if t >= self._facts_s:
            self._facts_s = t + _FACTS_S
        self._new_xids = []
        self.handle.begin()
        return record

    def last_words(self) -> list[int]:
        """Of a GPU that does not answer: the Xid errors that no record has told."""
        with contextlib.suppress(NvmlError):
            self._new_xids += self._xids.take()
        return self._new_xids

    def _record(self, t: float) -> Gpu:
        ask, api = self.handle.ask, self.handle.api
        samples, util_ratio = self._utilisation.window()
        throttle, throttled = self._throttling.window()
        used, total = memory(self.handle)
        energy_mj = self._fields.value(fields.ENERGY)
        peak_mw, self._peak_mw = self._peak_mw, None
        processes = self._processes
        return Gpu(
            t=t,
            pid=0,
            index=self.index,
            uuid=self.uuid,
            name=self.name,
            util_ratio=util_ratio,
            util_samples=samples,
            sm_ratio=self._gpm.ratio(gpm.SM),
            occupancy_ratio=self._gpm.ratio(gpm.OCCUPANCY),
            tensor_ratio=self._gpm.ratio(gpm.TENSOR),
            dram_ratio=self._gpm.ratio(gpm.DRAM),
            memory_used_bytes=used,
            memory_total_bytes=total,
            power_w=_watt(self._power_mw()),
            power_instant_w=_watt(peak_mw),
            power_limit_w=_watt(self._power_limit_mw),
            energy_j=None if energy_mj is None else round(energy_mj / 1000, 1),
            temperature_c=self._temperature(),
            memory_temperature_c=_degrees(self._fields.value(fields.MEMORY_TEMPERATURE) or None),  # 0: no sensor
            sm_clock_mhz=ask("nvmlDeviceGetClockInfo", api.NVML_CLOCK_SM),
            sm_clock_max_mhz=self._clock_max_mhz,
            throttle=throttle,
            throttled=throttled,
            pcie_rx_bytes_per_s=self._rate(fields.PCIE_RX, 1, gpm.PCIE_RX),
            pcie_tx_bytes_per_s=self._rate(fields.PCIE_TX, 1, gpm.PCIE_TX),
            nvlink_rx_bytes_per_s=self._rate(fields.NVLINK_RX, 1024, gpm.NVLINK_RX),
            nvlink_tx_bytes_per_s=self._rate(fields.NVLINK_TX, 1024, gpm.NVLINK_TX),
            ecc_errors=self._ecc_errors,
            xids=self._new_xids,
            pids=processes.pids if processes else [],
            processes=processes.found if processes else [],
            compute_capability=self._compute_capability if t >= self._facts_s else None,
            cost_ms=round(self.handle.cost_s * 1000, 2),
        )

    def close(self) -> None:
        """Give back what the library holds for us."""
        self._gpm.close()
        self._xids.close()

    def _look_slowly(self, t: float) -> None:
        before_s = self.handle.cost_s
        if self._processes is not None:
            self._processes.look()
        self._power_limit_mw = self.handle.ask("nvmlDeviceGetEnforcedPowerLimit")
        api = self.handle.api
        self._ecc_errors = self.handle.ask(
            "nvmlDeviceGetTotalEccErrors", api.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, api.NVML_VOLATILE_ECC
        )
        self._slow_s = t - 0.1 + max(SLOW_S, (self.handle.cost_s - before_s) / SLOW_RATIO)

    def _temperature(self) -> float | None:
        sensor = self.handle.api.NVML_TEMPERATURE_GPU
        celsius = self.handle.ask("nvmlDeviceGetTemperature", sensor)
        if celsius is None:  # drivers to come, for which that name is an old one
            celsius = self.handle.ask("nvmlDeviceGetTemperatureV", sensor)
        return _degrees(celsius)

    def _see_power(self) -> None:
        instant_mw = self._fields.value(fields.POWER_INSTANT)
        if instant_mw is not None:
            self._peak_mw = max(instant_mw, self._peak_mw or 0)

    def _power_mw(self) -> float | None:
        average_mw = self._fields.value(fields.POWER_AVERAGE)
        return self.handle.ask("nvmlDeviceGetPowerUsage") if average_mw is None else average_mw

    def _rate(self, counter: int, unit_bytes: int, metric: int) -> float | None:
        """By the counter; where the device has none, by GPM."""
        if self._fields.has(counter):
            per_s = self._fields.per_second(counter)
            return None if per_s is None else float(round(per_s * unit_bytes))
        per_s = self._gpm.bytes_per_s(metric)
        return None if per_s is None else float(round(per_s))


def name_of(handle: Handle) -> str:
    """As the driver calls it."""
    return plain(str(handle.ask("nvmlDeviceGetName") or "GPU"))[:80]


def memory(handle: Handle) -> tuple[int | None, int | None]:
    """Bytes used and in all. Version 2 does not count what the driver keeps for itself as used."""
    info = handle.ask("nvmlDeviceGetMemoryInfo", handle.api.nvmlMemory_v2, key="nvmlDeviceGetMemoryInfo_v2")
    info = info or handle.ask("nvmlDeviceGetMemoryInfo")
    return (None, None) if info is None else (int(info.used), int(info.total))


def _capability(handle: Handle) -> float | None:
    answer: Any = handle.ask("nvmlDeviceGetCudaComputeCapability")
    return None if answer is None else float(f"{answer[0]}.{answer[1]}")


def _degrees(celsius: float | None) -> float | None:
    return None if celsius is None else float(celsius)


def _watt(mw: float | None) -> float | None:
    return None if mw is None else round(mw / 1000, 1)
