"""The one place that cuts a training loop at its markers: labelled stretches of time, and steps made of them.

Everything that needs a boundary of the loop (user ranges, DataLoaders, GPU times) attaches to the stretches; nothing
else follows markers from begin to end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from tuimon.agent.ring import layout
from tuimon.agent.ring.layout import Marker, Passed
from tuimon.records import BETWEEN
from tuimon.sources.loop.step import COUNTED, Stretch, stretch_of
from tuimon.sources.loop.steps import StepFinder


class Outside:
    """Adds up the time from each end of a loop, that of a notebook's cell, to the next boundary, and that of stops."""

    def __init__(self) -> None:
        self._since_ns: int | None = None
        self._passed_ns = 0

    @property
    def is_open(self) -> bool:
        """True if the program is outside its loop."""
        return self._since_ns is not None

    def begin(self, time_ns: int) -> None:
        """The program has left its loop."""
        self.end(time_ns)
        self._since_ns = time_ns

    def end(self, time_ns: int) -> None:
        """It has come to a boundary."""
        if self._since_ns is not None:
            self._passed_ns += max(0, time_ns - self._since_ns)
            self._since_ns = None

    def add(self, duration_ns: int) -> None:
        """The process was stopped for so long."""
        self._passed_ns += duration_ns

    def take_ns(self, begin_ns: int, end_ns: int) -> int:
        """How long it was in a window, the next after that of the last call."""
        if self._since_ns is not None and end_ns > self._since_ns:
            self.begin(end_ns)
        taken_ns = min(self._passed_ns, end_ns - begin_ns)
        self._passed_ns -= taken_ns
        return taken_ns


#: Most pairs open at once: of more, the outermost have lost their ends.
_DEPTH_LIMIT = 64

Event = Literal["start", "fetch", "end", "backward", "update", "step"]

#: (event before, event after) -> label of the stretch between them, outside every pair of markers; others: "other".
_STRETCH: dict[tuple[Event, Event], str] = {
    ("start", "backward"): BETWEEN,
    ("step", "backward"): BETWEEN,
    ("step", "step"): BETWEEN,  # nothing else is marked
    ("fetch", "step"): "forward",
    ("fetch", "fetch"): "forward",
    ("fetch", "backward"): "forward",
    ("fetch", "update"): "forward",
    ("end", "backward"): BETWEEN,
    ("backward", "backward"): BETWEEN,
    ("update", "backward"): BETWEEN,
}
#: The phase that the trainer is assumed to be in while the stretch is still open.
_OPEN: dict[Event, str] = {
    "fetch": "forward",
    "backward": "other",
    "update": BETWEEN,
    "end": "other",
    "start": "other",
    "step": BETWEEN,
}

#: Begin marker -> the phase inside the pair.
_PHASE = {
    layout.FETCH_BEGIN: "data",
    layout.ITER_BEGIN: "data",
    layout.BACKWARD_BEGIN: "backward",
    layout.OPTIMIZER_BEGIN: "optimizer",
}
#: Begin marker -> the event it is for the stretch before it.
_EVENT: dict[int, Event] = {
    layout.FETCH_BEGIN: "fetch",
    layout.ITER_BEGIN: "fetch",
    layout.BACKWARD_BEGIN: "backward",
    layout.OPTIMIZER_BEGIN: "update",
}
#: Begin marker -> open pairs that make a pair nested; fetches and iter() are nested in any.
_NESTED_IN = {
    layout.BACKWARD_BEGIN: (layout.BACKWARD_BEGIN,),
    layout.OPTIMIZER_BEGIN: (layout.OPTIMIZER_BEGIN, layout.BACKWARD_BEGIN),
}


class OpenPhase(NamedTuple):
    """The phase the thread is in now, and since when; None: it is not known which."""

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
    ...     stretch = machine.feed_marker(Marker(ms * 10**6, getattr(layout, kind), flag, 1, 1))
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
    >>> ended = machine.steps.take_ended()
    >>> [(step.total_ns // 10**6, step.phases["data"] // 10**6) for step in ended.steps]
    [(16, 5)]
    >>> ended.eval_count, ended.eval_ns // 10**6  # and the fetch that found the end
    (1, 9)
    """

    def __init__(self) -> None:
        self.steps = StepFinder()
        self.outside = Outside()
        self._stack: list[Marker] = []  # the begin markers of open pairs, outermost first
        self._before: Event = "start"
        self._last_ns: int | None = None
        self._closure_backwards = 0  # backwards inside the open optimizer step
        self._gap_ns: int | None = None  # since when boundaries are only counted
        self.first_backward_ns: int | None = None

    @property
    def open_phase(self) -> OpenPhase | None:
        """The phase now; None before the first marker."""
        if self._last_ns is None:
            return None
        if self._gap_ns is not None and self._gap_ns >= self._last_ns:
            return OpenPhase(None, self._gap_ns)
        evaluates = self.is_evaluating and not self.steps.are_forward
        name = _PHASE[self._stack[-1].kind] if self._stack else "eval" if evaluates else _OPEN[self._before]
        return OpenPhase(name, self._last_ns)

    def open_fetches(self) -> Iterator[Marker]:
        """The begin markers of fetches under way."""
        return (begin for begin in self._stack if begin.kind == layout.FETCH_BEGIN)

    def lose_markers(self) -> None:
        """Markers were overwritten before they were read; the ends of all open pairs count as lost with them."""
        self.steps.is_profiled = False
        self._gap_ns = None
        if self._stack:
            self._stack.clear()
            self._before = "start"

    def leave_loop(self, time_ns: int) -> None:
        """The program has left its loop: what it does until its next boundary belongs to no step."""
        self._stack.clear()
        self._before = "start"
        self._last_ns = None
        self.outside.begin(time_ns)
        self.steps.leave_loop()

    def pass_stop(self, duration_ns: int) -> None:
        """The process was stopped for so long since its last marker: that time is of no phase."""
        if self._last_ns is not None:
            self._last_ns += duration_ns
        self.steps.hold_up()

    @property
    def is_evaluating(self) -> bool:
        """True if each further fetch of the iterator shows no more than that another batch was evaluated."""
        return not self._stack and self._before == "fetch" and self.steps.is_evaluating

    def begin_gap(self, marker: Marker) -> Stretch:
        """The stretch that ends with this GAP_BEGIN; from here on boundaries are only counted."""
        time_ns, kind = marker.time_ns, marker.value
        label = self._label_before(_EVENT.get(kind, "update"))
        begin_ns = self._add_time(label, time_ns)
        self._gap_ns = time_ns
        self.steps.begin_gap(time_ns, at_fetch=kind == layout.FETCH_BEGIN)
        self._stack.clear()
        return stretch_of((label, begin_ns, marker, None, False, False, self.steps.cuts))

    def end_gap(self, marker: Marker) -> Passed:
        """So many boundaries have been counted until this GAP_END."""
        passed = layout.unpack_gap(marker.value)
        self._add_time(COUNTED, marker.time_ns)
        self.steps.end_gap(marker.time_ns, passed, marker.flag)
        is_within = marker.flag in (layout.GAP_AFTER_FETCH, layout.GAP_AFTER_BACKWARD)
        self._before = "start" if is_within else "update"
        self._gap_ns = None
        return passed

    @property
    def last_ns(self) -> int:
        """When the latest marker was; 0 before the first."""
        return self._last_ns or 0

    def feed_marker(self, marker: Marker) -> Stretch:
        """The stretch that ends with this boundary (``layout.BOUNDARIES``) of the thread."""
        if marker.kind in _PHASE:
            return self._begin_pair(marker)
        if marker.kind - 1 in _PHASE:
            return self._end_pair(marker)
        label = self._label_before("step")
        begin_ns = self._add_time(label, marker.time_ns)
        self.steps.end_step(marker.time_ns)
        if self._before == "start":
            self._before = "step"
        return stretch_of((label, begin_ns, marker, None, False, False, self.steps.cuts))

    def _begin_pair(self, marker: Marker) -> Stretch:
        time_ns, kind, _, _, value = marker
        stack, steps = self._stack, self.steps
        if stack and self._is_abandoned(kind, value):
            label = "optimizer"
            begin_ns = self._add_time(label, time_ns)
            steps.end_optimizer_step(time_ns, stack[0].value)
            stack.clear()
            self._before = "update"
        else:
            label = self._label_before(_EVENT[kind])
            begin_ns = self._add_time(label, time_ns)
        nested = bool(stack) and self._is_nested(kind)
        evaluated = False
        if kind == layout.BACKWARD_BEGIN:
            self._closure_backwards += 1
            if self.first_backward_ns is None:
                self.first_backward_ns = time_ns
            if not nested:  # reentrant checkpointing runs a backward inside the backward
                steps.begin_backward(returned=value == layout.RETURNED)
        elif kind == layout.OPTIMIZER_BEGIN:
            if not self._is_open(kind):
                self._closure_backwards = 0
        elif nested:
            pass
        elif kind == layout.FETCH_BEGIN:
            evaluated = steps.begin_fetch(time_ns, value)
        elif not value:  # workers that are ended instead, whenever their iterator is deleted, bound no step
            steps.begin_iter(time_ns)
        stack.append(marker)
        if len(stack) > _DEPTH_LIMIT:
            del stack[0]
        return stretch_of((label, begin_ns, marker, None, nested, evaluated, steps.cuts))

    def _end_pair(self, marker: Marker) -> Stretch:
        stack, begin_kind = self._stack, marker.kind - 1
        opened = None
        if self._is_open(begin_kind):
            label = _PHASE[stack[-1].kind]
            while opened is None:  # anything still open inside has lost its end to an exception
                top = stack.pop()
                opened = top if top.kind == begin_kind else None
        else:  # it began before the first marker, or its begin was overwritten
            label = self._label_before("update" if begin_kind == layout.OPTIMIZER_BEGIN else "backward")
        begin_ns = self._add_time(label, marker.time_ns)
        if not stack:
            self._end_outermost(marker)
        nested = bool(stack) and self._is_nested(begin_kind)
        return stretch_of((label, begin_ns, marker, opened, nested, False, self.steps.cuts))

    def _end_outermost(self, marker: Marker) -> None:
        if (kind := marker.kind) == layout.FETCH_END:
            exhausted = layout.has_no_batch(marker.flag)
            self._before = "end" if exhausted else "fetch"
            self.steps.end_fetch(exhausted)
        elif kind == layout.ITER_END:
            self.steps.end_iter(marker.value)
        elif kind == layout.BACKWARD_END:
            self._before = "backward"
            self.steps.end_backward(marker.time_ns)
        else:
            self._before = "update"
            self.steps.end_optimizer_step(marker.time_ns, marker.value)

    def _is_abandoned(self, kind: int, value: int) -> bool:
        """True if an optimizer step that is still open has raised: its post-hook does not run then.

        That is so when the same optimizer begins another step, or a batch is fetched straight from inside one.
        """
        if kind == layout.OPTIMIZER_BEGIN:
            return any(begin.kind == kind and begin.value == value for begin in self._stack)
        return _EVENT[kind] == "fetch" and self._stack[-1].kind == layout.OPTIMIZER_BEGIN

    def _is_open(self, kind: int) -> bool:
        stack = self._stack
        return bool(stack) and (stack[-1].kind == kind or any(begin.kind == kind for begin in stack))

    def _is_nested(self, kind: int) -> bool:
        """True if a pair is within an open one."""
        around = _NESTED_IN.get(kind)
        return around is None or any(begin.kind in around for begin in self._stack)

    def _label_before(self, after: Event) -> str:
        """The label of the time since the last marker, now that the next one is known."""
        if not self._stack:
            return _STRETCH.get((self._before, after), "other")
        kind = self._stack[-1].kind
        if kind == layout.OPTIMIZER_BEGIN and after == "backward":
            # a closure: before its first backward lies a forward pass; later ones share with the optimizer's own work
            return "forward" if self._closure_backwards == 0 else BETWEEN
        return _PHASE[kind]

    def _add_time(self, label: str, time_ns: int) -> int:
        """Count the time since the last marker; returns when that was."""
        last_ns, self._last_ns = self._last_ns, time_ns
        if last_ns is None or time_ns <= last_ns:
            self.outside.end(time_ns)
            return time_ns
        self.steps.add_time(label, time_ns - last_ns)
        return last_ns
