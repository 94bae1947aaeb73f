"""Turns of the training loop, as the GPU clock takes them: which boundaries count, and with which a turn begins.

A turn goes from the first batch or backward after an update to the next such boundary. In a loop without optimizers (or
with compiled ones, whose hooks do not run) a backward is an update.
"""

from _thread import get_ident
from typing import Callable, Optional

from ..ring.layout import BACKWARD_BEGIN, BACKWARD_END, FETCH_END, OPTIMIZER_BEGIN, OPTIMIZER_END

#: What a boundary is: within another of its kind or of another thread, one of a turn, or one that begins a turn.
NESTED, IN_TURN, TURN_BEGINS = 0, 1, 2

#: When no turn has begun for so long, what is open is taken to have been abandoned, and the thread to have changed.
STALE_NS = 60_000_000_000
#: So many backwards without an update: the optimizer that was seen is not the loop's, or has been compiled since.
_MOST_BACKWARDS = 1000


class Turns:
    """Tell it every boundary, nested ones and those of other threads included."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._thread: Optional[int] = None
        self._begun_ns = 0  # the turn
        self._updated = False  # since the turn began
        self._backwards = 0  # ended in this turn
        self.backwards = 0  # in the turn before, as far as it was followed
        self._optimizers = False  # some were seen
        self._depth = 0  # of backwards
        self._optimizer: Optional[int] = None  # the outermost whose step is open
        self._backwards_before = 0  # how many there were when it began

    def boundary(self, kind: int, key: int) -> int:
        """What it is; ``key``: id of the optimizer."""
        if get_ident() != self._thread and not self._moves(kind):
            return NESTED
        if kind == FETCH_END:
            self._depth = 0
            self._optimizer = None
            return self._turn_may_begin()
        if kind == BACKWARD_BEGIN:
            self._depth += 1
            return self._turn_may_begin() if self._depth == 1 or self._is_stale() else NESTED
        if kind == BACKWARD_END:
            return self._backward_ends()
        return self._optimizer_begins(key) if kind == OPTIMIZER_BEGIN else self._optimizer_ends(key)

    def untimed(self, kind: int, key: int) -> int:
        """As ``boundary``, at less cost, in a turn that is not timed: only where the next begins is told.

        Backwards that are nested do not matter, and none is open there.
        """
        if get_ident() != self._thread and not self._moves(kind):
            return NESTED
        if kind == OPTIMIZER_BEGIN:
            self._optimizer_begins(key)
        elif kind == OPTIMIZER_END:
            self._optimizer_ends(key)
        elif kind == BACKWARD_END:
            self._backwards += 1
            if not self._optimizers or self._backwards >= _MOST_BACKWARDS:
                self._updated = True
        elif self._updated:
            self._depth = int(kind == BACKWARD_BEGIN)
            if kind == FETCH_END:
                self._optimizer = None
            return self._turn_may_begin()
        return NESTED

    def _turn_may_begin(self) -> int:
        if not self._updated:
            return IN_TURN
        self._updated = False
        self.backwards, self._backwards = self._backwards, 0
        self._backwards_before = -1
        self._begun_ns = self._now_ns()
        return TURN_BEGINS

    def _backward_ends(self) -> int:
        depth = self._depth
        self._depth = max(0, depth - 1)
        if depth != 1:
            return NESTED
        self._backwards += 1
        if not self._optimizers or self._backwards >= _MOST_BACKWARDS:
            self._updated = True
        return IN_TURN

    def _optimizer_begins(self, key: int) -> int:
        """Within a step of another (GradScaler's, a sharded one's) it is nested, unless there was a backward between.

        Then the other has raised: closures are called with no step of another's in them.
        """
        if self._optimizer not in (None, key) and self._backwards == self._backwards_before:
            return NESTED
        self._optimizer = key
        self._backwards_before = self._backwards
        return IN_TURN if self._depth == 0 else NESTED

    def _optimizer_ends(self, key: int) -> int:
        self._optimizers = self._updated = True
        if self._optimizer != key:
            return NESTED
        self._optimizer = None
        return IN_TURN if self._depth == 0 else NESTED

    def _moves(self, kind: int) -> bool:
        """Whether the loop runs in this thread, from now on. Batches may be fetched ahead in a thread of their own."""
        if kind not in (BACKWARD_BEGIN, OPTIMIZER_BEGIN) or not (self._thread is None or self._is_stale()):
            return False
        self._thread = get_ident()
        self._begun_ns = self._now_ns()
        self._depth = 0
        self._optimizer = None
        self._updated = False
        return True

    def _is_stale(self) -> bool:
        """Whether no turn has begun for long; what was open is forgotten."""
        now_ns = self._now_ns()
        if now_ns - self._begun_ns < STALE_NS:
            return False
        self._begun_ns = now_ns
        self._depth = 1
        self._optimizer = None
        return True
