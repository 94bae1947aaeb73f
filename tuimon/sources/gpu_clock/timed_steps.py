"""Steps whose boundaries all have a time on the GPU: the GPU's times attach to the stretches of the loop.

A timed step goes from the first batch or backward after an update to the next such boundary. Only steps with a time for
each of their boundaries count: in the others a phase would be missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct, field

from tuimon.agent.ring import layout
from tuimon.records import BETWEEN, GpuExchange
from tuimon.sources.gpu_clock.offset import Chain, TimedBoundary
from tuimon.sources.loop.step import Stretch

#: Steps whose events may still come: a GPU is at most a thousand launches behind.
_STEPS_WAITING = 64
_EVENTS_WAITING = 4096
#: With more boundaries it is no step (an evaluation within it).
_BOUNDARIES_LIMIT = 2048
#: The boundaries that may have an event.
_TIMED = frozenset(
    (layout.FETCH_END, layout.BACKWARD_BEGIN, layout.BACKWARD_END, layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END)
)
_BEGINS_STEP = frozenset((layout.FETCH_END, layout.BACKWARD_BEGIN))


class GpuStretch(NamedTuple):
    """GPU time of one phase between two boundaries: see ``records.GpuPhase``."""

    name: str
    span_ns: int
    idle_ns: int = 0
    maybe_idle_ns: int = 0  # how much more of it may have been idle


class Pass(NamedTuple):
    """A backward pass: its begin and end, and where its gradients are used."""

    begin: TimedBoundary
    end: TimedBoundary
    update: TimedBoundary

    @property
    def own_ns(self) -> int:
        """From its begin to its end."""
        return _span_ns(self.begin, self.end)


class TimedStep(Struct):
    """The boundaries of a step, the first of the next included."""

    boundaries: list[TimedBoundary] = field(default_factory=list)

    @property
    def chain(self) -> Chain | None:
        """The count that all of it is in; None while, or where, there is none."""
        chain = self.boundaries[0].chain
        return chain if all(boundary.chain is chain for boundary in self.boundaries) else None

    def stretches(self) -> list[GpuStretch]:
        """The parts of the GPU's time."""
        return [
            stretch
            for (before, after), is_evaluation in zip(pairwise(self.boundaries), self._evaluations(), strict=True)
            for stretch in _between(before, after, is_evaluation)
        ]

    def passes(self) -> Iterator[Pass]:
        """Its backward passes."""
        boundaries = self.boundaries
        for at, (begin, end) in enumerate(pairwise(boundaries)):
            if (begin.kind, end.kind) == (layout.BACKWARD_BEGIN, layout.BACKWARD_END):
                after = boundaries[at + 2] if at + 2 < len(boundaries) else end
                yield Pass(begin, end, after if after.kind == layout.OPTIMIZER_BEGIN else end)

    def exchange(self, last: Pass) -> GpuExchange | None:
        """What its last pass shows of the exchange of gradients; None while the offset of the clocks is unknown.

        Without a forward pass where the step begins with backward: that lies in the step before.
        """
        reached_ns = last.update.reached_ns
        if reached_ns is None:
            return None
        forward_ns = None
        if self.boundaries[0].kind != layout.BACKWARD_BEGIN:
            pairs = pairwise(self.boundaries[:-1])
            forward_ns = sum(_span_ns(*pair) for pair in pairs if pair[1].kind == layout.BACKWARD_BEGIN)
        return GpuExchange(round(reached_ns / 1e9, 6), forward_ns, last.own_ns, _span_ns(last.end, last.update))

    def _evaluations(self) -> list[bool]:
        """For each pair of boundaries, True if a batch is evaluated between them, from its fetch to the next.

        It may take gradients, such as forces: then boundaries of backward lie between the two fetches.
        """
        found = [False] * (len(self.boundaries) - 1)
        fetched = None  # the latest fetch without an update since
        for at, boundary in enumerate(self.boundaries):
            if boundary.kind == layout.FETCH_END:
                if boundary.evaluated and fetched is not None:
                    found[fetched:at] = [True] * (at - fetched)
                fetched = at
            elif boundary.kind in (layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END):
                fetched = None
        return found


class TimedStepFinder:
    """Feed it the stretches of one thread and the times of their events, in order."""

    def __init__(self) -> None:
        self.waiting: dict[int, TimedBoundary] = {}  # by number of its event
        self._open: TimedStep | None = None
        self._closed: list[TimedStep] = []
        self._evaluated = False  # the batch before was proved to be evaluated, since the last boundary

    def add_stretch(self, stretch: Stretch) -> None:
        """The next stretch of the thread; the boundary that ends it may have an event."""
        self._evaluated |= stretch.evaluated
        kind, flag = stretch.kind, stretch.flag
        if kind not in _TIMED or (kind == layout.FETCH_END and flag in layout.NO_BATCH):
            return
        if layout.has_event(flag):
            self._add_boundary(TimedBoundary(stretch, self._evaluated), flag)
            self._evaluated = False
        elif not stretch.nested:
            self.interrupt()

    def interrupt(self) -> None:
        """Break the sequence: the next marker does not follow the last one."""
        self._open = None

    def take_steps(self) -> list[TimedStep]:
        """The steps whose times have become known since the last call."""
        last_known = max((at for at, step in enumerate(self._closed) if step.chain is not None), default=-1)
        count = max(last_known + 1, len(self._closed) - _STEPS_WAITING, 0)
        passed, self._closed = self._closed[:count], self._closed[count:]
        # events are reported in order: those of the rest will not come
        return [step for step in passed if step.chain is not None]

    def _add_boundary(self, boundary: TimedBoundary, number: int) -> None:
        self.waiting.pop(number, None)  # numbers come again
        self.waiting[number] = boundary
        if len(self.waiting) > _EVENTS_WAITING:
            del self.waiting[next(iter(self.waiting))]
        step, begins = self._open, boundary.kind in _BEGINS_STEP
        if step is not None:
            step.boundaries.append(boundary)
            if begins and boundary.stretch.cut != step.boundaries[0].stretch.cut:
                self._closed.append(step)
                step = None
            elif len(step.boundaries) > _BOUNDARIES_LIMIT:
                self.interrupt()
                return
        if step is None:
            self._open = TimedStep([boundary]) if begins else None


def _between(before: TimedBoundary, after: TimedBoundary, is_evaluation: bool) -> Iterator[GpuStretch]:
    """The work of the GPU from one boundary to the next."""
    span_ns = _span_ns(before, after)
    at_most_ns = _idle_at_most_ns(before, after)
    if is_evaluation:
        yield GpuStretch("eval", span_ns, maybe_idle_ns=at_most_ns)
        return
    if after.kind == layout.FETCH_END:
        yield from _fetched(after, span_ns, at_most_ns)
        return
    label = after.stretch.label
    yield GpuStretch("forward" if label == BETWEEN else label, span_ns, maybe_idle_ns=at_most_ns)


def _idle_at_most_ns(before: TimedBoundary, after: TimedBoundary) -> int:
    """How long the GPU may have had nothing to do between two boundaries.

    Once the CPU has come to the second, all work before it is launched: from then on the GPU is busy until it gets
    there too. The rest is the time from the GPU's arrival at the first boundary to the CPU's arrival at the second.
    If the GPU reaches the first 3 ms after the CPU, and the CPU the second 10 ms after the first, that is 7 ms.
    """
    span_ns = _span_ns(before, after)
    return span_ns if after.stream_idle else max(0, min(span_ns, round(after.time_ns - before.reached_from_ns)))


def _fetched(after: TimedBoundary, span_ns: int, at_most_ns: int) -> Iterator[GpuStretch]:
    """The wait for a batch.

    During the fetch itself nothing is launched. A GPU that has nothing to do at its end has waited: for the fetch, and
    if it waited longer, for the CPU's work before it. Launches between the update and the fetch (averaged weights)
    have no boundary of their own: as far as they run on into the fetch, they are taken for waiting.
    """
    if after.stream_idle:
        opened = after.stretch.opened
        wait_ns = 0 if opened is None else min(span_ns, after.time_ns - opened.end_ns)
        yield GpuStretch("data", wait_ns, idle_ns=wait_ns)
        yield GpuStretch("other", span_ns - wait_ns, maybe_idle_ns=span_ns - wait_ns)
    else:
        yield GpuStretch("other", span_ns, maybe_idle_ns=at_most_ns)


def _span_ns(begin: TimedBoundary, end: TimedBoundary) -> int:
    return max(0, end.gpu_ns - begin.gpu_ns)
