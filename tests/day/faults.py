"""What goes wrong during the day: py-spy children of the monitor die, the driver loses its GPU or answers late."""

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
        self.scenario = scenario
        self.kill_due = Every(real_seconds(hourly.sampler_kills))
        self.owed = 0  # kills that found no py-spy running
        self.fault_due = Every(real_seconds(hourly.gpu_faults))
        self.lasts_s = real_seconds(hourly.gpu_faults) * _LASTS
        self.mend: tuple[Every, str] | None = None

    def step(self, monitor: int) -> None:
        self.owed += self.kill_due.due()
        if self.owed and kill_sampler(monitor):
            self.owed -= 1
            self.counts["py-spy killed"] += 1
        if self.mend is not None and self.mend[0].due():
            self.scenario.set({self.mend[1]: None})
            self.mend = None
        if self.fault_due.due() and self.mend is None:
            name, key, value = _GPU_FAULTS[sum(self.counts[fault[0]] for fault in _GPU_FAULTS) % len(_GPU_FAULTS)]
            self.scenario.set({key: value})
            self.mend = Every(self.lasts_s), key
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
