"""Where the steps of one thread's loop begin, as its boundaries pass: for the pace, for the GPU clock, for a trace.

A step begins with ``tuimon.step()``; else with the first fetch after an update; in a loop that fetches nothing with the
first backward after an update. An update is a run of optimizer steps. Without an optimizer each backward is one.

The monitor cuts the loop exactly (``tuimon.sources.loop``), from the markers. This is the part of it that cannot wait
for the monitor: it labels no time, holds nothing back, and forgets each step with the next.
"""

from .ring.layout import BACKWARD_BEGIN, BACKWARD_END, FETCH_BEGIN, OPTIMIZER_END, STEP

#: After so many updates without a fetch, or a call of ``tuimon.step()``, the loop's steps no longer begin there.
BARE_UPDATES = 64
#: After so many backwards without an update, the optimizer that was seen is not the loop's, or is compiled by now.
_MOST_BACKWARDS = 1000
#: What came last in a loop.
FETCH, BACKWARD, UPDATE = -1, 0, 1


class StepCounter:
    """Finds where the steps of a thread begin."""

    def __init__(self) -> None:
        self.updates = 0
        self.updated = False  # since the step began
        self.last = BACKWARD
        self.has_optimizer = False
        self.without_update = 0  # backwards since an update
        self.by_fetch = self.by_mark = 0  # updates until steps no longer begin with a fetch, ``tuimon.step()``; 0: now

    def begins_step(self, kind: int) -> bool:
        """True if a step begins with this boundary."""
        if kind == FETCH_BEGIN:
            return self.begin_fetch()
        if kind == BACKWARD_BEGIN:
            return self.begin_backward()
        if kind == STEP:
            self.mark_step()
        elif kind == BACKWARD_END:
            self.end_backward()
        elif kind == OPTIMIZER_END:
            self.end_optimizer_step()
        return kind == STEP

    def begin_fetch(self) -> bool:
        """True if a step begins with this fetch."""
        self.last = FETCH
        if not self.updated:
            return False
        self.by_fetch = BARE_UPDATES
        self.updated = bool(self.by_mark)
        return not self.updated

    def begin_backward(self) -> bool:
        """True if a step begins with this backward."""
        self.last = BACKWARD
        if self.by_fetch or self.by_mark or not self.updated:
            return False
        self.updated = False
        return True

    def end_backward(self) -> None:
        """A backward has ended."""
        self.without_update += 1
        if self.without_update >= _MOST_BACKWARDS or not self.has_optimizer:
            self.updated = True

    def end_optimizer_step(self) -> None:
        """An optimizer step has ended, the first of an update or one more."""
        if self.last == UPDATE:
            return
        self.updates += 1
        self.last, self.updated, self.has_optimizer = UPDATE, True, True
        self.without_update = 0
        self.by_fetch -= self.by_fetch > 0
        self.by_mark -= self.by_mark > 0

    def mark_step(self) -> None:
        """``tuimon.step()``: a step begins."""
        self.last, self.updated = BACKWARD, False
        self.by_mark = BARE_UPDATES
