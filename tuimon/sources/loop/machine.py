"""The one place that cuts a training loop at its markers: labelled stretches of time, and steps made of them.

Everything that needs a boundary of the loop (user ranges, DataLoaders, GPU times) attaches to the stretches; nothing
else follows markers from begin to end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tuimon.agent.ring import layout
from tuimon.agent.ring.layout import (
    BACKWARD_BEGIN,
    BACKWARD_END,
    FETCH_BEGIN,
    FETCH_END,
    ITER_BEGIN,
    ITER_END,
    NO_BATCH,
    OPTIMIZER_BEGIN,
    OPTIMIZER_END,
    STEP,
    Passed,
)
from tuimon.records import BETWEEN
from tuimon.sources.loop.step import COUNTED, MarkedStretch, stretch_of
from tuimon.sources.loop.steps import StepFinder

#: Values for a stretch that no marker precedes: nothing came before it, or a fetch that found the end.
_START, _EXHAUSTED = 0, 1
#: (kind before, kind after) -> label of the stretch between them, outside every pair of markers; others: "other".
_STRETCH = {
    **dict.fromkeys(
        ((FETCH_END, kind) for kind in (FETCH_BEGIN, ITER_BEGIN, BACKWARD_BEGIN, OPTIMIZER_BEGIN)), "forward"
    ),
    **dict.fromkeys(
        ((kind, BACKWARD_BEGIN) for kind in (_START, _EXHAUSTED, BACKWARD_END, OPTIMIZER_END, STEP)), BETWEEN
    ),
    (FETCH_END, STEP): "forward",
    (STEP, STEP): BETWEEN,  # nothing else is marked
}
#: The phase that the trainer is assumed to be in while the stretch is still open; after others: "other".
_OPEN = {FETCH_END: "forward", OPTIMIZER_END: BETWEEN, STEP: BETWEEN}

#: Begin marker -> the phase inside the pair.
_PHASE = {FETCH_BEGIN: "data", ITER_BEGIN: "data", BACKWARD_BEGIN: "backward", OPTIMIZER_BEGIN: "optimizer"}
#: Begin marker -> open pairs that make a pair nested; fetches and iter() are nested in any.
_NESTED_IN = {
    FETCH_BEGIN: tuple(_PHASE),
    ITER_BEGIN: tuple(_PHASE),
    BACKWARD_BEGIN: (BACKWARD_BEGIN,),
    OPTIMIZER_BEGIN: (OPTIMIZER_BEGIN, BACKWARD_BEGIN),
}


class OpenPhase(NamedTuple):
    """The phase the thread is in now, and since when; None: unknown phase."""

    name: str | None
    since_ns: int


class LoopMachine:
    """Turns the boundary markers of one thread, in order, into stretches and steps.

    Inside a pair of markers the phase is theirs; nested pairs keep their own share. A stretch outside every pair is
    labelled when its second marker arrives, by the events on either side (``_STRETCH``). If these cannot distinguish
    data preparation, forward pass and side work, it is called ``between``, and stack samples divide it later.

    One step of a loop with a DataLoader, and the beginning of the next; times in ms:

    >>> machine = LoopMachine()
    >>> def feed(ms, kind, flag=0):
    ...     stretch = machine.feed(ms * 10**6, getattr(layout, kind), flag, value=1)
    ...     print(f"{(stretch.end_ns - stretch.begin_ns) // 10**6} {stretch.label}, cut {stretch.cut}")
    >>> feed(0, "FETCH_BEGIN")
    0 other, cut 0
    >>> feed(5, "FETCH_END")
    5 data, cut 0
    >>> feed(8, "BACKWARD_BEGIN")  # from a batch to its backward
    3 forward, cut 0
    >>> feed(12, "BACKWARD_END")
    4 backward, cut 0
    >>> feed(13, "OPTIMIZER_BEGIN")  # gradient clipping
    1 other, cut 0
    >>> feed(15, "OPTIMIZER_END")  # an update, if no further optimizer steps
    2 optimizer, cut 0
    >>> feed(16, "FETCH_BEGIN")  # a fetch after an update: the step ends
    1 other, cut 1
    >>> feed(21, "FETCH_END")
    5 data, cut 1
    >>> feed(24, "FETCH_BEGIN")  # a second batch without a backward: the first was evaluated, both stretches with it
    3 forward, cut 1
    >>> feed(25, "FETCH_END", layout.EXHAUSTED)
    1 data, cut 1
    >>> machine.steps.finish()  # the thread has ended; until then a single step could be half of one
    >>> [(step.total_ns // 10**6, step.phases["data"] // 10**6) for step in machine.steps.take_ended()]
    [(16, 5)]
    >>> machine.steps.take_evaluation()  # ns, with the fetch that found the end, and batches
    (9000000, 1)
    """

    def __init__(self) -> None:
        self.steps = StepFinder()
        self._stack: list[MarkedStretch] = []  # stretches that end at the begin markers of open pairs, outermost first
        self._before = _START  # kind of the marker that came last outside every pair
        self._closure_backwards = 0  # backwards inside the open optimizer step
        self._gap_ns: int | None = None  # since when boundaries are only counted
        self.first_backward_ns: int | None = None
        self.left_ns: int | None = None  # since when the program is outside its loop
        self.outside_ns = 0  # how long it was outside or stopped, since this was last taken

    @property
    def open_phase(self) -> OpenPhase | None:
        """The phase now; None before the first marker, and outside the loop."""
        last_ns = self.steps.last_ns
        if last_ns is None:
            return None
        if self._gap_ns is not None and self._gap_ns >= last_ns:
            return OpenPhase(None, self._gap_ns)
        if self._stack:
            return OpenPhase(_PHASE[self._stack[-1].kind], last_ns)
        # each further fetch of the iterator shows no more than that another batch was evaluated
        batches = self.steps.batches
        are_steps = batches.forward is not None and batches.are_reported
        evaluates = self._before == FETCH_END and batches.are_evaluated and not are_steps
        return OpenPhase("eval" if evaluates else _OPEN.get(self._before, "other"), last_ns)

    def open_fetches(self) -> Iterator[MarkedStretch]:
        """The stretches that ended when the fetches that are still open began."""
        return (begin for begin in self._stack if begin.kind == FETCH_BEGIN)

    def lose_markers(self) -> None:
        """Close all open pairs: markers were overwritten before they were read, perhaps their ends."""
        self.steps.is_profiled = False
        self._gap_ns = None
        if self._stack:
            self._stack.clear()
            self._before = _START

    def leave_loop(self, time_ns: int) -> None:
        """Note that the program has left its loop: its time until the next boundary belongs to no step."""
        self._stack.clear()
        self._before = _START
        self._return(time_ns)
        self.left_ns = time_ns
        self.steps.leave_loop()

    def _return(self, time_ns: int) -> None:
        """Note that the program is in its loop, perhaps again."""
        if self.left_ns is not None:
            self.outside_ns += max(0, time_ns - self.left_ns)
            self.left_ns = None

    def take_outside_ns(self, begin_ns: int, end_ns: int) -> int:
        """Return and clear the time for which the program was outside its loop, or stopped, in a window."""
        if self.left_ns is not None and end_ns > self.left_ns:
            self._return(end_ns)
            self.left_ns = end_ns
        taken_ns = min(self.outside_ns, end_ns - begin_ns)
        self.outside_ns -= taken_ns
        return taken_ns

    def pass_stop(self, duration_ns: int) -> None:
        """Leave out time for which the process was stopped since its last marker: it is in no phase."""
        if self.steps.last_ns is not None:
            self.steps.last_ns += duration_ns
        self.steps.open.slowed = True

    def begin_gap(self, time_ns: int, kind: int) -> MarkedStretch:
        """Begin a gap, in which boundaries are only counted; returns the stretch that ends here."""
        self._return(time_ns)
        label = self._label_before(kind)
        begin_ns = self.steps.advance(label, time_ns)
        self._gap_ns = time_ns
        self.steps.begin_gap(time_ns, at_fetch=kind == FETCH_BEGIN)
        self._stack.clear()
        return MarkedStretch(label, begin_ns, time_ns, layout.GAP_BEGIN, 0, kind, None, False, False, self.steps.cuts)

    def end_gap(self, time_ns: int, passed: Passed, place: int) -> None:
        """End the gap: ``passed`` boundaries were counted until this GAP_END; ``place``: its flag."""
        self._return(time_ns)
        self.steps.advance(COUNTED, time_ns)
        self.steps.end_gap(time_ns, passed, place)
        self._before = _START if place in (layout.GAP_AFTER_FETCH, layout.GAP_AFTER_BACKWARD) else OPTIMIZER_END
        self._gap_ns = None

    def feed(self, time_ns: int, kind: int, flag: int = 0, value: int = 0) -> MarkedStretch:
        """Take the next boundary of the thread (``layout.BOUNDARIES``); returns the stretch that ends with it."""
        if self.left_ns is not None:
            self._return(time_ns)
        if kind in _PHASE:
            return self._begin_pair(time_ns, kind, flag, value)
        if kind != STEP:
            return self._end_pair(time_ns, kind, flag, value)
        label = self._label_before(STEP)
        begin_ns = self.steps.advance(label, time_ns)
        self.steps.end_step(time_ns)
        if self._before == _START:
            self._before = STEP
        return stretch_of((label, begin_ns, time_ns, kind, flag, value, None, False, False, self.steps.cuts))

    def _begin_pair(self, time_ns: int, kind: int, flag: int, value: int) -> MarkedStretch:
        stack, steps = self._stack, self.steps
        nested = evaluated = False
        is_abandoned = bool(stack) and self._is_abandoned(kind, value)
        label = "optimizer" if is_abandoned else self._label_before(kind)
        begin_ns = steps.advance(label, time_ns)
        if is_abandoned:
            steps.end_optimizer_step(time_ns, stack[0].value)
            stack.clear()
            self._before = OPTIMIZER_END
        elif stack:
            nested = self._is_within(_NESTED_IN[kind])
        if kind == BACKWARD_BEGIN:
            self._closure_backwards += 1
            if self.first_backward_ns is None:
                self.first_backward_ns = time_ns
            if not nested:  # reentrant checkpointing runs a backward inside the backward
                steps.begin_backward(returned=value == layout.RETURNED)
        elif kind == OPTIMIZER_BEGIN:
            if not stack or not self._is_within((kind,)):
                self._closure_backwards = 0
        elif nested:
            pass
        elif kind == FETCH_BEGIN:
            evaluated = steps.begin_fetch(time_ns, value)
        elif not value:  # workers that are ended instead, whenever their iterator is deleted, bound no step
            steps.begin_iter(time_ns)
        stretch = stretch_of((label, begin_ns, time_ns, kind, flag, value, None, nested, evaluated, steps.cuts))
        stack.append(stretch)
        if len(stack) > 64:  # the outermost must have lost their ends
            del stack[0]
        return stretch

    def _end_pair(self, time_ns: int, kind: int, flag: int, value: int) -> MarkedStretch:
        stack, steps, begin_kind = self._stack, self.steps, kind - 1
        opened, nested = None, False
        if stack and (stack[-1].kind == begin_kind or self._is_within((begin_kind,))):
            opened = stack.pop()
            label = _PHASE[opened.kind]
            while opened.kind != begin_kind:  # anything still open inside has lost its end to an exception
                opened = stack.pop()
        else:  # it began before the first marker, or its begin was overwritten
            label = self._label_before(OPTIMIZER_BEGIN if begin_kind == OPTIMIZER_BEGIN else BACKWARD_BEGIN)
        begin_ns = steps.advance(label, time_ns)
        if stack:
            nested = self._is_within(_NESTED_IN[begin_kind])
        elif kind == FETCH_END:
            exhausted = flag in NO_BATCH
            self._before = _EXHAUSTED if exhausted else FETCH_END
            steps.batches.end_fetch(exhausted, steps.open)
        elif kind == BACKWARD_END:
            self._before = BACKWARD_END
            steps.end_backward(time_ns)
        elif kind == ITER_END:
            steps.batches.end_iter(value)
        else:
            self._before = OPTIMIZER_END
            steps.end_optimizer_step(time_ns, value)
        return stretch_of((label, begin_ns, time_ns, kind, flag, value, opened, nested, False, steps.cuts))

    def _is_abandoned(self, kind: int, value: int) -> bool:
        """True if an optimizer step that is still open has raised: its post-hook does not run then.

        This happens when the same optimizer begins another step, or a batch is fetched directly inside one.
        """
        if kind == OPTIMIZER_BEGIN:
            return any(begin.kind == kind and begin.value == value for begin in self._stack)
        return kind in (FETCH_BEGIN, ITER_BEGIN) and self._stack[-1].kind == OPTIMIZER_BEGIN

    def _is_within(self, kinds: tuple[int, ...]) -> bool:
        """True if a pair of one of these kinds is open."""
        return any(begin.kind in kinds for begin in self._stack)

    def _label_before(self, after: int) -> str:
        """The label of the time since the last marker, now that the kind of the next one is known."""
        if not self._stack:
            is_bare = (self._before, after) == (OPTIMIZER_END, OPTIMIZER_BEGIN) and not self.steps.total_backwards
            return BETWEEN if is_bare else _STRETCH.get((self._before, after), "other")
        kind = self._stack[-1].kind
        if kind == OPTIMIZER_BEGIN and after == BACKWARD_BEGIN:
            # a closure: before its first backward lies a forward pass; later ones share with the optimizer's own work
            return "forward" if self._closure_backwards == 0 else BETWEEN
        return _PHASE[kind]
