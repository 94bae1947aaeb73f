"""The place of each boundary in a step of the training loop, as far as the GPU clock must know it.

The clock times steps in bursts: ``agent/steps.py`` says where they begin. Boundaries that are nested in others of their
kind, or of another thread, have no events.
"""

from _thread import get_ident
from typing import Callable, Optional

from ..ring.layout import BACKWARD_BEGIN, BACKWARD_END, FETCH_END, OPTIMIZER_BEGIN
from ..steps import StepCounter

#: Places of a boundary: nested in another of its kind or of another thread, inside a step, or where a step begins.
NESTED, IN_STEP, STEP_BEGINS = 0, 1, 2

#: After this long without the beginning of a step, and after so many times the length of the step before, what is open
#: counts as abandoned, and the loop may move to another thread.
STALE_NS = 60_000_000_000
STALE_STEPS = 4


class StepFollower:
    """Place every boundary with it, nested ones and those of other threads included."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._steps = StepCounter()
        self._thread: Optional[int] = None
        self._begun_ns = 0  # of the step
        self._stale_ns = STALE_NS
        self._backwards = 0  # ended in this step
        self.backwards = 0  # in the step before, as far as it was followed
        self._backwards_before = 0  # how many there were when the open optimizer step began
        self.forget_open()

    def forget_open(self) -> None:
        """What is open may end unseen."""
        self._depth = 0  # of open backwards
        self._optimizer: Optional[int] = None  # the outermost whose step is open

    def place(self, kind: int, key: int) -> int:
        """The place of a boundary; ``key``: id of the optimizer."""
        if get_ident() != self._thread and not self._moves_here(kind):
            return NESTED
        if kind == FETCH_END:
            self.forget_open()
            return self._begin_step() if self._steps.begin_fetch() else IN_STEP
        if kind == BACKWARD_BEGIN:
            self._depth += 1
            if self._depth > 1 and not self._is_stale():
                return NESTED
            return self._begin_step() if self._steps.begin_backward() else IN_STEP
        if kind == BACKWARD_END:
            return self._end_backward()
        return self._begin_optimizer(key) if kind == OPTIMIZER_BEGIN else self._end_optimizer(key)

    def _begin_step(self) -> int:
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
        self._steps.end_backward()
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
        self._steps.end_optimizer_step()
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
        self.forget_open()
        self._steps.updated = False
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
