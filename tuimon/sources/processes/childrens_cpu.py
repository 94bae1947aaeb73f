"""CPU of children that no window of their own holds: their first and last moments, or all of a short life.

Workers that are started anew each epoch live for seconds. Without this a third of what they use would seem to be other
programs'.
"""

from __future__ import annotations

from msgspec import Struct

#: Less is the grain of the kernel's clock, and of rounded windows.
_LEAST_S = 0.05


class ChildrensCpu(Struct):
    """CPU of one process's children."""

    reported_s: float = 0.0  # of the children that it has waited for, in records so far
    unreported_s: float = 0.0  # for the next record

    def begin_child(self, used_s: float) -> None:
        """A child was found that had used so much before its first window."""
        self.unreported_s += used_s

    def end_child(self, reported_s: float) -> None:
        """A child has ended; ``reported_s``: what it and its own children had used, as far as that was passed on."""
        self.reported_s += reported_s

    def take(self, waited_s: float) -> None:
        """``waited_s``: what the children that it has waited for had used.

        It was read before the children were, so that the ends of all those children have been seen.
        """
        unreported_s = waited_s - self.reported_s
        if unreported_s >= _LEAST_S:
            self.unreported_s += unreported_s
            self.reported_s += unreported_s

    def pass_unreported(self) -> float | None:
        """The CPU time to report, once; None where there is nothing."""
        unreported_s, self.unreported_s = self.unreported_s, 0.0
        return round(unreported_s, 2) or None
