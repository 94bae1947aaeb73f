"""What goes wrong during the day: py-spy children of the monitor die, the driver loses its GPU or answers late."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter

import psutil

from tests.day.readings import Hourly, real_seconds
from tests.day.training import Every
from tests.fake_nvml import Scenario

#: Of each fault's period, the part that it lasts.
_LASTS = 0.3
#: Keys of tests/fake_nvml/scenario.c: a GPU off the bus, a slow call, a call that does not return until it is mended.
_GPU_FAULTS: tuple[tuple[str, str, int], ...] = (
    ("GPU lost", "0.error", 15),
    ("GPU late", "delay.nvmlDeviceGetTemperature", 300),
    ("GPU hung", "delay.nvmlDeviceGetTemperature", 3_600_000),
)


class Faults:
    """Step it often; ``counts`` says what it has done."""

    def __init__(self, scenario: Scenario, hourly: Hourly) -> None:
        self.counts = Counter[str]()
        self._scenario = scenario
        self._kill_due = Every(real_seconds(hourly.sampler_kills))
        self._owed = 0  # kills that found no py-spy running
        self._fault_due = Every(real_seconds(hourly.gpu_faults))
        self._lasts_s = real_seconds(hourly.gpu_faults) * _LASTS
        self._mend: tuple[Every, str] | None = None

    def step(self, monitor: int) -> None:
        self._owed += self._kill_due.due()
        if self._owed and kill_sampler(monitor):
            self._owed -= 1
            self.counts["py-spy killed"] += 1
        if self._mend is not None and self._mend[0].due():
            self._scenario.set({self._mend[1]: None})
            self._mend = None
        if self._fault_due.due() and self._mend is None:
            name, key, value = _GPU_FAULTS[sum(self.counts[fault[0]] for fault in _GPU_FAULTS) % len(_GPU_FAULTS)]
            self._scenario.set({key: value})
            self._mend = Every(self._lasts_s), key
            self.counts[name] += 1


def kill_sampler(monitor: int) -> bool:
    """Kill one py-spy child of this process; False where none runs."""
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(monitor).children():
            if child.name() == "py-spy":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)
                    return True
    return False
