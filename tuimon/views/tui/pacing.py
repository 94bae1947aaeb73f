"""When the panes are drawn: a figure covers a window, and drawing it twice shows nothing more."""

from __future__ import annotations


class Pacing:
    """Decides at which ticks to draw: when something has come since the last drawing, once a window at most.

    Records of one window come over some ticks. With two ticks a window and something new at each of five ticks, the
    first, third and fifth draw; drawing is half of what the full screen costs.
    """

    def __init__(self, ticks_per_window: int) -> None:
        self._every = max(ticks_per_window, 1)
        self._since = self._every  # ticks since the last drawing
        self._stale = True

    def is_due(self, changed: bool, paused: bool = False) -> bool:
        """True if this tick draws; ``changed``: something has come since the last tick."""
        self._since += 1
        self._stale = self._stale or changed
        if paused or not self._stale or self._since < self._every:
            return False
        self._since, self._stale = 0, False
        return True
