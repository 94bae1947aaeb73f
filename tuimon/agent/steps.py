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


class StepCounter:
    """Finds where the steps of a thread begin."""

    def __init__(self) -> None:
        self.updated = False  # since the step began
        self.run = 0  # optimizer steps of the update that may go on; 0: a backward came last, -1: a fetch
        self.usual_run = 0  # of the update before; 0: there was none
        self.without_update = 0  # backwards since an update
        self.by_fetch = self.by_mark = 0  # updates until steps no longer begin with a fetch, ``tuimon.step()``; 0: now

    def copy(self) -> "StepCounter":
        """Another one that goes on from here."""
        other = StepCounter()
        for name in vars(other):
            setattr(other, name, getattr(self, name))
        return other

    def begins_step(self, kind: int) -> bool:
        """True if a step begins with this boundary; or after it, if it ends an update like the one before."""
        if kind == FETCH_BEGIN:
            return self.begin_fetch()
        if kind == BACKWARD_BEGIN:
            return self.begin_backward()
        if kind == BACKWARD_END:
            self.end_backward()
        elif kind == OPTIMIZER_END:
            self.end_optimizer_step()
        else:
            return kind == STEP and self.mark_step()
        begins = self.updated and self.run == self.usual_run and not (self.by_fetch or self.by_mark)
        self.updated = self.updated and not begins
        return begins

    def begin_fetch(self) -> bool:
        """True if a step begins with this fetch."""
        self._end_run(-1)
        if not self.updated:
            return False
        self.by_fetch = BARE_UPDATES
        self.updated = bool(self.by_mark)
        return not self.updated

    def begin_backward(self) -> bool:
        """True if a step begins with this backward."""
        self._end_run(0)
        if self.by_fetch or self.by_mark or not self.updated:
            return False
        self.updated = False
        return True

    def end_backward(self) -> None:
        """A backward has ended."""
        self.without_update += 1
        if self.without_update >= _MOST_BACKWARDS or not self.usual_run:
            self.updated = True

    def end_optimizer_step(self) -> bool:
        """True if it is the first of an update."""
        if self.run > 0:
            self.run += 1
            return False
        self.run = 1
        self.updated = True
        self.without_update = 0
        if self.by_fetch:
            self.by_fetch -= 1
        if self.by_mark:
            self.by_mark -= 1
        return True

    def mark_step(self) -> bool:
        """``tuimon.step()``: True."""
        self._end_run(0)
        self.by_mark = BARE_UPDATES
        self.updated = False
        return True

    def _end_run(self, now: int) -> None:
        """No further optimizer belongs to the update."""
        if self.run > 0:
            self.usual_run = self.run
        self.run = now
