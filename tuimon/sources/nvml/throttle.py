"""Limits on a GPU's clocks: the causes at the latest poll, and their shares of a window."""

from __future__ import annotations

from tuimon.records import Throttle
from tuimon.sources.nvml.fields import THROTTLE_NS, Fields
from tuimon.sources.nvml.library import Handle

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
    """The causes of one device."""

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
        uncounted = [word for _, word in _REASONS if word in self._seen and not self._counted(word)]
        self._seen.clear()
        return self._now, found + [Throttle(cause) for cause in uncounted]

    def _counted(self, cause: str) -> bool:
        field = _COUNTERS.get(cause)
        return field is not None and self._fields.value(field) is not None
