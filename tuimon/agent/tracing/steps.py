"""Finds where steps begin, as they happen, from the boundaries of one thread."""

from ..ring.layout import BACKWARD_BEGIN, BACKWARD_END, FETCH_BEGIN, OPTIMIZER_END, STEP

#: Backward passes without any optimizer step: from here on each is taken for a step (parameters updated by hand).
_NO_OPTIMIZER = 16
#: Optimizer steps without a fetch: from here on the loop fetches no more.
_MANY_ENDS = 64


class StepFinder:
    """Finds at which boundaries a step begins: the first fetch after an update, or where nothing is fetched its end.

    The end of an update is the end of as many optimizer steps as the update before had. Steps of ``tuimon.step()``
    come before all others. What the monitor makes of the same markers decides in the end (``sources/loop``).
    """

    __slots__ = ("_backwards", "_ends", "_fetches", "_has_marks", "_latest_ends", "_updated")

    def __init__(self) -> None:
        self._updated = False  # an optimizer step has ended since the step began
        self._ends = self._latest_ends = 0  # of optimizer steps, in this update and in the one before
        self._fetches = False  # whether steps begin with a fetch
        self._has_marks = False  # tuimon.step() is used
        self._backwards = 0  # since an optimizer step

    def begins_step(self, kind: int) -> bool:
        """True if a step begins with this boundary."""
        if kind == STEP:
            self._has_marks = True
            return True
        begins = self._begins(kind)
        return begins and not self._has_marks

    def _begins(self, kind: int) -> bool:
        if kind == FETCH_BEGIN:
            self._fetches = self._fetches or self._updated
            return self._end_update()
        if kind == BACKWARD_BEGIN:
            self._fetches = self._fetches and self._ends < _MANY_ENDS
            # the update was shorter than the one before, or is the first that is seen
            return not self._fetches and self._end_update()
        if kind == OPTIMIZER_END:
            self._ends += 1
            self._backwards = 0
            self._updated = True
            return not self._fetches and self._ends == self._latest_ends and self._end_update()
        if kind == BACKWARD_END:
            self._backwards += 1
            return self._backwards > _NO_OPTIMIZER
        return False

    def _end_update(self) -> bool:
        """The update is over, if there was one."""
        if not self._updated:
            return False
        self._updated = False
        self._latest_ends, self._ends = self._ends, 0
        return True
