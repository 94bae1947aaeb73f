"""When the slow queries of a device are due."""

from __future__ import annotations

#: How often the slow queries are made (process lists, ECC, power limit, PCIe link) ...
_SLOW_EVERY_S = 2.0
#: ... unless that took more than this share of the time.
_SLOW_RATIO = 0.02
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
        self._due_s = t - _EARLY_S + max(_SLOW_EVERY_S, cost_s / _SLOW_RATIO)
