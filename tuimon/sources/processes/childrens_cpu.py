"""CPU of ended children that no window of their own holds: their first and last moments, or all of a short life.

Workers that are started anew each epoch live for seconds. Without this a third of what they use would seem to be other
programs'.
"""

from __future__ import annotations

from msgspec import Struct

#: Less is the grain of the kernel's clock, and of rounded windows.
_LEAST_S = 0.05


class ChildrensCpu(Struct):
    """Of one process."""

    told_s: float = 0.0  # of the children that it has waited for, in records so far
    waited_s: float = 0.0  # used by those, at the read before
    untold_s: float = 0.0  # for the next record

    def take(self, waited_s: float) -> None:
        """``waited_s``: what the children that it has waited for had used, as read now.

        Compared is what was read before: the ends of all those children have been seen since.
        """
        untold_s = self.waited_s - self.told_s
        if untold_s >= _LEAST_S:
            self.untold_s += untold_s
            self.told_s += untold_s
        self.waited_s = waited_s

    def pass_untold(self) -> float | None:
        """What is to be told, once; None where there is nothing."""
        untold_s, self.untold_s = self.untold_s, 0.0
        return round(untold_s, 2) or None
