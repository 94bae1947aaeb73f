"""Where a step of the training loop begins, as far as the GPU clock must know it to time steps in bursts.

A step goes from the first batch or backward after an update to the next such boundary. In a loop without optimizers (or
with compiled ones, whose hooks do not run) a backward is an update.

The monitor cuts the loop exactly (``tuimon.sources.loop``), from the markers. This is the part of it that cannot wait
for the monitor: whether a boundary gets an event is decided when it is passed, inside the training, with the standard
library alone and in under a microsecond. So it labels no time, holds nothing back, and forgets each step with the next.
"""

from _thread import get_ident
from typing import Callable, Optional

from ..ring.layout import BACKWARD_BEGIN, BACKWARD_END, FETCH_END, OPTIMIZER_BEGIN, OPTIMIZER_END

#: Places of a boundary: nested in another of its kind or of another thread, inside a step, or where a step begins.
NESTED, IN_STEP, STEP_BEGINS = 0, 1, 2

#: After this long without the beginning of a step, and after so many times the length of the step before, what is open
#: counts as abandoned, and the loop may move to another thread.
STALE_NS = 60_000_000_000
STALE_STEPS = 4
#: After this many backwards without an update, the optimizer that was seen is not the loop's, or is compiled by now.
_MOST_BACKWARDS = 1000


class StepFollower:
    """Place every boundary with it, nested ones and those of other threads included."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._thread: Optional[int] = None
        self._begun_ns = 0  # of the step
        self._stale_ns = STALE_NS
        self._updated = False  # since the step began
        self._backwards = 0  # ended in this step
        self.backwards = 0  # in the step before, as far as it was followed
        self._optimizers_seen = False
        self._depth = 0  # of open backwards
        self._optimizer: Optional[int] = None  # the outermost whose step is open
        self._backwards_before = 0  # how many there were when it began

    def place(self, kind: int, key: int) -> int:
        """The place of a boundary in a step that is timed; ``key``: id of the optimizer."""
        if get_ident() != self._thread and not self._moves_here(kind):
            return NESTED
        if kind == FETCH_END:
            self._depth = 0
            self._optimizer = None
            return self._maybe_begin_step()
        if kind == BACKWARD_BEGIN:
            self._depth += 1
            return self._maybe_begin_step() if self._depth == 1 or self._is_stale() else NESTED
        if kind == BACKWARD_END:
            return self._end_backward()
        return self._begin_optimizer(key) if kind == OPTIMIZER_BEGIN else self._end_optimizer(key)

    def place_untimed(self, kind: int, key: int) -> int:
        """Like ``place``, at less cost, in a step that is not timed: STEP_BEGINS, or NESTED for all other boundaries.

        Nested backwards do not matter, and none is open where the next step begins.
        """
        if get_ident() != self._thread and not self._moves_here(kind):
            return NESTED
        if kind == OPTIMIZER_BEGIN:
            self._begin_optimizer(key)
        elif kind == OPTIMIZER_END:
            self._end_optimizer(key)
        elif kind == BACKWARD_END:
            self._backwards += 1
            if not self._optimizers_seen or self._backwards >= _MOST_BACKWARDS:
                self._updated = True
        elif self._updated:
            self._depth = int(kind == BACKWARD_BEGIN)
            if kind == FETCH_END:
                self._optimizer = None
            return self._maybe_begin_step()
        return NESTED

    def _maybe_begin_step(self) -> int:
        if not self._updated:
            return IN_STEP
        self._updated = False
        self.backwards, self._backwards = self._backwards, 0
        self._backwards_before = -1
        begun_ns = self._now_ns()
        self._stale_ns = max(STALE_NS, STALE_STEPS * (begun_ns - self._begun_ns)) if self._begun_ns else STALE_NS
        self._begun_ns = begun_ns
        return STEP_BEGINS

    def _end_backward(self) -> int:
        depth = self._depth
        self._depth = max(0, depth - 1)
        if depth != 1:
            return NESTED
        self._backwards += 1
        if not self._optimizers_seen or self._backwards >= _MOST_BACKWARDS:
            self._updated = True
        return IN_STEP

    def _begin_optimizer(self, key: int) -> int:
        """Inside another optimizer's step (GradScaler's, a sharded one's) it is nested, unless a backward lies between.

        Then the other has raised: a closure contains no step of another optimizer.
        """
        if self._optimizer not in (None, key) and self._backwards == self._backwards_before:
            return NESTED
        self._optimizer = key
        self._backwards_before = self._backwards
        return IN_STEP if self._depth == 0 else NESTED

    def _end_optimizer(self, key: int) -> int:
        self._optimizers_seen = self._updated = True
        if self._optimizer != key:
            return NESTED
        self._optimizer = None
        return IN_STEP if self._depth == 0 else NESTED

    def _moves_here(self, kind: int) -> bool:
        """True if the loop runs in this thread from now on. A fetch does not show that: it may be one ahead of time."""
        if kind not in (BACKWARD_BEGIN, OPTIMIZER_BEGIN) or not (self._thread is None or self._is_stale()):
            return False
        self._thread = get_ident()
        self._begun_ns = self._now_ns()
        self._depth = 0
        self._optimizer = None
        self._updated = False
        return True

    def _is_stale(self) -> bool:
        """True if no step has begun for long; then what was open is forgotten."""
        now_ns = self._now_ns()
        if now_ns - self._begun_ns < self._stale_ns:
            return False
        self._begun_ns = now_ns
        self._depth = 1
        self._optimizer = None
        return True
