"""CPU of ended children that no window of their own holds: their first and last moments, or all of a short life.

Workers that are started anew each epoch live for seconds. Without this a third of what they use would seem to be other
programs'.
"""

from __future__ import annotations

from msgspec import Struct

#: Less is the grain of the kernel's clock, and of rounded windows.
_LEAST_S = 0.05


class ChildrensCpu(Struct):
    """CPU of one process's ended children."""

    reported_s: float = 0.0  # of the children that it has waited for, in records so far
    waited_s: float = 0.0  # used by those, at the read before
    unreported_s: float = 0.0  # for the next record

    def take(self, waited_s: float) -> None:
        """``waited_s``: what the children that it has waited for had used, as read now.

        Compared is what was read before: the ends of all those children have been seen since.
        """
        unreported_s = self.waited_s - self.reported_s
        if unreported_s >= _LEAST_S:
            self.unreported_s += unreported_s
            self.reported_s += unreported_s
        self.waited_s = waited_s

    def pass_unreported(self) -> float | None:
        """What is to be reported, once; None where there is nothing."""
        unreported_s, self.unreported_s = self.unreported_s, 0.0
        return round(unreported_s, 2) or None
