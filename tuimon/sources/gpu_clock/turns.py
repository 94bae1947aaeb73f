"""The boundaries of a training thread and the GPU's times of them, joined to turns of its loop.

A turn goes from the first batch or backward after an update to the next such boundary. Only turns with a time for each
of their boundaries count: in the others a phase would be missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tuimon.agent.ring import layout
from tuimon.sources.gpu_clock.leads import Chain

#: Turns whose events may still come: a GPU is at most a thousand launches behind.
_WAITING = 64
_EVENTS_WAITING = 4096
#: A turn of more boundaries is none (an evaluation within it).
_BOUNDARIES = 2048
#: So many backwards without an update: the optimizer that was seen is not the loop's, or has been compiled since.
_MOST_BACKWARDS = 1000
_TIMED = frozenset(
    (layout.FETCH_END, layout.BACKWARD_BEGIN, layout.BACKWARD_END, layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END)
)
_BEGINS_TURN = frozenset((layout.FETCH_END, layout.BACKWARD_BEGIN))

#: What lies between two boundaries; where a batch is fetched, see ``_fetched``.
_LABELS = {
    (layout.FETCH_END, layout.BACKWARD_BEGIN): "forward",
    (layout.FETCH_END, layout.OPTIMIZER_BEGIN): "forward",
    (layout.BACKWARD_BEGIN, layout.BACKWARD_END): "backward",
    (layout.BACKWARD_END, layout.BACKWARD_BEGIN): "forward",
    (layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END): "optimizer",
    (layout.OPTIMIZER_BEGIN, layout.BACKWARD_BEGIN): "forward",  # a closure
    (layout.BACKWARD_END, layout.OPTIMIZER_END): "optimizer",
    (layout.OPTIMIZER_END, layout.BACKWARD_BEGIN): "forward",
}


@dataclass(eq=False, slots=True)
class Boundary:
    """A boundary that has an event, and the event's time once it is known."""

    time_ns: int
    kind: int
    iterator: int = 0  # of a fetch
    fetch_ns: int = 0  # how long the fetch took
    after_end: bool = False  # the iterator of the batch before came to its end before this batch
    gpu_ns: int | None = None  # on its GPU's clock
    chain: Chain | None = None  # the count that ``gpu_ns`` is in
    drained: bool = False

    def meet(self, gpu_ns: int, chain: Chain, drained: bool) -> None:
        """The GPU has come to it."""
        self.gpu_ns, self.chain, self.drained = gpu_ns, chain, drained


class Stretch(NamedTuple):
    """GPU time of one phase between two boundaries: see ``records.GpuPhase``."""

    name: str
    span_ns: int
    idle_ns: int = 0
    paced_ns: int = 0


@dataclass(slots=True)
class Turn:
    """The boundaries of a turn, the first of the next included."""

    boundaries: list[Boundary] = field(default_factory=list)
    backwards: int = 0
    updated: bool = False

    @property
    def chain(self) -> Chain | None:
        """The count that all of it is in; None while, or where, there is none."""
        chain = self.boundaries[0].chain
        return chain if all(boundary.chain is chain for boundary in self.boundaries) else None

    def stretches(self) -> list[Stretch]:
        """What the GPU's time went to."""
        return [stretch for before, after in pairwise(self.boundaries) for stretch in _between(before, after)]


class TurnFinder:
    """Feed it the boundaries of one thread and the times of their events, in order; it finds the turns."""

    def __init__(self) -> None:
        self._given_up = 0
        self._pending: dict[int, Boundary] = {}  # by number of its event
        self._open: Turn | None = None
        self._closed: deque[Turn] = deque()
        self._depth = 0  # of open backwards
        self._optimizer: int | None = None  # the outermost whose step is open
        self._fetches: dict[int, int] = {}  # iterator -> begin of its fetch
        self._ended: set[int] = set()  # iterators that came to their end since the last batch
        self._optimizer_seen = False
        self._bare = 0  # backwards since an update

    def boundary(self, time_ns: int, kind: int, flag: int, value: int) -> None:
        """A boundary of the thread, with the number of its event or without."""
        if kind == layout.FETCH_BEGIN:
            if len(self._fetches) >= _WAITING:
                self._fetches.clear()
            self._fetches[value] = time_ns
        elif kind == layout.FETCH_END and layout.has_no_batch(flag):
            self._fetches.pop(value, None)
            self._ended.add(value)
        elif kind in _TIMED:
            nested = self._is_nested(kind, value)
            if layout.has_event(flag):
                if nested:  # what it would be in has raised
                    self._depth = int(kind == layout.BACKWARD_BEGIN)
                    self._optimizer = value if kind == layout.OPTIMIZER_BEGIN else None
                self._timed(time_ns, kind, flag, value)
            elif not nested:
                self.interrupt()

    def interrupt(self) -> None:
        """What follows does not join on to what was."""
        if self._open is not None and len(self._open.boundaries) > 1:
            self._given_up += 1
        self._open = None
        self._fetches.clear()

    def waiting(self, number: int) -> Boundary | None:
        """The boundary whose event has this number; once."""
        return self._pending.pop(number, None)

    def take(self) -> list[Turn]:
        """The turns that have become known."""
        known = []
        told = max((at for at, turn in enumerate(self._closed) if turn.chain is not None), default=-1)
        for _ in range(max(told + 1, len(self._closed) - _WAITING)):
            turn = self._closed.popleft()
            if turn.chain is not None:
                known.append(turn)
            else:  # events are told of in their order: its own will not come
                self._given_up += 1
        return known

    def take_given_up(self) -> int:
        """How many turns will not become known, since the last call."""
        given_up, self._given_up = self._given_up, 0
        return given_up

    def _is_nested(self, kind: int, value: int) -> bool:
        """Whether a boundary is within another of its kind: such have no events."""
        if kind == layout.FETCH_END:
            self._depth, self._optimizer = 0, None
        elif kind == layout.BACKWARD_BEGIN:
            self._depth += 1
            return self._depth > 1
        elif kind == layout.BACKWARD_END:
            self._depth = max(0, self._depth - 1)
            self._bare += 1
            self._optimizer_seen &= self._bare < _MOST_BACKWARDS
            return self._depth > 0
        elif kind == layout.OPTIMIZER_BEGIN:
            if self._optimizer not in (None, value):
                return True
            self._optimizer = value
        else:
            self._optimizer_seen = True
            self._bare = 0
            if self._optimizer not in (None, value):
                return True
            self._optimizer = None
        return False

    def _timed(self, time_ns: int, kind: int, number: int, value: int) -> None:
        boundary = Boundary(time_ns, kind)
        if kind == layout.FETCH_END:
            begin_ns = self._fetches.pop(value, None)
            boundary.iterator = value
            boundary.fetch_ns = 0 if begin_ns is None else time_ns - begin_ns
        self._pending.pop(number, None)  # numbers come again
        self._pending[number] = boundary
        if len(self._pending) > _EVENTS_WAITING:
            del self._pending[next(iter(self._pending))]
        self._join(boundary)

    def _join(self, boundary: Boundary) -> None:
        """Append a boundary to the open turn, or begin the next with it."""
        turn, kind = self._open, boundary.kind
        if turn is not None:
            before = turn.boundaries[-1]
            boundary.after_end = before.kind == layout.FETCH_END and before.iterator in self._ended
            turn.boundaries.append(boundary)
            if kind in _BEGINS_TURN and (turn.updated or (turn.backwards and not self._optimizer_seen)):
                self._closed.append(turn)
                turn = None
            elif len(turn.boundaries) > _BOUNDARIES:
                self.interrupt()
                return
        if turn is None and kind in _BEGINS_TURN:
            turn = self._open = Turn([boundary])
        if turn is not None:
            turn.backwards += kind == layout.BACKWARD_END
            turn.updated |= kind == layout.OPTIMIZER_END
        if kind == layout.FETCH_END:
            self._ended.clear()


def _between(before: Boundary, after: Boundary) -> Iterator[Stretch]:
    """What the GPU did from one boundary to the next."""
    span_ns = max(0, (after.gpu_ns or 0) - (before.gpu_ns or 0))
    if after.kind == layout.FETCH_END:
        yield from _fetched(before, after, span_ns)
        return
    name = _LABELS.get((before.kind, after.kind), "other")
    yield Stretch(name, span_ns, paced_ns=span_ns if after.drained else 0)


def _fetched(before: Boundary, after: Boundary, span_ns: int) -> Iterator[Stretch]:
    """A second batch of an iterator without a backward: the first was evaluated. Otherwise: the wait for the batch.

    During the fetch itself nothing is launched. A GPU that has nothing to do at its end has waited: for the fetch, and
    if it waited longer, for what the CPU did before it. What was launched between the update and the fetch (averaged
    weights) has no boundary of its own: where it ran on into the fetch, that much of it is taken for waiting.
    """
    if before.kind == layout.FETCH_END and (before.iterator == after.iterator or after.after_end):
        yield Stretch("eval", span_ns, paced_ns=span_ns if after.drained else 0)
    elif after.drained:
        wait_ns = min(span_ns, after.fetch_ns)
        yield Stretch("data", wait_ns, idle_ns=wait_ns)
        yield Stretch("other", span_ns - wait_ns, paced_ns=span_ns - wait_ns)
    else:
        yield Stretch("other", span_ns)
