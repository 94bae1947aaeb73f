"""From markers to phases: which exclusive phase every nanosecond of the training thread belongs to.

Inside a pair of markers the phase is theirs; nested pairs keep their own share. The stretch between two markers is
labelled when the second arrives, by what stood on either side of it (``_STRETCH``). Where that cannot tell data
preparation, forward pass and side work apart, the stretch is called ``between`` and samples divide it later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from tuimon.agent.ring import layout
from tuimon.records import BETWEEN

Event = Literal["start", "fetch", "end", "backward", "update"]

#: (event before, event after) -> label of the stretch between them, outside every pair of markers.
_STRETCH: dict[tuple[Event, Event], str] = {
    ("start", "backward"): BETWEEN,
    ("fetch", "fetch"): "forward",
    ("fetch", "backward"): "forward",
    ("fetch", "update"): "forward",
    ("end", "backward"): BETWEEN,
    ("backward", "backward"): BETWEEN,
    ("update", "backward"): BETWEEN,
}
#: What the trainer is taken to be doing while the stretch is still open.
_OPEN: dict[Event, str] = {
    "fetch": "forward",
    "backward": "other",
    "update": BETWEEN,
    "end": "other",
    "start": "other",
}

#: Workers are being started: data, and no fetch.
_STARTING = "starting"
_BEGIN_PHASE = {
    layout.FETCH_BEGIN: "data",
    layout.ITER_BEGIN: _STARTING,
    layout.BACKWARD_BEGIN: "backward",
    layout.OPTIMIZER_BEGIN: "optimizer",
}
_END_PHASE = {kind + 1: phase for kind, phase in _BEGIN_PHASE.items()}


class Loop(Protocol):
    """Who receives the labelled time and the events that bound steps, in order (see ``loops.py``)."""

    def spend(self, label: str, duration_ns: int) -> None:
        """This much time was spent in one phase."""

    def iter_begins(self, time_ns: int) -> None:
        """An epoch begins, outside every other phase: workers are started."""

    def iter_ends(self, iterator: int) -> None:
        """This iterator is ready to be asked."""

    def fetch_begins(self, time_ns: int, iterator: int) -> None:
        """A batch is asked for, outside every other phase."""

    def fetch_ends(self, exhausted: bool) -> None:
        """The batch is there, or the iterator is exhausted."""

    def backward_begins(self, time_ns: int) -> None:
        """A backward pass begins, also inside an optimizer's closure."""

    def backward_ends(self, time_ns: int) -> None:
        """A backward pass ends, outside every other phase."""

    def update_ends(self, time_ns: int) -> None:
        """An optimizer step ends, outside every other phase."""

    def step_ends(self, time_ns: int) -> None:
        """The user called ``tuimon.step()``."""


class OpenPhase(NamedTuple):
    """What the thread is in now, and since when."""

    name: str
    since_ns: int


class PhaseMachine:
    """The phases of one thread. Feed it the thread's markers in order."""

    def __init__(self, loop: Loop, on_segment: Callable[[str, int, int], None] | None = None) -> None:
        """``on_segment(label, start_ns, end_ns)`` hears of every labelled stretch as well."""
        self._loop = loop
        self._on_segment = on_segment
        self._stack: list[str] = []  # open pairs of markers, outermost first
        self._optimizers: list[int] = []  # ids of the optimizers among them: GradScaler.step is around optimizer.step
        self._before: Event = "start"
        self._last_ns: int | None = None
        self._closure_backwards = 0  # backwards inside the open optimizer step

    @property
    def open(self) -> OpenPhase | None:
        """The phase now; None before the first marker."""
        if self._last_ns is None:
            return None
        name = _label(self._stack[-1]) if self._stack else _OPEN[self._before]
        return OpenPhase(name, self._last_ns)

    def feed(self, time_ns: int, kind: int, flag: int, value: int) -> None:
        """Take one marker of this thread (user ranges and marks are not for here)."""
        if kind == layout.STEP:
            self._close_stretch(time_ns, "update")
            self._loop.step_ends(time_ns)
        elif (phase := _BEGIN_PHASE.get(kind)) is not None:
            self._begin(phase, time_ns, value)
        elif (phase := _END_PHASE.get(kind)) is not None:
            self._end(phase, time_ns, flag, value)

    def _begin(self, phase: str, time_ns: int, value: int) -> None:
        self._drop_abandoned_optimizer(phase, time_ns, value)
        after: Event = "fetch" if _label(phase) == "data" else "backward" if phase == "backward" else "update"
        self._close_stretch(time_ns, after)
        if phase == "backward":
            self._closure_backwards += 1
            if "backward" not in self._stack:  # reentrant checkpointing runs a backward inside the backward
                self._loop.backward_begins(time_ns)
        elif phase == "data" and not self._stack:
            self._loop.fetch_begins(time_ns, value)
        elif phase == _STARTING and not self._stack:
            self._loop.iter_begins(time_ns)
        elif phase == "optimizer":
            if not self._optimizers:
                self._closure_backwards = 0
            self._optimizers.append(value)
        self._stack.append(phase)

    def _end(self, phase: str, time_ns: int, flag: int, value: int) -> None:
        if phase not in self._stack:  # it began before we came, or its begin was overwritten
            self._close_stretch(time_ns, "update" if phase == "optimizer" else "backward")
        else:
            while True:  # anything still open inside has lost its end to an exception
                top = self._stack[-1]
                self._spend(_label(top), time_ns)
                self._stack.pop()
                if top == "optimizer":
                    self._optimizers.pop()
                if top == phase:
                    break
        if self._stack:
            return
        if phase == "data":
            exhausted = layout.has_no_batch(flag)
            self._before = "end" if exhausted else "fetch"
            self._loop.fetch_ends(exhausted=exhausted)
        elif phase == _STARTING:
            self._loop.iter_ends(value)
        elif phase == "backward":
            self._before = "backward"
            self._loop.backward_ends(time_ns)
        else:
            self._before = "update"
            self._loop.update_ends(time_ns)

    def _drop_abandoned_optimizer(self, phase: str, time_ns: int, value: int) -> None:
        """The post-hook of an optimizer step does not run when the step raises: close what can no longer be open.

        That is so when the same optimizer begins another step, or a batch is fetched straight from inside one.
        """
        if not self._optimizers:
            return
        again = phase == "optimizer" and value in self._optimizers
        fetching = _label(phase) == "data" and self._stack[-1] == "optimizer"
        if again or fetching:
            self._spend("optimizer", time_ns)
            self._stack.clear()
            self._optimizers.clear()
            self._before = "update"
            self._loop.update_ends(time_ns)

    def _close_stretch(self, time_ns: int, after: Event) -> None:
        """Label the time since the last marker, now that the next one is known."""
        if not self._stack:
            self._spend(_STRETCH.get((self._before, after), "other"), time_ns)
        elif self._stack[-1] == "optimizer" and after == "backward":
            # a closure: before its first backward lies a forward pass; later ones share with the optimizer's own work
            self._spend("forward" if self._closure_backwards == 0 else BETWEEN, time_ns)
        else:
            self._spend(_label(self._stack[-1]), time_ns)

    def _spend(self, label: str, time_ns: int) -> None:
        if self._last_ns is not None and time_ns > self._last_ns:
            self._loop.spend(label, time_ns - self._last_ns)
            if self._on_segment is not None:
                self._on_segment(label, self._last_ns, time_ns)
        self._last_ns = time_ns


def _label(phase: str) -> str:
    """What the time inside an open pair of markers is called."""
    return "data" if phase == _STARTING else phase
