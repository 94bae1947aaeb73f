"""What every NVML call that tuimon makes takes, on this driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from bench.overhead import Say
from bench.table import Row, Spread
from tuimon.sources.gpus.driver import Handle
from tuimon.sources.gpus.nvml import Nvml
from tuimon.sources.gpus.nvml_device import Fields, NvmlDevice, pid_trust

_GPM_APART_S = 0.12


class TimedLibrary(Nvml):
    """The library, with the time of each call."""

    def __init__(self) -> None:
        self.took_ms: dict[str, list[float]] = {}
        super().__init__()

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """See ``Nvml``."""
        start_ns = time.perf_counter_ns()
        try:
            return super().call(function, *arguments)
        finally:
            took_ms = (time.perf_counter_ns() - start_ns) / 1e6
            self.took_ms.setdefault(getattr(function, "__name__", str(function)), []).append(took_ms)


def _each_field(handle: Handle, library: TimedLibrary) -> None:
    """What the fields cost that ``NvmlDevice`` reads all at once."""
    for field in Fields.ALL:
        start_ns = time.perf_counter_ns()
        Nvml.call(library, handle.api.nvmlDeviceGetFieldValues, handle.raw, [field])
        library.took_ms.setdefault(f"field {field} alone", []).append((time.perf_counter_ns() - start_ns) / 1e6)


def measure(looks: int, limit_s: float, say: Say) -> Iterator[Row]:
    """One row per call, slowest first; what was asked only once is listed too."""
    say(f"latency of each NVML call: {looks} looks, or {limit_s:.0f} s")
    library = TimedLibrary()
    try:
        handle = library.handle(0)
        device = NvmlDevice(handle, 0, pid_trust(library.driver_version()))
        start_s = time.monotonic()
        for number in range(looks):
            if time.monotonic() - start_s > limit_s:
                break
            device.poll()
            device.read(start_s + 10 * number)  # far enough apart for the calls that are made seldom
            _each_field(handle, library)
            time.sleep(_GPM_APART_S)
        device.close()
    finally:
        library.close()
    rows = [
        Row(f"NVML {name}, {len(ms)} calls", None, Spread.of(ms), unit="ms") for name, ms in library.took_ms.items()
    ]
    yield from sorted(rows, key=lambda row: -(row.measured.median if row.measured else 0.0))
