"""Ends a launched run: signals of growing force, with time in between."""

from __future__ import annotations

import signal
from collections.abc import Callable

#: Signals in order, each with the seconds until the next: Python turns SIGINT into KeyboardInterrupt, so that scripts
#: write their checkpoint; SIGTERM is what schedulers send; SIGKILL cannot be refused.
STAGES: tuple[tuple[signal.Signals, float], ...] = (
    (signal.SIGINT, 5.0),
    (signal.SIGTERM, 5.0),
    (signal.SIGKILL, 0.0),
)


class Ending:
    """A state machine without a clock or sleeps of its own: call ``step`` every tick while the run lives."""

    def __init__(self, send: Callable[[signal.Signals], None]) -> None:
        self._send = send
        self._next = 0
        self._due_s: float | None = None

    @property
    def sent(self) -> signal.Signals | None:
        """The last signal sent."""
        return STAGES[self._next - 1][0] if self._next else None

    def next_in_s(self, now_s: float) -> float | None:
        """Seconds until the next signal; None when there is none left."""
        if self._next >= len(STAGES):
            return None
        return 0.0 if self._due_s is None else max(self._due_s - now_s, 0.0)

    def step(self, now_s: float) -> signal.Signals | None:
        """Send the signal that is due at ``now_s`` (monotonic) and return it; None when none is due."""
        if self._next >= len(STAGES) or (self._due_s is not None and now_s < self._due_s):
            return None
        number, wait_s = STAGES[self._next]
        self._next += 1
        self._due_s = now_s + wait_s
        self._send(number)
        return number
