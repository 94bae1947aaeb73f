"""A GPU's place: the device while it answers, the problem while it does not."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Protocol

from tuimon.records import Gpu
from tuimon.sources.gpus.handle import DriverError
from tuimon.sources.gpus.visible_devices import VisibleGpu
from tuimon.sources.notices import Problem

_RETRY_S = (5.0, 60.0)
#: How often the slow queries are made (process lists, ECC, power limit, PCIe link) ...
_SLOW_EVERY_S = 2.0
#: ... unless that took more than this share of the time.
SLOW_RATIO = 0.02
#: The schedule's tolerance: a record may come this much early.
_EARLY_S = 0.1


class SlowSchedule:
    """When the slow queries of a device are due."""

    def __init__(self) -> None:
        self._due_s = float("-inf")

    def is_due(self, t: float) -> bool:
        """True if they are due at ``t``."""
        return t >= self._due_s

    def made(self, t: float, cost_s: float) -> None:
        """Note that the queries were made at ``t`` and took ``cost_s``."""
        self._due_s = t - _EARLY_S + max(_SLOW_EVERY_S, cost_s / SLOW_RATIO)


class Device(Protocol):
    """A GPU, or a part of one. Each method raises DriverError when the GPU is gone."""

    def poll(self) -> None:
        """Between two records: query what changes within a window."""

    def read(self, t: float) -> Gpu:
        """The record of the window that ends now."""

    def close(self) -> None:
        """Free what the library holds for it."""


class Slot:
    """One GPU by its index, with its parts."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.problem: Problem | None = None
        self.failures = 0  # in a row
        self.read_s = float("-inf")  # when it was last read
        self.gpu: VisibleGpu | None = None
        self._devices: Sequence[Device] = ()  # the GPU first
        self._last: list[Gpu] = []  # of a GPU that failed, not read yet
        self._reopen_s = float("inf")  # when it is to be opened anew
        self._retry_s = float("-inf")

    def poll(self, now_s: float) -> None:
        """Between two records: poll what changes fast."""
        if self._devices:
            try:
                self._devices[0].poll()
            except DriverError as error:
                self._fail(error, now_s)

    def read(self, now_s: float) -> list[Gpu]:
        """Its record, and those of its parts; once it is in problem, what it said last, and then none."""
        self.read_s = now_s
        if self.problem is None or now_s >= self._retry_s:
            try:
                if not self._devices or now_s >= self._reopen_s:
                    self._open(now_s)
                records = [device.read(now_s) for device in self._devices]
            except DriverError as error:
                self._fail(error, now_s)
            else:
                self.problem, self.failures = None, 0
                return records
        last, self._last = self._last, []
        return last

    def close(self) -> None:
        """Free what the library holds for it; the library may be gone."""
        for device in self._devices:
            with contextlib.suppress(DriverError):
                device.close()
        self._devices = ()

    def _open(self, now_s: float) -> None:
        """Set ``gpu`` and ``_devices``. Raises DriverError."""
        raise NotImplementedError

    def _explain(self, error: DriverError, now_s: float) -> Problem:
        raise NotImplementedError

    def _fail(self, error: DriverError, now_s: float) -> None:
        self.problem = self._explain(error, now_s)
        self.close()
        first_s, longest_s = _RETRY_S
        self._retry_s = now_s + min(first_s * 2.0**self.failures, longest_s)
        self.failures += 1
