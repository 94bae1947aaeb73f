"""What every NVML call that tuimon makes takes, on this driver."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bench.overhead import Say
from bench.table import Row, Spread
from tuimon.sources import nvml


class TimedLibrary(nvml.Library):
    """The library, with the time of each call."""

    def __init__(self) -> None:
        self.took_ms: dict[str, list[float]] = {}
        super().__init__()

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """See ``nvml.Library``."""
        start_ns = time.perf_counter_ns()
        try:
            return super().call(function, *arguments)
        finally:
            took_ms = (time.perf_counter_ns() - start_ns) / 1e6
            self.took_ms.setdefault(getattr(function, "__name__", str(function)), []).append(took_ms)


def measure(looks: int, say: Say) -> list[Row]:
    """One row per call, slowest first; what was asked only once is listed too."""
    say(f"latency of each NVML call: {looks} looks")
    library = TimedLibrary()
    try:
        device = library.device(0)
        for _ in range(looks):
            device.read(time.monotonic(), with_pids=True)
            time.sleep(0.1)
    finally:
        library.close()
    rows = [
        Row(f"NVML {name}, {len(ms)} calls", None, Spread.of(ms), unit="ms") for name, ms in library.took_ms.items()
    ]
    return sorted(rows, key=lambda row: -(row.measured.median if row.measured else 0.0))
