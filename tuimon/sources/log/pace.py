"""The recorded pace of a log: which of its records are due when it is played."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """Plays at ``speed`` times the recorded pace; without a speed all is due at once.

    ``at_once_s``: so many recorded seconds are due at once, the rest is played.
    """

    def __init__(
        self, speed: float | None, clock: Callable[[], float] = time.monotonic, *, at_once_s: float = 0.0
    ) -> None:
        self._speed = speed
        self._at_once_s = at_once_s
        self._clock = clock
        self._began: tuple[float, float] | None = None  # the clock, and ``t`` that is due then

    def is_due(self, t: float) -> bool:
        """True if a record of that moment is due."""
        if self._speed is None:
            return True
        now_s = self._clock()
        if self._began is None:
            self._began = (now_s, t + self._at_once_s)
        clock_s, record_s = self._began
        return t - record_s <= (now_s - clock_s) * self._speed
