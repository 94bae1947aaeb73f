"""NVML through nvidia-ml-py (``import pynvml``): opening the library, asking one device.

Never called: ``nvmlDeviceGetPcieThroughput``, which blocks 20 ms a direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tuimon.records import Gpu
from tuimon.text import plain

# Return codes (nvml.h, nvmlReturn_t), and ours when the Python package is missing.
NO_PACKAGE = 0
NOT_SUPPORTED = 3
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
_FATAL = frozenset({GPU_IS_LOST, RESET_REQUIRED})
_NEVER = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND})

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
_SAMPLES = 25
_PIDS = 64


class NvmlError(Exception):
    """NVML, or one device, failed; ``code`` is nvmlReturn_t or NO_PACKAGE."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Library:
    """The opened NVML library."""

    def __init__(self) -> None:
        """Load and initialise it. Raises NvmlError."""
        try:
            import pynvml  # noqa: PLC0415  (costs 15 ms and is of no use on most machines)
        except ImportError as error:
            raise NvmlError(NO_PACKAGE, str(error)) from error
        self.api: Any = pynvml  # ships no types
        self.call(pynvml.nvmlInit)

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401  (what pynvml returns has no types)
        """Any function of pynvml. Raises NvmlError."""
        try:
            return function(*arguments)
        except self.api.NVMLError as error:
            raise NvmlError(int(getattr(error, "value", 999)), str(error)) from error

    def device_count(self) -> int:
        """How many GPUs there are; in a container: how many it may see."""
        return int(self.call(self.api.nvmlDeviceGetCount))

    def device(self, index: int) -> Device:
        """One GPU by PCI order. Raises NvmlError when it does not answer."""
        handle = self.call(self.api.nvmlDeviceGetHandleByIndex, index)
        uuid = str(self.call(self.api.nvmlDeviceGetUUID, handle))
        return Device(self, index, handle, uuid)

    def close(self) -> None:
        """Let go of the driver."""
        self.call(self.api.nvmlShutdown)


class Device:
    """One GPU. What it does not support is asked once and None from then on."""

    def __init__(self, library: Library, index: int, handle: object, uuid: str) -> None:
        self.index = index
        self.uuid = uuid
        self._library = library
        self._api = library.api
        self._handle = handle
        self._never: set[str] = set()
        self._answers = 0
        self._error: NvmlError | None = None
        self._seen_us = 0  # the driver's time of the newest utilisation sample that we have
        self._pids: list[int] = []
        self.name = str(self._ask("nvmlDeviceGetName") or "GPU")
        self._clock_max_mhz: int | None = self._ask("nvmlDeviceGetMaxClockInfo", self._api.NVML_CLOCK_SM)

    def read(self, t: float, *, with_pids: bool) -> Gpu:
        """All counters now. ``with_pids``: also ask who computes (4.5 ms of a driver lock). Raises NvmlError."""
        self._answers, self._error = 0, None
        samples, util_ratio = self._utilisation()
        used, total = self._memory()
        power_mw = self._ask("nvmlDeviceGetPowerUsage")
        limit_mw = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        temperature_c = self._ask("nvmlDeviceGetTemperature", self._api.NVML_TEMPERATURE_GPU)
        clock_mhz = self._ask("nvmlDeviceGetClockInfo", self._api.NVML_CLOCK_SM)
        throttle = self._throttle()
        if with_pids:
            found = self._ask("nvmlDeviceGetComputeRunningProcesses") or []
            self._pids = sorted({int(process.pid) for process in found})[:_PIDS]
        if not self._answers and self._error is not None:
            raise self._error
        return Gpu(
            t=t,
            pid=0,
            index=self.index,
            uuid=self.uuid,
            name=plain(self.name)[:80],
            util_ratio=util_ratio,
            util_samples=samples,
            memory_used_bytes=used,
            memory_total_bytes=total,
            power_w=None if power_mw is None else round(power_mw / 1000, 1),
            power_limit_w=None if limit_mw is None else round(limit_mw / 1000, 1),
            temperature_c=None if temperature_c is None else float(temperature_c),
            sm_clock_mhz=clock_mhz,
            sm_clock_max_mhz=self._clock_max_mhz,
            throttle=throttle,
            pids=self._pids,
        )

    def _ask(self, function: str, *arguments: object) -> Any:  # noqa: ANN401  (what pynvml returns has no types)
        """The answer, or None. Raises NvmlError only when the GPU is gone."""
        if function in self._never:
            return None
        call = getattr(self._api, function, None)
        if call is None:  # an older nvidia-ml-py
            self._never.add(function)
            return None
        try:
            answer = self._library.call(call, self._handle, *arguments)
        except NvmlError as error:
            if error.code in _FATAL:
                raise
            if error.code in _NEVER:
                self._never.add(function)
            self._error = error
            return None
        self._answers += 1
        return answer

    def _utilisation(self) -> tuple[list[float], float | None]:
        """The driver's own samples since the last look, oldest first, and their mean; else its latest average."""
        answer = self._ask("nvmlDeviceGetSamples", self._api.NVML_GPU_UTILIZATION_SAMPLES, self._seen_us)
        first = self._seen_us == 0
        fresh = (
            sorted((s.timeStamp, s.sampleValue.uiVal) for s in answer[1] if s.timeStamp > self._seen_us)
            if answer
            else []
        )
        if fresh:
            self._seen_us = fresh[-1][0]
        if fresh and not first:  # at the first look the buffer holds the past
            ratios = [min(value / 100, 1.0) for _, value in fresh]
            return [round(ratio, 2) for ratio in ratios[-_SAMPLES:]], round(sum(ratios) / len(ratios), 3)
        rates = self._ask("nvmlDeviceGetUtilizationRates")
        return [], None if rates is None else min(rates.gpu / 100, 1.0)

    def _memory(self) -> tuple[int | None, int | None]:
        """Bytes used and in all. Version 2 does not count what the driver keeps for itself as used."""
        info = self._ask_memory_v2() or self._ask("nvmlDeviceGetMemoryInfo")
        return (None, None) if info is None else (int(info.used), int(info.total))

    def _ask_memory_v2(self) -> Any:  # noqa: ANN401  (what pynvml returns has no types)
        if "memory_v2" in self._never:
            return None
        try:
            answer = self._library.call(self._api.nvmlDeviceGetMemoryInfo, self._handle, self._api.nvmlMemory_v2)
        except NvmlError as error:
            if error.code in _FATAL:
                raise
            self._never.add("memory_v2")
            return None
        self._answers += 1
        return answer

    def _throttle(self) -> list[str]:
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # the name before driver 535
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return [word for bit, word in _REASONS if bits and bits & bit]
