"""Fields that NVML reads many at once (``nvmlDeviceGetFieldValues``), and how fast its counters grow.

Units are those of nvml.h, at the NVML_FI_DEV_* of the same number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tuimon.records import Throttle
from tuimon.sources.gpus.handle import Handle
from tuimon.sources.nvml.library import INVALID_ARGUMENT, NO_PERMISSION, NOT_SUPPORTED

MEMORY_TEMPERATURE = 82  # degrees C
ENERGY = 83  # mJ
POWER_AVERAGE = 185  # mW
PCIE_TX, PCIE_RX = 197, 198  # bytes
NVLINK_TX, NVLINK_RX = 138, 139  # KiB
#: Time for which a cause held the clocks down, in ns.
THROTTLE_NS = {
    74: "power cap",
    76: "sync boost",
    269: "thermal (software)",
    270: "thermal (hardware)",
    271: "power brake",
}

ALL = (POWER_AVERAGE, ENERGY, MEMORY_TEMPERATURE, PCIE_TX, PCIE_RX, NVLINK_TX, NVLINK_RX, *THROTTLE_NS)
_ALL_LINKS = 0xFFFFFFFF  # scope of the NVLink counters: the sum over the links
_SCOPED = frozenset({NVLINK_TX, NVLINK_RX})
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
        wanted = [field for field in ALL if field not in self._never]
        if not wanted:
            return
        self._read_s = self._clock()
        queries = [(field, _ALL_LINKS if field in _SCOPED else 0) for field in wanted]
        for answer in self._handle.query("nvmlDeviceGetFieldValues", queries) or ():
            field, reading = int(answer.fieldId), _VALUES.get(int(answer.valueType))
            if answer.nvmlReturn in (NOT_SUPPORTED, INVALID_ARGUMENT, NO_PERMISSION):
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
